//! Where the ranks of this host are. Their stacks are read beside the agent's other work: debug
//! information may take longer than the relay waits for a sign of life.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use margay_job_observe::elsewhere;
use margay_net_shm::SegmentPeers;
use margay_sys_shm::segment::Segment;

use super::wire::{Writer, kind};

/// A question: its number, and the ranks.
type Question = (u64, Vec<u32>);

/// The thread that reads stacks, one question after the other: two that read those of one rank
/// would be in each other's way.
pub(super) struct Looks {
    questions: Sender<Question>,
    answers: Receiver<Vec<u8>>,
    /// A byte comes with each answer.
    bell: UnixStream,
}

impl Looks {
    pub(super) fn begin(segment: &Arc<Segment>) -> io::Result<Looks> {
        let (bell, mut rings) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (questions, asked) = channel::<Question>();
        let (answered, answers) = channel();
        let segment = segment.clone();
        let read = move || {
            while let Ok((number, ranks)) = asked.recv() {
                let text = elsewhere::write(&*SegmentPeers::of(&segment), &ranks);
                let mut answer = Writer::new(kind::PLACES);
                let answer = answer.number(number).bytes(text.as_bytes()).done();
                if answered.send(answer).is_err() || rings.write_all(&[0]).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(read)?;
        Ok(Looks {
            questions,
            answers,
            bell,
        })
    }

    pub(super) fn ask(&self, question: Question) {
        // A thread that has ended answers nobody; who asks does not wait for ever.
        let _ = self.questions.send(question);
    }

    /// What becomes readable with an answer.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Adds the answers that are there to `said`, as messages for the relay.
    pub(super) fn turn(&mut self, said: &mut Vec<u8>) {
        let mut bytes = [0; 64];
        while self.bell.read(&mut bytes).is_ok_and(|n| n > 0) {}
        for answer in self.answers.try_iter() {
            said.extend(answer);
        }
    }
}
