//! Computes with numbers, strings, dates and times.
//!
//! Results are those of Python: ints are exact at any size, `/` of ints is correctly rounded, and
//! `%` has the sign of the divisor. Where Python raises (a division by zero, a result that no float
//! holds), the result is a missing value. Decimals use Python's default context (`decimal.rs`).
//!
//! An aware datetime in a named time zone is never moved, because the zone's rules for another day
//! are not known here. With other rules on another machine, the same file would give another time.

#![expect(
    clippy::cast_precision_loss,
    reason = "an int becomes the float that is nearest to it, as in Python"
)]

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use pellucid_record::calendar::date_of;
use pellucid_record::payload::Timedelta;
use pellucid_record::value::{Double, OwnedZone};
use pellucid_record::{Shapes, Slot, Value};

use super::found::Found;
use super::timedelta::{self, Fraction};
use crate::array::Array;
use crate::decimal::Decimal;
use crate::expression::{Function, Operation};

const DAY: i64 = 86_400_000_000;

/// An operand: a number, a string, a date or time, or a timedelta.
enum Term {
    Int(i64),
    Big(BigInt),
    Float(f64),
    Decimal(Decimal),
    Text(String),
    Date(u32),
    /// Microseconds since 0001-01-01T00:00. Computed datetimes have no fold.
    Datetime(i64),
    Aware {
        local: i64,
        offset: i64,
        zone: OwnedZone,
    },
    /// Microseconds.
    Timedelta(i128),
}

impl Term {
    fn of(found: &Found<'_>) -> Option<Term> {
        Some(match found {
            Found::Slot(Slot::Int(value), _) => Term::Int(*value),
            Found::Slot(Slot::Float(value), _) => Term::Float(*value),
            Found::Slot(Slot::Bool(value), _) => Term::Int(i64::from(*value)),
            Found::Slot(slot, record) => {
                // No heap value that can be an operand contains shapes.
                let value =
                    pellucid_record::value::decode_slot(record, &pellucid_record::value::NoShapes, *slot);
                return Term::of_value(&value.ok()?);
            }
            Found::Value(value) => return Term::of_value(value),
            Found::Missing => return None,
        })
    }

    fn of_value(value: &Value) -> Option<Term> {
        Some(match value {
            Value::Int(value) => Term::Int(*value),
            Value::Bool(value) => Term::Int(i64::from(*value)),
            Value::BigInt(bytes) => Term::Big(BigInt::from_signed_bytes_le(bytes)),
            Value::Float(value) => Term::Float(value.0),
            Value::Decimal(text) => Term::Decimal(Decimal::parse(text)?),
            Value::Str(text) => Term::Text(text.clone()),
            Value::Date(ordinal) => Term::Date(*ordinal),
            Value::Datetime(micros, _) => Term::Datetime(*micros),
            Value::Aware { local, offset, zone, .. } => {
                Term::Aware { local: *local, offset: *offset, zone: zone.clone() }
            }
            Value::Timedelta(delta) => Term::Timedelta(micros_of(delta)),
            _ => return None,
        })
    }

    fn big(&self) -> Option<BigInt> {
        match self {
            Term::Int(value) => Some(BigInt::from(*value)),
            Term::Big(value) => Some(value.clone()),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Term::Int(value) => Some(*value as f64),
            Term::Big(value) => value.to_f64().filter(|value| value.is_finite()),
            Term::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The number as an exact fraction.
    fn fraction(&self) -> Option<Fraction> {
        match self {
            Term::Float(value) => timedelta::fraction(*value),
            term => term.big().map(|value| (value, BigInt::from(1))),
        }
    }

    fn is_of_time(&self) -> bool {
        matches!(self, Term::Date(_) | Term::Datetime(_) | Term::Aware { .. } | Term::Timedelta(_))
    }

    fn decimal(&self) -> Option<Decimal> {
        match self {
            Term::Decimal(value) => Some(value.clone()),
            term => term.big().map(|value| Decimal::of_int(&value)),
        }
    }
}

/// Computes with two values. Missing if that is not possible.
#[must_use]
pub fn arithmetic(operation: Operation, one: &Found<'_>, other: &Found<'_>) -> Found<'static> {
    let value = match (Term::of(one), Term::of(other)) {
        (Some(one), Some(other)) => of_terms(operation, &one, &other),
        _ => None,
    };
    value.map_or(Found::Missing, Found::of_value)
}

/// The number with the other sign; Missing for anything else.
#[must_use]
pub fn negative(found: &Found<'_>) -> Found<'static> {
    let value = Term::of(found).and_then(|term| match term {
        Term::Float(value) => Some(Value::Float(Double(-value))),
        Term::Timedelta(micros) => timedelta(-micros),
        Term::Decimal(value) => value.negated().map(|value| Value::Decimal(value.text())),
        term => term.big().map(|value| int(&-value)),
    });
    value.map_or(Found::Missing, Found::of_value)
}

fn of_terms(operation: Operation, one: &Term, other: &Term) -> Option<Value> {
    use Operation::{Add, Divide, Multiply, Remainder, Subtract};
    if let (Term::Int(one), Term::Int(other)) = (one, other) {
        let small = match operation {
            Add => one.checked_add(*other),
            Subtract => one.checked_sub(*other),
            Multiply => one.checked_mul(*other),
            Remainder => one.checked_rem_euclid(*other).map(|rest| floored(rest, *other)),
            Divide => None,
        };
        if let Some(value) = small {
            return Some(Value::Int(value));
        }
    }
    match (one, other) {
        (Term::Text(one), Term::Text(other)) => {
            (operation == Add).then(|| Value::Str(format!("{one}{other}")))
        }
        (Term::Decimal(_), _) | (_, Term::Decimal(_)) => {
            of_decimals(operation, &one.decimal()?, &other.decimal()?)
        }
        _ if one.is_of_time() || other.is_of_time() => of_times(operation, one, other),
        _ => match (one.big(), other.big()) {
            (Some(one), Some(other)) => of_ints(operation, &one, &other),
            _ => of_floats(operation, one.float()?, other.float()?),
        },
    }
}

/// Computes with dates, datetimes and timedeltas.
fn of_times(operation: Operation, one: &Term, other: &Term) -> Option<Value> {
    use Operation::{Add, Divide, Multiply, Remainder, Subtract};
    match (operation, one, other) {
        (Divide, Term::Timedelta(one), Term::Timedelta(other)) => {
            quotient(&BigInt::from(*one), &BigInt::from(*other)).map(|value| Value::Float(Double(value)))
        }
        (Remainder, Term::Timedelta(one), Term::Timedelta(other)) => {
            timedelta(timedelta::remainder(*one, *other)?)
        }
        (Multiply, Term::Timedelta(micros), number) | (Multiply, number, Term::Timedelta(micros)) => {
            timedelta(timedelta::times(*micros, &number.fraction()?)?)
        }
        (Divide, Term::Timedelta(micros), number) => {
            let (above, below) = number.fraction()?;
            timedelta(timedelta::times(*micros, &(below, above))?)
        }
        (Subtract, Term::Date(one), Term::Date(other)) => {
            timedelta(i128::from(DAY) * (i128::from(*one) - i128::from(*other)))
        }
        (Subtract, Term::Datetime(one), Term::Datetime(other)) => {
            timedelta(i128::from(*one) - i128::from(*other))
        }
        (
            Subtract,
            Term::Aware { local: one, offset: one_offset, zone: one_zone },
            Term::Aware { local: other, offset: other_offset, zone: other_zone },
        ) => {
            // Within one zone, Python subtracts the local times and ignores changes of the offset
            // between them.
            let turned =
                if one_zone == other_zone { 0 } else { i128::from(*one_offset) - i128::from(*other_offset) };
            timedelta(i128::from(*one) - i128::from(*other) - turned)
        }
        (Add, start, Term::Timedelta(micros)) | (Add, Term::Timedelta(micros), start) => {
            moved(start, *micros)
        }
        (Subtract, Term::Date(_), Term::Timedelta(micros)) => moved(one, -days_only(*micros)),
        (Subtract, start, Term::Timedelta(micros)) => moved(start, -micros),
        _ => None,
    }
}

/// The remainder with the sign of the divisor. `rest` comes from `rem_euclid` and is never
/// negative.
fn floored(rest: i64, divisor: i64) -> i64 {
    if divisor < 0 && rest != 0 { rest + divisor } else { rest }
}

fn of_ints(operation: Operation, one: &BigInt, other: &BigInt) -> Option<Value> {
    let value = match operation {
        Operation::Add => one + other,
        Operation::Subtract => one - other,
        Operation::Multiply => one * other,
        Operation::Divide => return quotient(one, other).map(|value| Value::Float(Double(value))),
        Operation::Remainder => {
            if other.is_zero() {
                return None;
            }
            let rest = one % other;
            if !rest.is_zero() && rest.is_negative() != other.is_negative() { rest + other } else { rest }
        }
    };
    Some(int(&value))
}

/// The quotient of two ints as the nearest float.
fn quotient(one: &BigInt, other: &BigInt) -> Option<f64> {
    const EXACT: u64 = 53;
    /// The exponent of the last bit of a subnormal float.
    const LEAST_EXPONENT: i64 = -1074;
    if other.is_zero() {
        return None;
    }
    if one.bits() <= EXACT && other.bits() <= EXACT {
        return Some(one.to_f64()? / other.to_f64()?);
    }
    // 2^(size - 1) <= quotient < 2^(size + 1)
    let size = i64::try_from(one.bits()).ok()? - i64::try_from(other.bits()).ok()?;
    if size > 1024 {
        return None;
    }
    // Keep at least 54 bits of the quotient. For subnormal results, keep the bits that a subnormal
    // float has, and two more.
    let exponent = (size - 55).max(LEAST_EXPONENT - 2);
    let (mut whole, mut part) = (one.abs(), other.abs());
    if exponent < 0 {
        whole <<= -exponent;
    } else {
        part <<= exponent;
    }
    let has_more = !(&whole % &part).is_zero();
    // Sticky bit: the last bit is set if the division left a remainder, so that the result is
    // rounded only once.
    let whole = (whole / part).to_u64()? | u64::from(has_more);
    let bits = i64::from(u64::BITS - whole.leading_zeros());
    let spare = (bits - EXACT.cast_signed()).max(LEAST_EXPONENT - exponent).max(0);
    let half = (1u64 << spare) >> 1;
    let (kept, rest) = (whole >> spare, whole & ((1 << spare) - 1));
    let kept = kept + u64::from(rest > half || (rest == half && spare > 0 && kept & 1 == 1));
    let exponent = i32::try_from(exponent + spare).ok()?;
    // Scale in two steps, because the power of two may be smaller than any float.
    let value = kept as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
    let value = if one.is_negative() == other.is_negative() { value } else { -value };
    value.is_finite().then_some(value)
}

fn of_floats(operation: Operation, one: f64, other: f64) -> Option<Value> {
    let value = match operation {
        Operation::Add => one + other,
        Operation::Subtract => one - other,
        Operation::Multiply => one * other,
        Operation::Divide | Operation::Remainder if other == 0.0 => return None,
        Operation::Divide => one / other,
        Operation::Remainder => {
            let rest = one % other;
            if rest == 0.0 {
                0f64.copysign(other)
            } else if (rest < 0.0) == (other < 0.0) {
                rest
            } else {
                rest + other
            }
        }
    };
    Some(Value::Float(Double(value)))
}

fn of_decimals(operation: Operation, one: &Decimal, other: &Decimal) -> Option<Value> {
    let value = match operation {
        Operation::Add => one.plus(other),
        Operation::Subtract => one.minus(other),
        Operation::Multiply => one.times(other),
        Operation::Divide => one.over(other),
        Operation::Remainder => one.modulo(other),
    };
    value.map(|value| Value::Decimal(value.text()))
}

fn int(value: &BigInt) -> Value {
    match value.to_i64() {
        Some(value) => Value::Int(value),
        None => Value::BigInt(value.to_signed_bytes_le()),
    }
}

fn micros_of(delta: &Timedelta) -> i128 {
    i128::from(delta.days) * i128::from(DAY)
        + i128::from(delta.seconds) * 1_000_000
        + i128::from(delta.micros)
}

/// The timedelta of this many microseconds; None if it is out of range.
fn timedelta(micros: i128) -> Option<Value> {
    const DAYS_MAX: i32 = 999_999_999;
    let days = i32::try_from(micros.div_euclid(i128::from(DAY))).ok()?;
    let rest = u64::try_from(micros.rem_euclid(i128::from(DAY))).ok()?;
    let (seconds, micros) = ((rest / 1_000_000) as u32, (rest % 1_000_000) as u32);
    (-DAYS_MAX..=DAYS_MAX).contains(&days).then_some(Value::Timedelta(Timedelta { days, seconds, micros }))
}

/// A date or datetime moved by this many microseconds.
fn moved(start: &Term, micros: i128) -> Option<Value> {
    match start {
        Term::Date(start) => moved_days(*start, micros),
        Term::Datetime(start) => moved_clock(*start, micros).map(|clock| Value::Datetime(clock, false)),
        Term::Aware { local, offset, zone } if is_fixed(zone) => {
            let local = moved_clock(*local, micros)?;
            Some(Value::Aware { local, fold: false, offset: *offset, zone: zone.clone() })
        }
        Term::Timedelta(delta_before) => timedelta(delta_before.checked_add(micros)?),
        _ => None,
    }
}

/// Whether the zone's offset from UTC never changes.
fn is_fixed(zone: &OwnedZone) -> bool {
    match zone {
        OwnedZone::Fixed(..) => true,
        OwnedZone::Key(key) => key == "UTC",
    }
}

/// Microseconds since 0001-01-01T00:00; None if no datetime has this value.
fn moved_clock(start: i64, micros: i128) -> Option<i64> {
    let value = i64::try_from(i128::from(start) + micros).ok()?;
    let ordinal = u32::try_from(value.div_euclid(DAY) + 1).ok()?;
    pellucid_record::payload::is_date(ordinal).then_some(value)
}

/// The timedelta rounded down to whole days: Python moves a date only by a timedelta's `days`.
fn days_only(micros: i128) -> i128 {
    micros.div_euclid(i128::from(DAY)) * i128::from(DAY)
}

fn moved_days(start: u32, micros: i128) -> Option<Value> {
    let ordinal = i128::from(start) + micros.div_euclid(i128::from(DAY));
    let ordinal = u32::try_from(ordinal).ok()?;
    pellucid_record::payload::is_date(ordinal).then_some(Value::Date(ordinal))
}

/// Applies a function to one value. Missing if that is not possible.
#[must_use]
pub fn call<S: Shapes + ?Sized>(function: Function, found: &Found<'_>, shapes: &S) -> Found<'static> {
    let value = match function {
        Function::Length => {
            length(found, shapes).and_then(|length| i64::try_from(length).ok()).map(Value::Int)
        }
        Function::Lower => text_of(found).map(|text| Value::Str(text.to_lowercase())),
        Function::Upper => text_of(found).map(|text| Value::Str(text.to_uppercase())),
        Function::Abs => match Term::of(found) {
            Some(Term::Float(value)) => Some(Value::Float(Double(value.abs()))),
            Some(Term::Timedelta(micros)) => timedelta(micros.abs()),
            Some(Term::Decimal(value)) => value.absolute().map(|value| Value::Decimal(value.text())),
            Some(term) => term.big().map(|value| int(&value.abs())),
            None => None,
        },
        Function::Year => civil(found).map(|(year, ..)| Value::Int(i64::from(year))),
        Function::Month => civil(found).map(|(_, month, _)| Value::Int(i64::from(month))),
        Function::Day => civil(found).map(|(.., day)| Value::Int(i64::from(day))),
    };
    value.map_or(Found::Missing, Found::of_value)
}

fn text_of<'a>(found: &'a Found<'_>) -> Option<&'a str> {
    match found.bytes() {
        Some((true, text)) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

fn length<S: Shapes + ?Sized>(found: &Found<'_>, shapes: &S) -> Option<usize> {
    match found.bytes() {
        // Count characters: all bytes except UTF-8 continuation bytes.
        Some((true, text)) => return Some(text.iter().filter(|byte| **byte & 0xC0 != 0x80).count()),
        Some((false, bytes)) => return Some(bytes.len()),
        None => {}
    }
    match found {
        Found::Slot(Slot::Container(container), record) => {
            if container.kind != pellucid_record::Kind::Shaped {
                return Some(container.len() as usize);
            }
            // Deleted fields keep their slots.
            let is_there = |index: &u32| !matches!(container.slot(record, shapes, *index), Ok(Slot::Absent));
            Some((0..container.count).filter(is_there).count())
        }
        Found::Slot(slot @ Slot::Heap { .. }, record) => {
            let array = Array::of_slot(slot, record, shapes).ok()??;
            array.dimensions.first().copied()
        }
        Found::Value(value) => match &**value {
            Value::List(elements)
            | Value::Tuple(elements)
            | Value::Set(elements)
            | Value::FrozenSet(elements) => Some(elements.len()),
            Value::Dict(entries) => Some(entries.len()),
            _ => None,
        },
        _ => None,
    }
}

/// Year, month and day of a date or a datetime, in its local time.
fn civil(found: &Found<'_>) -> Option<(i32, u8, u8)> {
    let micros = |micros: i64| u32::try_from(micros.div_euclid(DAY) + 1).ok();
    let ordinal = match found {
        Found::Slot(Slot::Date(ordinal), _) => Some(*ordinal),
        Found::Slot(Slot::Datetime(value), _) => micros(value >> 1),
        found => match found.to_value(&pellucid_record::value::NoShapes) {
            Ok(Some(Value::Date(ordinal))) => Some(ordinal),
            Ok(Some(Value::Datetime(local, _) | Value::Aware { local, .. })) => micros(local),
            _ => return None,
        },
    };
    ordinal.map(date_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_is_rounded_once() {
        let of = |one: i128, other: i128| quotient(&BigInt::from(one), &BigInt::from(other));
        assert_eq!(of(1, 3), Some(1.0 / 3.0));
        assert_eq!(of((1 << 60) + 1, 1 << 60), Some(1.0));
        assert_eq!(of(-((1 << 70) + (1 << 18)), 1 << 17), Some(-9_007_199_254_740_994.0));
        assert_eq!(of(1, 0), None);
        let of = |one: u64, one_shift: u32, other_shift: u32| {
            quotient(&(BigInt::from(one) << one_shift), &(BigInt::from(1) << other_shift))
        };
        assert_eq!(of((1 << 53) - 1, 1100, 129), Some(f64::MAX));
        assert_eq!(of((1 << 54) - 1, 1100, 130), None);
        assert_eq!(of(1, 0, 1074), Some(f64::from_bits(1)));
        // Rounding to 53 bits first would give 2.
        assert_eq!(of((3 << 60) - 1, 0, 1135), Some(f64::from_bits(1)));
        assert_eq!(of(1, 0, 1075), Some(0.0));
        assert_eq!(of(1, 0, 5000), Some(0.0));
    }
}
