//! Installed trees: our own, in which this program stands, and a peer's; compiling the suite's
//! programs with them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use margay_bench_common::host::Host;
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::process::run_quietly;

/// One executable of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the executable.
    pub name: &'static str,
    /// Its source in `share/margay/bench`.
    pub source: &'static str,
    /// A macro to define and a library to link, for a form that is not MPI's.
    pub form: Option<(&'static str, &'static str)>,
}

/// Returns a program in its MPI form.
const fn plain(name: &'static str, source: &'static str) -> Program {
    Program {
        name,
        source,
        form: None,
    }
}

/// Every executable.
pub const PROGRAMS: [Program; 12] = [
    plain("livermore", "livermore.c"),
    plain("comtest", "comtest.c"),
    Program {
        name: "comtest-nx",
        source: "comtest.c",
        form: Some(("COMTEST_NX", "nx")),
    },
    Program {
        name: "comtest-mpl",
        source: "comtest.c",
        form: Some(("COMTEST_MPL", "mpl")),
    },
    plain("stream", "stream.c"),
    plain("matmul", "matmul.c"),
    plain("evm", "evm.c"),
    plain("ladder", "ladder.c"),
    plain("linpack", "linpack.c"),
    plain("getrf", "getrf.c"),
    Program {
        name: "files-nx",
        source: "files.c",
        form: Some(("FILES_NX", "nx")),
    },
    plain("files-mpi", "files.c"),
];

/// Our own tree, in which this program stands.
///
/// # Errors
/// When the program stands in no installed tree.
pub fn ours() -> Result<Installation> {
    let program = std::env::current_exe().context("cannot find the running program")?;
    let prefix = program
        .parent()
        .and_then(Path::parent)
        .with_context(|| format!("{} stands in no tree", program.display()))?;
    if !prefix.join("share/margay/bench/suite.h").exists() {
        bail!(
            "{} has no programs of the suite; use the margay of an installed tree",
            prefix.join("share/margay/bench").display()
        );
    }
    Installation::below(OURS, prefix)
}

/// Returns a peer's tree.
///
/// # Errors
/// When it has no compiler wrapper or launcher.
pub fn peer(prefix: &Path) -> Result<Installation> {
    let prefix = fs::canonicalize(prefix)
        .with_context(|| format!("--with-mpi: {} cannot be read", prefix.display()))?;
    let name = prefix
        .file_name()
        .map_or_else(|| "peer".into(), |name| name.to_string_lossy().into_owned());
    let name = if name == OURS { "peer" } else { name.as_str() };
    Installation::below(name, &prefix).context("--with-mpi")
}

/// Returns where the suite's sources are; only our own tree has them.
pub fn sources(ours: &Installation) -> PathBuf {
    ours.prefix().join("share/margay/bench")
}

/// Whether a tree has what a program is compiled with.
pub fn has(tree: &Installation, program: &Program) -> bool {
    program.form.is_none_or(|(_, library)| {
        let library_file = format!("lib/lib{library}.so");
        tree.prefix().join(library_file).exists()
            && tree.prefix().join(format!("include/{library}.h")).exists()
    })
}

/// Compiles a program with a tree unless the cache has it, and gives the executable.
///
/// # Errors
/// When it does not compile or the cache cannot be written.
pub fn compile(tree: &Installation, sources: &Path, program: &Program) -> Result<PathBuf> {
    let folder = format!("{}-{:016x}", tree.name, key(tree.prefix(), sources)?);
    cached(&folder, program.name, |executable| {
        let mut command = tree.compiler(120);
        command.arg("-std=gnu11").args(OPTIMIZED);
        if let Some((define, _)) = program.form {
            command.arg(format!("-D{define}"));
        }
        command
            .arg(sources.join(program.source))
            .arg("-o")
            .arg(executable);
        if let Some((_, library)) = program.form {
            command.arg(format!("-l{library}"));
        }
        run_quietly(command.args(["-lm", "-ldl"])).with_context(|| {
            format!(
                "{} does not compile with {}",
                program.source,
                tree.prefix().join("bin/mpicc").display()
            )
        })
    })
}

/// How every program is compiled, for the processor that it runs on.
pub const OPTIMIZED: [&str; 3] = ["-O3", "-march=native", "-w"];

/// Returns the executable `name` in `folder` of the cache; `compile` writes it to the path that it
/// is given when it is not there.
///
/// # Errors
/// Those of `compile`, and when the cache cannot be written.
pub fn cached(
    folder: &str,
    name: &str,
    compile: impl FnOnce(&Path) -> Result<String>,
) -> Result<PathBuf> {
    let folder = cache()?.join(folder);
    let executable = folder.join(name);
    if executable.exists() {
        return Ok(executable);
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let partial = folder.join(format!("{name}.{}", std::process::id()));
    compile(&partial)?;
    fs::rename(&partial, &executable)
        .with_context(|| format!("{}: cannot be written", executable.display()))?;
    Ok(executable)
}

/// Returns what decides about executables: the tree or the compiler that they are made with, all
/// sources, and the processor.
///
/// # Errors
/// When the sources cannot be read.
pub fn key(with: &Path, sources: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    with.hash(&mut hasher);
    Host::detect().processor.hash(&mut hasher);
    hash_folder(sources, &mut hasher)?;
    Ok(hasher.finish())
}

fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let report = |path: &Path| format!("{}: cannot be read", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| report(folder))? {
        files.push(entry?.path());
    }
    files.sort();
    for file in files {
        file.file_name().hash(hasher);
        if file.is_dir() {
            hash_folder(&file, hasher)?;
        } else {
            fs::read(&file).with_context(|| report(&file))?.hash(hasher);
        }
    }
    Ok(())
}

/// Returns the folder for executables: in the user's cache, else in the folder for temporary files.
///
/// # Errors
/// When neither can be written.
pub fn cache() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let user = std::env::var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| home.map(|home| PathBuf::from(home).join(".cache")));
    if let Some(folder) = user.map(|folder| folder.join("margay/bench"))
        && fs::create_dir_all(&folder).is_ok()
    {
        return Ok(folder);
    }
    let folder = std::env::temp_dir().join(format!("margay-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_without_tools_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", peer(folder.path()).unwrap_err());
        assert!(error.contains("--with-mpi"), "{error}");
        assert!(error.contains("has no bin/mpicc"), "{error}");
        let error = format!("{:#}", peer(&folder.path().join("nothing")).unwrap_err());
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn forms_need_their_library_and_header() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin/mpicc", "bin/mpiexec", "lib/libnx.so", "include/nx.h"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let tree = peer(folder.path()).unwrap();
        let has = |name: &str| super::has(&tree, PROGRAMS.iter().find(|p| p.name == name).unwrap());
        assert!(has("comtest") && has("comtest-nx") && !has("comtest-mpl"));
    }

    #[test]
    fn executables_of_other_sources_are_others() {
        let sources = tempfile::tempdir().unwrap();
        let (path, tree) = (sources.path(), Path::new("/opt/tree"));
        fs::create_dir(path.join("folder")).unwrap();
        let mut keys = Vec::new();
        for (file, text) in [("a.c", "1"), ("a.c", "2"), ("folder/b.c", "1")] {
            fs::write(path.join(file), text).unwrap();
            keys.push(key(tree, path).unwrap());
        }
        keys.push(key(Path::new("/opt/other"), path).unwrap());
        assert_eq!(key(tree, path).unwrap(), keys[2]);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }
}
