//! Measures a query: what it meets when it is iterated, and how long that takes.
//!
//! The time is that of iterating the query once, before anything else, as the caller would: with
//! rows as objects, or the dicts that were selected. The counts come afterwards, from following the
//! same access path again without making objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pellucid_query::exec::Executor;
use pellucid_query::exec::analyze::Met;
use pellucid_query::plan::AccessPath;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::errors;
use crate::hot::callbacks;
use crate::query::ends;
use crate::query::explain::{Explained, rounded};
use crate::query::handle::Query;
use crate::query::reader::TableReader;
use crate::work::threads::caller;
use crate::work::walks::{Queried, of_fault};

/// The lines of the measurement: how many rows or entries the access path met, for as many rows as
/// the query needs; how many of them passed the conditions; how many rows the query gave, and in
/// what time.
pub fn lines(query: &Bound<'_, Query>, explained: &Explained<'_>) -> PyResult<Vec<String>> {
    let plan = &query.get().plan;
    let is_free = plan.filters.is_empty();
    let (called, given, time) = if is_free {
        let (given, time) = iterated(query)?;
        (0, given, time)
    } else {
        filtered(query)?
    };
    let time = format!("in {:.3} ms", time.as_secs_f64() * 1e3);
    let best = explained.paths.as_ref().and_then(|paths| paths.paths.first());
    let is_sorted = plan.order.is_empty()
        || best.is_some_and(|best| matches!(best.access, AccessPath::IndexOrder { .. }));
    // A sort has to read all rows, unless none is wanted.
    let wanted = match is_free {
        true if plan.limit == 0 => 0,
        true if is_sorted => plan.offset.saturating_add(plan.limit),
        false if is_sorted => called,
        _ => u64::MAX,
    };
    let (what, passed) = met(query, explained, wanted)?;
    let is_plain = plan.order.is_empty() && is_free;
    let is_whole = is_plain && plan.offset == 0 && plan.limit == u64::MAX;
    Ok(if is_whole {
        vec![format!("{what}: {given} passed, {time}")]
    } else {
        let passed = match passed {
            Some(passed) => passed,
            None => count_passed(query, wanted)?,
        };
        vec![format!("{what}: {passed} passed"), format!("gave {given} in the end, {time}")]
    })
}

/// How many rows a query gives, and in what time.
fn iterated(query: &Bound<'_, Query>) -> PyResult<(u64, Duration)> {
    let start = Instant::now();
    let mut given = 0;
    for row in ends::rows(query)?.try_iter()? {
        row?;
        given += 1;
    }
    Ok((given, start.elapsed()))
}

/// How many rows the functions of a query were called with, how many rows it gave, and in what
/// time.
fn filtered(query: &Bound<'_, Query>) -> PyResult<(u64, u64, Duration)> {
    let py = query.py();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let count = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    };
    let count = PyCFunction::new_closure(py, None, None, count)?;
    let counting = query.get().with(py, |plan| {
        plan.filters.insert(0, count.into_any().unbind());
        Ok(())
    })?;
    let (given, time) = iterated(&Bound::new(py, counting)?)?;
    Ok((calls.load(Ordering::Relaxed), given, time))
}

/// How many rows pass the conditions, at most `wanted`.
fn count_passed(query: &Bound<'_, Query>, wanted: u64) -> PyResult<u64> {
    let py = query.py();
    let bare = query.get().with(py, |plan| {
        if !plan.order.is_empty() {
            plan.after = None;
        }
        plan.order.clear();
        plan.filters.clear();
        (plan.offset, plan.limit) = (0, wanted);
        Ok(())
    })?;
    ends::count(&Bound::new(py, bare)?)
}

/// What the access path met until `wanted` rows passed; and how many passed, if that was counted as
/// well.
fn met(query: &Bound<'_, Query>, explained: &Explained<'_>, wanted: u64) -> PyResult<(String, Option<u64>)> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let is_plain = plan.order.is_empty() && plan.filters.is_empty();
    let keys_wanted = if is_plain { wanted } else { u64::MAX };
    let (indexes, request, paths) = (&explained.indexes, &explained.request, explained.paths.as_ref());
    let met = match &explained.reader {
        None => Ok(Met::Rows(0, None)),
        Some(TableReader::Snapshot(snapshot, id)) => callbacks::released(py, || {
            Executor::new((snapshot, *id), indexes, request, caller())?.met(paths, wanted, keys_wanted)
        }),
        Some(TableReader::Transaction(id)) => table.get().core().in_running(py, |transaction| {
            let executor = Executor::new((&*transaction, *id), indexes, request, caller());
            Ok(executor.and_then(|executor| executor.met(paths, wanted, keys_wanted)))
        })?,
    };
    Ok(match met.map_err(|fault| of_fault(table, fault))? {
        Met::Entries(met, passed) => (format!("met {}", entries(met)), Some(passed)),
        Met::Keys(count, estimate) => {
            let (count, expected) = (errors::counted(count, "key"), rounded(estimate));
            (format!("found {count}, where about {expected} were expected"), None)
        }
        Met::Rows(met, passed) => (format!("met {}", errors::counted(met as usize, "row")), passed),
    })
}

fn entries(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}
