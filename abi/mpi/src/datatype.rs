//! Datatypes.

use std::ffi::c_int;
use std::sync::Arc;

use margay_core_datatype::{Arguments, Datatype, Distribution, Order};
use margay_run_mpi::constants::combiner::*;
use margay_run_mpi::constants::datatype::MPI_DATATYPE_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::limit::MPI_MAX_OBJECT_NAME;
use margay_run_mpi::datatype::Type;
use margay_run_mpi::error::Result;
use margay_run_mpi::{Mpi, fail};

use crate::call::mpi;
use crate::comm::cut;
use crate::convert::{Int, length, wide};
use crate::types::*;
use crate::user::{ConstBuf, In, Out, Place, Text, TextOut};

mpi! {
    /// Elements side by side.
    count fn MPI_Type_contiguous(count: Count, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        add(mpi, ARGUMENTS, newtype, Datatype::contiguous(count.wide(), &old(mpi, oldtype)?)?)
    }

    /// Blocks at equal distances in extents.
    count fn MPI_Type_vector(count: Count, blocklength: Count, stride: Count, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let old = old(mpi, oldtype)?;
        add(mpi, ARGUMENTS, newtype, Datatype::vector(count.wide(), blocklength.wide(), stride.wide(), &old)?)
    }

    /// Blocks at equal distances in bytes.
    count fn MPI_Type_create_hvector(count: Count, blocklength: Count, stride: AintCount, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let old = old(mpi, oldtype)?;
        add(mpi, ARGUMENTS, newtype, Datatype::hvector(count.wide(), blocklength.wide(), stride.wide(), &old)?)
    }

    /// Blocks of given lengths at given displacements in extents.
    count fn MPI_Type_indexed(count: Count, array_of_blocklengths: In<Count>, array_of_displacements: In<Count>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.wide())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        add(mpi, ARGUMENTS, newtype, Datatype::indexed(&lengths, &displacements, &old(mpi, oldtype)?)?)
    }

    /// Blocks of given lengths at given displacements in bytes.
    count fn MPI_Type_create_hindexed(count: Count, array_of_blocklengths: In<Count>, array_of_displacements: In<AintCount>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.wide())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        add(mpi, ARGUMENTS, newtype, Datatype::hindexed(&lengths, &displacements, &old(mpi, oldtype)?)?)
    }

    /// Blocks of one length at given displacements in extents.
    count fn MPI_Type_create_indexed_block(count: Count, blocklength: Count, array_of_displacements: In<Count>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let displacements = wide("array_of_displacements", array_of_displacements, entries(count.wide())?)?;
        add(mpi, ARGUMENTS, newtype, Datatype::indexed_block(blocklength.wide(), &displacements, &old(mpi, oldtype)?)?)
    }

    /// Blocks of one length at given displacements in bytes.
    count fn MPI_Type_create_hindexed_block(count: Count, blocklength: Count, array_of_displacements: In<AintCount>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let displacements = wide("array_of_displacements", array_of_displacements, entries(count.wide())?)?;
        add(mpi, ARGUMENTS, newtype, Datatype::hindexed_block(blocklength.wide(), &displacements, &old(mpi, oldtype)?)?)
    }

    /// Blocks of different datatypes.
    count fn MPI_Type_create_struct(count: Count, array_of_blocklengths: In<Count>, array_of_displacements: In<AintCount>, array_of_types: In<MPI_Datatype>, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.wide())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        let types = several(mpi, array_of_types, n)?;
        add(mpi, ARGUMENTS, newtype, Datatype::structure(&lengths, &displacements, &types)?)
    }

    /// A part of an array.
    count fn MPI_Type_create_subarray(ndims: c_int, array_of_sizes: In<Count>, array_of_subsizes: In<Count>, array_of_starts: In<Count>, order: c_int, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = length("ndims", ndims)?;
        let sizes = wide("array_of_sizes", array_of_sizes, n)?;
        let subsizes = wide("array_of_subsizes", array_of_subsizes, n)?;
        let starts = wide("array_of_starts", array_of_starts, n)?;
        add(mpi, ARGUMENTS, newtype, Datatype::subarray(&sizes, &subsizes, &starts, order_of(order)?, &old(mpi, oldtype)?)?)
    }

    /// One process's part of an array that is distributed over a grid of processes.
    count fn MPI_Type_create_darray(size: c_int, rank: c_int, ndims: c_int, array_of_gsizes: In<Count>, array_of_distribs: In<c_int>, array_of_dargs: In<c_int>, array_of_psizes: In<c_int>, order: c_int, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = length("ndims", ndims)?;
        let gsizes = wide("array_of_gsizes", array_of_gsizes, n)?;
        let distributions = distributions("array_of_distribs", array_of_distribs, n)?;
        let dargs: Vec<Option<i64>> = array_of_dargs.slice("array_of_dargs", n)?.iter()
            .map(|&d| (d != margay_run_mpi::constants::array::MPI_DISTRIBUTE_DFLT_DARG).then_some(i64::from(d))).collect();
        let psizes = wide("array_of_psizes", array_of_psizes, n)?;
        let old = old(mpi, oldtype)?;
        add(mpi, ARGUMENTS, newtype, Datatype::darray(i64::from(size), i64::from(rank), &gsizes, &distributions, &dargs, &psizes, order_of(order)?, &old)?)
    }

    /// The same data with other bounds.
    count fn MPI_Type_create_resized(oldtype: MPI_Datatype, lb: AintCount, extent: AintCount, newtype: Place<MPI_Datatype>) |mpi| {
        add(mpi, ARGUMENTS, newtype, Datatype::resized(lb.wide(), extent.wide(), &old(mpi, oldtype)?)?)
    }

    /// The Fortran real of a precision and range.
    fn MPI_Type_create_f90_real(p: c_int, r: c_int, newtype: Place<MPI_Datatype>) |mpi| {
        newtype.put("newtype", MPI_Datatype::new(mpi.datatype_f90(MPI_COMBINER_F90_REAL, p, r)?))
    }

    /// The Fortran complex of a precision and range.
    fn MPI_Type_create_f90_complex(p: c_int, r: c_int, newtype: Place<MPI_Datatype>) |mpi| {
        newtype.put("newtype", MPI_Datatype::new(mpi.datatype_f90(MPI_COMBINER_F90_COMPLEX, p, r)?))
    }

    /// The Fortran integer of a range.
    fn MPI_Type_create_f90_integer(r: c_int, newtype: Place<MPI_Datatype>) |mpi| {
        newtype.put("newtype", MPI_Datatype::new(mpi.datatype_f90(MPI_COMBINER_F90_INTEGER, 0, r)?))
    }

    /// The type of a class with this many bytes.
    fn MPI_Type_match_size(typeclass: c_int, size: c_int, datatype: Place<MPI_Datatype>) |mpi| {
        datatype.put("datatype", MPI_Datatype::new(mpi.datatype_of_size(typeclass, size)?))
    }

    /// The pair of a value and an index.
    fn MPI_Type_get_value_index(value_type: MPI_Datatype, index_type: MPI_Datatype, pair_type: Place<MPI_Datatype>) |mpi| {
        // Only pairs that have a name: programs expect to be able to name what they get.
        let pair = Datatype::value_index(&old(mpi, value_type)?, &old(mpi, index_type)?);
        let named = pair.and_then(|pair| pair.named());
        let handle = named.map_or(MPI_DATATYPE_NULL, |basic| basic.handle() as u32);
        pair_type.put("pair_type", MPI_Datatype::new(handle))
    }

    /// A copy, with the attributes.
    fn MPI_Type_dup(oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let nothing = |_: &_| newtype.offer(MPI_Datatype::new(MPI_DATATYPE_NULL));
        newtype.put("newtype", MPI_Datatype::new(mpi.datatype_dup(oldtype.value()).inspect_err(nothing)?))
    }

    /// Makes a datatype fit for communication.
    fn MPI_Type_commit(datatype: Place<MPI_Datatype>) |mpi| {
        mpi.datatype(datatype.take("datatype")?.value())?.datatype.commit();
        Ok(())
    }

    /// Frees a datatype.
    fn MPI_Type_free(datatype: Place<MPI_Datatype>) |mpi| {
        mpi.datatype_free(datatype.take("datatype")?.value())?;
        datatype.put("datatype", MPI_Datatype::new(MPI_DATATYPE_NULL))
    }

    /// Bytes of data.
    count fn MPI_Type_size(datatype: MPI_Datatype, size: Place<Count>) |mpi| {
        size.put("size", Count::or_undefined(old(mpi, datatype)?.size() as i64))
    }

    /// Bytes of data, in 64 bits.
    fn MPI_Type_size_x(datatype: MPI_Datatype, size: Place<MPI_Count>) |mpi| {
        size.put("size", old(mpi, datatype)?.size() as i64)
    }

    /// Lower bound and extent.
    count fn MPI_Type_get_extent(datatype: MPI_Datatype, lb: Place<AintCount>, extent: Place<AintCount>) |mpi| {
        let datatype = old(mpi, datatype)?;
        lb.put("lb", AintCount::or_undefined(datatype.lb()))?;
        extent.put("extent", AintCount::or_undefined(datatype.extent()))
    }

    /// Lower bound and extent.
    fn MPI_Type_get_extent_x(datatype: MPI_Datatype, lb: Place<MPI_Count>, extent: Place<MPI_Count>) |mpi| {
        let datatype = old(mpi, datatype)?;
        lb.put("lb", datatype.lb())?;
        extent.put("extent", datatype.extent())
    }

    /// Lower bound and extent of the data alone.
    count fn MPI_Type_get_true_extent(datatype: MPI_Datatype, true_lb: Place<AintCount>, true_extent: Place<AintCount>) |mpi| {
        let datatype = old(mpi, datatype)?;
        true_lb.put("true_lb", AintCount::or_undefined(datatype.true_lb()))?;
        true_extent.put("true_extent", AintCount::or_undefined(datatype.true_extent()))
    }

    /// Lower bound and extent of the data alone.
    fn MPI_Type_get_true_extent_x(datatype: MPI_Datatype, true_lb: Place<MPI_Count>, true_extent: Place<MPI_Count>) |mpi| {
        let datatype = old(mpi, datatype)?;
        true_lb.put("true_lb", datatype.true_lb())?;
        true_extent.put("true_extent", datatype.true_extent())
    }

    /// Names a datatype.
    fn MPI_Type_set_name(datatype: MPI_Datatype, type_name: Text) |mpi| {
        let mut name = type_name.get("type_name")?;
        cut(&mut name, MPI_MAX_OBJECT_NAME - 1);
        mpi.datatype(datatype.value())?.set_name(name);
        Ok(())
    }

    /// The name of a datatype.
    fn MPI_Type_get_name(datatype: MPI_Datatype, type_name: TextOut, resultlen: Place<c_int>) |mpi| {
        let name = match datatype.value() {
            MPI_DATATYPE_NULL => "MPI_DATATYPE_NULL".to_string(),
            handle => mpi.datatype(handle)?.name(),
        };
        let n = type_name.put("type_name", &name, MPI_MAX_OBJECT_NAME)?;
        resultlen.put("resultlen", n as c_int)
    }

    /// How a datatype was made: the numbers of arguments.
    fn MPI_Type_get_envelope(datatype: MPI_Datatype, num_integers: Place<c_int>, num_addresses: Place<c_int>, num_datatypes: Place<c_int>, combiner: Place<c_int>) |mpi| {
        let datatype = mpi.datatype(datatype.value())?;
        let made = made(&datatype);
        if !made.counts.is_empty() {
            fail!(MPI_ERR_TYPE, "{} was made by a function whose name ends in _c; use MPI_Type_get_envelope_c", datatype.describe());
        }
        num_integers.put("num_integers", made.integers.len() as c_int)?;
        num_addresses.put("num_addresses", made.addresses.len() as c_int)?;
        num_datatypes.put("num_datatypes", made.datatypes.len() as c_int)?;
        combiner.put("combiner", made.combiner)
    }

    /// How a datatype was made: the arguments.
    fn MPI_Type_get_contents(datatype: MPI_Datatype, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int, array_of_integers: Out<c_int>, array_of_addresses: Out<MPI_Aint>, array_of_datatypes: Out<MPI_Datatype>) |mpi| {
        let datatype = mpi.datatype(datatype.value())?;
        let made = made(&datatype);
        if !made.counts.is_empty() {
            fail!(MPI_ERR_TYPE, "{} was made by a function whose name ends in _c; use MPI_Type_get_contents_c", datatype.describe());
        }
        room("max_integers", i64::from(max_integers), made.integers.len())?;
        room("max_addresses", i64::from(max_addresses), made.addresses.len())?;
        room("max_datatypes", i64::from(max_datatypes), made.datatypes.len())?;
        contents(mpi, &datatype, &made, array_of_integers, array_of_addresses, array_of_datatypes)
    }

    /// Address in memory.
    fn MPI_Get_address(location: ConstBuf, address: Place<MPI_Aint>) |_mpi| {
        address.put("address", location.address() as MPI_Aint)
    }

    /// Sum of an address and a distance.
    fn MPI_Aint_add(base: MPI_Aint, disp: MPI_Aint) -> MPI_Aint {
        base.wrapping_add(disp)
    }

    /// Distance of two addresses.
    fn MPI_Aint_diff(addr1: MPI_Aint, addr2: MPI_Aint) -> MPI_Aint {
        addr1.wrapping_sub(addr2)
    }

    /// How a datatype was made: the numbers of arguments, also of those with 64-bit counts.
    fn MPI_Type_get_envelope_c(datatype: MPI_Datatype, num_integers: Place<MPI_Count>, num_addresses: Place<MPI_Count>, num_large_counts: Place<MPI_Count>, num_datatypes: Place<MPI_Count>, combiner: Place<c_int>) |mpi| {
        let datatype = mpi.datatype(datatype.value())?;
        let made = made(&datatype);
        num_integers.put("num_integers", made.integers.len() as MPI_Count)?;
        num_addresses.put("num_addresses", made.addresses.len() as MPI_Count)?;
        num_large_counts.put("num_large_counts", made.counts.len() as MPI_Count)?;
        num_datatypes.put("num_datatypes", made.datatypes.len() as MPI_Count)?;
        combiner.put("combiner", made.combiner)
    }

    /// How a datatype was made: the arguments, also those with 64-bit counts.
    fn MPI_Type_get_contents_c(datatype: MPI_Datatype, max_integers: MPI_Count, max_addresses: MPI_Count, max_large_counts: MPI_Count, max_datatypes: MPI_Count, array_of_integers: Out<c_int>, array_of_addresses: Out<MPI_Aint>, array_of_large_counts: Out<MPI_Count>, array_of_datatypes: Out<MPI_Datatype>) |mpi| {
        let datatype = mpi.datatype(datatype.value())?;
        let made = made(&datatype);
        room("max_integers", max_integers, made.integers.len())?;
        room("max_addresses", max_addresses, made.addresses.len())?;
        room("max_large_counts", max_large_counts, made.counts.len())?;
        room("max_datatypes", max_datatypes, made.datatypes.len())?;
        array_of_large_counts.put("array_of_large_counts", made.counts.iter().copied())?;
        contents(mpi, &datatype, &made, array_of_integers, array_of_addresses, array_of_datatypes)
    }
}

pub(crate) fn old(mpi: &Mpi, datatype: MPI_Datatype) -> Result<Arc<Datatype>> {
    Ok(mpi.datatype(datatype.value())?.datatype.clone())
}

/// # Safety
/// The C caller vouches for `n` entries.
pub(crate) unsafe fn several(
    mpi: &Mpi,
    types: In<MPI_Datatype>,
    n: usize,
) -> Result<Vec<Arc<Datatype>>> {
    // SAFETY: by the caller's promise.
    let types = unsafe { types.slice("array_of_types", n) }?;
    types.iter().map(|&datatype| old(mpi, datatype)).collect()
}

pub(crate) fn add(
    mpi: &Mpi,
    arguments: Arguments,
    place: Place<MPI_Datatype>,
    datatype: Datatype,
) -> Result<()> {
    let handle = mpi.datatype_add(datatype.with(arguments))?;
    place.put("newtype", MPI_Datatype::new(handle))
}

/// The length of the arrays of a constructor.
pub(crate) fn entries(count: i64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(n) => Ok(n),
        Err(_) => fail!(MPI_ERR_COUNT, "count is {count}; it must not be negative"),
    }
}

fn order_of(order: c_int) -> Result<Order> {
    match Order::from_abi(i64::from(order)) {
        Some(order) => Ok(order),
        None => fail!(
            MPI_ERR_ARG,
            "order is {order}; use MPI_ORDER_C or MPI_ORDER_FORTRAN"
        ),
    }
}

/// # Safety
/// The C caller vouches for `n` entries.
unsafe fn distributions(name: &str, values: In<c_int>, n: usize) -> Result<Vec<Distribution>> {
    // SAFETY: by the caller's promise.
    unsafe { values.slice(name, n) }?
        .iter()
        .enumerate()
        .map(
            |(i, &value)| match Distribution::from_abi(i64::from(value)) {
                Some(distribution) => Ok(distribution),
                None => fail!(MPI_ERR_ARG, "{name}[{i}] is {value}; use MPI_DISTRIBUTE_*"),
            },
        )
        .collect()
}

/// How a datatype was made.
struct Made {
    combiner: c_int,
    integers: Vec<i64>,
    addresses: Vec<i64>,
    counts: Vec<i64>,
    datatypes: Vec<Arc<Datatype>>,
}

fn made(datatype: &Type) -> Made {
    let (combiner, f90) = datatype.combiner();
    let contents = datatype.datatype.contents();
    Made {
        combiner,
        integers: if f90.is_empty() {
            contents.integers
        } else {
            f90.iter().map(|&i| i64::from(i)).collect()
        },
        addresses: contents.addresses,
        counts: contents.counts,
        datatypes: contents.datatypes,
    }
}

fn room(name: &str, given: i64, needed: usize) -> Result<()> {
    if given < needed as i64 {
        fail!(MPI_ERR_ARG, "{name} is {given}; {needed} are needed");
    }
    Ok(())
}

/// # Safety
/// The C caller vouches for room for what the datatype was made of.
unsafe fn contents(
    mpi: &Mpi,
    datatype: &Type,
    made: &Made,
    integers: Out<c_int>,
    addresses: Out<MPI_Aint>,
    mut datatypes: Out<MPI_Datatype>,
) -> Result<()> {
    if made.combiner == MPI_COMBINER_NAMED {
        fail!(
            MPI_ERR_TYPE,
            "{} is predefined and has no contents",
            datatype.describe()
        );
    }
    let small = made.integers.iter().map(|&i| i as c_int);
    let wide = made.addresses.iter().map(|&a| a as MPI_Aint);
    // SAFETY: by the caller's promise.
    let out = unsafe {
        integers.put("array_of_integers", small)?;
        addresses.put("array_of_addresses", wide)?;
        datatypes.slice("array_of_datatypes", made.datatypes.len())?
    };
    for (place, datatype) in out.iter_mut().zip(&made.datatypes) {
        *place = MPI_Datatype::new(mpi.datatype_handle(datatype)?);
    }
    Ok(())
}
