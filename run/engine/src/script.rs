//! Operations written as straight lines: an `async` block that sends, receives and awaits, executed
//! by the engine.
//!
//! The block talks to the engine through a [`Port`]. Starting an operation gives a [`Started`],
//! which is awaited for its outcome, so several may be under way. The engine polls the block
//! whenever one of its operations has ended; nothing else ever wakes it, so it must await nothing
//! but [`Started`]s of its own port.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use margay_core_matching::{Envelope, Pattern};

use crate::call::{Mode, Outcome, Pending, ReqId};
use crate::collective::Execution;
use crate::data::Data;
use crate::engine::{Engine, Task};

/// What a script starts operations with. Cloning gives another handle of the same port.
#[derive(Clone, Default)]
pub struct Port(Arc<Mutex<Exchange>>);

#[derive(Default)]
struct Exchange {
    next: u64,
    commands: Vec<(u64, Command)>,
    ended: BTreeMap<u64, Outcome>,
}

enum Command {
    Send {
        data: Data,
        to: u32,
        envelope: Envelope,
    },
    Receive {
        data: Data,
        pattern: Pattern,
        from: Option<u32>,
    },
    Collective(Box<Execution>),
}

/// An operation under way; awaiting it gives its outcome.
pub struct Started {
    port: Port,
    ticket: u64,
}

impl Port {
    /// Sends to a process of the job.
    #[must_use]
    pub fn send(&self, data: Data, to: u32, envelope: Envelope) -> Started {
        self.start(Command::Send { data, to, envelope })
    }

    /// Receives; `from` is the sender's world rank if one is asked for.
    #[must_use]
    pub fn receive(&self, data: Data, pattern: Pattern, from: Option<u32>) -> Started {
        self.start(Command::Receive {
            data,
            pattern,
            from,
        })
    }

    /// Takes part in a collective operation.
    #[must_use]
    pub fn collective(&self, execution: Execution) -> Started {
        self.start(Command::Collective(Box::new(execution)))
    }

    fn start(&self, command: Command) -> Started {
        let mut exchange = self.exchange();
        let ticket = exchange.next;
        exchange.next += 1;
        exchange.commands.push((ticket, command));
        Started {
            port: self.clone(),
            ticket,
        }
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Future for Started {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        match self.port.exchange().ended.remove(&self.ticket) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

/// A script with what it has under way.
pub struct Script {
    port: Port,
    body: Pin<Box<dyn Future<Output = ()> + Send>>,
    children: Vec<(ReqId, u64)>,
    context: u32,
    begun: bool,
}

impl Script {
    /// Returns a script whose block was made with this port; `context` is that of its messages, for
    /// displays.
    #[must_use]
    pub fn new(
        port: Port,
        context: u32,
        body: impl Future<Output = ()> + Send + 'static,
    ) -> Script {
        Script {
            port,
            body: Box::pin(body),
            children: Vec::new(),
            context,
            begun: false,
        }
    }
}

impl Task for Script {
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome> {
        loop {
            let mut news = !std::mem::replace(&mut self.begun, true);
            let mut at = 0;
            while at < self.children.len() {
                let (id, ticket) = self.children[at];
                if let Some(outcome) = engine.take(id) {
                    self.port.exchange().ended.insert(ticket, outcome);
                    self.children.swap_remove(at);
                    news = true;
                } else {
                    at += 1;
                }
            }
            if !news {
                return None;
            }
            let over = (self.body.as_mut())
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready();
            let commands = std::mem::take(&mut self.port.exchange().commands);
            for (ticket, command) in commands {
                let id = match command {
                    Command::Send { data, to, envelope } => {
                        engine.isend(Mode::Standard, data, to, envelope)
                    }
                    Command::Receive {
                        data,
                        pattern,
                        from,
                    } => engine.irecv(data, pattern, from),
                    Command::Collective(execution) => engine.icollective(*execution, false),
                };
                self.children.push((id, ticket));
            }
            if over {
                for (id, _) in self.children.drain(..) {
                    engine.detach(id);
                }
                return Some(Outcome::default());
            }
        }
    }

    fn pending(&self) -> Pending {
        Pending::Collective(None, self.context)
    }
}
