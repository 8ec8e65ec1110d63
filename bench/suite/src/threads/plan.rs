//! What is run: kernels, sizes of teams, and under what background load.

use clap::ValueEnum;
use margay_cli_bench_options::ThreadKernel as Kernel;

/// One program with one size of teams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Decides the program.
    pub kernel: Kernel,
    /// Size of teams, on each level.
    pub threads: usize,
    /// Whether other processes use all cores.
    pub contended: bool,
}

/// How long a figure is measured in one run, in milliseconds. The machine changes in seconds: several runs say more than a long one.
const MILLISECONDS: u32 = 100;

/// How long one run may take, in seconds.
pub const LIMIT_S: u32 = 100;

/// The largest team of a kernel that nests regions of it in itself: a runtime may start the square of that many threads.
const NESTED_MOST: usize = 32;

/// How often a unit that is not contended is run with every runtime.
const REPETITIONS: usize = 3;

/// Returns all units of the chosen kernels (none: all) and sizes of teams (none: those that fit
/// `cores` cores).
pub fn units(kernels: &[Kernel], threads: &[u32], cores: usize, quick: bool) -> Vec<Unit> {
    let cores = cores.max(1);
    let mut sizes: Vec<usize> = threads.iter().map(|&threads| threads as usize).collect();
    if sizes.is_empty() {
        sizes = vec![1, cores, 2 * cores, 4 * cores];
        if quick {
            sizes.remove(2);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    // Pressed, a team as large as the machine says most; the largest says what more threads than cores cost then.
    let mut under_pressure: Vec<usize> = sizes.iter().copied().filter(|&size| size > 1).collect();
    if under_pressure.len() > 2 || quick {
        let largest = under_pressure.last().copied();
        under_pressure.truncate(1);
        under_pressure.extend(largest.filter(|_| !quick));
    }
    let mut units = Vec::new();
    for kernel in Kernel::value_variants() {
        if !kernels.is_empty() && !kernels.contains(kernel) {
            continue;
        }
        for (contended, sizes) in [(false, &sizes), (true, &under_pressure)] {
            let most = match kernel {
                Kernel::Mandelbrot => NESTED_MOST,
                _ => usize::MAX,
            };
            let sizes = sizes.iter().filter(|&&size| size <= most);
            units.extend(sizes.map(|&threads| Unit {
                kernel: *kernel,
                threads,
                contended,
            }));
        }
    }
    units
}

impl Unit {
    /// Returns how often it is run with every runtime. Pressed once: time slices of milliseconds
    /// make its rounds long, and some runtimes' very long.
    pub fn repetitions(&self, quick: bool) -> usize {
        if quick || self.contended {
            1
        } else {
            REPETITIONS
        }
    }

    /// For the progress line.
    pub fn label(&self) -> String {
        let contended = if self.contended { ", contended" } else { "" };
        format!(
            "{}, {} threads{contended}",
            self.kernel.name(),
            self.threads
        )
    }

    /// Arguments of the program.
    pub fn arguments(&self) -> [String; 4] {
        [
            "-threads".into(),
            self.threads.to_string(),
            "-ms".into(),
            MILLISECONDS.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(units: &[Unit], contended: bool) -> Vec<usize> {
        let chosen = units.iter().filter(|unit| unit.contended == contended);
        chosen.map(|unit| unit.threads).collect()
    }

    #[test]
    fn teams_fit_the_machine_and_some_are_contended() {
        let two = units(&[Kernel::Fib], &[], 2, false);
        assert_eq!(sizes(&two, false), [1, 2, 4, 8]);
        assert_eq!(sizes(&two, true), [2, 8]);
        let quick = units(&[Kernel::Fib], &[], 2, true);
        assert_eq!(
            (sizes(&quick, false), sizes(&quick, true)),
            (vec![1, 2, 8], vec![2])
        );
        let one = units(&[Kernel::Fib], &[], 1, false);
        assert_eq!(
            (sizes(&one, false), sizes(&one, true)),
            (vec![1, 2, 4], vec![2, 4])
        );
        let chosen = units(&[Kernel::Fib], &[5, 1], 64, false);
        assert_eq!(
            (sizes(&chosen, false), sizes(&chosen, true)),
            (vec![1, 5], vec![5])
        );
    }

    #[test]
    fn large_machines_do_not_nest_all_their_threads() {
        let nested = units(&[Kernel::Mandelbrot], &[], 16, false);
        assert_eq!(sizes(&nested, false), [1, 16, 32]);
        let flat = units(&[Kernel::Uts], &[], 16, false);
        assert_eq!(sizes(&flat, false), [1, 16, 32, 64]);
    }

    #[test]
    fn every_kernel_is_in_the_plan_and_can_be_chosen() {
        let all = units(&[], &[], 2, true);
        for kernel in Kernel::value_variants() {
            assert!(all.iter().any(|unit| unit.kernel == *kernel));
            let one = units(&[*kernel], &[], 2, true);
            assert!(!one.is_empty() && one.iter().all(|unit| unit.kernel == *kernel));
        }
        assert_eq!(all[3].label(), "fork, 2 threads, contended");
    }
}
