//! What is done with a stripe directory, counted.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::disk::{Disk, Part, Pending, Space, Write};

/// Operations since the start, their bytes and how long they took.
#[derive(Debug, Default)]
pub struct Traffic {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub write_bytes: AtomicU64,
    pub syncs: AtomicU64,
    /// Microseconds of all operations, also of such at the same time.
    pub busy_us: AtomicU64,
}

/// A disk whose operations are counted.
pub struct Counted {
    inner: Arc<dyn Disk>,
    traffic: Arc<Traffic>,
}

impl Counted {
    /// Counts what is done with a disk.
    pub fn new(inner: Arc<dyn Disk>, traffic: Arc<Traffic>) -> Counted {
        Counted { inner, traffic }
    }

    fn timed<T>(&self, job: impl FnOnce(&dyn Disk) -> T) -> T {
        let begun = Instant::now();
        let done = job(&*self.inner);
        let took = begun.elapsed().as_micros() as u64;
        self.traffic.busy_us.fetch_add(took, Ordering::Relaxed);
        done
    }
}

impl Disk for Counted {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read_pieces(part, at, &mut [into])
    }

    fn read_pieces(&self, part: Part, at: u64, pieces: &mut [&mut [u8]]) -> io::Result<usize> {
        let read = self.timed(|disk| disk.read_pieces(part, at, pieces));
        self.traffic.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = *read.as_ref().unwrap_or(&0) as u64;
        self.traffic.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        read
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let written = self.timed(|disk| disk.write(part, at, pieces));
        self.traffic.writes.fetch_add(1, Ordering::Relaxed);
        if written.is_ok() {
            let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
            self.traffic
                .write_bytes
                .fetch_add(bytes as u64, Ordering::Relaxed);
        }
        written
    }

    fn begin(&self, writes: &[Write<'_>]) -> Pending {
        let begun = Instant::now();
        let count = writes.len() as u64;
        let pieces = writes.iter().flat_map(|write| write.pieces);
        let bytes: usize = pieces.map(|piece| piece.len()).sum();
        let traffic = Arc::clone(&self.traffic);
        let count_all = move |done: io::Result<()>| {
            let took = begun.elapsed().as_micros() as u64;
            traffic.busy_us.fetch_add(took, Ordering::Relaxed);
            traffic.writes.fetch_add(count, Ordering::Relaxed);
            let written = if done.is_ok() { bytes as u64 } else { 0 };
            traffic.write_bytes.fetch_add(written, Ordering::Relaxed);
            done
        };
        match self.inner.begin(writes) {
            Pending::Ended(done) => Pending::Ended(count_all(done)),
            Pending::UnderWay(wait) => Pending::UnderWay(Box::new(move || count_all(wait()))),
        }
    }

    fn sync(&self, part: Part) -> io::Result<()> {
        self.traffic.syncs.fetch_add(1, Ordering::Relaxed);
        self.timed(|disk| disk.sync(part))
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        self.timed(|disk| disk.cut(part, len))
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        self.inner.len(part)
    }

    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.timed(|disk| disk.punch(part, at, len))
    }

    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.timed(|disk| disk.reserve(part, at, len))
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn will_need(&self, part: Part, at: u64, len: usize) {
        self.inner.will_need(part, at, len);
    }

    fn is_memory(&self) -> bool {
        self.inner.is_memory()
    }

    fn is_present(&self) -> bool {
        self.inner.is_present()
    }
}
