//! The way MPI users type options: long names after a single dash (`-np 4`), several programs
//! between colons, and everything after a program's name is the program's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command};
use strsim::levenshtein;

use crate::config_file;
use crate::foreign::{self, Translated};

/// Splits a command line at the colons, translates options of other launchers, writes long options
/// with two dashes, and puts `--` before each program. A file of programs gives a segment for each.
/// `command` knows the options and how many values each takes.
///
/// # Errors
/// When there is nothing between two colons, an option does not exist or is refused, or a file of
/// programs is wrong.
pub fn segments(
    command: &mut Command,
    arguments: Vec<OsString>,
) -> Result<Vec<Vec<OsString>>, String> {
    command.build();
    let mut segments = Vec::new();
    let mut words = arguments.into_iter().peekable();
    loop {
        let Segment {
            words: segment,
            more,
            file,
        } = segment(command, &mut words)?;
        let empty = segment.is_empty() && file.is_none();
        match file {
            Some(file) => {
                if segments.len() + usize::from(more) > 0 || words.peek().is_some() {
                    return Err(format!(
                        "the file '{}' names all programs of the job; write no program, no ':' and no option behind it",
                        file.to_string_lossy()
                    ));
                }
                segments = from_file(command, segment, &file)?;
            }
            None => segments.push(segment),
        }
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

/// The segments of a file of programs; the options before the file belong to the first one.
fn from_file(
    command: &Command,
    before: Vec<OsString>,
    file: &OsStr,
) -> Result<Vec<Vec<OsString>>, String> {
    let mut segments = Vec::new();
    for line in config_file::lines(file)? {
        let mut words = line.into_iter().peekable();
        let read = segment(command, &mut words)?;
        if read.file.is_some() {
            return Err(format!(
                "the file '{}' names another file of programs; write the programs themselves",
                file.to_string_lossy()
            ));
        }
        segments.push(read.words);
    }
    if let Some(first) = segments.first_mut() {
        first.splice(0..0, before);
    }
    Ok(segments)
}

/// A part of a command line.
#[derive(Default)]
struct Segment {
    words: Vec<OsString>,
    /// A colon ended it.
    more: bool,
    /// A file of programs was named.
    file: Option<OsString>,
}

fn segment(
    command: &Command,
    words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>,
) -> Result<Segment, String> {
    let mut segment = Segment::default();
    while let Some(word) = words.next() {
        if word == ":" {
            segment.more = true;
            return Ok(segment);
        }
        let is_option = word.as_bytes().starts_with(b"-") && word.len() > 1 && word != "--";
        if !is_option {
            segment.words.push("--".into());
            if word != "--" {
                segment.words.push(word);
            }
            for word in words.by_ref() {
                if word == ":" {
                    segment.more = true;
                    return Ok(segment);
                }
                segment.words.push(word);
            }
            return Ok(segment);
        }
        // Values may begin with a dash; a colon ends the segment in any case.
        match foreign::translated(&word, || words.next_if(|w| w != ":")) {
            Some(translated) => match translated? {
                Translated::Words(own) => segment.words.extend(own),
                Translated::File(file) => {
                    segment.file = Some(file);
                    return Ok(segment);
                }
            },
            None => own_option(command, word, words, &mut segment.words)?,
        }
    }
    Ok(segment)
}

/// Takes an option of Margay's with its values.
fn own_option(
    command: &Command,
    word: OsString,
    words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>,
    segment: &mut Vec<OsString>,
) -> Result<(), String> {
    let (mut written, values) = option_or(command, &word, foreign::names())?;
    let is_joined = word.as_bytes().contains(&b'=');
    let is_number = |word: &OsString| word.as_bytes().iter().all(u8::is_ascii_digit);
    if values == 0
        && !is_joined
        && may_have_value(command, &written)
        && let Some(number) = words.next_if(is_number)
    {
        written.push("=");
        written.push(number);
    }
    segment.push(written);
    for _ in 0..values {
        match words.next_if(|w| w != ":") {
            Some(value) => segment.push(value),
            None => break,
        }
    }
    Ok(())
}

/// Whether an option has a value that may be left out.
fn may_have_value(command: &Command, written: &OsStr) -> bool {
    let name = written.to_string_lossy();
    let name = name.trim_start_matches('-');
    find(command, |arg| arg.get_long() == Some(name)).is_some_and(|arg| {
        arg.get_num_args()
            .is_some_and(|n| n.min_values() == 0 && n.max_values() == 1)
            && arg.get_action().takes_values()
    })
}

/// Returns how the parser wants an option to be written, and how many of the following words are
/// its.
///
/// # Errors
/// When there is no such option.
pub fn option(command: &Command, word: &OsStr) -> Result<(OsString, usize), String> {
    option_or(command, word, std::iter::empty())
}

/// Does the same; `others` are names that may be meant by a wrong one, too.
fn option_or(
    command: &Command,
    word: &OsStr,
    others: impl Iterator<Item = &'static str> + Clone,
) -> Result<(OsString, usize), String> {
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
    let unknown = || match nearest(command, others.clone(), long) {
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

/// Returns the option whose name is like `name`, if there is one: at most a third of its letters
/// differ.
fn nearest<'a>(
    command: &'a Command,
    others: impl Iterator<Item = &'static str>,
    name: &str,
) -> Option<&'a str> {
    let own = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let own = own.filter_map(Arg::get_long);
    own.chain(others.map(|name| -> &'a str { name }))
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
        segments(&mut crate::options::run_command("mpiexec"), words)
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
        let report = |word: &str| option(&command, OsStr::new(word)).unwrap_err();
        assert_eq!(
            report("-timout"),
            "there is no option '-timout'; is --timeout meant?"
        );
        assert_eq!(
            report("--labels=3"),
            "there is no option '--labels=3'; is --label meant?"
        );
        assert_eq!(report("--frobnicate"), "there is no option '--frobnicate'");
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
    fn options_of_other_launchers_are_translated_and_a_wrong_one_names_one_of_them() {
        assert_eq!(
            split("-npernode 2 --mca btl self -genv A=b a -N 3"),
            ["--map-by=ppr:2:node --genv A b -- a -N 3"]
        );
        assert_eq!(split("-gpus 4 -n 2 a"), ["--gpus=4 --n 2 -- a"]);
        assert_eq!(split("-gpus a 4"), ["--gpus -- a 4"]);
        assert_eq!(split("--gpus=2 7"), ["--gpus=2 -- 7"]);
        let mut command = crate::options::run_command("mpiexec");
        let mut wrong = |line: &str| {
            let words = line.split_whitespace().map(OsString::from).collect();
            segments(&mut command, words).unwrap_err()
        };
        let error = wrong("--npernodes 2 a");
        assert_eq!(
            error,
            "there is no option '--npernodes'; is --npernode meant?"
        );
        assert!(wrong("-gdb a").contains("gdbserver"));
    }

    #[test]
    fn a_file_of_programs_is_a_segment_for_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs");
        std::fs::write(&path, "-n 2 a 'b c'\n# no\n-npernode 1 d\n").unwrap();
        let mut command = crate::options::run_command("mpiexec");
        let mut words = |before: &[&str], after: &[&str]| {
            let all = before.iter().map(OsString::from);
            let all = all.chain(["--app".into(), path.clone().into()]);
            segments(
                &mut command,
                all.chain(after.iter().map(OsString::from)).collect(),
            )
        };
        let got = words(&["-l"], &[]).unwrap();
        assert_eq!(got[0], ["-l", "--n", "2", "--", "a", "b c"]);
        assert_eq!(got[1], ["--map-by=ppr:1:node", "--", "d"]);
        for (before, after) in [
            (&["-n", "1", "x", ":"][..], &[][..]),
            (&[], &["x"]),
            (&[], &[":", "x"]),
        ] {
            let error = words(before, after).unwrap_err();
            assert!(error.contains("names all programs of the job"), "{error}");
        }
    }

    #[test]
    fn colons_part_programs() {
        assert_eq!(
            split("-n 1 a -z : -n 2 b c"),
            ["--n 1 -- a -z", "--n 2 -- b c"]
        );
        let mut command = crate::options::run_command("mpiexec");
        for line in ["a :", ": a", "a : : b"] {
            let words = line.split_whitespace().map(OsString::from).collect();
            assert!(segments(&mut command, words).is_err(), "{line}");
        }
    }
}
