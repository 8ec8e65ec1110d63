//! The queue of several hosts: jobs on them, hosts that go and come, a head that is killed.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use margay_sys_os::process::{ProcessFacts, descendants_of};
use margay_sys_os::signal::take_defaults_in;
use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, nothing_is_left, send};
use margay_tests::queue_hosts::Queue;
use margay_tests::{run, stage};

#[test]
fn jobs_run_on_the_hosts_that_the_queue_gives_them() {
    let Some(hosts) = Hosts::make(3) else { return };
    let queue = Queue::up(hosts);
    let name = |host| queue.hosts.name(host);
    let list = format!("{}:2,{},{}", name(1), name(2), name(3));
    let up = queue.ok(&format!("up --slots 2 --hosts {list}"));
    assert!(up.contains("6 slots on 3 of 3 hosts"), "{up}");

    // Directory, output and exit code are as on one host; the fullest host with room is taken.
    let folder = queue.hosts.folder.path().canonicalize().unwrap();
    let (output, printed) = queue.job("-c 2", "hostname; pwd; echo $SLURM_JOB_NODELIST; exit 3");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("exit code 3"), "{}", said(&output));
    let expected = format!("{0}\n{1}\n{0}\n", name(1), folder.display());
    assert_eq!(printed, expected);

    // A job's mpiexec has its places, as many on each host.
    let mpiexec = stage().join("bin/mpiexec");
    let (_, printed) = queue.job("-N 3 -n 5", &format!("{} hostname", mpiexec.display()));
    let mut ranks: Vec<&str> = printed.lines().collect();
    ranks.sort_unstable();
    let (a, b, c) = (name(1), name(2), name(3));
    assert_eq!(ranks, [&*a, &*b, &*b, &*c, &*c], "{printed}");
    // So has its poe, whatever pool is named.
    let poe = stage().join("bin/poe");
    for (words, expected) in [
        ("-rmpool 1", vec![&*a, &*b, &*b, &*c, &*c]),
        ("-nodes 2 -tasks_per_node 2", vec![&*a, &*a, &*b, &*b]),
    ] {
        let (_, printed) = queue.job("-N 3 -n 5", &format!("{} hostname {words}", poe.display()));
        let mut ranks: Vec<&str> = printed.lines().collect();
        ranks.sort_unstable();
        assert_eq!(ranks, expected, "{words}: {printed}");
    }

    // What asks for more of one host than any has is refused.
    let output = run(&mut queue.margay("submit -c 3 -- true"));
    assert!(said(&output).contains("of one host"), "{}", said(&output));

    // A job that is cancelled leaves nothing on its host.
    let job = queue.begin("-N 3", "first");
    queue.until("the job", || queue.lines("first").len() == 1);
    queue.ok(&format!("cancel {job}"));
    run(&mut queue.margay(&format!("wait {job}")));
    assert_eq!(queue.row(&job)["state"], "cancelled");
    assert_eq!(queue.state_of(1), "idle");

    // No second queue gets the hosts.
    let mut other = queue.margay(&format!("up --hosts {},{}", name(2), name(3)));
    let output = run(other.env("XDG_STATE_HOME", queue.path("other")));
    assert!(!output.status.success());
    assert!(
        said(&output).contains("belongs to the queue"),
        "{}",
        said(&output)
    );

    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn hosts_that_go_come_back_and_a_killed_head_finds_their_jobs() {
    let Some(hosts) = Hosts::make(2) else { return };
    let queue = Queue::up(hosts);
    queue.ok(&format!("up --hosts {}", queue.hosts.names()));
    let cores = queue.slots_of_a_host();
    let keeps = queue.begin(&format!("-c {cores}"), "first");
    queue.until("the first job", || queue.lines("first").len() == 1);
    let again = queue.begin(&format!("-c {cores} --requeue"), "again");
    queue.until("the second job", || queue.lines("again").len() == 1);
    let lost = queue.begin(&format!("-c {cores}"), "lost");
    assert_eq!(queue.row(&lost)["state"], "waiting");

    // The head is killed: jobs go on, and the next head knows where.
    let said_up = queue.ok("up");
    let head = said_up.split("process ").nth(1).unwrap();
    let head: u32 = head.split(')').next().unwrap().parse().unwrap();
    send("KILL", head);
    queue.until("the end of the head", || {
        !run(&mut queue.margay("node")).status.success()
    });
    let up = queue.ok("up");
    assert!(up.contains("2 of 2 hosts, 2 running, 1 waiting"), "{up}");
    assert_eq!(
        (queue.state_of(1), queue.state_of(2)),
        ("full".into(), "full".into())
    );

    // A host goes: what ran there is lost, or runs again, as it asks.
    queue.hosts.switch_off(2);
    queue.until("the host's end", || queue.state_of(2) == "down");
    queue.until("the job's end", || queue.row(&again)["state"] == "waiting");
    assert_eq!(queue.row(&keeps)["state"], "running");
    queue.ok(&format!("cancel {keeps}"));
    queue.until("the job on another host", || {
        queue.lines("again").len() == 2
    });
    assert_eq!(
        queue.lines("again"),
        [queue.hosts.name(2), queue.hosts.name(1)]
    );

    // It comes back and gets jobs.
    queue.hosts.switch_on(2);
    queue.until("the last job", || queue.lines("lost").len() == 1);
    assert_eq!(queue.lines("lost"), [queue.hosts.name(2)]);
    queue.hosts.switch_off(2);
    queue.until("the loss", || queue.row(&lost)["state"] == "lost");
    let note = queue.row(&lost)["note"].as_str().unwrap().to_owned();
    assert!(note.contains(&queue.hosts.name(2)), "{note}");
    // When it comes back once more, what jobs had there is removed.
    queue.hosts.switch_on(2);
    queue.until("the host", || queue.state_of(2) == "idle");
    queue.ok("cancel --all");
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
    let left: Vec<PathBuf> = (fs::read_dir(queue.path("tmp")).unwrap().flatten())
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn partitions_have_hosts_of_the_queue() {
    let Some(hosts) = Hosts::make(3) else { return };
    let queue = Queue::up(hosts);
    let (a, b, c) = (
        queue.hosts.name(1),
        queue.hosts.name(2),
        queue.hosts.name(3),
    );
    let run_on = |line: &str| queue.program(line);
    let fails = |line: &str, why: &str| {
        let output = run(&mut run_on(line));
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(why),
            "{line}: {text}"
        );
    };
    let ok = |line: &str| {
        let output = run(&mut run_on(line));
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    fails(&format!("margay part mkpart -hosts {a} far"), "margay up");
    queue.ok(&format!("up --slots 2 --hosts {a}:4,{b},{c}"));
    fails(
        "margay part mkpart -hosts nowhere far",
        &format!("no host 'nowhere'; it has {a}, {b}, {c}"),
    );
    fails(
        &format!("margay part mkpart -hosts {b}:3 far"),
        "has 2 slots and not 3",
    );
    ok(&format!("margay part mkpart -sps -hosts {a},{b} far"));
    ok(&format!("margay part mkpart -ss -hosts {c},{b}:1 shared"));
    ok("margay part mkpart -sz 1 here");
    fails("margay part mkpart -sz 1 far.one", "which -hosts names");
    fails(
        &format!("margay part mkpart -hosts {c} far.one"),
        "has not all of these hosts",
    );
    ok(&format!("margay part mkpart -hosts {b} far.one"));
    fails("margay part pexec far true", "use mpiexec -pn");
    let shown = ok("margay part showpart far");
    assert!(shown.ends_with(&format!("{a}:4\n{b}:2\n")), "{shown}");

    // As many ranks as it has slots, or fewer, on its hosts.
    let ranks = |line: &str| -> Vec<String> {
        let printed = ok(line);
        let mut ranks: Vec<String> = printed.lines().map(str::to_owned).collect();
        ranks.sort_unstable();
        ranks
    };
    assert_eq!(ranks("mpiexec -pn far hostname"), [&*a, &a, &a, &a, &b, &b]);
    assert_eq!(ranks("mpiexec -pn far.one -n 1 hostname"), [&*b]);
    assert_eq!(ranks("poe hostname -rmpool shared"), [&*b, &c, &c]);
    assert_eq!(
        ranks("poe hostname -rmpool far -nodes 1 -tasks_per_node 3").len(),
        3
    );

    // One application at a time where that is wanted.
    let script = |own: &str, other: &str| {
        format!("touch {own}; while [ ! -e {other} ]; do sleep 0.05; done")
    };
    let start = |pn: &str, script: &str| {
        let mut command = run_on(&format!("mpiexec -pn {pn} -n 1 sh -c"));
        command.arg(script).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let mut first = start("far", &script("first", "go"));
    queue.until("the first one", || queue.path("first").exists());
    let listed = ok("margay part pspart");
    assert!(listed.contains(&format!("{a},{b}")), "{listed}");
    let second = start("far.one", "test -e go && touch second");
    let mut both =
        [("x", "y"), ("y", "x")].map(|(own, other)| start("shared", &script(own, other)));
    for job in &mut both {
        assert!(job.wait().unwrap().success());
    }
    // It says that it waits, after a second.
    std::thread::sleep(Duration::from_millis(1300));
    assert!(!queue.path("second").exists());
    fs::write(queue.path("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
    let output = second.wait_with_output().unwrap();
    let text = said(&output);
    assert!(
        output.status.success() && queue.path("second").exists(),
        "{text}"
    );
    assert!(
        text.contains("waits for nodes of the partition '.compute.far.one'"),
        "{text}"
    );
    ok("margay part rmpart -r far");
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// A launcher that ends with the test.
struct Gang(Child);

impl Gang {
    /// Its ranks say which processes they are, and run until there is a file `end`.
    fn start(queue: &Queue, options: &str, out: &str) -> Gang {
        let script = format!(
            "echo $$ $(hostname) >> {out}; setsid sh -c 'while [ ! -e end ]; do :; done' & \
             while [ ! -e end ]; do :; done; wait"
        );
        let mut words = Command::new(stage().join("bin/mpiexec"));
        take_defaults_in(&mut words);
        let program = queue.program("mpiexec");
        let environment = program.get_envs();
        let environment = environment.filter_map(|(name, value)| Some((name, value?)));
        words
            .args(options.split_whitespace())
            .args(["sh", "-c", &script])
            .envs(environment)
            .current_dir(queue.hosts.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Gang(words.spawn().unwrap())
    }

    fn output(self) -> Output {
        self.0.wait_with_output().unwrap()
    }
}

/// The states of processes and of those below them.
fn states(of: &[String]) -> String {
    let pids = of.iter().map(|line| {
        let pid = line.split(' ').next().unwrap();
        pid.parse::<u32>().unwrap()
    });
    let all = pids.flat_map(|pid| {
        let mut family = descendants_of(pid);
        family.push(pid);
        family
    });
    let facts = all.filter_map(ProcessFacts::of);
    facts.map(|facts| facts.state).collect()
}

#[test]
fn gangs_have_all_their_hosts_in_one_turn_or_none() {
    let Some(hosts) = Hosts::make(3) else { return };
    let queue = Queue::up(hosts);
    let (a, b, c) = (
        queue.hosts.name(1),
        queue.hosts.name(2),
        queue.hosts.name(3),
    );
    queue.ok(&format!("up --slots 2 --hosts {a},{b},{c}"));
    for line in [
        format!("mkpart -rq 300 -hosts {a}:1,{b}:1 left"),
        format!("mkpart -rq 10s -hosts {b}:1,{c}:1 right"),
    ] {
        let output = run(&mut queue.program(&format!("margay part {line}")));
        assert!(output.status.success(), "{line}: {}", said(&output));
    }
    let changed = run(&mut queue.program("margay part chpart -rq 200 right"));
    assert!(changed.status.success(), "{}", said(&changed));
    // Ranks that wait for each other in a message find nothing wrong when their turn comes.
    let built = Built::mpi("../../bench/peers/programs/gangs.c");
    let phases = [0, 1].map(|_| {
        let mut words = queue.program("mpiexec -pn left");
        words.arg(built.path()).args(["1000", "2"]);
        words.stdout(Stdio::piped()).stderr(Stdio::piped());
        words.spawn().unwrap()
    });
    for job in phases {
        let output = job.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        for rank in ["gap 0 ", "gap 1 "] {
            assert!(
                printed.lines().any(|line| line.starts_with(rank)),
                "{printed}"
            );
        }
    }
    // Two on the same hosts, and one that shares a host with them.
    let names = ["one", "two", "three"];
    let gangs = [("left", 0), ("left", 1), ("right", 2)]
        .map(|(partition, at)| Gang::start(&queue, &format!("-pn {partition}"), names[at]));
    let pids = gangs.each_ref().map(|gang| gang.0.id());
    let (mut looks, mut turns, mut last) = ([0; 3], [0; 3], None);
    queue.until("turns", || {
        let all = queue.applications();
        let own = |at: usize| all.iter().find(|(pid, _)| *pid == pids[at]);
        let active: Vec<usize> = (0..3)
            .filter(|&at| own(at).is_some_and(|(_, own)| own["active"] == true))
            .collect();
        assert!(active.len() <= 1, "all of them have {b}: {all:?}");
        if let [now] = active[..]
            && last != Some(now)
        {
            last = Some(now);
            turns[now] += 1;
        }
        for at in 0..3 {
            let Some((_, seen)) = own(at) else { continue };
            let ranks = queue.lines(names[at]);
            // One that is out is stopped on each host, with what has left its session.
            while seen["active"] == false
                && seen["ran_ms"].as_u64() > Some(0)
                && ranks.len() == 2
                && queue.applications().iter().any(|(_, now)| now == seen)
            {
                let states = states(&ranks);
                if states.len() == 4 && states.chars().all(|state| state == 'T') {
                    looks[at] += 1;
                    break;
                }
            }
        }
        turns.iter().all(|&turns| turns > 2) && looks.iter().all(|&looks| looks > 1)
    });
    let on: Vec<String> = (queue.lines("three").iter())
        .map(|line| line.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert!(on.contains(&b) && on.contains(&c), "{on:?}");

    // A launcher that is killed leaves nothing on any host, whether its turn was there or not; a
    // job whose keeper is killed goes on without turns.
    let [one, two, three] = gangs;
    send("KILL", two.0.id());
    let ranks = queue.lines("two");
    queue.until("the end of its ranks", || {
        states(&ranks).chars().all(|state| state == 'Z')
    });
    drop(two.output());
    let keeper = descendants_of(one.0.id()).into_iter().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "margay-part\n")
    });
    send("KILL", keeper.unwrap());
    queue.until("the other one's turn", || queue.applications().len() == 1);
    fs::write(queue.path("end"), "").unwrap();
    let (one, three) = (one.output(), three.output());
    assert!(one.status.success(), "{}", said(&one));
    assert!(
        said(&one).contains("takes no turns any more"),
        "{}",
        said(&one)
    );
    assert!(three.status.success(), "{}", said(&three));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn hosts_join_a_queue_that_is_up_and_leave_it() {
    let Some(hosts) = Hosts::make(4) else { return };
    let mut queue = Queue::up(hosts);
    // This machine belongs to no queue of several hosts.
    queue.on = Some(1);
    let queue = queue;
    let name = |host| queue.hosts.name(host);
    let is_listed = |host| queue.ok("node").contains(&queue.hosts.name(host));

    // A queue of one host gets others, also while a job runs.
    queue.ok("up --slots 1");
    let here = queue.begin("", "here");
    queue.until("the job here", || queue.lines("here").len() == 1);
    queue.refused(&format!("node remove {}", name(2)), "this host alone");
    queue.refused(&format!("node append {}", name(2)), "node add HOST");
    queue.refused(
        &format!("node add {}:0", name(2)),
        &format!("write: {}:4", name(2)),
    );
    // One that is of no use spoils none that comes later: this host is in the list already.
    queue.refused("node add localhost", "in the list already");
    assert!(!queue.ok("node").contains("STATE"), "of one host as before");
    queue.refused("submit -n 9 -- true", "add hosts (margay node add HOST)");
    let listed = queue.ok(&format!("node add {}:1 {}:2", name(2), name(3)));
    assert_eq!(listed.matches("idle").count(), 2, "{listed}");
    assert_eq!(listed.matches("full").count(), 1, "{listed}");
    queue.refused(&format!("node add {}", name(3)), "already");
    let first = queue.begin("", "first");
    queue.until("the first job", || queue.lines("first").len() == 1);
    let wide = queue.begin("-N 2 -n 2", "wide");
    assert_eq!(queue.row(&wide)["state"], "waiting");

    // One that leaves gets no job any more, and goes when its job has ended.
    assert_eq!(queue.lines("first"), [name(2)]);
    queue.ok(&format!("node remove {}", name(2)));
    assert_eq!(queue.state_of(2), "leaving");
    // Also after a head that was killed: its slots are in use.
    let next_head = || {
        let head = queue.ok("up");
        let head = head.split("process ").nth(1).unwrap();
        let head: u32 = head.split(')').next().unwrap().parse().unwrap();
        send("KILL", head);
        queue.until("the end of the head", || {
            !run(&mut queue.margay("node")).status.success()
        });
        queue.ok("up")
    };
    next_head();
    assert_eq!(queue.state_of(2), "leaving");
    assert_eq!(queue.row(&first)["state"], "running");
    queue.ok(&format!("cancel {first}"));
    queue.until("the host's leave", || !is_listed(2));
    // It belongs to nobody now.
    for line in [format!("up --hosts {}", name(2)), "down".into()] {
        let mut other = queue.margay(&line);
        other
            .env("XDG_STATE_HOME", queue.path("other"))
            .env("XDG_RUNTIME_DIR", queue.path("tmp"));
        // Its agent has a moment to go.
        queue.until("another queue's turn", || run(&mut other).status.success());
    }
    assert_eq!(queue.row(&wide)["state"], "waiting");

    // Two hosts come, and the head that comes after this one has them.
    queue.ok(&format!("node add {}:2 {}:2", name(4), name(2)));
    queue.until("the wide job", || queue.lines("wide").len() == 1);
    let up = next_head();
    assert!(up.contains("4 of 4 hosts, 2 running"), "{up}");

    // What runs on one that leaves now waits again.
    let own = (1..=4).find(|&host| queue.lines("wide") == [name(host)]);
    let own = own.unwrap();
    queue.ok(&format!("node remove --now {}", name(own)));
    queue.until("the host's leave", || !is_listed(own));
    queue.until("the job on others", || queue.lines("wide").len() == 2);
    assert_ne!(queue.lines("wide")[1], name(own));
    assert_eq!(queue.row(&wide)["runs"], 1);
    assert_eq!(queue.row(&here)["state"], "running");
    let rest: Vec<String> = (1..=4).filter(|host| *host != own).map(name).collect();
    queue.refused(&format!("node remove {}", rest.join(" ")), "no host");
    queue.ok("cancel --all");
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn hosts_that_come_into_an_allocation_come_into_the_queue() {
    let Some(hosts) = Hosts::make(3) else { return };
    let queue = Queue::up(hosts);
    let name = |host| queue.hosts.name(host);
    // Stand-ins for Slurm's commands: what the allocation has is in a file.
    fs::create_dir(queue.path("slurm")).unwrap();
    let reach = queue.path("reach");
    let list = queue.path("allocation");
    for (program, text) in [
        ("srun", format!("shift; exec {} \"$@\"", reach.display())),
        ("squeue", format!("cat {}", list.display())),
        ("scontrol", "echo \"$3\" | tr , '\\n'".into()),
    ] {
        let path = queue.path("slurm").join(program);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let says = |text: &str| fs::write(&list, text).unwrap();
    let has = |listed: &str| says(&format!("R {listed}\n"));
    let is_listed = |host| queue.ok("node").contains(&queue.hosts.name(host));
    has(&format!("{},{}", name(1), name(2)));
    let mut up = queue.margay(&format!("up --slots 1 --hosts {},{}", name(1), name(2)));
    let srun = format!("{}/srun --jobid=7", queue.path("slurm").display());
    let output = run(up.env("MARGAY_RSH", srun));
    assert!(output.status.success(), "{}", said(&output));
    let job = queue.begin("-N 2 -n 2", "first");
    queue.until("the first job", || queue.lines("first").len() == 1);
    let more = queue.begin("", "more");
    assert_eq!(queue.row(&more)["state"], "waiting");

    // A third host comes.
    has(&queue.hosts.names());
    queue.until("the job on the new host", || queue.lines("more").len() == 1);
    assert_eq!(queue.lines("more"), [name(3)]);

    // One that was removed stays away, and the allocation says nothing new of it.
    queue.ok(&format!("node remove --now {}", name(3)));
    queue.until("the host's leave", || !is_listed(3));
    assert_eq!(queue.row(&more)["state"], "waiting");

    // The second one leaves: the job that has both waits again, and the other gets the first.
    has(&format!("{},{}", name(1), name(3)));
    queue.until("the host's leave", || !is_listed(2));
    queue.until("the job on the first", || queue.lines("more").len() == 2);
    assert_eq!(queue.lines("more"), [name(3), name(1)]);
    assert_eq!(queue.row(&job)["state"], "waiting");

    // The allocation stops for a time, and is over: the queue ends with its hosts.
    says("S \n");
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(queue.row(&more)["state"], "running");
    says("");
    queue.until("the queue's end", || {
        let output = run(&mut queue.margay("queue"));
        !output.status.success() && said(&output).contains("margay up")
    });
    nothing_is_left(&queue.mark);
    queue.ok("up --slots 1");
    queue.until("the job of the next head", || {
        queue.lines("more").len() == 3
    });
    queue.ok("cancel --all");
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// Whatever supplies hosts: a command prints which there are.
#[test]
fn hosts_that_a_command_prints_join_and_leave() {
    let Some(hosts) = Hosts::make(3) else { return };
    let queue = Queue::up(hosts);
    let name = |host| queue.hosts.name(host);
    let list = queue.path("pods");
    let has = |listed: &str| fs::write(&list, listed).unwrap();
    let up = |listed: &str| {
        has(listed);
        let from = format!("cat {}", list.display());
        run(queue.margay("up --slots 1 --hosts-from").arg(from))
    };
    for (listed, why) in [("", "prints no host"), ("a b\n", "prints something else")] {
        let output = up(listed);
        assert!(!output.status.success(), "{listed:?}");
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    let output = up(&format!("{}\n{}:2\n", name(1), name(2)));
    assert!(output.status.success(), "{}", said(&output));
    // The third one comes, and a job has all of them.
    has(&format!("{}\n{}:2\n{}\n", name(1), name(2), name(3)));
    let is_there = |line: &str| line.contains(&name(3)) && line.contains(" idle ");
    queue.until("the third host", || queue.ok("node").lines().any(is_there));
    let job = queue.begin("-n 4", "all");
    queue.until("the job on all hosts", || queue.lines("all").len() == 1);
    // What cannot be read, or is none, changes nothing; neither does a command that fails.
    has("no host of this world: none\n");
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(queue.row(&job)["state"], "running");
    has(&format!("{}\n{}:2\n", name(1), name(2)));
    queue.until("the host's leave", || !queue.ok("node").contains(&name(3)));
    queue.until("the job to wait", || queue.row(&job)["state"] == "waiting");
    queue.ok("cancel --all");
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// Sends a signal to all processes of a host.
fn to_all_of(queue: &Queue, host: u32, signal: &str) {
    let pids = run(Command::new("ip").args(["netns", "pids", &queue.hosts.name(host)]));
    for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
        // One that has ended hears nothing.
        let _ = Command::new("kill").args(["-s", signal, pid]).output();
    }
}

#[test]
fn a_job_that_sees_the_loss_of_its_host_first_is_lost_and_one_that_fails_is_not() {
    let Some(hosts) = Hosts::make(2) else { return };
    let queue = Queue::up(hosts);
    let [a, b] = [1, 2].map(|host| queue.hosts.name(host));
    queue.ok(&format!("up --hosts {a}:1,{b}:2"));
    let mpiexec = stage().join("bin/mpiexec");
    let begin = |options: &str, out: &str| {
        let script = format!(
            "#!/bin/sh\n{} sh -c 'hostname >> {out}; exec sleep 600'\n",
            mpiexec.display()
        );
        fs::write(queue.path("both"), script).unwrap();
        let line = format!("submit --parsable -o log -N 2 -n 2 {options} both");
        let job = queue.ok(&line).trim().to_owned();
        queue.until("its ranks", || queue.lines(out).len() == 2);
        job
    };

    // Its connections break: the launcher of the job sees that at once.
    let lost = begin("", "lost");
    queue.hosts.switch_off(2);
    queue.until("the loss", || queue.row(&lost)["state"] != "running");
    let row = queue.row(&lost);
    assert_eq!(row["state"], "lost", "{row}");
    assert!(row["note"].as_str().unwrap().contains(&b), "{row}");
    queue.hosts.switch_on(2);
    queue.until("the host", || queue.state_of(2) == "idle");

    // It goes process by process, what the head talks to last: that may answer once more.
    let again = begin("--requeue", "piecewise");
    queue.hosts.cut_off(2);
    let name = queue.hosts.name(2);
    let line = format!("for p in $(ip netns pids {name} | tac); do kill -KILL $p; done");
    run(Command::new("sh").args(["-c", &line]));
    queue.until("the loss", || queue.row(&again)["state"] != "running");
    let row = queue.row(&again);
    assert_eq!(row["state"], "waiting", "{row}");
    queue.hosts.switch_on(2);
    queue.until("its ranks", || queue.lines("piecewise").len() == 4);
    queue.ok(&format!("cancel {again}"));
    run(&mut queue.margay(&format!("wait {again}")));

    // It says nothing any more: the launcher and the head see that at about the same time.
    let again = begin("--requeue", "again");
    queue.hosts.cut_off(2);
    to_all_of(&queue, 2, "STOP");
    queue.until("the loss", || queue.row(&again)["state"] != "running");
    assert_eq!(
        queue.row(&again)["state"],
        "waiting",
        "{}",
        queue.row(&again)
    );
    to_all_of(&queue, 2, "CONT");
    queue.hosts.switch_on(2);
    queue.until("its ranks", || queue.lines("again").len() == 4);
    queue.ok(&format!("cancel {again}"));
    run(&mut queue.margay(&format!("wait {again}")));

    // A host that is only suspected, as another job could not begin there, is no reason.
    let waits = "#!/bin/sh\nuntil [ -e fail ]; do sleep 0.05; done\nexit 3\n";
    fs::write(queue.path("fails"), waits).unwrap();
    let line = "submit --parsable -o log --requeue -N 2 -n 2 fails";
    let fails = queue.ok(line).trim().to_owned();
    queue.until("its begin", || queue.row(&fails)["state"] == "running");
    queue.hosts.cut_off(2);
    let other = queue.begin("-n 1", "other");
    queue.until("a doubt", || queue.state_of(2) == "down");
    fs::write(queue.path("fail"), "").unwrap();
    queue.until("its end", || queue.row(&fails)["state"] != "running");
    let row = queue.row(&fails);
    assert_eq!(
        (&row["state"], &row["exit_code"]),
        (&"failed".into(), &3.into()),
        "{row}"
    );
    queue.ok(&format!("cancel {other}"));
    queue.hosts.switch_on(2);
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}
