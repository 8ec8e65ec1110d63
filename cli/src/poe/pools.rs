//! The pools of `poe`: named sets of nodes from which a job gets those that it needs, for itself or
//! beside others. On an SP2 the Resource Manager knew them; here a pool is a partition.

use clap::Args;
use margay_job_launch::plan::{Binding, Job};
use margay_job_launch::turns::{self, Pool, Turns, Wanted};

use super::{NAME, PoeOptions};
use crate::hosts::{hosts, with_places};

/// What is said of pools.
#[derive(Clone, Debug, Default, Args)]
pub struct PoolOptions {
    /// Run on nodes of this pool: of the partition of that name, whose nodes are cores
    #[arg(long = "rmpool", env = "MP_RMPOOL", value_name = "POOL")]
    pub pool: Option<String>,

    /// Whether nodes of the pool are for this job alone (unique) or shared with others (multiple)
    /// [default: as the partition says; unique with -euilib us]
    #[arg(long = "cpu_use", env = "MP_CPU_USE", value_name = "unique|multiple", value_parser = ["unique", "multiple"], hide_possible_values = true, ignore_case = true)]
    pub cpu_use: Option<String>,

    /// dedicated: as -cpu_use unique, because the way to other tasks is one of the node; shared: as
    /// the other options say
    #[arg(long = "adapter_use", env = "MP_ADAPTER_USE", value_name = "dedicated|shared", value_parser = ["dedicated", "shared"], hide_possible_values = true, ignore_case = true)]
    pub adapter_use: Option<String>,

    /// us: nodes of a pool are for this job alone, unless -cpu_use or -adapter_use say otherwise;
    /// ip: no effect
    #[arg(long = "euilib", env = "MP_EUILIB", value_name = "us|ip")]
    pub library: Option<String>,
}

impl PoolOptions {
    fn is_dedicated(&self) -> bool {
        let is = |option: &Option<String>, word: &str| {
            (option.as_ref()).is_some_and(|own| own.eq_ignore_ascii_case(word))
        };
        let is_said = self.cpu_use.is_some() || self.adapter_use.is_some();
        is(&self.cpu_use, "unique")
            || is(&self.adapter_use, "dedicated")
            || (!is_said && is(&self.library, "us"))
    }
}

/// Reads a line `@pool` of a host file, whose words win over options.
///
/// # Errors
/// When it names no pool, another one than a line before, or a word is not known.
pub fn line(line: &str, before: &mut Option<PoolOptions>) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let name = words.next().and_then(|word| word.strip_prefix('@'));
    let name = name.filter(|name| !name.is_empty());
    let name = name.ok_or("'@' stands before the name of a pool: @1")?;
    let mut own = PoolOptions {
        pool: Some(name.to_owned()),
        ..PoolOptions::default()
    };
    for word in words {
        match word {
            "dedicated" | "shared" => own.adapter_use = Some(word.to_owned()),
            "unique" | "multiple" => own.cpu_use = Some(word.to_owned()),
            _ => {
                return Err(format!(
                    "'{word}' behind the pool '{name}': write dedicated or shared, unique or multiple"
                ));
            }
        }
    }
    match before {
        Some(PoolOptions {
            pool: Some(other), ..
        }) if other != name => Err(format!(
            "the pools '{other}' and '{name}': a job runs in one pool"
        )),
        _ => {
            *before = Some(own);
            Ok(())
        }
    }
}

/// The nodes of a pool for the jobs of one `poe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    name: String,
    /// How many are asked for, where the options say it.
    nodes: Option<u32>,
    tasks_per_node: Option<u32>,
    is_dedicated: bool,
}

/// The pool that options or the lines of a host file name, and the number of tasks where they say
/// it.
///
/// # Errors
/// When numbers contradict each other.
pub fn nodes(options: &PoeOptions) -> Result<Option<(Option<u32>, Nodes)>, String> {
    let file = options.host_file.as_ref();
    let of_file = file.and_then(|file| file.pool.as_ref());
    // Hosts of a file are named one by one.
    let own = match of_file {
        None if file.is_some_and(|file| !file.hosts.is_empty()) => return Ok(None),
        lines => lines.unwrap_or(&options.pool),
    };
    let Some(name) = own.pool.clone().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let merged = PoolOptions {
        pool: None,
        cpu_use: own.cpu_use.clone().or(options.pool.cpu_use.clone()),
        adapter_use: own.adapter_use.clone().or(options.pool.adapter_use.clone()),
        library: options.pool.library.clone(),
    };
    let lines = of_file.and(file).map(|file| file.lines);
    if let (Some(tasks), Some(lines)) = (options.procs, lines)
        && tasks > lines
        && options.tasks_per_node.is_none()
    {
        return Err(format!(
            "the host file has {lines} lines for {tasks} tasks; add lines, or use -tasks_per_node"
        ));
    }
    let (tasks, nodes) = match (options.procs, options.nodes, options.tasks_per_node) {
        (Some(tasks), Some(nodes), Some(each))
            if u64::from(nodes) * u64::from(each) != u64::from(tasks) =>
        {
            return Err(format!(
                "-procs {tasks} and -tasks_per_node {each} on {nodes} nodes contradict each other; leave one out"
            ));
        }
        (Some(tasks), None, Some(each)) if tasks % each != 0 => {
            return Err(format!(
                "-procs {tasks} is no multiple of -tasks_per_node {each}; change one, or leave one out"
            ));
        }
        (Some(tasks), None, Some(each)) => (Some(tasks), Some(tasks / each)),
        (None, Some(nodes), each) => (Some(nodes.saturating_mul(each.unwrap_or(1))), Some(nodes)),
        (tasks, nodes, _) => (tasks.or(lines), nodes),
    };
    let own = Nodes {
        name,
        nodes,
        tasks_per_node: options.tasks_per_node,
        is_dedicated: merged.is_dedicated(),
    };
    Ok(Some((tasks, own)))
}

impl Nodes {
    /// Asks for nodes for a job, waits for them, and has its tasks run on them.
    ///
    /// # Errors
    /// Why the job cannot run there.
    pub fn ask(&self, job: &mut Job) -> Result<Turns, String> {
        let tasks: Option<u32> = job.programs.iter().map(|program| program.ranks).sum();
        let words = job
            .programs
            .iter()
            .flat_map(|program| std::iter::once(&program.command).chain(&program.arguments));
        let words: Vec<String> = (words.take(20))
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let (turns, nodes) = Turns::begin(&Wanted {
            name: &self.name,
            ranks: self.nodes.or(tasks),
            is_exact: self.nodes.is_some(),
            pool: Some(Pool {
                is_dedicated: self.is_dedicated,
            }),
            priority: None,
            command: &words.join(" "),
            launcher: NAME,
        })
        .map_err(|why| format!("pool {}: {why}", self.name))?;
        let cores = match nodes {
            turns::Nodes::Cores(cores) => cores,
            turns::Nodes::Hosts(list) => {
                self.on_hosts(job, hosts(&list)?.places(self.tasks_per_node));
                return Ok(turns);
            }
        };
        let each = self.tasks_per_node.unwrap_or(1);
        let all = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        if let [program] = job.programs.as_mut_slice() {
            program.ranks = program.ranks.or(Some(all.saturating_mul(each)));
        }
        if self.nodes.is_some() || self.tasks_per_node.is_some() {
            let tasks: u32 = job.programs.iter().filter_map(|own| own.ranks).sum();
            job.binding = Binding::List(of_tasks(tasks, &cores));
        }
        job.layout.cores = Some(cores);
        Ok(turns)
    }
}

impl Nodes {
    /// Has the tasks of a job run on hosts with their places.
    fn on_hosts(&self, job: &mut Job, mut list: Vec<(String, u32)>) {
        let tasks: Option<u32> = job.programs.iter().map(|program| program.ranks).sum();
        if let (Some(tasks), Some(_), None) = (tasks, self.nodes, self.tasks_per_node) {
            let each = tasks.div_ceil(u32::try_from(list.len()).unwrap_or(1).max(1));
            for (_, places) in &mut list {
                *places = each;
            }
        }
        let places = list.iter().map(|(_, places)| places).sum();
        if let [program] = job.programs.as_mut_slice() {
            program.ranks = program.ranks.or(Some(places));
        }
        job.hosts = with_places(list, None);
    }
}

/// The core of each task: as many on each node, or one more on the first ones.
fn of_tasks(tasks: u32, cores: &[usize]) -> Vec<usize> {
    let (tasks, nodes) = (tasks as usize, cores.len().max(1));
    let count = |node: usize| tasks / nodes + usize::from(node < tasks % nodes);
    let lists = cores.iter().enumerate();
    lists
        .flat_map(|(node, &core)| std::iter::repeat_n(core, count(node)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_to_nodes_in_order() {
        assert_eq!(of_tasks(4, &[1, 5]), [1, 1, 5, 5]);
        assert_eq!(of_tasks(3, &[1, 5]), [1, 1, 5]);
        assert_eq!(of_tasks(1, &[1, 5]), [1]);
    }

    #[test]
    fn who_shares_nodes_is_said_by_three_options() {
        let of = |cpu: &str, adapter: &str, library: &str| {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let own = PoolOptions {
                pool: None,
                cpu_use: some(cpu),
                adapter_use: some(adapter),
                library: some(library),
            };
            own.is_dedicated()
        };
        assert!(of("UNIQUE", "", "") && of("", "dedicated", "ip") && of("", "", "us"));
        assert!(of("unique", "shared", ""));
        assert!(!of("", "", "") && !of("multiple", "", "us") && !of("", "shared", "us"));
    }
}
