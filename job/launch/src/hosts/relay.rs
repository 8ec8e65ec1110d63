//! The process between the launcher and the agents.
//!
//! It has the other ends of the ranks' pipes and speaks the guard's protocol with the launcher, so
//! that merging output, judging ends and waiting are the same code for one host and for several.
//! It starts the agents, tells each what the others need to know, and ends them all when the
//! launcher or one of them is gone.

mod answers;
mod branches;
mod losses;
mod parts;
mod plan;
mod records;
mod stacks;
mod streams;

use answers::Answers;
use branches::Starts;
use losses::LostLink;
use parts::Parts;
pub(crate) use plan::Plan;
use records::Records;
use streams::{Input, Output};

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_core_registry::hosts::{Host, Location};
use margay_job_registry::has_launchers;
use margay_net_shm::SegmentPeers;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::{self, Forked};
use margay_sys_os::signal::SignalSet;
use margay_sys_shm::segment::Segment;

use super::connection::{Connection, Heard, Stage};
use super::locations::encode_hosts;
use super::mirror::{Ended, Mirror};
use super::wire::{self, Reader, Writer, kind};
use crate::guard::{COMMAND_BYTES, Command, Event, Guard, command_of, encode};
use crate::sinks::RankOutput;
use crate::used::Account;

/// A remote shell has this much time to start its agent.
const START_LIMIT: Duration = Duration::from_secs(30);
const BEAT: Duration = Duration::from_millis(wire::BEAT_MS);
const SILENCE: Duration = Duration::from_millis(wire::SILENCE_MS);
/// Agents that were ordered to kill everything have this much time to say that nothing is left.
const KILL_LIMIT: Duration = Duration::from_secs(4);
const READ_BYTES: usize = 64 << 10;
/// From one try to connect to the checker to the next.
const RETRY: Duration = Duration::from_millis(10);

/// Forks the relay, which starts the agents. `launcher_side` are the launcher's values whose
/// descriptors the relay must not keep open.
pub(crate) fn start<T>(
    plan: Plan,
    (inputs, outputs): (Vec<Option<Arc<OwnedFd>>>, Vec<RankOutput>),
    segment: &Arc<Segment>,
    launcher_side: T,
) -> io::Result<(Guard, T)> {
    let (ours, its) = UnixStream::pair()?;
    process::become_subreaper()?;
    match process::fork()? {
        Forked::Child => {
            drop((ours, launcher_side));
            process::lead_session();
            process::set_name(c"margay-relay");
            SignalSet::all().block_exactly();
            let _ = process::become_subreaper();
            match Relay::new(plan, inputs, outputs, segment, its) {
                Ok(mut relay) => relay.serve(),
                Err((mut launcher, error)) => {
                    let text = format!("cannot talk to the hosts: {error}");
                    let said = Event::Said { text, status: 1 };
                    let _ = launcher.write_all(&encode(&said));
                    let _ = launcher.write_all(&encode(&Event::Empty));
                }
            }
            while !process::kill_descendants(&[], Duration::from_secs(1)) {}
            std::process::exit(0)
        }
        Forked::Parent(pid) => {
            ours.set_nonblocking(true)?;
            Ok((Guard::over(pid, ours, true), launcher_side))
        }
    }
}

// Fields: the connections to the launcher and the hosts, the streams between them, what is known of
// the ranks, and how far the job is.
struct Relay {
    launcher: UnixStream,
    /// How the agents are started.
    starts: Starts,
    hosts: Vec<Connection>,
    /// What the ranks of each host do.
    mirrors: Vec<Mirror>,
    host_of: Vec<u32>,
    outputs: HashMap<u64, Output>,
    inputs: Vec<Input>,
    /// What the ranks have asked for.
    answers: Answers,
    /// What their recorders write.
    parts: Option<Parts>,
    /// What the checker is to know of them.
    records: Records,
    account: Account,
    segment: Arc<Segment>,
    began: Instant,
    said: Instant,
    is_running: bool,
    /// The ranks of other hosts go on when a host is lost.
    is_tolerant: bool,
    /// The launcher wants the end: who has said nothing until then is given up.
    kill_by: Option<Instant>,
    /// Ranks that cannot reach others.
    lost: Vec<LostLink>,
    /// The hosts that have stopped their ranks, while that is not known of all.
    halting: Option<Vec<bool>>,
    /// The launcher knows that no process is left.
    is_empty: bool,
    /// The launcher knows that all is over, and may still ask about ranks.
    is_over: bool,
}

impl Relay {
    fn new(
        plan: Plan,
        inputs: Vec<Option<Arc<OwnedFd>>>,
        outputs: Vec<RankOutput>,
        segment: &Arc<Segment>,
        launcher: UnixStream,
    ) -> Result<Relay, (UnixStream, io::Error)> {
        let parts = (plan.parts.as_ref()).map(|pipe| Parts::new(pipe, plan.starts.names.len()));
        let ends = Relay::ends(&plan, inputs, outputs);
        match ends.and_then(|ends| Ok((ends, parts.transpose()?))) {
            Ok(((hosts, inputs, outputs), parts)) => Ok(Relay {
                launcher,
                parts,
                records: Records::new(),
                account: Account::of_job(),
                mirrors: hosts.iter().map(|_| Mirror::default()).collect(),
                hosts,
                is_tolerant: (plan.starts.tasks.iter()).any(|task| task.job.continue_on_failure),
                host_of: plan.host_of,
                starts: plan.starts,
                outputs,
                inputs,
                answers: Answers::new(plan.reach, SegmentPeers::of(segment).id()),
                segment: segment.clone(),
                began: Instant::now(),
                said: Instant::now(),
                is_running: false,
                kill_by: None,
                lost: Vec::new(),
                halting: None,
                is_empty: false,
                is_over: false,
            }),
            Err(error) => Err((launcher, error)),
        }
    }

    fn serve(&mut self) {
        let mut poll = PollSet::default();
        loop {
            self.send_programs();
            self.pass_down();
            poll.clear();
            let launcher = poll.add_readable(self.launcher.as_fd());
            let hosts: Vec<_> = self.hosts.iter().map(|h| h.register(&mut poll)).collect();
            let inputs: Vec<(u32, usize)> = (self.inputs.iter())
                .filter(|input| self.is_running && input.window > 0)
                .filter_map(|input| Some((input.rank, input.source.as_ref()?)))
                .map(|(rank, source)| (rank, poll.add_readable(source.as_fd())))
                .collect();
            let outputs: Vec<(u64, usize)> = (self.outputs.iter())
                .filter(|(_, output)| !output.waiting.is_empty())
                .filter_map(|(&at, output)| Some((at, output.pipe.as_ref()?)))
                .map(|(at, pipe)| (at, poll.add_writable(pipe.as_fd())))
                .collect();
            for descriptor in self.answers.descriptors() {
                poll.add_readable(descriptor);
            }
            for descriptor in self.answers.stacks.unread() {
                poll.add_writable(descriptor);
            }
            for descriptor in self.records.unread() {
                poll.add_writable(descriptor);
            }
            for descriptor in self.parts.iter().filter_map(Parts::descriptor) {
                poll.add_writable(descriptor);
            }
            if poll.wait(Some(self.time_to_wait())).is_err() {
                return;
            }
            if poll.ready(launcher).readable && !self.obey() {
                return match self.is_over {
                    true => {}
                    false => self.leave(),
                };
            }
            for (at, places) in hosts.into_iter().enumerate() {
                let heard = self.hosts[at].turn(&poll, places);
                self.hear(at, heard);
            }
            for (rank, place) in inputs {
                if poll.ready(place).readable {
                    self.read_input(rank);
                }
            }
            for (stream, place) in outputs {
                if poll.ready(place).writable {
                    self.write_output(stream);
                }
            }
            for (host, message) in self.answers.turn(&self.host_of) {
                self.hosts[host].say(&message);
            }
            for (host, message) in self.parts.iter_mut().flat_map(Parts::write) {
                self.hosts[host].say(&message);
            }
            for (host, message) in self.records.write() {
                self.hosts[host].say(&message);
            }
            self.tick();
        }
    }

    fn time_to_wait(&self) -> Duration {
        let beat = self.said + BEAT;
        let next = self.kill_by.map_or(beat, |at| at.min(beat));
        let time = next.saturating_duration_since(Instant::now());
        match self.records.must_retry() {
            true => time.min(RETRY),
            false => time,
        }
    }

    fn report(&mut self, event: &Event) {
        // A launcher that is gone is noticed when it is read from.
        let _ = self.launcher.write_all(&encode(event));
    }

    fn complain(&mut self, text: String, status: u8) {
        self.report(&Event::Said { text, status });
    }

    fn tell_all(&mut self, message: &[u8]) {
        for host in &mut self.hosts {
            host.say(message);
        }
    }

    /// Does what the launcher says. Returns false when it is gone.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; COMMAND_BYTES];
        if self.launcher.read_exact(&mut bytes).is_err() {
            return false;
        }
        match command_of(bytes) {
            Command::Signal(signal) => {
                let message = Writer::new(kind::SIGNAL).number(signal as u64).done();
                self.tell_all(&message);
            }
            Command::Kill => self.kill(),
            Command::Resume => {
                self.halting = None;
                let message = Writer::new(kind::HALT).number(0).done();
                self.tell_all(&message);
            }
            Command::Halt => {
                self.halting = Some(self.hosts.iter().map(|_| false).collect());
                let message = Writer::new(kind::HALT).number(1).done();
                self.tell_all(&message);
            }
        }
        true
    }

    fn kill(&mut self) {
        let message = Writer::new(kind::KILL).done();
        self.tell_all(&message);
        self.kill_by.get_or_insert(Instant::now() + KILL_LIMIT);
        for host in &mut self.hosts {
            if host.stage < Stage::Ready {
                // It has started nothing.
                host.give_up();
            }
        }
    }

    /// The launcher is gone: ends everything.
    fn leave(&mut self) {
        self.kill();
        let mut poll = PollSet::default();
        while self.hosts.iter().any(|h| h.stage < Stage::Draining)
            && self.kill_by.is_some_and(|at| Instant::now() < at)
        {
            self.pass_down();
            poll.clear();
            let places: Vec<_> = self.hosts.iter().map(|h| h.register(&mut poll)).collect();
            let _ = poll.wait(Some(Duration::from_millis(200)));
            for (at, places) in places.into_iter().enumerate() {
                let heard = self.hosts[at].turn(&poll, places);
                self.hear_of_the_end(at, heard);
            }
        }
    }

    /// Sees whether anything is left on a host, and nothing else.
    fn hear_of_the_end(&mut self, at: usize, heard: Heard) {
        let Heard::Messages(messages) = heard else {
            return self.hosts[at].give_up();
        };
        for (kind, body) in messages {
            match self.passed_up(at, kind, &body) {
                Ok(Some((child, heard))) => self.hear_of_the_end(child, heard),
                Ok(None) if kind == kind::NONE_LEFT || kind == kind::EMPTY => {
                    self.hosts[at].stage = Stage::Draining;
                }
                Ok(None) => {}
                Err(_) => self.hosts[at].give_up(),
            }
        }
    }

    fn hear(&mut self, at: usize, heard: Heard) {
        let messages = match heard {
            Heard::Messages(messages) => messages,
            Heard::End if self.hosts[at].stage >= Stage::Empty => {
                return self.hosts[at].give_up();
            }
            Heard::End if self.start_from_here(at) => return,
            Heard::End => {
                let text = self.hosts[at].why_it_ended();
                return self.lose(at, text);
            }
            Heard::Nonsense => {
                let host = &self.hosts[at].host;
                let text = format!(
                    "host {host}: the agent speaks another version; install the same Margay on all hosts"
                );
                return self.lose(at, text);
            }
        };
        for (kind, body) in messages {
            if self.take(at, kind, &body).is_err() {
                return self.hear(at, Heard::Nonsense);
            }
        }
    }

    fn take(&mut self, at: usize, kind: u8, body: &[u8]) -> Result<(), wire::Broken> {
        let mut from = Reader(body);
        match kind {
            kind::READY => {
                self.account.know(at, from.small()?);
                let host = &mut self.hosts[at];
                host.name = from.text()?;
                for _ in 0..from.number()? {
                    host.addresses.extend(from.text()?.parse::<IpAddr>().ok());
                }
                host.cores = from.number()?;
                for _ in 0..from.number()? {
                    host.ports.push(from.small()?);
                }
                host.stage = Stage::Ready;
                if let Some(parts) = &mut self.parts {
                    host.say(&parts.ask(at));
                }
                if self.hosts.iter().all(|h| h.stage == Stage::Ready) {
                    self.go()?;
                }
            }
            kind::OUTPUT => {
                let (stream, bytes) = (from.number()?, from.bytes()?);
                if let Some(output) = self.outputs.get_mut(&stream).filter(|o| o.host == at) {
                    output.waiting.extend_from_slice(bytes);
                    output.is_over |= bytes.is_empty();
                    self.write_output(stream);
                }
            }
            kind::DRAINED => {
                let stream = from.number()?;
                if let Some(output) = self.outputs.get_mut(&stream).filter(|o| o.host == at) {
                    output.drains = true;
                    self.write_output(stream);
                }
            }
            kind::NONE_LEFT => {
                self.account.add(at, &self.hosts[at].host, &mut from)?;
                self.hosts[at].stage = Stage::Draining;
                self.end_living(at);
            }
            kind::CREDIT => {
                let (rank, bytes) = (from.small::<u32>()?, from.small::<usize>()?);
                let own = |i: &&mut Input| i.rank == rank && i.host == at;
                if let Some(input) = self.inputs.iter_mut().find(own) {
                    input.window = (input.window + bytes).min(wire::WINDOW);
                }
            }
            kind::FAILED => {
                let (status, text) = (from.small()?, from.text()?);
                let host = &self.hosts[at].host;
                self.complain(format!("host {host}: {text}"), status);
            }
            kind::PART => {
                if let Some(parts) = &mut self.parts {
                    parts.take(at, from.bytes()?);
                }
            }
            kind::CLOCK => {
                if let Some(parts) = &mut self.parts
                    && let Some(question) = parts.answer(at, &mut from)?
                {
                    self.hosts[at].say(&question);
                }
            }
            kind::HALT => {
                if let Some(halted) = &mut self.halting {
                    halted[at] = true;
                }
            }
            kind::SAID => self.complain(from.text()?, 0),
            kind::ENDED => self.end_rank(at, Ended::decode(body)?),
            kind::DOING => {
                let is_own = |rank: u32| self.host_of.get(rank as usize) == Some(&(at as u32));
                self.mirrors[at].enter(&self.segment, body, is_own)?;
            }
            kind::LOST => {
                let (rank, to) = (from.small()?, from.small::<u32>()?);
                let errno = from.small::<u32>()?;
                self.note_lost(rank, to, errno as i32);
            }
            kind::ASK => {
                let (number, question) = (from.number()?, from.bytes()?);
                let names: Vec<String> = self.hosts.iter().map(|h| h.name.clone()).collect();
                let (outputs, host_of) = (&self.outputs, &self.host_of);
                let output_of = |rank: u32| {
                    let is_its = host_of.get(rank as usize) == Some(&(at as u32));
                    let of = |is_error| {
                        let output = outputs.get(&wire::stream(rank, is_error))?;
                        output.pipe.as_ref().filter(|_| is_its)?.for_others().ok()
                    };
                    let output = of(false);
                    [output, of(true).or_else(|| of(false))]
                };
                let said = (self.answers).ask((at, number), question, &names, output_of);
                self.hosts[at].say(&said);
            }
            kind::PLACES => self.answers.stacks.answer(at, from)?,
            kind::CALLS => self.answers.stacks.keep(from)?,
            kind::RECORDS => self.records.take(at, from)?,
            kind::HUNG_UP => self.answers.end((at, from.number()?)),
            kind::EMPTY => {
                self.answers.end_of_host(at);
                self.records.end_of_host(at);
                self.hosts[at].stage = Stage::Empty;
                self.close_if_all_is_over(at);
            }
            _ => {
                if let Some((child, heard)) = self.passed_up(at, kind, body)? {
                    self.hear(child, heard);
                }
            }
        }
        Ok(())
    }

    fn send_programs(&mut self) {
        for at in 0..self.hosts.len() {
            if let Err(text) = self.hosts[at].send_programs() {
                self.lose(at, text);
            }
        }
    }

    /// All hosts listen: their ranks may start.
    fn go(&mut self) -> Result<(), wire::Broken> {
        let hosts: Vec<Host> = (self.hosts.iter())
            .map(|host| Host {
                name: host.name.clone(),
                addresses: host.addresses.clone(),
                cores: host.cores,
            })
            .collect();
        let mut ports: Vec<_> = self.hosts.iter().map(|h| h.ports.iter()).collect();
        let mut locations = Vec::new();
        for &host in &self.host_of {
            let port = *ports[host as usize].next().ok_or(wire::Broken)?;
            locations.push(Location { host, port });
        }
        self.is_running = true;
        self.tell_all(&encode_hosts(&hosts, &locations));
        Ok(())
    }

    fn end_rank(&mut self, at: usize, ended: Ended) {
        if self.host_of.get(ended.rank as usize) != Some(&(at as u32)) {
            return;
        }
        self.mirrors[at].end(&self.segment, ended.rank);
        ended.enter(&self.segment);
        let message = ended.encode();
        for (other, host) in self.hosts.iter_mut().enumerate() {
            if other != at {
                host.say(&message);
            }
        }
        self.inputs.retain(|input| input.rank != ended.rank);
        self.lost.retain(|link| !link.is_of(ended.rank));
        self.report(&Event::Ended {
            rank: ended.rank,
            status: ended.status,
        });
    }

    /// Reaps launchers of spawned jobs, which are orphans, and remote shells that have ended.
    fn reap(&mut self) {
        while let Some(pid) = process::unreaped_child() {
            if !self.hosts.iter_mut().any(|host| host.reap(pid)) {
                let _ = process::reap_one(pid);
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        // It beats more often. When it was stopped for the turn of another job, so was who would
        // have been heard meanwhile.
        if now >= self.said + BEAT + wire::STOPPED {
            self.began = now;
        }
        if now >= self.said + BEAT {
            self.said = now;
            let beat = Writer::new(kind::BEAT).done();
            self.tell_all(&beat);
            if let Some(parts) = &mut self.parts {
                for (at, host) in self.hosts.iter_mut().enumerate() {
                    host.say(&parts.ask(at));
                }
            }
            self.reap();
        }
        self.start_what_takes_long();
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let limit = match host.stage {
                Stage::Starting => START_LIMIT,
                Stage::Empty | Stage::Gone => continue,
                // The one through which it is heard is judged first.
                _ if host.parent().is_some() => 2 * BEAT + SILENCE,
                _ => SILENCE,
            };
            if now >= host.heard.max(self.began) + limit {
                let text = host.why_it_is_silent();
                self.lose(at, text);
            }
        }
        let hosts = self.hosts.iter().zip(self.halting.iter().flatten());
        let mut hosts = hosts.map(|(host, halted)| *halted || host.stage >= Stage::Draining);
        if self.halting.is_some() && hosts.all(|halted| halted) {
            self.halting = None;
            self.report(&Event::Halted);
        }
        while let Some(at) = self.lost.iter().position(|link| now >= link.until) {
            self.judge_lost_link(at);
        }
        if self.kill_by.is_some_and(|at| now >= at) {
            for host in self.hosts.iter_mut().filter(|h| h.stage < Stage::Draining) {
                host.give_up();
            }
        }
        // Jobs that the ranks spawned go on without them.
        if self.hosts.iter().all(|h| h.stage >= Stage::Draining)
            && self.kill_by.is_none()
            && has_launchers(&[])
        {
            return;
        }
        if !self.is_empty && self.hosts.iter().all(|h| h.stage >= Stage::Draining) {
            self.is_empty = true;
            self.report(&Event::NoneLeft);
        }
        if !self.is_over && self.hosts.iter().all(|h| h.stage >= Stage::Empty) {
            for output in self.outputs.values_mut() {
                output.is_over = true;
            }
            self.flush_outputs();
            let is_recorded = self.parts.as_ref().is_none_or(Parts::is_empty);
            let is_passed = is_recorded && self.records.is_empty();
            if is_passed && self.outputs.values().all(|o| o.pipe.is_none()) {
                self.report(&Event::Empty);
                self.is_over = true;
            }
        }
    }
}
