//! The lines of batch scripts: `#SBATCH`, `#PBS`, `#QSUB` and LoadLeveler's `# @`. What is not
//! known is refused, since a script that runs without what it asked for gives wrong results later.

pub mod loadleveler;
mod nqs;
pub mod pbs;
pub mod slurm;

use crate::wishes::{Dialect, Wishes};

pub use slurm::options as slurm_options;

/// Longest script that is accepted, in bytes.
pub const MOST_BYTES: usize = 4 << 20;

/// Which options a line has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Slurm,
    Pbs,
    Nqs,
}

impl Kind {
    fn dialect(self) -> Dialect {
        match self {
            Kind::Slurm => Dialect::Slurm,
            Kind::Pbs | Kind::Nqs => Dialect::Pbs,
        }
    }
}

/// Reads what a script asks for: from its lines before the first command.
///
/// # Errors
/// In words, with the number of the line.
pub fn wishes(script: &str) -> Result<Wishes, String> {
    read(script, "#PBS", None)
}

/// Does the same for the command of a batch system: where the script has lines of this one, those
/// of others are remarks. Lines of PBS begin with `prefix`.
///
/// # Errors
/// In words, with the number of the line.
pub fn wishes_for(script: &str, dialect: Dialect, prefix: &str) -> Result<Wishes, String> {
    let header = script
        .lines()
        .map(str::trim)
        .take_while(|line| is_remark(line, prefix));
    let mut kinds = header.filter_map(|line| directive_of(line, prefix));
    let has_own = kinds.any(|(kind, _)| kind.dialect() == dialect);
    read(script, prefix, has_own.then_some(dialect))
}

/// Whether a line is one before the first command.
fn is_remark(line: &str, prefix: &str) -> bool {
    line.is_empty() || line.starts_with('#') || line.starts_with(prefix)
}

/// Reads the lines of one system alone, or of whichever the script has.
fn read(script: &str, prefix: &str, only: Option<Dialect>) -> Result<Wishes, String> {
    let mut wishes = Wishes::default();
    let mut first: Option<Kind> = None;
    for (at, line) in script.lines().enumerate() {
        let line = line.trim();
        if !is_remark(line, prefix) {
            break;
        }
        let in_line = |text: String| format!("line {}: {text}", at + 1);
        let Some((kind, words)) = directive_of(line, prefix) else {
            if only.is_some() {
                continue;
            }
            if let Some(name) = other_system(line) {
                return Err(in_line(format!(
                    "this is a line of {name}, which is not known here; write it as #SBATCH or #PBS"
                )));
            }
            if loadleveler::line(line).is_some() {
                return of_loadleveler(script, first);
            }
            continue;
        };
        if only.is_some_and(|only| only != kind.dialect()) {
            continue;
        }
        if first.is_some_and(|other| other != kind) {
            return Err(in_line(
                "lines of two batch systems in one script; leave one kind out".into(),
            ));
        }
        first = Some(kind);
        wishes.dialect = Some(kind.dialect());
        let words = split(words).map_err(in_line)?;
        match kind {
            Kind::Slurm
                if words
                    .first()
                    .is_some_and(|w| ["hetjob", "packjob"].contains(&&**w)) =>
            {
                Err(
                    "heterogeneous jobs (hetjob) are not supported; submit a job for each part"
                        .into(),
                )
            }
            Kind::Slurm => slurm::options(&words, &mut wishes),
            Kind::Pbs => pbs::options(&words, &mut wishes),
            Kind::Nqs => nqs::options(&words, &mut wishes),
        }
        .map_err(in_line)?;
    }
    Ok(wishes)
}

/// The kind of a directive, and what follows it.
fn directive_of<'a>(line: &'a str, prefix: &str) -> Option<(Kind, &'a str)> {
    let nqs = || {
        let rest = line.strip_prefix('#')?.trim_start();
        directive(rest, "QSUB").or_else(|| rest.strip_prefix("@$").filter(|r| r.starts_with('-')))
    };
    directive(line, "#SBATCH")
        .map(|rest| (Kind::Slurm, rest))
        .or_else(|| directive(line, prefix).map(|rest| (Kind::Pbs, rest)))
        .or_else(|| nqs().map(|rest| (Kind::Nqs, rest)))
}

/// What a script of LoadLeveler asks for, when it has one step that is the script itself.
fn of_loadleveler(script: &str, other: Option<Kind>) -> Result<Wishes, String> {
    if other.is_some() {
        return Err("lines of two batch systems in one script; leave one kind out".into());
    }
    let mut steps = loadleveler::steps(script)?;
    let step = steps
        .pop()
        .filter(|step| steps.is_empty() && step.executable.is_none() && step.arguments.is_none());
    step.map(|step| step.wishes).ok_or_else(|| {
        "its LoadLeveler lines have several steps, or a program of their own; submit it with margay ll llsubmit".into()
    })
}

/// What follows a directive's name.
fn directive<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    // As with Slurm, an option may stand directly behind it.
    (rest.is_empty() || rest.starts_with([' ', '\t', '-'])).then_some(rest)
}

/// Whose line it is, if it is a directive of another batch system.
fn other_system(line: &str) -> Option<&'static str> {
    [
        ("#BSUB", "LSF"),
        ("#COBALT", "Cobalt"),
        ("#$", "Grid Engine"),
        ("#PJM", "PJM"),
        ("#MSUB", "Moab"),
    ]
    .into_iter()
    .find(|(name, _)| directive(line, name).is_some_and(|rest| rest.trim_start().starts_with('-')))
    .map(|(_, system)| system)
}

/// Divides a line into words, at spaces outside of quotes; the rest behind a word that begins with
/// `#` is a comment.
///
/// # Errors
/// When a quotation mark is not closed.
pub fn split(line: &str) -> Result<Vec<String>, String> {
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

/// Memory such as `4G`, `1.5gb`, `500MB` or `2Mw` (words of 8 bytes), in MiB; a number alone counts
/// `unit` bytes.
pub(crate) fn memory(text: &str, unit: u64) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let whole: u64 = text[..digits].parse().ok()?;
    let (millionths, rest) = match text[digits..].strip_prefix('.') {
        None => (0, &text[digits..]),
        Some(rest) => {
            let count = rest.bytes().take_while(u8::is_ascii_digit).count();
            // Digits behind the first six are less than a byte of a MiB.
            let digits = &rest[..count.min(6)];
            let millionths: u64 = format!("{digits:0<6}").parse().ok()?;
            (millionths, &rest[count..])
        }
    };
    let rest = rest.to_ascii_lowercase();
    let (letter, size) = match rest.strip_suffix('w') {
        Some(letter) => (letter, 8),
        None => (rest.trim_end_matches('b'), 1),
    };
    let scale = match letter {
        "" if rest.ends_with(['b', 'w']) => 1,
        "" => unit,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    let scale: u64 = scale * size;
    let part = u128::from(millionths) * u128::from(scale) / 1_000_000;
    let bytes = whole
        .checked_mul(scale)?
        .checked_add(u64::try_from(part).ok()?)?;
    Some(bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests;
