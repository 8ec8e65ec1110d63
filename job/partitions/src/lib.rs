//! The partitions of this machine: a file, one for each host, because a folder may be shared by
//! several. `docs/partitions.md` describes it. Where root has made one for all users, which they
//! read and a service of root's changes, it is that; else one in the user's own state folder.
//!
//! A node of this machine is a core. Their number is that of the cores which the first process of
//! the system may use, so that a container counts its own, and a process that runs in a partition
//! counts all of them.
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_core_partitions::{Caller, IO, Partition, Shape, Table};
use margay_sys_os::port::Channel;
use margay_sys_os::{cpu, port, process};

/// The folder of the partitions of all users, where it is not the usual one.
pub const ENV_FOLDER: &str = "MARGAY_PARTITIONS";
/// The usual one.
const FOLDER: &str = "/var/lib/margay/partitions";

/// How often a lock that another command holds is tried, and the pause between.
const TRIES: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);

/// Where the partitions are kept, and the cores that are the machine's nodes.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    host: String,
    /// The core of each node.
    cores: Vec<usize>,
    caller: Caller,
    /// They are common to all users.
    is_common: bool,
}

impl Store {
    /// Finds the partitions that this user has; nothing is made.
    ///
    /// # Errors
    /// When nothing says where they are.
    pub fn find() -> Result<Store, String> {
        let common = Store::common();
        if common.is_made() {
            return Ok(common);
        }
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = match (absolute("XDG_STATE_HOME"), common.caller.user) {
            (Some(state), _) => state,
            (None, 0) => PathBuf::from("/var/lib"),
            (None, _) => absolute("HOME")
                .ok_or("cannot tell where to keep partitions: set HOME or XDG_STATE_HOME")?
                .join(".local/state"),
        };
        Ok(Store {
            folder: base.join("margay/partitions"),
            is_common: false,
            ..common
        })
    }

    /// The partitions that all users have in common, whether there are any or not.
    #[must_use]
    pub fn common() -> Store {
        let folder = env::var_os(ENV_FOLDER).map(PathBuf::from);
        Store {
            folder: (folder.filter(|path| path.is_absolute())).unwrap_or_else(|| FOLDER.into()),
            host: process::host_name().replace('/', "_"),
            cores: cpu::affinity_of(1).unwrap_or_else(cpu::affinity),
            caller: Caller {
                user: port::user(),
                groups: port::groups(),
            },
            is_common: true,
        }
    }

    /// Whether the file is one of root's, or of this user's, that everybody may read and nobody
    /// else may write.
    fn is_made(&self) -> bool {
        fs::metadata(self.path()).is_ok_and(|file| {
            let is_trusted = file.uid() == 0 || file.uid() == self.caller.user;
            is_trusted && file.mode() & 0o044 == 0o044 && file.mode() & 0o022 == 0
        })
    }

    /// Tells one state of the file from another; none where there is no file.
    #[must_use]
    pub fn stamp(&self) -> Option<(u64, i64, i64)> {
        let file = fs::metadata(self.path()).ok()?;
        Some((file.ino(), file.ctime(), file.ctime_nsec()))
    }

    /// Whether they are common to all users.
    #[must_use]
    pub fn is_common(&self) -> bool {
        self.is_common
    }

    /// Whether this user changes them without the service.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let owner = fs::metadata(self.path()).map(|file| file.uid());
        !self.is_common || owner.is_ok_and(|owner| owner == self.caller.user)
    }

    /// Makes the partitions that all users have in common, unless they are there.
    ///
    /// # Errors
    /// When the file cannot be written, or is damaged.
    pub fn make_common(&self) -> Result<(), String> {
        self.update(|_| Ok(()))?;
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        // That of all that Margay keeps is made by who comes first, and may be closed.
        let above = self
            .folder
            .parent()
            .filter(|_| self.folder == Path::new(FOLDER));
        above
            .map_or(Ok(()), |above| open(above, 0o711))
            .and_then(|()| open(&self.folder, 0o755))
            .and_then(|()| open(&self.path(), 0o644))
            .map_err(|error| {
                format!(
                    "cannot open {} for all users: {error}",
                    self.path().display()
                )
            })
    }

    /// The name that the service, or who looks after the turns of this user's applications, has
    /// among sockets; a path where the partitions are common.
    fn address(&self) -> io::Result<(SocketAddr, Option<File>)> {
        if self.is_common {
            // Through a descriptor: a path may be too long for a socket.
            let folder = File::open(&self.folder)?;
            let path = format!("/proc/self/fd/{}/{}.socket", folder.as_raw_fd(), self.host);
            return Ok((SocketAddr::from_pathname(path)?, Some(folder)));
        }
        let bytes = self.path().into_os_string().into_encoded_bytes();
        // FNV-1a: the same in all versions.
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let name = format!("margay-turns-{}-{hash:016x}", self.caller.user);
        Ok((SocketAddr::from_abstract_name(name)?, None))
    }

    /// Connects to the service, or to who looks after the turns of this user's applications.
    ///
    /// # Errors
    /// When nobody is there, or it is another user who is not root.
    pub fn connect(&self) -> io::Result<Channel> {
        let (address, _folder) = self.address()?;
        let channel = Channel::over_stream(UnixStream::connect_addr(&address)?);
        if channel.is_trusted() {
            return Ok(channel);
        }
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "another user, who is not root, has taken the place of the service",
        ))
    }

    /// Takes the place to which others connect.
    ///
    /// # Errors
    /// When somebody has it (`AddrInUse`), or the system refuses.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let (address, _folder) = self.address()?;
        if self.is_common {
            if self.connect().is_ok() {
                return Err(ErrorKind::AddrInUse.into());
            }
            // What a service has left that was killed.
            let path = self.folder.join(format!("{}.socket", self.host));
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind_addr(&address)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            listener.set_nonblocking(true)?;
            return Ok(listener);
        }
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// A file that is there while somebody looks after turns: where it was left, applications may
    /// run of which a new one has not heard yet.
    #[must_use]
    pub fn mark(&self) -> PathBuf {
        self.folder.join(format!("{}.turns", self.host))
    }

    /// The user who asks.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.host)
    }

    /// Reads all partitions. Without a file there are those that are always there.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or belongs to a machine of another size.
    pub fn read(&self) -> Result<Table, String> {
        let path = self.path();
        let failed = |why: &str| format!("cannot read the partitions in {}: {why}", path.display());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let group = self.caller.groups.first().copied().unwrap_or_default();
                return Ok(Table::new(self.shape(), self.caller.user, group));
            }
            Err(error) => return Err(failed(&error.to_string())),
        };
        let table = Table::parse(&text).map_err(|why| {
            failed(&format!(
                "{why}; remove the file to begin without partitions"
            ))
        })?;
        if table.shape() != self.shape() {
            return Err(failed(&format!(
                "they were made when this machine had {} cores, and now it has {}; remove the file to begin without \
                 partitions",
                table.shape().nodes(),
                self.cores.len()
            )));
        }
        Ok(table)
    }

    fn shape(&self) -> Shape {
        Shape::square(u32::try_from(self.cores.len()).unwrap_or(u32::MAX))
    }

    /// Changes the partitions: all of what `change` does is stored, or nothing. Other commands
    /// wait meanwhile.
    ///
    /// # Errors
    /// Those of `change`, of [`Store::read`], and when the file cannot be written.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut Table) -> Result<T, String>,
    ) -> Result<T, String> {
        let failed = |error: io::Error| {
            let path = self.path();
            format!(
                "cannot write the partitions to {}: {error}; nothing is changed; XDG_STATE_HOME names another place",
                path.display()
            )
        };
        let lock = self.lock().map_err(failed)?;
        let mut table = self.read()?;
        let done = change(&mut table)?;
        let mode = fs::metadata(self.path()).map_or(0o600, |file| file.mode() & 0o777);
        self.write(&table.text(), mode).map_err(failed)?;
        drop(lock);
        Ok(done)
    }

    fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let lock = private(&self.folder.join(format!("{}.lock", self.host)))?;
        for _ in 0..TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other(
            "another command has been changing them for 5 seconds; see whether it is stopped",
        ))
    }

    /// Puts a new file in the place of the old one, when it is on the disk.
    fn write(&self, text: &str, mode: u32) -> io::Result<()> {
        let new = self.folder.join(format!("{}.new", self.host));
        let written = private(&new).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            fs::rename(&new, self.path())?;
            File::open(&self.folder)?.sync_all()
        });
        if written.is_err() {
            // What is left of it would only take room.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// The cores of a partition.
    #[must_use]
    pub fn cores(&self, partition: &Partition) -> Vec<usize> {
        self.cores_of(&partition.nodes)
    }

    /// The cores on which services of files run: those of the partition `.io`, where it is smaller
    /// than the machine.
    #[must_use]
    pub fn io_cores() -> Option<Vec<usize>> {
        let store = Store::find().ok()?;
        let cores = store.cores(store.read().ok()?.always(IO)?);
        (cores.len() < store.cores.len()).then_some(cores)
    }

    /// The cores of nodes.
    #[must_use]
    pub fn cores_of(&self, nodes: &[u32]) -> Vec<usize> {
        let nodes = nodes.iter();
        nodes
            .filter_map(|&node| self.cores.get(node as usize).copied())
            .collect()
    }
}

/// Opens a file of this user alone for writing; it is made if it is not there.
fn private(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_partitions::{Changes, Right, Wanted};

    fn store(folder: &Path) -> Store {
        Store {
            folder: folder.join("deep/partitions"),
            host: "host".into(),
            cores: vec![4, 5, 6, 9],
            caller: Caller {
                user: 1000,
                groups: vec![100],
            },
            is_common: false,
        }
    }

    fn make(store: &Store, name: &str) -> Result<String, String> {
        store.update(|table| {
            let done = table.make(&store.caller, name, &Wanted::Size(2), &Changes::default());
            done.map_err(|refused| refused.to_string())
        })
    }

    #[test]
    fn what_is_made_is_kept_and_what_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        make(&store, "a").unwrap();
        make(&store, "b").unwrap();
        assert!(make(&store, "a").is_err());
        let table = store.read().unwrap();
        let (_, b) = table.find(&store.caller, "b", Right::Run).unwrap();
        assert_eq!(store.cores(b), [6, 9]);
        let files = fs::read_dir(&store.folder).unwrap();
        for file in files.map(|file| file.unwrap()) {
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
            assert_ne!(file.file_name(), "host.new");
        }
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for at in 0..10 {
                        make(store, &format!("p{writer}-{at}")).unwrap();
                    }
                });
            }
        });
        let listed = store.read().unwrap();
        assert_eq!(
            listed.list(&store.caller, ".compute", true).unwrap().len(),
            40
        );
    }

    #[test]
    fn another_machine_and_damage_are_reported_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path());
        make(&store, "a").unwrap();
        store.cores.pop();
        let error = store.read().unwrap_err();
        assert!(
            error.contains("had 4 cores, and now it has 3; remove the file"),
            "{error}"
        );
        fs::write(store.path(), "margay-partitions 1\nmesh").unwrap();
        let error = make(&store, "b").unwrap_err();
        assert!(error.contains("no mesh; remove the file"), "{error}");
    }
}
