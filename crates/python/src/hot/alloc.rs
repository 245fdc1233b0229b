//! How is a `Record` or a `RecordList` made and freed?
//!
//! Handles come and go with each access (`view(buf).age`, `rec.address.city`), so that allocating
//! them is most of their price; and a million of them must not wake the garbage collector. PyO3 gives
//! each class the collector's header and frees behind a guard that counts acquisitions of the GIL; for
//! these two classes both are taken back before the first instance is made, and a few freed blocks
//! are kept to be used again. Invariants:
//!
//! 1. A kept block has the size of an object of its pool's type, and nothing in it is live.
//! 2. The content stands where PyO3 put it in the first instance, which `install` looked at; a
//!    type's layout does not change.
//! 3. No instance is older than the change of its type's flags; so all have no collector's header and
//!    came from the object allocator. A handle refers to its parents, its table and a buffer, never
//!    the other way round, so that without the collector no cycle is missed.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::{PyClass, PyTypeInfo};

use super::gil::{GilCell, GilValue};
use super::node::Node;
use crate::record::Record;
use crate::record_list::RecordList;

const KEPT_COUNT: usize = 64;

struct Kept {
    blocks: [*mut ffi::PyObject; KEPT_COUNT],
    count: usize,
}

// SAFETY: the blocks are memory that nobody else knows of, touched with the GIL held alone.
unsafe impl Send for Kept {}

#[derive(Clone, Copy)]
struct Layout {
    kind: *mut ffi::PyTypeObject,
    content_offset: usize,
}

// SAFETY: the type object lives as long as the process.
unsafe impl Send for Layout {}

/// The memory of one type's objects.
pub struct Pool {
    kept: GilCell<Kept>,
    layout: GilValue<Layout>,
}

impl Pool {
    const fn new() -> Self {
        let kept = Kept { blocks: [std::ptr::null_mut(); KEPT_COUNT], count: 0 };
        let layout = Layout { kind: std::ptr::null_mut(), content_offset: 0 };
        Self { kept: GilCell::new(kept), layout: GilValue::new(layout) }
    }
}

/// A class whose objects are nothing but a place in a row.
pub trait Handle: PyClass + PyTypeInfo {
    /// The handle at `node`.
    fn at(node: Node) -> Self;
    /// The memory of these handles.
    fn pool() -> &'static Pool;
    /// Where the content of an object stands.
    fn address(object: &Bound<'_, Self>) -> usize;
    /// A handle made the general way, to look at.
    ///
    /// # Errors
    /// `MemoryError`.
    fn sample(py: Python<'_>) -> PyResult<Bound<'_, Self>>;
}

impl Handle for Record {
    #[inline]
    fn at(node: Node) -> Self {
        Self { node }
    }

    #[inline]
    fn pool() -> &'static Pool {
        static POOL: Pool = Pool::new();
        &POOL
    }

    fn address(object: &Bound<'_, Self>) -> usize {
        std::ptr::from_ref(object.get()) as usize
    }

    fn sample(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { node: crate::bytes::sample_node(py) })
    }
}

impl Handle for RecordList {
    #[inline]
    fn at(node: Node) -> Self {
        Self { node }
    }

    #[inline]
    fn pool() -> &'static Pool {
        static POOL: Pool = Pool::new();
        &POOL
    }

    fn address(object: &Bound<'_, Self>) -> usize {
        std::ptr::from_ref(object.get()) as usize
    }

    fn sample(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { node: crate::bytes::sample_node(py) })
    }
}

/// A new handle at `node`.
///
/// # Errors
/// `MemoryError`.
#[inline(always)]
pub fn new_handle<T: Handle>(py: Python<'_>, node: Node) -> PyResult<Bound<'_, T>> {
    let pool = T::pool();
    let layout = pool.layout.get();
    let block = pool.kept.with(py, |kept| {
        kept.count = kept.count.checked_sub(1)?;
        kept.blocks.get(kept.count).copied()
    });
    // SAFETY: a block of the right size with nothing live in it (invariant 1), or a new one of the
    // type's size. Its content is written before anyone sees the object (invariant 2).
    unsafe {
        let block = if let Some(block) = block {
            block
        } else {
            let block = ffi::PyObject_Malloc((*layout.kind).tp_basicsize as usize).cast::<ffi::PyObject>();
            if block.is_null() {
                return Err(pyo3::exceptions::PyMemoryError::new_err(()));
            }
            block
        };
        ffi::PyObject_Init(block, layout.kind);
        block.cast::<u8>().add(layout.content_offset).cast::<T>().write(T::at(node));
        Ok(Bound::from_owned_ptr(py, block).cast_into_unchecked())
    }
}

/// `tp_dealloc` of a handle.
///
/// # Safety
/// CPython calls it with a `T` that nobody refers to, the GIL held.
unsafe extern "C" fn dealloc<T: Handle>(object: *mut ffi::PyObject) {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    let pool = T::pool();
    let layout = pool.layout.get();
    // SAFETY: the content of a live object (invariant 2), which nobody reads any more. Dropping it may
    // release other objects, even run their code, but cannot reach this one.
    unsafe { std::ptr::drop_in_place(object.cast::<u8>().add(layout.content_offset).cast::<T>()) };
    let is_kept = pool.kept.with(py, |kept| match kept.blocks.get_mut(kept.count) {
        Some(place) => {
            *place = object;
            kept.count += 1;
            true
        }
        None => false,
    });
    // SAFETY: from the object allocator (invariant 3). An instance of a heap type holds a reference
    // to its type.
    unsafe {
        if !is_kept {
            ffi::PyObject_Free(object.cast());
        }
        ffi::Py_DECREF(layout.kind.cast());
    }
}

/// Take the type out of the collector's care and set its slots, before there is an instance.
///
/// # Errors
/// `MemoryError`.
pub fn install<T: Handle>(py: Python<'_>) -> PyResult<()> {
    let kind = py.get_type::<T>().as_type_ptr();
    // SAFETY: a heap type of ours that has no instance and no subclass (it is final). Without the
    // flag the general allocator gives plain memory, which the plain free takes back.
    unsafe {
        (*kind).tp_flags &= !ffi::Py_TPFLAGS_HAVE_GC;
        (*kind).tp_traverse = None;
        (*kind).tp_clear = None;
        (*kind).tp_free = Some(ffi::PyObject_Free);
        (*kind).tp_dealloc = Some(dealloc::<T>);
        ffi::PyType_Modified(kind);
    }
    let sample = T::sample(py)?;
    let content_offset = T::address(&sample) - sample.as_ptr() as usize;
    T::pool().layout.set(Layout { kind, content_offset });
    Ok(())
}
