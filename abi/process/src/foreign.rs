//! Launchers of other MPI libraries and of machines, as the environment of a process shows them.
//!
//! A program that is linked with Margay and started by one of them would run as many times alone,
//! each time as rank 0 of 1, write the same files and end with 0. So a process that such a launcher
//! started as one of several is refused.

use std::fmt;

use margay_sys_shm::environment::ENV_SINGLETON;

/// A launcher that is not Margay's and started this process as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignLauncher {
    /// Whose it is.
    name: &'static str,
    /// The variable that shows it.
    variable: &'static str,
    /// Its value.
    value: String,
    /// How many processes there are, where that is known.
    processes: Option<u64>,
}

/// What shows a launcher: its name, the variable with the number of processes, and another that
/// must be set as well.
const SIZES: [(&str, &str, &str); 13] = [
    ("PALS", "PALS_LOCAL_SIZE", ""),
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", ""),
    ("Intel MPI's mpiexec", "PMI_SIZE", "I_MPI_HYDRA_UUID"),
    ("MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_SIZE", ""),
    ("Slurm's srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ("jsrun", "JSM_NAMESPACE_SIZE", ""),
    ("PALS", "PMI_SIZE", "PALS_RANKID"),
    ("ALPS' aprun", "PMI_SIZE", "ALPS_APP_PE"),
    ("MPICH's mpiexec", "PMI_SIZE", "HYDI_CONTROL_FD"),
    ("a launcher with PMI", "PMI_SIZE", ""),
    ("Intel MPI's mpiexec", "MPI_LOCALNRANKS", "I_MPI_HYDRA_UUID"),
    ("MPICH's mpiexec", "MPI_LOCALNRANKS", ""),
];

/// By these a process talks to its launcher. Margay's removes them, so they are from one below it.
const CONNECTIONS: [(&str, &str); 3] = [
    ("a launcher with PMI", "PMI_FD"),
    ("a launcher with PMI", "PMI_PORT"),
    ("a launcher with PMIx", "PMIX_NAMESPACE"),
];

/// From this number on, Slurm's steps are none that srun made: the batch script, an interactive
/// shell.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

impl ForeignLauncher {
    /// Returns the launcher of which `variable`, the environment, says that it started this process
    /// as one of several. `is_ours` is whether Margay's launcher started it, or one of its parents.
    pub fn find(
        variable: impl Fn(&str) -> Option<String>,
        is_ours: bool,
    ) -> Option<ForeignLauncher> {
        let number = |name: &str| variable(name)?.trim().parse::<u64>().ok();
        if variable(ENV_SINGLETON).is_some_and(|v| !v.is_empty() && v != "0") {
            return None;
        }
        let shown = |name, of: &'static str, processes| {
            let value = variable(of)?;
            Some(ForeignLauncher {
                name,
                variable: of,
                value,
                processes,
            })
        };
        if is_ours {
            // Margay's launcher sets most of the sizes itself, for frameworks that look for them.
            let below = |&(name, of): &(&'static str, &'static str)| shown(name, of, None);
            return CONNECTIONS.iter().find_map(below);
        }
        let by_size = SIZES.iter().find_map(|&(name, size, also)| {
            let several = number(size).filter(|&n| n > 1)?;
            (also.is_empty() || variable(also).is_some())
                .then(|| shown(name, size, Some(several)))?
        });
        by_size
            .or_else(|| {
                // Slurm's own count of a step's tasks is missing in old versions; a batch script
                // and a shell have the allocation's count.
                let step = number("SLURM_STEP_ID").filter(|&step| step < FIRST_SPECIAL_STEP);
                let tasks = number("SLURM_NTASKS").filter(|&n| n > 1)?;
                let is_old = variable("SLURM_STEP_NUM_TASKS").is_none();
                (step.is_some() && is_old)
                    .then(|| shown("Slurm's srun", "SLURM_NTASKS", Some(tasks)))?
            })
            .or_else(|| {
                // PMIx tells the size to those alone that speak it.
                number("PMIX_RANK").filter(|&rank| rank > 0)?;
                shown("a launcher with PMIx", "PMIX_RANK", None)
            })
    }

    /// Who started this process, as the beginning of a sentence.
    pub fn who(&self) -> String {
        let ForeignLauncher {
            name,
            variable,
            value,
            ..
        } = self;
        let many = match self.processes {
            Some(n) => format!("one of {n} processes"),
            None => "one of several processes".into(),
        };
        format!("this process was started by {name} as {many} ({variable}={value})")
    }

    /// What helps in any case.
    pub fn remedy(&self) -> String {
        let ranks = self.processes.map_or_else(|| "N".into(), |n| n.to_string());
        format!(
            "start it with Margay's mpiexec (mpiexec -n {ranks} ...), or set {ENV_SINGLETON}=1 to run it alone on purpose"
        )
    }
}

impl fmt::Display for ForeignLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, without PMI or PMIx, by which its library could join the others: each would run alone; have the launcher \
             offer one (srun --mpi=pmi2), {}",
            self.who(),
            self.remedy()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, is_ours: bool) -> Option<ForeignLauncher> {
        let variable = |name: &str| {
            let mut pairs = line.split(' ').filter_map(|word| word.split_once('='));
            let (_, value) = pairs.find(|(n, _)| *n == name)?;
            Some(value.to_owned())
        };
        ForeignLauncher::find(variable, is_ours)
    }

    #[test]
    fn launchers_of_several_processes_are_known_by_what_they_set() {
        for (line, name, variable) in [
            (
                "PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 HYDI_CONTROL_FD=7 MPI_LOCALNRANKS=4",
                "MPICH's mpiexec",
                "PMI_SIZE",
            ),
            (
                "PMI_SIZE=2 PMI_FD=9 I_MPI_HYDRA_UUID=1",
                "Intel MPI's mpiexec",
                "PMI_SIZE",
            ),
            ("MPI_LOCALNRANKS=2", "MPICH's mpiexec", "MPI_LOCALNRANKS"),
            (
                "OMPI_COMM_WORLD_SIZE=3 PMIX_RANK=0",
                "Open MPI's mpirun",
                "OMPI_COMM_WORLD_SIZE",
            ),
            (
                "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8",
                "Slurm's srun",
                "SLURM_STEP_NUM_TASKS",
            ),
            (
                "SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=8",
                "Slurm's srun",
                "SLURM_NTASKS",
            ),
            ("PALS_RANKID=0 PMI_SIZE=4", "PALS", "PMI_SIZE"),
            ("PMIX_RANK=1", "a launcher with PMIx", "PMIX_RANK"),
            ("FLUX_JOB_SIZE=2 FLUX_TASK_RANK=0", "Flux", "FLUX_JOB_SIZE"),
        ] {
            let foreign = found(line, false).expect(line);
            assert_eq!((foreign.name, foreign.variable), (name, variable), "{line}");
            let text = foreign.to_string();
            assert!(text.contains(name) && text.contains(variable), "{text}");
            assert!(
                text.contains("mpiexec -n") && text.contains("MARGAY_SINGLETON=1"),
                "{text}"
            );
            assert_eq!(found(&format!("{line} MARGAY_SINGLETON=1"), false), None);
        }
    }

    #[test]
    fn an_allocation_or_one_process_is_no_reason() {
        for line in [
            "",
            // sbatch's script, a shell of salloc, an interactive step.
            "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_NNODES=2",
            "SLURM_JOB_ID=7 SLURM_NTASKS=8",
            "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_STEP_ID=4294967290 SLURM_PROCID=0",
            "SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
            "PMI_RANK=0 PMI_SIZE=1 PMI_FD=9 MPI_LOCALNRANKS=1",
            "OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 PMIX_NAMESPACE=x",
            "PMI_SIZE=many",
            "PBS_JOBID=1 PBS_NP=8 LSB_JOBID=1",
        ] {
            assert_eq!(found(line, false), None, "{line}");
        }
    }

    #[test]
    fn what_margays_launcher_sets_is_no_reason_but_a_launcher_below_it_is() {
        assert_eq!(
            found("PMI_SIZE=4 OMPI_COMM_WORLD_SIZE=4 MPI_LOCALNRANKS=4", true),
            None
        );
        let below = found("PMI_SIZE=2 PMI_FD=7", true).unwrap();
        assert_eq!(below.variable, "PMI_FD");
        assert!(below.to_string().contains("one of several processes"));
    }
}
