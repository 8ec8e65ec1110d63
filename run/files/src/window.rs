//! An aggregator's window: a part of its domain in memory, and which bytes of it are meant.

use margay_core_datatype::Run;
use margay_fs_storage::{Slice, Storage};
use margay_run_engine::{Data, copy};
use margay_sys_os::user::Mem;

use super::errors::failed;
use super::runs::{Clip, Runs};
use margay_run_mpi::error::*;

/// Holes up to this many bytes are read with what is around them: as much as the system moves in
/// the time of a call.
const HOLE: u64 = 16 << 10;

/// An aggregator with the extents that the ranks access in its domain.
pub(super) struct Aggregator {
    begin: i64,
    end: i64,
    sources: Vec<Source>,
    /// Where the window begins in the file.
    base: i64,
    memory: Mem,
    room: usize,
    marks: Marks,
}

struct Source {
    rank: u32,
    clip: Clip<std::vec::IntoIter<Run>>,
    /// Of the window that is open.
    runs: Vec<Run>,
    bytes: u64,
}

impl Aggregator {
    /// For a domain from `begin` to `end`.
    pub fn new((begin, end): (i64, i64), sources: Vec<(u32, Runs)>) -> Aggregator {
        Aggregator {
            begin,
            end,
            sources: sources
                .into_iter()
                .map(|(rank, runs)| Source {
                    rank,
                    clip: Clip::new(runs.into_iter()),
                    runs: Vec::new(),
                    bytes: 0,
                })
                .collect(),
            base: 0,
            memory: Mem::empty(),
            room: 0,
            marks: Marks::default(),
        }
    }

    /// Opens window number `round`, of this many bytes.
    pub fn open(&mut self, window: i64, round: i64) {
        let begin = (self.begin).saturating_add(round.saturating_mul(window));
        let limit = begin.saturating_add(window).min(self.end);
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        for source in &mut self.sources {
            source.runs.clear();
            source.bytes = 0;
            while let Some(run) = source.clip.take(limit) {
                low = low.min(run.offset);
                let last = run.offset + (run.count as i64 - 1) * run.stride;
                high = high.max(last + run.block as i64);
                source.bytes += run.bytes();
                source.runs.push(run);
            }
        }
        self.base = low;
        let length = if low < high { (high - low) as usize } else { 0 };
        if length > self.room {
            self.memory = Mem::owned(length);
            self.room = length;
        }
        self.marks.clear(length);
        for source in &self.sources {
            for run in &source.runs {
                for i in 0..run.count as i64 {
                    let at = run.offset + i * run.stride - low;
                    self.marks.set(at as usize, run.block as usize);
                }
            }
        }
    }

    /// Returns the ranks that have bytes in the window, and how many.
    pub fn amounts(&self) -> impl Iterator<Item = (u32, u64)> {
        (self.sources.iter())
            .filter(|source| source.bytes > 0)
            .map(|source| (source.rank, source.bytes))
    }

    /// Puts a rank's packed bytes into the window.
    pub fn put(&mut self, rank: u32, packed: &Data) {
        let Some(source) = self.sources.iter().find(|source| source.rank == rank) else {
            return;
        };
        let packed = Packed::of(packed, source.bytes);
        let mut done = 0;
        for run in &source.runs {
            let bytes = run.bytes() as usize;
            packed.with_bytes(done as i64, bytes, |from| {
                let (block, count) = (run.block as usize, run.count as usize);
                let at = run.offset - self.base;
                self.memory.scatter(at, block, count, run.stride, from);
            });
            done += bytes;
        }
    }

    /// Writes the bytes that are meant, and no others.
    pub fn write(&self, storage: &dyn Storage) -> Result<()> {
        for (at, len) in self.marks.intervals(0) {
            storage
                .write_at(self.base as u64 + at as u64, &[self.piece(at, len)])
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Reads the bytes that are meant, with small holes between them. Where the file ends, nothing
    /// is meant any more.
    pub fn read(&mut self, storage: &dyn Storage) -> Result<()> {
        let mut end = i64::MAX;
        let mut result = Ok(());
        for (at, len) in self.marks.intervals(HOLE as usize) {
            match storage.read_at(self.base as u64 + at as u64, &[self.piece(at, len)]) {
                Ok(got) if got == len as u64 => continue,
                Ok(got) => end = self.base + at as i64 + got as i64,
                Err(error) => {
                    end = self.base + at as i64;
                    result = Err(failed(error));
                }
            }
            break;
        }
        for source in &mut self.sources {
            let mut clip = Clip::new(std::mem::take(&mut source.runs).into_iter());
            while let Some(run) = clip.take(end) {
                source.runs.push(run);
            }
        }
        result
    }

    /// Returns what each rank asked for, packed.
    pub fn get(&self) -> Vec<(u32, Data)> {
        let mut all = Vec::new();
        for source in self.sources.iter().filter(|source| source.bytes > 0) {
            let length: u64 = source.runs.iter().map(Run::bytes).sum();
            let packed = Mem::owned(length as usize);
            let mut done = 0;
            for run in &source.runs {
                let bytes = run.bytes() as usize;
                packed.with_bytes_mut(done as i64, bytes, |to| {
                    let (block, count) = (run.block as usize, run.count as usize);
                    let at = run.offset - self.base;
                    self.memory.gather(at, block, count, run.stride, to);
                });
                done += bytes;
            }
            all.push((source.rank, Data::bytes(packed, length)));
        }
        all
    }

    fn piece(&self, at: usize, len: usize) -> Slice {
        Slice {
            mem: self.memory.clone(),
            at: at as i64,
            len,
        }
    }
}

/// Packed bytes in one piece.
struct Packed(Mem);

impl Packed {
    fn of(data: &Data, bytes: u64) -> Packed {
        let [piece] = &data.pieces()[..] else {
            let mem = Mem::owned(bytes as usize);
            copy(data, &Data::bytes(mem.clone(), bytes));
            return Packed(mem);
        };
        Packed(piece.mem.shifted(piece.at))
    }

    fn with_bytes(&self, at: i64, len: usize, f: impl FnOnce(&[u8])) {
        self.0.with_bytes(at, len, f);
    }
}

/// A bit for each byte of a window.
#[derive(Default)]
struct Marks {
    words: Vec<u64>,
    length: usize,
}

impl Marks {
    fn clear(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(64), 0);
        self.length = length;
    }

    fn set(&mut self, at: usize, len: usize) {
        let end = at + len;
        let (first, last) = (at / 64, (end - 1) / 64);
        let from = u64::MAX << (at % 64);
        let to = u64::MAX >> (63 - (end - 1) % 64);
        if first == last {
            self.words[first] |= from & to;
            return;
        }
        self.words[first] |= from;
        self.words[first + 1..last].fill(u64::MAX);
        self.words[last] |= to;
    }

    /// Returns the first byte from `at` on that is marked, or is not; the length when there is
    /// none.
    fn find(&self, at: usize, marked: bool) -> usize {
        let flip = if marked { 0 } else { u64::MAX };
        let mut word = at / 64;
        let mut mask = u64::MAX << (at % 64);
        while word < self.words.len() {
            let bits = (self.words[word] ^ flip) & mask;
            if bits != 0 {
                return (word * 64 + bits.trailing_zeros() as usize).min(self.length);
            }
            mask = u64::MAX;
            word += 1;
        }
        self.length
    }

    /// Marked ranges (first, bytes), joined over holes of at most `hole` bytes.
    fn intervals(&self, hole: usize) -> Vec<(usize, usize)> {
        let mut all: Vec<(usize, usize)> = Vec::new();
        let mut at = self.find(0, true);
        while at < self.length {
            let end = self.find(at, false);
            match all.last_mut() {
                Some((first, len)) if at - (*first + *len) <= hole => *len = end - *first,
                _ => all.push((at, end - at)),
            }
            at = self.find(end, true);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_ranges_again() {
        for (ranges, hole, expected) in [
            (vec![(0, 200)], 0, vec![(0, 200)]),
            (
                vec![(3, 5), (63, 2), (128, 72)],
                0,
                vec![(3, 5), (63, 2), (128, 72)],
            ),
            (vec![(3, 5), (8, 1), (20, 100)], 0, vec![(3, 6), (20, 100)]),
            (vec![(3, 5), (10, 1), (20, 100)], 2, vec![(3, 8), (20, 100)]),
            (vec![], 0, vec![]),
        ] {
            let mut marks = Marks::default();
            marks.clear(200);
            for (at, len) in ranges {
                marks.set(at, len);
            }
            assert_eq!(marks.intervals(hole), expected);
        }
    }
}
