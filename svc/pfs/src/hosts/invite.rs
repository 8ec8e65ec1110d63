//! Asking other hosts to mount a file system: a remote shell starts this program there, and hands
//! it how the service is reached.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use margay_job_launch::hosts::program_on;
use margay_svc_pfs_options::PROGRAM;

use margay_sys_os::signal::{SIGKILL, send_to_group};

use super::program::{FAILED, IN_USE, READY, STAY, Why};
use super::reach::Wish;

/// How long a host may take: the remote shell has a limit of its own, and so has the program there.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// Most bytes that are shown of what a remote shell prints.
const MOST_SAID: u64 = 2048;

/// What a remote shell is for.
pub struct Way<'a> {
    pub hosts: Vec<&'a str>,
    /// The words of the remote shell.
    pub shell: Vec<OsString>,
    /// It stays until what it has started has ended.
    pub stays: bool,
}

/// Has the hosts do what is wished for `name`, as the service says in `lines`, all at the same
/// time.
///
/// # Errors
/// In words, which name the hosts that have not.
pub fn all(way: &Way<'_>, name: &str, wish: &Wish, lines: &str) -> Result<(), String> {
    let (sessions, common): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| line.starts_with("session "));
    let common = format!("{}\nname {name}\n{}", common.join("\n"), wish.line());
    let failed: Vec<String> = thread::scope(|scope| {
        let hosts = way.hosts.iter().zip(sessions);
        let asked: Vec<_> = hosts
            .map(|(host, session)| {
                let text = format!("{common}{session}\n");
                scope.spawn(move || {
                    let done = ask(host, &way.shell, &text, way.stays);
                    done.map_err(|why| format!("host {host}: {}", why.text))
                })
            })
            .collect();
        let done = asked.into_iter().map(thread::ScopedJoinHandle::join);
        done.filter_map(|done| done.ok().and_then(Result::err))
            .collect()
    });
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

/// Has one host do what `text` asks for. `stays`: the remote shell stays until that has ended.
///
/// # Errors
/// In words.
pub fn ask(host: &str, shell: &[OsString], text: &str, stays: bool) -> Result<(), Why> {
    let words: Vec<_> = shell.iter().map(|word| word.to_string_lossy()).collect();
    let failed = |error: io::Error| {
        format!(
            "cannot run '{}': {error}; install it, or name another remote shell by MARGAY_RSH",
            words.join(" ")
        )
    };
    let mut child = program_on(host, shell, PROGRAM, "attach")
        .map_err(failed)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // Where it has gone, what it says is the reason.
        let stay = if stays { STAY } else { "" };
        let _ = write!(stdin, "{text}{stay}");
    }
    let answer = answered(&mut child);
    if answer.is_none() {
        // The remote shell may be a script that has started another program.
        let _ = send_to_group(child.id(), SIGKILL);
    }
    if let Some(Some(done)) = answer {
        match stays && done.is_ok() {
            true => drop(thread::spawn(move || child.wait())),
            false => drop(child.wait()),
        }
        return done;
    }
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MOST_SAID).read_to_string(&mut said);
    }
    let status = child.wait();
    let said: Vec<&str> = (said.lines().map(str::trim))
        .filter(|line| !line.is_empty())
        .collect();
    let said = match said.is_empty() {
        true => String::new(),
        false => format!(": {}", said.join("; ")),
    };
    let code = status.ok().and_then(|status| status.code());
    let text = match (answer, code) {
        (None, _) => format!(
            "no answer within {} s; the remote shell must not ask or wait{said}",
            DONE_WITHIN.as_secs()
        ),
        (Some(_), Some(126 | 127)) => format!("Margay is not there at the same path{said}"),
        (Some(_), Some(code)) => format!("the remote shell ended with code {code}{said}"),
        (Some(_), None) => format!("the remote shell ended{said}"),
    };
    Err(text.into())
}

/// What the program there says, if it says anything before it ends. None where it is silent for too
/// long.
fn answered(child: &mut Child) -> Option<Option<Result<(), Why>>> {
    let stdout = child.stdout.take()?;
    let (tell, hear) = mpsc::channel();
    // It ends when the remote shell does, which is ended where it is silent.
    thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        // Start-up files of the shell may say something before.
        let said = lines.filter_map(|line| understood(&line)).next();
        let _ = tell.send(said);
    });
    hear.recv_timeout(DONE_WITHIN).ok()
}

fn understood(line: &str) -> Option<Result<(), Why>> {
    let failed = |text: &str, is_in_use| {
        Some(Err(Why {
            text: text.to_owned(),
            is_in_use,
        }))
    };
    if line == READY {
        return Some(Ok(()));
    }
    match (line.strip_prefix(FAILED), line.strip_prefix(IN_USE)) {
        (Some(text), _) => failed(text, false),
        (None, Some(text)) => failed(text, true),
        (None, None) => None,
    }
}
