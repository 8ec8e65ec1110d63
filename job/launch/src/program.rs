//! Finding a program, and explaining in one line why it cannot be executed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use goblin::elf::header::{
    ELFCLASS32, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, Header,
};
use goblin::elf::program_header::PT_INTERP;

use crate::plan::LaunchError;

/// Finds the program `command`. With a slash it is a path, relative to the program's working
/// directory or, when there is none such, to the launcher's. Without one it is looked for in the
/// directories of `path` (the variable PATH), and then in the working directory, as Open MPI's
/// launcher does.
///
/// # Errors
/// When there is no such program, or it is a directory, or nobody may execute it.
pub fn find(
    command: &OsStr,
    directory: Option<&Path>,
    path: Option<&OsStr>,
) -> Result<PathBuf, LaunchError> {
    let name = command.to_string_lossy();
    if command.is_empty() {
        return Err(LaunchError::usage("the program's name is empty"));
    }
    if command.as_bytes().contains(&b'/') {
        let given = Path::new(command);
        let inside = directory.map(|d| d.join(given)).filter(|p| p.exists());
        let found = inside.unwrap_or_else(|| given.to_owned());
        let metadata = fs::metadata(&found).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(format!("'{name}' does not exist")),
            _ => not_executable(format!("cannot look at '{name}': {error}")),
        })?;
        if metadata.is_dir() {
            return Err(not_executable(format!(
                "'{name}' is a directory, not a program"
            )));
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            return Err(not_executable(format!(
                "'{name}' is not executable; if it is a program, say: chmod +x {name}"
            )));
        }
        return Ok(std::path::absolute(&found).unwrap_or(found));
    }
    let path = path.map_or(b"/usr/local/bin:/usr/bin:/bin".as_slice(), OsStr::as_bytes);
    let mut refused = None;
    for directory in path.split(|&b| b == b':') {
        let directory = if directory.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(directory))
        };
        let candidate = directory.join(command);
        match fs::metadata(&candidate) {
            Ok(m) if m.is_file() && m.permissions().mode() & 0o111 != 0 => {
                return Ok(std::path::absolute(&candidate).unwrap_or(candidate));
            }
            Ok(m) if m.is_file() => refused = refused.or(Some(candidate)),
            _ => {}
        }
    }
    let here = directory.unwrap_or(Path::new(".")).join(command);
    match fs::metadata(&here) {
        Ok(m) if m.is_file() && m.permissions().mode() & 0o111 != 0 => {
            return Ok(std::path::absolute(&here).unwrap_or(here));
        }
        Ok(m) if m.is_file() => refused = refused.or(Some(here)),
        _ => {}
    }
    if let Some(refused) = refused {
        let shown = refused.display();
        return Err(not_executable(format!(
            "'{shown}' is not executable; if it is a program, say: chmod +x {shown}"
        )));
    }
    Err(not_found(format!(
        "'{name}' is neither in PATH nor in the working directory; check the name, or give its path"
    )))
}

/// Says in one line why the kernel refused to execute `program`.
#[must_use]
pub fn explain(program: &Path, error: &io::Error) -> LaunchError {
    let name = program.display();
    match why(program, error) {
        Some(reason) => not_executable(format!("'{name}' {reason}")),
        None => not_executable(format!("cannot execute '{name}': {error}")),
    }
}

fn not_found(message: String) -> LaunchError {
    LaunchError {
        message,
        status: 127,
    }
}

fn not_executable(message: String) -> LaunchError {
    LaunchError {
        message,
        status: 126,
    }
}

fn why(program: &Path, error: &io::Error) -> Option<String> {
    let mut head = Vec::new();
    File::open(program)
        .and_then(|f| f.take(64 << 10).read_to_end(&mut head))
        .ok()?;
    if head.is_empty() {
        return Some("is empty".into());
    }
    if head.starts_with(b"#!") {
        let line = head[2..].split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let interpreter = line.split([' ', '\t']).find(|w| !w.is_empty())?;
        if interpreter.ends_with('\r') {
            return Some(format!(
                "has Windows line ends, so its interpreter {} is not found; convert it with: \
                 sed -i 's/\\r$//' {}",
                interpreter.escape_default(),
                program.display()
            ));
        }
        return (error.kind() == io::ErrorKind::NotFound)
            .then(|| format!("needs the interpreter {interpreter}, which is not here"));
    }
    if head.starts_with(b"\x7fELF") {
        return why_elf(&head, error);
    }
    // ENOEXEC: the kernel does not know what it is.
    (error.raw_os_error() == Some(8)).then(|| {
        "is neither a program nor a script with an interpreter; if it is a script, its first line \
         must be like #!/bin/sh"
            .into()
    })
}

fn why_elf(head: &[u8], error: &io::Error) -> Option<String> {
    let Ok(header) = goblin::elf::Elf::parse_header(head) else {
        return Some("is a damaged ELF file; build it again".into());
    };
    let wanted = machine_name(header.e_machine);
    let here = std::env::consts::ARCH;
    if wanted != here {
        return Some(format!("is built for {wanted}, this machine is {here}"));
    }
    if header.e_ident[goblin::elf::header::EI_CLASS] == ELFCLASS32
        && cfg!(target_pointer_width = "64")
    {
        return Some("is a 32-bit program, this machine runs 64-bit ones".into());
    }
    if error.kind() == io::ErrorKind::NotFound {
        let loader = interpreter(head, &header)?;
        return Some(format!(
            "needs the loader {loader}, which is not here; it is built for another C library"
        ));
    }
    None
}

fn interpreter(head: &[u8], header: &Header) -> Option<String> {
    let context = goblin::container::Ctx::new(header.container().ok()?, header.endianness().ok()?);
    let table = goblin::elf::ProgramHeader::parse(
        head,
        header.e_phoff as usize,
        header.e_phnum as usize,
        context,
    )
    .ok()?;
    let entry = table.iter().find(|p| p.p_type == PT_INTERP)?;
    let text = head.get(entry.file_range())?;
    let text = text.split(|&b| b == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn machine_name(machine: u16) -> &'static str {
    match machine {
        EM_X86_64 => "x86_64",
        EM_386 => "x86",
        EM_AARCH64 => "aarch64",
        EM_ARM => "arm",
        EM_RISCV => "riscv64",
        EM_PPC64 => "powerpc64",
        EM_S390 => "s390x",
        other => goblin::elf::header::machine_to_str(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    fn file(directory: &Path, name: &str, mode: u32, content: &[u8]) -> PathBuf {
        use std::io::Write;
        let path = directory.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .unwrap()
            .write_all(content)
            .unwrap();
        path
    }

    fn refused(error: i32, content: &[u8]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "p", 0o755, content);
        let error = explain(&path, &io::Error::from_raw_os_error(error));
        assert_eq!(error.status, 126);
        assert!(!error.message.contains('\n'));
        error.message
    }

    #[test]
    fn the_search_goes_through_path() {
        let directory = tempfile::tempdir().unwrap();
        let d = directory.path();
        fs::create_dir(d.join("a")).unwrap();
        fs::create_dir(d.join("b")).unwrap();
        file(&d.join("a"), "prog", 0o644, b"x");
        let wanted = file(&d.join("b"), "prog", 0o755, b"x");
        let path = format!("{0}/a:{0}/b", d.display());
        assert_eq!(
            find("prog".as_ref(), None, Some(path.as_ref())).unwrap(),
            wanted
        );
        let path = format!("{}/a", d.display());
        let error = find("prog".as_ref(), None, Some(path.as_ref())).unwrap_err();
        assert_eq!(error.status, 126);
        let error = find("nix".as_ref(), None, Some(path.as_ref())).unwrap_err();
        assert_eq!((error.status, error.message.contains("PATH")), (127, true));
        let nowhere = Some("/nonexistent".as_ref());
        let found = find("prog".as_ref(), Some(&d.join("b")), nowhere).unwrap();
        assert_eq!(found, wanted);
        let error = find("prog".as_ref(), Some(&d.join("a")), nowhere).unwrap_err();
        assert!(error.message.contains("chmod +x"), "{error}");
        // One in PATH comes first.
        let path = format!("{}/b", d.display());
        let other = d.join("c");
        fs::create_dir(&other).unwrap();
        file(&other, "prog", 0o755, b"x");
        let found = find("prog".as_ref(), Some(&other), Some(path.as_ref())).unwrap();
        assert_eq!(found, wanted);
        assert_eq!(
            find("./prog".as_ref(), Some(&d.join("b")), None).unwrap(),
            wanted.parent().unwrap().join("./prog")
        );
    }

    #[test]
    fn paths_that_are_not_programs() {
        let error = find("/usr".as_ref(), None, None).unwrap_err();
        assert!(error.message.contains("is a directory"));
        let error = find("/no/such".as_ref(), None, None).unwrap_err();
        assert_eq!(
            (error.status, error.message.as_str()),
            (127, "'/no/such' does not exist")
        );
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "x", 0o644, b"x");
        let error = find(path.as_os_str(), None, None).unwrap_err();
        assert!(error.message.contains("chmod +x"));
    }

    #[test]
    fn refusals_are_explained() {
        const ENOENT: i32 = 2;
        const ENOEXEC: i32 = 8;
        let mut elf = fs::read("/proc/self/exe").unwrap();
        let other = if cfg!(target_arch = "aarch64") {
            (62u16, "x86_64")
        } else {
            (183, "aarch64")
        };
        elf[18..20].copy_from_slice(&other.0.to_le_bytes());
        let message = refused(ENOEXEC, &elf[..4096]);
        assert!(
            message.contains(&format!("is built for {}, this machine is", other.1)),
            "{message}"
        );
        assert!(refused(ENOEXEC, b"\x7fELF").contains("damaged"));
        assert!(refused(ENOEXEC, b"echo hello\n").contains("#!/bin/sh"));
        assert!(refused(ENOEXEC, b"").contains("is empty"));
        assert!(refused(ENOENT, b"#! /no/sh -x\n").contains("the interpreter /no/sh,"));
        assert!(refused(ENOENT, b"#!/bin/sh\r\n").contains("Windows"));
        let mut elf = fs::read("/proc/self/exe").unwrap();
        elf.truncate(64 << 10);
        assert!(refused(ENOENT, &elf).contains("needs the loader /lib"));
    }
}
