//! What the processor and the system count of other processes: instructions, cache misses, page
//! faults, switches.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::FromRawFd;

use crate::process::ProcessFacts;

/// What the system counts of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub cpu_s: f64,
    /// Page faults that needed no disk.
    pub faults: u64,
    /// Those that waited for a disk.
    pub disk_faults: u64,
    /// How often its threads gave up their core to wait.
    pub switches: u64,
    /// How often it was taken from them.
    pub forced: u64,
}

impl Usage {
    /// Of a process; none when there is none. Switches are those of threads that have not ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Usage> {
        let facts = ProcessFacts::of(pid)?;
        let mut usage = Usage {
            cpu_s: facts.cpu_seconds,
            faults: facts.faults,
            disk_faults: facts.disk_faults,
            ..Usage::default()
        };
        for thread in threads(pid) {
            let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
            let status = status.unwrap_or_default();
            let value = |name: &str| {
                let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
                lines.next().and_then(|value| value.trim().parse().ok())
            };
            usage.switches += value("voluntary_ctxt_switches:").unwrap_or(0);
            usage.forced += value("nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        Some(usage)
    }

    /// What has come since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_s: (self.cpu_s - before.cpu_s).max(0.0),
            faults: self.faults.saturating_sub(before.faults),
            disk_faults: self.disk_faults.saturating_sub(before.disk_faults),
            switches: self.switches.saturating_sub(before.switches),
            forced: self.forced.saturating_sub(before.forced),
        }
    }
}

/// The kernel's numbers of a process's threads.
fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A kind of event, as `perf_event_open` has it: type and number.
pub type Event = (u32, u64);

const HARDWARE: u32 = 0;
const CACHE: u32 = 3;

/// Cycles, instructions, loads, loads that missed the first cache, and the last one.
pub const PROCESSOR: [Event; 5] = [
    (HARDWARE, 0),
    (HARDWARE, 1),
    (CACHE, 0),
    (CACHE, 1 << 16),
    (CACHE, 1 << 16 | 2),
];

/// The first words of the kernel's `perf_event_attr`, version 0.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// Children count as well; not the kernel, nor a hypervisor.
const INHERIT: u64 = 1 << 1;
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// With the times that a counter has been wanted and has counted.
const TIMES: u64 = 3;

/// Counters of a process: all its threads, and those that they begin.
#[derive(Debug)]
pub struct Counters {
    /// By event, a counter for each thread.
    files: Vec<Vec<File>>,
}

impl Counters {
    /// Begins to count.
    ///
    /// # Errors
    /// The system's: ENOENT where it has no such counter, EACCES where it does not allow it.
    pub fn of(pid: u32, events: &[Event]) -> io::Result<Counters> {
        let mut files: Vec<Vec<File>> = events.iter().map(|_| Vec::new()).collect();
        for thread in threads(pid) {
            for (event, files) in events.iter().zip(&mut files) {
                match open(thread, *event) {
                    Ok(file) => files.push(file),
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Counters { files })
    }

    /// What has been counted. Where the processor has fewer counters than were asked for they take
    /// turns, and the counts are estimates.
    pub fn read(&mut self) -> Vec<u64> {
        let sum = |files: &mut Vec<File>| files.iter_mut().map(value).sum();
        self.files.iter_mut().map(sum).collect()
    }
}

fn value(file: &mut File) -> u64 {
    let mut words = [[0_u8; 8]; 3];
    if file.read_exact(words.as_flattened_mut()).is_err() {
        return 0;
    }
    let [count, wanted, counted] = words.map(u64::from_ne_bytes);
    match counted {
        0 => 0,
        _ => (count as f64 * (wanted as f64 / counted as f64)) as u64,
    }
}

fn open(thread: u32, (kind, config): Event) -> io::Result<File> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        format: TIMES,
        flags: INHERIT | USER_ONLY,
        ..Attributes::default()
    };
    const CLOSED_BY_EXEC: u64 = 8;
    // SAFETY: the kernel reads the attributes, whose size they have.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            -1,
            -1,
            CLOSED_BY_EXEC,
        )
    };
    match file {
        0.. => {
            // SAFETY: a new descriptor, which nobody else has.
            Ok(unsafe { File::from_raw_fd(file as i32) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why counters of the processor cannot be had, and the remedy.
#[must_use]
pub fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine shows none, as most virtual machines do".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the system does not allow it: set kernel.perf_event_paranoid to 2 or less; containers need CAP_PERFMON".to_owned()
        }
        Some(libc::EMFILE) => "too many threads for the limit of open files; raise it (ulimit -n)".to_owned(),
        _ => format!("perf_event_open: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that the kernel counts itself: CPU time in nanoseconds, page faults.
    const KERNELS: [Event; 2] = [(1, 1), (1, 2)];

    #[test]
    fn another_process_is_counted() {
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let usage = || Usage::of(child.id()).unwrap();
        let counters = Counters::of(child.id(), &KERNELS);
        // It computes all the time.
        let before = usage();
        while usage().since(&before).cpu_s < 0.03 {
            std::thread::yield_now();
        }
        match counters {
            Ok(mut counters) => assert!(counters.read()[0] > 0),
            Err(error) => println!("note: not counted: {}", refusal(&error)),
        }
        assert!(usage().faults > 0 && before.since(&before) == Usage::default());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Usage::of(child.id()), None);
    }

    #[test]
    fn what_is_refused_has_a_reason() {
        let said = |number| refusal(&io::Error::from_raw_os_error(number));
        assert!(said(libc::ENOENT).contains("virtual machines"));
        assert!(said(libc::EACCES).contains("perf_event_paranoid"));
        assert!(said(libc::EMFILE).contains("ulimit -n"));
    }
}
