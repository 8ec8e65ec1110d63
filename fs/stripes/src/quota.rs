//! Quotas as values: how much each user and group may store and has, and how the log keeps the
//! limits, as an attribute of the top directory. What is asked and added of them while the store
//! is used is in `charge.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_core_stripes::BLOCK;

use crate::names::{Body, Names, ROOT};

/// The attribute of the top directory: a line for each user or group, with the number of the user,
/// or `@` and that of the group, bytes and files, 0 for no limit.
pub(crate) const ATTRIBUTE: &[u8] = b"system.margay.quota";

/// Who has a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    User(u32),
    Group(u32),
}

impl Owner {
    /// Reads it as [`fmt::Display`] writes it: the number of a user, or `@` and that of a group.
    #[must_use]
    pub fn parse(text: &str) -> Option<Owner> {
        match text.strip_prefix('@') {
            Some(group) => group.parse().ok().map(Owner::Group),
            None => text.parse().ok().map(Owner::User),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::User(number) => write!(f, "{number}"),
            Owner::Group(number) => write!(f, "@{number}"),
        }
    }
}

/// Bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// As `stat` counts them: in blocks that are stored, without parity.
    pub bytes: u64,
    /// Files, directories, links and special files.
    pub files: u64,
}

impl Amount {
    fn add(&mut self, more: Amount) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.files = self.files.saturating_add(more.files);
    }

    /// Whether somebody who has this, and gets `more` of it, stays within a limit. There 0 is none.
    fn is_within(self, limit: Amount, more: Amount) -> bool {
        let fits = |has, most, more| most == 0 || more == 0 || has <= most;
        fits(self.bytes, limit.bytes, more.bytes) && fits(self.files, limit.files, more.files)
    }
}

/// A user or group with what that one may have and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub owner: Owner,
    pub limit: Amount,
    pub used: Amount,
}

/// The limits, and what users and groups had and have got since.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    /// Whether there are any, so that nobody else pays for them.
    pub(crate) are_there: AtomicBool,
    pub(crate) owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) limits: BTreeMap<Owner, Amount>,
    pub(crate) used: BTreeMap<Owner, Amount>,
    /// Changes of the file system, up to which that was counted.
    pub(crate) counted: Option<u64>,
    /// Whether anything was added since.
    pub(crate) has_added: bool,
}

pub(crate) fn encode(limits: &BTreeMap<Owner, Amount>) -> Option<Vec<u8>> {
    let line =
        |(owner, limit): (&Owner, &Amount)| format!("{owner} {} {}\n", limit.bytes, limit.files);
    let text: String = limits.iter().map(line).collect();
    (!text.is_empty()).then(|| text.into_bytes())
}

/// The limits of an attribute; lines that are none are left out.
fn decode(bytes: &[u8]) -> BTreeMap<Owner, Amount> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let mut words = line.split(' ');
        let owner = Owner::parse(words.next()?)?;
        let bytes = words.next()?.parse().ok()?;
        let files = words.next()?.parse().ok()?;
        Some((owner, Amount { bytes, files }))
    };
    text.lines().filter_map(line).collect()
}

/// What all users and groups have. What has no name any more is none of it: the kernel gives a
/// deleted file back some time later, and its owner may write again at once.
pub(crate) fn count(names: &Names) -> BTreeMap<Owner, Amount> {
    let mut used: BTreeMap<Owner, Amount> = BTreeMap::new();
    for (_, inode) in names.after(0).filter(|(_, one)| one.attr.nlink > 0) {
        let bytes = match &inode.body {
            Body::File(data) => data.blocks.load(Ordering::SeqCst) * BLOCK as u64,
            _ => 0,
        };
        let one = Amount { bytes, files: 1 };
        for owner in [Owner::User(inode.attr.uid), Owner::Group(inode.attr.gid)] {
            used.entry(owner).or_default().add(one);
        }
    }
    used
}

impl Quotas {
    /// Takes what the log has.
    pub(crate) fn of(names: &Names) -> Quotas {
        let attribute = names
            .get(ROOT)
            .ok()
            .and_then(|top| top.attributes.get(ATTRIBUTE));
        let limits = attribute.map_or_else(BTreeMap::new, |bytes| decode(bytes));
        Quotas {
            are_there: AtomicBool::new(!limits.is_empty()),
            owners: Mutex::new(Owners {
                limits,
                ..Owners::default()
            }),
        }
    }
}

impl Owners {
    /// Adds what the owners of a file get, unless it is too much for one of them.
    pub(crate) fn add(&mut self, owners: &[Owner], more: Amount) -> bool {
        let has = |owner| self.used.get(owner).copied().unwrap_or_default();
        let sums = owners.iter().map(|owner| {
            let mut sum = has(owner);
            sum.add(more);
            (*owner, sum)
        });
        let sums: Vec<(Owner, Amount)> = sums.collect();
        let limit = |owner| self.limits.get(owner).copied().unwrap_or_default();
        let fits = sums
            .iter()
            .all(|(owner, sum)| sum.is_within(limit(owner), more));
        if fits {
            self.used.extend(sums);
            self.has_added = true;
        }
        fits
    }

    /// Bytes that all of these may still get.
    pub(crate) fn room(&self, owners: &[Owner]) -> u64 {
        let limited = owners
            .iter()
            .filter_map(|owner| self.limits.get_key_value(owner));
        let room = limited
            .filter(|(_, limit)| limit.bytes > 0)
            .map(|(owner, limit)| {
                let used = self.used.get(owner).map_or(0, |used| used.bytes);
                limit.bytes.saturating_sub(used)
            });
        room.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_were_written_and_noise_is_none() {
        let limit = |bytes, files| Amount { bytes, files };
        let limits = BTreeMap::from([
            (Owner::User(0), limit(0, 7)),
            (Owner::User(1000), limit(u64::MAX, 0)),
            (Owner::Group(1000), limit(1, 2)),
        ]);
        let bytes = encode(&limits).expect("some");
        assert!(bytes.ends_with(b"\n@1000 1 2\n"));
        assert_eq!(decode(&bytes), limits);
        assert_eq!(encode(&BTreeMap::new()), None);
        assert!(decode(b"a b c\n1 2\n\xff\n-1 3 4\n@ 1 2\n@@1 1 2\n").is_empty());
    }
}
