//! Quick paths for the keys of nearly all tables: short strs and ints.

use super::code;
use super::encode::has_zero;
use crate::encode::copy;

/// Room for a short key.
pub const SHORT_KEY_SIZE: usize = 47;

/// The key of a short str, in the caller's memory: the same bytes as from `KeyEncoder::str`. `None`
/// if the str is too long or contains NUL.
#[inline]
#[must_use]
pub fn short_key<'a>(text: &[u8], out: &'a mut [u8; SHORT_KEY_SIZE]) -> Option<&'a [u8]> {
    short(code::STR, text, out)
}

/// As `short_key`, for bytes: the same as from `KeyEncoder::bytes`.
#[inline]
#[must_use]
pub fn short_bytes_key<'a>(bytes: &[u8], out: &'a mut [u8; SHORT_KEY_SIZE]) -> Option<&'a [u8]> {
    short(code::BYTES, bytes, out)
}

#[inline]
fn short<'a>(code: u8, content: &[u8], out: &'a mut [u8; SHORT_KEY_SIZE]) -> Option<&'a [u8]> {
    if has_zero(content) {
        return None;
    }
    let key = out.get_mut(..content.len() + 2)?;
    let [first, middle @ .., last] = &mut *key else { return None };
    (*first, *last) = (code, code::END);
    copy(middle, content);
    Some(key)
}

/// A key that is a str or an int, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainKey<'a> {
    /// A str without NUL. It is not checked to be UTF-8; the code that makes a string of it does
    /// that anyway.
    Str(&'a [u8]),
    /// An int of 64 bits.
    Int(i64),
}

/// The key, if it is a str without NUL or an int of 64 bits. For `None` use `KeyReader`.
///
/// A reader of all kinds of keys is a state machine and costs several times as much. A loop over a
/// table mostly sees keys of these two kinds.
#[inline]
#[must_use]
pub fn plain_key<'a>(key: &'a [u8], spelling: &[u8]) -> Option<PlainKey<'a>> {
    if !spelling.is_empty() {
        return None;
    }
    match key {
        [code::STR, text @ .., code::END] if !text.contains(&code::END) => Some(PlainKey::Str(text)),
        [code @ (code::INT_SHORT_FIRST..=code::INT_SHORT_LAST), digits @ ..]
            if digits.len() == usize::from(code.abs_diff(code::INT_ZERO)) =>
        {
            plain_int(*code < code::INT_ZERO, digits)
        }
        _ => None,
    }
}

#[inline]
fn plain_int<'a>(negative: bool, digits: &[u8]) -> Option<PlainKey<'a>> {
    let flip = if negative { 0xFF } else { 0x00 };
    if digits.first().is_some_and(|byte| byte ^ flip == 0) {
        return None;
    }
    let magnitude = digits.iter().fold(0u64, |high, byte| high << 8 | u64::from(byte ^ flip));
    let int = if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    int.map(PlainKey::Int)
}

/// The first of some ascending, plainly spelled parts, and the bytes after it. `None` if it is no
/// int of 64 bits and no ASCII str without NUL; a general reader has to decode such a part.
#[inline]
#[must_use]
pub fn plain_part(parts: &[u8]) -> Option<(PlainKey<'_>, &[u8])> {
    let (first, rest) = parts.split_first()?;
    let (key, behind) = match *first {
        code::STR => {
            let size = rest.iter().position(|byte| *byte == code::END)?;
            let (text, behind) = rest.split_at_checked(size)?;
            if !text.is_ascii() {
                return None;
            }
            (PlainKey::Str(text), behind.split_first()?.1)
        }
        code @ (code::INT_SHORT_FIRST..=code::INT_SHORT_LAST) => {
            let (digits, behind) = rest.split_at_checked(usize::from(code.abs_diff(code::INT_ZERO)))?;
            (plain_int(code < code::INT_ZERO, digits)?, behind)
        }
        _ => return None,
    };
    // An escaped NUL, or a fraction: not the end.
    match behind.first() {
        Some(&(code::ESCAPE | code::FRACTION)) => None,
        _ => Some((key, behind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyEncoder;

    #[test]
    fn a_short_str_has_the_bytes_that_the_encoder_gives_it() {
        let text: Vec<u8> = (1..=60).collect();
        for size in 0..=text.len() {
            let mut encoder = KeyEncoder::new();
            encoder.str(&text[..size]);
            let fits = size + 2 <= SHORT_KEY_SIZE;
            let mut of_bytes = KeyEncoder::new();
            of_bytes.bytes(&text[..size]);
            let mut room = [7; SHORT_KEY_SIZE];
            let found = short_bytes_key(&text[..size], &mut room);
            assert_eq!(found, fits.then_some(of_bytes.as_bytes()), "{size}");
            let expected = fits.then_some(encoder.as_bytes());
            let mut room = [7; SHORT_KEY_SIZE];
            assert_eq!(short_key(&text[..size], &mut room), expected);
            for zero in 0..size {
                let mut text = text[..size].to_vec();
                text[zero] = 0;
                assert_eq!(short_key(&text, &mut [7; SHORT_KEY_SIZE]), None);
            }
        }
    }
}
