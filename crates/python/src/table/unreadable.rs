//! Find the rows that cannot be read, and count the pickles.
//!
//! An object whose class was moved, renamed or never imported raises only when it is read. These
//! walks read all rows at once, so that a program can look before it depends on them.

use pellucid_record::pickles::pickle_count;
use pellucid_store::{Range, StoreError};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::core::Core;
use crate::errors;
use crate::hot::gil::GilRc;
use crate::signals::Signals;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::typed::without_class;
use crate::values::row::Row;
use crate::values::table_ref::TableRef;
use crate::values::{bytes, keys};

/// How many pickles the rows of all tables have.
///
/// # Errors
/// Errors of the store; `CorruptRecord`.
pub fn pickles_of(py: Python<'_>, core: &Core) -> PyResult<u64> {
    let snapshot = core.snapshot(py)?;
    let (mut count, mut signals) = (0, Signals::by_turns());
    for (name, table) in snapshot.tables().map_err(|error| store_errors::of_store(py, error))? {
        let scan = snapshot.scan(table, &Range::ALL, false);
        let mut scan = scan.map_err(|error| store_errors::of_store(py, error))?;
        while let Some(row) = scan.next().map_err(|error| store_errors::of_store(py, error))? {
            let found = pickle_count(row.record, &*core.names);
            count += found.map_err(|error| {
                errors::corrupt_record(py, format!("a record of table {name:?} is damaged: {error}"))
            })?;
            signals.step(py)?;
        }
    }
    Ok(count)
}

/// The keys of the rows that cannot be decoded, each with the exception; with `validates`, also of
/// those that the class of the table would refuse.
///
/// # Errors
/// Errors of the store, and what signal handlers raise.
pub fn of_table<'py>(slf: &Bound<'py, Table>, validates: bool) -> PyResult<Bound<'py, PyList>> {
    let (py, this) = (slf.py(), slf.get());
    if validates && this.class.is_none() {
        return Err(without_class(&this.name(py)));
    }
    let found = PyList::empty(py);
    let snapshot = this.snapshot(py)?;
    let Some(id) = this.id_in(py, &snapshot)? else { return Ok(found) };
    let scan = snapshot.scan(id, &Range::ALL, false);
    let mut scan = scan.map_err(|error| store_errors::of_store(py, error))?;
    let mut signals = Signals::by_turns();
    while let Some(name) = scan.next_name().map_err(|error| store_errors::of_store(py, error))? {
        let (code, spelling) = (name.key.to_vec(), name.spelling.to_vec());
        let read = match scan.last_row() {
            Ok(None) => Ok(()),
            Ok(Some(row)) => {
                let (names, validity) = (this.core.names.clone(), this.row_gate(py));
                let table = Some(TableRef::new(slf));
                let row = Row::owned(row.record, row.key, names, validity, table, this.why_frozen());
                let stored = GilRc::new(row.spelled(py, &spelling));
                stored.attach(py, snapshot.clone());
                match &this.class {
                    None => bytes::plain_of_row(py, &stored).map(drop),
                    Some(class) => class.read(py, &stored, validates),
                }
            }
            // A packed record that is damaged, or its dictionary.
            Err(error @ StoreError::Corrupt { .. }) => Err(store_errors::of_store(py, error)),
            Err(error) => return Err(store_errors::of_store(py, error)),
        };
        if let Err(error) = read {
            if !error.is_instance_of::<PyException>(py) || error.is_instance_of::<PyMemoryError>(py) {
                return Err(error);
            }
            // Its frames would keep the rows that were read.
            error.set_traceback(py, None);
            let key = keys::object_of(py, &code, &spelling)?;
            found.append((key, error.into_value(py)))?;
        }
        signals.step(py)?;
    }
    Ok(found)
}
