//! Whose instructions are where.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

use margay_sys_os::static_ref::StaticRef;

/// Where a thread may be interrupted, as half-open ranges of addresses.
pub(super) struct Text {
    /// The loader's count of objects when this was made.
    loaded: u64,
    ranges: Vec<(usize, usize)>,
}

/// Libraries in which no thread is interrupted: the runtime uses them, and they may hold a lock
/// that it needs, or be in the middle of a change. So is the library that has `malloc`.
const LEFT_ALONE: [&[u8]; 9] = [
    b"/libc.so",
    b"/libc-",
    b"/ld-linux",
    b"/ld-musl",
    b"/libpthread",
    b"/libdl",
    b"/libgcc_s",
    b"linux-vdso",
    b"san.so",
];

struct Search<'f> {
    /// Addresses in objects that are left alone.
    left_alone: [usize; 2],
    /// The first object is the program.
    is_first: bool,
    found: &'f mut dyn FnMut(&libc::dl_phdr_info),
}

/// What is loaded now. It is never freed: a handler may be in it.
static TEXT: StaticRef<Text> = StaticRef::none();

/// What was loaded at the last [`refresh`].
pub(super) fn current() -> Option<&'static Text> {
    TEXT.get(Ordering::Acquire)
}

/// Looks up what is loaded. Returns whether there may be something new.
pub(super) fn refresh() -> bool {
    let loaded = loaded();
    let is_new = current().is_none_or(|text| text.loaded != loaded);
    if is_new {
        let mut ranges = Vec::new();
        for_each_interruptible(&mut |object| {
            // SAFETY: the loader's entry is valid.
            ranges.extend(unsafe { ranges_of(object) });
        });
        let text = Box::leak(Box::new(Text { loaded, ranges }));
        TEXT.set(Some(text), Ordering::Release);
    }
    is_new
}

/// The loader's count of objects that it has loaded.
fn loaded() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        loaded: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry, and what was given to it.
        unsafe { *loaded.cast() = (*info).dlpi_adds };
        1
    }
    let mut loaded = 0_u64;
    // SAFETY: the callback keeps to the types, and `loaded` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loaded).cast()) };
    loaded
}

/// Calls `found` with each object in which threads may be interrupted. Nothing is loaded or
/// unloaded meanwhile.
pub(super) fn for_each_interruptible(found: &mut dyn FnMut(&libc::dl_phdr_info)) {
    // SAFETY: the name ends with a zero byte.
    let allocator = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    let mut search = Search {
        left_alone: [allocator.addr(), (refresh as *const ()).addr()],
        is_first: true,
        found,
    };
    // SAFETY: the callback keeps to the types, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
}

/// Whether an instruction is of this object.
pub(super) fn is_of(object: &libc::dl_phdr_info, at: usize) -> bool {
    // SAFETY: the loader's entry is valid.
    contains(&unsafe { ranges_of(object) }, at)
}

/// Whether this is code of the program itself.
pub(super) fn is_program(at: usize) -> bool {
    let mut ranges = Vec::new();
    // SAFETY: the callback keeps to the types, and `ranges` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(program), (&raw mut ranges).cast()) };
    contains(&ranges, at)
}

impl Text {
    /// Whether a thread that executes the instruction at this address may be interrupted there.
    pub(super) fn contains(&self, at: usize) -> bool {
        contains(&self.ranges, at)
    }
}

fn contains(ranges: &[(usize, usize)], at: usize) -> bool {
    ranges
        .iter()
        .any(|&(begin, end)| (begin..end).contains(&at))
}

unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid entry, and what was given to it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    let is_program = std::mem::replace(&mut search.is_first, false);
    let name = if info.dlpi_name.is_null() {
        &[]
    } else {
        // SAFETY: a text that a zero byte ends.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
    };
    let is_left_alone = !is_program
        && (LEFT_ALONE
            .iter()
            .any(|other| name.windows(other.len()).any(|part| part == *other))
            || search.left_alone.iter().any(|&at| is_of(info, at)));
    if !is_left_alone {
        (search.found)(info);
    }
    0
}

unsafe extern "C" fn program(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    ranges: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid entry, and what was given to it.
    unsafe { *ranges.cast::<Vec<(usize, usize)>>() = ranges_of(&*info) };
    1 // the program comes first
}

/// Where the instructions of an object are.
///
/// # Safety
/// The entry is valid, with as many headers as it says.
unsafe fn ranges_of(info: &libc::dl_phdr_info) -> Vec<(usize, usize)> {
    (0..usize::from(info.dlpi_phnum))
        // SAFETY: by the caller's promise.
        .map(|at| unsafe { &*info.dlpi_phdr.add(at) })
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
        .map(|header| {
            let begin = (info.dlpi_addr + header.p_vaddr) as usize;
            (begin, begin + header.p_memsz as usize)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_may_be_interrupted_and_the_c_library_may_not() {
        refresh();
        let text = current().unwrap();
        assert!(is_program((refresh as *const ()).addr()));
        assert!(text.contains((refresh as *const ()).addr()));
        // SAFETY: the name ends with a zero byte.
        let other = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
        assert!(!text.contains(other.addr()));
        let before = std::ptr::from_ref(text);
        refresh();
        assert!(std::ptr::eq(before, current().unwrap()), "nothing new");
    }
}
