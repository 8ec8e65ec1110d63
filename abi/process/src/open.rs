//! How a process comes into its job: by the launcher's environment, or alone. Ranks of one host
//! have the shared segment between them; those of several also TCP.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use margay_core_registry::{Facts, Phase};
use margay_net_shm::platform;
use margay_run_engine::monitor::Monitor;
use margay_run_engine::{Policy, Rank};
use margay_sys_os::sockets::inherited_listener;
use margay_sys_os::{clock, cpu};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::mapping::SegmentError;
use margay_sys_shm::segment::{
    ENV_BYTES_ONLY, ENV_LISTENER, ENV_RANK, ENV_SEGMENT, ENV_SIZE, Segment,
};

use crate::foreign::ForeignLauncher;

/// Why a rank could not join its job.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// A variable that the launcher sets has a value that the launcher never sets.
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The shared memory could not be joined or made.
    Segment(SegmentError),
    /// The other hosts of the job cannot be reached from here.
    Hosts(std::io::Error),
    /// Another launcher started this process as one of several.
    Foreign(ForeignLauncher),
    /// Another process has taken part in the job as this rank.
    Taken {
        /// The rank.
        rank: u32,
        /// The other process.
        pid: u32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Environment { name, value } => write!(
                f,
                "{name} is '{value}', which no launcher sets; start the program with mpiexec, or \
                 unset {ENV_SEGMENT} and {ENV_RANK} to run it alone"
            ),
            OpenError::Segment(error) => error.fmt(f),
            OpenError::Hosts(error) => {
                write!(f, "cannot prepare for the job's other hosts: {error}")
            }
            OpenError::Foreign(launcher) => launcher.fmt(f),
            OpenError::Taken { rank, pid } => write!(
                f,
                "process {pid} has already taken part in this job as rank {rank}; start each program \
                 with an mpiexec of its own (for one that a rank starts: unset {ENV_SEGMENT} {ENV_SIZE})"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// Joins the job that the launcher's environment names; without one, a world of one.
///
/// # Errors
/// When the environment is broken or another launcher's, or the shared memory cannot be had.
pub(crate) fn open(monitor: &Arc<Monitor>) -> Result<Rank, OpenError> {
    let is_ours = [ENV_SEGMENT, ENV_SIZE]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let value = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    if let Some(launcher) = ForeignLauncher::find(value, is_ours) {
        return Err(OpenError::Foreign(launcher));
    }
    let Ok(fd) = std::env::var(ENV_SEGMENT) else {
        return alone(monitor);
    };
    let number: RawFd = fd.parse().map_err(|_| OpenError::Environment {
        name: ENV_SEGMENT,
        value: fd,
    })?;
    let rank = std::env::var(ENV_RANK).unwrap_or_default();
    let me = rank.parse::<u32>().ok();
    let segment = Arc::new(Segment::join_inherited(number).map_err(OpenError::Segment)?);
    let me = me
        .filter(|&me| me < segment.ranks())
        .ok_or(OpenError::Environment {
            name: ENV_RANK,
            value: rank,
        })?;
    let registry = segment.registry();
    let (pid, other) = (std::process::id(), registry.identity(me).pid);
    // What the other has left in the shared memory is in the middle of its course.
    if registry.phase(me) != Phase::Starting && other != pid {
        return Err(OpenError::Taken {
            rank: me,
            pid: other,
        });
    }
    registry.set_pid(me, pid);
    let bytes_only = std::env::var_os(ENV_BYTES_ONLY).is_some_and(|v| v != "0" && !v.is_empty());
    match std::env::var(ENV_LISTENER) {
        Ok(listener) => on_hosts(&segment, me, monitor, !bytes_only, listener),
        Err(_) => Ok(in_segment(&segment, me, monitor, !bytes_only)),
    }
}

/// Joins a job on several hosts; others connect to the socket with that number.
fn on_hosts(
    segment: &Arc<Segment>,
    me: u32,
    monitor: &Arc<Monitor>,
    shares_memory: bool,
    listener: String,
) -> Result<Rank, OpenError> {
    let inherited = listener.parse().ok().map(inherited_listener);
    let Some(Ok(socket)) = inherited else {
        return Err(OpenError::Environment {
            name: ENV_LISTENER,
            value: listener,
        });
    };
    let thresholds = monitor.tuning.thresholds(shares_memory);
    let platform = margay_net_hosts::platform(segment, me, thresholds, shares_memory, socket)
        .map_err(OpenError::Hosts)?;
    let peers = &platform.peers;
    let policy = Policy::new(peers.sharers(me), peers.cores().max(1));
    monitor.tuning.suggest_policy(policy);
    Ok(Rank::new(platform, monitor))
}

/// Returns a world of one rank.
fn alone(monitor: &Arc<Monitor>) -> Result<Rank, OpenError> {
    let segment = Segment::create(Sizes::for_job(1)).map_err(OpenError::Segment)?;
    let pid = std::process::id();
    segment.registry().describe(&Facts {
        job: u64::from(pid),
        started_ns: clock::now_ns(),
        cores: cpu::usable_cores() as u32,
        ..Facts::default()
    });
    segment.registry().identify(0, pid, None, 0);
    Ok(in_segment(&Arc::new(segment), 0, monitor, true))
}

fn in_segment(
    segment: &Arc<Segment>,
    me: u32,
    monitor: &Arc<Monitor>,
    shares_memory: bool,
) -> Rank {
    let cores = segment.registry().cores().max(1);
    let policy = Policy::new(segment.ranks(), cores);
    monitor.tuning.suggest_policy(policy);
    let thresholds = monitor.tuning.thresholds(shares_memory);
    Rank::new(platform(segment, me, thresholds, shares_memory), monitor)
}
