//! What a partition has beside its nodes: permissions and scheduling, as users write them.

use std::fmt;

/// The highest effective priority limit; 0 is the lowest.
pub const MOST_PRIORITY: u32 = 10;

/// What a user may do with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See it and its subpartitions.
    Read,
    /// Change its attributes, make and remove subpartitions.
    Write,
    /// Run applications in it.
    Run,
}

impl Right {
    fn bit(self) -> u16 {
        match self {
            Right::Read => 4,
            Right::Write => 2,
            Right::Run => 1,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Read => "read (r)",
            Right::Write => "write (w)",
            Right::Run => "execute (x)",
        })
    }
}

/// Permissions for owner, group and others, as those of files: nine bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Reads `755` or `rwxr-xr-x`; none when it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Mode> {
        if text.len() == 3 && text.bytes().all(|b| (b'0'..=b'7').contains(&b)) {
            return u16::from_str_radix(text, 8).ok().map(Mode);
        }
        let letters = "rwxrwxrwx".bytes();
        if text.len() != 9 {
            return None;
        }
        let mut bits = 0;
        for (byte, letter) in text.bytes().zip(letters) {
            let bit = match byte {
                b'-' => 0,
                _ if byte == letter => 1,
                _ => return None,
            };
            bits = bits << 1 | bit;
        }
        Some(Mode(bits))
    }

    /// Three octal digits.
    #[must_use]
    pub fn octal(self) -> String {
        format!("{:03o}", self.0)
    }

    /// Whether these permissions give a right to the owner (class 0), the group (1), others (2).
    #[must_use]
    pub fn allows(self, class: u32, right: Right) -> bool {
        self.0 >> (6 - 3 * class.min(2)) & right.bit() != 0
    }
}

/// How applications share the nodes of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// As the operating system has it (`-ss`).
    Standard,
    /// One application on a node at a time, until it ends (`-sps`).
    Space,
    /// All processes of an application in turn for this many milliseconds (`-rq`).
    Gang { quantum_ms: u64 },
}

impl Scheduling {
    /// Reads a roll-in quantum: a number of milliseconds, or with `s`, `m` or `h` of seconds,
    /// minutes or hours. None when it is none, or longer than a day.
    #[must_use]
    pub fn quantum(text: &str) -> Option<Scheduling> {
        let (digits, unit_ms) = match text.as_bytes().last()? {
            b's' => (&text[..text.len() - 1], 1_000),
            b'm' => (&text[..text.len() - 1], 60_000),
            b'h' => (&text[..text.len() - 1], 3_600_000),
            _ => (text, 1),
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let quantum_ms = digits.parse::<u64>().ok()?.checked_mul(unit_ms)?;
        (1..=86_400_000)
            .contains(&quantum_ms)
            .then_some(Scheduling::Gang { quantum_ms })
    }

    /// Reads what [`Scheduling`]'s `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Scheduling> {
        match text {
            "ss" => Some(Scheduling::Standard),
            "sps" => Some(Scheduling::Space),
            _ => Scheduling::quantum(text.strip_suffix("ms")?),
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduling::Standard => f.write_str("ss"),
            Scheduling::Space => f.write_str("sps"),
            Scheduling::Gang { quantum_ms } => write!(f, "{quantum_ms}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_both_ways() {
        assert_eq!(Mode::parse("rwxr-x--x"), Mode::parse("751"));
        let mode = Mode::parse("640").unwrap();
        assert!(mode.allows(0, Right::Write) && !mode.allows(0, Right::Run));
        assert!(mode.allows(1, Right::Read) && !mode.allows(2, Right::Read));
        assert_eq!(mode.octal(), "640");
        for text in [
            "",
            "75",
            "0755",
            "758",
            "rwx",
            "rwxrwxrwz",
            "xwrxwrxwr",
            "755é",
        ] {
            assert_eq!(Mode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn quanta_have_units() {
        let of = |ms| Some(Scheduling::Gang { quantum_ms: ms });
        for (text, ms) in [
            ("250", 250),
            ("5s", 5_000),
            ("10m", 600_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(Scheduling::quantum(text), of(ms), "{text}");
            assert_eq!(Scheduling::parse(&of(ms).unwrap().to_string()), of(ms));
        }
        for text in [
            "",
            "s",
            "0",
            "-1",
            "+5",
            "5d",
            "25h",
            "99999999999999999999",
            "5é",
        ] {
            assert_eq!(Scheduling::quantum(text), None, "{text}");
        }
    }
}
