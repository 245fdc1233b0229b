//! Begins snapshots and transactions.

use std::time::Duration;

use crate::db::store::Store;
use crate::error::Result;
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::Transaction;

impl Store {
    /// The newest version of everything, for a program that keeps it. Leaves reader slots to reads.
    ///
    /// # Errors
    /// As `snapshot`.
    pub fn kept_snapshot(&self) -> Result<Snapshot> {
        self.link()?.database.lock().database()?.kept_snapshot()
    }

    /// The newest version of everything, for a read.
    ///
    /// # Errors
    /// `Closed`, `TooManyReaders`, or when another process damaged the file.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.link()?.database.lock().database()?.snapshot()
    }

    /// Begin a write transaction, after all others have ended.
    ///
    /// # Errors
    /// `ReadOnly`, `Busy` after the timeout, `Closed`, `DiskFull`.
    pub fn begin(&self, timeout: Duration) -> Result<Transaction> {
        self.begin_while(timeout, &mut || true)
    }

    /// As `begin`; `go_on` is called at intervals while it waits. It must not panic.
    ///
    /// # Errors
    /// As `begin`; `Stopped` if `go_on` returned false.
    pub fn begin_while(&self, timeout: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<Transaction> {
        Transaction::begin(self.writable()?, timeout, self.options().durability, go_on)
    }

    /// As `begin`, without waiting: `None` if it would have to wait. The timeout limits later waits
    /// of the transaction.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, `DiskFull`.
    pub fn try_begin(&self, timeout: Duration) -> Result<Option<Transaction>> {
        Transaction::try_begin(self.writable()?, timeout, self.options().durability)
    }
}
