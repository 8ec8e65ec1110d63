//! The attempts of a rank to reach others, and how long each may take.

use std::sync::atomic::Ordering;

use crate::connect::{ECONNREFUSED, ETIMEDOUT, Reached};
use crate::link::Link;
use crate::seal::Seals;
use crate::{ATTEMPT_NS, AWAY_NS, CHECK_NS, GIVE_UP_NS, HELD_NS, PAUSE_NS, State, Tcp};

impl Tcp {
    /// Goes on with the attempts to reach others.
    pub(crate) fn advance_attempts(&mut self) -> bool {
        let now = self.clock.now_ns();
        self.leave_out_time_away(now);
        let mut any = false;
        for rank in std::mem::take(&mut self.trying) {
            let peer = &mut self.peers[rank as usize];
            let (pause, errno) = match &mut peer.state {
                State::Trying(attempt) => {
                    let began = attempt.began_ns;
                    match attempt.advance(&self.secret, &self.epoll, Tcp::token(rank)) {
                        Reached::NotYet if attempt.is_taken() || now - began < ATTEMPT_NS => {
                            if attempt.is_taken() && now - began >= HELD_NS {
                                peer.failing_ns = 0;
                            }
                            let is_due = now - peer.since_ns >= GIVE_UP_NS
                                && now - peer.reported_ns >= CHECK_NS;
                            if let Some(on_unanswered) = &self.on_unanswered
                                && attempt.is_taken()
                                && is_due
                            {
                                peer.reported_ns = now;
                                on_unanswered(rank);
                            }
                            self.trying.push(rank);
                            continue;
                        }
                        Reached::Up(stream, keys) => {
                            any = true;
                            let seals = self.encrypts.then(|| Seals::new(&keys, true));
                            self.raise(rank, Link::new(stream, seals));
                            continue;
                        }
                        // On a bridge all have listened before anybody connects.
                        Reached::Failed(ECONNREFUSED)
                            if self.says_goodbye && !attempt.was_taken =>
                        {
                            any = true;
                            self.lose(rank, Some(ECONNREFUSED));
                            continue;
                        }
                        Reached::NotYet => (PAUSE_NS, ETIMEDOUT),
                        Reached::Refused => {
                            // It is reached, and comes itself.
                            peer.failing_ns = 0;
                            peer.since_ns = now;
                            (PAUSE_NS, 0)
                        }
                        Reached::Failed(errno) => (PAUSE_NS, errno),
                    }
                }
                State::Pausing(until) if now >= *until => {
                    self.begin(rank);
                    continue;
                }
                State::Pausing(_) => {
                    self.trying.push(rank);
                    continue;
                }
                _ => continue,
            };
            any = true;
            if peer.failing_ns != 0 && now - peer.failing_ns >= GIVE_UP_NS {
                self.lose(rank, Some(errno));
            } else {
                peer.state = State::Pausing(now + pause);
                self.trying.push(rank);
            }
        }
        if self.trying.is_empty() {
            self.soon.store(0, Ordering::Relaxed);
        }
        any
    }

    /// Moves the beginnings of attempts and failures on by the time in which this rank did not look
    /// after them.
    fn leave_out_time_away(&mut self, now: u64) {
        let away = now.saturating_sub(self.looked_ns);
        self.looked_ns = now;
        if away < AWAY_NS {
            return;
        }
        for &rank in &self.trying {
            let peer = &mut self.peers[rank as usize];
            if peer.failing_ns != 0 {
                peer.failing_ns = (peer.failing_ns + away).min(now);
            }
            peer.since_ns = (peer.since_ns + away).min(now);
            if let State::Trying(attempt) = &mut peer.state {
                attempt.began_ns = (attempt.began_ns + away).min(now);
            }
        }
    }
}
