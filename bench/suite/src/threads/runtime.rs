//! The runtimes that are measured: where each is found, how programs are compiled for it, and that
//! it was this one that ran.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use margay_bench_common::mpi::OURS;
use margay_bench_common::process::{bounded, run_quietly};
pub use margay_cli_bench_options::RUNTIMES as NAMES;
use margay_cli_bench_options::{Chapter, ThreadKernel as Kernel};

use super::plan::Unit;
use crate::install::{OPTIMIZED, cache, cached, key};

/// Margay's threads by the calls of `iml.h`; by OpenMP they are [`OURS`].
pub const IML: &str = "iml";

/// What the names of peers end with that get `OMP_WAIT_POLICY=passive`, the usual remedy where
/// threads outnumber cores.
const PASSIVE: &str = "-passive";

/// OpenMP's programs compiled without it.
pub const SEQUENTIAL: &str = "sequential";

/// The runtimes of kernels: those that run what gcc has compiled once, so that they differ in
/// nothing but the library.
pub const OF_KERNELS: [&str; 6] = [
    OURS,
    "libgomp",
    "libgomp-passive",
    "libomp",
    "libomp-passive",
    SEQUENTIAL,
];

/// The compilers; OpenMP's programs need those whose code calls libgomp.
const CC: &str = "gcc";
const CXX: &str = "g++";

/// How a program is made for a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// OpenMP by the calls of libgomp, for any library that has these.
    OpenMp,
    /// OpenMP by clang, for the library that comes with it.
    Clang(PathBuf),
    Tbb,
    /// IML below a prefix.
    Iml(PathBuf),
    Sequential,
}

impl Form {
    fn compiler(&self) -> &Path {
        match self {
            Self::Clang(clang) => clang,
            Self::Tbb => Path::new(CXX),
            Self::OpenMp | Self::Iml(_) | Self::Sequential => Path::new(CC),
        }
    }
}

/// A runtime that is installed.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// One of [`NAMES`].
    pub name: &'static str,
    form: Form,
    /// The library that must be loaded, where there could be others.
    library: Option<PathBuf>,
    /// Our own tree, which is left out of names of files.
    prefix: PathBuf,
    /// What the compiler says of its version.
    compiler: String,
}

/// Returns the runtimes of `names` (none: all) that are installed, and of the others why not.
/// `prefix` is our own tree.
pub fn find(prefix: &Path, names: &[String]) -> (Vec<Runtime>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in NAMES {
        if !names.is_empty() && !names.iter().any(|chosen| chosen == name) {
            continue;
        }
        match Runtime::find(name, prefix) {
            Ok(runtime) => found.push(runtime),
            Err(error) => missing.push(format!("{name}: not installed: {error:#}")),
        }
    }
    (found, missing)
}

impl Runtime {
    fn find(name: &'static str, prefix: &Path) -> Result<Self> {
        let runtime = |form: Form, library| {
            let report = run_quietly(bounded(10).arg(form.compiler()).arg("--version"))
                .with_context(|| format!("install {}", form.compiler().display()))?;
            let compiler = report.lines().next().unwrap_or_default().to_owned();
            anyhow::Ok(Self {
                name,
                form,
                library,
                prefix: prefix.to_path_buf(),
                compiler,
            })
        };
        let in_tree = |file: &str| {
            fs::canonicalize(prefix.join(file)).with_context(|| format!("the tree has no {file}"))
        };
        match name {
            OURS => runtime(Form::OpenMp, Some(in_tree("lib/gomp/libgomp.so.1")?)),
            IML => {
                in_tree("include/iml.h")?;
                let library = in_tree("lib/libiml.so")?;
                runtime(Form::Iml(prefix.to_path_buf()), Some(library))
            }
            "libgomp" | "libgomp-passive" => {
                runtime(Form::OpenMp, Some(library("libgomp.so.1", "libgomp1")?))
            }
            "libomp" | "libomp-passive" => {
                let found =
                    library("libomp.so.5", "").or_else(|_| library("libomp.so", "libomp-19-dev"));
                runtime(Form::OpenMp, Some(found?))
            }
            "libomp-clang" => runtime(Form::Clang(clang()?), None),
            "tbb" => {
                probe(Path::new(CXX), "c++", "tbb/global_control.h")
                    .context("install libtbb-dev")?;
                runtime(Form::Tbb, None)
            }
            _ => {
                probe(Path::new(CC), "c", "stdio.h").context("install gcc")?;
                runtime(Form::Sequential, None)
            }
        }
    }

    /// Whether the unit says something about this runtime: one thread has nothing to fork, and is
    /// all that sequential ones have; kernels are run by [`OF_KERNELS`].
    pub fn measures(&self, unit: &Unit) -> bool {
        let is_kernel = unit.kernel.chapter() == Chapter::Kernels;
        match self.form {
            Form::Sequential if is_kernel => unit.threads == 1 && !unit.contended,
            Form::Sequential => unit.threads == 1 && unit.kernel != Kernel::Fork,
            Form::Tbb | Form::Iml(_) | Form::Clang(_) => !is_kernel,
            Form::OpenMp => true,
        }
    }

    /// Compiles a kernel unless the cache has it, and gives the executable. OpenMP's programs are
    /// compiled once for all libraries with the calls of libgomp.
    ///
    /// # Errors
    /// When it does not compile or the cache cannot be written.
    pub fn compile(&self, sources: &Path, kernel: Kernel) -> Result<PathBuf> {
        let sources = sources.join("threads");
        let compiler = self.form.compiler();
        let (standard, folder, kind) = match &self.form {
            Form::Tbb => ("-std=c++17", "tbb", "cpp"),
            Form::Iml(_) => ("-std=gnu11", IML, "c"),
            Form::OpenMp | Form::Clang(_) | Form::Sequential => ("-std=gnu11", "openmp", "c"),
        };
        let (form, with) = match &self.form {
            Form::OpenMp => ("openmp", compiler),
            Form::Iml(prefix) => (IML, prefix.as_path()),
            _ => (self.name, compiler),
        };
        let name = kernel.name();
        let cache_folder = format!(
            "threads-{form}-{:016x}",
            key(with, sources.parent().unwrap_or(&sources))?
        );
        cached(&cache_folder, &name, |executable| {
            let source = sources.join(format!("{folder}/{name}.{kind}"));
            let mut command = bounded(120);
            command
                .arg(compiler)
                .args([standard, "-D_GNU_SOURCE"])
                .args(OPTIMIZED);
            match &self.form {
                Form::OpenMp | Form::Clang(_) => {
                    command.arg("-fopenmp");
                }
                Form::Iml(prefix) => {
                    command.arg("-I").arg(prefix.join("include"));
                }
                Form::Tbb | Form::Sequential => {}
            }
            command.arg(&source).arg("-o").arg(executable);
            match &self.form {
                Form::Iml(prefix) => {
                    let library = prefix.join("lib");
                    command.arg("-L").arg(&library).arg("-liml");
                    command.arg(format!("-Wl,-rpath,{}", library.display()));
                }
                Form::Tbb => {
                    command.arg("-ltbb");
                }
                _ => {}
            }
            run_quietly(command.args(["-lm", "-ldl"]).stdin(Stdio::null())).with_context(|| {
                format!(
                    "{folder}/{name}.{kind} does not compile with {}",
                    compiler.display()
                )
            })
        })
    }

    /// Sets the environment of a program: this runtime, nested regions that are parallel, and else
    /// what is the default.
    ///
    /// # Errors
    /// When the cache, in which the library gets the name that programs know, cannot be written.
    pub fn prepare(&self, command: &mut Command, threads: usize) -> Result<()> {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["OMP_", "GOMP_", "KMP_"]
                .iter()
                .any(|start| text.starts_with(start))
            {
                command.env_remove(&name);
            }
        }
        command
            .stdin(Stdio::null())
            .env("OMP_NUM_THREADS", threads.to_string())
            .env("OMP_MAX_ACTIVE_LEVELS", "4");
        if self.name.ends_with(PASSIVE) {
            command.env("OMP_WAIT_POLICY", "passive");
        }
        if let (Form::OpenMp, Some(library)) = (&self.form, &self.library) {
            let folder = stand_in(self.name, library).with_context(|| {
                format!("no link to {} can be made in the cache", library.display())
            })?;
            command.env("LD_LIBRARY_PATH", folder);
        }
        Ok(())
    }

    /// Returns what ran, for the reader; `loaded` is the file that the program says it had.
    ///
    /// # Errors
    /// When that is another one than it should be.
    pub fn verified(&self, loaded: &str) -> Result<String> {
        if let Some(expected) = &self.library
            && expected != Path::new(loaded)
        {
            bail!("{loaded} was loaded in the place of {}", expected.display());
        }
        let inside = Path::new(loaded).strip_prefix(&self.prefix);
        let file = inside.map_or_else(|_| loaded.to_owned(), |path| path.display().to_string());
        Ok(format!("{file}, compiled with {}", self.compiler))
    }
}

/// Returns a folder in the cache in which `library` stands as libgomp.so.1, for LD_LIBRARY_PATH.
fn stand_in(name: &str, library: &Path) -> Result<PathBuf> {
    let folder = cache()?.join("libgomp").join(name);
    fs::create_dir_all(&folder)?;
    let link = folder.join("libgomp.so.1");
    if fs::read_link(&link).ok().as_deref() != Some(library) {
        let partial = folder.join(format!("{}", std::process::id()));
        symlink(library, &partial)?;
        fs::rename(&partial, &link)?;
    }
    Ok(folder)
}

/// Returns a library of the system, where the C compiler finds it.
fn library(file: &str, package: &str) -> Result<PathBuf> {
    let report = run_quietly(bounded(10).arg(CC).arg(format!("-print-file-name={file}")))
        .context("install gcc")?;
    let path = Path::new(report.trim());
    if !path.is_absolute() {
        bail!("there is no {file}; install {package}");
    }
    fs::canonicalize(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Returns the newest clang that has OpenMP.
fn clang() -> Result<PathBuf> {
    let mut names = vec!["clang".to_owned()];
    names.extend((14..40).rev().map(|version| format!("clang-{version}")));
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for name in names {
        for folder in std::env::split_paths(&folders) {
            let path = folder.join(&name);
            if path.exists() && probe(&path, "c", "omp.h").is_ok() {
                return Ok(path);
            }
        }
    }
    bail!("there is no clang with omp.h; install clang-19 and libomp-19-dev")
}

/// Whether a compiler finds a header.
fn probe(compiler: &Path, language: &str, header: &str) -> Result<()> {
    let mut command = bounded(60);
    command.arg(compiler).args([
        "-fopenmp",
        "-fsyntax-only",
        "-x",
        language,
        "-include",
        header,
        "/dev/null",
    ]);
    run_quietly(&mut command)
        .map(drop)
        .with_context(|| format!("{} does not find {header}", compiler.display()))
}

/// Compiles the program that keeps a core busy.
///
/// # Errors
/// When it does not compile.
pub fn busy(sources: &Path) -> Result<PathBuf> {
    let folder = format!("threads-busy-{:016x}", key(Path::new(CC), sources)?);
    cached(&folder, "busy", |executable| {
        let mut command = bounded(60);
        command
            .args([CC, "-std=gnu11", "-O2"])
            .arg(sources.join("threads/busy.c"));
        run_quietly(command.arg("-o").arg(executable))
            .context("threads/busy.c does not compile; install gcc and libc6-dev")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_are_special_can_be_chosen() {
        assert_eq!(NAMES[0], OURS);
        assert!(OF_KERNELS.iter().all(|name| NAMES.contains(name)));
        assert!(NAMES.contains(&IML) && NAMES.contains(&SEQUENTIAL));
    }

    #[test]
    fn what_the_tree_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let names = [OURS.to_owned(), IML.to_owned()];
        let (found, missing) = find(folder.path(), &names);
        assert!(found.is_empty());
        assert!(
            missing[0].contains("margay: not installed: the tree has no lib/gomp/libgomp.so.1"),
            "{missing:?}"
        );
        assert!(
            missing[1].contains("iml: not installed: the tree has no include/iml.h"),
            "{missing:?}"
        );
    }

    #[test]
    fn another_library_than_expected_is_refused() {
        let runtime = Runtime {
            name: OURS,
            form: Form::OpenMp,
            library: Some("/opt/margay/lib/gomp/libgomp.so.1".into()),
            prefix: "/opt/margay".into(),
            compiler: "gcc 12".into(),
        };
        let file = "/opt/margay/lib/gomp/libgomp.so.1";
        assert_eq!(
            runtime.verified(file).unwrap(),
            "lib/gomp/libgomp.so.1, compiled with gcc 12"
        );
        let error = runtime.verified("/usr/lib/libgomp.so.1").unwrap_err();
        assert!(
            error.to_string().contains("was loaded in the place of"),
            "{error}"
        );
    }
}
