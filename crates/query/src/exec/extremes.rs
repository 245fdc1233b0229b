//! Finds the rows with the least and the greatest values of a table by ordered walks of one row.
//!
//! An index of one part has these rows at its ends, if it has an entry for each value that is
//! compared. Values without an entry (a dict, NaN, a time) are ordered after all values that have
//! one. So the least value is always at one end of the index, and the greatest is at the other end
//! if each row has an entry. Numbers and Decimals are compared by value but lie apart in an index:
//! if it has both, all rows are read. The rows that are found stand for all rows: a computation
//! over them gives the same result as over all.

use pellucid_store::{Range, Reader, TableId};

use super::paths::ROW_COUNT_MIN;
use super::table_index::TableIndex;
use crate::covered_rows::CoveredRows;
use crate::expression::Node;
use crate::fault::Fault;
use crate::group::Extremes;
use crate::plan::code_ranges::CodeRange;
use crate::rows::{Lookups, RowsByIndex};

/// First bytes of codes: of all values but None, of numbers, and of Decimals (format.md, "Ordered
/// keys").
const VALUES: (u8, u8) = (0x01, 0x31);
const NUMBERS: (u8, u8) = (0x0A, 0x1F);
const DECIMALS: (u8, u8) = (0x20, 0x21);

/// The keys of a few rows among which are those with the least or the greatest values of these
/// expressions, the first of each. `None` if indexes do not say which.
///
/// # Errors
/// Damage.
pub fn keys_of_extremes<R: Reader>(
    reader: &R,
    table: TableId,
    indexes: &[TableIndex],
    wanted: &[(&Node, Extremes)],
) -> Result<Option<CoveredRows>, Fault> {
    if indexes.is_empty() {
        return Ok(None);
    }
    let row_count = reader.count(table)?;
    if row_count < ROW_COUNT_MIN {
        return Ok(None);
    }
    let mut keys = CoveredRows::default();
    for (node, which) in wanted {
        let Some(index) = indexes.iter().find(|index| serves(index, node)) else { return Ok(None) };
        let (id, is_descending) = (index.info.id, index.keys.is_descending(0));
        let has_each = !index.definition.branches() && reader.count(id)? == row_count;
        let range_of = |(first, behind): (u8, u8)| {
            let code_range = CodeRange { start: vec![first], end: vec![behind] }.after(&[], is_descending);
            Range::half_open(code_range.start, code_range.end)
        };
        let has = |codes| reader.with_first(id, &range_of(codes), false, |_| ());
        let is_greatest = *which == Extremes::Greatest;
        if is_greatest && !has_each || has(NUMBERS)?.is_some() && has(DECIMALS)?.is_some() {
            return Ok(None);
        }
        let entries = (id, index.keys.clone());
        let range = (&range_of(VALUES), is_greatest != is_descending);
        let mut walk = RowsByIndex::ordered(reader, table, entries, range)?;
        if walk.next(reader, |row, _| keys.push_key(row.key, row.spelling))?.is_none() {
            return Ok(None);
        }
    }
    keys.put_in_order();
    Ok(Some(keys))
}

/// Whether an index has an entry for each row in which this expression can be a key. An index of
/// several parts does not serve: a row may lack another part, and entries with an equal value are
/// not in the order of keys.
fn serves(index: &TableIndex, node: &Node) -> bool {
    matches!(&index.definition.parts[..], [(part, _)] if part == node) && index.definition.condition.is_none()
}
