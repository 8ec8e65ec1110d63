//! The launcher's side: it lets hosts in that prove the token, says who they are, and connects the
//! launcher's remote shells with them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use margay_core_registry::network::VARIABLE_TOKEN;
use margay_net_tcp::Secret;
use margay_net_tcp::talk::{Door, Talk};
use margay_sys_os::descriptor::{PollSet, replace_standard};
use margay_sys_os::port::is_trusted;
use margay_sys_os::{clock, sockets};

use crate::NUMBER;
use crate::message::{Framed, Kind, ROOM, message, read};

/// Between two looks at who proves the token.
const LOOK: Duration = Duration::from_millis(20);
/// The agents of hosts have this much time to end their ranks.
const END_LIMIT: Duration = Duration::from_secs(6);
/// A name is not longer.
const MOST_NAME: usize = 200;
/// After this time a line says for whom the job waits, and then again and again.
const QUIET: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_secs(30);

struct Host {
    name: String,
    cores: u32,
    /// None when it is gone.
    talk: Option<Talk>,
}

/// A remote shell of the launcher.
struct Pass {
    stream: Framed<UnixStream>,
    /// Its host, and its channel there.
    to: Option<(usize, u32)>,
}

/// Waits for hosts, writes a line for each to standard output, with its cores and its name, and
/// then serves the launcher's remote shells at the socket `at` until standard input ends.
///
/// # Errors
/// In words.
pub fn run(
    at: &str,
    (port, number, wait): (u16, usize, Duration),
    secret: Secret,
) -> Result<(), String> {
    let listener = SocketAddr::from_abstract_name(at)
        .and_then(|address| UnixListener::bind_addr(&address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    let listener = listener.map_err(|error| format!("cannot listen for remote shells: {error}"))?;
    let Some(hosts) = wait_for(number, (port, wait), secret)? else {
        return Ok(());
    };
    let mut out = io::stdout().lock();
    let lines: String = (hosts.iter())
        .map(|host| format!("{} {}\n", host.cores, host.name))
        .collect();
    let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    // Its end says that these are all.
    let closed = written
        .and_then(|()| File::open("/dev/null"))
        .and_then(|null| replace_standard(1, null.as_fd()));
    closed.map_err(|error| format!("cannot say who has joined: {error}"))?;
    let mut rendezvous = Rendezvous {
        listener,
        hosts,
        passes: Vec::new(),
        next: 1,
    };
    let served = rendezvous.serve();
    served.map_err(|error| format!("cannot serve hosts that have joined: {error}"))
}

/// Lets hosts in until there are enough; none where the launcher is gone before.
fn wait_for(
    number: usize,
    (port, wait): (u16, Duration),
    secret: Secret,
) -> Result<Option<Vec<Host>>, String> {
    let listener = sockets::listen(Some((port, port))).map_err(|error| {
        format!("-join-port {port}: cannot listen for hosts: {error}; name another port")
    })?;
    let mut door = Door::new(listener, NUMBER, secret);
    let (mut new, mut hosts) = (Vec::<Talk>::new(), Vec::<Host>::new());
    let began = Instant::now();
    let mut say_at = began + QUIET;
    let mut poll = PollSet::default();
    while hosts.len() < number {
        if began.elapsed() > wait {
            return Err(format!(
                "{} of {number} hosts have joined within {} s{}; start `margay agent --join` on the others, with the same \
                 {VARIABLE_TOKEN}, or wait longer with -join-wait",
                hosts.len(),
                wait.as_secs(),
                named(&hosts)
            ));
        }
        if Instant::now() > say_at {
            say_at = Instant::now() + AGAIN;
            let text = format!(
                "mpiexec: {} of {number} hosts have joined at port {port}{}\n",
                hosts.len(),
                named(&hosts)
            );
            let _ = io::stderr().write_all(text.as_bytes());
        }
        poll.clear();
        let input = poll.add_readable(io::stdin().as_fd());
        poll.add_readable(door.descriptor());
        for talk in new
            .iter()
            .chain(hosts.iter().filter_map(|h| h.talk.as_ref()))
        {
            poll.add_readable(talk.descriptor());
        }
        poll.wait(Some(LOOK)).map_err(|error| error.to_string())?;
        if poll.ready(input).readable && has_ended(&mut io::stdin().lock()) {
            return Ok(None);
        }
        while let Some(talk) = door.next(clock::now_ns()) {
            new.push(talk);
        }
        new = new
            .into_iter()
            .filter_map(|mut talk| match talk.receive() {
                Ok(None) => Some(talk),
                Ok(Some(got)) => {
                    if let Some((cores, name)) = hello(&got)
                        && hosts.len() < number
                    {
                        let talk = Some(talk);
                        hosts.push(Host { name, cores, talk });
                    }
                    None
                }
                Err(_) => None,
            })
            .collect();
        // One that has given up is not waited for twice.
        hosts.retain_mut(|host| {
            let talk = host.talk.as_mut();
            talk.is_some_and(|talk| talk.receive().is_ok())
        });
    }
    hosts.sort_by_cached_key(|host| natural(&host.name));
    rename_equal(&mut hosts);
    Ok(Some(hosts))
}

fn named(hosts: &[Host]) -> String {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    }
}

/// Nothing comes from the launcher but the end.
fn has_ended(input: &mut impl Read) -> bool {
    !matches!(input.read(&mut [0; 64]), Ok(n) if n > 0)
}

/// The cores and the name of a host, which may become an option of the launcher and a text for the
/// user.
fn hello(got: &[u8]) -> Option<(u32, String)> {
    let (_, kind, bytes) = read(got)?;
    let (cores, name) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_name = (1..=MOST_NAME).contains(&name.len()) && name.chars().all(is_plain);
    let cores = cores.parse::<u32>().ok()?.clamp(1, 1 << 16);
    (kind == Kind::Hello && is_name).then(|| (cores, name.to_owned()))
}

/// Names in parts, so that `pod-10` comes behind `pod-9`.
fn natural(name: &str) -> Vec<(u128, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, numbers) = rest.split_at(text);
        let end = numbers
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(numbers.len());
        let (number, after) = numbers.split_at(end);
        parts.push((0, text.to_owned()));
        parts.push((number.parse().unwrap_or(u128::MAX), number.to_owned()));
        rest = after;
    }
    parts
}

/// Each has a name of its own, which is none of the launcher's host: that would be reached in
/// another way.
fn rename_equal(hosts: &mut [Host]) {
    let own = margay_sys_os::process::host_name();
    for at in 0..hosts.len() {
        let taken = |name: &str| hosts[..at].iter().any(|host| host.name == name);
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
        let name = hosts[at].name.clone();
        if short(&name) != short(&own) && name != "localhost" && !taken(&name) {
            continue;
        }
        let plain = name.split('.').next().unwrap_or_default();
        let numbered = (1..).map(|number| format!("{plain}~{number}"));
        let free = numbered.into_iter().find(|name| !taken(name));
        hosts[at].name = free.unwrap_or(name);
    }
}

struct Rendezvous {
    listener: UnixListener,
    hosts: Vec<Host>,
    passes: Vec<Pass>,
    /// The number of the next channel.
    next: u32,
}

impl Rendezvous {
    fn serve(&mut self) -> io::Result<()> {
        let mut poll = PollSet::default();
        loop {
            poll.clear();
            let input = poll.add_readable(io::stdin().as_fd());
            poll.add_readable(self.listener.as_fd());
            for (at, host) in self.hosts.iter().enumerate() {
                let Some(talk) = &host.talk else { continue };
                if self.takes(at) {
                    poll.add_readable(talk.descriptor());
                }
                if talk.waiting() > 0 {
                    poll.add_writable(talk.descriptor());
                }
            }
            for pass in &self.passes {
                if self.is_free(pass) {
                    poll.add_readable(pass.stream.descriptor());
                }
                if pass.stream.waiting() > 0 {
                    poll.add_writable(pass.stream.descriptor());
                }
            }
            poll.wait(None)?;
            if poll.ready(input).readable && has_ended(&mut io::stdin().lock()) {
                self.end();
                return Ok(());
            }
            while let Ok((stream, _)) = self.listener.accept() {
                if is_trusted(stream.as_fd()) && stream.set_nonblocking(true).is_ok() {
                    let stream = Framed::new(stream);
                    self.passes.push(Pass { stream, to: None });
                }
            }
            for at in 0..self.hosts.len() {
                self.hear_host(at);
            }
            let mut at = 0;
            while at < self.passes.len() {
                match self.hear_pass(at) {
                    Ok(()) => at += 1,
                    Err(_) => self.hang_up(at),
                }
            }
        }
    }

    /// Lets all hosts know that the job has ended. What they still say is read: a connection that
    /// is closed before that counts as broken.
    fn end(&mut self) {
        let talks = self.hosts.iter_mut().filter_map(|host| host.talk.take());
        let mut talks: Vec<Talk> = talks.collect();
        talks.retain_mut(|talk| talk.end().is_ok());
        let until = Instant::now() + END_LIMIT;
        let mut poll = PollSet::default();
        while !talks.is_empty() && Instant::now() < until {
            poll.clear();
            for talk in &talks {
                poll.add_readable(talk.descriptor());
            }
            if poll.wait(Some(LOOK)).is_err() {
                return;
            }
            talks.retain_mut(|talk| {
                loop {
                    match talk.receive() {
                        Ok(Some(_)) => {}
                        Ok(None) => return true,
                        Err(_) => return false,
                    }
                }
            });
        }
    }

    /// Whether all remote shells of a host take what comes from there.
    fn takes(&self, host: usize) -> bool {
        let its = |pass: &&Pass| pass.to.is_some_and(|(to, _)| to == host);
        let mut its = self.passes.iter().filter(its);
        its.all(|pass| pass.stream.waiting() < ROOM)
    }

    /// Whether the host of a remote shell takes what comes from that.
    fn is_free(&self, pass: &Pass) -> bool {
        let talk = pass.to.and_then(|(host, _)| self.hosts[host].talk.as_ref());
        talk.is_none_or(|talk| talk.waiting() < ROOM)
    }

    fn hear_host(&mut self, at: usize) {
        while self.takes(at)
            && let Some(talk) = &mut self.hosts[at].talk
        {
            let got = match talk.receive() {
                Ok(Some(got)) => got,
                Ok(None) => return,
                Err(_) => {
                    // Its remote shells end, and say so.
                    self.hosts[at].talk = None;
                    let is_its = |pass: &Pass| pass.to.is_some_and(|(host, _)| host == at);
                    self.passes.retain(|pass| !is_its(pass));
                    return;
                }
            };
            let Some((channel, _, _)) = read(&got) else {
                continue;
            };
            let its = |pass: &&mut Pass| pass.to == Some((at, channel));
            if let Some(pass) = self.passes.iter_mut().find(its) {
                // Who is gone is noticed when it is heard.
                let _ = pass.stream.send(&got);
            }
        }
    }

    fn hear_pass(&mut self, at: usize) -> io::Result<()> {
        while self.is_free(&self.passes[at])
            && let Some(got) = self.passes[at].stream.receive()?
        {
            let (_, kind, bytes) = read(&got).ok_or(ErrorKind::InvalidData)?;
            match (kind, self.passes[at].to) {
                (Kind::Open, None) => {
                    let is_it = |host: &Host| host.name.as_bytes() == bytes && host.talk.is_some();
                    let host = self.hosts.iter().position(is_it);
                    let host = host.ok_or(ErrorKind::NotFound)?;
                    self.passes[at].to = Some((host, self.next));
                    self.say(host, &message(self.next, Kind::Open, &[]))?;
                    self.next = self.next.wrapping_add(1);
                }
                (Kind::Input, Some((host, channel))) => {
                    self.say(host, &message(channel, Kind::Input, bytes))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn say(&mut self, host: usize, message: &[u8]) -> io::Result<()> {
        match &mut self.hosts[host].talk {
            Some(talk) => talk.send(message),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn hang_up(&mut self, at: usize) {
        let pass = self.passes.swap_remove(at);
        if let Some((host, channel)) = pass.to {
            // A host that is gone has nothing to end.
            let _ = self.say(host, &message(channel, Kind::HungUp, &[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<Host> {
        let host = |name: &&str| Host {
            name: (*name).to_owned(),
            cores: 1,
            talk: None,
        };
        names.iter().map(host).collect()
    }

    fn names(hosts: &[Host]) -> Vec<&str> {
        hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn hosts_are_in_the_order_of_their_numbers_and_have_names_of_their_own() {
        let mut all = hosts(&["pod-10", "pod-9", "b", "pod-9", "a2b10", "a2b9"]);
        all.sort_by_cached_key(|host| natural(&host.name));
        assert_eq!(
            names(&all),
            ["a2b9", "a2b10", "b", "pod-9", "pod-9", "pod-10"]
        );
        rename_equal(&mut all);
        assert_eq!(names(&all)[3..5], ["pod-9", "pod-9~1"]);
        let own = margay_sys_os::process::host_name();
        let mut own = hosts(&[&own, &own]);
        rename_equal(&mut own);
        assert!(own[0].name.ends_with("~1") && own[1].name.ends_with("~2"));
    }

    #[test]
    fn a_host_says_its_cores_and_a_plain_name() {
        let said = |text: &str| hello(&message(0, Kind::Hello, text.as_bytes()));
        assert_eq!(said("4 pod-1.jobs"), Some((4, "pod-1.jobs".into())));
        assert_eq!(said("0 a"), Some((1, "a".into())));
        for text in ["", "4", "4 ", "x a", "4 a b", "4 -o;x", "4 a\n5 b"] {
            assert_eq!(said(text), None, "{text}");
        }
        assert_eq!(hello(&message(0, Kind::Input, b"4 a")), None);
        assert_eq!(hello(b""), None);
    }
}
