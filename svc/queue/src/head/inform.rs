//! Informing somebody of a job, by mail or by a webhook. A process of its own sends each letter, so
//! that nothing waits for the network.

use std::io::Write;
use std::process::{Command, Stdio};

use margay_core_queue::{End, JobId, MailEvent, Phase, shown};
use margay_svc_queue_wire::state;
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::take_defaults_in;

use super::Head;
use crate::log;
use crate::mail::Letter;
use crate::store::Finish;

/// Letters that are being sent at the same time; more are dropped, which the log says.
const MOST_LETTERS: usize = 64;

/// Those of one user.
const MOST_OF_USER: usize = 16;

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
    /// Sends a letter, if the job asks for one: that it has begun, or how it has ended.
    pub(super) fn inform(&mut self, id: JobId, finish: Option<&Finish>) {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.is_mailed) else {
            return;
        };
        let Ok((shared, order)) = self.store.order(entry.order) else {
            return;
        };
        let asked = |event: MailEvent| order.wishes.mail.contains(&event);
        let is_wanted = match finish.map(|finish| finish.end) {
            None => asked(MailEvent::Begin),
            Some(end) => {
                asked(MailEvent::End)
                    || asked(MailEvent::Fail) && !end.is_ok()
                    || asked(MailEvent::TimeLimit) && end == End::TimeLimit
            }
        };
        if !is_wanted {
            return;
        }
        let row = entry.row(String::new());
        let (phase, what) = match finish {
            None => (row.phase, "Began".to_owned()),
            Some(finish) => (Phase::Ended(finish.end), ending(finish, row.started)),
        };
        let letter = Letter {
            to: order
                .wishes
                .mail_to
                .clone()
                .unwrap_or_else(|| shared.user.clone()),
            subject: format!("Job_id={} Name={} {what}", row.shown, row.name),
            note: finish.map_or_else(String::new, |finish| finish.note.clone()),
            job: id,
            name: row.name,
            state: state(phase).to_owned(),
            host: self.resources.host.clone(),
            owner: shared.owner.clone(),
        };
        let uid = entry.uid;
        self.letters.retain(|(_, process)| !process.has_ended());
        let own = self.letters.iter().filter(|(of, _)| *of == uid).count();
        let is_shared = shared.owner.is_some();
        if self.letters.len() >= MOST_LETTERS || is_shared && own >= MOST_OF_USER {
            log(&format!(
                "job {id}: too many letters at once; this one is not sent"
            ));
            return;
        }
        match self.post(&letter) {
            Ok(process) => self.letters.push((uid, process)),
            Err(error) => log(&format!("job {id}: cannot send a letter: {error}")),
        }
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
