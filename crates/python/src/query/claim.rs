//! Claims rows, and changes claimed ones: for `pellucid.claims`, which says what a claim is.
//!
//! The row is found, read and written once, in one transaction. What runs in it beside the store is
//! the encoding of the lease and the decoding of the row.

use std::time::{SystemTime, UNIX_EPOCH};

use pellucid_record::Shapes;
use pellucid_record::patch::Change;
use pellucid_record::path::{Step, resolve};
use pellucid_record::view::{Root, Slot};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use crate::errors;
use crate::hot::gil::GilRc;
use crate::query::change::CollectKeys;
use crate::query::edits::{Constant, Edits, KeyOf, NewValue, parsed};
use crate::query::handle::Query;
use crate::query::target::QueryTarget;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::bytes::handle_of_row;
use crate::values::handles::Record;
use crate::values::keys;
use crate::values::record::{self, detached};
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Walked, over};

const LEASE: &str = "_lease";

/// Sets fields in the first row of a query, and a lease for `seconds`. Returns the key, the row and
/// the moment when the lease runs out; None if there is no row; False if the row has a lease.
#[pyfunction]
#[pyo3(name = "_claim_first")]
pub fn claim_first<'py>(
    query: &Bound<'py, Query>,
    fields: &Bound<'py, PyDict>,
    seconds: f64,
    token: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let py = query.py();
    let QueryTarget::Table(table) = &query.get().of else {
        return Err(errors::internal("the rows of a server are claimed in Python"));
    };
    let table = table.bind(py);
    let this = table.get();
    this.check_writable(py)?;
    let (mut paths, mut values) = parsed(table, fields.iter())?;
    let constants = fields.keys().iter().zip(&values);
    let constants = constants.filter(|(_, value)| matches!(value, NewValue::Constant(_)));
    let constants: Vec<_> = constants.map(|(name, _)| name).collect();
    paths.push(crate::column::steps_of(PyString::intern(py, LEASE).as_any())?);
    let core = this.core();
    transaction::within(py, core, || {
        let none = || Ok(py.None().into_bound(py));
        let Some(source) = query.source(Walked::ByOne)? else { return none() };
        let found = over(py, &TableRef::new(table), source, CollectKeys)?;
        let Some(key) = found.some(0..1).next() else { return none() };
        let record = core.in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
            Ok(transaction.get(id, key.code)?.map(|cell| cell.record.to_vec()))
        })?;
        let Some(record) = record else { return none() };
        let old = value_of(table, key, &record)?;
        let Ok(old) = old.cast::<Record>() else { return Err(no_record(table, key, &old)) };
        let name = PyString::intern(py, LEASE).into_any();
        if record::get_item(old, &name)?.is_some() {
            return Ok(PyBool::new(py, false).to_owned().into_any());
        }
        let until = now() + seconds;
        let facts = lease(old, &constants, until, token)?;
        values.push(NewValue::Constant(Constant::new(table, &name, &facts)?));
        let mut edits = Edits::new(&paths, values);
        let changed = core.in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Ok(None)) };
            edits.patch_row((py, core), transaction, id, key, &[])
        })?;
        core.learn_uncommitted(py);
        let Some(record) = changed.map_err(|error| edits.unfit(py, &error).raised(table, key))? else {
            return none();
        };
        let row = detached(&value_of(table, key, &record)?)?.cast_into::<PyDict>()?;
        row.del_item(LEASE)?;
        Ok((keys::object_of(py, key.code, key.spelling)?, row, until).into_pyobject(py)?.into_any())
    })
}

/// Sets fields in a row that is claimed with this token, and with `ends` ends the lease. Returns
/// whether the lease holds.
#[pyfunction]
#[pyo3(name = "_change_claimed")]
pub fn change_claimed<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    token: i64,
    fields: &Bound<'py, PyDict>,
    ends: bool,
) -> PyResult<bool> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let (paths, values) = parsed(table, fields.iter())?;
    let mut edits = Edits::new(&paths, values);
    let stored = keys::key_of(&this.name(py), key)?;
    let key = KeyOf { code: &stored.bytes, spelling: &stored.spelling };
    let lease = [Step::Field(LEASE)];
    let beside = [(&lease[..], Change::Delete)];
    let core = this.core();
    let is_held = transaction::within(py, core, || {
        let changed = core.in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
            let Some(cell) = transaction.get(id, key.code)? else { return Ok(None) };
            if !holds(&cell.record, &**transaction.shapes(), token) {
                return Ok(None);
            }
            edits.patch_row((py, core), transaction, id, key, if ends { &beside[..] } else { &[] }).map(Some)
        })?;
        core.learn_uncommitted(py);
        match changed {
            Some(Err(error)) => Err(edits.unfit(py, &error).raised(table, key)),
            changed => Ok(changed.is_some()),
        }
    })?;
    keys::recycle(py, stored);
    Ok(is_held)
}

/// The lease of a row: until when it holds, its token, and the former values of these fields.
fn lease<'py>(
    old: &Bound<'py, Record>,
    names: &[Bound<'py, PyAny>],
    until: f64,
    token: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let py = old.py();
    let (facts, former, missing) = (PyDict::new(py), PyDict::new(py), PyList::empty(py));
    for name in names {
        match record::get_item(old, name)? {
            Some(value) => former.set_item(name, value)?,
            None => missing.append(name)?,
        }
    }
    facts.set_item("until", until)?;
    facts.set_item("token", token)?;
    facts.set_item("former", former)?;
    if !missing.is_empty() {
        facts.set_item("missing", missing)?;
    }
    Ok(facts.into_any())
}

/// Whether a record has the lease with this token, and it has not run out.
fn holds<S: Shapes + ?Sized>(record: &[u8], shapes: &S, token: i64) -> bool {
    let slot = |name| match resolve(record, shapes, &[Step::Field(LEASE), Step::Field(name)]) {
        Ok(Some(Root::Scalar(slot))) => Some(slot),
        _ => None,
    };
    matches!(slot("token"), Some(Slot::Int(found)) if found == token)
        && matches!(slot("until"), Some(Slot::Float(until)) if until > now())
}

/// The value of a record, whatever the class of its table is.
fn value_of<'py>(table: &Bound<'py, Table>, key: KeyOf<'_>, record: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    handle_of_row(table.py(), GilRc::new(Table::copied_row(table, key.code, record, None)))
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

/// Seconds since 1970, as `time.time()` counts them.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
