//! Do the ranges of codes that a condition leaves hold just what makes it true?
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use std::cmp::Ordering;

use pellucid_query::expression::{Comparison, Expression, Kind, Node, Part, Step};
use pellucid_query::key_code::push_value;
use pellucid_query::order::{equal, order};
use pellucid_query::plan::code_ranges::{CodeRange, code_ranges};
use pellucid_record::Value;
use pellucid_record::key::KeyEncoder;
use pellucid_record::value::{Double, OwnedZone};

fn part() -> Node {
    Expression::field(vec![Step::Field("x".into())])
}

/// What numbers and others are near each other, and what has no business with them.
fn values() -> Vec<Value> {
    let mut values = vec![Value::None, Value::Bool(false), Value::Bool(true)];
    values.extend(
        [i64::MIN, -300, -2, -1, 0, 1, 2, 3, 255, 256, 1 << 53, (1 << 53) + 1, i64::MAX].map(Value::Int),
    );
    values.extend(
        [
            -1e300,
            -2.5,
            -0.0,
            0.1,
            0.5,
            1.0,
            2.5,
            9_007_199_254_740_992.0,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ]
        .map(|float| Value::Float(Double(float))),
    );
    values.extend(
        [
            "-2.5",
            "0",
            "0.1",
            "0.1000000000000000055511151231257827021181583404541015625",
            "1",
            "1.10",
            "2.5",
            "Infinity",
            "9007199254740993",
        ]
        .map(|text| Value::Decimal(text.into())),
    );
    values.extend(["", "a", "a\0", "a\0b", "ab", "b", "\u{10FFFF}"].map(|text| Value::Str(text.into())));
    values.extend([
        Value::Date(1),
        Value::Date(730_000),
        Value::Datetime(0, false),
        Value::Datetime(5, true),
    ]);
    for (local, offset) in [(3_600_000_000, 0), (7_200_000_000, 3_600_000_000), (7_200_000_000, 0)] {
        let zone = OwnedZone::Fixed(offset, String::new());
        values.push(Value::Aware { local, fold: false, offset, zone });
    }
    values.push(Value::Uuid([7; 16]));
    values.push(Value::Tuple(vec![Value::Int(1)]));
    values
}

fn element(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    encoder.begin_tuple().unwrap();
    if !push_value(&mut encoder, value) {
        return None;
    }
    encoder.end_tuple();
    let (tuple, _) = encoder.take();
    Some(tuple[1..tuple.len() - 1].to_vec())
}

/// The code of a part, with parts before it and a row's key after it, as an index has it.
fn entry(value: &Value, is_descending: bool) -> Option<Vec<u8>> {
    let element = element(value)?;
    let code = if is_descending {
        [&[0], &[&element[..], &[0]].concat().iter().map(|byte| !byte).collect::<Vec<_>>()[..]].concat()
    } else {
        element
    };
    Some([b"before", &code[..], &[0x15, 7]].concat())
}

fn has(code_ranges: &[CodeRange], value: &Value, is_descending: bool) -> bool {
    let Some(entry) = entry(value, is_descending) else { return false };
    let is_in = |code_range: &CodeRange| {
        let code_range = code_range.after(b"before", is_descending);
        code_range.start <= entry && entry < code_range.end
    };
    code_ranges.iter().any(is_in)
}

fn check(condition: &Node, holds: impl Fn(&Value) -> bool) -> bool {
    let Some(found) = code_ranges(condition, &part()) else { return false };
    assert!(found.code_ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{condition}: {found:?}");
    for value in values() {
        for is_descending in [false, true] {
            let is_in = has(&found.code_ranges, &value, is_descending);
            let is_true = holds(&value);
            assert!(is_in || !is_true, "{condition} lacks {value:?}, descending: {is_descending}");
            assert!(
                !found.is_exact || is_in == is_true,
                "{condition} has {value:?}, descending: {is_descending}"
            );
        }
    }
    for code_range in found.code_ranges.iter().filter(|code_range| code_range.is_point()) {
        for is_descending in [false, true] {
            let point = code_range.point_after(b"before", is_descending);
            let all = code_range.after(b"before", is_descending);
            assert!(all.start <= point && point < all.end, "{condition}");
        }
    }
    true
}

#[test]
fn comparisons_leave_what_makes_them_true() {
    let comparisons = [
        (Comparison::Equal, Ordering::is_eq as fn(Ordering) -> bool),
        (Comparison::Less, Ordering::is_lt),
        (Comparison::LessOrEqual, Ordering::is_le),
        (Comparison::Greater, Ordering::is_gt),
        (Comparison::GreaterOrEqual, Ordering::is_ge),
    ];
    let mut useful = 0;
    for literal in values() {
        for (comparison, holds) in comparisons {
            let is_true = |value: &Value| match comparison {
                Comparison::Equal => equal(value, &literal),
                _ => order(value, &literal).is_some_and(holds),
            };
            let kind = Kind::Compare(comparison, part(), Expression::literal(literal.clone()));
            useful += u32::from(check(&Expression::new(kind).unwrap(), is_true));
            // The other way round.
            let turned = Kind::Compare(comparison, Expression::literal(literal.clone()), part());
            check(&Expression::new(turned).unwrap(), |value| match comparison {
                Comparison::Equal => equal(&literal, value),
                _ => order(&literal, value).is_some_and(holds),
            });
        }
    }
    assert!(useful > 200, "{useful}");
}

#[test]
fn ranges_lists_and_prefixes_leave_what_makes_them_true() {
    for least in values() {
        for greatest in values() {
            let (low, high) = (Expression::literal(least.clone()), Expression::literal(greatest.clone()));
            let between = Expression::new(Kind::Between(part(), low, high)).unwrap();
            check(&between, |value| {
                let meets = |bound, holds: fn(Ordering) -> bool| {
                    order(value, bound).map_or_else(|| equal(value, bound), holds)
                };
                meets(&least, Ordering::is_ge) && meets(&greatest, Ordering::is_le)
            });
            let list = vec![least.clone(), greatest.clone()];
            let is_in = Expression::new(Kind::is_in(part(), list)).unwrap();
            check(&is_in, |value| equal(value, &least) || equal(value, &greatest));
        }
    }
    for prefix in ["", "a", "a\0", "\u{10FFFF}"] {
        let kind = Kind::Has(Part::Start, part(), Expression::literal(Value::Str(prefix.into())));
        let starts = |value: &Value| matches!(value, Value::Str(text) if text.starts_with(prefix));
        assert!(check(&Expression::new(kind).unwrap(), starts));
    }
    assert!(check(&Expression::new(Kind::IsNone(part())).unwrap(), |value| *value == Value::None));
}
