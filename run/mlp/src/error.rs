//! Errors and their texts.

use std::fmt;

/// An error: its number of [`constants`](crate::constants), and a sentence that names the thing,
/// the reason and the remedy. The shim adds the name of the call in front and the process behind.
#[derive(Clone, Debug)]
pub struct Error {
    number: i64,
    text: String,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error.
    #[must_use]
    #[cold]
    pub fn new(number: i64, text: impl Into<String>) -> Error {
        Error {
            number,
            text: text.into(),
        }
    }

    /// Returns the number.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// `Err` with a number and a formatted sentence.
#[macro_export]
macro_rules! refuse {
    ($number:expr, $($text:tt)+) => {
        return Err($crate::error::Error::new($number, format!($($text)+)))
    };
}
