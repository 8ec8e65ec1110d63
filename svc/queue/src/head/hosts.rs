//! The hosts of a machine of several: which are there, and where jobs are.

mod doubt;
mod members;

use std::path::Path;
use std::time::{Duration, Instant};

use margay_core_queue::{Host, JobId, Part, Wishes};
use margay_svc_batch::attended_by;
use margay_svc_queue_wire::{HostRow, MachineSpec, OnHost, Order, Shared};

pub(super) use doubt::Doubt;

use super::Head;
use crate::agents::{Agents, News, OVER, Silence, Status};
use crate::files::JobFolder;
use crate::log;
use crate::site::{Away, HostPart, Site};

/// How long the hosts may take to answer before the head says that it is up.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// A host as the head knows it.
#[derive(Debug)]
struct KnownHost {
    name: String,
    /// As the user says.
    asked_slots: Option<u32>,
    /// 0 until it was there for the first time.
    slots: u32,
    memory_mib: u64,
    is_up: bool,
    /// Since when nothing is heard of it, by what keeps its agent.
    silent: Option<Instant>,
    is_here: bool,
    stay: Stay,
    note: String,
}

/// Whether a host is of the machine. Its number in the list stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Stays,
    /// No job starts there; it goes when those that run there have ended.
    Leaves,
    Gone,
}

impl KnownHost {
    /// Since when nothing is heard of it, and why, in words.
    fn silence(&self) -> Option<(Instant, String)> {
        let since = self.silent?;
        Some((since, format!("host {}: {}", self.name, self.note)))
    }
}

/// The hosts of a machine of several.
#[derive(Debug)]
pub struct Hosts {
    agents: Agents,
    shell: Vec<String>,
    /// Slots of each host for which nothing else is said.
    slots: Option<u32>,
    /// What prints which hosts there are now, where the user has named such a command.
    hosts_from: Option<String>,
    /// The hosts that there were when that, or Slurm of its allocation, was last asked.
    allocation: Vec<String>,
    /// Since when that allocation is over.
    released: Option<Instant>,
    known: Vec<KnownHost>,
}

impl Hosts {
    /// Those of a machine, of which nothing is known yet.
    ///
    /// # Errors
    /// In words.
    pub fn new(spec: &MachineSpec, agents: Agents) -> Result<Hosts, String> {
        let mut hosts = Hosts {
            agents,
            shell: spec.shell.clone(),
            slots: spec.slots,
            hosts_from: spec.hosts_from.clone(),
            allocation: spec.hosts.iter().map(|host| host.name.clone()).collect(),
            released: None,
            known: Vec::new(),
        };
        for named in &spec.hosts {
            hosts.add(named)?;
            if named.leaves
                && let Some(host) = hosts.known.last_mut()
            {
                host.leave();
            }
        }
        // What a command has printed that fails in the end is not all.
        let whole = r#"n=$(eval "$1") && echo "$n""#;
        let command = |line: &String| ["sh", "-c", whole, "sh", line].map(str::to_owned).to_vec();
        let named = spec.hosts_from.as_ref().map(command);
        if let Some(words) = named.or_else(|| slurms_hosts(&spec.shell)) {
            hosts.agents.follow_allocation(words)?;
        }
        Ok(hosts)
    }

    /// Waits until each has answered in one way or the other, at most this long.
    ///
    /// # Errors
    /// In words, when none is there.
    pub fn wait(&mut self, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        let mut silent: Vec<usize> = (0..self.known.len()).collect();
        while !silent.is_empty()
            && let Some(news) = self.agents.next_news(end)
        {
            if let News::Host(host, status) = news {
                silent.retain(|other| *other != host);
                self.note(host, status);
            }
        }
        if self.known.iter().any(|host| host.is_up) {
            return Ok(());
        }
        let all = self.known.iter();
        let all: Vec<String> = all
            .map(|h| format!("host {}: {}", h.name, h.note))
            .collect();
        Err(format!("no host can be used: {}", all.join("; ")))
    }

    fn note(&mut self, host: usize, status: Status) {
        let Some(known) = self.known.get_mut(host) else {
            return;
        };
        match status {
            Ok(facts) => {
                known.slots = known.asked_slots.unwrap_or(facts.cores);
                known.memory_mib = facts.memory_mib;
                (known.is_up, known.silent) = (true, None);
                known.note.clear();
            }
            Err(Silence { why, since }) => {
                log(&format!("host {} is down: {why}", known.name));
                (known.is_up, known.silent) = (false, Some(since));
                known.note = why;
            }
        }
    }

    /// All slots and all memory, also of hosts that are away.
    #[must_use]
    pub fn size(&self) -> (u32, u64) {
        let all = self.known.iter().filter(|host| host.stay == Stay::Stays);
        let slots = all.clone().map(|host| host.slots);
        let memory = all.map(|host| host.memory_mib);
        (slots.fold(0, u32::saturating_add), memory.sum())
    }

    /// As the scheduler has them.
    #[must_use]
    pub fn rooms(&self) -> Vec<Host> {
        let room = |host: &KnownHost| match host.stay {
            Stay::Stays => Host {
                slots: host.slots,
                memory_mib: host.memory_mib,
                is_up: host.is_up,
            },
            Stay::Leaves | Stay::Gone => Host::default(),
        };
        self.known.iter().map(room).collect()
    }

    /// The place in the list of a host of this name; a number that is none when it is not in it.
    pub(super) fn number(&self, name: &str) -> u32 {
        let place = self.known.iter().position(|host| host.name == name);
        place
            .and_then(|at| u32::try_from(at).ok())
            .unwrap_or(u32::MAX)
    }

    /// The words of the remote shell.
    #[must_use]
    pub fn shell(&self) -> &[String] {
        &self.shell
    }

    /// Ends the agents.
    pub fn end(&mut self) {
        self.agents.end();
    }
}

/// Why these jobs cannot be asked for on another host than that of the head; none when they can.
pub fn refuses_interactive(orders: &[Order], program: &Path, host: &str) -> Option<String> {
    let is_one = |order: &Order| is_interactive(order, program);
    orders.iter().any(is_one).then(|| {
        format!("interactive jobs have their terminal on the host of the head, which is {host}: ask for them there")
    })
}

/// Whether the job is held for a command, which was called on the host of the head of that time.
fn is_interactive(order: &Order, program: &Path) -> bool {
    order.script.is_none() && attended_by(&order.arguments) == Some(program.as_os_str())
}

/// What prints the hosts of the allocation of Slurm in which these words start agents, as `margay
/// up` makes them: its srun, and which allocation that is.
fn slurms_hosts(shell: &[String]) -> Option<Vec<String>> {
    let job = shell
        .iter()
        .find_map(|word| word.strip_prefix("--jobid="))?;
    let at = shell.iter().position(|word| word.ends_with("srun"))?;
    let (folder, _) = shell[at].rsplit_once('/')?;
    // Also of one that Slurm has forgotten meanwhile; one that is stopped for a time is not over.
    let line = format!(
        "s=$({folder}/squeue -h -j {job} -o '%t %N' 2>&1); case \"$?:$s\" in \
         '0:R '*) {folder}/scontrol show hostnames \"${{s#R }}\";; \
         0: | '0:CG '* | *'Invalid job id'*) echo '{OVER}';; *) exit 1;; esac"
    );
    let shell = shell[..at].iter().cloned();
    Some(shell.chain(["sh".into(), "-c".into(), line]).collect())
}

impl Head {
    /// Takes note of hosts that have come or gone.
    pub fn hear_hosts(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        let (mut has_news, mut allocation, mut is_over) = (false, None, false);
        while let Some(news) = hosts.agents.news() {
            match news {
                News::Host(host, status) => {
                    hosts.note(host, status);
                    self.doubts.iter_mut().for_each(|doubt| {
                        let known = hosts.known.get(host);
                        doubt.hear(host, known.and_then(KnownHost::silence));
                    });
                    has_news = true;
                }
                News::Answer(host) => {
                    (self.doubts.iter_mut()).for_each(|doubt| doubt.hear(host, None));
                }
                News::Allocation(hosts) => allocation = Some(hosts),
                News::AllocationOver => is_over = true,
            }
        }
        if has_news {
            self.use_hosts();
        }
        if let Some(hosts) = allocation {
            self.follow_allocation(&hosts);
        }
        if is_over {
            self.release();
        }
        self.settle_doubts();
        self.let_go();
    }

    /// Gives the scheduler the hosts as they are now.
    pub(super) fn use_hosts(&mut self) {
        let Some(hosts) = &self.hosts else { return };
        (self.resources.slots, self.resources.memory_mib) = hosts.size();
        self.scheduler.set_hosts(hosts.rooms());
        self.is_changed = true;
        // The hosts of partitions may be among them.
        self.partitions = None;
    }

    /// A job could not be begun on its host, or was lost there: nothing starts there until it is
    /// heard of again.
    pub(super) fn suspect(&mut self, id: JobId) {
        let first = self.scheduler.job(id).and_then(|job| job.parts.first());
        let (Some(part), Some(hosts)) = (first.copied(), &mut self.hosts) else {
            return;
        };
        let place = part.host as usize;
        if let Some(known) = hosts.known.get_mut(place)
            && !known.is_here
            && known.is_up
        {
            known.is_up = false;
            known.note = "a job was lost there; it is looked at again".into();
            hosts.agents.ask_again(place);
            self.use_hosts();
        }
    }

    /// Where a job has its slots; nothing on a machine of one host.
    pub(super) fn parts(&self, id: JobId, wishes: &Wishes) -> Vec<HostPart> {
        let (Some(hosts), Some(job)) = (&self.hosts, self.scheduler.job(id)) else {
            return Vec::new();
        };
        let each = wishes.size.cpus_per_task.unwrap_or(1).max(1);
        let mut left = wishes.size.tasks();
        let part = |part: &Part| {
            let host = hosts.known.get(part.host as usize)?;
            let tasks = (part.slots / each).min(left);
            left -= tasks;
            Some(HostPart {
                host: host.name.clone(),
                slots: part.slots,
                tasks,
            })
        };
        job.parts.iter().filter_map(part).collect()
    }

    /// Where a job that runs has its slots, for those who ask; nothing on a machine of one host.
    pub(super) fn on_hosts(&self, id: JobId) -> Vec<OnHost> {
        let part = |part: &Part| {
            Some(OnHost {
                host: self.host_name(part.host)?,
                slots: part.slots,
            })
        };
        let job = self.scheduler.job(id);
        let parts = job.into_iter().flat_map(|job| &job.parts);
        parts.filter_map(part).collect()
    }

    /// The host on which the command was called for which a job is held, if it is held for one.
    fn called_on<'a>(&'a self, shared: &'a Shared, order: &Order) -> Option<&'a str> {
        let own = &self.resources.host;
        // A user's job begins on this host in the queue of all users.
        let host = shared.host.as_ref();
        let host = host.filter(|_| self.resources.readable.is_none());
        is_interactive(order, &self.resources.program).then(|| host.unwrap_or(own).as_str())
    }

    /// The hosts of a job that has these parts.
    pub(super) fn site<'a>(
        &'a self,
        parts: &'a [HostPart],
        shared: &'a Shared,
        order: &Order,
    ) -> Site<'a> {
        let server = &self.resources.host;
        let first = parts.first().map_or(server, |part| &part.host);
        Site {
            server,
            node: self.called_on(shared, order).unwrap_or(first),
            parts,
            shell: self.hosts.as_ref().map_or(&[], |hosts| &hosts.shell),
        }
    }

    /// The other host on which a job begins, if it is one.
    pub(super) fn away(&self, parts: &[HostPart], shared: &Shared, order: &Order) -> Option<Away> {
        if let Some(host) = self.called_on(shared, order) {
            // A head before this one was on that host.
            return (host != self.resources.host).then(|| Away {
                host: host.to_owned(),
                shell: self.resources.shell.clone(),
            });
        }
        let (hosts, first) = (self.hosts.as_ref()?, parts.first()?);
        let known = hosts.known.iter().find(|host| host.name == first.host)?;
        (!known.is_here).then(|| Away {
            host: known.name.clone(),
            shell: hosts.shell.clone(),
        })
    }

    /// Stores where jobs that have just begun have their slots, for a head of another place.
    /// Without that it counts them, and does not know where they are.
    pub(super) fn store_parts(&self, jobs: &[JobId]) {
        if self.hosts.is_none() || !self.store.has_parts() || jobs.is_empty() {
            return;
        }
        let text = |id: &JobId| {
            let order = self.store.order(self.entries.get(id)?.order).ok()?;
            let parts = self.parts(*id, &order.1.wishes);
            Some((*id, serde_json::to_string(&parts).ok()?))
        };
        if let Err(text) = self.store.place(jobs.iter().filter_map(text).collect()) {
            log(&format!("where jobs are cannot be stored: {text}"));
        }
    }

    /// Gives a job that runs since before this head its places again.
    pub(super) fn find_parts(&self, id: JobId, runs: u32, slots: u32) -> Vec<Part> {
        let Some(hosts) = &self.hosts else {
            return Vec::new();
        };
        let folder = JobFolder::of(&self.resources.folder, id, runs);
        let stored = |text: &String| serde_json::from_slice(text.as_bytes()).ok();
        let parts: Vec<HostPart> = match self.stored_parts.get(&id).and_then(stored) {
            Some(parts) => parts,
            None => folder.order().map(|order| order.parts).unwrap_or_default(),
        };
        let part = |part: &HostPart| Part {
            host: hosts.number(&part.host),
            slots: part.slots,
        };
        if parts.is_empty() {
            // It began when this host was the machine.
            let host = hosts.number(&self.resources.host);
            return vec![Part { host, slots }];
        }
        parts.iter().map(part).collect()
    }

    /// The slots of a host.
    pub(super) fn slots_of(&self, name: &str) -> u32 {
        let hosts = self.hosts.iter().flat_map(|hosts| &hosts.known);
        let mut own = hosts.filter(|host| host.name == name);
        own.next().map_or(0, |host| host.slots)
    }

    /// The name of the host with this number.
    pub(super) fn host_name(&self, number: u32) -> Option<String> {
        let host = self.hosts.as_ref()?.known.get(number as usize)?;
        Some(host.name.clone())
    }

    /// The hosts as they are shown.
    pub(super) fn host_rows(&self) -> Vec<HostRow> {
        let Some(hosts) = &self.hosts else {
            return Vec::new();
        };
        let parts = |at: usize| {
            let parts = self.scheduler.running().flat_map(|job| &job.parts);
            parts.filter(move |part| part.host as usize == at)
        };
        let row = |(at, host): (usize, &KnownHost)| HostRow {
            name: host.name.clone(),
            slots: host.slots,
            // Those that take turns share theirs.
            used: parts(at)
                .map(|part| part.slots)
                .sum::<u32>()
                .min(host.slots),
            memory_mib: host.memory_mib,
            is_up: host.is_up,
            running: parts(at).count(),
            leaves: host.stay == Stay::Leaves,
            note: host.note.clone(),
        };
        let all = hosts.known.iter().enumerate();
        let there = all.filter(|(_, host)| host.stay != Stay::Gone);
        there.map(row).collect()
    }

    /// Ends the agents on other hosts.
    pub fn end_hosts(&mut self) {
        if let Some(hosts) = &mut self.hosts {
            hosts.end();
        }
    }
}
