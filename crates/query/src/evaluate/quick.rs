//! Which conditions are tested without a value being made?
//!
//! A field of the root beside an int, a float or a string: where the field stood in the last record of the same head, it stands in this
//! one, so that the test is a comparison of the head, a tag and a slot.

use std::cmp::Ordering;

use pellucid_record::{Corrupt, Shapes, Value};

use crate::expression::{Comparison, Expression, Kind, Source, Step};
use crate::field::{FieldReader, Number};
use crate::order::exact_cmp;

/// A test of one field of the root.
#[derive(Clone)]
pub struct Quick {
    reader: FieldReader,
    test: Test,
}

#[derive(Clone)]
enum Test {
    Int(Comparison, i64),
    Float(Comparison, f64),
    /// At least, at most.
    Ints(i64, i64),
}

impl Quick {
    /// The quick test that an expression is, if it is one.
    pub fn of(expression: &Expression) -> Option<Self> {
        let (field, test) = match expression.kind() {
            Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
                (field, Kind::Literal(value)) => (field, Test::of(*comparison, value)?),
                (Kind::Literal(value), field) => (field, Test::of(comparison.turned(), value)?),
                _ => return None,
            },
            Kind::Between(value, least, greatest) => match (value.kind(), least.kind(), greatest.kind()) {
                (field, Kind::Literal(Value::Int(least)), Kind::Literal(Value::Int(greatest))) => {
                    (field, Test::Ints(*least, *greatest))
                }
                _ => return None,
            },
            _ => return None,
        };
        match field {
            Kind::Field(Source::Record, path) => match &**path {
                [Step::Field(_)] => Some(Self { reader: FieldReader::of(path)?, test }),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is true; None where only the slow way can tell.
    #[inline]
    pub fn test(&self, record: &[u8]) -> Option<bool> {
        let number = self.reader.quick_number(record)?;
        match (&self.test, number) {
            (Test::Int(comparison, bound), Number::Int(value)) => Some(comparison.holds(value.cmp(bound))),
            (Test::Ints(least, greatest), Number::Int(value)) => Some(least <= &value && &value <= greatest),
            (Test::Float(comparison, bound), Number::Float(value)) => {
                Some(holds(*comparison, value.partial_cmp(bound)))
            }
            (Test::Float(comparison, bound), Number::Int(value)) => {
                Some(holds(*comparison, exact_cmp(value, *bound)))
            }
            (Test::Int(comparison, bound), Number::Float(value)) => {
                Some(holds(*comparison, exact_cmp(*bound, value).map(Ordering::reverse)))
            }
            (Test::Ints(..), Number::Float(_)) => None,
        }
    }

    /// Looks where the field stands in records like this one.
    pub fn learn<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<(), Corrupt> {
        self.reader.read(record, shapes).map(|_| ())
    }
}

fn holds(comparison: Comparison, order: Option<Ordering>) -> bool {
    match order {
        Some(order) => comparison.holds(order),
        // NaN: unlike everything.
        None => comparison == Comparison::NotEqual,
    }
}

impl Test {
    fn of(comparison: Comparison, value: &Value) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Test::Int(comparison, *value)),
            Value::Float(value) => Some(Test::Float(comparison, value.0)),
            _ => None,
        }
    }
}

impl Comparison {
    /// The comparison with its sides turned.
    #[must_use]
    pub fn turned(self) -> Self {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }
}
