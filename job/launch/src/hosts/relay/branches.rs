//! The tree of agents: which remote shells the launcher's host starts, and which other hosts do.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use super::Relay;
use crate::hosts::connection::{Connection, Heard, Stage};
use crate::hosts::shell;
use crate::hosts::stage::{Sending, Source};
use crate::hosts::task::Task;
use crate::hosts::wire::{Broken, Reader, Writer, kind};

/// So long an agent may take that another one starts. Then it is started from here.
const START_LIMIT: Duration = Duration::from_secs(12);

/// What is needed to start the agents.
pub(super) struct Starts {
    /// The hosts.
    pub(super) names: Vec<String>,
    pub(super) tasks: Vec<Task>,
    /// The words of the remote shell.
    pub(super) shell: Vec<OsString>,
    /// The programs that are sent to the hosts.
    pub(super) sources: Vec<Source>,
    /// The host that starts the agent of each; none is the launcher's.
    pub(super) parents: Vec<Option<usize>>,
}

/// Returns which host starts the agent of each: the launcher's up to `width`, those as many each,
/// and so on. This machine needs no remote shell. A width of 0 leaves all to the launcher's.
pub(super) fn parents(names: &[String], width: usize) -> Vec<Option<usize>> {
    let mut parents = vec![None; names.len()];
    let all = names.iter().enumerate();
    let far: Vec<usize> = all
        .filter(|(_, name)| !shell::is_here(name))
        .map(|(at, _)| at)
        .collect();
    if width > 0 {
        for (nth, &at) in far.iter().enumerate().skip(width) {
            parents[at] = Some(far[nth / width - 1]);
        }
    }
    parents
}

impl Starts {
    /// Starts the agents, or asks those that do.
    ///
    /// # Errors
    /// When a remote shell cannot be started.
    pub(super) fn open_all(&self) -> io::Result<Vec<Connection>> {
        let all = 0..self.names.len();
        all.map(|at| self.open(at, self.parents[at])).collect()
    }

    /// Starts the agent of a host, from here or by that of another host, and says its task.
    fn open(&self, at: usize, parent: Option<usize>) -> io::Result<Connection> {
        let name = self.names[at].clone();
        let mut host = match parent {
            Some(parent) => Connection::through(parent, (at, name), self.programs_through(at)),
            None => {
                let words = (!shell::is_here(&name)).then_some(&self.shell[..]);
                let child = shell::start(&name, words).map_err(|error| {
                    let word = self.shell.first().map(|w| w.to_string_lossy().into_owned());
                    let word = word.unwrap_or_default();
                    io::Error::other(format!(
                        "host {name}: cannot run '{word}': {error}; install it, or name another remote shell with -launcher-exec"
                    ))
                })?;
                let programs = self.programs_through(at);
                let sources = self.sources.iter();
                let sources = sources.filter(|source| programs.contains(&source.number()));
                Connection::new(name, child, Sending::new(sources.cloned().collect()))?
            }
        };
        for child in self.children(at) {
            let mut start = Writer::new(kind::START);
            start.number(child as u64);
            start.bytes(self.names[child].as_bytes());
            start.number(self.shell.len() as u64);
            for word in &self.shell {
                start.bytes(word.as_bytes());
            }
            host.say(&start.done());
        }
        host.say(&self.tasks[at].encode());
        Ok(host)
    }

    fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        let parents = self.parents.iter().enumerate();
        let own = parents.filter(move |(_, parent)| **parent == Some(at));
        own.map(|(child, _)| child)
    }

    /// The numbers of the programs that a host is sent: those that its ranks run, and those of the
    /// hosts behind it.
    fn programs_through(&self, at: usize) -> Vec<u64> {
        let runs = |number: u64| {
            let own = &self.tasks[at].ranks;
            own.iter().any(|own| own.program as u64 == number)
        };
        let all = self.sources.iter().map(Source::number);
        match self.children(at).next() {
            // It takes all, as it passes all on.
            Some(_) => all.collect(),
            None => all.filter(|&number| runs(number)).collect(),
        }
    }
}

impl Relay {
    /// The hosts behind a host, nearest first.
    pub(super) fn behind(&self, at: usize) -> Vec<usize> {
        let mut found = vec![at];
        let mut next = 0;
        while next < found.len() {
            let hosts = self.hosts.iter().enumerate();
            let children = hosts.filter(|(_, host)| host.parent() == Some(found[next]));
            let children: Vec<usize> = children.map(|(child, _)| child).collect();
            found.extend(children);
            next += 1;
        }
        found.remove(0);
        found
    }

    /// Hands what is to be said to hosts behind others to those. Later hosts are behind earlier
    /// ones.
    pub(super) fn pass_down(&mut self) {
        for at in (0..self.hosts.len()).rev() {
            let Some(parent) = self.hosts[at].parent() else {
                continue;
            };
            while let Some(message) = self.hosts[at].next_down() {
                self.hosts[parent].say(&message);
            }
        }
    }

    /// Says nothing more to an agent that has nothing of the job, nor has any behind it.
    pub(super) fn close_if_all_is_over(&mut self, at: usize) {
        let is_over = |at: usize| self.hosts[at].stage >= Stage::Empty;
        if is_over(at) && self.behind(at).into_iter().all(is_over) {
            self.hosts[at].close();
        }
        if let Some(parent) = self.hosts[at].parent() {
            self.close_if_all_is_over(parent);
        }
    }

    /// What an agent passes on from a host behind it: which one, and what is heard of it.
    pub(super) fn passed_up(
        &mut self,
        at: usize,
        kind: u8,
        body: &[u8],
    ) -> Result<Option<(usize, Heard)>, Broken> {
        if !matches!(kind, kind::UP | kind::ROOM | kind::SHELL_ENDED) {
            return Ok(None);
        }
        let mut from = Reader(body);
        let child: usize = from.small()?;
        let Some(host) = self.hosts.get_mut(child) else {
            return Err(Broken);
        };
        // It may have been given up, or started from here, since that was said.
        if host.parent() != Some(at) || !host.is_there() {
            return Ok(None);
        }
        Ok(Some((
            child,
            match kind {
                kind::UP => {
                    let is_error = from.number()? != 0;
                    host.arrive(is_error, from.bytes()?)
                }
                kind::ROOM => {
                    host.add_room(from.small()?);
                    Heard::Messages(Vec::new())
                }
                _ => host.end(
                    from.small::<i32>()?
                        .checked_sub(1)
                        .filter(|code| *code >= 0),
                ),
            },
        )))
    }

    /// Starts an agent from here that another host could not start, and those behind it anew.
    /// Returns false when it has been started from here before, or runs.
    pub(super) fn start_from_here(&mut self, at: usize) -> bool {
        let host = &mut self.hosts[at];
        let Some(parent) = host.parent().filter(|_| host.stage == Stage::Starting) else {
            return false;
        };
        if self.kill_by.is_some() || !self.hosts[parent].is_there() {
            return false;
        }
        let cut = Writer::new(kind::CUT).number(at as u64).done();
        self.hosts[parent].say(&cut);
        self.starts.parents[at] = None;
        let behind = self.behind(at);
        for at in std::iter::once(at).chain(behind) {
            match self.starts.open(at, self.starts.parents[at]) {
                Ok(host) => self.hosts[at] = host,
                Err(error) => self.complain(error.to_string(), 1),
            }
        }
        true
    }

    /// Starts from here what other hosts have had time enough for.
    pub(super) fn start_what_takes_long(&mut self) {
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let began = host.parent().map(|parent| self.hosts[parent].greeted);
            if let (Stage::Starting, Some(Some(began))) = (host.stage, began)
                && Instant::now() >= began.max(host.heard) + START_LIMIT
            {
                self.start_from_here(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_starts_as_many_as_the_tree_is_wide() {
        let names = |n: usize| (0..n).map(|at| format!("far{at}")).collect::<Vec<_>>();
        assert_eq!(parents(&names(3), 0), [None; 3]);
        let two = [None, None, Some(0), Some(0), Some(1), Some(1), Some(2)];
        assert_eq!(parents(&names(7), 2), two);
        let mut with_own = names(3);
        with_own.insert(1, "localhost".into());
        assert_eq!(parents(&with_own, 1), [None, None, Some(0), Some(2)]);
    }
}
