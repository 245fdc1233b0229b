//! Writes sorted runs on a thread of its own, while more entries come.

use std::io;
use std::path::Path;
use std::thread::{Builder, JoinHandle};

use super::entries::Entries;
use super::runs::{Run, SortFile};
use crate::sys::os::is_of_room;

/// The file of a sort, and the run that is being written to it.
#[derive(Default)]
pub(crate) struct Spill {
    file: Option<SortFile>,
    writing: Option<JoinHandle<io::Result<Entries>>>,
    /// Memory for the next run.
    spare: Entries,
}

impl Spill {
    /// Begin to sort entries and to write them as a run, and leave none. The file is made in this
    /// folder. Waits for the run before.
    pub(crate) fn write(&mut self, entries: &mut Entries, folder: &Path) -> io::Result<Run> {
        self.wait()?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(SortFile::create_in(folder).or_else(|error| {
                // The folder of a database need not be writable.
                if is_of_room(&error) { Err(error) } else { SortFile::create_in(&std::env::temp_dir()) }
            })?),
        };
        let run = file.place_for(entries);
        let mut entries = std::mem::replace(entries, std::mem::take(&mut self.spare));
        let to_write = run.clone();
        let write = move || {
            entries.sort();
            to_write.write(&entries, |error| error, &mut || Ok(()))?;
            entries.clear();
            Ok(entries)
        };
        self.writing = Some(Builder::new().name("pellucid-sort".to_owned()).spawn(write)?);
        Ok(run)
    }

    /// Wait until the last run is written.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if let Some(thread) = self.writing.take() {
            let ended = || Err(io::Error::other("the thread that sorts has ended"));
            self.spare = thread.join().unwrap_or_else(|_| ended())?;
        }
        Ok(())
    }
}
