//! Descriptions of datatypes: any arguments of the constructors, nested. What can be built has the
//! properties that the engine relies on, and its data comes back from packing and unpacking.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_core_datatype::{Basic, Cursor, Datatype, Distribution, Order, pack, unpack};

/// Mostly a small number, so that there are types whose data fits into memory.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Tiny(u8),
    Small(i8),
    Middle(i16),
    Any(i64),
}

impl Number {
    fn value(self) -> i64 {
        match self {
            Number::Tiny(n) => i64::from(n % 8),
            Number::Small(n) => n.into(),
            Number::Middle(n) => n.into(),
            Number::Any(n) => n,
        }
    }
}

fn values(numbers: &[Number]) -> Vec<i64> {
    numbers.iter().take(8).map(|n| n.value()).collect()
}

/// A constructor with its arguments. A type is named by how many steps before it was made.
#[derive(Arbitrary, Debug)]
enum Step {
    Basic(u8),
    Dup(u8),
    Contiguous(Number, u8),
    Vector([Number; 3], u8),
    Hvector([Number; 3], u8),
    Indexed(Vec<(Number, Number)>, u8),
    Hindexed(Vec<(Number, Number)>, u8),
    IndexedBlock(Number, Vec<Number>, u8),
    HindexedBlock(Number, Vec<Number>, u8),
    Structure(Vec<(Number, Number, u8)>),
    Resized(Number, Number, u8),
    ValueIndex(u8, u8),
    Subarray(Vec<[Number; 3]>, bool, u8),
    Darray(
        Number,
        Number,
        Vec<([Number; 2], u8, Option<Number>)>,
        bool,
        u8,
    ),
}

fn order(is_fortran: bool) -> Order {
    if is_fortran { Order::Fortran } else { Order::C }
}

fn build(step: &Step, made: &[Arc<Datatype>]) -> Option<Datatype> {
    let old = |back: u8| &made[made.len() - 1 - usize::from(back) % made.len()];
    let split = |pairs: &[(Number, Number)]| -> (Vec<i64>, Vec<i64>) {
        let pairs = pairs.iter().take(8);
        pairs.map(|(a, b)| (a.value(), b.value())).unzip()
    };
    match step {
        Step::Basic(n) => Some(Datatype::basic(
            Basic::ALL[usize::from(*n) % Basic::ALL.len()],
        )),
        Step::Dup(back) => Some(Datatype::dup(old(*back))),
        Step::Contiguous(count, back) => Datatype::contiguous(count.value(), old(*back)).ok(),
        Step::Vector([count, block, stride], back) => {
            Datatype::vector(count.value(), block.value(), stride.value(), old(*back)).ok()
        }
        Step::Hvector([count, block, stride], back) => {
            Datatype::hvector(count.value(), block.value(), stride.value(), old(*back)).ok()
        }
        Step::Indexed(pairs, back) => {
            let (lengths, places) = split(pairs);
            Datatype::indexed(&lengths, &places, old(*back)).ok()
        }
        Step::Hindexed(pairs, back) => {
            let (lengths, places) = split(pairs);
            Datatype::hindexed(&lengths, &places, old(*back)).ok()
        }
        Step::IndexedBlock(length, places, back) => {
            Datatype::indexed_block(length.value(), &values(places), old(*back)).ok()
        }
        Step::HindexedBlock(length, places, back) => {
            Datatype::hindexed_block(length.value(), &values(places), old(*back)).ok()
        }
        Step::Structure(blocks) => {
            let blocks = &blocks[..blocks.len().min(8)];
            let lengths: Vec<i64> = blocks.iter().map(|b| b.0.value()).collect();
            let places: Vec<i64> = blocks.iter().map(|b| b.1.value()).collect();
            let types: Vec<_> = blocks.iter().map(|b| old(b.2).clone()).collect();
            Datatype::structure(&lengths, &places, &types).ok()
        }
        Step::Resized(lb, extent, back) => {
            Datatype::resized(lb.value(), extent.value(), old(*back)).ok()
        }
        Step::ValueIndex(value, index) => Datatype::value_index(old(*value), old(*index)),
        Step::Subarray(dimensions, is_fortran, back) => {
            let of = |i: usize| -> Vec<i64> {
                dimensions.iter().take(4).map(|d| d[i].value()).collect()
            };
            Datatype::subarray(&of(0), &of(1), &of(2), order(*is_fortran), old(*back)).ok()
        }
        Step::Darray(size, rank, dimensions, is_fortran, back) => {
            let dimensions = &dimensions[..dimensions.len().min(4)];
            let gsizes: Vec<i64> = dimensions.iter().map(|d| d.0[0].value()).collect();
            let psizes: Vec<i64> = dimensions.iter().map(|d| d.0[1].value()).collect();
            let kinds: Vec<_> = dimensions
                .iter()
                .map(|d| match d.1 % 3 {
                    0 => Distribution::None,
                    1 => Distribution::Block,
                    _ => Distribution::Cyclic,
                })
                .collect();
            let dargs: Vec<_> = dimensions.iter().map(|d| d.2.map(Number::value)).collect();
            let (size, rank, order) = (size.value(), rank.value(), order(*is_fortran));
            let old = old(*back);
            Datatype::darray(size, rank, &gsizes, &kinds, &dargs, &psizes, order, old).ok()
        }
    }
}

/// Data of more bytes, or spread over more, is not packed: only described.
const MOST_BYTES: i64 = 1 << 16;

fn check(datatype: &Datatype, count: u64) {
    assert_eq!(datatype.ub().wrapping_sub(datatype.lb()), datatype.extent());
    let _ = (
        datatype.true_lb(),
        datatype.true_extent(),
        datatype.alignment(),
    );
    let _ = (datatype.contents(), datatype.uniform(), datatype.elements());
    let flat = datatype.flat();
    let (Some(bytes), Some((low, high))) = (flat.packed_size(count), flat.span(count)) else {
        return;
    };
    assert!(low <= high);
    if count > 0 && datatype.size() > 0 {
        assert_eq!(datatype.get_count(bytes), Some(count));
    }
    if bytes > MOST_BYTES as u64 || low < -MOST_BYTES || high > MOST_BYTES {
        return;
    }
    let origin = low.min(0).unsigned_abs() as usize;
    let source: Vec<u8> = (0..origin + high.max(0) as usize)
        .map(|i| (i * 7) as u8)
        .collect();
    let mut packed = vec![0; bytes as usize];
    assert_eq!(
        pack(&mut Cursor::new(flat, count), &source, origin, &mut packed),
        packed.len()
    );
    // In two fragments, to a place that was empty: what is packed from there is the same.
    let mut target = vec![0; source.len()];
    let mut cursor = Cursor::new(flat, count);
    let (first, second) = packed.split_at(packed.len() / 3);
    assert_eq!(unpack(&mut cursor, first, &mut target, origin), first.len());
    assert_eq!(
        unpack(&mut cursor, second, &mut target, origin),
        second.len()
    );
    let mut again = vec![0; packed.len()];
    assert_eq!(
        pack(&mut Cursor::new(flat, count), &target, origin, &mut again),
        again.len()
    );
    assert_eq!(packed, again);
}

fuzz_target!(|input: (Vec<Step>, u8)| {
    let (steps, count) = input;
    let mut made = vec![Arc::new(Datatype::basic(Basic::Int32))];
    for step in steps.iter().take(16) {
        if let Some(datatype) = build(step, &made) {
            // Nested types of many blocks each multiply; a user has the memory for that, a fuzzer
            // has not.
            if datatype.flat().blocks() < 1 << 16 {
                made.push(Arc::new(datatype));
            }
        }
    }
    for datatype in &made {
        check(datatype, u64::from(count % 8));
    }
});
