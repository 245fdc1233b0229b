//! Sorted entries in a file without a name.
//!
//! The file lies beside the database and is gone when the process ends, however it ends.
//!
//! ```text
//! file  := run ...
//! run   := entry ...
//! entry := u32 size of the code, u32 size of the rest, code, rest
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::entries::{Entries, Entry};

/// The sizes in front of an entry.
const HEAD_SIZE: usize = 8;
/// Bytes that are written at once.
const WRITTEN_SIZE: usize = 1 << 20;

/// The file of a sort, and where its next run begins.
pub struct SortFile {
    file: Arc<File>,
    end: u64,
}

impl SortFile {
    /// A new file in a folder.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn create_in(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: Arc::new(tempfile::tempfile_in(folder)?), end: 0 })
    }

    /// Room for a run of these entries. `Run::write` writes it.
    #[must_use]
    pub fn place_for(&mut self, entries: &Entries) -> Run {
        let all = (0..entries.len()).filter_map(|index| entries.get(index));
        let size = all.map(|entry| (HEAD_SIZE + entry.code.len() + entry.rest.len()) as u64).sum::<u64>();
        let start = self.end;
        self.end += size;
        let (count, common) = (entries.len() as u64, entries.common().to_vec());
        Run { file: Arc::clone(&self.file), start, end: self.end, count, common }
    }
}

/// A sorted part of a file.
#[derive(Clone)]
pub struct Run {
    file: Arc<File>,
    start: u64,
    end: u64,
    pub(crate) count: u64,
    /// What all codes begin with.
    pub(crate) common: Vec<u8>,
}

impl Run {
    /// Write sorted entries, those that it was made for. `step` is called for each.
    ///
    /// # Errors
    /// There is no room for them, as `failed` words it, or an error of `step`.
    pub fn write<E>(
        &self,
        entries: &Entries,
        failed: impl Fn(io::Error) -> E,
        step: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let place = FileWriter { file: &self.file, at: self.start };
        let mut file = BufWriter::with_capacity(WRITTEN_SIZE, place);
        for entry in (0..entries.len()).filter_map(|index| entries.get(index)) {
            write_entry(&mut file, entry).map_err(&failed)?;
            step()?;
        }
        file.flush().map_err(failed)
    }

    /// A reader that reads this many bytes at once, or an entry if that is larger.
    pub(crate) fn reader(&self, size: usize) -> RunReader {
        RunReader {
            file: Arc::clone(&self.file),
            at: self.start,
            end: self.end,
            buffer: Vec::new(),
            size,
            entry: 0..0,
            code_size: 0,
        }
    }
}

fn write_entry(file: &mut impl Write, entry: Entry<'_>) -> io::Result<()> {
    for part in [entry.code, entry.rest] {
        let size = u32::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        file.write_all(&size.to_le_bytes())?;
    }
    file.write_all(entry.code)?;
    file.write_all(entry.rest)
}

struct FileWriter<'f> {
    file: &'f File,
    at: u64,
}

impl Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.file.write_at(bytes, self.at)?;
        self.at += size as u64;
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a run.
pub struct RunReader {
    file: Arc<File>,
    /// Where the file is read next, and where the run ends.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    size: usize,
    /// The current entry's code and rest in the buffer.
    entry: std::ops::Range<usize>,
    code_size: usize,
}

impl RunReader {
    /// Go to the next entry. False at the end.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        if self.entry.end == self.buffer.len() && self.at == self.end {
            return Ok(false);
        }
        let mut start = self.require(self.entry.end, HEAD_SIZE)?;
        let size_at = |at: usize| {
            let bytes = self.buffer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes) as usize
        };
        let (code_size, rest_size) = (size_at(start), size_at(start + 4));
        let size = HEAD_SIZE + code_size + rest_size;
        start = self.require(start, size)?;
        self.entry = start + HEAD_SIZE..start + size;
        self.code_size = code_size;
        Ok(true)
    }

    /// Have `size` bytes from `start` on in the buffer. Returns where they are then.
    fn require(&mut self, start: usize, size: usize) -> io::Result<usize> {
        if self.buffer.len() - start >= size {
            return Ok(start);
        }
        self.buffer.drain(..start);
        let had = self.buffer.len();
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let wanted = size.max(self.size).min(had.saturating_add(left));
        if wanted < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.resize(wanted, 0);
        self.file.read_exact_at(self.buffer.get_mut(had..).unwrap_or_default(), self.at)?;
        self.at += (wanted - had) as u64;
        Ok(0)
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        let bytes = self.buffer.get(self.entry.clone()).unwrap_or_default();
        let (code, rest) = bytes.split_at_checked(self.code_size).unwrap_or_default();
        Entry { code, rest }
    }
}
