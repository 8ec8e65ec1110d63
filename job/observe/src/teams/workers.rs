//! The threads of IML and the tasks on them that wait. IML keeps no list of loops and tasks; what
//! each of its stacks does says the stack itself.

use margay_job_stacks::{Frame, Stack};
use margay_sys_os::process::ProcessFacts;
use margay_sys_threads::inspect::SYMBOL;

use super::memory::Memory;
use super::places::{self, Source};
use super::{MemberState, MemberView, Snapshot};

/// Calls of IML in which a task waits for others.
const CALLS: [&str; 7] = [
    "iml_Both",
    "iml_COBEGIN",
    "iml_DOALL",
    "iml_For",
    "iml_Reduce",
    "iml_Wait",
    "iml_WaitEnQ",
];

/// What the stacks of a process in IML do that have begun something of the program, numbered from
/// 0: first the threads, then the tasks that wait while their thread runs another one. Nothing
/// where that cannot be read.
#[must_use]
pub fn of_iml(pid: u32) -> Vec<MemberView> {
    let memory = Memory::new(pid);
    let files = memory.files().unwrap_or_default();
    let mut of_iml = files.iter().filter(|file| file.path.contains("/libiml."));
    let found = of_iml.find_map(|file| memory.exported(file.base, SYMBOL));
    let Some(Ok(snapshot)) = found.map(|at| Snapshot::of(pid, &memory, at)) else {
        return Vec::new();
    };
    let mut sources = Vec::new();
    for thread in &snapshot.threads {
        sources.push((thread.number, false, Some(Source::Thread(thread.number))));
    }
    for fiber in &snapshot.fibers {
        let (number, at) = (fiber.thread, fiber.suspended_at);
        let source = match fiber.is_suspended() {
            true => places::of_fiber(&memory, at, fiber.base),
            false => places::of_own_stack(&memory, fiber.base),
        };
        sources.push((number, true, source));
    }
    let (shown, sources): (Vec<_>, Vec<_>) = (sources.into_iter())
        .map(|(thread, waits, source)| ((thread, waits), source))
        .unzip();
    let mut views: Vec<MemberView> = (shown.iter().zip(places::stacks_of(pid, sources)))
        .flat_map(|(&(thread, waits), stack)| {
            stack.map_or_else(Vec::new, |stack| of_stack(thread, waits, &stack))
        })
        .collect();
    for (number, view) in (0..).zip(&mut views) {
        view.member = number;
    }
    match &views[..] {
        // The program itself, which has begun no task, or has only run some before.
        [only] if only.thread == Some(pid) && only.waits_for.is_empty() => Vec::new(),
        _ => views,
    }
}

/// Whether a function is that call, in C, in Fortran, or the half of it in Rust, which may be all
/// that is left of it on the stack.
fn is_call(function: &str, call: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    plain(function.strip_prefix("margay_").unwrap_or(function)) == plain(call)
}

/// What a stack does: the task on its top, and those below that have forked others, which run on
/// the same stack. Nothing of a stack that has nothing of the program: its thread is idle.
fn of_stack(thread: u32, is_suspended: bool, stack: &Stack) -> Vec<MemberView> {
    let (Some(users), Some(facts)) = (stack.users(), ProcessFacts::of(thread)) else {
        return Vec::new();
    };
    let view = |state, waits_for, at: &Frame| MemberView {
        member: 0,
        state,
        waits_for,
        thread: Some(thread),
        core: Some(facts.last_core),
        at: Some(at.clone()),
    };
    let top = match facts.state {
        _ if is_suspended => MemberState::Suspended,
        'R' => MemberState::Running,
        _ => MemberState::Sleeping,
    };
    let mut views = Vec::new();
    let mut waits_for = "";
    for frame in &stack.frames {
        let call = CALLS.iter().find(|call| is_call(&frame.function, call));
        waits_for = call.copied().unwrap_or(waits_for);
        if views.is_empty() && frame == users {
            views.push(view(top, waits_for, frame));
            waits_for = "";
        } else if !waits_for.is_empty() && stack.users_frames().any(|other| other == frame) {
            views.push(view(MemberState::Inside, waits_for, frame));
            waits_for = "";
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_in_all_languages() {
        let calls = |function: &str| CALLS.iter().filter(|call| is_call(function, call)).count();
        for function in [
            "iml_Wait",
            "iml_wait_",
            "margay_iml_both",
            "iml_DOALL",
            "iml_doall_",
        ] {
            assert_eq!(calls(function), 1, "{function}");
        }
        assert_eq!(calls("iml_Spawn") + calls("waits"), 0);
    }
}
