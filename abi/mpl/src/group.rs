//! Groups.

use std::ffi::c_int;

use crate::call::mpl;
use crate::user::Ints;

mpl! {
    /// Makes a group of the tasks of a list; all of them call it.
    fn group(gsize: c_int, glist: Ints, label: c_int, gid: Ints) |mpl| {
        gid.put("gid", &[-1])?;
        gid.put("gid", &[mpl.group_of(&glist.list("glist", gsize)?, label)?])
    }

    /// Divides a group into one for each label, ordered by key; gid gets -1 for the label dontcare.
    fn partition(parent_gid: c_int, key: c_int, label: c_int, gid: Ints) |mpl| {
        gid.put("gid", &[-1])?;
        gid.put("gid", &[mpl.divide(parent_gid, key, label)?.unwrap_or(-1)])
    }

    /// The label of a group.
    fn getlabel(label: Ints, gid: c_int) |mpl| {
        label.put("label", &[mpl.label(gid)?])
    }

    /// The tasks of a group in the order of their ranks.
    fn getmembers(glist: Ints, gid: c_int) |mpl| {
        glist.put("glist", &mpl.tasks_of(gid)?)
    }

    /// How many tasks a group has.
    fn getsize(gsize: Ints, gid: c_int) |mpl| {
        gsize.put("gsize", &[mpl.size_of(gid)? as c_int])
    }

    /// The rank of a task in a group.
    fn getrank(rank: Ints, taskid: c_int, gid: c_int) |mpl| {
        rank.put("rank", &[mpl.rank_of(taskid, gid)?])
    }

    /// The task with a rank in a group.
    fn gettaskid(rank: c_int, taskid: Ints, gid: c_int) |mpl| {
        taskid.put("taskid", &[mpl.task_at(rank, gid)?])
    }
}
