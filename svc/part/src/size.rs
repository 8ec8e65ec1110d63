//! How many nodes an application asks for, and how: as `mpiexec` says it, a number; as `poe` does,
//! which asks for nodes of a pool, words behind it.

use margay_core_partitions::{COMPUTE, Caller, Scheduling, Table};

/// A number of nodes, 0 for all of the partition, and what is said of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub nodes: usize,
    /// The partition is named as a pool of POE.
    pub is_pool: bool,
    /// Neither more nor fewer.
    pub is_exact: bool,
    /// They are for this application alone.
    pub is_dedicated: bool,
}

impl Size {
    /// Reads what a launcher wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Size> {
        let mut words = text.split(' ');
        let mut size = Size {
            nodes: words.next()?.parse().ok()?,
            ..Size::default()
        };
        for word in words {
            match word {
                "pool" => size.is_pool = true,
                "exact" => size.is_exact = true,
                "dedicated" => size.is_dedicated = true,
                _ => return None,
            }
        }
        Some(size)
    }

    /// Whether it is for this partition: one for commands runs no parallel program.
    ///
    /// # Errors
    /// When it is not.
    pub fn suits(self, path: &str) -> Result<(), String> {
        if !Table::is_for_commands(path) || self.nodes == 1 && !self.is_pool {
            return Ok(());
        }
        Err(format!(
            "the partition '{path}' is for commands and programs of one process; run parallel ones in .compute or a \
             partition of it (margay part mkpart NAME, -pn NAME)"
        ))
    }

    /// Whether it can be had without anybody who looks after turns.
    #[must_use]
    pub fn needs_nobody(self, scheduling: Scheduling) -> bool {
        scheduling == Scheduling::Standard && !self.is_exact && !self.is_dedicated
    }

    /// The number of nodes of a partition that has `all`.
    ///
    /// # Errors
    /// When it has fewer than are wanted.
    pub fn of(self, path: &str, all: usize, scheduling: Scheduling) -> Result<usize, String> {
        if self.is_exact && self.nodes > all {
            let remedy = match self.is_pool {
                true => format!("(-nodes {all}), or for more tasks on each (-tasks_per_node)"),
                false => format!("(-pn {path}:{all}), or for more ranks on each (-n)"),
            };
            return Err(format!(
                "{} nodes: the partition '{path}' has {all}; ask for no more {remedy}",
                self.nodes
            ));
        }
        let is_all = self.nodes == 0 || self.nodes > all;
        let shares_all = scheduling == Scheduling::Standard && !self.is_exact;
        Ok(if is_all || shares_all {
            all
        } else {
            self.nodes
        })
    }
}

/// The partition that a pool is: that of its name. On a machine on which no partition has a number
/// as its name there is one pool, of all nodes, whatever its number is.
#[must_use]
pub fn pool(table: &Table, caller: &Caller, name: &str) -> String {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    let below = table.list(caller, COMPUTE, false).unwrap_or_default();
    let last = |path: &str| is_number(path.rsplit('.').next().unwrap_or_default());
    if is_number(name) && !below.iter().any(|(path, _)| last(path)) {
        return COMPUTE.to_owned();
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_read() {
        assert_eq!(Size::parse("3").map(|own| own.nodes), Some(3));
        let size = Size::parse("2 pool exact dedicated").unwrap();
        assert!(size.is_pool && size.is_exact && size.is_dedicated);
        assert_eq!(Size::parse("2 other"), None);
        assert_eq!(Size::parse(""), None);
    }

    #[test]
    fn a_shared_pool_gives_all_of_its_nodes_unless_their_number_is_said() {
        let (shared, alone) = (Scheduling::Standard, Scheduling::Space);
        let of = |text: &str, scheduling| Size::parse(text).unwrap().of("p", 4, scheduling);
        assert_eq!(of("2 pool", shared), Ok(4));
        assert_eq!(of("2 pool exact", shared), Ok(2));
        assert_eq!(of("2 pool", alone), Ok(2));
        assert_eq!(of("9", alone), Ok(4));
        assert!(of("9 pool exact", alone).is_err());
    }
}
