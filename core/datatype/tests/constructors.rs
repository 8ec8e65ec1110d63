//! Special cases of each constructor, and what keeps the compiled form small.

use std::sync::Arc;

use margay_core_datatype::{
    Arguments, Basic, Bound, Combiner, Cursor, Datatype, Distribution, Order, Run, TypeError,
};

fn basic(b: Basic) -> Arc<Datatype> {
    Arc::new(Datatype::basic(b))
}

fn runs(ty: &Datatype, count: u64) -> Vec<Run> {
    let mut cursor = Cursor::new(ty.flat(), count);
    std::iter::from_fn(|| cursor.next_run(u64::MAX)).collect()
}

#[test]
fn struct_is_padded_to_its_alignment() {
    let ty = Datatype::structure(
        &[1, 1],
        &[0, 8],
        &[basic(Basic::Double), basic(Basic::Char)],
    )
    .unwrap();
    assert_eq!(
        (ty.size(), ty.extent(), ty.true_extent(), ty.alignment()),
        (9, 16, 9, 8)
    );
    // Example 5.7 of the standard: the padding is of the extent, not of the end.
    let ty = Datatype::structure(
        &[1, 1],
        &[4, 12],
        &[basic(Basic::Double), basic(Basic::Char)],
    )
    .unwrap();
    assert_eq!((ty.lb(), ty.ub()), (4, 20));
}

#[test]
fn resized_bounds_win_over_everything_beside_them() {
    let small = Arc::new(Datatype::resized(-3, 9, &basic(Basic::Int)).unwrap());
    assert_eq!(
        (small.lb(), small.ub(), small.true_lb(), small.true_extent()),
        (-3, 6, 0, 4)
    );
    let ty =
        Datatype::structure(&[1, 1], &[0, 100], &[small.clone(), basic(Basic::Double)]).unwrap();
    assert_eq!((ty.lb(), ty.ub()), (-3, 6));
    // Two in a row: MPI-1's example of (lb, 0, int, ..., ub).
    let two = Datatype::contiguous(2, &small).unwrap();
    assert_eq!((two.lb(), two.ub(), two.size()), (-3, 15, 8));
    let again = Datatype::resized(0, 4, &Arc::new(two)).unwrap();
    assert_eq!((again.lb(), again.ub()), (0, 4));
}

/// `MPI_LB` or `MPI_UB` in a struct of MPI-1.
fn marker(bound: Bound) -> Arc<Datatype> {
    Arc::new(Datatype::marker(bound))
}

fn structure(blocks: &[(i64, i64, &Arc<Datatype>)]) -> Arc<Datatype> {
    let lengths: Vec<i64> = blocks.iter().map(|b| b.0).collect();
    let displacements: Vec<i64> = blocks.iter().map(|b| b.1).collect();
    let types: Vec<Arc<Datatype>> = blocks.iter().map(|b| b.2.clone()).collect();
    Arc::new(Datatype::structure(&lengths, &displacements, &types).unwrap())
}

#[test]
fn markers_set_bounds_and_have_no_data() {
    let (lower, upper) = (marker(Bound::Lower), marker(Bound::Upper));
    let (int, char) = (basic(Basic::Int), basic(Basic::Char));
    for m in [&lower, &upper] {
        assert_eq!((m.size(), m.lb(), m.extent()), (0, 0, 0));
        assert!(m.is_committed() && m.flat().blocks() == 0);
    }
    // MPI-1.1, section 3.12.3: {(lb, -3), (int, 0), (ub, 6)}, and two of it in a row.
    let small = structure(&[(1, -3, &lower), (1, 0, &int), (1, 6, &upper)]);
    assert_eq!((small.lb(), small.ub(), small.size()), (-3, 6, 4));
    let two = Datatype::contiguous(2, &small).unwrap();
    assert_eq!((two.lb(), two.extent(), two.true_lb()), (-3, 18, 0));
    // One bound alone: the other one is that of the data, padded to the alignment from the marked
    // bound on.
    let from = structure(&[(1, -6, &lower), (1, 0, &int), (1, 4, &char)]);
    assert_eq!((from.lb(), from.ub()), (-6, 6));
    let to = structure(&[(1, 4, &int), (1, 5, &upper)]);
    assert_eq!((to.lb(), to.ub()), (4, 5));
    let behind = structure(&[(1, 0, &char), (1, 100, &lower)]);
    assert_eq!((behind.lb(), behind.ub()), (100, 1));
    // Without data, the other bound is 0.
    let empty = structure(&[(1, 16, &upper)]);
    assert_eq!((empty.lb(), empty.ub(), empty.size()), (0, 16, 0));
    let empty = structure(&[(1, 16, &lower)]);
    assert_eq!((empty.lb(), empty.extent()), (16, -16));
}

#[test]
fn markers_stay_in_what_is_built_from_their_types() {
    let (lower, upper) = (marker(Bound::Lower), marker(Bound::Upper));
    let int = basic(Basic::Int);
    let inner = structure(&[(1, 0, &int), (1, 40, &upper)]);
    // The greatest of several upper markers; what lies beyond it does not count.
    let outer = structure(&[(1, 8, &inner), (1, 100, &int), (1, 20, &upper)]);
    assert_eq!((outer.lb(), outer.ub()), (8, 48));
    let outer = structure(&[(2, 8, &inner), (1, -4, &lower), (1, 200, &int)]);
    assert_eq!((outer.lb(), outer.ub(), outer.size()), (-4, 88, 12));
    // A lower marker of a part leaves the upper bound to the data of all.
    let low = structure(&[(1, -8, &lower), (1, 0, &int)]);
    let outer = structure(&[(1, 0, &low), (1, 64, &int)]);
    assert_eq!((outer.lb(), outer.ub()), (-8, 68));
    // Blocks of no elements are not there, and a new extent takes the place of all markers.
    let none = structure(&[(1, 0, &int), (0, 40, &upper)]);
    assert_eq!(none.extent(), 4);
    let again = Datatype::resized(0, 8, &outer).unwrap();
    assert_eq!((again.lb(), again.ub()), (0, 8));
    // Where copies go, in both directions.
    let vector = Datatype::vector(2, 1, -2, &inner).unwrap();
    assert_eq!((vector.lb(), vector.ub(), vector.true_lb()), (-80, 40, -80));
}

#[test]
fn markers_too_far_apart_are_refused() {
    let far = Datatype::structure(
        &[1, 1],
        &[i64::MIN + 8, i64::MAX - 8],
        &[marker(Bound::Lower), marker(Bound::Upper)],
    );
    assert!(matches!(far, Err(TypeError::Overflow)));
    let far = Datatype::structure(
        &[1, 1],
        &[i64::MIN + 8, i64::MAX - 8],
        &[marker(Bound::Lower), basic(Basic::Char)],
    );
    assert!(matches!(far, Err(TypeError::Overflow)));
}

#[test]
fn empty_types_have_no_size_and_no_extent() {
    let int = basic(Basic::Int);
    for ty in [
        Datatype::contiguous(0, &int).unwrap(),
        Datatype::vector(0, 3, 2, &int).unwrap(),
        Datatype::vector(3, 0, 2, &int).unwrap(),
        Datatype::indexed(&[], &[], &int).unwrap(),
        Datatype::indexed(&[0, 0], &[5, 7], &int).unwrap(),
        Datatype::structure(&[], &[], &[]).unwrap(),
    ] {
        assert_eq!(
            (ty.size(), ty.lb(), ty.extent(), ty.true_extent()),
            (0, 0, 0, 0)
        );
        assert!(ty.is_contiguous(7));
        assert_eq!(runs(&ty, 7), []);
        assert_eq!(
            (ty.get_count(0), ty.get_count(4), ty.get_elements(4)),
            (Some(0), None, None)
        );
    }
}

#[test]
fn a_vector_of_a_million_blocks_is_one_run() {
    let column = Datatype::vector(1_000_000, 1, 500, &basic(Basic::Double)).unwrap();
    let run = Run {
        offset: 0,
        block: 8,
        count: 1_000_000,
        stride: 4000,
    };
    assert_eq!(column.flat().single_run(), Some(run));
    assert_eq!(runs(&column, 1), [run]);
    assert_eq!(column.flat().blocks(), 1_000_000);
}

#[test]
fn equal_strides_fold_to_one_run() {
    let pairs = Arc::new(Datatype::vector(4, 1, 2, &basic(Basic::Int)).unwrap());
    let folded = Datatype::hvector(10, 1, 32, &pairs).unwrap();
    assert_eq!(
        folded.flat().single_run(),
        Some(Run {
            offset: 0,
            block: 4,
            count: 40,
            stride: 8
        })
    );
    let column = Arc::new(
        Datatype::resized(
            0,
            8,
            &Arc::new(Datatype::vector(3, 1, 4, &basic(Basic::Double)).unwrap()),
        )
        .unwrap(),
    );
    // Columns of a matrix side by side: a run for each column.
    assert_eq!(runs(&column, 2).len(), 2);
    // An indexed type with constant distances is a vector.
    let ty = Datatype::indexed(&[2, 2, 2], &[1, 6, 11], &basic(Basic::Int)).unwrap();
    assert_eq!(
        ty.flat().single_run(),
        Some(Run {
            offset: 4,
            block: 8,
            count: 3,
            stride: 20
        })
    );
    // Adjacent blocks merge, whatever their lengths.
    let ty = Datatype::indexed(&[2, 3, 1], &[1, 3, 6], &basic(Basic::Int)).unwrap();
    assert_eq!(
        ty.flat().single_run(),
        Some(Run {
            offset: 4,
            block: 24,
            count: 1,
            stride: 0
        })
    );
}

#[test]
fn a_box_in_a_volume_is_a_run_for_each_plane() {
    let ty = Datatype::subarray(
        &[1000, 1000, 1000],
        &[500, 400, 300],
        &[1, 2, 3],
        Order::C,
        &basic(Basic::Double),
    )
    .unwrap();
    assert_eq!(ty.extent(), 8_000_000_000);
    let mut cursor = Cursor::new(ty.flat(), 1);
    let first = Run {
        offset: 8 * (1_000_000 + 2 * 1000 + 3),
        block: 2400,
        count: 400,
        stride: 8000,
    };
    assert_eq!(cursor.next_run(u64::MAX), Some(first));
    cursor.seek(499 * 400 * 2400 + 2400 + 7);
    let offset = 8 * (500 * 1_000_000 + 3 * 1000 + 3) + 7;
    assert_eq!(
        cursor.next_run(u64::MAX),
        Some(Run {
            offset,
            block: 2393,
            count: 1,
            stride: 0
        })
    );
    // The whole array is contiguous.
    let ty = Datatype::subarray(
        &[4, 5],
        &[4, 5],
        &[0, 0],
        Order::Fortran,
        &basic(Basic::Int),
    )
    .unwrap();
    assert!(ty.is_contiguous(3));
}

#[test]
fn seeking_far_into_many_elements_is_immediate() {
    let ty = Arc::new(
        Datatype::structure(&[1, 1], &[0, 8], &[basic(Basic::Int), basic(Basic::Double)]).unwrap(),
    );
    let mut cursor = Cursor::new(ty.flat(), 1 << 50);
    cursor.seek((1 << 49) * 12 + 5);
    assert_eq!(cursor.next_piece(100), Some(((1 << 49) * 16 + 9, 7)));
    cursor.advance(u64::MAX);
    assert_eq!(cursor.remaining(), 0);
}

#[test]
fn darray_deals_out_like_the_standard_s_example() {
    // Example 5.18: 100x200x300 over a 2x1x3 grid, cyclic(10), none, block, Fortran order.
    let dist = [
        Distribution::Cyclic,
        Distribution::None,
        Distribution::Block,
    ];
    let mut total = 0;
    for rank in 0..6 {
        let ty = Datatype::darray(
            6,
            rank,
            &[100, 200, 300],
            &dist,
            &[Some(10), None, None],
            &[2, 1, 3],
            Order::Fortran,
            &basic(Basic::Double),
        )
        .unwrap();
        assert_eq!(ty.extent(), 100 * 200 * 300 * 8);
        assert_eq!(ty.size(), 50 * 200 * 100 * 8);
        total += ty.size();
    }
    assert_eq!(total, 100 * 200 * 300 * 8);
}

#[test]
fn contents_return_the_arguments() {
    let int = basic(Basic::Int);
    let ty = Datatype::hindexed(&[1, 2], &[40, 8], &int).unwrap();
    let c = ty.contents();
    assert_eq!(
        (ty.combiner().code(), c.integers, c.addresses),
        (107, vec![2, 1, 2], vec![40, 8])
    );
    assert!(c.counts.is_empty() && Arc::ptr_eq(&c.datatypes[0], &int));
    let c = ty.with(Arguments::Large).contents();
    assert_eq!(
        (c.integers, c.addresses, c.counts),
        (vec![], vec![], vec![2, 1, 2, 40, 8])
    );
    let ty = Datatype::subarray(&[4, 5], &[2, 3], &[1, 2], Order::Fortran, &int).unwrap();
    assert_eq!(ty.contents().integers, [2, 4, 5, 2, 3, 1, 2, 15]);
    let c = ty.with(Arguments::Large).contents();
    assert_eq!(
        (c.integers, c.counts),
        (vec![2, 15], vec![4, 5, 2, 3, 1, 2])
    );
    let block = [Distribution::Block];
    let ty = Datatype::darray(2, 1, &[9], &block, &[None], &[2], Order::C, &int).unwrap();
    assert_eq!(ty.contents().integers, [2, 1, 1, 9, 17, 19, 2, 12]);
    let c = ty.with(Arguments::Large).contents();
    assert_eq!(
        (c.integers, c.counts),
        (vec![2, 1, 1, 17, 19, 2, 12], vec![9])
    );
}

#[test]
fn contents_of_fortran_types_have_displacements_among_the_integers() {
    let int = basic(Basic::Int);
    let ty = Datatype::hindexed(&[1, 2], &[40, 8], &int).unwrap();
    let c = ty.with(Arguments::Fortran).contents();
    assert_eq!((c.integers, c.addresses), (vec![2, 1, 2, 40, 8], vec![]));
    let ty = Datatype::hvector(3, 2, 16, &int).unwrap();
    assert_eq!(ty.bottom(), 0);
    let c = ty.with(Arguments::Fortran).contents();
    assert_eq!((c.integers, c.addresses), (vec![3, 2, 16], vec![]));
    // What the addresses are distances from stays with what is built from the type, until that has
    // addresses of its own.
    let ty = Datatype::hindexed(&[1], &[40], &int).unwrap();
    let ty = Arc::new(ty.from_bottom(4096));
    let vector = Arc::new(Datatype::vector(2, 1, 3, &Arc::new(Datatype::dup(&ty))).unwrap());
    let outer = structure(&[(1, 0, &int), (1, 100, &vector)]);
    assert_eq!((ty.bottom(), vector.bottom()), (4096, 4096));
    assert_eq!((outer.bottom(), int.bottom()), (0, 0));
}

#[test]
fn uniform_types_know_their_basic_type() {
    let ty = Datatype::vector(3, 2, 4, &basic(Basic::DoubleInt)).unwrap();
    assert_eq!(
        (ty.uniform(), ty.elements()),
        (Some((Basic::DoubleInt, 6)), 12)
    );
    let ty = Datatype::structure(
        &[1, 1],
        &[0, 8],
        &[basic(Basic::Double), basic(Basic::Char)],
    )
    .unwrap();
    assert_eq!((ty.uniform(), ty.elements()), (None, 2));
}

#[test]
fn value_index_finds_named_and_equal_pairs() {
    let ty = Datatype::value_index(&basic(Basic::Float), &basic(Basic::Int)).unwrap();
    assert_eq!(ty.named(), Some(Basic::FloatInt));
    let ty = Datatype::value_index(&basic(Basic::Real8), &basic(Basic::Int32)).unwrap();
    assert!(matches!(ty.combiner(), Combiner::ValueIndex { .. }) && ty.is_committed());
    assert_eq!(ty.uniform(), Some((Basic::DoubleInt, 1)));
    assert!(Datatype::value_index(&basic(Basic::Byte), &basic(Basic::Int)).is_none());
}

#[test]
fn commitment_is_inherited_by_duplicates_only() {
    let ty = Arc::new(Datatype::contiguous(2, &basic(Basic::Int)).unwrap());
    assert!(!ty.is_committed() && !Datatype::dup(&ty).is_committed());
    ty.commit();
    assert!(
        Datatype::dup(&ty).is_committed() && !Datatype::resized(0, 9, &ty).unwrap().is_committed()
    );
}

#[test]
fn bad_arguments_are_named() {
    let int = basic(Basic::Int);
    let text = |r: Result<Datatype, TypeError>| r.unwrap_err().to_string();
    assert_eq!(
        text(Datatype::contiguous(-1, &int)),
        "count is -1; it must not be negative"
    );
    assert_eq!(
        text(Datatype::indexed(&[1, -2], &[0, 0], &int)),
        "array_of_blocklengths[1] is -2; it must not be negative"
    );
    assert_eq!(
        text(Datatype::indexed(&[1], &[], &int)),
        "array_of_displacements has 0 entries; it must have 1"
    );
    assert!(
        text(Datatype::subarray(&[4], &[2], &[3], Order::C, &int))
            .starts_with("array_of_starts[0] is 3")
    );
    let block = [Distribution::Block];
    assert!(
        text(Datatype::darray(
            2,
            0,
            &[9],
            &block,
            &[Some(4)],
            &[2],
            Order::C,
            &int
        ))
        .contains("array_of_dargs[0]")
    );
    assert!(
        text(Datatype::darray(
            3,
            0,
            &[9],
            &block,
            &[None],
            &[2],
            Order::C,
            &int
        ))
        .starts_with("size is 3")
    );
    for ty in [
        Datatype::contiguous(i64::MAX, &int),
        Datatype::vector(2, 1, i64::MAX, &int),
        Datatype::hindexed(&[1, 1], &[i64::MIN, i64::MAX - 4], &int),
        Datatype::resized(i64::MAX, 1, &int),
    ] {
        assert_eq!(ty.unwrap_err(), TypeError::Overflow);
    }
}
