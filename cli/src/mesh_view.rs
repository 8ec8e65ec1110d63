//! `margay mesh`: jobs, and what their ranks do.

use margay_job_observe::mesh::{JobView, Mesh, RankView, State};

use crate::live::{Line, View, duration, job_size, job_title, of_each, plain};
use crate::threads_view;

/// Before a rank's teams.
const BELOW_RANK: &str = "      ";

impl View for Mesh {
    type Job = JobView;

    fn look(&mut self) -> Vec<JobView> {
        Mesh::look(self)
    }

    fn id(job: &JobView) -> u64 {
        job.job
    }

    fn is_unsettled(job: &JobView) -> bool {
        job.is_unsettled
    }

    fn lines(jobs: &[JobView], _is_live: bool) -> Vec<Line> {
        of_each(jobs, |job| table(job).into_iter().map(plain).collect())
    }
}

/// Returns a job as lines of text.
fn table(job: &JobView) -> Vec<String> {
    let mut lines = vec![
        job_title(job.job, &job.command),
        job_size(job.ranks, job.cores, job.running_s),
    ];
    lines.extend(job.findings.iter().cloned());
    // Of a job on several hosts, with a column for these.
    let hosts = job.rank.iter().filter_map(|rank| rank.host.as_deref());
    let width = hosts.map(|host| host.chars().count().max(4)).max();
    let on_host = |host: &str| width.map_or_else(String::new, |width| format!(" {host:<width$}"));
    lines.push(format!(
        "{:>5}{} {:>8} {:>5} {:>6}  {}",
        "RANK",
        on_host("HOST"),
        "PID",
        "CORE",
        "CPU%",
        "STATE"
    ));
    for rank in &job.rank {
        lines.push(rank_line(
            rank,
            &on_host(rank.host.as_deref().unwrap_or("")),
        ));
        let teams = rank.threads.iter().flat_map(threads_view::team_text);
        lines.extend(teams.map(|line| format!("{BELOW_RANK}{line}")));
    }
    lines
}

fn rank_line(rank: &RankView, host: &str) -> String {
    let core = match (rank.bound_core, rank.last_core) {
        (Some(core), _) => core.to_string(),
        (None, Some(core)) => format!("({core})"),
        (None, None) => "-".into(),
    };
    let after_call = |state: &str| match rank.call.as_str() {
        "" => state.to_owned(),
        call => format!("{state}, last call {call}"),
    };
    let state = match (rank.state, &rank.waiting) {
        (State::Waiting, Some(w)) => format!("waiting in {} for {}", w.text, duration(w.since_s)),
        (State::Waiting, None) => "waiting".into(),
        (State::Starting, _) => "starting".into(),
        (State::Computing, _) => after_call("computing"),
        (State::Outside, _) => after_call("outside MPI"),
        (State::Stopped, _) => after_call("stopped"),
        (State::Finished, _) => "finished".into(),
    };
    format!(
        "{:>5}{host} {:>8} {:>5} {:>6.1}  {state}",
        rank.rank, rank.pid, core, rank.cpu_percent
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_job_observe::mesh::WaitView;
    use margay_job_observe::teams::{MemberState, MemberView, ProcessView, TeamView};

    #[test]
    fn the_table_names_job_ranks_and_findings() {
        let rank = |rank, state, waiting| RankView {
            rank,
            host: None,
            pid: 100 + rank,
            bound_core: (rank == 0).then_some(3),
            last_core: Some(1),
            state,
            call: "MPI_Recv".into(),
            waiting,
            cpu_s: 1.0,
            cpu_percent: 99.5,
            threads: (rank == 1).then(|| ProcessView {
                pid: 101,
                command: "a.out".into(),
                threads: 1,
                members: 1,
                running: 1,
                teams: vec![TeamView {
                    team: 1,
                    parent: None,
                    level: 1,
                    size: 1,
                    function: "main._omp_fn.0".into(),
                    running_s: None,
                    member: vec![MemberView {
                        member: 0,
                        state: MemberState::Running,
                        waits_for: "",
                        thread: Some(101),
                        core: Some(1),
                    }],
                }],
            }),
        };
        let waiting = WaitView {
            kind: "receive",
            rank: Some(1),
            tag: None,
            context: 0,
            since_s: 75.0,
            text: "MPI_Recv for rank 1".into(),
        };
        let job = JobView {
            job: 77,
            command: "a.out\x1b[2J".into(),
            ranks: 2,
            cores: 4,
            running_s: 3700.0,
            findings: vec!["deadlock: 0 → 0".into()],
            deadlocks: vec![vec![0]],
            rank: vec![
                rank(0, State::Waiting, Some(waiting)),
                rank(1, State::Computing, None),
                rank(2, State::Outside, None),
            ],
            is_unsettled: false,
            unsettled_since: None,
        };
        let lines = table(&job);
        assert_eq!(lines[0], "job 77: a.out [2J");
        assert_eq!(lines[1], "2 ranks on 4 cores, running for 1:01:40 h");
        assert_eq!(lines[2], "deadlock: 0 → 0");
        assert_eq!(
            lines[4],
            "    0      100     3   99.5  waiting in MPI_Recv for rank 1 for 1:15 min"
        );
        assert_eq!(
            lines[5],
            "    1      101   (1)   99.5  computing, last call MPI_Recv"
        );
        assert_eq!(
            lines[6..10],
            [
                "      1 of 1 member run, in 1 team on 1 thread",
                "      team 1: 1 member of main._omp_fn.0",
                "        STATE                       THREAD CORE  MEMBERS",
                "        runs                           101    1  0",
            ]
        );
        assert!(lines[10].ends_with("outside MPI, last call MPI_Recv"));
    }
}
