//! Updates and deletes the rows of a query.
//!
//! This is done in one transaction: first the keys of the rows are found in the state at its start,
//! then each row is changed (`edits.rs`).

use std::ops::{ControlFlow, Range};

use pellucid_query::stoppable::Pace;
use pellucid_query::walk::for_each;
use pellucid_query::{Fault, Walk};
use pellucid_record::Shapes;
use pellucid_store::{Row, StoreError, TableId, Transaction};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::query::edits::{Edits, KeyOf, Unfit, parsed};
use crate::query::handle::Query;
use crate::query::remote_change;
use crate::query::spec::changes_of;
use crate::query::target::QueryTarget;
use crate::query::words;
use crate::signals::{Signals, is_interrupted};
use crate::table::handle::Table;
use crate::transaction;
use crate::values::keys::Key;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Stop, Walked, Work, WorkResult, of_fault, over};

/// Implements `query.update(...)`: returns in how many rows a field was set.
pub fn update(
    query: &Bound<'_, Query>,
    changes: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<u64> {
    let py = query.py();
    let table = match &query.get().of {
        QueryTarget::Table(table) => table.bind(py),
        QueryTarget::Server(table) => return remote_change::update(query, table.bind(py), changes, fields),
    };
    for name in fields.into_iter().flat_map(PyDictMethods::keys) {
        words::refuse_double_underscores("update", &name.to_string())?;
    }
    let changes = changes.map(changes_of).transpose()?;
    let (paths, values) = parsed(table, changes.iter().chain(fields).flatten())?;
    if values.is_empty() {
        return Err(errors::type_error(
            "update() takes at least one field: update(age=F.age + 1)".to_owned(),
        ));
    }
    let core = table.get().core();
    let mut edits = Edits::new(&paths, values);
    in_each(
        (query, table),
        |transaction, id, key| {
            let done = edits.change_row((py, core), transaction, id, key)?;
            Ok(done.map_err(|error| edits.unfit(py, &error)))
        },
        |keys, some| check_class(table, keys, some),
    )
}

/// Implements `query.delete()`: returns how many rows there were.
pub fn delete(query: &Bound<'_, Query>) -> PyResult<u64> {
    match &query.get().of {
        QueryTarget::Table(table) => in_each(
            (query, table.bind(query.py())),
            |transaction, id, key| Ok(Ok(transaction.delete(id, key.code)?)),
            |_, _| Ok(()),
        ),
        QueryTarget::Server(table) => remote_change::delete(query, table.bind(query.py())),
    }
}

/// If the table has a class, checks that changed rows still make instances of it.
fn check_class(table: &Bound<'_, Table>, keys: &Keys, some: Range<usize>) -> PyResult<()> {
    if table.get().class.is_some() {
        let mut signals = Signals::new();
        for key in keys.some(some) {
            signals.step(table.py())?;
            Table::check_row(table, &Key { bytes: key.code.to_vec(), spelling: key.spelling.to_vec() })?;
        }
    }
    Ok(())
}

/// Calls `work` for each row and `after` with the keys of some rows, in one transaction. Returns
/// how many rows it changed.
fn in_each(
    (query, table): (&Bound<'_, Query>, &Bound<'_, Table>),
    mut work: impl FnMut(&mut Transaction, TableId, KeyOf<'_>) -> Result<Result<bool, Unfit>, StoreError>,
    after: impl Fn(&Keys, Range<usize>) -> PyResult<()>,
) -> PyResult<u64> {
    let py = query.py();
    let this = table.get();
    this.check_writable(py)?;
    transaction::within_batch(py, this.core(), || {
        let Some(source) = query.source(Walked::ByOne)? else { return Ok(0) };
        let keys = over(py, &TableRef::new(table), source, CollectKeys)?;
        let core = this.core();
        let (mut done, mut pace) = (0, Pace::new(is_interrupted));
        for start in (0..keys.len()).step_by(BATCH) {
            let batch = start..keys.len().min(start + BATCH);
            let broken = core.in_running(py, |transaction| {
                let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
                for key in keys.some(batch.clone()) {
                    match work(transaction, id, key)? {
                        // A row that a filter deleted meanwhile does not count, and one without a
                        // new value neither.
                        Ok(is_done) => done += u64::from(is_done),
                        Err(error) => return Ok(Some(Broken::Row(key, error))),
                    }
                    if let Err(fault) = pace.step() {
                        return Ok(Some(Broken::Off(fault)));
                    }
                }
                Ok(None)
            })?;
            match broken {
                None => {}
                Some(Broken::Off(fault)) => return Err(of_fault(py, &TableRef::new(table), fault)),
                Some(Broken::Row(key, unfit)) => return Err(unfit.raised(table, key)),
            }
            core.learn_uncommitted(py);
            after(&keys, batch)?;
        }
        Ok(done)
    })
}

/// Why not all rows were changed.
enum Broken<'a> {
    /// This row cannot be changed.
    Row(KeyOf<'a>, Unfit),
    /// A stop, or a failure of the walk.
    Off(Fault),
}

/// Rows between two calls of `learn_uncommitted` and `check_class`.
const BATCH: usize = 4096;

/// The keys of rows, one after another in one buffer: an allocation for each would be most of the
/// time that it takes to find them.
#[derive(Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// Where the code of each key ends, and where its spelling ends.
    ends: Vec<(usize, usize)>,
}

impl Keys {
    fn push(&mut self, row: &Row<'_>) {
        self.bytes.extend_from_slice(row.key);
        let code_end = self.bytes.len();
        self.bytes.extend_from_slice(row.spelling);
        self.ends.push((code_end, self.bytes.len()));
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = KeyOf<'_>> {
        self.some(0..self.len())
    }

    pub(super) fn some(&self, some: Range<usize>) -> impl Iterator<Item = KeyOf<'_>> {
        let before = some.start.checked_sub(1).and_then(|last| self.ends.get(last));
        let mut start = before.map_or(0, |(_, end)| *end);
        self.ends.get(some).unwrap_or_default().iter().map(move |(code_end, end)| {
            let code = self.bytes.get(start..*code_end).unwrap_or_default();
            let spelling = self.bytes.get(*code_end..*end).unwrap_or_default();
            start = *end;
            KeyOf { code, spelling }
        })
    }
}

pub(super) struct CollectKeys;

impl Work for CollectKeys {
    type Result = Keys;

    fn run<S: Shapes>(self, rows: &mut impl Walk, _shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut keys = Keys::default();
        for_each::<()>(rows, stop.check(), |row| {
            keys.push(&row);
            ControlFlow::Continue(())
        })?;
        Ok(keys)
    }
}

/// The keys of rows, and their records.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) keys: Keys,
    pub(super) records: Vec<Vec<u8>>,
}

/// Copies rows that are few.
pub(super) struct CopyRows;

impl Work for CopyRows {
    type Result = Copies;

    fn run<S: Shapes>(self, rows: &mut impl Walk, _shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut copies = Copies::default();
        for_each::<()>(rows, stop.check(), |row| {
            copies.keys.push(&row);
            copies.records.push(row.record.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(copies)
    }
}
