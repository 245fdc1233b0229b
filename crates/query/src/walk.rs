//! Where do the rows come from?

use std::ops::ControlFlow;

use pellucid_store::{Row, Scan, StoreError, Transaction, TransactionScan};

/// A source of rows, one after the other.
pub trait Walk {
    /// Gives the next rows to `visit`, as many as are at hand, until it breaks. Returns what it said last; None at the end.
    ///
    /// # Errors
    /// Damage on the way.
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, StoreError>;
}

impl Walk for Scan {
    #[inline]
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, StoreError> {
        self.next_rows(visit)
    }
}

/// A walk inside a transaction, with the transaction it needs.
pub struct Inside<'a> {
    /// The walk.
    pub scan: &'a mut TransactionScan,
    /// Its transaction.
    pub transaction: &'a Transaction,
}

impl Walk for Inside<'_> {
    #[inline]
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, StoreError> {
        self.scan.next(self.transaction, visit)
    }
}
