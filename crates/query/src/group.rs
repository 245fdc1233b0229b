//! What do the rows of each group come to?

use std::ops::ControlFlow;

use hashbrown::HashMap;
use pellucid_record::{Corrupt, Shapes, Slot, Value};
use pellucid_store::Row;

use crate::code::Code;
use crate::column::Column;
use crate::evaluate::found::Found;
use crate::field::Number;
use crate::sum::Sum;
use crate::walk::{Fault, Walk, damaged, for_each};

/// What is made of the values of a group.
pub enum Aggregate {
    /// How many rows there are.
    Count,
    /// How many rows have a value; None is one.
    CountOf(Column),
    /// What the numbers add up to.
    Sum(Column),
    /// The mean of the numbers.
    Mean(Column),
    /// The least value that is not None, in the order of keys.
    Least(Column),
    /// The greatest.
    Greatest(Column),
}

/// What an aggregate has come to.
#[derive(Clone, Debug)]
pub enum Total {
    /// A count.
    Count(u64),
    /// A sum; and numbers that only the caller can add.
    Sum(Sum, Vec<Value>),
    /// A mean, likewise.
    Mean(Sum, Vec<Value>),
    /// The code of the value found so far, and the value; None where there was none.
    Extreme(Option<(Vec<u8>, Value)>),
}

/// A group: what its rows have in common, None where it is missing; and what they come to.
#[derive(Clone, Debug)]
pub struct Group {
    /// One for each expression that rows were grouped by.
    pub values: Vec<Option<Value>>,
    /// One for each aggregate.
    pub totals: Vec<Total>,
}

/// Groups rows by columns, and computes aggregates over each group. Groups come in the order of what they have in
/// common; what is missing is last. Without columns all rows are one group, also where there are none.
///
/// # Errors
/// Damage, or a stop.
pub fn grouped<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    shapes: &S,
    columns: &mut [Column],
    aggregates: &mut [Aggregate],
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<Group>, Fault> {
    let mut places: HashMap<Box<[u8]>, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    if columns.is_empty() {
        groups.push(Group::empty(aggregates));
    }
    let mut code = Code::default();
    let mut scratch = Code::default();
    // Groups of one string each, which need no code to be found.
    let mut texts: HashMap<Box<[u8]>, usize> = HashMap::new();
    for_each::<()>(rows, is_stopped, |row| {
        let mut add = || -> Result<(), Corrupt> {
            let place = if let Some(place) = known_place(columns, &row, shapes, &texts)? {
                place
            } else {
                code.clear();
                for column in columns.iter_mut() {
                    let found = column.read(&row, shapes)?;
                    let found = found.map_or(Found::Missing, |(slot, record)| Found::of_slot(slot, record));
                    code.push_group(&found, shapes)?;
                }
                let place = if let Some(place) = places.get(code.as_bytes()) {
                    *place
                } else {
                    let values = columns.iter_mut().map(|column| column.value(&row, shapes));
                    let values = values.collect::<Result<_, _>>()?;
                    places.insert(code.as_bytes().into(), groups.len());
                    groups.push(Group { values, totals: aggregates.iter().map(Total::of).collect() });
                    groups.len() - 1
                };
                if let [column] = &mut *columns
                    && let Some((Slot::Str(text), _)) = column.read(&row, shapes)?
                {
                    texts.insert(text.into(), place);
                }
                place
            };
            if let Some(group) = groups.get_mut(place) {
                for (aggregate, total) in aggregates.iter_mut().zip(&mut group.totals) {
                    aggregate.add(total, &row, shapes, &mut scratch)?;
                }
            }
            Ok(())
        };
        match add() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => damaged(&row, error),
        }
    })?;
    let mut places: Vec<(Box<[u8]>, usize)> = places.into_iter().collect();
    if places.is_empty() {
        return Ok(groups);
    }
    places.sort_unstable();
    let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    Ok(places.into_iter().filter_map(|(_, place)| groups.get_mut(place).and_then(Option::take)).collect())
}

/// The group of a row, where that is found without a code.
#[inline]
fn known_place<S: Shapes + ?Sized>(
    columns: &mut [Column],
    row: &Row<'_>,
    shapes: &S,
    texts: &HashMap<Box<[u8]>, usize>,
) -> Result<Option<usize>, Corrupt> {
    Ok(match columns {
        [] => Some(0),
        [column] => match column.read(row, shapes)? {
            Some((Slot::Str(text), _)) => texts.get(text).copied(),
            _ => None,
        },
        _ => None,
    })
}

impl Group {
    /// The group of no rows.
    #[must_use]
    pub fn empty(aggregates: &[Aggregate]) -> Self {
        Self { values: Vec::new(), totals: aggregates.iter().map(Total::of).collect() }
    }
}

impl Total {
    fn of(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::Count | Aggregate::CountOf(_) => Total::Count(0),
            Aggregate::Sum(_) => Total::Sum(Sum::default(), Vec::new()),
            Aggregate::Mean(_) => Total::Mean(Sum::default(), Vec::new()),
            Aggregate::Least(_) | Aggregate::Greatest(_) => Total::Extreme(None),
        }
    }
}

impl Aggregate {
    fn add<S: Shapes + ?Sized>(
        &mut self,
        total: &mut Total,
        row: &Row<'_>,
        shapes: &S,
        scratch: &mut Code,
    ) -> Result<(), Corrupt> {
        let is_least = matches!(self, Aggregate::Least(_));
        match (self, total) {
            (Aggregate::Count, Total::Count(count)) => *count += 1,
            (Aggregate::CountOf(column), Total::Count(count)) => {
                *count += u64::from(column.read(row, shapes)?.is_some());
            }
            (Aggregate::Sum(column), Total::Sum(sum, others))
            | (Aggregate::Mean(column), Total::Mean(sum, others)) => match column.quick_number(row.record) {
                Some(Number::Int(value)) => sum.add_int(value),
                Some(Number::Float(value)) => sum.add_float(value),
                None => add_number(column, row, shapes, sum, others)?,
            },
            (Aggregate::Least(column) | Aggregate::Greatest(column), Total::Extreme(best)) => {
                let Some((slot, record)) = column.read(row, shapes)? else { return Ok(()) };
                if matches!(slot, Slot::None) {
                    return Ok(());
                }
                scratch.clear();
                scratch.push(&Found::of_slot(slot, record), shapes)?;
                let is_better = match best {
                    None => true,
                    Some((code, _)) if is_least => scratch.as_bytes() < &**code,
                    Some((code, _)) => scratch.as_bytes() > &**code,
                };
                if is_better && let Some(value) = Found::of_slot(slot, record).to_value(shapes)? {
                    *best = Some((scratch.as_bytes().to_vec(), value));
                }
            }
            // A total was made of its aggregate.
            _ => {}
        }
        Ok(())
    }
}

fn add_number<S: Shapes + ?Sized>(
    column: &mut Column,
    row: &Row<'_>,
    shapes: &S,
    sum: &mut Sum,
    others: &mut Vec<Value>,
) -> Result<(), Corrupt> {
    match column.value(row, shapes)? {
        Some(Value::Int(value)) => sum.add_int(value),
        Some(Value::Float(value)) => sum.add_float(value.0),
        Some(Value::Bool(value)) => sum.add_int(i64::from(value)),
        Some(value @ (Value::BigInt(_) | Value::Decimal(_) | Value::Complex(..))) => others.push(value),
        _ => {}
    }
    Ok(())
}
