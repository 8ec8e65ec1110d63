//! The stacks and the last calls of ranks on other hosts: those who look at a job ask its launcher,
//! which asks the agents of these hosts.
//!
//! Question: [what is asked](Asked) as a number, and the ranks, parted by blanks. Answers: first
//! how many there will be, then what each host writes, in lines whose words are parted by tabs:
//! stacks are `S rank`, behind it an `F` for each function, or `U rank` and why it cannot be read,
//! and `T rank thread` instead of `S rank` for further threads that wait;
//! calls are `R rank`, behind it a `C` for each, or `E` and why there is none; posts are a `P` for
//! each request that is waited for, a `W` for each thread that waits, of ranks that call from
//! several, and an `M` for each kind of messages sent; a profile is JSON.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use margay_job_stacks::{Frame, Stack};
use margay_net_platform::Peers;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::Channel;

use crate::call_site::Post;
use crate::calls::{CallView, LastCalls, last_calls};
use crate::places::Places;
use crate::posted::{self, Posts, Sent};
use crate::sample;

/// Hosts that have not answered by then are left out.
const LIMIT: Duration = Duration::from_secs(2);
/// Functions that are passed on of a stack.
const MOST_FRAMES: usize = 64;

/// Where the launcher of the job with this number can be asked on its host.
#[must_use]
pub fn name(id: u64) -> String {
    format!("margay-stacks-{id:016x}")
}

/// What is asked about ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Where they are.
    Stacks,
    /// This many of their last calls.
    Calls(usize),
    /// The calls that made the requests that they wait for, and those that sent their messages.
    Posts,
    /// In which functions they run, for so long and with this many looks a second.
    Profile { millis: u16, rate: u16 },
}

impl Asked {
    const POSTS: usize = u32::MAX as usize;
    /// With the rate in the lowest 16 bits, and the time in the next ones.
    const PROFILE: usize = 1 << 40;

    /// As it stands in a question.
    #[must_use]
    pub fn number(self) -> usize {
        match self {
            Asked::Stacks => 0,
            // None is the question for stacks.
            Asked::Calls(most) => most.clamp(1, Asked::POSTS - 1),
            Asked::Posts => Asked::POSTS,
            Asked::Profile { millis, rate } => {
                Asked::PROFILE | usize::from(millis) << 16 | usize::from(rate)
            }
        }
    }

    #[must_use]
    pub fn of_number(number: usize) -> Asked {
        match number {
            0 => Asked::Stacks,
            Asked::POSTS => Asked::Posts,
            profile if profile & Asked::PROFILE != 0 => Asked::Profile {
                millis: (profile >> 16) as u16,
                rate: profile as u16,
            },
            most => Asked::Calls(most),
        }
    }

    /// What a host answers about its ranks.
    #[must_use]
    pub fn answer(self, peers: &dyn Peers, ranks: &[u32]) -> String {
        match self {
            Asked::Stacks => write_stacks(peers, ranks),
            Asked::Calls(most) => write_calls(peers, ranks, most),
            Asked::Posts => write_posts(peers, ranks),
            Asked::Profile { millis, rate } => {
                let within = Duration::from_millis(millis.into());
                sample::answer(peers, ranks, within, rate.into())
            }
        }
    }

    /// How long a host takes for its answer, at least.
    #[must_use]
    pub fn lasts(self) -> Duration {
        match self {
            Asked::Profile { millis, .. } => Duration::from_millis(millis.into()),
            _ => Duration::ZERO,
        }
    }
}

/// Asks for the stacks of some ranks. Those of hosts that do not answer are not there.
pub(crate) fn ask_stacks(id: u64, ranks: &[u32]) -> Places {
    let mut all = Places::default();
    ask(id, Asked::Stacks, ranks, |text| read_stacks(text, &mut all));
    all
}

/// Asks for the last `most` calls of some ranks. Those of hosts that do not answer are not there.
pub(crate) fn ask_calls(id: u64, ranks: &[u32], most: usize) -> HashMap<u32, LastCalls> {
    let mut all = HashMap::new();
    let asked = Asked::Calls(most);
    ask(id, asked, ranks, |text| read_calls(text, &mut all));
    for calls in all.values_mut().flatten() {
        let more = calls.len().saturating_sub(most);
        calls.drain(..more);
    }
    all
}

/// Asks for the calls that made requests and messages of some ranks.
pub(crate) fn ask_posts(id: u64, ranks: &[u32]) -> Posts {
    let mut all = Posts::default();
    ask(id, Asked::Posts, ranks, |text| read_posts(text, &mut all));
    all
}

/// Asks the hosts of some ranks, and reads what each answers in time.
pub(crate) fn ask(id: u64, asked: Asked, ranks: &[u32], mut read: impl FnMut(&str)) {
    let Ok(mut channel) = Channel::connect(&name(id)) else {
        return;
    };
    let mut words = vec![asked.number().to_string()];
    words.extend(ranks.iter().map(u32::to_string));
    // Anybody could take the name of a job that has no launcher.
    if !channel.is_trusted() || channel.send_now(words.join(" ").as_bytes()).is_err() {
        return;
    }
    let until = Instant::now() + asked.lasts() + LIMIT;
    let mut missing = None;
    while missing != Some(0) {
        match channel.receive() {
            Ok(Some(text)) => {
                let text = String::from_utf8_lossy(&text);
                missing = match missing {
                    None => text.parse::<u32>().ok(),
                    Some(hosts) => {
                        read(&text);
                        Some(hosts - 1)
                    }
                };
                if missing.is_none() {
                    break;
                }
            }
            Ok(None) => {
                let left = until.saturating_duration_since(Instant::now());
                let mut poll = PollSet::default();
                poll.add_readable(channel.as_fd());
                if left.is_zero() || poll.wait(Some(left)).is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
}

/// A word between tabs, in a line.
fn word(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

/// Where ranks of this host are, for a launcher on another one.
fn write_stacks(peers: &dyn Peers, ranks: &[u32]) -> String {
    let places = Places::of_ranks(peers, ranks);
    let mut text = String::new();
    for &rank in ranks {
        match places.stack(rank) {
            None => continue,
            Some(Err(why)) => {
                let _ = writeln!(text, "U\t{rank}\t{}", word(why));
            }
            Some(Ok(stack)) => {
                let _ = writeln!(text, "S\t{rank}");
                write_frames(stack, &mut text);
            }
        }
        for (thread, stack) in places.further(rank) {
            let _ = writeln!(text, "T\t{rank}\t{thread}");
            write_frames(stack, &mut text);
        }
    }
    text
}

fn write_frames(stack: &Stack, text: &mut String) {
    for frame in stack.frames.iter().take(MOST_FRAMES) {
        let _ = writeln!(
            text,
            "F\t{}\t{}\t{}\t{}\t{}\t{}",
            word(&frame.function),
            word(frame.file.as_deref().unwrap_or_default()),
            frame.line.unwrap_or_default(),
            word(&frame.module),
            frame.offset,
            u8::from(frame.is_python),
        );
    }
}

fn read_stacks(text: &str, all: &mut Places) {
    // Whose frames come: a rank, and one of its further threads.
    let mut whose = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| words[at].parse::<u32>().ok();
        match words[..] {
            ["S", _] => whose = number(1).map(|rank| (rank, None)),
            ["T", _, _] => {
                let further = number(1).zip(number(2));
                whose = further.map(|(rank, thread)| (rank, Some(thread)));
            }
            ["U", _, why] => {
                if let Some(rank) = number(1) {
                    all.refuse(rank, why);
                }
            }
            ["F", function, file, line, module, offset, python] => {
                let Some((rank, thread)) = whose else {
                    continue;
                };
                all.stack_to_fill(rank, thread).frames.push(Frame {
                    function: function.to_owned(),
                    file: (!file.is_empty()).then(|| file.to_owned()),
                    line: line.parse().ok().filter(|&line| line != 0),
                    module: module.to_owned(),
                    offset: offset.parse().unwrap_or_default(),
                    is_python: python == "1",
                });
            }
            _ => {}
        }
        if let (["S" | "T", ..], Some((rank, thread))) = (&words[..], whose) {
            all.stack_to_fill(rank, thread);
        }
    }
}

/// The last `most` calls of ranks of this host, for a launcher on another one.
fn write_calls(peers: &dyn Peers, ranks: &[u32], most: usize) -> String {
    let mut text = String::new();
    for &rank in ranks {
        let _ = writeln!(text, "R\t{rank}");
        let calls = match last_calls(peers, rank, most) {
            Ok(calls) => calls,
            Err(why) => {
                let _ = writeln!(text, "E\t{}", word(&why));
                continue;
            }
        };
        for call in calls {
            let _ = writeln!(
                text,
                "C\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                word(&call.call),
                word(&call.what),
                word(&call.place),
                word(call.file.as_deref().unwrap_or_default()),
                call.line.unwrap_or_default(),
                call.ago_s,
                call.took_s.map(|took| took.to_string()).unwrap_or_default(),
                call.thread,
            );
        }
    }
    text
}

fn read_calls(text: &str, all: &mut HashMap<u32, LastCalls>) {
    let mut rank = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let calls = rank.and_then(|rank| all.get_mut(&rank));
        match (&words[..], calls) {
            (["R", number], _) => {
                rank = number.parse::<u32>().ok();
                all.extend(rank.map(|rank| (rank, Ok(Vec::new()))));
            }
            (["E", why], Some(calls)) => *calls = Err((*why).to_owned()),
            (["C", call, what, place, file, at, ago_s, took_s, thread], Some(Ok(calls))) => {
                calls.push(CallView {
                    call: (*call).to_owned(),
                    what: (*what).to_owned(),
                    place: (*place).to_owned(),
                    file: (!file.is_empty()).then(|| (*file).to_owned()),
                    line: at.parse().ok().filter(|&line| line != 0),
                    ago_s: ago_s.parse().unwrap_or_default(),
                    took_s: took_s.parse().ok(),
                    thread: thread.parse().unwrap_or_default(),
                });
            }
            _ => {}
        }
    }
}

/// The calls that made the requests that ranks of this host wait for, and those that sent their
/// last messages of each kind.
fn write_posts(peers: &dyn Peers, ranks: &[u32]) -> String {
    let posts = posted::posts_of(peers, ranks);
    let mut text = String::new();
    for (&(rank, site), Post { call, place }) in &posts.requests {
        let (call, place) = (word(call), word(place));
        let _ = writeln!(text, "P\t{rank}\t{site}\t{call}\t{place}");
    }
    for (&(rank, thread), Post { call, place }) in &posts.calls {
        let (call, place) = (word(call), word(place));
        let _ = writeln!(text, "W\t{rank}\t{thread}\t{call}\t{place}");
    }
    for (sent, Post { call, place }) in &posts.sends {
        let Sent {
            from,
            to,
            tag,
            context,
        } = sent;
        let (call, place) = (word(call), word(place));
        let _ = writeln!(text, "M\t{from}\t{to}\t{tag}\t{context}\t{call}\t{place}");
    }
    text
}

fn read_posts(text: &str, all: &mut Posts) {
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| words[at].parse::<u32>().ok();
        let post = |call: &str, place: &str| Post {
            call: call.to_owned(),
            place: place.to_owned(),
        };
        match words[..] {
            ["P", _, site, call, place] => {
                if let (Some(rank), Ok(site)) = (number(1), site.parse()) {
                    all.requests.insert((rank, site), post(call, place));
                }
            }
            ["W", _, _, call, place] => {
                if let (Some(rank), Some(thread)) = (number(1), number(2)) {
                    all.calls.insert((rank, thread), post(call, place));
                }
            }
            ["M", _, _, _, _, call, place] => {
                if let [Some(from), Some(to), Some(tag), Some(context)] = [1, 2, 3, 4].map(number) {
                    let sent = Sent {
                        from,
                        to,
                        tag,
                        context,
                    };
                    all.sends.insert(sent, post(call, place));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_they_were_written() {
        let text = "R\t3\nC\tMPI_Send\tto rank 2\ta.c:7\tsrc/a.c\t7\t0.25\t\t77\n\
                    C\tMPI_Barrier\t\t\t\t0\t0.125\t0.5\t77\nC\tnonsense\nR\t4\nE\tno rings\n";
        let mut all = HashMap::new();
        read_calls(text, &mut all);
        let Ok([send, barrier]) = all[&3].as_deref() else {
            panic!("{all:?}");
        };
        assert_eq!(send.what_and_where(), "MPI_Send to rank 2 at a.c:7");
        assert_eq!((send.ago_s, send.took_s, send.line), (0.25, None, Some(7)));
        assert_eq!((barrier.took_s, barrier.line), (Some(0.5), None));
        assert_eq!(all[&4], Err("no rings".to_owned()));
    }

    #[test]
    fn posts_are_read_as_they_were_written() {
        let text = "P\t3\t7\tMPI_Irecv\ta.c:7\nP\tx\t7\tMPI_Irecv\ta.c:8\n\
                    W\t3\t4711\tMPI_Wait\ta.c:10\nW\tx\t1\tMPI_Wait\ta.c:8\n\
                    M\t1\t3\t4294967295\t2\tMPI_Send\ta.c:9\nM\t1\n";
        let mut all = Posts::default();
        read_posts(text, &mut all);
        let requests: Vec<_> = all
            .requests
            .iter()
            .map(|(at, p)| (*at, &p.place[..]))
            .collect();
        assert_eq!(requests, [((3, 7), "a.c:7")]);
        assert_eq!(all.calls[&(3, 4711)].call, "MPI_Wait");
        assert_eq!(all.calls.len(), 1);
        let sent = Sent {
            from: 1,
            to: 3,
            tag: u32::MAX,
            context: 2,
        };
        assert_eq!(all.sends[&sent].call, "MPI_Send");
        assert_eq!(all.sends.len(), 1);
    }

    #[test]
    fn stacks_are_read_as_they_were_written() {
        let text = "S\t7\nF\tsolve\tsrc/a.c\t12\t/bin/a\t300\t0\nF\tmain\t\t0\t/bin/a\t5\t1\n\
                    T\t7\t99\nF\tlisten\tsrc/a.c\t30\t/bin/a\t400\t0\nT\t7\n\
                    S\t9\nnonsense\nS\tx\nF\tlost\t\t0\t\t0\t0\nU\t4\ta debugger has it\n";
        let mut all = Places::default();
        read_stacks(text, &mut all);
        assert_eq!(all.stack(4), Some(&Err("a debugger has it".to_owned())));
        let [first, second] = &all.stack(7).unwrap().as_ref().unwrap().frames[..] else {
            panic!("not two functions");
        };
        let further: Vec<_> = all.further(7).collect();
        assert_eq!((further.len(), further[0].0), (1, 99));
        assert_eq!(further[0].1.frames[0].to_string(), "at a.c:30 in listen()");
        assert_eq!(first.to_string(), "at a.c:12 in solve()");
        assert_eq!((second.line, second.is_python), (None, true));
        let ninth = all.stack(9).unwrap();
        assert_eq!(ninth.as_ref().unwrap().frames.len(), 0);
    }
}
