//! Reads and writes the payloads of heap entries.
//!
//! Each tag with parts has one function that reads them, and one that writes them. Strings, bytes
//! and pickles have none; the code that makes a string of a text checks it. The readers accept
//! exactly what `docs/format.md` allows, ranges included, so their results can be passed to Python
//! as they are.

use crate::dtype::{self, DIMENSION_COUNT_MAX};
use crate::error::{Corrupt, Damage, Result};
use crate::key;
use crate::keyed::container_end;
use crate::layout::{DATE_ORDINAL_MAX, DEPTH_MAX, Kind, MICROS_PER_DAY, TIMEDELTA_DAYS_MAX, tag};
use crate::shape::Shapes;
use crate::view::{Container, Slot};

/// The first byte of a zone that is a fixed `datetime.timezone`.
const ZONE_FIXED: u8 = 1;
/// The first byte of a zone that is a `zoneinfo.ZoneInfo`.
const ZONE_KEY: u8 = 2;
/// The first microsecond that is too large for a datetime.
const DATETIME_END: i64 = DATE_ORDINAL_MAX as i64 * MICROS_PER_DAY;
/// The `NumPy` flags that are defined: 1 Fortran order, 2 scalar.
const NDARRAY_FLAGS: i64 = 3;

/// The time zone of an aware time or datetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone<'a> {
    /// A `datetime.timezone`.
    Fixed {
        /// Its UTC offset in microseconds, less than a day.
        offset: i64,
        /// Its name; empty if it has none of its own.
        name: &'a str,
    },
    /// A `zoneinfo.ZoneInfo`, by its key.
    Key(&'a str),
}

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<'a> {
    /// Microseconds since midnight.
    pub micros: i64,
    /// The second of two equal local times.
    pub fold: bool,
    /// `None` if it is naive.
    pub zone: Option<Zone<'a>>,
}

/// An aware datetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aware<'a> {
    /// Microseconds since 0001-01-01T00:00, local time.
    pub local: i64,
    /// The second of two equal local times.
    pub fold: bool,
    /// Local time minus UTC, in microseconds.
    pub offset: i64,
    /// Its zone.
    pub zone: Zone<'a>,
}

/// A timedelta, normalized as in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timedelta {
    /// -999,999,999 to 999,999,999.
    pub days: i32,
    /// Less than a day.
    pub seconds: u32,
    /// Less than a second.
    pub micros: u32,
}

/// A value that is stored apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overflow {
    /// The tag that its payload has.
    pub tag: u8,
    /// The id of its blob.
    pub blob: u64,
    /// The payload's size.
    pub size: u64,
}

/// A `NumPy` array or scalar. `head` holds dtype (slot 0) and shape (slot 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ndarray<'a> {
    /// The tuple (dtype, shape, flags, data offset).
    pub head: Container,
    /// The dtype: `Slot::Str`, or a container that is `dtype.descr`.
    pub dtype: Slot<'a>,
    /// The list of dimensions.
    pub shape: Container,
    /// Whether the data is in Fortran order.
    pub is_fortran: bool,
    /// It is a scalar.
    pub is_scalar: bool,
    /// The raw data.
    pub data: &'a [u8],
    /// Where the data stands in the record.
    pub data_offset: u32,
}

/// An object of a registered class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registered<'a> {
    /// The tuple (name, value).
    pub head: Container,
    /// The name the class was registered under; not checked to be UTF-8.
    pub name: &'a [u8],
    /// The value that the class's encoder made of it.
    pub value: Slot<'a>,
}

#[inline]
fn le_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (i64::from_le_bytes(*number), rest))
}

#[inline]
fn le_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u32::from_le_bytes(*number), rest))
}

fn is_utc_offset(offset: i64) -> bool {
    -MICROS_PER_DAY < offset && offset < MICROS_PER_DAY
}

/// Splits a naive datetime: microseconds since 0001-01-01T00:00, fold. `None` if it is out of
/// range.
#[inline]
#[must_use]
pub fn datetime(value: i64) -> Option<(i64, bool)> {
    let micros = value >> 1;
    (0..DATETIME_END).contains(&micros).then_some((micros, value & 1 == 1))
}

/// The slot of a datetime; the inverse of `datetime`.
#[inline]
#[must_use]
pub fn datetime_bits(micros: i64, fold: bool) -> i64 {
    micros << 1 | i64::from(fold)
}

/// Whether there is a date with this ordinal.
#[inline]
#[must_use]
pub fn is_date(ordinal: u32) -> bool {
    (1..=DATE_ORDINAL_MAX).contains(&ordinal)
}

/// Reads a zone, to the end of the bytes.
#[must_use]
pub fn zone(bytes: &[u8]) -> Option<Zone<'_>> {
    let (kind, rest) = bytes.split_first()?;
    match *kind {
        ZONE_FIXED => {
            let (offset, name) = le_i64(rest)?;
            is_utc_offset(offset).then_some(Zone::Fixed { offset, name: std::str::from_utf8(name).ok()? })
        }
        ZONE_KEY => std::str::from_utf8(rest).ok().filter(|key| is_zone_key(key)).map(Zone::Key),
        _ => None,
    }
}

/// Whether `zoneinfo` accepts this key: it is the path of a file below a folder of zones.
#[must_use]
pub fn is_zone_key(key: &str) -> bool {
    !key.contains(['\0', '\\', ':']) && key.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Appends a zone.
pub fn push_zone(zone: &Zone<'_>, out: &mut Vec<u8>) {
    match zone {
        Zone::Fixed { offset, name } => {
            out.push(ZONE_FIXED);
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        Zone::Key(key) => {
            out.push(ZONE_KEY);
            out.extend_from_slice(key.as_bytes());
        }
    }
}

/// Reads the payload of `TIME`.
#[must_use]
pub fn time(payload: &[u8]) -> Option<Time<'_>> {
    let (value, rest) = le_i64(payload)?;
    let (micros, fold) = (value >> 1, value & 1 == 1);
    let zone = if rest.is_empty() { None } else { Some(zone(rest)?) };
    (0..MICROS_PER_DAY).contains(&micros).then_some(Time { micros, fold, zone })
}

/// Appends the payload of `TIME`.
pub fn push_time(time: &Time<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&datetime_bits(time.micros, time.fold).to_le_bytes());
    if let Some(zone) = &time.zone {
        push_zone(zone, out);
    }
}

/// Reads the payload of `AWARE`.
#[must_use]
pub fn aware(payload: &[u8]) -> Option<Aware<'_>> {
    let (value, rest) = le_i64(payload)?;
    let (local, fold) = datetime(value)?;
    let (offset, rest) = le_i64(rest)?;
    let zone = zone(rest)?;
    let is_consistent = match zone {
        Zone::Fixed { offset: own, .. } => own == offset,
        Zone::Key(_) => is_utc_offset(offset),
    };
    is_consistent.then_some(Aware { local, fold, offset, zone })
}

/// Appends the payload of `AWARE`.
pub fn push_aware(aware: &Aware<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&datetime_bits(aware.local, aware.fold).to_le_bytes());
    out.extend_from_slice(&aware.offset.to_le_bytes());
    push_zone(&aware.zone, out);
}

/// Reads the payload of `TIMEDELTA`.
#[must_use]
pub fn timedelta(payload: &[u8]) -> Option<Timedelta> {
    let (days, rest) = le_u32(payload)?;
    let (seconds, rest) = le_u32(rest)?;
    let (micros, rest) = le_u32(rest)?;
    let days = days.cast_signed();
    let is_normal = (-TIMEDELTA_DAYS_MAX..=TIMEDELTA_DAYS_MAX).contains(&days)
        && seconds < 86_400
        && micros < 1_000_000
        && rest.is_empty();
    is_normal.then_some(Timedelta { days, seconds, micros })
}

/// The payload of `TIMEDELTA`.
#[must_use]
pub fn timedelta_bytes(delta: &Timedelta) -> [u8; 12] {
    let both = u64::from(delta.days.cast_unsigned()) | u64::from(delta.seconds) << 32;
    let all = u128::from(both) | u128::from(delta.micros) << 64;
    let mut bytes = [0; 12];
    bytes.iter_mut().zip(all.to_le_bytes()).for_each(|(target, source)| *target = source);
    bytes
}

/// Whether this is the payload of `BIGINT`: an int beyond 64 bits, little-endian, in its shortest
/// form.
#[must_use]
pub fn is_bigint(payload: &[u8]) -> bool {
    match payload {
        // A last byte that only repeats the sign could be left out; with 8 bytes or fewer it would
        // be a plain int.
        [.., below, last] if payload.len() > 8 => {
            !(*last == 0 && *below < 0x80 || *last == 0xFF && *below >= 0x80)
        }
        _ => false,
    }
}

/// The sign and the big-endian magnitude, without leading zeros, of a little-endian two's
/// complement.
#[must_use]
pub fn bigint_magnitude(payload: &[u8]) -> (bool, Vec<u8>) {
    let negative = payload.last().is_some_and(|last| *last >= 0x80);
    let mut magnitude = payload.to_vec();
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    while magnitude.last() == Some(&0) {
        magnitude.pop();
    }
    magnitude.reverse();
    (negative, magnitude)
}

/// Reads the payload of `COMPLEX`: real and imaginary part.
#[must_use]
pub fn complex(payload: &[u8]) -> Option<(f64, f64)> {
    let (real, rest) = payload.split_first_chunk()?;
    let imaginary = <[u8; 8]>::try_from(rest).ok()?;
    Some((f64::from_le_bytes(*real), f64::from_le_bytes(imaginary)))
}

/// The payload of `COMPLEX`.
#[must_use]
pub fn complex_bytes(real: f64, imaginary: f64) -> [u8; 16] {
    (u128::from(real.to_bits()) | u128::from(imaginary.to_bits()) << 64).to_le_bytes()
}

/// Reads the payload of `UUID`.
#[must_use]
pub fn uuid(payload: &[u8]) -> Option<[u8; 16]> {
    payload.try_into().ok()
}

/// Reads the payload of `DECIMAL`: its text.
#[must_use]
pub fn decimal(payload: &[u8]) -> Option<&str> {
    std::str::from_utf8(payload).ok().filter(|text| key::is_decimal_text(text))
}

/// Reads the payload of `OVERFLOW`.
#[must_use]
pub fn overflow(payload: &[u8]) -> Option<Overflow> {
    let (tag, rest) = payload.split_first()?;
    let (blob, rest) = le_i64(rest)?;
    let size = i64::from_le_bytes(rest.try_into().ok()?);
    let may_overflow = matches!(*tag, tag::STR..=tag::BYTEARRAY | tag::NDARRAY | tag::PICKLE);
    may_overflow.then_some(Overflow { tag: *tag, blob: blob.cast_unsigned(), size: size.cast_unsigned() })
}

/// The slot of a value that is stored apart, from its bytes. For an array, these are used as the
/// record that it is read from.
#[must_use]
pub fn overflow_slot<'a>(overflow: &Overflow, bytes: &'a [u8]) -> Slot<'a> {
    match overflow.tag {
        tag::STR => Slot::Str(bytes),
        tag => Slot::Heap { tag, payload: bytes, offset: 0 },
    }
}

/// The payload of `OVERFLOW`.
#[must_use]
pub fn overflow_bytes(overflow: &Overflow) -> [u8; 17] {
    let mut bytes = [0; 17];
    let parts =
        std::iter::once(overflow.tag).chain(overflow.blob.to_le_bytes()).chain(overflow.size.to_le_bytes());
    bytes.iter_mut().zip(parts).for_each(|(target, source)| *target = source);
    bytes
}

/// Reads the payload of `NDARRAY`, which begins at `offset` in `bytes`.
///
/// # Errors
/// The head is not a tuple of the right elements, the dtype is invalid (`dtype.rs`), or the data
/// does not fit the elements.
pub fn ndarray<'a, S: Shapes + ?Sized>(
    bytes: &'a [u8],
    shapes: &S,
    offset: u32,
    size: u32,
) -> Result<Ndarray<'a>> {
    let bad = || Corrupt::new(Damage::Payload, offset as usize);
    let end = offset.saturating_add(size);
    let head = Container::nested(bytes, offset, end, shapes)?;
    if head.kind != Kind::Tuple || head.count != 4 {
        return Err(bad());
    }
    let dtype = head.slot(bytes, shapes, 0)?;
    let item_size = dtype::item_size(bytes, shapes, &dtype).ok_or_else(bad)?;
    let (Slot::Container(shape), Slot::Int(flags), Slot::Int(data)) =
        (head.slot(bytes, shapes, 1)?, head.slot(bytes, shapes, 2)?, head.slot(bytes, shapes, 3)?)
    else {
        return Err(bad());
    };
    let is_shape = shape.kind == Kind::PackedInts || shape.kind == Kind::List && shape.count == 0;
    let data_offset = u32::try_from(data).ok().and_then(|data| offset.checked_add(data)).ok_or_else(bad)?;
    let (is_fortran, is_scalar) = (flags & 1 != 0, flags & 2 != 0);
    if !is_shape
        || flags & !NDARRAY_FLAGS != 0
        || shape.count > if is_scalar { 0 } else { DIMENSION_COUNT_MAX }
    {
        return Err(bad());
    }
    if data_offset < container_end(bytes, shapes, &head, DEPTH_MAX)? {
        return Err(bad());
    }
    let data = bytes.get(data_offset as usize..end as usize).ok_or_else(bad)?;
    // NumPy multiplies the dimensions that are not 0, even for an array without elements.
    let (mut size, mut is_empty) = (item_size.max(1), false);
    for index in 0..shape.count {
        let dimension = shape.int(bytes, index).and_then(|dimension| u64::try_from(dimension).ok());
        let dimension = dimension.ok_or_else(bad)?;
        is_empty |= dimension == 0;
        size =
            size.checked_mul(dimension.max(1)).filter(|size| i64::try_from(*size).is_ok()).ok_or_else(bad)?;
    }
    let size = if is_empty || item_size == 0 { 0 } else { size };
    // For a scalar that is an empty string, earlier versions wrote one NUL, although its size is 0.
    let is_nul = is_scalar && item_size == 0 && data.len() <= 4 && data.iter().all(|byte| *byte == 0);
    if data.len() as u64 != size && !is_nul {
        return Err(bad());
    }
    Ok(Ndarray { head, dtype, shape, is_fortran, is_scalar, data, data_offset })
}

/// Reads the payload of `REGISTERED`, which begins at `offset` in `bytes`.
///
/// # Errors
/// It is not a tuple of a name and a value.
pub fn registered<'a, S: Shapes + ?Sized>(
    bytes: &'a [u8],
    shapes: &S,
    offset: u32,
    size: u32,
) -> Result<Registered<'a>> {
    let head = Container::nested(bytes, offset, offset.saturating_add(size), shapes)?;
    let bad = || Corrupt::new(Damage::Payload, offset as usize);
    if head.kind != Kind::Tuple || head.count != 2 {
        return Err(bad());
    }
    let Slot::Str(name) = head.slot(bytes, shapes, 0)? else { return Err(bad()) };
    let value = head.slot(bytes, shapes, 1)?;
    if value == Slot::Absent {
        return Err(bad());
    }
    Ok(Registered { head, name, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magnitude_of_big_ints_is_that_of_the_number() {
        for number in
            [i128::from(i64::MAX) + 1, i128::from(i64::MIN) - 1, -(1 << 72), 1 << 100, i128::MIN, i128::MAX]
        {
            let mut payload = number.to_le_bytes().to_vec();
            while payload.len() > 9 && !is_bigint(&payload) {
                payload.pop();
            }
            assert!(is_bigint(&payload), "{number}");
            let (negative, magnitude) = bigint_magnitude(&payload);
            let value = magnitude.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
            assert_eq!((negative, value), (number < 0, number.unsigned_abs()));
        }
        assert!(!is_bigint(&5i64.to_le_bytes()));
        assert!(!is_bigint(&[1, 2, 3, 4, 5, 6, 7, 8, 0, 0]));
    }

    #[test]
    fn parts_of_times_come_back() {
        for zone in
            [None, Some(Zone::Key("Europe/Berlin")), Some(Zone::Fixed { offset: -3_600_000_000, name: "X" })]
        {
            let value = Time { micros: 86_399_999_999, fold: true, zone };
            let mut payload = Vec::new();
            push_time(&value, &mut payload);
            assert_eq!(time(&payload), Some(value));
        }
        let value = Aware { local: 5, fold: false, offset: 0, zone: Zone::Fixed { offset: 0, name: "" } };
        let mut payload = Vec::new();
        push_aware(&value, &mut payload);
        assert_eq!(aware(&payload), Some(value));
        assert_eq!(aware(&payload[..15]), None);
        let delta = Timedelta { days: -1, seconds: 86_399, micros: 999_999 };
        assert_eq!(timedelta(&timedelta_bytes(&delta)), Some(delta));
        let delta = Timedelta { seconds: 86_400, ..delta };
        assert_eq!(timedelta(&timedelta_bytes(&delta)), None);
        assert_eq!(complex(&complex_bytes(1.5, -0.0)).map(|(a, b)| (a, b.to_bits())), Some((1.5, 1 << 63)));
        let value = Overflow { tag: tag::STR, blob: u64::MAX, size: 7 };
        assert_eq!(overflow(&overflow_bytes(&value)), Some(value));
    }
}
