//! The variables of a job: those of the command's environment, and what scripts of each batch
//! system expect.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use margay_core_queue::{Dialect, Wishes};
use margay_svc_queue_wire::{Bytes, CHOICE, Shared, pbs_name};

use crate::files::JobFolder;
use crate::site::{HostPart, Site};
use crate::store::Entry;

/// What a job gets of a bare environment, as with Slurm.
const BASIC: [&str; 6] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER"];

/// The value of a variable of the command's environment.
pub fn variable<'a>(shared: &'a Shared, name: &str) -> Option<&'a [u8]> {
    let mut all = shared.environment.iter().rev();
    all.find_map(|v| {
        v.0.as_bytes()
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")
    })
}

/// Whether a variable is of a job within which the command was called, not of this one.
fn is_of_outer_job(variable: &[u8]) -> bool {
    [&b"SLURM_"[..], b"PBS_", b"LOADL_", b"QSUB_", b"MARGAY_JOB_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

/// Variables; the last of a name counts.
struct Variables(Vec<Bytes>);

impl Variables {
    fn put(&mut self, name: &str, value: &[u8]) {
        let whole = [name.as_bytes(), b"=", value].concat();
        self.0.push(Bytes(OsString::from_vec(whole)));
    }

    /// Each name once.
    fn distinct(self) -> Vec<Bytes> {
        let name = |variable: &Bytes| {
            let bytes = variable.0.as_bytes();
            let end = bytes.iter().position(|&byte| byte == b'=');
            bytes[..end.unwrap_or(bytes.len())].to_vec()
        };
        let mut known = HashSet::with_capacity(self.0.len());
        let mut kept: Vec<Bytes> = Vec::with_capacity(self.0.len());
        let last_first = self.0.into_iter().rev();
        kept.extend(last_first.filter(|variable| known.insert(name(variable))));
        kept.reverse();
        kept
    }

    /// Gives several names one value.
    fn all(&mut self, names: &[&str], value: &str) {
        for name in names {
            self.put(name, value.as_bytes());
        }
    }
}

/// What a job is, for its variables.
struct Facts<'a> {
    entry: &'a Entry,
    shared: &'a Shared,
    wishes: &'a Wishes,
    site: Site<'a>,
}

/// `PATH` with the commands of batch systems in front: in a job of this queue they are those that
/// know it. Behind all others is the folder of `mpiexec`, for scripts that find none elsewhere.
fn path(shared: &Shared, program: &Path) -> Option<OsString> {
    let bin = program.parent()?;
    let first = bin.parent()?.join("share/margay/compat/bin");
    let usual = OsStr::from_bytes(variable(shared, "PATH")?);
    let mut folders: Vec<PathBuf> = std::env::split_paths(usual).collect();
    if first.is_dir() {
        folders.retain(|folder| *folder != first);
        folders.insert(0, first);
    }
    if !folders.iter().any(|folder| folder == bin) {
        folders.push(bin.to_owned());
    }
    std::env::join_paths(folders).ok()
}

/// The environment of a job.
pub fn environment(
    entry: &Entry,
    shared: &Shared,
    wishes: &Wishes,
    site: Site<'_>,
    folder: &JobFolder,
    program: &Path,
) -> Vec<Bytes> {
    let is_basic = |variable: &[u8]| {
        BASIC.iter().any(|name| {
            variable.starts_with(name.as_bytes()) && variable.get(name.len()) == Some(&b'=')
        })
    };
    let usual = shared
        .environment
        .iter()
        .filter(|v| !is_of_outer_job(v.0.as_bytes()))
        .filter(|v| !wishes.is_bare || is_basic(v.0.as_bytes()));
    let mut variables = Variables(usual.cloned().collect());
    // A container's shell may have neither.
    for name in ["USER", "LOGNAME"] {
        if variable(shared, name).is_none() {
            variables.put(name, shared.user.as_bytes());
        }
    }
    for (name, value) in &wishes.variables {
        variables.put(name, value.as_bytes());
    }
    if let Some(path) = path(shared, program) {
        variables.put("PATH", path.as_bytes());
    }
    let facts = Facts {
        entry,
        shared,
        wishes,
        site,
    };
    let put = &mut variables;
    common(put, &facts);
    slurm(put, &facts);
    pbs(put, &facts);
    loadleveler(put, &facts);
    // Commands in the job ask the queue that it is of.
    let queue = match shared.owner {
        Some(_) => "system",
        None => "own",
    };
    put.all(&[CHOICE], queue);
    let nodes = folder.nodes();
    for name in ["PBS_NODEFILE", "LOADL_HOSTFILE"] {
        put.put(name, nodes.as_os_str().as_bytes());
    }
    for name in ["SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "QSUB_WORKDIR"] {
        put.put(name, shared.directory.0.as_bytes());
    }
    let asked = wishes.directory.as_deref().unwrap_or_default();
    let own = Path::new(&shared.directory.0).join(asked);
    put.put("LOADL_STEP_INITDIR", own.as_os_str().as_bytes());
    variables.distinct()
}

/// What several systems have under names of their own.
fn common(put: &mut Variables, facts: &Facts<'_>) {
    let (entry, size) = (facts.entry, &facts.wishes.size);
    let (job, tasks) = (entry.job.id.to_string(), size.tasks().to_string());
    put.all(&["SLURM_JOB_ID", "SLURM_JOBID", "MARGAY_JOB_ID"], &job);
    let names = [
        "SLURM_JOB_NAME",
        "PBS_JOBNAME",
        "LOADL_JOB_NAME",
        "QSUB_REQNAME",
    ];
    put.all(&names, &entry.name);
    let names = [
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "MARGAY_JOB_TASKS",
        "LOADL_TOTAL_TASKS",
        "PBS_NP",
    ];
    put.all(&names, &tasks);
    let names = [
        "SLURM_SUBMIT_HOST",
        "SLURM_CLUSTER_NAME",
        "PBS_O_HOST",
        "QSUB_HOST",
    ];
    put.all(&names, facts.site.server);
    put.all(&["SLURMD_NODENAME"], facts.site.node);
    hosts(put, facts);
    let names = ["SLURM_JOB_PARTITION", "PBS_QUEUE", "PBS_O_QUEUE"];
    put.all(&names, &entry.partition);
    let names = [
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "PBS_NODENUM",
        "PBS_TASKNUM",
    ];
    put.all(&names, "0");
    if let Some(task) = entry.task {
        let names = ["SLURM_ARRAY_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX"];
        put.all(&names, &task.to_string());
    }
}

/// Which hosts a job has, and what of each.
fn hosts(put: &mut Variables, facts: &Facts<'_>) {
    let site = facts.site;
    let all = |text: &dyn Fn(&HostPart) -> String| -> String {
        let texts: Vec<String> = site.parts.iter().map(text).collect();
        texts.join(",")
    };
    let slots = facts.entry.job.slots.to_string();
    let (names, tasks, cpus, first) = match site.parts {
        [] => {
            let tasks = facts.wishes.size.tasks().to_string();
            (site.node.to_owned(), tasks, slots.clone(), slots.clone())
        }
        [first, ..] => (
            all(&|part| part.host.clone()),
            all(&|part| part.tasks.to_string()),
            all(&|part| part.slots.to_string()),
            first.slots.to_string(),
        ),
    };
    put.all(&["SLURM_JOB_NODELIST", "SLURM_NODELIST"], &names);
    put.all(&["SLURM_TASKS_PER_NODE"], &tasks);
    put.all(&["SLURM_JOB_CPUS_PER_NODE"], &cpus);
    put.all(&["SLURM_CPUS_ON_NODE", "NCPUS"], &first);
    let count = site.parts.len().max(1).to_string();
    put.all(&["SLURM_JOB_NUM_NODES", "SLURM_NNODES"], &count);
    // Where the job is on its own host alone, mpiexec needs no list.
    let is_here = site.parts.iter().all(|part| part.host == site.node);
    if !is_here {
        put.all(&["MARGAY_JOB_SLOTS"], &slots);
        let list = all(&|part| format!("{}:{}", part.host, part.tasks));
        put.all(&["MARGAY_JOB_HOSTS"], &list);
        // What starts agents on the hosts here does so there.
        put.all(&["MARGAY_RSH"], &site.shell.join(" "));
    }
}

fn slurm(put: &mut Variables, facts: &Facts<'_>) {
    let (entry, wishes) = (facts.entry, facts.wishes);
    let size = &wishes.size;
    put.all(&["SLURM_JOB_USER"], &facts.shared.user);
    put.all(&["SLURM_RESTART_COUNT"], &entry.runs.to_string());
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    let memory = |mib: Option<u64>| mib.map(|mib| mib.to_string());
    for (name, value) in [
        ("SLURM_CPUS_PER_TASK", text(size.cpus_per_task)),
        ("SLURM_NTASKS_PER_NODE", text(size.tasks_per_node)),
        ("SLURM_MEM_PER_NODE", memory(size.memory_mib)),
        ("SLURM_MEM_PER_CPU", memory(size.slot_memory_mib)),
        ("SLURM_JOB_ACCOUNT", entry.account.clone()),
    ] {
        if let Some(value) = value {
            put.all(&[name], &value);
        }
    }
    if let (Some(array), Some(task)) = (entry.job.array, entry.task) {
        let indices = wishes.array.as_ref().map(|array| &array.indices[..]);
        let indices = indices.unwrap_or_default();
        let or_own = |index: Option<&u32>| index.copied().unwrap_or(task).to_string();
        put.all(&["SLURM_ARRAY_JOB_ID"], &array.to_string());
        put.all(&["SLURM_ARRAY_TASK_COUNT"], &indices.len().to_string());
        put.all(&["SLURM_ARRAY_TASK_MIN"], &or_own(indices.first()));
        put.all(&["SLURM_ARRAY_TASK_MAX"], &or_own(indices.last()));
    }
}

/// Those of PBS and of NQS before it.
fn pbs(put: &mut Variables, facts: &Facts<'_>) {
    let (entry, size) = (facts.entry, &facts.wishes.size);
    let array = entry.job.array.zip(entry.task);
    put.all(
        &["PBS_JOBID"],
        &pbs_name(entry.job.id, array, facts.site.server),
    );
    put.all(&["PBS_NUM_NODES"], &size.nodes.unwrap_or(1).to_string());
    put.all(
        &["PBS_NUM_PPN"],
        &size.tasks_per_node.unwrap_or(1).to_string(),
    );
    put.all(&["PBS_ENVIRONMENT"], "PBS_BATCH");
    put.all(&["ENVIRONMENT"], "BATCH");
    if let Some(limit) = entry.job.limit_s {
        put.all(&["PBS_WALLTIME"], &limit.to_string());
    }
    for (name, of) in [
        ("PBS_O_HOME", "HOME"),
        ("PBS_O_PATH", "PATH"),
        ("PBS_O_SHELL", "SHELL"),
        ("PBS_O_LOGNAME", "LOGNAME"),
        ("PBS_O_LANG", "LANG"),
    ] {
        put.put(name, variable(facts.shared, of).unwrap_or_default());
    }
}

fn loadleveler(put: &mut Variables, facts: &Facts<'_>) {
    if facts.wishes.dialect != Some(Dialect::LoadLeveler) {
        return;
    }
    let (entry, host) = (facts.entry, facts.site.server);
    put.all(&["LOADL_STEP_ID"], &format!("{host}.{}.0", entry.job.id));
    put.all(&["LOADL_STEP_OWNER"], &facts.shared.user);
    put.all(&["LOADL_STEP_CLASS"], &entry.partition);
    put.all(&["LOADLBATCH", "LOADL_ACTIVE"], "yes");
    let count = facts.wishes.size.tasks().min(entry.job.slots);
    let of_part = |part: &'_ HostPart| vec![part.host.clone(); part.tasks as usize];
    let hosts: Vec<String> = match facts.site.parts {
        [] => vec![host.to_owned(); count as usize],
        parts => parts.iter().flat_map(of_part).collect(),
    };
    put.all(&["LOADL_PROCESSOR_LIST"], &hosts.join(" "));
}
