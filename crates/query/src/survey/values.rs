//! What is kept of the values that are met at one path: their types, how many differ, and the
//! smallest and the greatest.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "a float is compared with the int that it may be"
)]

use std::cmp::Ordering;

use pellucid_record::layout::{Kind, tag};
use pellucid_record::value::{Double, decode_slot};
use pellucid_record::view::{Container, Slot};
use pellucid_record::{Corrupt, Shapes, Value, payload};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::code::Code;
use crate::evaluate::found::Found;
use crate::order::order;
use crate::survey::distinct::Distinct;

/// The types of Python, by their number in `Values::types`.
pub const TYPES: [&str; 22] = [
    "None",
    "bool",
    "int",
    "float",
    "str",
    "bytes",
    "bytearray",
    "date",
    "datetime",
    "time",
    "timedelta",
    "Decimal",
    "UUID",
    "complex",
    "ndarray",
    "list",
    "tuple",
    "set",
    "frozenset",
    "dict",
    "object",
    "pickle",
];
const LIST: usize = 15;
const DICT: usize = 19;
/// A list with more elements is no example.
const EXAMPLE_COUNT_MAX: u32 = 8;
/// How many kinds of values that do not compare with each other are told apart.
const OTHERS_MAX: usize = 8;

/// The values at one path.
#[derive(Clone, Default)]
pub struct Values {
    /// How many there are of each type.
    pub types: [u64; TYPES.len()],
    /// How many there are.
    pub count: u64,
    /// How many of them are counted in `distinct`.
    pub counted: u64,
    /// Those that are no container, None or large value.
    pub distinct: Distinct,
    /// The first value that is not None and not large.
    pub example: Option<Value>,
    ints: Option<(i64, i64)>,
    floats: Option<(f64, f64)>,
    texts: Option<(Vec<u8>, Vec<u8>)>,
    /// Others, by what they compare with: how many, the least and the greatest.
    others: Vec<(u64, Value, Value)>,
}

/// A number whose bits are spread.
#[must_use]
pub fn mixed(number: u64) -> u64 {
    // The finalizer of SplitMix64.
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn of_float(value: f64) -> u64 {
    // A float equals the int that it is.
    let int = value as i64;
    if int as f64 == value && int != i64::MAX { mixed(int.cast_unsigned()) } else { mixed(!value.to_bits()) }
}

fn widen<T: Copy + PartialOrd>(ends: &mut Option<(T, T)>, value: T) {
    match ends {
        None => *ends = Some((value, value)),
        Some((least, _)) if value < *least => *least = value,
        Some((_, greatest)) if value > *greatest => *greatest = value,
        Some(_) => {}
    }
}

fn widen_text(ends: &mut Option<(Vec<u8>, Vec<u8>)>, text: &[u8]) {
    match ends {
        None => *ends = Some((text.to_vec(), text.to_vec())),
        Some((least, _)) if text < least.as_slice() => *least = text.to_vec(),
        Some((_, greatest)) if text > greatest.as_slice() => *greatest = text.to_vec(),
        Some(_) => {}
    }
}

/// The number of the type of what has this tag on the heap.
fn type_of_tag(tag: u8) -> usize {
    match tag {
        tag::STR | tag::STR_SURROGATES => 4,
        tag::BYTES => 5,
        tag::BYTEARRAY => 6,
        tag::BIGINT => 2,
        tag::TIME => 9,
        tag::TIMEDELTA => 10,
        tag::DECIMAL => 11,
        tag::UUID => 12,
        tag::COMPLEX => 13,
        tag::NDARRAY => 14,
        tag::AWARE => 8,
        tag::REGISTERED => 20,
        _ => 21,
    }
}

fn type_of(slot: &Slot<'_>) -> usize {
    match *slot {
        Slot::Absent | Slot::None => 0,
        Slot::Bool(_) => 1,
        Slot::Int(_) => 2,
        Slot::Float(_) => 3,
        Slot::Str(_) => 4,
        Slot::Date(_) => 7,
        Slot::Datetime(_) => 8,
        Slot::Heap { tag: tag::OVERFLOW, payload, .. } => {
            payload::overflow(payload).map_or(21, |overflow| type_of_tag(overflow.tag))
        }
        Slot::Heap { tag, .. } => type_of_tag(tag),
        Slot::Container(container) => match container.kind {
            Kind::Shaped | Kind::Keyed => DICT,
            Kind::List | Kind::PackedInts | Kind::PackedFloats => LIST,
            Kind::Tuple => LIST + 1,
            Kind::Set => LIST + 2,
            Kind::FrozenSet => LIST + 3,
        },
    }
}

/// Whether the values in a list or tuple are few, and each is a scalar of its own.
fn is_short(container: &Container, record: &[u8]) -> bool {
    !container.kind.is_dict()
        && container.count <= EXAMPLE_COUNT_MAX
        && (0..container.count).all(|index| container.tag(record, index).is_none_or(|tag| tag < tag::NDARRAY))
}

impl Values {
    /// Adds a value of all rows, or of a sample.
    ///
    /// # Errors
    /// Damage.
    pub fn add<S: Shapes + ?Sized>(
        &mut self,
        slot: &Slot<'_>,
        record: &[u8],
        shapes: &S,
        (code, is_exact): (&mut Code, bool),
    ) -> Result<(), Corrupt> {
        self.count += 1;
        if let Some(count) = self.types.get_mut(type_of(slot)) {
            *count += 1;
        }
        let hash = match *slot {
            Slot::Absent | Slot::None => return Ok(()),
            Slot::Int(value) => {
                widen(&mut self.ints, value);
                mixed(value.cast_unsigned())
            }
            Slot::Float(value) => {
                if !value.is_nan() {
                    widen(&mut self.floats, value);
                }
                of_float(value)
            }
            Slot::Str(text) => {
                widen_text(&mut self.texts, text);
                xxh3_64(text)
            }
            Slot::Bool(value) => {
                self.widen_other(Value::Bool(value));
                mixed(u64::from(value))
            }
            Slot::Container(container) => {
                if self.example.is_none() && is_short(&container, record) {
                    self.example = Some(decode_slot(record, shapes, *slot)?);
                }
                return Ok(());
            }
            Slot::Heap { tag: tag::OVERFLOW | tag::NDARRAY | tag::REGISTERED | tag::PICKLE, .. } => {
                return Ok(());
            }
            Slot::Date(_) | Slot::Datetime(_) | Slot::Heap { .. } => {
                let value = decode_slot(record, shapes, *slot)?;
                self.widen_other(value);
                code.clear();
                code.push_group(&Found::Slot(*slot, record), shapes)?;
                xxh3_64_with_seed(code.as_bytes(), 1)
            }
        };
        if self.example.is_none() {
            self.example = Some(decode_slot(record, shapes, *slot)?);
        }
        self.counted += 1;
        self.distinct.add(hash, is_exact);
        Ok(())
    }

    fn widen_other(&mut self, value: Value) {
        self.widen_others(1, value.clone(), value);
    }

    fn widen_others(&mut self, count: u64, from: Value, to: Value) {
        for (seen, least, greatest) in &mut self.others {
            let Some(below) = order(&from, least) else { continue };
            *seen += count;
            if below == Ordering::Less {
                *least = from;
            }
            if order(&to, greatest) == Some(Ordering::Greater) {
                *greatest = to;
            }
            return;
        }
        // NaN compares with nothing.
        if self.others.len() < OTHERS_MAX && order(&from, &to).is_some() {
            self.others.push((count, from, to));
        }
    }

    /// Adds the values that another one has met.
    pub fn merge(&mut self, other: Self, is_exact: bool) {
        for (count, more) in self.types.iter_mut().zip(other.types) {
            *count += more;
        }
        self.count += other.count;
        self.counted += other.counted;
        self.distinct.merge(other.distinct, is_exact);
        if self.example.is_none() {
            self.example = other.example;
        }
        if let Some((least, greatest)) = other.ints {
            widen(&mut self.ints, least);
            widen(&mut self.ints, greatest);
        }
        if let Some((least, greatest)) = other.floats {
            widen(&mut self.floats, least);
            widen(&mut self.floats, greatest);
        }
        if let Some((least, greatest)) = other.texts {
            widen_text(&mut self.texts, &least);
            widen_text(&mut self.texts, &greatest);
        }
        for (count, least, greatest) in other.others {
            self.widen_others(count, least, greatest);
        }
    }

    /// The least and the greatest of those values that compare with each other and are most
    /// frequent. Numbers of all types compare.
    #[must_use]
    pub fn ends(mut self) -> Option<(Value, Value)> {
        let count_of = |index: usize| self.types.get(index).copied().unwrap_or_default();
        let (ints, floats, texts) = (count_of(2), count_of(3), count_of(4));
        if let Some((least, greatest)) = self.ints {
            self.widen_others(ints, Value::Int(least), Value::Int(greatest));
        }
        if let Some((least, greatest)) = self.floats {
            self.widen_others(floats, Value::Float(Double(least)), Value::Float(Double(greatest)));
        }
        if let Some((least, greatest)) = self.texts.take() {
            let text = |bytes| {
                String::from_utf8(bytes)
                    .map_or_else(|error| Value::Surrogates(error.into_bytes()), Value::Str)
            };
            self.widen_others(texts, text(least), text(greatest));
        }
        let frequent = self.others.into_iter().max_by_key(|(count, ..)| *count);
        frequent.map(|(_, least, greatest)| (least, greatest))
    }
}
