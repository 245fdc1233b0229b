//! Makes rows of the entries of a covering index: an index that has all fields that a query reads.
//!
//! An entry has the values of the index's parts, spelled as in the row, and the row's key. If a
//! query reads nothing else, no row is looked up: each entry becomes a small record, the tuple of
//! its parts. Everything that computes over rows then runs over these records, with expressions
//! that read the tuple ([`over_entries`]). Some entries do not have what the row has: bytes may
//! come from a bytearray, and a complex number or a NumPy scalar is stored as the float that it
//! equals. If an entry has such a part, the rows are read instead.

use pellucid_record::Value;
use pellucid_record::key::{KeyPart, KeyReader, PlainKey, plain_part};
use pellucid_record::layout::{
    BLOCK_SLOTS, Kind as Container, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, root_head, tag,
};
use pellucid_record::value::{NoShapes, encode_value};
use pellucid_store::Row;

use crate::covered_rows::{CoveredRows, PLAIN_SIZE};
use crate::evaluate::reach::key_value;
use crate::expression::{Chain, Expression, Kind, Node, Source, Step};
use crate::index::{EntryParts, Keys};

/// The expression that gives over records of entries what `node` gives over rows. None if it reads
/// something that entries do not have.
#[must_use]
pub fn over_entries(parts: &[(Node, bool)], node: &Node) -> Option<Node> {
    let of_one = |(place, (part, _)): (usize, &(Node, bool))| {
        let rest = if part == node { Some(&[][..]) } else { rest_of(node, part) }?;
        // If a part branches, an entry has only one of its values.
        let place = i64::try_from(place).ok().filter(|_| !part.branches())?;
        Some(std::iter::once(Step::Index(place)).chain(rest.iter().cloned()).collect::<Vec<_>>())
    };
    if let Some(path) = parts.iter().enumerate().filter_map(of_one).min_by_key(Vec::len) {
        return Some(Expression::field(path));
    }
    let one = |node: &Node| over_entries(parts, node);
    let all = |nodes: &Chain| nodes.iter().map(one).collect::<Option<Vec<_>>>();
    let kind = match node.kind() {
        Kind::Field(Source::Record, _) => return None,
        Kind::Field(Source::Key, _) | Kind::Literal(_) => return Some(node.clone()),
        Kind::Compare(comparison, left, right) => Kind::Compare(*comparison, one(left)?, one(right)?),
        Kind::And(parts) => Kind::all(all(parts)?),
        Kind::Or(parts) => Kind::any(all(parts)?),
        Kind::Not(part) => Kind::Not(one(part)?),
        Kind::Arithmetic(operation, left, right) => Kind::Arithmetic(*operation, one(left)?, one(right)?),
        Kind::Negative(part) => Kind::Negative(one(part)?),
        Kind::Between(value, least, greatest) => Kind::Between(one(value)?, one(least)?, one(greatest)?),
        Kind::IsIn(part, values) => Kind::IsIn(one(part)?, values.clone()),
        Kind::Has(part, whole, piece) => Kind::Has(*part, one(whole)?, one(piece)?),
        Kind::Matches(part, pattern) => Kind::Matches(one(part)?, pattern.clone()),
        Kind::Exists(part) => Kind::Exists(one(part)?),
        Kind::IsNone(part) => Kind::IsNone(one(part)?),
        Kind::Call(function, part) => Kind::Call(*function, one(part)?),
    };
    Expression::new(kind).ok()
}

/// The steps that lead from the indexed field to the field that is read in it.
fn rest_of<'a>(node: &'a Expression, part: &Expression) -> Option<&'a [Step]> {
    match (node.kind(), part.kind()) {
        (Kind::Field(Source::Record, path), Kind::Field(Source::Record, field)) => {
            path.strip_prefix(&field[..])
        }
        _ => None,
    }
}

/// The size of a record whose parts fill one block of slots, without a heap.
const RECORD_SIZE_MAX: usize = ROOT_HEAD_SIZE + BLOCK_SLOTS as usize * 9;

/// Makes rows of entries.
#[derive(Clone)]
pub struct EntryReader {
    keys: Keys,
    has_values: bool,
    is_plain: bool,
    /// The record of the entry that was split last, and its size; 0 if it is not made yet.
    record: [u8; RECORD_SIZE_MAX],
    size: usize,
}

impl EntryReader {
    /// A reader of the entries of an index. Without `has_values`, only keys are needed.
    #[must_use]
    pub fn new(keys: Keys, has_values: bool) -> Self {
        let is_plain = keys.count() <= BLOCK_SLOTS as usize;
        let is_plain = is_plain && (0..keys.count()).all(|part| !keys.is_descending(part));
        let mut record = [0; RECORD_SIZE_MAX];
        let head = root_head(Container::Tuple, ROOT_WIDTH_LOG2, 0, keys.count() as u32).to_le_bytes();
        for (byte, own) in record.iter_mut().zip(head) {
            *byte = own;
        }
        Self { keys, has_values, is_plain, record, size: 0 }
    }

    /// Splits an entry, which `add_row` takes next. None if the bytes are no entry.
    #[inline]
    #[must_use]
    pub fn split<'a>(&mut self, entry: &Row<'a>) -> Option<EntryParts<'a>> {
        self.size = 0;
        if self.is_plain
            && entry.spelling.is_empty()
            && let Some(key) = self.plain(entry.key)
        {
            let (parts, key) = entry.key.split_at_checked(entry.key.len() - key.len())?;
            self.size = ROOT_HEAD_SIZE + self.keys.count() * 9;
            return Some(EntryParts { parts, spelling: &[], has_stand_in: false, key, key_spelling: &[] });
        }
        self.keys.split(entry)
    }

    /// Whether one of an entry's parts is a complex number.
    #[inline]
    #[must_use]
    pub fn has_complex(&self, entry: &EntryParts<'_>) -> bool {
        self.keys.has_complex(entry)
    }

    /// Makes the record of parts that are ints and short names, as in most indexes, and returns the
    /// bytes after these parts: the key. None if a part is of another kind.
    #[inline]
    fn plain<'a>(&mut self, entry: &'a [u8]) -> Option<&'a [u8]> {
        let count = self.keys.count();
        // Most indexes have one part.
        if count == 1 {
            let (part, behind) = plain_part(entry)?;
            let record = self.record.first_chunk_mut::<PLAIN_SIZE>()?;
            let (tag, slot) = record.get_mut(ROOT_HEAD_SIZE..)?.split_first_mut()?;
            set_plain(tag, slot.first_chunk_mut()?, part)?;
            return Some(behind);
        }
        let (_, slots) = self.record.split_at_mut_checked(ROOT_HEAD_SIZE)?;
        let (tags, slots) = slots.split_at_mut_checked(count)?;
        let mut rest = entry;
        for (tag, slot) in tags.iter_mut().zip(slots.as_chunks_mut::<8>().0) {
            let (part, behind) = plain_part(rest)?;
            set_plain(tag, slot, part)?;
            rest = behind;
        }
        Some(rest)
    }

    /// Adds the row of an entry. False if the entry does not show what the row has.
    #[inline]
    pub fn add_row(&self, entry: &EntryParts<'_>, rows: &mut CoveredRows) -> bool {
        if !self.has_values {
            rows.push_key(entry.key, entry.key_spelling);
            return true;
        }
        if let (PLAIN_SIZE, Some(record), true) =
            (self.size, self.record.first_chunk(), entry.key_spelling.is_empty())
            && rows.push_plain(entry.key, record)
        {
            return true;
        }
        let fill = |out: &mut Vec<u8>| {
            if self.size > 0 {
                out.extend_from_slice(self.record.get(..self.size).unwrap_or_default());
                return true;
            }
            self.any(entry, out)
        };
        rows.push_with(entry.key, entry.key_spelling, fill)
    }

    /// Makes the record of any parts. False if they do not show what the row has.
    fn any(&self, entry: &EntryParts<'_>, out: &mut Vec<u8>) -> bool {
        let count = self.keys.count();
        if entry.has_stand_in {
            return false;
        }
        let Some(tuple) = self.keys.tuple(entry.parts) else { return false };
        let start = out.len();
        let mut slots = Slots::new(count, out);
        let (mut depth, mut place, mut is_simple) = (0, 0, count <= BLOCK_SLOTS as usize);
        for part in KeyReader::new(&tuple, entry.spelling) {
            match part {
                Ok(KeyPart::BeginTuple) => {
                    is_simple &= depth == 0;
                    depth += 1;
                    continue;
                }
                Ok(KeyPart::EndTuple) => depth -= 1,
                Ok(KeyPart::Bytes(_) | KeyPart::Complex(_)) if depth == 1 => return false,
                Ok(part) if depth == 1 && is_simple => is_simple = slots.set_part(place, &part),
                Ok(_) => {}
                Err(_) => return false,
            }
            place += usize::from(depth == 1);
        }
        if is_simple {
            return true;
        }
        out.truncate(start);
        let Ok(value @ Value::Tuple(_)) = key_value(&tuple, entry.spelling) else { return false };
        let Ok(record) = encode_value(&value, &mut NoShapes) else { return false };
        out.extend_from_slice(&record);
        true
    }
}

/// Sets a slot and its tag. None if the text does not fit a slot.
#[inline]
fn set_plain(tag: &mut u8, slot: &mut [u8; 8], part: PlainKey<'_>) -> Option<()> {
    match part {
        PlainKey::Int(value) => (*tag, *slot) = (tag::INT, value.to_le_bytes()),
        PlainKey::Str(text) => {
            *slot = [0; 8];
            slot.get_mut(..text.len())?.copy_from_slice(text);
            *tag = tag::STR_INLINE + text.len() as u8;
        }
    }
    Some(())
}

/// The slots of a tuple that is being written at the end of a buffer.
struct Slots<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: usize,
}

impl<'a> Slots<'a> {
    #[inline]
    fn new(count: usize, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&root_head(Container::Tuple, ROOT_WIDTH_LOG2, 0, count as u32).to_le_bytes());
        out.resize(start + ROOT_HEAD_SIZE + count + (count << ROOT_WIDTH_LOG2), 0);
        Self { out, start, count }
    }

    #[inline]
    fn set(&mut self, place: usize, tag: u8, bits: u64) {
        let tags = self.start + ROOT_HEAD_SIZE;
        let slots = tags + self.count;
        if let Some(byte) = self.out.get_mut(tags + place) {
            *byte = tag;
        }
        let slot = self.out.get_mut(slots + (place << ROOT_WIDTH_LOG2)..);
        if let Some(slot) = slot.and_then(<[u8]>::first_chunk_mut) {
            *slot = bits.to_le_bytes();
        }
    }

    #[inline]
    fn set_text(&mut self, place: usize, text: &[u8]) {
        let mut inline = [0; 8];
        if let Some(slot) = inline.get_mut(..text.len()) {
            slot.copy_from_slice(text);
            self.set(place, tag::STR_INLINE + text.len() as u8, u64::from_le_bytes(inline));
        } else {
            let offset = self.out.len() - self.start;
            self.set(place, tag::STR, offset as u64 | (text.len() as u64) << 32);
            self.out.extend_from_slice(text);
        }
    }

    /// Sets a value that stands in a slot, or a text. False for other values.
    fn set_part(&mut self, place: usize, part: &KeyPart<'_>) -> bool {
        match part {
            KeyPart::None => self.set(place, tag::NONE, 0),
            KeyPart::Bool(value) => self.set(place, if *value { tag::TRUE } else { tag::FALSE }, 0),
            KeyPart::Int(value) => self.set(place, tag::INT, value.cast_unsigned()),
            KeyPart::Float(value) => self.set(place, tag::FLOAT, value.to_bits()),
            KeyPart::Date(ordinal) => self.set(place, tag::DATE, u64::from(*ordinal)),
            KeyPart::Datetime { local, fold } => {
                self.set(place, tag::DATETIME, (local << 1 | i64::from(*fold)).cast_unsigned());
            }
            KeyPart::Str(text) if std::str::from_utf8(text).is_ok() => self.set_text(place, text),
            _ => return false,
        }
        true
    }
}
