//! Slurm's options, as `#SBATCH` lines and `margay submit` have them.

use crate::job::{After, Dependency};
use crate::script::{Found, memory};
use crate::time::duration;
use crate::wishes::{Array, Joined, Warning, Wishes};

/// Options: the letter or a blank, the word, and whether they have a value.
const OPTIONS: &[(char, &str, bool)] = &[
    ('A', "account", true),
    ('a', "array", true),
    ('c', "cpus-per-task", true),
    ('D', "chdir", true),
    ('d', "dependency", true),
    ('e', "error", true),
    ('H', "hold", false),
    ('J', "job-name", true),
    ('N', "nodes", true),
    ('n', "ntasks", true),
    ('o', "output", true),
    ('p', "partition", true),
    ('Q', "quiet", false),
    ('t', "time", true),
    (' ', "comment", true),
    (' ', "exclusive", false),
    (' ', "export", true),
    (' ', "get-user-env", false),
    (' ', "mail-type", true),
    (' ', "mail-user", true),
    (' ', "mem", true),
    (' ', "no-requeue", false),
    (' ', "ntasks-per-node", true),
    (' ', "open-mode", true),
    (' ', "priority", true),
    (' ', "requeue", false),
    (' ', "requeue-exit", true),
    (' ', "reservation", true),
    (' ', "signal", true),
];

/// Applies the options of a line to `wishes`.
///
/// # Errors
/// In words that name the option.
pub fn options(words: &[String], wishes: &mut Wishes) -> Result<(), String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (found, name, has_value) = look_up(word)?;
        let mut found = found;
        if has_value && found.value.is_none() {
            found.value = words.next().cloned();
        }
        apply(name, &found, wishes)?;
    }
    Ok(())
}

/// Finds the option of a word.
fn look_up(word: &str) -> Result<(Found, &'static str, bool), String> {
    let unknown = || format!("'{word}' is not supported; leave it out if the job can do without");
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let &(_, name, has_value) = OPTIONS
            .iter()
            .find(|option| option.1 == name)
            .ok_or_else(unknown)?;
        let shown = format!("--{name}");
        return Ok((Found { shown, value }, name, has_value));
    }
    let mut letters = word.strip_prefix('-').ok_or_else(unknown)?.chars();
    let letter = letters.next().filter(|c| *c != ' ').ok_or_else(unknown)?;
    let &(_, name, has_value) = OPTIONS
        .iter()
        .find(|option| option.0 == letter)
        .ok_or_else(unknown)?;
    let rest = letters.as_str();
    let value = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest).to_owned());
    if !has_value && value.is_some() {
        return Err(unknown());
    }
    let shown = format!("-{letter}");
    Ok((Found { shown, value }, name, has_value))
}

fn apply(name: &str, found: &Found, wishes: &mut Wishes) -> Result<(), String> {
    match name {
        "account" => wishes.account = Some(found.text()?),
        "array" => wishes.array = Some(Array::parse(found.value()?)?),
        "cpus-per-task" => wishes.size.cpus_per_task = Some(found.count()?),
        "chdir" => wishes.directory = Some(found.text()?),
        "dependency" => wishes.after = dependencies(found.value()?)?,
        "error" => {
            wishes.output.stderr = Some(found.text()?);
            wishes.output.joined.get_or_insert(Joined::Apart);
        }
        "hold" => wishes.is_held = Some(true),
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
        "exclusive" if found.value.is_none() => wishes.size.is_exclusive = true,
        "export" => export(found.value()?, wishes),
        "mem" => {
            let wrong = || found.wrong("memory such as 4G or 500M");
            let mib = memory(found.value()?, 1 << 20).ok_or_else(wrong)?;
            // 0 means all of it, which is what a job may use anyway.
            wishes.size.memory_mib = Some(mib).filter(|&mib| mib > 0);
        }
        "mail-type" if !found.value()?.eq_ignore_ascii_case("none") => return Err(found.unknown()),
        "ntasks-per-node" => wishes.size.tasks_per_node = Some(found.count()?),
        "open-mode" => match found.value()? {
            "append" => wishes.output.is_append = true,
            "truncate" => wishes.output.is_append = false,
            _ => return Err(found.wrong("append or truncate")),
        },
        "priority" => {
            let value = found.value()?.parse();
            wishes.priority = Some(value.map_err(|_| found.wrong("a whole number"))?);
        }
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
        // What asks for nothing: remarks, whom mail would go to, and what is so anyway.
        "comment" | "get-user-env" | "mail-type" | "mail-user" | "quiet" => {}
        _ => return Err(found.unknown()),
    }
    Ok(())
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
pub(super) fn dependencies(text: &str) -> Result<Vec<Dependency>, String> {
    let wrong = |part: &str| {
        format!(
            "'{part}' is no dependency; write for example afterok:12 or afterany:12:13; the kinds are after, afterok, \
             afternotok and afterany"
        )
    };
    let mut found = Vec::new();
    for part in text.split(',') {
        let mut words = part.split(':');
        let after = match words.next() {
            Some("after") => After::Start,
            Some("afterok") => After::Ok,
            Some("afternotok") => After::NotOk,
            Some("afterany") => After::Any,
            _ => return Err(wrong(part)),
        };
        let before = found.len();
        for word in words {
            // PBS writes `12.host`, and an array as `12[]`.
            let number = word.split(['.', '[']).next().unwrap_or(word);
            let job = number.parse().map_err(|_| wrong(part))?;
            found.push(Dependency { after, job });
        }
        if found.len() == before {
            return Err(wrong(part));
        }
    }
    Ok(found)
}
