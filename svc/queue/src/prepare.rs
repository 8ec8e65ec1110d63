//! From what was asked for to what a supervisor runs: names of files, variables, nodes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use margay_core_queue::{Dialect, Joined, Names, Wishes, expand, script};
use margay_svc_queue_wire::{Bytes, Order, Shared, pbs_name};

use crate::files::{ForUser, JobFolder, JobOrder};
use crate::resources::Resources;
use crate::site::{Away, Site};
use crate::store::Entry;
use crate::variables::{self, variable};

/// Longest name of a job.
const MOST_NAME: usize = 200;

/// How much of a name is shown that is refused, in characters.
const SHOWN_OF_NAME: usize = 40;

/// Looks an order over before it is accepted.
///
/// # Errors
/// In words: why it cannot be run.
pub fn check(order: &Order, slots: u32, machine_mib: u64) -> Result<(), String> {
    let wishes = &order.wishes;
    let is_nothing = |first: Option<&Bytes>| first.is_none_or(|first| first.0.is_empty());
    if order.script.is_none() && is_nothing(order.arguments.first()) {
        return Err("it has neither script nor program".into());
    }
    if let Some(text) = &order.script
        && text.0.len() > script::MOST_BYTES
    {
        return Err(format!(
            "its script has {} bytes; at most {} are accepted",
            text.0.len(),
            script::MOST_BYTES
        ));
    }
    let has_shell =
        |script: &Bytes| script.0.as_bytes().starts_with(b"#!") || wishes.shell.is_some();
    if order.script.as_ref().is_some_and(|s| !has_shell(s)) {
        return Err(
            "its script does not begin with the name of a shell; write #!/bin/sh as its first line"
                .into(),
        );
    }
    let first_line = |script: &Bytes| {
        let bytes = script.0.as_bytes();
        let end = bytes.iter().position(|&byte| byte == b'\n');
        bytes[..end.unwrap_or(0)].ends_with(b"\r")
    };
    if order.script.as_ref().is_some_and(first_line) {
        return Err(
            "the lines of its script end as those of DOS do, in carriage returns, which no shell takes; convert it: \
             sed -i 's/\\r$//' SCRIPT"
                .into(),
        );
    }
    check_name(&name(order))?;
    check_account(wishes.account.as_deref().unwrap_or_default())?;
    let texts = [
        &wishes.output.stdout,
        &wishes.output.stderr,
        &wishes.directory,
    ];
    if let Some(text) = texts.into_iter().flatten().find(|t| t.contains('\0')) {
        return Err(format!("'{}' holds a zero byte", text.escape_debug()));
    }
    if let Some((name, _)) = wishes
        .variables
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        return Err(format!(
            "'{}' is no name of a variable",
            name.escape_debug()
        ));
    }
    if let Some(asked) = wishes
        .size
        .memory(slots)
        .filter(|&asked| asked > machine_mib)
    {
        return Err(format!(
            "it asks for {asked} MiB of memory and the machine has {machine_mib}; ask for less"
        ));
    }
    Ok(())
}

/// Looks the name of a job over.
///
/// # Errors
/// In words.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MOST_NAME || name.chars().any(char::is_control) {
        let (begin, more) = match name.char_indices().nth(SHOWN_OF_NAME) {
            Some((at, _)) => (&name[..at], "…"),
            None => (name, ""),
        };
        return Err(format!(
            "the name '{}{more}' cannot be shown; use 1 to {MOST_NAME} bytes without control characters",
            begin.escape_debug()
        ));
    }
    Ok(())
}

/// Looks the account of a job over.
///
/// # Errors
/// In words.
pub fn check_account(account: &str) -> Result<(), String> {
    match account.chars().any(char::is_control) {
        true => Err(format!(
            "the account '{}' cannot be shown; use no control characters",
            account.escape_debug()
        )),
        false => Ok(()),
    }
}

/// The name of a job: as asked for, or that of its program.
#[must_use]
pub fn name(order: &Order) -> String {
    let of_program = || {
        let first = order.arguments.first()?;
        let file = Path::new(&first.0).file_name()?;
        Some(file.to_string_lossy().into_owned())
    };
    match (&order.wishes.name, &order.script) {
        (Some(name), _) => name.clone(),
        (None, Some(_)) => "script".into(),
        (None, None) => of_program().unwrap_or_else(|| "job".into()),
    }
}

/// The names of output files that the user did not choose.
fn usual_names(dialect: Dialect, entry: &Entry) -> [String; 2] {
    match (dialect, entry.task) {
        (Dialect::Slurm, None) => ["slurm-%j.out".into(), "slurm-%j.err".into()],
        (Dialect::Slurm, Some(_)) => ["slurm-%A_%a.out".into(), "slurm-%A_%a.err".into()],
        (Dialect::Pbs, None) => ["%x.o%j".into(), "%x.e%j".into()],
        (Dialect::Pbs, Some(_)) => ["%x.o%A.%a".into(), "%x.e%A.%a".into()],
        (Dialect::LoadLeveler, _) => ["/dev/null".into(), "/dev/null".into()],
    }
}

/// Where the output of a job goes.
#[derive(Debug)]
pub struct Outputs {
    /// Relative to the directory of the command.
    pub stdout: String,
    /// None when both go to one file.
    pub stderr: Option<String>,
    /// Names in the folders that the two above may be.
    pub names: [String; 2],
    /// What follows each of the two where it is no folder.
    pub endings: [String; 2],
}

fn names_of<'a>(entry: &'a Entry, shared: &'a Shared, host: &'a str) -> Names<'a> {
    Names {
        job: entry.job.id,
        array: entry.job.array.zip(entry.task),
        name: &entry.name,
        user: &shared.user,
        host,
    }
}

/// Replaces what PBS replaces in a path, and the home directory before it.
fn in_path(path: &str, dialect: Dialect, entry: &Entry, shared: &Shared, host: &str) -> String {
    let home = variable(shared, "HOME").map(|home| String::from_utf8_lossy(home).into_owned());
    let home = home.unwrap_or_default();
    let path = match path.strip_prefix("~/") {
        Some(rest) if !home.is_empty() => format!("{home}/{rest}"),
        _ => path.to_owned(),
    };
    if dialect != Dialect::Pbs || !path.contains(['$', '^']) {
        return path;
    }
    let index = entry.task.map(|task| task.to_string()).unwrap_or_default();
    let name = entry.name.replace('/', "_");
    let job = pbs_name(entry.job.id, entry.job.array.zip(entry.task), host);
    let mut path = path.replace("^array_index^", &index);
    for (variable, value) in [
        ("PBS_JOBID", &job),
        ("PBS_JOBNAME", &name),
        ("PBS_ARRAYID", &index),
        ("PBS_ARRAY_INDEX", &index),
        ("HOME", &home),
    ] {
        path = path.replace(&format!("${{{variable}}}"), value);
        path = path.replace(&format!("${variable}"), value);
    }
    path
}

/// Finds out where the output of a job goes.
#[must_use]
pub fn outputs(entry: &Entry, shared: &Shared, wishes: &Wishes, site: Site<'_>) -> Outputs {
    let dialect = wishes.dialect.unwrap_or_default();
    let names = names_of(entry, shared, site.node);
    let [usual_out, usual_err] = usual_names(dialect, entry).map(|name| expand(&name, &names));
    let named = |pattern: &Option<String>| {
        let pattern = pattern.as_ref()?;
        Some(expand(
            &in_path(pattern, dialect, entry, shared, site.server),
            &names,
        ))
    };
    let (stdout, stderr) = (named(&wishes.output.stdout), named(&wishes.output.stderr));
    // Tasks of PBS have files of their own also where their path is the same: Torque adds the
    // index.
    let ending = |pattern: &Option<String>| match (dialect, entry.task, pattern) {
        (Dialect::Pbs, Some(task), Some(pattern)) if !names_task(pattern) => format!("-{task}"),
        _ => String::new(),
    };
    let (out, err) = (&wishes.output.stdout, &wishes.output.stderr);
    let endings = match (out, err) {
        (None, Some(_)) => [ending(err), ending(err)],
        _ => [ending(out), ending(err)],
    };
    // Slurm joins both unless a second file is named, PBS does so only when asked.
    let joined = wishes.output.joined.unwrap_or(match dialect {
        Dialect::Slurm => Joined::Stdout,
        Dialect::Pbs | Dialect::LoadLeveler => Joined::Apart,
    });
    let (stdout, stderr) = match joined {
        Joined::Stdout => (stdout.or(stderr).unwrap_or_else(|| usual_out.clone()), None),
        Joined::Stderr => (stderr.or(stdout).unwrap_or_else(|| usual_err.clone()), None),
        Joined::Apart => (
            stdout.unwrap_or_else(|| usual_out.clone()),
            Some(stderr.unwrap_or_else(|| usual_err.clone())),
        ),
    };
    // Both may be a folder, in which each has a name of its own.
    let may_be_folder = dialect == Dialect::Pbs && joined == Joined::Apart;
    Outputs {
        stderr: stderr.filter(|path| may_be_folder || *path != stdout),
        stdout,
        names: [usual_out, usual_err],
        endings,
    }
}

/// Whether a path of PBS has the number of a task in it.
fn names_task(pattern: &str) -> bool {
    let names = ["^array_index^", "PBS_ARRAY", "PBS_JOBID", "%a", "%j"];
    names.iter().any(|name| pattern.contains(name))
}

/// What a supervisor runs for a job.
#[must_use]
pub fn job_order(
    entry: &Entry,
    shared: &Shared,
    order: &Order,
    site: Site<'_>,
    away: Option<Away>,
    folder: &JobFolder,
    resources: &Resources,
) -> JobOrder {
    let wishes = &order.wishes;
    let dialect = wishes.dialect.unwrap_or_default();
    let Outputs {
        stdout,
        stderr,
        names,
        endings,
    } = outputs(entry, shared, wishes, site);
    let home = || variable(shared, "HOME").map(|home| Bytes::from(home.to_vec()));
    let asked = wishes.directory.as_ref().map(|directory| {
        let directory = in_path(directory, dialect, entry, shared, site.server);
        let directory = Path::new(&shared.directory.0).join(directory);
        Bytes(directory.into_os_string())
    });
    let directory = asked
        .or_else(|| (dialect == Dialect::Pbs).then(home).flatten())
        .unwrap_or_else(|| shared.directory.clone());
    // The files of output belong to where the command was called, wherever the job itself begins.
    let place = |path: String| Bytes(Path::new(&shared.directory.0).join(path).into_os_string());
    let slots = entry.job.slots;
    JobOrder {
        job: entry.job.id,
        queue: resources.queue.clone(),
        environment: variables::environment(
            entry,
            shared,
            wishes,
            site,
            folder,
            &resources.program,
        ),
        script: order.script.clone(),
        arguments: order.arguments.clone(),
        directory,
        stdout: place(stdout),
        stderr: stderr.map(place),
        names,
        endings,
        stdin: wishes.input.as_ref().map(|path| {
            let path = in_path(path, dialect, entry, shared, site.server);
            place(expand(&path, &names_of(entry, shared, site.node)))
        }),
        shell: wishes.shell.clone().filter(|shell| shell.starts_with('/')),
        is_append: wishes.output.is_append,
        limit_s: entry.job.limit_s,
        memory_mib: Some(entry.job.memory_mib).filter(|&mib| mib > 0),
        shares: Vec::new(),
        warning: wishes.warning,
        nodes: match site.parts {
            [] => format!("{}\n", site.node).repeat(wishes.size.tasks().min(slots) as usize),
            parts => parts
                .iter()
                .map(|part| format!("{}\n", part.host).repeat(part.tasks as usize))
                .collect(),
        },
        parts: site.parts.to_vec(),
        left: None,
        slots,
        gang: None,
        turn_priority: 0,
        held: None,
        cores: Vec::new(),
        away,
        user: shared.owner.clone().map(|owner| ForUser {
            name: Some(shared.user.clone()).filter(|name| *name != owner.uid.to_string()),
            owner,
            group: (resources.groups.as_ref().ok()).map(|groups| groups.of(&folder.name()).0),
            folder: folder.readable().to_owned(),
            slots,
            file_mask: shared.file_mask.unwrap_or(0o022),
        }),
    }
}
