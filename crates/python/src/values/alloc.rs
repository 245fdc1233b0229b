//! How is a `Record` or a `RecordList` made and freed?
//!
//! Handles come and go with each access (`view(buf).age`, `rec.address.city`), so that allocating
//! them is most of their price; and a million of them must not wake the garbage collector. PyO3 gives
//! each class the collector's header and frees behind a guard that counts acquisitions of the GIL; for
//! these two classes both are taken back before the first instance is made, and a few freed blocks
//! are kept to be used again.
//!
//! Handles on a buffer whose own type takes part in garbage collection (a memoryview, an mmap, a subclass of bytearray) are
//! the exception: such a buffer can hold a handle on itself. They are of a subclass that CPython's collector knows, of the
//! same name. It is told each reference once: the root handle tells the buffer, which the row holds; a handle below tells
//! its parent, and so keeps the root handle.
//!
//! Invariants:
//!
//! 1. A kept block has the size of an object of its pool's type, and nothing in it is live.
//! 2. The content stands where PyO3 put it in the first instance, which `install` looked at; a
//!    type's layout does not change.
//! 3. No instance is older than the change of its type's flags; so all instances of the class itself have no collector's
//!    header and came from the object allocator, and all of the subclass have one and came from the collector's.
//! 4. A row over a buffer that the collector knows has one root handle, which each handle below it keeps.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::{PyClass, PyTypeInfo};

use crate::hot::gil::{GilCell, GilValue};
use crate::values::node::Node;

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
    /// The subclass of those that the collector knows.
    tracked: *mut ffi::PyTypeObject,
    content_offset: usize,
}

// SAFETY: the type objects live as long as the process.
unsafe impl Send for Layout {}

/// The memory of one type's objects.
pub struct Pool {
    kept: GilCell<Kept>,
    layout: GilValue<Layout>,
}

impl Pool {
    /// The memory of a type that has none yet.
    pub const fn new() -> Self {
        let kept = Kept { blocks: [std::ptr::null_mut(); KEPT_COUNT], count: 0 };
        let none = std::ptr::null_mut();
        let layout = Layout { kind: none, tracked: none, content_offset: 0 };
        Self { kept: GilCell::new(kept), layout: GilValue::new(layout) }
    }
}

/// A class whose objects are nothing but a place in a row.
pub trait Handle: PyClass + PyTypeInfo {
    /// The name of the class, with that of its module.
    const FULL_NAME: &'static CStr;
    /// The handle at `node`.
    fn at(node: Node) -> Self;
    /// Where it is.
    fn node(&self) -> &Node;
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

/// A new handle at `node`.
///
/// # Errors
/// `MemoryError`.
#[inline(always)]
pub fn new_handle<T: Handle>(py: Python<'_>, node: Node) -> PyResult<Bound<'_, T>> {
    if node.row.is_tracked() {
        return new_tracked(py, node);
    }
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
        content_of::<T>(block, layout).write(T::at(node));
        Ok(Bound::from_owned_ptr(py, block).cast_into_unchecked())
    }
}

/// A new handle that the collector knows.
#[cold]
#[inline(never)]
fn new_tracked<T: Handle>(py: Python<'_>, node: Node) -> PyResult<Bound<'_, T>> {
    let layout = T::pool().layout.get();
    // SAFETY: the subclass has the layout of its base (invariant 2). The collector is told of the object when its content
    // is written, not before.
    unsafe {
        let object = ffi::PyObject_GC_New::<ffi::PyObject>(layout.tracked);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        content_of::<T>(object.as_ptr(), layout).write(T::at(node));
        ffi::PyObject_GC_Track(object.as_ptr().cast());
        Ok(object.cast_into_unchecked())
    }
}

/// Where the content of an object stands.
///
/// # Safety
/// `object` is of that layout.
unsafe fn content_of<T: Handle>(object: *mut ffi::PyObject, layout: Layout) -> *mut T {
    // SAFETY: invariant 2.
    unsafe { object.cast::<u8>().add(layout.content_offset).cast::<T>() }
}

/// `tp_traverse` of a handle that the collector knows.
///
/// # Safety
/// The collector calls it with a live object of the subclass, the GIL held.
unsafe extern "C" fn traverse<T: Handle>(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: called by the collector, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the content of a live object.
    let node = unsafe { &*content_of::<T>(object, T::pool().layout.get()) }.node();
    let held = match &node.parent {
        Some((parent, _)) => parent.bind(py).as_ptr(),
        None => node.row.exporter(py),
    };
    // SAFETY: the references that this object owns, by itself or as the one that stands for its row (invariant 4), and
    // that to its type. Visiting runs no Python code.
    unsafe {
        for object in [ffi::Py_TYPE(object).cast(), held] {
            if !object.is_null() {
                let status = visit(object, argument);
                if status != 0 {
                    return status;
                }
            }
        }
    }
    0
}

/// `tp_dealloc` of a handle that the collector knows.
///
/// # Safety
/// As for `dealloc`.
unsafe extern "C" fn dealloc_tracked<T: Handle>(object: *mut ffi::PyObject) {
    let layout = T::pool().layout.get();
    // SAFETY: a live object of the subclass (invariant 3), which nothing refers to; the collector forgets it before its
    // content goes, whose release may run Python code.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        std::ptr::drop_in_place(content_of::<T>(object, layout));
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(layout.tracked.cast());
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
    unsafe { std::ptr::drop_in_place(content_of::<T>(object, layout)) };
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
    // The sample is freed by what stands here.
    T::pool().layout.set(Layout { kind, tracked: std::ptr::null_mut(), content_offset });
    Ok(())
}

/// Make the subclass of handles that the collector knows, once all slots of the class are set, which it inherits.
///
/// # Errors
/// `MemoryError`.
pub fn install_tracked<T: Handle>(py: Python<'_>) -> PyResult<()> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_traverse, pfunc: traverse::<T> as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc_tracked::<T> as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: T::FULL_NAME.as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: flags as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let base = py.get_type::<T>();
    let kind = base.as_type_ptr();
    // SAFETY: a heap type of ours, which is open for a subclass for the time of this call. The spec is read during the call,
    // and sizes of 0 are those of the base.
    let tracked = unsafe {
        (*kind).tp_flags |= ffi::Py_TPFLAGS_BASETYPE;
        let tracked = ffi::PyType_FromSpecWithBases(&raw mut spec, base.as_ptr());
        (*kind).tp_flags &= !ffi::Py_TPFLAGS_BASETYPE;
        Bound::from_owned_ptr_or_err(py, tracked)?
    };
    let layout = T::pool().layout.get();
    // It lives as long as the process, as its base does.
    T::pool().layout.set(Layout { tracked: tracked.into_ptr().cast(), ..layout });
    Ok(())
}
