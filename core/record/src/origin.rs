//! Call sites as the calling thread names them.

use margay_core_registry::CallName;

/// From where a call comes.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The name of the function that is called.
    pub call: &'static CallName,
    /// The return address, 0 for unknown.
    pub from: u64,
}
