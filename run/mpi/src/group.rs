//! Handles of groups.

use std::sync::Arc;

use margay_core_group::Group;

use crate::constants::group::*;
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
                Some(group) => Ok(group.clone()),
                None => fail!(MPI_ERR_GROUP, "{handle:#x} is not a group; was it freed?"),
            },
        }
    }

    /// Gives a group a handle; that without processes is `MPI_GROUP_EMPTY`.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn group_add(&self, group: Arc<Group>) -> Result<u32> {
        if group.size() == 0 {
            return Ok(MPI_GROUP_EMPTY);
        }
        match self.objects().groups.insert(group) {
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
