//! Jobs under Slurm and under the launchers of other MPI libraries: the programs' own start by PMI
//! and PMIx, and `mpiexec` within an allocation. Slurm runs on hosts of this machine.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Output;

use margay_tests::jobs::{Built, text};
use margay_tests::slurm::Slurm;
use margay_tests::{command, run, stage};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One world of 4 ranks, which all got the sum of all.
fn assert_world(output: &Output) {
    let said = out(output);
    for rank in 0..4 {
        let line = format!("rank {rank} of 4 has the sum 6");
        assert_eq!(said.matches(&line).count(), 1, "{}", text(output));
    }
}

/// Whether the system has the library of PMIx, without which neither side speaks it: Margay opens
/// `libpmix.so.2`, and Slurm's plugin `libpmix.so`, which comes with what programs are built with.
fn has_pmix() -> bool {
    let both = "ldconfig -p | grep -qF libpmix.so.2 && ls /usr/lib/*/pmix*/lib/libpmix.so";
    let has = command("sh", 10)
        .args(["-c", both])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has {
        println!("note: there is no libpmix.so.2, or no libpmix.so: PMIx is not tested");
    }
    has
}

#[test]
fn slurms_tasks_are_one_world() {
    let Some(slurm) = Slurm::start(2) else { return };
    let hosts = Built::mpi("mpi/hosts.c");
    let ends = Built::mpi("mpi/ends.c");
    let ways: &[&str] = if has_pmix() {
        &["pmi2", "pmix"]
    } else {
        &["pmi2"]
    };
    for how in ways {
        let srun = format!("srun --mpi={how} -N2 --ntasks-per-node=2");
        let line = format!("{srun} {} 2", hosts.path().display());
        let output = slurm.run(&line, 60);
        let said = out(&output);
        assert!(output.status.success(), "{}{}", text(&output), slurm.logs());
        assert_eq!(said.matches("is content").count(), 4, "{}", text(&output));
        for host in 1..=2 {
            let name = slurm.hosts.name(host);
            assert_eq!(said.matches(&name).count(), 2, "{}", text(&output));
        }
        // However one of them ends, the others do, too, and srun says so.
        for (end, codes) in [
            ("well", &[0][..]),
            ("code", &[3]),
            ("kill", &[101, 137, 143]),
            ("exit", &[101, 137, 143]),
            ("abort", &[7, 101, 137, 143]),
        ] {
            let output = slurm.run(&format!("{srun} {} {end}", ends.path().display()), 60);
            let code = output.status.code().unwrap_or(-1);
            assert!(codes.contains(&code), "{how} {end}: {}", text(&output));
            if code <= 3 {
                assert_world(&output);
            }
        }
    }
    // Without either, no rank runs alone.
    let line = format!("srun --mpi=none -N2 -n2 {}", ends.path().display());
    let output = slurm.run(&line, 60);
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("--mpi=pmi2"), "{}", text(&output));
}

#[test]
fn mpiexec_takes_the_hosts_of_slurms_allocation() {
    let Some(slurm) = Slurm::start(2) else { return };
    let ends = Built::mpi("mpi/ends.c");
    let mpiexec = stage().join("bin/mpiexec");
    let mpiexec = mpiexec.display();
    let (first, second) = (slurm.hosts.name(1), slurm.hosts.name(2));
    let salloc = "salloc -Q -N2 --ntasks-per-node=2";
    let output = slurm.run(&format!("{salloc} {mpiexec} -l hostname"), 60);
    let mut lines: Vec<String> = out(&output).lines().map(str::to_owned).collect();
    lines.sort();
    let wanted = [(0, &first), (1, &first), (2, &second), (3, &second)];
    let wanted = wanted.map(|(rank, host)| format!("[{rank}] {host}"));
    assert_eq!(lines, wanted, "{}{}", text(&output), slurm.logs());
    for (end, code) in [
        ("well", 0),
        ("code", 3),
        ("kill", 137),
        ("exit", 5),
        ("abort", 7),
    ] {
        let line = format!("{salloc} {mpiexec} {} {end}", ends.path().display());
        let output = slurm.run(&line, 60);
        assert_eq!(output.status.code(), Some(code), "{end}: {}", text(&output));
        if code <= 3 {
            assert_world(&output);
        }
    }
    a_file_system_over_the_hosts_of_an_allocation(&slurm, salloc);
    // A script, several times.
    let script = format!(
        "#!/bin/sh\n{mpiexec} {} code\necho task $SLURM_ARRAY_TASK_ID ends with $?\n",
        ends.path().display()
    );
    fs::write(slurm.path("script"), script).expect("the folder takes files");
    let folder = slurm.path("");
    let folder = folder.display();
    let line = format!(
        "sbatch -Q --wait -N2 --ntasks-per-node=2 -a 1-2 -o {folder}/array-%a.out {folder}/script"
    );
    let output = slurm.run(&line, 60);
    assert!(output.status.success(), "{}{}", text(&output), slurm.logs());
    for task in 1..=2 {
        let said = fs::read_to_string(slurm.path(&format!("array-{task}.out"))).expect("it ran");
        assert!(said.contains(&format!("task {task} ends with 3")), "{said}");
        assert_eq!(said.matches("of 4 has the sum 6").count(), 4, "{said}");
    }
    // One that is cancelled leaves nothing.
    let script = format!(
        "#!/bin/sh\nexec {mpiexec} {} forever\n",
        ends.path().display()
    );
    fs::write(slurm.path("script"), script).expect("the folder takes files");
    let line = format!("sbatch -N2 --ntasks-per-node=2 -o {folder}/long.out {folder}/script");
    let output = slurm.run(&line, 60);
    assert!(output.status.success(), "{}", text(&output));
    slurm.until(&format!("grep -c sum {folder}/long.out"), |said| {
        said.trim() == "4"
    });
    let output = slurm.run("scancel -u root", 60);
    assert!(output.status.success(), "{}", text(&output));
    slurm.until("squeue -h", |said| said.trim().is_empty());
    let path = ends.path().display().to_string();
    slurm.until(
        &format!("sh -c \"pgrep -f '{path} fore[v]er'; true\""),
        |said| said.trim().is_empty(),
    );
}

/// The Hydra of MPICH speaks PMI-1, Open MPI's launcher PMIx.
/// It lies on local disks of all hosts, is used from all, and is gone with the job.
fn a_file_system_over_the_hosts_of_an_allocation(slurm: &Slurm, salloc: &str) {
    if fs::File::open("/dev/fuse").is_err() {
        eprintln!("-pfs is not run: /dev/fuse cannot be opened, which a mount takes");
        return;
    }
    let files = Built::mpi("mpi/files.c");
    let local = slurm.path("local");
    fs::create_dir(&local).expect("the folder takes files");
    let line = format!(
        "{salloc} {} -pfs=each:{} -pfs-drain {} sh -c '{} $MARGAY_PFS/file && touch $MARGAY_PFS/by.$MARGAY_RANK'",
        stage().join("bin/mpiexec").display(),
        local.display(),
        slurm.path("results").display(),
        files.path().display()
    );
    let output = slurm.run(&line, 100);
    assert!(output.status.success(), "{}{}", text(&output), slurm.logs());
    for rank in 0..4 {
        assert!(slurm.path(&format!("results/by.{rank}")).exists());
    }
    assert_eq!(fs::read_dir(&local).expect("it stays").count(), 0);
}

#[test]
fn other_launchers_tasks_are_one_world() {
    let ends = Built::mpi("mpi/ends.c");
    for (launcher, options) in [
        ("mpiexec.hydra", "-n 4"),
        ("mpirun.openmpi", "--allow-run-as-root --oversubscribe -n 4"),
    ] {
        let has = command("sh", 10)
            .args(["-c", &format!("command -v {launcher}")])
            .output();
        if !has.is_ok_and(|output| output.status.success()) {
            println!("note: there is no {launcher} here: it is not tested");
            continue;
        }
        for (end, code) in [
            ("well", Some(0)),
            ("code", Some(3)),
            ("abort", Some(7)),
            ("kill", None),
        ] {
            let mut command = command(launcher, 60);
            command.args(options.split(' ')).arg(ends.path()).arg(end);
            let output = run(&mut command);
            match code {
                Some(code) => assert_eq!(
                    output.status.code(),
                    Some(code),
                    "{launcher} {end}: {}",
                    text(&output)
                ),
                None => assert!(
                    !output.status.success(),
                    "{launcher} {end}: {}",
                    text(&output)
                ),
            }
            if code.is_some_and(|code| code <= 3) {
                assert_world(&output);
            }
        }
    }
}

#[test]
fn a_queue_has_the_hosts_of_slurms_allocation() {
    let Some(slurm) = Slurm::start(2) else { return };
    let bin = stage().join("bin");
    let folder = slurm.path("");
    let names = [1, 2].map(|host| slurm.hosts.name(host));
    fs::create_dir(slurm.path("run")).expect("the folder takes files");
    let script = format!(
        "set -e\nexport PATH={}:$PATH HOME={1} XDG_STATE_HOME={1}/state XDG_RUNTIME_DIR={1}/run\ncd {1}\n\
         trap 'margay down --leave' EXIT\nmargay up\nmargay submit --wait -o hosts -N 2 -n 4 -- mpiexec hostname\n\
         margay part mkpart -hosts {2} -rq 300 day\nmargay set queue day partition=day\n\
         for i in 1 2; do margay submit -p day -o turns$i -N 2 -n 4 -- mpiexec sh -c 'sleep 1; hostname'; done\n\
         margay wait --all\n",
        bin.display(),
        folder.display(),
        names.join(",")
    );
    fs::write(slurm.path("script"), script).expect("the folder takes files");
    let line = format!(
        "salloc -Q -N2 --ntasks-per-node=2 sh {}",
        slurm.path("script").display()
    );
    let output = slurm.run(&line, 90);
    let said = text(&output);
    let printed = ["hosts", "turns1", "turns2"]
        .map(|name| fs::read_to_string(slurm.path(name)).unwrap_or_default());
    assert!(output.status.success(), "{said}{printed:?}{}", slurm.logs());
    assert!(said.contains("4 slots on 2 of 2 hosts"), "{said}");
    // So have jobs that take turns there.
    for printed in &printed {
        let mut ran: Vec<&str> = printed.lines().collect();
        ran.sort_unstable();
        let [a, b] = &names;
        assert_eq!(ran, [a, a, b, b], "{said}");
    }
    slurm.until("squeue -h", |said| said.trim().is_empty());
}

#[test]
fn a_queue_shrinks_with_slurms_allocation() {
    let Some(slurm) = Slurm::start(2) else { return };
    fs::create_dir(slurm.path("run")).expect("the folder takes files");
    fs::write(
        slurm.path("lasting"),
        "#!/bin/sh\nhostname >> ran\nwhile [ ! -e go ]; do sleep 0.1; done\n",
    )
    .expect("the folder takes files");
    // Each host has a job. The second host leaves, and its job runs on the first when that is free.
    let script = format!(
        "set -e\nexport PATH={}:$PATH HOME={1} XDG_STATE_HOME={1}/state XDG_RUNTIME_DIR={1}/run\ncd {1}\n\
         trap 'margay cancel --all; margay wait --all || true; margay down' EXIT\nmargay up\n\
         until_ran() {{ n=0; until [ $(wc -l < ran) = $1 ]; do sleep 0.2; n=$((n + 1)); test $n -lt 300; done; }}\n\
         touch ran\nfor i in 1 2; do margay submit -c 2 -o log lasting; done\nuntil_ran 2\n\
         scontrol update JobId=$SLURM_JOB_ID NumNodes=1\n\
         while margay node | grep {2}; do sleep 0.2; done\ntest $(margay queue | grep -c waiting) = 1\n\
         first=$(margay queue | awk '$3 == \"running\" {{ print $1 }}')\n\
         margay cancel $first\nuntil_ran 3\ntouch go\nmargay wait --all\n",
        stage().join("bin").display(),
        slurm.path("").display(),
        slurm.hosts.name(2),
    );
    fs::write(slurm.path("script"), script).expect("the folder takes files");
    let line = format!(
        "salloc -Q -N2 --ntasks-per-node=2 sh {}",
        slurm.path("script").display()
    );
    let output = slurm.run(&line, 100);
    let said = text(&output);
    let log = fs::read_to_string(slurm.path("state/margay/queue/head.log")).unwrap_or_default();
    assert!(output.status.success(), "{said}{log}{}", slurm.logs());
    let ran = fs::read_to_string(slurm.path("ran")).unwrap_or_default();
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    let names = [1, 1, 2].map(|host| slurm.hosts.name(host));
    assert_eq!(ran, names, "{said}{log}");
    slurm.until("squeue -h", |said| said.trim().is_empty());
}

#[test]
fn a_queue_grows_with_slurms_allocation() {
    let Some(slurm) = Slurm::start_with_accounts(2) else {
        return;
    };
    fs::create_dir(slurm.path("run")).expect("the folder takes files");
    fs::write(
        slurm.path("lasting"),
        "#!/bin/sh\nhostname >> ran\nwhile [ ! -e go ]; do sleep 0.1; done\n",
    )
    .expect("the folder takes files");
    // The second job waits until another allocation has given its host to the first one.
    let script = format!(
        "set -e\nexport PATH={}:$PATH HOME={1} XDG_STATE_HOME={1}/state XDG_RUNTIME_DIR={1}/run\ncd {1}\n\
         trap 'margay cancel --all; margay wait --all || true; margay down' EXIT\nmargay up\n\
         until_ran() {{ n=0; until [ $(wc -l < ran) = $1 ]; do sleep 0.2; n=$((n + 1)); test $n -lt 300; done; }}\n\
         touch ran\nfor i in 1 2; do margay submit -c 2 -o log lasting; done\nuntil_ran 1\n\
         own=$SLURM_JOB_ID\nenv -u SLURM_JOB_ID -u SLURM_JOBID \
         salloc -Q -N1 -w {2} --ntasks-per-node=2 --dependency=expand:$own \
         sh -c 'scontrol update JobId=$SLURM_JOB_ID NumNodes=0'\n\
         scontrol update JobId=$own NumNodes=ALL\nuntil_ran 2\ntouch go\nmargay wait --all\n\
         margay submit --wait -N 2 -n 4 -o both -- mpiexec hostname\n",
        stage().join("bin").display(),
        slurm.path("").display(),
        slurm.hosts.name(2),
    );
    fs::write(slurm.path("script"), script).expect("the folder takes files");
    let line = format!(
        "salloc -Q -N1 --ntasks-per-node=2 sh {}",
        slurm.path("script").display()
    );
    let output = slurm.run(&line, 100);
    let said = text(&output);
    let log = fs::read_to_string(slurm.path("state/margay/queue/head.log")).unwrap_or_default();
    assert!(output.status.success(), "{said}{log}{}", slurm.logs());
    for (file, hosts) in [("ran", &[1, 2][..]), ("both", &[1, 1, 2, 2])] {
        let ran = fs::read_to_string(slurm.path(file)).unwrap_or_default();
        let mut ran: Vec<&str> = ran.lines().collect();
        ran.sort_unstable();
        let names: Vec<String> = hosts.iter().map(|host| slurm.hosts.name(*host)).collect();
        assert_eq!(ran, names, "{said}{log}");
    }
    slurm.until("squeue -h", |said| said.trim().is_empty());
}
