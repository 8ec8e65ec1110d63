//! When a job of another batch system's commands may begin: dependencies, and times.
#![forbid(unsafe_code)]

use std::fs;

use margay_tests::batch::{Queue, said};

#[test]
fn a_singleton_waits_for_all_earlier_jobs_of_its_name() {
    let queue = Queue::up(4);
    queue.script(
        "waits.sh",
        "#!/bin/sh\nuntil test -e go; do sleep 0.01; done\n",
    );
    let submit = |words: &[&str]| {
        let all = [
            &["sbatch", "--parsable", "-o", "/dev/null"],
            words,
            &["waits.sh"],
        ]
        .concat();
        queue.line(&all)
    };
    let first = submit(&["-J", "one"]);
    submit(&["-J", "other"]);
    let second = submit(&["-J", "one", "-d", "singleton"]);
    let third = submit(&["-J", "one", "-d", "singleton"]);
    let why = |job: &str| queue.line(&["squeue", "-h", "-j", job, "-o", "%t %E"]);
    assert_eq!(why(&second), format!("PD afterany:{first}(unfulfilled)"));
    // The first is awaited by the second.
    assert_eq!(why(&third), format!("PD afterany:{second}(unfulfilled)"));
    fs::write(queue.path("go"), "").unwrap();
    queue.wait(&third);
}

#[test]
fn tasks_wait_for_tasks_of_another_array() {
    let queue = Queue::up(4);
    queue.script("task.sh", "#!/bin/sh\nexit $((SLURM_ARRAY_TASK_ID == 2))\n");
    queue.script("next.sh", "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID >>ran\n");
    let submit = |words: &[&str]| {
        queue.line(&[&["sbatch", "--parsable", "-o", "/dev/null"], words].concat())
    };
    let first = submit(&["--hold", "-a", "1-3", "task.sh"]);
    let of_task = |task: u32| format!("--dependency=afterok:{first}_{task}");
    // The first task has the number of the array.
    let after_one = submit(&[&of_task(1), "-J", "after-1", "-a", "10", "next.sh"]);
    let after_two = submit(&[&of_task(2), "-a", "20", "next.sh"]);
    let next = submit(&[
        &format!("--dependency=aftercorr:{first}"),
        "-a",
        "1-3",
        "next.sh",
    ]);
    queue.refused(&["sbatch", &of_task(4), "next.sh"], 1, "has no task 4");
    let alone = format!("--dependency=aftercorr:{first}");
    queue.refused(&["sbatch", &alone, "next.sh"], 1, "is for an array");
    queue.ok(&["scontrol", "release", &first]);
    for job in [&first, &after_one, &after_two, &next] {
        let _ = queue.margay(&["wait", job]);
    }
    let mut ran: Vec<String> = fs::read_to_string(queue.path("ran"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    ran.sort();
    assert_eq!(ran, ["1", "10", "3"]);
    // Of one that has ended, too.
    let last = submit(&[&of_task(3), "-a", "30", "next.sh"]);
    queue.wait(&last);
}

#[test]
fn jobs_begin_at_their_time_at_the_earliest() {
    let queue = Queue::up(4);
    queue.script("later.sh", "#!/bin/sh\n#SBATCH --begin=now+1hour\ntrue\n");
    let later = queue.line(&["sbatch", "--parsable", "later.sh"]);
    let reason = ["squeue", "-h", "-j", &later, "-o", "%T %r"];
    assert_eq!(queue.line(&reason), "PENDING BeginTime");
    let text = said(&queue.margay(&["explain", &later]));
    assert!(
        text.contains("begins in 0:59:5") || text.contains("begins in 1:00:00"),
        "{text}"
    );
    // The command line comes before the script. Of the first second a part has passed.
    let asked = std::time::Instant::now();
    let soon = queue.line(&["sbatch", "--parsable", "--begin=now+3", "later.sh"]);
    queue.wait(&soon);
    assert!(asked.elapsed().as_secs() >= 2, "{:?}", asked.elapsed());
    let past = queue.line(&[
        "sbatch",
        "--parsable",
        "--begin=2020-01-01T12:00",
        "later.sh",
    ]);
    queue.wait(&past);
    for job in [&soon, &past] {
        let state = ["sacct", "-n", "-P", "-X", "-j", job, "-o", "state"];
        assert_eq!(queue.line(&state), "COMPLETED");
    }
    queue.script("later.pbs", "#PBS -a 203801010000\ntrue\n");
    let of_pbs = queue.line(&["qsub", "later.pbs"]);
    let shown = queue.ok(&["qstat", "-f", &of_pbs]);
    assert!(shown.contains("job_state = W"), "{shown}");
    queue.script(
        "later.cmd",
        "#!/bin/sh\n# @ startdate = 01/01/2038 12:00\n# @ queue\ntrue\n",
    );
    queue.ok(&["llsubmit", "later.cmd"]);
    let shown = queue.ok(&["llq", "-f", "%st"]);
    assert!(shown.lines().any(|line| line.trim() == "D"), "{shown}");
    let why = "'soon' is no time; write for example 16:00";
    queue.refused(&["sbatch", "--begin=soon", "later.sh"], 1, why);
    let why = "a job cannot begin on 2038-02-31: there is no such day";
    queue.refused(&["sbatch", "--begin=2038-02-31", "later.sh"], 1, why);
}
