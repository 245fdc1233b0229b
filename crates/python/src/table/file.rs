//! One value as a binary file: `Table.open`.

use pellucid_record::layout::{SCALAR_HEAD_SIZE, tag};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyTuple};

use crate::errors;
use crate::put::write;
use crate::table::buffer::buffer;
use crate::table::handle::Table;
use crate::values::encode::OVERFLOW_SIZE_MIN;
use crate::values::keys;
use crate::values::row::{Holder, Span};

/// What a record that is bytes begins with (docs/format.md, "A scalar at the root").
const HEAD: [u8; SCALAR_HEAD_SIZE] = [0x91, tag::BYTES];

/// `table.open(key, mode, path)`.
///
/// # Errors
/// As `buffer` for a reader; `ReadOnly` and what a key that cannot be stored raises for a writer;
/// `ValueError` for another mode.
pub fn open<'py>(
    slf: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    mode: &str,
    path: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (slf.py(), slf.get());
    let files = || py.import("pellucid.files");
    match (mode, path) {
        ("rb", _) => files()?.call_method1("ValueReader", (buffer(slf, key, path)?,)),
        ("wb", None) => {
            this.check_writable(py)?;
            if this.class.is_some() {
                return Err(errors::type_error(format!(
                    "the rows of table {:?} are instances of a class, and a file is bytes; open the table without type=",
                    this.name(py)
                )));
            }
            keys::try_key_of(key).map_err(|refusal| refusal.raised(&this.name(py), key))?;
            let (table, key) = (slf.clone().unbind(), key.clone().unbind());
            let store =
                move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
                    let py = arguments.py();
                    store(table.bind(py), key.bind(py), &arguments.get_item(0)?)
                };
            let store = PyCFunction::new_closure(py, None, None, store)?;
            let folder = this.core.store.path().and_then(|path| path.parent().map(std::path::Path::to_owned));
            files()?.call_method1("ValueWriter", (store, folder, PyBytes::new(py, &HEAD)))
        }
        ("wb", Some(_)) => Err(errors::value_error(
            "open(mode=\"wb\") writes a value as a whole, not a field of one; assign the field, or give the bytes a key",
        )),
        _ => Err(errors::value_error(format!(
            "mode {mode:?} is not \"rb\" or \"wb\": a value is read, or written as a whole"
        ))),
    }
}

/// Stores a buffer that begins with `HEAD`.
fn store<'py>(table: &Bound<'py, Table>, key: &Bound<'py, PyAny>, whole: &Bound<'py, PyAny>) -> PyResult<()> {
    let buffer: PyBuffer<u8> = PyBuffer::get(whole)?;
    let span = Span::of_buffer(&buffer);
    let holder = Holder::Buffer(buffer);
    let record = span.bytes(&holder);
    match record.get(HEAD.len()..) {
        Some(bytes) if bytes.len() < OVERFLOW_SIZE_MIN => {
            write::put(table, key, PyBytes::new(table.py(), bytes).as_any())
        }
        _ => write::put_record(table, key, record),
    }
}
