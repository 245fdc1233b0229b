//! Decides how many threads work over a large table uses.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pellucid_query::exec::{Caller, threads};
use pellucid_query::walk::Divide;
use pellucid_query::work::PART_COUNT;
use pellucid_query::{LookedUp, Selection};
use pellucid_record::value::NoShapes;
use pellucid_store::StoreError;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;
use crate::hot::modules::class_has;
use crate::store_errors;
use crate::table::reading::Rows;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Parallel, SIGNALS, Source, of_fault, over};

/// More threads than this wait for memory, not for processors.
const THREAD_COUNT_MAX: usize = 16;
/// The count given to `set_threads`; 0: the number of processors for this process.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Sets the number of threads for a query or an aggregate over a large table. None, the default: as
/// many as there are processors for this process, 16 at most. Raises `ValueError` if it is less
/// than 1.
///
/// It holds for the whole process, from the next query on. Tables of fewer than 100,000 rows are
/// scanned by one thread, as are tables in memory and the changed tables of a running transaction.
/// Rows that an index finds are shared from 10,000 rows on.
///
/// >>> import pellucid
/// >>> pellucid.set_threads(1)
/// >>> pellucid.set_threads(None)
#[pyfunction]
#[pyo3(signature = (count))]
pub fn set_threads(count: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let wanted = match count {
        None => 0,
        Some(count) if !class_has(count, "__index__")? => {
            let kind = count.get_type();
            return Err(errors::type_error(format!(
                "set_threads() takes a count, an int, or None, not {}",
                kind.name()?
            )));
        }
        Some(count) if count.lt(1)? => {
            let message = format!("set_threads() takes a count from 1 on, or None, not {}", count.repr()?);
            return Err(errors::value_error(message));
        }
        // A number that is too large for a usize is above the maximum in any case.
        Some(count) => match count.extract::<usize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(count.py()) => THREAD_COUNT_MAX,
            count => count?.min(THREAD_COUNT_MAX),
        },
    };
    WANTED.store(wanted, Ordering::Relaxed);
    Ok(())
}

/// The number of threads that share many rows.
pub fn thread_count() -> usize {
    // The system is asked only once: it reads several files for the answer, which takes as long as
    // finding some rows by an index.
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    match WANTED.load(Ordering::Relaxed) {
        0 => *AVAILABLE
            .get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get).min(THREAD_COUNT_MAX)),
        count => count,
    }
}

/// The number of threads that work over these rows would use.
///
/// # Errors
/// What the store raises.
pub fn threads_for(py: Python<'_>, source: &mut Source) -> PyResult<usize> {
    fn count(rows: &impl Divide, selection: Option<&Selection>) -> Result<usize, StoreError> {
        Ok(threads::parts_of(rows, selection, (thread_count(), PART_COUNT))?.map_or(1, |(_, count)| count))
    }
    let selection = source.selection.as_ref();
    let count = match &mut source.rows {
        Rows::Pinned(scan) => count(&**scan, selection),
        Rows::Listed(snapshot, rows) => count(&LookedUp { rows: &mut **rows, reader: &*snapshot }, selection),
        Rows::Indexed(snapshot, rows) => {
            count(&LookedUp { rows: &mut **rows, reader: &*snapshot }, selection)
        }
        Rows::Covered(rows, _) => count(&**rows, selection),
        Rows::Copied(_) | Rows::Inside(_) | Rows::IndexedInside(_) | Rows::Remote(_) => Ok(1),
    };
    count.map_err(|error| store_errors::of_store(py, error))
}

/// How the executor runs queries: until a signal comes, on the wanted number of threads.
pub fn caller() -> Caller<'static> {
    Caller { stop: SIGNALS, thread_count: thread_count() }
}

/// Like [`over`], but on several threads if there are many rows.
///
/// # Errors
/// Those of `over`.
pub fn over_parts<W: Parallel>(
    py: Python<'_>,
    table_ref: &TableRef,
    source: Source,
    work: W,
) -> PyResult<W::Result> {
    let Source { rows, selection } = source;
    let on = (thread_count(), SIGNALS);
    let done = match rows {
        Rows::Pinned(mut scan) => {
            let snapshot = scan.snapshot().clone();
            callbacks::released(py, || {
                threads::over_rows(&mut *scan, selection, &snapshot.overflow_reader(), work, on)
            })
        }
        Rows::Listed(snapshot, mut rows) => callbacks::released(py, || {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            threads::over_rows(&mut rows, selection, &snapshot.overflow_reader(), work, on)
        }),
        Rows::Indexed(snapshot, mut rows) => callbacks::released(py, || {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            threads::over_rows(&mut rows, selection, &snapshot.overflow_reader(), work, on)
        }),
        Rows::Covered(mut rows, _) => {
            callbacks::released(py, || threads::over_rows(&mut *rows, selection, &NoShapes, work, on))
        }
        rows @ (Rows::Copied(_) | Rows::Inside(_) | Rows::IndexedInside(_) | Rows::Remote(_)) => {
            return over(py, table_ref, Source { rows, selection }, work);
        }
    };
    done.map_err(|fault| of_fault(py, table_ref, fault))
}
