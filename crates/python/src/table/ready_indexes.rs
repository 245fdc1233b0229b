//! Cache the indexes of a table that queries may use, for one state of the catalog.

use std::sync::Arc;

use pellucid_query::index::{Definition, Keys};
use pellucid_query::plan::Candidate;
use pellucid_store::{IndexInfo, StoreError, TableId};
use pyo3::prelude::*;

use crate::hot::gil::GilCell;

/// An index that is complete.
pub struct Ready {
    /// Its entry in the catalog.
    pub info: IndexInfo,
    /// Its parts and condition.
    pub definition: Definition,
    /// How to split its entries.
    pub keys: Keys,
    /// The data for choosing an access path, except the number of entries.
    pub candidate: Candidate,
}

/// The indexes of one table, by name.
pub type Indexes = Arc<Vec<Ready>>;

/// A table, whether in a transaction, and the number of the catalog's state.
pub type State = (TableId, bool, u64);

/// The indexes found last, and the state in which they were found.
#[derive(Default)]
pub struct Seen(GilCell<Option<(State, Indexes)>>);

impl Ready {
    /// Parses the catalog's entry of an index.
    pub fn of(info: IndexInfo) -> Option<Self> {
        // An index with a definition of a newer version, which this version cannot parse, is not
        // used.
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
        let ready = read()?.into_iter().filter(|info| info.building.is_none()).filter_map(Ready::of);
        let indexes: Indexes = Arc::new(ready.collect());
        let old = self.0.with(py, |seen| seen.replace((state, Arc::clone(&indexes))));
        drop(old);
        Ok(indexes)
    }
}
