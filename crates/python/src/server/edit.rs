//! A change that a table keeps back, to send many changes to the server at once.
//!
//! The record shows the change already. If the server refuses it, since another client has written
//! the row before, the change is made again in the record that is stored now.

use pellucid_record::large_ids::large_ids;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::server::calls::applied;
use crate::server::codec::ServerValidity;
use crate::server::stored;
use crate::server::table::ServerTable;
use crate::values::change::{self, Edit, Fit};
use crate::values::row::Row;
use crate::values::row_errors;
use crate::values::table_ref::TableRef;

/// One change of one row, with all that is needed to make it again.
#[pyclass(frozen, module = "pellucid", name = "ServerEdit")]
pub struct ServerEdit {
    table: Py<ServerTable>,
    key: Py<PyBytes>,
    edit: Edit,
    records: Vec<Vec<u8>>,
    /// What the record showed before the change.
    shown: Vec<u8>,
}

impl ServerEdit {
    /// The change `edit` with these encoded values, of a record that was read as `shown`.
    pub fn new(
        table: &Bound<'_, ServerTable>,
        key: &Bound<'_, PyBytes>,
        edit: &Edit,
        records: &[Vec<u8>],
        shown: &[u8],
    ) -> Self {
        Self {
            table: table.clone().unbind(),
            key: key.clone().unbind(),
            edit: edit.clone(),
            records: records.to_vec(),
            shown: shown.to_vec(),
        }
    }
}

#[pymethods]
impl ServerEdit {
    /// How many bytes it keeps.
    #[getter]
    fn size(&self) -> usize {
        self.shown.len() + self.records.iter().map(Vec::len).sum::<usize>()
    }

    /// Makes the change in a stored value, and returns the new value and the ids of its large
    /// values.
    ///
    /// Raises what assigning the field would, if the change means something else there.
    #[pyo3(signature = (value, validity, /))]
    fn again<'py>(
        &self,
        py: Python<'py>,
        value: PyBackedBytes,
        validity: &ServerValidity,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<i64>)> {
        let table = self.table.bind(py);
        let codec = table.get().codec.get();
        let (names, key) = (codec.names.clone(), self.key.bind(py).as_bytes());
        let record = stored::record_of(&value);
        // Errors name the row by it.
        let row = Row::owned(
            record,
            key,
            names.clone(),
            validity.validity.clone(),
            Some(TableRef::new(table)),
            None,
        );
        let corrupt = |error| row_errors::corrupt_row(py, &row, &error);
        let fit = self.edit.fits(record, &self.shown, &*names).map_err(corrupt)?;
        if fit != Fit::Fits {
            return Err(change::of_fit(py, &row, &self.edit, fit));
        }
        let values: Vec<&[u8]> = self.records.iter().map(Vec::as_slice).collect();
        let patched = applied(table, record, &self.edit, &values)?
            .map_err(|error| change::of_patch(py, &row, &self.edit, &error))?;
        let kept = large_ids(&patched.record, &*names).map_err(corrupt)?;
        let value = PyBytes::new(py, &stored::value_of(codec.dictionary().len(), &patched.record));
        Ok((value, kept.into_iter().map(u64::cast_signed).collect()))
    }
}
