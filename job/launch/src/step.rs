//! Steps of a job of a queue: what was run in it by `srun`. Each is a line of a file of the job
//! when it begins, which `srun` writes, and another when it ends, which the launcher writes that
//! `srun` has become. What watches over the job reads the file at the job's end,
//! and the head while the job runs.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use margay_sys_os::process::ReapedUsage;

use crate::used::UsedThere;

/// The variable by which `srun` says to the launcher which step it is: the number, and the process
/// for which that holds, since programs of the step inherit it.
pub const VARIABLE: &str = "MARGAY_STEP";

/// More are not known of a job; a script in a loop would fill the store.
const MOST: usize = 10_000;

/// Of what is said of them while the job runs.
const MOST_BYTES: u64 = 4 << 20;

/// Of a name, in characters.
const MOST_NAME: usize = 200;

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    pub number: u32,
    /// The name of its program.
    pub name: String,
    pub tasks: u32,
    /// Slots that it has of those of the job.
    pub slots: u32,
    /// Seconds since 1970.
    pub begun: u64,
    /// None of one that was ended with the job.
    pub end: Option<StepEnd>,
}

/// How a step ended, and what it used on all hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepEnd {
    /// Seconds since 1970.
    pub at: u64,
    /// As the launcher's: 128 and a signal's number when that ended it.
    pub status: u8,
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// The largest resident set of a process, in KiB.
    pub max_rss_kib: u64,
}

/// The file in a job's folder, where that of its nodes is.
#[must_use]
pub fn file_in(folder: &Path) -> PathBuf {
    folder.join("steps")
}

/// The step of which a process is the launcher.
#[must_use]
pub fn of_launcher(process: u32) -> Option<u32> {
    let said = std::env::var(VARIABLE).ok()?;
    let (number, of) = said.split_once(':')?;
    number.parse().ok().filter(|_| of.parse() == Ok(process))
}

/// Writes down that a step begins, and returns what the launcher is to find in [`VARIABLE`], which
/// this process becomes.
///
/// # Errors
/// What the system says.
pub fn begin(folder: &Path, step: &StepRecord) -> io::Result<String> {
    let StepRecord {
        number,
        tasks,
        slots,
        begun,
        name,
        ..
    } = step;
    let name: String = name.chars().take(MOST_NAME).collect();
    let name = name.replace(char::is_control, "?");
    let line = format!("begin {number} {tasks} {slots} {begun} {name}\n");
    add_lines(folder, line.as_bytes())?;
    Ok(format!("{number}:{}", process::id()))
}

/// Writes down that the step has ended of which this process was the launcher, if it was one.
pub fn end_of_process(status: u8) {
    let nodes = std::env::var_os("PBS_NODEFILE").map(PathBuf::from);
    let folder = nodes.as_deref().and_then(Path::parent);
    if let (Some(step), Some(folder)) = (of_launcher(process::id()), folder) {
        // The account is not worth the end of a job.
        let _ = end(folder, step, status);
    }
}

/// Writes down that a step has ended, whose processes were children of this one.
///
/// # Errors
/// What the system says.
pub fn end(folder: &Path, step: u32, status: u8) -> io::Result<()> {
    let used = ReapedUsage::so_far();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_s = now.map_or(0, |since| since.as_secs());
    let cpu_us = (used.cpu_s * 1e6) as u64;
    let rss = used.max_rss_kib;
    let line = format!("end {step} {status} {now_s} {cpu_us} {rss}\n");
    add_lines(folder, line.as_bytes())
}

/// Adds lines to the file in a job's folder.
///
/// # Errors
/// What the system says.
pub fn add_lines(folder: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(file_in(folder))?;
    file.write_all(lines)
}

/// The whole lines of the file in a job's folder from that byte on; none once it has as many bytes
/// as steps may have in earnest.
#[must_use]
pub fn lines_from(folder: &Path, start: u64) -> Vec<u8> {
    let mut lines = Vec::new();
    if start < MOST_BYTES
        && let Ok(mut file) = File::open(file_in(folder))
        && file.seek(SeekFrom::Start(start)).is_ok()
    {
        let _ = file.take(MOST_BYTES - start).read_to_end(&mut lines);
    }
    let end = lines.iter().rposition(|byte| *byte == b'\n');
    lines.truncate(end.map_or(0, |end| end + 1));
    lines
}

/// The steps of a file, with what they used on other hosts, and without what is none: a job's user
/// may write to it.
#[must_use]
pub fn records(text: &str, there: &[UsedThere]) -> Vec<StepRecord> {
    let mut steps: Vec<StepRecord> = Vec::new();
    let mut places = HashMap::new();
    for line in text.lines() {
        let mut words = line.splitn(6, ' ');
        let kind = words.next();
        let mut next = || words.next();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let Some(step) = number(next()).and_then(|step| u32::try_from(step).ok()) else {
            continue;
        };
        let [first, second, third] = [next(), next(), next()].map(number);
        let (Some(first), Some(second), Some(third)) = (first, second, third) else {
            continue;
        };
        match (kind, next(), places.get(&step)) {
            (Some("begin"), Some(name), None) if steps.len() < MOST => {
                places.insert(step, steps.len());
                steps.push(StepRecord {
                    number: step,
                    name: name.to_owned(),
                    tasks: u32::try_from(first).unwrap_or(u32::MAX),
                    slots: u32::try_from(second).unwrap_or(u32::MAX),
                    begun: third,
                    end: None,
                });
            }
            (Some("end"), rss, Some(&place)) if steps[place].end.is_none() => {
                steps[place].end = Some(StepEnd {
                    at: second.max(steps[place].begun),
                    status: u8::try_from(first).unwrap_or(u8::MAX),
                    cpu_s: third as f64 / 1e6,
                    max_rss_kib: number(rss).unwrap_or(0),
                });
            }
            _ => {}
        }
    }
    for used in there {
        let place = used.step.and_then(|step| places.get(&step));
        if let Some(end) = place.and_then(|&place| steps[place].end.as_mut()) {
            end.cpu_s += used.cpu_us as f64 / 1e6;
            end.max_rss_kib = end.max_rss_kib.max(used.max_rss_kib);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_with_their_ends_and_what_is_none_is_left_out() {
        let text = "begin 0 2 4 100 a program\nbegin 1 1 1 101 b\nbegin 1 9 9 9 again\nend 7 0 1 1 1\n\
            end 0 137 104 2500000 77\nend 0 0 200 0 0\nbegin x\nend 1\n\u{0}\nbegin 2 1 1 103";
        let there =
            [("h1", Some(0)), ("h2", Some(1)), ("h3", None)].map(|(host, step)| UsedThere {
                host: host.into(),
                cpu_us: 500_000,
                max_rss_kib: 99,
                energy_uj: None,
                step,
            });
        let step = |number, name: &str, tasks, slots, begun, end| StepRecord {
            number,
            name: name.into(),
            tasks,
            slots,
            begun,
            end,
        };
        let end = StepEnd {
            at: 104,
            status: 137,
            cpu_s: 3.0,
            max_rss_kib: 99,
        };
        let all = [
            step(0, "a program", 2, 4, 100, Some(end)),
            step(1, "b", 1, 1, 101, None),
        ];
        assert_eq!(records(text, &there), all);
    }

    #[test]
    fn a_script_in_a_loop_has_not_more_than_can_be_kept() {
        let line = |number| format!("begin {number} 1 1 5 true\nend {number} 0 5 1 1\n");
        let text: String = (0..=MOST).map(line).collect();
        assert_eq!(records(&text, &[]).len(), MOST);
    }
}
