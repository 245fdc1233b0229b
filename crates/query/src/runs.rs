//! Writes sorted rows that do not fit into memory to a temporary file, and reads them back.
//!
//! The file has no name and lies in the system's temporary folder (`TMPDIR`). It is gone when the
//! process ends. A run is a list of rows in order; a [`Merge`](crate::merge::Merge) reads all runs
//! side by side.
//!
//! ```text
//! file  := run ...
//! run   := entry ...
//! entry := u32 size of the code, u32 size of the key, u32 size of the spelling, code, key, spelling
//! ```

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_store::StoreError;

use crate::batch::{Batch, Entry};
use crate::fault::Fault;
use crate::stoppable::Pace;

/// Bytes that are read or written at once.
const BUFFER_SIZE: usize = 1 << 16;

/// Sorted runs in one file: there may be more runs than open files.
#[derive(Default)]
pub(crate) struct Runs {
    file: Option<File>,
    /// The position in the file and the number of rows of each run.
    runs: Vec<(u64, u64)>,
}

/// The error of a sort that cannot read or write its temporary file.
pub(crate) fn failed(action: &'static str, source: io::Error) -> StoreError {
    let path = std::env::temp_dir();
    let path = format!(
        "a temporary file in {} (TMPDIR names the folder), for a sort that does not fit in memory",
        path.display()
    );
    StoreError::Io { action, path, source }
}

impl Runs {
    /// Writes the first `count` entries of a sorted batch, or all, as one more run.
    ///
    /// # Errors
    /// There is no room for it, or a stop.
    pub fn write(
        &mut self,
        batch: &Batch,
        count: usize,
        pace: &mut Pace<impl Fn() -> bool>,
    ) -> Result<(), Fault> {
        let failed = |error| failed("write to", error);
        let count = count.min(batch.len());
        let mut file = self.begin(count).map_err(failed)?;
        for entry in (0..count).filter_map(|index| batch.get(index)) {
            entry.write(&mut file).map_err(failed)?;
            pace.step()?;
        }
        Ok(file.flush().map_err(failed)?)
    }

    /// A writer at the place of the next run, which has this many entries.
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
            RunReader { file: BufReader::with_capacity(BUFFER_SIZE, part), left, bytes: Vec::new() }
        };
        self.runs.into_iter().map(reader).collect()
    }
}

impl Entry<'_> {
    fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let parts = [self.code, self.key, self.spelling];
        for part in parts {
            let size = u32::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            file.write_all(&size.to_le_bytes())?;
        }
        parts.into_iter().try_for_each(|part| file.write_all(part))
    }
}

/// A file that others read too, read from a position on.
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
    /// The bytes of the entry that was read last.
    bytes: Vec<u8>,
}

impl RunReader {
    /// The next entry. It is valid until the next call.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry<'_>>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let mut size = || -> io::Result<usize> {
            let mut bytes = [0; 4];
            self.file.read_exact(&mut bytes)?;
            Ok(u32::from_le_bytes(bytes) as usize)
        };
        let [code, key, spelling] = [size()?, size()?, size()?];
        self.bytes.resize(code + key + spelling, 0);
        self.file.read_exact(&mut self.bytes)?;
        let (code, rest) = self.bytes.split_at_checked(code).unwrap_or_default();
        let (key, spelling) = rest.split_at_checked(key).unwrap_or_default();
        Ok(Some(Entry { code, key, spelling }))
    }
}
