//! Names of functions as their authors wrote them, without parameters.

/// The longest name that is read, and the deepest nesting.
const MOST_BYTES: usize = 1024;
const MOST_DEPTH: usize = 64;

/// Returns a symbol's name for readers: `_ZN4mesh6smoothEi` is `mesh::smooth`, `__mesh_MOD_smooth`
/// is `mesh::smooth`, `smooth_` of Fortran is `smooth`. What is not understood stays as it is.
pub(crate) fn plain(symbol: &str, is_fortran: bool) -> String {
    // Copies that compilers make of functions: smooth.constprop.0, main._omp_fn.0.
    let (name, copy) = match symbol.find('.') {
        Some(at) if at > 0 => symbol.split_at(at),
        _ => (symbol, ""),
    };
    let copy = match copy {
        part if part.starts_with("._omp_fn") => " (parallel region)",
        _ => "",
    };
    if name == "MAIN__" {
        return format!("main program{copy}");
    }
    if let Some((module, procedure)) = name
        .strip_prefix("__")
        .and_then(|rest| rest.split_once("_MOD_"))
    {
        return format!("{module}::{procedure}{copy}");
    }
    if let Some(rest) = name.strip_prefix("_Z")
        && name.len() <= MOST_BYTES
        && let Some(found) = Mangled::new(rest).name()
    {
        return found + copy;
    }
    let written = name.strip_suffix('_').filter(|_| is_fortran);
    format!("{}{copy}", written.unwrap_or(name))
}

/// The rest of a name in the C++ ABI's encoding. Only names are read; template arguments are passed
/// over and become `<>`.
struct Mangled<'a> {
    rest: &'a [u8],
}

impl<'a> Mangled<'a> {
    fn new(text: &'a str) -> Mangled<'a> {
        Mangled {
            rest: text.as_bytes(),
        }
    }

    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn takes(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The name of a function.
    fn name(mut self) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        // A local name: the encoding of the function around it cannot be passed over without
        // reading types.
        if self.peek() == b'Z' {
            return None;
        }
        self.takes("L");
        if self.takes("N") {
            while matches!(self.peek(), b'r' | b'V' | b'K' | b'R' | b'O') {
                self.skip(1)?;
            }
            while !self.takes("E") {
                self.part(&mut parts)?;
            }
        } else {
            if self.takes("St") {
                parts.push("std".into());
            }
            self.part(&mut parts)?;
            if self.peek() == b'I' {
                self.part(&mut parts)?;
            }
        }
        let found = parts.join("::").replace("::<>", "<>");
        (!found.is_empty() && parts.len() <= MOST_DEPTH).then_some(found)
    }

    fn part(&mut self, parts: &mut Vec<String>) -> Option<()> {
        if parts.len() > MOST_DEPTH {
            return None;
        }
        match self.peek() {
            b'0'..=b'9' => {
                let name = self.source_name()?;
                // Of Rust: a hash, which tells nothing.
                let is_hash = name.len() == 17
                    && name.starts_with('h')
                    && name[1..].bytes().all(|b| b.is_ascii_hexdigit());
                if !is_hash {
                    parts.push(match name.starts_with("_GLOBAL__N") {
                        true => "(anonymous)".into(),
                        false => name,
                    });
                }
            }
            b'I' => {
                self.arguments()?;
                parts.push("<>".into());
            }
            b'S' => {
                self.skip(1)?;
                match self.peek() {
                    b't' | b'a' | b's' | b'b' | b'i' | b'o' | b'd' => {
                        self.skip(1)?;
                        parts.push("std".into());
                    }
                    // What a number stands for is not kept.
                    _ => return None,
                }
            }
            b'C' | b'D' if matches!(self.rest.get(1), Some(b'0'..=b'5')) => {
                let last = parts.iter().rev().find(|part| *part != "<>")?.clone();
                let tilde = if self.peek() == b'D' { "~" } else { "" };
                parts.push(format!("{tilde}{last}"));
                self.skip(2)?;
            }
            b'c' if self.rest.starts_with(b"cl") => {
                self.skip(2)?;
                parts.push("operator()".into());
            }
            b'B' => {
                // A tag of the ABI belongs to the name before.
                self.skip(1)?;
                self.source_name()?;
            }
            b'L' => self.skip(1)?,
            _ => return None,
        }
        Some(())
    }

    fn source_name(&mut self) -> Option<String> {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let len: usize = std::str::from_utf8(&self.rest[..digits])
            .ok()?
            .parse()
            .ok()?;
        self.skip(digits)?;
        let name = self.rest.get(..len).filter(|name| !name.is_empty())?;
        let name = String::from_utf8_lossy(name).into_owned();
        self.skip(len)?;
        Some(name)
    }

    /// Passes over template arguments.
    fn arguments(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                b'0'..=b'9' => {
                    self.source_name()?;
                    continue;
                }
                b'L' => {
                    // A literal: its type and its value, which may have digits. That of a symbol
                    // is beyond what is read here.
                    self.skip(1)?;
                    if self.peek() == b'_' {
                        return None;
                    }
                    if self.peek().is_ascii_digit() {
                        self.source_name()?;
                    }
                    let end = self.rest.iter().position(|&b| b == b'E')?;
                    self.skip(end + 1)?;
                    continue;
                }
                // A substitution's number.
                b'S' | b'T' => {
                    self.skip(1)?;
                    match self.peek() {
                        b'0'..=b'9' | b'A'..=b'Z' | b'_' => {
                            let end = self.rest.iter().position(|&b| b == b'_')?;
                            self.skip(end + 1)?;
                        }
                        _ => self.skip(1)?,
                    }
                    continue;
                }
                // Arrays have a number, expressions operators.
                b'A' | b'X' => return None,
                b'I' | b'N' | b'J' | b'F' => depth += 1,
                b'E' => depth -= 1,
                0 => return None,
                _ => {}
            }
            self.skip(1)?;
            if depth == 0 {
                return Some(());
            }
            if depth > MOST_DEPTH {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("main", "main"),
            ("_Z6smoothi", "smooth"),
            ("_ZN4mesh6smoothEPdi", "mesh::smooth"),
            ("_ZNK4mesh4Grid4sizeEv", "mesh::Grid::size"),
            ("_ZN4GridIdLi3EE6smoothEv", "Grid<>::smooth"),
            ("_Z5applyIiSt6vectorIdSaIdEEEvT_T0_", "apply<>"),
            ("_ZN4mesh4GridC2Ei", "mesh::Grid::Grid"),
            ("_ZN4mesh4GridIiED1Ev", "mesh::Grid<>::~Grid"),
            ("_ZN12_GLOBAL__N_14workEv", "(anonymous)::work"),
            ("_ZL6helperv", "helper"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_Z6smoothi.constprop.0", "smooth"),
            ("main._omp_fn.0", "main (parallel region)"),
            ("__mesh_MOD_smooth", "mesh::smooth"),
            ("MAIN__", "main program"),
            ("_ZZ4mainvENKUlvE_clEv", "?"),
            ("_ZN3fooS_E", "?"),
        ] {
            let found = plain(symbol, false);
            match name == "?" {
                true => assert_eq!(found, symbol, "not understood"),
                false => assert_eq!(found, name),
            }
        }
        assert_eq!(plain("smooth_", true), "smooth");
        assert_eq!(plain("smooth_", false), "smooth_");
    }

    #[test]
    fn any_bytes_are_a_name() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let letters = b"ZNIESLCDFJXT0123456789_abcivt.";
            let name: String = (0..random.usize(..40))
                .map(|_| char::from(letters[random.usize(..letters.len())]))
                .collect();
            let _ = plain(&format!("_Z{name}"), false);
        }
        let deep = format!("_Z1a{}", "I".repeat(5000));
        assert_eq!(plain(&deep, false), deep);
    }
}
