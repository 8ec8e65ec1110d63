//! How a process comes into its job: by the launcher's environment, by what another launcher
//! offers, or alone. Ranks of one host have the shared segment between them; those of several also
//! TCP.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use margay_core_registry::network::{self, Network};
use margay_core_registry::{Facts, Phase, place};
use margay_net_hosts::{HostsError, OnLost, Wanted, Way};
use margay_net_shm::platform;
use margay_net_wireup::{self as wireup, VARIABLE_PORTS, Wire, WireError};
use margay_run_engine::monitor::Monitor;
use margay_run_engine::{Policy, Rank};
use margay_sys_os::sockets::inherited_listener;
use margay_sys_os::{clock, cpu};
use margay_sys_shm::environment::{
    ENV_BYTES_ONLY, ENV_LISTENER, ENV_RANK, ENV_SEGMENT, ENV_SINGLETON, ENV_SIZE,
};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::mapping::SegmentError;
use margay_sys_shm::segment::Segment;

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
    Hosts(HostsError),
    /// There is no such network.
    Network(String),
    /// Another launcher started this process as one of several.
    Foreign(ForeignLauncher),
    /// It offers a way to the others, which does not work.
    Wire(Option<ForeignLauncher>, WireError),
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
                write!(f, "cannot prepare for the job's other hosts: {error}")?;
                match error {
                    HostsError::System(_) | HostsError::Encrypted => Ok(()),
                    HostsError::Fabric(_) => write!(
                        f,
                        "; libfabric is Debian's package libfabric1, {} names another file of it, fi_info -l lists its \
                         providers; or run with -net tcp",
                        network::VARIABLE_LIBRARY
                    ),
                }
            }
            OpenError::Network(text) => write!(
                f,
                "{} is '{text}', which is no network: write tcp, ofi, ofi:PROVIDER or \
                 ofi:PROVIDER:DOMAIN",
                network::VARIABLE
            ),
            OpenError::Foreign(launcher) => launcher.fmt(f),
            OpenError::Wire(launcher, error) => {
                let who = launcher.as_ref().map(ForeignLauncher::who);
                let who = who.unwrap_or_else(|| "this process is one of several".into());
                write!(f, "{who}, and cannot join the others: {error}")?;
                match launcher {
                    Some(launcher) => write!(f, "; {}", launcher.remedy()),
                    None => Ok(()),
                }
            }
            OpenError::Taken { rank, pid } => write!(
                f,
                "process {pid} has already taken part in this job as rank {rank}; start each program \
                 with an mpiexec of its own (for one that a rank starts: unset {ENV_SEGMENT} {ENV_SIZE})"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// A rank, and its connection to a launcher that is not Margay's.
pub(crate) type Opened = (Rank, Option<Box<dyn Wire>>);

/// Joins the job that the launcher's environment names, or that of another launcher; without one, a
/// world of one.
///
/// # Errors
/// When the environment is broken, another launcher offers no way to the others, or the shared
/// memory cannot be had.
pub(crate) fn open(monitor: &Arc<Monitor>) -> Result<Opened, OpenError> {
    let is_ours = [ENV_SEGMENT, ENV_SIZE]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    if let Some(opened) = by_wire(monitor, is_ours)? {
        return Ok(opened);
    }
    let rank = match std::env::var(ENV_SEGMENT) {
        Ok(fd) => inherited(monitor, fd)?,
        Err(_) => alone(monitor)?,
    };
    Ok((rank, None))
}

/// Joins the job of a launcher that is not Margay's; none where there is no such launcher.
fn by_wire(monitor: &Arc<Monitor>, is_ours: bool) -> Result<Option<Opened>, OpenError> {
    let value = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    if value(ENV_SINGLETON).is_some_and(|v| !v.is_empty() && v != "0") {
        return Ok(None);
    }
    let foreign = ForeignLauncher::find(value, is_ours);
    // What speaks PMIx need not say in the environment that this is one of several.
    if foreign.is_none() && value("PMIX_NAMESPACE").is_none() {
        return Ok(None);
    }
    let (mut wire, foreign) = match (wireup::find(value), foreign) {
        (Some(Ok(wire)), foreign) => (wire, foreign),
        (Some(Err(error)), Some(by)) => return Err(OpenError::Wire(Some(by), error)),
        (None, Some(by)) => return Err(OpenError::Foreign(by)),
        (_, None) => return Ok(None),
    };
    let ports = match value(VARIABLE_PORTS) {
        Some(text) => Some(ports(&text).ok_or(OpenError::Environment {
            name: VARIABLE_PORTS,
            value: text,
        })?),
        None => None,
    };
    let met = wireup::meet(&mut *wire, ports);
    let met = met.map_err(|error| OpenError::Wire(foreign, error))?;
    let (segment, me) = (met.segment, wire.rank());
    segment.registry().set_pid(me, std::process::id());
    let rank = match met.listener {
        Some(listener) => {
            let watched = Some(watch(&segment, me));
            on_hosts(&segment, me, monitor, true, listener, watched)?
        }
        None => in_segment(&segment, me, monitor, true),
    };
    // Nobody else would notice that one of them has died.
    let peers = rank.peers().clone();
    let here = (0..peers.size()).filter(|&of| of != me && peers.host(of) == peers.host(me));
    for other in here {
        rank.watch_other(other, &peers, other);
    }
    Ok(Some((rank, Some(wire))))
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}

/// Enters the ends of ranks on other hosts, of which no agent tells: their connections say so.
fn watch(segment: &Arc<Segment>, me: u32) -> OnLost {
    let segment = segment.clone();
    Box::new(move |rank, errno| {
        let registry = segment.registry();
        if errno != 0 {
            let error = io::Error::from_raw_os_error(errno);
            crate::write_line(format!(
                "rank {me} cannot reach rank {rank} ({error}): a firewall between the hosts ({VARIABLE_PORTS}=FIRST:LAST \
                 names the ports), or the network or that host is down"
            ));
        }
        if registry.phase(me) == Phase::Running && !registry.has_exited(rank) {
            registry.set_exited(rank, false);
            registry.add_failure();
        }
    })
}

/// Joins the job of Margay's launcher, whose segment is the descriptor of that name.
fn inherited(monitor: &Arc<Monitor>, fd: String) -> Result<Rank, OpenError> {
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
        Ok(listener) => {
            let socket = listener.parse().ok().map(inherited_listener);
            let Some(Ok(socket)) = socket else {
                return Err(OpenError::Environment {
                    name: ENV_LISTENER,
                    value: listener,
                });
            };
            on_hosts(&segment, me, monitor, !bytes_only, socket, None)
        }
        Err(_) => Ok(in_segment(&segment, me, monitor, !bytes_only)),
    }
}

/// Joins a job on several hosts; others connect to `socket`. `watched` is called with ranks whose
/// connections end, where no agent tells of their ends.
fn on_hosts(
    segment: &Arc<Segment>,
    me: u32,
    monitor: &Arc<Monitor>,
    shares_memory: bool,
    socket: TcpListener,
    watched: Option<OnLost>,
) -> Result<Rank, OpenError> {
    let thresholds = monitor.tuning.thresholds(shares_memory);
    let chosen = std::env::var(network::VARIABLE).unwrap_or_default();
    let library = std::env::var_os(network::VARIABLE_LIBRARY).map(PathBuf::from);
    let fabric = match Network::parse(&chosen) {
        Some(Network::Fabric { provider, domain }) => Some(Wanted {
            library: library.as_deref(),
            provider,
            domain,
        }),
        Some(Network::Tcp) => None,
        None if chosen.is_empty() => None,
        None => return Err(OpenError::Network(chosen)),
    };
    let way = Way {
        listener: socket,
        fabric,
        watched,
    };
    let platform = margay_net_hosts::platform(segment, me, thresholds, shares_memory, way)
        .map_err(OpenError::Hosts)?;
    let peers = &platform.peers;
    let (sharers, cores) = (peers.sharers(me), peers.cores().max(1));
    let is_here = |&rank: &u32| peers.host(rank) == peers.host(me);
    let here = (0..peers.size()).filter(is_here).count() as u32;
    let policy = match sharers > cores && sharers > here {
        true => Policy::OVERSUBSCRIBED_BY_HOSTS,
        false => Policy::new(sharers, cores),
    };
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

/// Joins a job as the process that has made its memory and controls it, but is none of its nodes.
pub(crate) fn controlling(segment: &Arc<Segment>, me: u32, monitor: &Arc<Monitor>) -> Opened {
    let rank = in_segment(segment, me, monitor, true);
    // There is no launcher that would notice that one of them has died.
    let peers = rank.peers().clone();
    for other in 0..me {
        rank.watch_other(other, &peers, other);
    }
    (rank, None)
}

fn in_segment(
    segment: &Arc<Segment>,
    me: u32,
    monitor: &Arc<Monitor>,
    shares_memory: bool,
) -> Rank {
    let cores = segment.registry().cores().max(1);
    let last = segment.ranks() - 1;
    // A controlling process waits most of the time.
    let controls = place::controls(segment.note(last, place::KEY).as_deref());
    let policy = Policy::new(segment.ranks() - u32::from(controls), cores);
    monitor.tuning.suggest_policy(policy);
    let thresholds = monitor.tuning.thresholds(shares_memory);
    let mut platform = platform(segment, me, thresholds, shares_memory);
    margay_net_hosts::reach_out(&mut platform);
    Rank::new(platform, monitor)
}
