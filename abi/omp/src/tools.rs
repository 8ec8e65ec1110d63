//! The tools interface (OMPT) as C sees it: the search for a tool, its life, and what it may ask.
//!
//! What happens is reported by `run/openmp` (its module `tool`), and for locks, which need no
//! member, by [`mutex`].

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use margay_core_openmp::tools::Callback;
use margay_run_openmp::tool::Tool;
use margay_sys_os::process;
use margay_sys_os::symbols::{self, Library};
use margay_sys_threads::border::outside;

use crate::runtime::runtime;

mod entry;
pub mod mutex;
mod raise;
mod recorded;

pub use entry::control_tool;
pub use raise::{tell_error, tell_flush};

type Initialize = unsafe extern "C-unwind" fn(entry::Lookup, c_int, *mut c_void) -> c_int;
type Finalize = unsafe extern "C-unwind" fn(*mut c_void);

/// `ompt_start_tool_result_t`
#[repr(C)]
struct StartResult {
    initialize: Option<Initialize>,
    finalize: Option<Finalize>,
    data: u64,
}

type StartTool = unsafe extern "C-unwind" fn(u32, *const c_char) -> *mut StartResult;

/// The version of OpenMP whose tools interface this is: 5.2.
const OPENMP_VERSION: u32 = 202_111;

/// What a tool reads about the library.
const VERSION_TEXT: &CStr = c"Margay's OpenMP";

/// Whether a tool has been looked for, and found.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const ATTACHED: u8 = 2;

thread_local! {
    /// Whether this thread looks for a tool now.
    static SEARCHES: Cell<bool> = const { Cell::new(false) };
}

static TOOL: OnceLock<Tool> = OnceLock::new();
static RESULT: AtomicPtr<StartResult> = AtomicPtr::new(std::ptr::null_mut());
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The tool of this process. The first call looks for it.
#[inline]
pub(crate) fn tool() -> Option<&'static Tool> {
    if STATE.load(Ordering::Relaxed) == NONE {
        None
    } else {
        start()
    }
}

/// Looks for a tool, once, and starts it. Before the first thread uses the runtime.
#[cold]
pub(crate) fn start() -> Option<&'static Tool> {
    static ONCE: Once = Once::new();
    // A library that is loaded for the search, and the tool, may call what comes here.
    let is_searching = SEARCHES.with(Cell::get);
    if STATE.load(Ordering::Acquire) == UNKNOWN && TOOL.get().is_none() && !is_searching {
        ONCE.call_once(|| {
            SEARCHES.with(|searches| searches.set(true));
            let has_tool = outside(search);
            STATE.store(if has_tool { ATTACHED } else { NONE }, Ordering::Release);
            SEARCHES.with(|searches| searches.set(false));
        });
    }
    TOOL.get()
}

/// Where `OMP_TOOL_VERBOSE_INIT` wants the search reported.
struct Report(Option<Box<dyn Write>>);

impl Report {
    fn from_environment() -> Report {
        let wanted = std::env::var("OMP_TOOL_VERBOSE_INIT").unwrap_or_default();
        Report(match wanted.as_str() {
            "" | "disabled" => None,
            "stdout" => Some(Box::new(std::io::stdout())),
            "stderr" => Some(Box::new(std::io::stderr())),
            path => match std::fs::File::create(path) {
                Ok(file) => Some(Box::new(file)),
                Err(error) => {
                    eprintln!("libgomp (Margay): OMP_TOOL_VERBOSE_INIT={path}: {error}");
                    None
                }
            },
        })
    }

    fn line(&mut self, text: &str) {
        if let Some(to) = &mut self.0 {
            // A report that nobody can read is no reason to stop.
            let _ = writeln!(to, "libgomp (Margay): {text}").and_then(|()| to.flush());
        }
    }
}

fn search() -> bool {
    let mut report = Report::from_environment();
    match std::env::var("OMP_TOOL").as_deref() {
        Ok("disabled") => {
            report.line("OMP_TOOL=disabled: no tool is looked for");
            return recorded::start();
        }
        Ok("enabled") | Err(_) => {}
        Ok(other) => eprintln!(
            "libgomp (Margay): OMP_TOOL={other}: 'enabled' or 'disabled' is needed; it is taken for 'enabled'"
        ),
    }
    let in_program = symbols::find(c"ompt_start_tool");
    report.line(match in_program {
        Some(_) => "ompt_start_tool is in the program or in a library that it has loaded",
        None => "no ompt_start_tool in the program and the libraries that it has loaded",
    });
    if let Some(symbol) = in_program
        // SAFETY: the standard gives functions of this name this type.
        && unsafe { begin(symbol.as_ptr(), &mut report) }
    {
        return true;
    }
    let libraries = std::env::var_os("OMP_TOOL_LIBRARIES").unwrap_or_default();
    for path in std::env::split_paths(&libraries) {
        if path.as_os_str().is_empty() {
            continue;
        }
        if let Some(symbol) = in_library(&path, &mut report)
            // SAFETY: as above.
            && unsafe { begin(symbol, &mut report) }
        {
            return true;
        }
    }
    report.line("no tool was started");
    recorded::start()
}

fn in_library(path: &Path, report: &mut Report) -> Option<*mut c_void> {
    let shown = path.display();
    // SAFETY: a tool that the user names for this process (`OMP_TOOL_LIBRARIES`) runs in it as the
    // program's own libraries do.
    let library = match unsafe { Library::open(path) } {
        Ok(library) => library,
        Err(error) => {
            report.line(&format!("{shown}: {error}"));
            return None;
        }
    };
    let symbol = library.symbol(c"ompt_start_tool");
    report.line(&match symbol {
        Some(_) => format!("{shown}: has ompt_start_tool"),
        None => format!("{shown}: no ompt_start_tool"),
    });
    symbol.map(std::ptr::NonNull::as_ptr)
}

/// Asks what was found for a tool, and initializes it. Returns whether there is one.
///
/// # Safety
/// `symbol` is a tool's function `ompt_start_tool`.
unsafe fn begin(symbol: *mut c_void, report: &mut Report) -> bool {
    // SAFETY: by the caller's promise.
    let start_tool = unsafe { std::mem::transmute::<*mut c_void, StartTool>(symbol) };
    // SAFETY: as above.
    let result = unsafe { start_tool(OPENMP_VERSION, VERSION_TEXT.as_ptr()) };
    // SAFETY: a tool returns null or what lives as long as the process.
    let Some(given) = (unsafe { result.as_mut() }) else {
        report.line("ompt_start_tool returned null: that tool does not want to be started");
        return false;
    };
    let (Some(initialize), Some(_)) = (given.initialize, given.finalize) else {
        report.line("ompt_start_tool returned no functions");
        return false;
    };
    let tool = TOOL.get_or_init(|| Tool {
        raise: raise::raise,
        code: symbols::code_around((raise::raise as *const ()).addr()),
        callbacks: [const { AtomicUsize::new(0) }; _],
        only_waits: false,
    });
    RESULT.store(result, Ordering::Release);
    // Contexts that are made from now on tell the tool; what it has not asked for yet is passed
    // over.
    runtime().attach_tool(tool);
    let data = (&raw mut given.data).cast();
    // SAFETY: the standard's type; the tool's word is its own.
    let is_active = unsafe { initialize(entry::lookup, 0, data) } != 0;
    report.line(if is_active {
        "the tool was started"
    } else {
        "the tool has refused in its initialization"
    });
    if !is_active {
        IS_OVER.store(true, Ordering::Release);
        forget_callbacks(tool);
        return true;
    }
    if !process::at_exit(at_exit) {
        report.line("no room for a call at the end: the tool is not finalized");
    }
    true
}

/// Whether the tool has refused, or has been finalized.
fn is_over() -> bool {
    IS_OVER.load(Ordering::Acquire)
}

fn forget_callbacks(tool: &Tool) {
    for callback in &tool.callbacks {
        callback.store(0, Ordering::Relaxed);
    }
}

extern "C" fn at_exit(_code: c_int, _: *mut c_void) {
    finalize();
}

/// The end of the tool: its threads end, and it is called no more.
pub fn finalize() {
    let Some(tool) = TOOL.get() else { return };
    let result = RESULT.load(Ordering::Acquire);
    if result.is_null() || IS_OVER.swap(true, Ordering::AcqRel) {
        return;
    }
    if tool.wants(Callback::ThreadEnd) {
        runtime().in_idle_threads(raise::thread_over);
    }
    margay_sys_threads::slot::with(|context: Option<&margay_run_openmp::team::Context>| {
        if let Some(context) = context {
            context.tell_thread_over();
        }
    });
    forget_callbacks(tool);
    // SAFETY: the tool's result lives as long as the process, and both of its functions have been
    // checked.
    unsafe {
        if let Some(finalize) = (*result).finalize {
            outside(|| finalize((&raw mut (*result).data).cast()));
        }
    }
}
