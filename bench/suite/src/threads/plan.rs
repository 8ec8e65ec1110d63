//! What is run: kernels, sizes of teams, and under what background load.

use clap::ValueEnum;
use margay_cli_bench_options::{Chapter, ThreadKernel as Kernel, ThreadsOptions};

/// One program with one size of teams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Decides the program.
    pub kernel: Kernel,
    /// Size of teams, on each level.
    pub threads: usize,
    /// Whether other processes use cores: one for each, unless `busy` says another number.
    pub contended: bool,
    /// How many others, where that was chosen or belongs to the chapter.
    pub busy: Option<usize>,
}

/// How long a figure is measured in one run, in milliseconds. The machine changes in seconds:
/// several runs say more than a long one.
const MILLISECONDS: u32 = 100;

/// How long one run may take, in seconds.
pub const LIMIT_S: u32 = 100;

/// How many other processes compute beside kernels.
const BESIDE_KERNELS: [usize; 3] = [0, 1, 2];

/// The largest team of a kernel that nests regions of it in itself: a runtime may start the square
/// of that many threads.
const NESTED_MOST: usize = 32;

/// How often a unit that is not contended is run with every runtime.
const REPETITIONS: usize = 3;

/// Returns all units that the options choose: of a chapter's kernels (none: all) and sizes of teams
/// (none: those that fit `cores` cores).
pub fn units(options: &ThreadsOptions, cores: usize) -> Vec<Unit> {
    let cores = cores.max(1);
    let quick = options.quick;
    let mut sizes: Vec<usize> = options.threads.iter().map(|&size| size as usize).collect();
    if sizes.is_empty() {
        sizes = vec![1, cores, 2 * cores, 4 * cores];
        if quick {
            sizes.remove(2);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    let loads = loads(options, &sizes);
    let mut units = Vec::new();
    for kernel in Kernel::value_variants() {
        let is_chosen = options.only.is_empty() || options.only.contains(kernel);
        if kernel.chapter() != options.chapter || !is_chosen {
            continue;
        }
        for (contended, busy, sizes) in &loads {
            let most = match kernel {
                Kernel::Mandelbrot => NESTED_MOST,
                _ => usize::MAX,
            };
            let sizes = sizes.iter().filter(|&&size| size <= most);
            units.extend(sizes.map(|&threads| Unit {
                kernel: *kernel,
                threads,
                contended: *contended,
                busy: *busy,
            }));
        }
    }
    units
}

/// Returns what runs beside, as a unit has it, and with which of the sizes of teams.
fn loads(options: &ThreadsOptions, sizes: &[usize]) -> Vec<(bool, Option<usize>, Vec<usize>)> {
    let chosen: Vec<usize> = options.busy.iter().map(|&busy| busy as usize).collect();
    let beside = match options.chapter {
        _ if !chosen.is_empty() => chosen,
        Chapter::Kernels if options.quick => vec![0, 1],
        Chapter::Kernels => BESIDE_KERNELS.to_vec(),
        Chapter::Constructs => {
            // Contended, a team as large as the machine says most; the largest says what more
            // threads than cores cost then.
            let mut contended: Vec<usize> = sizes.iter().copied().filter(|&n| n > 1).collect();
            if contended.len() > 2 || options.quick {
                let largest = contended.last().copied();
                contended.truncate(1);
                contended.extend(largest.filter(|_| !options.quick));
            }
            return vec![(false, None, sizes.to_vec()), (true, None, contended)];
        }
    };
    let with_number = |busy: usize| (busy > 0, Some(busy), sizes.to_vec());
    beside.into_iter().map(with_number).collect()
}

impl Unit {
    /// Returns how often it is run with every runtime. Contended once: time slices of milliseconds
    /// make its rounds long, and some runtimes' very long.
    pub fn repetitions(&self, options: &ThreadsOptions) -> usize {
        let chosen = options.repetitions.map(|times| times as usize);
        chosen.unwrap_or(if options.quick || self.contended {
            1
        } else {
            REPETITIONS
        })
    }

    /// How many other processes compute meanwhile.
    pub fn beside(&self, cores: usize) -> usize {
        self.busy.unwrap_or(if self.contended { cores } else { 0 })
    }

    /// For the progress line.
    pub fn label(&self) -> String {
        format!(
            "{}, {} threads{}",
            self.kernel.name(),
            self.threads,
            load_label(self.contended, self.busy)
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

/// What ran beside, for behind a size of teams: nothing, `, contended` or `, 1 busy`.
pub fn load_label(contended: bool, busy: Option<usize>) -> String {
    match (contended, busy) {
        (false, _) => String::new(),
        (true, None) => ", contended".into(),
        (true, Some(busy)) => format!(", {busy} busy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> ThreadsOptions {
        let words = std::iter::once("threads").chain(arguments.split_whitespace());
        let matches = margay_cli_bench_options::threads_command().get_matches_from(words);
        clap::FromArgMatches::from_arg_matches(&matches).unwrap()
    }

    fn units(arguments: &str, cores: usize) -> Vec<Unit> {
        super::units(&options(arguments), cores)
    }

    fn sizes(units: &[Unit], contended: bool) -> Vec<usize> {
        let chosen = units.iter().filter(|unit| unit.contended == contended);
        chosen.map(|unit| unit.threads).collect()
    }

    #[test]
    fn teams_fit_the_machine_and_some_are_contended() {
        let two = units("--only fib", 2);
        assert_eq!(sizes(&two, false), [1, 2, 4, 8]);
        assert_eq!(sizes(&two, true), [2, 8]);
        let quick = units("--only fib --quick", 2);
        assert_eq!(
            (sizes(&quick, false), sizes(&quick, true)),
            (vec![1, 2, 8], vec![2])
        );
        let one = units("--only fib", 1);
        assert_eq!(
            (sizes(&one, false), sizes(&one, true)),
            (vec![1, 2, 4], vec![2, 4])
        );
        let chosen = units("--only fib --threads 5,1", 64);
        assert_eq!(
            (sizes(&chosen, false), sizes(&chosen, true)),
            (vec![1, 5], vec![5])
        );
    }

    #[test]
    fn kernels_run_beside_each_number_of_busy_processes() {
        let all = units("kernels --only blas --threads 1,4", 2);
        let beside: Vec<(usize, usize)> = all.iter().map(|u| (u.threads, u.beside(2))).collect();
        assert_eq!(beside, [(1, 0), (4, 0), (1, 1), (4, 1), (1, 2), (4, 2)]);
        assert_eq!(all[0].label(), "blas, 1 threads");
        assert_eq!(all[5].label(), "blas, 4 threads, 2 busy");
        let chosen = units("kernels --only blas --threads 4 --busy 3", 2);
        assert_eq!((chosen.len(), chosen[0].beside(2)), (1, 3));
        let times = |arguments: &str, unit: &Unit| unit.repetitions(&options(arguments));
        assert_eq!((times("", &all[0]), times("", &all[5])), (3, 1));
        assert_eq!(times("--repetitions 7", &all[5]), 7);
    }

    #[test]
    fn large_machines_do_not_nest_all_their_threads() {
        let nested = units("--only mandelbrot", 16);
        assert_eq!(sizes(&nested, false), [1, 16, 32]);
        let flat = units("--only uts", 16);
        assert_eq!(sizes(&flat, false), [1, 16, 32, 64]);
    }

    #[test]
    fn every_kernel_is_in_the_plan_of_its_chapter_and_can_be_chosen() {
        for kernel in Kernel::value_variants() {
            let chapter = match kernel.chapter() {
                Chapter::Constructs => "constructs",
                Chapter::Kernels => "kernels",
            };
            let all = units(&format!("{chapter} --quick"), 2);
            assert!(all.iter().any(|unit| unit.kernel == *kernel));
            let one = units(&format!("{chapter} --quick --only {}", kernel.name()), 2);
            assert!(!one.is_empty() && one.iter().all(|unit| unit.kernel == *kernel));
        }
        assert_eq!(units("--quick", 2)[3].label(), "fork, 2 threads, contended");
    }
}
