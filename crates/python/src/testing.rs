//! The module `pellucid._native._testing`: switches with which tests meet soon what takes a large
//! database or much time otherwise.
//!
//! No program needs one of them, and `pellucid` has no name of this module.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

/// Bytes of a log segment of databases that are opened from now on; 0 means the usual size.
static LOG_SEGMENT_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory in which those databases sort; 0 means the usual size.
static SORT_MEMORY: AtomicUsize = AtomicUsize::new(0);

/// Returns what tests chose with `limit_log`, 0 if nothing.
pub fn log_segment_size() -> usize {
    LOG_SEGMENT_SIZE.load(Ordering::Relaxed)
}

/// Returns what tests chose with `limit_sorts`, 0 if nothing.
pub fn sort_memory() -> usize {
    SORT_MEMORY.load(Ordering::Relaxed)
}

/// Adds the module to the native one.
///
/// # Errors
/// What Python raises for want of memory.
pub fn add_to(native: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = PyModule::new(native.py(), "_testing")?;
    for function in [
        wrap_pyfunction!(limit_log, &module)?,
        wrap_pyfunction!(limit_sorts, &module)?,
        wrap_pyfunction!(compress_all, &module)?,
        wrap_pyfunction!(rest_soon, &module)?,
    ] {
        module.add_function(function)?;
    }
    #[cfg(feature = "failpoints")]
    {
        module.add_function(wrap_pyfunction!(watch_steps, &module)?)?;
        module.add("STEP_NAMES", pellucid_store::STEP_NAMES)?;
    }
    native.add_submodule(&module)
}

/// Give databases that are opened from now on a log with segments of this many bytes, so that tests
/// can fill it quickly. 0 means the usual size.
#[pyfunction]
fn limit_log(segment_size: usize) {
    LOG_SEGMENT_SIZE.store(segment_size, Ordering::Relaxed);
}

/// Give databases that are opened from now on this many bytes of memory to sort rows or index
/// entries, so that tests can exceed it quickly. 0 means the usual size.
#[pyfunction]
fn limit_sorts(memory: usize) {
    SORT_MEMORY.store(memory, Ordering::Relaxed);
}

/// Make every table that this process creates a compressed one, and compress it from its first row
/// on, so that tests can read what other tests store.
#[pyfunction]
fn compress_all(on: bool) {
    pellucid_store::compress_all(on);
}

/// Let databases do at once, and beside any load, what they do by themselves when little is
/// written, so that tests meet it.
#[pyfunction]
fn rest_soon(on: bool) {
    pellucid_store::rest_soon(on);
}

/// Count the steps of the write path in a file that the crash campaign shares with this process,
/// and die or stop at the one that is chosen there. Only in a build for the campaign.
#[cfg(feature = "failpoints")]
#[pyfunction]
fn watch_steps(path: std::path::PathBuf) -> PyResult<()> {
    Ok(pellucid_store::watch_steps(&path)?)
}
