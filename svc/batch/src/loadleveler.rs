//! LoadLeveler's commands.

use std::collections::HashMap;

use margay_core_queue::script::loadleveler::{Step, steps};
use margay_core_queue::{Dependency, End, JobId, Phase, Wishes, script};
use margay_svc_queue_wire::{
    Bytes, Cause, Detail, HostRow, Order, QueueRow, Request, Shared, Target, user,
};

use crate::common::{self, Done, base_name, complain, date, now_s, print};
use crate::machine::{self, first_host, job_hosts, node_count};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Usage, Words};

/// The names of the commands.
pub const NAMES: [&str; 6] = [
    "llsubmit", "llq", "llcancel", "llstatus", "llhold", "llclass",
];

/// What their `--help` says.
pub const USAGES: [Usage; 6] = [
    Usage {
        name: "llsubmit",
        form: "[OPTIONS] FILE, or - for the standard input",
        what: "Submits the steps of a job command file to Margay's queue.",
        options: SUBMIT,
    },
    Usage {
        name: "llq",
        form: "[OPTIONS] [JOB...]",
        what: "Lists the jobs that wait or run. The options are LoadLeveler's.",
        options: LLQ,
    },
    Usage {
        name: "llcancel",
        form: "[OPTIONS] JOB...",
        what: "Ends jobs.",
        options: CHANGE,
    },
    Usage {
        name: "llstatus",
        form: "[OPTIONS]",
        what: "Lists the machines.",
        options: STATUS,
    },
    Usage {
        name: "llhold",
        form: "[OPTIONS] JOB...",
        what: "Holds jobs that wait, or with -r releases them.",
        options: CHANGE,
    },
    Usage {
        name: "llclass",
        form: "[OPTIONS]",
        what: "Lists the classes.",
        options: CLASSES,
    },
];

/// By which words they print it.
pub const ASKS_FOR_HELP: &[&str] = &["--help", "-H", "-?"];

/// Runs a command.
///
/// # Errors
/// In words.
pub fn run(name: &str, words: &[String]) -> Done {
    if let [only] = words
        && ["-v", "--version"].contains(&only.as_str())
    {
        print("LoadLeveler 5.1.0 (margay)\n")?;
        return Ok(0);
    }
    match name {
        "llsubmit" => submit(words),
        "llq" => llq(words),
        "llstatus" => status(words),
        "llclass" => classes(words),
        name => change(name, words),
    }
}

pub(crate) const SUBMIT: &[Known] = &[('q', "", Nothing), ('s', "", Nothing), ('X', "", Value)];

/// Submits the steps of a job command file, one after the other.
fn submit(words: &[String]) -> Done {
    let words = Words::divide(words, SUBMIT)?;
    let [file] = words.rest.as_slice() else {
        return Err(
            "which job command file? llsubmit takes one, or - for the standard input".into(),
        );
    };
    let text = common::script(Some(file))?;
    let steps =
        steps(&String::from_utf8_lossy(&text)).map_err(|error| format!("{file}, {error}"))?;
    let mut numbers: HashMap<String, JobId> = HashMap::new();
    let mut accepted: Vec<JobId> = Vec::new();
    let count = steps.len();
    // None may begin before all are accepted.
    let mut waits = Vec::new();
    for (at, mut step) in steps.into_iter().enumerate() {
        let name = step.name.clone().unwrap_or_else(|| at.to_string());
        let is_held = step.wishes.is_held == Some(true);
        step.wishes.is_held = Some(is_held || count > 1);
        step.wishes
            .variables
            .push(("LOADL_STEP_NAME".into(), name.clone()));
        let order = order(step, &text, file, &numbers);
        let job = order.and_then(|order| common::submit(Shared::here()?, order));
        match job {
            Ok(job) => {
                numbers.insert(name, job);
                accepted.push(job);
                if count > 1 && !is_held {
                    waits.push(Target { job, task: None });
                }
            }
            Err(text) => {
                // All or none.
                let target = |&job: &JobId| Target { job, task: None };
                let jobs: Vec<Target> = accepted.iter().map(target).collect();
                if !jobs.is_empty() {
                    let _ = common::order(&Request::Cancel { jobs });
                }
                return Err(format!("step {at}: {text}"));
            }
        }
    }
    if !waits.is_empty() {
        let release = Request::Hold {
            jobs: waits,
            is_held: false,
        };
        common::order(&release)?;
    }
    let host = common::machine()?.host;
    let first = accepted.first().copied().unwrap_or(0);
    print(&match count {
        1 => format!("llsubmit: The job \"{host}.{first}\" has been submitted.\n"),
        _ => format!(
            "llsubmit: The job \"{host}.{first}\" with {count} job steps has been submitted.\n"
        ),
    })?;
    Ok(0)
}

/// What the head is asked for a step.
fn order(
    step: Step,
    text: &[u8],
    file: &str,
    numbers: &HashMap<String, JobId>,
) -> Result<Order, String> {
    let mut wishes = step.wishes;
    for (name, after) in &step.after {
        let job = numbers.get(name).copied();
        let job = job.ok_or_else(|| {
            format!("the dependency names the step '{name}', which does not stand before it")
        })?;
        wishes.after.push(Dependency::on(*after, job));
    }
    for name in &step.names {
        if let Ok(value) = std::env::var(name) {
            wishes.variables.push((name.clone(), value));
        }
    }
    let arguments = script::split(step.arguments.as_deref().unwrap_or_default())?;
    let bytes = |word: String| Bytes(word.into());
    let usual = step.name.or_else(|| base_name(file));
    let wishes = wishes.or(Wishes {
        name: usual.or_else(|| Some("job".into())),
        ..Wishes::default()
    });
    Ok(match step.executable {
        Some(executable) => Order {
            wishes,
            script: None,
            arguments: std::iter::once(executable)
                .chain(arguments)
                .map(bytes)
                .collect(),
        },
        None => Order {
            wishes: match text.starts_with(b"#!") {
                true => wishes,
                false => wishes.or(Wishes {
                    shell: Some(common::login_shell()),
                    ..Wishes::default()
                }),
            },
            script: Some(text.to_vec().into()),
            arguments: arguments.into_iter().map(bytes).collect(),
        },
    })
}

/// The name of a step.
fn shown(detail: &Detail, host: &str) -> String {
    match detail.array {
        Some((array, task)) => format!("{host}.{array}.{task}"),
        None => format!("{host}.{}.0", detail.row.id),
    }
}

/// Reads the name of a job or a step: `host.12`, `host.12.0`, `12`, `12.0`. The host's name may
/// have points, too.
fn target(word: &str) -> Result<Target, String> {
    let parts: Vec<&str> = word.split('.').collect();
    let is_number = |text: &&&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers: Vec<&&str> = parts.iter().rev().take(2).take_while(is_number).collect();
    let number = match numbers[..] {
        [only] => only,
        [_, job] => job,
        _ => {
            return Err(format!(
                "'{word}' is no job; write its number, or host.12.0"
            ));
        }
    };
    number.parse()
}

/// The letters of a step's state, and its word.
fn state(detail: &Detail) -> (&'static str, &'static str) {
    match (detail.row.phase, detail.cause) {
        (Phase::Running(_), _) => ("R", "Running"),
        (Phase::Ended(End::Exit(_) | End::Signal(_)), _) => ("C", "Completed"),
        (Phase::Ended(End::Cancelled), _) => ("CA", "Canceled"),
        (Phase::Ended(End::TimeLimit | End::MemoryLimit), _) => ("RM", "Removed"),
        (Phase::Ended(End::NotStarted), _) => ("NR", "Not Run"),
        (Phase::Ended(End::Lost), _) => ("X", "Rejected"),
        (_, Some(Cause::Held)) => ("H", "User Hold"),
        (_, Some(Cause::Dependency | Cause::Never)) => ("NQ", "Not Queued"),
        (_, Some(Cause::BeginTime)) => ("D", "Deferred"),
        _ => ("I", "Idle"),
    }
}

fn month_and_time(at: u64) -> String {
    let t = margay_sys_os::clock::local(at);
    format!("{}/{} {:02}:{:02}", t.month, t.day, t.hour, t.minute)
}

pub(crate) const LLQ: &[Known] = &[
    ('c', "", Value),
    ('d', "", Nothing),
    ('f', "", Value),
    ('h', "", Value),
    ('j', "", Value),
    ('l', "", Nothing),
    ('r', "", Value),
    ('s', "", Nothing),
    ('u', "", Value),
    ('w', "", Nothing),
    ('x', "", Nothing),
];

fn llq(words: &[String]) -> Done {
    let words = Words::divide(words, LLQ)?;
    // Blanks stand between the fields of -f and -r as well.
    let all = words.rest.iter().flat_map(|word| word.split(' '));
    let (fields, jobs): (Vec<&str>, Vec<&str>) = all.partition(|word| word.starts_with('%'));
    let fields = |option: &str| -> Vec<String> {
        let own = words.list(option);
        let own = own
            .iter()
            .flat_map(|item| item.split(' '))
            .map(str::to_owned);
        own.chain(fields.iter().map(|&field| field.to_owned()))
            .collect()
    };
    let jobs: Vec<String> = jobs
        .into_iter()
        .map(str::to_owned)
        .chain(words.list("j"))
        .collect();
    let targets: Vec<Target> = jobs
        .iter()
        .map(|word| target(word))
        .collect::<Result<_, _>>()?;
    let mut details = match common::details(false, targets) {
        Err(text) if text.starts_with("there is no job") => vec![],
        other => other?,
    };
    let users = words.list("u");
    let classes = words.list("c");
    details.retain(|detail| {
        (users.is_empty() || users.contains(&detail.user))
            && (classes.is_empty() || classes.contains(&detail.row.partition))
            && detail.row.ended.is_none()
    });
    if details.is_empty() {
        print("llq: There is currently no job status to report.\n")?;
        return Ok(0);
    }
    let machine = common::machine()?;
    let host = &machine.host;
    if words.has("l") || words.has("s") {
        let all: String = details.iter().map(|detail| long(detail, host)).collect();
        print(&all)?;
        return Ok(0);
    }
    if words.has("r") {
        let raw = fields("r");
        for detail in &details {
            let cells: Vec<String> = raw.iter().map(|name| cell(name, detail, host)).collect();
            print(&format!("{}\n", cells.join("!")))?;
        }
        return Ok(0);
    }
    let format = match words.has("f") {
        true => fields("f"),
        false => ["%id", "%o", "%dq", "%st", "%p", "%c", "%h"]
            .map(str::to_owned)
            .to_vec(),
    };
    let heading = |name: &String| {
        match name.trim_start_matches('%') {
            "id" => "Id",
            "o" => "Owner",
            "dq" => "Submitted",
            "st" => "ST",
            "p" => "PRI",
            "c" => "Class",
            "h" => "Running On",
            "jn" => "Job Name",
            "sn" => "Step Name",
            "nh" => "NM",
            "a" => "Account",
            "dd" => "Disp. Date",
            other => return other.to_uppercase(),
        }
        .to_owned()
    };
    let mut lines: Vec<Vec<String>> = vec![format.iter().map(heading).collect()];
    lines.push(Vec::new());
    for detail in &details {
        lines.push(format.iter().map(|name| cell(name, detail, host)).collect());
    }
    let width = |n: usize| {
        let cells = lines.iter().filter_map(|line| line.get(n));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    lines[1] = (0..format.len()).map(|n| "-".repeat(width(n))).collect();
    let count = |letters: &str| details.iter().filter(|d| state(d).0 == letters).count();
    let waiting = count("I") + count("NQ");
    print(&format!(
        "{}\n{} job step(s) in query, {waiting} waiting, 0 pending, {} running, {} held, 0 preempted\n",
        common::table(&lines),
        details.len(),
        count("R"),
        count("H")
    ))?;
    Ok(0)
}

/// A field of `llq -f` and `-r`.
fn cell(name: &str, detail: &Detail, host: &str) -> String {
    let row = &detail.row;
    match name.trim_start_matches('%') {
        "id" => shown(detail, host),
        "o" => detail.user.clone(),
        "dq" => month_and_time(row.submitted),
        "dd" => row.started.map(month_and_time).unwrap_or_default(),
        "st" => state(detail).0.into(),
        "p" => (50 + detail.priority).to_string(),
        "c" => row.partition.clone(),
        "h" => first_host(detail, host),
        "jn" | "sn" => row.name.clone(),
        "nh" => node_count(detail).to_string(),
        "a" => row.account.clone().unwrap_or_default(),
        _ => String::new(),
    }
}

fn long(detail: &Detail, host: &str) -> String {
    let row = &detail.row;
    let size = &detail.wishes.size;
    let text = |bytes: &Bytes| bytes.0.to_string_lossy().into_owned();
    let mut lines = vec![
        ("Job Step Id", shown(detail, host)),
        ("Job Name", row.name.clone()),
        ("Owner", detail.user.clone()),
        ("Queue Date", date(row.submitted)),
        ("Status", state(detail).1.to_owned()),
        ("Class", row.partition.clone()),
        ("User Priority", (50 + detail.priority).to_string()),
        ("Account", row.account.clone().unwrap_or_default()),
        ("Initial Working Dir", text(&detail.directory)),
        ("Out", text(&detail.stdout)),
        ("Err", text(&detail.stderr)),
        (
            "Wall Clk Hard Limit",
            row.limit_s
                .map_or_else(|| "undefined".into(), margay_core_queue::shown),
        ),
        ("Node", node_count(detail).to_string()),
        ("Total Tasks", size.tasks().to_string()),
    ];
    let hosts: Vec<String> = job_hosts(detail, host)
        .into_iter()
        .map(|own| own.host)
        .collect();
    let (name, names) = match hosts.len() {
        0 | 1 => ("Allocated Host", hosts.concat()),
        _ => ("Allocated Hosts", hosts.join(", ")),
    };
    lines.push((name, names));
    if !row.note.is_empty() {
        lines.push(("Reason", row.note.clone()));
    }
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name:>20}: {value}\n"));
    format!(
        "=============== Job Step {} ===============\n{}\n",
        shown(detail, host),
        lines.collect::<String>()
    )
}

pub(crate) const CHANGE: &[Known] = &[
    ('f', "", Nothing),
    ('h', "", Value),
    ('q', "", Nothing),
    ('r', "", Nothing),
    ('s', "", Nothing),
    ('u', "", Value),
];

/// `llcancel` and `llhold`.
fn change(name: &str, words: &[String]) -> Done {
    let words = Words::divide(words, CHANGE)?;
    let jobs = words.rest.iter().flat_map(|word| word.split(' '));
    let mut targets: Vec<Target> = jobs.map(target).collect::<Result<_, _>>()?;
    let users = words.list("u");
    if !users.is_empty() {
        let details = common::details(false, vec![])?;
        let theirs = details.iter().filter(|detail| users.contains(&detail.user));
        targets.extend(theirs.filter_map(|detail| detail.row.shown.parse::<Target>().ok()));
    }
    if targets.is_empty() {
        return Err("which job? name it, as host.12.0 or by its number".into());
    }
    let is_held = !words.has("r");
    let mut code = 0;
    for target in targets {
        let jobs = vec![target];
        let done = match name {
            "llcancel" => common::order(&Request::Cancel { jobs }),
            _ => common::order(&Request::Hold { jobs, is_held }),
        };
        match done {
            Err(text) => {
                complain(&format!("{name}: {text}"));
                code = 1;
            }
            Ok(()) if words.has("q") => {}
            Ok(()) => {
                let what = match (name, is_held) {
                    ("llcancel", _) => "Cancel",
                    (_, true) => "Hold",
                    (_, false) => "Hold release",
                };
                print(&format!(
                    "{name}: {what} command has been sent to the central manager.\n"
                ))?;
            }
        }
    }
    Ok(code)
}

pub(crate) const STATUS: &[Known] = &[
    ('l', "", Nothing),
    ('f', "", Value),
    ('r', "", Value),
    ('h', "", Value),
];

/// A host as `llstatus` has it: what it does, in one word.
fn startd(host: &HostRow) -> &'static str {
    match (host.is_up, host.leaves, host.used) {
        (true, true, 1..) => "Drning",
        (true, true, 0) => "Drned",
        (false, ..) => "Down",
        (.., 0) => "Idle",
        (.., used) if used >= host.slots => "Busy",
        _ => "Run",
    }
}

fn status(words: &[String]) -> Done {
    let words = Words::divide(words, STATUS)?;
    let machine = common::machine()?;
    let hosts = machine::hosts(&machine);
    let asked = [words.list("h"), words.rest.clone()].concat();
    if let Some(other) = asked
        .iter()
        .find(|name| !hosts.iter().any(|host| host.name == **name))
    {
        return Err(format!("the machine {other} is not on the machine_list"));
    }
    let mut lines = vec![
        [
            "Name", "Schedd", "InQ", "Act", "Startd", "Run", "Slots", "Used", "Arch", "OpSys",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let is_asked = |host: &&HostRow| asked.is_empty() || asked.contains(&host.name);
    for host in hosts.iter().filter(is_asked) {
        // The head's host has the queue.
        let [schedd, in_queue, active] = match host.name == machine.host {
            true => [
                "Avail".to_owned(),
                (machine.running + machine.waiting).to_string(),
                machine.running.to_string(),
            ],
            false => ["None", "0", "0"].map(str::to_owned),
        };
        lines.push(vec![
            host.name.clone(),
            schedd,
            in_queue,
            active,
            startd(host).into(),
            host.running.to_string(),
            host.slots.to_string(),
            host.used.to_string(),
            std::env::consts::ARCH.into(),
            "Linux".into(),
        ]);
    }
    let absent: Vec<&str> = (hosts.iter().filter(|host| !host.is_up))
        .map(|host| &*host.name)
        .collect();
    let presence = match absent.len() {
        0 => "All machines on the machine_list are present.".to_owned(),
        1 => format!("The following machine is absent\n\t{}", absent[0]),
        _ => format!(
            "The following machines are absent\n\t{}",
            absent.join("\n\t")
        ),
    };
    print(&format!(
        "{}\nThe Central Manager is defined on {}\n\n{presence}\n",
        common::table(&lines),
        machine.host
    ))?;
    Ok(0)
}

const CLASSES: &[Known] = &[('l', "", Nothing)];

fn classes(words: &[String]) -> Done {
    let words = Words::divide(words, CLASSES)?;
    let machine = common::machine()?;
    let queues = machine::queues(&machine);
    let asked = &words.rest;
    if let Some(other) = asked
        .iter()
        .find(|name| !queues.iter().any(|own| own.name == **name))
    {
        return Err(format!("there is no class {other}"));
    }
    let mut lines = vec![
        [
            "Name",
            "MaxJobCPU",
            "MaxProcCPU",
            "Free",
            "Max",
            "Description",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let is_asked = |queue: &&QueueRow| asked.is_empty() || asked.contains(&queue.name);
    for queue in queues.iter().filter(is_asked) {
        let most = queue.rules.used_slots.unwrap_or(u32::MAX);
        lines.push(vec![
            queue.name.clone(),
            "undefined".into(),
            "undefined".into(),
            machine::free_slots(&queues, queue).to_string(),
            queue.slots.min(most).to_string(),
            format!("of {} at {}", user(), date(now_s())),
        ]);
    }
    print(&common::table(&lines))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_as_loadleveler_names_them() {
        for word in ["12", "12.0", "host.12", "host.12.0", "a.b.host.12.3"] {
            assert_eq!(target(word).map(|target| target.job), Ok(12), "{word}");
        }
        for word in ["", "x", "host", "12.x", "host."] {
            assert!(target(word).is_err(), "{word}");
        }
    }
}
