//! Takes a log over from processes that died: where it ends, and whether it is whole.
//!
//! The chains alone tell where the log ends. What the head says was synced tells what that means: a
//! WAL record that does not check after that position never reached the disk, and is dropped. One
//! before it was there, so it is damaged, and no process writes to the log any more (`mend.rs`).

use crate::catalog::Applied;
use crate::engine::EngineError;
use crate::sys::steps::{Step, reached};
use crate::wal::lock::Held;
use crate::wal::segments::{LOST, ORDERED, SYNCED, SegmentHead, Segments};
use crate::wal::space::{GONE, Space};
use crate::wal::write::BULK_SIZE;

impl Segments {
    /// The position up to which everything had been synced, as the head says; 0 if it says nothing.
    /// The tail limits it, in case one of the two is damaged.
    pub(crate) fn known_synced(&self) -> u64 {
        if self.identify(false).is_ok() { self.load(SYNCED).min(self.tail()) } else { 0 }
    }

    /// Note how many WAL records that the head counted are not there, besides those of before.
    fn note_lost(&self, count: u64) {
        if count > 0 {
            self.store(LOST, self.lost().saturating_add(count));
        }
    }

    /// How many acknowledged WAL records were lost, and no writer was told so yet.
    pub(crate) fn lost(&self) -> u64 {
        self.load(LOST)
    }

    /// A writer was told of them.
    pub(crate) fn forget_lost(&self) {
        if self.lost() > 0 {
            self.store(LOST, 0);
        }
    }

    /// Whether all members have synced the head before each tree that has its commits.
    fn is_ordered(&self) -> bool {
        self.load(ORDERED) == 1
    }
}

/// Where the chain of WAL records in a segment ends.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) end: u64,
    pub(crate) sequence: u64,
}

/// Read a segment from its begin to the end of its chain. Calls `take` with each WAL record and its
/// sequence number; one that it refuses is after the end.
pub(crate) fn read_chain(
    segments: &Segments,
    segment: usize,
    head: SegmentHead,
    sequence: u64,
    mut take: impl FnMut(u64, &[u8]) -> bool,
) -> Result<Chain, EngineError> {
    let mut chain = Chain { end: head.begin, sequence };
    let (mut seed, mut bytes) = (head.salt, Vec::new());
    while let Some(check) =
        segments.wal_record(segment, head, chain.end, chain.sequence + 1, seed, &mut bytes)?
    {
        if !take(chain.sequence + 1, &bytes) {
            break;
        }
        chain.end += bytes.len() as u64;
        chain.sequence += 1;
        seed = check;
    }
    Ok(chain)
}

/// The end of a segment's chain. A WAL record whose large values a power cut took is after it, if
/// `verifies`: they are in another file than the log, so that either may be on the disk first.
fn end_of_chain(
    segments: &Segments,
    segment: usize,
    head: SegmentHead,
    sequence: u64,
    verifies: bool,
) -> Result<Chain, EngineError> {
    read_chain(segments, segment, head, sequence, |_, wal_record| {
        !verifies || segments.has_values_of(wal_record)
    })
}

/// The first and the last commit in a log that its data file lacks. Works for the log of any
/// database.
///
/// # Errors
/// As `Segments::wal_record`.
pub(crate) fn unapplied(space: Box<dyn Space>) -> Result<Option<(u64, u64)>, EngineError> {
    let Some(segments) = Segments::of_any(space) else { return Ok(None) };
    let mut lacked: Option<(u64, u64)> = None;
    for segment in [0, 1] {
        let Some(head) = segments.head(segment) else { continue };
        let Some(first) = segments.first_wal_record(segment, head)? else { continue };
        let mut end = head.begin;
        read_chain(&segments, segment, head, first.saturating_sub(1), |sequence, wal_record| {
            end += wal_record.len() as u64;
            if end > segments.applied() {
                let (first, last) = lacked.unwrap_or((sequence, sequence));
                lacked = Some((first.min(sequence), last.max(sequence)));
            }
            true
        })?;
    }
    Ok(lacked)
}

/// [O1] The end of the log and its segment, found from the tree's `applied` and the chains alone.
/// `None` if the log holds nothing that the tree lacks.
fn find_end(
    segments: &Segments,
    applied: Applied,
    verifies: bool,
) -> Result<Option<(usize, Chain)>, EngineError> {
    let heads = [0, 1].map(|segment| segments.head(segment));
    for (first, head) in heads.into_iter().enumerate() {
        let Some(head) = head.filter(|head| head.begin == applied.position) else { continue };
        let chain = end_of_chain(segments, first, head, applied.sequence, verifies)?;
        if chain.end == head.begin {
            continue;
        }
        let other = 1 - first;
        return Ok(Some(match segments.head(other).filter(|next| next.begin == chain.end) {
            Some(next) => (other, end_of_chain(segments, other, next, chain.sequence, verifies)?),
            None => (first, chain),
        }));
    }
    Ok(None)
}

fn begins(segments: &Segments) -> impl Iterator<Item = u64> + '_ {
    [0, 1].into_iter().filter_map(|segment| segments.head(segment)).map(|head| head.begin)
}

/// Whether the log goes on after a state that the tree, an older copy, has not reached. Not if the
/// head of a segment is damaged.
fn is_of_later_state(segments: &Segments, applied: Applied) -> bool {
    begins(segments).any(|begin| begin > applied.position)
        && !begins(segments).any(|begin| begin == applied.position)
        && ![0, 1].into_iter().any(|segment| segments.is_head_damaged(segment))
}

/// Whether the tree has commits that were made after all of this log, which is an older copy then.
/// A power cut hardly leaves that: the head is on the disk before a tree that has its commits.
fn is_of_earlier_state(segments: &Segments, applied: Applied) -> Result<bool, EngineError> {
    let is_before = |end: u64| end.saturating_add(BULK_SIZE) < applied.position;
    if !segments.is_ordered() || !is_before(segments.tail()) {
        return Ok(false);
    }
    // The tail itself may be damaged. Of a log that was just made, a power cut may leave anything,
    // and no head of a segment.
    let mut has_head = false;
    for segment in [0, 1] {
        let Some(head) = segments.head(segment) else {
            if segments.is_head_damaged(segment) {
                return Ok(false);
            }
            continue;
        };
        has_head = true;
        let mut end = head.begin;
        if let Some(first) = segments.first_wal_record(segment, head)? {
            end = read_chain(segments, segment, head, first.saturating_sub(1), |_, _| true)?.end;
        }
        if !is_before(end) {
            return Ok(false);
        }
    }
    Ok(has_head)
}

/// Whether something in the log does not check, though it had been synced. The caller is alone with
/// the log.
pub(crate) fn is_damaged(segments: &Segments, applied: Applied) -> Result<bool, EngineError> {
    let known = segments.known_synced();
    if known <= applied.position {
        return Ok(false);
    }
    match find_end(segments, applied, true)? {
        Some((_, chain)) => Ok(chain.end < known),
        None => Ok(!is_of_later_state(segments, applied)),
    }
}

/// [W6] Set tail and sequence to the end of the chain after a writer died.
pub(crate) fn recover(segments: &Segments, own: &Held, applied: Applied) -> Result<(), EngineError> {
    if let Some((segment, chain)) = find_end(segments, applied, false)? {
        if chain.end < segments.known_synced() {
            // No power was cut, since other processes live.
            return Err(EngineError::Damaged { what: "a commit in the log is damaged", code: 0 });
        }
        segments.set_active(own, segment);
        segments.publish(own, chain.end, chain.sequence);
        return Ok(());
    }
    let active = segments.active();
    match segments.head(active) {
        Some(head) if head.begin > applied.position => {
            let what = "the log does not continue what the tree has";
            return Err(EngineError::Damaged { what, code: 0 });
        }
        Some(head) if head.begin == applied.position => {}
        // The tree lacks commits, so the writer did not die while it wrote this head.
        None if segments.tail() > applied.position => {
            return Err(EngineError::Damaged { what: "the log's active segment has no head", code: 0 });
        }
        // The segment ends before the position that a bulk commit applied, or the writer died
        // between two stores of the head. An active segment is only begun anew when the tree has
        // everything.
        Some(_) | None => segments.begin_segment(own, active, applied.position),
    }
    segments.publish(own, applied.position, applied.sequence);
    Ok(())
}

/// [O1] Find out what the log holds beyond the tree, and set its head accordingly. No other member
/// has the log. If this process dies here, the next one repeats the work with the same result.
pub(crate) fn take_over(segments: &Segments, applied: Applied) -> Result<(), EngineError> {
    let end = find_end(segments, applied, true)?;
    if end.is_none() && is_of_later_state(segments, applied) {
        let what = "it continues a later state of the database: the file beside it is an older copy; move the log away to use that as it is";
        return Err(EngineError::ForeignLog(what));
    }
    let is_older = end.is_none() && is_of_earlier_state(segments, applied)?;
    let (known, counted) = (segments.known_synced(), segments.sequence());
    // The last holders of the writer lock and the tree lock are dead. `GONE` keeps any process from
    // taking the writer lock as free before all of this is done.
    let alone = Held::alone();
    segments.set_writer(GONE);
    reached(Step::ReplayBegins);
    segments.set_tree_writer(0);
    // Do not use the head's value, which may be damaged: if it were too large, nothing would be
    // synced or applied any more.
    segments.begin_counting(applied.position);
    segments.store(ORDERED, 1);
    segments.renew_format();
    let (tail, sequence) =
        end.map_or((applied.position, applied.sequence), |(_, chain)| (chain.end, chain.sequence));
    segments.forget_reserve(&alone, tail);
    // Before the head says that there are fewer. If this process dies in between, the next one
    // counts them twice.
    segments.note_lost(counted.saturating_sub(sequence));
    if let Some((segment, chain)) = end {
        segments.set_found(&alone, true);
        segments.set_active(&alone, segment);
        segments.publish(&alone, chain.end, chain.sequence);
        // The next opener has to know what was on the disk, in case that is damaged meanwhile.
        segments.store(SYNCED, known.min(chain.end).max(applied.position));
    } else {
        // Publish first: a process that finds a segment without a head then knows that the tree has
        // everything.
        segments.publish(&alone, applied.position, applied.sequence);
        segments.set_active(&alone, 0);
        segments.set_found(&alone, false);
        // If a power cut took the WAL records between tree and segments, a segment may begin at the
        // very position where the same commits, made again, will end. Its old content must not come
        // back, not even after another power cut.
        segments.forget_segment(&alone, 1);
        segments.begin_segment(&alone, 0, applied.position);
        if is_older {
            // Another one belongs to the data file, whose log token says so as long as it has no
            // commits after that one's.
            segments.set_token(segments.head(0).map_or(1, |head| head.salt));
        }
        segments.space().sync().map_err(EngineError::of_system)?;
    }
    reached(Step::ReplayEnds);
    segments.set_writer(0);
    Ok(())
}
