//! Encode Python objects into record bytes.
//!
//! Exact built-in types are read straight from their objects, and no user code runs for them. All
//! other types go to `scalars.rs` (dates, decimals ...) and from there to the hooks (dataclasses,
//! registered classes, pickle), where user code may run. Therefore the encoder holds its own
//! reference to each object while it encodes anything inside that is not an exact built-in, and
//! reads sizes again afterwards.
//!
//! The shape of a dict is guessed from its first key and its size, and the guess is verified by
//! comparing addresses while the values are written. That costs one comparison for each key;
//! looking up each key list in a hash table took a third of the time of all encoding.
#![allow(unsafe_code)]

mod dict;
mod sharing;

use pellucid_record::encode::Encoder;
use pellucid_record::error::EncodeError;
use pellucid_record::layout::{DEPTH_MAX, ENVELOPE_SHAPE_COUNT_MAX, Kind, SCALAR_HEAD_SIZE, tag};
use pellucid_record::shape::Shape;
use pellucid_store::BLOB_ADDRESS_REMAINDER;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::counters;
use crate::hot::callbacks;
use crate::hot::gil::GilCell;
use crate::hot::item::{Held, Object};
use crate::hot::text::{self, Utf8};
use crate::values::ahead::{self, Ahead};
use crate::values::hooks::PicklePolicy;
use crate::values::names::{Names, ShapeNames};
use crate::values::table_ref::Sightings;
use crate::values::{dicts, members, scalars};

pub use sharing::Manner;
use sharing::Seen;

/// In a database, strings, bytes and arrays of this size or more are stored outside of the record.
pub const OVERFLOW_SIZE_MIN: usize = 32 * 1024;

/// Ids from here on are provisional: for shapes that are not in the dictionary yet
/// (`Encoded::pending`).
pub const PROVISIONAL_ID: u32 = 0x80_0000;

/// Why a value cannot be encoded, and which part of it.
#[derive(Debug)]
pub struct Failure {
    /// The reason.
    pub reason: Reason,
    /// The keys and indexes that lead to the part, innermost first.
    pub path: Vec<Py<PyAny>>,
}

/// The reason why a value cannot be encoded.
#[derive(Debug)]
pub enum Reason {
    /// A type that the format cannot store.
    Unsupported(Py<PyAny>),
    /// An object that cannot be a key of a stored dict, or a member of a stored set, and why.
    Member(Py<PyAny>, &'static str),
    /// A container that contains itself.
    Cycle,
    /// An object that was met before in the same value, where that matters (`Manner`).
    Shared,
    /// Containers nest too deep, or contain themselves.
    TooDeep,
    /// A limit of the format.
    Encode(EncodeError),
    /// An exception from the value's own code, or `MemoryError`.
    Python(PyErr),
}

/// The result of encoding one object; the failure is boxed, since it is rare and large.
pub type Outcome<T = ()> = Result<T, Box<Failure>>;

/// A failure with an empty path.
#[cold]
pub fn fail<T>(reason: Reason) -> Outcome<T> {
    Err(Box::new(Failure { reason, path: Vec::new() }))
}

impl From<PyErr> for Box<Failure> {
    fn from(error: PyErr) -> Self {
        Box::new(Failure { reason: Reason::Python(error), path: Vec::new() })
    }
}

impl From<EncodeError> for Box<Failure> {
    fn from(error: EncodeError) -> Self {
        let reason = if error == EncodeError::TooDeep { Reason::TooDeep } else { Reason::Encode(error) };
        Box::new(Failure { reason, path: Vec::new() })
    }
}

/// Where the record will be stored.
pub enum Target<'a> {
    /// An envelope: shapes are admitted on first sight and numbered in order of use.
    Envelope {
        /// Unique for this envelope.
        number: u64,
        /// The shapes used so far; their index is their id in the envelope.
        used: Vec<*const ShapeNames>,
    },
    /// A detached record: shapes are admitted to its own tables on first sight.
    Own,
    /// A table of a database.
    Table {
        /// The table, which counts how often it has seen a key list.
        table: &'a dyn Sightings,
        /// The number of the running transaction, whose uncommitted shapes may be used; 0 outside
        /// of a transaction.
        transaction: u64,
        /// Whether it becomes a part of a stored record, and no record by itself.
        is_part: bool,
    },
}

impl Target<'_> {
    /// Whether no more shapes can be added.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Target::Envelope { used, .. } if used.len() >= ENVELOPE_SHAPE_COUNT_MAX)
    }

    /// The id under which this record may use the shape; None if it may not.
    #[inline]
    pub(super) fn usable_id(&mut self, shape: &ShapeNames) -> Option<u32> {
        match self {
            Target::Own => Some(shape.id),
            Target::Table { transaction, .. } => {
                let uncommitted_in = shape.uncommitted_in.get();
                (uncommitted_in == 0 || uncommitted_in == *transaction).then_some(shape.id)
            }
            Target::Envelope { number, used } => {
                let (owner, id) = shape.local.get();
                // `roll_back_to` may have removed the shape since, and another one may have its id.
                if owner == *number && used.get(id as usize).is_some_and(|one| std::ptr::eq(*one, shape)) {
                    return Some(id);
                }
                // A later envelope, made by user code or another thread during this encoding, has
                // put its own number there. That number stays, since the later envelope may not be
                // finished either.
                let is_taken = owner > *number;
                if is_taken && let Some(id) = used.iter().position(|one| std::ptr::eq(*one, shape)) {
                    return Some(id as u32);
                }
                if used.len() >= ENVELOPE_SHAPE_COUNT_MAX {
                    return None;
                }
                let id = used.len() as u32;
                used.push(shape);
                if !is_taken {
                    shape.local.set((*number, id));
                }
                Some(id)
            }
        }
    }
}

/// The state of one encoding.
pub struct Encoding<'a, 'py> {
    /// The interpreter.
    pub py: Python<'py>,
    /// The encoder that the bytes go to.
    pub encoder: Box<Encoder>,
    /// What to do with objects that only pickle can write.
    pub policy: &'a PicklePolicy,
    names: &'a Names,
    pub(super) target: Target<'a>,
    pending: Vec<Box<ShapeNames>>,
    overflow: Vec<Vec<u8>>,
    // Inside of a key of a dict or a member of a set: their bytes are compared, so no part of them
    // is stored outside of the record.
    is_member: bool,
    /// Whether this only tests how a key or member would be stored: the keys and members inside of
    /// it are not checked in turn.
    pub is_trial: bool,
    // Buffer for the addresses of a dict's keys.
    pointers: Vec<Object>,
    /// What is kept of objects beyond what the format holds.
    pub manner: Manner,
    // The objects met so far, where `manner` says that they matter.
    pub(super) seen: Seen,
    // How many stand-ins (see `stand_in`) are nested at the moment.
    stand_in_count: u32,
    // How many dicts and lists were begun: signals are looked for after each `SIGNAL_STEPS`.
    steps: u32,
}

/// Dicts and lists between two looks for signals: some milliseconds. A value of 60 lists, each of
/// which holds the one before twice, takes minutes before it is too large.
pub(super) const SIGNAL_STEPS: u32 = 1 << 14;

/// The sizes of the lists beside the bytes: shapes used, shapes pending, values stored apart.
#[derive(Clone, Copy)]
struct Mark {
    used: usize,
    seen: usize,
    pending: usize,
    overflow: usize,
}

/// The result of an encoding.
pub struct Encoded {
    /// The encoder, whose `bytes` are the record.
    pub encoder: Box<Encoder>,
    /// Shapes to be admitted; the record refers to them by `PROVISIONAL_ID` plus their index.
    pub pending: Vec<Box<ShapeNames>>,
    /// Values to be stored outside of the record, in the order of their references.
    pub overflow: Vec<Vec<u8>>,
    /// The shapes used, if this is an envelope.
    pub used: Vec<*const ShapeNames>,
}

/// Boxed: an encoder is handed on four times in each encoding.
static SPARE: GilCell<Vec<Box<Encoder>>> = GilCell::new(Vec::new());
// Allocating a new buffer for each large `dumps` cost a tenth of its time in page faults.
const SPARE_SIZE_MAX: usize = 16 << 20;

/// Gives an encoder back for the next encoding.
pub fn recycle(py: Python<'_>, mut encoder: Box<Encoder>) {
    encoder.clear();
    if encoder.capacity() <= SPARE_SIZE_MAX {
        SPARE.with(py, |spare| {
            if spare.len() < 4 {
                spare.push(encoder);
            }
        });
    }
}

/// The shapes that an encoding has used.
pub fn shapes_of(used: &[*const ShapeNames]) -> Vec<Shape> {
    // SAFETY: they are shapes of the `Names` that the encoding borrowed, whose boxes live as long
    // as the `Names`; the caller still holds it.
    used.iter().map(|shape| unsafe { (**shape).shape.clone() }).collect()
}

impl<'a, 'py> Encoding<'a, 'py> {
    /// A new encoding for `target`, with the shapes that `names` knows.
    pub fn new(
        py: Python<'py>,
        names: &'a Names,
        target: Target<'a>,
        policy: &'a PicklePolicy,
        manner: Manner,
    ) -> Self {
        let encoder = SPARE.with(py, Vec::pop).unwrap_or_default();
        Self {
            py,
            encoder,
            policy,
            names,
            target,
            pending: Vec::new(),
            overflow: Vec::new(),
            is_member: false,
            is_trial: false,
            pointers: Vec::new(),
            manner,
            seen: Seen::default(),
            stand_in_count: 0,
            steps: 0,
        }
    }

    /// A new encoding for a part that becomes a payload of this one.
    pub fn part<'b>(&self, policy: &'b PicklePolicy) -> Encoding<'b, 'py>
    where
        'a: 'b,
    {
        let target = Target::Envelope { number: 0, used: Vec::new() };
        Encoding::new(self.py, self.names, target, policy, Manner::COPIES)
    }

    /// Notes a mutable object; fails where it was met before and that matters.
    ///
    /// # Safety
    /// `object` is live.
    #[inline]
    pub unsafe fn see(&mut self, object: Object) -> Outcome {
        // SAFETY: as promised by the caller; an encoding runs with the GIL held.
        if self.manner.keeps_identity && !unsafe { self.seen.add(object) } {
            return fail(Reason::Shared);
        }
        Ok(())
    }

    /// As `see`, for an object of any class: nothing is noted of one that compares by its value.
    pub fn see_any(&mut self, object: &Bound<'_, PyAny>) -> Outcome {
        let object = object.as_ptr();
        // A tuple compares by its value, but what is in it may lead back to it.
        if self.seen.is_around(object) {
            return fail(Reason::Shared);
        }
        // SAFETY: a live object.
        unsafe { if sharing::is_mutable(object) { self.see(object) } else { Ok(()) } }
    }

    /// Removes everything written so far. From here on, parts may occur twice.
    pub fn start_over(&mut self) {
        self.roll_back_to(Mark { used: 0, seen: 0, pending: 0, overflow: 0 });
        self.encoder.clear();
        self.manner = self.manner.without_identity();
        self.stand_in_count = 0;
    }

    /// The result.
    pub fn finish(self) -> Encoded {
        let used = match self.target {
            Target::Envelope { used, .. } => used,
            Target::Own | Target::Table { .. } => Vec::new(),
        };
        Encoded { encoder: self.encoder, pending: self.pending, overflow: self.overflow, used }
    }

    /// The known shapes.
    #[inline]
    pub(super) fn names(&self) -> &'a Names {
        self.names
    }

    /// Counts a dict or list, and runs signal handlers now and then. The caller holds what it goes
    /// on with.
    #[inline]
    pub(super) fn step(&mut self) -> Outcome {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(SIGNAL_STEPS) { self.hear_signals() } else { Ok(()) }
    }

    /// Runs pending signal handlers.
    #[cold]
    pub(super) fn hear_signals(&self) -> Outcome {
        Ok(callbacks::check_signals(self.py)?)
    }

    /// Writes `object`; `depth` counts the containers around it.
    ///
    /// # Safety
    /// `object` is live, and stays so during the call.
    #[inline]
    pub unsafe fn value(&mut self, object: Object, depth: u32) -> Outcome {
        // SAFETY: each branch has checked the exact type that its accessor needs.
        unsafe {
            let kind = ffi::Py_TYPE(object);
            if kind == &raw mut ffi::PyUnicode_Type {
                return self.text(object, depth);
            }
            if kind == &raw mut ffi::PyLong_Type {
                return self.int(object);
            }
            if kind == &raw mut ffi::PyFloat_Type {
                self.encoder.float(ffi::PyFloat_AS_DOUBLE(object));
                return Ok(());
            }
            if kind == &raw mut ffi::PyDict_Type {
                return self.dict(object, depth);
            }
            if kind == &raw mut ffi::PyList_Type {
                return self.list(object, depth);
            }
            if kind == &raw mut ffi::PyBool_Type {
                self.encoder.bool(object == ffi::Py_True());
                return Ok(());
            }
            if object == ffi::Py_None() {
                self.encoder.none();
                return Ok(());
            }
            if kind == &raw mut ffi::PyTuple_Type {
                return self.tuple(object, depth);
            }
            if kind == &raw mut ffi::PySet_Type {
                return self.set(object, Kind::Set, depth);
            }
            if kind == &raw mut ffi::PyFrozenSet_Type {
                return self.set(object, Kind::FrozenSet, depth);
            }
            if kind == &raw mut ffi::PyBytes_Type {
                return self.payload(tag::BYTES, text::bytes_of(object), depth);
            }
            callbacks::code_may_run(self.py);
            let object = Bound::from_borrowed_ptr(self.py, object);
            scalars::encode(self, &object, depth)
        }
    }

    #[inline]
    unsafe fn text(&mut self, object: Object, depth: u32) -> Outcome {
        // SAFETY: `object` is a live str.
        match unsafe { text::utf8_of(self.py, object) }? {
            Utf8::Ascii(bytes) if bytes.len() < OVERFLOW_SIZE_MIN => {
                self.encoder.str(bytes);
                Ok(())
            }
            Utf8::Surrogates(bytes) => {
                // `utf8_of` has made and cleared an exception.
                callbacks::code_may_run(self.py);
                // SAFETY: an encoding gives an exact bytes object.
                let bytes = unsafe { text::bytes_of(bytes.as_ptr()) };
                self.payload(tag::STR_SURROGATES, bytes, depth)
            }
            other => self.payload(tag::STR, other.bytes(), depth),
        }
    }

    #[inline]
    unsafe fn int(&mut self, object: Object) -> Outcome {
        let mut overflow = 0;
        // SAFETY: an exact int; no code of the user's runs.
        let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow) };
        if overflow == 0 {
            self.encoder.int(value);
            return Ok(());
        }
        callbacks::code_may_run(self.py);
        // SAFETY: a live object.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        let bytes = scalars::bigint_bytes(&object)?;
        self.encoder.heap(tag::BIGINT, &bytes);
        Ok(())
    }

    /// Whether large bytes are stored outside of the record.
    fn may_overflow(&self, depth: u32) -> bool {
        !self.is_member && matches!(self.target, Target::Table { is_part, .. } if is_part || depth > 0)
    }

    /// The address, modulo 64, that the payload of an array with this much data will have in a
    /// database's file; None if it is not known.
    pub fn address_of(&self, data_size: usize, depth: u32) -> Option<usize> {
        let is_root = depth == 0 && matches!(self.target, Target::Table { is_part: false, .. });
        let offset = if is_root { Some(SCALAR_HEAD_SIZE) } else { self.may_overflow(depth).then_some(0) };
        offset.filter(|_| data_size >= OVERFLOW_SIZE_MIN).map(|offset| BLOB_ADDRESS_REMAINDER + offset)
    }

    /// Writes bytes under `tag`; in a database, large bytes are stored outside of the record.
    pub fn payload(&mut self, tag: u8, bytes: &[u8], depth: u32) -> Outcome {
        if self.may_overflow(depth) && bytes.len() >= OVERFLOW_SIZE_MIN {
            // `put/write.rs` replaces this number by the real id under the writer lock, since only
            // its holder can assign ids.
            let id = self.overflow.len() as u64;
            let mut reference = [0; 17];
            let (head, rest) = reference.split_at_mut(1);
            let (id_bytes, size_bytes) = rest.split_at_mut(8);
            head.copy_from_slice(&[tag]);
            id_bytes.copy_from_slice(&id.to_le_bytes());
            size_bytes.copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.encoder.heap(tag::OVERFLOW, &reference);
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes.len()).map_err(|_| EncodeError::NoMemory)?;
            copy.extend_from_slice(bytes);
            self.overflow.push(copy);
            return Ok(());
        }
        match tag {
            tag::STR => self.encoder.str(bytes),
            tag::BYTES => self.encoder.bytes_value(bytes),
            _ => self.encoder.heap(tag, bytes),
        }
        Ok(())
    }

    /// Writes an object in place of another one: the value of an Enum, the dict of a dataclass.
    /// User code chooses the stand-in, and could chain them for ever.
    pub fn stand_in(&mut self, object: &Bound<'py, PyAny>, depth: u32) -> Outcome {
        if self.stand_in_count >= 2 * DEPTH_MAX {
            return fail(Reason::TooDeep);
        }
        self.stand_in_count += 1;
        let outcome = self.bound_value(object, depth);
        self.stand_in_count -= 1;
        outcome
    }

    /// Writes `object`; the caller holds a reference to it.
    pub fn bound_value(&mut self, object: &Bound<'py, PyAny>, depth: u32) -> Outcome {
        // SAFETY: a live object.
        unsafe { self.value(object.as_ptr(), depth) }
    }

    fn check_depth(depth: u32) -> Outcome {
        if depth >= DEPTH_MAX { fail(Reason::TooDeep) } else { Ok(()) }
    }

    #[cold]
    unsafe fn at_key(&self, mut failure: Box<Failure>, key: Object) -> Outcome {
        // SAFETY: a live object.
        failure.path.push(unsafe { Bound::from_borrowed_ptr(self.py, key) }.unbind());
        Err(failure)
    }

    #[cold]
    fn at_index(&self, mut failure: Box<Failure>, index: usize) -> Outcome {
        failure.path.push(index.into_pyobject(self.py).map_err(PyErr::from)?.into_any().unbind());
        Err(failure)
    }

    #[inline(never)]
    unsafe fn list(&mut self, list: Object, depth: u32) -> Outcome {
        Self::check_depth(depth)?;
        self.step()?;
        counters::container_encoded();
        // SAFETY: an exact list, live during the call.
        unsafe {
            self.see(list)?;
            let count = ffi::PyList_GET_SIZE(list);
            self.encoder.begin(Kind::List, count as u32, 0)?;
            // The quick way does not look at which dicts it has seen.
            let is_long = !self.manner.keeps_identity
                && count >= dicts::LIST_COUNT_MIN
                && depth + 1 < DEPTH_MAX
                && ffi::Py_TYPE(ffi::PyList_GET_ITEM(list, 0)) == &raw mut ffi::PyDict_Type;
            let mut index = if is_long { self.dicts(list, depth)? } else { 0 };
            let is_worth_it = is_long
                && ffi::PyList_GET_SIZE(list) - index >= ahead::LIST_COUNT_MIN
                && Ahead::is_worth_it(ffi::PyList_GET_ITEM(list, index));
            let mut ahead = is_worth_it.then(|| Box::new(Ahead::new(self.py)));
            // The size is read again each time, since user code may have changed the list.
            while index < ffi::PyList_GET_SIZE(list) {
                match &mut ahead {
                    Some(ahead) => ahead.step(self.py, list, index),
                    None => dicts::look_ahead(list, index),
                }
                let object = ffi::PyList_GET_ITEM(list, index);
                self.element(object, index as usize, depth)?;
                index += 1;
            }
        }
        Ok(self.encoder.end()?)
    }

    #[inline]
    pub(super) unsafe fn element(&mut self, object: Object, index: usize, depth: u32) -> Outcome {
        // SAFETY: the object is live: its container holds it until code runs, and then `Held` does.
        unsafe {
            // Dicts are tested first, since most long lists hold dicts.
            let is_dict = ffi::Py_TYPE(object) == &raw mut ffi::PyDict_Type;
            if !is_dict && self.plain(object) {
                return Ok(());
            }
            let object = Held::new(object);
            if is_dict {
                return self.dict(object.0, depth + 1).or_else(|failure| self.at_index(failure, index));
            }
            self.value(object.0, depth + 1).or_else(|failure| self.at_index(failure, index))
        }
    }

    /// Writes a tuple.
    ///
    /// # Safety
    /// `tuple` is a live exact tuple.
    pub unsafe fn tuple(&mut self, tuple: Object, depth: u32) -> Outcome {
        Self::check_depth(depth)?;
        counters::container_encoded();
        // SAFETY: a tuple does not change.
        unsafe {
            let count = ffi::PyTuple_GET_SIZE(tuple);
            self.encoder.begin(Kind::Tuple, count as u32, 0)?;
            if self.manner.keeps_identity {
                self.seen.enter(tuple);
            }
            for index in 0..count {
                self.element(ffi::PyTuple_GET_ITEM(tuple, index), index as usize, depth)?;
            }
        }
        self.seen.leave();
        Ok(self.encoder.end()?)
    }

    unsafe fn set(&mut self, set: Object, kind: Kind, depth: u32) -> Outcome {
        Self::check_depth(depth)?;
        counters::container_encoded();
        if kind == Kind::Set {
            // SAFETY: a live set.
            unsafe { self.see(set) }?;
        }
        // The call makes an iterator, which may start the collector.
        callbacks::code_may_run(self.py);
        // SAFETY: a live set; iterating gives new references.
        let set = unsafe { Bound::from_borrowed_ptr(self.py, set) };
        let members: Vec<_> = set.try_iter()?.collect::<PyResult<_>>()?;
        self.check_members(&members)?;
        self.encoder.begin(kind, members.len() as u32, 0)?;
        if self.manner.keeps_identity {
            self.seen.enter(set.as_ptr());
        }
        for member in &members {
            // SAFETY: held by `members`.
            unsafe { self.key_or_member(member.as_ptr(), depth) }?;
        }
        self.seen.leave();
        Ok(self.encoder.end()?)
    }

    unsafe fn key_or_member(&mut self, object: Object, depth: u32) -> Outcome {
        let is_member = std::mem::replace(&mut self.is_member, true);
        // SAFETY: the caller holds the object.
        let outcome = unsafe { self.value(object, depth + 1) };
        self.is_member = is_member;
        // SAFETY: as above.
        outcome.or_else(|failure| unsafe { self.at_key(failure, object) })
    }

    fn check_members(&self, members: &[Bound<'py, PyAny>]) -> Outcome {
        if self.is_trial {
            return Ok(());
        }
        members::check(self.policy, self.manner, members).or_else(|(index, failure)| {
            match members.get(index) {
                // SAFETY: a live object.
                Some(member) => unsafe { self.at_key(failure, member.as_ptr()) },
                None => Err(failure),
            }
        })
    }
}
