//! `margay-machine`: the programs that `margay` and `mpiexec` run, in one file that has several
//! names. The name by which it is called says which of them it is. Five files would each hold the
//! standard library, and whatever else they share: 1.4 MB more.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A name, what does its work, and what that is.
type Program = (&'static str, fn() -> ExitCode, &'static str);

const PROGRAMS: [Program; 5] = [
    (
        margay_svc_part::PROGRAM,
        margay_svc_part::main,
        "partitions, run by margay part",
    ),
    (
        margay_svc_pfs::PROGRAM,
        margay_svc_pfs::main,
        "the parallel file system, run by margay pfs",
    ),
    (
        margay_svc_queue::PROGRAM,
        margay_svc_queue::main,
        "the queue, run by margay up",
    ),
    (
        margay_svc_check::PROGRAM,
        margay_svc_check::main,
        "the checker, run by mpiexec -check",
    ),
    (
        margay_cli_trace::PROGRAM,
        margay_cli_trace::main,
        "traces and profiles, run by margay trace and mpiexec -trace",
    ),
];

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default();
    if let Some((_, run, _)) = PROGRAMS.iter().find(|(name, _, _)| called == *name) {
        return run();
    }
    // Commands of batch systems are names of the queue's program.
    if called.to_str().is_some_and(margay_svc_queue::has_command) {
        return margay_svc_queue::main();
    }
    let mut text =
        String::from("This file is several programs. Its name says which of them runs:\n");
    for (name, _, what) in PROGRAMS {
        text.push_str(&format!("  {name:<13} {what}\n"));
    }
    text.push_str("\nOptions:\n  -h, --help  Print help\n");
    if words
        .next()
        .is_some_and(|word| word == "--help" || word == "-h")
    {
        let _ = io::stdout().write_all(text.as_bytes());
        return ExitCode::SUCCESS;
    }
    let called = called.display();
    let _ = write!(
        io::stderr(),
        "{called}: none of the programs has this name\n\n{text}"
    );
    ExitCode::from(2)
}
