//! Compares two parts with `each()` without comparing all pairs of their values.
//!
//! The values of the right part are collected first. For equality, a value is looked up among them.
//! For an order, only the extreme matters: a value is less than any of them if it is less than the
//! greatest. Values of incomparable types have no order, so there is one greatest value for each
//! kind.

use std::cmp::Ordering;

use pellucid_record::{Corrupt, Shapes, Value};
use pellucid_store::Row;

use super::evaluator::Operator;
use super::found::Found;
use crate::expression::Comparison;
use crate::in_list::InList;
use crate::order::order;

/// The values of the right part for one row, reduced to what the comparison needs.
pub(super) enum Others {
    /// For `==` and `!=`: all values.
    InList(InList),
    /// For the other comparisons: the extreme values, one for each set of values that can be
    /// ordered.
    Beyond(Comparison, Vec<Value>),
}

impl Others {
    /// Collects the values of `part`, the right operand of `comparison`.
    pub(super) fn of<S: Shapes + ?Sized>(
        comparison: Comparison,
        part: &mut Operator,
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<Self, Corrupt> {
        let mut values = Vec::new();
        part.visit(row, shapes, &mut |found| {
            let Some(value) = found.to_value(shapes)? else { return Ok(false) };
            match comparison {
                Comparison::Less | Comparison::LessOrEqual => keep_last(&mut values, value, |order| order),
                Comparison::Greater | Comparison::GreaterOrEqual => {
                    keep_last(&mut values, value, Ordering::reverse);
                }
                Comparison::Equal | Comparison::NotEqual => values.push(value),
            }
            Ok(false)
        })?;
        Ok(match comparison {
            Comparison::Equal | Comparison::NotEqual => Self::InList(InList::new(values)),
            comparison => Self::Beyond(comparison, values),
        })
    }

    /// Whether the comparison holds for this value and any of the collected ones.
    pub(super) fn hold<S: Shapes + ?Sized>(&self, found: &Found<'_>, shapes: &S) -> Result<bool, Corrupt> {
        match self {
            Self::InList(list) => found.is_in_list(list, shapes),
            Self::Beyond(comparison, others) => {
                let Some(value) = found.to_value(shapes)? else { return Ok(false) };
                let holds = |other| order(&value, other).is_some_and(|order| comparison.holds(order));
                Ok(others.iter().any(holds))
            }
        }
    }
}

/// Adds a value to the extreme values, unless one of them is at least as extreme. Removes those
/// that it exceeds.
fn keep_last(last: &mut Vec<Value>, value: Value, turn: impl Fn(Ordering) -> Ordering) {
    // A value that has no order with itself (NaN, None, a dict) has none with any other. Tuples and
    // lists are different: one that contains NaN can still be ordered with others.
    let is_sequence = matches!(value, Value::Tuple(_) | Value::List(_));
    if !is_sequence && order(&value, &value).is_none() {
        return;
    }
    if last.iter().any(|other| order(&value, other).is_some_and(|order| turn(order).is_le())) {
        return;
    }
    last.retain(|other| !order(&value, other).is_some_and(|order| turn(order).is_gt()));
    last.push(value);
}

#[cfg(test)]
mod tests {
    use pellucid_record::value::{Double, NoShapes, encode_value};

    use super::super::reach::Reach;
    use super::*;
    use crate::expression::Step;

    /// Values of many types, some of which can be ordered with values of another type.
    fn values(seed: u64) -> Vec<Value> {
        let mut state = seed;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        let scalar = |below: &mut dyn FnMut(u64) -> u64| match below(9) {
            0 | 1 => Value::Int(below(4).cast_signed()),
            2 => Value::Float(Double([0.5, 1.0, f64::NAN, f64::INFINITY][below(4) as usize])),
            3 => Value::Decimal(["1", "1.5", "NaN", "2.0"][below(4) as usize].to_owned()),
            4 => Value::Str(["", "a", "b"][below(3) as usize].to_owned()),
            5 => Value::None,
            6 => Value::Bytes(vec![below(3) as u8]),
            7 => Value::Date(1 + below(3) as u32),
            _ => Value::Bool(below(2) == 1),
        };
        let count = below(6);
        (0..count)
            .map(|_| match below(4) {
                0 => {
                    let size = below(3);
                    let elements = (0..size).map(|_| scalar(&mut below)).collect();
                    if below(2) == 0 { Value::Tuple(elements) } else { Value::List(elements) }
                }
                _ => scalar(&mut below),
            })
            .collect()
    }

    #[test]
    fn two_parts_with_each_compare_as_all_their_pairs() {
        let mut held = 0;
        for seed in 0..3000 {
            let (one, other) = (values(seed), values(seed + 1_000_000));
            let both = Value::List(vec![Value::List(one.clone()), Value::List(other.clone())]);
            let record = encode_value(&both, &mut NoShapes).unwrap();
            let row = Row { key: &[], spelling: &[], record: &record };
            for comparison in [
                Comparison::Equal,
                Comparison::Less,
                Comparison::LessOrEqual,
                Comparison::Greater,
                Comparison::GreaterOrEqual,
            ] {
                let part = |index| Operator::Reach(Box::new(Reach::of(&[Step::Index(index), Step::Each])));
                let pairs = |one: &Value| {
                    other.iter().any(|other| match comparison {
                        Comparison::Equal => crate::order::equal(one, other),
                        comparison => order(one, other).is_some_and(|order| comparison.holds(order)),
                    })
                };
                let expected = one.iter().any(pairs);
                let is_true =
                    Operator::compare(comparison, &mut [part(0), part(1)], &row, &NoShapes).unwrap();
                assert_eq!(is_true, expected, "{one:?} {comparison:?} {other:?}");
                held += u32::from(expected);
            }
        }
        assert!(held > 1000);
    }

    #[test]
    fn of_many_values_few_are_compared_with() {
        let mut kept = Vec::new();
        for number in 0..1000 {
            keep_last(&mut kept, Value::Int(number * 7919 % 1000), |order| order);
            keep_last(&mut kept, Value::Str(number.to_string()), |order| order);
            keep_last(&mut kept, Value::Float(Double(f64::NAN)), |order| order);
            keep_last(&mut kept, Value::None, |order| order);
        }
        assert_eq!(kept, [Value::Int(999), Value::Str("999".into())]);
    }
}
