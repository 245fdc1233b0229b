//! What does the catalog say of an index?
//!
//! ```text
//! "i" + u32 table id + name   u32 id, u8 flags: 1 unique | 2 building, u32 size of the definition, definition,
//!                             where building: u32 id of the notes, u64 builder, u64 rows done, u8 whether there is a place, place
//! ```
//!
//! The definition is a text that the [`super::Deriver`] understands. Its entries are counted by an entry `t` of the index's id. Ids in
//! keys are big-endian, everything else little-endian.

use crate::catalog::{self, CatalogError, Fields, INDEX, Source, sealed, unsealed};
use crate::engine::{Direction, Start};
use crate::row_key::TableId;

const IS_UNIQUE: u8 = 1;
const IS_BUILDING: u8 = 2;

/// What is known of an index without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// The id under which its entries lie.
    pub id: TableId,
    /// The table whose rows it has.
    pub table: TableId,
    /// Its name, within the table.
    pub name: Box<str>,
    /// What its entries are made of, as a text that the deriver understands.
    pub definition: Box<str>,
    /// Whether no two rows may have the same parts.
    pub is_unique: bool,
    /// How far it has been built; `None` where it has all rows.
    pub building: Option<Building>,
}

/// An index that has not all rows yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Building {
    /// The id under which the keys of rows are noted that were written since it began.
    pub notes: TableId,
    /// Who builds it: a process and its begin, as one number; 0 when nobody does.
    pub builder: u64,
    /// The code of the last entry that was put; `None` at the begin.
    pub place: Option<Vec<u8>>,
    /// How many rows were taken in.
    pub done: u64,
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
            bytes.push(u8::from(building.place.is_some()));
            bytes.extend_from_slice(building.place.as_deref().unwrap_or_default());
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
            let place = match fields.take()? {
                [0] => None,
                [1] => Some(std::mem::take(&mut fields.0).to_vec()),
                _ => return None,
            };
            Some(Building { notes, builder, place, done })
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

/// The key in the catalog of an index of this name.
pub(crate) fn key_of(table: TableId, name: &str) -> Vec<u8> {
    let table = table.0.to_be_bytes();
    [&[INDEX], &table[..], name.as_bytes()].concat()
}

/// The index of this name.
pub(crate) fn index_of(
    source: &(impl Source + ?Sized),
    table: TableId,
    name: &str,
) -> Result<Option<IndexInfo>, CatalogError> {
    let key = key_of(table, name);
    catalog::read(source, &key, |body| IndexInfo::parse(&key, body))
}

/// All indexes of a table, by name.
pub(crate) fn indexes_of(
    source: &(impl Source + ?Sized),
    table: TableId,
) -> Result<Vec<IndexInfo>, CatalogError> {
    walk(source, &key_of(table, ""))
}

/// All indexes there are, by table and name.
pub(crate) fn all_indexes(source: &(impl Source + ?Sized)) -> Result<Vec<IndexInfo>, CatalogError> {
    walk(source, &[INDEX])
}

fn walk(source: &(impl Source + ?Sized), prefix: &[u8]) -> Result<Vec<IndexInfo>, CatalogError> {
    let mut cursor = source.walk()?;
    cursor.start(Start::At(prefix), Direction::Forward)?;
    let mut indexes = Vec::new();
    while let Some((key, bytes)) = cursor.step()?.filter(|(key, _)| key.starts_with(prefix)) {
        let info = unsealed(key, bytes).and_then(|body| IndexInfo::parse(key, body));
        indexes.push(info.ok_or_else(|| catalog::damaged(key))?);
    }
    Ok(indexes)
}
