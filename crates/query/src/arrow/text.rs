//! Writes a value as text, for columns whose values have no common type.
//!
//! The text is JSON where JSON has such a value, so that `1` and `"1"` stay different. Other values
//! become JSON strings: dates and times in ISO 8601, bytes as hexadecimal digits, the rest as
//! Python shows it.

use std::fmt::Write;

use pellucid_record::Value;
use pellucid_record::calendar::date_of;
use pellucid_record::layout::MICROS_PER_DAY;
use pellucid_record::payload::{Timedelta, bigint_magnitude};
use pellucid_record::value::OwnedZone;

use num_bigint::{BigInt, Sign};

/// Appends the text of a value. A value that cannot be read here, such as a pickle, becomes its
/// kind: `"<pickle>"`.
pub fn push(value: &Value, out: &mut String) {
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => add(out, format_args!("{value}")),
        Value::Int(value) => add(out, format_args!("{value}")),
        Value::BigInt(payload) => add(out, format_args!("{}", big_int(payload))),
        Value::Float(value) => push_float(value.0, out),
        Value::Decimal(text) => out.push_str(text),
        Value::Str(text) => push_str(text, out),
        Value::Surrogates(text) => push_str(&lossy(text), out),
        Value::Bytes(bytes) | Value::Bytearray(bytes) => {
            out.push('"');
            for byte in bytes {
                add(out, format_args!("{byte:02x}"));
            }
            out.push('"');
        }
        Value::Complex(real, imaginary) => {
            add(out, format_args!("\"({:?}{:+?}j)\"", real.0, imaginary.0));
        }
        Value::Uuid(uuid) => push_uuid(*uuid, out),
        Value::Date(_) | Value::Datetime(..) | Value::Aware { .. } | Value::Time(..) => {
            out.push('"');
            push_moment(value, out);
            out.push('"');
        }
        Value::Timedelta(delta) => push_timedelta(delta, out),
        Value::List(elements)
        | Value::Tuple(elements)
        | Value::Set(elements)
        | Value::FrozenSet(elements) => {
            push_list(elements, out);
        }
        Value::Dict(entries) => push_dict(entries, out),
        Value::Registered(_, value) => push(value, out),
        Value::Ndarray { .. } => out.push_str("\"<array>\""),
        Value::Pickle(_) => out.push_str("\"<pickle>\""),
        Value::Overflow(_) => out.push_str("\"<large value>\""),
    }
}

fn add(out: &mut String, parts: std::fmt::Arguments<'_>) {
    // Writing to a String never fails.
    let _ = out.write_fmt(parts);
}

/// The int that a payload encodes.
pub fn big_int(payload: &[u8]) -> BigInt {
    let (is_negative, magnitude) = bigint_magnitude(payload);
    BigInt::from_bytes_be(if is_negative { Sign::Minus } else { Sign::Plus }, &magnitude)
}

/// Converts a string with lone surrogates, which UTF-8 cannot encode, to one with a replacement
/// character for each of them.
pub fn lossy(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Err(error) = std::str::from_utf8(rest) {
        let (good, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
        out.push_str(&String::from_utf8_lossy(good));
        out.push(char::REPLACEMENT_CHARACTER);
        // An encoded surrogate takes three bytes.
        rest = bad.get(3..).unwrap_or_default();
    }
    out.push_str(&String::from_utf8_lossy(rest));
    out
}

fn push_float(value: f64, out: &mut String) {
    match value {
        value if value.is_nan() => out.push_str("NaN"),
        value if value.is_infinite() => out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
        value => add(out, format_args!("{value:?}")),
    }
}

fn push_str(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..' ' => add(out, format_args!("\\u{:04x}", u32::from(character))),
            character => out.push(character),
        }
    }
    out.push('"');
}

fn push_uuid(uuid: [u8; 16], out: &mut String) {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid));
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    add(out, format_args!("\"{}\"", parts.join("-")));
}

fn push_timedelta(delta: &Timedelta, out: &mut String) {
    let micros =
        (i128::from(delta.days) * 86_400 + i128::from(delta.seconds)) * 1_000_000 + i128::from(delta.micros);
    let sign = if micros < 0 { "-" } else { "" };
    let (seconds, micros) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    match micros {
        0 => add(out, format_args!("\"{sign}PT{seconds}S\"")),
        micros => add(out, format_args!("\"{sign}PT{seconds}.{micros:06}S\"")),
    }
}

fn push_list(elements: &[Value], out: &mut String) {
    out.push('[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push(element, out);
    }
    out.push(']');
}

fn push_dict(entries: &[(Value, Value)], out: &mut String) {
    out.push('{');
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        match key {
            Value::Str(_) | Value::Surrogates(_) => push(key, out),
            key => {
                let mut text = String::new();
                push(key, &mut text);
                push_str(text.trim_matches('"'), out);
            }
        }
        out.push_str(": ");
        push(value, out);
    }
    out.push('}');
}

/// A date, a datetime or a time, as `isoformat` writes it.
fn push_moment(value: &Value, out: &mut String) {
    match value {
        Value::Date(ordinal) => push_day(*ordinal, out),
        Value::Datetime(micros, _) => push_datetime(*micros, out),
        Value::Aware { local, offset, .. } => {
            push_datetime(*local, out);
            push_offset(*offset, out);
        }
        Value::Time(micros, _, zone) => {
            push_clock(*micros, out);
            match zone {
                Some(OwnedZone::Fixed(offset, _)) => push_offset(*offset, out),
                Some(OwnedZone::Key(key)) => add(out, format_args!("[{key}]")),
                None => {}
            }
        }
        _ => {}
    }
}

fn push_datetime(micros: i64, out: &mut String) {
    push_day(micros.div_euclid(MICROS_PER_DAY).unsigned_abs() as u32 + 1, out);
    out.push('T');
    push_clock(micros.rem_euclid(MICROS_PER_DAY), out);
}

fn push_day(ordinal: u32, out: &mut String) {
    let (year, month, day) = date_of(ordinal);
    add(out, format_args!("{year:04}-{month:02}-{day:02}"));
}

fn push_clock(micros: i64, out: &mut String) {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    add(out, format_args!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60));
    if micros != 0 {
        add(out, format_args!(".{micros:06}"));
    }
}

fn push_offset(offset: i64, out: &mut String) {
    let sign = if offset < 0 { '-' } else { '+' };
    let (seconds, micros) = (offset.unsigned_abs() / 1_000_000, offset.unsigned_abs() % 1_000_000);
    add(out, format_args!("{sign}{:02}:{:02}", seconds / 3_600, seconds / 60 % 60));
    if seconds % 60 != 0 || micros != 0 {
        add(out, format_args!(":{:02}", seconds % 60));
    }
    if micros != 0 {
        add(out, format_args!(".{micros:06}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_record::value::Double;

    #[test]
    fn values_look_like_json() {
        let dict = Value::Dict(vec![
            (Value::Str("a\"\n".into()), Value::List(vec![Value::Int(1), Value::None, Value::Bool(true)])),
            (Value::Int(2), Value::Float(Double(1e300))),
        ]);
        let mut text = String::new();
        push(&dict, &mut text);
        assert_eq!(text, r#"{"a\"\n": [1, null, true], "2": 1e300}"#);
    }

    #[test]
    fn what_json_lacks_is_a_string() {
        for (value, expected) in [
            (Value::Date(737_484), "\"2020-02-29\""),
            (Value::Datetime(1_500_000, false), "\"0001-01-01T00:00:01.500000\""),
            (Value::Timedelta(Timedelta { days: -1, seconds: 86_399, micros: 0 }), "\"-PT1S\""),
            (Value::Bytes(vec![0, 255]), "\"00ff\""),
            (Value::Complex(Double(1.0), Double(-2.0)), "\"(1.0-2.0j)\""),
            (Value::Uuid([0x12; 16]), "\"12121212-1212-1212-1212-121212121212\""),
        ] {
            let mut text = String::new();
            push(&value, &mut text);
            assert_eq!(text, expected);
        }
    }
}
