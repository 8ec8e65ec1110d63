//! Spawning: a new job, started by a launcher of its own, whose processes connect back.
//!
//! The root runs the launcher beside this library with the port at which it waits. That launcher
//! leaves the root's family (it becomes an orphan, which the launcher of this job adopts), keeps a
//! connection to the root until its job has ended, and reports over it when it could not start the
//! processes. In a job on several hosts the root asks its host's agent instead, and the relay at
//! the launcher's host runs that launcher: from there all hosts of the job can be reached.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use margay_net_platform::asks::{Ask, Program, Spawn};
use margay_sys_os::port::Channel;
use margay_sys_shm::environment::{ENV_PARENT, ENV_SPAWN};

use margay_run_mpi::comm::Comm;
use margay_run_mpi::error::*;
use margay_run_mpi::info::Info;
use margay_run_mpi::launcher::launcher;
use margay_run_mpi::{fail, host_name};

use super::Dynamic;
use super::peer::Peer;
use super::port::Role;

/// One program of a spawn.
#[derive(Clone, Debug)]
pub struct Spawned {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How many processes at most.
    pub most: i32,
    /// Hints.
    pub hints: Info,
}

impl Spawned {
    fn hint(&self, key: &str) -> Option<&str> {
        let found = self.hints.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the number of processes: the largest that `soft` allows.
    fn processes(&self) -> Result<u32> {
        let Ok(most) = u32::try_from(self.most) else {
            fail!(
                MPI_ERR_ARG,
                "maxprocs is {}; it must not be negative",
                self.most
            );
        };
        let Some(soft) = self.hint("soft") else {
            return Ok(most);
        };
        let mut best = None;
        for triple in soft.split(',') {
            let parts: Option<Vec<i64>> = triple
                .trim()
                .split(':')
                .map(|n| n.trim().parse().ok())
                .collect();
            let (first, last, step) = match parts.as_deref() {
                Some([n]) => (*n, *n, 1),
                Some([first, last]) => (*first, *last, 1),
                Some([first, last, step]) if *step != 0 => (*first, *last, *step),
                _ => fail!(
                    MPI_ERR_INFO_VALUE,
                    "soft is '{soft}'; it is a list like 1:3, 5:9:2, 16"
                ),
            };
            let mut n = first;
            while (step > 0 && n <= last) || (step < 0 && n >= last) {
                if n >= 0 && n <= i64::from(most) {
                    best = best.max(Some(n as u32));
                }
                if n > i64::from(most) && step > 0 {
                    break;
                }
                n += step;
            }
        }
        match best {
            Some(n) => Ok(n),
            None => fail!(
                MPI_ERR_SPAWN,
                "soft '{soft}' allows no number of processes up to {most}"
            ),
        }
    }

    /// Returns the hosts on which it shall run, as the launcher's `-host` takes them; empty where
    /// the program leaves that open.
    fn hosts(&self) -> String {
        let hosts = self.hint("host").or_else(|| self.hint("hosts"));
        hosts.unwrap_or_default().trim().to_string()
    }

    /// Returns the launcher's words for this program, without processes and hosts.
    fn words(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        if let Some(directory) = self.hint("wdir") {
            words.extend(["-wdir".to_string(), directory.to_string()]);
        }
        if let Some(binding) = self.hint("bind") {
            words.extend(["-bind".to_string(), binding.to_string()]);
        }
        for line in self.hint("env").into_iter().flat_map(str::lines) {
            let Some((name, value)) = line.split_once('=') else {
                fail!(
                    MPI_ERR_INFO_VALUE,
                    "env has the line '{line}'; each is NAME=VALUE"
                );
            };
            words.extend(["-env".to_string(), name.to_string(), value.to_string()]);
        }
        words.push(self.program());
        words.extend(self.arguments.iter().cloned());
        Ok(words)
    }

    /// Returns the program, looked for in the folders of `path`.
    fn program(&self) -> String {
        if self.command.contains('/') {
            return self.command.clone();
        }
        let folders = self.hint("path").unwrap_or("").split([':', ' ', ',']);
        folders
            .filter(|folder| !folder.is_empty())
            .map(|folder| Path::new(folder).join(&self.command))
            .find(|path| path.is_file())
            .map_or_else(|| self.command.clone(), |path| path.display().to_string())
    }

    /// Adds the hints that stand in the file that `file` names, one `key = value` a line; those
    /// given come first.
    fn read_file(&mut self) -> Result<()> {
        let Some(file) = self.hint("file").map(str::to_string) else {
            return Ok(());
        };
        let text = std::fs::read_to_string(&file).map_err(|e| {
            Error::new(MPI_ERR_SPAWN, format!("cannot read the file '{file}': {e}"))
        })?;
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                fail!(
                    MPI_ERR_SPAWN,
                    "the file '{file}' has the line '{line}'; each is key = value"
                );
            };
            let (key, value) = (key.trim().to_string(), value.trim().to_string());
            if self.hint(&key).is_none() {
                self.hints.push((key, value));
            }
        }
        Ok(())
    }
}

impl Dynamic<'_> {
    /// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`; `programs` matter at the root. The handle of
    /// the inter-communicator. `tell` gets the error code of each process that was asked for.
    ///
    /// # Errors
    /// When the processes cannot be started.
    pub fn comm_spawn(
        &self,
        comm: &Arc<Comm>,
        root: i32,
        programs: impl FnOnce() -> Result<Vec<Spawned>>,
        tell: impl Fn(&[i32]),
    ) -> Result<u32> {
        let root = self.root_of(comm, root)?;
        let mut counts = Vec::new();
        let mut problem = None;
        let mut start = None;
        if comm.rank == root {
            match programs().and_then(prepare) {
                Ok((known, ready)) => {
                    counts = known;
                    start = Some(ready);
                }
                Err(error) => problem = Some(error),
            }
        }
        let counts = self.mpi.tell_group(comm, root, counts, problem)?;
        let handle = self.unite(comm, root, || match start {
            Some(start) => self.launch(start),
            None => fail!(MPI_ERR_INTERN, "the root has not prepared"),
        });
        let codes = counts.chunks_exact(2).flat_map(|c| {
            let (asked, there) = (c[0] as usize, c[1] as usize);
            let code = match &handle {
                Ok(_) => MPI_SUCCESS,
                Err(error) => error.code(),
            };
            (0..asked).map(move |i| if i < there { code } else { MPI_ERR_SPAWN })
        });
        tell(&codes.collect::<Vec<i32>>());
        handle
    }

    /// Starts a launcher for the programs, on this host or, where the job has agents, on that of
    /// its own launcher.
    fn launch(&self, programs: Vec<Program>) -> Result<(Peer, bool)> {
        let is_here = |hosts: &str| {
            let names = hosts.split(',').map(|name| name.split(':').next());
            names.flatten().all(|name| {
                name.is_empty() || name == "localhost" || name.eq_ignore_ascii_case(&host_name())
            })
        };
        let has_agents = self.mpi.own_address().system == 0;
        let is_far = has_agents || !programs.iter().all(|program| is_here(&program.hosts));
        let port = self.make_port(is_far)?;
        let mut channel = if has_agents {
            let ask = Ask::Spawn(Spawn {
                port: port.name().into(),
                programs,
                environment: std::env::vars_os().collect(),
                directory: std::env::current_dir().unwrap_or_default().into(),
            });
            self.ask(&ask)?.ok_or_else(|| {
                Error::new(
                    MPI_ERR_SPAWN,
                    "a job on several hosts spawns by the agents of mpiexec, and another launcher has started this one",
                )
            })?
        } else {
            start_launcher(&programs, port.name(), is_far)?
        };
        let mut hope = || match channel.receive() {
            Ok(None) => Ok(()),
            Ok(Some(text)) => {
                fail!(MPI_ERR_SPAWN, "{}", String::from_utf8_lossy(&text))
            }
            Err(_) => fail!(
                MPI_ERR_SPAWN,
                "the processes ended before all of them called MPI_Init"
            ),
        };
        self.join(Role::Accept(&port, &mut hope))
    }
}

/// Runs the launcher beside this library. `names_hosts`: the programs' hosts are others than this
/// one.
fn start_launcher(programs: &[Program], port: &str, names_hosts: bool) -> Result<Channel> {
    let failed = |what: &str, e: io::Error| Error::new(MPI_ERR_SPAWN, format!("{what}: {e}"));
    // No other process can get hold of this connection, as it could with a name.
    let connection = Channel::to_standard_input();
    let (channel, theirs) = connection.map_err(|e| failed("cannot wait for processes", e))?;
    let launcher = launcher();
    let mut command = Command::new(&launcher);
    command.arg0("mpiexec");
    for (at, program) in programs.iter().enumerate() {
        if at > 0 {
            command.arg(":");
        }
        command.arg("-n").arg(program.processes.to_string());
        if names_hosts {
            let named = Some(&program.hosts[..]).filter(|hosts| !hosts.is_empty());
            command.arg("-host").arg(named.unwrap_or("localhost"));
        }
        command.args(&program.words);
    }
    // It forks and its first process ends at once, so it is nobody's child here.
    let started = command
        .env(ENV_SPAWN, port)
        .env_remove(ENV_PARENT)
        .stdin(theirs)
        .status();
    match started {
        Ok(status) if !status.success() => fail!(
            MPI_ERR_SPAWN,
            "the launcher '{}' ended at once ({status})",
            launcher.display()
        ),
        // Where nobody waits for children, the status cannot be read.
        Err(e) if e.raw_os_error() != Some(10) => {
            let what = format!("cannot run the launcher '{}'", launcher.display());
            Err(failed(&what, e))
        }
        _ => Ok(channel),
    }
}

/// Returns the programs for the launcher, and the numbers of processes.
fn prepare(asked: Vec<Spawned>) -> Result<(Vec<i32>, Vec<Program>)> {
    let mut counts = Vec::new();
    let mut programs = Vec::new();
    for mut program in asked {
        program.read_file()?;
        let processes = program.processes()?;
        counts.extend([program.most, processes as i32]);
        if processes > 0 {
            programs.push(Program {
                processes,
                hosts: program.hosts(),
                words: program.words()?.into_iter().map(OsString::from).collect(),
            });
        }
    }
    if programs.is_empty() {
        fail!(MPI_ERR_SPAWN, "no process is to be spawned");
    }
    Ok((counts, programs))
}
