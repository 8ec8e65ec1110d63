//! `margay-queue api`: the queue over HTTP, with JSON and server-sent events. It listens on a Unix
//! socket of the user, and on a TCP port only when asked, and then to clients that have the token.

mod answers;
mod events;
mod http;
mod metrics;

use std::fs;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_svc_queue_wire::Place;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet};

use crate::common::{Done, print};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

const OPTIONS: &[Known] = &[
    ('h', "help", Nothing),
    (' ', "listen", Value),
    (' ', "socket", Value),
    (' ', "token-file", Value),
];

const HELP: &str = "Usage: margay-queue api [--socket PATH] [--listen HOST:PORT [--token-file FILE]]\n\
    Serves the queue over HTTP: /openapi.json describes it. Without --listen on a Unix socket alone.\n";

/// Requests that are served at the same time; those that follow events are among them.
const MOST_REQUESTS: usize = 128;

/// How long the other side may take to send a part of a request, or to take one of an answer.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// A connection of either kind.
trait Connection: io::Read + io::Write + Send {}
impl<T: io::Read + io::Write + Send> Connection for T {}

/// Serves until a signal ends it.
///
/// # Errors
/// In words.
pub fn serve(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    if words.has("help") {
        print(HELP)?;
        return Ok(0);
    }
    let place = Place::find()?;
    place.make()?;
    let path = match words.value("socket") {
        Some(path) => PathBuf::from(path),
        None => place.folder.join("api.sock"),
    };
    let system = |error: io::Error| format!("the API cannot start: {error}");
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM]);
    set.block();
    let signals = SignalFd::new(&set).map_err(system)?;
    // The name that one had that was killed; one that lives answers.
    if std::os::unix::net::UnixStream::connect(&path).is_ok() {
        return Err(format!("another one serves {} already", path.display()));
    }
    let _ = fs::remove_file(&path);
    let local = UnixListener::bind(&path)
        .and_then(|listener| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
        .map_err(|error| format!("cannot listen at {}: {error}", path.display()))?;
    let mut text = format!("listening at {}\n", path.display());
    let remote = match words.value("listen") {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address)
                .and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                })
                .map_err(|error| format!("cannot listen at {address}: {error}"))?;
            let file = match words.value("token-file") {
                Some(file) => PathBuf::from(file),
                None => place.folder.join("api.token"),
            };
            let token = token(&file)?;
            let at = listener.local_addr().map_err(system)?;
            text += &format!(
                "listening at http://{at}, for requests with the token of {}\n",
                file.display()
            );
            Some((listener, token))
        }
    };
    print(&text)?;
    let done = attend(&local, remote.as_ref(), signals).map_err(system);
    let _ = fs::remove_file(&path);
    done.map(|()| 0)
}

/// The token of a file; a new one where there is none.
fn token(file: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("the token of {}: {error}", file.display());
    match fs::read_to_string(file) {
        Ok(text) if text.trim().len() >= 16 => return Ok(text.trim().to_owned()),
        Ok(_) => {
            return Err(format!(
                "the token of {} is shorter than 16 characters",
                file.display()
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(failed)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut new = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(failed)?;
    io::Write::write_all(&mut new, format!("{token}\n").as_bytes()).map_err(failed)?;
    Ok(token)
}

fn attend(
    local: &UnixListener,
    remote: Option<&(TcpListener, String)>,
    mut signals: SignalFd,
) -> io::Result<()> {
    let count = Arc::new(AtomicUsize::new(0));
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        poll.add_readable(local.as_fd());
        poll.add_readable(signals.as_fd());
        if let Some((listener, _)) = remote {
            poll.add_readable(listener.as_fd());
        }
        poll.wait(None)?;
        if signals.take().is_some() {
            return Ok(());
        }
        if let Ok((stream, _)) = local.accept()
            && is_trusted(stream.as_fd())
        {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(HEARD_WITHIN))?;
            stream.set_write_timeout(Some(HEARD_WITHIN))?;
            admit(&count, Box::new(stream), None);
        }
        if let Some((listener, token)) = remote
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(HEARD_WITHIN))?;
            stream.set_write_timeout(Some(HEARD_WITHIN))?;
            admit(&count, Box::new(stream), Some(token.clone()));
        }
    }
}

/// Serves a request in a thread of its own.
fn admit(count: &Arc<AtomicUsize>, mut stream: Box<dyn Connection>, token: Option<String>) {
    if count.fetch_add(1, Ordering::SeqCst) >= MOST_REQUESTS {
        count.fetch_sub(1, Ordering::SeqCst);
        let _ = http::respond(&mut stream, &http::error(503, "too many requests at once"));
        return;
    }
    let count = Arc::clone(count);
    let serve = move || {
        converse(&mut stream, token.as_deref());
        count.fetch_sub(1, Ordering::SeqCst);
    };
    // Where there is no room for a thread the connection ends.
    let _ = std::thread::Builder::new().spawn(serve);
}

fn converse(stream: &mut Box<dyn Connection>, token: Option<&str>) {
    let response = match http::read(stream) {
        Err(response) => response,
        Ok(request) if !is_allowed(&request, token) => {
            http::error(401, "say the token: Authorization: Bearer TOKEN")
        }
        Ok(request) if request.method == "GET" && request.path == "/v1/events" => {
            let _ = events::send(stream);
            return;
        }
        Ok(request) => answers::answer(&request),
    };
    let _ = http::respond(stream, &response);
}

/// Whether a request has the token; how long the comparison takes does not depend on where it
/// differs.
fn is_allowed(request: &http::Request, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
    let said = request
        .authorization
        .as_deref()
        .and_then(|text| text.strip_prefix("Bearer "));
    let (said, token) = (said.unwrap_or_default().as_bytes(), token.as_bytes());
    let differences = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    said.len() == token.len() && differences == 0
}
