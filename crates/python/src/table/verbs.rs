//! Verbs of a table that read and write, so that no other writer comes in between.
//!
//! `pop`, `popitem` and `setdefault` are one transaction. `compare_and_set` compares outside of it,
//! since a comparison may run the user's code, and stores only if the record is still the one that
//! was compared.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::{callbacks, modules};
use crate::put::{self, write};
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

/// `table.update(other, **more)`.
pub fn update(
    table: &Bound<'_, Table>,
    other: Option<&Bound<'_, PyAny>>,
    more: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    table.get().check_writable(table.py())?;
    transaction::within_batch(table.py(), table.get().core(), || {
        if let Some(other) = other {
            write::update_from(table, other)?;
        }
        if let Some(more) = more {
            put::keywords::check(table, more)?;
            write::update_from(table, more.as_any())?;
        }
        Ok(())
    })
}

/// `table.clear()`.
pub fn clear(table: &Bound<'_, Table>) -> PyResult<()> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let mut signals = Signals::new();
    this.core().write_released(
        py,
        |transaction| this.id_in_transaction(py, transaction),
        |transaction, id| match id {
            Some(id) => transaction.clear_while(id, &mut || signals.go_on()),
            None => Ok(()),
        },
    )
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
    let (condition, set, order_by, lease, timeout) = arguments;
    let class = table.get().class.as_ref().map(|class| &class.python);
    shared(table.py(), &FUNCTION, "pellucid.claims", "claim")?
        .call1((table, condition, set, order_by, lease, timeout, class))
}

/// `table.put(key, value, expire=...)`, which they share as well.
pub fn put<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    expire: Option<&Bound<'py, PyAny>>,
) -> PyResult<()> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if expire.is_none() {
        return write::put(table, key, value);
    }
    let py = table.py();
    table.get().check_writable(py)?;
    let class = table.get().class.as_ref().map(|class| &class.python);
    shared(py, &FUNCTION, "pellucid.expiry", "put")?.call1((table, key, value, expire, class)).map(drop)
}

/// `table.expire()`.
pub fn expire<'py>(table: &Bound<'py, Table>) -> PyResult<Bound<'py, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    table.get().check_writable(table.py())?;
    shared(table.py(), &FUNCTION, "pellucid.expiry", "expire_rows")?.call1((table,))
}

/// A function that tables of files and of servers share.
fn shared<'py>(
    py: Python<'py>,
    known: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    callbacks::code_may_run(py);
    let import = || Ok::<_, PyErr>(py.import(module)?.getattr(name)?.unbind());
    Ok(known.get_or_try_init(py, import)?.bind(py).clone())
}

/// The rows of a table as a dict.
pub fn dict_of<'py>(table: &Bound<'py, Table>) -> PyResult<Bound<'py, PyAny>> {
    table.py().get_type::<PyDict>().call1((table,))
}

/// `other | table`.
pub fn merged_into<'py>(table: &Bound<'py, Table>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if other.cast::<PyDict>().is_err() {
        return Ok(table.py().NotImplemented().into_bound(table.py()));
    }
    other.call_method1("__or__", (dict_of(table)?,))
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
