//! `margay ps`, `kill` and `make`: the hosts as one system, by a program beside this one.

use std::ffi::OsString;

use crate::bench::replace;
use crate::system_options::MakeOptions;

const PROGRAM: &str = "margay-system";

/// Replaces this process by the program, with the words of the command; returns only with the
/// reason why that failed.
pub fn run(words: &[OsString]) -> String {
    replace("the commands of several hosts", PROGRAM, words)
}

/// The words of the program for `margay make`.
///
/// # Errors
/// When no hosts are named.
pub fn make(options: &MakeOptions) -> Result<Vec<OsString>, String> {
    let list = options.host.as_ref().or(options.host_file.as_ref());
    let list = list.ok_or("which hosts? name them: margay make --host a:4,b:4 [MAKE'S OPTIONS]")?;
    let hosts: Vec<String> = (list.places(None).iter())
        .map(|(name, places)| format!("{name}:{places}"))
        .collect();
    let shell = options.remote_shell.clone().unwrap_or_default();
    let mut words: Vec<OsString> = vec!["make".into(), hosts.join(",").into(), shell.into()];
    words.extend(options.words.iter().cloned());
    Ok(words)
}
