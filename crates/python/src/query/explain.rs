//! Explains what a query does when it is iterated.
//!
//! `measured.rs` measures what the query meets and how long it takes; `hints.rs` adds hints.

use pellucid_query::exec::table_index::TableIndex;
use pellucid_query::exec::{AccessPaths, Executor, Request};
use pellucid_query::expression::Node;
use pellucid_query::key_range;
use pellucid_query::plan::{AccessPath, CostedPath, IndexRange};
use pellucid_store::Range;
use pyo3::prelude::*;

use crate::bounds::Bounds;
use crate::errors;
use crate::query::after::After;
use crate::query::handle::Query;
use crate::query::projection::{Projection, request};
use crate::query::reader::{TableReader, read};
use crate::query::spec::{Spec, all_of};
use crate::query::target::QueryTarget;
use crate::query::{hints, indexes, measured, remote_explain};
use crate::table::handle::Table;
use crate::table::ready_indexes::Indexes;
use crate::values::keys;
use crate::values::table_ref::TableRef;
use crate::work::threads::{caller, thread_count, threads_for};
use crate::work::walks::{Source, Walked, of_fault};

/// What is known about a query without running it.
struct Explained {
    /// The table's indexes.
    indexes: Indexes,
    /// The range of the table that conditions on the key leave.
    bounds: Bounds,
    /// The other conditions.
    conditions: Vec<Node>,
    /// The access paths to the rows; None if there is only the scan.
    paths: Option<AccessPaths>,
}

impl Explained {
    fn of(table: &Bound<'_, Table>, request: &Request<'_>) -> PyResult<Self> {
        let reader = TableReader::of(table)?;
        let (mut indexes, mut paths) = (Indexes::default(), None);
        let (mut range, mut conditions) = request.key_range(false);
        if let Some(reader) = &reader {
            indexes = indexes::of(table, reader)?;
            let explained = read!(reader, table, |rows, id| {
                Ok(Executor::new((rows, id), &indexes, request, caller())
                    .and_then(|executor| Ok((executor.paths()?, executor.range, executor.conditions))))
            })?;
            (paths, range, conditions) =
                explained.map_err(|fault| of_fault(table.py(), &TableRef::new(table), fault))?;
        }
        let bounds = Bounds { is_all: range == Range::ALL, range, reverse: false };
        Ok(Self { indexes, bounds, conditions, paths })
    }
}

/// Implements `query.explain()`: lines for people.
pub fn explain(query: &Bound<'_, Query>, analyze: bool) -> PyResult<String> {
    let (py, spec) = (query.py(), &query.get().spec);
    let table = match &query.get().of {
        QueryTarget::Table(table) => table.bind(py),
        QueryTarget::Server(table) => return remote_explain::explain(query, table.bind(py), analyze),
    };
    let name = table.get().name(py).to_string();
    let total = table.as_any().len()?;
    let mut lines = Vec::new();
    let chosen = spec.chosen.as_ref().filter(|_| spec.filters.is_empty());
    let chosen: Option<Vec<_>> = chosen.map(|chosen| chosen.iter().map(|(_, node)| node.clone()).collect());
    let projection = chosen
        .as_ref()
        .map_or(Projection::Rows(Walked::ByOne), |reads| Projection::Values(reads, Walked::ByOne));
    let explained = Explained::of(table, &request(spec, &projection))?;
    let (bounds, rest, paths) = (&explained.bounds, &explained.conditions, explained.paths.as_ref());
    let best = paths.and_then(|paths| paths.paths.first());
    let (left, is_in_order) = match best {
        None | Some(CostedPath { access: AccessPath::TableScan, .. }) => {
            lines.push(scanned(py, spec, bounds, (&name, total))?);
            (rest.clone(), false)
        }
        Some(best) => {
            lines.extend(described(&explained.indexes, best, &name, total));
            // A probe along an index that found the wanted rows has tested them, so the path counts
            // all conditions as implied. The index range tells which ones the index itself implies.
            let (implied, is_in_order) = match &best.access {
                AccessPath::OrderedWalk { index_range, .. } => (&index_range.implied, true),
                _ => (&best.implied, false),
            };
            let left = rest.iter().zip(implied).filter(|(_, is_implied)| !**is_implied);
            (left.map(|(condition, _)| condition.clone()).collect(), is_in_order)
        }
    };
    lines.extend(paths.and_then(|paths| probed(&explained.indexes, paths)));
    if let Some(condition) = all_of(left)? {
        lines.push(format!("filter natively: {}", condition.brief()));
    }
    let is_along = best.is_some_and(|best| best.access != AccessPath::TableScan);
    lines.extend(steps(py, spec, (is_in_order, is_along))?);
    lines.push(threads_text(table, spec, bounds, paths)?);
    lines.extend(paths.and_then(|paths| weighed(&explained.indexes, paths)));
    if analyze {
        lines.extend(measured::lines(query, best.map(|best| &best.access))?);
    }
    lines.extend(hints::of(query, table, !is_along)?);
    Ok(lines.join("\n"))
}

/// The steps after the conditions: what is done with the rows that pass.
fn steps(py: Python<'_>, spec: &Spec, (is_in_order, is_along): (bool, bool)) -> PyResult<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(after) = spec.after.as_ref().filter(|_| !spec.order.is_empty() || is_along) {
        let order = if spec.order.is_empty() { "keys".to_owned() } else { spec.shown_order() };
        lines.push(format!("leave out those up to row {} in the order of {order}", shown_key(py, after)?));
    }
    if !spec.order.is_empty() && !is_in_order {
        let how = match spec.offset.checked_add(spec.limit) {
            Some(count) if spec.filters.is_empty() && count <= pellucid_query::sort::TOP_MAX => {
                format!("keep the first {count} by")
            }
            _ => "sort all of them by".to_owned(),
        };
        lines.push(format!("{how} {}", spec.shown_order()));
    }
    for filter in &spec.filters {
        lines.push(format!("filter in Python, row by row: {}", filter.bind(py).repr()?));
    }
    if spec.offset > 0 {
        lines.push(format!("leave out the first {}", spec.offset));
    }
    if spec.limit != u64::MAX {
        lines.push(format!("give {} at most", spec.limit));
    }
    if let Some(chosen) = &spec.chosen {
        let parts: Vec<_> = chosen.iter().map(|(name, _)| name.as_str()).collect();
        lines.push(format!("select {}", parts.join(", ")));
    }
    Ok(lines)
}

fn shown_key(py: Python<'_>, after: &After) -> PyResult<String> {
    Ok(keys::object_of(py, &after.key, &after.spelling)?.repr()?.to_string())
}

fn scanned(py: Python<'_>, spec: &Spec, bounds: &Bounds, (name, total): (&str, usize)) -> PyResult<String> {
    if bounds.is_all {
        return Ok(format!("scan table {name:?}, all {total} rows, in the order of keys"));
    }
    let of_keys = |part: &Node| key_range::of(std::slice::from_ref(part), false).1.is_empty();
    let parts = key_range::parts(&spec.all_conditions()).into_iter().filter(of_keys);
    let shown: Vec<_> = parts.map(|part| part.brief()).collect();
    let begin = match spec.after.as_ref().filter(|_| spec.order.is_empty()) {
        Some(after) => format!(" after row {}", shown_key(py, after)?),
        None => String::new(),
    };
    let those = if shown.is_empty() { String::new() } else { format!(" where {}", shown.join(" and ")) };
    Ok(format!("scan table {name:?}, of its {total} rows those{begin}{those}"))
}

/// An access path through indexes, in lines.
fn described(indexes: &[TableIndex], path: &CostedPath, name: &str, total: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match &path.access {
        AccessPath::TableScan => {}
        AccessPath::IndexRange(index_range) => {
            lines.push(index_range_text(indexes, index_range));
            lines.push(format!("{}, in the order of keys", looked_up(path, name, total)));
        }
        AccessPath::Intersection(index_ranges) | AccessPath::Union(index_ranges) => {
            let is_union = matches!(path.access, AccessPath::Union(_));
            lines.push(format!("keys that are in {} of", if is_union { "any" } else { "all" }));
            lines.extend(
                index_ranges
                    .iter()
                    .map(|index_range| format!("  {}", index_range_text(indexes, index_range))),
            );
            lines.push(format!("{}, in the order of keys", looked_up(path, name, total)));
        }
        AccessPath::KeyLookup(condition) => {
            lines.push(format!("{} where {}", looked_up(path, name, total), condition.brief()));
        }
        AccessPath::OrderedWalk { index_range, is_reverse } => {
            let direction = if *is_reverse { ", from its end on" } else { "" };
            lines.push(format!(
                "walk along index {:?}{}{direction}",
                index_name(indexes, index_range),
                condition_text(index_range)
            ));
            lines.push(looked_up(path, name, total));
        }
    }
    lines
}

/// What the last probe has found.
fn probed(indexes: &[TableIndex], paths: &AccessPaths) -> Option<String> {
    let (access, probe) = paths.probe.as_ref()?;
    let rows = errors::counted(probe.read as usize, "row");
    match access {
        _ if probe.is_over => Some(format!("all that is wanted is among the first {rows}")),
        AccessPath::OrderedWalk { index_range, is_reverse } => {
            let (name, from) =
                (index_name(indexes, index_range), if *is_reverse { ", from its end on" } else { "" });
            Some(format!(
                "no walk along index {name:?}{from}: what is wanted is not among the first {rows} there"
            ))
        }
        _ => None,
    }
}

fn looked_up(path: &CostedPath, name: &str, total: usize) -> String {
    let expected = path.estimate.round();
    if path.is_covered {
        return format!(
            "take what is asked for from there alone, of about {expected} of {total} rows of table {name:?}"
        );
    }
    format!("look up the rows of table {name:?}, about {expected} of {total}")
}

fn index_range_text(indexes: &[TableIndex], index_range: &IndexRange) -> String {
    let (name, expected) = (index_name(indexes, index_range), index_range.estimate.round());
    format!("read keys from index {name:?}{}, about {expected}", condition_text(index_range))
}

fn condition_text(index_range: &IndexRange) -> String {
    let shown: Vec<_> = index_range.used.iter().map(|node| node.brief()).collect();
    if shown.is_empty() { String::new() } else { format!(" where {}", shown.join(" and ")) }
}

fn index_name<'a>(indexes: &'a [TableIndex], index_range: &IndexRange) -> &'a str {
    indexes.get(index_range.index).map_or("?", |ready| &ready.info.name)
}

/// The expected costs of the paths, which show why this one was chosen.
fn weighed(indexes: &[TableIndex], paths: &AccessPaths) -> Option<String> {
    let shown = |path: &CostedPath| {
        let name = |index_range: &IndexRange| format!("{:?}", index_name(indexes, index_range));
        let all =
            |index_ranges: &[IndexRange], word| index_ranges.iter().map(name).collect::<Vec<_>>().join(word);
        let what = match &path.access {
            AccessPath::TableScan => "the scan".to_owned(),
            AccessPath::KeyLookup(condition) => condition.brief(),
            AccessPath::IndexRange(index_range) => name(index_range),
            AccessPath::Intersection(index_ranges) => all(index_ranges, " and "),
            AccessPath::Union(index_ranges) => all(index_ranges, " or "),
            AccessPath::OrderedWalk { index_range, .. } => format!("along {}", name(index_range)),
        };
        format!("{what} {:.3} ms", path.cost / 1e6)
    };
    let all: Vec<_> = paths.paths.iter().map(shown).collect();
    (all.len() > 1).then(|| format!("expected to take: {}", all.join(", ")))
}

/// The number of threads that walk over the rows when the query is iterated; and the number for
/// methods that have no limit, if these take the same path.
fn threads_text(
    table: &Bound<'_, Table>,
    spec: &Spec,
    bounds: &Bounds,
    paths: Option<&AccessPaths>,
) -> PyResult<String> {
    let py = table.py();
    let on = |count| format!("on {}", errors::counted(count, "thread"));
    let is_whole = spec.offset == 0 && spec.limit == u64::MAX && spec.filters.is_empty();
    let in_parts = |count| format!("{}, on {count} where rows are counted, summed or grouped", on(1));
    let best = paths.and_then(|paths| paths.paths.first());
    if let Some(best) = best.filter(|best| best.access != AccessPath::TableScan) {
        let is_reverse = matches!(best.access, AccessPath::OrderedWalk { is_reverse: true, .. });
        let is_shared = is_whole && !is_reverse && !table.get().is_in_transaction(py);
        let count = if is_shared && best.is_long() { thread_count() } else { 1 };
        return Ok(if count > 1 { in_parts(count) } else { on(1) });
    }
    let Some(rows) = table.get().rows(py, bounds, false)? else { return Ok(on(1)) };
    let count = threads_for(py, &mut Source { rows, selection: None })?;
    if !spec.order.is_empty() {
        return Ok(on(count));
    }
    let is_only_path = paths.is_none_or(|paths| paths.paths.len() == 1);
    Ok(if count > 1 && is_whole && is_only_path { in_parts(count) } else { on(1) })
}
