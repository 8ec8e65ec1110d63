//! As much of HTTP/1.1 as the API needs: a request for each connection.

use std::io::{self, Read, Write};

/// Longest head, and longest body, in bytes.
const MOST_HEAD: usize = 64 << 10;
const MOST_BODY: usize = 32 << 20;

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without what stands behind `?`.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub authorization: Option<String>,
    pub body: Vec<u8>,
}

impl Request {
    /// A parameter behind `?`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What is answered.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
}

/// An answer in JSON.
#[must_use]
pub fn json(status: u16, value: &serde_json::Value) -> Response {
    Response {
        status,
        kind: "application/json",
        body: format!("{value}\n"),
    }
}

/// An answer that something is wrong.
#[must_use]
pub fn error(status: u16, text: &str) -> Response {
    json(status, &serde_json::json!({ "error": text }))
}

/// Reads a request; what is wrong with it is the answer.
///
/// # Errors
/// The answer.
pub fn read(from: &mut impl Read) -> Result<Request, Response> {
    let wrong = |text: &str| error(400, text);
    let mut bytes = Vec::new();
    let mut part = vec![0; 16 << 10];
    let mut fill = |bytes: &mut Vec<u8>| -> Result<(), Response> {
        match from.read(&mut part) {
            Ok(0) => Err(wrong("the request ends early")),
            Ok(count) => {
                bytes.extend_from_slice(&part[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(error(408, "the request did not come in time")),
        }
    };
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > MOST_HEAD {
            return Err(error(431, "the head of the request is too long"));
        }
        fill(&mut bytes)?;
    };
    let head =
        String::from_utf8(bytes[..end].to_vec()).map_err(|_| wrong("the head is no text"))?;
    let mut lines = head.split("\r\n");
    let mut request = Request::default();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong("the first line is no request"));
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(wrong("the first line is no request of HTTP/1"));
    }
    request.method = method.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    request.path = decoded(path);
    for item in query.split('&').filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        request.query.push((decoded(name), decoded(value)));
    }
    let mut length = 0;
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| wrong("a header has no colon"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = Some(value.to_owned()),
            "content-length" => {
                length = value
                    .parse()
                    .map_err(|_| wrong("Content-Length is no number"))?;
            }
            "transfer-encoding" => return Err(error(411, "send the length of the body")),
            _ => {}
        }
    }
    if length > MOST_BODY {
        return Err(error(
            413,
            "the body is too long; at most 32 MiB are accepted",
        ));
    }
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        fill(&mut body)?;
    }
    body.truncate(length);
    request.body = body;
    Ok(request)
}

/// Replaces `%41` by what it stands for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let code = rest.as_slice_of_two().filter(|_| byte == b'%');
        match code {
            Some(code) => {
                bytes.push(code);
                rest.nth(1);
            }
            None if byte == b'+' => bytes.push(b' '),
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Two hexadecimal digits that come next.
trait NextTwo {
    fn as_slice_of_two(&self) -> Option<u8>;
}

impl NextTwo for std::str::Bytes<'_> {
    fn as_slice_of_two(&self) -> Option<u8> {
        let two: Vec<u8> = self.clone().take(2).collect();
        let text = std::str::from_utf8(&two)
            .ok()
            .filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    }
}

/// Sends an answer.
///
/// # Errors
/// What the system says.
pub fn respond(to: &mut impl Write, response: &Response) -> io::Result<()> {
    let reason = match response.status {
        200 => "OK",
        201 => "Created",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    };
    write!(
        to,
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n{}",
        response.status,
        response.kind,
        response.body.len(),
        response.body
    )?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_noise_is_refused() {
        let text = b"POST /v1/jobs%2F1?a=b%20c&d HTTP/1.1\r\nHost: x\r\nauthorization: Bearer t\r\nContent-Length: 3\r\n\r\nabcd";
        let request = read(&mut &text[..]).unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/jobs/1")
        );
        assert_eq!(
            (request.parameter("a"), request.parameter("d")),
            (Some("b c"), Some(""))
        );
        assert_eq!(request.authorization.as_deref(), Some("Bearer t"));
        assert_eq!(request.body, b"abc");
        for noise in [
            &b""[..],
            b"GET\r\n\r\n",
            b"GET x HTTP/1.1\r\n\r\n",
            b"GET / HTTP/2\r\n\r\n",
            b"GET / HTTP/1.1\r\nx\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
            b"\xff\xff\r\n\r\n",
        ] {
            assert!(read(&mut &noise[..]).is_err(), "{noise:?}");
        }
        let long = io::repeat(b'x').take(1 << 20);
        assert_eq!(read(&mut { long }).unwrap_err().status, 431);
    }
}
