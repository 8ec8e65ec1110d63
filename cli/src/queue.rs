//! The commands of the queue: each asks its head, and shows what that answers.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use margay_core_queue::{End, Phase, Wishes, duration, ranges, script, shown};
use margay_svc_queue_wire::{
    Answer, Bytes, HostSpec, JobRow, MOST_BYTES, MachineSpec, OnHost, Order, PROGRAM, Place,
    Request, Shared, Target, ask, connect, connect_elsewhere, converse, find_head, hosts_text,
    is_system, state, wait as wait_for,
};
use margay_sys_os::process::beside;
use serde_json::Value;

use crate::bench::replace;
use crate::hosts::hosts;
use crate::queue_answer::{each_ended, print, show, table};
use crate::queue_head::{show_machine, show_new, show_standby, start_head, stop, store_words};
use crate::queue_machine::machine;
use crate::queue_options::{
    DownOptions, ExplainOptions, JobsOptions, NodeOptions, QueueOptions, SetOptions, SubmitOptions,
    UpOptions,
};
use crate::queue_system;

/// Starts the head in the background, unless it runs.
///
/// # Errors
/// In words.
pub fn up(options: &UpOptions) -> Result<(), String> {
    if options.system {
        return queue_system::up(options);
    }
    let mut place = match options.standby {
        true => Place::for_standby()?,
        false => Place::find()?,
    };
    place.make()?;
    let found = connect(&place)?;
    let mut words = store_words(options, &place, found.is_some())?;
    if let Some(mut stream) = found {
        return show_machine(&mut stream, "the queue is up already");
    }
    let spec = machine(options)?;
    words.extend(spec.iter().flat_map(MachineSpec::words));
    let mut started = start_head(options, &place, words.clone());
    if started.is_err() && options.standby {
        // Another host with the same home directory was faster.
        let again = Place::for_standby()?;
        if again.folder != place.folder {
            again.make()?;
            started = start_head(options, &again, words);
            place = again;
        }
    }
    started?;
    match options.standby {
        true => show_standby(&place),
        false => show_new(&place),
    }
}

/// Replaces this process by the queue's program, which has the commands of other batch systems;
/// returns only with the reason why that failed.
pub fn other_system(arguments: &[OsString]) -> String {
    replace("the queue", PROGRAM, arguments)
}

/// Changes the rules, or shows them.
///
/// # Errors
/// In words.
pub fn set(options: &SetOptions) -> Result<(), String> {
    options.which.choose();
    let words = options.words.clone();
    show(ask(&Request::Set { words })?)
}

/// Shows the machine.
///
/// # Errors
/// In words.
pub fn node(options: &NodeOptions) -> Result<(), String> {
    options.which.choose();
    if let Some((word, names)) = options.words.split_first() {
        if names.is_empty() || !matches!((&**word, options.now), ("add", false) | ("remove", _)) {
            return Err(
                "write margay node add HOST..., or margay node remove [--now] HOST...".into(),
            );
        }
        let list = hosts(&names.join(","))?.distinct().into_iter();
        let mut words = vec!["hosts".to_owned(), word.clone()];
        match word.as_str() {
            "add" => {
                let list: Vec<HostSpec> = list
                    .map(|(name, slots)| HostSpec {
                        name,
                        slots,
                        leaves: false,
                    })
                    .collect();
                words.push(hosts_text(&list));
            }
            _ => {
                words[1] += if options.now { "-now" } else { "" };
                words.extend(list.map(|(name, _)| name));
            }
        }
        match ask(&Request::Set { words })? {
            Answer::Done(_) => {}
            other => return show(other),
        }
    }
    match ask(&Request::Machine)? {
        Answer::Machine(machine) if !machine.hosts.is_empty() => {
            let head = ["NODE", "STATE", "SLOTS", "USED", "RUNNING", "NOTE"];
            let mut lines = vec![head.map(str::to_owned).to_vec()];
            lines.extend(machine.hosts.iter().map(|host| {
                vec![
                    host.name.clone(),
                    host.state().to_owned(),
                    host.slots.to_string(),
                    host.used.to_string(),
                    host.running.to_string(),
                    host.note.clone(),
                ]
            }));
            print(&(table(&lines) + &standing_by(&machine.standbys)))
        }
        Answer::Machine(machine) => {
            let standbys = standing_by(&machine.standbys);
            let head = ["NODE", "SLOTS", "USED", "RUNNING", "WAITING"];
            let mut text = table(&[
                head.map(str::to_owned).to_vec(),
                vec![
                    machine.host,
                    machine.slots.to_string(),
                    machine.used.to_string(),
                    machine.running.to_string(),
                    machine.waiting.to_string(),
                ],
            ]);
            if !machine.groups.is_empty() {
                text += &format!("jobs: {}\n", machine.groups);
            }
            print(&(text + &standbys))
        }
        other => show(other),
    }
}

/// The hosts that take over when that of the head is gone.
fn standing_by(hosts: &[String]) -> String {
    match hosts {
        [] => String::new(),
        hosts => format!("standing by: {}\n", hosts.join(", ")),
    }
}

/// Ends the head.
///
/// # Errors
/// In words.
pub fn down(options: &DownOptions) -> Result<(), String> {
    if options.system {
        return queue_system::down(options);
    }
    if let Some(stream) = connect(&Place::find()?)? {
        return stop(stream, options.leave);
    }
    if let Some(mut stream) = connect_elsewhere()
        && let Answer::Machine(machine) = converse(&mut stream, &Request::Machine)?
    {
        return Err(format!(
            "this host belongs to the queue of host {}; margay down ends it there",
            machine.host
        ));
    }
    print("the queue does not run\n")
}

/// Submits a job. `is_command` says that the words are a command and not a script.
///
/// # Errors
/// In words.
pub fn submit(options: &SubmitOptions, is_command: bool) -> Result<bool, String> {
    options.which.choose();
    let mut asked = Wishes::default();
    script::slurm_options(&options.asked.words(), &mut asked)?;
    let orders = match (&options.many, options.words.split_first()) {
        (Some(file), _) => many(file, &asked)?,
        (None, None) => {
            return Err("nothing to submit; name a script, or a command behind --; see margay submit --help".into());
        }
        (None, Some(_)) if is_command => vec![Order {
            wishes: asked,
            script: None,
            arguments: options.words.iter().cloned().map(Bytes).collect(),
        }],
        (None, Some((file, arguments))) => vec![of_script(file, arguments, asked)?],
    };
    let shared = Shared::here()?;
    let mut jobs = Vec::new();
    for orders in requests(orders) {
        let shared = shared.clone();
        let accepted = match ask(&Request::Submit { shared, orders })? {
            Answer::Accepted(accepted) => accepted,
            other => return show(other).map(|()| true),
        };
        let text: String = accepted
            .iter()
            .map(|(job, tasks)| match (options.parsable, tasks) {
                (true, _) => format!("{job}\n"),
                (false, 1) => format!("submitted job {job}\n"),
                (false, tasks) => format!("submitted job {job}, an array of {tasks} tasks\n"),
            })
            .collect();
        print(&text)?;
        jobs.extend((accepted.iter()).map(|&(job, _)| Target { job, task: None }));
    }
    match options.wait {
        true => until_ended(jobs, true),
        false => Ok(true),
    }
}

/// Orders in as many requests as they need, in their order: one may be as long as a head reads.
fn requests(orders: Vec<Order>) -> Vec<Vec<Order>> {
    let bytes = |order: &Order| {
        let words: usize = order.arguments.iter().map(|word| word.0.len()).sum();
        let script = order.script.as_ref().map_or(0, |script| script.0.len());
        ORDER_BYTES + words + script
    };
    let mut all: Vec<Vec<Order>> = Vec::new();
    let mut room = 0;
    for order in orders {
        let wanted = bytes(&order);
        match all.last_mut() {
            Some(last) if wanted <= room => {
                room -= wanted;
                last.push(order);
            }
            _ => {
                room = (MOST_BYTES / 4).saturating_sub(wanted);
                all.push(vec![order]);
            }
        }
    }
    all
}

/// What an order has beside its words, about.
const ORDER_BYTES: usize = 1024;

/// Longest file that is read; what is sent to the head may not be longer.
const MOST_READ: u64 = MOST_BYTES as u64;

fn contents(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // A byte more than is accepted; there are files without an end.
    let most = MOST_READ + 1;
    let read = if file == Path::new("-") {
        io::stdin().take(most).read_to_end(&mut bytes)
    } else {
        fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if bytes.len() as u64 > MOST_READ {
        return Err(format!(
            "{} is larger than {} MiB; a script or a list of commands may not be",
            file.display(),
            MOST_READ >> 20
        ));
    }
    Ok(bytes)
}

fn of_script(file: &OsString, arguments: &[OsString], asked: Wishes) -> Result<Order, String> {
    let path = Path::new(file);
    let shown = path.display();
    if file.len() > 1 && file.as_encoded_bytes().starts_with(b"-") && !path.exists() {
        return Err(format!(
            "there is no option '{shown}'; see margay submit --help. A command stands behind --: margay submit -- COMMAND"
        ));
    }
    let text = contents(path).map_err(|error| {
        format!("{error}; a script is wanted here, to submit a command put -- before it: margay submit -- {shown}")
    })?;
    if !text.starts_with(b"#!") {
        return Err(format!(
            "{shown} is no script: its first line does not name a shell, such as #!/bin/sh; to submit a command put -- \
             before it: margay submit -- {shown}"
        ));
    }
    let said = script::wishes(&String::from_utf8_lossy(&text))
        .map_err(|error| format!("{shown}, {error}"))?;
    let of_file = Wishes {
        name: path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name != "-"),
        ..Wishes::default()
    };
    Ok(Order {
        wishes: asked.or(said).or(of_file),
        script: Some(text.into()),
        arguments: arguments.iter().cloned().map(Bytes).collect(),
    })
}

/// A job for each line of a file that is neither empty nor a remark.
fn many(file: &Path, asked: &Wishes) -> Result<Vec<Order>, String> {
    let text = contents(file)?;
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let orders: Vec<Order> = lines
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .map(|line| {
            let words = [
                "/bin/sh".into(),
                "-c".into(),
                OsString::from_vec(line.to_vec()),
            ];
            Order {
                wishes: asked.clone(),
                script: None,
                arguments: words.map(Bytes).to_vec(),
            }
        })
        .collect();
    if orders.is_empty() {
        return Err(format!(
            "{} has no commands; write one on each line",
            file.display()
        ));
    }
    Ok(orders)
}

/// Waits until jobs have ended. Returns whether all of them succeeded.
///
/// # Errors
/// In words.
pub fn wait(options: &JobsOptions) -> Result<bool, String> {
    options.which.choose();
    until_ended(targets(options)?, false)
}

/// The jobs that are named; none for all.
fn targets(options: &JobsOptions) -> Result<Vec<Target>, String> {
    match options.jobs.is_empty() && !options.all {
        true => Err("no job is named; name some, or say --all".into()),
        false => Ok(options.jobs.clone()),
    }
}

/// The same; `is_known` says that the head has answered before.
fn until_ended(jobs: Vec<Target>, is_known: bool) -> Result<bool, String> {
    let mut says = |text: &str| {
        let _ = writeln!(io::stderr(), "margay: {text}");
    };
    let rows = match wait_for(jobs, is_known, &mut says)? {
        Answer::Jobs(rows) => rows,
        other => return show(other).map(|()| true),
    };
    let failed = rows.iter().filter(|row| match row.phase {
        Phase::Ended(end) => !end.is_ok(),
        _ => true,
    });
    let mut text = String::new();
    for row in failed {
        text += &format!("job {} ({}): {}\n", row.shown, row.name, outcome(row));
    }
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(text.is_empty())
}

/// How a job ended, in a few words.
fn outcome(row: &JobRow) -> String {
    let word = match row.phase {
        Phase::Ended(End::Exit(code)) if code != 0 => {
            format!("exit code {code}")
        }
        phase => state(phase).to_owned(),
    };
    match row.note.as_str() {
        "" => word,
        note => format!("{word}: {note}"),
    }
}

/// Ends jobs.
///
/// # Errors
/// In words.
pub fn cancel(options: &JobsOptions) -> Result<(), String> {
    options.which.choose();
    let jobs = targets(options)?;
    show(ask(&Request::Cancel { jobs })?)
}

/// Holds jobs, or lets them go.
///
/// # Errors
/// In words.
pub fn hold(options: &JobsOptions, is_held: bool) -> Result<(), String> {
    options.which.choose();
    let jobs = targets(options)?;
    show(ask(&Request::Hold { jobs, is_held })?)
}

/// Says why a job waits, or when one would start.
///
/// # Errors
/// In words.
pub fn explain(options: &ExplainOptions) -> Result<(), String> {
    options.which.choose();
    let request = match (options.job, options.when.as_slice()) {
        (Some(job), _) => Request::Explain { job },
        (None, [slots, rest @ ..]) => {
            let (is_nodes, time) = match rest {
                [unit, time @ ..] if ["node", "nodes", "host", "hosts"].contains(&&**unit) => {
                    (true, time)
                }
                [unit, time @ ..] if ["slot", "slots"].contains(&&**unit) => (false, time),
                time => (false, time),
            };
            if let [_, more, ..] = time {
                return Err(format!(
                    "'{more}' is too much: --when 4 2h, or --when 4 nodes 2h"
                ));
            }
            let limit_s = match time.first() {
                Some(time) => duration(time, false)?,
                None => None,
            };
            let number = slots.parse().ok().filter(|number| *number > 0);
            let slots = number.ok_or_else(|| {
                format!(
                    "'{slots}' is no number of slots, 1 or more: --when 4 2h, or --when 4 nodes 2h"
                )
            })?;
            Request::When {
                slots,
                nodes: is_nodes.then_some(slots),
                limit_s,
            }
        }
        (None, []) => return Err("name a job".into()),
    };
    show(ask(&request)?)
}

/// Shows jobs.
///
/// # Errors
/// In words.
pub fn queue(options: &QueueOptions) -> Result<(), String> {
    if let Some(file) = &options.replay {
        return replay(file, options.json);
    }
    let is_all = options.all && options.jobs.is_empty();
    let request = Request::List {
        has_steps: options.all || !options.jobs.is_empty(),
        jobs: options.jobs.clone(),
    };
    options.which.choose();
    let mut stream = find_head()?;
    // Before its end, when the system forgets it.
    let is_shared = is_system(&stream);
    let mut rows = match converse(&mut stream, &request)? {
        Answer::Jobs(rows) => rows,
        other => return show(other),
    };
    if is_all {
        each_ended(|row| rows.push(row))?;
        // One that ended meanwhile is there twice: how it ended counts.
        rows.sort_by_key(|row| (row.id, row.ended.is_none()));
        rows.dedup_by_key(|row| row.id);
    }
    if options.json {
        let rows: Vec<Value> = rows.iter().map(JobRow::json).collect();
        return print(&format!("{}\n", Value::from(rows)));
    }
    let head = ["JOB", "NAME", "STATE", "SLOTS", "TIME", "LIMIT", "NOTE"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(line));
    if rows.iter().any(|row| !row.hosts.is_empty()) {
        let hosts = rows.iter().map(|row| places(&row.hosts));
        let hosts = std::iter::once("HOSTS".to_owned()).chain(hosts);
        for (line, hosts) in lines.iter_mut().zip(hosts) {
            line.insert(line.len() - 1, hosts);
        }
    }
    if is_shared {
        let users = std::iter::once("USER").chain(rows.iter().map(|row| row.user.as_str()));
        for (line, user) in lines.iter_mut().zip(users) {
            line.insert(1, user.to_owned());
        }
    }
    let waits = rows.iter().map(|row| row.phase == Phase::Waiting);
    let waits: Vec<bool> = std::iter::once(false).chain(waits).collect();
    print(&table(&folded(lines, &waits)))
}

/// Most hosts that a line names.
const MOST_HOSTS: usize = 4;

/// Hosts of a job in a line of a table: `a,b,c,d+12`.
fn places(hosts: &[OnHost]) -> String {
    let names = hosts.iter().take(MOST_HOSTS).map(|own| own.host.as_str());
    let names = names.collect::<Vec<_>>().join(",");
    match hosts.len() {
        0 => "-".into(),
        count if count > MOST_HOSTS => format!("{names}+{}", count - MOST_HOSTS),
        _ => names,
    }
}

/// The lines, where waiting tasks of an array that follow each other and differ in nothing else
/// share one: `12_[4-99]`.
fn folded(lines: Vec<Vec<String>>, waits: &[bool]) -> Vec<Vec<String>> {
    let task = |line: &[String]| -> Option<(String, u32)> {
        let (array, task) = line.first()?.split_once('_')?;
        Some((array.to_owned(), task.parse().ok()?))
    };
    let mut folded: Vec<(Vec<String>, Option<String>, Vec<u32>)> = Vec::new();
    for (line, &waits) in lines.into_iter().zip(waits) {
        let of = task(&line).filter(|_| waits);
        match (&of, folded.last_mut()) {
            (Some((array, task)), Some((first, Some(last), tasks)))
                if array == last && first[1..] == line[1..] =>
            {
                tasks.push(*task);
            }
            _ => {
                let (array, task) = of.unzip();
                folded.push((line, array, task.into_iter().collect()));
            }
        }
    }
    let one = |(mut line, array, tasks): (Vec<String>, Option<String>, Vec<u32>)| {
        if let (Some(array), [_, _, ..]) = (array, &tasks[..]) {
            line[0] = format!("{array}_[{}]", ranges(&tasks));
        }
        line
    };
    folded.into_iter().map(one).collect()
}

/// The head's program has the scheduler, and takes this process's place.
fn replay(file: &Path, json: bool) -> Result<(), String> {
    let program = beside(PROGRAM).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    command
        .arg("replay")
        .arg(file)
        .args(json.then_some("--json"));
    let error = command.exec();
    Err(format!("cannot execute {}: {error}", program.display()))
}

fn line(row: &JobRow) -> Vec<String> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let time = row
        .started
        .map(|started| shown(row.ended.unwrap_or(now).saturating_sub(started)));
    vec![
        row.shown.clone(),
        row.name.clone(),
        state(row.phase).to_owned(),
        row.slots.to_string(),
        time.unwrap_or_else(|| "-".into()),
        row.limit_s.map_or_else(|| "-".into(), shown),
        match row.phase {
            // The state says the rest.
            Phase::Ended(End::Exit(code)) if code != 0 => outcome(row),
            _ => row.note.clone(),
        },
    ]
}
