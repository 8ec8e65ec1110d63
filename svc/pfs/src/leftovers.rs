//! The directories of a job that has a file system, and what is left of them when all processes
//! that would have removed them were killed at once.
//!
//! Each directory has a file that is locked while the job's keeper lives, and a note that lists all
//! directories of the job and says whether what is in them was to be kept. So a process that finds
//! one of them without a holder can remove all of them, and knows when not to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use margay_fs_stripes::{Folder, in_time};
use margay_sys_os::port;

use crate::{mounts, registry};

/// Name of the file system in its own registry.
pub const NAME: &str = "job";

/// Where it is mounted below the first directory of the job, and where its registry is.
pub const MOUNT: &str = "files";
pub const STATE: &str = "state";

/// How stripe directories are called below the directories of the job; a number may follow.
pub const STRIPES: &str = "stripes";

/// How the directories of a job are called, followed by its process.
pub const PREFIX: &str = "margay-pfs-";

/// Files of such a directory, and the first line of the note.
const LOCK: &str = "lock";
const NOTE: &str = "job";
const NEW_NOTE: &str = "job.new";
const FIRST: &[u8] = b"margay-pfs-job 1";

/// How old a directory without a note is, at least, if nobody is going to write one.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);

/// How long a mount may take to say that it is dead.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Rights of others, which no directory of a job has.
const OTHERS: u32 = 0o077;

/// What is known of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// Drawn by lot.
    id: u64,
    /// Where to what is in the file system was to be copied, as long as it is not.
    drain: Option<PathBuf>,
    /// The first one has the mount and the registry.
    directories: Vec<PathBuf>,
}

/// The directories of a job, locked by this process.
pub struct Held {
    note: Note,
    locks: Vec<File>,
}

/// The files of a job that were to be copied, and were not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    drain: PathBuf,
    directories: Vec<PathBuf>,
}

/// Makes a directory with a new name, for this user alone.
///
/// # Errors
/// In words.
pub fn new_directory(folder: &Path) -> Result<PathBuf, String> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let path = folder.join(match number {
            0 => format!("{PREFIX}{pid}"),
            _ => format!("{PREFIX}{pid}.{number}"),
        });
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(error) => return Err(format!("cannot make {}: {error}", path.display())),
        }
    }
}

impl Held {
    /// Takes the first directory of a job, which was made for it.
    ///
    /// # Errors
    /// In words.
    pub fn begin(base: &Path) -> Result<Held, String> {
        let mut held = Held {
            note: Note {
                id: registry::lot()?,
                drain: None,
                directories: Vec::new(),
            },
            locks: Vec::new(),
        };
        held.take(base)?;
        Ok(held)
    }

    /// Makes a directory of the job in `folder`.
    ///
    /// # Errors
    /// In words.
    pub fn add(&mut self, folder: &Path) -> Result<PathBuf, String> {
        let path = new_directory(folder)?;
        self.take(&path)?;
        Ok(path)
    }

    fn take(&mut self, path: &Path) -> Result<(), String> {
        self.note.directories.push(path.to_owned());
        if path.as_os_str().as_bytes().contains(&b'\n') {
            return Err(format!("the path {} is more than one line", path.display()));
        }
        let locked = private().open(path.join(LOCK)).inspect(|file| {
            // Where there are no locks, as on some network file systems, nobody else gets one, and
            // what is left there stays.
            let _ = file.lock();
        });
        let failed = |error| format!("cannot write in {}: {error}", path.display());
        self.locks.push(locked.map_err(failed)?);
        Ok(())
    }

    /// Notes what the job has, and whether it is to be kept, in all of its directories.
    ///
    /// # Errors
    /// In words.
    pub fn note(&mut self, drain: Option<&Path>) -> Result<(), String> {
        self.note.drain = drain.map(Path::to_owned);
        let bytes = self.note.encode();
        for path in &self.note.directories {
            let new = path.join(NEW_NOTE);
            let written = private().truncate(true).open(&new).and_then(|mut file| {
                file.write_all(&bytes)?;
                fs::rename(&new, path.join(NOTE))
            });
            written.map_err(|error| format!("cannot write in {}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all that the file system had.
    pub fn remove(&self) {
        if let Err(text) = remove(&self.note.directories) {
            eprintln!("margay pfs: {text}");
        }
    }

    /// Where what it has is found, as the end of a sentence.
    pub fn found_in(&self) -> String {
        found_in(&self.note.directories)
    }
}

fn private() -> fs::OpenOptions {
    let mut how = File::options();
    how.write(true).create(true).mode(0o600);
    how
}

fn found_in(directories: &[PathBuf]) -> String {
    let all: Vec<String> = (directories.iter().map(|path| path.display().to_string())).collect();
    let state = directories.first().map(|base| base.join(STATE));
    format!(
        "what it wrote is kept: XDG_STATE_HOME={} margay pfs mount {NAME} DIRECTORY shows it, and these \
         can be removed then: {}",
        state.unwrap_or_default().display(),
        all.join(" ")
    )
}

impl std::fmt::Display for Kept {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "a job with -pfs was killed before all was copied to {}; {}",
            self.drain.display(),
            found_in(&self.directories)
        )
    }
}

/// The last one is the first with the note, so that it is found again if this is interrupted.
fn remove(directories: &[PathBuf]) -> Result<(), String> {
    if let Some(base) = directories.first() {
        // Only when nothing is mounted there is it removed with all below it.
        gone(&base.join(MOUNT), |path| fs::remove_dir(path))?;
    }
    for path in directories.iter().rev() {
        gone(path, |path| fs::remove_dir_all(path))?;
    }
    Ok(())
}

fn gone(path: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> Result<(), String> {
    match remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut out = [FIRST, format!("\nid {:016x}\n", self.id).as_bytes()].concat();
        let drain = self.drain.iter().map(|path| (&b"drain "[..], path));
        let directories = (self.directories.iter()).map(|path| (&b"directory "[..], path));
        for (word, path) in drain.chain(directories) {
            out.extend_from_slice(word);
            out.extend_from_slice(path.as_os_str().as_bytes());
            out.push(b'\n');
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Note> {
        let bytes = bytes.strip_suffix(b"\n")?;
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let id = (lines.next() == Some(FIRST)).then(|| lines.next())??;
        let id = std::str::from_utf8(id.strip_prefix(b"id ")?).ok()?;
        let mut note = Note {
            id: u64::from_str_radix(id, 16).ok()?,
            drain: None,
            directories: Vec::new(),
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        for line in lines {
            if let Some(to) = line.strip_prefix(b"drain ") {
                note.drain = Some(path(to));
            } else {
                note.directories
                    .push(path(line.strip_prefix(b"directory ")?));
            }
        }
        let is_named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            path.is_absolute() && name.as_bytes().starts_with(PREFIX.as_bytes())
        };
        let is_whole = !note.directories.is_empty() && note.directories.iter().all(is_named);
        is_whole.then_some(note)
    }

    /// The note in a directory, if that is one of a job of this user.
    fn of(path: &Path) -> Option<Note> {
        is_own(path)
            .then(|| fs::read(path.join(NOTE)).ok())
            .flatten()
            .and_then(|bytes| Note::decode(&bytes))
    }
}

/// Whether it is a directory of this user, in which others have no rights.
fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| {
        facts.is_dir() && facts.uid() == port::user() && facts.mode() & OTHERS == 0
    })
}

/// Removes what jobs have left in `folders` and wherever else they had directories. Returns those
/// whose files were to be copied: they stay.
pub fn sweep(folders: &[PathBuf]) -> Vec<Kept> {
    let mut jobs = BTreeMap::new();
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    for entry in entries {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        match Note::of(&path) {
            Some(note) => drop(jobs.insert(note.id, note)),
            None => remove_begun(&path),
        }
    }
    let mut kept = Vec::new();
    for note in jobs.into_values() {
        match sweep_job(note) {
            Ok(None) => {}
            Ok(Some(job)) => kept.push(job),
            Err(text) => eprintln!("margay pfs: {text}"),
        }
    }
    kept
}

/// The lock of a directory, if nobody has it.
fn free(path: &Path) -> Option<File> {
    let file = File::options().write(true).open(path.join(LOCK)).ok()?;
    file.try_lock().is_ok().then_some(file)
}

/// Removes a directory whose process was killed before it wrote what it is for.
fn remove_begun(path: &Path) {
    let age = fs::symlink_metadata(path).and_then(|facts| facts.modified());
    let age = age.map(|then| SystemTime::now().duration_since(then).unwrap_or_default());
    if !is_own(path) || age.is_ok_and(|age| age < BEGUN_WITHIN) {
        return;
    }
    let names = fs::read_dir(path).map(|all| all.flatten().map(|entry| entry.file_name()));
    let Ok(names) = names.map(Iterator::collect::<Vec<_>>) else {
        return;
    };
    if names == [MOUNT] {
        return remove_mount(path);
    }
    let is_begun = names.iter().all(|name| name == LOCK || name == NEW_NOTE);
    if is_begun && (names.is_empty() || free(path).is_some()) {
        for name in names {
            let _ = fs::remove_file(path.join(name));
        }
        let _ = fs::remove_dir(path);
    }
}

/// Removes what is left of a mount of a job whose service was on another host, where the program
/// that kept it was killed. One that is used is in the way of that.
fn remove_mount(path: &Path) {
    let place = path.join(MOUNT);
    let own = place.clone();
    // A program that is stopped does not answer.
    let dead = in_time(ANSWERED_WITHIN, move || mounts::is_dead(&own));
    if dead.is_ok_and(|is_dead| is_dead) {
        let _ = mounts::unmount(&place, true);
    }
    let _ = fs::remove_dir(place).and_then(|()| fs::remove_dir(path));
}

/// Removes what a job has left, if nobody holds it.
fn sweep_job(mut note: Note) -> Result<Option<Kept>, String> {
    let mut locks = Vec::new();
    let mut there = Vec::new();
    for path in &note.directories {
        // Another one may have got the name since.
        let Some(own) = Note::of(path).filter(|own| own.id == note.id) else {
            continue;
        };
        let Some(lock) = free(path) else {
            return Ok(None);
        };
        locks.push(lock);
        there.push(path.clone());
        let stripes = fs::read_dir(path).into_iter().flatten().flatten();
        let mut stripes =
            stripes.filter(|entry| entry.file_name().as_bytes().starts_with(STRIPES.as_bytes()));
        // The service ends by itself a little after the keeper, with everything stored.
        if stripes.any(|entry| Folder::is_in_use(&entry.path())) {
            return Ok(None);
        }
        note.drain = note.drain.or(own.drain);
    }
    let Some(base) = note.directories.first() else {
        return Ok(None);
    };
    mounts::clear_dead_at(NAME, &base.join(MOUNT))?;
    match note.drain {
        Some(drain) if !there.is_empty() => Ok(Some(Kept {
            drain,
            directories: there,
        })),
        _ => remove(&there).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_names_directories_of_jobs_only() {
        let mut note = Note {
            id: 77,
            drain: Some("/a b/out".into()),
            directories: vec!["/t/margay-pfs-1".into(), "/d/margay-pfs-1.2".into()],
        };
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        note.drain = None;
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note.clone()));
        for len in 0..bytes.len() {
            let part = Note::decode(&bytes[..len]);
            assert!(part.is_none_or(|part| part.directories.len() == 1));
        }
        for path in ["/etc", "margay-pfs-1", "/", "/t/margay-pfs-1/.."] {
            note.directories.push(path.into());
            assert_eq!(Note::decode(&note.encode()), None, "{path}");
            note.directories.pop();
        }
    }

    #[test]
    fn what_is_held_stays_and_what_nobody_holds_goes_unless_it_was_to_be_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = ["tmp", "disk"].map(|name| folder.path().join(name));
        for path in &folders {
            fs::create_dir(path).expect("made");
        }
        let left = || {
            let all = folders.iter().flat_map(fs::read_dir).flatten();
            all.filter(|entry| entry.is_ok()).count()
        };
        for drain in [None, Some(folder.path())] {
            let base = new_directory(&folders[0]).expect("made");
            let mut held = Held::begin(&base).expect("held");
            let stripes = held.add(&folders[1]).expect("added").join(STRIPES);
            fs::create_dir(&stripes).expect("made");
            held.note(drain).expect("noted");
            assert_eq!((sweep(&folders), left()), (vec![], 2));
            // Either of the two directories is enough to find both.
            drop(held);
            let kept = sweep(&folders[1..]);
            match drain {
                None => assert_eq!((kept.len(), left()), (0, 0)),
                Some(_) => {
                    assert!(kept[0].to_string().contains(&*base.to_string_lossy()));
                    assert_eq!((kept.len(), left()), (1, 2));
                }
            }
        }
        // What looks like it stays, and so does what is going to be used.
        fs::create_dir(folders[0].join("margay-pfs-mine")).expect("made");
        new_directory(&folders[1]).expect("made");
        fs::write(folders[1].join("margay-pfs-file"), b"").expect("written");
        assert_eq!((sweep(&folders).len(), left()), (1, 5));
    }
}
