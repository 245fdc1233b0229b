//! The reasons for which a walk over rows breaks off.

use std::error::Error;

use pellucid_record::Corrupt;
use pellucid_store::StoreError;

/// Why a walk broke off.
#[derive(Debug)]
pub enum Fault {
    /// An error of the store.
    Store(StoreError),
    /// A damaged record, under this key.
    Record(Vec<u8>, Corrupt),
    /// Rows fall into too many groups.
    Groups(TooManyGroups),
    /// An expression that cannot be evaluated; the text says why.
    Expression(String),
    /// The source of paged rows failed, with an error of the caller's.
    Source(Box<dyn Error + Send + Sync>),
    /// The caller asked to stop (`is_stopped`).
    Stopped,
}

impl Fault {
    /// A fault for an expression that was refused.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn of_expression<E: ToString>(error: E) -> Self {
        Fault::Expression(error.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

/// There are more groups than memory should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups {
    /// The number of groups when the limit was passed.
    pub count: usize,
    /// The number of bytes that groups may take.
    pub size_max: usize,
}
