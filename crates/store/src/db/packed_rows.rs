//! Opens the packed rows of an open database.

use std::cell::Cell as Slot;

use crate::catalog::cell::Packed;
use crate::db::database::Database;
use crate::error::StoreError;
use crate::pack::opening::{Source, Unopened, open_with};
use crate::row_key::{TableId, split};

thread_local! {
    static SPARE: Slot<Vec<u8>> = const { Slot::new(Vec::new()) };
}

/// A larger buffer is not kept.
const SPARE_SIZE_MAX: usize = 64 << 10;

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
