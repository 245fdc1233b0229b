//! The errors of keys: values that cannot be keys, and bytes that are no key.

use std::fmt;

/// Why a value cannot be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// NaN (a float or a Decimal) has no place in an order.
    NotANumber,
    /// Tuples nest deeper than `KEY_DEPTH_MAX`.
    TooDeep,
    /// An int or a Decimal's text has 4 GiB or more.
    TooLarge,
    /// Not a Decimal as `str()` writes it, or its exponent does not fit into 64 bits.
    BadDecimal,
    /// A date, a datetime, an offset or a zone that does not exist in Python.
    BadTime,
    /// A str that is not UTF-8 with surrogates.
    BadText,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "NaN has no place in an order; use None or leave it out",
            Self::TooDeep => "tuples in a key nest at most 64 deep",
            Self::TooLarge => "a number in a key has less than 4 GiB",
            Self::BadDecimal => "this is no Decimal as str() writes it, with an exponent of 64 bits",
            Self::BadTime => "there is no such date, time or zone",
            Self::BadText => "a str in a key is UTF-8, with surrogates encoded as characters",
        })
    }
}

impl std::error::Error for KeyError {}

/// The bytes are not those of a key, or not the canonical ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCorrupt {
    /// What is wrong.
    pub what: &'static str,
    /// The offset of the fault in the key, or in its spelling.
    pub offset: usize,
    /// Whether the fault is in the spelling.
    pub in_spelling: bool,
}

impl fmt::Display for KeyCorrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.in_spelling { "the spelling of the key" } else { "the key" };
        write!(f, "{} at byte {} of {part}", self.what, self.offset)
    }
}

impl std::error::Error for KeyCorrupt {}
