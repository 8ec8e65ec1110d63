//! Which ranks a communicator has, from the records that name it.

use std::collections::{BTreeMap, HashSet};

use margay_core_record::Kind;

use crate::format::Trace;

/// The number of `MPI_COMM_WORLD`, and of `MPI_COMM_SELF`, which each rank has for itself.
const WORLD: u32 = 0;
const OWN: u32 = 1;

/// The ranks of a communicator, in the order of their world ranks.
#[derive(Debug, PartialEq, Eq)]
pub enum Members {
    All,
    /// Of each rank that one alone.
    Own,
    These(Vec<u32>),
    /// The trace does not say; all may be.
    Unknown,
}

impl Members {
    /// The rank in the communicator of a world rank, for messages and operations of `own`.
    pub fn rank(&self, own: u32, process: u32, ranks: u32) -> Option<u32> {
        match self {
            Members::All | Members::Unknown => (process < ranks).then_some(process),
            Members::Own => (process == own).then_some(0),
            Members::These(members) => members.binary_search(&process).ok().map(|at| at as u32),
        }
    }

    /// How many they are; none when that is not known.
    pub fn size(&self, ranks: u32) -> Option<u32> {
        match self {
            Members::All => Some(ranks),
            Members::Own => Some(1),
            Members::These(members) => Some(members.len() as u32),
            Members::Unknown => None,
        }
    }
}

/// The communicators of a trace by their numbers.
pub struct Communicators {
    all: BTreeMap<u32, (u32, Members)>,
}

/// What records say of a communicator.
#[derive(Default)]
struct Seen {
    ranks: HashSet<u32>,
    /// How many ranks its operations have; none when they do not agree.
    sizes: Option<Result<u32, ()>>,
}

impl Communicators {
    /// The number of the communicator that a record names: messages have twice the number, and
    /// operations one more.
    fn number(context: u32) -> u32 {
        context / 2
    }

    pub fn of(trace: &Trace) -> Communicators {
        let ranks = trace.head.ranks;
        let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
        for of in &trace.threads {
            // Most records name what the record before named.
            let mut last = None;
            for record in &of.records {
                let (peer, size) = match record.kind {
                    Kind::Send | Kind::Sent | Kind::Receive | Kind::Received => (record.peer, 0),
                    Kind::Collective => (record.peer, record.tag),
                    _ => continue,
                };
                let number = Self::number(record.context);
                if last.replace((number, peer, size)) == Some((number, peer, size)) {
                    continue;
                }
                let this = seen.entry(number).or_default();
                this.ranks.insert(of.rank);
                this.ranks.extend(peer.filter(|&peer| peer < ranks));
                if size != 0 {
                    let known = this.sizes.unwrap_or(Ok(size));
                    this.sizes = Some(known.and_then(|known| match known == size {
                        true => Ok(size),
                        false => Err(()),
                    }));
                }
            }
        }
        let members = |number: u32, seen: Seen| match seen.sizes {
            Some(Ok(size)) if size == ranks => Members::All,
            None | Some(Ok(1)) if number == OWN => Members::Own,
            Some(Ok(size)) if size as usize == seen.ranks.len() => {
                let mut ranks: Vec<u32> = seen.ranks.into_iter().collect();
                ranks.sort_unstable();
                Members::These(ranks)
            }
            _ => Members::Unknown,
        };
        let all = (0..)
            .zip(seen)
            .map(|(place, (number, seen))| (number, (place, members(number, seen))))
            .collect();
        Communicators { all }
    }

    /// The communicator of a record: its place among all, and its members.
    pub fn get(&self, context: u32) -> Option<&(u32, Members)> {
        self.all.get(&Self::number(context))
    }

    /// All with their names, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (String, &Members)> {
        self.all.iter().map(|(&number, (_, members))| {
            let name = match (number, members) {
                (WORLD, _) => "MPI_COMM_WORLD".to_owned(),
                (_, Members::Own) => "MPI_COMM_SELF".to_owned(),
                (_, Members::Unknown) => format!("communicator {number}, members unknown"),
                _ => format!("communicator {number}"),
            };
            (name, members)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ThreadRecords;
    use crate::format::tests::record;

    /// A trace of four ranks with these records: rank, kind, context, peer, size.
    fn seen(records: &[(u32, Kind, u32, u32, u32)]) -> Communicators {
        let mut trace = Trace::default();
        trace.head.ranks = 4;
        trace.threads = (records.iter())
            .map(|&(rank, kind, context, peer, tag)| {
                let mut record = record(kind, 0, 1, 1, peer);
                (record.context, record.tag) = (context, tag);
                ThreadRecords {
                    rank,
                    records: vec![record],
                    ..ThreadRecords::default()
                }
            })
            .collect();
        Communicators::of(&trace)
    }

    #[test]
    fn members_are_those_that_all_records_together_name() {
        const NONE: u32 = u32::MAX;
        let found = seen(&[
            (0, Kind::Collective, 1, NONE, 4),
            (2, Kind::Send, 2, 2, 0),
            (1, Kind::Collective, 17, NONE, 2),
            (3, Kind::Collective, 17, NONE, 2),
            (1, Kind::Send, 16, 3, 9),
            // A third rank: an operation between two groups.
            (0, Kind::Collective, 19, NONE, 2),
            (1, Kind::Collective, 19, NONE, 2),
            (2, Kind::Receive, 18, 1, 0),
            (0, Kind::Collective, 21, 0, 1),
            (0, Kind::Collective, 21, 0, 3),
            (3, Kind::Send, 30, 77, 0),
        ]);
        let of = |context| &found.get(context).unwrap().1;
        assert_eq!(
            (of(0), of(1), of(2)),
            (&Members::All, &Members::All, &Members::Own)
        );
        assert_eq!(of(16), &Members::These(vec![1, 3]));
        assert_eq!(
            (of(18), of(20), of(30)),
            (&Members::Unknown, &Members::Unknown, &Members::Unknown)
        );
        assert!(found.get(40).is_none());
        assert_eq!(
            (of(16).rank(1, 3, 4), of(16).rank(1, 2, 4)),
            (Some(1), None)
        );
        assert_eq!((of(2).rank(2, 2, 4), of(2).rank(2, 3, 4)), (Some(0), None));
        assert_eq!(
            (of(30).rank(3, 77, 4), of(0).rank(0, 3, 4)),
            (None, Some(3))
        );
        assert_eq!(
            (of(16).size(4), of(0).size(4), of(18).size(4)),
            (Some(2), Some(4), None)
        );
        let names: Vec<String> = found.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names[..3],
            ["MPI_COMM_WORLD", "MPI_COMM_SELF", "communicator 8"]
        );
        assert_eq!(names[3], "communicator 9, members unknown");
    }
}
