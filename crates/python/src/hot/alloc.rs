//! How is a `Record` object made and freed?
//!
//! Views come and go with each access (`view(buf).age`, `rec.address.city`), so that allocating
//! them is most of their price. PyO3's general way makes the memory with the type's allocator and frees it
//! behind a guard that counts nested acquisitions of the GIL; here a few freed blocks are kept and
//! used again, and freeing is one function. Invariants:
//!
//! 1. A kept block has the size of a `Record` object and nothing in it is live.
//! 2. The content stands where PyO3 put it in the first instance, which `install` looked at; a
//!    type's layout does not change.

use pyo3::ffi;
use pyo3::prelude::*;

use super::gil::{GilCell, GilValue};
use super::node::Node;
use crate::record::Record;

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

static KEPT: GilCell<Kept> = GilCell::new(Kept { blocks: [std::ptr::null_mut(); KEPT_COUNT], count: 0 });
static LAYOUT: GilValue<Layout> = GilValue::new(Layout { kind: std::ptr::null_mut(), content_offset: 0 });

/// A new `Record` at `node`.
///
/// # Errors
/// `MemoryError`.
#[inline]
pub fn new_record(py: Python<'_>, node: Node) -> PyResult<Bound<'_, Record>> {
    let layout = LAYOUT.get();
    let block = KEPT.with(py, |kept| {
        kept.count = kept.count.checked_sub(1)?;
        kept.blocks.get(kept.count).copied()
    });
    let Some(block) = block else { return Bound::new(py, Record { node }) };
    // SAFETY: a block of the right size with nothing live in it (invariant 1). Its content is
    // written before anyone sees the object (invariant 2).
    unsafe {
        ffi::PyObject_Init(block, layout.kind);
        block.cast::<u8>().add(layout.content_offset).cast::<Record>().write(Record { node });
        Ok(Bound::from_owned_ptr(py, block).cast_into_unchecked())
    }
}

/// `tp_dealloc` of `Record`.
///
/// # Safety
/// CPython calls it with a `Record` that nobody refers to, the GIL held.
unsafe extern "C" fn record_dealloc(object: *mut ffi::PyObject) {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    let layout = LAYOUT.get();
    // SAFETY: the content of a live object (invariant 2), which nobody reads any more. Dropping it may
    // release other objects, even run their code, but cannot reach this one.
    unsafe { std::ptr::drop_in_place(object.cast::<u8>().add(layout.content_offset).cast::<Record>()) };
    let is_kept = KEPT.with(py, |kept| match kept.blocks.get_mut(kept.count) {
        Some(place) => {
            *place = object;
            kept.count += 1;
            true
        }
        None => false,
    });
    // SAFETY: the memory came from the object allocator, as all instances of a type without
    // garbage collection do. An instance of a heap type holds a reference to its type.
    unsafe {
        if !is_kept {
            ffi::PyObject_Free(object.cast());
        }
        ffi::Py_DECREF(layout.kind.cast());
    }
}

/// Look at an instance, and set the slot.
pub fn install(py: Python<'_>, instance: &Bound<'_, Record>) {
    let kind = py.get_type::<Record>().as_type_ptr();
    let content_offset = std::ptr::from_ref(instance.get()) as usize - instance.as_ptr() as usize;
    LAYOUT.set(Layout { kind, content_offset });
    // SAFETY: a heap type of ours; its one instance was made, and will be freed, by the same allocator.
    unsafe {
        debug_assert!((*kind).tp_basicsize as usize >= content_offset + size_of::<Record>());
        (*kind).tp_dealloc = Some(record_dealloc);
        ffi::PyType_Modified(kind);
    }
}
