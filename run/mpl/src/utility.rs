//! The parallel utility calls: the Program Marker Array, output and terminals, and messages that
//! move while the program computes, which the SP2 did by interrupts.

use std::sync::PoisonError;

use margay_core_registry::markers::{self, Row};
use margay_sys_os::{process, terminal};

use crate::error::*;
use crate::{Mpl, deny};

/// Colours of lights.
const COLORS: i32 = 100;
/// The longest delay that can be set, in microseconds.
const MOST_DELAY: i32 = 1_000_000;

impl Mpl {
    /// `mpc_marker`: gives a light of this task's row a colour, and the row a text. A light below
    /// zero changes the text alone, and no text leaves the text as it is. A task without a launcher
    /// has no row, since nobody could see it.
    ///
    /// # Errors
    /// When there is no such light or colour.
    pub fn mark(&self, light: i32, color: i32, text: Option<&str>) -> Result<()> {
        if light >= self.lights() {
            deny!(
                MPL_ARGUMENT,
                "there is no light {light}; the row has the lights 0 to {}, and MP_PMLIGHTS sets how many",
                self.lights() - 1
            );
        }
        if light >= 0 && !(0..COLORS).contains(&color) {
            deny!(
                MPL_ARGUMENT,
                "the colour is {color}; there are 0 to {}",
                COLORS - 1
            );
        }
        // The program and a routine of receive-and-call may mark at the same time.
        let _one = self.marking.lock().unwrap_or_else(PoisonError::into_inner);
        let me = self.rank.world_rank();
        let note = (self.rank.peers()).make_note(me, markers::KEY, markers::WORDS);
        let Some(row) = note.as_deref().and_then(Row::of) else {
            deny!(
                MPL_FAULT,
                "the job's registry has no room for a row of markers"
            );
        };
        row.set_lights(self.lights);
        if light >= 0 {
            row.set_light(light as u32, color as u8);
        }
        if let Some(text) = text {
            row.set_text(text);
        }
        Ok(())
    }

    /// `mpc_nlights`: how many lights a row has.
    #[must_use]
    pub fn lights(&self) -> i32 {
        self.lights as i32
    }

    /// `mpc_flush`: hands what the program has printed to the launcher: 1 standard output, 2
    /// standard error.
    ///
    /// # Errors
    /// When it is another file, or cannot be written.
    pub fn flush(&self, option: i32) -> Result<()> {
        if !matches!(option, 1 | 2) {
            deny!(
                MPL_ARGUMENT,
                "the file is {option}; 1 is standard output, 2 standard error"
            );
        }
        match process::flush_output() {
            Ok(()) => Ok(()),
            Err(error) => deny!(MPL_FAULT, "what was printed cannot be written: {error}"),
        }
    }

    /// `mpc_isatty`: whether 0 standard input, 1 output or 2 error of the job is a terminal, that
    /// is, the launcher's.
    ///
    /// # Errors
    /// When it is another file.
    pub fn is_terminal(&self, descriptor: i32) -> Result<bool> {
        let Some(descriptor) = u32::try_from(descriptor).ok().filter(|&d| d < 3) else {
            deny!(
                MPL_ARGUMENT,
                "the file is {descriptor}; 0 to 2 are standard input, output and error"
            );
        };
        let launcher = self.rank.peers().facts().launcher;
        let process = Some(launcher).filter(|&pid| pid != 0);
        Ok(terminal::is_terminal_of(
            process.unwrap_or_else(std::process::id),
            descriptor,
        ))
    }

    /// `mpc_queryintr`: whether messages move while the program computes.
    #[must_use]
    pub fn has_interrupts(&self) -> bool {
        self.mpi.has_progress_thread() || self.routines.has_thread()
    }

    /// `mpc_enableintr`: from now on a thread moves messages while the program computes.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn enable_interrupts(&self) -> Result<()> {
        self.mpi.lock().set_shared();
        self.rank.lock().set_shared();
        match self.mpi.start_progress_thread() {
            Ok(()) => Ok(()),
            Err(error) => deny!(MPL_FAULT, "the system gives no thread: {error}"),
        }
    }

    /// `mpc_disableintr`: from now on messages move inside calls only, but those with a routine.
    pub fn disable_interrupts(&self) {
        self.mpi.stop_progress_thread();
    }

    /// `mpc_queryintrdelay`: how long the thread spins for more after it has moved something, in
    /// microseconds.
    #[must_use]
    pub fn interrupt_delay(&self) -> i32 {
        i32::try_from(self.rank.spin_ns() / 1000).unwrap_or(MOST_DELAY)
    }

    /// `mpc_setintrdelay`: sets it. 0 has the thread sleep at once.
    ///
    /// # Errors
    /// When the time is negative or longer than a second.
    pub fn set_interrupt_delay(&self, delay_us: i32) -> Result<()> {
        if !(0..=MOST_DELAY).contains(&delay_us) {
            deny!(
                MPL_ARGUMENT,
                "the delay is {delay_us}; it is 0 to {MOST_DELAY} microseconds"
            );
        }
        self.rank.set_spin_ns(delay_us as u64 * 1000);
        Ok(())
    }
}
