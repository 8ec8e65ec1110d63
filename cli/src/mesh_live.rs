//! `margay mesh`, live: what each key does and what stands on the screen.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::process::ExitCode;
use std::time::Instant;

use crossterm::event::{KeyCode, KeyModifiers};
use margay_job_observe::mesh::{JobView, Mesh, RankDetail, RankView, State};
use margay_job_observe::traffic::{Stream, Traffic};

use crate::live::{
    Key, Line, Piece, Screen, can_see_jobs, columns, duration, ended, is_live, job_size, job_title,
    of_each, of_state, once, plain, watch,
};
use crate::mesh_groups::{Choice, Group, groups, is_stuck, ranks_text, summary};
use crate::mesh_view::{heading, rank_line, sentences, table, team_lines, wrapped};
use crate::options::{MeshOptions, ViewOptions};

/// Looks that the history has.
const HISTORY: usize = 60;
/// Jobs with more ranks are shown in groups unless the user says otherwise.
const MOST_SINGLE: usize = 16;
/// Calls that a close look at a rank has.
const CALLS: usize = 12;
/// Rows and columns of the picture of who sends to whom.
const BLOCKS: usize = 16;
/// Pairs that are listed below it.
const PAIRS: usize = 12;

const RED: u8 = 9;
const DIM: u8 = 8;

/// Shows the jobs as the options say; `name` is that of the command.
pub fn show(name: &str, options: &MeshOptions) -> ExitCode {
    if let Err(error) = can_see_jobs() {
        eprintln!("{name}: {error}");
        return ExitCode::from(1);
    }
    let choice = Choice {
        is_grouped: options.group,
        sort: options.sort,
        filter: options.only.clone().unwrap_or_default(),
    };
    let view = &options.view;
    let shown = if is_live(view) && !options.plain {
        let mut screen = MeshScreen::new(view, choice);
        watch(&mut screen, view.interval).map(|()| true)
    } else {
        let width = columns();
        let lines = |jobs: &[JobView], _: bool| -> Vec<Line> {
            of_each(jobs, |job| match (options.plain, width) {
                (true, _) => sentences(job, &choice).into_iter().map(plain).collect(),
                (false, None) => table(job, &choice).into_iter().map(plain).collect(),
                (false, Some(width)) => {
                    let lines = table(job, &choice);
                    lines
                        .iter()
                        .flat_map(|line| wrapped(line, width))
                        .map(plain)
                        .collect()
                }
            })
        };
        once(&mut Mesh::default(), view, lines)
    };
    ended(name, view, shown)
}

/// What is on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Page {
    #[default]
    Ranks,
    /// One rank of a job.
    Detail(u64, u32),
    Traffic,
    Picture,
    Keys,
}

/// The live display.
pub struct MeshScreen {
    mesh: Mesh,
    job: Option<u64>,
    choice: Choice,
    /// Whether ranks share lines, as the user has said.
    grouped: Option<bool>,
    page: Page,
    /// The line that is chosen, among those that can be.
    chosen: usize,
    /// A filter that is being typed.
    typed: Option<String>,
    jobs: Vec<JobView>,
    /// The states of each job's ranks, the newest last.
    history: HashMap<u64, VecDeque<Vec<State>>>,
    traffic: HashMap<u64, Traffic>,
    streams: BTreeMap<u64, BTreeMap<(u32, u32), Stream>>,
    /// Of what time the streams are, in seconds.
    streams_s: f64,
    looked: Instant,
    detail: Option<RankDetail>,
}

impl MeshScreen {
    /// The display as the options say.
    #[must_use]
    pub fn new(options: &ViewOptions, choice: Choice) -> MeshScreen {
        MeshScreen {
            mesh: Mesh::default(),
            job: options.job,
            grouped: choice.is_grouped.then_some(true),
            choice,
            page: Page::Ranks,
            chosen: 0,
            typed: None,
            jobs: Vec::new(),
            history: HashMap::new(),
            traffic: HashMap::new(),
            streams: BTreeMap::new(),
            streams_s: 1.0,
            looked: Instant::now(),
            detail: None,
        }
    }

    /// Looks at the page's own subject.
    fn look_closely(&mut self) {
        self.detail = match self.page {
            Page::Detail(job, rank) => self.mesh.detail(job, rank, CALLS),
            _ => None,
        };
        if self.page == Page::Traffic {
            let now = Instant::now();
            self.streams_s = now.duration_since(self.looked).as_secs_f64().max(0.001);
            self.looked = now;
            for job in &self.jobs {
                let traffic = self.traffic.entry(job.job).or_default();
                let streams = self.mesh.traffic(job.job, traffic).unwrap_or_default();
                self.streams.insert(job.job, streams);
            }
        }
    }

    fn note_history(&mut self) {
        let there = |id: &u64| self.jobs.iter().any(|job| job.job == *id);
        self.history.retain(|id, _| there(id));
        for job in &self.jobs {
            let history = self.history.entry(job.job).or_default();
            history.push_back(job.rank.iter().map(|rank| rank.state).collect());
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
    }

    fn is_grouped(&self) -> bool {
        let is_large = |job: &JobView| job.rank.len() > MOST_SINGLE;
        (self.grouped).unwrap_or_else(|| self.jobs.iter().any(is_large))
    }

    /// The lines that can be chosen: job and first rank.
    fn choices(&self) -> Vec<(u64, u32)> {
        let choice = self.choice();
        let of_job = |job: &JobView| {
            let groups = groups(job, &choice).into_iter();
            let id = job.job;
            groups
                .map(move |group| (id, group.ranks[0]))
                .collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(of_job).collect()
    }

    fn choice(&self) -> Choice {
        Choice {
            is_grouped: self.is_grouped(),
            ..self.choice.clone()
        }
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        let Some(typed) = &mut self.typed else {
            return;
        };
        match code {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Enter => {
                self.choice.filter = self.typed.take().unwrap_or_default();
                self.chosen = 0;
            }
            KeyCode::Esc => self.typed = None,
            _ => {}
        }
    }

    fn open(&mut self) {
        if let (Page::Ranks, Some((job, rank))) =
            (&self.page, self.choices().get(self.chosen).copied())
        {
            self.turn_to(Page::Detail(job, rank));
        }
    }

    /// Shows a page, or the ranks again when it is there already.
    fn turn_to(&mut self, page: Page) {
        self.page = match self.page == page {
            true => Page::Ranks,
            false => page,
        };
        self.look_closely();
    }

    /// What share of some ranks has computed at each of the last looks, as bars.
    fn bars(&self, job: u64, ranks: &[u32], most: usize) -> String {
        const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let Some(history) = self.history.get(&job) else {
            return String::new();
        };
        let bar = |states: &Vec<State>| {
            let computes = |rank: &&u32| states.get(**rank as usize) == Some(&State::Computing);
            let share = ranks.iter().filter(computes).count() as f64 / ranks.len().max(1) as f64;
            BARS[(share * 8.0).ceil() as usize]
        };
        let first = history.len().saturating_sub(most);
        history.iter().skip(first).map(bar).collect()
    }

    fn head(&self, job: &JobView, lines: &mut Vec<Line>, width: usize) {
        let size = job_size(job.ranks, job.cores, job.running_s);
        lines.push(plain(job_title(job.job, &job.command)));
        let summary = format!("{size}; {}", summary(job));
        lines.extend(wrapped(&summary, width).into_iter().map(plain));
        let all: Vec<u32> = (0..job.ranks).collect();
        let room = width.saturating_sub(11).min(HISTORY);
        lines.push(vec![
            piece("computing: ", Some(DIM)),
            piece(
                self.bars(job.job, &all, room),
                Some(of_state(State::Computing)),
            ),
        ]);
        let findings = job.findings.iter().flat_map(|line| wrapped(line, width));
        lines.extend(findings.map(|finding| vec![piece(finding, Some(RED))]));
    }

    /// The ranks, and which of the lines is the chosen one.
    fn ranks(&self, width: usize) -> (Vec<Line>, Option<usize>) {
        let choice = self.choice();
        let (mut lines, mut chosen, mut number) = (Vec::new(), None, 0);
        for job in &self.jobs {
            if !lines.is_empty() {
                lines.push(plain(""));
            }
            self.head(job, &mut lines, width);
            let groups = groups(job, &choice);
            let head = match choice.is_grouped {
                true => format!(
                    "{:<14} {:>5} {:>9} {:<10}  {}",
                    "RANKS", "CPU%", "WAITS", "COMPUTES", "DOES"
                ),
                false => heading(job),
            };
            lines.push(vec![piece(head, Some(DIM))]);
            for group in &groups {
                if number == self.chosen {
                    chosen = Some(lines.len());
                }
                number += 1;
                if choice.is_grouped {
                    lines.push(self.group(job.job, group));
                    continue;
                }
                let rank = &job.rank[group.ranks[0] as usize];
                let color = color(rank.state, group.is_stuck);
                lines.push(vec![piece(rank_line(rank, job), Some(color))]);
                lines.extend(team_lines(rank).map(plain));
            }
            if groups.is_empty() {
                let text = format!("no rank matches {:?}; / changes that", self.choice.filter);
                lines.push(plain(text));
            }
        }
        (lines, chosen)
    }

    fn group(&self, job: u64, group: &Group) -> Line {
        let does = group
            .text
            .strip_prefix("waiting in ")
            .unwrap_or(&group.text);
        let since = group.since_s.map_or_else(String::new, duration);
        let color = color(group.state, group.is_stuck);
        vec![
            piece(
                format!(
                    "{:<14} {:>5.1} {since:>9} ",
                    ranks_text(&group.ranks, 14),
                    group.cpu_percent
                ),
                None,
            ),
            piece(
                format!("{:<10}  ", self.bars(job, &group.ranks, 10)),
                Some(of_state(State::Computing)),
            ),
            piece(does, Some(color)),
        ]
    }

    fn detail(&self, id: u64, number: u32) -> Vec<Line> {
        let job = self.jobs.iter().find(|job| job.job == id);
        let Some((job, rank)) = job.and_then(|job| Some((job, job.rank.get(number as usize)?)))
        else {
            return vec![plain(format!("job {id} has ended"))];
        };
        let mut lines = vec![
            plain(job_title(job.job, &job.command)),
            plain(heading(job)),
            vec![piece(
                rank_line(rank, job),
                Some(color(rank.state, is_stuck(job, number))),
            )],
            plain(format!(
                "computed at the last looks: {}",
                self.bars(id, &[number], 40)
            )),
        ];
        lines.extend(team_lines(rank).map(plain));
        let Some(detail) = &self.detail else {
            return lines;
        };
        lines.extend((!detail.counted.is_empty()).then(|| plain(&detail.counted)));
        lines.extend([
            plain(""),
            vec![piece("stack, the innermost function first", Some(DIM))],
        ]);
        lines.extend(detail.stack.iter().map(|line| plain(format!("  {line}"))));
        lines.extend([
            plain(""),
            vec![piece("last calls, the newest last", Some(DIM))],
        ]);
        lines.extend(detail.calls.iter().map(|line| plain(format!("  {line}"))));
        lines
    }

    fn picture(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for job in &self.jobs {
            lines.push(plain(job_title(job.job, &job.command)));
            lines.push(plain(summary(job)));
            let square = (job.rank.len() as f64).sqrt().ceil() as usize;
            let columns = square.clamp(1, (width.saturating_sub(8) / 2).max(1));
            for row in job.rank.chunks(columns) {
                let mut line = vec![piece(format!("{:>6}  ", row[0].rank), Some(DIM))];
                line.extend(row.iter().map(|rank| {
                    let is_stuck = is_stuck(job, rank.rank);
                    piece(
                        format!("{} ", letter(rank, is_stuck)),
                        Some(color(rank.state, is_stuck)),
                    )
                }));
                lines.push(line);
            }
            lines.push(plain(""));
        }
        lines.push(plain(
            "C computes  w waits  ! is stuck  o outside MPI  s stopped  . starts  - ended  x died",
        ));
        lines
    }

    fn traffic(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for job in &self.jobs {
            lines.push(plain(job_title(job.job, &job.command)));
            let streams = self.streams.get(&job.job);
            let streams = streams.cloned().unwrap_or_default();
            lines.extend(matrix(job.ranks, &streams));
            let mut pairs: Vec<_> = streams.into_iter().collect();
            pairs.sort_by_key(|(_, stream)| u64::MAX - stream.bytes);
            for ((from, to), stream) in pairs.into_iter().take(PAIRS) {
                let messages = stream.messages as f64 / self.streams_s;
                let bytes = size(stream.bytes as f64 / self.streams_s);
                lines.push(plain(format!(
                    "{from:>6} → {to:<6} {messages:>10.1} messages/s {bytes:>12}/s"
                )));
            }
            lines.push(plain(""));
        }
        lines
    }
}

impl Screen for MeshScreen {
    fn look(&mut self) {
        let jobs = self.mesh.look().into_iter();
        self.jobs = jobs
            .filter(|job| self.job.is_none_or(|id| job.job == id))
            .collect();
        self.note_history();
        let most = self.choices().len().saturating_sub(1);
        self.chosen = self.chosen.min(most);
        self.look_closely();
    }

    fn lines(&self, width: usize) -> (Vec<Line>, Option<usize>) {
        if self.jobs.is_empty() && self.page != Page::Keys {
            return (vec![plain("no jobs are running")], None);
        }
        match self.page {
            Page::Ranks => self.ranks(width),
            Page::Detail(job, rank) => (self.detail(job, rank), None),
            Page::Traffic => (self.traffic(), None),
            Page::Picture => (self.picture(width), None),
            Page::Keys => (KEYS.map(plain).into(), None),
        }
    }

    fn help(&self) -> String {
        if let Some(typed) = &self.typed {
            return format!("show only (ranks as 0-3,8 or a word; Enter, Esc): {typed}_");
        }
        if self.page != Page::Ranks {
            return "q quits, Esc back, arrows scroll, ? keys".into();
        }
        let filter = match self.choice.filter.as_str() {
            "" => String::new(),
            filter => format!(", only {filter}"),
        };
        let sort = self.choice.sort.name();
        format!("q quits, Enter looks closer, g groups, s sort: {sort}{filter}, / t m ?")
    }

    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Key {
        if code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
            return Key::Quit;
        }
        if self.typed.is_some() {
            self.key_of_filter(code);
            return Key::Done;
        }
        let on_ranks = self.page == Page::Ranks;
        match code {
            KeyCode::Esc if !on_ranks => self.turn_to(Page::Ranks),
            KeyCode::Esc if !self.choice.filter.is_empty() => self.choice.filter.clear(),
            KeyCode::Char('q') | KeyCode::Esc => return Key::Quit,
            KeyCode::Enter => self.open(),
            KeyCode::Char('g') => self.grouped = Some(!self.is_grouped()),
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Char('t') => self.turn_to(Page::Traffic),
            KeyCode::Char('m') => self.turn_to(Page::Picture),
            KeyCode::Char('?' | 'h') => self.turn_to(Page::Keys),
            KeyCode::Down | KeyCode::Char('j') if on_ranks => self.chosen += 1,
            KeyCode::Up | KeyCode::Char('k') if on_ranks => {
                self.chosen = self.chosen.saturating_sub(1);
            }
            KeyCode::PageDown if on_ranks => self.chosen += 20,
            KeyCode::PageUp if on_ranks => self.chosen = self.chosen.saturating_sub(20),
            _ => return Key::Unknown,
        }
        let most = self.choices().len().saturating_sub(1);
        self.chosen = self.chosen.min(most);
        Key::Done
    }
}

const KEYS: [&str; 10] = [
    "up, down, k, j   choose a line; elsewhere: scroll",
    "Enter            its first rank: stack and last calls",
    "Esc              back; on the first page: all ranks again, then quit",
    "g                ranks that do the same share a line, or each has its own",
    "s                sort by rank, state, cpu, wait, size",
    "/                show only some ranks: 0-3,8, or a word such as waiting or MPI_Recv",
    "t                who sends how much to whom",
    "m                the ranks as a mesh, coloured by state",
    "?                these keys",
    "q                quit",
];

/// Who sends how much to whom as a picture: senders down, receivers across.
fn matrix(ranks: u32, streams: &BTreeMap<(u32, u32), Stream>) -> Vec<Line> {
    const LEVELS: &[u8] = b".:-=+*#%@";
    let block = ranks.div_ceil(BLOCKS as u32).max(1);
    let blocks = ranks.div_ceil(block) as usize;
    let mut sums = vec![vec![0_u64; blocks]; blocks];
    for ((from, to), stream) in streams {
        let sum = &mut sums[(from / block) as usize][(to / block) as usize];
        *sum = sum.saturating_add(stream.bytes.max(1));
    }
    let most = sums.iter().flatten().copied().max().unwrap_or(0).max(1);
    let cell = |sum: u64| match sum {
        0 => ' ',
        sum => {
            let level = (sum as f64 / most as f64 * LEVELS.len() as f64).ceil() as usize;
            char::from(LEVELS[level.clamp(1, LEVELS.len()) - 1])
        }
    };
    let mut lines = vec![plain(match block {
        1 => "senders down, receivers across; @ is the most".to_owned(),
        _ => format!("senders down, receivers across, {block} ranks each; @ is the most"),
    })];
    lines.extend(sums.iter().enumerate().map(|(row, sums)| {
        let cells: String = sums.iter().flat_map(|sum| [' ', cell(*sum)]).collect();
        vec![
            piece(format!("{:>6} |", row as u32 * block), Some(DIM)),
            piece(cells, Some(of_state(State::Computing))),
            piece(" |", Some(DIM)),
        ]
    }));
    lines
}

/// A number of bytes: `3.1 MiB`.
fn size(bytes: f64) -> String {
    let mut bytes = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if bytes < 1024.0 {
            return format!("{bytes:.1} {unit}");
        }
        bytes /= 1024.0;
    }
    format!("{bytes:.1} TiB")
}

fn color(state: State, is_stuck: bool) -> u8 {
    if is_stuck { RED } else { of_state(state) }
}

fn letter(rank: &RankView, is_stuck: bool) -> char {
    match rank.state {
        _ if is_stuck => '!',
        State::Computing => 'C',
        State::Waiting => 'w',
        State::Outside => 'o',
        State::Stopped => 's',
        State::Starting => '.',
        State::Finished => '-',
        State::Failed => 'x',
    }
}

fn piece(text: impl Into<String>, color: Option<u8>) -> Piece {
    Piece {
        text: text.into(),
        color,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh_groups::tests::{job, rank};
    use std::time::Duration;

    fn screen(ranks: u32) -> MeshScreen {
        let options = ViewOptions {
            json: false,
            once: false,
            job: None,
            interval: Duration::from_secs(1),
        };
        let mut screen = MeshScreen::new(&options, Choice::default());
        let peer = |r: u32| r.checked_sub(1);
        screen.jobs = vec![job((0..ranks).map(|r| rank(r, peer(r))).collect())];
        screen.note_history();
        screen
    }

    fn text(screen: &MeshScreen) -> String {
        let (lines, chosen) = screen.lines(80);
        let line = |(at, line): (usize, Line)| {
            let text: String = line.into_iter().map(|piece| piece.text).collect();
            let mark = if chosen == Some(at) { "> " } else { "" };
            format!("{mark}{}\n", text.trim_end())
        };
        lines.into_iter().enumerate().map(line).collect()
    }

    fn press(screen: &mut MeshScreen, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            assert_eq!(screen.key(code, KeyModifiers::NONE), Key::Done, "{key:?}");
        }
    }

    #[test]
    fn many_ranks_share_lines_that_fit() {
        let mut screen = screen(20);
        let shown = text(&screen);
        assert!(shown.contains("20 ranks on 4 cores"), "{shown}");
        assert!(shown.contains("> 0 "), "{shown}");
        assert!(shown.contains("1-19"), "{shown}");
        assert!(shown.contains("MPI_Recv, each for another rank"), "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        press(&mut screen, "g");
        assert!(text(&screen).contains("waiting in MPI_Recv for rank 18, tag 5"));
        press(&mut screen, "jj/3-5\n");
        let shown = text(&screen);
        assert!(
            shown.contains("for rank 4") && !shown.contains("for rank 5"),
            "{shown}"
        );
        press(&mut screen, "/nothing\n");
        assert!(text(&screen).contains("no rank matches \"nothing\""));
        press(&mut screen, "\x1bs");
        assert!(screen.help().contains("sort: state"));
        assert_eq!(screen.key(KeyCode::Esc, KeyModifiers::NONE), Key::Quit);
        assert_eq!(
            screen.key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Key::Quit
        );
    }

    #[test]
    fn pages_show_a_picture_and_who_sends_to_whom() {
        let mut screen = screen(5);
        screen.jobs[0].deadlocks = vec![vec![3, 4]];
        press(&mut screen, "m");
        let shown = text(&screen);
        assert!(shown.contains("     0  C w w\n     3  ! !\n"), "{shown}");
        press(&mut screen, "t");
        let stream = |messages, bytes| Stream { messages, bytes };
        let streams = BTreeMap::from([((0, 4), stream(3, 9 << 20)), ((4, 1), stream(1, 1))]);
        screen.streams.insert(77, streams);
        screen.streams_s = 1.0;
        let shown = text(&screen);
        assert!(shown.contains("     0 |         @ |"), "{shown}");
        assert!(shown.contains("     4 |   ."), "{shown}");
        assert!(
            shown.contains("0 → 4             3.0 messages/s      9.0 MiB/s"),
            "{shown}"
        );
        press(&mut screen, "t?");
        assert!(text(&screen).contains("q                quit"));
        press(&mut screen, "?\n");
        assert!(
            text(&screen).contains("computed at the last looks: █"),
            "{}",
            text(&screen)
        );
        assert!(matrix(1000, &BTreeMap::new()).len() <= BLOCKS + 1);
    }
}
