//! What the ranks write and read, on its way between the launcher and the agents.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use margay_sys_os::descriptor::{Outlet, Wrote, reopen_for_reading, set_nonblocking};

use super::plan::Plan;
use super::{READ_BYTES, Relay};
use crate::guard::Event;
use crate::hosts::connection::Connection;
use crate::hosts::wire::{self, Writer, kind};
use crate::sinks::RankOutput;

/// A rank's output on its way to the launcher.
pub(super) struct Output {
    pub(super) host: usize,
    pub(super) pipe: Option<Outlet>,
    pub(super) waiting: Vec<u8>,
    pub(super) is_over: bool,
    /// Its rank has ended, and what is waiting is all that this one wrote.
    pub(super) drains: bool,
}

/// The launcher's input on its way to a rank.
pub(super) struct Input {
    pub(super) rank: u32,
    pub(super) host: usize,
    pub(super) source: Option<File>,
    /// Bytes that the agent still takes.
    pub(super) window: usize,
}

impl Relay {
    #[allow(clippy::type_complexity)]
    pub(super) fn ends(
        plan: &Plan,
        inputs: Vec<Option<Arc<OwnedFd>>>,
        outputs: Vec<RankOutput>,
    ) -> io::Result<(Vec<Connection>, Vec<Input>, HashMap<u64, Output>)> {
        let hosts = plan.starts.open_all()?;
        let host_of = |rank: u32| plan.host_of[rank as usize] as usize;
        let mut sources = Vec::new();
        for ((rank, input), has_input) in (0..).zip(inputs).zip(&plan.has_input) {
            if !has_input {
                continue;
            }
            let source = match &input {
                Some(own) => own.try_clone()?.into(),
                None => reopen_for_reading(io::stdin().as_fd())?,
            };
            sources.push(Input {
                rank,
                host: host_of(rank),
                source: Some(source),
                window: wire::WINDOW,
            });
        }
        let merges = plan.starts.tasks.first().is_some_and(|task| task.merges);
        let mut streams = HashMap::new();
        for (rank, [output, error]) in (0..).zip(outputs) {
            let both = [(false, Some(output)), (true, (!merges).then_some(error))];
            for (is_error, pipe) in both {
                let Some(pipe) = pipe else { continue };
                set_nonblocking(pipe.as_fd())?;
                let output = Output {
                    host: host_of(rank),
                    pipe: Some(Outlet::new(pipe.as_fd())?),
                    waiting: Vec::new(),
                    is_over: false,
                    drains: false,
                };
                streams.insert(wire::stream(rank, is_error), output);
            }
        }
        Ok((hosts, sources, streams))
    }

    pub(super) fn read_input(&mut self, rank: u32) {
        // It may have ended since.
        let Some(input) = self.inputs.iter_mut().find(|input| input.rank == rank) else {
            return;
        };
        let mut bytes = vec![0; input.window.min(READ_BYTES)];
        let Some(mut source) = input.source.as_ref() else {
            return;
        };
        let read = match source.read(&mut bytes) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        input.window -= read;
        if read == 0 {
            input.source = None;
        }
        let mut message = Writer::new(kind::INPUT);
        message.number(input.rank.into()).bytes(&bytes[..read]);
        let host = input.host;
        self.hosts[host].say(&message.done());
    }

    /// Passes on what the launcher takes, and gives the agent room for as much.
    pub(super) fn write_output(&mut self, stream: u64) {
        let Some(output) = self.outputs.get_mut(&stream) else {
            return;
        };
        let mut passed = 0;
        while let Some(pipe) = &output.pipe {
            match pipe.write(&output.waiting[passed..]) {
                Wrote::Some(n) => passed += n,
                Wrote::Later => break,
                Wrote::Closed | Wrote::Failed(_) => output.pipe = None,
            }
        }
        if output.pipe.is_none() {
            passed = output.waiting.len();
        }
        output.waiting.drain(..passed);
        let is_drained = output.drains && output.waiting.is_empty();
        if is_drained {
            output.drains = false;
        }
        if output.is_over && output.waiting.is_empty() {
            output.pipe = None;
        }
        if passed > 0 {
            let mut credit = Writer::new(kind::CREDIT);
            credit.number(stream).number(passed as u64);
            let host = output.host;
            self.hosts[host].say(&credit.done());
        }
        if is_drained {
            let (rank, is_error) = wire::of_stream(stream);
            self.report(&Event::Drained { rank, is_error });
        }
    }

    pub(super) fn flush_outputs(&mut self) {
        let all: Vec<u64> = self.outputs.keys().copied().collect();
        for stream in all {
            self.write_output(stream);
        }
    }
}
