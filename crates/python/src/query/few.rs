//! Are there next to no rows to be found?
//!
//! Where each part of an index equals a value, there is mostly one entry, or none. To look for it takes less than to look how many there might be,
//! and than to weigh other ways.

use std::ops::Bound as Edge;

use pellucid_query::RowKey;
use pellucid_query::expression::{Comparison, Kind, Node};
use pellucid_query::index::Keys;
use pellucid_query::plan::spans::operand;
use pellucid_query::plan::{Access, Candidate, Choice, Set, section};
use pellucid_store::{Range, Row, TableId};
use pyo3::prelude::*;

use super::access::{Ways, is_within, put_in_order};
use super::indexes;
use super::plan::Plan;
use super::reader::TableReader;
use crate::bounds::Bounds;
use crate::table::Table;

/// So many keys are found as soon as counted.
const FEW: usize = 2;

/// The way to the rows by an index, with the keys to which it leads, where these are next to none.
pub fn few(
    table: &Bound<'_, Table>,
    plan: &Plan,
    place: &TableReader,
    (bounds, conditions): (&Bounds, &[Node]),
    reads: Option<&[Node]>,
) -> PyResult<Option<Ways>> {
    if conditions.is_empty() {
        return Ok(None);
    }
    let indexes = indexes::of(table, place)?;
    for (index, ready) in indexes.iter().enumerate() {
        let candidate = &ready.candidate;
        if !is_equal(candidate, conditions) {
            continue;
        }
        let Some(section) = section(candidate, conditions, u64::MAX) else { continue };
        if section.point_count < candidate.parts.len() {
            continue;
        }
        // Of a complex number the entry says that it equals, and not that it has no order: where one is asked for, rows are tested.
        let settled = if section.has_span { vec![false; conditions.len()] } else { section.settled.clone() };
        let is_settled = settled.iter().all(|is_settled| *is_settled);
        // Entries with the same parts are in the order of keys, so that the first ones are those of the first rows.
        let is_plain = plan.order.is_empty() && plan.filters.is_empty() && bounds.is_all;
        let limit = usize::try_from(plan.offset.saturating_add(plan.limit)).unwrap_or(usize::MAX);
        let enough = if is_plain && is_settled { limit.min(FEW + 1) } else { FEW + 1 };
        let mut keys = Vec::new();
        let wanted = if candidate.is_unique { 1 } else { enough };
        for range in &section.ranges {
            place.first_keys(table, (ready.info.id, &ready.keys), range, (wanted, &mut keys))?;
        }
        if keys.len() > FEW && enough > FEW {
            continue;
        }
        put_in_order(table.py(), &mut keys);
        keys.truncate(enough);
        if !bounds.is_all {
            keys.retain(|key| is_within(&bounds.range, &key.code));
        }
        let is_told = plan.order.is_empty()
            && is_settled
            && reads.is_some_and(|reads| !reads.iter().any(|node| node.reads_record()));
        let estimate = keys.iter().map(|_| 1.0).sum();
        let set = Set::Section { index, section, used: Vec::new(), estimate };
        let best = Choice { access: Access::Keys(set), settled, is_told, estimate, cost: 0.0, end: None };
        return Ok(Some(Ways { indexes, ways: vec![best], few: Some(keys), near: None, walk: None }));
    }
    Ok(None)
}

/// Whether the conditions say of each part which value it equals.
fn is_equal(candidate: &Candidate, conditions: &[Node]) -> bool {
    let says = |part: &Node, condition: &Node| {
        matches!(condition.kind(), Kind::Compare(Comparison::Equal, ..) | Kind::IsNone(_))
            && operand(condition).is_some_and(|operand| *operand == **part)
    };
    candidate.parts.iter().all(|(part, _)| conditions.iter().any(|condition| says(part, condition)))
}

impl TableReader {
    /// Adds the keys to which the first entries in a range lead, so many at most.
    fn first_keys(
        &self,
        table: &Bound<'_, Table>,
        (index, entries): (TableId, &Keys),
        range: &Range,
        (wanted, keys): (usize, &mut Vec<RowKey>),
    ) -> PyResult<()> {
        let mut range = range.clone();
        for _ in 0..wanted {
            // What is no entry is found by `check`.
            let take = |entry: Row<'_>| {
                let parts = entries.split(&entry);
                let key =
                    parts.map(|parts| RowKey { code: parts.key.into(), spelling: parts.key_spelling.into() });
                (entry.key.to_vec(), key)
            };
            let found = self.with_first_entry(table, index, &range, false, take)?;
            let Some((place, key)) = found else { break };
            range.start = Edge::Excluded(place);
            keys.extend(key);
        }
        Ok(())
    }
}
