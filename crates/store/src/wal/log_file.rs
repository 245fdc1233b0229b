//! The log's file: mapped by each process, with a lock on one byte for each member.
//!
//! Room on the disk is reserved before it is written to, so that a full disk is an error and no
//! signal. Each opener holds a lock on one byte of the file, which the system releases however the
//! process ends. So each process can find out whether another one lives.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::sys::file_id::{is_denied, same_file};
use crate::sys::memory;
use crate::sys::os;
use crate::sys::own_file::OwnFile;
use crate::sys::side_file;
use crate::sys::steps::{Step, reached};
use crate::sys::turnstile::Turnstile;
use crate::sys::wait;
use crate::sys::words::Words;
use crate::wal::budget::SIZE_USUAL;
use crate::wal::segments::{FORMAT as LOG_FORMAT, MAGIC as LOG_MAGIC, PUNCHED, segment_size_of, words_for};
use crate::wal::space::{GONE, MEMBER_MAX, Space};

/// Bytes that are provided at once: a chunk of a segment. Room is reserved in steps that double the
/// log, and for no more than `CHUNKS_AT_ONCE` chunks.
const CHUNK_SIZE: usize = 1 << 16;
const CHUNKS_AT_ONCE: usize = 16;
/// No log is shorter.
const HEAD_SIZE: u64 = 40_960;
/// How much of a log is written when it is made, where room cannot be reserved, and mapped where
/// the address space is limited.
const WRITTEN_SIZE: u64 = HEAD_SIZE + 2 * SIZE_USUAL;
/// Where the heads of the segments are.
const SEGMENT_HEADS_AT: u64 = 4096;
/// The offset of the bytes that openers lock: after everything that is ever written.
pub(crate) const MEMBERS_AT: i64 = 1 << 40;
/// The byte that a process has alone that will write, and waits to join.
pub(crate) const JOINS_NEXT_AT: i64 = MEMBERS_AT - 1;
/// Where the members' PIDs are.
const PIDS_AT: u64 = 8192;
const NAMESPACE_AT: u64 = 32;
const UNSYNCED_FILE_AT: u64 = 40;
const SEGMENT_SIZE_AT: u64 = 48;

/// The initial content of a new chunk. Static zeros: a buffer made each time caused most of the
/// page faults of puts.
static ZEROS: [u8; CHUNK_SIZE] = [0; CHUNK_SIZE];
/// How many bytes are written at once, if pages are to be small.
const SMALL_SIZE: u64 = 16 << 10;

/// A mapped file of words.
pub(crate) struct FileSpace {
    file: OwnFile,
    words: Arc<Words>,
    /// The file's folder, and whether its name there is known to be on the disk.
    folder: PathBuf,
    is_named: AtomicBool,
    /// How many words there can be; a map of fewer ends before.
    capacity: usize,
    /// How many words may be read through the map.
    readable: usize,
    /// Chunks after the head that have room on the disk: one more than the number in the head
    /// (`PUNCHED`) for which that holds.
    reserved: Box<[AtomicU64]>,
    /// The same, for chunks whose pages are ready for this process.
    provided: Box<[AtomicU64]>,
    /// The size of the file when it was last read: the map must not be touched beyond it.
    size: AtomicU64,
    member: u64,
    is_writable: bool,
    /// Held while a thread checks whether a member is gone: the threads of a process share its byte
    /// locks.
    asking: Mutex<()>,
}

impl FileSpace {
    /// Map a file of up to this many words. With `creates_for`, create it if needed, for all users
    /// of that database. An existing log has the size that its first opener gave it. Fails with
    /// `UnexpectedEof` for a file of another size, and with `InvalidData` for one that is no log.
    pub(crate) fn open(
        path: &Path,
        count: usize,
        creates_for: Option<&Metadata>,
        is_writable: bool,
    ) -> io::Result<Self> {
        // With a limit on the address space, map as much as a log usually has.
        let is_short = cfg!(target_os = "linux") && memory::address_limit().is_some();
        let mapped_max = if is_short { WRITTEN_SIZE } else { u64::MAX };
        Self::open_mapped(path, count, creates_for, is_writable, mapped_max)
    }

    /// As `open`, with a map of at most `mapped_max` bytes. What is after it is read and written by
    /// system calls.
    pub(crate) fn open_mapped(
        path: &Path,
        count: usize,
        creates_for: Option<&Metadata>,
        is_writable: bool,
        mapped_max: u64,
    ) -> io::Result<Self> {
        let file = match creates_for {
            Some(database) => open_or_create(path, count as u64 * 8, database)?,
            None => side_file::open(path, is_writable)?,
        };
        let count = count_in(&file, count)?;
        let size = count as u64 * 8;
        if !(HEAD_SIZE..=size).contains(&file.metadata()?.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A map holds the open file that it was made from, and a forked child inherits the map.
        // Locks on that open file would outlive this process for as long as the child lives. So the
        // map is made from another open file.
        let mapped = side_file::open(path, is_writable)?;
        if same_file(path, &file).is_none() || same_file(path, &mapped).is_none() {
            return Err(io::Error::other("another process replaced it meanwhile; open the database again"));
        }
        let words = Words::map(&mapped, size.min(mapped_max), is_writable)?;
        let chunks = (size as usize).div_ceil(CHUNK_SIZE);
        let flags = || memory::zeros(chunks.max(1)).ok_or(io::ErrorKind::OutOfMemory);
        let mut space = Self {
            file: OwnFile::new(file),
            words: Arc::new(words),
            capacity: count,
            readable: if os::has_holes_that_take_room(&mapped)? { words_for(0) } else { usize::MAX },
            folder: path.parent().unwrap_or(Path::new("/")).to_owned(),
            is_named: AtomicBool::new(false),
            size: AtomicU64::new(0),
            reserved: flags()?,
            provided: flags()?,
            member: 0,
            is_writable,
            asking: Mutex::new(()),
        };
        if is_writable {
            space.member = space.join()?;
        }
        Ok(space)
    }

    /// Whether another living member has it open. True if the system cannot tell.
    pub(crate) fn has_others(&self) -> bool {
        let members = MEMBERS_AT + 1..MEMBERS_AT + 1 + MEMBER_MAX.cast_signed();
        self.own_file().and_then(|file| os::is_any_byte_locked(file, members)).unwrap_or(true)
    }

    /// Take the first free member number.
    fn join(&self) -> io::Result<u64> {
        for member in 1..=MEMBER_MAX {
            if os::lock_byte(self.own_file()?, MEMBERS_AT + member.cast_signed(), true)? {
                return Ok(member);
            }
        }
        Err(io::Error::other("too many processes have it open"))
    }

    /// Reserve room for a chunk, and make its pages ready. Only the writer may call this: no other
    /// process writes there meanwhile.
    #[cold]
    fn provide(&self, chunk: usize, in_small_pages: bool) -> io::Result<()> {
        let file = self.own_file()?;
        let bytes = self.bytes_of(chunk);
        let is_new = os::is_hole(file, bytes.start, bytes.end);
        let punched = self.punched();
        self.reserve_chunk(file, chunk, true)?;
        if is_new {
            // A page that is first touched through the map is read before it is written, though
            // nothing is there: five times the cost of writing zeros, and a third of the puts into
            // it. The system caches what is written at once as one large page if it can, which
            // takes a fifth of the time of single pages. But after a store into a large page
            // through the map, the next sync writes all of it. So with a sync for each commit, four
            // pages are written at a time, which takes two fifths.
            let step = if in_small_pages { SMALL_SIZE } else { CHUNK_SIZE as u64 };
            let mut at = bytes.start;
            while at < bytes.end {
                let until = (at + step).min(bytes.end);
                file.write_all_at(ZEROS.get(..(until - at) as usize).unwrap_or_default(), at)?;
                at = until;
            }
            let _ = self.words.touch(bytes.start as usize..bytes.end as usize);
        }
        self.note_provided(chunk, punched);
        Ok(())
    }

    /// The bytes of a chunk.
    fn bytes_of(&self, chunk: usize) -> Range<u64> {
        let start_of = |chunk: usize| (HEAD_SIZE as usize + chunk * CHUNK_SIZE).min(self.capacity * 8) as u64;
        start_of(chunk)..start_of(chunk + 1)
    }

    /// How often room was given back, twice; odd while that is done.
    #[inline]
    fn punched(&self) -> u64 {
        // So that one more is never 0, whatever is in the file.
        self.words.get(PUNCHED).map_or(0, |word| word.load(Ordering::Acquire) & (u64::MAX >> 1))
    }

    /// Reserve room for a chunk, and for some chunks after it. Only the writer may add what the
    /// file system cannot reserve.
    fn reserve_chunk(&self, file: &File, chunk: usize, is_writer: bool) -> io::Result<()> {
        if self.is_reserved(chunk) {
            return Ok(());
        }
        let punched = self.punched();
        // Segments take chunks in turn. The chunks between are reserved too: each hole would be a
        // separate extent on the disk, to be freed separately. That was most of the time of closing
        // on disks to which freed blocks are reported (`discard`).
        let mut from = chunk;
        while from > 0 && !self.is_reserved(from - 1) {
            from -= 1;
        }
        let mut until = chunk + (chunk + 1).min(CHUNKS_AT_ONCE);
        let reserve = |from, until| {
            let (start, end) = (self.bytes_of(from).start, self.bytes_of(until).start);
            os::reserve(file, start, end - start)
        };
        let can = reserve(from, until).or_else(|_| {
            // There may be room for this chunk alone.
            (from, until) = (chunk, chunk + 1);
            reserve(from, until)
        })?;
        let size = if can { u64::MAX } else { file.metadata()?.len() };
        if size < self.bytes_of(until).start {
            // The process that was alone with the log wrote this much, because room cannot be
            // reserved. Touching pages that do not exist would kill this process.
            if size < (self.capacity as u64 * 8).min(WRITTEN_SIZE) || !is_writer {
                return Err(io::Error::other("the log was made shorter while it was open"));
            }
            (from, until) = (chunk, chunk + 1);
            let mut at = size;
            while at < self.bytes_of(until).start {
                let more = (self.bytes_of(until).start - at).min(CHUNK_SIZE as u64);
                file.write_all_at(ZEROS.get(..more as usize).unwrap_or_default(), at)?;
                at += more;
            }
        }
        for chunk in self.reserved.iter().take(until).skip(from) {
            chunk.store(punched + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn is_provided(&self, chunk: usize) -> bool {
        self.holds(self.provided.get(chunk))
    }

    fn note_provided(&self, chunk: usize, punched: u64) {
        if let Some(provided) = self.provided.get(chunk) {
            provided.store(punched + 1, Ordering::Relaxed);
        }
    }

    /// Whether what was noted for a chunk still holds.
    #[inline]
    fn holds(&self, noted: Option<&AtomicU64>) -> bool {
        noted.is_some_and(|noted| noted.load(Ordering::Relaxed) == self.punched() + 1)
    }

    fn is_reserved(&self, chunk: usize) -> bool {
        self.holds(self.reserved.get(chunk))
    }

    fn own_file(&self) -> io::Result<&File> {
        self.file.file().ok_or_else(|| io::Error::other("it was opened before the process forked"))
    }
}

/// The exclusive right to find out whether a log has members, and to become one. Dropping it
/// releases the right.
pub(crate) struct Joining {
    _file: OwnFile,
}

/// Wait until no other process is about to become a member of the log at a path. A process that
/// `will_write` comes before processes that only read. `TimedOut` after `limit`.
pub(crate) fn begin_joining(path: &Path, limit: Duration, will_write: bool) -> io::Result<Joining> {
    let file = side_file::open(path, true)?;
    let turnstile = Turnstile { at: MEMBERS_AT, waiting_at: JOINS_NEXT_AT, is_shared: false, will_write };
    if !turnstile.pass(&file, limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(Joining { _file: OwnFile::new(file) })
}

/// Whether a file begins like a log.
pub(crate) fn is_log(file: &File) -> bool {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).is_ok() && u64::from_le_bytes(magic) == LOG_MAGIC
}

/// The inode of the log's data file, if that is new and may not be on the disk yet.
pub(crate) fn unsynced_file_of(file: &File) -> Option<u64> {
    let mut words = [0; UNSYNCED_FILE_AT as usize + 8];
    file.read_exact_at(&mut words, 0).ok()?;
    let [magic, format, .., unsynced_file] = words.as_chunks().0 else { return None };
    let [magic, format] = [*magic, *format].map(u64::from_le_bytes);
    let is_known = magic == LOG_MAGIC && (1..=LOG_FORMAT).contains(&format);
    Some(u64::from_le_bytes(*unsynced_file)).filter(|unsynced_file| is_known && *unsynced_file != 0)
}

/// The size in words in a log's own head, if it has one: openers that disagreed would append where
/// others do not read.
fn count_of(file: &File) -> Option<usize> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, SEGMENT_SIZE_AT).ok().filter(|()| is_log(file))?;
    segment_size_of(u64::from_le_bytes(word)).map(words_for)
}

/// The members that have, or had, a log open: their numbers, PIDs, and PID namespaces (or 0).
pub(crate) fn members(file: &File) -> io::Result<Vec<(i64, u32, u32)>> {
    let mut pids = vec![0; MEMBER_MAX as usize * 8];
    file.read_exact_at(&mut pids, PIDS_AT + 8)?;
    let words = pids.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let members = (1..).zip(words).map(|(member, word)| (member, word as u32, (word >> 32) as u32));
    Ok(members.filter(|(_, pid, _)| *pid != 0).collect())
}

/// The PID namespace of a log's creator.
pub(crate) fn namespace_of(file: &File) -> Option<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, NAMESPACE_AT).ok()?;
    Some(u64::from_le_bytes(word))
}

/// The size in words of a log that is open: that in its head, or else what its first opener would
/// write there. Logs of old releases do not say their size, which is the usual one.
fn count_in(file: &File, count: usize) -> io::Result<usize> {
    if let Some(count) = count_of(file) {
        return Ok(count);
    }
    let mut word = [0; 8];
    let is_old = is_log(file) && file.read_exact_at(&mut word, SEGMENT_SIZE_AT).is_ok() && word == [0; 8];
    // Without reserved room, a log is written in full when it is made.
    let is_short =
        is_old || file.metadata()?.len() < HEAD_SIZE || !os::reserve(file, 0, HEAD_SIZE).unwrap_or(true);
    Ok(if is_short { count.min(words_for(SIZE_USUAL as usize)) } else { count })
}

/// Open or create the log of a database that this process has alone, with room for an empty log.
fn open_or_create(path: &Path, size: u64, database: &Metadata) -> io::Result<File> {
    let (mut file, mut is_new) = side_file::open_or_create(path, Some(database))?;
    let size = count_of(&file).map_or(size, |count| count as u64 * 8);
    if !is_new && is_unfinished(&file, size)? {
        // Its creator died. A new file also gets the right owner, which the creator perhaps had no
        // time to set.
        match side_file::remove(path).and_then(|()| side_file::create(path, Some(database))) {
            // A user who may write the file, but may create none in the folder.
            Err(error) if is_denied(&error) => file.set_len(0)?,
            made => file = made?,
        }
        is_new = true;
    }
    if is_new || (HEAD_SIZE..=size).contains(&file.metadata()?.len()) {
        make_room(&file, size)?;
    }
    Ok(file)
}

/// Whether the file's creator died before it wrote anything into it. A file with any other content
/// is no log of ours, and an error.
fn is_unfinished(file: &File, size_max: u64) -> io::Result<bool> {
    // The magic is written last; the format is written before it.
    let mut first = [0; 16];
    // A power cut may have taken the first page alone: then the segments' heads, on the second
    // page, are there.
    let mut heads = [0; 128];
    let size = file.read_at(&mut first, 0)?;
    let (magic, format) = first.split_at(size.min(8));
    if size < 8 {
        let is_ours = magic.iter().all(|byte| *byte == 0) || LOG_MAGIC.to_le_bytes().starts_with(magic);
        return if is_ours { Ok(true) } else { Err(io::ErrorKind::InvalidData.into()) };
    }
    if *magic == LOG_MAGIC.to_le_bytes() {
        return Ok(false);
    }
    let is_format = format.first_chunk().is_some_and(|format| u64::from_le_bytes(*format) <= LOG_FORMAT);
    if magic != [0; 8] || !is_format || file.metadata()?.len() > size_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file.read_at(&mut heads, SEGMENT_HEADS_AT)? < heads.len() || heads == [0; 128])
}

/// Make sure that a log has room on the disk. It grows when parts of it are reserved. If the file
/// system cannot reserve, all of it is written now, with its existing content. The file may be new,
/// or a copy that is shorter or has holes.
fn make_room(file: &File, size: u64) -> io::Result<()> {
    if os::reserve(file, 0, HEAD_SIZE)? {
        return Ok(());
    }
    let size = size.min(WRITTEN_SIZE.max(file.metadata()?.len()));
    for offset in (0..size).step_by(CHUNK_SIZE) {
        let mut chunk = vec![0; CHUNK_SIZE.min((size - offset) as usize)];
        let mut done = 0;
        while let Some(rest) = chunk.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        file.write_all_at(&chunk, offset)?;
    }
    Ok(())
}

impl Drop for FileSpace {
    fn drop(&mut self) {
        // Closing the file is not enough if a forked child has a map of it.
        if let Some(file) = self.file.file().filter(|_| self.member != 0) {
            let _ = os::lock_byte(file, MEMBERS_AT + self.member.cast_signed(), false);
        }
    }
}

impl FileSpace {
    /// The bytes that are synced with these words: to the end of the chunk, so that its zeros are
    /// written with its first WAL record. Page by page they would each be a commit of the file
    /// system, since reserved blocks become written ones.
    fn bytes_to_sync(&self, words: &Range<usize>) -> Range<usize> {
        let page_size = os::page_size();
        let start = words.start * 8 / page_size * page_size;
        let written = (words.end * 8).saturating_sub(HEAD_SIZE as usize).next_multiple_of(CHUNK_SIZE);
        start..(HEAD_SIZE as usize + written).min(self.capacity * 8).max(start)
    }
}

/// The chunk that a byte is in, or the first one.
fn chunk_of(byte: usize) -> usize {
    byte.saturating_sub(HEAD_SIZE as usize) / CHUNK_SIZE
}

impl Space for FileSpace {
    fn words(&self) -> &Arc<Words> {
        &self.words
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn readable(&self) -> usize {
        self.readable.min(self.words.len())
    }

    fn read(&self, start: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.own_file()?.read_exact_at(bytes, start as u64 * 8)
    }

    fn punch(&self, words: Range<usize>) -> io::Result<()> {
        let file = self.own_file()?;
        let first = (words.start * 8).saturating_sub(HEAD_SIZE as usize).div_ceil(CHUNK_SIZE);
        let (start, end) = (self.bytes_of(first).start, file.metadata()?.len().min(words.end as u64 * 8));
        let Some(word) = self.words.get(PUNCHED).filter(|_| start < end) else { return Ok(()) };
        // Odd until the hole is made, so that no thread counts a chunk as prepared that is about to
        // go.
        word.fetch_or(1, Ordering::AcqRel);
        reached(Step::LogPunches);
        let punched = os::punch(file, start, end - start);
        reached(Step::LogPunched);
        word.fetch_add(1, Ordering::AcqRel);
        punched
    }

    fn size(&self) -> u64 {
        self.own_file().and_then(File::metadata).map_or(0, |metadata| metadata.blocks() * 512)
    }

    #[inline]
    fn reserve(&self, words: Range<usize>, in_small_pages: bool) -> io::Result<()> {
        if self.punched() % 2 == 1
            && let Some(word) = self.words.get(PUNCHED)
        {
            // A process has died while it gave room back: it had the writer lock.
            word.fetch_add(1, Ordering::AcqRel);
        }
        let (first, last) = (chunk_of(words.start * 8), chunk_of((words.end * 8).saturating_sub(1)));
        for chunk in first..=last {
            if !self.is_provided(chunk) {
                self.provide(chunk, in_small_pages)?;
            }
        }
        Ok(())
    }

    fn is_ready(&self, words: Range<usize>) -> bool {
        self.is_provided(chunk_of(words.start * 8))
    }

    fn prepare(&self, words: Range<usize>) {
        let chunk = chunk_of(words.start * 8);
        let Ok(file) = self.own_file() else { return };
        // Room that is given back from here on is not noted as prepared.
        let punched = self.punched();
        if punched % 2 == 1 || self.is_provided(chunk) || self.reserve_chunk(file, chunk, false).is_err() {
            return;
        }
        // Do not write zeros here, since a writer may have written there by now. Touching the pages
        // takes longer, but no writer waits for it.
        let bytes = self.bytes_of(chunk);
        if self.words.touch(bytes.start as usize..bytes.end as usize) {
            self.note_provided(chunk, punched);
        }
    }

    fn write(&self, start: usize, bytes: &[u8]) -> io::Result<bool> {
        // On other systems a reader through the map may not see it.
        let can = cfg!(target_os = "linux");
        if can {
            self.own_file()?.write_all_at(bytes, start as u64 * 8)?;
        }
        Ok(can)
    }

    fn disk_room(&self) -> Option<u64> {
        self.own_file().and_then(os::room_beside).ok()
    }

    #[inline]
    fn has(&self, end: usize) -> bool {
        let end = end as u64 * 8;
        if end <= self.size.load(Ordering::Relaxed) {
            return true;
        }
        let size = self.own_file().and_then(File::metadata).map_or(0, |metadata| metadata.len());
        self.size.fetch_max(size, Ordering::Relaxed);
        end <= size
    }

    fn sync(&self) -> io::Result<()> {
        self.own_file()?.sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        if !self.is_named.load(Ordering::Relaxed) {
            // A file whose name is lost in a power cut is lost. The data file is in the same
            // folder.
            os::sync_names(&self.folder, self.own_file()?)?;
            self.is_named.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn sync_words(&self, words: Range<usize>) -> io::Result<()> {
        if !cfg!(target_os = "linux") {
            // On other systems a sync of a map may return before the data is on the disk.
            return self.sync();
        }
        self.own_file()?;
        let bytes = self.bytes_to_sync(&words);
        if bytes.end > self.words.len() * 8 {
            // The map ends before.
            return self.sync();
        }
        self.words.sync(bytes)
    }

    fn begin_sync(&self, words: Range<usize>) {
        if let Ok(file) = self.own_file() {
            let bytes = self.bytes_to_sync(&words);
            os::begin_sync(file, bytes.start as u64..bytes.end as u64);
        }
    }

    fn wait(&self, word: usize, value: u32, channel: u32, limit: Duration) {
        if let Some(word) = self.words().get(word) {
            wait::wait(word, value, channel, limit);
        }
    }

    fn wake(&self, word: usize, channel: u32, count: u32) {
        if let Some(word) = self.words().get(word) {
            wait::wake(word, channel, count);
        }
    }

    fn member(&self) -> u64 {
        // A forked child is no member.
        if self.file.is_ours() && self.is_writable { self.member } else { u64::MAX }
    }

    fn if_gone(&self, member: u64, act: &mut dyn FnMut()) -> bool {
        let byte = MEMBERS_AT + member.min(GONE).cast_signed();
        // If the system cannot tell, assume that the member lives: waiting is safe.
        let Ok(file) = self.own_file() else { return false };
        let _alone = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if member == self.member || !os::seize_byte(file, byte).unwrap_or(false) {
            return false;
        }
        act();
        // If unlocking fails, closing the file unlocks the byte; until then the number is not used
        // again.
        let _ = os::lock_byte(file, byte, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_a_forked_child_inherits_keeps_no_member_alive() {
        let path = std::env::temp_dir().join(format!("pellucid-map-lock-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let data = std::env::temp_dir().metadata().unwrap();
        let open = |data| FileSpace::open(&path, HEAD_SIZE as usize / 8 + 1024, data, true).unwrap();
        let (mut dead, other) = (open(Some(&data)), open(None));
        assert!(!other.if_gone(dead.member, &mut || {}), "it lives");
        // As after a death: the descriptor is closed, the lock was not released, and a child has
        // the map.
        let member = dead.member;
        dead.file.close_as_if_killed();
        std::mem::forget(dead);
        assert!(other.if_gone(member, &mut || {}));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_of_which_every_other_chunk_is_used_has_no_hole() {
        let path = std::env::temp_dir().join(format!("pellucid-map-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let chunk_words = CHUNK_SIZE / 8;
        let head_words = HEAD_SIZE as usize / 8;
        let data = std::env::temp_dir().metadata().unwrap();
        let space = FileSpace::open(&path, head_words + 64 * chunk_words, Some(&data), true).unwrap();
        for chunk in (0..64).step_by(2) {
            let start = head_words + chunk * chunk_words;
            space.reserve(start..start + chunk_words, chunk % 4 == 0).unwrap();
            space.words()[start].store(1, Ordering::Relaxed);
            let metadata = std::fs::metadata(&path).unwrap();
            assert!(metadata.blocks() * 512 >= metadata.len(), "chunk {chunk}: a hole is a piece of its own");
            assert!(
                metadata.len() <= HEAD_SIZE + 2 * (chunk as u64 + 1) * CHUNK_SIZE as u64,
                "a short log is a short file"
            );
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn to_prepare_a_chunk_changes_nothing_in_it() {
        let path = std::env::temp_dir().join(format!("pellucid-prepared-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (head_words, chunk_words) = (HEAD_SIZE as usize / 8, CHUNK_SIZE / 8);
        let data = std::env::temp_dir().metadata().unwrap();
        let open = |creates: bool| {
            let creates_for = creates.then_some(&data);
            FileSpace::open(&path, head_words + 8 * chunk_words, creates_for, true).unwrap()
        };
        let (one, other) = (open(true), open(false));
        let words_of = |chunk| head_words + chunk * chunk_words..head_words + (chunk + 1) * chunk_words;
        for chunk in 0..8 {
            let words = words_of(chunk);
            let (first, last) = (words.start, words.end - 1);
            if chunk % 2 == 0 {
                one.prepare(words.clone());
            } else {
                other.reserve(words.clone(), false).unwrap();
            }
            other.words()[first].store(7, Ordering::Relaxed);
            other.words()[last].store(8, Ordering::Relaxed);
            one.prepare(words.clone());
            one.reserve(words.clone(), true).unwrap();
            assert!(one.is_ready(words.clone()));
            other.reserve(words, false).unwrap();
            let found = [first, last].map(|word| one.words()[word].load(Ordering::Relaxed));
            assert_eq!(found, [7, 8], "chunk {chunk}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
