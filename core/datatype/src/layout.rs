//! What a typemap says beyond its order: sizes, bounds, alignment, signature. MPI 5.0, sections
//! 5.1.6 to 5.1.8.

use std::sync::Arc;

use crate::basic::Basic;
use crate::error::{TypeError, add, mul};
use crate::flat::{Body, Flat, Item, Seq, SeqBuilder};

/// The types that occur in a typemap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    Empty,
    Uniform(Basic),
    Mixed,
}

/// A bound that a marker of MPI-1 sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// `MPI_LB`
    Lower,
    /// `MPI_UB`
    Upper,
}

/// Least lower-bound marker and greatest upper-bound marker. `MPI_Type_create_resized` and the
/// array constructors leave both in the typemap, `MPI_LB` and `MPI_UB` of MPI-1 one each: the other
/// bound is then that of the data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Markers {
    pub lower: Option<i64>,
    pub upper: Option<i64>,
}

impl Markers {
    /// Those of several copies; the displacements, in bytes, are those of the first and the last.
    fn shifted(self, low: i64, high: i64) -> Result<Markers, TypeError> {
        Ok(Markers {
            lower: self.lower.map(|at| add(at, low)).transpose()?,
            upper: self.upper.map(|at| add(at, high)).transpose()?,
        })
    }

    fn and(self, other: Markers) -> Markers {
        Markers {
            lower: self.lower.into_iter().chain(other.lower).min(),
            upper: self.upper.into_iter().chain(other.upper).max(),
        }
    }
}

/// Everything about a typemap, however it was constructed.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub size: u64,
    /// Least displacement and greatest end of any data; `None` without data.
    pub data: Option<(i64, i64)>,
    /// Greatest end of any data with the padding of the datatypes that it consists of: these are
    /// not packed tighter than their extents say, so neither is what is built from them.
    pub end: i64,
    /// Markers in the typemap, which then decide the bounds of everything built from it.
    pub markers: Markers,
    /// What `MPI_BOTTOM` stands for, see [`Datatype::bottom`](crate::Datatype::bottom).
    pub bottom: u64,
    pub alignment: u64,
    pub signature: Signature,
    /// Entries of the typemap (a pair has two).
    pub elements: u64,
    pub seq: Arc<Seq>,
}

impl Layout {
    pub fn basic(basic: Basic) -> Layout {
        let bytes = |offset: u64, size: u64| Item {
            offset: offset as i64,
            count: 1,
            stride: 0,
            body: Body::Bytes(size),
        };
        let (items, end) = match basic.pair() {
            Some((value, index)) if basic.index_displacement() > value.size() => (
                vec![
                    bytes(0, value.size()),
                    bytes(basic.index_displacement(), index.size()),
                ],
                basic.index_displacement() + index.size(),
            ),
            _ => (vec![bytes(0, basic.size())], basic.size()),
        };
        Layout {
            size: basic.size(),
            data: Some((0, end as i64)),
            end: end as i64,
            markers: Markers::default(),
            bottom: 0,
            alignment: basic.alignment(),
            signature: Signature::Uniform(basic),
            elements: basic.elements(),
            seq: Arc::new(Seq::new(items)),
        }
    }

    /// A type of no data that only marks a bound.
    pub fn marker(bound: Bound) -> Layout {
        let at = |wanted: Bound| (bound == wanted).then_some(0);
        let mut layout = LayoutBuilder::new().finish();
        layout.markers = Markers {
            lower: at(Bound::Lower),
            upper: at(Bound::Upper),
        };
        layout
    }

    /// Lower bound. Without a marker: the first byte of data, or 0 where there is none. So is the
    /// upper bound then, as in MPICH; MPI-1 says nothing of use about a type of markers alone.
    pub fn lb(&self) -> i64 {
        let data = self.data.map_or(0, |(low, _)| low);
        self.markers.lower.unwrap_or(data)
    }

    /// Upper bound. Without a marker: the end of the data, padded so that the extent is a multiple
    /// of the alignment. [`LayoutBuilder::add`] has made sure that this does not overflow.
    pub fn ub(&self) -> i64 {
        let low = self.lb();
        match (self.markers.upper, self.data) {
            (Some(ub), _) => ub,
            (None, Some(_)) if self.end > low => {
                low + ((self.end - low) as u64).next_multiple_of(self.alignment) as i64
            }
            // All data lies before the marked lower bound: nothing to pad.
            (None, Some(_)) => self.end,
            (None, None) => 0,
        }
    }

    pub fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    pub fn flat(&self) -> Flat {
        let (true_lb, true_ub) = self.data.unwrap_or((0, 0));
        Flat {
            seq: self.seq.clone(),
            extent: self.extent(),
            true_lb,
            true_ub,
        }
    }

    /// The layout of a type whose constructor took displacements that may be addresses.
    pub fn addressed(mut self) -> Layout {
        self.bottom = 0;
        self
    }

    /// The same data with other bounds.
    pub fn resized(mut self, lb: i64, extent: i64) -> Result<Layout, TypeError> {
        self.markers = Markers {
            lower: Some(lb),
            upper: Some(add(lb, extent)?),
        };
        Ok(self)
    }
}

/// Concatenates typemaps.
#[derive(Debug)]
pub(crate) struct LayoutBuilder {
    size: u64,
    data: Option<(i64, i64)>,
    end: i64,
    markers: Markers,
    bottom: u64,
    alignment: u64,
    signature: Signature,
    elements: u64,
    seq: SeqBuilder,
}

impl LayoutBuilder {
    pub fn new() -> LayoutBuilder {
        LayoutBuilder {
            size: 0,
            data: None,
            end: i64::MIN,
            markers: Markers::default(),
            bottom: 0,
            alignment: 1,
            signature: Signature::Empty,
            elements: 0,
            seq: SeqBuilder::default(),
        }
    }

    /// Appends `count` blocks `stride` bytes apart, the first displaced by `offset` bytes, each of
    /// `blocklength` elements of `child`.
    pub fn add(
        &mut self,
        child: &Layout,
        offset: i64,
        blocklength: u64,
        count: u64,
        stride: i64,
    ) -> Result<(), TypeError> {
        if blocklength == 0 || count == 0 {
            return Ok(());
        }
        let signed = |n: u64| i64::try_from(n).map_err(|_| TypeError::Overflow);
        let copies = mul(signed(blocklength)?, signed(count)?)?;
        let inner = mul(signed(blocklength)? - 1, child.extent())?;
        let outer = mul(signed(count)? - 1, stride)?;
        let low = add(add(offset, inner.min(0))?, outer.min(0))?;
        let high = add(add(offset, inner.max(0))?, outer.max(0))?;
        let size = mul(copies, signed(child.size)?)?;
        self.size = add(size, signed(self.size)?)? as u64;
        self.elements = add(
            mul(copies, signed(child.elements)?)?,
            signed(self.elements)?,
        )? as u64;
        let data = match child.data {
            Some((a, b)) => Some((add(a, low)?, add(b, high)?)),
            None => None,
        };
        self.data = hull(self.data, data);
        if let Some((_, true_end)) = child.data {
            let end = match child.markers.upper {
                Some(_) => true_end,
                None => child.ub(),
            };
            self.end = self.end.max(add(high, end)?);
        }
        self.markers = self.markers.and(child.markers.shifted(low, high)?);
        self.bottom = self.bottom.max(child.bottom);
        self.alignment = self.alignment.max(child.alignment);
        let lows = self.data.map(|(low, _)| low).into_iter();
        let highs = self.data.map(|_| self.end).into_iter();
        for low in lows.chain(self.markers.lower) {
            for high in highs.clone().chain(self.markers.upper) {
                // Room for the padding and for the extent as a difference.
                add(
                    high.checked_sub(low).ok_or(TypeError::Overflow)?,
                    self.alignment as i64,
                )?;
                add(high, self.alignment as i64)?;
            }
        }
        self.signature = match (self.signature, child.signature) {
            (Signature::Empty, other) | (other, Signature::Empty) => other,
            (a, b) if a == b => a,
            _ => Signature::Mixed,
        };
        self.seq.add(
            &child.seq,
            offset,
            blocklength,
            child.extent(),
            count,
            stride,
        );
        Ok(())
    }

    pub fn finish(self) -> Layout {
        Layout {
            size: self.size,
            data: self.data,
            end: self.end,
            markers: self.markers,
            bottom: self.bottom,
            alignment: self.alignment,
            signature: self.signature,
            elements: self.elements,
            seq: self.seq.finish(),
        }
    }
}

/// The smallest range that holds both.
fn hull(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some((a0, a1)), Some((b0, b1))) => Some((a0.min(b0), a1.max(b1))),
        (range, None) | (None, range) => range,
    }
}
