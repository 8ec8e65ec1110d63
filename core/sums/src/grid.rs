//! Sums over time of what ranks do: the picture of a trace that has more calls than a page can show
//! one by one. They are exact; only their picture is rounded, to what a point of the screen shows.

use margay_core_record::{Kind, Record};

/// What the time in calls is divided into: other calls, sends, receives, collective operations,
/// files. The page has the same, with computation before and waits behind.
pub const CLASSES: usize = 5;
/// Stretches of time of the sums of a whole trace. While it is read, half of them or more are used.
const COLUMNS: usize = 4096;
/// Rows: ranks, or groups of them.
const ROWS: u32 = 256;
/// Groups of ranks of the matrix of communication.
const SIDE: u32 = 128;

/// Ranks and a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    pub first: u32,
    /// The first rank that is not in it.
    pub last: u32,
}

impl Window {
    #[must_use]
    pub fn has(&self, rank: u32) -> bool {
        (self.first..self.last).contains(&rank)
    }
}

/// Calls of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub calls: u64,
    pub ns: u64,
}

/// The sums of a window.
pub struct Grid {
    pub window: Window,
    /// Nanoseconds of a column.
    pub width: u64,
    /// How long the trace is, is not known yet.
    grows: bool,
    pub columns: usize,
    /// Ranks of a row.
    pub each: u32,
    /// Nanoseconds in calls, by row, column and class.
    pub cells: Vec<[u64; CLASSES]>,
    /// Messages sent and received in each column.
    pub messages: Vec<[u64; 2]>,
    /// Nanoseconds in calls, by rank.
    pub busy: Vec<u64>,
    pub sites: Vec<Sums>,
    /// Messages and bytes from one group of ranks to another.
    pub matrix: Vec<[u64; 2]>,
    /// Length, rank and begin of the longest call.
    pub longest: (u64, u32, u64),
    pub calls: u64,
}

impl Grid {
    /// For a whole trace, whose end is only guessed.
    #[must_use]
    pub fn whole(ranks: u32, end_ns: u64) -> Grid {
        let window = Window {
            from: 0,
            to: u64::MAX,
            first: 0,
            last: ranks,
        };
        let width = (end_ns / COLUMNS as u64 + 1).min(1 << 52);
        Grid::new(window, width.next_power_of_two(), COLUMNS, true)
    }

    #[must_use]
    pub fn of(window: Window, columns: usize) -> Grid {
        let width = (window.to - window.from).div_ceil(columns as u64).max(1);
        Grid::new(window, width, columns, false)
    }

    fn new(window: Window, width: u64, columns: usize, grows: bool) -> Grid {
        let ranks = (window.last - window.first).max(1);
        let each = ranks.div_ceil(ROWS);
        let side = ranks.min(SIDE) as usize;
        Grid {
            window,
            width,
            grows,
            columns,
            each,
            cells: vec![[0; CLASSES]; ranks.div_ceil(each) as usize * columns],
            messages: vec![[0; 2]; columns],
            busy: vec![0; ranks as usize],
            sites: vec![Sums::default(); 1 << 16],
            matrix: vec![[0; 2]; side * side],
            longest: (0, 0, 0),
            calls: 0,
        }
    }

    /// Adds records of a thread, in the order in which they were written. `open` has those that
    /// have not ended.
    pub fn add(
        &mut self,
        rank: u32,
        records: impl Iterator<Item = Record>,
        open: &mut Vec<Record>,
    ) {
        let mut call_end = 0;
        for record in records {
            let Some(ns) = record.ticks else {
                open.push(record);
                continue;
            };
            let end = record.start.saturating_add(ns);
            if !record.kind.is_further() {
                call_end = end;
            }
            self.add_one(rank, &record, end, call_end.max(end));
        }
    }

    /// Adds a record that goes on until `end`; what its call receives has come by `come`.
    pub fn add_one(&mut self, rank: u32, record: &Record, end: u64, come: u64) {
        let Window { from, to, .. } = self.window;
        let start = record.start;
        if start >= to || end < from {
            return;
        }
        let class = match record.kind {
            Kind::Sent | Kind::Received | Kind::Posted | Kind::Total => None,
            Kind::Threads | Kind::Spent => None,
            Kind::Send => Some(1),
            Kind::Receive | Kind::Post => Some(2),
            Kind::Collective => Some(3),
            Kind::Read | Kind::Write => Some(4),
            Kind::Call => Some(0),
        };
        let (begin, until) = (start.max(from), end.min(to));
        let row = (rank - self.window.first) as usize;
        if !record.kind.is_further() {
            let sums = &mut self.sites[usize::from(record.site)];
            sums.calls += record.calls();
            if record.kind != Kind::Total {
                sums.ns += until - begin;
            }
        }
        if let Some(class) = class {
            self.busy[row] += until - begin;
            self.calls += 1;
            self.longest = self.longest.max((end - start, rank, start));
            self.spread(row / self.each as usize, class, begin, until);
        }
        let sent = record.sent();
        if sent > 0 && start >= from {
            let column = self.column(start);
            self.messages[column][0] += sent;
            if let Some(peer) = record.peer.filter(|&peer| self.window.has(peer)) {
                let side = self.side();
                let ranks = self.busy.len();
                let group = |rank: u32| (rank - self.window.first) as usize * side / ranks;
                let cell = &mut self.matrix[group(rank) * side + group(peer)];
                *cell = [cell[0] + sent, cell[1].saturating_add(record.bytes)];
            }
        }
        if matches!(record.kind, Kind::Receive | Kind::Received) && (from..to).contains(&come) {
            let column = self.column(come);
            self.messages[column][1] += 1;
        }
    }

    /// Groups of ranks of the matrix.
    #[must_use]
    pub fn side(&self) -> usize {
        self.busy.len().min(SIDE as usize)
    }

    /// The column of a time.
    fn column(&mut self, time: u64) -> usize {
        loop {
            let column = (time - self.window.from) / self.width;
            match usize::try_from(column) {
                Ok(column) if column < self.columns => return column,
                _ if self.grows => self.double(),
                _ => return self.columns - 1,
            }
        }
    }

    /// Adds time of a class to the columns that it is in.
    fn spread(&mut self, row: usize, class: usize, mut begin: u64, until: u64) {
        if begin >= until {
            return;
        }
        self.column(until - 1);
        let mut column = self.column(begin);
        let cells = &mut self.cells[row * self.columns..][..self.columns];
        while begin < until && column < cells.len() {
            let edge = (column as u64 + 1).saturating_mul(self.width);
            let edge = self.window.from.saturating_add(edge).min(until);
            cells[column][class] += edge - begin;
            begin = edge;
            column += 1;
        }
    }

    /// Makes columns twice as wide.
    fn double(&mut self) {
        self.width *= 2;
        let half = self.columns / 2;
        for row in self.cells.chunks_exact_mut(self.columns) {
            for column in 0..half {
                let (one, two) = (row[2 * column], row[2 * column + 1]);
                row[column] = std::array::from_fn(|class| one[class] + two[class]);
            }
            row[half..].fill([0; CLASSES]);
        }
        for column in 0..half {
            let (one, two) = (self.messages[2 * column], self.messages[2 * column + 1]);
            self.messages[column] = [one[0] + two[0], one[1] + two[1]];
        }
        self.messages[half..].fill([0; 2]);
    }

    /// Adds what another one has of the same window.
    pub fn merge(&mut self, mut other: Grid) {
        while self.width < other.width {
            self.double();
        }
        while other.width < self.width {
            other.double();
        }
        let pairs = self.cells.iter_mut().zip(&other.cells);
        pairs.for_each(|(to, from)| (0..CLASSES).for_each(|class| to[class] += from[class]));
        let messages = self.messages.iter_mut().zip(&other.messages);
        let matrix = self.matrix.iter_mut().zip(&other.matrix);
        messages.chain(matrix).for_each(|(to, from)| {
            to[0] += from[0];
            to[1] += from[1];
        });
        (self.busy.iter_mut().zip(&other.busy)).for_each(|(to, from)| *to += from);
        for (to, from) in self.sites.iter_mut().zip(&other.sites) {
            to.calls += from.calls;
            to.ns += from.ns;
        }
        self.longest = self.longest.max(other.longest);
        self.calls += other.calls;
    }

    /// The end of the trace is known.
    pub fn close(&mut self, end_ns: u64) {
        self.grows = false;
        self.window.to = end_ns.max(1);
        let used = self.window.to.div_ceil(self.width) as usize;
        let used = used.clamp(1, self.columns);
        let rows = self.cells.chunks_exact(self.columns);
        self.cells = rows.flat_map(|row| row[..used].iter().copied()).collect();
        self.messages.truncate(used);
        self.columns = used;
    }

    /// Of each cell and class the share of the time of its ranks, in parts of 255.
    #[must_use]
    pub fn shares(&self) -> Vec<u8> {
        let rows = self.cells.len() / self.columns;
        let mut shares = Vec::with_capacity(self.cells.len() * CLASSES);
        for (index, cell) in self.cells.iter().enumerate() {
            let row = index / self.columns;
            let ranks = match row + 1 == rows {
                true => self.busy.len() - row * self.each as usize,
                false => self.each as usize,
            };
            let whole = (self.width as f64 * ranks as f64).max(1.0);
            shares.extend(cell.map(|ns| (ns as f64 / whole * 255.0).round().min(255.0) as u8));
        }
        shares
    }
}
