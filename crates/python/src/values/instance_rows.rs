//! Tells of which row an object is: a record, or an instance of the class of a table.
//!
//! A record knows its row. An instance is an object of the user's class, so its row is remembered
//! beside it, for as long as it lives, by a weak reference. An instance that its class gives for
//! several rows is of the one that was read last.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyWeakrefMethods, PyWeakrefReference};

use crate::errors;
use crate::hot::gil::GilCell;
use crate::values::handles::{Record, RecordList};
use crate::values::keys;
use crate::values::node::Node;
use crate::values::row::Row;
use crate::values::table_ref::TableRef;

/// The row of an instance.
pub struct Place {
    /// The table that it was read from.
    pub table: TableRef,
    /// The code of its key.
    pub key: Vec<u8>,
    /// The details of the key that its code lacks.
    pub spelling: Vec<u8>,
}

/// A remembered row, with the weak reference whose end forgets it.
struct Remembered {
    place: Place,
    weak: Py<PyWeakrefReference>,
}

impl Remembered {
    /// Whether it is of this object. If its end was not told, another object may have its address.
    fn is_of(&self, object: &Bound<'_, PyAny>) -> bool {
        self.weak.bind(object.py()).upgrade().is_some_and(|alive| alive.is(object))
    }
}

/// What is remembered.
#[derive(Default)]
struct All {
    /// By the address of the instance.
    rows: HashMap<usize, Remembered>,
    /// The address of the instance, by that of the weak reference.
    addresses: HashMap<usize, usize>,
}

impl All {
    fn forget(&mut self, weak: usize) -> Option<Remembered> {
        let address = self.addresses.remove(&weak)?;
        let is_its = self.rows.get(&address).is_some_and(|row| row.weak.as_ptr() as usize == weak);
        is_its.then(|| self.rows.remove(&address))?
    }
}

static REMEMBERED: GilCell<Option<All>> = GilCell::new(None);

/// Remembers the row of an instance, whose class supports weak references.
///
/// # Errors
/// `MemoryError`.
pub fn remember(instance: &Bound<'_, PyAny>, row: &Row) -> PyResult<()> {
    static FORGET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = instance.py();
    let Some(table) = &row.table else { return Ok(()) };
    let place =
        Place { table: table.clone_ref(py), key: row.key().to_vec(), spelling: row.spelling(py).to_vec() };
    let address = instance.as_ptr() as usize;
    let mut place = Some(place);
    // What is replaced is dropped outside of the cell: releasing objects may run code.
    let before = REMEMBERED.with(py, |all| {
        let known = all.as_mut()?.rows.get_mut(&address).filter(|known| known.is_of(instance))?;
        Some(std::mem::replace(&mut known.place, place.take()?))
    });
    drop(before);
    let Some(place) = place else { return Ok(()) };
    let forget =
        FORGET.get_or_try_init(py, || Ok::<_, PyErr>(wrap_pyfunction!(forget, py)?.into_any().unbind()))?;
    let weak = PyWeakrefReference::new_with(instance, forget.bind(py))?;
    let weak_address = weak.as_ptr() as usize;
    let remembered = Remembered { place, weak: weak.unbind() };
    let before = REMEMBERED.with(py, |all| {
        let all = all.get_or_insert_default();
        all.addresses.insert(weak_address, address);
        let before = all.rows.insert(address, remembered);
        if let Some(before) = &before {
            all.addresses.remove(&(before.weak.as_ptr() as usize));
        }
        before
    });
    drop(before);
    Ok(())
}

/// Forgets the row of an instance that is freed.
#[pyfunction]
fn forget(weak: &Bound<'_, PyAny>) {
    drop(REMEMBERED.with(weak.py(), |all| all.as_mut()?.forget(weak.as_ptr() as usize)));
}

/// The row of an instance that was read from a table; None for other objects.
pub fn place_of(object: &Bound<'_, PyAny>) -> Option<Place> {
    let py = object.py();
    REMEMBERED.with(py, |all| {
        let known = all.as_ref()?.rows.get(&(object.as_ptr() as usize))?;
        let Place { table, key, spelling } = &known.is_of(object).then_some(known)?.place;
        Some(Place { table: table.clone_ref(py), key: key.clone(), spelling: spelling.clone() })
    })
}

/// The node of a record or a list; None for other objects.
fn node_of<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Node> {
    match object.cast::<Record>() {
        Ok(record) => Some(&record.get().node),
        Err(_) => object.cast::<RecordList>().ok().map(|list| &list.get().node),
    }
}

/// The error for an object of no row.
#[cold]
fn of_no_row(function: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let described = || -> PyResult<String> {
        let kind = object.get_type();
        if object.is_instance_of::<Record>() || object.is_instance_of::<RecordList>() {
            return Ok(format!(
                "{function}() takes what was read from a table, and this {} is a copy, or a view of bytes; ask before you copy it",
                kind.name()?
            ));
        }
        if kind.module()? == "builtins" {
            return Ok(format!(
                "{function}() takes a record, or an instance of a table's class, and this {} is neither: it may be a key \
                 or a plain value",
                kind.name()?
            ));
        }
        let is_weak = kind.getattr("__weakrefoffset__")?.is_truthy()?;
        let why = if is_weak {
            "was not read from a table, or is a member of an Enum, which all its rows share; items() of a query or a table \
             gives keys and rows together"
        } else {
            "is of a class without weak references, so its row is not remembered: use items() of the query or the \
             table, or give the class weak references (dataclass: weakref_slot=True, msgspec: weakref=True)"
        };
        Ok(format!(
            "{function}() takes a record, or an instance of a table's class, and this {} {why}",
            kind.name()?
        ))
    };
    match described() {
        Ok(message) if node_of(object).is_some() => PyValueError::new_err(message),
        Ok(message) => errors::type_error(message),
        Err(error) => error,
    }
}

/// Return the key of the row that a record is, or is a part of.
///
/// It is a function, since all attributes of a record are fields. `row` may also be a list in a
/// record, or an instance that was read from a table with `type=`. Raises `ValueError` for a copy
/// and for a view of bytes, and `TypeError` for other objects.
///
/// >>> import pellucid
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people["ann"] = {"age": 30, "tags": ["a"]}
/// >>> [pellucid.key_of(person) for person in people.where()]
/// ['ann']
/// >>> pellucid.key_of(people["ann"].tags)
/// 'ann'
#[pyfunction]
#[pyo3(signature = (row, /))]
pub fn key_of<'py>(row: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = row.py();
    if let Some(node) = node_of(row) {
        return match &node.row.table {
            Some(_) => node.row.key_object(py),
            None => Err(of_no_row("key_of", row)),
        };
    }
    match place_of(row) {
        Some(place) => keys::object_of(py, &place.key, &place.spelling),
        None => Err(of_no_row("key_of", row)),
    }
}

/// Return the table that a record was read from; the arguments and errors are those of `key_of`.
///
/// >>> import pellucid
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people["ann"] = {"age": 30}
/// >>> pellucid.table_of(people["ann"]).name
/// 'people'
#[pyfunction]
#[pyo3(signature = (row, /))]
pub fn table_of<'py>(row: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = row.py();
    let table = match node_of(row) {
        Some(node) => node.row.table.as_ref().map(|table| table.clone_ref(py)),
        None => place_of(row).map(|place| place.table),
    };
    match table {
        // On a server, the table of a row is what encodes its values; it knows its handle.
        Some(table) => match table.bind(py).getattr_opt("handle")? {
            Some(handle) => handle.call0(),
            None => Ok(table.bind(py).to_owned()),
        },
        None => Err(of_no_row("table_of", row)),
    }
}
