//! `margay trace`, `margay view` and `mpiexec -trace`: the work is that of a program of its own
//! beside this one. The options have been checked before it runs.

use std::env;
use std::ffi::OsString;

use margay_job_launch::plan::Recording;
use margay_sys_os::process::beside;

use crate::bench::replace;
use crate::options::{RecordOptions, TraceAction, TraceOptions, TraceViewOptions};

/// The program that does the work, beside `margay` in the same folder.
const PROGRAM: &str = "margay-trace";
/// What each thread of a rank keeps until it is written: enough for the time between two looks of
/// the recorder.
const RECORDS: &str = "16384";
/// The environment variable that says so.
const ENV_RECORD: &str = "MARGAY_RECORD";

/// Replaces this process by the program; returns only with the reason why that failed.
#[must_use]
pub fn run(words: &[OsString]) -> String {
    replace("what reads traces", PROGRAM, words)
}

/// What the program is given for `margay trace`.
#[must_use]
pub fn words_of(options: &TraceOptions) -> Vec<OsString> {
    match &options.action {
        TraceAction::Convert { file, to, output } => {
            let mut words = vec!["convert".into(), file.into(), "--to".into(), to.into()];
            if let Some(output) = output {
                words.extend(["--output".into(), output.into()]);
            }
            words
        }
        TraceAction::Profile { file, json } => {
            let mut words = vec!["profile".into(), file.into()];
            words.extend(json.then(|| "--json".into()));
            words
        }
    }
}

/// What the program is given for `margay view`.
#[must_use]
pub fn words_of_view(options: &TraceViewOptions) -> Vec<OsString> {
    let mut words = vec!["view".into(), (&options.file).into()];
    if let Some(html) = &options.html {
        words.extend(["--html".into(), html.into()]);
    }
    words
}

/// How a job is recorded for which these options were given, if it is.
///
/// # Errors
/// When the running program cannot be found.
pub fn recording(options: &RecordOptions, launcher: &str) -> Result<Option<Recording>, String> {
    if options.trace.is_none() && options.profile.is_none() {
        return Ok(None);
    }
    let mut arguments: Vec<OsString> = vec!["--name".into(), launcher.into()];
    if let Some(file) = &options.trace {
        arguments.extend(["--trace".into(), file.into()]);
    }
    match &options.profile {
        Some(file) if file.is_empty() => arguments.push("--profile".into()),
        Some(file) => arguments.extend(["--profile-json".into(), file.into()]),
        None => {}
    }
    let program = beside(PROGRAM).map_err(|error| error.to_string())?;
    Ok(Some(Recording { program, arguments }))
}

/// Adds what the ranks of a recorded job need to their variables, unless the user has set it.
pub fn set_variables(variables: &mut Vec<(OsString, OsString)>) {
    if env::var_os(ENV_RECORD).is_none() && !variables.iter().any(|(name, _)| name == ENV_RECORD) {
        variables.push((ENV_RECORD.into(), RECORDS.into()));
    }
}
