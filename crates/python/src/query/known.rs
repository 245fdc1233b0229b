//! What does the store tell of a table's rows and entries, for a way to be chosen?

use pellucid_query::expression::Node;
use pellucid_query::plan::Statistics;
use pellucid_query::{Evaluator, RowKey};
use pellucid_store::{Range, Row, StoreError, TableId};
use pyo3::prelude::*;

use super::indexes::Indexes;
use super::source::Place;
use crate::errors;
use crate::table::Table;

/// What the store tells of a table's rows and entries.
pub struct Known<'a, 'py> {
    table: &'a Bound<'py, Table>,
    place: &'a Place,
    indexes: &'a Indexes,
    sample: Option<Vec<(RowKey, Box<[u8]>)>>,
    failed: PyResult<()>,
}

impl<'a, 'py> Known<'a, 'py> {
    /// Of a table and its indexes.
    pub fn new(table: &'a Bound<'py, Table>, place: &'a Place, indexes: &'a Indexes) -> Self {
        Self { table, place, indexes, sample: None, failed: Ok(()) }
    }

    /// The first failure there was.
    pub fn finish(self) -> PyResult<()> {
        self.failed
    }

    /// What was asked for, or what it is without an answer; the first failure is kept.
    fn or_note<T>(&mut self, found: PyResult<T>, otherwise: T) -> T {
        found.unwrap_or_else(|error| {
            if self.failed.is_ok() {
                self.failed = Err(error);
            }
            otherwise
        })
    }
}

impl Statistics for Known<'_, '_> {
    fn entries(&mut self, index: usize, range: &Range) -> u64 {
        let id = self.indexes.get(index).map(|ready| ready.info.id);
        let found = self.place.estimate(self.table, id, range);
        self.or_note(found, 0)
    }

    fn has_any(&mut self, index: usize, range: &Range) -> bool {
        let (Some(ready), Place::Snapshot(snapshot, _)) = (self.indexes.get(index), self.place) else {
            return true;
        };
        let found = snapshot.with_first(ready.info.id, range, false, |_| ());
        let found = found.map_err(|error| errors::of_store(self.table.py(), error));
        self.or_note(found, Some(())).is_some()
    }

    fn sample(&mut self, condition: &Node) -> (usize, usize) {
        let Ok(mut evaluator) = Evaluator::new(condition) else { return (0, 0) };
        if self.sample.is_none() {
            let sample = self.place.sample(self.table);
            self.sample = Some(self.or_note(sample, Vec::new()));
        }
        let rows = self.sample.as_deref().unwrap_or_default();
        let names = &*self.table.get().core().names;
        let is_true = |(key, record): &&(RowKey, Box<[u8]>)| {
            let row = Row { key: &key.code, spelling: &key.spelling, record };
            evaluator.is_true(&row, names).unwrap_or(false)
        };
        (rows.iter().filter(is_true).count(), rows.len())
    }
}

impl Place {
    /// How many rows the table has.
    pub fn count(&self, table: &Bound<'_, Table>) -> PyResult<u64> {
        let (py, this) = (table.py(), table.get());
        match self {
            Self::Snapshot(snapshot, id) => snapshot.count(*id).map_err(|error| errors::of_store(py, error)),
            Self::Transaction => {
                this.core().in_running(py, |transaction| match this.id_in_transaction(py, transaction)? {
                    Some(id) => transaction.count(id),
                    None => Ok(0),
                })
            }
        }
    }

    /// How many rows are in a range of the table, or entries in one of an index, roughly. In a transaction it is what was committed before that
    /// tells; of an index that this has made, nothing does.
    pub fn estimate(&self, table: &Bound<'_, Table>, index: Option<TableId>, range: &Range) -> PyResult<u64> {
        let (py, this) = (table.py(), table.get());
        let (snapshot, of) = match self {
            Self::Snapshot(snapshot, id) => (snapshot.clone(), Some(*id)),
            Self::Transaction => {
                let of = this.core().in_running(py, |transaction| this.id_in_transaction(py, transaction))?;
                (this.core().snapshot(py)?, of)
            }
        };
        let Some(id) = index.or(of) else { return Ok(0) };
        match snapshot.estimate(id, range) {
            Ok(count) => Ok(count),
            Err(StoreError::NoSuchTable { .. }) => {
                let count = this.core().in_running(py, |transaction| transaction.count(id))?;
                Ok(count.div_ceil(3))
            }
            Err(error) => Err(errors::of_store(py, error)),
        }
    }

    /// Some rows from all over the table. In a transaction, as they were before it.
    fn sample(&self, table: &Bound<'_, Table>) -> PyResult<Vec<(RowKey, Box<[u8]>)>> {
        const PARTS: usize = 16;
        const ROWS_EACH: usize = 8;
        let (py, this) = (table.py(), table.get());
        let (snapshot, id) = match self {
            Self::Snapshot(snapshot, id) => (snapshot.clone(), Some(*id)),
            Self::Transaction => {
                let id = this.core().in_running(py, |transaction| this.id_in_transaction(py, transaction))?;
                (this.core().snapshot(py)?, id)
            }
        };
        let Some(id) = id else { return Ok(Vec::new()) };
        let take = || {
            let mut rows = Vec::new();
            let parts = snapshot.scan(id, &Range::ALL, false)?.parts(PARTS)?;
            let each = PARTS * ROWS_EACH / parts.len().max(1);
            for mut part in parts {
                for _ in 0..each {
                    let Some(row) = part.next()? else { break };
                    let key = RowKey { code: row.key.into(), spelling: row.spelling.into() };
                    rows.push((key, row.record.into()));
                }
            }
            Ok(rows)
        };
        take().map_err(|error| errors::of_store(py, error))
    }
}
