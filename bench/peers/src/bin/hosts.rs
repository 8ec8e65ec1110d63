//! Messages between hosts, and jobs on many of them: Margay and its peers in one run, on hosts that
//! are namespaces of this machine. Only root can make these.
//!
//! `cargo run --release -p margay-bench-peers --bin hosts`
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::process::{bounded, run_quietly};
use margay_bench_common::statistics::median;
use margay_bench_peers::peers::{self, PEERS};
use margay_bench_peers::tree;

/// Measure messages between hosts, and jobs on many of them.
#[derive(Parser)]
#[command(name = "hosts")]
struct Options {
    /// Repetitions, in which the implementations take turns.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// These peers, separated by commas; none where it is empty.
    #[arg(long, value_delimiter = ',', default_values = PEERS)]
    peers: Vec<String>,
    /// Only tasks whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds after which a run has failed.
    #[arg(long, default_value_t = 120)]
    limit: u32,
}

/// What is run: on how many hosts, with how many ranks on each.
struct Task {
    name: &'static str,
    hosts: usize,
    each: usize,
    argument: &'static str,
    /// Timed from outside: only the start counts.
    starts: bool,
}

const TASKS: [Task; 5] = [
    Task {
        name: "2 hosts of 1 rank",
        hosts: 2,
        each: 1,
        argument: "pair",
        starts: false,
    },
    Task {
        name: "4 hosts of 2 ranks",
        hosts: 4,
        each: 2,
        argument: "many",
        starts: false,
    },
    Task {
        name: "4 hosts of 4 ranks",
        hosts: 4,
        each: 4,
        argument: "many",
        starts: false,
    },
    Task {
        name: "16 hosts of 4 ranks, start to end",
        hosts: 16,
        each: 4,
        argument: "",
        starts: true,
    },
    Task {
        name: "16 hosts of 64 ranks",
        hosts: 16,
        each: 64,
        argument: "many",
        starts: false,
    },
];

/// An implementation with its programs, and options of its own.
struct Way {
    name: String,
    implementation: Installation,
    measures: PathBuf,
    starts: PathBuf,
    options: &'static [&'static str],
}

/// Hosts that are gone with the value.
struct Hosts {
    folder: PathBuf,
    script: PathBuf,
}

impl Hosts {
    fn make(number: usize, folder: PathBuf) -> Result<Hosts> {
        let script = tree::workspace().join("bench/peers/programs/hosts.sh");
        let hosts = Hosts { folder, script };
        let mut make = Command::new("sh");
        make.arg(&hosts.script).args(["make", &number.to_string()]);
        // What holds a host would hold a pipe as well.
        let made = make.arg(&hosts.folder).stdout(Stdio::null()).status()?;
        if !made.success() {
            bail!("no hosts can be made here: that takes root, iproute2 and util-linux");
        }
        Ok(hosts)
    }

    /// A command on the first host.
    fn on_first(&self, limit_s: u32, text: &str) -> Command {
        let mut command = bounded(limit_s);
        command.arg(self.folder.join("shell")).args(["h1", text]);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let mut drop = Command::new("sh");
        // Where it cannot be removed it was not made.
        let _ = drop
            .arg(&self.script)
            .arg("drop")
            .arg(&self.folder)
            .status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Way {
    /// The launch of a task.
    fn text(&self, task: &Task, hosts: &Hosts) -> String {
        let prefix = self.implementation.prefix().display();
        let shell = hosts.folder.join("shell");
        let shell = shell.display();
        let each = task.each;
        let ranks = task.hosts * each;
        let names: Vec<String> = (1..=task.hosts).map(|host| format!("h{host}")).collect();
        let program = if task.starts {
            &self.starts
        } else {
            &self.measures
        };
        let program = format!("{} {}", program.display(), task.argument);
        let options = self.options.join(" ");
        let list = names.join(",");
        match self.implementation.name.as_str() {
            OURS => format!(
                "{prefix}/bin/mpiexec -launcher-exec {shell} {options} -host {list} -ppn {each} {program}"
            ),
            "openmpi" => {
                let slots: Vec<String> = names.iter().map(|n| format!("{n}:{each}")).collect();
                format!(
                    "UCX_TLS=tcp,self {prefix}/bin/mpiexec --allow-run-as-root -x UCX_TLS --prtemca plm_ssh_agent {shell} --bind-to none \
                     --mca mpi_yield_when_idle {} --host {} -n {ranks} {program}",
                    u8::from(ranks > 2),
                    slots.join(",")
                )
            }
            "impi-devel" => format!(
                "I_MPI_ROOT={prefix} I_MPI_FABRICS=shm:ofi FI_PROVIDER=tcp {} {prefix}/bin/mpiexec -bootstrap ssh \
                 -bootstrap-exec {shell} -hosts {list} -ppn {each} -n {ranks} {program}",
                if ranks > 2 {
                    "I_MPI_THREAD_YIELD=2"
                } else {
                    ""
                }
            ),
            // UCX takes hosts that are namespaces for one.
            _ => format!(
                "UCX_TLS=tcp,self {prefix}/bin/mpiexec -launcher ssh -launcher-exec {shell} -hosts {list} -ppn {each} -n {ranks} {program}"
            ),
        }
    }

    /// Runs a task; returns its figures, with their units.
    fn run(&self, task: &Task, hosts: &Hosts, limit_s: u32) -> Result<Vec<(String, f64)>> {
        let begun = Instant::now();
        let printed = run_quietly(&mut hosts.on_first(limit_s, &self.text(task, hosts)))?;
        let seconds = begun.elapsed().as_secs_f64();
        let figure = |line: &str| {
            let mut words = line.split(' ');
            let (name, value) = (words.next()?, words.next()?.parse().ok()?);
            Some((format!("{name}, {}", words.next()?), value))
        };
        let mut figures: Vec<_> = printed.lines().filter_map(figure).collect();
        if figures.is_empty() != task.starts {
            bail!("it printed {printed:?}");
        }
        figures.push(("start to end, s".into(), seconds));
        Ok(figures)
    }
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hosts: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Half a round trip over TCP alone.
fn over_tcp(hosts: &Hosts, program: &Path, limit_s: u32) -> Result<f64> {
    let mut listen = Command::new(hosts.folder.join("shell"));
    let listen = listen.args(["h2", &format!("{} listen", program.display())]);
    let mut child = listen.stdin(Stdio::null()).spawn()?;
    let text = format!("{} 10.79.0.2", program.display());
    let printed = run_quietly(&mut hosts.on_first(limit_s, &text));
    // It ends with the connection.
    if printed.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    let printed = printed?;
    let value = printed.split(' ').nth(1).and_then(|word| word.parse().ok());
    value.with_context(|| format!("it printed {printed:?}"))
}

fn measure(options: &Options) -> Result<()> {
    let folder = tree::target().join("hosts");
    // What a run left that was interrupted.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let source = |name: &str| tree::workspace().join("bench/peers/programs").join(name);
    let plain = folder.join("tcp");
    let mut compile = Command::new("cc");
    compile.arg("-O2").arg(source("hosts_tcp.c")).arg("-o");
    run_quietly(compile.arg(&plain))?;
    let mut ways = Vec::new();
    let way = |implementation: &Installation, name: &str, options| -> Result<Way> {
        let built = |program: &str| -> Result<PathBuf> {
            let to = folder.join(format!("{}-{program}", implementation.name));
            let source = source(&format!("{program}.c"));
            run_quietly(&mut peers::compile(implementation, &source, &to))?;
            Ok(to)
        };
        Ok(Way {
            name: name.to_owned(),
            measures: built("hosts")?,
            starts: built("start")?,
            implementation: implementation.clone(),
            options,
        })
    };
    let ours = peers::ours()?;
    ways.push(way(&ours, OURS, &[])?);
    ways.push(way(&ours, "encrypted", &["-encrypt"])?);
    for name in options.peers.iter().filter(|name| !name.is_empty()) {
        ways.push(way(&peers::peer(name)?, name, &[])?);
    }
    for task in TASKS.iter().filter(|t| t.name.contains(&options.only)) {
        let hosts = Hosts::make(task.hosts, folder.join("made"))?;
        let mut figures: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
        let mut failures = Vec::new();
        let mut floor = Vec::new();
        for _ in 0..options.repetitions {
            if task.argument == "pair" {
                floor.push(over_tcp(&hosts, &plain, options.limit)?);
            }
            for (at, way) in ways.iter().enumerate() {
                match way.run(task, &hosts, options.limit) {
                    Ok(all) => {
                        for (name, value) in all {
                            let row = figures.entry(name).or_default();
                            row.resize(ways.len(), Vec::new());
                            row[at].push(value);
                        }
                    }
                    Err(error) => failures.push(format!("{}: {error:#}", way.name)),
                }
            }
        }
        show(task, &ways, &figures, &floor, options.repetitions);
        for failure in failures {
            println!("{failure}");
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prints the medians of a task; of runs that have failed, how many did not.
fn show(
    task: &Task,
    ways: &[Way],
    figures: &BTreeMap<String, Vec<Vec<f64>>>,
    floor: &[f64],
    repetitions: u32,
) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let names = ways.iter().map(|way| way.name.as_str());
    table.set_header(std::iter::once(task.name).chain(names));
    let cell = |values: &Vec<f64>| match values.len() {
        0 => "failed".to_owned(),
        n if n < repetitions as usize => format!("{:.2} ({n} of {repetitions})", median(values)),
        _ => format!("{:.2}", median(values)),
    };
    for (name, row) in figures {
        table.add_row(std::iter::once(name.clone()).chain(row.iter().map(cell)));
    }
    for at in 1..=ways.len() {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("\n{table}");
    if !floor.is_empty() {
        println!("TCP alone, 8 B: {:.2} us", median(floor));
    }
}
