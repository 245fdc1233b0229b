//! What do the entries of an index tell of the rows to which they lead?
//!
//! The values of the index's parts, spelled as in the row, and the row's key. Where a query asks for no more, no row is looked up: each
//! entry becomes a small record, the tuple of its parts, and all that computes over rows runs over these, by expressions that read the
//! tuple ([`told`]). Bytes may be those of a bytearray, and a complex number stands where the float does that it equals: an entry
//! with such a part does not tell, and the rows are read.

use std::ops::ControlFlow;

use pellucid_record::Value;
use pellucid_record::key::{KeyPart, KeyReader, PlainKey, plain_part};
use pellucid_record::layout::{
    BLOCK_SLOTS, Kind as Container, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, root_head, tag,
};
use pellucid_record::value::{NoShapes, encode_value};
use pellucid_store::Row;

use crate::evaluate::reach::key_value;
use crate::expression::{Expression, Kind, Node, Source, Step};
use crate::index::{EntryParts, Keys};
use crate::walk::{Fault, RowKey, Walk};

/// The expression that comes to the same over what entries tell as this one does over rows. None where it reads what they do not tell.
#[must_use]
pub fn told(parts: &[(Node, bool)], node: &Node) -> Option<Node> {
    let of_one = |(place, (part, _)): (usize, &(Node, bool))| {
        let rest = if part == node { Some(&[][..]) } else { rest_of(node, part) }?;
        // Of what branches an entry has one value.
        let place = i64::try_from(place).ok().filter(|_| !part.branches())?;
        Some(std::iter::once(Step::Index(place)).chain(rest.iter().cloned()).collect::<Vec<_>>())
    };
    if let Some(path) = parts.iter().enumerate().filter_map(of_one).min_by_key(Vec::len) {
        return Some(Expression::field(path));
    }
    let one = |node: &Node| told(parts, node);
    let all = |nodes: &[Node]| nodes.iter().map(one).collect::<Option<Vec<_>>>();
    let kind = match node.kind() {
        Kind::Field(Source::Record, _) => return None,
        Kind::Field(Source::Key, _) | Kind::Literal(_) => return Some(node.clone()),
        Kind::Compare(comparison, left, right) => Kind::Compare(*comparison, one(left)?, one(right)?),
        Kind::And(parts) => Kind::And(all(parts)?),
        Kind::Or(parts) => Kind::Or(all(parts)?),
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

/// The steps that lead on from a field to what is read in it.
fn rest_of<'a>(node: &'a Expression, part: &Expression) -> Option<&'a [Step]> {
    match (node.kind(), part.kind()) {
        (Kind::Field(Source::Record, path), Kind::Field(Source::Record, field)) => {
            path.strip_prefix(&field[..])
        }
        _ => None,
    }
}

/// Bytes of the record of as many parts as one block of slots has, without a heap.
const RECORD_SIZE_MAX: usize = ROOT_HEAD_SIZE + BLOCK_SLOTS as usize * 9;

/// Makes rows of entries.
#[derive(Clone)]
pub struct Teller {
    keys: Keys,
    has_values: bool,
    is_plain: bool,
    /// The record of the entry that was taken apart last, and its size; 0 where it has to be made yet.
    record: [u8; RECORD_SIZE_MAX],
    size: usize,
}

impl Teller {
    /// Of the entries of an index; without values, where keys are all that is asked for.
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

    /// Takes an entry apart, which `tell` is given next; None where it is none.
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
            return Some(EntryParts { parts, spelling: &[], key, key_spelling: &[] });
        }
        self.keys.split(entry)
    }

    /// Whether one of an entry's parts is a complex number.
    #[inline]
    #[must_use]
    pub fn has_complex(&self, entry: &EntryParts<'_>) -> bool {
        self.keys.has_complex(entry)
    }

    /// Makes the record of ints and short names, which most indexes have, and gives what is behind these parts: the key. None where a
    /// part is something else.
    #[inline]
    fn plain<'a>(&mut self, entry: &'a [u8]) -> Option<&'a [u8]> {
        let count = self.keys.count();
        let (_, slots) = self.record.split_at_mut_checked(ROOT_HEAD_SIZE)?;
        let (tags, slots) = slots.split_at_mut_checked(count)?;
        let mut rest = entry;
        for (tag, slot) in tags.iter_mut().zip(slots.as_chunks_mut::<8>().0) {
            let (part, behind) = plain_part(rest)?;
            match part {
                PlainKey::Int(value) => (*tag, *slot) = (tag::INT, value.to_le_bytes()),
                PlainKey::Str(text) => {
                    *slot = [0; 8];
                    slot.get_mut(..text.len())?.copy_from_slice(text);
                    *tag = tag::STR_INLINE + text.len() as u8;
                }
            }
            rest = behind;
        }
        Some(rest)
    }

    /// Adds the row of an entry; false where the entry does not tell it.
    #[inline]
    pub fn tell(&self, entry: &EntryParts<'_>, rows: &mut ToldRows) -> bool {
        let start = rows.bytes.len();
        rows.bytes.extend_from_slice(entry.key);
        if !entry.key_spelling.is_empty() {
            rows.bytes.extend_from_slice(entry.key_spelling);
        }
        let record = rows.bytes.len();
        if self.has_values {
            // A size that the compiler knows is copied without a call, and most indexes have one part.
            const OF_ONE: usize = ROOT_HEAD_SIZE + 9;
            if let (OF_ONE, Some(record)) = (self.size, self.record.first_chunk::<OF_ONE>()) {
                rows.bytes.extend_from_slice(record);
            } else if self.size > 0 {
                rows.bytes.extend_from_slice(self.record.get(..self.size).unwrap_or_default());
            } else if !self.any(entry, &mut rows.bytes) {
                rows.bytes.truncate(start);
                return false;
            }
        }
        rows.push(entry.key, start, (entry.key_spelling.len(), rows.bytes.len() - record));
        true
    }

    /// The record of any parts; false where they do not tell it.
    fn any(&self, entry: &EntryParts<'_>, out: &mut Vec<u8>) -> bool {
        let count = self.keys.count();
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

/// The slots of a tuple that is being made, the last thing in some bytes.
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

    /// Sets what stands in a slot, or is a text; false of other values.
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

/// Rows as entries tell them, in memory.
#[derive(Clone)]
pub struct ToldRows {
    /// Of each row its key, the key's spelling and its record.
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// They were added in the order of their keys, each key once.
    is_in_order: bool,
    /// The row that is given next.
    next: usize,
}

impl Default for ToldRows {
    fn default() -> Self {
        Self { bytes: Vec::new(), places: Vec::new(), is_in_order: true, next: 0 }
    }
}

#[derive(Clone, Copy)]
struct Place {
    /// The first bytes of the key, in whose order most rows are.
    prefix: u64,
    start: usize,
    key: u32,
    spelling: u32,
    record: u32,
}

/// The first bytes of a key, as a number that is ordered as they are.
#[inline]
fn prefix_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let unused = 8 * (8 - key.len() as u32);
    match (key.first_chunk(), key.last_chunk()) {
        // They overlap, in what is the same.
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << unused
        }
        _ => (0..8).fold(0, |first, at| first << 8 | u64::from(key.get(at).copied().unwrap_or(0))),
    }
}

impl Place {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start..self.start + self.key as usize).unwrap_or_default()
    }

    #[inline]
    fn row<'a>(&self, bytes: &'a [u8]) -> Row<'a> {
        let all = bytes.get(self.start..).unwrap_or_default();
        let (key, rest) = all.split_at_checked(self.key as usize).unwrap_or_default();
        let (spelling, rest) = rest.split_at_checked(self.spelling as usize).unwrap_or_default();
        Row { key, spelling, record: rest.get(..self.record as usize).unwrap_or_default() }
    }
}

impl ToldRows {
    /// No rows, with room for so many of one part.
    #[must_use]
    pub fn with_room(count: usize) -> Self {
        const SIZE: usize = ROOT_HEAD_SIZE + 9 + 8;
        Self { bytes: Vec::with_capacity(count * SIZE), places: Vec::with_capacity(count), ..Self::default() }
    }

    /// Rows of which nothing but the key is told.
    #[must_use]
    pub fn of_keys(keys: Vec<RowKey>) -> Self {
        let mut rows = Self::default();
        for RowKey { code, spelling } in keys {
            let start = rows.bytes.len();
            rows.bytes.extend_from_slice(&code);
            rows.bytes.extend_from_slice(&spelling);
            rows.push(&code, start, (spelling.len(), 0));
        }
        rows
    }

    /// Adds the row of a key whose bytes begin at `start`, with the sizes of its spelling and its record.
    #[inline]
    fn push(&mut self, key: &[u8], start: usize, (spelling, record): (usize, usize)) {
        // Of the key as it came: to read back what was just written in other pieces took half the time of a row.
        let prefix = prefix_of(key);
        let (key, spelling, record) = (key.len() as u32, spelling as u32, record as u32);
        let place = Place { prefix, start, key, spelling, record };
        if let (true, Some(last)) = (self.is_in_order, self.places.last()) {
            self.is_in_order = last.prefix < prefix
                || last.prefix == prefix && last.key(&self.bytes) < place.key(&self.bytes);
        }
        self.places.push(place);
    }

    /// How many bytes of memory they take.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<Place>()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The one that was added last.
    #[must_use]
    pub fn last(&self) -> Option<Row<'_>> {
        self.places.last().map(|place| place.row(&self.bytes))
    }

    /// Takes the one back that was added last.
    pub fn pop(&mut self) {
        if let Some(place) = self.places.pop() {
            self.bytes.truncate(place.start);
        }
    }

    /// Turns the order round of those from this one on.
    pub fn turn(&mut self, from: usize) {
        self.places.get_mut(from..).unwrap_or_default().reverse();
        self.is_in_order = false;
    }

    /// Adds others behind them.
    pub fn append(&mut self, others: Self) {
        if self.places.is_empty() {
            *self = others;
            return;
        }
        let start = self.bytes.len();
        self.is_in_order = false;
        self.bytes.extend_from_slice(&others.bytes);
        let moved = |place: Place| Place { start: start + place.start, ..place };
        self.places.extend(others.places.into_iter().map(moved));
    }

    /// Leaves the first few out, and takes so many at most of the rest.
    pub fn cut(&mut self, offset: u64, limit: u64) {
        let start = offset.min(self.places.len() as u64) as usize;
        self.places.drain(..start);
        self.places.truncate(limit.min(self.places.len() as u64) as usize);
    }

    /// Brings them in the order of keys, each key once.
    pub fn put_in_order(&mut self) {
        if self.is_in_order {
            return;
        }
        self.is_in_order = true;
        let bytes = &self.bytes;
        // Entries come in runs that are in order, which a stable sort makes use of.
        self.places.sort_by(|one, other| {
            one.prefix.cmp(&other.prefix).then_with(|| one.key(bytes).cmp(other.key(bytes)))
        });
        self.places.dedup_by(|one, other| one.prefix == other.prefix && one.key(bytes) == other.key(bytes));
    }

    /// The row under this key, where they are in the order of keys.
    fn find(&self, key: &[u8]) -> Option<Place> {
        let prefix = prefix_of(key);
        let order = |place: &Place| place.prefix.cmp(&prefix).then_with(|| place.key(&self.bytes).cmp(key));
        self.places.binary_search_by(order).ok().and_then(|found| self.places.get(found).copied())
    }

    /// Brings them, which are in the order of keys, in that of these keys, those alone.
    ///
    /// # Errors
    /// What the keys come with.
    pub fn pick<E>(&mut self, keys: impl Iterator<Item = Result<RowKey, E>>) -> Result<(), E> {
        let mut places = Vec::new();
        for key in keys {
            places.extend(self.find(&key?.code));
        }
        self.places = places;
        Ok(())
    }

    /// Gives the next row to `visit`; None at the end.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        let place = self.places.get(self.next)?;
        self.next += 1;
        Some(visit(place.row(&self.bytes)))
    }
}

impl Walk for ToldRows {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        const COUNT: usize = 64;
        let rest = self.places.get(self.next..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        for place in rest.iter().take(COUNT) {
            self.next += 1;
            if let ControlFlow::Break(value) = visit(place.row(&self.bytes)) {
                return Ok(Some(ControlFlow::Break(value)));
            }
        }
        Ok(Some(ControlFlow::Continue(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_first_bytes() {
        let mut keys: Vec<Vec<u8>> = (0..12).map(|size| (1..=size).collect()).collect();
        keys.extend((0..10).map(|size| vec![0; size]));
        keys.extend([vec![0xFF; 3], vec![0xFF; 7], vec![1, 2, 3, 4, 0xFF], vec![1, 2, 3, 4, 5, 6, 0xFF]]);
        for one in &keys {
            let padded: Vec<u8> = one.iter().copied().chain([0; 8]).take(8).collect();
            assert_eq!(prefix_of(one).to_be_bytes(), padded[..], "{one:?}");
        }
        let row_key = |code: &Vec<u8>| RowKey { code: code.as_slice().into(), spelling: [7].into() };
        let mut rows = ToldRows::of_keys(keys.iter().chain(&keys).map(row_key).collect());
        rows.put_in_order();
        keys.sort();
        keys.dedup();
        assert_eq!(rows.len(), keys.len());
        let mut places = rows.clone();
        for key in &keys {
            assert_eq!(
                places.next(|row| (row.key.to_vec(), row.spelling.to_vec())),
                Some((key.clone(), vec![7]))
            );
            assert!(rows.find(key).is_some() && rows.find(&[&key[..], &[0xEE]].concat()).is_none());
        }
    }
}
