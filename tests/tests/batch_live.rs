//! Jobs that somebody sits before, steps, and the queue's API.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_sys_os::terminal::{Pty, set_size};
use margay_tests::batch::{Queue, said};
use margay_tests::{run, stage};
use serde_json::Value;

#[test]
fn a_supervisor_has_one_job_after_the_other_and_none_is_left_behind() {
    let queue = Queue::up(1);
    let lines = "echo $PPID >> pids\n".repeat(3) + "echo $PPID >> pids; sleep 1000\n";
    queue.script("commands", &lines);
    queue.margay(&["submit", "--many", "commands", "-o", "/dev/null"]);
    while queue.line(&["squeue", "-h", "-j", "4", "-o", "%T"]) != "RUNNING" {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its end is that of this job alone.
    queue.ok(&["scancel", "4"]);
    queue.wait("4");
    let state = queue.line(&["sacct", "-X", "-n", "-P", "-j", "4", "-o", "State"]);
    assert!(state.starts_with("CANCELLED"), "{state}");
    let pids = queue.read("pids");
    let pids: Vec<&str> = pids.lines().collect();
    assert!(
        pids.len() >= 3 && pids.iter().all(|pid| *pid == pids[0]),
        "{pids:?}"
    );
    // One that has gone before it gets another job is no loss.
    if let Ok(supervisor) = PidFd::open(pids[0].parse().unwrap()) {
        supervisor.kill();
    }
    queue.ok(&["sbatch", "-W", "-o", "pid", "--wrap", "echo $PPID"]);
    let last = PidFd::open(queue.read("pid").trim().parse().unwrap());
    assert!(queue.margay(&["down"]).status.success());
    if let Ok(last) = last {
        assert!(last.has_ended());
    }
}

#[test]
fn steps_share_the_slots_of_their_job_and_know_their_tasks() {
    let queue = Queue::up(4);
    // Two at once have room; the third begins when one of them has ended.
    queue.script(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 2 -o steps.out\nstep() { srun -n 1 sh -c 'mkdir in.$SLURM_STEP_ID; set -- in.*; echo $#; \
         sleep 0.05; rmdir in.$SLURM_STEP_ID'; }\nstep & step & step & step &\nwait\nsrun -l echo task > labels\n\
         srun -n 3 true; echo code $?\nsrun -o f.%t sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'\nprintf '0 echo zero\\n1 echo one %%t\\n' > list\n\
         srun --multi-prog list\nsrun sh -c 'exit 6' 2> /dev/null; echo code $?\n",
    );
    queue.ok(&["sbatch", "-W", "steps.sh"]);
    let out = queue.read("steps.out");
    let mut lines: Vec<&str> = out.lines().collect();
    let counts: Vec<&str> = lines.drain(..4).collect();
    assert!(
        counts.iter().all(|count| ["1", "2"].contains(count)),
        "{out}"
    );
    assert!(
        lines[0].contains("More processors requested than permitted"),
        "{out}"
    );
    assert_eq!(lines[1], "code 1");
    lines[2..4].sort_unstable();
    assert_eq!(lines[2..], ["one 1", "zero", "code 6"], "{out}");
    assert_eq!(queue.read("f.1"), "1 of 2\n");
    let labels = queue.read("labels");
    assert!(
        labels.contains("[0] task") && labels.contains("[1] task"),
        "{labels}"
    );
}

#[test]
fn srun_and_salloc_wait_for_a_job_of_their_own() {
    let queue = Queue::up(2);
    queue.script("input", "from here\n");
    let mut srun = queue.prepared(stage().join("share/margay/compat/bin/srun"));
    srun.args(["-n", "1", "sh", "-c", "cat; echo to stderr >&2; exit 5"]);
    srun.stdin(fs::File::open(queue.path("input")).unwrap());
    let output = run(&mut srun);
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from here\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("to stderr\n"));
    let text = queue.ok(&["salloc", "-n", "2", "sh", "-c", "srun echo $SLURM_NTASKS"]);
    assert_eq!(text, "2\n2\n");
    queue.refused(
        &["salloc", "sh", "-c", "exit 4"],
        4,
        "Relinquishing job allocation",
    );
    // What runs in a job, or beside it, hears all signals.
    for command in ["srun", "salloc"] {
        let text = queue.ok(&[command, "grep", "SigBlk", "/proc/self/status"]);
        assert_eq!(text, "SigBlk:\t0000000000000000\n", "{command}");
    }
    // A job that is cancelled ends its command, and one that waits is not left behind.
    let block = queue.line(&[
        "sbatch",
        "--parsable",
        "--exclusive",
        "--wrap",
        "sleep 1000",
    ]);
    let queue = &queue;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.call(&["srun", "-J", "waiting", "true"]));
        while queue.ok(&["squeue", "-h", "-n", "waiting"]).is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        queue.ok(&["scancel", "-n", "waiting"]);
        let output = waiting.join().unwrap();
        assert!(
            said(&output).contains("has ended before it began"),
            "{}",
            said(&output)
        );
        queue.ok(&["scancel", &block]);
        for name in ["srun", "salloc"] {
            let running = scope.spawn(move || queue.call(&[name, "-J", name, "sleep", "1000"]));
            while queue
                .ok(&["squeue", "-h", "-n", name, "-t", "R"])
                .is_empty()
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            queue.ok(&["scancel", "-n", name]);
            let output = running.join().unwrap();
            assert!(!output.status.success(), "{}", said(&output));
        }
    });
    queue.margay(&["wait", "--all"]);
    assert_eq!(
        fs::read_dir(queue.path("run")).unwrap().count(),
        1,
        "a socket is left"
    );
    queue.refused(&["srun", "-n", "9", "true"], 1, "the machine has 2");
    queue.refused(&["srun", "--pty", "sh"], 1, "no terminal");
    queue.refused(&["qsub", "-I"], 1, "must be a terminal");
}

/// Types words at a command that has a terminal, each when what stands before it has appeared;
/// returns all that appeared.
fn typed(queue: &Queue, words: &[&str], lines: &[(&str, &str)]) -> String {
    let folder = match words[0] {
        "margay" => "bin",
        _ => "share/margay/compat/bin",
    };
    let mut command = queue.prepared(stage().join(folder).join(words[0]));
    command
        .args(&words[1..])
        .env("SHELL", "/bin/sh")
        .env("PS1", "> ")
        .env("ENV", "");
    let pty = Pty::open().unwrap();
    let (mut child, mut master) = pty.spawn(&mut command).unwrap();
    set_size(std::os::fd::AsFd::as_fd(&master), 33, 101);
    let mut seen = String::new();
    let mut part = [0; 4096];
    let mut lines = lines.iter();
    let mut next = lines.next();
    loop {
        if let Some((expected, typed)) = next
            && seen.contains(expected)
        {
            master.write_all(typed.as_bytes()).unwrap();
            next = lines.next();
            continue;
        }
        // The end of a terminal's output is an error.
        match master.read(&mut part) {
            Ok(count) if count > 0 => seen += &String::from_utf8_lossy(&part[..count]),
            _ => break,
        }
    }
    let status = child.wait().unwrap();
    assert!(next.is_none(), "{seen}");
    format!("{seen}code {:?}", status.code())
}

#[test]
fn a_terminal_in_a_job_is_one() {
    let queue = Queue::up(2);
    let seen = typed(
        &queue,
        &["srun", "--pty", "sh"],
        &[
            ("> ", "stty size; echo $SLURM_JOB_ID-\n"),
            (
                "1-",
                // Without a command: an interrupt that comes when one has just ended, and the
                // shell has not taken the terminal back, goes to nobody.
                "trap 'echo interrup''ted; done=1' INT; echo rea''dy; until [ \"$done\" ]; do :; done\n",
            ),
            ("ready", "\x03"),
            ("interrupted", "exit 4\n"),
        ],
    );
    assert!(
        seen.contains("33 101") && seen.ends_with("code Some(4)"),
        "{seen}"
    );
    let seen = typed(
        &queue,
        &["qsub", "-I"],
        &[
            // The prompt is the login shell's, which a user's profile decides.
            ("ready", "echo $PBS_ENVIRONMENT.\n"),
            ("PBS_INTERACTIVE.", "exit\n"),
        ],
    );
    assert!(
        seen.contains("ready") && seen.contains("completed"),
        "{seen}"
    );
    let seen = typed(
        &queue,
        &["salloc"],
        &[("> ", "echo $SLURM_JOB_ID.\n"), ("3.", "exit 5\n")],
    );
    assert!(
        seen.contains("Granted job allocation 3") && seen.ends_with("code Some(5)"),
        "{seen}"
    );
}

/// Asks the API over its socket; returns the status and the body.
fn asked(queue: &Queue, method: &str, path: &str, body: &str) -> (u16, Value) {
    let socket = queue.path("state/margay/queue/api.sock");
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())),
    )
}

/// The paths that the description has are there, and a job has the fields that it says.
fn described(queue: &Queue) {
    let all = asked(queue, "GET", "/openapi.json", "").1;
    let mut count = 0;
    for (path, methods) in all["paths"].as_object().unwrap() {
        // It does not end.
        if path == "/v1/events" {
            continue;
        }
        let path = path.replace("{job}", "1");
        for method in methods.as_object().unwrap().keys() {
            if method != "parameters" {
                let (status, answer) = asked(queue, &method.to_uppercase(), &path, "");
                assert_ne!(status, 404, "{method} {path}: {answer}");
                count += 1;
            }
        }
    }
    assert!(count >= 13, "{count}");
    let names = |value: &Value| -> Vec<String> {
        let names = value.as_object().unwrap_or_else(|| panic!("{value}"));
        let mut names: Vec<String> = names.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    let job = asked(queue, "GET", "/v1/jobs/1", "").1;
    let said = names(&all["components"]["schemas"]["Job"]["properties"]);
    assert_eq!(names(&job), said);
}

/// The view shows each job in its slots while it runs, follows what happens, and ends by a key.
#[test]
fn a_view_of_the_machine_is_live() {
    let queue = Queue::up(2);
    let once = || said(&queue.margay(&["top", "--once", "--plain"]));
    assert!(once().contains("0 of 2 slots used, 0 jobs run, 0 wait\n"));
    queue.margay(&["set", "queue", "night", "priority=-5"]);
    let line = "until test -e go; do sleep 0.01; done";
    for words in [["-J", "wide", "-n", "2"], ["-J", "next", "-p", "night"]] {
        let job = [
            &["submit", "-o", "/dev/null"],
            &words[..],
            &["--", "sh", "-c", line],
        ];
        let output = queue.margay(&job.concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    let has = |text: &str, line: &str| {
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        text.lines().any(|own| words(own).starts_with(&words(line)))
    };
    loop {
        let text = once();
        if has(&text, "A 1 wide") {
            assert!(
                text.contains("2 of 2 slots used, 1 jobs run, 1 wait\n"),
                "{text}"
            );
            assert!(
                has(&text, "QUEUE SLOTS USED") && has(&text, "night 2 0 0 1"),
                "{text}"
            );
            // Two slots, and its line.
            let letters = text.split_whitespace().filter(|word| *word == "A");
            assert_eq!(letters.count(), 3, "{text}");
            break;
        }
    }
    // On a terminal, until q.
    let seen = typed(
        &queue,
        &["margay", "top", "-i", "0.1"],
        &[("wide", ""), ("next", "q")],
    );
    assert!(
        seen.contains("\x1b[?1049h") && seen.contains("\x1b[?1049l"),
        "{seen}"
    );
    queue.script("go", "");
    queue.margay(&["wait", "--all"]);
    assert!(once().contains("0 of 2 slots used, 0 jobs run, 0 wait\n"));
}

#[test]
fn the_api_serves_jobs_events_and_metrics() {
    let queue = Queue::up(2);
    let mut api = queue.prepared(stage().join("bin/margay-queue"));
    api.args(["api", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped());
    let mut api = api.spawn().unwrap();
    let mut lines = BufReader::new(api.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let address = lines.next().unwrap().unwrap();
    let address = address
        .split("http://")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let ask = |method: &str, path: &str, body: &str| asked(&queue, method, path, body);
    let (status, job) = ask(
        "POST",
        "/v1/jobs",
        r#"{"command": ["sh", "-c", "exit 3"], "options": ["-J", "a"]}"#,
    );
    assert_eq!((status, &job["id"]), (201, &Value::from(1)));
    let (_, rows) = ask("GET", "/v1/jobs/1/wait", "");
    assert_eq!(
        (&rows[0]["state"], &rows[0]["exit_code"]),
        (&Value::from("failed"), &Value::from(3))
    );
    let held = r##"{"script": "#!/bin/sh\n", "options": ["-H"]}"##;
    assert_eq!(ask("POST", "/v1/jobs", held).0, 201);
    assert_eq!(ask("PATCH", "/v1/jobs/2", r#"{"limit_s": 60}"#).0, 200);
    assert_eq!(ask("GET", "/v1/jobs/2", "").1["limit_s"], 60);
    let text = ask("GET", "/metrics", "").1;
    assert!(
        text.as_str().unwrap().contains("slurm_queue_pending 1\n"),
        "{text}"
    );
    assert_eq!(ask("GET", "/openapi.json", "").1["openapi"], "3.1.0");
    described(&queue);
    assert_eq!(ask("GET", "/v1/jobs/99", "").0, 404);
    assert_eq!(ask("POST", "/v1/jobs", "{").0, 400);
    assert_eq!(ask("GET", "/nothing", "").0, 404);
    // Over the network only with the token.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(b"GET /v1/machine HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 401"), "{text}");
    let client = "import sys; sys.path.insert(0, sys.argv[1])\nfrom queue_client import Queue, QueueError\n\
        q = Queue('http://' + sys.argv[2], token=open('state/margay/queue/api.token').read().strip())\n\
        e = q.events(); assert next(e)['id'] == 2\nj = q.submit(command=['true'], options=['-n', 1])\n\
        assert q.wait(j)[0]['state'] == 'done'\nassert any(v['id'] == j and v['state'] == 'done' for v in e)\n\
        assert q.machine()['slots'] == 2 and 'release' in q.explain(2)\nq.release(2); q.wait(2)\n\
        try: q.cancel(99); sys.exit(1)\nexcept QueueError as error: assert error.status == 404\n";
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../abi/python/queue.py");
    fs::copy(source, queue.path("queue_client.py")).unwrap();
    let mut python = queue.prepared("python3".into());
    let output = run(python.args(["-c", client, ".", &address]));
    assert!(output.status.success(), "{}", said(&output));
    // One who asks for events and reads none of them keeps nobody else waiting.
    let mut slow = UnixStream::connect(queue.path("state/margay/queue/api.sock")).unwrap();
    slow.write_all(b"GET /v1/events HTTP/1.1\r\n\r\n").unwrap();
    let array = r#"{"command": ["true"], "options": ["-H", "-a", "1-5000"]}"#;
    let (status, many) = ask("POST", "/v1/jobs", array);
    assert_eq!(status, 201, "{many}");
    let rows = ask("GET", "/v1/jobs", "").1;
    assert_eq!(rows.as_array().unwrap().len(), 5000);
    let path = format!("/v1/jobs/{}", many["id"]);
    assert_eq!(ask("DELETE", &path, "").0, 200);
    drop(slow);
    // More than is read of a body is refused before it comes.
    let mut long = UnixStream::connect(queue.path("state/margay/queue/api.sock")).unwrap();
    long.write_all(b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    long.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    let api_id = PidFd::open(api.id()).unwrap();
    api_id.signal(15);
    assert!(api.wait().unwrap().success());
    assert!(!queue.path("state/margay/queue/api.sock").exists());
}
