//! Reads Arrow arrays into values that a record can hold.
//!
//! Arrow's many widths and units are converted, column by column, to one of each kind. Errors name
//! the column of a value that does not fit. Values under a null are not checked.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    downcast_dictionary_array,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::TimeUnit::{self, Microsecond, Millisecond, Nanosecond, Second};
use arrow_schema::{DataType, Field};
use pellucid_record::layout::{DATE_ORDINAL_MAX, MICROS_PER_DAY};
use pellucid_record::payload::{self, Zone};

use super::builder::EPOCH_MICROS;
use super::kind::{EXTENSION_NAME, UUID_EXTENSION};
use crate::decimal;

/// A column that cannot be stored in a table.
#[derive(Debug)]
pub struct Unfit {
    /// The column's name; empty for rows that are not dicts.
    pub column: String,
    /// The problem with the column.
    pub why: String,
}

/// Looks up named time zones.
pub trait Zones {
    /// For each of these instants (microseconds since 1970), the zone's offset from UTC in
    /// microseconds and the fold. `Err` holds the reason.
    ///
    /// # Errors
    /// There is no such zone.
    fn offsets(&mut self, zone: &str, instants: &[i64]) -> Result<Vec<(i64, bool)>, String>;
}

/// An array of strings or bytes.
pub(super) enum Blobs {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

/// The values of a column.
pub(super) enum Cells {
    None,
    Bool(BooleanBuffer),
    Ints(ScalarBuffer<i64>),
    BigInts(ScalarBuffer<u64>),
    Floats(ScalarBuffer<f64>),
    Str(Blobs),
    Bytes(Blobs),
    Uuids(Blobs),
    /// Ordinals: days, where 1 is 0001-01-01.
    Dates(Vec<u32>),
    /// Microseconds since 0001-01-01.
    Datetimes(Vec<i64>),
    /// Local microseconds since 0001-01-01, offset, fold; and the zone in record format.
    Aware(Vec<(i64, i64, bool)>, Vec<u8>),
    Times(Vec<i64>),
    Durations(Vec<i64>),
    Decimals(Vec<String>),
    Dictionary(Vec<usize>, Box<Column>),
    List(Vec<Range<usize>>, Box<Column>),
    Map(Vec<Range<usize>>, Box<Column>, Box<Column>),
    Struct {
        names: Vec<Box<str>>,
        shape: Option<u32>,
        columns: Vec<Column>,
    },
}

/// The field that is being read, for error messages.
struct ColumnName<'a> {
    name: &'a str,
}

impl ColumnName<'_> {
    fn unfit<T>(&self, why: impl Into<String>) -> Result<T, Unfit> {
        Err(Unfit { column: self.name.to_owned(), why: why.into() })
    }
}

/// Prefixes the column of an error with the name of the column that contains it.
fn within(name: &str) -> impl Fn(Unfit) -> Unfit {
    move |unfit| {
        let column = match (name, unfit.column.as_str()) {
            ("", _) => unfit.column,
            (_, "") => name.to_owned(),
            (name, inner) => format!("{name}.{inner}"),
        };
        Unfit { column, why: unfit.why }
    }
}

/// The values of a column, and which of them are null.
pub(super) struct Column {
    pub cells: Cells,
    pub nulls: Option<NullBuffer>,
}

impl Column {
    /// Reads an array.
    pub fn of(field: &Field, array: &dyn Array, zones: &mut dyn Zones) -> Result<Self, Unfit> {
        let place = ColumnName { name: field.name() };
        let nulls = array.logical_nulls();
        let cells = cells_of(&place, field, array, nulls.as_ref(), zones)?;
        Ok(Self { cells, nulls: nulls.filter(|nulls| nulls.null_count() > 0) })
    }

    /// Reads the elements of a list array.
    fn elements(
        place: &ColumnName<'_>,
        field: &Field,
        array: &dyn Array,
        zones: &mut dyn Zones,
    ) -> Result<Self, Unfit> {
        // Arrow's own name of the inner field ("item", "element", "entries") means nothing to
        // users.
        let field = field.clone().with_name("");
        Self::of(&field, array, zones).map_err(within(place.name))
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn cells_of(
    place: &ColumnName<'_>,
    field: &Field,
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    zones: &mut dyn Zones,
) -> Result<Cells, Unfit> {
    Ok(match array.data_type() {
        DataType::Null => Cells::None,
        DataType::Boolean => Cells::Bool(array.as_boolean().values().clone()),
        kind if kind.is_integer() || kind.is_floating() => return numbers(place, array),
        DataType::Utf8 => Cells::Str(Blobs::Small(array.as_string::<i32>().clone().into())),
        DataType::LargeUtf8 => Cells::Str(Blobs::Large(array.as_string::<i64>().clone().into())),
        DataType::Utf8View => Cells::Str(Blobs::View(array.as_string_view().clone().to_binary_view())),
        DataType::Binary => Cells::Bytes(Blobs::Small(array.as_binary::<i32>().clone())),
        DataType::LargeBinary => Cells::Bytes(Blobs::Large(array.as_binary::<i64>().clone())),
        DataType::BinaryView => Cells::Bytes(Blobs::View(array.as_binary_view().clone())),
        DataType::FixedSizeBinary(size) => {
            let blobs = Blobs::Fixed(array.as_fixed_size_binary().clone());
            let extension = field.metadata().get(EXTENSION_NAME).map(AsRef::as_ref);
            if *size == 16 && extension == Some(UUID_EXTENSION) {
                Cells::Uuids(blobs)
            } else {
                Cells::Bytes(blobs)
            }
        }
        DataType::Dictionary(..) => {
            downcast_dictionary_array!(
                array => dictionary(place, field, array, zones)?,
                _ => return place.unfit("a dictionary whose keys are no ints")
            )
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Map(..)
        | DataType::Struct(_) => return nested(place, array, zones),
        _ => return moments_of(place, array, nulls, zones),
    })
}

fn numbers(place: &ColumnName<'_>, array: &dyn Array) -> Result<Cells, Unfit> {
    Ok(match array.data_type() {
        DataType::Int8 => ints::<Int8Type>(array),
        DataType::Int16 => ints::<Int16Type>(array),
        DataType::Int32 => ints::<Int32Type>(array),
        DataType::Int64 => Cells::Ints(array.as_primitive::<Int64Type>().values().clone()),
        DataType::UInt8 => ints::<UInt8Type>(array),
        DataType::UInt16 => ints::<UInt16Type>(array),
        DataType::UInt32 => ints::<UInt32Type>(array),
        DataType::UInt64 => Cells::BigInts(array.as_primitive::<UInt64Type>().values().clone()),
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>().values().iter();
            Cells::Floats(values.map(|value| value.to_f64()).collect())
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            Cells::Floats(values.map(|value| f64::from(*value)).collect())
        }
        DataType::Float64 => Cells::Floats(array.as_primitive::<Float64Type>().values().clone()),
        other => return no_value(place, other),
    })
}

fn ints<T: ArrowPrimitiveType>(array: &dyn Array) -> Cells
where
    i64: From<T::Native>,
{
    Cells::Ints(array.as_primitive::<T>().values().iter().map(|value| i64::from(*value)).collect())
}

fn dictionary<K: ArrowDictionaryKeyType>(
    place: &ColumnName<'_>,
    field: &Field,
    array: &arrow_array::DictionaryArray<K>,
    zones: &mut dyn Zones,
) -> Result<Cells, Unfit> {
    let values = array.values();
    let field = Field::new("", values.data_type().clone(), true).with_metadata(field.metadata().clone());
    let values = Column::elements(place, &field, values, zones)?;
    Ok(Cells::Dictionary(array.keys().values().iter().map(|key| key.as_usize()).collect(), Box::new(values)))
}

fn nested(place: &ColumnName<'_>, array: &dyn Array, zones: &mut dyn Zones) -> Result<Cells, Unfit> {
    let list = |field: &Field, ranges: Vec<Range<usize>>, values: &dyn Array, zones: &mut dyn Zones| {
        let (ranges, values) = narrowed(ranges, values);
        Ok(Cells::List(ranges, Box::new(Column::elements(place, field, &values, zones)?)))
    };
    match array.data_type() {
        DataType::List(field) => {
            let lists = array.as_list::<i32>();
            list(field, ranges_of(lists.value_offsets()), lists.values(), zones)
        }
        DataType::LargeList(field) => {
            let lists = array.as_list::<i64>();
            list(field, ranges_of(lists.value_offsets()), lists.values(), zones)
        }
        DataType::FixedSizeList(field, size) => {
            let (lists, size) = (array.as_fixed_size_list(), usize::try_from(*size).unwrap_or(0));
            let ranges = (0..lists.len()).map(|row| row * size..(row + 1) * size).collect();
            list(field, ranges, lists.values(), zones)
        }
        DataType::ListView(field) => {
            let lists = array.as_list_view::<i32>();
            list(field, view_ranges(lists.value_offsets(), lists.value_sizes()), lists.values(), zones)
        }
        DataType::LargeListView(field) => {
            let lists = array.as_list_view::<i64>();
            list(field, view_ranges(lists.value_offsets(), lists.value_sizes()), lists.values(), zones)
        }
        DataType::Map(..) => map(place, array.as_map(), zones),
        DataType::Struct(fields) => {
            let structs = array.as_struct();
            let mut names: Vec<Box<str>> = Vec::with_capacity(fields.len());
            let mut columns = Vec::with_capacity(fields.len());
            let mut known = std::collections::HashSet::new();
            for (field, column) in fields.iter().zip(structs.columns()) {
                if !known.insert(field.name().as_str()) {
                    return place.unfit(format!("two fields with the name {:?}; rename one", field.name()));
                }
                names.push(field.name().as_str().into());
                columns.push(Column::of(field, column, zones).map_err(within(place.name))?);
            }
            Ok(Cells::Struct { names, shape: None, columns })
        }
        other => no_value(place, other),
    }
}

fn map(place: &ColumnName<'_>, maps: &arrow_array::MapArray, zones: &mut dyn Zones) -> Result<Cells, Unfit> {
    if !is_text(maps.key_type()) {
        return place.unfit(format!("a map whose keys are of type {}; only strings can be", maps.key_type()));
    }
    let ranges = ranges_of(maps.value_offsets());
    let keys = Field::new("", maps.key_type().clone(), false);
    let values = Field::new("", maps.value_type().clone(), true);
    let keys = Column::elements(place, &keys, maps.keys(), zones)?;
    let values = Column::elements(place, &values, maps.values(), zones)?;
    let text = |entry| match &keys.cells {
        Cells::Str(Blobs::Small(array)) => array.value(entry),
        Cells::Str(Blobs::Large(array)) => array.value(entry),
        Cells::Str(Blobs::View(array)) => array.value(entry),
        _ => &[],
    };
    for (row, range) in ranges.iter().enumerate() {
        let mut known = std::collections::HashSet::new();
        if maps.is_valid(row) && !range.clone().all(|entry| known.insert(text(entry))) {
            return place.unfit(format!("a map that has one key twice, in row {row} of its batch"));
        }
    }
    Ok(Cells::Map(ranges, Box::new(keys), Box::new(values)))
}

fn ranges_of<O: ArrowNativeType>(offsets: &[O]) -> Vec<Range<usize>> {
    let ends = offsets.iter().skip(1);
    offsets.iter().zip(ends).map(|(start, end)| start.as_usize()..end.as_usize()).collect()
}

fn view_ranges<O: ArrowNativeType>(offsets: &[O], sizes: &[O]) -> Vec<Range<usize>> {
    let range = |(start, size): (&O, &O)| start.as_usize()..start.as_usize() + size.as_usize();
    offsets.iter().zip(sizes).map(range).collect()
}

/// Only the elements that the ranges reach, because many batches may be slices of one array.
fn narrowed(ranges: Vec<Range<usize>>, values: &dyn Array) -> (Vec<Range<usize>>, arrow_array::ArrayRef) {
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0).min(values.len());
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0).clamp(start, values.len());
    let moved = ranges.into_iter().map(|range| range.start - start..range.end - start).collect();
    (moved, values.slice(start, end - start))
}

fn no_value<T>(place: &ColumnName<'_>, kind: &DataType) -> Result<T, Unfit> {
    place.unfit(format!("the Arrow type {kind}, which no value of a record has; cast it first"))
}

/// Reads dates, times and decimals.
fn moments_of(
    place: &ColumnName<'_>,
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    zones: &mut dyn Zones,
) -> Result<Cells, Unfit> {
    let of = Micros { place, nulls };
    Ok(match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().values().iter();
            Cells::Dates(of.dates(days.map(|day| i64::from(*day)))?)
        }
        DataType::Date64 => {
            let millis = array.as_primitive::<Date64Type>().values().iter();
            Cells::Dates(of.dates(millis.map(|millis| millis.div_euclid(86_400_000)))?)
        }
        DataType::Timestamp(unit, zone) => {
            let micros = of.timestamps(array, *unit)?;
            match zone {
                None => Cells::Datetimes(of.datetimes(&micros)?),
                Some(zone) => of.aware(&micros, zone, zones)?,
            }
        }
        DataType::Time32(unit) | DataType::Time64(unit) => {
            Cells::Times(of.times(of.day_times(array, *unit)?)?)
        }
        DataType::Duration(unit) => Cells::Durations(of.durations(array, *unit)?),
        DataType::Decimal32(_, scale) => decimals::<Decimal32Type>(array, *scale),
        DataType::Decimal64(_, scale) => decimals::<Decimal64Type>(array, *scale),
        DataType::Decimal128(_, scale) => decimals::<Decimal128Type>(array, *scale),
        DataType::Decimal256(_, scale) => decimals::<Decimal256Type>(array, *scale),
        other => return no_value(place, other),
    })
}

fn decimals<T: ArrowPrimitiveType>(array: &dyn Array, scale: i8) -> Cells
where
    T::Native: std::fmt::Display,
{
    let values = array.as_primitive::<T>().values().iter();
    Cells::Decimals(values.map(|value| decimal::written(&value.to_string(), i64::from(scale))).collect())
}

/// Converts the values of an array to microseconds.
struct Micros<'a> {
    place: &'a ColumnName<'a>,
    nulls: Option<&'a NullBuffer>,
}

impl Micros<'_> {
    /// Converts each value that is not null. A null whose value cannot be converted gets a default
    /// value.
    fn each<T: Default>(
        &self,
        values: impl Iterator<Item = i64>,
        what: &str,
        become_one: impl Fn(i64) -> Option<T>,
    ) -> Result<Vec<T>, Unfit> {
        let mut made = Vec::with_capacity(values.size_hint().0);
        for (row, value) in values.enumerate() {
            let is_null = self.nulls.is_some_and(|nulls| nulls.is_null(row));
            match become_one(value) {
                Some(value) => made.push(value),
                None if is_null => made.push(T::default()),
                None => return self.place.unfit(format!("{what}, in row {row} of its batch")),
            }
        }
        Ok(made)
    }

    fn timestamps(&self, array: &dyn Array, unit: TimeUnit) -> Result<Vec<i64>, Unfit> {
        match unit {
            Second => self.scaled(array.as_primitive::<TimestampSecondType>().values(), 1_000_000),
            Millisecond => self.scaled(array.as_primitive::<TimestampMillisecondType>().values(), 1_000),
            Microsecond => Ok(array.as_primitive::<TimestampMicrosecondType>().values().to_vec()),
            Nanosecond => self.of_nanos(array.as_primitive::<TimestampNanosecondType>().values()),
        }
    }

    fn durations(&self, array: &dyn Array, unit: TimeUnit) -> Result<Vec<i64>, Unfit> {
        match unit {
            Second => self.scaled(array.as_primitive::<DurationSecondType>().values(), 1_000_000),
            Millisecond => self.scaled(array.as_primitive::<DurationMillisecondType>().values(), 1_000),
            Microsecond => Ok(array.as_primitive::<DurationMicrosecondType>().values().to_vec()),
            Nanosecond => self.of_nanos(array.as_primitive::<DurationNanosecondType>().values()),
        }
    }

    fn day_times(&self, array: &dyn Array, unit: TimeUnit) -> Result<Vec<i64>, Unfit> {
        let wide = |values: &[i32]| values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>();
        match unit {
            Second => self.scaled(&wide(array.as_primitive::<Time32SecondType>().values()), 1_000_000),
            Millisecond => self.scaled(&wide(array.as_primitive::<Time32MillisecondType>().values()), 1_000),
            Microsecond => Ok(array.as_primitive::<Time64MicrosecondType>().values().to_vec()),
            Nanosecond => self.of_nanos(array.as_primitive::<Time64NanosecondType>().values()),
        }
    }

    fn scaled(&self, values: &[i64], factor: i64) -> Result<Vec<i64>, Unfit> {
        self.each(values.iter().copied(), "a time beyond the years 1 to 9999", |value| {
            value.checked_mul(factor)
        })
    }

    fn of_nanos(&self, values: &[i64]) -> Result<Vec<i64>, Unfit> {
        let what = "nanoseconds, which Python's times do not have; round it to microseconds first";
        self.each(values.iter().copied(), what, |value| (value % 1_000 == 0).then_some(value / 1_000))
    }

    fn dates(&self, days: impl Iterator<Item = i64>) -> Result<Vec<u32>, Unfit> {
        let epoch = EPOCH_MICROS / MICROS_PER_DAY + 1;
        self.each(days, "a date beyond the years 1 to 9999", |day| {
            let ordinal = u32::try_from(day.checked_add(epoch)?).ok()?;
            payload::is_date(ordinal).then_some(ordinal)
        })
    }

    fn datetimes(&self, micros: &[i64]) -> Result<Vec<i64>, Unfit> {
        self.each(micros.iter().copied(), "a time beyond the years 1 to 9999", since_year_one)
    }

    fn times(&self, micros: Vec<i64>) -> Result<Vec<i64>, Unfit> {
        self.each(micros.into_iter(), "a time of day beyond 24 hours", |micros| {
            (0..MICROS_PER_DAY).contains(&micros).then_some(micros)
        })
    }

    fn aware(&self, micros: &[i64], zone: &str, zones: &mut dyn Zones) -> Result<Cells, Unfit> {
        let mut bytes = Vec::new();
        // A null whose value cannot be converted becomes the start of 1970, which every zone can
        // convert.
        let micros = self.each(micros.iter().copied(), "a time beyond the years 1 to 9999", |micros| {
            since_year_one(micros).map(|_| micros)
        })?;
        let offsets = if let Some(offset) = fixed_offset(zone) {
            payload::push_zone(&Zone::Fixed { offset, name: "" }, &mut bytes);
            vec![(offset, false); micros.len()]
        } else {
            payload::push_zone(&Zone::Key(zone), &mut bytes);
            match zones.offsets(zone, &micros) {
                Ok(offsets) => offsets,
                Err(why) => return self.place.unfit(format!("the time zone {zone:?}: {why}")),
            }
        };
        let mut values = Vec::with_capacity(micros.len());
        for (row, (micros, (offset, fold))) in micros.into_iter().zip(offsets).enumerate() {
            let Some(local) = micros.checked_add(offset).and_then(since_year_one) else {
                return self
                    .place
                    .unfit(format!("a time beyond the years 1 to 9999, in row {row} of its batch"));
            };
            values.push((local, offset, fold));
        }
        Ok(Cells::Aware(values, bytes))
    }
}

/// Converts microseconds since 1970 to microseconds since 0001-01-01; None outside the range of a
/// datetime.
fn since_year_one(micros: i64) -> Option<i64> {
    let micros = micros.checked_add(EPOCH_MICROS)?;
    (0..i64::from(DATE_ORDINAL_MAX) * MICROS_PER_DAY).contains(&micros).then_some(micros)
}

/// The offset of a zone whose offset never changes: UTC, or `+hh:mm`.
fn fixed_offset(zone: &str) -> Option<i64> {
    if matches!(zone, "UTC" | "utc" | "Z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    let number = |text: &str, end: i64| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain { text.parse::<i64>().ok().filter(|number| *number < end) } else { None }
    };
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_without_rules_are_known() {
        for (zone, minutes) in [("UTC", Some(0)), ("+02:00", Some(120)), ("-0530", Some(-330))] {
            assert_eq!(fixed_offset(zone).map(|offset| offset / 60_000_000), minutes, "{zone}");
        }
        for zone in ["Europe/Berlin", "+2:00", "+24:00", "+02:0x", "", "+", "\u{20ac}"] {
            assert_eq!(fixed_offset(zone), None, "{zone}");
        }
    }
}
