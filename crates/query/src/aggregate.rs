//! Computes the sum, the count, the least and the greatest value of a column over a walk of rows.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use pellucid_record::layout::tag;
use pellucid_record::view::Slot;
use pellucid_record::{Shapes, Value};

use crate::column::Column;
use crate::decimal_sum::DecimalSum;
use crate::fault::Fault;
use crate::field::Number;
use crate::order::exact_cmp;
use crate::sum::Sum;
use crate::walk::{Walk, damaged, for_each};

/// How a walk ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// All rows were read.
    Done(T),
    /// There is a value of a type that only the caller can handle: the caller has to walk over the
    /// rows itself.
    Foreign,
}

/// A sum of numbers, with the Decimals apart.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// The sum of ints and floats.
    pub numbers: Sum,
    /// The sum of Decimals.
    pub decimals: DecimalSum,
}

impl Sums {
    /// Adds the sums of later rows. Returns whether that was possible.
    #[must_use]
    pub fn add(&mut self, later: &Self) -> bool {
        self.numbers.add(&later.numbers);
        self.decimals.put(later.decimals)
    }

    /// How many numbers were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.numbers.count() + self.decimals.count()
    }

    /// Whether the sum of the Decimals is what adding them and the ints one after another would
    /// give, and there is no float.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.decimals.holds_beside(&self.numbers)
    }
}

/// Adds up the numbers in a field.
///
/// # Errors
/// Damage, or a stop.
pub fn sum<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    column: &mut Column,
    shapes: &S,
    is_stopped: impl Fn() -> bool,
) -> Result<Outcome<Sums>, Fault> {
    let Sums { numbers: mut sum, mut decimals } = Sums::default();
    let branches = column.branches();
    let foreign = for_each(rows, is_stopped, |row| {
        if branches {
            let mut is_foreign = false;
            let visited = column.visit(&row, shapes, &mut |found| {
                match found.to_value(shapes)? {
                    Some(Value::Int(value)) => sum.add_int(value),
                    Some(Value::Float(value)) => sum.add_float(value.0),
                    Some(Value::Bool(value)) => sum.add_int(i64::from(value)),
                    Some(Value::Decimal(text)) => is_foreign |= !decimals.add(text.as_bytes()),
                    Some(Value::BigInt(_) | Value::Complex(..) | Value::Ndarray { .. }) => is_foreign = true,
                    _ => {}
                }
                Ok(())
            });
            return match visited {
                Ok(()) if is_foreign => ControlFlow::Break(Ok(())),
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => damaged(&row, error),
            };
        }
        match column.quick_number(row.record) {
            Some(Number::Int(value)) => {
                sum.add_int(value);
                return ControlFlow::Continue(());
            }
            Some(Number::Float(value)) => {
                sum.add_float(value);
                return ControlFlow::Continue(());
            }
            None => {}
        }
        match column.read(&row, shapes).map(|found| found.map(|(slot, _)| slot)) {
            Ok(Some(Slot::Int(value))) => sum.add_int(value),
            Ok(Some(Slot::Float(value))) => sum.add_float(value),
            Ok(Some(Slot::Bool(value))) => sum.add_int(i64::from(value)),
            Ok(Some(Slot::Heap { tag: tag::DECIMAL, payload, .. })) if decimals.add(payload) => {}
            // Big ints, Decimals of too many digits and NumPy's scalars are numbers too, but this
            // function cannot add them.
            Ok(Some(Slot::Heap {
                tag: tag::BIGINT | tag::DECIMAL | tag::COMPLEX | tag::NDARRAY, ..
            })) => {
                return ControlFlow::Break(Ok(()));
            }
            Ok(_) => {}
            Err(error) => return damaged(&row, error),
        }
        ControlFlow::Continue(())
    })?;
    let sums = Sums { numbers: sum, decimals };
    Ok(if foreign.is_some() || !sums.is_sure() { Outcome::Foreign } else { Outcome::Done(sums) })
}

/// Counts the rows that have the field. None counts, a missing field does not. With `each()`,
/// counts elements.
///
/// # Errors
/// Damage, or a stop.
pub fn count<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    column: &mut Column,
    shapes: &S,
    is_stopped: impl Fn() -> bool,
) -> Result<u64, Fault> {
    let (mut count, branches) = (0, column.branches());
    for_each::<()>(rows, is_stopped, |row| {
        let counted = if branches {
            column.visit(&row, shapes, &mut |found| {
                count += u64::from(!found.is_missing());
                Ok(())
            })
        } else {
            column.read(&row, shapes).map(|found| count += u64::from(found.is_some()))
        };
        match counted {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => damaged(&row, error),
        }
    })?;
    Ok(count)
}

/// The least or the greatest value so far.
#[derive(Clone, Debug, PartialEq)]
pub enum Extreme {
    /// An int, or a bool.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string's UTF-8.
    Str(Vec<u8>),
    /// A date's ordinal.
    Date(u32),
    /// A naive datetime: microseconds times 2, plus fold.
    Datetime(i64),
}

/// Which extreme is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremes {
    /// The least value.
    Least,
    /// The greatest.
    Greatest,
}

/// Finds the least or the greatest value in a field; of equal ones the first.
///
/// Values of unlike types, bools, NaN and other values that it cannot order give `Foreign`: Python
/// decides.
///
/// # Errors
/// Damage, or a stop.
pub fn extreme<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    column: &mut Column,
    shapes: &S,
    which: Extremes,
    is_stopped: impl Fn() -> bool,
) -> Result<Outcome<Option<Extreme>>, Fault> {
    let wanted = if which == Extremes::Least { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<Extreme> = None;
    if column.branches() {
        // This is rare: the code for groups handles it.
        return Ok(Outcome::Foreign);
    }
    let foreign = for_each(rows, is_stopped, |row| {
        if let (Some(value), Some(Extreme::Int(old))) = (column.quick_int(row.record), &best) {
            if value.cmp(old) == wanted {
                best = Some(Extreme::Int(value));
            }
            return ControlFlow::Continue(());
        }
        let slot = match column.read(&row, shapes).map(|found| found.map(|(slot, _)| slot)) {
            Ok(Some(Slot::None) | None) => return ControlFlow::Continue(()),
            Ok(Some(slot)) => slot,
            Err(error) => return damaged(&row, error),
        };
        let is_better = match &best {
            None => true,
            Some(best) => match compare(&slot, best) {
                Some(order) => order == wanted,
                None => return ControlFlow::Break(Ok(())),
            },
        };
        if is_better {
            match owned(&slot) {
                Some(value) => best = Some(value),
                None => return ControlFlow::Break(Ok(())),
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(if foreign.is_some() { Outcome::Foreign } else { Outcome::Done(best) })
}

/// The better of the results of two walks, of which `one` came first.
#[must_use]
pub fn better(
    one: Outcome<Option<Extreme>>,
    other: Outcome<Option<Extreme>>,
    which: Extremes,
) -> Outcome<Option<Extreme>> {
    let wanted = if which == Extremes::Least { Ordering::Less } else { Ordering::Greater };
    let (Outcome::Done(one), Outcome::Done(other)) = (one, other) else { return Outcome::Foreign };
    match (one, other) {
        (None, found) | (found, None) => Outcome::Done(found),
        (Some(one), Some(other)) => match compare(&other.slot(), &one) {
            Some(order) if order == wanted => Outcome::Done(Some(other)),
            Some(_) => Outcome::Done(Some(one)),
            None => Outcome::Foreign,
        },
    }
}

impl Extreme {
    fn slot(&self) -> Slot<'_> {
        match self {
            Self::Int(value) => Slot::Int(*value),
            Self::Float(value) => Slot::Float(*value),
            Self::Str(value) => Slot::Str(value),
            Self::Date(value) => Slot::Date(*value),
            Self::Datetime(value) => Slot::Datetime(*value),
        }
    }
}

/// Compares a slot with the best value so far. None if this function cannot compare them.
fn compare(slot: &Slot<'_>, best: &Extreme) -> Option<Ordering> {
    match (slot, best) {
        (Slot::Int(value), Extreme::Int(best)) => Some(value.cmp(best)),
        (Slot::Float(value), Extreme::Float(best)) => value.partial_cmp(best),
        (Slot::Int(value), Extreme::Float(best)) => exact_cmp(*value, *best),
        (Slot::Float(value), Extreme::Int(best)) => exact_cmp(*best, *value).map(Ordering::reverse),
        (Slot::Str(value), Extreme::Str(best)) => Some(value.cmp(&best.as_slice())),
        (Slot::Date(value), Extreme::Date(best)) => Some(value.cmp(best)),
        // A comparison ignores fold.
        (Slot::Datetime(value), Extreme::Datetime(best)) => Some((value >> 1).cmp(&(best >> 1))),
        _ => None,
    }
}

fn owned(slot: &Slot<'_>) -> Option<Extreme> {
    Some(match slot {
        Slot::Int(value) => Extreme::Int(*value),
        Slot::Float(value) if !value.is_nan() => Extreme::Float(*value),
        Slot::Str(value) => Extreme::Str(value.to_vec()),
        Slot::Date(value) => Extreme::Date(*value),
        Slot::Datetime(value) => Extreme::Datetime(*value),
        _ => return None,
    })
}
