//! Envelopes: records that carry their field names from one database to another.
//!
//! The shape ids in a record have a meaning in one dictionary only. In an envelope, tables of names
//! and shapes come before the record, and the ids refer to these. Opening an envelope validates all
//! of it and overwrites the ids; they have fixed places, so no byte moves.

use std::collections::HashMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Corrupt, Damage, Result};
use crate::layout::{
    DEPTH_MAX, ENVELOPE_BYTE, ENVELOPE_HEAD_SIZE, ENVELOPE_KEY_COUNT_MAX, ENVELOPE_SHAPE_COUNT_MAX, Kind,
    ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, SCALAR_BYTE, SCALAR_HEAD_SIZE, SHAPE_ID_END, SHAPE_NAME_SIZE_MAX,
    index_size, push_varint, read_varint, slot_position, slots_size, tag,
};
use crate::shape::{Shape, Shapes, hash_of_names, may_be_shape};
use crate::validate::validate_root;
use crate::value::{decode, encode_value};
use crate::view::{self, Container, Root};
use crate::walk::Walker;

/// The tables of an envelope that is being written: names and shapes in order of first use.
#[derive(Debug, Default)]
pub struct Tables {
    shapes: Vec<Shape>,
    /// Ids by the hash of their names; more than one only if hashes collide.
    by_names: HashMap<u64, Vec<u32>>,
    key_indexes: HashMap<Box<str>, u32>,
    key_bytes: Vec<u8>,
    shape_bytes: Vec<u8>,
}

impl Tables {
    /// Empty tables.
    #[must_use]
    pub fn new() -> Tables {
        Tables::default()
    }

    /// Removes all shapes.
    pub fn clear(&mut self) {
        self.shapes.clear();
        self.by_names.clear();
        self.key_indexes.clear();
        self.key_bytes.clear();
        self.shape_bytes.clear();
    }

    /// The id of the shape with these names, added at first sight. `None` if they cannot be a shape
    /// or the tables are full: the dict then becomes a keyed map.
    pub fn admit<N: AsRef<str>>(&mut self, names: &[N]) -> Option<u32> {
        let hash = hash_of_names(names);
        let known = self.by_names.get(&hash).map(Vec::as_slice).unwrap_or_default();
        for id in known {
            let shape = self.shapes.get(*id as usize)?;
            if shape.names().iter().map(AsRef::as_ref).eq(names.iter().map(AsRef::as_ref)) {
                return Some(*id);
            }
        }
        // Assume that all names are new. Counting those that are not could admit one more shape,
        // which is not worth it.
        if self.shapes.len() >= ENVELOPE_SHAPE_COUNT_MAX
            || self.key_indexes.len() + names.len() > ENVELOPE_KEY_COUNT_MAX
            || !may_be_shape(names)
        {
            return None;
        }
        let shape = Shape::new(names).ok()?;
        push_varint(&mut self.shape_bytes, shape.count());
        for name in shape.names() {
            let next = self.key_indexes.len() as u32;
            let index = *self.key_indexes.entry(name.clone()).or_insert(next);
            if index == next {
                push_varint(&mut self.key_bytes, name.len() as u32);
                self.key_bytes.extend_from_slice(name.as_bytes());
            }
            push_varint(&mut self.shape_bytes, index);
        }
        let id = self.shapes.len() as u32;
        self.shapes.push(shape);
        self.by_names.entry(hash).or_default().push(id);
        Some(id)
    }

    /// What stands after the head of an envelope around a record with shape ids of these tables.
    #[must_use]
    pub fn body_parts<'a>(&'a self, record: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.key_bytes, &self.shape_bytes, record]
    }

    /// The head of an envelope with this body.
    #[must_use]
    pub fn envelope_head(&self, body: &[u8]) -> [u8; ENVELOPE_HEAD_SIZE] {
        let tables_size = (self.key_bytes.len() + self.shape_bytes.len()) as u64;
        let first = u64::from(ENVELOPE_BYTE) | (self.key_indexes.len() as u64) << 16 | tables_size << 32;
        (u128::from(first) | u128::from(xxh3_64(body)) << 64).to_le_bytes()
    }

    /// The envelope around a record with shape ids of these tables.
    #[must_use]
    pub fn envelope(&self, record: &[u8]) -> Vec<u8> {
        let body = self.body_parts(record).concat();
        [&self.envelope_head(&body), body.as_slice()].concat()
    }
}

impl Shapes for Tables {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.get(id as usize)
    }
}

/// The borrowed parts of an envelope. Only the head has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// How many names the tables have.
    pub key_count: u16,
    /// The stored checksum.
    pub checksum: u64,
    /// The tables; equal bytes mean equal shapes.
    pub tables: &'a [u8],
    /// The record, a root.
    pub record: &'a [u8],
}

/// The checksum of bytes that have none of their own, as envelopes have it.
#[must_use]
pub fn checksum_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Whether these bytes begin like an envelope.
#[inline]
#[must_use]
pub fn is_envelope(bytes: &[u8]) -> bool {
    bytes.first() == Some(&ENVELOPE_BYTE)
}

impl<'a> Envelope<'a> {
    /// Splits an envelope into its parts.
    ///
    /// # Errors
    /// It is no envelope, or its tables end beyond the bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Envelope<'a>> {
        let Some((head, body)) = bytes.split_first_chunk::<ENVELOPE_HEAD_SIZE>() else {
            return Err(Corrupt::new(Damage::Truncated, bytes.len()));
        };
        let both = u128::from_le_bytes(*head);
        if both as u8 != ENVELOPE_BYTE {
            return Err(Corrupt::new(Damage::Version, 0));
        }
        if (both >> 8) as u8 != 0 {
            return Err(Corrupt::new(Damage::UnusedBits, 1));
        }
        let Some((tables, record)) = body.split_at_checked((both >> 32) as u32 as usize) else {
            return Err(Corrupt::new(Damage::Truncated, 4));
        };
        Ok(Envelope { key_count: (both >> 16) as u16, checksum: (both >> 64) as u64, tables, record })
    }

    /// The offset of the record in the envelope.
    #[inline]
    #[must_use]
    pub fn record_offset(&self) -> usize {
        ENVELOPE_HEAD_SIZE + self.tables.len()
    }

    /// The shapes of the tables; an id is an index.
    ///
    /// # Errors
    /// The tables are damaged; the offset is the envelope's.
    pub fn shapes(&self) -> Result<Vec<Shape>> {
        let mut at = 0;
        let bad = |at: usize| Corrupt::new(Damage::Tables, ENVELOPE_HEAD_SIZE + at);
        let mut keys = Vec::with_capacity(usize::from(self.key_count).min(self.tables.len()));
        for _ in 0..self.key_count {
            let (size, behind) = read_varint(self.tables, at).ok_or_else(|| bad(at))?;
            let name = self
                .tables
                .get(behind..behind + size as usize)
                .filter(|name| name.len() <= SHAPE_NAME_SIZE_MAX);
            keys.push(name.and_then(|name| std::str::from_utf8(name).ok()).ok_or_else(|| bad(at))?);
            at = behind + size as usize;
        }
        let mut shapes = Vec::new();
        let mut names = Vec::new();
        while at < self.tables.len() {
            let start = at;
            let (count, behind) = read_varint(self.tables, at).ok_or_else(|| bad(start))?;
            at = behind;
            names.clear();
            for _ in 0..count {
                let (index, behind) = read_varint(self.tables, at).ok_or_else(|| bad(start))?;
                names.push(*keys.get(index as usize).ok_or_else(|| bad(start))?);
                at = behind;
            }
            if shapes.len() >= ENVELOPE_SHAPE_COUNT_MAX {
                return Err(bad(start));
            }
            shapes.push(Shape::new(&names).map_err(|_| bad(start))?);
        }
        Ok(shapes)
    }

    /// Whether the checksum fits the bytes. `bytes` are those that were parsed.
    #[must_use]
    pub fn checksum_fits(&self, bytes: &[u8]) -> bool {
        bytes.get(ENVELOPE_HEAD_SIZE..).is_some_and(|body| xxh3_64(body) == self.checksum)
    }
}

/// How many bytes a truncated envelope announces. For messages, after the envelope was found to be
/// damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// The number of bytes that exist.
    pub size: u64,
    /// The number of bytes announced.
    pub announced: u64,
    /// Whether `announced` is the whole size; otherwise the missing part would announce more.
    pub is_all: bool,
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.is_all { "" } else { "at least " };
        write!(f, "cut off: {} of {least}{} bytes", self.size, self.announced)
    }
}

impl CutOff {
    /// What the existing part of an envelope announces. `None` if it is complete, or no envelope.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<CutOff> {
        if !is_envelope(bytes) {
            return None;
        }
        let (announced, is_all) = match (bytes.get(4..8), Envelope::parse(bytes)) {
            (_, Ok(envelope)) => {
                let (record, is_all) = announced_by_root(envelope.record);
                (envelope.record_offset() as u64 + record, is_all)
            }
            (Some(&[a, b, c, d]), Err(_)) => {
                (ENVELOPE_HEAD_SIZE as u64 + u64::from(u32::from_le_bytes([a, b, c, d])), false)
            }
            _ => (ENVELOPE_HEAD_SIZE as u64, false),
        };
        let size = bytes.len() as u64;
        (announced > size).then_some(CutOff { size, announced, is_all })
    }
}

/// The bytes that the first container of a record announces, and whether that is the whole size.
/// Its slots tell where the last entry of its heap ends.
fn announced_by_root(record: &[u8]) -> (u64, bool) {
    let Some(head) = record.first_chunk::<ROOT_HEAD_SIZE>() else {
        return (if is_scalar(record) { SCALAR_HEAD_SIZE } else { ROOT_HEAD_SIZE } as u64, false);
    };
    let head = u64::from_le_bytes(*head);
    let (width_log2, stated, number) = ((head >> 8) as u8, (head >> 16) as u16, (head >> 32) as u32);
    let Some(kind) = Kind::from_number(head as u8 >> 4).filter(|_| width_log2 <= ROOT_WIDTH_LOG2) else {
        return (0, false);
    };
    let head = ROOT_HEAD_SIZE as u64;
    if kind.is_packed() {
        return (head + (u64::from(number) << width_log2), true);
    }
    let (count, index) = match kind {
        Kind::Shaped => (u32::from(stated), 0),
        Kind::Keyed => (number.saturating_mul(2), index_size(number)),
        _ => (number, 0),
    };
    let slots_end = head + slots_size(count, ROOT_WIDTH_LOG2) + index;
    if slots_end > record.len() as u64 {
        return (slots_end, false);
    }
    let mut end = slots_end;
    for index in 0..count {
        let (tag, slot) = slot_position(count, ROOT_WIDTH_LOG2, index);
        let tag = record.get(ROOT_HEAD_SIZE + tag).copied().unwrap_or_default();
        let slot = record.get(ROOT_HEAD_SIZE + slot..).and_then(<[u8]>::first_chunk).copied();
        if let Some(slot) = slot.map(u64::from_le_bytes).filter(|_| tag >= tag::HEAP) {
            end = end.max((slot & u64::from(u32::MAX)) + (slot >> 32));
        }
    }
    (end, true)
}

fn is_scalar(record: &[u8]) -> bool {
    record.first() == Some(&SCALAR_BYTE)
}

/// Checks all of an envelope and returns its shapes.
///
/// # Errors
/// Any damage at all; the offset is the envelope's.
pub fn validate(bytes: &[u8]) -> Result<Vec<Shape>> {
    let envelope = Envelope::parse(bytes)?;
    if !envelope.checksum_fits(bytes) {
        return Err(Corrupt::new(Damage::Checksum, 8));
    }
    let shapes = envelope.shapes()?;
    validate_root(envelope.record, &shapes, false)
        .map_err(|error| Corrupt::new(error.damage, error.offset as usize + envelope.record_offset()))?;
    Ok(shapes)
}

/// The record of an envelope, for another dictionary. All of it is validated, then `id_of` returns
/// the new id of each shape. If a shape has no id there the result is an error: the caller has to
/// decode the record and encode it again.
///
/// # Errors
/// Damage in the envelope, or a shape without an id.
pub fn open(bytes: &[u8], mut id_of: impl FnMut(&Shape) -> Option<u32>) -> Result<Vec<u8>> {
    let shapes = validate(bytes)?;
    let ids: Vec<Option<u32>> = shapes.iter().map(&mut id_of).collect();
    let mut record = Envelope::parse(bytes)?.record.to_vec();
    renumber(&mut record, &shapes, |id| ids.get(id as usize).copied().flatten())?;
    Ok(record)
}

/// An envelope around a record of a database. If the record has more shapes or names than the
/// tables can hold, it is written anew, with keyed maps for the rest.
///
/// # Errors
/// The record is damaged, or a value of it is stored apart in the database.
pub fn seal<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<Vec<u8>> {
    let mut tables = Tables::new();
    let mut ids = HashMap::new();
    let References { ids: places, overflow } = shape_places(record, shapes)?;
    if let Some(offset) = overflow {
        return Err(Corrupt::new(Damage::Overflow, offset as usize));
    }
    for place in &places {
        if let std::collections::hash_map::Entry::Vacant(entry) = ids.entry(place.id) {
            let shape = shapes
                .shape(place.id)
                .ok_or_else(|| Corrupt::new(Damage::UnknownShape, place.offset as usize))?;
            match tables.admit(shape.names()) {
                Some(id) => entry.insert(id),
                None => return seal_anew(record, shapes),
            };
        }
    }
    let mut envelope = tables.envelope(record);
    let start = envelope.len() - record.len();
    if let Some(inside) = envelope.get_mut(start..) {
        for place in &places {
            place.write(inside, ids.get(&place.id).copied().unwrap_or_default());
        }
    }
    let checksum = xxh3_64(envelope.get(ENVELOPE_HEAD_SIZE..).unwrap_or_default());
    if let Some(target) = envelope.get_mut(8..ENVELOPE_HEAD_SIZE) {
        target.copy_from_slice(&checksum.to_le_bytes());
    }
    Ok(envelope)
}

#[cold]
fn seal_anew<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<Vec<u8>> {
    let mut tables = Tables::new();
    let value = decode(record, shapes)?;
    // What was a record before is small and shallow enough to be one again, even with keyed maps,
    // unless it has nearly 4 GiB.
    let record = encode_value(&value, &mut tables).map_err(|_| Corrupt::new(Damage::Tables, 0))?;
    Ok(tables.envelope(&record))
}

/// The place of a shape id in a record.
#[derive(Clone, Copy, Debug)]
struct ShapeReference {
    offset: u32,
    id: u32,
}

impl ShapeReference {
    /// Writes another id; the caller has checked that it has 24 bits.
    fn write(self, record: &mut [u8], id: u32) {
        let is_root = self.offset == 0;
        let start = self.offset as usize + if is_root { 4 } else { 1 };
        if let Some(target) = record.get_mut(start..start + 3) {
            target.iter_mut().zip(id.to_le_bytes()).for_each(|(target, source)| *target = source);
        }
    }
}

/// All shape ids of a record, in order, and the place of a reference to a value that is stored
/// apart.
#[derive(Debug, Default)]
struct References {
    ids: Vec<ShapeReference>,
    overflow: Option<u32>,
}

impl References {
    fn note(&mut self, slot: &view::Slot<'_>) {
        if let view::Slot::Heap { tag: tag::OVERFLOW, offset, .. } = slot {
            self.overflow = Some(*offset);
        }
    }
}

fn shape_places<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<References> {
    let mut places = References::default();
    let container = match view::root(record, shapes)? {
        Root::Container(container) => Some(container),
        Root::Scalar(slot) => {
            places.note(&slot);
            slot.payload_container(record, shapes)?
        }
    };
    if let Some(container) = container {
        push_places(record, shapes, container, DEPTH_MAX, &mut places)?;
    }
    Ok(places)
}

/// Returns the end of the container.
fn push_places<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: Container,
    depth: u32,
    places: &mut References,
) -> Result<u32> {
    if depth == 0 {
        return Err(Corrupt::new(Damage::Depth, container.start as usize));
    }
    if container.kind == Kind::Shaped {
        places.ids.push(ShapeReference { offset: container.start, id: container.shape });
    }
    let mut walker = Walker::new(container);
    if container.kind.is_packed() {
        return Ok(walker.end());
    }
    while let Some(slot) = walker.next(record, shapes)? {
        places.note(&slot);
        if let view::Slot::Container(inner) = slot {
            let end = push_places(record, shapes, inner, depth - 1, places)?;
            walker.consumed(end)?;
        } else if let Some(inner) = slot.payload_container(record, shapes)? {
            push_places(record, shapes, inner, depth - 1, places)?;
        }
    }
    Ok(walker.end())
}

/// Replaces the shape ids everywhere in a record. `shapes` has the old ids; each new shape must
/// have the same number of names.
///
/// # Errors
/// Damage, or an id for which `new_id` returns `None`; then the record is unchanged.
pub fn renumber<S: Shapes + ?Sized>(
    record: &mut [u8],
    shapes: &S,
    mut new_id: impl FnMut(u32) -> Option<u32>,
) -> Result<()> {
    let mut places = shape_places(record, shapes)?.ids;
    for place in &mut places {
        match new_id(place.id) {
            Some(id) if id < SHAPE_ID_END => place.id = id,
            _ => return Err(Corrupt::new(Damage::UnknownShape, place.offset as usize)),
        }
    }
    for place in &places {
        place.write(record, place.id);
    }
    Ok(())
}
