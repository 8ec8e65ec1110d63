//! The thread-local variables of members: `threadprivate` and what else a program keeps per thread.
//!
//! The first member of a team has the variables of the thread that encountered the region. Each
//! other member has a TLS block of its own, as if it were a thread: under the outermost regions
//! always the same one for the same thread number, so that values persist; in nested regions any
//! spare one. Programs without thread-local variables need none of this.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use margay_sys_threads::tls_block::{self, TlsBlock};

/// The TLS blocks of the members under one initial thread, by thread number.
#[derive(Debug, Default)]
pub(crate) struct PersistentBlocks(Mutex<Vec<Option<Arc<TlsBlock>>>>);

/// The TLS blocks of a process.
#[derive(Debug, Default)]
pub(crate) struct TlsBlocks {
    /// For members of nested regions.
    spare: Mutex<Vec<Arc<TlsBlock>>>,
    /// Whether the program has thread-local variables.
    is_needed: OnceLock<bool>,
    has_warned: OnceLock<()>,
}

impl TlsBlocks {
    /// Runs `f` with the block of member `id`: of an outermost region under the initial thread with
    /// the `persistent` blocks, or of a nested region.
    pub(crate) fn with<R>(
        &self,
        persistent: Option<&PersistentBlocks>,
        id: u32,
        f: impl FnOnce() -> R,
    ) -> R {
        if !*self.is_needed.get_or_init(tls_block::is_needed) {
            return f();
        }
        self.with_block(persistent, id, f)
    }

    /// Out of line, for programs without thread-local variables, which are most.
    #[inline(never)]
    fn with_block<R>(
        &self,
        persistent: Option<&PersistentBlocks>,
        id: u32,
        f: impl FnOnce() -> R,
    ) -> R {
        let block = match persistent {
            Some(persistent) => persistent.get(id, self),
            None => lock(&self.spare).pop().or_else(|| self.make()),
        };
        let Some(block) = block else { return f() };
        let result = block.with(f);
        if persistent.is_none() {
            lock(&self.spare).push(block);
        }
        result
    }

    /// Forgets all values: those of `persistent` and of spare blocks.
    pub(crate) fn clear(&self, persistent: &PersistentBlocks) {
        lock(&persistent.0).clear();
        lock(&self.spare).clear();
    }

    fn make(&self) -> Option<Arc<TlsBlock>> {
        let made = TlsBlock::new();
        if made.is_none() {
            self.has_warned.get_or_init(|| {
                eprintln!(
                    "libgomp (Margay): no thread for another set of threadprivate variables; members share one from here \
                     on. Allow more threads (ulimit -u, the container's pids limit), or ask for fewer."
                );
            });
        }
        made.map(Arc::new)
    }
}

impl PersistentBlocks {
    fn get(&self, id: u32, blocks: &TlsBlocks) -> Option<Arc<TlsBlock>> {
        let mut all = lock(&self.0);
        let at = id as usize;
        if all.len() <= at {
            all.resize(at + 1, None);
        }
        if all[at].is_none() {
            all[at] = blocks.make();
        }
        all[at].clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
