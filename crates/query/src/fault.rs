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
    /// An expression that cannot be evaluated; the text says why.
    Expression(String),
    /// The caller asked to stop (`is_stopped`).
    Stopped,
}

impl Fault {
    /// What an expression is refused for.
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

/// More groups than memory should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups {
    /// How many there were when there were too many.
    pub count: usize,
    /// How many bytes they may take.
    pub size_max: usize,
}
