//! State that handles share, with the GIL as its lock.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{PyClass, ffi};

/// A value that only the thread with the GIL reads and writes.
///
/// The module declares that it needs the GIL (free-threaded builds switch it back on), so a
/// `Python<'py>` token proves that the thread has the lock.
#[derive(Default)]
pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: the content is reached only through `with`, which takes a GIL token, and `peek`.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    /// A cell around `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Runs `work` on the content.
    ///
    /// `work` must not call into Python, directly or by dropping a Python object: another thread,
    /// or a finalizer in this one, could then reach the content a second time.
    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the token proves that this thread holds the GIL, and `work` neither releases it
        // nor comes back here (the condition above), so this is the only reference.
        let content = unsafe { &mut *self.0.get() };
        work(content)
    }
}

impl<T> GilCell<T> {
    /// The content for reading: `with` without a closure, since captures of a closure cost time on
    /// a hot path.
    ///
    /// # Safety
    /// No `with` of this cell may run while the reference lives, so the caller calls nothing
    /// meanwhile that could come back to this cell.
    #[inline]
    pub unsafe fn peek(&self, _py: Python<'_>) -> &T {
        // SAFETY: the token proves the GIL; the caller promises the rest.
        unsafe { &*self.0.get() }
    }
}

/// A copyable value that only the thread with the GIL reads and writes: one load, one store.
#[derive(Default)]
pub struct GilValue<T: Copy>(std::cell::Cell<T>);

// SAFETY: as for `GilCell`; both accesses happen with the GIL held (every caller runs below a slot
// that CPython called, or below PyO3), and no other code runs within them.
unsafe impl<T: Copy + Send> Sync for GilValue<T> {}

impl<T: Copy> GilValue<T> {
    /// A cell around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::Cell::new(value))
    }

    /// The current value.
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

/// A shared value whose reference count is guarded by the GIL: `Arc` without atomic operations.
///
/// All handles of a row share the row, its names and its flag. With `Arc`, the five atomic
/// operations of making and dropping one view were a quarter of its time.
pub struct GilRc<T: Shared> {
    inner: NonNull<Counted<T>>,
}

struct Counted<T> {
    count: Cell<usize>,
    value: T,
}

// SAFETY: only `clone` and `drop` change the count. Both run with the GIL held: every owner is
// (part of) a Python object or lives on the stack of a call from Python. None is ever moved into a
// closure that runs without the GIL (`py.detach`). The compiler cannot check that; the debug
// assertion in `drop` does.
unsafe impl<T: Shared + Send + Sync> Send for GilRc<T> {}
// SAFETY: as above.
unsafe impl<T: Shared + Send + Sync> Sync for GilRc<T> {}

/// Freed blocks of one type, kept for reuse without the general allocator: for values that are made
/// and dropped with each access. (A `malloc` and a `free` were an eighth of all instructions of
/// `view(buf).age`.)
///
/// Invariant: a kept block came from the global allocator with the layout of this type, and holds
/// no live value.
pub struct Spare(GilCell<SpareBlocks>);

const SPARE_COUNT: usize = 32;

struct SpareBlocks {
    blocks: [*mut u8; SPARE_COUNT],
    count: usize,
}

// SAFETY: no other code knows these blocks, and they are touched only with the GIL held.
unsafe impl Send for SpareBlocks {}

impl Spare {
    /// An empty list of blocks.
    pub const fn new() -> Self {
        Self(GilCell::new(SpareBlocks { blocks: [std::ptr::null_mut(); SPARE_COUNT], count: 0 }))
    }

    #[inline]
    fn take(&self, py: Python<'_>) -> *mut u8 {
        self.0.with(py, |spare| {
            let Some(count) = spare.count.checked_sub(1) else { return std::ptr::null_mut() };
            spare.count = count;
            spare.blocks.get(count).copied().unwrap_or(std::ptr::null_mut())
        })
    }

    /// Keeps the block if there is room, and says whether it did.
    #[inline]
    fn keep(&self, py: Python<'_>, block: *mut u8) -> bool {
        self.0.with(py, |spare| match spare.blocks.get_mut(spare.count) {
            Some(place) => {
                *place = block;
                spare.count += 1;
                true
            }
            None => false,
        })
    }
}

/// A type that a `GilRc` may share.
pub trait Shared: Sized {
    /// The blocks that are kept for values of this type; None for types whose values live long.
    #[inline]
    fn spare() -> Option<&'static Spare> {
        None
    }
}

impl<T: Copy> Shared for GilValue<T> {}

impl<T: Shared> GilRc<T> {
    /// The first owner of `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        Self::make(|| value)
    }

    /// Wraps the value that `make` returns, with a count of one. The block is allocated first, so
    /// that the value is written straight into it.
    #[inline(always)]
    pub fn make(make: impl FnOnce() -> T) -> Self {
        const { assert!(size_of::<Counted<T>>() > 0) };
        let layout = std::alloc::Layout::new::<Counted<T>>();
        // SAFETY: owners are made, as they are dropped, with the GIL held.
        let py = unsafe { Python::assume_attached() };
        let kept = T::spare().map_or(std::ptr::null_mut(), |spare| spare.take(py));
        let Some(inner) = NonNull::new(kept.cast::<Counted<T>>()).or_else(|| {
            // SAFETY: the layout's size is not 0 (above).
            NonNull::new(unsafe { std::alloc::alloc(layout) }.cast())
        }) else {
            std::alloc::handle_alloc_error(layout)
        };
        // SAFETY: memory of this layout that holds no live value.
        unsafe { inner.write(Counted { count: Cell::new(1), value: make() }) };
        Self { inner }
    }

    /// How many owners there are.
    #[inline]
    pub fn owner_count(this: &Self) -> usize {
        this.counted().count.get()
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: only the drop of the last owner frees the block, and `self` is an owner.
        unsafe { self.inner.as_ref() }
    }
}

impl<T: Shared> Deref for GilRc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: Shared> Clone for GilRc<T> {
    #[inline]
    fn clone(&self) -> Self {
        let count = &self.counted().count;
        // An overflow would need more owners than fit into memory.
        count.set(count.get() + 1);
        Self { inner: self.inner }
    }
}

impl<T: Shared> Drop for GilRc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: asks CPython whether this thread holds the GIL; may be called at any time.
        debug_assert!(unsafe { pyo3::ffi::PyGILState_Check() } == 1, "a GilRc was dropped without the GIL");
        let count = &self.counted().count;
        if count.get() == 1 {
            // SAFETY: this is the last owner, and the content is not used again.
            unsafe { self.inner.drop_in_place() };
            // SAFETY: the GIL is held (checked above).
            let py = unsafe { Python::assume_attached() };
            let block = self.inner.as_ptr().cast::<u8>();
            if !T::spare().is_some_and(|spare| spare.keep(py, block)) {
                // SAFETY: allocated in `make`, with this layout.
                unsafe { std::alloc::dealloc(block, std::alloc::Layout::new::<Counted<T>>()) };
            }
        } else {
            count.set(count.get() - 1);
        }
    }
}

/// Drops a value that holds PyO3 references (`Py`, `PyErr`) and releases them at once.
///
/// Below a raw slot, PyO3 would put them on a list of deferred decrements (see `Strong`).
#[cold]
pub fn release<T>(value: T) {
    Python::attach(|_py| drop(value));
}

/// Makes `error` the current exception.
#[cold]
pub fn restore(error: PyErr) {
    // PyO3 makes the exception from a class and its arguments and drops both: see `release`. It
    // panics if there is no memory, and a panic must not leave a slot.
    let restored = std::panic::AssertUnwindSafe(|| Python::attach(|py| error.restore(py)));
    if std::panic::catch_unwind(restored).is_err() {
        // SAFETY: the GIL is held, as everywhere below a slot.
        unsafe { ffi::PyErr_NoMemory() };
    }
}

/// An owned reference to a Python object that is released as soon as it is dropped.
///
/// PyO3's `Py` does that only inside of a call that came through PyO3. Below a raw slot it would
/// defer the decrement to a list, which costs more, keeps memory, and leaves reference counts too
/// high.
pub struct Strong<T> {
    object: NonNull<ffi::PyObject>,
    kind: PhantomData<T>,
}

// SAFETY: counts change only with the GIL held; owners move as those of `GilRc` do.
unsafe impl<T> Send for Strong<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Strong<T> {}

impl<T> Strong<T> {
    /// Takes a new reference to the object.
    #[inline]
    pub fn new(object: &Bound<'_, T>) -> Self {
        // SAFETY: a live object, the token in it proves the GIL; never null.
        let object = unsafe { NonNull::new_unchecked(ffi::Py_NewRef(object.as_ptr())) };
        Self { object, kind: PhantomData }
    }

    /// Takes another reference to the same object.
    #[inline]
    pub fn clone_ref(&self, _py: Python<'_>) -> Self {
        // SAFETY: a live object, since `self` owns a reference; the token proves the GIL.
        unsafe { ffi::Py_INCREF(self.object.as_ptr()) };
        Self { object: self.object, kind: PhantomData }
    }

    /// The object as a PyO3 reference.
    #[inline]
    pub fn bind<'a, 'py>(&'a self, py: Python<'py>) -> Borrowed<'a, 'py, T> {
        // SAFETY: a live object, since `self` owns a reference; it was a `T` when this was made.
        unsafe { Borrowed::from_ptr(py, self.object.as_ptr()).cast_unchecked() }
    }

    /// Hands this reference over to PyO3.
    #[inline]
    pub fn into_bound(self, py: Python<'_>) -> Bound<'_, T> {
        let object = self.object.as_ptr();
        std::mem::forget(self);
        // SAFETY: the reference that `self` owned; it was a `T` when this was made.
        unsafe { Bound::from_owned_ptr(py, object).cast_into_unchecked() }
    }

    /// The object's reference count, this reference included.
    #[inline]
    pub fn reference_count(&self) -> isize {
        // SAFETY: a live object, since `self` owns a reference.
        unsafe { ffi::Py_REFCNT(self.object.as_ptr()) as isize }
    }

    /// Whether the object has weak references. Their callbacks run when it is released.
    #[inline]
    pub fn has_weak_references(&self) -> bool {
        let object = self.object.as_ptr();
        // SAFETY: a live object, since `self` owns a reference. Where its class says so, it has the
        // first of its weak references, or null.
        unsafe {
            let place = (*ffi::Py_TYPE(object)).tp_weaklistoffset;
            let first: *mut *mut ffi::PyObject = object.cast::<u8>().offset(place).cast();
            place > 0 && !first.read().is_null()
        }
    }

    /// Whether there is no other reference, and no weak one: no other code reaches the object.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.reference_count() == 1 && !self.has_weak_references()
    }
}

impl<T: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync> Strong<T> {
    /// The Rust part of one of our objects.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: owners are used with the GIL held; the object lives as long as `self`.
        let py = unsafe { Python::assume_attached() };
        let content: *const T = self.bind(py).get();
        // SAFETY: the content of a live object whose class is frozen: there is no mutable reference
        // to it.
        unsafe { &*content }
    }
}

impl<T> Drop for Strong<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` owns the reference, and is dropped with the GIL held, as a `GilRc` is.
        unsafe { ffi::Py_DECREF(self.object.as_ptr()) };
    }
}

/// Refuses every interpreter of the process but the main one: this crate's statics (classes,
/// interned names, shapes) belong to that interpreter, and its GIL guards them.
///
/// # Errors
/// `ImportError` in a subinterpreter.
pub fn check_interpreter(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the token proves that this thread is attached to an interpreter.
    let is_main = unsafe { ffi::PyInterpreterState_Get() == ffi::PyInterpreterState_Main() };
    if is_main {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "pellucid cannot be imported in a subinterpreter; import it in the main interpreter, or use processes \
         (under mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
    ))
}
