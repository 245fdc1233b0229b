//! Follows the access path of a query once more, and counts the rows, keys or entries that it
//! meets.

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_store::Reader;

use super::work::{Stop, Work};
use super::{AccessPaths, Executor, Reached, RowSet, evaluator_of_all};
use crate::evaluate::Evaluator;
use crate::fault::Fault;
use crate::plan::AccessPath;
use crate::selection::Selection;
use crate::walk::{Walk, damaged, for_each};

/// What an access path has met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Met {
    /// The number of entries of an index, and how many of their rows passed the conditions.
    Entries(u64, u64),
    /// The number of keys, and how many were expected.
    Keys(usize, f64),
    /// The number of rows of a scan, and how many of them passed, if that was found out.
    Rows(u64, Option<u64>),
}

impl<R: Reader> Executor<'_, R> {
    /// Follows the path until `wanted` rows have passed the conditions, and counts what it meets.
    /// `keys_wanted` is the number of gathered keys that are of use.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn met(&self, paths: Option<&AccessPaths>, wanted: u64, keys_wanted: u64) -> Result<Met, Fault> {
        let followed = paths.map(|paths| self.follow(paths, keys_wanted)).transpose()?;
        let rows = match followed {
            Some((Reached::Keys(keys), Some(path))) if path.access != AccessPath::TableScan => {
                let probed = paths.and_then(|paths| paths.probed);
                return Ok(match (&path.access, probed) {
                    // The probe found them by walking along the index.
                    (AccessPath::IndexOrder { .. }, Some((met, passed))) => Met::Entries(met, passed),
                    _ => Met::Keys(keys.len(), path.estimate),
                });
            }
            Some((Reached::Rows(rows), _)) => {
                let (met, passed) = self.meet(RowSet::Index(rows), wanted)?;
                return Ok(Met::Entries(met, passed));
            }
            _ => RowSet::Scan(self.reader.scan(self.table, &self.range, false)?),
        };
        if wanted == u64::MAX && self.is_whole {
            return Ok(Met::Rows(self.row_count()?, None));
        }
        let (met, passed) = self.meet(rows, wanted)?;
        Ok(Met::Rows(met, Some(passed)))
    }

    fn meet(&self, rows: RowSet<R>, wanted: u64) -> Result<(u64, u64), Fault> {
        let condition = evaluator_of_all(self.conditions.clone())?;
        self.run_over(rows, Selection::of(None), Meet { condition, wanted })
    }
}

/// Counts rows, and those for which a condition is true, until enough of them passed.
struct Meet {
    condition: Option<Evaluator>,
    wanted: u64,
}

impl Work for Meet {
    type Result = (u64, u64);

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let (mut met, mut passed) = (0, 0);
        if self.wanted == 0 {
            return Ok((0, 0));
        }
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                met += 1;
                match self.condition.as_mut().map_or(Ok(true), |condition| condition.is_true(&row, shapes)) {
                    Ok(is_true) => passed += u64::from(is_true),
                    Err(error) => return damaged(&row, error),
                }
                if passed >= self.wanted { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
            },
        )?;
        Ok((met, passed))
    }
}
