//! How is state shared between handles when the GIL is the lock?

use std::cell::UnsafeCell;

use pyo3::Python;

/// A value that only the holder of the GIL touches.
///
/// The module declares that it uses the GIL (free-threaded builds switch it back on), so a
/// `Python<'py>` token is the lock.
#[derive(Default)]
pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: the content is reached through `with` alone, which wants a GIL token.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    /// A cell around `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Run `work` on the content.
    ///
    /// `work` must not call into Python, directly or by dropping a Python object: another thread,
    /// or a finalizer in this one, would reach the content a second time.
    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the token proves that this thread holds the GIL, and `work` neither releases it
        // nor comes back here (the condition above), so this is the only reference.
        let content = unsafe { &mut *self.0.get() };
        work(content)
    }
}

/// A copyable value that only the holder of the GIL touches: one load, one store.
#[derive(Default)]
pub struct GilValue<T: Copy>(std::cell::Cell<T>);

// SAFETY: as for `GilCell`; both accesses happen with the GIL held (each caller stands below a
// slot that CPython called, or below PyO3), and neither can be interrupted.
unsafe impl<T: Copy + Send> Sync for GilValue<T> {}

impl<T: Copy> GilValue<T> {
    /// A cell around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::Cell::new(value))
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> T {
        self.0.get()
    }

    /// Replace the value.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.set(value);
    }
}
