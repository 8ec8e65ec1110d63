//! The agent: starts the ranks of its host, passes their input and output on, and ends them when
//! the relay says so or is silent.
//!
//! It runs until none of its processes is left. Its guard ends them all when the agent itself is
//! killed. Nothing of the job is in its arguments or its environment: everything, the secret too,
//! comes over standard input.

mod records;
mod start;

use records::Records;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_core_registry::Phase;
use margay_job_observe::crash::Crash;
use margay_job_observe::elsewhere::Asked;
use margay_net_shm::SegmentPeers;
use margay_sys_os::clock;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::{self, Halt};
use margay_sys_os::signal::{SIGTSTP, SignalSet};
use margay_sys_shm::segment::Segment;

use super::asks::Asks;
use super::branches::Branches;
use super::local::{Input, Local, Output};
use super::locations::decode_hosts;
use super::looks::{Looks, Question};
use super::mirror::{Ended, Reporter};
use super::stage::Staged;
use super::streams::{Taken, drain, read_output, read_part, write_input};
use super::task::{Task, list, word};
use super::wire::{self, Broken, Incoming, MAGIC, Reader, Writer, kind};
use crate::energy::{EnergyMeter, READ_EVERY};
use crate::guard::{Command, Event};
use crate::plan::LaunchError;
use crate::{setup, used};

/// How long killed processes may take to be gone before the agent leaves them to its guard.
const KILL_LIMIT: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 64 << 10;

/// Serves as the agent of this host, for the relay at the other end of standard input and output.
/// Returns when no process of the job is left here.
///
/// # Errors
/// When standard input or output is not there.
pub fn serve() -> io::Result<()> {
    let own = |fd: io::Result<OwnedFd>| -> io::Result<File> {
        let fd = fd?;
        set_nonblocking(fd.as_fd())?;
        Ok(fd.into())
    };
    let input = own(io::stdin().as_fd().try_clone_to_owned())?;
    let output = own(io::stdout().as_fd().try_clone_to_owned())?;
    // The launcher passes signals on. One from a remote shell's terminal must not end us first.
    SignalSet::all().block_exactly();
    process::set_name(c"margay-agent");
    let mut agent = Agent {
        input,
        output,
        incoming: Incoming::default(),
        queue: MAGIC.to_vec(),
        stage: Stage::New,
        heard: Instant::now(),
        said: Instant::now(),
        ticked: Instant::now(),
        reported: Instant::now(),
        leave_by: None,
        reporter: Reporter::default(),
        // Without it the ranks run, and cannot ask.
        asks: Asks::new().ok(),
        looks: Looks::default(),
        records: None,
        branches: Branches::default(),
        halt: Halt::default(),
        energy: EnergyMeter::begin(),
        energy_at: Instant::now() + READ_EVERY,
    };
    agent.run();
    Ok(())
}

enum Stage {
    New,
    /// Its programs come. The sockets listen.
    Staging(Box<Task>, Vec<TcpListener>, Vec<Option<Staged>>),
    /// It listens, and waits for the other hosts.
    Ready(Box<Task>, Vec<TcpListener>),
    Running(Box<Task>, Local),
    /// No process is left here.
    Empty,
}

// Fields: the way to the relay, when what was heard and said, and the parts that serve the ranks.
struct Agent {
    input: File,
    output: File,
    incoming: Incoming,
    /// What the relay has not taken yet: bounded by the windows of the streams.
    queue: Vec<u8>,
    stage: Stage,
    heard: Instant,
    said: Instant,
    ticked: Instant,
    /// When it has said last what its ranks do.
    reported: Instant,
    /// When the agent ends, whatever is left.
    leave_by: Option<Instant>,
    /// What the relay knows of what the ranks do.
    reporter: Reporter,
    /// What the ranks ask of the launcher's host.
    asks: Option<Asks>,
    looks: Looks,
    /// What the ranks of a job that is checked record.
    records: Option<Records>,
    /// The hosts that the relay reaches through this one.
    branches: Branches,
    halt: Halt,
    /// What its host uses, where that is known.
    energy: Option<EnergyMeter>,
    /// When that is read again.
    energy_at: Instant,
}

#[derive(Default)]
struct Places {
    guard: Option<usize>,
    outputs: Vec<Option<usize>>,
    inputs: Vec<Option<usize>>,
    part: Option<usize>,
}

impl Agent {
    fn run(&mut self) {
        let mut poll = PollSet::default();
        loop {
            if matches!(self.stage, Stage::Empty)
                && self.queue.is_empty()
                && self.branches.is_empty()
            {
                return;
            }
            let now = Instant::now();
            if self.leave_by.is_some_and(|at| now >= at) {
                return;
            }
            poll.clear();
            let read = self
                .leave_by
                .is_none()
                .then(|| poll.add_readable(self.input.as_fd()));
            let write = (!self.queue.is_empty()).then(|| poll.add_writable(self.output.as_fd()));
            let places = self.register(&mut poll);
            let branches = self.branches.register(&mut poll);
            for descriptor in self.asks.iter().flat_map(Asks::descriptors) {
                poll.add_readable(descriptor);
            }
            if let Some(descriptor) = self.looks.descriptor() {
                poll.add_readable(descriptor);
            }
            for descriptor in self.records.iter().flat_map(Records::descriptors) {
                poll.add_readable(descriptor);
            }
            let silence = self.heard + Duration::from_millis(wire::SILENCE_MS);
            let beat = self.said.min(self.reported) + Duration::from_millis(wire::BEAT_MS);
            let next = self.leave_by.unwrap_or(silence.min(beat));
            let next = self.branches.next_look().map_or(next, |at| at.min(next));
            let next = self.halt.next().map_or(next, |at| at.min(next));
            if poll
                .wait(Some(next.saturating_duration_since(now)))
                .is_err()
            {
                self.leave();
            }
            if read.is_some_and(|at| poll.ready(at).readable) {
                self.hear();
            }
            self.pass_questions_on();
            self.pass_on(&poll, &places);
            let mut said = Vec::new();
            self.branches.turn(&poll, &branches, &mut said);
            self.say_all(&said);
            self.tick();
            if write.is_some_and(|at| poll.ready(at).writable) || !self.queue.is_empty() {
                self.write();
            }
        }
    }

    fn register(&self, poll: &mut PollSet) -> Places {
        let Stage::Running(_, local) = &self.stage else {
            return Places::default();
        };
        let output = |o: &Output, poll: &mut PollSet| {
            let pipe = o.pipe.as_ref().filter(|_| o.window > 0)?;
            Some(poll.add_readable(pipe.as_fd()))
        };
        let input = |i: &Input, poll: &mut PollSet| {
            let pipe = i.pipe.as_ref().filter(|_| !i.waiting.is_empty())?;
            Some(poll.add_writable(pipe.as_fd()))
        };
        Places {
            guard: (!local.is_empty).then(|| poll.add_readable(local.guard.as_fd())),
            outputs: local.outputs.iter().map(|o| output(o, poll)).collect(),
            inputs: local.inputs.iter().map(|i| input(i, poll)).collect(),
            part: (local.part.iter())
                .filter(|part| part.window > 0)
                .find_map(|part| Some(poll.add_readable(part.pipe.as_ref()?.as_fd()))),
        }
    }

    fn say(&mut self, message: &[u8]) {
        if self.leave_by.is_none() {
            self.queue.extend_from_slice(message);
            self.said = Instant::now();
        }
    }

    /// As [`Agent::say`], of messages, perhaps none.
    fn say_all(&mut self, messages: &[u8]) {
        if !messages.is_empty() {
            self.say(messages);
        }
    }

    fn fail(&mut self, error: &LaunchError) {
        let mut failed = Writer::new(kind::FAILED);
        failed
            .number(error.status.into())
            .bytes(error.message.as_bytes());
        let failed = failed.done();
        self.say(&failed);
    }

    fn hear(&mut self) {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match (&self.input).read(&mut bytes) {
                Ok(0) => return self.leave(),
                Ok(n) => self.incoming.add(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.leave(),
            }
            loop {
                match self.incoming.take() {
                    Ok(Some((kind, body))) => {
                        self.heard = Instant::now();
                        if self.obey(kind, &body).is_err() {
                            return self.leave();
                        }
                    }
                    Ok(None) => break,
                    Err(Broken) => return self.leave(),
                }
            }
        }
    }

    fn obey(&mut self, kind: u8, body: &[u8]) -> Result<(), Broken> {
        let mut from = Reader(body);
        match kind {
            kind::TASK => self.prepare(Box::new(Task::decode(body)?)),
            kind::GO => {
                let (hosts, locations) = decode_hosts(&mut from)?;
                self.go(&hosts, &locations);
            }
            kind::FILE => {
                let (program, bytes) = (from.small::<usize>()?, from.bytes()?);
                self.take_program(program, bytes);
            }
            kind::SIGNAL => {
                let signal = from.small::<i32>()?;
                if signal == SIGTSTP {
                    self.halt.hold();
                }
                if let Stage::Running(_, local) = &mut self.stage {
                    local.guard.tell(Command::Signal(signal));
                }
            }
            kind::KILL => self.kill(),
            kind::HALT => {
                let is_stop = from.number()? != 0;
                match self.guard() {
                    Some(guard) if is_stop => self.halt.stop(guard),
                    Some(guard) => self.halt.go_on(guard),
                    // They have not begun.
                    None if is_stop => self.halt.begin(),
                    None => self.halt = Halt::default(),
                }
                if is_stop {
                    self.say(&Writer::new(kind::HALT).done());
                }
            }
            kind::CREDIT => {
                let (stream, bytes) = (from.number()?, from.small::<usize>()?);
                if stream & wire::RECORDS != 0 && stream != wire::PART {
                    if let Some(records) = &mut self.records {
                        records.give(stream & !wire::RECORDS, bytes);
                    }
                    return Ok(());
                }
                let Stage::Running(_, local) = &mut self.stage else {
                    return Ok(());
                };
                if let Some(output) = local.outputs.iter_mut().find(|o| o.stream == stream) {
                    output.window = (output.window + bytes).min(wire::WINDOW);
                } else if let Some(part) = local.part.as_mut().filter(|_| stream == wire::PART) {
                    part.window = (part.window + bytes).min(wire::PART_WINDOW);
                }
            }
            kind::INPUT => {
                let (rank, bytes) = (from.small::<u32>()?, from.bytes()?);
                if let Stage::Running(_, local) = &mut self.stage
                    && let Some(input) = local.inputs.iter_mut().find(|i| i.rank == rank)
                {
                    input.waiting.extend_from_slice(bytes);
                    input.is_over |= bytes.is_empty();
                }
            }
            kind::CLOCK => {
                let asked = from.number()?;
                let mut answer = Writer::new(kind::CLOCK);
                let answer = answer.number(asked).number(clock::now_ns()).done();
                self.say(&answer);
            }
            kind::PLACES => {
                let number = Some(from.number()?);
                let asked = Asked::of_number(from.small()?);
                let ranks = (0..from.number()?).map(|_| from.small::<u32>());
                let ranks = ranks.collect::<Result<_, Broken>>()?;
                self.look(Question {
                    number,
                    asked,
                    ranks,
                });
            }
            kind::ANSWER => {
                let (number, answer) = (from.number()?, from.bytes()?);
                if let Some(asks) = &mut self.asks {
                    asks.answer(number, answer);
                }
            }
            kind::HUNG_UP => {
                let number = from.number()?;
                if let Some(asks) = &mut self.asks {
                    asks.hang_up(number);
                }
            }
            kind::ENDED => {
                if let Stage::Running(_, local) = &self.stage {
                    Ended::decode(body)?.enter(&local.segment);
                }
            }
            _ => self.obey_of_branch(kind, from)?,
        }
        Ok(())
    }

    /// Does what the relay says of a host that it reaches through this one.
    fn obey_of_branch(&mut self, kind: u8, mut from: Reader<'_>) -> Result<(), Broken> {
        match kind {
            kind::START => {
                let (number, host) = (from.number()?, from.text()?);
                let words = list(&mut from, word)?;
                if let Some(said) = self.branches.start(number, &host, &words) {
                    self.say(&said);
                }
            }
            kind::DOWN => self.branches.take(from.number()?, from.bytes()?),
            kind::CUT => self.branches.cut(from.number()?),
            kind::PASS_ON => {
                let number = from.number()?;
                self.branches
                    .pass_on(number, list(&mut from, |from| from.number())?);
            }
            _ => {}
        }
        Ok(())
    }

    fn pass_questions_on(&mut self) {
        let mut said = Vec::new();
        self.looks.turn(&mut said);
        if let Some(asks) = &mut self.asks {
            asks.turn(&mut said);
        }
        if let Some(records) = &mut self.records {
            records.turn(&mut said);
        }
        self.say_all(&said);
    }

    /// The guard of the ranks, once they have been started.
    fn guard(&self) -> Option<u32> {
        match &self.stage {
            Stage::Running(_, local) => Some(local.guard.pid()),
            _ => None,
        }
    }

    /// Kills all processes of this host.
    fn kill(&mut self) {
        match &mut self.stage {
            Stage::Running(_, local) => local.guard.tell(Command::Kill),
            _ => self.be_empty(),
        }
    }

    fn be_empty(&mut self) {
        self.stage = Stage::Empty;
        let empty = Writer::new(kind::EMPTY).done();
        self.say(&empty);
    }

    /// The relay is gone, or cannot be reached: so is the job.
    fn leave(&mut self) {
        if self.leave_by.is_none() {
            self.kill();
            self.branches.cut_all();
            self.queue.clear();
            if let Stage::Running(_, local) = &mut self.stage {
                for output in &mut local.outputs {
                    output.pipe = None;
                }
                local.part = None;
                self.records = None;
            }
            self.leave_by = Some(Instant::now() + KILL_LIMIT);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        // As in the relay.
        if now >= self.ticked + Duration::from_millis(wire::BEAT_MS) + wire::STOPPED {
            self.heard = now;
        }
        self.ticked = now;
        if now >= self.heard + Duration::from_millis(wire::SILENCE_MS) {
            self.leave();
        }
        if let Some(guard) = self.guard() {
            self.halt.sweep(guard);
        }
        if let Some(energy) = self.energy.as_mut().filter(|_| now >= self.energy_at) {
            energy.read();
            self.energy_at = now + READ_EVERY;
        }
        // However much the ranks print.
        if now >= self.reported + Duration::from_millis(wire::BEAT_MS) {
            self.reported = now;
            self.report_lost_links();
            self.report_doing();
        }
        if now >= self.said + Duration::from_millis(wire::BEAT_MS) {
            let beat = Writer::new(kind::BEAT).done();
            self.say(&beat);
        }
    }

    /// Tells the relay what the ranks do, as far as that has changed. While it takes little, only
    /// the last state counts.
    fn report_doing(&mut self) {
        if let Stage::Running(task, local) = &self.stage
            && self.queue.len() < READ_BYTES
        {
            let ranks = task.ranks.iter().map(|own| own.rank);
            if let Some(news) = self.reporter.news(&local.segment, ranks) {
                self.say(&news);
            }
        }
    }

    /// Tells which ranks cannot reach others any more.
    fn report_lost_links(&mut self) {
        if let Stage::Running(task, local) = &self.stage {
            for message in local.lost_links(task) {
                self.say(&message);
            }
        }
    }

    fn pass_on(&mut self, poll: &PollSet, places: &Places) {
        let Stage::Running(task, local) = &mut self.stage else {
            return;
        };
        let ready = |place: &Option<usize>| place.map(|at| poll.ready(at));
        let mut said = Vec::new();
        for (output, place) in local.outputs.iter_mut().zip(&places.outputs) {
            if ready(place).is_some_and(|r| r.readable) {
                read_output(output, &mut said, false);
            }
            drain(output, &mut said);
        }
        if let Some(part) = local
            .part
            .as_mut()
            .filter(|_| ready(&places.part).is_some_and(|r| r.readable))
        {
            read_part(part, &mut said);
        }
        for (input, place) in local.inputs.iter_mut().zip(&places.inputs) {
            let writable = ready(place).is_some_and(|r| r.writable);
            write_input(input, writable, &mut said);
        }
        let mut failed = None;
        if ready(&places.guard).is_some_and(|r| r.readable) {
            let (events, is_there) = local.guard.events();
            for event in events {
                match event {
                    Event::Failed { rank, step, errno } => {
                        let own = task.ranks.iter().find(|own| own.rank == rank);
                        let program = own.and_then(|own| task.job.programs.get(own.program));
                        let ranks = (rank, task.all.len() as u32);
                        failed = program.map(|p| setup::explain_start(p, ranks, step, errno));
                    }
                    Event::Ended { rank, status } => {
                        // Its last words first: the report of its end comes after them.
                        for output in local.outputs.iter_mut().filter(|o| o.rank == rank) {
                            output.drains = true;
                            drain(output, &mut said);
                        }
                        let registry = local.segment.registry();
                        let ends_well = registry.aborted().is_none() && status.success();
                        if !ends_well || registry.phase(rank) == Phase::Running {
                            self.looks.failed(&local.segment, rank);
                        }
                        for line in crash_lines(&local.segment, rank, status) {
                            said.extend(Writer::new(kind::SAID).bytes(line.as_bytes()).done());
                        }
                        said.extend(Ended::of(&local.segment, rank, status).encode());
                    }
                    Event::Empty => local.is_empty = true,
                    // A guard has none of these.
                    Event::Said { .. }
                    | Event::Drained { .. }
                    | Event::NoneLeft
                    | Event::Halted => {}
                }
            }
            if !is_there && !local.is_empty {
                // The guard was killed: its children are ours now.
                process::kill_descendants(&self.branches.shells(), KILL_LIMIT);
                let text = "the guard of its ranks was killed; the job has been ended";
                failed = Some(LaunchError {
                    message: text.into(),
                    status: 137,
                });
                local.is_empty = true;
            }
            if local.is_empty {
                let mut message = Writer::new(kind::NONE_LEFT);
                used::put(&mut message, &local.guard.bury(), self.energy.as_mut());
                said.extend(message.done());
            }
        }
        let mut is_over = false;
        if local.is_empty {
            // No process is left that could write: what is in the pipes is all.
            for output in &mut local.outputs {
                while read_output(output, &mut said, true) == Taken::Some {}
            }
            if let Some(part) = &mut local.part {
                part.recorder.end();
            }
            let is_recorded = local.part.as_ref().is_none_or(|part| part.pipe.is_none());
            // Their sockets are at their ends, but the relay may take no more now.
            let is_checked = self.records.as_mut().is_none_or(|records| {
                records.turn(&mut said);
                records.is_empty()
            });
            is_over = is_recorded
                && is_checked
                && self.looks.is_idle()
                && local.outputs.iter().all(|o| o.pipe.is_none());
        }
        self.say_all(&said);
        if let Some(error) = failed {
            self.fail(&error);
        }
        if is_over {
            self.be_empty();
        }
    }

    /// Has stacks or calls read.
    fn look(&mut self, question: Question) {
        if let Stage::Running(_, local) = &self.stage {
            self.looks.ask(&local.segment, question);
        }
    }

    fn write(&mut self) {
        match (&self.output).write(&self.queue) {
            Ok(n) => drop(self.queue.drain(..n)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.leave(),
        }
    }
}

/// Where a rank has crashed, if it has written that down.
fn crash_lines(segment: &Arc<Segment>, rank: u32, status: ExitStatus) -> Vec<String> {
    if status.signal().is_none() {
        return Vec::new();
    }
    let peers = SegmentPeers::of(segment);
    let crash = Crash::written_down(&[peers.identity(rank).pid], &*peers);
    crash.map_or_else(Vec::new, |crash| crash.lines(rank))
}
