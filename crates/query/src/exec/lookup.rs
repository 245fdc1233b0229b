//! Looks rows up before any planning, if the conditions give a value for each part of an index, or
//! name the keys of the rows.
//!
//! Looking for the entry of one value takes less time than estimating how many there are. Looking
//! up a few keys takes less than weighing other access paths.

use std::ops::Bound;

use pellucid_store::{Range, Reader};

use super::paths::{LOOKUP_COST_IN_ROWS, ROW_COUNT_MIN};
use super::table_index::TableIndex;
use super::{AccessPaths, Executor, has_decimals, put_in_order};
use crate::expression::{Comparison, Kind, Node};
use crate::fault::Fault;
use crate::key_range;
use crate::plan::spans::operand;
use crate::plan::{AccessPath, Candidate, CostedPath, KeySet, section};
use crate::walk::RowKey;

/// Up to this many keys are found as fast as they are counted.
const ENTRY_COUNT_FEW: usize = 2;

/// Up to this many keys are looked up in a tenth of a millisecond, before other paths are weighed.
const KEY_COUNT_MAX: u64 = 64;

impl<R: Reader> Executor<'_, R> {
    /// The path to rows that are looked up before planning, with the keys of those that exist. None
    /// if they are not a few.
    ///
    /// # Errors
    /// Damage.
    pub fn lookup(&self) -> Result<Option<AccessPaths>, Fault> {
        Ok(match self.lookup_entries()? {
            None => self.lookup_keys()?,
            found => found,
        })
    }

    /// The access paths, for `explain()`. If entries are looked up before planning, the planner
    /// runs all the same, to compare.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn explain(&self) -> Result<Option<AccessPaths>, Fault> {
        let entries = self.lookup_entries()?;
        if entries.is_none()
            && let Some(keys) = self.lookup_keys()?
        {
            return Ok(Some(keys));
        }
        Ok(match (self.plan()?, entries) {
            // In a table of a few rows there is no other path through an index.
            (None, Some(mut entries)) => {
                for path in &mut entries.paths {
                    if let AccessPath::Keys(KeySet::Section { section, used, .. }) = &mut path.access {
                        let those =
                            self.conditions.iter().zip(&section.used).filter(|(_, is_used)| **is_used);
                        *used = those.map(|(condition, _)| condition.clone()).collect();
                    }
                }
                Some(entries)
            }
            (paths, _) => paths,
        })
    }

    /// The path through an index whose parts all equal a value, if it leads to next to no rows.
    ///
    /// # Errors
    /// Damage.
    pub fn lookup_entries(&self) -> Result<Option<AccessPaths>, Fault> {
        for (place, index) in self.indexes.iter().enumerate() {
            if is_equal(&index.candidate, &self.conditions)
                && let Some(found) = self.lookup_in(place, index)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn lookup_in(&self, place: usize, index: &TableIndex) -> Result<Option<AccessPaths>, Fault> {
        let (candidate, request) = (&index.candidate, self.request);
        let section = section(candidate, &self.conditions, u64::MAX);
        let Some(section) = section.filter(|section| section.point_count == candidate.parts.len()) else {
            return Ok(None);
        };
        // The entry of a complex number tells what it equals, but not that it has no order. If a
        // condition compares an order, rows are tested.
        let settled =
            if section.has_span { vec![false; self.conditions.len()] } else { section.settled.clone() };
        let is_settled = settled.iter().all(|is_settled| *is_settled);
        // Entries with the same parts are in the order of keys, so that the first entries are those
        // of the first rows.
        let is_plain = request.order.is_empty() && self.is_whole;
        let limit = usize::try_from(request.wanted()).unwrap_or(usize::MAX);
        let enough =
            if is_plain && is_settled { limit.min(ENTRY_COUNT_FEW + 1) } else { ENTRY_COUNT_FEW + 1 };
        let mut keys = Vec::new();
        let wanted = if candidate.is_unique { 1 } else { enough };
        for range in &section.ranges {
            self.first_keys(index, range, wanted, &mut keys)?;
        }
        if keys.len() > ENTRY_COUNT_FEW && enough > ENTRY_COUNT_FEW {
            return Ok(None);
        }
        put_in_order(&mut keys);
        keys.truncate(enough);
        self.keep_in_range(&mut keys);
        let reads_keys = request.reads.is_some_and(|reads| !reads.iter().any(|node| node.reads_record()));
        let is_covered = request.order.is_empty() && is_settled && reads_keys;
        let estimate = keys.iter().map(|_| 1.0).sum();
        let access = AccessPath::Keys(KeySet::Section { index: place, section, used: Vec::new(), estimate });
        let path = CostedPath { access, settled, is_covered, estimate, cost: 0.0, end: None };
        Ok(Some(AccessPaths::found(path, keys)))
    }

    /// Adds the keys in the first entries of a range, up to a number.
    fn first_keys(
        &self,
        index: &TableIndex,
        range: &Range,
        wanted: usize,
        keys: &mut Vec<RowKey>,
    ) -> Result<(), Fault> {
        let mut range = range.clone();
        for _ in 0..wanted {
            // Bytes that are no entry are skipped here; `check` reports them.
            let found = self.reader.with_first(index.info.id, &range, false, |entry| {
                (entry.key.to_vec(), index.keys.row_key(&entry))
            })?;
            let Some((place, key)) = found else { break };
            range.start = Bound::Excluded(place);
            keys.extend(key);
        }
        Ok(())
    }

    /// The path to the rows under the keys that a condition names.
    ///
    /// # Errors
    /// Damage.
    pub fn lookup_keys(&self) -> Result<Option<AccessPaths>, Fault> {
        if !self.conditions.iter().any(|node| node.reads_key()) || self.row_count()? < ROW_COUNT_MIN {
            return Ok(None);
        }
        let count_max = (self.scan_count()? / LOOKUP_COST_IN_ROWS).min(KEY_COUNT_MAX) as usize;
        let has_decimals = has_decimals(self.reader, self.table)?;
        let codes_of = |(place, node): (usize, &Node)| {
            let codes = key_range::named(node, count_max, has_decimals)?;
            Some((place, node.clone(), codes))
        };
        let named = self.conditions.iter().enumerate().filter_map(codes_of);
        let Some((used, condition, codes)) = named.min_by_key(|(.., codes)| codes.len()) else {
            return Ok(None);
        };
        let mut keys = Vec::new();
        for code in codes {
            if self.is_whole || self.range.contains(&code) {
                let cell = self.reader.get(self.table, &code)?;
                keys.extend(cell.map(|cell| RowKey::new(&code, cell.spelling)));
            }
        }
        let path = CostedPath {
            access: AccessPath::KeyLookup(condition),
            // A key for which the condition is false has another code, as for a range of keys. So
            // the condition needs no test.
            settled: (0..self.conditions.len()).map(|place| place == used).collect(),
            is_covered: false,
            estimate: keys.iter().map(|_| 1.0).sum(),
            cost: 0.0,
            end: None,
        };
        Ok(Some(AccessPaths::found(path, keys)))
    }
}

/// Whether the conditions say for each part which value it equals.
fn is_equal(candidate: &Candidate, conditions: &[Node]) -> bool {
    let says = |part: &Node, condition: &Node| {
        matches!(condition.kind(), Kind::Compare(Comparison::Equal, ..) | Kind::IsNone(_))
            && operand(condition).is_some_and(|operand| *operand == **part)
    };
    candidate.parts.iter().all(|(part, _)| conditions.iter().any(|condition| says(part, condition)))
}
