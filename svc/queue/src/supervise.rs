//! A supervisor, which watches over one job at a time: starts it, ends it at its time limit or when
//! the head asks, and writes how it ended. All of the job's processes are its descendants, also
//! those that have left their session, and none outlives it. The head gives it one job after the
//! other, so that a short job costs no process but its own. It is two processes: when the one that
//! watches is killed, the other ends what is left.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use margay_core_queue::{End, shown};
use margay_job_launch::energy::{EnergyMeter, READ_EVERY};
use margay_svc_queue_wire::Usage;
use margay_sys_os::credentials::real_user;
use margay_sys_os::descriptor::{FileLimit, PollSet};
use margay_sys_os::memory;
use margay_sys_os::process::{
    Forked, Halt, Reaped, ReapedUsage, Start, Starter, Step, become_subreaper, descendants,
    descendants_of, fork, kill_descendants, kill_descendants_counted, lead_session, reap_one,
    signal_checked,
};
use margay_sys_os::signal::{self, SIGCONT, SIGTERM, SignalFd, SignalSet};

use crate::begin::{self, Report};
use crate::files::{JobEnd, JobFolder, JobOrder, SignalWish};
use crate::gang;
use crate::hearing::{HEARD, Hearing, RETRY};
use crate::line::SupervisorLine;
use crate::now_s;
use crate::program::{self, Program, c_string};
use crate::{away, follow, output};

/// How long a job may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// How long the kernel may take to end what was killed.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// How often it is seen how much memory a job uses, where it has a limit.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(500);

/// How often it is asked at least how long a job had its turns that is at its time limit.
const LOOK_AT_TURNS: Duration = Duration::from_millis(200);

/// How often a disk that is full is tried again.
const RETRIES: u32 = 240;

/// Runs the jobs of folders below `jobs` that the head names on the standard input, until it has
/// gone.
///
/// # Errors
/// In words, when the end of a job could not be written.
pub fn supervise(jobs: &Path) -> Result<(), String> {
    let heard = SignalSet::of(&HEARD);
    heard.block();
    let failed = |error: io::Error| format!("a supervisor of jobs cannot start: {error}");
    lead_session();
    become_subreaper().map_err(failed)?;
    if let Forked::Parent(inner) = fork().map_err(failed)? {
        reap_one(inner).map_err(failed)?;
        kill_descendants(&[], KILLED_WITHIN);
        return Ok(());
    }
    // By its session a job's processes are known when both are killed.
    lead_session();
    let mut hearing = Hearing {
        signals: SignalFd::new(&heard).map_err(failed)?,
        line: SupervisorLine::of_stdin().map_err(failed)?,
        relay: None,
        poll: PollSet::default(),
    };
    become_subreaper().map_err(failed)?;
    while let Some(name) = hearing.next_job() {
        let folder = JobFolder::at(jobs.join(name));
        match run(&folder, &mut hearing) {
            Ok(true) => {}
            // What did not end would be taken for a part of the next job.
            Ok(false) => return Ok(()),
            Err(error) => crate::log(&format!("{}: {error}", folder.path.display())),
        }
        hearing.line.say_ended();
    }
    Ok(())
}

/// Runs a job, unless another process has claimed it. Returns whether all of its processes have
/// ended.
fn run(folder: &JobFolder, hearing: &mut Hearing) -> io::Result<bool> {
    let order = folder.order()?;
    let folder = &folder.clone().of_order(&order);
    let Some(_claim) = folder.claim()? else {
        return Ok(true);
    };
    let (end, are_gone) = match (&order.left, &order.away) {
        (Some(left), _) => (follow::run(folder, left, hearing), true),
        (None, Some(away)) => (away::run(folder, &order, away, hearing), true),
        (None, None) => run_here(folder, &order, hearing, &|| output::files(&order)),
    };
    let mut tries = 0;
    loop {
        match folder.end(&end) {
            Ok(()) => return Ok(are_gone),
            Err(error) if tries == RETRIES => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
        }
        tries += 1;
    }
}

/// Runs a job on this host. Returns how it ended, and whether all of its processes have.
pub fn run_here(
    folder: &JobFolder,
    order: &JobOrder,
    hearing: &mut Hearing,
    outputs: &dyn Fn() -> Result<[File; 2], String>,
) -> (JobEnd, bool) {
    let mut used = ReapedUsage::default();
    let is_relayed = hearing.relay.is_some();
    let mut energy = EnergyMeter::begin();
    let (end, note, are_gone) = match start(folder, order, outputs, is_relayed) {
        Ok(started) => {
            let watched = watch(
                started.process,
                (folder, order),
                hearing,
                &mut used,
                &mut energy,
            );
            match started.report.and_then(Report::said) {
                Some(text) => (End::NotStarted, text, watched.2),
                None => watched,
            }
        }
        Err(text) => (End::NotStarted, text, true),
    };
    let share = |at: usize| order.shares.get(at).copied().unwrap_or(0.0);
    let mut energy_uj = energy.map(|mut energy| energy.read() as f64 * share(0));
    // A short job on one host reads no file for that.
    let others = match order.parts.len() > 1 {
        true => folder.used_there(),
        false => Vec::new(),
    };
    let steps = folder.steps(&others);
    for there in others {
        used.cpu_s += there.cpu_us as f64 / 1e6;
        used.max_rss_kib = used.max_rss_kib.max(there.max_rss_kib);
        let place = (order.parts.iter()).position(|part| part.host == there.host);
        if let (Some(place), Some(energy)) = (place, there.energy_uj) {
            *energy_uj.get_or_insert(0.0) += energy as f64 * share(place);
        }
    }
    let end = JobEnd {
        end,
        ended: now_s(),
        usage: Usage {
            cpu_s: used.cpu_s,
            max_rss_kib: used.max_rss_kib,
            energy_mj: energy_uj.map(|energy| (energy / 1e3) as u64),
        },
        note,
        has_begun: true,
        steps,
    };
    (end, are_gone)
}

/// A job that has been started.
struct Started {
    /// Its first process.
    process: u32,
    /// Where a job that runs as its user says why it could not begin.
    report: Option<Report>,
}

/// Starts the job; `is_relayed` says that its output is not for files here.
fn start(
    folder: &JobFolder,
    order: &JobOrder,
    outputs: &dyn Fn() -> Result<[File; 2], String>,
    is_relayed: bool,
) -> Result<Started, String> {
    if order.user.is_some() {
        // Files are opened with the user's rights.
        let pipes = is_relayed.then(outputs).transpose()?;
        let (process, report) = begin::start(folder, order, pipes)?;
        let report = Some(report);
        return Ok(Started { process, report });
    }
    let script = program::put(folder, order)?;
    let program = Program::of(order, script)?;
    let input = program::input(order)?;
    let [stdout, stderr] = outputs()?;
    let started = Starter::new().start(&Start {
        program: &program.path,
        arguments: &program.arguments,
        environment: &program.environment,
        directory: Some(&c_string(&order.directory.0)?),
        standard: [input.as_fd(), stdout.as_fd(), stderr.as_fd()],
        inherit: &[],
        cores: &order.cores,
        files: FileLimit::now(),
        blocked: SignalSet::of(&[]),
    });
    let process = started.map_err(|failed| match failed.step {
        Step::Execute => program.failed(order, &failed.error),
        step => format!("cannot start it ({step:?}): {}", failed.error),
    })?;
    Ok(Started {
        process,
        report: None,
    })
}

/// Looks how much memory the processes of a job use.
struct MemoryWatch {
    limit_mib: u64,
    /// When it looks next, since the job's beginning.
    next: Duration,
    most_mib: u64,
}

impl MemoryWatch {
    fn new(limit_mib: u64) -> MemoryWatch {
        MemoryWatch {
            limit_mib,
            next: LOOK_AT_MEMORY,
            most_mib: 0,
        }
    }

    /// Whether the job uses more than it may, if it is time to look.
    fn is_exceeded(&mut self, passed: Duration) -> bool {
        if passed < self.next {
            return false;
        }
        self.next = passed + LOOK_AT_MEMORY;
        let all = descendants_of(std::process::id());
        let resident: u64 = all.iter().map(|&pid| memory::resident_bytes(pid)).sum();
        // What several processes share counts several times there, and once here.
        let used = match resident >> 20 > self.limit_mib {
            true => all.iter().map(|&pid| memory::proportional_bytes(pid)).sum(),
            false => resident,
        };
        self.most_mib = self.most_mib.max(used.div_ceil(1 << 20));
        self.most_mib > self.limit_mib
    }
}

/// Sends all processes of the job a signal, the first one first.
fn to_all(process: u32, number: i32) {
    let _ = signal::send(process, number);
    for facts in descendants(&[]) {
        if facts.pid != process {
            signal_checked(&facts, number);
        }
    }
}

/// Sends a signal that the job's user asks for. With root's rights it would reach programs that the
/// user may start and not signal (setuid): these get none.
fn pass_on(process: u32, order: &JobOrder, wish: SignalWish) {
    let uid = order.user.as_ref().map(|user| user.owner.uid);
    let may = |pid: u32| uid.is_none() || real_user(pid) == uid;
    if may(process) {
        let _ = signal::send(process, wish.signal);
    }
    // A launcher passes it on.
    if !wish.to_script && order.gang.is_none() {
        let others = descendants(&[]).into_iter();
        for facts in others.filter(|facts| facts.pid != process && may(facts.pid)) {
            signal_checked(&facts, wish.signal);
        }
    }
}

/// Waits until the job has ended, or ends it. Returns how, what else there is to say, and whether
/// all of its processes have ended.
fn watch(
    process: u32,
    (folder, order): (&JobFolder, &JobOrder),
    hearing: &mut Hearing,
    used: &mut ReapedUsage,
    energy: &mut Option<EnergyMeter>,
) -> (End, String, bool) {
    let begun = Instant::now();
    let mut energy_at = Duration::ZERO;
    let limit = order.limit_s.map(Duration::from_secs);
    let mut warning = order.warning.and_then(|warning| {
        let at = limit?.checked_sub(Duration::from_secs(warning.before_s))?;
        Some((at, warning))
    });
    let mut memory = order.memory_mib.map(MemoryWatch::new);
    // How long it had no turn, as far as that is known, and since when it has none.
    let mut idle = Duration::ZERO;
    let (mut halt, mut out_since) = (Halt::default(), None::<Duration>);
    // What ends it, and when those that do not listen are killed.
    let mut ending: Option<(End, Duration)> = None;
    let status = loop {
        if let Some(status) = reap_until(process, used) {
            break Some(status);
        }
        let passed = begun.elapsed();
        if let Some(since) = &mut out_since {
            idle += passed - std::mem::replace(since, passed);
        }
        halt.sweep(std::process::id());
        let is_due = |at: Option<Duration>, idle| at.is_some_and(|at| passed >= at + idle);
        let is_over = |idle| is_due(limit, idle) || is_due(warning.map(|(at, _)| at), idle);
        if let Some(partition) = &order.gang
            && ending.is_none()
            && is_over(idle)
            && let Some(ran) = gang::ran(order, partition, process)
        {
            idle = passed.saturating_sub(ran);
        }
        if let Some((at, said)) = warning
            && is_due(Some(at), idle)
        {
            warning = None;
            let wish = SignalWish {
                signal: said.signal,
                to_script: said.to_script,
            };
            pass_on(process, order, wish);
        }
        if ending.is_none() && is_due(limit, idle) {
            ending = Some(begin_end(process, order, &halt, End::TimeLimit, passed));
        }
        if let Some(memory) = memory.as_mut().filter(|_| ending.is_none())
            && memory.is_exceeded(passed)
        {
            // Those that need it are killed at once: the machine's memory is at stake.
            ending = Some((End::MemoryLimit, passed));
        }
        if ending.is_some_and(|(_, at)| passed >= at) {
            break None;
        }
        if let Some(energy) = energy.as_mut().filter(|_| passed >= energy_at) {
            energy.read();
            energy_at = passed + READ_EVERY;
        }
        // Where it is out, that it goes on is not heard of.
        let later = |at: Duration| match order.gang {
            Some(_) => (at + idle).max(passed + LOOK_AT_TURNS),
            None => at,
        };
        let next = [
            ending.map(|ending| ending.1),
            limit.filter(|_| ending.is_none()).map(later),
            warning.map(|warning| later(warning.0)),
            (memory.as_ref().filter(|_| ending.is_none())).map(|memory| memory.next),
            energy.as_ref().map(|_| energy_at),
        ];
        let next = next.into_iter().flatten().min();
        let next = next.map(|at| at.saturating_sub(passed) + Duration::from_millis(1));
        hearing.wait(next.into_iter().chain(halt.pause()).min());
        let news = hearing.news(folder);
        for is_stop in news.halts {
            out_since = is_stop.then(|| begun.elapsed());
            hearing.halt(&mut halt, is_stop);
        }
        if news.is_cut {
            ending = Some((End::Lost, passed));
            break None;
        }
        if news.is_end && ending.is_none() {
            let passed = begun.elapsed();
            ending = Some(begin_end(process, order, &halt, End::Cancelled, passed));
        }
        for wish in news.wishes {
            pass_on(process, order, wish);
        }
    };
    let mut are_gone = kill_descendants_counted(&[], KILLED_WITHIN, used);
    let mut lacked_memory = false;
    if let Some(group) = begin::group_of(order) {
        lacked_memory = order.memory_mib.is_some() && group.lacked_memory();
        // Also what is no descendant any more, as its supervisor was another one.
        are_gone &= group.remove().is_ok();
    }
    let code = status.and_then(|status| status.code());
    let signal = status.and_then(|status| status.signal());
    let end = match (ending, code) {
        (Some((end, _)), _) => end,
        // The kernel was faster than the look at the memory.
        (None, _) if lacked_memory => End::MemoryLimit,
        (None, Some(code)) => End::Exit(code),
        (None, None) => End::Signal(signal.unwrap_or(0)),
    };
    let most_mib = memory.map_or(0, |memory| memory.most_mib);
    let most_mib = match lacked_memory {
        true => most_mib.max(order.memory_mib.unwrap_or(0)),
        false => most_mib,
    };
    let note = note_of(end, order, most_mib, are_gone);
    (end, note, are_gone)
}

fn begin_end(
    process: u32,
    order: &JobOrder,
    halt: &Halt,
    end: End,
    passed: Duration,
) -> (End, Duration) {
    if order.gang.is_some() {
        // Its launcher ends it: others may have the turn.
        let _ = signal::send(process, SIGTERM);
        return (end, passed + GRACE);
    }
    to_all(process, SIGTERM);
    // Who is stopped hears nothing otherwise. Out of its turn it stays so: others run.
    if !halt.is_on() {
        to_all(process, SIGCONT);
    }
    (end, passed + GRACE)
}

/// What is said of an end, beside what kind it is.
fn note_of(end: End, order: &JobOrder, most_mib: u64, are_gone: bool) -> String {
    let mut note = match (end, order.limit_s) {
        (End::TimeLimit, Some(limit)) => format!("its time limit of {} was over", shown(limit)),
        (End::MemoryLimit, _) => format!(
            "its processes used {most_mib} MiB of memory and it asked for {}; ask for more (--mem)",
            order.memory_mib.unwrap_or(0)
        ),
        (End::Signal(number), _) => {
            let (name, meaning) = signal::describe(number);
            format!("ended by {name} ({meaning})")
        }
        _ => String::new(),
    };
    if !are_gone {
        note += " (some of its processes do not end)";
    }
    note
}

/// Reaps who has ended; how the job's first process has, if it has.
fn reap_until(process: u32, used: &mut ReapedUsage) -> Option<ExitStatus> {
    loop {
        match used.reap() {
            Reaped::Child(pid, status) if pid == process => return Some(status),
            Reaped::Child(..) => {}
            Reaped::NoneYet => return None,
            // Nobody is left of whom to wait.
            Reaped::NoChildren => return Some(ExitStatus::from_raw(0)),
        }
    }
}
