//! Selects the rows of a walk that pass a condition, with an offset and a limit.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pellucid_record::{Corrupt, Shapes};
use pellucid_store::Row;

use crate::evaluate::Evaluator;
use crate::fault::Fault;
use crate::walk::{StepResult, Walk};

/// Counts what a query reads while it runs, also on several threads.
#[derive(Debug, Default)]
pub struct Meter {
    entries: AtomicU64,
    rows: AtomicU64,
    passed: AtomicU64,
}

impl Meter {
    /// Adds entries of indexes, or keys, that were read before rows were.
    pub fn add_entries(&self, count: u64) {
        self.entries.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds rows that were read, and rows that passed the conditions.
    pub fn add_rows(&self, read: u64, passed: u64) {
        self.rows.fetch_add(read, Ordering::Relaxed);
        self.passed.fetch_add(passed, Ordering::Relaxed);
    }

    /// The number of entries, of rows that were read, and of rows that passed.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.entries), count(&self.rows), count(&self.passed))
    }
}

/// The rows of a walk that are wanted: those that pass the condition, with an offset and a limit.
#[derive(Clone)]
pub struct Selection {
    /// The condition; None is true for all rows.
    pub condition: Option<Evaluator>,
    /// How many of the rows that pass are left out first.
    pub offset: u64,
    /// How many are wanted after that, at most.
    pub limit: u64,
    /// Counts the rows that are read, and those that pass.
    pub meter: Option<Arc<Meter>>,
}

impl Selection {
    /// The rows for which a condition is true.
    #[must_use]
    pub fn of(condition: Option<Evaluator>) -> Self {
        Self { condition, offset: 0, limit: u64::MAX, meter: None }
    }

    /// Whether every row is wanted, and none is counted.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.condition.is_none() && self.offset == 0 && self.limit == u64::MAX && self.meter.is_none()
    }

    /// Whether the next row of the walk is wanted. Break if no further row is.
    ///
    /// # Errors
    /// Damage.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "with a call for each row a loop over one in ten took 15 % more"
    )]
    pub fn takes<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<ControlFlow<(), bool>, Corrupt> {
        if self.limit == 0 {
            return Ok(ControlFlow::Break(()));
        }
        let passes = match &mut self.condition {
            Some(condition) => condition.is_true(row, shapes)?,
            None => true,
        };
        if let Some(meter) = &self.meter {
            meter.add_rows(1, u64::from(passes));
        }
        if !passes {
            return Ok(ControlFlow::Continue(false));
        }
        if self.offset > 0 {
            self.offset -= 1;
            return Ok(ControlFlow::Continue(false));
        }
        self.limit -= 1;
        Ok(ControlFlow::Continue(true))
    }
}

/// The rows of a walk that are wanted.
pub struct Selected<'a, W, S: ?Sized> {
    /// The walk.
    pub rows: &'a mut W,
    /// The selection of its rows.
    pub selection: &'a mut Selection,
    /// The shapes of their records.
    pub shapes: &'a S,
}

impl<W: Walk, S: Shapes + ?Sized> Walk for Selected<'_, W, S> {
    #[inline]
    fn step<B>(&mut self, mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        // The walk itself gets only one bit; the result is kept beside it. Passing the whole
        // result through each layer for each row took as long as the test.
        let (selection, shapes) = (&mut *self.selection, self.shapes);
        let mut said = Ok(None);
        let step = self.rows.step(|row| match selection.takes(&row, shapes) {
            Ok(ControlFlow::Continue(true)) => match visit(row) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                ControlFlow::Break(value) => {
                    said = Ok(Some(value));
                    ControlFlow::Break(())
                }
            },
            Ok(ControlFlow::Continue(false)) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            Err(error) => {
                said = Err(Fault::Record(row.key.to_vec(), error));
                ControlFlow::Break(())
            }
        })?;
        match step {
            Some(ControlFlow::Continue(())) => Ok(Some(ControlFlow::Continue(()))),
            None => Ok(None),
            Some(ControlFlow::Break(())) => Ok(said?.map(ControlFlow::Break)),
        }
    }
}
