//! Which indexes does a table have that a query may use?
//!
//! What the catalog says of them is read, and their definitions are parsed, once for each state of the catalog.

use pellucid_query::expression::Node;
use pellucid_query::plan::Candidate;
use pellucid_store::TableId;
use pyo3::prelude::*;

use crate::query::source::Place;
use crate::store_errors;
use crate::table::handle::Table;
pub use crate::table::ready_indexes::Indexes;
pub use crate::table::ready_indexes::Ready;

/// The indexes of a table that may be used.
pub fn of(table: &Bound<'_, Table>, place: &Place) -> PyResult<Indexes> {
    let (py, this) = (table.py(), table.get());
    let found = match place {
        Place::Snapshot(snapshot, id) => {
            let seen = (*id, false, snapshot.catalog_version());
            this.indexes
                .get_or_read(py, seen, || snapshot.indexes(*id))
                .map_err(|error| store_errors::of_store(py, error))?
        }
        Place::Transaction => this.core().in_running(py, |transaction| {
            // Those of a batch that is not over.
            transaction.flush_entries()?;
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Indexes::default()) };
            this.indexes.get_or_read(py, (id, true, transaction.catalog_serial()), || transaction.indexes(id))
        })?,
    };
    Ok(found)
}

/// What is to be known of each to choose among them; entries are counted of those alone of which conditions or order name a part.
pub fn candidates(
    table: &Bound<'_, Table>,
    place: &Place,
    indexes: &[Ready],
    (conditions, order): (&[Node], &[(Node, bool)]),
) -> PyResult<Vec<Candidate>> {
    let mut candidates = Vec::with_capacity(indexes.len());
    for ready in indexes {
        let is_named = ready.candidate.is_named(conditions, order);
        let entries = if is_named { place.entry_count(table, ready.info.id)? } else { 0 };
        candidates.push(Candidate { entries, ..ready.candidate.clone() });
    }
    Ok(candidates)
}

impl Place {
    /// How many entries an index has.
    pub fn entry_count(&self, table: &Bound<'_, Table>, index: TableId) -> PyResult<u64> {
        match self {
            Self::Snapshot(snapshot, _) => {
                snapshot.count(index).map_err(|error| store_errors::of_store(table.py(), error))
            }
            Self::Transaction => {
                table.get().core().in_running(table.py(), |transaction| transaction.count(index))
            }
        }
    }
}
