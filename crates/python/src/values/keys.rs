//! Convert Python keys to bytes that sort as they do, and back.

use pellucid_record::key::{KeyEncoder, KeyError, KeyPart, KeyReader, PlainKey, plain_key};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDate, PyDateAccess, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyString,
    PyTuple, PyTzInfoAccess,
};

use crate::errors;
use crate::hot::gil::{self, GilCell};
use crate::hot::modules::{class_has, is_instance_of, loaded};
use crate::hot::text;
use crate::values::foreign::{self, Foreign};
use crate::values::{dates, equal};
use pellucid_record::calendar::ordinal_of;

/// A key in the form that the store takes.
#[derive(Clone, Default)]
pub struct Key {
    /// Bytes that sort as the key does.
    pub bytes: Vec<u8>,
    /// The details of the key that those bytes lack.
    pub spelling: Vec<u8>,
}

/// Why an object cannot be a key.
pub enum Refusal {
    /// It has no place in the order of keys; the steps lead to the part of a tuple that has none.
    Unsupported {
        /// The reason.
        why: String,
        /// Positions in nested tuples, outermost first.
        steps: Vec<usize>,
    },
    /// The object's own code raised.
    Raised(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported { why: why.into(), steps: Vec::new() })
}

/// Converts an object to a key.
///
/// # Errors
/// `UnsupportedKey` with the name of `table`.
pub fn key_of(table: &str, object: &Bound<'_, PyAny>) -> PyResult<Key> {
    try_key_of(object).map_err(|refusal| refusal.raised(table, object))
}

/// Converts an object to a key, or says why it is not one.
#[inline]
pub fn try_key_of(object: &Bound<'_, PyAny>) -> Result<Key, Refusal> {
    let mut encoder = KeyEncoder::with_buffer(SPARE.with(object.py(), std::mem::take));
    match object.cast_exact::<PyString>().ok().and_then(text::ascii) {
        Some(characters) => encoder.str(characters),
        None => push(&mut encoder, object)?,
    }
    let (bytes, spelling) = encoder.take();
    Ok(Key { bytes, spelling })
}

/// The buffer of the last key that was dropped: most keys are encoded, looked up and dropped.
static SPARE: GilCell<Vec<u8>> = GilCell::new(Vec::new());

/// Gives a key's buffer back for the next key.
#[inline]
pub fn recycle(py: Python<'_>, key: Key) {
    const SIZE_MAX: usize = 4096;
    let mut bytes = key.bytes;
    if bytes.capacity() <= SIZE_MAX {
        bytes.clear();
        drop(SPARE.with(py, |spare| std::mem::replace(spare, bytes)));
    }
}

impl Refusal {
    /// `UnsupportedKey` with the name of `table`, or the exception of the object's own code.
    #[cold]
    pub fn raised(self, table: &str, object: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Unsupported { why, steps } => errors::unsupported_key(table, object, &why, &steps),
        }
    }

    /// The same for a value that is looked up in an index.
    #[cold]
    pub fn raised_by_index(self, index: &str, value: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Unsupported { why, steps } => errors::unsupported_value(index, value, &why, &steps),
        }
    }
}

/// Adds an object to a key.
///
/// # Errors
/// Why the object cannot be a key; a part of it may have been added by then.
pub fn push(encoder: &mut KeyEncoder, object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
    if let Ok(value) = object.cast_exact::<PyString>() {
        encoder.str(text::characters(value)?.bytes());
        return Ok(());
    }
    if let Ok(value) = object.cast_exact::<PyInt>() {
        return push_int(encoder, value);
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        encoder.begin_tuple().or_else(|error| of_key_error(&error))?;
        for (index, element) in tuple.iter().enumerate() {
            push(encoder, &element).map_err(|refusal| match refusal {
                Refusal::Unsupported { why, mut steps } => {
                    steps.insert(0, index);
                    Refusal::Unsupported { why, steps }
                }
                raised @ Refusal::Raised(_) => raised,
            })?;
        }
        encoder.end_tuple();
        return Ok(());
    }
    if object.is_none() {
        encoder.none();
        return Ok(());
    }
    if let Ok(value) = object.cast_exact::<PyBool>() {
        encoder.bool(value.is_true());
        return Ok(());
    }
    if let Ok(value) = object.cast_exact::<PyFloat>() {
        return encoder.float(value.value()).or_else(|error| of_key_error(&error));
    }
    if let Ok(value) = object.cast_exact::<PyBytes>() {
        encoder.bytes(value.as_bytes());
        return Ok(());
    }
    push_rare(encoder, object)
}

fn push_rare(encoder: &mut KeyEncoder, object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
    if let Ok(value) = object.cast_exact::<PyDateTime>() {
        let bits = dates::datetime_bits(value);
        let Some(zone) = value.get_tzinfo() else {
            return encoder.datetime(bits >> 1, bits & 1 == 1).or_else(|error| of_key_error(&error));
        };
        let Some(zone) = dates::zone_bytes(zone.as_any())? else {
            let zoned = object
                .py()
                .import("pellucid.standard_values")?
                .call_method1("with_stored_zone", (object,))?;
            if !zoned.is_none() {
                return push(encoder, &zoned);
            }
            return refuse(
                "has a time zone that is neither datetime.timezone nor zoneinfo.ZoneInfo; use \
                 key.astimezone(zoneinfo.ZoneInfo(\"Europe/Berlin\")) or key.astimezone(datetime.timezone.utc)",
            );
        };
        let offset = dates::offset_micros(value.as_any())?;
        return encoder
            .aware((bits >> 1) - offset, offset, bits & 1 == 1, &zone)
            .or_else(|error| of_key_error(&error));
    }
    if let Ok(value) = object.cast_exact::<PyDate>() {
        let ordinal = ordinal_of(value.get_year(), value.get_month(), value.get_day());
        return encoder.date(ordinal).or_else(|error| of_key_error(&error));
    }
    if is_instance_of(object, "decimal", "Decimal")? {
        let written = object.str()?;
        return encoder.decimal(written.to_str()?).or_else(|error| of_key_error(&error));
    }
    if is_instance_of(object, "uuid", "UUID")? {
        let bytes = object.getattr("bytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
        if let Some(uuid) = bytes.as_bytes().first_chunk() {
            encoder.uuid(uuid);
            return Ok(());
        }
    }
    equal::refuse(object)?;
    if let Some(plain) = equal::plain_of(object)? {
        return push(encoder, &plain);
    }
    if let Some(plain) = plain_instance(object)? {
        push(encoder, &plain)?;
        // To NumPy, a time of another unit than microseconds has another hash, or is not equal.
        let is_of_numpy = !object.is_instance_of::<PyDate>() && plain.is_instance_of::<PyDate>();
        if is_of_numpy || equal::is_one_key(object, &plain)? {
            return Ok(());
        }
    }
    refuse(no_key(object)?)
}

/// The key of Python's own classes that an instance of a derived class, or a time of NumPy, may
/// equal.
fn plain_instance<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>, Refusal> {
    match foreign::instant(object)? {
        Some(Foreign::Object(plain)) => return Ok(Some(plain)),
        Some(Foreign::Nothing) => {
            return refuse("is NaT, which has no place in an order; use None or leave it out");
        }
        Some(Foreign::Inexact(why)) => return refuse(format!("cannot be a key: {why}")),
        None => {}
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        // Not by the iterator of the object's class.
        return Ok(Some(PyTuple::new(object.py(), tuple.iter())?.into_any()));
    }
    if let Some(class) = class_of_any(object, "decimal", "Decimal")? {
        return Ok(Some(class.call1((object,))?));
    }
    if let Some(class) = class_of_any(object, "uuid", "UUID")? {
        let keywords = PyDict::new(object.py());
        keywords.set_item("int", object.getattr("int")?)?;
        return Ok(Some(class.call((), Some(&keywords))?));
    }
    Ok(None)
}

/// Why an object of another class is no key, and what to use instead.
#[cold]
fn no_key(object: &Bound<'_, PyAny>) -> PyResult<String> {
    // With its module, since NumPy's bool is not Python's.
    let kind = object.get_type().fully_qualified_name()?;
    let kind = kind.to_str()?;
    let instead = if kind == "list" {
        "; use tuple(key)"
    } else if kind == "slice" {
        "; range(start, stop) gives the rows of a range of keys"
    } else if kind == "bytearray" || kind == "memoryview" {
        "; use bytes(key)"
    } else if kind == "datetime.time" {
        "; use key.isoformat()"
    } else if object.is_instance_of::<PyDelta>() {
        "; use key.total_seconds()"
    } else if kind == "numpy.timedelta64" {
        "; use key / numpy.timedelta64(1, \"s\"), which is a number of seconds"
    } else if class_of_any(object, "enum", "Enum")?.is_some() {
        "; use key.value, or key.name"
    } else if class_has(object, "__fspath__")? {
        "; use str(key)"
    } else if kind.starts_with("numpy.") && class_has(object, "tolist")? {
        "; use key.tolist(), which is of Python's own types"
    } else {
        ""
    };
    Ok(format!(
        "is of type {kind}; keys are str, bytes, int, float, bool, None, date, datetime, UUID, Decimal and tuples of \
         these{instead}"
    ))
}

/// The class of this name, if the object is an instance of it or of a subclass. The module is not
/// imported.
fn class_of_any<'py>(
    object: &Bound<'py, PyAny>,
    module: &str,
    class: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(module) = loaded(&PyString::new(object.py(), module)) else { return Ok(None) };
    let class = module.getattr(class)?;
    Ok(object.is_instance(&class)?.then_some(class))
}

fn push_int(encoder: &mut KeyEncoder, object: &Bound<'_, PyInt>) -> Result<(), Refusal> {
    if let Some(value) = text::small_int(object) {
        encoder.int(value);
        return Ok(());
    }
    let magnitude = object.call_method0("__abs__")?;
    let bits: usize = magnitude.call_method0("bit_length")?.extract()?;
    let bytes: Vec<u8> = magnitude.call_method1("to_bytes", (bits.div_ceil(8), "big"))?.extract()?;
    encoder.bigint(object.lt(0)?, &bytes).or_else(|error| of_key_error(&error))
}

fn of_key_error(error: &KeyError) -> Result<(), Refusal> {
    match error {
        KeyError::NotANumber => refuse("is NaN, which has no place in an order; use None or leave it out"),
        other => refuse(format!("cannot be a key: {other}")),
    }
}

/// Converts a stored key to a Python object.
///
/// # Errors
/// `CorruptRecord` if the bytes are not a key.
pub fn object_of<'py>(py: Python<'py>, bytes: &[u8], spelling: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match plain_key(bytes, spelling) {
        Some(PlainKey::Str(characters)) => {
            return text::utf8(py, characters).or_else(|error| {
                gil::release(error);
                general(py, bytes, spelling)
            });
        }
        Some(PlainKey::Int(value)) => return Ok(value.into_pyobject(py)?.into_any()),
        None => {}
    }
    general(py, bytes, spelling)
}

fn general<'py>(py: Python<'py>, bytes: &[u8], spelling: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let mut open: Vec<Vec<Bound<'py, PyAny>>> = Vec::new();
    let mut result = None;
    for part in KeyReader::new(bytes, spelling) {
        let part =
            part.map_err(|error| errors::corrupt_record(py, format!("a stored key is damaged: {error}")))?;
        let object = match part {
            KeyPart::BeginTuple => {
                open.push(Vec::new());
                continue;
            }
            KeyPart::EndTuple => PyTuple::new(py, open.pop().unwrap_or_default())?.into_any(),
            other => object_of_part(py, &other)?,
        };
        match open.last_mut() {
            Some(tuple) => tuple.push(object),
            None => result = Some(object),
        }
    }
    result.ok_or_else(|| errors::corrupt_record(py, "a stored key is empty".to_owned()))
}

fn object_of_part<'py>(py: Python<'py>, part: &KeyPart<'_>) -> PyResult<Bound<'py, PyAny>> {
    match part {
        KeyPart::Str(characters) => text::with_surrogates(py, characters),
        KeyPart::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        KeyPart::Bool(value) => Ok(PyBool::new(py, *value).to_owned().into_any()),
        KeyPart::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
        KeyPart::BigInt { negative, magnitude } => {
            let bytes = PyBytes::new(py, magnitude);
            let value = py.get_type::<PyInt>().call_method1("from_bytes", (bytes, "big"))?;
            if *negative { value.neg() } else { Ok(value) }
        }
        KeyPart::Float(value) => Ok(PyFloat::new(py, *value).into_any()),
        KeyPart::Complex(value) => Ok(PyComplex::from_doubles(py, *value, 0.0).into_any()),
        KeyPart::Decimal(written) => py.import("decimal")?.getattr("Decimal")?.call1((*written,)),
        KeyPart::Date(ordinal) => dates::new_date(py, *ordinal),
        KeyPart::Datetime { local, fold } => dates::new_datetime(py, local << 1 | i64::from(*fold), None),
        KeyPart::Aware { utc, offset, fold, zone } => {
            let zone = dates::zone_of(py, zone)?.cast_into::<pyo3::types::PyTzInfo>()?;
            dates::new_datetime(py, (utc + offset) << 1 | i64::from(*fold), Some(&zone))
        }
        KeyPart::Uuid(bytes) => {
            let keywords = PyDict::new(py);
            keywords.set_item("bytes", PyBytes::new(py, bytes))?;
            py.import("uuid")?.getattr("UUID")?.call((), Some(&keywords))
        }
        _ => Ok(py.None().into_bound(py)),
    }
}
