//! The runtime of a process as one value: what its teams, tasks and threads share.

use std::sync::atomic::{AtomicU32, Ordering};

use margay_run_threads::{AnyClock, preempt_by};
use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::inspect::Keeper;
use margay_sys_threads::slot;

use crate::affinity::{self, ShownAffinity};
use crate::allocator::Allocators;
use crate::environment::Environment;
use crate::icv::{Icv, Icvs};
use crate::lock::FREE;
use crate::member_limit::MemberLimit;
use crate::node::TaskNodes;
use crate::place_list::PlaceList;
use crate::reduction::RegisteredReductions;
use crate::scheduler::{self, Scheduler};
use crate::task::Events;
use crate::team::{Context, FreeTeams};
use crate::tls::TlsBlocks;
use crate::tool::Tool;

/// What the threads of one program share. There is one in a process, which `abi/gomp` holds; teams
/// refer to it, and through them whatever runs in one. Lives as long as the process, as its teams
/// do.
// Fields: one for each thing that the threads of a program share.
#[derive(Debug)]
pub struct Runtime {
    /// What the environment variables said when the program first used OpenMP.
    pub environment: Environment,
    /// The places in force.
    pub places: PlaceList,
    pub icvs: Icvs,
    /// What `omp_get_wtime` and all delays go by.
    pub clock: AnyClock,
    pub allocators: Allocators,
    /// The lock of all `critical` constructs without a name.
    pub critical: AtomicU32,
    /// The lock of atomic updates that the processor cannot do.
    pub atomic: AtomicU32,
    pub(crate) scheduler: Scheduler,
    pub(crate) member_limit: MemberLimit,
    pub(crate) tls_blocks: TlsBlocks,
    pub(crate) teams: FreeTeams,
    pub(crate) nodes: TaskNodes,
    pub(crate) events: Events,
    pub(crate) reductions: RegisteredReductions,
    pub(crate) shown_affinity: ShownAffinity,
    tool: StaticRef<Tool>,
    keeper: Option<Keeper>,
}

impl Runtime {
    /// A runtime for what the environment says, with the time of `clock`.
    #[must_use]
    pub fn new(environment: Environment, clock: AnyClock) -> Runtime {
        Runtime {
            icvs: Icvs::new(
                environment.initial,
                environment.affinity_format.as_deref(),
                environment.teams,
                environment.teams_thread_limit,
            ),
            places: PlaceList::new(environment.places.clone()),
            allocators: Allocators::default(),
            critical: AtomicU32::new(FREE),
            atomic: AtomicU32::new(FREE),
            scheduler: Scheduler::new(
                environment.stack_bytes,
                environment.wait_policy,
                clock.clone(),
            ),
            member_limit: MemberLimit::default(),
            tls_blocks: TlsBlocks::default(),
            teams: FreeTeams::default(),
            nodes: TaskNodes::default(),
            events: Events::default(),
            reductions: RegisteredReductions::default(),
            shown_affinity: ShownAffinity::default(),
            tool: StaticRef::none(),
            keeper: None,
            clock,
            environment,
        }
    }

    /// What teams write of themselves goes where the keeper says.
    #[must_use]
    pub fn kept_by(self, keeper: Keeper) -> Runtime {
        Runtime {
            keeper: Some(keeper),
            ..self
        }
    }

    pub(crate) fn keeper(&self) -> Option<Keeper> {
        self.keeper
    }

    /// Reports to a tool what happens from now on: before the first thread uses the runtime, and
    /// once.
    pub fn attach_tool(&self, tool: &'static Tool) {
        self.tool.set(Some(tool), Ordering::Release);
    }

    /// The tool of this process.
    #[inline]
    #[must_use]
    pub fn tool(&self) -> Option<&'static Tool> {
        self.tool.get(Ordering::Acquire)
    }

    /// Runs `f` with the thread-local variables of each member that does not run now.
    pub fn in_idle_threads(&self, f: impl Fn()) {
        self.tls_blocks.in_idle(f);
    }

    /// The bytes of a member's stack.
    #[must_use]
    pub fn stack_bytes(&self) -> usize {
        self.scheduler.stack_bytes()
    }

    /// The program's main thread has ended, by `pthread_exit`, before the process: from now on
    /// threads of the runtime do not keep the process when no thread of the program uses them.
    pub fn main_thread_has_ended(&self) {
        self.scheduler.main_has_ended();
    }

    /// The control variables that a parallel region at this level of nesting (1: the outermost)
    /// passes to its members, whose parent has `icv`.
    pub(crate) fn icv_inside(
        &self,
        icv: &'static Icv,
        level: u32,
        listed: Option<&'static [u32]>,
    ) -> &'static Icv {
        let Environment { threads, bind, .. } = &self.environment;
        let listed = listed.or(icv.inner_threads);
        if threads.len() <= 1 && bind.len() <= 1 && listed.is_none() {
            return icv;
        }
        let at = level as usize;
        self.icvs.change(icv, |icv| {
            if let Some(list) = listed {
                icv.inner_threads = Some(list.get(1..).unwrap_or_default());
                icv.threads = list.first().copied().unwrap_or(icv.threads);
            } else if let Some(&threads) = threads.get(at) {
                icv.threads = threads;
            }
            if let Some(&bind) = bind.get(at) {
                icv.bind = bind;
            }
        })
    }
}

/// Once in a process: members that spin or wait in the kernel for each other take turns where there
/// are more of them than workers.
pub fn preempt_members() {
    // Where the program uses the signal itself, its spinning is its own affair.
    let _ = preempt_by(|how, reason| {
        let more = scheduler::interrupted(how, reason);
        slot::with(|context: Option<&Context>| {
            if let Some(context) = context {
                affinity::keep_bound(context);
            }
        });
        more
    });
}
