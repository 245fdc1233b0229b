//! The field names of shapes, as interned Python objects.
//!
//! Each dictionary of shapes (a database's, an envelope's) has one `Names` with its names as
//! interned str objects. So decoding makes no strings for keys, and a lookup by name compares
//! pointers. Invariants:
//!
//! 1. A `ShapeNames` owns references to its names, and lives as long as its `Names`. So an address
//!    compared with one of its names cannot have been reused.
//! 2. `serial` is unique in the process, and changes when ids are taken back (by an aborted
//!    transaction): every cache of shape ids stores the serial with them.
//! 3. Only the transaction that made an uncommitted shape writes it. The
//!    shape has that transaction's serial, since another transaction may begin before this module
//!    learns that the first one has ended.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use pellucid_record::json;
use pellucid_record::shape::{Dictionary, Shape, Shapes};
use pellucid_store::Store;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::hot::gil::{GilCell, GilValue, Shared};
use crate::hot::text;

/// Where the shapes of a `Names` are defined.
#[expect(clippy::large_enum_variant, reason = "there is one for each `Names`, and it is never moved")]
pub enum Source {
    /// Only these tables: an envelope's, or those of `dumps`.
    Own(Dictionary),
    /// A database: its dictionary as it was when opened, and the store that knows later shapes.
    Store(Arc<Store>, Arc<Dictionary>),
}

impl Source {
    /// The dictionary with the shapes.
    pub fn dictionary(&self) -> &Dictionary {
        match self {
            Source::Own(dictionary) => dictionary,
            Source::Store(_, dictionary) => dictionary,
        }
    }
}

/// One shape: its id, and its names as interned str objects.
pub struct ShapeNames {
    /// The id in the dictionary.
    pub id: u32,
    /// The names, owned, in slot order.
    pub keys: Box<[*mut ffi::PyObject]>,
    /// The same shape for the record crate; the dictionary does not have an uncommitted one yet.
    pub shape: Shape,
    /// The serial of the running transaction that made it; 0 once it is committed.
    pub uncommitted_in: GilValue<u64>,
    /// log2 of the slot width of the dict of this shape that was written last; the next one mostly
    /// has the same.
    pub width_log2: GilValue<u8>,
    /// Whether that dict was nested, small, and had simple values only; the next one mostly has.
    pub is_simple: GilValue<bool>,
    /// The number of an envelope, and the shape's id in it; valid only for the envelope of that
    /// number.
    pub local: GilValue<(u64, u32)>,
    /// The names as JSON; set when the first dict of this shape is written as JSON.
    pub json: OnceLock<Box<[json::Name]>>,
}

// SAFETY: the pointers are interned str objects that this struct owns; they are read, and finally
// released, with the GIL held (`Drop` takes it).
unsafe impl Send for ShapeNames {}
// SAFETY: as above; the cells are `Sync` for the reasons given at `GilValue`.
unsafe impl Sync for ShapeNames {}

impl ShapeNames {
    /// Interns the names of `shape`.
    ///
    /// Some versions of Python keep them for ever; a dictionary's size is limited, and so is this
    /// memory.
    pub fn new(py: Python<'_>, id: u32, shape: Shape, uncommitted_in: u64) -> Box<Self> {
        let keys = shape.names().iter().map(|name| PyString::intern(py, name).into_ptr()).collect();
        Box::new(Self {
            id,
            keys,
            shape,
            uncommitted_in: GilValue::new(uncommitted_in),
            width_log2: GilValue::new(0),
            is_simple: GilValue::new(false),
            local: GilValue::new((0, 0)),
            json: OnceLock::new(),
        })
    }
}

impl Drop for ShapeNames {
    fn drop(&mut self) {
        // When the interpreter has shut down, the names are not released: they end with the
        // process.
        Python::try_attach(|_py| {
            for key in &self.keys {
                // SAFETY: owned since `new`, released once, with the GIL held.
                unsafe { ffi::Py_DECREF(*key) };
            }
        });
    }
}

const GUESS_COUNT: usize = 512;
/// After this many wrong guesses, a spot counts as shared by several shapes.
const WRONG_GUESSES_MAX: u8 = 8;

/// The shapes seen so far; a box never moves once it is made (invariant 1).
struct ShapeCache {
    by_id: Vec<Option<Box<ShapeNames>>>,
    by_keys: HashMap<u64, Vec<u32>, BuildHasherDefault<Hashed>>,
    guesses: Vec<*const ShapeNames>,
    // How often the guess at each spot was wrong, up to `WRONG_GUESSES_MAX`.
    wrong_guesses: [u8; GUESS_COUNT],
    // Shapes taken back after an abort, by their keys: an encoder further up the stack may still
    // hold them. They are reused when the same transaction runs again, as is usual.
    withdrawn: HashMap<u64, Vec<Box<ShapeNames>>>,
}

impl ShapeCache {
    fn withdraw(&mut self, shape: Box<ShapeNames>) {
        self.withdrawn.entry(hash_keys(&shape.keys)).or_default().push(shape);
    }

    fn take_withdrawn(&mut self, hash: u64, shape: &ShapeNames) -> Option<Box<ShapeNames>> {
        let alike = self.withdrawn.get_mut(&hash)?;
        let index = alike.iter().position(|old| old.id == shape.id && old.keys == shape.keys)?;
        Some(alike.swap_remove(index))
    }
}

// SAFETY: `guesses` point into boxes owned by the same struct, which are Send themselves.
unsafe impl Send for ShapeCache {}

/// The names of one dictionary of shapes.
pub struct Names {
    serial: GilValue<u32>,
    source: Source,
    known: GilCell<ShapeCache>,
}

impl Shared for Names {}

static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);

impl Names {
    /// The names of the shapes that `source` defines.
    pub fn new(source: Source) -> Self {
        Self {
            serial: GilValue::new(NEXT_SERIAL.fetch_add(1, Ordering::Relaxed)),
            source,
            known: GilCell::new(ShapeCache {
                by_id: Vec::new(),
                by_keys: HashMap::default(),
                guesses: Vec::new(),
                wrong_guesses: [0; GUESS_COUNT],
                withdrawn: HashMap::new(),
            }),
        }
    }

    /// The number that identifies this dictionary in caches (invariant 2).
    #[inline]
    pub fn serial(&self) -> u32 {
        self.serial.get()
    }

    /// Where the shapes are defined.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The names of shape `id`; None if the dictionary has no such shape.
    pub fn named(&self, py: Python<'_>, id: u32) -> Option<&ShapeNames> {
        if let Some(shape) = self.met_as(py, id) {
            return Some(shape);
        }
        let shape = self.source.dictionary().shape(id).cloned().or_else(|| self.ask_store(id))?;
        Some(self.insert(py, ShapeNames::new(py, id, shape, 0)))
    }

    /// Asks the store for a shape that the dictionary lacks: another process may have added it, or
    /// this is a forked child, whose store has its own dictionary.
    #[cold]
    fn ask_store(&self, id: u32) -> Option<Shape> {
        let Source::Store(store, _) = &self.source else { return None };
        // A snapshot brings the store's dictionary up to date. If it fails, the id stays unknown,
        // and the reader reports that with the place.
        drop(store.snapshot().ok()?);
        store.dictionary().ok()?.shape(id).cloned()
    }

    /// The shape `id`, if this `Names` has loaded it.
    pub fn met_as(&self, py: Python<'_>, id: u32) -> Option<&ShapeNames> {
        let found = self.known.with(py, |known| {
            known.by_id.get(id as usize).and_then(|entry| entry.as_deref()).map(std::ptr::from_ref)
        });
        // SAFETY: boxes live as long as `self` (invariant 1).
        found.map(|shape| unsafe { &*shape })
    }

    /// Adds a shape that the running transaction with this serial has made.
    pub fn add_uncommitted(&self, py: Python<'_>, id: u32, shape: Shape, serial: u64) -> &ShapeNames {
        self.insert(py, ShapeNames::new(py, id, shape, serial))
    }

    /// Makes the shapes of a committed transaction usable for all.
    pub fn commit_shapes(&self, py: Python<'_>, serial: u64) {
        if serial == 0 {
            return;
        }
        self.known.with(py, |known| {
            for shape in known.by_id.iter().flatten().filter(|shape| shape.uncommitted_in.get() == serial) {
                shape.uncommitted_in.set(0);
            }
        });
    }

    /// Takes back the shapes of an aborted transaction, whose ids will be given to other shapes.
    pub fn forget_uncommitted(&self, py: Python<'_>, serial: u64) {
        if serial == 0 {
            return;
        }
        let any = self.known.with(py, |known| {
            let is_ours = |shape: &&mut Option<Box<ShapeNames>>| {
                shape.as_ref().is_some_and(|shape| shape.uncommitted_in.get() == serial)
            };
            let taken: Vec<_> = known.by_id.iter_mut().filter(is_ours).filter_map(Option::take).collect();
            let any = !taken.is_empty();
            for shape in taken {
                known.withdraw(shape);
            }
            if any {
                known.guesses.fill(std::ptr::null());
                let by_id = &known.by_id;
                known.by_keys.retain(|_, ids| {
                    ids.retain(|id| by_id.get(*id as usize).is_some_and(Option::is_some));
                    !ids.is_empty()
                });
            }
            any
        });
        if any {
            self.serial.set(NEXT_SERIAL.fetch_add(1, Ordering::Relaxed));
        }
    }

    fn insert(&self, py: Python<'_>, shape: Box<ShapeNames>) -> &ShapeNames {
        let hash = hash_keys(&shape.keys);
        let old = self.known.with(py, |known| known.take_withdrawn(hash, &shape));
        let shape = match old {
            Some(old) => {
                old.uncommitted_in.set(shape.uncommitted_in.get());
                old
            }
            None => shape,
        };
        let pointer = self.known.with(py, |known| {
            let index = shape.id as usize;
            if known.by_id.len() <= index {
                known.by_id.resize_with(index + 1, || None);
            }
            known.by_keys.entry(hash).or_default().push(shape.id);
            if let Some(old) = known.by_id.get_mut(index).and_then(|entry| entry.replace(shape)) {
                known.withdraw(old);
            }
            known
                .by_id
                .get(index)
                .and_then(|entry| entry.as_deref())
                .map_or(std::ptr::null(), std::ptr::from_ref)
        });
        // SAFETY: just stored, and boxes live as long as `self` (invariant 1).
        unsafe { &*pointer }
    }

    /// The shape whose names are these interned objects, if this `Names` has loaded it.
    pub fn by_keys(&self, py: Python<'_>, keys: &[*mut ffi::PyObject]) -> Option<&ShapeNames> {
        let found = self.known.with(py, |known| {
            known.by_keys.get(&hash_keys(keys))?.iter().find_map(|id| {
                let shape = known.by_id.get(*id as usize)?.as_deref()?;
                (*shape.keys == *keys).then_some(std::ptr::from_ref(shape))
            })
        });
        // SAFETY: boxes live as long as `self` (invariant 1).
        found.map(|shape| unsafe { &*shape })
    }

    /// The shape of the last dict with this first key and size.
    #[inline]
    pub fn guess(&self, py: Python<'_>, spot: usize) -> Option<&ShapeNames> {
        let pointer = self
            .known
            .with(py, |known| known.guesses.get(spot % GUESS_COUNT).copied().unwrap_or(std::ptr::null()));
        // SAFETY: null, or a pointer into a box that lives as long as `self` (invariant 1).
        unsafe { pointer.as_ref() }
    }

    /// Sets the shape that `guess` returns for this spot.
    #[inline]
    pub fn set_guess(&self, py: Python<'_>, spot: usize, shape: &ShapeNames) {
        self.known.with(py, |known| {
            // Allocated on first use: names that are only read never guess.
            if known.guesses.is_empty() {
                known.guesses.resize(GUESS_COUNT, std::ptr::null());
            }
            if let Some(entry) = known.guesses.get_mut(spot % GUESS_COUNT) {
                *entry = shape;
            }
        });
    }

    /// Counts a wrong guess at this spot.
    #[cold]
    pub fn note_wrong_guess(&self, py: Python<'_>, spot: usize) {
        self.known.with(py, |known| {
            if let Some(count) = known.wrong_guesses.get_mut(spot % GUESS_COUNT) {
                *count = WRONG_GUESSES_MAX.min(*count + 1);
            }
        });
    }

    /// Whether guesses at this spot have been wrong too often.
    #[inline]
    pub fn is_varied(&self, py: Python<'_>, spot: usize) -> bool {
        self.known
            .with(py, |known| known.wrong_guesses.get(spot % GUESS_COUNT).copied() >= Some(WRONG_GUESSES_MAX))
    }

    /// The spot in the table of guesses for a dict's first key and its size.
    ///
    /// # Safety
    /// `first_key` is a live str that is a key of a dict, so that its hash has been computed.
    #[inline]
    pub unsafe fn guess_spot(first_key: *mut ffi::PyObject, count: usize) -> usize {
        // By hash and not by address, since keys that a JSON parser made are new objects each time.
        // SAFETY: each str begins with this head.
        let hash = unsafe { (*first_key.cast::<ffi::PyASCIIObject>()).hash } as usize;
        hash.wrapping_add(count.wrapping_mul(7))
    }

    /// How many shapes the dictionary has.
    pub fn count(&self) -> usize {
        self.source.dictionary().len() as usize
    }
}

fn hash_keys(keys: &[*mut ffi::PyObject]) -> u64 {
    let hash = keys.iter().fold(keys.len() as u64, |hash, key| {
        (hash.rotate_left(5) ^ (*key as u64 >> 4)).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    // The upper bits of a product are mixed best, and a hash table uses both ends.
    hash ^ hash >> 32
}

/// A hasher for numbers that are already hashes: hashing them again was a tenth of the time of
/// finding a dict's shape by its keys.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

impl Shapes for Names {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.source.dictionary().shape(id).or_else(|| self.met(id))
    }

    #[inline]
    fn slot_count(&self, id: u32) -> Option<u32> {
        // SAFETY: as in `met`.
        let py = unsafe { Python::assume_attached() };
        match self.met_as(py, id) {
            Some(shape) => Some(shape.keys.len() as u32),
            None => self.shape(id).map(Shape::count),
        }
    }
}

impl Names {
    /// A shape that the dictionary lacks: an uncommitted one, or one that the store must be asked
    /// for.
    #[cold]
    fn met(&self, id: u32) -> Option<&Shape> {
        // SAFETY: only handles use `Names`, and they hold the GIL; code that releases it for a long
        // scan reads through the store's own dictionary.
        let py = unsafe { Python::assume_attached() };
        self.named(py, id).map(|shape| &shape.shape)
    }
}

/// The shapes that are known without asking the store, for code that runs under the store's locks,
/// where a question to the store would deadlock. It does not have any other shape.
pub struct KnownShapes<'a>(pub &'a Names);

impl Shapes for KnownShapes<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        // SAFETY: as in `Names::met`.
        let py = unsafe { Python::assume_attached() };
        let known = self.0.source.dictionary().shape(id);
        known.or_else(|| self.0.met_as(py, id).map(|shape| &shape.shape))
    }
}

/// Whether two str objects have the same characters.
///
/// # Safety
/// Both are live str objects; the GIL is held.
#[inline]
pub unsafe fn is_same_name(one: *mut ffi::PyObject, two: *mut ffi::PyObject) -> bool {
    if one == two {
        return true;
    }
    // SAFETY: as promised by the caller.
    unsafe {
        match (text::ascii_of(one), text::ascii_of(two)) {
            (Some(one), Some(two)) => one == two,
            (None, None) => ffi::PyUnicode_Compare(one, two) == 0,
            _ => false,
        }
    }
}
