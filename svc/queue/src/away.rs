//! A job that begins on another host, as its supervisor here watches it: the remote shell starts
//! this program there, which runs the job ([`there`](crate::there)). Output comes here, into the
//! same files as that of other jobs.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use margay_core_queue::End;
use margay_svc_queue_wire::Usage;

use crate::files::{JobEnd, JobFolder, JobOrder};
use crate::hearing::Hearing;
use crate::shell::{Remote, STARTED_WITHIN};
use crate::site::Away;
use crate::wire::BEAT;
use crate::writer::Writer;
use crate::{now_s, output};

/// When nothing was heard for so long, the other side has ended the job: it does so after
/// [`SILENCE`](crate::wire::SILENCE).
const LOST_AFTER: Duration = Duration::from_secs(14);

/// A job that did not run, or about whose end nothing is known.
fn without(end: End, note: String, has_begun: bool) -> JobEnd {
    JobEnd {
        end,
        ended: now_s(),
        usage: Usage::default(),
        note,
        has_begun,
    }
}

/// Runs a job on another host; returns how it ended.
pub fn run(folder: &JobFolder, order: &JobOrder, away: &Away, hearing: &mut Hearing) -> JobEnd {
    let mut files = match Outputs::open(order) {
        Ok(files) => files,
        Err(text) => return without(End::NotStarted, text, true),
    };
    let mut remote = match Remote::start(&away.host, &away.shell, "there") {
        Ok(remote) => remote,
        Err(text) => return without(End::NotStarted, text, true),
    };
    let begun = Instant::now();
    let mut is_sent = false;
    let mut is_ended = false;
    loop {
        hearing.wait_with(&mut remote);
        files.go_on();
        let news = hearing.news(folder);
        if news.is_end && !is_sent {
            remote.end();
            return without(End::Cancelled, String::new(), true);
        }
        if news.is_end && !is_ended {
            is_ended = true;
            remote.wire.say(b'q', &[]);
        }
        for wish in news.wishes {
            remote.wire.say(b's', &wish.text().unwrap_or_default());
        }
        while let Some((letter, bytes)) = remote.wire.take() {
            match letter {
                b'o' | b'e' => files.say(letter, &bytes),
                b'x' => {
                    let mut end = ended(&bytes, is_ended);
                    remote.end();
                    end.note += &files.end();
                    return end;
                }
                _ => {}
            }
        }
        if remote.wire.has_begun && !is_sent {
            is_sent = true;
            remote.wire.say(b'j', &order.text().unwrap_or_default());
        }
        remote.wire.beat();
        let silence = remote.wire.heard.elapsed();
        let is_over = match is_sent {
            true => silence >= LOST_AFTER,
            false => !remote.wire.is_open || begun.elapsed() >= STARTED_WITHIN,
        };
        if !is_over {
            // The other side has ended, and what it does to the job takes its time.
            if !remote.wire.is_open {
                std::thread::sleep(BEAT / 8);
            }
            continue;
        }
        let host = &away.host;
        let why = remote.end();
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
