//! In which order do rows come?
//!
//! In that of the codes of what they are ordered by (`code.rs`), so that values of unlike types have an order too. What is missing comes
//! last, also where the order is descending. Rows that are ordered by the same come in the order of their keys, either way.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use pellucid_record::{Corrupt, Shapes};
use pellucid_store::Row;

use crate::code::Code;
use crate::column::Column;
use crate::evaluate::found::Found;
use crate::expression::Expression;
use crate::field::Number;
use crate::order::exact_cmp;
use crate::walk::{Fault, RowKey, Walk, damaged, for_each};

/// What rows are ordered by, first to last.
pub struct SortKey {
    parts: Vec<Part>,
    code: Code,
}

struct Part {
    column: Column,
    is_descending: bool,
}

impl SortKey {
    /// The order by these expressions, each with whether it is descending.
    ///
    /// # Errors
    /// A regular expression in one is none.
    pub fn new(parts: &[(std::sync::Arc<Expression>, bool)]) -> Result<Self, crate::evaluate::BadPattern> {
        let part = |(expression, is_descending): &(std::sync::Arc<Expression>, bool)| {
            Ok(Part { column: Column::new(expression)?, is_descending: *is_descending })
        };
        Ok(Self { parts: parts.iter().map(part).collect::<Result<_, _>>()?, code: Code::default() })
    }

    /// The bytes by which a row is ordered. They hold until the next call.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn of<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<&[u8], Corrupt> {
        self.code.clear();
        for part in &mut self.parts {
            let start = self.code.len();
            let code = &mut self.code;
            let found = part.column.read(row, shapes)?;
            let found = found.map_or(Found::Missing, |(slot, record)| Found::of_slot(slot, record));
            code.push(&found, shapes)?;
            if part.is_descending {
                self.code.turn(start);
            }
        }
        Ok(self.code.as_bytes())
    }
}

impl SortKey {
    /// The number by which a row is ordered first, if that is one in a field of the root.
    #[inline]
    fn quick_number(&self, record: &[u8]) -> Option<Number> {
        self.parts.first()?.column.quick_number(record)
    }

    /// Whether a row with this number comes behind one with that.
    #[inline]
    fn is_behind(&self, number: Number, other: Number) -> bool {
        let order = match (number, other) {
            (Number::Int(one), Number::Int(other)) => Some(one.cmp(&other)),
            (Number::Float(one), Number::Float(other)) => one.partial_cmp(&other),
            (Number::Int(one), Number::Float(other)) => exact_cmp(one, other),
            (Number::Float(one), Number::Int(other)) => exact_cmp(other, one).map(Ordering::reverse),
        };
        let behind = match self.parts.first() {
            Some(part) if part.is_descending => Ordering::Less,
            _ => Ordering::Greater,
        };
        order == Some(behind)
    }
}

/// A row and what it is ordered by. The code is followed by the key's, which settles what is the same.
struct Entry {
    code: Box<[u8]>,
    key: Box<[u8]>,
    spelling: Box<[u8]>,
    number: Option<Number>,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.code, &self.key).cmp(&(&other.code, &other.key))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl Entry {
    fn into_key(self) -> RowKey {
        RowKey { code: self.key, spelling: self.spelling }
    }
}

/// The keys of a walk's rows in the order of `sort_key`: of those from `offset` on, `limit` at most.
///
/// Where the limit is small, only so many rows are kept, and the rest is told apart by one comparison.
///
/// # Errors
/// Damage, or a stop.
pub fn sorted<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    shapes: &S,
    sort_key: &mut SortKey,
    after: Option<&(Vec<u8>, Vec<u8>)>,
    offset: u64,
    limit: u64,
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<RowKey>, Fault> {
    let wanted = offset.saturating_add(limit);
    if wanted == 0 || limit == 0 {
        return Ok(Vec::new());
    }
    // The greatest of those that are wanted is on top.
    let mut kept: BinaryHeap<Entry> = BinaryHeap::new();
    let mut all: Vec<Entry> = Vec::new();
    let is_top = wanted <= TOP_MAX;
    // The number by which the greatest of those that are kept is ordered first: most rows are behind it.
    let mut edge: Option<Number> = None;
    for_each::<()>(rows, is_stopped, |row| {
        let number = sort_key.quick_number(row.record);
        if let (Some(number), Some(edge)) = (number, edge)
            && sort_key.is_behind(number, edge)
        {
            return ControlFlow::Continue(());
        }
        let code = match sort_key.of(&row, shapes) {
            Ok(code) => code,
            Err(error) => return damaged(&row, error),
        };
        if let Some((last_code, last_key)) = after
            && (code, row.key) <= (&**last_code, &**last_key)
        {
            return ControlFlow::Continue(());
        }
        let is_full = is_top && kept.len() as u64 == wanted;
        if is_full
            && let Some(greatest) = kept.peek()
            && (code, row.key) >= (&*greatest.code, &*greatest.key)
        {
            return ControlFlow::Continue(());
        }
        let entry = Entry { code: code.into(), key: row.key.into(), spelling: row.spelling.into(), number };
        if !is_top {
            all.push(entry);
            return ControlFlow::Continue(());
        }
        if is_full {
            kept.pop();
        }
        kept.push(entry);
        if kept.len() as u64 == wanted {
            edge = kept.peek().and_then(|greatest| greatest.number);
        }
        ControlFlow::Continue(())
    })?;
    if is_top {
        all = kept.into_sorted_vec();
    } else {
        all.sort_unstable();
    }
    let skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let take = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(all.into_iter().skip(skip).take(take).map(Entry::into_key).collect())
}

/// Up to so many rows, a heap of the best ones beats a sort of all.
pub const TOP_MAX: u64 = 10_000;
