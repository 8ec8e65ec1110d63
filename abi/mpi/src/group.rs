//! Groups.

use std::ffi::c_int;
use std::sync::Arc;

use margay_core_group::{Comparison, Group};
use margay_run_mpi::Mpi;
use margay_run_mpi::constants::comparison::*;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::group::*;
use margay_run_mpi::constants::sentinel::*;
use margay_run_mpi::error::{Error, Result};
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::{length, wide};
use crate::types::*;
use crate::user::{In, Out, Place};

mpi! {
    /// Number of processes.
    fn MPI_Group_size(group: MPI_Group, size: Place<c_int>) |mpi| {
        size.put("size", mpi.group(group.value())?.size() as c_int)
    }

    /// The calling process's rank, `MPI_UNDEFINED` outside.
    fn MPI_Group_rank(group: MPI_Group, rank: Place<c_int>) |mpi| {
        let own = mpi.group(group.value())?.rank(mpi.world_rank());
        rank.put("rank", own.map_or(MPI_UNDEFINED, |r| r as c_int))
    }

    /// Ranks of the same processes in another group.
    fn MPI_Group_translate_ranks(group1: MPI_Group, n: c_int, ranks1: In<c_int>, group2: MPI_Group, ranks2: Out<c_int>) |mpi| {
        let (from, to) = (mpi.group(group1.value())?, mpi.group(group2.value())?);
        let ranks = ranks1.slice("ranks1", length("n", n)?)?;
        let mut ranks2 = ranks2;
        let out = ranks2.slice("ranks2", ranks.len())?;
        for (i, (&rank, out)) in ranks.iter().zip(out).enumerate() {
            *out = match from.process(rank as u32) {
                Some(process) => to.rank(process).map_or(MPI_UNDEFINED, |r| r as c_int),
                None if rank == MPI_PROC_NULL => MPI_PROC_NULL,
                None => fail!(MPI_ERR_RANK, "ranks1[{i}] is {rank}; group1 has {} processes", from.size()),
            };
        }
        Ok(())
    }

    /// Compares two groups.
    fn MPI_Group_compare(group1: MPI_Group, group2: MPI_Group, result: Place<c_int>) |mpi| {
        let (a, b) = (mpi.group(group1.value())?, mpi.group(group2.value())?);
        result.put("result", match a.compare(&b) {
            Comparison::Identical => MPI_IDENT,
            Comparison::Similar => MPI_SIMILAR,
            Comparison::Unequal => MPI_UNEQUAL,
        })
    }

    /// All processes of both groups.
    fn MPI_Group_union(group1: MPI_Group, group2: MPI_Group, newgroup: Place<MPI_Group>) |mpi| {
        let (a, b) = (mpi.group(group1.value())?, mpi.group(group2.value())?);
        add(mpi, newgroup, group1, a.union(&b))
    }

    /// The processes that are in both groups.
    fn MPI_Group_intersection(group1: MPI_Group, group2: MPI_Group, newgroup: Place<MPI_Group>) |mpi| {
        let (a, b) = (mpi.group(group1.value())?, mpi.group(group2.value())?);
        add(mpi, newgroup, group1, a.intersection(&b))
    }

    /// The processes of the first group that are not in the second.
    fn MPI_Group_difference(group1: MPI_Group, group2: MPI_Group, newgroup: Place<MPI_Group>) |mpi| {
        let (a, b) = (mpi.group(group1.value())?, mpi.group(group2.value())?);
        add(mpi, newgroup, group1, a.difference(&b))
    }

    /// The processes of the given ranks.
    fn MPI_Group_incl(group: MPI_Group, n: c_int, ranks: In<c_int>, newgroup: Place<MPI_Group>) |mpi| {
        let old = mpi.group(group.value())?;
        add(mpi, newgroup, group, old.incl(&wide("ranks", ranks, length("n", n)?)?)?)
    }

    /// The processes of all other ranks.
    fn MPI_Group_excl(group: MPI_Group, n: c_int, ranks: In<c_int>, newgroup: Place<MPI_Group>) |mpi| {
        let old = mpi.group(group.value())?;
        add(mpi, newgroup, group, old.excl(&wide("ranks", ranks, length("n", n)?)?)?)
    }

    /// The processes of the ranks in triples of first, last, stride.
    fn MPI_Group_range_incl(group: MPI_Group, n: c_int, ranges: Out<[c_int; 3]>, newgroup: Place<MPI_Group>) |mpi| {
        let old = mpi.group(group.value())?;
        add(mpi, newgroup, group, old.range_incl(&triples(ranges, n)?)?)
    }

    /// The processes of all ranks that are not in the triples.
    fn MPI_Group_range_excl(group: MPI_Group, n: c_int, ranges: Out<[c_int; 3]>, newgroup: Place<MPI_Group>) |mpi| {
        let old = mpi.group(group.value())?;
        add(mpi, newgroup, group, old.range_excl(&triples(ranges, n)?)?)
    }

    /// Frees a group.
    fn MPI_Group_free(group: Place<MPI_Group>) |mpi| {
        mpi.group_free(group.take("group")?.value())?;
        group.put("group", MPI_Group::new(MPI_GROUP_NULL))
    }
}

/// Gives a group that was made of `from` a handle.
fn add(mpi: &Mpi, place: Place<MPI_Group>, from: MPI_Group, group: Group) -> Result<()> {
    let session = mpi.group_session(from.value());
    place.put(
        "newgroup",
        MPI_Group::new(mpi.group_add(Arc::new(group), session)?),
    )
}

/// # Safety
/// The C caller vouches for `n` entries.
unsafe fn triples(mut ranges: Out<[c_int; 3]>, n: c_int) -> Result<Vec<[i64; 3]>> {
    let n = usize::try_from(n)
        .map_err(|_| Error::new(MPI_ERR_ARG, format!("n is {n}; it must not be negative")))?;
    // SAFETY: by the caller's promise.
    let triples = unsafe { ranges.slice("ranges", n) }?;
    Ok(triples.iter().map(|t| t.map(i64::from)).collect())
}
