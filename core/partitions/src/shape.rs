//! The mesh in which nodes are numbered row by row, and how users choose nodes of it.

/// Rows and columns of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: u32,
    pub columns: u32,
}

impl Shape {
    /// As square as the number of nodes allows, with no fewer columns than rows. No nodes are
    /// taken for one.
    #[must_use]
    pub fn square(nodes: u32) -> Shape {
        let nodes = nodes.max(1);
        let rows = (1..=nodes.isqrt())
            .rev()
            .find(|rows| nodes.is_multiple_of(*rows))
            .unwrap_or(1);
        Shape {
            rows,
            columns: nodes / rows,
        }
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(self) -> u32 {
        self.rows * self.columns
    }

    /// The nodes of a rectangle whose upper left node is `first`, ascending; none where it leaves
    /// the mesh.
    fn rectangle(self, first: u32, rows: u32, columns: u32) -> Option<Vec<u32>> {
        let (row, column) = (first / self.columns, first % self.columns);
        let fits = rows <= self.rows.checked_sub(row)? && columns <= self.columns - column;
        fits.then(|| {
            let starts = (0..rows).map(|r| first + r * self.columns);
            starts.flat_map(|start| start..start + columns).collect()
        })
    }
}

/// Which nodes of its parent a partition shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// This many, any of them.
    Size(u32),
    /// A rectangle of this many rows and columns, wherever it fits.
    Rectangle(u32, u32),
    /// These, by their numbers in the parent: a rectangle of rows and columns from a node on, in
    /// the machine's mesh, and the ends of ranges.
    Listed(Vec<Part>),
    /// Hosts of a machine of several, each with its slots.
    Hosts(Vec<(String, u32)>),
    /// A relaxed request: what can be had of another one.
    Relaxed(Box<Wanted>),
}

/// A part of a list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// From one node to another, both included.
    Range(u32, u32),
    /// Rows, columns and the upper left node.
    Rectangle(u32, u32, u32),
}

/// More nodes than any machine has.
const MOST_NODES: u32 = 65_536;

fn number(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&n| is_plain && n < MOST_NODES)
}

fn rows_and_columns(text: &str) -> Option<(u32, u32)> {
    let (rows, columns) = text.split_once(['x', 'X'])?;
    let both = number(rows).zip(number(columns));
    both.filter(|&(r, c)| r > 0 && c > 0 && r * c <= MOST_NODES)
}

impl Wanted {
    /// Reads a size: `4`, or rows and columns, `2x3`. None when it is neither.
    #[must_use]
    pub fn size(text: &str) -> Option<Wanted> {
        match rows_and_columns(text) {
            Some((rows, columns)) => Some(Wanted::Rectangle(rows, columns)),
            None => number(text).filter(|&n| n > 0).map(Wanted::Size),
        }
    }

    /// Reads a list of nodes: `3`, `0..5`, `2x3:7` (rows, columns, upper left node), with commas
    /// between them. None when it is none.
    #[must_use]
    pub fn list(text: &str) -> Option<Wanted> {
        let parts = text.split(',').map(|part| {
            if let Some((size, first)) = part.split_once(':') {
                let (rows, columns) = rows_and_columns(size)?;
                return Some(Part::Rectangle(rows, columns, number(first)?));
            }
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Part::Range(first, last))
        });
        parts.collect::<Option<Vec<Part>>>().map(Wanted::Listed)
    }

    /// Reads hosts with their slots: `a:4,b:2`. None when it is none.
    #[must_use]
    pub fn hosts(text: &str) -> Option<Wanted> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let hosts = text.split(',').map(|host| {
            let (name, slots) = host.rsplit_once(':')?;
            let slots = number(slots).filter(|&slots| slots > 0)?;
            let is_name = !name.is_empty() && name.chars().all(is_plain);
            is_name.then(|| (name.to_owned(), slots))
        });
        hosts.collect::<Option<Vec<_>>>().map(Wanted::Hosts)
    }

    /// Chooses nodes of `parent` (ascending) in a machine of that shape. `load` says how many
    /// partitions beside the new one have a node: those that few have are preferred, then low
    /// numbers.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn choose(
        &self,
        parent: &[u32],
        shape: Shape,
        load: &dyn Fn(u32) -> usize,
    ) -> Result<Vec<u32>, String> {
        let has = |node: &u32| parent.binary_search(node).is_ok();
        match self {
            Wanted::Hosts(_) => Err("hosts are no nodes of this machine".into()),
            Wanted::All => Ok(parent.to_vec()),
            Wanted::Relaxed(asked) => asked
                .choose(parent, shape, load)
                .or_else(|why| asked.nearest(parent, shape, load).ok_or(why)),
            Wanted::Size(size) => {
                let mut nodes = parent.to_vec();
                nodes.sort_by_key(|&node| (load(node), node));
                if nodes.len() < *size as usize {
                    return Err(format!("it has {} nodes and not {size}", parent.len()));
                }
                nodes.truncate(*size as usize);
                nodes.sort_unstable();
                Ok(nodes)
            }
            Wanted::Rectangle(rows, columns) => parent
                .iter()
                .filter_map(|&first| shape.rectangle(first, *rows, *columns))
                .filter(|nodes| nodes.iter().all(has))
                .min_by_key(|nodes| nodes.iter().map(|&node| load(node)).sum::<usize>())
                .ok_or_else(|| {
                    format!(
                        "no rectangle of {rows} rows and {columns} columns lies in its {} nodes of a mesh of {}x{}",
                        parent.len(),
                        shape.rows,
                        shape.columns
                    )
                }),
            Wanted::Listed(parts) => {
                let mut nodes = Vec::new();
                for part in parts {
                    listed(*part, parent, shape, &mut nodes)?;
                }
                nodes.sort_unstable();
                nodes.dedup();
                Ok(nodes)
            }
        }
    }

    /// The best of what cannot be had as asked. The number of nodes counts more than their shape: a
    /// rectangle is turned by a right angle, then given up for as many nodes anywhere; of a number
    /// there are as many as the parent has, and of a list those that it has. None where that is no
    /// node at all.
    fn nearest(
        &self,
        parent: &[u32],
        shape: Shape,
        load: &dyn Fn(u32) -> usize,
    ) -> Option<Vec<u32>> {
        let most = |nodes: u32| Wanted::Size(nodes.min(parent.len() as u32));
        let nodes = match self {
            Wanted::Size(size) => most(*size).choose(parent, shape, load),
            Wanted::Rectangle(rows, columns) => Wanted::Rectangle(*columns, *rows)
                .choose(parent, shape, load)
                .or_else(|_| most(rows * columns).choose(parent, shape, load)),
            Wanted::Listed(parts) => {
                let all = parts.iter().flat_map(|part| present(*part, parent, shape));
                let mut nodes: Vec<u32> = all.collect();
                nodes.sort_unstable();
                nodes.dedup();
                Ok(nodes)
            }
            Wanted::All | Wanted::Hosts(_) | Wanted::Relaxed(_) => return None,
        };
        nodes.ok().filter(|nodes| !nodes.is_empty())
    }
}

/// The nodes of a part of a list that the parent has.
fn present(part: Part, parent: &[u32], shape: Shape) -> Vec<u32> {
    match part {
        Part::Range(first, last) => {
            let last = (last as usize).min(parent.len().saturating_sub(1));
            parent.get(first as usize..=last).unwrap_or_default().into()
        }
        Part::Rectangle(rows, columns, first) => {
            let Some(&first) = parent.get(first as usize) else {
                return Vec::new();
            };
            let (row, column) = (first / shape.columns, first % shape.columns);
            let inside = |node: &&u32| {
                let (r, c) = (**node / shape.columns, **node % shape.columns);
                (row..row + rows).contains(&r) && (column..column + columns).contains(&c)
            };
            parent.iter().filter(inside).copied().collect()
        }
    }
}

fn listed(part: Part, parent: &[u32], shape: Shape, nodes: &mut Vec<u32>) -> Result<(), String> {
    let node = |number: u32| {
        parent.get(number as usize).copied().ok_or_else(|| {
            format!(
                "it has no node {number}: its {} nodes have the numbers 0 to {}",
                parent.len(),
                parent.len() - 1
            )
        })
    };
    match part {
        Part::Range(first, last) => {
            node(last)?;
            nodes.extend(&parent[first as usize..=last as usize]);
        }
        Part::Rectangle(rows, columns, first) => {
            let inside = shape
                .rectangle(node(first)?, rows, columns)
                .filter(|all| all.iter().all(|node| parent.binary_search(node).is_ok()));
            nodes.extend(inside.ok_or_else(|| {
                format!(
                    "{rows}x{columns}:{first} does not lie within its {} nodes",
                    parent.len()
                )
            })?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_as_square_as_possible() {
        for (nodes, rows, columns) in [
            (0, 1, 1),
            (1, 1, 1),
            (2, 1, 2),
            (6, 2, 3),
            (7, 1, 7),
            (64, 8, 8),
        ] {
            assert_eq!(Shape::square(nodes), Shape { rows, columns }, "{nodes}");
        }
    }

    #[test]
    fn nodes_are_chosen_as_users_write_them() {
        let shape = Shape {
            rows: 3,
            columns: 4,
        };
        let all: Vec<u32> = (0..12).collect();
        let right: Vec<u32> = vec![2, 3, 6, 7, 10, 11];
        let list = |text: &str, of: &[u32]| Wanted::list(text).unwrap().choose(of, shape, &|_| 0);
        let size = |text: &str, of: &[u32], load: fn(u32) -> usize| {
            Wanted::size(text).unwrap().choose(of, shape, &load)
        };
        assert_eq!(list("0,2..3", &right), Ok(vec![2, 6, 7]));
        assert_eq!(list("2x2:5", &all), Ok(vec![5, 6, 9, 10]));
        assert_eq!(list("1,1,0..1", &all), Ok(vec![0, 1]));
        assert_eq!(size("3", &right, |_| 0), Ok(vec![2, 3, 6]));
        assert_eq!(size("3", &all, |n| usize::from(n < 4)), Ok(vec![4, 5, 6]));
        assert_eq!(
            size("2x2", &right, |n| usize::from(n < 4)),
            Ok(vec![6, 7, 10, 11])
        );
        assert!(
            size("2x3", &right, |_| 0)
                .unwrap_err()
                .contains("no rectangle")
        );
        assert!(
            size("7", &right, |_| 0)
                .unwrap_err()
                .contains("6 nodes and not 7")
        );
        assert!(list("6", &right).unwrap_err().contains("no node 6"));
        assert!(list("2x2:1", &right).unwrap_err().contains("does not lie"));
        assert!(list("1x4:2", &all).unwrap_err().contains("does not lie"));
    }

    #[test]
    fn a_relaxed_request_gets_what_is_nearest() {
        let shape = Shape {
            rows: 3,
            columns: 4,
        };
        let right: Vec<u32> = vec![2, 3, 6, 7, 10, 11];
        let relaxed = |wanted: Option<Wanted>| {
            Wanted::Relaxed(Box::new(wanted.unwrap())).choose(&right, shape, &|_| 0)
        };
        let size = |text| relaxed(Wanted::size(text));
        let list = |text| relaxed(Wanted::list(text));
        // As it was asked for, turned, as many elsewhere, all that there are.
        assert_eq!(size("3x2"), Ok(right.clone()));
        assert_eq!(size("2x3"), Ok(right.clone()));
        assert_eq!(size("1x4"), Ok(vec![2, 3, 6, 7]));
        assert_eq!(size("4x4"), Ok(right.clone()));
        assert_eq!(size("2"), Ok(vec![2, 3]));
        assert_eq!(size("65535"), Ok(right.clone()));
        assert_eq!(list("4..9"), Ok(vec![10, 11]));
        assert_eq!(list("9,1"), Ok(vec![3]));
        assert_eq!(list("2x3:1"), Ok(vec![3, 7]));
        assert!(list("6..9,2x2:8").unwrap_err().contains("no node 9"));
        assert_eq!(relaxed(Some(Wanted::All)), Ok(right.clone()));
    }

    #[test]
    fn what_is_no_choice_is_refused() {
        for text in [
            "",
            "0",
            "-1",
            "+3",
            "2x",
            "0x3",
            "65536",
            "9999x9999",
            "4294967296",
            "x",
        ] {
            assert_eq!(Wanted::size(text), None, "{text}");
        }
        for text in [
            "", "1,", "3..1", "a", "2x3", "2x3:", "0x1:0", "1..", "1...3",
        ] {
            assert_eq!(Wanted::list(text), None, "{text}");
        }
    }
}
