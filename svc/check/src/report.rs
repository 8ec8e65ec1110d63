//! What is printed: each finding once, and a summary.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use margay_core_check::{Finding, Kind};

use crate::places::Places;

/// Findings of one kind that are printed; further ones are counted.
const MOST_PRINTED: u32 = 50;

pub struct Report {
    name: String,
    pub places: Places,
    /// How often each text was found, ranks left out.
    seen: HashMap<String, u32>,
    counts: BTreeMap<Kind, u32>,
    repeated: u32,
}

impl Report {
    pub fn new(name: &str, places: Places) -> Report {
        Report {
            name: name.into(),
            places,
            seen: HashMap::new(),
            counts: BTreeMap::new(),
            repeated: 0,
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

    /// Prints the summary; returns whether anything was found. `code` is that of the job.
    pub fn end(&mut self, code: u8) -> bool {
        let total: u32 = self.counts.values().sum();
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
