//! Which indexes does a table have that a query may use?
//!
//! What the catalog says of them is read, and their definitions are parsed, once for each state of the catalog.

use std::sync::Arc;

use pellucid_query::expression::Node;
use pellucid_query::index::{Definition, Keys};
use pellucid_query::plan::Candidate;
use pellucid_store::{IndexInfo, StoreError, TableId};
use pyo3::prelude::*;

use super::reader::{TableReader, read};
use crate::errors;
use crate::hot::gil::GilCell;
use crate::table::Table;

/// An index that has all its rows.
pub struct Ready {
    /// What the catalog says of it.
    pub info: IndexInfo,
    /// What it is made of.
    pub definition: Definition,
    /// How its entries are taken apart.
    pub keys: Keys,
    /// What is to be known of it to choose a way, but for how many entries it has.
    pub candidate: Candidate,
}

/// The indexes of one table, by name.
pub type Indexes = Arc<Vec<Ready>>;

/// A table, whether in a transaction, and the number that stands for the state of the catalog.
pub type State = (TableId, bool, u64);

/// What was found last, and when.
#[derive(Default)]
pub struct Seen(GilCell<Option<(State, Indexes)>>);

impl Ready {
    /// What the catalog says of an index, made use of.
    pub fn of(info: IndexInfo) -> Option<Self> {
        // One that a newer version has written, and this one does not understand, is not used.
        let definition = Definition::parse(&info.definition).ok()?;
        let candidate = Candidate {
            name: info.name.to_string(),
            parts: definition.parts.clone(),
            condition: definition.condition.clone(),
            entries: 0,
            is_unique: info.is_unique,
        };
        Some(Self { keys: Keys::of(&definition), definition, candidate, info })
    }
}

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
        let ready = read()?.into_iter().filter(|info| info.building.is_none()).filter_map(Ready::of);
        let indexes: Indexes = Arc::new(ready.collect());
        let old = self.0.with(py, |seen| seen.replace((state, Arc::clone(&indexes))));
        drop(old);
        Ok(indexes)
    }
}

/// What is to be known of each to choose among them; entries are counted of those alone of which conditions or order name a part.
pub fn candidates(
    table: &Bound<'_, Table>,
    place: &TableReader,
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

impl TableReader {
    /// How many entries an index has.
    pub fn entry_count(&self, table: &Bound<'_, Table>, index: TableId) -> PyResult<u64> {
        read!(self, table, |rows, _id| rows.count(index))
    }
}
