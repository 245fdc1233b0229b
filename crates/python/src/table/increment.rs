//! Add a number to a field of a record, in one commit.
//!
//! An int or a float that fits the slot of the old one is written over it under the locks that a
//! single row is written with, so that nothing is lost between the reading and the writing. What
//! remains is done in a transaction: other kinds of numbers, ints that need a wider slot, missing
//! fields, and rows that are instances of a class, which may refuse the sum.

use pellucid_record::Shapes;
use pellucid_record::patch::{self, PatchError};
use pellucid_record::path::{OwnedStep, Step, resolve};
use pellucid_record::view::{Root, Slot};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt};

use crate::column::steps_of;
use crate::errors;
use crate::expression::operand::field_path;
use crate::hot::modules;
use crate::hot::text;
use crate::put::write;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::bytes::handle_of_row;
use crate::values::handles::{Record, RecordList};
use crate::values::keys::{self, Key};
use crate::values::names::KnownShapes;

/// A number that a slot of a record can hold.
#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        if let Ok(int) = object.cast_exact::<PyInt>() {
            return text::small_int(int).map(Self::Int);
        }
        object.cast_exact::<PyFloat>().ok().map(|float| Self::Float(float.value()))
    }

    fn object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Int(int) => int.into_pyobject(py)?.into_any(),
            Self::Float(float) => float.into_pyobject(py)?.into_any(),
        })
    }
}

/// `table.increment(key, path, by, default=...)`; returns the sum.
pub fn increment<'py>(
    table: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    path: &Bound<'py, PyAny>,
    by: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (table.py(), table.get());
    this.check_writable(py)?;
    check_number(by, || "by".to_owned())?;
    default.map_or(Ok(()), |default| check_number(default, || "default".to_owned()))?;
    let steps = steps_of(path)?;
    let name = match steps.first() {
        Some(OwnedStep::Field(name)) => Some(&**name),
        _ => None,
    };
    this.check_fields(py, "increment", name.into_iter())?;
    let stored = keys::try_key_of(key).map_err(|refusal| refusal.raised(&this.name(py), key))?;
    let sum = match Number::of(by) {
        Some(by) if this.class.is_none() => add_in_place(table, &stored, &steps, by)?,
        _ => None,
    };
    let sum = match sum {
        Some(sum) => sum.object(py)?,
        None => transaction::within(py, this.core(), || add(table, (key, &stored), path, by, default))?,
    };
    keys::recycle(py, stored);
    Ok(sum)
}

/// Adds to a number that is there, if the sum fits its slot; otherwise does nothing.
fn add_in_place(
    table: &Bound<'_, Table>,
    key: &Key,
    steps: &[OwnedStep],
    by: Number,
) -> PyResult<Option<Number>> {
    let (py, this) = (table.py(), table.get());
    let path: Vec<Step<'_>> = steps.iter().map(OwnedStep::borrowed).collect();
    // The store's lock is held below, so a shape that the store must be asked for takes the long
    // way.
    let known_shapes = KnownShapes(&this.core().names);
    let sum = this.try_row(py, |cached, known| {
        cached.change(known, &key.bytes, |old, out| {
            let start = out.len();
            out.extend_from_slice(old?);
            add_to(out.get_mut(start..)?, &known_shapes, &path, by)
        })
    })?;
    if sum.is_some() {
        return Ok(sum);
    }
    this.core().write(py, |transaction| {
        let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
        let mut sum = None;
        transaction.rewrite(id, &key.bytes, 0, |record, shapes| {
            sum = add_to(record, shapes, &path, by);
            Ok::<bool, PatchError>(sum.is_some())
        })?;
        Ok(sum)
    })
}

/// The sum, once it is written over the number at `path`; None if that is no such number, or the
/// sum does not fit.
#[expect(clippy::cast_precision_loss, reason = "Python rounds an int as well, to add it to a float")]
fn add_to<S: Shapes + ?Sized>(
    record: &mut [u8],
    shapes: &S,
    path: &[Step<'_>],
    by: Number,
) -> Option<Number> {
    let Ok(Some(Root::Scalar(old))) = resolve(record, shapes, path) else { return None };
    let (sum, slot) = match (old, by) {
        (Slot::Int(old), Number::Int(by)) => {
            let sum = old.checked_add(by)?;
            (Number::Int(sum), Slot::Int(sum))
        }
        (Slot::Float(old), by) => {
            let sum = old
                + match by {
                    Number::Int(by) => by as f64,
                    Number::Float(by) => by,
                };
            (Number::Float(sum), Slot::Float(sum))
        }
        _ => return None,
    };
    (patch::overwrite(record, shapes, path, &slot) == Ok(true)).then_some(sum)
}

/// Adds as Python does, in the transaction that runs.
fn add<'py>(
    table: &Bound<'py, Table>,
    (key, stored): (&Bound<'py, PyAny>, &Key),
    path: &Bound<'py, PyAny>,
    by: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let steps = field_path(path)?;
    let Some((last, towards)) = steps.split_last() else { return Err(errors::missing(key)) };
    let Some(row) = Table::row(table, stored)? else {
        let (Some(default), []) = (default, towards) else { return Err(errors::missing(key)) };
        let (sum, value) = (default.add(by)?, PyDict::new(py));
        value.set_item(last, &sum)?;
        // A class takes no dict; it says of the stored row whether it makes an instance.
        write::put(&Bound::new(py, table.get().untyped())?, key, &value)?;
        Table::check_row(table, stored)?;
        return Ok(sum);
    };
    let mut holder = handle_of_row(py, row)?;
    let place = || {
        let name = table.get().name(py);
        format!("the value at {} of key {} in table {name:?}", errors::brief(path), errors::brief(key))
    };
    if !(holder.is_instance_of::<Record>() || holder.is_instance_of::<RecordList>()) {
        return Err(errors::type_error(format!(
            "{} cannot be counted: what is stored is no dict or list",
            place()
        )));
    }
    for step in towards {
        holder = holder.get_item(step)?;
    }
    let old = match (holder.get_item(last), default) {
        (Err(error), Some(default)) if error.is_instance_of::<PyKeyError>(py) => default.clone(),
        (found, _) => found?,
    };
    check_number(&old, place)?;
    let sum = old.add(by)?;
    holder.set_item(last, &sum)?;
    Table::check_row(table, stored)?;
    Ok(sum)
}

/// Raises `TypeError` for what is no int, float or Decimal; `place` names it. Adding to an object
/// of another class would run the user's code while other writers wait.
fn check_number(object: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
    let is_number = object.cast_exact::<PyInt>().is_ok()
        || object.cast_exact::<PyFloat>().is_ok()
        || modules::is_instance_of(object, "decimal", "Decimal")?;
    if is_number {
        return Ok(());
    }
    Err(errors::type_error(format!(
        "increment() adds an int, a float or a Decimal to one, and {} is {}, of type {}",
        place(),
        errors::brief(object),
        object.get_type().name()?
    )))
}
