//! The layout of the log: its head, the heads of its two segments, and the WAL records.
//!
//! ```text
//! word 0       magic            8     sequence, the last acknowledged WAL record: readers poll it
//! word 1       format           16    tail, the position after it
//!                               17    active, the segment that is appended to
//!                               18    1 when WAL records were found after a death, until the
//!                                     segment is sealed
//!                               19    punched, twice the number of times that room was given back;
//!                                     odd while that is done
//! word 2       identity         24    writer, the member that holds the writer lock, or 0
//!                               25    wanted, a member that waits for it
//!                               26    watched, the bell of commits: see `sys/bell.rs`
//!                               32    applied, the position up to which the tree has
//!                                     everything: a hint
//!                               40    synced, the position up to which the log is on the disk
//!                               41    failed: not 0 after a sync failed, until the database is
//!                                     opened anew, see `Unsynced`
//!                               42 to 47, the syncer and those that wait for it: see `sync.rs`
//!                               48    the member that writes the tree, or 0
//!                               56 on, pages for large values: see `extents.rs`
//! word 3       token, which the data file is marked by
//! word 4       the PID namespace of the log's creator
//! word 5       unsynced_file: the data file's inode until the new file has been synced, then 0
//! word 6       u32 size of a segment, u32 low half of its hash
//! word 7       lost: how many acknowledged WAL records were lost, until a writer was told
//! word 33      1: no tree is ahead of what the disk has of the head, see `sync_head`
//! word 512     segment 0: begin, salt, check; 520  segment 1; 524 on: see `budget.rs`
//! word 1,024   u32 PID and u32 number of its PID namespace, of the members 0 to 4,095
//! word 5,120   WAL records, in chunks of 64 KiB that belong to segment 0 and 1 in turn
//! ```
//!
//! The segments' chunks alternate so that a short log is a short file, whichever segment is in use.
//!
//! Positions count bytes over the whole life of the database. Words are little-endian on disk. A
//! big-endian machine would have to convert them, and refuses a log instead.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::Thread;
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::catalog::{Applied, POSITION_MAX};
use crate::engine::{Engine, Extents, FileSize, TreeFile};
use crate::sys::latch::Latch;
use crate::sys::os;
use crate::sys::steps::{Step, reached};
use crate::sys::words::Words;
use crate::wal::budget::Budget;
#[cfg(test)]
use crate::wal::death;
use crate::wal::lock::Held;
use crate::wal::room::Room;
use crate::wal::space::Space;
use crate::wal::sync::Pace;

/// "pelluLOG"
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"pelluLOG");
pub(crate) const FORMAT: u64 = 2;
/// The format of logs without extents of large values (`extents.rs`).
const FORMAT_OLD: u64 = 1;
const TOKEN: usize = 3;
const UNSYNCED_FILE: usize = 5;
const SEGMENT_SIZE: usize = 6;
pub(super) const LOST: usize = 7;
const SEQUENCE: usize = 8;
pub(super) const TAIL: usize = 16;
const ACTIVE: usize = 17;
const FOUND: usize = 18;
pub(crate) const PUNCHED: usize = 19;
pub(super) const WRITER: usize = 24;
const WANTED: usize = 25;
pub(super) const WATCHED: usize = 26;
const APPLIED: usize = 32;
pub(super) const ORDERED: usize = 33;
pub(super) const SYNCED: usize = 40;
pub(super) const FAILED: usize = 41;
pub(super) const SYNCER: usize = 42;
pub(super) const ROUND: usize = 43;
pub(super) const COVERED: usize = 44;
pub(super) const ARRIVED: usize = 45;
pub(super) const SERVED: usize = 46;
pub(super) const EXPECTED: usize = 47;
const TREE_WRITER: usize = 48;
const SEGMENT_HEADS: [usize; 2] = [512, 520];
const MEMBERS: usize = 1024;
const HEAD_WORDS: usize = 5120;
const CHUNK_WORDS: usize = 8192;

/// The head and the two segments of a log.
pub(crate) struct Segments {
    space: Box<dyn Space>,
    words: Arc<Words>,
    readable: usize,
    seed: u64,
    /// Words of a segment at most, and of each of its chunks.
    segment_words: usize,
    chunk_words: usize,
    pub(super) budget: Budget,
    pub(super) pace: Pace,
    /// Whether this process's last sync was for a commit (`SyncScope::Commits`), not of the whole
    /// log.
    pub(super) is_synced_often: AtomicBool,
    /// The sequence number of the log when this process last released the writer lock.
    pub(super) left_at: AtomicU64,
    /// The position after the last WAL record that this process acknowledged.
    pub(super) own_end: AtomicU64,
    /// The number, from 1 on, of the chunk that was last written to, in the lower half; all of it
    /// is reserved. The upper half has `punched` at that time. Asking the space about each WAL
    /// record took as long as writing one.
    chunk: AtomicU64,
    pub(super) room: Room,
    /// The thread that prepares chunks before they are written to.
    checkpointer: Latch<Option<Thread>>,
    /// The data file, which has the large values of WAL records.
    extents: Option<Arc<dyn Extents>>,
    /// Whether it is a copy in this process's memory: no other process appends to it, and what
    /// others commit is only in the tree.
    pub(crate) is_copy: bool,
}

/// The position at which a segment begins, and the salt that seeds its first WAL record's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) begin: u64,
    pub(crate) salt: u64,
}

/// The size in words of a log with segments of this many bytes.
pub(crate) const fn words_for(segment_size: usize) -> usize {
    HEAD_WORDS + 2 * (segment_size / 8)
}

/// The word in the head that holds the size of the segments: the size, and the low half of its
/// hash, since a damaged size would hide commits.
fn segment_size_word(segment_size: usize) -> u64 {
    let size = segment_size as u64;
    size | xxh3_64_with_seed(&size.to_le_bytes(), MAGIC) << 32
}

/// The size in such a word. `None` if the hash does not match.
pub(crate) fn segment_size_of(word: u64) -> Option<usize> {
    let size = (word & u64::from(u32::MAX)) as usize;
    (size != 0 && size.is_multiple_of(8) && word == segment_size_word(size)).then_some(size)
}

/// Why a log is not this database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Nothing was written yet.
    Empty,
    /// It is no log, or its head is damaged.
    NoLog,
    /// A newer version of the format.
    Newer(u16),
    /// The log of another database.
    Identity,
}

impl Segments {
    /// The log in a space, for the database with this identity.
    pub(crate) fn new(space: Box<dyn Space>, identity: [u8; 16]) -> Self {
        let (words, readable) = (Arc::clone(space.words()), space.readable());
        let segment_words = space.capacity().saturating_sub(HEAD_WORDS) / 2;
        let chunk_words = CHUNK_WORDS.min(segment_words);
        Self {
            space,
            words,
            readable,
            seed: xxh3_64_with_seed(&identity, MAGIC),
            segment_words,
            chunk_words,
            budget: Budget::default(),
            pace: Pace::default(),
            is_synced_often: AtomicBool::new(false),
            left_at: AtomicU64::new(u64::MAX),
            own_end: AtomicU64::new(0),
            chunk: AtomicU64::new(0),
            room: Room::default(),
            checkpointer: Latch::new(None),
            extents: None,
            is_copy: false,
        }
    }

    /// The same, over the tree of this engine.
    pub(crate) fn over(mut self, tree: &dyn Engine) -> Self {
        self.extents = tree.tree_file().and_then(TreeFile::extents);
        self
    }

    /// The data file, if large values can be written to it ahead of their commit.
    pub(crate) fn extents(&self) -> Option<&Arc<dyn Extents>> {
        self.extents.as_ref()
    }

    /// Whether all members of the log know of extents.
    pub(crate) fn may_have_extents(&self) -> bool {
        self.load(1) == FORMAT
    }

    /// Have the log be of the newest format. The caller is alone with it.
    pub(crate) fn renew_format(&self) {
        self.store(1, FORMAT);
    }

    /// The log in a space, of any database. `None` if it is no log.
    pub(crate) fn of_any(space: Box<dyn Space>) -> Option<Self> {
        let mut segments = Self::new(space, [0; 16]);
        segments.seed = segments.load(2);
        matches!((segments.load(0), segments.load(1)), (MAGIC, FORMAT_OLD | FORMAT)).then_some(segments)
    }

    /// Check that the log is this database's. A process that is alone with it also restores the
    /// first words if a power cut took their page.
    pub(crate) fn identify(&self, is_alone: bool) -> Result<(), Foreign> {
        match (self.load(0), self.load(1), self.load(2)) {
            // The page with the first words is lost. The segments' heads, on another page, are
            // sealed with the database's identity.
            (0, _, _) if is_alone && [0, 1].into_iter().any(|segment| self.head(segment).is_some()) => {
                self.store(1, FORMAT);
                self.store(2, self.seed);
                self.word(0).store(MAGIC, Ordering::Release);
                Ok(())
            }
            (0, _, _) => Err(Foreign::Empty),
            (MAGIC, FORMAT_OLD | FORMAT, seed) if seed == self.seed => Ok(()),
            (MAGIC, FORMAT_OLD | FORMAT, _) => Err(Foreign::Identity),
            (MAGIC, format, _) => match u16::try_from(format) {
                Ok(format) if u64::from(format) > FORMAT => Err(Foreign::Newer(format)),
                _ => Err(Foreign::NoLog),
            },
            _ => Err(Foreign::NoLog),
        }
    }

    /// Whether nothing was ever written to the log.
    pub(crate) fn is_new(&self) -> bool {
        self.load(0) == 0 && [0, 1].into_iter().all(|segment| self.head(segment).is_none())
    }

    /// Create an empty log that begins at a position. `unsynced_file` is the inode of the data file
    /// if that has not been synced yet, else 0. No other process may have the log.
    pub(crate) fn create(&self, position: u64, sequence: u64, unsynced_file: u64) -> std::io::Result<()> {
        self.space.reserve(0..HEAD_WORDS, true)?;
        self.store(1, FORMAT);
        self.store(2, self.seed);
        self.store(WRITER, 0);
        self.store(WANTED, 0);
        self.store(TREE_WRITER, 0);
        self.store(4, 0);
        self.store(SEGMENT_SIZE, segment_size_word(self.segment_words * 8));
        self.set_unsynced_file(unsynced_file);
        self.store(ACTIVE, 0);
        self.store(FOUND, 0);
        self.store(LOST, 0);
        self.store(ORDERED, 1);
        self.store(APPLIED, position);
        self.store(SYNCED, position);
        self.store(FAILED, 0);
        self.begin_syncing();
        let alone = Held::alone();
        self.begin_segment(&alone, 0, position);
        // As unique as a salt, so that no other log has it.
        self.store(TOKEN, self.load(Self::head_at(0) + 1));
        self.publish(&alone, position, sequence);
        reached(Step::LogCreates);
        self.word(0).store(MAGIC, Ordering::Release);
        Ok(())
    }

    /// Begin a segment anew: its old content holds no valid WAL record from now on.
    pub(crate) fn begin_segment(&self, _held: &Held, segment: usize, begin: u64) {
        let at = Self::head_at(segment);
        // A new salt each time, even if a power cut took the previous header. Otherwise the old
        // content could continue the new chain if the same commits were made again.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let parts = [begin, now, u64::from(std::process::id()), self.load(at + 1)].map(u64::to_le_bytes);
        let salt = xxh3_64_with_seed(&parts.concat(), self.seed).max(1);
        // Readers of the old content check the salt last.
        self.store(at + 1, salt);
        fence(Ordering::Release);
        self.store(at, begin);
        self.store(at + 2, self.check_of(begin, salt));
    }

    /// Have a copy go on after what the tree has, as after a bulk commit.
    pub(crate) fn go_on_after(&self, applied: Applied) {
        let alone = Held::alone();
        self.begin_segment(&alone, self.active(), applied.position);
        self.set_applied(applied.position);
        self.publish(&alone, applied.position, applied.sequence);
    }

    /// Clear a segment's head: its old content must not continue another segment that ends where
    /// this one began.
    pub(crate) fn forget_segment(&self, _held: &Held, segment: usize) {
        let at = Self::head_at(segment);
        self.store(at + 1, 0);
        fence(Ordering::Release);
        self.store(at, 0);
        self.store(at + 2, 0);
    }

    fn check_of(&self, begin: u64, salt: u64) -> u64 {
        xxh3_64_with_seed(&[begin.to_le_bytes(), salt.to_le_bytes()].concat(), self.seed)
    }

    /// The head of a segment. `None` if it was never begun, is damaged, or is just being begun.
    pub(crate) fn head(&self, segment: usize) -> Option<SegmentHead> {
        let at = Self::head_at(segment);
        let (begin, salt) = (self.load(at), self.load(at + 1));
        let is_sound = salt != 0 && begin <= POSITION_MAX && self.load(at + 2) == self.check_of(begin, salt);
        is_sound.then_some(SegmentHead { begin, salt })
    }

    /// Whether a segment still has the head that was read.
    #[inline]
    pub(crate) fn is_begun_as(&self, segment: usize, head: SegmentHead) -> bool {
        let at = Self::head_at(segment);
        self.load(at) == head.begin && self.load(at + 1) == head.salt
    }

    /// The position at which a segment begins, for a segment whose head is known to be sound.
    pub(crate) fn begin_of(&self, segment: usize) -> u64 {
        self.load(Self::head_at(segment))
    }

    /// Whether a segment's head holds something that is not a valid head.
    pub(crate) fn is_head_damaged(&self, segment: usize) -> bool {
        let at = Self::head_at(segment);
        self.head(segment).is_none() && (at..at + 3).any(|index| self.load(index) != 0)
    }

    /// How many bytes a segment can have at most.
    pub(crate) fn capacity(&self) -> u64 {
        self.segment_words as u64 * 8
    }

    /// The words that may be read in memory.
    #[inline]
    pub(super) fn readable(&self) -> &[AtomicU64] {
        self.words.get(..self.readable).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn words_mapped(&self) -> usize {
        self.words.len()
    }

    /// How many bytes a segment may have at present.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        self.budget.limit().min(self.capacity())
    }

    /// Write a WAL record at a position, without publishing it.
    #[inline]
    pub(crate) fn write(
        &self,
        segment: usize,
        head: SegmentHead,
        position: u64,
        bytes: &[u8],
    ) -> std::io::Result<()> {
        let offset = (position - head.begin) as usize / 8;
        let words = offset..offset + bytes.len() / 8;
        debug_assert!(words.end <= self.segment_words, "the caller has checked for room");
        let (number, place) = self.chunk_of(offset);
        let chunk = 2 * number + segment;
        if place + bytes.len() / 8 <= self.chunk_words {
            // Nearly every WAL record is in one chunk.
            if self.chunk.load(Ordering::Relaxed) != self.stamp_of(chunk) {
                self.check_room(bytes)?;
                self.reserve_chunk(chunk)?;
            }
            let start = HEAD_WORDS + chunk * self.chunk_words + place;
            return self.write_part(start..start + bytes.len() / 8, bytes, self.is_clean(position));
        }
        self.check_room(bytes)?;
        self.write_parts(segment, words, bytes)
    }

    /// Check that the disk has room for what is pending and for a WAL record that begins another
    /// chunk.
    #[cold]
    fn check_room(&self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(free) = self.space.disk_room() else { return Ok(()) };
        let pending = self.tail().saturating_sub(self.applied());
        self.room.check(free, pending, self.chunk_words as u64 * 8, bytes)
    }

    /// Check that the disk has room for a bulk commit that adds rows, and for deletes after it.
    pub(crate) fn check_room_of_bulk(&self, size: FileSize) -> std::io::Result<()> {
        let Some(free) = self.space.disk_room() else { return Ok(()) };
        Room::check_bulk(free, self.chunk_words as u64 * 8, size)
    }

    /// Whether commits in a chunk wait for the disk one by one, or may do so: that is not known yet
    /// for the first chunks.
    fn has_small_pages(&self, chunk: usize) -> bool {
        chunk < 2 || self.is_synced_often.load(Ordering::Relaxed)
    }

    /// What `chunk` is while this chunk is the last one.
    #[inline]
    fn stamp_of(&self, chunk: usize) -> u64 {
        (chunk as u64 + 1) | self.load(PUNCHED) << 32
    }

    #[cold]
    fn reserve_chunk(&self, chunk: usize) -> std::io::Result<()> {
        self.space.reserve(self.words_of(chunk), self.has_small_pages(chunk))?;
        reached(Step::LogGrown);
        self.chunk.store(self.stamp_of(chunk), Ordering::Relaxed);
        // Wake the checkpointer early, and not for each chunk: waking a thread costs a fifth of
        // what it saves.
        let ahead = self.chunks_ahead();
        if ahead.get(ahead.len() / 2).is_some_and(|chunk| !self.is_ready(*chunk))
            && let Some(checkpointer) = self.checkpointer.try_lock()
            && let Some(checkpointer) = &*checkpointer
        {
            checkpointer.unpark();
        }
        Ok(())
    }

    /// The words of a chunk. The last chunk of a segment may be shorter.
    fn words_of(&self, chunk: usize) -> Range<usize> {
        let start = HEAD_WORDS + chunk * self.chunk_words;
        start..(start + self.chunk_words).min(HEAD_WORDS + 2 * self.segment_words)
    }

    fn is_ready(&self, chunk: usize) -> bool {
        self.space.is_ready(self.words_of(chunk))
    }

    /// The chunks that will be written to next: as many as the segment has used so far, up to a
    /// maximum. None if the log's room was given back since, or if commits wait for the disk one by
    /// one: that takes longer than to prepare a chunk, and wants small pages.
    fn chunks_ahead(&self) -> Vec<usize> {
        const AHEAD_MAX: usize = 8;
        let stamp = self.chunk.load(Ordering::Relaxed);
        let last = ((stamp & u64::from(u32::MAX)) as usize).checked_sub(1);
        // After room was given back, it is not known where the next writer goes on.
        let Some(last) = last.filter(|last| self.stamp_of(*last) == stamp) else { return Vec::new() };
        let ahead = if self.has_small_pages(last) { 0 } else { (last / 2).min(AHEAD_MAX) };
        let is_there = |chunk: &usize| self.words_of(*chunk).start < self.words.len();
        (1..=ahead).map(|number| last + 2 * number).take_while(is_there).collect()
    }

    /// Prepare one chunk that is written to soon. False if there is none to prepare.
    pub(crate) fn prepare(&self) -> bool {
        let next = self.chunks_ahead().into_iter().find(|chunk| !self.is_ready(*chunk));
        let Some(chunk) = next else { return false };
        self.space.prepare(self.words_of(chunk));
        // False as well if the disk has no room for it.
        self.is_ready(chunk)
    }

    /// Have the checkpointer look now.
    pub(crate) fn wake_checkpointer(&self) {
        if let Some(checkpointer) = self.checkpointer.try_lock()
            && let Some(checkpointer) = &*checkpointer
        {
            checkpointer.unpark();
        }
    }

    /// Set or clear the thread that prepares chunks.
    pub(crate) fn set_checkpointer(&self, checkpointer: Option<Thread>) {
        *self.checkpointer.lock() = checkpointer;
    }

    /// Reserve this many bytes at the begin of a segment.
    pub(crate) fn reserve_begin(&self, segment: usize, size: usize) -> std::io::Result<()> {
        for part in self.parts(segment, 0..size.div_ceil(8).min(self.segment_words)) {
            self.space.reserve(part, true)?;
        }
        Ok(())
    }

    fn write_parts(&self, segment: usize, words: Range<usize>, bytes: &[u8]) -> std::io::Result<()> {
        for part in self.parts(segment, words.clone()) {
            let chunk = part.start.saturating_sub(HEAD_WORDS) / self.chunk_words;
            self.space.reserve(part, self.has_small_pages(chunk))?;
        }
        let mut rest = bytes;
        for part in self.parts(segment, words) {
            let (here, behind) = rest.split_at_checked(part.len() * 8).unwrap_or((rest, &[]));
            self.write_part(part, here, false)?;
            rest = behind;
        }
        Ok(())
    }

    /// Whether the page at a position was probably written to the disk since the last store into
    /// it: true if commits wait for the disk one by one.
    #[inline]
    fn is_clean(&self, position: u64) -> bool {
        const UNSYNCED_MAX: u64 = 16 << 10;
        self.is_synced_often.load(Ordering::Relaxed)
            && position.saturating_sub(self.load(SYNCED)) <= UNSYNCED_MAX
    }

    #[inline]
    fn write_part(&self, part: Range<usize>, bytes: &[u8], is_clean: bool) -> std::io::Result<()> {
        if is_clean && self.space.write(part.start, bytes)? {
            return Ok(());
        }
        let Some(words) = self.words.get(part.clone()) else {
            // The map ends before.
            let is_written = self.space.write(part.start, bytes)?;
            return if is_written { Ok(()) } else { Err(std::io::ErrorKind::OutOfMemory.into()) };
        };
        for (word, chunk) in words.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        Ok(())
    }

    /// [W1] Acknowledge what was written up to a position.
    pub(crate) fn publish(&self, _held: &Held, tail: u64, sequence: u64) {
        // A release store as well: a syncing process reads `tail` alone.
        Self::step();
        self.word(TAIL).store(tail, Ordering::Release);
        reached(Step::TailStored);
        Self::step();
        self.word(SEQUENCE).store(sequence, Ordering::Release);
        self.own_end.store(tail, Ordering::Relaxed);
    }

    /// The last acknowledged WAL record.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.word(SEQUENCE).load(Ordering::Acquire)
    }

    /// The position after the last acknowledged WAL record. Exact for the holder of the writer
    /// lock.
    pub(crate) fn tail(&self) -> u64 {
        self.load(TAIL)
    }

    /// The segment that is appended to.
    pub(crate) fn active(&self) -> usize {
        (self.word(ACTIVE).load(Ordering::Acquire) & 1) as usize
    }

    pub(crate) fn set_active(&self, _held: &Held, segment: usize) {
        Self::step();
        self.word(ACTIVE).store(segment as u64, Ordering::Release);
    }

    /// Whether WAL records were found after a death in the active segment. Others that were never
    /// acknowledged may stand after them, so the segment is sealed before anything is appended.
    pub(crate) fn has_found(&self) -> bool {
        self.load(FOUND) != 0
    }

    pub(crate) fn set_found(&self, _held: &Held, has_found: bool) {
        self.store(FOUND, u64::from(has_found));
    }

    /// The position up to which a committed tree has everything. A later tree may have more.
    pub(crate) fn applied(&self) -> u64 {
        self.word(APPLIED).load(Ordering::Acquire)
    }

    /// Set `applied`, and treat nothing after it as synced. The caller is alone with the log.
    pub(crate) fn begin_counting(&self, position: u64) {
        self.store(APPLIED, position);
        self.store(SYNCED, position);
        self.begin_syncing();
    }

    pub(crate) fn set_applied(&self, position: u64) {
        self.word(APPLIED).fetch_max(position, Ordering::AcqRel);
        self.room.forget();
        // The tree is on the disk, so these WAL records no longer have to be.
        self.word(SYNCED).fetch_max(position, Ordering::AcqRel);
    }

    /// Identifies this log among others of the same database.
    pub(crate) fn token(&self) -> u64 {
        self.load(TOKEN)
    }

    /// Restore the token from the data file, if a power cut took it.
    pub(crate) fn set_token(&self, token: u64) {
        self.store(TOKEN, token);
    }

    /// Whether the newly created data file has not been synced yet.
    #[inline]
    pub(crate) fn has_unsynced_file(&self) -> bool {
        self.word(UNSYNCED_FILE).load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_unsynced_file(&self, unsynced_file: u64) {
        Self::step();
        self.word(UNSYNCED_FILE).store(unsynced_file, Ordering::Release);
    }

    /// The word of the writer lock.
    pub(crate) fn writer(&self) -> &AtomicU64 {
        self.word(WRITER)
    }

    /// The word in which a waiter for the writer lock puts its number.
    pub(crate) fn wanted(&self) -> &AtomicU64 {
        self.word(WANTED)
    }

    /// The word of the bell that commits ring.
    pub(crate) fn watched(&self) -> &AtomicU64 {
        self.word(WATCHED)
    }

    /// Set the holder of the writer lock. The caller is alone with the log.
    pub(crate) fn set_writer(&self, member: u64) {
        self.store(WRITER, member);
    }

    /// Set the holder of the tree lock. The caller is alone with the log.
    pub(crate) fn set_tree_writer(&self, member: u64) {
        self.store(TREE_WRITER, member);
    }

    /// The word of the tree lock.
    pub(crate) fn tree_writer(&self) -> &AtomicU64 {
        self.word(TREE_WRITER)
    }

    /// Store this process's PID in the member table.
    pub(crate) fn introduce(&self) {
        let member = self.space.member() as usize;
        if member < HEAD_WORDS - MEMBERS {
            self.store(
                MEMBERS + member,
                u64::from(std::process::id()) | u64::from(os::pid_namespace()) << 32,
            );
        }
    }

    /// The process that holds the writer lock. 0 if it is in another PID namespace, in which its
    /// PID has no meaning here.
    pub(crate) fn writer_pid(&self) -> Option<u32> {
        self.pid_in(WRITER)
    }

    /// The process that writes the tree.
    pub(crate) fn tree_writer_pid(&self) -> Option<u32> {
        self.pid_in(TREE_WRITER)
    }

    fn pid_in(&self, word: usize) -> Option<u32> {
        let member = usize::try_from(self.load(word)).ok().filter(|member| *member != 0)?;
        let word = (member < HEAD_WORDS - MEMBERS).then(|| self.load(MEMBERS + member))?;
        let (pid, namespace) = (word as u32, (word >> 32) as u32);
        let own = if namespace == 0 { 0 } else { os::pid_namespace() };
        if own != 0 && own != namespace { Some(0) } else { Some(pid).filter(|pid| *pid != 0) }
    }

    /// Store the PID namespace of the log's processes. True if another namespace stood there
    /// before.
    pub(crate) fn meet_namespace(&self, own: u64) -> bool {
        let noted = self.word(4).compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        noted.is_err_and(|noted| noted != own)
    }

    pub(crate) fn space(&self) -> &dyn Space {
        &*self.space
    }

    pub(crate) fn into_space(self) -> Box<dyn Space> {
        self.space
    }

    fn head_at(segment: usize) -> usize {
        let [first, second] = SEGMENT_HEADS;
        if segment == 0 { first } else { second }
    }

    /// The chunk of a segment that a word is in, and the word's index in that chunk.
    #[inline]
    fn chunk_of(&self, offset: usize) -> (usize, usize) {
        // The usual case, without a division: that takes as long as the rest of an append's
        // arithmetic.
        if self.chunk_words == CHUNK_WORDS {
            return (offset / CHUNK_WORDS, offset % CHUNK_WORDS);
        }
        (offset / self.chunk_words, offset % self.chunk_words)
    }

    /// The index in the log of a word of a segment.
    pub(super) fn word_at(&self, segment: usize, offset: usize) -> usize {
        let (chunk, rest) = self.chunk_of(offset);
        HEAD_WORDS + (2 * chunk + segment) * self.chunk_words + rest
    }

    /// How many words a log has in which each segment has this many bytes.
    pub(crate) fn words_until(&self, bytes: u64) -> usize {
        let words = usize::try_from(bytes.div_ceil(8)).unwrap_or(usize::MAX).min(self.segment_words);
        HEAD_WORDS + 2 * ((self.chunk_of(words).0 + 1) * self.chunk_words).min(self.segment_words)
    }

    /// Whether this process may write to the log.
    pub(crate) fn is_of_member(&self) -> bool {
        self.space().member() != u64::MAX
    }

    /// How many bytes each segment can have in a log of this many words: a chunk at least, so that
    /// what was there is missed where a file has nothing but its head.
    pub(crate) fn bytes_within(&self, words: usize) -> u64 {
        let words = words.saturating_sub(HEAD_WORDS).div_ceil(2).max(1).next_multiple_of(self.chunk_words);
        words.min(self.segment_words) as u64 * 8
    }

    /// Some words of a segment, split into the parts that lie in one chunk each.
    pub(super) fn parts(
        &self,
        segment: usize,
        words: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = words.start;
        std::iter::from_fn(move || {
            if at >= words.end {
                return None;
            }
            let end = words.end.min((at / self.chunk_words + 1) * self.chunk_words);
            let start = self.word_at(segment, at);
            let part = start..start + (end - at);
            at = end;
            Some(part)
        })
    }

    /// One step of a process on the log. A test can make the process die before it.
    #[inline]
    fn step() {
        #[cfg(test)]
        death::step();
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        // A space has at least a head and two segments, so this index is in it.
        self.words.get(index).unwrap_or(&NOWHERE)
    }

    #[inline]
    pub(super) fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn store(&self, index: usize, value: u64) {
        Self::step();
        self.word(index).store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::wal::log_file::FileSpace;

    #[test]
    fn a_log_keeps_the_size_that_its_first_opener_gave_it() {
        const USUAL: usize = 1 << 20;
        let folder = std::env::temp_dir().join(format!("pellucid-sizes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("sized.pel-log");
        let file = File::create(&path).unwrap();
        let create =
            |size| FileSpace::open(&path, words_for(size), Some(&file.metadata().unwrap()), true).unwrap();
        let first = Segments::new(Box::new(create(1 << 16)), [7; 16]);
        first.create(0, 0, 0).unwrap();
        assert_eq!(
            FileSpace::open(&path, words_for(USUAL), None, true).unwrap().words().len(),
            words_for(1 << 16)
        );
        // A size that a fault has changed is not trusted.
        File::options().write(true).open(&path).unwrap().write_all_at(&[1], 49).unwrap();
        assert_eq!(
            FileSpace::open(&path, words_for(USUAL), None, true).unwrap().words().len(),
            words_for(USUAL)
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
