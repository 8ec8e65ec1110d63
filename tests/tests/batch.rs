//! The commands of Slurm, PBS and LoadLeveler over the queue, under their own names, as scripts
//! call them and parse what they print.
#![forbid(unsafe_code)]

use std::fs;

use margay_tests::batch::{Queue, said};
use margay_tests::{run, stage};
use serde_json::Value;

/// Each command says how it is called, without a queue.
#[test]
fn commands_of_batch_systems_print_their_help() {
    let folder = stage().join("share/margay/compat/bin");
    let names = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let mut count = 0;
    for name in names {
        let name = name.into_string().unwrap();
        // The Paragon's commands for partitions are in the same folder.
        if name.ends_with("part") || name == "pexec" {
            continue;
        }
        let output = run(margay_tests::command(folder.join(&name), 20).arg("--help"));
        let text = said(&output);
        assert!(output.status.success(), "{name}: {text}");
        assert!(
            text.starts_with(&format!("Usage: {name} ")),
            "{name}: {text}"
        );
        let output = run(margay_tests::command(folder.join(&name), 20).arg("--version"));
        assert!(output.status.success(), "{name}: {}", said(&output));
        count += 1;
    }
    assert_eq!(count, 24);
}

/// A job that uses more memory than it asked for is ended, and one that does not goes on.
#[test]
fn jobs_have_no_more_memory_than_they_ask_for() {
    let queue = Queue::up(2);
    let program = |mib: u32, then: &str| {
        format!("exec python3 -c 'import time; x = bytearray({mib} << 20); {then}'")
    };
    let greedy = program(300, "time.sleep(1000)");
    let greedy = queue.line(&["sbatch", "--parsable", "--mem=100M", "--wrap", &greedy]);
    let modest = program(20, "time.sleep(2)");
    let modest = queue.line(&["sbatch", "--parsable", "--mem=100M", "--wrap", &modest]);
    queue.wait(&greedy);
    queue.wait(&modest);
    let state = |job: &str| queue.line(&["sacct", "-n", "-P", "-X", "-j", job, "-o", "state"]);
    assert_eq!(state(&greedy), "OUT_OF_MEMORY");
    assert_eq!(state(&modest), "COMPLETED");
    let explain = run(queue
        .prepared(stage().join("bin/margay"))
        .args(["explain", &greedy]));
    let text = said(&explain);
    assert!(text.contains("and it asked for 100"), "{text}");
}

#[test]
fn slurm_s_commands_submit_show_and_end_jobs() {
    let queue = Queue::up(4);
    queue.script(
        "a.sh",
        "#!/bin/bash\n#SBATCH -J first -n 2\n#SBATCH --comment=x --mem-per-cpu=10M\necho $SLURM_NTASKS $SLURM_JOB_NAME $1\n",
    );
    assert_eq!(
        queue.line(&["sbatch", "a.sh", "word"]),
        "Submitted batch job 1"
    );
    queue.wait("1");
    assert_eq!(queue.read("slurm-1.out"), "2 first word\n");
    let job = queue.line(&["sbatch", "--parsable", "-t5", "--wrap", "sleep 1000"]);
    let held = queue.line(&[
        "sbatch",
        "--parsable",
        "-H",
        "-J",
        "held",
        "-A",
        "acc",
        "--wrap=true",
    ]);
    let array = queue.line(&[
        "sbatch",
        "--parsable",
        "-H",
        "--array=1-3,7%2",
        "--wrap",
        "true",
    ]);
    let format = ["squeue", "-h", "-o", "%i|%j|%T|%t|%u|%C|%l|%r|%a"];
    let lines = queue.ok(&format);
    let is_there = |line: &str| assert!(lines.lines().any(|l| l == line), "{line}: {lines}");
    is_there(&format!("{job}|wrap|RUNNING|R|someone|1|5:00|None|"));
    is_there(&format!(
        "{held}|held|PENDING|PD|someone|1|UNLIMITED|JobHeldUser|acc"
    ));
    is_there(&format!(
        "{array}_[1-3,7%2]|wrap|PENDING|PD|someone|1|UNLIMITED|JobHeldUser|"
    ));
    assert!(
        queue
            .ok(&["squeue"])
            .starts_with("             JOBID PARTITION     NAME     USER ST")
    );
    let count = |words: &[&str]| queue.ok(words).lines().count();
    assert_eq!(count(&["squeue", "-h", "--me"]), 3);
    assert_eq!(count(&["squeue", "-h", "-r"]), 6);
    assert_eq!(count(&["squeue", "-h", "-t", "PD", "-n", "held"]), 1);
    assert_eq!(count(&["squeue", "-h", "-u", "another"]), 0);
    assert_eq!(
        queue.line(&["squeue", "-h", "-j", &job, "-O", "JobID:.8,State"]),
        format!("{job:>8}RUNNING")
    );
    let shown = queue.ok(&["scontrol", "show", "job", &held]);
    assert!(
        shown.contains("JobState=PENDING Reason=JobHeldUser"),
        "{shown}"
    );
    queue.ok(&[
        "scontrol",
        "update",
        &format!("JobId={held}"),
        "TimeLimit=10",
        "JobName=new",
    ]);
    let shown = queue.ok(&["scontrol", "-o", "show", "job", &held]);
    assert!(
        shown.contains("JobName=new") && shown.contains("TimeLimit=00:10:00"),
        "{shown}"
    );
    queue.refused(
        &["scontrol", "update", &format!("JobId={job}"), "TimeLimit=1"],
        1,
        "runs already",
    );
    queue.ok(&["scontrol", "release", &held]);
    queue.wait(&held);
    queue.script("go.sh", "#!/bin/sh\n#SBATCH -n 2\ntrue\n");
    let after = format!("--dependency=afterany:{job}");
    let waits = queue.line(&["sbatch", "--parsable", &after, "go.sh"]);
    queue.ok(&["scontrol", "hold", &waits]);
    let shown = queue.ok(&["scontrol", "show", "job", &waits]);
    assert!(shown.contains("Reason=JobHeldUser"), "{shown}");
    queue.ok(&["scancel", &waits]);
}

#[test]
fn slurm_s_commands_show_the_machine_and_what_has_ended() {
    let queue = Queue::up(4);
    assert_eq!(
        queue.line(&["sbatch", "-J", "first", "--wrap", "true"]),
        "Submitted batch job 1"
    );
    queue.wait("1");
    let job = queue.line(&["sbatch", "--parsable", "--wrap", "sleep 1000"]);
    queue.ok(&["sbatch", "-H", "--array=1-3", "--wrap", "true"]);
    queue.script("a.sh", "#!/bin/sh\n");
    assert!(queue.ok(&["sinfo"]).contains("compute*"));
    assert_eq!(queue.line(&["sinfo", "-h", "-o", "%C"]), "1/3/0/4");
    assert_eq!(
        queue.ok(&["scontrol", "show", "hostnames", "n[08-10],m"]),
        "n08\nn09\nn10\nm\n"
    );
    queue.ok(&["scancel", "--state=PENDING"]);
    queue.ok(&["scancel", &job]);
    queue.wait(&job);
    assert_eq!(queue.ok(&["squeue", "-h"]), "");
    let line = queue.line(&[
        "sacct",
        "-nPX",
        "-j",
        &job,
        "--format=JobID,State,ExitCode,AllocCPUS",
    ]);
    assert!(line.starts_with(&format!("{job}|CANCELLED by ")), "{line}");
    let lines = queue.ok(&[
        "sacct",
        "-n",
        "-P",
        "-j",
        "1",
        "-o",
        "JobID,JobName,State,ExitCode",
    ]);
    assert_eq!(
        lines,
        "1|first|COMPLETED|0:0\n1.batch|batch|COMPLETED|0:0\n"
    );
    queue.refused(&["squeue", "-j", "999"], 1, "Invalid job id specified");
    queue.refused(&["scancel", "999"], 1, "Kill job error on job id 999");
    queue.refused(&["sbatch", "--gres=gpu:1", "a.sh"], 1, "GPUs");
    queue.refused(&["sbatch", "-W", "--wrap", "exit 7"], 7, "Submitted");
    queue.script("bad.sh", "echo\n");
    queue.refused(
        &["sbatch", "bad.sh"],
        1,
        "does not look like a batch script",
    );
    queue.refused(&["sacct", "-o", "nonsense"], 1, "Invalid field requested");
}

#[test]
fn jobs_get_signals_begin_anew_and_read_their_input() {
    let queue = Queue::up(2);
    queue.script(
        "trap.sh",
        "#!/bin/bash\n#SBATCH -o out --requeue\ntrap 'echo usr1; exit 3' USR1\necho begun $SLURM_RESTART_COUNT\n\
         while true; do sleep 0.01; done\n",
    );
    let job = queue.line(&["sbatch", "--parsable", "trap.sh"]);
    queue.until("out");
    queue.ok(&["scontrol", "requeue", &job]);
    while !fs::read_to_string(queue.path("out")).is_ok_and(|text| text == "begun 1\n") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    queue.ok(&["scancel", "--signal=USR1", "--batch", &job]);
    queue.wait(&job);
    assert!(queue.read("out").ends_with("usr1\n"));
    assert_eq!(
        queue.line(&["sacct", "-nPXj", &job, "-o", "state,exitcode"]),
        "FAILED|3:0"
    );
    queue.script("input", "some words\n");
    let wrap = [
        "sbatch",
        "-W",
        "-i",
        "input",
        "-o",
        "%x.%j.%%",
        "-J",
        "n",
        "--export=A=b",
        "--wrap",
        "cat; echo $A$USER$XDG_STATE_HOME",
    ];
    let job = queue.line(&wrap).split(' ').next_back().unwrap().to_owned();
    assert_eq!(queue.read(&format!("n.{job}.%")), "some words\nbsomeone\n");
}

#[test]
fn pbs_s_commands_submit_show_and_end_jobs() {
    let queue = Queue::up(4);
    queue.script(
        "a.pbs",
        "#PBS -N first\n#PBS -l nodes=1:ppn=2,walltime=00:10:00\n#PBS -j oe -m n\ncd $PBS_O_WORKDIR\n\
         echo $PBS_JOBID $(wc -l < $PBS_NODEFILE) $PBS_ENVIRONMENT\n",
    );
    let first = queue.line(&["qsub", "a.pbs"]);
    let host = first.split_once('.').unwrap().1.to_owned();
    assert_eq!(first, format!("1.{host}"));
    queue.wait(&first);
    assert_eq!(queue.read("first.o1"), format!("1.{host} 2 PBS_BATCH\n"));
    let mut stdin = queue.prepared(stage().join("share/margay/compat/bin/qsub"));
    queue.script("stdin", "echo from stdin\n");
    stdin.args(["-o", "$PBS_JOBID.out", "-W", "block=true"]);
    stdin.stdin(fs::File::open(queue.path("stdin")).unwrap());
    let output = run(&mut stdin);
    assert_eq!(said(&output), format!("2.{host}\n"));
    assert_eq!(queue.read(&format!("2.{host}.out")), "from stdin\n");
    let job = queue.line(&["qsub", "-N", "long", "--", "/bin/sleep", "1000"]);
    let held = queue.line(&[
        "qsub",
        "-h",
        "-W",
        &format!("depend=afterok:{job}"),
        "a.pbs",
    ]);
    let array = queue.line(&["qsub", "-h", "-J", "1-3", "a.pbs"]);
    assert_eq!(array, format!("5[].{host}"));
    let text = queue.ok(&["qstat"]);
    assert!(text.starts_with("Job id            Name "), "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_eq!(queue.ok(&["qstat", "-t"]).lines().count(), 7);
    let full = queue.ok(&["qstat", "-f", &job]);
    assert!(
        full.contains("    job_state = R\n") && full.contains("    Job_Name = long\n"),
        "{full}"
    );
    let all: Value = serde_json::from_str(&queue.ok(&["qstat", "-f", "-F", "json"])).unwrap();
    assert_eq!(all["Jobs"][&held]["job_state"], "H");
    assert_eq!(all["Jobs"][&held]["Resource_List"]["walltime"], "00:10:00");
    assert!(
        queue
            .ok(&["qstat", "-an1"])
            .contains(&format!("{host}/0*1"))
    );
    queue.ok(&["qalter", "-l", "walltime=60", "-N", "renamed", &held]);
    assert!(
        queue
            .ok(&["qstat", "-f", &held])
            .contains("walltime = 00:01:00")
    );
    queue.ok(&["qrls", &held]);
    queue.ok(&["qhold", &held]);
    let state = queue.ok(&["qstat", "-f", &held]);
    assert!(state.contains("job_state = H\n"), "{state}");
    queue.ok(&["qrls", &held]);
    queue.script(
        "signals.pbs",
        "trap 'echo usr1 > heard' USR1\necho begun >> begun\nwhile :; do sleep 0.01; done\n",
    );
    let signalled = queue.line(&["qsub", "-r", "y", "signals.pbs"]);
    queue.until("begun");
    queue.ok(&["qsig", "-s", "USR1", &signalled]);
    queue.until("heard");
    queue.ok(&["qrerun", &signalled]);
    while queue.read("begun").lines().count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    queue.ok(&["qdel", &signalled]);
    queue.ok(&["qdel", &job, &array]);
    queue.wait(&job);
    queue.wait(&held);
    queue.refused(&["qstat", &job], 35, "Job has finished");
    assert!(
        queue
            .ok(&["qstat", "-xf", &job])
            .contains("Exit_status = 271")
    );
    queue.refused(&["qdel", "999"], 153, "Unknown Job Id 999");
    queue.refused(&["qsub", "-l", "software=x", "a.pbs"], 1, "-l software");
    assert!(
        queue
            .ok(&["qmgr", "-c", "list server"])
            .contains("scheduling = True")
    );
    assert!(
        queue
            .ok(&["pbsnodes", "-a"])
            .contains("resources_available.ncpus = 4")
    );
    assert!(queue.ok(&["qstat", "-Q"]).contains("compute"));
    queue.script(
        "nqs.sh",
        "#!/bin/sh\n#QSUB -lP 2 -eo\n#QSUB -r nqs\necho $QSUB_REQNAME $PBS_NP\n",
    );
    let job = queue.line(&["qsub", "nqs.sh"]);
    queue.wait(&job);
    let number = job.split('.').next().unwrap();
    assert_eq!(queue.read(&format!("nqs.o{number}")), "nqs 2\n");
}

/// Queues with rules appear in all tables as their systems show them.
#[test]
fn tables_show_each_queue_with_its_rules() {
    let queue = Queue::up(4);
    let host = queue.line(&["sinfo", "-h", "-o", "%N"]);
    assert_eq!(
        queue.line(&["sinfo", "-h", "-o", "%P %a %l %L %D %t %N"]),
        format!("compute* up infinite n/a 1 idle {host}")
    );
    for words in [
        "queue night time=12h default-time=30m accounts=a jobs=9 running=2 memory=2G",
        "queue shut open=no started=no",
    ] {
        let words: Vec<&str> = ["set"].into_iter().chain(words.split(' ')).collect();
        let output = queue.margay(&words);
        assert!(output.status.success(), "{}", said(&output));
    }
    queue.ok(&["sbatch", "--wrap", "sleep 1000"]);
    queue.ok(&["sbatch", "-p", "night", "-A", "a", "--wrap", "sleep 1000"]);
    queue.ok(&["sbatch", "-H", "-p", "night", "-A", "a", "--wrap", "true"]);
    let lines = |words: &[&str]| -> Vec<String> {
        let words: Vec<String> = queue.ok(words).lines().map(str::to_owned).collect();
        let one = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        words.iter().map(one).collect()
    };

    // Slurm's.
    let table = lines(&["sinfo", "-h", "-o", "%P %a %l %L %D %t %C"]);
    assert_eq!(
        table,
        [
            "compute* up infinite n/a 1 mix 2/2/0/4",
            "night up 12:00:00 30:00 1 mix 2/2/0/4",
            "shut inact infinite n/a 1 mix 2/2/0/4",
        ]
    );
    assert_eq!(lines(&["sinfo", "-h", "-o", "%D %t"]), ["1 mix"]);
    assert_eq!(lines(&["sinfo", "-h", "-p", "shut", "-o", "%R"]), ["shut"]);
    assert_eq!(lines(&["sinfo", "-h", "-N", "-t", "mix"]).len(), 3);
    assert!(lines(&["sinfo", "-h", "-t", "idle,down"]).is_empty());
    assert!(lines(&["sinfo", "-h", "-R"]).is_empty());
    queue.refused(&["sinfo", "-t", "odd"], 1, "Bad state string: \"odd\"");
    let shown = queue.line(&["scontrol", "-o", "show", "partition", "night"]);
    for part in [
        "PartitionName=night AllowGroups=ALL AllowAccounts=a ",
        " Default=NO ",
        " DefaultTime=00:30:00 ",
        " MaxTime=12:00:00 ",
        " State=UP TotalCPUs=4 TotalNodes=1 ",
        " MaxMemPerNode=2048",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(lines(&["scontrol", "-o", "show", "partition"]).len(), 3);
    queue.refused(
        &["scontrol", "show", "partition", "x"],
        1,
        "Partition x not found",
    );
    queue.refused(&["scontrol", "show", "node", "x"], 1, "Node x not found");
    let node = queue.line(&["scontrol", "-o", "show", "nodes"]);
    assert!(node.contains(" Partitions=compute,night,shut "), "{node}");

    // Those of PBS.
    let table = lines(&["qstat", "-Q"]);
    assert_eq!(
        table[2..],
        [
            "compute 0 1 yes yes 0 1 0 0 0 0 Exec",
            "night 9 2 yes yes 1 1 0 0 0 0 Exec",
            "shut 0 0 no no 0 0 0 0 0 0 Exec",
        ]
    );
    assert_eq!(
        lines(&["qstat", "-q", "night"])[5..],
        ["night 2gb -- 12:00:00 -- 1 1 2 E R"]
    );
    let full = queue.ok(&["qstat", "-Qf", "night"]);
    assert!(
        full.contains("resources_max.walltime = 12:00:00\n"),
        "{full}"
    );
    let list = queue.ok(&["qmgr", "-c", "list queue night"]);
    assert!(list.starts_with("Queue night\n") && list.contains("max_run = [o:PBS_ALL=2]\n"));
    assert_eq!(
        queue
            .ok(&["qmgr", "-c", "list queue"])
            .matches("Queue ")
            .count(),
        3
    );
    queue.refused(&["qmgr", "-c", "list queue x"], 1, "Unknown queue");
    queue.refused(&["qstat", "-Q", "x"], 170, "Unknown queue x");
    assert_eq!(lines(&["qstat", "night"]).len(), 4);
    assert_eq!(lines(&["qstat", "shut"]).len(), 0);
    queue.margay(&["set", "policy", "default-queue=night"]);
    assert!(
        queue
            .ok(&["qstat", "-Bf"])
            .contains("default_queue = night\n")
    );

    // LoadLeveler's.
    let names: Vec<String> = lines(&["llclass"])[1..]
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["compute", "night", "shut"]);
    queue.refused(&["llclass", "x"], 1, "no class x");
}

#[test]
fn loadleveler_s_commands_submit_show_and_end_steps() {
    let queue = Queue::up(4);
    queue.script(
        "steps.cmd",
        "#!/bin/sh\n# @ job_name = two\n# @ output = $(job_name).$(stepid).out\n# @ error = $(job_name).err\n\
         # @ environment = A=b; $HOME\n# @ node = 2\n# @ cpus_per_core = 2\n# @ wall_clock_limit = 10:00\n# @ step_name = one\n# @ queue\n\
         # @ step_name = two\n# @ dependency = (one == 0)\n# @ executable = /bin/echo\n# @ arguments = second \"a b\"\n# @ queue\n\
         echo $LOADL_STEP_ID $A $LOADL_TOTAL_TASKS\n",
    );
    let text = queue.ok(&["llsubmit", "steps.cmd"]);
    assert!(
        text.contains("with 2 job steps has been submitted"),
        "{text}"
    );
    queue.wait("2");
    let host = text
        .split('"')
        .nth(1)
        .unwrap()
        .strip_suffix(".1")
        .unwrap()
        .to_owned();
    assert_eq!(queue.read("two.0.out"), format!("{host}.1.0 b 2\n"));
    assert_eq!(queue.read("two.1.out"), "second a b\n");
    queue.script("hold.cmd", "# @ hold = user\n# @ queue\ntrue\n");
    queue.ok(&["llsubmit", "hold.cmd"]);
    let text = queue.ok(&["llq"]);
    assert!(
        text.contains(&format!("{host}.3.0")) && text.contains(", 1 held"),
        "{text}"
    );
    assert!(queue.ok(&["llq", "-l", "3"]).contains("Status: User Hold"));
    queue.ok(&["llhold", "-r", &format!("{host}.3.0")]);
    queue.wait("3");
    assert!(queue.ok(&["llq"]).contains("no job status to report"));
    // One that waits for room alone is held as well.
    queue.script("wait.cmd", "# @ total_tasks = 4\n# @ queue\nsleep 1000\n");
    queue.ok(&["llsubmit", "wait.cmd"]);
    queue.ok(&["llsubmit", "wait.cmd"]);
    queue.ok(&["llhold", "5"]);
    let text = queue.ok(&["llq", "-l", "5"]);
    assert!(text.contains("Status: User Hold"), "{text}");
    queue.ok(&["llcancel", "4", "5"]);
    assert!(queue.ok(&["llstatus"]).contains("Central Manager"));
    queue.script("bad.cmd", "# @ nonsense = 1\n# @ queue\n");
    queue.refused(&["llsubmit", "bad.cmd"], 1, "line 1: the keyword nonsense");
}

#[test]
fn names_of_systems_and_commands_are_checked() {
    let queue = Queue::up(1);
    let output = queue.margay(&["slurm", "sinfo", "-h"]);
    assert!(said(&output).starts_with("compute*"), "{}", said(&output));
    let output = queue.margay(&["pbs", "sbatch"]);
    assert!(
        said(&output).contains("there are qsub, qstat"),
        "{}",
        said(&output)
    );
    let output = queue.margay(&["ll", "llq"]);
    assert!(said(&output).contains("no job status"), "{}", said(&output));
}

/// What scripts and their drivers do that somebody else has written.
#[test]
fn habits_of_public_scripts_are_known() {
    let queue = Queue::up(4);
    // Options behind the script, and both files in one folder.
    queue.script("v.pbs", "echo $A; echo error >&2\n");
    fs::create_dir(queue.path("d")).unwrap();
    let words = "qsub v.pbs -v A=1 -N named -o d -e d -W block=true";
    queue.ok(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(queue.read("d/named.o1"), "1\n");
    assert_eq!(queue.read("d/named.e1"), "error\n");

    // Names of a step's files in an array, and lines of other systems.
    queue.script(
        "array.sh",
        "#!/bin/sh\n#SBATCH -a 3,5\n#SBATCH -o /dev/null\n#PBS -l nodes=2\n#BSUB -n 4\n\
         srun -o of_%A_%a_%t hostname\n",
    );
    let job = queue.line(&["sbatch", "--parsable", "array.sh"]);
    queue.wait(&job);
    for task in [3, 5] {
        assert!(!queue.read(&format!("of_{job}_{task}_0")).is_empty());
    }

    // Tasks do not write over each other's files, whose path is the same.
    let array = "#!/bin/sh\n#PBS -J 1-2\n#PBS -o same\n#PBS -e err.^array_index^\n\
                 echo $PBS_ARRAY_INDEX; echo e >&2\n";
    queue.script("tasks.pbs", array);
    queue.ok(&["qsub", "-W", "block=true", "tasks.pbs"]);
    for task in ["1", "2"] {
        assert_eq!(queue.read(&format!("same-{task}")), format!("{task}\n"));
        assert_eq!(queue.read(&format!("err.{task}")), "e\n");
    }

    // Steps know their names, and their files are in their directory.
    fs::create_dir(queue.path("sub")).unwrap();
    queue.script(
        "named.cmd",
        "#!/bin/sh\n# @ initialdir = sub\n# @ output = $(step_name).out\n# @ step_name = one\n# @ queue\n\
         # @ step_name = two\n# @ dependency = (one == 0)\n# @ queue\n\
         echo $LOADL_STEP_NAME; test $LOADL_STEP_INITDIR -ef $PWD && echo here\n",
    );
    let text = queue.ok(&["llsubmit", "named.cmd"]);
    assert!(text.contains("with 2 job steps"), "{text}");
    queue.margay(&["wait", "--all"]);
    for name in ["one", "two"] {
        let printed = queue.read(&format!("sub/{name}.out"));
        assert_eq!(printed, format!("{name}\nhere\n"));
    }

    // Steps of which a later one is refused do not begin; a file without a shell has the user's.
    queue.script(
        "wrong.cmd",
        "# @ step_name = a\n# @ queue\n# @ step_name = b\n# @ dependency = (nosuch == 0)\n# @ queue\ntouch begun\n",
    );
    queue.refused(&["llsubmit", "wrong.cmd"], 1, "the step 'nosuch'");
    queue.script("shell.cmd", "# @ output = shell\n# @ queue\necho $BASH\n");
    let folder = stage().join("share/margay/compat/bin");
    let mut submit = queue.prepared(folder.join("llsubmit"));
    let output = run(submit.arg("shell.cmd").env("SHELL", "/bin/bash"));
    assert!(output.status.success(), "{}", said(&output));
    queue.margay(&["wait", "--all"]);
    assert_eq!(queue.read("shell"), "/bin/bash\n");
    assert!(!queue.path("begun").exists());
}
