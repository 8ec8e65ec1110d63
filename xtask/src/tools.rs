//! The compilers as the stage tree is built with them: they link with an old glibc and record no
//! path of the build machine.
//!
//! Both are scripts in the build folder that call the real compilers with more options. As options
//! of cargo (`RUSTFLAGS`) they would become part of the names of intermediate files, and these, of
//! the bytes that come out, which would then differ from folder to folder.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::put::put;
use crate::{glibc, verify, workspace};

/// The C compiler's script, a name that `margay fortran` finds in the folder.
pub const CC: &str = "margay-cc";

/// A linker script that leaves out the tables for unwinding.
const NO_TABLES: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.gcc_except_table*) } } INSERT AFTER .text;\n";

/// The scripts.
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Writes the scripts and the libraries that they link with below the build folder.
    ///
    /// # Errors
    /// When a file cannot be written, or the system has no glibc to link with.
    pub fn new(target: &Path) -> Result<Self> {
        let folder = target.join("stage-tools");
        let compiler = std::env::var("MPICC_CC").unwrap_or_else(|_| "cc".into());
        let stubs = folder.join("glibc");
        glibc::build(&compiler, &stubs)?;
        let names = renamed(
            workspace(),
            target,
            &verify::cargo_home()?,
            &verify::sysroot()?,
        );
        let mut cc = format!("#!/bin/sh\nexec {compiler}");
        let mut rustc = String::from("#!/bin/sh\nexec");
        // One that the user has put before the compiler, such as sccache, goes on doing its work.
        for variable in ["RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"] {
            if let Some(wrapper) = std::env::var(variable).ok().filter(|text| !text.is_empty()) {
                let _ = write!(rustc, " {}", quoted(&wrapper));
                break;
            }
        }
        rustc.push_str(" \"$@\"");
        for (from, to) in &names {
            let from = from.display();
            let _ = write!(cc, " {}", quoted(&format!("-ffile-prefix-map={from}={to}")));
            let _ = write!(
                rustc,
                " {}",
                quoted(&format!("--remap-path-prefix={from}={to}"))
            );
        }
        // Pages of their own for what may be executed cost each library 4 to 12 KB of padding.
        cc.push_str(" -Wl,-z,noseparate-code");
        let _ = writeln!(cc, " {} \"$@\"", quoted(&format!("-L{}", stubs.display())));
        let linker = format!("-Clinker={}", folder.join(CC).display());
        let _ = writeln!(rustc, " {}", quoted(&linker));
        put(cc.as_bytes(), &folder.join(CC), 0o755)?;
        put(rustc.as_bytes(), &folder.join("rustc"), 0o755)?;
        let script = folder.join("programs.ld");
        put(NO_TABLES.as_bytes(), &script, 0o644)?;
        let mut options = format!(
            "-Clink-arg=-Wl,--no-eh-frame-hdr -Clink-arg=-T -Clink-arg={}",
            quoted(&script.display().to_string())
        );
        // The linker that rustc brings along for this machine merges functions of the same code.
        if std::env::consts::ARCH == "x86_64" {
            options.push_str(" -Clink-arg=-Wl,--icf=all");
        }
        let programs = format!(
            "#!/bin/sh\ncase \" $* \" in\n*\" --crate-type bin \"*\" panic=abort \"*) set -- \"$@\" {options} ;;\nesac\nexec {} \"$@\"\n",
            quoted(&folder.join("rustc").display().to_string())
        );
        put(programs.as_bytes(), &folder.join("rustc-programs"), 0o755)?;
        Ok(Self { folder })
    }

    /// Returns the C compiler.
    #[must_use]
    pub fn cc(&self) -> PathBuf {
        self.folder.join(CC)
    }

    /// Returns what cargo calls with rustc and its arguments.
    #[must_use]
    pub fn rustc_wrapper(&self) -> PathBuf {
        self.folder.join("rustc")
    }

    /// Returns the same for programs: they have no tables for unwinding, because a panic ends them,
    /// and functions of the same code are one: an eleventh of their bytes less, and some pages less
    /// to read at each start.
    #[must_use]
    pub fn rustc_wrapper_of_programs(&self) -> PathBuf {
        self.folder.join("rustc-programs")
    }

    /// Puts the folder of the scripts first where a command looks for programs.
    ///
    /// # Errors
    /// When the folder's name cannot stand in `PATH`.
    pub fn in_path<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders)
            .with_context(|| format!("{}: no name for PATH", self.folder.display()))?;
        Ok(command.env("PATH", path))
    }
}

/// Returns the names by which folders are recorded. Of several that match, the last one counts.
fn renamed<'a>(
    workspace: &Path,
    target: &Path,
    cargo_home: &Path,
    sysroot: &Path,
) -> [(PathBuf, &'a str); 4] {
    [
        (workspace.to_path_buf(), "margay"),
        (target.to_path_buf(), "margay/target"),
        (cargo_home.join("registry/src"), "crates"),
        (sysroot.to_path_buf(), "rust"),
    ]
}

/// Returns a word of a shell's command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words_in_a_shell() {
        let word = "-L/a b/it's $HOME";
        let printed = Command::new("sh")
            .args(["-c", &format!("printf %s {}", quoted(word))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), word);
    }

    #[test]
    fn a_program_has_no_tables_for_unwinding_and_says_why_it_ends() {
        let target = tempfile::tempdir().unwrap();
        let tools = Tools::new(target.path()).unwrap();
        let (source, program) = (target.path().join("a.rs"), target.path().join("a"));
        std::fs::write(&source, "fn main() { panic!(\"the first cause\") }\n").unwrap();
        let mut rustc = Command::new(tools.rustc_wrapper_of_programs());
        rustc
            .args(["rustc", "--crate-type", "bin", "-C", "panic=abort", "-o"])
            .arg(&program)
            .arg(&source);
        crate::command::output(&mut rustc).unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let names = elf.section_headers.iter();
        let names: Vec<&str> = names
            .filter_map(|section| elf.shdr_strtab.get_at(section.sh_name))
            .collect();
        assert!(names.contains(&".text") && !names.contains(&".eh_frame"));
        let ended = Command::new(&program).output().unwrap();
        assert!(String::from_utf8_lossy(&ended.stderr).contains("the first cause"));
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&ended.status),
            Some(6)
        );
    }

    #[test]
    fn what_they_compile_names_no_folder_of_the_machine() {
        let target = tempfile::tempdir().unwrap();
        let tools = Tools::new(target.path()).unwrap();
        let folder = target.path().join("stage/build");
        std::fs::create_dir_all(&folder).unwrap();
        let text =
            |program: &Path| String::from_utf8_lossy(&std::fs::read(program).unwrap()).into_owned();
        let holds = |program: &Path| text(program).contains(target.path().to_str().unwrap());

        let c = folder.join("a.c");
        std::fs::write(
            &c,
            "const char *name = __FILE__;\nint main(void) { return !name; }\n",
        )
        .unwrap();
        let mut own = Command::new("cc");
        own.arg("-g").arg(&c).arg("-o").arg(folder.join("own"));
        crate::command::output(&mut own).unwrap();
        assert!(holds(&folder.join("own")), "the compiler alone records it");
        let mut cc = Command::new(tools.cc());
        cc.arg("-g").arg(&c).arg("-o").arg(folder.join("c"));
        crate::command::output(&mut cc).unwrap();
        assert!(!holds(&folder.join("c")));
        assert!(text(&folder.join("c")).contains("margay/target/stage/build/a.c"));

        let rust = folder.join("a.rs");
        std::fs::write(&rust, "fn main() { println!(\"{}\", file!()); }\n").unwrap();
        let mut rustc = Command::new(tools.rustc_wrapper());
        rustc
            .arg("rustc")
            .arg("-g")
            .arg(&rust)
            .arg("-o")
            .arg(folder.join("r"));
        crate::command::output(&mut rustc).unwrap();
        let printed = crate::command::output(&mut Command::new(folder.join("r"))).unwrap();
        assert_eq!(printed, b"margay/target/stage/build/a.rs\n");
        assert!(!holds(&folder.join("r")));
        let program = std::fs::read(folder.join("r")).unwrap();
        assert_eq!(verify::too_new(&program).unwrap(), Vec::<String>::new());
    }
}
