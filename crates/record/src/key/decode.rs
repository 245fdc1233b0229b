//! Decodes a key from its bytes and spelling.
//!
//! The bytes may be anything: each part checks its own bounds. Bytes that an encoder would have
//! written differently are refused, so that equal keys have equal bytes in every file. Not
//! recursive: an untrusted key cannot exhaust the stack.

use std::borrow::Cow;

use super::decimal::Decimal;
use super::number::{float_of_magnitude, with_fraction};
use super::{KEY_DEPTH_MAX, KeyCorrupt, KeyPart, code, is_instant, is_text, is_zone, spelled};
use crate::layout::{DATE_ORDINAL_MAX, read_varint};

/// Returns the parts of one key, in order; nothing after an error or the end.
#[derive(Debug, Clone)]
pub struct KeyReader<'a> {
    key: &'a [u8],
    offset: usize,
    spelling: &'a [u8],
    spelling_offset: usize,
    /// Whether some entry is not plain. A spelling of only plain entries has to be empty.
    is_spelled: bool,
    depth: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Inside,
    Done,
}

/// An int's magnitude as stored in the key.
struct Digits<'a> {
    negative: bool,
    /// Complemented if negative.
    bytes: &'a [u8],
}

impl<'a> Iterator for KeyReader<'a> {
    type Item = Result<KeyPart<'a>, KeyCorrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        if self.state == State::Inside && self.depth == 0 {
            self.state = State::Done;
            return self.check_end().err().map(Err);
        }
        self.state = State::Inside;
        let part = self.part();
        if part.is_err() {
            self.state = State::Done;
        }
        Some(part)
    }
}

impl<'a> KeyReader<'a> {
    /// A reader of this key.
    #[must_use]
    pub fn new(key: &'a [u8], spelling: &'a [u8]) -> Self {
        Self {
            key,
            offset: 0,
            spelling,
            spelling_offset: 0,
            is_spelled: false,
            depth: 0,
            state: State::Before,
        }
    }

    /// The offset after the part that was read last.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn part(&mut self) -> Result<KeyPart<'a>, KeyCorrupt> {
        let start = self.offset;
        match self.byte("ends before a part")? {
            // In a tuple, None and the tuple's end begin with the same byte.
            code::NONE if self.depth == 0 => Ok(KeyPart::None),
            code::NONE if self.key.get(self.offset) == Some(&code::ESCAPE) => {
                self.offset += 1;
                Ok(KeyPart::None)
            }
            code::END => {
                self.depth -= 1;
                Ok(KeyPart::EndTuple)
            }
            code::BYTES => Ok(KeyPart::Bytes(self.escaped()?)),
            code::STR => {
                let text = self.escaped()?;
                if !is_text(&text) {
                    return Err(corrupt("str that is not UTF-8", start));
                }
                Ok(KeyPart::Str(text))
            }
            code::TUPLE if self.depth == KEY_DEPTH_MAX => Err(corrupt("tuple nested too deep", start)),
            code::TUPLE => {
                self.depth += 1;
                Ok(KeyPart::BeginTuple)
            }
            code @ (code::INFINITY_NEGATIVE | code::INFINITY_POSITIVE) => self.infinity(code),
            code @ code::INT_LONG_NEGATIVE..=code::INT_LONG_POSITIVE => self.number(code, start),
            code::DECIMAL => self.decimal(start),
            code::DATE => match u32::from_be_bytes(self.array("ends inside a date")?) {
                ordinal @ 1..=DATE_ORDINAL_MAX => Ok(KeyPart::Date(ordinal)),
                _ => Err(corrupt("date out of range", start)),
            },
            code::DATETIME => self.datetime(start),
            code::AWARE => self.aware(start),
            code::UUID => Ok(KeyPart::Uuid(self.array("ends inside a UUID")?)),
            _ => Err(corrupt("unknown code", start)),
        }
    }

    fn check_end(&self) -> Result<(), KeyCorrupt> {
        if self.offset < self.key.len() {
            return Err(corrupt("bytes after the end", self.offset));
        }
        if self.spelling_offset < self.spelling.len() {
            return Err(self.misspelled("bytes after the end"));
        }
        if !self.spelling.is_empty() && !self.is_spelled {
            return Err(self.misspelled("a spelling that says nothing"));
        }
        Ok(())
    }

    fn infinity(&mut self, code: u8) -> Result<KeyPart<'a>, KeyCorrupt> {
        let infinity = if code == code::INFINITY_NEGATIVE { f64::NEG_INFINITY } else { f64::INFINITY };
        match self.spelled()? {
            spelled::FLOAT => Ok(KeyPart::Float(infinity)),
            spelled::COMPLEX => Ok(KeyPart::Complex(infinity)),
            _ => Err(self.misspelled("infinity that is no float")),
        }
    }

    fn number(&mut self, code: u8, start: usize) -> Result<KeyPart<'a>, KeyCorrupt> {
        let digits = self.digits(code)?;
        if self.key.get(self.offset) == Some(&code::FRACTION) {
            self.offset += 1;
            let bits = u64::from_be_bytes(self.array("ends inside a fraction")?);
            let float = digits.to_i64().and_then(|floor| with_fraction(floor, bits));
            return match (float, self.spelled()?) {
                (Some(float), spelled::FLOAT) => Ok(KeyPart::Float(float)),
                (Some(float), spelled::COMPLEX) => Ok(KeyPart::Complex(float)),
                (Some(_), _) => Err(self.misspelled("fraction that is no float")),
                (None, _) => Err(corrupt("fraction that no float has", start)),
            };
        }
        match (self.spelled()?, digits.to_i64()) {
            (spelled::PLAIN, Some(int)) => Ok(KeyPart::Int(int)),
            (spelled::PLAIN, None) => {
                Ok(KeyPart::BigInt { negative: digits.negative, magnitude: digits.magnitude() })
            }
            (spelled::BOOL, Some(int @ (0 | 1))) => Ok(KeyPart::Bool(int == 1)),
            (spelled::MINUS_ZERO, Some(0)) => Ok(KeyPart::Float(-0.0)),
            (spelled::FLOAT, Some(0)) => Ok(KeyPart::Float(0.0)),
            (spelled::COMPLEX, Some(0)) => Ok(KeyPart::Complex(0.0)),
            (spelling @ (spelled::FLOAT | spelled::COMPLEX), _) => {
                let Some(float) = float_of_magnitude(&digits.magnitude()) else {
                    return Err(self.misspelled("int that no float equals"));
                };
                let float = if digits.negative { -float } else { float };
                Ok(if spelling == spelled::FLOAT { KeyPart::Float(float) } else { KeyPart::Complex(float) })
            }
            _ => Err(self.misspelled("number with another spelling")),
        }
    }

    /// The digits of an int, after its code.
    fn digits(&mut self, code: u8) -> Result<Digits<'a>, KeyCorrupt> {
        let start = self.offset;
        let negative = code < code::INT_ZERO;
        let flip = if negative { 0xFF } else { 0x00 };
        let short = code.abs_diff(code::INT_ZERO);
        let size = if short <= 8 {
            usize::from(short)
        } else {
            let (size, least) = match self.byte("ends inside an int")? ^ flip {
                0xFF => {
                    let size = self.array("ends inside an int")?.map(|byte| byte ^ flip);
                    (u32::from_be_bytes(size), 0xFF)
                }
                size => (u32::from(size), 9),
            };
            if size < least {
                return Err(corrupt("int longer than it needs", start));
            }
            size as usize
        };
        let bytes = self.take(size, "ends inside an int")?;
        if bytes.first().is_some_and(|byte| byte ^ flip == 0) {
            return Err(corrupt("int longer than it needs", start));
        }
        Ok(Digits { negative, bytes })
    }

    fn decimal(&mut self, start: usize) -> Result<KeyPart<'a>, KeyCorrupt> {
        let text = self.spelled_bytes()?;
        self.is_spelled = true;
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(self.misspelled("Decimal that is no text"));
        };
        let Ok(decimal) = Decimal::parse(text) else {
            return Err(self.misspelled("text that is no Decimal"));
        };
        // The text has everything, so the bytes need no decoding: they are those of the text, or
        // wrong.
        self.offset = start;
        let is_equal = decimal.emit(|byte| {
            let is_equal = self.key.get(self.offset) == Some(&byte);
            self.offset += 1;
            is_equal
        });
        if is_equal {
            Ok(KeyPart::Decimal(text))
        } else {
            Err(corrupt("Decimal that its text is not", start))
        }
    }

    fn datetime(&mut self, start: usize) -> Result<KeyPart<'a>, KeyCorrupt> {
        let local = i64::from_be_bytes(self.array("ends inside a datetime")?);
        if !is_instant(local, 0) {
            return Err(corrupt("datetime out of range", start));
        }
        match self.spelled()? {
            fold @ (0 | 1) => Ok(KeyPart::Datetime { local, fold: fold == 1 }),
            _ => Err(self.misspelled("fold that is neither 0 nor 1")),
        }
    }

    fn aware(&mut self, start: usize) -> Result<KeyPart<'a>, KeyCorrupt> {
        let biased = i64::from_be_bytes(self.array("ends inside a datetime")?);
        let fold = match self.spelled_take(1)? {
            [fold @ (0 | 1)] => *fold == 1,
            _ => return Err(self.misspelled("fold that is neither 0 nor 1")),
        };
        self.is_spelled = true;
        let Some(offset) = self.spelled_take(8)?.first_chunk().copied().map(i64::from_le_bytes) else {
            return Err(self.misspelled("ends too early"));
        };
        let zone = self.spelled_bytes()?;
        if !is_zone(zone, offset) {
            return Err(self.misspelled("zone that is none"));
        }
        match biased.checked_sub(code::AWARE_BIAS) {
            Some(utc) if is_instant(utc, offset) => Ok(KeyPart::Aware { utc, offset, fold, zone }),
            _ => Err(corrupt("datetime out of range", start)),
        }
    }

    /// The bytes up to their end, unescaped.
    fn escaped(&mut self) -> Result<Cow<'a, [u8]>, KeyCorrupt> {
        let mut bytes = Cow::Borrowed(&[][..]);
        loop {
            let rest = self.key.get(self.offset..).unwrap_or(&[]);
            let Some(size) = rest.iter().position(|byte| *byte == code::END) else {
                return Err(corrupt("ends inside a string", self.key.len()));
            };
            let (run, rest) = rest.split_at_checked(size).unwrap_or((rest, &[]));
            if bytes.is_empty() {
                bytes = Cow::Borrowed(run);
            } else {
                bytes.to_mut().extend_from_slice(run);
            }
            if rest.get(1) != Some(&code::ESCAPE) {
                self.offset += size + 1;
                return Ok(bytes);
            }
            bytes.to_mut().push(0);
            self.offset += size + 2;
        }
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, KeyCorrupt> {
        let [byte] = self.array(what)?;
        Ok(byte)
    }

    fn array<const SIZE: usize>(&mut self, what: &'static str) -> Result<[u8; SIZE], KeyCorrupt> {
        match self.key.get(self.offset..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => {
                self.offset += SIZE;
                Ok(*bytes)
            }
            None => Err(corrupt(what, self.offset)),
        }
    }

    fn take(&mut self, size: usize, what: &'static str) -> Result<&'a [u8], KeyCorrupt> {
        let rest = self.key.get(self.offset..).unwrap_or(&[]);
        match rest.get(..size) {
            Some(bytes) => {
                self.offset += size;
                Ok(bytes)
            }
            None => Err(corrupt(what, self.offset)),
        }
    }

    /// The next entry of one byte. An empty spelling stands for plain entries.
    fn spelled(&mut self) -> Result<u8, KeyCorrupt> {
        if self.spelling.is_empty() {
            return Ok(spelled::PLAIN);
        }
        match self.spelled_take(1)? {
            [entry] => {
                self.is_spelled |= *entry != spelled::PLAIN;
                Ok(*entry)
            }
            _ => Err(self.misspelled("ends too early")),
        }
    }

    /// Bytes of the spelling, after their size.
    fn spelled_bytes(&mut self) -> Result<&'a [u8], KeyCorrupt> {
        let Some((size, behind)) = read_varint(self.spelling, self.spelling_offset) else {
            return Err(self.misspelled("size that is none"));
        };
        self.spelling_offset = behind;
        self.spelled_take(size as usize)
    }

    fn spelled_take(&mut self, size: usize) -> Result<&'a [u8], KeyCorrupt> {
        let rest = self.spelling.get(self.spelling_offset..).unwrap_or(&[]);
        let Some(bytes) = rest.get(..size) else { return Err(self.misspelled("ends too early")) };
        self.spelling_offset += size;
        Ok(bytes)
    }

    fn misspelled(&self, what: &'static str) -> KeyCorrupt {
        KeyCorrupt { what, offset: self.spelling_offset, in_spelling: true }
    }
}

impl<'a> Digits<'a> {
    fn to_i64(&self) -> Option<i64> {
        if self.bytes.len() > 8 {
            return None;
        }
        let flip = if self.negative { 0xFF } else { 0x00 };
        let magnitude = self.bytes.iter().fold(0u64, |high, byte| high << 8 | u64::from(byte ^ flip));
        if self.negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
    }

    fn magnitude(&self) -> Cow<'a, [u8]> {
        if self.negative {
            Cow::Owned(self.bytes.iter().map(|byte| !byte).collect())
        } else {
            Cow::Borrowed(self.bytes)
        }
    }
}

fn corrupt(what: &'static str, offset: usize) -> KeyCorrupt {
    KeyCorrupt { what, offset, in_spelling: false }
}
