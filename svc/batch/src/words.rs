//! The words of a command line: options as getopt has them, and the rest.

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
}

/// An option: its letter or a blank, its word or nothing, and whether it has a value.
pub type Known = (char, &'static str, Takes);

/// How a command is called, as `--help` prints it.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub name: &'static str,
    /// The words behind the name.
    pub form: &'static str,
    /// What it does, as a sentence.
    pub what: &'static str,
    /// Its options; none where they are those of scripts.
    pub options: &'static [Known],
}

impl Usage {
    /// The help of the command that `words` ask for; none where they ask for something else. `asks`
    /// are the options by which its system's commands print help.
    #[must_use]
    pub fn asked(&self, words: &[String], asks: &[&str]) -> Option<String> {
        let own = |letter: char| self.options.iter().any(|own| own.0 == letter);
        let asks_for_help = |word: &String| match word.strip_prefix('-') {
            Some(rest) if rest.len() == 1 => {
                // Scripts' options have all letters.
                !self.options.is_empty() && !rest.chars().any(own) && asks.contains(&word.as_str())
            }
            _ => asks.contains(&word.as_str()),
        };
        // What follows a program or a script belongs to that.
        let is_asked = words.first().is_some_and(asks_for_help)
            || !self.options.is_empty() && words.iter().any(|word| word == "--help");
        is_asked.then(|| self.text())
    }

    /// What `--help` prints.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("Usage: {} {}\n{}\n", self.name, self.form, self.what);
        if !self.options.is_empty() {
            text += "\nOptions:\n";
        }
        for &(letter, word, takes) in self.options {
            let letter = match (letter, word) {
                (' ', _) => "    ".to_owned(),
                (letter, "") => format!("-{letter}"),
                (letter, _) => format!("-{letter}, "),
            };
            let word = match word {
                "" => String::new(),
                word => format!("--{word}"),
            };
            let value = match (takes, word.is_empty()) {
                (Takes::Nothing, _) => "",
                (_, true) => " VALUE",
                (_, false) => "=VALUE",
            };
            text += &format!("  {letter}{word}{value}\n");
        }
        text
    }
}

/// What a command line has.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// Options by their word, or by their letter where they have none.
    options: Vec<(String, Option<String>)>,
    pub rest: Vec<String>,
}

fn name_of(known: &Known) -> String {
    match known.1 {
        "" => known.0.to_string(),
        word => word.to_owned(),
    }
}

impl Words {
    /// Divides the words of a command that knows these options.
    ///
    /// # Errors
    /// In words that name the option.
    pub fn divide(words: &[String], known: &[Known]) -> Result<Words, String> {
        let mut found = Words::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                found.rest.extend(words.by_ref().cloned());
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let option = long_option(name, known)?;
                let value = match (option.2, value) {
                    (Takes::Nothing, Some(_)) => {
                        return Err(format!("option --{name} takes no value"));
                    }
                    (Takes::Value, None) => Some(next(&mut words, word)?),
                    (_, value) => value,
                };
                found.options.push((name_of(option), value));
            } else if word.len() > 1 && word.starts_with('-') {
                found.letters(word, known, &mut words)?;
            } else {
                found.rest.push(word.clone());
            }
        }
        Ok(found)
    }

    fn letters<'a>(
        &mut self,
        word: &str,
        known: &[Known],
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        let mut letters = word[1..].chars();
        while let Some(letter) = letters.next() {
            let option = known
                .iter()
                .find(|option| option.0 == letter && letter != ' ')
                .ok_or_else(|| format!("option -{letter} is not supported"))?;
            let rest = letters.as_str();
            let value = match option.2 {
                Takes::Nothing => None,
                Takes::Value if rest.is_empty() => Some(next(words, word)?),
                _ => Some(rest.strip_prefix('=').unwrap_or(rest).to_owned()),
            };
            if option.2 != Takes::Nothing {
                letters = "".chars();
            }
            self.options.push((name_of(option), value));
        }
        Ok(())
    }

    /// Whether an option is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(own, _)| own == name)
    }

    /// The last value of an option.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.options.iter().rev();
        all.find(|(own, _)| own == name)?.1.as_deref()
    }

    /// The items of the lists that an option has, in all its places.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        let own = self.options.iter().filter(|(own, _)| own == name);
        own.filter_map(|(_, value)| value.as_deref())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

fn next<'a>(words: &mut impl Iterator<Item = &'a String>, of: &str) -> Result<String, String> {
    let value = words.next().cloned();
    value.ok_or_else(|| format!("option {of} needs a value"))
}

/// The option of a long name, or of its beginning where that is enough.
fn long_option<'a>(name: &str, known: &'a [Known]) -> Result<&'a Known, String> {
    if let Some(exact) = known.iter().find(|option| option.1 == name) {
        return Ok(exact);
    }
    let mut begun = known.iter().filter(|option| option.1.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(option), None) if !name.is_empty() => Ok(option),
        _ => Err(format!("option --{name} is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[
        ('h', "noheader", Takes::Nothing),
        ('o', "format", Takes::Value),
        (' ', "json", Takes::Nothing),
        ('X', "", Takes::Nothing),
    ];

    fn divide(words: &[&str]) -> Result<Words, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Words::divide(&words, KNOWN)
    }

    #[test]
    fn help_is_printed_where_it_is_asked_for() {
        let usage = Usage {
            name: "squeue",
            form: "[OPTIONS]",
            what: "Lists jobs.",
            options: KNOWN,
        };
        let asked = |usage: &Usage, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            usage.asked(&words, &["--help", "--usage", "-h", "-H"])
        };
        let text = asked(&usage, &["--help"]).unwrap();
        assert_eq!(
            text,
            "Usage: squeue [OPTIONS]\nLists jobs.\n\nOptions:\n  -h, --noheader\n  -o, --format=VALUE\n      --json\n  -X\n"
        );
        assert!(asked(&usage, &["-o", "%i", "--help"]).is_some());
        assert!(asked(&usage, &["-H"]).is_some(), "no option of its own");
        assert!(asked(&usage, &["-h"]).is_none(), "its own option");
        assert!(asked(&usage, &[]).is_none());
        let runs = Usage {
            options: &[],
            ..usage
        };
        assert!(asked(&runs, &["script", "--help"]).is_none());
    }

    #[test]
    fn options_stand_where_getopt_finds_them() {
        let words = divide(&["-hXo%i", "a", "--form", "x,y", "--json", "--", "-h"]).unwrap();
        assert!(words.has("noheader") && words.has("X") && words.has("json"));
        assert_eq!(words.value("format"), Some("x,y"));
        assert_eq!(words.list("format"), ["%i", "x", "y"]);
        assert_eq!(words.rest, ["a", "-h"]);
        for wrong in [&["-q"][..], &["--q"], &["-o"], &["--noheader=1"]] {
            assert!(divide(wrong).is_err(), "{wrong:?}");
        }
    }
}
