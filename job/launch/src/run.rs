//! Running a job: one thread, one loop, which waits for everything at once.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use margay_sys::cpu;
use margay_sys::descriptor::{
    FileLimit, Outlet, PollSet, Wrote, duplicate_above, set_nonblocking, set_pipe_bytes,
};
use margay_sys::process::{self, Step, StringArray};
use margay_sys::segment::{Segment, Sizes};
use margay_sys::signal::{self, Received, SignalFd, SignalSet};

use crate::binding::{Cores, Lease, Placement, place, ranges};
use crate::environment;
use crate::guard::{self, Command, Event, Guard, Plan, ProgramStart, RankStart};
use crate::input::{self, Pump};
use crate::ordered::Ordered;
use crate::output::{Merger, StreamId};
use crate::plan::{Job, LaunchError, Output, StdinTo};
use crate::program;
use crate::report;
use crate::verdict::Verdict;

/// After a failure the other ranks get SIGTERM, and SIGKILL so much later.
const FAILURE_GRACE: Duration = Duration::from_millis(500);
/// After the user's SIGINT, SIGTERM or SIGQUIT the ranks have so much time to end.
const USER_GRACE: Duration = Duration::from_secs(3);
/// After the terminal has gone.
const HANGUP_GRACE: Duration = Duration::from_secs(1);
/// What ranks have left running may finish writing for so long after the last rank's end.
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// After SIGKILL: how long to wait for processes that the kernel cannot end (broken file server).
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// The same signal again within this time is the same one: `timeout` and some shells signal both
/// the process and its group.
const SAME_SIGNAL: Duration = Duration::from_millis(100);
/// A part of a line is shown after this silence, on a terminal and elsewhere.
const PROMPT_TERMINAL: Duration = Duration::from_millis(50);
const PROMPT_PIPE: Duration = Duration::from_millis(500);
/// Pipe buffers: large for few ranks, the kernel's own size for many.
const PIPE_BYTES: i32 = 256 << 10;
const MANY_RANKS: u32 = 32;
/// The segment's descriptor in the ranks: above those that shell scripts use.
const SEGMENT_FD: i32 = 100;
const READ_BYTES: usize = 64 << 10;

/// Runs a job to its end; returns the exit status.
///
/// # Errors
/// When the job cannot be started at all. What goes wrong later is told on standard error and in
/// the exit status.
pub fn run(job: &Job) -> Result<u8, LaunchError> {
    let mut launcher = Launcher::start(job)?;
    launcher.serve();
    Ok(launcher.verdict.status())
}

struct Launcher<'a> {
    job: &'a Job,
    segment: Segment,
    guard: Guard,
    own: Own,
    verdict: Verdict,
    /// Children that the launcher's process had before it became a launcher (by `exec` in a shell).
    foreign: Vec<u32>,
    alive: u32,
    /// No process of the job is left.
    empty: bool,
    /// When everything is killed.
    kill_at: Option<Instant>,
    killed: bool,
    timeout_at: Option<Instant>,
    last_signal: Option<(i32, Instant)>,
    buffer: Vec<u8>,
}

/// What the launcher holds and the guard must not.
struct Own {
    signals: SignalFd,
    sinks: Vec<Sink>,
    streams: Vec<Stream>,
    pump: Option<Pump>,
    ordered: Option<Ordered>,
    _leases: Vec<Lease>,
}

struct Sink {
    merger: Merger,
    outlet: Outlet,
    closed: bool,
    /// This is (also) standard output.
    is_output: bool,
}

struct Stream {
    /// None after its end.
    pipe: Option<File>,
    rank: u32,
    sink: usize,
    id: StreamId,
    /// Standard output, where it is told apart.
    is_output: bool,
    /// The rank has ended: read what is there without waiting, then flush its last line.
    flush: bool,
}

impl<'a> Launcher<'a> {
    fn start(job: &'a Job) -> Result<Launcher<'a>, LaunchError> {
        let usable = cpu::usable_cores();
        let counts = job.counts(usable)?;
        let ranks: u32 = counts.iter().sum();
        let files = FileLimit::now();
        files.raise_to(u64::from(ranks) * 6 + 64);
        let foreign = process::children();

        let cores = Cores {
            mask: cpu::affinity(),
            usable,
        };
        let placement = place(ranks, &job.binding, &cores, Lease::take)?;
        let segment = Segment::create(Sizes::for_job(ranks))
            .map_err(|e| LaunchError::system(format!("{e}; the job has {ranks} ranks")))?;
        let pid = std::process::id();
        segment
            .header()
            .describe(u64::from(pid), pid, usable as u32, &job.command_line());
        let segment_fd = duplicate_above(segment.fd(), SEGMENT_FD)
            .or_else(|_| segment.fd().try_clone_to_owned())
            .map_err(|e| descriptors(ranks, &e))?;
        let programs = programs(job, &segment_fd, ranks)?;

        let asked = wanted_signals();
        let blocked = asked.block();
        let signals = SignalFd::new(&asked).map_err(|e| descriptors(ranks, &e))?;
        let input::Inputs {
            ranks: inputs,
            pump,
        } = input::inputs(job.stdin, ranks).map_err(|e| descriptors(ranks, &e))?;
        let mut sinks = sinks(job).map_err(|e| descriptors(ranks, &e))?;
        let (streams, outputs) =
            streams(job, ranks, &mut sinks).map_err(|e| descriptors(ranks, &e))?;
        if job.report_bindings {
            report_bindings(job, &placement, &mut sinks);
        }

        let program_of = counts
            .iter()
            .enumerate()
            .flat_map(|(program, &n)| std::iter::repeat_n(program, n as usize));
        let starts = program_of
            .zip(inputs)
            .zip(outputs)
            .zip(placement.cores)
            .map(|(((program, stdin), output), cores)| RankStart {
                program,
                stdin,
                output,
                cores,
            })
            .collect();
        let plan = Plan {
            programs,
            ranks: starts,
            segment_fd,
            files,
            blocked,
        };
        let own = Own {
            signals,
            sinks,
            streams,
            pump,
            ordered: (job.output == Output::Ordered).then(|| Ordered::new(ranks)),
            _leases: placement.leases,
        };
        let now = Instant::now();
        let (guard, own) = guard::start(plan, &segment, own)
            .map_err(|e| LaunchError::system(format!("cannot start the job's guard: {e}")))?;
        Ok(Launcher {
            job,
            segment,
            guard,
            own,
            verdict: Verdict::default(),
            foreign,
            alive: ranks,
            empty: false,
            kill_at: None,
            killed: false,
            timeout_at: job.timeout.map(|t| now + t),
            last_signal: None,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn serve(&mut self) {
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            let signals = poll.add_readable(self.own.signals.as_fd());
            let guard = (!self.empty).then(|| poll.add_readable(self.guard.as_fd()));
            let (pump, background) = match &self.own.pump {
                Some(pump) => pump.register(&mut poll),
                None => Default::default(),
            };
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
            let timeout = self.time_to_wait(background);
            if let Err(error) = poll.wait(timeout) {
                self.complain(&format!("cannot wait for the job: {error}"), 1);
                self.kill();
            }

            if poll.ready(signals).readable {
                while let Some(received) = self.own.signals.take() {
                    self.on_signal(received);
                }
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
        let sink = &self.own.sinks[stream.sink];
        if stream.is_output
            && let Some(ordered) = &self.own.ordered
            && ordered.spools(stream.rank)
        {
            return true;
        }
        sink.closed || sink.merger.accepts(stream.id)
    }

    fn time_to_wait(&self, background: bool) -> Option<Duration> {
        let now = Instant::now();
        let flush_now = self
            .own
            .streams
            .iter()
            .any(|s| s.flush && s.pipe.is_some() && self.accepts(s));
        let soon = background.then(|| now + Duration::from_millis(500));
        let mergers = self.own.sinks.iter().map(|s| s.merger.deadline());
        mergers
            .chain([
                self.kill_at,
                self.timeout_at,
                soon,
                flush_now.then_some(now),
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
                    for sink in &mut self.own.sinks {
                        sink.closed = true;
                    }
                } else if self.verdict.passed().is_some() && signal != signal::SIGHUP {
                    self.kill();
                } else {
                    self.verdict.signal_passed(signal);
                    self.guard.tell(Command::Signal(signal));
                    // A stopped rank could not obey.
                    self.guard.tell(Command::Signal(signal::SIGCONT));
                    let grace = if signal == signal::SIGHUP {
                        HANGUP_GRACE
                    } else {
                        USER_GRACE
                    };
                    self.kill_by(now + grace);
                }
            }
            signal::SIGTSTP => {
                self.guard.tell(Command::Signal(signal));
                signal::stop_self();
                self.guard.tell(Command::Signal(signal::SIGCONT));
            }
            other => self.guard.tell(Command::Signal(other)),
        }
    }

    fn on_guard(&mut self) {
        let (events, alive) = self.guard.events();
        for event in events {
            match event {
                Event::Failed { rank, step, errno } => {
                    let error = self.explain_start(rank, step, errno);
                    self.complain(&error.message, error.status);
                    self.kill();
                }
                Event::Ended { rank, status } => {
                    self.alive = self.alive.saturating_sub(1);
                    self.last_words(rank);
                    if let Some(pump) = &mut self.own.pump {
                        pump.rank_ended(rank);
                    }
                    let phase = self.segment.cell(rank).phase();
                    let aborted = self.segment.header().aborted();
                    if let Some(failure) = self.verdict.rank_ended(rank, status, phase, aborted) {
                        let text = report::failure(&self.job.launcher, failure, &self.segment);
                        self.say(&text);
                        if failure.ends_job() {
                            self.end();
                        }
                    }
                    if self.alive == 0 {
                        self.kill_by(Instant::now() + LEFTOVER_GRACE);
                    }
                }
                Event::Empty => {
                    self.empty = true;
                    self.kill_at = None;
                }
            }
        }
        if !alive {
            if !self.empty {
                self.without_guard();
            }
            self.guard.bury();
        }
        if self.empty {
            self.timeout_at = None;
            for stream in &mut self.own.streams {
                stream.flush = true;
            }
        }
    }

    /// The guard was killed: its children are ours now.
    fn without_guard(&mut self) {
        let gone = process::kill_descendants(&self.foreign, KILL_PATIENCE);
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
        self.empty = true;
        self.kill_at = None;
    }

    /// Reads what a rank wrote before it ended, and lets its last line out.
    fn last_words(&mut self, rank: u32) {
        for index in 0..self.own.streams.len() {
            if self.own.streams[index].rank == rank {
                self.own.streams[index].flush = true;
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
                        if self.empty {
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
        let bytes = &self.buffer[..bytes];
        if stream.is_output
            && let Some(ordered) = &mut self.own.ordered
            && ordered.spools(rank)
        {
            if let Err(error) = ordered.keep(rank, bytes) {
                let text = format!("cannot keep the output of rank {rank} for later: {error}");
                self.complain(&text, 1);
                self.kill();
            }
            return;
        }
        let sink = &mut self.own.sinks[sink];
        if !sink.closed {
            sink.merger.push(id, bytes, Instant::now());
        }
    }

    fn stream_ended(&mut self, index: usize) {
        let stream = &self.own.streams[index];
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
            let sink = &mut self.own.sinks[stream.sink];
            if !sink.closed && !sink.merger.accepts(stream.id) {
                break;
            }
            match ordered.take(&mut self.buffer) {
                Ok(0) => {
                    if !ordered.advance() {
                        break;
                    }
                    sink.merger.end(stream.id, now);
                }
                Ok(_) if sink.closed => {}
                Ok(n) => sink.merger.push(stream.id, &self.buffer[..n], now),
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
        if self.timeout_at.is_some_and(|at| now >= at) {
            self.timeout_at = None;
            let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
            let text = report::timeout(&self.job.launcher, seconds, &self.segment);
            self.say(&text);
            self.verdict.end(124);
            self.end();
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            if self.killed {
                let left: Vec<String> = (0..self.segment.ranks())
                    .filter(|&r| !self.segment.cell(r).exited())
                    .map(|r| self.segment.cell(r).pid().to_string())
                    .collect();
                self.complain(
                    &format!(
                        "processes do not end although they were killed (pids {}); the kernel \
                         waits for a device or file server",
                        left.join(" ")
                    ),
                    1,
                );
                self.empty = true;
                self.kill_at = None;
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
                        self.complain(&format!("cannot write the job's output: {error}"), 1);
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
        self.empty
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
        if self.empty || self.killed {
            return;
        }
        self.guard.tell(Command::Signal(signal::SIGTERM));
        self.guard.tell(Command::Signal(signal::SIGCONT));
        self.kill_by(Instant::now() + FAILURE_GRACE);
    }

    fn kill_by(&mut self, at: Instant) {
        if !self.killed && !self.empty {
            self.kill_at = Some(self.kill_at.map_or(at, |former| former.min(at)));
        }
    }

    fn kill(&mut self) {
        if self.killed || self.empty {
            return;
        }
        self.killed = true;
        if self.alive > 0 {
            self.verdict.end(1);
        }
        self.guard.tell(Command::Kill);
        self.kill_at = Some(Instant::now() + KILL_PATIENCE);
    }

    /// An error of the launcher's own: one line, and the status if nothing failed before.
    fn complain(&mut self, text: &str, status: u8) {
        self.verdict.end(status);
        let line = format!("{}: {text}\n", self.job.launcher);
        self.say(&line);
    }

    fn say(&mut self, text: &str) {
        if let Some(sink) = self.own.sinks.last_mut()
            && !sink.closed
        {
            sink.merger.message(text, Instant::now());
        }
    }

    fn explain_start(&self, rank: u32, step: Step, errno: i32) -> LaunchError {
        let error = io::Error::from_raw_os_error(errno);
        let mut before = 0;
        let counts = self.job.counts(cpu::usable_cores()).unwrap_or_default();
        let index = counts
            .iter()
            .position(|&n| {
                before += n;
                rank < before
            })
            .unwrap_or(0);
        let program = &self.job.programs[index];
        match step {
            Step::Execute => match find_program(program) {
                Ok(path) => program::explain(&path, &error),
                Err(error) => error,
            },
            Step::Directory => LaunchError::usage(format!(
                "-wdir: cannot enter the directory '{}': {error}",
                program.directory.clone().unwrap_or_default().display()
            )),
            Step::Process => LaunchError::system(format!(
                "cannot start rank {rank} of {}: {error}; ulimit -u and the container limit how \
                 many processes there may be",
                self.segment.ranks()
            )),
            Step::Bind => {
                LaunchError::system(format!("cannot bind rank {rank} to its cores: {error}"))
            }
            Step::Standard => LaunchError::system(format!(
                "cannot connect the input and output of rank {rank}: {error}"
            )),
        }
    }
}

/// The signals that the launcher passes on: those that it does not ignore.
fn wanted_signals() -> SignalSet {
    let wanted: Vec<i32> = [
        signal::SIGINT,
        signal::SIGTERM,
        signal::SIGHUP,
        signal::SIGQUIT,
        signal::SIGUSR1,
        signal::SIGUSR2,
        signal::SIGTSTP,
        signal::SIGCONT,
        signal::SIGWINCH,
    ]
    .into_iter()
    .filter(|&s| !signal::is_ignored(s))
    .collect();
    SignalSet::of(&wanted)
}

fn find_program(program: &crate::plan::Program) -> Result<std::path::PathBuf, LaunchError> {
    let own = program.environment.iter().rev().find(|(n, _)| n == "PATH");
    let path = own
        .map(|(_, v)| v.clone())
        .or_else(|| std::env::var_os("PATH"));
    program::find(
        &program.command,
        program.directory.as_deref(),
        path.as_deref(),
    )
}

fn programs(job: &Job, segment_fd: &OwnedFd, ranks: u32) -> Result<Vec<ProgramStart>, LaunchError> {
    let text = |text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| {
            LaunchError::usage(format!("'{}' holds a NUL byte", text.to_string_lossy()))
        })
    };
    let base: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    job.programs
        .iter()
        .map(|program| {
            let path = find_program(program)?;
            let arguments = std::iter::once(&program.command)
                .chain(&program.arguments)
                .map(|a| text(a))
                .collect::<Result<Vec<CString>, LaunchError>>()?;
            let directory = match &program.directory {
                Some(d) if !d.is_dir() => {
                    let why = if d.exists() {
                        "is not a directory"
                    } else {
                        "does not exist"
                    };
                    return Err(LaunchError::usage(format!(
                        "-wdir: '{}' {why}",
                        d.display()
                    )));
                }
                Some(d) => Some(text(d.as_os_str())?),
                None => None,
            };
            Ok(ProgramStart {
                path: text(path.as_os_str())?,
                arguments: StringArray::new(arguments),
                environment: environment::common(
                    base.iter().cloned(),
                    &program.environment,
                    segment_fd.as_raw_fd(),
                    ranks,
                ),
                directory,
            })
        })
        .collect()
}

/// The launcher's standard output and error: one sink when they are the same file, so that their
/// lines are not mixed, else two.
fn sinks(job: &Job) -> io::Result<Vec<Sink>> {
    let (out, err) = (io::stdout(), io::stderr());
    let identity = |fd: OwnedFd| -> io::Result<(u64, u64)> {
        let m = File::from(fd).metadata()?;
        Ok((m.dev(), m.ino()))
    };
    let same = identity(out.as_fd().try_clone_to_owned()?)?
        == identity(err.as_fd().try_clone_to_owned()?)?;
    let sink = |outlet: Outlet, is_output: bool| Sink {
        merger: Merger::new(job.label),
        outlet,
        closed: false,
        is_output,
    };
    let mut sinks = vec![sink(Outlet::new(out.as_fd())?, true)];
    if !same {
        sinks.push(sink(Outlet::new(err.as_fd())?, false));
    }
    Ok(sinks)
}

type RankOutput = [OwnedFd; 2];

/// The pipes of all ranks: our ends as streams of the sinks, and the ranks' ends.
fn streams(
    job: &Job,
    ranks: u32,
    sinks: &mut [Sink],
) -> io::Result<(Vec<Stream>, Vec<RankOutput>)> {
    let mut streams = Vec::new();
    let mut outputs = Vec::new();
    let error_sink = sinks.len() - 1;
    let terminals: Vec<bool> = sinks
        .iter()
        .map(|s| std::io::IsTerminal::is_terminal(&s.outlet.as_fd()))
        .collect();
    let files: Vec<bool> = sinks
        .iter()
        .map(|s| {
            let own = s.outlet.as_fd().try_clone_to_owned();
            own.and_then(|fd| File::from(fd).metadata())
                .is_ok_and(|m| m.is_file())
        })
        .collect();
    let prompts = |rank: u32, sink: usize| {
        let answered = match job.stdin {
            StdinTo::Rank(r) => r == rank,
            StdinTo::All => true,
            StdinTo::Nobody => false,
        };
        match (terminals[sink], files[sink]) {
            (true, _) => Some(PROMPT_TERMINAL),
            (_, false) if answered => Some(PROMPT_PIPE),
            _ => None,
        }
    };
    let mut stream = |rank: u32, sink: usize, is_output: bool| -> io::Result<OwnedFd> {
        let (reader, writer) = io::pipe()?;
        if ranks <= MANY_RANKS {
            set_pipe_bytes(writer.as_fd(), PIPE_BYTES);
        }
        set_nonblocking(reader.as_fd())?;
        streams.push(Stream {
            pipe: Some(File::from(OwnedFd::from(reader))),
            rank,
            sink,
            id: sinks[sink].merger.add(rank, prompts(rank, sink)),
            is_output,
            flush: false,
        });
        Ok(writer.into())
    };
    for rank in 0..ranks {
        let shown = match job.output {
            Output::Rank(r) => r == rank,
            _ => true,
        };
        let output = if shown {
            stream(rank, 0, true)?
        } else {
            File::options().write(true).open("/dev/null")?.into()
        };
        let error = if ranks == 1 && error_sink == 0 {
            // Alone, and both go to the same place: one pipe keeps the order of its writes.
            output.try_clone()?
        } else {
            stream(rank, error_sink, false)?
        };
        outputs.push([output, error]);
    }
    Ok((streams, outputs))
}

fn report_bindings(job: &Job, placement: &Placement, sinks: &mut [Sink]) {
    let Some(sink) = sinks.last_mut() else {
        return;
    };
    let now = Instant::now();
    let name = &job.launcher;
    if let Some(why) = &placement.unbound_because {
        let ranks = placement.cores.len();
        let many = if ranks == 1 {
            "the rank is"
        } else {
            "the ranks are"
        };
        sink.merger
            .message(&format!("{name}: {many} not bound: {why}"), now);
        return;
    }
    let host = report::host_name();
    for (rank, cores) in placement.cores.iter().enumerate() {
        let many = if cores.len() == 1 { "core" } else { "cores" };
        let text = format!("{name}: rank {rank} on {host}: {many} {}", ranges(cores));
        sink.merger.message(&text, now);
    }
}

fn descriptors(ranks: u32, error: &io::Error) -> LaunchError {
    LaunchError::system(format!(
        "cannot open the pipes of {ranks} ranks: {error}; ulimit -n limits the open files (now {})",
        FileLimit::now().hard
    ))
}
