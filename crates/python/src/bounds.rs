//! The part of a table given by `start`, `stop` and `prefix`.

use std::ops::Bound as Edge;

use pellucid_record::key::prefix_range;
use pellucid_store::Range;
use pyo3::prelude::*;

use crate::errors;
use crate::values::keys;

/// A part of a table, in the order of its keys or in reverse order.
#[derive(Clone)]
pub struct Bounds {
    /// The range of keys.
    pub range: Range,
    /// Whether in reverse order.
    pub reverse: bool,
    /// Whether the range has every row.
    pub is_all: bool,
}

impl Bounds {
    /// The whole table.
    pub fn all() -> Self {
        Self { range: Range::ALL, reverse: false, is_all: true }
    }

    /// The bounds for the keyword arguments of `keys`, `values`, `items` and `range`.
    pub fn new(
        table: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Self> {
        if start.is_none() && stop.is_none() && prefix.is_none() {
            return Ok(Self { reverse, ..Self::all() });
        }
        let mut range = match prefix {
            None => Range::ALL,
            Some(prefix) => {
                let key = keys::key_of(table, prefix)?;
                let Some(found) = prefix_range(&key.bytes) else {
                    return Err(errors::type_error(format!(
                        "prefix must be a str, bytes or a tuple, not {}",
                        prefix.get_type().name()?
                    )));
                };
                Range::half_open(found.start, found.end)
            }
        };
        if let Some(start) = start {
            let key = keys::key_of(table, start)?.bytes;
            if !matches!(&range.start, Edge::Included(prefix) if *prefix > key) {
                range.start = Edge::Included(key);
            }
        }
        if let Some(stop) = stop {
            let key = keys::key_of(table, stop)?.bytes;
            if !matches!(&range.end, Edge::Excluded(prefix) if *prefix < key) {
                range.end = Edge::Excluded(key);
            }
        }
        Ok(Self { range, reverse, is_all: false })
    }

    /// Whether a key lies within the bounds.
    pub fn holds(&self, key: &[u8]) -> bool {
        let is_behind_start = match &self.range.start {
            Edge::Included(start) => key >= &start[..],
            Edge::Excluded(start) => key > &start[..],
            Edge::Unbounded => true,
        };
        let is_before_end = match &self.range.end {
            Edge::Included(end) => key <= &end[..],
            Edge::Excluded(end) => key < &end[..],
            Edge::Unbounded => true,
        };
        is_behind_start && is_before_end
    }
}
