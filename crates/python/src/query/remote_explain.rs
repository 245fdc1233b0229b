//! Explains what a query does on a server, and what is done here with the rows that it sends.

use pellucid_query::expression::Node;
use pyo3::prelude::*;

use crate::query::handle::Query;
use crate::query::measured;
use crate::query::pushdown::is_whole;
use crate::query::remote::with_server;
use crate::query::spec::{Spec, all_of};
use crate::server::table::ServerTable;

/// Implements `query.explain()`: what the server does, by its own plan, and what is done here.
pub fn explain(query: &Bound<'_, Query>, table: &Bound<'_, ServerTable>, analyze: bool) -> PyResult<String> {
    let (py, spec) = (query.py(), &query.get().spec);
    let name = table.get().name_of(py).to_string();
    let lines = with_server(table, spec, |remote| {
        let mut lines = Vec::new();
        let order = remote.translated.order.filter(|_| remote.is_in_order && !spec.order.is_empty());
        let part = (remote.is_exact(spec) && remote.is_in_order).then_some((spec.offset, spec.limit));
        let (offset, limit) = part.unwrap_or((0, u64::MAX));
        let given = (remote.predicates(spec)?, order, offset, i64::try_from(limit).ok());
        let shown: Vec<String> = remote.reading.call_method1("explained", given)?.extract()?;
        lines.extend(shown);
        let residual: Vec<Node> = remote.translated.residual.clone();
        if let Some(condition) = all_of(residual)? {
            lines.push(format!("filter here: {}", condition.brief()));
        }
        if !remote.is_in_order {
            lines.push(format!("sort here by {}, then look up the rows", spec.shown_order()));
        }
        for filter in &spec.filters {
            lines.push(format!("filter in Python, row by row: {}", filter.bind(py).repr()?));
        }
        if is_whole(remote, spec) && table.call_method0("has_json")?.is_truthy()? {
            lines.push(
                "sum, count, min, max of a field: the server computes them from its JSON, where all values are ints"
                    .to_owned(),
            );
        }
        if part.is_none() && (spec.offset > 0 || spec.limit != u64::MAX) {
            lines.push(format!("take a part of the rows here: {}", shown_part(spec)));
        }
        Ok(lines)
    })?;
    let Some(mut lines) = lines else { return Ok(format!("there is no table {name:?} yet")) };
    if analyze {
        lines.extend(measured::lines(query, None)?);
    }
    Ok(lines.join("\n"))
}

fn shown_part(spec: &Spec) -> String {
    let mut parts = Vec::new();
    if spec.offset > 0 {
        parts.push(format!("leave out the first {}", spec.offset));
    }
    if spec.limit != u64::MAX {
        parts.push(format!("give {} at most", spec.limit));
    }
    parts.join(", ")
}
