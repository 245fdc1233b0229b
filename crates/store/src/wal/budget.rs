//! How long the log may be: as long as the write load, the tree and the memory of the writers
//! allow.
//!
//! A checkpoint of few commits rewrites a page of the tree for almost each row, one of many
//! rewrites it once for several rows. So a segment may grow to a few times the size of the tree.
//! Each process also has the content of both segments in memtables. So both together take at most
//! the least `memory=` of the processes that write. The free disk limits them, too.
//!
//! Beside an older snapshot the file has several versions of each page that checkpoints change. So
//! that file and log together stay small, a segment is then limited to a part of the file.
//!
//! The limit is this process's alone, and a hint: processes that disagree only run their
//! checkpoints at other moments. What a segment can hold at most is in the log's head.
//!
//! ```text
//! word 524 on  a byte for each member, from 1 to 4,000: 0, or the memory that it may take if it
//!              writes, in steps of an eighth of a power of two
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::TreeFile;
use crate::sys::{cgroup, memory};
use crate::wal::lock::Held;
use crate::wal::memtable::Memtable;
use crate::wal::segments::{Segments, words_for};
use crate::wal::space::MEMBER_MAX;

/// The memory that a process gives to its memtables without `memory=`.
pub const MEMORY_USUAL: u64 = 256 << 20;
/// The least that `memory=` can give.
pub const MEMORY_MIN: u64 = 8 << 20;
/// What a segment may have over any tree. More than that depends on the tree and the disk.
pub(crate) const SIZE_USUAL: u64 = 32 << 20;
/// If a segment is this many times as large as the tree, a checkpoint rewrites each page once. A
/// larger segment would save nothing.
const TREE_SHARE: u64 = 4;
/// The part of the file that a segment may have beside an older snapshot, and how old this is.
const HELD_SHARE: u64 = 8;
const HELD_AGE: Duration = Duration::from_secs(2);
/// The share of the free disk that a segment may take.
const DISK_SHARE: u64 = 8;
/// A checkpoint of a full segment is to take no longer: a writer that is faster than the disk waits
/// for it.
const CHECKPOINT_TIME: Duration = Duration::from_secs(5);
/// But a segment may always have this much: in a shorter one, each commit of 100,000 scattered rows
/// would go into the tree by itself (`wal_record_size_wide`), while the writer waits, and no later
/// checkpoint would tell that the disk is faster again. Commits of more than 32 MiB do so still.
const TIMELY_MIN: u64 = 2 * SIZE_USUAL;
/// Checkpoints of fewer bytes say little about how long larger ones take.
const TIMED_SIZE: u64 = 16 << 20;
/// The share of a limited address space that memtables may take: the pages that a checkpoint
/// changes take several times as much.
const ADDRESS_SHARE: u64 = 16;
/// The share of a container's memory that memtables may take. The pages that a checkpoint changes
/// take half as much (`engine/lmdb/txn.rs`), and the program and the system's cache need the rest.
const CONTAINER_SHARE: u64 = 8;
/// How many bytes a memtable takes for 16 bytes of WAL records: at first, at least, and at most.
const WEIGHT_FIRST: u32 = 20;
const WEIGHT_MIN: u32 = 17;
const WEIGHT_MAX: u32 = 64;
/// Memtables with fewer bytes of WAL records say little about later ones.
const WEIGHED_SIZE: u64 = 4 << 20;

/// The room that a log keeps when nothing was written for a while: a share of the tree.
const REST_SHARE: u64 = 32;
const REST_MIN: u64 = 2 << 20;
const REST_MAX: u64 = 16 << 20;

/// The room that the log of a tree of this many bytes keeps when nothing was written for a while.
pub(crate) fn size_at_rest(tree_size: u64) -> u64 {
    (tree_size / REST_SHARE).clamp(REST_MIN, REST_MAX) / REST_MIN * REST_MIN
}

/// The first word of the members' memory, and how many members are in a word.
const SHARES: usize = 524;
const PER_WORD: u64 = 8;
const WORD_COUNT: usize = MEMBER_MAX.div_ceil(PER_WORD) as usize;

/// What this process knows about the log's limit.
pub(crate) struct Budget {
    /// Its own memory.
    memory: AtomicU64,
    /// The least memory of the processes that write.
    least: AtomicU64,
    /// Bytes of WAL records that a segment may have at present.
    limit: AtomicU64,
    weight: AtomicU32,
    /// Bytes of WAL records that a checkpoint writes in its time. `u64::MAX` if unknown.
    timely: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            memory: AtomicU64::new(MEMORY_USUAL),
            least: AtomicU64::new(MEMORY_USUAL),
            limit: AtomicU64::new(SIZE_USUAL),
            weight: AtomicU32::new(WEIGHT_FIRST),
            timely: AtomicU64::new(u64::MAX),
        }
    }
}

/// The byte for an amount of memory, rounded down.
fn byte_of(memory: u64) -> u8 {
    let memory = memory.clamp(1 << 20, 1 << 50);
    let power = memory.ilog2() - 20;
    (1 + 8 * power + ((memory >> (17 + power)) & 7) as u32) as u8
}

/// The memory that a byte stands for. `None` if its member does not write.
fn memory_of(byte: u8) -> Option<u64> {
    let eighths = u64::from(byte.checked_sub(1)?);
    Some((8 + eighths % 8) << (17 + eighths / 8))
}

/// Where the byte of a member is: the word, and how far to shift it.
fn place_of(member: u64) -> Option<(usize, u64)> {
    let number = member.checked_sub(1).filter(|number| *number < MEMBER_MAX)?;
    Some((SHARES + (number / PER_WORD) as usize, number % PER_WORD * 8))
}

impl Budget {
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

impl Segments {
    /// Set how much memory this process may take for its memtables. With a limit on the address
    /// space, or in a container, it may have less. A process with less than usual shows that even
    /// if it never writes: it has the memtables of all writers.
    pub(crate) fn set_memory(&self, memory: u64) {
        let most = memory::address_room().map_or(u64::MAX, |room| room / ADDRESS_SHARE);
        let given = cgroup::at_most(memory.min(most), CONTAINER_SHARE).max(MEMORY_MIN);
        self.budget.memory.store(given, Ordering::Relaxed);
        self.budget.least.store(given, Ordering::Relaxed);
        if given < MEMORY_USUAL {
            self.show_memory(true);
        }
        self.fit(0, false);
    }

    /// Show the other processes that this one writes, or no longer writes.
    pub(crate) fn show_memory(&self, writes: bool) {
        let byte = if writes { byte_of(self.budget.memory.load(Ordering::Relaxed)) } else { 0 };
        self.set_memory_of(self.space().member(), byte);
    }

    fn set_memory_of(&self, member: u64, byte: u8) {
        let Some((word, shift)) = place_of(member) else { return };
        let with = |old: u64| Some(old & !(0xFF << shift) | u64::from(byte) << shift);
        let _ = self.word(word).fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Find out which of the processes that write has the least memory.
    pub(crate) fn learn_memory(&self) {
        let own = self.budget.memory.load(Ordering::Relaxed);
        let least = loop {
            let Some((member, memory)) = self.least_of_others().filter(|(_, memory)| *memory < own) else {
                break own;
            };
            // A dead process left it.
            if !self.space().if_gone(member, &mut || self.set_memory_of(member, 0)) {
                break memory;
            }
        };
        self.budget.least.store(least.max(MEMORY_MIN), Ordering::Relaxed);
    }

    fn least_of_others(&self) -> Option<(u64, u64)> {
        let own = self.space().member();
        let words = (SHARES..SHARES + WORD_COUNT).map(|word| self.load(word)).enumerate();
        let used = words.filter(|(_, word)| *word != 0);
        let bytes = used.flat_map(|(index, word)| {
            (1..).zip(word.to_le_bytes()).map(move |(at, byte)| (index as u64 * PER_WORD + at, byte))
        });
        let members = bytes.filter_map(|(member, byte)| Some((member, memory_of(byte)?)));
        members.filter(|(member, _)| *member != own).min_by_key(|(_, memory)| *memory)
    }

    /// Learn how much memory WAL records take, from a memtable with `size` bytes of them.
    pub(crate) fn weigh(&self, memtable: &Memtable, size: u64) {
        if size >= WEIGHED_SIZE {
            let weight = (memtable.memory() as u64).saturating_mul(16).div_ceil(size);
            let weight = weight.clamp(WEIGHT_MIN.into(), WEIGHT_MAX.into());
            self.budget.weight.store(weight as u32, Ordering::Relaxed);
        }
    }

    /// Learn how long a checkpoint of `size` bytes of WAL records took.
    pub(crate) fn time(&self, size: u64, took: Duration) {
        if size >= TIMED_SIZE {
            let timely = u128::from(size) * CHECKPOINT_TIME.as_micros() / took.as_micros().max(1);
            self.budget.timely.store(u64::try_from(timely).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// How much memory a part of a segment may take while that is written into the tree.
    pub(super) fn part_size(&self) -> u64 {
        self.budget.memory.load(Ordering::Relaxed)
    }

    /// Whether memtables of this many bytes of WAL records would take more memory than this process
    /// may take.
    pub(super) fn takes_too_much(&self, pending: u64) -> bool {
        (pending / 16).saturating_mul(WEIGHT_FIRST.into()) > self.budget.memory.load(Ordering::Relaxed)
    }

    /// Set the limit for a tree of this many bytes, which an older snapshot holds or not.
    pub(crate) fn fit(&self, tree_size: u64, is_held: bool) {
        let (least, weight) = (&self.budget.least, u64::from(self.budget.weight.load(Ordering::Relaxed)));
        let for_memory = (least.load(Ordering::Relaxed) / 2).saturating_mul(16) / weight.max(1);
        let share = if is_held { tree_size / HELD_SHARE } else { tree_size.saturating_mul(TREE_SHARE) };
        let mut wanted = share.max(SIZE_USUAL);
        if wanted > SIZE_USUAL {
            let free = self.space().disk_room().unwrap_or(u64::MAX);
            let timely = self.budget.timely.load(Ordering::Relaxed);
            wanted = wanted.min((free / DISK_SHARE).max(SIZE_USUAL)).min(timely.max(TIMELY_MIN));
        }
        let limit = wanted.min(for_memory).min(self.capacity()) / 8 * 8;
        self.budget.limit.store(limit, Ordering::Relaxed);
        self.room.bound(tree_size);
    }

    /// Give back the room after the first `size` bytes. There is no WAL record there that the tree
    /// lacks.
    pub(crate) fn shrink(&self, _held: &Held, size: u64) -> std::io::Result<()> {
        self.space().punch((size / 8) as usize..self.space().capacity())
    }

    /// Give back the room that neither segment needs at the present limit, which a snapshot may
    /// have made smaller. The caller has sealed a segment of `used` bytes; the other one is empty.
    pub(crate) fn shrink_to_limit(&self, held: &Held, used: u64) {
        const CHUNK: u64 = 64 << 10;
        let size = words_for(0) as u64 * 8 + 2 * (used.max(self.room()).next_multiple_of(CHUNK) + CHUNK);
        if self.space().size() > size + size / 4 {
            // Room that stays is given back at rest.
            let _ = self.shrink(held, size);
        }
    }

    /// Set the limit for a tree as it is now.
    pub(crate) fn fit_to(&self, tree: Option<&dyn TreeFile>) {
        // If it is not known, there is none.
        let oldest = tree.and_then(|tree| tree.oldest_reader().ok()).unwrap_or_default();
        self.fit(tree.map_or(0, TreeFile::size), oldest.lag > 0 && oldest.age >= HELD_AGE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::engine::Tree;
    use crate::sys::os;
    use crate::wal::checkpoint::{wal_record_size_max, wal_record_size_wide};
    use crate::wal::log_file::FileSpace;
    use crate::wal::record;
    use crate::wal::segments::PUNCHED;
    use crate::wal::space::MemorySpace;

    fn segments_of(capacity: usize) -> Segments {
        let segments = Segments::new(Box::new(MemorySpace::new(words_for(capacity))), [0; 16]);
        segments.create(0, 0, 0).unwrap();
        segments
    }

    #[test]
    fn memory_is_kept_in_a_byte_and_rounded_down() {
        for memory in [1 << 20, MEMORY_MIN, MEMORY_USUAL, 9 << 20, 15 << 30, 1 << 50] {
            assert_eq!(memory_of(byte_of(memory)), Some(memory));
        }
        for memory in [(8 << 20) + 1, 100 << 20, 12_345_678_901] {
            let kept = memory_of(byte_of(memory)).unwrap();
            assert!(kept <= memory && memory - kept <= memory / 8, "{memory}: {kept}");
        }
        assert_eq!((memory_of(0), byte_of(0), byte_of(u64::MAX)), (None, 1, byte_of(1 << 50)));
        assert!((1..=u8::MAX).all(|byte| memory_of(byte).is_some()), "no byte of a file is too much");
    }

    #[test]
    fn the_smallest_memory_of_the_living_limits_the_log() {
        let segments = segments_of(1 << 20);
        segments.set_memory(MEMORY_USUAL);
        let least = || {
            segments.learn_memory();
            segments.budget.least.load(Ordering::Relaxed)
        };
        segments.show_memory(true);
        assert_eq!(least(), MEMORY_USUAL, "its own");
        // A member that a `MemorySpace` takes for alive.
        segments.set_memory_of(9, byte_of(16 << 20));
        segments.set_memory_of(MEMBER_MAX, byte_of(64 << 20));
        assert_eq!(least(), 16 << 20);
        segments.set_memory_of(9, 0);
        assert_eq!(least(), 64 << 20);
        // More than its own does not matter, nor does less than any process may say.
        segments.set_memory_of(MEMBER_MAX, byte_of(1 << 40));
        assert_eq!(least(), MEMORY_USUAL);
        segments.set_memory_of(MEMBER_MAX, 1);
        assert_eq!(least(), MEMORY_MIN);
        for member in [0, MEMBER_MAX + 1, u64::MAX] {
            segments.set_memory_of(member, 1);
        }
    }

    #[test]
    fn a_segment_grows_with_the_tree_up_to_half_of_the_memory() {
        let segments = segments_of(8 << 20);
        let limit_of = |tree_size| {
            segments.fit(tree_size, false);
            segments.budget.limit()
        };
        assert_eq!(limit_of(1 << 40), 8 << 20, "it has no more");
        segments.set_memory(MEMORY_MIN);
        assert_eq!(limit_of(1 << 40), (4 << 20) * 16 / u64::from(WEIGHT_FIRST) / 8 * 8);
        assert!(segments.room() >= 1 << 20);
    }

    #[test]
    fn a_log_at_rest_is_a_part_of_the_tree() {
        let sizes = [0, 64 << 20, 100 << 20, 200 << 20, 1 << 30, u64::MAX];
        assert_eq!(sizes.map(|tree_size| size_at_rest(tree_size) >> 20), [2, 2, 2, 6, 16, 16]);
    }

    #[test]
    fn scattered_rows_share_a_segment_that_has_room_for_two_such_commits() {
        let sizes = [32, 48, 64, 96, 128].map(|room| {
            let segments = segments_of(room << 20);
            segments.set_memory(1 << 40);
            segments.fit(1 << 40, false);
            assert_eq!(segments.room() >> 20, room as u64, "the limit is what the segment has");
            (wal_record_size_max(&segments) >> 20, wal_record_size_wide(&segments) >> 20)
        });
        assert_eq!(sizes, [(2, 2), (2, 16), (2, 32), (2, 48), (2, 64)]);
    }

    #[test]
    fn a_segment_is_an_eighth_of_the_file_beside_an_older_snapshot() {
        let segments = segments_of(1 << 28);
        segments.set_memory(1 << 40);
        let limit_of = |tree_size, is_held| {
            segments.fit(tree_size, is_held);
            segments.budget.limit()
        };
        assert_eq!([true, false].map(|is_held| limit_of(100 << 20, is_held)), [SIZE_USUAL, 1 << 28]);
        assert_eq!([true, false].map(|is_held| limit_of(1 << 30, is_held)), [128 << 20, 1 << 28]);
        assert_eq!([true, false].map(|is_held| limit_of(0, is_held)), [SIZE_USUAL; 2]);
    }

    #[test]
    fn a_segment_is_no_longer_than_the_disk_can_take_in_some_seconds() {
        let segments = segments_of(1 << 28);
        segments.set_memory(1 << 40);
        let limit_after = |size, seconds| {
            segments.time(size, Duration::from_secs(seconds));
            segments.fit(1 << 30, false);
            segments.budget.limit()
        };
        assert_eq!(limit_after(1 << 20, 100), 1 << 28, "too little to tell");
        assert_eq!(limit_after(200 << 20, 10), 100 << 20);
        assert_eq!(limit_after(16 << 20, 100), TIMELY_MIN, "this much it may always have");
        let (commit, wide) = (24 << 20, wal_record_size_wide(&segments));
        assert!(commit < wide, "100,000 rows of 240 bytes still go through the log");
        assert_eq!(limit_after(16 << 20, 0), 1 << 28);
    }

    /// The log at a path, with a map of at most `mapped_max` bytes.
    fn log_at(path: &Path, mapped_max: u64) -> Segments {
        let data = std::env::temp_dir().metadata().unwrap();
        let space = FileSpace::open_mapped(path, words_for(1 << 20), Some(&data), true, mapped_max);
        Segments::new(Box::new(space.unwrap()), [7; 16])
    }

    /// Append a WAL record of about `size` bytes, and return its end and check.
    fn append(segments: &Segments, at: (u64, u64, u64), size: usize) -> (u64, u64) {
        let (position, sequence, seed) = at;
        let mut bytes = record::begin(0);
        record::push_put(&mut bytes, Tree::Rows, &sequence.to_be_bytes(), &[&vec![7; size]]);
        let check = record::finish(&mut bytes, 1, sequence, seed);
        segments.write(0, segments.head(0).unwrap(), position, &bytes).unwrap();
        (position + bytes.len() as u64, check)
    }

    #[test]
    fn what_lies_behind_a_short_map_is_written_and_read_all_the_same() {
        let path = std::env::temp_dir().join(format!("pellucid-far-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let whole = log_at(&path, u64::MAX);
        whole.create(0, 0, 0).unwrap();
        // The map ends in the middle of a chunk.
        let short = log_at(&path, 40_960 + 100_000 / 4096 * 4096);
        assert!(short.words_mapped() < whole.words_mapped() && short.capacity() == whole.capacity());
        let head = whole.head(0).unwrap();
        let (mut position, mut seed, mut bytes) = (0, head.salt, Vec::new());
        for sequence in 1..200 {
            let (one, other) = if sequence % 3 == 0 { (&short, &whole) } else { (&whole, &short) };
            let (end, check) = append(one, (position, sequence, seed), 4000);
            for reader in [one, other] {
                let read = reader.wal_record(0, head, position, sequence, seed, &mut bytes);
                assert_eq!(
                    (read.unwrap(), bytes.len() as u64),
                    (Some(check), end - position),
                    "record {sequence}"
                );
                let next = reader.wal_record(0, head, end, sequence + 1, check, &mut bytes);
                assert_eq!(next.unwrap(), None);
            }
            (position, seed) = (end, check);
        }
        assert_eq!(short.first_wal_record(0, head).unwrap(), Some(1));
        let copy = Segments::new(Box::new(MemorySpace::copy_of(short.space(), 0).unwrap()), [7; 16]);
        assert_eq!(copy.capacity(), whole.capacity());
        assert!(copy.wal_record(0, head, 0, 1, head.salt, &mut bytes).unwrap().is_some());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn room_that_was_given_back_is_reserved_again_before_it_is_written_to() {
        let path = std::env::temp_dir().join(format!("pellucid-shrunk-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let one = log_at(&path, u64::MAX);
        one.create(0, 0, 0).unwrap();
        let other = log_at(&path, u64::MAX);
        let salt = one.head(0).unwrap().salt;
        let fill = |segments: &Segments| {
            let (mut at, mut seed) = (0, salt);
            for sequence in 1..200 {
                (at, seed) = append(segments, (at, sequence, seed), 4000);
            }
        };
        let size = || std::fs::metadata(&path).unwrap().blocks() * 512;
        for (round, (writer, beside)) in
            [(&one, &other), (&other, &one), (&one, &other)].into_iter().enumerate()
        {
            fill(writer);
            let before = size();
            beside.space().punch(words_for(0) + (1 << 13)..writer.space().capacity()).unwrap();
            assert!(size() < before / 2, "round {round}: {} of {before}", size());
            for segments in [writer, beside] {
                assert!(!segments.prepare(), "it is not known which chunk comes next");
            }
            assert!(size() < before / 2, "round {round}: it is not taken again without a commit");
            if round == 1 {
                // As if the process had died in the middle.
                writer.word(PUNCHED).fetch_or(1, Ordering::Relaxed);
                assert!(!writer.prepare());
            }
            fill(writer);
            // The file system counts its own notes of where the file lies, too: a block more or
            // less.
            assert!(size().abs_diff(before) < 1 << 16, "all of it has room again: {} of {before}", size());
            assert_eq!(writer.word(PUNCHED).load(Ordering::Relaxed) % 2, 0);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_hole_in_a_log_on_a_tmpfs_takes_no_room_when_it_is_read() {
        let folder = Path::new("/dev/shm");
        if !std::fs::File::open(folder).is_ok_and(|file| os::has_holes_that_take_room(&file).unwrap()) {
            eprintln!("there is no tmpfs at {}", folder.display());
            return;
        }
        let path = folder.join(format!("pellucid-hole-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let writer = log_at(&path, u64::MAX);
        writer.create(0, 0, 0).unwrap();
        let head = writer.head(0).unwrap();
        let (mut at, mut seed) = (0, head.salt);
        for sequence in 1..200 {
            (at, seed) = append(&writer, (at, sequence, seed), 4000);
        }
        writer.space().punch(words_for(0) + (1 << 13)..writer.space().capacity()).unwrap();
        let size = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let before = size();
        assert!(before < 200 << 10, "most of it is a hole: {before}");
        let reader = log_at(&path, u64::MAX);
        let (mut position, mut seed, mut bytes) = (0, head.salt, Vec::new());
        while let Some(check) =
            reader.wal_record(0, head, position, position / 4000 + 1, seed, &mut bytes).unwrap()
        {
            (position, seed) = (position + bytes.len() as u64, check);
        }
        assert!((1 << 12..1 << 17).contains(&position), "what is before the hole is read: {position}");
        for place in (0..at).step_by(1 << 12) {
            assert!(reader.wal_record(0, head, place, 0, 0, &mut bytes).unwrap().is_none());
        }
        let copy = Segments::new(Box::new(MemorySpace::copy_of(reader.space(), 0).unwrap()), [7; 16]);
        assert_eq!(copy.capacity(), reader.capacity());
        assert_eq!(size(), before, "reading needs no room");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_with_a_smaller_limit_gives_back_what_is_behind_both_segments_and_keeps_what_is_in_them() {
        let path = std::env::temp_dir().join(format!("pellucid-limited-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let segments = log_at(&path, u64::MAX);
        segments.create(0, 0, 0).unwrap();
        let size = || std::fs::metadata(&path).unwrap().blocks() * 512;
        segments.space().reserve(0..segments.space().capacity(), false).unwrap();
        let (mut at, mut seed) = (0, segments.head(0).unwrap().salt);
        for sequence in 1..60 {
            (at, seed) = append(&segments, (at, sequence, seed), 4000);
        }
        let before = size();
        segments.budget.limit.store(64 << 10, Ordering::Relaxed);
        segments.shrink_to_limit(&Held::alone(), at);
        let after = size();
        assert!(after < before / 2 && after > 2 * at, "{after} of {before}, {at} used");
        segments.shrink_to_limit(&Held::alone(), at);
        assert_eq!(size(), after, "there is nothing more to give back");
        let head = segments.head(0).unwrap();
        let (mut position, mut seed, mut bytes) = (0, head.salt, Vec::new());
        for sequence in 1..60 {
            seed = segments.wal_record(0, head, position, sequence, seed, &mut bytes).unwrap().unwrap();
            position += bytes.len() as u64;
        }
        assert_eq!(position, at);
        std::fs::remove_file(path).unwrap();
    }
}
