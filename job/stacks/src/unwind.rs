//! Walking up a stack: from the registers at one moment to those of each caller, by the tables that
//! compilers write for exceptions (`.eh_frame`), and by frame pointers where there are none.

use gimli::{
    CfaRule, EhFrame, EvaluationResult, Expression, LittleEndian, Location, Register, RegisterRule,
    UnwindContext, Value,
};
use margay_sys_os::trace::{FRAME_POINTER, REGISTERS, STACK_POINTER, ThreadImage};

use crate::maps::{Maps, Modules};
use crate::tables::{Bytes, Tables};

/// Callers beyond these are not looked for.
const MOST_FRAMES: usize = 256;
/// Steps of an expression in the tables.
const MOST_STEPS: u32 = 10_000;

/// One function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    /// Which file, and the address in it; none outside of all files.
    pub(crate) place: Option<(usize, u64)>,
    /// The address is that behind a call.
    pub(crate) is_return: bool,
}

impl Spot {
    /// An address in the instruction that is meant.
    pub(crate) fn lookup(&self) -> Option<(usize, u64)> {
        let back = u64::from(self.is_return);
        self.place
            .map(|(module, at)| (module, at.wrapping_sub(back)))
    }
}

struct State<'a> {
    registers: [u64; REGISTERS],
    pc: u64,
    image: &'a ThreadImage,
}

/// What a step has found.
enum Step {
    /// The caller. True when it was interrupted by a signal, so that its address is no return.
    Caller(bool),
    End,
}

/// Returns the functions on a stack, the innermost first.
pub(crate) fn walk(image: &ThreadImage, maps: &Maps, modules: &Modules) -> Vec<Spot> {
    let mut state = State {
        registers: image.registers,
        pc: image.pc,
        image,
    };
    let mut spots = Vec::new();
    let mut is_return = false;
    while spots.len() < MOST_FRAMES {
        let found = maps.find(modules, state.pc);
        let place = found.map(|(module, bias)| (module, state.pc.wrapping_sub(bias)));
        let spot = Spot { place, is_return };
        // The end of a stack: no address at all, or one that is none.
        if place.is_none() && is_return {
            break;
        }
        spots.push(spot);
        let before = state.registers[STACK_POINTER];
        let step = match spot.lookup() {
            Some((module, at)) => {
                let bias = found.map_or(0, |(_, bias)| bias);
                let tables = &modules.all[module].tables;
                let by_table = state.by_tables(tables, at, bias);
                by_table.or_else(|| state.by_frame_pointer())
            }
            // A call of a function that is not there: who called is on top of the stack.
            None => state.after_wild_call(),
        };
        match step {
            Some(Step::Caller(by_signal)) if state.registers[STACK_POINTER] >= before => {
                is_return = !by_signal;
                // Nothing has changed: the tables lead nowhere.
                if state.registers[STACK_POINTER] == before && spots.len() > 1 {
                    break;
                }
            }
            _ => break,
        }
    }
    spots
}

impl State<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.image.stack_base)?).ok()?;
        let bytes = self.image.stack.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(usize::from(register.0)).copied()
    }

    fn by_tables(&mut self, tables: &Tables, at: u64, bias: u64) -> Option<Step> {
        let section = EhFrame::new(&tables.frames, LittleEndian);
        let entry = tables.entry(&section, at)?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&section, &tables.bases, &mut context, at)
            .ok()?;
        let encoding = entry.cie().encoding();
        let evaluate = |expression: gimli::UnwindExpression<usize>, initial: Option<u64>| {
            let expression = expression.get(&section).ok()?;
            self.evaluate(expression, encoding, initial, bias)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(*expression, None)?,
        };
        let mut registers = self.registers;
        let return_register = entry.cie().return_address_register();
        let mut has_return = false;
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::Undefined if *register == return_register => return Some(Step::End),
                RegisterRule::Undefined => continue,
                RegisterRule::SameValue => self.register(*register),
                RegisterRule::Offset(offset) => self.word(cfa.wrapping_add_signed(*offset)),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => self.register(*other),
                RegisterRule::Expression(expression) => {
                    evaluate(*expression, Some(cfa)).and_then(|address| self.word(address))
                }
                RegisterRule::ValExpression(expression) => evaluate(*expression, Some(cfa)),
                RegisterRule::Constant(value) => Some(*value),
                _ => None,
            };
            if *register == return_register {
                value?;
                has_return = true;
            }
            if let (Some(place), Some(value)) = (registers.get_mut(usize::from(register.0)), value)
            {
                *place = value;
            }
        }
        // On x86-64 a call always leaves its return address in memory.
        if !has_return && cfg!(target_arch = "x86_64") {
            return Some(Step::End);
        }
        let return_address = *registers.get(usize::from(return_register.0))?;
        let by_signal = entry.is_signal_trampoline();
        let is_given = row
            .registers()
            .any(|(r, _)| usize::from(r.0) == STACK_POINTER);
        if !is_given {
            registers[STACK_POINTER] = cfa;
        }
        self.registers = registers;
        Some(self.goes_to(return_address, by_signal))
    }

    fn goes_to(&mut self, address: u64, by_signal: bool) -> Step {
        // Signatures of addresses (pointer authentication) are in the upper bits.
        self.pc = if cfg!(target_arch = "aarch64") {
            address & 0x0000_ffff_ffff_ffff
        } else {
            address
        };
        match self.pc {
            0 => Step::End,
            _ => Step::Caller(by_signal),
        }
    }

    fn evaluate(
        &self,
        expression: Expression<Bytes>,
        encoding: gimli::Encoding,
        initial: Option<u64>,
        bias: u64,
    ) -> Option<u64> {
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(MOST_STEPS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        for _ in 0..MOST_STEPS {
            result = match result {
                EvaluationResult::Complete => {
                    return match evaluation.result().first()?.location {
                        Location::Address { address } => Some(address),
                        _ => None,
                    };
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.register(register)?);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let word = self.word(address)?;
                    let kept = 64u32.checked_sub(u32::from(size) * 8)?;
                    let value = Value::Generic(word << kept >> kept);
                    evaluation.resume_with_memory(value).ok()?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => evaluation
                    .resume_with_relocated_address(address.wrapping_add(bias))
                    .ok()?,
                _ => return None,
            };
        }
        None
    }

    /// Both processors keep the caller's frame pointer and the return address side by side.
    fn by_frame_pointer(&mut self) -> Option<Step> {
        let frame = self.registers[FRAME_POINTER];
        let (caller, address) = (self.word(frame)?, self.word(frame.checked_add(8)?)?);
        self.registers[FRAME_POINTER] = caller;
        self.registers[STACK_POINTER] = frame.checked_add(16)?;
        Some(self.goes_to(address, false))
    }

    fn after_wild_call(&mut self) -> Option<Step> {
        if cfg!(target_arch = "aarch64") {
            let address = self.registers[30];
            return Some(self.goes_to(address, false));
        }
        let top = self.registers[STACK_POINTER];
        let address = self.word(top)?;
        self.registers[STACK_POINTER] = top.checked_add(8)?;
        Some(self.goes_to(address, false))
    }
}
