//! The parallel utility calls.

use std::ffi::c_int;

use crate::call::mpl;
use crate::user::Text;

mpl! {
    /// Gives a light of this task's row in the Program Marker Array a colour (0 to 99), and the row
    /// a text.
    fn marker(light: c_int, color: c_int, string: Text) |mpl| {
        mpl.mark(light, color, string.get().as_deref())
    }

    /// How many lights a row of the Program Marker Array has.
    fn nlights() -> c_int |mpl| {
        Ok(mpl.lights())
    }

    /// Hands what was printed to the launcher: 1 standard output, 2 standard error.
    fn flush(option: c_int) |mpl| {
        mpl.flush(option)
    }

    /// Whether (1 or 0) the job's standard input (0), output (1) or error (2) is a terminal.
    fn isatty(descriptor: c_int) -> c_int |mpl| {
        mpl.is_terminal(descriptor).map(c_int::from)
    }

    /// Whether (1 or 0) messages move while the program computes.
    fn queryintr() -> c_int |mpl| {
        Ok(c_int::from(mpl.has_interrupts()))
    }

    /// From now on messages move while the program computes.
    fn enableintr() |mpl| {
        mpl.enable_interrupts()
    }

    /// From now on messages move inside calls only, but those with a routine.
    fn disableintr() |mpl| {
        mpl.disable_interrupts();
        Ok(())
    }

    /// How long the thread that moves messages spins for more, in microseconds.
    fn queryintrdelay() -> c_int |mpl| {
        Ok(mpl.interrupt_delay())
    }

    /// Sets how long it spins for more.
    fn setintrdelay(delay: c_int) |mpl| {
        mpl.set_interrupt_delay(delay)
    }
}
