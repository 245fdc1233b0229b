//! What does a query do when it is iterated?
//!
//! What it meets then, and how long that takes, is in `measured.rs`; what is remarkable about it in `remarks.rs`.

use pellucid_query::expression::Node;
use pellucid_query::key_range;
use pellucid_query::plan::{Access, Choice, Set};
use pyo3::prelude::*;

use super::Query;
use super::access::{self, Ways};
use super::after::After;
use super::few::few;
use super::known::Walk;
use super::measured;
use super::named::named;
use super::plan::{Plan, all_of};
use super::reader::TableReader;
use super::remarks;
use crate::bounds::Bounds;
use crate::errors;
use crate::keys;
use crate::work::threads::threads_for;
use crate::work::{Queried, Source, Walked};

/// `query.explain()`: lines for people.
pub fn explain(query: &Bound<'_, Query>, analyze: bool) -> PyResult<String> {
    let (py, plan) = (query.py(), &query.get().plan);
    let table = query.table();
    let name = table.get().name(py).to_string();
    let total = table.as_any().len()?;
    let mut lines = Vec::new();
    let place = TableReader::of(table)?;
    let (bounds, rest) = match &place {
        Some(place) => place.scan(table, plan)?,
        None => plan.scan(false),
    };
    let chosen = plan.chosen.as_ref().filter(|_| plan.filters.is_empty());
    let chosen: Option<Vec<_>> = chosen.map(|chosen| chosen.iter().map(|(_, node)| node.clone()).collect());
    let ways = match &place {
        Some(place) => {
            let asked_of = (&bounds, &rest[..]);
            let few = few(table, plan, place, asked_of, chosen.as_deref())?;
            let named = if few.is_none() { named(table, place, asked_of)? } else { None };
            let reads = (chosen.as_deref(), Walked::ByOne, false);
            let ways =
                if named.is_none() { access::ways(table, plan, place, asked_of, reads)? } else { named };
            // In a table of a few rows there is no other way through an index.
            match ways {
                None => few.map(|few| naming_used(few, &rest)),
                ways => ways,
            }
        }
        None => None,
    };
    let best = ways.as_ref().and_then(|ways| ways.ways.first());
    let (left, is_in_order) = match best {
        None | Some(Choice { access: Access::Scan, .. }) => {
            lines.push(scanned(py, plan, &bounds, (&name, total))?);
            (rest.clone(), false)
        }
        Some(best) => {
            lines.extend(ways.as_ref().map(|ways| described(ways, best, &name, total)).unwrap_or_default());
            // Where a walk has found what is wanted, the rows were tested by then.
            let (settled, is_in_order) = match &best.access {
                Access::Ordered { section, .. } => (&section.settled, true),
                _ => (&best.settled, false),
            };
            let left = rest.iter().zip(settled).filter(|(_, is_settled)| !**is_settled);
            (left.map(|(condition, _)| condition.clone()).collect(), is_in_order)
        }
    };
    lines.extend(ways.as_ref().and_then(looked_at));
    if let Some(condition) = all_of(left)? {
        lines.push(format!("filter natively: {}", condition.brief()));
    }
    let is_along = best.is_some_and(|best| best.access != Access::Scan);
    lines.extend(steps(py, plan, (is_in_order, is_along))?);
    lines.push(threads_text(query, &bounds, ways.as_ref())?);
    lines.extend(ways.as_ref().and_then(weighed));
    if analyze {
        let through = place.as_ref().map(|place| (place, ways.as_ref()));
        lines.extend(measured::lines(query, (&bounds, rest), through)?);
    }
    lines.extend(remarks::of(query, &name, place.as_ref(), ways.as_ref())?);
    Ok(lines.join("\n"))
}

/// What becomes of the rows that pass the conditions.
fn steps(py: Python<'_>, plan: &Plan, (is_in_order, is_along): (bool, bool)) -> PyResult<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(after) = plan.after.as_ref().filter(|_| !plan.order.is_empty() || is_along) {
        let order = if plan.order.is_empty() { "keys".to_owned() } else { plan.shown_order() };
        lines.push(format!("leave out those up to row {} in the order of {order}", shown_key(py, after)?));
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
    Ok(lines)
}

/// The same with the conditions that the one way makes use of, which nobody but a reader wants to know.
fn naming_used(mut ways: Ways, conditions: &[Node]) -> Ways {
    if let Some(Choice { access: Access::Keys(Set::Section { section, used, .. }), .. }) =
        ways.ways.first_mut()
    {
        let those = conditions.iter().zip(&section.used).filter(|(_, is_used)| **is_used);
        *used = those.map(|(condition, _)| condition.clone()).collect();
    }
    ways
}

fn shown_key(py: Python<'_>, after: &After) -> PyResult<String> {
    Ok(keys::object_of(py, &after.key, &after.spelling)?.repr()?.to_string())
}

fn scanned(py: Python<'_>, plan: &Plan, bounds: &Bounds, (name, total): (&str, usize)) -> PyResult<String> {
    if bounds.is_all {
        return Ok(format!("scan table {name:?}, all {total} rows, in the order of keys"));
    }
    let of_keys = |part: &Node| key_range::of(std::slice::from_ref(part), false).1.is_empty();
    let parts = key_range::parts(&plan.all_conditions()).into_iter().filter(of_keys);
    let shown: Vec<_> = parts.map(|part| part.brief()).collect();
    let begin = match plan.after.as_ref().filter(|_| plan.order.is_empty()) {
        Some(after) => format!(" behind row {}", shown_key(py, after)?),
        None => String::new(),
    };
    let those = if shown.is_empty() { String::new() } else { format!(" where {}", shown.join(" and ")) };
    Ok(format!("scan table {name:?}, of its {total} rows those{begin}{those}"))
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
        Access::Named(condition) => {
            lines.push(format!("{} where {}", looked_up(way, name, total), condition.brief()));
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

/// What it was looked at rows for, and what has come of it.
fn looked_at(ways: &Ways) -> Option<String> {
    if let Some((near, _)) = ways.near {
        let first = errors::counted(near as usize, "row");
        return Some(format!("all that is wanted is among the first {first}"));
    }
    let Walk { index, is_reverse, seen } = ways.walk?;
    let from = if is_reverse { ", from its end on" } else { "" };
    let (rows, name) = (errors::counted(seen.looked_at as usize, "row"), index_name(ways, index));
    Some(format!("no walk along index {name:?}{from}: what is wanted is not among the first {rows} there"))
}

/// A number of rows. The sum of none is -0.
pub fn rounded(estimate: f64) -> f64 {
    estimate.round() + 0.0
}

fn looked_up(way: &Choice, name: &str, total: usize) -> String {
    let expected = rounded(way.estimate);
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
            let (name, expected) = (index_name(ways, *index), rounded(*estimate));
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
    let shown: Vec<_> = used.iter().map(|node| node.brief()).collect();
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
            Access::Named(condition) => condition.brief(),
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

/// On how many threads the rows are walked over when the query is iterated; and on how many by ends that look at no order and leave nothing out, if
/// these have to scan as well.
fn threads_text(query: &Bound<'_, Query>, bounds: &Bounds, ways: Option<&Ways>) -> PyResult<String> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let on = |count| format!("on {}", errors::counted(count, "thread"));
    let best = ways.and_then(|ways| ways.ways.first());
    if best.is_some_and(|best| best.access != Access::Scan) {
        return Ok(on(1));
    }
    let Some(rows) = table.get().rows(py, bounds, false)? else { return Ok(on(1)) };
    let count = threads_for(py, &Source { rows, selection: None })?;
    if !plan.order.is_empty() {
        return Ok(on(count));
    }
    let is_whole = plan.offset == 0 && plan.limit == u64::MAX && plan.filters.is_empty();
    let is_only_way = ways.is_none_or(|ways| ways.ways.len() == 1);
    Ok(if count > 1 && is_whole && is_only_way {
        format!("{}, on {count} where rows are counted, summed or grouped", on(1))
    } else {
        on(1)
    })
}
