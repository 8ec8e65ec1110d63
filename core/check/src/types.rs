//! Datatypes as signatures: which basic types in which order, displacements left out.

use std::rc::Rc;

use margay_core_datatype::{Basic, Class};

/// Runs that a signature has at most; longer ones are not compared.
const MOST_RUNS: usize = 4096;

/// A datatype of the program.
#[derive(Clone, Debug)]
pub struct Type {
    /// Runs of basic types; none when they are too many or not known.
    runs: Option<Rc<[(Basic, u64)]>>,
    /// Its bytes lie without gaps.
    pub is_dense: bool,
    pub is_committed: bool,
}

impl Type {
    /// That of a predefined handle; none when it is not one.
    pub fn predefined(handle: u64) -> Option<Type> {
        let basic = Basic::from_handle(handle)?;
        Some(Type {
            runs: Some(Rc::new([(basic, 1)])),
            is_dense: basic.size() == basic.extent(),
            is_committed: true,
        })
    }

    /// One made of `blocks` of other types, in this order.
    pub fn of(blocks: &[(u64, Option<Type>)], is_dense: bool) -> Type {
        Type {
            runs: Type::runs_of(blocks).map(Rc::from),
            is_dense: is_dense
                && blocks
                    .iter()
                    .all(|(_, t)| t.as_ref().is_some_and(|t| t.is_dense)),
            is_committed: false,
        }
    }

    /// One of which nothing is known.
    pub fn unknown() -> Type {
        Type {
            runs: None,
            is_dense: false,
            is_committed: true,
        }
    }

    fn runs_of(blocks: &[(u64, Option<Type>)]) -> Option<Vec<(Basic, u64)>> {
        let mut runs: Vec<(Basic, u64)> = Vec::new();
        for (count, of) in blocks {
            let of = of.as_ref()?.runs.as_ref()?;
            if of.is_empty() {
                continue;
            }
            let times = match of.len() {
                1 => 1,
                _ => *count,
            };
            for _ in 0..times {
                for (basic, n) in of.iter() {
                    let n = if of.len() == 1 {
                        n.checked_mul(*count)?
                    } else {
                        *n
                    };
                    match runs.last_mut() {
                        Some((last, so_far)) if last == basic => *so_far = so_far.checked_add(n)?,
                        _ if n == 0 => {}
                        _ => runs.push((*basic, n)),
                    }
                    if runs.len() > MOST_RUNS {
                        return None;
                    }
                }
            }
        }
        Some(runs)
    }

    /// The bytes of its data; none when it is not known.
    pub fn size(&self) -> Option<u64> {
        let runs = self.runs.as_ref()?;
        Some(runs.iter().map(|(basic, n)| basic.size() * n).sum())
    }

    /// The one basic type that it has; none when there are several.
    pub fn basic(&self) -> Option<Basic> {
        match self.runs.as_deref() {
            Some([(basic, _)]) => Some(*basic),
            _ => None,
        }
    }
}

/// A number of elements of a type: the data of one side of a transfer.
#[derive(Clone, Debug)]
pub struct Data {
    pub count: i64,
    pub of: Option<Type>,
}

/// What is wrong between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Types,
    /// The sender sends more than the receiver has room for, or not as much as it must.
    Counts,
}

impl Data {
    fn runs(&self) -> Option<Vec<(Basic, u64)>> {
        let count = u64::try_from(self.count).ok()?;
        Type::runs_of(&[(count, self.of.clone())])
    }

    /// In words: `3 MPI_INT`.
    pub fn in_words(&self) -> String {
        match self.runs().as_deref() {
            Some([]) => "nothing".into(),
            Some([(basic, n)]) => format!("{n} {basic}"),
            Some(runs) => {
                let words: Vec<String> = (runs.iter().take(4))
                    .map(|(basic, n)| format!("{n} {basic}"))
                    .collect();
                let more = if runs.len() > 4 { ", …" } else { "" };
                format!("{}{more}", words.join(", "))
            }
            None => format!("{} of a derived type", self.count),
        }
    }

    /// Whether both are as many elements of the same signature.
    pub fn is_equal(&self, other: &Data) -> bool {
        let runs = |data: &'_ Data| data.of.as_ref().and_then(|of| of.runs.clone());
        self.count == other.count && runs(self) == runs(other)
    }

    /// Compares what is sent with what is received; `may_be_shorter` is a message, of which the
    /// receiver may get less than it has room for.
    pub fn mismatch(&self, receives: &Data, may_be_shorter: bool) -> Option<Mismatch> {
        let (sent, wanted) = (self.runs()?, receives.runs()?);
        let packed = |runs: &[(Basic, u64)]| runs.iter().any(|(b, _)| *b == Basic::Packed);
        if packed(&sent) || packed(&wanted) {
            return None;
        }
        let (sent, wanted) = match sent == wanted {
            true => return None,
            false => (without_pairs(sent)?, without_pairs(wanted)?),
        };
        let (mut a, mut b) = (sent.into_iter(), wanted.into_iter());
        let (mut left, mut room) = (a.next(), b.next());
        loop {
            match (left, room) {
                (None, None) => return None,
                (None, Some(_)) => return (!may_be_shorter).then_some(Mismatch::Counts),
                (Some(_), None) => return Some(Mismatch::Counts),
                (Some((x, n)), Some((y, m))) => {
                    if !is_alike(x, y) {
                        return Some(Mismatch::Types);
                    }
                    let both = n.min(m);
                    left = if n == both {
                        a.next()
                    } else {
                        Some((x, n - both))
                    };
                    room = if m == both {
                        b.next()
                    } else {
                        Some((y, m - both))
                    };
                }
            }
        }
    }
}

/// Types for reductions with an index are structures of two: their signature is that of these.
fn without_pairs(runs: Vec<(Basic, u64)>) -> Option<Vec<(Basic, u64)>> {
    if runs.iter().all(|(basic, _)| basic.pair().is_none()) {
        return Some(runs);
    }
    let blocks: Vec<_> = (runs.into_iter())
        .map(|(basic, n)| {
            let parts = match basic.pair() {
                Some((a, b)) if a == b => vec![(a, 2)],
                Some((a, b)) => vec![(a, 1), (b, 1)],
                None => vec![(basic, 1)],
            };
            let of = Type {
                runs: Some(Rc::from(parts)),
                is_dense: false,
                is_committed: true,
            };
            (n, Some(of))
        })
        .collect();
    Type::runs_of(&blocks)
}

/// Whether data of these types may be exchanged: the same type, or that of another language with
/// the same representation.
fn is_alike(a: Basic, b: Basic) -> bool {
    let integer = |t: Basic| matches!(t.class(), Class::Integer | Class::Character | Class::Byte);
    a == b
        || (a.repr() == b.repr() && a.size() == b.size() && a.class() == b.class())
        || (integer(a) && integer(b) && a.size() == b.size() && a.size() == 1)
}
