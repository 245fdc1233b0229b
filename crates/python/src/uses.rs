//! Notes uses of the entries of a cache in memory that processes share.
//!
//! `pellucid.cache.uses` maps a file and gives the numbers here, one for each slot. A lookup that
//! finds a row notes that by the way: in Python, to hash the key again and to store the time took
//! as long as the lookup.

use std::time::{SystemTime, UNIX_EPOCH};

use pellucid_record::keyed;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::shared_numbers::SharedNumbers;
use crate::table::handle::Table;
use crate::values::keys::{self, Key};

/// When keys were used last, or how often, by their hashes.
#[pyclass(frozen, module = "pellucid._native")]
pub struct UseSlots {
    slots: SharedNumbers,
    /// The count of slots, a power of two, less one.
    mask: usize,
    counts: bool,
}

impl UseSlots {
    /// The same in every process, and for all spellings of the key.
    fn slot_of(&self, key: &Key) -> usize {
        keyed::hash(&key.bytes) as usize & self.mask
    }

    fn note_in(&self, slot: usize) {
        let number = if self.counts {
            self.slots.get(slot) + 1.0
        } else {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
        };
        self.slots.set(slot, number);
    }
}

#[pymethods]
impl UseSlots {
    /// Of writable numbers, as many as a power of two. With `counts`, they are counts of uses, and
    /// otherwise times.
    #[new]
    fn new(slots: PyBuffer<f64>, counts: bool) -> PyResult<Self> {
        let slots = SharedNumbers::new(slots).filter(|slots| slots.count().is_power_of_two());
        let why = "slots are writable numbers, and their count is a power of two";
        let slots = slots.ok_or_else(|| errors::value_error(why))?;
        Ok(Self { mask: slots.count() - 1, slots, counts })
    }

    /// Return the slot of a key.
    fn slot(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.slot_of(&keys::key_of("cache", key)?))
    }

    /// Note that a key is used now.
    fn note(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.note_in(self.slot(key)?);
        Ok(())
    }
}

/// A table whose `get` notes the use of what it finds.
#[pyclass(frozen, module = "pellucid._native")]
pub struct NotedTable {
    table: Py<Table>,
    uses: Py<UseSlots>,
}

#[pymethods]
impl NotedTable {
    #[new]
    fn new(table: Py<Table>, uses: Py<UseSlots>) -> Self {
        Self { table, uses }
    }

    /// Return the value of `key`, or `default`.
    #[pyo3(signature = (key, default, /))]
    fn get<'py>(&self, key: &Bound<'py, PyAny>, default: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let uses = self.uses.get();
        // The slot is stored into when the value is there: decoding may run code of its class.
        let mut slot = 0;
        let found = Table::lookup_by(self.table.bind(key.py()), key, |key| slot = uses.slot_of(key))?;
        Ok(found.inspect(|_| uses.note_in(slot)).unwrap_or(default))
    }
}
