//! The tool that writes regions and waits of OpenMP to the flight recorder of a rank of MPI: what
//! `mpiexec -profile` and `-trace` show of threads. It is there where all calls of a rank are
//! recorded (`MARGAY_RECORD`) and the program brings no tool of its own.
//!
//! A stretch of time is recorded when it is over. Until then its beginning is in the word that a
//! tool has in the task: the low bits of the processor's counter, and where the address of the call
//! is in a table.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_core_openmp::tools::{Callback, Endpoint, Mutex, Sync};
use margay_run_openmp::tool::{Event, Tool, Word};
use margay_sys_os::{clock, symbols};

use super::TOOL;
use crate::runtime::{runtime, with};

/// Name, address to which the call returns, begin in ticks.
type Record = unsafe extern "C" fn(*const Name, u64, u64);

/// The name of what is recorded, padded with zeros.
type Name = [u8; 32];

const fn name(text: &str) -> Name {
    let (mut name, text) = ([0; 32], text.as_bytes());
    let mut i = 0;
    while i < text.len() {
        name[i] = text[i];
        i += 1;
    }
    name
}

#[repr(align(8))]
struct Names {
    region: Name,
    barrier: Name,
    end: Name,
    worksharing: Name,
    taskwait: Name,
    taskgroup: Name,
    critical: Name,
    lock: Name,
    ordered: Name,
    atomic: Name,
}

static NAMES: Names = Names {
    region: name("omp parallel"),
    barrier: name("omp barrier"),
    end: name("omp end of parallel"),
    worksharing: name("omp end of worksharing"),
    taskwait: name("omp taskwait"),
    taskgroup: name("omp taskgroup"),
    critical: name("omp wait for critical"),
    lock: name("omp wait for lock"),
    ordered: name("omp wait for ordered"),
    atomic: name("omp wait for atomic"),
};

const WANTED: [Callback; 5] = [
    Callback::ParallelBegin,
    Callback::ParallelEnd,
    Callback::SyncRegionWait,
    Callback::MutexAcquire,
    Callback::MutexAcquired,
];

static RECORD: OnceLock<Record> = OnceLock::new();

/// Addresses of calls that have begun. Each has one place, and the first has it for ever.
static CODES: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// The bits of a word that are the counter's.
const TICKS: u32 = 48;

/// Attaches the tool if this is a rank whose calls are all recorded.
pub(super) fn start() -> bool {
    let records = std::env::var("MARGAY_RECORD").unwrap_or_default();
    let is_off = matches!(records.trim(), "" | "0");
    let Some(symbol) = symbols::find(c"margay_record_threads").filter(|_| !is_off) else {
        return false;
    };
    // SAFETY: the function of this name is Margay's own (`abi/process`) and has this type.
    let record = unsafe { transmute::<NonNull<c_void>, Record>(symbol) };
    let record = *RECORD.get_or_init(|| record);
    let tool = TOOL.get_or_init(|| Tool {
        raise,
        code: symbols::code_around((raise as *const ()).addr()),
        callbacks: [const { AtomicUsize::new(0) }; _],
        only_waits: true,
    });
    for callback in WANTED {
        tool.callbacks[callback as usize].store(record as usize, Ordering::Relaxed);
    }
    runtime().attach_tool(tool);
    true
}

fn raise(event: &Event<'_>) {
    match *event {
        Event::ParallelBegin {
            encountering,
            region,
            code,
            function,
            ..
        } => {
            // Compilers give the call of the region's function the line of what stands before it.
            let code = if function == 0 { code } else { function + 1 };
            region.store(code as u64, Ordering::Relaxed);
            begin(&encountering.data, code);
        }
        Event::ParallelEnd { encountering, .. } => end(&encountering.data, &NAMES.region),
        Event::Sync {
            callback: Callback::SyncRegionWait,
            kind,
            endpoint,
            region,
            task,
            code,
        } => match (endpoint, region) {
            (Endpoint::Begin, Some(region)) if kind == Sync::BarrierParallel => {
                begin(&task.data, region.load(Ordering::Relaxed) as usize);
            }
            (Endpoint::Begin, _) => begin(&task.data, code),
            _ => end(&task.data, of_sync(kind)),
        },
        Event::MutexAcquire {
            callback: Callback::MutexAcquire,
            code,
            ..
        } => with(|context| begin(&context.task_tool().data, code)),
        Event::Mutex {
            callback: Callback::MutexAcquired,
            kind,
            ..
        } => with(|context| end(&context.task_tool().data, of_mutex(kind))),
        _ => {}
    }
}

fn of_sync(kind: Sync) -> &'static Name {
    match kind {
        Sync::Taskwait => &NAMES.taskwait,
        Sync::Taskgroup => &NAMES.taskgroup,
        Sync::BarrierWorkshare | Sync::Reduction => &NAMES.worksharing,
        Sync::BarrierParallel | Sync::BarrierTeams => &NAMES.end,
        Sync::BarrierExplicit | Sync::BarrierImplementation => &NAMES.barrier,
    }
}

fn of_mutex(kind: Mutex) -> &'static Name {
    match kind {
        Mutex::Critical => &NAMES.critical,
        Mutex::Ordered => &NAMES.ordered,
        Mutex::Atomic => &NAMES.atomic,
        _ => &NAMES.lock,
    }
}

fn begin(word: &Word, code: usize) {
    let slot = (code ^ code >> 10) & (CODES.len() - 1);
    let known = CODES[slot].compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    // An address whose place another one has is recorded without a line.
    let slot = match known {
        Err(other) if other != code => usize::from(u16::MAX),
        _ => slot,
    };
    let ticks = clock::ticks() & ((1 << TICKS) - 1);
    word.store((slot as u64) << TICKS | ticks, Ordering::Relaxed);
}

fn end(word: &Word, name: &'static Name) {
    let begun = word.load(Ordering::Relaxed);
    let now = clock::ticks();
    let ticks = now.wrapping_sub(begun) & ((1 << TICKS) - 1);
    let code = CODES.get((begun >> TICKS) as usize);
    let code = code.map_or(0, |code| code.load(Ordering::Relaxed));
    if let Some(record) = RECORD.get() {
        // SAFETY: as for [`start`]; names are static and aligned as words.
        unsafe { record(name, code as u64, now - ticks) };
    }
}
