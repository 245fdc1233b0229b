//! Changes fields of a row if it still is as its caller has read it: for claims, of which
//! `pellucid.claims` says what they are.
//!
//! What the caller has decided from the row holds until then, so no lock is held while it decides.
//! The new record is made beforehand as well, if that needs nothing but the old one and shapes that
//! are known: the row is then compared and stored under the locks of a single row.

use pellucid_record::patch::{Change, ShapeBook};
use pellucid_record::path::{OwnedStep, Step};
use pellucid_record::{Shape, Shapes};
use pellucid_store::PathChange;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors;
use crate::hot::gil::GilRc;
use crate::query::edits::{Edits, KeyOf, parsed};
use crate::table::handle::Table;
use crate::transaction;
use crate::values::bytes::handle_of_row;
use crate::values::handles::Record;
use crate::values::keys::Key;
use crate::values::names::Names;
use crate::values::row::Row;

/// Sets fields in a row and removes others, in one commit, if the stored record is that of `row`.
/// Returns the changed row; None if the stored one is another.
#[pyfunction]
#[pyo3(name = "_update_same")]
pub fn update_same<'py>(
    table: &Bound<'py, Table>,
    row: &Bound<'py, Record>,
    fields: &Bound<'py, PyDict>,
    removed: &Bound<'py, PyTuple>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = table.py();
    table.get().check_writable(py)?;
    row.get().node.container(py)?;
    if row.get().node.parent.is_some() {
        return Err(errors::internal("a part of a row is no row"));
    }
    let (paths, values) = parsed(table, fields.iter())?;
    let removed: Vec<_> =
        removed.iter().map(|name| crate::column::steps_of(&name)).collect::<PyResult<_>>()?;
    let removed: Vec<Vec<Step<'_>>> =
        removed.iter().map(|path| path.iter().map(OwnedStep::borrowed).collect()).collect();
    let removed: Vec<PathChange<'_>> = removed.iter().map(|path| (&path[..], Change::Delete)).collect();
    // Copies: encoding a value may have run code that changes the row.
    let (seen, code) = {
        let row: &Row = &row.get().node.row;
        (row.bytes().to_vec(), row.key().to_vec())
    };
    let mut edits = Edits::new(&paths, values);
    let record = store_if_same(table, (&code, &seen), &mut edits, &removed)?;
    record.map(|record| copied(table, &code, &record)).transpose()
}

/// The row with this record, as a handle.
pub(super) fn copied<'py>(
    table: &Bound<'py, Table>,
    code: &[u8],
    record: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    handle_of_row(table.py(), GilRc::new(Table::copied_row(table, code, record, None)))
}

/// Changes the row under a key, with more changes `beside`, if its record is the one that was seen.
/// Returns the changed record. In a table with a class, the row has to make an instance of it then.
pub(super) fn store_if_same(
    table: &Bound<'_, Table>,
    (key, seen): (&[u8], &[u8]),
    edits: &mut Edits<'_>,
    beside: &[PathChange<'_>],
) -> PyResult<Option<Vec<u8>>> {
    let (py, this) = (table.py(), table.get());
    let core = this.core();
    let mut known = Known { names: &core.names, lacks_one: false };
    // A class is asked about the row as it is stored, which takes a transaction.
    let record = if this.class.is_none() { edits.patched(key, seen, &mut known, beside) } else { None };
    if let Some(record) = record.filter(|_| !known.lacks_one) {
        let mut is_same = true;
        let done = this.try_row(py, |cached, known| {
            cached.change(known, key, |stored, out| {
                is_same = stored == Some(seen);
                is_same.then(|| out.extend_from_slice(&record))
            })
        })?;
        if !is_same {
            return Ok(None);
        }
        if done.is_some() {
            core.count_stored();
            return Ok(Some(record));
        }
    }
    transaction::within(py, core, || {
        let mut spelling = Vec::new();
        let changed = core.in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Ok(None)) };
            match transaction.get(id, key)? {
                Some(cell) if *cell.record == *seen => spelling.extend_from_slice(cell.spelling),
                _ => return Ok(Ok(None)),
            }
            let of = KeyOf { code: key, spelling: &spelling };
            let changed = edits.patch_row((py, core), transaction, id, of, beside)?;
            // Where nothing is to be set, the row is as it was.
            Ok(changed.map(|record| Some(record.unwrap_or_else(|| seen.to_vec()))))
        })?;
        core.learn_uncommitted(py);
        let of = KeyOf { code: key, spelling: &spelling };
        let changed = changed.map_err(|error| edits.unfit(py, &error).raised(table, of))?;
        if changed.is_some() {
            Table::check_row(table, &Key { bytes: key.to_vec(), spelling })?;
        }
        Ok(changed)
    })
}

/// The shapes that are known without a transaction.
struct Known<'a> {
    names: &'a Names,
    /// Whether the record needs a shape that is not known.
    lacks_one: bool,
}

impl Shapes for Known<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        // The names of committed shapes.
        self.names.source().dictionary().shape(id)
    }
}

impl ShapeBook for Known<'_> {
    fn shape_of(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        let known = self.names.source().dictionary().find(names);
        self.lacks_one |= known.is_none();
        known
    }
}
