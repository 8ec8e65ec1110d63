//! A job that waits for its command: submitted, and held by a socket to its attendant.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_core_queue::{JobId, Wishes};
use margay_svc_queue_wire::{
    Answer, Bytes, Detail, JobRow, Order, PROGRAM, Request, Shared, TAKES_OVER_WITHIN, Target,
    find_head, read, write,
};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::beside;
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use super::frames::Frame;
use crate::common::{self, exit_code};

/// After this time a command says that its job waits.
const SILENCE_LIMIT: Duration = Duration::from_millis(300);

/// What answers within this time has not waited.
const ANSWERS_AT_ONCE: Duration = Duration::from_secs(8);

/// Another head is looked for this often when one has gone.
const LOOK: Duration = Duration::from_millis(200);

/// A job that runs for this command.
#[derive(Debug)]
pub struct Allocation {
    pub job: JobId,
    /// To its attendant.
    pub stream: UnixStream,
    /// The job's environment.
    pub environment: Vec<Bytes>,
    /// The job ends with the command.
    is_over: bool,
}

/// The folder of a socket, which goes with it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder() -> Result<Folder, String> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = base
        .filter(|base| base.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let path = base.join(format!("margay-i{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|error| format!("cannot make the folder {}: {error}", path.display()))?;
    Ok(Folder(path))
}

/// The word by which this program is an attendant.
pub const ATTEND: &str = "attend";

/// The program of which these words of a job without a script make an attendant, if they make one.
#[must_use]
pub fn attended_by(words: &[Bytes]) -> Option<&OsStr> {
    match words {
        [program, word, ..] if word.0 == ATTEND => Some(&program.0),
        _ => None,
    }
}

/// Whether a job is one that waits for its command.
#[must_use]
pub fn is_interactive(detail: &Detail) -> bool {
    let program = attended_by(&detail.command).filter(|_| detail.command.len() == 3);
    let name = program.and_then(|program| Path::new(program).file_name());
    !detail.is_script && name.is_some_and(|name| name == PROGRAM)
}

impl Allocation {
    /// Submits a job, and waits until it runs. `waits` says on the way that it waits.
    ///
    /// # Errors
    /// In words: it is refused, or ended before it began, or a signal came. The job is cancelled
    /// then.
    pub fn wait_for(mut wishes: Wishes, waits: &dyn Fn(JobId)) -> Result<Allocation, String> {
        if wishes.array.is_some() {
            return Err("an interactive job cannot be an array".into());
        }
        let folder = folder()?;
        let socket = folder.0.join("s");
        let system =
            |error: std::io::Error| format!("cannot listen at {}: {error}", socket.display());
        let listener = UnixListener::bind(&socket).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let own = beside(PROGRAM).map_err(|error| error.to_string())?;
        // What the attendant itself says belongs nowhere.
        wishes.output.stdout = Some("/dev/null".into());
        wishes.output.stderr = None;
        wishes.output.joined = None;
        let order = Order {
            wishes,
            script: None,
            arguments: vec![
                Bytes(own.into_os_string()),
                Bytes(ATTEND.into()),
                Bytes(socket.clone().into_os_string()),
            ],
        };
        let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM]);
        let before = set.block();
        let job = common::submit(Shared::here()?, order)?;
        let accepted = accept(&listener, job, &set, waits);
        before.block_exactly();
        match accepted {
            Ok((stream, environment)) => Ok(Allocation {
                job,
                stream,
                environment,
                is_over: false,
            }),
            Err(text) => {
                let jobs = vec![Target { job, task: None }];
                let _ = common::order(&Request::Cancel { jobs });
                Err(text)
            }
        }
    }

    /// Waits until the job has ended, which it does without its command; returns its row.
    ///
    /// # Errors
    /// In words.
    pub fn end(mut self) -> Result<JobRow, String> {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.is_over = true;
        let rows = common::wait(vec![Target {
            job: self.job,
            task: None,
        }])?;
        rows.into_iter()
            .next()
            .ok_or_else(|| "the job is not known any more".into())
    }

    /// Says why the job has ended without its program, and with which exit code.
    ///
    /// # Errors
    /// In words.
    pub fn ended_early(self) -> Result<(u8, String), String> {
        let job = self.job;
        let row = self.end()?;
        let state = margay_svc_queue_wire::state(row.phase);
        let note = if row.note.is_empty() {
            String::new()
        } else {
            format!(": {}", row.note)
        };
        Ok((
            exit_code(&row),
            format!("job {job} has ended ({state}){note}"),
        ))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Waits for the attendant.
fn accept(
    listener: &UnixListener,
    job: JobId,
    set: &SignalSet,
    waits: &dyn Fn(JobId),
) -> Result<(UnixStream, Vec<Bytes>), String> {
    let system = |error: std::io::Error| error.to_string();
    let mut signals = SignalFd::new(set).map_err(system)?;
    let mut end = End::of(job)?;
    let (begun, mut has_said) = (Instant::now(), false);
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        let called = poll.add_readable(listener.as_fd());
        let ended = (end.head.as_ref()).map(|head| poll.add_readable(head.as_fd()));
        poll.add_readable(signals.as_fd());
        let pause = (!has_said).then(|| SILENCE_LIMIT.saturating_sub(begun.elapsed()));
        let look = ended.is_none().then_some(LOOK);
        poll.wait(pause.into_iter().chain(look).min())
            .map_err(system)?;
        if !has_said && begun.elapsed() >= SILENCE_LIMIT {
            has_said = true;
            waits(job);
        }
        if let Some(received) = signals.take() {
            let name = margay_sys_os::signal::describe(received.signal).0;
            return Err(format!(
                "{name} came while job {job} waited; it is cancelled"
            ));
        }
        if poll.ready(called).readable
            && let Ok((mut stream, _)) = listener.accept()
        {
            if !is_trusted(stream.as_fd()) {
                continue;
            }
            stream.set_nonblocking(false).map_err(system)?;
            if let Some(Frame::Begun(environment)) = Frame::read(&mut stream).map_err(system)? {
                return Ok((stream, environment));
            }
        }
        if ended.is_none_or(|ended| poll.ready(ended).readable) {
            end.look()?;
        }
    }
}

/// Hears of the end of a job from the head, and when that has gone from the next one.
struct End {
    job: JobId,
    /// It answers when the job has ended.
    head: Option<UnixStream>,
    /// Since when this one is asked.
    asked: Instant,
    /// Since when one is looked for.
    gone: Option<Instant>,
}

impl End {
    fn of(job: JobId) -> Result<End, String> {
        let mut end = End {
            job,
            head: None,
            asked: Instant::now(),
            gone: None,
        };
        end.ask()?;
        Ok(end)
    }

    fn ask(&mut self) -> Result<(), String> {
        let mut head = find_head()?;
        let target = Target {
            job: self.job,
            task: None,
        };
        let jobs = vec![target];
        write(&mut head, &Request::Wait { jobs }).map_err(|error| error.to_string())?;
        self.head = Some(head);
        self.asked = Instant::now();
        Ok(())
    }

    /// No head has been found in time.
    fn is_late(&self) -> bool {
        self.gone
            .is_some_and(|since| since.elapsed() >= TAKES_OVER_WITHIN)
    }

    /// Reads what the head says, or looks for one.
    fn look(&mut self) -> Result<(), String> {
        let job = self.job;
        let Some(mut head) = self.head.take() else {
            return match self.ask() {
                Err(text) if self.is_late() => Err(format!("job {job} may wait still: {text}")),
                _ => Ok(()),
            };
        };
        match read(&mut head) {
            Ok(Answer::Jobs(rows)) => {
                let row = rows.first();
                let state = row.map_or("gone", |row| margay_svc_queue_wire::state(row.phase));
                let note = row.map(|row| row.note.clone()).unwrap_or_default();
                let text = format!("job {job} has ended before it began ({state}) {note}");
                Err(text.trim_end().to_owned())
            }
            Ok(Answer::Failed(text)) => Err(text),
            _ => {
                // One that says at once that it cannot answer is no new one.
                if self.gone.is_none() || self.asked.elapsed() >= ANSWERS_AT_ONCE {
                    let text = "the head of the queue has gone: the job is kept, and the next head is asked";
                    common::complain(text);
                    self.gone = Some(Instant::now());
                }
                Ok(())
            }
        }
    }
}
