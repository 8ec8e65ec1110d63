//! Which bytes of a file are meant, as strided runs in the order of a view, and cutting those that
//! ascend at offsets.

use margay_core_datatype::{Cursor, Flat, Run};

/// Bytes of a run in a message between ranks: offset, block, count and stride.
const ENCODED: usize = 32;

/// Extents of a file in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Appends a run that begins at or behind the end of the last one; grows that one where both
    /// are one loop.
    pub fn push(&mut self, run: Run) {
        let Some(last) = self.0.last_mut() else {
            self.0.push(run);
            return;
        };
        let last_offset = last.offset + (last.count as i64 - 1) * last.stride;
        if last.count == 1 && run.count == 1 && last.offset + last.block as i64 == run.offset {
            last.block += run.block;
            return;
        }
        let gap = run.offset - last_offset;
        if last.block == run.block
            && gap > last.block as i64
            && (last.count == 1 || last.stride == gap)
            && (run.count == 1 || run.stride == gap)
        {
            last.stride = gap;
            last.count += run.count;
            return;
        }
        self.0.push(run);
    }

    /// As bytes for another rank.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * ENCODED);
        for run in &self.0 {
            for word in [run.offset, run.block as i64, run.count as i64, run.stride] {
                bytes.extend(word.to_ne_bytes());
            }
        }
        bytes
    }

    /// The reverse of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Runs {
        let word = |run: &[u8], i: usize| {
            i64::from_ne_bytes(run[8 * i..8 * i + 8].try_into().expect("eight bytes"))
        };
        Runs(
            bytes
                .chunks_exact(ENCODED)
                .map(|run| Run {
                    offset: word(run, 0),
                    block: word(run, 1) as u64,
                    count: word(run, 2) as u64,
                    stride: word(run, 3),
                })
                .collect(),
        )
    }
}

impl IntoIterator for Runs {
    type Item = Run;
    type IntoIter = std::vec::IntoIter<Run>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The extents of packed bytes `start .. start + bytes` of a filetype that is repeated from `disp`
/// on.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    cursor: Cursor,
    disp: i64,
    left: u64,
}

impl Extents {
    /// `None` when they reach beyond 63-bit offsets, or when there are bytes to find and the
    /// filetype has none.
    pub fn new(flat: &Flat, disp: i64, start: u64, bytes: u64) -> Option<Extents> {
        let tiles = match bytes {
            0 => 0,
            _ => {
                (start.checked_add(bytes)?).checked_add(flat.size().checked_sub(1)?)?
                    / flat.size().max(1)
            }
        };
        if bytes > 0 && flat.size() == 0 {
            return None;
        }
        flat.packed_size(tiles)?;
        let (_, high) = flat.span(tiles)?;
        high.checked_add(disp)?;
        let mut cursor = Cursor::new(flat, tiles);
        if bytes > 0 {
            cursor.seek(start);
        }
        Some(Extents {
            cursor,
            disp,
            left: bytes,
        })
    }
}

impl Iterator for Extents {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut run = self.cursor.next_run(self.left)?;
        self.left -= run.bytes();
        run.offset += self.disp;
        Some(run)
    }
}

/// Takes runs up to limits that ascend.
#[derive(Clone, Debug)]
pub(super) struct Clip<I> {
    source: I,
    /// The rest of a block that a limit has cut.
    cut: Option<(i64, u64)>,
    rest: Option<Run>,
}

impl<I: Iterator<Item = Run>> Clip<I> {
    pub fn new(source: I) -> Clip<I> {
        Clip {
            source,
            cut: None,
            rest: None,
        }
    }

    /// Returns the next run of which all bytes lie before `limit`; `None` when there is none.
    pub fn take(&mut self, limit: i64) -> Option<Run> {
        let one = |offset, block| Run {
            offset,
            block,
            count: 1,
            stride: 0,
        };
        if let Some((offset, len)) = self.cut {
            let room = u64::try_from(limit - offset).unwrap_or(0);
            if room == 0 {
                return None;
            }
            let now = len.min(room);
            self.cut = (now < len).then_some((offset + now as i64, len - now));
            return Some(one(offset, now));
        }
        let run = match self.rest.take() {
            Some(run) => run,
            None => self.source.next()?,
        };
        let Run {
            offset,
            block,
            count,
            stride,
        } = run;
        let last_end = offset + (count as i64 - 1) * stride + block as i64;
        if last_end <= limit {
            return Some(run);
        }
        if offset >= limit {
            self.rest = Some(run);
            return None;
        }
        let room = limit - block as i64 - offset;
        let whole = match room {
            ..0 => 0,
            _ if count == 1 => 0,
            _ => (room / stride + 1) as u64,
        };
        if whole > 0 {
            self.rest = Some(Run {
                offset: offset + whole as i64 * stride,
                count: count - whole,
                ..run
            });
            return Some(Run {
                count: whole,
                ..run
            });
        }
        let now = (limit - offset) as u64;
        self.cut = Some((limit, block - now));
        self.rest = (count > 1).then_some(Run {
            offset: offset + stride,
            count: count - 1,
            ..run
        });
        Some(one(offset, now))
    }

    /// Returns where the next byte is; `None` when nothing is left.
    pub fn next_offset(&mut self) -> Option<i64> {
        if let Some((offset, _)) = self.cut {
            return Some(offset);
        }
        if self.rest.is_none() {
            self.rest = self.source.next();
        }
        self.rest.map(|run| run.offset)
    }
}

/// Runs block by block, adjacent ones merged: (offset, bytes).
#[derive(Clone, Debug)]
pub(super) struct Blocks<I> {
    source: I,
    run: Option<Run>,
    done: u64,
    next: Option<(i64, u64)>,
}

impl<I: Iterator<Item = Run>> Blocks<I> {
    pub fn new(source: I) -> Blocks<I> {
        Blocks {
            source,
            run: None,
            done: 0,
            next: None,
        }
    }

    fn single(&mut self) -> Option<(i64, u64)> {
        let run = match self.run {
            Some(run) if self.done < run.count => run,
            _ => {
                self.done = 0;
                self.run = self.source.next();
                self.run?
            }
        };
        let offset = run.offset + self.done as i64 * run.stride;
        self.done += 1;
        Some((offset, run.block))
    }
}

impl<I: Iterator<Item = Run>> Iterator for Blocks<I> {
    type Item = (i64, u64);

    fn next(&mut self) -> Option<(i64, u64)> {
        let (offset, mut len) = match self.next.take() {
            Some(block) => block,
            None => self.single()?,
        };
        while let Some(block) = self.single() {
            if block.0 != offset + len as i64 {
                self.next = Some(block);
                break;
            }
            len += block.1;
        }
        Some((offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_datatype::{Basic, Datatype};
    use std::sync::Arc;

    fn expand(runs: impl Iterator<Item = Run>) -> Vec<i64> {
        let mut all = Vec::new();
        for run in runs {
            for i in 0..run.count as i64 {
                all.extend((0..run.block as i64).map(|b| run.offset + i * run.stride + b));
            }
        }
        all
    }

    fn strided() -> Extents {
        let int = Arc::new(Datatype::basic(Basic::Int));
        let vector = Arc::new(Datatype::vector(3, 2, 5, &int).unwrap());
        let spread = Datatype::resized(0, 80, &vector).unwrap();
        Extents::new(spread.flat(), 7, 10, 60).unwrap()
    }

    #[test]
    fn limits_cut_runs_anywhere_and_nothing_is_lost() {
        let all = expand(strided());
        assert_eq!(all.len(), 60);
        assert_eq!(all[0], 7 + 20 + 2, "ten bytes into the filetype");
        for step in 1..50 {
            let mut clip = Clip::new(strided());
            let mut taken = Vec::new();
            let mut limit = 0;
            while clip.next_offset().is_some() {
                limit += step;
                while let Some(run) = clip.take(limit) {
                    let part = expand(std::iter::once(run));
                    assert!(part.iter().all(|&at| at < limit && at >= limit - step));
                    taken.extend(part);
                }
            }
            assert_eq!(taken, all, "step {step}");
        }
    }

    #[test]
    fn pushing_folds_and_encoding_comes_back() {
        let mut runs = Runs::default();
        let mut clip = Clip::new(strided());
        for limit in 0..400 {
            while let Some(run) = clip.take(limit) {
                runs.push(run);
            }
        }
        assert_eq!(runs.0.len(), 8, "a run for each block: {runs:?}");
        let back = Runs::decode(&runs.encode());
        assert_eq!(expand(back.into_iter()), expand(strided()));
        let blocks: Vec<_> = Blocks::new(strided()).collect();
        assert_eq!(blocks[0], (29, 6));
        assert_eq!(blocks.iter().map(|b| b.1).sum::<u64>(), 60);
    }
}
