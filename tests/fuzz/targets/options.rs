//! Words that a user types: those of `mpiexec` and of `poe`, one a line. Either there is a job or
//! one line says why not.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::FromArgMatches;
use libfuzzer_sys::fuzz_target;
use margay_cli::job;
use margay_cli::options::{self, RunOptions};
use margay_cli::poe::{self, Division, Jobs, PoeOptions};
use margay_cli::single_dash;

fn parse<T: FromArgMatches>(
    command: clap::Command,
    words: Vec<OsString>,
) -> Result<T, clap::Error> {
    let words = std::iter::once(OsString::from("name")).chain(words);
    let matches = command.try_get_matches_from(words)?;
    T::from_arg_matches(&matches)
}

/// An error must be reported, and in one line.
fn tell(error: &clap::Error) {
    if error.use_stderr() {
        let text = options::one_line(error, "mpiexec");
        assert!(!text.trim().is_empty(), "an error without words");
    }
}

fn mpiexec(words: Vec<OsString>) {
    let mut command = options::run_command("mpiexec");
    let Ok(segments) = single_dash::segments(&mut command, words) else {
        return;
    };
    let parsed: Result<Vec<RunOptions>, _> = segments
        .into_iter()
        .map(|segment| parse(command.clone(), segment))
        .collect();
    match parsed {
        Ok(segments) => {
            if let Ok((job, _)) = job::job("mpiexec", segments) {
                assert!(!job.programs.is_empty(), "a job of no programs");
            }
        }
        Err(error) => tell(&error),
    }
}

fn poe(words: Vec<OsString>) {
    let mut command = poe::command();
    let Ok(words) = poe::words(&mut command, words, &Division::default()) else {
        return;
    };
    match parse::<PoeOptions>(command, words) {
        Ok(options) => {
            // Without a program its commands would come from the standard input.
            let has_program = !options.program.is_empty();
            if let Ok(mut jobs) = Jobs::of(options, None)
                && has_program
            {
                drop(jobs.next_job());
            }
        }
        Err(error) => tell(&error),
    }
}

fuzz_target!(|data: &[u8]| {
    let words: Vec<OsString> = data
        .split(|&b| b == b'\n')
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    // The system passes no word with a zero byte, and the name of a file to read is not the
    // fuzzer's to choose.
    let is_possible = |word: &OsString| {
        let text = word.to_string_lossy();
        !text.contains('\0')
            && !["file", "app", "machine", "rf"]
                .iter()
                .any(|name| text.contains(name))
            && text != "-f"
            && !text.starts_with("-f")
    };
    if words.iter().all(is_possible) {
        mpiexec(words.clone());
        poe(words);
    }
});
