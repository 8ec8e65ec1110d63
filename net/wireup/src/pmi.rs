//! PMI-1: lines of text over a connection that the launcher hands down.
//!
//! A line is words of the form `key=value`, of which the first is `cmd=...`. A process writes one,
//! and the launcher answers with one; the answer to a fence comes when all processes are there.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::sockets::inherited_connection;

use crate::{Wire, WireError};

/// The key under which launchers say which processes share a host.
const MAPPING: &str = "PMI_process_mapping";
/// No answer is longer than this: values have up to 1,024 bytes.
const LINE_BYTES: u64 = 64 << 10;

/// A launcher that shall end all processes has this much time for it.
const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// The connection of this process.
pub struct Pmi {
    stream: BufReader<File>,
    rank: u32,
    size: u32,
    space: String,
    value_bytes: usize,
}

impl Pmi {
    /// Takes over the connection with that number, and greets the launcher. `numbers` are the
    /// process's and how many there are.
    ///
    /// # Errors
    /// When there is no such connection, or nobody at its other end who speaks PMI.
    pub fn open(
        descriptor: &str,
        numbers: (Option<String>, Option<String>),
    ) -> Result<Pmi, WireError> {
        let number = descriptor
            .parse()
            .map_err(|_| broken("PMI_FD", descriptor))?;
        let stream = inherited_connection(number).map_err(|error| {
            WireError(format!(
                "PMI_FD is {descriptor}, which is no connection of this process ({error}): only the first program that the \
                 launcher starts has it"
            ))
        })?;
        let number = |name, value: Option<String>| -> Result<u32, WireError> {
            let value = value.unwrap_or_default();
            value.parse().map_err(|_| broken(name, &value))
        };
        let (rank, size) = (
            number("PMI_RANK", numbers.0)?,
            number("PMI_SIZE", numbers.1)?,
        );
        if rank >= size {
            return Err(broken("PMI_RANK", &rank.to_string()));
        }
        Pmi::over(stream, rank, size)
    }

    fn over(stream: File, rank: u32, size: u32) -> Result<Pmi, WireError> {
        let mut pmi = Pmi {
            stream: BufReader::new(stream),
            rank,
            size,
            space: String::new(),
            value_bytes: 0,
        };
        pmi.ask(
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        )?;
        let most = pmi.ask("cmd=get_maxes", "maxes")?;
        let most = word(&most, "vallen_max").and_then(|n| n.parse().ok());
        pmi.value_bytes = most.unwrap_or(1024);
        let space = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.space = word(&space, "kvsname").unwrap_or_default().to_owned();
        Ok(pmi)
    }

    /// Writes a line, and returns the answer to it.
    fn ask(&mut self, line: &str, answer: &str) -> Result<String, WireError> {
        self.say(line)?;
        let mut text = String::new();
        let mut limited = std::io::Read::take(&mut self.stream, LINE_BYTES);
        let gone =
            |what: &str| WireError(format!("the launcher does not speak PMI any more: {what}"));
        match limited.read_line(&mut text) {
            Ok(_) if text.ends_with('\n') => {}
            Ok(_) => return Err(gone("it has closed the connection")),
            Err(error) => return Err(gone(&error.to_string())),
        }
        let text = text.trim_end().to_owned();
        let is_good =
            word(&text, "cmd") == Some(answer) && word(&text, "rc").is_none_or(|code| code == "0");
        if !is_good {
            return Err(WireError(format!(
                "to '{line}' the launcher answers '{text}'"
            )));
        }
        Ok(text)
    }

    fn say(&mut self, line: &str) -> Result<(), WireError> {
        let sent = self
            .stream
            .get_mut()
            .write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| {
            WireError(format!("the launcher does not speak PMI any more: {error}"))
        })
    }

    fn look_up(&mut self, key: &str) -> Result<String, WireError> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result")?;
        // The value is the rest of the line: those of launchers themselves may have spaces.
        let value = answer.split_once(" value=").map(|(_, value)| value);
        value
            .map(str::to_owned)
            .ok_or_else(|| WireError(format!("the launcher has no value of {key}")))
    }
}

impl Wire for Pmi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), WireError> {
        if value.len() >= self.value_bytes {
            return Err(WireError(format!(
                "the launcher keeps values of up to {} bytes, and {key} has {}",
                self.value_bytes,
                value.len()
            )));
        }
        let (space, rank) = (&self.space, self.rank);
        let line = format!("cmd=put kvsname={space} key={key}-{rank} value={value}");
        self.ask(&line, "put_result").map(drop)
    }

    fn fence(&mut self) -> Result<(), WireError> {
        self.ask("cmd=barrier_in", "barrier_out").map(drop)
    }

    fn get(&mut self, of: u32, key: &str) -> Result<String, WireError> {
        self.look_up(&format!("{key}-{of}"))
    }

    fn first_of_host(&mut self) -> Option<u32> {
        let mapping = self.look_up(MAPPING).ok()?;
        first_of_node(&mapping, self.rank)
    }

    fn finalize(&mut self) {
        // A launcher that is gone does not count any more.
        let _ = self.ask("cmd=finalize", "finalize_ack");
    }

    fn abort(&mut self, code: i32) {
        if self.say(&format!("cmd=abort exitcode={code}")).is_err() {
            return;
        }
        // The launcher kills this process, too. Others that saw it gone before they are killed
        // would report that instead.
        let mut poll = PollSet::default();
        poll.add_readable(self.stream.get_ref().as_fd());
        let _ = poll.wait(Some(ABORT_LIMIT));
    }
}

fn broken(name: &str, value: &str) -> WireError {
    WireError(format!("{name} is '{value}', which no launcher sets"))
}

/// The value of a word of a line.
fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// The first process on the node of process `rank`. A mapping is `(vector,(first node, nodes,
/// processes on each),...)`; the list is repeated until all processes have a node.
fn first_of_node(mapping: &str, rank: u32) -> Option<u32> {
    let list = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let numbers: Vec<u32> = list
        .split(['(', ')', ','])
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let (blocks, rest) = numbers.as_chunks::<3>();
    let in_round: u64 = blocks
        .iter()
        .map(|&[_, n, each]| u64::from(n) * u64::from(each))
        .sum();
    if !rest.is_empty() || in_round == 0 {
        return None;
    }
    let node_of = |rank: u64| {
        let mut rank = rank % in_round;
        for &[first, nodes, each] in blocks {
            let here = u64::from(nodes) * u64::from(each);
            if rank < here {
                return u64::from(first) + rank / u64::from(each);
            }
            rank -= here;
        }
        u64::MAX
    };
    let node = node_of(rank.into());
    (0..=rank).find(|&other| node_of(other.into()) == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_node_is_found_in_a_mapping() {
        for (mapping, firsts) in [
            ("(vector,(0,4,2))", &[0, 0, 2, 2, 4, 4, 6, 6][..]),
            ("(vector,(0,2,1))", &[0, 1, 0, 1, 0]),
            ("(vector,(0,1,3),(1,2,1))", &[0, 0, 0, 3, 4, 0]),
            ("(vector, (0,1,4))", &[0, 0, 0, 0]),
            ("(vector,(3,1,1),(0,1,2))", &[0, 1, 1]),
        ] {
            for (rank, &first) in (0..).zip(firsts) {
                assert_eq!(
                    first_of_node(mapping, rank),
                    Some(first),
                    "{mapping} {rank}"
                );
            }
        }
        for none in [
            "",
            "(vector",
            "(vector,)",
            "(vector,(0,1))",
            "(vector,(0,0,2))",
            "x",
        ] {
            assert_eq!(first_of_node(none, 1), None, "{none}");
        }
    }

    #[test]
    fn words_of_a_line_are_found_by_their_key() {
        let line = "cmd=get_result rc=0 msg=success value=(vector, (0,1,2))";
        assert_eq!(word(line, "cmd"), Some("get_result"));
        assert_eq!(word(line, "rc"), Some("0"));
        assert_eq!(word(line, "key"), None);
    }
}
