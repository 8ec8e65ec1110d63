//! The keeper of an application: a process beside its launcher that asks for turns, and stops and
//! continues all of the application's processes.
//!
//! The launcher talks to it over its standard input. It is a process of its own, so that launchers
//! do without what it is made of. When the launcher dies, the guard ends the application, stopped
//! or not. When the keeper dies, the launcher continues it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use margay_core_partitions::Right;
use margay_core_topology::{list_text, parse_list};
use margay_job_partitions::Store;
use margay_sys_os::clock::now_ns;
use margay_sys_os::cpu;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::Channel;
use margay_sys_os::process::{self, Halt, PidFd};

use crate::leader::{Leader, PRIORITY, hosts_in};
use crate::size::{Size, pool};
use crate::wire::{fields, receive, send};

/// How long the launcher has for its first words, and a connection for its making.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Where the service is away it is looked for this often.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// What the launcher asks for.
struct Asked {
    /// The hosts of its partition with their slots, by their numbers as nodes.
    hosts: Vec<(u32, String, u32)>,
    name: String,
    /// Nodes ([`Size`]); 0 where all of the partition are wanted.
    size: String,
    priority: String,
    pid: String,
    command: String,
}

impl Asked {
    /// Says to the launcher where the application runs: on which cores, or hosts.
    fn say_in(&self, launcher: &Channel, store: &Store, nodes: &[u32]) {
        let is_in = |(node, ..): &&(u32, String, u32)| nodes.contains(node);
        let hosts = self.hosts.iter().filter(is_in);
        let hosts: Vec<String> = hosts
            .map(|(_, name, slots)| format!("{name}:{slots}"))
            .collect();
        // One that is gone is noticed when it is read from.
        let _ = match &hosts[..] {
            [] => {
                let cores = list_of(&store.cores_of(nodes));
                send(launcher, &["in", &cores, &nodes.len().to_string()])
            }
            hosts => send(launcher, &["hosts", &hosts.join(",")]),
        };
    }
}

struct Keeper {
    store: Store,
    asked: Asked,
    launcher: Channel,
    /// Who looks after turns; none while nobody does.
    leader: Option<Channel>,
    guard: Option<(u32, PidFd)>,
    /// The nodes, once the application has any.
    nodes: Vec<u32>,
    is_in: bool,
    since_ns: u64,
    ran_ns: u64,
    /// The user has stopped the job.
    is_held: bool,
    /// An order to stop is to be confirmed.
    owes: bool,
    halt: Halt,
}

/// Looks after the application of the launcher at the other end of standard input.
///
/// # Errors
/// When there is no launcher.
pub fn attend() -> Result<(), String> {
    // What the terminal's keys mean is the launcher's to decide.
    process::lead_session();
    let failed = |error: io::Error| format!("attend is for launchers: {error}");
    let mut launcher = Channel::of_standard_input().map_err(failed)?;
    let said = receive(&mut launcher, Some(Instant::now() + ANSWER_LIMIT)).map_err(failed)?;
    let Ok([_, name, size, priority, pid, command]) = <[String; 6]>::try_from(said) else {
        return Err("attend is for launchers of the same version".into());
    };
    let priority = if priority.is_empty() {
        PRIORITY.to_string()
    } else {
        priority
    };
    let mut asked = Asked {
        hosts: Vec::new(),
        name,
        size,
        priority,
        pid,
        command,
    };
    let begun = Store::find().and_then(|store| begin(store, &mut asked, &launcher));
    let (store, leader) = match begun {
        Ok(Some(begun)) => begun,
        Ok(None) => return Ok(()),
        Err(text) => {
            // A launcher that is gone needs no reason.
            let _ = send(&launcher, &["refused", &text]);
            return Ok(());
        }
    };
    let keeper = Keeper {
        store,
        asked,
        launcher,
        leader: Some(leader),
        guard: None,
        nodes: Vec::new(),
        is_in: false,
        since_ns: 0,
        ran_ns: 0,
        is_held: false,
        owes: false,
        halt: Halt::default(),
    };
    keeper.serve();
    Ok(())
}

/// Checks the partition and asks for a turn. None where nobody is to be asked.
fn begin(
    store: Store,
    asked: &mut Asked,
    launcher: &Channel,
) -> Result<Option<(Store, Channel)>, String> {
    let size = Size::parse(&asked.size).ok_or("attend is for launchers of the same version")?;
    let table = store.read()?;
    if size.is_pool {
        asked.name = pool(&table, store.caller(), &asked.name);
    }
    let (name, _) = hosts_in(&asked.name);
    let found = table.find(store.caller(), name, Right::Run);
    let (path, partition) = found.map_err(|refused| match size.is_pool {
        true => format!("{refused}; pools are partitions, which margay part lspart lists"),
        false => refused.to_string(),
    })?;
    size.suits(&path)?;
    let cores = store.cores(partition);
    usable(&path, &cores)?;
    let hosts = table.hosts_of(partition).into_iter();
    asked.hosts = hosts
        .map(|(node, name, slots)| (node, name.to_owned(), slots))
        .collect();
    match lead_or_connect(&store) {
        Ok(leader) => {
            let Asked {
                name,
                size,
                priority,
                pid,
                command,
                ..
            } = asked;
            send(&leader, &["join", name, size, priority, pid, command])
                .map_err(|error| format!("cannot ask for a turn in '{path}': {error}"))?;
            Ok(Some((store, leader)))
        }
        Err(_) if size.needs_nobody(partition.scheduling) => {
            asked.say_in(launcher, &store, &partition.nodes);
            Ok(None)
        }
        Err(error) => Err(format!(
            "nobody looks after the turns of applications in the partition '{path}': {error}; root starts the service with \
             margay part init"
        )),
    }
}

/// Whether this process may use the cores of a partition.
///
/// # Errors
/// Which one it may not use.
pub fn usable(path: &str, cores: &[usize]) -> Result<(), String> {
    let mask = cpu::affinity();
    match cores.iter().find(|core| !mask.contains(core)) {
        None => Ok(()),
        Some(core) => Err(format!(
            "the partition '{path}' has core {core}, which this process may not use; start it without taskset, outside \
             of other partitions, or choose a partition of the cores {mask:?}"
        )),
    }
}

fn list_of(cores: &[usize]) -> String {
    let cores: Vec<u32> = (cores.iter())
        .filter_map(|&core| u32::try_from(core).ok())
        .collect();
    list_text(&cores)
}

/// Connects to who looks after turns; where partitions are one user's and nobody does, a thread of
/// this process does from now on.
fn lead_or_connect(store: &Store) -> io::Result<Channel> {
    let end = Instant::now() + ANSWER_LIMIT;
    loop {
        match store.connect() {
            Ok(channel) => return Ok(channel),
            Err(error) if store.is_common() || Instant::now() >= end => return Err(error),
            Err(_) => {}
        }
        match store.listen() {
            Ok(listener) => {
                let leader = Leader::new(store.clone(), listener);
                std::thread::Builder::new().spawn(move || leader.serve())?;
                return store.connect();
            }
            // Another one was quicker, or is just ending.
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

impl Keeper {
    fn serve(mut self) {
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            let launcher = poll.add_readable(self.launcher.as_fd());
            let leader = (self.leader.as_ref()).map(|own| poll.add_readable(own.as_fd()));
            // Without a way to wait there is none to go on.
            if poll.wait(self.time_to_wait()).is_err() {
                return;
            }
            let is_ready = |at: usize| poll.ready(at).readable || poll.ready(at).hung_up;
            if leader.is_some_and(is_ready) && !self.hear_leader() {
                return;
            }
            if is_ready(launcher) && !self.hear_launcher() {
                return self.end();
            }
            if self.leader.is_none() && !self.find_leader() {
                return;
            }
            if let Some((guard, _)) = self.guard {
                self.halt.sweep(guard);
            }
        }
    }

    fn time_to_wait(&self) -> Option<Duration> {
        if self.leader.is_none() {
            return Some(LOOKS_EVERY);
        }
        self.halt.pause()
    }

    /// Takes what the leader has to say; false when there is nothing more to do.
    fn hear_leader(&mut self) -> bool {
        while let Some(leader) = &mut self.leader {
            let said = match leader.receive() {
                Ok(Some(message)) => fields(&message),
                Ok(None) => return true,
                Err(_) => {
                    self.leader = None;
                    break;
                }
            };
            let said: Vec<&str> = said.iter().map(String::as_str).collect();
            match said[..] {
                ["in", nodes] => self.roll_in(parse_list(nodes).unwrap_or_default()),
                ["out"] => self.roll_out(),
                ["wait", text] => {
                    let _ = send(&self.launcher, &["say", text]);
                }
                ["refused", text] if self.nodes.is_empty() => {
                    let _ = send(&self.launcher, &["refused", text]);
                    return false;
                }
                // Its partition is gone: it goes on without turns.
                ["refused", _] => {
                    self.resume();
                    return false;
                }
                _ => {}
            }
        }
        true
    }

    fn roll_in(&mut self, nodes: Vec<u32>) {
        self.nodes = nodes;
        self.is_in = true;
        self.since_ns = now_ns();
        self.resume();
        self.asked.say_in(&self.launcher, &self.store, &self.nodes);
    }

    fn roll_out(&mut self) {
        self.is_in = false;
        self.ran_ns += now_ns().saturating_sub(self.since_ns);
        self.owes = true;
        if !self.is_on_hosts() {
            self.stop();
            self.confirm();
        }
        let _ = send(&self.launcher, &["out"]);
    }

    /// Whether it runs on several hosts: the launcher stops and continues it there.
    fn is_on_hosts(&self) -> bool {
        !self.asked.hosts.is_empty()
    }

    /// Says that the application is stopped, once it is known which it is.
    fn confirm(&mut self) {
        if self.guard.is_some()
            && self.owes
            && let Some(leader) = &self.leader
        {
            self.owes = false;
            // One that is gone is noticed when it is read from.
            let _ = send(leader, &["left"]);
        }
    }

    /// Stops all processes below the guard; those that were made meanwhile, too.
    fn stop(&mut self) {
        if let Some((guard, _)) = self.guard {
            self.halt.stop(guard);
        }
    }

    /// Continues all processes below the guard, unless the user has stopped them.
    fn resume(&mut self) {
        if let Some((guard, _)) = self.guard
            && !self.is_held
            && !self.is_on_hosts()
        {
            self.halt.go_on(guard);
        }
    }

    /// Takes what the launcher has to say; false when it is gone.
    fn hear_launcher(&mut self) -> bool {
        loop {
            let said = match self.launcher.receive() {
                Ok(Some(message)) => fields(&message),
                Ok(None) => return true,
                Err(_) => return false,
            };
            let said: Vec<&str> = said.iter().map(String::as_str).collect();
            match said[..] {
                ["guard", pid] => {
                    let pid = pid.parse().unwrap_or(0);
                    self.guard = PidFd::open(pid).ok().map(|handle| (pid, handle));
                    if !self.is_in && !self.is_on_hosts() {
                        self.stop();
                        self.confirm();
                    }
                }
                ["halted"] if !self.is_in => self.confirm(),
                ["ended"] => self.guard = None,
                ["held"] => {
                    self.is_held = true;
                    self.halt.hold();
                }
                ["released"] => {
                    self.is_held = false;
                    if self.is_in {
                        self.resume();
                        if self.is_on_hosts() {
                            self.asked.say_in(&self.launcher, &self.store, &self.nodes);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Finds a new leader after the old one has gone; false when the application has nothing yet
    /// that it could lose.
    fn find_leader(&mut self) -> bool {
        if self.nodes.is_empty() {
            return match lead_or_connect(&self.store) {
                Ok(leader) => self.ask_anew(leader, false),
                Err(error) => {
                    let text = format!("nobody looks after turns any more: {error}");
                    let _ = send(&self.launcher, &["refused", &text]);
                    false
                }
            };
        }
        match lead_or_connect(&self.store) {
            Ok(leader) => self.ask_anew(leader, true),
            Err(_) => {
                // Until the service is back nobody is kept waiting.
                if !self.is_in {
                    self.is_in = true;
                    self.since_ns = now_ns();
                    self.owes = false;
                    self.resume();
                    self.asked.say_in(&self.launcher, &self.store, &self.nodes);
                }
                true
            }
        }
    }

    fn ask_anew(&mut self, leader: Channel, again: bool) -> bool {
        let asked = &self.asked;
        let mut words = vec![
            if again { "rejoin" } else { "join" },
            &asked.name,
            &asked.size,
            &asked.priority,
            &asked.pid,
            &asked.command,
        ];
        let nodes = list_text(&self.nodes);
        let turn_ns = if self.is_in {
            now_ns().saturating_sub(self.since_ns)
        } else {
            0
        };
        let ran = (self.ran_ns + turn_ns).to_string();
        if again {
            words.extend([if self.is_in { "1" } else { "0" }, &nodes, &ran]);
            // What was ordered and not confirmed is done by now.
            self.owes = false;
        }
        if send(&leader, &words).is_ok() {
            self.leader = Some(leader);
        }
        true
    }

    /// The launcher is gone: when all of the application is, others may have its nodes.
    fn end(mut self) {
        if let Some((_, handle)) = &self.guard {
            let mut poll = PollSet::default();
            let end = Instant::now() + ANSWER_LIMIT;
            while !handle.has_ended() && Instant::now() < end {
                poll.clear();
                poll.add_readable(handle.as_fd());
                let _ = poll.wait(Some(Duration::from_millis(100)));
            }
        }
        if let Some(leader) = &mut self.leader
            && send(leader, &["bye"]).is_ok()
        {
            let end = Instant::now() + Duration::from_secs(1);
            while receive(leader, Some(end)).is_ok_and(|said| said != ["bye"]) {}
        }
    }
}
