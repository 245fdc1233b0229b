//! The errors of indexes, with what the caller can do.

use std::fmt;

use crate::row_key::TableId;

/// Why an index cannot be created, written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// A row has a value that another row has in a unique index.
    NotUnique(NotUnique),
    /// There is no index with this name.
    Missing {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The indexes that the table has.
        others: Vec<String>,
    },
    /// There is an index with this name and another definition.
    Exists {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The existing definition.
        definition: String,
        /// Whether the existing index is unique.
        is_unique: bool,
        /// The wanted definition, and whether it should be unique.
        wanted: (String, bool),
    },
    /// A name or a definition that no index can have.
    Bad {
        /// The index's name.
        index: String,
        /// What is wrong with it.
        what: String,
    },
    /// The index does not have all rows yet.
    Building {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
    },
    /// Another process, or another thread of this one, builds the index.
    BuiltByOther {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The building process.
        pid: u32,
    },
    /// The index was dropped, or rolled back, while it was being built.
    Gone {
        /// The index's name.
        index: String,
    },
    /// The store was opened without a deriver.
    NoDeriver,
}

/// A value that a unique index already has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotUnique {
    /// The table's name.
    pub table: String,
    /// The index's name.
    pub index: String,
    /// Its definition.
    pub definition: String,
    /// The parts, as in the entry.
    pub parts: Vec<u8>,
    /// Their spelling.
    pub parts_spelling: Vec<u8>,
    /// The key of the row that was refused.
    pub key: Vec<u8>,
    /// Its spelling.
    pub key_spelling: Vec<u8>,
    /// Whether both rows are of one batch: then neither is stored with the value.
    pub is_in_batch: bool,
    /// The index of the refused row in its batch, from 0.
    pub position: Option<u32>,
    /// The id of the index's entries; None for an index that is not the engine's.
    pub index_id: Option<TableId>,
    /// The key of the row that has the value.
    pub existing: Vec<u8>,
    /// Its spelling.
    pub existing_spelling: Vec<u8>,
}

impl NotUnique {
    /// The index entry of the existing row.
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
                "index '{index}' of table '{table}' has not been built to its end; wait for the process that builds it, or create it once more to go on"
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
