//! The array constructors: a rectangular part of an array, and a rank's part of a distributed
//! array. MPI 5.0, sections 5.1.3 and 5.1.4.

use std::sync::Arc;

use crate::datatype::{Combiner, Datatype};
use crate::error::{TypeError, mul, same_length};
use crate::layout::{Layout, LayoutBuilder};
use crate::order::{Distribution, Order};

impl Datatype {
    /// `MPI_Type_create_subarray`: the elements `starts[d] .. starts[d] + subsizes[d]` of an array
    /// of `sizes`; the bounds are those of the whole array.
    pub fn subarray(
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: Order,
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        at_least_one("ndims", None, sizes.len() as i64)?;
        same_length("array_of_subsizes", sizes.len(), subsizes.len())?;
        same_length("array_of_starts", sizes.len(), starts.len())?;
        for d in 0..sizes.len() {
            at_least_one("array_of_sizes", Some(d), sizes[d])?;
            at_least_one("array_of_subsizes", Some(d), subsizes[d])?;
            if subsizes[d] > sizes[d] {
                return Err(TypeError::Argument {
                    argument: "array_of_subsizes",
                    index: Some(d),
                    value: subsizes[d],
                    reason: "it must not exceed the size of the array in that dimension",
                });
            }
            if starts[d] < 0 || starts[d] > sizes[d] - subsizes[d] {
                return Err(TypeError::Argument {
                    argument: "array_of_starts",
                    index: Some(d),
                    value: starts[d],
                    reason: "the subarray must lie within the array",
                });
            }
        }
        let mut layout = old.layout.clone();
        for d in fastest_first(sizes.len(), order) {
            let extent = layout.extent();
            let mut next = LayoutBuilder::new();
            next.add(&layout, mul(starts[d], extent)?, subsizes[d] as u64, 1, 0)?;
            layout = next.finish().resized(0, mul(sizes[d], extent)?)?;
        }
        let combiner = Combiner::Subarray {
            sizes: sizes.into(),
            subsizes: subsizes.into(),
            starts: starts.into(),
            order,
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }

    /// `MPI_Type_create_darray`: the part of process `rank` of `size` of an array of `gsizes` that
    /// is distributed over a grid of `psizes` processes, numbered in C order. A `darg` of `None` is
    /// `MPI_DISTRIBUTE_DFLT_DARG`.
    #[allow(clippy::too_many_arguments)] // the standard's own argument list
    pub fn darray(
        size: i64,
        rank: i64,
        gsizes: &[i64],
        distributions: &[Distribution],
        dargs: &[Option<i64>],
        psizes: &[i64],
        order: Order,
        old: &Arc<Datatype>,
    ) -> Result<Datatype, TypeError> {
        let ndims = gsizes.len();
        at_least_one("ndims", None, ndims as i64)?;
        same_length("array_of_distribs", ndims, distributions.len())?;
        same_length("array_of_dargs", ndims, dargs.len())?;
        same_length("array_of_psizes", ndims, psizes.len())?;
        at_least_one("size", None, size)?;
        if rank < 0 || rank >= size {
            return Err(TypeError::Argument {
                argument: "rank",
                index: None,
                value: rank,
                reason: "it must be from 0 to size - 1",
            });
        }
        let mut blocks = Vec::with_capacity(ndims);
        for d in 0..ndims {
            at_least_one("array_of_gsizes", Some(d), gsizes[d])?;
            at_least_one("array_of_psizes", Some(d), psizes[d])?;
            blocks.push(block_size(
                d,
                gsizes[d],
                psizes[d],
                distributions[d],
                dargs[d],
            )?);
        }
        let mut processes = 1i64;
        for &p in psizes {
            processes = mul(processes, p)?;
        }
        if processes != size {
            return Err(TypeError::Argument {
                argument: "size",
                index: None,
                value: size,
                reason: "it must be the product of array_of_psizes",
            });
        }
        let mut coords = vec![0; ndims];
        let (mut below, mut rest) = (size, rank);
        for d in 0..ndims {
            below /= psizes[d];
            coords[d] = rest / below;
            rest %= below;
        }
        let mut layout = old.layout.clone();
        for d in fastest_first(ndims, order) {
            layout = cyclic(&layout, blocks[d], gsizes[d], coords[d], psizes[d])?;
        }
        let combiner = Combiner::Darray {
            size,
            rank,
            gsizes: gsizes.into(),
            distributions: distributions.into(),
            dargs: dargs.into(),
            psizes: psizes.into(),
            order,
            old: old.clone(),
        };
        Ok(Datatype::from_parts(layout, combiner))
    }
}

/// The elements that process `coord` of `processes` holds when `gsize` are dealt out in blocks of
/// `block`.
fn cyclic(
    old: &Layout,
    block: i64,
    gsize: i64,
    coord: i64,
    processes: i64,
) -> Result<Layout, TypeError> {
    let extent = old.extent();
    let cycle = mul(block, processes)?;
    let first = mul(block, coord)?;
    let (full, rest) = match gsize - first {
        left if left <= 0 => (0, 0),
        left => {
            let last = left % cycle;
            (
                left / cycle + i64::from(last >= block),
                if last < block { last } else { 0 },
            )
        }
    };
    let mut layout = LayoutBuilder::new();
    layout.add(
        old,
        mul(first, extent)?,
        block as u64,
        full as u64,
        mul(cycle, extent)?,
    )?;
    if rest > 0 {
        layout.add(
            old,
            mul(first + mul(full, cycle)?, extent)?,
            rest as u64,
            1,
            0,
        )?;
    }
    layout.finish().resized(0, mul(gsize, extent)?)
}

/// The block size of dimension `d`.
fn block_size(
    d: usize,
    gsize: i64,
    psize: i64,
    distribution: Distribution,
    darg: Option<i64>,
) -> Result<i64, TypeError> {
    if let Some(darg) = darg
        && distribution != Distribution::None
    {
        at_least_one("array_of_dargs", Some(d), darg)?;
    }
    match (distribution, darg) {
        (Distribution::None, _) if psize != 1 => Err(TypeError::Argument {
            argument: "array_of_psizes",
            index: Some(d),
            value: psize,
            reason: "a dimension that is not distributed needs a process grid of size 1 there",
        }),
        (Distribution::None, _) => Ok(gsize),
        (Distribution::Block, None) => Ok((gsize - 1) / psize + 1),
        (Distribution::Block, Some(darg)) if mul(darg, psize)? < gsize => {
            Err(TypeError::Argument {
                argument: "array_of_dargs",
                index: Some(d),
                value: darg,
                reason: "blocks of that size on array_of_psizes processes do not hold the array",
            })
        }
        (Distribution::Block | Distribution::Cyclic, Some(darg)) => Ok(darg),
        (Distribution::Cyclic, None) => Ok(1),
    }
}

fn fastest_first(ndims: usize, order: Order) -> impl Iterator<Item = usize> {
    (0..ndims).map(move |i| match order {
        Order::C => ndims - 1 - i,
        Order::Fortran => i,
    })
}

fn at_least_one(argument: &'static str, index: Option<usize>, value: i64) -> Result<(), TypeError> {
    if value >= 1 {
        return Ok(());
    }
    Err(TypeError::Argument {
        argument,
        index,
        value,
        reason: "it must be at least 1",
    })
}
