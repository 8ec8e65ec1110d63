//! Threads of the mount beside their clients. A client that sends one small request after the
//! other waits for each answer, so client and thread never run at the same time. On one core, an
//! answer takes 10 µs; on two, each wakes the other core from idleness for every request, 45 µs.
//! The kernel prefers an idle core, so while there is one such client, threads that serve it bind
//! themselves to its core.

use std::cell::RefCell;
use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use margay_sys_os::cpu;

/// Requests of the same client one after the other, after which a thread looks where that runs.
const LOOK_AFTER: u32 = 32;

/// How long there has been one client only.
const ALONE: Duration = Duration::from_millis(10);

/// Longest time between two of them. It is long for a client, and short for a program on that core.
const QUICK: Duration = Duration::from_millis(2);

/// The word behind the name in `/proc/PID/stat` that says which processor it ran on last.
const PROCESSOR: usize = 36;

/// Where a thread is, and for whom.
struct Place {
    client: u32,
    requests: u32,
    last: Instant,
    bound: Option<Bound>,
}

struct Bound {
    to: usize,
    /// Where it could run before.
    from: Vec<usize>,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place {
        client: 0,
        requests: 0,
        last: Instant::now(),
        bound: None,
    });
}

/// The clients of a mount, as far as threads want to be near them.
pub struct Near {
    begun: Instant,
    /// Who sent the last request, and when another one had sent the one before, in nanoseconds.
    client: AtomicU32,
    changed: AtomicU64,
}

impl Default for Near {
    fn default() -> Near {
        Near {
            begun: Instant::now(),
            client: AtomicU32::new(0),
            changed: AtomicU64::new(0),
        }
    }
}

impl Near {
    /// Notes that this thread serves a request of the thread `client`. `is_small`: it takes less
    /// time than waking a core.
    pub fn serves(&self, client: u32, is_small: bool) {
        let now = Instant::now();
        // These say what is worth while, so nothing depends on their order.
        let since = now.duration_since(self.begun).as_nanos() as u64;
        if self.client.load(Ordering::Relaxed) != client {
            self.client.store(client, Ordering::Relaxed);
            self.changed.store(since, Ordering::Relaxed);
        }
        let alone = since.saturating_sub(self.changed.load(Ordering::Relaxed));
        let is_alone = alone > ALONE.as_nanos() as u64;
        PLACE.with_borrow_mut(|place| {
            let is_quick = now.duration_since(place.last) < QUICK;
            place.last = now;
            if client != place.client || !is_quick || !is_small || !is_alone {
                place.client = client;
                place.requests = 0;
                place.leave();
                return;
            }
            place.requests += 1;
            if place.requests.is_multiple_of(LOOK_AFTER) {
                match last_processor(client) {
                    Some(core) => place.bind(core),
                    None => place.leave(),
                }
            }
        });
    }
}

impl Place {
    fn bind(&mut self, to: usize) {
        if self.bound.as_ref().is_some_and(|bound| bound.to == to) {
            return;
        }
        let from = match self.bound.take() {
            Some(bound) => bound.from,
            None => cpu::affinity(),
        };
        self.bound = Some(Bound { to, from });
        // A core that was taken from this process is none to go to.
        let may = self.bound.as_ref().is_some_and(|b| b.from.contains(&to));
        if !may || !cpu::bind_to(to) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if let Some(bound) = self.bound.take() {
            // Where all of them were taken away, the kernel has chosen others.
            let _ = cpu::bind_thread(0, &bound.from);
        }
    }
}

/// The processor on which a thread of any process ran last.
fn last_processor(thread: u32) -> Option<usize> {
    let stat = fs::read(format!("/proc/{thread}/stat")).ok()?;
    processor(&stat)
}

fn processor(stat: &[u8]) -> Option<usize> {
    // The name may have anything in it.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let words = std::str::from_utf8(&stat[end + 1..]).ok()?;
    words.split_ascii_whitespace().nth(PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let words = |name: &str| {
            let numbers = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>();
            format!("77 ({name}) S {}\n", numbers.join(" "))
        };
        assert_eq!(processor(words("a) b 7 (").as_bytes()), Some(39));
        assert_eq!(processor(b"77 (a) S 1 2"), None);
        assert_eq!(processor(b""), None);
    }

    #[test]
    fn a_thread_is_beside_its_client_while_that_is_alone_and_quick_and_free_then() {
        let all = cpu::affinity();
        let client = cpu::thread_number();
        let serve = move || {
            let near = Near::default();
            let serve = |client| {
                // A machine under load may be slower than any client: then it stays free.
                let begun = Instant::now();
                while begun.elapsed() < 3 * ALONE && cpu::affinity().len() > 1 {
                    near.serves(client, true);
                }
                cpu::affinity()
            };
            let beside = serve(client);
            near.serves(client, false);
            let large = cpu::affinity();
            serve(client);
            near.serves(client + 1, true);
            let other = cpu::affinity();
            // Of a client that is gone, or not to be seen, nothing is known.
            [beside, large, other, serve(0)]
        };
        let [beside, large, other, unknown] = std::thread::spawn(serve).join().expect("it ends");
        assert!(beside == all || beside.len() == 1);
        assert_eq!([large, other, unknown], [all.clone(), all.clone(), all]);
    }
}
