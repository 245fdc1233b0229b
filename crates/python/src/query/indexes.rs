//! Finds the indexes of a table that queries may use, as a reader sees them.

use pyo3::prelude::*;

use crate::query::reader::TableReader;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::ready_indexes::Indexes;

/// The indexes of a table that queries may use.
pub fn of(table: &Bound<'_, Table>, place: &TableReader) -> PyResult<Indexes> {
    let (py, this) = (table.py(), table.get());
    let found = match place {
        TableReader::Snapshot(snapshot, id) => {
            let seen = (*id, false, snapshot.catalog_version());
            this.indexes
                .get_or_read(py, seen, || snapshot.indexes(*id))
                .map_err(|error| store_errors::of_store(py, error))?
        }
        TableReader::Transaction(_) => this.core().in_running(py, |transaction| {
            // Write the entries of a batch that is not finished.
            transaction.flush_entries()?;
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Indexes::default()) };
            let state = match transaction.catalog_version() {
                Some(version) => (id, false, version),
                None => (id, true, transaction.catalog_serial()),
            };
            this.indexes.get_or_read(py, state, || transaction.indexes(id))
        })?,
    };
    Ok(found)
}
