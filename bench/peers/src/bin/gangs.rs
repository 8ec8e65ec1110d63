//! Two bulk-synchronous applications on the same cores: one after the other, as gangs, and without
//! turns, with Margay and its peers in one run; and how far apart the processes of an application
//! are stopped and continued.
//!
//! `cargo run --release -p margay-bench-peers --bin gangs`
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use margay_bench_common::mpi::Installation;
use margay_bench_common::process::run_quietly;
use margay_bench_common::statistics::median;
use margay_bench_peers::peers::{self, PEERS};
use margay_bench_peers::tree;

/// Measure what two applications cost that share their cores by turns.
#[derive(Parser)]
#[command(name = "gangs")]
struct Options {
    /// Phases of each application.
    #[arg(long, default_value_t = 2000)]
    phases: u32,
    /// CPU time of a phase, in milliseconds.
    #[arg(long, default_value_t = 5.0)]
    milliseconds: f64,
    /// Ranks of each application; as many nodes has the partition.
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// The roll-in quantum, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    quantum: u32,
    /// Repetitions, in which the ways take turns.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// These peers, separated by commas; none where it is empty.
    #[arg(long, value_delimiter = ',', default_values = PEERS)]
    peers: Vec<String>,
}

/// No application may take longer.
const LIMIT_S: u32 = 600;

/// A gap of a rank: when it was last there, and when again.
#[derive(Clone, Copy)]
struct Gap {
    rank: usize,
    out: f64,
    back: f64,
    /// It computed: else it may have slept before it was stopped.
    computes: bool,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gangs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is started together, and how.
struct Way<'a> {
    name: String,
    implementation: &'a Installation,
    program: PathBuf,
    partition: Option<&'static str>,
}

impl Way<'_> {
    fn start(&self, options: &Options, state: &Path) -> Result<Child> {
        let mut launch = self.implementation.launch(options.ranks, LIMIT_S);
        if let Some(partition) = self.partition {
            launch.args(["-pn", partition]);
        }
        launch
            .arg(&self.program)
            .args([options.phases.to_string(), options.milliseconds.to_string()])
            .env("XDG_STATE_HOME", state)
            .env("MARGAY_PARTITIONS", state.join("common"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", self.name))
    }

    /// Runs applications at the same time; returns the seconds until the last has ended, and what
    /// each printed.
    fn run(&self, count: usize, options: &Options, state: &Path) -> Result<(f64, Vec<String>)> {
        let begun = Instant::now();
        let children: Vec<Child> = (0..count)
            .map(|_| self.start(options, state))
            .collect::<Result<_>>()?;
        let mut printed = Vec::new();
        for child in children {
            let output = child.wait_with_output()?;
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                bail!("{}: {}: {errors}", self.name, output.status);
            }
            printed.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok((begun.elapsed().as_secs_f64(), printed))
    }
}

fn measure(options: &Options) -> Result<()> {
    let folder = tree::target().join("gangs");
    let state = folder.join("state");
    // What a run left that was interrupted.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&state)?;
    let ours = peers::ours()?;
    let named = options.peers.iter().filter(|name| !name.is_empty());
    let there = named.map(|name| peers::peer(name));
    let there: Vec<Installation> = there.collect::<Result<_>>()?;
    let source = tree::workspace().join("bench/peers/programs/gangs.c");
    let compile = |implementation: &Installation| -> Result<PathBuf> {
        let program = folder.join(&implementation.name);
        run_quietly(&mut peers::compile(implementation, &source, &program))?;
        Ok(program)
    };
    let program = compile(&ours)?;
    make_partitions(&ours, options, &state)?;
    let own = |name: &str, partition| Way {
        name: name.to_owned(),
        implementation: &ours,
        program: program.clone(),
        partition: Some(partition),
    };
    let alone = own("one after the other", "shared");
    let mut ways = vec![own("gangs", "gangs"), own("without turns", "shared")];
    for peer in &there {
        ways.push(Way {
            name: peer.name.clone(),
            implementation: peer,
            program: compile(peer)?,
            partition: None,
        });
    }
    let mut base = Vec::new();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    let (mut outs, mut backs) = (Vec::new(), Vec::new());
    for _ in 0..options.repetitions {
        let first = alone.run(1, options, &state)?.0;
        base.push(first + alone.run(1, options, &state)?.0);
        for (at, way) in ways.iter().enumerate() {
            let (time, printed) = way.run(2, options, &state)?;
            times[at].push(time);
            if at == 0 {
                for text in &printed {
                    spreads(&gaps(text), options.ranks, &mut outs, &mut backs);
                }
            }
        }
    }
    let least = |times: &[f64]| times.iter().copied().fold(f64::MAX, f64::min);
    let row = |name: &str, times: &[f64]| {
        let (middle, few) = (median(times), least(times));
        let (of_middle, of_few) = (middle / median(&base), few / least(&base));
        println!("{name:24} {middle:9.3} {of_middle:7.3} {few:9.3} {of_few:7.3}");
    };
    let head = ("two applications", "median s", "ratio", "least s", "ratio");
    println!(
        "{:24} {:>9} {:>7} {:>9} {:>7}",
        head.0, head.1, head.2, head.3, head.4
    );
    row(&alone.name, &base);
    for (way, times) in ways.iter().zip(&times) {
        row(&way.name, times);
    }
    for (what, all) in [("stopped", &mut outs), ("continued", &mut backs)] {
        all.sort_unstable_by(f64::total_cmp);
        let (Some(most), false) = (all.last().copied(), all.is_empty()) else {
            println!("{what}: no turns were seen; let the phases last longer");
            continue;
        };
        println!(
            "{what} apart: median {:.0} us, 90 % within {:.0} us, most {:.0} us, of {} turns",
            median(all) * 1e6,
            all[(all.len() - 1) * 9 / 10] * 1e6,
            most * 1e6,
            all.len()
        );
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Two partitions of the same nodes: with gangs, and shared as the system has it.
fn make_partitions(ours: &Installation, options: &Options, state: &Path) -> Result<()> {
    let nodes = format!("0..{}", options.ranks.saturating_sub(1));
    let quantum = options.quantum.to_string();
    for words in [&["-rq", &quantum, "gangs"][..], &["-ss", "shared"]] {
        let mut command = Command::new(ours.prefix().join("bin/margay"));
        command
            .args(["part", "mkpart", "-nd", &nodes])
            .args(words)
            .env("XDG_STATE_HOME", state)
            .env("MARGAY_PARTITIONS", state.join("common"));
        run_quietly(&mut command)?;
    }
    Ok(())
}

/// The lines of a program that are gaps.
fn gaps(text: &str) -> Vec<Gap> {
    let gap = |line: &str| {
        let mut words = line.strip_prefix("gap ")?.split(' ');
        Some(Gap {
            rank: words.next()?.parse().ok()?,
            out: words.next()?.parse().ok()?,
            back: words.next()?.parse().ok()?,
            computes: words.next()? == "1",
        })
    };
    text.lines().filter_map(gap).collect()
}

/// How far apart the ranks of an application were stopped and continued, for each gap in which all
/// of them computed.
fn spreads(gaps: &[Gap], ranks: usize, outs: &mut Vec<f64>, backs: &mut Vec<f64>) {
    for first in gaps.iter().filter(|gap| gap.rank == 0) {
        let same = |gap: &&Gap| gap.out < first.back && first.out < gap.back;
        let all: Vec<&Gap> = gaps.iter().filter(same).collect();
        if all.len() != ranks || !all.iter().all(|gap| gap.computes) {
            continue;
        }
        let spread = |of: fn(&Gap) -> f64| {
            let times = all.iter().map(|gap| of(gap));
            times.clone().fold(f64::MIN, f64::max) - times.fold(f64::MAX, f64::min)
        };
        outs.push(spread(|gap| gap.out));
        backs.push(spread(|gap| gap.back));
    }
}
