//! Executes queries: chooses an access path, follows it, and sorts and cuts the rows that it leads
//! to.
//!
//! An [`Executor`] answers one [`Request`] on one table, as one reader sees it: a snapshot, or a
//! transaction. `paths.rs` finds the access paths: at once if they are short, or by the planner,
//! with what `probe.rs` learns about the rows. `entries.rs` reads the entries of indexes: keys,
//! counts, and rows of a covering index. `threads.rs` runs work over rows on several threads.

mod entries;
pub mod extremes;
mod paths;
mod probe;
pub mod table_index;
pub mod threads;

use std::ops::Bound;
use std::sync::Arc;

use pellucid_store::{Range, Reader, TableId};

use crate::covered_rows::CoveredRows;
use crate::evaluate::Evaluator;
use crate::expression::{Expression, Kind, Node};
use crate::fault::Fault;
use crate::key_range;
use crate::plan::AccessPath;
use crate::rows::{LookedUp, RowsByIndex, RowsByKey};
use crate::selection::{Meter, Selection};
use crate::sort::{Sort, SortKey, Sorted, SortedKeys, memory_max};
use crate::walk::Scanned;
use crate::work::{Parallel, Stop, Work, WorkResult};

pub use paths::{AccessPaths, ROW_COUNT_MIN};
use table_index::TableIndex;

/// What a query asks for.
pub struct Request<'a> {
    /// The conditions. All of them must be true.
    pub conditions: Vec<Node>,
    /// The sort expressions, first to last, each with whether it is descending; none: the order of
    /// keys.
    pub order: &'a [(Node, bool)],
    /// The row after which to begin: the code that it is ordered by, if there are sort expressions,
    /// and its key.
    pub after: Option<(Vec<u8>, Vec<u8>)>,
    /// The number of rows that are left out first.
    pub offset: u64,
    /// The largest number of rows that are wanted after that.
    pub limit: u64,
    /// The expressions that are read of each row, beside its key; None: its record.
    pub reads: Option<&'a [Node]>,
    /// Whether only the number of rows is wanted.
    pub is_count: bool,
    /// Whether the caller may walk over the rows on several threads, if there are many.
    pub is_parallel: bool,
    /// Counts what the query reads, for `explain()`.
    pub meter: Option<Arc<Meter>>,
}

impl Request<'_> {
    /// How many rows are of use, those left out first included.
    fn wanted(&self) -> u64 {
        self.offset.saturating_add(self.limit)
    }

    /// Whether nothing is read of rows but their keys.
    fn reads_keys(&self) -> bool {
        self.reads.is_some_and(|reads| !reads.iter().any(|node| node.reads_record()))
    }
}

/// How the caller wants a query to run.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Tells whether to stop.
    pub stop: Stop<'a>,
    /// The number of threads for a walk over a large table.
    pub thread_count: usize,
}

/// The rows that were found, in the order that is asked for.
pub enum RowSet<R: Reader> {
    /// The rows of a scan.
    Scan(R::Scan),
    /// The rows under these keys.
    Keys(SortedKeys),
    /// The rows to which entries of an index lead.
    Index(RowsByIndex<R>),
}

/// The answer to a query.
pub enum Answer<R: Reader> {
    /// A set of rows, and the selection of it that is wanted.
    Rows(RowSet<R>, Selection),
    /// Rows from a covering index, and the expressions that compute over them what was asked for.
    Covered(CoveredRows, Vec<Node>),
    /// The number of rows, of which none was read.
    Count(u64),
}

/// A query on one table, as one reader sees it.
pub struct Executor<'a, R: Reader> {
    reader: &'a R,
    table: TableId,
    indexes: &'a [TableIndex],
    request: &'a Request<'a>,
    caller: Caller<'a>,
    /// The range of the table that conditions on the key leave.
    pub range: Range,
    /// The other conditions.
    pub conditions: Vec<Node>,
    is_whole: bool,
}

impl<'a, R: Reader> Executor<'a, R> {
    /// An executor of `request` on the table with this id.
    ///
    /// # Errors
    /// When the engine's pages are damaged.
    pub fn new(
        (reader, table): (&'a R, TableId),
        indexes: &'a [TableIndex],
        request: &'a Request<'a>,
        caller: Caller<'a>,
    ) -> Result<Self, Fault> {
        let has_decimals =
            request.conditions.iter().any(|node| node.reads_key()) && has_decimals(reader, table)?;
        let (range, conditions) = request.key_range(has_decimals);
        let is_whole = range == Range::ALL;
        Ok(Self { reader, table, indexes, request, caller, range, conditions, is_whole })
    }

    /// Whether the answer is there at once: the rows are those of a scan, and there is no path to
    /// choose and nothing to sort first.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn is_plain_scan(&self) -> Result<bool, Fault> {
        Ok(self.request.order.is_empty() && !self.may_choose()?)
    }

    /// Answers the query by the cheapest access path.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn run(&self, mut paths: Option<AccessPaths>) -> Result<Answer<R>, Fault> {
        let request = self.request;
        if let Some(probe) = paths.as_ref().and_then(AccessPaths::finished_probe) {
            if request.is_count {
                return Ok(self.count_of(probe.passed));
            }
            if let (Some(meter), true) =
                (&request.meter, paths.as_ref().is_some_and(|paths| paths.keys.is_some()))
            {
                meter.add_rows(probe.read, 0);
            }
        }
        if let (Some(paths), Some(reads)) = (&mut paths, request.reads)
            && let Some(answer) = self.covered(paths, reads)?
        {
            return Ok(answer);
        }
        self.looked_up(paths)
    }

    /// The answer to a count, if this many rows pass.
    fn count_of(&self, passed: u64) -> Answer<R> {
        Answer::Count(passed.min(self.request.wanted()).saturating_sub(self.request.offset))
    }

    /// Finds rows of the table by the best path.
    fn looked_up(&self, paths: Option<AccessPaths>) -> Result<Answer<R>, Fault> {
        let request = self.request;
        let (rows, implied, is_walk) = self.follow(paths)?;
        let is_sorted = is_walk || request.order.is_empty();
        let is_implied = |place: usize| implied.get(place).copied().unwrap_or(false);
        let left = self.conditions.iter().enumerate().filter(|(place, _)| !is_implied(*place));
        let mut selection = Selection::of(evaluator_of_all(left.map(|(_, node)| node.clone()).collect())?);
        selection.meter.clone_from(&request.meter);
        if is_sorted {
            (selection.offset, selection.limit) = (request.offset, request.limit);
        }
        let rows = match rows {
            RowSet::Keys(SortedKeys::Listed(mut keys)) if is_sorted && selection.condition.is_none() => {
                if let Some(meter) = &request.meter {
                    meter.add_rows(0, request.wanted().min(keys.len() as u64));
                }
                keys.cut(request.offset, request.limit);
                selection = Selection::of(None);
                RowSet::Keys(SortedKeys::Listed(keys))
            }
            rows => rows,
        };
        if is_sorted {
            return Ok(Answer::Rows(rows, selection));
        }
        let sorted = self.run_parallel(rows, selection, self.sort(request.order)?)?;
        Ok(Answer::Rows(RowSet::Keys(self.cut(sorted)?), Selection::of(None)))
    }

    /// The rows to which the best path leads, which of the conditions need no test on them, and
    /// whether they come in the order that is asked for by an ordered walk.
    fn follow(&self, paths: Option<AccessPaths>) -> Result<(RowSet<R>, Vec<bool>, bool), Fault> {
        let (best, keys) = match paths {
            Some(AccessPaths { paths, keys, .. }) => (paths.into_iter().next(), keys),
            None => (None, None),
        };
        if let Some(best) = best {
            let is_walk = best.access.is_ordered_walk();
            // The wanted rows are the first ones only if nothing is left to test, and no sort.
            let is_plain = self.request.order.is_empty() && best.implied.iter().all(|is_implied| *is_implied);
            let wanted = if is_plain { self.request.wanted() } else { u64::MAX };
            let keys = match (keys, &best.access) {
                (None, AccessPath::OrderedWalk { index_range, is_reverse }) => {
                    let Some((index, range)) =
                        self.indexes.get(index_range.index).zip(index_range.ranges.first())
                    else {
                        return Err(Fault::Expression(
                            "an index that was chosen is none of the table's".to_owned(),
                        ));
                    };
                    let entries = (index.info.id, index.keys.clone());
                    let rows = RowsByIndex::ordered(self.reader, self.table, entries, (range, *is_reverse))?;
                    // In the entries of a range there may be complex numbers, which have no order:
                    // each row is tested.
                    return Ok((RowSet::Index(rows), Vec::new(), true));
                }
                (None, access) => self.gather(access, wanted)?,
                (keys, _) => keys,
            };
            if let Some(keys) = keys {
                return Ok((RowSet::Keys(SortedKeys::Listed(keys)), best.implied, is_walk));
            }
        }
        Ok((RowSet::Scan(self.reader.scan(self.table, &self.range, false)?), Vec::new(), false))
    }

    /// A sort by `order`: the sort expressions of the request, for the rows that are sorted.
    fn sort(&self, order: &[(Node, bool)]) -> Result<Sort, Fault> {
        let by = SortKey::new(order).map_err(Fault::of_expression)?;
        let wanted = if self.request.limit == 0 { 0 } else { self.request.wanted() };
        Ok(Sort::new(by, self.request.after.clone(), wanted, memory_max()))
    }

    /// Applies the offset and the limit of the request to sorted rows.
    fn cut(&self, sorted: Sorted) -> Result<SortedKeys, Fault> {
        sorted.into_keys(self.request.offset, self.request.limit, || self.caller.stop.is_set())
    }

    /// Runs work over the entries of an index, or over the rows of the table.
    fn run_scan<W: Work>(&self, of: TableId, (range, is_reverse): (&Range, bool), work: W) -> WorkResult<W> {
        let mut scan = self.reader.scan(of, range, is_reverse)?;
        let mut rows = Scanned { scan: &mut scan, reader: self.reader };
        work.run(&mut rows, &self.reader.overflow_reader(), self.caller.stop)
    }

    /// Runs work over rows that were found.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn run_over<W: Work>(&self, rows: RowSet<R>, mut selection: Selection, work: W) -> WorkResult<W> {
        let (reader, selection, overflow_reader) =
            (self.reader, Some(&mut selection), self.reader.overflow_reader());
        let stop = self.caller.stop;
        match rows {
            RowSet::Scan(mut scan) => {
                work.run_over(&mut Scanned { scan: &mut scan, reader }, selection, &overflow_reader, stop)
            }
            RowSet::Keys(keys) => {
                let rows = &mut RowsByKey::new(self.table, keys);
                work.run_over(&mut LookedUp { rows, reader }, selection, &overflow_reader, stop)
            }
            RowSet::Index(mut rows) => {
                work.run_over(&mut LookedUp { rows: &mut rows, reader }, selection, &overflow_reader, stop)
            }
        }
    }

    /// Like `run_over`, but on several threads if the rows are many.
    fn run_parallel<W: Parallel>(&self, rows: RowSet<R>, selection: Selection, work: W) -> WorkResult<W> {
        let Caller { thread_count, stop } = self.caller;
        let on = (thread_count, stop);
        match rows {
            RowSet::Scan(scan) => match R::into_pinned(scan) {
                Ok(mut scan) => {
                    let snapshot = scan.snapshot().clone();
                    threads::over_rows(&mut scan, Some(selection), &snapshot.overflow_reader(), work, on)
                }
                Err(scan) => self.run_over(RowSet::Scan(scan), selection, work),
            },
            RowSet::Keys(keys) if R::IS_COMMITTED => {
                let snapshot = self.reader.committed()?;
                let rows = &mut RowsByKey::new(self.table, keys);
                let mut rows = LookedUp { rows, reader: &snapshot };
                threads::over_rows(&mut rows, Some(selection), &snapshot.overflow_reader(), work, on)
            }
            rows => self.run_over(rows, selection, work),
        }
    }
}

impl Request<'_> {
    /// The range of the table that conditions on the key leave, and the other conditions.
    /// `has_decimals`: there may be Decimals among the keys.
    #[must_use]
    pub fn key_range(&self, has_decimals: bool) -> (Range, Vec<Node>) {
        let (mut range, rest) = key_range::of(&self.conditions, has_decimals);
        if let (Some((_, key)), true) = (&self.after, self.order.is_empty()) {
            let is_behind = match &range.start {
                Bound::Included(start) | Bound::Excluded(start) => start > key,
                Bound::Unbounded => false,
            };
            if !is_behind {
                range.start = Bound::Excluded(key.clone());
            }
        }
        (range, rest)
    }
}

/// Whether there are Decimals among the keys of a table.
fn has_decimals<R: Reader>(reader: &R, table: TableId) -> Result<bool, Fault> {
    Ok(reader.with_first(table, &key_range::decimals(), false, |_| ())?.is_some())
}

/// Joins all conditions into one evaluator; None if there are no conditions.
///
/// # Errors
/// They nest too deep, or a regular expression in one is invalid.
pub fn evaluator_of_all(mut conditions: Vec<Node>) -> Result<Option<Evaluator>, Fault> {
    let whole = match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Expression::new(Kind::all(conditions)).map_err(Fault::of_expression)?),
    };
    whole.map(|node| Evaluator::new(&node)).transpose().map_err(Fault::of_expression)
}
