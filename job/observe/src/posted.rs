//! Which lines of the program posted the requests that ranks wait for, and sent the messages that
//! nobody wants: from their flight recorders.

use std::collections::HashMap;

use margay_core_record::{KEY, Kind, Reader, Site};
use margay_core_registry::detail::Unexpected;
use margay_job_stacks::callers;
use margay_net_platform::Peers;

use crate::call_site::{Post, place};
use crate::state::detail;

/// The calls that made requests, by rank and the number of the call site in its recorder.
#[derive(Default)]
pub struct Posted(HashMap<(u32, u16), Post>);

impl Posted {
    /// Reads the call sites of all requests that these ranks wait for.
    #[must_use]
    pub fn of_ranks(peers: &dyn Peers, ranks: &[u32]) -> Posted {
        let mut found = Vec::new();
        for &rank in ranks {
            let waits = peers.waits(rank).listed;
            let awaited = waits.iter().filter_map(|w| detail(peers, rank, w)?.awaited);
            let sites = awaited.flat_map(|awaited| [awaited.site, awaited.started]);
            let numbers: Vec<u16> = sites.filter(|&site| site != 0).collect();
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
        Posted(keys.into_iter().zip(posts(&sites)).collect())
    }

    /// The call that made a request of a rank.
    #[must_use]
    pub fn by(&self, rank: u32, site: u16) -> Option<&Post> {
        self.0.get(&(rank, site))
    }
}

/// Finds the calls that have sent messages which are here and that no receive matches, each with
/// the rank that has it; None where it is not known, because its sender has made many calls since.
pub(crate) fn sends(peers: &dyn Peers, unexpected: &[(u32, Unexpected)]) -> Vec<Option<Post>> {
    let mut sites = Vec::new();
    let numbers: Vec<Option<usize>> = (unexpected.iter())
        .map(|(rank, message)| {
            sites.push(send(peers, *rank, message)?);
            Some(sites.len() - 1)
        })
        .collect();
    let posts = posts(&sites);
    let post = |number: Option<usize>| Some(posts[number?].clone());
    numbers.into_iter().map(post).collect()
}

/// The call site of the last message of that kind that its sender has sent to a rank.
fn send(peers: &dyn Peers, rank: u32, message: &Unexpected) -> Option<Site> {
    let words = peers.note(message.from, KEY)?;
    let reader = Reader::of(&words).ok()?;
    let mut last: Option<(u64, u16)> = None;
    let mut records = Vec::new();
    for (lane, _) in reader.lanes() {
        records.clear();
        reader.records(lane, 0, &mut records);
        let mut site = 0;
        for (_, record) in &records {
            if !record.kind.is_further() {
                site = record.site;
            }
            let is_it = matches!(record.kind, Kind::Send | Kind::Sent)
                && record.peer == Some(rank)
                && record.tag == message.tag as u32
                && record.context == message.context & 0xff_ffff;
            if is_it && last.is_none_or(|(start, _)| start <= record.start) {
                last = Some((record.start, site));
            }
        }
    }
    reader.site(last?.1)
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
