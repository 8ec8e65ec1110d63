//! Why something is not done.

use std::fmt;

use crate::attributes::Right;

/// Why an operation on partitions is refused. Names are whole paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no name, and why.
    Name(String, &'static str),
    /// There is no such partition.
    NoPartition(String),
    /// There is one of that name.
    Exists(String),
    /// The caller lacks a right.
    Denied(Right, String),
    /// Only its owner may do that.
    NotOwner(String),
    /// Root alone may give it to another user.
    GivenAway(String),
    /// The caller is no member of the group.
    NotMember(u32, String),
    /// The parent cannot give the nodes, and why.
    Nodes(String, String),
    /// It is always there.
    Permanent(String),
    /// Its nodes are what they are.
    Fixed(String),
    /// It would lose a node that one in it has.
    Needed(String, String, u32),
    /// It has subpartitions.
    Children(String),
    /// There are as many partitions as there may be.
    TooMany(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Name(name, why) => write!(
                f,
                "'{}' cannot be the name of a partition: {why}; use up to 31 letters, digits, '-' and '_', and dots \
                 between a partition and its subpartition",
                name.escape_debug()
            ),
            Refused::NoPartition(name) => {
                write!(
                    f,
                    "there is no partition '{name}'; list them with -r to see all"
                )
            }
            Refused::Exists(name) => write!(
                f,
                "there is a partition '{name}'; choose another name or remove that one"
            ),
            Refused::Denied(right, name) => write!(
                f,
                "you lack the right {right} for the partition '{name}'; its owner can give it with -mod"
            ),
            Refused::NotOwner(name) => write!(
                f,
                "the partition '{name}' is not yours; its owner can change that"
            ),
            Refused::GivenAway(name) => write!(
                f,
                "only root may give the partition '{name}' to another user; its owner can give rights to others with -mod"
            ),
            Refused::NotMember(group, name) => write!(
                f,
                "you are not in the group {group} to which the partition '{name}' shall belong; choose a group of yours"
            ),
            Refused::Nodes(parent, why) => write!(
                f,
                "the partition '{parent}' cannot give the nodes: {why}; ask for nodes that it has"
            ),
            Refused::Permanent(name) => write!(
                f,
                "the partition '{name}' is always there and keeps its name; name one that was made"
            ),
            Refused::Fixed(name) => write!(
                f,
                "the partition '{name}' keeps its nodes; other nodes can be given to .compute, .service and .io, and any other \
                 one be made anew"
            ),
            Refused::Needed(name, child, node) => write!(
                f,
                "the partition '{name}' would lose node {node}, which '{child}' in it has; remove that one first"
            ),
            Refused::Children(name) => write!(
                f,
                "the partition '{name}' has subpartitions; remove them first, or all together with -r"
            ),
            Refused::TooMany(most) => write!(
                f,
                "there are {most} partitions, which is as many as there may be; remove some"
            ),
        }
    }
}

impl std::error::Error for Refused {}
