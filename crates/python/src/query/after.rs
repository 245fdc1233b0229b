//! Finds where the next page of rows begins: after a record that was read before.

use pellucid_query::sort::SortKey;
use pellucid_record::Damage;
use pellucid_store::{OverflowReader, Row, Snapshot, StoreError};
use pyo3::prelude::*;

use crate::errors;
use crate::hot::gil::GilRc;
use crate::query::target::QueryTarget;
use crate::server::feed::RowLarge;
use crate::server::table::ServerTable;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::bytes::own_record;
use crate::values::encode::Manner;
use crate::values::handles::Record;
use crate::values::hooks::PicklePolicy;
use crate::values::instance_rows::{self, Place};
use crate::values::names::Names;
use crate::values::row_errors;
use crate::values::table_ref::TableRef;

/// A row that was read before: its key and its record.
#[derive(Clone, Default)]
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
    /// The shapes of the record, if it is not one of the table: that of an instance.
    own_names: Option<GilRc<Names>>,
    /// Of a cursor: the number of its query's order, and the bytes that order the row in it.
    pub cursor: Option<(u64, Vec<u8>)>,
}

impl After {
    /// The key and record of a row of `table`.
    ///
    /// # Errors
    /// The row is no record of that table.
    pub fn of(row: &Bound<'_, PyAny>, table: &QueryTarget) -> PyResult<Self> {
        let py = row.py();
        let name = table.table_ref(py).name(py);
        let is_of = |of: &TableRef| match table {
            QueryTarget::Table(table) => {
                of.bind(py).cast_exact::<Table>().is_ok_and(|of| of.get().is_same_as(py, table.get()))
            }
            QueryTarget::Server(table) => {
                let of = of.bind(py);
                of.cast::<ServerTable>().is_ok_and(|of| of.get().is_same_as(py, table.get()))
            }
        };
        let wrong = || {
            Err(errors::type_error(format!(
                "after() and cursor() take a row that was read from table {:?}, and this {} is none; what select() and copy() give stands by itself",
                name,
                row.get_type().name()?
            )))
        };
        let Ok(record) = row.cast::<Record>() else {
            return match instance_rows::place_of(row) {
                Some(place) if is_of(&place.table) => Self::of_instance(row, place),
                _ => wrong(),
            };
        };
        let row = &record.get().node.row;
        if !row.table.as_ref().is_some_and(is_of) || record.get().node.parent.is_some() {
            return wrong();
        }
        let (key, snapshot) = (row.key().to_vec(), row.snapshot(py));
        let this = match table {
            QueryTarget::Table(table) => table.get(),
            // The spelling of the key is for people, and a code with none reads as well.
            QueryTarget::Server(_) => {
                return Ok(Self { key, record: row.bytes().to_vec(), ..Self::default() });
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
        Ok(Self { key, spelling, record: row.bytes().to_vec(), snapshot, ..Self::default() })
    }

    /// The place of an instance of the class of a table: its fields are those of its row.
    fn of_instance(instance: &Bound<'_, PyAny>, place: Place) -> PyResult<Self> {
        let Ok((record, names)) = own_record(instance, &PicklePolicy::DENY, Manner::COPIES) else {
            return Err(errors::type_error(format!(
                "after() and cursor() take a row, and this {} holds what no row has; give its key's record",
                instance.get_type().name()?
            )));
        };
        let Place { key, spelling, .. } = place;
        Ok(Self { key, spelling, record, own_names: Some(names), ..Self::default() })
    }

    /// The place that a cursor has: the key's code, and the order and the bytes of its query.
    pub fn of_cursor(key: Vec<u8>, order: u64, code: Vec<u8>) -> Self {
        Self { key, cursor: Some((order, code)), ..Self::default() }
    }

    /// The bytes that a cursor has, or those of an instance: what needs no table. None: the record
    /// is one of the table.
    fn known_code(&self, py: Python<'_>, by: &mut SortKey) -> PyResult<Option<Vec<u8>>> {
        if let Some((_, code)) = &self.cursor {
            return Ok(Some(code.clone()));
        }
        let Some(names) = &self.own_names else { return Ok(None) };
        let row = Row { key: &self.key, spelling: &self.spelling, record: &self.record };
        let code = by.of(&row, &**names).map(<[u8]>::to_vec);
        code.map(Some).map_err(|error| row_errors::corrupt_key(py, "", &self.key, &error))
    }

    /// The bytes that order a row of a server.
    ///
    /// # Errors
    /// The row is damaged, or a large value that it had when it was read is gone.
    pub fn code_on_server(&self, table: &Bound<'_, ServerTable>, mut by: SortKey) -> PyResult<Vec<u8>> {
        let py = table.py();
        if let Some(code) = self.known_code(py, &mut by)? {
            return Ok(code);
        }
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
        if let Some(code) = self.known_code(py, &mut by)? {
            return Ok(code);
        }
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
