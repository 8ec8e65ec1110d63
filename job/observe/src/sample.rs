//! In which functions and lines the ranks of a running job are, by looking at their stacks again
//! and again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use margay_core_registry::Phase;
use margay_job_registry::Jobs;
use margay_job_stacks::{Refused, Sampler, Stack, Thread};
use margay_net_platform::Peers;
use margay_sys_os::process::running_threads;
use serde::{Deserialize, Serialize};

use crate::asked::not_found;
use crate::counted::{self, Counting, RankCounts};
use crate::elsewhere::{self, Asked};
use crate::looks::{self, Answers, HostLooks};
use crate::waits::rank_ranges;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The number of the job; none where there is one only.
    pub job: Option<u64>,
    /// How long to look.
    pub within: Duration,
    /// Looks a second.
    pub rate: u32,
}

/// Ranks on other hosts are asked for so long at a time: who ends a profile earlier waits for the
/// end of that.
const SLICE: Duration = Duration::from_secs(1);

/// What a rank was seen to do, in looks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RankLooks {
    pub rank: u32,
    /// A thread runs, or is ready to.
    pub runs: u64,
    /// None runs, and one waits in a call of the library.
    pub waits: u64,
    /// None runs, outside of the library: files, pipes, sleep.
    pub sleeps: u64,
}

impl RankLooks {
    fn all(&self) -> u64 {
        self.runs + self.waits + self.sleeps
    }
}

/// A call, function or rank with how often it was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Count<T> {
    pub name: T,
    pub samples: u64,
}

/// A line of the program in which ranks run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlaceSamples {
    pub function: String,
    /// `mesh.c:88`, or `of a.out` where no line is known.
    pub place: String,
    /// The function of a library that it has called; empty for its own instructions.
    pub library: String,
    pub samples: u64,
    pub ranks: Vec<Count<u32>>,
}

/// What was seen of a job. The field names are those of `margay profile --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sampled {
    pub job: u64,
    pub command: String,
    pub seconds: f64,
    pub hosts: Vec<HostLooks>,
    pub ranks: Vec<RankLooks>,
    /// The calls in which ranks wait: looks.
    pub waits: Vec<Count<String>>,
    /// Those seen most often first.
    pub places: Vec<PlaceSamples>,
    /// Functions of the program with all that they call.
    pub functions: Vec<Count<String>>,
    /// Stacks that were read.
    pub samples: u64,
    /// Why stacks of ranks could not be read.
    pub unread: Vec<Count<String>>,
    /// What was counted of each rank.
    pub counted: Vec<RankCounts>,
    /// Records of messages that came too fast to be counted.
    pub lost: u64,
    /// Why the counters of the processor are not known.
    pub uncounted: Option<String>,
}

/// While a job is looked at.
#[derive(Default)]
struct Looking {
    looks: u64,
    ranks: BTreeMap<u32, RankLooks>,
    waits: BTreeMap<String, u64>,
    unread: BTreeMap<String, u64>,
    sampler: Sampler,
}

/// Looks at a job until the time is over, all its ranks have finalized or ended, or `ended` says
/// so. Ranks on other hosts are looked at there.
///
/// # Errors
/// When there is no such job, or no rank of it works: a text with the remedy.
pub fn look(wanted: &Wanted, ended: &mut dyn FnMut() -> bool) -> Result<Sampled, String> {
    let mut jobs = Jobs::default();
    let peers = choose(&jobs.look(), wanted.job)?;
    // Of ranks on other hosts the process ids mean nothing here.
    let is_far = |rank: &u32| peers.reported(*rank).is_some();
    let (far, near): (Vec<u32>, Vec<u32>) = (0..peers.size()).partition(is_far);
    let here: Vec<u32> = (near.into_iter())
        .filter(|&rank| peers.identity(rank).pid != 0)
        .collect();
    if here.is_empty() && far.is_empty() {
        return Err("no rank of the job runs yet".to_owned());
    }
    let looks_far = AtomicBool::new(!far.is_empty());
    let (mut sampled, (elsewhere, answers)) = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let all = look_elsewhere(peers, &far, wanted, &looks_far);
            looks_far.store(false, Ordering::Relaxed);
            all
        });
        let sampled = look_here(peers, &here, wanted, &mut || {
            if ended() {
                looks_far.store(false, Ordering::Relaxed);
                return Some(true);
            }
            looks_far.load(Ordering::Relaxed).then_some(false)
        });
        (sampled, others.join().unwrap_or_default())
    });
    for more in elsewhere {
        sampled.add(more);
    }
    let whole = Duration::from_secs_f64(sampled.seconds).max(answers.within);
    let hosts = answers.finish(peers, wanted.rate, whole.min(wanted.within));
    sampled.hosts.extend(hosts);
    Ok(sampled)
}

/// What a host answers of its `ranks`, as JSON.
pub(crate) fn answer(peers: &dyn Peers, ranks: &[u32], within: Duration, rate: u32) -> String {
    let wanted = Wanted {
        job: None,
        within,
        rate,
    };
    let sampled = look_here(peers, ranks, &wanted, &mut || None);
    serde_json::to_string(&sampled).unwrap_or_default()
}

/// Asks the hosts of `ranks` again and again, until the time is over, `goes_on` is false, or no
/// rank works there any more.
fn look_elsewhere(
    peers: &dyn Peers,
    ranks: &[u32],
    wanted: &Wanted,
    goes_on: &AtomicBool,
) -> (Vec<Sampled>, Answers) {
    let began = Instant::now();
    let mut all: Vec<Sampled> = Vec::new();
    let mut answers = Answers::of(peers, ranks);
    while goes_on.load(Ordering::Relaxed) && !ranks.is_empty() {
        let left = wanted.within.saturating_sub(began.elapsed());
        let within = left.min(SLICE);
        if within < Duration::from_millis(1) {
            break;
        }
        let asked = Asked::Profile {
            millis: within.as_millis() as u16,
            rate: wanted.rate.min(u16::MAX.into()) as u16,
        };
        let before = all.len();
        answers.ask(began.elapsed());
        elsewhere::ask(peers.id(), asked, ranks, |text| {
            all.extend(serde_json::from_str::<Sampled>(text).ok());
        });
        for answer in &all[before..] {
            answers.add(peers, &answer.hosts);
        }
        let works = |sampled: &Sampled| sampled.ranks.iter().any(|rank| rank.all() > 0);
        if !all[before..].iter().any(works) {
            break;
        }
    }
    answers.within = began.elapsed().min(wanted.within);
    (all, answers)
}

/// Looks at ranks of this host. `ended` says whether to end, and when nothing is to be seen here,
/// whether to go on all the same.
fn look_here(
    peers: &dyn Peers,
    ranks: &[u32],
    wanted: &Wanted,
    ended: &mut dyn FnMut() -> Option<bool>,
) -> Sampled {
    let mut looking = Looking::default();
    let pause = Duration::from_secs(1) / wanted.rate.max(1);
    let began = Instant::now();
    let mut next = began;
    let mut counting = Counting::of(peers, ranks);
    while began.elapsed() < wanted.within {
        let ends = ended();
        if ends == Some(true) || (!looking.look(peers, ranks) && ends.is_none()) {
            break;
        }
        // Looks for which there was no time are left out.
        let now = Instant::now();
        next = (next + pause).max(now);
        std::thread::sleep(next - now);
        counting.look(peers);
    }
    let seconds = began.elapsed().as_secs_f64();
    let hosts = looking.of_host(peers, ranks, wanted, began.elapsed());
    let (counted, lost, uncounted) = counting.finish(peers);
    Sampled {
        hosts,
        counted,
        lost,
        uncounted,
        ..looking.finish(peers, ranks, seconds)
    }
}

fn choose<'a>(jobs: &[&'a dyn Peers], job: Option<u64>) -> Result<&'a dyn Peers, String> {
    let is_meant = |peers: &&&dyn Peers| job.is_none_or(|job| peers.facts().job == job);
    let mut meant = jobs.iter().filter(is_meant);
    match (meant.next(), meant.next(), job) {
        (Some(only), None, _) => Ok(*only),
        (None, _, Some(job)) => Err(not_found(job)),
        (None, _, None) => Err("no job of yours runs here; mpiexec starts one".to_owned()),
        (Some(_), Some(_), _) => {
            let number = |peers: &&dyn Peers| peers.facts().job.to_string();
            let numbers: Vec<String> = jobs.iter().map(number).collect();
            let numbers = numbers.join(", ");
            Err(format!(
                "several jobs run ({numbers}); say which: margay profile JOB"
            ))
        }
    }
}

impl Looking {
    /// Looks once at each rank. False when none of them works any more.
    fn look(&mut self, peers: &dyn Peers, ranks: &[u32]) -> bool {
        let mut threads = Vec::new();
        let mut works = false;
        for &rank in ranks {
            if peers.phase(rank) == Phase::Finalized || !peers.is_alive(rank) {
                continue;
            }
            works = true;
            let pid = peers.identity(rank).pid;
            let running = running_threads(pid);
            let looks = self.ranks.entry(rank).or_default();
            looks.rank = rank;
            match (running.is_empty(), peers.waits(rank).first()) {
                (false, _) => looks.runs += 1,
                (true, Some(_)) => {
                    looks.waits += 1;
                    *self.waits.entry(peers.call(rank)).or_default() += 1;
                }
                (true, None) => looks.sleeps += 1,
            }
            threads.extend(running.into_iter().map(|tid| Thread { pid, tid }));
        }
        self.looks += u64::from(works);
        for answer in self.sampler.sample(&threads) {
            if let Err(refused) = answer
                && !matches!(refused, Refused::Gone | Refused::Busy)
            {
                *self.unread.entry(refused.to_string()).or_default() += 1;
            }
        }
        works
    }

    /// How often it was looked at the ranks of this host; nothing where none is here.
    fn of_host(
        &self,
        peers: &dyn Peers,
        ranks: &[u32],
        wanted: &Wanted,
        within: Duration,
    ) -> Vec<HostLooks> {
        let looks = |&first: &u32| HostLooks {
            host: peers.host_name(peers.host(first)),
            ranks: ranks.to_vec(),
            looks: self.looks,
            asked: looks::asked(wanted.rate, within.min(wanted.within), self.looks),
            silent_since_s: None,
        };
        ranks.first().map(looks).into_iter().collect()
    }

    fn finish(self, peers: &dyn Peers, ranks: &[u32], seconds: f64) -> Sampled {
        let mut places: BTreeMap<[String; 3], BTreeMap<u32, u64>> = BTreeMap::new();
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        let mut samples = 0;
        for (pid, stack, count) in self.sampler.stacks() {
            let mut all = ranks.iter().copied();
            let Some(rank) = all.find(|&rank| peers.identity(rank).pid == pid) else {
                continue;
            };
            samples += count;
            let of_rank = places.entry(place(&stack)).or_default();
            *of_rank.entry(rank).or_default() += count;
            let mut names: Vec<String> = stack.users_frames().map(|f| f.function_text()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                *functions.entry(name).or_default() += count;
            }
        }
        let facts = peers.facts();
        let place = |([function, place, library], of_rank): ([String; 3], BTreeMap<u32, u64>)| {
            PlaceSamples {
                function,
                place,
                library,
                samples: of_rank.values().sum(),
                ranks: counts(of_rank),
            }
        };
        let mut places: Vec<PlaceSamples> = places.into_iter().map(place).collect();
        places.sort_by_key(|place| u64::MAX - place.samples);
        Sampled {
            job: facts.job,
            command: facts.command,
            seconds,
            hosts: Vec::new(),
            ranks: self.ranks.into_values().collect(),
            waits: counts(self.waits),
            places,
            functions: counts(functions),
            samples,
            unread: counts(self.unread),
            counted: Vec::new(),
            lost: 0,
            uncounted: None,
        }
    }
}

/// As a list, those seen most often first.
fn counts<T>(of: BTreeMap<T, u64>) -> Vec<Count<T>> {
    let count = |(name, samples)| Count { name, samples };
    let mut counts: Vec<Count<T>> = of.into_iter().map(count).collect();
    counts.sort_by_key(|count| u64::MAX - count.samples);
    counts
}

/// Adds counts of the same names, those seen most often first.
fn join<T: Ord>(into: &mut Vec<Count<T>>, more: Vec<Count<T>>) {
    let mut all: BTreeMap<T, u64> = BTreeMap::new();
    for count in into.drain(..).chain(more) {
        *all.entry(count.name).or_default() += count.samples;
    }
    *into = counts(all);
}

impl Sampled {
    /// Adds what was seen of the same job on another host, or at another time.
    fn add(&mut self, more: Sampled) {
        for looks in more.ranks {
            match self.ranks.iter_mut().find(|own| own.rank == looks.rank) {
                Some(own) => {
                    own.runs += looks.runs;
                    own.waits += looks.waits;
                    own.sleeps += looks.sleeps;
                }
                None => self.ranks.push(looks),
            }
        }
        self.ranks.sort_by_key(|looks| looks.rank);
        join(&mut self.waits, more.waits);
        for place in more.places {
            let names = |of: &PlaceSamples| {
                (of.function == place.function)
                    && (of.place == place.place)
                    && (of.library == place.library)
            };
            match self.places.iter_mut().find(|own| names(own)) {
                Some(own) => {
                    own.samples += place.samples;
                    join(&mut own.ranks, place.ranks);
                }
                None => self.places.push(place),
            }
        }
        self.places.sort_by_key(|place| u64::MAX - place.samples);
        join(&mut self.functions, more.functions);
        self.samples += more.samples;
        join(&mut self.unread, more.unread);
        for counts in more.counted {
            match self.counted.iter_mut().find(|own| own.rank == counts.rank) {
                Some(own) => own.add(&counts),
                None => self.counted.push(counts),
            }
        }
        self.counted.sort_by_key(|counts| counts.rank);
        self.lost += more.lost;
        self.uncounted = self.uncounted.take().or(more.uncounted);
    }

    /// As lines of text, of at most 80 columns.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        /// Lines of each part.
        const MOST: usize = 20;
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let mut lines = looks::lines(&self.hosts);
        lines.push(String::new());
        lines.push(format!(
            "{:<24} {:>8} {:>8} {:>8}",
            "RANKS", "RUN %", "WAIT %", "SLEEP %"
        ));
        // Ranks that do about the same share a line.
        let mut groups: BTreeMap<[u64; 3], Vec<&RankLooks>> = BTreeMap::new();
        for looks in &self.ranks {
            let tenth = |part| (share(part, looks.all()) / 10.0).round() as u64;
            let key = [looks.runs, looks.waits, looks.sleeps].map(tenth);
            groups.entry(key).or_default().push(looks);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_unstable_by_key(|group| group[0].rank);
        for group in &groups {
            let ranks: Vec<u32> = group.iter().map(|looks| looks.rank).collect();
            let sum = |of: fn(&RankLooks) -> u64| group.iter().map(|looks| of(looks)).sum();
            let part = |of| share(sum(of), sum(RankLooks::all));
            lines.push(format!(
                "{:<24} {:>8.1} {:>8.1} {:>8.1}",
                cut(&rank_ranges(&ranks), 24),
                part(|looks| looks.runs),
                part(|looks| looks.waits),
                part(|looks| looks.sleeps)
            ));
        }
        lines.push(String::new());
        let counts = |looks: &&RankLooks| self.counted.iter().find(|of| of.rank == looks.rank);
        let counted = groups.iter().map(|group| group.iter().filter_map(counts));
        let counted: Vec<Vec<&RankCounts>> = counted.map(Iterator::collect).collect();
        let counted: Vec<_> = counted.into_iter().filter(|of| !of.is_empty()).collect();
        lines.extend(counted::lines(&counted));
        if self.lost > 0 {
            lines.push(format!(
                "{} records of messages were lost; take a higher --rate",
                self.lost
            ));
        }
        let uncounted = self.uncounted.iter();
        lines.extend(uncounted.map(|why| format!("counters of the processor: {why}")));
        let looks: u64 = self.ranks.iter().map(RankLooks::all).sum();
        if !self.waits.is_empty() {
            lines.push(String::new());
            lines.push(format!("{:<24} {:>8}", "WAITS IN", "%"));
        }
        for Count { name, samples } in self.waits.iter().take(MOST) {
            let part = share(*samples, looks);
            lines.push(format!("{:<24} {part:>8.1}", cut(name, 24)));
        }
        if !self.places.is_empty() {
            lines.push(String::new());
            let [run, at, library] = ["RUNS IN", "AT", "IN LIBRARY"];
            lines.push(format!(
                "{run:<22} {at:<20} {library:<20} {:>5}  RANKS",
                "%"
            ));
        }
        for place in self.places.iter().take(MOST) {
            let mut ranks: Vec<u32> = place.ranks.iter().map(|count| count.name).collect();
            ranks.sort_unstable();
            lines.push(format!(
                "{:<22} {:<20} {:<20} {:>5.1}  {}",
                cut(&place.function, 22),
                cut(&place.place, 20),
                cut(&place.library, 20),
                share(place.samples, self.samples),
                cut(&rank_ranges(&ranks), 9)
            ));
        }
        if !self.functions.is_empty() {
            lines.push(String::new());
            lines.push(format!("{:<40} {:>8}", "FUNCTION WITH ALL IT CALLS", "%"));
        }
        for Count { name, samples } in self.functions.iter().take(MOST) {
            let part = share(*samples, self.samples);
            lines.push(format!("{:<40} {part:>8.1}", cut(name, 40)));
        }
        let unread = self
            .unread
            .iter()
            .map(|why| format!("stacks that were not read: {}", why.name));
        lines.extend(unread);
        lines
    }
}

/// The beginning of a text, with a mark where more follows.
fn cut(text: &str, columns: usize) -> String {
    match text.chars().count() <= columns {
        true => text.to_owned(),
        false => text.chars().take(columns - 1).chain(['…']).collect(),
    }
}

/// Where a stack is: the function and the line of the program, and the function that it calls where
/// that is a library's.
fn place(stack: &Stack) -> [String; 3] {
    let Some(users) = stack.users() else {
        let innermost = stack.frames.first().map(|frame| frame.function_text());
        return [
            "(not in the program)".to_owned(),
            String::new(),
            innermost.unwrap_or_default(),
        ];
    };
    let at = stack.frames.iter().position(|frame| frame == users);
    let inner = at.and_then(|at| stack.frames[..at].last());
    let library = inner.map_or_else(String::new, |frame| match frame.function.as_str() {
        // Not each of its addresses by itself.
        "" => frame.module_name(),
        _ => frame.function_text(),
    });
    [users.function_text(), users.place_text(), library]
}
