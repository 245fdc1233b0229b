//! Is a value among those of a list?
//!
//! Strings are looked up among the strings, ints among the ints, and numbers of all types, dates and bytes by their codes, however many there
//! are. A number and the Decimal that equals it have two codes: those of the list are kept by both. What has no code is compared with one
//! after the other.

use std::sync::Arc;

use hashbrown::HashSet;
use pellucid_record::key::KeyEncoder;
use pellucid_record::{Corrupt, Shapes, Slot, Value};

use super::found::Found;
use crate::code::push_equal;
use crate::index::push_twin;
use crate::order::equal;

/// Values in which others are looked for. Clones share them.
#[derive(Clone)]
pub(super) struct List {
    ints: Arc<HashSet<i64>>,
    texts: Arc<HashSet<Box<[u8]>>>,
    /// Of all that has one.
    codes: Arc<HashSet<Box<[u8]>>>,
    /// All that may equal something without a code.
    all: Arc<[Value]>,
    /// Those that have no code themselves.
    rest: Arc<[Value]>,
    /// Whether some are no ints, and may equal one: numbers of other types.
    has_numbers: bool,
}

impl List {
    pub(super) fn new(values: &[Value]) -> Self {
        let ints = values.iter().filter_map(|value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        });
        let texts = values.iter().filter_map(|value| match value {
            Value::Str(text) => Some(text.as_bytes().into()),
            Value::Surrogates(text) => Some(text.as_slice().into()),
            _ => None,
        });
        let (mut codes, mut rest) = (HashSet::new(), Vec::new());
        for value in values {
            match code_of(value) {
                Some(code) => {
                    codes.insert(code);
                    codes.extend(code_by(|encoder| push_twin(encoder, value)));
                }
                None if is_text(value) => {}
                None => rest.push(value.clone()),
            }
        }
        let is_number = |value: &Value| {
            matches!(value, Value::Bool(_) | Value::Float(_) | Value::Decimal(_) | Value::Complex(..))
        };
        Self {
            ints: Arc::new(ints.collect()),
            texts: Arc::new(texts.collect()),
            codes: Arc::new(codes),
            all: values.iter().filter(|value| !is_text(value)).cloned().collect(),
            rest: rest.into(),
            has_numbers: values.iter().any(is_number),
        }
    }

    pub(super) fn has<S: Shapes + ?Sized>(&self, found: &Found<'_>, shapes: &S) -> Result<bool, Corrupt> {
        if let Found::Slot(Slot::Int(value), _) = found {
            if self.ints.contains(value) {
                return Ok(true);
            }
            if !self.has_numbers {
                return Ok(false);
            }
        }
        // A string equals strings alone.
        if let Some((true, text)) = found.bytes() {
            return Ok(self.texts.contains(text));
        }
        let Some(value) = found.to_value(shapes)? else { return Ok(false) };
        let others = match code_of(&value) {
            Some(code) if self.codes.contains(&code) => return Ok(true),
            Some(_) => &self.rest,
            None => &self.all,
        };
        Ok(others.iter().any(|other| equal(&value, other)))
    }
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::Surrogates(_))
}

/// Bytes that are the same for equal values, but for a number and a Decimal; None for what is not told by any, as NaN, a list or a time.
fn code_of(value: &Value) -> Option<Box<[u8]>> {
    match value {
        Value::Bool(_)
        | Value::Int(_)
        | Value::BigInt(_)
        | Value::Float(_)
        | Value::Decimal(_)
        | Value::Complex(..)
        | Value::Date(_)
        | Value::Datetime(..)
        | Value::Uuid(_)
        | Value::Bytes(_)
        | Value::Bytearray(_) => code_by(|encoder| push_equal(encoder, value)),
        _ => None,
    }
}

fn code_by(push: impl FnOnce(&mut KeyEncoder) -> bool) -> Option<Box<[u8]>> {
    let mut encoder = KeyEncoder::new();
    push(&mut encoder).then(|| encoder.as_bytes().into())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use pellucid_record::value::{Double, NoShapes};

    use super::*;

    fn odd() -> Vec<Value> {
        let decimal = |text: &str| Value::Decimal(text.to_owned());
        let mut values: Vec<Value> = [
            "1", "1.0", "0", "-0", "-0.0", "0.5", "0.1", "1E+2", "1E+400", "1E+70", "-1E+30", "NaN", "-NaN",
            "sNaN",
        ]
        .map(decimal)
        .into();
        values
            .extend(["Infinity", "-Infinity", "9223372036854775808", "1E+999999", "1E-999999"].map(decimal));
        let floats =
            [1.0, 0.0, -0.0, 0.5, 0.1, 100.0, 1e70, 1e30, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        values.extend(floats.map(|float| Value::Float(Double(float))));
        values.extend([1, 0, 100, -1, i64::MAX].map(Value::Int));
        let ten = num_bigint::BigInt::from(10);
        for big in [ten.pow(70), -ten.pow(30), ten.pow(400), num_bigint::BigInt::from(1u64 << 63)] {
            values.push(Value::BigInt(big.to_signed_bytes_le()));
        }
        let complex = |real, imaginary| Value::Complex(Double(real), Double(imaginary));
        values.extend([
            complex(1.0, 0.0),
            complex(1.0, 1.0),
            complex(f64::NAN, 0.0),
            Value::Bool(true),
            Value::Bool(false),
        ]);
        values.extend([
            Value::None,
            Value::Str("1".into()),
            Value::Bytes(b"a\0".into()),
            Value::Bytearray(b"a\0".into()),
        ]);
        values.extend([
            Value::Date(1),
            Value::Datetime(5, false),
            Value::Datetime(5, true),
            Value::Uuid([7; 16]),
        ]);
        values.extend([
            Value::Tuple(vec![Value::Int(1)]),
            Value::List(vec![decimal("1")]),
            Value::Tuple(vec![decimal("1")]),
        ]);
        values
    }

    #[test]
    fn what_is_among_a_list_is_what_equals_one_of_it() {
        for listed in odd() {
            for lists in [vec![listed.clone()], vec![Value::Str("x".into()), listed.clone(), Value::Int(77)]]
            {
                let list = List::new(&lists);
                for value in odd() {
                    let found = Found::Value(Cow::Borrowed(&value));
                    let has = list.has(&found, &NoShapes).unwrap();
                    assert_eq!(has, lists.iter().any(|other| equal(&value, other)), "{value:?} {lists:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_all_types_are_looked_up() {
        let mut values: Vec<Value> = (0..100).map(|number| Value::Decimal(format!("{number}.5"))).collect();
        values.extend((0..100).map(Value::Int));
        assert!(List::new(&values).rest.is_empty());
    }
}
