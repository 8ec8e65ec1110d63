//! Where the program calls the library, in words.

use margay_job_stacks::Frame;

/// A call that made a request or sent a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The function: `MPI_Irecv`.
    pub call: String,
    /// Where the program called it: `ring.c:30`; empty when that is not known.
    pub place: String,
}

/// Where a call site is, in words.
pub(crate) fn place(frame: &Frame, module: &str) -> String {
    match (frame.line_text(), module) {
        (_, "") => String::new(),
        (Some(line), _) => line,
        (None, _) => frame.function_text(),
    }
}
