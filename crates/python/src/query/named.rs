//! Do the conditions name the keys of all rows that they can be true of?
//!
//! Then each is looked up, which takes as long as to test some rows of a scan.

use pellucid_query::RowKey;
use pellucid_query::expression::Node;
use pellucid_query::key_range;
use pellucid_query::plan::{Access, Choice};
use pyo3::prelude::*;

use super::access::{ROW_COUNT_MIN, SPARSE, Ways, is_within};
use super::indexes::Indexes;
use super::reader::{TableReader, read};
use crate::bounds::Bounds;
use crate::table::Table;

/// So many are looked up in a tenth of a millisecond, ahead of weighing what else leads there.
const COUNT_MAX: u64 = 64;

/// The way to the rows under the keys that a condition names, with those that are there; None where they are not a few.
pub fn named(
    table: &Bound<'_, Table>,
    place: &TableReader,
    (bounds, conditions): (&Bounds, &[Node]),
) -> PyResult<Option<Ways>> {
    if !conditions.iter().any(|node| node.reads_key()) || place.count(table)? < ROW_COUNT_MIN {
        return Ok(None);
    }
    let scan_count =
        if bounds.is_all { place.count(table)? } else { place.estimate(table, None, &bounds.range)? };
    let count_max = (scan_count / SPARSE).min(COUNT_MAX) as usize;
    let has_decimals = place.has_decimals(table)?;
    let names = |(place, node): (usize, &Node)| {
        let codes = key_range::named(node, count_max, has_decimals)?;
        Some((place, node.clone(), codes))
    };
    let shortest = conditions.iter().enumerate().filter_map(names).min_by_key(|(.., codes)| codes.len());
    let Some((used, condition, codes)) = shortest else { return Ok(None) };
    let mut keys = Vec::new();
    for code in codes {
        if bounds.is_all || is_within(&bounds.range, &code) {
            keys.extend(place.key_of(table, &code)?);
        }
    }
    let best = Choice {
        access: Access::Named(condition),
        // A key of which it would not be true has another code, as for a range of keys.
        settled: (0..conditions.len()).map(|place| place == used).collect(),
        is_told: false,
        estimate: keys.iter().map(|_| 1.0).sum(),
        cost: 0.0,
        end: None,
    };
    let ways = vec![best];
    Ok(Some(Ways { indexes: Indexes::default(), ways, few: Some(keys), near: None, walk: None }))
}

impl TableReader {
    /// The key of the row under a code, as it was given; None where there is none.
    fn key_of(&self, table: &Bound<'_, Table>, code: &[u8]) -> PyResult<Option<RowKey>> {
        read!(self, table, |rows, id| Ok(rows.get(id, code)?.map(|cell| RowKey::new(code, cell.spelling))))
    }
}
