//! From what was asked for to what a supervisor runs: names of files, variables, nodes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use margay_core_queue::{Dialect, Joined, Names, expand, script};
use margay_svc_queue_wire::{Bytes, Order, Shared};

use crate::files::{JobFolder, JobOrder};
use crate::store::Entry;

/// Longest name of a job.
const MOST_NAME: usize = 200;

/// Looks an order over before it is accepted.
///
/// # Errors
/// In words: why it cannot be run.
pub fn check(order: &Order, machine_mib: u64) -> Result<(), String> {
    let wishes = &order.wishes;
    if order.script.is_none() && order.arguments.is_empty() {
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
    if order
        .script
        .as_ref()
        .is_some_and(|s| !s.0.as_bytes().starts_with(b"#!"))
    {
        return Err(
            "its script does not begin with the name of a shell; write #!/bin/sh as its first line"
                .into(),
        );
    }
    let name = name(order);
    if name.is_empty() || name.len() > MOST_NAME || name.chars().any(char::is_control) {
        return Err(format!(
            "the name '{}' cannot be shown; use 1 to {MOST_NAME} bytes without control characters",
            name.escape_debug()
        ));
    }
    let account = wishes.account.as_deref().unwrap_or_default();
    if account.chars().any(char::is_control) {
        return Err(format!(
            "the account '{}' cannot be shown; use no control characters",
            account.escape_debug()
        ));
    }
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
    if let Some(asked) = wishes.size.memory_mib.filter(|&asked| asked > machine_mib) {
        return Err(format!(
            "it asks for {asked} MiB of memory and the machine has {machine_mib}; ask for less"
        ));
    }
    Ok(())
}

/// The name of a job: as asked for, or that of its program.
#[must_use]
pub fn name(order: &Order) -> String {
    let of_program = || {
        let first = order.arguments.first()?;
        let file = std::path::Path::new(&first.0).file_name()?;
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
    }
}

/// What a supervisor runs for a job.
#[must_use]
pub fn job_order(
    entry: &Entry,
    shared: &Shared,
    order: Order,
    host: &str,
    folder: &JobFolder,
) -> JobOrder {
    let Order {
        wishes,
        script,
        arguments,
    } = order;
    let dialect = wishes.dialect.unwrap_or_default();
    let names = Names {
        job: entry.job.id,
        array: entry.job.array.zip(entry.task),
        name: &entry.name,
        user: &shared.user,
        host,
    };
    let [usual_out, usual_err] = usual_names(dialect, entry).map(|name| expand(&name, &names));
    let named = |pattern: &Option<String>| pattern.as_ref().map(|p| expand(p, &names));
    let (stdout, stderr) = (named(&wishes.output.stdout), named(&wishes.output.stderr));
    // Slurm joins both unless a second file is named, PBS does so only when asked.
    let joined = wishes.output.joined.unwrap_or(match dialect {
        Dialect::Slurm => Joined::Stdout,
        Dialect::Pbs => Joined::Apart,
    });
    let (stdout, stderr) = match joined {
        Joined::Stdout => (stdout.or(stderr).unwrap_or_else(|| usual_out.clone()), None),
        Joined::Stderr => (stderr.or(stdout).unwrap_or_else(|| usual_err.clone()), None),
        Joined::Apart => (
            stdout.unwrap_or_else(|| usual_out.clone()),
            Some(stderr.unwrap_or_else(|| usual_err.clone())),
        ),
    };
    let stderr = stderr.filter(|path| *path != stdout);
    let home = || {
        let home = shared.environment.iter();
        home.rev()
            .find_map(|variable| variable.0.as_bytes().strip_prefix(b"HOME="))
            .map(|home| Bytes::from(home.to_vec()))
    };
    let asked = wishes.directory.as_ref().map(|directory| {
        let directory = std::path::Path::new(&shared.directory.0).join(directory);
        Bytes(directory.into_os_string())
    });
    let directory = asked
        .or_else(|| (dialect == Dialect::Pbs).then(home).flatten())
        .unwrap_or_else(|| shared.directory.clone());
    // The files of output belong to where the command was called, wherever the job itself begins.
    let place = |path: String| {
        Bytes(
            std::path::Path::new(&shared.directory.0)
                .join(path)
                .into_os_string(),
        )
    };
    let slots = entry.job.slots;
    JobOrder {
        job: entry.job.id,
        environment: environment(entry, shared, &wishes, host, folder),
        script,
        arguments,
        directory,
        stdout: place(stdout),
        stderr: stderr.map(place),
        names: [usual_out, usual_err],
        is_append: wishes.output.is_append,
        limit_s: entry.job.limit_s,
        warning: wishes.warning,
        nodes: format!("{host}\n").repeat(wishes.size.tasks().min(slots) as usize),
    }
}

/// Whether a variable is of a job within which the command was called, not of this one.
fn is_of_outer_job(variable: &[u8]) -> bool {
    [&b"SLURM_"[..], b"PBS_", b"MARGAY_JOB_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

fn environment(
    entry: &Entry,
    shared: &Shared,
    wishes: &margay_core_queue::Wishes,
    host: &str,
    folder: &JobFolder,
) -> Vec<Bytes> {
    let of_shared = |name: &str| {
        let prefix = format!("{name}=").into_bytes();
        let mut all = shared.environment.iter().rev();
        all.find_map(|v| v.0.as_bytes().strip_prefix(&prefix[..]))
            .unwrap_or_default()
            .to_vec()
    };
    // What a job gets of a bare environment, as with Slurm.
    let basic = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER"];
    let is_basic = |variable: &[u8]| {
        basic.iter().any(|name| {
            variable.starts_with(name.as_bytes()) && variable.get(name.len()) == Some(&b'=')
        })
    };
    let mut all: Vec<Bytes> = shared
        .environment
        .iter()
        .filter(|v| !is_of_outer_job(v.0.as_bytes()))
        .filter(|v| !wishes.is_bare || is_basic(v.0.as_bytes()))
        .cloned()
        .collect();
    let mut put = |name: &str, value: Vec<u8>| {
        let prefix = format!("{name}=").into_bytes();
        all.retain(|variable| !variable.0.as_bytes().starts_with(&prefix));
        let whole = [prefix, value].concat();
        all.push(Bytes(OsString::from_vec(whole)));
    };
    for (name, value) in &wishes.variables {
        put(name, value.clone().into());
    }
    let size = &wishes.size;
    let (job, tasks) = (entry.job.id.to_string(), size.tasks().to_string());
    let nodes = size.nodes.unwrap_or(1).to_string();
    let slots = entry.job.slots.to_string();
    let directory = shared.directory.0.as_bytes().to_vec();
    let mut text = |name: &str, value: &str| put(name, value.into());
    for name in ["SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "MARGAY_JOB_ID"] {
        text(name, &job);
    }
    for name in ["SLURM_JOB_NAME", "PBS_JOBNAME"] {
        text(name, &entry.name);
    }
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "MARGAY_JOB_TASKS"] {
        text(name, &tasks);
    }
    // One host, of which each node of the job is a part.
    for name in ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"] {
        text(name, "1");
    }
    for name in [
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "SLURMD_NODENAME",
        "SLURM_SUBMIT_HOST",
        "PBS_O_HOST",
    ] {
        text(name, host);
    }
    text("SLURM_TASKS_PER_NODE", &tasks);
    for name in ["SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "NCPUS"] {
        text(name, &slots);
    }
    if let Some(cpus) = size.cpus_per_task {
        text("SLURM_CPUS_PER_TASK", &cpus.to_string());
    }
    for name in ["SLURM_JOB_PARTITION", "PBS_QUEUE", "PBS_O_QUEUE"] {
        text(name, &entry.partition);
    }
    text("PBS_NP", &tasks);
    text("PBS_NUM_NODES", &nodes);
    text("PBS_NUM_PPN", &size.tasks_per_node.unwrap_or(1).to_string());
    text("PBS_ENVIRONMENT", "PBS_BATCH");
    if let (Some(array), Some(task)) = (entry.job.array, entry.task) {
        text("SLURM_ARRAY_JOB_ID", &array.to_string());
        for name in ["SLURM_ARRAY_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX"] {
            text(name, &task.to_string());
        }
    }
    for (name, of) in [
        ("PBS_O_HOME", "HOME"),
        ("PBS_O_PATH", "PATH"),
        ("PBS_O_SHELL", "SHELL"),
        ("PBS_O_LOGNAME", "LOGNAME"),
    ] {
        put(name, of_shared(of));
    }
    put("PBS_NODEFILE", folder.nodes().into_os_string().into_vec());
    for name in ["SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"] {
        put(name, directory.clone());
    }
    all
}
