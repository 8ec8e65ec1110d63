//! Asking the head.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::{Answer, Request, Target, find_head, read_within, write};

/// How long the head may take to answer what needs no waiting.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// How long another head has to take the place of one that is gone, for commands that wait: one
/// that stands by leads within 10 s, and reaches this host when it has found the others.
pub const TAKES_OVER_WITHIN: Duration = Duration::from_secs(60);

/// How often one is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Why there is no answer.
enum Unanswered {
    /// The head is gone, or cannot answer now: another one may.
    Gone(String),
    /// In words.
    Failed(String),
}

/// Asks the head, and waits for its answer.
///
/// # Errors
/// In words, when there is no head or no answer.
pub fn ask(request: &Request) -> Result<Answer, String> {
    converse(&mut find_head()?, request)
}

/// Waits until jobs have ended, all that wait or run now when none is named. When the head goes,
/// the next one is asked. `is_known` says that there has been one before; `says` shows a line.
///
/// # Errors
/// In words, when there is no head.
pub fn wait(
    jobs: Vec<Target>,
    is_known: bool,
    says: &mut dyn FnMut(&str),
) -> Result<Answer, String> {
    // Those that end while no head leads count as well: they are asked for by their numbers.
    let named = match &jobs[..] {
        [] => match ask(&Request::Numbers)? {
            Answer::Accepted(all) if all.is_empty() => return Ok(Answer::Jobs(Vec::new())),
            Answer::Accepted(all) => {
                let target = |&(job, _): &(u64, usize)| Target { job, task: None };
                all.iter().map(target).collect()
            }
            other => return Ok(other),
        },
        _ => jobs.clone(),
    };
    let first = Request::Wait { jobs };
    let again = Request::Wait { jobs: named };
    ask_again(&first, &again, is_known, says)
}

fn ask_again(
    first: &Request,
    again: &Request,
    is_known: bool,
    says: &mut dyn FnMut(&str),
) -> Result<Answer, String> {
    let mut request = first;
    let mut gone: Option<Instant> = None;
    loop {
        let asked = match find_head() {
            Ok(mut stream) => try_converse(&mut stream, request),
            Err(text) if gone.is_none() && !is_known => Err(Unanswered::Failed(text)),
            Err(text) => Err(Unanswered::Gone(text)),
        };
        let why = match asked {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Failed(text)) => return Err(text),
            Err(Unanswered::Gone(why)) => why,
        };
        let since = *gone.get_or_insert_with(Instant::now);
        if std::ptr::eq(request, first) {
            let seconds = TAKES_OVER_WITHIN.as_secs();
            says(&format!(
                "{why}; jobs go on, and the next head of the queue is asked, for {seconds} s"
            ));
            request = again;
        }
        if since.elapsed() >= TAKES_OVER_WITHIN {
            return Err(why);
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks over a connection.
///
/// # Errors
/// In words, when no answer comes.
pub fn converse(stream: &mut UnixStream, request: &Request) -> Result<Answer, String> {
    try_converse(stream, request).map_err(|why| match why {
        Unanswered::Gone(text) | Unanswered::Failed(text) => text,
    })
}

fn try_converse(stream: &mut UnixStream, request: &Request) -> Result<Answer, Unanswered> {
    let timeout = match request {
        Request::Wait { .. } => None,
        _ => Some(ANSWERED_WITHIN),
    };
    let _ = stream.set_read_timeout(timeout);
    // A head that does not take all of it has answered why.
    let sent = write(stream, request);
    // The head says no more than it was asked for, which may be all jobs of years.
    let answer = read_within(stream, &mut |_| true);
    match answer.map_err(|error| (error.kind(), error)) {
        Ok(Answer::Gone(text)) => Err(Unanswered::Gone(text)),
        Ok(answer) => Ok(answer),
        Err((ErrorKind::WouldBlock, _)) => {
            let seconds = ANSWERED_WITHIN.as_secs();
            Err(Unanswered::Failed(format!(
                "the head of the queue does not answer within {seconds} s; is it stopped?"
            )))
        }
        Err((ErrorKind::InvalidData, error)) => Err(Unanswered::Failed(format!(
            "the head of the queue answers something else ({error}); is it of another version?"
        ))),
        Err((_, error)) => Err(Unanswered::Gone(match sent {
            Err(error) => format!("the head of the queue does not listen: {error}"),
            Ok(()) => format!(
                "the head of the queue has ended before it answered ({error}); start it again with margay up, and see with \
                 margay queue what it has accepted"
            ),
        })),
    }
}
