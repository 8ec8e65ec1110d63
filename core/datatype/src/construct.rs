//! The constructors. Parameters have their names and order from MPI 5.0, section 5.1.2; counts
//! below zero, arrays of different lengths and spans beyond 63 bits are refused. Repetition places
//! copies one extent of the old type apart.

use std::sync::Arc;

use crate::basic::{Basic, Class};
use crate::datatype::{Combiner, Datatype};
use crate::error::{TypeError, count as checked_count, mul, same_length};
use crate::layout::{Bound, Layout, LayoutBuilder};

impl Datatype {
    /// The predefined type `basic`.
    pub fn basic(basic: Basic) -> Datatype {
        Datatype::from_parts(Layout::basic(basic), Combiner::Named(basic))
    }

    /// `MPI_LB` or `MPI_UB`.
    pub fn marker(bound: Bound) -> Datatype {
        Datatype::from_parts(Layout::marker(bound), Combiner::Marker(bound))
    }

    /// The pair type of a value and an index (`MPI_Type_get_value_index`), committed: the
    /// predefined one when there is one for just these types, a type of equal layout when they are
    /// equal in representation, `None` when there is no such pair.
    pub fn value_index(value: &Arc<Datatype>, index: &Arc<Datatype>) -> Option<Datatype> {
        let (v, i) = (value.named()?, index.named()?);
        if let Some(&pair) = Basic::ALL.iter().find(|b| b.pair() == Some((v, i))) {
            return Some(Datatype::basic(pair));
        }
        let alike = |a: Basic, b: Basic| {
            a.class() == b.class()
                && matches!(a.class(), Class::Integer | Class::Float)
                && a.repr() == b.repr()
        };
        let pair = *Basic::ALL.iter().find(|b| {
            b.pair()
                .is_some_and(|(pv, pi)| alike(pv, v) && alike(pi, i))
        })?;
        let combiner = Combiner::ValueIndex {
            value: value.clone(),
            index: index.clone(),
        };
        Some(Datatype::from_parts(Layout::basic(pair), combiner))
    }

    /// `MPI_Type_dup`.
    pub fn dup(old: &Arc<Datatype>) -> Datatype {
        Datatype::from_parts(old.layout.clone(), Combiner::Dup { old: old.clone() })
    }

    /// `MPI_Type_contiguous`: `count` elements side by side.
    pub fn contiguous(count: i64, old: &Arc<Datatype>) -> Result<Datatype, TypeError> {
        let n = checked_count("count", None, count)?;
        let mut layout = LayoutBuilder::new();
        layout.add(&old.layout, 0, n, 1, 0)?;
        Ok(Datatype::from_parts(
            layout.finish(),
            Combiner::Contiguous {
                count,
                old: old.clone(),
            },
        ))
    }

    /// `MPI_Type_vector`: blocks `stride` *extents* apart.
    pub fn vector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = strided(count, blocklength, mul(stride, old.extent())?, old)?;
        Ok(Datatype::from_parts(
            layout,
            Combiner::Vector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
        ))
    }

    /// `MPI_Type_create_hvector`: blocks `stride` *bytes* apart.
    pub fn hvector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = strided(count, blocklength, stride, old)?;
        Ok(Datatype::from_parts(
            layout,
            Combiner::Hvector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
        ))
    }

    /// `MPI_Type_indexed`: displacements in *extents*.
    pub fn indexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = scattered(blocklengths, displacements, old.extent(), old)?;
        let combiner = Combiner::Indexed {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }

    /// `MPI_Type_create_hindexed`: displacements in *bytes*.
    pub fn hindexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = scattered(blocklengths, displacements, 1, old)?.addressed();
        let combiner = Combiner::Hindexed {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }

    /// `MPI_Type_create_indexed_block`: blocks of equal length, displacements in *extents*.
    pub fn indexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = scattered_equal(blocklength, displacements, old.extent(), old)?;
        let combiner = Combiner::IndexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }

    /// `MPI_Type_create_hindexed_block`: blocks of equal length, displacements in *bytes*.
    pub fn hindexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let layout = scattered_equal(blocklength, displacements, 1, old)?.addressed();
        let combiner = Combiner::HindexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }

    /// `MPI_Type_create_struct`: displacements in bytes, a type for each block.
    pub fn structure(
        blocklengths: &[i64],
        displacements: &[i64],
        types: &[Arc<Datatype>],
    ) -> Result<Datatype, TypeError> {
        same_length(
            "array_of_displacements",
            blocklengths.len(),
            displacements.len(),
        )?;
        same_length("array_of_types", blocklengths.len(), types.len())?;
        let mut layout = LayoutBuilder::new();
        for (i, ((&blocklength, &offset), child)) in blocklengths
            .iter()
            .zip(displacements)
            .zip(types)
            .enumerate()
        {
            let n = checked_count("array_of_blocklengths", Some(i), blocklength)?;
            layout.add(&child.layout, offset, n, 1, 0)?;
        }
        let combiner = Combiner::Struct {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            types: types.into(),
        };
        Ok(Datatype::from_parts(layout.finish().addressed(), combiner))
    }

    /// `MPI_Type_create_resized`: the same data with lower bound `lb` and upper bound
    /// `lb + extent`.
    pub fn resized(lb: i64, extent: i64, old: &Arc<Datatype>) -> Result<Datatype, TypeError> {
        let layout = old.layout.clone().resized(lb, extent)?;
        Ok(Datatype::from_parts(
            layout,
            Combiner::Resized {
                lb,
                extent,
                old: old.clone(),
            },
        ))
    }
}

fn strided(count: i64, blocklength: i64, stride: i64, old: &Datatype) -> Result<Layout, TypeError> {
    let count = checked_count("count", None, count)?;
    let blocklength = checked_count("blocklength", None, blocklength)?;
    let mut layout = LayoutBuilder::new();
    layout.add(&old.layout, 0, blocklength, count, stride)?;
    Ok(layout.finish())
}

fn scattered(
    blocklengths: &[i64],
    displacements: &[i64],
    unit: i64,
    old: &Datatype,
) -> Result<Layout, TypeError> {
    same_length(
        "array_of_displacements",
        blocklengths.len(),
        displacements.len(),
    )?;
    let mut layout = LayoutBuilder::new();
    for (i, (&blocklength, &displacement)) in blocklengths.iter().zip(displacements).enumerate() {
        let n = checked_count("array_of_blocklengths", Some(i), blocklength)?;
        layout.add(&old.layout, mul(displacement, unit)?, n, 1, 0)?;
    }
    Ok(layout.finish())
}

fn scattered_equal(
    blocklength: i64,
    displacements: &[i64],
    unit: i64,
    old: &Datatype,
) -> Result<Layout, TypeError> {
    let n = checked_count("blocklength", None, blocklength)?;
    let mut layout = LayoutBuilder::new();
    for &displacement in displacements {
        layout.add(&old.layout, mul(displacement, unit)?, n, 1, 0)?;
    }
    Ok(layout.finish())
}
