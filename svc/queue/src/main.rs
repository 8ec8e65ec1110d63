//! `margay-queue`: the program that `margay up` starts. As `serve` it is the head of the queue, as
//! `supervise` what watches over one job; each job has such a process of its own, so a job goes on
//! while the head is away, and how it ended is known when the head returns. As `replay` it runs
//! recorded workloads.
#![forbid(unsafe_code)]

mod explain;
mod files;
mod head;
mod prepare;
mod replay;
mod serve;
mod store;
mod supervise;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["serve"] => serve::serve(None),
        ["serve", slots] => match slots.parse() {
            Ok(slots) => serve::serve(Some(slots)),
            Err(_) => Err(format!("'{slots}' is no number of slots")),
        },
        ["replay", file] => replay::replay(Path::new(file), false),
        ["replay", file, "--json"] => replay::replay(Path::new(file), true),
        ["make-log", jobs, slots, seed] => replay::make(jobs, slots, seed),
        ["supervise", folder] => supervise::supervise(Path::new(folder)),
        ["--help" | "-h"] => {
            println!(
                "The head of the queue, and what watches over its jobs. `margay up` starts it."
            );
            Ok(())
        }
        _ => Err("this program is started by `margay up`".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            log(&text);
            ExitCode::FAILURE
        }
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Writes a line to the log; a full disk is not the end of the process.
fn log(text: &str) {
    let _ = writeln!(io::stderr(), "margay-queue: {text}");
}
