//! Walks over all rows: rebuilding directories, mending what is damaged, and looking whether all is
//! well. A walk takes the rows of a file a few at a time, so that who writes to it waits little.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use margay_core_stripes::MOST_DIRECTORIES;

use crate::array::{Spot, UnitState, lock};
use crate::change::RowRef;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::{Body, ROOT, read};
use crate::state::Health;
use crate::store::{Progress, Store};

/// Rows that are looked at while the file is locked.
const ROWS_AT_ONCE: usize = 16;

/// How often the cursor of a rebuild is stored.
const CURSOR_EVERY: Duration = Duration::from_secs(2);

/// Longest path in a report, in bytes.
const MOST_PATH: usize = 64 << 10;

/// Most lines of a report.
const MOST_LINES: usize = 100;

/// Longest pause of a walk.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a walk has done since its last pause.
pub(crate) struct Pace {
    since: Instant,
    requests: u64,
}

impl Store {
    /// Rebuilds all directories that are in use and lack units.
    ///
    /// # Errors
    /// When somebody else walks, or units cannot be computed or written. What was rebuilt stays.
    pub fn rebuild(&self, is_over: &dyn Fn() -> bool) -> Result<()> {
        let Ok(_walking) = self.walking.try_lock() else {
            return Err(Fault::Refused);
        };
        self.sync()?;
        // Before the state: a directory that is replaced behind it is none of these.
        let takes: Vec<u64> = (0..MOST_DIRECTORIES).map(|n| self.array.takes(n)).collect();
        let state = self.state();
        let targets: Vec<(usize, (u64, u64))> = state
            .members
            .iter()
            .enumerate()
            .filter_map(|(n, member)| match member.health {
                Health::Rebuilding(ino, row) => Some((n, (ino, row))),
                _ => None,
            })
            .collect();
        let Some(start) = targets.iter().map(|(_, cursor)| *cursor).min() else {
            return Ok(());
        };
        self.begin("rebuild", start);
        let mut stored = Instant::now();
        let done = self.walk(start, is_over, &mut |ino, row, spot| {
            for (n, cursor) in &targets {
                if (ino, row) >= *cursor {
                    self.put_right(spot, *n)?;
                }
            }
            if stored.elapsed() > CURSOR_EVERY {
                stored = Instant::now();
                self.array.sync();
                for (n, _) in &targets {
                    self.array
                        .set_health(*n, takes[*n], Health::Rebuilding(ino, row));
                }
                self.array.write_state()?;
            }
            Ok(())
        });
        lock(&self.progress).is_running = false;
        if !done? {
            return Ok(());
        }
        if self.progress().lost > 0 {
            return Err(Fault::Broken);
        }
        self.array.sync();
        for (n, _) in &targets {
            self.array.set_health(*n, takes[*n], Health::Good);
        }
        self.array.tell("the rebuild is complete".into());
        self.commit()
    }

    /// Looks at every unit and writes those anew that are wrong.
    ///
    /// # Errors
    /// When somebody else walks, or too few directories are left.
    pub fn scrub(&self, is_over: &dyn Fn() -> bool) -> Result<Progress> {
        let Ok(_walking) = self.walking.try_lock() else {
            return Err(Fault::Refused);
        };
        self.sync()?;
        self.begin("scrub", (0, 0));
        let done = self.walk((0, 0), is_over, &mut |_, _, spot| {
            let mut lies_in = spot.layout.over.numbers();
            lies_in.try_for_each(|n| self.put_right(spot, n))
        });
        lock(&self.progress).is_running = false;
        done?;
        self.commit()?;
        Ok(self.progress())
    }

    /// Looks at every unit and at the names, and changes nothing. Returns what is wrong, a line
    /// each.
    ///
    /// # Errors
    /// When somebody else walks, or too few directories are left.
    pub fn check(&self, is_over: &dyn Fn() -> bool) -> Result<Vec<String>> {
        let Ok(_walking) = self.walking.try_lock() else {
            return Err(Fault::Refused);
        };
        self.sync()?;
        self.begin("check", (0, 0));
        let parity = self.array.parity;
        let mut lines = Vec::new();
        let done = self.walk((0, 0), is_over, &mut |ino, row, spot| {
            let states: Vec<(usize, UnitState)> = spot
                .layout
                .over
                .numbers()
                .map(|n| (n, self.array.inspect(spot, n)))
                .collect();
            let count = |wanted| states.iter().filter(|(_, s)| *s == wanted).count();
            let wrong = count(UnitState::Stale) + count(UnitState::Damaged);
            let missing = wrong + count(UnitState::Absent);
            let mut progress = lock(&self.progress);
            progress.wrong += wrong as u64;
            progress.lost += u64::from(missing > parity);
            drop(progress);
            let members = self.state().members;
            for (n, state) in &states {
                let member = &members[*n];
                // That it lacks units is known.
                if member.health != Health::Good {
                    continue;
                }
                let what = match state {
                    UnitState::Damaged => "is damaged",
                    UnitState::Stale => "is missing or old",
                    _ => continue,
                };
                if lines.len() < MOST_LINES {
                    let file = self.path(ino);
                    let path = &member.path;
                    lines.push(format!("{file}, row {row}: the unit in {path} {what}"));
                }
            }
            if missing > parity && lines.len() < MOST_LINES {
                lines.push(format!("{}, row {row}: data is lost", self.path(ino)));
            }
            Ok(())
        });
        lock(&self.progress).is_running = false;
        done?;
        lines.extend(self.check_names());
        Ok(lines)
    }

    /// Writes the unit of a row in a directory anew if it is wrong.
    fn put_right(&self, spot: Spot<'_>, n: usize) -> Result<()> {
        let state = self.array.inspect(spot, n);
        if matches!(state, UnitState::Right | UnitState::Absent) {
            return Ok(());
        }
        let mended = self.array.mend(spot, n);
        let mut progress = lock(&self.progress);
        progress.wrong += 1;
        match mended {
            Ok(bytes) => {
                progress.mended += 1;
                progress.mended_bytes += bytes;
                Ok(())
            }
            // The others may be right all the same.
            Err(Fault::Broken) if self.array.is_usable() => {
                progress.lost += 1;
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    fn begin(&self, what: &'static str, from: (u64, u64)) {
        let all_rows = self
            .files_after(0)
            .iter()
            .filter(|(ino, _)| *ino >= from.0)
            .map(|(_, data)| read(data).map.len() as u64)
            .sum();
        *lock(&self.progress) = Progress {
            what,
            is_running: true,
            all_rows,
            ..Progress::default()
        };
    }

    pub(crate) fn files_after(&self, after: u64) -> Vec<(u64, Arc<FileData>)> {
        let names = self.read_names();
        names
            .after(after)
            .filter_map(|(ino, inode)| match &inode.body {
                Body::File(data) => Some((ino, Arc::clone(data))),
                _ => None,
            })
            .collect()
    }

    /// Sees all rows from a file and row on, each while it cannot be replaced. Returns whether it
    /// came to the end.
    fn walk(
        &self,
        from: (u64, u64),
        is_over: &dyn Fn() -> bool,
        see: &mut dyn FnMut(u64, u64, Spot<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut pace = self.begin_pace();
        for (ino, data) in self.files_after(from.0.saturating_sub(1)) {
            let mut next = if ino == from.0 { from.1 } else { 0 };
            loop {
                if is_over() {
                    return Ok(false);
                }
                self.pace(&mut pace);
                let rows = read(&data);
                let some: Vec<(u64, RowRef)> = rows
                    .map
                    .range(next..)
                    .take(ROWS_AT_ONCE)
                    .map(|(row, at)| (*row, *at))
                    .collect();
                let Some((last, _)) = some.last() else {
                    break;
                };
                next = last + 1;
                if self.array.reads_ahead() {
                    for (_, at) in &some {
                        self.array.will_need_all(rows.spot(*at));
                    }
                }
                for (row, at) in &some {
                    see(ino, *row, rows.spot(*at))?;
                    lock(&self.progress).rows += 1;
                }
            }
        }
        Ok(true)
    }

    /// Lets others have their share: where anything was asked since the last pause, there is
    /// another one, as long as the share says for the time of the work since then.
    pub(crate) fn pace(&self, pace: &mut Pace) {
        let requests = self.requests.load(Ordering::Relaxed);
        let share = self.share.load(Ordering::Relaxed).clamp(1, 100) as u32;
        if requests != pace.requests && share < 100 {
            let pause = pace.since.elapsed() * (100 - share) / share;
            std::thread::sleep(pause.min(LONGEST_PAUSE));
        }
        *pace = self.begin_pace();
    }

    /// A walk that begins now.
    pub(crate) fn begin_pace(&self) -> Pace {
        Pace {
            since: Instant::now(),
            requests: self.requests.load(Ordering::Relaxed),
        }
    }

    /// Sets which part of the time, in percent, walks over all rows take while others use the file
    /// system.
    pub fn set_share(&self, percent: u64) {
        self.share.store(percent.clamp(1, 100), Ordering::Relaxed);
    }

    /// That part.
    #[must_use]
    pub fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    /// What does not fit among names and attributes.
    fn check_names(&self) -> Vec<String> {
        let names = self.read_names();
        let mut links = std::collections::BTreeMap::<u64, u32>::new();
        let mut lines = Vec::new();
        let mut slots = std::collections::BTreeSet::new();
        for (ino, inode) in names.after(0) {
            match &inode.body {
                Body::Folder(_) => {
                    let mut changes = Vec::new();
                    names.snapshot_entries(ino, &mut changes);
                    for change in changes {
                        if let crate::change::Change::Entry(_, name, to) = change {
                            *links.entry(to).or_default() += 1;
                            if names.get(to).is_err() {
                                let name = String::from_utf8_lossy(&name);
                                lines.push(format!("the entry '{name}' leads nowhere"));
                            }
                        }
                    }
                }
                Body::File(data) => {
                    for at in read(data).map.values() {
                        if !slots.insert(at.slot) {
                            lines.push(format!("slot {} belongs to two rows", at.slot));
                        }
                    }
                }
                _ => {}
            }
        }
        for (ino, inode) in names.after(0) {
            let found = links.get(&ino).copied().unwrap_or(0);
            let expected = match inode.body {
                Body::Folder(_) => u32::from(ino != ROOT && inode.attr.nlink > 0),
                _ => inode.attr.nlink,
            };
            if found != expected {
                lines.push(format!(
                    "inode {ino} has {expected} names by its count, and {found} are found"
                ));
            }
        }
        lines.truncate(MOST_LINES);
        lines
    }

    /// A path of an inode, for messages.
    #[must_use]
    pub fn path(&self, ino: u64) -> String {
        let names = self.read_names();
        let mut path = String::new();
        let mut at = ino;
        while at != ROOT {
            if path.len() > MOST_PATH {
                // A damaged log may have a circle.
                return format!("inode {ino}");
            }
            let mut found = None;
            for (folder, _) in names.after(0) {
                let mut changes = Vec::new();
                names.snapshot_entries(folder, &mut changes);
                found = changes.into_iter().find_map(|change| match change {
                    crate::change::Change::Entry(folder, name, to) if to == at => {
                        Some((folder, name))
                    }
                    _ => None,
                });
                if found.is_some() {
                    break;
                }
            }
            let Some((folder, name)) = found else {
                return format!("inode {ino}");
            };
            path = format!("/{}{path}", String::from_utf8_lossy(&name));
            at = folder;
        }
        path
    }
}
