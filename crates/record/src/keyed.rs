//! How is a key found in a keyed map?
//!
//! By its canonical bytes: the ordered encoding where the key has one, so that 1, 1.0 and True are one key; else 0xFF, the tag
//! and the payload. Up to eight entries are compared in turn. From nine on, an index stands behind the slots, sorted by
//! `(hash, canonical bytes)`: keys that collide on purpose cost a binary search among them, not a walk over all.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Corrupt, Damage};
use crate::layout::{DEPTH_MAX, INDEX_ENTRY_COUNT_MIN, INDEX_ENTRY_SIZE, Kind, tag};
use crate::shape::Shapes;
use crate::view::{Container, Slot, Walker};

/// Before the tag and the payload of a key without an ordered encoding. Above every code of an ordered key.
pub const UNORDERED: u8 = 0xFF;

/// The hash of a key in a keyed map's index.
#[inline]
#[must_use]
pub fn hash(canonical_key: &[u8]) -> u32 {
    xxh3_64(canonical_key) as u32
}

/// Appends the canonical bytes of a key. `slot` was read from `bytes`.
///
/// # Errors
/// Damage in the key.
pub fn push_canonical<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    let start = out.len();
    if push_ordered(bytes, shapes, slot, false, DEPTH_MAX, out)? {
        return Ok(());
    }
    out.truncate(start);
    out.push(UNORDERED);
    match *slot {
        Slot::Float(value) => {
            out.push(tag::FLOAT);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Slot::Heap { tag, payload, .. } => {
            out.push(tag);
            out.extend_from_slice(payload);
        }
        Slot::Container(container) => {
            let end = container_end(bytes, shapes, &container, DEPTH_MAX)?;
            out.push(tag::CONTAINER);
            out.extend_from_slice(bytes.get(container.start as usize..end as usize).unwrap_or_default());
        }
        // All others have an ordered encoding, except the absent, which is no key.
        _ => return Err(Corrupt::new(Damage::Absent, 0)),
    }
    Ok(())
}

/// Where a container really ends: behind its last heap entry. `depth` is how many levels it may have.
pub(crate) fn container_end<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    depth: u32,
) -> Result<u32, Corrupt> {
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

/// Appends the ordered encoding of a key; false where it has none (what was appended is then to be dropped).
fn push_ordered<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    is_in_tuple: bool,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<bool, Corrupt> {
    match *slot {
        Slot::None if is_in_tuple => out.extend_from_slice(&[0x00, 0xFF]),
        Slot::None => out.push(0x00),
        Slot::Bool(value) => push_int(i64::from(value), out),
        Slot::Int(value) => push_int(value, out),
        Slot::Str(text) | Slot::Heap { tag: tag::STR_SURROGATES, payload: text, .. } => {
            push_escaped(0x02, text, out)
        }
        Slot::Heap { tag: tag::BYTES, payload, .. } => push_escaped(0x01, payload, out),
        Slot::Container(container) if container.kind == Kind::Tuple && depth > 0 => {
            out.push(0x05);
            let mut walker = Walker::new(container);
            while let Some(element) = walker.next(bytes, shapes)? {
                if !push_ordered(bytes, shapes, &element, true, depth - 1, out)? {
                    return Ok(false);
                }
                if let Slot::Container(inner) = element {
                    walker.consumed(container_end(bytes, shapes, &inner, depth - 1)?)?;
                }
            }
            out.push(0x00);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn push_int(value: i64, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    let size = 8 - magnitude.leading_zeros() as usize / 8;
    let (code, bits) =
        if value < 0 { (0x14 - size as u8, !magnitude) } else { (0x14 + size as u8, magnitude) };
    out.push(code);
    out.extend(bits.to_be_bytes().iter().skip(8 - size));
}

fn push_escaped(code: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(code);
    for byte in text {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
    out.push(0x00);
}

/// Whether the key in `slot` has these canonical bytes. `scratch` is emptied first.
fn is_key<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    slot: &Slot<'_>,
    canonical_key: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<bool, Corrupt> {
    // Strings without NUL, nearly all keys there are, stand in the canonical bytes as they are.
    if let (Slot::Str(text), [0x02, body @ .., 0x00]) = (slot, canonical_key)
        && !body.contains(&0)
    {
        return Ok(*text == body);
    }
    scratch.clear();
    push_canonical(bytes, shapes, slot, scratch)?;
    Ok(scratch == canonical_key)
}

/// Finds the entry of a string key.
pub(crate) fn find_str<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    name: &[u8],
) -> Result<Option<u32>, Corrupt> {
    let mut canonical = Vec::with_capacity(name.len() + 2);
    push_escaped(0x02, name, &mut canonical);
    find(bytes, shapes, container, &canonical)
}

/// Finds an entry by the canonical bytes of its key.
pub(crate) fn find<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    container: &Container,
    canonical_key: &[u8],
) -> Result<Option<u32>, Corrupt> {
    if container.kind != Kind::Keyed {
        return Ok(None);
    }
    let entry_count = container.count / 2;
    let mut scratch = Vec::new();
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
            scratch.clear();
            push_canonical(bytes, shapes, &key, &mut scratch)?;
            scratch.as_slice().cmp(sought.1)
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
pub(crate) fn index_entry(bytes: &[u8], container: &Container, place: u32) -> Result<(u32, u32), Corrupt> {
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
