//! Finds a key in a keyed map, by its canonical bytes.
//!
//! The canonical bytes are the ordered encoding if the key has one, so that 1, 1.0 and True are one
//! key; otherwise 0xFF, the tag and the payload. Up to eight entries are compared in turn. Larger
//! maps have an index after the slots, sorted by `(hash, canonical bytes)`: keys that collide on
//! purpose cost a binary search among them, not a walk over all.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Corrupt, Damage, Result};
use crate::key::KeyEncoder;
use crate::layout::{DEPTH_MAX, INDEX_ENTRY_COUNT_MIN, INDEX_ENTRY_SIZE, Kind, tag};
use crate::payload;
use crate::shape::Shapes;
use crate::view::{Container, Slot};
use crate::walk::Walker;

/// The first byte of a key without an ordered encoding, before its tag and payload. Greater than
/// the first byte of any ordered key.
pub const UNORDERED: u8 = 0xFF;

/// The hash of a key in a keyed map's index.
#[inline]
#[must_use]
pub fn hash(canonical_key: &[u8]) -> u32 {
    xxh3_64(canonical_key) as u32
}

/// Makes the canonical bytes of keys, one after another, in reusable buffers.
#[derive(Debug, Default)]
pub struct CanonicalKey {
    ordered: KeyEncoder,
    unordered: Vec<u8>,
}

impl CanonicalKey {
    /// Empty buffers.
    #[must_use]
    pub fn new() -> CanonicalKey {
        CanonicalKey::default()
    }

    /// The canonical bytes of the key in `slot`, which was read from `bytes`.
    ///
    /// # Errors
    /// Damage in the key, or it is absent.
    pub fn of<S: Shapes + ?Sized>(&mut self, bytes: &[u8], shapes: &S, slot: &Slot<'_>) -> Result<&[u8]> {
        self.ordered.clear();
        if push_ordered(bytes, shapes, slot, &mut self.ordered)? {
            return Ok(self.ordered.as_bytes());
        }
        let out = &mut self.unordered;
        out.clear();
        match *slot {
            Slot::Float(value) => push_inline(tag::FLOAT, value.to_bits(), out),
            Slot::Date(ordinal) => push_inline(tag::DATE, u64::from(ordinal), out),
            Slot::Datetime(value) => push_inline(tag::DATETIME, value.cast_unsigned(), out),
            Slot::Heap { tag, payload, .. } => {
                out.extend_from_slice(&[UNORDERED, tag]);
                out.extend_from_slice(payload);
            }
            Slot::Container(container) => {
                let end = container_end(bytes, shapes, &container, DEPTH_MAX)?;
                out.extend_from_slice(&[UNORDERED, tag::CONTAINER]);
                out.extend_from_slice(bytes.get(container.start as usize..end as usize).unwrap_or_default());
            }
            // All others have an ordered encoding, except the absent value, which is no key.
            _ => return Err(Corrupt::new(Damage::Absent, 0)),
        }
        Ok(out)
    }
}

fn push_inline(tag: u8, bits: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[UNORDERED, tag]);
    out.extend_from_slice(&bits.to_le_bytes());
}

/// The real end of a container: after its last heap entry. `depth` is how many levels it may have.
pub(crate) fn container_end<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    depth: u32,
) -> Result<u32> {
    if depth == 0 {
        return Err(Corrupt::new(Damage::Depth, container.start as usize));
    }
    let mut walker = Walker::new(*container);
    if container.kind.is_packed() {
        return Ok(walker.end());
    }
    while let Some(slot) = walker.next(bytes, shapes)? {
        if let Slot::Container(inner) = slot {
            walker.consumed(container_end(bytes, shapes, &inner, depth - 1)?)?;
        }
    }
    Ok(walker.end())
}

/// Pushes the ordered encoding of a key. False if it has none.
fn push_ordered<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    out: &mut KeyEncoder,
) -> Result<bool> {
    let pushed = match *slot {
        Slot::None => {
            out.none();
            Ok(())
        }
        Slot::Bool(value) => {
            out.bool(value);
            Ok(())
        }
        Slot::Int(value) => {
            out.int(value);
            Ok(())
        }
        Slot::Float(value) => out.float(value),
        Slot::Date(ordinal) => out.date(ordinal),
        Slot::Datetime(value) => out.datetime(value >> 1, value & 1 == 1),
        Slot::Str(text) => {
            out.str(text);
            Ok(())
        }
        Slot::Heap { tag, payload, .. } => return Ok(push_ordered_payload(tag, payload, out)),
        Slot::Container(container) if container.kind == Kind::Tuple => {
            return push_ordered_tuple(bytes, shapes, container, out).map(|end| end.is_some());
        }
        _ => return Ok(false),
    };
    Ok(pushed.is_ok())
}

fn push_ordered_payload(tag: u8, payload: &[u8], out: &mut KeyEncoder) -> bool {
    match tag {
        tag::STR_SURROGATES => out.str(payload),
        tag::BYTES => out.bytes(payload),
        tag::BIGINT => {
            let (negative, magnitude) = payload::bigint_magnitude(payload);
            return out.bigint(negative, &magnitude).is_ok();
        }
        tag::DECIMAL => return payload::decimal(payload).is_some_and(|text| out.decimal(text).is_ok()),
        tag::UUID => match payload::uuid(payload) {
            Some(uuid) => out.uuid(&uuid),
            None => return false,
        },
        tag::AWARE => match (payload::aware(payload), payload.get(16..)) {
            (Some(aware), Some(zone)) => {
                return out.aware(aware.local - aware.offset, aware.offset, aware.fold, zone).is_ok();
            }
            _ => return false,
        },
        _ => return false,
    }
    true
}

/// Returns the end of the tuple, or `None` if an element has no ordered encoding.
fn push_ordered_tuple<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: Container,
    out: &mut KeyEncoder,
) -> Result<Option<u32>> {
    // Tuples that are too deep for a key are too deep for a record, so this also ends the
    // recursion.
    if out.begin_tuple().is_err() {
        return Ok(None);
    }
    let mut walker = Walker::new(container);
    while let Some(element) = walker.next(bytes, shapes)? {
        match element {
            Slot::Container(inner) if inner.kind == Kind::Tuple => {
                match push_ordered_tuple(bytes, shapes, inner, out)? {
                    Some(end) => walker.consumed(end)?,
                    None => return Ok(None),
                }
            }
            _ => {
                if !push_ordered(bytes, shapes, &element, out)? {
                    return Ok(None);
                }
            }
        }
    }
    out.end_tuple();
    Ok(Some(walker.end()))
}

/// Whether the key in `slot` has these canonical bytes.
fn is_key<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    canonical_key: &[u8],
    scratch: &mut CanonicalKey,
) -> Result<bool> {
    // Strings without NUL, which are nearly all keys, are in the canonical bytes unchanged.
    if let (Slot::Str(text), [0x02, body @ .., 0x00]) = (slot, canonical_key)
        && !body.contains(&0)
    {
        return Ok(*text == body);
    }
    Ok(scratch.of(bytes, shapes, slot)? == canonical_key)
}

/// Finds the entry of a string key.
pub(crate) fn find_str<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    name: &[u8],
) -> Result<Option<u32>> {
    let mut key = CanonicalKey::new();
    let canonical = key.of(bytes, shapes, &Slot::Str(name))?;
    find(bytes, shapes, container, canonical)
}

/// Finds an entry by the canonical bytes of its key.
pub(crate) fn find<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    canonical_key: &[u8],
) -> Result<Option<u32>> {
    if container.kind != Kind::Keyed {
        return Ok(None);
    }
    let entry_count = container.count / 2;
    let mut scratch = CanonicalKey::new();
    if entry_count < INDEX_ENTRY_COUNT_MIN {
        for entry in 0..entry_count {
            let key = container.slot(bytes, shapes, 2 * entry)?;
            if is_key(bytes, shapes, &key, canonical_key, &mut scratch)? {
                return Ok(Some(entry));
            }
        }
        return Ok(None);
    }
    let sought = (hash(canonical_key), canonical_key);
    let (mut low, mut high) = (0, entry_count);
    while low < high {
        let middle = low + (high - low) / 2;
        let (entry_hash, entry) = index_entry(bytes, container, middle)?;
        let order = if entry_hash == sought.0 {
            let key = container.slot(bytes, shapes, 2 * entry)?;
            if is_key(bytes, shapes, &key, canonical_key, &mut scratch)? {
                return Ok(Some(entry));
            }
            scratch.of(bytes, shapes, &key)?.cmp(sought.1)
        } else {
            entry_hash.cmp(&sought.0)
        };
        match order {
            std::cmp::Ordering::Less => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(None)
}

/// An entry of the index: hash and entry number.
pub(crate) fn index_entry(bytes: &[u8], container: &Container, place: u32) -> Result<(u32, u32)> {
    let at = container.index_start() as usize + place as usize * INDEX_ENTRY_SIZE;
    let Some(entry) = bytes.get(at..).and_then(<[u8]>::first_chunk::<INDEX_ENTRY_SIZE>) else {
        return Err(Corrupt::new(Damage::Truncated, at));
    };
    let both = u64::from_le_bytes(*entry);
    let (hash, entry) = (both as u32, (both >> 32) as u32);
    if entry >= container.count / 2 {
        return Err(Corrupt::new(Damage::Index, at));
    }
    Ok((hash, entry))
}
