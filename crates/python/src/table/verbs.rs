//! Verbs of a table that read and write, so that no other writer comes in between.
//!
//! `pop`, `popitem` and `setdefault` are one transaction. `compare_and_set` compares outside of it,
//! since a comparison may run the user's code, and stores only if the record is still the one that
//! was compared.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::{callbacks, modules};
use crate::put::write;
use crate::signals::Signals;
use crate::table::handle::Table;
use crate::table::reading::storable;
use crate::table::typed::value_of_row;
use crate::transaction;
use crate::values::keys;
use crate::values::record::detached;
use crate::values::views::Shows;

/// `table.pop(key, *default)`.
pub fn pop<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    default: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    if default.len() > 1 {
        return Err(errors::type_error("pop() takes a key and at most one default"));
    }
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let missing = || if default.is_empty() { Err(errors::missing(key)) } else { default.get_item(0) };
    let Some(found) = storable(key)? else { return missing() };
    transaction::within(py, this.core(), || {
        let Some(row) = Table::row(table, &found)? else { return missing() };
        let value = detached(&value_of_row(py, row)?)?;
        write::delete(table, &found)?;
        Ok(value)
    })
}

/// `table.popitem()`.
pub fn pop_last<'py>(table: &Bound<'py, Table>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    transaction::within(py, this.core(), || {
        let Some((key, value)) = Table::edge(table, true)? else {
            return Err(PyKeyError::new_err(format!("popitem(): table {:?} is empty", this.name(py))));
        };
        let value = detached(&value)?;
        write::delete(table, &keys::key_of(&this.name(py), &key)?)?;
        Ok((key, value))
    })
}

/// `table.setdefault(key, default)`.
pub fn set_default<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = Table::lookup(table, key)? {
        return Ok(value);
    }
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let none = py.None().into_bound(py);
    transaction::within(py, this.core(), || {
        if let Some(value) = Table::lookup(table, key)? {
            return Ok(value);
        }
        write::put(table, key, default.unwrap_or(&none))?;
        Table::lookup(table, key)?.ok_or_else(|| errors::missing(key))
    })
}

/// `table.compare_and_set(key, expected, value)`.
pub fn compare_and_set<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    expected: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<bool> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let Some(stored) = storable(key)? else { return Ok(false) };
    let mut signals = Signals::new();
    loop {
        let Some(row) = Table::row(table, &stored)? else { return Ok(false) };
        // A copy: the comparison may change the record.
        let compared = row.bytes().to_vec();
        if !value_of_row(py, row)?.eq(expected)? {
            return Ok(false);
        }
        if write::put_over(table, key, value, Some(&compared))? {
            return Ok(true);
        }
        signals.step(py)?;
    }
}

/// `table.put_if_absent(key, value)`.
pub fn put_if_absent<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<bool> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    if let Some(stored) = storable(key)?
        && this.has(py, &stored)?
    {
        return Ok(false);
    }
    write::put_over(table, key, value, None)
}

/// `table.get_or_create(key, function)`.
pub fn get_or_create<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = Table::lookup(table, key)? {
        return Ok(value);
    }
    // Refused before the function runs.
    table.get().check_writable(table.py())?;
    keys::key_of(&table.get().name(table.py()), key)?;
    callbacks::code_may_run(table.py());
    set_default(table, key, Some(&function.call0()?))
}

/// The arguments of `table.claim`.
type ClaimArguments<'a, 'py> =
    (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>, Option<&'a Bound<'py, PyAny>>, f64, Option<f64>);

/// `table.claim(...)`, which tables of files and of servers share.
pub fn claim<'py>(
    table: &Bound<'py, Table>,
    arguments: ClaimArguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = table.py();
    callbacks::code_may_run(py);
    let function = FUNCTION
        .get_or_try_init(py, || Ok::<_, PyErr>(py.import("pellucid.claims")?.getattr("claim")?.unbind()))?;
    let (condition, set, order_by, lease, timeout) = arguments;
    let is_typed = table.get().class.is_some();
    function.bind(py).call1((table, condition, set, order_by, lease, timeout, is_typed))
}

/// `table == other`.
pub fn equals<'py>(table: &Bound<'py, Table>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let said =
        |answer: bool| -> PyResult<Bound<'py, PyAny>> { Ok(answer.into_pyobject(py)?.to_owned().into_any()) };
    if table.is(other) {
        return said(true);
    }
    if !other.is_instance(&modules::abstract_classes(py)?.getattr("Mapping")?)? {
        return Ok(py.NotImplemented().into_bound(py));
    }
    if other.len()? != table.get().len(py)? {
        return said(false);
    }
    for item in Table::iterate(table, &Bounds::all(), Shows::Items, false)?.try_iter()? {
        let item = item?.cast_into::<PyTuple>()?;
        let is_same = match other.get_item(item.get_item(0)?) {
            Ok(theirs) => item.get_item(1)?.eq(theirs)?,
            Err(error) if error.is_instance_of::<PyKeyError>(py) => false,
            Err(error) => return Err(error),
        };
        if !is_same {
            return said(false);
        }
    }
    said(true)
}
