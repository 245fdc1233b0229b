//! Move columns of numbers and Arrow arrays between pellucid and other libraries.
//!
//! Invariants:
//!
//! 1. We write the elements of a NumPy array while we hold the GIL and no Python code runs. The
//!    array was made for us and is initialized.
//! 2. A capsule with one of Arrow's names holds the C struct of that name: only native code can
//!    make such a capsule, and its maker promises it. We move the contents out, so that no other
//!    owner uses or releases them; a struct that was taken before is marked as released.
//! 3. A stream's functions are called with the stream that they came from, by one thread at a time,
//!    before it is released.
//! 4. Every array is validated in full before one of its values is read. One thing cannot be
//!    validated from the data: that a buffer is as long as its array says. Its maker promises that.

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

/// How many elements one byte may stand for: 8 bools, plus as many nulls and structs beside them.
const ELEMENTS_PER_BYTE_MAX: usize = 16;
/// How many elements an array without any data may have.
const UNBACKED_COUNT_MAX: usize = 1 << 24;

/// Passes the elements of an array that was made for us to `fill`, which must call no Python code.
///
/// # Errors
/// The array is not one-dimensional, has other elements, or is read-only.
pub fn elements<T: Element>(array: &Bound<'_, PyAny>, fill: impl FnOnce(&mut [T])) -> PyResult<()> {
    let buffer = PyBuffer::<T>::get(array)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PySystemError::new_err(
            "a new array cannot be written to; this is a bug in pellucid, please report it",
        ));
    }
    if buffer.item_count() > 0 {
        // SAFETY: the exporter has that many initialized elements of this type, aligned for it, and
        // keeps them while the buffer lives; no other code reads or writes them meanwhile
        // (invariant 1).
        fill(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.item_count()) });
    }
    Ok(())
}

/// Arrow arrays from another library, read one after the other; all have one type.
pub struct Incoming {
    data_type: DataType,
    source: Source,
}

enum Source {
    Stream(FFI_ArrowArrayStream),
    Array(Option<FFI_ArrowArray>),
}

/// Why the next array cannot be read.
pub enum Broken {
    /// The stream reported an error.
    Raised(String),
    /// The stream or the array breaks the rules of Arrow's C interface.
    Damaged(String),
    /// A type that Arrow does not define: the column, and the type as the schema writes it.
    Unknown(String, String),
}

impl Incoming {
    /// Reads the object's `__arrow_c_stream__()`, or its `__arrow_c_array__()` as a single array.
    ///
    /// # Errors
    /// What that method raises; `TypeError` if it returns no capsule of the right name.
    pub fn of(object: &Bound<'_, PyAny>, is_stream: bool) -> PyResult<Result<Self, Broken>> {
        if is_stream {
            let given = object.call_method0("__arrow_c_stream__")?;
            // SAFETY: the struct of a stream; an empty struct replaces it in the capsule.
            let stream = unsafe { FFI_ArrowArrayStream::from_raw(contents(&given, c"arrow_array_stream")?) };
            return Ok(Self::of_stream(stream));
        }
        let given = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
        let (schema, array) = (given.get_item(0)?, given.get_item(1)?);
        let (schema, array) = (contents(&schema, c"arrow_schema")?, contents(&array, c"arrow_array")?);
        // SAFETY: the structs of a schema and an array; empty structs replace them in their
        // capsules.
        let (schema, array) = unsafe { (FFI_ArrowSchema::from_raw(schema), FFI_ArrowArray::from_raw(array)) };
        if array.is_released() {
            return Ok(Err(Broken::Damaged("its array was taken before".into())));
        }
        Ok(type_of(&schema).map(|data_type| Self { data_type, source: Source::Array(Some(array)) }))
    }

    fn of_stream(mut stream: FFI_ArrowArrayStream) -> Result<Self, Broken> {
        let Some(get_schema) = stream.get_schema() else {
            return Err(Broken::Damaged("its stream was taken before".into()));
        };
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: the stream's own function, which fills the schema (invariant 3).
        let status = unsafe { get_schema(&raw mut stream, &raw mut schema) };
        if status != 0 {
            return Err(raised(&mut stream, status));
        }
        Ok(Self { data_type: type_of(&schema)?, source: Source::Stream(stream) })
    }

    /// The next array; None after the last one. Runs code of the array's maker, which takes the GIL
    /// if it needs it.
    ///
    /// # Errors
    /// The stream failed, or its array is damaged.
    pub fn next(&mut self) -> Result<Option<ArrayRef>, Broken> {
        let array = match &mut self.source {
            Source::Array(array) => match array.take() {
                Some(array) => array,
                None => return Ok(None),
            },
            Source::Stream(stream) => {
                let Some(get_next) = stream.get_next() else { return Ok(None) };
                let mut array = FFI_ArrowArray::empty();
                // SAFETY: the stream's own function, which fills the array (invariant 3).
                let status = unsafe { get_next(&raw mut *stream, &raw mut array) };
                if status != 0 {
                    return Err(raised(stream, status));
                }
                if array.is_released() {
                    return Ok(None);
                }
                array
            }
        };
        // Arrow's import panics where the array breaks a rule that it relies on.
        let data_type = self.data_type.clone();
        match catch_unwind(AssertUnwindSafe(|| checked(array, data_type))) {
            Ok(Ok(array)) => Ok(Some(array)),
            Ok(Err(error)) => Err(Broken::Damaged(error.to_string())),
            Err(_) => Err(Broken::Damaged("its array is not of the type that its schema says".into())),
        }
    }
}

fn checked(array: FFI_ArrowArray, data_type: DataType) -> Result<ArrayRef, ArrowError> {
    if ends_below_zero(&array, &data_type) {
        return Err(ArrowError::InvalidArgumentError("an array's last offset is below zero".into()));
    }
    let read_as = without_nulls(&array, &data_type);
    // SAFETY: an array as the C interface defines it (invariant 2); `validate_full` checks the
    // content of its buffers before they are read (invariant 4).
    let mut data = unsafe { from_ffi_and_data_type(array, read_as.clone()) }?;
    if read_as != data_type {
        data = with_nulls(data, &data_type)?;
    }
    data.validate_full()?;
    check_backed(&data)?;
    Ok(make_array(data))
}

/// Whether the last offset of an array of strings or bytes is negative. Arrow's import uses it as
/// the length of a buffer before it validates anything.
fn ends_below_zero(array: &FFI_ArrowArray, data_type: &DataType) -> bool {
    let inner = |index: usize, kind: &DataType| {
        index < array.num_children() && ends_below_zero(array.child(index), kind)
    };
    match data_type {
        DataType::Utf8 | DataType::Binary => last_offset::<i32>(array).is_some_and(|end| end < 0),
        DataType::LargeUtf8 | DataType::LargeBinary => last_offset::<i64>(array).is_some_and(|end| end < 0),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => inner(0, field.data_type()),
        DataType::Struct(fields) => {
            fields.iter().enumerate().any(|(index, field)| inner(index, field.data_type()))
        }
        DataType::RunEndEncoded(_, values) => inner(1, values.data_type()),
        DataType::Dictionary(_, values) => {
            array.dictionary().is_some_and(|array| ends_below_zero(array, values))
        }
        _ => false,
    }
}

/// The last offset of an array of strings or bytes; None if the array needs no offsets.
fn last_offset<T: Copy>(array: &FFI_ArrowArray) -> Option<T> {
    let count = array.len().checked_add(array.offset()).filter(|count| *count > 0)?;
    if array.num_buffers() < 3 {
        return None;
    }
    let offsets = array.buffer(1).cast::<T>();
    if offsets.is_null() {
        return None;
    }
    // SAFETY: the buffer of offsets has one more offset than there are elements, as its maker
    // promises (invariant 4).
    Some(unsafe { offsets.add(count).read_unaligned() })
}

/// Refuses an array with more elements than its bytes can hold. Nulls, lists of size 0, structs
/// without fields and runs can have any number of elements in no bytes, but each row takes memory
/// here.
fn check_backed(data: &ArrayData) -> Result<(), ArrowError> {
    fn count(data: &ArrayData) -> usize {
        data.child_data().iter().map(count).fold(data.len(), usize::saturating_add)
    }
    let (count, size) = (count(data), data.get_buffer_memory_size());
    if count <= size.saturating_mul(ELEMENTS_PER_BYTE_MAX).saturating_add(UNBACKED_COUNT_MAX) {
        return Ok(());
    }
    Err(ArrowError::InvalidArgumentError(format!(
        "an array has {count} elements, but {size} bytes of data; hand it over in smaller batches"
    )))
}

/// Replaces null types that have a validity buffer by empty structs: polars gives nulls such a
/// buffer, and Arrow's import refuses it.
fn without_nulls(array: &FFI_ArrowArray, data_type: &DataType) -> DataType {
    let child = |index: usize, field: &FieldRef| {
        if index >= array.num_children() {
            return field.clone();
        }
        let read_as = without_nulls(array.child(index), field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(read_as))
    };
    match data_type {
        DataType::Null if array.num_buffers() == 1 => DataType::Struct(Fields::empty()),
        DataType::List(field) => DataType::List(child(0, field)),
        DataType::LargeList(field) => DataType::LargeList(child(0, field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(child(0, field), *size),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().enumerate().map(|(index, field)| child(index, field)).collect())
        }
        other => other.clone(),
    }
}

/// Gives the array its real type back: the nulls that `without_nulls` replaced.
fn with_nulls(data: ArrayData, data_type: &DataType) -> Result<ArrayData, ArrowError> {
    if *data_type == DataType::Null {
        return Ok(ArrayData::new_null(data_type, data.len()));
    }
    let types: Vec<&DataType> = match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            vec![field.data_type()]
        }
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => return Ok(data),
    };
    let children = data.child_data().iter().cloned().zip(types);
    let children = children.map(|(child, kind)| with_nulls(child, kind)).collect::<Result<_, _>>()?;
    data.into_builder().data_type(data_type.clone()).child_data(children).build()
}

/// The pointer in a capsule, which must have this name.
fn contents<T>(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<*mut T> {
    let wrong = |_| {
        let class = capsule.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!(
            "an Arrow object gave {class} in place of a capsule {:?}; it does not keep to the Arrow PyCapsule interface",
            name.to_string_lossy()
        ))
    };
    let found = capsule.cast::<PyCapsule>().map_err(PyErr::from).map_err(wrong)?;
    Ok(found.pointer_checked(Some(name)).map_err(wrong)?.as_ptr().cast())
}

/// The type of the rows that a schema describes.
fn type_of(schema: &FFI_ArrowSchema) -> Result<DataType, Broken> {
    let field = catch_unwind(AssertUnwindSafe(|| Field::try_from(schema)));
    match field {
        Ok(Ok(field)) => Ok(field.data_type().clone()),
        Ok(Err(error)) => Err(unknown(schema, "").unwrap_or_else(|| Broken::Damaged(error.to_string()))),
        Err(_) => Err(Broken::Damaged("its schema cannot be read".into())),
    }
}

/// Finds the first column whose type only polars defines.
fn unknown(schema: &FFI_ArrowSchema, within: &str) -> Option<Broken> {
    let found = catch_unwind(AssertUnwindSafe(|| {
        let name = schema.name().unwrap_or_default();
        let column = if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") };
        if schema.format().starts_with("_pl") {
            return Some(Broken::Unknown(column, schema.format().to_owned()));
        }
        schema.children().find_map(|child| unknown(child, &column))
    }));
    found.ok().flatten()
}

/// The stream's message about its last error.
fn raised(stream: &mut FFI_ArrowArrayStream, status: c_int) -> Broken {
    if let Some(get_last_error) = stream.get_last_error() {
        // SAFETY: the stream's own function (invariant 3); the string lives until the next call.
        let message = unsafe {
            let message = get_last_error(&raw mut *stream);
            (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().into_owned())
        };
        if let Some(message) = message {
            return Broken::Raised(message);
        }
    }
    Broken::Raised(format!("error number {status}"))
}
