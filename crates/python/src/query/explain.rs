//! What does a query do, and what did it meet?

use std::time::Instant;

use pellucid_query::expression::Node;
use pellucid_query::key_range;
use pellucid_query::plan::{Access, Choice, Set};
use pyo3::prelude::*;

use super::Query;
use super::access::{self, Reached, Ways};
use super::ends;
use super::plan::Plan;
use super::remarks;
use super::source::Place;
use crate::bounds::Bounds;
use crate::errors;
use crate::work::threads::threads_for;
use crate::work::{Queried, Source};

/// `query.explain()`: lines for people.
pub fn explain(query: &Bound<'_, Query>, analyze: bool) -> PyResult<String> {
    let (py, plan) = (query.py(), &query.get().plan);
    let table = query.table();
    let name = table.get().name(py).to_string();
    let total = table.as_any().len()?;
    let mut lines = Vec::new();
    let (bounds, rest) = plan.scan(table)?;
    let place = Place::of(table, &bounds)?;
    let chosen = plan.chosen.as_ref().filter(|_| plan.filters.is_empty());
    let chosen: Option<Vec<_>> = chosen.map(|chosen| chosen.iter().map(|(_, node)| node.clone()).collect());
    let ways = match &place {
        Some(place) => access::ways(table, plan, place, (&bounds, &rest), chosen.as_deref())?,
        None => None,
    };
    let best = ways.as_ref().and_then(|ways| ways.ways.first());
    let (rest, is_in_order) = match best {
        None | Some(Choice { access: Access::Scan, .. }) => {
            lines.push(scanned(plan, &bounds, &name, total));
            (rest, false)
        }
        Some(best) => {
            lines.extend(ways.as_ref().map(|ways| described(ways, best, &name, total)).unwrap_or_default());
            let left = rest.into_iter().zip(&best.settled).filter(|(_, is_settled)| !**is_settled);
            (left.map(|(condition, _)| condition).collect(), matches!(best.access, Access::Ordered { .. }))
        }
    };
    if let Some(condition) = super::plan::all_of(rest)? {
        lines.push(format!("filter natively: {condition}"));
    }
    if !plan.order.is_empty() && !is_in_order {
        let how = match plan.offset.checked_add(plan.limit) {
            Some(count) if plan.filters.is_empty() && count <= pellucid_query::sort::TOP_MAX => {
                format!("keep the first {count} by")
            }
            _ => "sort all of them by".to_owned(),
        };
        lines.push(format!("{how} {}", plan.shown_order()));
    }
    for filter in &plan.filters {
        lines.push(format!("filter in Python, row by row: {}", filter.bind(py).repr()?));
    }
    if plan.offset > 0 {
        lines.push(format!("leave out the first {}", plan.offset));
    }
    if plan.limit != u64::MAX {
        lines.push(format!("give {} at most", plan.limit));
    }
    if let Some(chosen) = &plan.chosen {
        let parts: Vec<_> = chosen.iter().map(|(name, _)| name.as_str()).collect();
        lines.push(format!("select {}", parts.join(", ")));
    }
    let is_scan = best.is_none_or(|best| best.access == Access::Scan);
    let threads = if is_scan { thread_count(query, &bounds)? } else { 1 };
    lines.push(format!("on {}", errors::counted(threads, "thread")));
    lines.extend(ways.as_ref().and_then(weighed));
    if analyze {
        lines.extend(measured(query, &bounds, place.as_ref().zip(ways.as_ref()))?);
    }
    lines.extend(remarks::of(query, &name, place.as_ref())?);
    Ok(lines.join("\n"))
}

fn scanned(plan: &Plan, bounds: &Bounds, name: &str, total: usize) -> String {
    if bounds.is_all {
        return format!("scan table {name:?}, all {total} rows, in the order of keys");
    }
    let of_keys = |part: &Node| key_range::of(std::slice::from_ref(part), false).1.is_empty();
    let parts = key_range::parts(&plan.conditions).into_iter().filter(of_keys);
    let shown: Vec<_> = parts.map(|part| part.to_string()).collect();
    format!("scan table {name:?}, of its {total} rows those where {}", shown.join(" and "))
}

/// A way through indexes, in lines.
fn described(ways: &Ways, way: &Choice, name: &str, total: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match &way.access {
        Access::Scan => {}
        Access::Keys(set) => {
            add_set(ways, set, "", &mut lines);
            lines.push(format!("{}, in the order of keys", looked_up(way, name, total)));
        }
        Access::Ordered { index, used, is_reverse, .. } => {
            let direction = if *is_reverse { ", from its end on" } else { "" };
            lines.push(format!(
                "walk along index {:?}{}{direction}",
                index_name(ways, *index),
                condition_text(used)
            ));
            lines.push(looked_up(way, name, total));
        }
    }
    lines
}

fn looked_up(way: &Choice, name: &str, total: usize) -> String {
    let expected = way.estimate.round();
    if way.is_told {
        return format!(
            "take what is asked for from there alone, of about {expected} of {total} rows of table {name:?}"
        );
    }
    format!("look up the rows of table {name:?}, about {expected} of {total}")
}

fn add_set(ways: &Ways, set: &Set, indent: &str, lines: &mut Vec<String>) {
    let (what, sets) = match set {
        Set::Section { index, used, estimate, .. } => {
            let (name, expected) = (index_name(ways, *index), estimate.round());
            lines.push(format!(
                "{indent}read keys from index {name:?}{}, about {expected}",
                condition_text(used)
            ));
            return;
        }
        Set::All(sets) => ("keys that are in all of", sets),
        Set::Any(sets) => ("keys that are in any of", sets),
    };
    lines.push(format!("{indent}{what}"));
    for set in sets {
        add_set(ways, set, &format!("{indent}  "), lines);
    }
}

fn condition_text(used: &[Node]) -> String {
    let shown: Vec<_> = used.iter().map(ToString::to_string).collect();
    if shown.is_empty() { String::new() } else { format!(" where {}", shown.join(" and ")) }
}

fn index_name(ways: &Ways, index: usize) -> &str {
    ways.indexes.get(index).map_or("?", |ready| &ready.info.name)
}

/// What the ways were expected to take, and so why this one was chosen.
fn weighed(ways: &Ways) -> Option<String> {
    let shown = |way: &Choice| {
        let what = match &way.access {
            Access::Scan => "the scan".to_owned(),
            Access::Keys(set) => set_text(ways, set),
            Access::Ordered { index, .. } => format!("along {:?}", index_name(ways, *index)),
        };
        format!("{what} {:.3} ms", way.cost / 1e6)
    };
    let all: Vec<_> = ways.ways.iter().map(shown).collect();
    (all.len() > 1).then(|| format!("expected to take: {}", all.join(", ")))
}

fn set_text(ways: &Ways, set: &Set) -> String {
    let all =
        |sets: &[Set], word: &str| sets.iter().map(|set| set_text(ways, set)).collect::<Vec<_>>().join(word);
    match set {
        Set::Section { index, .. } => format!("{:?}", index_name(ways, *index)),
        Set::All(sets) => all(sets, " and "),
        Set::Any(sets) => all(sets, " or "),
    }
}

/// How many rows were met on the way, and in what time: those of the scan that pass the conditions, then those that are left in the end.
fn measured(
    query: &Bound<'_, Query>,
    bounds: &Bounds,
    through: Option<(&Place, &Ways)>,
) -> PyResult<Vec<String>> {
    let (py, plan) = (query.py(), &query.get().plan);
    let timed = |query: &Bound<'_, Query>| -> PyResult<(u64, String)> {
        let start = Instant::now();
        let count = ends::count(query)?;
        Ok((count, format!("{:.3} ms", start.elapsed().as_secs_f64() * 1e3)))
    };
    let bare = query.get().with(py, |plan| {
        plan.order.clear();
        plan.filters.clear();
        (plan.after, plan.offset, plan.limit) = (None, 0, u64::MAX);
        Ok(())
    })?;
    let met = match through {
        Some((place, ways)) => match ways.follow(query.table(), place, bounds, u64::MAX)? {
            (Reached::Keys(keys), Some(way)) => {
                let (count, expected) = (errors::counted(keys.len(), "key"), way.estimate.round());
                Some(format!("found {count}, where about {expected} were expected"))
            }
            (Reached::Rows(_), _) => None,
            _ => {
                Some(format!("met {}", errors::counted(query.table().get().count_within(py, bounds)?, "row")))
            }
        },
        None => {
            Some(format!("met {}", errors::counted(query.table().get().count_within(py, bounds)?, "row")))
        }
    };
    let (passed, time) = timed(&Bound::new(py, bare)?)?;
    let mut lines = Vec::from_iter(met.map(|met| format!("{met}: {passed} passed, in {time}")));
    let is_bare =
        plan.order.is_empty() && plan.filters.is_empty() && plan.offset == 0 && plan.limit == u64::MAX;
    if !is_bare {
        let (given, time) = timed(query)?;
        lines.push(format!("gave {given} in the end, in {time}"));
    }
    Ok(lines)
}

/// On how many threads the rows are walked over.
fn thread_count(query: &Bound<'_, Query>, bounds: &Bounds) -> PyResult<usize> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let Some(rows) = table.get().rows(py, bounds, false)? else { return Ok(1) };
    let is_ordered = !plan.order.is_empty();
    if !is_ordered && (plan.offset > 0 || plan.limit < u64::MAX || !plan.filters.is_empty()) {
        return Ok(1);
    }
    threads_for(py, &Source { rows, selection: None })
}
