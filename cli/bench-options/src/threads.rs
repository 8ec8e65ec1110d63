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

/// Measure Margay's threads against libgomp, libomp and oneTBB: fork and join, tasks, loops, graphs, trees, nested loops.
#[derive(Clone, Debug, Args)]
pub struct ThreadsOptions {
    /// Fewer sizes of teams and one repetition: about two minutes instead of about ten
    #[arg(long)]
    pub quick: bool,

    /// Only these kernels, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KERNEL")]
    pub only: Vec<ThreadKernel>,

    /// Only these runtimes, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "RUNTIME", value_parser = RUNTIMES)]
    pub with: Vec<String>,

    /// Sizes of teams, separated by commas [default: 1 and one, two and four times the usable cores]
    #[arg(long, value_delimiter = ',', value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,

    /// What becomes of the figures.
    #[command(flatten)]
    pub reporting: Reporting,
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
}

impl ThreadKernel {
    /// Returns the name of the program and of its source.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no kernel is hidden");
        value.get_name().to_owned()
    }
}
