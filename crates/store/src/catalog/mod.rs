//! The catalog: what a database stores about itself.
//!
//! ```text
//! "h"                 header     u16 format, u16 oldest reader's format, u32 key limit,
//!                                16 bytes identity; then for each table of which the row with the
//!                                greatest number was deleted: u32 table id, i64 next int
//! "c"                 counters   u64 version, u32 next table id, u32 shape count,
//!                                u64 next blob id
//! "a"                 applied    u64 position in the log, u64 sequence number,
//!                                u64 version of the tree
//! "k"                 keep       u64 bytes of changes to keep, u64 seconds;
//!                                if it is missing none are kept
//! "g" + ...           history    changes that are kept: `wal/history.rs`
//! "n" + table name    name       u32 table id
//! "t" + u32 table id  table      u64 rows, u32 shapes admitted,
//!                                u32 serial of its indexes, missing if it has none
//! "i" + ...           index      `catalog/index_entries.rs`; has an entry "t" of its own, for its entries
//! "s" + u32 shape id  shape      for each name: size varint, UTF-8
//! "z", "p", "d" + ... compressed tables: `catalog/pack_entries.rs`
//! ```
//!
//! These are the entries of the engine's tree `meta`. Ids in keys are big-endian, everything else
//! is little-endian. Each value ends in a u64 check: XXH3-64 of the bytes before, seeded by that of
//! the key.
//!
//! Every commit that changes more than rows writes the counters. Every transaction of the tree
//! stores `applied`, with the tree's own version, so that `check` notices an older meta page of the
//! engine that poses as the newest.

pub(crate) mod blob;
pub(crate) mod cell;
pub(crate) mod history_chunk;
pub(crate) mod index_entries;
pub(crate) mod pack_entries;
pub(crate) mod shapes;

use pellucid_record::layout::{push_varint, read_varint};
use pellucid_record::{Dictionary, Shape};

use crate::catalog::history_chunk::{CHUNK, Chunk};
use crate::catalog::index_entries::IndexInfo;
use crate::catalog::pack_entries::Progress;
use crate::engine::history::Keep;
use crate::engine::row_count::{CHECK_SIZE, id_key};
pub(crate) use crate::engine::row_count::{TABLE, sealed, table_key, unsealed};
use crate::engine::{Contents, Direction, EngineError, Start, Tree};
use crate::error::StoreError;
use crate::row_key::TableId;

/// The newest format that this build reads.
pub(crate) const FORMAT_VERSION: u16 = FORMAT_WITH_COMPRESSION;
/// The format of databases with compressed tables. A release that knows no newer format cannot read
/// packed rows.
pub(crate) const FORMAT_WITH_COMPRESSION: u16 = 3;
/// The format of databases with indexes. A release that knows no newer format must not write rows
/// of a table with indexes, since it would not update the index entries.
pub(crate) const FORMAT_WITH_INDEXES: u16 = 2;
/// The format of databases with neither.
pub(crate) const FORMAT_WITHOUT_INDEXES: u16 = 1;
/// The longest name of a table, in bytes.
pub(crate) const TABLE_NAME_SIZE_MAX: usize = 255;

pub(crate) const HEADER_KEY: &[u8] = b"h";
const COUNTERS_KEY: &[u8] = b"c";
pub(crate) const APPLIED_KEY: &[u8] = b"a";
/// No log reaches this position, in bytes, and none has this number of commits. What a file says of
/// its log is compared with it where it is read, so that sums of positions cannot overflow.
pub(crate) const POSITION_MAX: u64 = 1 << 62;
pub(crate) const KEEP_KEY: &[u8] = b"k";
pub(crate) const NAME: u8 = b'n';
pub(crate) const INDEX: u8 = b'i';
const SHAPE: u8 = b's';

/// Settings that hardly ever change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) format: u16,
    pub(crate) oldest_reader: u16,
    /// The engine's limit when the database was created: the size at which keys count as long must
    /// never change.
    pub(crate) key_size_max: u32,
    pub(crate) identity: [u8; 16],
    /// The least next int of some tables (`txn/next_int.rs`). They are stored here because
    /// older releases ignore additional bytes of this entry, but would report an entry of a new
    /// kind as damage.
    pub(crate) marks: Vec<(TableId, i64)>,
}

/// Counters that are written by every commit that changes more than rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) version: u64,
    pub(crate) next_table: u32,
    pub(crate) shape_count: u32,
    pub(crate) next_blob: u64,
}

/// The position in the log up to which the tree has everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The position after the last WAL record that the tree has.
    pub(crate) position: u64,
    /// That WAL record's sequence number.
    pub(crate) sequence: u64,
    /// The version of the tree with this entry.
    pub(crate) version: u64,
}

/// What is known of a table without reading its rows. More rows may have been counted since
/// (`rows_beyond`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableState {
    pub(crate) row_count: u64,
    pub(crate) shapes_admitted: u32,
    /// Changes with each change of its indexes; 0 if it has none.
    pub(crate) index_serial: u32,
}

/// An error of reading the catalog: the engine's, or an entry whose check or form is wrong.
pub(crate) enum CatalogError {
    Engine(EngineError),
    Damaged { entry: String },
}

impl From<EngineError> for CatalogError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl CatalogError {
    pub(crate) fn at(self, path: &str) -> StoreError {
        match self {
            Self::Engine(error) => StoreError::from_engine(path, error),
            Self::Damaged { entry } => StoreError::Corrupt {
                path: path.to_owned(),
                place: format!("catalog entry {entry}"),
                what: "its check or form is wrong".to_owned(),
                is_open: true,
            },
        }
    }
}

/// Reads fields one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Header {
    pub(crate) fn entry(&self) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.extend_from_slice(&self.oldest_reader.to_le_bytes());
        bytes.extend_from_slice(&self.key_size_max.to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        for (table, next) in &self.marks {
            bytes.extend_from_slice(&table.0.to_le_bytes());
            bytes.extend_from_slice(&next.to_le_bytes());
        }
        (HEADER_KEY.to_vec(), sealed(HEADER_KEY, bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let mut header = Self {
            format: fields.u16()?,
            oldest_reader: fields.u16()?,
            key_size_max: fields.u32()?,
            identity: fields.take()?,
            marks: Vec::new(),
        };
        // A newer format may store more here; its oldest reader's format decides whether we may
        // open it.
        while let (Some(table), Some(next)) = (fields.u32(), fields.take().map(i64::from_le_bytes)) {
            header.marks.push((TableId(table), next));
        }
        Some(header)
    }
}

impl Applied {
    pub(crate) fn entry(&self) -> (Vec<u8>, Vec<u8>) {
        let fields = [self.position, self.sequence, self.version].map(u64::to_le_bytes);
        (APPLIED_KEY.to_vec(), sealed(APPLIED_KEY, fields.concat()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let applied = Self { position: fields.u64()?, sequence: fields.u64()?, version: fields.u64()? };
        fields.end(applied).filter(|applied| applied.position.max(applied.sequence) <= POSITION_MAX)
    }
}

impl Counters {
    pub(crate) fn entry(&self) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.next_table.to_le_bytes());
        bytes.extend_from_slice(&self.shape_count.to_le_bytes());
        bytes.extend_from_slice(&self.next_blob.to_le_bytes());
        (COUNTERS_KEY.to_vec(), sealed(COUNTERS_KEY, bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let counters = Self {
            version: fields.u64()?,
            next_table: fields.u32()?,
            shape_count: fields.u32()?,
            next_blob: fields.u64()?,
        };
        fields.end(counters)
    }
}

impl TableState {
    pub(crate) fn entry(&self, table: TableId) -> (Vec<u8>, Vec<u8>) {
        let key = table_key(table);
        let mut bytes = Vec::with_capacity(8 + 4 + 4 + CHECK_SIZE);
        bytes.extend_from_slice(&self.row_count.to_le_bytes());
        bytes.extend_from_slice(&self.shapes_admitted.to_le_bytes());
        if self.index_serial != 0 {
            bytes.extend_from_slice(&self.index_serial.to_le_bytes());
        }
        let value = sealed(&key, bytes);
        (key.to_vec(), value)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let mut state = Self { row_count: fields.u64()?, shapes_admitted: fields.u32()?, index_serial: 0 };
        if !fields.0.is_empty() {
            state.index_serial = fields.u32().filter(|serial| *serial != 0)?;
        }
        fields.end(state)
    }
}

pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [&[NAME], name.as_bytes()].concat()
}

pub(crate) fn name_entry(name: &str, table: TableId) -> (Vec<u8>, Vec<u8>) {
    let key = name_key(name);
    let value = sealed(&key, table.0.to_le_bytes().to_vec());
    (key, value)
}

pub(crate) fn shape_entry(id: u32, shape: &Shape) -> (Vec<u8>, Vec<u8>) {
    let key = id_key(SHAPE, id);
    let mut bytes = Vec::new();
    for name in shape.names() {
        push_varint(&mut bytes, name.len() as u32);
        bytes.extend_from_slice(name.as_bytes());
    }
    let value = sealed(&key, bytes);
    (key.to_vec(), value)
}

fn parse_shape(bytes: &[u8]) -> Option<Shape> {
    let (mut names, mut offset) = (Vec::new(), 0);
    while offset < bytes.len() {
        let (size, start) = read_varint(bytes, offset)?;
        offset = start.checked_add(size as usize)?;
        names.push(std::str::from_utf8(bytes.get(start..offset)?).ok()?);
    }
    Shape::new(&names).ok()
}

/// A tree's position in the log. Zero if the tree has no such entry.
pub(crate) fn applied(source: &dyn Contents) -> Result<Applied, CatalogError> {
    Ok(read(source, APPLIED_KEY, Applied::parse)?.unwrap_or_default())
}

pub(crate) fn keep_entry(keep: Keep) -> (Vec<u8>, Vec<u8>) {
    let fields = [keep.size, keep.seconds].map(u64::to_le_bytes);
    (KEEP_KEY.to_vec(), sealed(KEEP_KEY, fields.concat()))
}

fn parse_keep(bytes: &[u8]) -> Option<Keep> {
    let mut fields = Fields(bytes);
    let keep = Keep { size: fields.u64()?, seconds: fields.u64()? };
    fields.end(keep)
}

/// How long changes are kept.
pub(crate) fn keep(source: &dyn Contents) -> Result<Keep, CatalogError> {
    Ok(read(source, KEEP_KEY, parse_keep)?.unwrap_or(Keep::NOTHING))
}

/// The name of an entry in a message: its kind and what follows.
fn describe(key: &[u8]) -> String {
    match key.split_first() {
        Some((&NAME, name)) => format!("of table name '{}'", String::from_utf8_lossy(name)),
        Some((&INDEX, [_, _, _, _, name @ ..])) => {
            format!("of index '{}'", String::from_utf8_lossy(name))
        }
        Some((kind, [a, b, c, d])) => {
            format!("'{}{}'", char::from(*kind), u32::from_be_bytes([*a, *b, *c, *d]))
        }
        _ => format!("'{}'", String::from_utf8_lossy(key)),
    }
}

/// The error for an entry whose check or form is wrong.
pub(crate) fn damaged(key: &[u8]) -> CatalogError {
    CatalogError::Damaged { entry: describe(key) }
}

pub(crate) fn read<T>(
    source: &dyn Contents,
    key: &[u8],
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, CatalogError> {
    let Some(bytes) = source.get(Tree::Meta, key)? else { return Ok(None) };
    match unsealed(key, bytes).and_then(parse) {
        Some(value) => Ok(Some(value)),
        None => Err(CatalogError::Damaged { entry: describe(key) }),
    }
}

pub(crate) fn header(source: &dyn Contents) -> Result<Option<Header>, CatalogError> {
    read(source, HEADER_KEY, Header::parse)
}

pub(crate) fn counters(source: &dyn Contents) -> Result<Counters, CatalogError> {
    let missing = || CatalogError::Damaged { entry: describe(COUNTERS_KEY) };
    read(source, COUNTERS_KEY, Counters::parse)?.ok_or_else(missing)
}

pub(crate) fn table_id(source: &dyn Contents, name: &str) -> Result<Option<TableId>, CatalogError> {
    read(source, &name_key(name), named_table)
}

/// The table id in a name's entry.
pub(crate) fn named_table(bytes: &[u8]) -> Option<TableId> {
    bytes.first_chunk().map(|id| TableId(u32::from_le_bytes(*id)))
}

/// The table of a table entry's key.
pub(crate) fn table_of_key(key: &[u8]) -> Option<TableId> {
    let (kind, id) = key.split_first()?;
    (*kind == TABLE).then_some(TableId(u32::from_be_bytes(id.try_into().ok()?)))
}

pub(crate) fn table_state(source: &dyn Contents, table: TableId) -> Result<Option<TableState>, CatalogError> {
    let state = read(source, &table_key(table), TableState::parse)?;
    // Commits of single rows count them without writing this entry.
    Ok(state.map(|state| TableState {
        row_count: state.row_count.saturating_add_signed(source.rows_beyond(table)),
        ..state
    }))
}

/// Every table's name and id, by name.
pub(crate) fn tables(source: &dyn Contents) -> Result<Vec<(String, TableId)>, CatalogError> {
    let mut cursor = source.cursor(Tree::Meta)?;
    cursor.start(Start::At(&[NAME]), Direction::Forward)?;
    let mut tables = Vec::new();
    while let Some((key, bytes)) = cursor.step()? {
        let Some((&NAME, name)) = key.split_first() else { break };
        let damaged = || CatalogError::Damaged { entry: describe(key) };
        let body = unsealed(key, bytes).ok_or_else(damaged)?;
        let name = std::str::from_utf8(name).map_err(|_| damaged())?;
        let id = body.first_chunk().ok_or_else(damaged)?;
        tables.push((name.to_owned(), TableId(u32::from_le_bytes(*id))));
    }
    Ok(tables)
}

/// Load the shapes up to `count` that the dictionary lacks.
pub(crate) fn load_shapes(
    source: &dyn Contents,
    dictionary: &Dictionary,
    count: u32,
) -> Result<(), CatalogError> {
    for id in dictionary.len()..count {
        let key = id_key(SHAPE, id);
        let damaged = || CatalogError::Damaged { entry: describe(&key) };
        let shape = read(source, &key, parse_shape)?.ok_or_else(damaged)?;
        dictionary.push(shape).map_err(|_| damaged())?;
    }
    Ok(())
}

/// A parsed entry of the tree.
pub(crate) enum Entry {
    Header(Header),
    Counters(Counters),
    Applied(Applied),
    Keep,
    History,
    Name(String, TableId),
    Table(TableId, TableState),
    Shape(u32, Shape),
    Index(IndexInfo),
    /// The setting or the progress of a compressed table.
    Compressed(TableId),
    /// A dictionary of a compressed table.
    Dictionary(TableId, u32),
}

/// Parse an entry of a walk. `None` if it is damaged.
pub(crate) fn parse_entry(key: &[u8], bytes: &[u8]) -> Option<Entry> {
    let body = unsealed(key, bytes)?;
    let id_of = |id: &[u8]| id.try_into().ok().map(u32::from_be_bytes);
    match key.split_first()? {
        _ if key == HEADER_KEY => Header::parse(body).map(Entry::Header),
        _ if key == COUNTERS_KEY => Counters::parse(body).map(Entry::Counters),
        _ if key == APPLIED_KEY => Applied::parse(body).map(Entry::Applied),
        _ if key == KEEP_KEY => parse_keep(body).map(|_| Entry::Keep),
        (&CHUNK, _) => Chunk::parse(key, bytes).map(|_| Entry::History),
        (&NAME, name) => {
            let id = body.try_into().ok().map(u32::from_le_bytes)?;
            Some(Entry::Name(std::str::from_utf8(name).ok()?.to_owned(), TableId(id)))
        }
        (&TABLE, id) => Some(Entry::Table(TableId(id_of(id)?), TableState::parse(body)?)),
        (&SHAPE, id) => Some(Entry::Shape(id_of(id)?, parse_shape(body)?)),
        (&INDEX, _) => IndexInfo::parse(key, body).map(Entry::Index),
        (&pack_entries::SETTING, _) => {
            pack_entries::parse_setting(body).and(pack_entries::table_of(key)).map(Entry::Compressed)
        }
        (&pack_entries::PROGRESS, _) => {
            Progress::parse(body).and(pack_entries::table_of(key)).map(Entry::Compressed)
        }
        (&pack_entries::DICTIONARY, _) => {
            pack_entries::parse_dictionary(body)?;
            pack_entries::number_of(key).map(|(table, number)| Entry::Dictionary(table, number))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::history_chunk::Kind;
    use crate::catalog::index_entries::Building;
    use crate::catalog::pack_entries::{dictionary_entry, setting_entry};

    #[test]
    fn entries_come_back_and_damaged_ones_do_not() {
        let shape = Shape::new(&["name", "age", ""]).unwrap();
        let applied = Applied { position: 1 << 33, sequence: 12, version: 5 };
        let counters = Counters { version: 7, next_table: 2, shape_count: 3, next_blob: 1 << 40 };
        let state = TableState { row_count: 12, shapes_admitted: 1, index_serial: 0 };
        let indexed = TableState { index_serial: 7, ..state };
        let info = IndexInfo {
            id: TableId(9),
            table: TableId(300),
            name: "by_age".into(),
            definition: "age desc".into(),
            is_unique: true,
            building: Some(Building {
                notes: TableId(10),
                builder: 77,
                done: 1 << 40,
                put: 5,
                exact: Some(crate::Reached {
                    from: Some(b"f".to_vec()),
                    upto: Some(Vec::new()),
                    place: None,
                }),
            }),
        };
        let marks = vec![(TableId(3), 7), (TableId(300), i64::MAX)];
        let header = Header { format: 1, oldest_reader: 1, key_size_max: 511, identity: [7; 16], marks };
        let keep = Keep { size: 1 << 20, seconds: 60 };
        let progress = Progress { made: 2, ratio: 4_000, rows: 1 << 33, ..Progress::default() };
        let chunk = Chunk { first: 5, part: 1, last: 5, total: 9, time: 1 << 31, kind: Kind::Part };
        let (chunk_key, chunk_value) = chunk.entry(b"body");
        for (key, value) in [
            counters.entry(),
            applied.entry(),
            state.entry(TableId(300)),
            indexed.entry(TableId(301)),
            info.entry(),
            shape_entry(5, &shape),
            name_entry("people", TableId(9)),
            keep_entry(keep),
            (chunk_key.to_vec(), chunk_value),
            header.entry(),
            setting_entry(TableId(7)),
            progress.entry(TableId(7)),
            dictionary_entry(TableId(7), 3, b"words"),
        ] {
            match parse_entry(&key, &value).unwrap() {
                Entry::Counters(found) => assert_eq!(found, counters),
                Entry::Applied(found) => assert_eq!(found, applied),
                Entry::Table(TableId(301), found) => assert_eq!(found, indexed),
                Entry::Table(id, found) => assert_eq!((id, found), (TableId(300), state)),
                Entry::Index(found) => assert_eq!(found, info),
                Entry::Shape(id, found) => assert_eq!((id, found.names()), (5, shape.names())),
                Entry::Name(name, id) => assert_eq!((&*name, id), ("people", TableId(9))),
                Entry::Header(found) => assert_eq!(found, header),
                Entry::Keep => assert_eq!(parse_keep(unsealed(&key, &value).unwrap()), Some(keep)),
                Entry::Compressed(table) => {
                    let found = Progress::parse(unsealed(&key, &value).unwrap());
                    assert!(table == TableId(7) && found.is_none_or(|found| found == progress));
                }
                Entry::Dictionary(table, number) => assert_eq!((table, number), (TableId(7), 3)),
                Entry::History => assert_eq!(Chunk::parse(&key, &value), Some(chunk)),
            }
            for bit in 0..value.len() * 8 {
                let mut damaged = value.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(parse_entry(&key, &damaged).is_none(), "bit {bit} of entry {}", describe(&key));
            }
        }
    }
}
