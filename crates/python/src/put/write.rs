//! Store values in a table.
//!
//! Values are encoded before the writer lock is taken, since encoding may run the user's code. Only
//! the holder of the lock can assign ids to new shapes and to values stored outside of the record.
//! Both have fixed places in the finished bytes, and are written there under the lock.

use pellucid_record::key::KeyEncoder;
use pellucid_record::patch::{self, PatchError};
use pellucid_record::view::Slot;
use pellucid_store::{LARGE_SIZE_MIN, StoreError, TableId, Transaction, TryResult};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};

use crate::core::Core;
use crate::counters;
use crate::errors;
use crate::hot::{callbacks, modules};
use crate::put::cells::{self, CellRows};
use crate::put::columns;
use crate::signals::Signals;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::ahead::Walk;
use crate::values::bytes::encode_object;
use crate::values::change::{self, Edit, Fit};
use crate::values::encode::{self, Encoded, PROVISIONAL_ID, Target};
use crate::values::keys::{self, Key};
use crate::values::missing_ids::{write_large_ids, write_shape_ids};
use crate::values::names::KnownShapes;
use crate::values::row::Row;

/// A record that is ready to be stored, and the values stored outside of it.
pub struct Resolved {
    /// The record.
    pub record: Vec<u8>,
    /// The ids of the values stored outside of it.
    pub blobs: Vec<u64>,
}

/// Encodes a value that becomes a record of `table`; `place` names it in messages.
///
/// # Errors
/// `UnsupportedValue` and related exceptions; what the value's own code raises; `TransactionError`
/// if that code has ended the transaction.
pub fn encode_for<'py>(
    table: &Bound<'py, Table>,
    value: &Bound<'py, PyAny>,
    place: impl FnOnce() -> String,
) -> PyResult<Encoded> {
    let transaction = table.get().core().running_serial(table.py());
    encode_within(table, value, transaction, false, place)
}

/// As `encode_for`, for a value that becomes a part of a record: it is stored outside of the record
/// if it is large.
///
/// # Errors
/// As `encode_for`.
pub fn encode_part<'py>(
    table: &Bound<'py, Table>,
    value: &Bound<'py, PyAny>,
    place: impl FnOnce() -> String,
) -> PyResult<Encoded> {
    let transaction = table.get().core().running_serial(table.py());
    encode_within(table, value, transaction, true, place)
}

/// Encodes for the caller's transaction with this serial, if there is one.
fn encode_within<'py>(
    table: &Bound<'py, Table>,
    value: &Bound<'py, PyAny>,
    transaction: Option<u64>,
    is_part: bool,
    place: impl FnOnce() -> String,
) -> PyResult<Encoded> {
    let py = table.py();
    let core = table.get().core();
    let target = Target::Table { table: table.get(), transaction: transaction.unwrap_or(0), is_part };
    let encoded = encode_object(py, &core.names, target, &core.policy, table.get().manner(), value, place)?;
    // The record may use shapes that this transaction made, and those ended with it. The serial
    // cannot belong to another thread or task by now, since serials are never reused.
    if transaction.is_some() && core.serial(py) != transaction {
        return Err(errors::raise(
            py,
            "TransactionError",
            "the transaction was ended while a value for it was being encoded (by the value's own code); nothing is \
             stored",
        ));
    }
    Ok(encoded)
}

/// Writes the missing ids into a record; None if none is missing, so the record can be stored as it
/// is.
///
/// # Errors
/// Errors of the store.
pub fn resolve_ids(
    py: Python<'_>,
    core: &Core,
    transaction: &mut Transaction,
    table: TableId,
    encoded: &Encoded,
    keep_uncommitted: bool,
) -> Result<Option<Resolved>, StoreError> {
    if encoded.pending.is_empty() && encoded.overflow.is_empty() {
        return Ok(None);
    }
    let mut record = encoded.encoder.bytes().to_vec();
    let mut blobs = Vec::with_capacity(encoded.overflow.len());
    if !encoded.overflow.is_empty() {
        for data in &encoded.overflow {
            blobs.push(large(py, !keep_uncommitted, data.len(), || transaction.put_blob(data))?);
        }
        write_large_ids(&mut record, &core.names, &encoded.pending, &blobs).map_err(StoreError::Record)?;
    }
    if encoded.pending.iter().any(|shape| shape.id >= PROVISIONAL_ID) {
        let mut ids = Vec::with_capacity(encoded.pending.len());
        for shape in &encoded.pending {
            let names: Vec<&str> = shape.shape.names().iter().map(AsRef::as_ref).collect();
            let id = transaction.admit(table, &names)?;
            if keep_uncommitted && core.names.by_keys(py, &shape.keys).is_none() {
                core.names.add_uncommitted(py, id, shape.shape.clone(), core.running_serial(py).unwrap_or(0));
            }
            ids.push(id);
        }
        write_shape_ids(&mut record, &core.names, &encoded.pending, &ids).map_err(StoreError::Record)?;
    }
    Ok(Some(Resolved { record, blobs }))
}

/// Stores an encoded value under a key, in a transaction.
fn store(
    py: Python<'_>,
    core: &Core,
    transaction: &mut Transaction,
    table: TableId,
    key: (&[u8], &[u8]),
    encoded: &Encoded,
    keep_uncommitted: bool,
) -> Result<(), StoreError> {
    core.count_stored();
    let resolved = resolve_ids(py, core, transaction, table, encoded, keep_uncommitted)?;
    let (record, blobs) = match &resolved {
        None => (encoded.encoder.bytes(), &[][..]),
        Some(resolved) => (&resolved.record[..], &resolved.blobs[..]),
    };
    if keep_uncommitted {
        return transaction.put_later(table, key.0, key.1, record, blobs);
    }
    large(py, true, record.len(), || transaction.put(table, key.0, key.1, record, blobs)).map(|_| ())
}

/// Runs `work` on a value of this size: with the GIL released if the value is large, which is
/// written to the file at once, unless the transaction is one that Python code can use meanwhile.
fn large<R: Send>(
    py: Python<'_>,
    may_release: bool,
    size: usize,
    work: impl FnOnce() -> Result<R, StoreError> + Send,
) -> Result<R, StoreError> {
    if may_release && size >= LARGE_SIZE_MIN { callbacks::released(py, work) } else { work() }
}

/// Stores a record that is in a buffer, without a copy of it in memory.
///
/// # Errors
/// Errors of the store.
pub fn put_record<'py>(table: &Bound<'py, Table>, key: &Bound<'py, PyAny>, record: &[u8]) -> PyResult<()> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let key = keys::try_key_of(key).map_err(|refusal| refusal.raised(&this.name(py), key))?;
    let core = this.core();
    core.count_stored();
    core.write_released(
        py,
        |transaction| this.id_for_writing(py, transaction),
        |transaction, id| transaction.put(id, &key.bytes, &key.spelling, record, &[]).map(|_| ()),
    )
}

/// `table[key] = value`.
///
/// A plain value is put in a commit of its own if nothing is in the way (`try_put`). Anything else
/// goes through a transaction: the caller's, or one of its own.
pub fn put<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    let core = this.core();
    let running = core.running_serial(py);
    let stored_key = keys::try_key_of(key).map_err(|refusal| refusal.raised(&this.name(py), key))?;
    let place = || place_of(table, key);
    this.check_class(value, place)?;
    let encoded = encode_within(table, value, running, false, place)?;
    if running.is_some() || !try_put(py, this, &stored_key, &encoded)? {
        // The value's own code may have begun a transaction, and not after this.
        let is_mine = running.is_some() || core.is_mine(py);
        let put = |transaction: &mut Transaction| {
            let id = this.id_for_writing(py, transaction)?;
            let key = (&stored_key.bytes[..], &stored_key.spelling[..]);
            store(py, core, transaction, id, key, &encoded, is_mine).map(|()| id)
        };
        if is_mine {
            core.in_running_unflushed(py, put)?;
        } else {
            this.identity().bind(py, core.write(py, put)?);
        }
    }
    encode::recycle(py, encoded.encoder);
    keys::recycle(py, stored_key);
    Ok(())
}

/// As `put`, if the record under the key is `old`, byte by byte; without `old`, if there is none.
/// Returns whether it was.
pub fn put_over<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    old: Option<&[u8]>,
) -> PyResult<bool> {
    let (py, this) = (table.py(), table.get());
    let core = this.core();
    let running = core.running_serial(py);
    let stored_key = keys::try_key_of(key).map_err(|refusal| refusal.raised(&this.name(py), key))?;
    let place = || place_of(table, key);
    this.check_class(value, place)?;
    let encoded = encode_within(table, value, running, false, place)?;
    let record = encoded.encoder.bytes();
    let is_plain = stored_key.spelling.is_empty()
        && encoded.pending.is_empty()
        && encoded.overflow.is_empty()
        && record.len() < LARGE_SIZE_MIN;
    let mut is_put = false;
    if running.is_none() && is_plain {
        let put = this.try_row(py, |cached, known| {
            cached.change(known, &stored_key.bytes, |found, out| {
                (found == old).then(|| out.extend_from_slice(record))
            })
        })?;
        is_put = put.is_some();
    }
    if is_put {
        core.count_stored();
    } else {
        // The value's own code may have begun a transaction, and not after this.
        let is_mine = running.is_some() || core.is_mine(py);
        let id = core.write(py, |transaction| {
            let known = match old {
                Some(_) => this.id_in_transaction(py, transaction)?,
                None => Some(this.id_for_writing(py, transaction)?),
            };
            let Some(id) = known else { return Ok(None) };
            if transaction.get(id, &stored_key.bytes)?.as_ref().map(|cell| &cell.record[..]) != old {
                return Ok(None);
            }
            let key = (&stored_key.bytes[..], &stored_key.spelling[..]);
            store(py, core, transaction, id, key, &encoded, is_mine).map(|()| Some(id))
        })?;
        if let (Some(id), false) = (id, is_mine) {
            this.identity().bind(py, id);
        }
        is_put = id.is_some();
    }
    encode::recycle(py, encoded.encoder);
    keys::recycle(py, stored_key);
    Ok(is_put)
}

fn place_of(table: &Bound<'_, Table>, key: &Bound<'_, PyAny>) -> String {
    let key = key.repr().map(|text| text.to_string()).unwrap_or_default();
    format!("the value for key {key} of table {:?}", table.get().name(table.py()))
}

/// Put an encoded value under a key in a commit of its own, if nothing is in the way.
#[inline]
fn try_put(py: Python<'_>, table: &Table, key: &Key, encoded: &Encoded) -> PyResult<bool> {
    if !key.spelling.is_empty() || !encoded.pending.is_empty() || !encoded.overflow.is_empty() {
        return Ok(false);
    }
    if encoded.encoder.bytes().len() >= LARGE_SIZE_MIN {
        return Ok(false);
    }
    let core = table.core();
    let put = table.try_row(py, |cached, known| cached.put(known, &key.bytes, encoded.encoder.bytes()))?;
    if put.is_some() {
        core.count_stored();
    }
    Ok(put.is_some())
}

/// Deletes a key; returns whether it was there.
pub fn delete(table: &Bound<'_, Table>, key: &Key) -> PyResult<bool> {
    let this = table.get();
    let py = table.py();
    if this.try_row(py, |cached, known| cached.delete(known, &key.bytes))?.is_some() {
        return Ok(true);
    }
    this.core().write(py, |transaction| match this.id_in_transaction(py, transaction)? {
        Some(id) => transaction.delete(id, &key.bytes),
        None => Ok(false),
    })
}

/// `table.append(value)`; returns the new key.
pub fn append<'py>(table: &Bound<'py, Table>, value: &Bound<'py, PyAny>) -> PyResult<i64> {
    let py = table.py();
    let this = table.get();
    this.check_writable(py)?;
    let place = || format!("the value appended to table {:?}", this.name(py));
    this.check_class(value, place)?;
    let encoded = encode_for(table, value, place)?;
    if let Some(key) = try_append(py, this, &encoded)? {
        encode::recycle(py, encoded.encoder);
        return Ok(key);
    }
    let core = this.core();
    let keep_uncommitted = core.is_mine(py);
    let key = core.write(py, |transaction| {
        let id = this.id_for_writing(py, transaction)?;
        let Some(next) = transaction.next_int(id)? else { return Ok(None) };
        let mut key = KeyEncoder::new();
        key.int(next);
        store(py, core, transaction, id, (key.as_bytes(), &[]), &encoded, keep_uncommitted)?;
        Ok(Some((id, next)))
    })?;
    let key = key.map(|(id, next)| {
        if !core.is_mine(py) {
            this.identity().bind(py, id);
        }
        next
    });
    encode::recycle(py, encoded.encoder);
    key.ok_or_else(|| no_next(&this.name(py)))
}

pub(super) fn no_next(table: &str) -> PyErr {
    errors::value_error(format!(
        "table {table:?} has a number key of 2**63 - 1 or more, after which append() has no next int; put the value \
         under a key of your own"
    ))
}

/// Appends an encoded value in a commit of its own, if the short way is possible, and returns the
/// new key. The next key is remembered for as long as no other commit follows.
fn try_append(py: Python<'_>, table: &Table, encoded: &Encoded) -> PyResult<Option<i64>> {
    let is_large = encoded.encoder.bytes().len() >= LARGE_SIZE_MIN;
    if is_large || !encoded.pending.is_empty() || !encoded.overflow.is_empty() {
        return Ok(None);
    }
    let core = table.core();
    let mut key = KeyEncoder::new();
    let appended = table.try_row(py, |cached, known| {
        let version = core.store.version()?;
        let next = match table.identity().next_key() {
            Some((id, seen, next)) if id == known.table && seen == version => next,
            _ => {
                // A transaction needs no snapshot, where this process has taken all it may.
                let Ok(snapshot) = core.store.snapshot() else { return Ok(TryResult::UseTransaction) };
                match snapshot.next_int(known.table)? {
                    Some(next) if snapshot.version() == version => next,
                    _ => return Ok(TryResult::UseTransaction),
                }
            }
        };
        key.clear();
        key.int(next);
        let put = cached.put_new(known, key.as_bytes(), encoded.encoder.bytes(), version)?;
        Ok(put.map(|()| {
            let behind = next.checked_add(1).map(|next| (known.table, version + 1, next));
            table.identity().note_next_key(behind);
            next
        }))
    })?;
    if appended.is_some() {
        core.count_stored();
    }
    Ok(appended)
}

/// `table.extend(values)`; returns how many values there were.
pub fn extend(table: &Bound<'_, Table>, values: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = table.py();
    let this = table.get();
    this.check_writable(py)?;
    if let Some(is_stream) = columns::hands_over(values)? {
        return columns::extend(table, values, is_stream);
    }
    if let Ok(rows) = values.cast_exact::<CellRows>() {
        return cells::extend(table, rows.get());
    }
    refuse_one_row(values)?;
    transaction::within_batch(py, this.core(), || {
        let mut appending = Appending::new(table)?;
        let mut walk = Walk::over(values);
        let mut signals = Signals::new();
        let wanted = "an iterable of rows, or columns: a DataFrame, a table of Arrow's";
        for value in errors::argument(values, values.try_iter(), "the argument of extend()", wanted)? {
            let value = value?;
            signals.step(py)?;
            walk.step();
            appending.append(&value)?;
        }
        Ok(appending.count())
    })
}

/// Rows that a running transaction stores under the next numbers.
pub(super) struct Appending<'a, 'py> {
    table: &'a Bound<'py, Table>,
    id: TableId,
    key: KeyEncoder,
    next: i64,
    count: usize,
    stored_count: u64,
}

impl<'a, 'py> Appending<'a, 'py> {
    pub(super) fn new(table: &'a Bound<'py, Table>) -> PyResult<Self> {
        let (py, this) = (table.py(), table.get());
        let (id, next) = this.core().in_running(py, |transaction| {
            let id = this.id_for_writing(py, transaction)?;
            Ok((id, transaction.next_int(id)?))
        })?;
        let next = next.ok_or_else(|| no_next(&this.name(py)))?;
        let stored_count = this.core().stored_count();
        Ok(Self { table, id, key: KeyEncoder::new(), next, count: 0, stored_count })
    }

    /// How many rows were stored.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The shape for all rows with these names; None if no shape can have them.
    pub(super) fn shape(&self, names: &[&str]) -> PyResult<Option<u32>> {
        self.table.get().core().in_running_unflushed(self.table.py(), |transaction| {
            columns::shape_of(self.table, self.id, transaction, names, true)
        })
    }

    /// Stores a value.
    pub(super) fn append(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let (py, this) = (self.table.py(), self.table.get());
        let place = || format!("value {} given to extend() of table {:?}", self.count, this.name(py));
        this.check_class(value, place)?;
        let encoded = encode_for(self.table, value, place)?;
        self.put(&encoded)?;
        encode::recycle(py, encoded.encoder);
        Ok(())
    }

    /// Stores an encoded value.
    pub(super) fn put(&mut self, encoded: &Encoded) -> PyResult<()> {
        let (py, this, id) = (self.table.py(), self.table.get(), self.id);
        let core = this.core();
        if core.stored_count() != self.stored_count {
            // The iterator or the value's own code has stored something, perhaps in this table.
            let behind = core.in_running(py, |transaction| {
                check_same(py, this, transaction, id)?;
                transaction.next_int(id)
            })?;
            self.next = behind.ok_or_else(|| no_next(&this.name(py)))?.max(self.next);
        }
        self.key.clear();
        self.key.int(self.next);
        core.in_running_unflushed(py, |transaction| {
            check_same(py, this, transaction, id)?;
            transaction.set_batch_row(self.count);
            store(py, core, transaction, id, (self.key.as_bytes(), &[]), encoded, true)
        })?;
        self.stored_count = core.stored_count();
        self.next = self.next.checked_add(1).ok_or_else(|| no_next(&this.name(py)))?;
        self.count += 1;
        Ok(())
    }
}

/// Refuses to go on if the iterator or a value's code has dropped the table, even if a new table
/// has its name.
pub(super) fn check_same(
    py: Python<'_>,
    table: &Table,
    transaction: &Transaction,
    id: TableId,
) -> Result<(), StoreError> {
    if table.id_in_transaction(py, transaction)? == Some(id) {
        return Ok(());
    }
    Err(StoreError::TableDropped { table: Some(table.name(py).to_string()) })
}

/// Refuses a single row, since each of its keys or characters would become a row.
fn refuse_one_row(values: &Bound<'_, PyAny>) -> PyResult<()> {
    let kind = values.get_type();
    if kind.name()? == "LazyFrame" && modules::class_has(values, "collect")? {
        return Err(errors::type_error(
            "extend() takes rows or columns that are there, and a LazyFrame is yet to be computed: extend(frame.collect())",
        ));
    }
    let is_one = values.is_instance_of::<PyDict>()
        || values.is_instance_of::<crate::values::handles::Record>()
        || values.is_instance_of::<PyString>()
        || values.is_instance_of::<PyBytes>()
        || values.is_instance_of::<PyByteArray>();
    if !is_one {
        if modules::is_mapping(values)? {
            return Err(errors::type_error(format!(
                "extend() takes rows, and a loop over a {} gives its keys: extend(other.values()) appends its rows, update(other) stores \
                 them under their keys",
                kind.name()?
            )));
        }
        return Ok(());
    }
    Err(errors::type_error(format!(
        "extend() takes several rows, and a {} is one: append(row) stores it, extend([row, ...]) several; update() takes a dict of keys and rows",
        kind.name()?
    )))
}

/// Stores the argument of `dict.update`: a mapping, or pairs.
pub fn update_from<'py>(table: &Bound<'py, Table>, other: &Bound<'py, PyAny>) -> PyResult<()> {
    // An iterator that is no generator runs no Python code, which would look for signals.
    let mut signals = Signals::new();
    if let Ok(dict) = other.cast::<PyDict>() {
        for (key, value) in dict {
            put(table, &key, &value)?;
            signals.step(table.py())?;
        }
        return Ok(());
    }
    if other.hasattr("keys")? {
        for key in other.call_method0("keys")?.try_iter()? {
            let key = key?;
            put(table, &key, &other.get_item(&key)?)?;
            signals.step(table.py())?;
        }
        return Ok(());
    }
    let pairs = errors::pairs(other)?;
    for (index, pair) in pairs.enumerate() {
        let pair = pair?;
        signals.step(table.py())?;
        if let Ok(pair) = pair.cast_exact::<PyTuple>()
            && pair.len() == 2
        {
            put(table, &pair.get_item(0)?, &pair.get_item(1)?)?;
            continue;
        }
        let place = format!("update() element {index}");
        let parts = errors::argument(&pair, pair.try_iter(), &place, "a pair of key and value")?;
        let pair: Vec<Bound<'py, PyAny>> = parts.collect::<PyResult<_>>()?;
        match &pair[..] {
            [key, value] => put(table, key, value)?,
            other => {
                return Err(errors::value_error(format!(
                    "update() element {index} has length {}; 2 is required",
                    other.len()
                )));
            }
        }
    }
    Ok(())
}

fn encode_parts(
    table: &Bound<'_, Table>,
    row: &Row,
    edit: &Edit,
    values: &[Bound<'_, PyAny>],
) -> PyResult<Vec<Encoded>> {
    let py = table.py();
    let place = |number| change::place_of_value(py, row, edit, values.len(), number);
    values.iter().enumerate().map(|(number, value)| encode_part(table, value, || place(number))).collect()
}

/// `KeyError` for a row whose key has no record any more.
fn missing_row(py: Python<'_>, row: &Row) -> PyErr {
    row.key_object(py).map_or_else(|error| error, |key| errors::missing(&key))
}

/// Why a change was not made.
enum Unchanged {
    /// The record has changed, so that the change means something else now.
    Misfit(Fit),
    /// The change is not possible.
    Impossible(PatchError),
}

impl Table {
    /// Applies a change to a record as it is stored now, and shows the result in `row`.
    pub fn change_record(
        &self,
        table: &Bound<'_, Self>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        let py = table.py();
        self.check_writable(py)?;
        let core = self.core();
        if let Some(slot) = change::slot_of(edit.action, values)
            && self.overwrite(table, row, edit, &slot)?
        {
            return Ok(());
        }
        let encoded = encode_parts(table, row, edit, values)?;
        let keep_uncommitted = core.is_mine(py);
        let (mut is_as_read, mut version) = (false, 0);
        let outcome = core.write(py, |transaction| {
            version = row.version();
            let Some(id) = self.id_of_row(py, transaction)? else { return Ok(None) };
            let Some(cell) = transaction.get(id, row.key())? else { return Ok(None) };
            let shown = row.bytes();
            let fit = edit.fits(&cell.record, shown, &**transaction.shapes()).map_err(StoreError::Record)?;
            if fit != Fit::Fits {
                return Ok(Some(Err(Unchanged::Misfit(fit))));
            }
            is_as_read = cell.record == shown;
            let mut resolved = Vec::with_capacity(encoded.len());
            for encoded in &encoded {
                resolved.push(resolve_ids(py, core, transaction, id, encoded, keep_uncommitted)?);
            }
            let bytes: Vec<&[u8]> = encoded
                .iter()
                .zip(&resolved)
                .map(|(encoded, resolved)| match resolved {
                    Some(resolved) => &resolved.record[..],
                    None => encoded.encoder.bytes(),
                })
                .collect();
            let blobs: Vec<u64> =
                resolved.iter().flatten().flat_map(|one| one.blobs.iter().copied()).collect();
            edit.with(&bytes, |steps, change| transaction.patch(id, row.key(), steps, change, &blobs))
                .map(|patched| patched.map(|patched| patched.map_err(Unchanged::Impossible)))
        })?;
        if keep_uncommitted {
            core.learn_uncommitted(py);
        }
        for encoded in encoded {
            encode::recycle(py, encoded.encoder);
        }
        match outcome {
            None => Err(missing_row(py, row)),
            Some(Ok(patched)) => {
                counters::containers_rebuilt(u64::from(patched.encoded));
                if row.version() != version {
                    return Self::show_last(table, row);
                }
                if !is_as_read {
                    row.note_others(py, &patched.record);
                }
                row.replace(py, &patched.record, edit.moves());
                row.validity.set(self.row_gate(py));
                Ok(())
            }
            Some(Err(Unchanged::Impossible(error))) => Err(change::of_patch(py, row, edit, &error)),
            Some(Err(Unchanged::Misfit(fit))) => Err(change::of_fit(py, row, edit, fit)),
        }
    }

    /// Shows in `row` what is stored now, if another thread has shown its own change since this
    /// thread's commit. Either change may be the later one: the thread that commits first need not
    /// get the GIL first.
    fn show_last(table: &Bound<'_, Self>, row: &Row) -> PyResult<()> {
        // If the record is gone or is of another kind by now, the row keeps what it showed last.
        Self::read_anew(table, row).map(|_| ())
    }

    /// As `overwrite`, in a commit of its own, if the short way is possible.
    fn try_overwrite(&self, py: Python<'_>, row: &Row, edit: &Edit, slot: &Slot<'_>) -> PyResult<bool> {
        let core = self.core();
        let names = &*core.names;
        // The store's lock is held below, so a shape that the store must be asked for takes the
        // long way.
        let known_shapes = KnownShapes(names);
        let done = self.try_row(py, |cached, known| {
            cached.change(known, row.key(), |old, out| {
                let old = old?;
                let is_as_read = old == row.bytes();
                let start = out.len();
                out.extend_from_slice(old);
                let record = out.get_mut(start..)?;
                let fit = edit.fits(record, row.bytes(), &known_shapes);
                let is_written = fit == Ok(Fit::Fits)
                    && edit.with(&[], |steps, _| patch::overwrite(record, &known_shapes, steps, slot))
                        == Ok(true);
                // If another writer has changed the record since, the long way shows that.
                (is_written && is_as_read).then_some(())
            })
        })?;
        if done.is_some() {
            // Makes the same change in the row.
            row.with_own_bytes(py, |record| {
                edit.with(&[], |steps, _| patch::overwrite(record, names, steps, slot))
            })
            .map_err(|error| change::of_patch(py, row, edit, &error))?;
            counters::slot_overwritten();
            row.validity.set(self.row_gate(py));
        }
        Ok(done.is_some())
    }

    /// Overwrites the stored scalar, if the new one fits. Nothing is encoded, and the row is looked
    /// up once.
    fn overwrite(&self, table: &Bound<'_, Self>, row: &Row, edit: &Edit, slot: &Slot<'_>) -> PyResult<bool> {
        let py = table.py();
        if self.try_overwrite(py, row, edit, slot)? {
            return Ok(true);
        }
        let mut version = 0;
        let outcome = self.core().write(py, |transaction| {
            version = row.version();
            let Some(id) = self.id_of_row(py, transaction)? else { return Ok(None) };
            let mut is_as_read = false;
            let key = row.key();
            let rewritten = transaction.rewrite(id, key, key.len(), |record, shapes| {
                is_as_read = *record == *row.bytes();
                if edit.fits(record, row.bytes(), shapes)? != Fit::Fits {
                    return Ok(false);
                }
                edit.with(&[], |steps, _| patch::overwrite(record, shapes, steps, slot))
            })?;
            Ok(rewritten.map(|(record, outcome)| (record, outcome, is_as_read)))
        })?;
        match outcome {
            None => Err(missing_row(py, row)),
            Some((record, Ok(true), is_as_read)) => {
                counters::slot_overwritten();
                if row.version() != version {
                    return Self::show_last(table, row).map(|()| true);
                }
                // If another writer has changed the record since, the places in it may have moved.
                if !is_as_read {
                    row.note_others(py, &record);
                }
                row.take_over(py, record, is_as_read);
                row.validity.set(self.row_gate(py));
                Ok(true)
            }
            // A missing field is no error for `Set`: the slow path adds it.
            Some((_, Ok(false) | Err::<_, PatchError>(_), _)) => Ok(false),
        }
    }
}
