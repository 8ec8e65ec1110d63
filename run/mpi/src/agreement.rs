//! How processes agree on a value although some of them die: one member's part, without the
//! transport of messages.
//!
//! There is a failure detector that is never wrong (the launcher's, `margay_run_engine`), though
//! members may learn of deaths at different times and in different orders, and messages between two
//! stay in order. Then handing over from coordinator to coordinator is enough; it is Paxos (L.
//! Lamport, "Paxos Made Simple", 2001) in which a ballot is a member and a quorum is all live
//! members, as in the early-returning agreement of ULFM (Herault et al., "Practical scalable
//! consensus for pseudo-synchronous distributed systems", SC 2015) each decision is passed on
//! before anybody returns.
//!
//! - A member's coordinator is the first of whose death it has not learned. A member without a
//!   decision sends its coordinator a contribution, which promises to accept no decision of an
//!   earlier coordinator any more.
//! - Every decision bears the coordinator that made it. A coordinator decides when each other
//!   member has died or sent a contribution or a decision: of the decisions it takes the latest
//!   one's value, if there is any, else it combines.
//! - A member that accepts a decision sends it to all live members, with the coordinator that made
//!   it.
//! - A member that had accepted a decision of an earlier coordinator before it became coordinator
//!   itself answers contributions with the same value as its own decision, since their senders have
//!   promised not to accept the earlier one.
//! - It is over for a member that has accepted a decision and has got one from every live member,
//!   and every answer that it is owed, so no message is left behind.
//!
//! **All get the same.** Let `X` accept the value `v` of the coordinator `b`, and let `X` live when
//! a later coordinator `c` decides. `c` has received a message from `X`: not a contribution, for
//! then `X` would have refused `b`'s decision later; so `X`'s decision. Of all decisions that `c`
//! received it takes the latest, of `b` or of a coordinator between the two, which by induction has
//! the value `v`. And `X` has not returned before `c` accepted something too, unless `c` was dead.
//! So every member that returns, or lives, has the same value.
//!
//! **It ends.** Let `c` be the first that lives in the end. All other live members learn of the
//! deaths before it; then each that has no decision has sent `c` a contribution, and each that has
//! one sent it that. So `c` decides or has decided; what it then sends to all bears `c` or a later
//! one, or it answers, and nobody has promised more than `c`.

/// What members agree upon.
pub(crate) trait Value: Clone {
    /// Takes another member's contribution in.
    fn combine(&mut self, other: &Self);
    /// Takes in that this member has died.
    fn without(&mut self, member: usize);
}

/// What members send each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<V> {
    /// To the sender's coordinator.
    Contribution(V),
    /// Made by that coordinator.
    Decision(usize, V),
}

/// One member's part in one agreement.
pub(crate) struct Agreement<V> {
    me: usize,
    own: V,
    peers: Vec<Peer<V>>,
    /// To whom the contribution went last.
    coordinator: Option<usize>,
    accepted: Option<(usize, V)>,
}

struct Peer<V> {
    dead: bool,
    /// What it sent to this member as its coordinator.
    contribution: Option<V>,
    /// The last one that it sent, with the coordinator that made it.
    decision: Option<(usize, V)>,
    /// It was sent this member's contribution.
    asked: bool,
    /// Its contribution was answered by a decision of this member's own.
    answered: bool,
}

impl<V> Peer<V> {
    fn is_heard(&self) -> bool {
        self.dead || self.contribution.is_some() || self.decision.is_some()
    }
}

impl<V: Value> Agreement<V> {
    /// Of `members` members, of which these are known to have died; `own` is this one's
    /// contribution.
    pub(crate) fn new(me: usize, dead: &[bool], own: V) -> Agreement<V> {
        let peer = |&dead: &bool| Peer {
            dead,
            contribution: None,
            decision: None,
            asked: false,
            answered: false,
        };
        Agreement {
            me,
            own,
            peers: dead.iter().map(peer).collect(),
            coordinator: None,
            accepted: None,
        }
    }

    /// Whether a message of that member may still come: it lives, as far as is known, and owes one.
    pub(crate) fn awaits(&self, from: usize) -> bool {
        let peer = &self.peers[from];
        let is_final = |&(by, _): &(usize, V)| !peer.asked || by >= from;
        from != self.me && !peer.dead && !peer.decision.as_ref().is_some_and(is_final)
    }

    /// A message has come.
    pub(crate) fn receive(&mut self, from: usize, message: Message<V>) {
        let peer = &mut self.peers[from];
        match message {
            Message::Contribution(value) => peer.contribution = Some(value),
            Message::Decision(by, value) => peer.decision = Some((by, value)),
        }
    }

    /// Notes that a member has died, and that all that it sent has been received.
    pub(crate) fn lose(&mut self, member: usize) {
        self.peers[member].dead = true;
    }

    /// What is to be done now: calls `send` with receivers and messages.
    pub(crate) fn step(&mut self, mut send: impl FnMut(usize, Message<V>)) {
        if self.accepted.is_none() {
            self.ask(&mut send);
            self.accepted = self.decide();
            if let Some((by, value)) = &self.accepted {
                for (to, _) in self.others() {
                    send(to, Message::Decision(*by, value.clone()));
                }
            }
        }
        // A decision of this member's own or of a later one was not refused.
        let Some((_, value)) = self.accepted.as_ref().filter(|(by, _)| *by < self.me) else {
            return;
        };
        for (to, peer) in self.peers.iter_mut().enumerate() {
            if peer.contribution.is_some() && !peer.answered && !peer.dead {
                peer.answered = true;
                send(to, Message::Decision(self.me, value.clone()));
            }
        }
    }

    /// Returns what was agreed upon, when it is over.
    pub(crate) fn result(&self) -> Option<&V> {
        let (_, value) = self.accepted.as_ref()?;
        (!(0..self.peers.len()).any(|from| self.awaits(from))).then_some(value)
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Peer<V>)> {
        let peers = self.peers.iter().enumerate();
        peers.filter(|(rank, peer)| *rank != self.me && !peer.dead)
    }

    /// Sends a new coordinator the contribution.
    fn ask(&mut self, send: &mut impl FnMut(usize, Message<V>)) {
        let coordinator = self.others().map(|(rank, _)| rank).next();
        let coordinator = coordinator.map_or(self.me, |first| first.min(self.me));
        if self.coordinator == Some(coordinator) {
            return;
        }
        self.coordinator = Some(coordinator);
        if coordinator != self.me {
            self.peers[coordinator].asked = true;
            send(coordinator, Message::Contribution(self.own.clone()));
        }
    }

    /// Returns the decision to accept, if there is one.
    fn decide(&self) -> Option<(usize, V)> {
        let coordinator = self.coordinator?;
        let decisions = self.peers.iter().filter_map(|p| p.decision.as_ref());
        let latest = decisions.max_by_key(|(by, _)| *by);
        if coordinator != self.me {
            return latest.filter(|(by, _)| *by >= coordinator).cloned();
        }
        if !self.others().all(|(_, peer)| peer.is_heard()) {
            return None;
        }
        let value = latest.map(|(_, value)| value.clone());
        let value = value.unwrap_or_else(|| {
            let mut value = self.own.clone();
            for contribution in self.peers.iter().filter_map(|p| p.contribution.as_ref()) {
                value.combine(contribution);
            }
            for (member, _) in self.peers.iter().enumerate().filter(|(_, p)| p.dead) {
                value.without(member);
            }
            value
        });
        Some((coordinator, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Whose contributions are in, and which members are known to have died.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Set {
        flag: u32,
        dead: u32,
        /// Of which run of `combine` it comes, so that two decisions with the same members differ.
        mark: u64,
    }

    impl Value for Set {
        fn combine(&mut self, other: &Set) {
            self.flag &= other.flag;
            self.dead |= other.dead;
        }

        fn without(&mut self, member: usize) {
            self.dead |= 1 << member;
        }
    }

    struct World {
        random: fastrand::Rng,
        /// One in this many messages is the last of its sender.
        mortality: usize,
        /// None before a member has begun.
        members: Vec<Option<Agreement<Set>>>,
        alive: Vec<bool>,
        returned: Vec<Option<Set>>,
        /// Messages from, to, in order.
        pipes: Vec<Vec<VecDeque<Message<Set>>>>,
        /// For each member, the deaths of which it has learned.
        known: Vec<Vec<bool>>,
    }

    impl World {
        fn new(seed: u64) -> World {
            let mut random = fastrand::Rng::with_seed(seed);
            let n = 2 + random.usize(..6);
            World {
                mortality: 2 + random.usize(..10),
                random,
                members: (0..n).map(|_| None).collect(),
                alive: vec![true; n],
                returned: vec![None; n],
                pipes: (0..n)
                    .map(|_| (0..n).map(|_| VecDeque::new()).collect())
                    .collect(),
                known: vec![vec![false; n]; n],
            }
        }

        fn begin(&mut self, me: usize) {
            let own = Set {
                flag: !(1 << me),
                dead: 0,
                mark: self.random.u64(..),
            };
            self.members[me] = Some(Agreement::new(me, &self.known[me], own));
        }

        /// Steps a member; it may die between any two of the messages that it sends.
        fn step(&mut self, me: usize, deaths: &mut usize) {
            let Some(member) = &mut self.members[me] else {
                return;
            };
            let mut out = Vec::new();
            member.step(|to, message| out.push((to, message)));
            // Pipes to different members have room at different times.
            let first = self.random.usize(..self.alive.len());
            out.sort_by_key(|(to, _)| to ^ first);
            for (to, message) in out {
                if *deaths > 0 && self.random.usize(..self.mortality) == 0 {
                    *deaths -= 1;
                    self.alive[me] = false;
                    return;
                }
                self.pipes[me][to].push_back(message);
            }
            let member = self.members[me].as_ref().expect("it has begun");
            if let Some(value) = member.result() {
                self.returned[me].get_or_insert_with(|| value.clone());
            }
        }

        /// One event anywhere.
        fn event(&mut self, deaths: &mut usize) {
            let n = self.alive.len();
            let me = self.random.usize(..n);
            if !self.alive[me] {
                return;
            }
            if self.members[me].is_none() {
                self.begin(me);
                return self.step(me, deaths);
            }
            let from = self.random.usize(..n);
            if self.random.usize(..40) == 0 && *deaths > 0 {
                *deaths -= 1;
                self.alive[me] = false;
                return;
            }
            let member = self.members[me].as_mut().expect("it has begun");
            if member.awaits(from) {
                // Messages of a dead member are received before its death is reported.
                if let Some(message) = self.pipes[from][me].pop_front() {
                    member.receive(from, message);
                } else if !self.alive[from] {
                    member.lose(from);
                }
            }
            self.known[me][from] |= !self.alive[from];
            if self.random.usize(..3) != 0 {
                self.step(me, deaths);
            }
        }
    }

    #[test]
    fn survivors_agree_wherever_ranks_die() {
        let mut decisions_handed_on = 0;
        for seed in 0..30_000 {
            let mut world = World::new(seed);
            let n = world.alive.len();
            let deaths = &mut world.random.usize(..n);
            let over = |w: &World| (0..n).all(|i| !w.alive[i] || w.returned[i].is_some());
            for events in 0.. {
                if over(&world) {
                    break;
                }
                assert!(events < 200_000, "seed {seed}: it does not end");
                world.event(deaths);
            }
            let mut results = world.returned.iter().flatten();
            let first = results.next().expect("somebody lives");
            assert!(
                results.all(|r| r == first),
                "seed {seed}: {:?}",
                world.returned
            );
            for me in (0..n).filter(|&i| world.alive[i]) {
                assert_eq!(
                    first.flag & (1 << me),
                    0,
                    "seed {seed}: {me} did not contribute"
                );
                assert_eq!(first.dead & (1 << me), 0, "seed {seed}: {me} lives");
                let left = |from: &usize| world.alive[*from] && !world.pipes[*from][me].is_empty();
                assert_eq!(
                    (0..n).find(left),
                    None,
                    "seed {seed}: something is left behind"
                );
            }
            let accepted =
                |w: &World, i: usize| w.members[i].as_ref()?.accepted.as_ref().map(|a| a.0);
            let handed = (0..n).any(|i| {
                world.alive[i] && accepted(&world, i).is_some_and(|by| by < i && !world.alive[by])
            });
            decisions_handed_on += usize::from(handed);
        }
        assert!(
            decisions_handed_on > 1000,
            "{decisions_handed_on}: hardly anybody dies after deciding"
        );
    }
}
