//! Finds where the next page of rows begins: after a record that was read before.

use pellucid_query::sort::SortKey;
use pellucid_record::Damage;
use pellucid_store::{OverflowReader, Row, Snapshot, StoreError};
use pyo3::prelude::*;

use crate::errors;
use crate::query::target::QueryTarget;
use crate::server::feed::RowLarge;
use crate::server::table::ServerTable;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::handles::Record;
use crate::values::row_errors;

/// A row that was read before: its key and its record.
#[derive(Clone)]
pub struct After {
    /// The key's code.
    pub key: Vec<u8>,
    /// What the code does not say about the key, such as `1`, `1.0` or `True`.
    pub spelling: Vec<u8>,
    /// The record as it was read.
    record: Vec<u8>,
    /// The snapshot that it was read in, which has its large values. None: these are read from the
    /// present state.
    snapshot: Option<Snapshot>,
}

impl After {
    /// The key and record of a row of `table`.
    ///
    /// # Errors
    /// The row is no record of that table.
    pub fn of(row: &Bound<'_, PyAny>, table: &QueryTarget) -> PyResult<Self> {
        let py = row.py();
        let name = table.table_ref(py).name(py);
        let wrong = || {
            Err(errors::type_error(format!(
                "after() takes a record that was read from table {:?}, and this {} is none; what select() and copy() give stands by itself",
                name,
                row.get_type().name()?
            )))
        };
        let Ok(record) = row.cast::<Record>() else { return wrong() };
        let row = &record.get().node.row;
        let is_of_table = row.table.as_ref().is_some_and(|of| match table {
            QueryTarget::Table(table) => {
                of.bind(py).cast_exact::<Table>().is_ok_and(|of| of.get().is_same_as(py, table.get()))
            }
            QueryTarget::Server(table) => {
                let of = of.bind(py);
                of.cast::<ServerTable>().is_ok_and(|of| of.get().is_same_as(py, table.get()))
            }
        });
        if !is_of_table || record.get().node.parent.is_some() {
            return wrong();
        }
        let (key, snapshot) = (row.key().to_vec(), row.snapshot(py));
        let this = match table {
            QueryTarget::Table(table) => table.get(),
            // The spelling of the key is for people, and a code with none reads as well.
            QueryTarget::Server(_) => {
                return Ok(Self { key, spelling: Vec::new(), record: row.bytes().to_vec(), snapshot: None });
            }
        };
        let spelling = match &snapshot {
            Some(snapshot) => spelling_in(py, this, snapshot, &key)?,
            None if this.is_in_transaction(py) => this.core().in_running(py, |transaction| {
                let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Vec::new()) };
                Ok(transaction.get(id, &key)?.map(|cell| cell.spelling.to_vec()).unwrap_or_default())
            })?,
            None => spelling_in(py, this, &this.snapshot(py)?, &key)?,
        };
        Ok(Self { key, spelling, record: row.bytes().to_vec(), snapshot })
    }

    /// The bytes that order a row of a server.
    ///
    /// # Errors
    /// The row is damaged, or a large value that it had when it was read is gone.
    pub fn code_on_server(&self, table: &Bound<'_, ServerTable>, mut by: SortKey) -> PyResult<Vec<u8>> {
        let py = table.py();
        let row = Row { key: &self.key, spelling: &self.spelling, record: &self.record };
        let large = RowLarge::new(table.as_any(), &self.key);
        let shapes = table.get().codec.get().dictionary();
        let code = by.of(&row, &OverflowReader { shapes, large: &large }).map(<[u8]>::to_vec);
        code.map_err(|error| row_errors::corrupt_key(py, &table.get().name_of(py), &self.key, &error))
    }

    /// The bytes that order the row.
    ///
    /// # Errors
    /// The row is damaged, or a large value that it had when it was read is gone.
    pub fn code(&self, table: &Bound<'_, Table>, mut by: SortKey) -> PyResult<Vec<u8>> {
        let (py, this) = (table.py(), table.get());
        let row = Row { key: &self.key, spelling: &self.spelling, record: &self.record };
        let shapes = &*this.core().names;
        let code = match &self.snapshot {
            Some(large) => by.of(&row, &OverflowReader { shapes, large }).map(<[u8]>::to_vec),
            None if this.is_in_transaction(py) => this.core().in_running(py, |transaction| {
                let large = &*transaction;
                Ok::<_, StoreError>(by.of(&row, &OverflowReader { shapes, large }).map(<[u8]>::to_vec))
            })?,
            None => by.of(&row, &OverflowReader { shapes, large: &this.snapshot(py)? }).map(<[u8]>::to_vec),
        };
        code.map_err(|error| match error.damage {
            Damage::Overflow if self.snapshot.is_none() => errors::raise(
                py,
                "StaleRecord",
                format!(
                    "a large value of the record of table {:?} that after() was given was replaced or deleted after it was read; read the \
                     record again, or read both in one snapshot",
                    this.name(py)
                ),
            ),
            _ => row_errors::corrupt_key(py, &this.name(py), &self.key, &error),
        })
    }
}

fn spelling_in(py: Python<'_>, table: &Table, snapshot: &Snapshot, key: &[u8]) -> PyResult<Vec<u8>> {
    let Some(id) = table.id_in(py, snapshot)? else { return Ok(Vec::new()) };
    let cell = snapshot.get(id, key).map_err(|error| store_errors::of_store(py, error))?;
    Ok(cell.map(|cell| cell.spelling.to_vec()).unwrap_or_default())
}
