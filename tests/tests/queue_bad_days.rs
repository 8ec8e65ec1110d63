//! Bad days of a queue of four hosts: a clear answer, nothing lost, nothing left behind. Hosts that
//! are away, heads at once and users without rights are in `queue_hosts`, `queue_heads` and
//! `queue_system_hosts`.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{nothing_is_left, send};
use margay_tests::queue_hosts::Queue;
use margay_tests::{command, run};

fn up() -> Option<Queue> {
    let queue = Queue::up(Hosts::make(4)?);
    let up = queue.ok(&format!("up --slots 2 --hosts {}", queue.hosts.names()));
    assert!(up.contains("8 slots on 4 of 4 hosts"), "{up}");
    Some(queue)
}

fn refused(queue: &Queue, words: &[&str], why: &str) {
    let output = run(queue.margay("").args(words));
    let text = said(&output);
    assert!(!output.status.success(), "{words:?} succeeded: {text}");
    assert!(text.contains(why), "{words:?}: {text}");
}

/// Each host runs a job, and no slot is in use when these have ended.
fn all_is_well(queue: &Queue) {
    let (output, printed) = queue.job("-N 4 -n 4", "sort -u $PBS_NODEFILE");
    assert!(output.status.success(), "{}", said(&output));
    let names: Vec<String> = (1..=4).map(|host| queue.hosts.name(host)).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), names);
    assert_eq!(queue.ok("node").matches(" idle").count(), 4);
}

#[test]
fn what_cannot_be_is_refused_and_what_is_hostile_harms_nobody() {
    let Some(queue) = up() else { return };
    let second = run(&mut queue.program("margay-queue serve"));
    assert!(said(&second).contains("another head"), "{}", said(&second));
    fs::write(queue.path("missing"), "#!/bin/sh\n#PBS -q nowhere\ntrue\n").unwrap();
    refused(&queue, &["submit", "missing"], "nowhere");
    for (words, why) in [
        ("-n 9", "the machine has 8"),
        ("-N 9", "the machine has 8"),
        ("-c 3", "of one host"),
        ("-D /no/such", "/no/such"),
        ("-o /no/such/out", "/no/such/out"),
        ("-o /no\u{1b}[2J/x", "/no?[2J/x"),
        ("-J a\u{7}b", "control characters"),
    ] {
        let words = words.split(' ');
        let words: Vec<&str> = ["submit", "--wait"].into_iter().chain(words).collect();
        refused(&queue, &[&words[..], &["--", "true"]].concat(), why);
    }
    // A name cannot lead out of the folder, nor is it read by a shell there.
    let name = "../../x $(touch y) 'z";
    let words = ["-o", "%x.out", "--", "sh", "-c", "echo ${#LONG}"];
    let mut submit = queue.margay("submit --wait -N 4");
    submit.args(["-J", name]).args(words);
    // 64 KiB of environment arrive there as they are.
    let output = run(submit.env("LONG", "y".repeat(64 << 10)));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        queue.lines(&format!("{}.out", name.replace('/', "_"))),
        ["65536"]
    );
    assert!(!queue.path("y").exists());

    // What leaves its session and does not listen ends with its job, there as well.
    let script = "#!/bin/sh\nsetsid sh -c 'trap \"\" TERM; echo $$ > away; while :; do sleep 1; done' &\nsleep 600\n";
    fs::write(queue.path("forks"), script).unwrap();
    refused(
        &queue,
        &["submit", "--wait", "-t", "1s", "-o", "log", "forks"],
        "time limit",
    );
    let away: u32 = queue.lines("away")[0].parse().unwrap();
    assert!(PidFd::open(away).is_err(), "{away} lives");

    // Tasks of an array on all hosts, and one of 50,000.
    fs::write(queue.path("task"), "#!/bin/sh\nhostname >> tasks\n").unwrap();
    queue.ok("submit --wait -o log -a 1-100 task");
    let mut hosts = queue.lines("tasks");
    assert_eq!(hosts.len(), 100);
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts.len(), 4);
    queue.ok("submit --hold -a 0-49999 -- true");
    all_is_well(&queue);
    queue.ok("cancel --all");
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn large_requests_and_slow_readers_keep_nobody_waiting() {
    let Some(queue) = up() else { return };
    let address = fs::read_to_string(queue.path("state/margay/queue/address")).unwrap();
    let mut large = UnixStream::connect(address.trim_end()).unwrap();
    let part = vec![b'x'; 1 << 20];
    let written = (0..100)
        .take_while(|_| large.write_all(&part).is_ok())
        .count();
    let mut answer = String::new();
    let _ = large.read_to_string(&mut answer);
    assert!(
        written < 100 && answer.contains("larger than 64 MiB"),
        "{written}: {answer}"
    );

    let mut api = queue.program("margay-queue api --listen 127.0.0.1:0");
    let mut api = api.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(api.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let socket = queue.path("state/margay/queue/api.sock");
    let slow: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut slow = UnixStream::connect(&socket).unwrap();
            slow.write_all(b"GET /v1/events HTTP/1.1\r\n\r\n").unwrap();
            slow
        })
        .collect();
    queue.ok("submit --hold -a 1-5000 -- true");
    all_is_well(&queue);
    drop(slow);
    queue.ok("cancel --all");
    PidFd::open(api.id()).unwrap().signal(15);
    assert!(api.wait().unwrap().success());
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn jobs_outlive_the_agent_of_their_host() {
    let Some(queue) = up() else { return };
    let script = "#!/bin/sh\nhostname >> begun\nwhile [ ! -e go ]; do sleep 0.05; done\nexit 4\n";
    fs::write(queue.path("stays"), script).unwrap();
    let jobs = [(); 4].map(|()| queue.ok("submit --parsable -c 2 -o log stays"));
    queue.until("the jobs", || queue.lines("begun").len() == 4);
    let third = queue.hosts.name(3);
    let agent = || {
        let pids = run(command("ip", 10).args(["netns", "pids", &third]));
        let pids = String::from_utf8(pids.stdout).unwrap();
        let mut pids = pids.lines().map(|pid| pid.trim().parse::<u32>().unwrap());
        pids.find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(b"margay-queue\0agent\0")
        })
    };
    let old = agent().unwrap();
    send("KILL", old);
    queue.until("another agent", || agent().is_some_and(|new| new != old));
    queue.until("the host", || queue.state_of(3) == "full");
    fs::write(queue.path("go"), "").unwrap();
    for job in &jobs {
        let output = run(&mut queue.margay(&format!("wait {job}")));
        assert!(said(&output).contains("exit code 4"), "{}", said(&output));
    }
    assert_eq!(queue.lines("begun").len(), 4);
    all_is_well(&queue);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// A queue whose head's state is on a small disk of its own: also who holds that, and where it is.
fn on_small_disk(hosts: Hosts) -> (Queue, Child, String) {
    let script = "mkdir state && mount -t tmpfs -o size=768k none state && echo ready && exec cat";
    let mut holder = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script])
        .current_dir(hosts.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    holder
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let mut queue = Queue::up(hosts);
    queue.within = Some(holder.id());
    let state = format!(
        "/proc/{}/root{}",
        holder.id(),
        queue.path("state").display()
    );
    (queue, holder, state)
}

/// A file that takes all the room of a small disk.
fn filled(state: &str) -> String {
    let fill = format!("{state}/fill");
    let mut file = fs::File::create(&fill).unwrap();
    while file.write_all(&[0; 1024]).is_ok() {}
    fill
}

#[test]
fn a_job_whose_turn_comes_on_a_full_disk_begins_when_there_is_room() {
    let Some(hosts) = Hosts::make(1) else { return };
    let (queue, mut holder, state) = on_small_disk(hosts);
    queue.ok("up --slots 2");
    let script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n";
    fs::write(queue.path("first"), script).unwrap();
    fs::write(queue.path("second"), "#!/bin/sh\ntouch begun\nexit 4\n").unwrap();
    let first = queue.ok("submit --parsable -o log first");
    queue.until("the first job", || queue.ok("queue").contains("running"));
    let second = queue.ok(&format!(
        "submit --parsable -o log -d afterany:{first} second"
    ));
    let third = queue.begin("", "third");
    let fill = filled(&state);
    // What fills it can be ended; what waits stays, as that cannot be stored.
    queue.ok(&format!("cancel {third}"));
    queue.until("the end of the third", || {
        queue.ok(&format!("queue {third}")).contains("has ended: ")
    });
    queue.refused(&format!("cancel {second}"), "make room on the disk");
    fs::write(queue.path("go"), "").unwrap();
    // For longer than five attempts take, after which a job counts as one that cannot begin.
    std::thread::sleep(Duration::from_secs(9));
    assert!(!queue.path("begun").exists());
    let why = "make room on the disk";
    for said in ["queue", &format!("explain {second}")].map(|words| queue.ok(words)) {
        assert!(said.contains(why), "{said}");
    }
    fs::remove_file(&fill).unwrap();
    let output = run(&mut queue.margay(&format!("wait {second}")));
    assert!(said(&output).contains("exit code 4"), "{}", said(&output));
    assert!(queue.path("begun").exists());
    queue.ok("down");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    nothing_is_left(&queue.mark);
}

#[test]
fn a_full_disk_of_the_head_loses_no_job_of_other_hosts() {
    let Some(hosts) = Hosts::make(4) else { return };
    let (queue, mut holder, state) = on_small_disk(hosts);
    queue.ok(&format!("up --slots 2 --hosts {}", queue.hosts.names()));
    let script = "#!/bin/sh\nhostname >> begun\nwhile [ ! -e go ]; do sleep 0.05; done\nhostname >> ended\nexit 4\n";
    fs::write(queue.path("stays"), script).unwrap();
    let jobs = [(); 4].map(|()| queue.ok("submit --parsable -c 2 -o log stays"));
    queue.until("the jobs", || queue.lines("begun").len() == 4);
    let fill = filled(&state);
    // Some are still accepted: the store has room of its own.
    let refusal = (0..50).find_map(|_| {
        let output = run(&mut queue.margay("submit --hold -- true"));
        (!output.status.success()).then(|| said(&output))
    });
    let text = refusal.unwrap();
    assert!(
        text.contains("not accepted") && text.contains("make room"),
        "{text}"
    );
    let running = queue.ok("queue");
    assert_eq!(running.matches("running").count(), 4, "{running}");
    // They end while it is full.
    fs::write(queue.path("go"), "").unwrap();
    queue.until("their last lines", || queue.lines("ended").len() == 4);
    fs::remove_file(&fill).unwrap();
    for job in &jobs {
        let output = run(&mut queue.margay(&format!("wait {job}")));
        assert!(said(&output).contains("exit code 4"), "{}", said(&output));
    }
    queue.ok("cancel --all");
    all_is_well(&queue);
    queue.ok("down");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    nothing_is_left(&queue.mark);
}

/// What ran there alone runs again elsewhere, once; the others notice nothing; the host is taken
/// again when it is back.
#[test]
fn a_host_may_be_away_for_a_minute() {
    let Some(queue) = up() else { return };
    let away = queue.hosts.name(4);
    let script =
        "#!/bin/sh\nhostname >> $1\nuntil test -e go; do sleep 0.1; done\nhostname >> $1\n";
    fs::write(queue.path("stays"), script).unwrap();
    // Each fills a host; the last one has that which goes away.
    let submit = |name: &str| {
        queue.ok(&format!(
            "submit --parsable --requeue -n 2 -o log stays {name}"
        ))
    };
    let jobs = ["one", "two", "three", "four"].map(submit);
    for name in ["one", "two", "three", "four"] {
        queue.until("the jobs", || queue.lines(name).len() == 1);
    }
    assert_eq!(queue.lines("four"), std::slice::from_ref(&away));
    queue.hosts.switch_off(4);
    let gone = Instant::now();
    queue.until("its state", || queue.state_of(4) == "down");
    queue.until("the wait for room", || {
        queue.row(jobs[3].trim())["state"] == "waiting"
    });
    while gone.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_secs(1));
        let table = queue.ok("queue");
        assert_eq!(table.matches("running").count(), 3, "{table}");
        assert_eq!(queue.state_of(4), "down");
    }
    queue.hosts.switch_on(4);
    queue.until("the second run", || queue.lines("four").len() == 2);
    assert_eq!(queue.lines("four"), [away.clone(), away]);
    fs::write(queue.path("go"), "").unwrap();
    for job in &jobs {
        queue.ok(&format!("wait {job}"));
    }
    for (name, lines) in [("one", 2), ("two", 2), ("three", 2), ("four", 3)] {
        assert_eq!(queue.lines(name).len(), lines, "{name}");
    }
    queue.ok("down");
    nothing_is_left(&queue.mark);
}
