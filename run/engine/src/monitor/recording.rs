//! The flight recorder of a rank, with a ring for each thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margay_core_record::{
    Call, Kind, Message, NameCell, Origin, Recorder, Shape, Timer, take_lines,
};
use margay_core_registry::CallName;
use margay_sys_os::kept::Words;
use margay_sys_os::process::thread_id;
use margay_sys_os::static_ref::StaticRef;
use margay_sys_os::{clock, symbols};

use super::python;

/// This machine's time and files.
struct Machine;

impl Timer for Machine {
    type Name = Name;

    #[inline]
    fn ticks() -> u64 {
        clock::ticks()
    }

    fn now_ns() -> u64 {
        clock::now_ns()
    }

    fn module_of(address: u64) -> Option<(u64, Vec<u8>)> {
        python::module_of(address).or_else(|| {
            let (base, path) = symbols::module_of(address as usize)?;
            Some((base as u64, path))
        })
    }
}

/// A name in a word of its own.
struct Name(StaticRef<CallName>);

impl Default for Name {
    fn default() -> Name {
        Name(StaticRef::none())
    }
}

impl NameCell for Name {
    #[inline]
    fn set(&self, call: Option<&'static CallName>) {
        self.0.set(call, Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> Option<&'static CallName> {
        self.0.get(Ordering::Relaxed)
    }
}

type RankRecorder = Recorder<Words, Machine>;

/// The ring of the main thread, and of all threads while one at a time calls.
const MAIN: usize = 0;
/// Threads of which is recorded what they do in libraries of threads.
const THREADS: usize = 32;

/// The flight recorder of a rank, once it has memory for it.
#[derive(Default)]
pub struct Recording {
    recorder: OnceLock<Arc<RankRecorder>>,
    /// One thread at a time calls.
    is_single: AtomicBool,
    /// Also calls that are done with less work than a record.
    has_all: AtomicBool,
    /// The program may be one in Python.
    has_python: AtomicBool,
    /// For what threads do in libraries of threads: the thread, and in the lower half its ring.
    threads: [AtomicU64; THREADS],
    /// What members of teams do at the moment.
    kept: OnceLock<Option<&'static [AtomicU64]>>,
}

/// The calling thread's ring; given back when the thread ends.
struct Lane {
    recorder: Arc<RankRecorder>,
    index: usize,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.recorder.leave_lane(self.index);
    }
}

/// A ring of a recorder, named by its address. No ring is as good as none yet known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Here(usize, Option<usize>);

thread_local! {
    static LANE: Cell<Here> = const { Cell::new(Here(0, None)) };
    /// Not touched by the main thread, which keeps its ring.
    static KEPT: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

/// A call that is recorded; it ends when this is dropped.
#[must_use]
pub struct InCall<'a>(Option<(&'a RankRecorder, Call)>);

impl Drop for InCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((recorder, call)) = self.0 {
            recorder.end(call);
        }
    }
}

impl Recording {
    /// From now on calls are recorded in `words`.
    pub fn start(&self, words: Words, shape: Shape, has_all: bool) {
        self.has_all.store(has_all, Ordering::Relaxed);
        (self.has_python).store(python::is_there(), Ordering::Relaxed);
        if let Some(recorder) = Recorder::new(words, shape) {
            recorder.take_lane(std::process::id());
            let _ = self.recorder.set(Arc::new(recorder));
        }
    }

    /// Whether calls are recorded that are done with less work than a record.
    #[inline]
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.has_all.load(Ordering::Relaxed)
    }

    /// Whether one thread at a time calls.
    pub fn set_single(&self, is_single: bool) {
        self.is_single.store(is_single, Ordering::Relaxed);
    }

    #[inline]
    fn here(&self) -> Option<(&RankRecorder, usize)> {
        let recorder = self.recorder.get()?;
        if self.is_single.load(Ordering::Relaxed) {
            return Some((recorder, MAIN));
        }
        let me = Arc::as_ptr(recorder).addr();
        let lane = match LANE.get() {
            Here(owner, lane) if owner == me => lane,
            _ => Recording::take_lane(recorder),
        };
        Some((recorder, lane?))
    }

    /// The calling thread's ring in a recorder that it has not used before.
    #[cold]
    fn take_lane(recorder: &Arc<RankRecorder>) -> Option<usize> {
        let thread = thread_id();
        let index = match thread == std::process::id() {
            true => Some(MAIN),
            false => recorder.take_lane(thread).and_then(|index| {
                let lane = Lane {
                    recorder: recorder.clone(),
                    index,
                };
                // At the very end of a thread nothing can be kept for it any more.
                let kept = KEPT.try_with(|kept| kept.borrow_mut().replace(lane));
                kept.is_ok().then_some(index)
            }),
        };
        LANE.set(Here(Arc::as_ptr(recorder).addr(), index));
        index
    }

    /// The calling thread begins a call of the program. Not inline: it stands in some 900
    /// functions, and as a part of each the library would be a twelfth larger.
    #[inline(never)]
    pub fn call(&self, call: &'static CallName, from: u64) -> InCall<'_> {
        let from = match self.has_python.load(Ordering::Relaxed) {
            true => python::caller(from),
            false => from,
        };
        if let Some(recorder) = self.recorder.get()
            && self.is_single.load(Ordering::Relaxed)
        {
            let begun = recorder.begin(MAIN, Origin { call, from });
            return InCall(Some((recorder, begun)));
        }
        self.call_of_thread(call, from)
    }

    /// The same where threads call at the same time.
    #[inline(never)]
    fn call_of_thread(&self, call: &'static CallName, from: u64) -> InCall<'_> {
        let Some((recorder, lane)) = self.here() else {
            self.unrecorded();
            return InCall(None);
        };
        let begun = recorder.begin(lane, Origin { call, from });
        InCall(Some((recorder, begun)))
    }

    /// The calling thread's calls that were only counted are recorded, before the program ends.
    pub fn settle(&self) {
        if let Some((recorder, lane)) = self.here() {
            recorder.settle(lane);
        }
    }

    /// The calling thread has done something in a library of threads since `start`, in ticks. Such
    /// records have rings of their own, one for each thread of the system: that of calls may be
    /// one for all threads, or one for each member of a team.
    pub fn threads(&self, name: &'static CallName, from: u64, start: u64) {
        let Some(recorder) = self.recorder.get() else {
            return;
        };
        match self.lane_of(recorder, thread_id()) {
            Some(index) => recorder.threads(index, Origin { call: name, from }, start),
            None => recorder.unrecorded(),
        }
    }

    /// This many words for what members of a team do, of a note that `make` makes.
    pub fn keep_threads(
        &self,
        words: usize,
        make: impl FnOnce() -> Option<Words>,
    ) -> Option<&'static [AtomicU64]> {
        self.recorder.get()?;
        let note = (*self.kept.get_or_init(|| make().map(Words::leak)))?;
        take_lines(note, words)
    }

    /// The ring for what a thread does in libraries of threads. It keeps it when it ends.
    fn lane_of(&self, recorder: &RankRecorder, thread: u32) -> Option<usize> {
        for owner in &self.threads {
            let mut known = owner.load(Ordering::Acquire);
            if known == 0 {
                let index = recorder.take_lane(thread)?;
                let new = u64::from(thread) << 32 | index as u64;
                let first = owner.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire);
                known = match first {
                    Ok(_) => new,
                    Err(other) => {
                        recorder.leave_lane(index);
                        other
                    }
                };
            }
            if known >> 32 == u64::from(thread) {
                return Some(known as u32 as usize);
            }
        }
        None
    }

    /// The number of the call site from which the calling thread has called last; 0 when that is
    /// not recorded.
    #[inline]
    #[must_use]
    pub fn call_site(&self) -> u16 {
        let here = self.here();
        here.map_or(0, |(recorder, lane)| recorder.call_site(lane))
    }

    /// A call that has no ring.
    #[cold]
    fn unrecorded(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.unrecorded();
        }
    }

    /// The call of this thread sends, receives or posts a message between ranks of a program;
    /// others are not recorded.
    #[inline]
    pub(crate) fn message(&self, message: Message) {
        let is_program = message.context.is_multiple_of(2) && message.context <= i32::MAX as u32;
        if is_program && let Some((recorder, lane)) = self.here() {
            recorder.message(lane, message);
        }
    }

    /// The call of this thread is a collective operation of `ranks` ranks with `bytes` bytes of
    /// this one.
    #[inline]
    pub fn collective(&self, context: u32, root: Option<u32>, ranks: u32, bytes: u64) {
        self.other(Kind::Collective, context, root, ranks, bytes);
    }

    /// The call of this thread reads bytes of a file or writes them.
    pub fn file(&self, is_write: bool, file: u32, bytes: u64) {
        let kind = if is_write { Kind::Write } else { Kind::Read };
        self.other(kind, file, None, 0, bytes);
    }

    #[inline]
    fn other(&self, kind: Kind, context: u32, peer: Option<u32>, tag: u32, bytes: u64) {
        if let Some((recorder, lane)) = self.here() {
            let message = Message {
                kind,
                peer: peer.unwrap_or(margay_core_record::NO_PEER),
                tag,
                context,
                bytes,
                request: 0,
            };
            recorder.message(lane, message);
        }
    }

    /// The call of this thread has waited for so long.
    #[cold]
    pub(crate) fn waits(&self, ns: u64) {
        if let Some((recorder, lane)) = self.here() {
            recorder.waits(lane, ns);
        }
    }
}
