//! The teams of a process with Margay's threads, read from outside while it runs, as
//! `margay threads` shows them.
//!
//! The process describes itself ([`inspect`](margay_sys_threads::inspect)); nothing stops it. What
//! is read at one moment and at the next may not fit together: a member may be shown in a state
//! that it has just left.

mod memory;
mod places;
mod workers;

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::offset_of;

use margay_job_stacks::Frame;
use margay_sys_os::clock::now_ns;
use margay_sys_os::process::ProcessFacts;
use margay_sys_threads::inspect::{
    Description, FiberRecord, MAGIC, MemberRecord, SYMBOL, TeamRecord, ThreadRecord, VERSION, Wait,
};
use serde::Serialize;

use memory::{Mapped, Memory};
use places::Source;
pub use workers::of_iml;

/// A process. The field names are those of `margay threads --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessView {
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Threads that run members.
    pub threads: u32,
    /// Members of all teams, and how many of them run.
    pub members: u32,
    pub running: u32,
    /// Outer teams before those inside of them.
    pub teams: Vec<TeamView>,
}

/// A team.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TeamView {
    /// Its number in this view, from 1 on.
    pub team: u32,
    /// The team and the member that encountered its region; none for an outermost team.
    pub parent: Option<(u32, u32)>,
    /// How many regions enclose its members.
    pub level: u32,
    pub size: u32,
    /// The region's function.
    pub function: String,
    /// Since when the region runs, in seconds, where that is known.
    pub running_s: Option<f64>,
    pub member: Vec<MemberView>,
    /// Where its members are in the process.
    #[serde(skip)]
    pub address: u64,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberView {
    pub member: u32,
    pub state: MemberState,
    /// What it waits for; empty if for nothing that the library knows of.
    pub waits_for: &'static str,
    /// The kernel's number of the thread that runs it, or on which it goes on.
    pub thread: Option<u32>,
    /// The core on which that thread runs or ran last.
    pub core: Option<u32>,
    /// Where it is in the program, where that was asked for.
    #[serde(skip)]
    pub at: Option<Frame>,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// No thread has begun it.
    NotBegun,
    /// It has its thread, which runs.
    Running,
    /// It has its thread, which waits in the kernel.
    Sleeping,
    /// Others run on its thread.
    Suspended,
    /// It has encountered the region of a team, or runs another member of its own.
    Inside,
    Over,
}

/// Why there is nothing to show: a text with the remedy.
pub type Refusal = String;

/// Lists have an end somewhere.
const MOST_RECORDS: usize = 1 << 20;

/// Reads a process.
///
/// # Errors
/// When there is no such process, it does not use Margay's threads, or reading is not permitted;
/// the text says what to do.
pub fn look(pid: u32) -> Result<ProcessView, Refusal> {
    look_at(pid, false)
}

/// The same with the places of the members in the program: threads that run members are stopped
/// for a moment.
///
/// # Errors
/// As [`look`].
pub fn look_with_places(pid: u32) -> Result<ProcessView, Refusal> {
    look_at(pid, true)
}

fn look_at(pid: u32, with_places: bool) -> Result<ProcessView, Refusal> {
    let is_there = || ProcessFacts::of(pid).is_some_and(|facts| !matches!(facts.state, 'Z' | 'X'));
    if !is_there() {
        return Err(format!(
            "there is no process {pid}: it has ended, or its number is another one; `ps` lists processes"
        ));
    }
    let memory = Memory::new(pid);
    read(pid, &memory, with_places).map_err(|failure| {
        if !is_there() {
            return format!("process {pid} has ended meanwhile");
        }
        match failure {
            Failure::Refused(text) => text,
            Failure::Read(error) => refusal(pid, &memory, &error),
        }
    })
}

enum Failure {
    Read(io::Error),
    Refused(Refusal),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Read(error)
    }
}

fn refusal(pid: u32, memory: &Memory, error: &io::Error) -> Refusal {
    if memory.is_anothers() {
        return format!(
            "process {pid} belongs to another user, whose memory cannot be read: be that user, or root"
        );
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "the memory of process {pid} cannot be read ({error}): the system lets only a process's ancestors and root do that \
             where kernel.yama.ptrace_scope is not 0, and a container only with the capability SYS_PTRACE"
        );
    }
    format!("the memory of process {pid} cannot be read ({error})")
}

fn read(pid: u32, memory: &Memory, with_places: bool) -> Result<ProcessView, Failure> {
    let files = memory.files()?;
    let Some(first) = files.first() else {
        return Err(Failure::Refused(format!(
            "process {pid} has no program: it belongs to the kernel"
        )));
    };
    // What the kernel forbids it forbids for all of them.
    memory.bytes(first.base, 4)?;
    let found: Vec<u64> = files
        .iter()
        .filter_map(|file| memory.exported(file.base, SYMBOL))
        .collect();
    if found.is_empty() {
        return Err(Failure::Refused(format!(
            "process {pid} does not use Margay's threads: it has neither Margay's libgomp.so.1 nor its libiml.so.1; `margay omp PROGRAM` \
             runs an OpenMP program with them"
        )));
    }
    let mut view = ProcessView {
        pid,
        command: command(pid),
        threads: 0,
        members: 0,
        running: 0,
        teams: Vec::new(),
    };
    for description in found {
        let snapshot = Snapshot::of(pid, memory, description)?;
        view.threads += snapshot.threads.len() as u32;
        let before = view.teams.len() as u32;
        let mut teams = snapshot.views(memory, &files, before);
        if with_places {
            snapshot.find_places(pid, memory, &mut teams);
        }
        view.teams.extend(teams);
    }
    let members = || view.teams.iter().flat_map(|team| &team.member);
    let running = |member: &&MemberView| member.state == MemberState::Running;
    let (all, running) = (members().count(), members().filter(running).count());
    (view.members, view.running) = (all as u32, running as u32);
    Ok(view)
}

fn command(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    words.trim_end().to_owned()
}

/// The kernel's numbers of a process's threads.
fn threads_of(pid: u32) -> io::Result<HashSet<u32>> {
    let mut threads = HashSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
    }
    Ok(threads)
}

/// What a library's description said.
struct Snapshot {
    fibers: Vec<Fiber>,
    threads: Vec<Thread>,
    teams: Vec<Team>,
}

struct Fiber {
    base: u64,
    limit: u64,
    thread: u32,
    /// 0 while it runs.
    suspended_at: u64,
}

impl Fiber {
    fn is_suspended(&self) -> bool {
        self.suspended_at != 0
    }
}

struct Thread {
    number: u32,
    stack: u64,
}

struct Team {
    site: u64,
    level: u32,
    parent: u64,
    members: u64,
    member_bytes: u64,
    opened_ns: u64,
    member: Vec<Member>,
}

struct Member {
    stack: u64,
    wait: u32,
    is_unclaimed: bool,
}

impl Snapshot {
    fn of(pid: u32, memory: &Memory, at: u64) -> Result<Snapshot, Failure> {
        if memory.bytes(at, MAGIC.len())? != MAGIC {
            return Err(Failure::Refused(format!(
                "process {pid} has just begun: its libraries are not loaded yet"
            )));
        }
        let version = memory.half(at + offset_of!(Description, version) as u64)?;
        if version != VERSION {
            return Err(Failure::Refused(format!(
                "process {pid} runs with another version of Margay: its description of threads has version {version}, this command reads \
                 {VERSION}; use the margay of that installation"
            )));
        }
        // A child of a fork has the lists of its parent's threads.
        let threads = threads_of(pid)?;
        let list = |offset: usize, next: usize| records(memory, at + offset as u64, next as u64);
        let mut snapshot = Snapshot {
            fibers: Vec::new(),
            threads: Vec::new(),
            teams: Vec::new(),
        };
        for record in list(
            offset_of!(Description, fibers),
            offset_of!(FiberRecord, next),
        )? {
            let thread = memory.half(record + offset_of!(FiberRecord, thread) as u64)?;
            let word = |offset: usize| memory.word(record + offset as u64);
            let fiber = Fiber {
                base: word(offset_of!(FiberRecord, base))?,
                limit: word(offset_of!(FiberRecord, limit))?,
                thread,
                suspended_at: word(offset_of!(FiberRecord, suspended_at))?,
            };
            if threads.contains(&thread) {
                snapshot.fibers.push(fiber);
            }
        }
        for record in list(
            offset_of!(Description, threads),
            offset_of!(ThreadRecord, next),
        )? {
            let number = memory.half(record + offset_of!(ThreadRecord, thread) as u64)?;
            let stack = memory.word(record + offset_of!(ThreadRecord, stack) as u64)?;
            if threads.contains(&number) {
                snapshot.threads.push(Thread { number, stack });
            }
        }
        for record in list(offset_of!(Description, teams), offset_of!(TeamRecord, next))? {
            snapshot.teams.extend(team(memory, record)?);
        }
        // The youngest came first.
        snapshot.teams.reverse();
        Ok(snapshot)
    }

    /// The thread on whose stack, or on one of whose fibers' stacks, an address is, and whether
    /// that stack is suspended.
    fn stack_of(&self, address: u64) -> Option<(StackId, u32, bool)> {
        let fiber = |fiber: &Fiber| (fiber.limit..fiber.base).contains(&address);
        if let Some(at) = self.fibers.iter().position(fiber) {
            let fiber = &self.fibers[at];
            return Some((StackId::Fiber(at), fiber.thread, fiber.is_suspended()));
        }
        let nearest = self
            .threads
            .iter()
            .min_by_key(|thread| thread.stack.abs_diff(address))?;
        let others_run = |fiber: &Fiber| fiber.thread == nearest.number && !fiber.is_suspended();
        let is_suspended = self.fibers.iter().any(others_run);
        Some((
            StackId::Thread(nearest.number),
            nearest.number,
            is_suspended,
        ))
    }

    /// The teams as they are shown, with numbers after `before`.
    fn views(&self, memory: &Memory, files: &[Mapped], before: u32) -> Vec<TeamView> {
        let parents: Vec<Option<(usize, u32)>> = self
            .teams
            .iter()
            .map(|team| self.member_at(team.parent))
            .collect();
        let mut order = Vec::new();
        for (at, parent) in parents.iter().enumerate() {
            if parent.is_none() {
                below(at, &parents, &mut order);
            }
        }
        let innermost = self.innermost();
        let mut names = HashMap::new();
        let number = |team: usize| {
            let at = order.iter().position(|&at| at == team);
            at.map_or(0, |at| before + 1 + at as u32)
        };
        let now_ns = now_ns();
        order
            .iter()
            .map(|&at| {
                let team = &self.teams[at];
                let name = names
                    .entry(team.site)
                    .or_insert_with(|| function_name(memory, files, team.site));
                let running = |began: u64| now_ns.saturating_sub(began) as f64 / 1e9;
                TeamView {
                    address: team.members,
                    team: number(at),
                    parent: parents[at].map(|(team, member)| (number(team), member)),
                    level: team.level,
                    size: team.member.len() as u32,
                    function: name.clone(),
                    running_s: (team.opened_ns != 0).then(|| running(team.opened_ns)),
                    member: team
                        .member
                        .iter()
                        .enumerate()
                        .map(|(id, member)| self.member_view(id as u32, member, &innermost))
                        .collect(),
                }
            })
            .collect()
    }

    /// Finds where the members are that have a stack to themselves.
    fn find_places(&self, pid: u32, memory: &Memory, teams: &mut [TeamView]) {
        let shown = |team: &TeamView| {
            let is_it =
                |of: &&Team| of.member.len() == team.member.len() && of.members == team.address;
            self.teams.iter().find(is_it)
        };
        let sources = teams.iter().flat_map(|team| {
            let of = shown(team);
            let source = move |view: &MemberView| {
                let member = of?.member.get(view.member as usize)?;
                self.source(memory, view, member.stack)
            };
            team.member.iter().map(source)
        });
        let found = places::frames(pid, sources.collect());
        let members = teams.iter_mut().flat_map(|team| &mut team.member);
        for (member, frame) in members.zip(found) {
            member.at = frame;
        }
    }

    /// What says where a member is whose stack this address is on.
    fn source(&self, memory: &Memory, view: &MemberView, stack: u64) -> Option<Source> {
        match view.state {
            MemberState::Running | MemberState::Sleeping => Some(Source::Thread(view.thread?)),
            MemberState::Suspended => match self.stack_of(stack)?.0 {
                StackId::Fiber(at) => {
                    let fiber = &self.fibers[at];
                    places::of_fiber(memory, fiber.suspended_at, fiber.base)
                }
                StackId::Thread(thread) => {
                    let runs = |f: &&Fiber| f.thread == thread && !f.is_suspended();
                    places::of_own_stack(memory, self.fibers.iter().find(runs)?.base)
                }
            },
            _ => None,
        }
    }

    /// The team and the member at this address.
    fn member_at(&self, address: u64) -> Option<(usize, u32)> {
        self.teams.iter().enumerate().find_map(|(at, team)| {
            let id = address.checked_sub(team.members)? / team.member_bytes.max(1);
            (id < team.member.len() as u64).then_some((at, id as u32))
        })
    }

    /// The innermost member of each stack: the lowest address.
    fn innermost(&self) -> HashMap<StackId, u64> {
        let mut innermost = HashMap::new();
        for member in self.teams.iter().flat_map(|team| &team.member) {
            if member.stack == 0 {
                continue;
            }
            if let Some((id, ..)) = self.stack_of(member.stack) {
                let least = innermost.entry(id).or_insert(member.stack);
                *least = member.stack.min(*least);
            }
        }
        innermost
    }

    fn member_view(
        &self,
        id: u32,
        member: &Member,
        innermost: &HashMap<StackId, u64>,
    ) -> MemberView {
        let mut view = MemberView {
            member: id,
            state: MemberState::Over,
            waits_for: "",
            thread: None,
            core: None,
            at: None,
        };
        if member.stack == 0 {
            if member.is_unclaimed {
                view.state = MemberState::NotBegun;
            }
            return view;
        }
        let Some((stack, thread, is_suspended)) = self.stack_of(member.stack) else {
            return view;
        };
        let facts = ProcessFacts::of(thread);
        view.thread = Some(thread);
        view.core = facts.as_ref().map(|facts| facts.last_core);
        view.waits_for = Wait::NAMES.get(member.wait as usize).unwrap_or(&"");
        view.state = if innermost.get(&stack) != Some(&member.stack) {
            view.waits_for = "";
            MemberState::Inside
        } else if is_suspended {
            MemberState::Suspended
        } else if facts.is_some_and(|facts| facts.state == 'R') {
            MemberState::Running
        } else {
            MemberState::Sleeping
        };
        view
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StackId {
    Fiber(usize),
    Thread(u32),
}

/// Enters a team and those inside of it.
fn below(team: usize, parents: &[Option<(usize, u32)>], order: &mut Vec<usize>) {
    // What is read while it changes could be a circle.
    if order.contains(&team) {
        return;
    }
    order.push(team);
    for (at, parent) in parents.iter().enumerate() {
        if parent.is_some_and(|(of, _)| of == team) {
            below(at, parents, order);
        }
    }
}

/// The addresses of the records of a list.
fn records(memory: &Memory, list: u64, next: u64) -> io::Result<Vec<u64>> {
    let mut records = Vec::new();
    let mut at = memory.word(list)?;
    while at != 0 && records.len() < MOST_RECORDS {
        records.push(at);
        at = memory.word(at + next)?;
    }
    Ok(records)
}

/// A team that is used by a region of more than an initial thread.
fn team(memory: &Memory, record: u64) -> io::Result<Option<Team>> {
    let half = |offset: usize| memory.half(record + offset as u64);
    let word = |offset: usize| memory.word(record + offset as u64);
    let site = memory.word(word(offset_of!(TeamRecord, site_at))?)?;
    let level = memory.half(word(offset_of!(TeamRecord, level_at))?)?;
    if site == 0 || level == 0 {
        return Ok(None);
    }
    let size = half(offset_of!(TeamRecord, size))?;
    let records = word(offset_of!(TeamRecord, records))?;
    let mut member = Vec::new();
    for id in 0..u64::from(size) {
        let record = memory.word(records + 8 * id)?;
        member.push(Member {
            stack: memory.word(record + offset_of!(MemberRecord, stack) as u64)?,
            wait: memory.half(record + offset_of!(MemberRecord, wait) as u64)?,
            is_unclaimed: false,
        });
    }
    let classes = half(offset_of!(TeamRecord, classes))?;
    let (first, distance) = (
        word(offset_of!(TeamRecord, first_class))?,
        word(offset_of!(TeamRecord, class_bytes))?,
    );
    for class in 0..u64::from(classes) {
        for id in unclaimed(memory.word(first + class * distance)?, classes) {
            if let Some(member) = member.get_mut(id) {
                member.is_unclaimed = id != 0;
            }
        }
    }
    Ok(Some(Team {
        site,
        level,
        parent: memory.word(word(offset_of!(TeamRecord, parent_at))?)?,
        members: word(offset_of!(TeamRecord, members))?,
        member_bytes: word(offset_of!(TeamRecord, member_bytes))?,
        opened_ns: memory.word(word(offset_of!(TeamRecord, opened_at))?)?,
        member,
    }))
}

/// The members that a class's word says nobody has claimed (`sys/threads/src/claims.rs`).
fn unclaimed(word: u64, classes: u32) -> impl Iterator<Item = usize> {
    let (next, end) = (word as u32, (word >> 32) as u32 & (u32::MAX >> 1));
    let step = if word >> 63 != 0 { 1 } else { classes.max(1) };
    (next..end).step_by(step as usize).map(|id| id as usize)
}

/// The function at an address, or the file and the place in it.
fn function_name(memory: &Memory, files: &[Mapped], address: u64) -> String {
    let Some(mapped) = files
        .iter()
        .find(|file| (file.base..file.end).contains(&address))
    else {
        return format!("{address:#x}");
    };
    let offset = address - mapped.base;
    let name = memory
        .file(mapped)
        .ok()
        .and_then(|file| memory::function(&file, offset));
    name.unwrap_or_else(|| {
        let file = mapped.path.rsplit('/').next().unwrap_or_default();
        format!("{file}+{offset:#x}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_classes_name_members() {
        let of = |word| unclaimed(word, 2).collect::<Vec<_>>();
        assert_eq!(of(8 << 32 | 3), [3, 5, 7]);
        assert_eq!(of(1 << 63 | 6 << 32 | 4), [4, 5]);
        assert!(of(8 << 32 | 9).is_empty());
    }

    #[test]
    fn the_script_for_gdb_knows_the_same_description() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../abi/gdb/margay_gdb.py");
        let script = std::fs::read_to_string(script).unwrap();
        let waits = python_list(&Wait::NAMES);
        for line in [
            format!("SYMBOL = \"{SYMBOL}\"\n"),
            format!("MAGIC = b\"{}\"\n", String::from_utf8_lossy(&MAGIC)),
            format!("VERSION = {VERSION}\n"),
            format!("WAITS = {waits}\n"),
        ] {
            assert!(script.contains(&line), "{line}");
        }
    }

    /// A list of texts as Python has it.
    fn python_list(texts: &[&str]) -> String {
        let quoted: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
        format!("[{}]", quoted.join(", "))
    }

    #[test]
    fn teams_that_seem_to_be_inside_of_each_other_are_shown_once() {
        let mut order = Vec::new();
        let parents = [None, Some((0, 1)), Some((1, 0)), Some((0, 0))];
        below(0, &parents, &mut order);
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn what_cannot_be_shown_is_refused_with_a_reason() {
        let gone = look(u32::MAX >> 1).unwrap_err();
        assert!(gone.contains("there is no process"), "{gone}");
    }
}
