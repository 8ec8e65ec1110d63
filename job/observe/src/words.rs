//! Waits, messages and states of ranks in words.

use margay_core_registry::detail::{Awaited, Detail, Unexpected};
use margay_core_registry::{Phase, WaitKind, Waiting, call_of};
use margay_net_platform::Peers;

use crate::call_site::Post;
use crate::posted::{Posted, sends};
use crate::state::{Activity, detail, doing};
use crate::waits::Doing;

/// The most messages that nobody has asked for that are listed of a job, a line each.
const MOST_LINES: usize = 16;

/// Returns what a rank waits for in words, with the lines that `posted` knows.
#[must_use]
pub fn wait_in_words(peers: &dyn Peers, posted: &Posted, rank: u32, waiting: &Waiting) -> String {
    let detail = detail(peers, rank, waiting);
    let awaited = detail.and_then(|detail| detail.awaited);
    let post = |site| posted.by(rank, site);
    // The registry has the last call of any thread of the rank.
    let recorded = posted.call(rank, waiting.thread);
    let call = recorded.map_or_else(|| peers.call(rank), |post| post.call.clone());
    describe(&call, waiting, awaited.as_ref(), &post)
}

/// Returns the messages in words that ranks have that wait, and that they have not asked for.
#[must_use]
pub fn unexpected_lines(peers: &dyn Peers, ranks: &[u32]) -> Vec<String> {
    let details = |&rank: &u32| {
        let waits = peers.waits(rank).listed.into_iter();
        waits.filter_map(move |waiting| Some((rank, waiting, detail(peers, rank, &waiting)?)))
    };
    let details: Vec<(u32, Waiting, Detail)> = ranks.iter().flat_map(details).collect();
    // Those beyond are not shown.
    let messages = (details.iter()).flat_map(|(rank, _, detail)| {
        let of_rank = detail.unexpected.iter();
        of_rank.map(|message| (*rank, *message))
    });
    let messages: Vec<_> = messages.take(MOST_LINES).collect();
    let mut sent = sends(peers, &messages).into_iter();
    let lines = details.iter().flat_map(|(rank, waiting, detail)| {
        let count = detail.unexpected.len();
        let sent: Vec<_> = sent.by_ref().take(count).collect();
        lines_of_rank(*rank, waiting, detail, &sent)
    });
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!("and {more} lines more of such messages"));
    }
    lines
}

/// Returns the state of a rank in words, without times, so that ranks in the same state can be
/// grouped.
#[must_use]
pub fn state_in_words(peers: &dyn Peers, posted: &Posted, rank: u32, now_ns: u64) -> String {
    let call = peers.call(rank);
    let last = match peers.phase(rank) {
        Phase::Starting if peers.has_exited(rank) => {
            return "ended without calling MPI_Init".into();
        }
        Phase::Starting => ", has not called MPI_Init".into(),
        _ if call.is_empty() => String::new(),
        _ => format!(", last MPI call {call}"),
    };
    let activity = || Activity::of_rank(peers, rank);
    match doing(peers, rank, now_ns) {
        Doing::Finished => "finished".into(),
        Doing::Waiting(waits) => {
            let wait = wait_in_words(peers, posted, rank, &waits.first().0);
            match activity() {
                Activity::Stopped => format!("stopped by a signal while it waited in {wait}"),
                _ => format!("waiting in {wait}"),
            }
        }
        Doing::Running => match activity() {
            Activity::Stopped => format!("stopped by a signal{last}"),
            Activity::Asleep => format!("outside MPI and using no CPU{last}"),
            Activity::Active => format!("computing{last}"),
        },
    }
}

/// What a further thread of a rank waits in: its kernel's number, and the wait in words.
#[must_use]
pub fn further_waits_in_words(
    peers: &dyn Peers,
    posted: &Posted,
    rank: u32,
    now_ns: u64,
) -> Vec<(u32, String)> {
    let Doing::Waiting(waits) = doing(peers, rank, now_ns) else {
        return Vec::new();
    };
    let words = |(waiting, _): &(Waiting, f64)| {
        let wait = wait_in_words(peers, posted, rank, waiting);
        (waiting.thread, format!("waiting in {wait}"))
    };
    waits.further().iter().map(words).collect()
}

/// How many further threads of these ranks do the same, in words: `another thread`,
/// `2 other threads of each`.
#[must_use]
pub fn further_threads(threads: usize, ranks: usize) -> String {
    let each = if ranks == 1 { "" } else { " of each" };
    match threads {
        1 => format!("another thread{each}"),
        many => format!("{many} other threads{each}"),
    }
}

/// Returns what a waiting rank waits for, in words: `MPI_Recv for rank 1, tag 5`, and
/// `MPI_Waitall for rank 1, tag 5 (MPI_Irecv at ring.c:12, request 1 of 2)` where the request is
/// known.
fn describe<'a>(
    call: &str,
    waiting: &Waiting,
    awaited: Option<&Awaited>,
    post: &dyn Fn(u16) -> Option<&'a Post>,
) -> String {
    let whom = match (waiting.kind, waiting.peer) {
        (WaitKind::Receive, Some(p)) => format!("for rank {p}"),
        (WaitKind::Receive, None) => "for any rank".into(),
        (WaitKind::Send, Some(p)) => format!("until rank {p} takes its message"),
        (WaitKind::Send, None) => "until its message is taken".into(),
        (WaitKind::FullSend, p) => {
            let whom = p.map_or("its receiver".into(), |p| format!("rank {p}"));
            format!("until {whom} takes its message (no room to send ahead: MARGAY_SEND_BUFFER)")
        }
        (WaitKind::Collective, Some(p)) => format!("for rank {p}"),
        (WaitKind::Collective, None) => "for the other ranks".into(),
        (WaitKind::Several, Some(p)) => format!("for one of several requests, among them rank {p}"),
        (WaitKind::Several, None) => "for one of several requests".into(),
        (WaitKind::Elsewhere, _) => "for another job or a thread of the program".into(),
    };
    let call = if call.is_empty() { "the library" } else { call };
    let tag = (waiting.tag).map_or_else(String::new, |tag| format!(", tag {tag}"));
    let communicator = match waiting.context >> 1 {
        // Those of other libraries are no communicators.
        _ if !call.starts_with("MPI") || waiting.context > i32::MAX as u32 => String::new(),
        0 => String::new(),
        1 => ", MPI_COMM_SELF".to_owned(),
        number => format!(", communicator {number}"),
    };
    let by = awaited.map_or_else(String::new, |awaited| {
        let (number, total) = (u64::from(awaited.index) + 1, awaited.total);
        let place = match total {
            0 | 1 => String::new(),
            _ => format!(", request {number} of {total}"),
        };
        format!(" ({}{place})", operation(awaited, post))
    });
    format!("{call} {whom}{tag}{communicator}{by}")
}

/// A request's operation in words: `MPI_Ibcast with root 0 at ring.c:12`.
fn operation<'a>(awaited: &Awaited, post: &dyn Fn(u16) -> Option<&'a Post>) -> String {
    let made = post(awaited.site);
    let mut text = match made {
        // It is more precise about receives, which the library names alike.
        Some(post) if !post.call.is_empty() => post.call.clone(),
        _ => call_of(awaited.made_by),
    };
    if let Some(root) = awaited.root {
        text += &format!(" with root {root}");
    }
    for (how, post) in [("", made), (", started", post(awaited.started))] {
        if let Some(post) = post.filter(|post| !post.place.is_empty()) {
            text += &format!("{how} at {}", post.place);
        }
    }
    text
}

/// Returns the messages that have come to a rank that waits and that it has not asked for, a line
/// for each kind; `sent` are the calls that have sent them, where these are known.
fn lines_of_rank(
    rank: u32,
    waiting: &Waiting,
    detail: &Detail,
    sent: &[Option<Post>],
) -> Vec<String> {
    let line = |(at, kind): (usize, &Unexpected)| {
        let Unexpected {
            from,
            tag,
            context,
            messages,
        } = *kind;
        let many = if messages == 1 { "message" } else { "messages" };
        let send = match sent.get(at).and_then(Option::as_ref) {
            Some(Post { call, place }) if place.is_empty() => format!(" ({call})"),
            Some(Post { call, place }) => format!(" ({call} at {place})"),
            None => String::new(),
        };
        let receives = waiting.kind == WaitKind::Receive && waiting.peer.is_none_or(|p| p == from);
        let instead = match waiting.tag {
            _ if !receives => String::new(),
            _ if context != waiting.context => {
                "; it waits for one on another communicator".to_owned()
            }
            Some(wanted) if wanted != tag => format!("; it waits for tag {wanted}"),
            _ => String::new(),
        };
        format!(
            "rank {rank} has {messages} {many} from rank {from} with tag {tag}{send} that no receive matches{instead}"
        )
    };
    let mut lines: Vec<String> = detail.unexpected.iter().enumerate().map(line).collect();
    if detail.more > 0 {
        lines.push(format!(
            "rank {rank} has {} further messages that no receive matches",
            detail.more
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_registry::{Pulse, call_name};

    #[test]
    fn waits_and_messages_in_words() {
        let waiting = Waiting {
            thread: 1,
            kind: WaitKind::Receive,
            peer: Some(1),
            tag: Some(5),
            context: 0,
            since_ns: 0,
            pulse: Pulse::default(),
        };
        assert_eq!(
            describe("MPI_Recv", &waiting, None, &|_| None),
            "MPI_Recv for rank 1, tag 5"
        );
        let awaited = |total| Awaited {
            made_by: call_name("MPI_Irecv"),
            site: 3,
            started: 0,
            root: None,
            index: 1,
            total,
        };
        assert_eq!(
            describe("MPI_Wait", &waiting, Some(&awaited(1)), &|_| None),
            "MPI_Wait for rank 1, tag 5 (MPI_Irecv)"
        );
        let post = Post {
            call: "MPI_Imrecv".into(),
            place: "ring.c:12".into(),
        };
        let start = Post {
            call: "MPI_Start".into(),
            place: "ring.c:15".into(),
        };
        let post = |site| [None, Some(&start), None, Some(&post)][usize::from(site)];
        let rooted = Awaited {
            root: Some(3),
            started: 1,
            ..awaited(2)
        };
        let other = Waiting {
            context: 14,
            ..waiting
        };
        assert_eq!(
            describe("MPI_Waitall", &other, Some(&rooted), &post),
            "MPI_Waitall for rank 1, tag 5, communicator 7 (MPI_Imrecv with root 3 at ring.c:12, started at ring.c:15, request 2 of 2)"
        );
        let own = Waiting {
            context: 3,
            tag: None,
            ..waiting
        };
        assert_eq!(
            describe("MPI_Recv", &own, None, &|_| None),
            "MPI_Recv for rank 1, MPI_COMM_SELF"
        );
        let unexpected = |tag, context, messages| Unexpected {
            from: 1,
            tag,
            context,
            messages,
        };
        let detail = Detail {
            awaited: None,
            unexpected: vec![unexpected(8, 0, 1), unexpected(5, 2, 2)],
            more: 3,
        };
        assert_eq!(
            lines_of_rank(
                0,
                &waiting,
                &detail,
                &[None, Some(post(3).unwrap().clone())]
            ),
            [
                "rank 0 has 1 message from rank 1 with tag 8 that no receive matches; it waits for tag 5",
                "rank 0 has 2 messages from rank 1 with tag 5 (MPI_Imrecv at ring.c:12) that no receive matches; it waits for one on another communicator",
                "rank 0 has 3 further messages that no receive matches",
            ]
        );
    }
}
