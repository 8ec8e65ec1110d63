//! Where the queue's files are.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use margay_sys_os::port::{is_trusted, peer, user};
use margay_sys_os::process::{host_name, set_variable};

use crate::IN_FILE;

/// Longest path of a socket, as the kernel has it.
const MOST_PATH: usize = 107;

/// The folder of root's queue, and of the one that all users of the machine share.
const SYSTEM_FOLDER: &str = "/var/lib/margay/queue";

/// The socket of the queue that all users share. Only root can make anything there.
const SYSTEM_SOCKET: &str = "/run/margay/queue/socket";

/// The variable that says which queue commands ask: `own` or `system`. Jobs have it.
pub const CHOICE: &str = "MARGAY_QUEUE";

/// The name of the folder.
const FOLDER: &str = "queue";

const NOT_UP: &str = "the queue does not run; start it: margay up";

/// The folder of the queue's state: `$XDG_STATE_HOME/margay/queue`, and without that variable
/// `~/.local/state/margay/queue`, or `/var/lib/margay/queue` for root. Where there is
/// `queue-on-HOST` beside it, that host has this one.
#[derive(Clone, Debug)]
pub struct Place {
    pub folder: PathBuf,
    /// It is that of the queue which all users share.
    pub is_system: bool,
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

impl Place {
    /// Finds the folder; it need not be there.
    ///
    /// # Errors
    /// When nothing says where it is.
    pub fn find() -> Result<Place, String> {
        let base = match (absolute("XDG_STATE_HOME"), user()) {
            (Some(state), _) => state,
            (None, 0) => PathBuf::from("/var/lib"),
            (None, _) => absolute("HOME")
                .ok_or("cannot tell where to keep the queue: set HOME or XDG_STATE_HOME")?
                .join(".local/state"),
        };
        let base = base.join("margay");
        let own = base.join(format!("queue-on-{}", host_name()));
        let place = Place {
            folder: base.join(FOLDER),
            is_system: false,
        };
        // Heads of several hosts may be those of one database, and have one home directory.
        let other = fs::read_to_string(place.host_file()).unwrap_or_default();
        let is_others = (other.lines().next()).is_some_and(|other| other != host_name());
        if own.is_dir() || is_others && place.store().exists() {
            return Ok(Place {
                folder: own,
                is_system: false,
            });
        }
        Ok(place)
    }

    /// Whether it is a folder of this host beside that of another one.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        self.folder.file_name().is_some_and(|name| name != FOLDER)
    }

    /// The file that names the host whose head has the folder, or had it last, in its first line.
    #[must_use]
    pub fn host_file(&self) -> PathBuf {
        self.folder.join("host")
    }

    /// Finds the folder for a head that stands by on this host: the same, or a new one where a head
    /// of another host has it, as a home directory may be that of many hosts.
    ///
    /// # Errors
    /// In words.
    pub fn for_standby() -> Result<Place, String> {
        let mut place = Place::find()?;
        let lock = File::options().write(true).open(place.folder.join("lock"));
        let is_held =
            lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
        if is_held && connect(&place)?.is_none() {
            let name = format!("queue-on-{}", host_name());
            place.folder.set_file_name(name);
        }
        Ok(place)
    }

    /// The folder of the queue that all users share.
    #[must_use]
    pub fn system() -> Place {
        Place {
            folder: PathBuf::from(SYSTEM_FOLDER),
            is_system: true,
        }
    }

    /// Makes the folder, for its user alone.
    ///
    /// # Errors
    /// In words.
    pub fn make(&self) -> Result<(), String> {
        if self.is_system {
            // Beside it is what jobs read.
            open_folder(self.folder.parent().unwrap_or(&self.folder), 0o711)?;
        }
        make_folder(&self.folder).map_err(|text| match self.is_system {
            true => text,
            false => format!("{text}; XDG_STATE_HOME names another place"),
        })
    }

    /// The folder in which each running job of the queue of all users has one of its user's.
    ///
    /// # Errors
    /// In words.
    pub fn make_for_jobs(&self) -> Result<Option<PathBuf>, String> {
        if !self.is_system {
            return Ok(None);
        }
        // On another host than the head's nothing is there yet.
        open_folder(self.folder.parent().unwrap_or(&self.folder), 0o711)?;
        let folder = self.folder.with_file_name("jobs");
        open_folder(&folder, 0o711)?;
        Ok(Some(folder))
    }

    /// The head's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("head.log")
    }

    /// The file that names the head's socket, for commands whose environment says otherwise.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.folder.join("address")
    }

    /// The file that names the database where the state is kept; without it a file here is.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// The store of the head that there is, or was last.
    ///
    /// # Errors
    /// In words.
    pub fn known_store(&self) -> Result<String, String> {
        // What hosts with one home directory have beside the first one's is of the same database.
        let first = self.folder.with_file_name(FOLDER);
        for path in [self.store(), first.join("store")] {
            match fs::read_to_string(&path) {
                Ok(text) => return Ok(text.trim_end().to_owned()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
            }
        }
        Ok(IN_FILE.to_owned())
    }

    /// Where a new head makes its socket: in the user's runtime folder, or, where there is none,
    /// in this one. The folder is made.
    ///
    /// # Errors
    /// In words.
    pub fn new_socket(&self) -> Result<PathBuf, String> {
        if self.is_system {
            let path = PathBuf::from(SYSTEM_SOCKET);
            for folder in path.ancestors().skip(1).take(2) {
                open_folder(folder, 0o755)?;
            }
            return Ok(path);
        }
        let folder = match absolute("XDG_RUNTIME_DIR") {
            Some(runtime) if runtime.is_dir() => runtime.join("margay"),
            _ => self.folder.clone(),
        };
        make_folder(&folder)?;
        let path = folder.join(format!("queue-{}.sock", std::process::id()));
        if path.as_os_str().len() > MOST_PATH {
            return Err(format!(
                "the path of the socket {} is too long for the system; set XDG_RUNTIME_DIR to a shorter folder",
                path.display()
            ));
        }
        Ok(path)
    }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))
}

/// Makes a folder of root's that others may enter. What stands there already has to be one.
fn open_folder(folder: &Path, mode: u32) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make the folder {}: {error}", folder.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
        .map_err(failed)?;
    let found = fs::symlink_metadata(folder).map_err(failed)?;
    if !found.is_dir() || found.uid() != 0 {
        return Err(format!(
            "{} is no folder of root's; move it away",
            folder.display()
        ));
    }
    let mode = (found.mode() & 0o755) | mode;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(failed)
}

/// Makes all that this command asks go to the queue that all users share.
pub fn choose_system() {
    let _ = set_variable(CHOICE, "system");
}

/// Connects to the head of the queue that commands ask: that of the user, and where it does not run
/// that of the machine of several hosts to which this one belongs, or that of all users.
/// `MARGAY_QUEUE` chooses one of them.
///
/// # Errors
/// In words, when none runs.
pub fn find_head() -> Result<UnixStream, String> {
    let choice = env::var(CHOICE).unwrap_or_default();
    match choice.as_str() {
        "" => {
            let own = Place::find().map(|place| connect(&place));
            if let Ok(found) = own
                && let Some(stream) = found?
            {
                return Ok(stream);
            }
            if let Some(stream) = connect_elsewhere() {
                return Ok(stream);
            }
            connect_system()?.ok_or_else(|| NOT_UP.into())
        }
        "own" => connect(&Place::find()?)?
            .or_else(connect_elsewhere)
            .ok_or_else(|| NOT_UP.into()),
        "system" => connect_system()?.ok_or_else(|| {
            "the system's queue does not run; root starts it: margay up --system".into()
        }),
        other => Err(format!(
            "{CHOICE} is '{}'; it names a queue: own or system",
            other.escape_debug()
        )),
    }
}

/// The address of the agent that passes on what commands of this user ask the head of another host:
/// an abstract one, which goes with the agent.
///
/// # Errors
/// What the system says.
pub fn passage_address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("margay-queue-passage-{}", user()))
}

/// Connects to the head of another host to whose machine this one belongs, if there is one.
#[must_use]
pub fn connect_elsewhere() -> Option<UnixStream> {
    let stream = UnixStream::connect_addr(&passage_address().ok()?).ok()?;
    // Any user may take any of these names.
    is_trusted(stream.as_fd()).then_some(stream)
}

/// Whether a connection is one to the queue that all users share.
#[must_use]
pub fn is_system(stream: &UnixStream) -> bool {
    let address = stream.peer_addr().ok();
    address.is_some_and(|address| address.as_pathname() == Some(Path::new(SYSTEM_SOCKET)))
}

/// Connects to the head of the queue that all users share, if it runs.
///
/// # Errors
/// When it runs and cannot be reached.
pub fn connect_system() -> Result<Option<UnixStream>, String> {
    let stream = connect_at(Path::new(SYSTEM_SOCKET))?;
    // Only root's word counts for others.
    Ok(stream.filter(|stream| peer(stream.as_fd()) == Some(0)))
}

fn unreachable(path: &Path, error: &io::Error) -> String {
    format!(
        "cannot reach the head of the queue at {}: {error}",
        path.display()
    )
}

/// Connects to the head, if it runs.
///
/// # Errors
/// When it runs and cannot be reached.
pub fn connect(place: &Place) -> Result<Option<UnixStream>, String> {
    if place.is_system {
        return connect_system();
    }
    let address = place.address();
    match fs::read_to_string(&address) {
        Ok(path) => connect_at(Path::new(path.trim_end())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreachable(&address, &error)),
    }
}

fn connect_at(path: &Path) -> Result<Option<UnixStream>, String> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(unreachable(path, &error)),
    }
}
