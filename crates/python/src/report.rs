//! What do the store's figures look like in Python?

use pellucid_store::Stats;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The figures of a database, as `Database.stats()` gives them: sizes in bytes, everything else counts.
pub fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, value) in [
        ("version", stats.version),
        ("tables", stats.tables),
        ("rows", stats.rows),
        ("blobs", stats.blobs),
        ("shapes", stats.shapes),
        ("file_size", stats.file_size),
        ("page_size", stats.page_size),
        ("pages", stats.pages),
        ("free_pages", stats.free_pages),
        ("map_size", stats.map_size),
        ("readers", stats.readers),
        ("reader_slots", stats.reader_slots),
        ("oldest_reader_lag", stats.oldest_reader_lag),
    ] {
        result.set_item(name, value)?;
    }
    Ok(result)
}
