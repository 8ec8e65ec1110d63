//! Handles of groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_core_group::Group;

use crate::constants::group::*;
use crate::constants::session::MPI_SESSION_NULL;
use crate::error::*;
use crate::handle::{Kind, Table};
use crate::{Mpi, fail};

/// The groups that have handles. A group that is also a communicator's (a window's, a file's) has
/// one handle however often the program asks for it: programs that never free what `MPI_Comm_group`
/// and its like give them do not fill the table.
pub(crate) struct Groups {
    table: Table<Entry>,
    /// The handles of groups that others have too, by address and session. The entry keeps the
    /// group, so no other one gets that address meanwhile.
    shared: BTreeMap<(usize, u32), u32>,
}

struct Entry {
    group: Arc<Group>,
    session: u32,
    /// How often the handle was given.
    given: u64,
}

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups {
            table: Table::new(Kind::Group),
            shared: BTreeMap::new(),
        }
    }

    /// Returns the handle of a group, `None` when a million others exist.
    fn give(&mut self, group: Arc<Group>, session: u32) -> Option<u32> {
        let key = (Arc::as_ptr(&group).addr(), session);
        let known = self.shared.get(&key).copied();
        if let Some(handle) = known
            && let Some(entry) = self.table.get_mut(handle)
        {
            entry.given += 1;
            return Some(handle);
        }
        let is_shared = Arc::strong_count(&group) > 1;
        let handle = self.table.insert(Entry {
            group,
            session,
            given: 1,
        })?;
        if is_shared {
            self.shared.insert(key, handle);
        }
        Some(handle)
    }

    /// Takes a handle back. Returns false when there is no such handle.
    fn take(&mut self, handle: u32) -> bool {
        let Some(entry) = self.table.get_mut(handle) else {
            return false;
        };
        entry.given -= 1;
        if entry.given == 0 {
            let key = (Arc::as_ptr(&entry.group).addr(), entry.session);
            if self.shared.get(&key) == Some(&handle) {
                self.shared.remove(&key);
            }
            self.table.discard(handle);
        }
        true
    }
}

impl Mpi {
    /// Returns the group of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn group(&self, handle: u32) -> Result<Arc<Group>> {
        match handle {
            MPI_GROUP_EMPTY => Ok(Arc::new(Group::empty())),
            MPI_GROUP_NULL => fail!(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL"),
            _ => match self.objects().groups.table.get(handle) {
                Some(entry) => Ok(entry.group.clone()),
                None => Err(unknown(handle)),
            },
        }
    }

    /// Returns the session that a group comes from, `MPI_SESSION_NULL` when it comes from none.
    #[must_use]
    pub fn group_session(&self, handle: u32) -> u32 {
        let objects = self.objects();
        let found = objects.groups.table.get(handle);
        found.map_or(MPI_SESSION_NULL, |entry| entry.session)
    }

    /// Gives a group that comes from `session` a handle; that without processes is
    /// `MPI_GROUP_EMPTY`.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn group_add(&self, group: Arc<Group>, session: u32) -> Result<u32> {
        if group.size() == 0 {
            return Ok(MPI_GROUP_EMPTY);
        }
        match self.objects().groups.give(group, session) {
            Some(handle) => Ok(handle),
            None => fail!(
                MPI_ERR_GROUP,
                "a million groups exist; free some with MPI_Group_free"
            ),
        }
    }

    /// `MPI_Group_free`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn group_free(&self, handle: u32) -> Result<()> {
        // Functions that give an empty group give this one, so freeing it must work.
        if handle == MPI_GROUP_EMPTY || self.objects().groups.take(handle) {
            return Ok(());
        }
        self.group(handle).map(drop)
    }
}

#[cold]
fn unknown(handle: u32) -> Error {
    Error::new(
        MPI_ERR_GROUP,
        format!("{handle:#x} is not a group; was it freed?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_group_has_one_handle() {
        let mut groups = Groups::new();
        let shared = Arc::new(Group::range(0, 3));
        let a = groups.give(shared.clone(), 0).unwrap();
        for _ in 0..3_000_000 {
            assert_eq!(groups.give(shared.clone(), 0), Some(a));
        }
        assert_ne!(groups.give(shared.clone(), 7), Some(a));
        for _ in 0..3_000_001 {
            assert!(groups.take(a));
        }
        assert!(!groups.take(a));
        let again = groups.give(shared, 0).unwrap();
        assert_ne!(again, a);
        assert!(groups.take(again));
    }

    #[test]
    fn an_own_group_has_an_own_handle() {
        let mut groups = Groups::new();
        let a = groups.give(Arc::new(Group::range(0, 3)), 0).unwrap();
        let b = groups.give(Arc::new(Group::range(0, 3)), 0).unwrap();
        assert_ne!(a, b);
        assert!(groups.take(a) && groups.take(b) && !groups.take(b));
    }
}
