//! What a job executes.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use margay_svc_queue_wire::Bytes;
use margay_sys_os::process::{StringArray, beside};

use crate::files::{JobFolder, JobOrder};
use crate::output;

/// A string of the system.
///
/// # Errors
/// In words, when it holds a zero byte.
pub fn c_string(text: &OsStr) -> Result<CString, String> {
    CString::new(text.as_bytes())
        .map_err(|_| format!("'{}' holds a zero byte", text.to_string_lossy()))
}

fn c_strings<'a>(list: impl IntoIterator<Item = &'a Bytes>) -> Result<StringArray, String> {
    let strings: Result<Vec<CString>, String> =
        list.into_iter().map(|text| c_string(&text.0)).collect();
    strings.map(StringArray::new)
}

/// Finds a program as a shell does, in the job's own environment.
fn look_up(order: &JobOrder, program: &OsStr) -> PathBuf {
    let directory = Path::new(&order.directory.0);
    if program.as_bytes().contains(&b'/') {
        return directory.join(program);
    }
    let variable = order
        .environment
        .iter()
        .rev()
        .find_map(|variable| variable.0.as_bytes().strip_prefix(b"PATH="));
    let paths = OsStr::from_bytes(variable.unwrap_or(b"/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(paths)
        .map(|folder| directory.join(folder).join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| directory.join(program))
}

/// Writes what the job reads; returns the path of its script, if it has one.
///
/// # Errors
/// In words.
pub fn put(folder: &JobFolder, order: &JobOrder) -> Result<Option<PathBuf>, String> {
    folder
        .put(order)
        .map_err(|error| format!("cannot write its script: {error}"))
}

/// Opens the standard input.
///
/// # Errors
/// In words.
pub fn input(order: &JobOrder) -> Result<File, String> {
    let input = match &order.stdin {
        Some(path) => Path::new(&order.directory.0).join(&path.0),
        None => PathBuf::from("/dev/null"),
    };
    File::options()
        .read(true)
        .custom_flags(output::NONBLOCK)
        .open(&input)
        .map_err(|error| format!("cannot open the input file {}: {error}", input.display()))
}

/// The program of a job.
#[derive(Debug)]
pub struct Program {
    pub path: CString,
    pub arguments: StringArray,
    pub environment: StringArray,
}

impl Program {
    /// That of an order, whose script is here. It is looked for with the rights of who calls.
    ///
    /// # Errors
    /// In words.
    pub fn of(order: &JobOrder, script: Option<PathBuf>) -> Result<Program, String> {
        let directory = Path::new(&order.directory.0);
        if !directory.is_dir() {
            return Err(format!(
                "its directory {} is not there, or not for its user",
                directory.display()
            ));
        }
        let first = order.arguments.first().map(|program| program.0.as_os_str());
        let shell = script.as_ref().and(order.shell.as_ref());
        let path = match (&script, first) {
            (Some(_), _) if shell.is_some() => PathBuf::from(shell.cloned().unwrap_or_default()),
            (Some(script), _) => script.clone(),
            (None, Some(program)) => look_up(order, program),
            (None, None) => return Err("it has neither script nor program".into()),
        };
        let own = Bytes(path.clone().into_os_string());
        let file = script.map(|script| Bytes(script.into_os_string()));
        let shells = file.iter().filter(|_| shell.is_some());
        let given = match &file {
            Some(_) => &order.arguments[..],
            None => &order.arguments[1..],
        };
        let rest = shells.chain(given).map(|word| c_string(&word.0));
        let rest: Vec<CString> = rest.collect::<Result<_, _>>()?;
        let own = c_string(&own.0)?;
        let (path, words) = match &order.gang {
            Some(partition) => {
                let (launcher, mut words) = launcher(order, partition)?;
                words.push(own);
                (launcher, words)
            }
            None => match (&file, first) {
                (None, Some(first)) => (own, vec![c_string(first)?]),
                _ => (own.clone(), vec![own]),
            },
        };
        Ok(Program {
            path,
            arguments: StringArray::new([words, rest].concat()),
            environment: c_strings(&order.environment)?,
        })
    }

    /// Says why it could not be executed.
    #[must_use]
    pub fn failed(&self, order: &JobOrder, error: &io::Error) -> String {
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes())).display();
        match (&order.script, &order.shell) {
            (Some(_), Some(_)) => format!("cannot execute its shell {path}: {error}"),
            (Some(_), None) => format!(
                "cannot execute its script: {error}; its first line names the shell, such as #!/bin/sh, which has to be there"
            ),
            (None, _) => format!("cannot execute {path}: {error}"),
        }
    }
}

/// The program that runs a job in the partition of its queue, and its words before the job's own.
///
/// # Errors
/// In words.
fn launcher(order: &JobOrder, partition: &str) -> Result<(CString, Vec<CString>), String> {
    let launcher = beside("mpiexec").map_err(|error| format!("cannot find mpiexec: {error}"))?;
    let nodes = format!("{partition}:{}", order.slots.max(1));
    let priority = order.turn_priority.to_string();
    let words = [
        "mpiexec", "-q", "-pn", &nodes, "-pri", &priority, "-n", "1", "-bind-to", "none",
    ];
    let words = words.iter().map(|word| c_string(OsStr::new(word)));
    Ok((
        c_string(launcher.as_os_str())?,
        words.collect::<Result<_, _>>()?,
    ))
}
