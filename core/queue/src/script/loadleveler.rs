//! LoadLeveler's job command files: `# @ keyword = value` lines, and `# @ queue` for each step.

use crate::begin::BeginTime;
use crate::job::After;
use crate::script::memory;
use crate::time::duration;
use crate::wishes::{Dialect, Joined, MailEvent, Size, Wishes};

/// A step of a job command file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What other steps call it.
    pub name: Option<String>,
    pub wishes: Wishes,
    /// The program; without it the file itself is the script.
    pub executable: Option<String>,
    pub arguments: Option<String>,
    /// Names of steps that it waits for, and which end of them.
    pub after: Vec<(String, After)>,
    /// Names of variables that are copied from the command's environment.
    pub names: Vec<String>,
}

/// Whether a line is one of LoadLeveler's: its keyword and value.
pub(super) fn line(text: &str) -> Option<(String, Option<&str>)> {
    let rest = text.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix('@')?.trim();
    match rest.split_once('=') {
        Some((keyword, value)) => Some((keyword.trim().to_ascii_lowercase(), Some(value.trim()))),
        None => rest
            .eq_ignore_ascii_case("queue")
            .then(|| ("queue".to_owned(), None)),
    }
}

/// Reads the steps of a job command file.
///
/// # Errors
/// In words, with the number of the line.
pub fn steps(script: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut step = first();
    let mut lines = script.lines().enumerate();
    while let Some((at, text)) = lines.next() {
        let mut whole = text.to_owned();
        // A line goes on behind a backslash, with or without another `# @`.
        while line(&whole).is_some() && whole.ends_with('\\') {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            let next = next.trim_start().trim_start_matches('#').trim_start();
            whole += next.strip_prefix('@').unwrap_or(next);
        }
        let in_line = |text: String| format!("line {}: {text}", at + 1);
        match line(&whole) {
            None => {}
            Some((_, None)) => {
                let mut done = step.clone();
                expand(&mut done, steps.len()).map_err(in_line)?;
                in_directory(&mut done.wishes);
                steps.push(done);
                // What was said counts for the steps that follow, but for these.
                step.name = None;
                step.after.clear();
                step.wishes.is_held = None;
            }
            Some((keyword, Some(value))) => {
                apply(&keyword, value, &mut step).map_err(in_line)?;
            }
        }
    }
    if steps.is_empty() {
        return Err("there is no line '# @ queue', which ends the description of a step".into());
    }
    Ok(steps)
}

/// Files of a step are those of its directory.
fn in_directory(wishes: &mut Wishes) {
    let Some(directory) = wishes.directory.clone() else {
        return;
    };
    let files = [
        &mut wishes.output.stdout,
        &mut wishes.output.stderr,
        &mut wishes.input,
    ];
    for file in files.into_iter().flatten() {
        if !file.starts_with(['/', '~']) {
            *file = format!("{directory}/{file}");
        }
    }
}

/// What LoadLeveler does where nothing is said: output goes nowhere, the environment stays behind.
fn first() -> Step {
    let mut wishes = Wishes {
        dialect: Some(Dialect::LoadLeveler),
        is_bare: true,
        ..Wishes::default()
    };
    wishes.output.joined = Some(Joined::Apart);
    Step {
        wishes,
        ..Step::default()
    }
}

fn wrong(keyword: &str, value: &str, expected: &str) -> String {
    format!("{keyword} = {value}: expected {expected}")
}

/// Limits that a job sets itself and policies: who it belongs to, how its network, its memory pages
/// and its threads are to be, and what is so anyway.
const WITHOUT_EFFECT: [&str; 31] = [
    "affinity",
    "as_limit",
    "blocking",
    "bulkxfer",
    "checkpoint",
    "class_limit",
    "collective_groups",
    "core_limit",
    "cpus_per_core",
    "cpu_limit",
    "data_limit",
    "file_limit",
    "group",
    "image_size",
    "island_count",
    "job_cpu_limit",
    "large_page",
    "locks_limit",
    "mcm_affinity_options",
    "memlock_limit",
    "nofile_limit",
    "nproc_limit",
    "preferences",
    "rset",
    "rss_limit",
    "smt",
    "stack_limit",
    "task_affinity",
    "energy_policy_tag",
    "max_perf_decrease_allowed",
    "minimize_time_to_solution",
];

fn apply(keyword: &str, value: &str, step: &mut Step) -> Result<(), String> {
    let count = || {
        let count = value.parse::<u32>().ok().filter(|&n| n > 0);
        count.ok_or_else(|| wrong(keyword, value, "a whole number, 1 or more"))
    };
    let text = || Some(value.trim_matches('"').to_owned());
    let word = value.to_ascii_lowercase();
    let word = word.as_str();
    let wishes = &mut step.wishes;
    match keyword {
        "account_no" => wishes.account = text(),
        "arguments" => step.arguments = Some(value.to_owned()),
        "class" => wishes.partition = text(),
        "comment" => wishes.comment = text(),
        "cpus_per_task" => wishes.size.cpus_per_task = Some(count()?),
        "dependency" => step.after = dependency(value)?,
        "environment" | "env_copy" => environment(keyword, value, step),
        "error" => wishes.output.stderr = text(),
        "executable" => step.executable = text(),
        "hold" => wishes.is_held = Some(["user", "system", "usersys"].contains(&word)),
        "initialdir" => wishes.directory = text(),
        "input" => wishes.input = text(),
        "job_name" => wishes.name = text(),
        "job_type" if ["serial", "parallel", "mpich", "openmp"].contains(&word) => {}
        "job_type" if word == "bluegene" => {
            return Err(format!(
                "{keyword} = {value} is not supported: this is no Blue Gene"
            ));
        }
        // Of its first versions: a task has a processor.
        "max_processors" => wishes.size.tasks = wishes.size.tasks.or(Some(count()?)),
        "min_processors" => wishes.size.tasks = Some(count()?),
        "node" => {
            // `least,most`, of which one may be missing.
            let least = value
                .split(',')
                .map(str::trim)
                .find(|part| !part.is_empty());
            let nodes = least.and_then(|n| n.parse().ok()).filter(|&n| n > 0);
            let expected = "a number of nodes, or two with a comma";
            wishes.size.nodes = Some(nodes.ok_or_else(|| wrong(keyword, value, expected))?);
        }
        "node_usage" => wishes.size.is_exclusive |= word == "not_shared",
        "notification" => {
            wishes.mail = match word {
                "never" => vec![],
                "start" => vec![MailEvent::Begin],
                "complete" => vec![MailEvent::End],
                "error" => vec![MailEvent::Fail],
                "always" => vec![MailEvent::Begin, MailEvent::End],
                _ => {
                    return Err(wrong(
                        keyword,
                        value,
                        "never, start, complete, error or always",
                    ));
                }
            };
        }
        "notify_user" => wishes.mail_to = text(),
        "output" => wishes.output.stdout = text(),
        "parallel_threads" => {
            let threads = count()?.to_string();
            wishes.variables.push(("OMP_NUM_THREADS".into(), threads));
        }
        "requirements" => requirements(value, &mut wishes.size)?,
        "resources" => resources(value, &mut wishes.size)?,
        "restart" => wishes.is_requeued = Some(word == "yes"),
        "shell" => wishes.shell = text(),
        "startdate" => wishes.begin = Some(BeginTime::of_loadleveler(value.trim_matches('"'))?),
        "step_name" => step.name = text(),
        "tasks_per_node" => wishes.size.tasks_per_node = Some(count()?),
        "total_tasks" => wishes.size.tasks = Some(count()?),
        "user_priority" => {
            let priority = value.parse();
            let expected = "a whole number";
            wishes.priority = Some(priority.map_err(|_| wrong(keyword, value, expected))?);
        }
        "wall_clock_limit" => {
            let hard = value.split(',').next().unwrap_or(value);
            wishes.limit_s = Some(duration(hard.trim().trim_matches('"'), true)?);
        }
        _ if keyword.starts_with("network.") || WITHOUT_EFFECT.contains(&keyword) => {}
        _ => {
            return Err(format!(
                "the keyword {keyword} = {value} is not supported; leave it out if the job can do without"
            ));
        }
    }
    Ok(())
}

/// `COPY_ALL; NAME=VALUE; $NAME; !NAME`
fn environment(keyword: &str, value: &str, step: &mut Step) {
    if keyword == "env_copy" {
        step.wishes.is_bare &= value != "all" && value != "master";
        return;
    }
    for item in value.trim_matches('"').split(';') {
        let item = item.trim();
        match item.split_once('=') {
            Some((name, value)) => {
                let value = value.trim().trim_matches('"').to_owned();
                let name = name.trim().to_owned();
                step.wishes.variables.push((name, value));
            }
            None if item.eq_ignore_ascii_case("COPY_ALL") => step.wishes.is_bare = false,
            None => step.names.extend(item.strip_prefix('$').map(str::to_owned)),
        }
    }
}

/// `(Adapter == "hps_user") && (Memory >= 512)`: memory in MiB. Which network there is does not
/// matter to the queue.
fn requirements(value: &str, size: &mut Size) -> Result<(), String> {
    for part in value.split("&&") {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        let words: Vec<&str> = part.split_whitespace().collect();
        match words[..] {
            ["Adapter", "==", _] => {}
            ["Memory", ">=" | ">" | "==", mib] if mib.parse::<u64>().is_ok() => {
                size.memory_mib = mib.parse().ok();
            }
            _ => {
                return Err(format!(
                    "requirements: ({part}) is not supported; those that are: (Adapter == \"...\") and (Memory >= MIB) with && \
                     between them; leave it out if the job can do without"
                ));
            }
        }
    }
    Ok(())
}

/// `ConsumableCpus(4) ConsumableMemory(2gb)`, of each task.
fn resources(value: &str, size: &mut Size) -> Result<(), String> {
    let expected = "resources such as ConsumableCpus(4) ConsumableMemory(900 MB)";
    let wrong = || wrong("resources", value, expected);
    let items = value.trim().strip_suffix(')').ok_or_else(wrong)?;
    for item in items.split(')') {
        let (name, amount) = item.trim().split_once('(').ok_or_else(wrong)?;
        let amount: String = amount.split_whitespace().collect();
        let unknown = || {
            format!(
                "resources = {}) is not supported; leave it out if the job can do without",
                item.trim()
            )
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "consumablecpus" => {
                size.cpus_per_task = Some(amount.parse().map_err(|_| unknown())?);
            }
            "consumablememory" | "consumablevirtualmemory" => {
                let mib = memory(&amount, 1 << 20).ok_or_else(unknown)?;
                size.slot_memory_mib = Some(mib);
            }
            _ => return Err(unknown()),
        }
    }
    Ok(())
}

/// `(step1 == 0) && (step2 >= 0)`
fn dependency(value: &str) -> Result<Vec<(String, After)>, String> {
    let wrong = || {
        wrong(
            "dependency",
            value,
            "conditions such as (step1 == 0) && (step2 != 0); || and other exit codes are not supported",
        )
    };
    let mut all = Vec::new();
    for part in value.split("&&") {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        let at = part.find(['=', '!', '>', '<']).ok_or_else(wrong)?;
        let (name, condition) = part.split_at(at);
        let condition: String = condition.chars().filter(|c| !c.is_whitespace()).collect();
        let after = match condition.as_str() {
            "==0" => After::Ok,
            "!=0" | ">0" | ">=1" => After::NotOk,
            ">=0" => After::Any,
            _ => return Err(wrong()),
        };
        all.push((name.trim().to_owned(), after));
    }
    Ok(all)
}

/// Replaces `$(jobid)` and its like by the patterns of output files.
fn expand(step: &mut Step, number: usize) -> Result<(), String> {
    let (wishes, own) = (&mut step.wishes, number.to_string());
    let name = wishes.name.clone();
    let base = step
        .executable
        .as_deref()
        .and_then(|e| e.rsplit('/').next());
    let base = base.unwrap_or_default().to_owned();
    let step_name = step.name.clone().unwrap_or_else(|| own.clone());
    // `# @ error = $(output)` is usual.
    let mut output: Option<String> = None;
    let texts = [
        &mut wishes.output.stdout,
        &mut wishes.output.stderr,
        &mut wishes.input,
        &mut wishes.directory,
        &mut wishes.comment,
        &mut wishes.name,
        &mut step.arguments,
    ];
    for (place, text) in texts.into_iter().enumerate() {
        let Some(text) = text else { continue };
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("$(") {
            let tail = &rest[at + 2..];
            let Some(end) = tail.find(')') else { break };
            out += &rest[..at];
            match tail[..end].trim().to_ascii_lowercase().as_str() {
                "jobid" | "cluster" => out += "%j",
                "stepid" | "process" => out += &own,
                "host" | "hostname" | "schedd_host" | "domain" => out += "%N",
                "user" => out += "%u",
                "job_name" => out += name.as_deref().unwrap_or("%x"),
                "step_name" => out += &step_name,
                "base_executable" | "executable" => out += &base,
                "home" => out += "~",
                "output" if output.is_some() => out += output.as_deref().unwrap_or_default(),
                other => {
                    return Err(format!(
                        "the variable $({other}) is not supported; those that are: jobid, stepid, host, user, job_name, \
                         step_name, base_executable, home, and output in what is not the output"
                    ));
                }
            }
            rest = &tail[end + 1..];
        }
        *text = out + rest;
        if place == 0 {
            output = Some(text.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_what_was_said_before_and_wait_for_each_other() {
        let text = "#!/bin/ksh\n# @ job_name = chain\n#@ output = $(job_name).$(jobid).$(stepid).out\n\
            # @ error = $(output)\n\
            # @ node = 2,4\n# @ tasks_per_node = 3\n# @ wall_clock_limit = 1:00:00,0:50:00\n\
            # @ environment = COPY_ALL; A=b c; \\\n# @ $HOME\n# @ resources = ConsumableCpus(2) \\\n\
            ConsumableMemory(500mb)\n# @ step_name = one\n# @ queue\n# @ step_name = two\n\
            # @ dependency = (one == 0)\n# @ queue\necho\n";
        let steps = steps(text).unwrap();
        assert_eq!(steps.len(), 2);
        let (one, two) = (&steps[0], &steps[1]);
        assert_eq!(one.wishes.output.stdout.as_deref(), Some("chain.%j.0.out"));
        assert_eq!(two.wishes.output.stdout.as_deref(), Some("chain.%j.1.out"));
        assert_eq!(two.wishes.output.stderr, two.wishes.output.stdout);
        assert_eq!(one.wishes.size.slots(64), 12);
        assert_eq!(one.wishes.size.memory(64), Some(6000));
        assert_eq!(one.wishes.limit_s, Some(Some(3600)));
        assert!(!one.wishes.is_bare && one.names == ["HOME"]);
        assert_eq!(one.wishes.variables, [("A".into(), "b c".into())]);
        assert!(one.after.is_empty());
        assert_eq!(two.after, [("one".into(), After::Ok)]);
    }

    #[test]
    fn resources_have_blanks_or_none_and_files_are_in_the_directory() {
        for resources in [
            "ConsumableCpus(2) ConsumableMemory(900 MB)",
            "ConsumableCpus(2)ConsumableMemory(900mb)",
            "ConsumableCpus( 2 ) ConsumableMemory(0.87890625gb)",
        ] {
            let text = format!(
                "# @ initialdir = sub\n# @ output = out\n# @ error = /err\n# @ resources = {resources}\n# @ queue\n"
            );
            let wishes = &steps(&text).unwrap()[0].wishes;
            assert_eq!(wishes.size.cpus_per_task, Some(2));
            assert_eq!(wishes.size.slot_memory_mib, Some(900), "{resources}");
            assert_eq!(wishes.output.stdout.as_deref(), Some("sub/out"));
            assert_eq!(wishes.output.stderr.as_deref(), Some("/err"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_line() {
        for (text, why) in [
            ("# @ class = x\n", "queue"),
            (
                "# @ class = x\n# @ nonsense = 1\n# @ queue\n",
                "line 2: the keyword nonsense",
            ),
            ("# @ node = x\n# @ queue\n", "line 1: node = x"),
            (
                "# @ dependency = (a == 0) || (b == 0)\n# @ queue\n",
                "line 1: dependency",
            ),
            (
                "# @ output = $(what)\n# @ queue\n",
                "line 2: the variable $(what)",
            ),
            ("# @ resources = Licences(2)\n# @ queue\n", "Licences(2)"),
            (
                "# @ resources = ConsumableCpus 2\n# @ queue\n",
                "ConsumableMemory(900 MB)",
            ),
        ] {
            let error = steps(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
