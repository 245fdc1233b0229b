//! Gathers the index entries of a batch, and writes them sorted.
//!
//! Many rows at once touch index pages all over: written row by row, each entry would cost a search
//! of the tree and leave half-empty pages. In a batch they are gathered, sorted, and written at its
//! end, or when they are many. Uniqueness is checked then, for the result of the batch: two rows
//! may exchange their values.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::catalog::index_entries::IndexInfo;
use crate::error::index::{IndexError, NotUnique};
use crate::error::{Result, StoreError};
use crate::index::runs::SortedEntry;
use crate::row_key::TableId;
use crate::sort::{Entries, Entry, Merge, Part, Run, Spill};
use crate::txn::transaction::Transaction;

/// What the rest of a gathered entry begins with: its flags, the size of the parts, its row, and
/// its number in the order of arrival.
const HEAD_SIZE: usize = 17;

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
    indexes: Vec<OfIndex>,
    /// How many entries were gathered.
    count: u64,
    spill: Spill,
    /// Asked whether to go on with long work.
    go_on: Option<KeepOn>,
}

/// The gathered entries of one index.
struct OfIndex {
    info: Arc<IndexInfo>,
    runs: Vec<Run>,
    filling: Entries,
    /// Whether some of them may have been written already.
    is_begun: bool,
}

/// Called for each entry; it consults the user's code only at intervals.
pub type KeepOn = Box<dyn FnMut() -> bool + Send + Sync>;

impl Gathered {
    /// Register an index whose entries will be added.
    pub(crate) fn meet(&mut self, info: &Arc<IndexInfo>) {
        if !self.indexes.iter().any(|known| known.info.id == info.id) {
            let (info, runs, filling) = (Arc::clone(info), Vec::new(), Entries::default());
            self.indexes.push(OfIndex { info, runs, filling, is_begun: false });
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
        let flags = if is_put { PUT } else { 0 } | if is_new { NEW } else { 0 };
        if let Some(known) = self.indexes.iter_mut().find(|known| known.info.id == index) {
            let mut head = [flags; HEAD_SIZE];
            head[1..5].copy_from_slice(&(parts_size as u32).to_le_bytes());
            head[5..9].copy_from_slice(&self.row.to_le_bytes());
            head[9..].copy_from_slice(&self.count.to_le_bytes());
            known.filling.push(&[code], &[&head, spelling]);
            self.count += 1;
        }
    }

    pub(crate) fn has_entries(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// Count another row of the batch.
    pub(crate) fn count_row(&mut self) {
        self.row = self.row.saturating_add(1);
    }

    /// The number of a row that is gathered, by which it is known when it is merged.
    pub(crate) fn next_row(&mut self) -> u32 {
        self.count_row();
        self.row.saturating_sub(1)
    }

    pub(crate) fn set_row(&mut self, row: u32) {
        self.row = row;
    }

    /// Begin to merge gathered rows, whose entries are gathered in turn. Returns the number of the
    /// current row, for `end_merge`.
    pub(crate) fn begin_merge(&mut self) -> u32 {
        self.depth += 1;
        self.row
    }

    pub(crate) fn end_merge(&mut self, row: u32) {
        self.depth -= 1;
        self.row = row;
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

    /// Write the entries of indexes that have many to a file in this folder.
    fn spill(&mut self, size_max: usize, folder: impl Fn() -> PathBuf) -> io::Result<()> {
        let size_max = size_max / self.indexes.len().max(1);
        for known in self.indexes.iter_mut().filter(|known| known.filling.size() > size_max) {
            known.runs.push(self.spill.write(&mut known.filling, &folder())?);
        }
        Ok(())
    }

    pub(crate) fn has_unique(&self) -> bool {
        self.indexes.iter().any(|known| known.info.is_unique)
    }

    /// Drop all entries: their rows were rolled back, or are gone.
    pub(crate) fn forget(&mut self) {
        self.indexes.clear();
    }
}

/// The net effect on one entry of all changes to it.
#[derive(Default)]
struct Outcome {
    code: Vec<u8>,
    spelling: Vec<u8>,
    parts_size: usize,
    row: u32,
    number: u64,
    was_there: bool,
    is_put: bool,
}

impl Outcome {
    /// The last change that was made to the entry.
    fn take(&mut self, entry: &Entry<'_>) {
        let (head, spelling) = entry.rest.split_first_chunk::<HEAD_SIZE>().unwrap_or((&[0; HEAD_SIZE], &[]));
        let [flags, p0, p1, p2, p3, r0, r1, r2, r3, number @ ..] = *head;
        self.parts_size = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        self.row = u32::from_le_bytes([r0, r1, r2, r3]);
        self.number = u64::from_le_bytes(number);
        self.is_put = flags & PUT != 0;
        self.spelling.clear();
        self.spelling.extend_from_slice(spelling);
    }

    /// The first change that was made to an entry.
    fn begin(&mut self, entry: &Entry<'_>) {
        self.code.clear();
        self.code.extend_from_slice(entry.code);
        self.was_there = entry.rest.first().is_some_and(|flags| flags & NEW == 0);
        self.take(entry);
    }

    fn parts(&self) -> &[u8] {
        self.code.get(..self.parts_size).unwrap_or_default()
    }

    fn entry(&self) -> SortedEntry<'_> {
        SortedEntry { code: &self.code, parts_size: self.parts_size, spelling: &self.spelling }
    }
}

/// The outcomes of an index's gathered entries, in its order.
struct Outcomes<'e> {
    merge: Merge<Part<&'e Entries>>,
    ahead: Outcome,
    has_ahead: bool,
}

impl<'e> Outcomes<'e> {
    fn of(index: &'e OfIndex) -> io::Result<Self> {
        let merge = Merge::new(&index.runs, [&index.filling])?;
        let mut outcomes = Self { merge, ahead: Outcome::default(), has_ahead: false };
        if let Some(entry) = outcomes.merge.next()? {
            outcomes.ahead.begin(&entry);
            outcomes.has_ahead = true;
        }
        Ok(outcomes)
    }

    /// Set `outcome` to the next one. False at the end.
    fn next(&mut self, outcome: &mut Outcome) -> io::Result<bool> {
        if !std::mem::take(&mut self.has_ahead) {
            return Ok(false);
        }
        std::mem::swap(outcome, &mut self.ahead);
        while let Some(entry) = self.merge.next()? {
            if entry.code != outcome.code {
                self.ahead.begin(&entry);
                self.has_ahead = true;
                break;
            }
            outcome.take(&entry);
        }
        Ok(true)
    }
}

fn going_on(go_on: &mut dyn FnMut() -> bool) -> Result<()> {
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
        self.gathered.set_row(u32::try_from(row).unwrap_or(u32::MAX));
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
    pub fn has_refused(&self, refused: &NotUnique) -> Result<bool> {
        match refused.entry() {
            Some((index, code)) => Ok(self.get(index, &code)?.is_some()),
            None => Ok(true),
        }
    }

    /// End a batch.
    ///
    /// # Errors
    /// `NotUnique`, `Stopped`; the caller then has to roll back everything since the batch began.
    pub fn end_batch(&mut self) -> Result<()> {
        // Gathered rows and their entries wait for the commit, unless an entry may be refused.
        let is_left = self.load.is_pending() && !self.load.has_unique && !self.gathered.has_unique();
        let done = if is_left { Ok(()) } else { self.flush_entries() };
        self.gathered.depth = self.gathered.depth.saturating_sub(1);
        if self.gathered.depth == 0 {
            self.gathered.go_on = None;
        }
        done
    }

    /// Write the gathered entries to a file if they take much memory.
    pub(crate) fn spill_entries(&mut self) -> Result<()> {
        let (size, database) = (self.run_size(), &self.database);
        let done = self.gathered.spill(size, || database.folder_for_sorts());
        done.map_err(|source| self.sort_failed("write to", source))
    }

    /// Write the gathered entries, so that indexes can be read.
    ///
    /// # Errors
    /// As `end_batch`. Entries that were not written stay gathered, so that a caller that goes on
    /// loses nothing.
    pub fn flush_entries(&mut self) -> Result<()> {
        // Outside of a batch, half of the entries could not be rolled back, so a commit does not
        // ask.
        let mut asked = if self.gathered.depth > 0 { self.gathered.go_on.take() } else { None };
        let done = self.flush_entries_while(&mut || asked.as_mut().is_none_or(|asked| asked()));
        if asked.is_some() {
            self.gathered.go_on = asked;
        }
        done
    }

    /// As `flush_entries`; `go_on` is called for each entry.
    pub(crate) fn flush_entries_while(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.merge_rows_while(&mut |_, _| go_on())?;
        if self.gathered.indexes.is_empty() {
            return Ok(());
        }
        let mut indexes = std::mem::take(&mut self.gathered.indexes);
        let done = self.flush(&mut indexes, go_on);
        if let Err(error) = &done {
            // A commit would find the error again.
            self.gathered.indexes = indexes;
            self.gathered.note_refused(error);
        }
        done
    }

    fn flush(&mut self, indexes: &mut Vec<OfIndex>, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let written = self.gathered.spill.wait();
        written.map_err(|source| self.sort_failed("write to", source))?;
        for index in indexes.iter_mut() {
            index.filling.sort();
            going_on(go_on)?;
        }
        // Before any entry is written.
        for index in indexes.iter().filter(|index| index.info.is_unique) {
            self.check_unique_outcomes(index, go_on)?;
        }
        // In the order of the tree: its pages are filled completely only at its end.
        indexes.sort_by_key(|index| index.info.id);
        while let Some(index) = indexes.first_mut() {
            let is_again = std::mem::replace(&mut index.is_begun, true);
            self.write_outcomes(index, is_again, go_on)?;
            indexes.remove(0);
        }
        Ok(())
    }

    /// `is_again`: some of them may have been written.
    fn write_outcomes(
        &mut self,
        index: &OfIndex,
        is_again: bool,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let id = index.info.id;
        let mut outcomes = Outcomes::of(index).map_err(|source| self.sort_failed("read from", source))?;
        let mut outcome = Outcome::default();
        while outcomes.next(&mut outcome).map_err(|source| self.sort_failed("read from", source))? {
            going_on(go_on)?;
            let done = match (outcome.is_put, outcome.was_there) {
                (true, was_there) => {
                    self.put_entry(id, &outcome.code, &outcome.spelling, !was_there && !is_again)
                }
                (false, false) if !is_again => continue,
                (false, _) => self.delete_entry(id, &outcome.code),
            };
            // The rows are written by now, so the transaction must not be committed without their
            // entries.
            self.is_failed |= done.is_err();
            done?;
            self.entry_writes += 1;
        }
        Ok(())
    }

    fn check_unique_outcomes(&mut self, index: &OfIndex, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let mut outcomes = Outcomes::of(index).map_err(|source| self.sort_failed("read from", source))?;
        // The outcomes with the same parts.
        let (mut group, mut outcome) = (Vec::<Outcome>::new(), Outcome::default());
        while outcomes.next(&mut outcome).map_err(|source| self.sort_failed("read from", source))? {
            going_on(go_on)?;
            if group.first().is_some_and(|first| first.parts() != outcome.parts()) {
                self.check_unique_group(&index.info, &group)?;
                group.clear();
            }
            group.push(std::mem::take(&mut outcome));
        }
        self.check_unique_group(&index.info, &group)
    }

    /// Refuse outcomes with the same parts after which two rows have them.
    fn check_unique_group(&self, info: &IndexInfo, group: &[Outcome]) -> Result<()> {
        let clash = |first: &SortedEntry<'_>, second: &Outcome, is_in_batch: bool| {
            let position = Some(second.row);
            let refused = NotUnique { is_in_batch, position, ..self.clash(info, first, &second.entry()) };
            Err(StoreError::of_index(IndexError::NotUnique(refused)))
        };
        let mut put = group.iter().filter(|outcome| outcome.is_put);
        let Some(one) = put.next() else { return Ok(()) };
        if let Some(other) = put.next() {
            // The row that came first has the value.
            let (first, second) = if one.number < other.number { (one, other) } else { (other, one) };
            return clash(&first.entry(), second, !one.was_there && !other.was_there);
        }
        if one.was_there {
            return Ok(());
        }
        let Some((code, spelling)) = self.first_with(info.id, one.parts())? else { return Ok(()) };
        let is_gone = group.iter().any(|other| other.code == code && !other.is_put);
        if is_gone || code == one.code {
            return Ok(());
        }
        let existing = SortedEntry { code: &code, parts_size: one.parts_size, spelling: &spelling };
        clash(&existing, one, false)
    }
}
