//! The one matching of messages and receives, for every message-passing library.
//!
//! A message carries an [`Envelope`]: context, source, tag. A receive carries a [`Pattern`]: the
//! context and, where it asks for one, a source and a tag, whole or in part; what it leaves open
//! matches all. That covers MPI's communicators and wildcards, NX's type selectors and process
//! types and MPL's types with *dontcare*.
//!
//! Rules (MPI's, the strictest): a message goes to the receive that was posted first among those
//! that it matches; a receive takes the message that arrived first among those that match it. Both
//! queues are hashed by the full envelope, so a thousand posted receives with different tags cost
//! no more than one; receives with wildcards stand in a list of their own and the earlier of the
//! two candidates wins. Nothing is allocated once the tables have grown to the program's needs.

#![forbid(unsafe_code)]

mod chains;

use chains::Chains;

/// What a message says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Which communicator (and which plane of it) the message belongs to.
    pub context: u32,
    /// The sender, as the receiver's communicator numbers it.
    pub source: u32,
    /// The tag.
    pub tag: u32,
}

/// What a receive asks for.
///
/// Source and tag are each a value under a mask (only the bits of the mask are compared), and the
/// tag may in addition have to be in a set of small tags. That is enough for MPI's wildcards, for
/// NX's type selectors and its two-part addresses of node and process type, and for MPL's
/// *dontcare*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Which communicator (and which plane of it).
    pub context: u32,
    source: u32,
    source_mask: u32,
    tag: u32,
    tag_mask: u32,
    /// 0, or bit t for each tag t below [`Pattern::LAST`] and bit `LAST` for all others.
    tags: u32,
}

impl Pattern {
    /// In a set of tags, the bit that stands for this tag and all above it.
    pub const LAST: u32 = 30;

    /// A source or any, a tag or any.
    #[must_use]
    #[inline(always)]
    pub fn new(context: u32, source: Option<u32>, tag: Option<u32>) -> Pattern {
        let (source, source_mask) = match source {
            Some(source) => (source, u32::MAX),
            None => (0, 0),
        };
        let (tag, tag_mask) = match tag {
            Some(tag) => (tag, u32::MAX),
            None => (0, 0),
        };
        Pattern {
            context,
            source,
            source_mask,
            tag,
            tag_mask,
            tags: 0,
        }
    }

    /// Sources that agree with `source` in the bits of `mask`.
    #[must_use]
    #[inline]
    pub fn with_source_bits(self, source: u32, mask: u32) -> Pattern {
        Pattern {
            source: source & mask,
            source_mask: mask,
            ..self
        }
    }

    /// Tags that agree with `tag` in the bits of `mask`.
    #[must_use]
    #[inline]
    pub fn with_tag_bits(self, tag: u32, mask: u32) -> Pattern {
        Pattern {
            tag: tag & mask,
            tag_mask: mask,
            ..self
        }
    }

    /// Only tags of a set that is not empty: bit t for the tag t, bit [`Pattern::LAST`] for that
    /// tag and all above it.
    #[must_use]
    #[inline]
    pub fn with_tags(self, tags: u32) -> Pattern {
        Pattern { tags, ..self }
    }

    /// The same in another context.
    #[must_use]
    pub fn in_context(self, context: u32) -> Pattern {
        Pattern { context, ..self }
    }

    /// The source, if the pattern leaves none open.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Option<u32> {
        (self.source_mask == u32::MAX).then_some(self.source)
    }

    /// The tag, if the pattern leaves none open.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> Option<u32> {
        (self.tag_mask == u32::MAX).then_some(self.tag)
    }

    /// Whether a message with `envelope` fits.
    #[must_use]
    #[inline]
    pub fn matches(&self, envelope: &Envelope) -> bool {
        let differs = (self.context ^ envelope.context)
            | (self.source ^ envelope.source) & self.source_mask
            | (self.tag ^ envelope.tag) & self.tag_mask;
        differs == 0 && (self.tags == 0 || self.tags >> envelope.tag.min(Self::LAST) & 1 != 0)
    }

    #[inline]
    fn exact(&self) -> Option<Envelope> {
        (self.source_mask & self.tag_mask == u32::MAX && self.tags == 0).then_some(Envelope {
            context: self.context,
            source: self.source,
            tag: self.tag,
        })
    }
}

/// The posted receives and the unexpected messages of one rank. `R` names a receive, `M` a message;
/// both are small handles of the caller.
#[derive(Debug)]
pub struct Matching<R, M> {
    exact: Chains<(u64, R)>,
    /// Receives with a wildcard, oldest first.
    wild: Vec<(u64, Pattern, R)>,
    unexpected: Chains<M>,
    /// Numbers the posted receives.
    clock: u64,
}

impl<R: Copy + PartialEq, M: Copy + PartialEq> Default for Matching<R, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Copy + PartialEq, M: Copy + PartialEq> Matching<R, M> {
    /// Empty queues.
    #[must_use]
    pub fn new() -> Self {
        Matching {
            exact: Chains::new(),
            wild: Vec::new(),
            unexpected: Chains::new(),
            clock: 0,
        }
    }

    /// A receive is posted: takes the oldest unexpected message that matches, or else enters the
    /// receive into the queue.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Option<M> {
        if let Some((_, message)) = self.take(pattern) {
            return Some(message);
        }
        self.clock += 1;
        match pattern.exact() {
            Some(envelope) => self.exact.push(envelope, (self.clock, receive)),
            None => self.wild.push((self.clock, pattern, receive)),
        }
        None
    }

    /// A message arrives: takes the receive that was posted first among those that it matches. The
    /// caller enters the message with [`unexpected`](Self::unexpected) when there is none.
    #[inline]
    pub fn arrive(&mut self, envelope: Envelope) -> Option<R> {
        let exact = self.exact.first(&envelope);
        if self.wild.is_empty() {
            let (at, _) = exact?;
            return Some(self.exact.remove(at).1);
        }
        let wild = self
            .wild
            .iter()
            .position(|(_, pattern, _)| pattern.matches(&envelope));
        match (exact, wild) {
            (Some((at, (posted, _))), Some(w)) if posted < self.wild[w].0 => {
                Some(self.exact.remove(at).1)
            }
            (_, Some(w)) => Some(self.wild.remove(w).2),
            (Some((at, _)), None) => Some(self.exact.remove(at).1),
            (None, None) => None,
        }
    }

    /// The receive that [`arrive`](Self::arrive) would take; it stays.
    #[must_use]
    #[inline]
    pub fn candidate(&self, envelope: &Envelope) -> Option<R> {
        let exact = self.exact.first(envelope);
        if self.wild.is_empty() {
            return exact.map(|(_, (_, receive))| receive);
        }
        let wild = self
            .wild
            .iter()
            .find(|(_, pattern, _)| pattern.matches(envelope));
        match (exact, wild) {
            (Some((_, (posted, receive))), Some(w)) if posted < w.0 => Some(receive),
            (_, Some(w)) => Some(w.2),
            (Some((_, (_, receive))), None) => Some(receive),
            (None, None) => None,
        }
    }

    /// Enters a message that no receive waits for.
    #[inline]
    pub fn unexpected(&mut self, envelope: Envelope, message: M) {
        self.unexpected.push(envelope, message);
    }

    /// The oldest unexpected message that matches; it stays (a probe).
    #[must_use]
    pub fn peek(&self, pattern: Pattern) -> Option<(Envelope, M)> {
        self.find(pattern).map(|(_, envelope, m)| (envelope, m))
    }

    /// Takes the oldest unexpected message that matches (a matched probe).
    #[inline]
    pub fn take(&mut self, pattern: Pattern) -> Option<(Envelope, M)> {
        if self.unexpected.is_empty() {
            return None;
        }
        let (at, envelope, _) = self.find(pattern)?;
        Some((envelope, self.unexpected.remove(at)))
    }

    /// Takes the oldest unexpected message with that envelope that pleases (its sender takes it
    /// back).
    pub fn discard(&mut self, envelope: Envelope, pleases: impl Fn(&M) -> bool) -> Option<M> {
        let at = self.unexpected.find(&envelope, pleases)?;
        Some(self.unexpected.remove(at))
    }

    /// Takes a posted receive back. Returns whether it was still there.
    pub fn withdraw(&mut self, pattern: Pattern, receive: R) -> bool {
        match pattern.exact() {
            Some(envelope) => match self.exact.find(&envelope, |(_, r)| *r == receive) {
                Some(at) => {
                    self.exact.remove(at);
                    true
                }
                None => false,
            },
            None => match self.wild.iter().position(|(_, _, r)| *r == receive) {
                Some(at) => {
                    self.wild.remove(at);
                    true
                }
                None => false,
            },
        }
    }

    /// Posted receives that wait.
    #[must_use]
    pub fn posted_len(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    /// Unexpected messages that wait.
    #[must_use]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    fn find(&self, pattern: Pattern) -> Option<(usize, Envelope, M)> {
        match pattern.exact() {
            Some(envelope) => self
                .unexpected
                .first(&envelope)
                .map(|(at, m)| (at, envelope, m)),
            None => self.unexpected.oldest(|e| pattern.matches(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules, written down as plainly as possible.
    #[derive(Default)]
    struct Model {
        posted: Vec<(Pattern, u32)>,
        arrived: Vec<(Envelope, u32)>,
    }

    impl Model {
        fn post(&mut self, pattern: Pattern, r: u32) -> Option<u32> {
            match self.arrived.iter().position(|(e, _)| pattern.matches(e)) {
                Some(at) => Some(self.arrived.remove(at).1),
                None => {
                    self.posted.push((pattern, r));
                    None
                }
            }
        }

        fn arrive(&mut self, envelope: Envelope, m: u32) -> Option<u32> {
            match self.posted.iter().position(|(p, _)| p.matches(&envelope)) {
                Some(at) => Some(self.posted.remove(at).1),
                None => {
                    self.arrived.push((envelope, m));
                    None
                }
            }
        }
    }

    #[test]
    fn random_histories_match_the_model() {
        // Miri takes a thousand times as long.
        for seed in 1..if cfg!(miri) { 3 } else { 400u64 } {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model = Model::default();
            let mut real: Matching<u32, u32> = Matching::new();
            let spread = 1 + random.u32(..6);
            for step in 0..600u32 {
                let envelope = Envelope {
                    context: random.u32(..2),
                    source: random.u32(..spread),
                    tag: random.u32(..spread),
                };
                let pattern = Pattern::new(
                    envelope.context,
                    (random.u32(..4) != 0).then_some(envelope.source),
                    (random.u32(..4) != 0).then_some(envelope.tag),
                );
                // Now and then a part of the source, or a set of tags.
                let pattern = match random.u32(..6) {
                    0 => pattern.with_source_bits(envelope.source, random.u32(..8)),
                    1 => pattern.with_tags(1 + random.u32(..63)),
                    _ => pattern,
                };
                match random.u32(..8) {
                    0..=3 => assert_eq!(
                        model.post(pattern, step),
                        real.post(pattern, step),
                        "seed {seed} step {step}"
                    ),
                    4..=6 => {
                        let candidate = real.candidate(&envelope);
                        let expected = model.arrive(envelope, step);
                        assert_eq!(candidate, expected, "seed {seed} step {step}");
                        let got = real.arrive(envelope);
                        assert_eq!(expected, got, "seed {seed} step {step}");
                        if got.is_none() {
                            real.unexpected(envelope, step);
                        }
                    }
                    _ => {
                        let expected = model.arrived.iter().find(|(e, _)| pattern.matches(e));
                        assert_eq!(expected.copied(), real.peek(pattern));
                        if !model.posted.is_empty() && random.u32(..2) == 0 {
                            let at = random.u32(..model.posted.len() as u32) as usize;
                            let (p, r) = model.posted.remove(at);
                            assert!(real.withdraw(p, r));
                            assert!(!real.withdraw(p, r));
                        }
                    }
                }
                assert_eq!(model.posted.len(), real.posted_len());
                assert_eq!(model.arrived.len(), real.unexpected_len());
            }
        }
    }

    #[test]
    fn parts_of_sources_and_sets_of_tags() {
        let all = Pattern::new(1, None, None);
        let fits = |pattern: &Pattern, source, tag| {
            pattern.matches(&Envelope {
                context: 1,
                source,
                tag,
            })
        };
        let node = all.with_source_bits(7, 0xffff);
        assert!(fits(&node, 7, 0) && fits(&node, 3 << 16 | 7, 0) && !fits(&node, 8, 0));
        assert_eq!((node.source(), node.tag()), (None, None));
        let small = all.with_tags(1 << 3 | 1 << 29);
        assert!(fits(&small, 0, 3) && fits(&small, 0, 29));
        assert!(!fits(&small, 0, 4) && !fits(&small, 0, 30) && !fits(&small, 0, u32::MAX));
        let large = all.with_tags(1 << Pattern::LAST);
        assert!(!fits(&large, 0, 29) && fits(&large, 0, 30) && fits(&large, 0, u32::MAX));
        let low = all.with_tag_bits(0, 1 << 30);
        assert!(fits(&low, 0, 1 << 29) && !fits(&low, 0, 1 << 30 | 5));
        let one = all.with_source_bits(7, u32::MAX).with_tag_bits(9, u32::MAX);
        assert_eq!(one, Pattern::new(1, Some(7), Some(9)));
    }

    #[test]
    fn many_keys_do_not_slow_each_other() {
        let mut m: Matching<u32, u32> = Matching::new();
        let envelope = |tag| Envelope {
            context: 0,
            source: 1,
            tag,
        };
        let most = if cfg!(miri) { 200 } else { 100_000 };
        for tag in 0..most {
            m.unexpected(envelope(tag), tag);
        }
        for tag in (0..most).rev() {
            let pattern = Pattern::new(0, Some(1), Some(tag));
            assert_eq!(m.post(pattern, 0), Some(tag));
        }
        assert_eq!(m.unexpected_len(), 0);
    }
}
