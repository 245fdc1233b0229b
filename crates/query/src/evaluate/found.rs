//! The value of an expression for one row.

use std::borrow::Cow;
use std::cmp::Ordering;

use pellucid_record::layout::tag;
use pellucid_record::value::{Double, decode_slot};
use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Damage, Shapes, Value, payload};

use crate::in_list::InList;
use crate::numpy;
use crate::order::{equal, exact_cmp, order};

/// The value of an expression. If possible, it stays in the record and is not decoded.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    /// No value: the field does not exist, or the value cannot be computed.
    Missing,
    /// A value in a slot of a record.
    Slot(Slot<'a>, &'a [u8]),
    /// A decoded value.
    Value(Cow<'a, Value>),
}

/// The kinds of values that most comparisons use.
#[derive(Clone, Copy)]
enum Plain<'a> {
    Int(i64),
    Float(f64),
    Str(&'a [u8]),
    Date(u32),
    /// Microseconds. Comparisons ignore the fold.
    Datetime(i64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Found<'a> {
    /// The value in a slot; Missing for a deleted field. A NumPy scalar becomes the Python value
    /// that it equals. A large value is read where it is stored, outside the record.
    ///
    /// # Errors
    /// The large value is missing.
    #[inline]
    pub fn of_slot<S: Shapes + ?Sized>(
        slot: Slot<'a>,
        record: &'a [u8],
        shapes: &'a S,
    ) -> Result<Self, Corrupt> {
        match slot {
            Slot::Absent => Ok(Found::Missing),
            Slot::Heap { tag: tag::NDARRAY | tag::OVERFLOW, .. } => Self::of_other(slot, record, shapes),
            _ => Ok(Found::Slot(slot, record)),
        }
    }

    #[cold]
    fn of_other<S: Shapes + ?Sized>(
        slot: Slot<'a>,
        record: &'a [u8],
        shapes: &'a S,
    ) -> Result<Self, Corrupt> {
        if let Slot::Heap { tag: tag::OVERFLOW, payload, offset } = slot {
            let overflow = payload::overflow(payload);
            let overflow = overflow.ok_or_else(|| Corrupt::new(Damage::Payload, offset as usize))?;
            return match shapes.overflow(&overflow)? {
                Some(bytes) => Self::of_slot(payload::overflow_slot(&overflow, bytes), bytes, shapes),
                None => Ok(Found::Slot(slot, record)),
            };
        }
        Ok(match numpy::scalar(&slot, record) {
            Some(value) => Found::of_value(value),
            None => Found::Slot(slot, record),
        })
    }

    /// Wraps a newly made value.
    #[must_use]
    pub fn of_value(value: Value) -> Found<'static> {
        Found::Value(Cow::Owned(value))
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Found::Missing)
    }

    /// Whether the value is None.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match self {
            Found::Slot(slot, _) => matches!(slot, Slot::None),
            Found::Value(value) => **value == Value::None,
            Found::Missing => false,
        }
    }

    /// Whether Python treats the value as true. A missing value is false.
    ///
    /// # Errors
    /// Damage.
    pub fn is_truthy<S: Shapes + ?Sized>(&self, shapes: &S) -> Result<bool, Corrupt> {
        Ok(match self {
            Found::Missing | Found::Slot(Slot::None | Slot::Absent, _) => false,
            Found::Slot(Slot::Bool(value), _) => *value,
            Found::Slot(Slot::Int(value), _) => *value != 0,
            Found::Slot(Slot::Float(value), _) => *value != 0.0,
            Found::Slot(Slot::Str(text), _) => !text.is_empty(),
            Found::Slot(Slot::Container(container), _) => !container.is_empty(),
            Found::Slot(Slot::Date(_) | Slot::Datetime(_), _) => true,
            Found::Slot(Slot::Heap { .. }, _) => is_truthy(&self.to_value(shapes)?.unwrap_or(Value::None)),
            Found::Value(value) => is_truthy(value),
        })
    }

    /// The decoded value; None if it is missing.
    ///
    /// # Errors
    /// Damage.
    pub fn to_value<S: Shapes + ?Sized>(&self, shapes: &S) -> Result<Option<Value>, Corrupt> {
        match self {
            Found::Missing | Found::Slot(Slot::Absent, _) => Ok(None),
            Found::Slot(slot, record) => decode_slot(record, shapes, *slot).map(Some),
            Found::Value(value) => Ok(Some(value.clone().into_owned())),
        }
    }

    /// The UTF-8 of a string, or the content of bytes, and whether it is text.
    #[must_use]
    pub fn bytes(&self) -> Option<(bool, &[u8])> {
        match self {
            Found::Slot(Slot::Str(text), _) => Some((true, text)),
            Found::Slot(Slot::Heap { tag: tag::STR_SURROGATES, payload, .. }, _) => Some((true, payload)),
            Found::Slot(Slot::Heap { tag: tag::BYTES | tag::BYTEARRAY, payload, .. }, _) => {
                Some((false, payload))
            }
            Found::Value(value) => match &**value {
                Value::Str(text) => Some((true, text.as_bytes())),
                Value::Surrogates(text) => Some((true, text)),
                Value::Bytes(bytes) | Value::Bytearray(bytes) => Some((false, bytes)),
                _ => None,
            },
            _ => None,
        }
    }

    #[inline]
    fn plain(&self) -> Plain<'_> {
        match self {
            Found::Slot(slot, _) => match slot {
                Slot::Int(value) => Plain::Int(*value),
                Slot::Float(value) => Plain::Float(*value),
                Slot::Bool(value) => Plain::Int(i64::from(*value)),
                Slot::Str(text) => Plain::Str(text),
                Slot::Date(ordinal) => Plain::Date(*ordinal),
                Slot::Datetime(value) => Plain::Datetime(value >> 1),
                Slot::Heap { tag: tag::BYTES, payload, .. } => Plain::Bytes(payload),
                _ => Plain::Other,
            },
            Found::Value(value) => match &**value {
                Value::Int(value) => Plain::Int(*value),
                Value::Float(Double(value)) => Plain::Float(*value),
                Value::Bool(value) => Plain::Int(i64::from(*value)),
                Value::Str(text) => Plain::Str(text.as_bytes()),
                Value::Date(ordinal) => Plain::Date(*ordinal),
                Value::Datetime(micros, _) => Plain::Datetime(*micros),
                Value::Bytes(bytes) => Plain::Bytes(bytes),
                _ => Plain::Other,
            },
            Found::Missing => Plain::Other,
        }
    }

    /// The order of two values; None if they cannot be ordered.
    ///
    /// # Errors
    /// Damage.
    pub fn order<S: Shapes + ?Sized>(
        &self,
        other: &Found<'_>,
        shapes: &S,
    ) -> Result<Option<Ordering>, Corrupt> {
        Ok(match (self.plain(), other.plain()) {
            (Plain::Other, _) | (_, Plain::Other) => {
                match (self.to_value(shapes)?, other.to_value(shapes)?) {
                    (Some(one), Some(other)) => order(&one, &other),
                    _ => None,
                }
            }
            (one, other) => plain_order(one, other),
        })
    }

    /// Whether the value equals one of the list's values.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn is_in_list<S: Shapes + ?Sized>(&self, list: &InList, shapes: &S) -> Result<bool, Corrupt> {
        if let Found::Slot(Slot::Int(value), _) = self
            && let Some(is_in_list) = list.has_int(*value)
        {
            return Ok(is_in_list);
        }
        if let Some((true, text)) = self.bytes() {
            return Ok(list.has_text(text));
        }
        Ok(self.to_value(shapes)?.is_some_and(|value| list.has(&value)))
    }

    /// Whether two values are equal. A missing value equals nothing.
    ///
    /// # Errors
    /// Damage.
    pub fn equals<S: Shapes + ?Sized>(&self, other: &Found<'_>, shapes: &S) -> Result<bool, Corrupt> {
        Ok(match (self.plain(), other.plain()) {
            (Plain::Other, _) | (_, Plain::Other) => {
                match (self.to_value(shapes)?, other.to_value(shapes)?) {
                    (Some(one), Some(other)) => equal(&one, &other),
                    _ => false,
                }
            }
            (one, other) => plain_order(one, other) == Some(Ordering::Equal),
        })
    }
}

fn plain_order(one: Plain<'_>, other: Plain<'_>) -> Option<Ordering> {
    match (one, other) {
        (Plain::Int(one), Plain::Int(other)) | (Plain::Datetime(one), Plain::Datetime(other)) => {
            Some(one.cmp(&other))
        }
        (Plain::Float(one), Plain::Float(other)) => one.partial_cmp(&other),
        (Plain::Int(one), Plain::Float(other)) => exact_cmp(one, other),
        (Plain::Float(one), Plain::Int(other)) => exact_cmp(other, one).map(Ordering::reverse),
        (Plain::Str(one), Plain::Str(other)) | (Plain::Bytes(one), Plain::Bytes(other)) => {
            Some(one.cmp(other))
        }
        (Plain::Date(one), Plain::Date(other)) => Some(one.cmp(&other)),
        _ => None,
    }
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::None => false,
        Value::Bool(value) => *value,
        Value::Int(value) => *value != 0,
        Value::Float(value) => value.0 != 0.0,
        Value::Complex(real, imaginary) => real.0 != 0.0 || imaginary.0 != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Bytes(bytes) | Value::Bytearray(bytes) => !bytes.is_empty(),
        // False if all digits are 0, whatever the sign and exponent. "NaN" and "Infinity" have no
        // digits and are true.
        Value::Decimal(text) => {
            let digits = text.split(['E', 'e']).next().unwrap_or_default();
            digits.bytes().any(|byte| matches!(byte, b'1'..=b'9')) || !digits.contains('0')
        }
        Value::Timedelta(delta) => (delta.days, delta.seconds, delta.micros) != (0, 0, 0),
        Value::List(elements)
        | Value::Tuple(elements)
        | Value::Set(elements)
        | Value::FrozenSet(elements) => !elements.is_empty(),
        Value::Dict(entries) => !entries.is_empty(),
        _ => true,
    }
}
