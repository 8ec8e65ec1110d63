//! A worker's deque: its owner pushes and pops at the tail, thieves take from the head.
//!
//! The protocol is Cilk-5's THE (Frigo, Leiserson, Randall, "The implementation of the Cilk-5
//! multithreaded language", 1998) with the fence of the owner's side moved to the thief's
//! ([`fence`]): owners pop millions of times for each theft.
//!
//! - `tail` is written by the owner alone, `head` by the worker that holds the thieves' lock. The
//!   entries are those from `head` to `tail`.
//! - Owner, `pop`: lowers `tail`, light fence, reads `head`. If `head` has not passed, the entry is
//!   the owner's: a thief that comes later sees the lowered `tail`. If it has, a thief is at the
//!   same entry; the owner restores `tail`, takes the lock and looks again, undisturbed.
//! - Thief, `steal`: under the lock, raises `head`, heavy fence, reads `tail`. If `tail` is not
//!   below, the entry is the thief's: the owner reads the raised `head` from now on. Otherwise the
//!   thief lowers `head` again; the owner has taken the entry.
//!
//! The heavy fence interrupts the owner's core, which in a virtual machine can take longer than a
//! short task. So it comes with a mark, `fences`: while that is set the owner executes a full fence
//! at each pop and thieves one of their own, until no theft has come for a while. The mark is
//! changed under the lock. The owner reads it after its write of `tail`: if it reads 0, its write
//! came before the heavy fence of the next thief, which will see it. And as each thief sets the
//! mark before it fences, `head` is still what it was when the owner cleared the mark; it keeps
//! that in `floor`. So most pops read nothing that thieves write but the mark. Where the kernel has
//! no such fence the mark is always set.
//!
//! A processor forwards what was just stored to a load in four or five cycles, and push and pop of
//! a fork in a fork go through `tail` one after the other. So who pushes keeps the place, and
//! [`take_back`](Owner::take_back) stores that, which depends on no load.
//!
//! By the fence at least one of the two sees the other's write when they want the same entry; when
//! both see it, the thief backs off and the owner, waiting for the lock, gets the entry.
//!
//! Orderings: `tail` is stored with release and loaded by thieves with acquire, so that a thief
//! sees the entry that the owner wrote. The owner takes an empty deque for empty only if no thief
//! had a turn meanwhile, since one that looks at the last entry and leaves it hides it for that
//! time. The owner learns how far thieves have come under their lock (acquire and release), so that
//! a slot is written again only after the thief has read it. All else is ordered by the two fences.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::sleepers::WakeRequest;
use margay_sys_os::fence;
use margay_sys_os::sync::{AtomicU32, AtomicU64, Cell, Ordering, fence as full_fence};

/// Entries that a new deque has room for; it grows when they are used up.
const FIRST_LEN: usize = 256;

/// Pops without a theft after which an owner leaves the fence to the next thief again. That number
/// of fences costs about as much as interrupting the owner's core once.
const FENCED_POPS: u32 = if cfg!(loom) { 0 } else { 256 };

/// What fits in one machine word and comes out of it again.
///
/// # Safety
/// `from_word(into_word(x))` is `x`, on whichever thread. A word is turned back once.
pub unsafe trait Word: Send {
    fn into_word(self) -> u64;

    /// # Safety
    /// `word` comes from [`into_word`](Self::into_word) and has not been turned back.
    unsafe fn from_word(word: u64) -> Self;
}

// SAFETY: the address of an allocation tells all of a box of a sized type.
unsafe impl<T: Send> Word for Box<T> {
    fn into_word(self) -> u64 {
        Box::into_raw(self).expose_provenance() as u64
    }

    unsafe fn from_word(word: u64) -> Self {
        // SAFETY: the word is the address of a box that was given up.
        unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(word as usize)) }
    }
}

// SAFETY: the address of an allocation tells all of a counted pointer to a sized type.
unsafe impl<T: Send + Sync> Word for Arc<T> {
    fn into_word(self) -> u64 {
        Arc::into_raw(self).expose_provenance() as u64
    }

    unsafe fn from_word(word: u64) -> Self {
        // SAFETY: the word is the address of a counted pointer that was given up.
        unsafe { Arc::from_raw(std::ptr::with_exposed_provenance(word as usize)) }
    }
}

/// One cache line and its neighbour, which some processors fetch together.
#[repr(align(128))]
struct Line<T>(T);

struct Shared<T: Word> {
    tail: Line<Tail>,
    thieves: Line<Thieves>,
    /// Replaced by the owner, under the lock, when it is full; thieves read it under the lock.
    slots: Cell<Box<[AtomicU64]>>,
    entries: PhantomData<T>,
}

struct Tail {
    tail: AtomicU64,
    /// Raised by who sleeps and wants to be woken for what is pushed.
    call: WakeRequest,
    /// Not 0: the owner fences for itself. Raised by each theft, cleared by the owner where it need
    /// not; both under the lock.
    fences: AtomicU32,
}

struct Thieves {
    head: AtomicU64,
    /// Odd while it is held; each turn raises it by two.
    lock: AtomicU32,
}

// SAFETY: `slots` is changed only by the owner and under the lock; the entries may go to any
// thread.
unsafe impl<T: Word> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Word> Send for Shared<T> {}

/// The owner's end. One thread at a time holds it.
pub struct Owner<T: Word> {
    shared: Arc<Shared<T>>,
    /// Below this tail there is room for another entry; a cached lower bound, so that a push need
    /// not read `head`. (A cell also keeps the owner's end from being shared between threads.)
    limit: std::cell::Cell<u64>,
    /// Where the slots are and how many, less one; kept here so that the fast paths need not follow
    /// a pointer for it.
    slots: std::cell::Cell<*const AtomicU64>,
    mask: std::cell::Cell<usize>,
    /// The count of thefts seen last, and pops since then.
    fenced: std::cell::Cell<(u32, u32)>,
    /// While `fences` is 0: `head`.
    floor: std::cell::Cell<u64>,
}

// SAFETY: the pointer is to what `shared` owns, and only the holder of this end uses it.
unsafe impl<T: Word> Send for Owner<T> {}

/// A thief's end; may be cloned and used by any thread.
pub struct Stealer<T: Word> {
    shared: Arc<Shared<T>>,
}

impl<T: Word> Clone for Stealer<T> {
    fn clone(&self) -> Self {
        Stealer {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// An empty deque.
#[must_use]
pub fn deque<T: Word>() -> (Owner<T>, Stealer<T>) {
    let shared = Arc::new(Shared {
        tail: Line(Tail {
            tail: AtomicU64::new(0),
            call: WakeRequest::new(),
            fences: AtomicU32::new(u32::from(!fence::is_light())),
        }),
        thieves: Line(Thieves {
            head: AtomicU64::new(0),
            lock: AtomicU32::new(0),
        }),
        slots: Cell::new(slots(FIRST_LEN)),
        entries: PhantomData,
    });
    let stealer = Stealer {
        shared: Arc::clone(&shared),
    };
    let owner = Owner {
        shared,
        limit: std::cell::Cell::new(FIRST_LEN as u64),
        slots: std::cell::Cell::new(std::ptr::null()),
        mask: std::cell::Cell::new(FIRST_LEN - 1),
        fenced: std::cell::Cell::new((0, 0)),
        floor: std::cell::Cell::new(0),
    };
    owner.find_slots();
    (owner, stealer)
}

fn slots(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

impl<T: Word> Owner<T> {
    /// Puts an entry at the tail, and returns where it is, for [`take_back`](Self::take_back).
    /// Grows when full, and so is bounded by memory alone: what is in here has been forked by a
    /// program and has to be kept.
    #[inline]
    pub fn push(&self, entry: T) -> u64 {
        let shared = &*self.shared;
        let tail = shared.tail.0.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.limit.get()) as i64 >= 0 {
            self.make_room(tail);
        }
        self.slot(tail).store(entry.into_word(), Ordering::Relaxed);
        shared
            .tail
            .0
            .tail
            .store(tail.wrapping_add(1), Ordering::Release);
        tail
    }

    /// Whether somebody sleeps who may have to be woken for what is pushed; in the line that a push
    /// writes.
    #[inline]
    #[must_use]
    pub fn call(&self) -> &WakeRequest {
        &self.shared.tail.0.call
    }

    /// Looks how far thieves have come, and makes the deque larger when that leaves no room.
    #[cold]
    fn make_room(&self, tail: u64) {
        let shared = &*self.shared;
        shared.lock();
        let head = shared.thieves.0.head.load(Ordering::Relaxed);
        shared.slots.with_mut(|old| {
            // SAFETY: only the owner changes the slots, thieves read them under the lock, which is
            // held.
            let old = unsafe { &mut *old };
            let entries = tail.wrapping_sub(head);
            if entries >= old.len() as u64 / 2 {
                let larger = slots(old.len() * 2);
                for at in 0..entries {
                    let at = head.wrapping_add(at) as usize;
                    let word = old[at & (old.len() - 1)].load(Ordering::Relaxed);
                    larger[at & (larger.len() - 1)].store(word, Ordering::Relaxed);
                }
                *old = larger;
            }
            self.limit.set(head.wrapping_add(old.len() as u64));
        });
        self.find_slots();
        shared.unlock();
    }

    /// Takes the entry at the tail, the youngest.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        if self.shared.is_empty() && self.is_empty_for_good() {
            return None;
        }
        let last = self.end().wrapping_sub(1);
        let word = self.slot(last).load(Ordering::Relaxed);
        // SAFETY: the entry lies no longer between head and tail, and it is this thread that took
        // it out.
        self.take_back(last).then(|| unsafe { T::from_word(word) })
    }

    /// Takes an entry out by where it is, if it is the youngest and still there. The one that
    /// pushed it knows what it is.
    #[inline]
    #[must_use]
    pub fn take_back(&self, at: u64) -> bool {
        let Tail { tail, fences, .. } = &self.shared.tail.0;
        if tail.load(Ordering::Relaxed).wrapping_sub(1) != at {
            return false;
        }
        // Release, as every store to the tail: a thief that reads this one has to see what lies
        // below.
        tail.store(at, Ordering::Release);
        fence::compiler();
        if fences.load(Ordering::Relaxed) == 0 && at.wrapping_sub(self.floor.get()) as i64 >= 0 {
            return true;
        }
        self.take_back_fenced(at)
    }

    /// The tail has been lowered to `at`.
    #[cold]
    #[inline(never)]
    fn take_back_fenced(&self, at: u64) -> bool {
        let shared = &*self.shared;
        full_fence(Ordering::SeqCst);
        // Acquire: a thief that has left the entry here has looked at it before.
        let head = shared.thieves.0.head.load(Ordering::Acquire);
        let is_here = at.wrapping_sub(head) as i64 >= 0 || self.take_back_contested(at);
        let fences = shared.tail.0.fences.load(Ordering::Relaxed);
        if fences != 0 {
            self.count_fence(fences);
        }
        is_here
    }

    /// Whether nothing is there, and not only because a thief looks at the last entry and will
    /// leave it. Nobody but the owner raises the tail, so what is gone is gone.
    fn is_empty_for_good(&self) -> bool {
        let shared = &*self.shared;
        let turn = shared.thieves.0.lock.load(Ordering::Acquire);
        let is_empty = shared.is_empty();
        // A thief raises `head` (release) after it has taken its turn: a thread that has seen that
        // (acquire) sees the turn, too.
        if turn.is_multiple_of(2) && shared.thieves.0.lock.load(Ordering::Relaxed) == turn {
            return is_empty;
        }
        shared.lock();
        let is_empty = shared.is_empty();
        shared.unlock();
        is_empty
    }

    /// The owner fences once more for itself. When no theft has come for a while it stops that.
    fn count_fence(&self, fences: u32) {
        let shared = &*self.shared;
        let (seen, since) = self.fenced.get();
        if seen != fences {
            self.fenced.set((fences, 0));
        } else if since < FENCED_POPS {
            self.fenced.set((seen, since + 1));
        } else if fence::is_light() && shared.try_lock() {
            let head = shared.thieves.0.head.load(Ordering::Relaxed);
            self.floor.set(head);
            shared.tail.0.fences.store(0, Ordering::Relaxed);
            shared.unlock();
            self.fenced.set((0, 0));
        }
    }

    /// A thief was or is at the last entry, which is at `at`. Tells whether the owner has it.
    #[cold]
    fn take_back_contested(&self, at: u64) -> bool {
        let shared = &*self.shared;
        let tail = &shared.tail.0.tail;
        tail.store(at.wrapping_add(1), Ordering::Release);
        shared.lock();
        let head = shared.thieves.0.head.load(Ordering::Relaxed);
        let is_here = at.wrapping_sub(head) as i64 >= 0;
        if is_here {
            tail.store(at, Ordering::Release);
        }
        shared.unlock();
        is_here
    }

    /// Where the next entry goes: the number of entries pushed less those popped, ever.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.shared.tail.0.tail.load(Ordering::Relaxed)
    }

    #[inline]
    fn slot(&self, at: u64) -> &AtomicU64 {
        // SAFETY: `find_slots` was called after the last change of the slots, which only this
        // thread makes; there are mask + 1 of them.
        unsafe { &*self.slots.get().add(at as usize & self.mask.get()) }
    }

    fn find_slots(&self) {
        self.shared.slots.with(|slots| {
            // SAFETY: only this thread changes the slots, and not now.
            let slots = unsafe { &*slots };
            self.slots.set(slots.as_ptr());
            self.mask.set(slots.len() - 1);
        });
    }

    /// Whether nothing is there for the owner. Thieves may make it so at any time.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }
}

impl<T: Word> Stealer<T> {
    /// Takes the oldest entry if it pleases; what does not stays. None also when another thief is
    /// at it.
    pub fn steal_if(&self, pleases: impl FnOnce(&T) -> bool) -> Option<T> {
        let shared = &*self.shared;
        if shared.is_empty() || !shared.try_lock() {
            return None;
        }
        let stolen = self.steal_locked(pleases);
        shared.unlock();
        stolen
    }

    fn steal_locked(&self, pleases: impl FnOnce(&T) -> bool) -> Option<T> {
        let shared = &*self.shared;
        if shared.is_empty() {
            return None;
        }
        let head = shared.thieves.0.head.load(Ordering::Relaxed);
        shared
            .thieves
            .0
            .head
            .store(head.wrapping_add(1), Ordering::Release);
        let fences = &shared.tail.0.fences;
        let before = fences.load(Ordering::Relaxed);
        fences.store(before.checked_add(1).unwrap_or(1), Ordering::Relaxed);
        if before == 0 {
            fence::heavy();
        } else {
            full_fence(Ordering::SeqCst);
        }
        let tail = shared.tail.0.tail.load(Ordering::Acquire);
        if tail.wrapping_sub(head) as i64 > 0 {
            let word = shared.slots.with(|slots| {
                // SAFETY: the slots do not change while the lock is held.
                let slots = unsafe { &*slots };
                slots[head as usize & (slots.len() - 1)].load(Ordering::Relaxed)
            });
            // SAFETY: the entry lies no longer between head and tail, and it is this thread that
            // took it out.
            let entry = unsafe { T::from_word(word) };
            if pleases(&entry) {
                return Some(entry);
            }
            // It stays where it is; its word is still in the slot.
            std::mem::forget(entry);
        }
        shared.thieves.0.head.store(head, Ordering::Release);
        None
    }

    /// To be raised by who sleeps and wants to be woken for what is pushed.
    #[must_use]
    pub fn call(&self) -> &WakeRequest {
        &self.shared.tail.0.call
    }

    /// Whether there was nothing to take a moment ago.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }
}

impl<T: Word> Shared<T> {
    #[inline]
    fn is_empty(&self) -> bool {
        let head = self.thieves.0.head.load(Ordering::Acquire);
        let tail = self.tail.0.tail.load(Ordering::Acquire);
        tail.wrapping_sub(head) as i64 <= 0
    }

    fn try_lock(&self) -> bool {
        let lock = &self.thieves.0.lock;
        let turn = lock.load(Ordering::Relaxed);
        turn.is_multiple_of(2)
            && lock
                .compare_exchange(
                    turn,
                    turn.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// For the owner. A thief holds the lock for about a microsecond.
    fn lock(&self) {
        let mut spins = 0_u32;
        while !self.try_lock() {
            spins += 1;
            relax(spins);
        }
    }

    fn unlock(&self) {
        let lock = &self.thieves.0.lock;
        // Only the holder writes it.
        lock.store(
            lock.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
    }
}

impl<T: Word> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.tail.load(Ordering::Relaxed);
        let mut at = self.thieves.0.head.load(Ordering::Relaxed);
        while tail.wrapping_sub(at) as i64 > 0 {
            let word = self.slots.with(|slots| {
                // SAFETY: nobody else has this deque any more.
                let slots = unsafe { &*slots };
                slots[at as usize & (slots.len() - 1)].load(Ordering::Relaxed)
            });
            // SAFETY: the entry was put in and never taken.
            drop(unsafe { T::from_word(word) });
            at = at.wrapping_add(1);
        }
    }
}

#[cfg(not(loom))]
fn relax(spins: u32) {
    if spins.is_multiple_of(64) {
        margay_sys_os::cpu::yield_now();
    } else {
        margay_sys_os::cpu::pause();
    }
}

#[cfg(loom)]
fn relax(_looks: u32) {
    loom::thread::yield_now();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn the_owner_takes_the_youngest_and_thieves_the_oldest() {
        let (owner, stealer) = deque::<Box<u32>>();
        for value in 0..1000 {
            owner.push(Box::new(value));
        }
        assert_eq!(owner.pop().as_deref(), Some(&999));
        assert_eq!(stealer.steal_if(|_| true).as_deref(), Some(&0));
        assert!(stealer.steal_if(|oldest| **oldest != 1).is_none());
        for value in 1..500 {
            assert_eq!(stealer.steal_if(|_| true).as_deref(), Some(&value));
        }
        for value in (500..999).rev() {
            assert_eq!(owner.pop().as_deref(), Some(&value));
        }
        assert!(owner.pop().is_none() && stealer.is_empty());
    }

    #[test]
    fn the_owner_finds_the_last_entry_while_a_thief_looks_at_it_and_leaves_it() {
        margay_sys_os::fence::register();
        let (owner, stealer) = deque::<Box<u32>>();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                margay_sys_os::fence::register();
                while !is_over.load(Ordering::Relaxed) {
                    assert!(stealer.steal_if(|_| false).is_none());
                }
            });
            // Miri takes a thousand times as long.
            let rounds = if cfg!(miri) { 100 } else { 20_000 };
            let found = (0..rounds).all(|value| {
                owner.push(Box::new(value));
                (0..value % 64).for_each(|_| std::hint::spin_loop());
                owner.pop().as_deref() == Some(&value)
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(found);
        });
    }

    #[test]
    fn each_entry_is_taken_once_while_thieves_and_owner_meet_at_the_last() {
        margay_sys_os::fence::register();
        // Miri takes a thousand times as long.
        const ENTRIES: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let (owner, stealer) = deque::<Box<u64>>();
        let (sum, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let stealer = stealer.clone();
                let (sum, is_over) = (&sum, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        if let Some(entry) = stealer.steal_if(|_| true) {
                            sum.fetch_add(*entry, Ordering::Relaxed);
                        }
                    }
                });
            }
            for entry in 1..=ENTRIES {
                owner.push(Box::new(entry));
                if entry % 3 != 0
                    && let Some(entry) = owner.pop()
                {
                    sum.fetch_add(*entry, Ordering::Relaxed);
                }
            }
            while let Some(entry) = owner.pop() {
                sum.fetch_add(*entry, Ordering::Relaxed);
            }
            is_over.store(true, Ordering::Release);
        });
        assert_eq!(sum.into_inner(), ENTRIES * (ENTRIES + 1) / 2);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    /// Counts how often each number was taken.
    struct Number(u64);

    // SAFETY: a number is its own word.
    unsafe impl Word for Number {
        fn into_word(self) -> u64 {
            self.0
        }

        unsafe fn from_word(word: u64) -> Self {
            Number(word)
        }
    }

    /// Tries twice; the sum of what it got.
    fn thief(stealer: Stealer<Number>) -> loom::thread::JoinHandle<u64> {
        loom::thread::spawn(move || {
            let mut taken = 0;
            for _ in 0..2 {
                if let Some(Number(word)) = stealer.steal_if(|_| true) {
                    taken += word;
                }
            }
            taken
        })
    }

    #[test]
    fn deque_gives_each_entry_to_one() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (owner, stealer) = deque::<Number>();
            let thief = thief(stealer);
            owner.push(Number(1));
            owner.push(Number(10));
            let mut taken = owner.pop().map_or(0, |n| n.0);
            owner.push(Number(100));
            taken += owner.pop().map_or(0, |n| n.0);
            taken += owner.pop().map_or(0, |n| n.0);
            taken += thief.join().unwrap();
            while let Some(Number(word)) = owner.pop() {
                taken += word;
            }
            assert_eq!(taken, 111);
        });
    }

    /// As forks do: each takes its own back by its place, or learns that it was stolen. With the
    /// mark set, cleared and set again.
    #[test]
    fn deque_gives_each_place_back_or_to_a_thief() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (owner, stealer) = deque::<Number>();
            let thief = thief(stealer);
            let mut taken = 0;
            let first = owner.push(Number(1));
            for word in [10, 100, 1000] {
                let place = owner.push(Number(word));
                if owner.take_back(place) {
                    taken += word;
                }
            }
            if owner.take_back(first) {
                taken += 1;
            }
            taken += thief.join().unwrap();
            assert_eq!(taken, 1111);
        });
    }

    #[test]
    fn deque_hides_no_entry_that_a_thief_leaves() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (owner, stealer) = deque::<Number>();
            owner.push(Number(1));
            let thief = loom::thread::spawn(move || {
                for _ in 0..2 {
                    assert!(stealer.steal_if(|_| false).is_none());
                }
            });
            assert!(owner.pop().is_some());
            assert!(owner.pop().is_none());
            thief.join().unwrap();
        });
    }
}
