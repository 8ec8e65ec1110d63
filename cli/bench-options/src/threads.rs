//! The options of `margay bench threads`.

use clap::{Args, ValueEnum};

use crate::Reporting;

/// The runtimes that can be measured, in the order of the columns; Margay's own first.
pub const RUNTIMES: [&str; 9] = [
    "margay",
    "iml",
    "libgomp",
    "libgomp-passive",
    "libomp",
    "libomp-passive",
    "libomp-clang",
    "tbb",
    "sequential",
];

/// Measure Margay's threads against libgomp, libomp and oneTBB: fork and join, tasks, loops,
/// graphs, trees, nested loops.
#[derive(Clone, Debug, Args)]
pub struct ThreadsOptions {
    /// What is measured
    #[arg(value_enum, default_value_t = Chapter::Constructs)]
    pub chapter: Chapter,

    /// Fewer sizes of teams and one repetition: about two minutes instead of about ten
    #[arg(long)]
    pub quick: bool,

    /// Only these kernels, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KERNEL")]
    pub only: Vec<ThreadKernel>,

    /// Only these runtimes, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "RUNTIME", value_parser = RUNTIMES)]
    pub with: Vec<String>,

    /// Sizes of teams, separated by commas [default: 1 and one, two and four times the usable
    /// cores]
    #[arg(long, value_delimiter = ',', value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,

    /// Other processes that compute meanwhile, one run for each number, separated by commas
    /// [default: 0 and one for each core; of kernels 0,1,2]
    #[arg(long, value_delimiter = ',', value_name = "PROCESSES", value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub busy: Vec<u32>,

    /// How often everything is run [default: 3, and 1 with other processes or --quick]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: Option<u32>,

    /// Stop after this time; what is left out is named
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,

    /// What becomes of the figures.
    #[command(flatten)]
    pub reporting: Reporting,
}

/// What is measured: one of the reports that can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Chapter {
    /// Constructs of all runtimes: forks, tasks, loops, graphs.
    #[default]
    Constructs,
    /// OpenMP in the shapes of whole programs.
    Kernels,
}

/// The kernels, in the order in which they are run and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThreadKernel {
    /// Empty parallel regions, flat and nested.
    Fork,
    /// Fibonacci numbers, every call a task.
    Fib,
    /// A loop by each schedule.
    Loops,
    /// The Mandelbrot set by nested loops.
    Mandelbrot,
    /// Cholesky factorization as a graph of tasks.
    Cholesky,
    /// Sparse LU factorization by tasks.
    Sparselu,
    /// Unbalanced tree search.
    Uts,
    /// Lines of a ray tracer, which allocate.
    Scanlines,
    /// Time steps of many short regions, as of hydrodynamics.
    Timesteps,
    /// Loops of which few iterations cost most, by each schedule.
    Imbalance,
    /// Small work between barriers.
    Barriers,
    /// Tasks with dependences: a wavefront and LU factorization.
    Dependences,
    /// Taskloops of grain 1.
    Taskloop,
    /// Breadth-first search level by level, with atomics or a critical section.
    Levels,
    /// Trees by histograms, with reductions of arrays.
    Histogram,
    /// Products of matrices called from a sequential program and inside of a region.
    Blas,
    /// Teams of two members with teams inside.
    Nested,
    /// Molecular dynamics: short regions with reductions.
    Particles,
}

impl ThreadKernel {
    /// Returns the name of the program and of its source.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no kernel is hidden");
        value.get_name().to_owned()
    }

    /// Returns where it belongs.
    #[must_use]
    pub fn chapter(self) -> Chapter {
        match self {
            Self::Fork
            | Self::Fib
            | Self::Loops
            | Self::Mandelbrot
            | Self::Cholesky
            | Self::Sparselu
            | Self::Uts
            | Self::Scanlines => Chapter::Constructs,
            Self::Timesteps
            | Self::Imbalance
            | Self::Barriers
            | Self::Dependences
            | Self::Taskloop
            | Self::Levels
            | Self::Histogram
            | Self::Blas
            | Self::Nested
            | Self::Particles => Chapter::Kernels,
        }
    }
}
