//! Keeps the indexes of a table that queries may use, parsed once for each state of the catalog.

use pellucid_store::{IndexInfo, Reader, StoreError};

use crate::expression::Node;
use crate::index::{Definition, Keys};
use crate::plan::Candidate;

/// An index with its definition parsed.
pub struct TableIndex {
    /// The index as the catalog has it.
    pub info: IndexInfo,
    /// Its parsed definition.
    pub definition: Definition,
    /// Splits its entries.
    pub keys: Keys,
    /// What the planner has to know of it, without the number of its entries.
    pub candidate: Candidate,
}

impl TableIndex {
    /// Parses an index of the catalog. None if a newer version wrote it and this version does not
    /// understand it.
    #[must_use]
    pub fn parse(info: IndexInfo) -> Option<Self> {
        let definition = Definition::parse(&info.definition).ok()?;
        let candidate = Candidate {
            name: info.name.to_string(),
            parts: definition.parts.clone(),
            condition: definition.condition.clone(),
            entries: 0,
            is_unique: info.is_unique,
        };
        Some(Self { keys: Keys::of(&definition), definition, candidate, info })
    }

    /// The indexes among these that are complete.
    #[must_use]
    pub fn ready(infos: Vec<IndexInfo>) -> Vec<Self> {
        infos.into_iter().filter(|info| info.building.is_none()).filter_map(Self::parse).collect()
    }
}

/// What the planner has to know of each index. Entries are counted only for an index of which the
/// conditions or the order name a part.
///
/// # Errors
/// When the catalog is damaged.
pub fn candidates<R: Reader>(
    reader: &R,
    indexes: &[TableIndex],
    (conditions, order): (&[Node], &[(Node, bool)]),
) -> Result<Vec<Candidate>, StoreError> {
    let candidate = |index: &TableIndex| {
        let is_named = index.candidate.is_named(conditions, order);
        let entries = if is_named { reader.count(index.info.id)? } else { 0 };
        Ok(Candidate { entries, ..index.candidate.clone() })
    };
    indexes.iter().map(candidate).collect()
}
