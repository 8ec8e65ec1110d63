//! The beginning of a job that runs as its user, in a queue of root's. The supervisor starts this
//! program, which becomes that user for good, and then does with the user's rights whatever follows
//! the user's wishes: it enters the directory, opens the files of input and output, and executes
//! the job's program in its own place. Until then no process of the user can look into it or get at
//! what it has open, as the kernel forbids that after such a change.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use margay_svc_queue_wire::PROGRAM;
use margay_sys_os::credentials::{become_user, find_name, set_file_mask};
use margay_sys_os::descriptor::{FileLimit, duplicate_above, replace_standard, set_nonblocking};
use margay_sys_os::process::{
    Start, Starter, StringArray, beside, die_with_parent, execute, parent,
};
use margay_sys_os::signal::SignalSet;

use crate::files::{ForUser, JobFolder, JobOrder};
use crate::groups::JobGroup;
use crate::output;
use crate::program::{self, Program, c_string};

/// Exit code of a job that could not begin.
const NOT_BEGUN: u8 = 127;

/// Longest report in bytes; more than a pipe holds would be lost.
const MOST_REPORT: u64 = 4096;

/// Where a job says why it could not begin. It is empty when it has.
#[derive(Debug)]
pub enum Report {
    Pipe(PipeReader),
    /// A file, where output goes through pipes.
    File(PathBuf),
}

impl Report {
    /// What was said, when the job has ended.
    #[must_use]
    pub fn said(self) -> Option<String> {
        let mut text = Vec::new();
        // What was written is there, also where somebody should still hold the other end.
        match self {
            Report::Pipe(pipe) => {
                let _ = set_nonblocking(pipe.as_fd());
                let _ = pipe.take(MOST_REPORT).read_to_end(&mut text);
            }
            Report::File(path) => text = std::fs::read(path).unwrap_or_default(),
        }
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}

/// Starts the job of an order as its user; returns its first process. It opens the files of its
/// output, unless pipes are given for it.
///
/// # Errors
/// In words.
pub fn start(
    folder: &JobFolder,
    order: &JobOrder,
    pipes: Option<[File; 2]>,
) -> Result<(u32, Report), String> {
    let failed = |error: io::Error| format!("cannot start it: {error}");
    let script = program::put(folder, order)?;
    let program = beside(PROGRAM).map_err(failed)?;
    let path = c_string(program.as_os_str())?;
    if let Some(group) = group_of(order) {
        group
            .make(
                order.user.as_ref().map_or(1, |user| user.slots),
                order.memory_mib,
            )
            .map_err(|error| {
                format!(
                    "cannot make its control group {}: {error}",
                    group.0.display()
                )
            })?;
    }
    let own = number(std::process::id())?;
    let text = File::open(folder.order_file()).map_err(failed)?;
    let log = io::stderr();
    let (mut words, standard, report);
    let said;
    match &pipes {
        Some([stdout, stderr]) => {
            let user = order.user.as_ref().map(|user| user.owner.uid);
            for pipe in [stdout, stderr] {
                // As /dev/stdout it is opened anew.
                std::os::unix::fs::fchown(pipe, user, None).map_err(failed)?;
            }
            let file = folder.report_file();
            words = vec![
                path.clone(),
                c"begin-there".into(),
                own,
                c_string(file.as_os_str())?,
            ];
            standard = [text.as_fd(), stdout.as_fd(), stderr.as_fd()];
            report = Report::File(file);
        }
        None => {
            let (pipe, other) = io::pipe().map_err(failed)?;
            said = other;
            words = vec![path.clone(), c"begin".into(), own];
            standard = [text.as_fd(), said.as_fd(), log.as_fd()];
            report = Report::Pipe(pipe);
        }
    }
    if let Some(script) = script {
        words.push(c_string(script.as_os_str())?);
    }
    let started = Starter::new().start(&Start {
        program: &path,
        arguments: &StringArray::new(words),
        environment: &StringArray::new(Vec::new()),
        directory: Some(c"/"),
        standard,
        inherit: &[],
        cores: &order.cores,
        files: FileLimit::now(),
        blocked: SignalSet::of(&[]),
    });
    match started {
        Ok(process) => Ok((process, report)),
        Err(error) => Err(format!(
            "cannot start {}: {}",
            program.display(),
            error.error
        )),
    }
}

/// The control group of a job, where it has one.
#[must_use]
pub fn group_of(order: &JobOrder) -> Option<JobGroup> {
    let group = order.user.as_ref()?.group.clone()?;
    Some(JobGroup(group))
}

fn number(number: u32) -> Result<CString, String> {
    c_string(number.to_string().as_ref())
}

/// Begins the job whose order is the standard input: `margay-queue begin SUPERVISOR [SCRIPT]`.
/// Returns only when that fails, with the exit code.
#[must_use]
pub fn begin(supervisor: &str, script: Option<&str>) -> u8 {
    let report = duplicate_above(io::stdout().as_fd(), 3);
    let text = match try_begin(supervisor, script.map(PathBuf::from), true) {
        Ok(never) => match never {},
        Err(text) => text,
    };
    if let Ok(report) = report {
        tell(&mut File::from(report), &text);
    }
    NOT_BEGUN
}

/// The same on another host than the head's, where output goes through pipes:
/// `margay-queue begin-there SUPERVISOR REPORT [SCRIPT]`.
#[must_use]
pub fn begin_there(supervisor: &str, report: &str, script: Option<&str>) -> u8 {
    let report = File::create(report);
    let text = match try_begin(supervisor, script.map(PathBuf::from), false) {
        Ok(never) => match never {},
        Err(text) => text,
    };
    if let Ok(mut report) = report {
        tell(&mut report, &text);
    }
    NOT_BEGUN
}

fn tell(report: &mut File, text: &str) {
    let text = text.as_bytes();
    let _ = report.write(&text[..text.len().min(MOST_REPORT as usize)]);
}

/// What never is.
enum Never {}

/// Becomes the user of a job, with its file mask; still ends with the supervisor.
///
/// # Errors
/// In words, also when that has ended.
pub fn become_owner(supervisor: &str, user: &ForUser) -> Result<(), String> {
    let owner = &user.owner;
    become_user(owner.uid, owner.gid, &owner.groups)
        .map_err(|error| format!("cannot become the user {}: {error}", owner.uid))?;
    // The change has taken that back. When the supervisor ends meanwhile, there is another parent.
    die_with_parent();
    if parent().to_string() != supervisor {
        return Err("what watched over it was killed".into());
    }
    set_file_mask(user.file_mask);
    Ok(())
}

/// Whether the user who submitted a job still is one. The number may be another user's since.
///
/// # Errors
/// In words, when not. A system that cannot say is not asked again.
fn is_known(name: &str, uid: u32) -> Result<(), String> {
    match find_name(uid) {
        Ok(None) => Err(format!(
            "its user {name} ({uid}) has been removed from the system"
        )),
        Ok(Some(other)) if other != name => Err(format!(
            "its user {name} has been removed from the system, and {uid} is now the user {other}"
        )),
        _ => Ok(()),
    }
}

fn try_begin(supervisor: &str, script: Option<PathBuf>, has_files: bool) -> Result<Never, String> {
    let failed = |error: io::Error| format!("cannot begin: {error}");
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(failed)?;
    let order = JobOrder::of(&text).map_err(failed)?;
    let user = order.user.as_ref().ok_or("its order names no user")?;
    if let Some(group) = group_of(&order) {
        group
            .enter()
            .map_err(|error| format!("cannot enter its control group: {error}"))?;
    }
    // On other hosts users have the numbers that they have here, and need not have names.
    if let (Some(name), true) = (&user.name, has_files) {
        is_known(name, user.owner.uid)?;
    }
    become_owner(supervisor, user)?;
    let program = Program::of(&order, script)?;
    let directory = &order.directory.0;
    std::env::set_current_dir(directory).map_err(|error| {
        let directory = PathBuf::from(directory);
        format!(
            "cannot enter its directory {}: {error}",
            directory.display()
        )
    })?;
    let input = program::input(&order)?;
    let mut standard = vec![input];
    if has_files {
        standard.extend(output::files(&order)?);
    }
    for (target, file) in standard.iter().enumerate() {
        replace_standard(target.try_into().unwrap_or(0), file.as_fd()).map_err(failed)?;
    }
    let error = execute(&program.path, &program.arguments, &program.environment);
    Err(program.failed(&order, &error))
}
