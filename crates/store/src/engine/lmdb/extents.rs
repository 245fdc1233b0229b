//! Large values on reserved pages of an LMDB file.
//!
//! A value lies as LMDB would have written it: on pages of its own, after the head of the first.
//! The pages of the reserve are free pages to LMDB, of a version that never comes
//! (`crates/lmdb-sys/src/system.c`). LMDB writes numbers in the machine's byte order; here they are
//! little-endian, and other machines do without (`LmdbEngine::extents`).
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pellucid_lmdb_sys as ffi;

use crate::engine::extents::{Extents, KeepsPages};
use crate::engine::lmdb::cursor::{EMPTY, bytes_of, value_of};
use crate::engine::lmdb::format::free_list;
use crate::engine::lmdb::page::{PAGE_HEAD_SIZE, PAGE_OVERFLOW, read_u64};
use crate::engine::lmdb::txn::LmdbWrite;
use crate::engine::lmdb::{Environment, check};
use crate::engine::{EngineError, Result, Tree};
use crate::sys::os;

/// The file of an environment, for values on reserved pages.
pub(crate) struct FileExtents {
    environment: Arc<Environment>,
    /// The address at which the file is mapped, for as long as the environment is open; and for how
    /// many bytes.
    map: usize,
    map_size: u64,
}

impl FileExtents {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        // SAFETY: the environment is open; LMDB maps the file once, and keeps the map.
        let map = unsafe { ffi::pellucid_map(environment.raw()) } as usize;
        let map_size = environment.info().me_mapsize as u64;
        Self { environment: Arc::clone(environment), map, map_size }
    }

    fn page_size(&self) -> u64 {
        self.environment.page_size() as u64
    }

    /// Whether the file and its map have pages up to this one.
    fn has_pages(&self, end: u64) -> bool {
        // It is asked for each time: another process may have made the file shorter.
        let size =
            self.environment.file().ok().and_then(|file| file.metadata().ok()).map(|found| found.len());
        size.is_some_and(|size| end <= size / self.page_size())
            && end.saturating_mul(self.page_size()) <= self.map_size
    }
}

/// The head of the first page of a value.
fn head_of(first: u64, pages: u64) -> [u8; PAGE_HEAD_SIZE] {
    let mut head = [0; PAGE_HEAD_SIZE];
    let (number, rest) = head.split_at_mut(8);
    number.copy_from_slice(&first.to_le_bytes());
    let (_, rest) = rest.split_at_mut(2);
    let (flags, count) = rest.split_at_mut(2);
    flags.copy_from_slice(&PAGE_OVERFLOW.to_le_bytes());
    count.copy_from_slice(&(pages as u32).to_le_bytes());
    head
}

/// How many pages a value has that lies on pages of its own.
pub(super) fn pages_for(size: u64, page_size: u64) -> u64 {
    (PAGE_HEAD_SIZE as u64 - 1 + size) / page_size + 1
}

/// Write a value, in parts, to pages of its own.
pub(super) fn write_value(file: &File, page_size: u64, first: u64, parts: &[&[u8]]) -> io::Result<()> {
    const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let pages = pages_for(size as u64, page_size);
    let head = head_of(first, pages);
    // All of the last page is written: the system would have to read it otherwise.
    let mut left = (pages * page_size) as usize - PAGE_HEAD_SIZE - size;
    let mut all = vec![IoSlice::new(&head)];
    all.extend(parts.iter().map(|part| IoSlice::new(part)));
    while left > 0 {
        let some = left.min(ZEROS.len());
        all.push(IoSlice::new(ZEROS.get(..some).unwrap_or_default()));
        left -= some;
    }
    os::write_all_at(file, &mut all, first * page_size)?;
    os::begin_write(file, first * page_size, pages * page_size);
    Ok(())
}

impl Extents for FileExtents {
    fn pages_for(&self, size: u64) -> u64 {
        pages_for(size, self.page_size())
    }

    fn write(&self, first: u64, parts: &[&[u8]]) -> io::Result<()> {
        let file = self.environment.file().map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        write_value(&file, self.page_size(), first, parts)
    }

    fn bytes(&self, first: u64, size: u64) -> Option<&[u8]> {
        let end = first.checked_add(self.pages_for(size))?;
        if first < 2 || !self.has_pages(end) {
            return None;
        }
        let start = usize::try_from(first * self.page_size()).ok()? + PAGE_HEAD_SIZE;
        let size = usize::try_from(size).ok()?;
        // SAFETY: the pages are in the file and in the map (both checked above), which lives as
        // long as the environment. That they are not written to meanwhile is the caller's part, as
        // for all bytes of the map.
        (self.map != 0).then(|| unsafe { std::slice::from_raw_parts((self.map + start) as *const u8, size) })
    }

    fn read(&self, first: u64, size: u64) -> Option<Vec<u8>> {
        let end = first.checked_add(self.pages_for(size))?;
        if first < 2 || !self.has_pages(end) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let file = self.environment.file().ok()?;
        file.read_exact_at(&mut bytes, first * self.page_size() + PAGE_HEAD_SIZE as u64).ok()?;
        Some(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.environment.file().map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?.sync_data()
    }

    fn disk_room(&self) -> Option<u64> {
        os::room_beside(&*self.environment.file().ok()?).ok()
    }
}

/// How many pages an entry of the list of free pages has for LMDB to use: none if it is the
/// reserve, which is under the greatest number.
pub(super) fn free_pages_in((version, list): (&[u8], &[u8])) -> u64 {
    // A list of page numbers, its length first.
    if read_u64(version, 0) == Some(u64::MAX) { 0 } else { read_u64(list, 0).unwrap_or(0) }
}

/// A list of free pages as ranges, in ascending order.
fn ranges_of(numbers: &[u8]) -> Option<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for page in free_list(numbers)?.into_iter().rev() {
        match ranges.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => ranges.push(page..page + 1),
        }
    }
    Some(ranges)
}

impl KeepsPages for LmdbWrite {
    fn reserve(&mut self) -> Result<Vec<Range<u64>>> {
        let mut list = EMPTY;
        // SAFETY: the transaction is live and the value ours to fill.
        match unsafe { ffi::pellucid_get_reserve(self.txn()?, &raw mut list) } {
            // SAFETY: nothing is written in the transaction before the list is parsed.
            0 => ranges_of(unsafe { bytes_of(list) })
                .ok_or(EngineError::Damaged { what: "the list of reserved pages is malformed", code: 0 }),
            ffi::MDB_NOTFOUND => Ok(Vec::new()),
            code => self.environment().check(code).map(|()| Vec::new()),
        }
    }

    fn set_reserve(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        self.add_set_aside()?;
        self.close_cursors();
        let count: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let numbers = ranges.iter().rev().flat_map(|range| range.clone().rev());
        let list: Vec<u8> = std::iter::once(count).chain(numbers).flat_map(u64::to_le_bytes).collect();
        let mut list = value_of(&list);
        // SAFETY: the transaction is live and has no cursors of ours; LMDB copies the list.
        let code = unsafe { ffi::pellucid_set_reserve(self.txn()?, &raw mut list) };
        self.environment().check(code)
    }

    fn take_pages(&mut self, count: u64) -> Result<Range<u64>> {
        let number = c_uint::try_from(count).map_err(|_| EngineError::Misuse("too many pages at once"))?;
        self.add_set_aside()?;
        let mut first = 0;
        // SAFETY: the transaction is live, the number ours to fill.
        let code = unsafe { ffi::pellucid_take_pages(self.txn()?, number, &raw mut first) };
        self.environment().check(code)?;
        self.environment().note_extent(first as u64, count);
        Ok(first as u64..first as u64 + count)
    }

    fn give_room(&mut self, pages: &Range<u64>) -> Result<bool> {
        let (size, count) = (self.environment().page_size() as u64, pages.end - pages.start);
        let file = self.environment().file()?;
        os::reserve(&file, pages.start * size, count * size).map_err(EngineError::of_system)
    }

    fn give_pages(&mut self, pages: &Range<u64>) -> Result<()> {
        let (first, count) = (pages.start as usize, (pages.end - pages.start) as c_uint);
        // SAFETY: the transaction is live.
        check(unsafe { ffi::pellucid_give_pages(self.txn()?, first, count) })
    }

    fn put_placed(&mut self, tree: Tree, key: &[u8], first: u64, size: u64) -> Result<()> {
        self.check_key(key)?;
        self.set_found(tree, false);
        let cursor = self.write_cursor(tree)?;
        let mut key = value_of(key);
        // SAFETY: the cursor is open and its transaction live; LMDB copies the key.
        let code = unsafe { ffi::pellucid_put_placed(cursor, &raw mut key, first as usize, size as usize) };
        self.environment().check(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TreeFile;
    use crate::engine::lmdb::lock_path_of;
    use crate::engine::lmdb::{LmdbEngine, LmdbOptions};

    #[test]
    fn a_value_is_read_or_gone_while_the_file_becomes_shorter() {
        const PAGES: u64 = 256;
        let path = std::env::temp_dir().join(format!("pellucid-shorter-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let engine = LmdbEngine::create(&path, LmdbOptions::default(), &mut |_, _| Vec::new()).unwrap();
        let extents = engine.extents().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let size = (PAGES * 4096) as usize - PAGE_HEAD_SIZE;
        let long = (16 + extents.pages_for(size as u64)) * 65_536;
        let (mut read, mut gone) = (0, 0);
        std::thread::scope(|scope| {
            let shortens = scope.spawn(|| {
                for _ in 0..2_000 {
                    file.set_len(long).unwrap();
                    file.set_len(65_536).unwrap();
                }
            });
            while !shortens.is_finished() {
                // Through the map, this would end the process.
                match extents.read(16, size as u64) {
                    Some(bytes) => {
                        assert_eq!(bytes.len(), size);
                        read += 1;
                    }
                    None => gone += 1,
                }
            }
        });
        assert!(read + gone > 0);
        file.set_len(long).unwrap();
        assert_eq!(extents.read(16, size as u64), Some(vec![0; size]));
        assert_eq!(extents.read(u64::MAX, 1), None);
        drop(extents);
        drop(engine);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(lock_path_of(&path));
    }
}
