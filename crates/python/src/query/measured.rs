//! What does a query meet when it is iterated, and how long does that take?
//!
//! The time is that of iterating it, once and first, as whoever asked would: rows as objects, or the dicts that were selected. What was met on the
//! way is found out afterwards, by going the same way again without making objects.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pellucid_query::expression::Node;
use pellucid_query::plan::{Access, Choice};
use pellucid_query::walk::{damaged, for_each};
use pellucid_query::{Evaluator, Fault, Walk};
use pellucid_record::Shapes;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::Query;
use super::access::{Reached, Ways};
use super::ends;
use super::explain::rounded;
use super::plan::all_of;
use super::reader::TableReader;
use crate::bounds::Bounds;
use crate::errors;
use crate::table::Rows;
use crate::work::{Queried, Source, Stop, Work, over};

/// How many rows or entries were met on the way, as many as the query meets, how many of them passed the conditions; how many are left in the
/// end, and in what time.
pub fn lines(
    query: &Bound<'_, Query>,
    (bounds, rest): (&Bounds, Vec<Node>),
    through: Option<(&TableReader, Option<&Ways>)>,
) -> PyResult<Vec<String>> {
    let plan = &query.get().plan;
    let is_free = plan.filters.is_empty();
    let (called, given, time) = if is_free {
        let (given, time) = iterated(query)?;
        (0, given, time)
    } else {
        filtered(query)?
    };
    let time = format!("in {:.3} ms", time.as_secs_f64() * 1e3);
    let best = through.and_then(|(_, ways)| ways?.ways.first());
    let is_sorted =
        plan.order.is_empty() || best.is_some_and(|best| matches!(best.access, Access::Ordered { .. }));
    // A sort has to meet all rows, unless none is wanted.
    let wanted = match is_free {
        true if plan.limit == 0 => 0,
        true if is_sorted => plan.offset.saturating_add(plan.limit),
        false if is_sorted => called,
        _ => u64::MAX,
    };
    let (what, passed) = met(query, (bounds, rest), through, wanted)?;
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

/// With how many rows the functions of a query were called, how many it gave, and in what time.
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

/// How many rows pass the conditions, of so many that are wanted.
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

/// What was met until so many rows have passed; and how many have, where that was found out by the way.
fn met(
    query: &Bound<'_, Query>,
    (bounds, rest): (&Bounds, Vec<Node>),
    through: Option<(&TableReader, Option<&Ways>)>,
    wanted: u64,
) -> PyResult<(String, Option<u64>)> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let is_plain = plan.order.is_empty() && plan.filters.is_empty();
    let followed = match through {
        Some((place, Some(ways))) => {
            Some(ways.follow(table, place, bounds, if is_plain { wanted } else { u64::MAX })?)
        }
        _ => None,
    };
    let walked = |rows: Rows| -> PyResult<(u64, u64)> {
        let condition = all_of(rest)?.map(|node| Evaluator::new(&node)).transpose();
        let condition = condition.map_err(|error| errors::value_error(error.to_string()))?;
        over(table, Source { rows, selection: None }, Meet { condition, wanted })
    };
    Ok(match (followed, through) {
        (
            Some((Reached::Keys(_), Some(Choice { access: Access::Ordered { .. }, .. }))),
            Some((_, Some(Ways { near: Some((met, passed)), .. }))),
        ) => {
            // They were found by walking along the index.
            (format!("met {}", entries(*met)), Some(*passed))
        }
        (Some((Reached::Keys(keys), Some(way))), _) if way.access != Access::Scan => {
            let (count, expected) = (errors::counted(keys.len(), "key"), rounded(way.estimate));
            (format!("found {count}, where about {expected} were expected"), None)
        }
        (Some((Reached::Rows(rows), _)), _) => {
            let (met, passed) = walked(rows)?;
            (format!("met {}", entries(met)), Some(passed))
        }
        (_, Some((place, _))) if wanted < u64::MAX => {
            let (met, passed) = walked(place.rows(table, bounds)?)?;
            (format!("met {}", errors::counted(met as usize, "row")), Some(passed))
        }
        _ => {
            let met = table.get().count_within(py, bounds)?;
            (format!("met {}", errors::counted(met, "row")), None)
        }
    })
}

fn entries(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}

/// Counts rows, and those of which a condition is true, until so many are.
struct Meet {
    condition: Option<Evaluator>,
    wanted: u64,
}

impl Work for Meet {
    type Result = (u64, u64);

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let (mut met, mut passed) = (0, 0);
        if self.wanted == 0 {
            return Ok((0, 0));
        }
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                met += 1;
                match self.condition.as_mut().map_or(Ok(true), |condition| condition.is_true(&row, shapes)) {
                    Ok(is_true) => passed += u64::from(is_true),
                    Err(error) => return damaged(&row, error),
                }
                if passed >= self.wanted { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
            },
        )?;
        Ok((met, passed))
    }
}
