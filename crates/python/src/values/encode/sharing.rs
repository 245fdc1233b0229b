//! Notice objects that occur twice in one value, and containers that contain themselves.
//!
//! A record is a tree, and pickle keeps a graph. So where pickles are allowed, a value in which a
//! mutable object is met twice is pickled from its root (`bytes::encode_object`). Objects that
//! compare by their value, such as a Fraction or a member of an Enum, may be stored twice: a
//! program cannot tell the copies apart unless it asks for their identity.
#![allow(unsafe_code)]

use std::collections::HashSet;

use pyo3::ffi;

use crate::hot::item::{Held, Object};

/// More objects than this are found through a hash table.
const FEW: usize = 12;

/// What an encoding keeps of objects beyond what the format holds.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own, and most go together")]
pub struct Manner {
    /// Whether an instance of a class with fields is pickled, instead of stored as a dict.
    pub is_exact: bool,
    /// Whether a value with parts that occur twice is pickled from its root.
    pub keeps_identity: bool,
    /// Whether pickles are made without a memo, as by `pickle.Pickler.fast`.
    pub is_fast: bool,
    /// Whether each read calls the constructor, which makes again what is no field.
    pub runs_init: bool,
}

impl Manner {
    /// The manner of records: each occurrence of a part is a copy, and instances are dicts.
    pub const COPIES: Self =
        Self { is_exact: false, keeps_identity: false, is_fast: false, runs_init: false };

    /// The same, but each occurrence of a part is a copy.
    pub fn without_identity(self) -> Self {
        Self { keeps_identity: false, ..self }
    }
}

/// The objects met so far. Each is held, so that no other object gets its address meanwhile.
#[derive(Default)]
pub struct Seen {
    held: Vec<Held>,
    // Empty while there are few.
    addresses: HashSet<usize>,
    // The tuples and sets around the object that is being encoded; their callers hold them.
    around: Vec<usize>,
}

impl Seen {
    /// How many objects were met.
    #[inline]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Forgets all objects but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        if count == 0 {
            self.around.clear();
        }
        for held in self.held.drain(count.min(self.held.len())..) {
            self.addresses.remove(&(held.0 as usize));
        }
    }

    /// Notes that the members of a tuple or a set are encoded from here on.
    #[inline]
    pub fn enter(&mut self, object: Object) {
        self.around.push(object as usize);
    }

    /// Notes that all members of the last of them have been encoded.
    #[inline]
    pub fn leave(&mut self) {
        self.around.pop();
    }

    /// Whether an object is one of the tuples and sets that were entered.
    pub fn is_around(&self, object: Object) -> bool {
        self.around.contains(&(object as usize))
    }

    /// Adds an object; false if it was met before.
    ///
    /// # Safety
    /// `object` is live, and the GIL is held.
    pub unsafe fn add(&mut self, object: Object) -> bool {
        let is_new = if self.held.len() < FEW {
            self.held.iter().all(|held| held.0 != object)
        } else {
            if self.addresses.is_empty() {
                self.addresses.extend(self.held.iter().map(|held| held.0 as usize));
            }
            self.addresses.insert(object as usize)
        };
        if is_new {
            // SAFETY: as promised by the caller.
            self.held.push(unsafe { Held::new(object) });
        }
        is_new
    }
}

/// Whether a program can tell an object from a copy of it without asking for its identity: it is
/// mutable, or compares by its identity. Classes and functions are never copied.
///
/// # Safety
/// `object` is live, and the GIL is held.
pub unsafe fn is_mutable(object: Object) -> bool {
    // SAFETY: a live object has a live type.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let hash = (*kind).tp_hash.map(|hash| hash as usize);
        let by_identity = ffi::PyBaseObject_Type.tp_hash.map(|hash| hash as usize);
        hash.is_none()
            || hash == Some(ffi::PyObject_HashNotImplemented as *const () as usize)
            || (hash == by_identity
                && ffi::PyType_Check(object) == 0
                && kind != &raw mut ffi::PyCFunction_Type
                && kind != &raw mut ffi::PyFunction_Type)
    }
}
