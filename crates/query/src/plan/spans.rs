//! Finds the codes that the part of an index may have where a condition is true.
//!
//! A condition that compares the part with a value leaves spans of codes: one for the numbers and
//! one for the Decimals, which compare with each other but have codes apart; and one for each value
//! of `isin`. Any other condition leaves no spans, and the index cannot serve it. Spans have the
//! order of elements of a tuple (`pellucid_record::key`), where a byte below FE follows each code.

use pellucid_record::Value;
use pellucid_record::key::{BEHIND_PARTS, KeyEncoder, prefix_range};

use crate::expression::{Comparison, Expression, Kind, Node, Part};
use crate::index::successor;
use crate::key_code::{decimal_text, push_value};
use crate::plan::neighbours::{Neighbours, neighbours};

/// The codes from `start` up to, but without, `end`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first code.
    pub start: Vec<u8>,
    /// The first code after the span.
    pub end: Vec<u8>,
}

impl Span {
    fn new(start: &[u8], end: &[u8]) -> Self {
        Self { start: start.to_vec(), end: end.to_vec() }
    }

    fn point(code: Vec<u8>) -> Self {
        Self { end: end_of(&code), start: code }
    }

    /// Whether the span is one single code.
    #[must_use]
    pub fn is_point(&self) -> bool {
        self.end.split_last() == Some((&BEHIND_PARTS, &self.start))
    }

    /// The same span in an index, after the codes of the parts before it. `is_descending` inverts
    /// each byte.
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
pub struct Spans {
    /// The spans, in order; none touches another.
    pub spans: Vec<Span>,
    /// Whether every value in the spans makes the condition true.
    pub is_exact: bool,
}

impl Spans {
    /// The codes that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mut spans, mut others) = (Vec::new(), other.spans.as_slice());
        for one in &self.spans {
            // Both are in order: a span that ends before this one ends before all that follow.
            let behind = others.iter().take_while(|other| other.end <= one.start).count();
            others = others.get(behind..).unwrap_or_default();
            for other in others.iter().take_while(|other| other.start < one.end) {
                spans.push(Span::new((&one.start).max(&other.start), (&one.end).min(&other.end)));
            }
        }
        Self { spans, is_exact: self.is_exact && other.is_exact }
    }

    fn of(mut spans: Vec<Span>, is_exact: bool) -> Self {
        spans.retain(|span| span.start < span.end);
        spans.sort();
        let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match apart.last_mut() {
                Some(last) if span.start < last.end => {
                    if span.end > last.end {
                        last.end = span.end;
                    }
                }
                _ => apart.push(span),
            }
        }
        Self { spans: apart, is_exact }
    }

    /// Whether the spans contain the code of an int or a float.
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        self.spans
            .iter()
            .any(|span| span.start.as_slice() < &[NUMBERS.1][..] && span.end.as_slice() > &[NUMBERS.0][..])
    }

    /// Whether all of these spans are in those of `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let mut others = other.spans.iter().peekable();
        self.spans.iter().all(|span| {
            while others.next_if(|all| all.end < span.end).is_some() {}
            others.peek().is_some_and(|all| all.start <= span.start)
        })
    }
}

/// The largest number of values that are looked up one by one. Counting the entries of more would
/// take longer than Ctrl-C may wait.
pub const LOOKED_UP_MAX: usize = 1 << 14;

/// The spans that `condition` leaves of `part`. None if it is no comparison of that part with a
/// value that an index can have.
#[must_use]
pub fn spans(condition: &Node, part: &Expression) -> Option<Spans> {
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
            let is_exact = all.iter().all(|spans| spans.is_exact);
            Some(Spans::of(all.into_iter().flat_map(|spans| spans.spans).collect(), is_exact))
        }
        Kind::IsNone(_) => compared(Comparison::Equal, &Value::None),
        Kind::Has(Part::Start, _, prefix) => match prefix.kind() {
            Kind::Literal(value @ (Value::Str(_) | Value::Surrogates(_))) => {
                let range = prefix_range(&code_of(value)?)?;
                Some(Spans::of(vec![Span::new(&range.start, &range.end)], true))
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

fn compared(comparison: Comparison, value: &Value) -> Option<Spans> {
    if comparison == Comparison::NotEqual {
        return None;
    }
    let mut spans = vec![span(comparison, value)?];
    let mut is_exact = true;
    if let Value::Decimal(text) = value {
        match neighbours(text) {
            Some(Neighbours::Equal(number)) => spans.push(span(comparison, &number)?),
            Some(Neighbours::Between(below, above)) => spans.extend(beside(comparison, &below, &above)),
            // Finding the adjacent numbers would take too long: the span has all numbers, and the
            // condition is tested again.
            None => {
                spans.push(Span::new(&[NUMBERS.0], &[NUMBERS.1]));
                is_exact = false;
            }
        }
    } else if let Some(text) = decimal_text(value) {
        spans.push(span(comparison, &Value::Decimal(text))?);
    }
    Some(Spans::of(spans, is_exact))
}

/// The span of the numbers that compare in this way with a value between `below` and `above`, two
/// adjacent numbers.
fn beside(comparison: Comparison, below: &Value, above: &Value) -> Option<Span> {
    match comparison {
        Comparison::Less | Comparison::LessOrEqual => span(Comparison::LessOrEqual, below),
        Comparison::Greater | Comparison::GreaterOrEqual => span(Comparison::GreaterOrEqual, above),
        Comparison::Equal | Comparison::NotEqual => None,
    }
}

/// The codes of all numbers but Decimals, from -inf to +inf, and the first code after them
/// (format.md, "Ordered keys").
const NUMBERS: (u8, u8) = (0x0A, 0x1F);

/// The span of codes in the value's own family for which a comparison with it holds.
fn span(comparison: Comparison, value: &Value) -> Option<Span> {
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
        Comparison::Equal => Span::point(code),
        Comparison::NotEqual => return None,
        Comparison::Less => Span::new(&[least], &code),
        Comparison::LessOrEqual => Span::new(&[least], &end_of(&code)),
        Comparison::Greater => Span::new(&end_of(&code), &[end]),
        Comparison::GreaterOrEqual => Span::new(&code, &[end]),
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
                let span = |(start, size): &(u8, u8)| Span::new(&[*start], &[start + size]);
                Spans::of(edges.iter().map(span).collect(), true)
            };
            let (one, other) = (some(), some());
            let has = |spans: &Spans, code: u8| {
                spans.spans.iter().any(|span| *span.start <= [code][..] && [code][..] < *span.end)
            };
            let both = one.and(&other);
            assert!(both.spans.is_sorted() && both.spans.iter().all(|span| span.start < span.end));
            for code in 0..60 {
                assert_eq!(has(&both, code), has(&one, code) && has(&other, code), "{one:?} {other:?}");
            }
            assert!(both.is_within(&one) && both.is_within(&other));
            let is_within =
                |all: &Span| other.spans.iter().any(|in_it| in_it.start <= all.start && all.end <= in_it.end);
            assert_eq!(one.is_within(&other), one.spans.iter().all(is_within), "{one:?} {other:?}");
        }
    }
}
