//! An owned value of any type of the format, independent of bytes.
//!
//! Tests, fuzzers and tools use [`Value`]. The hot paths go from Python's objects to [`Encoder`],
//! and from views to Python's objects, without it.

use std::hash::{Hash, Hasher};

use crate::encode::Encoder;
use crate::envelope::Tables;
use crate::error::{Corrupt, Damage, EncodeError, Result};
use crate::key;
use crate::layout::{DEPTH_MAX, Kind, SCALAR_HEAD_SIZE, tag};
use crate::payload::{self, Aware, Overflow, Time, Timedelta, Zone};
use crate::shape::{Dictionary, Shape, Shapes};
use crate::view::{self, Container, Root, Slot};
use crate::walk::Walker;

/// A double that is equal to another with the same bits: NaN equals NaN, and 0.0 differs from -0.0.
#[derive(Clone, Copy, Debug)]
pub struct Double(pub f64);

impl PartialEq for Double {
    fn eq(&self, other: &Double) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Double {}

impl Hash for Double {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// An owned time zone: `payload::Zone`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedZone {
    /// A `datetime.timezone`: UTC offset in microseconds, name.
    Fixed(i64, String),
    /// A `zoneinfo.ZoneInfo`, by its key.
    Key(String),
}

impl OwnedZone {
    /// The same, borrowed.
    #[must_use]
    pub fn borrow(&self) -> Zone<'_> {
        match self {
            OwnedZone::Fixed(offset, name) => Zone::Fixed { offset: *offset, name },
            OwnedZone::Key(key) => Zone::Key(key),
        }
    }
}

impl From<Zone<'_>> for OwnedZone {
    fn from(zone: Zone<'_>) -> OwnedZone {
        match zone {
            Zone::Fixed { offset, name } => OwnedZone::Fixed(offset, name.into()),
            Zone::Key(key) => OwnedZone::Key(key.into()),
        }
    }
}

/// Any value that a record can hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// None.
    None,
    /// A bool.
    Bool(bool),
    /// An int of 64 bits.
    Int(i64),
    /// An int beyond 64 bits: two's complement, little-endian, as short as it goes.
    BigInt(Vec<u8>),
    /// A float.
    Float(Double),
    /// A complex number.
    Complex(Double, Double),
    /// A string without lone surrogates.
    Str(String),
    /// A string with lone surrogates, encoded as if they were characters.
    Surrogates(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A bytearray.
    Bytearray(Vec<u8>),
    /// A Decimal's text.
    Decimal(String),
    /// A UUID.
    Uuid([u8; 16]),
    /// A date's ordinal.
    Date(u32),
    /// A naive datetime: microseconds since 0001-01-01T00:00, fold.
    Datetime(i64, bool),
    /// An aware datetime.
    Aware {
        /// Microseconds since 0001-01-01T00:00, local time.
        local: i64,
        /// The second of two equal local times.
        fold: bool,
        /// Local time minus UTC, in microseconds.
        offset: i64,
        /// Its zone.
        zone: OwnedZone,
    },
    /// A time: microseconds since midnight, fold, zone.
    Time(i64, bool, Option<OwnedZone>),
    /// A timedelta.
    Timedelta(Timedelta),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A set, in any order; read back in the order of its bytes.
    Set(Vec<Value>),
    /// A frozenset.
    FrozenSet(Vec<Value>),
    /// A dict.
    Dict(Vec<(Value, Value)>),
    /// A `NumPy` array or scalar.
    Ndarray {
        /// `dtype.str`, or `dtype.descr` as lists and tuples.
        dtype: Box<Value>,
        /// Its dimensions.
        shape: Vec<i64>,
        /// 1 Fortran order, 2 scalar.
        flags: u8,
        /// The raw elements.
        data: Vec<u8>,
    },
    /// An object of a registered class: name, encoded value.
    Registered(String, Box<Value>),
    /// A pickle.
    Pickle(Vec<u8>),
    /// A value that is stored apart.
    Overflow(Overflow),
}

/// Decides whether a dict is written with a shape.
pub trait ShapeAssigner {
    /// The id of the shape with these names, or None: the dict becomes a keyed map.
    fn assign(&mut self, names: &[&str], is_root: bool) -> Option<u32>;
}

/// Admits shapes at first sight, as envelopes do.
impl ShapeAssigner for Tables {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.admit(names)
    }
}

/// Uses existing shapes and admits none.
impl ShapeAssigner for &Dictionary {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.find(names)
    }
}

/// Writes every dict as a keyed map.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoShapes;

impl ShapeAssigner for NoShapes {
    fn assign(&mut self, _names: &[&str], _is_root: bool) -> Option<u32> {
        None
    }
}

impl Shapes for NoShapes {
    fn shape(&self, _id: u32) -> Option<&Shape> {
        None
    }
}

/// Encodes a value as a record.
///
/// # Errors
/// It is too deep or too large.
pub fn encode_value<A: ShapeAssigner>(value: &Value, shapes: &mut A) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    push_value(value, shapes, &mut encoder)?;
    Ok(encoder.take())
}

/// Pushes a value as the next element, or as the root.
///
/// # Errors
/// It is too deep or too large.
pub fn push_value<A: ShapeAssigner>(
    value: &Value,
    shapes: &mut A,
    encoder: &mut Encoder,
) -> Result<(), EncodeError> {
    match value {
        Value::None => encoder.none(),
        Value::Bool(value) => encoder.bool(*value),
        Value::Int(value) => encoder.int(*value),
        Value::Float(value) => encoder.float(value.0),
        Value::Str(text) => encoder.str(text.as_bytes()),
        Value::Bytes(bytes) => encoder.bytes_value(bytes),
        Value::Date(ordinal) => encoder.date(*ordinal),
        Value::Datetime(micros, fold) => encoder.datetime(payload::datetime_bits(*micros, *fold)),
        Value::List(elements) => return push_elements(Kind::List, elements, shapes, encoder),
        Value::Tuple(elements) => return push_elements(Kind::Tuple, elements, shapes, encoder),
        Value::Set(elements) => return push_elements(Kind::Set, elements, shapes, encoder),
        Value::FrozenSet(elements) => return push_elements(Kind::FrozenSet, elements, shapes, encoder),
        Value::Dict(entries) => return push_dict(entries, shapes, encoder),
        Value::Ndarray { dtype, shape, flags, data } => {
            return push_ndarray((dtype, shape, *flags, data), None, shapes, encoder);
        }
        Value::Registered(name, value) => {
            encoder.begin_payload(tag::REGISTERED);
            encoder.begin(Kind::Tuple, 2, 0)?;
            encoder.str(name.as_bytes());
            push_value(value, shapes, encoder)?;
            encoder.end()?;
            return encoder.end_payload(&[]);
        }
        _ => push_payload(value, encoder),
    }
    Ok(())
}

fn push_ndarray<A: ShapeAssigner>(
    (dtype, shape, flags, data): (&Value, &[i64], u8, &[u8]),
    behind: Option<usize>,
    shapes: &mut A,
    encoder: &mut Encoder,
) -> Result<(), EncodeError> {
    encoder.begin_payload(tag::NDARRAY);
    encoder.begin(Kind::Tuple, 4, 0)?;
    push_value(dtype, shapes, encoder)?;
    encoder.packed_ints(shape)?;
    encoder.end_ndarray(flags, data, behind)
}

/// The payload of an array (dtype, shape, flags, data) that is stored apart, so many bytes after a
/// multiple of 64.
///
/// # Errors
/// It is too deep or too large.
pub fn ndarray_payload(array: (&Value, &[i64], u8, &[u8]), behind: usize) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    push_ndarray(array, Some(behind), &mut NoShapes, &mut encoder)?;
    let mut payload = encoder.take();
    payload.drain(..SCALAR_HEAD_SIZE);
    Ok(payload)
}

fn push_payload(value: &Value, encoder: &mut Encoder) {
    let mut bytes = Vec::new();
    match value {
        Value::BigInt(payload) => encoder.heap(tag::BIGINT, payload),
        Value::Surrogates(payload) => encoder.heap(tag::STR_SURROGATES, payload),
        Value::Bytearray(payload) => encoder.heap(tag::BYTEARRAY, payload),
        Value::Pickle(payload) => encoder.heap(tag::PICKLE, payload),
        Value::Decimal(text) => encoder.heap(tag::DECIMAL, text.as_bytes()),
        Value::Uuid(uuid) => encoder.heap(tag::UUID, uuid),
        Value::Complex(real, imaginary) => {
            encoder.heap(tag::COMPLEX, &payload::complex_bytes(real.0, imaginary.0));
        }
        Value::Timedelta(delta) => encoder.heap(tag::TIMEDELTA, &payload::timedelta_bytes(delta)),
        Value::Overflow(overflow) => encoder.heap(tag::OVERFLOW, &payload::overflow_bytes(overflow)),
        Value::Time(micros, fold, zone) => {
            let zone = zone.as_ref().map(OwnedZone::borrow);
            payload::push_time(&Time { micros: *micros, fold: *fold, zone }, &mut bytes);
            encoder.heap(tag::TIME, &bytes);
        }
        Value::Aware { local, fold, offset, zone } => {
            let aware = Aware { local: *local, fold: *fold, offset: *offset, zone: zone.borrow() };
            payload::push_aware(&aware, &mut bytes);
            encoder.heap(tag::AWARE, &bytes);
        }
        _ => debug_assert!(false, "push_value has pushed all other values"),
    }
}

fn size_of_container(count: usize) -> Result<u32, EncodeError> {
    u32::try_from(count).map_err(|_| EncodeError::TooLarge)
}

fn push_elements<A: ShapeAssigner>(
    kind: Kind,
    elements: &[Value],
    shapes: &mut A,
    encoder: &mut Encoder,
) -> Result<(), EncodeError> {
    encoder.begin(kind, size_of_container(elements.len())?, 0)?;
    for element in elements {
        push_value(element, shapes, encoder)?;
    }
    encoder.end()
}

fn push_dict<A: ShapeAssigner>(
    entries: &[(Value, Value)],
    shapes: &mut A,
    encoder: &mut Encoder,
) -> Result<(), EncodeError> {
    let names: Option<Vec<&str>> = entries
        .iter()
        .map(|(key, _)| match key {
            Value::Str(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let is_root = encoder.depth() == 0;
    if let Some(id) = names.and_then(|names| shapes.assign(&names, is_root)) {
        encoder.begin(Kind::Shaped, size_of_container(entries.len())?, id)?;
        for (_, value) in entries {
            push_value(value, shapes, encoder)?;
        }
    } else {
        encoder.begin(Kind::Keyed, size_of_container(entries.len().saturating_mul(2))?, 0)?;
        for (key, value) in entries {
            push_value(key, shapes, encoder)?;
            push_value(value, shapes, encoder)?;
        }
    }
    encoder.end()
}

/// Decodes a whole record.
///
/// # Errors
/// Any damage that prevents decoding: all but unused bits, the order of sets and the index of keyed
/// maps.
pub fn decode<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S) -> Result<Value> {
    let decoder = Decoder { bytes, shapes };
    match view::root(bytes, shapes)? {
        Root::Container(container) => Ok(decoder.container(container, DEPTH_MAX)?.0),
        Root::Scalar(slot) => decoder.value(slot, DEPTH_MAX, 0),
    }
}

/// Decodes the value of a slot of a record.
///
/// # Errors
/// As `decode`.
pub fn decode_slot<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S, slot: Slot<'_>) -> Result<Value> {
    Decoder { bytes, shapes }.value(slot, DEPTH_MAX, 0)
}

struct Decoder<'a, S: ?Sized> {
    bytes: &'a [u8],
    shapes: &'a S,
}

impl<S: Shapes + ?Sized> Decoder<'_, S> {
    /// A container's value and its end.
    fn container(&self, container: Container, depth: u32) -> Result<(Value, u32)> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Corrupt::new(Damage::Depth, container.start as usize));
        };
        let mut walker = Walker::new(container);
        let mut elements = Vec::with_capacity(container.count as usize);
        while let Some(slot) = walker.next(self.bytes, self.shapes)? {
            let value = match slot {
                Slot::Container(inner) => {
                    let (value, end) = self.container(inner, depth)?;
                    walker.consumed(end)?;
                    Some(value)
                }
                Slot::Absent if container.kind == Kind::Shaped => None,
                slot => Some(self.value(slot, depth, container.start)?),
            };
            elements.push(value);
        }
        let end = walker.end();
        if container.kind == Kind::Shaped {
            let unknown = || Corrupt::new(Damage::UnknownShape, container.start as usize);
            let names = self.shapes.shape(container.shape).ok_or_else(unknown)?.names();
            let fields = names.iter().zip(elements);
            let entries =
                fields.filter_map(|(name, value)| Some((Value::Str(name.to_string()), value?))).collect();
            return Ok((Value::Dict(entries), end));
        }
        let mut elements = elements.into_iter().flatten();
        let value = match container.kind {
            Kind::Keyed => {
                let mut entries = Vec::with_capacity(container.len() as usize);
                while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
                    entries.push((key, value));
                }
                Value::Dict(entries)
            }
            Kind::Tuple => Value::Tuple(elements.collect()),
            Kind::Set => Value::Set(elements.collect()),
            Kind::FrozenSet => Value::FrozenSet(elements.collect()),
            _ => Value::List(elements.collect()),
        };
        Ok((value, end))
    }

    /// The value of a slot that is not a container. `place` is the offset for damage without an
    /// offset of its own.
    fn value(&self, slot: Slot<'_>, depth: u32, place: u32) -> Result<Value> {
        let range = || Corrupt::new(Damage::Range, place as usize);
        Ok(match slot {
            Slot::None => Value::None,
            Slot::Bool(value) => Value::Bool(value),
            Slot::Int(value) => Value::Int(value),
            Slot::Float(value) => Value::Float(Double(value)),
            Slot::Date(ordinal) if payload::is_date(ordinal) => Value::Date(ordinal),
            Slot::Date(_) => return Err(range()),
            Slot::Datetime(value) => {
                let (micros, fold) = payload::datetime(value).ok_or_else(range)?;
                Value::Datetime(micros, fold)
            }
            Slot::Str(text) => Value::Str(self.text(text, place)?),
            Slot::Heap { tag, payload, offset } => self.payload(tag, payload, offset, depth)?,
            Slot::Absent => return Err(Corrupt::new(Damage::Absent, place as usize)),
            Slot::Container(container) => self.container(container, depth)?.0,
        })
    }

    #[expect(clippy::unused_self, reason = "reads as its siblings do")]
    fn text(&self, text: &[u8], place: u32) -> Result<String> {
        match std::str::from_utf8(text) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(Corrupt::new(Damage::Text, place as usize)),
        }
    }

    fn payload(&self, tag: u8, payload: &[u8], offset: u32, depth: u32) -> Result<Value> {
        let simple = match tag {
            tag::STR_SURROGATES => is_surrogate_text(payload).then(|| Value::Surrogates(payload.into())),
            tag::BYTES => Some(Value::Bytes(payload.into())),
            tag::BYTEARRAY => Some(Value::Bytearray(payload.into())),
            tag::BIGINT => payload::is_bigint(payload).then(|| Value::BigInt(payload.into())),
            tag::DECIMAL => payload::decimal(payload).map(|text| Value::Decimal(text.into())),
            tag::COMPLEX => payload::complex(payload).map(|(a, b)| Value::Complex(Double(a), Double(b))),
            tag::UUID => payload::uuid(payload).map(Value::Uuid),
            tag::TIMEDELTA => payload::timedelta(payload).map(Value::Timedelta),
            tag::TIME => payload::time(payload)
                .map(|time| Value::Time(time.micros, time.fold, time.zone.map(OwnedZone::from))),
            tag::AWARE => payload::aware(payload).map(|aware| Value::Aware {
                local: aware.local,
                fold: aware.fold,
                offset: aware.offset,
                zone: aware.zone.into(),
            }),
            tag::PICKLE => Some(Value::Pickle(payload.into())),
            tag::OVERFLOW => return self.overflow(payload, offset, depth),
            tag::NDARRAY => return self.ndarray(payload, offset, depth),
            tag::REGISTERED => return self.registered(payload, offset, depth),
            _ => None,
        };
        simple.ok_or_else(|| Corrupt::new(Damage::Payload, offset as usize))
    }

    fn overflow(&self, payload: &[u8], offset: u32, depth: u32) -> Result<Value> {
        let overflow =
            payload::overflow(payload).ok_or_else(|| Corrupt::new(Damage::Payload, offset as usize))?;
        match self.shapes.overflow(&overflow)? {
            None => Ok(Value::Overflow(overflow)),
            Some(bytes) => {
                Decoder { bytes, ..*self }.value(payload::overflow_slot(&overflow, bytes), depth, offset)
            }
        }
    }

    fn ndarray(&self, payload: &[u8], offset: u32, depth: u32) -> Result<Value> {
        let bad = || Corrupt::new(Damage::Payload, offset as usize);
        let array = payload::ndarray(self.bytes, self.shapes, offset, payload.len() as u32)?;
        let (head, end) = self.container(array.head, depth)?;
        let Value::Tuple(parts) = head else { return Err(bad()) };
        let (Some(dtype), Some(Value::List(dimensions))) = (parts.first(), parts.get(1)) else {
            return Err(bad());
        };
        if end > array.data_offset {
            return Err(bad());
        }
        let shape = dimensions.iter().filter_map(|dimension| match dimension {
            Value::Int(dimension) => Some(*dimension),
            _ => None,
        });
        Ok(Value::Ndarray {
            dtype: Box::new(dtype.clone()),
            shape: shape.collect(),
            flags: u8::from(array.is_fortran) | u8::from(array.is_scalar) << 1,
            data: array.data.into(),
        })
    }

    fn registered(&self, payload: &[u8], offset: u32, depth: u32) -> Result<Value> {
        let object = payload::registered(self.bytes, self.shapes, offset, payload.len() as u32)?;
        let name = self.text(object.name, offset)?;
        let (head, _) = self.container(object.head, depth)?;
        match head {
            Value::Tuple(mut parts) if parts.len() == 2 => {
                Ok(Value::Registered(name, Box::new(parts.pop().unwrap_or(Value::None))))
            }
            _ => Err(Corrupt::new(Damage::Payload, offset as usize)),
        }
    }
}

/// Whether this is the text of a string with at least one lone surrogate; other strings have
/// another tag.
pub(crate) fn is_surrogate_text(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_err() && key::is_text(text)
}
