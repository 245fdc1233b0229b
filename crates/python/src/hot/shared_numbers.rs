//! Numbers in a Python buffer that other processes may change, as a mapped file has them.
//!
//! Invariant: a buffer keeps its memory where it is, and as large as it is, until it is released,
//! which only dropping it does. Within this process, all that writes there holds the GIL.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::buffer::PyBuffer;

/// Writable numbers side by side.
pub struct SharedNumbers(PyBuffer<f64>);

impl SharedNumbers {
    /// The numbers of a buffer. `None` if it cannot be written, or has gaps.
    pub fn new(buffer: PyBuffer<f64>) -> Option<Self> {
        (!buffer.readonly() && buffer.is_c_contiguous()).then_some(Self(buffer))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.item_count()
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the index is in the buffer, whose items are eight bytes, aligned (`PyBuffer`
        // compares both with the type) and side by side (`new`). It stays while `self` does, and
        // other processes store whole words as well.
        (index < self.count())
            .then(|| unsafe { AtomicU64::from_ptr(self.0.buf_ptr().cast::<u64>().add(index)) })
    }

    /// The number at a place; 0 beyond the end.
    pub fn get(&self, index: usize) -> f64 {
        self.word(index).map_or(0.0, |word| f64::from_bits(word.load(Ordering::Relaxed)))
    }

    /// Store a number; beyond the end, nothing.
    pub fn set(&self, index: usize, number: f64) {
        if let Some(word) = self.word(index) {
            word.store(number.to_bits(), Ordering::Relaxed);
        }
    }
}
