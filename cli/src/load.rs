//! Which hosts have least to do.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_job_launch::hosts::{is_this_machine, remote_words};
use margay_sys_os::descriptor::PollSet;

/// A host that has not answered within this time is left out.
const LIMIT: Duration = Duration::from_secs(10);

/// What is asked: the load, and how many cores there are.
const QUESTION: &str = "cat /proc/loadavg && nproc";

/// A host that is asked.
struct Asked {
    host: String,
    child: Child,
    answer: Vec<u8>,
}

/// Processes that run or want to for each core, from an answer, behind what start-up files print.
fn load(answer: &str) -> Option<f64> {
    let mut lines = answer.lines().rev().filter(|line| !line.trim().is_empty());
    let cores: f64 = lines.next()?.trim().parse().ok()?;
    let mut fields = lines.next()?.split_whitespace();
    let average: f64 = fields.next()?.parse().ok()?;
    // The average is that of a minute: who was asked a moment ago for another job shows it here.
    let running = fields.nth(2)?.split('/').next()?.parse::<f64>().ok()? - 1.0;
    Some(average.max(running) / cores.max(1.0))
}

/// Hosts with their places, and lines for those that are left out.
pub type Loads = (Vec<(String, u32)>, Vec<String>);

/// Returns the hosts in the order of their loads, those that do not answer left out, and a line for
/// each of these.
///
/// # Errors
/// When none answers.
pub fn by_load(hosts: Vec<(String, u32)>, shell: &[OsString]) -> Result<Loads, String> {
    let mut lines = Vec::new();
    let mut asked: Vec<Asked> = Vec::new();
    for (host, _) in &hosts {
        if asked.iter().any(|own| own.host == *host) {
            continue;
        }
        match ask(host, shell) {
            Ok(child) => asked.push(Asked {
                host: host.clone(),
                child,
                answer: Vec::new(),
            }),
            Err(error) => lines.push(format!(
                "host {host}: it cannot be asked for its load: {error}"
            )),
        }
    }
    let loads = answers(asked, &mut lines);
    let load_of = |host: &str| {
        let found = loads.iter().find(|(own, _)| own == host);
        found.map(|(_, load)| *load)
    };
    let mut known: Vec<(f64, (String, u32))> = hosts
        .into_iter()
        .filter_map(|own| Some((load_of(&own.0)?, own)))
        .collect();
    if known.is_empty() {
        return Err(format!(
            "-least-loaded: no host answers; {}",
            lines.join("; ")
        ));
    }
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok((known.into_iter().map(|(_, own)| own).collect(), lines))
}

fn ask(host: &str, shell: &[OsString]) -> std::io::Result<Child> {
    let mut words = match is_this_machine(host) {
        true => vec!["sh".into(), "-c".into()],
        false => remote_words(host, shell),
    };
    words.push(QUESTION.into());
    Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Collects the answers; what does not answer gets a line.
fn answers(mut asked: Vec<Asked>, lines: &mut Vec<String>) -> Vec<(String, f64)> {
    let until = Instant::now() + LIMIT;
    let mut loads = Vec::new();
    let mut poll = PollSet::default();
    while !asked.is_empty() {
        poll.clear();
        let places: Vec<Option<usize>> = (asked.iter())
            .map(|own| Some(poll.add_readable(own.child.stdout.as_ref()?.as_fd())))
            .collect();
        let left = until.saturating_duration_since(Instant::now());
        let is_over = left.is_zero() || poll.wait(Some(left)).is_err();
        let mut rest = Vec::new();
        for (mut own, place) in asked.into_iter().zip(places) {
            let mut has_ended = is_over;
            if place.is_some_and(|at| !is_over && poll.ready(at).readable) {
                let mut bytes = [0; 512];
                match own.child.stdout.as_mut().map(|out| out.read(&mut bytes)) {
                    Some(Ok(read)) if read > 0 => own.answer.extend_from_slice(&bytes[..read]),
                    _ => has_ended = true,
                }
            }
            if !has_ended {
                rest.push(own);
                continue;
            }
            // Without its output nobody needs it any more.
            let _ = own.child.kill();
            let _ = own.child.wait();
            match load(&String::from_utf8_lossy(&own.answer)) {
                Some(load) => loads.push((own.host, load)),
                None => lines.push(format!(
                    "host {}: it does not tell its load, and is left out",
                    own.host
                )),
            }
        }
        asked = rest;
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_each_core() {
        assert_eq!(load("hello\n1.00 2.00 3.00 1/234 99\n4\n"), Some(0.25));
        assert_eq!(load("0.10 2.00 3.00 5/234 99\n4\n"), Some(1.0), "now");
        assert_eq!(load("ssh: no\n"), None);
    }

    #[test]
    fn hosts_that_do_not_answer_are_left_out() {
        let hosts = vec![("nowhere".to_owned(), 3), ("localhost".to_owned(), 2)];
        let shell = ["false".into()];
        let (hosts, lines) = by_load(hosts, &shell).unwrap();
        assert_eq!(hosts, [("localhost".to_owned(), 2)]);
        assert!(
            lines.len() == 1 && lines[0].contains("nowhere"),
            "{lines:?}"
        );
        assert!(by_load(vec![("nowhere".to_owned(), 1)], &shell).is_err());
    }
}
