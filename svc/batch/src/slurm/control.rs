//! `scontrol`: all that is known of jobs, nodes and partitions; changing jobs.

use margay_core_queue::{Phase, duration};
use margay_svc_queue_wire::{Change, Machine, Request, Target};

use super::fields::{NOTHING, View, exit, reason, state};
use super::machine::{node, partition};
use super::{VERSION, chosen, hostlist};
use crate::common::{self, Done, date, print};
use crate::machine::{self, node_count};
use crate::words::Known;
use crate::words::Takes::Nothing;

pub(crate) const OPTIONS: &[Known] = &[
    ('a', "all", Nothing),
    ('d', "details", Nothing),
    ('o', "oneliner", Nothing),
    ('Q', "quiet", Nothing),
    ('v', "verbose", Nothing),
];

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let is_option = |word: &&String| word.starts_with('-');
    let is_one_line = words
        .iter()
        .filter(is_option)
        .any(|word| ["-o", "--oneliner"].contains(&word.as_str()));
    let is_known = |word: &String| {
        word == "-dd"
            || OPTIONS.iter().any(|&(letter, long, _)| {
                *word == format!("-{letter}") || *word == format!("--{long}")
            })
    };
    if let Some(wrong) = words.iter().filter(is_option).find(|word| !is_known(word)) {
        return Err(format!("option {wrong} is not supported"));
    }
    let words: Vec<&str> = words
        .iter()
        .filter(|word| !is_option(word))
        .map(String::as_str)
        .collect();
    match words[..] {
        ["show", "hostnames" | "hostname", list] => hostnames(list),
        ["show", "hostnames" | "hostname"] => {
            hostnames(&std::env::var("SLURM_JOB_NODELIST").unwrap_or_default())
        }
        ["show", form @ ("hostlist" | "hostlistsorted"), list] => {
            let mut hosts = hostlist::expanded(list)?;
            if form == "hostlistsorted" {
                hostlist::sort(&mut hosts);
            }
            print(&format!("{}\n", hostlist::compressed(&hosts))).map(|()| 0)
        }
        ["show", what, ref names @ ..] => show(what, names, is_one_line),
        ["hold" | "uhold", ref jobs @ ..] => hold(jobs, true),
        ["release", ref jobs @ ..] => hold(jobs, false),
        ["requeue", ref jobs @ ..] => {
            let jobs = targets(jobs)?;
            common::order(&Request::Requeue { jobs }).map(|()| 0)
        }
        ["requeuehold", ref jobs @ ..] => {
            let jobs = targets(jobs)?;
            common::order(&Request::Requeue { jobs: jobs.clone() })?;
            let _ = common::order(&Request::Hold {
                jobs,
                is_held: true,
            });
            Ok(0)
        }
        ["update" | "modify", ref items @ ..] => update(items),
        ["ping"] => {
            let machine = common::machine()?;
            print(&format!("Slurmctld(primary) at {} is UP\n", machine.host)).map(|()| 0)
        }
        ["version"] => print(&format!("{VERSION}\n")).map(|()| 0),
        ["wait_job", job] => {
            common::wait(targets(&[job])?)?;
            Ok(0)
        }
        [command, ..] => Err(format!(
            "the command {command} is not supported; those that are: show job, node, partition, config, hostnames; hold, \
             release, requeue, update, ping, version, wait_job"
        )),
        [] => Err("no command; scontrol has no dialogue here".into()),
    }
}

fn targets(words: &[&str]) -> Result<Vec<Target>, String> {
    let strip = |word: &&str| {
        let word = word.trim();
        let lower = word.to_ascii_lowercase();
        let at = if lower.starts_with("jobid=") || lower.starts_with("job=") {
            word.find('=').map_or(0, |at| at + 1)
        } else {
            0
        };
        word[at..].to_owned()
    };
    let words: Vec<String> = words
        .iter()
        .map(strip)
        .flat_map(|word| {
            word.split([',', ' '])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err("too few arguments: name a job".into());
    }
    chosen(&words)
}

fn hold(jobs: &[&str], is_held: bool) -> Done {
    let jobs = targets(jobs)?;
    common::order(&Request::Hold { jobs, is_held })?;
    Ok(0)
}

/// Prints the hosts of a list such as `n[1-3],m` on a line each.
fn hostnames(list: &str) -> Done {
    let hosts = hostlist::expanded(list)?;
    print(
        &hosts
            .iter()
            .map(|host| format!("{host}\n"))
            .collect::<String>(),
    )?;
    Ok(0)
}

fn show(what: &str, names: &[&str], is_one_line: bool) -> Done {
    let machine = common::machine()?;
    let mut missing = None;
    // A name may stand behind the word: `show node=n1`.
    let (what, names) = match what.split_once('=') {
        Some((what, name)) => (what, [&[name], names].concat()),
        None => (what, names.to_vec()),
    };
    let records = match what.to_ascii_lowercase().as_str() {
        "job" | "jobs" | "jobid" => {
            let targets = match names[..] {
                [] => vec![],
                ref names => targets(names)?,
            };
            let details = common::details(true, targets.clone()).map_err(|text| {
                match text.starts_with("there is no job") {
                    true => "Invalid job id specified".to_owned(),
                    false => text,
                }
            })?;
            // Without a number: those that squeue shows.
            let details = details
                .iter()
                .filter(|detail| !targets.is_empty() || detail.row.ended.is_none());
            let records: Vec<Vec<String>> = details
                .map(|detail| job(&View::new(detail, &machine)))
                .collect();
            if records.is_empty() {
                print("No jobs in the system\n")?;
                return Ok(0);
            }
            records
        }
        "node" | "nodes" => {
            let (hosts, queues) = (machine::hosts(&machine), machine::queues(&machine));
            let names = hostlist::expanded(&names.join(","))?;
            missing = absent("Node", &names, |name| {
                hosts.iter().any(|own| own.name == name)
            });
            (hosts.iter().filter(|own| is_asked(&names, &own.name)))
                .map(|host| node(host, &queues))
                .collect()
        }
        "partition" | "partitions" => {
            let (hosts, queues) = (machine::hosts(&machine), machine::queues(&machine));
            let names: Vec<String> = names
                .iter()
                .flat_map(|list| list.split(','))
                .map(str::to_owned)
                .collect();
            missing = absent("Partition", &names, |name| {
                queues.iter().any(|own| own.name == name)
            });
            (queues.iter().filter(|own| is_asked(&names, &own.name)))
                .map(|queue| partition(queue, &hosts))
                .collect()
        }
        "config" | "conf" => vec![config(&machine)],
        other => {
            return Err(format!(
                "show {other} is not supported; those that are: job, node, partition, config, hostnames"
            ));
        }
    };
    let text: String = records
        .iter()
        .map(|lines| match is_one_line {
            true => lines.join(" ") + "\n",
            false => lines.join("\n   ") + "\n\n",
        })
        .collect();
    print(&text)?;
    missing.map_or(Ok(0), Err)
}

fn is_asked(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|own| own == name)
}

/// What is said of names that there are not.
fn absent(what: &str, names: &[String], is_there: impl Fn(&str) -> bool) -> Option<String> {
    let absent: Vec<&str> = (names.iter().map(String::as_str))
        .filter(|name| !is_there(name))
        .collect();
    (!absent.is_empty()).then(|| format!("{what} {} not found", absent.join(",")))
}

fn job(view: &View<'_>) -> Vec<String> {
    let (detail, row) = (view.detail, &view.detail.row);
    let value = |name: &str| view.value(name).unwrap_or_default();
    let or_null = |text: String| {
        if text.is_empty() {
            NOTHING.to_owned()
        } else {
            text
        }
    };
    let time = |at: Option<u64>| at.map_or_else(|| "Unknown".into(), date);
    let uid = row.uid;
    let array = detail
        .array
        .map(|(array, _)| format!("ArrayJobId={array} ArrayTaskId={} ", value("arraytaskid")));
    let clock = |seconds: u64| super::fields::clock(seconds);
    let size = &detail.wishes.size;
    vec![
        format!(
            "JobId={} {}JobName={}",
            row.id,
            array.unwrap_or_default(),
            row.name
        ),
        format!(
            "UserId={0}({uid}) GroupId={0}({uid}) MCS_label=N/A",
            detail.user
        ),
        format!(
            "Priority={} Nice=0 Account={} QOS=normal",
            detail.priority,
            or_null(value("account"))
        ),
        format!(
            "JobState={} Reason={} Dependency={}",
            state(row.phase).0,
            reason(detail),
            value("dependency")
        ),
        format!(
            "Requeue={} Restarts={} BatchFlag={} Reboot=0 ExitCode={}",
            value("requeue"),
            row.runs,
            u8::from(detail.is_script),
            exit(row.phase)
        ),
        format!(
            "RunTime={} TimeLimit={} TimeMin=N/A",
            clock(view.run_s()),
            row.limit_s.map_or_else(|| "UNLIMITED".into(), clock)
        ),
        format!(
            "SubmitTime={} EligibleTime={}",
            date(row.submitted),
            date(row.submitted)
        ),
        format!("AccrueTime={}", date(row.submitted)),
        format!(
            "StartTime={} EndTime={} Deadline=N/A",
            time(view.start()),
            time(view.end())
        ),
        format!("Partition={} AllocNode:Sid={}:0", row.partition, view.host),
        "ReqNodeList=(null) ExcNodeList=(null)".into(),
        format!("NodeList={}", or_null(view.nodes())),
        format!("BatchHost={}", or_null(view.batch_host())),
        format!(
            "NumNodes={} NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:0:*:*",
            node_count(detail),
            row.slots,
            size.tasks(),
            size.cpus_per_task.unwrap_or(1)
        ),
        format!("TRES={}", value("tres")),
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*".into(),
        format!(
            "MinCPUsNode=1 MinMemoryNode={} MinTmpDiskNode=0",
            view.memory_asked()
        ),
        "Features=(null) DelayBoot=00:00:00".into(),
        format!(
            "OverSubscribe={} Contiguous=0 Licenses=(null) Network=(null)",
            value("oversubscribe")
        ),
        format!("Command={}", or_null(view.command())),
        format!("WorkDir={}", value("workdir")),
        format!("Comment={}", or_null(value("comment"))),
        format!("StdErr={}", value("stderr")),
        format!("StdIn={}", value("stdin")),
        format!("StdOut={}", value("stdout")),
    ]
}

fn config(machine: &Machine) -> Vec<String> {
    vec![
        "Configuration data:".into(),
        format!("ClusterName             = {}", machine.host),
        format!("SlurmctldHost[0]        = {}", machine.host),
        "SLURM_VERSION           = 23.11.0".into(),
        "MaxArraySize            = 100001".into(),
        "SchedulerType           = sched/backfill".into(),
        "MailProg                = sendmail".into(),
    ]
}

/// `update JobId=12 TimeLimit=30 ...`
fn update(items: &[&str]) -> Done {
    let mut jobs = Vec::new();
    let mut change = Change::default();
    let mut is_held = None;
    for item in items {
        let (name, value) = item
            .split_once('=')
            .ok_or_else(|| format!("'{item}' is no setting such as TimeLimit=30"))?;
        match name.to_ascii_lowercase().as_str() {
            "jobid" | "job" => jobs.extend(targets(&[value])?),
            "jobname" | "name" => change.name = Some(value.to_owned()),
            "timelimit" => change.limit_s = Some(limit(value, &jobs)?),
            // Slurm holds a job by this priority.
            "priority" if value == "0" => is_held = Some(true),
            "priority" => change.priority = Some(number(item, value)?),
            "nice" => change.priority = Some(-number(item, value)?),
            "account" => change.account = Some(value.to_owned()),
            "comment" | "qos" => {}
            _ => {
                return Err(format!(
                    "{item} is not supported; what can be changed: JobName, TimeLimit, Priority, Nice, Account"
                ));
            }
        }
    }
    if jobs.is_empty() {
        return Err("which job? write update JobId=12 TimeLimit=30".into());
    }
    if let Some(is_held) = is_held {
        let jobs = jobs.clone();
        common::order(&Request::Hold { jobs, is_held })?;
    }
    if change != Change::default() {
        common::order(&Request::Change { jobs, change })?;
    }
    Ok(0)
}

fn number(item: &str, value: &str) -> Result<i64, String> {
    value
        .parse()
        .map_err(|_| format!("{item}: expected a whole number"))
}

/// A time limit, or one that is longer or shorter than before by `+30` or `-30`.
fn limit(value: &str, jobs: &[Target]) -> Result<Option<u64>, String> {
    let Some(more) = value.strip_prefix(['+', '-']) else {
        return duration(value, false);
    };
    let by = duration(more, false)?.unwrap_or(0);
    let details = common::details(true, jobs.to_vec())?;
    let now = details
        .iter()
        .find(|detail| detail.row.phase == Phase::Waiting)
        .and_then(|detail| detail.row.limit_s)
        .ok_or("TimeLimit with + or -: the job does not wait, or has no time limit")?;
    Ok(Some(if value.starts_with('+') {
        now.saturating_add(by)
    } else {
        now.saturating_sub(by).max(1)
    }))
}
