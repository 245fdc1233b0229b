//! Verifies that the entries of an index and the rows of its table agree.
//!
//! Each row's entries are derived and looked up. If all exist, and the index has no further
//! entries, the two agree. Only otherwise is each entry checked against its row.

use std::sync::{Arc, PoisonError};

use pellucid_record::key::{join_spellings, split_spellings};

use crate::admin::check::{FINDINGS_MAX, Finding};
use crate::catalog::index_entries::{IndexInfo, all_indexes};
use crate::db::database::{Database, hex};
use crate::error::{Result, StoreError};
use crate::index::{Derived, Prepared};
use crate::row::{Range, Row};
use crate::row_key::TableId;
use crate::txn::snapshot::Snapshot;

/// The advice for a wrong entry.
const MEND: &str = "; mend it by rebuild_index";

/// Refuse an untrusted database whose indexes disagree with its rows.
pub(crate) fn refuse_others(database: &Arc<Database>) -> Result<()> {
    let findings = prove(&database.snapshot()?, &mut || true)?;
    let Some(Finding { place, what, .. }) = findings.into_iter().next() else { return Ok(()) };
    let (path, what) = (database.path.clone(), what.trim_end_matches(MEND));
    // The place names the index already.
    let what = what.rsplit_once("': ").map_or(what, |(_, what)| what).to_owned();
    Err(StoreError::Corrupt { path, place, what, is_open: false })
}

/// The faults of a version's indexes. Indexes that are being built are skipped, and so are all
/// indexes without a deriver.
///
/// # Errors
/// `Stopped` if `go_on` returned false: it is called for each row and entry.
pub(crate) fn prove(snapshot: &Snapshot, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Finding>> {
    let database = snapshot.database();
    let mut findings = Vec::new();
    if database.deriver.get().is_none() {
        return Ok(findings);
    }
    let infos = all_indexes(snapshot.read_txn()).map_err(|error| database.catalog_error(error))?;
    for info in infos.into_iter().filter(|info| info.building.is_none()) {
        let mut proof = Proof { snapshot, info: &info, findings: &mut findings, go_on };
        proof.run()?;
    }
    Ok(findings)
}

struct Proof<'p> {
    snapshot: &'p Snapshot,
    info: &'p IndexInfo,
    findings: &'p mut Vec<Finding>,
    go_on: &'p mut dyn FnMut() -> bool,
}

impl Proof<'_> {
    fn find(&mut self, row: Option<(TableId, Vec<u8>)>, what: &str) {
        if self.findings.len() < FINDINGS_MAX {
            let of = row.as_ref().map_or_else(String::new, |(_, key)| format!(", row {}", hex(key)));
            let place = format!("index '{}'{of}", self.info.name);
            // A row is reported by its key, not by its place.
            let what = match &row {
                Some(_) => format!("index '{}': {what}", self.info.name),
                None => what.to_owned(),
            };
            self.findings.push(Finding { place, page: None, row, what });
        }
    }

    fn going_on(&mut self) -> Result<()> {
        if (self.go_on)() { Ok(()) } else { Err(StoreError::Stopped) }
    }

    fn run(&mut self) -> Result<()> {
        let prepared = match self.snapshot.database().prepare(self.info.clone()) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.find(None, &format!("it cannot be read: {error}"));
                return Ok(());
            }
        };
        let mut derive = prepared.derive.lock().unwrap_or_else(PoisonError::into_inner).again();
        let snapshot = self.snapshot.clone();
        let shapes = snapshot.overflow_reader();
        let (mut entries, mut spelling, mut code) = (Derived::default(), Vec::new(), Vec::new());
        let mut scan = self.snapshot.scan(self.info.table, &Range::ALL, false)?;
        let mut count = 0;
        while let Some(row) = scan.next()? {
            self.going_on()?;
            entries.clear();
            if let Err(error) = derive.derive(&row, &shapes, &mut entries) {
                let at = (self.info.table, row.key.to_vec());
                self.find(Some(at), &format!("its entries cannot be derived: {error}"));
                continue;
            }
            entries.sort_and_dedup();
            for (parts, parts_spelling) in entries.iter() {
                self.going_on()?;
                code.clear();
                code.extend_from_slice(parts);
                code.extend_from_slice(row.key);
                join_spellings(parts_spelling, row.spelling, &mut spelling);
                let found = self.snapshot.get(self.info.id, &code)?;
                match found {
                    Some(cell) if cell.spelling == &spelling[..] => {}
                    Some(_) => {
                        let at = (self.info.table, row.key.to_vec());
                        self.find(Some(at), &format!("its entry is spelled otherwise{MEND}"));
                    }
                    None => {
                        let at = (self.info.table, row.key.to_vec());
                        self.find(Some(at), &format!("its entry is missing{MEND}"));
                    }
                }
                count += 1;
            }
        }
        self.look_at_entries(&prepared, count)
    }

    /// Search for entries of no row, if there may be any, and for two entries with one value in a
    /// unique index.
    fn look_at_entries(&mut self, prepared: &Prepared, expected: u64) -> Result<()> {
        let snapshot = self.snapshot.clone();
        let shapes = snapshot.overflow_reader();
        let mut derive = prepared.derive.lock().unwrap_or_else(PoisonError::into_inner).again();
        let has_others = self.snapshot.count(self.info.id)? != expected;
        if !has_others && !self.info.is_unique {
            return Ok(());
        }
        let mut entries = Derived::default();
        let mut last: Option<Vec<u8>> = None;
        let mut scan = self.snapshot.scan(self.info.id, &Range::ALL, false)?;
        while let Some(entry) = scan.next()? {
            self.going_on()?;
            let split = derive.parts_size(entry.key).and_then(|size| entry.key.split_at_checked(size));
            let Some((parts, key)) = split else {
                self.find(None, &format!("entry {} is none{MEND}", hex(entry.key)));
                continue;
            };
            let at = || Some((self.info.table, key.to_vec()));
            if self.info.is_unique && last.as_deref() == Some(parts) {
                self.find(at(), "it has what another row has, though the index is unique");
            }
            last = Some(parts.to_vec());
            if !has_others {
                continue;
            }
            let spelling = split_spellings(entry.spelling).map_or(&b""[..], |(_, key)| key);
            let Some(cell) = self.snapshot.get(self.info.table, key)? else {
                self.find(at(), &format!("it has an entry, but there is no such row{MEND}"));
                continue;
            };
            entries.clear();
            let derived = derive.derive(&Row { key, spelling, record: &cell.record }, &shapes, &mut entries);
            if derived.is_ok() && !entries.iter().any(|(own, _)| own == parts) {
                self.find(at(), &format!("it has an entry that it should not have{MEND}"));
            }
        }
        Ok(())
    }
}
