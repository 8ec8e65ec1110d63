//! Hosts that come into the machine while the queue is up, and hosts that leave it.

use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_job_launch::hosts::is_this_machine;
use margay_svc_queue_wire::{HostSpec, MachineSpec};

use super::{Hosts, KnownHost, Stay};
use crate::head::Head;
use crate::log;
use crate::start::remember_machine;

/// How long jobs may take to end whose allocation is over.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);

/// What is said of a host that has not answered yet.
const NO_ANSWER: &str = "no answer yet";
const NOT_WATCHED: &str = "the hosts cannot be watched";
/// What is said of a host that goes.
const LEAVES: &str = "leaves when its jobs have ended";

impl KnownHost {
    /// It goes when the jobs that run there have ended.
    pub(super) fn leave(&mut self) {
        (self.stay, self.note) = (Stay::Leaves, LEAVES.into());
    }
}

impl Hosts {
    /// Adds a host, or takes one back that leaves or has left.
    pub(super) fn add(&mut self, named: &HostSpec) -> Result<(), String> {
        let place = self.known.iter().position(|host| host.name == named.name);
        let at = place.unwrap_or(self.known.len());
        let asked_slots = named.slots.or(self.slots);
        match self.known.get_mut(at) {
            Some(known) if known.stay == Stay::Stays => {
                return Err(format!("the queue has the host '{}' already", named.name));
            }
            Some(known) => {
                let is_gone = known.stay == Stay::Gone;
                (known.stay, known.asked_slots) = (Stay::Stays, asked_slots);
                (known.is_up, known.note) = (false, NO_ANSWER.into());
                match is_gone {
                    true => self.agents.add(at, &named.name, &self.shell)?,
                    false => self.agents.ask_again(at),
                }
            }
            None => {
                self.agents.add(at, &named.name, &self.shell)?;
                self.known.push(KnownHost {
                    name: named.name.clone(),
                    asked_slots,
                    slots: 0,
                    memory_mib: 0,
                    is_up: false,
                    silent: None,
                    is_here: is_this_machine(&named.name),
                    stay: Stay::Stays,
                    note: NO_ANSWER.into(),
                });
            }
        }
        Ok(())
    }

    /// The machine as the next head gets it.
    fn spec(&self) -> MachineSpec {
        let all = self.known.iter().filter(|host| host.stay != Stay::Gone);
        MachineSpec {
            slots: self.slots,
            hosts: all
                .map(|host| HostSpec {
                    name: host.name.clone(),
                    slots: host.asked_slots,
                    leaves: host.stay == Stay::Leaves,
                })
                .collect(),
            shell: self.shell.clone(),
            hosts_from: self.hosts_from.clone(),
        }
    }
}

impl Head {
    /// Adds hosts to the machine: all or none.
    ///
    /// # Errors
    /// In words.
    pub fn add_hosts(&mut self, hosts: &[HostSpec]) -> Result<(), String> {
        let is_first = self.hosts.is_none();
        let mut queues = self.scheduler.settings().queues.iter();
        if let Some((name, _)) = queues.find(|(_, rules)| is_first && rules.gang.is_some()) {
            return Err(format!(
                "jobs of the queue '{name}' take turns in a partition of this host's cores, and on a machine of several in one \
                 of hosts; first: margay set queue {name} partition=none"
            ));
        }
        if is_first {
            self.hosts = Some(self.as_hosts()?);
        }
        let known = self.hosts.as_mut().ok_or(NOT_WATCHED)?;
        let stays = |host: &&KnownHost| host.stay == Stay::Stays;
        let stayed = known.known.iter().filter(stays);
        let stayed: Vec<String> = stayed.map(|host| host.name.clone()).collect();
        let added = hosts.iter().try_for_each(|host| known.add(host));
        let added = added.and_then(|()| self.keep_machine());
        if let Err(text) = added {
            self.take_back(&stayed, is_first);
            return Err(text);
        }
        if is_first {
            // They have nothing that a remote shell needs.
            self.idle.clear();
        }
        self.use_hosts();
        Ok(())
    }

    /// This host, which alone was the machine until now, as the first of several.
    fn as_hosts(&self) -> Result<Hosts, String> {
        let spec = MachineSpec {
            hosts: vec![HostSpec {
                name: self.resources.host.clone(),
                slots: Some(self.resources.slots),
                leaves: false,
            }],
            shell: self.resources.shell.clone(),
            slots: None,
            hosts_from: None,
        };
        let agents = self.spare_agents.as_ref().ok_or(NOT_WATCHED)?;
        let mut hosts = Hosts::new(&spec, agents.anew()?)?;
        // It is there at once, so that no job waits for it.
        hosts.wait(super::ANSWERED_WITHIN)?;
        Ok(hosts)
    }

    /// Takes hosts back but those that were in the machine before.
    fn take_back(&mut self, stayed: &[String], is_first: bool) {
        let Some(known) = &mut self.hosts else { return };
        if is_first {
            known.end();
            self.hosts = None;
            return;
        }
        for host in &mut known.known {
            if host.stay == Stay::Stays && !stayed.contains(&host.name) {
                host.leave();
            }
        }
        self.let_go();
    }

    /// Lets hosts leave when the jobs there have ended; with `now` these end, and wait again.
    ///
    /// # Errors
    /// In words; nothing has changed then.
    pub fn remove_hosts(&mut self, names: &[String], now: bool) -> Result<(), String> {
        let known = self
            .hosts
            .as_mut()
            .map_or(&mut [][..], |hosts| &mut hosts.known);
        let stays = |host: &KnownHost| host.stay != Stay::Gone;
        if let Some(name) = names
            .iter()
            .find(|name| !known.iter().any(|host| stays(host) && host.name == **name))
        {
            let all: Vec<&str> = known
                .iter()
                .filter(|h| stays(h))
                .map(|h| &*h.name)
                .collect();
            return Err(match &all[..] {
                [] => "the queue has this host alone; margay down ends it".into(),
                all => format!("the queue has no host '{name}'; it has {}", all.join(", ")),
            });
        }
        let is_meant = |host: &KnownHost| names.contains(&host.name);
        if !known
            .iter()
            .any(|host| host.stay == Stay::Stays && !is_meant(host))
        {
            return Err("no host would be left; margay down ends the queue".into());
        }
        let mut leaving = Vec::new();
        for (at, host) in known.iter_mut().enumerate() {
            if is_meant(host) && host.stay != Stay::Gone {
                host.leave();
                leaving.push(at);
            }
        }
        self.keep_machine()?;
        self.use_hosts();
        if now {
            let is_there = |host: u32| leaving.contains(&(host as usize));
            let jobs = self.scheduler.running();
            let jobs = jobs.filter(|job| job.parts.iter().any(|part| is_there(part.host)));
            let jobs: Vec<JobId> = jobs.map(|job| job.id).collect();
            self.preempt(&jobs);
        }
        self.let_go();
        Ok(())
    }

    /// Whether all of these hosts have answered in one way or the other.
    #[must_use]
    pub fn have_answered(&self, names: &[HostSpec]) -> bool {
        let mut known = self.hosts.iter().flat_map(|hosts| &hosts.known);
        !known.any(|host| host.note == NO_ANSWER && names.iter().any(|n| n.name == host.name))
    }

    /// Ends the agents of hosts that leave and on which no job runs any more.
    pub(super) fn let_go(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        let mut any = false;
        for (at, host) in hosts.known.iter_mut().enumerate() {
            if host.stay == Stay::Leaves && !self.scheduler.is_used(at) {
                (host.stay, host.is_up) = (Stay::Gone, false);
                hosts.agents.remove(at);
                log(&format!("host {} has left", host.name));
                any = true;
            }
        }
        // A head that has it all the same lets it go as well.
        if any && let Err(text) = self.keep_machine() {
            log(&text);
        }
    }

    /// Follows the hosts that there are now: of the allocation of Slurm in which this machine is,
    /// or those that the user's command prints.
    pub(super) fn follow_allocation(&mut self, now: &[HostSpec]) {
        let Some(hosts) = &mut self.hosts else { return };
        let names: Vec<String> = now.iter().map(|host| host.name.clone()).collect();
        let old = std::mem::replace(&mut hosts.allocation, names.clone());
        let stays = |name: &String| {
            let mut all = hosts.known.iter();
            all.any(|host| host.name == *name && host.stay == Stay::Stays && !host.is_here)
        };
        let gone = old
            .iter()
            .filter(|name| !names.contains(name) && stays(name));
        let gone: Vec<String> = gone.cloned().collect();
        let is_new = |host: &&HostSpec| !old.contains(&host.name) && !stays(&host.name);
        let new: Vec<HostSpec> = now.iter().filter(is_new).cloned().collect();
        let mut done = Ok(());
        // First: those that leave may be all that there were.
        if !new.is_empty() {
            done = self.add_hosts(&new);
        }
        if !gone.is_empty() {
            log(&format!("not of the machine any more: {}", gone.join(", ")));
            done = done.and_then(|()| self.remove_hosts(&gone, true));
        }
        if let Err(text) = done {
            log(&format!("its hosts cannot be followed: {text}"));
        }
    }

    /// The allocation is over: all hosts leave, also this one, and what runs waits for the next
    /// head.
    pub(super) fn release(&mut self) {
        let Some(hosts) = self.hosts.as_mut().filter(|hosts| hosts.released.is_none()) else {
            return;
        };
        hosts.released = Some(Instant::now());
        log("the allocation is over: the queue ends, and its jobs wait for the next margay up");
        let staying = |host: &&mut KnownHost| host.stay == Stay::Stays;
        hosts
            .known
            .iter_mut()
            .filter(staying)
            .for_each(KnownHost::leave);
        self.use_hosts();
        let jobs: Vec<JobId> = self.scheduler.running().map(|job| job.id).collect();
        self.preempt(&jobs);
    }

    /// Where the hosts are to go with their allocation: whether no job has any of them any more, or
    /// those that have do not end.
    #[must_use]
    pub fn is_released(&self) -> Option<bool> {
        let since = self.hosts.as_ref()?.released?;
        let is_idle = self.scheduler.running().next().is_none();
        Some(is_idle || since.elapsed() >= RELEASED_WITHIN)
    }

    /// Stores the machine for the next head.
    fn keep_machine(&self) -> Result<(), String> {
        let Some(hosts) = &self.hosts else {
            return Ok(());
        };
        let spec = hosts.spec();
        remember_machine(&self.resources.folder, &spec)?;
        self.store.set_machine(&spec.words().join("\n"))
    }
}
