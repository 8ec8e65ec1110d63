//! Signals are passed on; terminals: interrupt, suspend, hang-up.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use common::*;
use margay_sys_os::terminal::Pty;

fn ready(options: &str, script: &str) -> Running {
    let mut running = Running::start(&mut shell(options, script));
    running.until("ready\nready\n");
    running
}

#[test]
fn user_signals_reach_every_rank() {
    let script = "trap 'echo got usr1' USR1; trap 'echo got usr2; exit 0' USR2; echo ready; \
                  while :; do sleep 0.05; done";
    let mut running = ready("-n 2", script);
    send("USR1", running.pid());
    running.until("got usr1\ngot usr1\n");
    send("USR2", running.pid());
    let done = running.end();
    assert_eq!(done.code(), 0, "{}", done.err);
    assert_eq!(done.out.matches("got usr2").count(), 2);
}

#[test]
fn the_ranks_of_a_job_share_a_session_of_their_own() {
    let session =
        "read -r pid name state parent group session rest < /proc/self/stat; echo $session";
    let done = Running::start(&mut shell("-n 2", session)).end();
    assert_eq!(done.code(), 0, "{}", done.err);
    let [first, second] = done.out.lines().collect::<Vec<_>>()[..] else {
        panic!("one line of each rank: {}", done.out);
    };
    assert_eq!(first, second);
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    assert_ne!(fields.split(' ').nth(3), Some(first));
}

#[test]
fn an_interrupt_ends_the_job_quietly() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let running = ready("-n 2", "echo ready; exec sleep 100");
        let mark = running.mark();
        send(signal, running.pid());
        let done = running.end();
        assert_eq!((done.code(), done.err.as_str()), (code, ""), "{signal}");
        assert!(done.took < PROMPT);
        assert_nothing_left(&mark);
    }
}

#[test]
fn ranks_may_end_well_after_a_signal() {
    let script =
        "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let running = ready("-n 2", script);
    send("TERM", running.pid());
    let done = running.end();
    assert_eq!(done.code(), 0);
    // The shell tells that its `sleep` was ended; the launcher says nothing.
    assert!(!done.err.contains("margay"), "{}", done.err);
    assert_eq!(done.out, "ready\nready\nsaved\nsaved\n");
}

#[test]
fn the_same_signal_to_process_and_group_counts_once() {
    // timeout(1) signals the launcher and then its whole group.
    let script = "trap 'sleep 0.4; echo saved; exit 0' TERM; while :; do sleep 0.05; done";
    let mut command = fresh("timeout");
    command.args(["0.5", margay(), "run", "-n", "2", "sh", "-c", script]);
    let done = run(&mut command);
    assert_eq!(done.out, "saved\nsaved\n", "{}", done.err);
}

#[test]
fn ranks_that_ignore_the_signal_are_killed_after_the_grace_time() {
    let running = ready(
        "-n 2",
        "trap '' INT; echo ready; while :; do sleep 0.05; done",
    );
    let mark = running.mark();
    send("INT", running.pid());
    let done = running.end();
    assert_eq!(done.code(), 130, "{}", done.err);
    assert!(done.took > Duration::from_secs(2) && done.took < PROMPT);
    assert_nothing_left(&mark);
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let running = ready(
        "-n 2",
        "trap '' INT; echo ready; while :; do sleep 0.05; done",
    );
    send("INT", running.pid());
    std::thread::sleep(Duration::from_millis(300));
    send("INT", running.pid());
    let done = running.end();
    assert_eq!(done.code(), 130);
    assert!(done.took < Duration::from_secs(3), "{:?}", done.took);
}

#[test]
fn ignored_signals_stay_ignored() {
    let script = format!(
        "trap '' HUP; exec {} run -n 2 sh -c 'echo ready; sleep 0.5; echo end'",
        margay()
    );
    let mut command = fresh("sh");
    command
        .args(["-c", &script])
        .env(MARK, format!("nohup-{}", std::process::id()));
    let mut running = Running::start(&mut command);
    running.until("ready\nready\n");
    send("HUP", running.pid());
    let done = running.end();
    assert_eq!(
        (done.code(), done.out.as_str()),
        (0, "ready\nready\nend\nend\n")
    );
}

#[test]
fn who_ignores_its_children_gets_their_status_all_the_same() {
    let script = format!(
        "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
         os.execv('{0}', ['{0}', 'run', '-n', '2', 'sh', '-c', 'exit 6'])",
        margay()
    );
    let done = run(fresh("python3").args(["-c", &script]));
    assert_eq!(done.code(), 6, "{}", done.err);
}

#[test]
fn output_that_nobody_takes_does_not_hold_up_the_end() {
    let mut running = Running::start(&mut shell("-n 2", "exec yes"));
    running.until("y\n");
    let mark = running.mark();
    std::thread::sleep(Duration::from_millis(300));
    send("TERM", running.pid());
    let start = Instant::now();
    // `running` keeps the pipe open and does not read it.
    assert_eq!(wait(&mut running.child).code(), Some(143));
    assert!(start.elapsed() < PROMPT);
    assert_nothing_left(&mark);
}

/// A launcher on a pseudo-terminal.
struct Terminal {
    child: Child,
    master: File,
    seen: String,
    mark: String,
}

impl Terminal {
    /// Starts a shell script as the leader of the terminal's session.
    fn start(script: &str) -> Terminal {
        let mark = format!("pty-{}-{:?}", std::process::id(), Instant::now());
        let mut command = fresh("bash");
        command.args(["-c", script]).env(MARK, &mark);
        let (child, master) = Pty::open().unwrap().spawn(&mut command).unwrap();
        Terminal {
            child,
            master,
            seen: String::new(),
            mark,
        }
    }

    fn launcher(options: &str, script: &str) -> Terminal {
        Terminal::start(&format!("exec {} run {options} sh -c '{script}'", margay()))
    }

    fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let n = self.master.read(&mut buffer).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn a_terminal_serves_rank_0() {
    let script =
        "[ $MARGAY_RANK = 1 ] && exit; printf \"name? \"; read n; echo hello $n; cat; echo end";
    let mut t = Terminal::launcher("-n 2", script);
    t.until("name? ");
    t.type_in("margay\n");
    t.until("hello margay");
    t.type_in("more\n");
    t.until("more\r\nmore");
    t.type_in("\x04");
    t.until("end");
    assert_eq!(wait(&mut t.child).code(), Some(0));
}

#[test]
fn the_interrupt_key_reaches_the_ranks_once() {
    let script = "trap \"echo got; exit 0\" INT; echo ready; while :; do sleep 0.05; done";
    let mut t = Terminal::launcher("-n 2", script);
    t.until("ready\r\nready");
    t.type_in("\x03");
    t.until("got\r\ngot");
    assert_eq!(wait(&mut t.child).code(), Some(0));
    assert_nothing_left(&t.mark);
}

#[test]
fn a_terminal_that_hangs_up_ends_the_job() {
    let mut t = Terminal::launcher(
        "-n 2",
        "trap \"\" HUP; echo ready; while :; do sleep 0.1; done",
    );
    t.until("ready\r\nready");
    let start = Instant::now();
    let Terminal {
        mut child,
        master,
        mark,
        ..
    } = t;
    drop(master);
    let status = wait(&mut child);
    assert_eq!(status.code(), Some(129));
    assert!(start.elapsed() < PROMPT);
    assert_nothing_left(&mark);
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

#[test]
fn the_suspend_key_stops_the_ranks_and_fg_goes_on() {
    // Job control needs a shell that has it.
    let script = format!(
        "set -m; {} run -n 2 sh -c 'echo pid $$; while :; do sleep 0.05; done'; echo stopped; read line; fg",
        margay()
    );
    let mut t = Terminal::start(&script);
    t.until("pid ");
    t.until("\r\npid ");
    std::thread::sleep(Duration::from_millis(50));
    let ranks: Vec<u32> = t
        .seen
        .split("pid ")
        .skip(1)
        .filter_map(|s| s.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(ranks.len(), 2, "{}", t.seen);
    t.type_in("\x1a");
    t.until("stopped");
    let all = |wanted: &[char]| {
        ranks
            .iter()
            .all(|&p| state(p).is_some_and(|s| wanted.contains(&s)))
    };
    let reached = |wanted: &[char]| {
        let end = Instant::now() + PROMPT;
        while !all(wanted) {
            assert!(
                Instant::now() < end,
                "{:?}",
                ranks.iter().map(|&p| state(p)).collect::<Vec<_>>()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // D: the shell waits for a child that was stopped between vfork and exec.
    reached(&['T', 'D']);
    t.type_in("\n");
    reached(&['S', 'R']);
    t.type_in("\x03");
    wait(&mut t.child);
    assert_nothing_left(&t.mark);
}

#[test]
fn a_background_job_leaves_the_terminals_input_alone() {
    let script = format!(
        "set -m; {} run -n 2 sh -c 'sleep 0.3; echo done' & read line; echo got $line; wait; echo over",
        margay()
    );
    let mut t = Terminal::start(&script);
    t.type_in("text\n");
    t.until("got text");
    t.until("done\r\ndone");
    t.until("over");
    assert_eq!(wait(&mut t.child).code(), Some(0));
}
