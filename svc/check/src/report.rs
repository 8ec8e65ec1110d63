//! What is printed: each finding once, and a summary.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use margay_core_check::{Finding, Kind};

use crate::places::Places;

/// Errors of `perf_event_open`, which have these numbers on all processors.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;
/// In place of an error, as in `abi/check/watch.h`.
const SPARING: i64 = -1;

/// Findings of one kind that are printed; further ones are counted.
const MOST_PRINTED: u32 = 50;

pub struct Report {
    name: String,
    pub places: Places,
    /// How often each text was found, ranks left out.
    seen: HashMap<String, u32>,
    counts: BTreeMap<Kind, u32>,
    repeated: u32,
    was_unwatched: bool,
    was_left_out: Vec<&'static str>,
}

impl Report {
    pub fn new(name: &str, places: Places) -> Report {
        Report {
            name: name.into(),
            places,
            seen: HashMap::new(),
            counts: BTreeMap::new(),
            repeated: 0,
            was_unwatched: false,
            was_left_out: Vec::new(),
        }
    }

    /// Prints what has been found and has not been printed.
    pub fn take(&mut self, found: Vec<Finding>) {
        for finding in found {
            let text = finding.text(|site| self.places.words(site));
            let times = self.seen.entry(without_ranks(&text)).or_default();
            *times += 1;
            if *times > 1 {
                self.repeated += 1;
                continue;
            }
            let count = self.counts.entry(finding.kind).or_default();
            *count += 1;
            if *count <= MOST_PRINTED {
                self.line(&format!("check: {}: {text}", finding.kind.name()));
            }
        }
    }

    /// Says once why loads and stores are not looked at in some process: the error of the system
    /// call, or 0.
    pub fn unwatched(&mut self, error: i64) {
        if error == SPARING {
            return self.left_out(vec![
                "loads and stores of the program are looked at in some of its operations only: they begin faster than watch registers can be set in a sixteenth of the time",
            ]);
        }
        if std::mem::replace(&mut self.was_unwatched, true) {
            return;
        }
        let error = i32::try_from(error).unwrap_or_default();
        let why = match error {
            0 => "the program or a debugger uses SIGTRAP itself".to_owned(),
            ENOSYS => "this system or processor cannot (Linux 5.13 on x86-64 can; in a container, allow perf_event_open in its seccomp profile)".to_owned(),
            EACCES | EPERM => "the system refuses perf_event_open; set kernel.perf_event_paranoid to 2 or less, and in a container allow perf_event_open in its seccomp profile".to_owned(),
            _ => format!("perf_event_open: {}; a debugger may have the processor's watch registers, and it needs Linux 5.13", io::Error::from_raw_os_error(error)),
        };
        self.line(&format!(
            "check: loads and stores of the program are not looked at: {why}"
        ));
    }

    /// Says once what is no longer looked at, because there is too much of it.
    pub fn left_out(&mut self, what: Vec<&'static str>) {
        for what in what {
            if !self.was_left_out.contains(&what) {
                self.line(&format!("check: {what}"));
                self.was_left_out.push(what);
            }
        }
    }

    /// Prints the summary; returns whether anything was found. `code` is that of the job; `seen` of
    /// `all` ranks have been looked at.
    pub fn end(&mut self, code: u8, (seen, all): (usize, usize)) -> bool {
        let total: u32 = self.counts.values().sum();
        let others =
            "ranks that end before MPI_Init and programs that are linked statically are not";
        if seen == 0 {
            self.line(&format!("check: no rank was looked at; {others}"));
            return total > 0;
        }
        if seen < all {
            self.line(&format!(
                "check: {seen} of {all} ranks were looked at; {others}"
            ));
        }
        if total == 0 {
            self.line(&match code {
                0 => "check: no errors found".to_owned(),
                code => format!("check: the job ended with code {code}; no other error found"),
            });
            return false;
        }
        let kinds: Vec<String> = (self.counts.iter())
            .map(|(kind, n)| format!("{n} {}", kind.name()))
            .collect();
        let many = if total == 1 { "error" } else { "errors" };
        let again = match self.repeated {
            0 => String::new(),
            n => format!("; {n} more of the same at the same places"),
        };
        self.line(&format!(
            "check: {total} {many} found: {}{again}",
            kinds.join(", ")
        ));
        true
    }

    fn line(&self, text: &str) {
        // One write, so that lines of the job's ranks do not come between.
        let _ = io::stderr().write_all(format!("{}: {text}\n", self.name).as_bytes());
    }
}

/// The text with each rank's number left out: what several ranks do is one error.
fn without_ranks(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("rank ") {
        let (before, after) = rest.split_at(at + "rank ".len());
        kept.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    kept + rest
}
