//! The machine that `margay up` is to have: the hosts that the user, or an allocation, names.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use margay_job_launch::hosts::is_this_machine;
use margay_job_launch::plan::Hosts;
use margay_svc_queue_wire::{HostSpec, MachineSpec};

use crate::allocation::allocation;
use crate::hosts::{HostList, hosts};
use crate::queue_options::UpOptions;

/// The words of what starts agents in an allocation, from within the queue's jobs as well: there
/// Slurm's variables are those of the job, and `srun` is the queue's.
fn from_jobs(shell: &str) -> Vec<String> {
    const OF_JOBS: [&str; 5] = [
        "SLURM_CPUS_PER_TASK",
        "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_NODE",
        "SLURM_NNODES",
        "SLURM_NTASKS",
    ];
    let mut words: Vec<String> = shell.split_whitespace().map(str::to_owned).collect();
    let job = env::var("SLURM_JOB_ID").or_else(|_| env::var("SLURM_JOBID"));
    let (Some(at), Ok(job)) = (words.iter().position(|word| word == "srun"), job) else {
        return words;
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let slurms = env::split_paths(&path)
        .filter(|folder| !folder.ends_with("share/margay/compat/bin"))
        .map(|folder| folder.join("srun"))
        .find(|program| program.is_file());
    if let Some(Some(program)) = slurms.as_deref().map(Path::to_str) {
        program.clone_into(&mut words[at]);
    }
    words.insert(at + 1, format!("--jobid={job}"));
    if let Ok(file) = env::var("SLURM_CONF") {
        words.insert(at, format!("SLURM_CONF={file}"));
    }
    // Behind `env`, with which they begin.
    words.splice(
        1..1,
        OF_JOBS
            .iter()
            .flat_map(|name| ["-u", *name].map(str::to_owned)),
    );
    words
}

/// The hosts that a command of the user prints.
fn printed(command: &str) -> Result<HostList, String> {
    let failed = |why: &str| {
        format!(
            "--hosts-from: `{command}` {why}; it is to print the hosts, a line each: name or name:slots"
        )
    };
    if command.contains('\n') {
        return Err(failed("has several lines: put them into a script"));
    }
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(&format!("cannot be run: {error}")))?;
    if !output.status.success() {
        return Err(failed(&format!("failed ({})", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    match lines.is_empty() {
        true => Err(failed("prints no host")),
        false => {
            hosts(&lines.join(",")).map_err(|why| failed(&format!("prints something else: {why}")))
        }
    }
}

/// The machine that is asked for; none where nothing says what it is.
pub(crate) fn machine(options: &UpOptions) -> Result<Option<MachineSpec>, String> {
    let printed = options.hosts_from.as_deref().map(printed).transpose()?;
    let list = options.hosts.as_ref().or(options.hostfile.as_ref());
    let (list, shell) = match printed.as_ref().or(list) {
        Some(list) => (Some(list.clone()), None),
        None => {
            let variable = |name: &str| env::var(name).ok();
            let read = |path: &str| fs::read_to_string(path).map_err(|error| error.to_string());
            let found = allocation(variable, read)?;
            found.map_or((None, None), |found| (Some(found.list), found.shell))
        }
    };
    let named = options.launcher_exec.as_deref();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let shell = named.map(words).or_else(|| shell.map(from_jobs));
    let shell: Vec<String> = match shell {
        Some(words) if !Vec::is_empty(&words) => words,
        _ => Hosts::SHELL.map(str::to_owned).to_vec(),
    };
    let hosts: Vec<HostSpec> = (list.as_ref().map(HostList::distinct).unwrap_or_default())
        .into_iter()
        .filter(|(_, slots)| *slots != Some(0))
        .map(|(name, slots)| HostSpec {
            name,
            slots,
            leaves: false,
        })
        .collect();
    match &hosts[..] {
        [] if options.slots.is_none() => Ok(None),
        // This host alone: a machine as without a list, but in an allocation, which may grow.
        [only]
            if is_this_machine(&only.name)
                && options.hosts_from.is_none()
                && !shell.iter().any(|word| word.starts_with("--jobid=")) =>
        {
            Ok(Some(MachineSpec {
                slots: options.slots.or(only.slots),
                hosts: Vec::new(),
                shell,
                hosts_from: None,
            }))
        }
        _ => Ok(Some(MachineSpec {
            slots: options.slots,
            hosts,
            shell,
            hosts_from: options.hosts_from.clone(),
        })),
    }
}
