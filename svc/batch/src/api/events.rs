//! Events: what changes of jobs, as it changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use margay_core_queue::{JobId, Phase};
use margay_svc_queue_wire::{Answer, JobRow, Request, Target, ask};

use crate::common;

/// How often the head is asked.
const EVERY: Duration = Duration::from_millis(250);

/// After how long a line is sent though nothing changes, so that one who has gone is noticed.
const ALIVE: Duration = Duration::from_secs(10);

/// Most jobs that came and went between two looks and are sent at the next one.
const MOST_NEW: usize = 1000;

/// The rows of jobs: those that wait or run, or some.
fn rows(jobs: Vec<Target>) -> Result<Vec<JobRow>, String> {
    let has_steps = !jobs.is_empty();
    match ask(&Request::List { has_steps, jobs })? {
        Answer::Jobs(rows) => Ok(rows),
        Answer::Failed(text) => Err(text),
        _ => Err("the head of the queue answers something else".into()),
    }
}

fn fail(to: &mut impl Write, text: &str) -> io::Result<()> {
    let text = serde_json::json!({ "error": text });
    write!(to, "event: error\ndata: {text}\n\n")
}

/// Sends events until nobody listens, or the head has gone. The first are the jobs that wait or
/// run.
///
/// # Errors
/// What the system says.
pub fn send(to: &mut impl Write) -> io::Result<()> {
    to.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
    )?;
    let mut known: BTreeMap<JobId, Phase> = BTreeMap::new();
    let mut last: JobId = match common::machine() {
        Ok(machine) => machine.last,
        Err(text) => return fail(to, &text),
    };
    let mut said = Instant::now();
    loop {
        let now = match rows(vec![]) {
            Ok(rows) => rows,
            Err(text) => return fail(to, &text),
        };
        let mut changed: Vec<JobRow> = Vec::new();
        let mut seen: BTreeMap<JobId, Phase> = BTreeMap::new();
        for own in now {
            seen.insert(own.id, own.phase);
            if known.remove(&own.id) != Some(own.phase) {
                changed.push(own);
            }
        }
        // Those that are left have ended.
        let one = |job: JobId| vec![Target { job, task: None }];
        for id in known.into_keys() {
            changed.extend(rows(one(id)).unwrap_or_default());
        }
        // So have those that nobody has seen.
        for _ in 0..MOST_NEW {
            let next = last + 1;
            if !seen.contains_key(&next) {
                match rows(one(next)) {
                    Ok(rows) => changed.extend(rows.into_iter().filter(|row| row.id == next)),
                    Err(_) => break,
                }
            }
            last = next;
        }
        known = seen;
        for own in &changed {
            write!(to, "event: job\nid: {}\ndata: {}\n\n", own.id, own.json())?;
        }
        if !changed.is_empty() || said.elapsed() >= ALIVE {
            if changed.is_empty() {
                to.write_all(b": nothing changes\n\n")?;
            }
            to.flush()?;
            said = Instant::now();
        }
        std::thread::sleep(EVERY);
    }
}
