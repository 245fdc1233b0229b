//! Updates and deletes the rows of a query on a server, in one transaction.
//!
//! New values are computed here, from the rows as they are at the begin of the transaction, and
//! each row is saved as a change of a record is. If another client has changed one of the rows
//! meanwhile, all of it is done again.

use pellucid_query::expression::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::column::for_each_values;
use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::operand;
use crate::hot::callbacks;
use crate::query::handle::Query;
use crate::query::spec::changes_of;
use crate::query::terminals::iterate;
use crate::query::words;
use crate::server::table::ServerTable;
use crate::values::views::Shows;

/// Implements `query.update(...)`: returns in how many rows a field was set.
pub fn update(
    query: &Bound<'_, Query>,
    table: &Bound<'_, ServerTable>,
    changes: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<u64> {
    let py = query.py();
    for name in fields.into_iter().flat_map(PyDictMethods::keys) {
        words::refuse_double_underscores("update", &name.to_string())?;
    }
    let changes = changes.map(changes_of).transpose()?;
    let (mut paths, mut values) = (Vec::new(), Vec::new());
    let (mut steps, mut nodes) = (Vec::new(), Vec::new());
    for (place, value) in changes.iter().chain(fields).flatten() {
        let path = crate::column::steps_of(&place)?;
        if steps.contains(&path) {
            return Err(errors::type_error(format!(
                "update() is given two values for the field {}; leave one of them out",
                place.repr()?
            )));
        }
        steps.push(path);
        paths.push(PyTuple::new(py, crate::expression::operand::field_path(&place)?)?);
        if value.is_instance_of::<Expression>() {
            // A value that is missing leaves the field as it is, and one that is None does not.
            let node = operand::node_of(&value)?;
            nodes.push(crate::query::spec::node(Kind::Exists(node.clone()))?);
            nodes.push(node);
            values.push(None);
        } else {
            operand::refuse_unready(&value)?;
            values.push(Some(value));
        }
    }
    if values.is_empty() {
        return Err(errors::type_error(
            "update() takes at least one field: update(age=F.age + 1)".to_owned(),
        ));
    }
    in_transaction(table, || {
        let computed = PyList::empty(py);
        for_each_values(query, &nodes, |row| computed.append(PyTuple::new(py, &*row)?))?;
        let items = iterate(query, Shows::Items)?;
        let given = PyList::new(py, &values)?;
        let is_given = PyList::new(py, values.iter().map(Option::is_some))?;
        table.call_method1("update_rows", (items, &paths, given, is_given, &computed))?.extract()
    })
}

/// Implements `query.delete()`: returns how many rows there were.
pub fn delete(query: &Bound<'_, Query>, table: &Bound<'_, ServerTable>) -> PyResult<u64> {
    in_transaction(table, || {
        let keys = iterate(query, Shows::Keys)?;
        table.call_method1("delete_rows", (keys,))?.extract()
    })
}

/// Runs work within a transaction of Python's, and again as long as other clients were in the way.
fn in_transaction<R>(table: &Bound<'_, ServerTable>, work: impl Fn() -> PyResult<R>) -> PyResult<R> {
    let py = table.py();
    callbacks::code_may_run(py);
    let attempts = table.call_method0("attempts")?;
    loop {
        match in_one(&table.call_method0("transaction")?, &work) {
            Err(error) if attempts.call_method1("again", (error.value(py),))?.is_truthy()? => {}
            done => return done,
        }
    }
}

fn in_one<R>(within: &Bound<'_, PyAny>, work: impl Fn() -> PyResult<R>) -> PyResult<R> {
    let py = within.py();
    within.call_method0("__enter__")?;
    match work() {
        Ok(result) => {
            within.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
            Ok(result)
        }
        Err(error) => {
            within.call_method1("__exit__", (error.get_type(py), error.value(py), py.None()))?;
            Err(error)
        }
    }
}
