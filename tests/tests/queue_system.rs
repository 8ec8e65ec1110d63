//! The queue that all users of a machine share: as whom jobs run, what users see of each other,
//! and what one of them can do to the others. Root starts it, in a mount namespace of the test's
//! own, so that nothing of the machine is touched.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::users::{ONE, OTHER, chmod, install};
use margay_tests::{command, run};
use serde_json::Value;

/// A machine: folders of the system are its own, and so is the installation.
struct Machine {
    folder: tempfile::TempDir,
    /// Holds the mount namespace as long as its standard input is open.
    holder: Child,
}

impl Machine {
    /// None, with a note, where it cannot be made.
    fn make() -> Option<Machine> {
        let folder = tempfile::tempdir().unwrap();
        chmod(folder.path(), 0o755);
        let script = "mount -t tmpfs -o mode=755 t /run && mount -t tmpfs -o mode=755 t /var/lib \
                      && mount -t tmpfs -o mode=755 t /etc/systemd && cp /etc/passwd /run/passwd \
                      && mount --bind /run/passwd /etc/passwd && echo ready && exec cat";
        let holder = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = holder.ok()?;
        let mut line = [0; 6];
        let out = holder.stdout.as_mut().unwrap();
        if std::io::Read::read_exact(out, &mut line).is_err() {
            println!(
                "note: not root, or no mount namespaces: the queue of all users is not tested"
            );
            let _ = holder.wait();
            return None;
        }
        let machine = Machine { folder, holder };
        install(
            &machine.path(""),
            &[
                "margay",
                "margay-machine",
                "margay-part",
                "margay-queue",
                "mpiexec",
            ],
        );
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command on the machine, as a user, in the user's home.
    fn on(&self, user: &str, words: &[&str]) -> Command {
        let mut command = command("nsenter", 120);
        let home = self.path(user);
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()))
            .args(["env", "-i"])
            .arg(format!("HOME={}", home.display()))
            .arg(format!(
                "PATH={}:{}:/usr/bin:/bin:/usr/sbin:/sbin",
                self.path("tools").display(),
                self.path("margay/bin").display()
            ));
        if user != "root" {
            command.args(["setpriv", "--reuid", user, "--regid", user]);
            // Groups that the job has as well.
            command.args(["--groups", if user == ONE { "4,24" } else { "27" }]);
        }
        command
            .args(["sh", "-c", "cd \"$HOME\" && umask 027 && exec \"$@\"", "sh"])
            .args(words);
        command
    }

    fn margay(&self, user: &str, words: &[&str]) -> Command {
        self.on(user, &[&["margay"], words].concat())
    }

    fn ok(&self, user: &str, words: &[&str]) -> String {
        let output = run(&mut self.margay(user, words));
        assert!(
            output.status.success(),
            "{user}: {words:?}: {}",
            said(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, user: &str, words: &[&str], why: &str) {
        let output = run(&mut self.margay(user, words));
        let text = said(&output);
        assert!(!output.status.success(), "{user}: {words:?} succeeded");
        assert!(text.contains(why), "{user}: {words:?}: {text}");
    }

    /// Runs a job of a user to its end and returns what it wrote.
    fn job(&self, user: &str, script: &str) -> String {
        let words = ["submit", "--wait", "-o", "out", "--", "sh", "-c", script];
        self.ok(user, &words);
        fs::read_to_string(self.path(user).join("out")).unwrap()
    }

    fn submit(&self, user: &str, words: &[&str]) -> String {
        let number = self.ok(user, &[&["submit", "--parsable"], words].concat());
        number.trim().to_owned()
    }

    fn row(&self, user: &str, job: &str) -> Value {
        let rows: Vec<Value> =
            serde_json::from_str(&self.ok(user, &["queue", "--json", job])).unwrap();
        rows[0].clone()
    }

    /// Waits until a file of a user has a line, and returns it.
    fn line(&self, user: &str, name: &str) -> String {
        let path = self.path(user).join(name);
        loop {
            match fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// The process of the head.
    fn head(&self) -> u32 {
        let text = self.ok("root", &["up", "--system"]);
        let number = text.split("process ").nth(1).unwrap();
        number.split(')').next().unwrap().parse().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Also after a test that failed.
        for words in [
            &["cancel", "--all"][..],
            &["wait", "--all"],
            &["down", "--system"],
        ] {
            let _ = self.margay("root", words).output();
        }
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Starts the queue, and looks at who may do so, and twice.
fn bring_up(machine: &Machine) {
    machine.refused(ONE, &["up", "--system"], "needs the right of root");
    machine.refused(ONE, &["queue"], "margay up");
    machine.refused(ONE, &["queue", "--system"], "root starts it");
    let up = run(&mut machine.margay("root", &["up", "--system", "--slots", "2"]));
    let text = said(&up);
    assert!(up.status.success(), "{text}");
    assert!(
        text.contains("systemd does not run here") && text.contains("2 slots"),
        "{text}"
    );
    let again = machine.ok("root", &["up", "--system"]);
    assert!(again.contains("is up already"), "{again}");
    let second = run(&mut machine.on("root", &["margay-queue", "serve", "--system"]));
    assert!(said(&second).contains("another head"), "{}", said(&second));
}

#[test]
fn a_users_own_queue_is_not_made_that_of_all_users() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok(ONE, &["up", "--slots", "1"]);
    machine.ok(ONE, &["down"]);
    let own = machine.path(ONE).join(".local/state/margay/queue/queue.db");
    let words = [
        "install",
        "-D",
        &own.display().to_string(),
        "/var/lib/margay/queue/queue.db",
    ];
    assert!(run(&mut machine.on("root", &words)).status.success());
    machine.refused("root", &["up", "--system"], "has a user's own queue");
}

#[test]
fn each_job_runs_as_its_user_and_no_user_has_rights_over_anothers() {
    let Some(machine) = Machine::make() else {
        return;
    };
    bring_up(&machine);
    // User, groups, permissions, directory and environment are those of who submitted.
    let id = machine.job(
        ONE,
        "id -un; id -gn; id -G; umask; pwd; echo $MARGAY_QUEUE $SLURM_JOB_USER",
    );
    let id: Vec<&str> = id.lines().collect();
    let home = fs::canonicalize(machine.path(ONE)).unwrap();
    assert_eq!(id[..2], [ONE, ONE]);
    let mut groups: Vec<u32> = id[2].split(' ').map(|g| g.parse().unwrap()).collect();
    groups.sort_unstable();
    assert_eq!(groups, [1, 4, 24]);
    assert_eq!(id[3..], ["0027", home.to_str().unwrap(), "system daemon"]);
    let out = fs::metadata(machine.path("daemon/out")).unwrap();
    assert_eq!((out.uid(), out.mode() & 0o777), (1, 0o640));
    // What the request says of its user counts nothing.
    let words = "env USER=root margay submit --wait -- true";
    let words: Vec<&str> = words.split(' ').collect();
    let lie = run(&mut machine.on(ONE, &words));
    assert!(lie.status.success(), "{}", said(&lie));
    assert_eq!(machine.row(OTHER, "2")["user"], ONE);

    let node = machine.ok(ONE, &["node"]);
    let group = machine.job(ONE, "cat /proc/self/cgroup");
    match node.contains("jobs: a control group for each job") {
        true => assert!(group.contains("/job-3\n"), "{node}{group}"),
        false => assert!(node.contains("jobs: no control groups: "), "{node}"),
    }

    let script =
        "#!/bin/sh\necho $0 $PBS_NODEFILE >where.new; mv where.new where; exec sleep 1000\n";
    fs::write(machine.path("daemon/script"), script).unwrap();
    let job = machine.submit(ONE, &["-J", "mine", "-o", "kept", "script"]);
    others_see_little(&machine, &job);
    others_change_nothing(&machine, &job);

    let held = machine.submit(ONE, &["--hold", "--", "true"]);
    let of_held = format!("JobId={held}");
    let update = ["slurm", "scontrol", "update", &of_held, "Priority=5"];
    machine.refused(ONE, &update, "is root's");
    machine.ok("root", &["hold", &held]);
    machine.refused(ONE, &["release", &held], "held by root");
    machine.ok("root", &["release", &held]);
    machine.ok("root", &["cancel", &job, &held]);
    // Both fail, which the exit code says.
    run(&mut machine.margay("root", &["wait", &job, &held]));
    assert_eq!(machine.row(OTHER, &job)["state"], "cancelled");
    let text = machine.ok(OTHER, &["account", "--users", "--csv"]);
    assert!(text.contains("daemon,-,"), "{text}");
    machine.ok("root", &["down", "--system"]);
    let places = ["/run/margay", "/var/lib/margay/jobs", "-mindepth", "2"];
    let left = run(&mut machine.on("root", &[&["find"][..], &places].concat()));
    assert_eq!(said(&left), "");
    machine.refused("root", &["up"], "margay up --system");
}

/// What is shown of a running job of another user.
fn others_see_little(machine: &Machine, job: &str) {
    let text = machine.line(ONE, "where");
    let files: Vec<&str> = text.split(' ').collect();
    for file in &files {
        let cat = |user: &str| run(&mut machine.on(user, &["cat", file])).status.success();
        assert!(cat(ONE) && !cat(OTHER), "{file}");
    }
    let written = run(&mut machine.on(ONE, &["touch", &format!("{}.new", files[0])]));
    assert!(!written.status.success(), "the folder takes files");
    for file in ["queue.db", "head.log", "jobs"] {
        let file = format!("/var/lib/margay/queue/{file}");
        let looked = said(&run(&mut machine.on(OTHER, &["ls", &file])));
        assert!(looked.contains("Permission denied"), "{looked}");
    }
    for (name, mode) in [("queue", "700"), ("queue/queue.db", "600")] {
        let name = format!("/var/lib/margay/{name}");
        let found = run(&mut machine.on("root", &["stat", "-c", "%a", &name]));
        assert_eq!(said(&found).trim(), mode);
    }
    let shown = machine.ok(OTHER, &["queue"]);
    for word in ["USER", ONE, "mine", "running"] {
        assert!(shown.contains(word), "{shown}");
    }
    let control = |user| machine.ok(user, &["slurm", "scontrol", "show", "job", job]);
    assert!(control(ONE).contains("daemon/kept"), "{}", control(ONE));
    assert!(!control(OTHER).contains("kept"), "{}", control(OTHER));
    let mine = |user| machine.ok(user, &["slurm", "squeue", "--me", "-h"]);
    assert!(mine(ONE).contains("mine"));
    assert_eq!(mine(OTHER), "");
}

/// What another user may not do.
fn others_change_nothing(machine: &Machine, job: &str) {
    let of = "is of the user daemon";
    machine.refused(OTHER, &["cancel", job], of);
    machine.refused(OTHER, &["hold", job], of);
    machine.refused(OTHER, &["slurm", "scancel", "--signal=KILL", job], of);
    machine.refused(OTHER, &["slurm", "scontrol", "requeue", job], of);
    let of_job = format!("JobId={job}");
    machine.refused(
        OTHER,
        &["slurm", "scontrol", "update", &of_job, "Name=x"],
        of,
    );
    machine.ok(OTHER, &["cancel", "--all"]);
    assert_eq!(machine.row(OTHER, job)["state"], "running");
    machine.refused(OTHER, &["set", "policy", "backfill=none"], "is root's");
    assert!(machine.ok(OTHER, &["set"]).contains("backfill"));
    assert!(machine.ok(OTHER, &["down"]).contains("does not run"));
    machine.refused(OTHER, &["down", "--system"], "needs the right of root");
    let first = ["submit", "--priority", "1", "--", "true"];
    machine.refused(OTHER, &first, "is root's");
}

#[test]
fn what_a_user_asks_for_is_done_with_the_users_rights() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "4"]);
    let target = machine.path("root/target");
    fs::write(&target, "root's\n").unwrap();
    chmod(&target, 0o600);
    std::os::unix::fs::symlink(&target, machine.path("daemon/link")).unwrap();
    let theirs = machine.path("bin/theirs").display().to_string();
    let refused = |options: &[&str], why: &str| {
        let words = [&["submit", "--wait"], options, &["--", "true"]].concat();
        machine.refused(ONE, &words, why);
    };
    for path in ["link", &theirs, "/etc/passwd"] {
        refused(&["-o", path], "Permission denied");
        refused(&["-e", path], "Permission denied");
    }
    let reads = "#!/bin/sh\n#SBATCH -i link\ncat\n";
    fs::write(machine.path("daemon/reads"), reads).unwrap();
    let why = "cannot open the input file";
    machine.refused(ONE, &["submit", "--wait", "reads"], why);
    refused(&["-D", "/root"], "directory /root");
    assert_eq!(fs::read_to_string(&target).unwrap(), "root's\n");
    // Notes name files, and are for their user.
    let note = |user| machine.row(user, "1")["note"].as_str().unwrap().to_owned();
    assert_eq!(note(OTHER), "");
    assert!(note(ONE).contains("link"), "{}", note(ONE));
    // What moves the cursor does not reach a terminal.
    refused(&["-J", "a\u{1b}[2J"], "control characters");
    refused(&["-o", "/no\u{1b}[2J/x"], "/no?[2J/x");

    // Nothing outlives its job: what left its session, and what has root's rights.
    let rooted = machine.path("margay/bin/rooted-sleep");
    fs::copy("/bin/sleep", &rooted).unwrap();
    chmod(&rooted, 0o4755);
    let script = "setsid sh -c 'echo $$ >away; exec sleep 1000' & \
                  setsid rooted-sleep 1000 & echo $! >rooted; sleep 1000";
    let words = ["submit", "--wait", "-t", "1s", "--", "sh", "-c", script];
    machine.refused(ONE, &words, "time limit");
    for name in ["away", "rooted"] {
        let pid: u32 = machine.line(ONE, name).parse().unwrap();
        assert!(PidFd::open(pid).is_err(), "{name}: {pid} lives");
    }
}

#[test]
fn jobs_outlive_the_head_and_an_own_queue_comes_first() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "4"]);
    let script = "echo $$ >begun; while [ ! -e go ]; do sleep 0.01; done; id -un";
    let job = machine.submit(ONE, &["-o", "out", "--", "sh", "-c", script]);
    machine.line(ONE, "begun");
    let head = PidFd::open(machine.head()).unwrap();
    head.kill();
    while !head.has_ended() {
        std::thread::yield_now();
    }
    machine.ok("root", &["up", "--system", "--slots", "4"]);
    fs::write(machine.path("daemon/go"), "").unwrap();
    machine.ok(ONE, &["wait", &job]);
    assert_eq!(machine.line(ONE, "out"), ONE);

    machine.ok(OTHER, &["up", "--slots", "1"]);
    assert!(machine.ok(OTHER, &["node"]).contains(" 1 "));
    assert!(machine.ok(OTHER, &["node", "--system"]).contains(" 4 "));
    assert_eq!(machine.submit(OTHER, &["--", "true"]), "1");
    // Commands in a job ask the queue that it is of.
    let asked = machine.job(OTHER, "margay node; margay node --system");
    let lines: Vec<&str> = asked.lines().collect();
    assert!(
        lines[1].contains(" 1 ") && lines[3].contains(" 4 "),
        "{asked}"
    );
    let words = "submit --system --wait -o out -- margay node";
    let words: Vec<&str> = words.split(' ').collect();
    machine.ok(OTHER, &words);
    let out = fs::read_to_string(machine.path("bin/out")).unwrap();
    assert!(out.contains(" 4 "), "{out}");
    machine.ok(OTHER, &["down"]);
}

#[test]
fn a_job_of_a_user_who_has_been_removed_does_not_begin() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "1"]);
    let jobs = [(); 2].map(|()| machine.submit(ONE, &["--hold", "--", "touch", "begun"]));
    let list = format!("/proc/{}/root/run/passwd", machine.holder.id());
    let all = fs::read_to_string(&list).unwrap();
    let is_own = |line: &&str| line.starts_with(&format!("{ONE}:"));
    let others: Vec<&str> = all.lines().filter(|line| !is_own(line)).collect();
    fs::write(&list, others.join("\n") + "\n").unwrap();
    machine.ok("root", &["release", &jobs[0]]);
    machine.refused("root", &["wait", &jobs[0]], "has been removed");
    fs::write(&list, all.replace(&format!("{ONE}:"), "another:")).unwrap();
    machine.ok("root", &["release", &jobs[1]]);
    machine.refused("root", &["wait", &jobs[1]], "is now the user another");
    assert!(!machine.path(ONE).join("begun").exists());
    fs::write(&list, all).unwrap();
    assert_eq!(machine.job(ONE, "id -un"), format!("{ONE}\n"));
}

#[test]
fn what_a_job_leaves_whose_supervisor_is_killed_ends_with_its_group() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "1"]);
    if machine.ok("root", &["node"]).contains("no control groups") {
        println!("note: no control groups here: their end is not tested");
        return;
    }
    let script = "setsid sh -c 'echo $$ >away; exec sleep 1000' & echo $PPID >watcher; sleep 1000";
    let job = machine.submit(ONE, &["--", "sh", "-c", script]);
    let process = |name: &str| PidFd::open(machine.line(ONE, name).parse().unwrap()).unwrap();
    let (away, watcher) = (process("away"), process("watcher"));
    watcher.kill();
    machine.refused(ONE, &["wait", &job], "lost");
    while !away.has_ended() {
        std::thread::yield_now();
    }
    // The next job begins in a group of its own.
    assert_eq!(machine.job(ONE, "id -un"), "daemon\n");
}

/// A service that ends with the test.
struct Service(PidFd);

impl Service {
    /// That of the partitions of all users.
    fn start(machine: &Machine) -> Service {
        let started = machine.ok("root", &["part", "init"]);
        let pid = started.split("process ").nth(1).unwrap();
        let pid = pid.split(';').next().unwrap().parse().unwrap();
        Service(PidFd::open(pid).unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[test]
fn users_have_the_partitions_of_all_where_no_queue_is() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["part", "mkpart", "-sz", "1", "-ss", "roots"]);
    let _service = Service::start(&machine);
    let listed = machine.ok(ONE, &["part", "lspart", ".compute"]);
    assert!(listed.contains("roots"), "{listed}");
}

#[test]
fn jobs_of_two_users_take_turns_in_a_partition_of_all() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "8"]);
    let rule = ["set", "queue", "day", "partition=day"];
    machine.refused("root", &rule, "margay part init");
    let _service = Service::start(&machine);
    let make = ["part", "mkpart", "-sz", "1", "-rq", "300", "day"];
    machine.ok("root", &make);
    machine.ok("root", &rule);
    machine.refused(ONE, &["part", "rmpart", "day"], "lack the right write");
    // A user's own table of partitions is none of the queue's.
    let own = format!("MARGAY_PARTITIONS={}/own", machine.path(ONE).display());
    let with_own = |words: &[&str]| {
        let output = run(&mut machine.on(ONE, &[&["env", &own, "margay"], words].concat()));
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    with_own(&["part", "mkpart", "-rq", "1s", "day"]);
    let copy = "cp -r .local/state/margay/partitions own && chmod -R a+rX own";
    assert!(
        run(&mut machine.on(ONE, &["sh", "-c", copy]))
            .status
            .success()
    );
    let listed = with_own(&["part", "lspart", ".compute"]);
    assert!(listed.contains("1s"), "{listed}");

    let log = machine.path("log");
    fs::write(&log, "").unwrap();
    chmod(&log, 0o666);
    let (shown, stop) = (log.display(), machine.path("stop"));
    let line = format!(
        "me=$(id -un); while test ! -e {}; do echo $me >> {shown}; done; exit 3",
        stop.display()
    );
    let words = ["submit", "--parsable", "-p", "day", "--", "sh", "-c", &line];
    let one = with_own(&words);
    let other = machine.submit(OTHER, &words[2..]);
    let lines = || fs::read_to_string(&log).unwrap();
    let switches = |log: &str| {
        let lines: Vec<&str> = log.lines().collect();
        lines.windows(2).filter(|two| two[0] != two[1]).count()
    };
    while switches(&lines()) < 4 {
        std::thread::sleep(Duration::from_millis(50));
    }
    machine.refused(OTHER, &["cancel", &one], "is of the user daemon");
    fs::write(&stop, "").unwrap();
    for (user, job) in [(ONE, &one), (OTHER, &other)] {
        machine.refused(user, &["wait", job], "exit code 3");
        let lines = lines();
        assert!(lines.lines().filter(|line| *line == user).count() > 100);
        assert!(switches(&lines) * 20 < lines.lines().count());
    }

    // What looks at turns for a time limit has root's rights, and nothing of the user's.
    let debug = format!("LD_DEBUG_OUTPUT={}/debug", machine.path(ONE).display());
    let mut words = vec!["env", "LD_DEBUG=libs", &debug, "margay", "submit", "--wait"];
    words.extend(["-p", "day", "-t", "1s", "--", "sleep", "100"]);
    let text = said(&run(&mut machine.on(ONE, &words)));
    assert!(text.contains("time limit"), "{text}");
    let files = fs::read_dir(machine.path(ONE)).unwrap().map(Result::unwrap);
    let written = files.filter(|file| file.file_name().to_string_lossy().starts_with("debug."));
    let owners: Vec<u32> = written.map(|file| file.metadata().unwrap().uid()).collect();
    assert!(!owners.is_empty() && owners.iter().all(|owner| *owner == 1));
}

/// Opens many connections, says nothing on most of them and too much on others; prints what is
/// answered, and stays until its standard input ends.
const FLOOD: &str = r#"
import socket, sys
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/margay/queue/socket")
    return s
large = []
for _ in range(2):
    s = connect()
    try:
        for _ in range(100):
            s.sendall(b"x" * 1000000)
    except OSError:
        pass
    large.append(s.recv(1000))
silent = [connect() for _ in range(200)]
refused = sum(1 for s in silent[100:] if b"too many" in s.recv(1000))
print(refused > 0, all(b"larger than 16 MiB" in text for text in large), flush=True)
sys.stdin.read()
"#;

#[test]
fn a_user_who_floods_the_head_keeps_nobody_else_out() {
    let Some(machine) = Machine::make() else {
        return;
    };
    machine.ok("root", &["up", "--system", "--slots", "1"]);
    let mut flood = machine
        .on(ONE, &["python3", "-c", FLOOD])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut out = std::io::BufReader::new(flood.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut text).unwrap();
    assert_eq!(text, "True True\n");
    // They have connections left, although those that say nothing are ended after 10 s alone.
    machine.job(OTHER, "true");
    machine.ok("root", &["queue"]);
    drop(flood.stdin.take());
    flood.wait().unwrap();
}

#[test]
fn where_systemd_runs_the_queue_is_a_unit_of_it() {
    let Some(machine) = Machine::make() else {
        return;
    };
    // A stand-in for systemd, which this system may not run.
    fs::create_dir(machine.path("tools")).unwrap();
    let tool = machine.path("tools/systemctl");
    let log = machine.path("root/log");
    fs::write(
        &tool,
        format!(
            "#!/bin/sh\necho \"$@\" >>{}\nif [ \"$1\" = enable ]; then\n\
             command=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/margay-queue.service)\n\
             eval \"setsid $command </dev/null >/dev/null 2>&1 &\"\nfi\n",
            log.display()
        ),
    )
    .unwrap();
    chmod(&tool, 0o755);
    let made = run(&mut machine.on(
        "root",
        &["mkdir", "-p", "/run/systemd/system", "/etc/systemd/system"],
    ));
    assert!(made.status.success());
    let up = run(&mut machine.margay("root", &["up", "--system", "--slots", "3"]));
    assert!(up.status.success(), "{}", said(&up));
    assert!(said(&up).contains("3 slots") && !said(&up).contains("systemd does not run"));
    let unit = "/etc/systemd/system/margay-queue.service";
    let text = said(&run(&mut machine.on("root", &["cat", unit])));
    for line in [
        "Delegate=yes",
        "KillMode=process",
        "WantedBy=multi-user.target",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    if Path::new("/usr/bin/systemd-analyze").exists() {
        let checked =
            run(&mut machine.on("root", &["systemd-analyze", "verify", "--man=no", unit]));
        let lines = said(&checked);
        let own = lines.lines().filter(|line| line.contains("margay"));
        assert_eq!(own.count(), 0, "{lines}");
    }
    assert_eq!(machine.job(ONE, "id -un"), "daemon\n");
    machine.ok("root", &["down", "--system"]);
    let said_to = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said_to.lines().collect();
    let name = "margay-queue.service";
    let expected = [
        "daemon-reload".to_owned(),
        format!("enable --now {name}"),
        format!("disable {name}"),
        "daemon-reload".to_owned(),
    ];
    assert_eq!(lines, expected);
    assert!(!run(&mut machine.on("root", &["ls", unit])).status.success());

    // A program that others can change does not run as root.
    chmod(&machine.path("margay/bin"), 0o777);
    machine.refused(
        "root",
        &["up", "--system"],
        "can be changed by others than root",
    );
}
