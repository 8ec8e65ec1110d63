//! An agent's task: its ranks and their programs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use margay_core_registry::hosts::SECRET;

use super::wire::{Broken, Reader, Writer, kind};
use crate::plan::{Binding, Gpus, Inherit, Job, Layout, Program, Recording, Unit};

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
    /// The length in bytes of each program that follows; 0 for those that are on the host.
    pub(super) staged: Vec<u64>,
}

/// Writes a number that may be missing.
fn put_maybe(to: &mut Writer, number: Option<u64>) {
    to.number(number.map_or(0, |number| number + 1));
}

fn maybe(from: &mut Reader<'_>) -> Result<Option<u64>, Broken> {
    Ok(from.number()?.checked_sub(1))
}

fn put_numbers(to: &mut Writer, numbers: &[usize]) {
    to.number(numbers.len() as u64);
    for &number in numbers {
        to.number(number as u64);
    }
}

fn numbers(from: &mut Reader<'_>) -> Result<Vec<usize>, Broken> {
    list(from, |from| from.small())
}

const UNITS: [Unit; 7] = [
    Unit::Host,
    Unit::Socket,
    Unit::Numa,
    Unit::L3,
    Unit::L2,
    Unit::Core,
    Unit::Thread,
];

fn number_of(unit: Unit) -> u64 {
    UNITS.iter().position(|&own| own == unit).unwrap_or(0) as u64
}

fn unit(number: u64) -> Result<Unit, Broken> {
    let unit = usize::try_from(number).ok().and_then(|at| UNITS.get(at));
    unit.copied().ok_or(Broken)
}

fn put_binding(to: &mut Writer, binding: &Binding) {
    match binding {
        Binding::None => drop(to.number(0)),
        Binding::Auto => drop(to.number(1)),
        Binding::Core => drop(to.number(2)),
        Binding::Cores(each) => drop(to.number(3).number((*each).into())),
        Binding::Unit(unit) => drop(to.number(4).number(number_of(*unit))),
        Binding::List(cores) => put_numbers(to.number(5), cores),
        Binding::Lists(lists) => {
            to.number(6).number(lists.len() as u64);
            lists.iter().for_each(|cores| put_numbers(to, cores));
        }
    }
}

fn binding(from: &mut Reader<'_>) -> Result<Binding, Broken> {
    Ok(match from.number()? {
        0 => Binding::None,
        1 => Binding::Auto,
        2 => Binding::Core,
        3 => Binding::Cores(from.small()?),
        4 => Binding::Unit(unit(from.number()?)?),
        5 => Binding::List(numbers(from)?),
        6 => Binding::Lists(list(from, numbers)?),
        _ => return Err(Broken),
    })
}

fn put_layout(to: &mut Writer, layout: &Layout) {
    to.number(layout.cores.is_some().into());
    if let Some(cores) = &layout.cores {
        put_numbers(to, cores);
    }
    put_maybe(to, layout.round.map(number_of));
    to.number(layout.may_overload.into());
    to.number(layout.no_oversubscription.into());
    put_maybe(
        to,
        layout.gpus.map(|gpus| match gpus {
            Gpus::Found => 0,
            Gpus::Number(number) => u64::from(number) + 1,
        }),
    );
}

fn layout(from: &mut Reader<'_>) -> Result<Layout, Broken> {
    let has_cores = from.number()? != 0;
    Ok(Layout {
        cores: has_cores.then(|| numbers(from)).transpose()?,
        round: maybe(from)?.map(unit).transpose()?,
        may_overload: from.number()? != 0,
        no_oversubscription: from.number()? != 0,
        gpus: match maybe(from)? {
            None => None,
            Some(0) => Some(Gpus::Found),
            Some(more) => Some(Gpus::Number(u32::try_from(more - 1).map_err(|_| Broken)?)),
        },
    })
}

pub(super) fn list<T>(
    reader: &mut Reader<'_>,
    mut one: impl FnMut(&mut Reader<'_>) -> Result<T, Broken>,
) -> Result<Vec<T>, Broken> {
    let len = reader.small::<usize>()?;
    // A length that lies ends at the end of the bytes.
    (0..len).map(|_| one(reader)).collect()
}

pub(super) fn word(reader: &mut Reader<'_>) -> Result<OsString, Broken> {
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
        to.number(self.job.tell.allocation.into());
        put_binding(&mut to, &self.job.binding);
        put_layout(&mut to, &self.job.layout);
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
        to.number(self.staged.len() as u64);
        for &length in &self.staged {
            to.number(length);
        }
        let recorder = self.job.recording.as_ref();
        let recorder = recorder.map(|recording| recording.program.as_os_str().as_bytes());
        to.bytes(recorder.unwrap_or_default());
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
        job.tell.allocation = from.number()? != 0;
        job.binding = binding(from)?;
        job.layout = layout(from)?;
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
        let staged = list(from, |from| from.number())?;
        let recorder = word(from)?;
        job.recording = (!recorder.is_empty()).then(|| Recording {
            program: recorder.into(),
            arguments: Vec::new(),
        });
        if staged.len() != programs {
            return Err(Broken);
        }
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
            staged,
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
        file: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Task {
        let mut job = Job::new("mpirun");
        job.binding = Binding::Cores(3);
        job.recording = Some(Recording {
            program: "/opt/margay-trace".into(),
            arguments: Vec::new(),
        });
        job.programs = vec![Program {
            ranks: None,
            command: "./a b".into(),
            arguments: vec!["".into(), "x\ny".into()],
            process_type: 0,
            nodes: None,
            directory: Some("/tmp".into()),
            inherit: Inherit::Except(vec!["HOME".into()]),
            environment: vec![("A".into(), "=".into())],
            file: None,
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
            staged: vec![1 << 33],
        }
    }

    #[test]
    fn where_ranks_run_is_read_as_it_was_written() {
        let bindings = [
            Binding::None,
            Binding::Auto,
            Binding::Core,
            Binding::Cores(7),
            Binding::Unit(Unit::L2),
            Binding::List(vec![3, 0, 1000]),
            Binding::Lists(vec![vec![1, 2], vec![], vec![5]]),
        ];
        let layouts = [
            Layout::default(),
            Layout {
                cores: Some(vec![1, 3]),
                round: Some(Unit::Host),
                may_overload: true,
                no_oversubscription: true,
                gpus: Some(Gpus::Found),
            },
            Layout {
                gpus: Some(Gpus::Number(0)),
                ..Layout::default()
            },
        ];
        for binding in bindings {
            for layout in &layouts {
                let mut task = some();
                task.job.binding = binding.clone();
                task.job.layout = layout.clone();
                let read = Task::decode(&task.encode()[5..]).unwrap();
                assert_eq!(read.job.binding, binding);
                assert_eq!(read.job.layout, *layout);
            }
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
