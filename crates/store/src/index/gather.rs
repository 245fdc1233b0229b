//! Gathers the index entries of a batch, and writes them sorted.
//!
//! Many rows at once touch index pages all over: written row by row, each entry would cost a search
//! of the tree and leave half-empty pages. In a batch they are gathered, sorted, and written at its
//! end, or when they are many. Uniqueness is checked then, for the result of the batch: two rows
//! may exchange their values.

use std::sync::Arc;

use super::IndexInfo;
use super::error::{IndexError, NotUnique};
use super::sorter::{SortedEntry, Sorter};
use crate::catalog::row_key::TableId;
use crate::error::StoreError;
use crate::txn::transaction::Transaction;

/// The memory limit of gathered entries.
const SIZE_MAX: usize = 128 << 20;

/// The entry is put, not deleted.
const PUT: u8 = 1;
/// The entry was not there before.
const NEW: u8 = 2;

/// The entries of a batch that are not written yet.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The nesting depth of batches.
    pub(crate) depth: u32,
    /// How many rows of the batch were written.
    row: u32,
    /// The last refused value of the batch.
    refused: Option<NotUnique>,
    indexes: Vec<(Arc<IndexInfo>, Sorter)>,
    /// Asked whether to go on with long work.
    go_on: Option<KeepOn>,
}

/// Called for each entry; it consults the user's code only at intervals.
pub type KeepOn = Box<dyn FnMut() -> bool + Send + Sync>;

impl Gathered {
    /// Register an index whose entries will be added.
    pub(crate) fn meet(&mut self, info: &Arc<IndexInfo>) {
        if !self.indexes.iter().any(|(known, _)| known.id == info.id) {
            self.indexes.push((Arc::clone(info), Sorter::default()));
        }
    }

    pub(crate) fn add(
        &mut self,
        index: TableId,
        code: &[u8],
        parts_size: usize,
        spelling: &[u8],
        (is_put, is_new): (bool, bool),
    ) {
        let mark = if is_put { PUT } else { 0 } | if is_new { NEW } else { 0 };
        if let Some((_, sorter)) = self.indexes.iter_mut().find(|(known, _)| known.id == index) {
            sorter.push(code, parts_size, spelling, (mark, self.row));
        }
    }

    /// Count another row of the batch.
    pub(crate) fn count_row(&mut self) {
        self.row = self.row.saturating_add(1);
    }

    /// The index of the current row in its batch. `None` outside of a batch.
    pub(crate) fn position(&self) -> Option<u32> {
        (self.depth > 0).then_some(self.row)
    }

    /// Keep a refused value for the caller that rolls the batch back.
    pub(crate) fn note_refused(&mut self, error: &StoreError) {
        if self.depth > 0
            && let StoreError::Index(error) = error
            && let IndexError::NotUnique(refused) = &**error
        {
            self.refused = Some(refused.clone());
        }
    }

    fn is_full(&self) -> bool {
        self.indexes.iter().map(|(_, sorter)| sorter.size()).sum::<usize>() > SIZE_MAX
    }

    /// Drop all entries: their rows were rolled back, or are gone.
    pub(crate) fn forget(&mut self) {
        self.indexes.clear();
    }
}

/// The net effect on one entry of all changes to it.
#[derive(Clone, Copy)]
struct Outcome<'s> {
    entry: SortedEntry<'s>,
    was_there: bool,
    is_put: bool,
}

/// The outcomes, in index order.
fn outcomes<'s>(sorter: &'s Sorter, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Outcome<'s>>, StoreError> {
    let mut outcomes: Vec<Outcome<'_>> = Vec::with_capacity(sorter.len());
    for place in 0..sorter.len() {
        going_on(go_on)?;
        let Some(entry) = sorter.get(place) else { break };
        let is_put = entry.mark & PUT != 0;
        match outcomes.last_mut().filter(|last| last.entry.code == entry.code) {
            Some(last) => (last.entry, last.is_put) = (entry, is_put),
            None => outcomes.push(Outcome { entry, was_there: entry.mark & NEW == 0, is_put }),
        }
    }
    Ok(outcomes)
}

/// Gathered entries with these outcomes.
fn gathered_again(outcomes: &[Outcome<'_>]) -> Sorter {
    let mut sorter = Sorter::default();
    for Outcome { entry, was_there, is_put } in outcomes {
        let mark = if *is_put { PUT } else { 0 } | if *was_there { 0 } else { NEW };
        sorter.push(entry.code, entry.parts_size, entry.spelling, (mark, entry.row));
    }
    sorter
}

fn going_on(go_on: &mut dyn FnMut() -> bool) -> Result<(), StoreError> {
    if go_on() { Ok(()) } else { Err(StoreError::Stopped) }
}

impl Transaction {
    /// Begin a batch: index entries are written and checked for uniqueness at its end, in order.
    /// `go_on` is called for each of them.
    pub fn begin_batch(&mut self, go_on: KeepOn) {
        self.gathered.depth += 1;
        self.gathered.go_on = Some(go_on);
        self.gathered.row = 0;
        self.gathered.refused = None;
    }

    /// Set the index of the next row in the batch. Without this call the rows are counted.
    pub fn set_batch_row(&mut self, row: usize) {
        self.gathered.row = u32::try_from(row).unwrap_or(u32::MAX);
    }

    /// The last refused value of the batch, if the row that has the value may be of the batch as
    /// well, because parts of the batch were written. It is if that row no longer has the value
    /// after the batch was rolled back (`has_refused`).
    pub fn take_refused(&mut self) -> Option<NotUnique> {
        self.gathered.refused.take().filter(|refused| !refused.is_in_batch)
    }

    /// Whether the existing row of a refused value has the value now.
    ///
    /// # Errors
    /// As `get`.
    pub fn has_refused(&self, refused: &NotUnique) -> Result<bool, StoreError> {
        match refused.entry() {
            Some((index, code)) => Ok(self.get(index, &code)?.is_some()),
            None => Ok(true),
        }
    }

    /// End a batch.
    ///
    /// # Errors
    /// `NotUnique`, `Stopped`; the caller then has to roll back everything since the batch began.
    pub fn end_batch(&mut self) -> Result<(), StoreError> {
        let done = self.flush_entries();
        self.gathered.depth = self.gathered.depth.saturating_sub(1);
        if self.gathered.depth == 0 {
            self.gathered.go_on = None;
        }
        done
    }

    /// Write the gathered entries if they take much memory.
    pub(crate) fn flush_if_full(&mut self) -> Result<(), StoreError> {
        if self.gathered.is_full() { self.flush_entries() } else { Ok(()) }
    }

    /// Write the gathered entries, so that indexes can be read.
    ///
    /// # Errors
    /// As `end_batch`. Entries that were not written stay gathered, so that a caller that goes on
    /// loses nothing.
    pub fn flush_entries(&mut self) -> Result<(), StoreError> {
        if self.gathered.indexes.is_empty() {
            return Ok(());
        }
        let mut indexes = std::mem::take(&mut self.gathered.indexes);
        // Outside of a batch, half of the entries could not be rolled back, so a commit does not
        // ask.
        let mut asked = if self.gathered.depth > 0 { self.gathered.go_on.take() } else { None };
        let done = self.flush(&mut indexes, &mut || asked.as_mut().is_none_or(|asked| asked()));
        if asked.is_some() {
            self.gathered.go_on = asked;
        }
        if let Err(error) = &done {
            // A commit would find the error again.
            self.gathered.indexes = indexes;
            self.gathered.note_refused(error);
        }
        done
    }

    fn flush(
        &mut self,
        indexes: &mut Vec<(Arc<IndexInfo>, Sorter)>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), StoreError> {
        for (_, sorter) in indexes.iter_mut() {
            if !sorter.sort_while(go_on) {
                return Err(StoreError::Stopped);
            }
        }
        // Before any entry is written.
        for (info, sorter) in indexes.iter().filter(|(info, _)| info.is_unique) {
            self.check_unique_outcomes(info, &outcomes(sorter, go_on)?, go_on)?;
        }
        while let Some((info, sorter)) = indexes.first_mut() {
            let outcomes = outcomes(sorter, go_on)?;
            let mut written = 0;
            if let Err(error) = self.write_outcomes(info.id, &outcomes, &mut written, go_on) {
                let rest = gathered_again(outcomes.get(written..).unwrap_or_default());
                *sorter = rest;
                return Err(error);
            }
            indexes.remove(0);
        }
        Ok(())
    }

    fn write_outcomes(
        &mut self,
        index: TableId,
        outcomes: &[Outcome<'_>],
        written: &mut usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), StoreError> {
        for outcome in outcomes {
            going_on(go_on)?;
            let done = match (outcome.is_put, outcome.was_there) {
                (true, was_there) => {
                    self.put_entry(index, outcome.entry.code, outcome.entry.spelling, !was_there)
                }
                (false, true) => self.delete_entry(index, outcome.entry.code),
                (false, false) => {
                    *written += 1;
                    continue;
                }
            };
            // The rows are written by now, so the transaction must not be committed without their
            // entries.
            self.is_failed |= done.is_err();
            done?;
            *written += 1;
            self.entry_writes += 1;
        }
        Ok(())
    }

    fn check_unique_outcomes(
        &self,
        info: &IndexInfo,
        outcomes: &[Outcome<'_>],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), StoreError> {
        let clash = |first: &SortedEntry<'_>, second: &SortedEntry<'_>, is_in_batch: bool| {
            // The row that came first has the value.
            let (first, second) =
                if first.number < second.number { (first, second) } else { (second, first) };
            let position = Some(second.row);
            let refused = NotUnique { is_in_batch, position, ..self.clash(info, first, second) };
            Err(StoreError::of_index(IndexError::NotUnique(refused)))
        };
        let mut last: Option<&Outcome<'_>> = None;
        for outcome in outcomes.iter().filter(|outcome| outcome.is_put) {
            going_on(go_on)?;
            if let Some(last) = last.filter(|last| last.entry.parts() == outcome.entry.parts()) {
                return clash(&last.entry, &outcome.entry, !last.was_there && !outcome.was_there);
            }
            last = Some(outcome);
            if outcome.was_there {
                continue;
            }
            let Some((code, spelling)) = self.first_with(info.id, outcome.entry.parts())? else { continue };
            let found = outcomes.binary_search_by(|other| other.entry.code.cmp(&code));
            let is_gone = found.is_ok_and(|place| outcomes.get(place).is_some_and(|other| !other.is_put));
            if !is_gone && code != outcome.entry.code {
                let parts_size = outcome.entry.parts().len();
                let existing =
                    SortedEntry { code: &code, parts_size, spelling: &spelling, mark: 0, number: 0, row: 0 };
                return clash(&existing, &SortedEntry { number: u32::MAX, ..outcome.entry }, false);
            }
        }
        Ok(())
    }
}
