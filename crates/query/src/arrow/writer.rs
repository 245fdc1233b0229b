//! How do columns become records?
//!
//! A [`Writer`] has a batch of columns in the form in which rows are made of them; `cells.rs` has looked at every value that may not
//! fit, so that writing goes through but for the limits of a record. Which dicts have shapes is the caller's to say.

use std::ops::Range;

use arrow_array::Array;
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use pellucid_record::EncodeError;
use pellucid_record::encode::Encoder;
use pellucid_record::layout::{Kind, RECORD_SIZE_MAX, tag};
use pellucid_record::payload::{self, Apart, Timedelta};

use super::cells::{Blobs, Cells};
pub use super::cells::{Unfit, Zones};
use super::decimal::big_int_payload;

/// From this size on no further row is written before those that were are taken.
const RECORDS_SIZE_MAX: usize = 16 << 20;

/// What a container within a record takes at least: its head and its slot.
const CONTAINER_SIZE_MIN: u64 = 3;
/// So many elements of lists are written between two looks at whether to go on: some milliseconds.
const STEP_COUNT: u32 = 1 << 18;

/// A batch of rows, ready to be written.
pub struct Writer {
    root: Column,
    row_count: usize,
    /// What each row takes at least, where its lists share elements.
    sizes: Option<Sizes>,
}

/// Why rows were not written.
#[derive(Debug)]
pub enum Unwritten {
    /// A record is too large, or nests too deep.
    Encode(EncodeError),
    /// The caller wants no more.
    Stopped,
}

impl From<EncodeError> for Unwritten {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// The values of a column, and which are there.
pub(super) struct Column {
    pub cells: Cells,
    pub nulls: Option<NullBuffer>,
}

/// Records, one behind the other.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    large: Vec<(usize, Vec<u8>)>,
}

/// Where large values go.
struct Beside<'a> {
    size_min: usize,
    record: usize,
    large: &'a mut Vec<(usize, Vec<u8>)>,
}

/// Counts the elements of lists that are written, and asks whether to go on.
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

/// What the values of a column take in a record, at least.
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

    /// What lists of such elements take. What is larger than a record is as large as any other.
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
    /// Forgets them and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.large.clear();
    }

    /// Each record, and the values that lie apart from it, in the order of their references.
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
    /// The rows of an array: dicts of a struct array's fields, or plain values.
    ///
    /// # Errors
    /// A type or a value that has no place in a record, or none in Python.
    pub fn new(array: &dyn Array, zones: &mut dyn Zones) -> Result<Self, Unfit> {
        let field = Field::new("", array.data_type().clone(), true);
        let root = Column::of(&field, array, zones)?;
        let sizes = root.has_shared_elements().then(|| root.sizes());
        Ok(Self { root, row_count: array.len(), sizes })
    }

    /// How many rows there are.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Asks which shape the dicts with these names have; None: they are written with their keys. The second argument says
    /// whether the dicts are whole records.
    ///
    /// # Errors
    /// What `assign` returns.
    pub fn give_shapes<E>(
        &mut self,
        assign: &mut impl FnMut(&[&str], bool) -> Result<Option<u32>, E>,
    ) -> Result<(), E> {
        self.root.give_shapes(assign, true)
    }

    /// Writes rows, and returns how many: the first of `rows` at least, and as many as take some memory. Rows may share
    /// data, as those of a dictionary do, so that records take more than the batch. Strings and bytes of `large_size_min` and
    /// more lie apart from them. Within a row, now and then, `goes_on` is asked.
    ///
    /// # Errors
    /// A record is too large, or nests too deep; `goes_on` said no.
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
            // Lists that share elements come to more than the batch: known before it is written.
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

    /// Whether lists of it, at any depth, have elements in common, as views may: a row may come to more than the batch.
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
                Err(_) => encoder.heap(tag::BIGINT, &big_int_payload(&at(values, row).into())),
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
                // Keys are compared by their bytes, so nothing of them lies apart.
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

/// The value of a row that is there.
#[inline]
fn at<T: Copy + Default>(values: &[T], row: usize) -> T {
    values.get(row).copied().unwrap_or_default()
}

#[inline]
fn write_text(text: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    if text.len() >= beside.size_min && encoder.depth() > 0 {
        write_apart(tag::STR, text, encoder, beside);
    } else {
        encoder.str(text);
    }
}

fn write_bytes(bytes: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    if bytes.len() >= beside.size_min && encoder.depth() > 0 {
        write_apart(tag::BYTES, bytes, encoder, beside);
    } else {
        encoder.bytes_value(bytes);
    }
}

#[cold]
fn write_apart(tag: u8, bytes: &[u8], encoder: &mut Encoder, beside: &mut Beside<'_>) {
    // The id is filled in where it is given out; the size is the truth.
    let apart = Apart { tag, blob: 0, size: bytes.len() as u64 };
    encoder.heap(tag::APART, &payload::apart_bytes(&apart));
    beside.large.push((beside.record, bytes.to_vec()));
}

/// Whether values of a type may be the names of a dict's fields.
pub(super) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

impl Blobs {
    /// The bytes of a row.
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
