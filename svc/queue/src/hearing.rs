//! What a supervisor hears while it waits: signals, the head, and on another host the one that has
//! sent the job there.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use margay_job_launch::step;
use margay_job_launch::turns::Turns;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::Halt;
use margay_sys_os::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SignalFd};

use crate::files::{JobFolder, SignalWish};
use crate::line::{Message, SupervisorLine};
use crate::shell::Remote;
use crate::wire::{BEAT, Wire};

/// A head that did not start this process asks by SIGTERM for the end, and by SIGUSR1 for signals
/// that it has left in the folder; the others that would end this process are not heeded.
pub const HEARD: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD];

/// After how long what failed is tried again.
pub const RETRY: Duration = Duration::from_millis(500);

/// Output of a job that waits for the way to the head; the job waits for room when it is more.
const MOST_UNSAID: usize = 256 << 10;

/// Output is read in parts of this size.
const PART: usize = 32 << 10;

/// The way by which a job on another host is watched.
#[derive(Debug)]
pub struct Relay {
    pub wire: Wire,
    /// The job's output and standard error; none when it has ended.
    pub outputs: [Option<File>; 2],
    pub steps: StepsSaid,
}

/// How much of the file of a job's steps has been said, in bytes, and when it was last looked at.
#[derive(Debug, Default)]
pub struct StepsSaid {
    count: u64,
    at: Option<Instant>,
}

impl Relay {
    /// Passes on what the job has written. Returns whether there may be more.
    pub fn pass(&mut self) -> bool {
        let mut part = vec![0; PART];
        let mut has_more = false;
        for (output, letter) in self.outputs.iter_mut().zip([b'o', b'e']) {
            let Some(file) = output else { continue };
            if self.wire.unsaid() >= MOST_UNSAID {
                has_more = true;
                continue;
            }
            match file.read(&mut part) {
                Ok(0) => *output = None,
                Ok(count) => {
                    self.wire.say(letter, &part[..count]);
                    has_more = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => has_more = true,
                Err(_) => *output = None,
            }
        }
        has_more
    }

    /// Says which steps have begun and ended, when it is time.
    fn say_steps(&mut self, folder: &JobFolder) {
        let StepsSaid { count, at } = &mut self.steps;
        if at.is_some_and(|at| at.elapsed() < BEAT) || self.wire.unsaid() >= MOST_UNSAID {
            return;
        }
        *at = Some(Instant::now());
        let lines = step::lines_from(folder.readable(), *count);
        if !lines.is_empty() {
            *count += lines.len() as u64;
            self.wire.say(b't', &lines);
        }
    }

    fn add_to(&self, poll: &mut PollSet) {
        self.wire.add_to(poll);
        if self.wire.unsaid() < MOST_UNSAID {
            for output in self.outputs.iter().flatten() {
                poll.add_readable(output.as_fd());
            }
        }
    }
}

/// What has come.
#[derive(Debug, Default)]
pub struct News {
    /// The job is to end.
    pub is_end: bool,
    /// Nobody is there any more to whom its end could be reported.
    pub is_cut: bool,
    /// Its processes are to stop, or to go on.
    pub halts: Vec<bool>,
    pub wishes: Vec<SignalWish>,
}

/// What a supervisor hears while it waits.
#[derive(Debug)]
pub struct Hearing {
    pub signals: SignalFd,
    pub line: SupervisorLine,
    pub relay: Option<Relay>,
    pub poll: PollSet,
}

impl Hearing {
    /// Waits for a signal or a message, at most this long.
    pub fn wait(&mut self, pause: Option<Duration>) {
        self.poll.clear();
        self.add_own();
        let mut pause = pause;
        if let Some(relay) = &self.relay {
            relay.add_to(&mut self.poll);
            pause = Some(pause.map_or(BEAT, |pause| pause.min(BEAT)));
        }
        if self.poll.wait(pause).is_err() {
            std::thread::sleep(RETRY);
        }
        if let Some(relay) = &mut self.relay {
            relay.wire.go_on();
            relay.pass();
            relay.wire.beat();
        }
    }

    /// The same, or until the other side of a remote shell or who gives turns is heard, for a
    /// moment.
    pub fn wait_with(&mut self, remotes: &mut [Remote], turns: Option<&Turns>) {
        self.poll.clear();
        self.add_own();
        if let Some(keeper) = turns.and_then(Turns::descriptor) {
            self.poll.add_readable(keeper);
        }
        for remote in remotes.iter() {
            remote.add_to(&mut self.poll);
        }
        if self.poll.wait(Some(BEAT / 2)).is_err() {
            std::thread::sleep(BEAT);
        }
        remotes.iter_mut().for_each(Remote::go_on);
    }

    /// Adds signals and the head's line to the set.
    fn add_own(&mut self) {
        self.poll.add_readable(self.signals.as_fd());
        if let Some(stream) = self.line.stream() {
            self.poll.add_readable(stream);
        }
    }

    /// Stops or continues the job, and says when it is stopped.
    pub fn halt(&mut self, halt: &mut Halt, is_stop: bool) {
        let own = std::process::id();
        match is_stop {
            true => halt.stop(own),
            false => halt.go_on(own),
        }
        if let Some(relay) = self.relay.as_mut().filter(|_| is_stop) {
            relay.wire.say(b'p', &[]);
        }
    }

    /// Takes what has come for the job of this folder.
    pub fn news(&mut self, folder: &JobFolder) -> News {
        let mut news = News::default();
        let mut has_signals = false;
        while let Some(received) = self.signals.take() {
            news.is_end |= received.signal == SIGTERM;
            has_signals |= received.signal == SIGUSR1;
        }
        while let Some(message) = self.line.take() {
            news.is_end |= message == Message::End;
            has_signals |= message == Message::Signals;
        }
        if has_signals {
            news.wishes = folder.take_signals();
        }
        if let Some(relay) = &mut self.relay {
            while let Some((letter, bytes)) = relay.wire.take() {
                news.is_end |= letter == b'q';
                if let b'p' | b'g' = letter {
                    news.halts.push(letter == b'p');
                }
                if letter == b's' {
                    news.wishes
                        .extend(serde_json::from_slice::<SignalWish>(&bytes));
                }
            }
            relay.say_steps(folder);
            news.is_cut = relay.wire.is_cut();
        }
        news
    }

    /// The name of the next job's folder; none when there will be no other.
    pub fn next_job(&mut self) -> Option<String> {
        loop {
            while let Some(message) = self.line.take() {
                // What else was said came after the end of the job that it was for.
                if let Message::Run(name) = message {
                    return Some(name);
                }
            }
            self.line.stream()?;
            while let Some(received) = self.signals.take() {
                if received.signal == SIGTERM {
                    return None;
                }
            }
            self.wait(None);
        }
    }
}
