//! Which file has the interpreter of Python, of which version.

use crate::elf::Elf;

/// An interpreter in a file.
pub(crate) struct Runtime {
    /// Where its state is, as an address in the file.
    pub(crate) state: u64,
    /// The second number of its version.
    pub(crate) minor: u32,
}

impl Runtime {
    /// The interpreter in a file of that name, if there is one.
    pub(crate) fn of(path: &str, elf: Option<&Elf>) -> Option<Runtime> {
        let name = path.rsplit('/').next()?;
        let name = name.strip_prefix("lib").unwrap_or(name);
        let digits = name.strip_prefix("python3.")?;
        let end = digits.find(|c: char| !c.is_ascii_digit());
        Some(Runtime {
            minor: digits[..end.unwrap_or(digits.len())].parse().ok()?,
            state: elf?.data("_PyRuntime")?,
        })
    }
}
