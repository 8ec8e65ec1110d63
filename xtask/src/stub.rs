//! Libraries that have another library's symbols and no code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use goblin::elf::Elf;
use goblin::elf::dynamic::{DT_NEEDED, DT_NULL};
use goblin::elf::section_header::{SHN_ABS, SHN_UNDEF, SHT_DYNAMIC, SHT_GNU_HASH};
use goblin::elf::sym::{STB_LOCAL, STT_OBJECT, STT_TLS};

use crate::command::output;
use crate::put::put;

/// A symbol that a library defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    pub name: &'a str,
    /// Empty for none.
    pub version: &'a str,
    /// It is found with its version only, not under its plain name.
    pub is_hidden: bool,
    /// Where it is and how many bytes it has, for data: aliases have the same place.
    pub data: Option<(u64, u64)>,
}

/// Returns the symbols that a library defines, but those of threads' own data.
pub(crate) fn defined<'a>(elf: &Elf<'a>) -> Vec<Symbol<'a>> {
    let mut names = BTreeMap::new();
    for definition in elf.verdef.iter().flat_map(|section| section.iter()) {
        // The first one is the library's name.
        if let Some(first) = definition.iter().next().filter(|_| definition.vd_ndx > 1) {
            let name = elf.dynstrtab.get_at(first.vda_name).unwrap_or_default();
            names.insert(definition.vd_ndx, name);
        }
    }
    let symbols = elf.dynsyms.iter().enumerate();
    symbols
        .filter(|(_, symbol)| {
            // Absolute ones are the names of the versions themselves.
            let place = u32::try_from(symbol.st_shndx).unwrap_or(SHN_UNDEF);
            ![SHN_UNDEF, SHN_ABS].contains(&place)
                && symbol.st_bind() != STB_LOCAL
                && symbol.st_type() != STT_TLS
        })
        .filter_map(|(index, symbol)| {
            let version = elf.versym.as_ref().and_then(|table| table.get_at(index));
            let version = version.and_then(|version| names.get(&version.version()));
            let is_data = symbol.st_type() == STT_OBJECT;
            Some(Symbol {
                name: elf.dynstrtab.get_at(symbol.st_name)?,
                version: version.copied().unwrap_or_default(),
                is_hidden: false,
                data: is_data.then_some((symbol.st_value, symbol.st_size)),
            })
        })
        .collect()
}

/// Links a library with these symbols as `folder/file`, from sources beside it. `name` is what
/// programs record that are linked with it.
///
/// # Errors
/// When the compiler does not accept what is printed here.
pub(crate) fn link(
    cc: &mut Command,
    symbols: &[&Symbol],
    name: &str,
    folder: &Path,
    file: &str,
) -> Result<()> {
    let source = folder.join(format!("{file}.s"));
    let script = folder.join(format!("{file}.map"));
    put(assembly(symbols).as_bytes(), &source, 0o644)?;
    put(version_script(symbols).as_bytes(), &script, 0o644)?;
    output(
        cc.args(["-shared", "-nostdlib"])
            .arg(format!("-Wl,-soname,{name}"))
            .arg(format!("-Wl,--version-script={}", script.display()))
            .arg(&source)
            .arg("-o")
            .arg(folder.join(file)),
    )
    .map(drop)
}

/// Links `folder/file` as a stand-in for a library that is installed beside it, where symbolic
/// links cannot be had: programs that are linked with it record the library, and to load it is to
/// load the library.
///
/// Linkers go by sections, loaders by segments and the hash table (`hide`). None of the usual ways
/// can both be linked and loaded: a linker's script is no library, and a library with `DT_FILTER`
/// makes glibc before 2.33 stop at an assertion when it is opened.
///
/// # Errors
/// When the library has no name or the compiler does not accept what is printed here.
pub fn stand_in(compiler: &Path, library: &[u8], folder: &Path, file: &str) -> Result<Vec<u8>> {
    let elf = Elf::parse(library).with_context(|| file.to_owned())?;
    let name = elf.soname.with_context(|| format!("{file}: no name"))?;
    // What is needed is named by its path, because the name alone is also that of the stand-in.
    let needed = format!("{file}.needed");
    link(
        &mut Command::new(compiler),
        &[],
        &format!("$ORIGIN/{name}"),
        folder,
        &needed,
    )?;
    let symbols = defined(&elf);
    let mut cc = Command::new(compiler);
    cc.args(["-Wl,--hash-style=gnu", "-Wl,--strip-all"])
        .arg("-Wl,--no-as-needed")
        .arg(folder.join(needed));
    link(
        &mut cc,
        &symbols.iter().collect::<Vec<_>>(),
        name,
        folder,
        file,
    )?;
    let mut bytes = fs::read(folder.join(file))?;
    hide(&mut bytes).with_context(|| file.to_owned())?;
    Ok(bytes)
}

/// Hides the symbols from loaders, which go on to the library that is needed, and that need from
/// linkers, which would look for the library. A loader asks the filter of the hash table first:
/// nothing is in it any more. The need becomes the last entry of the dynamic segment, and the
/// section, which begins where the segment does, ends before it.
fn hide(library: &mut [u8]) -> Result<()> {
    let elf = Elf::parse(library)?;
    let section = |kind: u32| {
        let mut sections = elf.section_headers.iter().enumerate();
        let (index, found) = sections
            .find(|(_, section)| section.sh_type == kind)
            .context("a section is missing")?;
        let range = found.file_range().context("a section without bytes")?;
        anyhow::Ok((index, range))
    };
    let (_, hash) = section(SHT_GNU_HASH)?;
    let (index, dynamic) = section(SHT_DYNAMIC)?;
    let tags = elf.dynamic.as_ref().map(|dynamic| &dynamic.dyns);
    let place = |tag| tags.and_then(|tags| tags.iter().position(|entry| entry.d_tag == tag));
    let (need, end) = place(DT_NEEDED)
        .zip(place(DT_NULL).or(tags.map(Vec::len)))
        .context("nothing is needed")?;
    let size_at =
        elf.header.e_shoff as usize + index * usize::from(elf.header.e_shentsize) + SECTION_SIZE_AT;

    // Numbers of buckets, of symbols without a hash, of words of the filter, of a shift; the
    // filter; buckets and chains.
    let table = library.get_mut(hash).context("no hash table")?;
    let (head, rest) = table.split_at_mut_checked(16).context("no hash table")?;
    let words = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize;
    rest.get_mut(..words * 8).context("no filter")?.fill(0);

    let entries = library.get_mut(dynamic).context("no dynamic section")?;
    let moved = entries.get_mut(need * ENTRY..end * ENTRY);
    moved.context("no dynamic section")?.rotate_left(ENTRY);
    let size = ((end - 1) * ENTRY) as u64;
    library
        .get_mut(size_at..size_at + 8)
        .context("no section headers")?
        .copy_from_slice(&size.to_ne_bytes());
    Ok(())
}

/// The bytes of an entry of the dynamic section.
const ENTRY: usize = 16;

/// Where a section header of a 64-bit file has the section's size.
const SECTION_SIZE_AT: usize = 32;

/// Returns the symbols, all at one place but for data.
fn assembly(symbols: &[&Symbol]) -> String {
    let mut text = String::from(".text\n");
    let mut data: BTreeMap<u64, Vec<&Symbol>> = BTreeMap::new();
    for (n, symbol) in symbols.iter().enumerate() {
        let Symbol { name, version, .. } = symbol;
        if let Some((place, _)) = symbol.data {
            data.entry(place).or_default().push(symbol);
        } else if symbol.is_hidden {
            let _ = writeln!(
                text,
                ".globl hidden_{n}\n.type hidden_{n}, %function\nhidden_{n}:\n.symver hidden_{n}, {name}@{version}"
            );
        } else {
            let _ = writeln!(
                text,
                ".globl \"{name}\"\n.type \"{name}\", %function\n\"{name}\":"
            );
        }
    }
    text.push_str(".byte 0\n.data\n");
    for aliases in data.values() {
        text.push_str(".balign 64\n");
        for symbol in aliases {
            let (name, size) = (symbol.name, symbol.data.map_or(0, |(_, size)| size));
            let _ = writeln!(
                text,
                ".globl \"{name}\"\n.type \"{name}\", %object\n.size \"{name}\", {size}\n\"{name}\":"
            );
        }
        let sizes = aliases.iter().filter_map(|symbol| symbol.data);
        let size = sizes.map(|(_, size)| size).max().unwrap_or(0).max(1);
        let _ = writeln!(text, ".zero {size}");
    }
    text.push_str(".section .note.GNU-stack, \"\", %progbits\n");
    text
}

fn version_script(symbols: &[&Symbol]) -> String {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for symbol in symbols {
        let names = versions.entry(symbol.version).or_default();
        if !symbol.is_hidden {
            names.push(symbol.name);
        }
    }
    let mut script = String::new();
    let mut local = "  local: *;\n";
    for (version, names) in versions {
        let _ = writeln!(script, "{version} {{");
        if !names.is_empty() {
            let _ = writeln!(script, "  global: \"{}\";", names.join("\"; \""));
        }
        let _ = writeln!(script, "{}}};", std::mem::take(&mut local));
    }
    if script.is_empty() {
        script.push_str("{ local: *; };\n");
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_is_linked_and_loaded_as_the_library_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let compile = |code: &str, options: &[&str], made: &str| {
            let source = path("a.c");
            fs::write(&source, code).unwrap();
            let mut cc = Command::new("cc");
            cc.current_dir(folder.path()).arg(&source).args(options);
            // Not even a warning.
            output(cc.args(["-Wl,--fatal-warnings", "-o", made])).unwrap();
        };
        compile(
            "static int calls;\nint answer(void) { return 41 + ++calls; }\nint shared = 7;\n",
            &["-shared", "-fPIC", "-Wl,-soname,libx.so.1"],
            "libx.so.1",
        );
        let library = fs::read(path("libx.so.1")).unwrap();
        let bytes = stand_in(Path::new("cc"), &library, folder.path(), "libx.so").unwrap();
        fs::write(path("libx.so"), bytes).unwrap();
        let rpath = format!("-Wl,-rpath,{}", folder.path().display());

        // Linked, by name and by path: only the library is recorded and called.
        let program = "int answer(void);\nextern int shared;\n\
                       int main(void) { return !(answer() == 42 && shared == 7); }\n";
        for library in ["-lx", path("libx.so").to_str().unwrap()] {
            compile(program, &["-L.", library, &rpath], "program");
            let program = fs::read(path("program")).unwrap();
            let needed = Elf::parse(&program).unwrap().libraries;
            assert!(needed.contains(&"libx.so.1") && !needed.contains(&"libx.so"));
            output(&mut Command::new(path("program"))).unwrap();
        }

        // Loaded, before a library that needs it: the same one for both, which counts its calls.
        compile(
            "int answer(void);\nint again(void) { return answer(); }\n",
            &["-shared", "-fPIC", "-L.", "-lx", &rpath],
            "liby.so",
        );
        compile(
            "#include <dlfcn.h>\nint main(int argc, char **argv) {\n (void)argc;\n\
             void *x = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL), *y = dlopen(argv[2], RTLD_NOW);\n\
             int (*first)(void) = (int (*)(void))dlsym(x, \"answer\");\n\
             int (*again)(void) = (int (*)(void))dlsym(y, \"again\");\n\
             return !(first() == 42 && again() == 43);\n}\n",
            &["-ldl"],
            "loader",
        );
        let mut loader = Command::new(path("loader"));
        output(loader.arg(path("libx.so")).arg(path("liby.so"))).unwrap();
    }
}
