//! Programs that were linked with another implementation of MPI: which library they name, and how
//! they get ours instead. A program of another implementation of the standard's ABI gets our
//! `libmpi_abi.so.1`.
//!
//! Beside our libraries, in the folder `faces`, lie libraries with the names and the ABIs of MPICH
//! and Open MPI. The dynamic linker searches `LD_LIBRARY_PATH` before the system's folders and a
//! program's `DT_RUNPATH`, so naming that folder there suffices for most programs. It searches
//! `DT_RPATH` first; for what it would find so, ours are loaded before the program (`LD_PRELOAD`):
//! a library that is loaded already is not searched for under the same name again.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use goblin::elf::dynamic::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB};
use goblin::elf::program_header::{PT_DYNAMIC, PT_LOAD, ProgramHeader};

use crate::plan::LaunchError;

/// What a program's environment needs so that it finds our libraries under other implementations'
/// names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// The folder of these libraries; none when the installation has none.
    pub folder: Option<PathBuf>,
    /// Those that have to be loaded before the program.
    pub preloaded: Vec<PathBuf>,
}

/// The most libraries that are looked at: a chain of symbolic links must not go on for ever.
const MOST: usize = 256;
/// The library of MPICH's ABI, that the launcher names to mpi4py's wheels.
const MPICH: &str = "libmpi.so.12";
/// That of Open MPI's.
const OPEN_MPI: &str = "libmpi.so.40";

/// That of the standard's.
const STANDARD: &str = "libmpi_abi.so.1";

/// What mpi4py's binary wheels look at to find a library and its ABI.
const ENV_PYTHON_LIBRARY: &str = "MPI4PY_LIBMPI";
const ENV_PYTHON_ABI: &str = "MPI4PY_MPIABI";

impl Libraries {
    /// Looks at the file `program` and the libraries that it brings. `search` is its variable
    /// `LD_LIBRARY_PATH`.
    ///
    /// # Errors
    /// When it needs a library of MPI under a name for which there is none of ours.
    pub fn of(program: &Path, search: Option<&OsStr>) -> Result<Libraries, LaunchError> {
        let Some(folder) = folder() else {
            return Ok(Libraries::default());
        };
        let mut visit = Visit {
            folder: &folder,
            search: search.map(split).unwrap_or_default(),
            seen: BTreeSet::new(),
            preloaded: Vec::new(),
            program,
        };
        visit.object(program, &[])?;
        let preloaded = visit.preloaded;
        Ok(Libraries {
            folder: Some(folder),
            preloaded,
        })
    }

    /// The variables that a rank needs, from those that it has.
    #[must_use]
    pub fn variables(&self, variables: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let Some(folder) = &self.folder else {
            return Vec::new();
        };
        let old = |name: &str| {
            let found = variables.iter().rev().find(|(n, _)| n == name);
            found.map(|(_, value)| value.as_os_str())
        };
        let mut all = vec![(
            OsString::from("LD_LIBRARY_PATH"),
            before(folder.as_os_str(), old("LD_LIBRARY_PATH")),
        )];
        // The user's come first: among them are tools that put their functions before MPI's.
        let mut loaded = old("LD_PRELOAD")
            .filter(|value| !value.is_empty())
            .map(OsStr::to_owned);
        for library in &self.preloaded {
            loaded = Some(match loaded {
                Some(others) => before(&others, Some(library.as_os_str())),
                None => library.as_os_str().to_owned(),
            });
        }
        if !self.preloaded.is_empty() {
            all.extend(loaded.map(|value| ("LD_PRELOAD".into(), value)));
        }
        let asked = old(ENV_PYTHON_LIBRARY).map(|value| Path::new(value).file_name());
        let library = match (asked, old(ENV_PYTHON_ABI)) {
            // The user's own choice of a library for which there is one of ours, or of another,
            // which stays.
            (Some(name), _) => name.map(|name| folder.join(name)),
            (None, Some(abi)) if abi.to_string_lossy().to_lowercase().contains("open") => {
                Some(folder.join(OPEN_MPI))
            }
            (None, _) => Some(folder.join(MPICH)),
        };
        if let Some(library) = library.filter(|library| library.exists()) {
            all.push((ENV_PYTHON_LIBRARY.into(), library.into()));
        }
        all
    }
}

/// The folder of the libraries of other ABIs, beside the launcher's own.
pub(crate) fn folder() -> Option<PathBuf> {
    // The kernel's own link to it, without symbolic links.
    let launcher = std::env::current_exe().ok()?;
    let folder = launcher.parent()?.parent()?.join("lib/faces");
    folder.is_dir().then_some(folder)
}

fn before(first: &OsStr, rest: Option<&OsStr>) -> OsString {
    let mut all = first.to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        all.push(":");
        all.push(rest);
    }
    all
}

fn split(path: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect()
}

struct Visit<'a> {
    folder: &'a Path,
    search: Vec<PathBuf>,
    seen: BTreeSet<PathBuf>,
    preloaded: Vec<PathBuf>,
    program: &'a Path,
}

impl Visit<'_> {
    /// `inherited` are the `DT_RPATH` of those that loaded the object.
    fn object(&mut self, file: &Path, inherited: &[PathBuf]) -> Result<(), LaunchError> {
        if self.seen.len() >= MOST || !self.seen.insert(file.to_owned()) {
            return Ok(());
        }
        // What is no ELF file has nothing to say; the kernel judges it later.
        let Ok(Some(object)) = Object::read(file) else {
            return Ok(());
        };
        let mut first = Vec::new();
        if object.run_path.is_empty() {
            first.extend(object.path.iter().cloned());
            first.extend(inherited.iter().cloned());
        }
        for name in &object.needed {
            let early = find(&first, name);
            if name.as_str() == STANDARD {
                self.standard(early, &object);
                continue;
            }
            let ours = self.folder.join(name);
            if ours.is_file() {
                if name.as_str() == MPICH && object.is_old_open_mpi {
                    return Err(self.refusal(name, "Open MPI 1"));
                }
                if early.is_some() && !self.preloaded.contains(&ours) {
                    self.preloaded.push(ours);
                }
                continue;
            }
            if let Some(implementation) = unknown(name) {
                return Err(self.refusal(name, implementation));
            }
            let found = early
                .or_else(|| find(&self.search, name))
                .or_else(|| find(&object.run_path, name));
            // A library in one of the system's folders names no private folders.
            if let Some(found) = found {
                self.object(&found, &first)?;
                continue;
            }
            let empty = self.folder.join("empty").join(name);
            if empty.is_file() && !has_system(name) && !self.preloaded.contains(&empty) {
                self.preloaded.push(empty);
            }
        }
        Ok(())
    }

    /// The library of the standard's ABI: ours, whichever the program would find.
    fn standard(&mut self, early: Option<PathBuf>, object: &Object) {
        let ours = self.folder.with_file_name(STANDARD);
        let found = early
            .or_else(|| find(&self.search, STANDARD))
            .or_else(|| find(&object.run_path, STANDARD));
        let identity = |file: &Path| {
            let facts = file.metadata().ok()?;
            Some((facts.dev(), facts.ino()))
        };
        let Some(own) = identity(&ours) else {
            return;
        };
        if found.and_then(|found| identity(&found)) != Some(own) && !self.preloaded.contains(&ours)
        {
            self.preloaded.push(ours);
        }
    }

    fn refusal(&self, name: &str, implementation: &str) -> LaunchError {
        LaunchError {
            message: format!(
                "'{}' needs {name} ({implementation}), and Margay has no library with that ABI; compile it again with \
                 Margay's mpicc, or start it with the mpiexec of its own MPI",
                self.program.display()
            ),
            status: 126,
        }
    }
}

fn find(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let mut candidates = folders.iter().map(|folder| folder.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// Whether the system has a library, for programs that name it and never call it.
fn has_system(name: &str) -> bool {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
        .iter()
        .map(Path::new)
        .any(|folder| folder.join(name).exists() || folder.join(&multiarch).join(name).exists())
}

/// The implementation to which a library belongs that ranks must not use, because processes of
/// another implementation know nothing of our job.
fn unknown(name: &str) -> Option<&'static str> {
    let (stem, version) = name.split_once(".so")?;
    match (stem, version.trim_start_matches('.')) {
        ("libmpi", "0" | "1" | "20") => Some("Open MPI 1 to 2"),
        ("libmpi", "") => Some("HPE MPI or an MPI of its vendor"),
        ("libmpich", _) => Some("MPICH 1 to 2"),
        ("libmpi_ibm" | "libmpi_ibm_usempi", _) => Some("IBM Spectrum MPI"),
        (stem, _) if stem.starts_with("libmpi_gnu") || stem.starts_with("libmpi_cray") => {
            Some("Cray MPICH")
        }
        _ => None,
    }
}

/// What the dynamic linker reads of a program or a library.
struct Object {
    needed: Vec<String>,
    path: Vec<PathBuf>,
    run_path: Vec<PathBuf>,
    /// Open MPI 1.7 to 1.10 had the name of MPICH's library, and symbols of its own.
    is_old_open_mpi: bool,
}

impl Object {
    /// `None` for what is no ELF file of this machine's kind.
    fn read(file: &Path) -> io::Result<Option<Object>> {
        let source = File::open(file)?;
        let take = |offset: u64, length: u64| -> io::Result<Vec<u8>> {
            // The tables of a program of gigabytes have some megabytes.
            let mut bytes = vec![0; usize::try_from(length.min(64 << 20)).unwrap_or(0)];
            source.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        let Ok(header) = goblin::elf::Elf::parse_header(&take(0, 64)?) else {
            return Ok(None);
        };
        let (Ok(container), Ok(endian)) = (header.container(), header.endianness()) else {
            return Ok(None);
        };
        let context = goblin::container::Ctx::new(container, endian);
        let size = u64::from(header.e_phnum) * u64::from(header.e_phentsize);
        let table = take(header.e_phoff, size)?;
        let Ok(segments) = ProgramHeader::parse(&table, 0, usize::from(header.e_phnum), context)
        else {
            return Ok(None);
        };
        let Some(dynamic) = segments.iter().find(|s| s.p_type == PT_DYNAMIC) else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        for pair in take(dynamic.p_offset, dynamic.p_filesz)?.chunks_exact(16) {
            let word = |at: usize| {
                let bytes: [u8; 8] = pair[at..at + 8].try_into().unwrap_or_default();
                u64::from_ne_bytes(bytes)
            };
            entries.push((word(0), word(8)));
        }
        let value = |tag: u64| entries.iter().find(|(t, _)| *t == tag).map(|(_, v)| *v);
        let (Some(address), Some(length)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Ok(None);
        };
        let loaded = segments.iter().find(|s| {
            s.p_type == PT_LOAD && (s.p_vaddr..s.p_vaddr + s.p_filesz).contains(&address)
        });
        let Some(segment) = loaded else {
            return Ok(None);
        };
        let texts = take(segment.p_offset + (address - segment.p_vaddr), length)?;
        let text = |at: u64| {
            let rest = texts.get(usize::try_from(at).unwrap_or(usize::MAX)..)?;
            rest.split(|&b| b == 0).next()
        };
        let all = |tag: u64| {
            let of_tag = entries.iter().filter(move |(t, _)| *t == tag);
            of_tag.filter_map(|(_, v)| text(*v))
        };
        let folders = |tag: u64| -> Vec<PathBuf> {
            all(tag)
                .flat_map(|paths| split(OsStr::from_bytes(paths)))
                .map(|folder| expanded(&folder, file))
                .collect()
        };
        Ok(Some(Object {
            needed: all(DT_NEEDED)
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect(),
            path: folders(DT_RPATH),
            run_path: folders(DT_RUNPATH),
            is_old_open_mpi: texts
                .split(|&b| b == 0)
                .any(|name| name == b"ompi_mpi_comm_world"),
        }))
    }
}

/// A folder of a search path, with the object's own folder for `$ORIGIN`.
fn expanded(folder: &Path, file: &Path) -> PathBuf {
    let text = folder.to_string_lossy();
    if !text.contains('$') {
        return folder.to_owned();
    }
    let own = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let own = own.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let text = text.replace("${ORIGIN}", &own).replace("$ORIGIN", &own);
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(libraries: &Libraries, set: &[(&str, &str)]) -> Vec<String> {
        let set: Vec<(OsString, OsString)> =
            set.iter().map(|(n, v)| (n.into(), v.into())).collect();
        let made = libraries.variables(&set);
        made.iter()
            .map(|(n, v)| format!("{}={}", n.to_string_lossy(), v.to_string_lossy()))
            .collect()
    }

    #[test]
    fn the_users_search_path_stays_behind_ours_and_what_it_preloads_before() {
        let libraries = Libraries {
            folder: Some("/m/lib/faces".into()),
            preloaded: vec!["/m/a".into(), "/m/b".into()],
        };
        let set = [("LD_LIBRARY_PATH", "/own"), ("LD_PRELOAD", "/malloc.so")];
        assert_eq!(
            variables(&libraries, &set),
            [
                "LD_LIBRARY_PATH=/m/lib/faces:/own",
                "LD_PRELOAD=/malloc.so:/m/a:/m/b"
            ]
        );
        assert!(variables(&Libraries::default(), &set).is_empty());
    }

    #[test]
    fn python_is_led_to_the_library_that_its_user_chose() {
        let folder = tempfile::tempdir().unwrap();
        for name in [MPICH, OPEN_MPI] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let libraries = Libraries {
            folder: Some(folder.path().to_owned()),
            preloaded: Vec::new(),
        };
        let library = |set: &[(&str, &str)]| {
            let all = variables(&libraries, set);
            let found = all.iter().find_map(|v| v.strip_prefix("MPI4PY_LIBMPI="));
            found.map(|path| path.rsplit('/').next().unwrap().to_owned())
        };
        assert_eq!(library(&[]).unwrap(), MPICH);
        assert_eq!(library(&[("MPI4PY_MPIABI", "openmpi")]).unwrap(), OPEN_MPI);
        assert_eq!(
            library(&[("MPI4PY_LIBMPI", "/x/libmpi.so.40")]).unwrap(),
            OPEN_MPI
        );
        assert_eq!(
            library(&[("MPI4PY_LIBMPI", "/m/lib/libmpi_abi.so.1")]),
            None
        );
    }

    #[test]
    fn names_of_other_implementations_are_known() {
        assert_eq!(unknown("libmpi.so.20"), Some("Open MPI 1 to 2"));
        assert_eq!(unknown("libmpich.so.10"), Some("MPICH 1 to 2"));
        assert_eq!(
            unknown("libmpi.so"),
            Some("HPE MPI or an MPI of its vendor")
        );
        assert_eq!(unknown("libmpi_abi.so.1"), None);
        assert_eq!(unknown("libmpi_cxx.so.20"), None);
        assert_eq!(unknown("libc.so.6"), None);
    }

    #[test]
    fn this_test_is_an_object_with_libraries() {
        let own = std::env::current_exe().unwrap();
        let object = Object::read(&own).unwrap().unwrap();
        assert!(object.needed.iter().any(|name| name.starts_with("libc.so")));
        assert!(!object.is_old_open_mpi);
        assert!(
            Object::read(Path::new("Cargo.toml"))
                .unwrap_or(None)
                .is_none()
        );
    }
}
