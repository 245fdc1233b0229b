//! Cache the indexes of a table that queries may use, for one state of the catalog.

use std::sync::Arc;

use pellucid_query::exec::table_index::TableIndex;
use pellucid_store::{IndexInfo, StoreError, TableId};
use pyo3::prelude::*;

use crate::hot::gil::GilCell;

/// The indexes of one table, by name.
pub type Indexes = Arc<Vec<TableIndex>>;

/// A table, whether in a transaction, and the number of the catalog's state.
pub type State = (TableId, bool, u64);

/// The indexes found last, and the state in which they were found.
#[derive(Default)]
pub struct Seen(GilCell<Option<(State, Indexes)>>);

impl Seen {
    /// The cached indexes of this state of the catalog; otherwise those that `read` returns.
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
