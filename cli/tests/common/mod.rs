//! What the launcher's tests share: running it with a time limit, and looking for what it left.
#![allow(dead_code)] // Each test file uses its part.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use margay_sys_os::signal;

/// The variable by which a test finds the processes of its own job.
pub const MARK: &str = "MARGAY_TEST_MARK";
pub const LIMIT: Duration = Duration::from_secs(30);

/// What a launcher gave.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Done {
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| -self.status.signal().unwrap_or(0))
    }

    /// Returns the lines of standard output, sorted.
    pub fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }
}

pub fn margay() -> &'static str {
    env!("CARGO_BIN_EXE_margay")
}

/// Returns the program that plays a rank. `cargo test` builds it, unless one test alone is to be
/// built.
pub fn act() -> PathBuf {
    let path = Path::new(margay()).parent().unwrap().join("examples/act");
    assert!(
        path.exists(),
        "build it first: cargo build -p margay --example act"
    );
    path
}

/// Returns a command for which it does not matter how the test was started: no signal is ignored.
pub fn fresh(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    signal::take_defaults_in(&mut command);
    command
}

/// `margay run` with arguments separated by spaces; `%act` stands for the program that plays a
/// rank.
pub fn command(line: &str) -> Command {
    let mut command = fresh(margay());
    command.arg("run");
    for word in line.split_whitespace() {
        if word == "%act" {
            command.arg(act());
        } else {
            command.arg(word);
        }
    }
    command.env(MARK, mark());
    command
}

/// `margay run` of a shell script on some ranks.
pub fn shell(options: &str, script: &str) -> Command {
    let mut command = command(options);
    command.args(["sh", "-c", script]);
    command
}

/// Runs to the end with this standard input.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Done {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || {
        // A launcher that ends early closes the pipe.
        let _ = stdin.write_all(&input);
    });
    let done = finish(&mut child, start);
    writer.join().unwrap();
    done
}

/// Runs to the end without standard input.
pub fn run(command: &mut Command) -> Done {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    finish(&mut child, start)
}

/// Waits for a launcher whose output is piped; fails the test when it takes too long.
pub fn finish(child: &mut Child, start: Instant) -> Done {
    let out = child.stdout.take().map(reader::<ChildStdout>);
    let err = child.stderr.take().map(reader::<ChildStderr>);
    let status = wait(child);
    let text = |t: Option<thread::JoinHandle<Vec<u8>>>| {
        t.map(|t| String::from_utf8_lossy(&t.join().unwrap()).into_owned())
            .unwrap_or_default()
    };
    let took = start.elapsed();
    Done {
        status,
        out: text(out),
        err: text(err),
        took,
    }
}

pub fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the launcher does not end");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn reader<R: Read + Send + 'static>(mut from: R) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// A running launcher whose output can be read line by line.
pub struct Running {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    out: ChildStdout,
    seen: Vec<u8>,
    mark: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mark = command
            .get_envs()
            .find(|(n, _)| *n == OsStr::new(MARK))
            .and_then(|(_, v)| v)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running {
            stdin: child.stdin.take(),
            out: child.stdout.take().unwrap(),
            child,
            seen: Vec::new(),
            mark,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads until the output holds `text`.
    pub fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            let n = self.out.read(&mut buffer).unwrap();
            assert!(n > 0, "the output ended without {text:?}: {}", self.seen());
            self.seen.extend_from_slice(&buffer[..n]);
        }
    }

    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Done {
        drop(self.stdin.take());
        let start = Instant::now();
        let err = self.child.stderr.take().map(reader::<ChildStderr>);
        let out = reader(self.out);
        let status = wait(&mut self.child);
        self.seen.extend(out.join().unwrap());
        Done {
            status,
            out: String::from_utf8_lossy(&self.seen).into_owned(),
            err: String::from_utf8_lossy(&err.unwrap().join().unwrap()).into_owned(),
            took: start.elapsed(),
        }
    }

    /// Closes the pipe of standard output and waits for the end.
    pub fn end_without_reader(self) -> Done {
        let Running { mut child, out, .. } = self;
        drop(out);
        finish(&mut child, Instant::now())
    }

    /// Returns all processes of this job that live, the launcher's own included.
    pub fn processes(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    pub fn mark(&self) -> String {
        self.mark.clone()
    }

    /// Returns the guard of this job.
    pub fn guard(&self) -> u32 {
        let me = self.pid();
        self.processes()
            .into_iter()
            .find(|&p| parent(p) == Some(me))
            .unwrap()
    }
}

pub fn send(signal: &str, pid: u32) {
    let done = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(done.unwrap().success());
}

pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = &stat[stat.rfind(')')? + 2..];
    rest.split(' ').nth(1)?.parse().ok()
}

/// Returns the living processes whose environment holds the mark.
pub fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|&b| b == 0).any(|v| v == wanted.as_bytes()))
        })
        .collect()
}

/// Longest time that an end may take which waits for nothing. Speed is not tested: other processes
/// may keep the machine busy. Ranks that would go on sleep for 100 s.
pub const PROMPT: Duration = Duration::from_secs(20);

/// Waits until no process with the mark is left; fails when that takes longer than [`PROMPT`].
pub fn assert_nothing_left(mark: &str) {
    let end = Instant::now() + PROMPT;
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "processes are left: {left:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a mark that no other job of any test has.
pub fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
