//! Iterate over the values of an index and the keys of their rows.

use std::sync::Arc;

use pellucid_query::index::Keys;
use pellucid_store::{Row as StoredRow, StoreError, TransactionScan};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::{GilCell, GilValue};
use crate::index::handle::KnownIndex;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::keys;

/// An iterator over pairs of value and row key of an index, as they were when it began.
///
/// >>> import pellucid
/// >>> from pellucid import F
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> table.extend([{"n": 2}, {"n": 1}])
/// 2
/// >>> table.create_index("n", F.n)
/// >>> list(table.index("n").keys())
/// [(1, 1), (2, 0)]
#[pyclass(frozen, module = "pellucid", name = "IndexKeys")]
pub struct IndexKeys {
    pub(super) table: Py<Table>,
    pub(super) known: Arc<KnownIndex>,
    pub(super) entries: GilCell<Option<TransactionScan>>,
    // Steps until signals are handled. `list(pairs)` runs no Python code that would handle them.
    pub(super) left: GilValue<u32>,
    // The serial of the transaction in which the iterator was made.
    pub(super) serial: Option<u64>,
}

/// How many entries come between two checks for signals: far less than a millisecond.
const SIGNAL_INTERVAL: u32 = 64;

/// The code of None in a tuple, and so in an entry, which differs from its code as a key
/// (`pellucid_record::key`).
const NONE_AS_PART: [u8; 2] = [0x00, 0xFF];

#[pymethods]
impl IndexKeys {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.table.get().check_gate(py)?;
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
        } else {
            self.left.set(SIGNAL_INTERVAL);
            callbacks::check_signals(py)?;
        }
        let database = self.table.get().core();
        let copy = |entry: StoredRow<'_>| (entry.key.to_vec(), entry.spelling.to_vec());
        let step = self.entries.with(py, |entries| match entries {
            None => Ok(None),
            Some(TransactionScan::Clean(scan)) => scan.next().map(|entry| entry.map(copy)),
            Some(scan @ TransactionScan::Dirty(_)) => {
                let serial = self.serial.unwrap_or_default();
                database
                    .in_serial(py, serial, |transaction| scan.next(transaction, copy))
                    .unwrap_or(Err(StoreError::Closed { what: "transaction that this iterator walks over" }))
            }
        });
        let Some((code, spelling)) = step.map_err(|error| store_errors::of_store(py, error))? else {
            drop(self.entries.with(py, Option::take));
            return Ok(None);
        };
        let entry = StoredRow { key: &code, spelling: &spelling, record: &[] };
        let parts = self.known.keys.split(&entry);
        let value = match &parts {
            Some(parts) => value_of_parts(py, &self.known.keys, parts.parts, parts.spelling)?,
            None => None,
        };
        let (Some(parts), Some(value)) = (parts, value) else {
            let name = &self.known.info.name;
            let message =
                format!("an entry of index {name:?} is damaged; run db.check(), and rebuild_index()");
            return Err(errors::corrupt_record(py, message));
        };
        let key = keys::object_of(py, parts.key, parts.key_spelling)?;
        Ok(Some(PyTuple::new(py, [value, key])?.into_any()))
    }
}

/// The value with these parts; None if the bytes are no parts.
///
/// # Errors
/// Damage.
pub fn value_of_parts<'py>(
    py: Python<'py>,
    of: &Keys,
    parts: &[u8],
    spelling: &[u8],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_one = of.count() == 1;
    if is_one && !of.is_descending(0) && parts != NONE_AS_PART {
        // Read as a single key: most indexes have one part, and making a tuple first took a third
        // of the time.
        return keys::object_of(py, parts, spelling).map(Some);
    }
    let Some(tuple) = of.tuple(parts) else { return Ok(None) };
    let value = keys::object_of(py, &tuple, spelling)?;
    Ok(Some(if is_one { value.get_item(0)? } else { value }))
}
