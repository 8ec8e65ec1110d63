//! The hosts of a machine of several, as the head sees them: a thread for each other host keeps its
//! agent, and says when it comes and goes.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_job_launch::hosts::is_this_machine;
use margay_svc_queue_wire::HostSpec;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::signal::{SIGKILL, send_to_group, take_defaults_in};

use crate::agent::HostFacts;
use crate::claim::{Claim, Claimant};
use crate::passage::Passage;
use crate::shell::Remote;
use crate::wire::{BEAT, Wire};

/// After how long a host that has gone is tried again.
const RETRY: Duration = Duration::from_secs(3);

/// How often Slurm is asked which hosts the allocation has.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// What is printed in place of hosts when the allocation is over. No host has such a name.
pub const OVER: &str = "(over)";

/// How often in turn that has to be said: Slurm may have been started anew.
const SAID_OVER: u32 = 2;

/// What is known of a host: what it has, or why it is of no use.
pub type Status = Result<HostFacts, Silence>;

/// Why a host is of no use, and when it was last heard of.
#[derive(Clone, Debug)]
pub struct Silence {
    pub why: String,
    pub since: Instant,
}

/// What the head hears.
#[derive(Debug)]
pub enum News {
    Host(usize, Status),
    /// A host is there that was [asked](Agents::ask_now).
    Answer(usize),
    /// The hosts of the allocation in which this machine is.
    Allocation(Vec<HostSpec>),
    /// That allocation is over.
    AllocationOver,
}

/// Hosts of the machine. Their agents end with the value.
#[derive(Debug)]
pub struct Agents {
    /// Who asks for hosts, without a host's name.
    own: Claimant,
    /// The queue is that of all users.
    is_system: bool,
    wake: UnixStream,
    sender: Sender<News>,
    events: Receiver<News>,
    asked: Vec<Arc<Asked>>,
    /// Closed when it is the end: of a host, and of what asks Slurm.
    over: Vec<Option<UnixStream>>,
    allocation: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

/// What is wanted of a host.
#[derive(Debug, Default)]
struct Asked {
    /// Its state is to be said again when it is next heard of.
    again: AtomicBool,
    /// It is to say at once that it is there.
    now: AtomicBool,
}

/// What a thread works with.
struct Attendance {
    host: usize,
    own: Claimant,
    shell: Vec<String>,
    /// The queue is that of all users.
    is_system: bool,
    events: Sender<News>,
    asked: Arc<Asked>,
    /// A byte wakes the head.
    wake: UnixStream,
    over: UnixStream,
}

/// How long a command may take that prints the hosts, and how many bytes.
const PRINTED_WITHIN: Duration = Duration::from_secs(60);
const MOST_PRINTED: usize = 1 << 20;

/// Waits, with the descriptors in the set and for a byte that wakes; returns whether it is the end.
fn is_over(over: &UnixStream, poll: &mut PollSet, pause: Duration) -> bool {
    let place = poll.add_readable(over.as_fd());
    let waited = poll.wait(Some(pause));
    if waited.is_err() {
        std::thread::sleep(BEAT);
    }
    let mut over = over;
    poll.ready(place).readable && !matches!(over.read(&mut [0; 64]), Ok(1..))
}

fn system(error: &io::Error) -> String {
    format!("the hosts cannot be watched: {error}")
}

impl Agents {
    /// Without hosts; `own` says who will ask for them.
    ///
    /// # Errors
    /// In words.
    pub fn new(own: &Claimant, is_system: bool, wake: &UnixStream) -> Result<Agents, String> {
        let (sender, events) = mpsc::channel();
        Ok(Agents {
            own: own.clone(),
            is_system,
            wake: wake.try_clone().map_err(|error| system(&error))?,
            sender,
            events,
            asked: Vec::new(),
            over: Vec::new(),
            allocation: None,
            threads: Vec::new(),
        })
    }

    /// The same without hosts.
    ///
    /// # Errors
    /// In words.
    pub fn anew(&self) -> Result<Agents, String> {
        Agents::new(&self.own, self.is_system, &self.wake)
    }

    /// Begins with a host, which is the next one or has been [removed](Agents::remove).
    ///
    /// # Errors
    /// In words: this host belongs to another machine.
    pub fn add(&mut self, host: usize, name: &str, shell: &[String]) -> Result<(), String> {
        let failed = |error: io::Error| system(&error);
        let (over, ended) = UnixStream::pair().map_err(failed)?;
        let asked = Arc::<Asked>::default();
        let attendance = Attendance {
            host,
            own: Claimant {
                name: name.to_owned(),
                ..self.own.clone()
            },
            shell: shell.to_vec(),
            is_system: self.is_system,
            events: self.sender.clone(),
            asked: Arc::clone(&asked),
            wake: self.wake.try_clone().map_err(failed)?,
            over: ended,
        };
        let thread = std::thread::Builder::new();
        let thread = match is_this_machine(name) {
            true => {
                let claim = Claim::take(&attendance.own)
                    .map_err(|text| format!("this host cannot be used: {text}"))?;
                thread.spawn(move || attendance.hold(&claim))
            }
            false => thread.spawn(move || attendance.keep()),
        };
        self.threads.push(thread.map_err(failed)?);
        self.asked
            .resize_with(self.asked.len().max(host + 1), Arc::default);
        self.over.resize_with(self.asked.len(), || None);
        (self.asked[host], self.over[host]) = (asked, Some(over));
        Ok(())
    }

    /// Ends the agent of a host.
    pub fn remove(&mut self, host: usize) {
        if let Some(over) = self.over.get_mut(host) {
            *over = None;
        }
        self.threads.retain(|thread| !thread.is_finished());
    }

    /// Asks from time to time which hosts there are, by these words of a command.
    ///
    /// # Errors
    /// In words.
    pub fn follow_allocation(&mut self, words: Vec<String>) -> Result<(), String> {
        let failed = |error: io::Error| system(&error);
        let (over, ended) = UnixStream::pair().map_err(failed)?;
        let (events, wake) = (self.sender.clone(), self.wake.try_clone().map_err(failed)?);
        let ask = move || {
            let mut poll = PollSet::default();
            let mut overs = 0;
            while !is_over(&ended, &mut poll, ASKED_EVERY) {
                poll.clear();
                let printed = printed_by(&words, &ended);
                let is_end = printed.as_ref().is_some_and(|text| text.trim_end() == OVER);
                overs = if is_end { overs + 1 } else { 0 };
                let news = match is_end {
                    true => (overs >= SAID_OVER).then_some(News::AllocationOver),
                    false => printed
                        .and_then(|text| hosts_in(&text))
                        .map(News::Allocation),
                };
                if news.is_some_and(|news| events.send(news).is_ok()) {
                    let _ = (&wake).write(&[1]);
                }
            }
        };
        let thread = std::thread::Builder::new().spawn(ask).map_err(failed)?;
        self.threads.push(thread);
        self.allocation = Some(over);
        Ok(())
    }

    /// What has changed.
    pub fn news(&self) -> Option<News> {
        self.events.try_recv().ok()
    }

    /// The same, and waits for it until `end`.
    pub fn next_news(&self, end: Instant) -> Option<News> {
        let left = end.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).ok()
    }

    /// Wants to hear again whether a host is there.
    pub fn ask_again(&self, host: usize) {
        if let Some(asked) = self.asked.get(host) {
            asked.again.store(true, Ordering::SeqCst);
        }
    }

    /// Wants to hear at once whether a host is there that has been.
    pub fn ask_now(&self, host: usize) {
        if let (Some(asked), Some(Some(over))) = (self.asked.get(host), self.over.get(host)) {
            asked.now.store(true, Ordering::SeqCst);
            // A full pipe wakes it as well.
            let mut over = over;
            let _ = over.write(&[1]);
        }
    }

    /// Ends all agents.
    pub fn end(&mut self) {
        self.over.clear();
        self.allocation = None;
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

/// The hosts of what a command prints, one a line; none when it prints something else.
fn hosts_in(text: &str) -> Option<Vec<HostSpec>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let hosts: Option<Vec<HostSpec>> = lines.map(HostSpec::of_line).collect();
    hosts.filter(|hosts| !hosts.is_empty())
}

/// What a command prints; none when it fails, prints no text, takes too long, or `ended` says that
/// it is the end. The head reaps it.
fn printed_by(words: &[String], ended: &UnixStream) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = take_defaults_in(&mut command).spawn().ok()?;
    let mut output = child.stdout.take()?;
    let (mut text, mut poll) = (Vec::new(), PollSet::default());
    let until = Instant::now() + PRINTED_WITHIN;
    loop {
        poll.clear();
        let readable = poll.add_readable(output.as_fd());
        let left = until.saturating_duration_since(Instant::now());
        if is_over(ended, &mut poll, left) || left.is_zero() || text.len() > MOST_PRINTED {
            // With all that it has started.
            let _ = send_to_group(child.id(), SIGKILL);
            return None;
        }
        let mut bytes = [0; 4096];
        if poll.ready(readable).readable || poll.ready(readable).hung_up {
            match output.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&bytes[..count]),
                Err(_) => return None,
            }
        }
    }
    String::from_utf8(text).ok()
}

impl Attendance {
    /// Passes on what a command of another host asks this head.
    fn pass(&self, passage: &mut Passage, wire: &mut Wire, frame: &[u8]) {
        let Some((number, bytes)) = Passage::parted(frame) else {
            return;
        };
        if passage.is_new(number) {
            let address = Path::new(&self.own.folder).join("address");
            let stream = fs::read_to_string(address)
                .and_then(|address| UnixStream::connect(address.trim_end()));
            if !stream.is_ok_and(|stream| passage.add(number, stream)) {
                Passage::say(wire, number, &[]);
            }
        }
        passage.hear(number, bytes);
    }

    fn say(&self, status: Status) {
        self.tell(News::Host(self.host, status));
    }

    fn tell(&self, news: News) {
        // A head that has gone hears nothing; a full pipe wakes it as well.
        let _ = self.events.send(news);
        let _ = (&self.wake).write(&[1]);
    }

    /// This host: it is there as long as the head.
    fn hold(&self, claim: &Claim) {
        self.say(Ok(HostFacts::here()));
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            poll.add_readable(claim.as_fd());
            if is_over(&self.over, &mut poll, BEAT) {
                return;
            }
            // This head has lost its lock if another one comes after it: it hears so from there.
            let _ = claim.answer();
            if self.asked.again.swap(false, Ordering::SeqCst) {
                self.say(Ok(HostFacts::here()));
            }
        }
    }

    /// Another host: its agent is started again and again.
    fn keep(&self) {
        let mut last: Option<String> = None;
        loop {
            let (was_up, ended) = self.session();
            let Some(silence) = ended else { return };
            if was_up || last.as_ref() != Some(&silence.why) {
                self.say(Err(silence.clone()));
            }
            last = Some(silence.why);
            let mut poll = PollSet::default();
            if is_over(&self.over, &mut poll, RETRY) {
                return;
            }
        }
    }

    /// Starts the agent and keeps it. Returns whether it was there, and why it no longer is; none
    /// at the end.
    fn session(&self) -> (bool, Option<Silence>) {
        let silent = |why, since| Some(Silence { why, since });
        let words = match self.is_system {
            true => "agent --system",
            false => "agent",
        };
        let mut remote = match Remote::start(&self.own.name, &self.shell, words) {
            Ok(remote) => remote,
            Err(text) => return (false, silent(text, Instant::now())),
        };
        remote.wire.say(b'h', self.own.text().as_bytes());
        let mut facts: Option<HostFacts> = None;
        // Commands of that host.
        let mut passage = Passage::default();
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            remote.add_to(&mut poll);
            passage.add_to(&mut poll, &remote.wire);
            if is_over(&self.over, &mut poll, BEAT / 2) {
                remote.end();
                return (facts.is_some(), None);
            }
            remote.go_on();
            while let Some((letter, bytes)) = remote.wire.take() {
                match letter {
                    b'i' => {
                        facts = HostFacts::of(&bytes);
                        let why = "the agent speaks another version; install the same Margay on all hosts";
                        self.say(facts.ok_or_else(|| Silence {
                            why: why.into(),
                            since: Instant::now(),
                        }));
                    }
                    b'c' => self.pass(&mut passage, &mut remote.wire, &bytes),
                    b'n' => {
                        remote.end();
                        let why = String::from_utf8_lossy(&bytes).into_owned();
                        return (facts.is_some(), silent(why, Instant::now()));
                    }
                    b'a' => self.tell(News::Answer(self.host)),
                    _ => {}
                }
                let again = &self.asked.again;
                if let Some(facts) = facts.filter(|_| again.swap(false, Ordering::SeqCst)) {
                    self.say(Ok(facts));
                }
            }
            passage.go_on(&mut remote.wire);
            if facts.is_some() && self.asked.now.swap(false, Ordering::SeqCst) {
                remote.wire.say(b'a', &[]);
            }
            remote.wire.beat();
            if remote.is_gone() {
                let heard = remote.wire.heard;
                return (facts.is_some(), silent(remote.end(), heard));
            }
        }
    }
}
