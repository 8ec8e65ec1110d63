//! PBS's options, of OpenPBS and Torque, as `#PBS` lines have them.

use crate::begin::BeginTime;
use crate::script::slurm::dependencies;
use crate::script::{Found, memory};
use crate::time::duration;
use crate::wishes::{Array, Joined, MailEvent, Wishes};

/// Options without a value.
const ALONE: &str = "fhIVXz";

/// Options with one.
const VALUED: &str = "ACacdeJjkLlMmNopPqRrSTtuvWw";

/// What a command line has beside what the job asks for.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// `-I`
    pub is_interactive: bool,
    /// `-z`
    pub is_silent: bool,
    /// `-V`
    pub is_whole_environment: bool,
    /// `-W block=true`
    pub is_waited_for: bool,
    /// `-C`: what directives begin with.
    pub prefix: Option<String>,
    /// Names of `-v` whose value is that of the command's environment.
    pub names: Vec<String>,
    /// Place of the first word that is no option; the number of words when there is none.
    pub end: usize,
}

/// Applies the options of a line to `wishes`.
pub(super) fn options(words: &[String], wishes: &mut Wishes) -> Result<(), String> {
    let line = command(words, wishes)?;
    match words.get(line.end) {
        Some(word) => Err(Found {
            shown: word.clone(),
            value: None,
        }
        .unknown()),
        None if line.is_interactive => Err(
            "-I is for the command line: qsub -I begins an interactive job, a script cannot".into(),
        ),
        None => Ok(()),
    }
}

/// The words of a command with its options before the others, as getopt reads them wherever they
/// stand; what follows `--` stays as it is.
#[must_use]
pub fn options_first(words: &[String]) -> Vec<String> {
    let (mut options, mut others) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let letters = word.strip_prefix('-').filter(|rest| !rest.is_empty());
        match letters {
            Some("-") => {
                others.push(word.clone());
                others.extend(words.by_ref().cloned());
            }
            Some(letters) => {
                options.push(word.clone());
                let valued = letters.find(|letter| VALUED.contains(letter));
                // The value is the next word when none stands behind the letter.
                if valued.is_some_and(|at| at + 1 == letters.len()) {
                    options.extend(words.next().cloned());
                }
            }
            None => others.push(word.clone()),
        }
    }
    options.append(&mut others);
    options
}

/// Applies the options of `qsub` or `qalter` to `wishes`, up to the first word that is none.
///
/// # Errors
/// In words that name the option.
pub fn command(words: &[String], wishes: &mut Wishes) -> Result<Line, String> {
    let mut line = Line::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Some(rest) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            break;
        };
        if word == "--" {
            break;
        }
        at += 1;
        let mut letters = rest.chars();
        while let Some(letter) = letters.next() {
            let rest = letters.as_str();
            let mut found = Found {
                shown: format!("-{letter}"),
                value: None,
            };
            if VALUED.contains(letter) {
                found.value = if rest.is_empty() {
                    at += 1;
                    words.get(at - 1).cloned()
                } else {
                    Some(rest.to_owned())
                };
                letters = "".chars();
            } else if !ALONE.contains(letter) {
                found.shown = word.clone();
                return Err(found.unknown());
            }
            apply(letter, &found, wishes, &mut line)?;
        }
    }
    line.end = at.min(words.len());
    Ok(line)
}

fn apply(letter: char, found: &Found, wishes: &mut Wishes, line: &mut Line) -> Result<(), String> {
    match letter {
        'A' => wishes.account = Some(found.text()?),
        'a' => wishes.begin = Some(BeginTime::of_pbs(found.value()?)?),
        'C' => line.prefix = Some(found.text()?),
        'd' | 'w' => wishes.directory = Some(found.text()?),
        'e' => wishes.output.stderr = Some(path(found)?),
        'o' => wishes.output.stdout = Some(path(found)?),
        'h' => wishes.is_held = Some(true),
        'J' | 't' => wishes.array = Some(Array::parse(found.value()?)?),
        'j' => {
            wishes.output.joined = match found.value()? {
                "oe" => Some(Joined::Stdout),
                "eo" => Some(Joined::Stderr),
                "n" => Some(Joined::Apart),
                _ => return Err(found.wrong("oe, eo or n")),
            };
        }
        'l' => {
            for part in found.value()?.split(',') {
                resource(part, wishes)?;
            }
        }
        'N' => wishes.name = Some(found.text()?),
        'p' => {
            let value = found.value()?.parse();
            wishes.priority = Some(value.map_err(|_| found.wrong("a whole number"))?);
        }
        'q' => wishes.partition = Some(found.text()?),
        'v' => {
            for item in list(found.value()?) {
                match item.split_once('=') {
                    Some((name, value)) => wishes.variables.push((name.into(), value.into())),
                    None => line.names.push(item),
                }
            }
        }
        'W' => {
            for part in found.value()?.split_inclusive(',') {
                attribute(part.trim_end_matches(','), found, wishes, line)?;
            }
        }
        'm' => {
            let wrong = || found.wrong("letters of a, b, e and n");
            MailEvent::of_pbs(found.value()?, &mut wishes.mail).ok_or_else(wrong)?;
        }
        'M' => wishes.mail_to = Some(found.text()?),
        'P' => wishes.account = wishes.account.take().or(Some(found.text()?)),
        'r' => match found.value()? {
            "y" => wishes.is_requeued = Some(true),
            "n" => wishes.is_requeued = Some(false),
            _ => return Err(found.wrong("y or n")),
        },
        'I' => line.is_interactive = true,
        'V' => line.is_whole_environment = true,
        'z' => line.is_silent = true,
        // The value may have a host behind it, as in `/bin/bash@host`.
        'S' => {
            let value = found.value()?;
            let shell = value.split(['@', ',']).next().unwrap_or(value);
            wishes.shell = Some(shell.to_owned());
        }
        // Which output stays where the job ran, and whether files are removed: there is one host.
        'k' | 'R' => {
            found.value()?;
        }
        'c' if ["n", "none", "u"].contains(&found.value()?) => {}
        'f' | 'X' => {
            return Err(format!("{}: there is no X forwarding", found.unknown()));
        }
        _ => return Err(found.unknown()),
    }
    Ok(())
}

/// The items of a list with commas, of which some may be in quotes.
fn list(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ',') => items.push(String::new()),
            (_, c) => {
                if let Some(item) = items.last_mut() {
                    item.push(c);
                }
            }
        }
    }
    items.retain(|item| !item.is_empty());
    items
}

/// Adds a list of dependencies.
fn depend(wishes: &mut Wishes, list: &str) -> Result<(), String> {
    let (after, tasks) = dependencies(list)?;
    wishes.after.extend(after);
    wishes.after_tasks.extend(tasks);
    Ok(())
}

/// One attribute of `-W`. A list of dependencies goes on behind a comma.
fn attribute(
    part: &str,
    found: &Found,
    wishes: &mut Wishes,
    line: &mut Line,
) -> Result<(), String> {
    match part.split_once('=') {
        Some(("depend", list)) => depend(wishes, list)?,
        None if part.starts_with("after") => depend(wishes, part)?,
        Some(("block", value)) => line.is_waited_for = value == "true",
        // Whose group the files have, and where umask and sandbox are the usual ones.
        Some(("group_list" | "umask" | "run_count", _)) => {}
        Some(("sandbox", "HOME")) => {}
        _ => return Err(found.unknown()),
    }
    Ok(())
}

/// A path that may have a host before it.
fn path(found: &Found) -> Result<String, String> {
    let value = found.value()?;
    Ok(value
        .split_once(':')
        .map_or(value, |split| split.1)
        .to_owned())
}

/// One resource of `-l`.
pub(super) fn resource(part: &str, wishes: &mut Wishes) -> Result<(), String> {
    let found = |name: &str, value: &str| Found {
        shown: format!("-l {name}"),
        value: Some(value.to_owned()),
    };
    let (name, value) = part
        .split_once('=')
        .ok_or_else(|| format!("-l {part}: expected a resource such as walltime=1:00:00"))?;
    let found = found(name, value);
    match name {
        "walltime" => wishes.limit_s = Some(duration(value, true)?),
        "nodes" | "select" => chunks(&found, wishes)?,
        "ncpus" | "procs" => wishes.size.tasks = Some(found.count()?),
        "ppn" => wishes.size.tasks_per_node = Some(found.count()?),
        "mem" | "vmem" => {
            let mib = memory(value, 1).ok_or_else(|| found.wrong("memory such as 4gb"))?;
            wishes.size.memory_mib = Some(mib);
        }
        "pmem" | "pvmem" => {
            let mib = memory(value, 1).ok_or_else(|| found.wrong("memory such as 4gb"))?;
            wishes.size.slot_memory_mib = Some(mib);
        }
        "place" => {
            for word in value.split(':') {
                match word {
                    "free" | "pack" | "scatter" | "vscatter" | "shared" => {}
                    "excl" | "exclhost" => wishes.size.is_exclusive = true,
                    _ => return Err(found.unknown()),
                }
            }
        }
        "naccesspolicy" => wishes.size.is_exclusive |= value.eq_ignore_ascii_case("singlejob"),
        "gpus" | "ngpus" => {
            return Err(format!(
                "{}: GPUs are not resources of the queue",
                found.unknown()
            ));
        }
        // Limits that a job sets itself, and policies of a site.
        "cput" | "pcput" | "file" | "nice" | "qos" => {}
        _ => return Err(found.unknown()),
    }
    Ok(())
}

/// `nodes=2:ppn=4`, `select=2:ncpus=8:mpiprocs=4:mem=2gb`: this many of the same chunk.
fn chunks(found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    let value = found.value()?;
    if value.contains('+') {
        return Err(format!(
            "{} {value}: chunks of several kinds are not supported; ask for one kind",
            found.shown
        ));
    }
    let wrong = || {
        found.wrong("a number of chunks, with :ppn=, :ncpus=, :mpiprocs=, :ompthreads= or :mem=; nodes have no names, features or GPUs to choose from")
    };
    let mut parts = value.split(':');
    let number = |text: &str| text.parse::<u32>().ok().filter(|&n| n > 0);
    let nodes = parts.next().and_then(number).ok_or_else(wrong)?;
    let (mut cpus, mut processes, mut threads) = (None, None, None);
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        match name {
            "ncpus" => cpus = Some(number(value).ok_or_else(wrong)?),
            "ppn" | "mpiprocs" => processes = Some(number(value).ok_or_else(wrong)?),
            "ompthreads" => threads = Some(number(value).ok_or_else(wrong)?),
            // None of what is not there.
            "ngpus" | "gpus" if value == "0" => {}
            "mem" | "vmem" => {
                let each = memory(value, 1).ok_or_else(wrong)?;
                wishes.size.memory_mib = Some(each.saturating_mul(u64::from(nodes)));
            }
            _ => return Err(wrong()),
        }
    }
    if let Some(threads) = threads {
        let value = threads.to_string();
        wishes.variables.push(("OMP_NUM_THREADS".into(), value));
    }
    // Without mpiprocs a chunk is one process, with all its processors.
    let processes = processes.unwrap_or(1);
    let size = &mut wishes.size;
    size.nodes = Some(nodes);
    size.tasks_per_node = Some(processes);
    size.cpus_per_task = cpus.map(|cpus| cpus.div_ceil(processes));
    Ok(())
}
