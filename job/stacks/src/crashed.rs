//! The stacks of processes that have crashed: whether the system writes core files, which one is
//! that of a process, and the stack of the thread that crashed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use margay_sys_os::trace::ThreadImage;

use crate::core_file::CoreFile;
use crate::elf::Source;
use crate::maps::Modules;
use crate::{Stack, named, unwind};

/// Files of a folder that are looked at, the youngest ones.
const MOST_FILES: usize = 64;

/// Whether the system writes core files where the limit of their size (`ulimit -c`) allows it; if
/// not, it hands them to a program or to nobody.
#[must_use]
pub fn are_written() -> bool {
    pattern().is_some()
}

/// Reads the stack of a process that has crashed from its core file, which is where the system puts
/// them all, or in one of `folders`, in which the processes were started. Of several processes it
/// is the first one that has such a file, with its number: where the names are the same for all,
/// one file is left. None when there is no file, or it cannot be read.
#[must_use]
pub fn crashed(processes: &[u32], folders: &[PathBuf]) -> Option<(u32, Stack)> {
    let (folder, prefix) = pattern()?;
    let folders = folder.as_ref().map_or(folders, std::slice::from_ref);
    let open = |path: PathBuf| CoreFile::of(Source::of_file(File::open(path).ok()?)?);
    let paths = folders.iter().flat_map(|folder| youngest(folder, &prefix));
    let cores: Vec<CoreFile> = paths.filter_map(open).collect();
    let of_process = |process: &u32| cores.iter().find(|core| core.process == *process);
    let core = processes.iter().find_map(of_process)?;
    Some((core.process, stack_of(core)?))
}

/// The stack of a thread of a process that has crashed, from what that has written down.
#[must_use]
pub fn written_down(image: &ThreadImage, maps: &str) -> Option<Stack> {
    let mut modules = Modules::default();
    let maps = modules.of_dead(maps);
    let spots = unwind::walk(image, &maps, &modules);
    named(&modules, vec![Ok(spots)]).remove(0).ok()
}

/// Where core files are, if always in the same folder, and how their names begin.
fn pattern() -> Option<(Option<PathBuf>, String)> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    split_pattern(pattern.trim_end_matches('\n'))
}

fn split_pattern(pattern: &str) -> Option<(Option<PathBuf>, String)> {
    // To a program, or to a socket.
    if pattern.is_empty() || pattern.starts_with(['|', '@']) {
        return None;
    }
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    // What the system puts in for `%p` and the like is not looked for: the file has the process.
    let prefix = name.split('%').next().unwrap_or_default().to_owned();
    match folder {
        "" if pattern.starts_with('/') => Some((Some("/".into()), prefix)),
        "" => Some((None, prefix)),
        folder if folder.starts_with('/') && !folder.contains('%') => {
            Some((Some(folder.into()), prefix))
        }
        _ => None,
    }
}

fn youngest(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    let files = named.filter_map(|entry| {
        let facts = entry.metadata().ok().filter(|facts| facts.is_file())?;
        Some((
            facts.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            entry.path(),
        ))
    });
    let mut files: Vec<(SystemTime, PathBuf)> = files.collect();
    files.sort_by(|a, b| b.cmp(a));
    files.truncate(MOST_FILES);
    files.into_iter().map(|(_, path)| path).collect()
}

/// The stack of the thread that crashed.
fn stack_of(core: &CoreFile) -> Option<Stack> {
    let mut modules = Modules::default();
    let maps = modules.of_core(core);
    let spots = unwind::walk(&core.image, &maps, &modules);
    named(&modules, vec![Ok(spots)]).remove(0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_core_files_are() {
        let at = |pattern| {
            let found = split_pattern(pattern);
            found.map(|(folder, prefix)| (folder.map(|f| f.display().to_string()), prefix))
        };
        let prefix = |text: &str| text.to_owned();
        assert_eq!(at("core"), Some((None, prefix("core"))));
        assert_eq!(at("core.%e.%p"), Some((None, prefix("core."))));
        assert_eq!(at("/var/c/%p"), Some((Some("/var/c".into()), prefix(""))));
        assert_eq!(at("/%p"), Some((Some("/".into()), prefix(""))));
        for nobody in [
            "|/usr/bin/handler %p",
            "",
            "@/run/socket",
            "/var/%u/core",
            "cores/c",
        ] {
            assert_eq!(at(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn a_core_file_that_is_cut_or_damaged_is_no_reason_to_panic() {
        let folder = tempfile::tempdir().unwrap();
        let mut crashing = std::process::Command::new("sh")
            .args(["-c", "ulimit -c unlimited; kill -SEGV $$"])
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        crashing.wait().unwrap();
        let files = youngest(folder.path(), "");
        let [file] = &files[..] else {
            return println!("note: the system writes no core files there");
        };
        let (found, stack) = crashed(&[1, crashing.id()], &[folder.path().into()]).unwrap();
        assert_eq!(found, crashing.id());
        assert!(!stack.frames.is_empty());
        let whole = fs::read(file).unwrap();
        let read = |bytes| CoreFile::of(Source::Memory(bytes)).map(|core| stack_of(&core));
        for len in (0..whole.len()).step_by(whole.len() / 64 + 1) {
            let _ = read(whole[..len].to_vec());
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let mut damaged = whole.clone();
            for _ in 0..8 {
                // Tables and notes are in the first pages.
                damaged[random.usize(..8192.min(whole.len()))] = random.u8(..);
            }
            let _ = read(damaged);
        }
    }
}
