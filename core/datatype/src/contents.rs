//! How a datatype was made: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` return.

use std::sync::Arc;

use crate::array::{DEFAULT_DARG, Distribution, Order};
use crate::basic::Basic;
use crate::datatype::Datatype;

/// The constructor call of a datatype, with its arguments as given.
#[derive(Debug, Clone)]
pub enum Combiner {
    Named(Basic),
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
    /// The value of `MPI_COMBINER_*` in the standard ABI.
    pub fn code(&self) -> i32 {
        match self {
            Combiner::Named(_) => 101,
            Combiner::Dup { .. } => 102,
            Combiner::Contiguous { .. } => 103,
            Combiner::Vector { .. } => 104,
            Combiner::Hvector { .. } => 105,
            Combiner::Indexed { .. } => 106,
            Combiner::Hindexed { .. } => 107,
            Combiner::IndexedBlock { .. } => 108,
            Combiner::HindexedBlock { .. } => 109,
            Combiner::Struct { .. } => 110,
            Combiner::Subarray { .. } => 111,
            Combiner::Darray { .. } => 112,
            Combiner::Resized { .. } => 116,
            Combiner::ValueIndex { .. } => 117,
        }
    }

    /// The arguments in the order that the standard prescribes for `MPI_Type_get_contents` (`large` false: the type
    /// came from a function with `int` counts) or `MPI_Type_get_contents_c` (`large` true).
    pub(crate) fn contents(&self, large: bool) -> Contents {
        let mut contents = Contents::default();
        let Contents {
            integers,
            addresses,
            counts,
            datatypes,
        } = &mut contents;
        // Where a count goes, and where a displacement in bytes goes.
        let (numbers, bytes): (&mut Vec<i64>, &mut Vec<i64>) = if large {
            (counts, &mut Vec::new())
        } else {
            (integers, addresses)
        };
        match self {
            Combiner::Named(_) => {}
            Combiner::Dup { old } => datatypes.push(old.clone()),
            Combiner::Contiguous { count, old } => {
                numbers.push(*count);
                datatypes.push(old.clone());
            }
            Combiner::Vector {
                count,
                blocklength,
                stride,
                old,
            } => {
                numbers.extend([count, blocklength, stride]);
                datatypes.push(old.clone());
            }
            Combiner::Hvector {
                count,
                blocklength,
                stride,
                old,
            } => {
                numbers.extend([count, blocklength]);
                if large { numbers } else { bytes }.push(*stride);
                datatypes.push(old.clone());
            }
            Combiner::Indexed {
                blocklengths,
                displacements,
                old,
            } => {
                numbers.push(blocklengths.len() as i64);
                numbers.extend(blocklengths.iter().chain(displacements));
                datatypes.push(old.clone());
            }
            Combiner::Hindexed {
                blocklengths,
                displacements,
                old,
            } => {
                numbers.push(blocklengths.len() as i64);
                numbers.extend(blocklengths);
                if large { numbers } else { bytes }.extend(displacements);
                datatypes.push(old.clone());
            }
            Combiner::IndexedBlock {
                blocklength,
                displacements,
                old,
            } => {
                numbers.extend([displacements.len() as i64, *blocklength]);
                numbers.extend(displacements);
                datatypes.push(old.clone());
            }
            Combiner::HindexedBlock {
                blocklength,
                displacements,
                old,
            } => {
                numbers.extend([displacements.len() as i64, *blocklength]);
                if large { numbers } else { bytes }.extend(displacements);
                datatypes.push(old.clone());
            }
            Combiner::Struct {
                blocklengths,
                displacements,
                types,
            } => {
                numbers.push(blocklengths.len() as i64);
                numbers.extend(blocklengths);
                if large { numbers } else { bytes }.extend(displacements);
                datatypes.extend(types.iter().cloned());
            }
            Combiner::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            } => {
                let dims = || sizes.iter().chain(subsizes).chain(starts);
                if large {
                    numbers.extend(dims());
                    integers.extend([sizes.len() as i64, *order as i64]);
                } else {
                    numbers.push(sizes.len() as i64);
                    numbers.extend(dims());
                    numbers.push(*order as i64);
                }
                datatypes.push(old.clone());
            }
            Combiner::Darray {
                size,
                rank,
                gsizes,
                distributions,
                dargs,
                psizes,
                order,
                old,
            } => {
                if large {
                    numbers.extend(gsizes);
                }
                let integers = if large { integers } else { numbers };
                integers.extend([*size, *rank, gsizes.len() as i64]);
                if !large {
                    integers.extend(gsizes);
                }
                integers.extend(distributions.iter().map(|&d| d as i64));
                integers.extend(dargs.iter().map(|d| d.unwrap_or(DEFAULT_DARG)));
                integers.extend(psizes);
                integers.push(*order as i64);
                datatypes.push(old.clone());
            }
            Combiner::Resized { lb, extent, old } => {
                if large { numbers } else { bytes }.extend([lb, extent]);
                datatypes.push(old.clone());
            }
            Combiner::ValueIndex { value, index } => {
                datatypes.extend([value.clone(), index.clone()])
            }
        }
        contents
    }
}

/// The four lists of `MPI_Type_get_contents_c`; their lengths are what `MPI_Type_get_envelope_c` returns.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    pub integers: Vec<i64>,
    pub addresses: Vec<i64>,
    /// Empty unless the type came from a large-count constructor.
    pub counts: Vec<i64>,
    pub datatypes: Vec<Arc<Datatype>>,
}
