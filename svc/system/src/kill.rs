//! `margay kill`: signals for jobs and for single ranks, wherever these run.

use std::ffi::OsString;

use margay_job_launch::report::host_name;
use margay_job_observe::mesh::{JobView, Mesh};
use margay_sys_os::signal;

use crate::reach::Reach;
use crate::{Failed, usage};

/// The signals that are sent by name.
const NAMES: [(&str, i32); 14] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("WINCH", 28),
];

fn signal_number(text: &str) -> Result<i32, Failed> {
    let upper = text.to_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|own| own.0 == name).map(|own| own.1);
    let number = || text.parse().ok().filter(|number| (1..=64).contains(number));
    named
        .or_else(number)
        .ok_or_else(|| usage(format!("kill: '{text}' is no signal such as TERM or 15")))
}

/// A job, or one of its ranks.
fn target(text: &str) -> Result<(u64, Option<u32>), Failed> {
    let wrong = || {
        usage(format!(
            "kill: '{text}' is no job and no rank such as 1234.5"
        ))
    };
    let (job, rank) = match text.split_once('.') {
        Some((job, rank)) => (job, Some(rank.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    Ok((job.parse().map_err(|_| wrong())?, rank))
}

/// Runs the command.
pub(crate) fn run(words: &[OsString]) -> Result<u8, Failed> {
    let mut number = signal_number("TERM")?;
    let mut targets = Vec::new();
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some("s" | "-signal") => {
                let text = words
                    .next()
                    .ok_or_else(|| usage("kill: -s needs a signal"))?;
                number = signal_number(&text)?;
            }
            Some(text) => number = signal_number(text)?,
            None => targets.push(target(&word)?),
        }
    }
    if targets.is_empty() {
        return Err(usage("kill: which job? margay ps lists them"));
    }
    let jobs = Mesh::default().look();
    let mut status = 0;
    for (job, rank) in targets {
        let found = jobs.iter().find(|own| own.job == job);
        let sent = match found {
            None => Err(format!("there is no job {job} here")),
            Some(view) => send(view, rank, number),
        };
        if let Err(text) = sent {
            // The others get theirs.
            crate::finish("margay kill", Err(text.into()));
            status = 1;
        }
    }
    Ok(status)
}

fn send(job: &JobView, rank: Option<u32>, number: i32) -> Result<(), String> {
    let Some(rank) = rank else {
        // The launcher passes it on, or its end is that of the job.
        let launcher = u32::try_from(job.job).unwrap_or(0);
        return signal::send(launcher, number).map_err(|error| format!("job {}: {error}", job.job));
    };
    let name = format!("rank {rank} of job {}", job.job);
    let own = job.rank.iter().find(|own| own.rank == rank);
    let own = own.ok_or_else(|| format!("there is no {name}; it has {} ranks", job.ranks))?;
    if own.pid == 0 {
        return Err(format!("{name} has not started"));
    }
    match own.host.as_deref().filter(|host| *host != host_name()) {
        None => signal::send(own.pid, number).map_err(|error| format!("{name}: {error}")),
        Some(host) => {
            let command = format!("kill -{number} {}", own.pid);
            Reach::usual()
                .run(host, &command)
                .map_err(|text| format!("{name}: {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_targets_are_read() {
        let number = |text: &str| signal_number(text).ok();
        assert_eq!(number("term"), Some(15));
        assert_eq!(number("SIGUSR1"), Some(10));
        assert_eq!(number("34"), Some(34));
        assert!(number("0").is_none() && number("X").is_none());
        assert!(matches!(target("12.3"), Ok((12, Some(3)))));
        assert!(matches!(target("12"), Ok((12, None))));
        assert!(target("12.").is_err() && target("x").is_err());
    }
}
