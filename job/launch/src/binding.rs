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

use crate::machine::{self, parts};
use crate::plan::{Binding, Job, LaunchError, Layout, Unit};

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
    /// Lets ranks that are not bound use these cores alone.
    pub fn confine(&mut self, cores: &[usize]) {
        for own in self.cores.iter_mut().filter(|own| own.is_empty()) {
            *own = cores.to_vec();
        }
    }

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
    layout: &Layout,
    cores: &Cores,
    take: impl FnMut(usize) -> Option<Lease>,
) -> Result<Placement, LaunchError> {
    let ranks = ranks as usize;
    let units = |unit: Unit| parts(unit, &cores.mask, machine::read);
    match (binding, layout.round) {
        (Binding::None, _) => Ok(unbound(ranks, "-bind none".into())),
        (Binding::List(list), _) => {
            let lists: Vec<Vec<usize>> = list.iter().map(|&core| vec![core]).collect();
            place_on_lists(ranks, &lists, cores, take)
        }
        (Binding::Lists(lists), _) => place_on_lists(ranks, lists, cores, take),
        (Binding::Core, None) => place_on_cores(ranks, layout, cores, take),
        (Binding::Core, Some(unit)) => place_in(ranks, &units(unit), Share::Cores(1), layout, take),
        (Binding::Cores(each), round) => {
            let parts = units(round.unwrap_or(Unit::Host));
            place_in(ranks, &parts, Share::Cores(*each as usize), layout, take)
        }
        (Binding::Unit(unit), _) => place_in(ranks, &units(*unit), Share::Part, layout, take),
        (Binding::Auto, round) => {
            let order = round.map(|unit| in_turn(&units(unit)));
            Ok(place_by_share(ranks, order, cores, take))
        }
    }
}

/// Where the user has named nodes of NX (`-on`), they are physical ones: the process on node `k`
/// runs on the `k`-th of the cores that the job may use. None where nothing is to be bound by
/// nodes: none are named, the user binds in another way, or there are more nodes than cores.
#[must_use]
pub fn by_nodes(job: &Job, places: &[(u32, u32)], cores: &Cores) -> Option<Binding> {
    let are_named = job.programs.iter().any(|program| program.nodes.is_some());
    if !are_named || job.binding != Binding::Auto || job.layout.round.is_some() {
        return None;
    }
    let of = |&(node, _): &(u32, u32)| cores.mask.get(node as usize).map(|&core| vec![core]);
    places
        .iter()
        .map(of)
        .collect::<Option<_>>()
        .map(Binding::Lists)
}

fn unbound(ranks: usize, why: String) -> Placement {
    Placement {
        cores: vec![Vec::new(); ranks],
        unbound_because: Some(why),
        leases: Vec::new(),
    }
}

fn place_on_lists(
    ranks: usize,
    lists: &[Vec<usize>],
    cores: &Cores,
    take: impl FnMut(usize) -> Option<Lease>,
) -> Result<Placement, LaunchError> {
    if let Some(core) = lists.iter().flatten().find(|c| !cores.mask.contains(c)) {
        return Err(LaunchError::usage(format!(
            "-bind: core {core} may not be used here, the usable cores are {}",
            ranges(&cores.mask)
        )));
    }
    if lists.len() < ranks {
        let what = match lists.iter().all(|list| list.len() == 1) {
            true => "cores",
            false => "lists of cores",
        };
        return Err(LaunchError::usage(format!(
            "-bind: {} {what} are named for {ranks} ranks; name one for each rank, or say \
             -bind none",
            lists.len()
        )));
    }
    let lists = &lists[..ranks];
    let mut used: Vec<usize> = lists.concat();
    used.sort_unstable();
    used.dedup();
    Ok(Placement {
        cores: lists.to_vec(),
        unbound_because: None,
        leases: used.into_iter().filter_map(take).collect(),
    })
}

fn place_on_cores(
    ranks: usize,
    layout: &Layout,
    cores: &Cores,
    mut take: impl FnMut(usize) -> Option<Lease>,
) -> Result<Placement, LaunchError> {
    if ranks > cores.mask.len() && layout.may_overload {
        let many = cores.mask.len();
        return Ok(unbound(
            ranks,
            format!("{ranks} ranks are more than {many} cores"),
        ));
    }
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

/// What of a part of the machine a rank gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A number of cores.
    Cores(usize),
    /// All of it.
    Part,
}

/// Places ranks in parts of the machine: one part after the other is filled, or, where the layout
/// says so, consecutive ranks are in different ones.
fn place_in(
    ranks: usize,
    parts: &[Vec<usize>],
    share: Share,
    layout: &Layout,
    mut take: impl FnMut(usize) -> Option<Lease>,
) -> Result<Placement, LaunchError> {
    let part_of = |rank: usize| match layout.round {
        Some(_) => rank % parts.len(),
        None => rank * parts.len() / ranks,
    };
    let each = match share {
        Share::Cores(each) => each,
        Share::Part => {
            let cores: Vec<Vec<usize>> = (0..ranks).map(|r| parts[part_of(r)].clone()).collect();
            let mut used: Vec<usize> = cores.concat();
            used.sort_unstable();
            used.dedup();
            return Ok(Placement {
                cores,
                unbound_because: None,
                leases: used.into_iter().filter_map(take).collect(),
            });
        }
    };
    let mut left: Vec<Vec<usize>> = (0..parts.len())
        .map(|part| {
            let wanted = (0..ranks).filter(|&r| part_of(r) == part).count() * each;
            let mut order = spread(&parts[part], wanted);
            order.reverse();
            order
        })
        .collect();
    let mut cores = Vec::new();
    let mut leases = Vec::new();
    for rank in 0..ranks {
        let rest = &mut left[part_of(rank)];
        if rest.len() < each {
            let all: usize = parts.iter().map(Vec::len).sum();
            let why = format!(
                "{ranks} ranks with {each} core{} each do not fit: this process may use {all} cores{}",
                if each == 1 { "" } else { "s" },
                match parts.len() {
                    1 => String::new(),
                    n => format!(" in {n} parts"),
                }
            );
            if layout.may_overload {
                return Ok(unbound(ranks, why));
            }
            return Err(LaunchError::usage(format!(
                "-bind: {why}; start fewer ranks or say -bind none"
            )));
        }
        let own = rest.split_off(rest.len() - each);
        leases.extend(own.iter().filter_map(|&core| take(core)));
        let mut own: Vec<usize> = own;
        own.sort_unstable();
        cores.push(own);
    }
    Ok(Placement {
        cores,
        unbound_because: None,
        leases,
    })
}

/// Returns the cores of the parts in turn: the first of each, then the second of each.
fn in_turn(parts: &[Vec<usize>]) -> Vec<usize> {
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let at = |place: usize| {
        parts
            .iter()
            .filter_map(move |part| part.get(place).copied())
    };
    (0..longest).flat_map(at).collect()
}

/// Gives each rank its share of the cores, if there are enough and nobody else has them. `order`,
/// if given, is that in which single cores are given.
fn place_by_share(
    ranks: usize,
    order: Option<Vec<usize>>,
    cores: &Cores,
    mut take: impl FnMut(usize) -> Option<Lease>,
) -> Placement {
    let mask = cores.mask.len();
    if ranks > cores.usable {
        return unbound(
            ranks,
            format!(
                "{ranks} ranks are more than the {} usable cores",
                cores.usable
            ),
        );
    }
    if cores.usable < mask {
        return unbound(
            ranks,
            format!(
                "a quota allows {} of {mask} cores, and others may use the same ones",
                cores.usable
            ),
        );
    }
    if ranks == 1 {
        return unbound(ranks, "one rank may use all cores".into());
    }
    let share = mask / ranks;
    let order = if share == 1 {
        order.unwrap_or_else(|| spread(&cores.mask, ranks))
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
        return unbound(ranks, "another job is bound to the cores".into());
    }
    leases.truncate(share * ranks);
    Placement {
        cores: free.chunks(share).take(ranks).map(<[_]>::to_vec).collect(),
        unbound_because: None,
        leases,
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
    machine::parse_list(siblings.trim())
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

    fn plain() -> Layout {
        Layout::default()
    }

    #[test]
    fn ranks_fill_parts_or_take_turns() {
        let parts = [vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
        let fill = plain();
        let turns = Layout {
            round: Some(Unit::Socket),
            ..plain()
        };
        let at = |ranks, share, layout: &Layout| {
            let placed = place_in(ranks, &parts, share, layout, free);
            placed.map(|p| p.cores).map_err(|e| e.message)
        };
        assert_eq!(at(2, Share::Part, &fill).unwrap(), parts);
        assert_eq!(at(4, Share::Part, &fill).unwrap()[1], parts[0]);
        assert_eq!(at(4, Share::Part, &turns).unwrap()[1], parts[1]);
        assert_eq!(at(2, Share::Cores(4), &turns).unwrap(), parts);
        let error = at(3, Share::Cores(3), &turns).unwrap_err();
        assert!(
            error.contains("3 ranks with 3 cores each do not fit"),
            "{error}"
        );
        let overload = Layout {
            may_overload: true,
            ..plain()
        };
        assert_eq!(
            at(9, Share::Cores(1), &overload).unwrap(),
            vec![Vec::<usize>::new(); 9]
        );
        let p = place(3, &Binding::Core, &overload, &cores(2, 2), free).unwrap();
        assert!(p.unbound_because.unwrap().contains("more than 2 cores"));
        assert_eq!(in_turn(&parts), [0, 2, 1, 3, 4, 6, 5, 7]);
        let p = place(2, &Binding::Cores(2), &fill, &cores(4, 4), free).unwrap();
        let all: Vec<usize> = p.cores.concat();
        assert_eq!((p.cores[0].len(), all.len(), p.leases.len()), (2, 4, 4));
    }

    #[test]
    fn each_rank_gets_its_share() {
        let p = place(2, &Binding::Auto, &plain(), &cores(8, 8), free).unwrap();
        assert_eq!(p.cores, [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(p.leases.len(), 8);
        let p = place(3, &Binding::Auto, &plain(), &cores(8, 8), free).unwrap();
        assert_eq!(p.cores, [vec![0, 1], vec![2, 3], vec![4, 5]]);
        let p = place(2, &Binding::Auto, &plain(), &cores(2, 2), free).unwrap();
        assert_eq!(p.cores, [[0], [1]]);
    }

    #[test]
    fn too_many_ranks_or_a_quota_mean_no_binding() {
        for (ranks, cores) in [(3, cores(2, 2)), (2, cores(8, 2)), (1, cores(8, 8))] {
            let p = place(ranks, &Binding::Auto, &plain(), &cores, free).unwrap();
            assert!(p.cores.iter().all(Vec::is_empty));
            assert!(p.unbound_because.is_some());
        }
    }

    #[test]
    fn cores_of_another_job_are_left_alone() {
        let taken = |core: usize| if core < 2 { None } else { free(core) };
        let p = place(2, &Binding::Auto, &plain(), &cores(4, 4), taken).unwrap();
        assert_eq!(p.cores, [[2], [3]]);
        let p = place(3, &Binding::Auto, &plain(), &cores(4, 4), taken).unwrap();
        assert!(p.unbound_because.unwrap().contains("another job"));
        let p = place(3, &Binding::Core, &plain(), &cores(4, 4), taken).unwrap();
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
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7,8");
        let b = Binding::List(vec![1, 0]);
        assert_eq!(
            place(2, &b, &plain(), &cores(2, 2), free).unwrap().cores,
            [[1], [0]]
        );
        let lists = Binding::Lists(vec![vec![0, 1], vec![1, 3]]);
        let placed = |ranks| place(ranks, &lists, &plain(), &cores(4, 4), free);
        let p = placed(2).unwrap();
        assert_eq!((&p.cores[1], p.leases.len()), (&vec![1, 3], 3));
        assert!(
            placed(3)
                .unwrap_err()
                .message
                .contains("2 lists of cores are named")
        );
        assert!(
            place(3, &b, &plain(), &cores(4, 4), free)
                .unwrap_err()
                .message
                .contains("2 cores")
        );
        let error = place(1, &Binding::List(vec![9]), &plain(), &cores(2, 2), free).unwrap_err();
        assert!(error.message.contains("core 9") && error.message.contains("0,1"));
        assert!(place(3, &Binding::Core, &plain(), &cores(2, 2), free).is_err());
    }
}
