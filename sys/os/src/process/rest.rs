//! Whether a process can go on by itself.

use std::fs;
use std::path::Path;

use super::mapped_range;

/// Whether a process goes on only when one of its threads `waiting` (the kernel's numbers) does: it
/// is not stopped, no debugger has it, and each other thread waits, without a limit of time, for a
/// thread of the process to wake it. False where the system does not tell.
#[must_use]
pub fn is_at_rest(pid: u32, waiting: &[u32]) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let number = thread.file_name().to_str().and_then(|n| n.parse().ok());
        let waits = number.is_some_and(|number| waiting.contains(&number));
        rests(&thread.path(), waits)
    })
}

/// Whether a thread goes on only when others of its process let it, or it is one that `waits`.
fn rests(thread: &Path, waits: bool) -> bool {
    let text = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
    let status = text("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let state = field("State:");
    match state {
        // It has ended.
        Some("Z" | "X") => true,
        _ if field("TracerPid:") != Some("0") => false,
        Some("R" | "S" | "D") if waits => true,
        Some("S") => awaited_word(&text("syscall")).is_some_and(|word| {
            // Memory that is shared with another process may be written to by that one.
            text("maps").lines().any(|line| {
                let access = line.split_whitespace().nth(1).unwrap_or_default();
                mapped_range(line).is_some_and(|range| range.contains(&word))
                    && access.ends_with('p')
            })
        }),
        _ => false,
    }
}

/// The operations of the futex call that wait: plain, with a set of bits, and for a lock that
/// inherits priority (the numbers of linux/futex.h).
const WAITS: [i32; 3] = [0, 9, 6];

/// The address at which a thread waits for another one without a limit of time, from its
/// `/proc/.../syscall`: the number of the call, and its arguments.
fn awaited_word(call: &str) -> Option<usize> {
    let mut words = call.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut argument = || usize::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (address, operation, _, timeout) = (argument()?, argument()?, argument()?, argument()?);
    let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    let is_wait = WAITS.contains(&(operation as i32 & !flags));
    (number == libc::SYS_futex && is_wait && timeout == 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    fn state_of(body: impl FnOnce() + Send + 'static) -> impl Fn(bool) -> bool {
        let (numbers, started) = channel();
        std::thread::spawn(move || {
            numbers.send(thread_id()).unwrap();
            body();
        });
        let thread = started.recv().unwrap();
        let path = format!("/proc/self/task/{thread}");
        move |waits| {
            let began = Instant::now();
            let is_asleep = || {
                let stat = fs::read_to_string(format!("{path}/status")).unwrap();
                stat.contains("State:\tS") && fs::metadata(format!("{path}/syscall")).is_ok()
            };
            while !is_asleep() && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            rests(Path::new(&path), waits)
        }
    }

    #[test]
    fn a_thread_that_waits_for_others_of_its_process_rests() {
        let (sender, receiver) = channel::<()>();
        let waits = state_of(move || receiver.recv().unwrap_or_default());
        if fs::read_to_string("/proc/self/syscall").is_ok() {
            assert!(waits(false));
        }
        drop(sender);
        let sleeps = state_of(|| std::thread::sleep(Duration::from_secs(60)));
        assert!(!sleeps(false));
        assert!(sleeps(true), "it counts as one that waits");
        let (_sender, receiver) = channel::<()>();
        let limited = state_of(move || {
            let _ = receiver.recv_timeout(Duration::from_secs(60));
        });
        assert!(!limited(false));
        let (pipe, _end) = std::io::pipe().unwrap();
        let reads = state_of(move || drop(std::io::Read::read(&mut &pipe, &mut [0])));
        assert!(!reads(false));
        assert!(!is_at_rest(std::process::id(), &[]), "this one runs");
    }
}
