//! How does a dict become a shaped dict, or a keyed map?
//!
//! Its shape is guessed from its first key and its size, and verified by comparing addresses while the values are written;
//! then looked for by all its keys; then made, if dicts like it have been seen before.

use pellucid_record::encode::Simple;
use pellucid_record::layout::{ENVELOPE_SHAPE_COUNT_MAX, Kind};
use pellucid_record::shape::{Shape, Sighting};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{APART_SIZE_MIN, Encoding, Mark, Outcome, PROVISIONAL_ID, Target};
use crate::counters;
use crate::hot::item::{Held, Item, Object, simple};
use crate::hot::names::{Names, ShapeNames, is_same_name};

impl<'py> Encoding<'_, 'py> {
    #[inline(never)]
    pub(super) unsafe fn dict(&mut self, dict: Object, depth: u32) -> Outcome {
        Self::check_depth(depth)?;
        counters::container_encoded();
        // SAFETY: an exact dict, live during the call.
        unsafe {
            let count = (*dict.cast::<ffi::PyDictObject>()).ma_used as usize;
            let mut first = Item::before_first();
            if !first.advance(dict) {
                self.encoder.begin(Kind::Keyed, 0, 0)?;
                return Ok(self.encoder.end()?);
            }
            if ffi::PyUnicode_CheckExact(first.key) == 0 {
                return self.keyed(dict, count, depth);
            }
            let spot = Names::guess_spot(first.key, count);
            let guess = self.names.guess(self.py, spot).filter(|shape| shape.keys.len() == count);
            // A shape lives as long as its `Names`, which this encoding borrows.
            if let Some(shape) = guess.map(std::ptr::from_ref) {
                let mark = self.mark();
                if let Some(id) = self.target.usable_id(&*shape)
                    && self.shaped(dict, first, &*shape, id, depth)?
                {
                    return Ok(());
                }
                self.take_back(mark);
            }
            self.dict_by_keys(dict, count, spot, depth)
        }
    }

    /// What has been gathered so far beside the bytes.
    #[inline]
    fn mark(&self) -> Mark {
        let used = if let Target::Envelope { used, .. } = &self.target { used.len() } else { 0 };
        Mark { used, pending: self.pending.len(), apart: self.apart.len() }
    }

    /// Forgets what was gathered since, for bytes that were abandoned: an envelope must not name shapes
    /// that nothing in it has, nor a database keep large values that no record refers to.
    #[cold]
    fn take_back(&mut self, mark: Mark) {
        self.pending.truncate(mark.pending);
        self.apart.truncate(mark.apart);
        if let Target::Envelope { used, .. } = &mut self.target {
            used.truncate(mark.used);
        }
    }

    /// Writes the dict as that shape, if its keys are the shape's; otherwise no byte remains. `item` is
    /// the dict's first: a call of `PyDict_Next` is 3 ns, so none is made twice, nor one to be
    /// told that the dict has ended.
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
        // SAFETY: an exact dict, live during the call; PyDict_Next checks its position against the
        // dict as it is, so even a change by user code below cannot lead outside.
        unsafe {
            while let Some(name) = names.next() {
                let is_next = *name == item.key
                    || (ffi::PyUnicode_CheckExact(item.key) != 0 && is_same_name(*name, item.key));
                if !is_next {
                    self.encoder.abandon();
                    return Ok(false);
                }
                self.member(item.key, item.value, depth)?;
                if !names.as_slice().is_empty() && !item.advance(dict) {
                    self.encoder.abandon();
                    return Ok(false);
                }
            }
        }
        self.encoder.end()?;
        shape.width_log2.set(self.encoder.last_width_log2());
        Ok(true)
    }

    /// Writes the value of a key, holding both while user code may run.
    #[inline]
    unsafe fn member(&mut self, key: Object, value: Object, depth: u32) -> Outcome {
        // SAFETY: both are live: the dict holds them until code runs, and then `Held` does.
        unsafe {
            if self.plain(value) {
                return Ok(());
            }
            let (key, value) = (Held::new(key), Held::new(value));
            self.value(value.0, depth + 1).or_else(|failure| self.at_key(failure, key.0))
        }
    }

    /// Writes a value that cannot fail, runs no code and reaches no other object; false for any other.
    #[inline(always)]
    pub(super) unsafe fn plain(&mut self, object: Object) -> bool {
        // SAFETY: a live object.
        match unsafe { simple(object) } {
            Some(Simple::Str(text)) if text.len() >= APART_SIZE_MIN => return false,
            Some(Simple::Str(text)) => self.encoder.str(text),
            Some(Simple::Int(value)) => self.encoder.int(value),
            Some(Simple::Float(value)) => self.encoder.float(value),
            Some(Simple::Bool(value)) => self.encoder.bool(value),
            Some(Simple::None) => self.encoder.none(),
            None => return false,
        }
        true
    }

    /// Looks the dict's key list up: by the addresses of its keys as they are, then by those of the
    /// interned strings that equal them; or asks for its admission.
    unsafe fn dict_by_keys(&mut self, dict: Object, count: usize, spot: usize, depth: u32) -> Outcome {
        let mut pointers = std::mem::take(&mut self.pointers);
        pointers.clear();
        let mut item = Item::before_first();
        // SAFETY: an exact dict; nothing below runs user code before its keys are held.
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
            // A draft of another thread's transaction, or an envelope that is full.
            // SAFETY: as promised by the caller.
            None if keys.is_empty() => unsafe { self.keyed(dict, count, depth) },
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
            None => self.sight(keys, depth == 0)?,
        };
        // SAFETY: as promised by the caller.
        unsafe {
            let Some(index) = index else { return self.keyed(dict, keys.len(), depth) };
            // The box stays where it is while `pending` grows.
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
            self.take_back(mark);
            // Only a dict that its own values' code has changed meanwhile comes here.
            self.keyed(dict, count, depth)
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "reads as its siblings do")]
    /// What becomes of a key list that is no shape yet: the index of a pending shape, or None for
    /// a keyed map.
    fn sight(&mut self, keys: &[Bound<'py, PyString>], is_root: bool) -> Outcome<Option<usize>> {
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            match key.to_str() {
                Ok(name) => names.push(name),
                // A lone surrogate: no name of a shape.
                Err(_) => return Ok(None),
            }
        }
        let dictionary = self.names.source().dictionary();
        let sighting = match &self.target {
            Target::Table { table, .. } => table.sight(self.py, &names, is_root),
            Target::Envelope { used, .. } => match dictionary.find(&names) {
                Some(id) => Sighting::Known(id),
                None if used.len() < ENVELOPE_SHAPE_COUNT_MAX => Sighting::Admit,
                None => Sighting::Keyed,
            },
            Target::Own => dictionary.find(&names).map_or(Sighting::Admit, Sighting::Known),
        };
        let id = match sighting {
            Sighting::Keyed => return Ok(None),
            Sighting::Known(id) => {
                // Committed, but not met here yet: from now on `by_keys` finds it.
                let _ = self.names.named(self.py, id);
                id
            }
            Sighting::Admit => PROVISIONAL_ID + self.pending.len() as u32,
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

    /// Tables of our own take every shape at once; the pending copy carries the id to be written.
    fn admit_to_own_tables(&mut self, mut shape: Box<ShapeNames>) -> Option<Box<ShapeNames>> {
        let dictionary = self.names.source().dictionary();
        let id =
            if shape.id < PROVISIONAL_ID { shape.id } else { dictionary.push(shape.shape.clone()).ok()? };
        let known = self.names.named(self.py, id)?;
        shape.id = self.target.usable_id(known)?;
        Some(shape)
    }

    unsafe fn keyed(&mut self, dict: Object, count: usize, depth: u32) -> Outcome {
        // SAFETY: an exact dict; no code runs before all keys are held.
        let keys = unsafe {
            let mut keys = Vec::with_capacity(count);
            let mut item = Item::before_first();
            while item.advance(dict) {
                keys.push(Bound::from_borrowed_ptr(self.py, item.key));
            }
            keys
        };
        self.check_members(&keys)?;
        self.encoder.begin(Kind::Keyed, count as u32 * 2, 0)?;
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
