//! Partitions as a plain model has them: a list that is searched from end to end, with sets of
//! nodes. Random operations on it and on a table.

use std::collections::BTreeSet;

use margay_core_partitions::{Caller, Changes, Mode, Right, Scheduling, Shape, Table, Wanted};

/// A generator of numbers from a seed (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A partition of the model: its names from the root on.
#[derive(Clone)]
pub struct Known {
    names: Vec<String>,
    pub nodes: BTreeSet<u32>,
    /// How many these are, as it was asked for.
    size: usize,
    owner: u32,
    group: u32,
    mode: u32,
    /// The highest priority of its own, whatever those above it allow.
    limit: u32,
    pub scheduling: Scheduling,
}

/// What an operation sets.
#[derive(Clone, Copy, Default)]
struct Set {
    mode: Option<u32>,
    limit: Option<u32>,
    scheduling: Option<Scheduling>,
}

pub struct Model(Vec<Known>);

pub const SHAPE: Shape = Shape {
    rows: 3,
    columns: 4,
};
pub const OWNER: u32 = 10;

pub fn split(path: &str) -> Vec<String> {
    let names = path.split('.').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Model {
    pub fn new() -> Model {
        let known = |name| Known {
            names: split(name),
            nodes: (0..SHAPE.nodes()).collect(),
            size: SHAPE.nodes() as usize,
            owner: OWNER,
            group: OWNER,
            mode: 0o755,
            limit: 10,
            scheduling: Scheduling::Standard,
        };
        Model([".", ".compute", ".service", ".io"].map(known).into())
    }

    fn at(&self, names: &[String]) -> Option<usize> {
        self.0.iter().position(|known| known.names == names)
    }

    /// The partition in which a caller may run something.
    pub fn runs(&self, caller: &Caller, names: &[String]) -> Option<&Known> {
        Some(&self.0[self.may(caller, names, Right::Run)?])
    }

    /// The highest priority in a partition, by those that it lies in as well.
    pub fn priority_limit(&self, names: &[String]) -> u32 {
        let above = |known: &&Known| names.starts_with(&known.names);
        let limits = self.0.iter().filter(above).map(|known| known.limit);
        limits.min().unwrap_or(10)
    }

    /// One of the partitions.
    pub fn some(&self, numbers: &mut Numbers) -> &[String] {
        &self.0[numbers.below(self.0.len())].names
    }

    pub fn scheduling(&self, names: &[String]) -> Option<Scheduling> {
        Some(self.0[self.at(names)?].scheduling)
    }

    fn may(&self, caller: &Caller, names: &[String], right: Right) -> Option<usize> {
        let at = self.at(names)?;
        let known = &self.0[at];
        let digit = if caller.user == known.owner {
            known.mode / 64
        } else if caller.groups.contains(&known.group) {
            known.mode / 8 % 8
        } else {
            known.mode % 8
        };
        let has = match right {
            Right::Read => digit / 4 == 1,
            Right::Write => digit / 2 % 2 == 1,
            Right::Run => digit % 2 == 1,
        };
        (has || caller.user == 0).then_some(at)
    }

    fn is_permanent(names: &[String]) -> bool {
        matches!(names, [] | [_]) && names.first().is_none_or(|n| n.len() > 1)
    }

    /// A relaxed request gets fewer nodes where there are not as many.
    fn make(
        &mut self,
        caller: &Caller,
        names: &[String],
        (size, is_relaxed): (usize, bool),
        set: Set,
    ) -> bool {
        let Some((_, above)) = names.split_last() else {
            return false;
        };
        let Some(parent) = self.may(caller, above, Right::Write) else {
            return false;
        };
        let most = self.0[parent].nodes.len();
        if self.at(names).is_some() || (most < size && !is_relaxed) {
            return false;
        }
        // The nodes are filled in from the table: the model knows only which may be chosen.
        let parent = &self.0[parent];
        let known = Known {
            names: names.to_vec(),
            nodes: BTreeSet::new(),
            size: size.min(most),
            owner: caller.user,
            group: caller.groups[0],
            mode: set.mode.unwrap_or(parent.mode),
            limit: set.limit.unwrap_or(parent.limit),
            scheduling: set.scheduling.unwrap_or(parent.scheduling),
        };
        self.0.push(known);
        true
    }

    fn remove(&mut self, caller: &Caller, names: &[String], recursive: bool) -> bool {
        if self.at(names).is_none() || Model::is_permanent(names) {
            return false;
        }
        let gone = |known: &Known| known.names.starts_with(names);
        let above: Vec<Vec<String>> = (self.0.iter().filter(|known| gone(known)))
            .map(|known| known.names[..known.names.len() - 1].to_vec())
            .collect();
        if above.len() > 1 && !recursive {
            return false;
        }
        let may_all = above
            .iter()
            .all(|names| self.may(caller, names, Right::Write).is_some());
        if may_all {
            self.0.retain(|known| !gone(known));
        }
        may_all
    }

    fn rename(&mut self, caller: &Caller, names: &[String], new: &str) -> bool {
        let Some((_, above)) = names.split_last() else {
            return false;
        };
        let mut target = above.to_vec();
        target.push(new.to_owned());
        if self.at(names).is_none()
            || self.may(caller, above, Right::Write).is_none()
            || Model::is_permanent(names)
            || self.at(&target).is_some()
        {
            return false;
        }
        for known in &mut self.0 {
            if known.names.starts_with(names) {
                known.names[names.len() - 1] = new.to_owned();
            }
        }
        true
    }

    fn change(&mut self, caller: &Caller, names: &[String], set: Set) -> bool {
        let Some(at) = self.at(names) else {
            return false;
        };
        let may = match set.mode {
            Some(_) => caller.user == 0 || caller.user == self.0[at].owner,
            None => self.may(caller, names, Right::Write).is_some(),
        };
        if may {
            let known = &mut self.0[at];
            known.mode = set.mode.unwrap_or(known.mode);
            known.limit = set.limit.unwrap_or(known.limit);
            known.scheduling = set.scheduling.unwrap_or(known.scheduling);
        }
        may
    }

    /// Paths that a list shows, in the order of their names.
    fn list(&self, caller: &Caller, names: &[String], recursive: bool) -> Option<Vec<Vec<String>>> {
        self.may(caller, names, Right::Read)?;
        let depth = names.len();
        let mut listed: Vec<Vec<String>> = (self.0.iter())
            .filter(|known| known.names.len() > depth && known.names.starts_with(names))
            .filter(|known| recursive || known.names.len() == depth + 1)
            .filter(|known| {
                (depth + 1..=known.names.len()).all(|to| {
                    let above = &known.names[..to];
                    self.may(caller, above, Right::Read).is_some()
                })
            })
            .map(|known| known.names.clone())
            .collect();
        listed.sort();
        Some(listed)
    }
}

/// Whether the table has the model's partitions, and nodes that their parents have.
pub fn compare(table: &Table, model: &mut Model, step: usize) {
    let root = Caller {
        user: 0,
        groups: vec![0],
    };
    let all = table.list(&root, ".", true).unwrap();
    assert_eq!(all.len() + 1, model.0.len(), "step {step}");
    for (path, partition) in all {
        let names = split(path);
        let at = model.at(&names).unwrap();
        let parent = model.at(&names[..names.len() - 1]).unwrap();
        let nodes: BTreeSet<u32> = partition.nodes.iter().copied().collect();
        assert!(
            nodes.is_subset(&model.0[parent].nodes),
            "step {step}: {path}"
        );
        let known = &mut model.0[at];
        if known.nodes.is_empty() {
            assert_eq!(nodes.len(), known.size, "step {step}: {path}");
            known.nodes = nodes;
        } else {
            assert_eq!(known.nodes, nodes, "step {step}: {path}");
        }
        assert_eq!(
            partition.scheduling, known.scheduling,
            "step {step}: {path}"
        );
        let limit = model.priority_limit(&names);
        assert_eq!(table.priority_limit(path), limit, "step {step}: {path}");
        let known = &model.0[at];
        let mode = format!("{:03o}", known.mode);
        assert_eq!(partition.mode.octal(), mode, "step {step}: {path}");
        assert_eq!(
            (partition.owner, partition.group),
            (known.owner, known.group),
            "step {step}: {path}"
        );
    }
}

pub fn random_path(numbers: &mut Numbers) -> String {
    let mut path = numbers.of(&["", ".compute", ".io", ""]).to_owned();
    for _ in 0..numbers.below(4) {
        path += ".";
        path += numbers.of(&["a", "b", "c"]);
    }
    if path.is_empty() { ".".into() } else { path }
}

/// Root, the owner of the machine, a member of the owner's group, and somebody else.
pub fn users() -> Vec<Caller> {
    let users = [
        (0, vec![0]),
        (OWNER, vec![OWNER]),
        (11, vec![11, OWNER]),
        (12, vec![12]),
    ];
    users.map(|(user, groups)| Caller { user, groups }).into()
}

/// One operation on the table and on the model, which have to agree; returns its kind and whether
/// it was done.
pub fn operate(
    numbers: &mut Numbers,
    table: &mut Table,
    model: &mut Model,
    step: usize,
) -> (usize, bool) {
    let caller = &numbers.of(&[0, 1, 2, 3]);
    let caller = &users()[*caller];
    let name = random_path(numbers);
    let names = split(&name);
    let gang = |quantum_ms| Scheduling::Gang { quantum_ms };
    let set = Set {
        mode: (numbers.below(3) == 0).then(|| numbers.of(&[0o755, 0o777, 0o750, 0o070, 0o707])),
        limit: (numbers.below(4) == 0).then(|| numbers.below(11) as u32),
        scheduling: (numbers.below(2) == 0).then(|| {
            numbers.of(&[
                Scheduling::Standard,
                Scheduling::Space,
                gang(5),
                gang(10),
                gang(20),
            ])
        }),
    };
    let changes = Changes {
        mode: set
            .mode
            .map(|mode| Mode::parse(&format!("{mode:03o}")).unwrap()),
        priority_limit: set.limit,
        scheduling: set.scheduling,
        ..Changes::default()
    };
    let recursive = numbers.below(4) == 0;
    let kind = numbers.of(&[0, 0, 0, 1, 2, 3, 4]);
    let (real, expected) = match kind {
        0 => {
            let (rows, columns) = (1 + numbers.below(2) as u32, 1 + numbers.below(6) as u32);
            let (wanted, size, is_relaxed) = match numbers.below(4) {
                0 => (Wanted::Rectangle(rows, columns), rows * columns, true),
                1 => (Wanted::Size(columns), columns, true),
                _ => (Wanted::Size(columns), columns, false),
            };
            let wanted = match is_relaxed {
                true => Wanted::Relaxed(Box::new(wanted)),
                false => wanted,
            };
            (
                table.make(caller, &name, &wanted, &changes).map(|_| ()),
                model.make(caller, &names, (size as usize, is_relaxed), set),
            )
        }
        1 => (
            table.remove(caller, &name, recursive),
            model.remove(caller, &names, recursive),
        ),
        2 => {
            let new = numbers.of(&["a", "b", "c", "d"]);
            (
                table.rename(caller, &name, new).map(|_| ()),
                model.rename(caller, &names, new),
            )
        }
        3 => (
            table.change(caller, &name, &changes),
            model.change(caller, &names, set),
        ),
        _ => {
            let real = table.list(caller, &name, recursive).map(|listed| {
                let mut listed: Vec<_> = listed.iter().map(|(path, _)| split(path)).collect();
                listed.sort();
                listed
            });
            let expected = model.list(caller, &names, recursive);
            assert_eq!(real.clone().ok(), expected, "step {step}");
            (real.map(|_| ()), expected.is_some())
        }
    };
    assert_eq!(
        real.is_ok(),
        expected,
        "step {step}: {kind} {name} {real:?}"
    );
    compare(table, model, step);
    (kind, expected)
}
