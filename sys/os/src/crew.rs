//! Threads that help with work that falls into pieces. Who has the work does it as if it were
//! alone, and takes one piece after the other; threads that have woken up in time take some of
//! them. So nobody waits for a thread that got no core, and work that is done before a thread wakes
//! costs one call of the system more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The work, which its caller and the helpers share. It lives as long as the post has it or a
/// helper is in it, which `Posted` guarantees.
type Work = &'static (dyn Fn() + Sync);

#[derive(Default)]
struct Post {
    work: Option<Work>,
    /// Counts works, so that a helper does each once.
    number: u64,
    /// Helpers that are in the work.
    inside: usize,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    post: Mutex<Post>,
    came: Condvar,
    left: Condvar,
}

impl Shared {
    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(&self) {
        let mut seen = 0;
        loop {
            let mut post = self.post();
            let work = loop {
                if post.is_over {
                    return;
                }
                match post.work {
                    Some(work) if post.number != seen => break work,
                    _ => post = self.came.wait(post).unwrap_or_else(PoisonError::into_inner),
                }
            };
            seen = post.number;
            post.inside += 1;
            drop(post);
            let _inside = Inside(self);
            work();
        }
    }
}

/// A helper that is in the work; also when that panics, it has left.
struct Inside<'a>(&'a Shared);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.post().inside -= 1;
        self.0.left.notify_all();
    }
}

/// Work that helpers may take. When it is dropped, none of them is in it or can take it.
struct Posted<'a>(&'a Shared);

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        let mut post = self.0.post();
        post.work = None;
        while post.inside > 0 {
            post = self
                .0
                .left
                .wait(post)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Helpers, which end with it.
pub struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// This many helpers, or as many as the system gives threads; none is a crew as well.
    #[must_use]
    pub fn new(helpers: usize) -> Crew {
        let shared = Arc::<Shared>::default();
        let threads = (0..helpers).map_while(|_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("crew".into())
                .spawn(move || shared.help())
                .ok()
        });
        Crew {
            threads: threads.collect(),
            shared,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn helpers(&self) -> usize {
        self.threads.len()
    }

    /// Does the work, which takes pieces until there are none, and lets helpers do the same at the
    /// same time. When somebody else has posted work, nobody helps with this one. All have left the
    /// work when this returns.
    pub fn share(&self, work: &(dyn Fn() + Sync)) {
        if self.threads.is_empty() {
            return work();
        }
        let mut post = self.shared.post();
        if post.work.is_some() || post.inside > 0 {
            drop(post);
            return work();
        }
        // SAFETY: only the lifetime is changed. The reference is taken out of the post, and every
        // helper that has copied it has left the work, before `posted` is gone at the end of this
        // function, also when the work panics.
        post.work = Some(unsafe { std::mem::transmute::<&(dyn Fn() + Sync), Work>(work) });
        post.number += 1;
        drop(post);
        let posted = Posted(&self.shared);
        self.shared.came.notify_all();
        work();
        drop(posted);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.post().is_over = true;
        self.shared.came.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of it was seen by who had the work.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// Each piece is done once, by one thread, and all are done when `share` returns.
    #[test]
    fn pieces_are_done_once_each_by_any_number_of_helpers() {
        for helpers in [0, 1, 3] {
            let crew = Crew::new(helpers);
            let total = AtomicU64::new(0);
            let rounds = if cfg!(miri) { 5 } else { 500 };
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for round in 0..rounds {
                            let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
                            crew.share(&|| {
                                loop {
                                    let piece = next.fetch_add(1, Ordering::SeqCst);
                                    if piece >= 10 {
                                        return;
                                    }
                                    sum.fetch_add(piece + round, Ordering::SeqCst);
                                }
                            });
                            assert_eq!(sum.into_inner(), 45 + 10 * round);
                            total.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert_eq!(total.into_inner(), 2 * rounds as u64);
        }
    }

    #[test]
    fn work_that_panics_is_over_for_all() {
        let crew = Crew::new(2);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crew.share(&|| panic!("expected by the test"));
        }));
        assert!(caught.is_err());
        let done = AtomicUsize::new(0);
        crew.share(&|| {
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert!(done.into_inner() >= 1);
    }
}
