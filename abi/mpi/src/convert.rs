//! From the arguments of a call to checked values.

use std::ffi::c_int;
use std::sync::Arc;

use margay_core_datatype::Datatype;
use margay_run_engine::Data;
use margay_run_mpi::constants::address::{MPI_BOTTOM, MPI_IN_PLACE};
use margay_run_mpi::constants::datatype::MPI_DATATYPE_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::sentinel::MPI_UNDEFINED;
use margay_run_mpi::datatype::basic_size;
use margay_run_mpi::error::Result;
use margay_run_mpi::operation::{Blocks, Operand};
use margay_run_mpi::{Mpi, fail};
use margay_run_windows::access::SHORT;
use margay_sys_os::user::{Mem, Piece};

use crate::types::{MPI_Aint, MPI_Count, MPI_Datatype};
use crate::user::{Buf, In};

/// The integer types of counts and displacements.
pub trait Int: Copy {
    /// Its value in 64 bits.
    fn wide(self) -> i64;
    /// The value in this type, `None` if it does not fit.
    fn of(value: i64) -> Option<Self>;
    /// The value in this type, `MPI_UNDEFINED` if it does not fit.
    fn or_undefined(value: i64) -> Self {
        Self::of(value)
            .or_else(|| Self::of(i64::from(MPI_UNDEFINED)))
            .expect("a small number fits")
    }
}

impl Int for c_int {
    #[inline]
    fn wide(self) -> i64 {
        i64::from(self)
    }
    fn of(value: i64) -> Option<c_int> {
        c_int::try_from(value).ok()
    }
}

impl Int for MPI_Count {
    #[inline]
    fn wide(self) -> i64 {
        self
    }
    fn of(value: i64) -> Option<MPI_Count> {
        Some(value)
    }
}

impl Int for MPI_Aint {
    #[inline]
    fn wide(self) -> i64 {
        self as i64
    }
    fn of(value: i64) -> Option<MPI_Aint> {
        Some(value as MPI_Aint)
    }
}

/// `value` in the type of an output argument.
pub fn fit<T: Int>(name: &str, value: i64) -> Result<T> {
    match T::of(value) {
        Some(value) => Ok(value),
        None => fail!(
            MPI_ERR_VALUE_TOO_LARGE,
            "{name} is {value}, which does not fit an int; use the function whose name ends in _c"
        ),
    }
}

/// A length that must not be negative.
pub fn length(name: &str, value: c_int) -> Result<usize> {
    match usize::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => fail!(MPI_ERR_ARG, "{name} is {value}; it must not be negative"),
    }
}

/// A count that must not be negative.
#[inline]
pub fn count_of(name: &str, value: i64) -> Result<u64> {
    if value < 0 {
        fail!(MPI_ERR_COUNT, "{name} is {value}; it must not be negative");
    }
    Ok(value as u64)
}

/// `n` entries of an array, widened.
///
/// # Safety
/// The C caller vouches for `n` entries.
pub unsafe fn wide<T: Int>(name: &str, array: In<T>, n: usize) -> Result<Vec<i64>> {
    // SAFETY: by the caller's promise.
    let entries = unsafe { array.slice(name, n) }?;
    Ok(entries.iter().map(|v| v.wide()).collect())
}

/// The bytes of `count` elements at `buf`, if the datatype is a predefined one without holes and
/// nothing is unusual; else [`data`] converts the arguments or reports the error.
///
/// # Safety
/// The C caller vouches for the elements.
#[inline(always)]
pub unsafe fn piece(buf: Buf, count: i64, datatype: MPI_Datatype) -> Option<Piece> {
    let bytes = (count as u64).checked_mul(basic_size(datatype.value())?)?;
    let usual = count >= 0 && buf.address() > MPI_IN_PLACE && bytes <= i64::MAX as u64;
    // SAFETY: by the caller's promise.
    usual.then(|| unsafe { buf.piece(bytes as usize) })
}

/// The data of a message: `count` elements at `buf`.
///
/// # Safety
/// The C caller vouches for the elements.
#[inline(always)]
pub unsafe fn data(mpi: &Mpi, buf: Buf, count: i64, datatype: MPI_Datatype) -> Result<Data> {
    // SAFETY: by the caller's promise.
    if let Some(piece) = unsafe { piece(buf, count, datatype) } {
        return Ok(Data::bytes(piece.mem(), piece.size() as u64));
    }
    // SAFETY: as above.
    unsafe { typed(mpi, buf, count, datatype) }
}

/// # Safety
/// As for [`data`].
unsafe fn typed(mpi: &Mpi, buf: Buf, count: i64, datatype: MPI_Datatype) -> Result<Data> {
    if count == 0 && datatype.value() == MPI_DATATYPE_NULL {
        // Nothing of no type: programs write it where only the envelope matters.
        return Ok(Data::bytes(Mem::empty(), 0));
    }
    // SAFETY: by the caller's promise.
    let operand = unsafe { operand(mpi, ("buf", "count"), buf, count, datatype) }?;
    Ok(Data::typed(operand.mem, operand.count, &operand.datatype))
}

/// `count` elements of a datatype at `buf`; `names` are those of the two parameters.
///
/// # Safety
/// The C caller vouches for the elements.
pub unsafe fn operand(
    mpi: &Mpi,
    names: (&str, &str),
    buf: Buf,
    count: i64,
    datatype: MPI_Datatype,
) -> Result<Operand> {
    let count = count_of(names.1, count)?;
    let datatype = mpi.committed(datatype.value())?;
    let (lo, hi) = span(names, count, &datatype)?;
    let buf = based(names.0, buf, &datatype)?;
    check_address(names.0, buf, lo, hi)?;
    Ok(Operand {
        // SAFETY: by the caller's promise.
        mem: unsafe { buf.claim(lo, hi) },
        count,
        datatype,
    })
}

/// Like [`operand`], where each of `blocks` processes has `count` elements of the buffer.
///
/// # Safety
/// The C caller vouches for the elements of all.
pub unsafe fn operand_of_all(
    mpi: &Mpi,
    names: (&str, &str),
    buf: Buf,
    count: i64,
    datatype: MPI_Datatype,
    blocks: u32,
) -> Result<Operand> {
    let count = count_of(names.1, count)?;
    let datatype = mpi.committed(datatype.value())?;
    let Some(all) = count.checked_mul(u64::from(blocks)) else {
        fail!(
            MPI_ERR_COUNT,
            "{} is {count} for {blocks} processes",
            names.1
        );
    };
    let (lo, hi) = span(names, all, &datatype)?;
    let buf = based(names.0, buf, &datatype)?;
    check_address(names.0, buf, lo, hi)?;
    Ok(Operand {
        // SAFETY: by the caller's promise.
        mem: unsafe { buf.claim(lo, hi) },
        count,
        datatype,
    })
}

/// A block for each process, displaced by multiples of the extent. `names`: buffer, counts,
/// displacements.
///
/// # Safety
/// The C caller vouches for `n` entries of each array and for the elements that they describe.
pub unsafe fn blocks<C: Int, D: Int>(
    mpi: &Mpi,
    names: (&str, &str, &str),
    buf: Buf,
    counts: In<C>,
    displs: In<D>,
    datatype: MPI_Datatype,
    n: usize,
) -> Result<Blocks> {
    let datatype = mpi.committed(datatype.value())?;
    // SAFETY: by the caller's promise.
    let (counts, displs) = unsafe { (counts_of(names.1, counts, n)?, wide(names.2, displs, n)?) };
    let buf = based(names.0, buf, &datatype)?;
    let extent = datatype.extent();
    let datatypes: Arc<[Arc<Datatype>]> = Arc::new([datatype]);
    // SAFETY: by the caller's promise.
    unsafe { finish_blocks(names, buf, counts, displs, extent, datatypes) }
}

/// A block for each process with a datatype of its own, displaced by bytes.
///
/// # Safety
/// The C caller vouches for `n` entries of each array and for the elements that they describe.
pub unsafe fn blocks_w<C: Int, D: Int>(
    mpi: &Mpi,
    names: (&str, &str, &str),
    buf: Buf,
    counts: In<C>,
    displs: In<D>,
    datatypes: In<MPI_Datatype>,
    n: usize,
) -> Result<Blocks> {
    // SAFETY: by the caller's promise.
    let (counts, displs) = unsafe { (counts_of(names.1, counts, n)?, wide(names.2, displs, n)?) };
    // SAFETY: by the caller's promise.
    let datatypes: Arc<[Arc<Datatype>]> = unsafe { datatypes.slice("the datatypes", n) }?
        .iter()
        .map(|d| mpi.committed(d.value()))
        .collect::<Result<_>>()?;
    // SAFETY: by the caller's promise.
    unsafe { finish_blocks(names, buf, counts, displs, 1, datatypes) }
}

/// # Safety
/// The C caller vouches for `n` entries.
unsafe fn counts_of<C: Int>(name: &str, counts: In<C>, n: usize) -> Result<Vec<u64>> {
    // SAFETY: by the caller's promise.
    unsafe { counts.slice(name, n) }?
        .iter()
        .enumerate()
        .map(|(i, c)| match u64::try_from(c.wide()) {
            Ok(c) => Ok(c),
            Err(_) => fail!(
                MPI_ERR_COUNT,
                "{name}[{i}] is {}; it must not be negative",
                c.wide()
            ),
        })
        .collect()
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn finish_blocks(
    names: (&str, &str, &str),
    buf: Buf,
    counts: Vec<u64>,
    displs: Vec<i64>,
    unit: i64,
    datatypes: Arc<[Arc<Datatype>]>,
) -> Result<Blocks> {
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for (i, (&count, &displ)) in counts.iter().zip(&displs).enumerate() {
        let datatype = &datatypes[i.min(datatypes.len() - 1)];
        let (lo, hi) = span((names.0, names.1), count, datatype)?;
        if lo < hi {
            let ends = displ
                .checked_mul(unit)
                .and_then(|d| Some((lo.checked_add(d)?, hi.checked_add(d)?)));
            let Some((lo, hi)) = ends else {
                fail!(
                    MPI_ERR_ARG,
                    "{}[{i}] is {displ}, which is beyond 63-bit addresses",
                    names.2
                );
            };
            low = low.min(lo);
            high = high.max(hi);
        }
    }
    if low > high {
        (low, high) = (0, 0);
    }
    check_address(names.0, buf, low, high)?;
    Ok(Blocks {
        // SAFETY: by the caller's promise.
        mem: unsafe { buf.claim(low, high) },
        counts,
        displs,
        datatypes,
    })
}

/// The bytes that `count` elements reach, relative to the buffer's address.
pub fn span(names: (&str, &str), count: u64, datatype: &Datatype) -> Result<(i64, i64)> {
    let flat = datatype.flat();
    match (flat.packed_size(count), flat.span(count)) {
        (Some(_), Some(span)) => Ok(span),
        _ => fail!(
            MPI_ERR_COUNT,
            "{} is {count}: {} would reach beyond 63-bit addresses",
            names.1,
            names.0
        ),
    }
}

/// Bytes of the elements, if they are few and of a predefined type without holes.
#[inline(always)]
pub fn short(count: i64, datatype: MPI_Datatype) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|&n| n <= SHORT)?;
    Some(count * basic_size(datatype.value())? as usize)
}

/// Nothing of a program lies below this address, so data that is said to be there is a null pointer
/// used as a buffer.
const LOWEST: i64 = 4096;

/// The buffer, where `MPI_BOTTOM` may be Fortran's.
fn based(name: &str, buf: Buf, datatype: &Datatype) -> Result<Buf> {
    const UNKNOWN: u64 = u64::MAX;
    match datatype.bottom() {
        UNKNOWN if buf.address() == MPI_BOTTOM => fail!(
            MPI_ERR_ARG,
            "{name} is MPI_BOTTOM, and an address in the datatype does not fit the INTEGER of MPI_ADDRESS: make the variable \
             static (SAVE, COMMON, or gfortran's -fno-automatic), or use MPI_GET_ADDRESS and MPI_TYPE_CREATE_STRUCT"
        ),
        bottom => Ok(buf.or_at(bottom as usize)),
    }
}

fn check_address(name: &str, buf: Buf, lo: i64, hi: i64) -> Result<()> {
    if lo >= hi {
        return Ok(());
    }
    match buf.address() {
        MPI_BOTTOM if lo < LOWEST => fail!(
            MPI_ERR_BUFFER,
            "{name} is a null pointer and the count is not zero"
        ),
        MPI_IN_PLACE => fail!(
            MPI_ERR_BUFFER,
            "{name} is MPI_IN_PLACE, which is not allowed here"
        ),
        _ => Ok(()),
    }
}
