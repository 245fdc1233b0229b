//! Reads commits one after the other, for a watcher.
//!
//! The commits after the watcher's place come from the log's segments as long as the WAL records
//! are there, which is until the segment is begun anew, some time after a checkpoint. After that
//! they come from the chunks in the tree (`wal/history.rs`). The log is read first, then the
//! tree: by [C2] a tree that was committed before has what has left the log.
//!
//! Memtables are not used: a slow watcher must not keep them in memory.

use std::sync::Arc;

use crate::catalog::history_chunk::{CHUNK, Chunk, Kind};
use crate::engine::history::{Commit, Next, WatchPosition};
use crate::engine::{CommitFeed, Direction, EngineError, Tree};
use crate::sys::bell::Bell;
use crate::wal::engine::Shared;
use crate::wal::history::{chunk_at, damaged, next_chunk};
use crate::wal::record;
use crate::wal::segments::{SegmentHead, Segments, WATCHED};
use crate::wal::space::MEMBER_MAX;

/// Return commits of up to this many bytes at once, or one commit.
const BATCH_SIZE: usize = 256 << 10;

/// The end of a WAL record in a segment.
#[derive(Clone, Copy)]
struct Spot {
    segment: usize,
    head: SegmentHead,
    end: u64,
    chain: u64,
}

impl Spot {
    fn of_hint([segment, begin, salt, end, chain]: [u64; 5]) -> Self {
        Self { segment: (segment & 1) as usize, head: SegmentHead { begin, salt }, end, chain }
    }

    fn hint(&self) -> [u64; 5] {
        [self.segment as u64, self.head.begin, self.head.salt, self.end, self.chain]
    }

    /// Read the next WAL record, which makes this version, in this segment or the other one.
    /// False if neither has it.
    fn read(&mut self, segments: &Segments, version: u64, bytes: &mut Vec<u8>) -> Result<bool, EngineError> {
        if self.read_here(segments, version, bytes)? {
            return Ok(true);
        }
        let other = 1 - self.segment;
        let Some(head) = segments.head(other).filter(|head| head.begin == self.end) else { return Ok(false) };
        let mut next = Self { segment: other, head, end: head.begin, chain: head.salt };
        let is_there = next.read_here(segments, version, bytes)?;
        if is_there {
            *self = next;
        }
        Ok(is_there)
    }

    fn read_here(
        &mut self,
        segments: &Segments,
        version: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        let read = segments.wal_record(self.segment, self.head, self.end, version, self.chain, bytes)?;
        let Some(check) = read else { return Ok(false) };
        self.chain = check;
        self.end += bytes.len() as u64;
        Ok(true)
    }

    /// The end of the WAL record that made a version.
    fn find(segments: &Segments, version: u64) -> Result<Option<Self>, EngineError> {
        for segment in [segments.active(), 1 - segments.active()] {
            let found = Self::find_in(segments, segment, version)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find_in(segments: &Segments, segment: usize, version: u64) -> Result<Option<Self>, EngineError> {
        let Some(head) = segments.head(segment) else { return Ok(None) };
        let Some(first) = segments.first_wal_record(segment, head)? else { return Ok(None) };
        if first > version + 1 {
            return Ok(None);
        }
        let mut spot = Self { segment, head, end: head.begin, chain: head.salt };
        let mut bytes = Vec::new();
        for between in first..=version {
            if !spot.read_here(segments, between, &mut bytes)? {
                return Ok(None);
            }
        }
        // Do not stop at the end of a chain: that segment is about to be left.
        let mut next = spot;
        Ok(next.read(segments, version + 1, &mut bytes)?.then_some(spot))
    }
}

fn commit_of(version: u64, bytes: Vec<u8>) -> Commit {
    let count = bytes.get(4..8).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes);
    Commit::new(version, bytes, record::HEAD_SIZE, count)
}

impl CommitFeed for Shared {
    fn next_commits(&self, place: &mut WatchPosition) -> Result<Next, EngineError> {
        // Only acknowledged records: those after may never be acknowledged.
        let newest = self.segments.sequence();
        if newest <= place.version {
            return Ok(Next::Nothing);
        }
        if let Some(commits) = from_segments(&self.segments, place, newest)? {
            return Ok(Next::Commits(commits));
        }
        place.hint = None;
        let commits = self.kept(place.version + 1, newest)?;
        Ok(match commits.last() {
            Some(last) => {
                place.version = last.version;
                Next::Commits(commits)
            }
            None => Next::Gone,
        })
    }

    fn bell(&self) -> Option<Bell> {
        // Other processes do not wake an opener whose log is a copy, or is only read.
        let (segments, space) = (&self.segments, self.segments.space());
        let is_shared = !segments.is_copy && space.member() <= MEMBER_MAX;
        is_shared.then(|| Bell::new(Arc::clone(space.words()), WATCHED))
    }

    fn known_since(&self) -> Result<u64, EngineError> {
        let mut since = self.segments.sequence();
        // The ranges that can be read, each with the versions of its first and last commit.
        let (mut spans, mut bytes) = (Vec::new(), Vec::new());
        for segment in [0, 1] {
            let Some(head) = self.segments.head(segment) else { continue };
            let Some(first) = self.segments.first_wal_record(segment, head)? else { continue };
            let mut spot = Spot { segment, head, end: head.begin, chain: head.salt };
            let mut last = first.saturating_sub(1);
            while last < since && spot.read_here(&self.segments, last + 1, &mut bytes)? {
                last += 1;
            }
            spans.push((first, last));
        }
        let txn = self.tree.begin_read()?;
        let mut cursor = txn.cursor(Tree::Meta)?;
        let mut found = chunk_at(&mut *cursor, &[CHUNK], Direction::Forward)?;
        while let Some((chunk, _, _)) = found {
            spans.push((chunk.first, chunk.last));
            found = next_chunk(&mut *cursor)?;
        }
        spans.sort_unstable_by(|one, other| other.cmp(one));
        for (first, last) in spans {
            if last >= since {
                since = since.min(first.saturating_sub(1));
            }
        }
        Ok(since)
    }
}

impl Shared {
    /// Commits from this version on that one chunk of the tree holds.
    fn kept(&self, version: u64, newest: u64) -> Result<Vec<Commit>, EngineError> {
        let txn = self.tree.begin_read()?;
        let mut cursor = txn.cursor(Tree::Meta)?;
        let found = chunk_at(&mut *cursor, &Chunk::key(version.saturating_add(1), 0), Direction::Reverse)?;
        let Some((chunk, key, value)) = found.filter(|(chunk, _, _)| chunk.last >= version) else {
            return Ok(Vec::new());
        };
        if chunk.kind == Kind::WalRecords {
            let body = Chunk::body(key, value).ok_or_else(damaged)?;
            return wal_records_of(body, chunk.first, version, newest);
        }
        let found = chunk_at(&mut *cursor, &Chunk::key(version, 0), Direction::Forward)?;
        let (mut found, mut bytes, mut count) = (found, Vec::new(), 0);
        for part in 0.. {
            let Some((chunk, key, value)) = found else { return Err(damaged()) };
            if (chunk.first, chunk.part) != (version, part) {
                return Err(damaged());
            }
            let body = Chunk::body(key, value).and_then(<[u8]>::split_first_chunk::<4>);
            let (entry_count, entries) = body.ok_or_else(damaged)?;
            count += u32::from_le_bytes(*entry_count);
            bytes.extend_from_slice(entries);
            if chunk.kind == Kind::LastPart {
                break;
            }
            found = next_chunk(&mut *cursor)?;
        }
        Ok(vec![Commit::new(version, bytes, 0, count)])
    }
}

/// Commits after a place that the log still has. `None` if it lacks the first of them.
fn from_segments(
    segments: &Segments,
    place: &mut WatchPosition,
    newest: u64,
) -> Result<Option<Vec<Commit>>, EngineError> {
    let (mut commits, mut size) = (Vec::new(), 0);
    let mut spot = place.hint.map(Spot::of_hint);
    while place.version < newest && size < BATCH_SIZE {
        let (version, mut bytes) = (place.version + 1, Vec::new());
        let is_read = match &mut spot {
            Some(spot) => spot.read(segments, version, &mut bytes)?,
            None => false,
        };
        if !is_read {
            if !commits.is_empty() {
                // A bulk commit follows.
                break;
            }
            let Some(mut found) = Spot::find(segments, place.version)? else { return Ok(None) };
            if !found.read(segments, version, &mut bytes)? {
                return Ok(None);
            }
            spot = Some(found);
        }
        let extents = segments.extents().map(|extents| &**extents);
        let Some(bytes) = record::with_values(bytes, extents) else {
            // A checkpoint has put the large values into the tree, and others have replaced them
            // there since.
            if commits.is_empty() {
                return Ok(None);
            }
            spot = None;
            break;
        };
        size += bytes.len();
        commits.push(commit_of(version, bytes));
        place.version = version;
    }
    place.hint = spot.map(|spot| spot.hint());
    Ok(Some(commits))
}

/// The WAL records of a chunk from a version on.
fn wal_records_of(body: &[u8], first: u64, version: u64, newest: u64) -> Result<Vec<Commit>, EngineError> {
    let (mut rest, mut commits) = (body, Vec::new());
    for number in first..=newest {
        let Some(size) = rest.first_chunk().map(|size| u32::from_le_bytes(*size) as usize) else { break };
        if size < record::HEAD_SIZE + record::CHECK_SIZE {
            return Err(damaged());
        }
        let (bytes, behind) = rest.split_at_checked(size).ok_or_else(damaged)?;
        rest = behind;
        if number >= version {
            commits.push(commit_of(number, bytes.to_vec()));
        }
    }
    Ok(commits)
}
