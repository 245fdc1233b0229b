//! The stamp in a database file: tells whether a file is one of ours, and whether it is whole.
//!
//! ```text
//! offset 4032   16 bytes  "pellucid db", then NUL, CR, LF, 0x1A, LF: a text-mode copy is noticed
//!        4048   u16 format, u16 oldest reader's format,
//!               u32 kind: 0, or the kind of an unfinished copy
//!        4056   u64 XXH3-64 of the 24 bytes before
//!        4064   u64 log token: 0, or the token of the log that may have commits which the file lacks
//!        4072   u64 XXH3-64 of the log token; else there is none
//!        4080   u64 proof: 0 while the file is being made,
//!               then XXH3-64 of the pages after this one as they were made
//!        4088   u64 XXH3-64 of the proof; anything else is none: an older version made the file
//! offset 4592   16 bytes  as at 4032, so that the second meta page alone is recognised, too
//! ```
//!
//! The stamp is in the first page, which is LMDB's, after what LMDB uses and ever writes of it.
//! Copies that LMDB's own tools make do not have it. So "is it LMDB's?" and "is it ours?" are two
//! questions, and a foreign LMDB file is refused before LMDB opens it.
//!
//! Creating a file does not wait for the disk, so a power cut may leave any of its sectors, and
//! zeros for the others. The proof tells that apart from a whole file. It is checked while the file
//! is no longer than it was made: the file was synced before anything made it longer, and had no
//! rows until then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::{FORMAT_VERSION, FORMAT_WITHOUT_INDEXES};
use crate::engine::Tree;
use crate::engine::lmdb::format::{Fault, LMDB_MAGIC, Meta, PAGE_SIZE, PageFile, STAMP, new_metas};
use crate::engine::lmdb::page::{read_u16, read_u32, read_u64};
use crate::error::StoreError;
use crate::sys::os;

const MAGIC: &[u8; 16] = b"pellucid db\0\r\n\x1a\n";
const OFFSET: u64 = STAMP.start as u64;
const SIZE: usize = STAMP.end - STAMP.start;
const HEAD_SIZE: usize = 4096;
/// Bytes of a file with nothing but its first commit: two meta pages, and the roots of two trees.
const SIZE_MADE: u64 = 4 * PAGE_SIZE as u64;
const KIND: std::ops::Range<usize> = 20..24;
const CHECKED: usize = 24;
const LOG_TOKEN: usize = 4064;
const LOG_TOKEN_SIZE: usize = 16;
const PROOF: usize = 4080;
const SECOND_MAGIC: usize = PAGE_SIZE + 496;
/// A disk writes this many bytes atomically.
const SECTOR: usize = 512;

/// The kind of a file. `compact` and `backup` fill a new file, and then give it the name of the
/// database. A file that one of them left when it died is recognised by this, whatever its name is;
/// no other file is ever removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A database.
    Database = 0,
    /// A copy that lacks rows.
    Unfinished = 1,
    /// A copy that is complete but does not have the database's name yet. Opening it alone makes it
    /// a database.
    Unnamed = 2,
}

/// What a file turned out to be.
pub(crate) enum Identity {
    /// An empty file.
    Empty,
    /// A file whose creation was not finished.
    Unfinished,
    /// A few bytes, which may be the beginning of any database.
    CutOff,
    /// A database, and its log token.
    Ours(u64),
}

/// Check a file's first page. Refuses a file that is not ours, is cut off, or is too new.
pub(crate) fn identify(file: &File, path: &str, is_alone: bool) -> Result<Identity, StoreError> {
    let failed = |source| StoreError::from_io("read", path.to_owned(), source);
    let not_ours = |what| StoreError::NotADatabase { path: path.to_owned(), what };
    let size = file.metadata().map_err(failed)?.len();
    if size == 0 {
        return Ok(Identity::Empty);
    }
    let mut head = vec![0; SIZE_MADE as usize];
    let read = read_up_to(file, &mut head).map_err(failed)?;
    head.truncate(read);
    if size <= SIZE_MADE && is_left_of_beginning(&head) {
        // No power cut leaves less than a sector of a new file.
        return Ok(if size < SECTOR as u64 { Identity::CutOff } else { Identity::Unfinished });
    }
    head.truncate(HEAD_SIZE);
    let is_lmdb = read_u32(&head, 16) == Some(LMDB_MAGIC);
    let stamp = head.get(OFFSET as usize..OFFSET as usize + SIZE);
    if !is_lmdb {
        let is_damaged = stamp.is_some_and(|stamp| stamp.starts_with(MAGIC));
        return Err(if is_damaged {
            corrupt(path, "its first page is overwritten")
        } else {
            not_ours("its first bytes are not those of one")
        });
    }
    let metas = PageFile::metas(file).map_err(failed)?;
    let [first, second] = &metas;
    let is_new = first.as_ref().is_some_and(Meta::is_new) && second.as_ref().is_none_or(Meta::is_new);
    if is_new && size <= 2 * PAGE_SIZE as u64 {
        // Nothing was ever committed, and there is no room for anything else.
        return Ok(Identity::Unfinished);
    }
    if stamp.is_none() {
        return Err(not_ours("it ends within its first page: it may be one that was cut off"));
    }
    if !stamp.is_some_and(|stamp| stamp.starts_with(MAGIC)) {
        return Err(not_ours("it is an LMDB file of another program"));
    }
    let stamp = stamp.unwrap_or_default();
    if !is_stamp(stamp) {
        return Err(corrupt(path, "the check of its stamp is wrong"));
    }
    if read_u32(stamp, KIND.start) == Some(Kind::Unfinished as u32) {
        return Err(not_ours("it is a copy that compact or backup has not finished"));
    }
    let oldest_reader = read_u16(stamp, 18).unwrap_or(0);
    if oldest_reader > FORMAT_VERSION {
        return Err(StoreError::NewerFormat {
            path: path.to_owned(),
            found: oldest_reader,
            newest: FORMAT_VERSION,
        });
    }
    check_size(file, path)?;
    if is_alone && !is_new {
        probe(file, size, path)?;
    }
    Ok(if is_new {
        Identity::Unfinished
    } else {
        Identity::Ours(log_token_in(head.get(LOG_TOKEN..).unwrap_or_default()))
    })
}

/// Whether these pages are what a power cut may leave of a new file: some of its sectors, with
/// zeros for the others; or all sectors of the first two pages, but other pages than the proof was
/// made of.
fn is_left_of_beginning(found: &[u8]) -> bool {
    let whole = beginning(Kind::Database);
    let mut has_all = found.len() >= whole.len();
    for (index, (found, whole)) in found.chunks(SECTOR).zip(whole.chunks(SECTOR)).enumerate() {
        let is_as_made = whole.starts_with(found)
            || index == LOG_TOKEN / SECTOR
                && found.starts_with(whole.get(..LOG_TOKEN % SECTOR).unwrap_or(whole))
            || index == PAGE_SIZE / SECTOR && is_of_first_commit(found, whole);
        if !is_as_made && found.iter().any(|byte| *byte != 0) {
            return false;
        }
        has_all &= is_as_made;
    }
    !has_all || proof_in(found).is_some_and(|proof| Some(proof) != proof_of(found))
}

/// Whether the first sector of the second meta page is as the first commit makes it.
fn is_of_first_commit(found: &[u8], begun: &[u8]) -> bool {
    let magic = SECOND_MAGIC % SECTOR..;
    found.get(magic.clone()) == begun.get(magic) && Meta::parse(found, 1).is_some_and(|meta| meta.txn == 1)
}

/// The proof of the pages after the first one. `None` if some are missing.
fn proof_of(pages: &[u8]) -> Option<u64> {
    pages.get(PAGE_SIZE..SIZE_MADE as usize).map(xxh3_64)
}

/// The proof in a file's first page, if there is one.
fn proof_in(head: &[u8]) -> Option<u64> {
    let proof = read_u64(head, PROOF)?;
    (read_u64(head, PROOF + 8)? == xxh3_64(&proof.to_le_bytes())).then_some(proof)
}

/// Whether a stamp is present and sound.
fn is_stamp(stamp: &[u8]) -> bool {
    stamp.starts_with(MAGIC)
        && read_u64(stamp, CHECKED).is_some_and(|check| stamp.get(..CHECKED).map(xxh3_64) == Some(check))
}

/// Whether a file is an unfinished or unnamed copy of `compact` or `backup`.
pub(crate) fn is_copy(file: &File) -> bool {
    let mut stamp = [0; SIZE];
    let kinds = [Kind::Unfinished, Kind::Unnamed].map(|kind| Some(kind as u32));
    file.read_exact_at(&mut stamp, OFFSET).is_ok()
        && is_stamp(&stamp)
        && kinds.contains(&read_u32(&stamp, KIND.start))
}

/// Set the kind of a file. The next sync of the file writes it to the disk.
pub(crate) fn set_kind(file: &File, kind: Kind) -> io::Result<()> {
    let mut stamp = [0; SIZE];
    file.read_exact_at(&mut stamp, OFFSET)?;
    if let Some(place) = stamp.get_mut(KIND) {
        place.copy_from_slice(&(kind as u32).to_le_bytes());
    }
    let (checked, check) = stamp.split_at_mut(CHECKED);
    check.copy_from_slice(&xxh3_64(checked).to_le_bytes());
    file.write_all_at(&stamp, OFFSET)
}

/// Make a database of a complete copy. The caller is alone with it.
pub(crate) fn end_copy(file: &File) -> io::Result<()> {
    if is_copy(file) { set_kind(file, Kind::Database) } else { Ok(()) }
}

fn with_check(word: u64) -> Vec<u8> {
    [word, xxh3_64(&word.to_le_bytes())].map(u64::to_le_bytes).concat()
}

/// The log token in these bytes.
fn log_token_in(bytes: &[u8]) -> u64 {
    let token = read_u64(bytes, 0).unwrap_or(0);
    let is_one = read_u64(bytes, 8) == Some(xxh3_64(&token.to_le_bytes()));
    if is_one { token } else { 0 }
}

/// The log token of a database's file.
pub(crate) fn log_token_of(file: &File) -> io::Result<u64> {
    let mut bytes = [0; LOG_TOKEN_SIZE];
    file.read_exact_at(&mut bytes, LOG_TOKEN as u64)?;
    Ok(log_token_in(&bytes))
}

/// Set the log token of a database's file; 0 removes it. Any copy of the file made from now on has
/// it. The next sync of the file writes it to the disk.
pub(crate) fn set_log_token(file: &File, token: u64) -> io::Result<()> {
    let bytes = if token == 0 { vec![0; LOG_TOKEN_SIZE] } else { with_check(token) };
    file.write_all_at(&bytes, LOG_TOKEN as u64)
}

fn corrupt(path: &str, what: &str) -> StoreError {
    let place = "its first page".to_owned();
    StoreError::Corrupt { path: path.to_owned(), place, what: what.to_owned(), is_open: false }
}

/// Verify the pages that the engine reads first, before it trusts them. Only if no other process
/// has the file open: it might change the pages meanwhile, and its readers show that they can be
/// read.
fn probe(file: &File, size: u64, path: &str) -> Result<(), StoreError> {
    let metas =
        PageFile::metas(file).map_err(|source| StoreError::from_io("read", path.to_owned(), source))?;
    let Some(meta) = metas.iter().flatten().max_by_key(|meta| meta.txn) else { return Ok(()) };
    let pages = PageFile::new(file, meta.page_size, size);
    let mut budget = pages.page_count();
    let mut probe = || {
        meta.check_kinds()?;
        pages.probe(meta.main.root, meta.main.depth, &mut budget)?;
        for tree in Tree::ALL {
            let head = pages.tree(meta, tree.name().as_bytes())?;
            if !head.is_plain() {
                let what = "a tree is of a kind that this library does not make";
                return Err(Fault { page: meta.main.root, what });
            }
            if tree == Tree::Meta {
                pages.probe(head.root, head.depth, &mut budget)?;
            }
        }
        Ok(())
    };
    probe().map_err(|fault| StoreError::Corrupt {
        path: path.to_owned(),
        place: format!("page {}", fault.page),
        what: fault.what.to_owned(),
        is_open: false,
    })
}

/// Refuse a file that ends before its pages do: LMDB would read beyond the end, which kills the
/// process.
fn check_size(file: &File, path: &str) -> Result<(), StoreError> {
    let failed = |source| StoreError::from_io("read", path.to_owned(), source);
    let mut seen = None;
    loop {
        let metas = PageFile::metas(file).map_err(failed)?;
        // After the meta pages: other processes may commit meanwhile, and the file grows before a
        // meta page says so.
        let size = file.metadata().map_err(failed)?.len();
        let truncated = |needed| StoreError::Truncated { path: path.to_owned(), size, needed };
        let Some(meta) = metas.iter().flatten().max_by_key(|meta| meta.txn) else {
            return Err(corrupt(path, "neither of its meta pages is one"));
        };
        if metas.iter().flatten().count() < 2 {
            let has_both = size >= 2 * u64::from(meta.page_size);
            return Err(if has_both {
                corrupt(path, "one of its meta pages is damaged")
            } else {
                truncated(2 * u64::from(meta.page_size))
            });
        }
        let needed = meta.last_page.saturating_add(1).saturating_mul(u64::from(meta.page_size));
        if size >= needed {
            return Ok(());
        }
        // Pages at the end that were freed before they were ever written may be missing.
        let pages = PageFile::new(file, meta.page_size, size);
        let missing = size / u64::from(meta.page_size)..meta.last_page + 1;
        match pages.free_pages(meta) {
            Ok(free) if missing.clone().all(|page| free.binary_search(&page).is_ok()) => return Ok(()),
            // The list of free pages of a version is overwritten when two other versions have
            // followed.
            _ if seen != Some(meta.txn) => seen = Some(meta.txn),
            _ => return Err(truncated(needed)),
        }
    }
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, done as u64)? {
            0 => break,
            size => done += size,
        }
    }
    Ok(done)
}

/// Write the beginning of a database to a file. The engine's first commit makes it a database, and
/// `finish` marks it as whole. `identify` recognises what a power cut leaves before all of it is on
/// the disk.
pub(crate) fn begin(file: &File, kind: Kind) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(&beginning(kind), 0)
}

/// Store the proof, after the engine's first commit.
pub(crate) fn finish(file: &File) -> io::Result<()> {
    let mut made = vec![0; SIZE_MADE as usize];
    file.read_exact_at(&mut made, 0)?;
    file.write_all_at(&with_check(proof_of(&made).unwrap_or(0)), PROOF as u64)
}

/// Write the pages of a new file once more, if it has no others. Its creator died, perhaps after a
/// failed sync, which the system reports once and then considers the pages as written.
pub(crate) fn write_again(file: &File) -> io::Result<()> {
    if file.metadata()?.len() != SIZE_MADE {
        return Ok(());
    }
    os::write_again(file)
}

/// LMDB's two meta pages, as it would write them, with our stamp in the first and a part of it in
/// the second. LMDB would write them without the stamp, so a process that died before stamping
/// would leave a foreign file behind.
fn beginning(kind: Kind) -> Vec<u8> {
    let mut pages = new_metas();
    let mut stamp = Vec::with_capacity(SIZE);
    stamp.extend_from_slice(MAGIC);
    stamp.extend_from_slice(&FORMAT_WITHOUT_INDEXES.to_le_bytes());
    stamp.extend_from_slice(&FORMAT_WITHOUT_INDEXES.to_le_bytes());
    stamp.extend_from_slice(&(kind as u32).to_le_bytes());
    let check = xxh3_64(&stamp);
    stamp.extend_from_slice(&check.to_le_bytes());
    for (offset, bytes) in [(STAMP.start, stamp), (PROOF, with_check(0)), (SECOND_MAGIC, MAGIC.to_vec())] {
        if let Some(place) = pages.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }
    pages
}
