//! A trace in its file: what is where in it, its sums, and the calls of a part of it.
//!
//! It is read once from its beginning to its end, by a thread for each core, which has the blocks
//! of its ranks. Later each window is read for itself. So that messages and operations of a part
//! still belong together, it is kept how many there were before a block.

use std::cell::Cell;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use margay_core_record::{Kind, Record};
use margay_core_sums::{Counts, Grid, Series, Window, add_block, records};

use crate::format::{Blocks, Found, ThreadRecords, Trace, TraceError, take};

/// Records of a trace that is shown whole, call by call.
pub const MOST_WHOLE: u64 = 1_000_000;
/// Records of all ranks in a window, up to which messages and waits are looked for in it.
const MOST_ANALYSED: u64 = 400_000;
/// Records of the ranks of a window that are shown call by call.
const MOST_SHOWN: u64 = 200_000;
/// Columns of the sums of a window.
const COLUMNS: usize = 1024;
const RECORD: u64 = 32;
/// The end of a block of which a call has not ended.
const OPEN: u64 = u64::MAX;
const MOST_RANKS: u32 = 1 << 24;

/// A block of records.
struct Place {
    rank: u32,
    thread: u32,
    /// Where its records are in the file, and how many.
    at: u64,
    records: u64,
    /// From when to when its calls are.
    from: u64,
    to: u64,
    /// What was before it. Of blocks with few records not each has this.
    before: Option<Vec<(Series, u32)>>,
}

impl Place {
    fn meets(&self, window: &Window) -> bool {
        window.has(self.rank) && self.from < window.to && self.to >= window.from
    }

    /// About how many of its records are in a stretch of time.
    fn within(&self, window: &Window) -> u64 {
        let both = self.to.min(window.to) - self.from.max(window.from).min(self.to);
        let whole = (self.to - self.from).max(1);
        (self.records as f64 * both as f64 / whole as f64).ceil() as u64
    }
}

/// A trace in its file.
pub struct Large {
    path: PathBuf,
    /// All but its records.
    pub trace: Trace,
    /// In the order of ranks, threads and time.
    blocks: Vec<Place>,
    pub whole: Grid,
    pub lost: u64,
    pub records: u64,
}

/// What is searched.
pub struct Wanted {
    pub sites: Vec<u16>,
    pub tag: Option<u32>,
}

/// A call that was found.
type Hit = (u64, u32, u64, u16);

impl Wanted {
    fn has(&self, record: &Record) -> bool {
        let has_message = record.peer.is_some() && record.kind != Kind::Collective;
        match self.tag {
            Some(tag) => record.tag == tag && has_message && !record.kind.is_further(),
            None => !record.kind.is_further() && self.sites.contains(&record.site),
        }
    }
}

/// What one thread has read.
struct Part {
    trace: Trace,
    blocks: Vec<Place>,
    grid: Grid,
    /// Calls that have not ended.
    open: Vec<(u32, Record)>,
    lost: u64,
    /// Where what it could read ends.
    end: u64,
    ranks: u32,
}

impl Large {
    /// Reads a trace and adds its calls up.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub fn open(path: &Path) -> Result<Large, TraceError> {
        let file = File::open(path).map_err(TraceError::Io)?;
        let length = file.metadata().map_err(TraceError::Io)?.len();
        // The end is the last block, where there is one.
        let mut last = [0; 8];
        let guess = match length.checked_sub(8) {
            Some(at) if file.read_exact_at(&mut last, at).is_ok() => u64::from_le_bytes(last),
            _ => 0,
        };
        // A trace that was cut has another end.
        let guess = if guess < 1 << 56 { guess } else { 0 };
        let (head, _) = Blocks::open(path, length)?;
        let mut limit = length;
        let mut ranks = head.head.ranks.clamp(1, MOST_RANKS);
        loop {
            let parts = in_parallel(|share, shares| {
                read_share(
                    path,
                    limit,
                    (share, shares),
                    Grid::whole(ranks, guess),
                    ranks,
                )
            });
            let mut parts: Vec<Part> = parts.into_iter().collect::<Result<_, _>>()?;
            // What lies behind a block that is damaged counts for nobody; a header may be wrong.
            let end = parts.iter().map(|part| part.end).min().unwrap_or(0);
            let most = parts.iter().map(|part| part.ranks).max().unwrap_or(0);
            if most <= ranks && parts.iter().all(|part| part.end == end) {
                return Ok(Large::of(path, &mut parts, ranks));
            }
            (limit, ranks) = (end, ranks.max(most));
        }
    }

    fn of(path: &Path, parts: &mut Vec<Part>, ranks: u32) -> Large {
        let Part {
            mut trace,
            mut blocks,
            mut grid,
            mut open,
            mut lost,
            ..
        } = parts.remove(0);
        for part in parts.drain(..) {
            blocks.extend(part.blocks);
            grid.merge(part.grid);
            open.extend(part.open);
            lost += part.lost;
        }
        blocks.sort_by_key(|block| (block.rank, block.thread, block.at));
        let ends = blocks.iter().map(|block| block.to).filter(|&to| to != OPEN);
        trace.end_ns = ends.fold(trace.end_ns, u64::max);
        for block in blocks.iter_mut().filter(|block| block.to == OPEN) {
            block.to = trace.end_ns.max(block.from);
        }
        trace.head.ranks = ranks;
        for (rank, record) in open {
            grid.add_one(rank, &record, trace.end_ns, trace.end_ns);
        }
        grid.close(trace.end_ns);
        Large {
            path: path.to_owned(),
            records: blocks.iter().map(|block| block.records).sum(),
            trace,
            blocks,
            whole: grid,
            lost,
        }
    }

    /// The sums of a window.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn grid(&self, window: Window) -> io::Result<Grid> {
        let blocks: Vec<&Place> = self.blocks.iter().filter(|b| b.meets(&window)).collect();
        let file = File::open(&self.path)?;
        let parts = in_parallel(|share, shares| {
            let mut grid = Grid::of(window, COLUMNS);
            let each = blocks.len().div_ceil(shares).max(1);
            let (mut bytes, mut open) = (Vec::new(), Vec::new());
            for block in blocks.iter().skip(share * each).take(each) {
                block.read(&file, &mut bytes)?;
                grid.add(block.rank, records(&bytes), &mut open);
                for record in open.drain(..) {
                    let end = self.trace.end_ns;
                    grid.add_one(block.rank, &record, end, end);
                }
            }
            Ok::<_, io::Error>(grid)
        });
        let mut parts = parts.into_iter();
        let first = parts
            .next()
            .unwrap_or_else(|| Ok(Grid::of(window, COLUMNS)))?;
        parts.try_fold(first, |mut all, part| {
            all.merge(part?);
            Ok(all)
        })
    }

    /// The calls of a window, if they are few enough, and whether those of all other ranks at that
    /// time are among them, so that messages and waits can be found.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn calls(&self, window: Window) -> io::Result<Option<(Trace, bool)>> {
        let of_all = Window {
            first: 0,
            last: self.trace.head.ranks,
            ..window
        };
        if self.about(&of_all) <= MOST_ANALYSED {
            let trace = self.load(of_all)?;
            // A call may wait for one that begins behind the window.
            let ends = trace.threads.iter().flat_map(|of| &of.records);
            let hull = ends.fold(of_all, |hull, record| Window {
                from: hull.from.min(record.start),
                to: (hull.to).max(crate::format::end(&self.trace, record) + 1),
                ..hull
            });
            let is_more = hull != of_all && self.about(&hull) <= MOST_ANALYSED;
            return Ok(Some((if is_more { self.load(hull)? } else { trace }, true)));
        }
        match self.about(&window) <= MOST_SHOWN {
            true => Ok(Some((self.load(window)?, false))),
            false => Ok(None),
        }
    }

    /// How many calls are wanted, and the first of them that begin at a time or later: begin, rank,
    /// length and site.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn find(&self, wanted: &Wanted, from: u64) -> io::Result<(u64, Vec<Hit>)> {
        const MOST: usize = 2000;
        let file = File::open(&self.path)?;
        let parts = in_parallel(|share, shares| {
            let each = self.blocks.len().div_ceil(shares).max(1);
            let (mut bytes, mut count) = (Vec::new(), 0);
            let mut first = BinaryHeap::new();
            for block in self.blocks.iter().skip(share * each).take(each) {
                block.read(&file, &mut bytes)?;
                for record in records(&bytes).filter(|record| wanted.has(record)) {
                    count += 1;
                    let ns = crate::format::duration(&self.trace, &record);
                    let hit = (record.start, block.rank, ns, record.site);
                    if record.start >= from && (first.len() < MOST || first.peek() > Some(&hit)) {
                        first.push(hit);
                        if first.len() > MOST {
                            first.pop();
                        }
                    }
                }
            }
            Ok::<_, io::Error>((count, first.into_vec()))
        });
        let (mut count, mut first) = (0, Vec::new());
        for part in parts {
            let (some, hits) = part?;
            count += some;
            first.extend(hits);
        }
        first.sort_unstable();
        first.truncate(MOST);
        Ok((count, first))
    }

    /// About how many records are in a window.
    fn about(&self, window: &Window) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.meets(window));
        blocks.map(|block| block.within(window)).sum()
    }

    fn load(&self, window: Window) -> io::Result<Trace> {
        let file = File::open(&self.path)?;
        let of_thread: Vec<&[Place]> = (self.blocks)
            .chunk_by(|a, b| (a.rank, a.thread) == (b.rank, b.thread))
            .filter(|of| window.has(of[0].rank))
            .collect();
        let parts = in_parallel(|share, shares| {
            let each = of_thread.len().div_ceil(shares).max(1);
            let mine = of_thread.iter().skip(share * each).take(each);
            let loaded = mine.map(|of| self.load_thread(&file, of, &window));
            loaded.collect::<io::Result<Vec<_>>>()
        });
        let mut trace = self.trace.clone();
        for part in parts {
            for (thread, counts) in part? {
                trace.threads.push(thread);
                for (series, count) in counts {
                    *trace.before.entry(series).or_default() += count;
                }
            }
        }
        trace.sort();
        Ok(trace)
    }

    /// The records of a thread in a stretch of time, and what was before them.
    fn load_thread(
        &self,
        file: &File,
        of: &[Place],
        window: &Window,
    ) -> io::Result<(ThreadRecords, Counts)> {
        let mut counts = Counts::default();
        let mut loaded = ThreadRecords {
            rank: of[0].rank,
            thread: of[0].thread,
            ..ThreadRecords::default()
        };
        let Some(first) = of.iter().position(|block| block.meets(window)) else {
            // Who was there before and has nothing to add: its counts play no role.
            return Ok((loaded, counts));
        };
        let known = of[..=first]
            .iter()
            .rposition(|block| block.before.is_some());
        let known = known.unwrap_or(0);
        counts.extend(of[known].before.iter().flatten().copied());
        let mut bytes = Vec::new();
        let mut is_in = false;
        for block in of[known..]
            .iter()
            .take_while(|block| block.from < window.to)
        {
            block.read(file, &mut bytes)?;
            for record in records(&bytes).take_while(|record| record.start < window.to) {
                let end = crate::format::end(&self.trace, &record);
                is_in |= !record.kind.is_further() && end >= window.from;
                if is_in {
                    loaded.records.push(record);
                } else if let Some(series) = Series::of(loaded.rank, loaded.thread, &record) {
                    *counts.entry(series).or_default() += 1;
                }
            }
        }
        Ok((loaded, counts))
    }
}

impl Place {
    fn read(&self, file: &File, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.resize((self.records * RECORD) as usize, 0);
        file.read_exact_at(bytes, self.at)
    }
}

/// Reads the blocks of a share of the ranks.
fn read_share(
    path: &Path,
    limit: u64,
    (share, shares): (usize, usize),
    grid: Grid,
    ranks: u32,
) -> Result<Part, TraceError> {
    let (trace, mut blocks) = Blocks::open(path, limit)?;
    let mut part = Part {
        trace,
        blocks: Vec::new(),
        grid,
        open: Vec::new(),
        lost: 0,
        end: limit,
        ranks,
    };
    let mut counts: HashMap<(u32, u32), (Counts, usize)> = HashMap::new();
    let mut open = Vec::new();
    let most = Cell::new(ranks);
    let wanted = |rank: u32| {
        // A rank beyond is none.
        if rank < MOST_RANKS {
            most.set(most.get().max(rank + 1));
        }
        u64::from(rank) * shares as u64 / u64::from(ranks) == share as u64
    };
    loop {
        match blocks.next(wanted).map_err(TraceError::Io)? {
            Some(Found::Records {
                rank,
                thread,
                lost,
                at,
                bytes,
            }) => {
                part.lost = part.lost.saturating_add(lost);
                let (counts, since) = counts.entry((rank, thread)).or_default();
                // What is kept takes an eighth of the records' place at most.
                let before = (counts.len() <= 16 + *since / 8).then(|| {
                    *since = 0;
                    counts
                        .iter()
                        .map(|(series, count)| (*series, *count))
                        .collect()
                });
                let of = (rank, thread);
                let span = add_block(bytes, of, &mut part.grid, counts, &mut open);
                *since += span.records;
                if span.from <= span.to {
                    let to = if open.is_empty() { span.to } else { OPEN };
                    part.blocks.push(Place {
                        rank,
                        thread,
                        at,
                        records: span.records as u64,
                        from: span.from,
                        to,
                        before,
                    });
                }
                part.open
                    .extend(open.drain(..).map(|record| (rank, record)));
            }
            Some(Found::Passed) => {}
            Some(Found::Other(block)) if share == 0 => {
                take(&mut part.trace, &mut Default::default(), block);
            }
            Some(Found::Other(_)) => {}
            None => break,
        }
    }
    // What is behind the last whole block has no meaning.
    part.end = blocks.at();
    part.ranks = most.get();
    Ok(part)
}

/// Does a share of work on each core.
fn in_parallel<T: Send>(work: impl Fn(usize, usize) -> T + Sync) -> Vec<T> {
    const MOST: usize = 16;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shares = cores.min(MOST);
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..shares)
            .map(|share| scope.spawn(move || work(share, shares)))
            .collect();
        let mut all = vec![work(0, shares)];
        for other in others {
            match other.join() {
                Ok(part) => all.push(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
