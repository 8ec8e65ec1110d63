//! Where `poe` gets its commands from: its own words, a command file, or the standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// A program with its arguments; never empty.
pub type Words = Vec<OsString>;

/// Lines of commands, one after the other.
#[derive(Debug)]
pub enum Commands {
    /// Of a file, all of which has been read.
    File(std::vec::IntoIter<Words>),
    /// Of the standard input, of which no more is read than lines are asked for: the tasks get the
    /// rest.
    Input,
}

impl Commands {
    /// Reads a command file: words between blanks; empty lines and those that begin with # or ! are
    /// left out.
    ///
    /// # Errors
    /// When it cannot be read, or names no program.
    pub fn of_file(path: &Path) -> Result<Commands, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the command file '{}': {e}", path.display()))?;
        let lines: Vec<Words> = text.lines().filter_map(words).collect();
        if lines.is_empty() {
            let path = path.display();
            return Err(format!("the command file '{path}' names no program"));
        }
        Ok(Commands::File(lines.into_iter()))
    }

    /// Returns the next command; `who` stands before the colon of the prompt that a terminal gets.
    /// At the end of the file, or of the input (also the line `quit`), there is none.
    ///
    /// # Errors
    /// When the standard input cannot be read.
    pub fn next(&mut self, who: &str) -> Result<Option<Words>, String> {
        match self {
            Commands::File(lines) => Ok(lines.next()),
            Commands::Input => next_of_input(|line| read_line(line, who))
                .map_err(|e| format!("cannot read the standard input: {e}")),
        }
    }
}

fn words(line: &str) -> Option<Words> {
    let line = line.trim();
    let is_command = !line.is_empty() && !line.starts_with(['#', '!']);
    is_command.then(|| line.split_whitespace().map(OsString::from).collect())
}

fn next_of_input(
    mut read: impl FnMut(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<Option<Words>> {
    loop {
        let mut line = Vec::new();
        read(&mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        match words(&String::from_utf8_lossy(&line)) {
            Some(words) if words == ["quit"] => return Ok(None),
            Some(words) => return Ok(Some(words)),
            None => {}
        }
    }
}

/// Reads a line byte by byte, because what is behind it belongs to the tasks.
fn read_line(line: &mut Vec<u8>, who: &str) -> io::Result<()> {
    if io::stdin().is_terminal() {
        let _ = write!(io::stderr(), "{who}: program and arguments, or quit: ");
    }
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut byte = [0];
    while input.read(&mut byte)? == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_ends_with_quit_or_with_itself_and_has_comments() {
        let all = |text: &str| {
            let mut rest: Vec<Vec<u8>> = (text.split_inclusive('\n').rev())
                .map(|line| line.as_bytes().to_vec())
                .collect();
            let mut lines = Vec::new();
            while let Some(words) = next_of_input(|line| {
                *line = rest.pop().unwrap_or_default();
                Ok(())
            })
            .unwrap()
            {
                lines.push(words.join(" ".as_ref()));
            }
            lines
        };
        assert_eq!(all("a b\n\n# c\n  d\nquit\ne\n"), ["a b", "d"]);
        assert_eq!(all("a"), ["a"]);
        assert!(all("").is_empty());
    }
}
