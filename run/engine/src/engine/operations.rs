//! Operations of several requests: collectives by schedule and tasks. They go on whenever requests
//! have ended.

use super::*;
use crate::collective::Requests;

impl Requests for Engine {
    fn isend(&mut self, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId {
        Engine::isend(self, mode, data, to, envelope)
    }

    fn irecv(&mut self, data: Data, pattern: Pattern, from: Option<u32>) -> ReqId {
        Engine::irecv(self, data, pattern, from)
    }

    fn take(&mut self, id: ReqId) -> Option<Outcome> {
        Engine::take(self, id)
    }

    fn abandon(&mut self, id: ReqId) {
        self.abandon_one(id);
    }

    fn broken(&self, context: u32, group: &Group) -> Option<Failed> {
        Engine::broken(self, context, group)
    }

    fn spare(&mut self) -> &mut Spare {
        &mut self.state.spare
    }
}

impl Engine {
    /// Begins a collective operation; `later`: its first steps are left to the next progress.
    pub fn icollective(&mut self, mut execution: Execution, later: bool) -> ReqId {
        if let Some(failed) = execution.broken(self) {
            execution.fail(failed);
        }
        let key = self
            .state
            .requests
            .insert(Request::new(Kind::Collective(Some(Box::new(execution)))));
        self.state.executions.push(key.index);
        if later {
            self.state.looked = self.state.ended.wrapping_sub(1);
        } else {
            self.run_execution(key.index);
        }
        key
    }

    /// Begins an operation of several requests.
    pub fn start_task(&mut self, task: Box<dyn Task>) -> ReqId {
        let kind = Kind::Task(Some(task));
        let key = self.state.requests.insert(Request::new(kind));
        self.state.executions.push(key.index);
        self.run_execution(key.index);
        key
    }

    pub(super) fn run_executions(&mut self) {
        self.state.looked = self.state.ended;
        let mut at = 0;
        while at < self.state.executions.len() {
            let index = self.state.executions[at];
            self.run_execution(index);
            if self.state.executions.get(at) == Some(&index) {
                at += 1;
            }
        }
    }

    /// Returns a request that [`fulfil`](Self::fulfil) ends, when `from` has answered in `context`.
    pub fn promise(&mut self, from: u32, context: u32) -> ReqId {
        let request = Request::new(Kind::Promise(from, context));
        self.state.requests.insert(request)
    }

    /// Ends a promise.
    pub fn fulfil(&mut self, id: ReqId, outcome: Outcome) {
        if let Some(request) = self.state.requests.get_mut(id) {
            request.outcome = outcome;
            self.state.end(id.index);
        }
    }

    /// Starts what a collective or a task can start now, until it has to wait or is done.
    fn run_execution(&mut self, index: u32) {
        if let Some(Request {
            kind: Kind::Task(place),
            ..
        }) = self.state.requests.at(index)
        {
            let task = place.take();
            return self.run_task(index, task);
        }
        let Some(Request {
            kind: Kind::Collective(place),
            ..
        }) = self.state.requests.at(index)
        else {
            return;
        };
        // The execution starts requests of this very engine, so it is taken out meanwhile.
        let Some(mut execution) = place.take() else {
            return;
        };
        let step = execution.run(self);
        if let Some(Request {
            kind: Kind::Collective(place),
            outcome,
            ..
        }) = self.state.requests.at(index)
        {
            if let Some(mismatch) = execution.mismatch() {
                *outcome = mismatch;
            }
            outcome.failed = execution.failed();
            *place = Some(execution);
        }
        if step == Collected::Done {
            self.state.executions.retain(|&i| i != index);
            self.state.end(index);
        }
    }

    fn run_task(&mut self, index: u32, task: Option<Box<dyn Task>>) {
        let Some(mut task) = task else { return };
        match task.run(self) {
            Some(outcome) => {
                if let Some(request) = self.state.requests.at(index) {
                    request.outcome = outcome;
                }
                self.state.executions.retain(|&i| i != index);
                self.state.end(index);
            }
            None => {
                if let Some(Request {
                    kind: Kind::Task(place),
                    ..
                }) = self.state.requests.at(index)
                {
                    *place = Some(task);
                }
            }
        }
    }
}
