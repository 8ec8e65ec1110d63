//! Jobs of real ranks: compiling their programs, running them in odd surroundings, watching them
//! and looking for what they leave.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use margay_sys_os::signal;

use crate::{command, program, scratch, stage, succeed};

/// The variable by which a test finds the processes of its own job.
pub const MARK: &str = "MARGAY_TEST_MARK";

/// How long a test waits for what must happen at once, on a machine that does other things too.
pub const SOON: Duration = Duration::from_secs(10);

/// A compiled program; its folder goes away with it. Other users may read and execute it.
pub struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    /// Compiles a file of `programs/` by the stage tree's `mpicc`.
    ///
    /// # Panics
    /// When it does not compile without warnings.
    pub fn mpi(source: &str) -> Built {
        Built::by(stage().join("bin/mpicc"), source, &[])
    }

    /// The same with further words for the compiler.
    ///
    /// # Panics
    /// As [`mpi`](Self::mpi).
    pub fn mpi_with(source: &str, flags: &[&str]) -> Built {
        Built::by(stage().join("bin/mpicc"), source, flags)
    }

    /// Compiles a file of `programs/` by the C compiler, without MPI.
    ///
    /// # Panics
    /// As [`mpi`](Self::mpi).
    pub fn plain(source: &str, flags: &[&str]) -> Built {
        Built::by("cc".into(), source, flags)
    }

    fn by(compiler: PathBuf, source: &str, flags: &[&str]) -> Built {
        let folder = scratch();
        succeed(command("chmod", 10).arg("755").arg(folder.path()));
        let built = Built { folder };
        succeed(
            command(compiler, 300)
                .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
                .args(flags)
                .arg(program(source))
                .arg("-o")
                .arg(built.path()),
        );
        built
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Words that run a command: a launcher, or what prepares its surroundings.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<String>);

impl Words {
    /// The stage tree's `mpiexec` with a number of ranks, a program and its arguments, ended after
    /// `limit_s` seconds.
    pub fn mpiexec(limit_s: u32, ranks: u32, program: &Path, arguments: &str) -> Words {
        Words::default()
            .and(stage().join("bin/mpiexec"))
            .and_all(&format!("-timeout {limit_s} -n {ranks}"))
            .and(program)
            .and_all(arguments)
    }

    /// One word more.
    #[must_use]
    pub fn and(mut self, word: impl AsRef<Path>) -> Words {
        let word = word.as_ref().to_str().expect("paths of tests are text");
        self.0.push(word.to_owned());
        self
    }

    /// Words separated by spaces.
    #[must_use]
    pub fn and_all(mut self, words: &str) -> Words {
        self.0.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// The words of another after these.
    #[must_use]
    pub fn then(mut self, other: &Words) -> Words {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Runs these words in a shell that executes `script` before, which may end the attempt.
    #[must_use]
    pub fn after(&self, script: &str) -> Words {
        let script = format!("{script} && exec \"$@\"");
        Words(vec!["sh".into(), "-c".into(), script, "sh".into()]).then(self)
    }

    /// As a command bounded to `limit_s` seconds.
    pub fn command(&self, limit_s: u32) -> Command {
        let mut command = command(&self.0[0], limit_s);
        command.args(&self.0[1..]);
        command
    }

    /// Runs them; they must succeed within `limit_s` seconds. Returns the standard output.
    ///
    /// # Panics
    /// When they do not.
    pub fn succeed(&self, limit_s: u32) -> String {
        succeed(&mut self.command(limit_s))
    }

    /// Whether they succeed.
    pub fn work(&self) -> bool {
        crate::run(&mut self.command(60)).status.success()
    }
}

impl From<&str> for Words {
    fn from(words: &str) -> Self {
        Words::default().and_all(words)
    }
}

/// A job that runs.
pub struct Job {
    child: Child,
    out: Stream,
    err: Stream,
    mark: String,
    end: Instant,
}

/// How a job ended.
pub struct Ended {
    /// The launcher's status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// A rank as `showmesh --json` shows it.
pub type Rank = serde_json::Value;

impl Job {
    /// Starts a job that must end within `limit_s` seconds.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(words: &Words, limit_s: u64) -> Job {
        let mark = new_mark();
        let mut command = Command::new(&words.0[0]);
        let mut child = signal::take_defaults_in(&mut command)
            .args(&words.0[1..])
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{words:?} cannot be started: {error}"));
        Job {
            out: Stream::of(child.stdout.take().expect("piped")),
            err: Stream::of(child.stderr.take().expect("piped")),
            child,
            mark,
            end: Instant::now() + Duration::from_secs(limit_s),
        }
    }

    /// Process id of the launcher.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The mark that all processes of the job carry.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Waits until the output holds `text` this many times.
    ///
    /// # Panics
    /// When the time is over.
    pub fn until(&mut self, text: &str, times: usize) {
        while self.out.text().matches(text).count() < times {
            self.pause(&format!("no {times} times {text:?}"));
        }
    }

    /// Waits until standard error holds `text`.
    ///
    /// # Panics
    /// When the time is over.
    pub fn until_error(&mut self, text: &str) {
        while !self.err.text().contains(text) {
            self.pause(&format!("no {text:?}"));
        }
    }

    /// Waits until `showmesh` shows this job in a state that `wanted` accepts, and returns it.
    ///
    /// # Panics
    /// When the time is over.
    pub fn shown(&mut self, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        loop {
            let text = Words::default()
                .and(stage().join("bin/showmesh"))
                .and_all("--json")
                .succeed(30);
            let all: serde_json::Value = serde_json::from_str(&text).expect("showmesh prints JSON");
            let jobs = all["jobs"].as_array().expect("a list of jobs");
            if let Some(job) = jobs
                .iter()
                .find(|job| job["job"].as_u64() == Some(u64::from(self.pid())) && wanted(job))
            {
                return job.clone();
            }
            self.pause(&format!("showmesh does not show it as wanted: {text}"));
        }
    }

    /// Process ids of the ranks, once all have said that they are ready.
    pub fn ranks_when_ready(&mut self, ranks: usize) -> Vec<u32> {
        self.until("ready", ranks);
        let job = self.shown(|_| true);
        let list = job["rank"].as_array().expect("a list of ranks");
        list.iter()
            .map(|rank| u32::try_from(rank["pid"].as_u64().expect("a pid")).expect("a pid"))
            .collect()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When the time is over.
    pub fn ended(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the launcher is our child") {
                break status;
            }
            self.pause("it does not end");
        };
        Ended {
            status,
            out: self.out.whole(),
            err: self.err.whole(),
        }
    }

    /// Waits for its end; nothing of it may be left then.
    pub fn ended_with_nothing_left(self) -> Ended {
        let mark = self.mark().to_owned();
        let ended = self.ended();
        nothing_is_left(&mark);
        ended
    }

    fn pause(&mut self, why: &str) {
        if Instant::now() > self.end {
            panic!("{why}\n{}\n{}", self.out.text(), self.err.text());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A job that failed its test; the launcher's guard ends the ranks.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process writes, read while it runs.
struct Stream {
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn of(mut from: impl Read + Send + 'static) -> Stream {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                into.lock()
                    .expect("nobody panics here")
                    .extend_from_slice(&bytes[..n]);
            }
        });
        Stream {
            seen,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("nobody panics here")).into_owned()
    }

    /// All of it, once the writers are gone.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        self.text()
    }
}

/// A command with a fresh mark, and the mark.
pub fn mark(command: &mut Command) -> String {
    let mark = new_mark();
    command.env(MARK, &mark);
    mark
}

/// Waits until no process with the mark lives.
///
/// # Panics
/// When that does not come [`SOON`].
pub fn nothing_is_left(mark: &str) {
    let end = Instant::now() + SOON;
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "processes are left: {left:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal, by name.
///
/// # Panics
/// When there is no such process.
pub fn send(signal: &str, pid: u32) {
    succeed(command("kill", 10).args([&format!("-{signal}"), &pid.to_string()]));
}

/// CPU time that a process has used, in seconds.
///
/// # Panics
/// When there is no such process.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name in parentheses") + 2..]
        .split(' ')
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|f| f.parse::<f64>().expect("a number of ticks"))
        .sum();
    ticks / 100.0
}

/// What a command printed, for messages.
pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The name that the machine gives itself.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("the kernel knows the name");
    name.trim().to_owned()
}

fn new_mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("acceptance-{}-{n}", std::process::id())
}

fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|all| all.split(|&b| b == 0).any(|v| v == wanted.as_bytes()))
        })
        .collect()
}

/// The processes with a name that a process started, and those that they started.
#[must_use]
pub fn descendants_named(pid: u32, name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let child: u32 = child.parse().expect("a number");
            parents.push(child);
            let own = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if own.trim() == name {
                found.push(child);
            }
        }
    }
    found
}
