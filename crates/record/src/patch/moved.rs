//! Finds the elements of a list that may have moved, in a record that another writer has changed.
//!
//! A reference to an element of a list stores its index. If another writer removes an earlier
//! element, the index leads to another element, and a change would silently hit the wrong one.
//! Nothing in a record identifies an element, so two states of a list are compared. An element at
//! its old index has not moved, changed or not. An element that is found at another place has
//! moved, and if the list became shorter, so have all elements after the first difference.

use std::collections::HashSet;

use super::extent::container_end;
use super::is_sequence;
use crate::error::{Corrupt, Damage, Result};
use crate::layout::{DEPTH_MAX, Kind};
use crate::path::{Step, resolve, slot_index};
use crate::shape::Shapes;
use crate::value::{NoShapes, Value, decode_slot, encode_value};
use crate::view::{Container, Root, Slot, root};
use crate::walk::Walker;

/// The first index from which elements of the list at `path` may have moved between `old` and
/// `new`. `None` if none has, or if there is no list in one of them.
///
/// ```
/// use pellucid_record::patch::moved_from;
/// use pellucid_record::value::{NoShapes, Value, encode_value};
/// let list = |ints: &[i64]| {
///     let ints = ints.iter().map(|int| Value::Int(*int)).collect();
///     encode_value(&Value::List(ints), &mut NoShapes).unwrap()
/// };
/// let (old, shorter, longer) = (list(&[7, 8, 9]), list(&[7, 9]), list(&[7, 8, 9, 10]));
/// assert_eq!(moved_from(&old, &shorter, &NoShapes, &[]), Ok(Some(1)));
/// assert_eq!(moved_from(&old, &longer, &NoShapes, &[]), Ok(None));
/// ```
///
/// # Errors
/// Damage on the way.
pub fn moved_from<S: Shapes + ?Sized>(
    old: &[u8],
    new: &[u8],
    shapes: &S,
    path: &[Step<'_>],
) -> Result<Option<u32>> {
    match (resolve(old, shapes, path)?, resolve(new, shapes, path)?) {
        (Some(Root::Container(was)), Some(Root::Container(is))) if is_sequence(&was) && is_sequence(&is) => {
            first_moved(old, &was, new, &is, shapes)
        }
        _ => Ok(None),
    }
}

/// Calls `on_moved` for each list with elements that may have moved between `old` and `new`, with
/// the path to it and the index of the first of them.
///
/// # Errors
/// Damage on the way.
pub fn moved<S: Shapes + ?Sized>(
    old: &[u8],
    new: &[u8],
    shapes: &S,
    on_moved: &mut impl FnMut(&[Step<'_>], u32),
) -> Result<()> {
    match (root(old, shapes)?, root(new, shapes)?) {
        (Root::Container(was), Root::Container(is)) => {
            Comparison { old, new, shapes, on_moved }.compare(&was, &is, None)
        }
        _ => Ok(()),
    }
}

/// A step, and those before it.
struct LinkedPath<'a> {
    step: Step<'a>,
    before: Option<&'a LinkedPath<'a>>,
    length: u32,
}

impl LinkedPath<'_> {
    fn steps(way: Option<&LinkedPath<'_>>, work: &mut impl FnMut(&[Step<'_>])) {
        let mut steps = Vec::new();
        let mut next = way;
        while let Some(way) = next {
            steps.push(way.step);
            next = way.before;
        }
        steps.reverse();
        work(&steps);
    }
}

struct Comparison<'a, S: ?Sized, F> {
    old: &'a [u8],
    new: &'a [u8],
    shapes: &'a S,
    on_moved: &'a mut F,
}

impl<S: Shapes + ?Sized, F: FnMut(&[Step<'_>], u32)> Comparison<'_, S, F> {
    fn compare(&mut self, was: &Container, is: &Container, way: Option<&LinkedPath<'_>>) -> Result<()> {
        let (old, new, shapes) = (self.old, self.new, self.shapes);
        let length = way.map_or(1, |way| way.length + 1);
        if length > DEPTH_MAX {
            return Err(Corrupt::new(Damage::Depth, was.start as usize));
        }
        if bytes_of(old, shapes, was)? == bytes_of(new, shapes, is)? {
            return Ok(());
        }
        let keys;
        let steps = if is_sequence(was) && is_sequence(is) {
            let from = first_moved(old, was, new, is, shapes)?;
            if let Some(from) = from {
                LinkedPath::steps(way, &mut |list| (self.on_moved)(list, from));
            }
            (0..from.unwrap_or(was.count)).map(|index| Step::Index(i64::from(index))).collect()
        } else if was.kind == Kind::Shaped && is.kind.is_dict() {
            let Some(shape) = shapes.shape(was.shape) else {
                return Err(Corrupt::new(Damage::UnknownShape, was.start as usize));
            };
            shape.names().iter().map(|name| Step::Field(name)).collect()
        } else if was.kind == Kind::Keyed && is.kind.is_dict() {
            keys = keys_of(old, was, shapes)?;
            keys.iter().map(Key::step).collect()
        } else {
            Vec::new()
        };
        for step in steps {
            let inner = (container_at(old, was, shapes, step)?, container_at(new, is, shapes, step)?);
            if let (Some(was), Some(is)) = inner {
                self.compare(&was, &is, Some(&LinkedPath { step, before: way, length }))?;
            }
        }
        Ok(())
    }
}

/// The key of an entry whose value is a container.
enum Key {
    Name(String),
    Record(Vec<u8>),
}

impl Key {
    fn step(&self) -> Step<'_> {
        match self {
            Key::Name(name) => Step::Field(name),
            Key::Record(record) => Step::Key(record),
        }
    }
}

fn keys_of<S: Shapes + ?Sized>(record: &[u8], map: &Container, shapes: &S) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut walker = Walker::new(*map);
    while let (Some(key), Some(value)) =
        (walker.next_bounded(record, shapes)?, walker.next_bounded(record, shapes)?)
    {
        if !matches!(value, Slot::Container(_)) {
            continue;
        }
        keys.push(match decode_slot(record, shapes, key)? {
            Value::Str(name) => Key::Name(name),
            key => match encode_value(&key, &mut NoShapes) {
                Ok(record) => Key::Record(record),
                // It was in a record, so it fits into one.
                Err(_) => return Err(Corrupt::new(Damage::Range, map.start as usize)),
            },
        });
    }
    Ok(keys)
}

fn container_at<S: Shapes + ?Sized>(
    record: &[u8],
    around: &Container,
    shapes: &S,
    step: Step<'_>,
) -> Result<Option<Container>> {
    let Some(index) = slot_index(record, shapes, around, step)? else { return Ok(None) };
    Ok(match around.slot(record, shapes, index)? {
        Slot::Container(inner) => Some(inner),
        _ => None,
    })
}

fn bytes_of<'a, S: Shapes + ?Sized>(record: &'a [u8], shapes: &S, container: &Container) -> Result<&'a [u8]> {
    let end = container_end(record, shapes, container)?;
    match record.get(container.start as usize..end as usize) {
        Some(bytes) => Ok(bytes),
        None => Err(Corrupt::new(Damage::Truncated, container.start as usize)),
    }
}

/// The index from which on the elements of a list may have moved.
fn first_moved<S: Shapes + ?Sized>(
    old: &[u8],
    was: &Container,
    new: &[u8],
    is: &Container,
    shapes: &S,
) -> Result<Option<u32>> {
    let mut changed = Vec::new();
    let (mut olds, mut news) = (Walker::new(*was), Walker::new(*is));
    for index in 0..was.count.min(is.count) {
        let slots = (olds.next_bounded(old, shapes)?, news.next_bounded(new, shapes)?);
        let (Some(one), Some(other)) = slots else { break };
        let slots = (one, other);
        if let (Slot::Container(was), Slot::Container(is)) = slots
            && bytes_of(old, shapes, &was)? == bytes_of(new, shapes, &is)?
        {
            continue;
        }
        // Equal values may have different bytes: a dict as a keyed map, a number in a wider slot.
        let (before, now) = (decode_slot(old, shapes, slots.0)?, decode_slot(new, shapes, slots.1)?);
        if before != now {
            changed.push((index, before, now));
        }
    }
    let first = changed.first().map(|(index, ..)| *index);
    if is.count < was.count {
        return Ok(Some(first.unwrap_or(is.count)));
    }
    if first.is_none() {
        return Ok(None);
    }
    let (mut before, mut now) = (Vec::with_capacity(changed.len()), HashSet::with_capacity(changed.len()));
    for (_, was, is) in changed {
        before.push(was);
        now.insert(is);
    }
    while let Some(added) = news.next_bounded(new, shapes)? {
        now.insert(decode_slot(new, shapes, added)?);
    }
    Ok(if before.iter().any(|element| now.contains(element)) { first } else { None })
}
