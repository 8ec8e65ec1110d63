//! Functions into which a compiler has outlined the body of an OpenMP construct, and the data that
//! they get.
//!
//! A compiler turns the body of a parallel region, a task or a target region into a function of one
//! pointer, and calls the runtime with the two. Making one of the types here is taking the
//! compiler's word for both; calling it is safe from then on, as long as the lifetime lasts for
//! which the word was given.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::{hint, mem, ptr};

use crate::border::outside;
use crate::caller::{Callee, call_framed};

/// An outlined function and the pointer that it gets, for the time of the construct.
#[derive(Clone, Copy, Debug)]
pub struct Outlined<'c> {
    body: unsafe extern "C-unwind" fn(*mut c_void),
    data: *mut c_void,
    /// See [`site`](Self::site).
    site: usize,
    construct: PhantomData<&'c ()>,
}

// SAFETY: by the promise of `new` it may be called on any thread.
unsafe impl Send for Outlined<'_> {}
// SAFETY: as above.
unsafe impl Sync for Outlined<'_> {}

impl<'c> Outlined<'c> {
    /// Takes the compiler's word.
    ///
    /// # Safety
    /// As long as `'c` lasts, `body(data)` may be called by any thread, as often and by as many at
    /// a time as the construct says, and no exception leaves it, as OpenMP asks. The runtime to
    /// which this is given for a parallel region may [post](Posted) it: then so it is until that
    /// has joined the members of the region, which alone run what is posted.
    #[must_use]
    pub unsafe fn new(body: unsafe extern "C-unwind" fn(*mut c_void), data: *mut c_void) -> Self {
        Outlined {
            body,
            data,
            site: (body as *const ()).addr(),
            construct: PhantomData,
        }
    }

    /// The same for a construct that is distinguished by `site`, because one function serves many.
    #[inline]
    #[must_use]
    pub fn at(self, site: usize) -> Self {
        Outlined { site, ..self }
    }

    /// A number by which constructs are distinguished: the address of the function, mostly.
    #[inline]
    #[must_use]
    pub fn site(self) -> usize {
        self.site
    }

    /// Runs the body.
    #[inline]
    pub fn call(self) {
        // SAFETY: by the promise of `new`.
        outside(|| unsafe { (self.body)(self.data) });
    }

    /// The same from a frame whose frame pointer `frame` gets before, for tools.
    pub fn call_for_tool(self, frame: &AtomicU64) {
        // SAFETY: by the promise of `new`.
        unsafe { call_for_tool(false, self.body, self.data, frame) };
    }
}

/// Calls a body, which crosses the border itself if it `stays_inside`.
#[inline]
fn call_from(stays_inside: bool, body: impl FnOnce()) {
    if stays_inside {
        body();
    } else {
        outside(body);
    }
}

/// Calls `body(data)` from a frame whose frame pointer `frame` gets before, for tools.
///
/// # Safety
/// The body may be called with this data.
unsafe fn call_for_tool(
    stays_inside: bool,
    body: unsafe extern "C-unwind" fn(*mut c_void),
    data: *mut c_void,
    frame: &AtomicU64,
) {
    // SAFETY: a function of one word ignores a second one, which is passed in a register (System V
    // ABI, AAPCS64).
    let body = unsafe { mem::transmute::<unsafe extern "C-unwind" fn(*mut c_void), Callee>(body) };
    // SAFETY: by the caller's promise.
    call_from(stays_inside, || unsafe {
        call_framed(body, data, ptr::null_mut(), frame);
    });
}

/// A place for an [`Outlined`] that one thread posts, again and again, and others read. Posting
/// what is there already, as a loop around a construct does, costs no locked instruction. A
/// sequence lock: the version is odd while the two words are written.
///
/// Why nothing posted runs when its construct is over, which no type says: members of a region
/// alone run it, each with a number that was [claimed](crate::claims::Claims::claim) since the
/// region was opened, or as the first. The poster opens the region after it has posted, and joins
/// it before it returns: it waits until all numbers but its own have been counted as gone, or has
/// run all by itself. A member is counted after its body and its tasks are over, and each number is
/// claimed once. So when the join ends nobody is between a claim and the count, nobody can claim
/// before the region is opened again, and before that something else is posted. To take it down at
/// the join would cost each region the two stores and the locked instruction that posting what is
/// there already saves.
#[derive(Debug, Default)]
pub struct Posted {
    version: AtomicU64,
    body: AtomicPtr<c_void>,
    data: AtomicPtr<c_void>,
}

impl Posted {
    /// Posts a function, or none. By one at a time; another one waits.
    #[inline]
    pub fn set(&self, outlined: Option<Outlined<'_>>) {
        let body = outlined.map_or(ptr::null_mut(), |outlined| outlined.body as *mut c_void);
        let data = outlined.map_or(ptr::null_mut(), |outlined| outlined.data);
        if self.words() != (body, data) {
            self.write(body, data);
        }
    }

    /// Runs what was posted last, if anything: nobody gets hold of it for later. For members of the
    /// region for which it was posted.
    #[inline]
    pub fn run(&self) {
        if let Some(outlined) = self.get() {
            outlined.call();
        }
    }

    /// The same from a frame whose frame pointer `frame` gets before, for tools.
    pub fn run_for_tool(&self, frame: &AtomicU64) {
        if let Some(outlined) = self.get() {
            outlined.call_for_tool(frame);
        }
    }

    #[inline]
    fn get(&self) -> Option<Outlined<'_>> {
        let (body, data) = self.words();
        if body.is_null() {
            return None;
        }
        // SAFETY: not null, so it comes from a function pointer of this type.
        let body = unsafe {
            mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut c_void)>(body)
        };
        // The two were posted together, so the promise of `Outlined::new` was given for them.
        Some(Outlined {
            body,
            data,
            site: (body as *const ()).addr(),
            construct: PhantomData,
        })
    }

    #[inline]
    fn words(&self) -> (*mut c_void, *mut c_void) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = (
                self.body.load(Ordering::Relaxed),
                self.data.load(Ordering::Relaxed),
            );
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return words;
            }
            hint::spin_loop();
        }
    }

    fn write(&self, body: *mut c_void, data: *mut c_void) {
        let mut version = self.version.load(Ordering::Relaxed);
        while !version.is_multiple_of(2)
            || self
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            hint::spin_loop();
            version = self.version.load(Ordering::Relaxed);
        }
        fence(Ordering::Release);
        self.body.store(body, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// How the arguments of a task get from its creator's frame into memory of their own.
pub type CopyArguments = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// The call that creates a task: its outlined function, and its arguments in the creator's frame,
/// until it returns.
#[derive(Debug)]
pub struct TaskCall<'c> {
    body: unsafe extern "C-unwind" fn(*mut c_void),
    data: *mut c_void,
    copy: Option<CopyArguments>,
    size: usize,
    align: usize,
    begins_with_bounds: bool,
    owns_block: bool,
    /// The body has been called with the arguments where they are.
    is_used_up: bool,
    call: PhantomData<&'c ()>,
}

impl<'c> TaskCall<'c> {
    /// Takes the compiler's word.
    ///
    /// # Safety
    /// `data` points to `size` readable bytes as long as `'c` lasts. Each time, `copy(to, data)`,
    /// or copying the bytes if there is no `copy`, makes of `size` bytes at an address divisible by
    /// `align` (a power of two) arguments with which `body` may be called once, by any thread, also
    /// later. Without a `copy`, it may be called once with `data` itself.
    #[must_use]
    pub unsafe fn new(
        body: unsafe extern "C-unwind" fn(*mut c_void),
        data: *mut c_void,
        copy: Option<CopyArguments>,
        size: usize,
        align: usize,
    ) -> Self {
        TaskCall {
            body,
            data,
            copy,
            size,
            align: align.max(1),
            begins_with_bounds: false,
            owns_block: false,
            is_used_up: false,
            call: PhantomData,
        }
    }

    /// The same for tasks of a taskloop.
    ///
    /// # Safety
    /// The arguments begin with two words, any of which the body takes for the first and the end of
    /// its iterations.
    #[must_use]
    pub unsafe fn of_loop(mut self) -> Self {
        assert!(self.size >= BOUNDS_BYTES, "arguments without bounds");
        self.begins_with_bounds = true;
        self
    }

    /// The same where the arguments own memory, which the body, a function of the runtime's, frees:
    /// it has to run also when the task is cancelled, and [crosses](crate::border) into the program
    /// itself.
    #[must_use]
    pub fn that_owns(mut self) -> Self {
        self.owns_block = true;
        self
    }

    /// Whether its body has to run even when the task is cancelled.
    #[must_use]
    #[inline]
    pub fn has_objects(&self) -> bool {
        self.copies() || self.owns_block
    }

    /// Whether the arguments have to be copied by a function even when the task runs at once.
    #[must_use]
    #[inline]
    pub fn copies(&self) -> bool {
        self.copy.is_some()
    }

    /// Whether copies of the bytes, as many as there are tasks, are arguments.
    #[must_use]
    #[inline]
    pub fn may_repeat(&self) -> bool {
        self.copy.is_none() && !self.owns_block
    }

    /// Whether a [`Frame`] has room for the arguments without asking for memory.
    #[must_use]
    #[inline]
    pub fn is_small(&self) -> bool {
        self.size <= size_of::<[usize; INLINE_WORDS]>() && self.align <= INLINE_ALIGN
    }

    /// Runs the body on the arguments where they are. Only for tasks without a copying function,
    /// and once.
    ///
    /// # Panics
    /// When there is such a function, or the second time.
    #[inline]
    pub fn call_in_place(&mut self) {
        self.use_up();
        // SAFETY: by the promise of `new`; the bytes are there until the creating call returns.
        call_from(self.owns_block, || unsafe { (self.body)(self.data) });
    }

    /// The same from a frame whose frame pointer `frame` gets before, for tools.
    ///
    /// # Panics
    /// As [`call_in_place`](Self::call_in_place).
    pub fn call_in_place_for_tool(&mut self, frame: &AtomicU64) {
        self.use_up();
        // SAFETY: by the promise of `new`; the bytes are there until the creating call returns.
        unsafe { call_for_tool(self.owns_block, self.body, self.data, frame) };
    }

    #[inline]
    fn use_up(&mut self) {
        assert!(!self.copies(), "the arguments have to be copied");
        assert!(!self.is_used_up, "the arguments are used up");
        self.is_used_up = true;
    }
}

/// Words of arguments for which a [`Frame`] has room without asking for memory.
const INLINE_WORDS: usize = 18;
const INLINE_ALIGN: usize = 16;

/// Bytes of the bounds with which the arguments of a task of a taskloop begin.
const BOUNDS_BYTES: usize = 2 * size_of::<u64>();

/// Memory for the arguments of a task; may be used again for the next one. Arguments may refer to
/// themselves, so a frame that is loaded stays where it is (in a box, say), or they are refused
/// when they are used.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Frame {
    inline: [usize; INLINE_WORDS],
    body: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    /// Larger arguments, and where they begin; empty for those that are inline.
    large: Vec<u8>,
    large_start: usize,
    /// Where the frame was when the arguments came.
    loaded_at: usize,
    /// The bytes of the arguments.
    size: usize,
    begins_with_bounds: bool,
    /// Copies of the bytes are arguments, too.
    may_be_copied: bool,
    /// The body is the runtime's.
    stays_inside: bool,
}

/// Room for the arguments of one call, with whatever in it.
#[repr(C, align(16))]
struct Room([MaybeUninit<usize>; INLINE_WORDS]);

/// Arguments up to this are copied by a few instructions.
const SHORT_BYTES: usize = 64;

impl Frame {
    /// Room, with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Frame {
            inline: [0; INLINE_WORDS],
            body: None,
            large: Vec::new(),
            large_start: 0,
            loaded_at: 0,
            size: 0,
            begins_with_bounds: false,
            may_be_copied: false,
            stays_inside: false,
        }
    }

    /// Copies the arguments of `call` here.
    ///
    /// # Panics
    /// When they are used up.
    #[inline]
    pub fn load(&mut self, call: &TaskCall<'_>) {
        assert!(!call.is_used_up, "the arguments are used up");
        if !call.is_small() {
            self.make_room(call.size, call.align);
        } else if !self.large.is_empty() {
            self.large = Vec::new();
        }
        let at = self.arguments();
        match call.copy {
            Some(copy) => {
                // None while they come: a panic of the copying function leaves half of them.
                self.body = None;
                // SAFETY: by the promise of `TaskCall::new`; `at` is room for `size` bytes,
                // aligned.
                unsafe { copy(at, call.data) }
            }
            // SAFETY: as above.
            None => unsafe { copy_words(call.data.cast(), at.cast(), call.size) },
        }
        self.body = Some(call.body);
        self.loaded_at = ptr::from_ref(self).addr();
        self.size = call.size;
        self.begins_with_bounds = call.begins_with_bounds;
        self.may_be_copied = call.may_repeat();
        self.stays_inside = call.owns_block;
    }

    /// Copies the arguments of another frame here, which are those of a loop's tasks.
    ///
    /// # Panics
    /// When they may not be copied.
    pub fn load_copy(&mut self, other: &Frame) {
        assert!(other.may_be_copied && other.body.is_some());
        assert!(
            other.large.is_empty(),
            "large arguments stay where they are"
        );
        self.large = Vec::new();
        // SAFETY: both are that large, and one of them is borrowed alone. Bytes that were never
        // written are not looked at.
        unsafe {
            let from = (&raw const other.inline).cast::<u8>();
            ptr::copy_nonoverlapping(from, (&raw mut self.inline).cast(), size_of::<Room>());
        }
        self.body = other.body;
        self.loaded_at = ptr::from_ref(self).addr();
        self.size = other.size;
        self.begins_with_bounds = other.begins_with_bounds;
        self.may_be_copied = true;
        self.stays_inside = false;
    }

    /// Runs the body on a copy of the arguments which begins with these bounds. The arguments stay
    /// for the next call.
    ///
    /// # Panics
    /// When there are none of a loop's tasks, or none that may be copied.
    #[inline]
    pub fn call_copy(&self, first: u64, end: u64) {
        assert!(self.may_be_copied && self.begins_with_bounds && self.large.is_empty());
        let body = self.body.expect("a frame without arguments");
        let mut room = Room([MaybeUninit::uninit(); INLINE_WORDS]);
        let at = (&raw mut room).cast::<u8>();
        let from = (&raw const self.inline).cast::<u8>();
        // SAFETY: both have room for this many bytes, and the copy for the bounds, which
        // `TaskCall::of_loop` has checked. By the promise of `TaskCall::new` a copy of the bytes is
        // arguments for one call, whatever the bounds are.
        unsafe {
            if self.size <= SHORT_BYTES {
                ptr::copy_nonoverlapping(from, at, SHORT_BYTES);
            } else {
                ptr::copy_nonoverlapping(from, at, size_of::<Room>());
            }
            at.cast::<u64>().write(first);
            at.cast::<u64>().add(1).write(end);
            outside(|| body(at.cast()));
        }
    }

    #[cold]
    fn make_room(&mut self, size: usize, align: usize) {
        let align = align.max(INLINE_ALIGN);
        self.large = vec![0; size + align];
        self.large_start = self.large.as_ptr().align_offset(align);
    }

    #[inline]
    fn arguments(&mut self) -> *mut c_void {
        if self.large.is_empty() {
            (&raw mut self.inline).cast()
        } else {
            self.large[self.large_start..].as_mut_ptr().cast()
        }
    }

    /// Writes the two words with which the arguments of a task of a taskloop begin: the first and
    /// the end of its iterations.
    ///
    /// # Panics
    /// When there are no arguments, or none of a taskloop.
    pub fn set_bounds(&mut self, first: u64, end: u64) {
        let has_bounds = self.body.is_some() && self.begins_with_bounds;
        assert!(has_bounds, "a frame without arguments of a loop");
        let at = self.arguments().cast::<u64>();
        // SAFETY: by the promise of `TaskCall::of_loop`, which has checked the size; the room is
        // aligned for more than words.
        unsafe {
            at.write(first);
            at.add(1).write(end);
        }
    }

    /// Runs the body on the arguments. They are used up.
    ///
    /// # Panics
    /// When there are no arguments, or the frame has moved since they came.
    #[inline]
    pub fn call(&mut self) {
        let (body, at) = self.take_body();
        // SAFETY: by the promise of `TaskCall::new`; the arguments were copied by `load`, lie where
        // they were and are used once.
        call_from(self.stays_inside, || unsafe { body(at) });
    }

    /// The same from a frame whose frame pointer `frame` gets before, for tools.
    pub fn call_for_tool(&mut self, frame: &AtomicU64) {
        let (body, at) = self.take_body();
        // SAFETY: as in `call`.
        unsafe { call_for_tool(self.stays_inside, body, at, frame) };
    }

    #[inline]
    fn take_body(&mut self) -> (unsafe extern "C-unwind" fn(*mut c_void), *mut c_void) {
        let here = ptr::from_ref(self).addr();
        assert_eq!(here, self.loaded_at, "arguments may refer to themselves");
        let body = self.body.take().expect("a frame without arguments");
        (body, self.arguments())
    }

    /// Forgets the arguments without running the body.
    pub fn discard(&mut self) {
        self.body = None;
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// `from` is readable and `to` writable for `size` bytes, and they do not overlap.
#[inline]
unsafe fn copy_words(from: *const u8, to: *mut u8, size: usize) {
    if size <= 2 * size_of::<u64>() && size.is_multiple_of(size_of::<u64>()) {
        // A call of memcpy costs more than these. As words that may hold anything: pointers, and
        // bytes never written.
        for at in (0..size).step_by(size_of::<u64>()) {
            // SAFETY: by the caller's promise.
            unsafe {
                let word = from.add(at).cast::<MaybeUninit<u64>>().read_unaligned();
                to.add(at).cast::<MaybeUninit<u64>>().write_unaligned(word);
            }
        }
    } else {
        // SAFETY: by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, to, size) };
    }
}

/// Zeroed memory that is passed to the program.
#[derive(Debug)]
pub struct Zeroed {
    bytes: Vec<u8>,
    at: usize,
}

impl Zeroed {
    /// `size` bytes at an address divisible by `align`.
    #[must_use]
    pub fn new(size: usize, align: usize) -> Zeroed {
        let align = align.max(1);
        let mut bytes = vec![0; size + align];
        let start = bytes.as_mut_ptr();
        let at = start.wrapping_add(start.align_offset(align)) as usize;
        Zeroed { bytes, at }
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> usize {
        debug_assert!(self.at >= self.bytes.as_ptr() as usize);
        self.at
    }
}

/// A text that the program passes with its length, or ended by a zero byte.
///
/// # Safety
/// `text` is null or points to `len` readable bytes or, where `len` is none, to a text that a zero
/// byte ends.
#[must_use]
pub unsafe fn text(text: *const c_char, len: Option<usize>) -> String {
    if text.is_null() {
        return String::new();
    }
    let bytes = match len {
        // SAFETY: by the caller's promise.
        Some(len) => unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) },
        // SAFETY: by the caller's promise.
        None => unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes(),
    };
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    unsafe extern "C-unwind" fn double(at: *mut c_void) {
        // SAFETY: the tests pass the address of two addresses.
        unsafe {
            let words = at.cast::<*mut u64>();
            *words.read() *= 2;
        }
    }

    #[test]
    fn what_is_posted_is_never_read_in_two_halves() {
        unsafe extern "C-unwind" fn other(_: *mut c_void) {}
        let data = [
            ptr::without_provenance_mut(8),
            ptr::without_provenance_mut(16),
        ];
        let bodies: [unsafe extern "C-unwind" fn(*mut c_void); 2] = [double, other];
        // SAFETY: nobody calls them.
        let calls = [0, 1].map(|at| unsafe { Outlined::new(bodies[at], data[at]) });
        let (posted, is_over) = (Posted::default(), AtomicBool::new(false));
        assert!(posted.get().is_none());
        let is_whole = |call: Outlined<'_>| {
            let same =
                |one: &Outlined| one.data == call.data && one.body as usize == call.body as usize;
            assert!(calls.iter().any(same));
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    posted.get().into_iter().for_each(is_whole);
                }
            });
            // Two that post at the same time take turns.
            let post = || {
                for round in 0..50_000 {
                    posted.set(Some(calls[round % 2]));
                }
            };
            let beside = scope.spawn(post);
            post();
            beside.join().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        is_whole(posted.get().unwrap());
        posted.set(None);
        assert!(posted.get().is_none());
    }

    #[test]
    fn arguments_are_copied_and_used_once() {
        let mut value = 21_u64;
        let mut arguments = [&raw mut value, ptr::null_mut()];
        // SAFETY: `double` reads one address, and the arguments live until the end of the test.
        let call = unsafe { TaskCall::new(double, arguments.as_mut_ptr().cast(), None, 16, 8) };
        let mut frame = Frame::new();
        frame.load(&call);
        arguments.fill(ptr::null_mut());
        assert!(arguments[0].is_null());
        frame.call();
        assert_eq!(value, 42);
    }

    #[test]
    fn large_or_strongly_aligned_arguments_get_room() {
        let mut value = 1_u64;
        let mut arguments = [&raw mut value; 100];
        // SAFETY: as above.
        let call = unsafe { TaskCall::new(double, arguments.as_mut_ptr().cast(), None, 800, 256) };
        let mut frame = Frame::new();
        frame.load(&call);
        assert!((frame.arguments() as usize).is_multiple_of(256));
        frame.call();
        assert_eq!(value, 2);
    }
}
