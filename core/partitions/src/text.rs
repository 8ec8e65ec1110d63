//! The stored text of a table: `docs/partitions.md` describes it.

use std::collections::BTreeMap;

use margay_core_topology::{list_text, parse_list};

use crate::attributes::{Mode, Scheduling};
use crate::shape::Shape;
use crate::table::{Partition, Table, is_consistent};

/// The first line: of a table without hosts, which earlier versions read as well, and of one with
/// some.
const FIRST: &str = "margay-partitions 1";
const WITH_HOSTS: &str = "margay-partitions 2";

impl Table {
    /// The text of all partitions, permissions and attributes.
    #[must_use]
    pub fn text(&self) -> String {
        let Shape { rows, columns } = self.shape;
        let mut text = match &self.hosts[..] {
            [] => format!("{FIRST}\nmesh {rows}x{columns}\n"),
            hosts => {
                let hosts = hosts.join(" ");
                format!("{WITH_HOSTS}\nmesh {rows}x{columns}\nhosts {hosts}\n")
            }
        };
        for (path, partition) in &self.all {
            let slots = partition.slots.iter().map(u32::to_string);
            let slots = slots.collect::<Vec<_>>().join(",");
            let apart = if slots.is_empty() { "" } else { " " };
            text += &format!(
                "{path} {} {} {} {} {} {}{apart}{slots}\n",
                partition.owner,
                partition.group,
                partition.mode.octal(),
                partition.scheduling,
                partition.priority_limit,
                list_text(&partition.nodes)
            );
        }
        text + "end\n"
    }

    /// Reads such a text.
    ///
    /// # Errors
    /// When another version wrote it, or it is damaged: which line is wrong.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut lines = text.lines().enumerate();
        let mut has_hosts = false;
        match lines.next() {
            Some((_, FIRST)) => {}
            Some((_, WITH_HOSTS)) => has_hosts = true,
            Some((_, other)) if other.starts_with("margay-partitions ") => {
                return Err(format!(
                    "another version of Margay wrote it ('{other}', and this one reads '{FIRST}' and '{WITH_HOSTS}'); use that version"
                ));
            }
            _ => return Err(format!("its first line is not '{FIRST}'")),
        }
        let shape = lines.next().and_then(|(_, line)| mesh(line));
        let shape = shape.ok_or("its second line names no mesh")?;
        let hosts = match has_hosts {
            true => (lines.next())
                .and_then(|(_, line)| line.strip_prefix("hosts "))
                .ok_or("its third line names no hosts")?,
            false => "",
        };
        let hosts = hosts.split_whitespace().map(str::to_owned).collect();
        let mut all = BTreeMap::new();
        let mut ended = false;
        for (at, line) in lines {
            if ended {
                return Err(format!("line {} stands behind its end", at + 1));
            }
            ended = line == "end";
            if !ended {
                let (path, partition) =
                    partition(line).ok_or_else(|| format!("line {} is damaged", at + 1))?;
                all.insert(path, partition);
            }
        }
        if !ended {
            return Err("its end is missing".into());
        }
        let table = Table { shape, hosts, all };
        let permanent = Table::new(shape, 0, 0);
        let has_all = permanent
            .all
            .keys()
            .all(|path| table.all.contains_key(path));
        let has_all = has_all && table.all["."].nodes == permanent.all["."].nodes;
        if has_all && is_consistent(&table) {
            return Ok(table);
        }
        Err("a partition has nodes that its parent has not, or its parent is missing".into())
    }
}

fn mesh(line: &str) -> Option<Shape> {
    /// More nodes than any machine has.
    const MOST: u32 = 1 << 16;
    let (rows, columns) = line.strip_prefix("mesh ")?.split_once('x')?;
    let (rows, columns): (u32, u32) = (rows.parse().ok()?, columns.parse().ok()?);
    let nodes = rows.checked_mul(columns)?;
    (1..=MOST)
        .contains(&nodes)
        .then_some(Shape { rows, columns })
}

fn partition(line: &str) -> Option<(String, Partition)> {
    let words: Vec<&str> = line.split(' ').collect();
    let (path, owner, group, mode, scheduling, limit, nodes, slots) = match words[..] {
        [path, owner, group, mode, scheduling, limit, nodes] => {
            (path, owner, group, mode, scheduling, limit, nodes, None)
        }
        [path, owner, group, mode, scheduling, limit, nodes, slots] => (
            path,
            owner,
            group,
            mode,
            scheduling,
            limit,
            nodes,
            Some(slots),
        ),
        _ => return None,
    };
    let slots = slots.map(|slots| slots.split(',').map(str::parse).collect());
    Some((
        path.to_owned(),
        Partition {
            nodes: parse_list(nodes)?,
            slots: slots.unwrap_or(Ok(Vec::new())).ok()?,
            owner: owner.parse().ok()?,
            group: group.parse().ok()?,
            mode: Mode::parse(mode)?,
            scheduling: Scheduling::parse(scheduling)?,
            priority_limit: limit.parse().ok()?,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 1 wrote it.
    const OLD: &str = "\
margay-partitions 1
mesh 2x2
. 1000 100 755 ss 10 0-3
.compute 1000 100 755 ss 10 0-3
.compute.mine 1000 100 750 600000ms 5 0,2
.compute.mine.left 0 0 700 sps 5 2
.io 1000 100 755 ss 10 0-3
.service 1000 100 755 ss 10 0-3
end
";

    #[test]
    fn a_text_of_version_1_is_read_and_written() {
        let table = Table::parse(OLD).unwrap();
        assert_eq!(table.all[".compute.mine"].nodes, [0, 2]);
        assert_eq!(table.text(), OLD);
    }

    #[test]
    fn those_that_are_always_there_may_have_some_of_the_nodes() {
        let fewer = OLD.replacen(".io 1000 100 755 ss 10 0-3", ".io 1000 100 755 ss 10 3", 1);
        let table = Table::parse(&fewer).unwrap();
        assert_eq!(table.all[".io"].nodes, [3]);
        assert_eq!(table.text(), fewer);
        let none = OLD.replacen(". 1000 100 755 ss 10 0-3", ". 1000 100 755 ss 10 0-2", 1);
        assert!(Table::parse(&none).is_err());
    }

    /// As version 2 wrote it.
    const HOSTS: &str = "\
margay-partitions 2
mesh 1x2
hosts a b.c
. 1000 100 755 ss 10 0-1
.compute 1000 100 755 ss 10 0-1
.compute.far 1000 100 755 sps 10 32768-32769 4,2
.compute.far.near 1000 100 755 sps 10 32768 3
.io 1000 100 755 ss 10 0-1
.service 1000 100 755 ss 10 0-1
end
";

    #[test]
    fn hosts_have_numbers_and_slots() {
        let table = Table::parse(HOSTS).unwrap();
        assert_eq!(table.text(), HOSTS);
        let far = &table.all[".compute.far"];
        assert_eq!(table.hosts_of(far), [(32768, "a", 4), (32769, "b.c", 2)]);
        for (from, to) in [
            ("hosts a b.c", "hosts a"),
            (" 4,2", " 4"),
            (" 4,2", ""),
            ("hosts a b.c\n", ""),
            ("32768 3", "32769 3,3"),
        ] {
            assert!(
                Table::parse(&HOSTS.replacen(from, to, 1)).is_err(),
                "{from}"
            );
        }
    }

    #[test]
    fn damaged_texts_are_refused() {
        for (from, to, why) in [
            ("partitions 1", "partitions 3", "another version"),
            ("margay-p", "p", "first line"),
            ("2x2", "0x2", "no mesh"),
            ("2x2", "99999x99999", "no mesh"),
            ("0,2\n", "0,4\n", "its parent has not"),
            ("0,2\n", "2,0\n", "its parent has not"),
            (".mine.left", ".other.left", "parent is missing"),
            (".io 1000 100 755 ss 10 0-3\n", "", "parent is missing"),
            ("600000ms", "x", "line 5 is damaged"),
            ("end\n", "", "its end is missing"),
            ("end\n", "end\nend\n", "behind its end"),
        ] {
            let text = OLD.replacen(from, to, 1);
            let error = Table::parse(&text).unwrap_err();
            assert!(error.contains(why), "{from} {to}: {error}");
        }
    }
}
