//! Where do the rows come from?

use pellucid_store::{Row, Scan, StoreError, Transaction, TransactionScan};

/// A source of rows, one after the other.
pub trait Walk {
    /// Gives the next row to `visit` and returns what it says; None at the end.
    ///
    /// # Errors
    /// Damage on the way.
    fn step<T>(&mut self, visit: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>, StoreError>;
}

impl Walk for Scan {
    #[inline]
    fn step<T>(&mut self, visit: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.next()?.map(visit))
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
    fn step<T>(&mut self, visit: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>, StoreError> {
        self.scan.next(self.transaction, visit)
    }
}
