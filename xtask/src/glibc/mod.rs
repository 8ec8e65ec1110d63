//! Stub libraries of an old glibc, for the linker alone.
//!
//! A linker records for each function the newest version that the C library of the build machine
//! has, and a system with an older C library then refuses the program. So the stage tree is linked
//! with libraries that only have symbols and no code. They are made from the symbols of the build
//! machine's libraries: of each name the newest version that [`version::OLDEST`] had, in the
//! library that had it then. What came later is not there, so that a use of it is an error when the
//! tree is linked; weak references, by which Rust's standard library asks for newer functions, stay
//! open and are found where a system has them. The two C files beside this one have what the C
//! library's own static part had then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use goblin::elf::Elf;

use crate::command::output;
use crate::put::put;
use crate::stub::{self, Symbol};
use version::Version;

pub mod version;

const C_LIBRARY: &str = "libc.so.6";

/// The libraries to make stubs of, and the names by which linkers ask for them.
const LIBRARIES: [(&str, &str); 7] = [
    (C_LIBRARY, C_LIBRARY),
    ("libm.so.6", "libm.so"),
    ("libpthread.so.0", "libpthread.so"),
    ("libdl.so.2", "libdl.so"),
    ("librt.so.1", "librt.so"),
    ("libgcc_s.so.1", "libgcc_s.so"),
    (LOADER, LOADER),
];

const LOADER: &str = if cfg!(target_arch = "aarch64") {
    "ld-linux-aarch64.so.1"
} else {
    "ld-linux-x86-64.so.2"
};

/// Which library had functions that are part of the C library since glibc 2.34, by the beginnings
/// of their names.
const MOVED: [(&str, &[&str]); 3] = [
    ("libpthread.so.0", &["pthread_", "sem_", "__pthread_"]),
    (
        "libdl.so.2",
        &[
            "dlopen", "dlsym", "dlvsym", "dlclose", "dlerror", "dladdr", "dlinfo", "dlmopen",
        ],
    ),
    ("librt.so.1", &["timer_", "mq_", "aio_", "lio_", "shm_"]),
];

/// The function that start-up objects call, and that `start.c` defines, so that the stub's is not
/// found under its plain name.
const START: &str = "__libc_start_main";

/// The compilers and linkers of the stage tree find the stubs in this folder, which comes first.
///
/// # Errors
/// When the compiler has none of the libraries, or does not accept what is printed here.
pub fn build(compiler: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let files: Vec<Vec<u8>> = LIBRARIES
        .iter()
        .map(|(name, _)| {
            let path = library(compiler, name)?;
            fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))
        })
        .collect::<Result<_>>()?;
    let mut stubs: BTreeMap<&str, BTreeMap<&str, Symbol>> = BTreeMap::new();
    for ((library, _), bytes) in LIBRARIES.iter().zip(&files) {
        let elf = Elf::parse(bytes).with_context(|| (*library).to_owned())?;
        let symbols = stub::defined(&elf);
        stubs.entry(library).or_default();
        for (home, symbol) in old_symbols(library, &symbols) {
            let stub = stubs.entry(home).or_default();
            stub.entry(symbol.name).or_insert(symbol);
        }
    }
    let start = stubs[C_LIBRARY]
        .get(START)
        .with_context(|| format!("{C_LIBRARY} of this system has no {START}"))?
        .version
        .to_owned();
    for (library, file) in LIBRARIES {
        let symbols: Vec<&Symbol> = stubs[library].values().collect();
        stub::link(&mut command(compiler), &symbols, library, folder, file)?;
    }
    let archive = static_part(compiler, folder, &start)?;
    let nonshared = library_of(compiler, "libc_nonshared.a")?;
    let script = format!(
        "GROUP ( \"{}\" \"{}\" \"{}\" AS_NEEDED ( \"{}\" ) )\n",
        archive.display(),
        folder.join(C_LIBRARY).display(),
        nonshared.display(),
        folder.join(LOADER).display()
    );
    put(script.as_bytes(), &folder.join("libc.so"), 0o644)
}

/// Compiles what the C library's static part had.
fn static_part(compiler: &str, folder: &Path, start: &str) -> Result<PathBuf> {
    let archive = folder.join("libmargay_compat.a");
    let mut objects = Vec::new();
    for (name, code) in [
        ("compat", include_str!("compat.c")),
        ("start", include_str!("start.c")),
    ] {
        let source = folder.join(format!("{name}.c"));
        let object = source.with_extension("o");
        put(code.as_bytes(), &source, 0o644)?;
        output(
            command(compiler)
                .args(["-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall"])
                .args(["-Wextra", "-Werror", "-fno-stack-protector", "-c"])
                .arg(format!("-DOLDEST_VERSION=\"{start}\""))
                .arg(&source)
                .arg("-o")
                .arg(&object),
        )?;
        objects.push(object);
    }
    let _ = fs::remove_file(&archive);
    output(Command::new("ar").arg("rcs").arg(&archive).args(objects))
        .context("binutils are needed")?;
    Ok(archive)
}

fn command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words);
    command
}

/// Returns a library of the system that the compiler links with.
fn library(compiler: &str, name: &str) -> Result<PathBuf> {
    library_of(compiler, name)
        .with_context(|| format!("{name} of this system is needed; install libc6-dev (glibc)"))
}

fn library_of(compiler: &str, name: &str) -> Result<PathBuf> {
    let printed = output(command(compiler).arg(format!("-print-file-name={name}")))?;
    let path = PathBuf::from(String::from_utf8(printed)?.trim_end());
    // A compiler that does not find it prints the name alone.
    if !path.is_absolute() {
        bail!("'{compiler}' finds no {name}");
    }
    Ok(path)
}

/// Returns the symbols that the old library had, and the library that had them.
fn old_symbols<'a>(
    library: &'a str,
    symbols: &[Symbol<'a>],
) -> impl Iterator<Item = (&'a str, Symbol<'a>)> {
    let mut newest: BTreeMap<&str, (Version, Symbol)> = BTreeMap::new();
    let mut renewed: BTreeSet<&str> = BTreeSet::new();
    for symbol in symbols {
        let Some(version) = Version::parse(symbol.version) else {
            continue;
        };
        if !version.is_old() {
            renewed.insert(symbol.name);
        } else if !symbol.name.contains("_version_placeholder")
            && newest.get(symbol.name).is_none_or(|(v, _)| *v < version)
        {
            newest.insert(symbol.name, (version, symbol.clone()));
        }
    }
    newest.into_iter().map(move |(name, (_, symbol))| {
        // What moved into the C library got a second version on that day.
        let moved = library == C_LIBRARY && renewed.contains(name);
        let home = MOVED.iter().find(|(_, beginnings)| {
            moved
                && beginnings
                    .iter()
                    .any(|beginning| name.starts_with(beginning))
        });
        let is_hidden = name == START;
        let symbol = Symbol {
            is_hidden,
            ..symbol
        };
        (home.map_or(library, |(home, _)| home), symbol)
    })
}

#[cfg(test)]
mod tests {
    use super::version::OLDEST;
    use super::*;

    fn symbol<'a>(name: &'a str, version: &'a str) -> Symbol<'a> {
        Symbol {
            name,
            version,
            is_hidden: false,
            data: None,
        }
    }

    #[test]
    fn each_name_gets_its_newest_old_version_and_the_library_that_had_it() {
        let symbols = [
            symbol("memcpy", "GLIBC_2.2.5"),
            symbol("memcpy", "GLIBC_2.14"),
            symbol("pthread_create", "GLIBC_2.34"),
            symbol("pthread_create", "GLIBC_2.2.5"),
            symbol("pthread_self", "GLIBC_2.2.5"),
            symbol("timer_create", "GLIBC_2.34"),
            symbol("timer_create", "GLIBC_2.2.5"),
            symbol("timer_create", "GLIBC_2.3.3"),
            symbol("stat", "GLIBC_2.33"),
            symbol("__internal", "GLIBC_PRIVATE"),
            symbol("__libpthread_version_placeholder", "GLIBC_2.12"),
        ];
        let old: Vec<_> = old_symbols(C_LIBRARY, &symbols)
            .map(|(home, symbol)| (home, symbol.name, symbol.version))
            .collect();
        assert_eq!(
            old,
            [
                (C_LIBRARY, "memcpy", "GLIBC_2.14"),
                ("libpthread.so.0", "pthread_create", "GLIBC_2.2.5"),
                (C_LIBRARY, "pthread_self", "GLIBC_2.2.5"),
                ("librt.so.1", "timer_create", "GLIBC_2.3.3"),
            ]
        );
    }

    #[test]
    fn a_program_linked_with_the_stubs_needs_the_old_versions_and_runs() {
        let folder = tempfile::tempdir().unwrap();
        let stubs = folder.path().join("stubs");
        build("cc", &stubs).unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        fs::write(
            &source,
            "#include <dlfcn.h>\n#include <math.h>\n#include <stdio.h>\n#include <sys/stat.h>\n\
             static int ran;\n__attribute__((constructor)) static void first(void) { ran = 1; }\n\
             int main(int argc, char **argv) {\n struct stat s;\n\
             return !(ran && stat(argv[0], &s) == 0 && s.st_size > 100 && hypot(3 * argc, 4) == 5\n\
             && dlsym(0, \"printf\") && fputs(\"ran\\n\", stdout) >= 0);\n}\n",
        )
        .unwrap();
        let link = |with_stubs: bool| {
            let mut cc = Command::new("cc");
            cc.arg("-fno-builtin");
            if with_stubs {
                cc.arg("-L").arg(&stubs);
            }
            cc.arg(&source)
                .arg("-o")
                .arg(&program)
                .args(["-lm", "-ldl"]);
            output(&mut cc).unwrap();
            fs::read(&program).unwrap()
        };
        let newest = |bytes: &[u8]| crate::verify::too_new(bytes).unwrap();
        assert_eq!(newest(&link(true)), Vec::<String>::new());
        assert_eq!(output(&mut Command::new(&program)).unwrap(), b"ran\n");
        // The same program without them, on a system whose functions are newer, is found out.
        let own = link(false);
        let elf = Elf::parse(&own).unwrap();
        let is_new = elf.verneed.iter().flat_map(|s| s.iter()).any(|need| {
            need.iter().any(|n| {
                let name = elf.dynstrtab.get_at(n.vna_name).unwrap();
                Version::parse(name).is_some_and(|v| v > OLDEST)
            })
        });
        assert_eq!(is_new, !newest(&own).is_empty());
    }

    #[test]
    fn a_function_that_the_old_library_does_not_have_cannot_be_linked() {
        let folder = tempfile::tempdir().unwrap();
        let stubs = folder.path().join("stubs");
        build("cc", &stubs).unwrap();
        let source = folder.path().join("a.c");
        // It came with glibc 2.36.
        fs::write(
            &source,
            "int arc4random(void);\nint main(void) { return arc4random(); }\n",
        )
        .unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-L")
            .arg(&stubs)
            .arg(&source)
            .arg("-o")
            .arg(folder.path().join("a"));
        let error = output(&mut cc).unwrap_err().to_string();
        assert!(error.contains("arc4random"), "{error}");
    }
}
