//! How a job is divided among its hosts.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use margay_core_registry::hosts::{Host, Location, SECRET};
use margay_core_registry::network;
use margay_sys_os::sockets::fill_random;
use margay_sys_shm::segment::Segment;

use super::answers::Reach;
use super::branches::{self, Starts};
use crate::hosts::local;
use crate::hosts::stage::Source;
use crate::hosts::task::{OwnRank, Task};
use crate::plan::{Hosts, Job, LaunchError, StdinTo};
use crate::setup::find_program;

/// What the relay needs to start a job.
pub(crate) struct Plan {
    pub(super) starts: Starts,
    pub(super) host_of: Vec<u32>,
    pub(super) reach: Reach,
    /// Where what the hosts record goes.
    pub(crate) parts: Option<OwnedFd>,
    /// Whether the launcher's standard input goes to a rank.
    pub(super) has_input: Vec<bool>,
}

impl Plan {
    /// Divides a job among its hosts, and enters them in the launcher's segment.
    ///
    /// # Errors
    /// When the system refuses what is needed for that.
    pub(crate) fn new(
        (job, parent): (&Job, Option<&str>),
        hosts: &Hosts,
        counts: &[u32],
        places: &[(u32, u32)],
        segment: &Arc<Segment>,
    ) -> Result<Plan, LaunchError> {
        let failed =
            |what: &str, error: io::Error| LaunchError::system(format!("cannot {what}: {error}"));
        let ranks: u32 = counts.iter().sum();
        let (names, host_of) = hosts.assign(counts);
        let (mut secret, mut own) = ([0; SECRET], [0; SECRET]);
        for random in [&mut secret, &mut own] {
            fill_random(random).map_err(|e| failed("make the job's secret", e))?;
        }
        let directory = std::env::current_dir()
            .map_err(|e| failed("find the working directory, which the ranks shall have", e))?;
        let mut of_agents = job.clone();
        for program in &mut of_agents.programs {
            program.directory = program.directory.as_ref().map(|own| directory.join(own));
        }
        let mut sources = Vec::new();
        if hosts.stages {
            for (number, program) in job.programs.iter().enumerate() {
                sources.push(Source::open(number, find_program(program)?)?);
            }
        }
        let staged = |program: usize| sources.get(program).map_or(0, |source| source.length);
        let staged: Vec<u64> = (0..job.programs.len()).map(staged).collect();
        let programs = (0..).zip(counts);
        let program_of: Vec<usize> = programs
            .flat_map(|(program, &n)| std::iter::repeat_n(program, n as usize))
            .collect();
        let has_input: Vec<bool> = (0..ranks)
            .map(|rank| match job.stdin {
                StdinTo::Rank(r) => r == rank,
                StdinTo::All => true,
                StdinTo::Nobody => false,
            })
            .collect();
        let all: Vec<(usize, (u32, u32))> = program_of
            .iter()
            .copied()
            .zip(places.iter().copied())
            .collect();
        let task = |host: u32| Task {
            job: of_agents.clone(),
            number: u64::from(std::process::id()),
            host,
            secret,
            ports: hosts.ports,
            encrypts: hosts.encrypts,
            parent: parent.map(str::to_owned),
            merges: job.capture.merges,
            ranks: (0..ranks)
                .filter(|&rank| host_of[rank as usize] == host)
                .map(|rank| OwnRank {
                    rank,
                    program: program_of[rank as usize],
                    has_input: has_input[rank as usize],
                })
                .collect(),
            all: all.clone(),
            environment: std::env::vars_os()
                .filter(|(name, _)| name != network::VARIABLE_TOKEN)
                .collect(),
            directory: directory.clone(),
            staged: staged.clone(),
        };
        let tasks = (0..names.len() as u32).map(task).collect();
        let locations: Vec<Location> = host_of
            .iter()
            .map(|&host| Location { host, port: 0 })
            .collect();
        let named = |name: &String| Host {
            name: name.clone(),
            addresses: Vec::new(),
            cores: 0,
        };
        let known: Vec<Host> = names.iter().map(named).collect();
        // The launcher's own segment is no rank's: it need not know the secret. What stands there
        // tells this job from others for those who look at it.
        let here = (u32::MAX, hosts.encrypts);
        local::enter_hosts(segment, &own, here, (&known, &locations))?;
        let reach = Reach {
            names: names.clone(),
            shell: hosts.shell.clone(),
            width: hosts.width,
            ports: hosts.ports,
            encrypts: hosts.encrypts,
            stages: hosts.stages,
        };
        let starts = Starts {
            parents: branches::parents(&names, hosts.width),
            names,
            tasks,
            shell: hosts.shell.clone(),
            sources,
        };
        Ok(Plan {
            reach,
            starts,
            host_of,
            parts: None,
            has_input,
        })
    }

    /// The only rank of a job writes its output and its errors into one pipe.
    pub(crate) fn merge(&mut self) {
        for task in &mut self.starts.tasks {
            task.merges = true;
        }
    }

    /// The hosts, in their order.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.starts.names
    }

    /// The number and the name of a rank's host.
    pub(crate) fn place(&self, rank: u32) -> (u32, String) {
        let host = self.host_of[rank as usize];
        (host, self.starts.names[host as usize].clone())
    }

    /// Returns which ranks are where, if the user wants to know.
    pub(crate) fn map(&self, job: &Job) -> Vec<String> {
        if !job.tell.map {
            return Vec::new();
        }
        let hosts = (0..).zip(&self.starts.names);
        hosts
            .map(|(host, name)| {
                let ranks = (0u32..).zip(&self.host_of);
                let ranks = ranks.filter(|&(_, &of)| of == host);
                let ranks: Vec<String> = ranks.map(|(rank, _)| rank.to_string()).collect();
                format!("{}: host {name}: ranks {}", job.launcher, ranks.join(" "))
            })
            .collect()
    }
}
