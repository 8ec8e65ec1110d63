//! Groups of tasks, by lists and by partition.

use std::sync::Arc;

use margay_core_group::Group;
use margay_run_mpi::Comm;
use margay_run_mpi::constants::comm::MPI_COMM_NULL;
use margay_run_mpi::constants::errhandler::MPI_ERRORS_RETURN;
use margay_run_mpi::constants::sentinel::MPI_UNDEFINED;
use margay_run_mpi::constants::session::MPI_SESSION_NULL;

use crate::error::*;
use crate::{DONTCARE, Mpl, deny};

/// A group that this task is in.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) comm: Arc<Comm>,
    pub(crate) label: i32,
}

impl Mpl {
    /// `mpc_group`: the group of the tasks of a list, in its order; all of them call it. Its id.
    ///
    /// # Errors
    /// When a task is not there or twice in the list, or the calling one is not in it.
    pub fn group_of(&self, tasks: &[i32], label: i32) -> Result<i32> {
        let mut processes = Vec::new();
        for &task in tasks {
            processes.push(self.existing(task)?);
        }
        let group = match Group::from_processes(processes) {
            Ok(group) => Arc::new(group),
            Err(_) => deny!(MPL_GROUP, "a task stands twice in the list"),
        };
        if group.rank(self.rank.world_rank()).is_none() {
            deny!(
                MPL_GROUP,
                "task {} is not in the list; only the members of a group make it",
                self.task()
            );
        }
        let name = format!("MPL group {label}");
        let handle = self.mpi.comm_create_from_group(
            &group,
            MPI_SESSION_NULL,
            &name,
            Vec::new(),
            MPI_ERRORS_RETURN,
        )?;
        self.add_group(handle, label)
    }

    /// `mpc_partition`: divides a group, all of whose members call it, into one group for each
    /// label; they are ordered by key. Returns the id, or none for a task that passes the label
    /// *dontcare* and stays out.
    ///
    /// # Errors
    /// When there is no such group, or the label is negative.
    pub fn divide(&self, parent: i32, key: i32, label: i32) -> Result<Option<i32>> {
        let parent = self.members(parent)?;
        let color = match label {
            DONTCARE => MPI_UNDEFINED,
            0.. => label,
            _ => deny!(
                MPL_ARGUMENT,
                "the label is {label}; it must not be negative, or dontcare to stay out"
            ),
        };
        let handle = self.mpi.comm_split(&parent.comm, color, key, None)?;
        if handle == MPI_COMM_NULL {
            return Ok(None);
        }
        self.add_group(handle, label).map(Some)
    }

    /// `mpc_getlabel`
    ///
    /// # Errors
    /// When there is no such group. The same holds for all functions that ask for groups.
    pub fn label(&self, gid: i32) -> Result<i32> {
        Ok(self.members(gid)?.label)
    }

    /// `mpc_getmembers`: the tasks of a group in the order of ranks.
    ///
    /// # Errors
    /// As [`label`](Self::label).
    pub fn tasks_of(&self, gid: i32) -> Result<Vec<i32>> {
        let members = self.members(gid)?;
        Ok(members.comm.group.processes().map(|p| p as i32).collect())
    }

    /// `mpc_getrank`: the rank of a task in a group.
    ///
    /// # Errors
    /// When the task is not in it.
    pub fn rank_of(&self, task: i32, gid: i32) -> Result<i32> {
        let members = self.members(gid)?;
        match members.comm.group.rank(self.existing(task)?) {
            Some(rank) => Ok(rank as i32),
            None => deny!(MPL_GROUP, "task {task} is not in the group {gid}"),
        }
    }

    /// `mpc_gettaskid`: the task with a rank in a group.
    ///
    /// # Errors
    /// When there is no such rank.
    pub fn task_at(&self, rank: i32, gid: i32) -> Result<i32> {
        let members = self.members(gid)?;
        match members.comm.group.process(rank as u32) {
            Some(task) => Ok(task as i32),
            None => deny!(
                MPL_GROUP,
                "there is no rank {rank} in the group {gid}; it has the ranks 0 to {}",
                members.comm.size() - 1
            ),
        }
    }

    pub(crate) fn members(&self, gid: i32) -> Result<Members> {
        let groups = self.groups.lock().expect("no panic under this lock");
        match usize::try_from(gid).ok().and_then(|gid| groups.get(gid)) {
            Some(members) => Ok(members.clone()),
            None => deny!(MPL_GROUP, "{gid} is not a group that this task is in"),
        }
    }

    fn add_group(&self, handle: u32, label: i32) -> Result<i32> {
        let comm = self.mpi.comm(handle)?;
        let mut groups = self.groups.lock().expect("no panic under this lock");
        groups.push(Members { comm, label });
        Ok(groups.len() as i32 - 1)
    }
}
