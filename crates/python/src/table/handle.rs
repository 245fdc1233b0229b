//! The class `Table`: a handle on a table, in a database, a transaction or a snapshot.

use std::sync::Arc;

use pellucid_record::layout::Kind;
use pellucid_record::shape::{ShapeDecision, may_be_shape};
use pellucid_store::{Snapshot, StoreError, TableId, Transaction};
use pyo3::prelude::*;

use crate::core::Core;
use crate::errors;
use crate::hot::gil::{GilCell, GilRc, Shared};
use crate::store_errors;
use crate::table::identity::Identity;
use crate::table::ready_indexes::Seen;
use crate::table::typed::RowClass;
use crate::values::keys::Key;
use crate::values::row::{Row, ValidityFlag};
use crate::values::table_ref::Sightings;

/// Reads the argument `name`, the name of a table.
pub fn name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::name_argument(name, "name", "a table")
}

/// A named, ordered mapping inside a database.
///
/// It is a complete `MutableMapping`. Keys are str, bytes, int, float, bool, None, date, datetime,
/// UUID, Decimal and tuples of these, kept in order. Values are any objects that a record can hold.
/// A stored dict is returned as a `Record`, a list as a `RecordList`.
///
/// >>> import pellucid
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people["ann"] = {"age": 30}
/// >>> people["ann"].age, list(people), "bob" in people
/// (30, ['ann'], False)
#[pyclass(frozen, mapping, weakref, module = "pellucid", name = "Table")]
pub struct Table {
    pub(super) core: Arc<Core>,
    pub(super) identity: Identity,
    /// The class of the returned rows, if the table was opened with one.
    pub class: Option<RowClass>,
    // A snapshot's table reads from this snapshot, and never changes.
    pub(super) frozen: Option<Frozen>,
    /// The indexes that the last query found.
    pub indexes: Seen,
}

/// A snapshot that its tables share, until it is closed: a table that is kept longer keeps no
/// pages.
pub struct SharedSnapshot(GilCell<Option<Snapshot>>);

impl Shared for SharedSnapshot {}

impl SharedSnapshot {
    /// An open one.
    pub fn new(snapshot: Snapshot) -> GilRc<Self> {
        GilRc::new(Self(GilCell::new(Some(snapshot))))
    }

    /// The snapshot.
    ///
    /// # Errors
    /// `Closed` after `close`.
    pub fn get(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.0.with(py, |snapshot| snapshot.clone()).ok_or_else(|| errors::closed_snapshot(py))
    }

    /// Lets go of the snapshot, for all that share it.
    pub fn close(&self, py: Python<'_>) {
        drop(self.0.with(py, Option::take));
    }
}

/// The snapshot that a table reads from, and the flag that says whether it is still open.
pub type Frozen = (GilRc<SharedSnapshot>, GilRc<ValidityFlag>);

const SNAPSHOT: &str = "this belongs to a snapshot, which does not change; write through the database";

impl Table {
    /// The table `name` of a database; the first write creates it, compressed if `compress` says
    /// so.
    ///
    /// # Errors
    /// `ValueError` if the table exists and `compress` says otherwise.
    pub fn new(
        py: Python<'_>,
        core: Arc<Core>,
        name: String,
        class: Option<RowClass>,
        compress: Option<bool>,
    ) -> PyResult<Self> {
        let identity = Identity::new(name, false).with_compression(compress);
        let table = Self::over(core, identity, class, None);
        // Looks up the table's id, if the table exists. Another error occurs again on the first
        // use, which raises it.
        let found = table.id(py);
        if compress.is_some() {
            found?;
        }
        if let Some(standing) = table.identity.pending(py) {
            table.core.add_pending(py, standing);
        }
        Ok(table)
    }

    /// The table that has this name at the time of each access: a database uses it for its own
    /// mapping.
    pub fn by_name(core: Arc<Core>, name: &str) -> Self {
        Self::over(core, Identity::new(name.to_owned(), true), None, None)
    }

    /// The table `name` as a snapshot sees it.
    pub fn of_snapshot(
        core: Arc<Core>,
        name: String,
        class: Option<RowClass>,
        snapshot: GilRc<SharedSnapshot>,
        validity: GilRc<ValidityFlag>,
    ) -> Self {
        Self::over(core, Identity::new(name, true), class, Some((snapshot, validity)))
    }

    /// The line that names the table and says how many rows it has.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn described(&self, py: Python<'_>) -> PyResult<String> {
        let text =
            |state: &str| format!("<pellucid.Table {:?} of {}, {state}>", self.name(py), self.core.target);
        if !self.validity().is_open() {
            return Ok(text("closed"));
        }
        errors::shown(py, "pellucid.Table", self.len(py).map(|rows| text(&errors::counted(rows, "row"))))
    }

    /// The same table without the class of its rows.
    pub fn untyped(&self) -> Self {
        Self::over(self.core.clone(), self.identity.again(), None, self.frozen.clone())
    }

    fn over(core: Arc<Core>, identity: Identity, class: Option<RowClass>, frozen: Option<Frozen>) -> Self {
        Self { core, identity, class, frozen, indexes: Seen::default() }
    }

    /// The state shared by all handles of the database.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The table's name when this handle was used last.
    pub fn name(&self, py: Python<'_>) -> Arc<str> {
        self.identity.name(py)
    }

    /// The identity of the table, which survives renaming.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether both are handles on the same table.
    pub fn is_same_as(&self, py: Python<'_>, other: &Table) -> bool {
        Arc::ptr_eq(&self.core, &other.core) && self.name(py) == other.name(py)
    }

    pub(super) fn validity(&self) -> &GilRc<ValidityFlag> {
        self.frozen.as_ref().map_or(&self.core.validity, |(_, validity)| validity)
    }

    /// The flag for rows that are read now.
    pub fn row_gate(&self, py: Python<'_>) -> GilRc<ValidityFlag> {
        match &self.frozen {
            Some((_, validity)) => validity.clone(),
            None => self.core.row_gate(py),
        }
    }

    /// Makes a row show the value stored under its key now; false if there is none, or none of its
    /// kind.
    pub fn read_anew(slf: &Bound<'_, Self>, row: &Row) -> PyResult<bool> {
        let py = slf.py();
        let key = Key { bytes: row.key().to_vec(), spelling: Vec::new() };
        let Some(now) = Self::row(slf, &key)? else { return Ok(false) };
        let kind = |row: &Row| row.bytes().first().and_then(|byte| Kind::from_number(byte >> 4));
        let is_dict = |row: &Row| matches!(kind(row), Some(Kind::Shaped | Kind::Keyed));
        if is_dict(&now) != is_dict(row) {
            return Ok(false);
        }
        row.note_others(py, now.bytes());
        row.replace(py, now.bytes(), None);
        row.validity.set(slf.get().row_gate(py));
        Ok(true)
    }

    pub(super) fn why_frozen(&self) -> Option<&'static str> {
        if self.frozen.is_some() { Some(SNAPSHOT) } else { self.core.why_read_only() }
    }

    /// Raises if the table cannot be written to.
    pub fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check_open(py)?;
        match self.why_frozen() {
            Some(why) => Err(errors::read_only(py, why)),
            None => Ok(()),
        }
    }

    /// The snapshot that the handle reads from: its own, or one of the latest commit.
    pub fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        match &self.frozen {
            Some((snapshot, validity)) if validity.is_open() => snapshot.get(py),
            Some(_) => Err(errors::closed_snapshot(py)),
            None => self.core.snapshot(py),
        }
    }

    /// Whether the handle reads the state of the caller's transaction.
    pub fn is_in_transaction(&self, py: Python<'_>) -> bool {
        self.frozen.is_none() && self.core.is_mine(py)
    }

    /// The table's id in a snapshot; None if the snapshot has no such table.
    pub fn id_in(&self, py: Python<'_>, snapshot: &Snapshot) -> PyResult<Option<TableId>> {
        self.identity.in_snapshot(py, &self.core, snapshot).map_err(|error| store_errors::of_store(py, error))
    }

    /// The table's id in a transaction; None if there is no such table yet.
    pub fn id_in_transaction(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
    ) -> Result<Option<TableId>, StoreError> {
        self.identity.in_transaction(py, &self.core, transaction)
    }

    /// The same for a row of the table, which is gone if its table was dropped.
    pub fn id_of_row(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
    ) -> Result<Option<TableId>, StoreError> {
        match self.id_in_transaction(py, transaction) {
            Err(StoreError::TableDropped { .. }) => Ok(None),
            found => found,
        }
    }

    /// The id within a transaction that is about to write; creates the table if it does not exist.
    pub fn id_for_writing(
        &self,
        py: Python<'_>,
        transaction: &mut Transaction,
    ) -> Result<TableId, StoreError> {
        self.identity.for_writing(py, &self.core, transaction)
    }

    /// The table's id, as the caller sees it; None if there is no such table yet.
    pub(super) fn id(&self, py: Python<'_>) -> PyResult<Option<TableId>> {
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| self.id_in_transaction(py, transaction));
        }
        self.id_in(py, &self.snapshot(py)?)
    }

    /// The committed table's id; None if the table does not exist yet or its transaction is not
    /// committed.
    pub(super) fn id_to_watch(&self, py: Python<'_>) -> PyResult<Option<TableId>> {
        let snapshot = self.core.snapshot(py)?;
        let failed = |error| store_errors::of_store(py, error);
        let id = self.identity.in_committed(py, &self.core, &snapshot).map_err(failed)?;
        // Checks that the table still exists, and the name that it will be created under.
        if id.is_none() && self.id(py)?.is_some() && snapshot.table(&self.name(py)).map_err(failed)?.is_some()
        {
            let message = format!(
                "the running transaction makes table '{}' in place of one that it drops or renames; watch it after the block",
                self.name(py)
            );
            return Err(errors::raise(py, "TransactionError", message));
        }
        Ok(id)
    }
}

impl Sightings for Table {
    fn decide_shape(&self, py: Python<'_>, names: &[&str], is_root: bool) -> ShapeDecision {
        let id = self.id(py).unwrap_or(None);
        match id {
            Some(id) => self.core.store.decide_shape(id, names, is_root).unwrap_or(ShapeDecision::Keyed),
            // A table that does not exist yet has no counts either.
            None if is_root && may_be_shape(names) => ShapeDecision::Register,
            None => ShapeDecision::Keyed,
        }
    }
}
