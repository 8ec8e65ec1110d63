//! Hosts that dial in, where no remote shell leads to them: in containers and pods. On each of them
//! `margay agent --join` connects to the launcher's host and waits; there `mpiexec -join` takes
//! them as the hosts of its job.
//!
//! `margay-join` is all three ends of that: `agent` on the hosts; `meet` beside the launcher, which
//! lets in who proves the token; and `pass`, the launcher's remote shell, which says to `meet` on
//! which host it wants an agent. So the launcher does not know that its hosts are reached in
//! another way. What the hosts and `meet` say to each other is encrypted.
//!
//! | module | subject |
//! | --- | --- |
//! | `agent` | a host that joins |
//! | `meet` | the launcher's side |
//! | `pass` | its remote shell |
//! | `message` | what they say |

#![forbid(unsafe_code)]

mod agent;
mod meet;
mod message;
mod pass;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use margay_core_registry::network::VARIABLE_TOKEN;
use margay_net_tcp::{Secret, secret_of};

/// The name of the program.
pub const PROGRAM: &str = "margay-join";

/// Fewer characters can be found by trying.
const LEAST_TOKEN: usize = 16;

/// Under which number the two ends meet.
const NUMBER: u64 = 0x6a6f_696e;

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<String> = (words.iter())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match run(&words) {
        Ok(status) => ExitCode::from(status),
        Err(text) => {
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<u8, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
    match words[..] {
        ["agent", to, wait] if seconds(wait).is_some() => {
            let wait = seconds(wait).unwrap_or_default();
            let run = || agent::run(to, &secret()?, wait);
            run().map_err(|text| format!("margay agent: {text}"))
        }
        ["meet", at, port, hosts, wait] => {
            let (port, hosts) = (port.parse().ok(), hosts.parse().ok());
            match (port, hosts, seconds(wait)) {
                (Some(port), Some(hosts), Some(wait)) => {
                    let run = || meet::run(at, (port, hosts, wait), secret()?);
                    run().map_or_else(|text| Err(format!("mpiexec: {text}")), |()| Ok(0))
                }
                _ => Err(usage()),
            }
        }
        // What follows is the command for a shell: an agent, and nothing else runs there.
        ["pass", at, host, _] => pass::run(at, host),
        _ => Err(usage()),
    }
}

fn usage() -> String {
    "margay-join: this program is run by mpiexec -join and margay agent --join".into()
}

fn secret() -> Result<Secret, String> {
    let token = std::env::var(VARIABLE_TOKEN).unwrap_or_default();
    let token = token.trim();
    if token.len() < LEAST_TOKEN {
        return Err(format!(
            "the environment variable {VARIABLE_TOKEN} has to hold the token that lets hosts join, of {LEAST_TOKEN} characters or \
             more; it has to be the same as that of mpiexec -join"
        ));
    }
    Ok(secret_of(token.as_bytes()))
}
