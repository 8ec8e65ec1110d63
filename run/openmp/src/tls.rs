//! The thread-local variables of members: `threadprivate`, `errno`, keys, what `pthread_self()` is,
//! and whatever else a program keeps per thread.
//!
//! The first member of a team has the variables of the thread that encountered the region. Each
//! other member has a TLS block of its own, as if it were a thread: under the outermost regions
//! always the same one for the same thread number, so that values persist; in nested regions any
//! spare one.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::tls_block::TlsBlock;

use crate::tool::{Event, Tool};

/// Blocks are never freed, so that finding one takes no lock; those that are forgotten end, which
/// leaves some words of each.
type Block = &'static TlsBlock;

/// Lists of blocks by thread number; each is twice as long as the one before.
const LISTS: usize = 32;

/// The TLS blocks of the members under one initial thread, by thread number.
#[derive(Debug)]
pub(crate) struct PersistentBlocks([OnceLock<Box<[StaticRef<TlsBlock>]>>; LISTS]);

impl Default for PersistentBlocks {
    fn default() -> Self {
        PersistentBlocks([const { OnceLock::new() }; LISTS])
    }
}

/// The TLS blocks of a process.
#[derive(Debug, Default)]
pub(crate) struct TlsBlocks {
    nested: Mutex<NestedBlocks>,
    /// All that were made, for tools.
    made: Mutex<Vec<Block>>,
    has_warned: OnceLock<()>,
}

/// The blocks for members of nested regions.
#[derive(Debug, Default)]
struct NestedBlocks {
    all: Vec<Block>,
    /// Those that nobody has or keeps.
    spare: Vec<Block>,
}

thread_local! {
    /// The block that the last member of a nested region had here, for the next one.
    static SPARE: Cell<Option<Block>> = const { Cell::new(None) };
}

impl TlsBlocks {
    /// Runs `f` with the block of member `id`: of an outermost region under the initial thread with
    /// the `persistent` blocks, or of a nested region.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        persistent: Option<&PersistentBlocks>,
        id: u32,
        mut f: impl FnOnce() -> R,
    ) -> R {
        loop {
            let block = match persistent {
                Some(persistent) => persistent.get(id, self),
                None => self.take_spare(),
            };
            let Some(block) = block else { return f() };
            match block.with(f) {
                Ok(result) => {
                    if persistent.is_none() {
                        self.put_spare(block);
                    }
                    return result;
                }
                // It was forgotten.
                Err(back) => f = back,
            }
        }
    }

    fn take_spare(&self) -> Option<Block> {
        if let Some(block) = SPARE.take() {
            return Some(block);
        }
        if let Some(block) = lock(&self.nested).spare.pop() {
            return Some(block);
        }
        let made = self.make()?;
        lock(&self.nested).all.push(made);
        Some(made)
    }

    fn put_spare(&self, block: Block) {
        if let Some(other) = SPARE.replace(Some(block)) {
            lock(&self.nested).spare.push(other);
        }
    }

    /// Forgets all values: those of `persistent` and of spare blocks.
    pub(crate) fn clear(&self, persistent: &PersistentBlocks, tool: Option<&Tool>) {
        let end = |block: Block| {
            if let Some(tool) = tool {
                // Here, and not while the variables are destroyed, which may be after the tool's
                // end.
                let _ = block.with_idle(|| (tool.raise)(&Event::ThreadEnd));
            }
            block.end();
        };
        for place in persistent.0.iter().filter_map(OnceLock::get).flatten() {
            if let Some(block) = place.get(Ordering::Acquire) {
                place.set(None, Ordering::Relaxed);
                end(block);
            }
        }
        let mut nested = lock(&self.nested);
        nested.spare.clear();
        let all = std::mem::take(&mut nested.all);
        drop(nested);
        // One that a thread keeps for its next member is found to have ended then.
        all.into_iter().for_each(end);
    }

    #[cold]
    fn make(&self) -> Option<Block> {
        let made = TlsBlock::new();
        if made.is_none() {
            self.has_warned.get_or_init(|| {
                eprintln!(
                    "libgomp (Margay): no thread for another set of thread-local variables; members share one from here \
                     on. Allow more threads (ulimit -u, the container's pids limit), or ask for fewer."
                );
            });
        }
        let made: Block = Box::leak(Box::new(made?));
        lock(&self.made).push(made);
        Some(made)
    }

    /// Runs `f` with each block that no member has now.
    pub(crate) fn in_idle(&self, f: impl Fn()) {
        let all = lock(&self.made).clone();
        for block in all {
            // One that is used, or has ended, is passed over.
            let _ = block.with_idle(&f);
        }
    }
}

impl PersistentBlocks {
    #[inline]
    fn get(&self, id: u32, blocks: &TlsBlocks) -> Option<Block> {
        // List n has the numbers from 2^n - 1 on.
        let list = (id + 1).ilog2();
        let places = self.0[list as usize]
            .get_or_init(|| (0..1 << list).map(|_| StaticRef::none()).collect());
        let place = &places[(id + 1 - (1 << list)) as usize];
        place
            .get(Ordering::Acquire)
            .or_else(|| Self::fill(place, blocks))
    }

    #[cold]
    fn fill(place: &StaticRef<TlsBlock>, blocks: &TlsBlocks) -> Option<Block> {
        let made = blocks.make()?;
        Some(match place.set_first(made) {
            Ok(()) => made,
            Err(there) => {
                made.end();
                there
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
