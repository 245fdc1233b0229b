//! Writes Arrow columns as records.
//!
//! A [`Writer`] holds a batch of columns in a form that rows are easily written from. `cells.rs`
//! has already checked every value, so writing fails only at the size and depth limits of a record.
//! The caller decides which dicts get shapes.

use std::ops::Range;

use arrow_array::Array;
use arrow_schema::Field;
use num_bigint::BigInt;
use pellucid_record::EncodeError;
use pellucid_record::encode::Encoder;
use pellucid_record::layout::{Kind, RECORD_SIZE_MAX, tag};
use pellucid_record::payload::{self, Overflow, Timedelta};

use super::cells::{Blobs, Cells, Column};
pub use super::cells::{Unfit, Zones};

/// `write` returns once the records have reached this size, so that the caller can take them.
const RECORDS_SIZE_MAX: usize = 16 << 20;

/// The smallest size of a container inside a record: its head and its slot.
const CONTAINER_SIZE_MIN: u64 = 3;
/// Number of list elements written between two calls of `goes_on`; these take a few milliseconds.
const STEP_COUNT: u32 = 1 << 18;

/// A batch of rows that are ready to be written.
pub struct Writer {
    root: Column,
    row_count: usize,
    /// The minimum size of each row, if its lists share elements.
    sizes: Option<Sizes>,
}

/// The reason why rows were not written.
#[derive(Debug)]
pub enum Unwritten {
    /// A record is too large, or nests too deep.
    Encode(EncodeError),
    /// The caller stopped the writing.
    Stopped,
}

impl From<EncodeError> for Unwritten {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// Encoded records, one after another.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    large: Vec<(usize, Vec<u8>)>,
}

/// Collects large values, which are stored outside their record.
struct Beside<'a> {
    size_min: usize,
    record: usize,
    large: &'a mut Vec<(usize, Vec<u8>)>,
}

/// Counts the list elements written, and asks the caller from time to time whether to go on.
struct Steps<'a> {
    count: u32,
    goes_on: &'a mut dyn FnMut() -> bool,
}

impl Steps<'_> {
    #[inline]
    fn step(&mut self) -> Result<(), Unwritten> {
        self.count += 1;
        if self.count < STEP_COUNT {
            return Ok(());
        }
        self.count = 0;
        if (self.goes_on)() { Ok(()) } else { Err(Unwritten::Stopped) }
    }
}

/// The minimum size of each of a column's values in a record.
enum Sizes {
    Same(u64),
    Each(Vec<u64>),
}

impl Sizes {
    fn of(&self, row: usize) -> u64 {
        match self {
            Self::Same(size) => *size,
            Self::Each(sizes) => at(sizes, row),
        }
    }

    /// The minimum sizes of lists with these elements, capped just above the maximum size of a
    /// record.
    fn of_lists(&self, ranges: &[Range<usize>]) -> Self {
        const CAP: u64 = RECORD_SIZE_MAX as u64 + 1;
        let sum = |range: &Range<usize>| range.len() as u64;
        let sums: Vec<u64> = match self {
            Self::Same(size) => ranges.iter().map(|range| sum(range).saturating_mul(*size)).collect(),
            Self::Each(sizes) => {
                let ends = std::iter::once(0).chain(sizes.iter().scan(0, |end: &mut u64, size| {
                    *end = end.saturating_add(*size);
                    Some(*end)
                }));
                let ends: Vec<u64> = ends.collect();
                ranges
                    .iter()
                    .map(|range| at(&ends, range.end).saturating_sub(at(&ends, range.start)))
                    .collect()
            }
        };
        Self::Each(sums.into_iter().map(|sum| sum.saturating_add(CONTAINER_SIZE_MIN).min(CAP)).collect())
    }
}

impl Records {
    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.large.clear();
    }

    /// Each record with its large values, in the order in which the record refers to them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[(usize, Vec<u8>)])> {
        let mut large = self.large.as_slice();
        let mut start = 0;
        self.ends.iter().enumerate().map(move |(index, end)| {
            let record = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            let own = large.partition_point(|(record, _)| *record <= index);
            let (own, rest) = large.split_at_checked(own).unwrap_or((large, &[]));
            large = rest;
            (record, own)
        })
    }
}

impl Writer {
    /// Reads an array. The rows of a struct array become dicts, those of other arrays plain values.
    ///
    /// # Errors
    /// A type or value that a record cannot hold or that Python does not have.
    pub fn new(array: &dyn Array, zones: &mut dyn Zones) -> Result<Self, Unfit> {
        let field = Field::new("", array.data_type().clone(), true);
        let root = Column::of(&field, array, zones)?;
        let sizes = root.has_shared_elements().then(|| root.sizes());
        Ok(Self { root, row_count: array.len(), sizes })
    }

    /// The number of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Asks `assign` for the shape of dicts with these field names. Where it returns None, dicts
    /// are written with their keys. Its second argument says whether the dicts are whole records.
    ///
    /// # Errors
    /// What `assign` returns.
    pub fn give_shapes<E>(
        &mut self,
        assign: &mut impl FnMut(&[&str], bool) -> Result<Option<u32>, E>,
    ) -> Result<(), E> {
        self.root.give_shapes(assign, true)
    }

    /// Writes the first of `rows`, and more until the records reach `RECORDS_SIZE_MAX`. Returns the
    /// number of rows written. The limit is needed because rows may share data, for example through
    /// a dictionary array, so records can be larger than the batch. Strings and bytes of
    /// `large_size_min` or more are stored outside their record. Long rows call `goes_on` from time
    /// to time.
    ///
    /// # Errors
    /// A record is too large or nests too deep, or `goes_on` said no.
    pub fn write(
        &self,
        rows: Range<usize>,
        encoder: &mut Encoder,
        records: &mut Records,
        large_size_min: usize,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, Unwritten> {
        let (mut count, mut large_size) = (0, 0);
        let mut steps = Steps { count: 0, goes_on };
        for row in rows {
            // Lists that share elements may be larger than the batch. Their size is checked before
            // they are written.
            if self.sizes.as_ref().is_some_and(|sizes| sizes.of(row) > RECORD_SIZE_MAX as u64) {
                return Err(EncodeError::TooLarge.into());
            }
            let large_count = records.large.len();
            let beside = &mut Beside {
                size_min: large_size_min,
                record: records.ends.len(),
                large: &mut records.large,
            };
            encoder.clear();
            self.root.write(row, encoder, beside, &mut steps)?;
            records.bytes.extend_from_slice(encoder.bytes());
            records.ends.push(records.bytes.len());
            count += 1;
            let large = records.large.get(large_count..).unwrap_or_default();
            large_size += large.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            if records.bytes.len() + large_size >= RECORDS_SIZE_MAX {
                break;
            }
        }
        Ok(count)
    }
}

impl Column {
    fn give_shapes<E>(
        &mut self,
        assign: &mut impl FnMut(&[&str], bool) -> Result<Option<u32>, E>,
        is_root: bool,
    ) -> Result<(), E> {
        match &mut self.cells {
            Cells::Dictionary(_, values) => values.give_shapes(assign, is_root),
            Cells::List(_, elements) => elements.give_shapes(assign, false),
            Cells::Map(_, _, values) => values.give_shapes(assign, false),
            Cells::Struct { names, shape, columns } => {
                let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
                *shape = assign(&names, is_root)?;
                columns.iter_mut().try_for_each(|column| column.give_shapes(assign, false))
            }
            _ => Ok(()),
        }
    }

    /// Whether lists in this column, at any depth, share elements, as list views may. Then a row
    /// may be larger than the batch.
    fn has_shared_elements(&self) -> bool {
        match &self.cells {
            Cells::List(ranges, elements) => {
                let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
                let count = ranges.iter().fold(0usize, |count, range| count.saturating_add(range.len()));
                count > end || elements.has_shared_elements()
            }
            Cells::Dictionary(_, values) | Cells::Map(_, _, values) => values.has_shared_elements(),
            Cells::Struct { columns, .. } => columns.iter().any(Self::has_shared_elements),
            _ => false,
        }
    }

    fn sizes(&self) -> Sizes {
        let mut sizes = match &self.cells {
            Cells::Dictionary(keys, values) => match values.sizes() {
                Sizes::Same(size) => Sizes::Same(size),
                Sizes::Each(sizes) => Sizes::Each(keys.iter().map(|key| at(&sizes, *key)).collect()),
            },
            Cells::List(ranges, elements) => elements.sizes().of_lists(ranges),
            Cells::Map(ranges, _, values) => values.sizes().of_lists(ranges),
            Cells::Struct { columns, .. } => {
                let parts: Vec<Sizes> = columns.iter().map(Self::sizes).collect();
                let row_count =
                    parts.iter().map(|part| if let Sizes::Each(sizes) = part { sizes.len() } else { 0 });
                let of_row =
                    |row| parts.iter().fold(CONTAINER_SIZE_MIN, |sum, part| sum.saturating_add(part.of(row)));
                match row_count.max() {
                    None | Some(0) => Sizes::Same(of_row(0)),
                    Some(count) => Sizes::Each((0..count).map(of_row).collect()),
                }
            }
            _ => Sizes::Same(1),
        };
        if let (Sizes::Each(sizes), Some(nulls)) = (&mut sizes, &self.nulls) {
            sizes
                .iter_mut()
                .enumerate()
                .filter(|(row, _)| nulls.is_null(*row))
                .for_each(|(_, size)| *size = 1);
        }
        sizes
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    fn write(
        &self,
        row: usize,
        encoder: &mut Encoder,
        beside: &mut Beside<'_>,
        steps: &mut Steps<'_>,
    ) -> Result<(), Unwritten> {
        if self.is_null(row) {
            encoder.none();
            return Ok(());
        }
        match &self.cells {
            Cells::Ints(values) => encoder.int(at(values, row)),
            Cells::Floats(values) => encoder.float(at(values, row)),
            Cells::Str(values) => write_text(values.get(row), encoder, beside),
            Cells::Bool(values) => encoder.bool(values.value(row)),
            Cells::Dates(values) => encoder.date(at(values, row)),
            Cells::Datetimes(values) => encoder.datetime(payload::datetime_bits(at(values, row), false)),
            Cells::Struct { names, shape, columns } => {
                let count = columns.len() as u32;
                if let Some(shape) = shape {
                    encoder.begin(Kind::Shaped, count, *shape)?;
                    for column in columns {
                        column.write(row, encoder, beside, steps)?;
                    }
                } else {
                    encoder.begin(Kind::Keyed, count * 2, 0)?;
                    for (name, column) in names.iter().zip(columns) {
                        encoder.str(name.as_bytes());
                        column.write(row, encoder, beside, steps)?;
                    }
                }
                return Ok(encoder.end()?);
            }
            Cells::List(ranges, elements) => {
                let range = ranges.get(row).cloned().unwrap_or_default();
                let count = u32::try_from(range.len()).map_err(|_| EncodeError::TooLarge)?;
                encoder.begin(Kind::List, count, 0)?;
                for element in range {
                    steps.step()?;
                    elements.write(element, encoder, beside, steps)?;
                }
                return Ok(encoder.end()?);
            }
            Cells::Dictionary(keys, values) => return values.write(at(keys, row), encoder, beside, steps),
            cells => return Self::write_rarer(cells, row, encoder, beside, steps),
        }
        Ok(())
    }

    fn write_rarer(
        cells: &Cells,
        row: usize,
        encoder: &mut Encoder,
        beside: &mut Beside<'_>,
        steps: &mut Steps<'_>,
    ) -> Result<(), Unwritten> {
        match cells {
            Cells::BigInts(values) => match i64::try_from(at(values, row)) {
                Ok(value) => encoder.int(value),
                Err(_) => encoder.heap(tag::BIGINT, &BigInt::from(at(values, row)).to_signed_bytes_le()),
            },
            Cells::Bytes(values) => write_bytes(values.get(row), encoder, beside),
            Cells::Uuids(values) => encoder.heap(tag::UUID, values.get(row)),
            Cells::Aware(values, zone) => {
                let (local, offset, fold) = at(values, row);
                let mut payload = payload::datetime_bits(local, fold).to_le_bytes().to_vec();
                payload.extend_from_slice(&offset.to_le_bytes());
                payload.extend_from_slice(zone);
                encoder.heap(tag::AWARE, &payload);
            }
            Cells::Times(values) => {
                encoder.heap(tag::TIME, &payload::datetime_bits(at(values, row), false).to_le_bytes());
            }
            Cells::Durations(values) => {
                let micros = at(values, row);
                let delta = Timedelta {
                    days: micros.div_euclid(86_400_000_000) as i32,
                    seconds: (micros.rem_euclid(86_400_000_000) / 1_000_000) as u32,
                    micros: micros.rem_euclid(1_000_000) as u32,
                };
                encoder.heap(tag::TIMEDELTA, &payload::timedelta_bytes(&delta));
            }
            Cells::Decimals(values) => {
                encoder.heap(tag::DECIMAL, values.get(row).map_or(b"0", |text| text.as_bytes()));
            }
            Cells::Map(ranges, keys, values) => {
                let range = ranges.get(row).cloned().unwrap_or_default();
                let count = u32::try_from(range.len() * 2).map_err(|_| EncodeError::TooLarge)?;
                encoder.begin(Kind::Keyed, count, 0)?;
                // Keys are compared by their bytes, so they are never stored outside the record.
                let mut nowhere = Vec::new();
                let within = &mut Beside { size_min: usize::MAX, record: 0, large: &mut nowhere };
                for entry in range {
                    steps.step()?;
                    keys.write(entry, encoder, within, steps)?;
                    values.write(entry, encoder, beside, steps)?;
                }
                return Ok(encoder.end()?);
            }
            _ => encoder.none(),
        }
        Ok(())
    }
}

/// The value of a row; the default if there is no such row.
#[inline]
fn at<T: Copy + Default>(values: &[T], row: usize) -> T {
    values.get(row).copied().unwrap_or_default()
}

#[inline]
fn write_text(text: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    if text.len() >= beside.size_min && encoder.depth() > 0 {
        write_overflow(tag::STR, text, encoder, beside);
    } else {
        encoder.str(text);
    }
}

fn write_bytes(bytes: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    if bytes.len() >= beside.size_min && encoder.depth() > 0 {
        write_overflow(tag::BYTES, bytes, encoder, beside);
    } else {
        encoder.bytes_value(bytes);
    }
}

#[cold]
fn write_overflow(tag: u8, bytes: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    // The blob id is filled in when it is assigned. The size is already right.
    let overflow = Overflow { tag, blob: 0, size: bytes.len() as u64 };
    encoder.heap(tag::OVERFLOW, &payload::overflow_bytes(&overflow));
    beside.large.push((beside.record, bytes.to_vec()));
}

/// Whether values of this type can be the field names of a dict.
impl Blobs {
    /// The bytes of this row's value.
    #[inline]
    fn get(&self, row: usize) -> &[u8] {
        match self {
            Blobs::Small(array) => array.value(row),
            Blobs::Large(array) => array.value(row),
            Blobs::View(array) => array.value(row),
            Blobs::Fixed(array) => array.value(row),
        }
    }
}
