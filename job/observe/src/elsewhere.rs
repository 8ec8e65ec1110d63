//! The stacks of ranks on other hosts: those who look at a job ask its launcher, which asks the
//! agents of these hosts.
//!
//! Question: the ranks, parted by blanks. Answers: first how many hosts have been asked, then what
//! each of them [writes](fn@write), in lines: `S rank`, behind it `F` and what is known of a
//! function for each, parted by tabs.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use margay_job_stacks::{Frame, Stack};
use margay_net_platform::Peers;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::Channel;

use crate::places::Places;

/// Hosts that have not answered by then are left out.
const LIMIT: Duration = Duration::from_secs(2);
/// Functions that are passed on of a stack.
const MOST_FRAMES: usize = 64;

/// Where the launcher of the job with this number can be asked on its host.
#[must_use]
pub fn name(id: u64) -> String {
    format!("margay-stacks-{id:016x}")
}

/// Asks for the stacks of some ranks. Those of hosts that do not answer are not there.
pub(crate) fn ask(id: u64, ranks: &[u32]) -> HashMap<u32, Stack> {
    let mut all = HashMap::new();
    let Ok(mut channel) = Channel::connect(&name(id)) else {
        return all;
    };
    let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
    // Anybody could take the name of a job that has no launcher.
    if !channel.is_trusted() || channel.send_now(numbers.join(" ").as_bytes()).is_err() {
        return all;
    }
    let until = Instant::now() + LIMIT;
    let mut missing = None;
    while missing != Some(0) {
        match channel.receive() {
            Ok(Some(text)) => {
                let text = String::from_utf8_lossy(&text);
                missing = match missing {
                    None => text.parse::<u32>().ok(),
                    Some(hosts) => {
                        read(&text, &mut all);
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
    all
}

/// Where ranks of this host are, for a launcher on another one.
#[must_use]
pub fn write(peers: &dyn Peers, ranks: &[u32]) -> String {
    let places = Places::of_ranks(peers, ranks);
    let mut text = String::new();
    for &rank in ranks {
        let Some(Ok(stack)) = places.stack(rank) else {
            continue;
        };
        let _ = writeln!(text, "S\t{rank}");
        for frame in stack.frames.iter().take(MOST_FRAMES) {
            let word = |text: &str| text.replace(|c: char| c.is_control(), "?");
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
    text
}

fn read(text: &str, all: &mut HashMap<u32, Stack>) {
    let mut rank = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["S", number] => {
                rank = number.parse().ok();
                if let Some(rank) = rank {
                    all.insert(rank, Stack::default());
                }
            }
            ["F", function, file, line, module, offset, python] => {
                let Some(stack) = rank.and_then(|rank| all.get_mut(&rank)) else {
                    continue;
                };
                stack.frames.push(Frame {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_read_as_they_were_written() {
        let text = "S\t7\nF\tsolve\tsrc/a.c\t12\t/bin/a\t300\t0\nF\tmain\t\t0\t/bin/a\t5\t1\n\
                    S\t9\nnonsense\nS\tx\nF\tlost\t\t0\t\t0\t0\n";
        let mut all = HashMap::new();
        read(text, &mut all);
        assert_eq!(all.len(), 2);
        let [first, second] = &all[&7].frames[..] else {
            panic!("{all:?}");
        };
        assert_eq!(first.to_string(), "at a.c:12 in solve()");
        assert_eq!((second.line, second.is_python), (None, true));
        assert_eq!(all[&9].frames.len(), 0);
    }
}
