//! Applications that share nodes: gangs, space, priorities, deaths, and partitions that all users
//! have in common.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use margay_sys_os::process::{ProcessFacts, descendants_of};
use margay_sys_os::signal;
use margay_tests::jobs::cpu_seconds;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// A place for partitions of this test alone.
struct Place(tempfile::TempDir);

impl Place {
    fn command(&self, name: &str, line: &str) -> Command {
        let mut command = command(stage().join("bin").join(name), 120);
        command
            .args(line.split_whitespace())
            .env("XDG_STATE_HOME", self.0.path())
            .env("MARGAY_PARTITIONS", self.0.path().join("common"));
        command
    }

    fn part(&self, line: &str) -> String {
        succeed(&mut self.command("margay", &format!("part {line}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The launcher itself, so that it can be killed: what takes long is bounded by the test.
    fn start(&self, line: &str, script: &str) -> Running {
        let mut command = Command::new(stage().join("bin/mpiexec"));
        signal::take_defaults_in(&mut command);
        command
            .args(line.split_whitespace())
            .args(["sh", "-c", script])
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.0.path())
            .env("MARGAY_PARTITIONS", self.0.path().join("common"))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        Running(Some(command.spawn().expect("mpiexec")))
    }

    fn applications(&self) -> Vec<serde_json::Value> {
        let all: serde_json::Value =
            serde_json::from_str(&self.part("pspart -json .")).expect("JSON");
        all["applications"].as_array().expect("a list").clone()
    }

    fn application(&self, pid: u32) -> Option<serde_json::Value> {
        let all = self.applications();
        all.into_iter().find(|own| own["pid"] == pid)
    }

    /// Waits until something is so, which it must become.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(100);
        while !is_so() {
            assert!(Instant::now() < end, "{what}: {:?}", self.applications());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A job that ends with the test.
struct Running(Option<Child>);

impl Running {
    fn pid(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    fn kill(&self) {
        signal::send(self.pid(), signal::SIGKILL).expect("it runs");
    }

    fn output(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("its output")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The guard of a job: that child of the launcher which has the ranks.
fn guard(launcher: u32) -> Option<u32> {
    descendants_of(launcher).into_iter().find(|&pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "margay-guard\n")
    })
}

fn keeper(launcher: u32) -> Option<u32> {
    descendants_of(launcher).into_iter().find(|&pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "margay-part\n")
    })
}

/// The states of all processes of a job.
fn states(launcher: u32) -> String {
    let all = descendants_of(guard(launcher).unwrap_or(0));
    all.into_iter()
        .filter_map(ProcessFacts::of)
        .map(|facts| facts.state)
        .filter(|state| *state != 'Z')
        .collect()
}

/// A program that runs until a file is there, with a process that has left its session and its
/// parent.
fn until_there(name: &str) -> String {
    format!(
        "(setsid sh -c 'while [ ! -e {name} ]; do :; done' &); while [ ! -e {name} ]; do :; done; echo done"
    )
}

#[test]
fn gangs_take_turns_and_one_that_is_out_is_stopped_as_a_whole() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -rq 300 one");
    let jobs = [0, 1].map(|_| place.start("-pn one -n 2", &until_there("end")));
    let pids = [jobs[0].pid(), jobs[1].pid()];
    let mut turns = [0, 0];
    let mut looks = 0;
    let mut last = None;
    place.until("turns", || {
        let all = place.applications();
        let before = pids.map(|pid| all.iter().find(|own| own["pid"] == pid));
        let [Some(one), Some(two)] = before else {
            return false;
        };
        assert!(
            !(one["active"] == true && two["active"] == true),
            "{before:?}"
        );
        for (at, own) in [one, two].into_iter().enumerate() {
            if own["active"] == true && last != Some(at) {
                last = Some(at);
                turns[at] += 1;
            }
            // What is out stops: on a busy core a process takes the signal when it would run
            // again.
            let is_out = own["active"] == false && own["ran_ms"].as_u64() > Some(0);
            while is_out && place.application(pids[at]).as_ref() == Some(own) {
                let seen = states(pids[at]);
                if seen.len() >= 4 && seen.chars().all(|state| state == 'T') {
                    looks += 1;
                    break;
                }
            }
        }
        turns[0] > 3 && turns[1] > 3 && looks > 3
    });
    fs::write(place.path("end"), "").unwrap();
    for job in jobs {
        let output = job.output();
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(output.stdout, b"done\ndone\n");
    }
    assert!(place.applications().is_empty());
}

#[test]
fn what_an_application_has_stopped_itself_stays_stopped() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -rq 100 one");
    let stops = "sh -c 'while :; do echo >> ran; done' & until [ -s ran ]; do :; done; kill -STOP $!; \
                 until grep -q '^State:.T' /proc/$!/status; do :; done; cp ran before; \
                 while [ ! -e end ]; do sleep 0.01; done; cmp ran before && kill -CONT $! && \
                 until [ $(wc -c < ran) != $(wc -c < before) ]; do :; done && kill -KILL $!";
    let job = place.start("-pn one -n 1", stops);
    place.until("its child's stop", || place.path("before").exists());
    let other = place.start("-pn one -n 1", &until_there("end"));
    place.until("turns of both", || {
        let all = place.applications();
        all.len() == 2 && all.iter().all(|own| own["ran_ms"].as_u64() > Some(300))
    });
    fs::write(place.path("end"), "").unwrap();
    for job in [job, other] {
        let output = job.output();
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn what_looks_after_turns_takes_no_cpu_time_meanwhile() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -rq 200 one");
    let jobs = [0, 1].map(|_| place.start("-pn one -n 1", &until_there("end")));
    let ran = |job: &Running| {
        let own = place.application(job.pid());
        own.and_then(|own| own["ran_ms"].as_u64()).unwrap_or(0)
    };
    let both_ran = |ms: u64| jobs.iter().all(|job| ran(job) >= ms);
    place.until("both", || both_ran(200));
    let keepers = jobs.each_ref().map(|job| keeper(job.pid()).unwrap());
    let used = || keepers.iter().map(|&pid| cpu_seconds(pid)).sum::<f64>();
    let before = used();
    place.until("more turns", || both_ran(1200));
    let seconds = used() - before;
    assert!(seconds < 0.4, "{seconds} s of CPU time in two seconds");
    fs::write(place.path("end"), "").unwrap();
    for job in jobs {
        assert!(job.output().status.success());
    }
}

#[test]
fn a_launcher_or_keeper_that_is_killed_leaves_nobody_stopped() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -rq 50 one");
    let mut jobs: Vec<Running> = (0..3)
        .map(|_| place.start("-pn one -n 1", &until_there("end")))
        .collect();
    place.until("three", || place.applications().len() == 3);
    // The first one leads most likely, and all have had a turn or wait for one.
    let first = jobs.remove(0);
    let guarded = guard(first.pid());
    first.kill();
    drop(first);
    place.until("an end", || {
        guarded.is_none_or(|pid| descendants_of(pid).is_empty())
    });
    place.until("two", || place.applications().len() == 2);
    // Both go on.
    place.until("turns", || {
        let all = place.applications();
        all.len() == 2 && all.iter().all(|own| own["ran_ms"].as_u64() > Some(100))
    });
    let kept = keeper(jobs[0].pid()).expect("a keeper");
    signal::send(kept, signal::SIGKILL).unwrap();
    place.until("one", || place.applications().len() == 1);
    fs::write(place.path("end"), "").unwrap();
    let outputs: Vec<Output> = jobs.into_iter().map(Running::output).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", said(output));
        assert_eq!(output.stdout, b"done\n");
    }
    let text = said(&outputs[0]);
    assert!(text.contains("takes no turns any more"), "{text}");
}

#[test]
fn limits_of_time_do_not_count_while_others_have_their_turn() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -rq 50 one");
    let ends = "while [ ! -e end ]; do sleep 0.01; done; echo done";
    let low = place.start("-pn one -n 1 -pri 4 -timeout 3", ends);
    place.until("a turn", || {
        let own = place.application(low.pid());
        own.is_some_and(|own| own["active"] == true)
    });
    // It has the node alone for longer than the other one may run.
    let high = place.start("-pn one -n 1 -pri 6", "sleep 4; touch end");
    let output = high.output();
    assert!(output.status.success(), "{}", said(&output));
    let output = low.output();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"done\n");
}

#[test]
fn a_deadlock_is_found_by_running_time_and_who_is_out_has_none() {
    let place = Place(scratch());
    let waits = place.path("waits");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .arg(program("waits.c"))
            .arg("-o")
            .arg(&waits),
    );
    place.part("mkpart -sz 1 -rq 500 one");
    let line = "-pn one -n 2 -deadlock end";
    let healthy = place.start(line, "exec ./waits healthy");
    place.until("a job", || place.application(healthy.pid()).is_some());
    let began = Instant::now();
    let mut dead = place.start(line, "exec ./waits dead");
    let mut ran_ms = 0;
    while dead.0.as_mut().unwrap().try_wait().unwrap().is_none() {
        let text = "two waits in a circle are not found";
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{text}: {ran_ms} ms"
        );
        let own = place.application(dead.pid());
        ran_ms = own.and_then(|own| own["ran_ms"].as_u64()).unwrap_or(ran_ms);
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = began.elapsed();
    let output = dead.output();
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("deadlock"),
        "{text}"
    );
    // It had half of the time, and two seconds of its own had to pass.
    assert!(
        ran_ms >= 1700,
        "{ran_ms} ms in its turns, {took:?} in all: {text}"
    );
    assert!(took >= Duration::from_millis(2800), "{took:?}: {text}");
    // A receive that waits while others have the node for longer than that is none.
    let other = place.start("-pn one -n 1 -pri 7", "sleep 4");
    assert!(other.output().status.success());
    fs::write(place.path("end"), "").unwrap();
    let output = healthy.output();
    assert_eq!(output.stdout, b"done\n", "{}", said(&output));
}

#[test]
fn overlapping_partitions_never_have_two_applications_on_a_node() {
    let place = Place(scratch());
    let count = margay_sys_os::cpu::affinity().len();
    if count < 2 {
        return;
    }
    place.part("mkpart -nd 0 -rq 60 left");
    place.part("mkpart -nd 1 -rq 80 right");
    place.part("mkpart -nd 0..1 -rq 100 both");
    let names = [("left", 1), ("right", 1), ("both", 2), ("left", 1)];
    let jobs = names
        .map(|(name, ranks)| place.start(&format!("-pn {name} -n {ranks}"), &until_there("end")));
    let mut are_two = false;
    place.until("turns of all", || {
        let all = place.applications();
        let of = |job: &Running| all.iter().find(|own| own["pid"] == job.pid());
        let are = [0, 1, 2, 3].map(|at| of(&jobs[at]).is_some_and(|own| own["active"] == true));
        let on_left = [are[0], are[2], are[3]];
        let on_right = [are[1], are[2]];
        for on_node in [&on_left[..], &on_right] {
            let together = on_node.iter().filter(|own| **own).count();
            assert!(together <= 1, "{all:?}");
        }
        are_two |= are[1] && (are[0] || are[3]);
        let has_run = |job: &Running| of(job).is_some_and(|own| own["ran_ms"].as_u64() > Some(200));
        jobs.iter().all(has_run) && are_two
    });
    fs::write(place.path("end"), "").unwrap();
    for job in jobs {
        assert!(job.output().status.success());
    }
}

#[test]
fn the_priority_limit_acts() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -epl 3 low");
    place.part("mkpart -rq 50 -epl 9 low.one");
    let job = place.start("-pn low.one -n 1 -pri 8", &until_there("end"));
    place.until("a job", || place.application(job.pid()).is_some());
    assert_eq!(place.application(job.pid()).unwrap()["priority"], 3);
    place.part("chpart -epl 2 low");
    place.until("a change", || {
        place.application(job.pid()).unwrap()["priority"] == 2
    });
    fs::write(place.path("end"), "").unwrap();
    assert!(job.output().status.success());
}

#[test]
fn space_is_shared_and_who_finds_none_waits_and_says_so() {
    let place = Place(scratch());
    place.part("mkpart -sz 1 -sps one");
    let first = place.start("-pn one -n 1", &until_there("first"));
    place.until("a job", || place.application(first.pid()).is_some());
    let second = place.start("-pn .compute.one -n 1", "test -e first && echo second");
    place.until("a second", || place.application(second.pid()).is_some());
    let own = place.application(second.pid()).unwrap();
    assert_eq!((&own["active"], &own["ran_ms"]), (&false.into(), &0.into()));
    // Nobody removes what is used without saying so.
    let words = "part rmpart one";
    let output = run(&mut place.command("margay", words));
    assert!(
        said(&output).contains("applications run in the partition '.compute.one'"),
        "{}",
        said(&output)
    );
    // A third one is interrupted while it waits, and is gone.
    let third = place.start("-pn one -n 1", "echo third");
    place.until("a third", || place.application(third.pid()).is_some());
    third.kill();
    place.until("its end", || place.application(third.pid()).is_none());
    std::thread::sleep(Duration::from_millis(1200));
    fs::write(place.path("first"), "").unwrap();
    assert!(first.output().status.success());
    let output = second.output();
    assert_eq!(output.stdout, b"second\n");
    assert!(
        said(&output).contains("waits for nodes of the partition '.compute.one'"),
        "{}",
        said(&output)
    );
    // A command of any kind takes a turn, too.
    assert_eq!(place.part("pexec one echo a b"), "a b\n");
}

/// Copies what another user needs of the tree: it may lie where nobody else can read.
fn readable(place: &Path) -> PathBuf {
    let bin = place.join("tree/bin");
    fs::create_dir_all(&bin).unwrap();
    for name in ["margay", "margay-part"] {
        fs::copy(stage().join("bin").join(name), bin.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("margay", bin.join("mpiexec")).unwrap();
    bin
}

#[test]
fn users_share_the_partitions_that_root_has_made_for_all() {
    let place = Place(scratch());
    let is_root = margay_sys_os::port::user() == 0;
    let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.0.path(), open).unwrap();
    let bin = readable(place.0.path());
    let common = place.path("common");
    let as_user = |user: u32, line: &str| {
        let mut other = if is_root {
            let mut other = command("setpriv", 60);
            other.args(["--reuid", &user.to_string(), "--regid", &user.to_string()]);
            other.arg("--clear-groups").arg(bin.join("margay"));
            other
        } else {
            command(bin.join("margay"), 60)
        };
        other
            .arg("part")
            .args(line.split_whitespace())
            .current_dir("/")
            .env("MARGAY_PARTITIONS", &common);
        run(&mut other)
    };
    let started = place.part("init");
    let pid = started.split("process ").nth(1).expect("a process");
    let pid: u32 = pid.split(';').next().unwrap().parse().unwrap();
    let service = Service(pid);
    assert!(place.part("init").contains("runs already"));
    place.part("mkpart -sz 1 -rq 50 -mod 750 lab");
    if is_root {
        let refused = |user, line: &str, text: &str| {
            let output = as_user(user, line);
            assert!(!output.status.success(), "{user} {line}");
            assert!(said(&output).contains(text), "{line}: {}", said(&output));
        };
        refused(4001, "mkpart mine", "lack the right write (w)");
        refused(4001, "pexec lab true", "lack the right execute (x)");
        refused(4001, "rmpart lab", "lack the right write (w)");
        refused(4001, "chpart -o 4001 lab", "is not yours");
        // Who may not read a partition sees neither it nor what is in it.
        place.part("mkpart -sz 1 -mod 711 secret");
        place.part("mkpart secret.within");
        refused(4001, "showpart secret", "lack the right read (r)");
        refused(4001, "lspart secret", "lack the right read (r)");
        refused(4001, "pspart secret", "lack the right read (r)");
        let output = as_user(4001, "lspart -r .");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            listed.contains(".compute.lab\n") || listed.contains(".compute\n"),
            "{listed}"
        );
        assert!(!listed.contains("secret"), "{listed}");
        // Its programs may run there, as x says, and what is within has its parent's mode.
        assert!(as_user(4001, "pexec secret.within true").status.success());
        assert!(place.part("lspart secret").contains("    711 "));
        place.part("chpart -o 4001.4002 lab");
        assert!(as_user(4001, "mkpart lab.mine").status.success());
        refused(4002, "mkpart lab.theirs", "lack the right write (w)");
        refused(4001, "chpart -o 4002 lab", "only root may give");
        refused(4001, "chpart -g 77 lab", "not in the group 77");
        assert!(as_user(4001, "chpart -mod 755 lab.mine").status.success());
        let output = as_user(4002, "pexec lab.mine id -u");
        assert_eq!(output.stdout, b"4002\n", "{}", said(&output));
        let output = as_user(4002, "lspart lab");
        assert!(String::from_utf8_lossy(&output.stdout).contains("4001   4001    755"));
    } else {
        assert!(as_user(0, "mkpart lab.mine").status.success());
    }
    drop(service);
    place.until("the service's end", || {
        ProcessFacts::of(pid).is_none_or(|own| own.state == 'Z')
    });
    if is_root {
        let output = as_user(4001, "mkpart lab.late");
        assert!(
            said(&output).contains("margay part init"),
            "{}",
            said(&output)
        );
    }
}

/// The service of the test.
struct Service(u32);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = signal::send(self.0, signal::SIGKILL);
    }
}
