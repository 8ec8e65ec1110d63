//! An agent's task: its ranks and their programs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use margay_core_registry::hosts::SECRET;

use super::wire::{Broken, Reader, Writer, kind};
use crate::plan::{Binding, Inherit, Job, LaunchError, Layout, Program};

/// A rank of the agent's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnRank {
    pub(super) rank: u32,
    pub(super) program: usize,
    /// Standard input comes from the launcher.
    pub(super) has_input: bool,
}

/// An agent's task.
#[derive(Debug)]
pub(super) struct Task {
    /// The programs, and how their ranks are bound.
    pub(super) job: Job,
    /// The job's number.
    pub(super) number: u64,
    /// The number of the host.
    pub(super) host: u32,
    pub(super) secret: [u8; SECRET],
    pub(super) ports: Option<(u16, u16)>,
    /// Whether packets between hosts are encrypted.
    pub(super) encrypts: bool,
    /// The port of the processes that spawn the job.
    pub(super) parent: Option<String>,
    /// Standard error goes where standard output goes.
    pub(super) merges: bool,
    pub(super) ranks: Vec<OwnRank>,
    /// The program of every rank of the job, and NX's place of it.
    pub(super) all: Vec<(usize, (u32, u32))>,
    /// The launcher's environment and working directory.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) directory: PathBuf,
}

fn list<T>(
    reader: &mut Reader<'_>,
    mut one: impl FnMut(&mut Reader<'_>) -> Result<T, Broken>,
) -> Result<Vec<T>, Broken> {
    let len = reader.small::<usize>()?;
    // A length that lies ends at the end of the bytes.
    (0..len).map(|_| one(reader)).collect()
}

fn word(reader: &mut Reader<'_>) -> Result<OsString, Broken> {
    Ok(OsString::from_vec(reader.bytes()?.to_vec()))
}

fn pair(reader: &mut Reader<'_>) -> Result<(OsString, OsString), Broken> {
    Ok((word(reader)?, word(reader)?))
}

fn put_pairs(to: &mut Writer, pairs: &[(OsString, OsString)]) {
    to.number(pairs.len() as u64);
    for (name, value) in pairs {
        to.bytes(name.as_bytes()).bytes(value.as_bytes());
    }
}

impl Task {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(kind::TASK);
        to.number(self.number).number(self.host.into());
        to.bytes(&self.secret);
        let (first, last) = self.ports.unwrap_or((0, 0));
        to.number(first.into()).number(last.into());
        to.number(self.encrypts.into());
        to.bytes(self.parent.as_deref().unwrap_or_default().as_bytes());
        to.number(self.merges.into());
        to.number(self.job.continue_on_failure.into());
        to.number(self.job.report_bindings.into());
        to.bytes(self.job.launcher.as_bytes());
        to.number(match self.job.binding {
            Binding::None => 0,
            Binding::Cores(each) => 2 + u64::from(each),
            Binding::Core => 2,
            _ => 1,
        });
        to.number(self.ranks.len() as u64);
        for own in &self.ranks {
            to.number(own.rank.into()).number(own.program as u64);
            to.number(own.has_input.into());
        }
        to.number(self.all.len() as u64);
        for (program, (node, process_type)) in &self.all {
            to.number(*program as u64);
            to.number((*node).into()).number((*process_type).into());
        }
        put_pairs(&mut to, &self.environment);
        to.bytes(self.directory.as_os_str().as_bytes());
        to.number(self.job.programs.len() as u64);
        for program in &self.job.programs {
            put_program(&mut to, program);
        }
        to.done()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Task, Broken> {
        let from = &mut Reader(body);
        let (number, host) = (from.number()?, from.small()?);
        let secret = from.bytes()?.try_into().map_err(|_| Broken)?;
        let ports = (from.small::<u16>()?, from.small::<u16>()?);
        let encrypts = from.number()? != 0;
        let parent = from.text()?;
        let merges = from.number()? != 0;
        let continue_on_failure = from.number()? != 0;
        let report_bindings = from.number()? != 0;
        let mut job = Job::new(&from.text()?);
        job.continue_on_failure = continue_on_failure;
        job.report_bindings = report_bindings;
        job.binding = match from.number()? {
            0 => Binding::None,
            1 => Binding::Auto,
            2 => Binding::Core,
            more => Binding::Cores(u32::try_from(more - 2).map_err(|_| Broken)?),
        };
        let ranks = list(from, |from| {
            Ok(OwnRank {
                rank: from.small()?,
                program: from.small()?,
                has_input: from.number()? != 0,
            })
        })?;
        let all = list(from, |from| {
            Ok((from.small()?, (from.small()?, from.small()?)))
        })?;
        let environment = list(from, pair)?;
        let directory = PathBuf::from(word(from)?);
        job.programs = list(from, program)?;
        let programs = job.programs.len();
        let is_known = |own: &OwnRank| (own.rank as usize) < all.len() && own.program < programs;
        if !ranks.iter().all(is_known) || !all.iter().all(|(program, _)| *program < programs) {
            return Err(Broken);
        }
        Ok(Task {
            job,
            number,
            host,
            secret,
            ports: (ports.0 != 0).then_some(ports),
            encrypts,
            parent: (!parent.is_empty()).then_some(parent),
            merges,
            ranks,
            all,
            environment,
            directory,
        })
    }
}

fn put_program(to: &mut Writer, program: &Program) {
    to.bytes(program.command.as_bytes());
    to.number(program.arguments.len() as u64);
    for argument in &program.arguments {
        to.bytes(argument.as_bytes());
    }
    let directory = program.directory.as_ref().map(|d| d.as_os_str().as_bytes());
    to.bytes(directory.unwrap_or_default());
    let (which, names): (u64, &[OsString]) = match &program.inherit {
        Inherit::All => (0, &[]),
        Inherit::Only(names) => (1, names),
        Inherit::Except(names) => (2, names),
    };
    to.number(which).number(names.len() as u64);
    for name in names {
        to.bytes(name.as_bytes());
    }
    put_pairs(to, &program.environment);
}

fn program(from: &mut Reader<'_>) -> Result<Program, Broken> {
    let command = word(from)?;
    let arguments = list(from, word)?;
    let directory = word(from)?;
    let which = from.number()?;
    let names = list(from, word)?;
    Ok(Program {
        ranks: None,
        command,
        arguments,
        process_type: 0,
        nodes: None,
        directory: (!directory.is_empty()).then(|| directory.into()),
        inherit: match which {
            0 => Inherit::All,
            1 => Inherit::Only(names),
            _ => Inherit::Except(names),
        },
        environment: list(from, pair)?,
    })
}

/// Refuses what several hosts cannot do.
pub(crate) fn check(job: &Job) -> Result<(), LaunchError> {
    let is_simple = matches!(
        job.binding,
        Binding::Auto | Binding::None | Binding::Core | Binding::Cores(_)
    );
    let layout = &job.layout;
    let wrong = [
        (!is_simple, "-bind with a list or a part of the machine"),
        (layout.gpus.is_some(), "-gpus"),
        (
            *layout
                != Layout {
                    gpus: layout.gpus,
                    ..Layout::default()
                },
            "-map-by, -cpu-set, -pn and -nooversubscribe",
        ),
        (job.report_bindings, "-report-bindings"),
        (job.tell.allocation, "-display-allocation"),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err(LaunchError::usage(format!(
            "{what} works on one host only; with several, leave it out"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Task {
        let mut job = Job::new("mpirun");
        job.binding = Binding::Cores(3);
        job.programs = vec![Program {
            ranks: None,
            command: "./a b".into(),
            arguments: vec!["".into(), "x\ny".into()],
            process_type: 0,
            nodes: None,
            directory: Some("/tmp".into()),
            inherit: Inherit::Except(vec!["HOME".into()]),
            environment: vec![("A".into(), "=".into())],
        }];
        Task {
            job,
            number: 1 << 40,
            host: 1,
            secret: [9; SECRET],
            ports: Some((4000, 4100)),
            encrypts: true,
            parent: Some("margay:net:1".into()),
            merges: true,
            ranks: vec![OwnRank {
                rank: 1,
                program: 0,
                has_input: true,
            }],
            all: vec![(0, (5, 0)), (0, (1, 7))],
            environment: vec![("PATH".into(), OsString::from_vec(vec![0xff]))],
            directory: "/work".into(),
        }
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let bytes = some().encode();
        let read = Task::decode(&bytes[5..]).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", some()));
    }

    #[test]
    fn a_task_that_is_cut_or_changed_is_refused_or_read_but_never_a_panic() {
        let bytes = some().encode();
        for cut in 5..bytes.len() {
            assert!(Task::decode(&bytes[5..cut]).is_err(), "cut at {cut}");
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            let at = random.usize(5..bytes.len());
            bytes[at] = random.u8(..);
            let _ = Task::decode(&bytes[5..]);
        }
    }
}
