//! Lower bounds of the next ints of tables (`txn/next_int.rs`), which this process has seen.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::row_key::TableId;

/// Lower bounds of the next ints of tables.
#[derive(Default)]
pub(crate) struct Floors(Mutex<HashMap<TableId, i64>>);

impl Floors {
    pub(crate) fn of(&self, table: TableId) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&table).copied().unwrap_or(0)
    }

    pub(crate) fn raise(&self, table: TableId, floor: i64) {
        let mut floors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = floors.entry(table).or_default();
        *known = floor.max(*known);
    }
}
