//! The loops: an operation and a type choose a function on the bytes of two elements, a [`Kernel`]
//! applies it to all.

use margay_core_datatype::{Basic, Class, Repr};

use crate::soft::{self, F80, F128, Format};
use crate::{Op, Vectors, each, half};

/// Where operands come from and results go.
pub(crate) trait Kernel {
    /// Applies `f(a, b)` to all elements of `N` bytes.
    fn each<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N]);
    /// The same for an `f` of few instructions, so that a line of elements at a time is a vector.
    fn map<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N])
    where
        Self: Sized,
    {
        self.each(f);
    }
    /// Gives the first operand.
    fn first(self);
    /// Gives the second operand.
    fn second(self);
}

/// `inout = input op inout`.
pub(crate) struct InPlace<'a> {
    pub inout: &'a mut [u8],
    pub input: &'a [u8],
}

/// `out = a op b`.
pub(crate) struct Separate<'a> {
    pub out: &'a mut [u8],
    pub a: &'a [u8],
    pub b: &'a [u8],
}

impl Kernel for InPlace<'_> {
    #[inline(always)]
    fn each<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
        each(self.inout, self.input, f);
    }

    fn first(self) {
        self.inout.copy_from_slice(self.input);
    }

    fn second(self) {}
}

impl Kernel for Separate<'_> {
    #[inline(always)]
    fn each<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
        let (a, b) = (self.a.as_chunks::<N>().0, self.b.as_chunks::<N>().0);
        for ((out, a), b) in self.out.as_chunks_mut::<N>().0.iter_mut().zip(a).zip(b) {
            *out = f(*a, *b);
        }
    }

    fn first(self) {
        self.out.copy_from_slice(self.a);
    }

    fn second(self) {
        self.out.copy_from_slice(self.b);
    }
}

/// A kernel whose loops are those of `W`.
pub(crate) struct Wide<'a, W> {
    pub kernel: InPlace<'a>,
    pub vectors: W,
}

impl<W: Vectors> Kernel for Wide<'_, W> {
    #[inline]
    fn each<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
        let Wide { kernel, vectors } = self;
        vectors.run(
            #[inline(always)]
            || kernel.each(f),
        );
    }

    #[inline]
    fn map<const N: usize>(self, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
        let InPlace { inout, input } = self.kernel;
        self.vectors.map(inout, input, f);
    }

    fn first(self) {
        self.kernel.first();
    }

    fn second(self) {
        self.kernel.second();
    }
}

/// Runs `op` on elements of `basic`. The caller has checked that it is valid and that the lengths
/// fit.
#[inline(always)]
pub(crate) fn run<K: Kernel>(op: Op, basic: Basic, kernel: K) {
    match op {
        Op::Sum | Op::Prod if basic.class() == Class::Complex => complex(op, basic.repr(), kernel),
        Op::Sum | Op::Prod | Op::Min | Op::Max => arithmetic(op, basic.repr(), kernel),
        Op::Band | Op::Bor | Op::Bxor => bits(op, kernel),
        Op::Land | Op::Lor | Op::Lxor => logical(op, basic.size(), kernel),
        Op::Minloc | Op::Maxloc => location(op == Op::Maxloc, basic, kernel),
        Op::Replace => kernel.first(),
        Op::NoOp => kernel.second(),
    }
}

/// What arithmetic needs of a number type.
pub(crate) trait Number: Copy {
    /// Whether the processor has vectors of them.
    const IN_VECTORS: bool;
    fn sum(a: Self, b: Self) -> Self;
    fn difference(a: Self, b: Self) -> Self;
    fn product(a: Self, b: Self) -> Self;
    fn less(a: Self, b: Self) -> bool;
    fn equal(a: Self, b: Self) -> bool;
}

/// A number stored in `N` bytes.
pub(crate) trait Stored<const N: usize>: Number {
    fn load(bytes: [u8; N]) -> Self;
    fn store(self) -> [u8; N];
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const IN_VECTORS: bool = size_of::<$t>() <= 8;
            #[inline]
            fn sum(a: $t, b: $t) -> $t { a.wrapping_add(b) }
            #[inline]
            fn difference(a: $t, b: $t) -> $t { a.wrapping_sub(b) }
            #[inline]
            fn product(a: $t, b: $t) -> $t { a.wrapping_mul(b) }
            #[inline]
            fn less(a: $t, b: $t) -> bool { a < b }
            #[inline]
            fn equal(a: $t, b: $t) -> bool { a == b }
        }
        native!($t);
    )*};
}

macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const IN_VECTORS: bool = true;
            #[inline]
            fn sum(a: $t, b: $t) -> $t { a + b }
            #[inline]
            fn difference(a: $t, b: $t) -> $t { a - b }
            #[inline]
            fn product(a: $t, b: $t) -> $t { a * b }
            #[inline]
            fn less(a: $t, b: $t) -> bool { a < b }
            #[inline]
            fn equal(a: $t, b: $t) -> bool { a == b }
        }
        native!($t);
    )*};
}

macro_rules! native {
    ($t:ident) => {
        impl Stored<{ size_of::<$t>() }> for $t {
            #[inline]
            fn load(bytes: [u8; size_of::<$t>()]) -> $t {
                $t::from_ne_bytes(bytes)
            }
            #[inline]
            fn store(self) -> [u8; size_of::<$t>()] {
                self.to_ne_bytes()
            }
        }
    };
}

integers!(i8 i16 i32 i64 i128 u8 u16 u32 u64);
floats!(f32 f64);

/// binary16, held as binary32. Every operation rounds.
#[derive(Clone, Copy)]
struct Half(f32);

impl Half {
    #[inline]
    fn rounded(value: f32) -> Half {
        Half(half::round(value))
    }
}

impl Number for Half {
    const IN_VECTORS: bool = false;
    fn sum(a: Half, b: Half) -> Half {
        Half::rounded(a.0 + b.0)
    }
    fn difference(a: Half, b: Half) -> Half {
        Half::rounded(a.0 - b.0)
    }
    fn product(a: Half, b: Half) -> Half {
        Half::rounded(a.0 * b.0)
    }
    fn less(a: Half, b: Half) -> bool {
        a.0 < b.0
    }
    fn equal(a: Half, b: Half) -> bool {
        a.0 == b.0
    }
}

impl Stored<2> for Half {
    fn load(bytes: [u8; 2]) -> Half {
        Half(half::to_f32(u16::from_ne_bytes(bytes)))
    }
    fn store(self) -> [u8; 2] {
        half::from_f32(self.0).to_ne_bytes()
    }
}

/// A number of a software format.
#[derive(Clone, Copy)]
struct Soft<F>(u128, std::marker::PhantomData<F>);

impl<F: Format> Soft<F> {
    fn new(bits: u128) -> Soft<F> {
        Soft(bits, std::marker::PhantomData)
    }
}

impl<F: Format> Number for Soft<F> {
    const IN_VECTORS: bool = false;
    fn sum(a: Soft<F>, b: Soft<F>) -> Soft<F> {
        Soft::new(soft::add::<F>(a.0, b.0))
    }
    fn difference(a: Soft<F>, b: Soft<F>) -> Soft<F> {
        Soft::new(soft::sub::<F>(a.0, b.0))
    }
    fn product(a: Soft<F>, b: Soft<F>) -> Soft<F> {
        Soft::new(soft::mul::<F>(a.0, b.0))
    }
    fn less(a: Soft<F>, b: Soft<F>) -> bool {
        soft::less::<F>(a.0, b.0)
    }
    fn equal(a: Soft<F>, b: Soft<F>) -> bool {
        soft::equal::<F>(a.0, b.0)
    }
}

impl<F: Format> Stored<16> for Soft<F> {
    fn load(bytes: [u8; 16]) -> Soft<F> {
        Soft::new(u128::from_ne_bytes(bytes))
    }
    fn store(self) -> [u8; 16] {
        self.0.to_ne_bytes()
    }
}

/// Calls `$f::<type, bytes of one, bytes of two>` for the type that stores `$repr`.
macro_rules! by_float {
    ($repr:expr, $f:ident($($arg:expr),*), else $other:expr) => {
        match $repr {
            Repr::F16 => $f::<Half, 2, 4, _>($($arg),*),
            Repr::F32 => $f::<f32, 4, 8, _>($($arg),*),
            Repr::F64 => $f::<f64, 8, 16, _>($($arg),*),
            Repr::F80 => $f::<Soft<F80>, 16, 32, _>($($arg),*),
            Repr::F128 => $f::<Soft<F128>, 16, 32, _>($($arg),*),
            _ => $other,
        }
    };
}

fn arithmetic<K: Kernel>(op: Op, repr: Repr, kernel: K) {
    by_float!(repr, real(op, kernel), else match repr {
        Repr::I8 => real::<i8, 1, 2, _>(op, kernel),
        Repr::I16 => real::<i16, 2, 4, _>(op, kernel),
        Repr::I32 => real::<i32, 4, 8, _>(op, kernel),
        Repr::I64 => real::<i64, 8, 16, _>(op, kernel),
        Repr::I128 => real::<i128, 16, 32, _>(op, kernel),
        Repr::U8 => real::<u8, 1, 2, _>(op, kernel),
        Repr::U16 => real::<u16, 2, 4, _>(op, kernel),
        Repr::U32 => real::<u32, 4, 8, _>(op, kernel),
        _ => real::<u64, 8, 16, _>(op, kernel),
    })
}

/// `inout = input op inout` for one number; false for other operations and other lengths.
#[inline]
pub(crate) fn number<T: Stored<N>, const N: usize>(op: Op, inout: &mut [u8], input: &[u8]) -> bool {
    let (Ok(b), Ok(a)) = (<&mut [u8; N]>::try_from(inout), <&[u8; N]>::try_from(input)) else {
        return false;
    };
    let (x, y) = (T::load(*a), T::load(*b));
    let result = match op {
        Op::Sum => T::sum(x, y),
        Op::Prod => T::product(x, y),
        Op::Min if T::less(x, y) => x,
        Op::Max if T::less(y, x) => x,
        Op::Min | Op::Max => y,
        _ => return false,
    };
    *b = result.store();
    true
}

/// Applies `f` to all elements, whose parts are of type `T`.
fn map<T: Number, const N: usize, K: Kernel>(kernel: K, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    if T::IN_VECTORS {
        kernel.map(f);
    } else {
        kernel.each(f);
    }
}

fn real<T: Stored<N>, const N: usize, const TWO: usize, K: Kernel>(op: Op, kernel: K) {
    match op {
        Op::Sum => map::<T, N, _>(kernel, |a, b| T::sum(T::load(a), T::load(b)).store()),
        Op::Prod => map::<T, N, _>(kernel, |a, b| T::product(T::load(a), T::load(b)).store()),
        Op::Min => map::<T, N, _>(kernel, |a, b| {
            let (a, b) = (T::load(a), T::load(b));
            if T::less(a, b) { a } else { b }.store()
        }),
        _ => map::<T, N, _>(kernel, |a, b| {
            let (a, b) = (T::load(a), T::load(b));
            if T::less(b, a) { a } else { b }.store()
        }),
    }
}

fn complex<K: Kernel>(op: Op, repr: Repr, kernel: K) {
    by_float!(repr, complex_of(op, kernel), else unreachable!("complex numbers have floating-point parts"))
}

fn complex_of<T: Stored<N>, const N: usize, const TWO: usize, K: Kernel>(op: Op, kernel: K) {
    // A sum of complex numbers is a sum of their parts.
    if op == Op::Sum {
        return map::<T, N, _>(kernel, |a, b| T::sum(T::load(a), T::load(b)).store());
    }
    let parts = |bytes: [u8; TWO]| -> (T, T) {
        let (real, imaginary) = bytes.split_at(N);
        let part = |half: &[u8]| T::load(half.try_into().expect("half of a complex number"));
        (part(real), part(imaginary))
    };
    map::<T, TWO, _>(kernel, |a: [u8; TWO], b: [u8; TWO]| {
        let ((ar, ai), (br, bi)) = (parts(a), parts(b));
        let real = T::difference(T::product(ar, br), T::product(ai, bi));
        let imaginary = T::sum(T::product(ar, bi), T::product(ai, br));
        let mut out = [0; TWO];
        out[..N].copy_from_slice(&real.store());
        out[N..].copy_from_slice(&imaginary.store());
        out
    })
}

/// Bit by bit, so byte by byte, whatever the type.
fn bits<K: Kernel>(op: Op, kernel: K) {
    match op {
        Op::Band => kernel.map(|a: [u8; 1], b| [a[0] & b[0]]),
        Op::Bor => kernel.map(|a: [u8; 1], b| [a[0] | b[0]]),
        _ => kernel.map(|a: [u8; 1], b| [a[0] ^ b[0]]),
    }
}

fn logical<K: Kernel>(op: Op, size: u64, kernel: K) {
    match size {
        1 => truth::<u8, 1, _>(op, kernel),
        2 => truth::<u16, 2, _>(op, kernel),
        4 => truth::<u32, 4, _>(op, kernel),
        8 => truth::<u64, 8, _>(op, kernel),
        _ => truth::<i128, 16, _>(op, kernel),
    }
}

fn truth<T: Stored<N> + From<bool>, const N: usize, K: Kernel>(op: Op, kernel: K) {
    let holds = |bytes| !T::equal(T::load(bytes), T::from(false));
    let store = |truth| T::from(truth).store();
    match op {
        Op::Land => map::<T, N, _>(kernel, |a, b| store(holds(a) & holds(b))),
        Op::Lor => map::<T, N, _>(kernel, |a, b| store(holds(a) | holds(b))),
        _ => map::<T, N, _>(kernel, |a, b| store(holds(a) ^ holds(b))),
    }
}

/// Minimum or maximum of the value; of equal values the one with the least index.
fn location<K: Kernel>(max: bool, basic: Basic, kernel: K) {
    match basic {
        Basic::FloatInt => pair::<f32, i32, 4, 4, 8, _>(max, 4, kernel),
        Basic::DoubleInt => pair::<f64, i32, 8, 4, 16, _>(max, 8, kernel),
        Basic::LongInt => pair::<i64, i32, 8, 4, 16, _>(max, 8, kernel),
        Basic::TwoInt | Basic::TwoInteger => pair::<i32, i32, 4, 4, 8, _>(max, 4, kernel),
        Basic::ShortInt => pair::<i16, i32, 2, 4, 8, _>(max, 4, kernel),
        Basic::TwoReal => pair::<f32, f32, 4, 4, 8, _>(max, 4, kernel),
        Basic::TwoDoublePrecision => pair::<f64, f64, 8, 8, 16, _>(max, 8, kernel),
        _ if basic.repr() == Repr::F80 => pair::<Soft<F80>, i32, 16, 4, 32, _>(max, 16, kernel),
        _ => pair::<Soft<F128>, i32, 16, 4, 32, _>(max, 16, kernel),
    }
}

fn pair<V, I, const VALUE: usize, const INDEX: usize, const EXTENT: usize, K>(
    max: bool,
    at: usize,
    kernel: K,
) where
    V: Stored<VALUE>,
    I: Stored<INDEX>,
    K: Kernel,
{
    let parts = |bytes: &[u8; EXTENT]| {
        let value = bytes[..VALUE].try_into().expect("the value's bytes");
        let index = bytes[at..at + INDEX].try_into().expect("the index's bytes");
        (V::load(value), I::load(index))
    };
    kernel.each(|a: [u8; EXTENT], b: [u8; EXTENT]| {
        let ((av, ai), (bv, bi)) = (parts(&a), parts(&b));
        let better = if max {
            V::less(bv, av)
        } else {
            V::less(av, bv)
        };
        if better || (V::equal(av, bv) && I::less(ai, bi)) {
            a
        } else {
            b
        }
    })
}
