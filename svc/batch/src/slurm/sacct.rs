//! `sacct`: what jobs used, also those that have ended.

use margay_core_queue::{End, Phase};
use margay_svc_queue_wire::{Detail, Machine, StepRow};

use super::fields::{
    BY_SIGTERM, UNKNOWN, View, clock, exit, is_state, is_state_name, state, step_end, step_nodes,
    step_phase,
};
use super::format::padded;
use super::{chosen, json, user_names};
use crate::common::{self, Done, date, moment, now_s, print};
use crate::interactive::is_interactive;
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const OPTIONS: &[Known] = &[
    ('A', "accounts", Value),
    ('a', "allusers", Nothing),
    ('b', "brief", Nothing),
    ('D', "duplicates", Nothing),
    ('E', "endtime", Value),
    ('e', "helpformat", Nothing),
    ('j', "jobs", Value),
    ('L', "allclusters", Nothing),
    ('l', "long", Nothing),
    ('M', "clusters", Value),
    ('N', "nodelist", Value),
    ('n', "noheader", Nothing),
    ('o', "format", Value),
    ('P', "parsable2", Nothing),
    ('p', "parsable", Nothing),
    ('q', "qos", Value),
    ('r', "partition", Value),
    ('S', "starttime", Value),
    ('s', "state", Value),
    ('T', "truncate", Nothing),
    ('u', "user", Value),
    ('X', "allocations", Nothing),
    (' ', "json", Nothing),
    (' ', "delimiter", Value),
    (' ', "name", Value),
    (' ', "noconvert", Nothing),
    (' ', "units", Value),
];

/// Fields: their names as headings have them, and how wide the column is.
const FIELDS: &[(&str, usize)] = &[
    ("Account", 10),
    ("AllocCPUS", 10),
    ("AllocNodes", 10),
    ("AllocTRES", 10),
    ("AveCPU", 10),
    ("AveRSS", 10),
    ("AveVMSize", 10),
    ("Cluster", 10),
    ("Comment", 14),
    ("ConsumedEnergy", 14),
    ("ConsumedEnergyRaw", 17),
    ("CPUTime", 10),
    ("CPUTimeRAW", 10),
    ("DerivedExitCode", 15),
    ("Elapsed", 10),
    ("ElapsedRaw", 10),
    ("Eligible", 19),
    ("End", 19),
    ("ExitCode", 8),
    ("GID", 6),
    ("Group", 9),
    ("JobID", 12),
    ("JobIDRaw", 12),
    ("JobName", 10),
    ("MaxRSS", 10),
    ("MaxVMSize", 10),
    ("NCPUS", 10),
    ("NNodes", 8),
    ("NodeList", 15),
    ("NTasks", 8),
    ("Partition", 10),
    ("Planned", 10),
    ("Priority", 10),
    ("QOS", 10),
    ("Reason", 22),
    ("ReqCPUS", 8),
    ("ReqMem", 10),
    ("ReqNodes", 8),
    ("ReqTRES", 10),
    ("Reserved", 10),
    ("Start", 19),
    ("State", 10),
    ("StdErr", 20),
    ("StdIn", 20),
    ("StdOut", 20),
    ("Submit", 19),
    ("SubmitLine", 20),
    ("SystemCPU", 10),
    ("Timelimit", 10),
    ("TimelimitRaw", 12),
    ("TotalCPU", 10),
    ("UID", 6),
    ("User", 9),
    ("UserCPU", 10),
    ("WorkDir", 20),
];

const USUAL: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";
const BRIEF: &str = "JobID,State,ExitCode";
const LONG: &str = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,AveVMSize,MaxRSS,AveRSS,AllocCPUS,Elapsed,State,\
    ExitCode,ReqMem,ConsumedEnergy,AllocTRES";

/// A column: its heading, its width, and whether it stands at the left.
struct Column {
    heading: &'static str,
    width: usize,
    is_left: bool,
}

fn columns(format: &str) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    for item in format.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (name, width) = item.split_once('%').unwrap_or((item, ""));
        let known = FIELDS
            .iter()
            .find(|known| known.0.eq_ignore_ascii_case(name));
        let &(heading, usual) =
            known.ok_or_else(|| format!("Invalid field requested: \"{name}\""))?;
        let width: i64 = match width {
            "" => usual as i64,
            width => width
                .parse()
                .map_err(|_| format!("Invalid width: \"{item}\""))?,
        };
        columns.push(Column {
            heading,
            width: width.unsigned_abs().min(10_000) as usize,
            is_left: width < 0 || heading == "JobID",
        });
    }
    Ok(columns)
}

/// Whose values stand in a line.
#[derive(Clone, Copy)]
enum Line<'a> {
    Job,
    /// The job's script, as a step.
    Script,
    Step(&'a StepRow),
}

fn values(view: &View<'_>, columns: &[Column], line: Line<'_>) -> Vec<String> {
    let value = |column: &Column| {
        let name = column.heading.to_ascii_lowercase();
        let own = match line {
            Line::Job => of_job(view, &name),
            Line::Script => of_script(view, &name),
            Line::Step(step) => of_step(view, step, &name),
        };
        own.or_else(|| view.value(&name)).unwrap_or_default()
    };
    columns.iter().map(value).collect()
}

/// What a line of a job has otherwise than a job in other tables.
fn of_job(view: &View<'_>, name: &str) -> Option<String> {
    let row = &view.detail.row;
    Some(match name {
        // What a whole job used is what its script and its steps used, which stands there.
        "maxrss" | "averss" | "maxvmsize" | "avevmsize" | "avecpu" | "ntasks" => String::new(),
        "state" if row.phase == Phase::Ended(End::Cancelled) => {
            format!("CANCELLED by {}", row.uid)
        }
        "exitcode" if row.phase == Phase::Ended(End::TimeLimit) => "0:0".into(),
        "derivedexitcode" => {
            let code = |step: &&StepRow| step.exit_code.unwrap_or(BY_SIGTERM);
            let ended = row.steps.iter().filter(|s| step_end(row, s).is_some());
            let worst = ended.max_by_key(code);
            exit(worst.map_or(Phase::Ended(End::Exit(0)), |step| step_phase(row, step)))
        }
        _ => return None,
    })
}

/// What lines of steps leave empty: it is the job's.
fn is_of_job(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "partition",
        "user",
        "uid",
        "group",
        "gid",
        "timelimit",
        "timelimitraw",
        "reqmem",
        "qos",
        "priority",
        "derivedexitcode",
        "planned",
        "reserved",
    ];
    NAMES.contains(&name)
}

fn of_script(view: &View<'_>, name: &str) -> Option<String> {
    let row = &view.detail.row;
    Some(match name {
        "jobid" => format!("{}.batch", view.id()),
        "jobidraw" => format!("{}.batch", row.id),
        "jobname" => "batch".into(),
        "ntasks" => "1".into(),
        "totalcpu" | "usercpu" | "avecpu" => {
            let steps: f64 = row.steps.iter().map(|step| step.cpu_s).sum();
            clock((row.usage.cpu_s - steps).max(0.0) as u64)
        }
        name if is_of_job(name) => String::new(),
        _ => return None,
    })
}

fn of_step(view: &View<'_>, step: &StepRow, name: &str) -> Option<String> {
    let row = &view.detail.row;
    let phase = step_phase(row, step);
    let end = step_end(row, step);
    let run_s = end.unwrap_or_else(now_s).saturating_sub(step.started);
    let cpu_s = |tasks: u32| clock((step.cpu_s / f64::from(tasks.max(1))) as u64);
    let slot_s = run_s.saturating_mul(step.slots.into());
    Some(match name {
        "jobid" => format!("{}.{}", view.id(), step.step),
        "jobidraw" => format!("{}.{}", row.id, step.step),
        "jobname" => step.name.clone(),
        "ntasks" => step.tasks.to_string(),
        "alloccpus" | "ncpus" | "reqcpus" => step.slots.to_string(),
        "allocnodes" | "nnodes" | "reqnodes" => step_nodes(view.detail, step).to_string(),
        "alloctres" | "reqtres" => {
            let nodes = step_nodes(view.detail, step);
            format!("cpu={},node={nodes}", step.slots)
        }
        "state" => state(phase).0.into(),
        "exitcode" => exit(phase),
        "start" | "submit" | "eligible" => date(step.started),
        "end" => end.map_or_else(|| UNKNOWN.into(), date),
        "elapsed" => clock(run_s),
        "elapsedraw" => run_s.to_string(),
        "cputime" => clock(slot_s),
        "cputimeraw" => slot_s.to_string(),
        "totalcpu" | "usercpu" => cpu_s(1),
        "avecpu" => cpu_s(step.tasks),
        "maxrss" | "averss" | "maxvmsize" | "avevmsize" => match step.ended {
            Some(_) => format!("{}K", step.max_rss_kib),
            None => String::new(),
        },
        "comment" | "submitline" | "consumedenergy" | "consumedenergyraw" | "stdin" | "stdout"
        | "stderr" | "workdir" | "reason" => String::new(),
        name if is_of_job(name) => String::new(),
        _ => return None,
    })
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    if words.has("helpformat") {
        let names: Vec<&str> = FIELDS.iter().map(|field| field.0).collect();
        print(&format!("{}\n", names.join("\n")))?;
        return Ok(0);
    }
    let variable = std::env::var("SACCT_FORMAT").ok();
    let usual = match (words.has("brief"), words.has("long")) {
        (true, _) => BRIEF,
        (_, true) => LONG,
        _ => variable.as_deref().unwrap_or(USUAL),
    };
    let columns = columns(words.value("format").unwrap_or(usual))?;
    let states = words.list("state");
    if let Some(wrong) = states.iter().find(|state| !is_state_name(state)) {
        return Err(format!("Invalid state: {wrong}"));
    }
    let items = words.list("jobs");
    let mut details = Vec::new();
    for target in chosen(&items)? {
        match common::details(true, vec![target]) {
            Ok(found) => details.extend(found),
            // A job that there is not has no line.
            Err(text) if text.starts_with("there is no job") => {}
            Err(text) => return Err(text),
        }
    }
    let from = match (words.value("starttime"), items.is_empty()) {
        (Some(text), _) => moment(text)?,
        (None, true) => moment("today")?,
        (None, false) => 0,
    };
    if items.is_empty() {
        details = common::details_since(from)?;
    }
    let until = words.value("endtime").map(moment).transpose()?;
    let users = user_names(&words, false);
    let lists = [
        ("jobname", words.list("name")),
        ("account", words.list("accounts")),
        ("partition", words.list("partition")),
    ];
    let machine = common::machine()?;
    details.retain(|detail| {
        let row = &detail.row;
        let view = View::new(detail, &machine);
        row.ended.is_none_or(|ended| ended >= from)
            && until.is_none_or(|until| row.submitted <= until)
            && (states.is_empty() || states.iter().any(|state| is_state(state, row.phase)))
            && (users.is_empty() || users.contains(&detail.user))
            && lists.iter().all(|(name, list)| {
                list.is_empty() || view.value(name).is_some_and(|value| list.contains(&value))
            })
    });
    let text = match words.has("json") {
        true => {
            let view = |detail| json::accounted(&View::new(detail, &machine));
            json::answer(details.iter().map(view).collect())
        }
        false => shown(&words, &columns, &details, &machine),
    };
    print(&text)?;
    Ok(0)
}

fn shown(words: &Words, columns: &[Column], details: &[Detail], machine: &Machine) -> String {
    let delimiter = words.value("delimiter").unwrap_or("|");
    let is_plain = words.has("parsable2") || words.has("parsable");
    let line = |values: &[String]| match is_plain {
        true => {
            let end = if words.has("parsable") { delimiter } else { "" };
            values.join(delimiter) + end + "\n"
        }
        false => {
            let cell = |(value, own): (&String, &Column)| {
                // A text that is cut ends in a plus.
                let value = match value.chars().count() > own.width && own.width > 0 {
                    true => value.chars().take(own.width - 1).collect::<String>() + "+",
                    false => value.clone(),
                };
                padded(&value, Some(own.width), !own.is_left)
            };
            let cells: Vec<String> = values.iter().zip(columns).map(cell).collect();
            cells.join(" ") + " \n"
        }
    };
    let mut text = String::new();
    if !words.has("noheader") {
        let headings: Vec<String> = columns.iter().map(|c| c.heading.to_owned()).collect();
        text += &line(&headings);
        if !is_plain {
            let rules: Vec<String> = columns.iter().map(|c| "-".repeat(c.width)).collect();
            text += &line(&rules);
        }
    }
    for detail in details {
        let view = View::new(detail, machine);
        text += &line(&values(&view, columns, Line::Job));
        let has_begun = detail.row.started.is_some() && state(detail.row.phase).1 != "PD";
        if !has_begun || words.has("allocations") {
            continue;
        }
        if !is_interactive(detail) {
            text += &line(&values(&view, columns, Line::Script));
        }
        for step in &detail.row.steps {
            text += &line(&values(&view, columns, Line::Step(step)));
        }
    }
    text
}
