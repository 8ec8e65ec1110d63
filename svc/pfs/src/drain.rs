//! Copying all of a mounted file system to another directory: files with their holes, directories,
//! links, permissions, owners where root does it, and times.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, FileTimes, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown,
    symlink,
};
use std::path::{Path, PathBuf};

use margay_sys_os::{extent, port};

/// Bytes of a file that are copied at a time, and in which zeros become a hole.
const PORTION: usize = 1 << 20;

/// What goes on while a file system is copied.
pub trait Watch {
    /// How many bytes of how many have been copied. Returns whether it shall go on.
    fn goes_on(&mut self, done: u64, all: u64) -> bool;
}

/// What has been copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
    /// Devices, pipes and sockets, which were left.
    pub special: u64,
}

struct Copier<'a> {
    watch: &'a mut dyn Watch,
    copied: Copied,
    all: u64,
    /// The copies of files with several names.
    linked: BTreeMap<u64, PathBuf>,
    buffer: Vec<u8>,
    is_root: bool,
}

fn failed(what: &str, path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

/// Copies what is in a directory into another one, which is made if it is not there. Files that are
/// there under the same names are replaced. It ends with the copies stored.
///
/// # Errors
/// In words, at the first file that cannot be copied.
pub fn copy(from: &Path, to: &Path, watch: &mut dyn Watch) -> Result<Copied, String> {
    let mut copier = Copier {
        watch,
        copied: Copied::default(),
        all: bytes_in(from)?,
        linked: BTreeMap::new(),
        buffer: vec![0; PORTION],
        is_root: port::user() == 0,
    };
    fs::create_dir_all(to).map_err(failed("make", to))?;
    copier.directories(from, to)?;
    let stored = File::open(to).and_then(|top| extent::sync_file_system(&top));
    stored.map_err(failed("store what was copied to", to))?;
    Ok(copier.copied)
}

/// Bytes of all files below a directory.
fn bytes_in(from: &Path) -> Result<u64, String> {
    let mut waiting = vec![from.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(failed("read", &directory))? {
            let entry = entry.map_err(failed("read", &directory))?;
            match entry.metadata() {
                Ok(facts) if facts.is_dir() => waiting.push(entry.path()),
                Ok(facts) if facts.is_file() => bytes += facts.len(),
                // It is only a measure of the progress.
                _ => {}
            }
        }
    }
    Ok(bytes)
}

impl Copier<'_> {
    /// All directories from the top on, with what is in them.
    fn directories(&mut self, from: &Path, to: &Path) -> Result<(), String> {
        let mut waiting = vec![(from.to_owned(), to.to_owned())];
        let mut made: Vec<(PathBuf, Metadata)> = Vec::new();
        while let Some((from, to)) = waiting.pop() {
            for entry in fs::read_dir(&from).map_err(failed("read", &from))? {
                let entry = entry.map_err(failed("read", &from))?;
                let (path, target) = (entry.path(), to.join(entry.file_name()));
                let facts = fs::symlink_metadata(&path).map_err(failed("read", &path))?;
                if facts.is_dir() {
                    match DirBuilder::new().mode(0o700).create(&target) {
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                            // A link in its place would lead elsewhere.
                            let there = fs::symlink_metadata(&target);
                            if !there.is_ok_and(|there| there.is_dir()) {
                                return Err(failed("make", &target)(error));
                            }
                        }
                        done => done.map_err(failed("make", &target))?,
                    }
                    made.push((target.clone(), facts));
                    waiting.push((path, target));
                } else {
                    self.entry(&path, &target, &facts)?;
                }
            }
        }
        // The deepest first: what is made in a directory changes its times, and it may be closed.
        for (path, facts) in made.iter().rev() {
            let file = File::open(path).map_err(failed("open", path))?;
            self.dress(&file, path, facts)?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path, facts: &Metadata) -> Result<(), String> {
        let kind = facts.file_type();
        if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
            self.copied.special += 1;
            return Ok(());
        }
        match fs::remove_file(to) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("replace", to)(error));
            }
            _ => {}
        }
        if facts.nlink() > 1 {
            if let Some(first) = self.linked.get(&facts.ino()) {
                return fs::hard_link(first, to).map_err(failed("make the link", to));
            }
            self.linked.insert(facts.ino(), to.to_owned());
        }
        if kind.is_symlink() {
            let target = fs::read_link(from).map_err(failed("read", from))?;
            symlink(target, to).map_err(failed("make the link", to))?;
            if self.is_root {
                lchown(to, Some(facts.uid()), Some(facts.gid())).map_err(failed("own", to))?;
            }
        } else {
            self.file(from, to, facts)?;
        }
        self.copied.files += 1;
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path, facts: &Metadata) -> Result<(), String> {
        let mut source = File::open(from).map_err(failed("read", from))?;
        // Nobody else reads it before it has its permissions.
        let mut how = File::options();
        let how = how.write(true).create_new(true).mode(0o600);
        let mut copy = how.open(to).map_err(failed("make", to))?;
        let mut end = 0;
        loop {
            let len = source
                .read(&mut self.buffer)
                .map_err(failed("read", from))?;
            if len == 0 {
                break;
            }
            let bytes = &self.buffer[..len];
            end += len as u64;
            let written = if bytes.iter().all(|byte| *byte == 0) {
                copy.seek(SeekFrom::Start(end)).map(drop)
            } else {
                copy.write_all(bytes)
            };
            written.map_err(failed("write", to))?;
            self.copied.bytes += len as u64;
            if !self.watch.goes_on(self.copied.bytes, self.all) {
                return Err(format!("interrupted in {}", from.display()));
            }
        }
        copy.set_len(end).map_err(failed("write", to))?;
        self.dress(&copy, to, facts)
    }

    /// Owner, permissions and times.
    fn dress(&self, file: &File, path: &Path, facts: &Metadata) -> Result<(), String> {
        if self.is_root {
            fchown(file, Some(facts.uid()), Some(facts.gid())).map_err(failed("own", path))?;
        }
        let times = (facts.accessed().ok()).zip(facts.modified().ok());
        let times = times.map(|(accessed, modified)| {
            FileTimes::new()
                .set_accessed(accessed)
                .set_modified(modified)
        });
        file.set_permissions(Permissions::from_mode(facts.mode() & 0o7777))
            .and_then(|()| times.map_or(Ok(()), |times| file.set_times(times)))
            .map_err(failed("set the permissions of", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Until(u64);

    impl Watch for Until {
        fn goes_on(&mut self, done: u64, all: u64) -> bool {
            assert!(done <= all);
            done < self.0
        }
    }

    #[test]
    fn a_tree_is_copied_with_holes_links_permissions_and_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("new/to"));
        fs::create_dir_all(from.join("a/b")).expect("made");
        let mut bytes = vec![7_u8; 3 << 20];
        bytes[1 << 20..2 << 20].fill(0);
        fs::write(from.join("a/data"), &bytes).expect("written");
        fs::write(from.join("a/b/empty"), b"").expect("written");
        fs::hard_link(from.join("a/data"), from.join("a/b/again")).expect("linked");
        symlink("data", from.join("a/link")).expect("linked");
        let closed = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        closed(&from.join("a/b"), 0o500).expect("closed");
        closed(&from.join("a/data"), 0o640).expect("set");
        // What is there is replaced; what else is there stays.
        fs::create_dir_all(to.join("a")).expect("made");
        fs::write(to.join("a/data"), b"old").expect("written");
        fs::write(to.join("a/other"), b"kept").expect("written");
        let copied = copy(&from, &to, &mut Until(u64::MAX)).expect("copied");
        assert_eq!((copied.files, copied.special), (3, 0));
        assert_eq!(fs::read(to.join("a/b/again")).expect("read"), bytes);
        assert_eq!(fs::read(to.join("a/other")).expect("read"), b"kept");
        assert_eq!(
            fs::read_link(to.join("a/link")).expect("read"),
            Path::new("data")
        );
        let facts = |path: &Path| fs::symlink_metadata(path).expect("it is there");
        for name in ["a", "a/b", "a/data", "a/b/empty"] {
            let (old, new) = (facts(&from.join(name)), facts(&to.join(name)));
            assert_eq!(old.mode(), new.mode(), "{name}");
            assert_eq!(old.mtime_nsec(), new.mtime_nsec(), "{name}");
        }
        assert_eq!(
            facts(&to.join("a/data")).ino(),
            facts(&to.join("a/b/again")).ino()
        );
        assert!(facts(&to.join("a/data")).blocks() * 512 < bytes.len() as u64);
        let error = copy(&from, &folder.path().join("part"), &mut Until(1));
        assert!(
            error.expect_err("it was stopped").contains("interrupted"),
            "said"
        );
        closed(&from.join("a/b"), 0o700).expect("opened");
        closed(&to.join("a/b"), 0o700).expect("opened");
    }
}
