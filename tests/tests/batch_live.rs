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
    let program = stage().join("share/margay/compat/bin").join(words[0]);
    let mut command = queue.prepared(program);
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
    let top = said(&queue.margay(&["top", "--once", "--plain"]));
    assert!(
        top.contains("0 of 2 slots used") && top.contains(". ."),
        "{top}"
    );
    let api_id = PidFd::open(api.id()).unwrap();
    api_id.signal(15);
    assert!(api.wait().unwrap().success());
    assert!(!queue.path("state/margay/queue/api.sock").exists());
}
