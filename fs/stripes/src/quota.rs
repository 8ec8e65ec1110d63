//! Quotas: how much each user may store. The limits are an attribute of the top directory, so the
//! log keeps them. What a user has is counted when it is asked for, and what is written and made
//! meanwhile is added, so nothing that frees space has to know of quotas: before something is
//! refused, it is counted again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use margay_core_stripes::BLOCK;

use crate::array::lock;
use crate::change::Change;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::{Body, Names, ROOT, read};
use crate::store::Store;

/// The attribute of the top directory: a line for each user, with the number of the user, bytes
/// and files, 0 for no limit.
const ATTRIBUTE: &[u8] = b"system.margay.quota";

/// Users that have quotas, at most.
const MOST_USERS: usize = 1000;

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
    are_there: AtomicBool,
    users: Mutex<Users>,
}

#[derive(Debug, Default)]
struct Users {
    limits: BTreeMap<u32, Amount>,
    used: BTreeMap<u32, Amount>,
    /// Changes of the file system, up to which that was counted.
    counted: Option<u64>,
    /// Whether anything was added since.
    has_added: bool,
}

fn encode(limits: &BTreeMap<u32, Amount>) -> Option<Vec<u8>> {
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
fn count(names: &Names) -> BTreeMap<u32, Amount> {
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

impl Store {
    /// Sets the limits of a user; 0 is no limit.
    ///
    /// # Errors
    /// When too many users have limits.
    pub fn set_quota(&self, user: u32, limit: Amount) -> Result<()> {
        let mut users = lock(&self.quotas.users);
        let mut limits = users.limits.clone();
        match limit == Amount::default() {
            true => drop(limits.remove(&user)),
            false => drop(limits.insert(user, limit)),
        }
        if limits.len() > MOST_USERS {
            return Err(Fault::Invalid);
        }
        let change = Change::Attribute(ROOT, ATTRIBUTE.to_vec(), encode(&limits));
        {
            let mut names = self.write_names();
            names.apply(change.clone());
            self.push(&[change], vec![]);
        }
        self.quotas
            .are_there
            .store(!limits.is_empty(), Ordering::SeqCst);
        users.limits = limits;
        users.counted = None;
        drop(users);
        self.commit()
    }

    /// The users that have limits or files.
    #[must_use]
    pub fn quotas(&self) -> Vec<Quota> {
        let used = count(&self.read_names());
        let limits = lock(&self.quotas.users).limits.clone();
        let mut all: BTreeMap<u32, Quota> = BTreeMap::new();
        for user in used.keys().chain(limits.keys()) {
            let quota = Quota {
                user: *user,
                limit: limits.get(user).copied().unwrap_or_default(),
                used: used.get(user).copied().unwrap_or_default(),
            };
            all.insert(*user, quota);
        }
        all.into_values().collect()
    }

    /// Adds what a user is going to have. No lock is held.
    ///
    /// # Errors
    /// When it is more than the user may have.
    fn charge(&self, user: u32, more: Amount) -> Result<()> {
        let mut users = lock(&self.quotas.users);
        let Some(limit) = users.limits.get(&user).copied() else {
            return Ok(());
        };
        if users.counted.is_some() && users.add(user, more, limit) {
            return Ok(());
        }
        // Something may have been deleted, or written over.
        users = self.recount(users)?;
        match users.add(user, more, limit) {
            true => Ok(()),
            false => Err(Fault::OverQuota),
        }
    }

    /// Counts again what users have, if there was any change.
    fn recount<'a>(&'a self, mut users: MutexGuard<'a, Users>) -> Result<MutexGuard<'a, Users>> {
        let waits = self.waiting() > 0;
        if waits {
            // What waits in memory has no blocks yet.
            drop(users);
            self.write_out_all()?;
            users = lock(&self.quotas.users);
        }
        let now = self.changes();
        if users.counted != Some(now) || users.has_added {
            users.used = count(&self.read_names());
            users.counted = Some(now);
            users.has_added = false;
        }
        Ok(users)
    }

    /// Forgets what users have, as when a file gets another owner.
    pub(crate) fn forget_counts(&self) {
        if self.has_quotas() {
            lock(&self.quotas.users).counted = None;
        }
    }

    /// Adds a new file.
    ///
    /// # Errors
    /// When it is more than that user may have.
    pub(crate) fn charge_file(&self, user: u32) -> Result<()> {
        if !self.has_quotas() {
            return Ok(());
        }
        let one = Amount { bytes: 0, files: 1 };
        self.charge(user, one)
    }

    /// Whether anybody has a quota.
    fn has_quotas(&self) -> bool {
        self.quotas.are_there.load(Ordering::Relaxed)
    }

    /// Adds what the owner of a file is going to have when it is written.
    ///
    /// # Errors
    /// When it is more than that user may have.
    pub(crate) fn charge_write(
        &self,
        ino: u64,
        data: &FileData,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if !self.has_quotas() {
            return Ok(());
        }
        let user = self.read_names().get(ino)?.attr.uid;
        let bytes = self.growth(data, offset, len);
        if bytes == 0 {
            return Ok(());
        }
        self.charge(user, Amount { bytes, files: 0 })
    }

    /// Bytes by which the blocks of a file grow, at most, when it is written.
    fn growth(&self, data: &FileData, offset: u64, len: u64) -> u64 {
        let row_bytes = self.array.layout.row_bytes() as u64;
        let block = BLOCK as u64;
        let end = offset.saturating_add(len);
        let size = data.size.load(Ordering::SeqCst).max(end);
        let rows = read(data);
        let mut growth = 0;
        for row in offset / row_bytes..end.div_ceil(row_bytes) {
            let start = row * row_bytes;
            let whole = size.saturating_sub(start).min(row_bytes).div_ceil(block);
            let waits = rows.partial.contains_key(&row) || rows.landing.contains_key(&row);
            let stored = rows.map.get(&row).map_or(0, |at| u64::from(at.blocks));
            let counted = if waits {
                // A row that waits was added with all up to the end of the file.
                let before = data.size.load(Ordering::SeqCst).saturating_sub(start);
                before.min(row_bytes).div_ceil(block)
            } else {
                stored
            };
            growth += whole.saturating_sub(counted) * block;
        }
        growth
    }
}

impl Users {
    /// Adds what a user gets, unless it is too much.
    fn add(&mut self, user: u32, more: Amount, limit: Amount) -> bool {
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
