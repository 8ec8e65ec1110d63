//! What command and service say to each other over the service's socket, drawn in
//! docs/pfs-format.md: a request is some words, the answer texts and at last an exit code.

use std::io::{self, Read, Write};

const MAGIC: [u8; 4] = *b"MPF1";

/// Bounds of a request.
pub const MOST_WORDS: u32 = 16;
const MOST_BYTES: u32 = 1 << 16;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Text for the standard output.
    Text(String),
    /// The end: nothing, or why it failed.
    End(Result<(), String>),
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn number(from: &mut dyn Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn text(from: &mut dyn Read) -> io::Result<String> {
    let len = number(from)?;
    if len > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sends a request.
///
/// # Errors
/// What the system says.
pub fn ask(to: &mut dyn Write, words: &[String]) -> io::Result<()> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&(words.len() as u32).to_le_bytes());
    for word in words {
        put(&mut out, word.as_bytes());
    }
    to.write_all(&out)
}

/// Receives a request.
///
/// # Errors
/// What the system says, and where it is none.
pub fn asked(from: &mut dyn Read) -> io::Result<Vec<String>> {
    let mut magic = [0; 4];
    from.read_exact(&mut magic)?;
    let count = number(from)?;
    if magic != MAGIC || count > MOST_WORDS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    (0..count).map(|_| text(from)).collect()
}

/// Sends a part of an answer.
///
/// # Errors
/// What the system says.
pub fn answer(to: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    let (kind, text) = match answer {
        Answer::Text(text) => (0, text.as_str()),
        Answer::End(Ok(())) => (1, ""),
        Answer::End(Err(text)) => (2, text.as_str()),
    };
    let mut end = text.len().min(MOST_BYTES as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = vec![kind];
    put(&mut out, &text.as_bytes()[..end]);
    to.write_all(&out)
}

/// Receives a part of an answer.
///
/// # Errors
/// What the system says, and where it is none.
pub fn answered(from: &mut dyn Read) -> io::Result<Answer> {
    let mut kind = [0];
    from.read_exact(&mut kind)?;
    let text = text(from)?;
    match kind[0] {
        0 => Ok(Answer::Text(text)),
        1 => Ok(Answer::End(Ok(()))),
        2 => Ok(Answer::End(Err(text))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_and_noise_is_refused() {
        let words = vec!["status".to_owned(), String::new(), "ä".to_owned()];
        let mut bytes = Vec::new();
        ask(&mut bytes, &words).unwrap();
        assert_eq!(asked(&mut bytes.as_slice()).unwrap(), words);
        for len in 0..bytes.len() {
            assert!(asked(&mut &bytes[..len]).is_err());
        }
        for part in [
            Answer::Text("a\n".into()),
            Answer::End(Ok(())),
            Answer::End(Err("why".into())),
        ] {
            let mut bytes = Vec::new();
            answer(&mut bytes, &part).unwrap();
            assert_eq!(answered(&mut bytes.as_slice()).unwrap(), part);
        }
        assert!(asked(&mut [0xff; 100].as_slice()).is_err());
        assert!(answered(&mut [0xff; 100].as_slice()).is_err());
    }
}
