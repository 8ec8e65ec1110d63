//! Call sites as the calling thread names them, and what keeps one for a while.

use margay_core_registry::CallName;

/// From where a call comes.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The name of the function that is called.
    pub call: &'static CallName,
    /// The return address, 0 for unknown.
    pub from: u64,
}

/// A shared word that keeps the name of a function, or none. A word can do that without a lock,
/// but not in safe code, so it is handed in.
pub trait NameCell: Default + Send + Sync {
    /// Keeps this name from now on.
    fn set(&self, call: Option<&'static CallName>);
    /// The name that is kept.
    fn get(&self) -> Option<&'static CallName>;
}
