//! What two ranks say to each other before the first packet: each proves that it knows the job's
//! secret, without sending it. `docs/wire.md` draws the bytes.
//!
//! The rank that connects sends a greeting with a nonce; the rank that listens answers with one of
//! its own and a code over both; the first proves itself by another code and waits for a verdict.
//! Codes are HMAC-SHA-256 over a label, the greeting and the nonce, so that none can be used in
//! another place or connection. Until then nothing is read but fields of fixed sizes.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use margay_sys_os::sockets::fill_random;
use sha2::Sha256;

use crate::seal::Keys;

/// The secret of a job.
pub type Secret = [u8; 32];

/// Bytes of a greeting and of its answer.
pub(crate) const GREETING: usize = 64;
/// Bytes of a code, which a proof and a verdict are.
pub(crate) const CODE: usize = 32;
const NONCE: usize = 32;
const NONCE_AT: usize = GREETING - NONCE;

/// "MARGAYt" and the version.
const MAGIC: [u8; 8] = *b"MARGAYt\x01";
/// Tells hosts that order their bytes in another way: what programs send is not converted.
const ORDER: u64 = 0x0102_0304_0506_0708;

/// A greeting as bytes.
pub(crate) type Greeting = [u8; GREETING];
/// The answer to one: a nonce and a code.
pub(crate) type Answer = [u8; GREETING];
pub(crate) type Code = [u8; CODE];

/// Who greets whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) job: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

#[derive(Clone, Copy)]
enum Label {
    Answer,
    Proof,
    Yes,
    No,
    ConnectingKey,
    ListeningKey,
}

/// The secret that a text stands for which both sides have been given.
#[must_use]
pub fn secret_of(text: &[u8]) -> Secret {
    let mac = Hmac::<Sha256>::new_from_slice(b"margay, a secret from a text");
    let mut mac = mac.expect("keys of any length are possible");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

fn code(secret: &Secret, label: Label, greeting: &Greeting, nonce: &[u8]) -> Hmac<Sha256> {
    let label: &[u8; 8] = match label {
        Label::Answer => b"answer\0\0",
        Label::Proof => b"proof\0\0\0",
        Label::Yes => b"yes\0\0\0\0\0",
        Label::No => b"no\0\0\0\0\0\0",
        Label::ConnectingKey => b"key-con\0",
        Label::ListeningKey => b"key-lis\0",
    };
    let mut code = Hmac::<Sha256>::new_from_slice(secret).expect("keys of any length are possible");
    code.update(label);
    code.update(greeting);
    code.update(nonce);
    code
}

fn written(code: Hmac<Sha256>) -> Code {
    code.finalize().into_bytes().into()
}

/// Returns a new greeting.
pub(crate) fn greeting(names: Names) -> io::Result<Greeting> {
    let mut bytes = [0; GREETING];
    fill_random(&mut bytes[NONCE_AT..])?;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&names.job.to_le_bytes());
    bytes[16..20].copy_from_slice(&names.from.to_le_bytes());
    bytes[20..24].copy_from_slice(&names.to.to_le_bytes());
    bytes[24..32].copy_from_slice(&ORDER.to_ne_bytes());
    Ok(bytes)
}

/// Whether bytes can be the beginning of a greeting of this version.
pub(crate) fn may_greet(bytes: &[u8]) -> bool {
    let fixed = bytes.iter().zip(MAGIC);
    fixed.clone().all(|(byte, magic)| *byte == magic)
        && (bytes.len() < 32 || bytes[24..32] == ORDER.to_ne_bytes())
}

/// Returns who greets whom.
pub(crate) fn names(greeting: &Greeting) -> Names {
    let mut job = [0; 8];
    job.copy_from_slice(&greeting[8..16]);
    let rank = |at: usize| {
        let bytes = [
            greeting[at],
            greeting[at + 1],
            greeting[at + 2],
            greeting[at + 3],
        ];
        u32::from_le_bytes(bytes)
    };
    Names {
        job: u64::from_le_bytes(job),
        from: rank(16),
        to: rank(20),
    }
}

/// Returns the answer to a greeting.
pub(crate) fn answer(secret: &Secret, greeting: &Greeting) -> io::Result<Answer> {
    let mut bytes = [0; GREETING];
    fill_random(&mut bytes[..NONCE])?;
    let own = written(code(secret, Label::Answer, greeting, &bytes[..NONCE]));
    bytes[NONCE..].copy_from_slice(&own);
    Ok(bytes)
}

/// Whether who wrote the answer knows the secret.
pub(crate) fn is_answer(secret: &Secret, greeting: &Greeting, answer: &Answer) -> bool {
    let (nonce, proof) = answer.split_at(NONCE);
    let own = code(secret, Label::Answer, greeting, nonce);
    own.verify_slice(proof).is_ok()
}

/// Returns the proof that follows an answer.
pub(crate) fn proof(secret: &Secret, greeting: &Greeting, answer: &Answer) -> Code {
    written(code(secret, Label::Proof, greeting, &answer[..NONCE]))
}

/// Whether who wrote the proof knows the secret.
pub(crate) fn is_proof(
    secret: &Secret,
    greeting: &Greeting,
    answer: &Answer,
    proof: &Code,
) -> bool {
    let own = code(secret, Label::Proof, greeting, &answer[..NONCE]);
    own.verify_slice(proof).is_ok()
}

/// Returns what the listening side says last: whether this connection is used.
pub(crate) fn verdict(
    secret: &Secret,
    greeting: &Greeting,
    answer: &Answer,
    is_used: bool,
) -> Code {
    let label = if is_used { Label::Yes } else { Label::No };
    written(code(secret, label, greeting, &answer[..NONCE]))
}

/// Returns what a verdict says; none when it does not come from the other side.
pub(crate) fn read_verdict(
    secret: &Secret,
    greeting: &Greeting,
    answer: &Answer,
    verdict: &Code,
) -> Option<bool> {
    [true, false].into_iter().find(|&is_used| {
        let label = if is_used { Label::Yes } else { Label::No };
        let own = code(secret, label, greeting, &answer[..NONCE]);
        own.verify_slice(verdict).is_ok()
    })
}

/// Returns the keys of a connection that both sides have proved.
pub(crate) fn keys(secret: &Secret, greeting: &Greeting, answer: &Answer) -> Keys {
    let key = |label| written(code(secret, label, greeting, &answer[..NONCE]));
    Keys {
        connecting: key(Label::ConnectingKey),
        listening: key(Label::ListeningKey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names {
        job: 77,
        from: 3,
        to: 70_000,
    };

    #[test]
    fn who_knows_the_secret_is_believed_and_nobody_else() {
        let (secret, other) = ([1; 32], [2; 32]);
        let hello = greeting(NAMES).unwrap();
        assert!((0..=GREETING).all(|cut| may_greet(&hello[..cut])));
        assert_eq!(names(&hello), NAMES);
        let reply = answer(&secret, &hello).unwrap();
        assert!(is_answer(&secret, &hello, &reply));
        assert!(!is_answer(&other, &hello, &reply));
        let own = proof(&secret, &hello, &reply);
        assert!(is_proof(&secret, &hello, &reply, &own));
        assert!(!is_proof(
            &secret,
            &hello,
            &answer(&secret, &hello).unwrap(),
            &own
        ));
        assert!(!is_proof(&secret, &greeting(NAMES).unwrap(), &reply, &own));
        // The listening side's own code proves nothing when it is sent back.
        let reflected: Code = reply[NONCE..].try_into().unwrap();
        assert!(!is_proof(&secret, &hello, &reply, &reflected));
        for is_used in [true, false] {
            let last = verdict(&secret, &hello, &reply, is_used);
            assert_eq!(read_verdict(&secret, &hello, &reply, &last), Some(is_used));
            assert_eq!(read_verdict(&other, &hello, &reply, &last), None);
        }
    }

    #[test]
    fn what_is_no_greeting_is_found_at_the_first_byte_that_tells() {
        assert!(!may_greet(b"GET / HTTP/1.1"));
        assert!(!may_greet(b"MARGAYt\x02"));
        let mut foreign = greeting(NAMES).unwrap();
        foreign[24..32].reverse();
        assert!(!may_greet(&foreign));
    }

    /// HMAC-SHA-256 of these fields, computed by Python's `hmac` for this version.
    #[test]
    fn codes_are_those_of_the_first_version() {
        let greeting: Greeting = std::array::from_fn(|i| i as u8);
        let nonce: [u8; 32] = std::array::from_fn(|i| 255 - i as u8);
        let own = written(code(&[7; 32], Label::Proof, &greeting, &nonce));
        let hex: String = own.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, PROOF_IN_HEX);
    }

    const PROOF_IN_HEX: &str = "500c83fea6f63aac7e00a04c579bdbd17363b194f284f0b0d729732d9cf85dc9";
}
