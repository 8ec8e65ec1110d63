//! Asking the head.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use margay_core_queue::JobId;

use crate::{Answer, Request, Target, find_head, read_within, write};

/// How long the head may take to answer what needs no waiting.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// How long another head has to take the place of one that is gone, for commands that wait: one
/// that stands by leads within 10 s, and reaches this host when it has found the others.
pub const TAKES_OVER_WITHIN: Duration = Duration::from_secs(60);

/// How often one is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// After how long who waits asks anew: what passes it on to the head of another host may have lost
/// it in the moment in which that head went.
const ASKED_ANEW: Duration = Duration::from_secs(20);

/// Why there is no answer.
enum Unanswered {
    /// Nothing has been said yet to who waits.
    Silent,
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

/// Asks for the jobs that have ended at a second since 1970 or later, in the order in which they
/// did, page by page: the head has time for others between. `take` is given each page, and says
/// when the last job of it ended and its number; none of an empty one.
///
/// # Errors
/// In words, when there is no head or no answer; what `take` says.
pub fn each_ended(
    since: u64,
    is_whole: bool,
    mut take: impl FnMut(Answer) -> Result<Option<(u64, JobId)>, String>,
) -> Result<(), String> {
    let mut next = Some((since, 0));
    while let Some((second, job)) = next {
        next = take(ask(&Request::Ended {
            second,
            job,
            is_whole,
        })?)?;
    }
    Ok(())
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
    mut is_known: bool,
    says: &mut dyn FnMut(&str),
) -> Result<Answer, String> {
    let mut request = first;
    let mut is_said = false;
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
            Err(Unanswered::Silent) => {
                (request, gone, is_known) = (again, None, true);
                continue;
            }
        };
        let since = *gone.get_or_insert_with(Instant::now);
        request = again;
        if !is_said {
            is_said = true;
            let seconds = TAKES_OVER_WITHIN.as_secs();
            says(&format!(
                "{why}; jobs go on, and the next head of the queue is asked, for {seconds} s"
            ));
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
        Unanswered::Silent => "the head of the queue has not answered yet".into(),
    })
}

fn try_converse(stream: &mut UnixStream, request: &Request) -> Result<Answer, Unanswered> {
    let timeout = match request {
        Request::Wait { .. } => ASKED_ANEW,
        _ => ANSWERED_WITHIN,
    };
    let _ = stream.set_read_timeout(Some(timeout));
    // A head that does not take all of it has answered why.
    let sent = write(stream, request);
    // The head says no more than it was asked for, which may be all jobs of years.
    let answer = read_within(stream, &mut |_| true);
    match answer.map_err(|error| (error.kind(), error)) {
        Ok(Answer::Gone(text)) => Err(Unanswered::Gone(text)),
        Ok(answer) => Ok(answer),
        Err((ErrorKind::WouldBlock, _)) if matches!(request, Request::Wait { .. }) => {
            Err(Unanswered::Silent)
        }
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
