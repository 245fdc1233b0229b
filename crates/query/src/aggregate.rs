//! Adds up the numbers of a column over a walk of rows.
//!
//! This is the fast path for a column of which all numbers can be added without Python. `group.rs`
//! computes all other aggregates.

use std::ops::ControlFlow;

use pellucid_record::layout::tag;
use pellucid_record::view::Slot;
use pellucid_record::{Shapes, Value};

use crate::column::Column;
use crate::decimal_sum::DecimalSum;
use crate::fault::Fault;
use crate::field::Number;
use crate::sum::Sum;
use crate::walk::{Walk, damaged, for_each};
use crate::work::{Parallel, Stop, Work};

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

/// Adds up the numbers in a column.
#[derive(Clone)]
pub struct AddUp(pub Column);

impl Work for AddUp {
    type Result = Outcome<Sums>;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Self::Result, Fault> {
        let Self(mut column) = self;
        let Sums { numbers: mut sum, mut decimals } = Sums::default();
        let branches = column.branches();
        let foreign = for_each(rows, stop.check(), |row| {
            if branches {
                let mut is_foreign = false;
                let visited = column.visit(&row, shapes, &mut |found| {
                    match found.to_value(shapes)? {
                        Some(Value::Int(value)) => sum.add_int(value),
                        Some(Value::Float(value)) => sum.add_float(value.0),
                        Some(Value::Bool(value)) => sum.add_int(i64::from(value)),
                        Some(Value::Decimal(text)) => is_foreign |= !decimals.add(text.as_bytes()),
                        Some(Value::BigInt(_) | Value::Complex(..) | Value::Ndarray { .. }) => {
                            is_foreign = true
                        }
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
                    tag: tag::BIGINT | tag::DECIMAL | tag::COMPLEX | tag::NDARRAY,
                    ..
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
}

impl Parallel for AddUp {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> Result<Self::Result, Fault> {
        let mut whole = Sums::default();
        for part in parts {
            match part {
                Outcome::Done(part) if whole.add(&part) => {}
                Outcome::Done(_) | Outcome::Foreign => return Ok(Outcome::Foreign),
            }
        }
        Ok(if whole.is_sure() { Outcome::Done(whole) } else { Outcome::Foreign })
    }
}

/// Which extreme is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremes {
    /// The least value.
    Least,
    /// The greatest.
    Greatest,
}
