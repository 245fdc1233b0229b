//! Make and free `Record` and `RecordList` handles.
//!
//! Each access makes and drops handles (`view(buf).age`, `rec.address.city`), so allocation is most
//! of their cost, and a million of them must not start the garbage collector. PyO3 gives each class
//! the collector's header, and frees instances behind a guard that counts acquisitions of the GIL.
//! `install` removes both from these two classes before the first instance is made. A few freed
//! blocks are kept for reuse.
//!
//! One kind of handle needs the collector: handles on a buffer whose own type takes part in garbage
//! collection (a memoryview, an mmap, a subclass of bytearray), since such a buffer can hold a
//! handle on itself. Those handles belong to a subclass of the same name that the collector tracks.
//! Each reference is visited once: the root handle visits the buffer, which the row holds; a nested
//! handle visits its parent, and so keeps the root handle alive.
//!
//! Invariants:
//!
//! 1. A kept block has the size of an object of its pool's type, and holds no live value.
//! 2. The content lies where PyO3 put it in the first instance, which `install` has measured; the
//!    layout of a type does not change.
//! 3. The flags of the type change before its first instance. So all instances of the class itself
//!    have no collector's header and come from the object allocator; all instances of the subclass
//!    have one and come from the collector's allocator.
//! 4. A row over a tracked buffer has one root handle, and every handle below it keeps that one
//!    alive.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, PyTypeInfo};

use crate::hot::gil::{GilCell, GilValue};

const KEPT_COUNT: usize = 64;

struct FreeBlocks {
    blocks: [*mut ffi::PyObject; KEPT_COUNT],
    count: usize,
}

// SAFETY: no other code knows these blocks, and they are touched only with the GIL held.
unsafe impl Send for FreeBlocks {}

#[derive(Clone, Copy)]
struct Layout {
    kind: *mut ffi::PyTypeObject,
    /// The subclass whose instances the collector tracks.
    tracked: *mut ffi::PyTypeObject,
    content_offset: usize,
    /// Where an object has the list of its weak references.
    weak_offset: usize,
}

// SAFETY: the type objects live as long as the process.
unsafe impl Send for Layout {}

/// The layout of one type's objects, and the freed blocks kept for them.
pub struct Pool {
    kept: GilCell<FreeBlocks>,
    layout: GilValue<Layout>,
}

impl Pool {
    /// An empty pool, for a type that `install` has not seen yet.
    pub const fn new() -> Self {
        let kept = FreeBlocks { blocks: [std::ptr::null_mut(); KEPT_COUNT], count: 0 };
        let none = std::ptr::null_mut();
        let layout = Layout { kind: none, tracked: none, content_offset: 0, weak_offset: 0 };
        Self { kept: GilCell::new(kept), layout: GilValue::new(layout) }
    }
}

/// A class whose objects `new_handle` makes.
pub trait Handle: PyClass<Frozen = True> + PyTypeInfo + Sync {
    /// The full name of the class, module included.
    const FULL_NAME: &'static CStr;
    /// Whether the collector tracks this handle.
    fn is_tracked(&self) -> bool;
    /// The object that a tracked handle keeps alive, borrowed; null if there is none.
    fn held(&self, py: Python<'_>) -> *mut ffi::PyObject;
    /// The pool of this class.
    fn pool() -> &'static Pool;
    /// A handle made by PyO3's own constructor, from which `install` reads the layout.
    ///
    /// # Errors
    /// `MemoryError`.
    fn sample(py: Python<'_>) -> PyResult<Bound<'_, Self>>;
}

/// A new object with this content.
///
/// # Errors
/// `MemoryError`.
#[inline(always)]
pub fn new_handle<T: Handle>(py: Python<'_>, handle: T) -> PyResult<Bound<'_, T>> {
    if handle.is_tracked() {
        return new_tracked(py, handle);
    }
    let pool = T::pool();
    let layout = pool.layout.get();
    let block = pool.kept.with(py, |kept| {
        kept.count = kept.count.checked_sub(1)?;
        kept.blocks.get(kept.count).copied()
    });
    // SAFETY: a kept block of the right size without a live value (invariant 1), or a new one of
    // the type's size. Its content is written before any other code sees the object (invariant 2).
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
        weak_list(block, layout).write(std::ptr::null_mut());
        content_of::<T>(block, layout).write(handle);
        Ok(Bound::from_owned_ptr(py, block).cast_into_unchecked())
    }
}

/// A new handle that the collector tracks.
#[cold]
#[inline(never)]
fn new_tracked<T: Handle>(py: Python<'_>, handle: T) -> PyResult<Bound<'_, T>> {
    let layout = T::pool().layout.get();
    // SAFETY: the subclass has the layout of its base (invariant 2). The collector tracks the
    // object only after its content is written.
    unsafe {
        let object = ffi::PyObject_GC_New::<ffi::PyObject>(layout.tracked);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        weak_list(object.as_ptr(), layout).write(std::ptr::null_mut());
        content_of::<T>(object.as_ptr(), layout).write(handle);
        ffi::PyObject_GC_Track(object.as_ptr().cast());
        Ok(object.cast_into_unchecked())
    }
}

/// The address of the content of an object.
///
/// # Safety
/// `object` has that layout.
unsafe fn content_of<T: Handle>(object: *mut ffi::PyObject, layout: Layout) -> *mut T {
    // SAFETY: invariant 2.
    unsafe { object.cast::<u8>().add(layout.content_offset).cast::<T>() }
}

/// The address of the list of weak references of an object.
///
/// # Safety
/// `object` has that layout.
#[inline(always)]
unsafe fn weak_list(object: *mut ffi::PyObject, layout: Layout) -> *mut *mut ffi::PyObject {
    // SAFETY: invariant 2.
    unsafe { object.cast::<u8>().add(layout.weak_offset).cast() }
}

/// Clears the weak references to an object that is freed, and calls their callbacks, which cannot
/// reach it any more.
///
/// # Safety
/// `object` has that layout and no references left; the GIL is held.
#[inline(always)]
unsafe fn clear_weak(object: *mut ffi::PyObject, layout: Layout) {
    // SAFETY: as promised by the caller.
    unsafe {
        if !(*weak_list(object, layout)).is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
    }
}

/// `tp_traverse` of a tracked handle.
///
/// # Safety
/// The collector calls it with a live object of the subclass and the GIL held.
unsafe extern "C" fn traverse<T: Handle>(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: called by the collector, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the content of a live object.
    let held = unsafe { &*content_of::<T>(object, T::pool().layout.get()) }.held(py);
    // SAFETY: the references that this object owns, itself or for its row (invariant 4), and the
    // one to its type. Visiting runs no Python code.
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

/// `tp_dealloc` of a tracked handle.
///
/// # Safety
/// As for `dealloc`.
unsafe extern "C" fn dealloc_tracked<T: Handle>(object: *mut ffi::PyObject) {
    let layout = T::pool().layout.get();
    // SAFETY: a live object of the subclass (invariant 3) without references to it. It is untracked
    // before its content is dropped, since the drop may run Python code.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        clear_weak(object, layout);
        std::ptr::drop_in_place(content_of::<T>(object, layout));
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(layout.tracked.cast());
    }
}

/// `tp_dealloc` of a handle.
///
/// # Safety
/// CPython calls it with a `T` that has no references left, and with the GIL held.
unsafe extern "C" fn dealloc<T: Handle>(object: *mut ffi::PyObject) {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    let pool = T::pool();
    let layout = pool.layout.get();
    // SAFETY: the content of a live object (invariant 2), which no code reads any more. Dropping it
    // may release other objects and even run their code, but that code cannot reach this object.
    unsafe {
        clear_weak(object, layout);
        std::ptr::drop_in_place(content_of::<T>(object, layout));
    }
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

/// Takes the type away from the collector and sets its slots, before it has any instance.
///
/// # Errors
/// `MemoryError`.
pub fn install<T: Handle>(py: Python<'_>) -> PyResult<()> {
    let kind = py.get_type::<T>().as_type_ptr();
    // SAFETY: a heap type of ours without instances and without subclasses (it is final). Without
    // the flag, the general allocator gives plain memory, and the plain free takes it back.
    unsafe {
        (*kind).tp_flags &= !ffi::Py_TPFLAGS_HAVE_GC;
        (*kind).tp_traverse = None;
        (*kind).tp_clear = None;
        (*kind).tp_free = Some(ffi::PyObject_Free);
        (*kind).tp_dealloc = Some(dealloc::<T>);
        ffi::PyType_Modified(kind);
    }
    let sample = T::sample(py)?;
    let content_offset = std::ptr::from_ref(sample.get()) as usize - sample.as_ptr() as usize;
    // SAFETY: PyO3 gives the class a list of weak references, at a place of its own in each object.
    let weak_offset = unsafe { (*kind).tp_weaklistoffset }.cast_unsigned();
    // Dropping the sample calls the new `dealloc`, which needs this layout.
    T::pool().layout.set(Layout { kind, tracked: std::ptr::null_mut(), content_offset, weak_offset });
    Ok(())
}

/// Makes the tracked subclass of the handles. It inherits the slots of the class, so all of them
/// must be set before.
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
    // SAFETY: a heap type of ours, open for subclasses during this call only. CPython reads the
    // spec during the call, and takes sizes of 0 from the base.
    let tracked = unsafe {
        (*kind).tp_flags |= ffi::Py_TPFLAGS_BASETYPE;
        let tracked = ffi::PyType_FromSpecWithBases(&raw mut spec, base.as_ptr());
        (*kind).tp_flags &= !ffi::Py_TPFLAGS_BASETYPE;
        Bound::from_owned_ptr_or_err(py, tracked)?
    };
    let layout = T::pool().layout.get();
    // The subclass lives as long as the process, like its base.
    T::pool().layout.set(Layout { tracked: tracked.into_ptr().cast(), ..layout });
    Ok(())
}
