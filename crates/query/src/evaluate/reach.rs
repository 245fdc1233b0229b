//! Follows a path with `each()` to its values.
//!
//! `each()` stands for every element of a list, tuple or set, so a path may lead to many values.
//! For dicts and scalars it has no elements.

use pellucid_record::key::{KeyPart, KeyReader};
use pellucid_record::layout::tag;
use pellucid_record::payload::zone;
use pellucid_record::value::{Double, OwnedZone};
use pellucid_record::view::{Container, Slot, Walker};
use pellucid_record::{Corrupt, Damage, Kind, Shapes, Value};

use super::found::Found;
use crate::array::Array;
use crate::expression::Step;
use crate::field::FieldReader;

/// A path with `each()`.
#[derive(Clone)]
pub struct Reach {
    /// The path from the root of a record to the first list.
    first: FieldReader,
    /// The paths from an element of each list to the next list, and from that of the last one to
    /// the values.
    rest: Vec<FieldReader>,
}

impl Reach {
    /// The path of an expression.
    #[must_use]
    pub fn of(path: &[Step]) -> Self {
        let mut parts = path.split(|step| *step == Step::Each).filter_map(FieldReader::of);
        Self { first: parts.next().unwrap_or_else(|| FieldReader::new(Vec::new())), rest: parts.collect() }
    }

    /// Passes every value at the path to `visit` until it returns true. Returns whether it did.
    ///
    /// # Errors
    /// Damage on the path, and what `visit` returns.
    pub fn visit<S: Shapes + ?Sized>(
        &mut self,
        record: &[u8],
        shapes: &S,
        visit: &mut dyn FnMut(Found<'_>) -> Result<bool, Corrupt>,
    ) -> Result<bool, Corrupt> {
        let found = self.first.read(record, shapes)?;
        follow_each(record, shapes, found, &mut self.rest, visit)
    }
}

fn follow_each<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    found: Option<Slot<'_>>,
    rest: &mut [FieldReader],
    visit: &mut dyn FnMut(Found<'_>) -> Result<bool, Corrupt>,
) -> Result<bool, Corrupt> {
    let Some((reader, rest)) = rest.split_first_mut() else {
        return visit(match found {
            Some(slot) => Found::of_slot(slot, record, shapes)?,
            None => Found::Missing,
        });
    };
    let container = match found {
        Some(Slot::Container(container)) if !container.kind.is_dict() => container,
        Some(slot @ Slot::Heap { tag: tag::NDARRAY | tag::OVERFLOW, .. }) => {
            // Its elements are numbers, which have no parts.
            let is_last = rest.is_empty() && reader.is_empty();
            return if is_last { each_of_array(record, shapes, &slot, visit) } else { Ok(false) };
        }
        _ => return Ok(false),
    };
    // `Walker` makes sure that no two elements share bytes. Otherwise a few malicious bytes could
    // encode any number of elements.
    let mut walker = Walker::new(container);
    while let Some(slot) = walker.next_bounded(record, shapes)? {
        let found = reader.read_from(record, shapes, slot)?;
        if follow_each(record, shapes, found, rest, visit)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Passes every element of an array to `visit`, of all its dimensions.
#[cold]
fn each_of_array<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    visit: &mut dyn FnMut(Found<'_>) -> Result<bool, Corrupt>,
) -> Result<bool, Corrupt> {
    let Some(array) = Array::of_slot(slot, record, shapes)? else { return Ok(false) };
    for place in 0..array.count() {
        let found = array.element(place).map_or(Found::Missing, Found::of_value);
        if visit(found)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The value at a path of a key. Tuple elements have indexes.
///
/// # Errors
/// Damage of the key.
pub fn of_key(key: &[u8], spelling: &[u8], path: &[Step]) -> Result<Found<'static>, Corrupt> {
    let mut value = key_value(key, spelling)?;
    for step in path {
        let (Value::Tuple(mut elements), Step::Index(index)) = (value, step) else {
            return Ok(Found::Missing);
        };
        let index = if *index < 0 { index.checked_add_unsigned(elements.len() as u64) } else { Some(*index) };
        match index.and_then(|index| usize::try_from(index).ok()) {
            Some(index) if index < elements.len() => value = elements.swap_remove(index),
            _ => return Ok(Found::Missing),
        }
    }
    Ok(Found::of_value(value))
}

/// The value that the key was encoded from.
///
/// # Errors
/// Damage of the key.
pub fn key_value(key: &[u8], spelling: &[u8]) -> Result<Value, Corrupt> {
    let damaged = || Corrupt::new(Damage::Range, 0);
    let (mut open, mut whole) = (Vec::new(), Value::None);
    for part in KeyReader::new(key, spelling) {
        let value = match part.map_err(|_| damaged())? {
            KeyPart::BeginTuple => {
                open.push(Vec::new());
                continue;
            }
            KeyPart::EndTuple => Value::Tuple(open.pop().unwrap_or_default()),
            part => scalar(&part).ok_or_else(damaged)?,
        };
        match open.last_mut() {
            Some(tuple) => tuple.push(value),
            None => whole = value,
        }
    }
    Ok(whole)
}

fn scalar(part: &KeyPart<'_>) -> Option<Value> {
    Some(match part {
        KeyPart::None | KeyPart::BeginTuple | KeyPart::EndTuple => Value::None,
        KeyPart::Bool(value) => Value::Bool(*value),
        KeyPart::Int(value) => Value::Int(*value),
        KeyPart::BigInt { negative, magnitude } => {
            let sign = if *negative { num_bigint::Sign::Minus } else { num_bigint::Sign::Plus };
            Value::BigInt(num_bigint::BigInt::from_bytes_be(sign, magnitude).to_signed_bytes_le())
        }
        KeyPart::Float(value) | KeyPart::Complex(value) => Value::Float(Double(*value)),
        KeyPart::Str(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::Str(text.into()),
            Err(_) => Value::Surrogates(text.to_vec()),
        },
        KeyPart::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        KeyPart::Decimal(text) => Value::Decimal((*text).to_owned()),
        KeyPart::Date(ordinal) => Value::Date(*ordinal),
        KeyPart::Datetime { local, fold } => Value::Datetime(*local, *fold),
        KeyPart::Aware { utc, offset, fold, zone: bytes } => Value::Aware {
            local: utc + offset,
            fold: *fold,
            offset: *offset,
            zone: OwnedZone::from(zone(bytes)?),
        },
        KeyPart::Uuid(uuid) => Value::Uuid(*uuid),
    })
}

/// Whether a value is an element of a list, tuple or set, or a key of a dict.
///
/// # Errors
/// Damage.
pub fn is_in_list<S: Shapes + ?Sized>(
    container: &Container,
    record: &[u8],
    shapes: &S,
    wanted: &Found<'_>,
) -> Result<bool, Corrupt> {
    match container.kind {
        Kind::Shaped => {
            let Some(shape) = shapes.shape(container.shape) else {
                return Err(Corrupt::new(Damage::UnknownShape, container.start as usize));
            };
            let Some((true, name)) = wanted.bytes() else { return Ok(false) };
            let Some(index) = std::str::from_utf8(name).ok().and_then(|name| shape.slot(name)) else {
                return Ok(false);
            };
            Ok(!matches!(container.slot(record, shapes, index)?, Slot::Absent))
        }
        kind => {
            // In a keyed map, every second slot is a key.
            let step = if kind == Kind::Keyed { 2 } else { 1 };
            let mut walker = Walker::new(*container);
            loop {
                let index = walker.index();
                let Some(slot) = walker.next_bounded(record, shapes)? else { break };
                if !index.is_multiple_of(step) {
                    continue;
                }
                if Found::of_slot(slot, record, shapes)?.equals(wanted, shapes)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}
