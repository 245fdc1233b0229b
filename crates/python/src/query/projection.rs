//! What the ends of a query ask for, and what they get.

use pellucid_query::CoveredRows;
use pellucid_query::exec::Request;
use pellucid_query::expression::Node;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

use crate::query::spec::Spec;
use crate::values::keys;
use crate::work::walks::{Source, Walked};

/// What the caller asks for.
pub enum Projection<'a> {
    /// Records.
    Rows(Walked),
    /// The values of these expressions in each row, beside the keys.
    Values(&'a [Node], Walked),
    /// The number of rows.
    Count,
}

impl<'a> Projection<'a> {
    /// The expressions that are read of each row, beside its key; None: its record.
    fn reads(&self) -> Option<&'a [Node]> {
        match self {
            Self::Rows(_) => None,
            Self::Values(nodes, _) => Some(nodes),
            Self::Count => Some(&[]),
        }
    }

    fn is_parallel(&self) -> bool {
        match self {
            Self::Rows(walked) | Self::Values(_, walked) => *walked == Walked::InParts,
            Self::Count => true,
        }
    }
}

/// What a query gives.
pub enum Output {
    /// Rows, and the expressions that compute over them what was asked for.
    Rows(Source, Vec<Node>),
    /// The number of rows, of which none was read.
    Count(u64),
}

/// What the executor is asked for. If the query has Python functions, these are all rows, whole, as
/// it is not known how many of them pass the functions.
pub fn request<'a>(spec: &'a Spec, projection: &Projection<'a>) -> Request<'a> {
    let is_free = spec.filters.is_empty();
    let (offset, limit) = if is_free { (spec.offset, spec.limit) } else { (0, u64::MAX) };
    Request {
        conditions: spec.all_conditions(),
        order: &spec.order,
        after: spec.after.as_ref().map(|after| (Vec::new(), after.key.clone())),
        offset,
        limit,
        reads: projection.reads().filter(|_| is_free),
        is_count: is_free && matches!(projection, Projection::Count),
        is_parallel: is_free && projection.is_parallel(),
        meter: spec.meter.clone(),
    }
}

/// The keys of the rows for which each function returns something true: at most `limit` of them,
/// after the first `offset`. `items` gives pairs of key and row.
///
/// # Errors
/// What reading a row or a function raises.
pub fn passed_keys(
    mut items: Bound<'_, PyIterator>,
    table_name: &str,
    filters: &[Py<PyAny>],
    (mut offset, limit): (u64, u64),
) -> PyResult<CoveredRows> {
    let mut passed = CoveredRows::default();
    // Checked before the next row is looked for, which may be far off.
    while (passed.len() as u64) < limit {
        let Some(item) = items.next() else { break };
        let item = item?.cast_into::<PyTuple>()?;
        let (key, row) = (item.get_item(0)?, item.get_item(1)?);
        let mut is_wanted = true;
        for filter in filters {
            is_wanted = filter.bind(items.py()).call1((&row,))?.is_truthy()?;
            if !is_wanted {
                break;
            }
        }
        if is_wanted && offset > 0 {
            offset -= 1;
        } else if is_wanted {
            let key = keys::key_of(table_name, &key)?;
            passed.push_key(&key.bytes, &key.spelling);
        }
    }
    Ok(passed)
}
