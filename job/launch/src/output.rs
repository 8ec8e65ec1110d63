//! Merging the output of many ranks so that lines stay whole.
//!
//! A [`Merger`] stands before one sink (the launcher's standard output, or error, or both when they
//! are the same file). It takes what each rank's pipe delivers and makes one sequence of bytes. It
//! is pure: bytes and the time go in, bytes come out.
//!
//! - A stream's bytes go out up to its last newline; what follows is held until its line is whole.
//! - A line longer than [`LINE_LIMIT`] is not held any longer: it is let through as it comes, and
//!   the sink is *open* for this stream until its newline; the others wait (their pipes fill up and
//!   so slow them down).
//! - A part of a line that looks like a prompt is let through after a short idle time, which opens
//!   the sink in the same way. A part that ends at a multiple of [`BLOCK`] bytes is not a prompt
//!   but a full buffer of the program's C or Fortran library, cut anywhere.
//! - When others wait and the stream with the open line has been silent for [`HOLD`], the line is
//!   ended with a newline of ours. Without this, a rank that waits for a message from a rank that
//!   waits for the sink would never go on.
//! - When a rank ends, its last line goes out even without newline; if anything follows it, a
//!   newline of ours comes between.
//! - A sink with only one stream passes everything at once and adds nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest line in bytes that is surely kept in one piece.
pub const LINE_LIMIT: usize = 1 << 20;
/// How long a stream with an open line may be silent while others wait.
pub const HOLD: Duration = Duration::from_millis(250);
/// Buffers of C and Fortran libraries are multiples of this many bytes.
pub const BLOCK: u64 = 1024;
/// When this many bytes wait for the sink, no more are read from the ranks.
const PENDING_LIMIT: usize = 256 << 10;

/// One rank's output or error, as the merger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(usize);

/// What stands before each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The rank.
    pub rank: bool,
    /// The time, if this is given: an instant, and what the clock showed then.
    pub time: Option<(Instant, SystemTime)>,
}

impl Labels {
    fn text(&self, rank: u32, now: Instant) -> String {
        let mut text = String::new();
        if let Some((then, clock)) = self.time {
            text = time_text(clock + now.saturating_duration_since(then)) + " ";
        }
        if self.rank {
            text.push_str(&format!("[{rank}] "));
        }
        text
    }
}

/// Returns a time as date and time of day in UTC, in milliseconds: `2026-11-23T04:05:06.789Z`.
fn time_text(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // The Gregorian calendar repeats after 400 years of 146097 days. Years are counted from March,
    // so that the leap day is the last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        era * 400 + year + next,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

/// See the module.
#[derive(Debug)]
pub struct Merger {
    labels: Labels,
    /// When something was last taken or done.
    now: Instant,
    streams: Vec<Stream>,
    pending: Vec<u8>,
    /// Bytes at the front of `pending` that are written already.
    taken: usize,
    open: Option<usize>,
    open_active: Option<Instant>,
    /// The last line has no newline and nobody will continue it.
    dangling: bool,
    at_line_start: bool,
    /// Streams that have something to emit and wait for the open line to end.
    waiting: VecDeque<usize>,
}

#[derive(Debug)]
struct Stream {
    rank: u32,
    held: Vec<u8>,
    /// Bytes at the front of `held` that are whole lines.
    whole: usize,
    /// Flush `held` to its end, the rank has gone.
    ended: bool,
    queued: bool,
    total: u64,
    last: Option<Instant>,
    /// After this idle time a part of a line is shown.
    prompt_after: Option<Duration>,
}

impl Merger {
    /// Returns a merger without streams.
    #[must_use]
    pub fn new(labels: Labels) -> Merger {
        Merger {
            labels,
            now: Instant::now(),
            streams: Vec::new(),
            pending: Vec::new(),
            taken: 0,
            open: None,
            open_active: None,
            dangling: false,
            at_line_start: true,
            waiting: VecDeque::new(),
        }
    }

    /// Adds a stream of `rank`. After `prompt_after` of silence a part of a line is shown as a
    /// prompt; none never does.
    pub fn add(&mut self, rank: u32, prompt_after: Option<Duration>) -> StreamId {
        self.streams.push(Stream {
            rank,
            held: Vec::new(),
            whole: 0,
            ended: false,
            queued: false,
            total: 0,
            last: None,
            prompt_after,
        });
        StreamId(self.streams.len() - 1)
    }

    /// Whether the stream's pipe should be read now. When not, the rank slows down.
    #[must_use]
    pub fn accepts(&self, stream: StreamId) -> bool {
        self.has_room() && self.streams[stream.0].held.len() <= LINE_LIMIT
    }

    /// Whether the sink keeps up.
    fn has_room(&self) -> bool {
        self.pending.len() - self.taken < PENDING_LIMIT
    }

    /// Takes what a stream delivered.
    pub fn push(&mut self, stream: StreamId, bytes: &[u8], now: Instant) {
        self.now = now;
        let id = stream.0;
        let single = self.streams.len() == 1;
        let s = &mut self.streams[id];
        s.total += bytes.len() as u64;
        s.last = Some(now);
        s.ended = false;
        let newline = memchr::memrchr(b'\n', bytes);
        if self.open.is_some_and(|o| o != id) {
            if let Some(at) = newline {
                s.whole = s.held.len() + at + 1;
            }
            s.held.extend_from_slice(bytes);
            if s.whole > 0 || s.held.len() > LINE_LIMIT {
                self.enqueue(id);
            }
            return;
        }
        let held = std::mem::take(&mut s.held);
        let mut rest = bytes;
        let was_open = self.open == Some(id);
        if let Some(at) = newline {
            self.emit(id, &held);
            self.emit(id, &bytes[..=at]);
            rest = &bytes[at + 1..];
            self.open = None;
            self.streams[id].held = rest.to_vec();
        } else if was_open {
            self.emit(id, bytes);
            self.open_active = Some(now);
            return;
        } else {
            self.streams[id].held = held;
            self.streams[id].held.extend_from_slice(rest);
        }
        let held = &self.streams[id].held;
        if held.len() > LINE_LIMIT || (single && !held.is_empty()) {
            self.open_with_held(id, now);
        } else if was_open {
            self.release(now);
        }
    }

    /// The rank behind a stream has gone, or the stream has ended: whatever is held goes out.
    pub fn end(&mut self, stream: StreamId, now: Instant) {
        self.now = now;
        let id = stream.0;
        match self.open {
            Some(open) if open == id => {
                self.open = None;
                self.dangling = true;
                self.release(now);
            }
            Some(_) => {
                self.streams[id].ended = true;
                if !self.streams[id].held.is_empty() {
                    self.enqueue(id);
                }
            }
            None => {
                self.streams[id].ended = true;
                self.flush(id, now);
            }
        }
    }

    /// Puts whole lines of the launcher's own into the sequence, ending an open line. A text
    /// without lines changes nothing.
    pub fn message(&mut self, text: &str, now: Instant) {
        if text.is_empty() {
            return;
        }
        self.now = now;
        if self.open.take().is_some() {
            self.dangling = true;
        }
        self.end_dangling();
        // Words of a rank in it, such as the name of its call, must not steer the terminal.
        for c in text.chars() {
            match c {
                '\n' | '\t' => self.pending.push(c as u8),
                c if c.is_control() => self.pending.extend(c.escape_default().map(|c| c as u8)),
                c => self
                    .pending
                    .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !text.ends_with('\n') {
            self.pending.push(b'\n');
        }
        self.release(now);
    }

    /// When [`tick`](Self::tick) is due, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.open.is_some() {
            // While the sink is slow the streams are not read, so silence says nothing.
            let counts = !self.waiting.is_empty() && self.has_room();
            return self.open_active.filter(|_| counts).map(|at| at + HOLD);
        }
        self.streams.iter().filter_map(Stream::prompt_due).min()
    }

    /// Does what is due: shows a prompt, ends a line that keeps others waiting.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        if self.open.is_some() {
            let silent = self.open_active.is_none_or(|at| now >= at + HOLD);
            if silent && !self.waiting.is_empty() && self.has_room() {
                self.open = None;
                self.dangling = true;
                self.release(now);
            }
            return;
        }
        let due = self
            .streams
            .iter()
            .position(|s| s.prompt_due().is_some_and(|at| now >= at));
        if let Some(id) = due {
            self.open_with_held(id, now);
        }
    }

    /// Returns the bytes that the sink should get next.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.pending[self.taken..]
    }

    /// The sink took `bytes` of [`pending`](Self::pending).
    pub fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken >= self.pending.len() {
            self.pending.clear();
            self.taken = 0;
            if self.pending.capacity() > 4 * PENDING_LIMIT {
                self.pending.shrink_to(PENDING_LIMIT);
            }
        }
    }

    /// Nobody reads the sink any more: forgets what is pending.
    pub fn discard(&mut self) {
        self.consume(self.pending.len() - self.taken);
    }

    fn enqueue(&mut self, id: usize) {
        if !self.streams[id].queued {
            self.streams[id].queued = true;
            self.waiting.push_back(id);
        }
    }

    /// Lets the streams go on that waited for the open line to end.
    fn release(&mut self, now: Instant) {
        while self.open.is_none()
            && let Some(id) = self.waiting.pop_front()
        {
            self.streams[id].queued = false;
            self.flush(id, now);
        }
    }

    /// Emits what a stream may emit while no line is open.
    fn flush(&mut self, id: usize, now: Instant) {
        let s = &mut self.streams[id];
        let mut held = std::mem::take(&mut s.held);
        let whole = std::mem::take(&mut s.whole);
        let ended = s.ended;
        self.emit(id, &held[..whole]);
        held.drain(..whole);
        if ended && !held.is_empty() {
            self.emit(id, &held);
            self.dangling = true;
            return;
        }
        let long = held.len() > LINE_LIMIT;
        self.streams[id].held = held;
        if long {
            self.open_with_held(id, now);
        }
    }

    fn open_with_held(&mut self, id: usize, now: Instant) {
        let held = std::mem::take(&mut self.streams[id].held);
        self.emit(id, &held);
        self.open = Some(id);
        self.open_active = Some(now);
    }

    fn end_dangling(&mut self) {
        if self.dangling {
            self.dangling = false;
            self.at_line_start = true;
            self.pending.push(b'\n');
        }
    }

    fn emit(&mut self, id: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.end_dangling();
        if self.labels == Labels::default() {
            self.pending.extend_from_slice(bytes);
            return;
        }
        let label = self.labels.text(self.streams[id].rank, self.now);
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            if self.at_line_start {
                self.pending.extend_from_slice(label.as_bytes());
            }
            self.pending.extend_from_slice(line);
            self.at_line_start = line.ends_with(b"\n");
        }
    }
}

impl Stream {
    fn prompt_due(&self) -> Option<Instant> {
        if self.held.is_empty() || self.total.is_multiple_of(BLOCK) {
            return None;
        }
        Some(self.last? + self.prompt_after?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_millis(100);

    fn take(m: &mut Merger) -> String {
        let text = String::from_utf8(m.pending().to_vec()).unwrap();
        m.consume(text.len());
        text
    }

    fn two(label: bool) -> (Merger, StreamId, StreamId, Instant) {
        let mut m = Merger::new(Labels {
            rank: label,
            time: None,
        });
        let a = m.add(0, Some(IDLE));
        let b = m.add(1, Some(IDLE));
        (m, a, b, Instant::now())
    }

    #[test]
    fn lines_are_not_mixed() {
        let (mut m, a, b, now) = two(false);
        m.push(a, b"one tw", now);
        m.push(b, b"x\ny", now);
        m.push(a, b"o\nthree", now);
        m.push(b, b"z\n", now);
        assert_eq!(take(&mut m), "x\none two\nyz\n");
        m.end(a, now);
        m.end(b, now);
        assert_eq!(take(&mut m), "three");
    }

    #[test]
    fn labels_stand_before_each_line() {
        let (mut m, a, b, now) = two(true);
        m.push(a, b"one\ntw", now);
        m.push(b, b"x\n", now);
        m.push(a, b"o\n", now);
        assert_eq!(take(&mut m), "[0] one\n[1] x\n[0] two\n");
    }

    #[test]
    fn the_time_stands_before_each_line_and_the_rank_behind_it() {
        let then = Instant::now();
        // The last day of February of a leap year that is a century's.
        let clock = UNIX_EPOCH + Duration::from_millis(951_868_799_250);
        let mut m = Merger::new(Labels {
            rank: true,
            time: Some((then, clock)),
        });
        let a = m.add(3, None);
        m.push(a, b"x\n", then);
        assert_eq!(take(&mut m), "2000-02-29T23:59:59.250Z [3] x\n");
        m.push(a, b"y\nz\n", then + Duration::from_secs(1));
        let expected = "2000-03-01T00:00:00.250Z [3] y\n2000-03-01T00:00:00.250Z [3] z\n";
        assert_eq!(take(&mut m), expected);
        assert_eq!(time_text(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_last_line_without_newline_is_kept_apart() {
        let (mut m, a, b, now) = two(false);
        m.push(a, b"end", now);
        m.end(a, now);
        assert_eq!(take(&mut m), "end");
        m.push(b, b"x\n", now);
        assert_eq!(take(&mut m), "\nx\n");
    }

    #[test]
    fn a_prompt_is_shown_and_its_line_ended_when_others_wait_too_long() {
        let (mut m, a, b, now) = two(false);
        m.push(a, b"name? ", now);
        assert_eq!(m.deadline(), Some(now + IDLE));
        m.tick(now + IDLE);
        assert_eq!(take(&mut m), "name? ");
        m.push(b, b"x\n", now + IDLE);
        assert_eq!(take(&mut m), "");
        assert_eq!(m.deadline(), Some(now + IDLE + HOLD));
        m.tick(now + IDLE + HOLD);
        assert_eq!(take(&mut m), "\nx\n");
        m.push(a, b"thanks\n", now + 2 * HOLD);
        assert_eq!(take(&mut m), "thanks\n");
    }

    #[test]
    fn a_full_library_buffer_is_not_a_prompt() {
        let (mut m, a, _, now) = two(false);
        m.push(a, &[b'x'; 4096], now);
        assert_eq!(m.deadline(), None);
        m.tick(now + 10 * IDLE);
        assert!(m.pending().is_empty());
    }

    #[test]
    fn an_endless_line_passes_with_bounded_memory_and_stays_whole() {
        let (mut m, a, b, now) = two(false);
        let part = vec![b'a'; 64 << 10];
        let mut got = 0;
        for _ in 0..64 {
            m.push(a, &part, now);
            assert!(m.streams[0].held.len() <= LINE_LIMIT);
            m.push(b, b"x\n", now);
            let n = m.pending().len();
            m.consume(n);
            got += n;
        }
        let before = 2 * (LINE_LIMIT / part.len() + 1);
        assert_eq!(
            got,
            (4 << 20) + before - 2,
            "b's lines came before the line was opened"
        );
        m.push(a, b"end\n", now);
        let rest = take(&mut m);
        assert!(rest.starts_with("end\nx\nx\n"), "{rest:?}");
        assert_eq!(got + rest.len(), (4 << 20) + 4 + 128);
    }

    #[test]
    fn who_waits_is_not_read_for_ever() {
        let (mut m, a, b, now) = two(false);
        m.push(a, &vec![b'a'; LINE_LIMIT + 1], now);
        m.discard();
        assert!(m.accepts(b));
        m.push(b, &vec![b'b'; LINE_LIMIT + 1], now);
        assert!(!m.accepts(b));
        assert!(m.accepts(a));
        m.push(a, &vec![b'a'; PENDING_LIMIT], now);
        assert!(!m.accepts(a), "the sink is slow");
    }

    #[test]
    fn a_slow_sink_does_not_break_a_long_line() {
        let (mut m, a, b, now) = two(false);
        m.push(a, &vec![b'a'; LINE_LIMIT + 1], now);
        m.push(b, b"x\n", now);
        assert_eq!(m.deadline(), None);
        m.tick(now + 10 * HOLD);
        assert!(!m.pending().contains(&b'\n'));
        m.discard();
        assert_eq!(m.deadline(), Some(now + HOLD));
        m.push(a, b"end\n", now + 11 * HOLD);
        assert_eq!(take(&mut m), "end\nx\n");
    }

    #[test]
    fn a_single_stream_passes_at_once_and_unchanged() {
        let mut m = Merger::new(Labels::default());
        let a = m.add(0, None);
        let now = Instant::now();
        m.push(a, b"no newline", now);
        assert_eq!(take(&mut m), "no newline");
        m.push(a, b" yet\nand", now);
        m.end(a, now);
        assert_eq!(take(&mut m), " yet\nand");
    }

    #[test]
    fn a_message_ends_an_open_line() {
        let (mut m, a, b, now) = two(false);
        m.push(a, b"part", now);
        m.tick(now + IDLE);
        m.push(b, b"x\n", now + IDLE);
        m.message("mpiexec: over", now + IDLE);
        assert_eq!(take(&mut m), "part\nmpiexec: over\nx\n");
    }

    #[test]
    fn messages_do_not_steer_the_terminal_and_what_ranks_write_is_theirs() {
        let (mut m, a, _, now) = two(false);
        m.message("rank 0: \u{1b}[31min \u{7}MPI_R\u{9b}ecv → 1\n\tmore", now);
        assert_eq!(
            take(&mut m),
            "rank 0: \\u{1b}[31min \\u{7}MPI_R\\u{9b}ecv → 1\n\tmore\n"
        );
        m.push(a, b"\x1b[31mred\n", now);
        assert_eq!(take(&mut m), "\x1b[31mred\n");
    }

    /// Every line of every rank comes out whole and in the rank's order, whatever the cuts are.
    #[test]
    fn random_cuts_keep_lines_whole() {
        let mut numbers = fastrand::Rng::with_seed(1);
        let mut random = move |below: usize| numbers.usize(..below);
        for _ in 0..50 {
            let mut m = Merger::new(Labels::default());
            let ids: Vec<StreamId> = (0..4).map(|r| m.add(r, None)).collect();
            let texts: Vec<String> = (0..4)
                .map(|r| {
                    (0..100)
                        .map(|i| format!("{r} {i} {}\n", "-".repeat(random(70))))
                        .collect()
                })
                .collect();
            let mut at = [0; 4];
            let now = Instant::now();
            while at.iter().zip(&texts).any(|(a, t)| *a < t.len()) {
                let r = random(4);
                let end = (at[r] + 1 + random(200)).min(texts[r].len());
                m.push(ids[r], &texts[r].as_bytes()[at[r]..end], now);
                at[r] = end;
            }
            for id in ids {
                m.end(id, now);
            }
            let out = take(&mut m);
            for (r, text) in texts.iter().enumerate() {
                let mine: String = out
                    .split_inclusive('\n')
                    .filter(|l| l.starts_with(&format!("{r} ")))
                    .collect();
                assert_eq!(&mine, text);
            }
        }
    }
}
