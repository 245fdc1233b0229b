//! Counters of the work done, which tests read to prove that records are read and changed in place.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

static CONTAINERS_ENCODED: AtomicU64 = AtomicU64::new(0);
static VALUES_ENCODED: AtomicU64 = AtomicU64::new(0);
static CONTAINERS_REBUILT: AtomicU64 = AtomicU64::new(0);
static FIELDS_DECODED: AtomicU64 = AtomicU64::new(0);
static OTHER_KEYS_DECODED: AtomicU64 = AtomicU64::new(0);
static SLOTS_OVERWRITTEN: AtomicU64 = AtomicU64::new(0);

fn add(counter: &AtomicU64, count: u64) {
    // Read and written with the GIL held, so no atomic addition is needed, whose 5 ns would show in
    // a field access.
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// Counts a dict, list, tuple or set that the encoder has walked.
#[inline]
pub fn container_encoded() {
    add(&CONTAINERS_ENCODED, 1);
}

/// Counts a start of the encoder for a value.
#[inline]
pub fn value_encoded() {
    add(&VALUES_ENCODED, 1);
}

/// Counts containers that a change has rebuilt from their slots, copying their content verbatim.
pub fn containers_rebuilt(count: u64) {
    add(&CONTAINERS_REBUILT, count);
}

/// Counts a field whose object an access has made.
#[inline]
pub fn field_decoded() {
    add(&FIELDS_DECODED, 1);
}

/// Counts a key of a dict that is not a string, in a plain value.
#[inline]
pub fn other_key_decoded() {
    add(&OTHER_KEYS_DECODED, 1);
}

/// Counts a change that has written one slot and nothing else.
pub fn slot_overwritten() {
    add(&SLOTS_OVERWRITTEN, 1);
}

/// Return counters of the work done in this process, for tests and for curious users.
///
/// `values_encoded` counts starts of the encoder, `containers_encoded` the dicts, lists, tuples and
/// sets that it walked. `containers_rebuilt` counts containers that a change rebuilt from their
/// slots. `fields_decoded` counts fields whose objects were made by the slow path or inside of a
/// handle. `other_keys_decoded` counts keys that are not strings, in dicts that were made whole.
/// `slots_overwritten` counts changes that wrote one slot and nothing else.
///
/// >>> import pellucid
/// >>> sorted(pellucid.counters())[:2]
/// ['containers_encoded', 'containers_rebuilt']
#[pyfunction]
pub fn counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("containers_encoded", CONTAINERS_ENCODED.load(Ordering::Relaxed))?;
    result.set_item("containers_rebuilt", CONTAINERS_REBUILT.load(Ordering::Relaxed))?;
    result.set_item("fields_decoded", FIELDS_DECODED.load(Ordering::Relaxed))?;
    result.set_item("other_keys_decoded", OTHER_KEYS_DECODED.load(Ordering::Relaxed))?;
    result.set_item("slots_overwritten", SLOTS_OVERWRITTEN.load(Ordering::Relaxed))?;
    result.set_item("values_encoded", VALUES_ENCODED.load(Ordering::Relaxed))?;
    Ok(result)
}
