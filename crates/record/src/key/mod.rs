//! Keys as bytes that sort as the keys do.
//!
//! ```text
//! key      := None | bytes | str | tuple | number | Decimal | date | datetime | UUID
//! tuple    := 05 key* 00                        // None inside a tuple is 00 FF
//! str      := 02 (its bytes, 00 as 00 FF) 00
//! number   := int code, magnitude [FE fraction]
//! ```
//!
//! The bytes are compared with memcmp and decide which keys are equal; `docs/format.md` ("Ordered
//! keys") is the whole table. 1, 1.0 and True are equal and so have the same bytes; which of them
//! was written is kept beside the bytes, in the *spelling*. It is empty if every part of the key is
//! spelled the plain way (an int, a naive datetime without fold), so nearly all keys are just their
//! bytes.
//!
//! Useful for: finding, sorting and ranging over keys without decoding them. Not useful for:
//! values. NaN has no place in an order and is refused, as is every type that Python itself does
//! not order.

mod decimal;
mod decode;
mod encode;
mod error;
mod number;
mod parts;
mod plain;
mod range;
mod value;

use std::borrow::Cow;

use crate::layout::{DATE_ORDINAL_MAX, MICROS_PER_DAY};

pub use decimal::is_decimal_text;
pub use decode::KeyReader;
pub use encode::KeyEncoder;
pub use error::{KeyCorrupt, KeyError};
pub use parts::{
    BEHIND_PARTS, PartsMark, join_spellings, parts_as_tuple, parts_size, push_part, split_spellings,
    split_stand_in,
};
pub use plain::{PlainKey, SHORT_KEY_SIZE, plain_key, plain_part, short_bytes_key, short_key};
pub use range::prefix_range;
pub use value::KeyValue;

/// Tuples in keys nest at most this deep, as containers in records do.
pub const KEY_DEPTH_MAX: u32 = 64;

/// The first microsecond after the greatest datetime, counted from 0001-01-01T00:00.
pub const DATETIME_END: i64 = DATE_ORDINAL_MAX as i64 * MICROS_PER_DAY;

/// The codes of the key bytes. Their order is the order of the type families.
mod code {
    pub(super) const NONE: u8 = 0x00;
    pub(super) const BYTES: u8 = 0x01;
    pub(super) const STR: u8 = 0x02;
    pub(super) const TUPLE: u8 = 0x05;
    pub(super) const INFINITY_NEGATIVE: u8 = 0x0A;
    pub(super) const INT_LONG_NEGATIVE: u8 = 0x0B;
    pub(super) const INT_SHORT_FIRST: u8 = INT_ZERO - 8;
    pub(super) const INT_ZERO: u8 = 0x14;
    pub(super) const INT_SHORT_LAST: u8 = INT_ZERO + 8;
    pub(super) const INT_LONG_POSITIVE: u8 = 0x1D;
    pub(super) const INFINITY_POSITIVE: u8 = 0x1E;
    pub(super) const DECIMAL: u8 = 0x20;
    pub(super) const DATE: u8 = 0x28;
    pub(super) const DATETIME: u8 = 0x29;
    pub(super) const AWARE: u8 = 0x2A;
    pub(super) const UUID: u8 = 0x30;

    /// Ends strings and tuples. It sorts below everything that could follow it.
    pub(super) const END: u8 = 0x00;
    /// After `00`: not the end, but a NUL in a string or None in a tuple.
    pub(super) const ESCAPE: u8 = 0xFF;
    /// After an int: a fraction follows. Above every code, so that (2, x) sorts before (2.5,).
    pub(super) const FRACTION: u8 = 0xFE;

    /// Added to UTC microseconds, which an offset can make negative.
    pub(super) const AWARE_BIAS: i64 = 1 << 62;
}

/// The first byte of a spelling's entry for a number.
mod spelled {
    pub(super) const PLAIN: u8 = 0;
    pub(super) const FLOAT: u8 = 1;
    pub(super) const BOOL: u8 = 2;
    pub(super) const MINUS_ZERO: u8 = 3;
    /// Only in index entries: the value in the row is a complex number that equals this one.
    pub(super) const COMPLEX: u8 = 4;
}

/// One step of a key, returned by a `KeyReader` and accepted by a `KeyEncoder`.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyPart<'a> {
    /// None.
    None,
    /// False or True; as keys they are the numbers 0 and 1.
    Bool(bool),
    /// An int of 64 bits.
    Int(i64),
    /// An int beyond 64 bits: its sign and its magnitude, big-endian without leading zeros.
    BigInt {
        /// Below zero.
        negative: bool,
        /// The absolute value.
        magnitude: Cow<'a, [u8]>,
    },
    /// A float, never NaN.
    Float(f64),
    /// A complex number that equals this float; nothing else of it is stored. It cannot be a row's
    /// key, but an index can contain it.
    Complex(f64),
    /// A str: UTF-8, with surrogates encoded as if they were characters.
    Str(Cow<'a, [u8]>),
    /// A bytes object.
    Bytes(Cow<'a, [u8]>),
    /// A Decimal, as `str()` writes it; never NaN.
    Decimal(&'a str),
    /// A date: its proleptic Gregorian ordinal, 1 to `layout::DATE_ORDINAL_MAX`.
    Date(u32),
    /// A naive datetime.
    Datetime {
        /// Microseconds since 0001-01-01T00:00.
        local: i64,
        /// The second of two equal local times.
        fold: bool,
    },
    /// An aware datetime, ordered by its instant.
    Aware {
        /// Microseconds from 0001-01-01T00:00 UTC to the instant.
        utc: i64,
        /// Its local time minus `utc`, in microseconds.
        offset: i64,
        /// The second of two equal local times.
        fold: bool,
        /// The zone as in a record ("Zone" in format.md).
        zone: &'a [u8],
    },
    /// A UUID, big-endian.
    Uuid([u8; 16]),
    /// A tuple begins; its elements follow.
    BeginTuple,
    /// The tuple ends.
    EndTuple,
}

/// Whether the spelling of some parts may include a complex number; false is certain.
#[inline]
#[must_use]
pub fn may_have_complex(spelling: &[u8]) -> bool {
    spelling.contains(&spelled::COMPLEX)
}

/// Whether `bytes` are a str in the encoding of this format: UTF-8, with lone surrogates encoded as
/// if they were characters (Python's "surrogatepass").
#[must_use]
pub fn is_text(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    loop {
        let Err(error) = std::str::from_utf8(rest) else { return true };
        match rest.get(error.valid_up_to()..) {
            Some([0xED, 0xA0..=0xBF, 0x80..=0xBF, after @ ..]) => rest = after,
            _ => return false,
        }
    }
}

/// Whether `zone` is a zone in the format of records, and fits a local time that is `offset` from
/// UTC.
fn is_zone(zone: &[u8], offset: i64) -> bool {
    match zone {
        [1, fixed @ ..] => fixed.split_first_chunk::<8>().is_some_and(|(own, name)| {
            i64::from_le_bytes(*own) == offset && std::str::from_utf8(name).is_ok()
        }),
        [2, key @ ..] => std::str::from_utf8(key).is_ok(),
        _ => false,
    }
}

/// Whether a datetime with these microseconds exists; `offset` has to be less than a day.
fn is_instant(utc: i64, offset: i64) -> bool {
    let is_offset = -MICROS_PER_DAY < offset && offset < MICROS_PER_DAY;
    is_offset && utc.checked_add(offset).is_some_and(|local| (0..DATETIME_END).contains(&local))
}
