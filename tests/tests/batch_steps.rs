//! Steps: what `srun` runs in a job is in its account, while it runs and when it has ended.
#![forbid(unsafe_code)]

use margay_tests::batch::Queue;
use margay_tests::hosts::Hosts;
use margay_tests::postgres::Postgres;
use margay_tests::{queue_hosts, stage};
use serde_json::{Value, json};

/// Uses a second of processor time.
const USE: &str = "import time\nwhile time.process_time() < 1: pass\n";

/// Steps with each end: in order, beside each other, killed, and ended with the job.
#[test]
fn sacct_shows_each_step_with_how_it_ended() {
    let queue = Queue::up(4);
    queue.script("use.py", USE);
    let mpiexec = stage().join("bin/mpiexec");
    let script = format!(
        "#!/bin/bash\n#SBATCH -n 2 -c 2 -J named\nsrun true\n\
         srun -n 1 -J slow sh -c 'echo > begun; exec python3 use.py' &\n\
         while test ! -e begun; do sleep 0.01; done\nsrun -n 1 sh -c 'exit 3'\nwait\n\
         srun -n 1 -c 1 bash -c 'kill -9 $$'\nsrun -n 1 {} -n 2 true\n\
         srun no-such-program\necho > on\nsrun sleep 1000\n",
        mpiexec.display()
    );
    queue.script("a.sh", &script);
    let job = queue.line(&["sbatch", "--parsable", "a.sh"]);
    queue.until("on");
    let has_all = || queue.ok(&["sacct", "-nP", "-o", "jobid"]).contains("1.6");
    for _ in 0..1200 {
        if has_all() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let columns = "jobid,state,exitcode,end,derivedexitcode";
    let lines = queue.ok(&["sacct", "-nP", "-o", columns]);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 9, "{lines:?}");
    assert_eq!(lines[0], "1|RUNNING|0:0|Unknown|0:9");
    assert_eq!(lines[8], "1.6|RUNNING|0:0|Unknown|");
    assert!(lines[6].starts_with("1.4|COMPLETED|0:0|20"), "{lines:?}");
    let said: Value = serde_json::from_str(&queue.ok(&["sacct", "--json"])).unwrap();
    assert_eq!(said["jobs"][0]["steps"][6]["state"], json!(["RUNNING"]));
    assert_eq!(said["jobs"][0]["steps"][6]["time"]["end"], 0);
    queue.ok(&["scancel", &job]);
    queue.wait(&job);
    let columns = "jobid,jobname,ntasks,alloccpus,state,exitcode,derivedexitcode,partition";
    let lines = queue.ok(&["sacct", "-nP", "-o", columns]);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(
        lines[0].starts_with("1|named||4|CANCELLED by "),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("|0:15|0:15|compute"), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "1.batch|batch|1|4|CANCELLED|0:15||",
            "1.0|true|2|4|COMPLETED|0:0||",
            "1.1|slow|1|1|COMPLETED|0:0||",
            "1.2|sh|1|1|FAILED|3:0||",
            "1.3|bash|1|1|FAILED|0:9||",
            "1.4|mpiexec|1|1|COMPLETED|0:0||",
            "1.5|no-such-program|2|4|FAILED|127:0||",
            "1.6|sleep|2|4|CANCELLED|0:15||",
        ]
    );
    assert_eq!(queue.ok(&["sacct", "-nXP", "-o", "jobid"]), "1\n");
    let said: Value = serde_json::from_str(&queue.ok(&["sacct", "--json"])).unwrap();
    let slow = &said["jobs"][0]["steps"][1];
    assert_eq!(slow["step"], json!({ "id": "1.1", "name": "slow" }));
    let used = &slow["time"]["total"];
    assert!(
        (1..3).contains(&used["seconds"].as_u64().unwrap()),
        "{slow}"
    );
    assert!(slow["max_rss_kib"].as_u64().unwrap() > 1000, "{slow}");

    // A job that waits for its command has no script.
    let salloc = "srun true; srun -n 1 false";
    queue.refused(&["salloc", "-n", "2", "sh", "-c", salloc], 1, "exited");
    let lines = queue.ok(&["sacct", "-nP", "-j", "2", "-o", "jobid,state"]);
    assert_eq!(lines, "2|COMPLETED\n2.0|COMPLETED\n2.1|FAILED\n");
}

/// What a step used on each of its hosts is in its account, and a store of each kind keeps it.
fn steps_are_charged_what_they_used(store: &str) {
    let Some(hosts) = Hosts::make(2) else { return };
    let queue = queue_hosts::Queue::up(hosts);
    std::fs::write(queue.path("use.py"), USE).unwrap();
    let names = queue.hosts.names();
    queue.ok(&format!("up --slots 2 --hosts {names} --store {store}"));
    let script = "#!/bin/sh\nmargay slurm srun -N 2 -n 2 python3 use.py\n\
                  margay slurm srun -n 1 sh -c 'while test ! -e on; do sleep 0.02; done'\n";
    std::fs::write(queue.path("script"), script).unwrap();
    let job = queue.ok("submit --parsable -o out -N 2 -n 4 script");
    // The job's hosts say what they run to the head's.
    queue.until("the second step", || {
        queue.row("1")["steps"].as_array().unwrap().len() == 2
    });
    let steps = "slurm sacct -nP -o jobid,state";
    let states = "1|RUNNING\n1.batch|RUNNING\n1.0|COMPLETED\n1.1|RUNNING\n";
    assert_eq!(queue.ok(steps), states);
    std::fs::write(queue.path("on"), "").unwrap();
    queue.ok(&format!("wait {}", job.trim()));
    queue.ok("down --leave");
    queue.ok("up");
    let row = queue.row("--all 1");
    let steps = row["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{row}");
    let used = steps[0]["cpu_s"].as_f64().unwrap();
    assert!((2.0..3.5).contains(&used), "{row}");
    assert!(steps[1]["cpu_s"].as_f64().unwrap() < 1.0, "{row}");
    assert_eq!(steps[0]["tasks"], 2);
    let sacct = queue.ok("slurm sacct -nP -o jobid,nnodes,ntasks,state");
    assert_eq!(
        sacct,
        "1|2||COMPLETED\n1.batch|2|1|COMPLETED\n1.0|2|2|COMPLETED\n1.1|1|1|COMPLETED\n"
    );
    queue.ok("down");
}

#[test]
fn steps_are_charged_what_they_used_in_a_file() {
    steps_are_charged_what_they_used("file");
}

#[test]
fn steps_are_charged_what_they_used_in_a_database() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    steps_are_charged_what_they_used(&server.database("steps_used", "postgres"));
}
