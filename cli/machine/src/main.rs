//! `margay-machine`: the programs that `margay` and `mpiexec` run, in one file that has several
//! names. The name by which it is called says which of them it is. Five files would each hold the
//! standard library, and whatever else they share: 1.4 MB more.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// One of the programs.
struct Program {
    name: &'static str,
    run: fn() -> ExitCode,
    what: &'static str,
    /// What it is, for those that are asked for `--help` here, because no user calls them.
    about: Option<&'static str>,
}

const PROGRAMS: [Program; 8] = [
    Program {
        name: margay_svc_part::PROGRAM,
        run: margay_svc_part::main,
        what: "partitions, run by margay part",
        about: Some("What changes partitions, and keeps turns in them. `margay part` runs it."),
    },
    Program {
        name: margay_svc_pfs::PROGRAM,
        run: margay_svc_pfs::main,
        what: "the parallel file system, run by margay pfs",
        about: None,
    },
    Program {
        name: margay_svc_queue::PROGRAM,
        run: margay_svc_queue::main,
        what: "the queue, run by margay up",
        about: Some(
            "The head of the queue, and what watches over its jobs. `margay up` starts it.",
        ),
    },
    Program {
        name: margay_svc_check::PROGRAM,
        run: margay_svc_check::main,
        what: "the checker, run by mpiexec -check",
        about: Some("The checker of MPI programs. `mpiexec -check` runs it."),
    },
    Program {
        name: margay_cli_trace::PROGRAM,
        run: margay_cli_trace::main,
        what: "traces and profiles, run by margay trace and mpiexec -trace",
        about: Some(
            "Records, reads and shows traces. `mpiexec -trace`, `margay trace` and `margay view` run it.",
        ),
    },
    Program {
        name: margay_svc_join::PROGRAM,
        run: margay_svc_join::main,
        what: "hosts that dial in, run by mpiexec -join and margay agent --join",
        about: Some("Brings launchers and hosts that dial in together. `mpiexec -join` runs it."),
    },
    Program {
        name: margay_svc_system::PROGRAM,
        run: margay_svc_system::main,
        what: "the hosts as one system, run by margay ps, kill and make",
        about: Some(
            "The processes of all hosts as those of one system. `margay ps`, `margay kill` and `margay make` run it.",
        ),
    },
    Program {
        name: margay_svc_system::SHELL,
        run: margay_svc_system::shell,
        what: "the shell of margay make",
        about: Some(
            "The shell of `margay make`: it runs a command on the next host that has a free place.",
        ),
    },
];

const OPTIONS: &str = "\nOptions:\n  -h, --help  Print help\n";

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default();
    let words: Vec<_> = words.collect();
    let wants_help = matches!(&words[..], [word] if word == "--help" || word == "-h");
    if let Some(program) = PROGRAMS.iter().find(|program| called == program.name) {
        return match program.about {
            Some(about) if wants_help => print(&format!("{about}\n{OPTIONS}")),
            _ => (program.run)(),
        };
    }
    // Commands of batch systems are names of the queue's program.
    if called.to_str().is_some_and(margay_svc_queue::has_command) {
        return margay_svc_queue::main();
    }
    let mut text =
        String::from("This file is several programs. Its name says which of them runs:\n");
    for Program { name, what, .. } in PROGRAMS {
        text.push_str(&format!("  {name:<13} {what}\n"));
    }
    text.push_str(OPTIONS);
    if wants_help {
        return print(&text);
    }
    let called = called.display();
    let _ = write!(
        io::stderr(),
        "{called}: none of the programs has this name\n\n{text}"
    );
    ExitCode::from(2)
}

/// Prints help; a closed standard output is no error.
fn print(text: &str) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
