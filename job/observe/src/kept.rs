//! What the members of a rank's teams of OpenMP do, from memory of the rank that is still there
//! when it has crashed. Nothing is known of it but what they wait for and from which line.

use margay_core_record::{KEY, KeptMember, KeptTeam, Reader, TEAMS_KEY, kept_teams};
use margay_job_stacks::{Frame, Places};
use margay_net_platform::Peers;
use margay_sys_threads::inspect::Wait;

use crate::waits::rank_ranges;

/// Teams that are shown.
const MOST_TEAMS: usize = 8;

/// The files in which the rank calls, and where they are mapped.
struct Modules {
    mapped: Vec<(u64, String)>,
    places: Places,
}

impl Modules {
    fn of(peers: &dyn Peers, rank: u32) -> Option<Modules> {
        let words = peers.note(rank, KEY)?;
        let reader = Reader::of(&words).ok()?;
        let sites = (0..=u16::MAX).take(1 + reader.sites());
        let mut mapped: Vec<(u64, String)> = sites
            .filter_map(|number| reader.site(number))
            .filter(|site| site.module.starts_with('/'))
            .map(|site| (site.address.wrapping_sub(site.offset), site.module))
            .collect();
        mapped.sort_unstable();
        mapped.dedup();
        Some(Modules {
            mapped,
            places: Places::default(),
        })
    }

    /// The function that has an address.
    fn frame(&mut self, address: u64) -> Option<Frame> {
        let Modules { mapped, places } = self;
        let mut files = mapped.iter();
        files.find_map(|(base, path)| places.find_mapped(path, address.checked_sub(*base)?))
    }
}

/// Returns, in words, what the members of a rank's teams do or did when it crashed: a line for each
/// team and one for members that do the same. Nothing where there are no teams.
#[must_use]
pub fn lines(peers: &dyn Peers, rank: u32) -> Vec<String> {
    let teams = (peers.note(rank, TEAMS_KEY)).map_or_else(Vec::new, |note| kept_teams(&note));
    if teams.is_empty() {
        return Vec::new();
    }
    let mut modules = Modules::of(peers, rank);
    let mut frame = |address: u64| modules.as_mut()?.frame(address);
    let shown = teams.iter().take(MOST_TEAMS);
    let mut lines: Vec<String> = shown.flat_map(|t| of_team(t, rank, &mut frame)).collect();
    if teams.len() > MOST_TEAMS {
        lines.push(format!("and {} teams more", teams.len() - MOST_TEAMS));
    }
    lines
}

fn of_team(team: &KeptTeam, rank: u32, frame: &mut dyn FnMut(u64) -> Option<Frame>) -> Vec<String> {
    let region = frame(team.site).map_or_else(
        || "a region".to_owned(),
        |frame| format!("{} {}", frame.function_text(), frame.place_text()),
    );
    let mut groups: Vec<(String, Vec<u32>)> = Vec::new();
    for (number, member) in (0..).zip(&team.members) {
        let does = of_member(member, frame);
        match groups.iter_mut().find(|(other, _)| *other == does) {
            Some((_, members)) => members.push(number),
            None => groups.push((does, vec![number])),
        }
    }
    let line = |(does, members): &(String, Vec<u32>)| {
        let s = if members.len() == 1 { "" } else { "s" };
        format!("    member{s} {}: {does}", rank_ranges(members))
    };
    let count = team.members.len();
    let head = format!("OpenMP in rank {rank}: {count} members of {region}");
    [head].into_iter().chain(groups.iter().map(line)).collect()
}

/// The words are those of `margay threads`.
fn of_member(member: &KeptMember, frame: &mut dyn FnMut(u64) -> Option<Frame>) -> String {
    if !member.runs {
        return "not begun, or over".to_owned();
    }
    let what = Wait::NAMES.get(member.wait as usize).copied();
    let Some(what) = what.filter(|what| !what.is_empty()) else {
        return "runs".to_owned();
    };
    let has_place = [Wait::Barrier as u32, Wait::Lock as u32].contains(&member.wait);
    // The call is the instruction before.
    let at = (has_place && member.place != 0).then(|| frame(member.place - 1));
    match at.flatten() {
        Some(frame) => format!("waits: {what} {frame}"),
        None => format!("waits: {what}"),
    }
}
