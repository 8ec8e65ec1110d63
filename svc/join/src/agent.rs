//! A host that joins: it connects to the launcher's host, and starts the agents that are wanted.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_core_registry::network::{JOIN_PORT, VARIABLE_TOKEN};
use margay_net_tcp::Secret;
use margay_net_tcp::talk::{Knock, Talk};
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::{clock, cpu, process};

use crate::NUMBER;
use crate::message::{Kind, PIECE, ROOM, message, read};

/// Between two attempts to find the launcher.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks at what makes no descriptor ready: a knock that goes on, a child that ends.
const LOOK: Duration = Duration::from_millis(20);

/// The program that is the agent.
const AGENT: &str = "margay";

/// An agent that runs.
struct Running {
    channel: u32,
    child: Child,
    input: Option<File>,
    /// What its standard input has not taken yet, and whether that is all.
    waiting: Vec<u8>,
    is_over: bool,
    /// Its standard output and standard error.
    outputs: [Option<File>; 2],
}

/// Joins the launcher at `to`, `HOST` or `HOST:PORT`, which may come within this time. Returns when
/// its job is over.
///
/// # Errors
/// In words.
pub fn run(to: &str, secret: &Secret, wait: Duration) -> Result<u8, String> {
    let (host, port) = place(to)?;
    let mut talk = find((host, port), secret, wait)?;
    let cores = cpu::affinity().len();
    let hello = format!("{cores} {}", process::host_name());
    let gone = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => String::new(),
        _ => format!("the connection to {to} is broken: {error}"),
    };
    talk.send(&message(0, Kind::Hello, hello.as_bytes()))
        .map_err(gone)?;
    let mut agents = Vec::new();
    let mut has_served = false;
    let end = loop {
        if let Err(error) = turn(&mut talk, &mut agents, &mut has_served) {
            break gone(error);
        }
    };
    // Without its input an agent ends its ranks, and then itself.
    for mut running in agents {
        running.input = None;
        let _ = running.child.wait();
    }
    match (end.is_empty(), has_served) {
        (true, true) => Ok(0),
        (true, false) => Err(format!(
            "the launcher at {to} has ended and started nothing here"
        )),
        (false, _) => Err(end),
    }
}

/// The host and the port of `HOST[:PORT]`.
fn place(to: &str) -> Result<(&str, u16), String> {
    let (host, port) = match to.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse()),
        _ => (to, Ok(JOIN_PORT)),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port {
        Ok(port) if !host.is_empty() => Ok((host, port)),
        _ => Err(format!(
            "--join {to}: write the launcher's host, and its port where that is not {JOIN_PORT}: --join HOST:PORT"
        )),
    }
}

/// Connects. Launcher and hosts may begin in any order, and names may be known late.
fn find((host, port): (&str, u16), secret: &Secret, wait: Duration) -> Result<Talk, String> {
    let until = Instant::now() + wait;
    let mut why = "something answers there, but not with this token".to_owned();
    loop {
        let attempt = || -> io::Result<Option<Talk>> {
            let addresses: Vec<IpAddr> = (host, port)
                .to_socket_addrs()?
                .map(|address| address.ip())
                .collect();
            let now = clock::now_ns();
            let mut knock = Knock::begin(&addresses, port, (NUMBER, *secret), now)?;
            while Instant::now() < until {
                if let Some(talk) = knock.advance(clock::now_ns())? {
                    return Ok(Some(talk));
                }
                std::thread::sleep(LOOK);
            }
            Ok(None)
        };
        match attempt() {
            Ok(Some(talk)) => return Ok(talk),
            Ok(None) => {}
            Err(error) => why = error.to_string(),
        }
        if Instant::now() >= until {
            let seconds = wait.as_secs();
            return Err(format!(
                "no launcher has taken this host within {seconds} s: {host}, port {port}: {why}; see whether mpiexec -join runs \
                 there, with the same {VARIABLE_TOKEN}, and still waits for hosts"
            ));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until something happens, and passes on what there is.
fn turn(talk: &mut Talk, agents: &mut Vec<Running>, has_served: &mut bool) -> io::Result<()> {
    // An agent that takes nothing holds the others up: each has bounded what is on its way.
    while agents.iter().all(|agent| agent.waiting.len() < ROOM)
        && let Some(got) = talk.receive()?
    {
        let Some((channel, kind, bytes)) = read(&got) else {
            return Err(ErrorKind::InvalidData.into());
        };
        let known = agents.iter_mut().find(|agent| agent.channel == channel);
        match (kind, known) {
            (Kind::Open, None) => {
                *has_served = true;
                match Running::start(channel) {
                    Ok(running) => agents.push(running),
                    Err(error) => {
                        let text = format!("cannot start {AGENT} agent: {error}\n");
                        talk.send(&message(channel, Kind::Error, text.as_bytes()))?;
                        talk.send(&message(channel, Kind::Ended, &[126]))?;
                    }
                }
            }
            (Kind::Input, Some(agent)) => {
                agent.waiting.extend_from_slice(bytes);
                agent.is_over |= bytes.is_empty();
                agent.write();
            }
            (Kind::HungUp, Some(agent)) => {
                agent.waiting.clear();
                agent.input = None;
            }
            _ => {}
        }
    }
    let mut poll = PollSet::default();
    poll.add_readable(talk.descriptor());
    if talk.waiting() > 0 {
        poll.add_writable(talk.descriptor());
    }
    let takes = talk.waiting() < ROOM;
    for agent in agents.iter() {
        for output in agent.outputs.iter().flatten().filter(|_| takes) {
            poll.add_readable(output.as_fd());
        }
        if let Some(input) = agent.input.as_ref().filter(|_| !agent.waiting.is_empty()) {
            poll.add_writable(input.as_fd());
        }
    }
    let ends = |agent: &Running| agent.outputs.iter().all(Option::is_none);
    poll.wait(agents.iter().any(ends).then_some(LOOK))?;
    for agent in agents.iter_mut() {
        agent.write();
        if takes {
            agent.pass_on(talk)?;
        }
    }
    // One that has closed its outputs is about to end.
    let mut ended = Vec::new();
    agents.retain_mut(|agent| {
        let status = match ends(agent) {
            true => agent.child.try_wait().unwrap_or_default(),
            false => None,
        };
        ended.extend(status.map(|status| (agent.channel, status.code().unwrap_or(137) as u8)));
        status.is_none()
    });
    for (channel, code) in ended {
        talk.send(&message(channel, Kind::Ended, &[code]))?;
    }
    Ok(())
}

impl Running {
    fn start(channel: u32) -> io::Result<Running> {
        let mut child = Command::new(process::beside(AGENT)?)
            .arg("agent")
            .env_remove(VARIABLE_TOKEN)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let own = |fd: Option<OwnedFd>| -> io::Result<Option<File>> {
            if let Some(fd) = &fd {
                set_nonblocking(fd.as_fd())?;
            }
            Ok(fd.map(File::from))
        };
        Ok(Running {
            channel,
            input: own(child.stdin.take().map(OwnedFd::from))?,
            outputs: [
                own(child.stdout.take().map(OwnedFd::from))?,
                own(child.stderr.take().map(OwnedFd::from))?,
            ],
            child,
            waiting: Vec::new(),
            is_over: false,
        })
    }

    fn write(&mut self) {
        if let Some(mut input) = self.input.as_ref() {
            match input.write(&self.waiting) {
                Ok(n) => drop(self.waiting.drain(..n)),
                Err(error) if is_later(&error) => {}
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            self.waiting.clear();
        }
        if self.is_over && self.waiting.is_empty() {
            self.input = None;
        }
    }

    fn pass_on(&mut self, talk: &mut Talk) -> io::Result<()> {
        for (output, kind) in self.outputs.iter_mut().zip([Kind::Output, Kind::Error]) {
            let Some(mut file) = output.as_ref() else {
                continue;
            };
            let mut bytes = vec![0; PIECE];
            match file.read(&mut bytes) {
                Ok(n) if n > 0 => talk.send(&message(self.channel, kind, &bytes[..n]))?,
                Err(error) if is_later(&error) => {}
                _ => *output = None,
            }
        }
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_a_name_or_an_address_with_or_without_a_port() {
        for (text, expected) in [
            ("head", ("head", JOIN_PORT)),
            ("head.jobs:80", ("head.jobs", 80)),
            ("10.0.0.1", ("10.0.0.1", JOIN_PORT)),
            ("[fe80::1]:81", ("fe80::1", 81)),
            ("fe80::1", ("fe80::1", JOIN_PORT)),
        ] {
            assert_eq!(place(text), Ok(expected), "{text}");
        }
        for text in ["", ":80", "head:", "head:99999", "head:x"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
