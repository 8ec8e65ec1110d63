//! Where members are in the program. Of one that has its thread, that thread's stack says it. Of
//! one that is suspended, the registers lie on its own stack, as the switch left them there
//! (`sys/threads/src/fiber`; gdb's commands read them likewise).

use margay_job_stacks::{FRAME_POINTER, REGISTERS, STACK_POINTER, Thread, ThreadImage};
use margay_job_stacks::{Frame, Stack, of_images, stacks};

use super::memory::Memory;

/// How much of a stack is copied.
const STACK_BYTES: u64 = 64 << 10;
/// How far below the place that a fiber names its registers may lie.
const SEARCHED_BYTES: u64 = 1024;

/// What a switch leaves of a stack's registers, by architecture: the code at which a suspended
/// fiber goes on, where its address lies above the first register, the bytes of all of them, and
/// the register beside the frame pointer by DWARF's number.
#[cfg(target_arch = "x86_64")]
mod switch {
    pub(super) const RESUMED: &[u8] = b"\x55\x48\x89\x66\xf0\x48\x8d\x62\x08\x5b\x5d";
    /// Address, register, frame pointer.
    pub(super) const LAYOUT: [u64; 3] = [0, 8, 16];
    pub(super) const BYTES: u64 = 24;
    pub(super) const STEP: u64 = 8;
    /// The same of a thread's own stack: address, register, frame pointer.
    pub(super) const PARENT: [u64; 3] = [8, 16, 0];
    pub(super) const PARENT_BYTES: u64 = 24;
    pub(super) const REGISTER: usize = 3;
}

#[cfg(not(target_arch = "x86_64"))]
mod switch {
    pub(super) const RESUMED: &[u8] = b"\xfd\x7b\xbe\xa9\xf3\x0b\x00\xf9";
    pub(super) const LAYOUT: [u64; 3] = [16, 0, 8];
    pub(super) const BYTES: u64 = 32;
    pub(super) const STEP: u64 = 16;
    pub(super) const PARENT: [u64; 3] = [8, 16, 0];
    pub(super) const PARENT_BYTES: u64 = 32;
    pub(super) const REGISTER: usize = 19;
}

/// What says where a member is.
pub(super) enum Source {
    /// Its thread.
    Thread(u32),
    /// Its stack, which nobody runs on.
    Image(Box<ThreadImage>),
}

/// The registers and the stack of a fiber that is suspended at this address; `base` is the end of
/// its stack.
pub(super) fn of_fiber(memory: &Memory, at: u64, base: u64) -> Option<Source> {
    let lowest = at.checked_sub(SEARCHED_BYTES)?;
    let mut saved = at.checked_sub(switch::BYTES)?;
    while saved > lowest {
        let pc = memory.word(saved + switch::LAYOUT[0]).ok()?;
        let code = memory.bytes(pc, switch::RESUMED.len());
        if code.is_ok_and(|code| code == switch::RESUMED) {
            let end = base.min(saved.saturating_add(STACK_BYTES));
            return image(memory, saved, switch::LAYOUT, switch::BYTES, end);
        }
        saved -= switch::STEP;
    }
    None
}

/// The same of a thread's own stack while a fiber runs on the thread, whose stack ends at `base`.
pub(super) fn of_own_stack(memory: &Memory, base: u64) -> Option<Source> {
    let link = memory.word(base.checked_sub(16)?).ok()?;
    let sizes = [STACK_BYTES, STACK_BYTES >> 3, STACK_BYTES >> 6];
    // Where the stack ends is not known here.
    (sizes.into_iter()).find_map(|size| {
        let end = link.checked_add(size)?;
        image(memory, link, switch::PARENT, switch::PARENT_BYTES, end)
    })
}

fn image(memory: &Memory, saved: u64, layout: [u64; 3], bytes: u64, end: u64) -> Option<Source> {
    let [pc, register, frame_pointer] = layout;
    let stack_base = saved + bytes;
    let len = usize::try_from(end.checked_sub(stack_base)?).ok()?;
    let word = |at: u64| memory.word(saved + at).ok();
    let mut registers = [0; REGISTERS];
    registers[STACK_POINTER] = stack_base;
    registers[FRAME_POINTER] = word(frame_pointer)?;
    registers[switch::REGISTER] = word(register)?;
    Some(Source::Image(Box::new(ThreadImage {
        registers,
        pc: word(pc)?,
        stack_base,
        stack: memory.bytes(stack_base, len).ok()?,
    })))
}

/// The innermost functions of the program itself, in the order of the questions.
pub(super) fn frames(pid: u32, sources: Vec<Option<Source>>) -> Vec<Option<Frame>> {
    let stacks = stacks_of(pid, sources).into_iter();
    stacks.map(|stack| stack?.users().cloned()).collect()
}

/// The stacks, in the order of the questions.
pub(super) fn stacks_of(pid: u32, sources: Vec<Option<Source>>) -> Vec<Option<Stack>> {
    let (mut threads, mut images) = (Vec::new(), Vec::new());
    let mut order = Vec::new();
    for source in sources {
        order.push(match source {
            None => None,
            Some(Source::Thread(tid)) => {
                threads.push(Thread { pid, tid });
                Some((false, threads.len() - 1))
            }
            Some(Source::Image(image)) => {
                images.push(*image);
                Some((true, images.len() - 1))
            }
        });
    }
    let running: Vec<Option<Stack>> = stacks(&threads).into_iter().map(Result::ok).collect();
    let suspended = of_images(pid, &images);
    let stack = |(is_image, at): (bool, usize)| match is_image {
        true => suspended.get(at),
        false => running.get(at)?.as_ref(),
    };
    (order.into_iter()).map(|at| stack(at?).cloned()).collect()
}
