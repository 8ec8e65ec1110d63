//! The folder of an archive: written under another name beside it and renamed when it is whole, so
//! that a half archive never has the name that was asked for. Ctrl-C leaves nothing either.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use margay_sys_os::signal::{self, SignalFd, SignalSet};

pub const ANCHOR: &str = "traces.otf2";
const DEFINITIONS: &str = "traces.def";
const EVENTS: &str = "traces";

/// A folder that is being written. It goes away with the value unless it was published.
pub struct Folder<'a> {
    path: &'a Path,
    part: PathBuf,
    is_published: bool,
    /// Signals that end the process do so when the folder is whole or gone.
    signals: SignalFd,
    former: SignalSet,
    ending: Option<i32>,
}

impl<'a> Folder<'a> {
    /// # Errors
    /// When there is something else at the path, or the folder cannot be made.
    pub fn new(path: &'a Path) -> Result<Folder<'a>, String> {
        let Some(name) = path.file_name() else {
            return Err(format!("{} is no name of a folder", path.display()));
        };
        replaceable(path)?;
        let mut part = name.to_owned();
        part.push(format!(".part-{}", std::process::id()));
        let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
        let ending = SignalSet::of(&[signal::SIGINT, signal::SIGTERM, signal::SIGHUP]);
        let signals = SignalFd::new(&ending).map_err(failed)?;
        let folder = Folder {
            path,
            part: path.with_file_name(part),
            is_published: false,
            signals,
            former: ending.block(),
            ending: None,
        };
        // A process with that number may have been killed here.
        remove(&folder.part);
        fs::create_dir(&folder.part).map_err(failed)?;
        fs::create_dir(folder.part.join(EVENTS)).map_err(failed)?;
        Ok(folder)
    }

    fn create(&mut self, name: &str) -> io::Result<File> {
        if let Some(received) = self.signals.take() {
            self.ending = Some(received.signal);
            return Err(io::Error::other("it was interrupted"));
        }
        File::create_new(self.part.join(name))
    }

    pub fn anchor(&mut self) -> io::Result<File> {
        self.create(ANCHOR)
    }

    pub fn definitions(&mut self) -> io::Result<File> {
        self.create(DEFINITIONS)
    }

    pub fn events(&mut self, location: u64) -> io::Result<File> {
        self.create(&format!("{EVENTS}/{location}.evt"))
    }

    pub fn definitions_of(&mut self, location: u64) -> io::Result<File> {
        self.create(&format!("{EVENTS}/{location}.def"))
    }

    /// Gives the folder its name. An archive that has it goes away.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn publish(mut self) -> Result<(), String> {
        replaceable(self.path)?;
        let mut old = self.part.clone();
        old.set_extension(format!("old-{}", std::process::id()));
        let has_old = fs::rename(self.path, &old).is_ok();
        let renamed = fs::rename(&self.part, self.path);
        if let Err(error) = renamed {
            if has_old {
                let _ = fs::rename(&old, self.path);
            }
            return Err(format!("cannot write {}: {error}", self.path.display()));
        }
        self.is_published = true;
        if has_old {
            remove(&old);
        }
        Ok(())
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            remove(&self.part);
        }
        if let Some(ending) = self.ending {
            let _ = signal::send(std::process::id(), ending);
        }
        self.former.block_exactly();
    }
}

/// Whether there is nothing at a path but perhaps an archive.
fn replaceable(path: &Path) -> Result<(), String> {
    let refused = |why: &str| {
        Err(format!(
            "{} {why}; name another folder with --output",
            path.display()
        ))
    };
    match fs::symlink_metadata(path) {
        Ok(facts) if !facts.is_dir() => refused("is there and is no folder"),
        Ok(_) => match is_archive(path) {
            Ok(true) => Ok(()),
            Ok(false) => refused("has other files than those of an OTF2 archive"),
            Err(error) => refused(&format!("cannot be read ({error})")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => refused(&format!("cannot be used ({error})")),
    }
}

/// Whether nothing is in a folder that an archive has not.
fn is_archive(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_one = match entry.file_name().to_str() {
            Some(ANCHOR | DEFINITIONS) => entry.file_type()?.is_file(),
            Some(EVENTS) => entry.file_type()?.is_dir() && has_events_only(&entry.path())?,
            _ => false,
        };
        if !is_one {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_events_only(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        let is_one = parts.is_some_and(|(number, ending)| {
            number.parse::<u64>().is_ok() && ["evt", "def"].contains(&ending)
        });
        if !is_one || !entry.file_type()?.is_file() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes an archive, and nothing else.
fn remove(path: &Path) {
    if is_archive(path).unwrap_or(false) {
        let _ = fs::remove_dir_all(path);
    }
}
