//! What was found, as words and places in the program.

use std::fmt::Write;

/// Where a call stands: the process that made it and the address behind the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    pub process: usize,
    pub address: u64,
}

/// A call of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub name: String,
    pub site: Site,
}

/// Kinds of errors, by which the summary counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    CallOrder,
    Argument,
    Collective,
    Type,
    Operation,
    Root,
    Count,
    Unmatched,
    Race,
    Request,
    Buffer,
    Epoch,
    Conflict,
    Leak,
    Partition,
    Threads,
}

impl Kind {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::CallOrder => "call ordering",
            Kind::Argument => "invalid argument",
            Kind::Collective => "collective mismatch",
            Kind::Type => "datatype mismatch",
            Kind::Operation => "operation mismatch",
            Kind::Root => "root mismatch",
            Kind::Count => "count mismatch",
            Kind::Unmatched => "unmatched message",
            Kind::Race => "message race",
            Kind::Request => "request",
            Kind::Buffer => "buffer in use",
            Kind::Epoch => "epoch",
            Kind::Conflict => "conflicting accesses",
            Kind::Leak => "leak",
            Kind::Partition => "partitioned request",
            Kind::Threads => "threads",
        }
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// To be replaced by file and line.
    Site(Site),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    pub parts: Vec<Part>,
}

impl Finding {
    #[must_use]
    pub fn new(kind: Kind) -> Finding {
        Finding {
            kind,
            parts: Vec::new(),
        }
    }

    /// Adds words.
    #[must_use]
    pub fn say(mut self, words: impl AsRef<str>) -> Finding {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => {
                let _ = text.write_str(words.as_ref());
            }
            _ => self.parts.push(Part::Text(words.as_ref().into())),
        }
        self
    }

    /// Adds a call: its name and where it stands.
    #[must_use]
    pub fn call(self, call: &Call) -> Finding {
        let mut with = self.say(&call.name).say(" ");
        with.parts.push(Part::Site(call.site));
        with
    }

    /// The message, with places as `place` gives them.
    pub fn text(&self, mut place: impl FnMut(Site) -> String) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(words) => text.push_str(words),
                Part::Site(site) => text.push_str(&place(*site)),
            }
        }
        text
    }
}
