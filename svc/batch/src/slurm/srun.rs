//! `srun` and `salloc`: programs in a job, and jobs that wait for their command.

use std::fs::{self, File};
use std::io::{self, IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use margay_core_queue::script::slurm::{self, Known, Line, Takes};
use margay_core_queue::{Names, Wishes, expand};
use margay_job_launch::step::{self, StepRecord};
use margay_svc_queue_wire::{Bytes, PROGRAM, user};
use margay_sys_os::descriptor::{leave_open, replace_standard};
use margay_sys_os::process::beside;
use margay_sys_os::terminal::size;

use super::print_help;
use super::sbatch::of_variables;
use crate::common::{Done, base_name, complain, now_s};
use crate::interactive::{self, Allocation, Outcome, Program};

/// What `srun` has beside what a job asks for.
const OWN: &[Known] = &[
    ('K', "kill-on-bad-exit", Takes::Perhaps),
    ('l', "label", Takes::Nothing),
    ('u', "unbuffered", Takes::Nothing),
    ('W', "wait", Takes::Value),
    ('X', "disable-status", Takes::Nothing),
    ('Z', "no-allocate", Takes::Nothing),
    ('I', "immediate", Takes::Perhaps),
    ('T', "threads", Takes::Value),
    ('r', "relative", Takes::Value),
    ('h', "help", Takes::Nothing),
    (' ', "cpu-bind", Takes::Value),
    (' ', "cpu_bind", Takes::Value),
    (' ', "accel-bind", Takes::Value),
    (' ', "exact", Takes::Nothing),
    (' ', "jobid", Takes::Value),
    (' ', "het-group", Takes::Value),
    (' ', "mpi", Takes::Value),
    (' ', "multi-prog", Takes::Nothing),
    (' ', "overlap", Takes::Nothing),
    (' ', "pty", Takes::Perhaps),
    (' ', "x11", Takes::Perhaps),
];

/// What `salloc` has beside what a job asks for.
const OWN_ALLOCATION: &[Known] = &[
    ('I', "immediate", Takes::Perhaps),
    ('K', "kill-command", Takes::Perhaps),
    ('h', "help", Takes::Nothing),
    (' ', "bell", Takes::Nothing),
    (' ', "no-bell", Takes::Nothing),
    (' ', "no-shell", Takes::Nothing),
    (' ', "x11", Takes::Perhaps),
];

/// How long a step waits between two looks for free slots.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `srun`.
///
/// # Errors
/// In words.
pub fn srun(words: &[String]) -> Done {
    let mut asked = Wishes::default();
    let line = slurm::command(words, OWN, &mut asked)?;
    if line.has("help") {
        return print_help("srun");
    }
    for (name, why) in [
        ("jobid", "a step begins within its job"),
        ("het-group", "there are no heterogeneous jobs"),
        ("no-allocate", "a job has its slots from the queue"),
        ("x11", "there is no X forwarding"),
    ] {
        // The job within which it is called may be named.
        let is_own = name == "jobid" && line.value(name) == job_variable().as_deref();
        if line.has(name) && !is_own {
            return Err(format!("--{name} is not supported: {why}"));
        }
    }
    let program = words.get(line.end..).unwrap_or_default();
    if program.is_empty() {
        return Err("No command given to execute.".into());
    }
    // Within a job the variable is the job's name.
    let name = asked.name.clone().or_else(|| base_name(&program[0]));
    let asked = asked.or(of_variables("SLURM_")?);
    match job_folder() {
        Some(folder) => step(&line, &asked, (name, program), &folder),
        None => outside(&line, asked, words, program),
    }
}

fn job_variable() -> Option<String> {
    std::env::var("MARGAY_JOB_ID").ok()
}

/// The folder of the job within which this is called.
fn job_folder() -> Option<PathBuf> {
    let job = job_variable()?;
    let nodes = PathBuf::from(std::env::var_os("PBS_NODEFILE")?);
    let folder = nodes.parent()?.to_owned();
    // A job that runs again has a folder with the number of its run.
    (folder.file_stem()? == job.as_str() && folder.is_dir()).then_some(folder)
}

fn terminal() -> Option<(u16, u16)> {
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    is_terminal.then(|| size(stdin().as_fd()).unwrap_or((24, 80)))
}

/// Waits for a job of its own, and runs itself in it.
fn outside(line: &Line, asked: Wishes, words: &[String], program: &[String]) -> Done {
    let has_terminal = line.has("pty");
    if has_terminal && terminal().is_none() {
        return Err("--pty: standard input and output are no terminal".into());
    }
    let named = Wishes {
        name: base_name(&program[0]),
        ..Wishes::default()
    };
    let wishes = Wishes {
        input: None,
        ..asked.or(named)
    };
    let waits = |job| complain(&format!("srun: job {job} queued and waiting for resources"));
    let allocation = Allocation::wait_for(wishes, &waits)?;
    let own = beside(PROGRAM).map_err(|error| error.to_string())?;
    let mut arguments = vec![
        Bytes(own.into_os_string()),
        Bytes("slurm".into()),
        Bytes("srun".into()),
    ];
    arguments.extend(words.iter().map(|word| Bytes(word.into())));
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let run = Program {
        arguments,
        directory: Some(Bytes(directory.into_os_string())),
        terminal: has_terminal.then(terminal).flatten(),
        variables: vec![],
    };
    finish("srun", interactive::run(&allocation, run)?, allocation)
}

/// The exit code, when the job has ended.
fn finish(name: &str, outcome: Outcome, allocation: Allocation) -> Done {
    match outcome {
        Outcome::Exit(code) => {
            allocation.end()?;
            Ok(code)
        }
        Outcome::JobEnded => {
            let (code, text) = allocation.ended_early()?;
            complain(&format!("{name}: error: {text}"));
            Ok(code.max(1))
        }
    }
}

/// Takes as many slots of the job as a step needs, for as long as any of its processes lives.
/// Returns their numbers.
fn take_slots(folder: &Path, needed: u32, total: u32) -> Result<Vec<u32>, String> {
    let system = |error: io::Error| format!("{}: {error}", folder.display());
    let open = |name: &str| {
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(name))
    };
    // Steps take their slots one after the other, so that two never wait for each other.
    let turn = open("steps.turn").map_err(system)?;
    turn.lock().map_err(system)?;
    let mut taken: Vec<File> = Vec::new();
    let mut numbers = Vec::new();
    let mut free: Vec<u32> = (0..total).collect();
    loop {
        free.retain(|slot| {
            if taken.len() as u32 >= needed {
                return true;
            }
            match open(&format!("slot.{slot}")) {
                Ok(file) if file.try_lock().is_ok() => {
                    taken.push(file);
                    numbers.push(*slot);
                    false
                }
                _ => true,
            }
        });
        if taken.len() as u32 >= needed {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for file in taken {
        // Its processes inherit the locks.
        leave_open(file.into()).map_err(system)?;
    }
    Ok(numbers)
}

/// The hosts of these slots of a job on several, with as many tasks of `cpus` slots as each has
/// room for; none where they are not enough for `tasks`.
fn hosts_of(slots: &[u32], (tasks, cpus): (u32, u32)) -> Option<String> {
    let list = |name: &str| -> Option<Vec<String>> {
        let text = std::env::var(name).ok()?;
        Some(text.split(',').map(str::to_owned).collect())
    };
    let names = list("SLURM_JOB_NODELIST")?;
    let (mut first, mut left, mut hosts) = (0u32, tasks, Vec::new());
    for (name, count) in names.iter().zip(list("SLURM_JOB_CPUS_PER_NODE")?) {
        let next = first.saturating_add(count.parse().ok()?);
        let own = slots.iter().filter(|slot| (first..next).contains(*slot));
        let of_host = (own.count() as u32 / cpus.max(1)).min(left);
        if of_host > 0 {
            hosts.push(format!("{name}:{of_host}"));
            left -= of_host;
        }
        first = next;
    }
    (left == 0).then(|| hosts.join(","))
}

/// The number of a step: how many there were before it. They are counted apart from what is known
/// of them, so that a script with many steps does not read of all of them for each.
fn step_number(folder: &Path) -> Result<u32, String> {
    let system = |error: io::Error| format!("{}: {error}", folder.display());
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(folder.join("step-count"))
        .map_err(system)?;
    file.lock().map_err(system)?;
    let number = file.metadata().map_err(system)?.len();
    io::Write::write_all(&mut file, b".").map_err(system)?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

fn number_of(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a step of this job.
fn step(
    line: &Line,
    asked: &Wishes,
    (name, program): (Option<String>, &[String]),
    folder: &Path,
) -> Done {
    let size = &asked.size;
    let of_hosts = number_of("MARGAY_JOB_SLOTS");
    let total = of_hosts.or(number_of("SLURM_CPUS_ON_NODE")).unwrap_or(1);
    let has_count = size.tasks.is_some() || size.nodes.is_some() || size.tasks_per_node.is_some();
    let of_job = if line.has("pty") {
        1
    } else {
        number_of("SLURM_NTASKS").unwrap_or(1)
    };
    let tasks = if has_count {
        size.tasks().max(size.nodes.unwrap_or(1))
    } else {
        of_job
    };
    let cpus = size
        .cpus_per_task
        .or(number_of("SLURM_CPUS_PER_TASK").filter(|_| !has_count));
    let needed = tasks.saturating_mul(cpus.unwrap_or(1));
    let is_shared = line.has("overlap") || line.has("pty");
    if needed > total && !is_shared {
        return Err(format!(
            "Unable to create step for job {}: More processors requested than permitted ({needed} of {total})",
            job_variable().unwrap_or_default()
        ));
    }
    let slots = match is_shared {
        true => Vec::new(),
        false => take_slots(folder, needed, total)?,
    };
    let nodes = size.nodes.filter(|nodes| *nodes > 1 && of_hosts.is_some());
    let hosts = match nodes {
        None if of_hosts.is_some() => hosts_of(&slots, (tasks, cpus.unwrap_or(1))),
        _ => None,
    };
    let own = beside(PROGRAM).map_err(|error| error.to_string())?;
    let number = step_number(folder)?;
    let mut command = if line.has("pty") {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        command.env("SLURM_PROCID", "0");
        command
    } else {
        let mut command = Command::new(own.with_file_name("mpiexec"));
        command.args(["-n", &tasks.to_string()]);
        if let Some(nodes) = nodes {
            let each = tasks.div_ceil(nodes.max(1));
            command.args(["-ppn", &each.to_string()]);
        }
        if line.has("label") {
            command.arg("-l");
        }
        if asked.input.as_deref() == Some("all") {
            command.args(["--stdin", "all"]);
        }
        if let Some(limit) = asked.limit_s.flatten() {
            command.args(["--timeout", &limit.to_string()]);
        }
        command.arg(&own).arg("task");
        if line.has("multi-prog") {
            command.arg("--multi-prog");
        }
        let [out, err] = [&asked.output.stdout, &asked.output.stderr].map(|file| file.as_deref());
        let input = asked
            .input
            .as_deref()
            .filter(|input| !["all", "none"].contains(input));
        for (name, file) in [("--out", out), ("--err", err.or(out)), ("--in", input)] {
            if let Some(file) = file {
                command.args([name, file]);
            }
        }
        command.arg("--").args(program);
        command
    };
    for (name, value) in [
        ("SLURM_STEP_ID", number.to_string()),
        ("SLURM_STEPID", number.to_string()),
        ("SLURM_STEP_NUM_TASKS", tasks.to_string()),
        ("SLURM_NTASKS", tasks.to_string()),
        ("SLURM_NPROCS", tasks.to_string()),
        ("MARGAY_JOB_TASKS", tasks.to_string()),
        ("SLURM_STEP_NUM_NODES", "1".into()),
        ("SLURM_STEP_TASKS_PER_NODE", tasks.to_string()),
        (
            "SLURM_STEP_NODELIST",
            std::env::var("SLURM_JOB_NODELIST").unwrap_or_default(),
        ),
    ] {
        command.env(name, value);
    }
    if let Some(hosts) = hosts {
        command.env("MARGAY_JOB_HOSTS", hosts);
    }
    if let Some(cpus) = cpus {
        command.env("SLURM_CPUS_PER_TASK", cpus.to_string());
    }
    for (name, value) in &asked.variables {
        command.env(name, value);
    }
    if let Some(directory) = &asked.directory {
        command.current_dir(directory);
    }
    let record = StepRecord {
        number,
        name: name.unwrap_or_default(),
        tasks,
        slots: needed.min(total),
        begun: now_s(),
        end: None,
    };
    carry_out(&mut command, &record, (folder, line.has("pty")))
}

/// Becomes the launcher of a step, or waits for its program where that has a terminal.
fn carry_out(command: &mut Command, record: &StepRecord, (folder, waits): (&Path, bool)) -> Done {
    let failed = |error: io::Error| format!("cannot write down a step of the job: {error}");
    let launcher = step::begin(folder, record).map_err(failed)?;
    if waits {
        let status = interactive::wait_for(command)?;
        step::end(folder, record.number, status).map_err(failed)?;
        return Ok(status);
    }
    let error = command.env(step::VARIABLE, launcher).exec();
    let program = command.get_program().display();
    Err(format!("cannot run {program}: {error}"))
}

/// `margay-queue task [--multi-prog] [--out FILE] [--err FILE] [--in FILE] -- PROGRAM ...`:
/// becomes a task of a step, in a process that mpiexec has started.
///
/// # Errors
/// In words; it returns only then.
pub fn task(words: &[String]) -> Done {
    let rank = number_of("MARGAY_RANK").unwrap_or(0);
    let mut files: [Option<&str>; 3] = [None; 3];
    let mut has_list = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--" => break,
            "--multi-prog" => {
                has_list = true;
                continue;
            }
            "--in" => 0,
            "--out" => 1,
            _ => 2,
        };
        files[place] = words.next().map(String::as_str);
    }
    let mut program: Vec<String> = words.cloned().collect();
    if has_list {
        program = of_list(program.first().ok_or("--multi-prog needs a file")?, rank)?;
    }
    let (host, user) = (margay_sys_os::process::host_name(), user());
    let job = job_variable().and_then(|job| job.parse().ok()).unwrap_or(0);
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let task = number("SLURM_ARRAY_TASK_ID").and_then(|task| u32::try_from(task).ok());
    let names = Names {
        job,
        array: number("SLURM_ARRAY_JOB_ID").zip(task),
        name: &std::env::var("SLURM_JOB_NAME").unwrap_or_default(),
        user: &user,
        host: &host,
    };
    let mut seen: Vec<(String, File)> = Vec::new();
    for (number, pattern) in files.iter().enumerate() {
        let Some(pattern) = pattern else { continue };
        let step = std::env::var("SLURM_STEP_ID").unwrap_or_default();
        let path = pattern
            .replace("%t", &rank.to_string())
            .replace("%s", &step);
        let path = expand(&path.replace("%J", &format!("{job}.{step}")), &names);
        let failed = |error: io::Error| format!("{path}: {error}");
        // A task's own file is new; tasks that share one add to it.
        let is_own = pattern.contains("%t");
        let file = match seen.iter().find(|(own, _)| *own == path) {
            Some((_, file)) => file.try_clone().map_err(failed)?,
            None if number == 0 => File::open(&path).map_err(failed)?,
            None => File::options()
                .append(!is_own)
                .write(true)
                .truncate(is_own)
                .create(true)
                .open(&path)
                .map_err(failed)?,
        };
        replace_standard(number as i32, file.as_fd()).map_err(failed)?;
        seen.push((path, file));
    }
    let (name, arguments) = program.split_first().ok_or("no program")?;
    let mut command = Command::new(name);
    command.args(arguments);
    for variable in ["SLURM_PROCID", "SLURM_LOCALID"] {
        command.env(variable, rank.to_string());
    }
    command.env("SLURM_NODEID", "0");
    command.env("SLURM_TASK_PID", std::process::id().to_string());
    let error = command.exec();
    complain(&format!("srun: error: {name}: {error}"));
    Ok(127)
}

/// The line of a task in a list of programs: `0-2,5 PROGRAM %t %o`.
fn of_list(file: &str, rank: u32) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    for line in text.lines() {
        let line = line.trim();
        let Some((ranks, program)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        if line.starts_with('#') {
            continue;
        }
        let mut offset = 0;
        for range in ranks.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let wrong = || format!("{file}: '{ranks}' is no list of tasks");
            let (from, to) = match range {
                "*" => (0, u32::MAX),
                _ => (
                    from.parse().map_err(|_| wrong())?,
                    to.parse().map_err(|_| wrong())?,
                ),
            };
            if (from..=to).contains(&rank) {
                let program = program
                    .replace("%t", &rank.to_string())
                    .replace("%o", &(offset + rank - from).to_string());
                return margay_core_queue::script::split(&program);
            }
            offset += to.saturating_sub(from).saturating_add(1);
        }
    }
    Err(format!("{file}: no line is for task {rank}"))
}

/// Runs `salloc`.
///
/// # Errors
/// In words.
pub fn salloc(words: &[String]) -> Done {
    let mut asked = Wishes::default();
    let line = slurm::command(words, OWN_ALLOCATION, &mut asked)?;
    if line.has("help") {
        return print_help("salloc");
    }
    for name in ["no-shell", "x11"] {
        if line.has(name) {
            return Err(format!(
                "--{name} is not supported; salloc [OPTIONS] [COMMAND] runs a command, or your shell, while it holds a job"
            ));
        }
    }
    let shell = || vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())];
    let command = match words.get(line.end..) {
        Some(words) if !words.is_empty() => words.to_vec(),
        _ => shell(),
    };
    let named = Wishes {
        name: base_name(&command[0]).or_else(|| Some("interactive".into())),
        ..Wishes::default()
    };
    let wishes = asked.or(of_variables("SALLOC_")?).or(named);
    let waits = |job| {
        complain(&format!(
            "salloc: Pending job allocation {job}\nsalloc: job {job} queued and waiting for resources"
        ))
    };
    let allocation = Allocation::wait_for(wishes, &waits)?;
    let job = allocation.job;
    complain(&format!("salloc: Granted job allocation {job}"));
    let outcome = interactive::hold(&allocation, &command)?;
    if matches!(outcome, Outcome::Exit(_)) {
        complain(&format!("salloc: Relinquishing job allocation {job}"));
    }
    finish("salloc", outcome, allocation)
}
