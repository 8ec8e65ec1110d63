//! The files that a process has mapped, and what is read of them. Ranks run the same files, so a
//! file is opened once for all.

use std::collections::HashMap;
use std::fs::{self, File};

use margay_sys_os::trace::upwards;

use crate::core_file::CoreFile;
use crate::elf::Elf;
use crate::interpreter::Runtime;
use crate::tables::Tables;

/// What the loader leaves as it is in the file, and what must therefore agree.
const HEAD: usize = 4096;
/// The most bytes of the kernel's own code in a process.
const MOST_VDSO: usize = 64 << 10;

/// A mapping of instructions.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    /// Which of the modules.
    module: usize,
}

/// A file of instructions.
pub(crate) struct Module {
    /// As the process sees it.
    pub(crate) path: String,
    /// What the process takes for the root of all files.
    pub(crate) root: String,
    /// None when it cannot be read, or is another file by now.
    pub(crate) elf: Option<Elf>,
    pub(crate) tables: Tables,
    /// The interpreter of Python in it.
    pub(crate) python: Option<Runtime>,
}

/// All files of all processes that are looked at.
#[derive(Default)]
pub(crate) struct Modules {
    pub(crate) all: Vec<Module>,
    /// By device, number and path, as the system has them.
    known: HashMap<String, usize>,
}

/// The mappings of a process.
pub(crate) struct Maps {
    sorted: Vec<Mapping>,
}

impl Maps {
    /// The module in which an address is, and what is added to addresses in the file; none where no
    /// instructions are. Without the file the beginning of its mapping is taken for its first byte.
    pub(crate) fn find(&self, modules: &Modules, address: u64) -> Option<(usize, u64)> {
        let at = self.sorted.partition_point(|m| m.end <= address);
        let mapping = self.sorted.get(at).filter(|m| m.begin <= address)?;
        let elf = modules.all[mapping.module].elf.as_ref();
        let bias = elf
            .and_then(|elf| elf.bias(mapping.begin, mapping.offset))
            .unwrap_or(mapping.begin.wrapping_sub(mapping.offset));
        Some((mapping.module, bias))
    }
}

impl Maps {
    /// The modules, each with what is added to addresses in its file.
    pub(crate) fn modules<'a>(
        &'a self,
        modules: &'a Modules,
    ) -> impl Iterator<Item = (usize, u64)> + 'a {
        let places = self.sorted.iter().map(|mapping| mapping.begin);
        places.filter_map(|begin| self.find(modules, begin))
    }
}

impl Modules {
    /// The mappings of a process; none when the system does not show them.
    pub(crate) fn of(&mut self, pid: u32) -> Option<Maps> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        Some(self.of_lines(&text, |path, begin| open(pid, path, begin)))
    }

    /// The mappings of a process that is gone, from lines as the system has them.
    pub(crate) fn of_dead(&mut self, text: &str) -> Maps {
        let open = |path: &str, _| {
            // What was a file may have become a pipe meanwhile, whose opening would wait.
            let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
            let file = is_file.then(|| File::open(path).ok()).flatten();
            Module::new(path, String::new(), file.and_then(Elf::open))
        };
        self.of_lines(text, open)
    }

    fn of_lines(&mut self, text: &str, open: impl Fn(&str, Option<u64>) -> Module) -> Maps {
        /// A process with more is not read to the end.
        const MOST: usize = 65_536;
        let mut sorted = Vec::new();
        // Where the files of which instructions follow begin.
        let mut begins: HashMap<&str, u64> = HashMap::new();
        for line in text.lines().take(MOST) {
            let mut words = line.split_ascii_whitespace();
            let (Some(range), Some(access), Some(offset), Some(device), Some(inode)) = (
                words.next(),
                words.next(),
                words.next(),
                words.next(),
                words.next(),
            ) else {
                continue;
            };
            let Some(path) = words
                .next()
                .and_then(|word| Some(&line[line.find(word)?..]))
            else {
                continue;
            };
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let (Some(Some((begin, end))), Some(offset)) = (
                range.split_once('-').map(|(b, e)| Some((hex(b)?, hex(e)?))),
                hex(offset),
            ) else {
                continue;
            };
            if offset == 0 {
                begins.insert(path, begin);
            }
            if !access.contains('x') || !(path.starts_with('/') || path == "[vdso]") {
                continue;
            }
            let key = format!("{device} {inode} {path}");
            let module = *self.known.entry(key).or_insert_with(|| {
                self.all.push(open(path, begins.get(path).copied()));
                self.all.len() - 1
            });
            sorted.push(Mapping {
                begin,
                end,
                offset,
                module,
            });
        }
        Maps { sorted }
    }

    /// A file by its name.
    pub(crate) fn of_file(&mut self, path: &str) -> usize {
        *self.known.entry(path.to_owned()).or_insert_with(|| {
            // What was a file may have become a pipe meanwhile, whose opening would wait.
            let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
            let elf = is_file.then(|| File::open(path).ok()).flatten();
            self.all
                .push(Module::new(path, String::new(), elf.and_then(Elf::open)));
            self.all.len() - 1
        })
    }

    /// The mappings of a process that has crashed, as its core file has them.
    pub(crate) fn of_core(&mut self, core: &CoreFile) -> Maps {
        let mut sorted = Vec::new();
        for (begin, end) in core.instructions() {
            let Some(file) = core.file_at(begin) else {
                continue;
            };
            let module = *self.known.entry(file.path.clone()).or_insert_with(|| {
                self.all.push(open_of_core(core, &file.path));
                self.all.len() - 1
            });
            sorted.push(Mapping {
                begin,
                end,
                offset: file.offset.saturating_add(begin - file.begin),
                module,
            });
        }
        sorted.sort_by_key(|mapping| mapping.begin);
        Maps { sorted }
    }
}

fn open_of_core(core: &CoreFile, path: &str) -> Module {
    // What was a file may have become a pipe meanwhile, whose opening would wait.
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    let elf = is_file.then(|| File::open(path).ok()).flatten();
    let elf = elf.and_then(Elf::open).filter(|elf| {
        let own = elf.beginning(HEAD as u64);
        let begin = core.beginning_of(path).unwrap_or_default();
        !own.is_empty() && core.memory(begin, HEAD).starts_with(&own)
    });
    Module::new(path, String::new(), elf)
}

fn open(pid: u32, path: &str, begin: Option<u64>) -> Module {
    let root = format!("/proc/{pid}/root");
    let elf = match (path, begin) {
        ("[vdso]", Some(begin)) => Elf::of_bytes(upwards(pid, begin, MOST_VDSO)),
        (_, Some(begin)) => {
            let file = match path.strip_suffix(" (deleted)") {
                // The program's file is there as long as it runs.
                Some(_) => is_program(pid, path).then(|| File::open(format!("/proc/{pid}/exe"))),
                None => Some(File::open(format!("{root}{path}"))),
            };
            let elf = file.and_then(|file| Elf::open(file.ok()?));
            // A file that has been built again meanwhile has other lines at the same places.
            elf.filter(|elf| {
                let own = elf.beginning(HEAD as u64);
                !own.is_empty() && upwards(pid, begin, HEAD).starts_with(&own)
            })
        }
        _ => None,
    };
    Module::new(path, root, elf)
}

impl Module {
    pub(crate) fn new(path: &str, root: String, elf: Option<Elf>) -> Module {
        Module {
            path: path.to_owned(),
            root,
            tables: Tables::of(elf.as_ref()),
            python: Runtime::of(path, elf.as_ref()),
            elf,
        }
    }
}

fn is_program(pid: u32, path: &str) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.as_os_str() == path)
}
