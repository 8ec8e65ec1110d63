//! Names of output files with `%`.

use crate::job::JobId;

/// What the letters stand for.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    pub job: JobId,
    /// The array's number and the task's index, for tasks of an array.
    pub array: Option<(JobId, u32)>,
    pub name: &'a str,
    pub user: &'a str,
    pub host: &'a str,
}

/// Replaces `%j` (number), `%J` (the same, of a step with its own), `%A` (number of the array),
/// `%a` (index), `%b` (index modulo 10), `%x` (name), `%u` (user), `%N` (host), `%n`, `%t` and
/// `%s` (node, task and step: those of the script) and `%%`; a number after the `%` pads numbers
/// with zeros, as in `%4a`. Other letters stay, and behind a backslash all do. A `/` in a job's
/// name becomes `_`, so a name cannot lead into another folder.
#[must_use]
pub fn expand(pattern: &str, names: &Names<'_>) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        let tail = &rest[at + 1..];
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        let width = tail[..digits].parse().unwrap_or(0).min(10);
        let letter = tail[digits..].chars().next();
        let padded = |number: u64| format!("{number:0width$}");
        let text = match letter {
            Some('j' | 'J') => Some(padded(names.job)),
            Some('b') => Some(padded(names.array.map_or(0, |a| u64::from(a.1 % 10)))),
            Some('n' | 't') => Some(padded(0)),
            Some('s') => Some("batch".to_owned()),
            Some('A') => Some(padded(names.array.map_or(names.job, |a| a.0))),
            // What Slurm prints for a job that is no task of an array.
            Some('a') => Some(padded(
                names
                    .array
                    .map_or(u64::from(u32::MAX - 1), |a| u64::from(a.1)),
            )),
            Some('x') => Some(names.name.replace('/', "_")),
            Some('u') => Some(names.user.to_owned()),
            Some('N') => Some(names.host.to_owned()),
            Some('%') => Some("%".to_owned()),
            _ => None,
        };
        let letter_len = letter.map_or(0, char::len_utf8);
        match text {
            Some(text) => out += &text,
            None => out += &rest[at..at + 1 + digits + letter_len],
        }
        rest = &tail[digits + letter_len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_replaced_and_names_stay_in_their_folder() {
        let mut names = Names {
            job: 17,
            array: None,
            name: "../a b",
            user: "me",
            host: "h",
        };
        assert_eq!(expand("slurm-%j.out", &names), "slurm-17.out");
        assert_eq!(expand("%x_%u@%N%%%q%", &names), ".._a b_me@h%%q%");
        names.array = Some((15, 2));
        assert_eq!(expand("%A_%4a.%5j", &names), "15_0002.00017");
        assert_eq!(expand("ä%ö%999999999999j", &names), "ä%ö0000000017");
        assert_eq!(expand("%J.%s.%2t", &names), "17.batch.00");
        assert_eq!(expand("a\\%j", &names), "a%j");
    }
}
