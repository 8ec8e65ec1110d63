//! The queue through its commands: from nothing to jobs, scripts of batch systems, limits, deaths
//! of the head, and what is refused.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::queue::Queue;
use margay_tests::{command, run, stage, succeed};
use serde_json::Value;

/// How many processes have a word among theirs.
fn processes_with(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let has = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.split(|&b| b == 0).any(|w| w == word.as_bytes())
    };
    entries.filter(has).count()
}

/// As any user of a machine without a network, not even that of itself.
#[test]
fn a_queue_needs_no_network() {
    let queue = Queue::not_up();
    let mut shell = command("unshare", 60);
    shell.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
    let begun = std::time::Instant::now();
    let line = "margay up && margay submit --wait -o out -- echo done && margay down";
    let bin = stage().join("bin");
    let path = std::env::var("PATH").unwrap();
    let output = run(shell
        .arg(line)
        .current_dir(queue.folder.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("HOME", queue.folder.path())
        .env("XDG_STATE_HOME", queue.path("state"))
        .env("XDG_RUNTIME_DIR", queue.path("run")));
    if said(&output).starts_with("unshare:") {
        eprintln!(
            "this system gives no network of one's own: {}",
            said(&output)
        );
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(queue.read("out"), "done\n");
    println!(
        "from margay up to the first job's end and margay down: {:?}",
        begun.elapsed()
    );
}

#[test]
fn from_nothing_to_a_job_and_back() {
    let queue = Queue::not_up();
    queue.refused(&["queue"], "margay up");
    assert!(queue.ok(&["up", "--slots", "2"]).contains("2 slots"));
    assert!(queue.ok(&["up"]).contains("is up already"));
    assert_eq!(
        queue.submit(&["--", "sh", "-c", "echo out; echo err >&2; pwd"]),
        "1"
    );
    queue.ok(&["wait", "1"]);
    let folder = fs::canonicalize(queue.folder.path()).unwrap();
    assert_eq!(
        queue.read("slurm-1.out"),
        format!("out\nerr\n{}\n", folder.display())
    );
    let row = &queue.rows(&["1"])[0];
    assert_eq!(
        (row["state"].as_str(), row["exit_code"].as_i64()),
        (Some("done"), Some(0))
    );
    // The exit code of what waits says whether the job succeeded.
    queue.refused(
        &["submit", "--wait", "--", "sh", "-c", "exit 3"],
        "exit code 3",
    );
    queue.refused(&["submit", "--wait", "--", "/no/such"], "cannot execute");
    assert_eq!(queue.ok(&["queue"]).lines().count(), 1);
    assert_eq!(queue.ok(&["queue", "--all"]).lines().count(), 4);
    let mode = fs::metadata(queue.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let head = PidFd::open(queue.head().unwrap()).unwrap();
    queue.ok(&["down"]);
    // Its connections end a moment before it does.
    while !head.has_ended() {
        std::thread::yield_now();
    }
    for name in ["queue.db-wal", "queue.db-shm", "address"] {
        assert!(!queue.state().join(name).exists(), "{name} is left");
    }
    assert_eq!(fs::read_dir(queue.path("run/margay")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(queue.state().join("jobs")).unwrap().count(), 0);
    assert!(queue.ok(&["down"]).contains("does not run"));
    // What ended is known to the next head.
    queue.ok(&["up"]);
    assert_eq!(queue.rows(&["--all"]).len(), 3);
    queue.ok(&["submit", "--wait", "-n", "2", "-A", "a,\"b", "--", "true"]);
    let text = queue.ok(&["account", "--csv"]);
    let first: Vec<&str> = text
        .lines()
        .map(|line| line.split(',').next().unwrap())
        .collect();
    assert_eq!(first, ["account", "-", "\"a"], "{text}");
    assert!(text.contains("\"a,\"\"b\",1,"), "{text}");
    let jobs: Vec<Value> =
        serde_json::from_str(&queue.ok(&["account", "--jobs", "--json"])).unwrap();
    assert_eq!((jobs.len(), jobs[3]["slots"].as_u64()), (4, Some(2)));
}

#[test]
fn thousands_of_jobs_that_have_ended_are_shown_whole() {
    let queue = Queue::up(1);
    queue.ok(&["submit", "--wait", "-A", "a", "--", "true"]);
    // They end in one second.
    let array = queue.submit(&["--hold", "-a", "1-2500", "-A", "b", "--", "true"]);
    let held = queue.submit(&["--hold", "--", "true"]);
    queue.ok(&["cancel", &array]);
    queue.ok(&["submit", "--wait", "-A", "a", "--", "true"]);
    let rows = queue.rows(&["--all"]);
    let numbers = rows.iter().map(|row| row["id"].as_u64().unwrap());
    assert!(numbers.eq(1..=2503), "{} jobs", rows.len());
    let waiting: Vec<&str> = rows
        .iter()
        .filter(|row| row["state"] == "waiting")
        .map(|row| row["job"].as_str().unwrap())
        .collect();
    assert_eq!(waiting, [held.as_str()]);
    let sums: Vec<Value> = serde_json::from_str(&queue.ok(&["account", "--json"])).unwrap();
    let jobs = |of: usize| (sums[of]["account"].as_str(), sums[of]["jobs"].as_u64());
    assert_eq!(
        (jobs(0), jobs(1), sums.len()),
        ((Some("a"), Some(2)), (Some("b"), Some(2500)), 2)
    );
    let lines = queue.ok(&["slurm", "sacct", "-X", "-n", "-P", "-o", "JobIDRaw"]);
    let numbers = lines.lines().map(|line| line.parse::<u64>().unwrap());
    assert!(numbers.eq(1..=2503), "{lines}");
}

#[test]
fn scripts_of_slurm_and_pbs_get_what_they_expect() {
    let queue = Queue::up(8);
    queue.script(
        "slurm.sh",
        "#!/bin/sh\n#SBATCH -n 3 -J name\n#SBATCH --output=%x-%j.txt --error=%x.err\n\
         echo $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_NTASKS $1\necho $SLURM_SUBMIT_DIR >&2\n",
    );
    let job = queue.submit(&["slurm.sh", "argument"]);
    queue.ok(&["wait", &job]);
    assert_eq!(
        queue.read(&format!("name-{job}.txt")),
        format!("{job} name 3 argument\n")
    );
    let folder = fs::canonicalize(queue.folder.path()).unwrap();
    assert_eq!(queue.read("name.err"), format!("{}\n", folder.display()));
    queue.script(
        "pbs.sh",
        "#!/bin/sh\n#PBS -N p -l nodes=2:ppn=2,walltime=1:00\n#PBS -v A=b\n\
         cd $PBS_O_WORKDIR\necho ${PBS_JOBID%%.*} $A $(wc -l < $PBS_NODEFILE)\n",
    );
    let job = queue.submit(&["pbs.sh"]);
    queue.ok(&["wait", &job]);
    assert_eq!(queue.read(&format!("p.o{job}")), format!("{job} b 4\n"));
    assert_eq!(queue.read(&format!("p.e{job}")), "");
    // Lines of a file, or of the standard input, are jobs.
    queue.script("lines", "echo one >> many\necho two >> many; exit 4\n");
    let mut many = queue.margay(&["submit", "-n", "1", "--many", "-"]);
    let lines = fs::File::open(queue.path("lines")).unwrap();
    let numbers = succeed(many.stdin(lines));
    assert_eq!(numbers.lines().count(), 2, "{numbers}");
    let last = numbers.split_whitespace().last().unwrap();
    run(&mut queue.margay(&["wait", "--all"]));
    assert_eq!(queue.rows(&[last])[0]["exit_code"], 4);
    let mut written: Vec<String> = queue.read("many").lines().map(str::to_owned).collect();
    written.sort();
    assert_eq!(written, ["one", "two"]);
    // Options of the command count more than the script's.
    let job = queue.submit(&["-n", "1", "-J", "other", "slurm.sh"]);
    queue.ok(&["wait", &job]);
    assert_eq!(
        queue.read(&format!("other-{job}.txt")),
        format!("{job} other 1\n")
    );
    for (line, named) in [
        ("#SBATCH --gres=gpu:1", "line 2: --gres=gpu:1"),
        ("#PBS -W stagein=x", "-W stagein=x"),
        (
            "# @ nonsense = 1\n# @ queue",
            "line 2: the keyword nonsense",
        ),
        (
            "#SBATCH -p large,huge",
            "to make it: margay set queue large",
        ),
        ("#SBATCH -n 9", "9 slots"),
    ] {
        queue.script("bad.sh", &format!("#!/bin/sh\n{line}\ntrue\n"));
        queue.refused(&["submit", "bad.sh"], named);
    }
    // What is behind all other folders of PATH is found, and who the user is.
    let script = "basename $(command -v margay); test -n \"$USER\" -a -n \"$LOGNAME\"";
    let words = ["submit", "--wait", "-o", "bare", "--", "sh", "-c", script];
    let mut bare = queue.margay(&words);
    bare.env("PATH", "/usr/bin:/bin").env_remove("USER");
    succeed(bare.env_remove("LOGNAME"));
    assert_eq!(queue.read("bare"), "margay\n");
    // mpiexec starts the job's tasks.
    let mpiexec = stage().join("bin/mpiexec");
    let words = [
        "-n",
        "3",
        "-o",
        "ranks",
        "--",
        mpiexec.to_str().unwrap(),
        "true",
    ];
    let job = queue.submit(&words);
    let show = [
        "-n",
        "3",
        "-o",
        "map",
        "--",
        mpiexec.to_str().unwrap(),
        "-display-map",
        "true",
    ];
    let shown = queue.submit(&show);
    run(&mut queue.margay(&["wait", &job, &shown]));
    let map = queue.read("map");
    let is_on_several = map.contains("ranks 0 1") && map.contains("ranks 2");
    assert!(map.contains("ranks 0-2") || is_on_several, "{map}");
}

#[test]
fn the_first_job_is_not_delayed_and_short_ones_go_before_it() {
    let queue = Queue::up(2);
    let first = queue.submit(&["-t", "1h", "--", "sleep", "1000"]);
    let large = queue.submit(&["-n", "2", "-t", "1h", "--", "true"]);
    let long = queue.submit(&["-t", "2h", "--", "true"]);
    let short = queue.submit(&["-t", "30", "--", "true"]);
    queue.ok(&["wait", &short]);
    assert_eq!(queue.state_of(&long), "waiting");
    let text = queue.ok(&["explain", &large]);
    assert!(text.contains("needs 2 slots; 1 free"), "{text}");
    assert!(queue.ok(&["explain", &long]).contains("could delay"));
    assert!(
        queue
            .ok(&["explain", "--when", "1", "10"])
            .contains("start now")
    );
    // Shells complete the numbers of jobs.
    let script = "source <(margay completions bash margay); COMP_WORDS=(margay cancel ''); COMP_CWORD=2; \
                  _margay_names margay '' cancel; echo ${COMPREPLY[@]: -4}";
    let path = format!(
        "{}:{}",
        stage().join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let mut bash = queue.prepared("bash");
    let names = succeed(bash.args(["-c", script]).env("PATH", path));
    let numbers = [&first, &large, &long].map(|job| job.as_str()).join(" ");
    assert!(names.contains(&numbers), "{names}");
    let nodes = queue.ok(&["explain", "--when", "1", "nodes", "10"]);
    assert!(nodes.contains("start now"), "{nodes}");
    queue.refused(&["explain", "--when", "1", "10", "20"], "'20' is too much");
    queue.refused(&["down"], "margay cancel --all");
    queue.ok(&["cancel", &first]);
    queue.ok(&["wait", &large, &long]);
    assert_eq!(queue.state_of(&first), "cancelled");
}

#[test]
fn a_time_limit_warns_the_script_and_ends_all_that_it_started() {
    let queue = Queue::up(2);
    let word = format!("100{}", std::process::id());
    queue.script(
        "limit.sh",
        &format!(
            "#!/bin/bash\n#SBATCH -t 3s --signal=B:USR1@2 -o out\ntrap 'echo warned' USR1\ntrap 'echo term' TERM\n\
             setsid sh -c 'trap \"\" TERM; sleep {word}; sleep {word}' &\nwhile true; do sleep 0.1; done\n"
        ),
    );
    let job = queue.submit(&["limit.sh"]);
    queue.refused(&["wait", &job], "time limit");
    assert_eq!(queue.state_of(&job), "timeout");
    let out = queue.read("out");
    assert!(
        out.find("warned") < out.find("term") && out.contains("warned"),
        "{out}"
    );
    assert_eq!(processes_with(&word), 0);
    // What a script leaves running ends with it.
    let line = format!("setsid sleep {word} & exit 0");
    queue.ok(&["submit", "--wait", "--", "sh", "-c", &line]);
    assert_eq!(processes_with(&word), 0);
}

#[test]
fn what_the_shell_of_margay_up_has_open_is_no_jobs() {
    let queue = Queue::not_up();
    queue.script("secret", "text\n");
    let up = "exec 7<secret 8>>log; exec \"$@\"";
    let margay = queue.margay(&["up", "--slots", "1"]);
    let mut shell = queue.prepared("sh");
    shell
        .args(["-c", up, "sh"])
        .arg(margay.get_program())
        .args(margay.get_args());
    succeed(&mut shell);
    let seen = "! cat <&7 && ! echo text >&8";
    queue.ok(&["submit", "--wait", "--", "sh", "-c", seen]);
    let head = queue.head().unwrap();
    for open in fs::read_dir(format!("/proc/{head}/fd")).unwrap() {
        let to = fs::read_link(open.unwrap().path()).unwrap_or_default();
        assert!(
            to != queue.path("secret") && to != queue.path("log"),
            "{to:?}"
        );
    }
}

#[test]
fn nothing_is_accepted_into_a_store_that_has_been_removed() {
    let queue = Queue::not_up();
    queue.ok(&["up", "--slots", "1"]);
    let store = queue.state().join("queue.db");
    fs::rename(&store, queue.path("away")).unwrap();
    queue.refused(&["submit", "--", "true"], "has been removed or replaced");
    queue.ok(&["down"]);
    fs::rename(queue.path("away"), &store).unwrap();
    queue.ok(&["up", "--slots", "1"]);
    assert_eq!(queue.submit(&["--", "true"]), "1");
}

#[test]
fn what_cannot_be_is_refused_and_nothing_hangs() {
    let queue = Queue::up(2);
    queue.refused(&["submit", "-n", "3", "--", "true"], "the machine has 2");
    queue.refused(
        &["submit", "-J", "a\nb", "--", "true"],
        "control characters",
    );
    queue.refused(&["submit", "-J", "", "--", "true"], "the name ''");
    queue.refused(&["submit", "-t", "soon", "--", "true"], "'soon'");
    queue.refused(&["submit", "-a", "9-1", "--", "true"], "'9-1'");
    queue.refused(&["submit", "no-such.sh"], "margay submit -- no-such.sh");
    queue.refused(&["submit", "--wrap", "true"], "no option '--wrap'");
    queue.refused(&["submit", "--no-such"], "no option '--no-such'");
    queue.refused(&["explain", "--when", "0", "2h"], "'0' is no number");
    queue.refused(&["node", "add"], "margay node add HOST");
    queue.script("binary", "\x7fELF");
    queue.refused(&["submit", "binary"], "margay submit -- binary");
    queue.refused(&["submit"], "nothing to submit");
    queue.refused(&["submit", "--", ""], "neither script nor program");
    queue.script("of-dos", "#!/bin/sh\r\ntrue\r\n");
    queue.refused(&["submit", "of-dos"], "carriage returns");
    let job = queue.submit(&["-A", "", "--", "true"]);
    queue.ok(&["wait", &job]);
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&queue.ok(&["account", "--json", "--jobs"])).unwrap();
    assert_eq!(rows[0]["account"], "-");
    queue.refused(&["cancel", "77"], "no job 77");
    assert!(queue.ok(&["cancel", &job]).contains("has ended (done)"));
    queue.refused(&["cancel"], "--all");
    queue.refused(&["explain", "x"], "'x' is no job");
    queue.refused(&["explain", "x"], "see margay explain --help");
    let fails = queue.submit(&["--", "sh", "-c", "exit 3"]);
    queue.refused(&["wait", &fails], "exit code 3");
    assert!(
        queue
            .ok(&["explain", &fails])
            .contains("(failed, exit code 3)")
    );
    // Waiting tasks that differ in nothing share a line.
    let array = queue.submit(&["--hold", "-a", "3-9,12", "--", "true"]);
    let shown = queue.ok(&["queue"]);
    assert!(shown.contains(&format!("{array}_[3-9,12]")), "{shown}");
    queue.ok(&["cancel", &array]);
    // Of the day, by this host's clock.
    queue.ok(&[
        "set",
        "reservation",
        "evening",
        "slots=1",
        "start=2099-12-01T22:00",
        "time=1h",
    ]);
    assert!(queue.ok(&["set"]).contains(" start=2099-12-01T22:00:00 "));
    queue.refused(
        &["set", "reservation", "b", "slots=1", "start=x", "time=1h"],
        "'x' is no moment",
    );
    queue.refused(
        &["submit", "--wait", "-D", "/no/such", "--", "true"],
        "/no/such",
    );
    queue.refused(
        &["submit", "--wait", "-o", "/no/such/out", "--", "true"],
        "/no/such/out",
    );
    // A name cannot lead out of the folder.
    queue.ok(&[
        "submit",
        "--wait",
        "-J",
        "../../x y",
        "-o",
        "%x.out",
        "--",
        "true",
    ]);
    assert!(queue.path(".._.._x y.out").exists());
    // Who says nothing, or closes half, holds nobody up.
    let silent = queue.socket();
    let mut half = queue.socket();
    half.write_all(b"\"Machine\"\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("slots"), "{answer}");
    for (noise, why) in [("nonsense\n", "not understood"), ("", "not understood")] {
        let mut stream = queue.socket();
        stream.write_all(noise.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(why), "{answer}");
    }
    let mut large = queue.socket();
    let part = vec![b'x'; 1 << 20];
    let written = (0..100).take_while(|_| large.write_all(&part).is_ok());
    assert!(written.count() < 100);
    let mut answer = String::new();
    let _ = large.read_to_string(&mut answer);
    assert!(answer.contains("larger than 64 MiB"), "{answer}");
    drop(silent);
    // An environment of 64 KiB arrives as it is.
    let text = "y".repeat(64 << 10);
    let line = [
        "submit",
        "--wait",
        "-o",
        "length",
        "--",
        "sh",
        "-c",
        "echo ${#LONG}",
    ];
    let output = run(queue.margay(&line).env("LONG", &text));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(queue.read("length"), format!("{}\n", 64 << 10));
}

#[test]
fn a_newer_store_and_a_damaged_one_are_refused() {
    let queue = Queue::up(1);
    queue.ok(&["down"]);
    let store = queue.state().join("queue.db");
    let mut bytes = fs::read(&store).unwrap();
    // SQLite's `user_version`.
    bytes[63] = 99;
    fs::write(&store, &bytes).unwrap();
    queue.refused(&["up"], "version 99");
    fs::write(
        &store,
        "no store at all, but long enough to have a header of 100 bytes".repeat(9),
    )
    .unwrap();
    queue.refused(&["up"], "move the file away");
    fs::remove_file(&store).unwrap();
    queue.ok(&["up"]);
}

#[test]
fn a_store_of_each_older_version_is_brought_to_this_one() {
    let queue = Queue::up(1);
    queue.refused(
        &["submit", "--wait", "--", "sh", "-c", "exit 3"],
        "exit code 3",
    );
    let held = queue.submit(&["--hold", "-o", "held", "--", "echo", "held"]);
    // What each version has added is taken away again, the newest first.
    let took = [
        "ALTER TABLE jobs DROP COLUMN steps; DROP INDEX ended_at",
        "ALTER TABLE jobs DROP COLUMN hosts",
        "ALTER TABLE jobs DROP COLUMN energy_mj",
        "DROP TABLE queue",
        "DROP INDEX ended_tasks; CREATE INDEX arrays ON jobs (array) WHERE array IS NOT NULL",
        "DROP TABLE settings; ALTER TABLE jobs DROP COLUMN user; ALTER TABLE jobs DROP COLUMN uid; \
         ALTER TABLE jobs DROP COLUMN runs",
    ];
    for count in 1..=took.len() {
        queue.ok(&["down"]);
        let version = took.len() + 1 - count;
        let sql = format!(
            "{}; PRAGMA user_version = {version}",
            took[..count].join("; ")
        );
        let script = "import sqlite3, sys\nstore = sqlite3.connect(sys.argv[1])\n\
                      store.executescript(sys.argv[2])\nstore.close()\n";
        let store = queue.state().join("queue.db");
        let mut python = command("python3", 60);
        succeed(python.args(["-c", script]).arg(store).arg(sql));
        queue.ok(&["up", "--slots", "1"]);
        let row = &queue.rows(&["--all"])[0];
        assert_eq!(row["exit_code"], 3, "version {version}: {row}");
        assert_eq!(queue.state_of(&held), "waiting");
    }
    queue.ok(&["release", &held]);
    queue.ok(&["wait", &held]);
    assert_eq!(queue.read("held"), "held\n");
}

#[test]
fn a_full_disk_accepts_nothing_and_loses_nothing() {
    let queue = Queue::not_up();
    fs::create_dir(queue.path("state")).unwrap();
    queue.script(
        "full.sh",
        "set -e\nmount -t tmpfs -o size=512k none state || exit 77\n$M up --slots 1\n\
         $M submit -o out -- sh -c 'echo begun; while test ! -e go; do sleep 0.01; done; exit 4'\n\
         until test -s out; do sleep 0.01; done\n\
         dd if=/dev/zero of=state/fill bs=1k 2>/dev/null || true\n\
         for n in 1 2 3 4 5 6 7 8 9; do $M submit -- true 2>&1 || break; done | tee full\n\
         touch go; sleep 0.3\nrm state/fill\n$M wait 1 2>&1 || true\n$M submit --wait -- true\n$M wait --all\n$M down\nls state/margay/queue\n",
    );
    let mut script = command("unshare", 120);
    script
        .args(["--user", "--map-root-user", "--mount", "sh", "full.sh"])
        .current_dir(queue.folder.path())
        .env("M", stage().join("bin/margay"))
        .env("HOME", queue.folder.path())
        .env("XDG_STATE_HOME", queue.path("state"))
        .env("XDG_RUNTIME_DIR", queue.path("run"));
    let output = run(&mut script);
    let text = said(&output);
    if output.status.code() == Some(77) || text.contains("unshare failed") {
        eprintln!("not run: this system mounts nothing for its users");
        return;
    }
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("not accepted") && text.contains("make room"),
        "{text}"
    );
    assert!(text.contains("exit code 4"), "{text}");
    assert!(!text.contains("queue.db-wal"), "{text}");
}

#[test]
fn jobs_run_again_when_they_ask_for_it_or_make_room_for_others() {
    let queue = Queue::up(1);
    let line = "echo x >> runs; test $(wc -l < runs) = 3 || exit 75";
    queue.ok(&[
        "submit",
        "--wait",
        "--requeue-exit",
        "75",
        "--",
        "sh",
        "-c",
        line,
    ]);
    assert_eq!(queue.read("runs").lines().count(), 3);
    assert_eq!(queue.rows(&["1"])[0]["runs"], 2);
    let line = "echo x >> again; test $(wc -l < again) = 2 || sleep 1000";
    let job = queue.submit(&["--requeue", "--", "sh", "-c", line]);
    queue.until("again");
    let claim = queue.state().join(format!("jobs/{job}/claim"));
    let supervisor: u32 = fs::read_to_string(claim).unwrap().trim().parse().unwrap();
    PidFd::open(supervisor).unwrap().kill();
    queue.ok(&["wait", &job]);
    assert_eq!(queue.read("again").lines().count(), 2);
    // An account that has used up its budget makes room for others.
    queue.ok(&["set", "account", "poor", "budget=1s"]);
    let line = "echo x >> poor; test $(wc -l < poor) = 2 || sleep 1000";
    let poor = queue.submit(&["-A", "poor", "--", "sh", "-c", line]);
    queue.until("poor");
    std::thread::sleep(Duration::from_millis(2100));
    queue.ok(&["submit", "--wait", "--", "true"]);
    queue.ok(&["wait", &poor]);
    assert_eq!(queue.rows(&[&poor])[0]["runs"], 1);
}

#[test]
fn energy_is_accounted_where_the_machine_reports_it() {
    let queue = Queue::not_up();
    let (none, zone) = (queue.path("none"), queue.path("powercap/intel-rapl:0"));
    fs::create_dir_all(&none).unwrap();
    fs::create_dir_all(&zone).unwrap();
    for (file, text) in [
        ("name", "package-0"),
        ("max_energy_range_uj", "262143328850"),
        ("energy_uj", "262143000000"),
    ] {
        fs::write(zone.join(file), format!("{text}\n")).unwrap();
    }
    let up = |folder: &std::path::Path| {
        let mut up = queue.margay(&["up", "--slots", "2"]);
        succeed(up.env("MARGAY_POWERCAP", folder));
    };
    up(&queue.path("powercap"));
    // The counter begins anew; the job has one of two slots.
    let line = format!("echo 7671150 > {}", zone.join("energy_uj").display());
    queue.ok(&["submit", "--wait", "-A", "sun", "--", "sh", "-c", &line]);
    queue.ok(&["down"]);
    up(&none);
    queue.ok(&["submit", "--wait", "-A", "moon", "--", "true"]);
    let rows: Vec<Value> = serde_json::from_str(&queue.ok(&["account", "--json"])).unwrap();
    let energy: Vec<&Value> = rows.iter().map(|row| &row["energy_j"]).collect();
    assert_eq!(energy, [&Value::Null, &Value::from(4.0)], "{rows:?}");
    let table = queue.ok(&["account"]);
    assert!(
        table.lines().nth(1).unwrap().ends_with("not reported"),
        "{table}"
    );
    assert_eq!(queue.rows(&["1"])[0]["energy_j"], 4.0);
    let format = "--format=ConsumedEnergyRaw";
    let energy_of = |job: &str| queue.ok(&["slurm", "sacct", "-X", "-n", "-P", "-j", job, format]);
    assert_eq!(
        (&*energy_of("1"), &*energy_of("2")),
        ("4\n", "not reported\n")
    );
}

#[test]
fn a_missing_folder_of_output_is_said_with_its_remedy() {
    let queue = Queue::up(1);
    queue.ok(&["set", "queue", "night", "priority=1"]);
    let job = queue.submit(&["-p", "night", "-o", "no/such/%j", "--", "true"]);
    queue.refused(&["wait", &job], "no/such");
    assert_eq!(queue.state_of(&job), "not-started");
    let text = queue.ok(&["explain", &job]);
    let folder = queue.folder.path().canonicalize().unwrap();
    let remedy = format!("mkdir -p {}/no/such", folder.display());
    assert!(text.contains(&remedy), "{text}");
    queue.ok(&["submit", "--wait", "-c", "1", "-p", "night", "--", "true"]);
    queue.ok(&["submit", "--wait", "--", "true"]);
    let text = queue.ok(&["account", "--queues", "--csv"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("queue,jobs,slot_s"), "{text}");
    assert!(lines[1].starts_with("compute,1,"), "{text}");
    assert!(lines[2].starts_with("night,2,"), "{text}");
}
