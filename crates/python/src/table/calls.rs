//! Implement the calls of rows to the tables of embedded databases.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::errors;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::change::Edit;
use crate::values::hooks::PicklePolicy;
use crate::values::large::Large;
use crate::values::row::Row;
use crate::values::table_ref::{CopyOf, LargeOf, TableCalls, Within};

/// The implementation of `TableCalls` for `Table`.
pub struct Calls;

/// The table that a row belongs to: every row is made with a `Table` object.
fn table_of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, Table>> {
    object.cast::<Table>().map_err(|_| errors::internal("a row belongs to an object that is no table"))
}

impl TableCalls for Calls {
    fn is_for(&self, table: &Bound<'_, PyAny>) -> bool {
        table.cast::<Table>().is_ok()
    }

    fn name(&self, table: &Bound<'_, PyAny>) -> Arc<str> {
        table_of(table).map_or_else(|_| Arc::from(""), |found| found.get().name(table.py()))
    }

    fn policy(&self, table: &Bound<'_, PyAny>) -> PicklePolicy {
        table_of(table).map_or(PicklePolicy::DENY, |found| found.get().core().policy.clone_ref(table.py()))
    }

    fn large_value(
        &self,
        table: &Bound<'_, PyAny>,
        (_, snapshot): LargeOf<'_>,
        id: u64,
    ) -> PyResult<Option<Large>> {
        table_of(table)?.get().overflow(table.py(), snapshot, id)
    }

    fn gives_views(&self, table: &Bound<'_, PyAny>) -> bool {
        table_of(table).is_ok_and(|found| found.get().frozen.is_some() || found.get().gives_any())
    }

    fn copied_row(&self, table: &Bound<'_, PyAny>, of: CopyOf<'_>) -> PyResult<Row> {
        Ok(Table::copied_row(table_of(table)?, of.key, of.record, of.snapshot))
    }

    fn in_running(&self, table: &Bound<'_, PyAny>, work: &mut Within<'_>) -> PyResult<()> {
        table_of(table)?.get().core().in_running(table.py(), work)
    }

    fn read_anew(&self, table: &Bound<'_, PyAny>, row: &Row) -> PyResult<bool> {
        Table::read_anew(table_of(table)?, row)
    }

    fn change(
        &self,
        table: &Bound<'_, PyAny>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        let table = table_of(table)?;
        table.get().change_record(table, row, edit, values)
    }

    fn within_transaction(
        &self,
        table: &Bound<'_, PyAny>,
        work: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<()> {
        transaction::within(table.py(), table_of(table)?.get().core(), work)
    }
}
