//! Encodes a key as bytes and a spelling.

use super::decimal::Decimal;
use super::number::{self, Whole};
use super::parts::{PartsMark, STANDS_IN};
use super::{KEY_DEPTH_MAX, KeyError, KeyPart, code, is_instant, is_text, is_zone, spelled};
use crate::layout::{DATE_ORDINAL_MAX, push_varint};

/// Builds a key from its parts, in reusable buffers.
///
/// The caller pushes one part, or the parts of one tuple between `begin_tuple` and `end_tuple`.
#[derive(Debug, Default, Clone)]
pub struct KeyEncoder {
    bytes: Vec<u8>,
    spelling: Vec<u8>,
    /// The number of entries that were left out of the spelling because all so far were plain.
    plain_count: usize,
    depth: u32,
}

impl KeyEncoder {
    /// An encoder without a key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder without a key that writes into the caller's memory; its old content is dropped.
    #[inline]
    #[must_use]
    pub fn with_buffer(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes, ..Self::default() }
    }

    /// Drops the key, keeps the buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spelling.clear();
        self.plain_count = 0;
        self.depth = 0;
    }

    /// Drops the key, and takes parts from here on (`parts.rs`): elements of a tuple that is
    /// neither begun nor ended.
    #[inline]
    pub fn clear_for_parts(&mut self) {
        self.clear();
        self.depth = 1;
    }

    /// The bytes of the parts so far.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> &[u8] {
        debug_assert!(self.depth == 1, "a tuple was begun and not ended, or no parts were");
        &self.bytes
    }

    /// The current end of the parts.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> PartsMark {
        PartsMark {
            size: self.bytes.len(),
            spelling_size: self.spelling.len(),
            plain_count: self.plain_count,
        }
    }

    /// Removes the parts that were pushed since the mark.
    #[inline]
    pub fn reset(&mut self, mark: PartsMark) {
        self.bytes.truncate(mark.size);
        self.spelling.truncate(mark.spelling_size);
        self.plain_count = mark.plain_count;
        self.depth = 1;
    }

    /// Notes that one of the parts is not the value of the row, but one that is equal to it. No
    /// part may follow.
    pub fn spell_stand_in(&mut self) {
        // Plain entries stay out of the spelling, as without this.
        self.spelling.push(STANDS_IN);
    }

    /// Pushes a part in descending order.
    pub(super) fn descending(&mut self, push: impl FnOnce(&mut Self) -> bool) -> bool {
        self.bytes.push(code::END);
        let start = self.bytes.len();
        let is_pushed = push(self);
        self.bytes.push(code::END);
        for byte in self.bytes.get_mut(start..).unwrap_or_default() {
            *byte = !*byte;
        }
        is_pushed
    }

    /// The bytes, which sort as the key does.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        debug_assert!(self.depth == 0, "a tuple was begun and not ended");
        &self.bytes
    }

    /// What the bytes leave out; empty for most keys.
    #[inline]
    #[must_use]
    pub fn spelling(&self) -> &[u8] {
        &self.spelling
    }

    /// Returns the bytes and the spelling, and empties the encoder.
    #[must_use]
    pub fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        let encoder = std::mem::take(self);
        debug_assert!(encoder.depth == 0, "a tuple was begun and not ended");
        (encoder.bytes, encoder.spelling)
    }

    /// Pushes None.
    pub fn none(&mut self) {
        self.bytes.push(code::NONE);
        if self.depth > 0 {
            // A bare 00 ends the tuple.
            self.bytes.push(code::ESCAPE);
        }
    }

    /// Pushes False or True, as the numbers 0 and 1.
    pub fn bool(&mut self, bool: bool) {
        self.int_bytes(i64::from(bool));
        self.spell(spelled::BOOL);
    }

    /// Pushes an int of 64 bits.
    #[inline]
    pub fn int(&mut self, int: i64) {
        self.int_bytes(int);
        self.spell_plain();
    }

    /// Pushes an int of any size: its magnitude is big-endian and may have leading zeros.
    ///
    /// # Errors
    /// `TooLarge` from 4 GiB on.
    pub fn bigint(&mut self, negative: bool, magnitude: &[u8]) -> Result<(), KeyError> {
        self.bigint_bytes(negative, magnitude)?;
        self.spell_plain();
        Ok(())
    }

    /// Pushes a float.
    ///
    /// # Errors
    /// `NotANumber` for NaN.
    pub fn float(&mut self, float: f64) -> Result<(), KeyError> {
        let is_minus_zero = float == 0.0 && float.is_sign_negative();
        self.float_as(float, if is_minus_zero { spelled::MINUS_ZERO } else { spelled::FLOAT })
    }

    /// Pushes the index part for a complex number without an imaginary part: it sorts as the equal
    /// float.
    ///
    /// # Errors
    /// `NotANumber` for NaN.
    pub fn complex(&mut self, real: f64) -> Result<(), KeyError> {
        self.float_as(real, spelled::COMPLEX)
    }

    fn float_as(&mut self, float: f64, spelling: u8) -> Result<(), KeyError> {
        if float.is_nan() {
            return Err(KeyError::NotANumber);
        }
        if float.is_infinite() {
            let code = if float < 0.0 { code::INFINITY_NEGATIVE } else { code::INFINITY_POSITIVE };
            self.bytes.push(code);
            self.spell(spelling);
            return Ok(());
        }
        match number::whole(float) {
            Whole::Int(int) => self.int_bytes(int),
            Whole::Big(magnitude) => self.bigint_bytes(float < 0.0, magnitude.bytes())?,
            Whole::Floor(floor) => {
                self.int_bytes(floor);
                self.bytes.push(code::FRACTION);
                self.bytes.extend_from_slice(&number::fraction_bits(float).to_be_bytes());
            }
        }
        self.spell(spelling);
        Ok(())
    }

    /// Pushes a str: UTF-8, with surrogates encoded as if they were characters. It is not checked
    /// here, because Python's strings are right; `is_text` checks bytes from elsewhere.
    #[inline]
    pub fn str(&mut self, text: &[u8]) {
        self.escaped(code::STR, text);
    }

    /// Pushes a bytes object.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.escaped(code::BYTES, bytes);
    }

    /// Pushes a Decimal, given as `str()` writes it.
    ///
    /// # Errors
    /// `NotANumber` for NaN and sNaN, `BadDecimal` for other texts, `TooLarge` from 4 GiB on.
    pub fn decimal(&mut self, text: &str) -> Result<(), KeyError> {
        let decimal = Decimal::parse(text)?;
        let size = u32::try_from(text.len()).map_err(|_| KeyError::TooLarge)?;
        decimal.emit(|byte| {
            self.bytes.push(byte);
            true
        });
        self.spell_anything();
        push_varint(&mut self.spelling, size);
        self.spelling.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Pushes a date: its proleptic Gregorian ordinal.
    ///
    /// # Errors
    /// `BadTime` if Python has no such date.
    pub fn date(&mut self, ordinal: u32) -> Result<(), KeyError> {
        if !(1..=DATE_ORDINAL_MAX).contains(&ordinal) {
            return Err(KeyError::BadTime);
        }
        self.bytes.push(code::DATE);
        self.bytes.extend_from_slice(&ordinal.to_be_bytes());
        Ok(())
    }

    /// Pushes a naive datetime: microseconds since 0001-01-01T00:00.
    ///
    /// # Errors
    /// `BadTime` if Python has no such datetime.
    pub fn datetime(&mut self, local: i64, fold: bool) -> Result<(), KeyError> {
        if !is_instant(local, 0) {
            return Err(KeyError::BadTime);
        }
        self.bytes.push(code::DATETIME);
        self.bytes.extend_from_slice(&local.to_be_bytes());
        if fold {
            self.spell(1);
        } else {
            self.spell_plain();
        }
        Ok(())
    }

    /// Pushes an aware datetime: microseconds since 0001-01-01T00:00 UTC, local time minus UTC in
    /// microseconds, and the zone in the format of records.
    ///
    /// # Errors
    /// `BadTime` if Python has no such datetime, or the zone is invalid.
    pub fn aware(&mut self, utc: i64, offset: i64, fold: bool, zone: &[u8]) -> Result<(), KeyError> {
        let size = u32::try_from(zone.len()).map_err(|_| KeyError::TooLarge)?;
        if !is_instant(utc, offset) || !is_zone(zone, offset) {
            return Err(KeyError::BadTime);
        }
        self.bytes.push(code::AWARE);
        self.bytes.extend_from_slice(&(utc + code::AWARE_BIAS).to_be_bytes());
        self.spell_anything();
        self.spelling.push(u8::from(fold));
        self.spelling.extend_from_slice(&offset.to_le_bytes());
        push_varint(&mut self.spelling, size);
        self.spelling.extend_from_slice(zone);
        Ok(())
    }

    /// Pushes a UUID, big-endian.
    pub fn uuid(&mut self, uuid: &[u8; 16]) {
        self.bytes.push(code::UUID);
        self.bytes.extend_from_slice(uuid);
    }

    /// Begins a tuple; its elements follow.
    ///
    /// # Errors
    /// `TooDeep` if 64 tuples are open.
    pub fn begin_tuple(&mut self) -> Result<(), KeyError> {
        if self.depth == KEY_DEPTH_MAX {
            return Err(KeyError::TooDeep);
        }
        self.depth += 1;
        self.bytes.push(code::TUPLE);
        Ok(())
    }

    /// Ends the tuple that was begun last.
    pub fn end_tuple(&mut self) {
        debug_assert!(self.depth > 0, "a tuple is ended that was not begun");
        self.depth = self.depth.saturating_sub(1);
        self.bytes.push(code::END);
    }

    /// Pushes any part.
    ///
    /// # Errors
    /// As the method of the part; `BadText` if a str is invalid.
    pub fn push(&mut self, part: &KeyPart<'_>) -> Result<(), KeyError> {
        match part {
            KeyPart::None => self.none(),
            KeyPart::Bool(bool) => self.bool(*bool),
            KeyPart::Int(int) => self.int(*int),
            KeyPart::BigInt { negative, magnitude } => self.bigint(*negative, magnitude)?,
            KeyPart::Float(float) => self.float(*float)?,
            KeyPart::Complex(real) => self.complex(*real)?,
            KeyPart::Str(text) if !is_text(text) => return Err(KeyError::BadText),
            KeyPart::Str(text) => self.str(text),
            KeyPart::Bytes(bytes) => self.bytes(bytes),
            KeyPart::Decimal(text) => self.decimal(text)?,
            KeyPart::Date(ordinal) => self.date(*ordinal)?,
            KeyPart::Datetime { local, fold } => self.datetime(*local, *fold)?,
            KeyPart::Aware { utc, offset, fold, zone } => self.aware(*utc, *offset, *fold, zone)?,
            KeyPart::Uuid(uuid) => self.uuid(uuid),
            KeyPart::BeginTuple => self.begin_tuple()?,
            KeyPart::EndTuple => self.end_tuple(),
        }
        Ok(())
    }

    #[inline]
    fn int_bytes(&mut self, int: i64) {
        let (bytes, size) = number::int_code(int);
        // Storing nine bytes takes a store or two; a copy of `size` bytes would be a call of
        // memcpy.
        self.bytes.extend_from_slice(&bytes);
        self.bytes.truncate(self.bytes.len() - bytes.len() + size);
    }

    fn bigint_bytes(&mut self, negative: bool, magnitude: &[u8]) -> Result<(), KeyError> {
        let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
        let magnitude = magnitude.get(zeros..).unwrap_or(&[]);
        let count = u32::try_from(magnitude.len()).map_err(|_| KeyError::TooLarge)?;
        let flip = if negative { 0xFF } else { 0x00 };
        if count <= 8 {
            let size = count as u8;
            self.bytes.push(if negative { code::INT_ZERO - size } else { code::INT_ZERO + size });
        } else {
            self.bytes.push(if negative { code::INT_LONG_NEGATIVE } else { code::INT_LONG_POSITIVE });
            match u8::try_from(count) {
                Ok(size) if size < 0xFF => self.bytes.push(size ^ flip),
                _ => {
                    self.bytes.push(0xFF ^ flip);
                    self.bytes.extend(count.to_be_bytes().map(|byte| byte ^ flip));
                }
            }
        }
        self.bytes.extend(magnitude.iter().map(|byte| byte ^ flip));
        Ok(())
    }

    #[inline]
    fn escaped(&mut self, code: u8, bytes: &[u8]) {
        self.bytes.reserve(bytes.len() + 2);
        self.bytes.push(code);
        if has_zero(bytes) {
            for byte in bytes {
                self.bytes.push(*byte);
                if *byte == code::END {
                    self.bytes.push(code::ESCAPE);
                }
            }
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        self.bytes.push(code::END);
    }

    /// Adds a plain entry: it takes a byte only if an earlier entry took one.
    #[inline]
    fn spell_plain(&mut self) {
        if self.spelling.is_empty() {
            self.plain_count += 1;
        } else {
            self.spelling.push(spelled::PLAIN);
        }
    }

    #[inline]
    fn spell(&mut self, entry: u8) {
        self.spell_anything();
        self.spelling.push(entry);
    }

    /// Before an entry that is not plain: adds the plain entries that were left out.
    #[inline]
    fn spell_anything(&mut self) {
        if self.spelling.is_empty() && self.plain_count > 0 {
            self.spelling.resize(self.plain_count, spelled::PLAIN);
        }
    }
}

/// Whether one of the bytes is 0, eight at a time. Keys are short: a search that is made for long
/// texts takes as long as everything else that is done for a key.
#[inline]
pub(super) fn has_zero(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_le_bytes([0x80; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    let is_in = |word: u64| word.wrapping_sub(ONES) & !word & TOPS != 0;
    // The last eight bytes once more, for those after the whole words.
    match bytes.last_chunk::<8>() {
        Some(last) if !rest.is_empty() && is_in(u64::from_le_bytes(*last)) => true,
        Some(_) => words.iter().any(|word| is_in(u64::from_le_bytes(*word))),
        None => rest.contains(&code::END),
    }
}

const _: () = assert!(code::END == 0, "what ends a key's part is what `has_zero` looks for");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_found_wherever_it_stands() {
        for size in 0..40 {
            // Bytes next to 0, which a search of several bytes at once may mistake for it.
            for other in [0x01, 0x80, 0xFF] {
                let mut bytes = vec![other; size];
                assert!(!has_zero(&bytes), "{bytes:02x?}");
                for place in 0..size {
                    bytes[place] = 0;
                    assert!(has_zero(&bytes), "{bytes:02x?}");
                    bytes[place] = other;
                }
            }
        }
    }
}
