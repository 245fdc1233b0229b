//! What goes in and out where a table was opened with a class (`type=`)?
//!
//! Nothing in a record names its class. So what goes in is of exactly the table's class, and what comes out is made one by
//! `pellucid.instances`, whole and detached; a record that does not make one raises, and is still there without the class.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::GilRc;
use crate::table::handle::Table;
use crate::values::bytes::{self, handle_of_row};
use crate::values::row::Row;
use crate::values::{hooks, row_errors};

/// What rows of a table come back as.
pub struct RowClass {
    /// Their class.
    pub python: Py<PyType>,
    /// Whether each read calls it with the stored fields, instead of setting them.
    pub run_init: bool,
    // What says whether an instance would come back; None where that does not depend on its parts.
    checker: PyOnceLock<Option<Py<PyAny>>>,
}

/// The class that `type=` says; None where it says none.
pub fn class_of(argument: Option<&Bound<'_, PyAny>>, run_init: bool) -> PyResult<Option<RowClass>> {
    let Some(argument) = argument else {
        return if run_init {
            Err(errors::type_error("run_init=True is about the class that type= names; give both".to_owned()))
        } else {
            Ok(None)
        };
    };
    match argument.cast::<PyType>() {
        Ok(class) => {
            Ok(Some(RowClass { python: class.clone().unbind(), run_init, checker: PyOnceLock::new() }))
        }
        Err(_) => Err(errors::type_error(format!(
            "type= is the class that rows come back as, not {}; what a field of it holds, its annotations say",
            argument.repr()?
        ))),
    }
}

/// What a row of a table looks like from outside.
pub fn value_of_row(py: Python<'_>, row: GilRc<Row>) -> PyResult<Bound<'_, PyAny>> {
    let table = row.table.as_ref().map(|table| table.bind(py));
    let class = table.as_ref().and_then(|table| table.cast_exact::<Table>().ok()?.get().class.as_ref());
    let Some(class) = class else { return handle_of_row(py, row) };
    // Attached anew, for the errors that Python code drops on its way: a scan comes here from a raw slot.
    Python::attach(|_py| {
        hooks::build(class.python.bind(py), &bytes::plain_of_row(py, &row)?, class.run_init).map_err(
            |error| {
                let is_ours = error.get_type(py).name().is_ok_and(|name| name == "WrongClass");
                if !is_ours {
                    return error;
                }
                let placed = errors::raise(
                    py,
                    "WrongClass",
                    format!("{} {}", row_errors::describe(py, &row), error.value(py)),
                );
                placed.set_cause(py, error.cause(py));
                placed
            },
        )
    })
}

impl RowClass {
    /// Raises where an instance of the class has a part that would not come back as it is.
    fn check_parts(&self, value: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        let py = value.py();
        let checker =
            self.checker.get_or_try_init(py, || hooks::checker(self.python.bind(py), self.run_init))?;
        let Some(checker) = checker else { return Ok(()) };
        let why = checker.bind(py).call1((value,))?;
        if why.is_none() {
            return Ok(());
        }
        let why: String = why.extract()?;
        Err(errors::raise(py, "WrongClass", format!("{} {why}", place())))
    }
}

impl Table {
    /// Raises where `value` is not of the table's class, or would not come back as it is; `place` names it.
    pub fn check_class(&self, value: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        let py = value.py();
        let Some(row_class) = &self.class else { return Ok(()) };
        let class = row_class.python.bind(py);
        // What admits a value may be the user's.
        callbacks::code_may_run(py);
        if value.get_type().is(class) {
            return row_class.check_parts(value, place);
        }
        if hooks::admits(class, value)? {
            return Ok(());
        }
        let (wanted, given) = (class.fully_qualified_name()?, value.get_type().fully_qualified_name()?);
        Err(errors::raise(
            py,
            "WrongClass",
            format!(
                "{} is of type {given}, and the table was opened with type={wanted}: store an instance of exactly that \
                 class, or open the table without type= to store anything",
                place()
            ),
        ))
    }
}
