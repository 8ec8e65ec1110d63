//! Running a job: one thread, one loop, which waits for everything at once.

mod keeper;
mod looks;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_core_registry::Phase;
use margay_job_registry::has_launchers;
use margay_net_platform::Peers;
use margay_net_shm::SegmentPeers;
use margay_sys_os::descriptor::{PollSet, Wrote};
use margay_sys_os::signal::{self, Received};
use margay_sys_os::{cpu, process};

use looks::Looks;

use crate::guard::{Command, Event, Guard};
use crate::ordered::Ordered;
use crate::output::StreamId;
use crate::plan::{Job, LaunchError};
use crate::recorder::Recorder;
use crate::report;
use crate::setup::{self, Own, Started};
use crate::sinks::Stream;
use crate::spawned::Spawner;
use crate::turns::Turns;
use crate::verdict::Verdict;

/// After a failure the other ranks get SIGTERM, and SIGKILL after this time.
const FAILURE_GRACE: Duration = Duration::from_millis(500);
/// After the user's SIGINT, SIGTERM or SIGQUIT the ranks have this much time to end.
const USER_GRACE: Duration = Duration::from_secs(3);
/// After the terminal has gone.
const HANGUP_GRACE: Duration = Duration::from_secs(1);
/// How long processes that ranks have left running may go on writing after the last rank's end.
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// After SIGKILL: how long to wait for processes that the kernel cannot end (broken file server).
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// When the job was ended from outside and nobody takes its output, it is given up after this.
const MOST_DRAIN: Duration = Duration::from_secs(3);
/// The same signal within this time is one: `timeout` and shells signal a process and its group.
const SAME_SIGNAL: Duration = Duration::from_millis(100);
/// Memory of this size comes from the kernel as zeros, and no page is touched before it is used.
const READ_BYTES: usize = 128 << 10;

/// Runs a job to its end; returns the exit status. `spawner` is the program that spawns it, if one
/// does, and `turns` what a job in a partition has got.
///
/// # Errors
/// When the job cannot be started at all. Later errors are reported on standard error and in the
/// exit status.
pub fn run(job: &Job, spawner: Option<Spawner>, turns: Option<Turns>) -> Result<u8, LaunchError> {
    let started = match setup::start(job, spawner.as_ref().map(Spawner::port), turns) {
        Err(error) if spawner.as_ref().is_some_and(|s| s.tell(&error.message)) => {
            return Ok(error.status);
        }
        started => started?,
    };
    let mut launcher = Launcher::new(job, started);
    launcher.spawner = spawner;
    launcher.serve();
    if let Some(recorder) = launcher.recorder.take() {
        recorder.finish(&job.launcher);
    }
    Ok(launcher.verdict.status())
}

struct Launcher<'a> {
    job: &'a Job,
    peers: Arc<dyn Peers>,
    guard: Guard,
    own: Own,
    verdict: Verdict,
    /// The program that spawns this job.
    spawner: Option<Spawner>,
    /// Children that the launcher's process had before it became a launcher (by `exec` in a shell).
    foreign: Vec<u32>,
    recorder: Option<Recorder>,
    alive: u32,
    /// No process of the job is left.
    empty: bool,
    ending: Ending,
    timeout_at: Option<Instant>,
    looks: Looks,
    last_signal: Option<(i32, Instant)>,
    buffer: Vec<u8>,
}

/// How far the end of the job has come.
#[derive(Default)]
struct Ending {
    /// No process of the job is left, and nothing is on its way: what streams do not hold now will
    /// not come.
    complete: bool,
    /// The ranks have ended; what they left running has time until `kill_at`.
    lingers: bool,
    /// When everything is killed.
    kill_at: Option<Instant>,
    killed: bool,
    /// Ended by a signal to the launcher or by the time limit.
    from_outside: bool,
    /// When output that nobody takes is given up.
    drain_until: Option<Instant>,
}

impl<'a> Launcher<'a> {
    fn new(job: &'a Job, started: Started) -> Launcher<'a> {
        Launcher {
            job,
            alive: started.segment.ranks(),
            peers: SegmentPeers::of(&started.segment),
            guard: started.guard,
            own: started.own,
            verdict: if job.continue_on_failure {
                Verdict::tolerant()
            } else {
                Verdict::default()
            }
            .with_codes_of_poe(job.launcher == "poe"),
            spawner: None,
            foreign: started.foreign,
            recorder: started.recorder,
            empty: false,
            ending: Ending::default(),
            timeout_at: job.timeout.map(|limit| started.at + limit.time),
            looks: Looks::new(job, started.at, started.segment.ranks()),
            last_signal: None,
            buffer: vec![0; READ_BYTES],
        }
    }

    fn serve(&mut self) {
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            let signals = poll.add_readable(self.own.signals.as_fd());
            let guard = (!self.ending.complete).then(|| poll.add_readable(self.guard.as_fd()));
            let (pump, background) = match &self.own.pump {
                Some(pump) => pump.register(&mut poll),
                None => Default::default(),
            };
            let kept = self.own.turns.as_ref().and_then(Turns::descriptor);
            let kept = kept.map(|keeper| poll.add_readable(keeper));
            let first_stream = self.register_streams(&mut poll);
            let sinks: Vec<Option<usize>> = self
                .own
                .sinks
                .iter()
                .map(|s| {
                    let waits = !s.merger.pending().is_empty();
                    waits.then(|| poll.add_writable(s.outlet.as_fd()))
                })
                .collect();
            if let Err(error) = self.wait(&mut poll, self.time_to_wait(background)) {
                self.complain(&format!("cannot wait for the job: {error}"), 1);
                self.kill();
            }

            if poll.ready(signals).readable {
                while let Some(received) = self.own.signals.take() {
                    self.on_signal(received);
                }
            }
            if kept.is_some_and(|at| poll.ready(at).readable || poll.ready(at).hung_up) {
                self.on_keeper();
            }
            if let Some(pump_now) = &mut self.own.pump {
                pump_now.turn(&poll, &pump);
            }
            for (index, place) in first_stream.into_iter().enumerate() {
                if place.is_some_and(|at| poll.ready(at).readable) || self.own.streams[index].flush
                {
                    self.read(index);
                }
            }
            // After the streams, so that a rank's last words come before the report of its end.
            if guard.is_some_and(|at| poll.ready(at).readable) {
                self.on_guard();
            }
            self.keep_order();
            self.tick();
            self.write(&sinks, &poll);
            if self.is_over() {
                return;
            }
        }
    }

    /// Adds the streams that may be read now; returns their places.
    fn register_streams(&self, poll: &mut PollSet) -> Vec<Option<usize>> {
        self.own
            .streams
            .iter()
            .map(|s| {
                let pipe = s.pipe.as_ref().filter(|_| self.accepts(s))?;
                Some(poll.add_readable(pipe.as_fd()))
            })
            .collect()
    }

    fn accepts(&self, stream: &Stream) -> bool {
        let spools = |ordered: &Ordered| stream.is_output && ordered.spools(stream.rank);
        self.own.ordered.as_ref().is_some_and(spools) || self.sink_accepts(stream)
    }

    fn sink_accepts(&self, stream: &Stream) -> bool {
        let accepts = |(sink, id): (usize, StreamId)| {
            let sink = &self.own.sinks[sink];
            sink.closed || sink.merger.accepts(id)
        };
        accepts((stream.sink, stream.id)) && stream.copy.is_none_or(accepts)
    }

    fn time_to_wait(&self, background: bool) -> Option<Duration> {
        let now = Instant::now();
        let flush_now = self
            .own
            .streams
            .iter()
            .any(|s| s.flush && s.pipe.is_some() && self.accepts(s));
        let next_in_order = self.own.ordered.as_ref().is_some_and(|ordered| {
            let current = |s: &&Stream| s.is_output && s.rank == ordered.current();
            ordered.is_due()
                && self
                    .own
                    .streams
                    .iter()
                    .find(current)
                    .is_some_and(|s| self.sink_accepts(s))
        });
        let soon = background.then(|| now + Duration::from_millis(500));
        let mergers = self.own.sinks.iter().map(|s| s.merger.deadline());
        mergers
            .chain([
                self.ending.kill_at,
                self.timeout_at.filter(|_| !self.is_out()),
                self.looks.next().filter(|_| !self.is_out()),
                self.ending
                    .drain_until
                    .filter(|_| !self.own.sinks.iter().all(|s| s.closed)),
                soon,
                self.next_tick(now),
                (flush_now || next_in_order).then_some(now),
            ])
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    fn on_signal(&mut self, received: Received) {
        let signal = received.signal;
        let now = Instant::now();
        let again = self
            .last_signal
            .is_some_and(|(s, at)| s == signal && now < at + SAME_SIGNAL);
        match signal {
            signal::SIGINT | signal::SIGTERM | signal::SIGQUIT | signal::SIGHUP => {
                if again {
                    return;
                }
                self.last_signal = Some((signal, now));
                if self.empty {
                    // Only output is left, and nobody seems to take it.
                    self.verdict.signal_passed(signal);
                    self.verdict.end(0);
                    self.ending.drain_until = Some(now);
                } else if self.verdict.passed().is_some() && signal != signal::SIGHUP {
                    self.kill();
                } else {
                    if signal != signal::SIGHUP {
                        // The user may have interrupted it because of that.
                        self.report_deadlock();
                    }
                    self.verdict.signal_passed(signal);
                    self.ending.from_outside = true;
                    self.guard.tell(Command::Signal(signal));
                    // A stopped rank could not obey.
                    self.guard.tell(Command::Signal(signal::SIGCONT));
                    let grace = if signal == signal::SIGHUP {
                        HANGUP_GRACE
                    } else {
                        USER_GRACE
                    };
                    self.ending.lingers = false;
                    self.kill_by(now + grace);
                }
            }
            signal::SIGTSTP => {
                if let Some(turns) = &self.own.turns {
                    turns.hold(true);
                }
                self.guard.tell(Command::Signal(signal));
                signal::stop_self();
                match &self.own.turns {
                    // It continues what runs now.
                    Some(turns) if turns.descriptor().is_some() => turns.hold(false),
                    _ => self.guard.tell(Command::Signal(signal::SIGCONT)),
                }
            }
            _ => self.pass_on(received),
        }
    }

    fn on_guard(&mut self) {
        let (events, alive) = self.guard.events();
        for event in events {
            match event {
                Event::Failed { rank, step, errno } => {
                    let counts = self.job.counts(cpu::usable_cores()).unwrap_or_default();
                    let programs = self.job.programs.iter().zip(&counts);
                    let mut of_rank =
                        programs.flat_map(|(p, &n)| std::iter::repeat_n(p, n as usize));
                    let Some(program) = of_rank.nth(rank as usize) else {
                        continue;
                    };
                    let ranks = (rank, self.peers.size());
                    let error = setup::explain_start(program, ranks, step, errno);
                    if (self.spawner.as_ref()).is_some_and(|s| s.tell(&error.message)) {
                        self.verdict.end(error.status);
                    } else {
                        self.complain(&error.message, error.status);
                    }
                    self.kill();
                }
                Event::Ended { rank, status } => {
                    self.alive = self.alive.saturating_sub(1);
                    if !self.guard.relays() {
                        self.last_words(rank, None);
                    }
                    if let Some(pump) = &mut self.own.pump {
                        pump.rank_ended(rank);
                    }
                    let phase = self.peers.phase(rank);
                    let aborted = self.peers.aborted();
                    if phase == Phase::Starting && status.success() && self.peers.size() > 1 {
                        self.looks.somebody_left();
                    }
                    if let Some(failure) = self.verdict.rank_ended(rank, status, phase, aborted) {
                        let ends = self.verdict.ends(&failure);
                        let text = report::failure(self.job, failure, ends, &*self.peers);
                        self.say(&text);
                        if ends {
                            self.end();
                        }
                    }
                    if self.alive == 0 {
                        self.ending.lingers = self.ending.kill_at.is_none();
                        self.kill_by(Instant::now() + LEFTOVER_GRACE);
                    }
                }
                // The job goes on.
                Event::Said { text, status: 0 } => {
                    let text = format!("{}: {text}", self.job.launcher);
                    self.say(&text);
                }
                Event::Said { text, status } => {
                    // What an earlier failure has brought about is no news.
                    if self.verdict.is_ending() {
                    } else if (self.spawner.as_ref()).is_some_and(|s| s.tell(&text)) {
                        self.verdict.end(status);
                    } else {
                        self.complain(&text, status);
                    }
                    self.end();
                }
                Event::Drained { rank, is_error } => self.last_words(rank, Some(!is_error)),
                Event::NoneLeft => self.none_left(),
                Event::Halted => self.on_halted(),
                Event::Empty => {
                    self.none_left();
                    self.ending.complete = true;
                }
            }
        }
        if !alive && !self.ending.complete {
            self.without_guard();
        }
        if self.ending.complete {
            self.guard.bury();
            for stream in &mut self.own.streams {
                stream.flush = true;
            }
        }
    }

    fn none_left(&mut self) {
        if !self.empty {
            self.empty = true;
            self.ending.kill_at = None;
            self.timeout_at = None;
            self.looks.stop();
            if self.ending.from_outside {
                self.ending.drain_until = Some(Instant::now() + MOST_DRAIN);
            }
        }
    }

    /// The guard was killed: its children are ours now.
    fn without_guard(&mut self) {
        let gone = process::kill_descendants(&self.foreign, KILL_LIMIT);
        let pid = self.guard.pid();
        let rest = if gone {
            ""
        } else {
            ", but some processes do not end"
        };
        self.complain(
            &format!("the job's guard (pid {pid}) was killed; the job has been ended{rest}"),
            137,
        );
        self.none_left();
        self.ending.complete = true;
    }

    /// Reads what a rank wrote before it ended, to standard output or not if only one is meant, and
    /// lets its last line out.
    fn last_words(&mut self, rank: u32, output: Option<bool>) {
        for index in 0..self.own.streams.len() {
            let stream = &mut self.own.streams[index];
            if stream.rank == rank && output.is_none_or(|output| stream.is_output == output) {
                stream.flush = true;
                self.read(index);
            }
        }
    }

    fn read(&mut self, index: usize) {
        loop {
            let stream = &self.own.streams[index];
            if !self.accepts(stream) {
                return;
            }
            let flush = stream.flush;
            let Some(mut pipe) = stream.pipe.as_ref() else {
                return;
            };
            match pipe.read(&mut self.buffer) {
                Ok(0) => {
                    self.own.streams[index].pipe = None;
                    self.own.streams[index].flush = false;
                    self.stream_ended(index);
                    return;
                }
                Ok(n) => {
                    self.deliver(index, n);
                    if !flush {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    if flush {
                        self.own.streams[index].flush = false;
                        self.stream_ended(index);
                        if self.ending.complete {
                            self.own.streams[index].pipe = None;
                        }
                    }
                    return;
                }
            }
        }
    }

    fn deliver(&mut self, index: usize, bytes: usize) {
        let stream = &self.own.streams[index];
        let (sink, id, rank) = (stream.sink, stream.id, stream.rank);
        let copy = stream.copy;
        let bytes = &self.buffer[..bytes];
        if let Some((file, id)) = copy {
            self.own.sinks[file].push(id, bytes);
        }
        if stream.is_output
            && let Some(ordered) = &mut self.own.ordered
            && ordered.spools(rank)
        {
            if let Err(error) = ordered.keep(rank, bytes) {
                let text = format!(
                    "-output ordered: cannot keep the output of rank {rank} for later: {error}; set \
                     TMPDIR to a folder with room, or use -output label"
                );
                self.complain(&text, 1);
                self.kill();
            }
            return;
        }
        self.own.sinks[sink].push(id, bytes);
    }

    fn stream_ended(&mut self, index: usize) {
        let stream = &self.own.streams[index];
        if let Some((file, id)) = stream.copy {
            self.own.sinks[file].merger.end(id, Instant::now());
        }
        if stream.is_output
            && let Some(ordered) = &mut self.own.ordered
        {
            ordered.end(stream.rank);
            return;
        }
        let (sink, id) = (stream.sink, stream.id);
        self.own.sinks[sink].merger.end(id, Instant::now());
    }

    /// Lets out of the kept output what has its turn.
    fn keep_order(&mut self) {
        let Some(mut ordered) = self.own.ordered.take() else {
            return;
        };
        let now = Instant::now();
        loop {
            let rank = ordered.current();
            let stream = self
                .own
                .streams
                .iter()
                .find(|s| s.is_output && s.rank == rank);
            let Some(stream) = stream else {
                break;
            };
            if !self.sink_accepts(stream) {
                break;
            }
            let sink = &mut self.own.sinks[stream.sink];
            match ordered.take(&mut self.buffer) {
                Ok(0) => {
                    if !ordered.advance() {
                        break;
                    }
                    sink.merger.end(stream.id, now);
                }
                Ok(n) => sink.push(stream.id, &self.buffer[..n]),
                Err(error) => {
                    let text = format!("cannot read the kept output of rank {rank}: {error}");
                    self.complain(&text, 1);
                    self.kill();
                    break;
                }
            }
        }
        self.own.ordered = Some(ordered);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for sink in &mut self.own.sinks {
            sink.merger.tick(now);
        }
        if self.timeout_at.is_some_and(|at| now >= at) && !self.is_out() {
            self.timeout_at = None;
            let text = report::timeout(self.job, &*self.peers);
            self.say(&text);
            self.verdict.end(124);
            self.ending.from_outside = true;
            self.end();
        }
        if !self.is_out() {
            self.look(now);
        }
        if self.ending.drain_until.is_some_and(|at| now >= at) {
            for sink in &mut self.own.sinks {
                sink.closed = true;
            }
        }
        if self.ending.kill_at.is_some_and(|at| now >= at) {
            if self.ending.lingers && !self.ending.killed && has_launchers(&self.foreign) {
                // Jobs that the ranks spawned go on without them.
                self.ending.kill_at = Some(now + LEFTOVER_GRACE);
            } else if self.ending.killed {
                let left: Vec<String> = (0..self.peers.size())
                    .filter(|&r| !self.peers.has_exited(r))
                    .map(|r| self.peers.identity(r).pid.to_string())
                    .collect();
                self.complain(
                    &format!(
                        "processes do not end although they were killed (pids {}); the kernel \
                         waits for a device or file server",
                        left.join(" ")
                    ),
                    1,
                );
                self.none_left();
                self.ending.complete = true;
                for stream in &mut self.own.streams {
                    stream.flush = true;
                }
            } else {
                self.kill();
            }
        }
    }

    fn write(&mut self, places: &[Option<usize>], poll: &PollSet) {
        for (index, place) in places.iter().enumerate() {
            let sink = &mut self.own.sinks[index];
            // What waited before this turn waits until the sink is ready.
            if place.is_some_and(|at| !poll.ready(at).writable) {
                continue;
            }
            while !sink.closed && !sink.merger.pending().is_empty() {
                match sink.outlet.write(sink.merger.pending()) {
                    Wrote::Some(n) => sink.merger.consume(n),
                    Wrote::Later => break,
                    Wrote::Closed => {
                        sink.closed = true;
                        if sink.is_output {
                            // As if each rank had written to the closed pipe itself.
                            self.verdict.end(128 + signal::SIGPIPE as u8);
                            self.end();
                        }
                        break;
                    }
                    Wrote::Failed(error) => {
                        sink.closed = true;
                        let place = match &sink.file {
                            Some(file) => format!(" to '{}'", file.display()),
                            None => String::new(),
                        };
                        self.complain(
                            &format!(
                                "cannot write the job's output{place}: {error}; make room where it goes, or send it elsewhere"
                            ),
                            1,
                        );
                        self.end();
                        break;
                    }
                }
            }
            let sink = &mut self.own.sinks[index];
            if sink.closed {
                sink.merger.discard();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ending.complete
            && self.own.streams.iter().all(|s| s.pipe.is_none())
            && self
                .own
                .ordered
                .as_ref()
                .is_none_or(|o| o.is_over() || self.own.sinks[0].closed)
            && self
                .own
                .sinks
                .iter()
                .all(|s| s.closed || s.merger.pending().is_empty())
    }

    /// Ends the ranks: SIGTERM, then SIGKILL.
    fn end(&mut self) {
        self.ending.lingers = false;
        if self.empty || self.ending.killed {
            return;
        }
        self.guard.tell(Command::Signal(signal::SIGTERM));
        self.guard.tell(Command::Signal(signal::SIGCONT));
        self.kill_by(Instant::now() + FAILURE_GRACE);
    }

    fn kill_by(&mut self, at: Instant) {
        if !self.ending.killed && !self.empty {
            self.ending.kill_at = Some(self.ending.kill_at.map_or(at, |former| former.min(at)));
        }
    }

    fn kill(&mut self) {
        if self.ending.killed || self.empty {
            return;
        }
        self.ending.killed = true;
        if self.alive > 0 {
            self.verdict.end(1);
        }
        self.guard.tell(Command::Kill);
        self.ending.kill_at = Some(Instant::now() + KILL_LIMIT);
    }

    /// An error of the launcher's own: one line, and the status if nothing failed before.
    fn complain(&mut self, text: &str, status: u8) {
        self.verdict.end(status);
        let line = format!("{}: {text}\n", self.job.launcher);
        self.say(&line);
    }

    fn say(&mut self, text: &str) {
        let sinks = &mut self.own.sinks;
        if let Some(sink) = sinks.iter_mut().rfind(|sink| sink.file.is_none())
            && !sink.closed
        {
            sink.merger.message(text, Instant::now());
        }
    }
}
