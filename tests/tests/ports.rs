//! Ports that any process of the machine attacks, while proper ones connect.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use margay_tests::jobs::{Built, Words, mark, nothing_is_left};
use margay_tests::{command, scratch, unprivileged};

/// Connections of one attacker.
const CALLS: &str = "500";

/// A process whose lines are read one by one.
struct Talker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Talker {
    fn start(command: &mut Command) -> Talker {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Talker { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Closes its standard input and waits for its good end.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it is our child").success());
    }
}

/// Attackers of the ports of a process, of the same user and, where tests run as root, of another
/// one.
fn attackers(callers: &Built, pid: &str) -> [Talker; 2] {
    let prefix = format!("margay-port-{pid}-");
    [command("env", 100), unprivileged(100)]
        .map(|mut command| Talker::start(command.arg(callers.path()).arg(&prefix).arg(CALLS)))
}

fn connect(built: &Built, port: &str) {
    let client = Words::mpiexec(60, 1, &built.path(), "connect").and(Path::new(port));
    assert_eq!(client.succeed(80), "ok\n");
}

#[test]
fn hostile_connections_do_not_disturb_accept() {
    let (built, callers) = (
        Built::mpi("mpi/port.c"),
        Built::plain("days/callers.c", &[]),
    );
    let mut command = Words::mpiexec(90, 1, &built.path(), "serve 4").command(100);
    let mark = mark(&mut command);
    let mut server = Talker::start(&mut command);
    let port = server.line();
    let pid = port
        .split(':')
        .nth(1)
        .expect("a port's name has the process");
    // Undisturbed, then during the attack, then with the last hostile connections still open.
    for _ in 0..2 {
        connect(&built, &port);
        assert_eq!(server.line(), "accepted");
    }
    let mut attackers = attackers(&callers, pid);
    connect(&built, &port);
    assert_eq!(server.line(), "accepted");
    for attacker in &mut attackers {
        assert_eq!(attacker.line(), "made");
    }
    connect(&built, &port);
    assert_eq!(server.line(), "accepted");
    assert_eq!(server.line(), "ok");
    server.end();
    attackers.into_iter().for_each(Talker::end);
    nothing_is_left(&mark);
}

#[test]
fn hostile_connections_do_not_disturb_spawn() {
    let (built, callers) = (
        Built::mpi("mpi/port.c"),
        Built::plain("days/callers.c", &[]),
    );
    let folder = scratch();
    let enough = folder.path().join("enough");
    let spawner = Words::mpiexec(90, 1, &built.path(), "spawn").and(&enough);
    let mut command = spawner.command(100);
    let mark = mark(&mut command);
    let mut spawner = Talker::start(&mut command);
    let pid = spawner.line();
    let mut attackers = attackers(&callers, &pid);
    for attacker in &mut attackers {
        assert_eq!(attacker.line(), "made");
    }
    std::fs::write(&enough, "").expect("a file");
    assert_eq!(spawner.line(), "ok");
    spawner.end();
    attackers.into_iter().for_each(Talker::end);
    nothing_is_left(&mark);
}
