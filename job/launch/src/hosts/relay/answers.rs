//! What ranks ask of the launcher's host: names are published and looked up here, and launchers of
//! jobs that ranks spawn run here, from where all hosts can be reached.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use margay_net_platform::asks::{Ask, Spawn};
use margay_sys_os::port::Channel;
use margay_sys_os::services::{Published, look_up};
use margay_sys_os::signal;
use margay_sys_shm::environment::{ENV_PARENT, ENV_RANK, ENV_SPAWN};

use super::stacks::Stacks;
use super::wire::{Writer, kind};

/// How the launcher of a spawned job reaches its hosts: as that of this job does.
pub(super) struct Reach {
    /// The hosts as the user named them.
    pub(super) names: Vec<String>,
    pub(super) shell: Vec<OsString>,
    pub(super) width: usize,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) encrypts: bool,
    pub(super) stages: bool,
}

/// What a rank's connection stands for, until it ends.
enum Asked {
    /// The name is published as long as this lives.
    Name { _published: Published },
    /// The launcher of a spawned job.
    Job(Channel),
    /// The answer was all.
    Answered,
}

/// The connections of ranks, by their host and the number there.
pub(super) struct Answers {
    reach: Reach,
    /// Those who want to know where ranks are.
    pub(super) stacks: Stacks,
    open: BTreeMap<(usize, u64), Asked>,
}

impl Answers {
    /// Of the job with that number.
    pub(super) fn new(reach: Reach, job: u64) -> Answers {
        Answers {
            reach,
            stacks: Stacks::new(job),
            open: BTreeMap::new(),
        }
    }

    /// What becomes readable when the launcher of a spawned job has something to say, or somebody
    /// asks about ranks.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let launchers = self.open.values().filter_map(|asked| match asked {
            Asked::Job(channel) => Some(channel.as_fd()),
            _ => None,
        });
        launchers.chain(self.stacks.descriptors())
    }

    /// Answers a question; `own_names` are the names that the hosts give themselves, and
    /// `output_of` opens the output and the errors of a rank on that host once more. Returns the
    /// messages for the agent.
    pub(super) fn ask(
        &mut self,
        from: (usize, u64),
        question: &[u8],
        own_names: &[String],
        output_of: impl FnOnce(u32) -> [Option<File>; 2],
    ) -> Vec<u8> {
        let (asked, answer) = match Ask::decode(question) {
            Some(Ask::Lookup(service)) => {
                let found = look_up(&service);
                (Asked::Answered, Some(found.unwrap_or_default()))
            }
            Some(Ask::Publish { service, port }) => match Published::new(&service, &port) {
                Ok(published) => {
                    let name = Asked::Name {
                        _published: published,
                    };
                    (name, Some(String::new()))
                }
                Err(error) => (Asked::Answered, Some(not_published(&service, &error))),
            },
            Some(Ask::Spawn(spawn)) => match self.reach.spawn(&spawn, own_names, output_of) {
                Ok(channel) => (Asked::Job(channel), None),
                Err(text) => (Asked::Answered, Some(text)),
            },
            None => {
                let text = "the rank's library is of another version than its launcher";
                (Asked::Answered, Some(text.into()))
            }
        };
        self.open.insert(from, asked);
        answer.map_or_else(Vec::new, |text| answered(from.1, text.as_bytes()))
    }

    /// A rank has hung up.
    pub(super) fn end(&mut self, from: (usize, u64)) {
        self.open.remove(&from);
    }

    /// A host is gone, and with it all that its ranks have published.
    pub(super) fn end_of_host(&mut self, host: usize) {
        self.stacks.end_of_host(host);
        self.open.retain(|&(of, _), _| of != host);
    }

    /// What the launchers of spawned jobs have said, and questions about ranks, as messages for the
    /// agents of hosts. `host_of` gives the host of each rank.
    pub(super) fn turn(&mut self, host_of: &[u32]) -> Vec<(usize, Vec<u8>)> {
        let mut said = self.stacks.turn(host_of);
        self.open.retain(|&(host, number), asked| {
            let Asked::Job(channel) = asked else {
                return true;
            };
            loop {
                match channel.receive() {
                    Ok(None) => return true,
                    Ok(Some(text)) => said.push((host, answered(number, &text))),
                    Err(_) => {
                        let end = Writer::new(kind::HUNG_UP).number(number).done();
                        said.push((host, end));
                        return false;
                    }
                }
            }
        });
        said
    }
}

fn answered(number: u64, text: &[u8]) -> Vec<u8> {
    let mut message = Writer::new(kind::ANSWER);
    message.number(number).bytes(text).done()
}

fn not_published(service: &str, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!("the service '{service}' is published already"),
        _ => format!("cannot publish '{service}': {error}"),
    }
}

impl Reach {
    /// Starts the launcher of a job. It forks, and its first process ends at once. What the job
    /// writes is output of the rank that spawns it, as on one host.
    fn spawn(
        &self,
        spawn: &Spawn,
        own_names: &[String],
        output_of: impl FnOnce(u32) -> [Option<File>; 2],
    ) -> Result<Channel, String> {
        let failed = |error: io::Error| format!("cannot run a launcher for the processes: {error}");
        let (channel, theirs) = Channel::to_standard_input().map_err(failed)?;
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        command.arg0("mpiexec").args(self.words(spawn, own_names));
        command.env_clear().envs(spawn.environment.iter().cloned());
        command.env(ENV_SPAWN, &spawn.port).env_remove(ENV_PARENT);
        if !spawn.directory.is_empty() {
            command.current_dir(&spawn.directory);
        }
        let own_rank = spawn.environment.iter().find(|(name, _)| name == ENV_RANK);
        let own_rank = own_rank.and_then(|(_, value)| value.to_str()?.parse().ok());
        let [output, errors] = own_rank.map_or([None, None], output_of);
        if let Some(output) = output {
            command.stdout(output);
        }
        if let Some(errors) = errors {
            command.stderr(errors);
        }
        signal::take_defaults_in(&mut command);
        match command.stdin(theirs).status() {
            Ok(status) if status.success() => Ok(channel),
            Ok(status) => Err(format!(
                "the launcher of the processes ended at once ({status})"
            )),
            Err(error) => Err(failed(error)),
        }
    }

    fn words(&self, spawn: &Spawn, own_names: &[String]) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |text: String| words.push(text.into());
        if !self.shell.is_empty() {
            let shell: Vec<_> = self
                .shell
                .iter()
                .map(|word| word.to_string_lossy())
                .collect();
            add("-launcher-exec".into());
            add(shell.join(" "));
        }
        if let Some((first, last)) = self.ports {
            add("-port-range".into());
            add(format!("{first}:{last}"));
        }
        if self.encrypts {
            add("-encrypt".into());
        }
        if self.stages {
            add("-stage".into());
        }
        add("-tree-width".into());
        add(self.width.to_string());
        for (at, program) in spawn.programs.iter().enumerate() {
            if at > 0 {
                words.push(":".into());
            }
            let hosts = self.hosts(&program.hosts, program.processes, own_names);
            let own = ["-n", &program.processes.to_string(), "-host", &hosts];
            words.extend(own.map(OsString::from));
            words.extend(program.words.iter().cloned());
        }
        words
    }

    /// Returns the hosts for processes of a program: those that it asks for, by the names that the
    /// user gave them, or else blocks on all.
    fn hosts(&self, asked: &str, processes: u32, own_names: &[String]) -> String {
        if asked.is_empty() {
            let each = processes.div_ceil(self.names.len().max(1) as u32);
            let places = |name: &String| format!("{name}:{each}");
            return self.names.iter().map(places).collect::<Vec<_>>().join(",");
        }
        let known = |name: &str| {
            let (name, places) = name
                .split_once(':')
                .map_or((name, None), |(n, p)| (n, Some(p)));
            let known = own_names.iter().position(|own| own == name);
            let name = known.and_then(|at| self.names.get(at)).map_or(name, |n| n);
            places.map_or_else(|| name.into(), |places| format!("{name}:{places}"))
        };
        asked
            .split(',')
            .map(known)
            .collect::<Vec<String>>()
            .join(",")
    }
}

#[cfg(test)]
mod tests {
    use margay_net_platform::asks::Program;

    use super::*;

    #[test]
    fn a_spawned_job_is_started_as_its_parents_and_on_their_hosts() {
        let reach = Reach {
            names: vec!["a".into(), "10.0.0.2".into()],
            shell: vec!["ssh".into(), "-x".into()],
            width: 16,
            ports: Some((4000, 4100)),
            encrypts: true,
            stages: true,
        };
        let program = |processes, hosts: &str, word: &str| Program {
            processes,
            hosts: hosts.into(),
            words: vec![word.into()],
        };
        let spawn = Spawn {
            programs: vec![program(3, "", "./x"), program(1, "b:4,c", "./y")],
            ..Spawn::default()
        };
        let words = reach.words(&spawn, &["a".into(), "b".into()]);
        let text: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            text.join("|"),
            "-launcher-exec|ssh -x|-port-range|4000:4100|-encrypt|-stage|-tree-width|16|-n|3|-host|a:2,10.0.0.2:2|./x|:|-n|1|-host|10.0.0.2:4,c|./y"
        );
    }
}
