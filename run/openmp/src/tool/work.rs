//! Events of work shares: loops, sections, single, scope, and what members take of them.

use std::cell::Cell;

use margay_core_openmp::tools::{Dispatch, Endpoint, Work};

use super::{Event, Tool};
use crate::team::Context;

/// The construct that a member has begun and whose end has not been told.
#[derive(Debug, Default)]
pub(crate) struct OpenWork(Cell<Option<(Work, u64)>>);

impl Context {
    /// A construct that shares work begins. Without a tool nothing is done.
    #[inline]
    pub fn tell_work(&self, kind: Work) {
        if let Some(tool) = self.tool {
            self.tell_work_begins(tool, kind);
        }
    }

    /// The same for a construct with this many iterations or sections that is not a work share of the runtime.
    #[inline]
    pub fn tell_counted_work(&self, what: impl FnOnce() -> (Work, u64)) {
        if let Some(tool) = self.tool {
            let (kind, count) = what();
            self.tell_begin(tool, kind, count);
        }
    }

    /// The construct of this member that shares work is over, if it has one.
    #[inline]
    pub fn tell_work_over(&self) {
        if let Some(tool) = self.tool {
            self.tell_open_work_ends(tool);
        }
    }

    #[cold]
    pub(super) fn tell_work_begins(&self, tool: &Tool, kind: Work) {
        self.tell_begin(tool, kind, self.work.iterations());
    }

    #[cold]
    fn tell_begin(&self, tool: &Tool, kind: Work, count: u64) {
        self.tell_open_work_ends(tool);
        self.open_work.0.set(Some((kind, count)));
        self.raise_work(tool, kind, Endpoint::Begin, count);
    }

    /// Compilers do not say when some constructs are over (gcc's `single`): then the next construct of the member says so.
    #[cold]
    pub(super) fn tell_open_work_ends(&self, tool: &Tool) {
        if let Some((kind, count)) = self.open_work.0.take() {
            self.raise_work(tool, kind, Endpoint::End, count);
        }
    }

    pub(super) fn raise_work(&self, tool: &Tool, kind: Work, endpoint: Endpoint, count: u64) {
        tool.raise(&Event::Work {
            kind,
            endpoint,
            region: self.region_word(),
            task: self.task_tool(),
            count,
            code: self.code(tool),
        });
    }

    /// This member executes the `single`, or another one does.
    #[cold]
    pub(crate) fn tell_single(&self, tool: &Tool, executes: bool) {
        if executes {
            self.tell_begin(tool, Work::SingleExecutor, 1);
        } else {
            self.tell_open_work_ends(tool);
            self.raise_work(tool, Work::SingleOther, Endpoint::Begin, 1);
            self.raise_work(tool, Work::SingleOther, Endpoint::End, 1);
        }
    }

    /// This member takes iterations of its loop: the value of the first, and how many.
    #[inline]
    pub fn tell_chunk(&self, kind: Dispatch, first: u64, count: u64) {
        if let Some(tool) = self.tool {
            self.raise_dispatch(tool, kind, (first, count));
        }
    }

    #[cold]
    pub(super) fn raise_dispatch(&self, tool: &Tool, kind: Dispatch, instance: (u64, u64)) {
        tool.raise(&Event::Dispatch {
            region: self.region_word(),
            task: self.task_tool(),
            kind,
            instance,
        });
    }
}
