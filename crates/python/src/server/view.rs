//! The views of a server's table: what `keys()`, `values()` and `items()` of it return.
//!
//! The range of a view is an object of Python's, `pellucid.postgres.table.range.TableRange`, which
//! counts its rows, iterates over them and finds one.

use pyo3::prelude::*;

use crate::hot::callbacks;
use crate::values::views::{DictItems, DictKeys, DictValues, Shows, Viewed};

/// The range of a table that a view shows.
struct ServerView {
    table: Py<PyAny>,
    range: Py<PyAny>,
    reverse: bool,
}

impl Viewed for ServerView {
    fn object(&self) -> &Py<PyAny> {
        &self.table
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        callbacks::code_may_run(py);
        self.range.bind(py).call_method0("count")?.extract()
    }

    fn iterate<'py>(&self, py: Python<'py>, shows: Shows, reverse: bool) -> PyResult<Bound<'py, PyAny>> {
        let word = match shows {
            Shows::Keys => "keys",
            Shows::Values => "values",
            Shows::Items => "items",
        };
        callbacks::code_may_run(py);
        let reverse = self.reverse != reverse;
        self.range.bind(py).call_method1("iterate", (word, reverse))
    }

    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        callbacks::code_may_run(py);
        let found = self.range.bind(py).call_method1("get", (key,))?;
        let found: Option<(Bound<'py, PyAny>,)> = found.extract()?;
        Ok(found.map(|(value,)| value))
    }
}

/// The view of a table's range for "keys", "values" or "items".
///
/// # Errors
/// `MemoryError`.
pub fn view_of<'py>(
    table: &Bound<'py, PyAny>,
    shows: &str,
    range: &Bound<'py, PyAny>,
    reverse: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let view = ServerView { table: table.clone().unbind(), range: range.clone().unbind(), reverse };
    Ok(match shows {
        "keys" => DictKeys::of(py, view)?.into_any(),
        "values" => DictValues::of(py, view)?.into_any(),
        _ => DictItems::of(py, view)?.into_any(),
    }
    .into_bound(py))
}
