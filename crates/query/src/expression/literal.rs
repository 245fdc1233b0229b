//! Reads and writes literals in expressions.
//!
//! Numbers, strings and containers are written as in Python. Dates, decimals and similar values are
//! a keyword and a string: `date '2000-01-31'`. A value without such a form is written as the bytes
//! of its record, `value '0542...'`, so every value has a text.

use std::fmt::Write;

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use pellucid_record::Value;
use pellucid_record::key::is_decimal_text;
use pellucid_record::value::{Double, NoShapes, decode, encode_value};

use super::moment;
use super::token::DIGITS_MAX;

/// The bits of the NaN that `nan` stands for. Other NaNs keep their own bits, which comparisons
/// ignore.
pub const NAN: u64 = 0x7FF8_0000_0000_0000;
const SIGN: u64 = 1 << 63;

/// The value of an int: `Int` if it fits, otherwise `BigInt`.
pub fn of_int(value: &BigInt) -> Value {
    match value.to_i64() {
        Some(value) => Value::Int(value),
        None => Value::BigInt(value.to_signed_bytes_le()),
    }
}

/// The number with the other sign; None if the value is not a number.
pub fn negated(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Int(value) => of_int(&-BigInt::from(*value)),
        Value::BigInt(bytes) => of_int(&-BigInt::from_signed_bytes_le(bytes)),
        Value::Float(value) => Value::Float(Double(f64::from_bits(value.0.to_bits() ^ SIGN))),
        _ => return None,
    })
}

/// Whether the literal begins with a digit, or is `nan` or `inf`. A `-` written before it would be
/// read as its sign.
pub fn takes_sign(value: &Value) -> bool {
    match value {
        Value::Int(value) => *value >= 0,
        Value::BigInt(bytes) => bytes.last().is_some_and(|last| *last < 0x80),
        Value::Float(value) => value.0.is_sign_positive() && (!value.0.is_nan() || value.0.to_bits() == NAN),
        _ => false,
    }
}

/// The value of a keyword.
pub fn of_word(word: &str) -> Option<Value> {
    let value = |word: &str| {
        Some(match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "none" | "null" => Value::None,
            "nan" => Value::Float(Double(f64::from_bits(NAN))),
            "inf" => Value::Float(Double(f64::INFINITY)),
            _ => return None,
        })
    };
    value(&word.to_ascii_lowercase())
}

/// The value of a keyword and the string or bytes after it. The error says which text the keyword
/// needs.
pub fn of_typed(word: &str, literal: &Value) -> Result<Value, String> {
    let word = word.to_ascii_lowercase();
    if let (Value::Bytes(bytes), "bytearray") = (literal, &*word) {
        return Ok(Value::Bytearray(bytes.clone()));
    }
    let text = match literal {
        Value::Str(text) => text.as_str(),
        _ => "",
    };
    let (value, wanted) = match &*word {
        "decimal" => {
            (is_decimal_text(text).then(|| Value::Decimal(text.into())), "'1.10', as str(Decimal) writes it")
        }
        "date" => (moment::date(text), "'2000-01-31'"),
        "datetime" => (
            moment::datetime(text),
            "'2000-01-31T12:30:00'; with a zone '+01:00', '+01:00(MEZ)' or '+01:00[Europe/Berlin]', and ' fold=1', after it",
        ),
        "time" => (
            moment::time(text),
            "'12:30:00'; with a zone '+01:00', '+01:00(MEZ)' or '[Europe/Berlin]', and ' fold=1', after it",
        ),
        "timedelta" => (moment::timedelta(text), "'3 days, 12:30:00', as str(timedelta) writes it"),
        "uuid" => (uuid(text), "'12345678-1234-5678-1234-567812345678'"),
        "complex" => (complex(text), "'1.0+2.0j'"),
        "value" => (
            hexadecimal(text).and_then(|bytes| decode(&bytes, &NoShapes).ok()),
            "and after it the hexadecimal digits, in quotes, that str() of an expression writes for a value without a form of its own",
        ),
        "bytearray" => (None, "b'...'"),
        _ => {
            return Err(format!(
                "no type of literal is called {word:?}; those are decimal, date, datetime, time, timedelta, uuid, complex, \
                 bytearray, set, frozenset and value"
            ));
        }
    };
    value.ok_or_else(|| format!("expected {word} {wanted}"))
}

fn uuid(text: &str) -> Option<Value> {
    let is_whole = text.len() == 32
        || text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23));
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let bytes = hexadecimal(&digits).filter(|_| is_whole)?;
    bytes.try_into().ok().map(Value::Uuid)
}

/// Reads a complex number: a real and an imaginary part, each written as a float.
fn complex(text: &str) -> Option<Value> {
    let body = text.strip_suffix('j')?;
    let sign = body.char_indices().skip(1).filter(|(at, sign)| {
        matches!(sign, '+' | '-') && !body.get(..*at).unwrap_or_default().ends_with(['e', 'E'])
    });
    let (real, imaginary) = body.split_at_checked(sign.last()?.0)?;
    Some(Value::Complex(float(real)?, float(imaginary)?))
}

fn float(text: &str) -> Option<Double> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let value = match of_word(digits) {
        Some(Value::Float(value)) => value.0,
        _ if digits.starts_with(|digit: char| digit.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    Some(Double(if is_negative { -value } else { value }))
}

/// The bytes that a text of hexadecimal digits encodes.
pub fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|digit| char::from(digit).to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Appends the literal of a value.
pub fn push(value: &Value, out: &mut String) {
    match value {
        Value::None => out.push_str("none"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => push_display(value, out),
        Value::BigInt(bytes) => push_big(&BigInt::from_signed_bytes_le(bytes), out),
        Value::Float(number) => match float_text(*number) {
            Some(text) => out.push_str(&text),
            None => push_bytes_of(value, out),
        },
        Value::Complex(real, imaginary) => match (float_text(*real), float_text(*imaginary)) {
            (Some(real), Some(imaginary)) => {
                let plus = if imaginary.starts_with('-') { "" } else { "+" };
                push_typed("complex", &format!("{real}{plus}{imaginary}j"), out);
            }
            _ => push_bytes_of(value, out),
        },
        Value::Str(text) => push_text(text.as_bytes(), '\'', out),
        Value::Surrogates(text) => push_text(text, '\'', out),
        Value::Bytes(bytes) => push_bytes(bytes, out),
        Value::Bytearray(bytes) => {
            out.push_str("bytearray ");
            push_bytes(bytes, out);
        }
        Value::Decimal(text) => push_typed("decimal", text, out),
        Value::Uuid(bytes) => {
            let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
                let dash = if matches!(digits.len(), 8 | 13 | 18 | 23) { "-" } else { "" };
                let _ = write!(digits, "{dash}{byte:02x}");
                digits
            });
            push_typed("uuid", &digits, out);
        }
        Value::List(elements) => push_all("[", elements, "]", out),
        Value::Tuple(elements) if elements.len() == 1 => push_all("(", elements, ",)", out),
        Value::Tuple(elements) => push_all("(", elements, ")", out),
        Value::Set(elements) => push_all(if elements.is_empty() { "set {" } else { "{" }, elements, "}", out),
        Value::FrozenSet(elements) => push_all("frozenset {", elements, "}", out),
        Value::Dict(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                push(key, out);
                out.push_str(": ");
                push(value, out);
            }
            out.push('}');
        }
        _ => match moment::text(value) {
            Some((word, text)) => push_typed(word, &text, out),
            None => push_bytes_of(value, out),
        },
    }
}

fn push_display(value: impl std::fmt::Display, out: &mut String) {
    // Writing to a String never fails.
    let _ = write!(out, "{value}");
}

fn push_big(value: &BigInt, out: &mut String) {
    // A decimal digit is worth more than 3 bits. An int of at most `3 * DIGITS_MAX` bits therefore
    // has no more digits than the parser accepts.
    if value.bits() <= 3 * DIGITS_MAX as u64 {
        push_display(value, out);
    } else {
        let sign = if value.sign() == num_bigint::Sign::Minus { "-" } else { "" };
        let _ = write!(out, "{sign}0x{:x}", value.magnitude());
    }
}

/// A text that reads back as the same bits; None for a NaN with other bits than `NAN`.
fn float_text(value: Double) -> Option<String> {
    let bits = value.0.to_bits();
    Some(match value.0 {
        number if number.is_nan() => {
            let sign = if bits & SIGN == 0 { "" } else { "-" };
            return (bits & !SIGN == NAN).then(|| format!("{sign}nan"));
        }
        number => format!("{number:?}"),
    })
}

fn push_all(open: &str, elements: &[Value], close: &str, out: &mut String) {
    out.push_str(open);
    for (index, element) in elements.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        push(element, out);
    }
    out.push_str(close);
}

fn push_typed(word: &str, text: &str, out: &mut String) {
    out.push_str(word);
    out.push(' ');
    push_text(text.as_bytes(), '\'', out);
}

/// Appends the value as the bytes of its record. No expression contains a value that a record
/// cannot hold.
fn push_bytes_of(value: &Value, out: &mut String) {
    push_record(&encode_value(value, &mut NoShapes).unwrap_or_default(), out);
}

/// Appends `value '...'` with the bytes of a record.
pub fn push_record(record: &[u8], out: &mut String) {
    out.push_str("value '");
    for byte in record {
        let _ = write!(out, "{byte:02x}");
    }
    out.push('\'');
}

fn push_bytes(bytes: &[u8], out: &mut String) {
    out.push_str("b'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('\'');
}

/// Appends text between quotes. Characters that are invisible, or that change how the rest is
/// displayed, are escaped.
pub fn push_text(text: &[u8], quote: char, out: &mut String) {
    out.push(quote);
    let mut rest = text;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(valid) => valid,
            Err(error) => rest
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
        };
        for character in valid.chars() {
            match character {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\\' => out.push_str("\\\\"),
                _ if character == quote => out.extend(['\\', quote]),
                _ if is_unseen(character) => push_code(character as u32, out),
                _ => out.push(character),
            }
        }
        rest = rest.get(valid.len()..).unwrap_or_default();
        if let [0xED, second, third, behind @ ..] = rest {
            push_code(0xD000 | u32::from(second & 0x3F) << 6 | u32::from(third & 0x3F), out);
            rest = behind;
        } else if let Some((_, behind)) = rest.split_first() {
            // Valid strings never contain such a byte.
            out.push(char::REPLACEMENT_CHARACTER);
            rest = behind;
        }
    }
    out.push(quote);
}

fn push_code(code: u32, out: &mut String) {
    let _ = match code {
        0..0x100 => write!(out, "\\x{code:02x}"),
        0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

fn is_unseen(character: char) -> bool {
    character.is_control()
        || character.is_whitespace() && character != ' '
        || matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
