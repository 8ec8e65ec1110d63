//! The registers of an interrupted thread, as far as they say where it is and what it asks of the
//! kernel.

/// The length of the instruction that calls the system.
#[cfg(target_arch = "x86_64")]
const CALL: [u8; 2] = [0x0f, 0x05];
/// As above: `svc #0`.
#[cfg(not(target_arch = "x86_64"))]
const CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

/// Bytes of the instruction that calls the system.
const CALL_BYTES: usize = CALL.len();

/// A call of the system: its number and its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

/// See the module.
pub(super) struct Registers<'c>(pub(super) &'c mut libc::ucontext_t);

#[cfg(target_arch = "x86_64")]
impl Registers<'_> {
    const ARGUMENTS: [i32; 6] = [
        libc::REG_RDI,
        libc::REG_RSI,
        libc::REG_RDX,
        libc::REG_R10,
        libc::REG_R8,
        libc::REG_R9,
    ];

    fn get(&self, register: i32) -> u64 {
        self.0.uc_mcontext.gregs[register as usize] as u64
    }

    /// The address of the instruction that was interrupted.
    pub(super) fn at(&self) -> usize {
        self.get(libc::REG_RIP) as usize
    }

    pub(super) fn stack_top(&self) -> usize {
        self.get(libc::REG_RSP) as usize
    }

    /// What a system call has returned, if one has just ended.
    fn result(&self) -> i64 {
        self.get(libc::REG_RAX) as i64
    }

    /// The number of the system call that comes next, if one does.
    fn number(&self) -> i64 {
        self.result()
    }

    fn argument(&self, at: usize) -> u64 {
        self.get(Self::ARGUMENTS[at])
    }

    fn set_at(&mut self, at: usize) {
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] = at as i64;
    }

    fn set_result(&mut self, result: i64) {
        self.0.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }

    fn set_call(&mut self, call: &Call) {
        self.set_result(call.number);
    }

    /// The number of the system call that has just ended, by the code before it:
    /// `mov $number, %eax`, behind which the compiler may have put one `mov offset(%rsp), %edi`.
    fn ended_number(&self) -> Option<i64> {
        const MOVE_NUMBER: u8 = 0xb8;
        const MOVE_FIRST_ARGUMENT: [u8; 3] = [0x8b, 0x7c, 0x24];
        const BYTES: usize = 5 + 4 + CALL_BYTES;
        /// The smallest page: what lies before it may not be mapped.
        const PAGE: usize = 4096;
        let at = self.at();
        if at % PAGE < BYTES {
            return None;
        }
        // SAFETY: the thread is about to execute an instruction behind these bytes, on the same
        // page.
        let code = unsafe { *std::ptr::with_exposed_provenance::<[u8; BYTES]>(at - BYTES) };
        let before = code.strip_suffix(&CALL)?;
        let before = match before {
            [before @ .., a, b, c, _] if [*a, *b, *c] == MOVE_FIRST_ARGUMENT => before,
            whole => whole,
        };
        let &[.., opcode, a, b, c, d] = before else {
            return None;
        };
        (opcode == MOVE_NUMBER).then(|| i32::from_le_bytes([a, b, c, d]).into())
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers<'_> {
    const NUMBER: usize = 8;

    /// The address of the instruction that was interrupted.
    pub(super) fn at(&self) -> usize {
        self.0.uc_mcontext.pc as usize
    }

    pub(super) fn stack_top(&self) -> usize {
        self.0.uc_mcontext.sp as usize
    }

    /// What a system call has returned, if one has just ended.
    fn result(&self) -> i64 {
        self.0.uc_mcontext.regs[0] as i64
    }

    /// The number of the system call that comes next, if one does.
    fn number(&self) -> i64 {
        self.0.uc_mcontext.regs[Self::NUMBER] as i64
    }

    fn argument(&self, at: usize) -> u64 {
        self.0.uc_mcontext.regs[at]
    }

    fn set_at(&mut self, at: usize) {
        self.0.uc_mcontext.pc = at as u64;
    }

    fn set_result(&mut self, result: i64) {
        self.0.uc_mcontext.regs[0] = result as u64;
    }

    fn set_call(&mut self, call: &Call) {
        self.0.uc_mcontext.regs[Self::NUMBER] = call.number as u64;
        self.0.uc_mcontext.regs[0] = call.arguments[0];
    }

    /// Not to be known: the result has taken the place of the first argument.
    fn ended_number(&self) -> Option<i64> {
        None
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers<'_> {
    pub(super) fn at(&self) -> usize {
        0
    }

    pub(super) fn stack_top(&self) -> usize {
        0
    }

    fn result(&self) -> i64 {
        0
    }

    fn number(&self) -> i64 {
        -1
    }

    fn argument(&self, _at: usize) -> u64 {
        0
    }

    fn set_at(&mut self, _at: usize) {}

    fn set_result(&mut self, _result: i64) {}

    fn set_call(&mut self, _call: &Call) {}

    fn ended_number(&self) -> Option<i64> {
        None
    }
}

/// The registers of this many arguments are as they were when a call was made, also after it. On
/// aarch64 the first one is the result's, too.
const RESULT_ARGUMENTS: usize = if cfg!(target_arch = "x86_64") { 0 } else { 1 };

impl Registers<'_> {
    /// The system call that this thread is about to make: the kernel sets a thread back to it where
    /// it has interrupted one that is to be made again.
    pub(super) fn next_call(&self) -> Option<Call> {
        let at = self.at();
        if at == 0 {
            return None;
        }
        // SAFETY: the thread is about to execute the instruction at this address, which is at least
        // as long as what is read, or else followed by another one: no function ends with the first
        // half of it.
        let is = unsafe { *std::ptr::with_exposed_provenance::<[u8; CALL_BYTES]>(at) };
        (is == CALL).then(|| Call {
            number: self.number(),
            arguments: std::array::from_fn(|at| self.argument(at)),
        })
    }

    /// The system call that has just ended with EINTR, where the code tells which it was: there
    /// need not be an observer's note, since a signal may reach a thread on its way into the
    /// kernel.
    pub(super) fn interrupted_call(&self) -> Option<Call> {
        if self.result() != -i64::from(libc::EINTR) {
            return None;
        }
        let number = self.ended_number()?;
        Some(Call {
            number,
            arguments: std::array::from_fn(|at| self.argument(at)),
        })
    }

    /// Whether `call`, made at `behind` (the address behind the instruction) with this top of the
    /// stack, has just ended with EINTR.
    pub(super) fn has_interrupted(&self, call: &Call, behind: usize, stack_top: usize) -> bool {
        self.has_ended(call, behind, stack_top) == Some(-i64::from(libc::EINTR))
    }

    /// The result of `call`, if it has just ended.
    pub(super) fn has_ended(&self, call: &Call, behind: usize, stack_top: usize) -> Option<i64> {
        let is_there = self.at() == behind
            && self.stack_top() == stack_top
            && (RESULT_ARGUMENTS..call.arguments.len())
                .all(|at| self.argument(at) == call.arguments[at]);
        is_there.then(|| self.result())
    }

    /// Lets the thread make `call` when it goes on. `is_next`: it is about to in any case;
    /// otherwise the call has just ended.
    pub(super) fn make_again(&mut self, call: &Call, is_next: bool) {
        if !is_next {
            self.set_at(self.at() - CALL_BYTES);
            self.set_call(call);
        }
    }

    /// Lets the call end with `result`. `is_next`: the thread is about to make it; otherwise it has
    /// just ended.
    pub(super) fn end_call(&mut self, result: i64, is_next: bool) {
        if is_next {
            self.set_at(self.at() + CALL_BYTES);
        }
        self.set_result(result);
    }
}
