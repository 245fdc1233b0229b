//! Follows access paths: gathers the keys of rows from indexes, counts entries, or begins a walk in
//! the order of an index.

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_store::Reader;

use super::work::{Parallel, Stop, Work};
use super::{AccessPaths, Executor, RowSet, put_in_order, threads};
use crate::fault::Fault;
use crate::index::Keys;
use crate::plan::{AccessPath, CostedPath, KEY_COUNT_MAX, KeySet};
use crate::rows::RowsByIndex;
use crate::selection::Selection;
use crate::walk::{RowKey, Walk, for_each};

/// Where an access path leads.
pub enum Reached<R: Reader> {
    /// To rows, of which conditions that are not settled are still to be tested.
    Rows(RowsByIndex<R>),
    /// To the keys of such rows, in order.
    Keys(Vec<RowKey>),
    /// To a scan.
    Scan,
}

impl<R: Reader> Executor<'_, R> {
    /// Follows the best path; no more rows are wanted.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn follow<'p>(
        &self,
        paths: &'p AccessPaths,
        wanted: u64,
    ) -> Result<(Reached<R>, Option<&'p CostedPath>), Fault> {
        let Some(best) = paths.paths.first() else { return Ok((Reached::Scan, None)) };
        if let Some(keys) = &paths.keys {
            return Ok((Reached::Keys(keys.clone()), Some(best)));
        }
        let reached = match &best.access {
            // The keys that a condition names are few, and came with the path.
            AccessPath::TableScan | AccessPath::KeyLookup(_) => Reached::Scan,
            AccessPath::Keys(set) => {
                let is_settled = best.settled.iter().all(|is_settled| *is_settled) && self.is_whole;
                let wanted = if is_settled { wanted } else { u64::MAX };
                let Some(mut keys) = self.gather(set, wanted)? else { return Ok((Reached::Scan, None)) };
                self.keep_in_range(&mut keys);
                Reached::Keys(keys)
            }
            AccessPath::IndexOrder { index, section, is_reverse, .. } => {
                let (Some(index), Some(range)) = (self.indexes.get(*index), section.ranges.first()) else {
                    return Err(Fault::Expression(
                        "an index that was chosen is none of the table's".to_owned(),
                    ));
                };
                let entries = (index.info.id, index.keys.clone());
                Reached::Rows(RowsByIndex::ordered(self.reader, self.table, entries, (range, *is_reverse))?)
            }
        };
        Ok((reached, Some(best)))
    }

    /// Leaves the keys that are in the part of the table in which all rows are.
    pub(super) fn keep_in_range(&self, keys: &mut Vec<RowKey>) {
        if !self.is_whole {
            keys.retain(|key| self.range.contains(&key.code));
        }
    }

    /// The keys of a set, in order, each once; no more than are wanted, where the others need not
    /// be known for that. None where they are too many, or an entry does not tell whether its row
    /// is of the set: a complex number, in a range of values.
    pub(super) fn gather(&self, set: &KeySet, wanted: u64) -> Result<Option<Vec<RowKey>>, Fault> {
        match set {
            KeySet::Section { index, section, .. } => {
                let Some(index) = self.indexes.get(*index) else { return Ok(Some(Vec::new())) };
                let is_in_order = section.is_in_key_order(index.definition.parts.len());
                let wanted = if is_in_order { wanted } else { u64::MAX };
                let mut keys = Vec::new();
                for range in &section.ranges {
                    let room = KEY_COUNT_MAX.saturating_sub(keys.len());
                    let (entries, is_ordered) = (index.keys.clone(), section.has_span);
                    let gather = GatherKeys { keys: entries, wanted, room, is_ordered };
                    let Some(found) = self.run_scan(index.info.id, (range, false), gather)? else {
                        return Ok(None);
                    };
                    if keys.is_empty() { keys = found } else { keys.extend(found) }
                }
                if !is_in_order {
                    put_in_order(&mut keys);
                }
                Ok(Some(keys))
            }
            KeySet::Intersection(sets) => {
                let mut keys: Option<Vec<RowKey>> = None;
                for set in sets {
                    let Some(others) = self.gather(set, u64::MAX)? else { return Ok(None) };
                    match &mut keys {
                        None => keys = Some(others),
                        Some(keys) => keep_common(keys, &others),
                    }
                }
                Ok(keys)
            }
            KeySet::Union(sets) => {
                let mut keys = Vec::new();
                for set in sets {
                    let others = self.gather(set, u64::MAX)?;
                    let Some(others) = others.filter(|others| keys.len() + others.len() <= KEY_COUNT_MAX)
                    else {
                        return Ok(None);
                    };
                    keys.extend(others);
                }
                put_in_order(&mut keys);
                Ok(Some(keys))
            }
        }
    }

    /// How many rows the entries of a section lead to, or more than are wanted; None where a row
    /// may have several.
    pub(super) fn count_entries(
        &self,
        paths: &AccessPaths,
        path: &CostedPath,
        wanted: u64,
    ) -> Result<Option<u64>, Fault> {
        if let Some(keys) = &paths.keys {
            return Ok(Some(keys.len() as u64));
        }
        let (AccessPath::Keys(KeySet::Section { index, section, .. })
        | AccessPath::IndexOrder { index, section, .. }) = &path.access
        else {
            return Ok(None);
        };
        let Some(index) = self.indexes.get(*index).filter(|index| !index.definition.branches()) else {
            return Ok(None);
        };
        let is_long = path.row_count() >= threads::ROW_COUNT_MIN;
        let mut count = 0;
        for range in &section.ranges {
            let limit = wanted.saturating_sub(count);
            let selection = Selection { condition: None, offset: 0, limit };
            let entries = RowSet::Scan(self.reader.scan(index.info.id, range, false)?);
            let work = CountEntries { keys: index.keys.clone(), is_ordered: section.has_span };
            let found = if is_long {
                self.run_parallel(entries, selection, work)
            } else {
                self.run_over(entries, selection, work)
            };
            let Some(found) = found? else { return Ok(None) };
            count += found;
        }
        Ok(Some(count))
    }
}

/// Leaves the keys that are also among the others; both are in order.
fn keep_common(keys: &mut Vec<RowKey>, others: &[RowKey]) {
    let mut others = others.iter().peekable();
    keys.retain(|key| {
        while others.next_if(|other| other.code < key.code).is_some() {}
        others.peek().is_some_and(|other| other.code == key.code)
    });
}

/// Takes the keys of rows out of the entries of an index; None where that is not how they can be
/// found.
struct GatherKeys {
    keys: Keys,
    wanted: u64,
    /// How many there may be.
    room: usize,
    /// The entries are those of values in an order, of which complex numbers have none.
    is_ordered: bool,
}

impl Work for GatherKeys {
    type Result = Option<Vec<RowKey>>;

    fn run<S: Shapes>(
        self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let mut found = Vec::new();
        let is_unknown = for_each(
            rows,
            || stop.is_set(),
            |entry| {
                if found.len() as u64 >= self.wanted {
                    return ControlFlow::Break(Ok(false));
                }
                // What is no entry is found by `check`.
                if let Some(parts) = self.keys.split(&entry) {
                    if found.len() == self.room || self.is_ordered && self.keys.has_complex(&parts) {
                        return ControlFlow::Break(Ok(true));
                    }
                    found.push(RowKey::new(parts.key, parts.key_spelling));
                }
                ControlFlow::Continue(())
            },
        )?;
        Ok((is_unknown != Some(true)).then_some(found))
    }
}

/// How many entries there are; None where one does not tell whether its row is one that is asked
/// for.
#[derive(Clone)]
struct CountEntries {
    keys: Keys,
    is_ordered: bool,
}

impl Work for CountEntries {
    type Result = Option<u64>;

    fn run<S: Shapes>(
        self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let mut count = 0;
        let unknown = for_each(
            rows,
            || stop.is_set(),
            |entry| {
                if self.is_ordered
                    && !entry.spelling.is_empty()
                    && self.keys.split(&entry).is_some_and(|parts| self.keys.has_complex(&parts))
                {
                    return ControlFlow::Break(Ok(()));
                }
                count += 1;
                ControlFlow::Continue(())
            },
        )?;
        Ok(unknown.is_none().then_some(count))
    }
}

impl Parallel for CountEntries {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> Result<Self::Result, Fault> {
        Ok(parts.into_iter().sum())
    }
}
