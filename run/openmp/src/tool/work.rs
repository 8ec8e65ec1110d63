//! Events of work shares: loops, sections, single, scope, and what members take of them.

use std::cell::Cell;

use margay_core_openmp::schedule::Kind;
use margay_core_openmp::tools::{Callback, Dispatch, Endpoint, Sync, Work};

use super::{Event, Tool};
use crate::team::Context;

/// The construct that a member has begun and whose end has not been reported.
#[derive(Debug, Default)]
pub(crate) struct OpenWork {
    work: Cell<Option<(Work, u64)>>,
    /// It combines its values in a reduction.
    reduces: Cell<bool>,
}

impl Context {
    /// A construct that shares work begins. Without a tool nothing is done.
    #[inline]
    pub fn tell_work(&self, kind: Work) {
        if let Some(tool) = self.tool {
            self.tell_work_begins(tool, kind);
        }
    }

    /// The same for a construct with this many iterations or sections that is not a work share of
    /// the runtime.
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

    /// The tasks of a `taskloop`, which may be in any task and in other constructs, are created
    /// now, or have been.
    #[inline]
    pub fn tell_taskloop(&self, endpoint: Endpoint, count: u64) {
        if let Some(tool) = self.tool {
            self.raise_work(tool, Work::Taskloop, endpoint, count);
        }
    }

    #[cold]
    pub(super) fn tell_work_begins(&self, tool: &Tool, kind: Work) {
        let kind = match (kind, self.work.schedule()) {
            (Work::Loop, Some(Kind::Static)) => Work::LoopStatic,
            (Work::Loop, Some(Kind::Dynamic)) => Work::LoopDynamic,
            (Work::Loop, Some(Kind::Guided)) => Work::LoopGuided,
            (Work::Loop, Some(Kind::Auto)) => Work::LoopOther,
            (other, _) => other,
        };
        self.tell_begin(tool, kind, self.work.iterations());
    }

    #[cold]
    fn tell_begin(&self, tool: &Tool, kind: Work, count: u64) {
        self.tell_open_work_ends(tool);
        self.open_work.work.set(Some((kind, count)));
        self.raise_work(tool, kind, Endpoint::Begin, count);
    }

    /// Compilers do not say when some constructs are over (gcc's `single`): then the next one of
    /// the member that shares work, or its next barrier, does.
    #[cold]
    pub(super) fn tell_open_work_ends(&self, tool: &Tool) {
        if let Some((kind, count)) = self.open_work.work.take() {
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

    /// This member executes iterations of a loop next: the number of the first, and how many.
    #[inline]
    pub fn tell_chunk(&self, chunk: impl FnOnce() -> (u64, u64)) {
        if let Some(tool) = self.tool {
            self.tell_dispatch(tool, chunk());
        }
    }

    /// The same for those that it has taken from its work share, which may be a section.
    #[cold]
    pub(crate) fn tell_dispatch(&self, tool: &Tool, chunk: (u64, u64)) {
        let is_section = matches!(self.open_work.work.get(), Some((Work::Sections, _)));
        let (kind, instance) = if is_section {
            (Dispatch::Section, (self.code(tool) as u64, 0))
        } else {
            (Dispatch::LoopChunk, chunk)
        };
        tool.raise(&Event::Dispatch {
            region: self.region_word(),
            task: self.task_tool(),
            kind,
            instance,
        });
    }

    /// This member begins to combine its values with those of a reduction.
    #[inline]
    pub fn tell_reduction(&self) {
        if let Some(tool) = self.tool {
            self.open_work.reduces.set(true);
            self.raise_reduction(tool, Endpoint::Begin);
        }
    }

    /// It is ready with that, if it has begun.
    #[inline]
    pub fn tell_reduction_over(&self) {
        if let Some(tool) = self.tool
            && self.open_work.reduces.take()
        {
            self.raise_reduction(tool, Endpoint::End);
        }
    }

    #[cold]
    fn raise_reduction(&self, tool: &Tool, endpoint: Endpoint) {
        tool.raise(&Event::Sync {
            callback: Callback::Reduction,
            kind: Sync::Reduction,
            endpoint,
            region: Some(self.region_word()),
            task: self.task_tool(),
            code: self.code(tool),
        });
    }
}
