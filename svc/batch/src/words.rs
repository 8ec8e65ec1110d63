//! The words of a command line: options as getopt has them, and the rest.

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
}

/// An option: its letter or a blank, its word or nothing, and whether it has a value.
pub type Known = (char, &'static str, Takes);

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
