//! What users and groups are charged: quotas are set and shown, and checked before something is
//! written or made. What one has is counted when it is asked for, and what is written and made
//! meanwhile is added, so nothing that frees space has to know of quotas: before something is
//! refused, it is counted again.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use margay_core_stripes::BLOCK;

use crate::array::lock;
use crate::change::Change;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::{ROOT, read};
use crate::quota::{ATTRIBUTE, Amount, Owner, Owners, Quota, count, encode};
use crate::store::Store;

/// Users and groups that have quotas, at most.
const MOST_OWNERS: usize = 1000;

impl Store {
    /// Sets the limits of a user or group; 0 is no limit.
    ///
    /// # Errors
    /// When too many have limits.
    pub fn set_quota(&self, owner: Owner, limit: Amount) -> Result<()> {
        let mut owners = lock(&self.quotas.owners);
        let mut limits = owners.limits.clone();
        match limit == Amount::default() {
            true => drop(limits.remove(&owner)),
            false => drop(limits.insert(owner, limit)),
        }
        if limits.len() > MOST_OWNERS {
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
        owners.limits = limits;
        owners.counted = None;
        drop(owners);
        self.commit()
    }

    /// The users and groups that have limits or files.
    #[must_use]
    pub fn quotas(&self) -> Vec<Quota> {
        let used = count(&self.read_names());
        let limits = lock(&self.quotas.owners).limits.clone();
        let mut all: BTreeMap<Owner, Quota> = BTreeMap::new();
        for owner in used.keys().chain(limits.keys()) {
            let quota = Quota {
                owner: *owner,
                limit: limits.get(owner).copied().unwrap_or_default(),
                used: used.get(owner).copied().unwrap_or_default(),
            };
            all.insert(*owner, quota);
        }
        all.into_values().collect()
    }

    /// Adds what the owners of a file are going to have. No lock is held.
    ///
    /// # Errors
    /// When it is more than one of them may have.
    fn charge(&self, user: u32, group: u32, more: Amount) -> Result<()> {
        let mut owners = lock(&self.quotas.owners);
        let limited = [Owner::User(user), Owner::Group(group)];
        let mut limited = Vec::from(limited);
        limited.retain(|owner| owners.limits.contains_key(owner));
        if limited.is_empty() || owners.counted.is_some() && owners.add(&limited, more) {
            return Ok(());
        }
        // Something may have been deleted, or written over.
        owners = self.recount(owners)?;
        match owners.add(&limited, more) {
            true => Ok(()),
            false => Err(Fault::OverQuota),
        }
    }

    /// Counts again what everybody has, if there was any change.
    fn recount<'a>(&'a self, mut owners: MutexGuard<'a, Owners>) -> Result<MutexGuard<'a, Owners>> {
        let waits = self.waiting() > 0;
        if waits {
            // What waits in memory has no blocks yet.
            drop(owners);
            self.write_out_all()?;
            owners = lock(&self.quotas.owners);
        }
        let now = self.changes();
        if owners.counted != Some(now) || owners.has_added {
            owners.used = count(&self.read_names());
            owners.counted = Some(now);
            owners.has_added = false;
        }
        Ok(owners)
    }

    /// Forgets what everybody has, as when a file gets another owner.
    pub(crate) fn forget_counts(&self) {
        if self.has_quotas() {
            lock(&self.quotas.owners).counted = None;
        }
    }

    /// Adds a new file.
    ///
    /// # Errors
    /// When it is more than that user or group may have.
    pub(crate) fn charge_file(&self, user: u32, group: u32) -> Result<()> {
        if !self.has_quotas() {
            return Ok(());
        }
        let one = Amount { bytes: 0, files: 1 };
        self.charge(user, group, one)
    }

    /// Whether anybody has a quota.
    fn has_quotas(&self) -> bool {
        self.quotas.are_there.load(Ordering::Relaxed)
    }

    /// Adds what the owner of a file is going to have when it is written.
    ///
    /// # Errors
    /// When it is more than that user or the group of the file may have.
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
        let attr = self.read_names().get(ino)?.attr;
        let bytes = self.growth(data, offset, len);
        if bytes == 0 {
            return Ok(());
        }
        self.charge(attr.uid, attr.gid, Amount { bytes, files: 0 })
    }

    /// Adds what the owner of a file is going to have when as many of `len` bytes are written as
    /// that one may have; returns how many.
    ///
    /// # Errors
    /// When there is no room for any.
    pub(crate) fn charge_some(
        &self,
        ino: u64,
        data: &FileData,
        offset: u64,
        len: usize,
    ) -> Result<usize> {
        match self.charge_write(ino, data, offset, len as u64) {
            Err(Fault::OverQuota) => {}
            charged => return charged.map(|()| len),
        }
        let attr = self.read_names().get(ino)?.attr;
        let room = lock(&self.quotas.owners).room(&[Owner::User(attr.uid), Owner::Group(attr.gid)]);
        // Blocks that the bytes touch, of which the first `fits` have room, and `too_many` not.
        let block = BLOCK as u64;
        let first = offset / block;
        let part = |blocks: u64| ((first + blocks) * block).saturating_sub(offset);
        let (mut fits, mut too_many) = (0, (offset + len as u64).div_ceil(block) - first);
        while fits + 1 < too_many {
            let middle = fits.midpoint(too_many);
            match self.growth(data, offset, part(middle)) <= room {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        let part = part(fits);
        if part == 0 {
            return Err(Fault::OverQuota);
        }
        self.charge_write(ino, data, offset, part)?;
        Ok(part as usize)
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
