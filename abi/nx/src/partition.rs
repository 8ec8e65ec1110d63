//! Partitions: made, changed and asked for by the program of `margay part`.

use std::ffi::c_long;

use margay_run_nx::error::{EQPARAM, Result};
use margay_run_nx::partitions::{self, Attributes, Nodes};
use margay_run_nx::refuse;

use crate::call::nx;
use crate::user::{Applications, Longs, LongsPlace, NodeInfo, PartInfo, Small, Text, given};

/// What stands for an attribute that is not given.
const NONE: c_long = -1;

fn name_of(name: Text) -> Result<String> {
    given(name, "the name of the partition")
}

fn given_number(number: c_long) -> Option<c_long> {
    (number != NONE).then_some(number)
}

fn make(name: Text, nodes: &Nodes<'_>, sched: Small) -> Result<c_long> {
    let attributes = Attributes {
        scheduling: Some(sched),
        ..Attributes::default()
    };
    partitions::make(&name_of(name)?, nodes, attributes)
}

fn change(name: Text, attributes: Attributes) -> Result<c_long> {
    partitions::change(&name_of(name)?, attributes)?;
    Ok(0)
}

fn positive(rows: c_long, cols: c_long) -> Result<()> {
    if rows < 1 || cols < 1 {
        refuse!(
            EQPARAM,
            "{rows} rows and {cols} columns cannot be; there is at least one of each"
        );
    }
    Ok(())
}

/// Hands an array to the program, and how many of `of` numbers are in it.
fn give(all: &[c_long], of: usize, place: LongsPlace, n: Longs) -> Result<c_long> {
    // SAFETY: see `user`; the program passes a place for one number.
    unsafe { n.put("n", &[(all.len() / of) as c_long]) }?;
    place.give("list", all)?;
    Ok(0)
}

nx! {
    /// Makes a partition of this many nodes, -1: all of its parent; how many it has.
    free fn nx_mkpart(name: Text, size: Small, sched: Small) -> c_long {
        make(name, &Nodes::Size(size), sched)
    }

    /// Makes a partition with a list of attributes, which `libnx` has read.
    free fn nx_mkpart_attr(name: Text, size: Small, rows: Small, cols: Small, anchor: Small, n: Small, nodes: Longs, sched: Small, rq: Small, epl: Small, mode: Small, relaxed: Small) -> c_long {
        let listed = if n > 0 { nodes.take("the list of nodes", n)? } else { Vec::new() };
        let chosen = match () {
            () if n > 0 => Nodes::Listed(&listed),
            () if rows > 0 => Nodes::Rectangle(rows, cols, anchor),
            () => Nodes::Size(size),
        };
        let attributes = Attributes {
            scheduling: given_number(sched),
            quantum_ms: given_number(rq),
            priority_limit: given_number(epl),
            mode: given_number(mode),
            is_relaxed: relaxed > 0,
        };
        partitions::make(&name_of(name)?, &chosen, attributes)
    }

    /// Makes a partition of rows and columns; how many nodes it has.
    free fn nx_mkpart_rect(name: Text, rows: Small, cols: Small, sched: Small) -> c_long {
        positive(rows, cols)?;
        make(name, &Nodes::Rectangle(rows, cols, NONE), sched)
    }

    /// Makes a partition of the nodes of a list, by their numbers in its parent; how many it has.
    free fn nx_mkpart_map(name: Text, n: Small, nodes: Longs, sched: Small) -> c_long {
        let listed = nodes.take("the list of nodes", n)?;
        make(name, &Nodes::Listed(&listed), sched)
    }

    /// Removes a partition: with force also while applications run in it, recursively with those
    /// below it.
    free fn nx_rmpart(name: Text, force: Small, recursive: Small) -> c_long {
        partitions::remove(&name_of(name)?, force != 0, recursive != 0)?;
        Ok(0)
    }

    /// Changes a partition's effective priority limit.
    free fn nx_chpart_epl(name: Text, priority: Small) -> c_long {
        change(name, Attributes { priority_limit: Some(priority), ..Attributes::default() })
    }

    /// Changes a partition's permissions.
    free fn nx_chpart_mod(name: Text, mode: Small) -> c_long {
        change(name, Attributes { mode: Some(mode), ..Attributes::default() })
    }

    /// Changes a partition's name.
    free fn nx_chpart_name(name: Text, newname: Text) -> c_long {
        partitions::rename(&name_of(name)?, &given(newname, "the new name")?)?;
        Ok(0)
    }

    /// Changes a partition's owner and group; -1 leaves what is.
    free fn nx_chpart_owner(name: Text, owner: Small, group: Small) -> c_long {
        partitions::give(&name_of(name)?, owner, group)?;
        Ok(0)
    }

    /// Changes a partition's roll-in quantum, in milliseconds.
    free fn nx_chpart_rq(name: Text, rollin: Small) -> c_long {
        change(name, Attributes { quantum_ms: Some(rollin), ..Attributes::default() })
    }

    /// Changes a partition's scheduling.
    free fn nx_chpart_sched(name: Text, sched: Small) -> c_long {
        change(name, Attributes { scheduling: Some(sched), ..Attributes::default() })
    }

    /// A partition's attributes.
    free fn nx_part_attr(name: Text, info: PartInfo) -> c_long {
        let all = partitions::attributes(&name_of(name)?)?;
        info.put("info", &all)?;
        Ok(0)
    }

    /// Numbers of a partition's nodes in the machine, in an array that the program frees.
    free fn nx_part_nodes(name: Text, nodes: LongsPlace, n: Longs) -> c_long {
        give(&partitions::nodes_of(&name_of(name)?)?, 1, nodes, n)
    }

    /// Applications in a partition and below it, in an array that the program frees.
    free fn nx_pspart(name: Text, list: Applications, n: Longs) -> c_long {
        give(&partitions::applications(&name_of(name)?)?, 6, list, n)
    }

    /// Nodes of the machine on which no application takes turns, in an array that the program
    /// frees.
    free fn nx_empty_nodes(nodes: LongsPlace, n: Longs) -> c_long {
        give(&partitions::empty_nodes()?, 1, nodes, n)
    }

    /// Nodes whose host is down, of partitions of several hosts, in an array that the program
    /// frees.
    free fn nx_failed_nodes(nodes: LongsPlace, n: Longs) -> c_long {
        give(&partitions::failed_nodes()?, 1, nodes, n)
    }

    /// What is known of a node of the machine.
    free fn nx_node_attr(node: Small, info: NodeInfo) -> c_long {
        let all = partitions::node(node)?;
        info.put("info", &all)?;
        Ok(0)
    }
}
