//! The programs that record a job beside its ranks, for `-trace` and `-profile`. On several hosts
//! one on each records a part, and one beside the launcher makes a trace of them.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use margay_sys_os::signal::{self, SIGTERM, SignalSet};
use margay_sys_shm::segment::Segment;

use crate::plan::{LaunchError, Recording};

/// What a recorder does.
const RECORD: &str = "record";
const GATHER: &str = "gather";
/// It records a part, and writes it to its standard output.
const PART: &str = "--part";

/// The recorder reads its signals from a descriptor: Ctrl-C ends the ranks, and what they did until
/// then is wanted; SIGTERM says that they have ended. It begins with them blocked, because a job
/// may end before its recorder has come so far.
fn command(recording: &Recording) -> Command {
    let mut command = Command::new(&recording.program);
    signal::block_in(&mut command, SignalSet::that_end());
    command
}

/// Such a program, while it runs.
#[derive(Debug)]
pub(crate) struct Recorder {
    child: Child,
    /// It ends by itself when its input does.
    ends: bool,
}

impl Recorder {
    /// Starts one with the job's memory.
    pub(crate) fn start(recording: &Recording, segment: &Segment) -> Result<Recorder, LaunchError> {
        let memory = segment.fd().as_fd().try_clone_to_owned();
        let memory = memory.map_err(|error| failed(recording, &error))?;
        let mut command = command(recording);
        command.arg(RECORD).args(&recording.arguments);
        let child = command.stdin(Stdio::from(memory)).spawn();
        Ok(Recorder {
            child: child.map_err(|error| failed(recording, &error))?,
            ends: false,
        })
    }

    /// Starts one for the ranks of this host. Returns where its part is read, too.
    pub(crate) fn start_part(
        recording: &Recording,
        segment: &Segment,
    ) -> Result<(Recorder, OwnedFd), LaunchError> {
        let start = || {
            let memory = segment.fd().as_fd().try_clone_to_owned()?;
            let (reader, writer) = io::pipe()?;
            let mut command = command(recording);
            command.args([RECORD, PART]).stdin(Stdio::from(memory));
            let child = command.stdout(writer).spawn()?;
            Ok((Recorder { child, ends: false }, reader.into()))
        };
        start().map_err(|error| failed(recording, &error))
    }

    /// Starts one that makes a trace of the parts of all hosts. Returns where they are written,
    /// too.
    pub(crate) fn gather(
        recording: &Recording,
        (ranks, command): (u32, &str),
        hosts: &[String],
    ) -> Result<(Recorder, OwnedFd), LaunchError> {
        let start = || {
            let (reader, writer) = io::pipe()?;
            let mut gatherer = self::command(recording);
            gatherer.arg(GATHER).args(&recording.arguments);
            gatherer.args(["--ranks", &ranks.to_string()]);
            gatherer.args(["--job", &std::process::id().to_string()]);
            gatherer.args(["--command", command, "--hosts", &hosts.join(",")]);
            let child = gatherer.stdin(reader).spawn()?;
            Ok((Recorder { child, ends: true }, writer.into()))
        };
        start().map_err(|error| failed(recording, &error))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The ranks have ended.
    pub(crate) fn end(&mut self) {
        // It may have noticed the end by itself.
        if !self.ends && matches!(self.child.try_wait(), Ok(None)) {
            let _ = signal::send(self.child.id(), SIGTERM);
        }
        self.ends = true;
    }

    /// The job has ended, and all that it wrote is out: lets the recorder finish, and waits for
    /// that. The user of `launcher` reads what a killed one could not say.
    pub(crate) fn finish(mut self, launcher: &str) {
        self.end();
        let Some(killed) = self.child.wait().ok().and_then(|status| status.signal()) else {
            return;
        };
        let (name, meaning) = signal::describe(killed);
        let _ = writeln!(
            io::stderr(),
            "{launcher}: the recorder of the job was ended by {name} ({meaning}): the trace or the \
             profile is not complete, or missing; run the job again"
        );
    }
}

fn failed(recording: &Recording, error: &io::Error) -> LaunchError {
    let program = recording.program.display();
    LaunchError::system(match error.kind() {
        ErrorKind::NotFound => format!(
            "-trace and -profile are not installed: there is no {program}; use the mpiexec of a whole \
             installation, such as `make install` makes"
        ),
        _ => format!("cannot start {program}, which records the job: {error}"),
    })
}
