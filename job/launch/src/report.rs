//! What the launcher says about a job that failed or took too long.

use margay_sys::clock::now_ns;
use margay_sys::segment::{Phase, Segment};
use margay_sys::signal;

use crate::plan::Job;
use crate::verdict::{Cause, Failure};
use crate::waits::{Analysis, Doing, analyse, describe, rank_ranges};

/// A wait that has lasted so long is taken for a wait and not for a message on its way.
pub const SETTLED_S: f64 = 0.5;

/// The name of this machine, without asking anybody.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "localhost".into())
}

/// The report of a failed rank: who, where, how, its last call, the consequence and a hint.
#[must_use]
pub fn failure(job: &Job, failure: Failure, segment: &Segment) -> String {
    let launcher = &job.launcher;
    let rank = failure.rank;
    let cell = (rank < segment.ranks()).then(|| segment.cell(rank));
    let pid = cell.map_or(0, |c| c.pid());
    let host = host_name();
    // Programs of other libraries than MPI neither initialize nor finalize.
    let last = cell.map_or_else(String::new, |c| c.call());
    let other = !last.is_empty() && !last.starts_with("MPI");
    let (what, hint) = match failure.cause {
        Cause::Signal {
            signal,
            core_dumped,
        } => {
            let (name, meaning) = signal::describe(signal);
            let core = if core_dumped { ", core dumped" } else { "" };
            let hint = match signal {
                signal::SIGKILL => {
                    "somebody killed it, or the kernel did because memory ran out (see dmesg, and \
                     the container's memory limit)"
                        .to_owned()
                }
                signal::SIGSEGV
                | signal::SIGBUS
                | signal::SIGABRT
                | signal::SIGFPE
                | signal::SIGILL => "build with -g -fsanitize=address, or run this rank under a \
                                     debugger, to see where"
                    .to_owned(),
                signal::SIGXCPU | signal::SIGXFSZ => "raise the limit (ulimit)".to_owned(),
                _ => String::new(),
            };
            (format!("was killed by {name} ({meaning}{core})"), hint)
        }
        Cause::BeforeInit(code) => (
            format!("exited with code {code} before MPI_Init"),
            wrapped_signal(code),
        ),
        Cause::WithoutFinalize(code) if cell.is_some_and(|c| c.phase() == Phase::Joined) => {
            (format!("exited with code {code}"), wrapped_signal(code))
        }
        Cause::WithoutFinalize(code) => (
            format!("exited with code {code} without MPI_Finalize"),
            match wrapped_signal(code) {
                hint if hint.is_empty() => {
                    "every rank must call MPI_Finalize, or MPI_Abort to end the job".to_owned()
                }
                hint => hint,
            },
        ),
        Cause::AfterFinalize(code) => (
            format!("exited with code {code} after MPI_Finalize"),
            wrapped_signal(code),
        ),
        Cause::Aborted(code) if other => (format!("ended the job with code {code}"), String::new()),
        Cause::Aborted(code) => (format!("called MPI_Abort with code {code}"), String::new()),
    };
    let call = cell.map_or_else(String::new, |c| {
        let name = c.call();
        match c.waiting() {
            _ if name.is_empty() || matches!(failure.cause, Cause::Aborted(_)) => String::new(),
            Some(w) => format!(" while it waited in {}", describe(&name, &w)),
            None if other => format!("; its last call was {name}"),
            None => format!("; its last MPI call was {name}"),
        }
    });
    let survived = job.continue_on_failure && failure.may_be_survived();
    let consequence = if survived && segment.ranks() > 1 {
        "; the others go on (-continue-on-failure)"
    } else if failure.ends_job() && segment.ranks() > 1 {
        "; the job has been ended"
    } else {
        ""
    };
    let mut text =
        format!("{launcher}: rank {rank} (pid {pid} on {host}) {what}{call}{consequence}\n");
    if !hint.is_empty() && !job.quiet {
        text.push_str(&format!("{launcher}: hint: {hint}\n"));
    }
    text
}

/// The report of a job whose time is over: which ranks are where, and who waits for whom.
#[must_use]
pub fn timeout(launcher: &str, seconds: f64, segment: &Segment) -> String {
    let mut text = format!(
        "{launcher}: the job's time of {seconds} s is over (-timeout); it has been ended\n"
    );
    let mut groups: Vec<(String, Vec<u32>)> = Vec::new();
    for rank in 0..segment.ranks() {
        let state = state_in_words(segment, rank);
        match groups.iter_mut().find(|(s, _)| *s == state) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((state, vec![rank])),
        }
    }
    for (state, ranks) in groups {
        let many = if ranks.len() == 1 { "" } else { "s" };
        text.push_str(&format!(
            "{launcher}: rank{many} {}: {state}\n",
            rank_ranges(&ranks)
        ));
    }
    for line in analysis(segment).lines() {
        text.push_str(&format!("{launcher}: {line}\n"));
    }
    text
}

/// Who waits for whom now.
#[must_use]
pub fn analysis(segment: &Segment) -> Analysis {
    let doing: Vec<Doing> = (0..segment.ranks()).map(|r| doing(segment, r)).collect();
    analyse(&doing, SETTLED_S)
}

/// What a rank does now.
#[must_use]
pub fn doing(segment: &Segment, rank: u32) -> Doing {
    let cell = segment.cell(rank);
    if cell.exited() || cell.phase() == Phase::Finalized {
        return Doing::Finished;
    }
    match cell.waiting() {
        Some(w) => {
            let since = now_ns().saturating_sub(w.since_ns) as f64 * 1e-9;
            Doing::Waiting(w, since)
        }
        None => Doing::Going,
    }
}

/// The state of a rank in words, without times, so that ranks in the same state can be grouped.
#[must_use]
pub fn state_in_words(segment: &Segment, rank: u32) -> String {
    let cell = segment.cell(rank);
    let call = cell.call();
    match (doing(segment, rank), cell.phase()) {
        (Doing::Finished, _) => "finished".into(),
        (Doing::Waiting(w, _), _) => format!("waiting in {}", describe(&call, &w)),
        (Doing::Going, Phase::Starting) => "running, has not called MPI_Init".into(),
        (Doing::Going, _) if call.is_empty() => "computing".into(),
        (Doing::Going, _) => format!("computing, last MPI call {call}"),
    }
}

/// Shells report a program's death by a signal as 128 plus its number.
fn wrapped_signal(code: i32) -> String {
    match code {
        129..=192 => {
            let (name, meaning) = signal::describe(code - 128);
            format!("if this rank is a shell script, its program was killed by {name} ({meaning})")
        }
        126 => "if this rank is a shell script, it could not execute its program".into(),
        127 => {
            "if this rank is a shell script, it did not find its program; or the dynamic loader \
             did not find a shared library"
                .into()
        }
        _ => String::new(),
    }
}
