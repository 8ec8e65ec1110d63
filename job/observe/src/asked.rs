//! The jobs that a command is asked to show: all of them, or one that may not be there.

use std::fs;

use margay_job_registry::Jobs;
use margay_net_platform::Peers;
use margay_sys_os::process::is_anothers;

/// Looks at the jobs of this machine, or at one of them.
///
/// # Errors
/// When there is no such job, or it is another user's: a text with the remedy.
pub(crate) fn look<View>(
    jobs: &mut Jobs,
    job: Option<u64>,
    of: impl Fn(&dyn Peers) -> View,
) -> Result<Vec<View>, String> {
    let found: Vec<View> = (jobs.look().into_iter())
        .filter(|peers| job.is_none_or(|job| peers.facts().job == job))
        .map(of)
        .collect();
    match job {
        Some(job) if found.is_empty() => Err(not_found(job)),
        _ => Ok(found),
    }
}

/// Why a job cannot be shown.
pub(crate) fn not_found(job: u64) -> String {
    let program = fs::read_to_string(format!("/proc/{job}/comm")).unwrap_or_default();
    match u32::try_from(job).ok().and_then(is_anothers) {
        Some(true) => format!(
            "process {job} ({}) belongs to another user, whose jobs are not shown: be that user, or root",
            program.trim()
        ),
        Some(false) => format!(
            "process {job} ({}) is no launcher of a job; a job's number is that of its mpiexec, and `margay mesh` shows the jobs",
            program.trim()
        ),
        None => format!(
            "there is no job {job}: it has ended, or it was started on another host; `margay mesh` shows the jobs of this one"
        ),
    }
}
