//! Which process may write?
//!
//! The one that holds the `flock` on `PATH-writer`, a small file beside the database in which the holder says who it
//! is: LMDB's own writer lock cannot be waited for with a timeout, and does not know its owner's name. The lock goes
//! with the process that holds it, however that ends. Threads of one process queue at `gate.rs` first.
//!
//! ```text
//! offset 0    the first opener's PID namespace, as text, in 32 bytes
//! offset 32   the last writer: PID, time (UTC), command, as text, in 224 bytes
//! ```

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Holder, StoreError, Wanted};
use crate::gate::{Gate, GateGuard};
use crate::os;

const NAMESPACE_SIZE: usize = 32;
const HOLDER_SIZE: usize = 224;
const COMMAND_SIZE_MAX: usize = 120;

/// A file whose `flock` belongs to this process alone: children close it, and leave closing it later to nobody.
pub(crate) struct OwnFile {
    file: Option<File>,
    generation: u64,
}

impl OwnFile {
    pub(crate) fn new(file: File) -> Self {
        os::close_in_children(file.as_raw_fd());
        Self { file: Some(file), generation: os::generation() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.generation == os::generation()
    }

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.is_ours())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.is_ours() {
            os::no_longer_close_in_children(file.as_raw_fd());
            // Explicitly, in case a child still has a copy of the descriptor.
            let _ = file.unlock();
        } else {
            // The fork handler has closed the descriptor; its number may be somebody else's by now.
            std::mem::forget(file);
        }
    }
}

/// The lock between processes.
pub(crate) struct WriterLock {
    file: OwnFile,
}

/// The right to write. Dropping it gives it up: first to other processes, then to other threads.
pub(crate) struct WriterGuard {
    lock: Option<Arc<WriterLock>>,
    _gate: GateGuard,
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        if let Some(file) = self.lock.as_ref().and_then(|lock| lock.file.file()) {
            let _ = file.unlock();
        }
    }
}

/// Where the lock of a database lies.
pub(crate) fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-writer");
    path.into()
}

impl WriterLock {
    /// Open the lock file, creating it if it is missing.
    pub(crate) fn open(database: &Path) -> io::Result<Self> {
        let path = path_of(database);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = match file {
            // Another user's: enough to wait for, if not to sign.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path)?,
            other => other?,
        };
        Ok(Self { file: OwnFile::new(file) })
    }

    /// Note in whose PID namespace the database is open; says whether somebody noted another one before.
    pub(crate) fn meet_namespace(&self, is_first: bool) -> bool {
        let Some(file) = self.file.file() else { return false };
        let Ok(own) = std::fs::read_link("/proc/self/ns/pid") else { return false };
        let own = own.to_string_lossy().into_owned();
        let mut bytes = [0; NAMESPACE_SIZE];
        let size = file.read_at(&mut bytes, 0).unwrap_or(0);
        let noted = text(bytes.get(..size).unwrap_or_default());
        if is_first || noted.is_empty() {
            let _ = file.write_all_at(&padded::<NAMESPACE_SIZE>(&own), 0);
            return false;
        }
        noted != own
    }

    /// Wait for the lock until the deadline; false when it passed.
    ///
    /// First in a queue of one, the lock on the file's first byte: else a process that writes all the time would always be
    /// back before those that look now and then.
    fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let Some(file) = self.file.file() else { return Ok(false) };
        if !poll(deadline, || os::lock_first_byte(file, true))? {
            return Ok(false);
        }
        let is_locked = poll(deadline, || match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        });
        os::lock_first_byte(file, false)?;
        if is_locked? {
            // Only for other processes' messages: that it fails is no reason not to write.
            let _ = file.write_all_at(&padded::<HOLDER_SIZE>(&introduction()), NAMESPACE_SIZE as u64);
            return Ok(true);
        }
        Ok(false)
    }

    /// Who says that it writes.
    fn holder(&self) -> Option<Holder> {
        let mut bytes = [0; HOLDER_SIZE];
        let size = self.file.file()?.read_at(&mut bytes, NAMESPACE_SIZE as u64).ok()?;
        let text = text(bytes.get(..size)?);
        let mut words = text.splitn(3, ' ');
        Some(Holder {
            pid: words.next()?.parse().ok()?,
            since: words.next()?.to_owned(),
            command: words.next().unwrap_or_default().to_owned(),
        })
    }
}

/// Try again and again until it works or the deadline has passed: soon at first, then after an eighth of the time that was
/// waited so far.
fn poll(deadline: Instant, mut attempt: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let begin = Instant::now();
    loop {
        if attempt()? {
            return Ok(true);
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(false);
        }
        let pause =
            (now.duration_since(begin) / 8).clamp(Duration::from_micros(50), Duration::from_millis(5));
        std::thread::sleep(pause.min(deadline.duration_since(now)));
    }
}

/// Wait for the right to write, until other threads and processes have had theirs or the time is over.
pub(crate) fn acquire(
    gate: &Arc<Gate>,
    lock: Option<&Arc<WriterLock>>,
    path: &str,
    timeout: Duration,
) -> Result<WriterGuard, StoreError> {
    let begin = Instant::now();
    let deadline =
        begin.checked_add(timeout).unwrap_or_else(|| begin + Duration::from_secs(u64::from(u32::MAX)));
    let busy = |holder: Option<Holder>| StoreError::Busy {
        path: path.to_owned(),
        wanted: Wanted::Write,
        holders: holder.into_iter().collect(),
        waited: Some(timeout),
    };
    let Some(gate) = gate.enter(deadline) else {
        let command = "another transaction of this process".to_owned();
        return Err(busy(Some(Holder { pid: std::process::id(), command, since: String::new() })));
    };
    if let Some(lock) = lock {
        match lock.wait(deadline) {
            Ok(true) => {}
            Ok(false) => return Err(busy(lock.holder())),
            Err(source) => return Err(StoreError::from_io("lock", path.to_owned(), source)),
        }
    }
    Ok(WriterGuard { lock: lock.cloned(), _gate: gate })
}

/// This process, as others shall read it: PID, time, command.
fn introduction() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let command = own_command();
    format!("{} {hour:02}:{minute:02}:{second:02} {command}", std::process::id())
}

fn own_command() -> &'static str {
    static COMMAND: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    COMMAND.get_or_init(|| command_of("self"))
}

/// The command line of a process, for messages; empty where it cannot be read.
pub(crate) fn command_of(process: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let mut command = words.join(" ").trim().replace(char::is_control, " ");
    if command.len() > COMMAND_SIZE_MAX {
        let end = (0..=COMMAND_SIZE_MAX).rev().find(|end| command.is_char_boundary(*end)).unwrap_or(0);
        command.truncate(end);
        command.push_str("...");
    }
    command
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (target, source) in bytes.iter_mut().zip(text.bytes()) {
        *target = source;
    }
    bytes
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
