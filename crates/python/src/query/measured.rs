//! Measures a query: iterates it once, as the caller would, with rows as objects or the dicts that
//! were selected. The executor counts meanwhile what the query reads.

use std::sync::Arc;
use std::time::Instant;

use pellucid_query::plan::AccessPath;
use pellucid_query::selection::Meter;
use pyo3::prelude::*;

use crate::errors;
use crate::query::handle::Query;
use crate::query::terminals;

/// The lines of the measurement: how many rows, entries or keys the query read; how many rows
/// passed the conditions; how many rows the query gave, and in what time. `access` is the access
/// path that it takes; None: a scan.
pub fn lines(query: &Bound<'_, Query>, access: Option<&AccessPath>) -> PyResult<Vec<String>> {
    let (py, spec) = (query.py(), &query.get().spec);
    let meter = Arc::new(Meter::default());
    let metered = query.get().with(py, |spec| {
        spec.meter = Some(Arc::clone(&meter));
        Ok(())
    })?;
    let start = Instant::now();
    let mut given = 0;
    for row in terminals::rows(&Bound::new(py, metered)?)?.try_iter()? {
        row?;
        given += 1;
    }
    let time = format!("in {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
    let (entries, rows, passed) = meter.counts();
    let met = match access {
        Some(AccessPath::KeyLookup(_)) => errors::counted(entries as usize, "key"),
        Some(AccessPath::OrderedWalk { .. }) => entry_text(entries.max(rows)),
        // Without entries the rows were read by a scan, because too many keys were met, or an entry
        // that does not say whether its row is wanted.
        Some(AccessPath::IndexRange(_) | AccessPath::Intersection(_) | AccessPath::Union(_))
            if entries > 0 || rows == 0 =>
        {
            entry_text(entries)
        }
        _ => errors::counted(rows as usize, "row"),
    };
    let is_plain = spec.order.is_empty() && spec.filters.is_empty();
    Ok(if is_plain && spec.offset == 0 && spec.limit == u64::MAX {
        vec![format!("met {met}: {given} passed, {time}")]
    } else {
        vec![format!("met {met}: {passed} passed"), format!("gave {given} in the end, {time}")]
    })
}

fn entry_text(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}
