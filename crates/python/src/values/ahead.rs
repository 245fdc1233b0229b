//! Prefetch the objects in a long list that the encoder will read next.
//!
//! The objects of a record that is a dict of dicts and lists lie scattered in memory: each object
//! behind a pointer, its table or array behind another one. Waiting for cache misses took more than
//! half of the time of loading a million records from a list. So every object of an element is
//! prefetched some elements before that element is encoded. First comes the object's head; some
//! elements later, when the head has arrived, its table or array; when that has arrived, the heads
//! of the objects in it. One queue of objects does all of this.
//!
//! Invariant: references in the queue are borrowed. If Python code may have run since the last step
//! (`callbacks.rs`), the queue is emptied before any of its objects is read.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::hot::callbacks;
use crate::hot::item::{Item, Object};
use crate::hot::prefetch::ask_for;

/// How many elements ahead heads are prefetched: enough for all levels of an element to arrive in
/// time.
const ELEMENTS_AHEAD: isize = 24;
/// How many elements are encoded between two prefetches of one object.
const ELEMENTS_WAITED: usize = 2;
/// How many elements of a nested list or items of a dict are prefetched: a larger one keeps the
/// memory busy by itself.
const PART_COUNT_MAX: isize = 32;
/// Elements with fewer dicts and lists than this on the counted levels are not worth the
/// prefetching.
const CONTAINER_COUNT_MIN: usize = 3;
const LEVELS_COUNTED: u32 = 2;
/// Objects that do not fit into the queue are not prefetched.
const QUEUE_SIZE: usize = 512;

/// Shorter lists are encoded without prefetching: a processor's cache mostly has their elements,
/// and an eighth of the time of a list of 100 nested dicts went into the queue.
pub const LIST_COUNT_MIN: isize = 512;

/// An object in the queue, whose head (or, with `for_parts`, table or array) is being prefetched.
#[derive(Clone, Copy)]
struct Waiting {
    object: Object,
    for_parts: bool,
    since: usize,
}

/// The queue of prefetches for one list.
pub struct Ahead {
    queue: [Waiting; QUEUE_SIZE],
    first: usize,
    end: usize,
    /// The index of the element to prefetch next.
    next: isize,
    steps: usize,
    epoch: u64,
}

impl Ahead {
    /// An empty queue.
    pub fn new(py: Python<'_>) -> Self {
        let nothing = Waiting { object: std::ptr::null_mut(), for_parts: false, since: 0 };
        Self {
            queue: [nothing; QUEUE_SIZE],
            first: 0,
            end: 0,
            next: 0,
            steps: 0,
            epoch: callbacks::epoch(py),
        }
    }

    /// Whether prefetching pays for elements like this one: those that hold a few dicts and lists.
    /// A flat element lies close together in memory, and the prefetching would take longer than the
    /// wait for it.
    ///
    /// # Safety
    /// `element` is a live object, and the GIL is held.
    pub unsafe fn is_worth_it(element: Object) -> bool {
        // SAFETY: as promised by the caller.
        unsafe { containers_in(element, LEVELS_COUNTED) >= CONTAINER_COUNT_MIN }
    }

    /// Prefetches more objects of the elements after `index`; the element at `index` is encoded
    /// next.
    ///
    /// # Safety
    /// `list` is a live list, the same in each call, and `callbacks` counts all Python code that
    /// ran since the last step.
    #[inline]
    pub unsafe fn step(&mut self, py: Python<'_>, list: Object, index: isize) {
        let epoch = callbacks::epoch(py);
        if self.epoch != epoch {
            self.epoch = epoch;
            self.first = self.end;
        }
        self.next = self.next.max(index + 1);
        self.steps += 1;
        // SAFETY: the list is live, and indexes are compared with its current size. Objects in the
        // queue live, since no code has run that could have freed them or taken them out of the
        // list.
        unsafe {
            let size = ffi::PyList_GET_SIZE(list);
            while self.next <= index + ELEMENTS_AHEAD && self.next < size {
                self.want(ffi::PyList_GET_ITEM(list, self.next));
                self.next += 1;
            }
            while self.first != self.end
                && let Some(waiting) = self.queue.get(self.first % QUEUE_SIZE).copied()
                && waiting.since + ELEMENTS_WAITED <= self.steps
            {
                self.first = self.first.wrapping_add(1);
                if waiting.for_parts {
                    self.parts_have_come(waiting.object);
                } else {
                    self.head_has_come(waiting.object);
                }
            }
        }
    }

    /// Prefetches the head of an object.
    #[inline(always)]
    fn want(&mut self, object: Object) {
        ask_for(object.cast());
        self.push(object, false);
    }

    #[inline(always)]
    fn push(&mut self, object: Object, for_parts: bool) {
        if self.end.wrapping_sub(self.first) < QUEUE_SIZE
            && let Some(place) = self.queue.get_mut(self.end % QUEUE_SIZE)
        {
            *place = Waiting { object, for_parts, since: self.steps };
            self.end = self.end.wrapping_add(1);
        }
    }

    /// # Safety
    /// A live object.
    #[inline(always)]
    unsafe fn head_has_come(&mut self, object: Object) {
        // SAFETY: a live object; an exact dict or list has the layout of one.
        unsafe {
            let kind = ffi::Py_TYPE(object);
            let parts = if kind == &raw mut ffi::PyDict_Type {
                (*object.cast::<ffi::PyDictObject>()).ma_keys.cast::<u8>()
            } else if kind == &raw mut ffi::PyList_Type {
                (*object.cast::<ffi::PyListObject>()).ob_item.cast::<u8>()
            } else {
                return;
            };
            ask_for(parts);
            ask_for(parts.wrapping_add(64));
            self.push(object, true);
        }
    }

    /// # Safety
    /// A live object.
    #[inline(always)]
    unsafe fn parts_have_come(&mut self, object: Object) {
        // SAFETY: a live dict or list, whose items are live; `PyDict_Next` runs no code.
        unsafe {
            if ffi::Py_TYPE(object) == &raw mut ffi::PyDict_Type {
                let mut item = Item::before_first();
                let mut count = 0;
                while count < PART_COUNT_MAX && item.advance(object) {
                    self.want(item.value);
                    count += 1;
                }
            } else if ffi::Py_TYPE(object) == &raw mut ffi::PyList_Type {
                for index in 0..ffi::PyList_GET_SIZE(object).min(PART_COUNT_MAX) {
                    self.want(ffi::PyList_GET_ITEM(object, index));
                }
            }
        }
    }
}

/// How many dicts and lists a dict or list holds, on this many levels.
///
/// # Safety
/// As for `is_worth_it`.
unsafe fn containers_in(object: Object, levels: u32) -> usize {
    let mut count = 0;
    // SAFETY: a live object of an exact type; the objects in it are live, and no code runs here.
    unsafe {
        let mut look_at = |part: Object| {
            let kind = ffi::Py_TYPE(part);
            if kind == &raw mut ffi::PyDict_Type || kind == &raw mut ffi::PyList_Type {
                count += 1 + if levels > 1 { containers_in(part, levels - 1) } else { 0 };
            }
        };
        if ffi::Py_TYPE(object) == &raw mut ffi::PyDict_Type {
            let mut item = Item::before_first();
            for _ in 0..PART_COUNT_MAX {
                if !item.advance(object) {
                    break;
                }
                look_at(item.value);
            }
        } else if ffi::Py_TYPE(object) == &raw mut ffi::PyList_Type {
            for index in 0..ffi::PyList_GET_SIZE(object).min(PART_COUNT_MAX) {
                look_at(ffi::PyList_GET_ITEM(object, index));
            }
        }
    }
    count
}

/// The prefetching of a loop over a value; it does nothing unless the value is a long list.
pub struct Walk<'a, 'py> {
    list: Option<(&'a Bound<'py, PyList>, Box<Ahead>)>,
    index: isize,
}

impl<'a, 'py> Walk<'a, 'py> {
    /// A walk over `values` from its first element.
    pub fn over(values: &'a Bound<'py, PyAny>) -> Self {
        let is_worth_it = |list: &&'a Bound<'py, PyList>| {
            // SAFETY: a live list that is not empty has a first element.
            list.len() as isize >= LIST_COUNT_MIN
                && unsafe { Ahead::is_worth_it(ffi::PyList_GET_ITEM(list.as_ptr(), 0)) }
        };
        let list = values.cast_exact::<PyList>().ok().filter(is_worth_it);
        Self { list: list.map(|list| (list, Box::new(Ahead::new(values.py())))), index: 0 }
    }

    /// Call this before each element is read.
    #[inline]
    pub fn step(&mut self) {
        if let Some((list, ahead)) = &mut self.list {
            // SAFETY: a live list; all code that runs Python code between elements calls
            // `callbacks` (the invariant above).
            unsafe { ahead.step(list.py(), list.as_ptr(), self.index) };
            self.index += 1;
        }
    }
}
