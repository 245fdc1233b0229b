//! Implement the calls of rows to the tables of a server.
//!
//! A change of a part of a record is made here, in the record as it was read, and sent with the
//! version that it was read at. If another client has written the row since, the server refuses it:
//! then the change is made again, in the record that is stored now. Inside of a transaction the
//! table may keep changes back, to send many at once; it gets what makes the change again then.

use std::sync::Arc;

use pellucid_record::large_ids::large_ids;
use pellucid_record::layout::Kind;
use pellucid_record::patch::{self, PatchError, Patched, ShapeBook};
use pellucid_record::shape::{Shape, ShapeDecision, Shapes};
use pellucid_record::view::{Root, Slot, root};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::counters;
use crate::errors;
use crate::hot::callbacks;
use crate::server::codec::{ServerCodec, ServerValidity};
use crate::server::edit::ServerEdit;
use crate::server::encoded::ServerEncoded;
use crate::server::stored;
use crate::server::table::ServerTable;
use crate::values::change::{self, Edit, Fit};
use crate::values::encode::{self, Encoded};
use crate::values::hooks::PicklePolicy;
use crate::values::table_ref::{CopyOf, LargeOf, TableCalls, TableRef, Within};

use crate::values::large::Large;
use crate::values::names::Names;
use crate::values::row::Row;

/// The implementation of `TableCalls` for `ServerTable`.
pub struct ServerCalls;

/// The table that a row belongs to.
fn table_of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, ServerTable>> {
    object.cast::<ServerTable>().map_err(|_| errors::internal("a row belongs to an object that is no table"))
}

/// Calls a method of the table's Python class.
fn ask<'py, A: pyo3::call::PyCallArgs<'py>>(
    table: &Bound<'py, ServerTable>,
    method: &str,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>> {
    callbacks::code_may_run(table.py());
    table.call_method1(method, arguments)
}

impl TableCalls for ServerCalls {
    fn is_for(&self, table: &Bound<'_, PyAny>) -> bool {
        table.cast::<ServerTable>().is_ok()
    }

    fn name(&self, table: &Bound<'_, PyAny>) -> Arc<str> {
        table_of(table).map_or_else(|_| Arc::from(""), |found| found.get().name_of(table.py()))
    }

    fn policy(&self, table: &Bound<'_, PyAny>) -> PicklePolicy {
        table_of(table)
            .map_or(PicklePolicy::DENY, |found| found.get().codec.get().policy.clone_ref(table.py()))
    }

    fn large_value(
        &self,
        table: &Bound<'_, PyAny>,
        (row, _): LargeOf<'_>,
        id: u64,
    ) -> PyResult<Option<Large>> {
        let key = PyBytes::new(table.py(), row.key());
        let found = ask(table_of(table)?, "overflow_value", (key, id.cast_signed()))?;
        Ok(found.extract::<Option<PyBackedBytes>>()?.map(Large::Fetched))
    }

    fn gives_views(&self, _table: &Bound<'_, PyAny>) -> bool {
        false
    }

    fn copied_row(&self, table: &Bound<'_, PyAny>, of: CopyOf<'_>) -> PyResult<Row> {
        let found = table_of(table)?;
        let validity = ask(found, "validity", ())?.cast_into::<ServerValidity>()?.get().validity.clone();
        let names = found.get().codec.get().names.clone();
        Ok(Row::owned(
            of.record,
            of.key,
            names,
            validity,
            Some(TableRef::new(found)),
            found.get().why_frozen(),
        ))
    }

    fn in_running(&self, _table: &Bound<'_, PyAny>, _work: &mut Within<'_>) -> PyResult<()> {
        Err(errors::internal("a table of a server was asked for an engine's transaction"))
    }

    fn read_anew(&self, table: &Bound<'_, PyAny>, row: &Row) -> PyResult<bool> {
        let table = table_of(table)?;
        let key = PyBytes::new(table.py(), row.key());
        match ask(table, "fetch", (key,))?.extract::<Option<Stored>>()? {
            Some(stored) => show(table, row, &stored),
            None => Ok(false),
        }
    }

    fn change(
        &self,
        table: &Bound<'_, PyAny>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        save(table_of(table)?, row, edit, values)
    }

    fn within_transaction(
        &self,
        table: &Bound<'_, PyAny>,
        work: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<()> {
        let table = table_of(table)?;
        let py = table.py();
        let context = ask(table, "transaction", ())?;
        context.call_method0("__enter__")?;
        match work() {
            Ok(()) => context.call_method1("__exit__", (py.None(), py.None(), py.None())).map(|_| ()),
            Err(error) => {
                let (kind, value) = (error.get_type(py), error.value(py));
                context.call_method1("__exit__", (kind, value, py.None()))?;
                Err(error)
            }
        }
    }
}

/// A value as the server has it, and its version.
type Stored = (PyBackedBytes, i64);

/// Shows in `row` what is stored now; false if that is of another kind.
fn show(table: &Bound<'_, ServerTable>, row: &Row, stored: &Stored) -> PyResult<bool> {
    let py = table.py();
    let record = stored::record_of(&stored.0);
    if is_dict(record) != is_dict(row.bytes()) {
        return Ok(false);
    }
    row.note_others(py, record);
    row.replace(py, record, None);
    row.edition.set(stored.1);
    assign_gate(table, row)?;
    Ok(true)
}

fn is_dict(record: &[u8]) -> bool {
    let kind = record.first().and_then(|byte| Kind::from_number(byte >> 4));
    matches!(kind, Some(Kind::Shaped | Kind::Keyed))
}

/// Assigns the row to the transaction that runs now, or to the database.
fn assign_gate(table: &Bound<'_, ServerTable>, row: &Row) -> PyResult<()> {
    let validity = ask(table, "validity", ())?;
    row.validity.set(validity.cast::<ServerValidity>()?.get().validity.clone());
    Ok(())
}

/// The shapes for a change, and those that it would have used.
struct Book<'a> {
    codec: &'a ServerCodec,
    py: Python<'a>,
    table: u32,
    may_admit: bool,
    wanted: Vec<Vec<u8>>,
}

impl Shapes for Book<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        Shapes::shape(&*self.codec.names, id)
    }
}

impl ShapeBook for Book<'_> {
    fn shape_of(&mut self, names: &[&str], is_root: bool) -> Option<u32> {
        match self.codec.decide_shape(self.py, self.table, names, is_root, self.may_admit) {
            ShapeDecision::Known(id) => Some(id),
            ShapeDecision::Keyed => None,
            ShapeDecision::Register => {
                self.wanted.push(stored::bytes_of_names(names.iter().copied()));
                None
            }
        }
    }
}

/// Applies `edit` to a record, and asks the server for the shapes that the result would use.
pub fn applied(
    table: &Bound<'_, ServerTable>,
    record: &[u8],
    edit: &Edit,
    values: &[&[u8]],
) -> PyResult<Result<Patched, PatchError>> {
    let (py, this) = (table.py(), table.get());
    let codec = this.codec.get();
    let mut copy = record.to_vec();
    match edit.with(values, |steps, change| overwrite(&mut copy, &codec.names, steps, change)) {
        Ok(true) => return Ok(Ok(Patched { record: copy, encoded: 0, spliced: 0 })),
        Ok(false) => {}
        Err(error) => return Ok(Err(error)),
    }
    let mut book = Book { codec, py, table: this.number(), may_admit: true, wanted: Vec::new() };
    let patched = edit.with(values, |steps, change| patch::apply(record, steps, change, &mut book));
    if book.wanted.is_empty() || patched.is_err() {
        return Ok(patched);
    }
    let wanted = PyList::new(py, book.wanted.iter().map(|names| PyBytes::new(py, names)))?;
    ask(table, "register_shapes", (wanted,))?;
    let mut book = Book { codec, py, table: this.number(), may_admit: false, wanted: Vec::new() };
    Ok(edit.with(values, |steps, change| patch::apply(record, steps, change, &mut book)))
}

/// Writes the change over the record if it is a delete, or a value that fits into the slot.
fn overwrite(
    record: &mut [u8],
    names: &Names,
    steps: &[pellucid_record::path::Step<'_>],
    change: patch::Change<'_>,
) -> Result<bool, PatchError> {
    match change {
        patch::Change::Delete => patch::overwrite(record, names, steps, &Slot::Absent),
        patch::Change::Set(value) => match root(value, names)? {
            Root::Scalar(slot) => patch::overwrite(record, names, steps, &slot),
            Root::Container(_) => Ok(false),
        },
        _ => Ok(false),
    }
}

/// The values of a change, ready to be stored, and the large values in them.
struct Parts<'py> {
    records: Vec<Vec<u8>>,
    large: Vec<(u64, Bound<'py, PyAny>)>,
}

/// Encodes the values of a change.
fn encode_parts<'py>(
    table: &Bound<'py, ServerTable>,
    row: &Row,
    edit: &Edit,
    values: &[Bound<'py, PyAny>],
) -> PyResult<Parts<'py>> {
    let (py, this) = (table.py(), table.get());
    let mut parts = Parts { records: Vec::new(), large: Vec::new() };
    for (number, value) in values.iter().enumerate() {
        let place = || change::place_of_value(py, row, edit, values.len(), number);
        let encoded = this.encoded(value, true, true, place)?;
        if encoded.pending.is_empty() && encoded.overflow.is_empty() {
            parts.records.push(encoded.encoder.bytes().to_vec());
            encode::recycle(py, encoded.encoder);
            continue;
        }
        let Some((shape_ids, large)) = ids_for(table, encoded)? else {
            // The server takes no more shapes now: dicts are written with their keys.
            let encoded = this.encoded(value, false, true, place)?;
            let (_, large) =
                ids_for(table, encoded)?.ok_or_else(|| errors::internal("a shape is missing"))?;
            add_part(py, &mut parts, &large, &[])?;
            continue;
        };
        add_part(py, &mut parts, &large, &shape_ids)?;
    }
    Ok(parts)
}

/// An encoded value, and the ids of its large values.
type WithLarge<'py> = (Bound<'py, ServerEncoded>, Vec<u64>);

/// The ids that an encoded value needs; None if a shape gets none.
fn ids_for<'py>(
    table: &Bound<'py, ServerTable>,
    encoded: Encoded,
) -> PyResult<Option<(Vec<u32>, WithLarge<'py>)>> {
    let py = table.py();
    let encoded = Bound::new(py, ServerEncoded::new(py, table.get().codec.clone_ref(py), encoded))?;
    let shape_ids: Option<Vec<u32>> =
        ask(table, "register_shapes", (encoded.getattr("shapes")?,))?.extract()?;
    let large_ids: Vec<u64> =
        ask(table, "new_overflow_ids", (encoded.getattr("large")?.len()?,))?.extract()?;
    Ok(shape_ids.map(|shape_ids| (shape_ids, (encoded, large_ids))))
}

fn add_part<'py>(
    py: Python<'py>,
    parts: &mut Parts<'py>,
    (encoded, large_ids): &WithLarge<'py>,
    shape_ids: &[u32],
) -> PyResult<()> {
    parts.records.push(encoded.get().record(py, shape_ids, large_ids)?);
    let large = encoded.getattr("large")?;
    for (id, bytes) in large_ids.iter().zip(large.try_iter()?) {
        parts.large.push((*id, bytes?));
    }
    Ok(())
}

/// `KeyError` for a row whose key has no record any more.
fn missing_row(py: Python<'_>, row: &Row) -> PyErr {
    row.key_object(py).map_or_else(|error| error, |key| errors::missing(&key))
}

/// Makes a change in the stored record, and shows the result in `row`.
fn save<'py>(
    table: &Bound<'py, ServerTable>,
    row: &Row,
    edit: &Edit,
    values: &[Bound<'py, PyAny>],
) -> PyResult<()> {
    let py = table.py();
    let codec = table.get().codec.get();
    let names = &*codec.names;
    let may_defer: bool = ask(table, "begin_change", ())?.extract()?;
    let parts = encode_parts(table, row, edit, values)?;
    let slices: Vec<&[u8]> = parts.records.iter().map(Vec::as_slice).collect();
    let key = PyBytes::new(py, row.key());
    // What the row shows: Python code that runs below may change it.
    let (shown, version) = (row.bytes().to_vec(), row.version());
    let (mut record, mut edition, mut attempt) = (shown.clone(), row.edition.get(), 0);
    loop {
        let fit = edit.fits(&record, &shown, names);
        let fit = fit.map_err(|error| crate::values::row_errors::corrupt_row(py, row, &error))?;
        if fit != Fit::Fits {
            return Err(change::of_fit(py, row, edit, fit));
        }
        let patched = applied(table, &record, edit, &slices)?
            .map_err(|error| change::of_patch(py, row, edit, &error))?;
        let kept = large_ids(&patched.record, names)
            .map_err(|error| crate::values::row_errors::corrupt_row(py, row, &error))?;
        let kept: Vec<i64> = kept.into_iter().map(u64::cast_signed).collect();
        let large: Vec<(i64, &Bound<'py, PyAny>)> =
            parts.large.iter().map(|(id, bytes)| (id.cast_signed(), bytes)).collect();
        let value = PyBytes::new(py, &stored::value_of(codec.dictionary().len(), &patched.record));
        if may_defer && attempt == 0 && large.is_empty() {
            let change = ServerEdit::new(table, &key, edit, &parts.records, &shown);
            let deferred = ask(table, "defer", (&key, &value, edition, &kept, change))?;
            if let Some((new, validity)) = deferred.extract::<Option<(i64, Py<ServerValidity>)>>()? {
                counters::containers_rebuilt(u64::from(patched.encoded));
                if row.version() != version {
                    return ServerCalls.read_anew(table.as_any(), row).map(|_| ());
                }
                row.replace(py, &patched.record, edit.moves());
                row.edition.set(new);
                row.validity.set(validity.get().validity.clone());
                return Ok(());
            }
        }
        let saved = ask(table, "swap", (&key, value, edition, kept, large, attempt))?;
        if saved.is_none() {
            return Err(missing_row(py, row));
        }
        if let Ok(new) = saved.extract::<i64>() {
            counters::containers_rebuilt(u64::from(patched.encoded));
            if row.version() != version {
                // Another thread has shown its own change meanwhile, and either may be the later.
                return ServerCalls.read_anew(table.as_any(), row).map(|_| ());
            }
            if record != shown {
                row.note_others(py, &patched.record);
            }
            row.replace(py, &patched.record, edit.moves());
            row.edition.set(new);
            return assign_gate(table, row);
        }
        let (now, found) = saved.extract::<Stored>()?;
        record = stored::record_of(&now).to_vec();
        edition = found;
        attempt += 1;
    }
}
