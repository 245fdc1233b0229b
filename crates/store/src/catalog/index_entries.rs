//! The catalog entry of an index.
//!
//! ```text
//! "i" + u32 table id + name   u32 id, u8 flags: 1 unique | 2 building,
//!                             u32 size of the definition, definition,
//!                             if building: u32 id of the notes, u64 builder, u64 rows done, u8 2,
//!                             u64 rows put, then `from`, `upto` and `place` of `Building`,
//!                             each: u32 size and 1 | 0, bytes
//! ```
//!
//! The definition is a text that the `Deriver` understands. An entry `t` of the index's id
//! has the count of its entries. Ids in keys are big-endian, everything else is little-endian.

use crate::catalog::{self, CatalogError, Fields, INDEX, sealed, unsealed};
use crate::engine::{Contents, Direction, Start, Tree};
use crate::row_key::TableId;

const IS_UNIQUE: u8 = 1;
const IS_BUILDING: u8 = 2;
const IS_EXACT: u8 = 2;

/// What is known of an index without reading its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// The id under which its entries are stored.
    pub id: TableId,
    /// The table that it indexes.
    pub table: TableId,
    /// Its name, within the table.
    pub name: Box<str>,
    /// The definition of its entries, as a text that the deriver understands.
    pub definition: Box<str>,
    /// Whether no two rows may have the same parts.
    pub is_unique: bool,
    /// How far it has been built. `None` if it has all rows.
    pub building: Option<Building>,
}

/// The progress of an index that does not have all rows yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Building {
    /// The id of the notes: the keys of rows that were written since the build began.
    pub notes: TableId,
    /// The process that builds it: PID and start time as one number; 0 if none does.
    pub builder: u64,
    /// How many rows are done: their entries are put, except those of noted rows.
    pub done: u64,
    /// How many rows of the current round count as done. An estimate by the entries put so far,
    /// since these are put in index order.
    pub put: u64,
    /// The exact progress. `None` if an older release began the build without it; then all entries
    /// are put again.
    pub exact: Option<Reached>,
}

/// The progress of a build. Entries are put round by round, those of each round in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The key of the last row of the earlier rounds. `None` in the first round.
    pub from: Option<Vec<u8>>,
    /// The key of the last row of this round. `None` if not known yet; then no entry of the round
    /// has been put.
    pub upto: Option<Vec<u8>>,
    /// The code of the last entry of this round that was put.
    pub place: Option<Vec<u8>>,
}

impl IndexInfo {
    pub(crate) fn key(&self) -> Vec<u8> {
        key_of(self.table, &self.name)
    }

    pub(crate) fn entry(&self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key();
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        let building = if self.building.is_some() { IS_BUILDING } else { 0 };
        bytes.push(if self.is_unique { IS_UNIQUE } else { 0 } | building);
        bytes.extend_from_slice(&(self.definition.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.definition.as_bytes());
        if let Some(building) = &self.building {
            bytes.extend_from_slice(&building.notes.0.to_le_bytes());
            bytes.extend_from_slice(&building.builder.to_le_bytes());
            bytes.extend_from_slice(&building.done.to_le_bytes());
            if let Some(reached) = &building.exact {
                bytes.push(IS_EXACT);
                bytes.extend_from_slice(&building.put.to_le_bytes());
                for place in [&reached.from, &reached.upto, &reached.place] {
                    let size = place.as_ref().map_or(0, |place| place.len() as u32 + 1);
                    bytes.extend_from_slice(&size.to_le_bytes());
                    bytes.extend_from_slice(place.as_deref().unwrap_or_default());
                }
            } else {
                bytes.push(0);
            }
        }
        let value = sealed(&key, bytes);
        (key, value)
    }

    pub(crate) fn parse(key: &[u8], body: &[u8]) -> Option<Self> {
        let (table, name) = key.strip_prefix(&[INDEX])?.split_first_chunk()?;
        let mut fields = Fields(body);
        let (id, [flags], size) = (TableId(fields.u32()?), fields.take()?, fields.u32()?);
        let (definition, rest) = fields.0.split_at_checked(size as usize)?;
        if flags & !(IS_UNIQUE | IS_BUILDING) != 0 {
            return None;
        }
        let mut fields = Fields(rest);
        let building = if flags & IS_BUILDING == 0 {
            None
        } else {
            let (notes, builder, done) = (TableId(fields.u32()?), fields.u64()?, fields.u64()?);
            let (mut put, mut exact) = (0, None);
            match fields.take()? {
                [0] => {}
                // A place without its round: of no use.
                [1] => fields.0 = &[],
                [IS_EXACT] => {
                    put = fields.u64()?;
                    exact = Some(Reached::parse(&mut fields)?);
                }
                _ => return None,
            }
            Some(Building { notes, builder, done, put, exact })
        };
        fields.0.is_empty().then_some(Self {
            id,
            table: TableId(u32::from_be_bytes(*table)),
            name: std::str::from_utf8(name).ok()?.into(),
            definition: std::str::from_utf8(definition).ok()?.into(),
            is_unique: flags & IS_UNIQUE != 0,
            building,
        })
    }
}

impl Reached {
    fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let mut reached = Self::default();
        for place in [&mut reached.from, &mut reached.upto, &mut reached.place] {
            if let Some(size) = (fields.u32()? as usize).checked_sub(1) {
                let (bytes, rest) = fields.0.split_at_checked(size)?;
                *place = Some(bytes.to_vec());
                fields.0 = rest;
            }
        }
        Some(reached)
    }
}

/// The catalog key of an index with this name.
pub(crate) fn key_of(table: TableId, name: &str) -> Vec<u8> {
    let table = table.0.to_be_bytes();
    [&[INDEX], &table[..], name.as_bytes()].concat()
}

/// The index with this name.
pub(crate) fn index_of(
    source: &dyn Contents,
    table: TableId,
    name: &str,
) -> Result<Option<IndexInfo>, CatalogError> {
    let key = key_of(table, name);
    catalog::read(source, &key, |body| IndexInfo::parse(&key, body))
}

/// All indexes of a table, by name.
pub(crate) fn indexes_of(source: &dyn Contents, table: TableId) -> Result<Vec<IndexInfo>, CatalogError> {
    walk(source, &key_of(table, ""))
}

/// All indexes of the database, by table and name.
pub(crate) fn all_indexes(source: &dyn Contents) -> Result<Vec<IndexInfo>, CatalogError> {
    walk(source, &[INDEX])
}

fn walk(source: &dyn Contents, prefix: &[u8]) -> Result<Vec<IndexInfo>, CatalogError> {
    let mut cursor = source.cursor(Tree::Meta)?;
    cursor.start(Start::At(prefix), Direction::Forward)?;
    let mut indexes = Vec::new();
    while let Some((key, bytes)) = cursor.step()?.filter(|(key, _)| key.starts_with(prefix)) {
        let info = unsealed(key, bytes).and_then(|body| IndexInfo::parse(key, body));
        indexes.push(info.ok_or_else(|| catalog::damaged(key))?);
    }
    Ok(indexes)
}
