//! The stacks of other processes: which functions their threads are in, at which lines of which
//! files, without their help and without a debugger.
//!
//! | module | subject |
//! | --- | --- |
//! | `crashed` | the stacks of processes that have crashed, from their core files |
//! | `core_file` | the contents of a core file |
//! | `elf` | ELF files: segments, sections, symbols, separate debug files |
//! | `maps` | the files that a process has mapped, each opened once for all processes |
//! | `tables` | the tables of a file by which stacks are walked |
//! | `unwind` | from registers and a copy of the stack to the callers |
//! | `lines` | functions, files and lines, inlined functions included |
//! | `interpreter` | which file has the interpreter of Python |
//! | `python` | the functions of Python, from the structures of its interpreter |
//! | `names` | names as their authors wrote them |
//! | `sampler` | stacks over time: how often threads are in which functions |
//! | `places` | functions and lines of addresses in files, without a process |
//!
//! All of it is read from programs of users, whose memory and files may hold anything: sizes and
//! numbers of steps have bounds, and what does not fit is as good as not there.
#![forbid(unsafe_code)]

mod core_file;
mod crashed;
mod elf;
mod interpreter;
mod lines;
mod maps;
mod names;
mod places;
mod python;
mod sampler;
mod tables;
mod unwind;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::time::Duration;

pub use crashed::{are_written, crashed, written_down};
use margay_sys_os::python::MARK;
use margay_sys_os::trace::images;
pub use margay_sys_os::trace::{
    FRAME_POINTER, REGISTERS, Refused, STACK_POINTER, Thread, ThreadImage,
};
pub use places::Places;
pub use sampler::Sampler;

use maps::Modules;
use unwind::Spot;

/// How much of a stack is copied: the functions nearest to its top.
const STACK_BYTES: usize = 128 << 10;
/// How long threads have to stop.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Threads that are read at a time, so that the copies of their stacks stay within 128 MiB.
const AT_A_TIME: usize = 1024;

/// A function that a thread is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name; empty when it is not known.
    pub function: String,
    /// The file of its source, as the compiler was given it.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The program or library, by its path.
    pub module: String,
    /// Where in that file the instruction is, as an address there.
    pub offset: u64,
    /// A function of Python; its module is its script.
    pub is_python: bool,
}

impl Frame {
    /// Where it is, in short: `mesh.c:88`; None when no line is known.
    #[must_use]
    pub fn line_text(&self) -> Option<String> {
        let (file, line) = (self.file.as_deref()?, self.line?);
        let file = Path::new(file).file_name()?.to_string_lossy();
        Some(format!("{}:{line}", printable(&file)))
    }

    /// Where it is: `mesh.c:88`, or `of a.out` when no line is known.
    #[must_use]
    pub fn place_text(&self) -> String {
        (self.line_text()).unwrap_or_else(|| format!("of {}", self.module_name()))
    }

    /// Whether it is the program's own: not of a library that programs stand on, nor of Rust's,
    /// which is part of the program's file.
    fn is_users(&self) -> bool {
        let file = self.file.as_deref().unwrap_or_default();
        match self.is_python {
            true => !is_python_library(file),
            false => {
                let is_below = is_library(&self.module) || is_python_library(&self.module);
                !is_below && !file.starts_with("/rustc/")
            }
        }
    }

    /// The program or library without its folder.
    #[must_use]
    pub fn module_name(&self) -> String {
        let path = Path::new(&self.module);
        let name = path.file_name().unwrap_or(path.as_os_str());
        printable(&name.to_string_lossy())
    }

    /// The function, or where it is when it has no name.
    #[must_use]
    pub fn function_text(&self) -> String {
        match self.function.as_str() {
            "" => format!("{}+{:#x}", self.module_name(), self.offset),
            "main program" => self.function.clone(),
            name if self.is_python && name.ends_with('>') => printable(name),
            name => format!("{}()", printable(name)),
        }
    }
}

impl fmt::Display for Frame {
    /// `at mesh.c:88 in smooth()`, or `in smooth() of a.out`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let function = self.function_text();
        match (self.line_text(), self.function.is_empty()) {
            (Some(line), true) => write!(f, "at {line}"),
            (Some(line), false) => write!(f, "at {line} in {function}"),
            (None, true) => write!(f, "at {function}"),
            (None, false) => write!(f, "in {function} of {}", self.module_name()),
        }
    }
}

/// Names come from files of users, and go to terminals.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The functions that a thread is in, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    pub frames: Vec<Frame>,
}

impl Stack {
    /// The function that says where the program is. Of a program in Python the innermost function
    /// of Python that is its own: a module that it calls may be compiled with lines, which are
    /// those of a generated file. Else the innermost compiled one, as `innermost` has it.
    #[must_use]
    pub fn users(&self) -> Option<&Frame> {
        let mut own = self.frames.iter().filter(|frame| frame.is_users());
        own.find(|frame| frame.is_python).or(self.innermost())
    }

    /// The innermost function of the program itself: outside of the libraries that programs stand
    /// on, and with a line where its file has one further out. Where Python has called a compiled
    /// function of which no line is known, the function of Python.
    fn innermost(&self) -> Option<&Frame> {
        let mut users = self.frames.iter().filter(|frame| frame.is_users());
        let mut python = self.frames.iter().filter(|frame| frame.is_python);
        let in_python = python.clone().find(|frame| frame.is_users());
        let Some(first) = users.next() else {
            return python.next();
        };
        let mut same = (self.frames.iter()).filter(|f| f.is_users() && f.module == first.module);
        let found = same.find(|f| f.line.is_some());
        found.or(in_python).or(python.next()).or(Some(first))
    }

    /// The functions of the program itself, from the innermost one to its entry; those that are
    /// compiled and called by [`users`](Self::users) included.
    pub fn users_frames(&self) -> impl Iterator<Item = &Frame> {
        let first = self.innermost();
        let from = first.and_then(|first| self.frames.iter().position(|f| f == first));
        let frames = &self.frames[from.unwrap_or(self.frames.len())..];
        frames
            .iter()
            .filter(|frame| frame.is_users())
            .filter(|frame| frame.line.is_some() || !frame.function.starts_with('_'))
    }
}

/// Whether a file of Python is one that programs stand on.
fn is_python_library(file: &str) -> bool {
    const FOLDERS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];
    file.starts_with("<frozen") || FOLDERS.iter().any(|folder| file.contains(folder))
}

/// Whether a file is one that programs stand on: Margay's libraries and the languages'.
#[must_use]
pub(crate) fn is_library(path: &str) -> bool {
    const NAMES: [&str; 27] = [
        "[vdso]",
        "ld-linux",
        "ld-musl",
        "libasan",
        "libc-",
        "libc.",
        "libdl",
        "libgcc_s",
        "libgfortran",
        "libgomp",
        "libiml",
        "libiomp5",
        "libm.",
        "libm-",
        "libmargay_",
        "libmlp.",
        "libmpi.",
        "libmpi_",
        "libmpifort",
        "libmpl.",
        "libmvec",
        "libnx.",
        "libomp.",
        "libpthread",
        "libquadmath",
        "librt.",
        "libstdc++",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    NAMES.iter().any(|begin| name.starts_with(begin))
}

/// Reads the stacks of threads. The answers are in the order of the questions. Each thread stands
/// still while its registers and the top of its stack are copied, far less than a millisecond.
#[must_use]
pub fn stacks(threads: &[Thread]) -> Vec<Result<Stack, Refused>> {
    let mut modules = Modules::default();
    let mut walked: Vec<Result<Vec<Spot>, Refused>> = Vec::new();
    let mut in_python = Vec::new();
    for some in threads.chunks(AT_A_TIME) {
        for (thread, image) in some.iter().zip(images(some, STACK_BYTES, STOP_LIMIT)) {
            let mut python = None;
            walked.push(image.and_then(|image| {
                let maps = modules.of(thread.pid).ok_or(Refused::Gone)?;
                python = python::frames(*thread, image.stack_base, &maps, &modules);
                Ok(unwind::walk(&image, &maps, &modules))
            }));
            in_python.push(python);
        }
    }
    let stacks = named(&modules, walked).into_iter().zip(in_python);
    stacks
        .map(|(stack, python)| merged_with_python(&modules, stack, python))
        .collect()
}

/// The stacks that these registers and copies of a process's memory are: of what no thread runs.
#[must_use]
pub fn of_images(pid: u32, images: &[ThreadImage]) -> Vec<Stack> {
    let mut modules = Modules::default();
    let Some(maps) = modules.of(pid) else {
        return Vec::new();
    };
    let walked = (images.iter()).map(|image| Ok(unwind::walk(image, &maps, &modules)));
    let walked = walked.collect();
    named(&modules, walked).into_iter().flatten().collect()
}

/// A stack in which the functions of Python stand in place of those of its interpreter, which is in
/// a module.
fn merged_with_python(
    modules: &Modules,
    stack: Result<Stack, Refused>,
    python: Option<(Vec<Frame>, usize)>,
) -> Result<Stack, Refused> {
    match (stack, python) {
        (Ok(stack), Some((frames, module))) => {
            Ok(python::merged(stack, frames, &modules.all[module].path))
        }
        (stack, _) => stack,
    }
}

/// Returns the functions that make calls which return to `places`, each a file and the distance
/// from where the loader maps it; the innermost of inlined functions, and without a name where none
/// is known. The processes may be gone; files that were built again meanwhile have other lines
/// there.
#[must_use]
pub fn callers(places: &[(&str, u64)]) -> Vec<Frame> {
    let mut modules = Modules::default();
    let mut at = Vec::new();
    let mut wanted: Vec<BTreeSet<u64>> = Vec::new();
    for &(path, offset) in places {
        let module = modules.of_file(path);
        wanted.resize(modules.all.len(), BTreeSet::new());
        let lowest = modules.all[module].elf.as_ref().map_or(0, elf::Elf::lowest);
        // The call is the instruction before.
        let address = lowest.wrapping_add(offset).wrapping_sub(1);
        wanted[module].insert(address);
        at.push((module, address));
    }
    let found: Vec<HashMap<u64, Vec<Frame>>> = (modules.all.iter().zip(wanted))
        .map(|(module, wanted)| lines::frames(module, &Vec::from_iter(wanted)))
        .collect();
    let frame = |(module, address): (usize, u64)| {
        let frames = found[module].get(&address)?;
        frames.first().cloned()
    };
    at.into_iter()
        .zip(places)
        .map(|((module, address), (path, offset))| {
            if let Some(file) = path.strip_prefix(MARK) {
                return in_python(file, *offset);
            }
            frame((module, address)).unwrap_or(Frame {
                function: String::new(),
                file: None,
                line: None,
                module: modules.all[module].path.clone(),
                offset: address,
                is_python: false,
            })
        })
        .collect()
}

/// A line of a file of Python, of which the function is not known.
fn in_python(file: &str, line: u64) -> Frame {
    Frame {
        function: String::new(),
        file: Some(file.into()),
        line: u32::try_from(line).ok(),
        module: file.into(),
        offset: 0,
        is_python: true,
    }
}

/// Names what is on stacks.
fn named(
    modules: &Modules,
    walked: Vec<Result<Vec<Spot>, Refused>>,
) -> Vec<Result<Stack, Refused>> {
    let mut wanted: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); modules.all.len()];
    let spots = walked.iter().flatten().flatten();
    for (module, at) in spots.filter_map(Spot::lookup) {
        wanted[module].insert(at);
    }
    let found: Vec<HashMap<u64, Vec<Frame>>> = (modules.all.iter().zip(wanted))
        .map(|(module, wanted)| match wanted.is_empty() {
            true => HashMap::new(),
            false => lines::frames(module, &Vec::from_iter(wanted)),
        })
        .collect();
    let frames = |spot: &Spot| match spot.lookup() {
        Some((module, at)) => found[module].get(&at).cloned().unwrap_or_default(),
        None => Vec::new(),
    };
    walked
        .into_iter()
        .map(|spots| {
            let frames = spots?.iter().flat_map(frames).collect();
            Ok(Stack { frames })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn the_stack_of_a_process_that_sleeps_has_names() {
        let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
        let thread = Thread {
            pid: sleeper.id(),
            tid: sleeper.id(),
        };
        let began = Instant::now();
        loop {
            match stacks(&[thread]).remove(0) {
                // While it loads its libraries other functions are there.
                Ok(stack)
                    if !stack
                        .frames
                        .iter()
                        .any(|f| f.function.contains("nanosleep")) =>
                {
                    assert!(began.elapsed().as_secs() < 20, "{stack:?}");
                }
                Ok(stack) => {
                    let last = stack.frames.last().unwrap();
                    assert!(last.module.ends_with("sleep"), "the entry: {stack:?}");
                    break;
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::Forbidden);
                    break;
                }
            }
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(stacks(&[thread]), [Err(Refused::Gone)]);
    }

    fn frame(function: &str, module: &str, line: Option<u32>) -> Frame {
        Frame {
            function: function.into(),
            file: line.map(|_| "src/mesh.c".into()),
            line,
            module: module.into(),
            offset: 16,
            is_python: false,
        }
    }

    #[test]
    fn the_users_function_is_the_innermost_one_with_a_line() {
        let stack = Stack {
            frames: vec![
                frame("futex_wait", "libc.so.6", None),
                frame("MPI_Recv", "libmpi_abi.so.1", None),
                frame("wrapper", "a.out", None),
                frame("smooth", "a.out", Some(88)),
                frame("main", "a.out", Some(20)),
                frame("_start", "a.out", None),
            ],
        };
        assert_eq!(stack.users(), Some(&stack.frames[3]));
        assert_eq!(stack.users_frames().count(), 2);
        assert_eq!(stack.frames[3].to_string(), "at mesh.c:88 in smooth()");
        assert_eq!(stack.frames[2].to_string(), "in wrapper() of a.out");
        assert_eq!(frame("", "b.so", None).to_string(), "at b.so+0x10");
    }

    #[test]
    fn a_program_in_python_is_at_a_line_of_python() {
        let python = |function: &str, file: &str, line| Frame {
            file: Some(file.into()),
            is_python: true,
            ..frame(function, file, Some(line))
        };
        let generated = "src/mpi4py/MPI.cpython-312-x86_64-linux-gnu.so";
        let installed = "/venv/lib/python3.12/site-packages/mpi4py/MPI.cpython-312.so";
        for (module, listed) in [(generated, 3), (installed, 2)] {
            let stack = Stack {
                frames: vec![
                    frame("futex_wait", "libc.so.6", None),
                    frame("MPI_Recv", "libmpi_abi.so.1", None),
                    frame("__pyx_pw_recv", module, Some(171_020)),
                    python("recv", "/venv/lib/python3.12/site-packages/wrap.py", 7),
                    python("exchange", "jobs/solver.py", 30),
                    python("<module>", "jobs/solver.py", 99),
                ],
            };
            assert_eq!(stack.users(), Some(&stack.frames[4]), "{module}");
            assert_eq!(stack.users_frames().count(), listed, "{module}");
        }
        // A library alone, as of `python3 -m`.
        let stack = Stack {
            frames: vec![
                frame("__pyx_pw_recv", installed, Some(171_020)),
                python("bench", "/venv/lib/python3.12/site-packages/bench.py", 7),
            ],
        };
        assert_eq!(stack.users(), Some(&stack.frames[1]));
    }
}
