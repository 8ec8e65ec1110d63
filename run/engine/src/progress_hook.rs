//! What moves on with progress beside packets.

/// Memory that others write to without messages, and that has to be looked at for what they want.
pub trait ProgressHook: Send + Sync {
    /// Does what has come. Called at each progress, with the engine locked, so it must cost little
    /// when there is nothing; it may not wait. Whether there was something.
    fn progress(&self) -> bool;
}
