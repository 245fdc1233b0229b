//! Tests whether a value is one of many (`isin`).
//!
//! Strings are looked up in a set of strings, ints in a set of ints, and numbers of all types,
//! dates and bytes in a set of codes. So a lookup takes the same time however many values there
//! are. A number and the Decimal that equals it have two codes: the set has both. A value without a
//! code is compared with one value after another. Building the sets for millions of values takes
//! seconds, so that it is done once, all users share it, and it can be stopped.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use hashbrown::HashSet;
use pellucid_record::Value;
use pellucid_record::key::KeyEncoder;

use crate::fault::Fault;
use crate::key_code::{push_equal, push_in_other_family};
use crate::order::equal;
use crate::stoppable::{self, Pace, release};

/// Values among which others are looked up. Clones share them.
#[derive(Clone)]
pub struct InList(Arc<Many>);

struct Many {
    values: Vec<Value>,
    sets: Sets,
}

#[derive(Default)]
struct Sets {
    ints: HashSet<i64>,
    texts: HashSet<Box<[u8]>>,
    /// The codes of all values that have one.
    codes: HashSet<Box<[u8]>>,
    /// The places of the values that are no strings, and of those among them that have no code.
    others: Vec<usize>,
    rest: Vec<usize>,
    /// Whether some values are numbers of other types, which may equal an int.
    has_numbers: bool,
}

impl InList {
    /// A list of these values.
    #[must_use]
    pub fn new(values: Vec<Value>) -> Self {
        let mut sets = Sets::with_room(&values);
        for (place, value) in values.iter().enumerate() {
            sets.add(place, value);
        }
        Self(Arc::new(Many { values, sets }))
    }

    /// A list of these values, which may be millions.
    ///
    /// # Errors
    /// A stop.
    pub fn new_while(
        mut values: stoppable::Many<Value>,
        pace: &mut Pace<impl Fn() -> bool>,
    ) -> Result<Self, Fault> {
        let mut sets = Sets::with_room(&values);
        for (place, value) in values.iter().enumerate() {
            sets.add(place, value);
            if let Err(stopped) = pace.step() {
                release(sets, values.len());
                return Err(stopped);
            }
        }
        let values = std::mem::take(&mut *values);
        Ok(Self(Arc::new(Many { values, sets })))
    }

    /// Whether an int is in the list. None if numbers of other types have to be compared.
    pub(crate) fn has_int(&self, value: i64) -> Option<bool> {
        let Sets { ints, has_numbers, .. } = &self.0.sets;
        if ints.contains(&value) { Some(true) } else { (!has_numbers).then_some(false) }
    }

    /// Whether a string is in the list. It can only equal strings.
    pub(crate) fn has_text(&self, text: &[u8]) -> bool {
        self.0.sets.texts.contains(text)
    }

    /// Whether a value that is no string equals a value of the list.
    pub(crate) fn has(&self, value: &Value) -> bool {
        let sets = &self.0.sets;
        let places = match code_of(value) {
            Some(code) if sets.codes.contains(&code) => return true,
            Some(_) => &sets.rest,
            None => &sets.others,
        };
        places.iter().filter_map(|place| self.get(*place)).any(|other| equal(value, other))
    }
}

impl Sets {
    /// Empty sets with room for all values: growing a set of millions is one long step, which
    /// cannot be stopped.
    fn with_room(values: &[Value]) -> Self {
        let texts = values.iter().filter(|value| is_text(value)).count();
        let ints = values.iter().filter(|value| matches!(value, Value::Int(_))).count();
        Self {
            ints: HashSet::with_capacity(ints),
            texts: HashSet::with_capacity(texts),
            codes: HashSet::with_capacity(values.len() - texts),
            others: Vec::with_capacity(values.len() - texts),
            ..Self::default()
        }
    }

    fn add(&mut self, place: usize, value: &Value) {
        match value {
            Value::Str(text) => {
                self.texts.insert(text.as_bytes().into());
                return;
            }
            Value::Surrogates(text) => {
                self.texts.insert(text.as_slice().into());
                return;
            }
            Value::Int(value) => {
                self.ints.insert(*value);
            }
            Value::Bool(_) | Value::Float(_) | Value::Decimal(_) | Value::Complex(..) => {
                self.has_numbers = true;
            }
            _ => {}
        }
        self.others.push(place);
        match code_of(value) {
            Some(code) => {
                self.codes.insert(code);
                self.codes.extend(code_by(|encoder| push_in_other_family(encoder, value)));
            }
            None => self.rest.push(place),
        }
    }
}

impl Deref for InList {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.values
    }
}

impl PartialEq for InList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self[..] == other[..]
    }
}

impl Eq for InList {}

impl Hash for InList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl std::fmt::Debug for InList {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(formatter)
    }
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::Surrogates(_))
}

/// Bytes that are the same for equal values, except for a number and a Decimal. None for values
/// without a code: NaN, a list, a time.
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
    use pellucid_record::value::Double;

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

    fn is_in_list(list: &InList, value: &Value) -> bool {
        match value {
            Value::Str(text) => list.has_text(text.as_bytes()),
            Value::Int(int) => list.has_int(*int).is_some_and(|has| has) || list.has(value),
            value => list.has(value),
        }
    }

    #[test]
    fn what_is_among_many_is_what_equals_one_of_them() {
        for listed in odd() {
            for lists in [vec![listed.clone()], vec![Value::Str("x".into()), listed.clone(), Value::Int(77)]]
            {
                let list = InList::new(lists.clone());
                for value in odd() {
                    let expected = lists.iter().any(|other| equal(&value, other));
                    assert_eq!(is_in_list(&list, &value), expected, "{value:?} {lists:?}");
                    if let Value::Int(int) = value {
                        assert!(list.has_int(int).is_none_or(|has| has == expected), "{int} {lists:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_of_all_types_are_looked_up() {
        let mut values: Vec<Value> = (0..100).map(|number| Value::Decimal(format!("{number}.5"))).collect();
        values.extend((0..100).map(Value::Int));
        assert!(InList::new(values).0.sets.rest.is_empty());
    }

    #[test]
    fn many_are_made_ready_until_a_stop() {
        let numbers = || (0..1000).map(Value::Int).collect();
        let values = || stoppable::Many::new(numbers());
        assert_eq!(InList::new_while(values(), &mut Pace::new(|| false)).unwrap(), InList::new(numbers()));
        let mut pace = Pace::overdue(|| true);
        assert!(matches!(InList::new_while(values(), &mut pace), Err(Fault::Stopped)));
    }
}
