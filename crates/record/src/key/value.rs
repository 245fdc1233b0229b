//! An owned key, independent of its bytes.
//!
//! This is the model that the bytes are tested against: it orders keys by their meaning, number by
//! number and element by element, and knows no codes. Useful for: tests, fuzzing, messages. Not
//! useful for: loops.

use std::cmp::Ordering;
use std::fmt;

use super::decimal::Decimal;
use super::number::{Whole, whole};
use super::{KeyCorrupt, KeyEncoder, KeyError, KeyPart, KeyReader};

/// An owned key. Keys are equal as in Python: 1, 1.0 and True are one key, and so are 1.1 and 1.10.
#[derive(Debug, Clone)]
pub enum KeyValue {
    /// None.
    None,
    /// False or True.
    Bool(bool),
    /// An int of 64 bits.
    Int(i64),
    /// An int beyond 64 bits: magnitude big-endian without leading zeros.
    BigInt {
        /// Below zero.
        negative: bool,
        /// The absolute value.
        magnitude: Vec<u8>,
    },
    /// A float.
    Float(f64),
    /// A str.
    Str(Vec<u8>),
    /// A bytes object.
    Bytes(Vec<u8>),
    /// A Decimal's text.
    Decimal(String),
    /// A date's ordinal.
    Date(u32),
    /// A naive datetime.
    Datetime {
        /// Microseconds since 0001-01-01T00:00.
        local: i64,
        /// The second of two equal local times.
        fold: bool,
    },
    /// An aware datetime.
    Aware {
        /// Microseconds between 0001-01-01T00:00 UTC and the instant.
        utc: i64,
        /// Local time minus UTC, in microseconds.
        offset: i64,
        /// The second of two equal local times.
        fold: bool,
        /// The zone as in a record.
        zone: Vec<u8>,
    },
    /// A UUID.
    Uuid([u8; 16]),
    /// A tuple.
    Tuple(Vec<KeyValue>),
}

impl KeyValue {
    /// Decodes a key from its bytes and spelling.
    ///
    /// # Errors
    /// The bytes are not those of a key.
    pub fn decode(key: &[u8], spelling: &[u8]) -> Result<Self, KeyCorrupt> {
        let mut open: Vec<Vec<Self>> = Vec::new();
        let mut whole = Self::None;
        for part in KeyReader::new(key, spelling) {
            let value = match part? {
                KeyPart::BeginTuple => {
                    open.push(Vec::new());
                    continue;
                }
                // The reader ends only tuples that it has begun.
                KeyPart::EndTuple => Self::Tuple(open.pop().unwrap_or_default()),
                KeyPart::None => Self::None,
                KeyPart::Bool(bool) => Self::Bool(bool),
                KeyPart::Int(int) => Self::Int(int),
                KeyPart::BigInt { negative, magnitude } => {
                    Self::BigInt { negative, magnitude: magnitude.into_owned() }
                }
                KeyPart::Float(float) => Self::Float(float),
                KeyPart::Complex(_) => {
                    let what = "complex number, which is no key";
                    return Err(KeyCorrupt { what, offset: 0, in_spelling: true });
                }
                KeyPart::Str(text) => Self::Str(text.into_owned()),
                KeyPart::Bytes(bytes) => Self::Bytes(bytes.into_owned()),
                KeyPart::Decimal(text) => Self::Decimal(text.to_owned()),
                KeyPart::Date(ordinal) => Self::Date(ordinal),
                KeyPart::Datetime { local, fold } => Self::Datetime { local, fold },
                KeyPart::Aware { utc, offset, fold, zone } => {
                    Self::Aware { utc, offset, fold, zone: zone.to_vec() }
                }
                KeyPart::Uuid(uuid) => Self::Uuid(uuid),
            };
            match open.last_mut() {
                Some(tuple) => tuple.push(value),
                None => whole = value,
            }
        }
        Ok(whole)
    }

    /// Pushes this key.
    ///
    /// # Errors
    /// It cannot be a key.
    pub fn encode(&self, encoder: &mut KeyEncoder) -> Result<(), KeyError> {
        let part = match self {
            Self::Tuple(elements) => {
                encoder.begin_tuple()?;
                for element in elements {
                    element.encode(encoder)?;
                }
                encoder.end_tuple();
                return Ok(());
            }
            Self::None => KeyPart::None,
            Self::Bool(bool) => KeyPart::Bool(*bool),
            Self::Int(int) => KeyPart::Int(*int),
            Self::BigInt { negative, magnitude } => {
                KeyPart::BigInt { negative: *negative, magnitude: magnitude.into() }
            }
            Self::Float(float) => KeyPart::Float(*float),
            Self::Str(text) => KeyPart::Str(text.into()),
            Self::Bytes(bytes) => KeyPart::Bytes(bytes.into()),
            Self::Decimal(text) => KeyPart::Decimal(text),
            Self::Date(ordinal) => KeyPart::Date(*ordinal),
            Self::Datetime { local, fold } => KeyPart::Datetime { local: *local, fold: *fold },
            Self::Aware { utc, offset, fold, zone } => {
                KeyPart::Aware { utc: *utc, offset: *offset, fold: *fold, zone }
            }
            Self::Uuid(uuid) => KeyPart::Uuid(*uuid),
        };
        encoder.push(&part)
    }

    /// The rank of the type's family in the order of all keys.
    fn family(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Bytes(_) => 1,
            Self::Str(_) => 2,
            Self::Tuple(_) => 3,
            Self::Bool(_) | Self::Int(_) | Self::BigInt { .. } | Self::Float(_) => 4,
            Self::Decimal(_) => 5,
            Self::Date(_) => 6,
            Self::Datetime { .. } => 7,
            Self::Aware { .. } => 8,
            Self::Uuid(_) => 9,
        }
    }

    fn number(&self) -> Number {
        match self {
            Self::BigInt { negative, magnitude } => Number::new(*negative, magnitude, 0.0),
            Self::Int(int) => Number::new(*int < 0, &int.unsigned_abs().to_be_bytes(), 0.0),
            Self::Float(float) if float.is_finite() => {
                let part = float.abs().fract();
                match whole(float.abs()) {
                    Whole::Int(int) | Whole::Floor(int) => {
                        Number::new(*float < 0.0, &int.unsigned_abs().to_be_bytes(), part)
                    }
                    Whole::Big(magnitude) => Number::new(*float < 0.0, magnitude.bytes(), 0.0),
                }
            }
            Self::Float(float) => {
                Number { sign: if *float < 0.0 { -2 } else { 2 }, whole: vec![], part: 0.0 }
            }
            Self::Bool(bool) => Number::new(false, &[u8::from(*bool)], 0.0),
            _ => Number::new(false, &[], 0.0),
        }
    }
}

/// A number as its sign (2 is infinite), the whole part of its magnitude and the rest.
struct Number {
    sign: i8,
    whole: Vec<u8>,
    part: f64,
}

impl Number {
    fn new(negative: bool, whole: &[u8], part: f64) -> Self {
        let whole: Vec<u8> = whole.iter().copied().skip_while(|byte| *byte == 0).collect();
        let sign = i8::from(!whole.is_empty() || part > 0.0);
        Self { sign: if negative { -sign } else { sign }, whole, part }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let further = || {
            let wholes = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(&other.whole));
            wholes.then(self.part.total_cmp(&other.part))
        };
        self.sign.cmp(&other.sign).then_with(|| if self.sign < 0 { further().reverse() } else { further() })
    }
}

fn cmp_decimals(a: &str, b: &str) -> Ordering {
    match (Decimal::parse(a), Decimal::parse(b)) {
        (Ok(a), Ok(b)) => a.sign().cmp(&b.sign()).then_with(|| {
            let further = a.adjusted().cmp(&b.adjusted()).then_with(|| a.digits().cmp(b.digits()));
            if a.sign() < 0 { further.reverse() } else { further }
        }),
        // These are no keys, but an order has to be total.
        (a, b) => a.is_ok().cmp(&b.is_ok()),
    }
}

impl Ord for KeyValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) | (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Tuple(a), Self::Tuple(b)) => a.cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => cmp_decimals(a, b),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Datetime { local: a, .. }, Self::Datetime { local: b, .. })
            | (Self::Aware { utc: a, .. }, Self::Aware { utc: b, .. }) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (a, b) if a.family() == 4 && b.family() == 4 => a.number().cmp(&b.number()),
            (a, b) => a.family().cmp(&b.family()),
        }
    }
}

impl PartialOrd for KeyValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeyValue {}

/// Roughly as Python would write it, for people.
impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::None => write!(f, "None"),
            Self::Bool(true) => write!(f, "True"),
            Self::Bool(false) => write!(f, "False"),
            Self::Int(int) => write!(f, "{int}"),
            Self::BigInt { negative, magnitude } => {
                write!(f, "{}0x", if *negative { "-" } else { "" })?;
                hex(f, magnitude)
            }
            Self::Float(float) => write!(f, "{float:?}"),
            Self::Str(text) => match std::str::from_utf8(text) {
                Ok(text) => write!(f, "{text:?}"),
                Err(_) => write!(f, "str\"{}\"", text.escape_ascii()),
            },
            Self::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Self::Decimal(text) => write!(f, "Decimal({text})"),
            Self::Date(ordinal) => write!(f, "date({ordinal})"),
            Self::Datetime { local, fold } => write!(f, "datetime({local}, fold={})", u8::from(*fold)),
            Self::Aware { utc, offset, fold, zone } => {
                write!(
                    f,
                    "datetime({utc} UTC, {offset}, fold={}, zone={})",
                    u8::from(*fold),
                    zone.escape_ascii()
                )
            }
            Self::Uuid(uuid) => {
                write!(f, "UUID(")?;
                hex(f, uuid)?;
                write!(f, ")")
            }
            Self::Tuple(elements) => {
                write!(f, "(")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index > 0 { ", " } else { "" })?;
                }
                write!(f, "{}", if elements.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}
