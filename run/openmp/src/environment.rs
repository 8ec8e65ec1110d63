//! The environment variables that a program starts with.

use std::ffi::OsString;
use std::sync::atomic::Ordering;

use margay_core_openmp::environment::{self as values, Bind};
use margay_core_openmp::format::Interface;
use margay_core_openmp::hardware_subset;
use margay_core_openmp::places::{self, Topology};
use margay_core_openmp::schedule::{Kind, Schedule};
use margay_sys_os::cpu;

use crate::icv::{Icv, Icvs, SUPPORTED_ACTIVE_LEVELS};
use crate::machine::Machine;

/// What the environment variables say.
// Fields: one for each variable.
#[derive(Debug)]
pub struct Environment {
    /// Cores that this process can keep busy.
    pub cores: u32,
    /// The control variables of the initial task.
    pub initial: Icv,
    /// `OMP_NUM_THREADS`: threads by level.
    pub threads: Vec<u32>,
    /// `OMP_PROC_BIND` by level.
    pub bind: Vec<Bind>,
    /// `OMP_PLACES`, or those that `GOMP_CPU_AFFINITY` names; empty without.
    pub places: Vec<Vec<usize>>,
    pub stack_bytes: u64,
    pub wait_policy: Option<bool>,
    pub cancellation: bool,
    pub max_task_priority: u32,
    pub display_affinity: bool,
    /// `OMP_AFFINITY_FORMAT`
    pub affinity_format: Option<String>,
    /// `OMP_NUM_TEAMS`; 0 without.
    pub teams: u32,
    /// `OMP_TEAMS_THREAD_LIMIT`; 0 without.
    pub teams_thread_limit: u32,
    pub offload: Offload,
    pub spin_count: Option<u64>,
    /// `OMP_SCHEDULE` begins with `monotonic:`.
    pub says_monotonic: bool,
    /// Tasks are run at once where many wait (`KMP_ENABLE_TASK_THROTTLING`).
    pub throttles_tasks: bool,
}

/// `OMP_TARGET_OFFLOAD`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    Default,
    Mandatory,
    Disabled,
}

impl Offload {
    /// The value of `OMP_TARGET_OFFLOAD`.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(text: &str) -> Result<Offload, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "default" => Ok(Offload::Default),
            "mandatory" => Ok(Offload::Mandatory),
            "disabled" => Ok(Offload::Disabled),
            _ => Err("'default', 'mandatory' or 'disabled' is needed".into()),
        }
    }
}

/// `GOMP_SPINCOUNT=infinity`
const INFINITE_SPINS: u64 = u64::MAX;

impl Environment {
    /// Reads the environment variables of this process. Errors are printed.
    #[must_use]
    pub fn of_process() -> Environment {
        Environment::read(&|name| std::env::var_os(name), &mut |line| {
            eprintln!("{line}")
        })
    }

    /// Reads the variables. A variable with an invalid value is reported and ignored.
    pub fn read(
        variable: &dyn Fn(&str) -> Option<OsString>,
        report: &mut dyn FnMut(String),
    ) -> Environment {
        let mut read = Reader { variable, report };
        let part = read.value("KMP_HW_SUBSET", |text| {
            hardware_subset::subset(text, &Machine)
        });
        let (mut cores, mut machine) = (cpu::usable_cores() as u32, &Machine as &dyn Topology);
        if let Some(part) = &part {
            machine = part;
            cores = cores.min(part.usable().len() as u32);
        }
        let mut initial = Icv::default(cores);

        let threads: Vec<u32> = read
            .value("OMP_NUM_THREADS", values::numbers)
            .map(|list| list.into_iter().map(|n| n as u32).collect())
            .unwrap_or_default();
        if let Some(&first) = threads.first() {
            initial.threads = first;
        }
        if let Some(schedule) = read.value("OMP_SCHEDULE", values::schedule) {
            initial.schedule = schedule;
        }
        if let Some(dynamic) = read.value("OMP_DYNAMIC", values::boolean) {
            initial.dynamic = dynamic;
        }
        if let Some(device) = read.value("OMP_DEFAULT_DEVICE", |text| values::number(text, 0)) {
            initial.device = device as i32;
        }
        if let Some(limit) = read.value("OMP_THREAD_LIMIT", |text| values::number(text, 1)) {
            initial.thread_limit = limit as u32;
        }
        if let Some(allocator) = read.value("OMP_ALLOCATOR", crate::allocator::by_name) {
            initial.allocator = allocator;
        }
        let (bind, found) = binding(&mut read, machine, part.is_some());
        if let Some(&first) = bind.first() {
            initial.bind = first;
        }

        let nested = read.value("OMP_NESTED", values::boolean);
        let levels = read.value("OMP_MAX_ACTIVE_LEVELS", |text| values::number(text, 0));
        initial.max_active_levels = match (levels, nested) {
            (Some(levels), _) => (levels as u32).min(SUPPORTED_ACTIVE_LEVELS),
            (None, Some(true)) => SUPPORTED_ACTIVE_LEVELS,
            (None, Some(false)) => 1,
            (None, None) if threads.len() > 1 || bind.len() > 1 => SUPPORTED_ACTIVE_LEVELS,
            (None, None) => 1,
        };
        Environment {
            cores,
            initial,
            threads,
            bind,
            places: found,
            stack_bytes: read
                .value("OMP_STACKSIZE", values::size)
                .or_else(|| read.value("GOMP_STACKSIZE", values::size))
                .or_else(|| read.value("KMP_STACKSIZE", values::size_in_bytes))
                .unwrap_or(0),
            wait_policy: read
                .value("OMP_WAIT_POLICY", |text| {
                    match text.trim().to_ascii_lowercase().as_str() {
                        "active" => Ok(true),
                        "passive" => Ok(false),
                        _ => Err("'active' or 'passive' is needed".into()),
                    }
                })
                .or_else(|| values::kmp_blocktime(&read.text("KMP_BLOCKTIME")?)),
            cancellation: read
                .value("OMP_CANCELLATION", values::boolean)
                .unwrap_or(false),
            max_task_priority: read
                .value("OMP_MAX_TASK_PRIORITY", |text| values::number(text, 0))
                .unwrap_or(0) as u32,
            display_affinity: read
                .value("OMP_DISPLAY_AFFINITY", values::boolean)
                .unwrap_or(false),
            affinity_format: read.text("OMP_AFFINITY_FORMAT"),
            teams: read
                .value("OMP_NUM_TEAMS", |text| values::number(text, 1))
                .unwrap_or(0) as u32,
            teams_thread_limit: read
                .value("OMP_TEAMS_THREAD_LIMIT", |text| values::number(text, 1))
                .unwrap_or(0) as u32,
            offload: read
                .value("OMP_TARGET_OFFLOAD", Offload::of)
                .unwrap_or(Offload::Default),
            spin_count: read.value("GOMP_SPINCOUNT", spin_count),
            says_monotonic: read.text("OMP_SCHEDULE").is_some_and(|text| {
                let modifier = text.split_once(':').map(|(modifier, _)| modifier.trim());
                modifier.is_some_and(|modifier| modifier.eq_ignore_ascii_case("monotonic"))
            }),
            throttles_tasks: read
                .value("KMP_ENABLE_TASK_THROTTLING", values::kmp_boolean)
                .unwrap_or(true),
        }
    }

    /// The lines that `OMP_DISPLAY_ENV` and `omp_display_env` show, in libgomp's form. Of `icvs`
    /// the variables of the device are shown as they are now.
    #[must_use]
    pub fn display(&self, icvs: &Icvs, verbose: bool) -> String {
        let icv = self.initial;
        let teams = icvs.teams.load(Ordering::Relaxed);
        let teams_limit = icvs.teams_thread_limit.load(Ordering::Relaxed);
        let truth = |on| if on { "TRUE" } else { "FALSE" };
        let list = |numbers: Vec<String>| numbers.join(",");
        let threads = std::iter::once(icv.threads)
            .chain(self.threads.iter().skip(1).copied())
            .map(|n| n.to_string())
            .collect();
        let bind_names = |bind: Bind| match bind {
            Bind::False => "FALSE",
            Bind::True => "TRUE",
            Bind::Primary => "MASTER",
            Bind::Close => "CLOSE",
            Bind::Spread => "SPREAD",
        };
        let bind = std::iter::once(icv.bind)
            .chain(self.bind.iter().skip(1).copied())
            .map(|bind| bind_names(bind).to_owned())
            .collect();
        let places = self
            .places
            .iter()
            .map(|place| format!("{{{}}}", ranges(place, ":")))
            .collect();
        let format = icvs.affinity_format(Interface::Gnu);
        let mut lines = vec![
            "_OPENMP = '201511'".to_owned(),
            format!("OMP_DYNAMIC = '{}'", truth(icv.dynamic)),
            format!("OMP_NESTED = '{}'", truth(icv.max_active_levels > 1)),
            format!("OMP_NUM_THREADS = '{}'", list(threads)),
            format!("OMP_SCHEDULE = '{}'", schedule_text(icv.schedule)),
            format!("OMP_PROC_BIND = '{}'", list(bind)),
            format!("OMP_PLACES = '{}'", list(places)),
            format!("OMP_STACKSIZE = '{}'", self.stack_bytes),
            format!(
                "OMP_WAIT_POLICY = '{}'",
                if self.wait_policy == Some(true) {
                    "ACTIVE"
                } else {
                    "PASSIVE"
                }
            ),
            format!("OMP_THREAD_LIMIT = '{}'", icv.thread_limit),
            format!("OMP_MAX_ACTIVE_LEVELS = '{}'", icv.max_active_levels),
            format!("OMP_NUM_TEAMS = '{teams}'"),
            format!("OMP_TEAMS_THREAD_LIMIT = '{teams_limit}'"),
            format!("OMP_CANCELLATION = '{}'", truth(self.cancellation)),
            format!("OMP_DEFAULT_DEVICE = '{}'", icv.device),
            format!("OMP_MAX_TASK_PRIORITY = '{}'", self.max_task_priority),
            format!("OMP_DISPLAY_AFFINITY = '{}'", truth(self.display_affinity)),
            format!("OMP_AFFINITY_FORMAT = '{format}'"),
            format!(
                "OMP_ALLOCATOR = '{}'",
                crate::allocator::name(icv.allocator)
            ),
            format!(
                "OMP_TARGET_OFFLOAD = '{}'",
                match self.offload {
                    Offload::Default => "DEFAULT",
                    Offload::Mandatory => "MANDATORY",
                    Offload::Disabled => "DISABLED",
                }
            ),
        ];
        if verbose {
            lines.push("GOMP_CPU_AFFINITY = ''".into());
            lines.push(format!("GOMP_STACKSIZE = '{}'", self.stack_bytes));
            lines.push(format!(
                "GOMP_SPINCOUNT = '{}'",
                self.spin_count.unwrap_or(default_spins(self.wait_policy))
            ));
        }
        let mut text = String::from("\nOPENMP DISPLAY ENVIRONMENT BEGIN\n");
        for line in lines {
            text.push_str("  ");
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str("OPENMP DISPLAY ENVIRONMENT END\n");
        text
    }
}

/// How members are bound, by level, and the places; `machine` may be a part of this one, to which
/// they are restricted.
fn binding(
    read: &mut Reader<'_>,
    machine: &dyn Topology,
    is_part: bool,
) -> (Vec<Bind>, Vec<Vec<usize>>) {
    let mut bind = read.value("OMP_PROC_BIND", values::bind);
    let mut found = read
        .value("OMP_PLACES", |text| places::places(text, machine))
        .unwrap_or_default();
    if bind.as_deref() == Some(&[Bind::False]) {
        found.clear();
    } else if !found.is_empty() {
        bind.get_or_insert_with(|| vec![Bind::True]);
    } else if let Some(older) = read.value("GOMP_CPU_AFFINITY", |text| {
        places::cpu_affinity(text, machine)
    }) {
        found = older;
        bind.get_or_insert_with(|| vec![Bind::True]);
    } else if let Some((policy, name)) = read
        .text("KMP_AFFINITY")
        .as_deref()
        .and_then(values::kmp_affinity)
        && bind.is_none()
    {
        found = places::places(name, machine).unwrap_or_default();
        bind = Some(vec![policy]);
    } else if bind.is_some() {
        // Bound, without a list of places: each usable core is a place.
        found = places::places("cores", machine).unwrap_or_default();
    } else if is_part {
        // Not bound, but to the part: that is the only place.
        found = vec![machine.usable()];
        bind = Some(vec![Bind::True]);
    }
    (bind.unwrap_or_default(), found)
}

/// What `OMP_DISPLAY_ENV` asks for: nothing, the variables, or all of them.
#[must_use]
pub fn display_wanted() -> Option<bool> {
    let text = std::env::var("OMP_DISPLAY_ENV").ok()?;
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Some(false),
        "verbose" => Some(true),
        "false" | "0" => None,
        _ => {
            eprintln!(
                "{}",
                error_line(
                    "OMP_DISPLAY_ENV",
                    &text,
                    "'true', 'false' or 'verbose' is needed"
                )
            );
            None
        }
    }
}

/// What libgomp's threads spin without `GOMP_SPINCOUNT`: shown, and used by nothing here.
fn default_spins(wait_policy: Option<bool>) -> u64 {
    match wait_policy {
        None => 300_000,
        Some(true) => 30_000_000_000,
        Some(false) => 0,
    }
}

fn error_line(name: &str, text: &str, wrong: &str) -> String {
    format!("libgomp (Margay): {name}='{text}' is ignored: {wrong}")
}

fn schedule_text(schedule: Schedule) -> String {
    let name = match schedule.kind {
        Kind::Static => "STATIC",
        Kind::Dynamic => "DYNAMIC",
        Kind::Guided => "GUIDED",
        Kind::Auto => "AUTO",
        Kind::Trapezoidal => "TRAPEZOIDAL",
    };
    // Only what differs from the kind's default is shown.
    let modifier = match (schedule.monotonic, schedule.kind) {
        (true, Kind::Static) => "",
        (true, _) => "MONOTONIC:",
        (false, Kind::Static) => "NONMONOTONIC:",
        (false, _) => "",
    };
    let plain = if schedule.kind == Kind::Static { 0 } else { 1 };
    if schedule.chunk == plain || schedule.chunk == 0 {
        format!("{modifier}{name}")
    } else {
        format!("{modifier}{name},{}", schedule.chunk)
    }
}

/// Numbers in ascending order as ranges: `0-3,7,8-9`, or with ':' the start and the length of each
/// range: `0:4,7,8:2`. LLVM's library takes three numbers for a range: `0-3,7,8,9` with ','.
#[must_use]
pub fn ranges(numbers: &[usize], form: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let first = numbers[at];
        let mut len = 1;
        while at + len < numbers.len() && numbers[at + len] == first + len {
            len += 1;
        }
        parts.push(match (len, form) {
            (1, _) => first.to_string(),
            (2, ",") => format!("{first},{}", first + 1),
            (_, ":") => format!("{first}:{len}"),
            _ => format!("{first}-{}", first + len - 1),
        });
        at += len;
    }
    parts.join(",")
}

fn spin_count(text: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    if text == "infinity" || text == "infinite" {
        return Ok(INFINITE_SPINS);
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let factor = match text[digits..].trim() {
        "" => Some(1),
        "k" => Some(1_000),
        "m" => Some(1_000_000),
        "g" => Some(1_000_000_000),
        _ => None,
    };
    let number = text[..digits].parse::<u64>().ok();
    number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| "a number or 'infinity' is needed".into())
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    report: &'a mut dyn FnMut(String),
}

impl Reader<'_> {
    fn text(&mut self, name: &str) -> Option<String> {
        let text = (self.variable)(name)?;
        match text.into_string() {
            Ok(text) => Some(text),
            Err(text) => {
                (self.report)(error_line(name, &text.to_string_lossy(), "it is not text"));
                None
            }
        }
    }

    fn value<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(wrong) => {
                (self.report)(error_line(name, &text, &wrong));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Environment, Vec<String>) {
        let mut errors = Vec::new();
        let environment = Environment::read(
            &|name| {
                let found = variables.iter().find(|(n, _)| *n == name);
                found.map(|(_, text)| OsString::from(text))
            },
            &mut |line| errors.push(line),
        );
        (environment, errors)
    }

    #[test]
    fn lists_make_nesting_active_unless_a_variable_says_otherwise() {
        let (environment, errors) = read(&[("OMP_NUM_THREADS", "4,3")]);
        assert!(errors.is_empty());
        assert_eq!(environment.initial.threads, 4);
        assert_eq!(
            environment.initial.max_active_levels,
            SUPPORTED_ACTIVE_LEVELS
        );
        let (environment, _) = read(&[("OMP_NUM_THREADS", "4,3"), ("OMP_MAX_ACTIVE_LEVELS", "1")]);
        assert_eq!(environment.initial.max_active_levels, 1);
    }

    #[test]
    fn wrong_values_are_named_with_the_remedy_and_ignored() {
        let (environment, errors) = read(&[
            ("OMP_NUM_THREADS", "many"),
            ("OMP_SCHEDULE", "dynamic,4"),
            ("OMP_STACKSIZE", "lots"),
        ]);
        assert_eq!(errors.len(), 2);
        assert!(errors[0].contains("OMP_NUM_THREADS='many'") && errors[0].contains("at least 1"));
        assert_eq!(environment.initial.schedule.chunk, 4);
    }

    #[test]
    fn numbers_are_ranges_in_three_forms() {
        let numbers = [0, 1, 3, 5, 6, 7];
        assert_eq!(ranges(&numbers, "-"), "0-1,3,5-7");
        assert_eq!(ranges(&numbers, ","), "0,1,3,5-7");
        assert_eq!(ranges(&numbers, ":"), "0:2,3,5:3");
    }

    #[test]
    fn the_display_has_libgomps_form() {
        let (environment, _) = read(&[
            ("OMP_NUM_THREADS", "3,2"),
            ("OMP_SCHEDULE", "guided,3"),
            ("OMP_PLACES", "{0}"),
            ("OMP_PROC_BIND", "spread,close"),
        ]);
        let format = environment.affinity_format.as_deref();
        let icvs = Icvs::new(environment.initial, format, 2, 0);
        let text = environment.display(&icvs, false);
        for line in [
            "  OMP_NUM_THREADS = '3,2'\n",
            "  OMP_SCHEDULE = 'GUIDED,3'\n",
            "  OMP_PROC_BIND = 'SPREAD,CLOSE'\n",
            "  OMP_PLACES = '{0}'\n",
            "  OMP_NESTED = 'TRUE'\n",
            "  OMP_NUM_TEAMS = '2'\n",
            "  OMP_AFFINITY_FORMAT = 'level %L thread %i affinity %A'\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
