//! The ranks of an agent's host: their sockets first; when all hosts are known, the processes.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use margay_core_registry::Facts;
use margay_core_registry::hosts::{self, Host, Location, Table};
use margay_sys_os::descriptor::{FileLimit, duplicate_above, set_nonblocking, set_pipe_bytes};
use margay_sys_os::signal::SignalSet;
use margay_sys_os::{clock, cpu, sockets};
use margay_sys_shm::segment::Segment;

use super::branches::Branches;
use super::task::Task;
use super::wire;
use crate::binding::{Lease, place};
use crate::environment::{SEGMENT_FD, Ties};
use crate::frameworks::{self, Devices};
use crate::guard::{self, Guard, Plan, RankStart};
use crate::plan::{Binding, Job, LaunchError, Recording};
use crate::recorder::Recorder;
use crate::setup;
use crate::tell;

/// Standard output or standard error of a rank.
pub(super) struct Output {
    pub(super) rank: u32,
    /// Its number for the relay.
    pub(super) stream: u64,
    /// None after its end.
    pub(super) pipe: Option<File>,
    /// Bytes that the relay still takes.
    pub(super) window: usize,
    /// Its rank has ended; what that wrote has not been sent whole.
    pub(super) drains: bool,
}

/// Standard input of a rank.
pub(super) struct Input {
    pub(super) rank: u32,
    /// None when it is closed.
    pub(super) pipe: Option<File>,
    pub(super) waiting: Vec<u8>,
    /// The relay has sent the end.
    pub(super) is_over: bool,
}

/// What the recorder of this host writes.
pub(super) struct Part {
    pub(super) recorder: Recorder,
    /// None after its end.
    pub(super) pipe: Option<File>,
    /// Bytes that the relay still takes.
    pub(super) window: usize,
}

impl Part {
    fn start(recording: &Recording, segment: &Segment) -> Result<Part, LaunchError> {
        let (recorder, pipe) = Recorder::start_part(recording, segment)?;
        set_nonblocking(pipe.as_fd()).map_err(|error| setup::descriptors(1, &error))?;
        Ok(Part {
            recorder,
            pipe: Some(pipe.into()),
            window: wire::PART_WINDOW,
        })
    }
}

/// The ranks of a host while they run.
pub(super) struct Local {
    pub(super) segment: Arc<Segment>,
    pub(super) guard: Guard,
    pub(super) outputs: Vec<Output>,
    pub(super) inputs: Vec<Input>,
    /// No process is left.
    pub(super) is_empty: bool,
    /// What the user wants to know of this host.
    pub(super) lines: Vec<String>,
    pub(super) part: Option<Part>,
    _leases: Vec<Lease>,
}

impl Local {
    /// Messages for the relay: which ranks cannot reach others any more.
    pub(super) fn lost_links(&self, task: &Task) -> Vec<Vec<u8>> {
        let Some(note) = self.segment.note(0, hosts::KEY) else {
            return Vec::new();
        };
        let Some(table) = Table::read(&note) else {
            return Vec::new();
        };
        let message = |rank: u32| {
            let (to, errno) = table.take_lost_link(rank)?;
            let mut message = wire::Writer::new(wire::kind::LOST);
            message.number(rank.into()).number(to.into());
            message.number(errno as u32 as u64);
            Some(message.done())
        };
        let own = task.ranks.iter();
        own.filter_map(|own| message(own.rank)).collect()
    }
}

/// Opens the socket of each rank of this host; their ports are sent to all hosts.
pub(super) fn listeners(task: &Task) -> Result<Vec<TcpListener>, LaunchError> {
    let all = task.ranks.iter().map(|_| sockets::listen(task.ports));
    all.collect::<io::Result<_>>().map_err(|error| {
        LaunchError::system(match task.ports {
            Some((first, last)) if error.kind() == io::ErrorKind::AddrInUse => format!(
                "-port-range {first}:{last}: there is no free port for each of {} ranks; name more ports",
                task.ranks.len()
            ),
            _ => format!("cannot listen for other hosts: {error}"),
        })
    })
}

/// Starts the ranks. `listeners` are theirs; `all` are the hosts and the locations of all ranks;
/// `agent` is the socket at which the ranks reach the agent, whose branches are not the guard's.
pub(super) fn start(
    task: &Task,
    listeners: Vec<TcpListener>,
    (hosts, locations): (&[Host], &[Location]),
    agent: Option<&str>,
    branches: &mut Branches,
) -> Result<Local, LaunchError> {
    let job = &task.job;
    let ranks = task.all.len() as u32;
    let own = task.ranks.len() as u32;
    let files = FileLimit::now();
    files.raise_to(u64::from(own) * 12 + 64);
    let usable = cpu::usable_cores();
    let cores = setup::usable_cores(job, usable)?;
    // Containers of one machine do not see whom the others bind to which core.
    let shares = sharing(hosts, locations, task.host) > own;
    let binding = match job.binding {
        Binding::Auto if shares => &Binding::None,
        ref asked => asked,
    };
    check_cores(job, own, cores.usable)?;
    let mut placement = place(own, binding, &job.layout, &cores, Lease::take)?;
    if job.layout.cores.is_some() {
        placement.confine(&cores.mask);
    }
    if shares && job.binding == Binding::Auto {
        let why = "several hosts are containers of one machine and have the same cores";
        placement.unbound_because = Some(why.into());
    }
    let lines = tell::lines_of_host(job, task.ranks.iter().map(|r| r.rank), &placement, &cores);
    let busy = placement.distinct_cores().unwrap_or(usable).min(usable);
    let segment = segment(task, ranks, busy, (hosts, locations))?;
    let failed = |error: io::Error| setup::descriptors(own, &error);
    let segment_fd = duplicate_above(segment.fd(), SEGMENT_FD)
        .or_else(|_| segment.fd().try_clone_to_owned())
        .map_err(failed)?;
    let devices = Devices::find(
        job.layout.gpus,
        own,
        |name| std::env::var(name).ok(),
        frameworks::names_in,
    )?;
    let ties = Ties {
        parent: task.parent.as_deref(),
        agent,
    };
    let programs = setup::programs(job, &segment_fd, (ranks, own, usable), ties, &devices)?;
    let (mut outputs, mut inputs, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let null = Arc::new(OwnedFd::from(File::open("/dev/null").map_err(failed)?));
    let parts = task.ranks.iter().zip(listeners).zip(placement.cores);
    for (local, ((rank, listener), cores)) in (0..).zip(parts) {
        let stdin = if rank.has_input {
            let (reader, writer) = io::pipe().map_err(failed)?;
            set_nonblocking(writer.as_fd()).map_err(failed)?;
            inputs.push(Input {
                rank: rank.rank,
                pipe: Some(OwnedFd::from(writer).into()),
                waiting: Vec::new(),
                is_over: false,
            });
            Arc::new(OwnedFd::from(reader))
        } else {
            null.clone()
        };
        let mut output = |is_error| -> io::Result<OwnedFd> {
            let (reader, writer) = io::pipe()?;
            set_pipe_bytes(writer.as_fd(), wire::WINDOW);
            set_nonblocking(reader.as_fd())?;
            outputs.push(Output {
                rank: rank.rank,
                stream: wire::stream(rank.rank, is_error),
                pipe: Some(OwnedFd::from(reader).into()),
                window: wire::WINDOW,
                drains: false,
            });
            Ok(writer.into())
        };
        let first = output(false).map_err(failed)?;
        let second = if task.merges {
            first.try_clone()
        } else {
            output(true)
        };
        let listener = duplicate_above(listener.as_fd(), segment_fd.as_raw_fd() + 1);
        starts.push(RankStart {
            rank: rank.rank,
            local,
            program: rank.program,
            stdin: Some(stdin),
            output: [first, second.map_err(failed)?],
            cores,
            listener: Some(listener.map_err(failed)?),
        });
    }
    let plan = Plan {
        programs,
        ranks: starts.into(),
        segment_fd,
        files,
        devices,
        blocked: SignalSet::of(&[]),
        has_session: false,
    };
    let part = job.recording.as_ref();
    let part = part.map(|recording| Part::start(recording, &segment));
    let ours = (outputs, inputs, part.transpose()?, std::mem::take(branches));
    let started = guard::start(plan, &segment, ours).map_err(|error| no_guard(&error));
    let (guard, (outputs, inputs, part, lent)) = started?;
    *branches = lent;
    Ok(Local {
        segment,
        guard,
        outputs,
        inputs,
        is_empty: false,
        lines,
        part,
        _leases: placement.leases,
    })
}

fn no_guard(error: &io::Error) -> LaunchError {
    LaunchError::system(format!(
        "cannot start the guard: {error}; it needs /proc and one more process (ulimit -u)"
    ))
}

/// Refuses more ranks than cores where the user wants that.
fn check_cores(job: &Job, ranks: u32, usable: usize) -> Result<(), LaunchError> {
    if job.layout.no_oversubscription && ranks as usize > usable {
        return Err(LaunchError::usage(format!(
            "-nooversubscribe: {ranks} ranks are more than the {usable} usable cores of this host; start fewer, or leave the option out"
        )));
    }
    Ok(())
}

/// Returns a number that only hosts with the same cores have in common.
pub(super) fn cores_number() -> u64 {
    let mut hasher = DefaultHasher::new();
    // Of the running system: all containers of a machine have the same.
    let system = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    (system, cpu::affinity()).hash(&mut hasher);
    hasher.finish()
}

/// Ranks that share the cores of a host.
fn sharing(hosts: &[Host], locations: &[Location], host: u32) -> u32 {
    let cores = |host: u32| hosts.get(host as usize).map(|host| host.cores);
    let own = cores(host);
    let sharing = locations.iter().filter(|at| cores(at.host) == own);
    sharing.count() as u32
}

/// Makes the segment of this host, with a cell for every rank of the job.
fn segment(
    task: &Task,
    ranks: u32,
    usable: usize,
    (hosts, locations): (&[Host], &[Location]),
) -> Result<Arc<Segment>, LaunchError> {
    let segment = Arc::new(setup::new_segment(ranks)?);
    describe(&segment, &task.job, task.number, usable);
    if let Some(last) = task.ranks.last() {
        setup::keep_crashes(&segment, last.rank);
    }
    let registry = segment.registry();
    for (rank, &(program, _)) in (0..).zip(&task.all) {
        registry.identify(rank, 0, None, program as u32);
    }
    let here = (task.host, task.encrypts);
    enter_hosts(&segment, &task.secret, here, (hosts, locations))?;
    setup::enter_places(&segment, task.all.iter().map(|&(_, place)| place))?;
    Ok(segment)
}

fn describe(segment: &Segment, job: &Job, number: u64, usable: usize) {
    segment.registry().describe(&Facts {
        job: number,
        launcher: std::process::id(),
        started_ns: clock::now_ns(),
        command: job.command_line(),
        cores: usable as u32,
        is_tolerant: job.continue_on_failure,
    });
}

/// Enters the table of hosts in a segment.
pub(super) fn enter_hosts(
    segment: &Arc<Segment>,
    secret: &[u8; hosts::SECRET],
    here: (u32, bool),
    (hosts, locations): (&[Host], &[Location]),
) -> Result<(), LaunchError> {
    let words = hosts::words(hosts.len(), locations.len());
    let note = segment.make_note(0, hosts::KEY, words).ok_or_else(|| {
        LaunchError::system(format!(
            "the job's registry has no room for {} hosts and {} ranks",
            hosts.len(),
            locations.len()
        ))
    })?;
    Table::write(&note, secret, here, hosts, locations);
    segment.use_doorbells();
    Ok(())
}
