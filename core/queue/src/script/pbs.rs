//! PBS's options, of OpenPBS and Torque, as `#PBS` lines have them.

use crate::script::slurm::dependencies;
use crate::script::{Found, memory};
use crate::time::duration;
use crate::wishes::{Array, Joined, Wishes};

/// Options without a value.
const ALONE: &str = "hVz";

/// Options with one.
const VALUED: &str = "AdeJjlMmNopqrStvWw";

/// Applies the options of a line to `wishes`.
pub(super) fn options(words: &[String], wishes: &mut Wishes) -> Result<(), String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut letters = word.strip_prefix('-').unwrap_or("").chars();
        let letter = letters.next().unwrap_or(' ');
        let rest = letters.as_str();
        let mut found = Found {
            shown: if letter == ' ' {
                word.clone()
            } else {
                format!("-{letter}")
            },
            value: (!rest.is_empty()).then(|| rest.to_owned()),
        };
        let is_known = if VALUED.contains(letter) {
            found.value = found.value.or_else(|| words.next().cloned());
            true
        } else {
            ALONE.contains(letter) && found.value.is_none()
        };
        if !is_known {
            return Err(found.unknown());
        }
        apply(letter, &found, wishes)?;
    }
    Ok(())
}

fn apply(letter: char, found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    match letter {
        'A' => wishes.account = Some(found.text()?),
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
            for item in found.value()?.split(',') {
                // A name alone keeps the value of the environment, which the job has anyway.
                if let Some((name, value)) = item.split_once('=') {
                    wishes.variables.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        'W' => match found.value()?.strip_prefix("depend=") {
            Some(list) => wishes.after = dependencies(list)?,
            None => return Err(found.unknown()),
        },
        'm' if found.value()? == "n" => {}
        'r' if found.value()? == "n" => {}
        // Whom mail would go to, the whole environment, no number on the output.
        'M' | 'V' | 'z' => {}
        // The shell is that of the script's first line.
        'S' => {
            found.value()?;
        }
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
fn resource(part: &str, wishes: &mut Wishes) -> Result<(), String> {
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
        "mem" | "vmem" | "pmem" | "pvmem" => {
            let mib = memory(value, 1).ok_or_else(|| found.wrong("memory such as 4gb"))?;
            wishes.size.memory_mib = Some(mib);
        }
        "place" if ["free", "pack", "scatter"].contains(&value) => {}
        _ => return Err(found.unknown()),
    }
    Ok(())
}

/// `nodes=2:ppn=4`, `select=2:ncpus=8:mpiprocs=4:mem=2gb`: so many of the same chunk.
fn chunks(found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    let value = found.value()?;
    if value.contains('+') {
        return Err(format!(
            "{} {value}: chunks of several kinds are not supported; ask for one kind",
            found.shown
        ));
    }
    let wrong = || {
        found.wrong("a number of chunks, with :ppn=, :ncpus=, :mpiprocs=, :ompthreads= or :mem=")
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
            "mem" => {
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
