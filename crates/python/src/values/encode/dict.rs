//! Encode a dict as a shaped dict or as a keyed map.
//!
//! The shape is first guessed from the dict's first key and its size, and verified by comparing
//! addresses while the values are written. If the guess fails, the shape is looked up by all keys.
//! If there is none, it is made, provided that the table has seen such dicts before.
#![allow(unsafe_code)]

use pellucid_record::encode::Simple;
use pellucid_record::error::EncodeError;
use pellucid_record::layout::{ENVELOPE_SHAPE_COUNT_MAX, Kind};
use pellucid_record::shape::{Shape, ShapeDecision};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::counters;
use crate::hot::item::{Held, Item, Object, simple};
use crate::values::encode::{
    Encoding, Mark, OVERFLOW_SIZE_MIN, Outcome, PROVISIONAL_ID, Reason, Target, fail,
};
use crate::values::names::{Names, ShapeNames, is_same_name};
use crate::values::{equal, members};

/// Dicts with more items than this are not gathered.
const FEW: usize = 24;

/// The items of a dict in their order, borrowed.
struct Items {
    keys: [Object; FEW],
    values: [Object; FEW],
}

impl Default for Items {
    #[inline(always)]
    fn default() -> Self {
        Self { keys: [std::ptr::null_mut(); FEW], values: [std::ptr::null_mut(); FEW] }
    }
}

impl Items {
    /// Gathers the `count` items of a dict; false if a key is not an exact str.
    ///
    /// # Safety
    /// `dict` is a live exact dict.
    #[inline(always)]
    unsafe fn gather(&mut self, dict: Object, count: usize) -> bool {
        let mut item = Item::before_first();
        for (key, value) in self.keys.iter_mut().zip(&mut self.values).take(count) {
            // SAFETY: as promised by the caller; what the dict holds is live.
            unsafe {
                if !item.advance(dict) || ffi::PyUnicode_CheckExact(item.key) == 0 {
                    return false;
                }
            }
            (*key, *value) = (item.key, item.value);
        }
        true
    }

    /// Takes references to the items from `first` on.
    ///
    /// # Safety
    /// The items are live, and `count` of them were gathered.
    unsafe fn hold_from(&self, first: usize, count: usize) -> HeldItems<'_> {
        let part = first..count;
        let (keys, values) = (self.keys.get(part.clone()), self.values.get(part));
        let held = HeldItems { keys: keys.unwrap_or_default(), values: values.unwrap_or_default() };
        for object in held.keys.iter().chain(held.values) {
            // SAFETY: as promised by the caller; encodings run with the GIL held.
            unsafe { ffi::Py_INCREF(*object) };
        }
        held
    }
}

/// Strong references to gathered items.
struct HeldItems<'a> {
    keys: &'a [Object],
    values: &'a [Object],
}

impl Drop for HeldItems<'_> {
    fn drop(&mut self) {
        for object in self.keys.iter().chain(self.values) {
            // SAFETY: owned since `hold_from`.
            unsafe { ffi::Py_DECREF(*object) };
        }
    }
}

impl<'py> Encoding<'_, 'py> {
    #[inline(never)]
    pub(super) unsafe fn dict(&mut self, dict: Object, depth: u32) -> Outcome {
        Self::check_depth(depth)?;
        self.step()?;
        counters::container_encoded();
        // SAFETY: an exact dict, live during the call.
        unsafe {
            self.see(dict)?;
            self.dict_seen(dict, depth)
        }
    }

    /// As `dict`, for one that was noted and counted already.
    #[inline]
    unsafe fn dict_seen(&mut self, dict: Object, depth: u32) -> Outcome {
        // SAFETY: an exact dict, live during the call.
        unsafe {
            let count = (*dict.cast::<ffi::PyDictObject>()).ma_used as usize;
            if count == 0 {
                self.encoder.begin(Kind::Keyed, 0, 0)?;
                return Ok(self.encoder.end()?);
            }
            let mut first = Item::before_first();
            if !first.advance(dict) || ffi::PyUnicode_CheckExact(first.key) == 0 {
                return self.keyed(dict, count, depth);
            }
            let spot = Names::guess_spot(first.key, count);
            if count <= FEW && self.names.is_varied(self.py, spot) {
                return self.dict_of_items(dict, count, spot, depth);
            }
            let guess = self.names.guess(self.py, spot).filter(|shape| shape.keys.len() == count);
            // A shape lives as long as its `Names`, which this encoding borrows.
            if let Some(shape) = guess.map(std::ptr::from_ref) {
                if (*shape).is_simple.get() && self.flat(dict, first, &*shape) {
                    return Ok(());
                }
                let mark = self.mark();
                if let Some(id) = self.target.usable_id(&*shape)
                    && self.shaped(dict, first, &*shape, id, depth)?
                {
                    return Ok(());
                }
                self.roll_back_to(mark);
                self.names.note_wrong_guess(self.py, spot);
            }
            self.dict_by_keys(dict, count, spot, depth)
        }
    }

    /// Writes a nested dict of simple values in that shape, if its keys are the shape's: in one
    /// call, without a container that is opened and closed. False means that nothing was written.
    #[inline(always)]
    unsafe fn flat(&mut self, dict: Object, mut item: Item, shape: &ShapeNames) -> bool {
        let mut values = [std::ptr::null_mut(); FEW];
        let mut left = shape.keys.len();
        for (name, value) in shape.keys.iter().zip(&mut values) {
            // SAFETY: an exact dict, live during the call; no code runs.
            unsafe {
                let is_next = *name == item.key
                    || (ffi::PyUnicode_CheckExact(item.key) != 0 && is_same_name(*name, item.key));
                left -= 1;
                *value = item.value;
                if !is_next || (left > 0 && !item.advance(dict)) {
                    return false;
                }
            }
        }
        // SAFETY: nothing has run since the values were gathered, so the dict holds them.
        let value = |index: usize| unsafe { simple(*values.get(index)?) };
        let (count, target) = (shape.keys.len() as u32, &mut self.target);
        let written = self.encoder.flat(count, shape.width_log2.get(), value, || target.usable_id(shape));
        shape.is_simple.set(written.is_some());
        if let Some(width_log2) = written {
            shape.width_log2.set(width_log2);
        }
        written.is_some()
    }

    /// As `dict`, for dicts of several shapes that share their first key and their size: the items
    /// are gathered and the key list is looked up before any byte is written. Half of the guesses
    /// were wrong for such dicts, and a wrong guess that was half written took longer.
    #[inline(never)]
    unsafe fn dict_of_items(&mut self, dict: Object, count: usize, spot: usize, depth: u32) -> Outcome {
        let mut items = Items::default();
        // SAFETY: an exact dict, live during the call.
        unsafe {
            if !items.gather(dict, count) {
                return self.keyed(dict, count, depth);
            }
            let keys = items.keys.get(..count).unwrap_or_default();
            let is_same = |shape: &&ShapeNames| {
                shape.keys.len() == count
                    && shape.keys.iter().zip(keys).all(|(one, two)| is_same_name(*one, *two))
            };
            // Keys that a parser made are other objects than the interned names.
            let by_characters = || self.names.guess(self.py, spot).filter(is_same);
            if let Some(shape) = self.names.by_keys(self.py, keys).or_else(by_characters)
                && let Some(id) = self.target.usable_id(shape)
            {
                return self.shaped_of_items(dict, &items, shape, id, depth);
            }
            self.dict_by_keys(dict, count, spot, depth)
        }
    }

    /// Writes the gathered items of a dict as a shape with the same keys.
    unsafe fn shaped_of_items(
        &mut self,
        dict: Object,
        items: &Items,
        shape: &ShapeNames,
        id: u32,
        depth: u32,
    ) -> Outcome {
        let count = shape.keys.len();
        self.encoder.begin_as_wide(Kind::Shaped, count as u32, id, shape.width_log2.get())?;
        let values = items.values.get(..count).unwrap_or_default();
        // SAFETY: the dict holds its items until code runs. Simple values run none; from the first
        // other value on, the encoding holds all items.
        unsafe {
            let simple_count = values.iter().take_while(|value| self.plain(**value)).count();
            if simple_count < count {
                let held = items.hold_from(simple_count, count);
                self.members(items, simple_count, count, depth)?;
                drop(held);
                // The record has the dict as it was. If user code has changed its size meanwhile,
                // that is an error, as with Python's own iterators.
                let count_now = (*dict.cast::<ffi::PyDictObject>()).ma_used as usize;
                if count_now != count {
                    let announced = count as u32;
                    return Err(EncodeError::CountMismatch { announced, pushed: count_now }.into());
                }
            }
        }
        self.encoder.end()?;
        shape.width_log2.set(self.encoder.last_width_log2());
        Ok(())
    }

    /// Writes the values of gathered items from `first` on; the caller holds them.
    unsafe fn members(&mut self, items: &Items, first: usize, count: usize, depth: u32) -> Outcome {
        for (key, value) in items.keys.iter().zip(&items.values).take(count).skip(first) {
            // SAFETY: both are held.
            unsafe {
                if !self.plain(*value) {
                    self.value(*value, depth + 1).or_else(|failure| self.at_key(failure, *key))?;
                }
            }
        }
        Ok(())
    }

    /// The current sizes of the lists beside the bytes.
    #[inline]
    fn mark(&self) -> Mark {
        let used = if let Target::Envelope { used, .. } = &self.target { used.len() } else { 0 };
        Mark { used, seen: self.seen.count(), pending: self.pending.len(), overflow: self.overflow.len() }
    }

    /// Removes what was added to the lists since, because its bytes were abandoned: an envelope
    /// must not name shapes that it does not use, and a database must not keep large values without
    /// a reference.
    #[cold]
    pub(super) fn roll_back_to(&mut self, mark: Mark) {
        self.seen.truncate(mark.seen);
        self.pending.truncate(mark.pending);
        self.overflow.truncate(mark.overflow);
        if let Target::Envelope { used, .. } = &mut self.target {
            used.truncate(mark.used);
        }
    }

    /// Writes the dict in that shape if its keys are the shape's; otherwise leaves no byte behind.
    /// `item` is the first item of the dict: a call of `PyDict_Next` takes 3 ns, so none is
    /// repeated, and none is made only to learn that the dict has ended.
    unsafe fn shaped(
        &mut self,
        dict: Object,
        mut item: Item,
        shape: &ShapeNames,
        id: u32,
        depth: u32,
    ) -> Outcome<bool> {
        let count = shape.keys.len() as u32;
        self.encoder.begin_as_wide(Kind::Shaped, count, id, shape.width_log2.get())?;
        let mut names = shape.keys.iter();
        let mut is_simple = depth > 0 && shape.keys.len() <= FEW;
        // SAFETY: an exact dict, live during the call. PyDict_Next checks its position against the
        // dict as it is, so even if user code changes the dict, the position stays inside.
        unsafe {
            while let Some(name) = names.next() {
                let is_next = *name == item.key
                    || (ffi::PyUnicode_CheckExact(item.key) != 0 && is_same_name(*name, item.key));
                if !is_next {
                    self.encoder.roll_back();
                    return Ok(false);
                }
                is_simple &= self.member(item.key, item.value, depth)?;
                if !names.as_slice().is_empty() && !item.advance(dict) {
                    self.encoder.roll_back();
                    return Ok(false);
                }
            }
        }
        self.encoder.end()?;
        shape.width_log2.set(self.encoder.last_width_log2());
        shape.is_simple.set(is_simple);
        Ok(true)
    }

    /// Writes the value of a key, and holds both while user code may run. Whether it is `plain`.
    #[inline]
    unsafe fn member(&mut self, key: Object, value: Object, depth: u32) -> Outcome<bool> {
        // SAFETY: both are live: the dict holds them until code runs, and then `Held` does.
        unsafe {
            if self.plain(value) {
                return Ok(true);
            }
            let (key, value) = (Held::new(key), Held::new(value));
            self.value(value.0, depth + 1).or_else(|failure| self.at_key(failure, key.0))?;
            Ok(false)
        }
    }

    /// Writes a value whose encoding cannot fail, runs no code and reaches no other object; false
    /// for any other.
    #[inline(always)]
    pub(super) unsafe fn plain(&mut self, object: Object) -> bool {
        // SAFETY: a live object.
        match unsafe { simple(object) } {
            Some(Simple::Str(text)) if text.len() >= OVERFLOW_SIZE_MIN => return false,
            Some(Simple::Str(text)) => self.encoder.str(text),
            Some(Simple::Int(value)) => self.encoder.int(value),
            Some(Simple::Float(value)) => self.encoder.float(value),
            Some(Simple::Bool(value)) => self.encoder.bool(value),
            Some(Simple::None) => self.encoder.none(),
            None => return false,
        }
        true
    }

    /// Looks up the dict's key list: first by the addresses of its keys, then by those of equal
    /// interned strings. If there is none, tries to admit the key list as a new shape.
    unsafe fn dict_by_keys(&mut self, dict: Object, count: usize, spot: usize, depth: u32) -> Outcome {
        let mut pointers = std::mem::take(&mut self.pointers);
        pointers.clear();
        let mut item = Item::before_first();
        // SAFETY: an exact dict; no user code runs here before its keys are held.
        unsafe {
            while item.advance(dict) {
                if ffi::PyUnicode_CheckExact(item.key) == 0 {
                    return self.keyed(dict, count, depth);
                }
                pointers.push(item.key);
            }
        }
        let names = self.names;
        let mut keys: Vec<Bound<'py, PyString>> = Vec::new();
        let mut found = names.by_keys(self.py, &pointers);
        if found.is_none() {
            for key in &mut pointers {
                // SAFETY: a str that the dict holds; interning gives an equal one to keep.
                unsafe {
                    let mut name = ffi::Py_NewRef(*key);
                    ffi::PyUnicode_InternInPlace(&raw mut name);
                    *key = name;
                    keys.push(Bound::from_owned_ptr(self.py, name).cast_into_unchecked());
                }
            }
            found = names.by_keys(self.py, &pointers);
        }
        let outcome = match found.and_then(|shape| Some((shape, self.target.usable_id(shape)?))) {
            Some((shape, id)) => {
                names.set_guess(self.py, spot, shape);
                // SAFETY: as promised by the caller.
                unsafe { self.shaped_or_keyed(dict, count, shape, id, depth) }
            }
            // The shape is an uncommitted one of another thread's transaction, or the envelope is
            // full. (The names of an envelope have loaded all of their shapes, so there is none
            // left to find.) SAFETY: as promised by the caller.
            None if keys.is_empty() || self.target.is_full() => unsafe { self.keyed(dict, count, depth) },
            // SAFETY: as promised by the caller.
            None => unsafe { self.dict_of_new_keys(dict, &keys, &pointers, depth) },
        };
        self.pointers = pointers;
        outcome
    }

    unsafe fn dict_of_new_keys(
        &mut self,
        dict: Object,
        keys: &[Bound<'py, PyString>],
        pointers: &[Object],
        depth: u32,
    ) -> Outcome {
        let waiting = self.pending.iter().position(|shape| *shape.keys == *pointers);
        let index = match waiting {
            Some(index) => Some(index),
            None => self.decide_shape(keys, depth == 0)?,
        };
        // SAFETY: as promised by the caller.
        unsafe {
            let Some(index) = index else { return self.keyed(dict, keys.len(), depth) };
            // The box does not move while `pending` grows.
            let shape: *const ShapeNames = match self.pending.get(index) {
                Some(shape) => &raw const **shape,
                None => return self.keyed(dict, keys.len(), depth),
            };
            self.shaped_or_keyed(dict, keys.len(), &*shape, (*shape).id, depth)
        }
    }

    unsafe fn shaped_or_keyed(
        &mut self,
        dict: Object,
        count: usize,
        shape: &ShapeNames,
        id: u32,
        depth: u32,
    ) -> Outcome {
        let mut first = Item::before_first();
        // SAFETY: an exact dict, live during the call.
        unsafe {
            let mark = self.mark();
            if first.advance(dict) && self.shaped(dict, first, shape, id, depth)? {
                return Ok(());
            }
            self.roll_back_to(mark);
            // Only a dict that was changed meanwhile by code of its own values gets here.
            self.keyed(dict, count, depth)
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "reads as its siblings do")]
    /// Decides about a key list that has no shape yet: the index of a pending shape, or None for a
    /// keyed map.
    fn decide_shape(&mut self, keys: &[Bound<'py, PyString>], is_root: bool) -> Outcome<Option<usize>> {
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            match key.to_str() {
                Ok(name) => names.push(name),
                // Names with lone surrogates cannot be in a shape.
                Err(_) => return Ok(None),
            }
        }
        let dictionary = self.names.source().dictionary();
        let sighting = match &self.target {
            Target::Table { table, .. } => table.decide_shape(self.py, &names, is_root),
            Target::Envelope { used, .. } => match dictionary.find(&names) {
                Some(id) => ShapeDecision::Known(id),
                None if used.len() < ENVELOPE_SHAPE_COUNT_MAX => ShapeDecision::Register,
                None => ShapeDecision::Keyed,
            },
            Target::Own => dictionary.find(&names).map_or(ShapeDecision::Register, ShapeDecision::Known),
        };
        let id = match sighting {
            ShapeDecision::Keyed => return Ok(None),
            ShapeDecision::Known(id) => {
                // Committed, but new to these names: from now on `by_keys` finds it.
                let _ = self.names.named(self.py, id);
                id
            }
            ShapeDecision::Register => PROVISIONAL_ID + self.pending.len() as u32,
        };
        let Ok(shape) = Shape::new(&names) else { return Ok(None) };
        let mut shape = ShapeNames::new(self.py, id, shape, 0);
        if !matches!(self.target, Target::Table { .. }) {
            shape = match self.admit_to_own_tables(shape) {
                Some(shape) => shape,
                None => return Ok(None),
            };
        }
        self.pending.push(shape);
        Ok(Some(self.pending.len() - 1))
    }

    /// Tables of our own admit every shape at once; the pending copy has the id to be written.
    fn admit_to_own_tables(&mut self, mut shape: Box<ShapeNames>) -> Option<Box<ShapeNames>> {
        let dictionary = self.names.source().dictionary();
        let id =
            if shape.id < PROVISIONAL_ID { shape.id } else { dictionary.push(shape.shape.clone()).ok()? };
        let known = self.names.named(self.py, id)?;
        shape.id = self.target.usable_id(known)?;
        Some(shape)
    }

    unsafe fn keyed(&mut self, dict: Object, count: usize, depth: u32) -> Outcome {
        // SAFETY: an exact dict; no code runs before all items are held.
        let keys = unsafe { self.keys_of(dict, count) };
        if keys.len() != count {
            // The code of a value before has changed the dict, whose items are fewer or more now.
            return Err(EncodeError::CountMismatch { announced: count as u32, pushed: keys.len() }.into());
        }
        if self.manner.is_exact || keys.iter().all(equal::is_plain) {
            // SAFETY: as promised by the caller.
            return unsafe { self.keyed_as_is(dict, &keys, depth) };
        }
        // SAFETY: a live dict; nothing has run since its keys were gathered.
        let dict = unsafe { Bound::from_borrowed_ptr(self.py, dict).cast_into_unchecked::<PyDict>() };
        let values: Vec<_> = dict.values().iter().collect();
        let plain = keys.iter().map(|key| Ok(equal::plain_key(key)?.unwrap_or_else(|| key.clone())));
        let plain = plain.collect::<PyResult<Vec<_>>>()?;
        if plain.iter().zip(&keys).all(|(plain, key)| plain.is(key)) {
            // SAFETY: as promised by the caller.
            return unsafe { self.keyed_as_is(dict.as_ptr(), &keys, depth) };
        }
        let made = PyDict::new(self.py);
        for (key, value) in plain.iter().zip(values) {
            if made.contains(key)? {
                return fail(Reason::Member(key.clone().unbind(), members::SAME));
            }
            made.set_item(key, value)?;
        }
        // SAFETY: an exact dict of our own, held during the call.
        unsafe {
            if plain.iter().all(PyAnyMethods::is_exact_instance_of::<PyString>) {
                return self.dict_seen(made.as_ptr(), depth);
            }
            self.keyed_as_is(made.as_ptr(), &plain, depth)
        }
    }

    /// The keys of a dict.
    ///
    /// # Safety
    /// `dict` is a live exact dict.
    unsafe fn keys_of(&self, dict: Object, count: usize) -> Vec<Bound<'py, PyAny>> {
        let mut keys = Vec::with_capacity(count);
        let mut item = Item::before_first();
        // SAFETY: as promised by the caller; what the dict holds is live.
        unsafe {
            while item.advance(dict) {
                keys.push(Bound::from_borrowed_ptr(self.py, item.key));
            }
        }
        keys
    }

    /// Writes a dict as a keyed map, with its keys as they are.
    unsafe fn keyed_as_is(&mut self, dict: Object, keys: &[Bound<'py, PyAny>], depth: u32) -> Outcome {
        self.check_members(keys)?;
        self.encoder.begin(Kind::Keyed, keys.len() as u32 * 2, 0)?;
        let mut item = Item::before_first();
        // SAFETY: as in `shaped`; keys of other types may run user code, so both are held.
        unsafe {
            while item.advance(dict) {
                let (key, value) = (Held::new(item.key), Held::new(item.value));
                self.key_or_member(key.0, depth)?;
                self.value(value.0, depth + 1).or_else(|failure| self.at_key(failure, key.0))?;
            }
        }
        Ok(self.encoder.end()?)
    }
}
