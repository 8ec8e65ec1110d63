//! Slurm's options, as `#SBATCH` lines and `margay submit` have them.

use crate::begin::BeginTime;
use crate::job::{After, Dependency, TaskDependency};
use crate::script::{Found, memory};
use crate::time::duration;
use crate::wishes::{Array, Joined, MailEvent, Warning, Wishes};

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
    /// Behind `=` only.
    Perhaps,
}

use Takes::{Nothing, Perhaps, Value};

/// An option: the letter or a blank, the word, and whether it has a value.
pub type Known = (char, &'static str, Takes);

const OPTIONS: &[Known] = &[
    ('A', "account", Value),
    ('a', "array", Value),
    ('B', "extra-node-info", Value),
    ('b', "begin", Value),
    ('C', "constraint", Value),
    ('c', "cpus-per-task", Value),
    ('D', "chdir", Value),
    ('d', "dependency", Value),
    ('e', "error", Value),
    ('F', "nodefile", Value),
    ('G', "gpus", Value),
    ('H', "hold", Nothing),
    ('i', "input", Value),
    ('J', "job-name", Value),
    ('k', "no-kill", Perhaps),
    ('L', "licenses", Value),
    ('M', "clusters", Value),
    ('m', "distribution", Value),
    ('N', "nodes", Value),
    ('n', "ntasks", Value),
    ('O', "overcommit", Nothing),
    ('o', "output", Value),
    ('p', "partition", Value),
    ('Q', "quiet", Nothing),
    ('q', "qos", Value),
    ('s', "oversubscribe", Perhaps),
    ('t', "time", Value),
    ('v', "verbose", Nothing),
    ('w', "nodelist", Value),
    ('x', "exclude", Value),
    (' ', "acctg-freq", Value),
    (' ', "bb", Value),
    (' ', "comment", Value),
    (' ', "contiguous", Nothing),
    (' ', "cores-per-socket", Value),
    (' ', "cpu-freq", Value),
    (' ', "cpus-per-gpu", Value),
    (' ', "exclusive", Perhaps),
    (' ', "export", Value),
    (' ', "get-user-env", Perhaps),
    (' ', "gpus-per-node", Value),
    (' ', "gpus-per-task", Value),
    (' ', "gres", Value),
    (' ', "hint", Value),
    (' ', "kill-on-invalid-dep", Value),
    (' ', "mail-type", Value),
    (' ', "mail-user", Value),
    (' ', "mem", Value),
    (' ', "mem-bind", Value),
    (' ', "mem-per-cpu", Value),
    (' ', "mem-per-gpu", Value),
    (' ', "mincpus", Value),
    (' ', "nice", Perhaps),
    (' ', "no-requeue", Nothing),
    (' ', "ntasks-per-core", Value),
    (' ', "ntasks-per-node", Value),
    (' ', "ntasks-per-socket", Value),
    (' ', "open-mode", Value),
    (' ', "priority", Value),
    (' ', "profile", Value),
    (' ', "propagate", Perhaps),
    (' ', "requeue", Nothing),
    (' ', "requeue-exit", Value),
    (' ', "reservation", Value),
    (' ', "share", Nothing),
    (' ', "signal", Value),
    (' ', "sockets-per-node", Value),
    (' ', "spread-job", Nothing),
    (' ', "switches", Value),
    (' ', "tasks-per-node", Value),
    (' ', "threads-per-core", Value),
    (' ', "time-min", Value),
    (' ', "tmp", Value),
    (' ', "use-min-nodes", Nothing),
    (' ', "wckey", Value),
    (' ', "workdir", Value),
];

/// Applies the options of a line to `wishes`.
///
/// # Errors
/// In words that name the option.
pub fn options(words: &[String], wishes: &mut Wishes) -> Result<(), String> {
    let line = command(words, &[], wishes)?;
    match words.get(line.end) {
        Some(word) => Err(unknown(word)),
        None => Ok(()),
    }
}

/// What a command line has beside what the job asks for.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The command's own options.
    pub own: Vec<(&'static str, Option<String>)>,
    /// Place of the first word that is no option; the number of words when there is none.
    pub end: usize,
}

impl Line {
    /// Whether an option of the command is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.own.iter().any(|(own, _)| *own == name)
    }

    /// The last value of an option of the command.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.own.iter().rev();
        all.find(|(own, _)| *own == name)?.1.as_deref()
    }
}

/// Applies the options of a command to `wishes`, up to the first word that is none. `own` are those
/// that the command has beside.
///
/// # Errors
/// In words that name the option.
pub fn command(
    words: &[String],
    own: &'static [Known],
    wishes: &mut Wishes,
) -> Result<Line, String> {
    let mut line = Line::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if !word.starts_with('-') || word == "-" {
            break;
        }
        at += 1;
        if word == "--" {
            break;
        }
        let mut rest = word.clone();
        // Letters without a value may stand together.
        loop {
            let (mut found, (letter, name, takes), tail) = look_up(&rest, own)?;
            if takes == Value && found.value.is_none() {
                found.value = words.get(at).cloned();
                at += 1;
            }
            if own.contains(&(letter, name, takes)) {
                if takes == Value {
                    found.value()?;
                }
                line.own.push((name, found.value));
            } else {
                apply(name, &found, wishes)?;
            }
            match tail {
                Some(tail) => rest = tail,
                None => break,
            }
        }
    }
    line.end = at.min(words.len());
    Ok(line)
}

fn unknown(word: &str) -> String {
    format!("'{word}' is not supported; leave it out if the job can do without")
}

/// Finds the option of a word, and what is left of a word of several letters.
fn look_up(word: &str, own: &[Known]) -> Result<(Found, Known, Option<String>), String> {
    let unknown = || unknown(word);
    let all = || own.iter().chain(OPTIONS);
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        // As getopt has it, the beginning of a name is enough where it is that of one alone.
        let exact = all().find(|option| option.1 == name);
        let mut begun = all().filter(|option| option.1.starts_with(name));
        let option = match (exact, begun.next(), begun.next()) {
            (Some(option), ..) | (None, Some(option), None) if !name.is_empty() => *option,
            _ => return Err(unknown()),
        };
        if option.2 == Nothing && value.is_some() {
            return Err(unknown());
        }
        let shown = format!("--{}", option.1);
        return Ok((Found { shown, value }, option, None));
    }
    let mut letters = word.strip_prefix('-').ok_or_else(unknown)?.chars();
    let letter = letters.next().filter(|c| *c != ' ').ok_or_else(unknown)?;
    let option = *all()
        .find(|option| option.0 == letter)
        .ok_or_else(unknown)?;
    let rest = letters.as_str();
    let shown = format!("-{letter}");
    let (value, tail) = match option.2 {
        _ if rest.is_empty() => (None, None),
        Nothing => (None, Some(format!("-{rest}"))),
        Value | Perhaps => (
            Some(rest.strip_prefix('=').unwrap_or(rest).to_owned()),
            None,
        ),
    };
    Ok((Found { shown, value }, option, tail))
}

fn apply(name: &str, found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    match name {
        "account" => wishes.account = Some(found.text()?),
        "array" => wishes.array = Some(Array::parse(found.value()?)?),
        "cpus-per-task" => wishes.size.cpus_per_task = Some(found.count()?),
        "chdir" | "workdir" => wishes.directory = Some(found.text()?),
        "dependency" => {
            let is_singleton = |part: &&str| *part == "singleton";
            let (own, others): (Vec<&str>, Vec<&str>) =
                found.value()?.split(',').partition(is_singleton);
            wishes.is_singleton = !own.is_empty();
            (wishes.after, wishes.after_tasks) = match &others[..] {
                [] => Default::default(),
                others => dependencies(&others.join(","))?,
            };
        }
        "error" => {
            wishes.output.stderr = Some(found.text()?);
            wishes.output.joined.get_or_insert(Joined::Apart);
        }
        "hold" => wishes.is_held = Some(true),
        "input" => wishes.input = Some(found.text()?),
        "job-name" => wishes.name = Some(found.text()?),
        "nodes" => {
            // A range's least is enough.
            let value = found.value()?;
            let (least, most) = value.split_once('-').unwrap_or((value, value));
            let number = |text: &str| text.parse::<u32>().ok().filter(|&n| n > 0);
            match (number(least), number(most)) {
                (Some(least), Some(most)) if least <= most => wishes.size.nodes = Some(least),
                _ => return Err(found.wrong("a number of nodes, or a range such as 2-4")),
            }
        }
        "ntasks" => wishes.size.tasks = Some(found.count()?),
        "output" => wishes.output.stdout = Some(found.text()?),
        "partition" => wishes.partition = Some(found.text()?),
        "time" => wishes.limit_s = Some(duration(found.value()?, false)?),
        "exclusive" if found.value.as_deref().is_none_or(|v| v == "user") => {
            wishes.size.is_exclusive = true
        }
        "export" => export(found.value()?, wishes),
        "mem" => {
            let wrong = || found.wrong("memory such as 4G or 500M");
            let mib = memory(found.value()?, 1 << 20).ok_or_else(wrong)?;
            // 0 means all of it, which is what a job may use anyway.
            wishes.size.memory_mib = Some(mib).filter(|&mib| mib > 0);
        }
        "mem-per-cpu" => {
            let wrong = || found.wrong("memory such as 4G or 500M");
            let mib = memory(found.value()?, 1 << 20).ok_or_else(wrong)?;
            wishes.size.slot_memory_mib = Some(mib).filter(|&mib| mib > 0);
        }
        "mail-type" => {
            for word in found.value()?.split(',') {
                let wrong = || found.wrong("BEGIN, END, FAIL, TIME_LIMIT, REQUEUE, ALL or NONE");
                MailEvent::of_slurm(word, &mut wishes.mail).ok_or_else(wrong)?;
            }
        }
        "mail-user" => wishes.mail_to = Some(found.text()?),
        "comment" => wishes.comment = Some(found.text()?),
        "nice" => {
            let lower: i64 = match &found.value {
                None => 100,
                Some(value) => value.parse().map_err(|_| found.wrong("a whole number"))?,
            };
            wishes.priority = Some(lower.saturating_neg());
        }
        "ntasks-per-node" | "tasks-per-node" => wishes.size.tasks_per_node = Some(found.count()?),
        "open-mode" => match found.value()? {
            "append" => wishes.output.is_append = true,
            "truncate" => wishes.output.is_append = false,
            _ => return Err(found.wrong("append or truncate")),
        },
        "priority" => {
            let value = found.value()?.parse();
            wishes.priority = Some(value.map_err(|_| found.wrong("a whole number"))?);
        }
        "begin" => wishes.begin = Some(BeginTime::of_slurm(found.value()?)?),
        "requeue" => wishes.is_requeued = Some(true),
        "no-requeue" => wishes.is_requeued = Some(false),
        "requeue-exit" => {
            let codes = found.value()?.split(',').map(str::parse);
            let codes: Result<Vec<i32>, _> = codes.collect();
            let wrong = || found.wrong("exit codes such as 75 or 75,99");
            let is_code = |codes: &Vec<i32>| codes.iter().all(|code| (1..256).contains(code));
            wishes.requeue_codes = codes.ok().filter(is_code).ok_or_else(wrong)?;
        }
        "reservation" => wishes.reservation = Some(found.text()?),
        "signal" => wishes.warning = Some(warning(found)?),
        _ => return refuse(name, found),
    }
    Ok(())
}

/// Refuses what asks for something that is not there; what asks for nothing passes.
fn refuse(name: &str, found: &Found) -> Result<(), String> {
    // `0`, `gpu:0`
    let is_none = |value: &str| value.rsplit(':').next() == Some("0");
    match name {
        "gpus" | "gpus-per-node" | "gpus-per-task" | "gres" if is_none(found.value()?) => {}
        "gpus" | "gpus-per-node" | "gpus-per-task" | "cpus-per-gpu" | "mem-per-gpu" => {
            return Err(missing(found, "GPUs are not resources of the queue"));
        }
        "gres" if found.value()?.eq_ignore_ascii_case("none") => {}
        "gres" => {
            return Err(missing(
                found,
                "there are no generic resources, such as GPUs",
            ));
        }
        "constraint" => return Err(missing(found, "nodes have no features to choose from")),
        "licenses" => return Err(missing(found, "there are no licenses")),
        "clusters" => return Err(missing(found, "the queue has one machine")),
        "bb" => return Err(missing(found, "there is no burst buffer")),
        "nodelist" | "nodefile" | "exclude" => {
            return Err(missing(found, "the queue chooses the nodes"));
        }
        // What asks for nothing that a job could miss: remarks, where its threads are, which
        // policy it has, and what is so anyway.
        "acctg-freq"
        | "contiguous"
        | "cores-per-socket"
        | "cpu-freq"
        | "distribution"
        | "extra-node-info"
        | "get-user-env"
        | "hint"
        | "kill-on-invalid-dep"
        | "mem-bind"
        | "mincpus"
        | "no-kill"
        | "ntasks-per-core"
        | "ntasks-per-socket"
        | "overcommit"
        | "oversubscribe"
        | "profile"
        | "propagate"
        | "qos"
        | "quiet"
        | "share"
        | "sockets-per-node"
        | "spread-job"
        | "switches"
        | "threads-per-core"
        | "time-min"
        | "tmp"
        | "use-min-nodes"
        | "verbose"
        | "wckey" => {}
        _ => return Err(found.unknown()),
    }
    Ok(())
}

/// Why an option is refused whose meaning is known.
fn missing(found: &Found, why: &str) -> String {
    let value = found.value.as_deref().unwrap_or_default();
    format!(
        "{}={value} is not supported: {why}; leave it out if the job can do without",
        found.shown
    )
}

/// `--export=ALL`, `NONE`, or names with values; with `ALL` or without.
fn export(list: &str, wishes: &mut Wishes) {
    let mut is_bare = true;
    for item in list.split(',') {
        match item.split_once('=') {
            Some((name, value)) => wishes.variables.push((name.to_owned(), value.to_owned())),
            None if item.eq_ignore_ascii_case("all") => is_bare = false,
            None if item.eq_ignore_ascii_case("none") => {}
            // A name without a value keeps its own; all others go beside it.
            None => is_bare = false,
        }
    }
    wishes.is_bare = is_bare;
}

/// `[B:]SIGNAL[@SECONDS]`
fn warning(found: &Found) -> Result<Warning, String> {
    let value = found.value()?;
    let wrong = || found.wrong("a signal such as TERM@60 or B:USR1@300");
    let (to_script, rest) = match value.strip_prefix("B:") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let (name, before) = rest.split_once('@').unwrap_or((rest, "60"));
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let number = match name {
        "HUP" => Some(1),
        "INT" => Some(2),
        "QUIT" => Some(3),
        "USR1" => Some(10),
        "USR2" => Some(12),
        "TERM" => Some(15),
        "CONT" => Some(18),
        "URG" => Some(23),
        _ => name.parse().ok().filter(|n| (1..=64).contains(n)),
    };
    Ok(Warning {
        signal: number.ok_or_else(wrong)?,
        before_s: before.parse().map_err(|_| wrong())?,
        to_script,
    })
}

/// `afterok:1:2,afterany:3`, as Slurm and PBS write it.
///
/// # Errors
/// In words.
pub fn dependencies(text: &str) -> Result<(Vec<Dependency>, Vec<TaskDependency>), String> {
    let wrong = |part: &str| {
        format!(
            "'{part}' is no dependency that is supported; write for example afterok:12 or afterany:12:13; the kinds are \
             after, afterok, afternotok and afterany, and of Slurm aftercorr and singleton"
        )
    };
    let (mut found, mut tasks) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let mut words = part.split(':');
        let kind = words.next().unwrap_or_default();
        let is_corresponding = kind == "aftercorr";
        // Torque has kinds of its own for arrays.
        let after = match kind.strip_suffix("array").unwrap_or(kind) {
            "after" | "afterstart" => After::Start,
            "afterok" | "aftercorr" => After::Ok,
            "afternotok" => After::NotOk,
            "afterany" => After::Any,
            _ => return Err(wrong(part)),
        };
        let before = found.len() + tasks.len();
        for word in words {
            // PBS writes `12.host`, an array as `12[]` and a task of it as `12[3]`; Slurm `12_3`.
            let number = word.split('.').next().unwrap_or(word);
            let (job, task) = number.split_once(['_', '[']).unwrap_or((number, ""));
            let job = job.parse().map_err(|_| wrong(part))?;
            let task = match task.trim_end_matches(']') {
                "" | "*" => None,
                task => Some(task.parse().map_err(|_| wrong(part))?),
            };
            if task.is_none() && !is_corresponding {
                found.push(Dependency::on(after, job));
                continue;
            }
            tasks.push(TaskDependency {
                after,
                array: job,
                task,
            });
        }
        if found.len() + tasks.len() == before {
            return Err(wrong(part));
        }
    }
    Ok((found, tasks))
}
