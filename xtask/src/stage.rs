//! The stage tree: what is built, put together as it is installed, and usable where it stands.
//!
//! Every file is replaced by a rename, so a job that runs from the tree keeps the library that it
//! started with.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::command::output;
use crate::layout::{FILES, LINKS, installed};
use crate::put::{copy, copy_folder, prune, put, relink};
use crate::tools::{self, Tools};
use crate::verify::{self, Machine};
use crate::{debug_info, faces, fortran, header, library, tidy, workspace};

/// Returns the stage tree's folder: `MARGAY_STAGE`, else `stage/` in the workspace.
pub fn folder() -> PathBuf {
    std::env::var_os("MARGAY_STAGE").map_or_else(|| workspace().join("stage"), PathBuf::from)
}

/// The crates that make the tree's libraries.
const LIBRARY_CRATES: [&str; 4] = [
    "margay-abi-mpi",
    "margay-abi-mlp",
    "margay-abi-iml",
    "margay-abi-gomp",
];

/// The crates that make its programs.
const PROGRAM_CRATES: [&str; 4] = [
    "margay-cli-machine",
    "margay-bench-suite",
    "margay",
    // Not part of the tree: what writes the manual pages.
    "xtask-manual",
];

/// The programs that cargo builds: the command, the performance suite that `margay bench` runs, and
/// what the command runs beside jobs.
const PROGRAMS: [&str; 3] = ["margay", "margay-bench", "margay-machine"];

/// The names of the last of them: the partitions of `margay part`, the parallel file system of
/// `margay pfs`, the head of the queue that `margay up` starts, the checker of `mpiexec -check`,
/// what records jobs, hosts that dial in, and the hosts as one system of `margay ps`.
const MACHINE_NAMES: [&str; 8] = [
    "margay-part",
    "margay-pfs",
    "margay-queue",
    "margay-check",
    "margay-trace",
    "margay-join",
    "margay-system",
    "margay-shell",
];

/// The launcher's other names.
const NAMES: [&str; 5] = ["mpiexec", "mpirun", "yod", "poe", "showmesh"];

/// Names of commands of other systems: in a folder of their own, so that they hide none of a
/// system's where nobody wants them.
const COMPAT: [&str; 7] = [
    "mkpart", "rmpart", "chpart", "lspart", "showpart", "pspart", "pexec",
];

/// Commands of other batch systems, in a folder of their own so that real ones are not hidden.
const BATCH_NAMES: [&str; 24] = [
    "sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol", "srun", "salloc", "qsub", "qstat",
    "qdel", "qhold", "qrls", "qalter", "qsig", "qrerun", "qmgr", "pbsnodes", "llsubmit", "llq",
    "llcancel", "llstatus", "llhold", "llclass",
];

/// Shells with completions: where the file of a command goes, and what is in it. It has the
/// tree's own program print them when they are first wanted: all texts together have 300 KB.
const SHELLS: [(&str, &str); 3] = [
    (
        "share/bash-completion/completions/NAME",
        "_margay_is=${BASH_SOURCE[0]%/*}/../../../bin/margay
[[ -x $_margay_is ]] || _margay_is=margay
eval \"$(\"$_margay_is\" completions bash NAME 2>/dev/null)\"
unset _margay_is
",
    ),
    (
        "share/zsh/site-functions/_NAME",
        "#compdef NAME
local margay=${${(%):-%x}:A:h}/../../../bin/margay
[[ -x $margay ]] || margay=margay
eval \"$(\"$margay\" completions zsh NAME 2>/dev/null)\"
_NAME \"$@\"
",
    ),
    (
        "share/fish/vendor_completions.d/NAME.fish",
        "set -l margay (dirname (status filename))/../../../bin/margay
test -x $margay; or set margay margay
$margay completions fish NAME 2>/dev/null | source
",
    ),
];

/// Builds the crates optimized and assembles the tree in `to`. Debug information goes to a tree of
/// its own beside it.
///
/// # Errors
/// When the build fails, a file cannot be written, or the tree is not fit to be handed on
/// ([`verify`]).
pub fn build(to: &Path) -> Result<()> {
    header::run(workspace(), false).map_err(|error| anyhow::anyhow!(error))?;
    let metadata = MetadataCommand::new()
        .current_dir(workspace())
        .no_deps()
        .exec()?;
    let target = metadata.target_directory.as_std_path();
    let tools = Tools::new(target)?;
    let built = compile("stage", &LIBRARY_CRATES, &tools.rustc_wrapper(), target)?;
    let programs = compile(
        "stage-programs",
        &PROGRAM_CRATES,
        &tools.rustc_wrapper_of_programs(),
        target,
    )?;
    let version = &metadata
        .packages
        .iter()
        .find(|package| package.name == "margay")
        .context("no crate margay")?
        .version;
    debug_info::split(&built.join("libmpi_abi.so"), to, "lib/libmpi_abi.so.1")?;
    for name in PROGRAMS {
        debug_info::split(&programs.join(name), to, &format!("bin/{name}"))?;
    }
    for (from, name, mode) in FILES {
        copy(&workspace().join(from), &to.join(name), mode)?;
    }
    for file in tidy::files(workspace())? {
        let Some(name) = installed(&file.path) else {
            continue;
        };
        match file.text.as_ref().filter(|_| file.path.ends_with(".md")) {
            Some(text) => {
                let page = tidy::links::for_users(&file.path, text);
                put(page.as_bytes(), &to.join(name), 0o644)?;
            }
            None => copy(&workspace().join(&file.path), &to.join(name), 0o644)?,
        }
    }
    copy_folder(
        &workspace().join("bench/suite/programs"),
        &to.join("share/margay/bench"),
    )?;
    let pkg_config = fs::read_to_string(workspace().join("abi/wrappers/mpi.pc"))
        .context("abi/wrappers/mpi.pc")?;
    let pkg_config_fortran = pkg_config
        .replace("standard ABI", "for Fortran")
        .replace("-lmpi_abi", "-lmargay_mpifort -lmpi_abi");
    let beside = |name: &str, what: &str| {
        pkg_config
            .replace("Margay MPI", &format!("Margay {}", name.to_uppercase()))
            .replace("Message Passing Interface, standard ABI", what)
            .replace("-lmpi_abi", &format!("-l{name} -lmpi_abi"))
    };
    let pkg_config_nx = beside("nx", "The NX message-passing library");
    let pkg_config_mpl = beside("mpl", "The MPL message-passing library");
    let pkg_config_mlp = beside("mlp", "Multi-Level Parallelism").replace(" -lmpi_abi", "");
    let pkg_config_iml =
        beside("iml", "The Illinois-Intel Multithreading Library").replace(" -lmpi_abi", "");
    for (name, text) in [
        ("mpi", &pkg_config),
        ("mpi-c", &pkg_config),
        ("margay-mpi", &pkg_config),
        ("mpi-fort", &pkg_config_fortran),
        ("nx", &pkg_config_nx),
        ("mpl", &pkg_config_mpl),
        ("mlp", &pkg_config_mlp),
        ("iml", &pkg_config_iml),
    ] {
        let text = text.replace("@VERSION@", &version.to_string());
        put(
            text.as_bytes(),
            &to.join(format!("lib/pkgconfig/{name}.pc")),
            0o644,
        )?;
    }
    put_sources(&to.join("share/margay/fortran"), &packed(fortran_files()?)?)?;
    for (link, target) in LINKS {
        relink(target, &to.join(link))?;
    }
    for name in NAMES {
        relink("margay", &to.join("bin").join(name))?;
    }
    for name in MACHINE_NAMES {
        relink("margay-machine", &to.join("bin").join(name))?;
    }
    for name in COMPAT {
        relink(
            "../../../../bin/margay",
            &to.join("share/margay/compat/bin").join(name),
        )?;
    }
    for name in BATCH_NAMES {
        let place = to.join("share/margay/compat/bin").join(name);
        relink("../../../../bin/margay-machine", &place)?;
    }
    libraries(&tools, &built.join("libraries"), to)?;
    for face in &faces::FACES {
        other_abi(&tools, face, &built.join("faces").join(face.name), to)?;
    }
    hooks(&tools, &built.join("check"), to)?;
    preload(&tools, &built.join("pfs"), to)?;
    openmp(&tools, &built, to)?;
    pages(&programs, to)?;
    fortran_library(&tools, to)?;
    remove_held_modules(&to.join("include"))?;
    // The bindings are built in their place, and the pages written there.
    prune(to, &|path| {
        let inside = path.strip_prefix(to).unwrap_or(path);
        let name = inside.to_string_lossy();
        name.starts_with("share/man/")
            || name.starts_with("lib/libmargay_mpifort.so")
            || (name.starts_with("include/") && !name.ends_with(".h"))
            || name == "include/mpif.h"
    })?;
    prune(&debug_info::folder(to)?, &|_| false)?;
    verify::tree(to, &Machine::of_this_build(&[target, to])?)
}

/// Compiles crates with a profile of Cargo.toml, and returns the folder of what is built.
fn compile(profile: &str, crates: &[&str], wrapper: &Path, target: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace())
        .args(["build", "--profile", profile])
        .env("RUSTC_WRAPPER", wrapper);
    for name in crates {
        cargo.args(["--package", name]);
    }
    if !cargo.status().context("cargo cannot be started")?.success() {
        bail!("the build failed");
    }
    Ok(target.join(profile))
}

/// Compiles the small libraries that give functions the names of other libraries, from printed
/// sources.
fn libraries(tools: &Tools, folder: &Path, to: &Path) -> Result<()> {
    let printed = library::sources(workspace()).map_err(|error| anyhow::anyhow!(error))?;
    for library::Source { name, code, inner } in printed {
        let (file, made) = (
            folder.join(format!("{name}.c")),
            folder.join(format!("lib{name}.so.1")),
        );
        put(code.as_bytes(), &file, 0o644)?;
        let mut cc = Command::new(tools.cc());
        cc.args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Os",
            "-fPIC",
            "-shared",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(["-D_GNU_SOURCE", "-Wno-strict-prototypes", "-Wl,-z,defs"])
        .arg(format!("-Wl,-soname,lib{name}.so.1"))
        .arg("-I")
        .arg(to.join("include"))
        .arg(&file);
        match inner {
            library::Inner::Abi => {
                cc.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"])
                    .arg("-L")
                    .arg(to.join("lib"))
                    .arg("-lmpi_abi");
            }
            library::Inner::Static(part, exports) => {
                let list = folder.join(format!("{name}.map"));
                put(exports.as_bytes(), &list, 0o644)?;
                cc.arg(format!("-Wl,--version-script={}", list.display()))
                    .arg("-L")
                    .arg(folder.parent().context("the folder of what was built")?)
                    .arg(format!("-l{part}"))
                    .args([
                        "-Wl,--as-needed",
                        "-lgcc_s",
                        "-lpthread",
                        "-lrt",
                        "-ldl",
                        "-lm",
                    ]);
            }
        }
        cc.arg("-o").arg(&made);
        output(&mut cc)?;
        debug_info::split(&made, to, &format!("lib/lib{name}.so.1"))?;
    }
    Ok(())
}

/// Compiles the library of another MPI implementation's ABI, in a folder of its own, so that only
/// programs that were linked with that implementation find it.
fn other_abi(tools: &Tools, face: &faces::Face, folder: &Path, to: &Path) -> Result<()> {
    let by_hand = workspace().join("abi/faces");
    for (name, text) in faces::print(workspace(), face).map_err(|error| anyhow::anyhow!(error))? {
        put(text.as_bytes(), &folder.join(name), 0o644)?;
    }
    let made = folder.join(face.library);
    let own = by_hand.join(face.name);
    let compiler = |wish: &str| {
        let mut cc = Command::new(tools.cc());
        cc.args(["-std=c11", "-D_GNU_SOURCE", wish, "-fPIC", "-fno-plt"])
            .args(["-Wall", "-Wextra", "-Werror"])
            // Most functions have counterparts with other types of the same size; C's own functions
            // are not affected.
            .args(["-fno-strict-aliasing", "-Wno-cast-function-type"]);
        for include in [folder, own.as_path(), by_hand.as_path()] {
            cc.arg("-I").arg(include);
        }
        cc
    };
    let seldom = folder.join("seldom.o");
    let mut cc = compiler("-Os");
    cc.arg("-c").arg(folder.join("seldom.c"));
    output(cc.arg("-o").arg(&seldom))?;
    let mut cc = compiler("-O2");
    cc.arg("-shared")
        .args(["-Wl,-z,defs", "-Wl,-z,now", "-Wl,--enable-new-dtags"])
        .args(["-Wl,-rpath,$ORIGIN/..", "-Wl,--gc-sections"])
        .arg(format!("-Wl,-soname,{}", face.library));
    if own.join("cxx.c").exists() {
        cc.arg(own.join("cxx.c"));
    }
    cc.arg(folder.join("often.c"))
        .arg(seldom)
        .arg(by_hand.join("by_hand.c"))
        .arg(by_hand.join("statuses.c"))
        .arg(own.join("extra.c"))
        .arg(own.join("integers.c"))
        .arg("-L")
        .arg(to.join("lib"))
        .args(["-lmpi_abi", "-Wl,--as-needed", "-ldl", "-o"])
        .arg(&made);
    output(&mut cc)?;
    let library = format!("lib/faces/{}", face.library);
    debug_info::split(&made, to, &library)?;
    faces::build::other_names(tools, folder, to, face.library, face.aliases)?;
    faces::build::empty(tools, face, folder, to)?;
    faces::build::fortran(tools, face, folder, to)
}

/// Compiles the library that `mpiexec -check` puts in front of the others, in a folder of its own:
/// it has names of MPI, and no program is linked with it.
fn hooks(tools: &Tools, folder: &Path, to: &Path) -> Result<()> {
    const NAME: &str = "libmargay_check.so.1";
    fs::create_dir_all(folder)?;
    let sources = workspace().join("abi/check");
    let made = folder.join(NAME);
    let compiler = || {
        let mut cc = Command::new(tools.cc());
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-Os", "-fPIC"])
            .args(["-Wall", "-Wextra", "-Werror"])
            // Reports of deadlocks have lines of the program behind it.
            .arg("-fno-omit-frame-pointer")
            .arg("-I")
            .arg(to.join("include"));
        cc
    };
    // What calls a program's handler for SIGTRAP, which may say where the program is. Of the hooks
    // these tables would be a tenth of the library.
    let watch = folder.join("watch.o");
    output(
        compiler()
            .arg("-c")
            .arg(sources.join("watch.c"))
            .arg("-o")
            .arg(&watch),
    )?;
    let mut cc = compiler();
    cc.args(["-shared", "-fno-asynchronous-unwind-tables"])
        .args(["-Wl,-z,defs", "-Wl,-z,now", "-Wl,--enable-new-dtags"])
        .args(["-Wl,-rpath,$ORIGIN/..", "-Wl,--gc-sections"])
        .arg(format!("-Wl,-soname,{NAME}"));
    const SOURCES: [&str; 6] = [
        "record.c",
        "ring.c",
        "hooks.c",
        "makers.c",
        "objects.c",
        "place.c",
    ];
    for source in SOURCES {
        cc.arg(sources.join(source));
    }
    cc.arg(&watch);
    cc.arg("-L")
        .arg(to.join("lib"))
        .args(["-lmpi_abi", "-lpthread", "-ldl", "-o"])
        .arg(&made);
    output(&mut cc)?;
    fs::remove_file(&watch)?;
    debug_info::split(&made, to, &format!("lib/check/{NAME}"))
}

/// Compiles the library that takes a program's reads and writes on a parallel file system past the
/// kernel, in a folder of its own: it has names of the C library, and no program is linked with it.
fn preload(tools: &Tools, folder: &Path, to: &Path) -> Result<()> {
    const NAME: &str = "libmargay_pfs.so.1";
    fs::create_dir_all(folder)?;
    let made = folder.join(NAME);
    let mut cc = Command::new(tools.cc());
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Os", "-fPIC", "-shared"])
        .args(["-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"])
        .args([
            "-fno-asynchronous-unwind-tables",
            "-Wl,-z,defs",
            "-Wl,-z,now",
        ])
        .arg("-Wl,--gc-sections")
        .arg(format!("-Wl,-soname,{NAME}"))
        .arg(workspace().join("abi/pfs/preload.c"))
        .args(["-lpthread", "-ldl", "-o"])
        .arg(&made);
    output(&mut cc)?;
    debug_info::split(&made, to, &format!("lib/pfs/{NAME}"))
}

/// The library's other names: as LLVM's is called by Debian and by LLVM, and Intel's. The loader
/// takes files that are the same one for one library, under all their names.
const LLVM_NAMES: [&str; 3] = ["libomp.so.5", "libomp.so", "libiomp5.so"];

/// Links `libgomp.so.1` with the names and versions of its list. In a folder of its own, so that
/// only programs that ask for it get it in place of the compiler's.
fn openmp(tools: &Tools, built: &Path, to: &Path) -> Result<()> {
    let mut symbols = Vec::new();
    for list in ["abi/gomp/symbols.txt", "abi/kmpc/symbols.txt"] {
        let list = workspace().join(list);
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        symbols.extend(library::gomp::symbols(&list).map_err(|error| anyhow::anyhow!(error))?);
    }
    let folder = built.join("libraries");
    let (script, others) = (folder.join("gomp.map"), folder.join("gomp_versions.s"));
    put(
        library::gomp::version_script(&symbols).as_bytes(),
        &script,
        0o644,
    )?;
    put(
        library::gomp::other_versions(&symbols).as_bytes(),
        &others,
        0o644,
    )?;
    let made = folder.join("libgomp.so.1");
    let mut cc = Command::new(tools.cc());
    cc.args(["-shared", "-Wl,-soname,libgomp.so.1"])
        .arg(&others)
        .arg("-Wl,--whole-archive")
        .arg(built.join("libmargay_gomp.a"))
        .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .args(["-Wl,--no-undefined-version", "-Wl,-z,defs", "-Wl,-z,now"])
        // A name is the same function under all its versions.
        .arg("-Wl,-Bsymbolic-functions")
        // Its threads, and what it calls at their ends, need it as long as the process lives.
        .arg("-Wl,-z,nodelete")
        .args([
            "-Wl,--as-needed",
            "-lgcc_s",
            "-lpthread",
            "-lrt",
            "-ldl",
            "-lm",
            "-o",
        ])
        .arg(&made);
    output(&mut cc)?;
    debug_info::split(&made, to, "lib/gomp/libgomp.so.1")?;
    for name in LLVM_NAMES {
        relink("libgomp.so.1", &to.join("lib/gomp").join(name))?;
    }
    Ok(())
}

/// Builds the modules and the library with the Fortran compiler of the system, unless they are
/// newer than their sources.
fn fortran_library(tools: &Tools, to: &Path) -> Result<()> {
    let compiler = std::env::var("MPIFORT_FC").unwrap_or_else(|_| "gfortran".into());
    let name = compiler.split_whitespace().next().unwrap_or_default();
    let there = Command::new(name)
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !there {
        println!(
            "no {compiler}: the tree gets no Fortran modules; install it, or run `margay fortran --fc=COMPILER`"
        );
        return Ok(());
    }
    let library = to.join("lib/libmargay_mpifort.so.1");
    let sources = to.join("share/margay/fortran");
    let changed = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let mut newest = changed(&to.join("include/mpi.h")).max(changed(&tools.cc()));
    for entry in fs::read_dir(&sources)? {
        newest = newest.max(changed(&entry?.path()));
    }
    if changed(&library).is_some_and(|built| Some(built) > newest) {
        return Ok(());
    }
    let mut margay = Command::new(to.join("bin/margay"));
    margay.args(["fortran", "--fc", &compiler, "--cc", tools::CC]);
    output(tools.in_path(&mut margay)?)?;
    // As linked, it has no debug information but the names of its own functions.
    output(Command::new("strip").arg("--strip-unneeded").arg(&library))
        .context("strip is needed; install binutils")
        .map(drop)
}

/// Removes the modules that `mpi.mod` and `mpi_f08.mod` hold a copy of, as gfortran writes modules
/// (packed by gzip): it reads those two alone, and the four here take 250 KB.
fn remove_held_modules(include: &Path) -> Result<()> {
    const PACKED: &[u8] = b"\x1f\x8b";
    for module in ["mpi", "mpi_f08"] {
        for form in ["", "p"] {
            let path = include.join(format!("{module}_{form}interfaces.mod"));
            if fs::read(&path).is_ok_and(|bytes| bytes.starts_with(PACKED)) {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

/// Writes all sources of the Fortran bindings: those of `abi/fortran` and those that are printed
/// from the definitions.
///
/// # Errors
/// When a definition is not understood or a file cannot be written.
pub fn fortran_sources(to: &Path) -> Result<()> {
    put_sources(to, &fortran_files()?)
}

/// Those sources, by name.
fn fortran_files() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files: Vec<(String, Vec<u8>)> = fortran::print(workspace())
        .map_err(|error| anyhow::anyhow!(error))?
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.into_bytes()))
        .collect();
    let by_hand = workspace().join("abi/fortran");
    for entry in
        fs::read_dir(&by_hand).with_context(|| format!("{}: cannot be read", by_hand.display()))?
    {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|e| e == "c" || e == "h" || e == "f90")
        {
            let name = path.file_name().context("a file without a name")?;
            files.push((name.to_string_lossy().into_owned(), fs::read(&path)?));
        }
    }
    Ok(files)
}

/// Packs all but the short ones by gzip, as `margay fortran` unpacks them: they would take a
/// twentieth of the tree, and nobody reads them there.
fn packed(files: Vec<(String, Vec<u8>)>) -> Result<Vec<(String, Vec<u8>)>> {
    const LARGE: usize = 2_000;
    let pack = |(name, bytes): (String, Vec<u8>)| {
        if bytes.len() < LARGE {
            return Ok((name, bytes));
        }
        // Without a name and a time: two builds make the same bytes.
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&bytes)?;
        Ok((format!("{name}.gz"), packed.finish()?))
    };
    files.into_iter().map(pack).collect()
}

/// Puts the sources into a folder, alone.
fn put_sources(to: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    for (name, bytes) in files {
        put(bytes, &to.join(name), 0o644)?;
    }
    // What an earlier version had would be compiled as well.
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !files
            .iter()
            .any(|(name, _)| Path::new(name).as_os_str() == entry.file_name())
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Manual pages, as the command itself writes them from its options, and completions.
fn pages(built: &Path, to: &Path) -> Result<()> {
    output(Command::new(built.join("xtask-manual")).arg(to))?;
    for name in NAMES.into_iter().chain(["margay"]) {
        for (file, text) in SHELLS {
            let text = text.replace("NAME", name);
            put(text.as_bytes(), &to.join(file.replace("NAME", name)), 0o644)?;
        }
    }
    Ok(())
}

/// Copies a stage tree to `prefix`; what else stands there is left alone.
///
/// # Errors
/// When there is no stage tree or a file cannot be written.
pub fn install(stage: &Path, prefix: &Path) -> Result<()> {
    if !stage.join("bin/margay").exists() {
        bail!(
            "{} holds no stage tree; run `make stage` first",
            stage.display()
        );
    }
    copy_folder(stage, prefix)?;
    println!("installed in {}", prefix.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn install_copies_files_modes_and_links_and_replaces_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (stage, prefix) = (folder.path().join("stage"), folder.path().join("prefix"));
        put(b"program", &stage.join("bin/margay"), 0o755).unwrap();
        put(b"library", &stage.join("lib/libmpi_abi.so.1"), 0o644).unwrap();
        relink("libmpi_abi.so.1", &stage.join("lib/libmpi_abi.so")).unwrap();
        put(b"old", &prefix.join("lib/libmpi_abi.so"), 0o644).unwrap();
        put(b"stays", &prefix.join("bin/other"), 0o644).unwrap();
        install(&stage, &prefix).unwrap();
        install(&stage, &prefix).unwrap();
        assert_eq!(
            fs::read(prefix.join("lib/libmpi_abi.so")).unwrap(),
            b"library"
        );
        assert_eq!(
            fs::read_link(prefix.join("lib/libmpi_abi.so")).unwrap(),
            Path::new("libmpi_abi.so.1")
        );
        assert_eq!(
            fs::metadata(prefix.join("bin/margay"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o755
        );
        assert_eq!(fs::read(prefix.join("bin/other")).unwrap(), b"stays");
        assert_eq!(
            fs::read_dir(prefix.join("bin")).unwrap().count(),
            2,
            "no partial files are left"
        );
    }

    #[test]
    fn install_without_a_stage_tree_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = install(folder.path(), &folder.path().join("prefix")).unwrap_err();
        assert!(error.to_string().contains("run `make stage` first"));
    }
}
