//! Validation: checks that bytes obey every rule of the format.
//!
//! The other readers check only what they need to stay inside the bytes. This module checks
//! everything in `docs/format.md`, so that accepted bytes can be shown, searched and changed in
//! place without surprises. It accepts what changes in place leave behind: gaps, and slots wider
//! than necessary.

use crate::envelope;
use crate::error::{Corrupt, Damage, Result};
use crate::keyed::{self, CanonicalKey, UNORDERED};
use crate::layout::{DEPTH_MAX, INDEX_ENTRY_COUNT_MIN, Kind, tag};
use crate::payload;
use crate::shape::Shapes;
use crate::value::is_surrogate_text;
use crate::view::{self, Container, Root, Slot};
use crate::walk::Walker;

/// Checks a record, or an envelope with its own tables and checksum.
///
/// # Errors
/// The first damage found.
pub fn validate<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S) -> Result<()> {
    if envelope::is_envelope(bytes) {
        return envelope::validate(bytes).map(drop);
    }
    validate_record(bytes, shapes)
}

/// Checks a record.
///
/// # Errors
/// The first damage found.
pub fn validate_record<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S) -> Result<()> {
    validate_root(bytes, shapes, true)
}

/// Checks a record. `has_overflow`: it is in a database, which has its large values.
///
/// # Errors
/// The first damage found.
pub(crate) fn validate_root<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S, has_overflow: bool) -> Result<()> {
    let mut validator = Validator { bytes, shapes, has_overflow, key: CanonicalKey::new() };
    match view::root(bytes, shapes)? {
        Root::Container(container) => {
            let end = validator.container(&container, DEPTH_MAX, false)?;
            if container.kind.is_packed() && end as usize != bytes.len() {
                return corrupt(Damage::Trailing, end as usize);
            }
            Ok(())
        }
        Root::Scalar(slot) => {
            validator.root_bits(slot)?;
            validator.slot(slot, 1, DEPTH_MAX, false)
        }
    }
}

#[cold]
fn corrupt<T>(damage: Damage, offset: usize) -> Result<T> {
    Err(Corrupt::new(damage, offset))
}

struct Validator<'a, S: ?Sized> {
    bytes: &'a [u8],
    shapes: &'a S,
    has_overflow: bool,
    key: CanonicalKey,
}

/// The sort key of a set's element: the tag, then the slot as 8 bytes or the payload.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a>(u8, [u8; 8], &'a [u8]);

impl<'a, S: Shapes + ?Sized> Validator<'a, S> {
    /// Checks a container and returns its end. `must_hash`: it is a key or an element of a set, or
    /// inside one.
    fn container(&mut self, container: &Container, depth: u32, must_hash: bool) -> Result<u32> {
        let start = container.start as usize;
        let Some(depth) = depth.checked_sub(1) else { return corrupt(Damage::Depth, start) };
        if must_hash && !matches!(container.kind, Kind::Tuple | Kind::FrozenSet) {
            return corrupt(Damage::Kind, start);
        }
        let mut walker = Walker::new(*container);
        if container.kind.is_packed() {
            return Ok(walker.end());
        }
        let is_set = matches!(container.kind, Kind::Set | Kind::FrozenSet);
        let mut before: Option<Rank<'a>> = None;
        loop {
            let index = walker.index();
            let Some(slot) = walker.next(self.bytes, self.shapes)? else { break };
            let (_, place) = container.position(index);
            if slot == Slot::Absent && container.kind != Kind::Shaped {
                return corrupt(Damage::Absent, place);
            }
            let must_hash = must_hash || is_set || container.kind == Kind::Keyed && index.is_multiple_of(2);
            let mut end = 0;
            if let Slot::Container(inner) = slot {
                end = self.container(&inner, depth, must_hash)?;
                walker.consumed(end)?;
            } else {
                self.unused_bits(container, index, slot)?;
                self.slot(slot, place, depth, must_hash)?;
            }
            if is_set {
                let rank = Some(self.rank(container, index, slot, end));
                // Equal elements are possible: each NaN is an element of its own.
                if before > rank {
                    return corrupt(Damage::SetOrder, place);
                }
                before = rank;
            }
        }
        if container.kind == Kind::Keyed {
            self.keys(container)?;
        }
        Ok(walker.end())
    }

    fn rank(&self, container: &Container, index: u32, slot: Slot<'a>, end: u32) -> Rank<'a> {
        let tag = container.tag(self.bytes, index).unwrap_or_default();
        let bits = match slot {
            Slot::Int(value) => value.cast_unsigned(),
            _ => container.bits(self.bytes, index).unwrap_or_default(),
        };
        match slot {
            Slot::Container(inner) => {
                Rank(tag, [0; 8], self.bytes.get(inner.start as usize..end as usize).unwrap_or_default())
            }
            Slot::Str(payload) | Slot::Heap { payload, .. } if tag >= tag::HEAP => Rank(tag, [0; 8], payload),
            _ => Rank(tag, bits.to_le_bytes(), &[]),
        }
    }

    /// Checks that bits of the slot that its value does not use are zero.
    fn unused_bits(&self, container: &Container, index: u32, slot: Slot<'_>) -> Result<()> {
        let bits = container.bits(self.bytes, index).unwrap_or_default();
        let tag = container.tag(self.bytes, index).unwrap_or_default();
        let unused = match slot {
            _ if tag >= tag::HEAP => 0,
            Slot::None | Slot::Bool(_) | Slot::Absent => bits,
            Slot::Date(_) => bits >> 32,
            Slot::Str(text) | Slot::Heap { payload: text, .. } => {
                bits.checked_shr(8 * text.len() as u32).unwrap_or_default()
            }
            _ => 0,
        };
        if unused == 0 { Ok(()) } else { corrupt(Damage::UnusedBits, container.position(index).1) }
    }

    /// Checks that a scalar at the root has no zero bytes at its end, has no bytes at all if its
    /// tag is enough, and is not absent.
    fn root_bits(&self, slot: Slot<'_>) -> Result<()> {
        let payload = self.bytes.get(2..).unwrap_or_default();
        let size_max = match slot {
            Slot::Absent => return corrupt(Damage::Absent, 1),
            Slot::None | Slot::Bool(_) => 0,
            Slot::Date(_) => 4,
            Slot::Int(_) | Slot::Float(_) | Slot::Datetime(_) => 8,
            _ => return Ok(()),
        };
        if payload.len() > size_max || payload.last() == Some(&0) {
            return corrupt(Damage::UnusedBits, 2);
        }
        Ok(())
    }

    /// Checks a value that is not a container (but may be a payload with a container in it).
    fn slot(&mut self, slot: Slot<'_>, place: usize, depth: u32, must_hash: bool) -> Result<()> {
        match slot {
            Slot::Date(ordinal) if !payload::is_date(ordinal) => corrupt(Damage::Range, place),
            Slot::Datetime(value) if payload::datetime(value).is_none() => corrupt(Damage::Range, place),
            Slot::Str(text) if std::str::from_utf8(text).is_err() => corrupt(Damage::Text, place),
            Slot::Heap { tag, payload, offset } => {
                self.payload(tag, payload, offset, depth)?;
                if must_hash && !self.has_hash(tag, payload, offset)? {
                    return corrupt(Damage::Kind, place);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether the Python object of a payload is hashable. For a registered class that is up to the
    /// class.
    fn has_hash(&self, tag: u8, payload: &[u8], offset: u32) -> Result<bool> {
        Ok(match tag {
            tag::BYTEARRAY => false,
            tag::DECIMAL => !matches!(payload, [b's', ..] | [b'-', b's', ..]),
            tag::NDARRAY => {
                payload::ndarray(self.bytes, self.shapes, offset, payload.len() as u32)?.is_scalar
            }
            _ => true,
        })
    }

    fn payload(&mut self, tag: u8, payload: &[u8], offset: u32, depth: u32) -> Result<()> {
        let is_sound = match tag {
            tag::STR_SURROGATES => is_surrogate_text(payload),
            tag::BIGINT => payload::is_bigint(payload),
            tag::DECIMAL => payload::decimal(payload).is_some(),
            tag::COMPLEX => payload::complex(payload).is_some(),
            tag::UUID => payload::uuid(payload).is_some(),
            tag::TIMEDELTA => payload::timedelta(payload).is_some(),
            tag::TIME => payload::time(payload).is_some(),
            tag::AWARE => payload::aware(payload).is_some(),
            tag::OVERFLOW => self.has_overflow && payload::overflow(payload).is_some(),
            tag::NDARRAY => {
                let array = payload::ndarray(self.bytes, self.shapes, offset, payload.len() as u32)?;
                self.container(&array.head, depth, false)? <= array.data_offset
            }
            tag::REGISTERED => {
                let object = payload::registered(self.bytes, self.shapes, offset, payload.len() as u32)?;
                self.container(&object.head, depth, false)?;
                true
            }
            _ => true,
        };
        if is_sound { Ok(()) } else { corrupt(Damage::Payload, offset as usize) }
    }

    /// Checks that no key of a keyed map occurs twice, and that its index is sorted and complete.
    fn keys(&mut self, container: &Container) -> Result<()> {
        let entry_count = container.len();
        let mut keys = Vec::with_capacity(entry_count as usize);
        for entry in 0..entry_count {
            let key = container.slot(self.bytes, self.shapes, 2 * entry)?;
            let canonical = self.key.of(self.bytes, self.shapes, &key)?.to_vec();
            keys.push((keyed::hash(&canonical), canonical, entry));
        }
        keys.sort_unstable();
        for (index, (hash, canonical, entry)) in keys.iter().enumerate() {
            if let Some((_, other, _)) = index.checked_sub(1).and_then(|before| keys.get(before)) {
                // Keys without an order may have equal bytes and still differ: NaN, and tuples with
                // NaN.
                if other == canonical && canonical.first() != Some(&UNORDERED) {
                    return corrupt(Damage::DuplicateKey, container.position(2 * entry).1);
                }
            }
            if entry_count >= INDEX_ENTRY_COUNT_MIN
                && keyed::index_entry(self.bytes, container, index as u32)? != (*hash, *entry)
            {
                return corrupt(Damage::Index, container.index_start() as usize);
            }
        }
        Ok(())
    }
}
