//! Selects the rows of a walk that pass a condition, with an offset and a limit.

use std::ops::ControlFlow;

use pellucid_record::{Corrupt, Shapes};
use pellucid_store::Row;

use crate::evaluate::Evaluator;
use crate::fault::Fault;
use crate::walk::Walk;

/// Which rows of a walk are wanted: those of which all conditions are true; of these, some after
/// the first.
#[derive(Clone)]
pub struct Selection {
    /// The condition; None is true of all rows.
    pub condition: Option<Evaluator>,
    /// How many that pass are left out first.
    pub offset: u64,
    /// How many are wanted after that, at most.
    pub limit: u64,
}

impl Selection {
    /// Those of which a condition is true.
    #[must_use]
    pub fn of(condition: Option<Evaluator>) -> Self {
        Self { condition, offset: 0, limit: u64::MAX }
    }

    /// Whether every row is wanted.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.condition.is_none() && self.offset == 0 && self.limit == u64::MAX
    }

    /// Whether a row is wanted, if it is the next one met; Break where no further one is.
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
        if let Some(condition) = &mut self.condition
            && !condition.is_true(row, shapes)?
        {
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

/// Those rows of a walk that are wanted.
pub struct Selected<'a, W, S: ?Sized> {
    /// Where they come from.
    pub rows: &'a mut W,
    /// Which of them.
    pub selection: &'a mut Selection,
    /// The shapes of their records.
    pub shapes: &'a S,
}

impl<W: Walk, S: Shapes + ?Sized> Walk for Selected<'_, W, S> {
    #[inline]
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        // What the walk is told is a bit; whatever is to be said is kept beside it. Handing the
        // whole through each layer for each row took as long as the test.
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
