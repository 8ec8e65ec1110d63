//! Which lines of the program posted the requests that ranks wait for, and sent the messages that
//! nobody wants, and in which calls their threads wait: from their flight recorders.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use margay_core_record::{KEY, Kind, Lane, Reader, Record, Site};
use margay_core_registry::Waiting;
use margay_core_registry::detail::Unexpected;
use margay_job_stacks::callers;
use margay_net_platform::Peers;

use crate::call_site::{Post, place};
use crate::elsewhere;
use crate::state::detail;

/// Kinds of messages of a rank whose senders are looked for: the last ones.
const MOST_SENDS: usize = 256;

/// Messages of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pub from: u32,
    pub to: u32,
    pub tag: u32,
    /// The lowest 24 bits: recorders have those.
    pub context: u32,
}

impl Sent {
    fn of(rank: u32, message: &Unexpected) -> Sent {
        Sent {
            from: message.from,
            to: rank,
            tag: message.tag as u32,
            context: message.context & 0xff_ffff,
        }
    }
}

/// Calls of ranks, from their recorders.
#[derive(Default)]
pub(crate) struct Posts {
    /// Those that made requests, by rank and the number of the call site in its recorder.
    pub requests: HashMap<(u32, u16), Post>,
    /// Those in which threads wait, by rank and the kernel's number of the thread; of ranks that
    /// have called from several threads.
    pub calls: HashMap<(u32, u32), Post>,
    /// The last ones that sent messages.
    pub sends: HashMap<Sent, Post>,
}

/// Those of ranks of this host.
pub(crate) fn posts_of(peers: &dyn Peers, ranks: &[u32]) -> Posts {
    let mut sent: Vec<(Sent, Site)> = Vec::new();
    for &rank in ranks {
        sent.extend(last_sends(peers, rank));
    }
    let (kinds, sites): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    Posts {
        sends: kinds.into_iter().zip(posts(&sites)).collect(),
        ..awaited_posts(peers, ranks)
    }
}

/// The calls that made the requests for which ranks wait, and those in which their threads do.
#[derive(Default)]
pub struct Posted(Posts);

impl Posted {
    /// Reads the call sites of all requests that these ranks wait for, and of the calls in which
    /// their threads wait.
    #[must_use]
    pub fn of_ranks(peers: &dyn Peers, ranks: &[u32]) -> Posted {
        let is_away = |rank: &u32| peers.reported(*rank).is_some();
        let (away, here): (Vec<u32>, Vec<u32>) = ranks.iter().partition(|rank| is_away(rank));
        let mut found = awaited_posts(peers, &here);
        let has_more = |rank| peers.waits(rank).listed.len() > 1;
        let waits: Vec<u32> = (away.into_iter())
            .filter(|&rank| has_more(rank) || !awaited_sites(peers, rank).is_empty())
            .collect();
        if !waits.is_empty() {
            let more = elsewhere::ask_posts(peers.id(), &waits);
            found.requests.extend(more.requests);
            found.calls.extend(more.calls);
        }
        Posted(found)
    }

    /// The call that made a request of a rank.
    #[must_use]
    pub fn by(&self, rank: u32, site: u16) -> Option<&Post> {
        self.0.requests.get(&(rank, site))
    }

    /// The call in which a thread of a rank waits. None where the rank has one thread that calls,
    /// whose call the registry has, or where it is not recorded.
    #[must_use]
    pub fn call(&self, rank: u32, thread: u32) -> Option<&Post> {
        self.0.calls.get(&(rank, thread))
    }
}

/// The call sites of the requests that a rank waits for.
fn awaited_sites(peers: &dyn Peers, rank: u32) -> Vec<u16> {
    let waits = peers.waits(rank).listed;
    let awaited = waits.iter().filter_map(|w| detail(peers, rank, w)?.awaited);
    let sites = awaited.flat_map(|awaited| [awaited.site, awaited.started]);
    sites.filter(|&site| site != 0).collect()
}

/// Of ranks of this host: the calls that made the requests for which they wait, and those in which
/// their threads wait.
fn awaited_posts(peers: &dyn Peers, ranks: &[u32]) -> Posts {
    let (mut made, mut calls) = (Vec::new(), Vec::new());
    for &rank in ranks {
        let waits = peers.waits(rank).listed;
        if waits.is_empty() {
            continue;
        }
        let Some(words) = peers.note(rank, KEY) else {
            continue;
        };
        let Ok(reader) = Reader::of(&words) else {
            continue;
        };
        let numbers = awaited_sites(peers, rank);
        let sites = numbers.iter().filter_map(|&n| Some((n, reader.site(n)?)));
        made.extend(sites.map(|(number, site)| ((rank, number), site)));
        if reader.lanes().count() > 1 {
            let open = |wait: &Waiting| Some(((rank, wait.thread), open_call(&reader, wait)?));
            calls.extend(waits.iter().filter_map(open));
        }
    }
    Posts {
        requests: with_lines(made),
        calls: with_lines(calls),
        sends: HashMap::new(),
    }
}

/// The call site of the call that a thread has begun last and not ended. None where the thread
/// calls so often that its calls are only counted.
fn open_call(reader: &Reader, waiting: &Waiting) -> Option<Site> {
    let is_its = |(_, lane): &(usize, Lane)| lane.thread == waiting.thread;
    // The kernel may have given the number of a thread that has ended to another one.
    let (lane, _) = reader.lanes().filter(is_its).last()?;
    let mut records = Vec::new();
    reader.records(lane, 0, &mut records);
    let is_open = |record: &Record| !record.kind.is_further() && record.ticks.is_none();
    let (_, open) = records.iter().rfind(|(_, record)| is_open(record))?;
    reader.site(open.site)
}

fn with_lines<K: Eq + Hash>(sites: Vec<(K, Site)>) -> HashMap<K, Post> {
    let (keys, sites): (Vec<K>, Vec<Site>) = sites.into_iter().unzip();
    keys.into_iter().zip(posts(&sites)).collect()
}

/// Finds the calls that have sent messages which are here and that no receive matches, each with
/// the rank that has it; None where it is not known, because its sender has made many calls since.
pub(crate) fn sends(peers: &dyn Peers, unexpected: &[(u32, Unexpected)]) -> Vec<Option<Post>> {
    let kinds = || (unexpected.iter()).map(|(rank, message)| Sent::of(*rank, message));
    let senders: BTreeSet<u32> = kinds().map(|sent| sent.from).collect();
    let is_away = |rank: &u32| peers.reported(*rank).is_some();
    let (away, here): (Vec<u32>, Vec<u32>) = senders.into_iter().partition(is_away);
    let mut found = match away.is_empty() {
        true => HashMap::new(),
        false => elsewhere::ask_posts(peers.id(), &away).sends,
    };
    let wanted: HashSet<Sent> = kinds().collect();
    let sent = here.iter().flat_map(|&rank| last_sends(peers, rank));
    let (kinds_here, sites): (Vec<_>, Vec<_>) =
        sent.filter(|(sent, _)| wanted.contains(sent)).unzip();
    found.extend(kinds_here.into_iter().zip(posts(&sites)));
    kinds().map(|sent| found.get(&sent).cloned()).collect()
}

/// The call sites of the last message of each kind that a rank has sent.
fn last_sends(peers: &dyn Peers, rank: u32) -> Vec<(Sent, Site)> {
    let Some(words) = peers.note(rank, KEY) else {
        return Vec::new();
    };
    let Ok(reader) = Reader::of(&words) else {
        return Vec::new();
    };
    let mut last: HashMap<Sent, (u64, u16)> = HashMap::new();
    let mut records = Vec::new();
    for (lane, _) in reader.lanes() {
        records.clear();
        reader.records(lane, 0, &mut records);
        let mut site = 0;
        for (_, record) in &records {
            if !record.kind.is_further() {
                site = record.site;
            }
            let (Kind::Send | Kind::Sent, Some(to)) = (record.kind, record.peer) else {
                continue;
            };
            let sent = Sent {
                from: rank,
                to,
                tag: record.tag,
                context: record.context,
            };
            let newest = last.entry(sent).or_insert((record.start, site));
            *newest = (*newest).max((record.start, site));
        }
    }
    let mut last: Vec<_> = last.into_iter().collect();
    last.sort_unstable_by_key(|(_, (start, _))| u64::MAX - start);
    last.truncate(MOST_SENDS);
    let with_site = |(sent, (_, site))| Some((sent, reader.site(site)?));
    last.into_iter().filter_map(with_site).collect()
}

/// Call sites with their lines.
fn posts(sites: &[Site]) -> Vec<Post> {
    let places: Vec<(&str, u64)> = (sites.iter())
        .map(|site| (site.module.as_str(), site.offset))
        .collect();
    let frames = callers(&places);
    let posts = sites.iter().zip(&frames).map(|(site, frame)| Post {
        call: site.call.clone(),
        place: match is_extension(&site.module) && frame.line.is_none() {
            true => String::new(),
            false => place(frame, &site.module),
        },
    });
    posts.collect()
}

/// Whether a library is an extension of Python, whose functions say nothing about the program that
/// calls them.
fn is_extension(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.contains(".cpython-") || name.ends_with(".abi3.so")
}
