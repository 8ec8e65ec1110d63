//! The predefined elementary types and what is fixed about each of them.

use std::fmt;

/// The groups of types that MPI 5.0, section 6.9.2 uses to say which predefined operation applies
/// to which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// C and Fortran integers, and the multi-language types `MPI_AINT`, `MPI_COUNT`, `MPI_OFFSET`.
    Integer,
    /// Real numbers.
    Float,
    /// C and C++ bool, Fortran logicals.
    Logical,
    /// Complex numbers: two reals, the real part first.
    Complex,
    /// `MPI_BYTE`.
    Byte,
    /// Printable characters, on which no reduction is defined.
    Character,
    /// A value and an index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
    /// `MPI_PACKED`.
    Packed,
}

/// How a type's number is stored (in native byte order). For complex types the representation of
/// one part, for pairs that of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repr {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    /// IEEE 754 binary16.
    F16,
    F32,
    F64,
    /// The x87 80-bit format in 16 bytes, of which the last six have no meaning.
    F80,
    /// IEEE 754 binary128.
    F128,
}

/// C's `long double`: the x87 format on x86-64, binary128 elsewhere. 16 bytes on a 16-byte boundary
/// on both.
const LONG_DOUBLE: Repr = if cfg!(target_arch = "x86_64") {
    Repr::F80
} else {
    Repr::F128
};

#[derive(Clone, Copy)]
struct Facts {
    name: &'static str,
    size: u8,
    align: u8,
    extent: u8,
    class: Class,
    repr: Repr,
}

macro_rules! basics {
    ($($(#[$doc:meta])* $variant:ident = $handle:literal, $name:literal, $size:literal, $align:literal, $class:ident, $repr:expr;)*) => {
        /// A predefined elementary datatype of MPI 5.0. The discriminant is the value of its handle
        /// in the standard ABI. Sizes are those of the LP64 model (Linux on x86-64 and on 64-bit
        /// Arm), Fortran's are those of the default kinds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Basic { $($(#[$doc])* $variant = $handle,)* }

        impl Basic {
            /// Every predefined type, in the order of their handles.
            pub const ALL: &'static [Basic] = &[$(Basic::$variant,)*];

            /// The type whose handle in the standard ABI has this value.
            pub const fn from_handle(handle: u64) -> Option<Basic> {
                match handle { $($handle => Some(Basic::$variant),)* _ => None }
            }

            #[inline]
            const fn facts(self) -> &'static Facts {
                &FACTS[self as usize % FACTS.len()]
            }
        }

        /// By the last eight bits of the handle; all handles start with the same ones.
        static FACTS: [Facts; 256] = {
            let mut facts = [Facts { name: "", size: 0, align: 1, extent: 0, class: Class::Byte, repr: Repr::U8 }; 256];
            $(facts[$handle % 256] = Facts {
                name: $name,
                size: $size,
                align: $align,
                // Pairs lie as C's structs do.
                extent: ($size as u8).next_multiple_of($align),
                class: Class::$class,
                repr: $repr,
            };)*
            facts
        };
    };
}

use Repr::*;
basics! {
    Aint = 0x201, "MPI_AINT", 8, 8, Integer, I64;
    Count = 0x202, "MPI_COUNT", 8, 8, Integer, I64;
    Offset = 0x203, "MPI_OFFSET", 8, 8, Integer, I64;
    Packed = 0x207, "MPI_PACKED", 1, 1, Packed, U8;
    Short = 0x208, "MPI_SHORT", 2, 2, Integer, I16;
    Int = 0x209, "MPI_INT", 4, 4, Integer, I32;
    Long = 0x20a, "MPI_LONG", 8, 8, Integer, I64;
    LongLong = 0x20b, "MPI_LONG_LONG_INT", 8, 8, Integer, I64;
    UnsignedShort = 0x20c, "MPI_UNSIGNED_SHORT", 2, 2, Integer, U16;
    Unsigned = 0x20d, "MPI_UNSIGNED", 4, 4, Integer, U32;
    UnsignedLong = 0x20e, "MPI_UNSIGNED_LONG", 8, 8, Integer, U64;
    UnsignedLongLong = 0x20f, "MPI_UNSIGNED_LONG_LONG", 8, 8, Integer, U64;
    Float = 0x210, "MPI_FLOAT", 4, 4, Float, F32;
    CFloatComplex = 0x212, "MPI_C_COMPLEX", 8, 4, Complex, F32;
    CxxFloatComplex = 0x213, "MPI_CXX_FLOAT_COMPLEX", 8, 4, Complex, F32;
    Double = 0x214, "MPI_DOUBLE", 8, 8, Float, F64;
    CDoubleComplex = 0x216, "MPI_C_DOUBLE_COMPLEX", 16, 8, Complex, F64;
    CxxDoubleComplex = 0x217, "MPI_CXX_DOUBLE_COMPLEX", 16, 8, Complex, F64;
    Logical = 0x218, "MPI_LOGICAL", 4, 4, Logical, I32;
    Integer = 0x219, "MPI_INTEGER", 4, 4, Integer, I32;
    Real = 0x21a, "MPI_REAL", 4, 4, Float, F32;
    Complex = 0x21b, "MPI_COMPLEX", 8, 4, Complex, F32;
    DoublePrecision = 0x21c, "MPI_DOUBLE_PRECISION", 8, 8, Float, F64;
    DoubleComplex = 0x21d, "MPI_DOUBLE_COMPLEX", 16, 8, Complex, F64;
    Character = 0x21e, "MPI_CHARACTER", 1, 1, Character, U8;
    LongDouble = 0x220, "MPI_LONG_DOUBLE", 16, 16, Float, LONG_DOUBLE;
    CLongDoubleComplex = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", 32, 16, Complex, LONG_DOUBLE;
    CxxLongDoubleComplex = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", 32, 16, Complex, LONG_DOUBLE;
    FloatInt = 0x228, "MPI_FLOAT_INT", 8, 4, Pair, F32;
    DoubleInt = 0x229, "MPI_DOUBLE_INT", 12, 8, Pair, F64;
    LongInt = 0x22a, "MPI_LONG_INT", 12, 8, Pair, I64;
    /// `MPI_2INT`
    TwoInt = 0x22b, "MPI_2INT", 8, 4, Pair, I32;
    ShortInt = 0x22c, "MPI_SHORT_INT", 6, 4, Pair, I16;
    LongDoubleInt = 0x22d, "MPI_LONG_DOUBLE_INT", 20, 16, Pair, LONG_DOUBLE;
    /// `MPI_2REAL`
    TwoReal = 0x230, "MPI_2REAL", 8, 4, Pair, F32;
    /// `MPI_2DOUBLE_PRECISION`
    TwoDoublePrecision = 0x231, "MPI_2DOUBLE_PRECISION", 16, 8, Pair, F64;
    /// `MPI_2INTEGER`
    TwoInteger = 0x232, "MPI_2INTEGER", 8, 4, Pair, I32;
    CBool = 0x238, "MPI_C_BOOL", 1, 1, Logical, U8;
    CxxBool = 0x239, "MPI_CXX_BOOL", 1, 1, Logical, U8;
    Wchar = 0x23c, "MPI_WCHAR", 4, 4, Character, I32;
    Int8 = 0x240, "MPI_INT8_T", 1, 1, Integer, I8;
    Uint8 = 0x241, "MPI_UINT8_T", 1, 1, Integer, U8;
    Char = 0x243, "MPI_CHAR", 1, 1, Character, I8;
    SignedChar = 0x244, "MPI_SIGNED_CHAR", 1, 1, Integer, I8;
    UnsignedChar = 0x245, "MPI_UNSIGNED_CHAR", 1, 1, Integer, U8;
    Byte = 0x247, "MPI_BYTE", 1, 1, Byte, U8;
    Int16 = 0x248, "MPI_INT16_T", 2, 2, Integer, I16;
    Uint16 = 0x249, "MPI_UINT16_T", 2, 2, Integer, U16;
    Int32 = 0x250, "MPI_INT32_T", 4, 4, Integer, I32;
    Uint32 = 0x251, "MPI_UINT32_T", 4, 4, Integer, U32;
    Int64 = 0x258, "MPI_INT64_T", 8, 8, Integer, I64;
    Uint64 = 0x259, "MPI_UINT64_T", 8, 8, Integer, U64;
    Logical1 = 0x2c0, "MPI_LOGICAL1", 1, 1, Logical, I8;
    Integer1 = 0x2c1, "MPI_INTEGER1", 1, 1, Integer, I8;
    Logical2 = 0x2c8, "MPI_LOGICAL2", 2, 2, Logical, I16;
    Integer2 = 0x2c9, "MPI_INTEGER2", 2, 2, Integer, I16;
    Real2 = 0x2ca, "MPI_REAL2", 2, 2, Float, F16;
    Logical4 = 0x2d0, "MPI_LOGICAL4", 4, 4, Logical, I32;
    Integer4 = 0x2d1, "MPI_INTEGER4", 4, 4, Integer, I32;
    Real4 = 0x2d2, "MPI_REAL4", 4, 4, Float, F32;
    Complex4 = 0x2d3, "MPI_COMPLEX4", 4, 2, Complex, F16;
    Logical8 = 0x2d8, "MPI_LOGICAL8", 8, 8, Logical, I64;
    Integer8 = 0x2d9, "MPI_INTEGER8", 8, 8, Integer, I64;
    Real8 = 0x2da, "MPI_REAL8", 8, 8, Float, F64;
    Complex8 = 0x2db, "MPI_COMPLEX8", 8, 4, Complex, F32;
    Logical16 = 0x2e0, "MPI_LOGICAL16", 16, 16, Logical, I128;
    Integer16 = 0x2e1, "MPI_INTEGER16", 16, 16, Integer, I128;
    Real16 = 0x2e2, "MPI_REAL16", 16, 16, Float, F128;
    Complex16 = 0x2e3, "MPI_COMPLEX16", 16, 8, Complex, F64;
    Complex32 = 0x2eb, "MPI_COMPLEX32", 32, 16, Complex, F128;
}

impl Basic {
    /// Value of the handle in the standard ABI.
    pub const fn handle(self) -> u64 {
        self as u64
    }

    /// Name of the constant, "MPI_INT".
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Bytes of data (without padding).
    #[inline]
    pub const fn size(self) -> u64 {
        self.facts().size as u64
    }

    /// Alignment in bytes, a power of two.
    #[inline]
    pub const fn alignment(self) -> u64 {
        self.facts().align as u64
    }

    /// Bytes from one element of an array to the next: C's `sizeof`. Differs from [`Basic::size`]
    /// for pairs only.
    #[inline]
    pub const fn extent(self) -> u64 {
        self.facts().extent as u64
    }

    /// Which operations apply.
    #[inline]
    pub const fn class(self) -> Class {
        self.facts().class
    }

    /// How its number, its part or its value is stored.
    #[inline]
    pub const fn repr(self) -> Repr {
        self.facts().repr
    }

    /// The types of value and index of a pair type.
    pub const fn pair(self) -> Option<(Basic, Basic)> {
        use Basic::*;
        Some(match self {
            FloatInt => (Float, Int),
            DoubleInt => (Double, Int),
            LongInt => (Long, Int),
            TwoInt => (Int, Int),
            ShortInt => (Short, Int),
            LongDoubleInt => (LongDouble, Int),
            TwoReal => (Real, Real),
            TwoDoublePrecision => (DoublePrecision, DoublePrecision),
            TwoInteger => (Integer, Integer),
            _ => return None,
        })
    }

    /// Displacement in bytes of a pair's index from its value; 0 for other types.
    pub const fn index_displacement(self) -> u64 {
        match self.pair() {
            None => 0,
            Some((value, index)) => value.size().next_multiple_of(index.alignment()),
        }
    }

    /// The entries that `MPI_Get_elements` counts: 2 for a pair, which acts like a struct, else 1.
    pub const fn elements(self) -> u64 {
        if self.pair().is_some() { 2 } else { 1 }
    }
}

impl fmt::Display for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_a_bijection_in_order() {
        assert!(Basic::ALL.windows(2).all(|w| w[0].handle() < w[1].handle()));
        for &b in Basic::ALL {
            assert_eq!(Basic::from_handle(b.handle()), Some(b));
        }
        assert_eq!(Basic::from_handle(0x200), None);
    }

    /// Handles of fixed-size types carry log2 of the size in bits 3 to 5 (MPI 5.0, section 20.2).
    #[test]
    fn handles_of_fixed_size_types_encode_their_size() {
        for &b in Basic::ALL.iter().filter(|b| b.handle() & 0x240 == 0x240) {
            assert_eq!(b.size(), 1 << ((b.handle() >> 3) & 7), "{b}");
        }
    }

    #[test]
    fn pairs_are_laid_out_like_c_structs() {
        #[repr(C)]
        struct ShortInt(i16, i32);
        #[repr(C)]
        struct DoubleInt(f64, i32);
        assert_eq!(Basic::ShortInt.extent(), size_of::<ShortInt>() as u64);
        assert_eq!(Basic::DoubleInt.extent(), size_of::<DoubleInt>() as u64);
        assert_eq!(Basic::LongDoubleInt.extent(), 32);
        for &b in Basic::ALL {
            if let Some((value, index)) = b.pair() {
                assert_eq!(b.size(), value.size() + index.size(), "{b}");
                assert_eq!(
                    b.alignment(),
                    value.alignment().max(index.alignment()),
                    "{b}"
                );
            }
        }
    }
}
