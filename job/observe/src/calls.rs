//! The last calls of a rank, from its flight recorder: also of one that is dead.

use std::collections::HashMap;

use margay_core_record::{Clock, KEY, Kind, Reader, Record, moment};
use margay_job_registry::Jobs;
use margay_job_stacks::callers;
use margay_net_platform::Peers;
use margay_sys_os::clock;
use serde::Serialize;

use crate::asked;
use crate::call_site::place;
use crate::elsewhere;

/// The library of `mpiexec -check`, whose own calls are not the program's.
const HOOKS: &str = "/libmargay_check.so.1";

/// A call of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallView {
    /// The function: `MPI_Send`.
    pub call: String,
    /// What it did: `to rank 2, tag 7, 8 bytes`; empty for nothing to say.
    pub what: String,
    /// Where the program called: `ring.c:30`; empty when it is not known.
    pub place: String,
    /// The file of the source and the line.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// How many seconds ago it began.
    pub ago_s: f64,
    /// How long it took, in seconds; null when it has not ended.
    pub took_s: Option<f64>,
    /// The kernel's number of the thread.
    pub thread: u32,
}

impl CallView {
    /// What it does and from where: `MPI_Send to rank 2, tag 7, 8 bytes at ring.c:30`.
    #[must_use]
    pub fn what_and_where(&self) -> String {
        let mut text = self.call.clone();
        if !self.what.is_empty() {
            text += " ";
            text += &self.what;
        }
        if !self.place.is_empty() {
            text += " at ";
            text += &self.place;
        }
        text
    }

    /// As a line: `0.003 s ago  MPI_Send to rank 2, tag 7, 8 bytes at ring.c:30`.
    #[must_use]
    pub fn line(&self) -> String {
        let mut text = format!("{:>9.4} s ago  {}", self.ago_s, self.what_and_where());
        match self.took_s {
            None => text += ", not finished",
            Some(took) if took >= 0.001 => text += &format!(", took {took:.3} s"),
            Some(_) => {}
        }
        text
    }
}

/// The last calls of a rank, the newest last; or why they cannot be read, in words.
pub type LastCalls = Result<Vec<CallView>, String>;

/// The last calls of a job's ranks. The field names are those of `margay why --calls --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobCalls {
    pub job: u64,
    pub command: String,
    pub ranks: Vec<RankCalls>,
}

/// The last calls of a rank, the newest last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankCalls {
    pub rank: u32,
    pub calls: Vec<CallView>,
    /// Why they cannot be read; null when they can.
    pub unread: Option<String>,
}

impl JobCalls {
    /// As lines of text.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.ranks.iter().flat_map(|rank| {
            let head = match (&rank.unread, rank.calls.len()) {
                (Some(why), _) => format!("rank {}: {why}", rank.rank),
                (None, 0) => format!("rank {}: no call is recorded", rank.rank),
                (None, 1) => format!("rank {}: its last call", rank.rank),
                (None, many) => format!("rank {}: its last {many} calls", rank.rank),
            };
            let calls = rank.calls.iter().map(|call| format!("  {}", call.line()));
            [head].into_iter().chain(calls)
        })
    }
}

/// Looks at the last `most` calls of the ranks of all jobs, or of one.
///
/// # Errors
/// When there is no such job, or it is another user's: a text with the remedy.
pub fn of_jobs(jobs: &mut Jobs, job: Option<u64>, most: usize) -> Result<Vec<JobCalls>, String> {
    asked::look(jobs, job, |peers| {
        let is_known = |rank| peers.identity(rank).pid != 0 || peers.reported(rank).is_some();
        let ranks: Vec<u32> = (0..peers.size()).filter(|&rank| is_known(rank)).collect();
        let calls = last_calls_of(peers, &ranks, most);
        let of_rank = |(rank, calls)| match calls {
            Ok(calls) => RankCalls {
                rank,
                calls,
                unread: None,
            },
            Err(why) => RankCalls {
                rank,
                calls: Vec::new(),
                unread: Some(why),
            },
        };
        let facts = peers.facts();
        JobCalls {
            job: facts.job,
            command: facts.command,
            ranks: ranks.into_iter().zip(calls).map(of_rank).collect(),
        }
    })
}

/// Returns the last `most` calls of a rank, the newest last; nothing where no call is recorded.
///
/// # Errors
/// When the recorder cannot be read: why, in words, without the rank.
pub fn last_calls(peers: &dyn Peers, rank: u32, most: usize) -> LastCalls {
    last_calls_of(peers, &[rank], most)
        .pop()
        .unwrap_or_else(|| Ok(Vec::new()))
}

/// As [`last_calls`], of some ranks, in their order: those of other hosts are asked for at once.
#[must_use]
pub fn last_calls_of(peers: &dyn Peers, ranks: &[u32], most: usize) -> Vec<LastCalls> {
    let is_away = |rank: u32| peers.reported(rank).is_some();
    let away: Vec<u32> = ranks.iter().copied().filter(|&r| is_away(r)).collect();
    let mut found = match away.is_empty() {
        true => HashMap::new(),
        false => elsewhere::ask_calls(peers.id(), &away, most),
    };
    let of = |&rank: &u32| match is_away(rank) {
        false => here(peers, rank, most),
        true => found.remove(&rank).unwrap_or_else(|| {
            let host = peers.host_name(peers.host(rank));
            Err(format!("host {host} does not say what its last calls were"))
        }),
    };
    ranks.iter().map(of).collect()
}

fn here(peers: &dyn Peers, rank: u32, most: usize) -> LastCalls {
    let Some(words) = peers.note(rank, KEY) else {
        return Ok(Vec::new());
    };
    let reader = Reader::of(&words).map_err(|damaged| damaged.to_string())?;
    let now = moment(clock::ticks, clock::now_ns);
    let clock = Clock::between(reader.began(), now);
    let mut calls: Vec<(u32, Vec<Record>)> = Vec::new();
    let mut read = Vec::new();
    for (index, lane) in reader.lanes() {
        read.clear();
        reader.records(index, 0, &mut read);
        for (_, record) in read.iter().filter(|(_, record)| record.kind != Kind::Spent) {
            match calls.last_mut() {
                Some((thread, call)) if *thread == lane.thread && record.kind.is_further() => {
                    call.push(*record);
                }
                _ => calls.push((lane.thread, vec![*record])),
            }
        }
    }
    let is_of_hooks = |record: &Record| {
        let site = reader.site(record.site);
        site.is_some_and(|site| site.module.ends_with(HOOKS))
    };
    calls.retain(|(_, call)| !is_of_hooks(&call[0]));
    // What a thread waits in is newer than what it began earlier.
    calls.sort_by_key(|(_, call)| call[0].start);
    let first = calls.len().saturating_sub(most);
    let calls = &calls[first..];
    let sites: Vec<_> = (calls.iter())
        .map(|(_, call)| reader.site(call[0].site).unwrap_or_default())
        .collect();
    let places: Vec<(&str, u64)> = (sites.iter())
        .map(|site| (site.module.as_str(), site.offset))
        .collect();
    let frames = callers(&places);
    let views = calls.iter().zip(&sites).zip(&frames);
    Ok(views
        .map(|(((thread, call), site), frame)| {
            let head = &call[0];
            CallView {
                call: match site.call.as_str() {
                    "" => "a call".to_owned(),
                    name => name.to_owned(),
                },
                what: in_words(call),
                place: place(frame, &site.module),
                file: frame.file.clone(),
                line: frame.line,
                ago_s: now.1.saturating_sub(clock.ns(head.start)) as f64 * 1e-9,
                took_s: head.ticks.map(|ticks| clock.span_ns(ticks) as f64 * 1e-9),
                thread: *thread,
            }
        })
        .collect())
}

/// What a call did, with its further messages.
fn in_words(call: &[Record]) -> String {
    let head = &call[0];
    let text = match call.len() {
        1 => of(head),
        _ if head.kind == Kind::Call => call[1..2].iter().map(of).collect(),
        _ => of(head),
    };
    let shown = 1 + usize::from(head.kind == Kind::Call);
    match call.len().saturating_sub(shown) {
        0 => text,
        1 => format!("{text} and 1 message more"),
        more => format!("{text} and {more} messages more"),
    }
}

fn of(record: &Record) -> String {
    let tag = match record.tag {
        u32::MAX => String::new(),
        tag => format!(", tag {}", tag as i32),
    };
    let bytes = match record.bytes {
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    let peer = |word: &str| match record.peer {
        Some(rank) => format!("{word} rank {rank}"),
        None => format!("{word} any rank"),
    };
    match record.kind {
        Kind::Call | Kind::Threads | Kind::Spent => String::new(),
        Kind::Send | Kind::Sent => format!("{}{tag}, {bytes}", peer("to")),
        Kind::Receive | Kind::Received => format!("{}{tag}, {bytes}", peer("from")),
        Kind::Post | Kind::Posted => format!("{}{tag}", peer("from")),
        Kind::Collective => {
            let root = record.peer.map(|root| format!(", root {root}"));
            format!(
                "of {} ranks{}, {bytes}",
                record.tag,
                root.unwrap_or_default()
            )
        }
        Kind::Total => {
            let with = record.peer.map(|rank| format!(" with rank {rank}"));
            format!(
                "{} times{}, {bytes} in all, in such quick succession that they were only counted",
                record.tag,
                with.unwrap_or_default()
            )
        }
        Kind::Read => format!("{bytes} read"),
        Kind::Write => format!("{bytes} written"),
    }
}
