//! How are the rows of a query changed or deleted?
//!
//! In one transaction: the keys of its rows are found in the state at its start, then each is changed. New values are computed in
//! the row as it was; a scalar that fits its slot is written over the old one.

use std::ops::ControlFlow;

use pellucid_query::expression::Kind;
use pellucid_query::walk::for_each;
use pellucid_query::{Column, Fault, RowKey, Step, Walk};
use pellucid_record::patch::{self, Change, PatchError};
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Shapes, Value};
use pellucid_store::{Row, StoreError, TableId, Transaction};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use super::Query;
use crate::errors;
use crate::expression::{self, Expression};
use crate::table::Table;
use crate::transaction;
use crate::work::{Queried, Stop, Work, over};

/// `query.update(...)`: how many rows there were.
pub fn update(
    query: &Bound<'_, Query>,
    changes: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<u64> {
    let changes = changes.map(changes_of).transpose()?;
    let mut edits = Vec::new();
    for (place, value) in changes.iter().chain(fields).flatten() {
        let node = if value.is_instance_of::<Expression>() {
            expression::node_of(&value)?
        } else {
            pellucid_query::Expression::literal(expression::literal_of(&value)?)
        };
        let column = Column::new(&node).map_err(|error| errors::value_error(error.to_string()))?;
        let constant = match node.kind() {
            Kind::Literal(value) => Some(record_of(value)?),
            _ => None,
        };
        edits.push(Edit { path: crate::column::steps_of(&place)?, value: NewValue { column, constant } });
    }
    if edits.is_empty() {
        return Err(errors::type_error(
            "update() takes at least one field: update(age=F.age + 1)".to_owned(),
        ));
    }
    let after = |keys: &[RowKey]| check_class(query.table(), keys);
    in_each(query, |transaction, id, key| change_row(transaction, id, key, &mut edits), after)
}

/// The dict that `update` was given.
fn changes_of<'py>(changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = changes.py();
    if let Ok(dict) = changes.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    match changes.cast::<PyMapping>() {
        Ok(_) => Ok(py.get_type::<PyDict>().call1((changes,))?.cast_into()?),
        Err(_) => Err(errors::type_error(format!(
            "update() takes a dict of field paths and values, or fields by name, as in update(age=F.age + 1), not {}",
            changes.get_type().name()?
        ))),
    }
}

/// `query.delete()`: how many rows there were.
pub fn delete(query: &Bound<'_, Query>) -> PyResult<u64> {
    in_each(query, |transaction, id, key| transaction.delete(id, &key.code).map(Ok), |_| Ok(()))
}

/// A field, and what it becomes.
struct Edit {
    path: Vec<Step>,
    value: NewValue,
}

struct NewValue {
    column: Column,
    /// The record of its new value, where that is the same for all rows.
    constant: Option<Vec<u8>>,
}

fn borrowed(path: &[Step]) -> Vec<pellucid_record::path::Step<'_>> {
    path.iter().map(Step::borrowed).collect()
}

type Done = Result<Result<bool, PatchError>, StoreError>;

/// Where a table has a class, its changed rows still make instances of it.
fn check_class(table: &Bound<'_, Table>, keys: &[RowKey]) -> PyResult<()> {
    if table.get().class.is_some() {
        for key in keys {
            table.get_item(crate::keys::object_of(table.py(), &key.code, &key.spelling)?)?;
        }
    }
    Ok(())
}

/// Does `work` with each row and `after` with the keys of some, in one transaction; how many rows there were.
fn in_each(
    query: &Bound<'_, Query>,
    mut work: impl FnMut(&mut Transaction, TableId, &RowKey) -> Done,
    after: impl Fn(&[RowKey]) -> PyResult<()>,
) -> PyResult<u64> {
    let (py, table) = (query.py(), query.table());
    let this = table.get();
    this.check_writable(py)?;
    transaction::within(py, this.core(), || {
        let Some(source) = query.source()? else { return Ok(0) };
        let keys = over(table, source, Keys)?;
        let core = this.core();
        for chunk in keys.chunks(CHUNK) {
            py.check_signals()?;
            let failed = core.in_running(py, |transaction| {
                let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
                for key in chunk {
                    if let Err(error) = work(transaction, id, key)? {
                        return Ok(Some((key, error)));
                    }
                }
                Ok(None)
            })?;
            if let Some((key, error)) = failed {
                let shown = crate::keys::object_of(py, &key.code, &key.spelling)?.repr()?;
                return Err(errors::value_error(format!(
                    "record {shown} of table {:?} cannot be changed: {error}; nothing was changed in any row",
                    this.name(py)
                )));
            }
            core.learn_drafts(py);
            after(chunk)?;
        }
        Ok(keys.len() as u64)
    })
}

/// Rows between two looks at signals.
const CHUNK: usize = 4096;

/// The keys of rows.
struct Keys;

impl Work for Keys {
    type Result = Vec<RowKey>;

    fn run<S: Shapes>(
        self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let mut keys = Vec::new();
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                keys.push(RowKey { code: row.key.into(), spelling: row.spelling.into() });
                ControlFlow::Continue(())
            },
        )?;
        Ok(keys)
    }
}

fn change_row(transaction: &mut Transaction, id: TableId, key: &RowKey, edits: &mut [Edit]) -> Done {
    let mut is_rest = false;
    let mut outcome = Ok(());
    // All at once, where each is a scalar that fits its slot.
    let found = transaction.rewrite(id, &key.code, 0, |record, shapes| {
        let before = record.to_vec();
        let row = Row { key: &key.code, spelling: &key.spelling, record: &before };
        for edit in edits.iter_mut() {
            let Edit { path, value } = edit;
            let slot = match value.new_slot(&row, shapes) {
                Ok(Some(slot)) => slot,
                Ok(None) => continue,
                Err(error) => {
                    outcome = Err(PatchError::Corrupt(error));
                    return Ok::<bool, PatchError>(false);
                }
            };
            if patch::overwrite(record, shapes, &borrowed(path), &slot) != Ok(true) {
                is_rest = true;
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    if found.is_none() || !is_rest {
        return Ok(outcome.map(|()| found.is_some()));
    }
    let Some(cell) = transaction.get(id, &key.code)? else { return Ok(Ok(false)) };
    let before = cell.record.to_vec();
    let shapes = transaction.shapes().clone();
    let row = Row { key: &key.code, spelling: &key.spelling, record: &before };
    let mut values = Vec::with_capacity(edits.len());
    for edit in edits.iter_mut() {
        let value = match &edit.value.constant {
            Some(record) => Ok(Some(record.clone())),
            None => edit.value.column.record(&row, &*shapes),
        };
        match value {
            Ok(value) => values.push(value),
            Err(error) => return Ok(Err(PatchError::Corrupt(error))),
        }
    }
    for (edit, value) in edits.iter().zip(values) {
        let Some(value) = value else { continue };
        let change = Change::Set(&value);
        let patched = transaction.patch(id, &key.code, &borrowed(&edit.path), change, &[])?;
        if let Some(Err(error)) = patched {
            return Ok(Err(error));
        }
    }
    Ok(Ok(true))
}

impl NewValue {
    /// The new value as it stands in a slot; None where it is missing.
    fn new_slot<'a, S: Shapes + ?Sized>(
        &'a mut self,
        row: &Row<'a>,
        shapes: &S,
    ) -> Result<Option<Slot<'a>>, pellucid_record::Corrupt> {
        match &self.constant {
            Some(record) => Ok(Some(match root(record, shapes)? {
                Root::Scalar(slot) => slot,
                Root::Container(container) => Slot::Container(container),
            })),
            None => Ok(self.column.read(row, shapes)?.map(|(slot, _)| slot)),
        }
    }
}

/// The record of a value that stands alone.
pub fn record_of(value: &Value) -> PyResult<Vec<u8>> {
    pellucid_record::encode_value(value, &mut pellucid_record::value::NoShapes)
        .map_err(|error| errors::value_error(format!("the value cannot be stored: {error}")))
}
