//! Values of options.

use std::ffi::OsString;
use std::time::Duration;

use margay_core_registry::network::Network;
use margay_job_launch::machine::parse_list;
use margay_job_launch::plan::{Gpus, Job, OnDeadlock, Output, StdinTo};

/// What `--on` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList(pub Vec<u32>);

/// What `--cpu-set` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

/// What `--genvlist` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<OsString>);

/// What `--output` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputOption {
    /// As the plan knows it.
    Plain(Output),
    /// Unordered with labels.
    Labelled,
}

/// Reads a number of ranks.
///
/// # Errors
/// When it is none.
pub fn ranks(text: &str) -> Result<u32, String> {
    match text.parse::<i128>() {
        Ok(n) if n >= 1 && n <= i128::from(Job::MOST_RANKS) => Ok(n as u32),
        Ok(n) if n < 1 => Err("a job needs at least 1 rank".into()),
        Ok(_) => Err(format!("at most {} ranks are possible", Job::MOST_RANKS)),
        Err(_) => Err("this is not a number of ranks".into()),
    }
}

/// Reads a network between hosts.
///
/// # Errors
/// When it is none.
pub fn network(text: &str) -> Result<String, String> {
    match Network::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("write tcp, ofi, ofi:PROVIDER or ofi:PROVIDER:DOMAIN".into()),
    }
}

/// Reads the number of a process.
///
/// # Errors
/// When it is none.
pub fn process_id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&pid: &u32| pid > 0);
    number.ok_or_else(|| "give the number of a process, as ps and showmesh print it".into())
}

/// Reads a time.
///
/// # Errors
/// When it is none.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|&s| s > 0.0 && s < 1e9)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "this is not a number of seconds above 0".into())
}

/// Reads a list of NX's nodes.
///
/// # Errors
/// When it is none.
pub fn node_list(text: &str) -> Result<NodeList, String> {
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&n| n < 65_536);
        let ends = part.split_once("..").or_else(|| part.split_once('-'));
        let range = match ends {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(part).map(|n| (n, n)),
        };
        match range {
            Some((first, last)) if first <= last => nodes.extend(first..=last),
            _ => return Err("choose nodes below 65536, such as 0,2 or 1..3".into()),
        }
    }
    Ok(NodeList(nodes))
}

/// Reads which ranks get the standard input.
///
/// # Errors
/// When it is none.
pub fn stdin_to(text: &str) -> Result<StdinTo, String> {
    match text {
        "all" => Ok(StdinTo::All),
        "none" => Ok(StdinTo::Nobody),
        rank => rank
            .parse()
            .map(StdinTo::Rank)
            .map_err(|_| "choose a rank, all or none".into()),
    }
}

/// Reads how standard output is shown.
///
/// # Errors
/// When it is none.
pub fn output(text: &str) -> Result<OutputOption, String> {
    let plain = |output| Ok(OutputOption::Plain(output));
    match text {
        "unordered" => plain(Output::Unordered),
        "label" | "labelled" | "labeled" => Ok(OutputOption::Labelled),
        "ordered" => plain(Output::Ordered),
        other => match other.strip_prefix("rank:").unwrap_or(other).parse() {
            Ok(rank) => plain(Output::Rank(rank)),
            Err(_) => Err("choose unordered, label, ordered or rank:N".into()),
        },
    }
}

/// Reads what is done when ranks can never go on.
///
/// # Errors
/// When it is none of these words.
pub fn on_deadlock(text: &str) -> Result<OnDeadlock, String> {
    match text {
        "report" => Ok(OnDeadlock::Report),
        "end" => Ok(OnDeadlock::End),
        "ignore" => Ok(OnDeadlock::Ignore),
        _ => Err("choose report, end or ignore".into()),
    }
}

/// Reads a number of devices; `all` is as many as are found.
///
/// # Errors
/// When it is neither.
pub fn gpus(text: &str) -> Result<Gpus, String> {
    match text.parse() {
        Ok(number @ 1..=65_536) => Ok(Gpus::Number(number)),
        _ if text == "all" => Ok(Gpus::Found),
        _ => Err(
            "give the number of devices of this host; without a number they are looked for".into(),
        ),
    }
}

/// Reads a list of cores.
///
/// # Errors
/// When it is none.
pub fn core_list(text: &str) -> Result<CoreList, String> {
    parse_list(text).map(CoreList)
}

/// Reads a number of cores for each rank.
///
/// # Errors
/// When it is none.
pub fn cores_each(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=65_536).contains(n));
    number.ok_or_else(|| "this is not a number of cores".into())
}

/// Reads names of variables of the environment, with commas between them.
///
/// # Errors
/// Never.
pub fn names(text: &str) -> Result<Names, String> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    Ok(Names(names.map(OsString::from).collect()))
}
