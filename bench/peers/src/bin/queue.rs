//! What the queue takes: short jobs beside those of HyperQueue and of Slurm, one job from its
//! command to its process, commands while many jobs wait, and a recorded workload.
//!
//! `cargo run --release -p margay-bench-peers --bin queue`
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use margay_bench_common::process::{bounded, run_quietly};
use margay_bench_common::statistics::median;
use margay_bench_peers::tree;

/// Measure the queue of the stage tree.
#[derive(Parser)]
#[command(name = "queue")]
struct Options {
    /// Short jobs that are submitted together.
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// Repetitions of them, in which Margay and `HyperQueue` take turns.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Slots, and cores of `HyperQueue`'s worker.
    #[arg(long, default_value_t = 2)]
    slots: u32,
    /// Jobs that are measured from their command to their process.
    #[arg(long, default_value_t = 100)]
    single: u32,
    /// Jobs that wait while commands are measured; at most 100,000.
    #[arg(long, default_value_t = 100_000)]
    waiting: u32,
    /// Jobs of the recorded workload, on 5,000 slots.
    #[arg(long, default_value_t = 200_000)]
    replayed: u32,
    /// Short jobs of Slurm, where it is installed and this is root.
    #[arg(long, default_value_t = 1000)]
    slurm_jobs: u32,
    /// CPUs that Slurm's node claims to have: it decides once a second, which would be all that is
    /// measured with as many as there are.
    #[arg(long, default_value_t = 64)]
    slurm_cpus: u32,
    /// Without `HyperQueue` and Slurm.
    #[arg(long)]
    alone: bool,
}

/// No command may take longer, in seconds.
const LIMIT_S: u32 = 600;

/// How often a command is measured while jobs wait.
const COMMANDS: u32 = 20;

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A queue in a folder of its own, which ends with this.
struct Queue {
    folder: PathBuf,
    head: u32,
}

impl Queue {
    fn up(folder: &Path, slots: u32) -> Result<Queue> {
        // What a run left that was interrupted.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder.join("run"))?;
        let mut queue = Queue {
            folder: folder.to_path_buf(),
            head: 0,
        };
        let said = queue.run(&["up", "--slots", &slots.to_string()])?;
        let number = said.split("process ").nth(1).context("no process")?;
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        queue.head = number.parse()?;
        Ok(queue)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = bounded(LIMIT_S);
        command
            .arg(tree::stage().join("bin/margay"))
            .args(words)
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("XDG_RUNTIME_DIR", self.folder.join("run"));
        command
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        run_quietly(&mut self.command(words))
    }

    /// The median time of a command in milliseconds, of which each gets a number.
    fn time(&self, words: &dyn Fn(u32) -> String) -> Result<f64> {
        let mut times = Vec::new();
        for at in 0..COMMANDS {
            let line = words(at);
            let words: Vec<&str> = line.split(' ').collect();
            let begun = Instant::now();
            self.run(&words)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(&times))
    }

    /// The memory of the head, in MB.
    fn memory(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.head))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no memory")?.parse::<f64>()? * 1.024e-3)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for words in [&["cancel", "--all"][..], &["wait", "--all"], &["down"]] {
            let _ = self.command(words).output();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn measure(options: &Options) -> Result<()> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load before: {}", load.trim_end());
    let folder = tree::target().join("bench-queue");
    short_jobs(options, &folder)?;
    one_job(options, &folder)?;
    many_wait(options, &folder)?;
    replay(options, &folder)
}

fn row(what: &str, value: f64, unit: &str) {
    println!("{what:52} {value:10.1} {unit}");
}

/// The Python of a virtual environment that has `HyperQueue`, which is made when it is not there.
fn hyperqueue() -> Result<PathBuf> {
    let folder = tree::target().join("peers/hyperqueue");
    let python = folder.join("bin/python3");
    if !folder.join("ready").exists() {
        run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let words = ["-m", "pip", "install", "--quiet", "hyperqueue"];
        run_quietly(Command::new(&python).args(words))?;
        File::create(folder.join("ready"))?;
    }
    Ok(python)
}

fn short_jobs(options: &Options, folder: &Path) -> Result<()> {
    let python = (!options.alone).then(hyperqueue).transpose()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let count = f64::from(options.jobs);
    for _ in 0..options.repetitions {
        let queue = Queue::up(folder, options.slots)?;
        let lines = "true\n".repeat(options.jobs as usize);
        fs::write(queue.folder.join("lines"), lines)?;
        let begun = Instant::now();
        queue.run(&["submit", "-o", "/dev/null", "--many", "lines"])?;
        queue.run(&["wait", "--all"])?;
        ours.push(count / begun.elapsed().as_secs_f64());
        let ended = queue.run(&["queue", "--all", "--json"])?;
        let done = ended.matches("\"done\"").count();
        if done != options.jobs as usize {
            bail!("{done} of {} jobs are done", options.jobs);
        }
        drop(queue);
        let Some(python) = &python else { continue };
        let other = folder.with_extension("hyperqueue");
        fs::create_dir_all(&other)?;
        let script = tree::workspace().join("bench/peers/programs/jobs_of_hyperqueue.py");
        let numbers = [options.jobs, options.slots].map(|number| number.to_string());
        let mut command = bounded(LIMIT_S);
        command.arg(python).arg(script).args(numbers).arg(&other);
        let text = run_quietly(command.current_dir(&other))?;
        let seconds = text.lines().last().unwrap_or_default().trim();
        theirs.push(count / seconds.parse::<f64>()?);
        fs::remove_dir_all(&other)?;
    }
    let what = format!("{} jobs `true`, started and recorded", options.jobs);
    row(&what, median(&ours), "jobs/s");
    if !theirs.is_empty() {
        row("  HyperQueue", median(&theirs), "jobs/s");
    }
    if !options.alone {
        slurm(options, folder)?;
    }
    Ok(())
}

/// Short jobs of Slurm.
fn slurm(options: &Options, folder: &Path) -> Result<()> {
    let is_there = "for program in munged slurmctld slurmd sbatch; do command -v $program || exit 1; done; test $(id -u) = 0";
    let found = Command::new("sh").args(["-c", is_there]).output()?;
    if !found.status.success() {
        println!("  (no Slurm here, or this is not root)");
        return Ok(());
    }
    let version = run_quietly(Command::new("slurmctld").arg("-V"))?;
    let script = tree::workspace().join("bench/peers/programs/jobs_of_slurm.sh");
    let numbers = [options.slurm_jobs, options.slurm_cpus].map(|number| number.to_string());
    let other = folder.with_extension("slurm");
    let mut rates = Vec::new();
    for _ in 0..options.repetitions {
        let _ = fs::remove_dir_all(&other);
        fs::create_dir_all(&other)?;
        let mut command = bounded(LIMIT_S);
        command.arg(&script).args(&numbers).arg(&other);
        let text = run_quietly(&mut command)?;
        let seconds = text.lines().last().unwrap_or_default().trim();
        rates.push(f64::from(options.slurm_jobs) / seconds.parse::<f64>()?);
    }
    fs::remove_dir_all(&other)?;
    let what = format!(
        "  {}, {} jobs on {} CPUs",
        version.trim(),
        options.slurm_jobs,
        options.slurm_cpus
    );
    row(&what, median(&rates), "jobs/s");
    Ok(())
}

/// From the command until the job's process has opened a pipe.
fn one_job(options: &Options, folder: &Path) -> Result<()> {
    let queue = Queue::up(folder, options.slots)?;
    let pipe = queue.folder.join("pipe");
    run_quietly(Command::new("mkfifo").arg(&pipe))?;
    let mut times = Vec::new();
    for _ in 0..options.single {
        let begun = Instant::now();
        let words = ["submit", "-o", "/dev/null", "--", "sh", "-c", ": > pipe"];
        let mut submit = queue.command(&words);
        let mut submit = submit.stdout(Stdio::null()).spawn()?;
        // The system opens it for both sides together.
        drop(File::open(&pipe)?);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        submit.wait()?;
        queue.run(&["wait", "--all"])?;
    }
    row(
        "one job, from its command to its process",
        median(&times),
        "ms",
    );
    Ok(())
}

fn many_wait(options: &Options, folder: &Path) -> Result<()> {
    let queue = Queue::up(folder, options.slots)?;
    // Each is a job of its own that starts as soon as there is room.
    let slots = options.slots.to_string();
    queue.run(&[
        "submit", "-n", &slots, "-t", "24:00:00", "--", "sleep", "86400",
    ])?;
    let list = folder.join("list");
    fs::write(&list, "true\n".repeat(options.waiting as usize))?;
    let list = list.display().to_string();
    queue.run(&["submit", "-t", "10:00", "--many", &list])?;
    let half = options.waiting / 2;
    println!("with {} jobs that wait:", options.waiting);
    let lines: [(&str, &dyn Fn(u32) -> String); 6] = [
        ("  margay submit", &|_| "submit -t 10:00 -- true".into()),
        ("  margay queue JOB", &|at| format!("queue {}", half + at)),
        ("  margay explain JOB", &|at| {
            format!("explain {}", half + at)
        }),
        ("  squeue -j JOB", &|at| {
            format!("slurm squeue -j {}", half + at)
        }),
        ("  scontrol show job JOB", &|at| {
            format!("slurm scontrol show job {}", half + at)
        }),
        ("  margay cancel JOB", &|at| format!("cancel {}", half + at)),
    ];
    for (what, words) in lines {
        row(what, queue.time(words)?, "ms");
    }
    row("  memory of the head", queue.memory()?, "MB");
    Ok(())
}

fn replay(options: &Options, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let log = folder.join("log.swf");
    let mut make = bounded(LIMIT_S);
    make.arg(tree::stage().join("bin/margay-queue"));
    make.args(["make-log", &options.replayed.to_string(), "5000", "1"]);
    fs::write(&log, run_quietly(&mut make)?)?;
    let mut margay = bounded(LIMIT_S);
    margay.arg(tree::stage().join("bin/margay"));
    let begun = Instant::now();
    let said = run_quietly(margay.args(["queue", "--replay"]).arg(&log))?;
    let what = format!(
        "{} recorded jobs, with three kinds of backfill",
        options.replayed
    );
    row(&what, begun.elapsed().as_secs_f64(), "s");
    print!("{said}");
    fs::remove_dir_all(folder)?;
    Ok(())
}
