//! Opens packed cells: finds the dictionary, decompresses the record, and verifies it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::catalog::CatalogError;
use crate::catalog::cell::Packed;
use crate::catalog::pack_entries;
use crate::engine::Contents;
use crate::pack::codec::Opener;
use crate::row_key::TableId;

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
pub(crate) enum Unopened {
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
    pub(crate) fn known(&self, table: TableId, number: u32) -> Option<Arc<Opener>> {
        let known = self.committed.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(table, number)).map(Arc::clone)
    }

    pub(crate) fn find(
        &self,
        source: Source<'_>,
        table: TableId,
        number: u32,
    ) -> Result<Arc<Opener>, Unopened> {
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
