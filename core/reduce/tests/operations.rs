//! Every operation on every type against the same thing said plainly.

use margay_core_datatype::{Class, Repr};
use margay_core_reduce::{Basic, Op, ReduceError, apply, apply_to_number, combine, is_valid, soft};

/// All forms must agree; returns the result. `a` is the input, `b` the inout operand.
fn reduce(op: Op, basic: Basic, a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut inout = b.to_vec();
    apply(op, basic, &mut inout, a).unwrap();
    let extent = basic.extent() as usize;
    let elements = a.chunks(extent).zip(b.chunks(extent));
    for ((a, b), whole) in elements.zip(inout.chunks(extent)) {
        let mut single = b.to_vec();
        let done = apply_to_number(op, basic, &mut single, a);
        assert_eq!(single, if done { whole } else { b }, "{op} on one {basic}");
    }
    let mut out = vec![0xee; b.len()];
    combine(op, basic, &mut out, a, b).unwrap();
    assert_eq!(inout, out, "{op} on {basic}");
    inout
}

fn bytes(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    values
        .into_iter()
        .flat_map(|v| v.as_ref().to_vec())
        .collect()
}

macro_rules! check_integers {
    ($t:ident, $($basic:ident)*) => {
        for basic in [$(Basic::$basic),*] {
            let a: Vec<$t> = (0..101).map(|i: i32| (i * 37 % 89) as $t).chain([$t::MIN, $t::MAX, $t::MAX, 0]).collect();
            let b: Vec<$t> = (0..101).map(|i: i32| (i * 53 % 97) as $t).chain([$t::MIN, $t::MIN, $t::MAX, 0]).collect();
            let check = |op: Op, f: fn($t, $t) -> $t| {
                let found = reduce(op, basic, &bytes(a.iter().map(|x| x.to_ne_bytes())), &bytes(b.iter().map(|x| x.to_ne_bytes())));
                let wanted = bytes(a.iter().zip(&b).map(|(&x, &y)| f(x, y).to_ne_bytes()));
                assert_eq!(found, wanted, "{op} on {basic}");
            };
            check(Op::Sum, $t::wrapping_add);
            check(Op::Prod, $t::wrapping_mul);
            check(Op::Min, $t::min);
            check(Op::Max, $t::max);
            check(Op::Band, |x, y| x & y);
            check(Op::Bor, |x, y| x | y);
            check(Op::Bxor, |x, y| x ^ y);
            check(Op::Land, |x, y| (x != 0 && y != 0) as $t);
            check(Op::Lor, |x, y| (x != 0 || y != 0) as $t);
            check(Op::Lxor, |x, y| ((x != 0) != (y != 0)) as $t);
        }
    };
}

#[test]
fn counters_take_the_shortest_way() {
    let mut sum = 40i64.to_ne_bytes();
    assert!(apply_to_number(
        Op::Sum,
        Basic::Long,
        &mut sum,
        &2i64.to_ne_bytes()
    ));
    assert_eq!(i64::from_ne_bytes(sum), 42);
    let mut two = [0; 16];
    assert!(!apply_to_number(Op::Sum, Basic::Long, &mut two, &[1; 16]));
}

/// The check of lengths relies on it.
#[test]
fn extents_are_powers_of_two() {
    assert!(Basic::ALL.iter().all(|b| b.extent().is_power_of_two()));
}

#[test]
fn integers() {
    check_integers!(i8, Int8 Char SignedChar Integer1);
    check_integers!(u8, Uint8 UnsignedChar);
    check_integers!(i16, Short Int16 Integer2);
    check_integers!(u16, UnsignedShort Uint16);
    check_integers!(i32, Int Int32 Integer Integer4);
    check_integers!(u32, Unsigned Uint32);
    check_integers!(i64, Long LongLong Int64 Aint Count Offset Integer8);
    check_integers!(u64, UnsignedLong UnsignedLongLong Uint64);
    check_integers!(i128, Integer16);
}

macro_rules! check_floats {
    ($t:ident, $($basic:ident)*) => {
        for basic in [$(Basic::$basic),*] {
            let a: Vec<$t> = (0..99).map(|i| (i * 37 % 89) as $t / 7.0 - 5.0).collect();
            let b: Vec<$t> = (0..99).map(|i| (i * 53 % 97) as $t / 3.0 - 9.0).collect();
            let check = |op: Op, f: fn($t, $t) -> $t| {
                let found = reduce(op, basic, &bytes(a.iter().map(|x| x.to_ne_bytes())), &bytes(b.iter().map(|x| x.to_ne_bytes())));
                let wanted = bytes(a.iter().zip(&b).map(|(&x, &y)| f(x, y).to_ne_bytes()));
                assert_eq!(found, wanted, "{op} on {basic}");
            };
            check(Op::Sum, |x, y| x + y);
            check(Op::Prod, |x, y| x * y);
            check(Op::Min, $t::min);
            check(Op::Max, $t::max);
        }
    };
}

#[test]
fn native_floats() {
    check_floats!(f32, Float Real Real4);
    check_floats!(f64, Double DoublePrecision Real8);
}

#[test]
fn halves_round_once() {
    let half = |x: u16| x.to_ne_bytes();
    // 1 + 2^-11 is a tie and goes to even; 2048 + 3 likewise goes up to 2052.
    assert_eq!(
        reduce(Op::Sum, Basic::Real2, &half(0x3c00), &half(0x1000)),
        half(0x3c00)
    );
    assert_eq!(
        reduce(Op::Sum, Basic::Real2, &half(0x6800), &half(0x4200)),
        half(0x6802)
    );
    assert_eq!(
        reduce(Op::Prod, Basic::Real2, &half(0x4200), &half(0xc200)),
        half(0xc880)
    );
    assert_eq!(
        reduce(Op::Max, Basic::Real2, &half(0xc200), &half(0x3c00)),
        half(0x3c00)
    );
    assert_eq!(
        reduce(Op::Min, Basic::Real2, &half(0xc200), &half(0x3c00)),
        half(0xc200)
    );
    // (1 + 2i)(3 + 4i) = -5 + 10i
    let product = reduce(
        Op::Prod,
        Basic::Complex4,
        &bytes([half(0x3c00), half(0x4000)]),
        &bytes([half(0x4200), half(0x4400)]),
    );
    assert_eq!(product, bytes([half(0xc500), half(0x4900)]));
}

/// A small integer in the software format of `basic`.
fn soft_int(basic: Basic, n: i32) -> [u8; 16] {
    let sign = u128::from(n < 0);
    let exponent = |e: u32| u128::from(16383 + e);
    let magnitude = u128::from(n.unsigned_abs());
    let bits = match (n, basic.repr()) {
        (0, _) => 0,
        (_, Repr::F80) => {
            let e = magnitude.ilog2();
            sign << 79 | exponent(e) << 64 | magnitude << (63 - e)
        }
        _ => {
            let e = magnitude.ilog2();
            sign << 127 | exponent(e) << 112 | (magnitude << (112 - e)) & ((1 << 112) - 1)
        }
    };
    bits.to_ne_bytes()
}

#[test]
fn software_floats_and_their_complex_numbers() {
    for (real, complex) in [
        (Basic::LongDouble, Basic::CLongDoubleComplex),
        (Basic::Real16, Basic::Complex32),
    ] {
        let n = |i| soft_int(real, i);
        assert_eq!(
            reduce(Op::Sum, real, &bytes([n(3), n(-8)]), &bytes([n(4), n(8)])),
            bytes([n(7), n(0)])
        );
        assert_eq!(
            reduce(Op::Prod, real, &bytes([n(3), n(-8)]), &bytes([n(4), n(8)])),
            bytes([n(12), n(-64)])
        );
        assert_eq!(
            reduce(Op::Min, real, &bytes([n(3), n(-8)]), &bytes([n(4), n(-9)])),
            bytes([n(3), n(-9)])
        );
        assert_eq!(
            reduce(Op::Max, real, &bytes([n(3), n(-8)]), &bytes([n(4), n(-9)])),
            bytes([n(4), n(-8)])
        );
        let product = reduce(
            Op::Prod,
            complex,
            &bytes([n(1), n(2)]),
            &bytes([n(3), n(4)]),
        );
        assert_eq!(product, bytes([n(-5), n(10)]));
        let sum = reduce(Op::Sum, complex, &bytes([n(1), n(2)]), &bytes([n(3), n(4)]));
        assert_eq!(sum, bytes([n(4), n(6)]));
    }
    let one = u128::from_ne_bytes(soft_int(Basic::Real16, 1));
    assert!(soft::less::<soft::F128>(0, one));
}

#[test]
fn complex_products() {
    for (basic, small) in [
        (Basic::CFloatComplex, true),
        (Basic::Complex8, true),
        (Basic::DoubleComplex, false),
    ] {
        let n = |x: f64| {
            if small {
                (x as f32).to_ne_bytes().to_vec()
            } else {
                x.to_ne_bytes().to_vec()
            }
        };
        let a = bytes([n(1.5), n(-2.0), n(0.0), n(1.0)]);
        let b = bytes([n(3.0), n(4.0), n(0.0), n(1.0)]);
        assert_eq!(
            reduce(Op::Prod, basic, &a, &b),
            bytes([n(12.5), n(0.0), n(-1.0), n(0.0)])
        );
        assert_eq!(
            reduce(Op::Sum, basic, &a, &b),
            bytes([n(4.5), n(2.0), n(0.0), n(2.0)])
        );
    }
}

#[test]
fn logicals_become_zero_or_one() {
    for &basic in Basic::ALL.iter().filter(|b| b.class() == Class::Logical) {
        let n = basic.size() as usize;
        let value = |v: u8| {
            let mut bytes = vec![0; n];
            // In the last byte, where a test of one byte only would not see it.
            bytes[if v > 1 { n - 1 } else { 0 }] = v;
            bytes
        };
        let one = i128::from(1u8).to_le_bytes()[..n].to_vec();
        for (a, b) in [(0, 0), (0, 7), (7, 0), (7, 9)] {
            let truth = |t: bool| if t { one.clone() } else { vec![0; n] };
            assert_eq!(
                reduce(Op::Land, basic, &value(a), &value(b)),
                truth(a != 0 && b != 0)
            );
            assert_eq!(
                reduce(Op::Lor, basic, &value(a), &value(b)),
                truth(a != 0 || b != 0)
            );
            assert_eq!(
                reduce(Op::Lxor, basic, &value(a), &value(b)),
                truth((a != 0) != (b != 0))
            );
        }
    }
}

/// An element of a pair type with small integers as value and index.
fn pair(basic: Basic, value: i32, index: i32) -> Vec<u8> {
    let (v, i) = basic.pair().unwrap();
    let store = |b: Basic, n: i32| match b.repr() {
        Repr::I16 => (n as i16).to_ne_bytes().to_vec(),
        Repr::I32 => n.to_ne_bytes().to_vec(),
        Repr::I64 => i64::from(n).to_ne_bytes().to_vec(),
        Repr::F32 => (n as f32).to_ne_bytes().to_vec(),
        Repr::F64 => f64::from(n).to_ne_bytes().to_vec(),
        _ => soft_int(b, n).to_vec(),
    };
    let mut element = vec![0; basic.extent() as usize];
    element[..v.size() as usize].copy_from_slice(&store(v, value));
    let at = basic.index_displacement() as usize;
    element[at..at + i.size() as usize].copy_from_slice(&store(i, index));
    element
}

#[test]
fn locations_prefer_the_least_index() {
    for &basic in Basic::ALL.iter().filter(|b| b.class() == Class::Pair) {
        let p = |value, index| pair(basic, value, index);
        let cases = [
            ((-3, 5), (2, 1)),
            ((2, 1), (-3, 5)),
            ((4, 9), (4, 2)),
            ((4, 2), (4, 9)),
            ((0, 0), (0, 0)),
        ];
        for ((av, ai), (bv, bi)) in cases {
            let (min, max) = ((av, ai).min((bv, bi)), (-av, ai).min((-bv, bi)));
            // Two elements, to see that the distance between them is right.
            let (a, b) = (bytes([p(av, ai), p(bv, bi)]), bytes([p(bv, bi), p(av, ai)]));
            assert_eq!(
                reduce(Op::Minloc, basic, &a, &b),
                bytes([p(min.0, min.1), p(min.0, min.1)]),
                "{basic}"
            );
            assert_eq!(
                reduce(Op::Maxloc, basic, &a, &b),
                bytes([p(-max.0, max.1), p(-max.0, max.1)]),
                "{basic}"
            );
        }
    }
}

#[test]
fn replace_takes_the_input_and_no_op_leaves_the_target() {
    for &basic in Basic::ALL {
        let (a, b) = (
            vec![1; basic.extent() as usize],
            vec![2; basic.extent() as usize],
        );
        assert_eq!(reduce(Op::Replace, basic, &a, &b), a);
        assert_eq!(reduce(Op::NoOp, basic, &a, &b), b);
    }
}

#[test]
fn the_table_of_what_is_defined() {
    let valid = |op: Op| Basic::ALL.iter().filter(|&&b| is_valid(op, b)).count();
    let of = |class: Class| Basic::ALL.iter().filter(|b| b.class() == class).count();
    // MPI_CHAR beside the standard's.
    let integers = of(Class::Integer) + 1;
    assert_eq!(
        valid(Op::Sum),
        integers + of(Class::Float) + of(Class::Complex)
    );
    assert_eq!(valid(Op::Max), integers + of(Class::Float));
    assert_eq!(valid(Op::Bxor), integers + 1);
    assert_eq!(valid(Op::Lor), integers + of(Class::Logical));
    assert_eq!(valid(Op::Minloc), 9);
    for (op, basic) in [
        (Op::Max, Basic::Complex),
        (Op::Band, Basic::Float),
        (Op::Land, Basic::Double),
        (Op::Sum, Basic::Byte),
        (Op::Sum, Basic::Character),
        (Op::Max, Basic::Wchar),
        (Op::Sum, Basic::Packed),
        (Op::Sum, Basic::FloatInt),
        (Op::Minloc, Basic::Int),
        (Op::Sum, Basic::CBool),
    ] {
        let refused = Err(ReduceError::Undefined { op, basic });
        assert_eq!(apply(op, basic, &mut [], &[]), refused);
    }
    for &op in Op::ALL {
        assert_eq!(Op::from_handle(op.handle()), Some(op));
    }
}

#[test]
fn lengths_are_checked() {
    let mut out = [0; 8];
    assert_eq!(
        apply(Op::Sum, Basic::Int, &mut out, &[0; 4]),
        Err(ReduceError::Lengths {
            expected: 8,
            found: 4
        })
    );
    assert_eq!(
        apply(Op::Sum, Basic::Int, &mut out[..6], &[0; 6]),
        Err(ReduceError::Partial {
            bytes: 6,
            extent: 4
        })
    );
    assert_eq!(apply(Op::Sum, Basic::Int, &mut [], &[]), Ok(()));
}
