//! `mpiexec -pfs`: a parallel file system for the time of a job. A program of its own beside this
//! one makes it, and removes it when the pipe to it is closed, by which it also notices that this
//! process has died.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use margay_job_launch::plan::Job;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::beside;
use margay_sys_os::signal::{self, SignalFd, SignalSet};

use margay_svc_pfs_options::PROGRAM;

use crate::options::{FilesOptions, RunOptions};

/// The variable by which programs find the file system.
pub const ENV_PFS: &str = "MARGAY_PFS";

/// What the program says when the file system can be used; its path follows.
const READY: &str = "ready";

/// The file system of a job, while that runs.
#[derive(Debug)]
pub struct JobFiles {
    child: Child,
    said: BufReader<ChildStdout>,
    /// Where it is mounted.
    path: String,
    is_drained: bool,
}

/// Returns what the programs of a job say of its file system, if they want one.
///
/// # Errors
/// When they say different things, or it cannot be had.
pub fn wanted(segments: &[RunOptions]) -> Result<Option<FilesOptions>, String> {
    let mut named = (segments.iter()).filter(|own| own.files.pfs.is_some());
    let Some(first) = named.next() else {
        return Ok(None);
    };
    if named.any(|other| other.files != first.files) {
        return Err(
            "-pfs differs between the programs; a job has one file system, so name it once".into(),
        );
    }
    if segments.iter().any(|own| own.join.join.is_some()) {
        return Err(
            "-pfs: hosts that join with -join cannot mount the file system; name the hosts by -host".into(),
        );
    }
    Ok(Some(first.files.clone()))
}

impl JobFiles {
    /// Makes the file system, and has the programs of the job find it.
    ///
    /// # Errors
    /// When it is not installed. Other reasons have been reported by the program.
    pub fn begin(options: &FilesOptions, job: &mut Job) -> Result<JobFiles, Option<String>> {
        let program = beside(PROGRAM).map_err(|error| Some(error.to_string()))?;
        let mut words: Vec<OsString> = vec!["job".into(), "--launcher".into()];
        words.push((&job.launcher).into());
        if let Some(to) = &options.drain {
            words.extend(["--drain".into(), to.into()]);
        }
        if let Some(parity) = options.parity {
            words.extend(["--parity".into(), parity.to_string().into()]);
        }
        if let Some(hosts) = &job.hosts {
            let all = [std::slice::from_ref(&hosts.list), &hosts.of_programs].concat();
            let mut names: Vec<&str> = all.iter().flatten().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            names.dedup();
            words.extend(["--hosts".into(), names.join(",").into()]);
            let shell: Vec<_> = (hosts.shell.iter())
                .map(|word| word.to_string_lossy())
                .collect();
            words.extend(["--launcher-exec".into(), shell.join(" ").into()]);
            if let Some((first, last)) = hosts.ports {
                words.extend(["--port-range".into(), format!("{first}:{last}").into()]);
            }
        }
        words.push("--".into());
        let named = options.pfs.as_ref().map_or(&b""[..], |all| all.as_bytes());
        let directories = named.split(|byte| *byte == b',');
        let directories = directories.filter(|path| !path.is_empty());
        words.extend(directories.map(|path| OsStr::from_bytes(path).to_owned()));
        let started = Command::new(&program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| {
            let shown = program.display();
            Some(match error.kind() {
                ErrorKind::NotFound => format!(
                    "-pfs is not installed: there is no {shown}; use the mpiexec of a whole installation, such as \
                     `make install` makes"
                ),
                _ => format!("cannot start {shown}, which makes the job's file system: {error}"),
            })
        })?;
        let said = child.stdout.take().ok_or(None)?;
        let mut said = BufReader::new(said);
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            // What was not read is no path, and the program has said why.
            let _ = said.read_line(line);
        }
        let path = lines[1].trim_end_matches('\n').to_owned();
        if lines[0].trim_end() != READY || path.is_empty() {
            let killed = child.wait().ok().filter(|status| status.code().is_none());
            return Err(killed.map(|how| {
                format!("{PROGRAM}, which keeps the file system of -pfs, has ended: {how}")
            }));
        }
        for program in &mut job.programs {
            program.environment.push((ENV_PFS.into(), (&path).into()));
        }
        Ok(JobFiles {
            child,
            said,
            path,
            is_drained: options.drain.is_some(),
        })
    }

    /// The job has ended: lets the program copy what shall be kept, and remove the rest. A signal
    /// ends the copying.
    ///
    /// # Errors
    /// When the program has been ended itself. Other reasons have been reported by it.
    pub fn finish(mut self) -> Result<(), Option<String>> {
        drop(self.child.stdin.take());
        let set = SignalSet::of(&[signal::SIGHUP, signal::SIGINT, signal::SIGTERM]);
        set.block();
        // Without a descriptor for signals, nothing ends the copying.
        let mut signals = SignalFd::new(&set).ok();
        let mut poll = PollSet::default();
        while let Some(signals) = &mut signals {
            poll.clear();
            let ended = poll.add_readable(self.said.get_ref().as_fd());
            let signalled = poll.add_readable(signals.as_fd());
            if poll.wait(None).is_err() || poll.ready(ended).hung_up {
                break;
            }
            if poll.ready(signalled).readable && signals.take().is_some() {
                let _ = signal::send(self.child.id(), signal::SIGTERM);
            }
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if status.code().is_some() => Err(None),
            ended => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                let base = self.path.trim_end_matches(|c| c != '/');
                let then = if self.is_drained {
                    format!(
                        "what the job wrote is kept: XDG_STATE_HOME={base}state margay pfs mount job DIRECTORY shows it"
                    )
                } else {
                    "the next job with -pfs removes what is left, and so does `margay pfs list`"
                        .to_owned()
                };
                Err(Some(format!(
                    "{PROGRAM}, which keeps the file system of -pfs, has ended ({how}); {then}"
                )))
            }
        }
    }
}
