//! The output of a job of the queue of all users that runs on another host. A process with the
//! rights of the job's user opens its files here, and writes what comes from there: root's hands
//! would follow links that the user may not. Its standard input has frames: a letter, the number of
//! bytes (32 bits, the lowest byte first), and these. `j` is the job's order, `o` and `e` are bytes
//! of output and of standard error. Its standard output has an empty line when the files are open,
//! and a line that says why it failed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use margay_svc_queue_wire::PROGRAM;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::beside;
use margay_sys_os::signal::take_defaults_in;

use crate::begin::become_owner;
use crate::files::JobOrder;
use crate::output;

/// What it says when the files are open, and behind why it failed.
const BEGUN: u8 = b'\n';

/// How long the files may take to be opened, and what is left to be written.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Bytes that wait for it; what is more is lost.
const MOST_UNSAID: usize = 64 << 20;

/// Longest order in bytes.
const MOST_FRAME: u32 = 128 << 20;

/// The process, as the supervisor of the job has it.
#[derive(Debug)]
pub struct Writer {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    unsaid: Vec<u8>,
    lost: String,
}

impl Writer {
    /// Starts it; the files are open then.
    ///
    /// # Errors
    /// In words: they cannot be opened, for example.
    pub fn start(order: &JobOrder) -> Result<Writer, String> {
        let failed = |error: io::Error| format!("what writes its output cannot start: {error}");
        let mut command = Command::new(beside(PROGRAM).map_err(failed)?);
        command
            .args(["outputs", &std::process::id().to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = take_defaults_in(&mut command).spawn().map_err(failed)?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("what writes its output has no pipes".into());
        };
        let sent = input.write_all(&frame(b'j', &order.text().map_err(failed)?));
        let begun = sent.and_then(|()| {
            set_nonblocking(input.as_fd())?;
            set_nonblocking(output.as_fd())
        });
        let mut writer = Writer {
            child,
            input: Some(input),
            output,
            unsaid: Vec::new(),
            lost: String::new(),
        };
        begun.map_err(failed)?;
        match writer.said(true) {
            None => Err("what writes its output does not answer".into()),
            Some(text) if text.is_empty() => Ok(writer),
            Some(text) => Err(text),
        }
    }

    /// What it says, to the end of a line or of all; none when it says nothing.
    fn said(&mut self, is_line: bool) -> Option<String> {
        let end = Instant::now() + TAKEN_WITHIN;
        let mut said = Vec::new();
        let mut part = [0; 4096];
        let mut poll = PollSet::default();
        loop {
            match self.output.read(&mut part) {
                Ok(0) => break,
                Ok(count) => said.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    poll.clear();
                    poll.add_readable(self.output.as_fd());
                    if left.is_zero() || poll.wait(Some(left)).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
            if is_line && said.contains(&BEGUN) {
                break;
            }
        }
        let text = String::from_utf8_lossy(&said);
        (!said.is_empty()).then(|| text.trim_end().to_owned())
    }

    /// Has bytes written.
    pub fn say(&mut self, letter: u8, bytes: &[u8]) {
        if !self.lost.is_empty() {
            return;
        }
        self.unsaid.extend(frame(letter, bytes));
        self.go_on();
        if self.unsaid.len() > MOST_UNSAID {
            self.lose("its files take too long");
        }
    }

    fn lose(&mut self, why: &str) {
        self.lost = format!(" (output is missing: {why})");
        self.unsaid.clear();
    }

    /// Passes on what it takes now.
    pub fn go_on(&mut self) {
        while let (Some(input), false) = (&mut self.input, self.unsaid.is_empty()) {
            match input.write(&self.unsaid) {
                Ok(count) if count > 0 => {
                    self.unsaid.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => self.lose("what wrote it was ended"),
            }
        }
    }

    /// Waits until all is written, and ends it. Returns what else there is to say of the job.
    #[must_use]
    pub fn end(mut self) -> String {
        let end = Instant::now() + TAKEN_WITHIN;
        let mut poll = PollSet::default();
        while let (Some(input), false) = (&self.input, self.unsaid.is_empty()) {
            let left = end.saturating_duration_since(Instant::now());
            poll.clear();
            poll.add_writable(input.as_fd());
            if left.is_zero() || poll.wait(Some(left)).is_err() {
                self.lose("its files take too long");
            }
            self.go_on();
        }
        self.input = None;
        if self.lost.is_empty()
            && let Some(why) = self.said(false)
        {
            self.lose(&why);
        }
        std::mem::take(&mut self.lost)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn frame(letter: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[letter], &length.to_le_bytes()[..], bytes].concat()
}

/// The next frame; none at the end.
fn next(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if length > MOST_FRAME {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes)?;
    Ok(Some((head[0], bytes)))
}

/// The process: `margay-queue outputs SUPERVISOR`. Returns its exit code.
#[must_use]
pub fn outputs(supervisor: &str) -> u8 {
    let mut output = io::stdout();
    let mut input = io::stdin().lock();
    let text = match write_all(supervisor, &mut input, &mut output) {
        Ok(()) => return 0,
        Err(text) => text,
    };
    let text = text.replace('\n', " ") + "\n";
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
    // The other side is to read this, and not to miss a reader.
    let _ = io::copy(&mut input, &mut io::sink());
    1
}

fn write_all(
    supervisor: &str,
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot write its output: {error}");
    let Some((b'j', order)) = next(input).map_err(failed)? else {
        return Err("no order has come".into());
    };
    let order = JobOrder::of(&order).map_err(failed)?;
    let user = order.user.as_ref().ok_or("its order names no user")?;
    become_owner(supervisor, user)?;
    let mut files = output::files(&order)?;
    output
        .write_all(&[BEGUN])
        .and_then(|()| output.flush())
        .map_err(failed)?;
    while let Some((letter, bytes)) = next(input).map_err(failed)? {
        files[usize::from(letter == b'e')]
            .write_all(&bytes)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
