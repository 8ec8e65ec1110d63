//! Plays a rank for the launcher's tests: does what its arguments say, one after the other, with
//! the entries in the job's segment that the MPI library would make.
//!
//! `init`, `join`, `fin`, `call:NAME`, `wait:KIND:RANK|any:TAG|any`, `abort:CODE`, `exit:CODE`, `kill:SIGNAL`,
//! `sleep:MS`, `print:TEXT`, `mark:LIGHT:COLOUR:TEXT` (of four lights), `only:RANK` (skips what follows up to `all` in other ranks).

use std::io::Write;
use std::process::exit;
use std::time::Duration;

use margay_sys::clock::now_ns;
use margay_sys::markers::Row;
use margay_sys::segment::{ENV_RANK, ENV_SEGMENT, Phase, Segment, WaitKind, Waiting, call_name};
use margay_sys::signal;

fn main() {
    let number = |name: &str| -> i64 { std::env::var(name).unwrap().parse().unwrap() };
    let rank = number(ENV_RANK) as u32;
    let segment = Segment::join_inherited(number(ENV_SEGMENT) as i32).unwrap();
    let cell = segment.cell(rank);
    let mut skipping = false;
    for step in std::env::args().skip(1) {
        let mut parts = step.split(':');
        let (what, value) = (parts.next().unwrap(), parts.next().unwrap_or(""));
        match what {
            "only" => skipping = value.parse() != Ok(rank),
            "all" => skipping = false,
            _ if skipping => {}
            "init" => cell.set_phase(Phase::Running),
            "join" => cell.set_phase(Phase::Joined),
            "fin" => cell.set_phase(Phase::Finalized),
            "call" => cell.set_call(&call_name(value)),
            "wait" => cell.set_waiting(Some(Waiting {
                kind: match value {
                    "send" => WaitKind::Send,
                    "coll" => WaitKind::Collective,
                    _ => WaitKind::Receive,
                },
                peer: parts.next().unwrap().parse().ok(),
                tag: parts.next().unwrap().parse().ok(),
                context: 0,
                since_ns: now_ns(),
            })),
            "abort" => {
                let code = value.parse().unwrap();
                segment.header().abort(rank, code);
                exit(code);
            }
            "exit" => exit(value.parse().unwrap()),
            // Rust's handler of SIGSEGV takes the first one and restores the default.
            "kill" => loop {
                signal::send(std::process::id(), value.parse().unwrap()).unwrap();
            },
            "mark" => {
                let row = Row::make(&segment, rank, 4).unwrap();
                row.set_light(
                    value.parse().unwrap(),
                    parts.next().unwrap().parse().unwrap(),
                );
                row.set_text(parts.next().unwrap());
            }
            "sleep" => std::thread::sleep(Duration::from_millis(value.parse().unwrap())),
            "print" => {
                println!("{value}");
                std::io::stdout().flush().unwrap();
            }
            other => panic!("no such step: {other}"),
        }
    }
}
