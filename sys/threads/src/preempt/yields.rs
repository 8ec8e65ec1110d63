//! `sched_yield`, where the program or a library calls it, as a call of the runtime.
//!
//! Libraries spin in `sched_yield` for another thread's step (OpenBLAS between the threads of one
//! product). To find such a member from outside and to interrupt it takes as long as many of these
//! steps (50 times the time of the whole program). So the objects of the process get another
//! address for `sched_yield`: the loader has written it to a word of each object that calls the
//! function, and the word is written again here. Objects in which no thread is
//! [interrupted](super::text) keep theirs.
//!
//! A word that cannot be written is left as it is: that object's calls are then interrupted as
//! before.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HANDLER, Interrupted, Reason, text};
use crate::border;

/// Does so in all that is loaded. Not in a handler.
pub(super) fn redirect() {
    let system = system_yield().expose_provenance();
    text::for_each_interruptible(&mut |object| {
        // SAFETY: the loader's entry of an object that stays loaded while it is shown; the function
        // is this library's, which is never unloaded.
        unsafe { redirect_in(object, system, (yielded as *const ()).addr()) };
    });
}

/// The C library's function.
pub(super) fn system_yield() -> *mut c_void {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sched_yield".as_ptr()) }
}

/// What calls of `sched_yield` come to.
extern "C" fn yielded() -> c_int {
    if let Some(handler) = HANDLER.get()
        && !border::is_inside()
        && border::inside(|| (handler.tick)(Interrupted::Yielding, Reason::Call))
    {
        return 0;
    }
    // SAFETY: no arguments. This library's own calls stay with the C library.
    unsafe { libc::sched_yield() }
}

/// The entries of an object's dynamic section that are needed here (`Elf64_Dyn`).
#[derive(Default)]
struct Dynamic {
    names: usize,
    symbols: usize,
    /// Relocations with an addend, and those of functions that are bound at their first call:
    /// address and bytes.
    relocations: [(usize, usize); 2],
}

#[repr(C)]
struct Entry {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    _addend: i64,
}

/// The kinds of relocation that are the address of a function and nothing else.
const ADDRESSES: [u64; 2] = if cfg!(target_arch = "x86_64") {
    [6, 7] // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
} else {
    [1025, 1026] // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
};

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTREL: i64 = 20;
const DT_JMPREL: i64 = 23;

impl Dynamic {
    /// # Safety
    /// `at` is the dynamic section of an object that has been loaded at `base`.
    unsafe fn read(mut at: *const Entry, base: usize) -> Dynamic {
        let mut found = Dynamic::default();
        // Not every C library has made them addresses.
        let address = |value: u64| {
            let value = value as usize;
            if value < base { base + value } else { value }
        };
        loop {
            // SAFETY: the section ends with an entry of its own kind.
            let entry = unsafe { &*at };
            match entry.tag {
                DT_NULL => return found,
                DT_STRTAB => found.names = address(entry.value),
                DT_SYMTAB => found.symbols = address(entry.value),
                DT_RELA => found.relocations[0].0 = address(entry.value),
                DT_RELASZ => found.relocations[0].1 = entry.value as usize,
                DT_JMPREL => found.relocations[1].0 = address(entry.value),
                DT_PLTRELSZ => found.relocations[1].1 = entry.value as usize,
                // The other form of relocations, which neither processor has.
                DT_PLTREL if entry.value != DT_RELA as u64 => return Dynamic::default(),
                _ => {}
            }
            // SAFETY: as above: this was not the last one.
            at = unsafe { at.add(1) };
        }
    }
}

/// Writes `to` where `object` has the address `from` of `sched_yield`, or has not asked for it yet.
///
/// # Safety
/// `object` is loaded, and `to` is a function like `sched_yield` that stays there.
unsafe fn redirect_in(object: &libc::dl_phdr_info, from: usize, to: usize) {
    let base = object.dlpi_addr as usize;
    // SAFETY: an object has as many headers as it says.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let find = |kind| headers.iter().find(|header| header.p_type == kind);
    let Some(section) = find(libc::PT_DYNAMIC) else {
        return;
    };
    let section = base + section.p_vaddr as usize;
    // SAFETY: the header says where the section is.
    let dynamic = unsafe { Dynamic::read(std::ptr::with_exposed_provenance(section), base) };
    if dynamic.names == 0 || dynamic.symbols == 0 {
        return;
    }
    // SAFETY: no arguments to be valid.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // What the loader makes read-only: whole pages, so that the last one, which is shared with
    // data, stays as it is.
    let sealed = find(libc::PT_GNU_RELRO).map_or(0..0, |header| {
        let begin = base + header.p_vaddr as usize;
        let end = begin + header.p_memsz as usize;
        begin & !(page - 1)..end & !(page - 1)
    });
    for (at, bytes) in dynamic.relocations {
        if at == 0 {
            continue;
        }
        let count = bytes / size_of::<Relocation>();
        // SAFETY: the object's own table.
        let all = unsafe {
            slice::from_raw_parts(std::ptr::with_exposed_provenance::<Relocation>(at), count)
        };
        for relocation in all {
            if !ADDRESSES.contains(&(relocation.info & 0xffff_ffff)) {
                continue;
            }
            let symbol =
                dynamic.symbols + (relocation.info >> 32) as usize * size_of::<libc::Elf64_Sym>();
            // SAFETY: relocations refer to symbols of the object's table, whose names are texts of
            // its names.
            let is_it = unsafe {
                let symbol = &*std::ptr::with_exposed_provenance::<libc::Elf64_Sym>(symbol);
                let name = dynamic.names + symbol.st_name as usize;
                symbol.st_shndx == 0
                    && CStr::from_ptr(std::ptr::with_exposed_provenance::<c_char>(name))
                        == c"sched_yield"
            };
            if !is_it {
                continue;
            }
            let word = base + relocation.offset as usize;
            // SAFETY: the loader keeps an address there, which callers read at each call.
            let slot = unsafe { &*std::ptr::with_exposed_provenance::<AtomicUsize>(word) };
            let now = slot.load(Ordering::Relaxed);
            // Another address than these two: the program has a `sched_yield` of its own.
            if now != from && !text::is_of(object, now) {
                continue;
            }
            let write = || slot.store(to, Ordering::Relaxed);
            if sealed.contains(&word) {
                with_page_writable(word & !(page - 1), page, write);
            } else {
                write();
            }
        }
    }
}

/// Runs `write` with a page writable that is read-only before and after; not at all where the
/// system refuses that.
fn with_page_writable(page: usize, bytes: usize, write: impl FnOnce()) {
    let begin = std::ptr::with_exposed_provenance_mut::<c_void>(page);
    let protect = |how| {
        // SAFETY: the page belongs to a loaded object, whose words stay readable.
        unsafe { libc::mprotect(begin, bytes, how) == 0 }
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE) {
        write();
        // Where this fails the page merely stays writable.
        protect(libc::PROT_READ);
    }
}
