//! Watching processes: their children, their descendants, their states, and handles that outlive a
//! reused id.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl;
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, pidfd_open, waitid, waitpid,
};

use crate::cpu::usage_of;
use crate::descriptor::PollSet;
use crate::port::user;
use crate::signal;

/// What waiting for children gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child ended and has been reaped.
    Child(u32, ExitStatus),
    /// There are children, and all of them live.
    NoneYet,
    /// There are no children.
    NoChildren,
}

/// Reaps a child that has ended; does not block.
#[must_use]
pub fn reap() -> Reaped {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(None) => Reaped::NoneYet,
        Ok(Some((pid, status))) => {
            let status = ExitStatus::from_raw(status.as_raw());
            Reaped::Child(pid.as_raw_pid() as u32, status)
        }
        Err(_) => Reaped::NoChildren,
    }
}

/// Waits until the child `pid` has ended and reaps it.
///
/// # Errors
/// When it is not a child of this process.
pub fn reap_one(pid: u32) -> io::Result<ExitStatus> {
    let child = process(pid)?;
    let ended = || waitpid(Some(child), WaitOptions::empty());
    let (_, status) = retry_on_intr(ended)?.ok_or(Errno::CHILD)?;
    Ok(ExitStatus::from_raw(status.as_raw()))
}

/// What processes used that have ended and were reaped, with those that they had reaped themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReapedUsage {
    /// CPU time, user and system, in seconds.
    pub cpu_s: f64,
    /// The largest resident set of any one of them, in KiB.
    pub max_rss_kib: u64,
}

impl ReapedUsage {
    /// What all children used that this process has reaped until now.
    #[must_use]
    pub fn so_far() -> ReapedUsage {
        let mut used = ReapedUsage::default();
        used.add(&usage_of(libc::RUSAGE_CHILDREN));
        used
    }

    /// Reaps as [`reap`] does, and adds what the child used.
    pub fn reap(&mut self) -> Reaped {
        match self.wait(-1, libc::WNOHANG) {
            Ok(None) => Reaped::NoneYet,
            Ok(Some((pid, status))) => Reaped::Child(pid, status),
            Err(_) => Reaped::NoChildren,
        }
    }

    /// Reaps as [`reap_one`] does, and adds what the child used.
    ///
    /// # Errors
    /// When it is not a child of this process.
    pub fn reap_one(&mut self, pid: u32) -> io::Result<()> {
        loop {
            match self.wait(process(pid)?.as_raw_pid(), 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                ended => return ended.map(|_| ()),
            }
        }
    }

    /// Reaps a child, this one or any (-1), and adds what it used; none where none has ended.
    fn wait(&mut self, pid: i32, options: i32) -> io::Result<Option<(u32, ExitStatus)>> {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value and the kernel overwrites it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes to a number and a structure of ours.
        let pid = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        let pid = u32::try_from(pid).map_err(|_| io::Error::last_os_error())?;
        if pid == 0 {
            return Ok(None);
        }
        self.add(&usage);
        Ok(Some((pid, ExitStatus::from_raw(status))))
    }

    fn add(&mut self, usage: &libc::rusage) {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        self.cpu_s += seconds(usage.ru_utime) + seconds(usage.ru_stime);
        let largest = u64::try_from(usage.ru_maxrss).unwrap_or(0);
        self.max_rss_kib = self.max_rss_kib.max(largest);
    }
}

/// A process as the kernel names it; 0 is none.
fn process(pid: u32) -> rustix::io::Result<Pid> {
    let number = i32::try_from(pid).ok();
    number.and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

/// Facts about a process, from `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessFacts {
    /// Its id.
    pub pid: u32,
    /// Its state's letter: R, S, D, T, Z and so on.
    pub state: char,
    /// Its parent's id.
    pub parent: u32,
    /// Its session's id: that of the process that leads it, or led it.
    pub session: u32,
    /// CPU time used by all its threads, in seconds.
    pub cpu_seconds: f64,
    /// Page faults that needed no disk, and those that did.
    pub faults: u64,
    pub disk_faults: u64,
    /// When it started, in clock ticks since the machine started; tells a reused id apart.
    pub started_ticks: u64,
    /// Its address space in bytes; 0 when it has given its memory back because it is ending.
    pub address_space: u64,
    /// The core that it ran on last.
    pub last_core: u32,
}

impl ProcessFacts {
    /// The facts of a process, none when there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<ProcessFacts> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: u32, stat: &str) -> Option<ProcessFacts> {
        // The name stands in parentheses and may hold anything, so count from its end.
        let rest = stat.get(stat.rfind(')')? + 1..)?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // SAFETY: sysconf touches no memory of ours.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Some(ProcessFacts {
            pid,
            state: fields.first()?.chars().next()?,
            parent: number(4)? as u32,
            session: number(6)? as u32,
            faults: number(10)?,
            disk_faults: number(12)?,
            cpu_seconds: (number(14)? + number(15)?) as f64 / ticks,
            started_ticks: number(22)?,
            address_space: number(23)?,
            last_core: number(39)? as u32,
        })
    }
}

/// The state of a thread of this process, as the kernel tells it.
#[derive(Debug)]
pub struct ThreadState(fs::File);

impl ThreadState {
    /// Of the calling thread; None where the system does not tell.
    #[must_use]
    pub fn of_caller() -> Option<ThreadState> {
        let thread = crate::cpu::thread_number();
        let file = fs::File::open(format!("/proc/self/task/{thread}/stat")).ok()?;
        Some(ThreadState(file))
    }

    /// Whether it runs or waits for a core. False also when it has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.letter() == Some(b'R')
    }

    /// The kernel's letter for the state; None when the thread is gone.
    fn letter(&self) -> Option<u8> {
        // Number, name in parentheses (at most 15 bytes, of any kind), state.
        let mut line = [0; 64];
        let read = self.0.read_at(&mut line, 0).unwrap_or(0);
        let line = &line[..read];
        let name_end = line.iter().rposition(|&byte| byte == b')')?;
        line.get(name_end + 2).copied()
    }
}

/// Whether this process has a thread with that number ([`thread_id`](super::thread_id)) that has
/// not ended. True where the system does not show threads.
#[must_use]
pub fn has_thread(thread: u32) -> bool {
    match fs::File::open(format!("/proc/self/task/{thread}/stat")) {
        Ok(file) => !matches!(ThreadState(file).letter(), None | Some(b'Z' | b'X')),
        Err(_) => fs::metadata("/proc/self/task").is_err(),
    }
}

/// The kernel's numbers of those threads of a process that run or are ready to. Empty when there
/// is no such process.
#[must_use]
pub fn running_threads(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let is_running = |thread: &u32| {
        fs::File::open(format!("/proc/{pid}/task/{thread}/stat"))
            .is_ok_and(|file| ThreadState(file).is_running())
    };
    let threads = threads.flatten().filter_map(number);
    threads.filter(is_running).collect()
}

/// Whether a process can still touch memory: it exists, is no zombie and not about to become one.
/// (A killed process has no memory any more for some time before it is a zombie; attaching to it
/// fails from then on.)
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    ProcessFacts::of(pid)
        .is_some_and(|facts| !matches!(facts.state, 'Z' | 'X') && facts.address_space > 0)
}

/// Whether the kernel writes a process's core file: the process is as good as dead, and cannot be
/// stopped any more. False where the system does not say.
#[must_use]
pub fn is_dumping_core(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut values = status
        .lines()
        .filter_map(|l| l.strip_prefix("CoreDumping:"));
    values.next().is_some_and(|value| value.trim() == "1")
}

/// The ids of all processes that this process can see.
pub fn all_processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the system shows processes at all.
///
/// # Errors
/// When `/proc` is not there or is something else.
pub fn can_see_processes() -> io::Result<()> {
    fs::metadata("/proc/self/stat").map(drop)
}

/// Whether a process belongs to another user than the one on whose behalf this process runs; to
/// root none is another's. None when there is no such process.
#[must_use]
pub fn is_anothers(pid: u32) -> Option<bool> {
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let own = user();
    Some(owner != own && own != 0)
}

/// Whether other processes run the file that this one runs.
#[must_use]
pub fn others_of_this_program() -> bool {
    let file = |pid: u32| {
        let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((file.dev(), file.ino()))
    };
    let me = std::process::id();
    let own = file(me);
    own.is_some() && all_processes().any(|pid| pid != me && file(pid) == own)
}

/// All living descendants of this process, except for those below the children in `except`.
#[must_use]
pub fn descendants(except: &[u32]) -> Vec<ProcessFacts> {
    let me = std::process::id();
    let everybody: Vec<ProcessFacts> = all_processes().filter_map(ProcessFacts::of).collect();
    let mut family: Vec<ProcessFacts> = Vec::new();
    let mut parents = vec![me];
    while let Some(parent) = parents.pop() {
        for facts in everybody.iter().filter(|f| f.parent == parent) {
            let excepted = parent == me && except.contains(&facts.pid);
            if !excepted && !family.iter().any(|f| f.pid == facts.pid) {
                family.push(*facts);
                parents.push(facts.pid);
            }
        }
    }
    family.retain(|f| f.state != 'Z');
    family
}

/// The living descendants of a process, each behind its parent. Processes that come meanwhile may
/// be missing.
#[must_use]
pub fn descendants_of(pid: u32) -> Vec<u32> {
    let children = |pid: u32| -> Option<Vec<u32>> {
        let mut all = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let list = fs::read_to_string(thread.path().join("children")).ok()?;
            all.extend(
                list.split_ascii_whitespace()
                    .filter_map(|n| n.parse::<u32>().ok()),
            );
        }
        Some(all)
    };
    // Systems without these lists: all processes are read.
    let listed = fs::metadata("/proc/thread-self/children").is_ok();
    let everybody: Vec<(u32, u32)> = if listed {
        Vec::new()
    } else {
        let facts = all_processes().filter_map(ProcessFacts::of);
        facts.map(|facts| (facts.parent, facts.pid)).collect()
    };
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        let below = if listed {
            children(parent).unwrap_or_default()
        } else {
            let own = everybody.iter().filter(|(of, _)| *of == parent);
            own.map(|&(_, pid)| pid).collect()
        };
        for child in below {
            if !family.contains(&child) {
                family.push(child);
            }
        }
        at += 1;
    }
    family.remove(0);
    family
}

/// Kills all descendants of this process, also those that left their group or session, and reaps
/// them. Orphans come to this process ([`become_subreaper`](super::become_subreaper)), so nobody
/// escapes by forking: the round is repeated until there are no children. Children in `except` and
/// theirs are left alone. Returns whether all are gone within `within` (a process in
/// uninterruptible sleep stays).
pub fn kill_descendants(except: &[u32], within: Duration) -> bool {
    kill_descendants_counted(except, within, &mut ReapedUsage::default())
}

/// The same, and adds what those used that it reaps.
pub fn kill_descendants_counted(except: &[u32], within: Duration, used: &mut ReapedUsage) -> bool {
    let end = Instant::now() + within;
    let mut pause = Duration::from_micros(200);
    loop {
        loop {
            match used.reap() {
                Reaped::Child(..) => {}
                Reaped::NoneYet => break,
                Reaped::NoChildren => return true,
            }
        }
        let family = descendants(except);
        if family.is_empty() && !except.is_empty() {
            return true;
        }
        for facts in &family {
            kill_checked(facts);
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A child that has ended and has not been reaped. `rustix` does not give its number.
#[must_use]
pub fn unreaped_child() -> Option<u32> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a structure of ours.
    let done = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    // SAFETY: it is zero, or the kernel has filled it in for a child.
    let pid = unsafe { info.si_pid() };
    (done == 0 && pid > 0).then_some(pid as u32)
}

/// Whether this process has children now, and which.
#[must_use]
pub fn children() -> Vec<u32> {
    // Nothing is reaped (NOWAIT).
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if waitid(WaitId::All, options).is_err() {
        return Vec::new();
    }
    let me = std::process::id();
    all_processes()
        .filter_map(ProcessFacts::of)
        .filter(|f| f.parent == me)
        .map(|f| f.pid)
        .collect()
}

/// Kills the process that `facts` tells of, unless its id has been reused since.
pub(super) fn kill_checked(facts: &ProcessFacts) {
    signal_checked(facts, libc::SIGKILL);
}

/// Sends the process that `facts` tells of a signal, unless its id has been reused since.
pub fn signal_checked(facts: &ProcessFacts, number: i32) {
    match PidFd::open(facts.pid) {
        Ok(process) => {
            let same = ProcessFacts::of(facts.pid)
                .is_some_and(|now| now.started_ticks == facts.started_ticks);
            if same {
                process.signal(number);
            }
        }
        // Before Linux 5.3, or forbidden: by number.
        Err(error) if Errno::from_io_error(&error) != Some(Errno::SRCH) => {
            let _ = signal::send(facts.pid, number);
        }
        Err(_) => {}
    }
}

/// A handle of one process, which never means another one. Readable once the process has ended.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// The handle of the process that has this id now.
    ///
    /// # Errors
    /// When there is no such process or the kernel is older than 5.3.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        let fd = pidfd_open(process(pid)?, PidfdFlags::empty())?;
        Ok(PidFd { fd })
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Sends the process a signal: any, also one of those without a name, which `rustix` has not.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the descriptor is open; no signal information is handed over.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }

    /// Whether the process has ended, reaped or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut set = PollSet::default();
        let place = set.add_readable(self.fd.as_fd());
        set.wait(Some(Duration::ZERO)).is_ok() && set.ready(place).readable
    }

    /// How the process `pid`, for which this stands, has ended, also when it is not this process's
    /// child; none while it lives and where the kernel does not say: a process that its parent has
    /// reaped is reported since Linux 6.15.
    #[must_use]
    pub fn how_it_ended(&self, pid: u32) -> Option<ExitStatus> {
        /// The kernel's `struct pidfd_info`, up to the exit code.
        #[repr(C)]
        #[derive(Default)]
        struct Information {
            mask: u64,
            cgroup: u64,
            ids: [u32; 11],
            exit_code: i32,
        }
        /// `PIDFD_INFO_EXIT`
        const EXIT: u64 = 1 << 3;
        /// `PIDFD_GET_INFO`: reads and writes the structure, number 11 of the type 0xff.
        const GET_INFO: ioctl::Opcode = ioctl::opcode::read_write::<Information>(0xff, 11);
        if !self.has_ended() {
            return None;
        }
        if let Some(status) = zombie_status(pid) {
            return Some(status);
        }
        let mut information = Information {
            mask: EXIT,
            ..Information::default()
        };
        // SAFETY: the structure is the one of this number, and has the size that it tells.
        unsafe {
            let get = ioctl::Updater::<GET_INFO, _>::new(&mut information);
            ioctl::ioctl(&self.fd, get).ok()?;
        }
        (information.mask & EXIT != 0).then(|| ExitStatus::from_raw(information.exit_code))
    }
}

/// How a process that has ended and was not reaped has ended: the last field of its
/// `/proc/<pid>/stat`.
fn zombie_status(pid: u32) -> Option<ExitStatus> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next(), Some("Z"));
    let code = fields.next_back()?.parse().ok()?;
    ended.then(|| ExitStatus::from_raw(code))
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;

    #[test]
    fn a_thread_that_asks_for_itself_is_running() {
        assert!(ThreadState::of_caller().unwrap().is_running());
        let (tell, report) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(ThreadState::of_caller().unwrap()).unwrap();
            std::thread::park();
        });
        let state = report.recv().unwrap();
        let stops_running = || {
            let began = Instant::now();
            while state.is_running() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            !state.is_running()
        };
        assert!(stops_running());
        sleeper.thread().unpark();
        // A join returns before the thread has left the kernel.
        sleeper.join().unwrap();
        assert!(stops_running());
    }

    #[test]
    fn a_thread_that_has_ended_is_not_there() {
        assert!(has_thread(thread_id()));
        let ended = std::thread::spawn(thread_id).join().unwrap();
        let began = Instant::now();
        // A join returns before the thread has left the kernel.
        while has_thread(ended) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!has_thread(ended));
    }

    #[test]
    fn facts_survive_odd_names() {
        // Fields 3 to 52; the value of a field that is not set below is 0.
        let mut fields = vec!["0"; 50];
        for (field, value) in [(3, "R"), (4, "5"), (14, "150"), (22, "999"), (39, "3")] {
            fields[field - 3] = value;
        }
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        let facts = ProcessFacts::parse(7, &stat).unwrap();
        assert_eq!((facts.state, facts.parent), ('R', 5));
        assert_eq!(facts.started_ticks, 999);
        assert_eq!(facts.last_core, 3);
        assert!(ProcessFacts::of(std::process::id()).is_some());
        assert_eq!(ProcessFacts::parse(7, "7 (x"), None);
    }

    #[test]
    fn a_handle_of_a_process_ends_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        assert!(descendants(&[]).iter().any(|f| f.pid == child.id()));
        assert!(
            !descendants(&[child.id()])
                .iter()
                .any(|f| f.pid == child.id())
        );
        let handle = PidFd::open(child.id()).unwrap();
        assert_eq!(handle.how_it_ended(child.id()), None);
        handle.kill();
        while !handle.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = handle.how_it_ended(child.id()).unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
        assert_eq!(child.wait().unwrap(), ended);
        // Older kernels do not tell of a process that has been reaped.
        let later = handle.how_it_ended(child.id());
        assert!(later.is_none() || later == Some(ended), "{later:?}");
    }
}
