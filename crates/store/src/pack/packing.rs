//! Packs the rows of compressed tables on their way into the tree.
//!
//! Each transaction of the tree passes through here. The first few hundred rows of a table stay
//! plain, and the first dictionary is trained on them. Further ones are trained on the newest rows:
//! at certain numbers of rows, and whenever rows are packed worse than at the last training. A new
//! dictionary is kept if it packs better. Older ones stay, since rows name them.

use crate::catalog::CatalogError;
use crate::catalog::cell::{CHECK_SIZE, Cell, Packed, write_packed_head};
use crate::catalog::pack_entries::{self, Progress, SETTING};
use crate::engine::{
    Contents, Cursor, Direction, EngineError, FileSize, LogBatch, MovesPages, Start, Tree, WriteTxn,
};
use crate::pack::codec::{Opener, Packer};
use crate::pack::opening::open_with;
use crate::pack::training::{RATIO_ONE, RATIO_WORTH, SAMPLES_MIN, Samples, Trained};
use crate::pack::{RECORD_SIZE_END, RECORD_SIZE_MIN, is_all};
use crate::row_key::{Prefix, TableId, split, successor};
use crate::sys::steps::{Step, reached};

/// The numbers of rows at which a table gets its first dictionaries.
const TRAIN_AT: [u64; 4] = [256, 1 << 11, 1 << 14, 1 << 17];
/// Packed rows between two comparisons of the ratio.
const ROWS_COMPARED: u64 = 1 << 12;
/// Most dictionaries that a transaction trains: `TRAININGS_MIN`, and one for each `TRAINING_ROWS`
/// rows that it writes. To train one takes as long as to write thousands of rows. The other tables
/// stay as they are until a later transaction.
const TRAININGS_MIN: u64 = 32;
const TRAINING_ROWS: u64 = 1 << 14;
/// A table has no more dictionaries: each takes room in the memory of every process that reads it.
const DICTIONARIES_MAX: u32 = 64;
/// After `VAIN_MAX` rows in turn that were not worth packing, only one row in `VAIN_STEP` is tried.
const VAIN_MAX: u32 = 32;
const VAIN_STEP: u64 = 16;
/// Rows that are read from either end of a table when too few were met in the transaction.
const ROWS_READ: usize = 512;

/// A transaction of the tree.
pub(crate) struct Packing {
    txn: Box<dyn WriteTxn>,
    /// Whether any table is compressed. If none is, all calls go on at once.
    has_tables: bool,
    /// Whether dictionaries are made and progress is noted: not while pages must be proved first.
    learns: bool,
    /// How many rows were met, and how many dictionaries were trained.
    rows: u64,
    trainings: u64,
    tables: Vec<Table>,
    /// The cell that was packed last, under this key, and what became of it: head, frame, check.
    key: Vec<u8>,
    cell: Vec<u8>,
    head: Vec<u8>,
    frame: Vec<u8>,
    check: [u8; CHECK_SIZE],
    is_ready: bool,
}

/// What a transaction knows of a table.
struct Table {
    id: TableId,
    /// `None` if the table is not compressed.
    pack: Option<Box<Pack>>,
}

/// A compressed table.
struct Pack {
    progress: Progress,
    noted: Progress,
    /// Numbers below this were used in this transaction, perhaps before a rollback.
    number_min: u32,
    last: Last,
    samples: Samples,
    /// The number of rows in turn that were not worth packing.
    vain: u32,
}

impl Packing {
    /// Pack the rows of a transaction. Without `learns` only with the dictionaries that there are.
    pub(crate) fn over(txn: Box<dyn WriteTxn>, learns: bool) -> Result<Box<dyn WriteTxn>, EngineError> {
        let has_tables = pack_entries::is_any_compressed(&*txn)?;
        Ok(Box::new(Self {
            txn,
            has_tables,
            learns,
            rows: 0,
            trainings: 0,
            tables: Vec::new(),
            key: Vec::new(),
            cell: Vec::new(),
            head: Vec::new(),
            frame: Vec::new(),
            check: [0; CHECK_SIZE],
            is_ready: false,
        }))
    }

    /// The compressed table of a row. `None` if its table is not compressed.
    fn table_of(&mut self, row_key: &[u8]) -> Result<Option<usize>, EngineError> {
        let Some((id, _)) = split(row_key) else { return Ok(None) };
        let known = self.tables.iter().rposition(|table| table.id == id);
        let index = if let Some(index) = known {
            index
        } else {
            let is_compressed = match pack_entries::is_compressed(&*self.txn, id) {
                Ok(is_compressed) => is_compressed,
                Err(CatalogError::Engine(error)) => return Err(error),
                // Writes go on, and leave the rows plain.
                Err(CatalogError::Damaged { .. }) => false,
            };
            let pack = if is_compressed {
                let progress = pack_entries::progress(&*self.txn, id)?;
                Some(Box::new(Pack {
                    progress,
                    noted: progress,
                    number_min: 0,
                    last: Last::Unread,
                    samples: Samples::default(),
                    vain: 0,
                }))
            } else {
                None
            };
            self.tables.push(Table { id, pack });
            self.tables.len() - 1
        };
        Ok(self.tables.get(index).is_some_and(|table| table.pack.is_some()).then_some(index))
    }

    /// Pack a cell. False if it stays as it is.
    fn pack(&mut self, tree: Tree, row_key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError> {
        if !self.has_tables || tree != Tree::Rows {
            return Ok(false);
        }
        self.pack_row(row_key, parts)
    }

    #[inline(never)]
    fn pack_row(&mut self, row_key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError> {
        if std::mem::take(&mut self.is_ready) && self.key == row_key && is_same(&self.cell, parts) {
            return Ok(true);
        }
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size >= RECORD_SIZE_END {
            return Ok(false);
        }
        let Some(index) = self.table_of(row_key)? else { return Ok(false) };
        self.cell.clear();
        for part in parts {
            self.cell.extend_from_slice(part);
        }
        let Some(Table { id, pack: Some(pack) }) = self.tables.get_mut(index) else { return Ok(false) };
        let (id, cell) = (*id, std::mem::take(&mut self.cell));
        let parsed = Cell::parse(&cell).filter(|cell| cell.record.len() >= RECORD_SIZE_MIN);
        let is_packed = match parsed {
            None => false,
            Some(parsed) => {
                pack.samples.show(parsed.record);
                pack.progress.rows += 1;
                self.rows += 1;
                if self.learns && pack.is_due() && may_train(self.trainings, self.rows) {
                    self.trainings += 1;
                    pack.learn(&mut *self.txn, id)?;
                }
                pack.tries() && pack.pack(&*self.txn, id, parsed.record, &mut self.frame)? && {
                    let head_size = cell.len() - CHECK_SIZE - parsed.record.len();
                    let head = cell.get(..head_size).unwrap_or_default();
                    write_packed_head(&mut self.head, head, pack.progress.made - 1);
                    if let Some(check) = cell.last_chunk() {
                        self.check = *check;
                    }
                    pack.count(parsed.record.len(), self.frame.len());
                    pack.is_worth(self.head.len() + self.frame.len() + CHECK_SIZE, cell.len())
                }
            }
        };
        self.cell = cell;
        Ok(is_packed)
    }

    /// Note progress, and train a first dictionary on rows of earlier transactions.
    fn note_progress(&mut self) -> Result<(), EngineError> {
        if !self.learns {
            return Ok(());
        }
        for table in &mut self.tables {
            let Some(pack) = &mut table.pack else { continue };
            let lacks_samples = pack.samples.count() < SAMPLES_MIN;
            if pack.wants_training() && lacks_samples && may_train(self.trainings, self.rows) {
                self.trainings += 1;
                read_samples(&*self.txn, table.id, &mut pack.samples)?;
                pack.learn(&mut *self.txn, table.id)?;
            }
            if pack.progress != pack.noted {
                let (key, value) = pack.progress.entry(table.id);
                self.txn.put(Tree::Meta, &key, &[&value])?;
                pack.noted = pack.progress;
            }
        }
        Ok(())
    }

    /// Note that an entry of the catalog changes.
    fn meet(&mut self, tree: Tree, key: &[u8], is_deleted: bool) -> Result<(), EngineError> {
        if tree != Tree::Meta || key.first() != Some(&SETTING) {
            return Ok(());
        }
        self.has_tables = true;
        let Some(id) = pack_entries::table_of(key) else { return Ok(()) };
        self.tables.retain(|table| table.id != id);
        // Also before rows are proved: the whole catalog is, and it is all that this changes.
        if is_deleted {
            for key in pack_entries::keys_beside(&*self.txn, id)? {
                self.txn.delete(Tree::Meta, &key)?;
            }
        }
        Ok(())
    }
}

/// Whether a transaction that has trained this number of dictionaries, and met this number of rows,
/// may train another one.
fn may_train(trainings: u64, rows: u64) -> bool {
    trainings < TRAININGS_MIN + rows / TRAINING_ROWS || is_all()
}

/// What packs with the last dictionary of a table.
enum Last {
    /// It was not needed yet.
    Unread,
    /// The dictionary is damaged: rows stay plain until there is another one.
    Damaged,
    Read(Box<Packer>),
}

fn is_same(cell: &[u8], parts: &[&[u8]]) -> bool {
    let mut rest = cell;
    parts.iter().all(|part| match rest.strip_prefix(*part) {
        Some(behind) => {
            rest = behind;
            true
        }
        None => false,
    }) && rest.is_empty()
}

impl Pack {
    fn train_at(&self) -> u64 {
        let first = if is_all() { 1 } else { TRAIN_AT[0] };
        self.progress.train_at.max(first)
    }

    /// Whether it is time to train a dictionary, and there are enough samples.
    fn is_due(&self) -> bool {
        self.wants_training() && (self.samples.count() >= SAMPLES_MIN || is_all())
    }

    fn wants_training(&self) -> bool {
        let progress = &self.progress;
        progress.made < DICTIONARIES_MAX
            && (progress.rows >= self.train_at()
                || progress.rows >= progress.compared_at + self.rows_compared() && self.is_worse())
    }

    /// Whether the next row is tried. Rows that do not pack, as of random bytes, cost the time of a
    /// plain table.
    fn tries(&self) -> bool {
        self.vain < VAIN_MAX || self.progress.rows.is_multiple_of(VAIN_STEP) || is_all()
    }

    /// Whether a row of this size is stored with the packed one: that costs time at each read.
    fn is_worth(&mut self, packed_size: usize, plain_size: usize) -> bool {
        let is_worth = if is_all() {
            packed_size < plain_size
        } else {
            packed_size as u64 * u64::from(RATIO_ONE) <= plain_size as u64 * u64::from(RATIO_WORTH)
        };
        self.vain = if is_worth { 0 } else { self.vain.saturating_add(1) };
        is_worth
    }

    /// After how many rows the ratio is compared. The more dictionaries there are, the less often.
    fn rows_compared(&self) -> u64 {
        ROWS_COMPARED << self.progress.made.min(10)
    }

    /// The ratio of the rows since the last training.
    fn ratio(&self) -> u32 {
        let progress = &self.progress;
        (progress.packed_size * u64::from(RATIO_ONE) / progress.plain_size.max(1)) as u32
    }

    /// Whether rows have become worse to pack since the last training.
    fn is_worse(&self) -> bool {
        self.progress.made > 0 && u64::from(self.ratio()) * 100 > u64::from(self.progress.ratio) * 110
    }

    /// Count a row that was packed.
    fn count(&mut self, plain_size: usize, packed_size: usize) {
        let progress = &mut self.progress;
        let compared = ROWS_COMPARED << progress.made.min(10);
        if progress.rows >= progress.compared_at + 2 * compared {
            // Only the last rows tell how it goes now.
            progress.compared_at = progress.rows - compared;
            progress.plain_size /= 2;
            progress.packed_size /= 2;
        }
        progress.plain_size += plain_size as u64;
        progress.packed_size += packed_size.min(plain_size) as u64;
    }

    /// Pack a record with the last dictionary. False without one.
    fn pack(
        &mut self,
        txn: &dyn WriteTxn,
        table: TableId,
        record: &[u8],
        frame: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        let packer = self.packer(txn, table)?;
        Ok(packer.is_some_and(|packer| packer.pack(record, frame)))
    }

    fn packer(&mut self, txn: &dyn WriteTxn, table: TableId) -> Result<Option<&mut Packer>, EngineError> {
        let Some(last) = self.progress.made.checked_sub(1) else { return Ok(None) };
        if matches!(self.last, Last::Unread) {
            let packer = match pack_entries::dictionary(txn, table, last, Packer::new) {
                Ok(packer) => packer,
                Err(CatalogError::Damaged { .. }) => None,
                Err(CatalogError::Engine(error)) => return Err(error),
            };
            self.last = packer.map_or(Last::Damaged, |packer| Last::Read(Box::new(packer)));
        }
        Ok(match &mut self.last {
            Last::Read(packer) => Some(packer),
            Last::Unread | Last::Damaged => None,
        })
    }

    /// Train a dictionary on the samples. It is used from now on, if it is better than the last
    /// one.
    fn learn(&mut self, txn: &mut dyn WriteTxn, table: TableId) -> Result<(), EngineError> {
        let trained = {
            let mut samples = std::mem::take(&mut self.samples);
            let trained = samples.train(self.packer(txn, table)?);
            samples.clear();
            trained
        };
        let now = self.ratio();
        let progress = &mut self.progress;
        match trained {
            Trained::New { bytes, packer, ratio } => {
                reached(Step::DictionaryTrained);
                let number = progress.made.max(self.number_min);
                let (key, value) = pack_entries::dictionary_entry(table, number, &bytes);
                txn.put(Tree::Meta, &key, &[&value])?;
                (progress.made, progress.ratio) = (number + 1, ratio);
                self.number_min = progress.made;
                self.vain = 0;
                self.last = Last::Read(packer);
            }
            // There is nothing better, so the ratio of now is what later rows are compared with.
            Trained::No { ratio } => progress.ratio = ratio.unwrap_or(RATIO_ONE).max(now),
        }
        (progress.plain_size, progress.packed_size, progress.compared_at) = (0, 0, progress.rows);
        let next = TRAIN_AT.iter().find(|at| **at > progress.rows);
        // Rows that had nothing in common may have so later.
        let later = if progress.made == 0 { progress.rows * 16 } else { u64::MAX };
        progress.train_at = if is_all() { progress.rows * 2 } else { next.copied().unwrap_or(later) };
        Ok(())
    }
}

/// Read samples from both ends of a table.
fn read_samples(txn: &dyn WriteTxn, table: TableId, samples: &mut Samples) -> Result<(), EngineError> {
    let prefix = Prefix::of(table).as_bytes().to_vec();
    let end = successor(prefix.clone());
    let mut opener: Option<(u32, Option<Opener>)> = None;
    let mut record = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = txn.cursor(Tree::Rows)?;
        let start = match (direction, &end) {
            (Direction::Forward, _) => Start::At(&prefix),
            (Direction::Reverse, Some(end)) => Start::At(end),
            (Direction::Reverse, None) => Start::Edge,
        };
        cursor.start(start, direction)?;
        for _ in 0..ROWS_READ {
            let Some((row_key, bytes)) = cursor.step()?.filter(|(key, _)| key.starts_with(&prefix)) else {
                break;
            };
            if let Some(cell) = Cell::parse(bytes) {
                if cell.record.len() >= RECORD_SIZE_MIN {
                    samples.show(cell.record);
                }
                continue;
            }
            // A damaged row is no sample.
            let Some(packed) = Packed::parse(bytes) else { continue };
            if opener.as_ref().is_none_or(|(number, _)| *number != packed.dictionary) {
                let found = pack_entries::dictionary(txn, table, packed.dictionary, Opener::new);
                opener = Some((packed.dictionary, found.ok().flatten()));
            }
            if let Some((_, Some(opener))) = &opener
                && open_with(opener, &packed, row_key, &mut record)
            {
                samples.show(&record);
            }
        }
    }
    Ok(())
}

impl Contents for Packing {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.txn.get(tree, key)
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
        self.txn.cursor(tree)
    }
}

impl LogBatch for Packing {}

impl WriteTxn for Packing {
    fn version(&self) -> u64 {
        self.txn.version()
    }

    fn is_owner(&self) -> bool {
        self.txn.is_owner()
    }

    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.txn.find(tree, key)
    }

    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        if self.pack(tree, key, parts)? {
            return self.txn.replace_found(tree, key, &[&self.head, &self.frame, &self.check]);
        }
        self.txn.replace_found(tree, key, parts)
    }

    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<(), EngineError> {
        self.txn.delete_found(tree, key)?;
        self.meet(tree, key, true)
    }

    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        if self.pack(tree, key, parts)? {
            return self.txn.put(tree, key, &[&self.head, &self.frame, &self.check]);
        }
        self.txn.put(tree, key, parts)?;
        self.meet(tree, key, false)
    }

    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError> {
        if self.pack(tree, key, parts)? {
            let is_appended = self.txn.append(tree, key, &[&self.head, &self.frame, &self.check])?;
            if !is_appended {
                // The caller puts the same row next.
                self.is_ready = true;
                self.key.clear();
                self.key.extend_from_slice(key);
            }
            return Ok(is_appended);
        }
        let is_appended = self.txn.append(tree, key, parts)?;
        if is_appended {
            self.meet(tree, key, false)?;
        }
        Ok(is_appended)
    }

    fn clear(&mut self, tree: Tree) -> Result<(), EngineError> {
        self.txn.clear(tree)
    }

    fn savepoint(&mut self) -> Result<(), EngineError> {
        self.note_progress()?;
        self.txn.savepoint()
    }

    fn rollback(&mut self) -> Result<(), EngineError> {
        self.is_ready = false;
        self.txn.rollback()?;
        // Dictionaries may have gone with the rows. Their numbers are not used again, since the
        // rows of this transaction may have been read meanwhile.
        for table in std::mem::take(&mut self.tables) {
            if let Some(pack) = table.pack
                && let Some(index) = self.table_of(Prefix::of(table.id).as_bytes())?
                && let Some(Table { pack: Some(anew), .. }) = self.tables.get_mut(index)
            {
                anew.number_min = pack.number_min;
            }
        }
        self.has_tables = pack_entries::is_any_compressed(&*self.txn)?;
        Ok(())
    }

    fn release(&mut self) -> Result<(), EngineError> {
        self.txn.release()
    }

    fn pages(&mut self) -> Option<&mut dyn MovesPages> {
        self.txn.pages()
    }

    fn file_size(&self) -> Result<FileSize, EngineError> {
        self.txn.file_size()
    }

    fn commit(mut self: Box<Self>) -> Result<(), EngineError> {
        self.note_progress()?;
        self.txn.commit()
    }
}
