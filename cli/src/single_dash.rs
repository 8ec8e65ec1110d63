//! The way MPI users type options: long names after a single dash (`-np 4`), several programs
//! between colons, and everything after a program's name is the program's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command};
use strsim::levenshtein;

/// Splits a command line at the colons, writes long options with two dashes, and puts `--` before
/// each program. `command` knows the options and how many values each takes.
///
/// # Errors
/// When there is nothing between two colons, or an option does not exist.
pub fn segments(command: &Command, arguments: Vec<OsString>) -> Result<Vec<Vec<OsString>>, String> {
    let mut command = command.clone();
    command.build();
    let mut segments = Vec::new();
    let mut words = arguments.into_iter().peekable();
    loop {
        let (segment, more) = segment(&command, &mut words)?;
        let empty = segment.is_empty();
        segments.push(segment);
        if empty && (more || segments.len() > 1) {
            return Err(
                "there is no program before or after a ':'; write: -n 2 a.out : -n 4 b.out".into(),
            );
        }
        if !more {
            return Ok(segments);
        }
    }
}

/// One segment, and whether a colon ended it.
fn segment(
    command: &Command,
    words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>,
) -> Result<(Vec<OsString>, bool), String> {
    let mut segment = Vec::new();
    while let Some(word) = words.next() {
        if word == ":" {
            return Ok((segment, true));
        }
        let is_option = word.as_bytes().starts_with(b"-") && word.len() > 1 && word != "--";
        if !is_option {
            segment.push("--".into());
            if word != "--" {
                segment.push(word);
            }
            for word in words.by_ref() {
                if word == ":" {
                    return Ok((segment, true));
                }
                segment.push(word);
            }
            return Ok((segment, false));
        }
        let (written, values) = option(command, &word)?;
        segment.push(written);
        for _ in 0..values {
            // Values may begin with a dash; a colon ends the segment in any case.
            match words.next_if(|w| w != ":") {
                Some(value) => segment.push(value),
                None => break,
            }
        }
    }
    Ok((segment, false))
}

/// Returns how the parser wants an option to be written, and how many of the following words are
/// its.
///
/// # Errors
/// When there is no such option.
pub fn option(command: &Command, word: &OsStr) -> Result<(OsString, usize), String> {
    let text = word.to_string_lossy();
    let name = text.trim_start_matches('-');
    let (long, joined) = match name.split_once('=') {
        Some((long, _)) => (long, true),
        None => (name, false),
    };
    if let Some(arg) = find(command, |arg| {
        arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|a| a.contains(&long))
    }) {
        let values = if joined { 0 } else { values(arg) };
        return Ok((format!("--{name}").into(), values));
    }
    let unknown = || match nearest(command, long) {
        Some(near) => format!("there is no option '{text}'; is --{near} meant?"),
        None => format!("there is no option '{text}'"),
    };
    if text.starts_with("--") {
        return Err(unknown());
    }
    let short = |letter: char| {
        find(command, |arg| {
            arg.get_short() == Some(letter)
                || arg
                    .get_all_short_aliases()
                    .is_some_and(|a| a.contains(&letter))
        })
    };
    let mut letters = name.chars();
    let arg = letters.next().and_then(short).ok_or_else(unknown)?;
    let rest = letters.as_str();
    let number = rest.starts_with(|c: char| c.is_ascii_digit());
    match values(arg) {
        values if rest.is_empty() => Ok((word.to_owned(), values)),
        0 if rest
            .chars()
            .all(|c| short(c).is_some_and(|a| values(a) == 0)) =>
        {
            Ok((word.to_owned(), 0))
        }
        1 if number => match arg.get_long() {
            Some(long) => Ok((format!("--{long}={rest}").into(), 0)),
            None => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

/// Returns the option whose name is like `name`, if there is one: at most a third of its letters differ.
fn nearest<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
    let names = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let names = names.filter_map(Arg::get_long);
    names
        .map(|long| (levenshtein(long, name), long))
        .filter(|&(differing, long)| differing * 3 <= long.len())
        .min()
        .map(|(_, long)| long)
}

fn find(command: &Command, matches: impl Fn(&&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(matches)
}

fn values(arg: &Arg) -> usize {
    if !arg.get_action().takes_values() {
        return 0;
    }
    arg.get_num_args().map_or(1, |n| n.min_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        segments(&crate::options::run_command("mpiexec"), words)
            .unwrap()
            .into_iter()
            .map(|segment| {
                let words: Vec<String> = segment
                    .iter()
                    .map(|w| w.to_string_lossy().into_owned())
                    .collect();
                words.join(" ")
            })
            .collect()
    }

    #[test]
    fn single_dashes_become_double_ones() {
        assert_eq!(split("-np 4 a.out -np 5"), ["--np 4 -- a.out -np 5"]);
        assert_eq!(split("-n 4 a"), ["--n 4 -- a"]);
        assert_eq!(split("--np=4 -wdir d -- a -x"), ["--np=4 --wdir d -- a -x"]);
        assert_eq!(split("-l -quiet a"), ["-l --quiet -- a"]);
        assert_eq!(split("-n4 a"), ["--np=4 -- a"]);
    }

    #[test]
    fn an_unknown_option_names_the_one_that_is_like_it() {
        let command = crate::options::run_command("mpiexec");
        let told = |word: &str| option(&command, OsStr::new(word)).unwrap_err();
        assert_eq!(
            told("-timout"),
            "there is no option '-timout'; is --timeout meant?"
        );
        assert_eq!(
            told("--labels=3"),
            "there is no option '--labels=3'; is --label meant?"
        );
        assert_eq!(told("--mca"), "there is no option '--mca'");
        assert_eq!(told("--frobnicate"), "there is no option '--frobnicate'");
        assert_eq!(
            (levenshtein("", "ab"), levenshtein("label", "table")),
            (2, 3)
        );
    }

    #[test]
    fn options_with_several_values() {
        assert_eq!(
            split("-env A -1 -genv B : -n 1 a"),
            ["--env A -1 --genv B", "--n 1 -- a"]
        );
        assert_eq!(split("-x A=b -timeout 3 a"), ["-x A=b --timeout 3 -- a"]);
    }

    #[test]
    fn colons_part_programs() {
        assert_eq!(
            split("-n 1 a -z : -n 2 b c"),
            ["--n 1 -- a -z", "--n 2 -- b c"]
        );
        let command = crate::options::run_command("mpiexec");
        for line in ["a :", ": a", "a : : b"] {
            let words = line.split_whitespace().map(OsString::from).collect();
            assert!(segments(&command, words).is_err(), "{line}");
        }
    }
}
