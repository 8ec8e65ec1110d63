//! What is mounted: finding the mounts of a parallel file system, also those whose service has
//! died, and ending them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use margay_fs_stripes::in_time;
use margay_sys_os::extent;

/// What the kernel mounts by.
const DEVICE: &str = "/dev/fuse";

/// What mounts and unmounts for users other than root.
const HELPER: &str = "fusermount3";

/// The file beside the entry of the registry that says where it was mounted last.
pub const NOTE: &str = "mount";

/// How long the end of a service that was killed may take, and how often that is looked at.
const DEAD_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long the program that unmounts may take.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(20);

/// The type that the kernel shows.
pub const SUBTYPE: &str = "margay";

/// The source that the kernel shows.
#[must_use]
pub fn source(name: &str) -> String {
    format!("pfs:{name}")
}

/// Where this user has mounted the file system `name`, the last one first.
#[must_use]
pub fn of(name: &str) -> Vec<PathBuf> {
    // Where there is no such list, as without /proc, nothing is found, and nothing is done.
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    find(&text, name, margay_sys_os::port::user())
}

/// Whether the service of what is mounted at a path has died.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::NotConnected | ErrorKind::ConnectionAborted
        )
    })
}

/// Unmounts. `is_lazy`: at once, though processes use it; for those it ends when the service does.
///
/// # Errors
/// In words.
pub fn unmount(path: &Path, is_lazy: bool) -> Result<(), String> {
    // Another program is the way of users, and of no use while a stripe directory hangs: its start
    // closes the files of this one, which waits for that.
    if margay_sys_os::port::user() == 0 {
        return extent::unmount(path, is_lazy).map_err(|error| error.to_string());
    }
    let path = path.to_owned();
    in_time(UNMOUNTED_WITHIN, move || by_programs(&path, is_lazy))
        .unwrap_or_else(|error| Err(format!("{HELPER}: {error}")))
}

fn by_programs(path: &Path, is_lazy: bool) -> Result<(), String> {
    let mut reasons = Vec::new();
    let ways: [(&str, &[&str]); 2] = if is_lazy {
        [(HELPER, &["-u", "-z"]), ("umount", &["-l"])]
    } else {
        [(HELPER, &["-u"]), ("umount", &[])]
    };
    for (program, options) in ways {
        match Command::new(program).args(options).arg(path).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                reasons.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
            Err(error) => reasons.push(format!("{program} cannot be run: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// Notes where a file system is going to be mounted: `note` is the [`NOTE`] of its entry.
///
/// # Errors
/// In words.
pub fn note(note: &Path, path: &str) -> Result<(), String> {
    fs::write(note, path).map_err(|error| format!("cannot write {}: {error}", note.display()))
}

/// Ends the mount of the file system `name` whose service has died; returns where it was. Of the
/// mounts with this name, that of this `note`: another registry may have the same name.
///
/// # Errors
/// In words.
pub fn clear_dead(name: &str, note: &Path) -> Result<Option<PathBuf>, String> {
    let Ok(path) = fs::read(note) else {
        return Ok(None);
    };
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    Ok(clear_dead_at(name, &path)?.then_some(path))
}

/// Ends the mount of `name` at `path`, if its service has died. Returns whether there was one.
///
/// # Errors
/// In words.
pub fn clear_dead_at(name: &str, path: &PathBuf) -> Result<bool, String> {
    let end = Instant::now() + DEAD_WITHIN;
    while of(name).contains(path) {
        if is_dead(path) {
            unmount(path, true).map_err(|reason| {
                let shown = path.display();
                format!(
                    "the service of '{name}' has died, and what it had mounted at {shown} cannot be unmounted: {reason}"
                )
            })?;
            return Ok(true);
        }
        if Instant::now() > end {
            break;
        }
        // The service does not answer, and the kernel is still ending it.
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// Whether anything can be mounted here by this user.
///
/// # Errors
/// In words: what is missing.
pub fn is_possible(is_root: bool) -> Result<(), String> {
    let device = fs::File::options().read(true).write(true).open(DEVICE);
    if let Err(error) = device {
        return Err(match error.kind() {
            ErrorKind::NotFound => format!(
                "there is no {DEVICE}; load the kernel's module (`modprobe fuse` as root), or give the \
                 container this device"
            ),
            ErrorKind::PermissionDenied => format!(
                "this user may not open {DEVICE}; ask the administrator for it (`chmod 666 {DEVICE}`), or in a \
                 container for its device"
            ),
            _ => format!(
                "{DEVICE} cannot be opened: {error}; load the kernel's module (`modprobe fuse` as root)"
            ),
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = std::env::split_paths(&path)
        .chain(["/bin".into(), "/sbin".into()])
        .any(|folder| folder.join(HELPER).exists());
    if is_root || has_helper {
        Ok(())
    } else {
        Err(format!(
            "there is no program {HELPER}, which users other than root need; install the package fuse3"
        ))
    }
}

/// Why the system did not mount, and what helps.
#[must_use]
pub fn refused(path: &str, error: &std::io::Error, is_root: bool) -> String {
    let text = error.to_string();
    let remedy = if is_root {
        "in a container, mounting takes the capability SYS_ADMIN"
    } else {
        "the directory must belong to this user"
    };
    format!("cannot mount at {path}: {}; {remedy}", text.trim_end())
}

/// Which device is mounted at `path`, the last one where there are several.
#[must_use]
pub fn device_at(path: &Path) -> Option<Vec<u8>> {
    let text = fs::read("/proc/self/mountinfo").ok()?;
    let lines = text.split(|byte| *byte == b'\n').rev();
    let mut words = lines.map(|line| line.split(|byte| *byte == b' ').collect::<Vec<_>>());
    let there = words.find(|words| {
        let place = words.get(4).map(|place| plain(place));
        place.is_some_and(|place| place == path.as_os_str().as_bytes())
    });
    there.map(|words| words[2].to_vec())
}

fn find(mounts: &[u8], name: &str, user: u32) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mounts
        .split(|byte| *byte == b'\n')
        .filter_map(|line| of_line(line, name, user))
        .collect();
    found.reverse();
    found
}

/// The mount point of a line of `mountinfo`, if it is a mount of this file system by this user.
fn of_line(line: &[u8], name: &str, user: u32) -> Option<PathBuf> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let path = words.get(4)?;
    let end = words.iter().position(|word| *word == b"-")?;
    let [kind, from, options] = words.get(end + 1..end + 4)? else {
        return None;
    };
    // What root mounts without the helper has no subtype.
    let is_fuse = *kind == b"fuse" || *kind == format!("fuse.{SUBTYPE}").as_bytes();
    let is_ours = is_fuse
        && plain(from) == source(name).as_bytes()
        && options
            .split(|byte| *byte == b',')
            .any(|option| option == format!("user_id={user}").as_bytes());
    is_ours.then(|| PathBuf::from(std::ffi::OsString::from_vec(plain(path))))
}

/// A word of `mountinfo`, in which blanks and the like are written as octal numbers.
fn plain(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(number.unwrap_or(*first));
        rest = if number.is_some() { &tail[3..] } else { tail };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_this_file_system_and_user_are_found() {
        let text = b"22 1 0:20 / /proc rw - proc proc rw\n\
            30 1 0:40 / /a\\040b rw,nosuid - fuse.margay pfs:x rw,user_id=5,group_id=0\n\
            31 1 0:41 / /c rw shared:7 - fuse.margay pfs:x rw,user_id=50\n\
            32 1 0:42 / /d rw - fuse.other pfs:x rw,user_id=5\n\
            33 1 0:43 / /e rw - fuse pfs:xx rw,user_id=5\n\
            34 1 0:44 / /f\\134 rw shared:1 master:2 - fuse pfs:x rw,user_id=5\n\
            35 1 0:44 / /g - fuse.margay\n";
        let expected: Vec<PathBuf> = vec!["/f\\".into(), "/a b".into()];
        assert_eq!(find(text, "x", 5), expected);
        assert!(find(b"", "x", 5).is_empty());
    }
}
