//! What `repr` of a record shows in the place of long and large values.

use pellucid_record::layout::tag;
use pellucid_record::payload;
use pellucid_record::view::Slot;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// The largest number of characters, or of bytes, that are shown.
const SHOWN_SIZE_MAX: usize = 1000;
/// How many of a longer value are shown.
const BEGIN_SIZE: usize = 60;

/// Stands in `repr` for a value that would take too much room there.
#[pyclass(frozen, module = "pellucid", name = "Shortened")]
pub struct Shortened(String);

#[pymethods]
impl Shortened {
    fn __repr__(&self) -> &str {
        &self.0
    }
}

/// The stand-in for the value of a slot; None if the value is short enough.
///
/// # Errors
/// `MemoryError`.
pub fn of_slot<'py>(py: Python<'py>, slot: &Slot<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let text = match *slot {
        Slot::Str(characters) if characters.len() > SHOWN_SIZE_MAX => {
            // All bytes but those that continue a character.
            let count = characters.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
            if count <= SHOWN_SIZE_MAX {
                return Ok(None);
            }
            let begin: String =
                characters.utf8_chunks().flat_map(|chunk| chunk.valid().chars()).take(BEGIN_SIZE).collect();
            format!("<str, {count} characters: {}...>", PyString::new(py, &begin).repr()?)
        }
        Slot::Heap { tag: tag @ (tag::BYTES | tag::BYTEARRAY), payload, .. }
            if payload.len() > SHOWN_SIZE_MAX =>
        {
            let begin = PyBytes::new(py, payload.get(..BEGIN_SIZE).unwrap_or(payload));
            format!("<{}, {} bytes: {}...>", class_of(tag), payload.len(), begin.repr()?)
        }
        Slot::Heap { tag: tag::OVERFLOW, payload, .. } => {
            let Some(overflow) = payload::overflow(payload) else { return Ok(None) };
            format!("<{}, {} bytes, stored apart>", class_of(overflow.tag), overflow.size)
        }
        _ => return Ok(None),
    };
    of_text(py, text).map(Some)
}

/// A stand-in with this text.
///
/// # Errors
/// `MemoryError`.
pub fn of_text(py: Python<'_>, text: String) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, Shortened(text))?.into_any())
}

fn class_of(tag: u8) -> &'static str {
    match tag {
        tag::BYTES => "bytes",
        tag::BYTEARRAY => "bytearray",
        tag::NDARRAY => "numpy.ndarray",
        tag::PICKLE => "pickle",
        _ => "str",
    }
}
