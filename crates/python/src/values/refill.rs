//! Rows of a walk that are used again.
//!
//! A walk that looks its rows up copies each. Making the objects around a copy takes longer than
//! the copy, so the walk has the row that it returned two steps ago stand for the next record, if
//! nothing else holds that row. What changes a row gives it another holder, so that it is not used
//! again.

use pyo3::prelude::*;

use crate::values::row::{Holder, Row};

impl Row {
    /// A row over its own copy that its walk may `refill`.
    pub fn walked(self, py: Python<'_>) -> Self {
        self.holder.with(py, |holder| {
            if let Holder::Owned(copy) = holder {
                // The bytes do not move.
                *holder = Holder::Walked(std::mem::take(copy).into_vec());
            }
        });
        self
    }

    /// Has the row of a walk stand for another record, in the memory that it has. False if it is no
    /// such row any more, or if that memory is being read. The caller is the row's only owner.
    pub fn refill(&self, py: Python<'_>, record: &[u8], key: &[u8]) -> bool {
        if self.readers.get() > 0 {
            return false;
        }
        self.holder.with(py, |holder| {
            let Holder::Walked(copy) = holder else { return false };
            copy.clear();
            copy.extend_from_slice(record);
            copy.extend_from_slice(key);
            self.lead_to(copy.as_ptr(), record.len(), key.len());
            true
        })
    }
}
