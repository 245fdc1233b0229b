//! Convert statistics and check results of the store to Python objects.

use std::collections::HashMap;

use pellucid_store::{Finding, Sizes, Stats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::core::Core;
use crate::signals::Signals;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::keys;

/// The sizes of a table for `Table.stats()`.
///
/// # Errors
/// What a signal handler raises; `DatabaseCorrupt`.
pub fn sizes_of<'py>(table: &Bound<'py, Table>) -> PyResult<Bound<'py, PyDict>> {
    let (py, this) = (table.py(), table.get());
    let failed = |error| store_errors::of_store(py, error);
    let snapshot = this.snapshot(py)?;
    let id = this.identity().in_committed(py, this.core(), &snapshot).map_err(failed)?;
    let (mut sizes, mut is_compressed) = (Sizes::default(), false);
    if let Some(id) = id {
        let mut signals = Signals::by_turns();
        sizes = snapshot.sizes(id, &mut || signals.go_on()).map_err(failed)?;
        is_compressed = snapshot.is_compressed(id).map_err(failed)?;
    }
    let result = PyDict::new(py);
    for (name, value) in [
        ("compress", u64::from(is_compressed)),
        ("rows", sizes.rows),
        ("compressed_rows", sizes.packed_rows),
        ("key_size", sizes.keys),
        ("plain_size", sizes.records),
        ("size", sizes.stored),
        ("dictionaries", sizes.dictionaries),
        ("dictionary_size", sizes.dictionary_bytes),
    ] {
        result.set_item(name, value)?;
    }
    Ok(result)
}

/// The statistics of a database for `Database.stats()`: sizes in bytes, all other figures are
/// counts.
pub fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, value) in [
        ("version", stats.version),
        ("tables", stats.tables),
        ("rows", stats.rows),
        ("indexes", stats.indexes),
        ("index_entries", stats.index_entries),
        ("entry_writes", stats.entry_writes),
        ("blobs", stats.blobs),
        ("shapes", stats.shapes),
        ("file_size", stats.file_size),
        ("page_size", stats.page_size),
        ("pages", stats.pages),
        ("free_pages", stats.free_pages),
        ("map_size", stats.map_size),
        ("log_pending", stats.log_pending),
        ("log_size", stats.log_size),
        ("log_limit", stats.log_limit),
        ("history_size", stats.history_size),
        ("log_recovered", stats.log_recovered),
        ("readers", stats.readers),
        ("reader_slots", stats.reader_slots),
        ("oldest_reader_lag", stats.oldest_reader_lag),
        ("oldest_reader_process", stats.oldest_reader_process),
        ("oldest_reader_age", stats.oldest_reader_age),
        ("live_size", stats.live_size),
        ("free_size", stats.free_size),
        ("pinned_size", stats.pinned_size),
    ] {
        result.set_item(name, value)?;
    }
    Ok(result)
}

/// The problems that a check has found, as texts; a row is shown by its table and key if both can
/// be read.
pub fn findings(py: Python<'_>, core: &Core, findings: &[Finding]) -> Vec<String> {
    // A damaged catalog is a problem of its own; the names are missing here in that case.
    let snapshot = core.store.snapshot();
    let tables = snapshot.and_then(|snapshot| snapshot.tables()).unwrap_or_default();
    let names: HashMap<_, _> = tables.into_iter().map(|(name, id)| (id, name)).collect();
    let in_words = |finding: &Finding| {
        let (table, key) = finding.row.as_ref()?;
        let (name, key) = (names.get(table)?, keys::object_of(py, key, &[]).ok()?.repr().ok()?);
        Some(format!("record {key} of table {name:?}: {}", finding.what))
    };
    findings.iter().map(|finding| in_words(finding).unwrap_or_else(|| finding.to_string())).collect()
}
