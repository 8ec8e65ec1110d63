//! On which hosts of a machine of several a job gets its slots.

use crate::job::{Job, Part};
use crate::profile::Room;

/// A host of a machine of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub slots: u32,
    pub memory_mib: u64,
    /// It answers: jobs may start there.
    pub is_up: bool,
}

impl Host {
    pub(crate) fn room(&self) -> Room {
        Room::new(self.slots, self.memory_mib)
    }
}

/// What a job takes on the hosts where it has slots.
pub(crate) fn parts_of(job: &Job) -> impl Iterator<Item = (usize, Room)> {
    let each = memory_of_slot(job);
    job.parts.iter().map(move |part| {
        let memory = each.saturating_mul(u64::from(part.slots));
        (part.host as usize, Room::new(part.slots, memory))
    })
}

fn memory_of_slot(job: &Job) -> u64 {
    job.memory_mib.div_ceil(u64::from(job.slots.max(1)))
}

/// Slots that are of one host, and how many of such units a job needs.
fn units(job: &Job) -> (u32, u32) {
    let slots = job.slots.max(1);
    let each = job.slots_together.max(1);
    match slots.is_multiple_of(each) {
        true => (each, slots / each),
        false => (1, slots),
    }
}

/// On how many hosts a job is to run; none where that is not said, or there are not as many.
fn wanted(job: &Job, hosts: usize) -> Option<usize> {
    let nodes = job.nodes.map(|nodes| nodes as usize);
    nodes.filter(|nodes| (1..=hosts).contains(nodes))
}

/// Where a job gets its slots, when this much is free on each host; none where it finds no place.
/// A job for which nothing else is said gets as few hosts as possible, and of these the fullest.
pub(crate) fn place(free: &[Room], job: &Job) -> Option<Vec<Part>> {
    let (each, count) = units(job);
    let memory = i64::try_from(memory_of_slot(job)).unwrap_or(i64::MAX);
    let unit_mib = memory.saturating_mul(i64::from(each));
    let capacity = |room: &Room| -> u32 {
        let by_memory = match unit_mib {
            0 => i64::MAX,
            unit => room.memory_mib / unit,
        };
        let by_slots = room.slots / i64::from(each);
        u32::try_from(by_slots.min(by_memory).max(0)).unwrap_or(u32::MAX)
    };
    // The fullest first, and of equal ones that which stands first in the list.
    let mut hosts: Vec<(u32, usize)> = free.iter().map(capacity).zip(0..).collect();
    hosts.retain(|(units, _)| *units > 0);
    hosts.sort_unstable();
    let chosen = match wanted(job, free.len()) {
        Some(nodes) => spread(&hosts, count, nodes)?,
        None => gather(&hosts, count)?,
    };
    let mut chosen: Vec<(u32, usize)> = chosen
        .into_iter()
        .map(|(units, host)| (host as u32, units as usize))
        .collect();
    chosen.sort_unstable();
    let part = |(host, units): (u32, usize)| Part {
        host,
        slots: (units as u32).saturating_mul(each),
    };
    Some(chosen.into_iter().map(part).collect())
}

/// Places a job and takes what it needs.
pub(crate) fn take(free: &mut [Room], job: &Job) -> Option<Vec<Part>> {
    let parts = place(free, job)?;
    take_parts(free, job, &parts, 1);
    Some(parts)
}

/// Takes what a job needs where it is: its memory, and its slots `times`.
pub(crate) fn take_parts(free: &mut [Room], job: &Job, parts: &[Part], times: u32) {
    let memory = memory_of_slot(job);
    for part in parts {
        let host = &mut free[part.host as usize];
        let memory = memory.saturating_mul(u64::from(part.slots));
        *host = host.minus(Room::new(part.slots * times, memory));
    }
}

/// Units on as few hosts as possible.
fn gather(hosts: &[(u32, usize)], count: u32) -> Option<Vec<(u32, usize)>> {
    if let Some(&(_, host)) = hosts.iter().find(|(units, _)| *units >= count) {
        return Some(vec![(count, host)]);
    }
    let by_units = |(units, host): &(u32, usize)| (u32::MAX - units, *host);
    let mut emptiest: Vec<(u32, usize)> = hosts.iter().map(by_units).collect();
    emptiest.sort_unstable();
    let (mut left, mut chosen) = (count, Vec::new());
    for (full, host) in emptiest {
        let taken = (u32::MAX - full).min(left);
        chosen.push((taken, host));
        left -= taken;
        if left == 0 {
            return Some(chosen);
        }
    }
    None
}

/// Units on this many hosts: on each as many, or nearly; where that does not fit, at least one.
fn spread(hosts: &[(u32, usize)], count: u32, nodes: usize) -> Option<Vec<(u32, usize)>> {
    let all = u32::try_from(nodes).ok()?;
    let (usual, more) = (count / all, count % all);
    let enough: Vec<&(u32, usize)> = hosts.iter().filter(|(units, _)| *units >= usual).collect();
    // Those that take one more are the last: they have most room.
    let fullest = enough.get(..nodes);
    let fits = |chosen: &[&(u32, usize)]| {
        let last = &chosen[nodes - more as usize..];
        last.iter().all(|(units, _)| *units > usual)
    };
    let emptiest = enough.len().checked_sub(nodes).map(|from| &enough[from..]);
    for chosen in [fullest, emptiest].into_iter().flatten() {
        if fits(chosen) && usual > 0 {
            let less = nodes - more as usize;
            let taken = |at: usize| usual + u32::from(at >= less);
            let with = chosen.iter().enumerate();
            return Some(with.map(|(at, (_, host))| (taken(at), *host)).collect());
        }
    }
    let emptiest = hosts.get(hosts.len().checked_sub(nodes)?..)?;
    let mut left = count.checked_sub(all)?;
    let mut chosen: Vec<(u32, usize)> = Vec::with_capacity(nodes);
    for (units, host) in emptiest {
        let taken = (units - 1).min(left);
        left -= taken;
        chosen.push((taken + 1, *host));
    }
    (left == 0).then_some(chosen)
}

/// Keeps hosts free for a job that finds no place although enough is free: those on which it would
/// be if nothing ran, the emptiest first. Others that start would scatter what is free anew.
pub(crate) fn keep_free(free: &mut [Room], hosts: &[Host], job: &Job) {
    let whole: Vec<Room> = hosts
        .iter()
        .map(|host| {
            if host.is_up {
                host.room()
            } else {
                Room::default()
            }
        })
        .collect();
    let by_slots = |room: &Room| u32::MAX - u32::try_from(room.slots.max(0)).unwrap_or(u32::MAX);
    let mut order: Vec<(u32, usize)> = free.iter().map(by_slots).zip(0..).collect();
    order.sort_unstable();
    // The smallest set of the emptiest hosts that would hold it.
    let mut some = vec![Room::default(); free.len()];
    for (_, host) in order {
        some[host] = whole.get(host).copied().unwrap_or_default();
        if let Some(parts) = place(&some, job) {
            for part in parts {
                free[part.host as usize] = Room::default();
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(slots: &[u32]) -> Vec<Room> {
        slots.iter().map(|&slots| Room::new(slots, 100)).collect()
    }

    fn placed(slots: &[u32], job: &Job) -> Option<Vec<(u32, u32)>> {
        let parts = place(&free(slots), job)?;
        Some(parts.into_iter().map(|p| (p.host, p.slots)).collect())
    }

    fn job(slots: u32, slots_together: u32, nodes: Option<u32>) -> Job {
        Job {
            slots,
            slots_together,
            nodes,
            ..Job::default()
        }
    }

    #[test]
    fn few_hosts_and_the_fullest_of_them() {
        let one = job(2, 1, None);
        assert_eq!(placed(&[4, 2, 3], &one), Some(vec![(1, 2)]));
        assert_eq!(placed(&[1, 1, 0], &one), Some(vec![(0, 1), (1, 1)]));
        assert_eq!(placed(&[1, 0, 0], &one), None);
        assert_eq!(placed(&[1, 1, 1], &job(2, 2, None)), None, "of one host");
        assert_eq!(
            placed(&[3, 5, 2], &job(6, 2, None)),
            Some(vec![(0, 2), (1, 4)])
        );
    }

    #[test]
    fn as_many_hosts_as_asked_for() {
        assert_eq!(
            placed(&[4, 4, 4], &job(4, 1, Some(2))),
            Some(vec![(0, 2), (1, 2)])
        );
        assert_eq!(
            placed(&[2, 1, 4], &job(3, 1, Some(2))),
            Some(vec![(0, 2), (1, 1)])
        );
        assert_eq!(
            placed(&[2, 4], &job(6, 1, Some(2))),
            Some(vec![(0, 2), (1, 4)])
        );
        assert_eq!(placed(&[4, 0], &job(2, 1, Some(2))), None);
        // More than there are hosts: they are parts of hosts.
        assert_eq!(placed(&[4, 1], &job(4, 1, Some(4))), Some(vec![(0, 4)]));
    }

    #[test]
    fn memory_is_where_the_slots_are() {
        let mut large = job(2, 1, None);
        large.memory_mib = 150;
        assert_eq!(placed(&[2, 2], &large), Some(vec![(0, 1), (1, 1)]));
        large.slots_together = 2;
        assert_eq!(placed(&[2, 2], &large), None);
    }

    #[test]
    fn what_is_placed_is_what_was_asked_for_and_fits() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
            let all: Vec<u32> = (0..=next(5)).map(|_| next(6) as u32).collect();
            let together = 1 + next(3) as u32;
            let units = 1 + next(8) as u32;
            let nodes = Some(1 + next(5) as u32).filter(|n| *n <= units && n % 2 == 0);
            let asked = job(units * together, together, nodes);
            let Some(parts) = placed(&all, &asked) else {
                let units_free: u32 = all.iter().map(|slots| slots / together).sum();
                assert!(units_free < units || nodes.is_some(), "{all:?} {asked:?}");
                continue;
            };
            assert_eq!(parts.iter().map(|p| p.1).sum::<u32>(), asked.slots);
            for (host, slots) in &parts {
                assert!(*slots > 0 && *slots <= all[*host as usize] && slots % together == 0);
            }
            if let Some(nodes) = nodes.filter(|n| *n as usize <= all.len()) {
                assert_eq!(parts.len(), nodes as usize, "{all:?} {asked:?}");
            }
        }
    }

    #[test]
    fn the_emptiest_hosts_are_kept_for_who_is_first() {
        let hosts = [4, 4, 4].map(|slots| Host {
            slots,
            memory_mib: 0,
            is_up: true,
        });
        let mut rooms = free(&[2, 3, 2]);
        keep_free(&mut rooms, &hosts, &job(4, 4, None));
        assert_eq!(rooms.map_slots(), [2, 0, 2]);
    }

    trait Slots {
        fn map_slots(&self) -> Vec<i64>;
    }

    impl Slots for Vec<Room> {
        fn map_slots(&self) -> Vec<i64> {
            self.iter().map(|room| room.slots).collect()
        }
    }
}
