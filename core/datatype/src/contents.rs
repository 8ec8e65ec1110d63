//! How a datatype was made: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` return.

use std::sync::Arc;

use crate::datatype::{Arguments, Combiner, Datatype};
use crate::order::DEFAULT_DARG;

impl Combiner {
    /// The value of `MPI_COMBINER_*` in the standard ABI.
    pub fn code(&self) -> i32 {
        match self {
            Combiner::Named(_) | Combiner::Marker(_) => 101,
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

    /// The types that it was made from.
    fn types(&self) -> Vec<Arc<Datatype>> {
        match self {
            Combiner::Struct { types, .. } => types.to_vec(),
            Combiner::ValueIndex { value, index } => vec![value.clone(), index.clone()],
            _ => self.repeated().into_iter().cloned().collect(),
        }
    }

    /// The arguments in the order that the standard prescribes for `MPI_Type_get_contents`, and for
    /// types from functions with large counts for `MPI_Type_get_contents_c`.
    fn contents(&self, arguments: Arguments) -> Contents {
        let large = arguments == Arguments::Large;
        // Whether displacements in bytes stand among the other numbers.
        let joined = arguments != Arguments::Small;
        let mut contents = Contents {
            datatypes: self.types(),
            ..Contents::default()
        };
        let integers = &mut contents.integers;
        let addresses = &mut contents.addresses;
        let counts = &mut contents.counts;
        // Where a count goes, and where a displacement in bytes goes.
        let (numbers, bytes): (&mut Vec<i64>, &mut Vec<i64>) = if large {
            (counts, &mut Vec::new())
        } else {
            (integers, addresses)
        };
        match self {
            Combiner::Contiguous { count, .. } => numbers.push(*count),
            Combiner::Vector {
                count,
                blocklength,
                stride,
                ..
            } => numbers.extend([count, blocklength, stride]),
            Combiner::Hvector {
                count,
                blocklength,
                stride,
                ..
            } => {
                numbers.extend([count, blocklength]);
                if joined { numbers } else { bytes }.push(*stride);
            }
            Combiner::Indexed {
                blocklengths,
                displacements,
                ..
            } => {
                numbers.push(blocklengths.len() as i64);
                numbers.extend(blocklengths.iter().chain(displacements));
            }
            Combiner::Hindexed {
                blocklengths,
                displacements,
                ..
            }
            | Combiner::Struct {
                blocklengths,
                displacements,
                ..
            } => {
                numbers.push(blocklengths.len() as i64);
                numbers.extend(blocklengths);
                if joined { numbers } else { bytes }.extend(displacements);
            }
            Combiner::IndexedBlock {
                blocklength,
                displacements,
                ..
            } => {
                numbers.extend([displacements.len() as i64, *blocklength]);
                numbers.extend(displacements);
            }
            Combiner::HindexedBlock {
                blocklength,
                displacements,
                ..
            } => {
                numbers.extend([displacements.len() as i64, *blocklength]);
                if joined { numbers } else { bytes }.extend(displacements);
            }
            Combiner::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                ..
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
            }
            Combiner::Darray {
                size,
                rank,
                gsizes,
                distributions,
                dargs,
                psizes,
                order,
                ..
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
            }
            Combiner::Resized { lb, extent, .. } => {
                if joined { numbers } else { bytes }.extend([lb, extent]);
            }
            // They have no numbers.
            _ => {}
        }
        contents
    }
}

impl Datatype {
    /// The arguments that it was made with, as `MPI_Type_get_contents` returns them.
    pub fn contents(&self) -> Contents {
        self.combiner().contents(self.arguments())
    }
}

/// The four lists of `MPI_Type_get_contents_c`; their lengths are what `MPI_Type_get_envelope_c`
/// returns.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    pub integers: Vec<i64>,
    pub addresses: Vec<i64>,
    /// Empty unless the type came from a large-count constructor.
    pub counts: Vec<i64>,
    pub datatypes: Vec<Arc<Datatype>>,
}
