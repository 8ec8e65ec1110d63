//! What users are charged: quotas are set and shown, and checked before something is written or
//! made. What a user has is counted when it is asked for, and what is written and made meanwhile is
//! added, so nothing that frees space has to know of quotas: before something is refused, it is
//! counted again.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use margay_core_stripes::BLOCK;

use crate::array::lock;
use crate::change::Change;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::{ROOT, read};
use crate::quota::{ATTRIBUTE, Amount, Quota, Users, count, encode};
use crate::store::Store;

/// Users that have quotas, at most.
const MOST_USERS: usize = 1000;

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
        let block = BLOCK as u64;
        let end = offset.saturating_add(len);
        let size = data.size.load(Ordering::SeqCst).max(end);
        let rows = read(data);
        let row_bytes = rows.layout.row_bytes() as u64;
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
