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
pub(crate) struct SortFile {
    file: Arc<File>,
    end: u64,
}

impl SortFile {
    /// A new file in a folder.
    pub(crate) fn create_in(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: Arc::new(tempfile::tempfile_in(folder)?), end: 0 })
    }

    /// Room for a run of these entries. `Run::write` writes it.
    pub(crate) fn place_for(&mut self, entries: &Entries) -> Run {
        let sizes = (0..entries.len()).filter_map(|index| entries.get(index));
        let size = sizes.map(|entry| (HEAD_SIZE + entry.code.len() + entry.rest.len()) as u64).sum::<u64>();
        let start = self.end;
        self.end += size;
        let (count, common) = (entries.len() as u64, entries.common().to_vec());
        Run { file: Arc::clone(&self.file), start, end: self.end, count, common }
    }
}

/// A sorted part of a file.
#[derive(Clone)]
pub(crate) struct Run {
    file: Arc<File>,
    start: u64,
    end: u64,
    pub(crate) count: u64,
    /// What all codes begin with.
    pub(crate) common: Vec<u8>,
}

impl Run {
    /// Write sorted entries, those that it was made for.
    pub(crate) fn write(&self, entries: &Entries) -> io::Result<()> {
        let place = FileWriter { file: &self.file, at: self.start };
        let mut file = BufWriter::with_capacity(WRITTEN_SIZE, place);
        for entry in (0..entries.len()).filter_map(|index| entries.get(index)) {
            file.write_all(&(entry.code.len() as u32).to_le_bytes())?;
            file.write_all(&(entry.rest.len() as u32).to_le_bytes())?;
            file.write_all(entry.code)?;
            file.write_all(entry.rest)?;
        }
        file.flush()
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
pub(crate) struct RunReader {
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
