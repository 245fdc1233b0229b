//! Create, drop and rebuild indexes.

use pellucid_query::expression::parse_index;
use pellucid_query::index::Definition;
use pellucid_store::{StoreError, TableId, Transaction};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors;
use crate::expression::operand::node_of;
use crate::hot::callbacks;
use crate::progress::Progress;
use crate::query::spec::sort_part;
use crate::store_errors;
use crate::table::handle::Table;

/// Reads the argument `name`, the name of an index.
pub fn name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::name_argument(name, "name", "an index")
}

/// The text of an index's definition.
///
/// # Errors
/// The parts are no definition.
pub fn definition_of(
    name: &str,
    parts: &Bound<'_, PyAny>,
    condition: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let elements: Vec<Bound<'_, PyAny>> = if let Ok(tuple) = parts.cast::<PyTuple>() {
        tuple.iter().collect()
    } else if let Ok(list) = parts.cast::<PyList>() {
        list.iter().collect()
    } else {
        vec![parts.clone()]
    };
    let parts = elements.iter().map(sort_part).collect::<PyResult<_>>()?;
    let condition = condition.map(node_of).transpose()?;
    let refused = |why: String| errors::value_error(format!("index {name:?}: {why}"));
    let text = Definition::new((parts, condition)).map_err(refused)?.to_string();
    // The text must be readable again.
    parse_index(&text).map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

/// Does `work` in the caller's transaction, or in its own one with the GIL released.
fn within(
    table: &Bound<'_, Table>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut Transaction, TableId, &mut dyn FnMut(u64, u64) -> bool) -> Result<(), StoreError>
    + Send,
) -> PyResult<()> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let mut progress = Progress::new(progress, "rows")?;
    let core = this.core();
    let done = core.write_released(
        py,
        |transaction| this.id_for_writing(py, transaction),
        |transaction, id| work(transaction, id, &mut |done, total| progress.tell(done, total)),
    );
    progress.end(done)
}

/// `table.create_index(...)`.
pub fn create(
    table: &Bound<'_, Table>,
    name: &str,
    parts: &Bound<'_, PyAny>,
    is_unique: bool,
    condition: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let definition = definition_of(name, parts, condition)?;
    let (py, this) = (table.py(), table.get());
    if this.is_in_transaction(py) {
        return within(table, progress, |transaction, id, go_on| {
            transaction.create_index(id, name, &definition, is_unique, go_on)?;
            let rows = transaction.count(id)?;
            go_on(rows, rows);
            Ok(())
        });
    }
    this.check_writable(py)?;
    let mut progress = Progress::new(progress, "rows")?;
    let core = this.core();
    let id = core.write(py, |transaction| this.id_for_writing(py, transaction))?;
    this.identity().bind(py, id);
    let made = callbacks::released(py, || {
        core.store.create_index(id, name, (&definition, is_unique), core.timeout, &mut |done, total| {
            progress.tell(done, total)
        })
    });
    progress.end(made.map_err(|error| store_errors::of_store(py, error)))
}

/// `table.rebuild_index(name)`.
pub fn rebuild(table: &Bound<'_, Table>, name: &str, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    within(table, progress, |transaction, id, go_on| {
        transaction.rebuild_index(id, name, go_on)?;
        let rows = transaction.count(id)?;
        go_on(rows, rows);
        Ok(())
    })
}

/// `table.drop_index(name)`.
pub fn drop_index(table: &Bound<'_, Table>, name: &str) -> PyResult<()> {
    within(table, None, |transaction, id, go_on| transaction.drop_index(id, name, &mut || go_on(0, 0)))
}
