//! Collects the values of one column.
//!
//! A [`Builder`] starts with the type of its first value, or with the type that the previous walk
//! found. When a value does not fit beside those before it, the builder becomes lost: it accepts
//! every later value and keeps none, and the rows are walked once more with the types that were
//! learned ([`Type`]). The builder is not called for rows without a value. They become nulls when a
//! later row has a value, or when the batch ends.

use arrow_buffer::BooleanBufferBuilder;
use pellucid_record::layout::{DEPTH_MAX, MICROS_PER_DAY, tag};
use pellucid_record::payload;
use pellucid_record::place::Place;
use pellucid_record::value::{NoShapes, decode_slot, encode_value};
use pellucid_record::view::{Container, Root, Slot, Walker, root};
use pellucid_record::{Corrupt, Damage, Shapes, Value};
use pellucid_store::{Large, StoreError};

use super::data::Data;
use super::decimal::{Unscaled, unscaled};
use super::kind::{Type, double, is_exact};
use super::{ndarray, text};

/// The ordinal of 1970-01-01.
const EPOCH_ORDINAL: u32 = 719_163;
/// Microseconds from 0001-01-01 to 1970-01-01.
pub(super) const EPOCH_MICROS: i64 = (EPOCH_ORDINAL as i64 - 1) * MICROS_PER_DAY;

/// The reason why a value cannot be added.
#[derive(Debug)]
pub enum Stop {
    /// The record is damaged.
    Corrupt(Corrupt),
    /// A large value, stored outside its record, could not be read.
    Store(StoreError),
    /// No column can hold the value.
    Refused {
        /// The column's name, or a path if the column is inside another one.
        column: String,
        /// What is wrong with its value.
        why: String,
    },
}

impl Stop {
    /// A refusal whose column is not known yet: `of_field` adds it.
    pub fn refused(why: impl Into<String>) -> Self {
        Stop::Refused { column: String::new(), why: why.into() }
    }

    /// Adds to a refusal the name of the field that holds the value.
    pub fn of_field(self, name: &str) -> Self {
        match self {
            Stop::Refused { column, why } if column.is_empty() => {
                Stop::Refused { column: name.to_owned(), why }
            }
            Stop::Refused { column, why } => Stop::Refused { column: format!("{name}.{column}"), why },
            other => other,
        }
    }
}

impl From<Corrupt> for Stop {
    fn from(error: Corrupt) -> Self {
        Stop::Corrupt(error)
    }
}

/// For rows read from a covering index, which have no large values.
pub struct NothingLarge;

impl Large for NothingLarge {
    fn large(&self, id: u64) -> Result<&[u8], StoreError> {
        Err(StoreError::NoSuchBlob { id })
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| StoreError::NoMemory { what: "a large value" })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// What reading a record needs.
pub struct Ground<'a, S: ?Sized> {
    /// The shapes that the record refers to.
    pub shapes: &'a S,
    /// The large values stored outside the record.
    pub large: &'a dyn Large,
}

/// The values of one column in one batch.
pub(super) struct Builder {
    pub data: Data,
    /// Which values are not null; None if no value is null.
    pub valid: Option<BooleanBufferBuilder>,
}

impl Builder {
    /// An empty builder for a type.
    pub fn of(kind: &Type) -> Self {
        Self { data: Data::of(kind), valid: None }
    }

    /// An empty builder for a type, with room for as many values as `other` has.
    pub fn like(kind: &Type, other: &Builder) -> Self {
        let mut fresh = Self::of(kind);
        fresh.data.reserve_as(&other.data);
        fresh
    }

    /// The type of the values so far.
    pub fn kind(&self) -> Type {
        match &self.data {
            Data::Nulls => Type::Null,
            Data::Lost | Data::Text(_) => Type::Text,
            Data::Bool(_) => Type::Bool,
            Data::Int(values) => Type::Int { is_exact: values.iter().all(|value| is_exact(*value)) },
            Data::Single(_) => Type::Single,
            Data::Float(_) => Type::Float,
            Data::Decimal(values) => values
                .iter()
                .fold(Type::Decimal { whole: 0, scale: 0 }, |kind, value| kind.join(value.kind())),
            Data::Str(_) => Type::Str,
            Data::Bytes(_) => Type::Bytes,
            Data::Date(_) => Type::Date,
            Data::Datetime(_) => Type::Datetime,
            Data::Aware(_) => Type::Aware,
            Data::Time(_) => Type::Time,
            Data::Duration(_) => Type::Duration,
            Data::Uuid(_) => Type::Uuid,
            Data::List(_, elements) => Type::List(Box::new(elements.kind())),
            Data::Struct(_, fields) => Type::Struct(fields.kinds()),
        }
    }

    /// Whether this column, or one inside it, has to be collected once more.
    pub fn is_lost(&self) -> bool {
        match &self.data {
            Data::Lost => true,
            Data::List(_, elements) => elements.is_lost(),
            Data::Struct(_, fields) => fields.builders.iter().any(Builder::is_lost),
            Data::Decimal(_) => self.kind() == Type::Text,
            _ => false,
        }
    }

    /// Appends nulls up to this row.
    #[inline]
    pub fn pad_to(&mut self, row: usize) {
        let have = self.data.len();
        if have < row {
            self.pad_slowly(have, row - have);
        }
    }

    #[cold]
    fn pad_slowly(&mut self, have: usize, count: usize) {
        if matches!(self.data, Data::Nulls | Data::Lost) {
            return;
        }
        self.data.pad(count);
        let valid = self.valid.get_or_insert_with(|| {
            let mut valid = BooleanBufferBuilder::new(have + count);
            valid.append_n(have, true);
            valid
        });
        valid.append_n(count, false);
    }

    #[inline]
    fn is_there(&mut self) {
        if let Some(valid) = &mut self.valid {
            valid.append(true);
        }
    }

    /// Fast path: appends an int. Returns false if `push` has to do it.
    #[inline]
    pub fn push_int(&mut self, row: usize, value: i64) -> bool {
        match &mut self.data {
            Data::Int(values) if values.len() == row => {
                values.push(value);
                self.is_there();
                true
            }
            _ => false,
        }
    }

    /// Fast path: appends a float. Returns false if `push` has to do it.
    #[inline]
    pub fn push_float(&mut self, row: usize, value: f64) -> bool {
        match &mut self.data {
            Data::Float(values) if values.len() == row => {
                values.push(value);
                self.is_there();
                true
            }
            _ => false,
        }
    }

    /// Fast path: appends a string. Returns false if `push` has to do it.
    #[inline]
    pub fn push_str(&mut self, row: usize, value: &[u8]) -> bool {
        match &mut self.data {
            Data::Str(values) if values.len() == row => {
                let is_taken = values.push(value);
                if is_taken {
                    self.is_there();
                }
                is_taken
            }
            _ => false,
        }
    }

    /// Fast path: appends a string that is stored inside its slot. Returns false if `push` has to
    /// do it.
    #[inline]
    fn push_inline(&mut self, row: usize, bits: u64, size: usize) -> bool {
        match &mut self.data {
            Data::Str(values) if values.len() == row => {
                let is_taken = values.push_inline(bits, size);
                if is_taken {
                    self.is_there();
                }
                is_taken
            }
            _ => false,
        }
    }

    /// Fast path: appends a bool. Returns false if `push` has to do it.
    #[inline]
    pub fn push_bool(&mut self, row: usize, value: bool) -> bool {
        match &mut self.data {
            Data::Bool(values) if values.len() == row => {
                values.append(value);
                self.is_there();
                true
            }
            _ => false,
        }
    }

    /// Fast path: appends the value in a place. Returns false if `push` has to do it.
    #[inline]
    pub fn push_place(&mut self, row: usize, place: &Place, record: &[u8]) -> bool {
        let tag = place.tag();
        if tag == tag::STR {
            return place.text(record).is_some_and(|text| self.push_str(row, text));
        }
        let Some(bits) = place.inline_bits() else { return false };
        match tag {
            tag::INT => self.push_int(row, bits.cast_signed()),
            tag::FLOAT => self.push_float(row, f64::from_bits(bits)),
            tag::STR_INLINE..=tag::STR_INLINE_LAST => {
                self.push_inline(row, bits, usize::from(tag - tag::STR_INLINE))
            }
            tag::TRUE | tag::FALSE => self.push_bool(row, tag == tag::TRUE),
            tag::NONE | tag::ABSENT => true,
            tag::DATETIME => match (&mut self.data, payload::datetime(bits.cast_signed())) {
                (Data::Datetime(values), Some((micros, _))) if values.len() == row => {
                    values.push(micros - EPOCH_MICROS);
                    self.is_there();
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Appends the value of a row. Returns the offset where it ends if it is a container.
    pub fn push<S: Shapes + ?Sized>(
        &mut self,
        row: usize,
        slot: &Slot<'_>,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<u32, Stop> {
        let done = match *slot {
            Slot::None | Slot::Absent => true,
            Slot::Int(value) => self.push_int(row, value),
            Slot::Float(value) => self.push_float(row, value),
            Slot::Bool(value) => self.push_bool(row, value),
            Slot::Str(value) => self.push_str(row, value),
            _ => false,
        };
        if done { Ok(0) } else { self.push_any(row, slot, record, depth, ground) }
    }

    fn push_any<S: Shapes + ?Sized>(
        &mut self,
        row: usize,
        slot: &Slot<'_>,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<u32, Stop> {
        if let Slot::Heap { tag, payload, offset } = *slot
            && matches!(tag, tag::OVERFLOW | tag::REGISTERED | tag::NDARRAY | tag::PICKLE)
        {
            return self.push_other(row, slot, (tag, payload, offset), record, depth, ground).map(|()| 0);
        }
        if matches!(self.data, Data::Nulls) {
            self.data = Data::for_slot(slot);
        }
        self.pad_to(row);
        match (&mut self.data, slot) {
            (Data::Text(_), _) => {
                let value = decode_slot(record, ground.shapes, *slot)?;
                self.push_text(&resolved(value, ground)?)?;
                return if let Slot::Container(container) = slot {
                    end_of(container, record, ground.shapes, depth)
                } else {
                    Ok(0)
                };
            }
            (Data::List(..) | Data::Struct(..), Slot::Container(container)) => {
                return self.push_container(container, record, depth, ground);
            }
            (_, Slot::Container(container)) => {
                self.data = Data::Lost;
                return end_of(container, record, ground.shapes, depth);
            }
            _ => {}
        }
        if self.push_scalar(slot)? {
            self.is_there();
        } else {
            self.data = Data::Lost;
        }
        Ok(0)
    }

    /// Appends a value that is not a container. Returns false if it does not fit the column's type.
    fn push_scalar(&mut self, slot: &Slot<'_>) -> Result<bool, Stop> {
        match (&mut self.data, *slot) {
            (Data::Int(_) | Data::Single(_) | Data::Float(_) | Data::Decimal(_), _) => {
                return self.push_number(slot);
            }
            (Data::Bool(values), Slot::Bool(value)) => values.append(value),
            (Data::Str(values), Slot::Str(value)) => return taken(values.push(value)),
            (Data::Str(values), Slot::Heap { tag: tag::STR_SURROGATES, payload, .. }) => {
                return taken(values.push(text::lossy(payload).as_bytes()));
            }
            (Data::Bytes(values), Slot::Heap { tag: tag::BYTES | tag::BYTEARRAY, payload, .. }) => {
                return taken(values.push(payload));
            }
            (Data::Date(values), Slot::Date(ordinal)) => {
                if !payload::is_date(ordinal) {
                    return bad(0);
                }
                values.push(ordinal.cast_signed() - EPOCH_ORDINAL.cast_signed());
            }
            (Data::Datetime(values), Slot::Datetime(bits)) => match payload::datetime(bits) {
                Some((micros, _)) => values.push(micros - EPOCH_MICROS),
                None => return bad(0),
            },
            (_, Slot::Heap { tag, payload, offset }) => return self.push_heap(tag, payload, offset),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Appends to a column of numbers. Returns false if the value does not fit or is not a number.
    fn push_number(&mut self, slot: &Slot<'_>) -> Result<bool, Stop> {
        match (&mut self.data, *slot) {
            (Data::Int(values), Slot::Int(value)) => values.push(value),
            (Data::Float(values), Slot::Float(value)) => values.push(value),
            (Data::Single(values), Slot::Float(value)) if is_single(value) => values.push(value as f32),
            (Data::Single(values), Slot::Float(_) | Slot::Int(_)) => {
                self.data = Data::Float(values.iter().map(|value| f64::from(*value)).collect());
                return self.push_number(slot);
            }
            (Data::Float(values), Slot::Int(value)) if is_exact(value) => values.push(double(value)),
            (Data::Int(values), Slot::Float(value)) => {
                if !values.iter().all(|value| is_exact(*value)) {
                    return Ok(false);
                }
                let mut floats: Vec<f64> = values.iter().map(|value| double(*value)).collect();
                floats.push(value);
                self.data = Data::Float(floats);
            }
            (Data::Int(values), Slot::Heap { tag: tag::BIGINT | tag::DECIMAL, .. }) => {
                let decimal = |value: &i64| Unscaled { digits: i128::from(*value), scale: 0 };
                self.data = Data::Decimal(values.iter().map(decimal).collect());
                return self.push_number(slot);
            }
            (Data::Decimal(values), Slot::Int(value)) => {
                values.push(Unscaled { digits: i128::from(value), scale: 0 });
            }
            (Data::Decimal(values), Slot::Heap { tag, payload, offset }) => match unscaled(tag, payload) {
                Some(Some(value)) => values.push(value),
                Some(None) => return Ok(false),
                None => return bad(offset),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn push_heap(&mut self, tag: u8, bytes: &[u8], offset: u32) -> Result<bool, Stop> {
        match (&mut self.data, tag) {
            (Data::Aware(values), tag::AWARE) => match payload::aware(bytes) {
                Some(aware) => values.push(aware.local - aware.offset - EPOCH_MICROS),
                None => return bad(offset),
            },
            (Data::Time(values), tag::TIME) => match payload::time(bytes) {
                Some(time) if time.zone.is_none() => values.push(time.micros),
                Some(_) => return Ok(false),
                None => return bad(offset),
            },
            (Data::Duration(values), tag::TIMEDELTA) => match payload::timedelta(bytes) {
                Some(delta) => {
                    let seconds = i128::from(delta.days) * 86_400 + i128::from(delta.seconds);
                    match i64::try_from(seconds * 1_000_000 + i128::from(delta.micros)) {
                        Ok(micros) => values.push(micros),
                        Err(_) => return Ok(false),
                    }
                }
                None => return bad(offset),
            },
            (Data::Uuid(values), tag::UUID) => match payload::uuid(bytes) {
                Some(uuid) => values.push(uuid),
                None => return bad(offset),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Appends a value that wraps another one: a reference to a large value, an object of a
    /// registered class, or an array.
    fn push_other<S: Shapes + ?Sized>(
        &mut self,
        row: usize,
        slot: &Slot<'_>,
        (tag, payload, offset): (u8, &[u8], u32),
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<(), Stop> {
        match tag {
            tag::OVERFLOW => {
                let Some(overflow) = payload::overflow(payload) else { return bad(offset) };
                let bytes = ground.large.large(overflow.blob).map_err(Stop::Store)?;
                self.push(row, &payload::overflow_slot(&overflow, bytes), bytes, depth + 1, ground)
                    .map(|_| ())
            }
            tag::REGISTERED => {
                let object = payload::registered(record, ground.shapes, offset, payload.len() as u32)?;
                self.push(row, &object.value, record, depth + 1, ground).map(|_| ())
            }
            tag::NDARRAY => {
                let array = decode_slot(record, ground.shapes, *slot)?;
                let list = ndarray::list_of(&array);
                let list = list.ok_or_else(|| Stop::refused("an array of a kind that no column has"))?;
                if let Value::Ndarray { shape, .. } = &array
                    && depth as usize + shape.len() >= DEPTH_MAX as usize
                {
                    let why =
                        format!("an array of {} dimensions: lists of a column nest less deep", shape.len());
                    return Err(Stop::refused(why));
                }
                if let (Data::Nulls, Value::Ndarray { dtype, shape, .. }) = (&self.data, &array)
                    && matches!(&**dtype, Value::Str(dtype) if matches!(dtype.get(1..), Some("f2" | "f4")))
                {
                    let kind = shape.iter().fold(Type::Single, |inner, _| Type::List(Box::new(inner)));
                    self.data = Data::of(&kind);
                }
                self.push_value(row, &list, depth, ground.large)
            }
            _ => Err(Stop::refused("a pickle, which Python alone can read")),
        }
    }

    /// Appends a value that is not part of a record.
    fn push_value(&mut self, row: usize, value: &Value, depth: u32, large: &dyn Large) -> Result<(), Stop> {
        let record = encode_value(value, &mut NoShapes).map_err(|_| Corrupt::new(Damage::Range, 0))?;
        let slot = match root(&record, &NoShapes)? {
            Root::Container(container) => Slot::Container(container),
            Root::Scalar(slot) => slot,
        };
        let ground = Ground { shapes: &NoShapes, large };
        self.push(row, &slot, &record, depth + 1, &ground).map(|_| ())
    }

    fn push_text(&mut self, value: &Value) -> Result<(), Stop> {
        let Data::Text(values) = &mut self.data else { return Ok(()) };
        let mut written = String::new();
        text::push(value, &mut written);
        taken(values.push(written.as_bytes()))?;
        self.is_there();
        Ok(())
    }

    fn push_container<S: Shapes + ?Sized>(
        &mut self,
        container: &Container,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<u32, Stop> {
        if depth >= DEPTH_MAX {
            return Err(Corrupt::new(Damage::Depth, container.start as usize).into());
        }
        let end = match &mut self.data {
            Data::List(ends, elements) if !container.kind.is_dict() => {
                let first = ends.last().copied().unwrap_or(0);
                let Some(last) =
                    i32::try_from(container.len()).ok().and_then(|count| first.checked_add(count))
                else {
                    return Err(too_long());
                };
                ends.push(last);
                elements.push_elements(first.unsigned_abs() as usize, container, record, depth, ground)?
            }
            Data::Struct(count, fields) if container.kind.is_dict() => {
                *count += 1;
                let Some(end) = fields.push(*count - 1, container, record, depth, ground)? else {
                    self.data = Data::Lost;
                    return end_of(container, record, ground.shapes, depth);
                };
                end
            }
            _ => {
                self.data = Data::Lost;
                return end_of(container, record, ground.shapes, depth);
            }
        };
        self.is_there();
        Ok(end)
    }

    /// Appends the elements of a list, from index `first` on.
    fn push_elements<S: Shapes + ?Sized>(
        &mut self,
        first: usize,
        container: &Container,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<u32, Stop> {
        let mut walker = Walker::new(*container);
        let mut row = first;
        while let Some(slot) = walker.next(record, ground.shapes)? {
            let end = self.push(row, &slot, record, depth + 1, ground)?;
            if matches!(slot, Slot::Container(_)) {
                walker.consumed(end)?;
            }
            row += 1;
        }
        Ok(walker.end())
    }
}

/// Whether a float is exactly representable in 32 bits.
fn is_single(value: f64) -> bool {
    value.is_nan() || f64::from(value as f32).to_bits() == value.to_bits()
}

fn too_long() -> Stop {
    Stop::refused("more than 2 GiB in one batch of rows")
}

fn taken(fits: bool) -> Result<bool, Stop> {
    if fits { Ok(true) } else { Err(too_long()) }
}

fn bad<T>(offset: u32) -> Result<T, Stop> {
    Err(Corrupt::new(Damage::Payload, offset as usize).into())
}

/// The offset where a container ends, found without appending its values.
fn end_of<S: Shapes + ?Sized>(
    container: &Container,
    record: &[u8],
    shapes: &S,
    depth: u32,
) -> Result<u32, Stop> {
    if depth >= DEPTH_MAX {
        return Err(Corrupt::new(Damage::Depth, container.start as usize).into());
    }
    let mut walker = Walker::new(*container);
    while let Some(slot) = walker.next(record, shapes)? {
        if let Slot::Container(inner) = slot {
            let end = end_of(&inner, record, shapes, depth + 1)?;
            walker.consumed(end)?;
        }
    }
    Ok(walker.end())
}

/// The value with large values read in, and with registered objects and arrays replaced by their
/// contents.
fn resolved<S: ?Sized>(value: Value, ground: &Ground<'_, S>) -> Result<Value, Stop> {
    let all = |values: Vec<Value>| -> Result<Vec<Value>, Stop> {
        values.into_iter().map(|value| resolved(value, ground)).collect()
    };
    Ok(match value {
        Value::Overflow(overflow) => {
            let bytes =
                copied(ground.large.large(overflow.blob).map_err(Stop::Store)?).map_err(Stop::Store)?;
            match overflow.tag {
                tag::STR => Value::Str(String::from_utf8_lossy(&bytes).into_owned()),
                tag::STR_SURROGATES => Value::Surrogates(bytes),
                tag::BYTES | tag::BYTEARRAY => Value::Bytes(bytes),
                _ => Value::Overflow(overflow),
            }
        }
        Value::Registered(_, value) => resolved(*value, ground)?,
        Value::Ndarray { .. } => ndarray::list_of(&value).unwrap_or(value),
        Value::List(values) | Value::Tuple(values) | Value::Set(values) | Value::FrozenSet(values) => {
            Value::List(all(values)?)
        }
        Value::Dict(entries) => {
            let entry = |(key, value)| Ok((key, resolved(value, ground)?));
            Value::Dict(entries.into_iter().map(entry).collect::<Result<_, Stop>>()?)
        }
        value => value,
    })
}
