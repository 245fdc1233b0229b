//! Finds the part of a table that conditions on the key leave.
//!
//! A condition that compares the row's whole key with a value becomes a bound of the scan, and no
//! row is tested for it. This works because the codes of keys have the order of the keys, and
//! comparisons never hold between unlike types, whose codes lie apart.

use std::ops::Bound;

use pellucid_record::Value;
use pellucid_record::key::{KeyEncoder, prefix_range};
use pellucid_store::Range;

use crate::expression::{Comparison, Kind, Node, Part, Source};
use crate::key_code::push_value;

/// The codes of keys that are Decimals (format.md, "Ordered keys"): they compare with other
/// numbers, but lie apart from them.
#[must_use]
pub fn decimals() -> Range {
    Range::half_open(vec![0x20], vec![0x21])
}

/// The range of keys that all `conditions` leave, and the conditions that still have to be tested.
/// `has_decimals`: there may be Decimals among the keys.
#[must_use]
pub fn of(conditions: &[Node], has_decimals: bool) -> (Range, Vec<Node>) {
    let mut range = Range::ALL;
    let mut rest = Vec::new();
    for condition in parts(conditions) {
        match bounds(condition.kind()) {
            Some((bounds, is_number)) if !(is_number && has_decimals) => narrow(&mut range, bounds),
            _ => rest.push(condition),
        }
    }
    (range, rest)
}

/// Splits conditions that must all be true into single ones.
#[must_use]
pub fn parts(conditions: &[Node]) -> Vec<Node> {
    let parts = |condition: &Node| match condition.kind() {
        Kind::And(parts) => parts.iter().cloned().collect(),
        _ => vec![condition.clone()],
    };
    conditions.iter().flat_map(parts).collect()
}

/// The codes of all keys for which a condition can be true, in order, each once. None if it does
/// not name them, or names more than `count_max`. `has_decimals`: as in `of`.
#[must_use]
pub fn named(condition: &Node, count_max: usize, has_decimals: bool) -> Option<Vec<Vec<u8>>> {
    let mut codes = Vec::new();
    add_named(condition, (count_max, has_decimals), &mut codes).then(|| {
        codes.sort_unstable();
        codes.dedup();
        codes
    })
}

fn add_named(condition: &Node, (count_max, has_decimals): (usize, bool), codes: &mut Vec<Vec<u8>>) -> bool {
    let is_key = |node: &Node| matches!(node.kind(), Kind::Field(Source::Key, path) if path.is_empty());
    let mut add = |value: &Value| {
        // If each key has to be tested to know whether it equals the value, the condition names no
        // keys.
        let (Some(code), Some((_, _, is_number))) = (code_of(value), family(value)) else { return false };
        codes.push(code);
        codes.len() <= count_max && !(is_number && has_decimals)
    };
    match condition.kind() {
        Kind::Compare(Comparison::Equal, one, other) => match (one.kind(), other.kind()) {
            (_, Kind::Literal(value)) if is_key(one) => add(value),
            (Kind::Literal(value), _) if is_key(other) => add(value),
            _ => false,
        },
        Kind::IsIn(part, among) if is_key(part) && among.len() <= count_max => among.iter().all(add),
        Kind::Or(parts) => parts.iter().all(|part| add_named(part, (count_max, has_decimals), codes)),
        _ => false,
    }
}

/// The range that a condition leaves, and whether it is a range of numbers.
fn bounds(kind: &Kind) -> Option<(Range, bool)> {
    match kind {
        Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
            (Kind::Field(Source::Key, path), Kind::Literal(value)) if path.is_empty() => {
                compared(*comparison, value)
            }
            (Kind::Literal(value), Kind::Field(Source::Key, path)) if path.is_empty() => {
                compared(comparison.turned(), value)
            }
            _ => None,
        },
        Kind::Between(key, least, greatest) => match (key.kind(), least.kind(), greatest.kind()) {
            (Kind::Field(Source::Key, path), Kind::Literal(least), Kind::Literal(greatest))
                if path.is_empty() =>
            {
                let (mut range, is_number) = compared(Comparison::GreaterOrEqual, least)?;
                narrow(&mut range, compared(Comparison::LessOrEqual, greatest)?.0);
                Some((range, is_number))
            }
            _ => None,
        },
        Kind::Has(Part::Start, key, prefix) => match (key.kind(), prefix.kind()) {
            (Kind::Field(Source::Key, path), Kind::Literal(prefix @ (Value::Str(_) | Value::Bytes(_))))
                if path.is_empty() =>
            {
                let found = prefix_range(&code_of(prefix)?)?;
                Some((Range::half_open(found.start, found.end), false))
            }
            _ => None,
        },
        _ => None,
    }
}

fn code_of(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    push_value(&mut encoder, value).then(|| encoder.take().0)
}

/// The range of keys for which a comparison with a value holds. Keys of another type have codes
/// that begin otherwise.
fn compared(comparison: Comparison, value: &Value) -> Option<(Range, bool)> {
    let code = code_of(value)?;
    let (least, end, is_number) = family(value)?;
    let (start, end) = match comparison {
        Comparison::Equal => (Bound::Included(code.clone()), Bound::Included(code)),
        Comparison::NotEqual => return None,
        Comparison::Less => (Bound::Included(least), Bound::Excluded(code)),
        Comparison::LessOrEqual => (Bound::Included(least), Bound::Included(code)),
        Comparison::Greater => (Bound::Excluded(code), Bound::Excluded(end)),
        Comparison::GreaterOrEqual => (Bound::Included(code), Bound::Excluded(end)),
    };
    Some((Range { start, end }, is_number))
}

/// The begin and the end of the codes of all keys that compare with a value, without Decimals, and
/// whether they are numbers. None if each key must be tested.
fn family(value: &Value) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let first = *code_of(value)?.first()?;
    match value {
        // All numbers, from -inf to +inf (format.md, "Ordered keys").
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => {
            Some((vec![0x0A], vec![0x1F], true))
        }
        Value::Str(_) | Value::Bytes(_) | Value::Date(_) | Value::Uuid(_) | Value::Datetime(..) => {
            Some((vec![first], vec![first + 1], false))
        }
        // Tuples of unlike elements do not compare. The code of an aware datetime has its zone.
        _ => None,
    }
}

fn narrow(range: &mut Range, other: Range) {
    let key = |edge: &Bound<Vec<u8>>| match edge {
        Bound::Included(key) => Some((key.clone(), false)),
        Bound::Excluded(key) => Some((key.clone(), true)),
        Bound::Unbounded => None,
    };
    // If both starts are at one key, the one that excludes it is later.
    if key(&other.start) > key(&range.start) {
        range.start = other.start;
    }
    let ends_before = match (key(&other.end), key(&range.end)) {
        (Some((one, is_out)), Some((two, two_is_out))) => (one, !is_out) < (two, !two_is_out),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if ends_before {
        range.end = other.end;
    }
}
