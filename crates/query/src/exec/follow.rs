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

/// What following an access path gives.
pub enum Reached<R: Reader> {
    /// Rows. The conditions that are not settled are still to be tested on them.
    Rows(RowsByIndex<R>),
    /// The keys of such rows, in order.
    Keys(Vec<RowKey>),
    /// A scan.
    Scan,
}

impl<R: Reader> Executor<'_, R> {
    /// Follows the best path. No more than `wanted` rows are needed.
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

    /// Drops the keys outside the range that conditions on the key leave.
    pub(super) fn keep_in_range(&self, keys: &mut Vec<RowKey>) {
        if !self.is_whole {
            keys.retain(|key| self.range.contains(&key.code));
        }
    }

    /// Gathers the keys of a set, in order, each once; no more than are wanted, if the others need
    /// not be known for that. None if there are too many, or if an entry does not tell whether its
    /// row is in the set: a complex number in a range of values.
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

    /// Counts the rows to which the entries of a section lead; the result may be more than
    /// `wanted`. None if the path is not one section, or if a row may have several entries.
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

/// Keeps only the keys that are also in `others`. Both are in order.
fn keep_common(keys: &mut Vec<RowKey>, others: &[RowKey]) {
    let mut others = others.iter().peekable();
    keys.retain(|key| {
        while others.next_if(|other| other.code < key.code).is_some() {}
        others.peek().is_some_and(|other| other.code == key.code)
    });
}

/// Takes the keys of rows out of the entries of an index. None if there are too many, or if an
/// entry does not tell whether its row is wanted.
struct GatherKeys {
    keys: Keys,
    wanted: u64,
    /// The largest number of keys.
    room: usize,
    /// The values of the entries were compared by order, which complex numbers do not have.
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
                // Bytes that are no entry are skipped here; `check` reports them.
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

/// Counts entries. None if one does not tell whether its row is wanted.
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
