//! Tests simple conditions without building a value.
//!
//! A condition compares a field with numbers, where a `FieldReader` finds it.

use std::cmp::Ordering;

use pellucid_record::{Corrupt, Shapes, Slot, Value};

use crate::expression::{Comparison, Expression, Kind, Source};
use crate::field::{FieldReader, Number};
use crate::order::exact_cmp;

/// A test of one field.
#[derive(Clone)]
pub struct Quick {
    reader: FieldReader,
    /// The range test for ints, if the condition compares with ints.
    ints: Option<Ints>,
    test: Test,
}

#[derive(Clone)]
enum Test {
    Int(Comparison, i64),
    Float(Comparison, f64),
    /// Minimum and maximum.
    Ints(i64, i64),
    Floats(f64, f64),
}

/// Whether an int is inside a range, or outside it. This one form covers all comparisons with ints,
/// so that the test does not branch on the operator.
#[derive(Clone, Copy)]
struct Ints {
    least: i64,
    greatest: i64,
    is_inside: bool,
}

impl Ints {
    fn of(test: &Test) -> Option<Self> {
        const NONE: (i64, i64) = (1, 0);
        let below = |bound: i64| bound.checked_sub(1).map_or(NONE, |greatest| (i64::MIN, greatest));
        let above = |bound: i64| bound.checked_add(1).map_or(NONE, |least| (least, i64::MAX));
        let ((least, greatest), is_inside) = match *test {
            Test::Ints(least, greatest) => ((least, greatest), true),
            Test::Int(Comparison::Equal, bound) => ((bound, bound), true),
            Test::Int(Comparison::NotEqual, bound) => ((bound, bound), false),
            Test::Int(Comparison::Less, bound) => (below(bound), true),
            Test::Int(Comparison::GreaterOrEqual, bound) => (below(bound), false),
            Test::Int(Comparison::Greater, bound) => (above(bound), true),
            Test::Int(Comparison::LessOrEqual, bound) => (above(bound), false),
            Test::Float(..) | Test::Floats(..) => return None,
        };
        Some(Self { least, greatest, is_inside })
    }

    #[inline]
    fn test(self, value: i64) -> bool {
        (self.least <= value && value <= self.greatest) == self.is_inside
    }
}

impl Quick {
    /// The quick test that is equivalent to this expression, if there is one.
    pub fn of(expression: &Expression) -> Option<Self> {
        let (field, test) = match expression.kind() {
            Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
                (field, Kind::Literal(value)) => (field, Test::of(*comparison, value)?),
                (Kind::Literal(value), field) => (field, Test::of(comparison.turned(), value)?),
                _ => return None,
            },
            Kind::Between(value, least, greatest) => match (value.kind(), least.kind(), greatest.kind()) {
                (field, Kind::Literal(least), Kind::Literal(greatest)) => {
                    (field, Test::between(least, greatest)?)
                }
                _ => return None,
            },
            _ => return None,
        };
        match field {
            Kind::Field(Source::Record, path) => {
                Some(Self { reader: FieldReader::of(path)?, ints: Ints::of(&test), test })
            }
            _ => None,
        }
    }

    /// Whether the condition is true; None if the field is no int or float.
    ///
    /// # Errors
    /// Damage of the record.
    #[inline]
    pub fn test<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<Option<bool>, Corrupt> {
        Ok(match self.reader.read(record, shapes)? {
            Some(Slot::Int(value)) => Some(self.test_int(value)),
            Some(Slot::Float(value)) => Some(self.test_number(Number::Float(value))),
            _ => None,
        })
    }

    /// The same for a record whose layouts the reader knows; None for other records.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "two calls deep it had 28 % of the samples of a count")]
    pub fn quick_test(&self, record: &[u8]) -> Option<bool> {
        let place = self.reader.place(record)?;
        match place.int() {
            Some(value) => Some(self.test_int(value)),
            None => place.float().map(|value| self.test_number(Number::Float(value))),
        }
    }

    #[inline]
    fn test_int(&self, value: i64) -> bool {
        match &self.ints {
            Some(ints) => ints.test(value),
            None => self.test_number(Number::Int(value)),
        }
    }

    /// The test where an int meets a float, or a float meets a number.
    fn test_number(&self, value: Number) -> bool {
        match (&self.test, value) {
            (Test::Float(comparison, bound), Number::Float(value)) => {
                holds(*comparison, value.partial_cmp(bound))
            }
            (Test::Float(comparison, bound), Number::Int(value)) => {
                holds(*comparison, exact_cmp(value, *bound))
            }
            (Test::Int(comparison, bound), Number::Float(value)) => {
                holds(*comparison, exact_cmp(*bound, value).map(Ordering::reverse))
            }
            (Test::Int(comparison, bound), Number::Int(value)) => comparison.holds(value.cmp(bound)),
            (Test::Floats(least, greatest), Number::Float(value)) => *least <= value && value <= *greatest,
            (Test::Floats(least, greatest), Number::Int(value)) => {
                let is_behind = exact_cmp(value, *least).is_some_and(Ordering::is_ge);
                is_behind && exact_cmp(value, *greatest).is_some_and(Ordering::is_le)
            }
            (Test::Ints(least, greatest), Number::Float(value)) => {
                let is_behind = exact_cmp(*least, value).is_some_and(Ordering::is_le);
                is_behind && exact_cmp(*greatest, value).is_some_and(Ordering::is_ge)
            }
            (Test::Ints(least, greatest), Number::Int(value)) => *least <= value && value <= *greatest,
        }
    }
}

fn holds(comparison: Comparison, order: Option<Ordering>) -> bool {
    match order {
        Some(order) => comparison.holds(order),
        // NaN is not equal to any value.
        None => comparison == Comparison::NotEqual,
    }
}

impl Test {
    fn between(least: &Value, greatest: &Value) -> Option<Self> {
        // An int that is exactly representable as a float.
        let float = |value: &Value| match value {
            Value::Float(value) => Some(value.0),
            Value::Int(value) => i32::try_from(*value).ok().map(f64::from),
            _ => None,
        };
        match (least, greatest) {
            (Value::Int(least), Value::Int(greatest)) => Some(Self::Ints(*least, *greatest)),
            (least, greatest) => Some(Self::Floats(float(least)?, float(greatest)?)),
        }
    }

    fn of(comparison: Comparison, value: &Value) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Test::Int(comparison, *value)),
            Value::Float(value) => Some(Test::Float(comparison, value.0)),
            _ => None,
        }
    }
}

impl Comparison {
    /// The comparison with its operands swapped.
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
