//! What a rank of a job on several hosts asks of the launcher's host, by way of its host's agent.
//!
//! A question is one message of a connection to the agent ([`VARIABLE`] names its socket), and so
//! is the answer. What the question is about lives as long as the connection: a name that is
//! published, and the wait for a spawned job.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The environment variable that names the socket of the agent, in the abstract namespace.
pub const VARIABLE: &str = "MARGAY_AGENT";

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Start a job. There is an answer when that fails: the reason; and the connection ends with
    /// the job.
    Spawn(Spawn),
    /// Publish a name; the answer is empty, or says why not.
    Publish {
        /// The service.
        service: String,
        /// The port at which it is.
        port: String,
    },
    /// Look a name up; the answer is the port, or empty.
    Lookup(String),
}

/// A job that a program starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawn {
    /// Where the program waits for it.
    pub port: String,
    /// Its programs.
    pub programs: Vec<Program>,
    /// The environment and the working directory of the process that asks.
    pub environment: Vec<(OsString, OsString)>,
    /// See there.
    pub directory: OsString,
}

/// A program of such a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The number of its processes.
    pub processes: u32,
    /// The hosts on which it shall run, as the launcher's `-host` takes them; empty for those of
    /// the job.
    pub hosts: String,
    /// The launcher's words for it, without these.
    pub words: Vec<OsString>,
}

/// Writes the parts of a message: numbers of 4 bytes, and bytes behind their length.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&(number as u32).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn words(&mut self, words: &[OsString]) {
        self.number(words.len());
        words.iter().for_each(|word| self.bytes(word.as_bytes()));
    }
}

/// Reads them; none at an end that comes too early.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first) as usize)
    }

    fn word(&mut self) -> Option<OsString> {
        let len = self.number()?;
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(OsString::from_vec(first.to_vec()))
    }

    fn text(&mut self) -> Option<String> {
        self.word()?.into_string().ok()
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // A length that lies ends at the end of the bytes.
        (0..self.number()?).map(|_| one(self)).collect()
    }
}

impl Ask {
    /// As a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Ask::Spawn(spawn) => {
                to.number(1);
                to.bytes(spawn.port.as_bytes());
                to.number(spawn.programs.len());
                for program in &spawn.programs {
                    to.number(program.processes as usize);
                    to.bytes(program.hosts.as_bytes());
                    to.words(&program.words);
                }
                to.number(spawn.environment.len());
                for (name, value) in &spawn.environment {
                    to.bytes(name.as_bytes());
                    to.bytes(value.as_bytes());
                }
                to.bytes(spawn.directory.as_bytes());
            }
            Ask::Publish { service, port } => {
                to.number(2);
                to.bytes(service.as_bytes());
                to.bytes(port.as_bytes());
            }
            Ask::Lookup(service) => {
                to.number(3);
                to.bytes(service.as_bytes());
            }
        }
        to.0
    }

    /// From a message; none where it is no question.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Ask> {
        let mut from = Reader(message);
        let ask = match from.number()? {
            1 => Ask::Spawn(Spawn {
                port: from.text()?,
                programs: from.list(|from| {
                    Some(Program {
                        processes: from.number()? as u32,
                        hosts: from.text()?,
                        words: from.list(Reader::word)?,
                    })
                })?,
                environment: from.list(|from| Some((from.word()?, from.word()?)))?,
                directory: from.word()?,
            }),
            2 => Ask::Publish {
                service: from.text()?,
                port: from.text()?,
            },
            3 => Ask::Lookup(from.text()?),
            _ => return None,
        };
        from.0.is_empty().then_some(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_they_were_written_and_parts_are_none() {
        let program = Program {
            processes: 70_000,
            hosts: "a:2,b".into(),
            words: vec!["./x".into(), OsString::from_vec(vec![0xff, b'\n'])],
        };
        let asks = [
            Ask::Spawn(Spawn {
                port: "margay:net".into(),
                programs: vec![program, Program::default()],
                environment: vec![("A".into(), "=".into())],
                directory: "/work".into(),
            }),
            Ask::Publish {
                service: "ocean".into(),
                port: "p".into(),
            },
            Ask::Lookup(String::new()),
        ];
        for ask in asks {
            let bytes = ask.encode();
            assert_eq!(Ask::decode(&bytes), Some(ask));
            assert!((0..bytes.len()).all(|cut| Ask::decode(&bytes[..cut]).is_none()));
        }
        assert_eq!(Ask::decode(&[9; 40]), None);
    }
}
