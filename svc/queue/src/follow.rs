//! A job that runs and that a head before this one has begun, on another host or in another folder:
//! its supervisor there goes on with it. Here a supervisor as of any other job stands for it, and
//! follows it over the remote shell: it hears how the job has ended, and passes on what users wish.
//!
//! A head that is only stopped may still give the job to a supervisor there. So where nobody has
//! claimed the job yet, this program claims it there, and the job waits again here.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use margay_core_queue::End;
use margay_svc_queue_wire::Usage;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::{SIGTERM, SIGUSR1};

use crate::files::{Found, JobEnd, JobFolder, LeftAt, SignalWish};
use crate::hearing::Hearing;
use crate::shell::{Remote, quoted};
use crate::wire::{BEAT, Wire};
use crate::{machine_start, now_s};

/// How often a host that cannot be reached is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Why a job has not begun.
const NOT_STARTED: &str = "the head that was to start it is gone";

fn end_of(end: End, note: String, has_begun: bool) -> JobEnd {
    JobEnd {
        end,
        ended: now_s(),
        usage: Usage::default(),
        note,
        has_begun,
        steps: Vec::new(),
    }
}

/// What is to be passed on.
#[derive(Debug, Default)]
struct Wanted {
    is_end: bool,
    wishes: Vec<SignalWish>,
}

impl Wanted {
    fn hear(&mut self, hearing: &mut Hearing, folder: &JobFolder) {
        let news = hearing.news(folder);
        self.is_end |= news.is_end;
        self.wishes.extend(news.wishes);
    }
}

/// Follows a job until it has ended; returns how. Its folder there stays, as a later head may
/// follow it, too: a head that begins there, or stands by, removes it.
pub fn run(folder: &JobFolder, left: &LeftAt, hearing: &mut Hearing) -> JobEnd {
    let lost_after = Duration::from_secs(left.lost_after_s);
    let mut wanted = Wanted::default();
    let mut heard = Instant::now();
    loop {
        let why = match session(folder, left, hearing, &mut wanted, &mut heard) {
            Ok(end) => return end,
            Err(why) => why,
        };
        let host = &left.host;
        if wanted.is_end {
            let note = format!(
                "host {host} cannot be reached: {why}; what runs there ends when it is back"
            );
            return end_of(End::Cancelled, note, true);
        }
        if heard.elapsed() >= lost_after {
            let note = format!("host {host}, where it ran, is gone: {why}");
            return end_of(End::Lost, note, true);
        }
        let again = Instant::now() + RETRY.min(lost_after);
        while Instant::now() < again && !wanted.is_end {
            hearing.wait(Some(again.saturating_duration_since(Instant::now())));
            wanted.hear(hearing, folder);
        }
    }
}

/// Follows it as long as the host is heard.
fn session(
    folder: &JobFolder,
    left: &LeftAt,
    hearing: &mut Hearing,
    wanted: &mut Wanted,
    heard: &mut Instant,
) -> Result<JobEnd, String> {
    let words = format!(
        "follow {} {} {}",
        quoted(&left.folder.to_string_lossy()),
        quoted(&left.start),
        quoted(&left.queue)
    );
    let mut remote = Remote::start(&left.host, &left.shell, &words)?;
    let mut is_end_said = false;
    loop {
        hearing.wait_with(std::slice::from_mut(&mut remote), None);
        wanted.hear(hearing, folder);
        if remote.wire.has_begun {
            *heard = remote.wire.heard;
            if wanted.is_end && !is_end_said {
                is_end_said = true;
                remote.wire.say(b'q', &[]);
            }
            for wish in std::mem::take(&mut wanted.wishes) {
                remote.wire.say(b's', &wish.text().unwrap_or_default());
            }
        }
        while let Some((letter, bytes)) = remote.wire.take() {
            match letter {
                b'x' => {
                    remote.end();
                    return Ok(JobEnd::of(&bytes).unwrap_or_else(|error| {
                        end_of(
                            End::Lost,
                            format!("its end is not understood: {error}"),
                            true,
                        )
                    }));
                }
                b'n' => {
                    remote.end();
                    return Err(String::from_utf8_lossy(&bytes).into_owned());
                }
                _ => {}
            }
        }
        remote.wire.beat();
        if remote.is_gone() {
            return Err(remote.end());
        }
    }
}

/// What is known of the job.
enum State {
    Runs(u32),
    Ended(JobEnd),
    /// Its folder is not of this host, or cannot be read.
    Unknown(String),
}

/// The host's side: says how the job of a folder ends.
///
/// # Errors
/// In words.
pub fn there(path: &Path, start: &str, queue: &str) -> Result<(), String> {
    let failed = |error: io::Error| format!("the job cannot be followed: {error}");
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut wire = Wire::new(input, output, false).map_err(failed)?;
    let folder = JobFolder::at(path.to_owned());
    let has_restarted = !start.is_empty() && machine_start()? != start;
    let mut is_said = false;
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        wire.add_to(&mut poll);
        let state = match is_said {
            true => None,
            false => Some(look(&folder, queue, has_restarted).map_err(failed)?),
        };
        let mut supervisor = None;
        match state {
            Some(State::Runs(pid)) => supervisor = PidFd::open(pid).ok(),
            Some(State::Ended(end)) => {
                is_said = true;
                wire.say(b'x', &end.text().map_err(failed)?);
            }
            Some(State::Unknown(text)) => {
                is_said = true;
                wire.say(b'n', text.as_bytes());
            }
            None => {}
        }
        if let Some(supervisor) = &supervisor {
            poll.add_readable(supervisor.as_fd());
        }
        let _ = poll.wait(Some(BEAT / 2));
        wire.go_on();
        while let Some((letter, bytes)) = wire.take() {
            match (letter, &supervisor) {
                (b'q', Some(supervisor)) => supervisor.signal(SIGTERM),
                (b's', Some(supervisor)) => {
                    if let Some(wish) = SignalWish::of(&bytes)
                        && folder.leave_signal(wish).is_ok()
                    {
                        supervisor.signal(SIGUSR1);
                    }
                }
                _ => {}
            }
        }
        wire.beat();
        if wire.is_cut() {
            return Ok(());
        }
    }
}

fn look(folder: &JobFolder, queue: &str, has_restarted: bool) -> io::Result<State> {
    let jobs = folder.path.parent().unwrap_or(&folder.path);
    let base = jobs.parent().unwrap_or(jobs);
    if !base.is_dir() {
        let text = format!("there is no folder {} there", base.display());
        return Ok(State::Unknown(text));
    }
    if !queue.is_empty() && folder.is_of_other(queue) {
        let note = "a job of another queue has its folder there";
        return Ok(State::Ended(end_of(End::Lost, note.into(), true)));
    }
    Ok(State::Ended(match folder.look()? {
        Found::Ended(end) => end,
        _ if has_restarted => end_of(End::Lost, "its host has been started anew".into(), true),
        Found::Supervised(pid) => return Ok(State::Runs(pid)),
        Found::Abandoned => {
            let note = match folder.end_rest() {
                true => "what watched over it was killed",
                false => "what watched over it was killed, and some of its processes do not end",
            };
            end_of(End::Lost, note.into(), true)
        }
        Found::Unclaimed => {
            folder.make_path()?;
            if folder.claim()?.is_none() {
                return look(folder, queue, has_restarted);
            }
            let end = end_of(End::NotStarted, NOT_STARTED.into(), false);
            // A later head finds the same.
            folder.end(&end)?;
            end
        }
    }))
}
