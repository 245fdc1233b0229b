//! Gathers the numbers at a path, and computes the figures of `describe` from them.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are floats, and so are shares"
)]

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_record::layout::tag;
use pellucid_record::view::Slot;

use crate::column::Column;
use crate::numbers::Outcome;
use crate::sum::Sum;
use crate::walk::{Walk, damaged, for_each};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// Gathers the finite numbers of a column. A Decimal and an int that needs more than 64 bits are
/// foreign.
#[derive(Clone)]
pub struct GatherFigures(pub Column);

/// The finite numbers of a column.
#[derive(Default)]
pub struct Gathered {
    values: Vec<f64>,
    sum: Sum,
    /// The least and the greatest of the ints.
    ints: Option<(i64, i64)>,
}

/// The figures of numbers: those of pandas.
pub struct Figures {
    /// How many there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; None of one number.
    pub deviation: Option<f64>,
    /// The least one, the quartiles, and the greatest one.
    pub quartiles: [f64; 5],
    /// The least and the greatest one, where they are ints.
    pub ints: (Option<i64>, Option<i64>),
}

impl Gathered {
    #[inline]
    fn push_int(&mut self, value: i64) {
        self.values.push(value as f64);
        self.sum.add_int(value);
        self.ints = Some(match self.ints {
            Some((least, greatest)) => (least.min(value), greatest.max(value)),
            None => (value, value),
        });
    }

    #[inline]
    fn push_float(&mut self, value: f64) {
        if value.is_finite() {
            self.values.push(value);
            self.sum.add_float(value);
        }
    }

    /// The figures; None of no numbers.
    #[must_use]
    pub fn figures(mut self) -> Option<Figures> {
        let count = self.values.len();
        if count == 0 {
            return None;
        }
        let mean = self.sum.float() / count as f64;
        let mut spread = Sum::default();
        for value in &self.values {
            spread.add_float((value - mean) * (value - mean));
        }
        let deviation = (count > 1).then(|| (spread.float() / (count - 1) as f64).sqrt());
        let quartiles = quartiles(&mut self.values);
        let is = |int: Option<i64>, end: f64| int.filter(|int| (*int as f64).total_cmp(&end).is_eq());
        let [least, .., greatest] = quartiles;
        let ints = (is(self.ints.map(|ints| ints.0), least), is(self.ints.map(|ints| ints.1), greatest));
        Some(Figures { count, mean, deviation, quartiles, ints })
    }
}

/// The least value, the quartiles and the greatest one, each between two values if it falls there.
fn quartiles(values: &mut [f64]) -> [f64; 5] {
    let last = values.len().saturating_sub(1);
    let mut rest = values;
    let mut passed = 0;
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| {
        let place = share * last as f64;
        let below = place as usize;
        // What is before the last one that was asked for is not greater, and is passed over.
        let Some(index) = below.checked_sub(passed).filter(|index| *index < rest.len()) else {
            return f64::NAN;
        };
        let (_, at, behind) = rest.select_nth_unstable_by(index, f64::total_cmp);
        let fraction = place - below as f64;
        let found = if fraction > 0.0 {
            let above = behind.iter().copied().fold(f64::INFINITY, f64::min);
            *at + (above - *at) * fraction
        } else {
            *at
        };
        passed = below;
        let tail = std::mem::take(&mut rest);
        rest = tail.get_mut(index..).unwrap_or_default();
        found
    })
}

impl Work for GatherFigures {
    type Result = Outcome<Gathered>;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let Self(mut column) = self;
        let mut found = Gathered::default();
        let foreign = for_each(rows, stop.check(), |row| {
            if let Some(place) = column.place(row.record) {
                if let Some(value) = place.int() {
                    found.push_int(value);
                    return ControlFlow::Continue(());
                }
                if let Some(value) = place.float() {
                    found.push_float(value);
                    return ControlFlow::Continue(());
                }
            }
            match column.read(&row, shapes) {
                Ok(Some((Slot::Int(value), _))) => found.push_int(value),
                Ok(Some((Slot::Float(value), _))) => found.push_float(value),
                Ok(Some((Slot::Heap { tag: tag::BIGINT | tag::DECIMAL, .. }, _))) => {
                    return ControlFlow::Break(Ok(()));
                }
                Ok(_) => {}
                Err(error) => return damaged(&row, error),
            }
            ControlFlow::Continue(())
        })?;
        Ok(if foreign.is_some() { Outcome::Foreign } else { Outcome::Done(found) })
    }
}

impl Parallel for GatherFigures {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        let mut all = Gathered::default();
        for part in parts {
            let Outcome::Done(part) = part else { return Ok(Outcome::Foreign) };
            all.values.extend(part.values);
            all.sum.add(&part.sum);
            let both = all.ints.zip(part.ints).map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
            all.ints = both.or(all.ints).or(part.ints);
        }
        Ok(Outcome::Done(all))
    }
}

#[cfg(test)]
mod tests {
    use super::Gathered;

    #[test]
    fn figures_are_those_of_sorted_numbers() {
        for count in [1, 2, 3, 4, 5, 100, 1001] {
            let mut all = Gathered::default();
            let mut sorted: Vec<f64> = (0..count).map(|number| f64::from(number * 7 % count) / 4.0).collect();
            for value in &sorted {
                all.push_float(*value);
            }
            all.push_float(f64::NAN);
            sorted.sort_by(f64::total_cmp);
            let expected = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| {
                let place = share * (sorted.len() - 1) as f64;
                let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
                below + (above - below) * place.fract()
            });
            let figures = all.figures().unwrap();
            assert_eq!((figures.count, figures.quartiles), (sorted.len(), expected));
            assert_eq!((figures.deviation.is_some(), figures.ints), (count > 1, (None, None)));
        }
        assert!(Gathered::default().figures().is_none());
    }
}
