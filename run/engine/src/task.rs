//! Operations that are made of requests and go on by themselves, as collectives do: the engine runs them whenever
//! requests have ended, so they need no call of the program that asks for them.

use crate::engine::{Engine, Outcome, Pending};

/// An operation of several requests that depend on each other.
pub trait Task: Send {
    /// Takes what has ended and starts what may start. Called at the beginning and whenever requests have ended, with the
    /// engine locked. The outcome when nothing is left to do; it is not called again then.
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome>;

    /// What it waits for, for displays.
    fn pending(&self) -> Pending;
}

/// Memory that others write to without messages, and that has to be looked at for what they want.
pub trait Inlet: Send + Sync {
    /// Does what has come. Called at each progress, with the engine locked, so it must cost little when there is nothing; it may
    /// not wait. Whether there was something.
    fn look(&self) -> bool;
}
