//! Threads that wait: for connections, for records, for signals, and for the end of the launcher.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use margay_core_check::{MOST_BYTES, Phase, Record};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::{SignalFd, SignalSet};

use crate::ring::{READS_RINGS, Ring};

/// Batches of records that are read ahead of the checker; a rank waits while there are as many.
const MOST_AHEAD: usize = 64;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// What happens.
pub enum Event {
    Connected(u64),
    /// Records of a connection, in their order. They are read where they are used: memory that
    /// another thread has allocated takes longer to free than all else that is done with it.
    Records(u64, Vec<u8>),
    Closed(u64),
    /// The launcher has ended.
    Ended(io::Result<ExitStatus>),
    /// All that connected before the launcher ended are known.
    AllConnected,
}

pub struct Listening {
    sender: SyncSender<Event>,
    address: SocketAddr,
    is_ending: Arc<AtomicBool>,
    signals: Arc<Signals>,
}

/// What passes signals on to the launcher: at once, however many records wait for the checker.
#[derive(Default)]
struct Signals {
    launcher: OnceLock<PidFd>,
    has_come: AtomicBool,
}

/// A name for the socket, in the abstract name space: nothing is left behind.
pub fn address() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("margay-check-{}-{:x}", std::process::id(), now.as_nanos())
}

impl Listening {
    /// Begins to listen for ranks and for signals, which are blocked.
    pub fn begin(address: &str, signals: &SignalSet) -> io::Result<(Listening, Receiver<Event>)> {
        let address = SocketAddr::from_abstract_name(address)?;
        let listener = UnixListener::bind_addr(&address)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let mut signals = SignalFd::new(signals)?;
        let (sender, events) = sync_channel(MOST_AHEAD);
        let (to, ending) = (sender.clone(), is_ending.clone());
        thread::spawn(move || accept(&listener, &to, &ending));
        let passed_on = Arc::new(Signals::default());
        let own = passed_on.clone();
        thread::spawn(move || {
            loop {
                let mut set = PollSet::default();
                set.add_readable(signals.as_fd());
                if set.wait(None).is_err() {
                    return;
                }
                while let Some(received) = signals.take() {
                    own.has_come.store(true, Ordering::SeqCst);
                    // The terminal signals the launcher as well.
                    if received.sender != 0 {
                        own.launcher.wait().signal(received.signal);
                    }
                }
            }
        });
        let listening = Listening {
            sender,
            address,
            is_ending,
            signals: passed_on,
        };
        Ok((listening, events))
    }

    /// No process of the job is left that could connect: those that have are accepted, then
    /// [`Event::AllConnected`] comes.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        // Wakes who accepts.
        drop(UnixStream::connect_addr(&self.address));
    }

    /// Says when the launcher has ended, and how; it gets the signals that come.
    ///
    /// # Errors
    /// When the system has no handle for it.
    pub fn watch(&self, mut launcher: Child) -> io::Result<()> {
        let _ = self.signals.launcher.set(PidFd::open(launcher.id())?);
        let to = self.sender.clone();
        thread::spawn(move || {
            let _ = to.send(Event::Ended(launcher.wait()));
        });
        Ok(())
    }

    /// Whether somebody wants the end.
    pub fn is_interrupted(&self) -> bool {
        self.signals.has_come.load(Ordering::SeqCst)
    }
}

fn accept(listener: &UnixListener, to: &SyncSender<Event>, is_ending: &AtomicBool) {
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept() {
        if is_ending.load(Ordering::SeqCst) && listener.set_nonblocking(true).is_err() {
            break;
        }
        if !is_trusted(stream.as_fd()) || stream.set_nonblocking(false).is_err() {
            continue;
        }
        number += 1;
        if to.send(Event::Connected(number)).is_err() {
            return;
        }
        let to = to.clone();
        thread::spawn(move || {
            records(stream, number, &to);
            let _ = to.send(Event::Closed(number));
        });
    }
    let _ = to.send(Event::AllConnected);
}

/// Reads the records of a process to its end, or to the first bytes that are none.
fn records(mut stream: UnixStream, number: u64, to: &SyncSender<Event>) {
    // An agent of another host, which passes on what it gets, does not read this.
    let _ = stream.write_all(&[READS_RINGS]);
    let mut socket = BufReader::with_capacity(READ_BYTES, stream);
    let mut bytes = Vec::new();
    let first = match append(&mut socket, &mut bytes) {
        Some(()) => Records(&bytes).next().flatten(),
        None => return,
    };
    let Some(first) = first.filter(|first| first.phase == Phase::Memory) else {
        return pass_on(bytes, socket, number, to);
    };
    // The process waits for the answer: nothing has been read beyond this record.
    let ring = (socket.get_ref().try_clone()).and_then(|s| Ring::open(first.text(0), s));
    match ring {
        Ok(ring) => pass_on(
            Vec::new(),
            BufReader::with_capacity(READ_BYTES, ring),
            number,
            to,
        ),
        Err(_) => pass_on(Vec::new(), socket, number, to),
    }
}

/// Passes on records from a stream; those that have come together, together.
fn pass_on(
    mut batch: Vec<u8>,
    mut stream: BufReader<impl Read>,
    number: u64,
    to: &SyncSender<Event>,
) {
    while append(&mut stream, &mut batch).is_some() {
        let is_over = !has_another(stream.buffer()) || batch.len() >= READ_BYTES;
        let mut send = || to.send(Event::Records(number, std::mem::take(&mut batch)));
        if is_over && send().is_err() {
            return;
        }
    }
    if !batch.is_empty() {
        let _ = to.send(Event::Records(number, batch));
    }
}

/// Adds the next record to a batch; none at the end, and when there is something else.
fn append(stream: &mut impl Read, batch: &mut Vec<u8>) -> Option<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let n = Some(u32::from_le_bytes(length)).filter(|&n| n <= MOST_BYTES)?;
    let before = batch.len();
    batch.extend_from_slice(&length);
    batch.resize(before + length.len() + n as usize, 0);
    let read = stream.read_exact(&mut batch[before + length.len()..]);
    if read.is_err() {
        batch.truncate(before);
    }
    read.ok()
}

/// The records of a batch; none instead of one that is no record.
pub struct Records<'a>(pub &'a [u8]);

impl Iterator for Records<'_> {
    type Item = Option<Record>;

    fn next(&mut self) -> Option<Option<Record>> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(Record::read(bytes))
    }
}

/// Whether a whole record has been read already.
fn has_another(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return false;
    };
    rest.len() >= u32::from_le_bytes(*length) as usize
}
