//! What a job asks for, whichever way it is said.

use serde::{Deserialize, Serialize};

use crate::begin::BeginTime;
use crate::job::{Dependency, TaskDependency};

/// Most tasks of an array.
const MOST_TASKS: usize = 100_000;

/// Whose manners a job's script follows: where it begins, and how its output is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    #[default]
    Slurm,
    Pbs,
    LoadLeveler,
}

/// How many of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Size {
    pub nodes: Option<u32>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    /// All slots of the machine.
    pub is_exclusive: bool,
    /// The job's memory, in MiB.
    pub memory_mib: Option<u64>,
    /// The memory of each slot, in MiB.
    pub slot_memory_mib: Option<u64>,
}

impl Size {
    /// The number of tasks.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        let nodes = self.nodes.unwrap_or(1);
        let by_nodes = nodes.saturating_mul(self.tasks_per_node.unwrap_or(1));
        self.tasks.unwrap_or(by_nodes).max(1)
    }

    /// The job's memory in MiB, on a machine that has `slots`.
    #[must_use]
    pub fn memory(&self, slots: u32) -> Option<u64> {
        let by_slots = || {
            let each = self.slot_memory_mib?;
            Some(each.saturating_mul(u64::from(self.slots(slots))))
        };
        self.memory_mib.or_else(by_slots)
    }

    /// On how many hosts the tasks are to be, on a machine of several; none where it does not
    /// matter.
    #[must_use]
    pub fn hosts(&self) -> Option<u32> {
        let by_tasks = || Some(self.tasks?.div_ceil(self.tasks_per_node?.max(1)));
        self.nodes.or_else(by_tasks)
    }

    /// The number of slots, on a machine that has `slots`. One node is one slot at least.
    #[must_use]
    pub fn slots(&self, slots: u32) -> u32 {
        let tasks = self.tasks().max(self.nodes.unwrap_or(1));
        let asked = tasks.saturating_mul(self.cpus_per_task.unwrap_or(1));
        if self.is_exclusive {
            asked.max(slots)
        } else {
            asked
        }
    }
}

/// Where output goes. Names may have `%` ([`expand`](crate::expand)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// Both go to one file, whose name that is.
    pub joined: Option<Joined>,
    /// Files are added to, not replaced.
    pub is_append: bool,
}

/// Which file gets both outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joined {
    Stdout,
    Stderr,
    /// Two files, although one would be usual.
    Apart,
}

/// A signal before the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub signal: i32,
    /// How long before the limit.
    pub before_s: u64,
    /// To the script alone, not to its children.
    pub to_script: bool,
}

/// The tasks of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// In rising order, each once.
    pub indices: Vec<u32>,
    /// How many may run at once.
    pub limit: Option<u32>,
}

impl Array {
    /// Reads `0-9`, `1,3,5`, `0-15:4`, each with `%LIMIT` behind it or not.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Array, String> {
        let wrong = || {
            format!(
                "'{text}' is no array of tasks; write for example 0-9, 1,3,5, 0-20:4 or 1-100%5"
            )
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (list, limit) = match text.split_once('%') {
            Some((list, limit)) => (list, Some(number(limit)?)),
            None => (text, None),
        };
        if limit == Some(0) {
            return Err(wrong());
        }
        let mut indices = Vec::new();
        for part in list.split(',') {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (from, to) = match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(range)?, number(range)?),
            };
            if step == 0 || from > to || to == u32::MAX {
                return Err(wrong());
            }
            let count = ((to - from) / step + 1) as usize;
            if count > MOST_TASKS || indices.len() + count > MOST_TASKS {
                return Err(format!(
                    "the array '{text}' has too many tasks; at most {MOST_TASKS} are accepted, make several arrays"
                ));
            }
            indices.extend((from..=to).step_by(step as usize));
        }
        indices.sort_unstable();
        indices.dedup();
        Ok(Array { indices, limit })
    }
}

/// What a job asks for. What is `None` was not said.
// Fields: each is an option of scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wishes {
    pub dialect: Option<Dialect>,
    pub name: Option<String>,
    pub size: Size,
    /// In seconds; `Some(None)` is said to be unlimited.
    pub limit_s: Option<Option<u64>>,
    pub warning: Option<Warning>,
    pub output: Output,
    pub directory: Option<String>,
    pub array: Option<Array>,
    pub after: Vec<Dependency>,
    /// Tasks of arrays that it waits for.
    #[serde(default)]
    pub after_tasks: Vec<TaskDependency>,
    /// After all earlier jobs of the same name and user.
    #[serde(default)]
    pub is_singleton: bool,
    /// Start not before this time.
    #[serde(default)]
    pub begin: Option<BeginTime>,
    /// The reservation in which it runs.
    #[serde(default)]
    pub reservation: Option<String>,
    /// It may be run again when its host or what watches over it fails.
    #[serde(default)]
    pub is_requeued: Option<bool>,
    /// Exit codes with which it asks to be run again.
    #[serde(default)]
    pub requeue_codes: Vec<i32>,
    pub is_held: Option<bool>,
    pub priority: Option<i64>,
    pub partition: Option<String>,
    pub account: Option<String>,
    /// Variables for the job beside those of the command's environment.
    pub variables: Vec<(String, String)>,
    /// The job gets no other variables than these and the usual ones.
    pub is_bare: bool,
    /// File of the standard input; nothing comes in without.
    pub input: Option<String>,
    /// When somebody is to be informed.
    pub mail: Vec<MailEvent>,
    /// Who: an address of mail, or one that begins with `http://` or `https://`.
    pub mail_to: Option<String>,
    /// A remark.
    pub comment: Option<String>,
    /// The program that runs the script, in place of that of its first line.
    pub shell: Option<String>,
}

/// When somebody is informed of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailEvent {
    Begin,
    /// It has ended, however it did.
    End,
    /// It has ended otherwise than with exit code 0.
    Fail,
    /// It has ended at its time limit.
    TimeLimit,
    /// Of an array these are of each task; otherwise of the array as a whole.
    Tasks,
}

impl MailEvent {
    /// Takes a word of Slurm's `--mail-type`; none when it is no such word.
    #[must_use]
    pub fn of_slurm(word: &str, events: &mut Vec<MailEvent>) -> Option<()> {
        match word.trim().to_ascii_uppercase().as_str() {
            "NONE" => events.clear(),
            "BEGIN" => events.push(MailEvent::Begin),
            "END" => events.push(MailEvent::End),
            "FAIL" => events.push(MailEvent::Fail),
            "TIME_LIMIT" => events.push(MailEvent::TimeLimit),
            "ALL" => events.extend([MailEvent::Begin, MailEvent::End]),
            "ARRAY_TASKS" => events.push(MailEvent::Tasks),
            // These cannot come here.
            "REQUEUE" | "INVALID_DEPEND" | "STAGE_OUT" | "TIME_LIMIT_50" | "TIME_LIMIT_80"
            | "TIME_LIMIT_90" => {}
            _ => return None,
        }
        Some(())
    }

    /// Takes the letters of PBS's `-m`; none when one is not known.
    #[must_use]
    pub fn of_pbs(letters: &str, events: &mut Vec<MailEvent>) -> Option<()> {
        for letter in letters.chars() {
            match letter {
                'n' | 'p' => events.clear(),
                'b' => events.push(MailEvent::Begin),
                'e' => events.push(MailEvent::End),
                'a' => events.push(MailEvent::Fail),
                'j' => events.push(MailEvent::Tasks),
                // A transfer that has failed.
                'f' => {}
                _ => return None,
            }
        }
        Some(())
    }
}

impl Wishes {
    /// What was said first counts, and `other` for the rest: the command line comes before the
    /// script.
    #[must_use]
    pub fn or(mut self, other: Wishes) -> Wishes {
        let (size, rest) = (&mut self.size, other.size);
        size.nodes = size.nodes.or(rest.nodes);
        size.tasks = size.tasks.or(rest.tasks);
        size.tasks_per_node = size.tasks_per_node.or(rest.tasks_per_node);
        size.cpus_per_task = size.cpus_per_task.or(rest.cpus_per_task);
        size.is_exclusive |= rest.is_exclusive;
        if size.memory_mib.is_none() && size.slot_memory_mib.is_none() {
            (size.memory_mib, size.slot_memory_mib) = (rest.memory_mib, rest.slot_memory_mib);
        }
        let (output, rest) = (&mut self.output, other.output);
        output.stdout = output.stdout.take().or(rest.stdout);
        output.stderr = output.stderr.take().or(rest.stderr);
        output.joined = output.joined.or(rest.joined);
        output.is_append |= rest.is_append;
        if self.after.is_empty() && self.after_tasks.is_empty() && !self.is_singleton {
            (self.after, self.after_tasks) = (other.after, other.after_tasks);
            self.is_singleton = other.is_singleton;
        }
        if self.requeue_codes.is_empty() {
            self.requeue_codes = other.requeue_codes;
        }
        if self.mail.is_empty() {
            self.mail = other.mail;
        }
        self.variables.splice(0..0, other.variables);
        Wishes {
            dialect: self.dialect.or(other.dialect),
            name: self.name.or(other.name),
            limit_s: self.limit_s.or(other.limit_s),
            warning: self.warning.or(other.warning),
            directory: self.directory.or(other.directory),
            array: self.array.or(other.array),
            begin: self.begin.or(other.begin),
            reservation: self.reservation.or(other.reservation),
            is_requeued: self.is_requeued.or(other.is_requeued),
            is_held: self.is_held.or(other.is_held),
            priority: self.priority.or(other.priority),
            partition: self.partition.or(other.partition),
            account: self.account.or(other.account),
            is_bare: self.is_bare || other.is_bare,
            input: self.input.or(other.input),
            mail_to: self.mail_to.or(other.mail_to),
            comment: self.comment.or(other.comment),
            shell: self.shell.or(other.shell),
            ..self
        }
    }
}

/// Numbers of tasks as they are written: `0-3,7`.
#[must_use]
pub fn ranges(indices: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &index in indices {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => parts.push((index, index)),
        }
    }
    let part = |&(from, to): &(u32, u32)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_become_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn arrays_are_read_and_bounded() {
        let array = Array::parse("1-3,10,4-8:2%2").unwrap();
        assert_eq!(array.indices, [1, 2, 3, 4, 6, 8, 10]);
        assert_eq!(array.limit, Some(2));
        let most = if cfg!(miri) { 49 } else { 49_999 };
        let array = Array::parse(&format!("0-{most}")).unwrap();
        assert_eq!(array.indices.len(), most + 1);
        for text in [
            "",
            "a",
            "3-1",
            "1-5:0",
            "0-4294967295",
            "1%0",
            "0-99999,7",
            "-1",
        ] {
            // Long ones take minutes there.
            if cfg!(miri) && text.starts_with("0-") {
                continue;
            }
            assert!(Array::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_become_slots() {
        let size = |nodes, tasks, per, cpus| Size {
            nodes,
            tasks,
            tasks_per_node: per,
            cpus_per_task: cpus,
            ..Size::default()
        };
        assert_eq!(size(None, None, None, None).slots(8), 1);
        assert_eq!(size(Some(2), None, Some(4), None).slots(8), 8);
        assert_eq!(size(None, Some(3), None, Some(2)).slots(8), 6);
        assert_eq!(size(Some(4), Some(2), None, None).slots(8), 4);
        assert_eq!(size(Some(u32::MAX), None, Some(9), None).slots(8), u32::MAX);
        let all = Size {
            is_exclusive: true,
            ..Size::default()
        };
        assert_eq!(all.slots(8), 8);
    }

    #[test]
    fn what_was_said_first_counts() {
        let said = |name: &str, directory: Option<&str>| Wishes {
            name: Some(name.into()),
            directory: directory.map(str::to_owned),
            ..Wishes::default()
        };
        let both = said("a", None).or(said("b", Some("/d")));
        assert_eq!(
            (both.name.unwrap(), both.directory.unwrap()),
            ("a".into(), "/d".into())
        );
    }
}
