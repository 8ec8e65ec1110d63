//! What the members of OpenMP's teams do at the moment, in memory that survives the process.
//!
//! It is a further note of a rank, of lines of 16 words. After the header come the teams, each a
//! line and one for each of its members, in the order in which they were made; none is taken back.
//! The library of OpenMP writes the lines itself (`margay_sys_threads::inspect`).
//!
//! ```text
//! header   version, lines in use, the first word of the first line
//! team     what distinguishes the region, mostly its function; 0: none runs. Members
//! member   an address on its stack, 0: it does not run; what it waits for (32 bits); the address
//!          to which the program's call returns in which it waits
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use margay_core_registry::NoteKey;

/// The note.
pub const TEAMS_KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"team"));
/// Its version.
const VERSION: u64 = 1;
/// Words of the note: room for some 500 members.
pub const TEAMS_WORDS: usize = 8192;
/// Words of a line.
const LINE: usize = 16;
/// Where the first line is at the latest: behind the header, and aligned.
const HEADER: usize = 2 * LINE;

/// A team in whose region members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTeam {
    /// The address of the region's function, mostly.
    pub site: u64,
    pub members: Vec<KeptMember>,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptMember {
    /// It has begun and is not over.
    pub runs: bool,
    /// What it waits for: a number of `margay_sys_threads::inspect::Wait`.
    pub wait: u32,
    /// From where it has called for that, 0 where it is not known.
    pub place: u64,
}

/// Takes lines of a note for good, of `words` words together; none when there is no room.
pub fn take_lines(note: &[AtomicU64], words: usize) -> Option<&[AtomicU64]> {
    let lines = words.div_ceil(LINE) as u64;
    let [version, used, first, ..] = note else {
        return None;
    };
    // The first line is where lines of the processor's cache begin.
    let aligned = (note.as_ptr().addr() / 8).next_multiple_of(LINE) - note.as_ptr().addr() / 8;
    first.store((LINE + aligned) as u64, Relaxed);
    version.store(VERSION, Relaxed);
    let start = used.fetch_add(lines, Relaxed);
    let start = LINE + aligned + LINE * usize::try_from(start).ok()?;
    note.get(start..start + words)
}

/// Reads the teams of a note, whatever its words are.
#[must_use]
pub fn kept_teams(note: &[AtomicU64]) -> Vec<KeptTeam> {
    let word = |at: usize| note.get(at).map_or(0, |word| word.load(Acquire));
    let mut at = word(2) as usize;
    let mut teams = Vec::new();
    if word(0) != VERSION || !(LINE..HEADER).contains(&at) {
        return teams;
    }
    while at < note.len() {
        let (site, size) = (word(at), word(at + 1) as usize);
        let end = at.saturating_add(LINE.saturating_mul(size.saturating_add(1)));
        if size == 0 || end > note.len() {
            break;
        }
        let member = |line: usize| KeptMember {
            runs: word(line) != 0,
            wait: word(line + 1) as u32,
            place: word(line + 2),
        };
        if site != 0 {
            let members = (at + LINE..end).step_by(LINE).map(member).collect();
            teams.push(KeptTeam { site, members });
        }
        at = end;
    }
    teams
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn teams_are_read_as_they_were_written() {
        let note = note(400);
        assert_eq!(kept_teams(&note), []);
        let write = |size: usize, site: u64| {
            let lines = take_lines(&note, LINE * (1 + size)).unwrap();
            assert!((lines.as_ptr().addr() / 8).is_multiple_of(LINE));
            lines[0].store(site, Relaxed);
            lines[1].store(size as u64, Relaxed);
            let last = LINE * size;
            lines[last].store(1 << 40, Relaxed);
            lines[last + 1].store(3, Relaxed);
            lines[last + 2].store(0x77, Relaxed);
        };
        write(2, 0x1234);
        write(1, 0);
        write(1, 0x99);
        let idle = KeptMember {
            runs: false,
            wait: 0,
            place: 0,
        };
        let waits = KeptMember {
            runs: true,
            wait: 3,
            place: 0x77,
        };
        let team = |site, members: &[KeptMember]| KeptTeam {
            site,
            members: members.to_vec(),
        };
        let wanted = [team(0x1234, &[idle, waits]), team(0x99, &[waits])];
        assert_eq!(kept_teams(&note), wanted);
        assert!(take_lines(&note, LINE * 30).is_none());
    }

    #[test]
    fn a_note_that_is_written_over_is_read_all_the_same() {
        for seed in 1..if cfg!(miri) { 20 } else { 500_u64 } {
            let note = note(128);
            for (i, word) in (1..).zip(&note) {
                word.store(
                    (seed * i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (seed % 64),
                    Relaxed,
                );
            }
            note[0].store(VERSION, Relaxed);
            note[2].store(LINE as u64 + seed % 16, Relaxed);
            let members = kept_teams(&note)
                .iter()
                .map(|t| t.members.len())
                .sum::<usize>();
            assert!(members <= note.len() / LINE);
        }
    }
}
