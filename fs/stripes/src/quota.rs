//! Quotas as values: how much each user may store and has, and how the log keeps the limits, as an
//! attribute of the top directory. What is asked and added of them while the store is used is in
//! `charge.rs`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_core_stripes::BLOCK;

use crate::names::{Body, Names, ROOT};

/// The attribute of the top directory: a line for each user, with the number of the user, bytes
/// and files, 0 for no limit.
pub(crate) const ATTRIBUTE: &[u8] = b"system.margay.quota";

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

    /// Whether a user who has this, and gets `more` of it, stays within a limit. There 0 is none.
    fn is_within(self, limit: Amount, more: Amount) -> bool {
        let fits = |has, most, more| most == 0 || more == 0 || has <= most;
        fits(self.bytes, limit.bytes, more.bytes) && fits(self.files, limit.files, more.files)
    }
}

/// A user with what that one may have and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub user: u32,
    pub limit: Amount,
    pub used: Amount,
}

/// The limits, and what users had and have got since.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    /// Whether there are any, so that nobody else pays for them.
    pub(crate) are_there: AtomicBool,
    pub(crate) users: Mutex<Users>,
}

#[derive(Debug, Default)]
pub(crate) struct Users {
    pub(crate) limits: BTreeMap<u32, Amount>,
    pub(crate) used: BTreeMap<u32, Amount>,
    /// Changes of the file system, up to which that was counted.
    pub(crate) counted: Option<u64>,
    /// Whether anything was added since.
    pub(crate) has_added: bool,
}

pub(crate) fn encode(limits: &BTreeMap<u32, Amount>) -> Option<Vec<u8>> {
    let line = |(user, limit): (&u32, &Amount)| format!("{user} {} {}\n", limit.bytes, limit.files);
    let text: String = limits.iter().map(line).collect();
    (!text.is_empty()).then(|| text.into_bytes())
}

/// The limits of an attribute; lines that are none are left out.
fn decode(bytes: &[u8]) -> BTreeMap<u32, Amount> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let mut words = line.split(' ');
        let user = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let files = words.next()?.parse().ok()?;
        Some((user, Amount { bytes, files }))
    };
    text.lines().filter_map(line).collect()
}

/// What all users have. What has no name any more is none of it: the kernel gives a deleted file
/// back some time later, and its owner may write again at once.
pub(crate) fn count(names: &Names) -> BTreeMap<u32, Amount> {
    let mut used: BTreeMap<u32, Amount> = BTreeMap::new();
    for (_, inode) in names.after(0).filter(|(_, one)| one.attr.nlink > 0) {
        let bytes = match &inode.body {
            Body::File(data) => data.blocks.load(Ordering::SeqCst) * BLOCK as u64,
            _ => 0,
        };
        let one = Amount { bytes, files: 1 };
        used.entry(inode.attr.uid).or_default().add(one);
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
            users: Mutex::new(Users {
                limits,
                ..Users::default()
            }),
        }
    }
}

impl Users {
    /// Adds what a user gets, unless it is too much.
    pub(crate) fn add(&mut self, user: u32, more: Amount, limit: Amount) -> bool {
        let used = self.used.entry(user).or_default();
        let mut sum = *used;
        sum.add(more);
        let fits = sum.is_within(limit, more);
        if fits {
            *used = sum;
            self.has_added = true;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_were_written_and_noise_is_none() {
        let limit = |bytes, files| Amount { bytes, files };
        let limits = BTreeMap::from([(0, limit(0, 7)), (1000, limit(u64::MAX, 0))]);
        let bytes = encode(&limits).expect("some");
        assert_eq!(decode(&bytes), limits);
        assert_eq!(encode(&BTreeMap::new()), None);
        assert!(decode(b"a b c\n1 2\n\xff\n-1 3 4\n").is_empty());
    }
}
