//! How is state shared between handles when the GIL is the lock?

use std::cell::{Cell, UnsafeCell};
use std::ops::Deref;
use std::ptr::NonNull;

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

/// A shared value whose count of owners is kept under the GIL: `Arc` without its atomic operations.
///
/// A row, its names and its gate are shared by each handle on them; with `Arc` the five atomic
/// operations of making and dropping one view were a quarter of its time.
pub struct GilRc<T> {
    inner: NonNull<Counted<T>>,
}

struct Counted<T> {
    count: Cell<usize>,
    value: T,
}

// SAFETY: counts are touched by `clone` and `drop` alone. Both happen with the GIL held: every owner is
// (part of) a Python object or lives on the stack of a call from Python, and what is moved into a
// closure that runs without the GIL (`py.detach`) is never one of these (the compiler cannot see that;
// the debug assertion in `drop` can).
unsafe impl<T: Send + Sync> Send for GilRc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for GilRc<T> {}

impl<T> GilRc<T> {
    /// A first owner of `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        let inner = Box::new(Counted { count: Cell::new(1), value });
        Self { inner: NonNull::from(Box::leak(inner)) }
    }

    /// How many owners there are.
    #[inline]
    pub fn owner_count(this: &Self) -> usize {
        this.counted().count.get()
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: freed by the last owner's drop alone, and `self` is an owner.
        unsafe { self.inner.as_ref() }
    }
}

impl<T> Deref for GilRc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for GilRc<T> {
    #[inline]
    fn clone(&self) -> Self {
        let count = &self.counted().count;
        // A wrap-around would need more owners than memory has room for.
        count.set(count.get() + 1);
        Self { inner: self.inner }
    }
}

impl<T> Drop for GilRc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: asks CPython whether this thread holds the GIL; callable at any time.
        debug_assert!(unsafe { pyo3::ffi::PyGILState_Check() } == 1, "a GilRc was dropped without the GIL");
        let count = &self.counted().count;
        if count.get() == 1 {
            // SAFETY: the last owner; made by `Box::leak` in `new`.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        } else {
            count.set(count.get() - 1);
        }
    }
}
