//! Executes queries: chooses an access path, follows it, and sorts and cuts the rows that it leads
//! to.
//!
//! An [`Executor`] answers one [`Request`] on one table, as one reader sees it: a snapshot, or a
//! transaction. `lookup.rs` finds a few rows before any planning. `paths.rs` asks the planner for
//! the access paths, with what `probe.rs` learns about the rows. `follow.rs` follows a path, and
//! `covered.rs` reads rows from the entries of a covering index. `work.rs` and `threads.rs` run
//! work over rows, on one thread or several.

pub mod analyze;
mod covered;
pub mod extremes;
mod follow;
mod lookup;
mod paths;
mod probe;
pub mod table_index;
pub mod threads;
pub mod work;

use std::ops::Bound;

use pellucid_record::Shapes;
use pellucid_store::{Range, Reader, TableId};

use crate::covered_rows::CoveredRows;
use crate::evaluate::Evaluator;
use crate::expression::{Expression, Kind, Node};
use crate::fault::Fault;
use crate::key_range;
use crate::plan::AccessPath;
use crate::rows::{LookedUp, RowsByIndex, RowsByKey};
use crate::selection::Selection;
use crate::sort::{Sort, SortKey, Sorted, SortedKeys};
use crate::walk::{RowKey, Scanned, Walk};

pub use follow::Reached;
pub use paths::{AccessPaths, ROW_COUNT_MIN};
pub use probe::IndexProbe;
use table_index::TableIndex;
use work::{Parallel, Stop, Work};

/// The largest number of bytes in memory for the rows of a sort; further rows go to files.
const SORT_MEMORY_MAX: usize = 1 << 28;

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
}

impl Request<'_> {
    /// How many rows are of use, those left out first included.
    fn wanted(&self) -> u64 {
        self.offset.saturating_add(self.limit)
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
    pub fn run(&self, paths: Option<&AccessPaths>) -> Result<Answer<R>, Fault> {
        let request = self.request;
        if let (true, Some((_, found))) = (request.is_count, paths.and_then(|paths| paths.probed)) {
            return Ok(Answer::Count(found.min(request.wanted()).saturating_sub(request.offset)));
        }
        if let (Some(paths), Some(reads)) = (paths, request.reads)
            && let Some(answer) = self.covered(paths, reads)?
        {
            return Ok(answer);
        }
        self.looked_up(paths)
    }

    /// Finds rows of the table by the best path.
    fn looked_up(&self, paths: Option<&AccessPaths>) -> Result<Answer<R>, Fault> {
        let request = self.request;
        let (mut reached, mut settled, mut is_sorted) = (Reached::Scan, Vec::new(), request.order.is_empty());
        if let Some(paths) = paths {
            let wanted = if is_sorted { request.wanted() } else { u64::MAX };
            let (found, path) = self.follow(paths, wanted)?;
            is_sorted |= path.is_some_and(|path| matches!(path.access, AccessPath::IndexOrder { .. }));
            // In the entries of a range there may be complex numbers, which have no order: each row
            // is tested, unless that was done to find it.
            if let (Reached::Keys(_) | Reached::Scan, Some(path)) = (&found, path) {
                settled.clone_from(&path.settled);
            }
            reached = found;
        }
        let is_settled = |place: usize| settled.get(place).copied().unwrap_or(false);
        let left = self.conditions.iter().enumerate().filter(|(place, _)| !is_settled(*place));
        let mut selection = Selection::of(evaluator_of_all(left.map(|(_, node)| node.clone()).collect())?);
        if is_sorted {
            (selection.offset, selection.limit) = (request.offset, request.limit);
        }
        let rows = match reached {
            Reached::Scan => RowSet::Scan(self.reader.scan(self.table, &self.range, false)?),
            Reached::Rows(rows) => RowSet::Index(rows),
            Reached::Keys(mut keys) => {
                if request.order.is_empty() && selection.condition.is_none() {
                    let count = keys.len() as u64;
                    keys.truncate(request.wanted().min(count) as usize);
                    keys.drain(..request.offset.min(keys.len() as u64) as usize);
                    selection = Selection::of(None);
                }
                RowSet::Keys(SortedKeys::Listed(keys.into_iter()))
            }
        };
        if is_sorted {
            return Ok(Answer::Rows(rows, selection));
        }
        let sort = self.sort(request.order)?;
        let sorted = self.run_parallel(rows, selection, SortUp(sort))?;
        Ok(Answer::Rows(RowSet::Keys(self.cut(sorted)?), Selection::of(None)))
    }

    /// A sort by `order`: the sort expressions of the request, for the rows that are sorted.
    fn sort(&self, order: &[(Node, bool)]) -> Result<Sort, Fault> {
        let by = SortKey::new(order).map_err(Fault::of_expression)?;
        let wanted = if self.request.limit == 0 { 0 } else { self.request.wanted() };
        Ok(Sort::new(by, self.request.after.clone(), wanted, SORT_MEMORY_MAX))
    }

    /// Applies the offset and the limit of the request to sorted rows.
    fn cut(&self, sorted: Sorted) -> Result<SortedKeys, Fault> {
        sorted.into_keys(self.request.offset, self.request.limit, || self.caller.stop.is_set())
    }

    /// Runs work over the entries of an index, or over the rows of the table.
    fn run_scan<W: Work>(
        &self,
        of: TableId,
        (range, is_reverse): (&Range, bool),
        work: W,
    ) -> Result<W::Result, Fault> {
        let mut scan = self.reader.scan(of, range, is_reverse)?;
        let mut rows = Scanned { scan: &mut scan, reader: self.reader };
        work.run(&mut rows, &self.reader.whole(), self.caller.stop)
    }

    /// Runs work over rows that were found.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn run_over<W: Work>(
        &self,
        rows: RowSet<R>,
        mut selection: Selection,
        work: W,
    ) -> Result<W::Result, Fault> {
        let (reader, selection, whole) = (self.reader, Some(&mut selection), self.reader.whole());
        let stop = self.caller.stop;
        match rows {
            RowSet::Scan(mut scan) => {
                work.run_over(&mut Scanned { scan: &mut scan, reader }, selection, &whole, stop)
            }
            RowSet::Keys(keys) => {
                let rows = &mut RowsByKey::new(self.table, keys);
                work.run_over(&mut LookedUp { rows, reader }, selection, &whole, stop)
            }
            RowSet::Index(mut rows) => {
                work.run_over(&mut LookedUp { rows: &mut rows, reader }, selection, &whole, stop)
            }
        }
    }

    /// Like `run_over`, but on several threads if the rows are those of a long scan.
    fn run_parallel<W: Parallel>(
        &self,
        rows: RowSet<R>,
        selection: Selection,
        work: W,
    ) -> Result<W::Result, Fault> {
        let Caller { thread_count, stop } = self.caller;
        match rows {
            RowSet::Scan(scan) => match R::into_pinned(scan) {
                Ok(scan) => threads::over_scan(scan, Some(selection), work, (thread_count, stop)),
                Err(scan) => self.run_over(RowSet::Scan(scan), selection, work),
            },
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

/// Sorts keys, and keeps each once.
pub fn put_in_order(keys: &mut Vec<RowKey>) {
    keys.sort_unstable_by(|one, other| one.code.cmp(&other.code));
    keys.dedup_by(|one, other| one.code == other.code);
}

/// Finds the keys of rows in a sort order.
#[derive(Clone)]
struct SortUp(Sort);

impl Work for SortUp {
    type Result = Sorted;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        self.0.run(rows, shapes, || stop.is_set())
    }
}

impl Parallel for SortUp {
    fn merge(&self, parts: Vec<Self::Result>, _: Stop<'_>) -> Result<Self::Result, Fault> {
        Ok(Sorted::merge(parts))
    }

    fn in_parts(&self, count: usize) -> Self {
        let mut part = self.clone();
        part.0.memory_max /= count.max(1);
        part
    }
}
