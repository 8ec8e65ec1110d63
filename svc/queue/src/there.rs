//! A job on this host whose head is on another one: this program runs it, started by the remote
//! shell, and passes on what it writes. When nothing is heard of the other side any more the job is
//! ended. Two processes do that, so that when one of them is killed the other ends what is left.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use margay_svc_queue_wire::{Bytes, PROGRAM, Place};
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::{become_subreaper, beside, kill_descendants, lead_session};
use margay_sys_os::signal::{SignalFd, SignalSet, take_defaults_in};

use crate::files::{JobFolder, JobOrder};
use crate::hearing::{HEARD, Hearing, Relay, StepsSaid};
use crate::line::SupervisorLine;
use crate::supervise::run_here;
use crate::wire::{SILENCE, Wire};

/// How long what is killed may take to go.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// The outer process: it ends what the inner one leaves.
///
/// # Errors
/// In words.
pub fn outer() -> Result<(), String> {
    let folder = new_folder();
    let ended = around("there", &[&folder]);
    let _ = fs::remove_dir_all(folder);
    ended
}

/// Runs this program with these words, and ends what it leaves.
///
/// # Errors
/// In words.
pub fn around(first: &str, words: &[impl AsRef<OsStr>]) -> Result<(), String> {
    let failed = |error: io::Error| format!("a job cannot be watched: {error}");
    lead_session();
    // What ends the remote shell's session is for the inner one to judge.
    SignalSet::of(&HEARD).block();
    become_subreaper().map_err(failed)?;
    let mut command = Command::new(beside(PROGRAM).map_err(failed)?);
    command.arg(first).args(words);
    let mut inner = take_defaults_in(&mut command).spawn().map_err(failed)?;
    let ended = inner.wait().map_err(failed)?;
    kill_descendants(&[], KILLED_WITHIN);
    match ended.success() {
        true => Ok(()),
        false => Err("what watched over the job was killed".into()),
    }
}

/// What the names of folders of this user's jobs begin with.
fn start_of_names() -> String {
    format!("margay-job-{}-", margay_sys_os::port::user())
}

/// The folder of what a job reads, which is to be made.
fn new_folder() -> PathBuf {
    // Containers with the same numbers of processes may share the place.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos());
    let name = format!("{}{}-{now}", start_of_names(), std::process::id());
    std::env::temp_dir().join(name)
}

/// Removes folders of jobs that ended with the host: nobody holds their locks.
pub fn sweep() {
    let start = start_of_names();
    let all = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    for folder in all.flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&start) || name.ends_with(".new") {
            continue;
        }
        let lock = File::options().write(true).open(folder.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            for job in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let job = JobFolder::at(job.path());
                // With what the job's user reads.
                if let Ok(order) = job.order() {
                    job.of_order(&order).remove();
                }
            }
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// Locked as long as the job is watched.
const LOCK: &str = "lock";

/// Makes the folder. It has its name when its lock is held.
fn make_folder(path: &Path) -> Result<(Folder, File), String> {
    let failed = |error: io::Error| format!("cannot make the folder {}: {error}", path.display());
    let new = Folder(path.with_extension("new"));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&new.0)
        .map_err(failed)?;
    let lock = File::create(new.0.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    fs::rename(&new.0, path).map_err(failed)?;
    Ok((Folder(path.to_owned()), lock))
}

/// Gone with the value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the job that comes over the standard input.
///
/// # Errors
/// In words.
pub fn inner(base: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("the job cannot be watched: {error}");
    let heard = SignalSet::of(&HEARD);
    heard.block();
    become_subreaper().map_err(failed)?;
    let (input, output) = (io::stdin(), io::stdout());
    let of = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
    let input = of(input.as_fd()).map_err(failed)?;
    let output = of(output.as_fd()).map_err(failed)?;
    let mut wire = Wire::new(input, output, false).map_err(failed)?;
    let Some(order) = first_order(&mut wire) else {
        return Ok(());
    };
    let mut order = order?;
    // Its turns are the other side's to get.
    order.gang = None;
    let (base, lock) = make_folder(base)?;
    // Its name is the job's number, by which commands in the job know it.
    let mut folder = JobFolder::at(base.0.join(order.job.to_string()));
    fs::create_dir(&folder.path).map_err(failed)?;
    if let Some(user) = &mut order.user {
        // Groups are the head's to make, on its own host.
        user.group = None;
        Place::system().make_for_jobs()?;
        folder = folder.of_order(&order);
        folder.make(&order).map_err(failed)?;
    }
    name_nodes(&mut order, &folder);
    let pipes = (0..2).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>();
    let mut readers = Vec::new();
    let mut writers: Vec<File> = Vec::new();
    for (reader, writer) in pipes.map_err(failed)? {
        set_nonblocking(reader.as_fd()).map_err(failed)?;
        readers.push(Some(File::from(OwnedFd::from(reader))));
        writers.push(OwnedFd::from(writer).into());
    }
    let is_joined = order.stderr.is_none();
    let mut hearing = Hearing {
        signals: SignalFd::new(&heard).map_err(failed)?,
        line: SupervisorLine::none(),
        relay: Some(Relay {
            wire,
            outputs: [readers.remove(0), readers.remove(0)],
            steps: StepsSaid::default(),
        }),
        poll: PollSet::default(),
    };
    // The writers are the job's alone, once it has begun.
    let writers = std::cell::RefCell::new(Some(writers));
    let outputs = || {
        let mut taken = writers.borrow_mut().take().unwrap_or_default();
        let second = taken.pop().ok_or("there are no pipes")?;
        let first = taken.pop().ok_or("there are no pipes")?;
        let second = match is_joined {
            true => first.try_clone().map_err(|error| error.to_string())?,
            false => second,
        };
        Ok([first, second])
    };
    let (end, _) = run_here(&folder, &order, &mut hearing, &outputs);
    drop(writers);
    folder.remove();
    drop(base);
    drop(lock);
    if let Some(relay) = &mut hearing.relay {
        while relay.pass() && !relay.wire.is_cut() {
            settle(relay, &mut hearing.poll);
        }
        relay.wire.say(b'x', &end.text().map_err(failed)?);
        while relay.wire.unsaid() > 0 && !relay.wire.is_cut() {
            settle(relay, &mut hearing.poll);
        }
    }
    Ok(())
}

/// Waits until some of what is unsaid is taken.
fn settle(relay: &mut Relay, poll: &mut PollSet) {
    if relay.wire.unsaid() > 0 {
        poll.clear();
        relay.wire.add_to(poll);
        let _ = poll.wait(Some(Duration::from_millis(100)));
    }
    relay.wire.go_on();
    relay.wire.beat();
}

/// The order of the job; none when the other side goes before.
fn first_order(wire: &mut Wire) -> Option<Result<JobOrder, String>> {
    let mut poll = PollSet::default();
    loop {
        wire.go_on();
        while let Some((letter, bytes)) = wire.take() {
            if letter == b'j' {
                let order = JobOrder::of(&bytes);
                return Some(order.map_err(|error| {
                    format!("the job is not understood: {error}; is the same Margay installed on both hosts?")
                }));
            }
        }
        wire.beat();
        if !wire.is_open || wire.heard.elapsed() > 2 * SILENCE {
            return None;
        }
        poll.clear();
        wire.add_to(&mut poll);
        let _ = poll.wait(Some(SILENCE / 8));
    }
}

/// The variables that name the file of nodes.
fn name_nodes(order: &mut JobOrder, folder: &JobFolder) {
    for name in ["PBS_NODEFILE=", "LOADL_HOSTFILE="] {
        for variable in &mut order.environment {
            if variable.0.as_encoded_bytes().starts_with(name.as_bytes()) {
                let mut whole = std::ffi::OsString::from(name);
                whole.push(folder.nodes());
                *variable = Bytes(whole);
            }
        }
    }
}
