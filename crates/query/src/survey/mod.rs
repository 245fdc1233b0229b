//! Surveys rows: which fields they have, of which types, how many differ, and between which values.
//!
//! A survey of all rows reads each value. The other one *skims* all rows, which says what fields
//! there are, also those that ten rows of a million have, and reads the values of some rows by
//! chance. It takes a bounded time: of a table that is too large, each part is skimmed from its
//! begin on.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "estimates and shares")]

mod distinct;
pub mod figures;
mod tree;
mod values;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pellucid_record::{Shapes, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::expression::Step;
use crate::fault::Fault;
use crate::survey::tree::Tree;
use crate::survey::values::TYPES;
use crate::walk::{Walk, damaged, for_each};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// How many rows are read by chance.
pub const SAMPLE_COUNT: u64 = 10_000;
/// After this many values in a thread, no row is read by chance any more: rows may be wide.
const VALUE_COUNT_MAX: u64 = 1_000_000;
/// More rows than this are not expected to be skimmed in time.
const SKIMMED_COUNT: u64 = 20_000_000;
/// How long skimming may take before parts of a table are cut. They then take as long in all again.
const TIME: Duration = Duration::from_secs(1);
/// Parts for each thread. Each part has its share of the time.
const PARTS: usize = 64;
/// Rows between two looks at the clock.
const ROWS_BETWEEN_LOOKS: u64 = 64;

/// A survey of rows: the work, and what it has found.
#[derive(Clone)]
pub struct Survey {
    is_exact: bool,
    /// One row of this many is read by chance.
    interval: u64,
    /// When it began, and how long a part may take after `TIME`.
    started: Instant,
    time: Duration,
    /// The trees of threads that are done with a part; each takes one up again for its next part.
    trees: Arc<Mutex<Vec<Tree>>>,
}

/// A path, with what is known of the values at it.
pub struct Field {
    /// Its steps; none for rows that are no dicts.
    pub steps: Vec<Step>,
    /// How many of the rows that were met have a value there.
    pub rows: u64,
    /// The types of Python that were read there, each with its share, the most frequent first.
    pub types: Vec<(&'static str, f64)>,
    /// How many distinct values all rows have, estimated; None for containers.
    pub distinct: Option<u64>,
    /// The least and the greatest value of the most frequent type that has an order.
    pub ends: Option<(Value, Value)>,
    /// The first value that is not None.
    pub example: Option<Value>,
}

/// What a survey has found.
#[derive(Default)]
pub struct Surveyed {
    /// The paths.
    pub fields: Vec<Field>,
    /// How many rows were met.
    pub rows: u64,
    /// Of how many rows all values were read.
    pub read: u64,
    /// Whether there are more paths than are listed.
    pub has_more: bool,
}

impl Survey {
    /// A survey of about this many rows: of all of them if `is_exact`, or if they are few.
    #[must_use]
    pub fn new(count: u64, is_exact: bool) -> Self {
        Self {
            is_exact: is_exact || count <= SAMPLE_COUNT,
            interval: (count.min(SKIMMED_COUNT) / SAMPLE_COUNT).max(1),
            started: Instant::now(),
            time: TIME,
            trees: Arc::default(),
        }
    }

    /// What was found.
    #[must_use]
    pub fn result(self) -> Surveyed {
        let trees = std::mem::take(&mut *self.trees.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(tree) = Tree::merged(trees) else { return Surveyed::default() };
        let (rows, read, has_more) = (tree.rows, tree.noted, tree.is_full);
        // Each row that was read stands for this many.
        let weight = if self.is_exact || read == 0 { 1.0 } else { rows as f64 / read as f64 };
        let fields = tree.found().into_iter().map(|found| field_of(found, weight)).collect();
        Surveyed { fields, rows, read, has_more }
    }

    fn take(&self) -> Tree {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.pop().unwrap_or_else(|| Tree::new(self.is_exact))
    }

    fn give_back(&self, tree: Tree) {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).push(tree);
    }
}

fn field_of(found: tree::Found, weight: f64) -> Field {
    let mut values = found.values;
    let total = values.count.max(1) as f64;
    let mut types: Vec<_> = TYPES
        .iter()
        .zip(values.types)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (*name, count as f64 / total))
        .collect();
    types.sort_by(|one, other| other.1.total_cmp(&one.1));
    let all = (values.counted as f64 * weight).round() as u64;
    // A row has one value at a path, but for the elements of its lists.
    let all = if found.steps.contains(&Step::Each) { all } else { all.min(found.rows) };
    let hashes = std::mem::take(&mut values.distinct);
    let distinct = (values.counted > 0).then(|| distinct::of_sample(hashes, values.counted, all));
    let example = values.example.take();
    Field { steps: found.steps, rows: found.rows, types, distinct, ends: values.ends(), example }
}

impl Work for Survey {
    type Result = ();

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut tree = self.take();
        let started = Instant::now();
        // Rows by chance, and the same ones each time: the choice begins with a part's first key.
        let (mut state, mut until_chosen, mut row_count) = (0, 0, 0);
        let gap = |state: &mut u64| {
            *state = values::mixed(*state);
            *state % (2 * self.interval - 1)
        };
        for_each(rows, stop.check(), |row| {
            let noted = if self.is_exact {
                tree.note(row.record, shapes)
            } else {
                if row_count == 0 {
                    state = xxh3_64(row.key);
                    until_chosen = gap(&mut state);
                }
                let is_chosen = until_chosen == 0 && tree.value_count < VALUE_COUNT_MAX;
                until_chosen = if until_chosen == 0 { gap(&mut state) } else { until_chosen - 1 };
                tree.skim(row.record, shapes, is_chosen)
            };
            if let Err(error) = noted {
                return damaged(&row, error);
            }
            row_count += 1;
            let is_late = !self.is_exact
                && row_count % ROWS_BETWEEN_LOOKS == 0
                && started.elapsed() > self.time
                && self.started.elapsed() > TIME;
            if is_late { ControlFlow::Break(Ok::<(), Fault>(())) } else { ControlFlow::Continue(()) }
        })?;
        self.give_back(tree);
        Ok(())
    }
}

impl Parallel for Survey {
    fn part_count(&self) -> usize {
        PARTS
    }

    fn merge(&self, _parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        Ok(())
    }

    fn in_parts(&self, count: usize) -> Self {
        // Two threads, or more, are at the parts at a time.
        Self { time: TIME * 2 / count.max(2) as u32, ..self.clone() }
    }
}
