//! The hosts of a batch system's allocation in which the launcher runs: where the user names none,
//! these are the job's.
//!
//! | system | hosts and places | agents are started by |
//! | --- | --- | --- |
//! | Margay's own queue | `MARGAY_JOB_HOSTS` | `ssh` |
//! | Slurm | `SLURM_JOB_NODELIST`, `SLURM_TASKS_PER_NODE` | `srun`, one for each host |
//! | PBS | the file `PBS_NODEFILE`: a line for each place | `ssh` |
//! | LSF | the file `LSB_DJOB_HOSTFILE`, or `LSB_MCPU_HOSTS` | `blaunch` |
//! | Grid Engine | the file `PE_HOSTFILE`: host, places, ... | `qrsh -inherit` |

use crate::hosts::{HostList, hosts};
use crate::options::RunOptions;

/// What starts an agent within Slurm's allocation: a step of its own, beside others, with all cores
/// of the host. Its output is bytes, not lines.
const SRUN: &str = "env -u SLURM_NTASKS_PER_NODE -u SLURM_EXACT -u SLURM_EXCLUSIVE -u SLURM_CPU_BIND_TYPE SLURM_OVERLAP=1 SLURM_WHOLE=1 \
                    SLURM_CPU_BIND=none srun -u -Q -N1 -n1 --mpi=none -w %h sh -c";
const BLAUNCH: &str = "blaunch %h sh -c";
const QRSH: &str = "qrsh -inherit %h sh -c";

/// The variable of the processes of a job of the queue that names its hosts, with the tasks of
/// each.
const ENV_HOSTS: &str = "MARGAY_JOB_HOSTS";

/// From this number on, Slurm's steps are none that srun made: the batch script, an interactive
/// shell.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// Hosts that a batch system has given to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The hosts with their places.
    pub list: HostList,
    /// What starts agents there; none is the usual remote shell.
    pub shell: Option<&'static str>,
}

/// Returns the allocation that `variable`, the environment, shows; `read` reads a file.
///
/// # Errors
/// When what it shows is none.
pub fn allocation(
    variable: impl Fn(&str) -> Option<String>,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<Option<Allocation>, String> {
    let own = |name: &str| variable(name).filter(|value| !value.is_empty());
    // Margay's own queue sets the variables of others for scripts. Its jobs run on the host on
    // which they begin, unless it says otherwise.
    if own(crate::job::ENV_TASKS).is_some() {
        let Some(text) = own(ENV_HOSTS) else {
            return Ok(None);
        };
        let list = hosts(&text).map_err(|why| format!("{ENV_HOSTS}={text}: {why}"))?;
        let shell = None;
        return Ok(Some(Allocation { list, shell }));
    }
    let file = |name: &str, path: &str| {
        let text = read(path).map_err(|why| format!("{name}={path}: {why}"));
        text.map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let (from, lines, shell) = if let Some(nodes) = slurm_nodes(own) {
        let places = own("SLURM_TASKS_PER_NODE").or_else(|| own("SLURM_JOB_CPUS_PER_NODE"));
        let list = HostList::of_nodes(&nodes, &counts(&places.unwrap_or_default())?);
        let list = list.map_err(|why| format!("SLURM_JOB_NODELIST={nodes}: {why}"))?;
        let shell = Some(SRUN);
        return Ok(Some(Allocation { list, shell }));
    } else if let (Some(path), Some(_)) = (own("PBS_NODEFILE"), own("PBS_JOBID")) {
        ("PBS_NODEFILE", file("PBS_NODEFILE", &path)?, None)
    } else if let (Some(path), Some(_)) = (own("LSB_DJOB_HOSTFILE"), own("LSB_JOBID")) {
        (
            "LSB_DJOB_HOSTFILE",
            file("LSB_DJOB_HOSTFILE", &path)?,
            Some(BLAUNCH),
        )
    } else if let (Some(pairs), Some(_)) = (own("LSB_MCPU_HOSTS"), own("LSB_JOBID")) {
        let words: Vec<&str> = pairs.split_whitespace().collect();
        let lines = words.chunks(2).map(|pair| pair.join(" ")).collect();
        ("LSB_MCPU_HOSTS", lines, Some(BLAUNCH))
    } else if let (Some(path), Some(_)) = (own("PE_HOSTFILE"), own("JOB_ID")) {
        ("PE_HOSTFILE", file("PE_HOSTFILE", &path)?, Some(QRSH))
    } else {
        return Ok(None);
    };
    let list = HostList::of_places(lines.iter().map(String::as_str));
    let list = list.map_err(|why| format!("{from}: {why}"))?;
    Ok(Some(Allocation { list, shell }))
}

/// Gives a job for which the user names no hosts those of the allocation, and its way to start
/// agents to one whose hosts are all in it.
pub fn apply(segments: &mut [RunOptions], allocation: Allocation) {
    let names = |options: &RunOptions| {
        let list = options.host.as_ref().or(options.host_file.as_ref());
        list.cloned()
    };
    let is_in = |list: HostList| allocation.list.has_all_of(&list);
    if !segments.iter().filter_map(names).all(is_in) {
        return;
    }
    let is_free =
        |options: &RunOptions| names(options).is_none() && options.placement.partition.is_none();
    let are_free = segments.iter().all(is_free);
    let Some(first) = segments.first_mut() else {
        return;
    };
    if let (None, Some(shell)) = (&first.remote_shell, allocation.shell) {
        first.remote_shell = Some(shell.to_owned());
        // Batch systems promise theirs on the job's first host only.
        first.start.tree_width.get_or_insert(0);
    }
    if are_free {
        first.host = Some(allocation.list);
    }
}

/// The nodes of Slurm's allocation, where this is its script, its shell, or its only task.
fn slurm_nodes(own: impl Fn(&str) -> Option<String>) -> Option<String> {
    let number = |name: &str| own(name)?.trim().parse::<u64>().ok();
    own("SLURM_JOB_ID").or_else(|| own("SLURM_JOBID"))?;
    let is_step = number("SLURM_STEP_ID").is_some_and(|step| step < FIRST_SPECIAL_STEP);
    if is_step && number("SLURM_STEP_NUM_TASKS").is_none_or(|tasks| tasks > 1) {
        return None;
    }
    own("SLURM_JOB_NODELIST").or_else(|| own("SLURM_NODELIST"))
}

/// Numbers as Slurm writes them: `2(x3),1` is `2,2,2,1`.
fn counts(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("'{text}' is not a list of numbers of tasks, as 2(x3),1 is one");
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(wrong)?),
            None => (part, "1"),
        };
        let times: usize = times.parse().map_err(|_| wrong())?;
        if times > 1 << 20 {
            return Err(wrong());
        }
        let count = count.parse().map_err(|_| wrong())?;
        all.extend(std::iter::repeat_n::<u32>(count, times));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts with their places, and whether the system has a way of its own to start agents.
    type Found = (Vec<(String, u32)>, bool);

    fn found(line: &str) -> Result<Option<Found>, String> {
        let variable = |name: &str| {
            let mut pairs = line.split(';').filter_map(|word| word.split_once('='));
            pairs
                .find(|(n, _)| *n == name)
                .map(|(_, value)| value.to_owned())
        };
        let read = |path: &str| match path {
            "pbs" => Ok("a\na\nb\n".into()),
            "sge" => Ok("a 2 q@a UNDEFINED\nb.x 1 q@b <NULL>\n".into()),
            _ => Err("it is not there".into()),
        };
        let found = allocation(variable, read)?;
        Ok(found.map(|of| {
            let hosts = of.list.hosts(None, Vec::new(), None);
            (hosts.list, of.shell.is_some())
        }))
    }

    #[test]
    fn hosts_and_places_are_those_of_the_batch_system() {
        let places = |list: &[(&str, u32)]| -> Vec<(String, u32)> {
            list.iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect()
        };
        for (line, list, has_shell) in [
            (
                "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=n[1-3],m;SLURM_TASKS_PER_NODE=2(x3),1",
                &[("n1", 2), ("n2", 2), ("n3", 2), ("m", 1)][..],
                true,
            ),
            (
                "SLURM_JOBID=7;SLURM_NODELIST=n1;SLURM_JOB_CPUS_PER_NODE=4;SLURM_STEP_ID=4294967290",
                &[("n1", 4)],
                true,
            ),
            (
                "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=n[1-2];SLURM_STEP_ID=0;SLURM_STEP_NUM_TASKS=1",
                &[("n1", 1), ("n2", 1)],
                true,
            ),
            (
                "PBS_JOBID=1;PBS_NODEFILE=pbs",
                &[("a", 1), ("a", 1), ("b", 1)],
                false,
            ),
            (
                "LSB_JOBID=1;LSB_DJOB_HOSTFILE=pbs",
                &[("a", 1), ("a", 1), ("b", 1)],
                true,
            ),
            (
                "LSB_JOBID=1;LSB_MCPU_HOSTS=a 4 b 2",
                &[("a", 4), ("b", 2)],
                true,
            ),
            (
                "MARGAY_JOB_TASKS=3;MARGAY_JOB_HOSTS=a:2,b:1;SLURM_JOB_ID=7;SLURM_JOB_NODELIST=a,b",
                &[("a", 2), ("b", 1)],
                false,
            ),
            ("JOB_ID=1;PE_HOSTFILE=sge", &[("a", 2), ("b.x", 1)], true),
        ] {
            assert_eq!(found(line), Ok(Some((places(list), has_shell))), "{line}");
        }
    }

    #[test]
    fn without_an_allocation_or_as_one_of_several_tasks_there_are_none() {
        for line in [
            "",
            "SLURM_JOB_NODELIST=a",
            "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=a,b;SLURM_STEP_ID=0;SLURM_STEP_NUM_TASKS=4",
            "PBS_NODEFILE=pbs",
            "MARGAY_JOB_TASKS=2;SLURM_JOB_ID=7;SLURM_JOB_NODELIST=a,b;PBS_JOBID=1;PBS_NODEFILE=pbs",
        ] {
            assert_eq!(found(line), Ok(None), "{line}");
        }
        for line in [
            "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=a[1-;SLURM_TASKS_PER_NODE=1",
            "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=a;SLURM_TASKS_PER_NODE=1(x",
            "PBS_JOBID=1;PBS_NODEFILE=nowhere",
        ] {
            assert!(found(line).is_err(), "{line}");
        }
    }
}
