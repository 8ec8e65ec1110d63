//! Which lines of the program posted the requests that ranks wait for, and sent the messages that
//! nobody wants: from their flight recorders.

use std::collections::{BTreeSet, HashMap, HashSet};

use margay_core_record::{KEY, Kind, Reader, Site};
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

/// Calls that made requests, by rank and the number of the call site in its recorder, and the last
/// ones that sent messages.
#[derive(Default)]
pub(crate) struct Posts {
    pub requests: HashMap<(u32, u16), Post>,
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
        requests: requests(peers, ranks),
        sends: kinds.into_iter().zip(posts(&sites)).collect(),
    }
}

/// The calls that made requests, by rank and the number of the call site in its recorder.
#[derive(Default)]
pub struct Posted(HashMap<(u32, u16), Post>);

impl Posted {
    /// Reads the call sites of all requests that these ranks wait for.
    #[must_use]
    pub fn of_ranks(peers: &dyn Peers, ranks: &[u32]) -> Posted {
        let is_away = |rank: &u32| peers.reported(*rank).is_some();
        let (away, here): (Vec<u32>, Vec<u32>) = ranks.iter().partition(|rank| is_away(rank));
        let mut found = requests(peers, &here);
        let waits: Vec<u32> = (away.into_iter())
            .filter(|&rank| !awaited_sites(peers, rank).is_empty())
            .collect();
        if !waits.is_empty() {
            found.extend(elsewhere::ask_posts(peers.id(), &waits).requests);
        }
        Posted(found)
    }

    /// The call that made a request of a rank.
    #[must_use]
    pub fn by(&self, rank: u32, site: u16) -> Option<&Post> {
        self.0.get(&(rank, site))
    }
}

/// The call sites of the requests that a rank waits for.
fn awaited_sites(peers: &dyn Peers, rank: u32) -> Vec<u16> {
    let waits = peers.waits(rank).listed;
    let awaited = waits.iter().filter_map(|w| detail(peers, rank, w)?.awaited);
    let sites = awaited.flat_map(|awaited| [awaited.site, awaited.started]);
    sites.filter(|&site| site != 0).collect()
}

fn requests(peers: &dyn Peers, ranks: &[u32]) -> HashMap<(u32, u16), Post> {
    let mut found = Vec::new();
    for &rank in ranks {
        let numbers = awaited_sites(peers, rank);
        if numbers.is_empty() {
            continue;
        }
        let Some(words) = peers.note(rank, KEY) else {
            continue;
        };
        let Ok(reader) = Reader::of(&words) else {
            continue;
        };
        let sites = numbers.iter().filter_map(|&n| Some((n, reader.site(n)?)));
        found.extend(sites.map(|(number, site)| ((rank, number), site)));
    }
    let (keys, sites): (Vec<_>, Vec<Site>) = found.into_iter().unzip();
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
