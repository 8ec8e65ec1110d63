//! Handles of groups.

use std::sync::Arc;

use margay_core_group::Group;

use crate::constants::group::*;
use crate::constants::session::MPI_SESSION_NULL;
use crate::error::*;
use crate::{Mpi, fail};

impl Mpi {
    /// The group of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn group(&self, handle: u32) -> Result<Arc<Group>> {
        match handle {
            MPI_GROUP_EMPTY => Ok(Arc::new(Group::empty())),
            MPI_GROUP_NULL => fail!(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL"),
            _ => match self.objects().groups.get(handle) {
                Some((group, _)) => Ok(group.clone()),
                None => fail!(MPI_ERR_GROUP, "{handle:#x} is not a group; was it freed?"),
            },
        }
    }

    /// The session that a group comes from, `MPI_SESSION_NULL` when it comes from none.
    #[must_use]
    pub fn group_session(&self, handle: u32) -> u32 {
        let objects = self.objects();
        let found = objects.groups.get(handle);
        found.map_or(MPI_SESSION_NULL, |(_, session)| *session)
    }

    /// Gives a group that comes from `session` a handle; that without processes is `MPI_GROUP_EMPTY`.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn group_add(&self, group: Arc<Group>, session: u32) -> Result<u32> {
        if group.size() == 0 {
            return Ok(MPI_GROUP_EMPTY);
        }
        match self.objects().groups.insert((group, session)) {
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
        if handle == MPI_GROUP_EMPTY {
            return Ok(());
        }
        self.group(handle)?;
        self.objects().groups.remove(handle);
        Ok(())
    }
}
