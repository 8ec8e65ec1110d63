//! From the task to the start of the ranks.

use std::io;

use margay_core_registry::hosts::{Host, Location};
use margay_sys_os::process;
use margay_sys_os::sockets::own_addresses;
use margay_sys_shm::environment::ENV_PORT_RANGE;

use super::records::Records;
use super::{Agent, Stage};
use crate::hosts::local;
use crate::hosts::stage::{Source, Staged};
use crate::hosts::task::Task;
use crate::hosts::wire::{Writer, kind};
use crate::plan::LaunchError;
use crate::report::host_name;
use crate::setup;

impl Agent {
    /// Takes the launcher's place in the system as far as the ranks see it, and listens.
    pub(super) fn prepare(&mut self, task: Box<Task>) {
        for (name, value) in &task.environment {
            let bytes = name.as_encoded_bytes();
            if !bytes.is_empty() && !bytes.contains(&b'=') {
                process::set_variable(name, value);
            }
        }
        if let Some((first, last)) = task.ports {
            process::set_variable(ENV_PORT_RANGE, format!("{first}:{last}"));
        }
        self.records = Records::listen();
        let entered = std::env::set_current_dir(&task.directory).map_err(|error| {
            LaunchError::usage(format!(
                "cannot enter the directory '{}', in which the launcher is: {error}; make it there, or start the job from one \
                 that all hosts have (-wdir names one for the ranks)",
                task.directory.display()
            ))
        });
        let is_staged = task.staged.iter().all(|&length| length > 0);
        let has_own = task.job.programs.iter().all(|p| {
            p.directory.as_ref().is_some_and(|d| d.is_absolute())
                && (is_staged || p.command.as_encoded_bytes().starts_with(b"/"))
        });
        let listening = match entered {
            Err(error) if !has_own => Err(error),
            _ => local::listeners(&task),
        };
        let listeners = match listening {
            Ok(listeners) => listeners,
            Err(error) => return self.fail(&error),
        };
        let has_ranks = |program: usize| task.ranks.iter().any(|own| own.program == program);
        let passes_on = !self.branches.is_empty();
        let comes = |(program, &length): (usize, &u64)| {
            let comes = length > 0 && (passes_on || has_ranks(program));
            comes.then(|| Staged::new(length)).transpose()
        };
        match task.staged.iter().enumerate().map(comes).collect() {
            Ok(staged) => self.stage = Stage::Staging(task, listeners, staged),
            Err(error) => return self.fail(&cannot_stage(&error)),
        }
        self.get_ready();
    }

    /// Takes a piece of a program.
    pub(super) fn take_program(&mut self, program: usize, bytes: &[u8]) {
        let Stage::Staging(task, _, staged) = &mut self.stage else {
            return;
        };
        let Some(coming) = staged.get_mut(program) else {
            return;
        };
        let added = coming.as_mut().map(|staged| staged.add(bytes));
        match added.transpose() {
            Ok(Some(Some(path))) => {
                *coming = None;
                let passed_on = (!self.branches.is_empty()).then(|| path.clone());
                task.job.programs[program].file = Some(path);
                match passed_on
                    .map(|path| Source::open(program, path))
                    .transpose()
                {
                    Ok(source) => source.into_iter().for_each(|own| self.branches.add(own)),
                    Err(error) => return self.fail(&error),
                }
                self.get_ready();
            }
            Ok(_) => {}
            Err(error) => {
                self.stage = Stage::New;
                self.fail(&cannot_stage(&error));
            }
        }
    }

    /// Says that the ranks may start here, when all of their programs are there.
    pub(super) fn get_ready(&mut self) {
        let (task, listeners) = match std::mem::replace(&mut self.stage, Stage::New) {
            Stage::Staging(task, listeners, staged) if staged.iter().all(Option::is_none) => {
                (task, listeners)
            }
            other => {
                self.stage = other;
                return;
            }
        };
        // Before a rank starts anywhere.
        let programs = task.job.programs.iter().enumerate();
        let mut own =
            programs.filter(|(program, _)| task.ranks.iter().any(|own| own.program == *program));
        if let Some(error) = own.find_map(|(_, program)| setup::find_program(program).err()) {
            return self.fail(&error);
        }
        let mut ready = Writer::new(kind::READY);
        ready.number(u64::from(std::process::id()));
        ready.bytes(host_name().as_bytes());
        let addresses = own_addresses();
        ready.number(addresses.len() as u64);
        for address in addresses {
            ready.bytes(address.to_string().as_bytes());
        }
        ready.number(local::cores_number());
        ready.number(listeners.len() as u64);
        for listener in &listeners {
            ready.number(listener.local_addr().map_or(0, |a| a.port()).into());
        }
        let ready = ready.done();
        self.say(&ready);
        self.stage = Stage::Ready(task, listeners);
    }

    pub(super) fn go(&mut self, hosts: &[Host], locations: &[Location]) {
        match std::mem::replace(&mut self.stage, Stage::New) {
            Stage::Ready(task, listeners) => {
                let agent = self.asks.as_ref().map(|asks| &asks.name[..]);
                let branches = &mut self.branches;
                match local::start(&task, listeners, (hosts, locations), agent, branches) {
                    Ok(local) => {
                        for line in &local.lines {
                            let mut said = Writer::new(kind::SAID);
                            let said = said.bytes(line.as_bytes()).done();
                            self.say(&said);
                        }
                        self.stage = Stage::Running(task, local);
                    }
                    Err(error) => self.fail(&error),
                }
            }
            other => self.stage = other,
        }
    }
}

fn cannot_stage(error: &io::Error) -> LaunchError {
    LaunchError::system(format!(
        "-stage: cannot keep the program in memory: {error}; copy it to the host and leave -stage out"
    ))
}
