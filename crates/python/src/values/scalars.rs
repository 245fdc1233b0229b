//! Encode and decode dates, decimals and other scalars of the standard library.
//!
//! These types are neither numbers nor text. Each is written as the fields that make it up
//! (docs/format.md, "Tags"), so that reading needs no parsing and no pickle.

use pellucid_record::layout::{Kind, MICROS_PER_DAY, tag};
use pellucid_record::pickles::PICKLE_NAME;
use pellucid_record::view::{Container, Slot};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyComplex, PyComplexMethods, PyDate, PyDateAccess, PyDateTime, PyDelta,
    PyDeltaAccess, PyDict, PyString, PyTime, PyTuple, PyTzInfo, PyTzInfoAccess,
};

use crate::errors;
use crate::hot::gil::GilRc;
use crate::hot::modules::{is_instance_of, loaded};
use crate::hot::text;
use crate::values::dates::{
    clock, datetime_bits, new_date, new_datetime, offset_micros, time_bits, zone_bytes, zone_of,
};
use crate::values::encode::{Encoding, Outcome};
use crate::values::large::{Large, Reference};
use crate::values::reading::Reading;
use crate::values::row::Row;
use crate::values::{decode, hooks, row_errors};
use pellucid_record::calendar::ordinal_of;

/// Encodes an object that is not exactly a dict, list, tuple, set, str, bytes, number, bool or
/// None.
pub fn encode<'py>(encoding: &mut Encoding<'_, 'py>, object: &Bound<'py, PyAny>, depth: u32) -> Outcome {
    if let Ok(value) = object.cast_exact::<PyDateTime>() {
        return encode_datetime(encoding, value, depth);
    }
    if let Ok(value) = object.cast_exact::<PyDate>() {
        encoding.encoder.date(ordinal_of(value.get_year(), value.get_month(), value.get_day()));
        return Ok(());
    }
    if let Ok(value) = object.cast_exact::<PyByteArray>() {
        encoding.see_any(value.as_any())?;
        // Copied, since the bytearray may change during the call.
        return encoding.payload(tag::BYTEARRAY, &value.to_vec(), depth);
    }
    if let Ok(value) = object.cast_exact::<PyDelta>() {
        let mut payload = [0; 12];
        let (days, rest) = payload.split_at_mut(4);
        let (seconds, micros) = rest.split_at_mut(4);
        days.copy_from_slice(&value.get_days().to_le_bytes());
        seconds.copy_from_slice(&(value.get_seconds() as u32).to_le_bytes());
        micros.copy_from_slice(&(value.get_microseconds() as u32).to_le_bytes());
        encoding.encoder.heap(tag::TIMEDELTA, &payload);
        return Ok(());
    }
    if let Ok(value) = object.cast_exact::<PyTime>() {
        return encode_time(encoding, value, depth);
    }
    if let Ok(value) = object.cast_exact::<PyComplex>() {
        let mut payload = value.real().to_le_bytes().to_vec();
        payload.extend_from_slice(&value.imag().to_le_bytes());
        encoding.encoder.heap(tag::COMPLEX, &payload);
        return Ok(());
    }
    if let Ok(value) = object.cast::<crate::values::handles::Record>() {
        return encoding.bound_value(&crate::values::record::to_dict(value)?, depth);
    }
    if let Ok(value) = object.cast::<crate::values::handles::RecordList>() {
        return encoding.bound_value(&crate::values::record_list::to_list(value)?, depth);
    }
    if is_instance_of(object, "decimal", "Decimal")? {
        let written = object.str()?;
        encoding.encoder.heap(tag::DECIMAL, written.to_str()?.as_bytes());
        return Ok(());
    }
    if is_instance_of(object, "uuid", "UUID")? {
        let bytes = object.getattr("bytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
        encoding.encoder.heap(tag::UUID, bytes.as_bytes());
        return Ok(());
    }
    hooks::encode(encoding, object, depth)
}

/// The value in two's complement, little-endian, in as few bytes as possible.
pub fn bigint_bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    // -n needs the bits of n - 1, plus a sign.
    let magnitude = if value.lt(0)? { value.add(1)? } else { value.clone() };
    let bits: usize = magnitude.call_method0("bit_length")?.extract()?;
    let keywords = PyDict::new(value.py());
    keywords.set_item("signed", true)?;
    value.call_method("to_bytes", (bits / 8 + 1, "little"), Some(&keywords))?.extract()
}

fn encode_datetime<'py>(
    encoding: &mut Encoding<'_, 'py>,
    value: &Bound<'py, PyDateTime>,
    depth: u32,
) -> Outcome {
    let Some(zone) = value.get_tzinfo() else {
        encoding.encoder.datetime(datetime_bits(value));
        return Ok(());
    };
    let Some(zone) = zone_bytes(zone.as_any())? else {
        return hooks::encode(encoding, value.as_any(), depth);
    };
    let mut payload = datetime_bits(value).to_le_bytes().to_vec();
    payload.extend_from_slice(&offset_micros(value.as_any())?.to_le_bytes());
    payload.extend_from_slice(&zone);
    encoding.encoder.heap(tag::AWARE, &payload);
    Ok(())
}

fn encode_time<'py>(encoding: &mut Encoding<'_, 'py>, value: &Bound<'py, PyTime>, depth: u32) -> Outcome {
    let mut payload = time_bits(value).to_le_bytes().to_vec();
    if let Some(zone) = value.get_tzinfo() {
        match zone_bytes(zone.as_any())? {
            Some(zone) => payload.extend_from_slice(&zone),
            None => return hooks::encode(encoding, value.as_any(), depth),
        }
    }
    encoding.encoder.heap(tag::TIME, &payload);
    Ok(())
}

/// The object of a slot that `values/decode.rs` passes on.
pub fn decode<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    slot: &Slot<'_>,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    match *slot {
        Slot::Date(ordinal) => new_date(py, ordinal),
        Slot::Datetime(bits) => new_datetime(py, bits, None),
        Slot::Heap { tag, payload, offset } => {
            let object = from_payload(py, reading, tag, payload, offset, depth);
            // What is no part of a container has a field around it, whose name the caller knows.
            if depth == 0 { object } else { object.map_err(|error| unmade(py, reading, slot, None, error)) }
        }
        _ => Err(errors::internal("a slot that is no scalar")),
    }
    .map_err(|error| row_errors::undecodable(py, reading.row(), error))
}

/// The error if a registered class or a pickle could not make its object. `at` is its place in the
/// record, if that is known.
pub fn unmade(
    py: Python<'_>,
    reading: &Reading<'_>,
    slot: &Slot<'_>,
    at: Option<String>,
    error: PyErr,
) -> PyErr {
    match slot {
        Slot::Heap { tag: tag::REGISTERED | tag::PICKLE | tag::OVERFLOW, .. } => {
            row_errors::unmade(py, reading.row(), at, error)
        }
        _ => error,
    }
}

fn damaged() -> PyErr {
    errors::value_error("a payload is not what its tag promises")
}

/// The little-endian i64 at offset `at`.
fn word(payload: &[u8], at: usize) -> PyResult<i64> {
    let bytes = payload.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(damaged)?;
    Ok(i64::from_le_bytes(*bytes))
}

fn from_payload<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    tag: u8,
    payload: &[u8],
    offset: u32,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    match tag {
        tag::STR_SURROGATES => text::with_surrogates(py, payload),
        tag::BYTES => Ok(text::bytes(py, payload)?.into_any()),
        tag::BYTEARRAY => text::bytearray(py, payload),
        tag::BIGINT => {
            let data = PyBytes::new(py, payload);
            let keywords = PyDict::new(py);
            keywords.set_item("signed", true)?;
            py.get_type::<pyo3::types::PyInt>().call_method("from_bytes", (data, "little"), Some(&keywords))
        }
        tag::DECIMAL => {
            // Copied before it is checked, here and below: another process, or code that an import
            // runs, may write to a viewed buffer.
            let copy = text::bytes(py, payload)?;
            let written = pellucid_record::payload::decimal(copy.as_bytes()).ok_or_else(damaged)?;
            let written = PyString::new(py, written);
            py.import("decimal")?.getattr("Decimal")?.call1((written,))
        }
        tag::COMPLEX if payload.len() == 16 => {
            let (real, imaginary) = (word(payload, 0)?.cast_unsigned(), word(payload, 8)?.cast_unsigned());
            Ok(PyComplex::from_doubles(py, f64::from_bits(real), f64::from_bits(imaginary)).into_any())
        }
        tag::UUID if payload.len() == 16 => {
            let data = PyBytes::new(py, payload);
            let keywords = PyDict::new(py);
            keywords.set_item("bytes", data)?;
            py.import("uuid")?.getattr("UUID")?.call((), Some(&keywords))
        }
        tag::TIMEDELTA | tag::TIME | tag::AWARE => moment(py, tag, text::bytes(py, payload)?.as_bytes()),
        tag::NDARRAY => array(py, reading, offset, payload.len(), reading.row().gives_views(py), depth),
        tag::REGISTERED => {
            let parts = nested_tuple(py, reading, offset, payload.len(), depth)?;
            if parts.get_item(0)?.cast::<PyString>().is_ok_and(|name| name == PICKLE_NAME) {
                return pickle_with_buffers(py, reading, &parts.get_item(1)?);
            }
            hooks::decode_registered(&parts.get_item(0)?, &parts.get_item(1)?)
        }
        tag::PICKLE => hooks::decode_pickle(py, payload, None, &reading.row().policy(py)),
        tag::OVERFLOW => overflow(py, reading, payload, depth),
        _ => Err(damaged()),
    }
}

/// The object of a pickle whose buffers lie beside it.
fn pickle_with_buffers<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    stored: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let stored = stored.cast::<PyTuple>().map_err(|_| damaged())?;
    let data = stored.get_item(0).map_err(|_| damaged())?;
    let data = data.cast::<PyBytes>().map_err(|_| damaged())?;
    let buffers = stored.get_slice(1, stored.len());
    hooks::decode_pickle(py, data.as_bytes(), Some(&buffers), &reading.row().policy(py))
}

/// A timedelta, a time or an aware datetime.
fn moment<'py>(py: Python<'py>, tag: u8, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if tag == tag::TIMEDELTA {
        let Some(delta) = pellucid_record::payload::timedelta(payload) else { return Err(damaged()) };
        let (seconds, micros) = (delta.seconds as i32, delta.micros as i32);
        return Ok(PyDelta::new(py, delta.days, seconds, micros, false)?.into_any());
    }
    let bits = word(payload, 0)?;
    if tag == tag::AWARE {
        pellucid_record::payload::aware(payload).ok_or_else(damaged)?;
        let zone = zone_of(py, payload.get(16..).unwrap_or_default())?.cast_into::<PyTzInfo>()?;
        return new_datetime(py, bits, Some(&zone));
    }
    if !(0..MICROS_PER_DAY).contains(&(bits >> 1)) {
        return Err(damaged());
    }
    let zone = match payload.get(8..) {
        None | Some([]) => None,
        Some(zone) => Some(zone_of(py, zone)?.cast_into::<PyTzInfo>()?),
    };
    let (hour, minute, second, micro) = clock(bits >> 1);
    let time = PyTime::new_with_fold(py, hour, minute, second, micro, zone.as_ref(), bits & 1 == 1)?;
    Ok(time.into_any())
}

/// The tuple at the start of a payload.
fn nested_tuple<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    offset: u32,
    size: usize,
    depth: u32,
) -> PyResult<Bound<'py, PyTuple>> {
    let row = reading.row();
    let place = Container::nested(reading.bytes(), offset, offset + size as u32, &*row.names)
        .map_err(|error| row_errors::corrupt_row(py, row, &error))?;
    if place.kind != Kind::Tuple || place.count < 2 {
        return Err(errors::value_error("a payload is not what its tag promises"));
    }
    Ok(decode::plain_at(py, reading, &Slot::Container(place), depth + 1)?.cast_into::<PyTuple>()?)
}

/// The NumPy array in a payload; where `gives_views` says so, over the stored bytes if they lie in
/// a snapshot.
fn array<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    offset: u32,
    payload_size: usize,
    gives_views: bool,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let row = reading.row();
    let array = pellucid_record::payload::ndarray(reading.bytes(), &*row.names, offset, payload_size as u32)
        .map_err(|error| row_errors::corrupt_row(py, row, &error))?;
    let view = if gives_views { row.view(py, reading, array.data)? } else { None };
    let data = match view {
        Some(view) => view,
        None => text::bytes(py, array.data)?.into_any(),
    };
    let head = decode::plain_at(py, reading, &Slot::Container(array.head), depth + 1)?;
    hooks::decode_array(&head.cast_into::<PyTuple>()?, &data)
}

/// The NumPy array in a value stored outside of the record.
fn overflow_array<'py>(
    py: Python<'py>,
    row: &GilRc<Row>,
    large: &Large,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let part = GilRc::new(Row::part(py, row, large));
    array(py, &Reading::new(&part), 0, large.bytes().len(), row.gives_views(py), depth)
}

/// A value stored outside of the record: reads its bytes from the database, then decodes them by
/// its tag.
fn overflow<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    payload: &[u8],
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let Reference { tag, id, size } = Reference::parse(payload)?;
    let data = reading.row().overflow(py, Some(reading), id, size)?;
    match tag {
        tag::STR => text::utf8(py, data.bytes()),
        tag::OVERFLOW | tag::REGISTERED => {
            Err(errors::value_error("a value apart is of a kind that cannot lie there"))
        }
        tag::NDARRAY => overflow_array(py, reading.row(), &data, depth),
        _ => from_payload(py, reading, tag, data.bytes(), 0, depth),
    }
}

/// Whether sums of Decimals with up to 28 digits are exact here: under Python's default context, or
/// one with a higher precision.
pub fn keeps_digits(py: Python<'_>) -> PyResult<bool> {
    // Numbers with at most 60 digits after the point have no smaller exponents.
    const EXPONENT: i64 = 100;
    // A program that has not imported `decimal` has changed no context.
    let Some(decimal) = loaded(intern!(py, "decimal")) else { return Ok(true) };
    let context = decimal.call_method0("getcontext")?;
    let of = |name: &str| -> PyResult<i64> { context.getattr(name)?.extract() };
    // With ROUND_FLOOR, a sum of zero is -0.
    let is_floor = context.getattr("rounding")?.eq("ROUND_FLOOR")?;
    Ok(!is_floor
        && of("prec")? >= 28
        && of("Emax")? >= EXPONENT
        && of("Emin")? <= -EXPONENT
        && of("clamp")? == 0)
}
