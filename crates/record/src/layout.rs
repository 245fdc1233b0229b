//! The layout of records: every tag, size and limit of `docs/format.md`, and the arithmetic of
//! slots.
//!
//! Reading the parts is in `view.rs`, writing them in `encode/`.

/// The low nibble of a root's first byte.
pub const FORMAT_VERSION: u8 = 1;

/// A root's head: one u64.
pub const ROOT_HEAD_SIZE: usize = 8;
/// The head of a nested shaped dict: width and kind, u24 shape id.
pub const NESTED_SHAPED_HEAD_SIZE: usize = 4;
/// Two bytes before the payload of a scalar at the root: kind and version, tag.
pub const SCALAR_HEAD_SIZE: usize = 2;
/// The data of an array lies at a multiple of this many bytes, where the writer knows its place.
pub const ARRAY_ALIGNMENT: usize = 64;
/// The fixed part of an envelope, before its tables.
pub const ENVELOPE_HEAD_SIZE: usize = 16;
/// The first byte of an envelope.
pub const ENVELOPE_BYTE: u8 = 15 << 4 | FORMAT_VERSION;
/// The first byte of a scalar at the root.
pub const SCALAR_BYTE: u8 = 9 << 4 | FORMAT_VERSION;
/// The first byte of a cell, which the store writes before a record.
pub const CELL_BYTE: u8 = 14 << 4 | FORMAT_VERSION;

/// Slots in one block.
pub const BLOCK_SLOTS: u32 = 8;
/// log2 of the slot width of every root that is not packed.
pub const ROOT_WIDTH_LOG2: u8 = 3;
/// Bytes of one entry of a keyed map's index: u32 hash, u32 entry index.
pub const INDEX_ENTRY_SIZE: usize = 8;
/// A keyed map with fewer entries has no index and is searched from first to last.
pub const INDEX_ENTRY_COUNT_MIN: u32 = 9;
/// Strings and bytes up to this size are stored in a root's slot.
pub const ROOT_INLINE_SIZE_MAX: usize = 8;
/// Strings and bytes up to this size are stored in a nested container's slot.
pub const NESTED_INLINE_SIZE_MAX: usize = 1;

/// Containers nest at most this deep; the root counts.
pub const DEPTH_MAX: u32 = 64;
/// A record is smaller than 4 GiB, so that u32 reaches every byte of it.
pub const RECORD_SIZE_MAX: usize = u32::MAX as usize;
/// Shape ids are below this, since a nested head has 24 bits for them.
pub const SHAPE_ID_END: u32 = 1 << 24;
/// Names in one shape.
pub const SHAPE_NAME_COUNT_MAX: usize = 512;
/// Bytes of one name in a shape.
pub const SHAPE_NAME_SIZE_MAX: usize = 64;
/// Shapes that one table may add.
pub const TABLE_SHAPE_COUNT_MAX: u32 = 1_024;
/// Shapes in one database.
pub const DATABASE_SHAPE_COUNT_MAX: u32 = 65_536;
/// Shapes in one envelope.
pub const ENVELOPE_SHAPE_COUNT_MAX: usize = 1_024;
/// Names in one envelope: its head has 16 bits for the count.
pub const ENVELOPE_KEY_COUNT_MAX: usize = u16::MAX as usize;
/// Root shapes that a table admits at their first sighting.
pub const ROOT_SHAPE_COUNT_AT_ONCE: u32 = 16;
/// The sighting at which any other key list becomes a shape.
pub const ADMISSION_SIGHTING: u8 = 3;

/// The ordinal of 9999-12-31; 0001-01-01 is 1.
pub const DATE_ORDINAL_MAX: u32 = 3_652_059;
/// Microseconds in a day.
pub const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Days that a timedelta has at most, in either direction.
pub const TIMEDELTA_DAYS_MAX: i32 = 999_999_999;

/// The byte before each slot that tells the type of its value.
pub mod tag {
    /// The field was deleted in place.
    pub const ABSENT: u8 = 0x00;
    /// None.
    pub const NONE: u8 = 0x01;
    /// False.
    pub const FALSE: u8 = 0x02;
    /// True.
    pub const TRUE: u8 = 0x03;
    /// A signed int of the slot's width.
    pub const INT: u8 = 0x04;
    /// An IEEE double.
    pub const FLOAT: u8 = 0x05;
    /// A date: its proleptic Gregorian ordinal.
    pub const DATE: u8 = 0x06;
    /// A naive datetime: microseconds since 0001-01-01T00:00 times 2, plus fold.
    pub const DATETIME: u8 = 0x07;
    /// Plus k: a string of k bytes in the slot.
    pub const STR_INLINE: u8 = 0x10;
    /// The longest string in a slot.
    pub const STR_INLINE_LAST: u8 = 0x18;
    /// Plus k: bytes of k bytes in the slot.
    pub const BYTES_INLINE: u8 = 0x20;
    /// The longest bytes in a slot.
    pub const BYTES_INLINE_LAST: u8 = 0x28;
    /// Tags from here on refer to the heap.
    pub const HEAP: u8 = 0x40;
    /// A string.
    pub const STR: u8 = 0x40;
    /// A string with lone surrogates, which are encoded as if they were characters.
    pub const STR_SURROGATES: u8 = 0x41;
    /// Bytes.
    pub const BYTES: u8 = 0x42;
    /// A bytearray.
    pub const BYTEARRAY: u8 = 0x43;
    /// An int beyond 64 bits: two's complement, little-endian, as short as it goes.
    pub const BIGINT: u8 = 0x44;
    /// A Decimal: its text.
    pub const DECIMAL: u8 = 0x45;
    /// A complex number: two doubles.
    pub const COMPLEX: u8 = 0x46;
    /// A UUID: 16 bytes, big-endian.
    pub const UUID: u8 = 0x47;
    /// A timedelta: i32 days, u32 seconds, u32 microseconds.
    pub const TIMEDELTA: u8 = 0x48;
    /// A time, with a zone if aware.
    pub const TIME: u8 = 0x49;
    /// An aware datetime.
    pub const AWARE: u8 = 0x4A;
    /// A `NumPy` array or scalar.
    pub const NDARRAY: u8 = 0x4B;
    /// An object of a registered class.
    pub const REGISTERED: u8 = 0x4C;
    /// A pickle.
    pub const PICKLE: u8 = 0x4D;
    /// A value that is stored apart, in the database's blobs.
    pub const OVERFLOW: u8 = 0x4E;
    /// A nested container.
    pub const CONTAINER: u8 = 0x50;
}

/// The kinds of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A dict whose keys are a shape's names.
    Shaped = 1,
    /// A dict with its keys in the record.
    Keyed = 2,
    /// A list.
    List = 3,
    /// A tuple.
    Tuple = 4,
    /// A set.
    Set = 5,
    /// A frozenset.
    FrozenSet = 6,
    /// A list of ints without tags.
    PackedInts = 7,
    /// A list of floats without tags.
    PackedFloats = 8,
}

impl Kind {
    /// The kind with this number, if it is a container's.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Shaped,
            2 => Kind::Keyed,
            3 => Kind::List,
            4 => Kind::Tuple,
            5 => Kind::Set,
            6 => Kind::FrozenSet,
            7 => Kind::PackedInts,
            8 => Kind::PackedFloats,
            _ => return None,
        })
    }

    /// Whether its elements have no tags.
    #[inline]
    #[must_use]
    pub const fn is_packed(self) -> bool {
        matches!(self, Kind::PackedInts | Kind::PackedFloats)
    }

    /// Whether it is a dict.
    #[inline]
    #[must_use]
    pub const fn is_dict(self) -> bool {
        matches!(self, Kind::Shaped | Kind::Keyed)
    }

    /// The first byte of a root of this kind.
    #[inline]
    #[must_use]
    pub const fn root_byte(self) -> u8 {
        (self as u8) << 4 | FORMAT_VERSION
    }
}

/// The whole head of a root, as the u64 that a reader compares. For a shaped dict `count` is the
/// number of the shape's names and `shape` its id. For any other kind `count` is 0 and `shape` is
/// the number of elements or entries.
#[inline]
#[must_use]
pub const fn root_head(kind: Kind, width_log2: u8, count: u16, shape: u32) -> u64 {
    kind.root_byte() as u64 | (width_log2 as u64) << 8 | (count as u64) << 16 | (shape as u64) << 32
}

/// The offsets of the tag and the slot of `index`, counted from the first block: `(tag offset, slot
/// offset)`.
///
/// `index` must be below `slot_count`. The caller has checked that all slots lie in the record, so
/// nothing overflows.
///
/// ```
/// use pellucid_record::layout::slot_position;
/// // Ten slots of 8 bytes: one block of 8 tags and 8 slots, then a last one of 2 tags and 2 slots.
/// assert_eq!(slot_position(10, 3, 0), (0, 8));
/// assert_eq!(slot_position(10, 3, 9), (73, 82));
/// ```
#[inline]
#[must_use]
pub const fn slot_position(slot_count: u32, width_log2: u8, index: u32) -> (usize, usize) {
    debug_assert!(index < slot_count);
    let first = index & !(BLOCK_SLOTS - 1);
    let within = (index % BLOCK_SLOTS) as usize;
    let rest = slot_count.wrapping_sub(first);
    let tags = if rest < BLOCK_SLOTS { rest } else { BLOCK_SLOTS } as usize;
    let block = (first as usize) + ((first as usize) << width_log2);
    (block + within, block + tags + (within << width_log2))
}

/// The size of `slot_count` slots, tags included.
#[inline]
#[must_use]
pub const fn slots_size(slot_count: u32, width_log2: u8) -> u64 {
    slot_count as u64 + ((slot_count as u64) << width_log2)
}

/// The size of the index of a keyed map with `entry_count` entries.
#[inline]
#[must_use]
pub const fn index_size(entry_count: u32) -> u64 {
    if entry_count < INDEX_ENTRY_COUNT_MIN { 0 } else { entry_count as u64 * INDEX_ENTRY_SIZE as u64 }
}

/// The size of `value` as a varint.
#[inline]
#[must_use]
pub const fn varint_size(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

/// Appends `value` as a varint.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a varint at `offset`. Returns the value and the offset after it. `None` if the bytes end,
/// if it is not in its shortest form, or if it has more than 32 bits.
#[inline]
#[must_use]
pub fn read_varint(bytes: &[u8], offset: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(offset)?;
    if first < 0x80 {
        return Some((u32::from(first), offset + 1));
    }
    read_long_varint(bytes, offset)
}

fn read_long_varint(bytes: &[u8], offset: usize) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (count, byte) in bytes.get(offset..)?.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * count);
        if *byte < 0x80 {
            // A last byte of zero adds nothing: there is a shorter form.
            return if *byte == 0 { None } else { Some((u32::try_from(value).ok()?, offset + count + 1)) };
        }
    }
    None
}

const _: () = assert!(ROOT_HEAD_SIZE == size_of::<u64>(), "a root's head is one u64");
const _: () = assert!(SHAPE_NAME_COUNT_MAX <= u16::MAX as usize, "a root's head has 16 bits for the count");
const _: () = assert!(tag::STR_INLINE_LAST - tag::STR_INLINE == ROOT_INLINE_SIZE_MAX as u8);
const _: () = assert!(tag::BYTES_INLINE_LAST - tag::BYTES_INLINE == ROOT_INLINE_SIZE_MAX as u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_container_neither_overlap_nor_leave_gaps() {
        for width_log2 in 0..4u8 {
            for slot_count in 1..40 {
                let mut taken = vec![false; slots_size(slot_count, width_log2) as usize];
                for index in 0..slot_count {
                    let (tag, slot) = slot_position(slot_count, width_log2, index);
                    for at in std::iter::once(tag).chain(slot..slot + (1 << width_log2)) {
                        assert!(
                            !std::mem::replace(&mut taken[at], true),
                            "{slot_count} slots: byte {at} twice"
                        );
                    }
                }
                assert!(taken.iter().all(|byte| *byte));
            }
        }
    }

    #[test]
    fn varints_come_back_and_only_in_their_shortest_form() {
        for value in [0, 1, 127, 128, 16383, 16384, 0x1F_FFFF, 0x20_0000, 0xFFF_FFFF, 0x1000_0000, u32::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_size(value));
            assert_eq!(read_varint(&bytes, 0), Some((value, bytes.len())));
            assert_eq!(read_varint(&bytes[..bytes.len() - 1], 0), None);
        }
        assert_eq!(read_varint(&[0x80, 0x00], 0), None);
        assert_eq!(read_varint(&[0xFF, 0xFF, 0xFF, 0xFF, 0x1F], 0), None);
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], 0), None);
    }
}
