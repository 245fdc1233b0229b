//! What does a row look like from outside, where the table was opened with a class?

use pellucid_record::layout::Kind;
use pyo3::prelude::*;

use crate::bytes::{self, handle_of_row};
use crate::hooks;
use crate::hot::gil::GilRc;
use crate::hot::row::Row;

/// What a row of a table looks like from outside.
pub fn value_of_row(py: Python<'_>, row: GilRc<Row>) -> PyResult<Bound<'_, PyAny>> {
    let class = row.table.as_ref().and_then(|table| table.get().class.as_ref());
    let is_dict = row
        .bytes()
        .first()
        .is_some_and(|byte| matches!(Kind::from_number(byte >> 4), Some(Kind::Shaped | Kind::Keyed)));
    match class {
        // An Enum is stored as its value, a dataclass and its kin as a dict.
        // Attached anew, for the AttributeError that hasattr drops: a scan comes here from a raw slot.
        Some(class) if is_dict || Python::attach(|_py| class.bind(py).hasattr("__members__"))? => {
            hooks::build(class.bind(py).as_any(), &bytes::plain_of_row(py, &row)?)
        }
        _ => handle_of_row(py, row),
    }
}
