//! The datatype itself and what can be asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::basic::Basic;
use crate::flat::Flat;
use crate::layout::{Bound, Layout, Signature};
use crate::order::{Distribution, Order};

/// An MPI datatype: an immutable typemap. Share it by `Arc`; the types that it was made from stay
/// alive with it. The only thing that changes is whether it has been committed.
#[derive(Debug)]
pub struct Datatype {
    pub(crate) layout: Layout,
    flat: Flat,
    combiner: Combiner,
    arguments: Arguments,
    committed: AtomicBool,
}

/// The integers that a constructor took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arguments {
    /// Counts as `int`, displacements in bytes as `MPI_Aint`.
    #[default]
    Small,
    /// All as `MPI_Count`: the functions whose names end in `_c`.
    Large,
    /// All as Fortran's `INTEGER`: `MPI_TYPE_HVECTOR`, `MPI_TYPE_HINDEXED` and `MPI_TYPE_STRUCT` of
    /// MPI-1.
    Fortran,
}

/// The constructor call of a datatype, with its arguments as given.
#[derive(Debug, Clone)]
pub enum Combiner {
    Named(Basic),
    /// `MPI_LB` or `MPI_UB`, which are predefined, too.
    Marker(Bound),
    Dup {
        old: Arc<Datatype>,
    },
    Contiguous {
        count: i64,
        old: Arc<Datatype>,
    },
    Vector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Arc<Datatype>,
    },
    Hvector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Arc<Datatype>,
    },
    Indexed {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    Hindexed {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    IndexedBlock {
        blocklength: i64,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    HindexedBlock {
        blocklength: i64,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    Struct {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        types: Box<[Arc<Datatype>]>,
    },
    Subarray {
        sizes: Box<[i64]>,
        subsizes: Box<[i64]>,
        starts: Box<[i64]>,
        order: Order,
        old: Arc<Datatype>,
    },
    Darray {
        size: i64,
        rank: i64,
        gsizes: Box<[i64]>,
        distributions: Box<[Distribution]>,
        /// `None` is `MPI_DISTRIBUTE_DFLT_DARG`.
        dargs: Box<[Option<i64>]>,
        psizes: Box<[i64]>,
        order: Order,
        old: Arc<Datatype>,
    },
    Resized {
        lb: i64,
        extent: i64,
        old: Arc<Datatype>,
    },
    ValueIndex {
        value: Arc<Datatype>,
        index: Arc<Datatype>,
    },
}

impl Combiner {
    /// The type that it repeats, with whatever between; none for predefined types and those of
    /// several types.
    pub fn repeated(&self) -> Option<&Arc<Datatype>> {
        match self {
            Combiner::Dup { old }
            | Combiner::Contiguous { old, .. }
            | Combiner::Vector { old, .. }
            | Combiner::Hvector { old, .. }
            | Combiner::Indexed { old, .. }
            | Combiner::Hindexed { old, .. }
            | Combiner::IndexedBlock { old, .. }
            | Combiner::HindexedBlock { old, .. }
            | Combiner::Subarray { old, .. }
            | Combiner::Darray { old, .. }
            | Combiner::Resized { old, .. } => Some(old),
            Combiner::Named(_)
            | Combiner::Marker(_)
            | Combiner::Struct { .. }
            | Combiner::ValueIndex { .. } => None,
        }
    }
}

impl Datatype {
    pub(crate) fn from_parts(layout: Layout, combiner: Combiner) -> Datatype {
        let committed = match &combiner {
            Combiner::Named(_) | Combiner::Marker(_) | Combiner::ValueIndex { .. } => true,
            Combiner::Dup { old } => old.is_committed(),
            _ => false,
        };
        Datatype {
            flat: layout.flat(),
            layout,
            combiner,
            arguments: Arguments::default(),
            committed: AtomicBool::new(committed),
        }
    }

    /// Notes the kind of the constructor's arguments, which decides what [`Datatype::contents`]
    /// looks like.
    pub fn with(mut self, arguments: Arguments) -> Datatype {
        self.arguments = arguments;
        self
    }

    /// Says what those of its displacements that are addresses are distances from.
    pub fn from_bottom(mut self, bottom: u64) -> Datatype {
        self.layout.bottom = bottom;
        self
    }

    /// The address that `MPI_BOTTOM` stands for as a buffer of this type: 0, or that of Fortran's
    /// `MPI_BOTTOM` in a type of `INTEGER` addresses, and in what is built from it until a
    /// constructor takes addresses itself.
    pub fn bottom(&self) -> u64 {
        self.layout.bottom
    }

    /// The kind of the constructor's arguments.
    pub fn arguments(&self) -> Arguments {
        self.arguments
    }

    /// Bytes of data in one element (`MPI_Type_size`).
    pub fn size(&self) -> u64 {
        self.layout.size
    }

    /// Lower bound in bytes.
    pub fn lb(&self) -> i64 {
        self.layout.lb()
    }

    /// Upper bound in bytes.
    pub fn ub(&self) -> i64 {
        self.layout.ub()
    }

    /// Bytes from one element to the next in an array: `ub - lb`. May be negative after a resize.
    pub fn extent(&self) -> i64 {
        self.flat.extent()
    }

    /// Displacement of the first byte of data.
    pub fn true_lb(&self) -> i64 {
        self.flat.true_lb()
    }

    /// Bytes from the first to the last byte of data.
    pub fn true_extent(&self) -> i64 {
        self.flat.true_ub() - self.flat.true_lb()
    }

    /// The strictest alignment of its basic types, in bytes.
    pub fn alignment(&self) -> u64 {
        self.layout.alignment
    }

    /// The compiled form.
    pub fn flat(&self) -> &Flat {
        &self.flat
    }

    /// The constructor call that made it.
    pub fn combiner(&self) -> &Combiner {
        &self.combiner
    }

    /// The predefined type that this is, if it is one.
    pub fn named(&self) -> Option<Basic> {
        match self.combiner {
            Combiner::Named(basic) => Some(basic),
            _ => None,
        }
    }

    /// When all entries are of one basic type: that type and how many of it there are in one
    /// element. Pair types count as one entry here. This is the condition of `MPI_Accumulate` and
    /// what reductions work on.
    pub fn uniform(&self) -> Option<(Basic, u64)> {
        match self.layout.signature {
            Signature::Uniform(basic) => Some((basic, self.layout.size / basic.size())),
            _ => None,
        }
    }

    /// Basic elements in one element, as `MPI_Get_elements` counts them (a pair has two).
    pub fn elements(&self) -> u64 {
        self.layout.elements
    }

    /// Whether the data of `count` elements is one dense byte range (which then starts at
    /// [`Datatype::true_lb`]).
    pub fn is_contiguous(&self, count: u64) -> bool {
        self.flat.contiguous(count).is_some()
    }

    /// Whether `MPI_Type_commit` has been called; predefined types are committed from the start and
    /// a duplicate when its original was.
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Commits the type. Compiling has already happened, so this is a mark only.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// Elements of this type in `bytes` bytes of received data (`MPI_Get_count`); `None` is
    /// `MPI_UNDEFINED`: not a whole number. Of a type without data there are 0.
    pub fn get_count(&self, bytes: u64) -> Option<u64> {
        match (self.size(), bytes) {
            (0, 0) => Some(0),
            (0, _) => None,
            (size, _) => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// Basic elements in `bytes` bytes of data received with this type (`MPI_Get_elements`); `None`
    /// is `MPI_UNDEFINED`: the data ends within a basic element.
    pub fn get_elements(&self, bytes: u64) -> Option<u64> {
        if self.size() == 0 {
            return (bytes == 0).then_some(0);
        }
        let rest = bytes % self.size();
        let whole = (bytes / self.size()).checked_mul(self.elements())?;
        Some(whole + self.partial_elements(rest)?)
    }

    /// Basic elements in the first `bytes` (less than the size) of one element's packed data.
    fn partial_elements(&self, bytes: u64) -> Option<u64> {
        if bytes == 0 {
            return Some(0);
        }
        if let Some((basic, _)) = self.uniform() {
            let rest = match (bytes % basic.size(), basic.pair()) {
                (0, _) => 0,
                (rest, Some((value, _))) if rest == value.size() => 1,
                _ => return None,
            };
            return Some(bytes / basic.size() * basic.elements() + rest);
        }
        // In packed order, displacements do not matter: every constructor but the struct repeats
        // one type.
        match &self.combiner {
            Combiner::Struct {
                blocklengths,
                types,
                ..
            } => {
                let (mut rest, mut elements) = (bytes, 0);
                for (blocklength, child) in blocklengths.iter().zip(types) {
                    let block = *blocklength as u64 * child.size();
                    if rest < block {
                        return Some(elements + child.get_elements(rest)?);
                    }
                    rest -= block;
                    elements += *blocklength as u64 * child.elements();
                }
                Some(elements)
            }
            other => other.repeated()?.get_elements(bytes),
        }
    }
}
