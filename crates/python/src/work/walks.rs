//! Runs native work over the rows of a table or a query.
//!
//! The work runs with the GIL released, over any kind of walk, and answers signals. Over a large
//! table in a file it runs on several threads (`threads.rs`).

use pellucid_query::expression::Node;
use pellucid_query::{Extremes, Fault, LookedUp, Scanned, Selection};
use pellucid_record::value::NoShapes;
use pellucid_store::OverflowReader;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;
use crate::signals::is_interrupted;
use crate::store_errors;
use crate::table::reading::Rows;
use crate::values::row_errors;
use crate::values::table_ref::TableRef;
pub use pellucid_query::work::{Parallel, Stop, Work, WorkResult};

/// Rows to compute over, and the selection of them that is wanted.
pub struct Source {
    /// The rows.
    pub rows: Rows,
    /// The selection; None: all rows.
    pub selection: Option<Selection>,
}

/// How the caller walks over the rows that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// One by one, in the thread that makes objects of them: as [`over`] does.
    ByOne,
    /// In parts, on several threads if there are many rows: as [`over_parts`] does.
    InParts,
}

/// A source of rows that can be asked again and again: a table, or a query.
pub trait Queried<'py> {
    /// The caller's hold of the GIL.
    fn py(&self) -> Python<'py>;

    /// The table of the rows.
    fn table_ref(&self) -> TableRef;

    /// The rows as they are now; None if the table does not exist.
    ///
    /// # Errors
    /// An error of looking for the rows.
    fn source(&self, walked: Walked) -> PyResult<Option<Source>>;

    /// A few of the rows, in their order, among which are those with the least or the greatest
    /// values of these expressions. None if these are not known.
    ///
    /// # Errors
    /// As `source`.
    fn source_of_extremes(&self, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>>;

    /// Rows of which only these expressions are read, and the expressions that give the same values
    /// over them: entries of an index may stand for the rows.
    ///
    /// # Errors
    /// As `source`.
    fn source_of(&self, reads: &[Node], walked: Walked) -> PyResult<Option<(Source, Vec<Node>)>> {
        Ok(self.source(walked)?.map(|source| (source, reads.to_vec())))
    }
}

/// Stops work for signals, as Ctrl-C. The thread that Python called checks for them.
pub const SIGNALS: Stop<'static> = Stop::Caller(&is_interrupted);

/// Runs `work` over rows, with the GIL released.
///
/// # Errors
/// What the store raises, `CorruptRecord`, and what a signal handler raises.
pub fn over<W: Work>(py: Python<'_>, table_ref: &TableRef, source: Source, work: W) -> PyResult<W::Result> {
    let Source { rows, mut selection } = source;
    let result = match rows {
        Rows::Pinned(mut scan) => {
            let snapshot = scan.snapshot().clone();
            callbacks::released(py, move || {
                let overflow_reader = snapshot.overflow_reader();
                work.run_over(&mut *scan, selection.as_mut(), &overflow_reader, SIGNALS)
            })
        }
        Rows::Listed(snapshot, mut rows) => callbacks::released(py, move || {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            work.run_over(&mut rows, selection.as_mut(), &snapshot.overflow_reader(), SIGNALS)
        }),
        Rows::Indexed(snapshot, mut rows) => callbacks::released(py, move || {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            work.run_over(&mut rows, selection.as_mut(), &snapshot.overflow_reader(), SIGNALS)
        }),
        Rows::Covered(mut rows, _) => {
            callbacks::released(py, move || work.run_over(&mut *rows, selection.as_mut(), &NoShapes, SIGNALS))
        }
        Rows::Remote(mut feed) => {
            let result = {
                let (rows, large, shapes) = feed.parts();
                callbacks::released(py, move || {
                    work.run_over(rows, selection.as_mut(), &OverflowReader { shapes, large }, SIGNALS)
                })
            };
            return result
                .map_err(|fault| feed.large.failed(py).unwrap_or_else(|| of_fault(py, table_ref, fault)));
        }
        Rows::IndexedInside(mut rows) => table_ref.in_running(py, |transaction| {
            let transaction = &*transaction;
            let overflow_reader = transaction.overflow_reader();
            let mut rows = LookedUp { rows: &mut *rows, reader: transaction };
            Ok(work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS))
        })?,
        Rows::Copied(mut rows) => table_ref.in_running(py, |transaction| {
            let overflow_reader = transaction.overflow_reader();
            Ok(work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS))
        })?,
        Rows::Inside(mut scan) => table_ref.in_running(py, |transaction| {
            let transaction = &*transaction;
            let overflow_reader = transaction.overflow_reader();
            let mut rows = Scanned { scan: &mut scan, reader: transaction };
            Ok(work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS))
        })?,
    };
    result.map_err(|fault| of_fault(py, table_ref, fault))
}

/// The exception for a walk that broke off.
pub fn of_fault(py: Python<'_>, table_ref: &TableRef, fault: Fault) -> PyErr {
    match fault {
        Fault::Store(error) => store_errors::of_store(py, error),
        Fault::Record(key, error) => row_errors::corrupt_key(py, &table_ref.name(py), &key, &error),
        Fault::Groups(error) => errors::raise(
            py,
            "TooManyGroups",
            format!(
                "{} groups and more of table {:?} take over {} MiB of memory; group by what has fewer values, or filter the rows \
                 first",
                error.count,
                table_ref.name(py),
                error.size_max >> 20
            ),
        ),
        Fault::Expression(what) => errors::value_error(what),
        Fault::Source(error) => match error.downcast::<PyErr>() {
            Ok(error) => *error,
            Err(error) => errors::internal(&error.to_string()),
        },
        Fault::Stopped => errors::stopped(py),
    }
}
