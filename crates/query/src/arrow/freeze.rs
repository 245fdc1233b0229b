//! Converts collected values into Arrow arrays.
//!
//! Buffers of numbers are handed over without a copy. Text is checked for valid UTF-8 here, for a
//! whole batch at once.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMicrosecondArray,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, new_null_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use super::builder::Builder;
use super::data::{Bytes, Data};
use super::fields::Fields;
use super::kind::{DECIMAL_DIGIT_COUNT_MAX, Type, double};

/// The array of `count` rows. `target` is the type that all batches share.
pub fn array_of(mut builder: Builder, count: usize, target: &Type) -> Result<ArrayRef, ArrowError> {
    builder.pad_to(count);
    let nulls = builder.valid.map(|mut valid| NullBuffer::new(valid.finish()));
    Ok(match builder.data {
        Data::Nulls | Data::Lost => new_null_array(&target.data_type(), count),
        Data::Bool(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
        Data::Int(values) => ints(values, nulls, target)?,
        Data::Single(values) if *target == Type::Float => {
            let floats: Vec<f64> = values.into_iter().map(f64::from).collect();
            Arc::new(Float64Array::new(floats.into(), nulls))
        }
        Data::Single(values) => Arc::new(Float32Array::new(values.into(), nulls)),
        Data::Float(values) => Arc::new(Float64Array::new(values.into(), nulls)),
        Data::Decimal(values) => match target {
            Type::Decimal { scale, .. } => {
                let digits: Vec<i128> = values.iter().map(|value| value.digits_at(*scale)).collect();
                decimals(digits, *scale, nulls)?
            }
            _ => new_null_array(&target.data_type(), count),
        },
        Data::Str(values) | Data::Text(values) => {
            let (offsets, bytes) = parts(values);
            Arc::new(StringArray::try_new(offsets, bytes, nulls)?)
        }
        Data::Bytes(values) => {
            let (offsets, bytes) = parts(values);
            Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?)
        }
        Data::Date(values) => Arc::new(Date32Array::new(values.into(), nulls)),
        Data::Datetime(values) => Arc::new(TimestampMicrosecondArray::new(values.into(), nulls)),
        Data::Aware(values) => {
            Arc::new(TimestampMicrosecondArray::new(values.into(), nulls).with_timezone("UTC"))
        }
        Data::Time(values) => Arc::new(Time64MicrosecondArray::new(values.into(), nulls)),
        Data::Duration(values) => Arc::new(DurationMicrosecondArray::new(values.into(), nulls)),
        Data::Uuid(values) => {
            let bytes = Buffer::from_vec(values.into_flattened());
            Arc::new(FixedSizeBinaryArray::try_new(16, bytes, nulls)?)
        }
        Data::List(ends, elements) => {
            let kind = if let Type::List(kind) = target { (**kind).clone() } else { elements.kind() };
            let element_count = ends.last().map_or(0, |end| end.unsigned_abs() as usize);
            let elements = array_of(*elements, element_count, &kind)?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
            Arc::new(ListArray::try_new(Arc::new(kind.field("item")), offsets, elements, nulls)?)
        }
        Data::Struct(_, fields) => match target {
            Type::Struct(kinds) => structs(*fields, count, kinds, nulls, &target.data_type())?,
            _ => new_null_array(&target.data_type(), count),
        },
    })
}

fn ints(values: Vec<i64>, nulls: Option<NullBuffer>, target: &Type) -> Result<ArrayRef, ArrowError> {
    Ok(match target {
        Type::Float => {
            let floats: Vec<f64> = values.iter().map(|value| double(*value)).collect();
            Arc::new(Float64Array::new(floats.into(), nulls))
        }
        Type::Decimal { scale, .. } => {
            let factor = 10i128.pow(u32::from(*scale));
            decimals(values.iter().map(|value| i128::from(*value) * factor).collect(), *scale, nulls)?
        }
        _ => Arc::new(Int64Array::new(values.into(), nulls)),
    })
}

fn decimals(digits: Vec<i128>, scale: u8, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let array = Decimal128Array::new(digits.into(), nulls);
    Ok(Arc::new(array.with_precision_and_scale(DECIMAL_DIGIT_COUNT_MAX, scale.cast_signed())?))
}

fn parts(values: Bytes) -> (OffsetBuffer<i32>, Buffer) {
    (OffsetBuffer::new(ScalarBuffer::from(values.ends)), Buffer::from_vec(values.bytes))
}

fn structs(
    fields: Fields,
    count: usize,
    kinds: &[(Box<str>, Type)],
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let DataType::Struct(targets) = data_type else { return Ok(new_null_array(data_type, count)) };
    if targets.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(count, nulls)));
    }
    let arrays = columns_of(fields, count, kinds).map_err(|(_, error)| error)?;
    Ok(Arc::new(StructArray::try_new(targets.clone(), arrays, nulls)?))
}

/// One array for each of these columns. An error names the column.
pub fn columns_of(
    mut fields: Fields,
    count: usize,
    kinds: &[(Box<str>, Type)],
) -> Result<Vec<ArrayRef>, (String, ArrowError)> {
    let mut arrays = Vec::with_capacity(kinds.len());
    for (name, kind) in kinds {
        arrays.push(match fields.take(name) {
            Some(builder) => array_of(builder, count, kind).map_err(|error| (name.to_string(), error))?,
            None => new_null_array(&kind.data_type(), count),
        });
    }
    debug_assert!(fields.is_empty(), "every column that was gathered has a type");
    Ok(arrays)
}
