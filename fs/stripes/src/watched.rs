//! A stripe directory whose operations end in time. A disk may neither answer nor fail, as a
//! network file system without its server; a caller in the usual way waits for as long. So the
//! operations are done by threads of the directory, and the caller goes on after a deadline with
//! an error, by which the directory fails. What hangs keeps only those threads.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::array::lock;
use crate::disk::{Disk, Part, Pending, Space, Write};

/// Operations of a directory that go on at the same time.
const MOST_THREADS: usize = 8;

/// A sync may take this many times as long as other operations: it writes what these left.
const SYNC_FACTOR: u32 = 10;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Memory for bytes on their way that is kept: pages from the system cost more than copies.
const MOST_BUFFERS: usize = 4;
const MOST_KEPT: usize = 1 << 20;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
    buffers: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    came: Condvar,
}

impl Shared {
    fn add(self: &Arc<Shared>, work: Work) {
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(work);
        let is_short = queue.idle < queue.waiting.len() && queue.threads < MOST_THREADS;
        queue.threads += usize::from(is_short);
        drop(queue);
        self.came.notify_one();
        if is_short {
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.work());
        }
    }

    /// An empty buffer.
    fn buffer(&self) -> Vec<u8> {
        lock(&self.queue).buffers.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut queue = lock(&self.queue);
        if buffer.capacity() <= MOST_KEPT && queue.buffers.len() < MOST_BUFFERS {
            queue.buffers.push(buffer);
        }
    }

    /// Does what comes, until nothing has come for a while.
    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.waiting.pop_front() {
                drop(queue);
                work();
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let waited = self.came.wait_timeout(queue, IDLE);
            let (back, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = back;
            queue.idle -= 1;
            if timed_out.timed_out() && queue.waiting.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Does something that may hang in a thread of its own, and waits for it up to a deadline.
///
/// # Errors
/// That it does not answer.
pub fn in_time<T: Send + 'static>(
    deadline: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, doing) = sync_channel(1);
    std::thread::spawn(move || {
        // Nobody hears it when it comes too late.
        let _ = done.send(job());
    });
    doing.recv_timeout(deadline).map_err(|_| silent(deadline))
}

fn silent(deadline: Duration) -> io::Error {
    let text = format!("it has not answered for {} seconds", deadline.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// A disk whose operations end in time.
pub struct Watched {
    inner: Arc<dyn Disk>,
    deadline: Duration,
    shared: Arc<Shared>,
    is_hung: Arc<AtomicBool>,
}

impl Watched {
    /// Watches over a disk.
    pub fn new(inner: Arc<dyn Disk>, deadline: Duration) -> Watched {
        Watched {
            inner,
            deadline,
            shared: Arc::default(),
            is_hung: Arc::default(),
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        job: impl FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.begin_to(deadline, job)()
    }

    /// Lets a thread begin with something; what is returned waits for its end.
    fn begin_to<T, F>(
        &self,
        deadline: Duration,
        job: F,
    ) -> impl FnOnce() -> io::Result<T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static,
    {
        let (done, doing) = sync_channel(1);
        let is_hung = Arc::clone(&self.is_hung);
        let begun = !is_hung.load(Ordering::SeqCst);
        if begun {
            let inner = Arc::clone(&self.inner);
            self.shared.add(Box::new(move || {
                // Nobody hears it when it comes too late.
                let _ = done.send(job(&*inner));
            }));
        }
        move || {
            if !begun {
                return Err(silent(deadline));
            }
            match doing.recv_timeout(deadline) {
                Ok(done) => done,
                Err(RecvTimeoutError::Timeout) => {
                    is_hung.store(true, Ordering::SeqCst);
                    Err(silent(deadline))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    Err(io::Error::other("its thread has ended"))
                }
            }
        }
    }
}

impl Disk for Watched {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        if let Some(len) = self.inner.read_now(part, at, into) {
            return Ok(len);
        }
        let len = into.len();
        let bytes = self.ask(self.deadline, move |disk| {
            let mut bytes = vec![0; len];
            let got = disk.read(part, at, &mut bytes)?;
            bytes.truncate(got);
            Ok(bytes)
        })?;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.begin(&[Write { part, at, pieces }]).wait()
    }

    fn begin(&self, writes: &[Write<'_>]) -> Pending {
        // The bytes belong to the thread: one that hangs keeps them.
        let mut bytes = self.shared.buffer();
        let mut places = Vec::with_capacity(writes.len());
        for write in writes {
            for piece in write.pieces {
                bytes.extend_from_slice(piece);
            }
            places.push((write.part, write.at, bytes.len()));
        }
        let shared = Arc::clone(&self.shared);
        Pending::UnderWay(Box::new(self.begin_to(self.deadline, move |disk| {
            let mut from = 0;
            let done = places.iter().try_for_each(|(part, at, to)| {
                let piece = IoSlice::new(&bytes[from..*to]);
                from = *to;
                disk.write(*part, *at, &[piece])
            });
            shared.keep(bytes);
            done
        })))
    }

    fn sync(&self, part: Part) -> io::Result<()> {
        self.ask(self.deadline * SYNC_FACTOR, move |disk| disk.sync(part))
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        self.ask(self.deadline, move |disk| disk.cut(part, len))
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        self.ask(self.deadline, move |disk| disk.len(part))
    }

    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.ask(self.deadline, move |disk| disk.punch(part, at, len))
    }

    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.ask(self.deadline, move |disk| disk.reserve(part, at, len))
    }

    fn space(&self) -> io::Result<Space> {
        self.ask(self.deadline, |disk| disk.space())
    }

    fn will_need(&self, part: Part, at: u64, len: usize) {
        if self.is_hung.load(Ordering::SeqCst) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        self.shared
            .add(Box::new(move || inner.will_need(part, at, len)));
    }

    fn is_memory(&self) -> bool {
        self.inner.is_memory()
    }

    fn is_present(&self) -> bool {
        // One that does not answer is there and fails: it is said by which operation.
        self.ask(self.deadline, |disk| Ok(disk.is_present()))
            .unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose reads wait until they are released, and that answers everything else.
    struct Hanging(Arc<(Mutex<bool>, Condvar)>);

    impl Disk for Hanging {
        fn read(&self, _: Part, _: u64, into: &mut [u8]) -> io::Result<usize> {
            let released = lock(&self.0.0);
            drop(self.0.1.wait_while(released, |released| !*released));
            into.fill(7);
            Ok(into.len())
        }
        fn write(&self, _: Part, _: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
            assert_eq!(pieces.iter().map(|p| p.len()).sum::<usize>(), 5);
            Ok(())
        }
        fn sync(&self, _: Part) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn cut(&self, _: Part, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn len(&self, _: Part) -> io::Result<u64> {
            Ok(9)
        }
        fn punch(&self, _: Part, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn reserve(&self, _: Part, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn space(&self) -> io::Result<Space> {
            Ok(Space::default())
        }
        fn is_present(&self) -> bool {
            true
        }
    }

    #[test]
    fn what_hangs_is_an_error_after_the_deadline_and_from_then_on_at_once() {
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let disk = Watched::new(
            Arc::new(Hanging(Arc::clone(&gate))),
            Duration::from_secs(3600),
        );
        let mut bytes = [0; 3];
        assert_eq!(disk.read(Part::Data, 0, &mut bytes).unwrap(), 3);
        assert_eq!(bytes, [7; 3]);
        let pieces = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        disk.write(Part::Data, 0, &pieces).unwrap();
        assert_eq!(disk.len(Part::Data).unwrap(), 9);
        let full = disk.sync(Part::Data).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        // It hangs: the deadline is over at once.
        *lock(&gate.0) = false;
        let disk = Watched {
            deadline: Duration::ZERO,
            ..disk
        };
        for _ in 0..3 {
            let error = disk.read(Part::Data, 0, &mut bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert!(disk.len(Part::Data).is_err() && disk.is_present());
        *lock(&gate.0) = true;
        gate.1.notify_all();
    }
}
