//! Setting a job up: cores, segment, programs, pipes, and the guard that starts the ranks.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use margay_core_registry::Facts;
use margay_core_registry::place;
use margay_sys_os::crash;
use margay_sys_os::descriptor::{FileLimit, duplicate_above};
use margay_sys_os::process::{self, Step, StringArray};
use margay_sys_os::signal::{self, SignalFd, SignalSet};
use margay_sys_os::{clock, cpu};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::mapping::SegmentError;
use margay_sys_shm::segment::Segment;

use crate::binding::{Cores, Lease, by_nodes, place, ranges};
use crate::capture;
use crate::environment::{self, SEGMENT_FD, Ties};
use crate::frameworks::{self, Devices};
use crate::guard::{self, Guard, Plan, ProgramStart, RankStart};
use crate::hosts::relay;
use crate::input::{self, Pump};
use crate::ordered::Ordered;
use crate::other_abi::Libraries;
use crate::plan::{Hosts, Job, LaunchError, Output, Program};
use crate::program;
use crate::recorder::Recorder;
use crate::report::host_name;
use crate::sinks::{RankOutput, Sink, Stream, is_one_pipe, sinks, streams};
use crate::tell;
use crate::turns::Turns;

/// A job whose ranks are being started.
pub(crate) struct Started {
    pub(crate) segment: Arc<Segment>,
    pub(crate) guard: Guard,
    pub(crate) own: Own,
    /// Children that the launcher's process had before it became a launcher (by `exec` in a shell).
    pub(crate) foreign: Vec<u32>,
    /// What records the job.
    pub(crate) recorder: Option<Recorder>,
    /// When the guard began.
    pub(crate) at: Instant,
}

/// What the launcher holds and the guard must not.
pub(crate) struct Own {
    pub(crate) signals: SignalFd,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) pump: Option<Pump>,
    pub(crate) ordered: Option<Ordered>,
    pub(crate) _leases: Vec<Lease>,
    pub(crate) turns: Option<Turns>,
}

/// Sets everything up and lets the guard start the ranks.
///
/// # Errors
/// When the job cannot be started.
pub(crate) fn start(
    job: &Job,
    parent: Option<&str>,
    turns: Option<Turns>,
) -> Result<Started, LaunchError> {
    let usable = cpu::usable_cores();
    let counts = job.counts(usable)?;
    // The process that started us may ignore the end of its children, which is inherited and would
    // hide the ranks' exit status.
    signal::take_default(signal::SIGCHLD);
    let ranks: u32 = counts.iter().sum();
    let places = job.places(&counts)?;
    let files = FileLimit::now();
    files.raise_to(u64::from(ranks) * 8 + 64);
    let mut foreign = process::children();
    if let Some(hosts) = &job.hosts {
        let from = (parent, foreign, turns);
        return start_on_hosts(job, hosts, (&counts, &places), from);
    }

    let devices = Devices::find(
        job.layout.gpus,
        ranks,
        |name| std::env::var(name).ok(),
        frameworks::names_in,
    )?;
    let cores = usable_cores(job, usable)?;
    let named = by_nodes(job, &places, &cores);
    let binding = named.as_ref().unwrap_or(&job.binding);
    let mut placement = place(ranks, binding, &job.layout, &cores, Lease::take)?;
    if job.layout.cores.is_some() {
        placement.confine(&cores.mask);
    }
    // What the ranks can keep busy together, so that they know when to yield to each other.
    let busy = placement.distinct_cores().unwrap_or(usable).min(usable);
    let segment = make_segment(job, &counts, &places, busy)?;
    let segment_fd = duplicate_above(segment.fd(), SEGMENT_FD)
        .or_else(|_| segment.fd().try_clone_to_owned())
        .map_err(|e| descriptors(ranks, &e))?;
    let ties = Ties {
        parent,
        agent: None,
    };
    let programs = programs(job, &segment_fd, (ranks, ranks, usable), ties, &devices)?;
    let recording = job.recording.as_ref();
    let recorder = recording.map(|recording| Recorder::start(recording, &segment));
    let recorder = recorder.transpose()?;
    foreign.extend(recorder.as_ref().map(Recorder::pid));

    let lines = tell::lines(job, &counts, &placement, &cores);
    let (blocked, ends, mut own) = own(job, ranks, &|_| (0, host_name()), lines, placement.leases)?;
    own.turns = turns;
    let (inputs, outputs) = ends;

    let program_of = counts
        .iter()
        .enumerate()
        .flat_map(|(program, &n)| std::iter::repeat_n(program, n as usize));
    let starts = program_of
        .zip(inputs)
        .zip(outputs)
        .zip(placement.cores)
        .zip(0..)
        .map(|((((program, stdin), output), cores), rank)| RankStart {
            rank,
            local: rank,
            program,
            stdin,
            output,
            cores,
            listener: None,
        })
        .collect();
    let plan = Plan {
        programs,
        ranks: starts,
        segment_fd,
        files,
        devices,
        blocked,
        has_session: true,
    };
    let now = Instant::now();
    let (guard, own) = guard::start(plan, &segment, own).map_err(|e| {
        LaunchError::system(format!(
            "cannot start the job's guard: {e}; it needs /proc and one more process (ulimit -u)"
        ))
    })?;
    if let Some(turns) = &own.turns {
        turns.began(guard.pid());
    }
    Ok(Started {
        segment,
        guard,
        own,
        foreign,
        recorder,
        at: now,
    })
}

pub(crate) fn new_segment(ranks: u32) -> Result<Segment, LaunchError> {
    Segment::create(Sizes::for_job(ranks)).map_err(|e| {
        LaunchError::system(match e {
            SegmentError::FileLimit { .. } => e.to_string(),
            _ => format!(
                "{e}; for {ranks} ranks, raise the limit of address space (ulimit -v) or start fewer"
            ),
        })
    })
}

/// Makes room for what the first of this host's ranks to crash writes down, with a rank that has no
/// other notes of the job. Without room nothing is written down.
pub(crate) fn keep_crashes(segment: &Arc<Segment>, rank: u32) {
    let _ = segment.make_note(rank, margay_core_registry::crash::KEY, crash::WORDS);
}

/// The ranks' ends of their standard input and output.
type Ends = (Vec<Option<Arc<OwnedFd>>>, Vec<RankOutput>);

/// Makes what the launcher holds of a job. Returns the signals that were blocked before, too.
/// `host_of` is the number and the name of a rank's host.
fn own(
    job: &Job,
    ranks: u32,
    host_of: &dyn Fn(u32) -> (u32, String),
    lines: Vec<String>,
    leases: Vec<Lease>,
) -> Result<(SignalSet, Ends, Own), LaunchError> {
    let asked = wanted_signals();
    let blocked = asked.block();
    // A write beyond the limit of file size (ulimit -f) fails with a reason instead of a death.
    SignalSet::of(&[signal::SIGXFSZ]).block();
    let signals = SignalFd::new(&asked).map_err(|e| descriptors(ranks, &e))?;
    let input::Inputs {
        ranks: inputs,
        pump,
    } = input::inputs(job.stdin, ranks).map_err(|e| descriptors(ranks, &e))?;
    let mut sinks = sinks(job).map_err(|e| descriptors(ranks, &e))?;
    let captured = capture::open(job, ranks, host_of, &mut sinks)?;
    let (streams, outputs) =
        streams(job, ranks, &mut sinks, &captured).map_err(|e| descriptors(ranks, &e))?;
    for line in lines {
        if let Some(sink) = sinks.iter_mut().rfind(|sink| sink.file.is_none()) {
            sink.merger.message(&line, Instant::now());
        }
    }
    // What goes to files alone has no order among the ranks.
    let is_shown = job.capture.output.is_none() || job.capture.copies;
    let is_ordered = job.output == Output::Ordered && is_shown;
    let own = Own {
        signals,
        sinks,
        streams,
        pump,
        ordered: is_ordered.then(|| Ordered::new(ranks)),
        _leases: leases,
        turns: None,
    };
    Ok((blocked, (inputs, outputs), own))
}

/// Sets a job on several hosts up: the ranks are started by agents there.
fn start_on_hosts(
    job: &Job,
    hosts: &Hosts,
    (counts, places): (&[u32], &[(u32, u32)]),
    (parent, mut foreign, turns): (Option<&str>, Vec<u32>, Option<Turns>),
) -> Result<Started, LaunchError> {
    let ranks: u32 = counts.iter().sum();
    let segment = make_segment(job, counts, places, ranks as usize)?;
    let mut plan = relay::Plan::new((job, parent), hosts, counts, places, &segment)?;
    let command = job.command_line();
    let gather = |recording| Recorder::gather(recording, (ranks, &command), plan.hosts());
    let recorder = job.recording.as_ref().map(gather).transpose()?;
    let (recorder, parts) = recorder.unzip();
    plan.parts = parts;
    foreign.extend(recorder.as_ref().map(Recorder::pid));
    let (_, ends, mut own) = own(
        job,
        ranks,
        &|rank| plan.place(rank),
        plan.map(job),
        Vec::new(),
    )?;
    own.turns = turns;
    if let [only] = &ends.1[..]
        && is_one_pipe(only).map_err(|e| descriptors(ranks, &e))?
    {
        plan.merge();
    }
    let at = Instant::now();
    let (guard, own) = relay::start(plan, ends, &segment, own).map_err(|e| {
        LaunchError::system(format!(
            "cannot start the process that talks to the hosts: {e}; it needs /proc and one more process (ulimit -u)"
        ))
    })?;
    if let Some(turns) = &own.turns {
        turns.began(guard.pid());
    }
    Ok(Started {
        segment,
        guard,
        own,
        foreign,
        recorder,
        at,
    })
}

/// Makes the job's segment, with what is known before the first rank starts. `places` are NX's,
/// `usable` is how many cores the ranks can keep busy.
fn make_segment(
    job: &Job,
    counts: &[u32],
    places: &[(u32, u32)],
    usable: usize,
) -> Result<Arc<Segment>, LaunchError> {
    let ranks: u32 = counts.iter().sum();
    let segment = new_segment(ranks)?;
    let pid = std::process::id();
    let segment = Arc::new(segment);
    keep_crashes(&segment, ranks.saturating_sub(1));
    segment.registry().describe(&Facts {
        job: u64::from(pid),
        launcher: pid,
        started_ns: clock::now_ns(),
        command: job.command_line(),
        cores: usable as u32,
        is_tolerant: job.continue_on_failure,
    });
    // Before the first rank starts: each may ask which program the others run.
    let mut numbers = 0..ranks;
    for (program, &count) in (0..).zip(counts) {
        for rank in numbers.by_ref().take(count as usize) {
            segment.registry().identify(rank, 0, None, program);
        }
    }
    enter_places(&segment, places.iter().copied())?;
    Ok(segment)
}

/// Enters the places of ranks that have not their usual ones, in NX.
pub(crate) fn enter_places(
    segment: &Arc<Segment>,
    places: impl Iterator<Item = (u32, u32)>,
) -> Result<(), LaunchError> {
    for (rank, (node, process_type)) in (0..).zip(places) {
        // A rank that is alone on the node of its number has its usual place.
        if (node, process_type) != (rank, 0) {
            let note = segment.make_note(rank, place::KEY, place::WORDS);
            let note = note.ok_or_else(|| {
                LaunchError::system(format!(
                    "the job's registry has no room for the places of {} ranks",
                    segment.ranks()
                ))
            })?;
            place::set(&note, node, process_type);
        }
    }
    Ok(())
}

/// Returns the signals that the launcher passes on: those that it does not ignore.
fn wanted_signals() -> SignalSet {
    let wanted: Vec<i32> = [
        signal::SIGINT,
        signal::SIGTERM,
        signal::SIGHUP,
        signal::SIGQUIT,
        signal::SIGUSR1,
        signal::SIGUSR2,
        signal::SIGTSTP,
        signal::SIGCONT,
        signal::SIGWINCH,
    ]
    .into_iter()
    .filter(|&s| !signal::is_ignored(s))
    .collect();
    SignalSet::of(&wanted)
}

pub(crate) fn find_program(program: &Program) -> Result<PathBuf, LaunchError> {
    if let Some(file) = &program.file {
        return Ok(file.clone());
    }
    let own = program.environment.iter().rev().find(|(n, _)| n == "PATH");
    let path = own
        .map(|(_, v)| v.clone())
        .or_else(|| std::env::var_os("PATH"));
    program::find(
        &program.command,
        program.directory.as_deref(),
        path.as_deref(),
    )
}

/// Returns why a rank of a job of this size could not be started.
pub(crate) fn explain_start(
    program: &Program,
    (rank, ranks): (u32, u32),
    step: Step,
    errno: i32,
) -> LaunchError {
    let error = io::Error::from_raw_os_error(errno);
    match step {
        Step::Execute => match find_program(program) {
            Ok(path) => {
                // The user knows a file that was sent by its name.
                let why = program::explain(&path, &error);
                let (own, name) = (path.to_string_lossy(), program.command.to_string_lossy());
                let message = match &program.file {
                    Some(_) => why.message.replace(&*own, &name),
                    None => why.message,
                };
                LaunchError { message, ..why }
            }
            Err(error) => error,
        },
        Step::Directory => LaunchError::usage(format!(
            "-wdir: cannot enter the directory '{}': {error}",
            program.directory.clone().unwrap_or_default().display()
        )),
        Step::Process => LaunchError::system(format!(
            "cannot start rank {rank} of {ranks}: {error}; ulimit -u and the container limit how \
             many processes there may be"
        )),
        Step::Bind => LaunchError::system(format!("cannot bind rank {rank} to its cores: {error}")),
        Step::Standard => LaunchError::system(format!(
            "cannot connect the input and output of rank {rank}: {error}"
        )),
    }
}

/// The folders in which a program's libraries are searched for.
fn search_path<'a>(base: &'a [(OsString, OsString)], program: &'a Program) -> Option<&'a OsStr> {
    let mut all = base.iter().chain(&program.environment).rev();
    let found = all.find(|(name, _)| name == "LD_LIBRARY_PATH");
    found.map(|(_, value)| value.as_os_str())
}

/// Returns how the job's programs are started on this host, which has `local_ranks` of the ranks
/// and this many usable cores.
pub(crate) fn programs(
    job: &Job,
    segment_fd: &OwnedFd,
    (ranks, local_ranks, usable): (u32, u32, usize),
    ties: Ties<'_>,
    devices: &Devices,
) -> Result<Vec<ProgramStart>, LaunchError> {
    let text = |text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| {
            LaunchError::usage(format!("'{}' holds a NUL byte", text.to_string_lossy()))
        })
    };
    let base: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    job.programs
        .iter()
        .map(|program| {
            let path = find_program(program)?;
            let arguments = std::iter::once(&program.command)
                .chain(&program.arguments)
                .map(|a| text(a))
                .collect::<Result<Vec<CString>, LaunchError>>()?;
            let directory = match &program.directory {
                Some(d) if !d.is_dir() => {
                    let why = if d.exists() {
                        "is not a directory"
                    } else {
                        "does not exist"
                    };
                    return Err(LaunchError::usage(format!(
                        "-wdir: '{}' {why}",
                        d.display()
                    )));
                }
                Some(d) => Some(text(d.as_os_str())?),
                None => None,
            };
            let libraries = Libraries::of(&path, search_path(&base, program))?;
            Ok(ProgramStart {
                path: text(path.as_os_str())?,
                arguments: StringArray::new(arguments),
                environment: environment::common(
                    base.iter().cloned(),
                    &environment::Common {
                        inherit: &program.inherit,
                        set: &program.environment,
                        libraries: &libraries,
                        segment_fd: segment_fd.as_raw_fd(),
                        ranks,
                        local_ranks,
                        huge_pages: local_ranks as usize <= usable,
                        ties,
                        devices,
                    },
                ),
                directory,
            })
        })
        .collect()
}

/// Returns the cores that the job may use.
pub(crate) fn usable_cores(job: &Job, usable: usize) -> Result<Cores, LaunchError> {
    let mask = cpu::affinity();
    let Some(wanted) = &job.layout.cores else {
        return Ok(Cores { mask, usable });
    };
    if let Some(core) = wanted.iter().find(|core| !mask.contains(core)) {
        return Err(LaunchError::usage(format!(
            "-cpu-set: core {core} may not be used here, the usable cores are {}",
            ranges(&mask)
        )));
    }
    Ok(Cores {
        usable: usable.min(wanted.len()),
        mask: wanted.clone(),
    })
}

pub(crate) fn descriptors(ranks: u32, error: &io::Error) -> LaunchError {
    LaunchError::system(format!(
        "cannot open the pipes of {ranks} ranks: {error}; ulimit -n limits the open files (now {})",
        FileLimit::now().hard
    ))
}
