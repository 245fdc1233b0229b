//! Finds the rows with the least and the greatest values of a table at the ends of indexes.
//!
//! An index of one part has these rows at its ends, if it has an entry for each value that is
//! compared. Values without an entry (a dict, NaN, a time) are ordered after all values that have
//! one. So the least value is always at one end of the index, and the greatest is at the other end
//! if each row has an entry. Numbers and Decimals are compared by value but lie apart in an index:
//! if it has both, all rows are read. The rows that are found stand for all rows: a computation
//! over them gives the same result as over all.

use pellucid_store::{Range, Reader, Row, TableId, range_of_parts};

use super::paths::ROW_COUNT_MIN;
use super::put_in_order;
use super::table_index::TableIndex;
use crate::aggregate::Extremes;
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::spans::Span;
use crate::walk::RowKey;

/// First bytes of codes: of all values ordered before numbers, without None; of numbers; of
/// Decimals; and of the values after them (format.md, "Ordered keys").
const FAMILIES: [(u8, u8); 4] = [(0x01, 0x0A), NUMBERS, DECIMALS, (0x21, 0x31)];
const NUMBERS: (u8, u8) = (0x0A, 0x1F);
const DECIMALS: (u8, u8) = (0x20, 0x21);

/// The keys of a few rows among which are those with the least or the greatest values of these
/// expressions, the first of each. `None` if indexes do not tell which.
///
/// # Errors
/// Damage.
pub fn keys_of_extremes<R: Reader>(
    reader: &R,
    table: TableId,
    indexes: &[TableIndex],
    wanted: &[(&Node, Extremes)],
) -> Result<Option<Vec<RowKey>>, Fault> {
    if indexes.is_empty() {
        return Ok(None);
    }
    let row_count = reader.count(table)?;
    if row_count < ROW_COUNT_MIN {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(wanted.len());
    for (node, which) in wanted {
        let Some(index) = indexes.iter().find(|index| serves(index, node)) else { return Ok(None) };
        let has_each = !index.definition.branches() && reader.count(index.info.id)? == row_count;
        match key_of_extreme(reader, index, (*which, has_each))? {
            Some(key) => keys.push(key),
            None => return Ok(None),
        }
    }
    put_in_order(&mut keys);
    Ok(Some(keys))
}

/// Whether an index has an entry for each row in which this expression can be a key. An index of
/// several parts does not serve: a row may lack another part, and entries with an equal value are
/// not in the order of keys.
fn serves(index: &TableIndex, node: &Node) -> bool {
    matches!(&index.definition.parts[..], [(part, _)] if part == node) && index.definition.condition.is_none()
}

/// The key of the first row with the least or the greatest value of an index's one part. None if
/// that is not known.
fn key_of_extreme<R: Reader>(
    reader: &R,
    index: &TableIndex,
    (which, has_each): (Extremes, bool),
) -> Result<Option<RowKey>, Fault> {
    let is_greatest = which == Extremes::Greatest;
    if is_greatest && !has_each {
        return Ok(None);
    }
    let (id, is_descending) = (index.info.id, index.keys.is_descending(0));
    let in_family = |(first, behind): (u8, u8)| {
        let span = Span { start: vec![first], end: vec![behind] }.behind(&[], is_descending);
        Range::half_open(span.start, span.end)
    };
    let parts_of = |entry: Row<'_>| index.keys.split(&entry).map(|entry| entry.parts.to_vec());
    let mut families = FAMILIES;
    if is_greatest {
        families.reverse();
    }
    for family in families {
        let is_from_end = is_greatest != is_descending;
        let found = reader.with_first(id, &in_family(family), is_from_end, parts_of)?;
        let Some(parts) = found else { continue };
        let other = match family {
            NUMBERS => Some(DECIMALS),
            DECIMALS => Some(NUMBERS),
            _ => None,
        };
        if let Some(other) = other
            && reader.with_first(id, &in_family(other), false, |_| ())?.is_some()
        {
            return Ok(None);
        }
        // Bytes that are no entry are skipped here; `check` reports them.
        let Some(parts) = parts else { return Ok(None) };
        let key =
            reader.with_first(id, &range_of_parts(&parts), false, |entry| index.keys.row_key(&entry))?;
        return Ok(key.flatten());
    }
    Ok(None)
}
