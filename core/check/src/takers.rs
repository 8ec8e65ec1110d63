//! Receives of any source that have got their message: each message that comes later is compared
//! with all of its receiver's, so what decides is kept together, by what the receives ask for.

use std::collections::{BTreeMap, VecDeque};

use crate::state::MPI_ANY_TAG;
use crate::types::Data;

/// Receives that ask for the same.
struct Alike {
    tag: i64,
    data: Option<Data>,
    /// In the order in which they got their messages.
    takers: VecDeque<Taker>,
}

struct Taker {
    /// Its number in the order of all.
    place: u64,
    receive: usize,
    /// The rank whose message it got.
    from: usize,
    /// The moment of its own process at which it was over.
    end: Option<u32>,
}

impl Alike {
    /// Whether these ask for exactly that.
    fn is_of(&self, asked: Asked<'_>) -> bool {
        self.tag == asked.tag
            && match (&self.data, asked.data) {
                (Some(own), Some(data)) => own.is_equal(data),
                (own, data) => own.is_none() && data.is_none(),
            }
    }
}

impl Taker {
    fn who(&self) -> (u64, usize) {
        (self.place, self.receive)
    }
}

/// What a receive asks for beside its receiver.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The message may be of any source.
    pub is_any: bool,
    pub tag: i64,
    pub data: Option<&'a Data>,
}

/// A message that has come.
#[derive(Clone, Copy)]
pub struct Come {
    pub from: usize,
    pub to: usize,
    pub tag: i64,
    /// What its sender knew of the receiver's moments.
    pub known: Option<u32>,
}

/// The receives, by receiver.
#[derive(Default)]
pub struct Takers {
    of: BTreeMap<usize, Vec<Alike>>,
    /// The receivers of all, in order.
    all: VecDeque<usize>,
    next: u64,
}

impl Takers {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Their numbers, in order.
    pub fn receives(&self) -> Vec<usize> {
        let all = self.of.values().flatten().flat_map(|alike| &alike.takers);
        let mut all: Vec<(u64, usize)> = all.map(Taker::who).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, receive)| receive).collect()
    }

    /// A receive of rank `at` has got a message of rank `from`; `end` as in [`Takers::end`], where
    /// it is over already.
    pub fn enter(
        &mut self,
        (at, receive): (usize, usize),
        asked: Asked<'_>,
        from: usize,
        end: Option<u32>,
    ) {
        let taker = Taker {
            place: self.next,
            receive,
            from,
            end,
        };
        self.next += 1;
        self.all.push_back(at);
        let lists = self.of.entry(at).or_default();
        match lists.iter_mut().find(|alike| alike.is_of(asked)) {
            Some(alike) => alike.takers.push_back(taker),
            None => lists.push(Alike {
                tag: asked.tag,
                data: asked.data.cloned(),
                takers: VecDeque::from([taker]),
            }),
        }
    }

    /// A receive of rank `at` is over.
    pub fn end(&mut self, at: usize, receive: usize, asked: Asked<'_>, end: Option<u32>) {
        let lists = self.of.get_mut(&at).into_iter().flatten();
        let its = lists.into_iter().find(|alike| alike.is_of(asked));
        // Most have come lately.
        let takers = its
            .into_iter()
            .flat_map(|alike| alike.takers.iter_mut().rev());
        if let Some(taker) = takers.into_iter().find(|taker| taker.receive == receive) {
            taker.end = end;
        }
    }

    /// Takes the first one away.
    pub fn drop_first(&mut self) -> Option<usize> {
        let at = self.all.pop_front()?;
        let lists = self.of.get_mut(&at)?;
        let first = |alike: &Alike| alike.takers.front().map_or(u64::MAX, |taker| taker.place);
        let place = (0..lists.len()).min_by_key(|&n| first(&lists[n]))?;
        let taker = lists[place].takers.pop_front()?;
        if lists[place].takers.is_empty() {
            lists.remove(place);
        }
        Some(taker.receive)
    }

    /// The first one that could have got this message instead of its own, of those that ask for
    /// what `asked` does, or for something else.
    pub fn rival(&self, message: Come, asked: Asked<'_>, is_same_asked: bool) -> Option<usize> {
        let wanted = |alike: &&Alike| alike.tag == MPI_ANY_TAG || alike.tag == message.tag;
        let could = |taker: &&Taker| {
            let is_after = message
                .known
                .zip(taker.end)
                .is_some_and(|(known, end)| known >= end);
            taker.from != message.from && !is_after
        };
        let first_of = |alike: &'_ Alike| alike.takers.iter().find(could).map(Taker::who);
        let lists = self.of.get(&message.to).into_iter().flatten();
        let first = lists.filter(wanted).filter_map(|alike| {
            // Most ask for the same; to compare datatypes takes longer than to look through a list.
            if asked.is_any && alike.is_of(asked) {
                return is_same_asked.then(|| first_of(alike)).flatten();
            }
            let first = first_of(alike)?;
            let same =
                asked.is_any && alike.tag == asked.tag && is_same(alike.data.as_ref(), asked.data);
            (same == is_same_asked).then_some(first)
        });
        first.min().map(|(_, receive)| receive)
    }
}

/// Whether the same may be sent to both; what is not known may be the same.
fn is_same(a: Option<&Data>, b: Option<&Data>) -> bool {
    let fits = |a: &Data, b: &Data| a.mismatch(b, false).is_none();
    a.zip(b).is_none_or(|(a, b)| fits(a, b) && fits(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Type;
    use crate::uses::tests::random;

    struct Plain {
        at: usize,
        receive: usize,
        tag: i64,
        data: Option<Data>,
        from: usize,
        end: Option<u32>,
    }

    const INT: u64 = 0x209;
    const DOUBLE: u64 = 0x215;

    fn some_data(state: &mut u64) -> Option<Data> {
        let of = [INT, DOUBLE][random(state, 2) as usize];
        (random(state, 5) > 0).then(|| Data {
            count: random(state, 2) as i64 + 1,
            of: Type::predefined(of),
        })
    }

    #[test]
    fn rivals_are_those_of_a_plain_list() {
        let (mut found_some, mut found_none) = (0, 0);
        let (seeds, receives) = if cfg!(miri) { (1, 30) } else { (100u64, 300) };
        for seed in 1..=seeds {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let (mut takers, mut plain) = (Takers::default(), Vec::<Plain>::new());
            for receive in 0..receives {
                let (at, from) = (
                    random(&mut state, 2) as usize,
                    random(&mut state, 4) as usize,
                );
                let tag = [MPI_ANY_TAG, 1, 2][random(&mut state, 3) as usize];
                let data = some_data(&mut state);
                let asked = Asked {
                    is_any: random(&mut state, 4) > 0,
                    tag,
                    data: data.as_ref(),
                };
                let message = Come {
                    from,
                    to: at,
                    tag: random(&mut state, 2) as i64 + 1,
                    known: Some(random(&mut state, 400) as u32).filter(|known| *known > 20),
                };
                for is_same_asked in [false, true] {
                    let could = |p: &&Plain| {
                        let same =
                            asked.is_any && p.tag == tag && is_same(p.data.as_ref(), asked.data);
                        let is_after = message
                            .known
                            .zip(p.end)
                            .is_some_and(|(known, end)| known >= end);
                        let is_wanted = p.tag == MPI_ANY_TAG || p.tag == message.tag;
                        p.at == at
                            && is_wanted
                            && same == is_same_asked
                            && p.from != from
                            && !is_after
                    };
                    let expected = plain.iter().find(could).map(|p| p.receive);
                    assert_eq!(takers.rival(message, asked, is_same_asked), expected);
                    found_some += usize::from(expected.is_some());
                    found_none += usize::from(expected.is_none());
                }
                takers.enter((at, receive), asked, from, None);
                plain.push(Plain {
                    at,
                    receive,
                    tag,
                    data,
                    from,
                    end: None,
                });
                if random(&mut state, 3) > 0 {
                    let end = Some(random(&mut state, 400) as u32);
                    let late =
                        plain.len() - 1 - random(&mut state, plain.len().min(20) as u64) as usize;
                    plain[late].end = end;
                    let old = &plain[late];
                    let asked = Asked {
                        is_any: true,
                        tag: old.tag,
                        data: old.data.as_ref(),
                    };
                    takers.end(old.at, old.receive, asked, end);
                }
                if random(&mut state, 3) == 0 {
                    assert_eq!(takers.drop_first(), Some(plain.remove(0).receive));
                }
                let receives: Vec<usize> = plain.iter().map(|p| p.receive).collect();
                assert_eq!((takers.len(), takers.receives()), (plain.len(), receives));
            }
        }
        assert!(found_some > 0 && found_none > 0);
    }
}
