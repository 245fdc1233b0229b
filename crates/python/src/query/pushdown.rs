//! Aggregates of a field that a server computes, over the JSON of its rows, where that is exact.

use pellucid_query::expression::{Kind, Source, Step};
use pellucid_query::jsonb::is_own_name;
use pyo3::prelude::*;

use crate::column::node_of;
use crate::hot::callbacks;
use crate::query::handle::Query;
use crate::query::remote::{RemoteQuery, with_server};
use crate::query::spec::Spec;
use crate::query::target::QueryTarget;

/// What the server answers to `verb` ("sum", "count", "min" or "max") of a field path; None where
/// it must be computed here, to be exact.
///
/// # Errors
/// What the server raises.
pub fn answer<'py>(
    query: &Bound<'py, Query>,
    verb: &str,
    path: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, spec) = (query.py(), &query.get().spec);
    let QueryTarget::Server(table) = &query.get().of else { return Ok(None) };
    let table = table.bind(py);
    callbacks::code_may_run(py);
    if !table.call_method0("has_json")?.is_truthy()? {
        return Ok(None);
    }
    let node = node_of(path)?;
    let Kind::Field(Source::Record, steps) = node.kind() else { return Ok(None) };
    let names: Option<Vec<&str>> = steps.iter().map(name_of).collect();
    let Some(names) = names.filter(|names| !names.is_empty()) else { return Ok(None) };
    let found = with_server(table, spec, |remote| {
        if !is_whole(remote, spec) {
            return Ok(None);
        }
        let asked = (remote.predicates(spec)?, verb, names.clone());
        remote.reading.call_method1("aggregate", asked)?.extract::<Option<(Bound<'py, PyAny>,)>>()
    })?;
    Ok(found.flatten().map(|(value,)| value))
}

/// Whether the server tests all conditions, and all rows that pass are wanted.
pub fn is_whole(remote: &RemoteQuery<'_>, spec: &Spec) -> bool {
    remote.is_exact(spec) && spec.offset == 0 && spec.limit == u64::MAX && spec.after.is_none()
}

fn name_of(step: &Step) -> Option<&str> {
    match step {
        Step::Field(name) if is_own_name(name) => Some(name),
        _ => None,
    }
}
