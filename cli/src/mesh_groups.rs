//! The ranks of a job in lines: those that do the same share one; sorted, and only those that are
//! asked for.

use margay_job_observe::mesh::{JobView, RankView, State};
use margay_job_observe::waits::rank_ranges;

/// In which order lines stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// By rank.
    #[default]
    Rank,
    /// By what they do.
    State,
    /// The busiest first.
    Cpu,
    /// Those that have waited longest first.
    Wait,
    /// The largest groups first.
    Size,
}

impl Sort {
    /// The order that comes after this one.
    #[must_use]
    pub fn next(self) -> Sort {
        match self {
            Sort::Rank => Sort::State,
            Sort::State => Sort::Cpu,
            Sort::Cpu => Sort::Wait,
            Sort::Wait => Sort::Size,
            Sort::Size => Sort::Rank,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sort::Rank => "rank",
            Sort::State => "state",
            Sort::Cpu => "cpu",
            Sort::Wait => "wait",
            Sort::Size => "size",
        }
    }
}

/// What of a job is shown, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Ranks that do the same share a line.
    pub is_grouped: bool,
    pub sort: Sort,
    /// Ranks (`0-3,8`), or a piece of what they do; empty for all.
    pub filter: String,
}

/// Ranks that share a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Ascending.
    pub ranks: Vec<u32>,
    pub state: State,
    /// What they do: `waiting in MPI_Recv for rank 1, tag 5`.
    pub text: String,
    /// For how long the first of them has waited, in seconds.
    pub since_s: Option<f64>,
    /// What they use of a core each, in percent.
    pub cpu_percent: f64,
    /// One of them can never go on.
    pub is_stuck: bool,
}

/// Returns the lines of a job.
#[must_use]
pub fn groups(job: &JobView, choice: &Choice) -> Vec<Group> {
    let mut groups: Vec<(Key, Group)> = Vec::new();
    let wanted = ranks_of(&choice.filter);
    let word = choice.filter.to_lowercase();
    for rank in &job.rank {
        let text = doing(rank);
        let is_wanted = match &wanted {
            Some(ranges) => ranges
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&rank.rank)),
            None => text.to_lowercase().contains(&word),
        };
        if !is_wanted {
            continue;
        }
        let key = Key::of(rank);
        let same = groups
            .iter_mut()
            .find(|(other, _)| choice.is_grouped && *other == key);
        match same {
            Some((_, group)) => add(group, rank, text),
            None => groups.push((key, of_one(job, rank, text))),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    for group in &mut groups {
        group.cpu_percent /= group.ranks.len() as f64;
        group.is_stuck = group.ranks.iter().any(|rank| is_stuck(job, *rank));
    }
    // One order of numbers: each instance of a sort has its own code.
    let key = |group: &Group| match choice.sort {
        Sort::Rank => 0.0,
        Sort::State => f64::from(group.state as u8),
        Sort::Cpu => -group.cpu_percent,
        Sort::Wait => -group.since_s.unwrap_or(-1.0),
        Sort::Size => -(group.ranks.len() as f64),
    };
    groups.sort_by(|a, b| key(a).total_cmp(&key(b)));
    groups
}

/// Whether a rank waits in a circle of ranks.
#[must_use]
pub fn is_stuck(job: &JobView, rank: u32) -> bool {
    job.deadlocks.iter().any(|circle| circle.contains(&rank))
}

/// What ranks must have in common to share a line: not for whom they wait.
#[derive(PartialEq)]
struct Key(State, String, Option<(&'static str, Option<i32>)>);

impl Key {
    fn of(rank: &RankView) -> Key {
        let waits = rank.waiting.as_ref().map(|wait| (wait.kind, wait.tag));
        Key(rank.state, rank.call.clone(), waits)
    }
}

fn of_one(job: &JobView, rank: &RankView, text: String) -> Group {
    Group {
        ranks: vec![rank.rank],
        state: rank.state,
        text,
        since_s: rank.waiting.as_ref().map(|wait| wait.since_s),
        cpu_percent: rank.cpu_percent,
        is_stuck: is_stuck(job, rank.rank),
    }
}

fn add(group: &mut Group, rank: &RankView, text: String) {
    group.ranks.push(rank.rank);
    group.cpu_percent += rank.cpu_percent;
    let since = rank.waiting.as_ref().map(|wait| wait.since_s);
    group.since_s = [group.since_s, since]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    if group.text != text {
        group.text = format!("waiting in {}, each for another rank", rank.call);
    }
}

/// What a rank does, in words and without times.
#[must_use]
pub fn doing(rank: &RankView) -> String {
    let after_call = |state: &str| match rank.call.as_str() {
        "" => state.to_owned(),
        call => format!("{state}, last call {call}"),
    };
    match (rank.state, &rank.waiting) {
        (State::Waiting, Some(wait)) => format!("waiting in {}", wait.text),
        (State::Waiting, None) => "waiting".into(),
        (State::Starting, _) => "starting".into(),
        (State::Computing, _) => after_call("computing"),
        (State::Outside, _) => after_call("outside MPI"),
        (State::Stopped, _) => after_call("stopped"),
        (State::Finished, _) => "finished".into(),
        (State::Failed, _) => after_call("died"),
    }
}

/// The ranks that a filter names; None for a word.
fn ranks_of(filter: &str) -> Option<Vec<(u32, u32)>> {
    let part = |part: &str| {
        let (from, to) = part
            .trim()
            .split_once('-')
            .unwrap_or((part.trim(), part.trim()));
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    };
    filter.split(',').map(part).collect()
}

/// The ranks of a group, as short as there is room for.
#[must_use]
pub fn ranks_text(ranks: &[u32], room: usize) -> String {
    let all = rank_ranges(ranks);
    if all.chars().count() <= room {
        return all;
    }
    let number = format!(" ({})", ranks.len());
    let room = room.saturating_sub(number.len() + 1);
    let end = all[..room.min(all.len())].rfind(", ").unwrap_or(0);
    format!("{}…{number}", &all[..end])
}

/// The states with the numbers of ranks in them: `12 computing, 4 waiting`.
#[must_use]
pub fn summary(job: &JobView) -> String {
    let count = |state: State| job.rank.iter().filter(|rank| rank.state == state).count();
    let parts = [
        (State::Starting, "starting"),
        (State::Computing, "computing"),
        (State::Outside, "outside MPI"),
        (State::Stopped, "stopped"),
        (State::Waiting, "waiting"),
        (State::Finished, "finished"),
        (State::Failed, "died"),
    ];
    let parts = parts.map(|(state, name)| (count(state), name));
    let parts: Vec<String> = (parts.iter().filter(|(count, _)| *count > 0))
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use margay_job_observe::mesh::WaitView;

    /// A rank that computes, or waits for another one.
    pub(crate) fn rank(rank: u32, peer: Option<u32>) -> RankView {
        RankView {
            rank,
            host: None,
            pid: 100 + rank,
            bound_core: None,
            last_core: Some(0),
            state: if peer.is_some() {
                State::Waiting
            } else {
                State::Computing
            },
            call: "MPI_Recv".into(),
            waiting: peer.map(|peer| WaitView {
                kind: "receive",
                rank: Some(peer),
                tag: Some(5),
                context: 0,
                since_s: f64::from(rank),
                text: format!("MPI_Recv for rank {peer}, tag 5"),
                thread: 100 + rank,
            }),
            further_waits: vec![],
            cpu_s: 0.0,
            faults: 0,
            disk_faults: 0,
            cpu_percent: f64::from(rank * 10),
            threads: None,
        }
    }

    pub(crate) fn job(rank: Vec<RankView>) -> JobView {
        JobView {
            job: 77,
            command: "a.out".into(),
            account: None,
            ranks: rank.len() as u32,
            cores: 4,
            running_s: 5.0,
            findings: vec![],
            deadlocks: vec![],
            analysis: margay_job_observe::waits::Analysis::default(),
            rank,
            is_unsettled: false,
            unsettled_since: None,
        }
    }

    #[test]
    fn ranks_that_do_the_same_share_a_line_and_lines_are_sorted() {
        let mut job = job((0..6).map(|r| rank(r, (r != 2).then_some(2))).collect());
        job.deadlocks = vec![vec![4, 5]];
        let lines = |is_grouped, sort, filter: &str| -> Vec<(Vec<u32>, String)> {
            let filter = filter.into();
            let choice = Choice {
                is_grouped,
                sort,
                filter,
            };
            let groups = groups(&job, &choice).into_iter();
            groups.map(|g| (g.ranks, g.text)).collect()
        };
        let waiting = "waiting in MPI_Recv for rank 2, tag 5".to_owned();
        let computing = "computing, last call MPI_Recv".to_owned();
        assert_eq!(
            lines(true, Sort::Rank, ""),
            [
                (vec![0, 1, 3, 4, 5], waiting.clone()),
                (vec![2], computing.clone())
            ]
        );
        assert_eq!(lines(true, Sort::State, "")[0].1, computing);
        let first = |sort, filter: &str| lines(false, sort, filter)[0].0[0];
        assert_eq!(first(Sort::Cpu, ""), 5);
        assert_eq!(first(Sort::Wait, "0-3"), 3);
        assert_eq!(lines(false, Sort::Rank, "1, 3-4,9").len(), 3);
        assert_eq!(lines(false, Sort::Rank, "COMPUT"), [(vec![2], computing)]);
        assert!(lines(true, Sort::Size, "MPI_Send").is_empty());
        let group = &groups(
            &job,
            &Choice {
                is_grouped: true,
                ..Choice::default()
            },
        )[0];
        assert_eq!((group.since_s, group.cpu_percent), (Some(5.0), 26.0));
        assert!(group.is_stuck);
        assert_eq!(summary(&job), "1 computing, 5 waiting");
    }

    #[test]
    fn who_waits_for_others_each_share_a_line_too() {
        let job = job(vec![rank(0, Some(1)), rank(1, Some(2))]);
        let choice = Choice {
            is_grouped: true,
            ..Choice::default()
        };
        let groups = groups(&job, &choice);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].text, "waiting in MPI_Recv, each for another rank");
    }

    #[test]
    fn many_ranks_are_named_as_far_as_there_is_room() {
        assert_eq!(ranks_text(&[0, 1, 2, 7], 12), "0-2, 7");
        assert_eq!(ranks_text(&[0, 2, 4, 6, 8, 10], 12), "0, 2… (6)");
        assert_eq!(ranks_text(&[1000, 1002], 8), "… (2)");
    }
}
