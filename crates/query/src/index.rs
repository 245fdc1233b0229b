//! Computes the entries that a row has in an index.
//!
//! A row has one entry for the values of the index's parts, if all of them can be keys and the
//! index's condition is true. With `each()` it has one for each distinct element. A row has no
//! entry if a part is missing or holds a value that cannot be a key (a dict, a list, NaN): no
//! comparison finds it either. [`Keys`] splits entries into values and keys, and makes the codes of
//! values that are looked for.

use std::fmt;
use std::ops::Bound;

use pellucid_record::key::{
    KeyEncoder, KeyPart, KeyReader, may_have_complex, parts_as_tuple, parts_size, push_part, split_spellings,
    split_stand_in,
};
use pellucid_record::{Corrupt, Shapes};
use pellucid_store::{Derive, Derived, Deriver, Range, Row, range_of_parts};

use crate::code::push_found;
use crate::evaluate::Evaluator;
use crate::evaluate::found::Found;
use crate::expression::{IndexParts, Kind, Node, Source, parse_index};
use crate::walk::RowKey;

/// The parsed definition of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The expressions that its entries are ordered by, each with whether it is descending.
    pub parts: Vec<(Node, bool)>,
    /// The condition on rows that have entries; `None`: all rows have them.
    pub condition: Option<Node>,
}

impl fmt::Display for Definition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (node, is_descending)) in self.parts.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(out, "{separator}{node}{}", if *is_descending { " desc" } else { "" })?;
        }
        match &self.condition {
            Some(condition) => write!(out, " where {condition}"),
            None => Ok(()),
        }
    }
}

impl Definition {
    /// Makes a definition of its parts, or says why they cannot be one.
    ///
    /// # Errors
    /// There is no part, one that reads nothing, or more than one with `each()`.
    pub fn new((parts, condition): IndexParts) -> Result<Self, String> {
        if parts.is_empty() {
            return Err("it needs a part: an expression over the fields of a record, as F.age".to_owned());
        }
        if let Some((node, _)) = parts.iter().find(|(node, _)| !reads(node)) {
            return Err(format!(
                "{node} is a constant, and an index over it has all rows in one place; name a field, as F.age"
            ));
        }
        if parts.iter().filter(|(node, _)| node.branches()).count() > 1 {
            return Err(
                "two of its parts have each(), which would be an entry for each pair of elements; make two indexes"
                    .to_owned(),
            );
        }
        Ok(Self { parts, condition })
    }

    /// Parses the text of a definition.
    ///
    /// # Errors
    /// The text is no definition; the error says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::new(parse_index(text).map_err(|error| error.to_string())?)
    }

    /// Whether a row may have more than one entry.
    #[must_use]
    pub fn branches(&self) -> bool {
        self.parts.iter().any(|(node, _)| node.branches())
    }
}

fn reads(node: &Node) -> bool {
    matches!(node.kind(), Kind::Field(..)) || node.kind().parts().into_iter().any(reads)
}

/// Prepares definitions for computing entries; a store is opened with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expressions;

impl Deriver for Expressions {
    fn prepare(&self, definition: &str) -> Result<Box<dyn Derive>, String> {
        let definition = Definition::parse(definition)?;
        let mut parts = Vec::with_capacity(definition.parts.len());
        for (node, is_descending) in &definition.parts {
            let evaluator = Evaluator::new(node).map_err(|error| error.to_string())?;
            let is_field = matches!(node.kind(), Kind::Field(Source::Record, _)) && !node.branches();
            parts.push(Part { evaluator, is_field, is_descending: *is_descending });
        }
        let condition = definition.condition.as_ref().map(|node| Evaluator::new(node)).transpose();
        Ok(Box::new(Entries {
            descending: parts.iter().map(|part| part.is_descending).collect(),
            parts,
            condition: condition.map_err(|error| error.to_string())?,
            encoder: KeyEncoder::new(),
        }))
    }
}

#[derive(Clone)]
struct Part {
    evaluator: Evaluator,
    /// Whether the part is a field of the row, of which an entry has the value itself.
    is_field: bool,
    is_descending: bool,
}

#[derive(Clone)]
struct Entries {
    parts: Vec<Part>,
    descending: Box<[bool]>,
    condition: Option<Evaluator>,
    encoder: KeyEncoder,
}

impl Derive for Entries {
    fn derive(&mut self, row: &Row<'_>, shapes: &dyn Shapes, entries: &mut Derived) -> Result<(), Corrupt> {
        if let Some(condition) = &mut self.condition
            && !condition.is_true(row, shapes)?
        {
            return Ok(());
        }
        self.encoder.clear_for_parts();
        descend(&mut self.parts, (row, false), shapes, &mut self.encoder, entries)
    }

    fn parts_size(&self, code: &[u8]) -> Option<usize> {
        parts_size(code, &self.descending)
    }

    fn again(&self) -> Box<dyn Derive> {
        Box::new(self.clone())
    }
}

/// Adds an entry for each value of the first part, followed by all values of the other parts.
/// `has_stand_in`: the value of an earlier part is not the one in the row.
fn descend(
    parts: &mut [Part],
    (row, has_stand_in): (&Row<'_>, bool),
    shapes: &dyn Shapes,
    encoder: &mut KeyEncoder,
    entries: &mut Derived,
) -> Result<(), Corrupt> {
    let Some((part, rest)) = parts.split_first_mut() else {
        if has_stand_in {
            encoder.spell_stand_in();
        }
        entries.push(encoder.parts(), encoder.spelling());
        return Ok(());
    };
    let (is_descending, is_field) = (part.is_descending, part.is_field);
    part.evaluator.visit(row, shapes, &mut |found| {
        let mark = encoder.mark();
        let mut damage = None;
        let is_pushed = push_part(encoder, is_descending, |encoder| {
            push_found(encoder, &found, shapes).unwrap_or_else(|error| {
                damage = Some(error);
                false
            })
        });
        if let Some(error) = damage {
            return Err(error);
        }
        if is_pushed {
            // A field that is found as an owned value is a NumPy scalar. Its code is that of the
            // value that it equals.
            let is_stand_in = is_field && matches!(found, Found::Value(_));
            descend(rest, (row, has_stand_in || is_stand_in), shapes, encoder, entries)?;
        }
        encoder.reset(mark);
        Ok(false)
    })?;
    Ok(())
}

/// The directions of an index's parts. It splits the index's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    descending: Box<[bool]>,
}

/// An entry, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryParts<'a> {
    /// The codes of the parts.
    pub parts: &'a [u8],
    /// The spelling of the parts.
    pub spelling: &'a [u8],
    /// Whether a part is not the value in the row but the one that this equals: it stands for a
    /// NumPy scalar.
    pub has_stand_in: bool,
    /// The code of the row's key.
    pub key: &'a [u8],
    /// The spelling of the row's key.
    pub key_spelling: &'a [u8],
}

impl Keys {
    /// The keys of a definition.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        Self { descending: definition.parts.iter().map(|(_, is_descending)| *is_descending).collect() }
    }

    /// How many parts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.descending.len()
    }

    /// Whether this part is descending.
    #[must_use]
    pub fn is_descending(&self, part: usize) -> bool {
        self.descending.get(part).copied().unwrap_or(false)
    }

    /// Splits a row of the index. `None` if it is no entry.
    #[inline]
    #[must_use]
    pub fn split<'a>(&self, row: &Row<'a>) -> Option<EntryParts<'a>> {
        let size = parts_size(row.key, &self.descending)?;
        let (parts, key) = row.key.split_at_checked(size)?;
        let (spelling, key_spelling) = split_spellings(row.spelling)?;
        let (spelling, has_stand_in) = split_stand_in(spelling);
        Some(EntryParts { parts, spelling, has_stand_in, key, key_spelling })
    }

    /// The key of an entry's row.
    #[must_use]
    pub fn row_key(&self, entry: &Row<'_>) -> Option<RowKey> {
        self.split(entry).map(|parts| RowKey::new(parts.key, parts.key_spelling))
    }

    /// Whether one of an entry's parts is a complex number: it has the code of the float that it
    /// equals, but no order.
    #[inline]
    #[must_use]
    pub fn has_complex(&self, entry: &EntryParts<'_>) -> bool {
        may_have_complex(entry.spelling) && self.finds_complex(entry)
    }

    #[cold]
    fn finds_complex(&self, entry: &EntryParts<'_>) -> bool {
        self.tuple(entry.parts).is_none() || !self.complex_parts(entry.parts, entry.spelling).is_empty()
    }

    /// The places of the parts that are complex numbers, or have one in them.
    #[must_use]
    pub fn complex_parts(&self, parts: &[u8], spelling: &[u8]) -> Vec<usize> {
        let (tuple, (spelling, _)) = (self.tuple(parts).unwrap_or_default(), split_stand_in(spelling));
        let (mut found, mut depth, mut place) = (Vec::new(), 0_usize, 0);
        // The parts stand in a tuple of their own.
        for part in KeyReader::new(&tuple, spelling).map_while(Result::ok) {
            match part {
                KeyPart::BeginTuple => depth += 1,
                KeyPart::EndTuple => depth = depth.saturating_sub(1),
                KeyPart::Complex(_) => found.push(place),
                _ => {}
            }
            place += usize::from(depth == 1 && !matches!(part, KeyPart::BeginTuple));
        }
        found
    }

    /// The code of the tuple of an entry's parts, which has their spelling. `None` if the bytes are
    /// no parts.
    #[must_use]
    pub fn tuple(&self, parts: &[u8]) -> Option<Vec<u8>> {
        parts_as_tuple(parts, &self.descending)
    }
}

/// The range of entries that begin with these parts.
#[must_use]
pub fn beginning_with(parts: &[u8]) -> Range {
    if parts.is_empty() {
        return Range::ALL;
    }
    range_of_parts(parts)
}

/// The range of entries from those of `start` on, below those of `stop`. Both are leading parts, in
/// the order of the index.
#[must_use]
pub fn between(start: Option<Vec<u8>>, stop: Option<Vec<u8>>) -> Range {
    Range {
        start: start.map_or(Bound::Unbounded, Bound::Included),
        end: stop.map_or(Bound::Unbounded, Bound::Excluded),
    }
}

/// The range of entries whose first part is descending, and is a text or a tuple that begins as
/// this key does.
#[must_use]
pub fn turned_prefix(key: &[u8], is_tuple: bool) -> Range {
    // Without the byte that ends it.
    let open = key.split_last().map_or(key, |(_, open)| open);
    let turned: Vec<u8> = std::iter::once(0).chain(open.iter().map(|byte| !byte)).collect();
    let end = successor(turned.clone());
    let mut start = turned;
    if is_tuple {
        // A byte FE or FF after it begins another element: inverted, these are 01 and 00.
        start.push(0x02);
    }
    Range::half_open(start, end)
}

/// The least bytes that come after all bytes that begin with these, which begin a part.
pub(crate) fn successor(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0xFF) {
        bytes.pop();
    }
    // The first byte of a part is never FF.
    if let Some(byte) = bytes.last_mut() {
        *byte += 1;
    }
    bytes
}
