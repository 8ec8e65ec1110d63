//! The program that a remote shell starts on another host, and that keeps there what a service has
//! asked for. It outlives the remote shell.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use margay_svc_pfs_options::PROGRAM;
use margay_sys_os::process::{beside, lead_session};

use super::attach::Attached;
use super::directory::{self, Directory};
use super::reach::{Invitation, Reach, Wish};
use crate::serve::use_io_cores;

/// What the other host reads when it has been done.
pub const READY: &str = "margay-pfs ready";

/// What it reads when it has not, before the reason: also where another process is in the way.
pub const FAILED: &str = "margay-pfs failed: ";

pub const IN_USE: &str = "margay-pfs in use: ";

/// The line of an invitation with which the program that was started stays until what it has
/// started itself has ended: batch systems end what a step of a job leaves behind.
pub const STAY: &str = "stay yes\n";

const NO_INVITATION: &str =
    "what was sent to this host is no invitation; it must have the same version";

/// Does what the lines of the standard input say, and returns when that is done or has failed,
/// which the standard output says; what was asked for is kept by another process.
///
/// # Errors
/// What the system says.
pub fn start() -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot run {PROGRAM} here: {error}");
    let mut child = Command::new(beside(PROGRAM).map_err(failed)?)
        .args(["attach", "--keep"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // When it has ended, its line says why.
        let _ = stdin.write_all(&text);
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.is_empty() {
        line = format!("{FAILED}what keeps it has ended\n");
    }
    print!("{line}");
    let _ = io::stdout().flush();
    if String::from_utf8_lossy(&text).contains(STAY) {
        let _ = child.wait();
    }
    Ok(())
}

/// Keeps what the lines of the standard input ask for until its service is gone, or it is over.
///
/// # Errors
/// In words, which the standard output has as well.
pub fn keep() -> Result<(), String> {
    lead_session();
    use_io_cores();
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    let invitation = read.ok().and_then(|_| Invitation::read(&text));
    // The directory in which it was started may be unmounted.
    let _ = std::env::set_current_dir("/");
    let begun = invitation
        .ok_or_else(|| Why::from(NO_INVITATION.to_owned()))
        .and_then(Kept::begin);
    let mut stdout = io::stdout();
    let said = match &begun {
        Ok(_) => writeln!(stdout, "{READY}"),
        Err(why) => {
            let kind = if why.is_in_use { IN_USE } else { FAILED };
            writeln!(stdout, "{kind}{}", why.text.replace('\n', " "))
        }
    };
    let _ = said.and_then(|()| stdout.flush());
    match begun.map_err(|why| why.text)? {
        Kept::Mount(attached) => attached.run(),
        Kept::Directory(directory) => directory.run(),
        Kept::Nothing => {}
    }
    Ok(())
}

/// What is kept for a service on another host.
enum Kept {
    Mount(Box<Attached>),
    Directory(Box<Directory>),
    Nothing,
}

impl Kept {
    fn begin(invitation: Invitation) -> Result<Kept, Why> {
        let wish = invitation.wish.clone();
        let reach = Reach::new(invitation);
        match wish {
            Wish::Nothing => Ok(Kept::Nothing),
            Wish::Mount { path, is_made } => {
                let attached = Attached::begin(reach, path, is_made)?;
                Ok(Kept::Mount(Box::new(attached)))
            }
            Wish::Directory { path, how } => {
                let directory = Directory::begin(reach, &path, how)?;
                Ok(Kept::Directory(Box::new(directory)))
            }
            Wish::Removal { path } => {
                directory::remove(&path);
                Ok(Kept::Nothing)
            }
        }
    }
}

/// Why something cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    pub text: String,
    /// Another process has it.
    pub is_in_use: bool,
}

impl From<String> for Why {
    fn from(text: String) -> Why {
        Why {
            text,
            is_in_use: false,
        }
    }
}
