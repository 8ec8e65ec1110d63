//! Where the ranks of this host are, and what they called last. This is read beside the agent's
//! other work: debug information may take longer than the relay waits for a sign of life.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use margay_job_observe::elsewhere::Asked;
use margay_net_platform::Peers;
use margay_net_shm::SegmentPeers;
use margay_sys_shm::segment::Segment;

use super::wire::{Writer, kind};

/// Calls of a rank that has failed that the relay is sent.
const LAST_CALLS: usize = 20;
/// Ranks of which it is sent them: the first ones are the cause.
const MOST_FAILURES: u32 = 4;

/// A question.
pub(super) struct Question {
    /// None: what a rank that has failed called last, before it is asked for.
    pub(super) number: Option<u64>,
    pub(super) asked: Asked,
    pub(super) ranks: Vec<u32>,
}

/// Questions about the ranks of this host.
#[derive(Default)]
pub(super) struct Looks {
    reader: Option<Reader>,
    /// Questions without an answer.
    open: usize,
    /// Ranks that have failed and whose calls the relay is sent.
    failures: u32,
}

/// The thread that reads, one question after the other: two that read the stack of one rank would
/// be in each other's way. A profile, which lasts, has a thread of its own; it passes over stacks
/// that somebody else reads.
struct Reader {
    questions: Sender<Question>,
    answers: Receiver<Vec<u8>>,
    answered: Sender<Vec<u8>>,
    rings: UnixStream,
    /// A byte comes with each answer.
    bell: UnixStream,
}

impl Reader {
    fn begin(segment: &Arc<Segment>) -> io::Result<Reader> {
        let (bell, mut rings) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (questions, asked) = channel::<Question>();
        let (answered, answers) = channel();
        let reader = Reader {
            questions,
            answers,
            answered: answered.clone(),
            rings: rings.try_clone()?,
            bell,
        };
        let segment = segment.clone();
        let read = move || {
            while let Ok(question) = asked.recv() {
                if !question.answer_to(&segment, &answered, &mut rings) {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(read)?;
        Ok(reader)
    }

    /// Returns whether the question will be answered.
    fn ask(&self, segment: &Arc<Segment>, question: Question) -> bool {
        if question.asked.lasts().is_zero() {
            return self.questions.send(question).is_ok();
        }
        let Ok(mut rings) = self.rings.try_clone() else {
            return false;
        };
        let (segment, answered) = (segment.clone(), self.answered.clone());
        let read = move || {
            question.answer_to(&segment, &answered, &mut rings);
        };
        thread::Builder::new().spawn(read).is_ok()
    }
}

impl Looks {
    /// Asks about ranks of the segment. Without a thread for it nobody is answered.
    pub(super) fn ask(&mut self, segment: &Arc<Segment>, question: Question) {
        if self.reader.is_none() {
            self.reader = Reader::begin(segment).ok();
        }
        if let Some(reader) = &self.reader
            && reader.ask(segment, question)
        {
            self.open += 1;
        }
    }

    /// A rank has failed: the relay is sent what it called last.
    pub(super) fn failed(&mut self, segment: &Arc<Segment>, rank: u32) {
        if self.failures < MOST_FAILURES {
            self.failures += 1;
            let question = Question {
                number: None,
                asked: Asked::Calls(LAST_CALLS),
                ranks: vec![rank],
            };
            self.ask(segment, question);
        }
    }

    /// All questions have been answered.
    pub(super) fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// What becomes readable with an answer.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.bell.as_fd())
    }

    /// Adds the answers that are there to `said`, as messages for the relay.
    pub(super) fn turn(&mut self, said: &mut Vec<u8>) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        let mut bytes = [0; 64];
        while reader.bell.read(&mut bytes).is_ok_and(|n| n > 0) {}
        for answer in reader.answers.try_iter() {
            self.open -= 1;
            said.extend(answer);
        }
    }
}

impl Question {
    /// Returns false when nobody is there for the answer.
    fn answer_to(
        &self,
        segment: &Arc<Segment>,
        answered: &Sender<Vec<u8>>,
        rings: &mut UnixStream,
    ) -> bool {
        let answer = self.answer(&*SegmentPeers::of(segment));
        answered.send(answer).is_ok() && rings.write_all(&[0]).is_ok()
    }

    fn answer(&self, peers: &dyn Peers) -> Vec<u8> {
        let text = self.asked.answer(peers, &self.ranks);
        let mut answer = match (self.number, &self.ranks[..]) {
            (None, &[rank]) => {
                let mut answer = Writer::new(kind::CALLS);
                answer.number(rank.into());
                answer
            }
            (number, _) => {
                let mut answer = Writer::new(kind::PLACES);
                answer.number(number.unwrap_or_default());
                answer
            }
        };
        answer.bytes(text.as_bytes()).done()
    }
}
