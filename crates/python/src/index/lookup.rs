//! Turn the arguments of index methods into ranges of entries.
//!
//! Callers pass values, prefixes and bounds as Python objects; entries lie in the order of their
//! codes.

use pellucid_query::index::{Keys, beginning_with, between, turned_prefix};
use pellucid_query::key_code::push_equal;
use pellucid_record::key::{KeyEncoder, prefix_range, push_part};
use pellucid_store::Range;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::expression::operand;
use crate::index::handle::{Index, KnownIndex};
use crate::values::keys::{self, Key, Refusal};

/// The parts of an index, as callers ask for them.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The index's name.
    pub name: &'a str,
    /// The directions of its parts.
    pub keys: &'a Keys,
    /// Its definition.
    pub definition: &'a str,
}

impl Parts<'_> {
    /// The codes of the parts in `value`: one part, or for a compound index one for each element of
    /// a tuple. None if no row can have such a value.
    ///
    /// # Errors
    /// The value is no tuple of parts, or has one that cannot be stored.
    pub fn of(self, value: &Bound<'_, PyAny>, is_whole: bool) -> PyResult<Option<Vec<u8>>> {
        let mut encoder = KeyEncoder::new();
        encoder.clear_for_parts();
        let done = if self.keys.count() == 1 {
            push_value(&mut encoder, self.keys.is_descending(0), value)
        } else {
            let Ok(tuple) = value.cast::<PyTuple>() else { return Err(self.no_tuple(value)?) };
            if tuple.len() > self.keys.count() || is_whole && tuple.len() < self.keys.count() {
                return Err(self.no_tuple(value)?);
            }
            tuple.iter().enumerate().try_for_each(|(part, element)| {
                push_value(&mut encoder, self.keys.is_descending(part), &element)
            })
        };
        match done {
            Ok(()) => Ok(Some(encoder.parts().to_vec())),
            Err(Refusal::Raised(error)) => Err(error),
            Err(Refusal::Unsupported { .. }) if is_whole => Ok(None),
            Err(refusal) => Err(refusal.raised_by_index(self.name, value)),
        }
    }

    #[cold]
    fn no_tuple(self, value: &Bound<'_, PyAny>) -> PyResult<PyErr> {
        let (parts, shown) = (self.keys.count(), value.repr()?);
        let example =
            if value.is_instance_of::<PyTuple>() { String::new() } else { format!(", as ({shown},)") };
        Ok(errors::type_error(format!(
            "index {:?} has {parts} parts ({}), so that a value is a tuple of them, not {shown}; prefix() and range() take a tuple of the first ones{example}",
            self.name, self.definition,
        )))
    }

    fn prefix_key(self, prefix: &Bound<'_, PyAny>) -> PyResult<Key> {
        let refusal = match keys::try_key_of(prefix) {
            Ok(key) => return Ok(key),
            Err(refusal) => refusal,
        };
        let mut encoder = KeyEncoder::new();
        match operand::equal_of(prefix)? {
            Some(equal) if push_equal(&mut encoder, &equal) => {
                let (bytes, spelling) = encoder.take();
                Ok(Key { bytes, spelling })
            }
            _ => Err(refusal.raised_by_index(self.name, prefix)),
        }
    }

    /// The entries that begin with `prefix`. A str or bytes is the beginning of texts in the first
    /// part. A tuple has the first parts, or, with only one part, is the beginning of values that
    /// are tuples.
    ///
    /// # Errors
    /// It is nothing that a value begins with.
    pub fn prefix_range(self, prefix: &Bound<'_, PyAny>) -> PyResult<Range> {
        let is_tuple = prefix.is_instance_of::<PyTuple>();
        if is_tuple && self.keys.count() > 1 {
            let parts = self.of(prefix, false)?;
            return Ok(beginning_with(&parts.unwrap_or_default()));
        }
        let key = self.prefix_key(prefix)?;
        let Some(found) = prefix_range(&key.bytes) else {
            return Err(errors::type_error(format!(
                "prefix() takes a str, bytes or a tuple{}, not {}; get_all() and range() find any value",
                if self.keys.count() > 1 { " of the first parts, as prefix((21,))" } else { "" },
                prefix.get_type().name()?
            )));
        };
        if self.keys.is_descending(0) {
            return Ok(turned_prefix(&key.bytes, is_tuple));
        }
        Ok(Range::half_open(found.start, found.end))
    }

    /// The entries from `start` up to `stop`, which is excluded.
    ///
    /// # Errors
    /// As `of`.
    pub fn between(
        self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Range> {
        let part = |value: Option<&Bound<'_, PyAny>>| value.map_or(Ok(None), |value| self.of(value, false));
        Ok(between(part(start)?, part(stop)?))
    }
}

impl Index {
    /// The parts of the index.
    pub(super) fn parts<'a>(&'a self, known: &'a KnownIndex) -> Parts<'a> {
        Parts { name: &self.name, keys: &known.keys, definition: &known.info.definition }
    }

    /// Refuses a tuple of one value if the only part of the index has that value and no value is a
    /// tuple: the caller wrote it as for an index with several parts.
    pub(super) fn refuse_one_part(&self, asked: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = asked.py();
        let Some(tuple) = asked.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 1) else {
            return Ok(());
        };
        let value = tuple.get_item(0)?;
        let (reader, known) = self.ready(py)?;
        let has = |range: &Range| self.first_entry(py, (&reader, &known), range, false, |_| ());
        if known.keys.count() == 1
            && let Some(parts) = self.parts(&known).of(&value, true)?
            && has(&beginning_with(&parts))?.is_some()
            && has(&self.parts(&known).prefix_range(PyTuple::empty(py).as_any())?)?.is_none()
        {
            let (name, is_none, value) = (&self.name, value.is_none(), value.repr()?);
            // As a bound, None means no bound.
            let behind =
                if is_none { String::new() } else { format!(", range({value}) those from there on") };
            return Err(errors::type_error(format!(
                "index {name:?} has one part, and no value that is a tuple; get_all({value}) gives all rows that have {value}{behind}"
            )));
        }
        Ok(())
    }

    /// As `refuse_one_part`, for bounds.
    pub(super) fn refuse_bounds(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        [start, stop].into_iter().flatten().try_for_each(|bound| self.refuse_one_part(bound))
    }
}

/// Adds the code of one part.
pub(super) fn push_value(
    encoder: &mut KeyEncoder,
    is_descending: bool,
    value: &Bound<'_, PyAny>,
) -> Result<(), Refusal> {
    let mark = encoder.mark();
    let mut refusal = None;
    push_part(encoder, is_descending, |encoder| match keys::push(encoder, value) {
        Ok(()) => true,
        Err(why) => {
            refusal = Some(why);
            false
        }
    });
    let Some(why @ Refusal::Unsupported { .. }) = refusal else { return refusal.map_or(Ok(()), Err) };
    // An object that equals a value in a condition stands for that value here, too: a NumPy number,
    // a member of an IntEnum.
    let Some(equal) = operand::equal_of(value)? else { return Err(why) };
    encoder.reset(mark);
    if push_part(encoder, is_descending, |encoder| push_equal(encoder, &equal)) { Ok(()) } else { Err(why) }
}
