//! The numbers of OpenMP's tools interface (OMPT, OpenMP 5.2, chapter 19): what a tool and a
//! library of OpenMP call things between them.

/// Declares an enumeration of the interface, whose numbers are C's.
macro_rules! numbered {
    ($($(#[$about:meta])* $name:ident { $($variant:ident = $number:literal,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name {
            $($variant = $number,)*
        }
    )*};
}

numbered! {
    /// `ompt_callbacks_t`, as far as the library raises them.
    Callback {
        ThreadBegin = 1,
        ThreadEnd = 2,
        ParallelBegin = 3,
        ParallelEnd = 4,
        TaskCreate = 5,
        TaskSchedule = 6,
        ImplicitTask = 7,
        ControlTool = 11,
        SyncRegionWait = 16,
        MutexReleased = 17,
        Dependences = 18,
        TaskDependence = 19,
        Work = 20,
        Masked = 21,
        SyncRegion = 23,
        LockInit = 24,
        LockDestroy = 25,
        MutexAcquire = 26,
        MutexAcquired = 27,
        NestLock = 28,
        Flush = 29,
        Cancel = 30,
        Reduction = 31,
        Dispatch = 32,
        Error = 37,
    }

    /// `ompt_thread_t`
    Thread {
        Initial = 1,
        Worker = 2,
    }

    /// `ompt_scope_endpoint_t`
    Endpoint {
        Begin = 1,
        End = 2,
    }

    /// `ompt_dispatch_t`
    Dispatch {
        Section = 2,
        LoopChunk = 3,
        TaskloopChunk = 4,
        DistributeChunk = 5,
    }

    /// `ompt_sync_region_t`
    Sync {
        BarrierExplicit = 3,
        BarrierImplementation = 4,
        Taskwait = 5,
        Taskgroup = 6,
        Reduction = 7,
        BarrierWorkshare = 8,
        BarrierParallel = 9,
        BarrierTeams = 10,
    }

    /// `ompt_work_t`
    Work {
        Loop = 1,
        Sections = 2,
        SingleExecutor = 3,
        SingleOther = 4,
        Distribute = 6,
        Taskloop = 7,
        Scope = 8,
        LoopStatic = 10,
        LoopDynamic = 11,
        LoopGuided = 12,
        LoopOther = 13,
    }

    /// `ompt_mutex_t`
    Mutex {
        Lock = 1,
        TestLock = 2,
        NestLock = 3,
        TestNestLock = 4,
        Critical = 5,
        Atomic = 6,
        Ordered = 7,
    }

    /// `ompt_task_status_t`
    TaskStatus {
        Complete = 1,
        Yield = 2,
        Cancel = 3,
        Detach = 4,
        EarlyFulfill = 5,
        LateFulfill = 6,
        Switch = 7,
        TaskwaitComplete = 8,
    }

    /// `ompt_dependence_type_t`
    Dependence {
        In = 1,
        Out = 2,
        Inout = 3,
        MutexInoutset = 4,
        Source = 5,
        Sink = 6,
        Inoutset = 7,
        OutAllMemory = 34,
        InoutAllMemory = 35,
    }

    /// `ompt_state_t`, as far as threads are in them.
    State {
        WorkSerial = 0x000,
        WorkParallel = 0x001,
        WorkReduction = 0x002,
        WaitBarrierImplicitParallel = 0x011,
        WaitBarrierImplicitWorkshare = 0x012,
        WaitBarrierExplicit = 0x014,
        WaitBarrierImplementation = 0x015,
        WaitBarrierTeams = 0x016,
        WaitTaskwait = 0x020,
        WaitTaskgroup = 0x021,
        WaitLock = 0x041,
        WaitCritical = 0x042,
        WaitAtomic = 0x043,
        WaitOrdered = 0x044,
        Undefined = 0x102,
    }

    /// `ompt_set_result_t`
    SetResult {
        Error = 0,
        Never = 1,
        Always = 5,
    }

    /// `ompt_severity_t`
    Severity {
        Warning = 1,
        Fatal = 2,
    }
}

/// One more than the largest number of a callback.
pub const CALLBACKS: usize = 38;

/// Of `ompt_parallel_flag_t`.
pub const PARALLEL_INVOKER_RUNTIME: u32 = 2;
pub const PARALLEL_LEAGUE: u32 = 0x4000_0000;
pub const PARALLEL_TEAM: u32 = 0x8000_0000;

/// Of `ompt_task_flag_t`.
pub const TASK_INITIAL: u32 = 1;
pub const TASK_IMPLICIT: u32 = 2;
pub const TASK_EXPLICIT: u32 = 4;
pub const TASK_TASKWAIT: u32 = 0x10;
pub const TASK_UNDEFERRED: u32 = 0x0800_0000;
pub const TASK_UNTIED: u32 = 0x1000_0000;
pub const TASK_FINAL: u32 = 0x2000_0000;
pub const TASK_MERGEABLE: u32 = 0x4000_0000;

/// Of `ompt_cancel_flag_t`.
pub const CANCEL_PARALLEL: u32 = 0x01;
pub const CANCEL_SECTIONS: u32 = 0x02;
pub const CANCEL_LOOP: u32 = 0x04;
pub const CANCEL_TASKGROUP: u32 = 0x08;
pub const CANCEL_ACTIVATED: u32 = 0x10;
pub const CANCEL_DETECTED: u32 = 0x20;
pub const CANCEL_DISCARDED_TASK: u32 = 0x40;

/// Of `ompt_frame_flag_t`: a frame of the library, by its canonical address or by its frame
/// pointer.
pub const FRAME_RUNTIME_CFA: i32 = 0x10;
pub const FRAME_RUNTIME_POINTER: i32 = 0x20;
/// The same for a frame of the program.
pub const FRAME_PROGRAM_POINTER: i32 = 0x21;

/// The states that a tool may enumerate, with the names that the standard gives them, in ascending
/// order.
pub const STATES: [(State, &std::ffi::CStr); 14] = [
    (State::WorkSerial, c"ompt_state_work_serial"),
    (State::WorkParallel, c"ompt_state_work_parallel"),
    (State::WorkReduction, c"ompt_state_work_reduction"),
    (
        State::WaitBarrierImplicitParallel,
        c"ompt_state_wait_barrier_implicit_parallel",
    ),
    (
        State::WaitBarrierImplicitWorkshare,
        c"ompt_state_wait_barrier_implicit_workshare",
    ),
    (
        State::WaitBarrierExplicit,
        c"ompt_state_wait_barrier_explicit",
    ),
    (
        State::WaitBarrierImplementation,
        c"ompt_state_wait_barrier_implementation",
    ),
    (State::WaitBarrierTeams, c"ompt_state_wait_barrier_teams"),
    (State::WaitTaskwait, c"ompt_state_wait_taskwait"),
    (State::WaitTaskgroup, c"ompt_state_wait_taskgroup"),
    (State::WaitLock, c"ompt_state_wait_lock"),
    (State::WaitCritical, c"ompt_state_wait_critical"),
    (State::WaitAtomic, c"ompt_state_wait_atomic"),
    (State::WaitOrdered, c"ompt_state_wait_ordered"),
];

impl Sync {
    /// The state of a thread that waits in such a region.
    #[must_use]
    pub fn state(self) -> State {
        match self {
            Sync::BarrierExplicit => State::WaitBarrierExplicit,
            Sync::BarrierImplementation => State::WaitBarrierImplementation,
            Sync::Taskwait => State::WaitTaskwait,
            Sync::Taskgroup => State::WaitTaskgroup,
            Sync::Reduction => State::WorkReduction,
            Sync::BarrierWorkshare => State::WaitBarrierImplicitWorkshare,
            Sync::BarrierParallel => State::WaitBarrierImplicitParallel,
            Sync::BarrierTeams => State::WaitBarrierTeams,
        }
    }
}

impl Mutex {
    /// The state of a thread that waits for such a lock.
    #[must_use]
    pub fn state(self) -> State {
        match self {
            Mutex::Lock | Mutex::TestLock | Mutex::NestLock | Mutex::TestNestLock => {
                State::WaitLock
            }
            Mutex::Critical => State::WaitCritical,
            Mutex::Atomic => State::WaitAtomic,
            Mutex::Ordered => State::WaitOrdered,
        }
    }
}

/// What OpenMP 5.2 says that a callback with this number has: whether a library may leave it out is
/// no matter here, since one without devices accepts those of devices and never calls them.
#[must_use]
pub fn is_callback(number: u32) -> bool {
    (1..CALLBACKS as u32).contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_in_ascending_order_and_differ() {
        assert!(
            STATES
                .windows(2)
                .all(|two| (two[0].0 as u32) < (two[1].0 as u32))
        );
        for (state, name) in STATES {
            assert!(
                name.to_str().unwrap().starts_with("ompt_state_"),
                "{state:?}"
            );
        }
    }

    #[test]
    fn callbacks_are_those_of_the_standard() {
        assert!(!is_callback(0) && is_callback(1) && is_callback(37) && !is_callback(38));
    }
}
