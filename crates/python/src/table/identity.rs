//! The identity of the table behind a handle, when tables are renamed and dropped.
//!
//! A handle is made for a name. As soon as the table exists, the handle stands for that table by
//! its id, which is never reused. So the handle follows the table to another name, whichever
//! process has renamed it, and raises `StaleTable` once the table is dropped. It never switches to
//! another table that has taken the name, since writes meant for the first table would go to the
//! second. If a handle has not been used since its table was created, a rename or drop through the
//! same database informs it; a rename by another process before the first use goes unnoticed.
//!
//! A database's own handle stays with the name "default", and a snapshot's handle needs only its
//! name.

use std::sync::Arc;

use pellucid_store::{KnownTable, Snapshot, StoreError, TableId, Transaction};
use pyo3::prelude::*;

use crate::core::Core;
use crate::hot::gil::{GilCell, GilRc, GilValue};
use crate::table_binding::{TableBinding, TxnOutcome};

/// The knowledge of a handle about its table.
pub struct Identity {
    binding: GilRc<TableBinding>,
    stays_with_name: bool,
    // The table's id, found in this version of the catalog.
    seen: GilValue<Option<KnownTable>>,
    // The table, a version, and the int key that the next append() gets in that version.
    next_key: GilValue<Option<(TableId, u64, i64)>>,
    // The table's id, found in a transaction whose catalog had this serial.
    seen_within: GilValue<Option<(u64, TableId)>>,
    // Whether the table must be compressed or must not be, and the table of which that is known.
    compress: Option<bool>,
    compared: GilValue<Option<TableId>>,
}

impl Identity {
    /// The identity of a table that has, or will have, this name.
    pub fn new(name: String, stays_with_name: bool) -> Self {
        let given = Arc::from(name);
        let binding =
            TableBinding { name: GilCell::new(Arc::clone(&given)), given, table: GilCell::new(None) };
        Self::bound(GilRc::new(binding), stays_with_name)
    }

    /// The identity of another handle for the same table, which follows it as this one does.
    pub fn again(&self) -> Self {
        Self::bound(self.binding.clone(), self.stays_with_name)
    }

    fn bound(binding: GilRc<TableBinding>, stays_with_name: bool) -> Self {
        Self {
            binding,
            stays_with_name,
            seen: GilValue::new(None),
            next_key: GilValue::new(None),
            seen_within: GilValue::new(None),
            compress: None,
            compared: GilValue::new(None),
        }
    }

    /// The same, of a table that is compressed, or is not.
    pub fn with_compression(self, compress: Option<bool>) -> Self {
        Self { compress, ..self }
    }

    /// Compares a table that was found with what the handle was made for.
    fn compare(
        &self,
        py: Python<'_>,
        table: TableId,
        is_compressed: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(wanted) = self.compress.filter(|_| self.compared.get() != Some(table)) else {
            return Ok(());
        };
        if is_compressed()? != wanted {
            let table = self.name(py).to_string();
            return Err(StoreError::OtherCompression { table, is_compressed: !wanted });
        }
        self.compared.set(Some(table));
        Ok(())
    }

    /// The `TableBinding` to inform when the table of its name is renamed, if the handle has not
    /// found the table yet.
    pub fn pending(&self, py: Python<'_>) -> Option<GilRc<TableBinding>> {
        (!self.stays_with_name && self.binding.is_pending(py)).then(|| self.binding.clone())
    }

    /// The table's name when it was last looked up.
    pub fn name(&self, py: Python<'_>) -> Arc<str> {
        self.binding.name.with(py, |name| name.clone())
    }

    /// The table's id in a snapshot; None if there is no table of its name yet.
    ///
    /// # Errors
    /// `TableDropped`; errors for a damaged catalog.
    #[inline]
    pub fn in_snapshot(
        &self,
        py: Python<'_>,
        core: &Core,
        snapshot: &Snapshot,
    ) -> Result<Option<TableId>, StoreError> {
        let version = snapshot.catalog_version();
        match self.seen.get() {
            Some(seen) if seen.version == version => Ok(Some(seen.table)),
            _ => self.look_in_snapshot(py, core, snapshot),
        }
    }

    /// The committed table's id, also for a caller whose running transaction creates the table:
    /// then there is none yet, and `name` is its name in the transaction.
    ///
    /// # Errors
    /// `TableDropped`; errors for a damaged catalog.
    pub fn in_committed(
        &self,
        py: Python<'_>,
        core: &Core,
        snapshot: &Snapshot,
    ) -> Result<Option<TableId>, StoreError> {
        let met = self.binding.table.with(py, |table| table.clone());
        match met {
            Some((id, Some(outcome))) if matches!(outcome.get(), TxnOutcome::Running) && core.is_mine(py) => {
                Ok(snapshot.tables()?.into_iter().any(|(_, table)| table == id).then_some(id))
            }
            _ => self.in_snapshot(py, core, snapshot),
        }
    }

    /// The table, and the version of the catalog in which it was last found.
    #[inline]
    pub fn known(&self) -> Option<KnownTable> {
        self.seen.get()
    }

    /// The table, a version, and the int key that the next `append` gets in that version, if known.
    pub fn next_key(&self) -> Option<(TableId, u64, i64)> {
        self.next_key.get()
    }

    /// Sets the value of `next_key`.
    pub fn note_next_key(&self, next: Option<(TableId, u64, i64)>) {
        self.next_key.set(next);
    }

    /// Forgets the version, because the catalog has changed.
    pub fn forget_version(&self) {
        self.seen.set(None);
    }

    fn look_in_snapshot(
        &self,
        py: Python<'_>,
        core: &Core,
        snapshot: &Snapshot,
    ) -> Result<Option<TableId>, StoreError> {
        self.binding.forget_rolled_back(py);
        let found = snapshot.table(&self.name(py))?;
        let id = self.resolve(py, core, found, || snapshot.tables())?;
        if let Some(id) = id {
            self.compare(py, id, || snapshot.is_compressed(id))?;
        }
        let known = id.map(|table| snapshot.known(table)).transpose()?;
        self.seen.set(known);
        if let Some(id) = id {
            self.bind(py, id);
        }
        Ok(id)
    }

    /// The same in a transaction: the caller's running one, or one that is about to be committed.
    #[inline]
    pub fn in_transaction(
        &self,
        py: Python<'_>,
        core: &Core,
        transaction: &Transaction,
    ) -> Result<Option<TableId>, StoreError> {
        // The most frequent case for writes in a transaction: looking up the name was an eighth of
        // the time of setting a field.
        match self.seen_within.get() {
            Some((serial, id)) if serial == transaction.catalog_serial() => Ok(Some(id)),
            _ => match self.seen.get() {
                // Found in the committed state, and the catalog has not changed since.
                Some(seen) if transaction.catalog_version() == Some(seen.version) => {
                    self.seen_within.set(Some((transaction.catalog_serial(), seen.table)));
                    Ok(Some(seen.table))
                }
                _ => self.look_for_name(py, core, transaction),
            },
        }
    }

    fn look_for_name(
        &self,
        py: Python<'_>,
        core: &Core,
        transaction: &Transaction,
    ) -> Result<Option<TableId>, StoreError> {
        self.binding.forget_rolled_back(py);
        let found = self.binding.name.with(py, |name| transaction.table(name))?;
        // The most frequent case for writes that are a transaction of their own.
        let id =
            if self.binding.table.with(py, |table| matches!(table, Some((id, None)) if Some(*id) == found)) {
                if let Some(table) = found {
                    self.seen.set(transaction.known(table)?.or(self.seen.get()));
                }
                found
            } else {
                self.look_in_transaction(py, core, transaction, found)?
            };
        self.seen_within.set(id.map(|id| (transaction.catalog_serial(), id)));
        Ok(id)
    }

    fn look_in_transaction(
        &self,
        py: Python<'_>,
        core: &Core,
        transaction: &Transaction,
        found: Option<TableId>,
    ) -> Result<Option<TableId>, StoreError> {
        let id = self.resolve(py, core, found, || transaction.tables())?;
        if let Some(id) = id {
            self.compare(py, id, || transaction.is_compressed(id))?;
            self.bind_in_running(py, core, id);
        }
        Ok(id)
    }

    /// The same in a transaction that is about to write; creates the table if it does not exist.
    pub fn for_writing(
        &self,
        py: Python<'_>,
        core: &Core,
        transaction: &mut Transaction,
    ) -> Result<TableId, StoreError> {
        if let Some(id) = self.in_transaction(py, core, transaction)? {
            return Ok(id);
        }
        let name = self.name(py);
        let id = match self.compress {
            Some(compress) => transaction.create_table_as(&name, compress)?,
            None => transaction.create_table(&name)?,
        };
        self.compared.set(Some(id));
        // A transaction of its own is not committed yet: see `bind`.
        if core.is_mine(py) {
            self.bind_in_running(py, core, id);
        }
        Ok(id)
    }

    /// Notes that the committed table has this id.
    pub fn bind(&self, py: Python<'_>, id: TableId) {
        self.bind_since(py, id, None);
    }

    /// Notes the id of a table that was found or created in a transaction. If the caller has no
    /// running transaction, the table existed before.
    fn bind_in_running(&self, py: Python<'_>, core: &Core, id: TableId) {
        self.bind_since(py, id, core.running_outcome(py));
    }

    fn bind_since(&self, py: Python<'_>, id: TableId, outcome: Option<GilRc<GilValue<TxnOutcome>>>) {
        if !self.stays_with_name && self.binding.table.with(py, |table| table.is_none()) {
            drop(self.binding.table.with(py, |table| table.replace((id, outcome))));
        }
    }

    /// The table that the handle stands for, if the caller can see it.
    fn table(&self, py: Python<'_>, core: &Core) -> Option<TableId> {
        let (id, outcome) = self.binding.table.with(py, |table| table.clone())?;
        let Some(outcome) = outcome else { return Some(id) };
        let now = match outcome.get() {
            TxnOutcome::Running => return core.is_mine(py).then_some(id),
            TxnOutcome::Committed => Some((id, None)),
            TxnOutcome::RolledBack => None,
        };
        drop(self.binding.table.with(py, |table| std::mem::replace(table, now)));
        matches!(outcome.get(), TxnOutcome::Committed).then_some(id)
    }

    /// The handle's table now; `found` is the table that has its name now.
    fn resolve(
        &self,
        py: Python<'_>,
        core: &Core,
        found: Option<TableId>,
        tables: impl FnOnce() -> Result<Vec<(String, TableId)>, StoreError>,
    ) -> Result<Option<TableId>, StoreError> {
        let Some(own) = self.table(py, core) else { return Ok(found) };
        if found == Some(own) {
            return Ok(found);
        }
        match tables()?.into_iter().find(|(_, id)| *id == own) {
            Some((name, id)) => {
                let name = Arc::from(name);
                self.binding.name.with(py, |old| *old = name);
                Ok(Some(id))
            }
            None => Err(StoreError::TableDropped { table: Some(self.name(py).to_string()) }),
        }
    }
}
