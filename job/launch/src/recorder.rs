//! The program that records a job beside its ranks, for `-trace` and `-profile`.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use margay_sys_os::signal;
use margay_sys_shm::segment::Segment;

use crate::plan::{LaunchError, Recording};

/// That program, while it runs.
#[derive(Debug)]
pub(crate) struct Recorder(Child);

impl Recorder {
    /// Starts it with the job's memory.
    pub(crate) fn start(recording: &Recording, segment: &Segment) -> Result<Recorder, LaunchError> {
        let failed = |error: std::io::Error| {
            let program = recording.program.display();
            LaunchError::system(match error.kind() {
                ErrorKind::NotFound => format!(
                    "-trace and -profile are not installed: there is no {program}; use the mpiexec of a whole \
                     installation, such as `make install` makes"
                ),
                _ => format!("cannot start {program}, which records the job: {error}"),
            })
        };
        let memory = segment.fd().as_fd().try_clone_to_owned().map_err(failed)?;
        let child = Command::new(&recording.program)
            .args(&recording.arguments)
            .stdin(Stdio::from(memory))
            .spawn();
        child.map(Recorder).map_err(failed)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The job has ended: lets it finish, and waits for that.
    pub(crate) fn finish(mut self) {
        // It may have noticed the end by itself.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = signal::send(self.0.id(), signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}
