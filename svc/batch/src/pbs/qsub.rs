//! `qsub`: submits a script.

use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::AsFd;

use margay_core_queue::script::pbs;
use margay_core_queue::{Dialect, Wishes, script};
use margay_svc_queue_wire::{Bytes, Order, Shared, Target, pbs_name};
use margay_sys_os::terminal::size;

use crate::common::{self, Done, base_name, complain, exit_code, login_shell, print};
use crate::interactive::{self, Allocation, Outcome, Program};

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let mut asked = Wishes {
        dialect: Some(Dialect::Pbs),
        ..Wishes::default()
    };
    let words = pbs::options_first(words);
    let line = pbs::command(&words, &mut asked)?;
    let rest = words.get(line.end..).unwrap_or_default();
    if line.is_interactive {
        return begin(asked, rest);
    }
    let order = match rest.split_first() {
        Some((dashes, [program, arguments @ ..])) if dashes == "--" => Order {
            wishes: asked.or(named(&base_name(program).unwrap_or_else(|| "job".into()))),
            script: None,
            arguments: std::iter::once(program)
                .chain(arguments)
                .map(|word| Bytes(word.into()))
                .collect(),
        },
        first => {
            let file = first.map(|(file, _)| file.as_str());
            let text = common::script(file)?;
            let prefix = line.prefix.as_deref().unwrap_or("#PBS");
            let said = script::wishes_for(&String::from_utf8_lossy(&text), Dialect::Pbs, prefix)
                .map_err(|error| format!("{}, {error}", file.unwrap_or("STDIN")))?;
            let name = file.and_then(base_name).unwrap_or_else(|| "STDIN".into());
            let mut wishes = asked.or(said).or(named(&name));
            if !text.starts_with(b"#!") {
                wishes.shell = Some(wishes.shell.unwrap_or_else(login_shell));
            }
            let arguments = first.map_or(&[][..], |(_, arguments)| arguments);
            Order {
                wishes,
                script: Some(text.into()),
                arguments: arguments.iter().map(|word| Bytes(word.into())).collect(),
            }
        }
    };
    let is_array = order.wishes.array.is_some();
    let job = common::submit(Shared::here()?, order)?;
    if !line.is_silent {
        let host = common::machine()?.host;
        let name = match is_array {
            true => format!("{job}[].{host}"),
            false => pbs_name(job, None, &host),
        };
        print(&format!("{name}\n"))?;
    }
    if !line.is_waited_for {
        return Ok(0);
    }
    let rows = common::wait(vec![Target { job, task: None }])?;
    Ok(rows.iter().map(exit_code).max().unwrap_or(0))
}

/// `qsub -I`: a shell in a job, or the command that `-x` or `--` names.
fn begin(asked: Wishes, rest: &[String]) -> Done {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err("-I: standard input and output must be a terminal for interactive jobs".into());
    }
    let wishes = match rest {
        // A script gives its lines alone.
        [file] => {
            let text = common::script(Some(file))?;
            let said = script::wishes(&String::from_utf8_lossy(&text))
                .map_err(|error| format!("{file}, {error}"))?;
            asked.or(said)
        }
        [] => asked,
        _ => return Err("-I takes no command; qsub -I [OPTIONS] begins a shell in a job".into()),
    };
    shell(wishes)
}

fn shell(wishes: Wishes) -> Done {
    let host = common::machine()?.host;
    let waits = |job| complain(&format!("qsub: waiting for job {job}.{host} to start"));
    let allocation = Allocation::wait_for(wishes.or(named("STDIN")), &waits)?;
    let job = allocation.job;
    complain(&format!("qsub: job {job}.{host} ready\n"));
    let run = Program {
        arguments: vec![Bytes(login_shell().into()), Bytes("-l".into())],
        directory: None,
        terminal: Some(size(stdin().as_fd()).unwrap_or((24, 80))),
        variables: vec![("PBS_ENVIRONMENT".into(), "PBS_INTERACTIVE".into())],
    };
    let code = match interactive::run(&allocation, run)? {
        Outcome::Exit(_) => {
            allocation.end()?;
            0
        }
        Outcome::JobEnded => {
            let (code, text) = allocation.ended_early()?;
            complain(&format!("qsub: {text}"));
            code.max(1)
        }
    };
    complain(&format!("\nqsub: job {job}.{host} completed"));
    Ok(code)
}

fn named(name: &str) -> Wishes {
    Wishes {
        name: Some(name.to_owned()),
        ..Wishes::default()
    }
}
