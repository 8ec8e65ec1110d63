//! The lines of batch scripts: `#SBATCH` and `#PBS`. What is not known is refused, since a script
//! that runs without what it asked for gives wrong results later.

mod pbs;
mod slurm;

use crate::wishes::{Dialect, Wishes};

pub use slurm::options as slurm_options;

/// Longest script that is accepted, in bytes.
pub const MOST_BYTES: usize = 4 << 20;

/// Reads what a script asks for: from its lines before the first command.
///
/// # Errors
/// In words, with the number of the line.
pub fn wishes(script: &str) -> Result<Wishes, String> {
    let mut wishes = Wishes::default();
    for (at, line) in script.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            break;
        }
        let (dialect, words) = match (directive(line, "#SBATCH"), directive(line, "#PBS")) {
            (Some(words), _) => (Dialect::Slurm, words),
            (_, Some(words)) => (Dialect::Pbs, words),
            _ => match other_system(line) {
                Some(name) => {
                    let line_number = at + 1;
                    return Err(format!(
                        "line {line_number} is one of {name}, which is not known here; write it as #SBATCH or #PBS"
                    ));
                }
                None => continue,
            },
        };
        let in_line = |text: String| format!("line {}: {text}", at + 1);
        if wishes.dialect.is_some_and(|other| other != dialect) {
            return Err(in_line(
                "#PBS and #SBATCH lines in one script; leave one kind out".into(),
            ));
        }
        wishes.dialect = Some(dialect);
        let words = split(words).map_err(in_line)?;
        match dialect {
            Dialect::Slurm => slurm::options(&words, &mut wishes),
            Dialect::Pbs => pbs::options(&words, &mut wishes),
        }
        .map_err(in_line)?;
    }
    Ok(wishes)
}

/// What follows a directive's name.
fn directive<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

/// Whose line it is, if it is a directive of another batch system.
fn other_system(line: &str) -> Option<&'static str> {
    for (name, system) in [("#BSUB", "LSF"), ("#COBALT", "Cobalt"), ("#QSUB", "NQS")] {
        if directive(line, name).is_some() {
            return Some(system);
        }
    }
    // LoadLeveler's `# @ keyword = value`.
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix('@')?;
    (rest.contains('=') || rest.trim() == "queue").then_some("LoadLeveler")
}

/// Divides a line into words, at spaces outside of quotes; the rest behind a word that begins with
/// `#` is a comment.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

/// An option of a line: its name as the script has it, and its value.
struct Found {
    shown: String,
    value: Option<String>,
}

impl Found {
    fn value(&self) -> Result<&str, String> {
        self.value
            .as_deref()
            .ok_or_else(|| format!("{} needs a value", self.shown))
    }

    fn text(&self) -> Result<String, String> {
        self.value().map(str::to_owned)
    }

    /// A whole number, 1 at least.
    fn count(&self) -> Result<u32, String> {
        let value = self.value()?;
        let count = value.parse().ok().filter(|&count| count > 0);
        count.ok_or_else(|| self.wrong("a whole number, 1 or more"))
    }

    fn wrong(&self, expected: &str) -> String {
        let value = self.value.as_deref().unwrap_or("");
        format!("{} {value}: expected {expected}", self.shown)
    }

    fn unknown(&self) -> String {
        let value = self.value.as_deref().map(|v| format!(" {v}"));
        format!(
            "{}{} is not supported; leave it out if the job can do without",
            self.shown,
            value.unwrap_or_default()
        )
    }
}

/// Memory such as `4G` or `500MB`, in MiB; a number alone counts `unit` bytes.
pub(crate) fn memory(text: &str, unit: u64) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let scale = match text[digits..].to_ascii_lowercase().trim_end_matches('b') {
        "" if text.ends_with(['b', 'B']) => 1,
        "" => unit,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    Some(number.checked_mul(scale)?.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests;
