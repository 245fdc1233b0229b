//! Check: verifies that everything in a database is as it was written.
//!
//! In a file, every page is read and accounted for (`engine/lmdb/page_walk.rs`). In every database,
//! each entry is verified: the checks of cells, blobs and catalog entries, whole records
//! (`pellucid_record::validate`), key codes, tables and their row counts, shapes, and that each
//! large value belongs to one row. Nothing is changed, and other processes may write meanwhile: one
//! version is checked.
//!
//! No check can find changes of bytes that are never read, of a key in a branch page, or of the age
//! of a free page, if the changed value still fits its place. Such changes affect no reader.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pellucid_record::key::KeyValue;
use pellucid_record::validate::validate_record;
use pellucid_record::{Dictionary, Shapes};
use xxhash_rust::xxh3::Xxh3;

use crate::admin::prove_index::prove;
use crate::catalog::blob;
use crate::catalog::cell::{Cell, Packed};
use crate::catalog::index_entries::IndexInfo;
use crate::catalog::pack_entries;
use crate::catalog::{APPLIED_KEY, Applied, Counters, Entry, Header, TableState, parse_entry, unsealed};
use crate::db::database::{Database, hex};
use crate::engine::lmdb::format::{Fault, Meta, PageFile};
use crate::engine::lmdb::page_walk::{PageMap, Value, Visitor, walk};
use crate::engine::{Direction, EngineError, Start, Tree};
use crate::error::{Result, StoreError};
use crate::pack::codec::Opener;
use crate::pack::opening::open_with;
use crate::row_key::{Prefix, RowKey, TableId, is_long, split};
use crate::txn::snapshot::Snapshot;
use crate::warning::Warning;

/// The limit of collected findings: beyond it the file is lost anyway.
pub(crate) const FINDINGS_MAX: usize = 1000;
/// Bytes of a large value read at a time.
const CHUNK: usize = 1 << 20;

/// A fault that a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, in words.
    pub place: String,
    /// The page of the file, for a fault of a page.
    pub page: Option<u64>,
    /// The table and the key's code, for a fault of a row. A long key's code is shortened, with a
    /// hash at its end.
    pub row: Option<(TableId, Vec<u8>)>,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

/// What a check collects and compares.
pub(crate) struct Audit<'c> {
    findings: Vec<Finding>,
    key_size_max: usize,
    dictionary: Arc<Dictionary>,
    version: u64,
    header: Option<Header>,
    counters: Option<Counters>,
    applied: Option<Applied>,
    names: BTreeMap<String, TableId>,
    states: HashMap<TableId, TableState>,
    indexes: Vec<IndexInfo>,
    /// Ids of rows that belong to no table: index entries, and the notes of index builds.
    index_rows: HashSet<TableId>,
    shape_ids: Vec<u32>,
    /// Tables that have entries about how they are compressed, and their dictionaries.
    compressed: BTreeSet<TableId>,
    openers: HashMap<(TableId, u32), Option<Opener>>,
    /// Dictionaries that cannot be read. The names of their tables come later in the catalog.
    damaged_dictionaries: Vec<(TableId, u32)>,
    row_counts: HashMap<TableId, u64>,
    /// Large values: how many rows refer to each, and whether it exists.
    blobs: HashMap<u64, (u32, bool)>,
    /// Receives the entries of an untrusted file. For such a file the check itself learns shapes
    /// and limits from the catalog.
    copy: Option<Copy<'c>>,
    /// Returns whether to go on. Dropped once it has returned false.
    go_on: Option<&'c mut dyn FnMut() -> bool>,
    is_stopped: bool,
}

/// What is wrong with an entry of the catalog that cannot be parsed.
const DAMAGED: &str = "its check or form is wrong";

/// Receives an entry.
pub(crate) type Copy<'c> = &'c mut dyn FnMut(Tree, &[u8], &[u8]) -> Result<(), EngineError>;

impl<'c> Audit<'c> {
    /// A check of a file that no engine has opened; its entries go to `copy`.
    pub(crate) fn of_stranger(version: u64, copy: Copy<'c>) -> Self {
        let mut audit = Self::new(0, Arc::default(), version, None);
        audit.copy = Some(copy);
        audit
    }

    fn new(
        key_size_max: usize,
        dictionary: Arc<Dictionary>,
        version: u64,
        go_on: Option<&'c mut dyn FnMut() -> bool>,
    ) -> Self {
        Self {
            findings: Vec::new(),
            key_size_max,
            dictionary,
            version,
            header: None,
            counters: None,
            applied: None,
            names: BTreeMap::new(),
            states: HashMap::new(),
            indexes: Vec::new(),
            index_rows: HashSet::new(),
            shape_ids: Vec::new(),
            compressed: BTreeSet::new(),
            openers: HashMap::new(),
            damaged_dictionaries: Vec::new(),
            row_counts: HashMap::new(),
            blobs: HashMap::new(),
            copy: None,
            go_on,
            is_stopped: false,
        }
    }

    /// The findings. `Stopped` if the check did not read everything.
    fn finish_whole(self) -> Result<Vec<Finding>> {
        if self.is_stopped { Err(StoreError::Stopped) } else { Ok(self.finish()) }
    }

    pub(crate) fn find(&mut self, place: impl Into<String>, what: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { place: place.into(), page: None, row: None, what: what.into() });
        }
    }

    fn find_in_row(&mut self, row_key: &[u8], what: impl Into<String>) {
        let known = self.findings.len();
        self.find(format!("row {}", hex(row_key)), what);
        if let Some(finding) = self.findings.get_mut(known) {
            finding.row = split(row_key).map(|(table, key)| (table, key.to_vec()));
        }
    }

    fn catalog_entry(&mut self, key: &[u8], bytes: &[u8]) {
        match parse_entry(key, bytes) {
            Some(Entry::Header(header)) => {
                if self.copy.is_some() {
                    self.key_size_max = header.key_size_max as usize;
                }
                self.header = Some(header);
            }
            Some(Entry::Counters(counters)) => self.counters = Some(counters),
            Some(Entry::Applied(applied)) => self.applied = Some(applied),
            Some(Entry::Keep | Entry::History) => {}
            Some(Entry::Compressed(table)) => {
                self.compressed.insert(table);
            }
            Some(Entry::Dictionary(table, number)) => {
                self.compressed.insert(table);
                // The catalog comes before the rows.
                let opener = unsealed(key, bytes).and_then(Opener::new);
                self.openers.insert((table, number), opener);
            }
            Some(Entry::Name(name, table)) => {
                self.names.insert(name, table);
            }
            Some(Entry::Index(info)) => {
                if let Some(building) = &info.building {
                    self.index_rows.insert(building.notes);
                }
                self.index_rows.insert(info.id);
                self.indexes.push(info);
            }
            Some(Entry::Table(table, state)) => {
                self.states.insert(table, state);
            }
            Some(Entry::Shape(id, shape)) => {
                if self.copy.is_some() && id == self.dictionary.len() {
                    // The ids ascend, and the catalog comes before the rows.
                    let _ = self.dictionary.push(shape.clone());
                }
                let known = self.dictionary.shape(id).is_some_and(|known| known.names() == shape.names());
                if !known {
                    self.find(format!("shape {id}"), "it differs from the one that this process has read");
                }
                self.shape_ids.push(id);
            }
            None => match pack_entries::number_of(key)
                .filter(|_| key.first() == Some(&pack_entries::DICTIONARY))
            {
                Some(dictionary) => self.damaged_dictionaries.push(dictionary),
                None => self.find(format!("catalog entry {}", hex(key)), DAMAGED),
            },
        }
    }

    /// Report the dictionaries that cannot be read: before their rows, which may be many.
    fn tell_dictionaries(&mut self) {
        for (table, number) in std::mem::take(&mut self.damaged_dictionaries) {
            let name = self.names.iter().find_map(|(name, id)| (*id == table).then_some(name));
            let of =
                name.map_or_else(|| "a table without a name".to_owned(), |name| format!("table '{name}'"));
            self.find(format!("dictionary {number} of {of}"), DAMAGED);
        }
    }

    fn row(&mut self, row_key: &[u8], bytes: &[u8]) {
        self.tell_dictionaries();
        let Some((table, _)) = split(row_key) else {
            return self.find_in_row(row_key, "its key begins with no table's id");
        };
        *self.row_counts.entry(table).or_default() += 1;
        let mut opened = Vec::new();
        let cell = if let Some(packed) = Packed::parse(bytes) {
            let blobs = packed.outside.blobs();
            let Some(dictionary) = self.openers.get(&(table, packed.dictionary)).and_then(Option::as_ref)
            else {
                blobs.for_each(|id| self.blobs.entry(id).or_default().0 += 1);
                let what = format!(
                    "dictionary {}, with which it is packed, is missing or damaged",
                    packed.dictionary
                );
                return self.find_in_row(row_key, what);
            };
            if !open_with(dictionary, &packed, row_key, &mut opened) {
                return self.find_in_row(row_key, "its packed record is damaged");
            }
            packed.outside.with_record(&opened)
        } else {
            let Some(cell) = Cell::parse(bytes) else {
                return self.find_in_row(row_key, "its cell cannot be taken apart");
            };
            if !cell.is_intact(row_key, bytes) {
                return self.find_in_row(row_key, "its check is wrong");
            }
            cell
        };
        for id in cell.blobs() {
            self.blobs.entry(id).or_default().0 += 1;
        }
        let prefix_size = Prefix::of(table).size();
        let whole = if is_long(row_key, self.key_size_max) { cell.whole_key } else { row_key };
        let key = whole.get(prefix_size..).unwrap_or_default();
        if RowKey::new(table, key, self.key_size_max).as_bytes() != row_key {
            return self.find_in_row(row_key, "it does not lie where its key belongs");
        }
        if self.index_rows.contains(&table) {
            if !cell.record.is_empty() {
                self.find_in_row(row_key, "it is an entry of an index, and has a record");
            }
            return;
        }
        if let Err(error) = KeyValue::decode(key, cell.spelling) {
            self.find_in_row(row_key, format!("its key is no key: {error}"));
        }
        if let Err(error) = validate_record(cell.record, &*self.dictionary) {
            self.find_in_row(row_key, error.to_string());
        }
    }

    fn blob(&mut self, key: &[u8], is_intact: bool) {
        let Some(id) = key.try_into().ok().map(u64::from_be_bytes) else {
            return self.find(format!("large value {}", hex(key)), "its id has not eight bytes");
        };
        self.blobs.entry(id).or_default().1 = true;
        if !is_intact {
            self.find(format!("large value {id}"), "its check is wrong");
        }
    }

    /// Compare what was collected, at the end of a check.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        if self.header.is_none() {
            self.find("the catalog", "the header is missing");
        }
        self.tell_dictionaries();
        self.compare_tables();
        let blobs: Vec<(u64, (u32, bool))> = self.blobs.iter().map(|(id, found)| (*id, *found)).collect();
        for (id, (references, is_there)) in blobs {
            match (references, is_there) {
                (1, true) => {}
                (_, false) => self.find(format!("large value {id}"), "a row refers to it, but it is missing"),
                (0, true) => self.find(format!("large value {id}"), "no row refers to it"),
                (_, true) => self.find(format!("large value {id}"), "several rows refer to it"),
            }
        }
        let next_blob = self.counters.map_or(0, |counters| counters.next_blob);
        if self.counters.is_some() && self.blobs.keys().any(|id| *id >= next_blob) {
            self.find("the counters", "the next large value would get an id that is in use");
        }
        self.findings
    }

    fn compare_tables(&mut self) {
        let Some(counters) = self.counters else {
            return self.find("the catalog", "the counters are missing");
        };
        // The memory engine has no pages with a version of their own; there the counters have the
        // version.
        let version = self.applied.map_or(counters.version, |applied| applied.version);
        if version != self.version {
            self.find("the catalog", "it is of another version than the meta page that leads to it");
        }
        if !self.shape_ids.iter().copied().eq(0..counters.shape_count) {
            self.find("the shapes", format!("their ids are not those from 0 to {}", counters.shape_count));
        }
        self.compare_indexes(counters);
        for table in std::mem::take(&mut self.compressed) {
            if !self.states.contains_key(&table) {
                self.find(
                    format!("table number {}", table.number()),
                    "it does not exist, and the catalog says how it is compressed",
                );
            }
        }
        for (name, table) in std::mem::take(&mut self.names) {
            let place = || format!("table '{name}'");
            let Some(state) = self.states.remove(&table) else {
                self.find(place(), "its state is missing");
                continue;
            };
            let rows = self.row_counts.remove(&table).unwrap_or(0);
            if rows != state.row_count {
                self.find(place(), format!("it has {rows} rows, and its count says {}", state.row_count));
            }
            if table.number() >= counters.next_table {
                self.find(place(), "its id would be given to another table");
            }
        }
        for table in std::mem::take(&mut self.states).into_keys() {
            self.find(
                format!("table number {}", table.number()),
                "it has no name, or another one has it too",
            );
        }
        for (table, rows) in std::mem::take(&mut self.row_counts) {
            self.find(
                format!("table number {}", table.number()),
                format!("it has {rows} rows, but does not exist"),
            );
        }
    }

    /// Check the counts of indexes. `admin/prove_index.rs` checks whether indexes agree with their
    /// rows.
    fn compare_indexes(&mut self, counters: Counters) {
        for info in std::mem::take(&mut self.indexes) {
            let place = || format!("index '{}'", info.name);
            if self.states.get(&info.table).is_none_or(|state| state.index_serial == 0) {
                self.find(place(), "its table is not there, or knows no indexes");
            }
            let notes = info.building.as_ref().map(|building| building.notes);
            for id in [Some(info.id), notes].into_iter().flatten() {
                let rows = self.row_counts.remove(&id).unwrap_or(0);
                match self.states.remove(&id) {
                    None => self.find(place(), "its state is missing"),
                    Some(state) if state.row_count != rows => self.find(
                        place(),
                        format!("it has {rows} entries, and its count says {}", state.row_count),
                    ),
                    Some(_) => {}
                }
                if id.number() >= counters.next_table {
                    self.find(place(), "its id would be given to another one");
                }
            }
        }
    }

    fn take(&mut self, tree: Tree, key: &[u8], bytes: &[u8]) {
        let failed = self.copy.as_mut().and_then(|copy| copy(tree, key, bytes).err());
        if let Some(error) = failed {
            self.find("the copy", error.to_string());
        }
    }

    /// Verify a large value, reading it in parts; its check is at its end.
    fn large(&mut self, key: &[u8], value: &Value<'_, '_>) -> Result<bool, Fault> {
        let Some(id) = key.try_into().ok().map(u64::from_be_bytes) else { return Ok(false) };
        let Some(size) = value.size().checked_sub(blob::CHECK_SIZE) else { return Ok(false) };
        let mut hasher = Xxh3::with_seed(id);
        let mut offset = 0;
        while offset < size && !self.is_stopped() {
            let part = value.read(offset, CHUNK.min(size - offset))?;
            hasher.update(&part);
            offset += part.len();
        }
        let check = value.read(size, blob::CHECK_SIZE)?;
        Ok(hasher.digest().to_le_bytes() == *check)
    }
}

impl Visitor for Audit<'_> {
    fn is_stopped(&mut self) -> bool {
        self.is_stopped |= self.go_on.as_mut().is_some_and(|go_on| !go_on());
        if self.is_stopped {
            self.go_on = None;
        }
        self.is_stopped
    }

    fn fault(&mut self, fault: Fault) {
        if self.findings.len() < FINDINGS_MAX {
            let place = format!("page {}", fault.page);
            let what = fault.what.to_owned();
            self.findings.push(Finding { place, page: Some(fault.page), row: None, what });
        }
    }

    fn entry(&mut self, tree: Tree, key: &[u8], value: &Value<'_, '_>) {
        if tree == Tree::Blobs && self.copy.is_none() {
            match self.large(key, value) {
                Ok(is_intact) => self.blob(key, is_intact),
                Err(fault) => self.fault(fault),
            }
            return;
        }
        match value.read(0, value.size()) {
            Ok(bytes) => self.logical(tree, key, &bytes),
            Err(fault) => self.fault(fault),
        }
    }
}

impl Audit<'_> {
    /// Check an entry as bytes, of any engine.
    fn logical(&mut self, tree: Tree, key: &[u8], bytes: &[u8]) {
        match tree {
            Tree::Meta => self.catalog_entry(key, bytes),
            Tree::Rows => self.row(key, bytes),
            Tree::Blobs => {
                let id = key.try_into().ok().map(u64::from_be_bytes).unwrap_or_default();
                let is_intact = bytes
                    .split_last_chunk::<{ blob::CHECK_SIZE }>()
                    .is_some_and(|(payload, check)| blob::check_of(id, payload).to_le_bytes() == *check);
                self.blob(key, is_intact);
            }
        }
        self.take(tree, key, bytes);
    }
}

/// Check one version of a database. `go_on` is called for each entry.
pub(crate) fn check(database: &Arc<Database>, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Finding>> {
    let mut findings = log_findings(database);
    findings.extend(match &database.opening {
        Some(_) => check_file(database, go_on).map(|(findings, _)| findings),
        None => check_entries(&database.brief_snapshot()?, go_on),
    }?);
    // If something is damaged, comparing indexes with rows makes no sense.
    if findings.is_empty() {
        findings = prove(&database.brief_snapshot()?, go_on)?;
    }
    Ok(findings)
}

/// What was found damaged in the log when the database was opened.
fn log_findings(database: &Database) -> Vec<Finding> {
    let of_log = database.warnings.iter().filter_map(|warning| match warning {
        Warning::LogDamaged { log, faults, .. } => Some((log, faults)),
        _ => None,
    });
    let findings = of_log.flat_map(|(log, faults)| {
        faults.iter().map(move |fault| {
            let place = format!("'{log}', commit {} (byte {})", fault.commit, fault.offset);
            Finding { place, page: None, row: None, what: fault.what.clone() }
        })
    });
    findings.collect()
}

/// Check through the engine, which is trusted in this case.
fn check_entries(snapshot: &Snapshot, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Finding>> {
    let database = snapshot.database();
    let dictionary = Arc::clone(snapshot.dictionary());
    let version = snapshot.read_txn().tree_version();
    let mut audit = Audit::new(database.key_size_max, dictionary, version, Some(go_on));
    for tree in Tree::ALL {
        let mut cursor = snapshot.read_txn().cursor(tree).map_err(|error| database.error(error))?;
        cursor.start(Start::Edge, Direction::Forward).map_err(|error| database.error(error))?;
        while let Some((key, bytes)) = cursor.step().map_err(|error| database.error(error))? {
            if audit.is_stopped() {
                return Err(StoreError::Stopped);
            }
            audit.logical(tree, key, bytes);
        }
    }
    Ok(audit.finish())
}

/// Check all pages of the file while a snapshot keeps them in place.
pub(crate) fn check_file(
    database: &Arc<Database>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(Vec<Finding>, Option<PageMap>)> {
    const TRIES: usize = 100;
    // The log of a writer that is in the way has checks of its own.
    const PATIENCE: Duration = Duration::from_millis(100);
    let Some(opening) = &database.opening else {
        return Err(StoreError::Unsupported { what: "a database in memory has no pages" });
    };
    let file = opening.file()?;
    let failed = |source| StoreError::from_io("read", database.path.clone(), source);
    // Whether nothing is in the log that a dead process left there.
    let mut is_known = false;
    let care = database.engine.file_care().filter(|_| database.read_only.is_none());
    for _ in 0..TRIES {
        let (mut refused, mut is_stopped) = (None, false);
        if let Some(care) = care {
            // The check trusts no page, and the log must not be written into a damaged file.
            is_known |= care.trust(false);
            let checkpointed = care.checkpoint_while(PATIENCE, PATIENCE, &mut || {
                is_stopped |= !go_on();
                !is_stopped
            });
            if is_stopped {
                return Err(StoreError::Stopped);
            }
            let checkpointed = checkpointed.map_err(|error| database.checkpoint_error(error));
            match checkpointed {
                // A full disk is treated like a writer in the way.
                Err(error) if error.is_of_room() => {}
                // Check the file as it is, without the log.
                Err(error @ StoreError::LogUnwritten { .. }) => refused = Some(error),
                checkpointed => is_known |= checkpointed?,
            }
        }
        let snapshot = database.snapshot_of_newest_pages()?;
        let version = snapshot.read_txn().tree_version();
        let metas = PageFile::metas(file).map_err(failed)?;
        let dictionary = Arc::clone(snapshot.dictionary());
        let mut audit = Audit::new(database.key_size_max, dictionary, version, Some(&mut *go_on));
        let newest = metas.iter().flatten().find(|meta| meta.txn == version);
        let Some(meta) = newest else {
            if metas.iter().flatten().all(|meta| meta.txn < version) {
                audit.find("the meta pages", "neither is of the newest version");
                return Ok((audit.finish(), None));
            }
            // There were two commits since the snapshot: its meta page is overwritten already.
            continue;
        };
        let size = file.metadata().map_err(failed)?.len();
        let pages = PageFile::new(file, meta.page_size, size);
        check_other_meta(&pages, &metas, meta, &mut audit);
        let map = walk(&pages, meta, &mut audit);
        let findings = audit.finish_whole()?;
        if let Some(care) = care.filter(|_| findings.is_empty() && is_known && refused.is_none()) {
            care.trust(true);
        }
        return match refused.filter(|_| findings.is_empty()) {
            Some(refused) => Err(refused),
            None => Ok((findings, Some(map))),
        };
    }
    Err(StoreError::Busy {
        path: database.path.clone(),
        wanted: crate::error::Wanted::Write,
        holders: Vec::new(),
        waited: None,
    })
}

/// Check the other meta page. It has the version before, or one that was committed meanwhile, and
/// leads to a tree that says so. If its version, or that of the newest meta page, were changed, the
/// database would go back by one commit.
pub(crate) fn check_other_meta(
    pages: &PageFile<'_>,
    metas: &[Option<Meta>; 2],
    meta: &Meta,
    audit: &mut Audit<'_>,
) {
    let Some(other) = metas.iter().flatten().find(|other| other.number != meta.number) else {
        return audit.find("the other meta page", "it is damaged");
    };
    if other.txn.abs_diff(meta.txn) != 1 {
        return audit.find("the other meta page", "its version is not the one before");
    }
    if other.txn == 0 {
        // Version 0 as it was created: an empty page. Otherwise it is the newest meta page with a
        // changed version.
        if !other.main.is_empty() {
            audit.find("the other meta page", "its version is that of an empty file, and it is not empty");
        }
        return;
    }
    // A process that died in a commit may have written over pages of the other version, which say
    // nothing then.
    let tree = pages.tree(other, Tree::Meta.name().as_bytes());
    let Ok(Some(bytes)) = tree.and_then(|tree| pages.lookup(&tree, APPLIED_KEY)) else { return };
    if matches!(parse_entry(APPLIED_KEY, &bytes), Some(Entry::Applied(applied)) if applied.version != other.txn)
    {
        audit.find("the other meta page", "the version that it leads to is another one");
    }
}
