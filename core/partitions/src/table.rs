//! All partitions of a machine, and what users may do with them.

use std::collections::BTreeMap;

use crate::attributes::{MOST_PRIORITY, Mode, Right, Scheduling};
use crate::refused::Refused;
use crate::shape::{Shape, Wanted};

/// The partition of all nodes.
pub const ROOT: &str = ".";
/// The partition below which names without a leading dot lie.
pub const COMPUTE: &str = ".compute";

/// Partitions that are always there, at first each of all nodes.
const PERMANENT: [&str; 4] = [ROOT, COMPUTE, SERVICE, IO];

/// The partition of commands and sequential programs.
const SERVICE: &str = ".service";
/// That of the services of files; parallel programs are not run in it either.
pub const IO: &str = ".io";

/// The most partitions beside these.
const MOST: usize = 4096;

/// From this number on nodes are hosts: the first one in the table's list, and so on.
pub(crate) const HOSTS: u32 = 1 << 15;

/// The most hosts.
const MOST_HOSTS: usize = 1 << 14;

/// Longest name between two dots, in bytes.
const MOST_NAME: usize = 31;

/// The most partitions within each other.
const MOST_DEPTH: usize = 16;

/// Who asks: a user and the groups, by the system's numbers. User 0 has all rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: u32,
    /// The first one is that of the partitions that the user makes.
    pub groups: Vec<u32>,
}

/// A set of nodes with attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Numbers in the machine, ascending; never empty. Those of hosts are from `HOSTS` on.
    pub nodes: Vec<u32>,
    /// How many slots of each host it has, where its nodes are hosts.
    pub slots: Vec<u32>,
    pub owner: u32,
    pub group: u32,
    pub mode: Mode,
    pub scheduling: Scheduling,
    /// Applications in it have no higher priority; at most [`MOST_PRIORITY`].
    pub priority_limit: u32,
}

impl Partition {
    fn allows(&self, caller: &Caller, right: Right) -> bool {
        let class = match () {
            () if caller.user == 0 => return true,
            () if caller.user == self.owner => 0,
            () if caller.groups.contains(&self.group) => 1,
            () => 2,
        };
        self.mode.allows(class, right)
    }
}

/// Attributes to be set; others stay, or are the parent's in a new partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub mode: Option<Mode>,
    pub scheduling: Option<Scheduling>,
    /// At most [`MOST_PRIORITY`]; more is taken for that.
    pub priority_limit: Option<u32>,
    /// Root alone gives a partition to another user.
    pub owner: Option<u32>,
    /// The owner gives it to a group of which it is a member, root to any.
    pub group: Option<u32>,
}

impl Changes {
    fn apply(&self, partition: &mut Partition) {
        partition.mode = self.mode.unwrap_or(partition.mode);
        partition.scheduling = self.scheduling.unwrap_or(partition.scheduling);
        let limit = self.priority_limit.unwrap_or(partition.priority_limit);
        partition.priority_limit = limit.min(MOST_PRIORITY);
        partition.owner = self.owner.unwrap_or(partition.owner);
        partition.group = self.group.unwrap_or(partition.group);
    }
}

/// Returns the whole path of a partition: `mine` is `.compute.mine`.
///
/// # Errors
/// When it is no name.
pub fn path(name: &str) -> Result<String, Refused> {
    let refused = |why| Err(Refused::Name(name.to_owned(), why));
    let path = match name {
        ROOT => return Ok(name.to_owned()),
        _ if name.starts_with('.') => name.to_owned(),
        _ => format!("{COMPUTE}.{name}"),
    };
    for (at, part) in path.split('.').skip(1).enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        match part {
            "" => return refused("nothing stands between two dots or at an end"),
            _ if part.len() > MOST_NAME => return refused("it is too long"),
            _ if part.starts_with('-') => return refused("it begins with a dash"),
            _ if !part.chars().all(is_plain) => return refused("it has other characters"),
            _ if at >= MOST_DEPTH => return refused("it lies in more than 16 others"),
            _ => {}
        }
    }
    Ok(path)
}

/// The path of the partition in which one lies; none for the root.
fn parent(path: &str) -> Option<&str> {
    match path.rfind('.') {
        Some(0) if path == ROOT => None,
        Some(0) => Some(ROOT),
        at => at.map(|at| &path[..at]),
    }
}

fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    path != above && (above == ROOT || rest.is_some_and(|rest| rest.starts_with('.')))
}

/// All partitions of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(crate) shape: Shape,
    /// The names of hosts that partitions have or had.
    pub(crate) hosts: Vec<String>,
    /// By path; a parent is always there.
    pub(crate) all: BTreeMap<String, Partition>,
}

impl Table {
    /// A machine on which nobody has made a partition. `owner` may give others rights.
    #[must_use]
    pub fn new(shape: Shape, owner: u32, group: u32) -> Table {
        let mode = Mode::parse("755").expect("755 is a mode");
        let partition = |_| Partition {
            nodes: (0..shape.nodes()).collect(),
            slots: Vec::new(),
            owner,
            group,
            mode,
            scheduling: Scheduling::Standard,
            priority_limit: MOST_PRIORITY,
        };
        let all = PERMANENT.map(|name| (name.to_owned(), partition(name)));
        Table {
            shape,
            hosts: Vec::new(),
            all: all.into(),
        }
    }

    /// The mesh of the machine.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes a partition of nodes of its parent, and returns its path.
    ///
    /// # Errors
    /// When the name is none or is taken, the caller may not write to the parent, or the parent
    /// has no such nodes.
    pub fn make(
        &mut self,
        caller: &Caller,
        name: &str,
        wanted: &Wanted,
        changes: &Changes,
    ) -> Result<String, Refused> {
        let path = path(name)?;
        let Some(above) = parent(&path) else {
            return Err(Refused::Exists(path));
        };
        let parent = self.permitted(caller, above, Right::Write)?;
        if self.all.contains_key(&path) {
            return Err(Refused::Exists(path));
        }
        if self.all.len() >= MOST + PERMANENT.len() {
            return Err(Refused::TooMany(MOST));
        }
        let refused = |why| Refused::Nodes(above.to_owned(), why);
        let mut hosts = self.hosts.clone();
        let (nodes, slots) = match wanted {
            Wanted::Hosts(list) => {
                let is_whole = PERMANENT.contains(&above);
                let given = numbered(&mut hosts, list).map_err(refused)?;
                let has = |(node, slots): &(u32, u32)| {
                    let at = parent.nodes.binary_search(node).ok();
                    at.and_then(|at| parent.slots.get(at))
                        .is_some_and(|of_parent| slots <= of_parent)
                };
                if !is_whole && !given.iter().all(has) {
                    return Err(refused("it has not all of these hosts and slots".into()));
                }
                given.into_iter().unzip()
            }
            Wanted::All => (parent.nodes.clone(), parent.slots.clone()),
            _ if !parent.slots.is_empty() => {
                return Err(refused("its nodes are hosts, which -hosts names".into()));
            }
            _ => {
                let load = self.load(above);
                let of = |node: u32| load.get(&node).copied().unwrap_or(0);
                let nodes = wanted.choose(&parent.nodes, self.shape, &of);
                (nodes.map_err(refused)?, Vec::new())
            }
        };
        let mut partition = Partition {
            nodes,
            slots,
            owner: caller.user,
            group: caller.groups.first().copied().unwrap_or(parent.group),
            ..*parent
        };
        changes.apply(&mut partition);
        self.hosts = hosts;
        self.all.insert(path.clone(), partition);
        Ok(path)
    }

    /// The hosts that partitions have or had, with their numbers as nodes.
    pub fn hosts(&self) -> impl Iterator<Item = (u32, &str)> {
        (HOSTS..).zip(self.hosts.iter().map(String::as_str))
    }

    /// The hosts of a partition with their slots, by the numbers of its nodes; nothing where its
    /// nodes are of this machine.
    #[must_use]
    pub fn hosts_of(&self, partition: &Partition) -> Vec<(u32, &str, u32)> {
        let nodes = partition.nodes.iter().zip(&partition.slots);
        let of = |(&node, &slots): (&u32, &u32)| {
            let name = self.hosts.get(node.checked_sub(HOSTS)? as usize)?;
            Some((node, name.as_str(), slots))
        };
        nodes.filter_map(of).collect()
    }

    /// Gives `.compute`, `.service` or `.io`, which are always there, other nodes.
    ///
    /// # Errors
    /// When it is another one, the caller may not write to it, the machine has no such nodes, or a
    /// partition in it has one that it is to lose.
    pub fn assign(&mut self, caller: &Caller, name: &str, wanted: &Wanted) -> Result<(), Refused> {
        let path = path(name)?;
        self.permitted(caller, &path, Right::Write)?;
        if path == ROOT || !Table::is_permanent(&path) {
            return Err(Refused::Fixed(path));
        }
        let refused = |why| Refused::Nodes(ROOT.to_owned(), why);
        let nodes = wanted.choose(&self.all[ROOT].nodes, self.shape, &|_| 0);
        let nodes = nodes.map_err(refused)?;
        for child in self.below(&path) {
            let own = &self.all[&child];
            let lost = own.nodes.iter().find(|node| !nodes.contains(node));
            if let Some(lost) = lost.filter(|_| own.slots.is_empty()) {
                return Err(Refused::Needed(path, child, *lost));
            }
        }
        if let Some(partition) = self.all.get_mut(&path) {
            partition.nodes = nodes;
        }
        Ok(())
    }

    /// One of the partitions that are always there, whatever rights its user has.
    #[must_use]
    pub fn always(&self, path: &str) -> Option<&Partition> {
        self.all.get(path).filter(|_| Table::is_permanent(path))
    }

    /// Whether a partition is for commands and sequential programs: `.service`, `.io`, and what
    /// lies in them.
    #[must_use]
    pub fn is_for_commands(path: &str) -> bool {
        [SERVICE, IO].iter().any(|own| Table::is_within(path, own))
    }

    /// Removes a partition, and with `recursive` those below it: all or none.
    ///
    /// # Errors
    /// When the caller may not write to a parent of what goes, or there are subpartitions.
    pub fn remove(&mut self, caller: &Caller, name: &str, recursive: bool) -> Result<(), Refused> {
        let path = path(name)?;
        let above = parent(&path).unwrap_or(ROOT).to_owned();
        self.found(&path)?;
        self.permitted(caller, &above, Right::Write)?;
        if PERMANENT.contains(&path.as_str()) {
            return Err(Refused::Permanent(path));
        }
        let below = self.below(&path);
        if !below.is_empty() && !recursive {
            return Err(Refused::Children(path));
        }
        for child in &below {
            let above = parent(child).unwrap_or(ROOT);
            self.permitted(caller, above, Right::Write)?;
        }
        for gone in below.iter().chain([&path]) {
            self.all.remove(gone);
        }
        Ok(())
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// When the caller may not write to it; permissions and the group are changed by the owner
    /// alone, and the owner by root.
    pub fn change(
        &mut self,
        caller: &Caller,
        name: &str,
        changes: &Changes,
    ) -> Result<(), Refused> {
        let path = path(name)?;
        let is_owners = changes.mode.is_some() || changes.group.is_some();
        self.owned_or(caller, &path, is_owners || changes.owner.is_some())?;
        let is_same = changes
            .owner
            .is_none_or(|owner| owner == self.all[&path].owner);
        if caller.user != 0 && !is_same {
            return Err(Refused::GivenAway(path));
        }
        if let Some(group) = changes.group
            && caller.user != 0
            && !caller.groups.contains(&group)
        {
            return Err(Refused::NotMember(group, path));
        }
        if let Some(partition) = self.all.get_mut(&path) {
            changes.apply(partition);
        }
        Ok(())
    }

    /// The owner may change permissions that forbid the owner to write.
    fn owned_or(&self, caller: &Caller, path: &str, owner_only: bool) -> Result<(), Refused> {
        let is_owner = caller.user == 0 || self.found(path)?.owner == caller.user;
        match (owner_only, is_owner) {
            (true, false) => Err(Refused::NotOwner(path.to_owned())),
            (true, true) => self.found(path).map(|_| ()),
            (false, _) => self.permitted(caller, path, Right::Write).map(|_| ()),
        }
    }

    /// Renames a partition within its parent, and so moves those below it.
    ///
    /// # Errors
    /// When the caller may not write to the parent, or the new name is none or is taken.
    pub fn rename(&mut self, caller: &Caller, name: &str, new: &str) -> Result<String, Refused> {
        let old = path(name)?;
        self.found(&old)?;
        let above = parent(&old).unwrap_or(ROOT).to_owned();
        self.permitted(caller, &above, Right::Write)?;
        if PERMANENT.contains(&old.as_str()) {
            return Err(Refused::Permanent(old));
        }
        let whole = match above.as_str() {
            _ if new.contains('.') => {
                return Err(Refused::Name(new.to_owned(), "a new name has no dot"));
            }
            ROOT => format!(".{new}"),
            above => format!("{above}.{new}"),
        };
        let whole = path(&whole)?;
        if self.all.contains_key(&whole) {
            return Err(Refused::Exists(whole));
        }
        for from in self.below(&old).into_iter().chain([old.clone()]) {
            if let Some(partition) = self.all.remove(&from) {
                let to = format!("{whole}{}", &from[old.len()..]);
                self.all.insert(to, partition);
            }
        }
        Ok(whole)
    }

    /// Finds a partition for which the caller has a right.
    ///
    /// # Errors
    /// When there is none, or the right is missing.
    pub fn find(
        &self,
        caller: &Caller,
        name: &str,
        right: Right,
    ) -> Result<(String, &Partition), Refused> {
        let path = path(name)?;
        let partition = self.permitted(caller, &path, right)?;
        Ok((path, partition))
    }

    /// The partitions directly below one, or with `recursive` all below it, by path; of those that
    /// the caller may not read, neither they nor what is below them.
    ///
    /// # Errors
    /// As [`Table::find`] for reading.
    pub fn list(
        &self,
        caller: &Caller,
        name: &str,
        recursive: bool,
    ) -> Result<Vec<(&str, &Partition)>, Refused> {
        let (path, _) = self.find(caller, name, Right::Read)?;
        let mut hidden: Vec<&str> = Vec::new();
        let mut listed = Vec::new();
        for (child, partition) in &self.all {
            let is_meant = if recursive {
                is_below(child, &path)
            } else {
                parent(child) == Some(&path)
            };
            if !is_meant || hidden.iter().any(|above| is_below(child, above)) {
                continue;
            }
            if partition.allows(caller, Right::Read) {
                listed.push((child.as_str(), partition));
            } else {
                hidden.push(child);
            }
        }
        Ok(listed)
    }

    /// The highest priority of applications in a partition: the lowest limit of it and those that
    /// it lies in.
    #[must_use]
    pub fn priority_limit(&self, path: &str) -> u32 {
        let mut limit = MOST_PRIORITY;
        let mut at = Some(path);
        while let Some(path) = at {
            limit = limit.min(
                self.all
                    .get(path)
                    .map_or(MOST_PRIORITY, |p| p.priority_limit),
            );
            at = parent(path);
        }
        limit
    }

    /// Whether a partition is another one or lies in it.
    #[must_use]
    pub fn is_within(path: &str, above: &str) -> bool {
        path == above || is_below(path, above)
    }

    /// How many nodes of a partition are in no partition directly below it.
    #[must_use]
    pub fn free(&self, path: &str) -> usize {
        let load = self.load(path);
        let nodes = self.all.get(path).map_or(&[][..], |p| &p.nodes);
        nodes.iter().filter(|node| !load.contains_key(node)).count()
    }

    /// How many partitions directly below one have each node of the machine.
    fn load(&self, above: &str) -> BTreeMap<u32, usize> {
        let mut load = BTreeMap::new();
        let made = self
            .all
            .iter()
            .filter(|(path, _)| parent(path) == Some(above) && !PERMANENT.contains(&path.as_str()));
        for node in made.flat_map(|(_, partition)| &partition.nodes) {
            *load.entry(*node).or_default() += 1;
        }
        load
    }

    fn below(&self, path: &str) -> Vec<String> {
        let all = self.all.keys().filter(|child| is_below(child, path));
        all.cloned().collect()
    }

    fn found(&self, path: &str) -> Result<&Partition, Refused> {
        let found = self.all.get(path);
        found.ok_or_else(|| Refused::NoPartition(path.to_owned()))
    }

    fn permitted(&self, caller: &Caller, path: &str, right: Right) -> Result<&Partition, Refused> {
        let partition = self.found(path)?;
        if partition.allows(caller, right) {
            return Ok(partition);
        }
        Err(Refused::Denied(right, path.to_owned()))
    }

    /// Whether it is one that nobody made.
    #[must_use]
    pub fn is_permanent(path: &str) -> bool {
        PERMANENT.contains(&path)
    }
}

/// Gives hosts their numbers, ascending, with their slots.
fn numbered(hosts: &mut Vec<String>, list: &[(String, u32)]) -> Result<Vec<(u32, u32)>, String> {
    let mut numbers = BTreeMap::new();
    for (name, slots) in list {
        let at = hosts.iter().position(|known| known == name);
        let at = at.unwrap_or_else(|| {
            hosts.push(name.clone());
            hosts.len() - 1
        });
        if hosts.len() > MOST_HOSTS {
            return Err(format!("there are more than {MOST_HOSTS} hosts"));
        }
        numbers.insert(HOSTS + at as u32, *slots);
    }
    Ok(numbers.into_iter().collect())
}

/// Whether a table keeps its own rules: used where a stored one is read.
pub(crate) fn is_consistent(table: &Table) -> bool {
    table.all.iter().all(|(name, partition)| {
        let is_within = |above: &str| {
            table.all.get(above).is_some_and(|above| {
                let has = |node: &u32| above.nodes.binary_search(node).is_ok();
                partition.nodes.iter().all(has)
            })
        };
        let is_of_hosts = !partition.slots.is_empty();
        let hosts = HOSTS..HOSTS + table.hosts.len() as u32;
        let are_hosts = |nodes: &[u32]| nodes.iter().all(|node| hosts.contains(node));
        let is_first = parent(name).is_some_and(|above| PERMANENT.contains(&above));
        path(name).as_deref() == Ok(name)
            && partition.nodes.is_sorted_by(|a, b| a < b)
            && partition.priority_limit <= MOST_PRIORITY
            && !partition.nodes.is_empty()
            && (!is_of_hosts || are_hosts(&partition.nodes))
            && (!is_of_hosts || partition.slots.len() == partition.nodes.len())
            && (is_of_hosts && is_first || parent(name).is_none_or(is_within))
    })
}
