//! `margay mesh`: jobs, and what their ranks do.

use margay_job_observe::mesh::{JobView, Mesh, RankView, State};

use crate::live::{Line, View, duration, job_size, job_title, of_each, plain, printable};
use crate::mesh_groups::{Choice, Group, doing, groups, ranks_text, summary};
use crate::threads_view;

/// Before a rank's teams.
const BELOW_RANK: &str = "      ";
/// Before the rest of a line that was too long.
const BELOW_LINE: &str = "        ";

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
        of_each(jobs, |job| {
            table(job, &Choice::default())
                .into_iter()
                .map(plain)
                .collect()
        })
    }
}

/// Returns a job as lines of text.
pub(crate) fn table(job: &JobView, choice: &Choice) -> Vec<String> {
    let mut lines = vec![
        job_title(job.job, &job.command),
        job_size(job.ranks, job.cores, job.running_s),
    ];
    let account = job.account.iter();
    lines.extend(account.map(|name| format!("account {}", printable(name))));
    lines.extend(job.findings.iter().cloned());
    let groups = groups(job, choice);
    if choice.is_grouped {
        lines.push(format!(
            "{:<20} {:>5} {:>9}  DOES",
            "RANKS", "CPU%", "WAITS"
        ));
        lines.extend(groups.iter().map(group_line));
        return lines;
    }
    lines.push(heading(job));
    for group in groups {
        let rank = &job.rank[group.ranks[0] as usize];
        lines.push(rank_line(rank, job));
        lines.extend(team_lines(rank));
    }
    lines
}

fn group_line(group: &Group) -> String {
    let does = group
        .text
        .strip_prefix("waiting in ")
        .unwrap_or(&group.text);
    format!(
        "{:<20} {:>5.1} {:>9}  {does}",
        ranks_text(&group.ranks, 20),
        group.cpu_percent,
        group.since_s.map_or_else(String::new, duration),
    )
}

/// A rank's teams of OpenMP, a line each.
pub(crate) fn team_lines(rank: &RankView) -> impl Iterator<Item = String> {
    let teams = rank.threads.iter().flat_map(threads_view::team_text);
    teams.map(|line| format!("{BELOW_RANK}{line}"))
}

/// A column for the hosts of a job on several.
fn on_host(job: &JobView, host: &str) -> String {
    let hosts = job.rank.iter().filter_map(|rank| rank.host.as_deref());
    let width = hosts.map(|host| host.chars().count().max(4)).max();
    width.map_or_else(String::new, |width| format!(" {host:<width$}"))
}

/// The line above the ranks of a job.
pub(crate) fn heading(job: &JobView) -> String {
    format!(
        "{:>5}{} {:>8} {:>5} {:>6}  {}",
        "RANK",
        on_host(job, "HOST"),
        "PID",
        "CORE",
        "CPU%",
        "STATE"
    )
}

/// A rank in a line.
pub(crate) fn rank_line(rank: &RankView, job: &JobView) -> String {
    let core = match (rank.bound_core, rank.last_core) {
        (Some(core), _) => core.to_string(),
        (None, Some(core)) => format!("({core})"),
        (None, None) => "-".into(),
    };
    let mut state = doing(rank);
    if let (State::Waiting, Some(wait)) = (rank.state, &rank.waiting) {
        state += &format!(" for {}", duration(wait.since_s));
    }
    let host = on_host(job, rank.host.as_deref().unwrap_or(""));
    format!(
        "{:>5}{host} {:>8} {:>5} {:>6.1}  {state}",
        rank.rank, rank.pid, core, rank.cpu_percent
    )
}

/// A line in pieces that fit, cut between words where that is possible.
pub(crate) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let width = width.max(BELOW_LINE.len() + 8);
    let mut rest: Vec<char> = line.chars().collect();
    let mut lines = Vec::new();
    while rest.len() > width {
        let space = rest[..=width].iter().rposition(|&c| c == ' ');
        let at = space.filter(|&at| at > BELOW_LINE.len()).unwrap_or(width);
        let behind = rest.split_off(at);
        lines.push(rest.into_iter().collect());
        let behind: String = behind.into_iter().collect();
        rest = format!("{BELOW_LINE}{}", behind.trim_start())
            .chars()
            .collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// Returns a job as sentences without columns and signs, for who has them read aloud.
pub(crate) fn sentences(job: &JobView, choice: &Choice) -> Vec<String> {
    let spoken = |text: &str| text.replace(" → ", ", then ");
    let size = job_size(job.ranks, job.cores, job.running_s);
    let command = printable(&job.command);
    let mut lines = vec![
        format!("Job {}, {command}: {size}.", job.job),
        format!("Ranks by state: {}.", summary(job)),
    ];
    let account = job.account.iter();
    lines.extend(account.map(|name| format!("Account: {}.", printable(name))));
    lines.extend(
        job.findings
            .iter()
            .map(|finding| format!("Found: {}.", spoken(finding))),
    );
    let choice = Choice {
        is_grouped: true,
        ..choice.clone()
    };
    for group in groups(job, &choice) {
        let ranks = ranks_text(&group.ranks, usize::MAX).replace('-', " to ");
        let (who, is) = match group.ranks.len() {
            1 => ("Rank", "is"),
            _ => ("Ranks", "are"),
        };
        let has = if is == "is" { "has" } else { "have" };
        let since = group
            .since_s
            .map_or_else(String::new, |s| format!(", for {}", duration(s)));
        let does = match group.state {
            State::Finished | State::Failed => format!("{has} {}", group.text),
            _ => format!("{is} {}", group.text),
        };
        let cpu = group.cpu_percent.round();
        let cpu = match group.state {
            state if state.is_over() => String::new(),
            _ => format!(", using {cpu} percent of a core"),
        };
        lines.push(format!("{who} {ranks} {does}{since}{cpu}."));
    }
    lines
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
            further_waits: vec![],
            cpu_s: 1.0,
            faults: 0,
            disk_faults: 0,
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
                        at: None,
                    }],
                    address: 0,
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
            thread: 100,
        };
        let job = JobView {
            job: 77,
            command: "a.out\x1b[2J".into(),
            account: None,
            ranks: 2,
            cores: 4,
            running_s: 3700.0,
            findings: vec!["deadlock: 0 → 0".into()],
            deadlocks: vec![vec![0]],
            analysis: margay_job_observe::waits::Analysis::default(),
            rank: vec![
                rank(0, State::Waiting, Some(waiting)),
                rank(1, State::Computing, None),
                rank(2, State::Outside, None),
            ],
            is_unsettled: false,
            unsettled_since: None,
        };
        let lines = table(&job, &Choice::default());
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

    #[test]
    fn ranks_are_read_aloud_as_sentences() {
        use crate::mesh_groups::tests::{job, rank};
        let mut job = job((0..4).map(|r| rank(r, (r > 0).then_some(0))).collect());
        job.findings = vec!["deadlock: 0 → 1 → 0".into()];
        assert_eq!(
            sentences(&job, &Choice::default()),
            [
                "Job 77, a.out: 4 ranks on 4 cores, running for 5.0 s.",
                "Ranks by state: 1 computing, 3 waiting.",
                "Found: deadlock: 0, then 1, then 0.",
                "Rank 0 is computing, last call MPI_Recv, using 0 percent of a core.",
                "Ranks 1 to 3 are waiting in MPI_Recv for rank 0, tag 5, for 3.0 s, using 20 percent of a core.",
            ]
        );
        let grouped = Choice {
            is_grouped: true,
            ..Choice::default()
        };
        assert_eq!(
            table(&job, &grouped)[3..],
            [
                "RANKS                 CPU%     WAITS  DOES",
                "0                      0.0            computing, last call MPI_Recv",
                "1-3                   20.0     3.0 s  MPI_Recv for rank 0, tag 5",
            ]
        );
    }

    #[test]
    fn long_lines_are_cut_between_words() {
        assert_eq!(wrapped("short", 20), ["short"]);
        assert_eq!(
            wrapped("waiting in MPI_Waitall for rank 1", 20),
            ["waiting in", "        MPI_Waitall", "        for rank 1"]
        );
        assert_eq!(
            wrapped(&"x".repeat(30), 20)[1],
            format!("{BELOW_LINE}{}", "x".repeat(10))
        );
    }
}
