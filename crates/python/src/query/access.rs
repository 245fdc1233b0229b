//! Which way does a query take to its rows, and what does it find there?
//!
//! Where a table has indexes, all ways are weighed (`pellucid_query::plan`). A way through indexes gives keys of rows, which are read afterwards; or
//! it follows the entries of one index and reads the row of each, where its order is the one that is asked for.

use std::ops::{Bound as Edge, ControlFlow};

use pellucid_query::expression::Node;
use pellucid_query::index::Keys;
use pellucid_query::plan::{self, Access, Choice, KEY_COUNT_MAX, Question, Set};
use pellucid_query::sort::SortedKeys;
use pellucid_query::walk::for_each;
use pellucid_query::{Evaluator, Fault, RowKey, RowsByIndex, Selection, Teller, ToldRows, Walk};
use pellucid_record::Shapes;
use pellucid_record::value::NoShapes;
use pellucid_store::{Range, Row, TableId};
use pyo3::prelude::*;

use super::indexes::{self, Indexes, Ready};
use super::known::{self, Known};
use super::plan::Plan;
use super::reader::{TableReader, read};
use crate::bounds::Bounds;
use crate::errors;
use crate::hot::callbacks;
use crate::table::{Rows, Table};
use crate::work::threads::{self, thread_count_over};
use crate::work::{Parallel, Source, Stop, Walked, Work, over, over_parts};

/// Tables with fewer rows are scanned before a way has been chosen.
pub const ROW_COUNT_MIN: u64 = 100;

/// All ways to the rows of a query, the best one first.
#[expect(clippy::struct_field_names, reason = "they are the ways")]
pub struct Ways {
    /// The table's indexes, in the order in which the ways number them.
    pub indexes: Indexes,
    /// At least one, mostly the scan.
    pub ways: Vec<Choice>,
    /// The keys to which the best way leads, where it was found by having them.
    pub few: Option<Vec<RowKey>>,
    /// How many rows were looked at, where those that are wanted are among these; and how many these are.
    pub near: Option<(u64, u64)>,
    /// The walk along an index that was gone to see whether what is wanted comes soon.
    pub walk: Option<known::Walk>,
}

/// The ways to rows within `bounds` of which all `conditions` are true; None where there is but the scan.
pub fn ways(
    table: &Bound<'_, Table>,
    plan: &Plan,
    place: &TableReader,
    (bounds, conditions): (&Bounds, &[Node]),
    (reads, walked, is_count): (Option<&[Node]>, Walked, bool),
) -> PyResult<Option<Ways>> {
    if conditions.is_empty() && plan.order.is_empty() {
        return Ok(None);
    }
    let indexes = indexes::of(table, place)?;
    if indexes.is_empty() {
        return Ok(None);
    }
    let row_count = place.count(table)?;
    if row_count < ROW_COUNT_MIN {
        return Ok(None);
    }
    let candidates = indexes::candidates(table, place, &indexes, (conditions, &plan.order))?;
    let scan_count = if bounds.is_all { row_count } else { place.estimate(table, None, &bounds.range)? };
    // What a filter in Python leaves of them is not known, so all are wanted; and so are all that an order has to choose from.
    let is_cut = plan.filters.is_empty() && (plan.after.is_none() || plan.order.is_empty());
    let is_ordered = !plan.order.is_empty();
    // What is sorted is walked over in parts, whatever becomes of it then; what is tested by Python, or cut, is not.
    let is_whole = plan.filters.is_empty() && plan.limit == u64::MAX && plan.offset == 0;
    let is_parallel = is_ordered || walked == Walked::InParts && is_whole;
    let question = Question {
        conditions,
        // An index has its order over the whole table.
        order: &plan.order,
        is_cut_by_key: !bounds.is_all || plan.after.is_some(),
        wanted: if is_cut { plan.offset.saturating_add(plan.limit) } else { u64::MAX },
        reads,
        // A transaction may have made some that nobody has counted.
        knows_none: place.is_snapshot(),
        row_count,
        scan_count,
        thread_count: if is_parallel { thread_count_over(row_count, place.is_snapshot()) } else { 1 },
    };
    let mut known = Known::new(table, place, &indexes, (bounds, conditions, question.wanted));
    let mut ways = plan::ways(&question, &candidates, &mut known);
    let is_told = reads.is_some_and(|reads| !reads.iter().any(|node| node.reads_record()));
    let near = known.finish(is_count, |seen| is_told || seen.found * SPARSE <= seen.looked_at)?;
    if let (Some(_), Some(best)) = (&near.keys, ways.first_mut()) {
        best.settled.fill(true);
        best.is_told = is_told;
    }
    Ok(Some(Ways { indexes, ways, few: near.keys, near: near.counts, walk: near.walk }))
}

/// To look a row up takes about as long as to test so many.
pub const SPARSE: u64 = 24;

/// Where a way leads.
pub enum Reached {
    /// To rows, of which conditions that are not settled are still to be tested.
    Rows(Rows),
    /// To the keys of such rows, in order.
    Keys(Vec<RowKey>),
    /// Nowhere but to a scan.
    Scan,
}

impl Ways {
    /// Goes the best way.
    pub fn follow(
        &self,
        table: &Bound<'_, Table>,
        place: &TableReader,
        bounds: &Bounds,
        wanted: u64,
    ) -> PyResult<(Reached, Option<&Choice>)> {
        let Some(best) = self.ways.first() else { return Ok((Reached::Scan, None)) };
        if let Some(keys) = &self.few {
            return Ok((Reached::Keys(keys.clone()), Some(best)));
        }
        let reached = match &best.access {
            // Named keys are few, and came with the way.
            Access::Scan | Access::Named(_) => Reached::Scan,
            Access::Keys(set) => {
                let is_settled = best.settled.iter().all(|is_settled| *is_settled) && bounds.is_all;
                let wanted = if is_settled { wanted } else { u64::MAX };
                let Some(mut keys) = self.gather(table, place, set, wanted)? else {
                    return Ok((Reached::Scan, None));
                };
                if !bounds.is_all {
                    keys.retain(|key| is_within(&bounds.range, &key.code));
                }
                Reached::Keys(keys)
            }
            Access::Ordered { index, section, is_reverse, .. } => {
                let (Some(ready), Some(range)) = (self.indexes.get(*index), section.ranges.first()) else {
                    return Err(errors::value_error(
                        "an index that was chosen is none of the table's".to_owned(),
                    ));
                };
                Reached::Rows(place.in_order(table, ready, (range, *is_reverse), u64::MAX)?)
            }
        };
        Ok((reached, Some(best)))
    }

    /// The keys of a set, in order, each once; no more than are wanted, where the others need not be known for that. None where they are too
    /// many, or an entry does not tell whether its row is of the set: a complex number, in a range of values.
    fn gather(
        &self,
        table: &Bound<'_, Table>,
        place: &TableReader,
        set: &Set,
        wanted: u64,
    ) -> PyResult<Option<Vec<RowKey>>> {
        match set {
            Set::Section { index, section, .. } => {
                let Some(ready) = self.indexes.get(*index) else { return Ok(Some(Vec::new())) };
                let is_in_order = section.is_in_key_order(ready.definition.parts.len());
                let wanted = if is_in_order { wanted } else { u64::MAX };
                let mut keys = Vec::new();
                for range in &section.ranges {
                    let rows = place.entries(table, ready.info.id, range, false)?;
                    let room = KEY_COUNT_MAX.saturating_sub(keys.len());
                    let gather =
                        Gather { keys: ready.keys.clone(), wanted, room, is_ordered: section.has_span };
                    let Some(found) = over(table, Source { rows, selection: None }, gather)? else {
                        return Ok(None);
                    };
                    if keys.is_empty() { keys = found } else { keys.extend(found) }
                }
                if !is_in_order {
                    put_in_order(table.py(), &mut keys);
                }
                Ok(Some(keys))
            }
            Set::All(sets) => {
                let mut keys: Option<Vec<RowKey>> = None;
                for set in sets {
                    let Some(others) = self.gather(table, place, set, u64::MAX)? else { return Ok(None) };
                    keys = Some(match keys {
                        None => others,
                        Some(mut keys) => {
                            callbacks::released(table.py(), || keep_common(&mut keys, &others));
                            keys
                        }
                    });
                }
                Ok(keys)
            }
            Set::Any(sets) => {
                let mut keys = Vec::new();
                for set in sets {
                    let others = self.gather(table, place, set, u64::MAX)?;
                    let Some(others) = others.filter(|others| keys.len() + others.len() <= KEY_COUNT_MAX)
                    else {
                        return Ok(None);
                    };
                    keys.extend(others);
                }
                put_in_order(table.py(), &mut keys);
                Ok(Some(keys))
            }
        }
    }

    /// The parts of the one index of which entries tell the rows to which a way leads; none where there are several, or but the keys are at hand.
    pub fn parts(&self, access: &Access) -> &[(Node, bool)] {
        match access {
            _ if self.few.is_some() => &[],
            Access::Keys(Set::Section { index, .. }) | Access::Ordered { index, .. } => {
                self.indexes.get(*index).map_or(&[], |ready| &ready.definition.parts)
            }
            Access::Keys(Set::All(_) | Set::Any(_)) | Access::Named(_) | Access::Scan => &[],
        }
    }

    /// How many rows the entries of a section lead to, or more than are wanted; None where a row may have several.
    pub fn count(
        &self,
        table: &Bound<'_, Table>,
        place: &TableReader,
        way: &Choice,
        wanted: u64,
    ) -> PyResult<Option<u64>> {
        if let Some(keys) = &self.few {
            return Ok(Some(keys.len() as u64));
        }
        let (Access::Keys(Set::Section { index, section, .. }) | Access::Ordered { index, section, .. }) =
            &way.access
        else {
            return Ok(None);
        };
        let Some(ready) = self.indexes.get(*index).filter(|ready| !ready.definition.branches()) else {
            return Ok(None);
        };
        let mut count = 0;
        for range in &section.ranges {
            let limit = wanted.saturating_sub(count);
            let selection = Selection { condition: None, offset: 0, limit };
            let rows = place.entries(table, ready.info.id, range, false)?;
            let source = Source { rows, selection: Some(selection) };
            let is_long = rounded(way.estimate) >= threads::ROW_COUNT_MIN;
            let work = CountEntries { keys: ready.keys.clone(), is_ordered: section.has_span };
            let found = if is_long { over_parts(table, source, work) } else { over(table, source, work) };
            let Some(found) = found? else { return Ok(None) };
            count += found;
        }
        Ok(Some(count))
    }

    /// What the entries, or the keys, to which the best way leads tell of the rows, in its order: of those of which the condition is true, and of so
    /// many at least, where others need not be known for that. None where they do not tell, or would take too much memory. In no order where
    /// `has_order` says that nobody asks.
    pub fn tell(
        &self,
        table: &Bound<'_, Table>,
        place: &TableReader,
        bounds: &Bounds,
        (condition, wanted, has_values, has_order): (Option<Evaluator>, u64, bool, bool),
    ) -> PyResult<Option<ToldRows>> {
        if let Some(keys) = &self.few {
            return Ok(Some(ToldRows::of_keys(keys.clone())));
        }
        let Some(best) = self.ways.first() else { return Ok(None) };
        let (index, section, is_reverse) = match &best.access {
            Access::Scan | Access::Named(_) => return Ok(None),
            Access::Keys(Set::Section { index, section, .. }) => (*index, section, None),
            Access::Ordered { index, section, is_reverse, .. } => (*index, section, Some(*is_reverse)),
            Access::Keys(set) => {
                let Some(mut keys) = self.gather(table, place, set, u64::MAX)? else { return Ok(None) };
                if !bounds.is_all {
                    keys.retain(|key| is_within(&bounds.range, &key.code));
                }
                return Ok(Some(ToldRows::of_keys(keys)));
            }
        };
        let Some(ready) = self.indexes.get(index) else { return Ok(None) };
        let is_in_order = is_reverse.is_some() || section.is_in_key_order(ready.keys.count());
        let tell = Tell {
            teller: Teller::new(ready.keys.clone(), has_values),
            range: (!bounds.is_all).then(|| bounds.range.clone()),
            condition,
            is_ordered: section.has_span,
            wanted: if is_in_order { wanted } else { u64::MAX },
            is_reverse: is_reverse.unwrap_or(false),
            room: rounded(best.estimate).min(wanted).min(ROOM_MAX) as usize,
        };
        let mut told = ToldRows::default();
        for range in &section.ranges {
            let rows = place.entries(table, ready.info.id, range, tell.is_reverse)?;
            match over(table, Source { rows, selection: None }, tell.clone())? {
                Some(rows) if told.size() + rows.size() <= TOLD_SIZE_MAX => told.append(rows),
                _ => return Ok(None),
            }
        }
        // Of those that are counted the order is nothing to anybody, but a row may have told several times.
        if !is_in_order && (has_order || ready.definition.branches()) {
            told.put_in_order();
        }
        Ok(Some(told))
    }
}

#[expect(clippy::cast_sign_loss, reason = "a number of rows")]
fn rounded(estimate: f64) -> u64 {
    estimate as u64
}

/// Whether a key is in a range.
pub fn is_within(range: &Range, key: &[u8]) -> bool {
    let is_behind_start = match &range.start {
        Edge::Included(start) => key >= &start[..],
        Edge::Excluded(start) => key > &start[..],
        Edge::Unbounded => true,
    };
    is_behind_start
        && match &range.end {
            Edge::Included(end) => key <= &end[..],
            Edge::Excluded(end) => key < &end[..],
            Edge::Unbounded => true,
        }
}

/// Brings keys in order, each once.
pub fn put_in_order(py: Python<'_>, keys: &mut Vec<RowKey>) {
    // To give the GIL up and take it again takes longer than to sort a few.
    const COUNT_FEW: usize = 1000;
    let order = |keys: &mut Vec<RowKey>| {
        keys.sort_unstable_by(|one, other| one.code.cmp(&other.code));
        keys.dedup_by(|one, other| one.code == other.code);
    };
    if keys.len() < COUNT_FEW { order(keys) } else { callbacks::released(py, || order(keys)) }
}

/// Leaves the keys that are also among the others; both are in order.
fn keep_common(keys: &mut Vec<RowKey>, others: &[RowKey]) {
    let mut others = others.iter().peekable();
    keys.retain(|key| {
        while others.next_if(|other| other.code < key.code).is_some() {}
        others.peek().is_some_and(|other| other.code == key.code)
    });
}

/// Takes the keys of rows out of the entries of an index; None where that is not how they can be found.
struct Gather {
    keys: Keys,
    wanted: u64,
    /// How many there may be.
    room: usize,
    /// The entries are those of values in an order, of which complex numbers have none.
    is_ordered: bool,
}

impl Work for Gather {
    type Result = Option<Vec<RowKey>>;

    fn run<S: Shapes>(
        self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let mut found = Vec::new();
        let untold = for_each(
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
                    found.push(RowKey { code: parts.key.into(), spelling: parts.key_spelling.into() });
                }
                ControlFlow::Continue(())
            },
        )?;
        Ok((untold != Some(true)).then_some(found))
    }
}

/// How many entries there are; None where one does not tell whether its row is one that is asked for.
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
        let untold = for_each(
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
        Ok(untold.is_none().then_some(count))
    }
}

impl Parallel for CountEntries {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> Result<Self::Result, Fault> {
        Ok(parts.into_iter().sum())
    }
}

/// Rows for which there is room from the begin on, at most: an estimate may be far off.
const ROOM_MAX: u64 = 1 << 16;

/// Bytes of memory for what entries tell, at most. Where that is more, rows are read, of which one is at hand at a time.
const TOLD_SIZE_MAX: usize = 256 << 20;

/// Takes what entries tell; None where one does not, or they are too many.
#[derive(Clone)]
struct Tell {
    teller: Teller,
    /// Within which keys have to be.
    range: Option<Range>,
    condition: Option<Evaluator>,
    wanted: u64,
    /// As that of `Gather`.
    is_ordered: bool,
    /// How many there may be.
    room: usize,
    /// Entries come from the last to the first; those with the same parts are put in the order of keys.
    is_reverse: bool,
}

impl Work for Tell {
    type Result = Option<ToldRows>;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let (mut told, mut is_told) = (ToldRows::with_room(self.room), true);
        // Where the run of the same parts begins that is read now, and these parts.
        let (mut run, mut last): (usize, Vec<u8>) = (0, Vec::new());
        for_each::<()>(
            rows,
            || stop.is_set(),
            |entry| {
                // What is no entry is found by `check`.
                let Some(entry) = self.teller.split(&entry) else { return ControlFlow::Continue(()) };
                if self.is_reverse && *entry.parts != *last {
                    told.turn(run);
                    run = told.len();
                    last.clear();
                    last.extend_from_slice(entry.parts);
                }
                if told.len() as u64 >= self.wanted && (!self.is_reverse || run == told.len()) {
                    return ControlFlow::Break(Ok(()));
                }
                if self.range.as_ref().is_some_and(|range| !is_within(range, entry.key)) {
                    return ControlFlow::Continue(());
                }
                is_told = !(self.is_ordered && self.teller.has_complex(&entry))
                    && told.size() <= TOLD_SIZE_MAX
                    && self.teller.tell(&entry, &mut told);
                if !is_told {
                    return ControlFlow::Break(Ok(()));
                }
                if let Some(condition) = &mut self.condition
                    && !told
                        .with_last(|row| condition.is_true(&row, &NoShapes).unwrap_or(false))
                        .unwrap_or(false)
                {
                    told.pop();
                }
                ControlFlow::Continue(())
            },
        )?;
        if self.is_reverse {
            told.turn(run);
        }
        Ok(is_told.then_some(told))
    }
}

/// As `Gather`, of entries that come from the last to the first; those with the same parts are put in the order of keys, and so all of them are gathered.
struct GatherTurned(Gather);

impl Work for GatherTurned {
    type Result = Vec<RowKey>;

    fn run<S: Shapes>(
        self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let Gather { keys, wanted, .. } = self.0;
        let mut found: Vec<RowKey> = Vec::new();
        // Where the run of the same parts begins that is read now, and these parts.
        let (mut run, mut last): (usize, Vec<u8>) = (0, Vec::new());
        for_each::<()>(
            rows,
            || stop.is_set(),
            |entry| {
                let Some(parts) = keys.split(&entry) else { return ControlFlow::Continue(()) };
                if *parts.parts != *last {
                    found.get_mut(run..).unwrap_or_default().reverse();
                    run = found.len();
                    if run as u64 >= wanted {
                        return ControlFlow::Break(Ok(()));
                    }
                    last.clear();
                    last.extend_from_slice(parts.parts);
                }
                found.push(RowKey { code: parts.key.into(), spelling: parts.key_spelling.into() });
                ControlFlow::Continue(())
            },
        )?;
        found.get_mut(run..).unwrap_or_default().reverse();
        Ok(found)
    }
}

impl TableReader {
    /// The rows to which the entries of an index in a range lead, in the order of these, or from the last one on: so many at least, if there are.
    pub fn in_order(
        &self,
        table: &Bound<'_, Table>,
        ready: &Ready,
        (range, is_reverse): (&Range, bool),
        wanted: u64,
    ) -> PyResult<Rows> {
        let (id, keys) = (ready.info.id, ready.keys.clone());
        // Entries with the same parts come in the order of keys, also from the end on.
        match self {
            Self::Snapshot(snapshot, of) => {
                let rows = RowsByIndex::ordered(snapshot, *of, (id, keys), (range, is_reverse));
                let rows = rows.map_err(|error| errors::of_store(table.py(), error))?;
                Ok(Rows::Indexed(snapshot.clone(), Box::new(rows)))
            }
            Self::Transaction(_) => {
                let rows = self.entries(table, id, range, is_reverse)?;
                let gather = Gather { keys, wanted, room: usize::MAX, is_ordered: false };
                let keys = if is_reverse {
                    over(table, Source { rows, selection: None }, GatherTurned(gather))?
                } else {
                    over(table, Source { rows, selection: None }, gather)?.unwrap_or_default()
                };
                self.list(table, SortedKeys::Listed(keys.into_iter()))
            }
        }
    }

    /// The entries of an index in a range.
    fn entries(
        &self,
        table: &Bound<'_, Table>,
        id: TableId,
        range: &Range,
        is_reverse: bool,
    ) -> PyResult<Rows> {
        Ok(crate::column::rows_of(self.walk(table, Some(id), range, is_reverse)?))
    }

    /// What `work` makes of the first entry of an index in a range, or of the last one; None where there is none.
    pub fn with_first_entry<R>(
        &self,
        table: &Bound<'_, Table>,
        id: TableId,
        range: &Range,
        is_reverse: bool,
        work: impl FnOnce(Row<'_>) -> R,
    ) -> PyResult<Option<R>> {
        read!(self, table, |rows, _id| rows.with_first(id, range, is_reverse, work))
    }

    fn is_snapshot(&self) -> bool {
        matches!(self, Self::Snapshot(..))
    }
}
