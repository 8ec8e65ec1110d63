//! `margay top`: the machine as a mesh of slots with the jobs that have them, its queues, its
//! partitions and its jobs, live.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use margay_core_queue::{Phase, shown};
use margay_svc_queue_wire::{Detail, HostRow, Machine, state};
use margay_sys_os::clock::local;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SIGWINCH, SignalFd, SignalSet};
use margay_sys_os::terminal::{RawMode, size};

use crate::common::{self, Done, now_s, print};
use crate::machine::{job_hosts, queues, reason};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

const OPTIONS: &[Known] = &[
    ('h', "help", Nothing),
    ('i', "interval", Value),
    (' ', "once", Nothing),
    (' ', "plain", Nothing),
];

const HELP: &str = "Usage: margay top [--once] [--plain] [--interval SECONDS]\n\
    Shows the machine as a mesh, its jobs and its queue, live; q ends it.\n  \
    --once      show it once\n  --plain     letters alone, without colours and without clearing the screen\n  \
    -i, --interval SECONDS   how often [default: 1]\n";

/// Colours of jobs.
const COLOURS: [u8; 6] = [32, 33, 34, 35, 36, 31];

/// A letter for the job of this number among those that run.
fn letter(number: usize) -> char {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char::from(LETTERS[number % LETTERS.len()])
}

fn painted(text: &str, number: usize, is_plain: bool) -> String {
    match is_plain {
        true => text.to_owned(),
        false => format!("\x1b[{}m{text}\x1b[0m", COLOURS[number % COLOURS.len()]),
    }
}

/// The machine as slots with the letters of their jobs: those of each host in a row, or, where
/// there is one host, in rows that are nearly a square.
fn mesh(machine: &Machine, running: &[&Detail], columns: usize, is_plain: bool) -> String {
    if !machine.hosts.is_empty() {
        let width = machine.hosts.iter().map(|host| host.name.chars().count());
        let width = width.max().unwrap_or(0);
        let mut cells: HashMap<String, Vec<String>> = HashMap::new();
        for (number, detail) in running.iter().enumerate() {
            let cell = painted(&letter(number).to_string(), number, is_plain);
            for own in job_hosts(detail, &machine.host) {
                let all = cells.entry(own.host).or_default();
                all.extend(std::iter::repeat_n(cell.clone(), own.slots as usize));
            }
        }
        let row = |host: &HostRow| {
            let used = cells.remove(&host.name).unwrap_or_default();
            of_host(host, used, (width, columns))
        };
        return machine.hosts.iter().map(row).collect();
    }
    let slots = machine.slots as usize;
    let most = (columns / 2).max(1);
    let width = (slots as f64).sqrt().ceil().max(1.0) as usize;
    // Wide machines are shown in wide rows, so that the queue has room below.
    let width = width.max(slots.div_ceil(8)).min(most);
    let mut cells: Vec<String> = Vec::new();
    for (number, detail) in running.iter().enumerate() {
        let cell = painted(&letter(number).to_string(), number, is_plain);
        cells.extend(std::iter::repeat_n(cell, detail.row.slots as usize));
    }
    cells.resize(slots.max(cells.len()), ".".into());
    let rows = cells.chunks(width).map(|row| row.join(" ") + "\n");
    rows.collect()
}

/// The slots of a host behind its name, those that are used first, and its state where no job
/// starts there.
fn of_host(host: &HostRow, mut cells: Vec<String>, (width, columns): (usize, usize)) -> String {
    let free = if host.is_up { "." } else { "-" };
    // Jobs that take turns have more slots together.
    cells.resize(cells.len().max(host.slots as usize), free.into());
    let state = reason(host).map(|why| format!("  {}: {why}", host.state()));
    let most = (columns.saturating_sub(width + 2) / 2).max(1);
    let mut text = String::new();
    for (at, row) in cells.chunks(most).enumerate() {
        let (name, state) = match at {
            0 => (host.name.as_str(), state.as_deref().unwrap_or_default()),
            _ => ("", ""),
        };
        text += &format!("{name:width$}  {}{state}\n", row.join(" "));
    }
    text
}

/// The queues, where there are several.
fn queue_table(machine: &Machine) -> String {
    let queues = queues(machine);
    if queues.len() < 2 {
        return String::new();
    }
    let heading = ["QUEUE", "SLOTS", "USED", "RUNNING", "WAITING", "HOSTS"];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    lines.extend(queues.iter().map(|queue| {
        vec![
            queue.name.clone(),
            queue.slots.to_string(),
            queue.used.to_string(),
            queue.running.to_string(),
            queue.waiting.to_string(),
            queue.hosts.join(","),
        ]
    }));
    common::table(&lines) + "\n"
}

/// What is shown, for a screen of these rows and columns.
fn view(
    machine: &Machine,
    details: &[Detail],
    partitions: &str,
    (rows, columns): (usize, usize),
    is_plain: bool,
) -> String {
    let running: Vec<&Detail> = details
        .iter()
        .filter(|detail| matches!(detail.row.phase, Phase::Running(_)))
        .collect();
    let waiting = details
        .iter()
        .filter(|detail| detail.row.phase == Phase::Waiting);
    let now = now_s();
    let t = local(now);
    let mut text = format!(
        "{}  {:02}:{:02}:{:02}  {} of {} slots used, {} jobs run, {} wait\n\n",
        machine.host,
        t.hour,
        t.minute,
        t.second,
        machine.used,
        machine.slots,
        machine.running,
        machine.waiting
    );
    text += &mesh(machine, &running, columns, is_plain);
    text.push('\n');
    for line in (queue_table(machine) + partitions).lines() {
        text.extend(line.chars().take(columns).chain(['\n']));
    }
    let heading = [
        "",
        "JOB",
        "NAME",
        "USER",
        "PARTITION",
        "STATE",
        "SLOTS",
        "TIME",
        "LIMIT",
        "NOTE",
    ];
    let mut lines: Vec<Vec<String>> = vec![heading.map(str::to_owned).to_vec()];
    let line = |mark: String, detail: &Detail| {
        let row = &detail.row;
        let since = row.started.unwrap_or(row.submitted);
        vec![
            mark,
            row.shown.clone(),
            row.name.chars().take(20).collect(),
            detail.user.clone(),
            row.partition.clone(),
            state(row.phase).to_owned(),
            row.slots.to_string(),
            shown(now.saturating_sub(since)),
            row.limit_s.map_or_else(|| "-".into(), shown),
            row.note.clone(),
        ]
    };
    for (number, detail) in running.iter().enumerate() {
        lines.push(line(letter(number).to_string(), detail));
    }
    lines.extend(waiting.map(|detail| line(String::new(), detail)));
    let room = rows.saturating_sub(text.lines().count() + 1).max(2);
    let left = lines.len().saturating_sub(room);
    lines.truncate(room);
    let table = common::table(&lines);
    for (at, own) in table.lines().enumerate() {
        let cut: String = own.chars().take(columns).collect();
        let own = match at.checked_sub(1).filter(|number| *number < running.len()) {
            Some(number) => painted(&cut, number, is_plain),
            None => cut,
        };
        text += &own;
        text.push('\n');
    }
    if left > 0 {
        text += &format!("and {left} more\n");
    }
    text
}

fn look(room: (usize, usize), is_plain: bool) -> Result<String, String> {
    let machine = common::machine()?;
    let details = common::details(false, vec![])?;
    let partitions = match margay_svc_part::overview() {
        Ok(text) if text.is_empty() => text,
        Ok(text) => text + "\n",
        Err(why) => format!("partitions: {why}\n\n"),
    };
    Ok(view(&machine, &details, &partitions, room, is_plain))
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    if words.has("help") {
        print(HELP)?;
        return Ok(0);
    }
    let seconds: f64 = match words.value("interval") {
        None => 1.0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| (0.1..=3600.0).contains(seconds))
            .ok_or_else(|| format!("--interval {text}: expected 0.1 to 3600 seconds"))?,
    };
    let interval = Duration::from_secs_f64(seconds);
    let is_plain = words.has("plain") || !stdout().is_terminal();
    let everything = (usize::MAX, usize::MAX);
    if words.has("once") {
        print(&look(everything, is_plain)?)?;
        return Ok(0);
    }
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM, SIGWINCH]);
    set.block();
    let mut signals = SignalFd::new(&set).map_err(|error| error.to_string())?;
    let raw = match is_plain {
        true => None,
        false => RawMode::enter(stdin().as_fd()).ok(),
    };
    let done = live(&mut signals, interval, is_plain, raw.is_some());
    if raw.is_some() {
        // Back from the other screen.
        print("\x1b[?25h\x1b[?1049l")?;
    }
    drop(raw);
    done.map(|()| 0)
}

/// Shows it until a signal or a key ends it.
fn live(
    signals: &mut SignalFd,
    interval: Duration,
    is_plain: bool,
    has_keys: bool,
) -> Result<(), String> {
    let system = |error: io::Error| error.to_string();
    if has_keys {
        print("\x1b[?1049h\x1b[?25l")?;
    }
    let mut poll = PollSet::default();
    loop {
        let room = match (is_plain, size(stdout().as_fd())) {
            (false, Some((rows, columns))) => (usize::from(rows), usize::from(columns)),
            _ => (usize::MAX, usize::MAX),
        };
        let text = look(room, is_plain)?;
        match has_keys {
            // From the top; what stood there before is cleared line by line, so nothing flickers.
            true => {
                let lines = text.lines().map(|line| format!("{line}\x1b[K\r\n"));
                print(&format!("\x1b[H{}\x1b[J", lines.collect::<String>()))?;
            }
            false => print(&format!("{text}\n"))?,
        }
        poll.clear();
        let signalled = poll.add_readable(signals.as_fd());
        let typed = has_keys.then(|| poll.add_readable(stdin().as_fd()));
        poll.wait(Some(interval)).map_err(system)?;
        if poll.ready(signalled).readable
            && signals
                .take()
                .is_some_and(|received| received.signal != SIGWINCH)
        {
            return Ok(());
        }
        if typed.is_some_and(|typed| poll.ready(typed).readable) {
            let mut keys = [0; 64];
            let count = stdin().read(&mut keys).map_err(system)?;
            // Ctrl-C is a key here.
            if count == 0 || keys[..count].iter().any(|key| [b'q', 3, 27].contains(key)) {
                return Ok(());
            }
        }
        let _ = stdout().flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mesh_has_a_place_for_each_slot() {
        let machine = Machine {
            host: "h".into(),
            slots: 10,
            used: 0,
            running: 0,
            waiting: 0,
            head: 1,
            hosts: Vec::new(),
            queues: Vec::new(),
            groups: String::new(),
            standbys: Vec::new(),
            last: 0,
        };
        assert_eq!(mesh(&machine, &[], 80, true), ". . . .\n. . . .\n. .\n");
        assert!(view(&machine, &[], "", (24, 80), true).contains("0 of 10 slots used"));
        // However narrow the screen is.
        assert_eq!(mesh(&machine, &[], 1, true).lines().count(), 10);
    }
}
