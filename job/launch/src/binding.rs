//! Which rank runs on which cores.
//!
//! By default every rank gets its share of the cores: with as many ranks as cores one each, with
//! fewer ranks several, so that a rank's threads have room. Two jobs on one machine must not share
//! cores while others idle, so a core is taken by binding an abstract socket address that names it:
//! no file, no daemon, and the kernel gives it back when the launcher dies, however it dies.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::plan::{Binding, LaunchError};

/// The cores that the launcher may use.
#[derive(Clone, Debug)]
pub struct Cores {
    /// The affinity mask, ascending.
    pub mask: Vec<usize>,
    /// How many of them the job can keep busy (a cgroup's quota may allow fewer).
    pub usable: usize,
}

/// Where the ranks run.
#[derive(Debug)]
pub struct Placement {
    /// The cores of each rank; empty means not bound.
    pub cores: Vec<Vec<usize>>,
    /// Why the ranks are not bound, if they are not.
    pub unbound_because: Option<String>,
    /// Keeps the cores for this job.
    pub leases: Vec<Lease>,
}

impl Placement {
    /// Returns how many cores the ranks are bound to in all; none when they are not bound.
    #[must_use]
    pub fn distinct_cores(&self) -> Option<usize> {
        let mut all: Vec<usize> = self.cores.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then_some(all.len())
    }
}

/// A core that this job has taken; given back on drop.
#[derive(Debug)]
pub struct Lease {
    _address: Option<UnixDatagram>,
}

impl Lease {
    /// Takes a core, none when another job has it. Where sockets are forbidden every core is free.
    #[must_use]
    pub fn take(core: usize) -> Option<Lease> {
        let name = format!("margay-core-{core}");
        let bound = SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixDatagram::bind_addr(&address));
        match bound {
            Ok(socket) => Some(Lease {
                _address: Some(socket),
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            Err(_) => Some(Lease { _address: None }),
        }
    }
}

/// Places `ranks` ranks. `take` takes a core ([`Lease::take`]).
///
/// # Errors
/// When the user named cores that this process may not use, or fewer than there are ranks.
pub fn place(
    ranks: u32,
    binding: &Binding,
    cores: &Cores,
    mut take: impl FnMut(usize) -> Option<Lease>,
) -> Result<Placement, LaunchError> {
    let ranks = ranks as usize;
    let unbound = |why: String| Placement {
        cores: vec![Vec::new(); ranks],
        unbound_because: Some(why),
        leases: Vec::new(),
    };
    match binding {
        Binding::None => Ok(unbound("-bind none".into())),
        Binding::List(list) => {
            if let Some(core) = list.iter().find(|c| !cores.mask.contains(c)) {
                return Err(LaunchError::usage(format!(
                    "-bind: core {core} may not be used here, the usable cores are {}",
                    ranges(&cores.mask)
                )));
            }
            if list.len() < ranks {
                return Err(LaunchError::usage(format!(
                    "-bind: {} cores are named for {ranks} ranks; name one for each rank, or say \
                     -bind none",
                    list.len()
                )));
            }
            Ok(Placement {
                cores: list[..ranks].iter().map(|&c| vec![c]).collect(),
                unbound_because: None,
                leases: list[..ranks].iter().filter_map(|&c| take(c)).collect(),
            })
        }
        Binding::Core => {
            if ranks > cores.mask.len() {
                return Err(LaunchError::usage(format!(
                    "-bind core: {ranks} ranks need {ranks} cores, this process may use {}; start \
                     fewer ranks or say -bind none",
                    cores.mask.len()
                )));
            }
            let order = spread(&cores.mask, ranks);
            let mut leases = Vec::new();
            let (mut chosen, mut taken) = (Vec::new(), Vec::new());
            for &core in &order {
                if chosen.len() == ranks {
                    break;
                }
                match take(core) {
                    Some(lease) => {
                        leases.push(lease);
                        chosen.push(core);
                    }
                    None => taken.push(core),
                }
            }
            // The user insists: share with the other job what is missing.
            let missing = ranks - chosen.len();
            chosen.extend(taken.into_iter().take(missing));
            Ok(Placement {
                cores: chosen.into_iter().map(|c| vec![c]).collect(),
                unbound_because: None,
                leases,
            })
        }
        Binding::Auto => {
            let mask = cores.mask.len();
            if ranks > cores.usable {
                return Ok(unbound(format!(
                    "{ranks} ranks are more than the {} usable cores",
                    cores.usable
                )));
            }
            if cores.usable < mask {
                return Ok(unbound(format!(
                    "a quota allows {} of {mask} cores, and others may use the same ones",
                    cores.usable
                )));
            }
            if ranks == 1 {
                return Ok(unbound("one rank may use all cores".into()));
            }
            let share = mask / ranks;
            let order = if share == 1 {
                spread(&cores.mask, ranks)
            } else {
                cores.mask.clone()
            };
            let mut leases = Vec::new();
            let mut free = Vec::new();
            for core in order {
                if let Some(lease) = take(core) {
                    leases.push(lease);
                    free.push(core);
                }
                if free.len() == ranks * share {
                    break;
                }
            }
            let share = free.len() / ranks;
            if share == 0 {
                return Ok(unbound("another job is bound to the cores".into()));
            }
            leases.truncate(share * ranks);
            Ok(Placement {
                cores: free.chunks(share).take(ranks).map(<[_]>::to_vec).collect(),
                unbound_because: None,
                leases,
            })
        }
    }
}

/// Cores as text: `0-3,8`.
#[must_use]
pub fn ranges(cores: &[usize]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < cores.len() {
        let mut end = at;
        while end + 1 < cores.len() && cores[end + 1] == cores[end] + 1 {
            end += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&cores[at].to_string());
        if end > at {
            text.push_str(if end == at + 1 { "," } else { "-" });
            text.push_str(&cores[end].to_string());
        }
        at = end + 1;
    }
    text
}

/// Reads a list of cores: `0,2,4-7`.
///
/// # Errors
/// When it is not one.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |t: &str| {
            t.trim()
                .parse::<usize>()
                .ok()
                .filter(|&c| c < 1 << 16)
                .ok_or_else(|| format!("'{part}' is not a core or a range of cores"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the range '{part}' runs backwards"));
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// Returns the cores in the order in which `ranks` single ranks get them: one thread of every
/// physical core before the second threads, when there is a choice.
fn spread(mask: &[usize], ranks: usize) -> Vec<usize> {
    let mut order = mask.to_vec();
    if ranks < mask.len() {
        order.sort_by_key(|&core| (sibling_place(core), core));
    }
    order
}

/// 0 for the first hardware thread of a physical core, 1 for the second, and so on.
fn sibling_place(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(path).unwrap_or_default();
    parse_list(siblings.trim())
        .ok()
        .and_then(|list| list.iter().position(|&c| c == core))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(n: usize, usable: usize) -> Cores {
        Cores {
            mask: (0..n).collect(),
            usable,
        }
    }

    fn free(_: usize) -> Option<Lease> {
        Some(Lease { _address: None })
    }

    #[test]
    fn each_rank_gets_its_share() {
        let p = place(2, &Binding::Auto, &cores(8, 8), free).unwrap();
        assert_eq!(p.cores, [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(p.leases.len(), 8);
        let p = place(3, &Binding::Auto, &cores(8, 8), free).unwrap();
        assert_eq!(p.cores, [vec![0, 1], vec![2, 3], vec![4, 5]]);
        let p = place(2, &Binding::Auto, &cores(2, 2), free).unwrap();
        assert_eq!(p.cores, [[0], [1]]);
    }

    #[test]
    fn too_many_ranks_or_a_quota_mean_no_binding() {
        for (ranks, cores) in [(3, cores(2, 2)), (2, cores(8, 2)), (1, cores(8, 8))] {
            let p = place(ranks, &Binding::Auto, &cores, free).unwrap();
            assert!(p.cores.iter().all(Vec::is_empty));
            assert!(p.unbound_because.is_some());
        }
    }

    #[test]
    fn cores_of_another_job_are_left_alone() {
        let taken = |core: usize| if core < 2 { None } else { free(core) };
        let p = place(2, &Binding::Auto, &cores(4, 4), taken).unwrap();
        assert_eq!(p.cores, [[2], [3]]);
        let p = place(3, &Binding::Auto, &cores(4, 4), taken).unwrap();
        assert!(p.unbound_because.unwrap().contains("another job"));
        let p = place(3, &Binding::Core, &cores(4, 4), taken).unwrap();
        assert_eq!(p.cores.len(), 3);
    }

    #[test]
    fn a_core_is_taken_once() {
        let first = Lease::take(60_123).unwrap();
        if first._address.is_some() {
            assert!(Lease::take(60_123).is_none());
        }
        drop(first);
        assert!(Lease::take(60_123).is_some());
    }

    #[test]
    fn lists_and_their_errors() {
        assert_eq!(parse_list("0,2,4-6").unwrap(), [0, 2, 4, 5, 6]);
        assert!(parse_list("3-1").is_err());
        assert!(parse_list("x").is_err());
        assert!(parse_list("0,").is_err());
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7,8");
        let b = Binding::List(vec![1, 0]);
        assert_eq!(place(2, &b, &cores(2, 2), free).unwrap().cores, [[1], [0]]);
        assert!(
            place(3, &b, &cores(4, 4), free)
                .unwrap_err()
                .message
                .contains("2 cores")
        );
        let error = place(1, &Binding::List(vec![9]), &cores(2, 2), free).unwrap_err();
        assert!(error.message.contains("core 9") && error.message.contains("0,1"));
        assert!(place(3, &Binding::Core, &cores(2, 2), free).is_err());
    }
}
