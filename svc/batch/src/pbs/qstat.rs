//! `qstat`: jobs, queues and the server.

use margay_core_queue::{After, End, Phase};
use margay_svc_queue_wire::{Detail, Machine, OnHost, QueueRow, Target};
use serde_json::{Map, Value as Json, json};

use super::{HAS_FINISHED, UNKNOWN_JOB, UNKNOWN_QUEUE, shown, state, target};
use crate::common::{self, Done, complain, now_s, print};
use crate::machine::{self, job_hosts, node_count};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const OPTIONS: &[Known] = &[
    ('1', "", Nothing),
    ('a', "", Nothing),
    ('B', "", Nothing),
    ('E', "", Nothing),
    ('F', "", Value),
    ('f', "", Nothing),
    ('G', "", Nothing),
    ('H', "", Nothing),
    ('i', "", Nothing),
    ('J', "", Nothing),
    ('M', "", Nothing),
    ('n', "", Nothing),
    ('p', "", Nothing),
    ('Q', "", Nothing),
    ('q', "", Nothing),
    ('r', "", Nothing),
    ('s', "", Nothing),
    ('T', "", Nothing),
    ('t', "", Nothing),
    ('u', "", Value),
    ('w', "", Nothing),
    ('x', "", Nothing),
];

/// `HH:MM:SS`, however many hours.
pub(super) fn clock(seconds: u64) -> String {
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

fn short_clock(seconds: u64) -> String {
    format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

/// `Tue Nov 24 06:47:20 2026`
fn date(at: u64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let t = margay_sys_os::clock::local(at);
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        DAYS[t.weekday as usize % 7],
        MONTHS[(t.month as usize + 11) % 12],
        t.day,
        t.hour,
        t.minute,
        t.second,
        t.year
    )
}

fn run_s(detail: &Detail) -> u64 {
    let row = &detail.row;
    let end = row.ended.unwrap_or_else(now_s);
    row.started.map_or(0, |since| end.saturating_sub(since))
}

/// A line of the tables: a job, or an array of which some wait or run.
struct Line<'a> {
    name: String,
    detail: &'a Detail,
    state: char,
}

/// Lines for jobs: the tasks of an array share one unless `is_whole`.
fn lines<'a>(details: &'a [Detail], host: &str, is_whole: bool) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for detail in details {
        let (name, state) = match detail.array.filter(|_| !is_whole) {
            None => (shown(detail, host), state(detail)),
            Some((array, _)) => {
                let state = match state(detail) {
                    // An array of which one has begun.
                    'R' => 'B',
                    state => state,
                };
                (format!("{array}[].{host}"), state)
            }
        };
        match lines.last_mut().filter(|last| last.name == name) {
            Some(last) if last.state != state => last.state = 'B',
            Some(_) => {}
            None => lines.push(Line {
                name,
                detail,
                state,
            }),
        }
    }
    lines
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    let machine = common::machine()?;
    let queues = machine::queues(&machine);
    let is_queue = |name: &&String| queues.iter().any(|queue| queue.name == **name);
    if words.has("Q") || words.has("q") || words.has("B") {
        let unknown = words.rest.iter().find(|name| !is_queue(name));
        if let Some(other) = unknown.filter(|_| !words.has("B")) {
            complain(&format!("qstat: Unknown queue {other}"));
            return Ok(UNKNOWN_QUEUE);
        }
        print(&tables(&words, &machine, &queues))?;
        return Ok(0);
    }
    let has_history = words.has("x") || words.has("H");
    let mut code = 0;
    let mut details = Vec::new();
    let (names, jobs): (Vec<&String>, Vec<&String>) =
        words.rest.iter().partition(|word| target(word).is_err());
    if let Some(queue) = names.iter().find(|name| !is_queue(name)) {
        complain(&format!("qstat: Unknown queue or job {queue}"));
        code = UNKNOWN_JOB;
    }
    for word in &jobs {
        let target: Target = target(word)?;
        match common::details(true, vec![target]) {
            Ok(found) if !has_history && found.iter().all(|d| d.row.ended.is_some()) => {
                complain(&format!(
                    "qstat: {word} Job has finished, use -x or -H to obtain historical job information"
                ));
                code = HAS_FINISHED;
            }
            Ok(found) => details.extend(found),
            Err(text) if text.starts_with("there is no job") => {
                complain(&format!("qstat: Unknown Job Id {word}"));
                code = UNKNOWN_JOB;
            }
            Err(text) => return Err(text),
        }
    }
    if jobs.is_empty() && code == 0 {
        details = common::details_of_all(has_history)?;
    }
    let users: Vec<String> = words
        .list("u")
        .iter()
        .map(|user| user.split('@').next().unwrap_or(user).to_owned())
        .collect();
    details.retain(|detail| {
        (users.is_empty() || users.contains(&detail.user))
            && (names.is_empty() || !jobs.is_empty() || names.contains(&&detail.row.partition))
            && (has_history || detail.row.ended.is_none())
            && (!words.has("r") || state(detail) == 'R')
            && (!words.has("i") || state(detail) != 'R')
            && (!words.has("H") || detail.row.ended.is_some())
    });
    let is_task = jobs
        .iter()
        .any(|word| !word.contains("[]") && word.contains('['));
    let lines = lines(&details, &machine.host, words.has("t") || is_task);
    let is_wide = ["a", "i", "n", "r", "s", "u", "H", "M", "G"]
        .iter()
        .any(|name| words.has(name));
    let text = match (words.has("f"), words.value("F")) {
        (true, Some("json")) => as_json(&lines, &machine),
        (true, None | Some("dsv")) => full(&lines, &machine.host),
        (_, Some(other)) if !["json", "dsv"].contains(&other) => {
            return Err(format!("-F {other} is not supported; write -F json"));
        }
        _ if lines.is_empty() => String::new(),
        _ if is_wide => wide(&lines, &words, &machine),
        _ => plain(&lines),
    };
    print(&text)?;
    Ok(code)
}

fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).collect::<String>() + "*",
        false => text.to_owned(),
    }
}

fn plain(lines: &[Line<'_>]) -> String {
    let mut text = String::from(
        "Job id            Name             User              Time Use S Queue\n\
         ----------------  ---------------- ----------------  -------- - -----\n",
    );
    for line in lines {
        let row = &line.detail.row;
        let used = match (line.state, row.started) {
            (_, None) => "0".to_owned(),
            _ => clock(row.usage.cpu_s as u64),
        };
        text += &format!(
            "{:<16}  {:<16} {:<16}  {used:>8} {} {}\n",
            cut(&line.name, 16),
            cut(&row.name, 16),
            cut(&line.detail.user, 16),
            line.state,
            row.partition
        );
    }
    text
}

/// Memory as a table has it.
fn memory(mib: u64) -> String {
    match mib % 1024 {
        0 => format!("{}gb", mib / 1024),
        _ => format!("{mib}mb"),
    }
}

fn wide(lines: &[Line<'_>], words: &Words, machine: &Machine) -> String {
    let mut text = format!(
        "\n{}: \n                                                            Req'd  Req'd   Elap\n\
         Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time\n\
         --------------- -------- -------- ---------- ------ --- --- ------ ----- - -----\n",
        machine.host
    );
    for line in lines {
        let (detail, row) = (line.detail, &line.detail.row);
        let size = &detail.wishes.size;
        let memory = size.memory(row.slots).map(memory);
        let none = || "--".to_owned();
        text += &format!(
            "{:<15} {:<8} {:<8} {:<10} {:>6} {:>3} {:>3} {:>6} {:>5} {} {:>5}\n",
            cut(&line.name, 15),
            cut(&detail.user, 8),
            cut(&row.partition, 8),
            cut(&row.name, 10),
            "--",
            node_count(detail),
            row.slots,
            memory.unwrap_or_else(none),
            row.limit_s.map_or_else(none, short_clock),
            line.state,
            row.started
                .map_or_else(none, |_| short_clock(run_s(detail)))
        );
        if words.has("n") && row.started.is_some() {
            let place = exec_host(detail, &machine.host);
            match words.has("1") {
                true => {
                    text.pop();
                    text += &format!(" {place}\n");
                }
                false => text += &format!("   {place}\n"),
            }
        }
        if words.has("s") {
            text += &format!(
                "   {}\n",
                if row.note.is_empty() { "--" } else { &row.note }
            );
        }
    }
    text
}

/// Where a job runs, as PBS writes it: `a/0*2+b/0*4`.
fn exec_host(detail: &Detail, host: &str) -> String {
    let hosts = job_hosts(detail, host);
    let one = |own: &OnHost| format!("{}/0*{}", own.host, own.slots);
    hosts.iter().map(one).collect::<Vec<_>>().join("+")
}

/// All that is known of a job, in the order of PBS.
fn attributes(line: &Line<'_>, host: &str) -> Vec<(String, String)> {
    let (detail, row) = (line.detail, &line.detail.row);
    let size = &detail.wishes.size;
    let mut all: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| all.push((name.to_owned(), value));
    put("Job_Name", row.name.clone());
    put("Job_Owner", format!("{}@{host}", detail.user));
    if row.started.is_some() {
        put("resources_used.cput", clock(row.usage.cpu_s as u64));
        put("resources_used.mem", format!("{}kb", row.usage.max_rss_kib));
        put("resources_used.ncpus", row.slots.to_string());
        put("resources_used.walltime", clock(run_s(detail)));
    }
    put("job_state", line.state.to_string());
    put("queue", row.partition.clone());
    put("server", host.to_owned());
    if let Some(account) = &row.account {
        put("Account_Name", account.clone());
    }
    put("ctime", date(row.submitted));
    if !detail.after.is_empty() {
        let one = |dependency: &margay_core_queue::Dependency| {
            let kind = match dependency.after {
                After::Start => "after",
                After::Ok => "afterok",
                After::NotOk => "afternotok",
                After::Any => "afterany",
            };
            format!("{kind}:{}.{host}", dependency.job)
        };
        let list: Vec<String> = detail.after.iter().map(one).collect();
        put("depend", list.join(","));
    }
    put(
        "Error_Path",
        format!("{host}:{}", detail.stderr.0.to_string_lossy()),
    );
    if row.started.is_some() {
        put("exec_host", exec_host(detail, host));
    }
    put("Hold_Types", if detail.is_held { "u" } else { "n" }.into());
    let joined = if detail.stdout == detail.stderr {
        "oe"
    } else {
        "n"
    };
    put("Join_Path", joined.into());
    put(
        "mtime",
        date(row.ended.or(row.started).unwrap_or(row.submitted)),
    );
    put(
        "Output_Path",
        format!("{host}:{}", detail.stdout.0.to_string_lossy()),
    );
    put("Priority", detail.priority.to_string());
    put("qtime", date(row.submitted));
    let is_rerunnable = detail.wishes.is_requeued.unwrap_or(false);
    put(
        "Rerunable",
        if is_rerunnable { "True" } else { "False" }.into(),
    );
    if let Some(mib) = size.memory(row.slots) {
        put("Resource_List.mem", format!("{mib}mb"));
    }
    put("Resource_List.ncpus", row.slots.to_string());
    put("Resource_List.nodect", node_count(detail).to_string());
    if let Some(limit) = row.limit_s {
        put("Resource_List.walltime", clock(limit));
    }
    if let Some(started) = row.started {
        put("stime", date(started));
    }
    let directory = detail.directory.0.to_string_lossy().into_owned();
    put(
        "Variable_List",
        format!(
            "PBS_O_HOST={host},PBS_O_WORKDIR={directory},PBS_O_QUEUE={}",
            row.partition
        ),
    );
    if !row.note.is_empty() {
        put("comment", row.note.clone());
    }
    if let Phase::Ended(end) = row.phase {
        let status = match end {
            End::Exit(code) => code,
            End::Signal(signal) => 256 + signal,
            End::TimeLimit | End::MemoryLimit | End::Cancelled => 271,
            End::NotStarted => -1,
            End::Lost => -11,
        };
        put("Exit_status", status.to_string());
    }
    all
}

fn full(lines: &[Line<'_>], host: &str) -> String {
    let mut text = String::new();
    for line in lines {
        text += &format!("Job Id: {}\n", line.name);
        for (name, value) in attributes(line, host) {
            text += &format!("    {name} = {value}\n");
        }
        text.push('\n');
    }
    text
}

fn as_json(lines: &[Line<'_>], machine: &Machine) -> String {
    let mut jobs = Map::new();
    for line in lines {
        let mut job = Map::new();
        for (name, value) in attributes(line, &machine.host) {
            let value = match value.parse::<i64>() {
                Ok(number) => Json::from(number),
                Err(_) => Json::from(value),
            };
            match name.split_once('.') {
                Some((outer, inner)) => {
                    let of = job.entry(outer).or_insert_with(|| json!({}));
                    if let Some(of) = of.as_object_mut() {
                        of.insert(inner.into(), value);
                    }
                }
                None => {
                    job.insert(name, value);
                }
            }
        }
        jobs.insert(line.name.clone(), Json::Object(job));
    }
    let all = json!({
        "timestamp": now_s(),
        "pbs_version": "22.05.11",
        "pbs_server": machine.host,
        "Jobs": jobs,
    });
    format!("{all:#}\n")
}

/// The tables of the server and of the queues with these names; of all without.
fn tables(words: &Words, machine: &Machine, queues: &[QueueRow]) -> String {
    let asked = &words.rest;
    let queues = (queues.iter()).filter(|own| asked.is_empty() || asked.contains(&own.name));
    match (words.has("B"), words.has("q"), words.has("f")) {
        (true, _, is_full) => server(machine, is_full),
        (_, _, true) => queues.map(full_queue).collect(),
        (_, true, _) => {
            let lines: String = queues.map(short_queue).collect();
            format!(
                "\nserver: {}\n\nQueue            Memory CPU Time Walltime Node   Run   Que   Lm  State\n\
                 ---------------- ------ -------- -------- ---- ----- ----- ----  -----\n{lines}",
                machine.host
            )
        }
        _ => {
            let lines: String = queues.map(counted_queue).collect();
            format!(
                "Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type\n\
                 ---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----\n{lines}"
            )
        }
    }
}

fn server(machine: &Machine, is_full: bool) -> String {
    let (running, waiting) = (machine.running, machine.waiting);
    let total = running + waiting;
    if is_full {
        return format!(
            "Server: {0}\n    server_state = Active\n    server_host = {0}\n    scheduling = True\n    total_jobs = {total}\n    \
             default_queue = {1}\n    pbs_version = 22.05.11\n\n",
            machine.host,
            machine::default_queue(&machine::queues(machine))
        );
    }
    format!(
        "Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status\n\
         ---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------\n\
         {:<16}     0 {total:>5} {waiting:>5} {running:>5}     0     0     0     0 Active\n",
        cut(&machine.host, 16)
    )
}

/// A queue with all its limits.
fn full_queue(queue: &QueueRow) -> String {
    let mut text = format!(
        "Queue: {}\n    queue_type = Execution\n    total_jobs = {}\n",
        queue.name,
        queue.running + queue.waiting
    );
    for (name, value) in super::qmgr::rules(queue) {
        text += &format!("    {name} = {value}\n");
    }
    text + "\n"
}

/// A queue with what a job of it may have.
fn short_queue(queue: &QueueRow) -> String {
    let rules = &queue.rules;
    let none = || "--".to_owned();
    format!(
        "{:<16} {:>6}    --    {:>8}   -- {:>5} {:>5} {:>4}   {} {}\n",
        cut(&queue.name, 16),
        // Dashes stand in the middle of their column.
        rules.most_memory_mib.map_or_else(|| "--  ".into(), memory),
        rules.most_limit_s.map_or_else(|| "--   ".into(), clock),
        queue.running,
        queue.waiting,
        rules.running.map_or_else(none, |most| most.to_string()),
        if rules.is_open { 'E' } else { 'D' },
        if rules.is_started { 'R' } else { 'S' }
    )
}

/// A queue with how many jobs it has.
fn counted_queue(queue: &QueueRow) -> String {
    let (running, waiting) = (queue.running, queue.waiting);
    let yes = |is: bool| if is { "yes" } else { "no" };
    format!(
        "{:<16} {:>5} {:>5} {:<3} {:<3} {waiting:>5} {running:>5}     0     0     0     0 Exec\n",
        cut(&queue.name, 16),
        queue.rules.jobs.unwrap_or(0),
        running + waiting,
        yes(queue.rules.is_open),
        yes(queue.rules.is_started)
    )
}
