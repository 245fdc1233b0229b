//! Encode a long list of dicts with the same keys.
//!
//! Such a list does not fit the processor's caches, and a value of a dict lies behind three
//! pointers: list, dict, table, value. Waiting for them took a third of the time of `dumps` of
//! 100,000 small dicts, and opening and closing a container for each dict took most of the rest. So
//! the walk is three stages deep: heads and tables are prefetched some elements ahead; the values
//! of the next dicts are gathered and prefetched; and a dict with only simple values is written in
//! one call (`Encoder::flat`). This code does not read CPython's tables: it uses only their
//! addresses, and gets all else from `PyDict_Next`.
//!
//! Invariant: gathered values are borrowed. They are used or forgotten before anything runs that
//! could change a dict.
#![allow(unsafe_code)]

use pellucid_record::encode::Simple;
use pyo3::ffi;

use crate::counters;
use crate::hot::item::{Item, Object, simple};
use crate::hot::prefetch::ask_for;
use crate::values::encode::{Encoding, Outcome, SIGNAL_STEPS};
use crate::values::names::{Names, ShapeNames, is_same_name};

/// How far ahead the head of an element, the table of a dict, and its values are prefetched.
const HEADS_AHEAD: isize = 16;
const TABLES_AHEAD: isize = 8;
const VALUES_AHEAD: usize = 2;
/// Shorter lists are encoded one element at a time.
pub const LIST_COUNT_MIN: isize = 16;
/// How many values of a dict are gathered; larger dicts are encoded the general way.
const VALUE_COUNT_MAX: usize = 24;

/// The credit lost by a dict of other keys, measured in dicts that match, and the largest credit:
/// rare exceptions do no harm.
const CREDIT_LOST: i32 = 4;
const CREDIT_MAX: i32 = 64;

/// A dict of a known shape and its values, borrowed; null as `dict` means none.
#[derive(Clone, Copy)]
struct Gathered {
    dict: Object,
    shape: *const ShapeNames,
    values: [Object; VALUE_COUNT_MAX],
}

impl Gathered {
    const NOTHING: Self =
        Self { dict: std::ptr::null_mut(), shape: std::ptr::null(), values: [std::ptr::null_mut(); _] };
}

/// Prefetches the objects that elements some way after `index` of a list need.
///
/// # Safety
/// `list` is a live list, and the GIL is held.
#[inline(always)]
pub unsafe fn look_ahead(list: Object, index: ffi::Py_ssize_t) {
    // SAFETY: both elements lie inside the list at its current size, and it holds them; an exact
    // dict has the layout of one.
    unsafe {
        let size = ffi::PyList_GET_SIZE(list);
        if index + HEADS_AHEAD < size {
            ask_for(ffi::PyList_GET_ITEM(list, index + HEADS_AHEAD).cast());
        }
        if index + TABLES_AHEAD < size {
            let object = ffi::PyList_GET_ITEM(list, index + TABLES_AHEAD);
            if ffi::Py_TYPE(object) == &raw mut ffi::PyDict_Type {
                let table = (*object.cast::<ffi::PyDictObject>()).ma_keys.cast::<u8>();
                ask_for(table);
                ask_for(table.wrapping_add(64));
            }
        }
    }
}

impl Encoding<'_, '_> {
    /// Encodes the elements of a list while most are dicts of the same keys. Returns the index
    /// after the last element written: the end of the list, or the place where too many dicts
    /// differed.
    ///
    /// # Safety
    /// `list` is a live list, and the GIL is held.
    #[inline(never)]
    pub(super) unsafe fn dicts(&mut self, list: Object, depth: u32) -> Outcome<ffi::Py_ssize_t> {
        let mut ring = [Gathered::NOTHING; VALUES_AHEAD + 1];
        // The first dict may also be the first of its shape.
        let mut credit = 4 * CREDIT_LOST;
        let mut latest: *const ShapeNames = std::ptr::null();
        let (mut index, mut gathered) = (0, 0);
        // SAFETY: indexes are compared with the list's current size, and the list holds its
        // elements. Gathered values are forgotten whenever anything but `write_gathered` has run
        // (the invariant above).
        unsafe {
            while index < ffi::PyList_GET_SIZE(list) && credit >= 0 {
                look_ahead(list, index);
                while gathered <= index + VALUES_AHEAD as isize && gathered < ffi::PyList_GET_SIZE(list) {
                    let object = ffi::PyList_GET_ITEM(list, gathered);
                    if let Some(place) = ring.get_mut(gathered as usize % (VALUES_AHEAD + 1)) {
                        self.gather(object, place, &mut latest);
                    }
                    gathered += 1;
                }
                let object = ffi::PyList_GET_ITEM(list, index);
                let found = ring.get(index as usize % (VALUES_AHEAD + 1));
                let is_written = match found {
                    Some(found) if found.dict == object => self.write_gathered(found),
                    _ => false,
                };
                if is_written {
                    credit = CREDIT_MAX.min(credit + 1);
                } else {
                    credit -= CREDIT_LOST;
                    latest = std::ptr::null();
                    self.element(object, index as usize, depth)?;
                    // Python code may have run.
                    gathered = index + 1;
                }
                index += 1;
                if index % SIGNAL_STEPS as isize == 0 {
                    self.hear_signals()?;
                    // Python code may have run.
                    gathered = index;
                }
            }
        }
        Ok(index)
    }

    /// Gathers the values of `object` if it is a dict of the shape guessed from its first key and
    /// its size.
    #[inline(always)]
    unsafe fn gather(&self, object: Object, place: &mut Gathered, latest: &mut *const ShapeNames) {
        place.dict = std::ptr::null_mut();
        // SAFETY: live objects and an exact dict; no user code runs, since keys are compared as
        // exact str. A shape lives as long as its `Names`, which this encoding borrows.
        unsafe {
            if ffi::Py_TYPE(object) != &raw mut ffi::PyDict_Type {
                return;
            }
            let count = (*object.cast::<ffi::PyDictObject>()).ma_used as usize;
            let mut item = Item::before_first();
            if count > VALUE_COUNT_MAX || !item.advance(object) || ffi::PyUnicode_CheckExact(item.key) == 0 {
                return;
            }
            let is_of =
                |shape: &ShapeNames| shape.keys.first() == Some(&item.key) && shape.keys.len() == count;
            if !latest.as_ref().is_some_and(is_of) {
                let guess = self.names().guess(self.py, Names::guess_spot(item.key, count));
                *latest = guess.map_or(std::ptr::null(), std::ptr::from_ref);
            }
            let Some(shape) = latest.as_ref().filter(|shape| shape.keys.len() == count) else { return };
            let mut is_there = true;
            for (name, value) in shape.keys.iter().zip(&mut place.values) {
                let is_next = is_there
                    && (*name == item.key
                        || (ffi::PyUnicode_CheckExact(item.key) != 0 && is_same_name(*name, item.key)));
                if !is_next {
                    return;
                }
                *value = item.value;
                ask_for(item.value.cast());
                is_there = item.advance(object);
            }
            (place.dict, place.shape) = (object, shape);
        }
    }

    /// Writes a gathered dict. False means that nothing was written, and the general way must write
    /// it.
    #[inline(always)]
    unsafe fn write_gathered(&mut self, found: &Gathered) -> bool {
        // SAFETY: nothing has run since the dict was gathered that could have changed it, so its
        // values live.
        unsafe {
            let shape = &*found.shape;
            let value = |index: usize| -> Option<Simple<'_>> { simple(*found.values.get(index)?) };
            let (count, width_log2) = (shape.keys.len() as u32, shape.width_log2.get());
            let target = &mut self.target;
            let written = self.encoder.flat(count, width_log2, value, || target.usable_id(shape));
            let Some(width_log2) = written else { return false };
            shape.width_log2.set(width_log2);
            counters::container_encoded();
            true
        }
    }
}
