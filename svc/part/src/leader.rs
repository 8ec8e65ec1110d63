//! Who looks after the turns of applications: a thread in the keeper of one of them, or, where
//! partitions are common to all users, root's service, which changes them for others as well.
//!
//! It orders and the keepers act, each for its own application and with its user's rights: nobody
//! needs a right over another one's processes. When it ends, the keepers see their connections
//! end, one of them takes its place, and all of them report what they were doing.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use margay_core_partitions::{Caller, Order, Request, Right, Scheduling, Seen, Table, Turns};
use margay_core_topology::{list_text, parse_list};
use margay_job_partitions::Store;
use margay_sys_os::clock::now_ns;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::{Channel, no_descriptor};

use crate::act::Change;
use crate::show::Application;
use crate::size::Size;
use crate::wire::{fields, send};

/// How long a new one waits for applications that another one knew.
const GRACE: Duration = Duration::from_millis(300);
/// A keeper that has not stopped its application by then is not waited for.
const STOPS_WITHIN: Duration = Duration::from_secs(2);
/// An application that waits this long says why.
const SAYS_AFTER: Duration = Duration::from_secs(1);
/// The most connections, and those of one user who is not root.
const MOST: usize = 1024;
const MOST_OF_USER: usize = 256;
/// Who may look at everything.
const ROOT: Caller = Caller {
    user: 0,
    groups: Vec::new(),
};
/// The priority of applications that ask for none.
pub const PRIORITY: u32 = 5;

/// A connection, and the application for which it is, if it is for one.
struct Client {
    channel: Channel,
    user: u32,
    caller: Caller,
    own: Option<Own>,
}

/// A partition, and which of its hosts are wanted where that is said: `far@a,b`.
pub fn hosts_in(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((name, hosts)) => (name, Some(hosts)),
        None => (name, None),
    }
}

/// What is known of an application beside its turns.
struct Own {
    path: String,
    priority: u32,
    pid: u32,
    command: String,
    since: Instant,
    /// Why it waits has been reported to it.
    is_reported: bool,
    /// When it is to be stopped.
    stops_by: Option<Instant>,
}

impl Own {
    /// Whether it waits for its first turn and has not been said why. One that has had a turn is
    /// no such one: when it is out, nothing is to be done for it until a quantum ends.
    fn is_to_say_why(&self, seen: &Seen) -> bool {
        !self.is_reported && !seen.is_in && seen.ran_ns == 0
    }
}

/// All of it.
pub struct Leader {
    store: Store,
    listener: UnixListener,
    clients: BTreeMap<u64, Client>,
    next: u64,
    turns: Turns,
    grace: Option<Instant>,
    mark: PathBuf,
    is_marked: bool,
}

impl Leader {
    /// One that listens already.
    #[must_use]
    pub fn new(store: Store, listener: UnixListener) -> Leader {
        let mark = store.mark();
        let is_marked = mark.exists();
        Leader {
            store,
            listener,
            clients: BTreeMap::new(),
            next: 0,
            turns: Turns::default(),
            grace: is_marked.then(|| Instant::now() + GRACE),
            mark,
            is_marked,
        }
    }

    /// Serves as long as the process lives.
    pub fn serve(mut self) -> ! {
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            let asked = poll.add_readable(self.listener.as_fd());
            let places: Vec<(u64, usize)> = (self.clients.iter())
                .map(|(&id, client)| (id, poll.add_readable(client.channel.as_fd())))
                .collect();
            if poll.wait(self.time_to_wait()).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            if poll.ready(asked).readable {
                self.admit();
            }
            for (id, place) in places {
                if poll.ready(place).readable || poll.ready(place).hung_up {
                    self.hear(id);
                }
            }
            self.settle();
        }
    }

    fn time_to_wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let turn = self.turns.next_ns().filter(|_| self.grace.is_none());
        let turn = turn.map(|at| Duration::from_nanos(at.saturating_sub(now_ns())));
        let waiting = self.clients.iter().filter_map(|(&id, client)| {
            let own = client.own.as_ref()?;
            own.is_to_say_why(&self.turns.seen(id, 0)?)
                .then(|| own.since + SAYS_AFTER)
        });
        let stops = self
            .clients
            .values()
            .filter_map(|client| client.own.as_ref()?.stops_by);
        let times = waiting.chain(stops).chain(self.grace);
        let times = times.map(|at| at.saturating_duration_since(now));
        times.chain(turn).min()
    }

    fn admit(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if no_descriptor(&error) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    match error.kind() {
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted => continue,
                        _ => return,
                    }
                }
            };
            let channel = Channel::over_stream(stream);
            let Ok(peer) = channel.peer() else {
                continue;
            };
            let is_allowed = self.store.is_common() || channel.is_trusted();
            let of_user = self.clients.values().filter(|own| own.user == peer.user);
            let is_full = peer.user != 0 && of_user.count() >= MOST_OF_USER;
            if !is_allowed || is_full || self.clients.len() >= MOST {
                let why = "too many connections; try again when some have ended";
                let _ = send(&channel, &["refused", why]);
                continue;
            }
            self.next += 1;
            self.clients.insert(
                self.next,
                Client {
                    channel,
                    user: peer.user,
                    caller: Caller {
                        user: peer.user,
                        groups: peer.groups,
                    },
                    own: None,
                },
            );
        }
    }

    fn hear(&mut self, id: u64) {
        loop {
            let Some(client) = self.clients.get_mut(&id) else {
                return;
            };
            match client.channel.receive() {
                Ok(Some(message)) => {
                    let said = fields(&message);
                    let said: Vec<&str> = said.iter().map(String::as_str).collect();
                    if self.obey(id, &said).is_none() {
                        return self.part_with(id);
                    }
                }
                Ok(None) => return,
                Err(_) => return self.part_with(id),
            }
        }
    }

    fn part_with(&mut self, id: u64) {
        self.turns.leave(id);
        self.clients.remove(&id);
    }

    /// Answers a client; one that is gone is noticed when it is read from.
    fn answer(&self, id: u64, parts: &[&str]) -> Option<()> {
        send(&self.clients.get(&id)?.channel, parts).ok()
    }

    /// Does what a client says; none ends the connection.
    fn obey(&mut self, id: u64, said: &[&str]) -> Option<()> {
        match *said {
            ["join", name, size, priority, pid, command] => {
                self.join(id, name, [size, priority, pid], command, None)
            }
            [
                "rejoin",
                name,
                size,
                priority,
                pid,
                command,
                is_in,
                nodes,
                ran_ns,
            ] => {
                let seen = Seen {
                    nodes: parse_list(nodes)?,
                    is_in: is_in == "1",
                    ran_ns: ran_ns.parse().ok()?,
                    priority: 0,
                };
                self.join(id, name, [size, priority, pid], command, Some(seen))
            }
            ["left"] => {
                self.turns.has_left(id, now_ns());
                self.clients.get_mut(&id)?.own.as_mut()?.stops_by = None;
                Some(())
            }
            ["prioritize", pid, number] => {
                let (pid, number): (u32, u32) = (pid.parse().ok()?, number.parse().ok()?);
                let user = self.clients.get(&id)?.user;
                let clients = self.clients.values_mut();
                for client in clients.filter(|client| user == 0 || client.user == user) {
                    if let Some(own) = client.own.as_mut().filter(|own| own.pid == pid) {
                        own.priority = number;
                    }
                }
                self.refresh();
                Some(())
            }
            ["list", name] => self.list(id, name),
            ["changed"] => {
                self.refresh();
                Some(())
            }
            ["change", ref words @ ..] => {
                match self.change(id, words) {
                    Ok(()) => self.answer(id, &["done"])?,
                    Err(text) => self.answer(id, &["refused", &text])?,
                }
                self.refresh();
                Some(())
            }
            ["bye"] => {
                self.turns.leave(id);
                self.clients.get_mut(&id)?.own = None;
                self.settle();
                self.answer(id, &["bye"])
            }
            _ => None,
        }
    }

    /// What a client may run in, and how.
    fn request(
        &self,
        caller: &Caller,
        name: &str,
        size: Size,
        priority: u32,
    ) -> Result<(String, Request), String> {
        let table = self.store.read()?;
        let (name, only) = hosts_in(name);
        let found = table.find(caller, name, Right::Run);
        let (path, partition) = found.map_err(|refused| refused.to_string())?;
        let mut nodes = partition.nodes.clone();
        if let Some(only) = only {
            let of = table.hosts_of(partition).into_iter();
            let of = of.filter(|(_, name, _)| only.split(',').any(|own| own == *name));
            nodes = of.map(|(node, ..)| node).collect();
            if nodes.len() != only.split(',').count() {
                return Err(format!(
                    "the partition '{path}' has not all of the hosts {only}"
                ));
            }
        }
        // Where applications take turns, or have nodes for themselves, that is as it is.
        let is_dedicated = size.is_dedicated && partition.scheduling == Scheduling::Standard;
        let scheduling = match is_dedicated {
            true => Scheduling::Space,
            false => partition.scheduling,
        };
        // A rank is not a host.
        let size = match partition.slots.is_empty() || size.is_exact {
            true => size,
            false => Size { nodes: 0, ..size },
        };
        let request = Request {
            size: size.of(&path, nodes.len(), scheduling)?,
            nodes,
            priority: priority.min(table.priority_limit(&path)),
            scheduling,
            is_dedicated,
        };
        Ok((path, request))
    }

    fn join(
        &mut self,
        id: u64,
        name: &str,
        numbers: [&str; 3],
        command: &str,
        seen: Option<Seen>,
    ) -> Option<()> {
        let [size, priority, pid] = numbers;
        let (size, priority) = (Size::parse(size)?, priority.parse().ok()?);
        let client = self.clients.get_mut(&id)?;
        if client.own.is_some() {
            return None;
        }
        let caller = client.caller.clone();
        let (path, request) = match self.request(&caller, name, size, priority) {
            Ok(found) => found,
            Err(text) => return self.answer(id, &["refused", &text]),
        };
        match seen {
            Some(seen) => {
                let is_known = |node: &u32| request.nodes.binary_search(node).is_ok();
                if seen.nodes.is_empty() || !seen.nodes.iter().all(is_known) {
                    return self.answer(id, &["refused", "its partition has lost its nodes"]);
                }
                self.turns.rejoin(id, request, seen, now_ns());
            }
            None => self.turns.join(id, request, now_ns()),
        }
        self.clients.get_mut(&id)?.own = Some(Own {
            path,
            priority,
            pid: pid.parse().ok()?,
            command: command.chars().take(1000).collect(),
            since: Instant::now(),
            is_reported: false,
            stops_by: None,
        });
        if !self.is_marked {
            // Without it a successor is quicker, and may let two run for a moment.
            self.is_marked = fs::write(&self.mark, "").is_ok();
        }
        Some(())
    }

    /// The applications in a partition.
    fn applications(&self, path: &str) -> Vec<Application> {
        let table = self.store.read().ok();
        // Hosts are shown by their names.
        let named = |path: &str, nodes: &[u32]| {
            let table = table.as_ref()?;
            let (_, partition) = table.find(&ROOT, path, Right::Run).ok()?;
            let hosts = table.hosts_of(partition).into_iter();
            let names: Vec<&str> = hosts
                .filter(|(node, ..)| nodes.contains(node))
                .map(|(_, name, _)| name)
                .collect();
            (!names.is_empty()).then(|| names.join(","))
        };
        let found = self.clients.iter().filter_map(|(&id, client)| {
            let own = client.own.as_ref()?;
            let seen = self.turns.seen(id, now_ns())?;
            Table::is_within(&own.path, path).then(|| Application {
                pid: own.pid,
                user: client.user,
                partition: own.path.clone(),
                nodes: named(&own.path, &seen.nodes).unwrap_or_else(|| list_text(&seen.nodes)),
                priority: seen.priority,
                is_in: seen.is_in,
                ran_ms: seen.ran_ns / 1_000_000,
                command: own.command.clone(),
            })
        });
        found.collect()
    }

    fn list(&self, id: u64, name: &str) -> Option<()> {
        let caller = &self.clients.get(&id)?.caller;
        let table = match self.store.read() {
            Ok(table) => table,
            Err(text) => return self.answer(id, &["refused", &text]),
        };
        let path = match table.find(caller, name, Right::Read) {
            Ok((path, _)) => path,
            Err(refused) => return self.answer(id, &["refused", &refused.to_string()]),
        };
        for own in self.applications(&path) {
            if table.find(caller, &own.partition, Right::Read).is_ok() {
                let row = own.fields();
                let row: Vec<&str> = row.iter().map(String::as_str).collect();
                self.answer(id, &row)?;
            }
        }
        self.answer(id, &["done"])
    }

    fn change(&self, id: u64, words: &[&str]) -> Result<(), String> {
        let client = self.clients.get(&id).ok_or("the connection has ended")?;
        if !self.store.is_common() {
            return Err("these partitions are changed without a service".into());
        }
        let Some(change) = Change::parse(words)? else {
            return Err("the service changes partitions and does nothing else".into());
        };
        let running: Vec<String> = (self.applications("."))
            .into_iter()
            .map(|own| own.partition)
            .collect();
        self.store
            .update(|table| change.apply(table, &client.caller, &running))
    }

    /// Takes over what has changed of the partitions of applications.
    fn refresh(&mut self) {
        let Ok(table) = self.store.read() else {
            return;
        };
        for (&id, client) in &self.clients {
            if let Some(own) = &client.own
                && let Ok((path, partition)) = table.find(&ROOT, &own.path, Right::Run)
            {
                let priority = own.priority.min(table.priority_limit(&path));
                self.turns.adjust(id, priority, partition.scheduling);
            }
        }
    }

    /// Gives the orders that are due.
    fn settle(&mut self) {
        let now = Instant::now();
        if self.grace.is_some_and(|at| now < at) {
            return;
        }
        self.grace = None;
        let late = self.clients.iter().filter(|(_, client)| {
            let stops_by = client.own.as_ref().and_then(|own| own.stops_by);
            stops_by.is_some_and(|at| now >= at)
        });
        for id in late.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.part_with(id);
        }
        loop {
            let orders = self.turns.decide(now_ns());
            if orders.is_empty() {
                break;
            }
            for order in orders {
                self.give(order);
            }
        }
        self.say_why();
        if self.is_marked && self.clients.values().all(|client| client.own.is_none()) {
            // Where it stays a successor waits for a moment, and that is all.
            let _ = fs::remove_file(&self.mark);
            self.is_marked = false;
        }
    }

    fn give(&mut self, order: Order) {
        let (id, heard) = match order {
            Order::In(id) => {
                let nodes = self.turns.seen(id, 0).map(|seen| list_text(&seen.nodes));
                (id, self.answer(id, &["in", &nodes.unwrap_or_default()]))
            }
            Order::Out(id) => {
                if let Some(own) = self.clients.get_mut(&id).and_then(|own| own.own.as_mut()) {
                    own.stops_by = Some(Instant::now() + STOPS_WITHIN);
                }
                (id, self.answer(id, &["out"]))
            }
        };
        if heard.is_none() {
            self.part_with(id);
        }
    }

    /// Lets applications that have waited for their first turn say for what.
    fn say_why(&mut self) {
        let now = Instant::now();
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            let Some(seen) = self.turns.seen(id, now_ns()) else {
                continue;
            };
            let blockers = self.turns.blockers(id).into_iter().filter_map(|other| {
                let own = self.clients.get(&other)?.own.as_ref()?;
                Some(format!("{} ({})", own.pid, own.path))
            });
            let blockers: Vec<String> = blockers.collect();
            let Some(own) = self.clients.get_mut(&id).and_then(|own| own.own.as_mut()) else {
                continue;
            };
            if !own.is_to_say_why(&seen) || now < own.since + SAYS_AFTER {
                continue;
            }
            own.is_reported = true;
            let text = format!(
                "waits for nodes of the partition '{}', on which others run: {}; pspart lists them",
                own.path,
                blockers.join(", ")
            );
            let _ = self.answer(id, &["wait", &text]);
        }
    }
}
