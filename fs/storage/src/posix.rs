//! The system's files.

use std::io;
use std::sync::{Arc, OnceLock};

use margay_sys_os::file::{self, File, How, Identity, Lock, Slice};

use crate::direct::Direct;
use crate::error::{Result, StorageError};
use crate::{Layout, Storage, Store};

/// The extended attribute by which the parallel file system says how a file is spread, and by which
/// an empty one is laid out: bytes of a unit and units of a row, as decimal numbers.
pub const LAYOUT: &str = "system.margay.layout";

/// Its longest value.
const MOST_LAYOUT: usize = 32;

/// The system's files, by their paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix {
    /// Whether files of a parallel file system are read and written past the kernel.
    pub is_direct: bool,
}

struct Open {
    file: File,
    path: String,
    identity: Identity,
    /// The direct way, once something has been read or written; none where there is none.
    direct: OnceLock<Option<Direct>>,
}

impl Store for Posix {
    fn open(&self, path: &str, how: How) -> Result<Arc<dyn Storage>> {
        let fault = |error: io::Error| StorageError::of(&error, "open", path);
        let file = File::open(path, how).map_err(fault)?;
        if file.is_folder().map_err(fault)? {
            return Err(fault(file::is_a_folder()));
        }
        let identity = file.identity().map_err(fault)?;
        Ok(Arc::new(Open {
            file,
            path: path.into(),
            identity,
            direct: match self.is_direct {
                true => OnceLock::new(),
                false => OnceLock::from(None),
            },
        }))
    }

    fn delete(&self, path: &str) -> Result<()> {
        file::unlink(path).map_err(|error| StorageError::of(&error, "delete", path))
    }
}

impl Open {
    /// The direct way. A rank that leaves reading and writing to others never asks for it.
    fn direct(&self) -> Option<&Direct> {
        let way = self.direct.get_or_init(|| Direct::begin(&self.file));
        way.as_ref()
    }

    fn report<T>(&self, what: &str, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| StorageError::of(&error, what, &self.path))
    }
}

impl Storage for Open {
    fn read_at(&self, offset: u64, pieces: &[Slice]) -> Result<u64> {
        let done = self.direct().and_then(|way| way.read_at(offset, pieces));
        let done = done.unwrap_or_else(|| self.file.read_at(offset, pieces));
        self.report("read", done)
    }

    fn write_at(&self, offset: u64, pieces: &[Slice]) -> Result<()> {
        let way = self.direct();
        let done = way.and_then(|way| way.write_at(&self.file, offset, pieces));
        let done = done.unwrap_or_else(|| self.file.write_at(offset, pieces));
        self.report("write", done.map(|_| ()))
    }

    fn size(&self) -> Result<u64> {
        self.report("look at", self.file.size())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.report("resize", self.file.set_size(size))
    }

    fn preallocate(&self, size: u64) -> Result<()> {
        self.report("take space for", self.file.preallocate(size))
    }

    fn sync(&self) -> Result<()> {
        self.report("sync", self.file.sync())
    }

    fn lock(&self, offset: u64, len: u64, lock: Lock) -> Result<()> {
        self.report("lock", self.file.lock(offset, len, lock))
    }

    fn unlock(&self, offset: u64, len: u64) {
        // A range that cannot be given back now is given back when the file is closed.
        let _ = self.file.unlock(offset, len);
    }

    fn lay_out(&self, wished: Layout) {
        let Some(there) = self.layout() else { return };
        // A wish for more than there is means as much as there is.
        let at_most = |wished: u32, most: u32| if wished < most { wished } else { 0 };
        let unit = at_most(wished.unit, there.unit);
        let factor = at_most(wished.factor, there.factor);
        // Without the unit where that is none.
        for (unit, factor) in [(unit, factor), (0, factor)] {
            let value = format!("{unit} {factor}");
            if (unit, factor) == (0, 0) || self.file.set_attribute(LAYOUT, value.as_bytes()).is_ok()
            {
                return;
            }
        }
    }

    fn layout(&self) -> Option<Layout> {
        Layout::parse(&self.file.attribute(LAYOUT, MOST_LAYOUT)?)
    }

    fn identity(&self) -> Identity {
        self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_sys_os::file::Cause;
    use margay_sys_os::user::Mem;

    #[test]
    fn a_file_is_made_used_and_deleted_and_errors_say_what_and_why() {
        let path = std::env::temp_dir().join(format!("margay-storage-{}", std::process::id()));
        let path = path.to_str().expect("a plain name");
        let how = How {
            read: true,
            write: true,
            create: true,
            exclusive: true,
            permissions: 0o600,
        };
        let file = Posix::default().open(path, how).expect("a new file");
        let again = Posix::default().open(path, how).err().expect("it is there");
        assert_eq!(again.cause, Cause::Exists);
        let mem = Mem::from_vec(vec![1, 2, 3]);
        let piece = Slice { mem, at: 0, len: 3 };
        file.write_at(2, &[piece]).expect("written");
        assert_eq!(file.size(), Ok(5));
        assert_eq!(file.layout(), None);
        Posix::default().delete(path).expect("deleted");
        let error = Posix::default().delete(path).expect_err("it is gone");
        assert_eq!(
            error.to_string(),
            format!(
                "cannot delete file '{path}': no such file or directory; check the name, or open it with MPI_MODE_CREATE"
            )
        );
        let lost = Posix::default()
            .open("/nope/lost", how)
            .err()
            .expect("no folder");
        assert_eq!(
            lost.to_string(),
            "cannot open file '/nope/lost': no such file or directory; there is no folder '/nope'; make it, or check the name"
        );
        let folder = Posix::default().open(
            "/",
            How {
                read: true,
                ..How::default()
            },
        );
        assert_eq!(folder.err().expect("a folder").cause, Cause::Name);
    }
}
