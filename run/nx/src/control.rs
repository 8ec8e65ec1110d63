//! The controlling process: it is no node of the application, but makes it (`nx_initve`), starts
//! its processes (`nx_nfork`, `nx_load`) and awaits their end (`nx_waitall`).
//!
//! It makes the job's shared memory as the launcher does, and its processes are its children. Each
//! node gets one process. It has a rank itself, behind those of the nodes, under which it passes
//! messages with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use margay_core_registry::Facts;
use margay_core_registry::account;
use margay_core_registry::place::{self, CONTROLS, UNPLACED};
use margay_sys_os::descriptor::{FileLimit, duplicate_above, leave_open};
use margay_sys_os::process::{self, Forked, Start, Starter, StringArray};
use margay_sys_os::signal::{self, SignalSet};
use margay_sys_os::{clock, cpu};
use margay_sys_shm::environment::{ENV_RANK, ENV_SEGMENT, ENV_SIZE};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

use crate::error::*;
use crate::{ptype_of, refuse};

/// The segment's descriptor in the processes: above those that shell scripts use.
const SEGMENT_FD: i32 = 100;

/// An application that this process controls.
pub struct Control {
    nodes: u32,
    segment: Arc<Segment>,
    handed_down: OwnedFd,
    /// Node of each process that is not known to have ended, by its process id.
    children: BTreeMap<u32, u32>,
    /// Nodes that have got a process.
    taken: Vec<bool>,
    /// Children that this process has ended itself.
    ended: BTreeSet<u32>,
    /// How the first one ended that did so badly, until `wait` reports it.
    failed: Option<Error>,
    ptype: u32,
    /// Whether this process passes messages.
    has_joined: bool,
    /// Of a cube.
    name: String,
}

/// Which side of `nx_nfork` this is.
pub enum Side {
    /// The controlling process: the number of processes that were made, with their ids.
    Parent(Vec<u32>),
    /// A process of the application.
    Child,
}

impl Control {
    /// `nx_initve`: an application of this many nodes; 0: one for each usable core.
    ///
    /// # Errors
    /// When the number is wrong, or there is no shared memory for it.
    pub fn new(nodes: i64) -> Result<Control> {
        let cores = cpu::usable_cores();
        let nodes = match nodes {
            0 => cores as u32,
            1..=0xffff => nodes as u32,
            _ => refuse!(
                EQPARAM,
                "the application cannot have {nodes} nodes; it has 1 to 65535, or 0 for one on each core"
            ),
        };
        let made = Segment::create(Sizes::for_job(nodes + 1));
        let segment = Arc::new(made.map_err(|e| Error::new(EQFAULT, e.to_string()))?);
        let pid = std::process::id();
        let words: Vec<String> = std::env::args_os()
            .map(|w| w.to_string_lossy().into_owned())
            .collect();
        segment.registry().describe(&Facts {
            job: u64::from(pid),
            launcher: pid,
            started_ns: clock::now_ns(),
            command: words.join(" "),
            cores: cores as u32,
            is_tolerant: false,
        });
        let handed_down = duplicate_above(segment.fd(), SEGMENT_FD)
            .map_err(|e| Error::new(EQFAULT, format!("no descriptor is left: {e}")))?;
        let control = Control {
            nodes,
            segment,
            handed_down,
            children: BTreeMap::new(),
            taken: vec![false; nodes as usize],
            ended: BTreeSet::new(),
            failed: None,
            ptype: 0,
            has_joined: false,
            name: String::new(),
        };
        for node in 0..nodes {
            control.enter_place(node, UNPLACED)?;
        }
        control.enter_place(nodes, CONTROLS)?;
        control.registry_type(0)?;
        control.segment.registry().set_pid(nodes, pid);
        Ok(control)
    }

    /// In a copy of this process: gives up control, and keeps what the process inherits as a node
    /// of the application.
    pub fn give_up(self) {
        // Refused, it is missed where the process joins, which says so.
        let _ = leave_open(self.handed_down);
    }

    /// Gives the application the name of a cube, and says to whom its use is to be charged, as far
    /// as the program does: displays show it. Nothing is charged by that.
    ///
    /// # Errors
    /// When the registry has no room for it.
    pub fn call(&mut self, name: &str, account: &str) -> Result<()> {
        name.clone_into(&mut self.name);
        if account.is_empty() {
            return Ok(());
        }
        match (self.segment).make_note(self.nodes, account::KEY, account::WORDS) {
            Some(note) => {
                account::set(&note, account);
                Ok(())
            }
            None => refuse!(
                EQFAULT,
                "the application's registry has no room for the account '{account}'"
            ),
        }
    }

    /// Whether this is the cube of that name; an empty one is any.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        name.trim().is_empty() || name.trim() == self.name.trim()
    }

    /// How many processes are not known to have ended.
    #[must_use]
    pub fn processes(&self) -> i64 {
        self.children.len() as i64
    }

    /// Returns how many nodes the application has.
    #[must_use]
    pub fn nodes(&self) -> i64 {
        i64::from(self.nodes)
    }

    /// This process's type: 0 until it says another.
    #[must_use]
    pub fn ptype(&self) -> i64 {
        i64::from(self.ptype)
    }

    /// `setptype` of this process.
    ///
    /// # Errors
    /// When the type is out of range.
    pub fn set_ptype(&mut self, ptype: i64) -> Result<()> {
        let ptype = ptype_of(ptype)?;
        self.registry_type(ptype)?;
        self.ptype = ptype;
        Ok(())
    }

    /// Memory and rank with which this process joins the application that it controls, to pass
    /// messages.
    pub fn join(&mut self) -> (Arc<Segment>, u32) {
        self.has_joined = true;
        (self.segment.clone(), self.nodes)
    }

    /// `nx_nfork`: a copy of this process on each of the nodes, -1 of them: on all.
    ///
    /// # Errors
    /// When a node does not exist or has a process, or the system makes no process.
    pub fn fork(&mut self, nodes: Option<&[i64]>, ptype: i64) -> Result<Side> {
        let (nodes, ptype) = (self.free(nodes)?, ptype_of(ptype)?);
        if self.has_joined {
            refuse!(
                EQSTATE,
                "this process has passed messages, so copies of it cannot be nodes; call nx_nfork before, or nx_load"
            );
        }
        let mut pids = Vec::new();
        self.place(&nodes, ptype)?;
        for node in nodes {
            match process::fork() {
                Ok(Forked::Parent(pid)) => {
                    self.note(pid, node);
                    pids.push(pid);
                }
                Ok(Forked::Child) => {
                    process::die_with_parent();
                    for (name, value) in self.variables(node) {
                        process::set_variable(&name, &value);
                    }
                    return Ok(Side::Child);
                }
                Err(error) => refuse!(EQPATH, "cannot make the process for node {node}: {error}"),
            }
        }
        Ok(Side::Parent(pids))
    }

    /// `nx_load` and `nx_loadve`: a program on each of the nodes; the processes' ids. Without
    /// arguments it gets its name, without an environment that of this process.
    ///
    /// # Errors
    /// As [`fork`](Self::fork).
    pub fn load(
        &mut self,
        nodes: Option<&[i64]>,
        ptype: i64,
        path: &str,
        arguments: Option<Vec<CString>>,
        environment: Option<Vec<CString>>,
    ) -> Result<Vec<u32>> {
        let (nodes, ptype) = (self.free(nodes)?, ptype_of(ptype)?);
        let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
        let program = text(path.as_bytes());
        let arguments = StringArray::new(arguments.unwrap_or_else(|| vec![program.clone()]));
        let mut starter = Starter::new();
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let mut pids = Vec::new();
        self.place(&nodes, ptype)?;
        for node in nodes {
            let own = self.variables(node);
            let mut variables = environment.clone().unwrap_or_else(|| {
                let replaced = |name: &OsString| own.iter().any(|(n, _)| name == n.as_str());
                let all = std::env::vars_os().filter(|(name, _)| !replaced(name));
                all.map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
                    .collect()
            });
            variables.extend(own.iter().map(|(n, v)| text(format!("{n}={v}").as_bytes())));
            let start = Start {
                program: &program,
                arguments: &arguments,
                environment: &StringArray::new(variables),
                directory: None,
                standard: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
                inherit: &[self.handed_down.as_fd()],
                cores: &[],
                files: FileLimit::now(),
                blocked: SignalSet::of(&[]),
            };
            match starter.start(&start) {
                Ok(pid) => {
                    self.note(pid, node);
                    pids.push(pid);
                }
                Err(failed) => {
                    refuse!(
                        EQPATH,
                        "'{path}' cannot be started on node {node}: {}",
                        failed.error
                    )
                }
            }
        }
        Ok(pids)
    }

    /// `killproc` and `killcube` in this process: ends the processes of a type on a node, -1: all.
    ///
    /// # Errors
    /// When there is no such node or type.
    pub fn kill(&mut self, node: i64, ptype: i64) -> Result<()> {
        let ptype = self.selected(node, ptype)?;
        // How one has ended before is not this call's doing.
        while let Ok(Some((pid, status))) = process::ended_child() {
            self.note_end(pid, status);
        }
        for pid in self.those(node, ptype) {
            self.ended.insert(pid);
            // A process that has ended already need not be ended.
            let _ = signal::send(pid, signal::SIGKILL);
        }
        Ok(())
    }

    /// What selects processes, if there are such nodes and types: a type, none for any.
    fn selected(&self, node: i64, ptype: i64) -> Result<Option<u32>> {
        if node != -1 && !(0..self.nodes()).contains(&node) {
            refuse!(
                EQNODE,
                "there is no node {node}; the application has the nodes 0 to {}",
                self.nodes - 1
            );
        }
        match ptype {
            -1 => Ok(None),
            ptype => ptype_of(ptype).map(Some),
        }
    }

    /// The processes on a node, -1: all, of a type, none: any, that are not known to have ended.
    fn those(&self, node: i64, ptype: Option<u32>) -> Vec<u32> {
        let is_of = |on: u32| {
            let now = || {
                let note = self.segment.note(on, place::KEY);
                place::process_type(note.as_deref())
            };
            (node == -1 || node == i64::from(on)) && ptype.is_none_or(|wanted| wanted == now())
        };
        let children = self.children.iter();
        children
            .filter(|(_, on)| is_of(**on))
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// `nx_waitall`, and `waitall` of the processes of a type on a node, -1: all: waits until they
    /// have ended. When one is killed or aborts, all others are ended too; when one exits, they
    /// continue, whatever its code.
    ///
    /// # Errors
    /// When there is no such node or type, or one has ended badly: the first that did.
    pub fn wait(&mut self, node: i64, ptype: i64) -> Result<()> {
        let ptype = self.selected(node, ptype)?;
        while !self.those(node, ptype).is_empty() {
            match process::wait_for_child() {
                Ok((pid, status)) => self.note_end(pid, status),
                Err(_) => self.children.clear(),
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Notes who has ended since the last call. Returns what [`wait`](Self::wait) returns when all
    /// have, and none before.
    pub fn reap(&mut self, node: i64, ptype: i64) -> Option<Result<()>> {
        let ptype = match self.selected(node, ptype) {
            Ok(ptype) => ptype,
            Err(error) => return Some(Err(error)),
        };
        while !self.those(node, ptype).is_empty() {
            match process::ended_child() {
                Ok(Some((pid, status))) => self.note_end(pid, status),
                Ok(None) => return None,
                Err(_) => self.children.clear(),
            }
        }
        Some(self.failed.take().map_or(Ok(()), Err))
    }

    fn note_end(&mut self, pid: u32, status: ExitStatus) {
        let Some(node) = self.children.remove(&pid) else {
            return;
        };
        let registry = self.segment.registry();
        registry.set_exited(node, status.success());
        let aborted = registry.aborted();
        // One that was dying in another way when `kill` came has not been ended by it: its end may
        // be noticed before it can be reaped.
        let is_own = self.ended.remove(&pid) && status.signal() == Some(signal::SIGKILL);
        if status.success() || is_own {
            return;
        }
        if self.failed.is_none() {
            self.failed = Some(Error::new(EQFAULT, end_of(node, status, aborted)));
        }
        if status.signal().is_none() && aborted.is_none() {
            return;
        }
        for &other in self.children.keys() {
            // A process that has ended already need not be ended.
            let _ = signal::send(other, signal::SIGTERM);
        }
    }

    /// Returns the nodes of a list, if all are there and free.
    fn free(&self, nodes: Option<&[i64]>) -> Result<Vec<u32>> {
        let Some(nodes) = nodes else {
            let all: Vec<i64> = (0..self.nodes()).collect();
            return self.free(Some(&all));
        };
        let mut chosen = Vec::new();
        for &node in nodes {
            match self.taken.get(usize::try_from(node).unwrap_or(usize::MAX)) {
                Some(false) if !chosen.contains(&(node as u32)) => chosen.push(node as u32),
                Some(_) => refuse!(
                    EQNODE,
                    "node {node} has a process already; start several on a node with the launcher: \
                     mpiexec -n {} a.out : -n {} -pt 1 b.out",
                    self.nodes,
                    self.nodes
                ),
                None => refuse!(
                    EQNODE,
                    "there is no node {node}; the application has the nodes 0 to {}",
                    self.nodes - 1
                ),
            }
        }
        Ok(chosen)
    }

    fn enter_place(&self, node: u32, ptype: u32) -> Result<()> {
        match self.segment.make_note(node, place::KEY, place::WORDS) {
            Some(note) => {
                place::set(&note, node, ptype);
                Ok(())
            }
            None => refuse!(
                EQFAULT,
                "the application's registry has no room for the type of node {node}"
            ),
        }
    }

    fn registry_type(&self, ptype: u32) -> Result<()> {
        let note = self.segment.make_note(self.nodes, place::KEY, place::WORDS);
        match note {
            Some(note) => {
                place::set_process_type(&note, ptype);
                Ok(())
            }
            None => refuse!(
                EQFAULT,
                "the application's registry has no room for the type of the controlling process"
            ),
        }
    }

    fn place(&self, nodes: &[u32], ptype: u32) -> Result<()> {
        for &node in nodes {
            self.enter_place(node, ptype)?;
        }
        // Those that are there may be waiting for them.
        for node in 0..self.nodes {
            self.segment.wake(node);
        }
        Ok(())
    }

    fn note(&mut self, pid: u32, node: u32) {
        self.taken[node as usize] = true;
        self.children.insert(pid, node);
        self.segment.registry().set_pid(node, pid);
    }

    fn variables(&self, node: u32) -> [(String, String); 3] {
        let fd = self.handed_down.as_raw_fd();
        [
            (ENV_SEGMENT.into(), fd.to_string()),
            (ENV_RANK.into(), node.to_string()),
            (ENV_SIZE.into(), self.nodes.to_string()),
        ]
    }
}

fn end_of(node: u32, status: ExitStatus, aborted: Option<(u32, i32)>) -> String {
    match (aborted, status.signal()) {
        (Some((by, code)), _) => format!("the process on node {by} has aborted with code {code}"),
        (None, Some(number)) => {
            let (name, meaning) = signal::describe(number);
            format!("the process on node {node} was killed by {name} ({meaning})")
        }
        (None, None) => format!(
            "the process on node {node} exited with code {}",
            status.code().unwrap_or(0)
        ),
    }
}
