//! Pools of POE: `poe -rmpool` with nodes of partitions, shared or for one job alone.
#![forbid(unsafe_code)]

use std::fs;
use std::process::{Command, Output};

use margay_tests::{command, run, scratch, stage, succeed};

/// A place for partitions of this test alone.
struct Place(tempfile::TempDir);

impl Place {
    fn command(&self, name: &str, line: &str) -> Command {
        let mut command = command(stage().join("bin").join(name), 120);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MP_")) {
            command.env_remove(name);
        }
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.0.path())
            .env("MARGAY_PARTITIONS", self.0.path().join("common"));
        command
    }

    fn part(&self, line: &str) -> String {
        succeed(&mut self.command("margay", &format!("part {line}")))
    }

    /// Says of each task on which cores it may run.
    fn cores(&self, line: &str) -> Vec<String> {
        let mut poe = self.command("poe", &format!("-stdoutmode ordered {line}"));
        let script = "grep Cpus_allowed_list /proc/self/status";
        let printed = succeed(poe.args(["sh", "-c", script]));
        let words = printed.lines().filter_map(|line| line.split('\t').nth(1));
        words.map(str::to_owned).collect()
    }

    fn refused(&self, line: &str) -> String {
        let output = run(&mut self.command("poe", &format!("true {line}")));
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        said(&output)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_machine_without_numbered_pools_is_one_pool() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 named");
    let all = succeed(&mut place.command("margay", "part pexec .compute nproc"));
    let all: usize = all.trim().parse().unwrap();
    assert_eq!(place.cores("-rmpool 3").len(), all, "a task for each node");
    let two = place.cores("-rmpool 0 -nodes 1 -tasks_per_node 2");
    assert!(two.len() == 2 && two[0] == two[1], "{two:?}");
    let many = (all + 1).to_string();
    let text = place.refused(&format!("-rmpool 0 -nodes {many}"));
    assert!(text.contains(&format!("-nodes {all}")), "{text}");
    assert!(place.refused("-rmpool other").contains("'.compute.other'"));
}

#[test]
fn tasks_run_on_nodes_of_the_pool_that_is_named() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 1");
    let core = succeed(&mut place.command(
        "margay",
        "part pexec 1 grep Cpus_allowed_list /proc/self/status",
    ));
    let core = core.trim().split('\t').nth(1).unwrap().to_owned();
    assert_eq!(place.cores("-rmpool 1").join(" "), core);
    assert_eq!(place.cores("-rmpool 1 -procs 2"), [&*core, &*core]);
    assert!(place.refused("-rmpool 2").contains("'.compute.2'"));
    // The variable says the same, and the option more.
    let script = "grep Cpus_allowed_list /proc/self/status";
    let named = |line: &str, pool: &str| {
        let mut poe = place.command("poe", &format!("-stdoutmode ordered {line}"));
        run(poe.env("MP_RMPOOL", pool).args(["sh", "-c", script]))
    };
    let output = named("-procs 2", "1");
    let expected = format!("Cpus_allowed_list:\t{core}\n").repeat(2);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(said(&named("", "2")).contains("'.compute.2'"));
    let output = named("-rmpool 1", "2");
    assert!(output.status.success(), "{}", said(&output));
    // A file names it as well, and hosts in one win over a pool of the options.
    let file = place.0.path().join("host.list");
    fs::write(&file, "! a task on each line\n@1 shared multiple\n@1\n").unwrap();
    let line = format!("-hostfile {}", file.display());
    assert_eq!(place.cores(&line), [&*core, &*core]);
    assert!(
        place
            .refused(&format!("{line} -procs 3"))
            .contains("2 lines for 3 tasks")
    );
    fs::write(&file, "localhost\n").unwrap();
    assert_eq!(place.cores(&format!("{line} -rmpool 2 -procs 1")).len(), 1);
    // In a job of a batch system its nodes are those of the job.
    let mut poe = place.command("poe", "-rmpool 2 echo task");
    let printed = succeed(poe.env("MARGAY_JOB_TASKS", "3"));
    assert_eq!(printed, "task\n".repeat(3));
}

#[test]
fn nodes_are_shared_or_for_one_job_alone() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 1");
    let start = |line: &str, script: &str| {
        let mut poe = place.command("poe", &format!("-rmpool 1 {line}"));
        poe.args(["sh", "-c", script])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        poe.spawn().expect("poe")
    };
    let until = |name: &str| {
        format!("echo; touch {name}-runs; while [ ! -e {name} ]; do sleep 0.02; done; echo")
    };
    let wait_for = |name: &str| {
        while !place.0.path().join(name).exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    // Two that share run beside each other: each waits for the other.
    let mut both = [("a", "b"), ("b", "a")].map(|(own, other)| {
        let script = format!("touch {own}; while [ ! -e {other} ]; do sleep 0.02; done");
        start("-cpu_use multiple", &script)
    });
    for job in &mut both {
        assert!(job.wait().unwrap().success());
    }
    // One alone keeps the other away, and the other way round.
    for (first, second) in [
        ("-cpu_use unique", ""),
        ("", "-adapter_use dedicated"),
        ("-euilib us", "-cpu_use multiple"),
    ] {
        let holds = start(first, &until("end"));
        wait_for("end-runs");
        let waits = start(second, "test -e end && echo after");
        // It says that it waits, after a second.
        std::thread::sleep(std::time::Duration::from_millis(1300));
        fs::write(place.0.path().join("end"), "").unwrap();
        assert!(holds.wait_with_output().unwrap().status.success());
        let output = waits.wait_with_output().unwrap();
        assert_eq!(
            output.stdout,
            b"after\n",
            "{first} {second}: {}",
            said(&output)
        );
        let text = said(&output);
        assert!(
            text.contains("waits for nodes of the partition '.compute.1'"),
            "{text}"
        );
        for name in ["end", "end-runs"] {
            fs::remove_file(place.0.path().join(name)).unwrap();
        }
    }
}
