//! The reasons for which a walk over rows breaks off.

use pellucid_record::Corrupt;
use pellucid_store::StoreError;

/// Why a walk broke off.
#[derive(Debug)]
pub enum Fault {
    /// The store.
    Store(StoreError),
    /// A damaged record, under this key.
    Record(Vec<u8>, Corrupt),
    /// Rows fall into too many groups.
    Groups(TooManyGroups),
    /// The caller asked to stop (`is_stopped`).
    Stopped,
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

/// More groups than memory should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups {
    /// How many there were when there were too many.
    pub count: usize,
    /// How many bytes they may take.
    pub size_max: usize,
}
