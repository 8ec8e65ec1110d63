//! Partitions: `margay part` makes them, and the calls cannot yet.

use std::ffi::c_long;

use margay_run_nx::error::{EQPARTITION, Result};
use margay_run_nx::refuse;

use crate::call::nx;
use crate::user::{Longs, LongsPlace, Small, Text, given};

#[cold]
fn none<T>(name: Text) -> Result<T> {
    let name = given(name, "the name of the partition")?;
    refuse!(
        EQPARTITION,
        "a program cannot make or change the partition '{name}' yet; margay part does"
    )
}

nx! {
    /// Makes a partition of this many nodes.
    free fn nx_mkpart(name: Text, size: Small, sched: Small) -> c_long {
        let _ = (size, sched);
        none(name)
    }

    /// Makes a partition with a list of attributes, which `libnx` does not hand on.
    free fn nx_mkpart_attr(name: Text) -> c_long {
        none(name)
    }

    /// Makes a partition of rows and columns.
    free fn nx_mkpart_rect(name: Text, rows: Small, cols: Small, sched: Small) -> c_long {
        let _ = (rows, cols, sched);
        none(name)
    }

    /// Makes a partition of the nodes of a list.
    free fn nx_mkpart_map(name: Text, n: Small, nodes: Longs, sched: Small) -> c_long {
        let _ = (n, nodes, sched);
        none(name)
    }

    /// Removes a partition.
    free fn nx_rmpart(name: Text, force: Small, recursive: Small) -> c_long {
        let _ = (force, recursive);
        none(name)
    }

    /// Changes a partition's effective priority limit.
    free fn nx_chpart_epl(name: Text, priority: Small) -> c_long {
        let _ = priority;
        none(name)
    }

    /// Changes a partition's permissions.
    free fn nx_chpart_mod(name: Text, mode: Small) -> c_long {
        let _ = mode;
        none(name)
    }

    /// Changes a partition's name.
    free fn nx_chpart_name(name: Text, newname: Text) -> c_long {
        let _ = newname;
        none(name)
    }

    /// Changes a partition's owner.
    free fn nx_chpart_owner(name: Text, owner: Small, group: Small) -> c_long {
        let _ = (owner, group);
        none(name)
    }

    /// Changes a partition's rollin quantum.
    free fn nx_chpart_rq(name: Text, rollin: Small) -> c_long {
        let _ = rollin;
        none(name)
    }

    /// Changes a partition's scheduling.
    free fn nx_chpart_sched(name: Text, sched: Small) -> c_long {
        let _ = sched;
        none(name)
    }

    /// What runs in a partition.
    free fn nx_pspart(name: Text, list: LongsPlace, n: Longs) -> c_long {
        let _ = (list, n);
        none(name)
    }
}
