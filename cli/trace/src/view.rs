//! The page that shows a trace in a browser: one HTML file with everything in it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use margay_core_record::Kind;

use crate::analyse::{Analysis, critical_path};
use crate::format::{At, ThreadRecords, Trace, duration};
use crate::json::{Json, quote};

const PAGE: &str = include_str!("view.html");
/// Where the page has the trace.
const DATA: &str = "\"@TRACE@\"";
/// Calls that a page shows one by one. Of more, those that last longest are taken.
const MOST_CALLS: usize = 1_000_000;
/// Messages that a page shows.
const MOST_MESSAGES: usize = 300_000;

/// Returns the page of a trace.
pub fn page(trace: &Trace, analysis: &Analysis) -> String {
    PAGE.replacen(DATA, &data(trace, analysis), 1)
}

/// The trace as a value of JavaScript: rows of numbers, which are shorter than objects. Times are
/// in nanoseconds, relative to the row before.
fn data(trace: &Trace, analysis: &Analysis) -> String {
    let mut json = Json::object();
    json.text("command", &trace.head.command);
    json.text("host", &trace.head.host);
    json.number("ranks", f64::from(trace.head.ranks));
    json.number("end", trace.end_ns as f64);
    json.number("lost", trace.lost() as f64);
    json.number("cut", f64::from(u8::from(trace.is_cut)));
    let sites: Vec<_> = trace.sites.iter().collect();
    json.array("sites", &sites, |json, (number, site)| {
        json.number("n", f64::from(**number));
        json.text("call", &site.call);
        json.text("at", &site.place());
        json.text("file", &site.file);
        json.number("line", f64::from(site.line));
    });
    let sources: Vec<_> = trace.sources.iter().collect();
    json.array("sources", &sources, |json, (file, text)| {
        json.text("file", file);
        json.text("text", text);
    });
    let mut left_out = 0_u64;
    for (name, threads) in [("threads", &trace.threads), ("openmp", &trace.openmp)] {
        let least = least_duration(trace, threads);
        json.array(name, threads, |json, of| {
            json.number("rank", f64::from(of.rank));
            json.number("thread", f64::from(of.thread));
            json.text("host", trace.hosts.get(&of.rank).map_or("", String::as_str));
            let (rows, short) = rows(trace, of, least);
            left_out += short;
            json.text("calls", &rows);
        });
    }
    json.number("left_out", left_out as f64);
    let mut rows = String::new();
    for message in analysis.messages.iter().take(MOST_MESSAGES) {
        let _ = write!(
            rows,
            "{} {} {} {} {} {},",
            trace.threads[message.from.thread as usize].rank,
            trace.threads[message.to.thread as usize].rank,
            message.sent_ns,
            message.received_ns,
            message.bytes,
            message.tag as i32
        );
    }
    json.text("messages", &rows);
    let mut rows = String::new();
    for wait in &analysis.waits {
        let record = |at: At| &trace.threads[at.thread as usize].records[at.index as usize];
        let because = &trace.threads[wait.because.thread as usize];
        let _ = write!(
            rows,
            "{} {} {} {} {} {},",
            wait.at.thread,
            record(wait.at).start,
            wait.ns,
            wait.kind as u8,
            because.rank,
            record(wait.because).start
        );
    }
    json.text("waits", &rows);
    let mut names = String::from("[");
    for kind in crate::analyse::WaitKind::ALL {
        quote(&mut names, kind.name());
        names.push(',');
    }
    json.text("wait_names", names.trim_end_matches(','));
    let path: Vec<_> = critical_path(trace, analysis);
    let mut rows = String::new();
    for stretch in &path {
        let rank = trace
            .threads
            .get(stretch.thread as usize)
            .map_or(0, |t| t.rank);
        let _ = write!(rows, "{rank} {} {},", stretch.from_ns, stretch.to_ns);
    }
    json.text("path", &rows);
    json.end()
}

/// The calls of a thread that last at least so long, and how many do not.
fn rows(trace: &Trace, of: &ThreadRecords, least: u64) -> (String, u64) {
    let (mut rows, mut left_out, mut last) = (String::new(), 0, 0);
    for record in of.records.iter().filter(|r| !r.kind.is_further()) {
        let ns = duration(trace, record);
        if ns < least {
            left_out += 1;
            continue;
        }
        let peer = record.peer.map_or(-1, i64::from);
        let open = i32::from(record.ticks.is_none());
        let _ = write!(
            rows,
            "{} {ns} {} {} {peer} {} {} {open},",
            record.start.saturating_sub(last),
            record.site,
            record.kind as u8,
            record.tag as i32,
            record.bytes
        );
        last = record.start;
    }
    (rows, left_out)
}

/// The shortest call that the page shows, so that it shows [`MOST_CALLS`].
fn least_duration(trace: &Trace, threads: &[ThreadRecords]) -> u64 {
    let calls = threads.iter().flat_map(|t| &t.records);
    let mut lengths: Vec<u64> = calls
        .filter(|r| !r.kind.is_further() && r.kind != Kind::Total)
        .map(|r| duration(trace, r))
        .collect();
    if lengths.len() <= MOST_CALLS {
        return 0;
    }
    let at = lengths.len() - MOST_CALLS;
    *lengths.select_nth_unstable(at).1
}

/// Serves the page, made anew each time, to the browsers of this machine that know its address,
/// until the process is ended.
pub fn serve(
    page: &dyn Fn() -> Result<String, String>,
    say: impl FnOnce(&str),
) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("cannot serve the page: {error}; --html FILE writes it instead");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    // Other users of the machine can connect, too.
    let secret = secret().map_err(failed)?;
    say(&format!("http://127.0.0.1:{port}/{secret}/"));
    let wanted = format!("GET /{secret}/ HTTP/1.");
    loop {
        let (stream, _) = listener.accept().map_err(failed)?;
        // A browser that goes away in the middle is no loss.
        let _ = answer(stream, &wanted, page);
    }
}

fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn answer(
    mut stream: TcpStream,
    wanted: &str,
    page: &dyn Fn() -> Result<String, String>,
) -> io::Result<()> {
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
    let (status, body) = match request.starts_with(wanted.as_bytes()) {
        true => match page() {
            Ok(page) => ("200 OK", page),
            Err(why) => ("500 Internal Server Error", format!("{why}\n")),
        },
        false => ("404 Not Found", "There is no such page.\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    #[test]
    fn a_page_has_the_trace_and_needs_no_network() {
        let trace = small();
        let page = page(&trace, &analyse(&trace));
        assert!(!page.contains(DATA) && page.contains("ring.c:20"));
        for word in ["http://", "https://", "src=\"", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
