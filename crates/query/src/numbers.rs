//! Gathers the numbers of a field in one list.
//!
//! This is the fast path for a column that has only ints or only floats: no type has to be found,
//! and there are no nulls. At any other value it gives up, and `arrow/` does the work.

use std::ops::ControlFlow;

use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Shapes};
use pellucid_store::Row;

use crate::column::Column;
use crate::walk::{Walk, damaged, for_each};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// How a walk ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// All rows were read.
    Done(T),
    /// There is a value of a type that only the caller can handle: the caller has to walk over the
    /// rows itself.
    Foreign,
}

/// Numbers in one piece of memory. If all were in one piece, it would be copied each time it grows.
const PIECE_COUNT: usize = 1 << 15;

/// Numbers of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Ints, in pieces.
    Ints(Vec<Vec<i64>>),
    /// Floats, in pieces.
    Floats(Vec<Vec<f64>>),
}

/// Gathers the numbers of a column in all rows. None if there are no rows.
#[derive(Clone)]
pub struct GatherNumbers(pub Column);

impl Work for GatherNumbers {
    type Result = Outcome<Option<Numbers>>;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let Self(mut column) = self;
        let mut found = None;
        let foreign = for_each(rows, stop.check(), |row| {
            let taken = match &mut found {
                Some(Pieces::Ints(pieces)) => match column.place(row.record).and_then(|place| place.int()) {
                    Some(value) => {
                        pieces.push(value);
                        return ControlFlow::Continue(());
                    }
                    None => slow(&mut column, &row, shapes, &mut found),
                },
                Some(Pieces::Floats(pieces)) => {
                    match column.place(row.record).and_then(|place| place.float()) {
                        Some(value) => {
                            pieces.push(value);
                            return ControlFlow::Continue(());
                        }
                        None => slow(&mut column, &row, shapes, &mut found),
                    }
                }
                None => slow(&mut column, &row, shapes, &mut found),
            };
            match taken {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(Ok(())),
                Err(error) => damaged(&row, error),
            }
        })?;
        Ok(if foreign.is_some() { Outcome::Foreign } else { Outcome::Done(found.map(Pieces::finish)) })
    }
}

impl Parallel for GatherNumbers {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        let mut all = None;
        for part in parts {
            let Outcome::Done(part) = part else { return Ok(Outcome::Foreign) };
            match (&mut all, part) {
                (_, None) => {}
                (None, part) => all = part,
                (Some(Numbers::Ints(all)), Some(Numbers::Ints(part))) => all.extend(part),
                (Some(Numbers::Floats(all)), Some(Numbers::Floats(part))) => all.extend(part),
                (Some(_), Some(_)) => return Ok(Outcome::Foreign),
            }
        }
        Ok(Outcome::Done(all))
    }
}

/// Numbers while they are gathered.
enum Pieces {
    Ints(Piecewise<i64>),
    Floats(Piecewise<f64>),
}

struct Piecewise<T> {
    full: Vec<Vec<T>>,
    last: Vec<T>,
}

impl<T> Piecewise<T> {
    fn of(first: T) -> Self {
        let mut pieces = Self { full: Vec::new(), last: Vec::new() };
        pieces.push(first);
        pieces
    }

    #[inline]
    fn push(&mut self, value: T) {
        if self.last.len() == self.last.capacity() {
            self.begin_another();
        }
        self.last.push(value);
    }

    #[cold]
    fn begin_another(&mut self) {
        let last = std::mem::replace(&mut self.last, Vec::with_capacity(PIECE_COUNT));
        if !last.is_empty() {
            self.full.push(last);
        }
    }

    fn finish(mut self) -> Vec<Vec<T>> {
        self.full.push(self.last);
        self.full
    }
}

impl Pieces {
    fn finish(self) -> Numbers {
        match self {
            Pieces::Ints(pieces) => Numbers::Ints(pieces.finish()),
            Pieces::Floats(pieces) => Numbers::Floats(pieces.finish()),
        }
    }
}

/// Adds the number of a row by reading the column. False if it is no number, or one of the other
/// type.
#[inline(never)]
fn slow<S: Shapes + ?Sized>(
    column: &mut Column,
    row: &Row<'_>,
    shapes: &S,
    found: &mut Option<Pieces>,
) -> Result<bool, Corrupt> {
    match (column.read(row, shapes)?.map(|(slot, _)| slot), found) {
        (Some(Slot::Int(value)), Some(Pieces::Ints(pieces))) => pieces.push(value),
        (Some(Slot::Float(value)), Some(Pieces::Floats(pieces))) => pieces.push(value),
        (Some(Slot::Int(value)), found @ None) => *found = Some(Pieces::Ints(Piecewise::of(value))),
        (Some(Slot::Float(value)), found @ None) => *found = Some(Pieces::Floats(Piecewise::of(value))),
        _ => return Ok(false),
    }
    Ok(true)
}
