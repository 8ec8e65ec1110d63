//! Serving a page to the browsers of this machine that know its address.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// What is asked for: what follows the secret in the address.
pub trait Answers: Sync {
    /// The page for an empty text; for others what the page asks for. None: there is no such thing.
    fn answer(&self, what: &str) -> Option<Result<String, String>>;
}

/// Serves until the process is ended.
///
/// # Errors
/// When no port can be had.
pub fn serve(answers: &dyn Answers, say: impl FnOnce(&str)) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("cannot serve the page: {error}; --html FILE writes it instead");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    // Other users of the machine can connect, too.
    let secret = secret().map_err(failed)?;
    say(&format!("http://127.0.0.1:{port}/{secret}/"));
    let wanted = format!("GET /{secret}/");
    std::thread::scope(|scope| {
        loop {
            let (stream, _) = listener.accept().map_err(failed)?;
            let wanted = &wanted;
            // A browser that goes away in the middle is no loss; one that says nothing must not
            // keep the others waiting.
            scope.spawn(move || drop(answer(stream, wanted, answers)));
        }
    })
}

fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn answer(mut stream: TcpStream, wanted: &str, answers: &dyn Answers) -> io::Result<()> {
    const MOST: usize = 8192;
    let limit = Some(Duration::from_secs(5));
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(limit)?;
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MOST {
        match stream.read(&mut bytes)? {
            0 => break,
            count => request.extend(&bytes[..count]),
        }
    }
    let line = request
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let what = line
        .strip_prefix(wanted)
        .and_then(|rest| rest.split_once(" HTTP/1."));
    let (status, body) = match what.and_then(|(what, _)| answers.answer(what)) {
        Some(Ok(body)) => ("200 OK", body),
        Some(Err(why)) => ("500 Internal Server Error", format!("{why}\n")),
        None => ("404 Not Found", "There is no such page.\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
