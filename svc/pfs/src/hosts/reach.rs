//! How another host reaches the service that has invited it.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_net_tcp::Secret;
use margay_net_tcp::talk::{Knock, Talk};
use margay_sys_os::clock::{Clock, SystemClock};

use super::wire::{LOOK_EVERY, LOST_FOR, Wire, greeted, greeting};

/// How long the service is waited for at first.
const REACHED_WITHIN: Duration = Duration::from_secs(20);

/// How long a service whose host says that nobody listens is tried again.
const REFUSED_FOR: Duration = Duration::from_secs(3);

/// Between two looks at a connection that is being made, and between two attempts.
const STEP: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(500);

/// What this host was invited to, as lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invitation {
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    pub number: u64,
    pub secret: Secret,
    pub session: u64,
    /// The name of the file system.
    pub name: String,
    pub wish: Wish,
}

/// What a host is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    #[default]
    Nothing,
    /// A mount. `is_made`: at a directory that is made and goes with it.
    Mount { path: PathBuf, is_made: bool },
    /// A stripe directory.
    Directory { path: PathBuf, how: Opening },
    /// A stripe directory is removed.
    Removal { path: PathBuf },
}

/// How a stripe directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Plain,
    /// It is made.
    New,
    /// It goes with the service.
    Temporary,
}

impl Wish {
    /// The path that it is about.
    pub fn path(&self) -> &Path {
        match self {
            Wish::Nothing => Path::new(""),
            Wish::Mount { path, .. } | Wish::Directory { path, .. } | Wish::Removal { path } => {
                path
            }
        }
    }

    /// As a line of an invitation.
    pub fn line(&self) -> String {
        let kind = match self {
            Wish::Nothing => "",
            Wish::Mount { is_made: false, .. } => "mount",
            Wish::Mount { is_made: true, .. } => "make",
            Wish::Directory { how, .. } => match how {
                Opening::Plain => "directory",
                Opening::New => "new",
                Opening::Temporary => "temporary",
            },
            Wish::Removal { .. } => "remove",
        };
        format!("{kind} {}\n", self.path().display())
    }

    fn read(kind: &str, path: &str) -> Option<Wish> {
        let path = PathBuf::from(path);
        let is_made = kind == "make";
        let directory = |path, how| Some(Wish::Directory { path, how });
        match kind {
            "mount" | "make" => Some(Wish::Mount { path, is_made }),
            "directory" => directory(path, Opening::Plain),
            "new" => directory(path, Opening::New),
            "temporary" => directory(path, Opening::Temporary),
            "remove" => Some(Wish::Removal { path }),
            _ => None,
        }
    }
}

impl Invitation {
    /// Reads the lines.
    pub fn read(text: &str) -> Option<Invitation> {
        let mut invitation = Invitation::default();
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ')?;
            match kind {
                "addresses" => {
                    let all = rest.split(' ').map(str::parse);
                    invitation.addresses = all.collect::<Result<_, _>>().ok()?;
                }
                "door" => {
                    let mut words = rest.split(' ');
                    invitation.port = words.next()?.parse().ok()?;
                    invitation.number = hex(words.next()?)?;
                    let secret = words.next().filter(|word| word.len() == 64)?;
                    for (n, byte) in invitation.secret.iter_mut().enumerate() {
                        *byte = u8::from_str_radix(secret.get(2 * n..2 * n + 2)?, 16).ok()?;
                    }
                }
                "session" => invitation.session = hex(rest)?,
                "name" => invitation.name = rest.to_owned(),
                "stay" => {}
                _ => invitation.wish = Wish::read(kind, rest)?,
            }
        }
        let is_whole = !invitation.addresses.is_empty()
            && !invitation.name.is_empty()
            && invitation.wish.path().is_absolute();
        is_whole.then_some(invitation)
    }
}

/// The connection to the service while there is none.
enum Reaching {
    /// After a pause, because the last attempt failed.
    Later(Instant),
    Knocks(Box<Knock>),
    Greets(Box<Talk>),
}

/// A session, of which the service has the other end.
pub struct Reach {
    pub invitation: Invitation,
    pub wire: Wire,
    reaching: Option<Reaching>,
    /// Since when nobody listens.
    refused: Option<Instant>,
    /// The service is gone, or has sent this host away.
    pub is_over: bool,
}

impl Reach {
    pub fn new(invitation: Invitation) -> Reach {
        Reach {
            invitation,
            wire: Wire::new(),
            reaching: Some(Reaching::Later(Instant::now())),
            refused: None,
            is_over: false,
        }
    }

    /// The longest a wait may be.
    pub fn most_wait(&self) -> Duration {
        if self.wire.is_up() { LOOK_EVERY } else { STEP }
    }

    /// Waits for the first connection.
    pub fn begin(&mut self) -> Result<(), String> {
        let end = Instant::now() + REACHED_WITHIN;
        while !self.wire.is_up() {
            self.go_on();
            if self.is_over || Instant::now() > end {
                let addresses: Vec<String> = self
                    .invitation
                    .addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                return Err(format!(
                    "the service cannot be reached at port {} of {}; open that port in the firewall, or choose \
                     another one by --port-range",
                    self.invitation.port,
                    addresses.join(", ")
                ));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Goes on with looking for the service.
    pub fn go_on(&mut self) {
        if self.wire.is_up() {
            return;
        }
        let now = SystemClock.now_ns();
        let next = match self.reaching.take() {
            None => Some(Reaching::Later(Instant::now())),
            Some(Reaching::Later(when)) if Instant::now() < when => Some(Reaching::Later(when)),
            Some(Reaching::Later(_)) => {
                let invitation = &self.invitation;
                let door = (invitation.number, invitation.secret);
                Knock::begin(&invitation.addresses, invitation.port, door, now)
                    .map(|knock| Reaching::Knocks(Box::new(knock)))
                    .ok()
            }
            Some(Reaching::Knocks(mut knock)) => match knock.advance(now) {
                Ok(None) => Some(Reaching::Knocks(knock)),
                Ok(Some(mut talk)) => {
                    self.refused = None;
                    let has = self.wire.session.received();
                    let sent = talk.send(&greeting(self.invitation.session, has));
                    sent.is_ok().then(|| Reaching::Greets(Box::new(talk)))
                }
                Err(error) => {
                    if error.kind() == ErrorKind::ConnectionRefused {
                        self.refused.get_or_insert_with(Instant::now);
                    } else {
                        self.refused = None;
                    }
                    Some(Reaching::Later(Instant::now() + PAUSE))
                }
            },
            Some(Reaching::Greets(mut talk)) => match talk.receive() {
                Ok(None) => Some(Reaching::Greets(talk)),
                Ok(Some(message)) => {
                    match greeted(&message) {
                        Some((_, has)) => self.wire.go_on(*talk, has),
                        None => self.is_over = true,
                    }
                    None
                }
                // It does not know this session any more.
                Err(_) => {
                    self.is_over = true;
                    None
                }
            },
        };
        self.reaching = next;
        let is_refused = self
            .refused
            .is_some_and(|since| since.elapsed() > REFUSED_FOR);
        if is_refused || self.wire.is_lost_for() > LOST_FOR {
            self.is_over = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_are_read_and_others_are_none() {
        let secret = "0a".repeat(32);
        let text = format!(
            "addresses 10.0.0.1 ::1\ndoor 5000 ff {secret}\nsession 1f\nname scratch\nmount /a b\n"
        );
        let read = Invitation::read(&text).unwrap();
        assert_eq!((read.port, read.number, read.session), (5000, 255, 31));
        assert_eq!((read.secret, read.addresses.len()), ([10; 32], 2));
        assert_eq!(read.wish.line(), "mount /a b\n");
        for kind in ["make", "directory", "new", "temporary", "remove"] {
            let read = Invitation::read(&text.replace("mount", kind)).unwrap();
            assert_eq!(read.wish.line(), format!("{kind} /a b\n"));
        }
        for wrong in [
            text.replace("/a", "a"),
            text.replace("10.0.0.1", "host"),
            text.replace("0a0a", "0a"),
            text.replace("session", "else"),
            text.replace("name scratch\n", ""),
            String::new(),
        ] {
            assert_eq!(Invitation::read(&wrong), None, "{wrong}");
        }
    }
}
