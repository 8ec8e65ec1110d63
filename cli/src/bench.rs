//! `margay bench`: the performance suite, which is a program of its own beside this one.
//!
//! Whether the options are right has been checked before it runs, so wrong options are reported in
//! the same way whether it is installed or not.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use margay_cli_bench_options::PROGRAM;
use margay_sys_os::process::beside;

/// Replaces this process by the suite; returns only with the reason why that failed.
pub fn run(arguments: &[OsString]) -> String {
    replace("the performance suite", PROGRAM, arguments)
}

/// Replaces this process by a program of the installation, which is `what`.
/// Returns only with the reason why that failed.
pub(crate) fn replace(what: &str, name: &str, arguments: &[OsString]) -> String {
    match beside(name) {
        Ok(program) => replace_by(what, &program, arguments),
        Err(error) => error.to_string(),
    }
}

fn replace_by(what: &str, program: &Path, arguments: &[OsString]) -> String {
    let error = Command::new(program).args(arguments).exec();
    let program = program.display();
    match error.kind() {
        ErrorKind::NotFound => format!(
            "{what} is not installed: there is no {program}; \
             use the margay of a whole installation, such as `make install` makes"
        ),
        _ => format!("{program} cannot be run: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_missing_or_no_program_is_reported_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let report = replace_by("the suite", &folder.path().join(PROGRAM), &[]);
        assert!(
            report.contains("the suite is not installed") && report.contains("make install"),
            "{report}"
        );
        std::fs::write(folder.path().join("text"), "no program").unwrap();
        let report = replace_by("the suite", &folder.path().join("text"), &[]);
        assert!(report.contains("cannot be run: "), "{report}");
    }
}
