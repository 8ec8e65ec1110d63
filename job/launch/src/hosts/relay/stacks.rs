//! Who wants to know where ranks are asks here, on the launcher's host; the agents of the ranks'
//! hosts answer.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};

use margay_job_observe::elsewhere;
use margay_sys_os::port::{Channel, Listener, framed};

use super::super::wire::{Broken, Reader, Writer, kind};

/// Most who ask at a time.
const MOST: usize = 64;
/// Who has this many bytes of the answers still to read does not get the rest.
const MOST_WAITING: usize = 64 << 20;

struct Asking {
    channel: Channel,
    /// What the socket has not taken yet.
    waiting: Vec<u8>,
}

/// Those who ask.
pub(super) struct Stacks {
    /// None where somebody has taken the name: then nobody is answered.
    listener: Option<Listener>,
    open: BTreeMap<u64, Asking>,
    next: u64,
}

impl Stacks {
    pub(super) fn new(job: u64) -> Stacks {
        Stacks {
            listener: Listener::bind(&elsewhere::name(job)).ok(),
            open: BTreeMap::new(),
            next: 0,
        }
    }

    /// What becomes readable when somebody asks.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channels = self.open.values().map(|asking| asking.channel.as_fd());
        self.listener.iter().map(AsFd::as_fd).chain(channels)
    }

    /// What becomes writable when an answer can go on.
    pub(super) fn unread(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let unread = self.open.values().filter(|a| !a.waiting.is_empty());
        unread.map(|asking| asking.channel.as_fd())
    }

    /// Takes in what has been asked: the questions for the hosts. `host_of` gives the host of each
    /// rank.
    pub(super) fn turn(&mut self, host_of: &[u32]) -> Vec<(usize, Vec<u8>)> {
        while let Some(listener) = &self.listener
            && let Ok(Some(channel)) = listener.accept()
        {
            if channel.is_trusted() && self.open.len() < MOST {
                let waiting = Vec::new();
                self.open.insert(self.next, Asking { channel, waiting });
                self.next += 1;
            }
        }
        let mut questions = Vec::new();
        self.open.retain(|&number, asking| {
            loop {
                match asking.channel.receive() {
                    Ok(None) => break,
                    Ok(Some(text)) => {
                        let asked = divided(&text, host_of);
                        let hosts: BTreeSet<u32> = asked.keys().copied().collect();
                        let many = framed(hosts.len().to_string().as_bytes());
                        asking.waiting.extend_from_slice(&many);
                        for (host, ranks) in asked {
                            let mut question = Writer::new(kind::PLACES);
                            question.number(number).number(ranks.len() as u64);
                            for rank in ranks {
                                question.number(rank.into());
                            }
                            questions.push((host as usize, question.done()));
                        }
                    }
                    Err(_) => return false,
                }
            }
            asking.channel.send_on(&mut asking.waiting).is_ok()
        });
        questions
    }

    /// A host has answered.
    pub(super) fn answer(&mut self, mut from: Reader<'_>) -> Result<(), Broken> {
        let (number, text) = (from.number()?, from.bytes()?);
        if let Some(asking) = self.open.get_mut(&number) {
            asking.waiting.extend_from_slice(&framed(text));
            let went = asking.channel.send_on(&mut asking.waiting).is_ok();
            if !went || asking.waiting.len() > MOST_WAITING {
                self.open.remove(&number);
            }
        }
        Ok(())
    }
}

/// The ranks of a question, by host.
fn divided(text: &[u8], host_of: &[u32]) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut asked: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for word in String::from_utf8_lossy(text).split(' ') {
        if let Ok(rank) = word.parse::<u32>()
            && let Some(&host) = host_of.get(rank as usize)
        {
            asked.entry(host).or_default().insert(rank);
        }
    }
    asked
}
