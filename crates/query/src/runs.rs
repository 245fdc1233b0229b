//! Where do sorted rows wait that are too many for memory?
//!
//! In files without a name in the system's folder for such (`TMPDIR`), which are gone with the process. A run is rows in order; a
//! [`Merge`] reads all of them side by side.
//!
//! ```text
//! file  := run ...
//! run   := entry ...
//! entry := u32 size of the code, u32 size of the key, u32 size of the spelling, code, key, spelling
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_store::StoreError;

use crate::sort::Entry;
use crate::stoppable::{Many, Pace, Rest};
use crate::walk::Fault;

/// Bytes that are read or written at once.
const BUFFER_SIZE: usize = 1 << 16;

/// Rows in order, some at a time, in one file: open files are fewer than runs may be.
#[derive(Default)]
pub(crate) struct Runs {
    file: Option<File>,
    /// Where each begins, and how many rows it has.
    runs: Vec<(u64, u64)>,
}

/// What a failing file means for the sort.
pub(crate) fn failed(action: &'static str, source: io::Error) -> StoreError {
    let path = std::env::temp_dir();
    let path = format!(
        "a temporary file in {} (TMPDIR names the folder), for a sort that memory has no room for",
        path.display()
    );
    StoreError::Io { action, path, source }
}

impl Runs {
    /// Writes entries, which are in order, as a run more.
    ///
    /// # Errors
    /// There is no room for it, or a stop.
    pub fn write(&mut self, entries: &[Entry], pace: &mut Pace<impl Fn() -> bool>) -> Result<(), Fault> {
        let failed = |error| failed("write to", error);
        let mut file = self.begin(entries.len()).map_err(failed)?;
        for entry in entries {
            entry.write(&mut file).map_err(failed)?;
            pace.step()?;
        }
        Ok(file.flush().map_err(failed)?)
    }

    /// Where to write a run of so many entries.
    fn begin(&mut self, count: usize) -> io::Result<BufWriter<&mut File>> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        self.runs.push((file.stream_position()?, count as u64));
        Ok(BufWriter::with_capacity(BUFFER_SIZE, file))
    }

    pub fn into_readers(self) -> Vec<RunReader> {
        let Some(file) = self.file else { return Vec::new() };
        let file = Arc::new(Mutex::new(file));
        let reader = |(place, left)| {
            let part = FilePart { file: Arc::clone(&file), place };
            RunReader { file: BufReader::with_capacity(BUFFER_SIZE, part), left }
        };
        self.runs.into_iter().map(reader).collect()
    }
}

impl Entry {
    fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let parts = [&self.code, &self.key, &self.spelling];
        for part in parts {
            let size = u32::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            file.write_all(&size.to_le_bytes())?;
        }
        parts.into_iter().try_for_each(|part| file.write_all(part))
    }
}

/// A file that others read too, from a place on.
struct FilePart {
    file: Arc<Mutex<File>>,
    place: u64,
}

impl Read for FilePart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.place))?;
        let size = file.read(into)?;
        self.place += size as u64;
        Ok(size)
    }
}

/// Reads a run.
pub(crate) struct RunReader {
    file: BufReader<FilePart>,
    left: u64,
}

impl RunReader {
    fn next(&mut self) -> io::Result<Option<Entry>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let mut size = || -> io::Result<usize> {
            let mut bytes = [0; 4];
            self.file.read_exact(&mut bytes)?;
            Ok(u32::from_le_bytes(bytes) as usize)
        };
        let sizes = [size()?, size()?, size()?];
        let mut part = |size: usize| -> io::Result<Box<[u8]>> {
            let mut bytes = vec![0; size];
            self.file.read_exact(&mut bytes)?;
            Ok(bytes.into())
        };
        let [code, key, spelling] = sizes;
        Ok(Some(Entry::of(part(code)?, part(key)?, part(spelling)?)))
    }
}

/// Runs, and rows in memory, read side by side.
pub struct Merge {
    /// The first of each source that is not at its end; the least on top.
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
    memory: Rest<Entry>,
    runs: Vec<RunReader>,
}

impl Merge {
    pub(crate) fn new(memory: Many<Entry>, runs: Vec<RunReader>) -> io::Result<Self> {
        let mut merge = Self { heads: BinaryHeap::new(), memory: memory.into_rest(), runs };
        for source in 0..=merge.runs.len() {
            merge.take_from(source)?;
        }
        Ok(merge)
    }

    /// The source behind the last run is memory.
    fn take_from(&mut self, source: usize) -> io::Result<()> {
        let entry = match self.runs.get_mut(source) {
            Some(run) => run.next()?,
            None => self.memory.next(),
        };
        if let Some(entry) = entry {
            self.heads.push(Reverse((entry, source)));
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let Some(Reverse((entry, source))) = self.heads.pop() else { return Ok(None) };
        self.take_from(source)?;
        Ok(Some(entry))
    }
}
