//! Changes one container of a record, and copies the rest.
//!
//! Every change has the same form: some slots of the old container, new ones, the rest of the old
//! slots. That container is written anew by the encoder, which copies nested containers as bytes.
//! The outer containers are spliced.

use super::extent::depth;
use super::splice::splice_outward;
use super::write::{Part, Plan, write};
use super::{Change, PatchError, Patched, ShapeBook, check_mutable, descend, existing_slot};
use crate::error::{Corrupt, Damage, EncodeError, Result};
use crate::layout::{DEPTH_MAX, Kind, tag};
use crate::path::{Step, field_name, slot_index};
use crate::shape::may_be_shape;
use crate::view::{Container, root};

/// A slot of a shaped dict, and its name.
type Field = (u32, Box<str>);

/// Makes `change` at the end of `path`. The record and the values are of the book's database.
///
/// # Errors
/// The path leads nowhere, to a value that cannot change in this way, or beyond a limit; or the
/// bytes are damaged.
pub fn apply(
    record: &[u8],
    path: &[Step<'_>],
    change: Change<'_>,
    book: &mut dyn ShapeBook,
) -> Result<Patched, PatchError> {
    let (steps, towards) = match (change, path) {
        (Change::Set(value), []) => {
            root(value, book)?;
            return Ok(Patched { record: value.to_vec(), encoded: 0, spliced: 0 });
        }
        (Change::Delete, []) => return Err(PatchError::NoSuchField { step: 0 }),
        (Change::Set(_) | Change::Delete, [steps @ .., towards]) => (steps, Some(*towards)),
        _ => (path, None),
    };
    let (levels, target) = descend(record, book, steps)?;
    check_mutable(&target, steps.len())?;
    let fields = match (change, towards) {
        (Change::Set(_), Some(towards)) => fields_to_reorder(record, book, &target, towards)?,
        _ => None,
    };
    let at = steps.len();
    // Without a last step there is nothing to set or to delete.
    let last = towards.ok_or(PatchError::NoSuchField { step: at });
    let plan = match change {
        Change::Set(value) => plan_set(record, book, &target, fields.as_deref(), at, last?, value)?,
        Change::Delete => plan_delete(record, book, &target, at, last?)?,
        Change::Clear => plan_clear(&target),
        Change::Insert(index, ref value) => {
            plan_splice(&target, at, index, index, std::slice::from_ref(value))?
        }
        Change::Append(values) => plan_splice(&target, at, i64::MAX, i64::MAX, values)?,
        Change::Splice { start, stop, values } => plan_splice(&target, at, start, stop, values)?,
    };
    check_depth(book, &plan, levels.len() as u32 + 1)?;

    let changed = write(record, book, &target, &plan)?;
    let (record, widened) = splice_outward(record, book, &levels, target, changed)?;
    Ok(Patched { record, encoded: 1 + widened, spliced: levels.len() as u32 - widened })
}

/// The field that a step names, if any. A str key may also be given as a record.
fn field<'a>(towards: Step<'a>, book: &dyn ShapeBook) -> Result<Option<&'a str>> {
    match towards {
        Step::Field(name) => Ok(Some(name)),
        Step::Key(key) => field_name(key, book),
        Step::Index(_) => Ok(None),
    }
}

/// The slots and names of the existing fields, if setting the field that `towards` names changes
/// the shape of a shaped dict: the field is new, or it was deleted and comes back after the others.
fn fields_to_reorder(
    record: &[u8],
    book: &dyn ShapeBook,
    target: &Container,
    towards: Step<'_>,
) -> Result<Option<Vec<Field>>, PatchError> {
    if target.kind != Kind::Shaped {
        return Ok(None);
    }
    let is_there = |slot: u32| target.tag(record, slot) != Some(tag::ABSENT);
    if let Some(slot) = slot_index(record, book, target, towards)?
        && (is_there(slot) || !(slot..target.count).any(is_there))
    {
        return Ok(None);
    }
    let Some(shape) = book.shape(target.shape) else {
        return Err(Corrupt::new(Damage::UnknownShape, target.start as usize).into());
    };
    let fields = (0..target.count).zip(shape.names()).filter(|(slot, _)| is_there(*slot));
    Ok(Some(fields.map(|(slot, name)| (slot, name.clone())).collect()))
}

fn plan_set<'a>(
    record: &[u8],
    book: &mut dyn ShapeBook,
    target: &Container,
    fields: Option<&'a [Field]>,
    step: usize,
    towards: Step<'a>,
    value: &'a [u8],
) -> Result<Plan<'a>, PatchError> {
    let field = field(towards, book)?;
    if let Some(fields) = fields {
        return Ok(plan_new_field(book, fields, field, step, towards, value));
    }
    let replaced = |slot: u32| Plan {
        kind: target.kind,
        shape: target.shape,
        parts: vec![Part::Slots(0, slot), Part::Value(value), Part::Slots(slot + 1, target.count)],
    };
    if target.kind != Kind::Keyed {
        return Ok(replaced(existing_slot(record, book, target, step, towards)?));
    }
    if let Some(slot) = slot_index(record, book, target, towards)? {
        return Ok(replaced(slot));
    }
    // A dict that was emptied is a keyed map; with its first field it may have a shape again.
    if let (0, Some(name)) = (target.count, field)
        && let Some(shape) = shape_of(book, &[name], step == 0)
    {
        return Ok(Plan { kind: Kind::Shaped, shape, parts: vec![Part::Value(value)] });
    }
    let parts = vec![Part::Slots(0, target.count), key_part(towards), Part::Value(value)];
    Ok(Plan { kind: Kind::Keyed, shape: 0, parts })
}

/// Adds a field at the end of a shaped dict, which changes its shape or makes it a keyed map.
fn plan_new_field<'a>(
    book: &mut dyn ShapeBook,
    fields: &'a [Field],
    field: Option<&str>,
    step: usize,
    towards: Step<'a>,
    value: &'a [u8],
) -> Plan<'a> {
    if let Some(field) = field {
        let names: Vec<&str> = fields.iter().map(|(_, name)| &**name).chain([field]).collect();
        if let Some(shape) = shape_of(book, &names, step == 0) {
            let slots = fields.iter().map(|(slot, _)| Part::Slots(*slot, slot + 1));
            return Plan { kind: Kind::Shaped, shape, parts: slots.chain([Part::Value(value)]).collect() };
        }
    }
    let entries = fields.iter().flat_map(|(slot, name)| [Part::Name(name), Part::Slots(*slot, slot + 1)]);
    Plan {
        kind: Kind::Keyed,
        shape: 0,
        parts: entries.chain([key_part(towards), Part::Value(value)]).collect(),
    }
}

fn shape_of(book: &mut dyn ShapeBook, names: &[&str], is_root: bool) -> Option<u32> {
    if may_be_shape(names) { book.shape_of(names, is_root) } else { None }
}

fn key_part(towards: Step<'_>) -> Part<'_> {
    match towards {
        Step::Field(name) => Part::Name(name),
        Step::Index(int) => Part::Int(int),
        Step::Key(key) => Part::Value(key),
    }
}

fn plan_delete<'a>(
    record: &[u8],
    book: &dyn ShapeBook,
    target: &Container,
    step: usize,
    towards: Step<'_>,
) -> Result<Plan<'a>, PatchError> {
    let slot = existing_slot(record, book, target, step, towards)?;
    let parts = match target.kind {
        Kind::Shaped if target.tag(record, slot) == Some(tag::ABSENT) => {
            return Err(PatchError::NoSuchField { step });
        }
        Kind::Shaped => vec![Part::Slots(0, slot), Part::Absent, Part::Slots(slot + 1, target.count)],
        // The value's slot follows the key's.
        Kind::Keyed => vec![Part::Slots(0, slot - 1), Part::Slots(slot + 1, target.count)],
        _ => vec![Part::Slots(0, slot), Part::Slots(slot + 1, target.count)],
    };
    Ok(Plan { kind: target.kind, shape: target.shape, parts })
}

fn plan_clear<'a>(target: &Container) -> Plan<'a> {
    let kind = if target.kind.is_dict() { Kind::Keyed } else { Kind::List };
    Plan { kind, shape: 0, parts: Vec::new() }
}

/// Replaces the elements from `start` up to `stop` by values: every change of a list has this form.
fn plan_splice<'a>(
    target: &Container,
    at: usize,
    start: i64,
    stop: i64,
    values: &[&'a [u8]],
) -> Result<Plan<'a>, PatchError> {
    if target.kind.is_dict() {
        return Err(PatchError::NotAContainer { step: at });
    }
    let start = clamped(target.count, start);
    let stop = clamped(target.count, stop).max(start);
    let mut parts = vec![Part::Slots(0, start)];
    parts.extend(values.iter().map(|value| Part::Value(value)));
    parts.push(Part::Slots(stop, target.count));
    Ok(Plan { kind: Kind::List, shape: 0, parts })
}

/// An index in a slice, as in Python: from the end if negative, and never outside.
fn clamped(count: u32, index: i64) -> u32 {
    let index = if index < 0 { index.saturating_add(i64::from(count)).max(0) } else { index };
    u32::try_from(index).unwrap_or(u32::MAX).min(count)
}

/// Whether the new values fit below `level` containers.
fn check_depth(book: &dyn ShapeBook, plan: &Plan<'_>, level: u32) -> Result<(), PatchError> {
    for part in &plan.parts {
        if let Part::Value(value) = part
            && depth(value, book)? + level > DEPTH_MAX
        {
            return Err(EncodeError::TooDeep.into());
        }
    }
    Ok(())
}
