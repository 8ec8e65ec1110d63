//! `mpiexec -check`: the checker, which is a program of its own beside this one, and what it asks
//! of this one.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};

use margay_job_launch::hosts::wire::ENV_CHECK;
use margay_job_stacks::Places;

use crate::bench::replace;

const PROGRAM: &str = "margay-check";

/// Whether this launcher, or the job in which it runs, is checked already.
#[must_use]
pub fn is_on() -> bool {
    env::var_os(ENV_CHECK).is_some()
}

/// Replaces this process by the checker, which starts the launcher again; returns only with the
/// reason why that failed.
#[must_use]
pub fn run(name: &str, words: &[OsString]) -> String {
    let mut arguments = vec![OsString::from(name)];
    arguments.extend_from_slice(words);
    replace("-check", PROGRAM, &arguments)
}

/// Answers each line of the standard input, an address in hexadecimal digits and a file, by a line:
/// `at mesh.c:88 in smooth()`; an empty one where nothing is known.
///
/// # Errors
/// When nobody reads the answers.
pub fn lines() -> Result<(), String> {
    let mut places = Places::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let place = line
            .split_once(' ')
            .and_then(|(address, path)| places.find(path, u64::from_str_radix(address, 16).ok()?));
        let words = place.map(|frame| frame.to_string()).unwrap_or_default();
        let mut output = io::stdout().lock();
        (writeln!(output, "{words}").and_then(|()| output.flush()))
            .map_err(|error| format!("cannot answer: {error}"))?;
    }
    Ok(())
}
