//! `margay-queue post`: sends one letter, which comes in as JSON. By `sendmail`, or, to an address
//! that begins with `http://` or `https://`, as a webhook.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_core_queue::JobId;
use margay_svc_queue_wire::Owner;
use margay_sys_os::credentials::become_user;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How long a letter may take.
const SENT_WITHIN: Duration = Duration::from_secs(30);

/// Where `sendmail` is when it is not in `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/lib", "/usr/local/sbin", "/sbin"];

/// A letter about a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Letter {
    pub to: String,
    pub subject: String,
    pub note: String,
    pub job: JobId,
    pub name: String,
    pub state: String,
    pub host: String,
    /// As whom it is sent, in the queue of all users: where it goes is for the user to say.
    pub owner: Option<Owner>,
}

/// Sends the letter of the standard input.
///
/// # Errors
/// In words.
pub fn post() -> Result<(), String> {
    margay_sys_os::process::lead_session();
    let mut text = Vec::new();
    io::stdin()
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    let letter: Letter = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if let Some(owner) = &letter.owner {
        become_user(owner.uid, owner.gid, &owner.groups)
            .map_err(|error| format!("cannot become the user {}: {error}", owner.uid))?;
    }
    let sent = match letter.to.split_once("://") {
        Some(("http", rest)) => call(rest, &body(&letter)),
        Some(("https", _)) => by_curl(&letter),
        _ => by_sendmail(&letter),
    };
    sent.map_err(|text| format!("job {}: no letter to {}: {text}", letter.job, letter.to))
}

/// What a webhook gets. `text` is what chats show.
fn body(letter: &Letter) -> String {
    json!({
        "text": letter.subject,
        "job": letter.job,
        "name": letter.name,
        "state": letter.state,
        "host": letter.host,
        "note": letter.note,
    })
    .to_string()
}

/// One line, so that nothing in a job's name becomes a header.
fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn by_sendmail(letter: &Letter) -> Result<(), String> {
    let program = find("sendmail").ok_or("there is no sendmail on this machine")?;
    let text = format!(
        "To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nContent-Type: text/plain; charset=utf-8\n\n{}\n",
        line(&letter.to),
        line(&letter.subject),
        if letter.note.is_empty() {
            &letter.subject
        } else {
            &letter.note
        },
    );
    let mut command = Command::new(program);
    run(command.args(["-t", "-i"]), &text)
}

fn by_curl(letter: &Letter) -> Result<(), String> {
    let program = find("curl").ok_or("there is no curl on this machine, which https needs")?;
    let mut command = Command::new(program);
    let words = [
        "-fsS",
        "-m",
        "25",
        "-H",
        "Content-Type: application/json",
        "--data-binary",
        "@-",
    ];
    run(command.args(words).arg("--").arg(&letter.to), &body(letter))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn run(command: &mut Command, text: &str) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not listen says why by its exit code.
        let _ = stdin.write_all(text.as_bytes());
    }
    let status = ended(&mut child)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "{} ended with {status}",
            command.get_program().display()
        )),
    }
}

/// Waits for the end of a child, for some time.
fn ended(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < SENT_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took more than {} s", SENT_WITHIN.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Sends a request to `HOST[:PORT]/PATH`.
fn call(address: &str, body: &str) -> Result<(), String> {
    let (host, path) = match address.find('/') {
        Some(at) => address.split_at(at),
        None => (address, "/"),
    };
    if address.contains(char::is_control) || address.contains(' ') {
        return Err("the address holds blanks or control characters".into());
    }
    let place = match host.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:80"),
    };
    let failed = |error: io::Error| error.to_string();
    let address = place
        .to_socket_addrs()
        .map_err(failed)?
        .next()
        .ok_or("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, SENT_WITHIN).map_err(failed)?;
    stream.set_read_timeout(Some(SENT_WITHIN)).map_err(failed)?;
    stream
        .set_write_timeout(Some(SENT_WITHIN))
        .map_err(failed)?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).map_err(failed)?;
    match answer.get(9) {
        Some(b'2') => Ok(()),
        _ => Err(format!(
            "the answer is {}",
            String::from_utf8_lossy(&answer).trim_end()
        )),
    }
}
