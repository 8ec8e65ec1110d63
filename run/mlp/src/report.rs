//! The placement as text, as the system reports it at that moment.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use margay_core_topology::list_text;
use margay_sys_mlp::group::{Arena, State, ThreadSlot, Use};
use margay_sys_os::{cpu, memory};

use crate::error::Result;
use crate::threads::own_slots;
use crate::{Binding, Group, binding, bytes_text, how};

/// Pages of one part that are looked at: where more are, this many from its beginning.
const MOST_PAGES: usize = 1 << 16;

impl Group {
    /// `mlp_report`: which thread has which CPU, whether the system says so too, and where memory
    /// lies.
    ///
    /// # Errors
    /// When the arena cannot be made.
    pub fn report(&self) -> Result<String> {
        let arena = self.arena()?;
        let mut text = String::new();
        let out = &mut text;
        self.head(arena, out)?;
        let processes = arena.header().processes.load(Ordering::Relaxed);
        line(out, format_args!("process      pid thread   cpu  node"));
        for process in 1..=processes {
            let member = arena.member(process);
            let pid = member.pid.load(Ordering::Relaxed);
            let status = member.status.load(Ordering::Relaxed);
            let end = match member.state() {
                State::Ended => "has ended".to_owned(),
                State::Dead => how(status),
                _ => String::new(),
            };
            if !end.is_empty() {
                line(out, format_args!("{process:7} {pid:8} {end}"));
            }
            let slots = own_slots(arena, process);
            for (slot, thread) in slots.iter().zip(0..) {
                let cpu = slot.cpu.load(Ordering::Relaxed);
                let node = slot.node.load(Ordering::Relaxed);
                let state = if end.is_empty() {
                    state(slot, slots)
                } else {
                    lending(slot.usage()).unwrap_or_default()
                };
                line(
                    out,
                    format_args!("{process:7} {pid:8} {thread:6} {cpu:5} {node:5}  {state}"),
                );
            }
            let refused = member.memory.load(Ordering::Relaxed);
            if refused < 0 {
                let error = std::io::Error::from_raw_os_error(-refused);
                line(
                    out,
                    format_args!("{process:7} its memory is not bound: {error}"),
                );
            }
        }
        self.memory(arena, out);
        Ok(text)
    }

    fn head(&self, arena: &Arena, out: &mut String) -> Result<()> {
        let header = arena.header();
        let processes = header.processes.load(Ordering::Relaxed);
        let slots = arena.slots().len();
        let usable: Vec<u32> = self.topology().cpus().iter().map(|c| c.number).collect();
        line(
            out,
            format_args!(
                "MLP: {processes} processes, {slots} threads; usable CPUs {}",
                list_text(&usable)
            ),
        );
        let cores = header.usable_cores.load(Ordering::Relaxed) as usize;
        if cores < usable.len() {
            line(
                out,
                format_args!("the CPU quota keeps {cores} of them busy"),
            );
        }
        if slots > usable.len() {
            line(
                out,
                format_args!(
                    "more threads than CPUs: {slots} threads share {}",
                    usable.len()
                ),
            );
        }
        let nodes: Vec<u32> = self.topology().nodes().collect();
        let nodes_text = list_text(&nodes);
        match (binding()?, nodes.len()) {
            (Binding::Nothing, _) => line(out, format_args!("nothing is bound (MARGAY_MLP_BIND)")),
            (_, 1) => line(
                out,
                format_args!("memory: one node, so there is nothing to bind"),
            ),
            (Binding::Cpus, _) => line(
                out,
                format_args!("memory: nodes {nodes_text}, not bound (MARGAY_MLP_BIND)"),
            ),
            (Binding::Memory, _) => line(
                out,
                format_args!("memory: nodes {nodes_text}, that of each thread on its CPU's node"),
            ),
        }
        Ok(())
    }

    fn memory(&self, arena: &Arena, out: &mut String) {
        let data = arena.data();
        let mut parts = arena.named();
        parts.sort_by_key(|part| part.offset);
        let used = parts.iter().map(|part| part.bytes).sum();
        line(
            out,
            format_args!(
                "arena: {} at {:#x}, {} in {} parts",
                bytes_text(data.end - data.start),
                arena.address(0),
                bytes_text(used),
                parts.len()
            ),
        );
        for part in &parts {
            let mut text = format!(
                "  {:<24} {:>12}, made by process {}",
                part.name,
                bytes_text(part.bytes),
                part.maker
            );
            if self.topology().has_nodes() {
                text += &pages_text(arena.address(part.offset), part.bytes);
            }
            line(out, format_args!("{text}"));
        }
    }
}

/// Returns where the pages of a part lie.
fn pages_text(address: usize, bytes: u64) -> String {
    let bytes = bytes.min(MOST_PAGES as u64 * 4096) as usize;
    let nodes = match memory::nodes_of(address, bytes) {
        Ok(nodes) => nodes,
        Err(error) => return format!("; its nodes are unknown: {error}"),
    };
    let mut there: Vec<u32> = nodes.iter().flatten().copied().collect();
    there.sort_unstable();
    let mut text = String::new();
    for run in there.chunk_by(|a, b| a == b) {
        write!(text, "; node {}: {} pages", run[0], run.len()).expect("a string grows");
    }
    if there.is_empty() {
        text += "; not touched";
    }
    text
}

/// Returns the remark about a slot, one of those of its process.
fn state(slot: &ThreadSlot, slots: &[ThreadSlot]) -> String {
    let thread = slot.thread.load(Ordering::Relaxed);
    let own = slot.cpu.load(Ordering::Relaxed) as usize;
    let sharing = slots
        .iter()
        .filter(|slot| slot.thread.load(Ordering::Relaxed) == thread)
        .count();
    let bound = match cpu::affinity_of(thread).filter(|_| thread != 0) {
        Some(cpus) if cpus == [own] => format!("thread {thread} is bound"),
        // A runtime that has fewer threads than members moves them.
        Some(_) if sharing > 1 => {
            format!("thread {thread} is bound to it when it runs this member")
        }
        Some(cpus) => format!("thread {thread} is not bound: it may use CPUs {cpus:?}"),
        None => "no thread is bound".to_owned(),
    };
    match lending(slot.usage()) {
        Some(usage) => format!("{usage}; {bound}"),
        None => bound,
    }
}

fn lending(usage: Use) -> Option<String> {
    match usage {
        Use::Own => None,
        Use::Lent => Some("lent".into()),
        Use::Borrowed(process) => Some(format!("borrowed by process {process}")),
        Use::Wanted(process) => Some(format!("borrowed by process {process}, wanted back")),
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string grows");
}
