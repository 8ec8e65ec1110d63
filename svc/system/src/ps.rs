//! `margay ps`: the processes of all jobs that were started here, on all hosts.

use std::ffi::OsString;
use std::time::Duration;

use margay_job_launch::report::host_name;
use margay_job_observe::mesh::{JobView, Mesh, RankView};
use margay_sys_os::descriptor::PollSet;

use crate::{Failed, print, usage};

/// The CPU percentage is that of this time.
const SAMPLE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(words: &[OsString]) -> Result<u8, Failed> {
    let mut is_json = false;
    let mut jobs: Vec<u64> = Vec::new();
    for word in words {
        let word = word.to_string_lossy();
        match word.as_ref() {
            "--json" => is_json = true,
            other => jobs.push(other.parse().map_err(|_| {
                usage(format!(
                    "ps: '{other}' is no number of a job; see margay ps --help"
                ))
            })?),
        }
    }
    let mut mesh = Mesh::default();
    mesh.look();
    // A set without descriptors: a pause.
    let _ = PollSet::default().wait(Some(SAMPLE));
    let mut found = mesh.look();
    if let Some(missing) = jobs
        .iter()
        .find(|&&job| found.iter().all(|own| own.job != job))
    {
        return Err(format!("ps: there is no job {missing} here").into());
    }
    found.retain(|job| jobs.is_empty() || jobs.contains(&job.job));
    let here = host_name();
    let processes = found
        .iter()
        .flat_map(|job| job.rank.iter().map(move |rank| (job, rank)));
    let lines: Vec<String> = match is_json {
        true => processes
            .map(|(job, rank)| json(job, rank, &here))
            .collect(),
        false => {
            let head = "     JOB  RANK HOST                 PID STATE       CPU%      TIME COMMAND"
                .to_owned();
            std::iter::once(head)
                .chain(processes.map(|(job, rank)| line(job, rank, &here)))
                .collect()
        }
    };
    let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
    print(&text).map(|()| 0)
}

fn state(rank: &RankView) -> String {
    // As the JSON of showmesh names it.
    let value = serde_json::to_value(rank.state).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn line(job: &JobView, rank: &RankView, here: &str) -> String {
    let host = rank.host.as_deref().unwrap_or(here);
    let seconds = rank.cpu_s as u64;
    let time = format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    let text = format!(
        "{:>8} {:>5} {host:<16} {:>7} {:<10} {:>5.1} {time:>9} {}",
        job.job,
        rank.rank,
        rank.pid,
        state(rank),
        rank.cpu_percent,
        job.command
    );
    text.trim_end().to_owned()
}

fn json(job: &JobView, rank: &RankView, here: &str) -> String {
    serde_json::json!({
        "job": job.job,
        "rank": rank.rank,
        "host": rank.host.as_deref().unwrap_or(here),
        "pid": rank.pid,
        "state": state(rank),
        "cpu_s": rank.cpu_s,
        "cpu_percent": rank.cpu_percent,
        "command": job.command,
    })
    .to_string()
}
