//! Rows that come as columns of cells, as those of a CSV, each column with its type.
//!
//! A table appends them without a dict for each row. For all else they are an iterable of dicts.

use pellucid_record::encode::Encoder;
use pellucid_record::layout::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyIterator, PyList, PyString};

use crate::errors;
use crate::hot::text;
use crate::put::cell_kinds::{bool_of, each, float_of, int_of, trimmed};
use crate::put::write::Appending;
use crate::signals::Signals;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::encode::{Encoded, OVERFLOW_SIZE_MIN};

/// Rows whose columns have names and types. It is what the import of CSV stores.
///
/// >>> from pellucid._native import CellRows
/// >>> list(CellRows(["a", "b"], ["int", "text"], [["1", ""], ["x", "y"]], None))
/// [{'a': 1, 'b': 'x'}, {'b': 'y'}]
#[pyclass(frozen, module = "pellucid", name = "CellRows")]
pub struct CellRows {
    names: Vec<Py<PyString>>,
    /// The cells of row after row.
    cells: Vec<Cell>,
    count: usize,
}

enum Cell {
    /// A field that the row does not have.
    Missing,
    Int(i64),
    Float(f64),
    Bool(bool),
    Object(Py<PyAny>),
}

/// How the cells of a column are read.
enum Reading {
    Text,
    Parsed(fn(&[u8]) -> Option<Cell>),
    Value,
}

impl Reading {
    fn of(kind: &str) -> Self {
        match kind {
            "text" => Self::Text,
            "int" => Self::Parsed(|cell| int_of(cell).map(Cell::Int)),
            "float" => Self::Parsed(|cell| float_of(cell).map(Cell::Float)),
            "bool" => Self::Parsed(|cell| bool_of(cell).map(Cell::Bool)),
            _ => Self::Value,
        }
    }
}

#[pymethods]
impl CellRows {
    /// Rows of columns, each a list or tuple with a cell for each row. The kind of a column is
    /// "text", "int", "float" or "bool", and an empty cell is a field that its row does not have.
    /// With any other kind, a column has values, and `missing` in place of those that are missing.
    ///
    /// Raises `ValueError` for a cell that is not of its kind, and for an int of more than 64 bits.
    #[new]
    #[pyo3(signature = (names, kinds, columns, missing, /))]
    fn new(
        names: Vec<Py<PyString>>,
        kinds: Vec<String>,
        columns: Vec<Bound<'_, PyAny>>,
        missing: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (count, width) = (columns.first().map_or(Ok(0), PyAnyMethods::len)?, names.len());
        if width != kinds.len() || width != columns.len() {
            return Err(errors::value_error("each column has a name and a kind"));
        }
        let mut cells: Vec<Cell> = (0..count * width).map(|_| Cell::Missing).collect();
        for (at, (kind, column)) in kinds.iter().zip(&columns).enumerate() {
            if column.len()? != count {
                return Err(errors::value_error("each column has a cell for each row"));
            }
            let reading = Reading::of(kind);
            let mut places = cells.iter_mut().skip(at).step_by(width);
            each(column, |cell| {
                let read = Cell::read(&reading, cell, missing)?;
                if let Some(place) = places.next() {
                    *place = read;
                }
                Ok(())
            })?;
        }
        Ok(Self { names, cells, count })
    }

    fn __len__(&self) -> usize {
        self.count
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let dicts = self.rows().map(|row| self.dict(py, row)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, dicts)?.try_iter()
    }
}

impl CellRows {
    fn rows(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunks_exact(self.names.len().max(1))
    }

    fn dict<'py>(&self, py: Python<'py>, row: &[Cell]) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, cell) in self.names.iter().zip(row) {
            match cell {
                Cell::Missing => {}
                Cell::Int(value) => dict.set_item(name, PyInt::new(py, *value))?,
                Cell::Float(value) => dict.set_item(name, PyFloat::new(py, *value))?,
                Cell::Bool(value) => dict.set_item(name, PyBool::new(py, *value))?,
                Cell::Object(value) => dict.set_item(name, value)?,
            }
        }
        Ok(dict)
    }
}

impl Cell {
    fn read(reading: &Reading, object: Bound<'_, PyAny>, missing: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Reading::Value = reading {
            return Ok(if object.is(missing) { Self::Missing } else { Self::Object(object.unbind()) });
        }
        let cell = object.cast::<PyString>()?;
        let ascii = text::ascii(cell);
        if ascii == Some(b"") {
            return Ok(Self::Missing);
        }
        let Reading::Parsed(parse) = reading else { return Ok(Self::Object(object.unbind())) };
        parse(trimmed(ascii.unwrap_or_default()))
            .ok_or_else(|| errors::value_error(format!("{cell:?} is not of the type of its column")))
    }

    /// Writes the cell; false if it is missing, or has a value that a CSV rarely has.
    fn write(&self, py: Python<'_>, encoder: &mut Encoder) -> bool {
        match self {
            Self::Missing => return false,
            Self::Int(value) => encoder.int(*value),
            Self::Float(value) => encoder.float(*value),
            Self::Bool(value) => encoder.bool(*value),
            Self::Object(value) => {
                let Ok(value) = value.bind(py).cast_exact::<PyString>() else { return false };
                let Ok(characters @ (text::Utf8::Ascii(_) | text::Utf8::Encoded(_))) =
                    text::characters(value)
                else {
                    return false;
                };
                if characters.bytes().len() >= OVERFLOW_SIZE_MIN {
                    return false;
                }
                encoder.str(characters.bytes());
            }
        }
        true
    }
}

/// `table.extend(rows)`; returns how many rows there were.
pub fn extend(table: &Bound<'_, Table>, rows: &CellRows) -> PyResult<usize> {
    let (py, this) = (table.py(), table.get());
    transaction::within_batch(py, this.core(), || {
        let mut appending = Appending::new(table)?;
        let mut signals = Signals::new();
        let mut plain =
            Encoded { encoder: Box::default(), pending: Vec::new(), overflow: Vec::new(), used: Vec::new() };
        let names: Vec<String> =
            rows.names.iter().map(|name| name.bind(py).extract()).collect::<PyResult<_>>()?;
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut shape = None;
        for row in rows.rows() {
            signals.step(py)?;
            let is_whole = !row.iter().any(|cell| matches!(cell, Cell::Missing)) && this.class.is_none();
            if is_whole && shape.is_none() {
                shape = Some(appending.shape(&names)?);
            }
            if is_whole
                && let Some(Some(shape)) = shape
                && write(py, row, shape, &mut plain.encoder)
            {
                appending.put(&plain)?;
                continue;
            }
            appending.append(rows.dict(py, row)?.as_any())?;
        }
        Ok(appending.count())
    })
}

/// Writes a whole row as a record of a shape; false if it has to go through a dict.
fn write(py: Python<'_>, row: &[Cell], shape: u32, encoder: &mut Encoder) -> bool {
    encoder.clear();
    let width = encoder.last_width_log2();
    encoder.begin_as_wide(Kind::Shaped, row.len() as u32, shape, width).is_ok()
        && row.iter().all(|cell| cell.write(py, encoder))
        && encoder.end().is_ok()
}
