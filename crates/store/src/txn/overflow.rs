//! Reads a record together with its large values.
//!
//! A record has references to its large values. A caller that only passes them on needs no more;
//! one that compares or computes reads them here, in place.

use pellucid_record::payload::Overflow;
use pellucid_record::shape::Shape;
use pellucid_record::{Corrupt, Damage, Dictionary, Shapes};

use crate::catalog::shapes::TransactionShapes;
use crate::error::Result;
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::Transaction;

/// A source of large values.
pub trait Large {
    /// The bytes of one large value.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn large(&self, id: u64) -> Result<&[u8]>;
}

impl Large for Snapshot {
    fn large(&self, id: u64) -> Result<&[u8]> {
        self.blob(id)
    }
}

impl Large for Transaction {
    fn large(&self, id: u64) -> Result<&[u8]> {
        self.blob(id)
    }
}

impl<L: Large + ?Sized> Large for &L {
    fn large(&self, id: u64) -> Result<&[u8]> {
        (**self).large(id)
    }
}

/// Shapes, and the large values of one version.
pub struct OverflowReader<'a, S: ?Sized, L> {
    /// The shapes.
    pub shapes: &'a S,
    /// The large values.
    pub large: &'a L,
}

impl Snapshot {
    /// The shapes and large values of its records.
    #[must_use]
    pub fn overflow_reader(&self) -> OverflowReader<'_, Dictionary, Self> {
        OverflowReader { shapes: self.dictionary(), large: self }
    }
}

impl Transaction {
    /// The shapes and large values of its records.
    #[must_use]
    pub fn overflow_reader(&self) -> OverflowReader<'_, TransactionShapes, Self> {
        OverflowReader { shapes: self.shapes(), large: self }
    }
}

impl<S: Shapes + ?Sized, L: Large> Shapes for OverflowReader<'_, S, L> {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.shape(id)
    }

    #[inline]
    fn slot_count(&self, id: u32) -> Option<u32> {
        self.shapes.slot_count(id)
    }

    fn overflow(&self, overflow: &Overflow) -> Result<Option<&[u8]>, Corrupt> {
        let bytes = self.large.large(overflow.blob).ok();
        let bytes = bytes.filter(|bytes| bytes.len() as u64 == overflow.size);
        bytes.map(Some).ok_or_else(|| Corrupt::new(Damage::Overflow, 0))
    }
}
