//! A job that begins on another host, as its supervisor here watches it: the remote shell starts
//! this program there, which runs the job ([`there`](crate::there)). Output comes here, into the
//! same files as that of other jobs.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::time::Duration;

use margay_core_queue::End;
use margay_job_launch::step;
use margay_job_launch::turns::{Said, Turns, Wanted};
use margay_svc_queue_wire::Usage;

use crate::files::{JobEnd, JobFolder, JobOrder};
use crate::hearing::Hearing;
use crate::shell::{Remote, quoted};
use crate::site::Away;
use crate::wire::BEAT;
use crate::writer::Writer;
use crate::{gang, hold};
use crate::{now_s, output};

/// When nothing was heard for so long, the other side has ended the job: it does so after
/// [`SILENCE`](crate::wire::SILENCE).
pub const LOST_AFTER: Duration = Duration::from_secs(14);

/// A job that did not run, or about whose end nothing is known.
fn without(end: End, note: String, has_begun: bool) -> JobEnd {
    JobEnd {
        end,
        ended: now_s(),
        usage: Usage::default(),
        note,
        has_begun,
        steps: Vec::new(),
    }
}

/// The turns of a job that has several hosts, in the partition of its queue.
struct OwnTurns<'a> {
    order: &'a JobOrder,
    turns: Turns,
    has_begun: bool,
    is_in: bool,
    /// What was last said to its hosts.
    was_in: bool,
    /// Who gives turns waits until all of it has stopped.
    is_awaited: bool,
    /// Which hosts have said so.
    stopped: Vec<bool>,
}

impl<'a> OwnTurns<'a> {
    /// Asks for the first turn of a job that takes turns.
    fn ask(order: &'a JobOrder) -> Result<Option<OwnTurns<'a>>, String> {
        let Some(partition) = order.gang.as_ref() else {
            return Ok(None);
        };
        if let Some(user) = &order.user {
            gang::may_run(partition, &user.owner)?;
        }
        let turns = Self::turns(order, partition)?;
        Ok(Some(OwnTurns {
            order,
            turns,
            has_begun: false,
            is_in: false,
            was_in: true,
            is_awaited: false,
            stopped: Vec::new(),
        }))
    }

    /// What asks for its turns.
    fn turns(order: &JobOrder, partition: &str) -> Result<Turns, String> {
        // A script is known by the job's name.
        let names = order.environment.iter().filter_map(|variable| {
            let variable = variable.0.to_str()?;
            variable.strip_prefix("SLURM_JOB_NAME=")
        });
        let name = names.filter(|_| order.script.is_some()).map(Cow::from);
        let words = order.arguments.iter().take(20);
        let words = words.map(|word| word.0.to_string_lossy());
        let words: Vec<_> = name.chain(words).collect();
        let turns = Turns::ask(&Wanted {
            name: partition,
            ranks: None,
            is_exact: false,
            pool: None,
            priority: Some(order.turn_priority),
            command: &format!("job {}: {}", order.job, words.join(" ")),
            launcher: "",
        })?;
        turns.began(std::process::id());
        Ok(turns)
    }

    /// Takes what was said of its turns.
    ///
    /// # Errors
    /// Why it gets none.
    fn hear(&mut self) -> Result<(), String> {
        while let Some(said) = self.turns.news() {
            match said {
                Said::In(_) => (self.is_in, self.has_begun) = (true, true),
                Said::Out => (self.is_in, self.is_awaited) = (false, true),
                // Of another one, see below.
                Said::Refused(_) if self.has_begun => self.is_in = true,
                Said::Refused(text) => return Err(text),
                // It is stopped until another one has a turn for it; where that gets none, it goes
                // on without turns.
                Said::Gone if self.has_begun => {
                    let partition = self.order.gang.as_deref().unwrap_or_default();
                    let again = Self::turns(self.order, partition);
                    (self.is_in, self.is_awaited) = (again.is_err(), false);
                    if let Ok(turns) = again {
                        self.turns = turns;
                    }
                }
                Said::Gone => return Err("what asks for its turns has died".into()),
            }
        }
        Ok(())
    }

    /// Has the processes on all hosts stop or go on, once there are any, and says when they have
    /// stopped.
    fn pass_on(&mut self, remotes: &mut [Remote], has_processes: bool) {
        if has_processes && self.is_in != self.was_in {
            let letter = if self.is_in { b'g' } else { b'p' };
            self.stopped.resize(remotes.len(), false);
            for remote in remotes {
                remote.wire.say(letter, &[]);
            }
            self.was_in = self.is_in;
            self.stopped.fill(false);
        }

        let is_done = !has_processes || self.stopped.iter().all(|stopped| *stopped);
        if self.is_awaited && is_done {
            self.is_awaited = false;
            self.turns.halted();
        }
    }
}

impl Drop for OwnTurns<'_> {
    fn drop(&mut self) {
        self.turns.ended();
    }
}

/// Where a job begins; with turns on several hosts also what holds the rest of it on each.
fn start(order: &JobOrder, away: &Away) -> Result<Vec<Remote>, String> {
    let mut remotes = vec![Remote::start(&away.host, &away.shell, "there")?];
    if let Some(name) = order.held.as_ref().filter(|_| order.parts.len() > 1) {
        let owner = order.user.iter().map(|user| hold::words_of(&user.owner));
        let owner: String = owner.collect();
        for part in &order.parts {
            let words = format!("hold {name} {}{owner}", quoted(&part.host));
            remotes.push(Remote::start(&part.host, &away.shell, &words)?);
        }
    }
    Ok(remotes)
}

/// Waits for the first turn of a job; how it ended, when it has none.
fn first_turn(own: &mut OwnTurns<'_>, folder: &JobFolder, hearing: &mut Hearing) -> Option<JobEnd> {
    while !own.is_in {
        hearing.wait_with(&mut [], Some(&own.turns));
        if hearing.news(folder).is_end {
            return Some(without(End::Cancelled, String::new(), true));
        }
        if let Err(text) = own.hear() {
            return Some(without(End::NotStarted, text, true));
        }
    }
    None
}

/// Runs a job on another host, or several; returns how it ended.
pub fn run(folder: &JobFolder, order: &JobOrder, away: &Away, hearing: &mut Hearing) -> JobEnd {
    let not_started = |text| without(End::NotStarted, text, true);
    let mut files = match Outputs::open(order) {
        Ok(files) => files,
        Err(text) => return not_started(text),
    };
    let mut turns = match OwnTurns::ask(order) {
        Ok(turns) => turns,
        Err(text) => return not_started(text),
    };
    if let Some(own) = &mut turns
        && let Some(end) = first_turn(own, folder, hearing)
    {
        return end;
    }
    let mut remotes = match start(order, away) {
        Ok(remotes) => remotes,
        Err(text) => return not_started(text),
    };
    let mut is_sent = false;
    let mut is_ended = false;
    loop {
        hearing.wait_with(&mut remotes, turns.as_ref().map(|own| &own.turns));
        files.go_on();
        let news = hearing.news(folder);
        if news.is_end && !is_sent {
            end_all(remotes, 0);
            return without(End::Cancelled, String::new(), true);
        }
        if news.is_end && !is_ended {
            is_ended = true;
            remotes[0].wire.say(b'q', &[]);
        }
        for wish in news.wishes {
            remotes[0].wire.say(b's', &wish.text().unwrap_or_default());
        }
        while let Some((letter, bytes)) = remotes[0].wire.take() {
            match letter {
                b'o' | b'e' => files.say(letter, &bytes),
                b'p' => note_stopped(&mut turns, 0),
                // Lacking, they come with the job's end.
                b't' => drop(step::add_lines(&folder.path, &bytes)),
                b'x' => {
                    let mut end = ended(&bytes, is_ended);
                    end_all(remotes, 0);
                    end.note += &files.end();
                    return end;
                }
                _ => {}
            }
        }
        for (at, remote) in remotes.iter_mut().enumerate().skip(1) {
            while let Some((letter, _)) = remote.wire.take() {
                if letter == b'p' {
                    note_stopped(&mut turns, at);
                }
            }
        }
        if let Some(own) = &mut turns {
            // What has begun is not refused any more.
            let _ = own.hear();
            own.pass_on(&mut remotes, is_sent);
        }
        let is_in = turns.as_ref().is_none_or(|own| own.is_in);
        if is_in && !is_sent && remotes.iter().all(|remote| remote.wire.has_begun) {
            is_sent = true;
            remotes[0].wire.say(b'j', &order.text().unwrap_or_default());
        }
        remotes.iter_mut().for_each(|remote| remote.wire.beat());
        let is_over = |remote: &Remote| match is_sent {
            true => remote.wire.heard.elapsed() >= LOST_AFTER,
            false => remote.is_gone(),
        };
        let Some(at) = remotes.iter().position(is_over) else {
            // The other side has ended, and what it does to the job takes its time.
            if remotes.iter().any(|remote| !remote.wire.is_open) {
                std::thread::sleep(BEAT / 8);
            }
            continue;
        };
        let part = at.checked_sub(1).and_then(|at| order.parts.get(at));
        let host = part.map_or(&away.host, |part| &part.host);
        let why = end_all(remotes, at);
        return match is_sent {
            true => without(
                End::Lost,
                format!("host {host}: {why}; the job has been ended there"),
                true,
            ),
            false => without(End::NotStarted, format!("host {host}: {why}"), false),
        };
    }
}

fn note_stopped(turns: &mut Option<OwnTurns<'_>>, host: usize) {
    if let Some(stopped) = turns.as_mut().and_then(|own| own.stopped.get_mut(host)) {
        *stopped = true;
    }
}

/// Ends all connections; why one was of no use, in words.
fn end_all(remotes: Vec<Remote>, at: usize) -> String {
    let ended = remotes.into_iter().map(Remote::end);
    ended.enumerate().fold(
        String::new(),
        |why, (host, text)| {
            if host == at { text } else { why }
        },
    )
}

/// Where the output of the job goes.
enum Outputs {
    /// The files, and what could not be written.
    Files([File; 2], String),
    /// What writes with the rights of the job's user.
    Writer(Writer),
}

impl Outputs {
    fn open(order: &JobOrder) -> Result<Outputs, String> {
        match &order.user {
            Some(_) => Writer::start(order).map(Outputs::Writer),
            None => output::files(order).map(|files| Outputs::Files(files, String::new())),
        }
    }

    fn say(&mut self, letter: u8, bytes: &[u8]) {
        match self {
            Outputs::Writer(writer) => writer.say(letter, bytes),
            Outputs::Files(files, lost) => {
                let file = &mut files[usize::from(letter == b'e')];
                if let Err(error) = file.write_all(bytes) {
                    *lost = format!(" (output is missing: {error})");
                }
            }
        }
    }

    fn go_on(&mut self) {
        if let Outputs::Writer(writer) = self {
            writer.go_on();
        }
    }

    /// What is lost, in words.
    fn end(self) -> String {
        match self {
            Outputs::Files(_, lost) => lost,
            Outputs::Writer(writer) => writer.end(),
        }
    }
}

/// How the job ended, as the other side says.
fn ended(bytes: &[u8], is_ended: bool) -> JobEnd {
    let mut end: JobEnd = match JobEnd::of(bytes) {
        Ok(end) => end,
        Err(error) => {
            return without(
                End::Lost,
                format!("how it ended is not understood: {error}"),
                true,
            );
        }
    };
    // Clocks differ.
    end.ended = now_s();
    if is_ended && end.end == End::Lost {
        end.end = End::Cancelled;
    }
    end
}
