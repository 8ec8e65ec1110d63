//! PMIx: a library that the launcher's installation brings along.

use std::path::Path;

use margay_sys_os::pmix::Pmix;

use crate::{Wire, WireError};

/// The library, where the user names no other one.
const LIBRARY: &str = "libpmix.so.2";

/// The connection of this process.
pub struct PmixWire {
    pmix: Pmix,
    size: u32,
}

impl PmixWire {
    /// Loads the library, that of the user's choice or the system's, and connects.
    ///
    /// # Errors
    /// When the library is missing, or the launcher does not answer.
    pub fn open(chosen: Option<&str>) -> Result<PmixWire, WireError> {
        let opened = Pmix::open(Path::new(chosen.unwrap_or(LIBRARY)));
        let pmix = opened.map_err(|error| {
            WireError(format!(
                "the launcher speaks PMIx, and its library does not work here: {error}; install libpmix2, name the library in \
                 MARGAY_PMIX, or use another way (srun --mpi=pmi2)"
            ))
        })?;
        let size = pmix.number_of_job("pmix.job.size").map_err(WireError)?;
        Ok(PmixWire { pmix, size })
    }
}

impl Wire for PmixWire {
    fn rank(&self) -> u32 {
        self.pmix.rank()
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), WireError> {
        self.pmix.put(key, value).map_err(WireError)
    }

    fn fence(&mut self) -> Result<(), WireError> {
        self.pmix.fence().map_err(WireError)
    }

    fn get(&mut self, of: u32, key: &str) -> Result<String, WireError> {
        self.pmix.text(of, key).map_err(WireError)
    }

    fn first_of_host(&mut self) -> Option<u32> {
        let peers = self.pmix.text_of_job("pmix.lpeers").ok()?;
        let numbers = peers.split(',').map(|rank| rank.trim().parse().ok());
        numbers.collect::<Option<Vec<u32>>>()?.into_iter().min()
    }

    fn finalize(&mut self) {
        // A launcher that is gone does not count any more.
        let _ = self.pmix.finalize();
    }

    fn abort(&mut self, code: i32) {
        let _ = self.pmix.abort(code);
    }
}
