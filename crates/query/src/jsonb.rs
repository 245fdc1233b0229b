//! Writes a record as JSON that PostgreSQL's `jsonb` takes, whatever is in the record.
//!
//! The text is that of `arrow::text`, with what `jsonb` refuses or would not tell apart written in
//! another way: an int is a number without a point, a float one with a point and without an
//! exponent, so that `jsonb` keeps the two apart. What JSON has no value for becomes a string.

use std::fmt::Write;

use pellucid_record::value::decode;
use pellucid_record::{Shapes, Value};

use crate::arrow::text;
use crate::evaluate::reach::key_value;

/// The largest text; a larger one might be refused by the server.
const SIZE_MAX: usize = 64 << 20;
/// More digits of an int become a string: a number of `jsonb` has room for 131,072 of them.
const DIGITS_MAX: usize = 1000;
/// What stands for NUL, which `jsonb` refuses: its symbol.
const NUL_SHOWN: &str = "\u{2400}";

/// A record as JSON. None if it is damaged, or its JSON is too large: the column has NULL then.
#[must_use]
pub fn of_record<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Option<String> {
    written(decode(record, shapes).ok()?)
}

/// A key as JSON.
#[must_use]
pub fn of_key(code: &[u8], spelling: &[u8]) -> Option<String> {
    written(key_value(code, spelling).ok()?)
}

/// Whether a field of this name is found in the JSON where it is in the record, and nowhere else. A
/// key that is no string might have been written as this name.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    let is_uuid = name.len() == 36 && name.as_bytes().get(8) == Some(&b'-');
    let begins = ["PT", "NaN", "sNaN", "Inf", "true", "false", "null"];
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit() || "-\\[({<".contains(first))
        && !begins.iter().any(|begin| name.starts_with(begin))
        && !name.contains(['\0', '\u{2400}', char::REPLACEMENT_CHARACTER])
        && !is_uuid
}

fn written(value: Value) -> Option<String> {
    let mut out = String::new();
    text::push(&plain(value), &mut out);
    (out.len() <= SIZE_MAX).then_some(out)
}

/// The value with what `jsonb` has no form for replaced. A Decimal in the result is written as it
/// stands there.
fn plain(value: Value) -> Value {
    match value {
        Value::Float(float) if !float.0.is_finite() => {
            let name = if float.0.is_nan() { "NaN" } else { "Infinity" };
            Value::Str(if float.0 < 0.0 { format!("-{name}") } else { name.to_owned() })
        }
        Value::Float(float) => {
            let digits = float.0.to_string();
            Value::Decimal(if digits.contains('.') { digits } else { format!("{digits}.0") })
        }
        Value::BigInt(payload) => {
            let digits = text::big_int(&payload).to_string();
            if digits.len() > DIGITS_MAX { Value::Str(digits) } else { Value::Decimal(digits) }
        }
        Value::Decimal(digits) => Value::Str(digits),
        Value::Str(text) => Value::Str(without_nul(text)),
        Value::Surrogates(text) => Value::Str(without_nul(text::lossy(&text))),
        Value::Bytes(bytes) | Value::Bytearray(bytes) => Value::Str(hex(&bytes)),
        Value::List(elements)
        | Value::Tuple(elements)
        | Value::Set(elements)
        | Value::FrozenSet(elements) => Value::List(elements.into_iter().map(plain).collect()),
        Value::Dict(entries) => {
            Value::Dict(entries.into_iter().map(|(key, value)| (plain(key), plain(value))).collect())
        }
        Value::Registered(_, value) => plain(*value),
        // A zone's name is text of the user's.
        Value::Aware { .. } | Value::Time(..) => {
            let mut shown = String::new();
            text::push(&value, &mut shown);
            Value::Str(without_nul(shown.trim_matches('"').to_owned()))
        }
        other => other,
    }
}

fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', NUL_SHOWN) } else { text }
}

/// Bytes in the form in which PostgreSQL reads a `bytea`.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + bytes.len() * 2);
    out.push_str("\\x");
    for byte in bytes {
        // Writing to a String never fails.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_record::value::Double;

    #[test]
    fn whatever_a_record_holds_is_json_that_jsonb_takes() {
        let float = |value| Value::Float(Double(value));
        for (value, expected) in [
            (Value::Int(1), "1"),
            (float(1.0), "1.0"),
            (float(1e20), "100000000000000000000.0"),
            (float(5e-7), "0.0000005"),
            (float(f64::NAN), "\"NaN\""),
            (float(f64::NEG_INFINITY), "\"-Infinity\""),
            (Value::Decimal("1.10".into()), "\"1.10\""),
            (Value::Str("a\0b".into()), "\"a\u{2400}b\""),
            (Value::Surrogates(b"a\xed\xa0\x80".to_vec()), "\"a\u{fffd}\""),
            (Value::Bytes(vec![0, 255]), "\"\\\\x00ff\""),
            (Value::Tuple(vec![Value::Int(1), float(f64::INFINITY)]), "[1, \"Infinity\"]"),
            (
                Value::Dict(vec![
                    (Value::Int(1), Value::None),
                    (Value::Bytes(vec![1]), Value::Bool(true)),
                    (Value::Tuple(vec![Value::Str("a".into())]), Value::Int(2)),
                ]),
                "{\"1\": null, \"\\\\x01\": true, \"[\\\"a\\\"]\": 2}",
            ),
        ] {
            assert_eq!(written(value).as_deref(), Some(expected));
        }
    }

    #[test]
    fn names_that_a_key_of_another_type_may_be_written_as_are_told() {
        assert!(["age", "a", "b2", "name of it", "\u{e9}", "T"].into_iter().all(is_own_name));
        let others = ["", "1", "-1", "2024-05-17", "\\x00", "[1]", "true", "NaN", "a\0", "\u{2400}", "PT1S"];
        assert!(!others.into_iter().any(is_own_name));
        assert!(!is_own_name("a2345678-1234-1234-1234-123456789abc"));
    }
}
