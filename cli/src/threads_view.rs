//! `margay threads`: the teams of a process.

use margay_core_topology::list_text;
use margay_job_observe::teams::{self, MemberState, MemberView, ProcessView, TeamView};

use crate::live::{print, printable};
use crate::options::ThreadsOptions;

/// Columns of a line.
const WIDTH: usize = 80;

/// Shows a process once.
///
/// # Errors
/// Why there is nothing to show, and the remedy.
pub fn show(options: &ThreadsOptions) -> Result<(), String> {
    let view = teams::look(options.pid)?;
    let text = if options.json {
        serde_json::to_string(&view).map_err(|error| error.to_string())? + "\n"
    } else {
        lines(&view).join("\n") + "\n"
    };
    print(&text)
}

/// Returns a process as lines of text.
fn lines(view: &ProcessView) -> Vec<String> {
    let mut lines = vec![cut(
        &format!("process {}: {}", view.pid, printable(&view.command)),
        WIDTH,
    )];
    if view.teams.is_empty() {
        lines.push("no team of OpenMP runs: the program is outside of parallel regions".into());
        return lines;
    }
    lines.extend(team_text(view));
    lines
}

/// Returns the teams of a process as lines of text, under a line that counts them.
pub fn team_text(view: &ProcessView) -> Vec<String> {
    let mut lines = vec![format!(
        "{} of {} run, in {} on {}",
        view.running,
        plural(view.members, "member"),
        plural(view.teams.len() as u32, "team"),
        plural(view.threads, "thread")
    )];
    for team in &view.teams {
        team_lines(team, view, &mut lines);
    }
    lines
}

fn plural(count: u32, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

fn team_lines(team: &TeamView, view: &ProcessView, lines: &mut Vec<String>) {
    // As deep as its level, as long as there is room.
    let indent = " ".repeat((team.level.saturating_sub(1) as usize * 2).min(16));
    let within = team.parent.map_or_else(String::new, |(team, member)| {
        format!(" in member {team}.{member}")
    });
    let since = team
        .running_s
        .map_or_else(String::new, |seconds| format!(", for {seconds:.1} s"));
    let members = plural(team.size, "member");
    let head = format!("team {}{within}: {members} of ", team.team);
    let room = WIDTH.saturating_sub(indent.len() + head.len() + since.len());
    lines.push(format!(
        "{indent}{head}{}{since}",
        cut(&printable(&team.function), room)
    ));
    lines.push(format!(
        "{indent}  {:<26} {:>7} {:>4}  MEMBERS",
        "STATE", "THREAD", "CORE"
    ));
    let mut groups: Vec<(String, &MemberView, Vec<u32>)> = Vec::new();
    for member in &team.member {
        let state = state_text(team, member, view);
        let same = groups.iter_mut().find(|(text, first, _)| {
            *text == state && first.thread == member.thread && first.core == member.core
        });
        match same {
            Some((_, _, members)) => members.push(member.member),
            None => groups.push((state, member, vec![member.member])),
        }
    }
    for (state, first, members) in groups {
        let number =
            |number: Option<u32>| number.map_or_else(|| "-".into(), |number| number.to_string());
        let begin = format!(
            "{indent}  {state:<26} {:>7} {:>4}  ",
            number(first.thread),
            number(first.core)
        );
        let indented = " ".repeat(begin.len());
        let ranges = list_text(&members);
        let ranges: Vec<&str> = ranges.split(',').collect();
        for (at, part) in wrapped(&ranges, WIDTH.saturating_sub(begin.len()))
            .into_iter()
            .enumerate()
        {
            lines.push(format!(
                "{}{part}",
                if at == 0 { &begin } else { &indented }
            ));
        }
    }
}

/// What a member does, in at most 26 columns.
fn state_text(team: &TeamView, member: &MemberView, view: &ProcessView) -> String {
    let waits = |otherwise: &str| match member.waits_for {
        "" => otherwise.to_owned(),
        what => format!("waits: {what}"),
    };
    match member.state {
        MemberState::NotBegun => "not begun".into(),
        MemberState::Over => "over".into(),
        MemberState::Suspended => waits("waits for its turn"),
        MemberState::Sleeping => waits("waits in the kernel"),
        MemberState::Running => match member.waits_for {
            "" => "runs".into(),
            what => format!("spins: {what}"),
        },
        MemberState::Inside => {
            let place = Some((team.team, member.member));
            let inner = view.teams.iter().find(|other| other.parent == place);
            inner.map_or_else(
                || "runs another member".into(),
                |inner| format!("in team {}", inner.team),
            )
        }
    }
}

/// Words with commas between them, in lines of at most `width` columns.
fn wrapped(words: &[&str], width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, word) in words.iter().enumerate() {
        let word = format!("{word}{}", if at + 1 < words.len() { "," } else { "" });
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + word.len() <= width => *line += &word,
            _ => lines.push(word),
        }
    }
    lines
}

/// A text in at most `width` columns.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(
        number: u32,
        state: MemberState,
        waits_for: &'static str,
        thread: Option<u32>,
    ) -> MemberView {
        MemberView {
            member: number,
            state,
            waits_for,
            thread,
            core: thread.map(|_| 1),
            at: None,
        }
    }

    fn team(number: u32, parent: Option<(u32, u32)>, member: Vec<MemberView>) -> TeamView {
        TeamView {
            team: number,
            parent,
            level: number,
            size: member.len() as u32,
            function: "main._omp_fn.0".into(),
            running_s: Some(1.25),
            member,
            address: 0,
        }
    }

    #[test]
    fn equal_members_share_a_line() {
        use MemberState::{Inside, NotBegun, Running, Suspended};
        let outer = vec![
            member(0, Inside, "", Some(100)),
            member(1, Suspended, "barrier", Some(101)),
            member(2, Suspended, "barrier", Some(101)),
            member(3, Running, "", Some(101)),
            member(4, Suspended, "barrier", Some(101)),
            member(5, NotBegun, "", None),
        ];
        let inner = vec![
            member(0, Running, "lock", Some(100)),
            member(1, Suspended, "", Some(101)),
        ];
        let view = ProcessView {
            pid: 100,
            command: "./a.out \u{1b}[2J".into(),
            threads: 2,
            members: 8,
            running: 2,
            teams: vec![team(1, None, outer), team(2, Some((1, 0)), inner)],
        };
        assert_eq!(
            lines(&view),
            [
                "process 100: ./a.out  [2J",
                "2 of 8 members run, in 2 teams on 2 threads",
                "team 1: 6 members of main._omp_fn.0, for 1.2 s",
                "  STATE                       THREAD CORE  MEMBERS",
                "  in team 2                      100    1  0",
                "  waits: barrier                 101    1  1-2,4",
                "  runs                           101    1  3",
                "  not begun                        -    -  5",
                "  team 2 in member 1.0: 2 members of main._omp_fn.0, for 1.2 s",
                "    STATE                       THREAD CORE  MEMBERS",
                "    spins: lock                    100    1  0",
                "    waits for its turn             101    1  1",
            ]
        );
    }

    #[test]
    fn long_lists_and_names_fit() {
        let members: Vec<MemberView> = (0..400)
            .map(|number| {
                let state = if number % 2 == 0 {
                    MemberState::Running
                } else {
                    MemberState::Suspended
                };
                member(number, state, "", Some(4_000_000))
            })
            .collect();
        let mut deep = team(1, None, members);
        deep.function = "a".repeat(300);
        deep.level = 30;
        let view = ProcessView {
            pid: 1,
            command: "b".repeat(300),
            threads: 1,
            members: 400,
            running: 200,
            teams: vec![deep],
        };
        for line in lines(&view) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn a_process_without_a_region_says_so() {
        let view = ProcessView {
            pid: 1,
            command: "a".into(),
            threads: 1,
            members: 0,
            running: 0,
            teams: Vec::new(),
        };
        assert!(lines(&view)[1].starts_with("no team of OpenMP runs"));
    }
}
