//! Which rows have the least and the greatest values of a table?
//!
//! An index of one part has them at its ends, where it has an entry for each of the values that are to be compared. What has none (a dict, NaN, a
//! time) is ordered behind all that has: so the least value is at one end of the index whatever else there is, and the greatest at the other
//! where each row has an entry. Numbers and Decimals are compared by what they are worth, and stand apart in an index: where it has both, all rows are
//! looked at. The rows that are found stand for all, so that what is made of them is what would be made of all.

use pellucid_query::expression::Node;
use pellucid_query::plan::spans::Span;
use pellucid_query::sort::SortedKeys;
use pellucid_query::{Extremes, RowKey};
use pellucid_store::{Range, Row, range_of_parts};
use pyo3::prelude::*;

use super::access::{ROW_COUNT_MIN, put_in_order};
use super::indexes::{self, Ready};
use super::reader::TableReader;
use crate::table::Table;
use crate::work::Source;

/// The first bytes of the codes of what is ordered ahead of numbers, None left out; of numbers; of Decimals; and of what is behind (format.md, "Ordered keys").
const FAMILIES: [(u8, u8); 4] = [(0x01, 0x0A), NUMBERS, DECIMALS, (0x21, 0x31)];
const NUMBERS: (u8, u8) = (0x0A, 0x1F);
const DECIMALS: (u8, u8) = (0x20, 0x21);

/// Rows of the table among which are those with the least or the greatest values of these expressions, the first ones that have these; `None` where indexes do
/// not tell which.
pub fn rows_of_extremes(table: &Bound<'_, Table>, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>> {
    let Some(place) = TableReader::of(table)? else { return Ok(None) };
    let indexes = indexes::of(table, &place)?;
    if indexes.is_empty() {
        return Ok(None);
    }
    let row_count = place.count(table)?;
    if row_count < ROW_COUNT_MIN {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(wanted.len());
    for (node, which) in wanted {
        let Some(ready) = indexes.iter().find(|ready| serves(ready, node)) else { return Ok(None) };
        let has_each = !ready.definition.branches() && place.entry_count(table, ready.info.id)? == row_count;
        match place.key_of_extreme(table, ready, (*which, has_each))? {
            Some(key) => keys.push(key),
            None => return Ok(None),
        }
    }
    put_in_order(table.py(), &mut keys);
    let rows = place.list(table, SortedKeys::Listed(keys.into_iter()))?;
    Ok(Some(Source { rows, selection: None }))
}

/// Whether an index has an entry for each row in which this can be a key. Of several parts another one may lack; and entries of equal values are
/// not in the order of keys.
fn serves(ready: &Ready, node: &Node) -> bool {
    matches!(&ready.definition.parts[..], [(part, _)] if part == node) && ready.definition.condition.is_none()
}

impl TableReader {
    /// The key of the first row that has the least or the greatest value of an index's one part; None where that is not known.
    fn key_of_extreme(
        &self,
        table: &Bound<'_, Table>,
        ready: &Ready,
        (which, has_each): (Extremes, bool),
    ) -> PyResult<Option<RowKey>> {
        let is_greatest = which == Extremes::Greatest;
        if is_greatest && !has_each {
            return Ok(None);
        }
        let (id, is_descending) = (ready.info.id, ready.keys.is_descending(0));
        let in_family = |(first, behind): (u8, u8)| {
            let span = Span { start: vec![first], end: vec![behind] }.behind(&[], is_descending);
            Range::half_open(span.start, span.end)
        };
        let parts_of = |entry: Row<'_>| ready.keys.split(&entry).map(|entry| entry.parts.to_vec());
        let mut families = FAMILIES;
        if is_greatest {
            families.reverse();
        }
        for family in families {
            let is_from_end = is_greatest != is_descending;
            let found = self.with_first_entry(table, id, &in_family(family), is_from_end, parts_of)?;
            let Some(parts) = found else { continue };
            let other = match family {
                NUMBERS => Some(DECIMALS),
                DECIMALS => Some(NUMBERS),
                _ => None,
            };
            if let Some(other) = other
                && self.with_first_entry(table, id, &in_family(other), false, |_| ())?.is_some()
            {
                return Ok(None);
            }
            // What is no entry is found by `check`.
            let Some(parts) = parts else { return Ok(None) };
            let key = self.with_first_entry(table, id, &range_of_parts(&parts), false, |entry| {
                let entry = ready.keys.split(&entry)?;
                Some(RowKey { code: entry.key.into(), spelling: entry.key_spelling.into() })
            })?;
            return Ok(key.flatten());
        }
        Ok(None)
    }
}
