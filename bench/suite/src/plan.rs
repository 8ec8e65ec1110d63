//! What is run: kernels, ranks and arguments.

use clap::ValueEnum;
use margay_cli_bench_options::Kernel;

use crate::install::{PROGRAMS, Program};

/// One run of one program.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The kernel that it belongs to.
    pub kernel: Kernel,
    /// The executable.
    pub program: &'static Program,
    /// Ranks; 0 for a process without a launcher, which may use all cores.
    pub ranks: usize,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Whether it is about messages, so that a peer is worth comparing.
    pub messages: bool,
}

/// How long one run may take, in seconds.
pub const LIMIT_S: u32 = 300;

/// What the largest LINPACK matrix may take, in bytes: with its buffers it fits 2 GiB.
const MATRIX_BYTES: u64 = (2 << 30) / 16 * 15;

/// The block size of LINPACK. On two cores of an Intel Xeon (2 MiB of level 2, AVX-512) with
/// OpenBLAS, N = 8000, medians of six runs in turn: 192: 135, 256: 144 GFLOPS; 128 and 384 are
/// slower than 192.
const BLOCK: u64 = 256;

/// Returns the largest order of LINPACK in whole blocks, when this many bytes are free.
fn largest_order(free: Option<u64>) -> u64 {
    let bytes = free.map_or(MATRIX_BYTES, |free| (free / 2).min(MATRIX_BYTES));
    ((bytes / 8).isqrt() / BLOCK).max(1) * BLOCK
}

/// Returns all runs of the chosen kernels on `cores` cores with `free` bytes of memory. `quick`
/// takes smaller sizes.
pub fn units(kernels: &[Kernel], cores: usize, free: Option<u64>, quick: bool) -> Vec<Unit> {
    let pick = |full: &'static str, small: &'static str| if quick { small } else { full };
    let mut units = Vec::new();
    for kernel in Kernel::value_variants() {
        if !kernels.is_empty() && !kernels.contains(kernel) {
            continue;
        }
        let mut add = |program: &str, ranks: usize, messages: bool, arguments: &str| {
            units.push(Unit {
                kernel: *kernel,
                program: find(program),
                ranks,
                arguments: arguments.split_whitespace().map(str::to_owned).collect(),
                messages,
            });
        };
        // On one rank and on all; on one core these are the same.
        let mut scales = vec![1, cores.max(1)];
        scales.dedup();
        let pairs = cores.max(2) / 2 * 2;
        match kernel {
            Kernel::Livermore => add("livermore", 1, false, pick("-ms 300", "-ms 50")),
            Kernel::Comtest => {
                for form in ["comtest", "comtest-nx", "comtest-mpl"] {
                    add(form, pairs, true, pick("-batch-us 8000", "-batch-us 2000"));
                }
            }
            Kernel::Stream => {
                for ranks in scales {
                    add("stream", ranks, false, pick("-rounds 10", "-rounds 5"));
                }
            }
            Kernel::Ladder => {
                for ranks in scales {
                    add("ladder", ranks, false, pick("-ms 1000", "-ms 300"));
                }
            }
            Kernel::Evm => {
                for ranks in scales {
                    add("evm", ranks, false, pick("-rounds 8", "-rounds 4"));
                }
            }
            Kernel::Matmul => add(
                "matmul",
                cores.max(1),
                true,
                pick("-N 300,1200,3000 -ms 1500", "-N 300,1200 -ms 300"),
            ),
            Kernel::Linpack => {
                let largest = if quick { 4000 } else { largest_order(free) };
                let repeat = if quick { 3 } else { 2 };
                let orders = pick("1000,2000,4000,8000", "1000,2000");
                add(
                    "linpack",
                    cores.max(1),
                    true,
                    &format!("-N {orders},{largest} -NB {BLOCK} -repeat {repeat} -half -norms"),
                );
                add(
                    "getrf",
                    0,
                    false,
                    &format!(
                        "-N {largest} -threads {} -repeat {}",
                        cores.max(1),
                        repeat - 1
                    ),
                );
            }
        }
    }
    units
}

/// Returns a program of the suite by its name.
///
/// # Panics
/// When there is none.
pub fn find(name: &str) -> &'static Program {
    PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .expect("the plan names programs of the list")
}

impl Unit {
    /// For the progress line.
    pub fn label(&self) -> String {
        match self.ranks {
            0 => format!("{}, one process", self.program.name),
            1 => format!("{}, 1 rank", self.program.name),
            n => format!("{}, {n} ranks", self.program.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_matrix_fits_two_gib_and_half_of_the_free_memory() {
        assert_eq!(largest_order(None), 15_616);
        assert_eq!(largest_order(Some(64 << 30)), 15_616);
        let small = largest_order(Some(1 << 30));
        assert!(small * small * 8 <= 1 << 29 && small.is_multiple_of(BLOCK));
        assert_eq!(largest_order(Some(0)), BLOCK);
    }

    #[test]
    fn every_kernel_is_in_the_plan_and_can_be_chosen() {
        let all = units(&[], 2, None, false);
        for kernel in Kernel::value_variants() {
            assert!(all.iter().any(|unit| unit.kernel == *kernel));
            let one = units(&[*kernel], 2, None, true);
            assert!(!one.is_empty() && one.iter().all(|unit| unit.kernel == *kernel));
        }
        assert_eq!(
            units(&[Kernel::Stream], 1, None, true).len(),
            1,
            "one core: once"
        );
        assert_eq!(
            units(&[Kernel::Comtest], 1, None, true)[0].ranks,
            2,
            "messages need two"
        );
    }
}
