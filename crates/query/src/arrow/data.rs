//! The buffers that hold a column's values while it is built.
//!
//! Values are stored one after another, in the layout that Arrow uses. `builder.rs` decides how
//! each value is added.

use arrow_buffer::BooleanBufferBuilder;
use pellucid_record::layout::tag;
use pellucid_record::view::Slot;

use super::builder::Builder;
use super::decimal::Unscaled;
use super::fields::Fields;
use super::kind::Type;

/// Strings or bytes, one after another.
pub(super) struct Bytes {
    /// The end offset of each value, after a leading 0.
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

/// The values so far. There may be fewer than rows.
pub(super) enum Data {
    /// No value so far, so no type yet.
    Nulls,
    /// The values have no common type. Nothing is kept.
    Lost,
    Bool(BooleanBufferBuilder),
    Int(Vec<i64>),
    Single(Vec<f32>),
    Float(Vec<f64>),
    Decimal(Vec<Unscaled>),
    Str(Bytes),
    Bytes(Bytes),
    Text(Bytes),
    Date(Vec<i32>),
    Datetime(Vec<i64>),
    Aware(Vec<i64>),
    Time(Vec<i64>),
    Duration(Vec<i64>),
    Uuid(Vec<[u8; 16]>),
    List(Vec<i32>, Box<Builder>),
    /// The number of dicts, and their fields.
    Struct(usize, Box<Fields>),
}

impl Bytes {
    /// An empty buffer.
    pub fn new() -> Self {
        Self { ends: vec![0], bytes: Vec::new() }
    }

    /// Appends a value. Returns false if the total would exceed the 2 GiB that `i32` offsets allow.
    #[inline]
    pub fn push(&mut self, value: &[u8]) -> bool {
        let end = self.bytes.len() + value.len();
        let Ok(end) = i32::try_from(end) else { return false };
        self.bytes.extend_from_slice(value);
        self.ends.push(end);
        true
    }

    /// Appends a value of up to 8 bytes. It always writes 8 bytes and then truncates the rest,
    /// because a copy of variable size is a function call.
    #[inline]
    pub fn push_inline(&mut self, bits: u64, size: usize) -> bool {
        let size = self.bytes.len() + size.min(8);
        let Ok(end) = i32::try_from(size) else { return false };
        self.bytes.extend_from_slice(&bits.to_le_bytes());
        self.bytes.truncate(size);
        self.ends.push(end);
        true
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// Appends `count` nulls.
    pub fn pad(&mut self, count: usize) {
        let end = self.ends.last().copied().unwrap_or(0);
        self.ends.resize(self.ends.len() + count, end);
    }
}

impl Data {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Data::Nulls | Data::Lost => 0,
            Data::Bool(values) => values.len(),
            Data::Int(values)
            | Data::Datetime(values)
            | Data::Aware(values)
            | Data::Time(values)
            | Data::Duration(values) => values.len(),
            Data::Single(values) => values.len(),
            Data::Float(values) => values.len(),
            Data::Decimal(values) => values.len(),
            Data::Str(values) | Data::Bytes(values) | Data::Text(values) => values.len(),
            Data::Date(values) => values.len(),
            Data::Uuid(values) => values.len(),
            Data::List(ends, _) => ends.len() - 1,
            Data::Struct(count, _) => *count,
        }
    }

    /// Appends `count` nulls.
    pub fn pad(&mut self, count: usize) {
        match self {
            Data::Nulls | Data::Lost => {}
            Data::Bool(values) => values.append_n(count, false),
            Data::Int(values)
            | Data::Datetime(values)
            | Data::Aware(values)
            | Data::Time(values)
            | Data::Duration(values) => values.resize(values.len() + count, 0),
            Data::Single(values) => values.resize(values.len() + count, 0.0),
            Data::Float(values) => values.resize(values.len() + count, 0.0),
            Data::Decimal(values) => values.resize(values.len() + count, Unscaled::default()),
            Data::Str(values) | Data::Bytes(values) | Data::Text(values) => values.pad(count),
            Data::Date(values) => values.resize(values.len() + count, 0),
            Data::Uuid(values) => values.resize(values.len() + count, [0; 16]),
            Data::List(ends, _) => {
                let end = ends.last().copied().unwrap_or(0);
                ends.resize(ends.len() + count, end);
            }
            Data::Struct(own, _) => *own += count,
        }
    }

    /// An empty buffer for values of this type.
    pub fn of(kind: &Type) -> Self {
        match kind {
            Type::Null => Data::Nulls,
            Type::Bool => Data::Bool(BooleanBufferBuilder::new(0)),
            Type::Int { .. } => Data::Int(Vec::new()),
            Type::Single => Data::Single(Vec::new()),
            Type::Float => Data::Float(Vec::new()),
            Type::Decimal { .. } => Data::Decimal(Vec::new()),
            Type::Str => Data::Str(Bytes::new()),
            Type::Bytes => Data::Bytes(Bytes::new()),
            Type::Text => Data::Text(Bytes::new()),
            Type::Date => Data::Date(Vec::new()),
            Type::Datetime => Data::Datetime(Vec::new()),
            Type::Aware => Data::Aware(Vec::new()),
            Type::Time => Data::Time(Vec::new()),
            Type::Duration => Data::Duration(Vec::new()),
            Type::Uuid => Data::Uuid(Vec::new()),
            Type::List(inner) => Data::List(vec![0], Box::new(Builder::of(inner))),
            Type::Struct(fields) => {
                let mut columns = Fields::default();
                for (name, kind) in fields {
                    columns.add(name, Builder::of(kind));
                }
                Data::Struct(0, Box::new(columns))
            }
        }
    }

    /// Reserves as much room for numbers and text as `other` uses.
    pub fn reserve_as(&mut self, other: &Data) {
        match (self, other) {
            (Data::Int(values), Data::Int(others)) | (Data::Datetime(values), Data::Datetime(others)) => {
                values.reserve_exact(others.len());
            }
            (Data::Float(values), Data::Float(others)) => values.reserve_exact(others.len()),
            (Data::Str(values), Data::Str(others)) => {
                values.ends.reserve_exact(others.len());
                values.bytes.reserve(others.bytes.len());
            }
            _ => {}
        }
    }

    /// An empty buffer for the type of this value. If no column type fits the value, the buffer is
    /// `Lost` at once.
    pub fn for_slot(slot: &Slot<'_>) -> Self {
        let kind = match slot {
            Slot::None | Slot::Absent => Type::Null,
            Slot::Bool(_) => Type::Bool,
            Slot::Int(_) => Type::Int { is_exact: true },
            Slot::Float(_) => Type::Float,
            Slot::Date(_) => Type::Date,
            Slot::Datetime(_) => Type::Datetime,
            Slot::Str(_) => Type::Str,
            Slot::Container(container) if container.kind.is_dict() => Type::Struct(Vec::new()),
            Slot::Container(_) => Type::List(Box::new(Type::Null)),
            Slot::Heap { tag, .. } => match *tag {
                tag::STR_SURROGATES => Type::Str,
                tag::BYTES | tag::BYTEARRAY => Type::Bytes,
                tag::BIGINT | tag::DECIMAL => Type::Decimal { whole: 0, scale: 0 },
                tag::UUID => Type::Uuid,
                tag::TIMEDELTA => Type::Duration,
                tag::TIME => Type::Time,
                tag::AWARE => Type::Aware,
                _ => return Data::Lost,
            },
        };
        Self::of(&kind)
    }
}
