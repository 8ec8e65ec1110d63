//! What one call of a compiler leaves for a later one: LLVM's compilers make several calls for a
//! construct, where gcc's make one.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use margay_core_openmp::doacross::Dimension;

use crate::task::{Event, SavedInPlace, SavedTask, TaskClauses, complete};
use crate::team::{Context, Request};
use crate::tool::task_flags;
use crate::work::Doacross;

/// What the calls of a member have left.
#[derive(Debug, Default)]
pub struct Calls {
    /// What the next region or league asks for.
    pub request: Cell<Request>,
    /// The clauses `num_teams` and `thread_limit` of the next league; 0 without.
    pub league: Cell<(u32, u32)>,
    /// Whether the member has the lock of the reduction that it is in.
    pub has_reduction_lock: Cell<bool>,
    /// What few members need.
    rare: RefCell<Option<Box<RareCalls>>>,
}

#[derive(Debug, Default)]
struct RareCalls {
    /// Undeferred tasks whose bodies the program runs itself, the innermost last.
    undeferred: Vec<Undeferred>,
    /// The tables of task reductions, or 0, of the taskgroups that the member is in.
    groups: Vec<usize>,
    doacross: Option<NumberedLoops>,
}

#[derive(Debug)]
enum Undeferred {
    InPlace(SavedInPlace),
    WithNode {
        saved: SavedTask,
        event: Option<Arc<Event>>,
    },
}

/// The doacross loop that a member is in, and how its iterations are numbered; without the former,
/// nobody has to wait.
#[derive(Debug)]
struct NumberedLoops {
    dimensions: Vec<Dimension>,
    posted: Option<Arc<Doacross>>,
}

impl Calls {
    fn rare<R>(&self, f: impl FnOnce(&mut RareCalls) -> R) -> R {
        f(self.rare.borrow_mut().get_or_insert_default())
    }

    /// A taskgroup has begun.
    pub fn enter_group(&self) {
        self.rare(|rare| rare.groups.push(0));
    }

    /// The innermost taskgroup has task reductions with a table at this address.
    pub fn set_group_table(&self, address: usize) {
        self.rare(|rare| {
            if let Some(last) = rare.groups.last_mut() {
                *last = address;
            }
        });
    }

    /// The innermost taskgroup is over. Returns the address of its table, or 0.
    pub fn leave_group(&self) -> usize {
        self.rare(|rare| rare.groups.pop().unwrap_or(0))
    }
}

impl Context {
    /// Enters an undeferred task, whose body the caller runs until
    /// [`end_undeferred`](Self::end_undeferred).
    pub fn begin_undeferred(&self, clauses: TaskClauses, event: Option<Arc<Event>>) {
        let is_final = clauses.is_final || self.is_final.get();
        self.make_in_place();
        let begun = if event.is_none() && self.runs_in_place(true) {
            Undeferred::InPlace(self.enter_in_place(is_final))
        } else {
            let node = self.new_child(event.as_ref());
            if let Some(tool) = self.tool {
                let flags = task_flags(true, clauses.is_final, clauses.report);
                self.tell_task_created(tool, node, flags, &[]);
            }
            let inherited = self.inherited.borrow().clone();
            let saved = self.enter_task(node, self.icv.get(), is_final, inherited);
            if let Some(tool) = self.tool {
                self.set_exit_frame(tool);
            }
            Undeferred::WithNode { saved, event }
        };
        self.calls.rare(|rare| rare.undeferred.push(begun));
    }

    /// The body of the innermost undeferred task has run.
    pub fn end_undeferred(&self) {
        match self.calls.rare(|rare| rare.undeferred.pop()) {
            None => {}
            Some(Undeferred::InPlace(saved)) => {
                if let Some(left) = self.leave_in_place(&saved) {
                    self.end_in_place(left);
                }
            }
            Some(Undeferred::WithNode { saved, event }) => {
                let node = self.task.get();
                if let Some(event) = event {
                    event.wait(self);
                }
                self.leave_task(saved, self.status_at_end());
                self.tell_undeferred_over();
                complete(Some(self), self.team, node);
            }
        }
    }

    /// Begins a doacross loop, before the loop itself.
    pub fn begin_doacross(&self, dimensions: Vec<Dimension>) {
        let counts: Vec<u64> = dimensions.iter().map(|one| one.count).collect();
        let posted = self.share_doacross(&counts);
        let loops = NumberedLoops { dimensions, posted };
        self.calls.rare(|rare| rare.doacross = Some(loops));
    }

    /// The doacross loop is over.
    pub fn end_doacross(&self) {
        self.calls.rare(|rare| rare.doacross = None);
    }

    /// The number of dimensions of the doacross loop that this member is in.
    #[must_use]
    pub fn doacross_dimensions(&self) -> usize {
        let count = |loops: &NumberedLoops| loops.dimensions.len();
        self.calls
            .rare(|rare| rare.doacross.as_ref().map_or(0, count))
    }

    /// An iteration, as values of the loops' variables, is over or waited for. One that does not
    /// exist is not waited for.
    fn numbered(&self, values: &[i64]) -> Option<(Arc<Doacross>, Vec<u64>)> {
        self.calls.rare(|rare| {
            let loops = rare.doacross.as_ref()?;
            let posted = loops.posted.as_ref()?;
            let numbers: Option<Vec<u64>> = loops
                .dimensions
                .iter()
                .zip(values)
                .map(|(dimension, &value)| dimension.number(value))
                .collect();
            Some((Arc::clone(posted), numbers?))
        })
    }

    /// `ordered depend(source)`, by the values of the loops' variables.
    pub fn post_values(&self, values: &[i64]) {
        if let Some((posted, numbers)) = self.numbered(values) {
            self.post_to(&posted, &numbers);
        }
    }

    /// `ordered depend(sink)`, by the values of the loops' variables.
    pub fn wait_for_values(&self, values: &[i64]) {
        if let Some((posted, numbers)) = self.numbered(values) {
            self.wait_for_number(&posted, &numbers);
        }
    }
}
