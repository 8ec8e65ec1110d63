//! Which parallel file systems a user has: a file for each, with its id and its directories, and
//! beside it the service's socket and log.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::mounts;

/// First line of such a file, and of one with spares, which earlier versions do not know.
const FIRST: &str = "margay-pfs 1";
const FIRST_WITH_SPARES: &str = "margay-pfs 2";

/// Longest name.
const MOST_NAME: usize = 64;

/// Longest path of a stripe directory.
const MOST_PATH: usize = 1024;

/// A parallel file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub id: u64,
    pub directories: Vec<String>,
    /// Empty directories that take the place of those that fail.
    pub spares: Vec<String>,
}

/// Returns the folder of the registry.
///
/// # Errors
/// When nothing says where it is.
pub fn folder() -> Result<PathBuf, String> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = match (absolute("XDG_STATE_HOME"), margay_sys_os::port::user()) {
        (Some(state), _) => state,
        (None, 0) => PathBuf::from("/var/lib"),
        (None, _) => absolute("HOME")
            .ok_or("cannot tell where to keep what is known: set HOME or XDG_STATE_HOME")?
            .join(".local/state"),
    };
    Ok(base.join("margay/pfs"))
}

/// Refuses names that are not plain.
///
/// # Errors
/// In words.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > MOST_NAME
        || name.starts_with(['.', '-'])
        || !name.chars().all(is_plain)
    {
        return Err(format!(
            "'{name}' is no name of a parallel file system; use up to {MOST_NAME} letters, digits, '-', '_' and '.'"
        ));
    }
    Ok(())
}

/// Returns the path of a file beside the entry of `name`.
///
/// # Errors
/// As [`folder`].
pub fn beside(name: &str, kind: &str) -> Result<PathBuf, String> {
    check_name(name)?;
    Ok(folder()?.join(format!("{name}.{kind}")))
}

/// Reads an entry.
///
/// # Errors
/// In words.
pub fn find(name: &str) -> Result<Known, String> {
    let path = beside(name, "pfs")?;
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no parallel file system '{name}' of this user; `margay pfs list` shows those \
             that there are, `margay pfs create {name} DIRECTORY...` makes it{}",
            mounted_here(name)
        ),
        _ => format!("cannot read {}: {error}", path.display()),
    })?;
    decode(name, &text).ok_or_else(|| format!("{} is damaged", path.display()))
}

/// What else may be meant by a name that is not known, as the end of a sentence. Another registry
/// of this host may have it as well.
fn mounted_here(name: &str) -> &'static str {
    match mounts::of(name).is_empty() {
        true => "",
        false => {
            "; one of this name is mounted here: if its service is on another host, use the command there"
        }
    }
}

fn decode(name: &str, text: &str) -> Option<Known> {
    let mut lines = text.lines();
    if ![FIRST, FIRST_WITH_SPARES].contains(&lines.next()?) {
        return None;
    }
    let id = u64::from_str_radix(lines.next()?.strip_prefix("id ")?, 16).ok()?;
    let (mut directories, mut spares) = (Vec::new(), Vec::new());
    for line in lines {
        match (line.strip_prefix("directory "), line.strip_prefix("spare ")) {
            (Some(path), _) => directories.push(path.to_owned()),
            (_, Some(path)) => spares.push(path.to_owned()),
            _ => return None,
        }
    }
    Some(Known {
        name: name.to_owned(),
        id,
        directories,
        spares,
    })
}

/// Writes an entry, in place of the one that may be there.
///
/// # Errors
/// In words.
pub fn write(known: &Known) -> Result<(), String> {
    let path = beside(&known.name, "pfs")?;
    let first = if known.spares.is_empty() {
        FIRST
    } else {
        FIRST_WITH_SPARES
    };
    let mut text = format!("{first}\nid {:016x}\n", known.id);
    for directory in &known.directories {
        text += &format!("directory {directory}\n");
    }
    for spare in &known.spares {
        text += &format!("spare {spare}\n");
    }
    let new = beside(&known.name, "new")?;
    let written = make_folder().and_then(|()| {
        let mut file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    });
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn make_folder() -> std::io::Result<()> {
    let folder = folder().map_err(std::io::Error::other)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// The names of all entries, in order.
///
/// # Errors
/// In words.
pub fn all() -> Result<Vec<String>, String> {
    let folder = folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".pfs")?.to_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the path of a stripe directory as it is kept: absolute, without links.
///
/// # Errors
/// In words.
pub fn directory(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if let Some((host, _)) = path.to_str().and_then(elsewhere) {
        if !is_host(host) {
            return Err(format!("{shown}: '{host}' is no name of a host"));
        }
        return check_path(path.as_os_str().to_owned(), &shown);
    }
    let first = shown.to_string();
    let first = first.split('/').next().unwrap_or_default();
    if let Some((host, _)) = first.split_once(':').filter(|_| !path.exists()) {
        return Err(format!(
            "{shown}: a directory of host {host} is named by its whole path, as {host}:/PATH, and one of this host \
             as ./{shown}"
        ));
    }
    let whole = match fs::canonicalize(path) {
        Ok(whole) => whole,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let parent = fs::canonicalize(parent).map_err(|error| format!("{shown}: {error}"))?;
            let name = path.file_name();
            parent.join(name.ok_or_else(|| format!("{shown} is no name of a directory"))?)
        }
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    check_path(whole.into_os_string(), &shown)
}

fn check_path(path: OsString, shown: &dyn Display) -> Result<String, String> {
    match path.into_string() {
        Ok(text) if text.len() <= MOST_PATH && !text.contains('\n') => Ok(text),
        _ => Err(format!(
            "{shown}: the path of a stripe directory is UTF-8, in one line, of at most {MOST_PATH} bytes"
        )),
    }
}

/// Whether a word may be the name of a host: the remote shell takes it for nothing else.
#[must_use]
pub fn is_host(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:%[]".contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain)
}

/// The host of a stripe directory that is named as `HOST:/PATH`, and its path there.
#[must_use]
pub fn elsewhere(directory: &str) -> Option<(&str, &str)> {
    let (host, _) = directory.split_once(":/")?;
    (!host.contains('/')).then(|| (host, &directory[host.len() + 1..]))
}

/// A number drawn by lot.
///
/// # Errors
/// In words.
pub fn lot() -> Result<u64, String> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written_and_others_are_none() {
        let text = "margay-pfs 1\nid 00000000000000ff\ndirectory /a b\ndirectory /c\n";
        let known = decode("x", text).unwrap();
        assert_eq!((known.id, known.directories.len()), (255, 2));
        let spare = "margay-pfs 2\nid 1\ndirectory /a\nspare /s\n";
        assert_eq!(decode("x", spare).unwrap().spares, ["/s"]);
        for text in [
            "",
            "margay-pfs 3\nid 1\n",
            "margay-pfs 1\nid x\n",
            "margay-pfs 1\nid 1\nd /a\n",
        ] {
            assert_eq!(decode("x", text), None);
        }
    }

    #[test]
    fn directories_of_other_hosts_are_named_with_them() {
        assert_eq!(elsewhere("a:/b:/c"), Some(("a", "/b:/c")));
        assert_eq!(elsewhere("10.0.0.1:/"), Some(("10.0.0.1", "/")));
        for own in ["/a:/b", "a:b", "./a:/b", ""] {
            assert_eq!(elsewhere(own), None, "{own}");
        }
        assert_eq!(directory(Path::new("a:/b")), Ok("a:/b".into()));
        for wrong in ["a b:/c", "-a:/b", ":/b", "a:b", "a:b/c"] {
            assert!(directory(Path::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_with_paths_are_refused() {
        for name in ["", "a/b", ".", "..", "-a", ".a", "a b", "ä"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("scratch-1.b_c").is_ok());
    }
}
