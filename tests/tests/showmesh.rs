//! The live display of `showmesh`, on a terminal of 80 columns, with its keys.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use margay_sys_os::terminal::Pty;
use margay_tests::hangs::Built;
use margay_tests::stage;

const ROWS: usize = 30;
const COLUMNS: usize = 80;

/// What a terminal of that size shows. It does not wrap: what goes beyond the last column is kept
/// apart.
struct Terminal {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    beyond: String,
    rest: Vec<u8>,
}

impl Terminal {
    fn new() -> Terminal {
        Terminal {
            cells: vec![vec![' '; COLUMNS]; ROWS],
            at: (0, 0),
            beyond: String::new(),
            rest: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        let mut left = text.as_str();
        while let Some(c) = left.chars().next() {
            if c != '\x1b' {
                self.put(c);
                left = &left[c.len_utf8()..];
                continue;
            }
            let Some(sequence) = left.strip_prefix("\x1b[") else {
                match left.char_indices().nth(2) {
                    Some((next, _)) => left = &left[next..],
                    None => break,
                }
                continue;
            };
            let Some(end) = sequence.find(|c: char| ('@'..='~').contains(&c)) else {
                break;
            };
            self.control(&sequence[..end], sequence.as_bytes()[end]);
            left = &sequence[end + 1..];
        }
        let used = whole - left.len();
        self.rest.drain(..used);
    }

    fn put(&mut self, c: char) {
        let (row, column) = self.at;
        match c {
            '\r' => self.at.1 = 0,
            '\n' => self.at.0 = (row + 1).min(ROWS - 1),
            _ if column >= COLUMNS => self.beyond.push(c),
            _ => {
                self.cells[row][column] = c;
                self.at.1 += 1;
            }
        }
    }

    fn control(&mut self, words: &str, kind: u8) {
        let mut numbers = words.split(';').map(|n| n.parse::<usize>().unwrap_or(0));
        let first = numbers.next().unwrap_or(0);
        let (row, column) = self.at;
        match kind {
            b'H' => {
                let column = numbers.next().unwrap_or(1).max(1) - 1;
                self.at = ((first.max(1) - 1).min(ROWS - 1), column);
            }
            b'G' => self.at.1 = first.max(1) - 1,
            b'E' => self.at = ((row + first.max(1)).min(ROWS - 1), 0),
            b'J' if first == 2 => self.cells = vec![vec![' '; COLUMNS]; ROWS],
            b'J' => {
                self.cells[row][column.min(COLUMNS)..].fill(' ');
                self.cells[row + 1..].iter_mut().for_each(|r| r.fill(' '));
            }
            b'K' => {
                let from = if first == 2 { 0 } else { column.min(COLUMNS) };
                self.cells[row][from..].fill(' ');
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().collect::<String>());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }
}

/// The display of a job.
struct Live {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    terminal: Terminal,
}

impl Live {
    fn start(job: u32) -> Live {
        let pty = Pty::open().unwrap();
        pty.set_size(ROWS as u16, COLUMNS as u16);
        let mut command = Command::new(stage().join("bin/showmesh"));
        command
            .args(["--job", &job.to_string()])
            .env("TERM", "xterm-256color");
        let (child, keys) = pty.spawn(&mut command).unwrap();
        let mut from = keys.try_clone().unwrap();
        let (send, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                if send.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Live {
            child,
            keys,
            output,
            terminal: Terminal::new(),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen is as it shall be.
    fn until(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.terminal.text();
            if is_there(&text) {
                assert_eq!(self.terminal.beyond, "", "{text}");
                return text;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.terminal.take(&bytes),
                Err(_) => panic!("{what} never came: {text}"),
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of ranks: what stands before the state.
fn lines(text: &str) -> Vec<&str> {
    let is_rank = |line: &&str| {
        ["MPI_Barrier for", "computing, last"]
            .iter()
            .any(|w| line.contains(w))
    };
    text.lines().filter(is_rank).collect()
}

#[test]
fn the_display_fits_and_groups_sorts_and_filters_by_keys() {
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(4, "barrier");
    job.until("ready", 4);
    let mut live = Live::start(job.pid());
    // Rank 1 computes for ever, and the others wait for it.
    let waits = |text: &str| text.matches("MPI_Barrier for").count();
    live.until("a line for each rank", |text| {
        lines(text).len() == 4 && waits(text) == 3
    });
    live.press("g");
    let text = live.until("one line for those that wait", |text| {
        lines(text).len() == 2 && waits(text) == 1
    });
    assert!(text.contains("0, 2, 3"), "{text}");
    live.press("g");
    live.until("a line for each rank", |text| lines(text).len() == 4);
    let first = |text: &str| {
        lines(text)
            .first()
            .is_some_and(|l| l.contains("computing, last"))
    };
    // From the order of ranks to that of states, then of the use of the CPU: the busiest is first.
    live.press("ss");
    live.until("rank 1 as the busiest", first);
    live.press("sss");
    live.until("rank 1 as the second", |text| {
        !first(text) && lines(text).len() == 4
    });
    live.press("/computing\r");
    live.until("the rank that computes alone", |text| {
        lines(text).len() == 1 && first(text)
    });
    live.press("/0,3\r");
    live.until("two ranks by number", |text| {
        lines(text).len() == 2 && waits(text) == 2
    });
    live.press("/\r");
    live.until("all ranks again", |text| lines(text).len() == 4);
    live.press("?");
    live.until("the keys", |text| text.contains("sort by rank, state"));
    live.press("\x1b");
    live.until("the ranks again", |text| lines(text).len() == 4);
    live.press("\r");
    live.until("the stack of a rank", |text| text.contains("hangs.c:"));
    live.press("q");
    assert!(live.child.wait().unwrap().success());
}
