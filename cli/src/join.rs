//! `mpiexec -join` and `margay agent --join`: hosts that dial in, by a program beside this one.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use margay_core_registry::network::VARIABLE_TOKEN;
use margay_job_launch::report::host_name;
use margay_sys_os::process::beside;
use margay_sys_os::{signal, sockets};

use crate::bench::replace;
use crate::hosts::HostList;
use crate::options::RunOptions;

/// The program that does the work, beside `margay` in the same folder.
const PROGRAM: &str = "margay-join";

/// Joins a launcher; returns only with the reason why that failed.
#[must_use]
pub fn join(to: &str, wait: u64) -> String {
    let words = ["agent".into(), to.into(), wait.to_string().into()];
    replace("joining a launcher", PROGRAM, &words)
}

/// The hosts that have joined, while a job runs on them.
#[derive(Debug)]
pub struct Joined(Child);

impl Drop for Joined {
    fn drop(&mut self) {
        // The end of its input is the end of the job.
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}

/// Waits for hosts, if the options want some that join, and makes them those of the job.
///
/// # Errors
/// In words; nothing where the reason has been printed.
pub fn gather(name: &str, segments: &mut [RunOptions]) -> Result<Option<Joined>, String> {
    let wanted = (segments.iter()).find_map(|own| own.join.join.map(|n| (n, own.join.clone())));
    let Some((hosts, options)) = wanted else {
        return Ok(None);
    };
    let names = |own: &RunOptions| own.host.is_some() || own.host_file.is_some();
    if segments.iter().any(names) {
        return Err(
            "-join: the hosts of the job are those that join; leave it or the list of hosts out"
                .into(),
        );
    }
    let failed = |what: &str, error: io::Error| format!("-join: cannot {what}: {error}");
    let program = beside(PROGRAM).map_err(|error| failed("find margay-join", error))?;
    let path = program.to_string_lossy().into_owned();
    if path.contains(char::is_whitespace) {
        return Err(format!(
            "-join: there is a blank in the path {path}; install Margay at another one"
        ));
    }
    let mut random = [0; 32];
    sockets::fill_random(&mut random).map_err(|error| failed("draw a token", error))?;
    let text = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            // A string takes everything.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let (at, token) = random.split_at(16);
    let at = format!("margay-join-{}", text(at));
    let mut command = Command::new(&program);
    let words = [
        "meet",
        &at,
        &options.join_port.to_string(),
        &hosts.to_string(),
        &options.join_wait.to_string(),
    ];
    if std::env::var_os(VARIABLE_TOKEN).is_none() {
        let token = text(token);
        let port = options.join_port;
        let line = format!(
            "{name}: waiting for {hosts} hosts; on each of them: {VARIABLE_TOKEN}={token} margay agent --join {}:{port}\n",
            host_name()
        );
        // A message that nobody reads is no reason to stop.
        let _ = io::stderr().write_all(line.as_bytes());
        command.env(VARIABLE_TOKEN, token);
    }
    let child = signal::take_defaults_in(&mut command)
        .args(words)
        // A signal of the terminal ends the ranks first.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "-join is not installed: there is no {path}; use the mpiexec of a whole installation, such as `make install` makes"
        ),
        _ => failed(&format!("run {path}"), error),
    })?;
    let said = child.stdout.take();
    let joined = Joined(child);
    let lines = said.map(|said| BufReader::new(said).lines());
    let lines: Vec<String> = (lines.into_iter().flatten())
        .collect::<Result<_, _>>()
        .map_err(|error| failed("hear who has joined", error))?;
    let list = HostList::of_joined(lines.iter().map(String::as_str));
    if list.is_empty() {
        // It has said why.
        return Err(String::new());
    }
    let shell = format!("{path} pass {at}");
    for own in segments.iter_mut() {
        own.remote_shell = Some(shell.clone());
        // Only this host hears of them.
        own.start.tree_width = Some(0);
    }
    if let Some(first) = segments.first_mut() {
        first.host = Some(list);
    }
    Ok(Some(joined))
}
