//! Opens packed cells: finds the dictionary, decompresses the record, and verifies it.

use std::cell::Cell as Slot;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::catalog::CatalogError;
use crate::catalog::cell::Packed;
use crate::catalog::pack_entries;
use crate::database::Database;
use crate::engine::Contents;
use crate::error::StoreError;
use crate::pack::codec::Opener;
use crate::row_key::{TableId, split};

thread_local! {
    static SPARE: Slot<Vec<u8>> = const { Slot::new(Vec::new()) };
}

/// A larger buffer is not kept.
const SPARE_SIZE_MAX: usize = 64 << 10;

/// Dictionaries that this process has read.
#[derive(Default)]
pub(crate) struct Dictionaries {
    committed: RwLock<HashMap<(TableId, u32), Arc<Opener>>>,
    /// The last one that a running transaction has made. Another transaction may make another one
    /// with the same number, if this one is not committed, so it is known by its check.
    running: Mutex<Option<(u64, Arc<Opener>)>>,
}

/// What a packed cell is read from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    /// A snapshot.
    Committed(&'s dyn Contents),
    /// A running transaction.
    Running(&'s dyn Contents),
}

/// Why a packed cell could not be opened.
enum Unopened {
    Form,
    Dictionary(u32),
    Frame,
    Catalog(CatalogError),
}

impl From<CatalogError> for Unopened {
    fn from(error: CatalogError) -> Self {
        // A damaged entry is named by the rows that need it, and by `check`.
        Self::Catalog(error)
    }
}

impl Dictionaries {
    fn known(&self, table: TableId, number: u32) -> Option<Arc<Opener>> {
        let known = self.committed.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(table, number)).map(Arc::clone)
    }

    fn find(&self, source: Source<'_>, table: TableId, number: u32) -> Result<Arc<Opener>, Unopened> {
        if let Some(known) = self.known(table, number) {
            return Ok(known);
        }
        match source {
            Source::Committed(source) => {
                let opener = load(source, table, number)?;
                let mut known = self.committed.write().unwrap_or_else(PoisonError::into_inner);
                known.insert((table, number), Arc::clone(&opener));
                Ok(opener)
            }
            Source::Running(source) => {
                let check =
                    pack_entries::check_of_dictionary(source, table, number).map_err(CatalogError::from)?;
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, opener)) = running.as_ref().filter(|(of, _)| Some(*of) == check) {
                    return Ok(Arc::clone(opener));
                }
                let opener = load(source, table, number)?;
                *running = check.map(|check| (check, Arc::clone(&opener)));
                Ok(opener)
            }
        }
    }
}

fn load(source: &dyn Contents, table: TableId, number: u32) -> Result<Arc<Opener>, Unopened> {
    match pack_entries::dictionary(source, table, number, Opener::new) {
        Ok(Some(opener)) => Ok(Arc::new(opener)),
        Ok(None) | Err(CatalogError::Damaged { .. }) => Err(Unopened::Dictionary(number)),
        Err(error) => Err(error.into()),
    }
}

/// Open a cell with a dictionary: write its record.
pub(crate) fn open_with(opener: &Opener, packed: &Packed<'_>, row_key: &[u8], record: &mut Vec<u8>) -> bool {
    opener.open(packed.frame, record) && packed.is_of(row_key, record)
}

impl Database {
    /// Open the packed cell of a row: write its record, and return the rest. The error is that of a
    /// damaged row, also if the cell is not packed.
    #[cold]
    pub(crate) fn open_packed<'a>(
        &self,
        source: Source<'_>,
        row_key: &[u8],
        bytes: &'a [u8],
        record: &mut Vec<u8>,
    ) -> Result<Packed<'a>, StoreError> {
        self.try_open(source, row_key, bytes, record).map_err(|why| {
            let table = split(row_key).map_or(TableId(0), |(table, _)| table);
            match why {
                Unopened::Form => self.damaged_row(table, row_key),
                Unopened::Dictionary(number) => self.damaged_row_for(
                    table,
                    row_key,
                    &format!(
                        "it is packed with dictionary {number} of the table, which is missing or damaged"
                    ),
                ),
                Unopened::Frame => self.damaged_row_for(table, row_key, "its packed record is damaged"),
                Unopened::Catalog(error) => self.catalog_error(error),
            }
        })
    }

    fn try_open<'a>(
        &self,
        source: Source<'_>,
        row_key: &[u8],
        bytes: &'a [u8],
        record: &mut Vec<u8>,
    ) -> Result<Packed<'a>, Unopened> {
        let packed = Packed::parse(bytes).ok_or(Unopened::Form)?;
        let (table, _) = split(row_key).ok_or(Unopened::Form)?;
        let opener = self.dictionaries.find(source, table, packed.dictionary)?;
        if open_with(&opener, &packed, row_key, record) { Ok(packed) } else { Err(Unopened::Frame) }
    }

    /// Call `show` with the record of a packed cell, if its dictionary is known already. The record
    /// is gone afterwards.
    #[cold]
    pub(crate) fn show_packed(&self, row_key: &[u8], bytes: &[u8], show: &mut dyn FnMut(&[u8])) -> bool {
        let Some(packed) = Packed::parse(bytes) else { return false };
        let Some(opener) =
            split(row_key).and_then(|(table, _)| self.dictionaries.known(table, packed.dictionary))
        else {
            return false;
        };
        // Taken, since `show` may get here again.
        let mut record = SPARE.take();
        let is_open = open_with(&opener, &packed, row_key, &mut record);
        if is_open {
            show(&record);
        }
        if record.capacity() <= SPARE_SIZE_MAX {
            SPARE.set(record);
        }
        is_open
    }
}
