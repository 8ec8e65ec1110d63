//! What the launcher says about a job that failed or took too long.

use std::env;
use std::path::{Path, PathBuf};

use margay_job_observe::calls;
use margay_job_observe::crash::{Crash, core_files_are_written};
use margay_job_observe::kept;
use margay_job_observe::members::{self, RankTeams};
use margay_job_observe::operations;
use margay_job_observe::places::Places;
use margay_job_observe::posted::Posted;
use margay_job_observe::state::analysis;
use margay_job_observe::waits::{Analysis, rank_ranges};
use margay_job_observe::words::{
    further_threads, further_waits_in_words, state_in_words, unexpected_lines, wait_in_words,
};
use margay_net_platform::Peers;
use margay_sys_os::clock::now_ns;
use margay_sys_os::process::is_dumping_core;
use margay_sys_os::signal;

use crate::plan::{Job, TimeLimit};
use crate::verdict::{Cause, Failure};

/// Groups of ranks that the report of a crash shows.
const MOST_GROUPS: usize = 8;
/// Calls of a rank that the report of its crash shows.
const LAST_CALLS: usize = 5;

/// Returns the name of this machine, without asking anybody.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "localhost".into())
}

/// Returns the report of a failed rank: which, where, how, its last call, the consequence (whether
/// it `ends` the job) and a hint; of a crash that ends the job, what the others do meanwhile.
#[must_use]
pub fn failure(job: &Job, failure: Failure, ends: bool, peers: &dyn Peers) -> String {
    let launcher = &job.launcher;
    // A command in a partition, whose exit code says enough.
    if job.quiet && peers.size() == 1 && matches!(failure.cause, Cause::BeforeInit(_)) {
        return String::new();
    }
    let rank = failure.rank;
    let known = (rank < peers.size()).then_some(rank);
    let pid = known.map_or(0, |r| peers.identity(r).pid);
    let host = known.map_or_else(host_name, |r| peers.host_name(peers.host(r)));
    // Programs of other libraries than MPI neither initialize nor finalize.
    let last = known.map_or_else(String::new, |r| peers.call(r));
    let other = !last.is_empty() && !last.starts_with("MPI");
    let at = known.map_or_else(String::new, |r| line_of_call(peers, r, &last));
    let crash = crash(job, &failure, peers);
    // That of another host has been printed there.
    let is_shown = crash.is_some() || known.is_some_and(|r| peers.reported(r).is_some());
    let (what, hint) = match failure.cause {
        Cause::Signal {
            signal,
            core_dumped,
        } => {
            let (name, meaning) = signal::describe(signal);
            let core = if core_dumped { ", core dumped" } else { "" };
            (
                format!("was killed by {name} ({meaning}{core})"),
                hint_of_signal(signal, core_dumped, is_shown).to_owned(),
            )
        }
        Cause::BeforeInit(code) => (
            format!("exited with code {code} before MPI_Init"),
            wrapped_signal(code),
        ),
        Cause::OfLibrary(code) => (format!("exited with code {code}"), wrapped_signal(code)),
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
        Cause::Aborted(code) if last.is_empty() || last == "MPI_Abort" => (
            format!("called MPI_Abort with code {code}{at}"),
            String::new(),
        ),
        Cause::Aborted(code) => (
            format!(
                "got an error in {last}{at} (see above), and its error handler (MPI_ERRORS_ARE_FATAL or MPI_ERRORS_ABORT) \
                 ended the job with code {code}"
            ),
            String::new(),
        ),
    };
    let call = known.map_or_else(String::new, |r| {
        let name = peers.call(r);
        match peers.waits(r).first() {
            _ if name.is_empty() || matches!(failure.cause, Cause::Aborted(_)) => String::new(),
            Some(w) => format!(
                " while it waited in {}",
                wait_in_words(peers, &Posted::default(), r, &w)
            ),
            None if other => format!("; its last call was {name}{at}"),
            // Noted when the rank has joined.
            None if name == "MPI_Init" || name == "MPI_Init_thread" => {
                format!(" outside MPI, after {name}")
            }
            None => format!("; its last MPI call was {name}{at}"),
        }
    });
    let survived = job.continue_on_failure && failure.may_be_survived();
    let consequence = if survived && peers.size() > 1 {
        "; the other ranks continue (-continue-on-failure)"
    } else if ends && peers.size() > 1 {
        "; the job has been ended"
    } else if matches!(failure.cause, Cause::OfLibrary(_)) && peers.size() > 1 {
        "; the other ranks continue"
    } else {
        ""
    };
    let mut text =
        format!("{launcher}: rank {rank} (pid {pid} on {host}) {what}{call}{consequence}\n");
    if !hint.is_empty() && !job.quiet {
        text.push_str(&format!("{launcher}: hint: {hint}\n"));
    }
    text.push_str(&crash.unwrap_or_default());
    if let Some(rank) = known
        && failure.is_crash()
        && !job.quiet
    {
        text.push_str(&last_calls(launcher, peers, rank));
        for line in kept::lines(peers, rank) {
            text.push_str(&format!("{launcher}: {line}\n"));
        }
    }
    if ends && failure.is_crash() && !job.quiet {
        text.push_str(&meanwhile(launcher, peers, rank));
    }
    let is_error = matches!(failure.cause, Cause::Aborted(_)) && !other && last != "MPI_Abort";
    if is_error && known.is_some() && !job.quiet {
        text.push_str(&before_the_error(launcher, peers, rank));
    }
    text
}

/// What helps a user whose rank was killed by a signal, where the crash itself `is_shown` or not.
fn hint_of_signal(signal: i32, core_dumped: bool, is_shown: bool) -> &'static str {
    match signal {
        signal::SIGKILL => {
            "somebody killed it, or the kernel did because memory ran out (see dmesg, and the \
             container's memory limit)"
        }
        signal::SIGSEGV | signal::SIGBUS | signal::SIGABRT | signal::SIGFPE | signal::SIGILL
            if !is_shown =>
        {
            if core_files_are_written() && !core_dumped {
                "allow core files (ulimit -c unlimited), build with -g -fsanitize=address, or run \
                 this rank under a debugger, to see where"
            } else {
                "build with -g -fsanitize=address, or run this rank under a debugger, to see where"
            }
        }
        signal::SIGXCPU | signal::SIGXFSZ => "raise the limit (ulimit)",
        _ => "",
    }
}

/// The last operations with others of a rank that got an error and of the others: ranks that call
/// different operations show their lines here.
fn before_the_error(launcher: &str, peers: &dyn Peers, rank: u32) -> String {
    let others = (0..peers.size()).filter(|&other| other != rank);
    let ranks: Vec<u32> = [rank].into_iter().chain(others).collect();
    (operations::lines(peers, &ranks).iter())
        .map(|line| format!("{launcher}: {line}\n"))
        .collect()
}

/// Where the program has made the last call of a rank, whose name is known: ` at ring.c:30`;
/// nothing where no line is known.
fn line_of_call(peers: &dyn Peers, rank: u32, call: &str) -> String {
    match calls::last_calls(peers, rank, 1).as_deref() {
        Ok([last]) if last.call == call && last.line.is_some() => format!(" at {}", last.place),
        _ => String::new(),
    }
}

/// The last calls of a rank that has crashed, the newest last.
fn last_calls(launcher: &str, peers: &dyn Peers, rank: u32) -> String {
    match calls::last_calls(peers, rank, LAST_CALLS) {
        Ok(calls) => (calls.iter())
            .map(|call| format!("{launcher}: rank {rank}: {}\n", call.line()))
            .collect(),
        Err(why) => format!("{launcher}: rank {rank}: {why}\n"),
    }
}

/// Where a rank has crashed, in lines, if it has written that down, or its core file says so, or
/// that of a rank that has crashed as well.
fn crash(job: &Job, failure: &Failure, peers: &dyn Peers) -> Option<String> {
    let Cause::Signal { core_dumped, .. } = failure.cause else {
        return None;
    };
    if failure.rank >= peers.size() {
        return None;
    }
    let pid = |rank: u32| peers.identity(rank).pid;
    let others = (0..peers.size()).filter(|&rank| !peers.is_alive(rank));
    let processes: Vec<u32> = [pid(failure.rank)]
        .into_iter()
        .chain(others.map(pid))
        .collect();
    let from_core = || Crash::of(&processes, &folders(job));
    let found = Crash::written_down(&processes, peers);
    let crash = found.or_else(|| core_dumped.then(from_core)?)?;
    // Ranks of several hosts may have the same process id.
    let mut ranks = [failure.rank].into_iter().chain(0..peers.size());
    let rank = ranks.find(|&rank| pid(rank) == crash.pid)?;
    let lines = crash.lines(rank).into_iter();
    Some(
        lines
            .map(|line| format!("{}: {line}\n", job.launcher))
            .collect(),
    )
}

/// Where the job's programs are started.
fn folders(job: &Job) -> Vec<PathBuf> {
    let own = env::current_dir().unwrap_or_default();
    let programs = job.programs.iter();
    let mut folders: Vec<PathBuf> = programs
        .map(|program| (program.directory.as_ref()).map_or(own.clone(), |d| own.join(d)))
        .collect();
    folders.dedup();
    folders
}

/// What the others do while a rank crashes: the largest groups that do the same at the same place.
fn meanwhile(launcher: &str, peers: &dyn Peers, crashed: u32) -> String {
    let do_something = |&rank: &u32| {
        // Of ranks on other hosts nothing is known, and who crashes as well does nothing.
        let pid = peers.identity(rank).pid;
        rank != crashed && pid != 0 && peers.is_alive(rank) && !is_dumping_core(pid)
    };
    let ranks: Vec<u32> = (0..peers.size()).filter(do_something).collect();
    let mut groups = groups(peers, &ranks);
    groups.sort_unstable_by_key(|group| (usize::MAX - group.ranks.len(), group.ranks[0]));
    let shown = groups.iter().take(MOST_GROUPS).flat_map(lines);
    let mut text: String = shown
        .map(|line| format!("{launcher}: meanwhile, {line}\n"))
        .collect();
    let rest = groups.iter().skip(MOST_GROUPS);
    match rest.map(|group| group.ranks.len()).sum() {
        0 => {}
        1 => text.push_str(&format!("{launcher}: meanwhile, 1 rank elsewhere\n")),
        many => text.push_str(&format!("{launcher}: meanwhile, {many} ranks elsewhere\n")),
    }
    text
}

/// Returns what keeps a job from going on for good, a line each, and where the ranks are that it
/// concerns; nothing when it may go on.
#[must_use]
pub fn deadlock(launcher: &str, peers: &dyn Peers, analysis: &Analysis) -> String {
    let stuck = &analysis.stuck;
    findings(launcher, analysis)
        + &states(launcher, peers, stuck)
        + &instead(launcher, peers, analysis)
        + &unexpected(launcher, peers, stuck)
        + &teams(launcher, peers, stuck)
}

/// What the members of OpenMP's teams of some ranks do, ranks whose teams do the same together.
fn teams(launcher: &str, peers: &dyn Peers, ranks: &[u32]) -> String {
    let found = members::of_ranks(peers);
    let is_shown = |of: &&RankTeams| of.ranks.iter().any(|rank| ranks.contains(rank));
    let shown = found.iter().filter(is_shown).take(MOST_GROUPS);
    shown
        .flat_map(RankTeams::lines)
        .map(|line| format!("{launcher}: {line}\n"))
        .collect()
}

fn unexpected(launcher: &str, peers: &dyn Peers, ranks: &[u32]) -> String {
    (unexpected_lines(peers, ranks).iter())
        .map(|line| format!("{launcher}: {line}\n"))
        .collect()
}

/// Returns the report of ranks that can never go on, of which the user has not asked; `ends` is
/// whether the job is ended because of it.
#[must_use]
pub fn standstill(job: &Job, peers: &dyn Peers, analysis: &Analysis, ends: bool) -> String {
    let launcher = &job.launcher;
    let mut text = deadlock(launcher, peers, analysis);
    if ends {
        text.push_str(&format!(
            "{launcher}: the job has been ended (-deadlock end)\n"
        ));
    } else if !job.quiet {
        text.push_str(&format!(
            "{launcher}: hint: the job goes on waiting; -deadlock end, or MARGAY_DEADLOCK=end, ends such jobs\n"
        ));
    }
    text
}

/// What ranks have called instead of the collective operations in which others wait for them.
fn instead(launcher: &str, peers: &dyn Peers, analysis: &Analysis) -> String {
    (operations::instead(peers, analysis).iter())
        .map(|line| format!("{launcher}: {line}\n"))
        .collect()
}

fn findings(launcher: &str, analysis: &Analysis) -> String {
    (analysis.lines().iter())
        .map(|line| format!("{launcher}: {line}\n"))
        .collect()
}

/// What ranks do and where, those with the same answer in a line.
fn states(launcher: &str, peers: &dyn Peers, ranks: &[u32]) -> String {
    let groups = groups(peers, ranks);
    let lines = groups.iter().flat_map(lines);
    lines.map(|line| format!("{launcher}: {line}\n")).collect()
}

/// Ranks that do the same at the same place.
struct Group {
    state: String,
    /// What further threads of each rank wait in, and how many of them.
    further: Vec<(String, usize)>,
    ranks: Vec<u32>,
}

/// A group of ranks in words: `ranks 0, 2: waiting in MPI_Barrier for the other ranks`, and a line
/// for further threads.
fn lines(group: &Group) -> Vec<String> {
    let many = if group.ranks.len() == 1 { "" } else { "s" };
    let ranks = format!("rank{many} {}", rank_ranges(&group.ranks));
    let mut lines = vec![format!("{ranks}: {}", group.state)];
    for (state, threads) in &group.further {
        let who = further_threads(*threads, group.ranks.len());
        lines.push(format!("{ranks}, {who}: {state}"));
    }
    lines
}

/// What ranks do and where, and all that do this.
fn groups(peers: &dyn Peers, ranks: &[u32]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let now_ns = now_ns();
    // Stacks come last: to read one wakes its thread, which runs then, or would if it had a core.
    let posted = Posted::of_ranks(peers, ranks);
    let states = ranks.iter().map(|&rank| {
        let state = state_in_words(peers, &posted, rank, now_ns);
        (state, further_waits_in_words(peers, &posted, rank, now_ns))
    });
    let states: Vec<(String, Vec<(u32, String)>)> = states.collect();
    let places = Places::of_ranks(peers, ranks);
    for (&rank, (mut state, waits)) in ranks.iter().zip(states) {
        if let Some(place) = places.in_words(rank) {
            // What waits is the call there; what computes is no call.
            let between = if state.starts_with("waiting") {
                ""
            } else {
                ";"
            };
            state = format!("{state}{between} {place}");
        }
        let mut further: Vec<(String, usize)> = Vec::new();
        for (thread, wait) in waits {
            let text = match places.further_in_words(rank, thread) {
                Some(place) => format!("{wait} {place}"),
                None => wait,
            };
            match further.iter_mut().find(|(other, _)| *other == text) {
                Some((_, threads)) => *threads += 1,
                // Few: in order, so that ranks that do the same are found.
                None => {
                    let at = further.partition_point(|(other, _)| *other < text);
                    further.insert(at, (text, 1));
                }
            }
        }
        let same = |group: &&mut Group| group.state == state && group.further == further;
        match groups.iter_mut().find(same) {
            Some(group) => group.ranks.push(rank),
            None => groups.push(Group {
                state,
                further,
                ranks: vec![rank],
            }),
        }
    }
    groups
}

/// Returns the report of ranks that wait for one that has ended without calling `MPI_Init`; `ends`
/// is whether the job is ended because of it.
#[must_use]
pub fn never_came(job: &Job, peers: &dyn Peers, analysis: &Analysis, ends: bool) -> String {
    let launcher = &job.launcher;
    let mut text = findings(launcher, analysis);
    if ends {
        text.push_str(&format!(
            "{launcher}: no rank can go on; the job has been ended\n"
        ));
    }
    if !job.quiet {
        text.push_str(&format!(
            "{launcher}: hint: every rank must run a program that uses this library; one without MPI, or with another library, does not \
             join the job\n"
        ));
    }
    text.push_str(&states(launcher, peers, &analysis.stuck));
    text
}

/// Returns the report of a rank that uses another implementation's library, because of which the
/// job is ended.
#[must_use]
pub fn stranger(job: &Job, rank: u32, library: &Path) -> String {
    let launcher = &job.launcher;
    let mut text = format!(
        "{launcher}: rank {rank} uses {}, a library of another MPI implementation, so each rank would run alone; the job has been ended\n",
        library.display()
    );
    if !job.quiet {
        text.push_str(&format!(
            "{launcher}: hint: something leads the program past Margay's library: its script sets LD_LIBRARY_PATH, or it names the library \
             by its path (docs/other-mpis.md); or start it with the mpiexec of its own MPI; MARGAY_SINGLETON=1 lets ranks run alone\n"
        ));
    }
    text
}

/// Returns the report of a job whose time is over: where the ranks are, and which waits for which.
#[must_use]
pub fn timeout(job: &Job, peers: &dyn Peers) -> String {
    let launcher = &job.launcher;
    let TimeLimit { time, from } = job.timeout.unwrap_or_default();
    let seconds = time.as_secs_f64();
    let mut text = format!(
        "{launcher}: the job's time limit of {seconds} s is over ({from}); it has been ended\n"
    );
    let ranks = Vec::from_iter(0..peers.size());
    text.push_str(&states(launcher, peers, &ranks));
    text.push_str(&unexpected(launcher, peers, &ranks));
    let analysis = analysis(peers, now_ns());
    text.push_str(&findings(launcher, &analysis));
    text.push_str(&instead(launcher, peers, &analysis));
    text.push_str(&teams(launcher, peers, &ranks));
    text
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
