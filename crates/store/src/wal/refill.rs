//! Refills the reserve of pages for large values, and gives back what is left of it.
//!
//! The contract is docs/internals/large-values.md. A writer that finds no room in the reserve has
//! to wait for a commit of the tree. So under load the checkpointer takes more pages ahead, in the
//! commit of a checkpoint, and the next writer of this process that finds no room uses them.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::catalog::Applied;
use crate::engine::{EngineError, Extents, Tree, Usage, WriteTxn};
use crate::sys::steps::{Step, reached};
use crate::wal::checkpoint::Done;
use crate::wal::engine::Shared;
use crate::wal::extents::{RANGES_MAX, count_of, merged, without};
use crate::wal::lock::Held;
use crate::wal::read::LoggedRead;
use crate::wal::state::applied_of;

/// How long the reserve is: a share of what the file has in use, so that a small file stays small;
/// less where the file has free pages already, so that all that is not in use remains a quarter.
const RESERVE_MIN: u64 = 2 << 20;
const RESERVE_MAX: u64 = 256 << 20;
const SHARE_MAX: u64 = 8;
const SHARE_MIN: u64 = 24;
/// Pages are taken ahead for a reserve of this size or more: for less a writer waits.
const STREAM_MIN: u64 = 8 << 20;
/// If less is free on the disk, values go through the log, which knows how to fill a disk.
const DISK_ROOM_MIN: u64 = 256 << 20;
/// Time without a large value after which the reserve is given back.
const IDLE: Duration = Duration::from_secs(5);

/// What this process knows of the reserve that it refills.
#[derive(Default)]
pub(crate) struct Ahead {
    /// How many pages the values have that it was refilled for; 0 if it was not.
    pages: u64,
    /// How many pages it had then.
    wanted: u64,
    /// Whether that is so many that values stream in, so that pages are taken ahead.
    streams: bool,
    /// Pages taken ahead, which no word names yet, and `renewals` at that time: if that has
    /// changed, they were freed.
    new: Option<(u64, Vec<Range<u64>>)>,
    /// The end of the last WAL record with a place, and since when.
    placed: Option<(u64, Instant)>,
}

impl Ahead {
    /// Note what the reserve is refilled for. Returns how many pages it gets: few at first, and
    /// more while values stream in.
    fn begin(&mut self, pages: u64, usage: &Usage, left: u64, disk_room: u64) -> u64 {
        const GROWTH: u64 = 4;
        let first = RESERVE_MIN / usage.page_size.max(1);
        let most = if self.pages == 0 { first } else { self.wanted } * GROWTH;
        self.wanted = wanted_pages(usage, left, disk_room).min(most);
        self.pages = pages;
        self.streams = self.wanted * usage.page_size >= STREAM_MIN;
        self.wanted
    }
}

/// The pages that a reserve should have, of which `left` are still in it.
fn wanted_pages(usage: &Usage, left: u64, disk_room: u64) -> u64 {
    let page_size = usage.page_size.max(1);
    let in_use = usage.pages.saturating_sub(usage.free_pages + left);
    let longest = in_use + in_use / SHARE_MAX;
    let wanted = longest.saturating_sub(usage.pages - left.min(usage.pages)).max(in_use / SHARE_MIN);
    let most = RESERVE_MAX.min(disk_room / 4).max(RESERVE_MIN);
    wanted.clamp(RESERVE_MIN / page_size, most / page_size)
}

impl Shared {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the checkpointer should take more pages now: this process writes large values, and
    /// half of the reserve is used, of which this is `left`.
    pub(crate) fn is_reserve_low(&self, left: Option<&[Range<u64>]>) -> bool {
        let ahead = self.ahead();
        let left = left.map_or_else(|| self.segments.reserve_count(), count_of);
        ahead.streams && ahead.new.is_none() && left < ahead.wanted / 2
    }

    /// Pages that were taken ahead, if they are still reserved.
    fn taken_ahead(&self, _held: &Held) -> Option<Vec<Range<u64>>> {
        let (renewals, new) = self.ahead().new.take()?;
        (renewals == self.segments.renewals()).then_some(new)
    }

    /// Run one checkpoint, and take more pages for large values in its commit.
    pub(crate) fn checkpoint_ahead(self: &Arc<Self>, until: Instant) -> Result<Done, EngineError> {
        let pages = self.ahead().pages;
        let Some(extents) = self.segments.extents() else { return Ok(Done::Nothing) };
        let disk_room = extents.disk_room().unwrap_or_default();
        if disk_room < DISK_ROOM_MIN {
            self.ahead().streams = false;
            return self.checkpoint_until(until, until, &mut || true);
        }
        let renewals = self.segments.renewals();
        let mut new = None;
        let done = self.checkpoint_and((until, until), &mut || true, &mut |txn, _| {
            let left = self.segments.reserve_count();
            let usage = self.tree.usage()?;
            let wanted = self.ahead().begin(pages, &usage, left, disk_room);
            new = take_pages(txn, pages, wanted.saturating_sub(left))?;
            Ok(new.is_some())
        });
        match (&done, new) {
            (Ok(Done::Applied(_)), Some(new)) => self.ahead().new = Some((renewals, merged(new))),
            (Ok(Done::Applied(_) | Done::Nothing | Done::InTheWay(_)), _) => {}
            // Without room, the next writer finds out what to do.
            (Ok(Done::Stopped) | Err(_), _) => self.ahead().streams = false,
        }
        done
    }

    /// Reserve pages for more values of this many pages. The caller has values on `used`, and could
    /// still take what is `left`, of which the larger ranges stay in the reserve. Returns what it
    /// can take now. `None` if that is not possible now.
    pub(super) fn refill(
        self: &Arc<Self>,
        (held, base): (&Held, &mut LoggedRead),
        extents: &dyn Extents,
        (used, left): (&[Range<u64>], &[Range<u64>]),
        pages: u64,
        until: Instant,
    ) -> Result<Option<Vec<Range<u64>>>, EngineError> {
        let disk_room = extents.disk_room().unwrap_or_default();
        if disk_room < DISK_ROOM_MIN {
            return Ok(None);
        }
        loop {
            let ahead = self.taken_ahead(held);
            if let Some(new) = ahead.filter(|new| new.iter().any(|one| one.end - one.start >= pages)) {
                let left = merged([left, &new].concat());
                self.segments.set_reserve(held, &left);
                return Ok(Some(left));
            }
            // The same state, in the newest tree: an older one would keep pages from being used
            // again.
            *base = self.read()?;
            let mut refilled = None;
            let done = self.checkpoint_within_and(held, until, &mut |txn, is_all| {
                // Nothing but the caller's values is in use when nothing is in the log.
                if is_all {
                    refilled = self.renew((held, txn), (used, left), pages, disk_room)?;
                }
                Ok(!is_all || refilled.is_some())
            });
            match done {
                Ok(Done::Nothing) => break,
                Ok(Done::Applied(_)) if refilled.is_some() => return Ok(self.begin_use(held, refilled)),
                Ok(Done::Stopped) | Err(EngineError::DiskFull(_) | EngineError::NoMemory(_)) => {
                    return Ok(None);
                }
                Ok(Done::Applied(_) | Done::InTheWay(_)) if Instant::now() >= until => return Ok(None),
                Ok(Done::Applied(_) | Done::InTheWay(_)) => {}
                Err(error) => return Err(error.before_commit()),
            }
        }
        if self.is_unproven.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some((_lock, mut txn)) = self.begin_tree(until).map_err(EngineError::before_commit)? else {
            return Ok(None);
        };
        let refilled = match self.renew((held, &mut *txn), (used, left), pages, disk_room) {
            Ok(None) | Err(EngineError::DiskFull(_) | EngineError::NoMemory(_)) => return Ok(None),
            done => done.map_err(EngineError::before_commit)?,
        };
        commit_as_it_is(txn).map_err(EngineError::before_commit)?;
        Ok(self.begin_use(held, refilled))
    }

    /// Free what has been lost of the reserve, and take more pages. Returns what can be taken when
    /// the transaction is committed.
    fn renew(
        &self,
        (held, txn): (&Held, &mut dyn WriteTxn),
        (used, left): (&[Range<u64>], &[Range<u64>]),
        pages: u64,
        disk_room: u64,
    ) -> Result<Option<Vec<Range<u64>>>, EngineError> {
        self.segments.begin_renewal(held);
        self.segments.set_has_reserve(held, true);
        let usage = self.tree.usage()?;
        let wanted = self.ahead().begin(pages, &usage, count_of(left), disk_room);
        let mut left = largest(left, wanted);
        free_all_but(txn, &merged([used, &left].concat()))?;
        let missing = wanted.saturating_sub(count_of(&left)).max(pages);
        let Some(new) = take_pages(txn, pages, missing)? else { return Ok(None) };
        left.extend(new);
        Ok(Some(merged(left)))
    }

    /// Have the words name what a commit of the tree has reserved.
    fn begin_use(&self, held: &Held, refilled: Option<Vec<Range<u64>>>) -> Option<Vec<Range<u64>>> {
        reached(Step::ReserveTaken);
        self.segments.set_reserve(held, refilled.as_deref().unwrap_or_default());
        refilled
    }

    /// Free the whole reserve, if the tree has everything. A running transaction has values on its
    /// pages, which only the writer lock keeps away.
    pub(crate) fn free_reserve(self: &Arc<Self>, held: &Held, until: Instant) -> Result<(), EngineError> {
        if self.segments.extents().is_none() || self.pending() > 0 {
            return Ok(());
        }
        *self.ahead() = Ahead::default();
        // Reading the list of free pages trusts it, as each write of the tree does. So callers look
        // for a reserve only where there may be one.
        let Some((_lock, mut txn)) = self.begin_tree(until)? else { return Ok(()) };
        let Some(page_txn) = txn.pages() else { return Ok(()) };
        if page_txn.reserve()?.is_empty() {
            return Ok(());
        }
        self.segments.begin_renewal(held);
        free_all_but(&mut *txn, &[])?;
        commit_as_it_is(txn)?;
        reached(Step::ReserveFreed);
        self.segments.set_has_reserve(held, false);
        Ok(())
    }

    /// Free the whole reserve if no process has written a large value for some time.
    pub(crate) fn give_back_reserve(self: &Arc<Self>) -> Result<(), EngineError> {
        if !self.segments.has_reserve() || self.pending() > 0 || self.is_unproven.load(Ordering::Relaxed) {
            return Ok(());
        }
        let placed = self.segments.placed();
        let since = match self.ahead().placed {
            Some((end, since)) if end == placed => since,
            _ => Instant::now(),
        };
        self.ahead().placed = Some((placed, since));
        if since.elapsed() < IDLE {
            return Ok(());
        }
        let Some(lock) = self.lock(Some(Instant::now()))? else { return Ok(()) };
        if self.segments.placed() == placed { self.free_reserve(&lock, Instant::now()) } else { Ok(()) }
    }

    /// Free the whole reserve, unless a writer or a checkpoint is at work.
    pub(crate) fn drop_reserve(self: &Arc<Self>) -> Result<(), EngineError> {
        if !self.segments.has_reserve() || self.is_unproven.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(lock) = self.lock(Some(Instant::now()))? else { return Ok(()) };
        self.free_reserve(&lock, Instant::now())
    }
}

/// Commit a transaction that has changed no entry.
pub(super) fn commit_as_it_is(mut txn: Box<dyn WriteTxn>) -> Result<(), EngineError> {
    let applied = Applied { version: txn.version(), ..applied_of(&*txn)? };
    let (key, value) = applied.entry();
    txn.put(Tree::Meta, &key, &[&value])?;
    txn.commit()
}

/// Free the reserve but for what is `kept`, in ascending order.
fn free_all_but(txn: &mut dyn WriteTxn, kept: &[Range<u64>]) -> Result<(), EngineError> {
    let Some(page_txn) = txn.pages() else { return Ok(()) };
    for range in page_txn.reserve()? {
        for free in without(&range, kept) {
            page_txn.give_pages(&free)?;
        }
    }
    page_txn.set_reserve(kept)
}

/// Take pages for more values of `pages` each, about as many as are `missing`, into the reserve.
/// Value by value, since free pages lie where other values were. `None` if that is not possible.
fn take_pages(
    txn: &mut dyn WriteTxn,
    pages: u64,
    missing: u64,
) -> Result<Option<Vec<Range<u64>>>, EngineError> {
    let Some(page_txn) = txn.pages() else { return Ok(None) };
    let (mut new, mut count): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    while count + pages <= missing.max(pages) && new.len() < RANGES_MAX / 2 {
        let one = page_txn.take_pages(pages)?;
        count += pages;
        match new.last_mut() {
            Some(last) if last.end == one.start => last.end = one.end,
            _ => new.push(one),
        }
    }
    for range in &new {
        if !page_txn.give_room(range)? {
            return Ok(None);
        }
    }
    let all = merged([page_txn.reserve()?, new.clone()].concat());
    page_txn.set_reserve(&all)?;
    Ok(Some(new))
}

/// The largest ranges, with `pages_max` pages at most: a shorter one is of use for few values.
fn largest(ranges: &[Range<u64>], pages_max: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = ranges.iter().filter(|range| range.start < range.end).cloned().collect();
    ranges.sort_unstable_by_key(|range| std::cmp::Reverse(range.end - range.start));
    let mut sum = 0;
    ranges
        .into_iter()
        .take(RANGES_MAX / 2)
        .take_while(|range| {
            sum += range.end - range.start;
            sum <= pages_max
        })
        .collect()
}
