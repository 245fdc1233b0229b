//! Writes scalars as JSON text, as `json_bytes` and the exports of Python's side document them.
//!
//! What JSON lacks is text: dates and times in ISO 8601, bytes in base64, a UUID with its hyphens.
//! NaN and the infinities are `null`, as in JavaScript. Containers, and values of other classes,
//! are the business of the caller.

use std::fmt::Write;

use crate::calendar::date_of;
use crate::layout::MICROS_PER_DAY;
use crate::payload::Timedelta;

/// The two digits of each number below 100.
const PAIRS: &[u8; 200] = b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text is neither UTF-8 nor UTF-8 with lone surrogates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotText;

fn pair(number: u64) -> [u8; 2] {
    let at = (number % 100) as usize * 2;
    [PAIRS.get(at).copied().unwrap_or(b'0'), PAIRS.get(at + 1).copied().unwrap_or(b'0')]
}

/// Appends an int.
#[inline]
pub fn push_int(value: i64, out: &mut Vec<u8>) {
    if let Ok(digit @ 0..10) = u8::try_from(value) {
        out.push(b'0' + digit);
        return;
    }
    if value < 0 {
        out.push(b'-');
    }
    // The digits are written from the last one on.
    let (mut digits, mut at, mut rest) = ([0; 20], 20, value.unsigned_abs());
    while rest >= 10 {
        at -= 2;
        if let Some(place) = digits.get_mut(at..at + 2) {
            place.copy_from_slice(&pair(rest));
        }
        rest /= 100;
    }
    if rest > 0 {
        at -= 1;
        if let Some(place) = digits.get_mut(at) {
            *place = b'0' + rest as u8;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Appends a float in the fewest digits that read back as it; `null` for NaN and an infinity.
pub fn push_float(value: f64, out: &mut Vec<u8>) {
    // Most floats that people write have few decimals. An int below 2^53 and a power of ten up to
    // 10^22 are floats exactly, so their quotient is the float that the decimal reads as. All other
    // decimals that read as it have more digits, since floats of this size lie closer.
    let millionths = (value * 1e6).round();
    if (1e2..1e15).contains(&millionths.abs()) && (millionths / 1e6).to_bits() == value.to_bits() {
        return push_millionths(millionths as i64, out);
    }
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    // Writing to a vector never fails.
    let _ = write!(Text(out), "{value:?}");
}

fn push_millionths(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let (whole, decimals) = (value.unsigned_abs() / 1_000_000, value.unsigned_abs() % 1_000_000);
    push_int(whole.cast_signed(), out);
    out.push(b'.');
    for part in [decimals / 10_000, decimals / 100, decimals] {
        out.extend_from_slice(&pair(part));
    }
    let zeros = out.iter().rev().take(5).take_while(|digit| **digit == b'0').count();
    out.truncate(out.len() - zeros);
}

/// A vector to which formatted text is appended.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Whether a byte of a text must be looked at: it is escaped in JSON, or is no ASCII.
#[inline]
fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\' || byte >= 0x80
}

/// Appends a string with its quotes. Half of a surrogate pair, which `text` has as three bytes, is
/// escaped.
///
/// # Errors
/// The bytes are no text; what was appended then has no end.
#[inline]
pub fn push_str(text: &[u8], out: &mut Vec<u8>) -> Result<(), NotText> {
    out.push(b'"');
    let start = out.len();
    // Copied before it is looked at, since another process may write to a buffer that is viewed.
    let is_special = match text.last_chunk() {
        Some(last) if text.len() <= SHORT_SIZE_MAX => {
            // Copied in words, the last of which may begin inside of the one before: a call of
            // `memcpy`, and a loop over bytes, took three times as long.
            let (words, _) = text.as_chunks();
            let mut found = 0;
            for word in words {
                found |= specials(push_word(*word, out));
            }
            out.truncate(start + text.len() - WORD_SIZE);
            (found | specials(push_word(*last, out))) != 0
        }
        _ => {
            out.extend_from_slice(text);
            let copied = out.get(start..).unwrap_or_default();
            copied.iter().fold(false, |found, byte| found | is_special(*byte))
        }
    };
    if is_special {
        escape(start, out)?;
    }
    out.push(b'"');
    Ok(())
}

/// The size of the names that are copied without a call of `memcpy`.
const SHORT_NAME_SIZE: usize = 24;

/// The name of a field as JSON, with a comma before it and a colon after it.
#[derive(Clone, Debug)]
pub struct Name {
    short: [u8; SHORT_NAME_SIZE],
    size: usize,
    /// The whole of a longer name.
    long: Box<[u8]>,
}

impl Name {
    /// The name of a field.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut long = vec![b','];
        // A str is always a text.
        let _ = push_str(name.as_bytes(), &mut long);
        long.push(b':');
        let (mut short, size) = ([0; SHORT_NAME_SIZE], long.len());
        if let Some(short) = short.get_mut(..size) {
            short.copy_from_slice(&std::mem::take(&mut long));
        }
        Self { short, size, long: long.into() }
    }

    /// Appends the name.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>) {
        if self.size <= SHORT_NAME_SIZE {
            let start = out.len();
            out.extend_from_slice(&self.short);
            out.truncate(start + self.size);
        } else {
            out.extend_from_slice(&self.long);
        }
    }
}

const WORD_SIZE: usize = size_of::<u64>();
/// A longer text is copied and looked at as a whole.
const SHORT_SIZE_MAX: usize = 4 * WORD_SIZE;

#[inline]
fn push_word(bytes: [u8; WORD_SIZE], out: &mut Vec<u8>) -> u64 {
    let word = u64::from_le_bytes(bytes);
    out.extend_from_slice(&word.to_le_bytes());
    word
}

/// Whether a byte of a word is special: then the result is not 0.
#[inline]
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xFF;
    let below = |word: u64, end: u8| word.wrapping_sub(ONES * u64::from(end)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (word | below(word, b' ') | is(b'"') | is(b'\\')) & (ONES << 7)
}

/// Replaces the text from `start` on by its escaped form.
#[inline(never)]
fn escape(start: usize, out: &mut Vec<u8>) -> Result<(), NotText> {
    let text = out.split_off(start);
    let mut rest = text.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                push_escaped(text.as_bytes(), out);
                return Ok(());
            }
            Err(error) => {
                let (good, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
                push_escaped(good, out);
                // A lone surrogate, U+D800 to U+DFFF, is ED and two more bytes.
                let [0xED, second @ 0xA0..=0xBF, third @ 0x80..=0xBF, ..] = *bad else { return Err(NotText) };
                let unit = 0xD000 | u32::from(second & 0x3F) << 6 | u32::from(third & 0x3F);
                push_unit(unit, out);
                rest = bad.get(3..).unwrap_or_default();
            }
        }
    }
}

fn push_unit(unit: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(HEX.get((unit >> shift & 0xF) as usize).copied().unwrap_or(b'0'));
    }
}

/// Appends UTF-8, of which control characters, quotes and backslashes are escaped.
fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..b' ' => push_unit(u32::from(*byte), out),
            byte => out.push(*byte),
        }
    }
}

/// Appends bytes as base64, with its quotes.
pub fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let digit = |word: u32, shift: u32| BASE64.get((word >> shift & 0x3F) as usize).copied().unwrap_or(b'=');
    out.reserve(bytes.len().div_ceil(3) * 4 + 2);
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        let mut digits = [digit(word, 18), digit(word, 12), digit(word, 6), digit(word, 0)];
        if let Some(unused) = digits.get_mut(chunk.len() + 1..) {
            unused.fill(b'=');
        }
        out.extend_from_slice(&digits);
    }
    out.push(b'"');
}

/// Appends a UUID, with its quotes.
pub fn push_uuid(uuid: &[u8; 16], out: &mut Vec<u8>) {
    out.push(b'"');
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        for digit in [byte >> 4, byte & 0xF] {
            out.push(HEX.get(usize::from(digit)).copied().unwrap_or(b'0'));
        }
    }
    out.push(b'"');
}

/// Appends a date by its ordinal, without quotes.
pub fn push_date(ordinal: u32, out: &mut Vec<u8>) {
    let (year, month, day) = date_of(ordinal);
    let year = u64::from(year.unsigned_abs());
    for part in [pair(year / 100), pair(year)] {
        out.extend_from_slice(&part);
    }
    for part in [month, day] {
        out.push(b'-');
        out.extend_from_slice(&pair(u64::from(part)));
    }
}

/// Appends a naive datetime, in microseconds since 0001-01-01T00:00, without quotes.
pub fn push_datetime(micros: i64, out: &mut Vec<u8>) {
    push_date(micros.div_euclid(MICROS_PER_DAY).unsigned_abs() as u32 + 1, out);
    out.push(b'T');
    push_clock(micros.rem_euclid(MICROS_PER_DAY), out);
}

/// Appends a time of day in microseconds, without quotes.
pub fn push_clock(micros: i64, out: &mut Vec<u8>) {
    let (seconds, micros) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    out.extend_from_slice(&pair(seconds / 3_600));
    for part in [seconds / 60 % 60, seconds % 60] {
        out.push(b':');
        out.extend_from_slice(&pair(part));
    }
    push_micros(micros, out);
}

fn push_micros(micros: u64, out: &mut Vec<u8>) {
    if micros != 0 {
        out.push(b'.');
        for part in [micros / 10_000, micros / 100, micros] {
            out.extend_from_slice(&pair(part));
        }
    }
}

/// Appends an offset from UTC in microseconds, as `isoformat` writes it.
pub fn push_offset(offset: i64, out: &mut Vec<u8>) {
    out.push(if offset < 0 { b'-' } else { b'+' });
    let (seconds, micros) = (offset.unsigned_abs() / 1_000_000, offset.unsigned_abs() % 1_000_000);
    out.extend_from_slice(&pair(seconds / 3_600));
    out.push(b':');
    out.extend_from_slice(&pair(seconds / 60 % 60));
    if seconds % 60 != 0 || micros != 0 {
        out.push(b':');
        out.extend_from_slice(&pair(seconds % 60));
    }
    push_micros(micros, out);
}

/// Appends a timedelta in the form of ISO 8601, with its quotes: `"P1DT5.5S"`, `"-PT1S"`.
pub fn push_timedelta(delta: &Timedelta, out: &mut Vec<u8>) {
    let micros =
        (i128::from(delta.days) * 86_400 + i128::from(delta.seconds)) * 1_000_000 + i128::from(delta.micros);
    out.push(b'"');
    if micros < 0 {
        out.push(b'-');
    }
    let rest = micros.unsigned_abs();
    let (days, rest) = (rest / 86_400_000_000, (rest % 86_400_000_000) as u64);
    out.push(b'P');
    if days > 0 || rest == 0 {
        push_int(days as i64, out);
        out.push(b'D');
    }
    if rest > 0 {
        out.push(b'T');
        push_int((rest / 1_000_000).cast_signed(), out);
        push_micros(rest % 1_000_000, out);
        if rest % 1_000_000 != 0 {
            while out.last() == Some(&b'0') {
                out.pop();
            }
        }
        out.push(b'S');
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    #[test]
    fn ints_are_their_digits() {
        let ends = [i64::MIN, i64::MAX, 0, 9, 10, 99, 100, -1, -10];
        let tens = (0..19).flat_map(|power| [10_i64.pow(power), 10_i64.pow(power) - 1, -(10_i64.pow(power))]);
        for value in ends.into_iter().chain(tens) {
            assert_eq!(text(|out| push_int(value, out)), value.to_string());
        }
    }

    #[test]
    fn strings_are_escaped_where_json_wants_it() {
        for (value, expected) in [
            (&b"plain"[..], r#""plain""#),
            (b"a\"b\\c\n\r\t\x00\x1f\x7f", "\"a\\\"b\\\\c\\n\\r\\t\\u0000\\u001f\x7f\""),
            ("caf\u{e9} \u{1F600}".as_bytes(), "\"caf\u{e9} \u{1F600}\""),
            (b"half \xED\xA0\x80 and \xED\xBF\xBF", "\"half \\ud800 and \\udfff\""),
        ] {
            assert_eq!(text(|out| assert_eq!(push_str(value, out), Ok(()))), expected);
        }
        // Texts of each size, copied in words or not, with a special byte at each place.
        for size in 0..80 {
            let plain = "x".repeat(size);
            assert_eq!(
                text(|out| assert_eq!(push_str(plain.as_bytes(), out), Ok(()))),
                format!("\"{plain}\"")
            );
            for (place, (byte, escaped)) in (0..size).flat_map(|place| {
                [
                    ("\"", "\\\""),
                    ("\\", "\\\\"),
                    ("\u{1f}", "\\u001f"),
                    ("\u{e9}", "\u{e9}"),
                    (" ", " "),
                    ("~", "~"),
                ]
                .map(|pair| (place, pair))
            }) {
                let (begin, end) = plain.split_at(place);
                let (value, expected) = (format!("{begin}{byte}{end}"), format!("\"{begin}{escaped}{end}\""));
                assert_eq!(text(|out| assert_eq!(push_str(value.as_bytes(), out), Ok(()))), expected);
            }
        }
        for bad in [&b"\xff"[..], b"\xED\xA0", b"ok \xC3"] {
            assert_eq!(push_str(bad, &mut Vec::new()), Err(NotText));
        }
    }

    #[test]
    fn names_have_a_comma_before_and_a_colon_behind() {
        for name in ["", "a", &"x".repeat(20), &"x".repeat(21), &"x".repeat(200), "a\"b"] {
            let written = text(|out| Name::new(name).push(out));
            assert_eq!(written, format!(",\"{}\":", name.replace('"', "\\\"")));
        }
    }

    #[test]
    fn bytes_are_base64() {
        for (value, expected) in
            [(&b""[..], r#""""#), (b"f", r#""Zg==""#), (b"fo", r#""Zm8=""#), (b"foo", r#""Zm9v""#)]
        {
            assert_eq!(text(|out| push_base64(value, out)), expected);
        }
        assert_eq!(text(|out| push_base64(&[0xFB, 0xFF, 0xFE], out)), r#""+//+""#);
    }

    #[test]
    fn times_are_in_iso_8601() {
        assert_eq!(text(|out| push_date(737_484, out)), "2020-02-29");
        assert_eq!(text(|out| push_datetime(1_500_000, out)), "0001-01-01T00:00:01.500000");
        assert_eq!(text(|out| push_offset(-3_600_000_000, out)), "-01:00");
        assert_eq!(text(|out| push_offset(5_000_001, out)), "+00:00:05.000001");
        for (days, seconds, micros, expected) in [
            (0, 0, 0, r#""P0D""#),
            (1, 5, 500_000, r#""P1DT5.5S""#),
            (-1, 86_399, 0, r#""-PT1S""#),
            (2, 0, 0, r#""P2D""#),
            (0, 10, 0, r#""PT10S""#),
        ] {
            let delta = Timedelta { days, seconds, micros };
            assert_eq!(text(|out| push_timedelta(&delta, out)), expected);
        }
    }

    #[test]
    fn floats_read_back_and_a_nan_is_null() {
        for value in [0.1, -0.0, 1e300, 5e-324, 1.0, f64::MAX] {
            let back: f64 = text(|out| push_float(value, out)).parse().unwrap_or(f64::NAN);
            assert_eq!(back.to_bits(), value.to_bits());
        }
        // With few decimals or with many, the digits are those of Rust.
        for number in 0..200_000_i32 {
            let number = f64::from(number * 7919 % 100_003);
            for value in [number / 1e2, -number / 1e3, number / 1e6, number / 3.0, number * 1e9, number / 1e7]
            {
                assert_eq!(text(|out| push_float(value, out)), format!("{value:?}"));
                let next = f64::from_bits(value.to_bits() + 1);
                assert_eq!(text(|out| push_float(next, out)), format!("{next:?}"));
            }
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(text(|out| push_float(value, out)), "null");
        }
    }
}
