//! Informing somebody of a job, by mail or by a webhook. A process of its own sends each letter, so
//! that nothing waits for the network.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use margay_core_queue::{End, JobId, MailEvent, Phase, shown};
use margay_svc_queue_wire::{JobRow, state};
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::take_defaults_in;

use super::Head;
use crate::log;
use crate::mail::Letter;
use crate::store::{Finish, Which};

/// Letters that are being sent at the same time; more are dropped, which the log says.
const MOST_LETTERS: usize = 64;

/// Tasks that a letter names.
const MOST_NAMED: usize = 20;

/// Those of one user.
const MOST_OF_USER: usize = 16;

/// What is known of letters.
#[derive(Debug, Default)]
pub(super) struct Letters {
    /// What sends them, and of which user each is.
    sent: Vec<(u32, PidFd)>,
    /// Arrays of which letters speak as a whole.
    arrays: HashMap<JobId, Whole>,
}

/// An array of which letters speak as a whole, as Slurm's do.
#[derive(Debug)]
struct Whole {
    /// Tasks that have not ended.
    left: usize,
    has_begun: bool,
}

/// What a letter says.
struct News {
    event: String,
    note: String,
    state: &'static str,
    /// It, or a task of it, has not succeeded.
    is_bad: bool,
    /// It, or a task of it, has ended at its time limit.
    is_late: bool,
}

impl News {
    fn begin() -> News {
        News {
            event: "Began".to_owned(),
            note: String::new(),
            state: state(Phase::Running(0)),
            is_bad: false,
            is_late: false,
        }
    }

    /// What is said of the end of an array.
    fn summary(rows: &[JobRow]) -> News {
        let is_bad = |row: &&JobRow| !matches!(row.phase, Phase::Ended(end) if end.is_ok());
        let bad: Vec<&JobRow> = rows.iter().filter(is_bad).collect();
        let how = match bad.len() {
            0 => "COMPLETED",
            all if all == rows.len() => "FAILED",
            _ => "Mixed",
        };
        let codes = rows.iter().filter_map(|row| match row.phase {
            Phase::Ended(End::Exit(code)) => Some(code),
            _ => None,
        });
        let codes = codes.clone().min().zip(codes.max());
        let codes = codes.map(|(least, most)| format!(", ExitCode [{least}-{most}]"));
        let named: Vec<&str> = bad.iter().take(MOST_NAMED).map(|row| &*row.shown).collect();
        let more = if named.len() < bad.len() { ", ..." } else { "" };
        let (count, all, named) = (bad.len(), rows.len(), named.join(", "));
        let note =
            (count > 0).then(|| format!("{count} of {all} tasks did not succeed: {named}{more}"));
        let last = bad.first().copied().or(rows.last());
        News {
            event: format!("Ended, {how}{}", codes.unwrap_or_default()),
            note: note.unwrap_or_default(),
            state: last.map_or("done", |row| state(row.phase)),
            is_bad: count > 0,
            is_late: (bad.iter()).any(|row| row.phase == Phase::Ended(End::TimeLimit)),
        }
    }
}

/// What a letter says of the end of a job.
fn ending(finish: &Finish, since: Option<u64>) -> String {
    let end = match finish.end {
        End::Exit(0) => "Ended, ExitCode 0".to_owned(),
        End::Exit(code) => format!("Failed, ExitCode {code}"),
        End::TimeLimit => "Failed, TIMEOUT".to_owned(),
        end => format!("Failed, {}", state(Phase::Ended(end)).to_uppercase()),
    };
    let run = since.map_or(0, |since| finish.ended.saturating_sub(since));
    format!("{end}, Run time {}", shown(run))
}

impl Head {
    /// Sends a letter, if the job asks for one: that it has begun, or how it has ended. Of an array
    /// the first begin and the last end count, unless letters of its tasks are asked for.
    pub(super) fn inform(&mut self, id: JobId, finish: Option<&Finish>) {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.is_mailed) else {
            return;
        };
        let Ok((shared, order)) = self.store.order(entry.order) else {
            return;
        };
        let asked = |event: MailEvent| order.wishes.mail.contains(&event);
        let row = entry.row(String::new());
        let whole = entry.job.array.filter(|_| !asked(MailEvent::Tasks));
        let news = match (whole, finish) {
            (None, None) => News::begin(),
            (None, Some(finish)) => News {
                event: ending(finish, row.started),
                note: finish.note.clone(),
                state: state(Phase::Ended(finish.end)),
                is_bad: !finish.end.is_ok(),
                is_late: finish.end == End::TimeLimit,
            },
            (Some(array), _) => {
                let all = order.wishes.array.as_ref();
                let all = all.map_or(1, |all| all.indices.len());
                match self.of_whole(array, (id, all), finish.is_some()) {
                    Some(news) => news,
                    None => return,
                }
            }
        };
        let is_wanted = match finish {
            None => asked(MailEvent::Begin),
            Some(_) => {
                asked(MailEvent::End)
                    || asked(MailEvent::Fail) && news.is_bad
                    || asked(MailEvent::TimeLimit) && news.is_late
            }
        };
        if !is_wanted {
            return;
        }
        let named = match whole {
            Some(array) => format!("Array Summary Job_id={array}_* ({array})"),
            None => format!("Job_id={}", row.shown),
        };
        let letter = Letter {
            to: (order.wishes.mail_to.clone()).unwrap_or_else(|| shared.user.clone()),
            subject: format!("{named} Name={} {}", row.name, news.event),
            note: news.note,
            job: whole.unwrap_or(id),
            name: row.name,
            state: news.state.to_owned(),
            host: self.resources.host.clone(),
            owner: shared.owner.clone(),
        };
        let uid = row.uid;
        self.letters
            .sent
            .retain(|(_, process)| !process.has_ended());
        let own = self
            .letters
            .sent
            .iter()
            .filter(|(of, _)| *of == uid)
            .count();
        let is_shared = shared.owner.is_some();
        if self.letters.sent.len() >= MOST_LETTERS || is_shared && own >= MOST_OF_USER {
            log(&format!(
                "job {id}: too many letters at once; this one is not sent"
            ));
            return;
        }
        match self.post(&letter) {
            Ok(process) => self.letters.sent.push((uid, process)),
            Err(error) => log(&format!("job {id}: cannot send a letter: {error}")),
        }
    }

    /// What a letter of an array says now that a task of it has begun, or ended: of its first begin
    /// and its last end, nothing of the others. It has `all` tasks.
    fn of_whole(&mut self, array: JobId, (id, all): (JobId, usize), is_end: bool) -> Option<News> {
        let entries = &self.entries;
        let whole = self.letters.arrays.entry(array).or_insert_with(|| {
            let since = |id: JobId| match entries.get(&id)?.job.phase {
                Phase::Running(since) => Some(since),
                _ => None,
            };
            let own = entries.values().filter(|of| of.job.array == Some(array));
            let own: Vec<JobId> = own.map(|of| of.job.id).collect();
            let earlier = |other: &JobId| since(*other).is_some_and(|at| since(id) > Some(at));
            Whole {
                left: own.len(),
                has_begun: is_end || own.len() < all || own.iter().any(earlier),
            }
        });
        if !is_end {
            let is_first = !std::mem::replace(&mut whole.has_begun, true);
            return is_first.then(News::begin);
        }
        whole.left = whole.left.saturating_sub(1);
        if whole.left > 0 {
            return None;
        }
        self.letters.arrays.remove(&array);
        let last = array + all as JobId - 1;
        let rows = self.store.ended(Which::Between(array, last)).ok()?;
        Some(News::summary(&rows))
    }

    fn post(&self, letter: &Letter) -> std::io::Result<PidFd> {
        let mut command = Command::new(&self.resources.program);
        command
            .arg("post")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = take_defaults_in(&mut command).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // Far less than a pipe holds.
            stdin.write_all(&serde_json::to_vec(letter)?)?;
        }
        PidFd::open(child.id())
    }
}
