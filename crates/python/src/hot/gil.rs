//! How is state shared between handles when the GIL is the lock?

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{PyClass, ffi};

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

impl<T> GilCell<T> {
    /// The content, for reading: `with` without a closure, whose captures a hot path pays for.
    ///
    /// # Safety
    /// No `with` of this cell runs while the reference lives, so nothing is called meanwhile that
    /// could come back here.
    #[inline]
    pub unsafe fn peek(&self, _py: Python<'_>) -> &T {
        // SAFETY: the token proves the GIL; the caller promises the rest.
        unsafe { &*self.0.get() }
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
pub struct GilRc<T: Shared> {
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
unsafe impl<T: Shared + Send + Sync> Send for GilRc<T> {}
// SAFETY: as above.
unsafe impl<T: Shared + Send + Sync> Sync for GilRc<T> {}

/// Freed blocks of one type that are kept to be used again, without the general allocator: for values that come and go with
/// each access. (A `malloc` and a `free` were an eighth of all instructions of `view(buf).age`.)
///
/// Invariant: a kept block came from the global allocator with the layout of this one type, and nothing in it is live.
pub struct Spare(GilCell<SpareBlocks>);

const SPARE_COUNT: usize = 32;

struct SpareBlocks {
    blocks: [*mut u8; SPARE_COUNT],
    count: usize,
}

// SAFETY: the blocks are memory that nobody else knows of, touched with the GIL held alone.
unsafe impl Send for SpareBlocks {}

impl Spare {
    /// No block yet.
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

    /// Whether the block was kept.
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

/// What a `GilRc` may share.
pub trait Shared: Sized {
    /// The memory that is kept for values of this type; none where they live long.
    #[inline]
    fn spare() -> Option<&'static Spare> {
        None
    }
}

impl<T: Copy> Shared for GilValue<T> {}

impl<T: Shared> GilRc<T> {
    /// A first owner of `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        Self::make(|| value)
    }

    /// A first owner of what `make` gives, which is written where it stays: the block is there before it.
    #[inline(always)]
    pub fn make(make: impl FnOnce() -> T) -> Self {
        const { assert!(size_of::<Counted<T>>() > 0) };
        let layout = std::alloc::Layout::new::<Counted<T>>();
        // SAFETY: owners are made with the GIL held, as they are dropped.
        let py = unsafe { Python::assume_attached() };
        let kept = T::spare().map_or(std::ptr::null_mut(), |spare| spare.take(py));
        let Some(inner) = NonNull::new(kept.cast::<Counted<T>>()).or_else(|| {
            // SAFETY: the layout's size is not 0 (above).
            NonNull::new(unsafe { std::alloc::alloc(layout) }.cast())
        }) else {
            std::alloc::handle_alloc_error(layout)
        };
        // SAFETY: memory of this layout in which nothing is live.
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
        // SAFETY: freed by the last owner's drop alone, and `self` is an owner.
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
        // A wrap-around would need more owners than memory has room for.
        count.set(count.get() + 1);
        Self { inner: self.inner }
    }
}

impl<T: Shared> Drop for GilRc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: asks CPython whether this thread holds the GIL; callable at any time.
        debug_assert!(unsafe { pyo3::ffi::PyGILState_Check() } == 1, "a GilRc was dropped without the GIL");
        let count = &self.counted().count;
        if count.get() == 1 {
            // SAFETY: the last owner, as with all below; the content is not looked at again.
            unsafe { self.inner.drop_in_place() };
            // SAFETY: the GIL is held, see above.
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

/// Drop what holds references of PyO3's kind (`Py`, `PyErr`), and release them at once.
///
/// Below a raw slot PyO3 would put them on a list for later (see `Strong`).
#[cold]
pub fn release<T>(value: T) {
    // As within any call that came through PyO3.
    Python::attach(|_py| drop(value));
}

/// Make `error` the current exception.
#[cold]
pub fn restore(error: PyErr) {
    // Making the exception out of a class and its arguments drops both: see `release`. PyO3 panics where
    // there is no memory for it, and a panic must not leave a slot.
    let restored = std::panic::AssertUnwindSafe(|| Python::attach(|py| error.restore(py)));
    if std::panic::catch_unwind(restored).is_err() {
        // SAFETY: the GIL is held, as everywhere below a slot.
        unsafe { ffi::PyErr_NoMemory() };
    }
}

/// An owned reference to a Python object that is released at once when it is dropped.
///
/// PyO3's `Py` releases at once only inside of a call that came through PyO3; below a raw slot it would
/// put the object on a list for later, which costs more, keeps memory, and leaves counts too high.
pub struct Strong<T> {
    object: NonNull<ffi::PyObject>,
    kind: PhantomData<T>,
}

// SAFETY: counts change with the GIL held alone; owners move as `GilRc`'s do.
unsafe impl<T> Send for Strong<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Strong<T> {}

impl<T> Strong<T> {
    /// A further reference to the object.
    #[inline]
    pub fn new(object: &Bound<'_, T>) -> Self {
        // SAFETY: a live object, the token in it proves the GIL; never null.
        let object = unsafe { NonNull::new_unchecked(ffi::Py_NewRef(object.as_ptr())) };
        Self { object, kind: PhantomData }
    }

    /// A further reference to the same object.
    #[inline]
    pub fn clone_ref(&self, _py: Python<'_>) -> Self {
        // SAFETY: a live object, since `self` owns a reference; the token proves the GIL.
        unsafe { ffi::Py_INCREF(self.object.as_ptr()) };
        Self { object: self.object, kind: PhantomData }
    }

    /// The object, for PyO3.
    #[inline]
    pub fn bind<'a, 'py>(&'a self, py: Python<'py>) -> Borrowed<'a, 'py, T> {
        // SAFETY: a live object, since `self` owns a reference; it was a `T` when it came.
        unsafe { Borrowed::from_ptr(py, self.object.as_ptr()).cast_unchecked() }
    }

    /// The object, for PyO3, with this reference.
    #[inline]
    pub fn into_bound(self, py: Python<'_>) -> Bound<'_, T> {
        let object = self.object.as_ptr();
        std::mem::forget(self);
        // SAFETY: the reference that was owned here; it was a `T` when it came.
        unsafe { Bound::from_owned_ptr(py, object).cast_into_unchecked() }
    }

    /// How many references to the object there are, this one included.
    #[inline]
    pub fn reference_count(&self) -> isize {
        // SAFETY: a live object, since `self` owns a reference.
        unsafe { ffi::Py_REFCNT(self.object.as_ptr()) as isize }
    }
}

impl<T: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync> Strong<T> {
    /// The Rust part of an object of ours.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: owners are used with the GIL held; the object lives as long as `self`.
        let py = unsafe { Python::assume_attached() };
        let content: *const T = self.bind(py).get();
        // SAFETY: the content of a live object whose class is frozen: nobody has it mutably.
        unsafe { &*content }
    }
}

impl<T> Drop for Strong<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: owned, and dropped with the GIL held, as a `GilRc` is.
        unsafe { ffi::Py_DECREF(self.object.as_ptr()) };
    }
}

/// Refuses every interpreter of the process but the first: what this crate keeps in statics (classes, interned names,
/// shapes) belongs to that one, and the lock that guards it is that one's.
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
