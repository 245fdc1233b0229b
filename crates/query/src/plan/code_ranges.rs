//! Finds the codes that the part of an index may have where a condition is true.
//!
//! A condition that compares the part with a value leaves ranges of codes: one for the numbers and
//! one for the Decimals, which compare with each other but have codes apart; and one for each value
//! of `isin`. Any other condition leaves no code ranges, and the index cannot serve it. Code ranges
//! have the order of elements of a tuple (`pellucid_record::key`), where a byte below FE follows
//! each code.

use pellucid_record::Value;
use pellucid_record::key::{BEHIND_PARTS, KeyEncoder, prefix_range};

use crate::expression::{Comparison, Expression, Kind, Node, Part};
use crate::index::successor;
use crate::key_code::{decimal_text, push_value};
use crate::plan::neighbours::{Neighbours, neighbours};

/// The codes from `start` up to, but without, `end`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeRange {
    /// The first code.
    pub start: Vec<u8>,
    /// The first code after the code range.
    pub end: Vec<u8>,
}

impl CodeRange {
    fn new(start: &[u8], end: &[u8]) -> Self {
        Self { start: start.to_vec(), end: end.to_vec() }
    }

    fn point(code: Vec<u8>) -> Self {
        Self { end: end_of(&code), start: code }
    }

    /// Whether the code range is one single code.
    #[must_use]
    pub fn is_point(&self) -> bool {
        self.end.split_last() == Some((&BEHIND_PARTS, &self.start))
    }

    /// The same code range in an index, after the codes of the parts before it. `is_descending`
    /// inverts each byte.
    #[must_use]
    pub fn after(&self, parts: &[u8], is_descending: bool) -> Self {
        if !is_descending {
            return Self { start: [parts, &self.start].concat(), end: [parts, &self.end].concat() };
        }
        let edge = |code: &[u8]| [parts, &[0], &turned(code)].concat();
        Self { start: successor(edge(&self.end)), end: successor(edge(&self.start)) }
    }

    /// The code of a point in an index, after the codes of the parts before it.
    #[must_use]
    pub fn point_after(&self, parts: &[u8], is_descending: bool) -> Vec<u8> {
        if is_descending {
            [parts, &[0], &turned(&self.start), &[0xFF]].concat()
        } else {
            [parts, &self.start].concat()
        }
    }
}

/// The codes that a condition leaves of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRanges {
    /// The code ranges, in order; none touches another.
    pub code_ranges: Vec<CodeRange>,
    /// Whether every value in the code ranges makes the condition true.
    pub is_exact: bool,
}

impl CodeRanges {
    /// The codes that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mut code_ranges, mut others) = (Vec::new(), other.code_ranges.as_slice());
        for one in &self.code_ranges {
            // Both are in order: a code range that ends before this one ends before all that
            // follow.
            let behind = others.iter().take_while(|other| other.end <= one.start).count();
            others = others.get(behind..).unwrap_or_default();
            for other in others.iter().take_while(|other| other.start < one.end) {
                code_ranges.push(CodeRange::new((&one.start).max(&other.start), (&one.end).min(&other.end)));
            }
        }
        Self { code_ranges, is_exact: self.is_exact && other.is_exact }
    }

    fn of(mut code_ranges: Vec<CodeRange>, is_exact: bool) -> Self {
        code_ranges.retain(|code_range| code_range.start < code_range.end);
        code_ranges.sort();
        let mut apart: Vec<CodeRange> = Vec::with_capacity(code_ranges.len());
        for code_range in code_ranges {
            match apart.last_mut() {
                Some(last) if code_range.start < last.end => {
                    if code_range.end > last.end {
                        last.end = code_range.end;
                    }
                }
                _ => apart.push(code_range),
            }
        }
        Self { code_ranges: apart, is_exact }
    }

    /// Whether the code ranges contain the code of an int or a float.
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        self.code_ranges.iter().any(|code_range| {
            code_range.start.as_slice() < &[NUMBERS.1][..] && code_range.end.as_slice() > &[NUMBERS.0][..]
        })
    }

    /// Whether all of these code ranges are in those of `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let mut others = other.code_ranges.iter().peekable();
        self.code_ranges.iter().all(|code_range| {
            while others.next_if(|all| all.end < code_range.end).is_some() {}
            others.peek().is_some_and(|all| all.start <= code_range.start)
        })
    }
}

/// The largest number of values that are looked up one by one. Counting the entries of more would
/// take longer than Ctrl-C may wait.
pub const LOOKED_UP_MAX: usize = 1 << 14;

/// The code ranges that `condition` leaves of `part`. None if it is no comparison of that part with
/// a value that an index can have.
#[must_use]
pub fn code_ranges(condition: &Node, part: &Expression) -> Option<CodeRanges> {
    if operand(condition)? != part {
        return None;
    }
    match condition.kind() {
        Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
            (_, Kind::Literal(value)) => compared(*comparison, value),
            (Kind::Literal(value), _) => compared(comparison.turned(), value),
            _ => None,
        },
        Kind::Between(_, least, greatest) => match (least.kind(), greatest.kind()) {
            (Kind::Literal(value), _) if Kind::only_value(least, greatest).is_some() => {
                compared(Comparison::Equal, value)
            }
            (Kind::Literal(least), Kind::Literal(greatest)) => {
                let least = compared(Comparison::GreaterOrEqual, least)?;
                Some(least.and(&compared(Comparison::LessOrEqual, greatest)?))
            }
            _ => None,
        },
        Kind::IsIn(_, values) if values.len() <= LOOKED_UP_MAX => {
            let all: Option<Vec<_>> = values.iter().map(|value| compared(Comparison::Equal, value)).collect();
            let all = all?;
            let is_exact = all.iter().all(|code_ranges| code_ranges.is_exact);
            Some(CodeRanges::of(
                all.into_iter().flat_map(|code_ranges| code_ranges.code_ranges).collect(),
                is_exact,
            ))
        }
        Kind::IsNone(_) => compared(Comparison::Equal, &Value::None),
        Kind::Has(Part::Start, _, prefix) => match prefix.kind() {
            Kind::Literal(value @ (Value::Str(_) | Value::Surrogates(_))) => {
                let range = prefix_range(&code_of(value)?)?;
                Some(CodeRanges::of(vec![CodeRange::new(&range.start, &range.end)], true))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether a condition tests equality, and not an order.
#[must_use]
pub fn is_equality(condition: &Node) -> bool {
    match condition.kind() {
        Kind::Compare(Comparison::Equal, ..) | Kind::IsIn(..) | Kind::IsNone(_) => true,
        Kind::Between(_, least, greatest) => Kind::only_value(least, greatest).is_some(),
        _ => false,
    }
}

/// The operand that a condition compares with literal values.
#[must_use]
pub fn operand(condition: &Node) -> Option<&Expression> {
    let is_literal = |node: &Node| matches!(node.kind(), Kind::Literal(_));
    match condition.kind() {
        Kind::Compare(_, one, other) if is_literal(one) => Some(other),
        Kind::Compare(_, one, _)
        | Kind::Between(one, ..)
        | Kind::IsIn(one, _)
        | Kind::IsNone(one)
        | Kind::Exists(one)
        | Kind::Has(_, one, _) => Some(one),
        _ => None,
    }
}

fn compared(comparison: Comparison, value: &Value) -> Option<CodeRanges> {
    if comparison == Comparison::NotEqual {
        return None;
    }
    let mut code_ranges = vec![code_range(comparison, value)?];
    let mut is_exact = true;
    if let Value::Decimal(text) = value {
        match neighbours(text) {
            Some(Neighbours::Equal(number)) => code_ranges.push(code_range(comparison, &number)?),
            Some(Neighbours::Between(below, above)) => code_ranges.extend(beside(comparison, &below, &above)),
            // Finding the adjacent numbers would take too long: the code range has all numbers, and
            // the condition is tested again.
            None => {
                code_ranges.push(CodeRange::new(&[NUMBERS.0], &[NUMBERS.1]));
                is_exact = false;
            }
        }
    } else if let Some(text) = decimal_text(value) {
        code_ranges.push(code_range(comparison, &Value::Decimal(text))?);
    }
    Some(CodeRanges::of(code_ranges, is_exact))
}

/// The code range of the numbers that compare in this way with a value between `below` and `above`,
/// two adjacent numbers.
fn beside(comparison: Comparison, below: &Value, above: &Value) -> Option<CodeRange> {
    match comparison {
        Comparison::Less | Comparison::LessOrEqual => code_range(Comparison::LessOrEqual, below),
        Comparison::Greater | Comparison::GreaterOrEqual => code_range(Comparison::GreaterOrEqual, above),
        Comparison::Equal | Comparison::NotEqual => None,
    }
}

/// The codes of all numbers but Decimals, from -inf to +inf, and the first code after them
/// (format.md, "Ordered keys").
const NUMBERS: (u8, u8) = (0x0A, 0x1F);

/// The range of codes in the value's own family for which a comparison with it holds.
fn code_range(comparison: Comparison, value: &Value) -> Option<CodeRange> {
    let code = code_of(value)?;
    let first = *code.first()?;
    let (least, end) = match value {
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => NUMBERS,
        Value::Decimal(_)
        | Value::Str(_)
        | Value::Surrogates(_)
        | Value::Bytes(_)
        | Value::Date(_)
        | Value::Uuid(_)
        | Value::Datetime(..)
        | Value::Aware { .. } => (first, first + 1),
        // None has no order, but equals itself.
        Value::None if comparison == Comparison::Equal => (first, first + 1),
        // Tuples of unlike elements do not compare. The other values have no codes.
        _ => return None,
    };
    Some(match comparison {
        Comparison::Equal => CodeRange::point(code),
        Comparison::NotEqual => return None,
        Comparison::Less => CodeRange::new(&[least], &code),
        Comparison::LessOrEqual => CodeRange::new(&[least], &end_of(&code)),
        Comparison::Greater => CodeRange::new(&end_of(&code), &[end]),
        Comparison::GreaterOrEqual => CodeRange::new(&code, &[end]),
    })
}

/// The code of a value as an element of a tuple.
fn code_of(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    encoder.begin_tuple().ok()?;
    if !push_value(&mut encoder, value) {
        return None;
    }
    encoder.end_tuple();
    let (tuple, _) = encoder.take();
    // The bytes between the tuple's first byte and its last.
    tuple.get(1..tuple.len().checked_sub(1)?).map(<[u8]>::to_vec)
}

fn end_of(code: &[u8]) -> Vec<u8> {
    [code, &[BEHIND_PARTS]].concat()
}

fn turned(code: &[u8]) -> Vec<u8> {
    code.iter().map(|byte| !byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_both_is_in_each() {
        let mut state = 1_u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % count) as u8
        };
        for _ in 0..2000 {
            let mut some = || {
                let edges: Vec<(u8, u8)> = (0..below(6)).map(|_| (below(40), below(10))).collect();
                let code_range = |(start, size): &(u8, u8)| CodeRange::new(&[*start], &[start + size]);
                CodeRanges::of(edges.iter().map(code_range).collect(), true)
            };
            let (one, other) = (some(), some());
            let has = |code_ranges: &CodeRanges, code: u8| {
                code_ranges
                    .code_ranges
                    .iter()
                    .any(|code_range| *code_range.start <= [code][..] && [code][..] < *code_range.end)
            };
            let both = one.and(&other);
            assert!(
                both.code_ranges.is_sorted()
                    && both.code_ranges.iter().all(|code_range| code_range.start < code_range.end)
            );
            for code in 0..60 {
                assert_eq!(has(&both, code), has(&one, code) && has(&other, code), "{one:?} {other:?}");
            }
            assert!(both.is_within(&one) && both.is_within(&other));
            let is_within = |all: &CodeRange| {
                other.code_ranges.iter().any(|in_it| in_it.start <= all.start && all.end <= in_it.end)
            };
            assert_eq!(one.is_within(&other), one.code_ranges.iter().all(is_within), "{one:?} {other:?}");
        }
    }
}
