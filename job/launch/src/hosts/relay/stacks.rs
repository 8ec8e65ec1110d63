//! Who wants to know where ranks are, what they called last or what made their requests, asks here,
//! on the launcher's host. The agents of the ranks' hosts answer; what a rank that has failed
//! called last they have said before, for an agent may end with its last rank.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};

use margay_job_observe::elsewhere::{self, Asked};
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
    /// The hosts that have not answered, and the ranks that they have been asked for.
    open: BTreeMap<usize, Question>,
}

/// A question for one host.
struct Question {
    asked: Asked,
    ranks: BTreeSet<u32>,
}

/// Those who ask.
pub(super) struct Stacks {
    /// The last calls of ranks that have failed.
    kept: BTreeMap<u32, Vec<u8>>,
    gone: BTreeSet<usize>,
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
            kept: BTreeMap::new(),
            gone: BTreeSet::new(),
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
                let asking = Asking {
                    channel,
                    waiting: Vec::new(),
                    open: BTreeMap::new(),
                };
                self.open.insert(self.next, asking);
                self.next += 1;
            }
        }
        let mut questions = Vec::new();
        let (kept, gone) = (&self.kept, &self.gone);
        self.open.retain(|&number, asking| {
            loop {
                match asking.channel.receive() {
                    Ok(None) => break,
                    Ok(Some(text)) => {
                        let asked = divided(&text, host_of);
                        let many = framed(asked.len().to_string().as_bytes());
                        asking.waiting.extend_from_slice(&many);
                        for (host, question) in asked {
                            if question.is_answered(kept) || gone.contains(&host) {
                                let answer = framed(&question.answer(kept));
                                asking.waiting.extend_from_slice(&answer);
                                continue;
                            }
                            questions.push((host, question.message(number)));
                            asking.open.insert(host, question);
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
    pub(super) fn answer(&mut self, host: usize, mut from: Reader<'_>) -> Result<(), Broken> {
        let (number, text) = (from.number()?, from.bytes()?);
        if let Some(asking) = self.open.get_mut(&number)
            && asking.open.remove(&host).is_some()
            && !asking.takes(text)
        {
            self.open.remove(&number);
        }
        Ok(())
    }

    /// A host says what a rank called last, which has failed.
    pub(super) fn keep(&mut self, mut from: Reader<'_>) -> Result<(), Broken> {
        let (rank, text) = (from.small()?, from.bytes()?);
        self.kept.insert(rank, text.to_vec());
        Ok(())
    }

    /// A host answers nothing any more: what is known is the answer.
    pub(super) fn end_of_host(&mut self, host: usize) {
        self.gone.insert(host);
        let kept = &self.kept;
        self.open.retain(|_, asking| {
            let question = asking.open.remove(&host);
            question.is_none_or(|question| asking.takes(&question.answer(kept)))
        });
    }
}

impl Asking {
    /// Returns false when who asks is gone, or reads nothing.
    fn takes(&mut self, text: &[u8]) -> bool {
        self.waiting.extend_from_slice(&framed(text));
        let went = self.channel.send_on(&mut self.waiting).is_ok();
        went && self.waiting.len() <= MOST_WAITING
    }
}

impl Question {
    fn message(&self, number: u64) -> Vec<u8> {
        let mut message = Writer::new(kind::PLACES);
        message.number(number).number(self.asked.number() as u64);
        message.number(self.ranks.len() as u64);
        for &rank in &self.ranks {
            message.number(rank.into());
        }
        message.done()
    }

    /// Whether it is known already what all of these ranks called last.
    fn is_answered(&self, kept: &BTreeMap<u32, Vec<u8>>) -> bool {
        matches!(self.asked, Asked::Calls(_))
            && self.ranks.iter().all(|rank| kept.contains_key(rank))
    }

    /// What is known of these ranks.
    fn answer(&self, kept: &BTreeMap<u32, Vec<u8>>) -> Vec<u8> {
        let known = self.ranks.iter().filter_map(|rank| kept.get(rank));
        match self.asked {
            Asked::Calls(_) => known.flatten().copied().collect(),
            Asked::Stacks | Asked::Posts | Asked::Profile { .. } => Vec::new(),
        }
    }
}

/// A question, by host.
fn divided(text: &[u8], host_of: &[u32]) -> BTreeMap<usize, Question> {
    let mut asked = BTreeMap::new();
    let text = String::from_utf8_lossy(text);
    let mut words = text.split(' ');
    let number = words.next().and_then(|word| word.parse().ok());
    let asked_for = Asked::of_number(number.unwrap_or(0));
    for word in words {
        if let Ok(rank) = word.parse::<u32>()
            && let Some(&host) = host_of.get(rank as usize)
        {
            let none = Question {
                asked: asked_for,
                ranks: BTreeSet::new(),
            };
            let question = asked.entry(host as usize).or_insert(none);
            question.ranks.insert(rank);
        }
    }
    asked
}
