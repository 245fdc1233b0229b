//! What can go wrong with an index, and what can the caller do about it?

use std::fmt;

use crate::catalog::row_key::TableId;

/// Why an index cannot be made, written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// A row has what another one has in a unique index.
    NotUnique(NotUnique),
    /// There is no index of this name.
    Missing {
        /// The table's name.
        table: String,
        /// The index's.
        index: String,
        /// The indexes that the table has.
        others: Vec<String>,
    },
    /// There is one of this name that is made of something else.
    Exists {
        /// The table's name.
        table: String,
        /// The index's.
        index: String,
        /// What that is made of.
        definition: String,
        /// Whether that is unique.
        is_unique: bool,
        /// What the one that is wanted is made of, and whether it is to be unique.
        wanted: (String, bool),
    },
    /// A name or a definition that no index can have.
    Bad {
        /// The index's name.
        index: String,
        /// What is wrong with it.
        what: String,
    },
    /// It has not all rows yet.
    Building {
        /// The table's name.
        table: String,
        /// The index's.
        index: String,
    },
    /// Somebody else builds it, in another process or in this one.
    BuiltByOther {
        /// The table's name.
        table: String,
        /// The index's.
        index: String,
        /// The process that does.
        pid: u32,
    },
    /// It was dropped, or taken back, while it was built.
    Gone {
        /// The index's name.
        index: String,
    },
    /// The store was opened by somebody who knows no indexes.
    NoDeriver,
}

/// A value that a unique index has already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotUnique {
    /// The table's name.
    pub table: String,
    /// The index's name.
    pub index: String,
    /// Its definition.
    pub definition: String,
    /// The parts, as they stand in the entry.
    pub parts: Vec<u8>,
    /// Their spelling.
    pub parts_spelling: Vec<u8>,
    /// The key of the row that was refused.
    pub key: Vec<u8>,
    /// Its spelling.
    pub key_spelling: Vec<u8>,
    /// Both rows are of one batch: neither has the value then.
    pub is_in_batch: bool,
    /// Of a batch, the how manyth of its rows was refused, counted from 0.
    pub position: Option<u32>,
    /// The index's own rows.
    pub(crate) index_id: Option<TableId>,
    /// The key of the row that has the value.
    pub existing: Vec<u8>,
    /// Its spelling.
    pub existing_spelling: Vec<u8>,
}

impl NotUnique {
    /// The entry by which the existing row has the value.
    pub(crate) fn entry(&self) -> Option<(TableId, Vec<u8>)> {
        Some((self.index_id?, [&self.parts[..], &self.existing].concat()))
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnique(refused) => write!(
                out,
                "two rows of table '{}' would have one value in its unique index '{}' ({})",
                refused.table, refused.index, refused.definition
            ),
            Self::Missing { table, index, others } => {
                write!(out, "table '{table}' has no index '{}'; ", index.escape_debug())?;
                let names: Vec<_> = others.iter().map(|name| format!("'{}'", name.escape_debug())).collect();
                if names.is_empty() {
                    return write!(out, "it has none: it was never created, or was dropped");
                }
                write!(out, "those it has are {}", names.join(", "))
            }
            Self::Exists { table, index, definition, is_unique, wanted } => {
                let unique = |is_unique: bool| if is_unique { "unique " } else { "" };
                write!(
                    out,
                    "table '{table}' has an index '{index}' already, {}over {definition}, and not {}over {}; choose another name, or drop_index({index:?}) first",
                    unique(*is_unique),
                    unique(wanted.1),
                    wanted.0
                )
            }
            Self::Bad { index, what } => write!(out, "index '{index}': {what}"),
            Self::Building { table, index } => write!(
                out,
                "index '{index}' of table '{table}' has not been built to its end; wait for who builds it, or create it once more to go on"
            ),
            Self::BuiltByOther { table, index, pid } if *pid == std::process::id() => write!(
                out,
                "index '{index}' of table '{table}' is being built by this process already; wait until that is done"
            ),
            Self::BuiltByOther { table, index, pid } => write!(
                out,
                "index '{index}' of table '{table}' is being built by PID {pid}; wait until that is done, or end it"
            ),
            Self::Gone { index } => {
                write!(
                    out,
                    "index '{index}' was dropped while it was being built; create it again if it is wanted"
                )
            }
            Self::NoDeriver => {
                write!(
                    out,
                    "this table has indexes, which this program cannot keep in step; write with one that can"
                )
            }
        }
    }
}
