//! Plays a rank for the launcher's tests: does what its arguments say, one after the other, with
//! the entries in the job's segment that the MPI library would make.
//!
//! `init`, `join`, `fin`, `call:NAME`, `wait:KIND:RANK|any:TAG|any`, `abort:CODE`, `exit:CODE`,
//! `kill:SIGNAL`, `sleep:MS`, `print:TEXT`, `mark:LIGHT:COLOUR:TEXT` (of four lights), `only:RANK`
//! (skips what follows up to `all` in other ranks).

use std::io::Write;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_core_registry::markers::{self, Row};
use margay_core_registry::{Phase, Pulse, WaitKind, Waiting, call_name};
use margay_net_shm::SegmentPeers;
use margay_sys_os::clock::now_ns;
use margay_sys_os::signal;
use margay_sys_shm::environment::{ENV_RANK, ENV_SEGMENT};
use margay_sys_shm::segment::Segment;

fn main() {
    let number = |name: &str| -> i64 { std::env::var(name).unwrap().parse().unwrap() };
    let rank = number(ENV_RANK) as u32;
    let segment = Segment::join_inherited(number(ENV_SEGMENT) as i32).unwrap();
    let peers = SegmentPeers::of(&Arc::new(segment));
    let mut waits = Vec::new();
    let mut skipping = false;
    for step in std::env::args().skip(1) {
        let mut parts = step.split(':');
        let (what, value) = (parts.next().unwrap(), parts.next().unwrap_or(""));
        match what {
            "only" => skipping = value.parse() != Ok(rank),
            "all" => skipping = false,
            _ if skipping => {}
            "init" => peers.set_phase(rank, Phase::Running),
            "join" => peers.set_phase(rank, Phase::Joined),
            "fin" => peers.set_phase(rank, Phase::Finalized),
            "call" => {
                for (word, value) in peers.call_words(rank).iter().zip(call_name(value)) {
                    word.store(value, Ordering::Relaxed);
                }
            }
            "wait" => {
                let waiting = Waiting {
                    thread: std::process::id(),
                    kind: match value {
                        "send" => WaitKind::Send,
                        "coll" => WaitKind::Collective,
                        _ => WaitKind::Receive,
                    },
                    peer: parts.next().unwrap().parse().ok(),
                    tag: parts.next().unwrap().parse().ok(),
                    context: 0,
                    since_ns: now_ns(),
                    pulse: Pulse::default(),
                };
                waits.push(peers.begin_wait(rank, &waiting));
            }
            "abort" => {
                let code = value.parse().unwrap();
                peers.abort(rank, code);
                exit(code);
            }
            "exit" => exit(value.parse().unwrap()),
            // Rust's handler of SIGSEGV takes the first one and restores the default.
            "kill" => loop {
                signal::send(std::process::id(), value.parse().unwrap()).unwrap();
            },
            "mark" => {
                let note = peers.make_note(rank, markers::KEY, markers::WORDS).unwrap();
                let row = Row::of(&note).unwrap();
                row.set_lights(4);
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
