//! Programs that are linked with Margay, under other launchers.
#![forbid(unsafe_code)]

use std::process::Output;

use margay_tests::jobs::{Built, Words, text};
use margay_tests::voices::mpiexec;
use margay_tests::{command, run};

/// Runs the program as a launcher would that sets these variables.
fn with(built: &Built, variables: &str) -> Output {
    let mut command = command(built.path(), 30);
    for variable in variables.split_whitespace() {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, value);
    }
    run(&mut command)
}

#[test]
fn a_process_that_another_launcher_started_as_one_of_several_is_refused() {
    let built = Built::mpi("mpi/alone.c");
    for (variables, launcher) in [
        (
            "PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 MPI_LOCALNRANKS=4 HYDI_CONTROL_FD=7",
            "MPICH's mpiexec as one of 4 processes (PMI_SIZE=4)",
        ),
        (
            "PMI_RANK=1 PMI_SIZE=2 PMI_FD=9 MPI_LOCALNRANKS=2 I_MPI_HYDRA_UUID=1",
            "Intel MPI's mpiexec as one of 2 processes (PMI_SIZE=2)",
        ),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 PMIX_RANK=0",
            "Open MPI's mpirun as one of 3 processes (OMPI_COMM_WORLD_SIZE=3)",
        ),
        (
            "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8",
            "Slurm's srun as one of 8 processes (SLURM_STEP_NUM_TASKS=8)",
        ),
    ] {
        let output = with(&built, variables);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code().is_some_and(|code| code != 0),
            "{}",
            text(&output)
        );
        assert!(output.stdout.is_empty(), "{}", text(&output));
        assert_eq!(err.lines().count(), 1, "{err}");
        let expected = format!("MPI_Init: this process was started by {launcher}, ");
        assert!(err.starts_with(&expected), "{err}");
        assert!(err.contains("start it with Margay's mpiexec"), "{err}");
        let output = with(&built, &format!("{variables} MARGAY_SINGLETON=1"));
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(output.stdout, b"0 of 1\n");
    }
}

#[test]
fn one_process_and_an_allocation_are_no_reason_to_refuse() {
    let built = Built::mpi("mpi/alone.c");
    for variables in [
        "",
        "PMI_RANK=0 PMI_SIZE=1 PMI_FD=9 MPI_LOCALNRANKS=1",
        "OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0",
        "SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_NNODES=2",
        "PBS_JOBID=1 PBS_NP=8",
    ] {
        let output = with(&built, variables);
        assert!(output.status.success(), "{variables}: {}", text(&output));
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"0 of 1\n"[..], &b""[..]),
            "{variables}"
        );
    }
}

#[test]
fn margays_launcher_works_inside_another_ones_job() {
    let built = Built::mpi("mpi/alone.c");
    let mut launcher = mpiexec(3);
    for (name, value) in [
        ("PMI_FD", "9"),
        ("PMI_SIZE", "64"),
        ("PMIX_NAMESPACE", "x"),
        ("OMPI_COMM_WORLD_SIZE", "64"),
        ("SLURM_STEP_NUM_TASKS", "64"),
        ("SLURM_PROCID", "1"),
    ] {
        launcher.env(name, value);
    }
    let output = run(launcher.args(["-output", "ordered"]).arg(built.path()));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(output.stdout, b"0 of 3\n1 of 3\n2 of 3\n");
}

#[test]
fn a_launcher_inside_a_rank_is_noticed() {
    let built = Built::mpi("mpi/alone.c");
    let program = built.path();
    let words = Words::mpiexec(30, 1, "/usr/bin/env".as_ref(), "PMI_FD=7 PMI_SIZE=2").and(&program);
    let output = run(&mut words.command(60));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{err}");
    assert!(err.contains("started by a launcher with PMI"), "{err}");
}

#[test]
fn a_rank_that_never_calls_mpi_init_does_not_leave_the_others_waiting() {
    let built = Built::mpi("mpi/alone.c");
    let words = Words::mpiexec(60, 1, &built.path(), "").and_all(": -n 1 true");
    let output = run(&mut words.command(90));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        err.contains("rank 1, which has ended without calling MPI_Init")
            || err.contains("rank 1 has ended without calling MPI_Init"),
        "{err}"
    );
    assert!(err.contains("the job has been ended"), "{err}");
}
