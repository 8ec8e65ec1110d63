//! The files of a running job: a folder for each below `jobs/` of the queue's folder.
//!
//! | file | what it is |
//! | --- | --- |
//! | `order` | what to run, by the head, before it starts the supervisor |
//! | `claim` | its supervisor's process id; locked as long as that lives |
//! | `end` | how the job ended, by the supervisor |
//! | `preempted` | it is to wait again when it has ended, by the head |
//! | `signals` | signals for its processes, by the head, until the supervisor has sent them |
//! | `script`, `nodes` | what the job itself reads; of the queue of all users, in another folder |
//! | `used` | of a job on several hosts, beside these: what it used on the others, by its launchers |
//!
//! The claim comes into being complete and locked, by a link: of several supervisors that a head
//! killed at a bad moment and its successor started for one job, exactly one gets it. Nothing here
//! waits for the disk: when the machine has gone down, which the head sees by the kernel's boot id,
//! a job that was stored as running has run, whatever its folder says.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_core_queue::{End, JobId, Warning};
use margay_job_launch::step;
use margay_job_launch::used::{self, UsedThere};
use margay_svc_queue_wire::{Bytes, Owner, StepRow, Usage};
use margay_sys_os::process::{PidFd, kill_marked};
use margay_sys_os::signal::SIGTERM;
use serde::{Deserialize, Serialize};

use crate::site::{Away, HostPart};

/// Bytes that are kept on the disk for `end`, so that a full disk does not lose how a job ended.
const END_BYTES: usize = 2048;

/// How long the kernel may take to end what a job has left whose supervisor was killed.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// Bytes that are read of what a job used on its other hosts: a million launches.
const MOST_USED: u64 = 64 << 20;

/// The variable that names the file of nodes: each job has one of its own.
const NODES: &[u8] = b"PBS_NODEFILE=";

/// What a supervisor runs.
// Fields: what a job is when all names are known; each is read once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobOrder {
    pub job: JobId,
    /// The name of its queue; nothing where an older version has begun it.
    #[serde(default)]
    pub queue: String,
    /// The text of the script; else the first argument is the program.
    pub script: Option<Bytes>,
    pub arguments: Vec<Bytes>,
    /// `NAME=VALUE` each.
    pub environment: Vec<Bytes>,
    pub directory: Bytes,
    /// Where output goes: relative to the directory.
    pub stdout: Bytes,
    /// The same as `stdout` where there is none.
    pub stderr: Option<Bytes>,
    /// Names of output files in the folders that the two above may be.
    pub names: [String; 2],
    /// What follows each of the two where it is no folder.
    #[serde(default)]
    pub endings: [String; 2],
    /// File of the standard input; nothing comes in without.
    #[serde(default)]
    pub stdin: Option<Bytes>,
    /// What runs the script in place of the program of its first line.
    #[serde(default)]
    pub shell: Option<String>,
    pub is_append: bool,
    pub limit_s: Option<u64>,
    /// What its processes may use together, in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// The part of all slots that it has of each of its hosts; the first is that on which it
    /// begins.
    #[serde(default)]
    pub shares: Vec<f64>,
    pub warning: Option<Warning>,
    /// The lines of the file of nodes.
    pub nodes: String,
    /// Where its slots are, on a machine of several hosts.
    #[serde(default)]
    pub parts: Vec<HostPart>,
    /// The other host on which it begins.
    #[serde(default)]
    pub away: Option<Away>,
    /// Where it runs already, begun by a head of another place.
    #[serde(default)]
    pub left: Option<LeftAt>,
    /// In the queue of all users.
    #[serde(default)]
    pub user: Option<ForUser>,
    #[serde(default)]
    pub slots: u32,
    /// The partition in which it takes turns.
    #[serde(default)]
    pub gang: Option<String>,
    /// Its priority there.
    #[serde(default)]
    pub turn_priority: u32,
    /// On several hosts: the name under which what it starts there is held.
    #[serde(default)]
    pub held: Option<String>,
    /// The cores that it may use; nothing where that is not said.
    #[serde(default)]
    pub cores: Vec<usize>,
}

/// What a job has that runs as its user, and not as its head does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForUser {
    pub owner: Owner,
    /// The folder of its control group, where it has one.
    #[serde(default)]
    pub group: Option<PathBuf>,
    /// The folder of what the job itself reads.
    pub folder: PathBuf,
    pub slots: u32,
    /// Permissions that its new files do not have.
    pub file_mask: u32,
    /// The user's name; none where there was none, or an older version has begun it.
    #[serde(default)]
    pub name: Option<String>,
}

impl JobOrder {
    /// It as JSON.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn text(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// What this JSON says.
    ///
    /// # Errors
    /// When it says something else.
    pub fn of(text: &[u8]) -> io::Result<JobOrder> {
        Ok(serde_json::from_slice(text)?)
    }
}

/// A signal for the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalWish {
    pub signal: i32,
    /// For the first process alone.
    pub to_script: bool,
}

/// How a job ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobEnd {
    pub end: End,
    /// Seconds since 1970.
    pub ended: u64,
    pub usage: Usage,
    pub note: String,
    /// Not where the host on which it was to begin could not be reached.
    #[serde(default = "yes")]
    pub has_begun: bool,
    /// What `srun` ran in it.
    #[serde(default)]
    pub steps: Vec<StepRow>,
}

fn yes() -> bool {
    true
}

impl JobEnd {
    /// It as JSON.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn text(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// What this JSON says.
    ///
    /// # Errors
    /// When it says something else.
    pub fn of(text: &[u8]) -> io::Result<JobEnd> {
        Ok(serde_json::from_slice(text)?)
    }
}

impl SignalWish {
    /// It as JSON.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn text(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// What this JSON says; none when it says something else.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<SignalWish> {
        serde_json::from_slice(text).ok()
    }
}

/// What a job's folder says of it.
#[derive(Debug)]
pub enum Found {
    /// No supervisor has claimed it.
    Unclaimed,
    /// A supervisor has it, which has this process id.
    Supervised(u32),
    Ended(JobEnd),
    /// Its supervisor died without a word.
    Abandoned,
}

/// What a file has that a user's job writes; no more than launchers write in earnest.
fn written(path: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(MOST_USED).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The folder of a job.
#[derive(Clone, Debug)]
pub struct JobFolder {
    pub path: PathBuf,
    /// Where what the job itself reads is: the same, or one of the job's user.
    readable: PathBuf,
}

impl JobFolder {
    /// The folder of this path.
    #[must_use]
    pub fn at(path: PathBuf) -> JobFolder {
        let readable = path.clone();
        JobFolder { path, readable }
    }

    /// The same, where what the job reads is in a folder of its own below this one, if there is
    /// one.
    #[must_use]
    pub fn with_readable(mut self, base: Option<&Path>) -> JobFolder {
        if let Some(base) = base {
            self.readable = base.join(self.name());
        }
        self
    }

    /// That of an order, in the same place.
    #[must_use]
    pub fn of_order(mut self, order: &JobOrder) -> JobFolder {
        if let Some(user) = &order.user {
            self.readable.clone_from(&user.folder);
        }
        self
    }

    /// Where what the job reads is.
    #[must_use]
    pub fn readable(&self) -> &Path {
        &self.readable
    }

    /// Of a job in the queue's folder. Each run of a job that runs again has its own, so that what
    /// is late of the one before finds nothing.
    #[must_use]
    pub fn of(queue: &Path, job: JobId, runs: u32) -> JobFolder {
        let name = match runs {
            0 => job.to_string(),
            _ => format!("{job}.{runs}"),
        };
        JobFolder::at(queue.join("jobs").join(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its name below `jobs/`.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The file of nodes.
    #[must_use]
    pub fn nodes(&self) -> PathBuf {
        self.readable.join("nodes")
    }

    /// What the job used on other hosts than the first.
    #[must_use]
    pub fn used_there(&self) -> Vec<UsedThere> {
        UsedThere::lines(&written(&used::file_beside(&self.nodes())))
    }

    /// What `srun` ran in the job, with what that used on other hosts.
    #[must_use]
    pub fn steps(&self, there: &[UsedThere]) -> Vec<StepRow> {
        let text = written(&step::file_in(self.readable()));
        Self::step_rows(&text, there)
    }

    /// The same of a job that runs, as far as it is known here, without other hosts' use: the head
    /// reads no more than steps may have in earnest.
    #[must_use]
    pub fn steps_so_far(&self) -> Vec<StepRow> {
        // What another host has said of its job is with the order.
        let said = [self.readable(), &self.path].map(|folder| step::lines_from(folder, 0));
        let said = said.iter().find(|lines| !lines.is_empty());
        let text = String::from_utf8_lossy(said.map_or(&[], Vec::as_slice));
        Self::step_rows(&text, &[])
    }

    fn step_rows(text: &str, there: &[UsedThere]) -> Vec<StepRow> {
        let steps = step::records(text, there).into_iter();
        steps
            .map(|step| StepRow {
                step: step.number,
                name: step.name,
                tasks: step.tasks,
                slots: step.slots,
                started: step.begun,
                ended: step.end.map(|end| end.at),
                exit_code: step.end.map(|end| end.status),
                cpu_s: step.end.map_or(0.0, |end| end.cpu_s),
                max_rss_kib: step.end.map_or(0, |end| end.max_rss_kib),
            })
            .collect()
    }

    /// Makes the folder with its order.
    ///
    /// # Errors
    /// What the system says.
    pub fn make(&self, order: &JobOrder) -> io::Result<()> {
        self.make_path()?;
        let new = self.path("order.new");
        private(&new)?.write_all(&order.text()?)?;
        fs::rename(new, self.path("order"))
    }

    /// Makes the folder without an order.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_path(&self) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
    }

    /// Whether it is that of a job of another queue, which has the same number.
    #[must_use]
    pub fn is_of_other(&self, queue: &str) -> bool {
        let order = self.order();
        order.is_ok_and(|order| !order.queue.is_empty() && order.queue != queue)
    }

    /// The file of the order.
    #[must_use]
    pub fn order_file(&self) -> PathBuf {
        self.path("order")
    }

    /// The file in which a job on another host than the head's says why it could not begin.
    #[must_use]
    pub fn report_file(&self) -> PathBuf {
        self.path("report")
    }

    /// Ends what the job has left whose supervisor was killed. Its processes are known by the
    /// variable that names its file of nodes, and by the supervisor's session. Returns whether all
    /// have ended.
    #[must_use]
    pub fn end_rest(&self) -> bool {
        let Ok(order) = self.order() else {
            return true;
        };
        let mut variables = order.environment.iter();
        let Some(variable) = variables.find(|v| v.0.as_encoded_bytes().starts_with(NODES)) else {
            return true;
        };
        let supervisor = fs::read_to_string(self.path("claim")).ok();
        let supervisor = supervisor.and_then(|text| text.trim().parse().ok());
        kill_marked(variable.0.as_encoded_bytes(), supervisor, REST_WITHIN)
    }

    /// Reads the order.
    ///
    /// # Errors
    /// What the system says.
    pub fn order(&self) -> io::Result<JobOrder> {
        JobOrder::of(&fs::read(self.order_file())?)
    }

    /// Writes the script and the file of nodes; returns the script's path. For the job of another
    /// user they are in a folder of their own, and are that user's files. The folder stays root's,
    /// so that nothing can be put there that takes long to remove: also the files by which steps of
    /// the job take their slots are made here.
    ///
    /// # Errors
    /// What the system says.
    pub fn put(&self, order: &JobOrder) -> io::Result<Option<PathBuf>> {
        let Some(user) = &order.user else {
            return self.put_files(order);
        };
        // What a head left that was killed.
        remove(&self.readable)?;
        fs::create_dir(&self.readable)?;
        fs::set_permissions(&self.readable, fs::Permissions::from_mode(0o711))?;
        let script = self.put_files(order)?;
        let slots = (0..user.slots).map(|slot| format!("slot.{slot}"));
        let steps = ["steps", "steps.turn"].map(str::to_owned).into_iter();
        let steps = steps.chain(slots).map(|name| self.readable.join(name));
        let mut files = vec![self.nodes()];
        if order.parts.len() > 1 {
            files.push(used::file_beside(&self.nodes()));
        }
        for path in steps {
            private(&path)?;
            files.push(path);
        }
        for path in files.iter().chain(&script) {
            lchown(path, Some(user.owner.uid), Some(user.owner.gid))?;
        }
        Ok(script)
    }

    fn put_files(&self, order: &JobOrder) -> io::Result<Option<PathBuf>> {
        private(&self.nodes())?.write_all(order.nodes.as_bytes())?;
        if order.parts.len() > 1 {
            private(&used::file_beside(&self.nodes()))?;
        }
        let Some(script) = &order.script else {
            return Ok(None);
        };
        let path = self.readable.join("script");
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o700)
            .open(&path)?;
        file.write_all(std::os::unix::ffi::OsStrExt::as_bytes(script.0.as_os_str()))?;
        Ok(Some(path))
    }

    /// Claims the job for this process, and keeps room for `end`. None when somebody else has it.
    /// The claim holds as long as the file is open.
    ///
    /// # Errors
    /// What the system says.
    pub fn claim(&self) -> io::Result<Option<File>> {
        let own = self.path(&format!("claim.{}", std::process::id()));
        let mut room = private(&self.path(&format!("end.{}", std::process::id())))?;
        room.write_all(&[b' '; END_BYTES])?;
        let mut file = private(&own)?;
        file.lock()?;
        write!(file, "{}", std::process::id())?;
        let claimed = fs::hard_link(&own, self.path("claim"));
        let _ = fs::remove_file(&own);
        match claimed {
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes how the job ended, for the process that has claimed it.
    ///
    /// # Errors
    /// What the system says.
    pub fn end(&self, end: &JobEnd) -> io::Result<()> {
        let path = self.path(&format!("end.{}", std::process::id()));
        let mut text = end.text()?;
        text.resize(text.len().max(END_BYTES), b' ');
        // In place, where there is room.
        let mut file = File::options().write(true).open(&path)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)?;
        fs::rename(&path, self.path("end"))
    }

    /// Notes that the job is to wait again when it has ended.
    ///
    /// # Errors
    /// What the system says.
    pub fn mark_preempted(&self) -> io::Result<()> {
        private(&self.path("preempted")).map(|_| ())
    }

    /// Whether that was noted.
    #[must_use]
    pub fn is_preempted(&self) -> bool {
        self.path("preempted").exists()
    }

    /// Leaves a signal for the supervisor, which is then to be woken by SIGUSR1.
    ///
    /// # Errors
    /// What the system says.
    pub fn leave_signal(&self, wish: SignalWish) -> io::Result<()> {
        let mut text = wish.text()?;
        text.push(b'\n');
        let mut file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.path("signals"))?;
        file.write_all(&text)
    }

    /// Takes the signals that the head has left.
    pub fn take_signals(&self) -> Vec<SignalWish> {
        let taken = self.path("signals.taken");
        // A file that is appended to at this moment has the new name, too: it is read afterwards.
        if fs::rename(self.path("signals"), &taken).is_err() {
            return Vec::new();
        }
        let text = fs::read(&taken).unwrap_or_default();
        text.split(|&byte| byte == b'\n')
            .filter_map(SignalWish::of)
            .collect()
    }

    /// Says how the job is.
    ///
    /// # Errors
    /// What the system says.
    pub fn look(&self) -> io::Result<Found> {
        if let Some(end) = self.read_end()? {
            return Ok(Found::Ended(end));
        }
        let mut claim = match File::open(self.path("claim")) {
            Ok(claim) => claim,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Unclaimed),
            Err(error) => return Err(error),
        };
        match claim.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                let mut text = String::new();
                claim.read_to_string(&mut text)?;
                let process = text.trim().parse();
                process
                    .map(Found::Supervised)
                    .map_err(|_| io::Error::other("the claim names no process"))
            }
            Err(fs::TryLockError::Error(error)) => Err(error),
            // Its last act may have been to write how it ended.
            Ok(()) => Ok(self.read_end()?.map_or(Found::Abandoned, Found::Ended)),
        }
    }

    fn read_end(&self) -> io::Result<Option<JobEnd>> {
        match fs::read(self.path("end")) {
            Ok(text) => Ok(Some(JobEnd::of(&text)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the folder.
    pub fn remove(&self) {
        let _ = remove(&self.readable);
        let _ = remove(&self.path);
    }
}

/// Whether a name is that of one of these jobs, which have been put back so often.
pub fn names_of(live: &[(JobId, u32)]) -> impl Fn(&str) -> bool {
    let name = |(id, runs): &(JobId, u32)| JobFolder::of(Path::new(""), *id, *runs).name();
    let names: HashSet<String> = live.iter().map(name).collect();
    move |name| names.contains(name)
}

/// Ends what runs of jobs below `jobs` whose names are not those of live ones of this queue, and
/// removes the folders of those that do not run: their ends are stored, or they have begun again
/// elsewhere.
pub fn clear(jobs: &Path, queue: &str, is_live: &dyn Fn(&str) -> bool) {
    for folder in all(jobs) {
        if is_live(&folder.name()) && !folder.is_of_other(queue) {
            continue;
        }
        match folder.look() {
            Ok(Found::Supervised(process)) => {
                if let Ok(process) = PidFd::open(process) {
                    process.signal(SIGTERM);
                }
            }
            // With what the job itself reads, in the queue of all users.
            _ => match folder.order() {
                Ok(order) => folder.of_order(&order).remove(),
                Err(_) => folder.remove(),
            },
        }
    }
}

/// Ends what runs of other queues' jobs below `jobs`, as this queue gives the same numbers: returns
/// what watches over them.
pub fn end_others(jobs: &Path, queue: &str) -> Vec<PidFd> {
    let others = all(jobs).filter(|folder| folder.is_of_other(queue));
    let watched = others.filter_map(|folder| match folder.look() {
        Ok(Found::Supervised(process)) => PidFd::open(process).ok(),
        _ => None,
    });
    watched
        .inspect(|process| {
            process.signal(SIGTERM);
        })
        .collect()
}

fn all(jobs: &Path) -> impl Iterator<Item = JobFolder> {
    let folders = fs::read_dir(jobs).into_iter().flatten().flatten();
    folders.map(|folder| JobFolder::at(folder.path()))
}

/// Removes a folder with all that is in it, if it is there.
fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn private(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Where a job runs that another head has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftAt {
    pub host: String,
    /// The job's folder there.
    pub folder: PathBuf,
    /// The name of the queue; nothing where an older version has begun it.
    #[serde(default)]
    pub queue: String,
    /// What differed when its host had started anew; nothing where that is not known.
    pub start: String,
    /// The words of the remote shell.
    pub shell: Vec<String>,
    /// How long the host may be away before the job counts as lost.
    pub lost_after_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_gets_the_claim_and_its_end_is_found() {
        let folder =
            std::env::temp_dir().join(format!("margay-queue-claim-{}", std::process::id()));
        let folder = JobFolder::at(folder);
        fs::create_dir_all(&folder.path).unwrap();
        assert!(matches!(folder.look().unwrap(), Found::Unclaimed));
        let claim = folder.claim().unwrap().unwrap();
        assert!(folder.claim().unwrap().is_none());
        let own = std::process::id();
        assert!(matches!(folder.look().unwrap(), Found::Supervised(pid) if pid == own));
        drop(claim);
        assert!(matches!(folder.look().unwrap(), Found::Abandoned));
        let end = JobEnd {
            end: End::Exit(3),
            ended: 7,
            usage: Usage::default(),
            note: "n".repeat(5000),
            has_begun: true,
            steps: Vec::new(),
        };
        folder.end(&end).unwrap();
        assert!(matches!(folder.look().unwrap(), Found::Ended(e) if e.end == End::Exit(3)));
        folder.remove();
    }
}
