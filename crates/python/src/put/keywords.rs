//! Check the keyword arguments of `table.update(age=5)`.
//!
//! As with any dict, this sets the row under the key "age" to 5. On a query it would set the field
//! of all rows. Where the caller may have meant that, a warning says so.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDate, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::errors;
use crate::expression::handle::Expression;
use crate::table::handle::Table;
use crate::values::handles::Record;

/// Refuses expressions, which no row can be, and warns about a call that looks as if it should set
/// a field.
///
/// # Errors
/// `UnsupportedValue`; a warning, if the program turns warnings into errors.
pub fn check(table: &Bound<'_, Table>, more: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = table.py();
    let name = || table.get().name(py);
    for (field, value) in more {
        if let Ok(expression) = value.cast_exact::<Expression>() {
            let shown = expression.repr()?;
            let message = format!(
                "update() of table {:?} sets keys, as a dict's does, and no row can be the expression {shown}; table.where().update({field}={shown}) \
                 sets the field of all rows",
                name()
            );
            return Err(errors::raise(py, "UnsupportedValue", message));
        }
        if is_plain(&value) && is_field(table, &field)? {
            let shown = errors::brief(&value);
            let message = format!(
                "update({field}={shown}) of table {:?} sets the key {:?}, as a dict's does, and its rows are records with a field of that \
                 name; table.where().update({field}={shown}) sets the field of all rows",
                name(),
                field.to_string()
            );
            let class = py.import("pellucid.errors")?.getattr("DatabaseWarning")?;
            py.import("warnings")?.getattr("warn")?.call1((message, class, 1))?;
        }
    }
    Ok(())
}

/// Whether the value is stored as something other than a record.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyDate>()
        || value.is_exact_instance_of::<PyDateTime>()
        || value.is_exact_instance_of::<PyList>()
}

/// Whether the table's first row has a field of this name, while no row has this name as its key.
fn is_field(table: &Bound<'_, Table>, field: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some((_, first)) = Table::edge(table, false)? else { return Ok(false) };
    let is_record = first.is_instance_of::<Record>();
    Ok(is_record && first.contains(field)? && Table::lookup(table, field)?.is_none())
}
