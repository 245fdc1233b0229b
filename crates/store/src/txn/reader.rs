//! The one interface of reads, which snapshots and transactions have alike.

use std::ops::ControlFlow;

use pellucid_record::{Dictionary, Shapes};

use crate::catalog::cell::FoundRow;
use crate::catalog::index_entries::IndexInfo;
use crate::catalog::shapes::TransactionShapes;
use crate::error::{Result, StoreError};
use crate::row::{Range, Row};
use crate::row_key::TableId;
use crate::txn::lookahead::Lookahead;
use crate::txn::overflow::{Large, OverflowReader};
use crate::txn::scan::Scan;
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::Transaction;
use crate::txn::transaction_scan::TransactionScan;

/// Reads one state of a database: that of a snapshot, or what a transaction has made of it.
///
/// Rows are read through generics, so that a loop over them is compiled for each of the two.
pub trait Reader: Large + Sized {
    /// The shapes of its records.
    type Shapes: Shapes;
    /// A walk over rows. It is given its reader with each step.
    type Scan;
    /// Whether it reads committed rows, whose counts are in the engine's pages.
    const IS_COMMITTED: bool;

    /// The row under a key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<FoundRow<'_>>>;

    /// The row at which a list of keys stands, found together with those after it where that is of
    /// use.
    ///
    /// # Errors
    /// As `get`.
    fn get_next(&self, rows: &mut Lookahead) -> Result<Option<FoundRow<'_>>>;

    /// What `work` makes of the first row of a walk, without making one; `None` where there is
    /// none.
    ///
    /// # Errors
    /// As [`Scan::next`].
    fn with_first<T>(
        &self,
        table: TableId,
        range: &Range,
        reverse: bool,
        work: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<T>>;

    /// A walk over the rows of a table, or part of them.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    fn scan(&self, table: TableId, range: &Range, reverse: bool) -> Result<Self::Scan>;

    /// Gives the next row of a walk to `use_row`; `None` at the end.
    ///
    /// # Errors
    /// As [`Scan::next`].
    fn next<T>(&self, scan: &mut Self::Scan, use_row: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>>;

    /// Gives the next rows to `visit`, until it breaks. Returns what it said last; `None` at the
    /// end of the walk.
    ///
    /// # Errors
    /// As [`Scan::next`].
    fn next_rows<B>(
        &self,
        scan: &mut Self::Scan,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>>;

    /// The same walk over a snapshot, which several threads can share; what it is else.
    ///
    /// # Errors
    /// It is a walk over what a transaction has changed.
    fn into_pinned(scan: Self::Scan) -> Result<Scan, Self::Scan>;

    /// How many rows a table has, or entries an index.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    fn count(&self, table: TableId) -> Result<u64>;

    /// What is committed: itself, or what the transaction began with.
    ///
    /// # Errors
    /// When there is no room for one more reader.
    fn committed(&self) -> Result<Snapshot>;

    /// How many rows are in a range, roughly. In a transaction: of those committed before it.
    ///
    /// # Errors
    /// As [`Snapshot::estimate`].
    fn estimate(&self, table: TableId, range: &Range) -> Result<u64> {
        match self.committed()?.estimate(table, range) {
            // Made by this transaction: there are no pages to estimate from.
            Err(StoreError::TableDropped { .. }) => Ok(self.count(table)?.div_ceil(3)),
            estimate => estimate,
        }
    }

    /// The indexes of a table, by name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    fn indexes(&self, table: TableId) -> Result<Vec<IndexInfo>>;

    /// The shapes that its records name, and its large values.
    fn overflow_reader(&self) -> OverflowReader<'_, Self::Shapes, Self>;
}

/// What snapshots and transactions do by methods of their own, under the same names.
macro_rules! own_methods {
    ($own:ident) => {
        #[inline]
        fn get(&self, table: TableId, key: &[u8]) -> Result<Option<FoundRow<'_>>> {
            $own::get(self, table, key)
        }

        fn with_first<T>(
            &self,
            table: TableId,
            range: &Range,
            reverse: bool,
            work: impl FnOnce(Row<'_>) -> T,
        ) -> Result<Option<T>> {
            $own::with_first(self, table, range, reverse, work)
        }

        fn scan(&self, table: TableId, range: &Range, reverse: bool) -> Result<Self::Scan> {
            $own::scan(self, table, range, reverse)
        }

        fn count(&self, table: TableId) -> Result<u64> {
            $own::count(self, table)
        }

        fn indexes(&self, table: TableId) -> Result<Vec<IndexInfo>> {
            $own::indexes(self, table)
        }

        fn overflow_reader(&self) -> OverflowReader<'_, Self::Shapes, Self> {
            $own::overflow_reader(self)
        }
    };
}

impl Reader for Snapshot {
    type Shapes = Dictionary;
    type Scan = Scan;
    const IS_COMMITTED: bool = true;

    own_methods!(Snapshot);

    fn get_next(&self, rows: &mut Lookahead) -> Result<Option<FoundRow<'_>>> {
        Snapshot::get_next(self, rows)
    }

    #[inline]
    fn next<T>(&self, scan: &mut Scan, use_row: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>> {
        Ok(scan.next()?.map(use_row))
    }

    #[inline]
    fn next_rows<B>(
        &self,
        scan: &mut Scan,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        scan.next_rows(visit)
    }

    fn into_pinned(scan: Scan) -> Result<Scan, Scan> {
        Ok(scan)
    }

    fn committed(&self) -> Result<Snapshot> {
        Ok(self.clone())
    }
}

impl Reader for Transaction {
    type Shapes = TransactionShapes;
    type Scan = TransactionScan;
    const IS_COMMITTED: bool = false;

    own_methods!(Transaction);

    fn get_next(&self, rows: &mut Lookahead) -> Result<Option<FoundRow<'_>>> {
        match rows.current() {
            Some((_, key, _)) => self.get(rows.table(), key),
            None => Ok(None),
        }
    }

    fn next<T>(&self, scan: &mut TransactionScan, use_row: impl FnOnce(Row<'_>) -> T) -> Result<Option<T>> {
        scan.next(self, use_row)
    }

    fn next_rows<B>(
        &self,
        scan: &mut TransactionScan,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        scan.next_rows(self, visit)
    }

    fn into_pinned(scan: TransactionScan) -> Result<Scan, TransactionScan> {
        match scan {
            TransactionScan::Clean(scan) => Ok(*scan),
            dirty @ TransactionScan::Dirty(_) => Err(dirty),
        }
    }

    fn committed(&self) -> Result<Snapshot> {
        // Nobody else commits meanwhile, so the newest version is the one that this builds on.
        self.database.snapshot()
    }
}
