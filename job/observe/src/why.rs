//! Why a job hangs or is slow: classes of ranks that are at the same place and wait for the same,
//! who is late, and what can never go on.

use std::collections::{BTreeMap, BTreeSet};

use margay_job_registry::Jobs;
use margay_job_stacks::Frame;
use margay_net_platform::Peers;
use margay_sys_os::clock::now_ns;
use serde::Serialize;

use crate::asked;
use crate::members::{self, RankTeams};
use crate::mesh::{self, RankView, State};
use crate::operations;
use crate::places::Places;
use crate::posted::Posted;
use crate::waits::rank_ranges;
use crate::words::{further_threads, unexpected_lines};

/// A job. The field names are those of `margay why --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobWhy {
    /// The job's number: the process id of its launcher.
    pub job: u64,
    /// Its command line.
    pub command: String,
    pub ranks: u32,
    pub cores: u32,
    /// Since when it runs, in seconds.
    pub running_s: f64,
    /// What can never go on, in words.
    pub findings: Vec<String>,
    /// Ranks that wait on each other in a circle.
    pub deadlocks: Vec<Vec<u32>>,
    /// Ranks that others wait for while they wait for nobody themselves.
    pub late: Vec<Late>,
    /// The largest first; ranks that have ended last.
    pub classes: Vec<Class>,
    /// What the members of OpenMP's teams do.
    pub teams: Vec<RankTeams>,
    /// Stacks that could not be read, and why.
    pub unread: Vec<Unread>,
    /// Last operations in words: of ranks that wait in a collective operation and can never go on,
    /// and of the others.
    pub operations: Vec<String>,
    /// Messages in words that ranks have that wait, and that they have not asked for.
    pub unexpected: Vec<String>,
    /// A look a little later may tell more.
    #[serde(skip)]
    pub is_unsettled: bool,
}

/// A rank for which others wait, at one remove or several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Late {
    pub rank: u32,
    /// How many ranks wait for it.
    pub waiting_ranks: u32,
    /// How long the first of them has waited, in seconds.
    pub since_s: f64,
}

/// Ranks that do the same at the same place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    pub ranks: Vec<u32>,
    pub state: State,
    /// The MPI call that they are in, or called last; empty before the first.
    pub call: String,
    /// What they wait for, in words; empty when they do not.
    pub waiting: String,
    /// How long the first of them has waited, in seconds.
    pub since_s: Option<f64>,
    /// Of a wait for all others in a collective operation: who is not in it.
    pub missing: Vec<u32>,
    /// The program's own functions, the innermost first; empty when they are not known.
    pub stack: Vec<FrameView>,
    /// That which says where they are, mostly the first; in Python one of Python.
    pub at: Option<FrameView>,
    /// Further threads of each rank that wait.
    pub further: Vec<FurtherThreads>,
}

/// Threads of a rank that wait for the same at the same place, beyond the one that has waited
/// longest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FurtherThreads {
    /// How many each rank of the class has.
    pub threads: usize,
    /// What they wait for, in words.
    pub waiting: String,
    /// How long the first of them has waited, in seconds.
    pub since_s: f64,
    /// As of a class.
    pub stack: Vec<FrameView>,
    /// As of a class.
    pub at: Option<FrameView>,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrameView {
    /// Its name, or program and offset when it has none.
    pub function: String,
    /// The file of its source, as the compiler was given it.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The program or library, by its path.
    pub module: String,
    /// In words: `at mesh.c:88 in smooth()`.
    pub text: String,
    /// Where the function is: `mesh.c:88`, or `of a.out` when no line is known.
    #[serde(skip)]
    pub place: String,
    /// Who calls, of a wait: ` at mesh.c:88`, `, called by smooth() of a.out`.
    #[serde(skip)]
    pub caller: String,
}

/// Ranks whose stacks could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    pub ranks: Vec<u32>,
    pub why: String,
}

/// Looks at the jobs of this machine, or at one of them.
///
/// # Errors
/// When there is no such job, or it is another user's: a text with the remedy.
pub fn look(jobs: &mut Jobs, job: Option<u64>) -> Result<Vec<JobWhy>, String> {
    asked::look(jobs, job, of)
}

/// Looks at a job.
#[must_use]
pub fn of(peers: &dyn Peers) -> JobWhy {
    let posted = Posted::of_ranks(peers, &Vec::from_iter(0..peers.size()));
    let view = mesh::view(peers, now_ns(), |_, _, _| 0.0, &mut |_| None, &posted);
    // Stacks come last: to read one wakes its thread, which runs then, or would if it had a core.
    let places = Places::of(peers);
    let mut unread: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut classes: Vec<(Vec<Frame>, Class)> = Vec::new();
    for rank in &view.rank {
        let number = rank.rank;
        let is_here = rank.pid != 0;
        let frames: Vec<Frame> = match places.stack(number) {
            Some(Ok(stack)) => stack.users_frames().cloned().collect(),
            Some(Err(refused)) if !rank.state.is_over() => {
                unread.entry(refused.clone()).or_default().push(number);
                Vec::new()
            }
            None if !is_here && !rank.state.is_over() => {
                let host = peers.host_name(peers.host(number));
                let why = format!("on host {host}: `margay why` there shows them");
                unread.entry(why).or_default().push(number);
                continue;
            }
            None if peers.reported(number).is_some() && !rank.state.is_over() => {
                let host = peers.host_name(peers.host(number));
                let why = format!("on host {host}: `margay why` there shows where they are");
                unread.entry(why).or_default().push(number);
                Vec::new()
            }
            _ => Vec::new(),
        };
        let further = further(rank, &places);
        let at = places.users(number).map(frame_view);
        enter(&mut classes, rank, (frames, at), further);
    }
    let mut classes: Vec<Class> = classes.into_iter().map(|(_, class)| class).collect();
    for class in &mut classes {
        class.missing = missing(class, &view.rank);
    }
    let size = |c: &Class| (c.state.is_over(), usize::MAX - c.ranks.len());
    classes.sort_by_key(|class| (size(class), class.ranks[0]));
    JobWhy {
        job: view.job,
        command: view.command,
        ranks: view.ranks,
        cores: view.cores,
        running_s: view.running_s,
        late: late(&view.rank, &classes),
        findings: view.findings,
        deadlocks: view.deadlocks,
        classes,
        operations: operations::instead(peers, &view.analysis),
        teams: members::of_ranks(peers),
        unread: (unread.into_iter())
            .map(|(why, ranks)| Unread { ranks, why })
            .collect(),
        unexpected: unexpected_lines(peers, &Vec::from_iter(0..peers.size())),
        is_unsettled: view.is_unsettled,
    }
}

/// The further threads of a rank that wait, those together that do the same.
fn further(rank: &RankView, places: &Places) -> Vec<FurtherThreads> {
    let mut all: Vec<FurtherThreads> = Vec::new();
    for wait in &rank.further_waits {
        let stack = places.further_stack(rank.rank, wait.thread);
        let at = stack.and_then(|stack| stack.users().map(frame_view));
        let stack = stack.map_or_else(Vec::new, |stack| frame_views(stack.users_frames()));
        let same = |of: &&mut FurtherThreads| of.waiting == wait.text && of.stack == stack;
        match all.iter_mut().find(same) {
            Some(of) => of.threads += 1,
            // By their words: when they came differs between ranks that do the same.
            None => {
                let place = all.partition_point(|other| other.waiting <= wait.text);
                let new = FurtherThreads {
                    threads: 1,
                    waiting: wait.text.clone(),
                    since_s: wait.since_s,
                    stack,
                    at,
                };
                all.insert(place, new);
            }
        }
    }
    all
}

fn frame_views<'a>(frames: impl Iterator<Item = &'a Frame>) -> Vec<FrameView> {
    frames.map(frame_view).collect()
}

fn frame_view(frame: &Frame) -> FrameView {
    FrameView {
        function: frame.function_text(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        text: frame.to_string(),
        place: frame.place_text(),
        caller: caller(frame),
    }
}

/// Puts a rank into the class of those that do the same, or into one of its own.
fn enter(
    classes: &mut Vec<(Vec<Frame>, Class)>,
    rank: &RankView,
    (frames, at): (Vec<Frame>, Option<FrameView>),
    further: Vec<FurtherThreads>,
) {
    let waiting = rank.waiting.as_ref();
    let text = waiting.map_or_else(String::new, |w| w.text.clone());
    let since_s = waiting.map(|w| w.since_s);
    // One line has several instructions, and those who compute are at any of them.
    let same_place = |a: &[Frame], b: &[Frame]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| {
                a.function == b.function
                    && a.line == b.line
                    && a.module == b.module
                    && (a.line.is_some() || !a.function.is_empty() || a.offset == b.offset)
            })
    };
    let same = classes.iter_mut().find(|(there, class)| {
        class.state == rank.state
            && class.call == rank.call
            && class.waiting == text
            && same_place(there, &frames)
            && are_alike(&class.further, &further)
    });
    if let Some((_, class)) = same {
        class.ranks.push(rank.rank);
        for (own, more) in class.further.iter_mut().zip(&further) {
            own.since_s = own.since_s.max(more.since_s);
        }
        class.since_s = [class.since_s, since_s]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        return;
    }
    let class = Class {
        ranks: vec![rank.rank],
        state: rank.state,
        call: rank.call.clone(),
        waiting: text,
        since_s,
        missing: Vec::new(),
        stack: frame_views(frames.iter()),
        at,
        further,
    };
    classes.push((frames, class));
}

/// Whether these threads do the same, however long they have.
fn are_alike(one: &[FurtherThreads], other: &[FurtherThreads]) -> bool {
    let same = |(a, b): (&FurtherThreads, &FurtherThreads)| {
        let places = a.stack.iter().zip(&b.stack);
        a.threads == b.threads && a.waiting == b.waiting && a.stack.len() == b.stack.len() && {
            places
        }
        .all(|(a, b)| a.function == b.function && a.line == b.line)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Of ranks that wait in a collective operation for all others, those that are not in it. Which
/// ranks belong to the communicator is not known here, so only few of many are named.
fn missing(class: &Class, ranks: &[RankView]) -> Vec<u32> {
    let Some(own) = ranks[class.ranks[0] as usize].waiting.as_ref() else {
        return Vec::new();
    };
    if own.kind != "collective" || own.rank.is_some() {
        return Vec::new();
    }
    let is_in = |rank: &&RankView| {
        let wait = rank.waiting.as_ref();
        !wait.is_some_and(|w| w.kind == "collective" && w.context == own.context)
    };
    let missing: Vec<u32> = ranks.iter().filter(is_in).map(|rank| rank.rank).collect();
    match missing.len() * 2 <= ranks.len() {
        true => missing,
        false => Vec::new(),
    }
}

/// Follows each wait to a rank that does not wait.
fn late(ranks: &[RankView], classes: &[Class]) -> Vec<Late> {
    let mut missing: BTreeMap<u32, &[u32]> = BTreeMap::new();
    for class in classes {
        missing.extend(class.ranks.iter().map(|&rank| (rank, &class.missing[..])));
    }
    let next = |rank: u32| -> Vec<u32> {
        let wait = ranks.get(rank as usize).and_then(|r| r.waiting.as_ref());
        match wait.and_then(|w| w.rank) {
            Some(peer) => vec![peer],
            None => missing.get(&rank).map_or_else(Vec::new, |m| m.to_vec()),
        }
    };
    let mut found: BTreeMap<u32, Late> = BTreeMap::new();
    for rank in ranks {
        let Some(wait) = &rank.waiting else {
            continue;
        };
        let (mut seen, mut open) = (BTreeSet::from([rank.rank]), next(rank.rank));
        while let Some(at) = open.pop() {
            if !seen.insert(at) {
                continue;
            }
            // What a rank on another host does is not known here.
            let here = ranks.get(at as usize).filter(|rank| rank.pid != 0);
            match here.map(|rank| rank.state) {
                Some(State::Waiting) => open.extend(next(at)),
                Some(State::Computing | State::Outside | State::Stopped | State::Starting) => {
                    let late = found.entry(at).or_insert(Late {
                        rank: at,
                        waiting_ranks: 0,
                        since_s: 0.0,
                    });
                    late.waiting_ranks += 1;
                    late.since_s = late.since_s.max(wait.since_s);
                }
                _ => {}
            }
        }
    }
    let mut late: Vec<Late> = found.into_values().collect();
    late.sort_by_key(|late| (u32::MAX - late.waiting_ranks, late.rank));
    late
}

impl Class {
    /// Returns what the ranks do, in words: `wait in MPI_Recv for rank 1, tag 5 at ring.c:20`.
    #[must_use]
    pub fn text(&self) -> String {
        let one = self.ranks.len() == 1;
        let who = match self.ranks.len() {
            1 => format!("rank {}", self.ranks[0]),
            2 => format!("ranks {}", rank_ranges(&self.ranks)),
            many => format!("{many} ranks ({})", rank_ranges(&self.ranks)),
        };
        let is = if one { "is" } else { "are" };
        let place = self.at.as_ref();
        let at = match (self.state, place) {
            (State::Waiting, Some(frame)) => frame.caller.clone(),
            (state, _) if state.is_over() => String::new(),
            (_, None) => String::new(),
            (_, Some(frame)) => format!(" {}", frame.text),
        };
        let last = match self.call.as_str() {
            "" => String::new(),
            call if one => format!("; its last call was {call}"),
            call => format!("; their last call was {call}"),
        };
        match self.state {
            State::Waiting => {
                let wait = if one { "waits" } else { "wait" };
                let missing = match &self.missing[..] {
                    [] => String::new(),
                    [one] => format!(" (rank {one} is not in it)"),
                    some => format!(" (ranks {} are not in it)", rank_ranges(some)),
                };
                let since = self.since_s.map_or_else(String::new, seconds);
                format!("{who} {wait} in {}{missing}{at}{since}", self.waiting)
            }
            State::Computing => format!("{who} {is} computing{at}{last}"),
            State::Outside => format!("{who} {is} outside MPI and using no CPU{at}{last}"),
            State::Stopped => format!("{who} {is} stopped by a signal{at}{last}"),
            State::Starting => {
                let have = if one { "has" } else { "have" };
                format!("{who} {have} not called MPI_Init{at}")
            }
            State::Finished => format!("{who} {} finished", if one { "has" } else { "have" }),
            State::Failed => format!("{who} {} died{last}", if one { "has" } else { "have" }),
        }
    }
}

/// The place of a wait, whose call says more than the function that called.
fn caller(frame: &Frame) -> String {
    match (frame.line_text(), frame.function.is_empty()) {
        (Some(line), _) => format!(" at {line}"),
        (None, true) => format!(", called at {}", frame.function_text()),
        (None, false) => {
            let (function, module) = (frame.function_text(), frame.module_name());
            format!(", called by {function} of {module}")
        }
    }
}

fn seconds(since_s: f64) -> String {
    format!(", for {since_s:.1} s")
}

impl FurtherThreads {
    /// Returns what they do in words, without indent: a line, and one for each function where there
    /// are several.
    fn lines(&self, ranks: usize) -> Vec<String> {
        let at = (self.at.as_ref()).map_or_else(String::new, |frame| frame.caller.clone());
        let wait = if self.threads == 1 { "waits" } else { "wait" };
        let who = further_threads(self.threads, ranks);
        let since = seconds(self.since_s);
        let mut lines = vec![format!("{who} {wait} in {}{at}{since}", self.waiting)];
        if self.stack.len() > 1 {
            let functions = self.stack.iter();
            lines.extend(functions.map(|f| format!("    {} {}", f.function, f.place)));
        }
        lines
    }
}

impl JobWhy {
    /// Returns the job in words, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.findings.clone();
        // Of what can never go on nobody is late.
        for late in self.late.iter().filter(|_| self.findings.is_empty()) {
            let many = late.waiting_ranks;
            let wait = if many == 1 {
                "rank waits"
            } else {
                "ranks wait"
            };
            lines.push(format!(
                "rank {} is late: {many} {wait} for it{}",
                late.rank,
                seconds(late.since_s)
            ));
        }
        for class in &self.classes {
            lines.push(class.text());
            // One function alone is in the line above.
            let frames = match (class.state, class.stack.len()) {
                (state, _) if state.is_over() => &[],
                (_, 1) => &[],
                _ => &class.stack[..],
            };
            for frame in frames {
                lines.push(format!("    {} {}", frame.function, frame.place));
            }
            let further = (class.further.iter()).flat_map(|of| of.lines(class.ranks.len()));
            lines.extend(further.map(|line| format!("    {line}")));
        }
        lines.extend_from_slice(&self.operations);
        lines.extend(self.teams.iter().flat_map(RankTeams::lines));
        lines.extend_from_slice(&self.unexpected);
        for unread in &self.unread {
            let many = if unread.ranks.len() == 1 { "" } else { "s" };
            let ranks = rank_ranges(&unread.ranks);
            lines.push(format!("no stack of rank{many} {ranks}: {}", unread.why));
        }
        lines
    }
}
