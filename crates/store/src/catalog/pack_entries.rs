//! What the catalog says of compressed tables.
//!
//! ```text
//! "z" + u32 table id               setting     u8 1: zstd; missing if the table is not compressed
//! "p" + u32 table id               progress    see `Progress`
//! "d" + u32 table id, u32 number   dictionary  its bytes
//! ```
//!
//! A transaction writes the setting when it creates the table. Progress and dictionaries are
//! written where rows are packed, in the transaction of the tree, and never go through the log. A
//! number is never used again for another dictionary of its table.

use crate::catalog::{CatalogError, Fields, read, sealed};
use crate::engine::{Contents, Direction, EngineError, Start, Tree};
use crate::row_key::TableId;

/// The largest dictionary that is read.
pub(crate) const DICTIONARY_SIZE_MAX: usize = 64 << 10;
pub(crate) const SETTING: u8 = b'z';
pub(crate) const PROGRESS: u8 = b'p';
pub(crate) const DICTIONARY: u8 = b'd';
/// The only setting that exists.
const ZSTD: u8 = 1;

/// The progress of the dictionaries of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How many dictionaries were made. The last one is in use.
    pub(crate) made: u32,
    /// Bytes of packed records for each 10,000 bytes before, when the last one was trained.
    pub(crate) ratio: u32,
    /// Rows that were packed, or stayed plain because there was no dictionary.
    pub(crate) rows: u64,
    /// The number of rows at which to train again, whatever the ratio is.
    pub(crate) train_at: u64,
    /// Bytes of the rows since the ratio was last compared, before and after they were packed.
    pub(crate) plain_size: u64,
    pub(crate) packed_size: u64,
    pub(crate) compared_at: u64,
}

impl Progress {
    pub(crate) fn entry(&self, table: TableId) -> (Vec<u8>, Vec<u8>) {
        let key = key_of(PROGRESS, table);
        let mut bytes = Vec::with_capacity(56);
        bytes.extend_from_slice(&self.made.to_le_bytes());
        bytes.extend_from_slice(&self.ratio.to_le_bytes());
        for field in [self.rows, self.train_at, self.plain_size, self.packed_size, self.compared_at] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let value = sealed(&key, bytes);
        (key, value)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let progress = Self {
            made: fields.u32()?,
            ratio: fields.u32()?,
            rows: fields.u64()?,
            train_at: fields.u64()?,
            plain_size: fields.u64()?,
            packed_size: fields.u64()?,
            compared_at: fields.u64()?,
        };
        fields.0.is_empty().then_some(progress)
    }
}

pub(crate) fn key_of(kind: u8, table: TableId) -> Vec<u8> {
    [&[kind][..], &table.0.to_be_bytes()].concat()
}

fn dictionary_key(table: TableId, number: u32) -> Vec<u8> {
    [&key_of(DICTIONARY, table)[..], &number.to_be_bytes()].concat()
}

/// The entry that makes a table compressed.
pub(crate) fn setting_entry(table: TableId) -> (Vec<u8>, Vec<u8>) {
    let key = key_of(SETTING, table);
    let value = sealed(&key, vec![ZSTD]);
    (key, value)
}

pub(crate) fn dictionary_entry(table: TableId, number: u32, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let key = dictionary_key(table, number);
    let value = sealed(&key, bytes.to_vec());
    (key, value)
}

/// The table of a setting's or progress's key.
pub(crate) fn table_of(key: &[u8]) -> Option<TableId> {
    let (_, id) = key.split_first()?;
    Some(TableId(u32::from_be_bytes(id.try_into().ok()?)))
}

/// The table and the number of a dictionary's key.
pub(crate) fn number_of(key: &[u8]) -> Option<(TableId, u32)> {
    let (table, number) = key.split_at_checked(5)?;
    Some((table_of(table)?, u32::from_be_bytes(number.try_into().ok()?)))
}

/// Whether this is the content of a setting that is known.
pub(crate) fn parse_setting(bytes: &[u8]) -> Option<()> {
    (bytes == [ZSTD]).then_some(())
}

/// The bytes of a dictionary.
pub(crate) fn parse_dictionary(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.len() <= DICTIONARY_SIZE_MAX).then_some(bytes)
}

/// Whether a table is compressed.
///
/// # Errors
/// When the catalog is damaged.
pub(crate) fn is_compressed(source: &dyn Contents, table: TableId) -> Result<bool, CatalogError> {
    Ok(read(source, &key_of(SETTING, table), parse_setting)?.is_some())
}

/// Whether any table is compressed.
pub(crate) fn is_any_compressed(source: &dyn Contents) -> Result<bool, EngineError> {
    let mut cursor = source.cursor(Tree::Meta)?;
    cursor.start(Start::At(&[SETTING]), Direction::Forward)?;
    Ok(cursor.step()?.is_some_and(|(key, _)| key.first() == Some(&SETTING)))
}

/// A table's progress. If the entry is damaged, the dictionaries tell how many there are.
pub(crate) fn progress(source: &dyn Contents, table: TableId) -> Result<Progress, EngineError> {
    match read(source, &key_of(PROGRESS, table), Progress::parse) {
        Ok(progress) => Ok(progress.unwrap_or_default()),
        Err(CatalogError::Engine(error)) => Err(error),
        Err(CatalogError::Damaged { .. }) => {
            let keys = keys_beside(source, table)?;
            let last = keys.iter().filter_map(|key| number_of(key)).map(|(_, number)| number).max();
            Ok(Progress { made: last.map_or(0, |last| last.saturating_add(1)), ..Progress::default() })
        }
    }
}

/// The bytes of a dictionary, with what `use_bytes` makes of them.
pub(crate) fn dictionary<T>(
    source: &dyn Contents,
    table: TableId,
    number: u32,
    use_bytes: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, CatalogError> {
    let parse = |bytes: &[u8]| parse_dictionary(bytes).and_then(use_bytes);
    read(source, &dictionary_key(table, number), parse)
}

/// The check of a dictionary, unverified, which no other dictionary has.
pub(crate) fn check_of_dictionary(
    source: &dyn Contents,
    table: TableId,
    number: u32,
) -> Result<Option<u64>, EngineError> {
    let bytes = source.get(Tree::Meta, &dictionary_key(table, number))?;
    Ok(bytes.and_then(|bytes| bytes.last_chunk()).map(|check| u64::from_le_bytes(*check)))
}

/// The keys of what is known of a table beside its setting.
pub(crate) fn keys_beside(source: &dyn Contents, table: TableId) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut keys = Vec::new();
    for kind in [DICTIONARY, PROGRESS] {
        let prefix = key_of(kind, table);
        let mut cursor = source.cursor(Tree::Meta)?;
        cursor.start(Start::At(&prefix), Direction::Forward)?;
        while let Some((key, _)) = cursor.step()?.filter(|(key, _)| key.starts_with(&prefix)) {
            keys.push(key.to_vec());
        }
    }
    Ok(keys)
}
