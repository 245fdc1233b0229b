//! Claims the first row of a query that is free, for `pellucid.claims`.
//!
//! The rows are found in a snapshot, and the first one that still is the same gets the fields and
//! the lease (`update_same.rs`). From the look at the rows to the change, nothing is done that
//! could be done before: the longer it takes, the more often another caller has taken the row.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::errors;
use crate::query::change::{Copies, CopyRows};
use crate::query::edits::{Constant, Edits, KeyOf, NewValue, parsed};
use crate::query::handle::Query;
use crate::query::target::QueryTarget;
use crate::query::update_same::{copied, store_if_same};
use crate::table::handle::Table;
use crate::values::handles::Record;
use crate::values::keys;
use crate::values::record;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Walked, over};

const LEASE: &str = "_lease";

/// A key and its row.
type Claimed<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Claims one of the rows of a query: sets fields, and a lease of `facts`, to which the former
/// values are added. Returns the key and the row, if there is one; whether another caller was
/// faster with a row; and whether a row has a lease.
#[pyfunction]
#[pyo3(name = "_claim_first")]
pub fn claim_first<'py>(
    query: &Bound<'py, Query>,
    fields: &Bound<'py, PyDict>,
    facts: &Bound<'py, PyDict>,
) -> PyResult<(Option<Claimed<'py>>, bool, bool)> {
    let py = query.py();
    let QueryTarget::Table(table) = &query.get().of else {
        return Err(errors::internal("the rows of a server are claimed in Python"));
    };
    let table = table.bind(py);
    let lease = PyString::intern(py, LEASE).into_any();
    let (mut paths, values) = parsed(table, fields.iter())?;
    let constants = fields.keys().iter().zip(&values);
    let constants = constants.filter(|(_, value)| matches!(value, NewValue::Constant(_)));
    let constants: Vec<_> = constants.map(|(name, _)| name).collect();
    paths.push(crate::column::steps_of(&lease)?);
    let mut edits = Edits::new(&paths, values);
    let (mut is_lost, mut is_claimed) = (false, false);
    let rows = match query.source(Walked::ByOne)? {
        Some(source) => over(py, &TableRef::new(table), source, CopyRows)?,
        None => Copies::default(),
    };
    for (key, seen) in rows.keys.all().zip(&rows.records) {
        let row = copied(table, key.code, seen)?;
        let Ok(row) = row.cast::<Record>() else { return Err(no_record(table, key, &row)) };
        if record::get_item(row, &lease)?.is_some() {
            is_claimed = true;
            continue;
        }
        let constant = add_former(row, &constants, facts).and_then(|()| Constant::new(table, &lease, facts));
        match constant {
            Ok(constant) => edits.set_last(NewValue::Constant(constant)),
            // Another caller has replaced a large value of the row.
            Err(error) if errors::is_of(py, &error, "StaleRecord") => {
                is_lost = true;
                continue;
            }
            Err(error) => return Err(error),
        }
        if let Some(record) = store_if_same(table, (key.code, seen), &mut edits, &[])? {
            let claimed = copied(table, key.code, &record)?;
            let key = keys::object_of(py, key.code, key.spelling)?;
            return Ok((Some((key, claimed)), is_lost, is_claimed));
        }
        is_lost = true;
    }
    Ok((None, is_lost, is_claimed))
}

/// Adds the values of these fields, and which of them a row lacks.
fn add_former<'py>(
    row: &Bound<'py, Record>,
    names: &[Bound<'py, PyAny>],
    facts: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let py = row.py();
    let (former, missing) = (PyDict::new(py), PyList::empty(py));
    for name in names {
        match record::get_item(row, name)? {
            Some(value) => former.set_item(name, value)?,
            None => missing.append(name)?,
        }
    }
    facts.set_item("former", former)?;
    match missing.is_empty() {
        false => facts.set_item("missing", missing),
        true if facts.contains("missing")? => facts.del_item("missing"),
        true => Ok(()),
    }
}

/// `TypeError` for a row that is no dict.
fn no_record(table: &Bound<'_, Table>, key: KeyOf<'_>, value: &Bound<'_, PyAny>) -> PyErr {
    let py = table.py();
    let shown = keys::object_of(py, key.code, key.spelling).and_then(|key| key.repr());
    let (shown, kind) = match (shown, value.get_type().name()) {
        (Ok(shown), Ok(kind)) => (shown, kind),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    errors::type_error(format!(
        "claim() sets fields of records, and row {shown} of table {:?} is of type {kind}: let the condition be \
         about a field",
        table.get().name(py)
    ))
}
