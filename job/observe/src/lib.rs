//! What the jobs of this machine do, read from their shared memory, and the teams of a process,
//! read from its own. Nothing is ever written there.
//!
//! | module | subject |
//! | --- | --- |
//! | `asked` | the jobs that a command is asked to show |
//! | [`mesh`] | all jobs with the states of their ranks, as `margay mesh` shows them |
//! | [`state`] | what one rank does now |
//! | [`standstill`] | whether ranks of a running job can never go on, certain without being asked |
//! | [`waits`] | which rank waits for which, and which ranks can never go on |
//! | [`words`] | waits, messages and states of ranks in words |
//! | [`places`], [`elsewhere`] | where ranks are in their programs: their stacks; those of other hosts |
//! | [`posted`] | which lines posted the requests that ranks wait for |
//! | [`call_site`] | where the program calls the library, in words |
//! | [`calls`] | the last calls of a rank, from its flight recorder |
//! | [`sample`] | in which functions and lines ranks run, as `margay profile` shows it |
//! | `counted` | what processor, system and recorders count of ranks meanwhile |
//! | [`crash`] | where a process was when it crashed |
//! | [`why`] | why a job hangs or is slow, as `margay why` shows it |
//! | [`operations`] | the last operations of ranks, side by side |
//! | [`traffic`] | who sends how much to whom |
//! | [`members`] | what members of teams do, as `margay why` shows it |
//! | [`kept`] | the same of a rank that has crashed, as far as its memory is still there |
//! | [`teams`] | the teams of a process with OpenMP, as `margay threads` shows them |
//! | [`markers`] | the lights and texts that tasks of MPL show |
#![forbid(unsafe_code)]

mod asked;
pub mod call_site;
pub mod calls;
mod counted;
pub mod crash;
pub mod elsewhere;
pub mod kept;
pub mod looks;
pub mod markers;
pub mod members;
pub mod mesh;
pub mod operations;
pub mod places;
pub mod posted;
pub mod sample;
pub mod standstill;
pub mod state;
pub mod teams;
pub mod traffic;
pub mod waits;
pub mod why;
pub mod words;

/// A process that holds two segments is seen with one of them, so tests that make one take turns.
#[cfg(test)]
fn one_segment() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
