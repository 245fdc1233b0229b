//! The spelling of a row's key, by which messages show the key as it was stored.
//!
//! A row has the code of its key, and that of `True` is that of `1`. Few keys have details that
//! their codes leave out, so that the spelling lies aside.

use pyo3::prelude::*;

use crate::values::keys;
use crate::values::row::Row;

impl Row {
    /// The row, with the spelling of its key; mostly empty.
    #[must_use]
    #[inline]
    pub fn spelled(self, py: Python<'_>, spelling: &[u8]) -> Self {
        if !spelling.is_empty() {
            self.spell(py, spelling);
        }
        self
    }

    /// Sets the spelling of the row's key.
    #[inline]
    pub fn spell(&self, py: Python<'_>, spelling: &[u8]) {
        let before = self.aside.with(py, |aside| {
            if aside.is_none() && spelling.is_empty() {
                return None;
            }
            Some(std::mem::replace(&mut aside.get_or_insert_default().spelling, spelling.into()))
        });
        drop(before);
    }

    /// The spelling of the row's key.
    pub fn spelling(&self, py: Python<'_>) -> Box<[u8]> {
        // Copied: making an object may start the collector, whose finalizers may change the row.
        let spelling = self.aside.with(py, |aside| aside.as_ref().map(|aside| aside.spelling.clone()));
        spelling.unwrap_or_default()
    }

    /// The row's key as it was stored.
    ///
    /// # Errors
    /// `CorruptRecord` if its bytes are not a key.
    pub fn key_object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (key, spelling) = (self.key().to_vec(), self.spelling(py));
        keys::object_of(py, &key, &spelling)
    }
}
