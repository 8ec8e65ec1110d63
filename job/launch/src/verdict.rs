//! What the end of a rank means for the job. Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use margay_core_registry::Phase;
use margay_sys_os::signal;

/// Why the job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The rank was killed by a signal.
    Signal {
        /// Its number.
        signal: i32,
        /// A core dump was written.
        core_dumped: bool,
    },
    /// The rank exited with a code that is not 0 and never initialised MPI.
    BeforeInit(i32),
    /// The rank exited between init and finalize.
    WithoutFinalize(i32),
    /// The rank exited with a code that is not 0 in use by NX or MPL, whose programs do not say
    /// when they end. The job goes on: "if a process exits, all other processes in the application
    /// can continue to run" (Garg and others, Achieving Large Scale Parallelism Through Operating
    /// System Resource Management on the Intel TFLOPS Supercomputer).
    OfLibrary(i32),
    /// The rank exited with a code that is not 0 after finalize. The job goes on.
    AfterFinalize(i32),
    /// The rank called abort with this code.
    Aborted(i32),
}

/// The first failure of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rank that failed.
    pub rank: u32,
    /// How.
    pub cause: Cause,
}

impl Failure {
    /// Whether the other ranks must be ended.
    #[must_use]
    pub fn ends_job(&self) -> bool {
        !matches!(self.cause, Cause::AfterFinalize(_) | Cause::OfLibrary(_))
    }

    /// Whether the kernel has ended the rank because of what its program did.
    #[must_use]
    pub fn is_crash(&self) -> bool {
        const CRASHES: [i32; 7] = [
            signal::SIGABRT,
            signal::SIGBUS,
            signal::SIGFPE,
            signal::SIGILL,
            signal::SIGSEGV,
            signal::SIGSYS,
            signal::SIGTRAP,
        ];
        matches!(self.cause, Cause::Signal { signal, .. } if CRASHES.contains(&signal))
    }

    /// Whether the others may go on, if the user wants that: the rank has died, and has not asked
    /// for the end.
    #[must_use]
    pub fn may_be_survived(&self) -> bool {
        !matches!(self.cause, Cause::Aborted(_))
    }
}

/// Collects the ends of ranks into the job's exit status.
#[derive(Debug, Default)]
pub struct Verdict {
    status: Option<u8>,
    /// The signal to the launcher that ends the job.
    passed: Option<i32>,
    /// The launcher itself ends the ranks: how they end says nothing any more.
    ending: bool,
    /// Ranks that die do not end the job.
    tolerant: bool,
    /// The exit codes of MPL's programs mean what they mean to POE.
    by_poe: bool,
}

impl Verdict {
    /// That of a job whose ranks go on when others die.
    #[must_use]
    pub fn tolerant() -> Verdict {
        Verdict {
            tolerant: true,
            ..Verdict::default()
        }
    }

    /// With the rules of POE: a task that exits with code 1, or with 128 and above, ends the
    /// others.
    #[must_use]
    pub fn with_codes_of_poe(self, by_poe: bool) -> Verdict {
        Verdict { by_poe, ..self }
    }

    /// Takes note that a rank's process ended. `aborted` is the rank that called abort, if any.
    /// Returns a failure when it is the first one and has not been reported.
    pub fn rank_ended(
        &mut self,
        rank: u32,
        status: ExitStatus,
        phase: Phase,
        aborted: Option<(u32, i32)>,
    ) -> Option<Failure> {
        if self.ending {
            return None;
        }
        let killed = status.signal();
        let code = status.code().unwrap_or(0);
        let clean = killed.is_none() && code == 0 && phase != Phase::Running;
        let (rank, cause) = match (aborted, killed) {
            (Some((by, code)), _) if by == rank || !clean => (by, Cause::Aborted(code)),
            (_, Some(signal)) => (
                rank,
                Cause::Signal {
                    signal,
                    core_dumped: status.core_dumped(),
                },
            ),
            (_, None) if clean => return None,
            (_, None) => (
                rank,
                match phase {
                    Phase::Starting => Cause::BeforeInit(code),
                    Phase::Running => Cause::WithoutFinalize(code),
                    Phase::Joined => Cause::OfLibrary(code),
                    Phase::Finalized => Cause::AfterFinalize(code),
                },
            ),
        };
        if let Some(signal) = self.passed {
            // The user wants the end; a rank may still take its time to end well.
            self.status.get_or_insert(match cause {
                Cause::Signal { signal: own, .. } if own != signal => 128 + own as u8,
                Cause::Signal { .. } => 128 + signal as u8,
                _ => code_of(cause),
            });
            return None;
        }
        let failure = Failure { rank, cause };
        let is_end = matches!(cause, Cause::AfterFinalize(_) | Cause::OfLibrary(_));
        if self.status.is_some() && is_end && !self.ends(&failure) {
            return None;
        }
        self.status.get_or_insert(code_of(cause));
        self.ending = self.ends(&failure);
        Some(failure)
    }

    /// Whether the launcher ends the ranks, for whatever reason.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether a failure ends the job.
    #[must_use]
    pub fn ends(&self, failure: &Failure) -> bool {
        if let Cause::OfLibrary(code) = failure.cause {
            return self.by_poe && (code == 1 || code >= 128);
        }
        failure.ends_job() && !(self.tolerant && failure.may_be_survived())
    }

    /// The launcher got a signal that asks for the end, and passed it on.
    pub fn signal_passed(&mut self, signal: i32) {
        self.passed.get_or_insert(signal);
    }

    /// The launcher ends the ranks now. Without an earlier failure the job's status is `status`, or
    /// that of the signal that was passed on.
    pub fn end(&mut self, status: u8) {
        self.ending = true;
        let status = self.passed.map_or(status, |signal| 128 + signal as u8);
        self.status.get_or_insert(status);
    }

    /// Whether a signal that asks for the end has been passed on.
    #[must_use]
    pub fn passed(&self) -> Option<i32> {
        self.passed
    }

    /// Returns the job's exit status.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.status.unwrap_or(0)
    }
}

/// Returns the exit status that a failure gives; a failure never counts as success, except for an
/// abort with code 0, which MPI says is the status.
fn code_of(cause: Cause) -> u8 {
    let low = |code: i32| match (code, code & 0xff) {
        (0, _) | (_, 0) => 1,
        (_, low) => low as u8,
    };
    match cause {
        Cause::Signal { signal, .. } => 128 + signal as u8,
        Cause::Aborted(0) => 0,
        Cause::BeforeInit(code)
        | Cause::WithoutFinalize(code)
        | Cause::OfLibrary(code)
        | Cause::AfterFinalize(code)
        | Cause::Aborted(code) => low(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn signal(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    /// Returns the cause, whether the job ends, and the status after one rank's end.
    fn one(status: ExitStatus, phase: Phase) -> (Option<(Cause, bool)>, u8) {
        let mut v = Verdict::default();
        let failure = v.rank_ended(1, status, phase, None);
        (failure.map(|f| (f.cause, f.ends_job())), v.status())
    }

    #[test]
    fn every_way_to_end() {
        assert_eq!(one(exit(0), Phase::Starting), (None, 0));
        assert_eq!(one(exit(0), Phase::Finalized), (None, 0));
        assert_eq!(
            one(exit(3), Phase::Starting),
            (Some((Cause::BeforeInit(3), true)), 3)
        );
        assert_eq!(
            one(exit(0), Phase::Running),
            (Some((Cause::WithoutFinalize(0), true)), 1)
        );
        assert_eq!(
            one(exit(9), Phase::Running),
            (Some((Cause::WithoutFinalize(9), true)), 9)
        );
        assert_eq!(one(exit(0), Phase::Joined), (None, 0));
        assert_eq!(
            one(exit(9), Phase::Joined),
            (Some((Cause::OfLibrary(9), false)), 9)
        );
        assert_eq!(
            one(exit(4), Phase::Finalized),
            (Some((Cause::AfterFinalize(4), false)), 4)
        );
        let killed = Cause::Signal {
            signal: 11,
            core_dumped: false,
        };
        assert_eq!(
            one(signal(11), Phase::Finalized),
            (Some((killed, true)), 139)
        );
    }

    #[test]
    fn the_first_failure_counts() {
        let mut v = Verdict::default();
        assert!(v.rank_ended(2, signal(11), Phase::Running, None).is_some());
        assert!(v.rank_ended(0, signal(15), Phase::Running, None).is_none());
        assert_eq!(v.status(), 139);
        let mut v = Verdict::default();
        assert!(v.rank_ended(2, exit(5), Phase::Finalized, None).is_some());
        assert!(v.rank_ended(0, exit(6), Phase::Finalized, None).is_none());
        let later = v.rank_ended(1, signal(11), Phase::Running, None).unwrap();
        assert!(later.ends_job());
        assert_eq!(v.status(), 5);
    }

    #[test]
    fn to_poe_some_codes_of_tasks_mean_the_end() {
        for (code, ends) in [
            (1, true),
            (2, false),
            (127, false),
            (128, true),
            (255, true),
        ] {
            let mut v = Verdict::default().with_codes_of_poe(true);
            let failure = v.rank_ended(2, exit(5), Phase::Joined, None).unwrap();
            assert!(!v.ends(&failure));
            let failure = v.rank_ended(1, exit(code), Phase::Joined, None);
            assert_eq!(failure.is_some_and(|f| v.ends(&f)), ends, "{code}");
            assert_eq!(v.status(), 5);
        }
    }

    #[test]
    fn an_abort_is_the_cause_whichever_rank_ends_first() {
        let mut v = Verdict::default();
        let failure = v.rank_ended(0, signal(6), Phase::Running, Some((3, 42)));
        let expected = Failure {
            rank: 3,
            cause: Cause::Aborted(42),
        };
        assert_eq!(failure, Some(expected));
        assert_eq!(v.status(), 42);
        assert_eq!(code_of(Cause::Aborted(0)), 0);
        assert_eq!(code_of(Cause::Aborted(256)), 1);
        assert_eq!(code_of(Cause::Aborted(-1)), 255);
    }

    #[test]
    fn a_signal_to_the_launcher_is_the_users_wish() {
        let mut v = Verdict::default();
        v.signal_passed(2);
        assert!(v.rank_ended(0, exit(0), Phase::Finalized, None).is_none());
        assert_eq!(v.status(), 0, "a rank may end well in spite of it");
        assert!(v.rank_ended(1, signal(2), Phase::Running, None).is_none());
        assert_eq!(v.status(), 130);
        let mut v = Verdict::default();
        v.signal_passed(15);
        v.end(1);
        assert!(v.rank_ended(1, signal(9), Phase::Running, None).is_none());
        assert_eq!(v.status(), 143);
        let mut v = Verdict::default();
        v.end(124);
        assert_eq!(v.status(), 124);
    }
}
