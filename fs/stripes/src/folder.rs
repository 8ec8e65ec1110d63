//! A stripe directory that is a directory of the system.

use std::fs::{self, File};
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use margay_sys_os::{extent, port};

use crate::disk::{Disk, PARTS, Part, Space};

/// The file that is locked as long as somebody uses the directory.
const LOCK: &str = "lock";

/// After this number of bytes the disk begins to store them: a sync would find it idle, and all of
/// them waiting. They are not written again.
const STORED_AT_ONCE: u64 = 2 << 20;

/// The right of a group or of all users to change a directory.
const OTHERS_WRITE: u32 = 0o022;

/// An open stripe directory, which nobody else has open.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files: Vec<File>,
    /// Which file the data was when it was opened.
    data: (u64, u64),
    is_memory: bool,
    /// Bytes of data that were ever written.
    written: AtomicU64,
    lock: File,
}

impl Folder {
    /// Makes the files of a stripe directory in an empty directory, which is made if it is not
    /// there.
    ///
    /// # Errors
    /// In words: what is wrong with the directory.
    pub fn create(path: &Path) -> Result<Folder, String> {
        let shown = path.display();
        let failed =
            |error: io::Error| format!("cannot make the stripe directory {shown}: {error}");
        let mut builder = fs::DirBuilder::new();
        match builder.mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        check_owner(path)?;
        let mut entries = fs::read_dir(path).map_err(failed)?;
        // A file system of its own begins with this one.
        let is_used = entries.any(|entry| entry.is_ok_and(|e| e.file_name() != "lost+found"));
        if is_used {
            return Err(format!(
                "the directory {shown} is not empty; name an empty one, or remove what is in it"
            ));
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        for name in PARTS.iter().map(|part| part.name()).chain([LOCK]) {
            let file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path.join(name))
                .map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        let folder = Folder::open(path)?;
        File::open(path)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
        Ok(folder)
    }

    /// Removes the files that `create` made, and what is stored in them.
    pub fn remove(path: &Path) {
        for name in PARTS.iter().map(|part| part.name()).chain([LOCK]) {
            // What is left is found by the next `create`, which says so.
            let _ = fs::remove_file(path.join(name));
        }
    }

    /// Opens a stripe directory.
    ///
    /// # Errors
    /// In words: it is not there, is none, or somebody else uses it.
    pub fn open(path: &Path) -> Result<Folder, String> {
        let shown = path.display();
        let open = |name: &str| {
            File::options()
                .read(true)
                .write(true)
                .open(path.join(name))
                .map_err(|error| format!("{shown}/{name}: {error}"))
        };
        let lock = open(LOCK)?;
        check_owner(path)?;
        if fs::metadata(path).is_ok_and(|facts| facts.mode() & OTHERS_WRITE != 0) {
            return Err(format!(
                "others may replace the files in {shown}; take that right from them: chmod go-w {shown}"
            ));
        }
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(format!(
                    "{shown} is in use, by another process or by an operation on it that has not come back; wait until \
                     that has ended"
                ));
            }
            Err(fs::TryLockError::Error(error)) => {
                return Err(format!("{shown} cannot be locked: {error}"));
            }
        }
        let mut files = Vec::new();
        for part in PARTS {
            files.push(open(part.name())?);
        }
        let facts = files[0]
            .metadata()
            .map_err(|error| format!("{shown}: {error}"))?;
        Ok(Folder {
            path: path.to_owned(),
            data: (facts.dev(), facts.ino()),
            is_memory: extent::is_memory(&files[0]),
            files,
            written: AtomicU64::new(0),
            lock,
        })
    }

    /// Whether somebody uses the directory at `path`.
    #[must_use]
    pub fn is_in_use(path: &Path) -> bool {
        File::open(path.join(LOCK))
            .is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Lets others use the directory, although this process may not have ended yet.
    pub fn release(&self) {
        // Where it cannot, it is released with the end of the process.
        let _ = self.lock.unlock();
    }

    fn file(&self, part: Part) -> &File {
        let at = PARTS.iter().position(|other| *other == part);
        &self.files[at.unwrap_or(0)]
    }
}

/// Refuses the directory of another user, who could put links to other files into it.
fn check_owner(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let facts = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    let own = port::user();
    if facts.uid() == own {
        return Ok(());
    }
    Err(format!(
        "{shown} belongs to user {}, and this is user {own}; a stripe directory belongs to the user of the \
         file system",
        facts.uid()
    ))
}

impl Disk for Folder {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.file(part);
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_pieces(&self, part: Part, at: u64, pieces: &mut [&mut [u8]]) -> io::Result<usize> {
        extent::read_at(self.file(part), at, pieces)
    }

    fn read_now(&self, part: Part, at: u64, into: &mut [u8]) -> Option<usize> {
        extent::read_now(self.file(part), at, into)
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        extent::write_all_at(self.file(part), at, pieces)?;
        if part == Part::Data && !self.is_memory {
            let len: usize = pieces.iter().map(|piece| piece.len()).sum();
            let before = self.written.fetch_add(len as u64, Ordering::Relaxed);
            if before / STORED_AT_ONCE != (before + len as u64) / STORED_AT_ONCE {
                extent::begin_to_store(self.file(part));
            }
        }
        Ok(())
    }

    fn sync(&self, part: Part) -> io::Result<()> {
        self.file(part).sync_data()
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        self.file(part).set_len(len)
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        Ok(self.file(part).metadata()?.len())
    }

    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        extent::punch(self.file(part), at, len)
    }

    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        extent::reserve(self.file(part), at, len)
    }

    fn space(&self) -> io::Result<Space> {
        let (total, free) = extent::space(&self.path)?;
        Ok(Space { total, free })
    }

    fn will_need(&self, part: Part, at: u64, len: usize) {
        // Advice: what cannot be taken costs time and nothing else.
        let _ = extent::will_need(self.file(part), at, len as u64);
    }

    fn is_memory(&self) -> bool {
        self.is_memory
    }

    fn is_present(&self) -> bool {
        fs::metadata(self.path.join(Part::Data.name()))
            .is_ok_and(|facts| (facts.dev(), facts.ino()) == self.data)
    }
}
