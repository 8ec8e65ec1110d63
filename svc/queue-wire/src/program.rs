//! The program of the queue of all users, which runs as root.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a program that others than root can change: it would get them root's rights.
///
/// # Errors
/// In words: which file or folder others can change.
pub fn check_program(program: &Path) -> Result<(), String> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => format!(
            "the queue is not installed: there is no {}; use the margay of a whole installation, such as `make install` \
             makes",
            program.display()
        ),
        _ => format!("cannot look at {}: {error}", program.display()),
    };
    let file = fs::canonicalize(program).map_err(failed)?;
    // The name itself may be a link that lies in another folder.
    let folders = program.ancestors().skip(1);
    for path in file.ancestors().chain(folders) {
        let found = fs::metadata(path).map_err(failed)?;
        let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
        if found.uid() != 0 || found.mode() & 0o022 != 0 && !is_sticky {
            return Err(format!(
                "{} can be changed by others than root, and the queue of all users runs as root from there; install Margay \
                 in a folder that root alone can change",
                path.display()
            ));
        }
    }
    Ok(())
}
