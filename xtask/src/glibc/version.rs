//! Versions of symbols of the C library.

use std::fmt;

/// The oldest glibc that everything in the tree runs with: that of Debian 10 and Red Hat Enterprise
/// Linux 8.
pub const OLDEST: Version<'static> = Version {
    family: "GLIBC",
    numbers: (2, 28, 0),
};

/// The newest versions of libgcc_s's functions that systems with that glibc have (gcc 8).
pub const OLDEST_GCC: Version<'static> = Version {
    family: "GCC",
    numbers: (7, 0, 0),
};

/// A symbol's version: `GLIBC_2.2.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version<'a> {
    family: &'a str,
    numbers: (u32, u32, u32),
}

impl<'a> Version<'a> {
    /// Reads a version; none when it has another form, such as `GLIBC_PRIVATE`.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (family, numbers) = text.split_once('_')?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let numbers = (
            parts.next()??,
            parts.next().unwrap_or(Some(0))?,
            parts.next().unwrap_or(Some(0))?,
        );
        parts.next().is_none().then_some(Self { family, numbers })
    }

    /// Whether every system with the oldest glibc has it.
    #[must_use]
    pub fn is_old(&self) -> bool {
        match self.family {
            "GLIBC" => *self <= OLDEST,
            "GCC" => *self <= OLDEST_GCC,
            _ => false,
        }
    }
}

impl fmt::Display for Version<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.numbers.0, self.numbers.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.14"));
        assert!(version("GLIBC_2.28").is_old() && !version("GLIBC_2.29").is_old());
        assert!(!version("GLIBC_3.0").is_old());
        assert!(version("GCC_3.0").is_old() && !version("GCC_12.0.0").is_old());
        assert!(Version::parse("GLIBC_PRIVATE").is_none());
        assert!(Version::parse("GLIBC_ABI_DT_RELR").is_none());
    }
}
