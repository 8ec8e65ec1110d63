//! Nonblocking collectives through shared memory: each progress carries on what is under way.

use std::sync::OnceLock;

use super::*;
use crate::node::posted::{PostQueue, Posted, Posting};
use crate::node::{Arguments, Cause, Channel, Disagreement};

impl Engine {
    /// Begins a collective on a channel that only serves nonblocking ones. None when it is done
    /// already. `is_direct`: ranks copy from each other's buffers, which they may and which the
    /// exchange allows.
    pub fn post(
        &mut self,
        channel: &Arc<Channel>,
        arguments: Box<dyn Arguments>,
        is_direct: bool,
    ) -> Option<Arc<Posted>> {
        if let Some(failed) = self.broken(channel.context(), channel.members()) {
            return Some(self.ended_badly(channel, broken(failed)));
        }
        let known = (self.posted.iter()).position(|queue| Arc::ptr_eq(&queue.channel, channel));
        let at = known.unwrap_or_else(|| {
            self.posted.push(PostQueue {
                channel: channel.clone(),
                waiting: VecDeque::new(),
            });
            self.posted.len() - 1
        });
        let mut posting = Posting::new(arguments, is_direct);
        if self.posted[at].waiting.is_empty()
            && let Some(result) = channel.advance(&mut posting)
        {
            return result
                .err()
                .map(|problem| self.ended_badly(channel, problem));
        }
        let posted = self.posted_on(channel);
        let waiting = &mut self.posted[at].waiting;
        waiting.push_back((posting, posted.clone()));
        self.posted_count += 1;
        Some(posted)
    }

    fn posted_on(&mut self, channel: &Channel) -> Arc<Posted> {
        let request = Request::new(Kind::Exchange(channel.context()));
        Arc::new(Posted {
            id: self.state.requests.insert(request),
            problem: OnceLock::new(),
        })
    }

    /// The request of an exchange that has ended with a problem, which its completion reports.
    #[cold]
    fn ended_badly(&mut self, channel: &Channel, problem: Disagreement) -> Arc<Posted> {
        let posted = self.posted_on(channel);
        let _ = posted.problem.set(problem);
        self.state.end(posted.id.index);
        posted
    }

    /// Whether nothing is under way on the channel. It is given up then, until something is posted
    /// again.
    pub fn is_posted_done(&mut self, channel: &Arc<Channel>) -> bool {
        let busy =
            |queue: &PostQueue| Arc::ptr_eq(&queue.channel, channel) && !queue.waiting.is_empty();
        if self.posted.iter().any(busy) {
            return false;
        }
        self.posted
            .retain(|queue| !Arc::ptr_eq(&queue.channel, channel));
        true
    }

    /// Carries on the first of each channel. Returns whether any has ended.
    pub(super) fn advance_posted(&mut self) -> bool {
        let mut any = false;
        let mut queues = std::mem::take(&mut self.posted);
        for queue in &mut queues {
            while let Some((posting, _)) = queue.waiting.front_mut() {
                let channel = &queue.channel;
                let result = match self.broken(channel.context(), channel.members()) {
                    Some(failed) => Err(broken(failed)),
                    None => match channel.advance(posting) {
                        Some(result) => result,
                        None => break,
                    },
                };
                any = true;
                self.posted_count -= 1;
                if let Some((_, posted)) = queue.waiting.pop_front() {
                    if let Err(problem) = result {
                        let _ = posted.problem.set(problem);
                    }
                    self.state.end(posted.id.index);
                }
            }
        }
        self.posted = queues;
        any
    }
}

fn broken(failed: Failed) -> Disagreement {
    Disagreement {
        rank: 0,
        bytes: None,
        expected: 0,
        cause: Some(Cause::Failed(failed)),
    }
}
