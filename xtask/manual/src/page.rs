//! A manual page as a value, and as the macros of `man`.

use std::fmt::Write as _;

/// An option, an argument or a command with what it does.
pub struct Item {
    /// How it is written.
    pub head: String,
    /// What it does, a paragraph each.
    pub body: Vec<String>,
}

/// A manual page of section 1.
pub struct Page {
    /// The command with dashes, as the file is called.
    pub name: String,
    /// Other names of the same command.
    pub names: Vec<&'static str>,
    /// What it does in a line.
    pub about: String,
    /// How it is called, a line each.
    pub synopsis: Vec<String>,
    /// What it does, a paragraph each.
    pub description: Vec<String>,
    pub commands: Vec<Item>,
    pub arguments: Vec<Item>,
    pub options: Vec<Item>,
    pub notes: Vec<String>,
    /// Guides of the installed tree.
    pub guides: &'static [&'static str],
}

impl Page {
    /// Returns a page that has nothing but its name.
    pub fn new(name: &str, about: &str) -> Page {
        Page {
            name: name.to_owned(),
            names: Vec::new(),
            about: about.trim_end_matches('.').to_owned(),
            synopsis: Vec::new(),
            description: Vec::new(),
            commands: Vec::new(),
            arguments: Vec::new(),
            options: Vec::new(),
            notes: Vec::new(),
            guides: &[],
        }
    }

    /// Returns the page's source.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            text.write_fmt(words).expect("a string grows");
            text.push('\n');
        };
        line(format_args!(
            ".TH {} 1 \"\" \"Margay {}\" \"Margay\"",
            escaped(&self.name.to_uppercase()),
            env!("CARGO_PKG_VERSION")
        ));
        let names: Vec<&str> = std::iter::once(self.name.as_str())
            .chain(self.names.iter().copied())
            .collect();
        line(format_args!(".SH NAME"));
        line(format_args!(
            "{} \\- {}",
            escaped(&names.join(", ")),
            escaped(&self.about)
        ));
        line(format_args!(".SH SYNOPSIS"));
        for (n, call) in self.synopsis.iter().enumerate() {
            if n > 0 {
                line(format_args!(".br"));
            }
            line(format_args!("{}", escaped(call)));
        }
        line(format_args!(".SH DESCRIPTION"));
        paragraphs(&mut line, &self.description);
        for (heading, items) in [
            ("COMMANDS", &self.commands),
            ("ARGUMENTS", &self.arguments),
            ("OPTIONS", &self.options),
        ] {
            if items.is_empty() {
                continue;
            }
            line(format_args!(".SH {heading}"));
            for item in items {
                line(format_args!(".TP"));
                line(format_args!("\\fB{}\\fR", escaped(&item.head)));
                paragraphs(&mut line, &item.body);
            }
        }
        if !self.notes.is_empty() {
            line(format_args!(".SH NOTES"));
            paragraphs(&mut line, &self.notes);
        }
        if !self.guides.is_empty() {
            line(format_args!(".SH SEE ALSO"));
            let guides = self.guides.join(", ");
            line(format_args!(
                "In the folder share/doc/margay of the installation: {}",
                escaped(&guides)
            ));
        }
        text
    }
}

/// Paragraphs with space between them; those that begin with blanks are shown as they are.
fn paragraphs(line: &mut impl FnMut(std::fmt::Arguments<'_>), all: &[String]) {
    for (n, paragraph) in all.iter().enumerate() {
        if n > 0 {
            line(format_args!(".sp"));
        }
        if paragraph.starts_with(' ') {
            line(format_args!(".nf"));
            for words in paragraph.lines() {
                line(format_args!("{}", escaped(words)));
            }
            line(format_args!(".fi"));
        } else {
            line(format_args!("{}", escaped(paragraph)));
        }
    }
}

/// A text whose characters mean themselves: a dash is the dash of options, and no line begins with
/// a request.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        match c {
            '\\' => all.push_str("\\e"),
            '-' => all.push_str("\\-"),
            '\'' => all.push_str("\\(aq"),
            '`' => all.push_str("\\(ga"),
            '^' => all.push_str("\\(ha"),
            '~' => all.push_str("\\(ti"),
            '\n' => all.push(' '),
            _ => all.push(c),
        }
    }
    match all.starts_with('.') {
        true => format!("\\&{all}"),
        false => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_mean_themselves() {
        assert_eq!(escaped("-n 'a\\b'"), "\\-n \\(aqa\\eb\\(aq");
        assert_eq!(escaped(".SH"), "\\&.SH");
    }

    #[test]
    fn a_page_has_its_names_and_its_items() {
        let mut page = Page::new("a-b", "Does it.");
        page.names.push("c");
        page.options.push(Item {
            head: "--x".into(),
            body: vec!["First".into(), "Second".into()],
        });
        let text = page.text();
        assert!(text.starts_with(".TH A\\-B 1 \"\" \"Margay "), "{text}");
        assert!(text.contains("\na\\-b, c \\- Does it\n"), "{text}");
        assert!(
            text.contains(".TP\n\\fB\\-\\-x\\fR\nFirst\n.sp\nSecond\n"),
            "{text}"
        );
    }
}
