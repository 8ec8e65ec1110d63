//! Strings of the system, which need not be UTF-8, in JSON.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string of the system: a JSON string where it is UTF-8, else an array of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub OsString);

impl From<&OsStr> for Bytes {
    fn from(text: &OsStr) -> Bytes {
        Bytes(text.to_owned())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(OsString::from_vec(bytes))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => text.serialize(serializer),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        Ok(match Either::deserialize(deserializer)? {
            Either::Text(text) => Bytes(text.into()),
            Either::Bytes(bytes) => bytes.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_comes_back_as_it_was() {
        for bytes in [b"a\xffb".to_vec(), "ä\n\"".into(), vec![]] {
            let text = serde_json::to_string(&Bytes::from(bytes.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), bytes.into());
        }
    }
}
