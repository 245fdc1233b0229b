//! Keeps the indexes of a table that queries may use, parsed once for each state of the catalog.

use std::sync::Arc;

use pellucid_query::exec::table_index::TableIndex;
use pellucid_store::{IndexInfo, StoreError, TableId};
use pyo3::prelude::*;

use super::reader::TableReader;
use crate::errors;
use crate::hot::gil::GilCell;
use crate::table::Table;

/// The indexes of one table, by name.
pub type Indexes = Arc<Vec<TableIndex>>;

/// A table, whether in a transaction, and the number that stands for the state of the catalog.
pub type State = (TableId, bool, u64);

/// What was found last, and when.
#[derive(Default)]
pub struct Seen(GilCell<Option<(State, Indexes)>>);

/// The indexes of a table that may be used.
pub fn of(table: &Bound<'_, Table>, place: &TableReader) -> PyResult<Indexes> {
    let (py, this) = (table.py(), table.get());
    let found = match place {
        TableReader::Snapshot(snapshot, id) => {
            let seen = (*id, false, snapshot.catalog_version());
            this.indexes
                .get_or_read(py, seen, || snapshot.indexes(*id))
                .map_err(|error| errors::of_store(py, error))?
        }
        TableReader::Transaction(_) => this.core().in_running(py, |transaction| {
            // Those of a batch that is not over.
            transaction.flush_entries()?;
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Indexes::default()) };
            this.indexes.get_or_read(py, (id, true, transaction.catalog_serial()), || transaction.indexes(id))
        })?,
    };
    Ok(found)
}

impl Seen {
    /// The indexes that were seen in this state of the catalog, or those that `read` reads.
    pub fn get_or_read(
        &self,
        py: Python<'_>,
        state: State,
        read: impl FnOnce() -> Result<Vec<IndexInfo>, StoreError>,
    ) -> Result<Indexes, StoreError> {
        let seen = self.0.with(py, |seen| match seen {
            Some((known, indexes)) if *known == state => Some(Arc::clone(indexes)),
            _ => None,
        });
        if let Some(indexes) = seen {
            return Ok(indexes);
        }
        let indexes: Indexes = Arc::new(TableIndex::ready(read()?));
        let old = self.0.with(py, |seen| seen.replace((state, Arc::clone(&indexes))));
        drop(old);
        Ok(indexes)
    }
}
