//! Where the queue's files are.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Longest path of a socket, as the kernel has it.
const MOST_PATH: usize = 107;

/// The folder of the queue's state: `$XDG_STATE_HOME/margay/queue`, and without that variable
/// `~/.local/state/margay/queue`, or `/var/lib/margay/queue` for root.
#[derive(Clone, Debug)]
pub struct Place {
    pub folder: PathBuf,
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
        let base = match (absolute("XDG_STATE_HOME"), margay_sys_os::port::user()) {
            (Some(state), _) => state,
            (None, 0) => PathBuf::from("/var/lib"),
            (None, _) => absolute("HOME")
                .ok_or("cannot tell where to keep the queue: set HOME or XDG_STATE_HOME")?
                .join(".local/state"),
        };
        Ok(Place {
            folder: base.join("margay/queue"),
        })
    }

    /// Makes the folder, for its user alone.
    ///
    /// # Errors
    /// In words.
    pub fn make(&self) -> Result<(), String> {
        make_folder(&self.folder)
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

    /// Where a new head makes its socket: in the user's runtime folder, or, where there is none,
    /// in this one. The folder is made.
    ///
    /// # Errors
    /// In words.
    pub fn new_socket(&self) -> Result<PathBuf, String> {
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

/// Connects to the head, if it runs.
///
/// # Errors
/// When it runs and cannot be reached.
pub fn connect(place: &Place) -> Result<Option<UnixStream>, String> {
    let failed = |path: &Path, error: io::Error| {
        format!(
            "cannot reach the head of the queue at {}: {error}",
            path.display()
        )
    };
    let address = place.address();
    let path = match fs::read_to_string(&address) {
        Ok(path) => PathBuf::from(path.trim_end()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&address, error)),
    };
    match UnixStream::connect(&path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed(&path, error)),
    }
}
