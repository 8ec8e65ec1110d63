//! `margay fortran`: the Fortran modules and library of a compiler, from the sources that the tree
//! carries.
//!
//! Modules can only be read by the compiler that wrote them, so each compiler needs its own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;

use crate::options::FortranOptions;

/// Fortran sources in the order in which they need each other.
const MODULES: [&str; 13] = [
    "facts.f90",
    "mpi_kinds.f90",
    "mpi_f08_types.f90",
    "mpi_sizeofs.F90",
    "mpi_constants.f90",
    "mpi_interfaces.f90",
    "mpi_pinterfaces.f90",
    "mpi.f90",
    "mpi_f08_constants.f90",
    "mpi_f08_callbacks.f90",
    "mpi_f08_interfaces.f90",
    "mpi_f08_pinterfaces.f90",
    "mpi_f08.f90",
];

const LIBRARY: &str = "libmargay_mpifort.so.1";

/// Builds in a folder of its own and puts the results into the prefix.
pub fn build(options: &FortranOptions) -> Result<(), String> {
    let tree = tree()?;
    let prefix = options.prefix.clone().unwrap_or_else(|| tree.clone());
    let carried = tree.join("share/margay/fortran");
    if !carried.join(MODULES[0]).exists() {
        return Err(format!(
            "{} has no Fortran sources; use the margay of an installed tree",
            carried.display()
        ));
    }
    let folder = std::env::temp_dir().join(format!("margay-fortran-{}", std::process::id()));
    let sources = folder.join("sources");
    fs::create_dir_all(&sources).map_err(|e| failed("make", &sources, &e))?;
    let built = unpack(&carried, &sources)
        .and_then(|()| compile(options, &tree, &sources, &folder))
        .and_then(|objects| link(options, &tree, &prefix, &folder, &objects))
        .and_then(|()| install(&sources, &folder, &prefix));
    let _ = fs::remove_dir_all(&folder);
    built?;
    println!(
        "Fortran modules of {} are in {}",
        options.fc,
        prefix.join("include").display()
    );
    Ok(())
}

/// Copies the sources that the tree carries, of which it keeps large ones packed by gzip.
fn unpack(carried: &Path, sources: &Path) -> Result<(), String> {
    for entry in fs::read_dir(carried).map_err(|e| failed("read", carried, &e))? {
        let from = entry.map_err(|e| failed("read", carried, &e))?.path();
        let to = sources.join(from.file_name().unwrap_or_default());
        if from.extension().is_some_and(|e| e == "gz") {
            let to = to.with_extension("");
            fs::File::open(&from)
                .and_then(|packed| {
                    let mut unpacked = fs::File::create(&to)?;
                    io::copy(&mut GzDecoder::new(packed), &mut unpacked)
                })
                .map_err(|e| failed("unpack", &from, &e))?;
        } else {
            fs::copy(&from, &to).map_err(|e| failed("copy", &from, &e))?;
        }
    }
    Ok(())
}

/// Returns the installed tree that this program stands in.
fn tree() -> Result<PathBuf, String> {
    let program = std::env::current_exe()
        .map_err(|e| format!("cannot find the path of this program: {e}"))?;
    let prefix = program.parent().and_then(Path::parent);
    prefix
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} is not in an installed tree", program.display()))
}

/// C files in one thread, modules in another; the names of the objects.
fn compile(
    options: &FortranOptions,
    tree: &Path,
    sources: &Path,
    folder: &Path,
) -> Result<Vec<String>, String> {
    let mut c_files = Vec::new();
    for entry in fs::read_dir(sources).map_err(|e| failed("read", sources, &e))? {
        let path = entry.map_err(|e| failed("read", sources, &e))?.path();
        if path.extension().is_some_and(|e| e == "c") {
            c_files.push(path);
        }
    }
    c_files.sort();
    std::thread::scope(|scope| {
        let c = scope.spawn(|| compile_c(&options.cc, tree, sources, folder, &c_files));
        let mut objects = Vec::new();
        for module in MODULES {
            let object = format!("{module}.o");
            let source = match module.split_once("pinterfaces") {
                None => sources.join(module),
                Some((binding, end)) => {
                    let from = sources.join(format!("{binding}interfaces{end}"));
                    let text = fs::read_to_string(&from).map_err(|e| failed("read", &from, &e))?;
                    let to = folder.join(module);
                    fs::write(&to, profiled(&text)).map_err(|e| failed("write", &to, &e))?;
                    to
                }
            };
            let mut command = words(&options.fc);
            command
                .args(["-O2", "-fPIC", "-c"])
                .arg(source)
                .args(["-o", &object]);
            run(command.current_dir(folder))?;
            objects.push(object);
        }
        objects.extend(c.join().expect("compiling does not panic")?);
        Ok(objects)
    })
}

/// Makes a module of the interfaces of `PMPI_x` from the one of `MPI_x`, as `xtask` prints it.
fn profiled(interfaces: &str) -> String {
    let mut text = String::with_capacity(interfaces.len() + interfaces.len() / 32);
    // The functions that the library predefines are the same for both.
    for line in (interfaces.lines()).filter(|line| !line.starts_with("  external :: MPI_")) {
        let mut line = line.to_owned();
        for (name, changed) in [
            ("module mpi_interfaces", "module mpi_pinterfaces"),
            ("module mpi_f08_interfaces", "module mpi_f08_pinterfaces"),
            ("interface MPI_", "interface PMPI_"),
            ("subroutine MPI_", "subroutine PMPI_"),
            ("function MPI_", "function PMPI_"),
            (":: MPI_", ":: PMPI_"),
            ("bind(C, name=\"mpi_", "bind(C, name=\"pmpi_"),
        ] {
            if let Some(at) = line.find(name) {
                line.replace_range(at..at + name.len(), changed);
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Files of functions that Fortran calls are compiled twice: for `MPI_x` and for `PMPI_x`.
fn compile_c(
    cc: &str,
    tree: &Path,
    sources: &Path,
    folder: &Path,
    files: &[PathBuf],
) -> Result<Vec<String>, String> {
    let mut objects = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let forms: &[&str] = if name.starts_with("mpi_") {
            &["", "p"]
        } else {
            &[""]
        };
        for form in forms {
            let object = format!("{form}{name}.o");
            let mut command = words(cc);
            // Each call is passed on as it is: what counts is the size of a thousand of them.
            command.args(["-Os", "-fPIC"]);
            if !form.is_empty() {
                command.arg("-DMARGAY_PROFILED");
            }
            let mut include = OsString::from("-I");
            include.push(tree.join("include"));
            let mut own = OsString::from("-I");
            own.push(sources);
            command
                .args([include, own])
                .arg("-c")
                .arg(file)
                .args(["-o", &object]);
            run(command.current_dir(folder))?;
            objects.push(object);
        }
    }
    Ok(objects)
}

fn link(
    options: &FortranOptions,
    tree: &Path,
    prefix: &Path,
    folder: &Path,
    objects: &[String],
) -> Result<(), String> {
    let lib = tree.join("lib");
    let mut command = words(&options.cc);
    command
        .args(["-shared", "-o", LIBRARY])
        .args(objects)
        .arg(format!("-Wl,-soname,{LIBRARY}"))
        .args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    if fs::canonicalize(prefix).ok() != fs::canonicalize(tree).ok() {
        let mut rpath = OsString::from("-Wl,-rpath,");
        rpath.push(&lib);
        command.arg(rpath);
    }
    command.arg("-L").arg(&lib).arg("-lmpi_abi");
    run(command.current_dir(folder))
}

/// Each file is put beside its place and renamed, so that programs keep the library that they run
/// with.
fn install(sources: &Path, folder: &Path, prefix: &Path) -> Result<(), String> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    for folder in [&include, &lib] {
        fs::create_dir_all(folder).map_err(|e| failed("make", folder, &e))?;
    }
    for entry in fs::read_dir(folder).map_err(|e| failed("read", folder, &e))? {
        let path = entry.map_err(|e| failed("read", folder, &e))?.path();
        if path.extension().is_some_and(|e| e == "mod" || e == "smod") {
            replace(&path, &include)?;
        }
    }
    replace(&sources.join("mpif.h"), &include)?;
    let link = lib.join(LIBRARY.trim_end_matches(".1"));
    if fs::symlink_metadata(&link).is_ok() {
        fs::remove_file(&link).map_err(|e| failed("replace", &link, &e))?;
    }
    std::os::unix::fs::symlink(LIBRARY, &link).map_err(|e| failed("make", &link, &e))?;
    replace(&folder.join(LIBRARY), &lib)
}

fn replace(file: &Path, folder: &Path) -> Result<(), String> {
    let name = file.file_name().unwrap_or_default();
    let mut partial = name.to_owned();
    partial.push(format!(".partial{}", std::process::id()));
    let (to, partial) = (folder.join(name), folder.join(partial));
    fs::copy(file, &partial)
        .and_then(|_| fs::rename(&partial, &to))
        .map_err(|e| failed("write", &to, &e))
}

/// A compiler may be several words: `ccache gfortran`.
fn words(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Runs a compiler; shows what it said only if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| {
        format!("cannot start the compiler '{program}': {e}; install it or name another with --fc or --cc")
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} '{}': {error}", path.display())
}
