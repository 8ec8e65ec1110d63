//! What the members of a rank's teams do, as `margay why` shows it: those that do the same at the
//! same place share a line, and ranks whose teams do the same as well.

use std::fs;

use margay_job_stacks::Frame;
use margay_net_platform::Peers;
use serde::Serialize;

use crate::places::program_of;
use crate::teams::{self, MemberState, MemberView, TeamView};
use crate::waits::rank_ranges;

/// The teams of OpenMP and the tasks of IML of ranks that do the same. The field names are those of
/// `margay why --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankTeams {
    pub ranks: Vec<u32>,
    /// Outer teams before those inside of them.
    pub teams: Vec<TeamMembers>,
    /// What the stacks of IML's threads do.
    pub iml: Vec<Members>,
}

/// A team.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TeamMembers {
    /// Its number, from 1 on.
    pub team: u32,
    /// The team and the member that encountered its region; none for an outermost team.
    pub parent: Option<(u32, u32)>,
    pub size: u32,
    /// The region's function.
    pub function: String,
    pub members: Vec<Members>,
}

/// Members of a team that do the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Members {
    pub members: Vec<u32>,
    pub state: MemberState,
    /// What they wait for; empty if for nothing that the library knows of.
    pub waits_for: &'static str,
    /// Where they are in the program: the file as the compiler was given it, and the line.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// In words: `at mesh.c:88 in smooth()`; empty when it is not known.
    pub text: String,
}

/// Reads the teams of all ranks of this host.
#[must_use]
pub fn of_ranks(peers: &dyn Peers) -> Vec<RankTeams> {
    let mut found: Vec<RankTeams> = Vec::new();
    for rank in 0..peers.size() {
        let pid = peers.identity(rank).pid;
        if pid == 0 || peers.has_exited(rank) || !has_library(pid) {
            continue;
        }
        // Ranks without threads of the library, or that cannot be read, have nothing to show.
        let view = teams::look_with_places(program_of(pid));
        let Ok(view) = view else {
            continue;
        };
        let teams: Vec<TeamMembers> = view.teams.iter().map(members).collect();
        let iml = alike(&teams::of_iml(program_of(pid)));
        if teams.is_empty() && iml.is_empty() {
            continue;
        }
        match (found.iter_mut()).find(|of| of.teams == teams && of.iml == iml) {
            Some(same) => same.ranks.push(rank),
            None => found.push(RankTeams {
                ranks: vec![rank],
                teams,
                iml,
            }),
        }
    }
    found
}

/// Whether a process has mapped a library of OpenMP or IML: far sooner known than whether that is
/// Margay's and has teams.
fn has_library(pid: u32) -> bool {
    const NAMES: [&str; 4] = ["/libgomp.", "/libomp.", "/libiomp5.", "/libiml."];
    let maps = fs::read_to_string(format!("/proc/{}/maps", program_of(pid))).unwrap_or_default();
    NAMES.iter().any(|name| maps.contains(name))
}

/// Those that do the same together.
fn alike(all: &[MemberView]) -> Vec<Members> {
    let mut found: Vec<Members> = Vec::new();
    for member in all {
        let text = member
            .at
            .as_ref()
            .map_or_else(String::new, Frame::to_string);
        let same = |of: &&mut Members| {
            of.state == member.state && of.waits_for == member.waits_for && of.text == text
        };
        match found.iter_mut().find(same) {
            Some(same) => same.members.push(member.member),
            None => found.push(new(member, text)),
        }
    }
    found
}

fn members(team: &TeamView) -> TeamMembers {
    TeamMembers {
        team: team.team,
        parent: team.parent,
        size: team.size,
        function: team.function.clone(),
        members: alike(&team.member),
    }
}

fn new(member: &MemberView, text: String) -> Members {
    let at = member.at.as_ref();
    Members {
        members: vec![member.member],
        state: member.state,
        waits_for: member.waits_for,
        file: at.and_then(|at| at.file.clone()),
        line: at.and_then(|at| at.line),
        text,
    }
}

impl RankTeams {
    /// In words, a line for each team and one for members that do the same.
    pub fn lines(&self) -> Vec<String> {
        let many = if self.ranks.len() == 1 { "" } else { "s" };
        let ranks = rank_ranges(&self.ranks);
        let mut lines = Vec::new();
        for team in &self.teams {
            let within = team.parent.map_or_else(String::new, |(team, member)| {
                format!(" in member {team}.{member}")
            });
            lines.push(format!(
                "OpenMP in rank{many} {ranks}: team {}{within}, {} members of {}",
                team.team, team.size, team.function
            ));
            lines.extend(team.members.iter().map(|of| of.line("member")));
        }
        if !self.iml.is_empty() {
            lines.push(format!("IML in rank{many} {ranks}:"));
            lines.extend(self.iml.iter().map(|of| of.line("task")));
        }
        lines
    }
}

impl Members {
    fn line(&self, what: &str) -> String {
        let s = if self.members.len() == 1 { "" } else { "s" };
        // The words of `margay threads`.
        let does = match (self.state, self.waits_for) {
            (MemberState::Running, "") => "runs".into(),
            (MemberState::Running, what) => format!("spins: {what}"),
            (MemberState::Sleeping | MemberState::Suspended, what) if !what.is_empty() => {
                format!("waits: {what}")
            }
            (MemberState::Sleeping, _) => "waits in the kernel".into(),
            (MemberState::Suspended, _) => "waits for its turn".into(),
            // Of IML: it runs others below the call.
            (MemberState::Inside, call) if !call.is_empty() => format!("in {call}"),
            (MemberState::Inside, _) => "runs another member or team".into(),
            (MemberState::NotBegun, _) => "not begun".into(),
            (MemberState::Over, _) => String::from("over"),
        };
        let at = match self.text.as_str() {
            "" => String::new(),
            text => format!(" {text}"),
        };
        format!("    {what}{s} {}: {does}{at}", rank_ranges(&self.members))
    }
}
