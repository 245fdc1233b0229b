//! The indexes of a table that queries may use, kept for each state of the catalog.

use std::sync::Arc;

use pellucid_query::index::{Definition, Keys};
use pellucid_query::plan::Candidate;
use pellucid_store::{IndexInfo, StoreError, TableId};
use pyo3::prelude::*;

use crate::hot::gil::GilCell;

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
