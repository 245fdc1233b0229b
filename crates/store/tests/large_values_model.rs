//! Model check of large values: their pages, their places and the reserve, under every death.
//!
//! A model of `docs/internals/large-values.md`, beside the one of the write path. Processes take
//! one atomic step at a time; every interleaving is visited, with a death before any step, and
//! from every state what a power cut can leave. The log is one chain here: its segments are the
//! other model's. A value has one page, and each transaction puts up to two values under two keys.
#![allow(clippy::indexing_slicing, reason = "a state out of its bounds is a finding")]

use std::collections::HashSet;

const PAGES: usize = 4;
const KEYS: usize = 2;
/// The content of a page that is just being written.
const TORN: u8 = 255;
/// How many pages a refill takes.
const REFILL: u32 = 2;

/// Pages, a bit for each.
type Set = u8;

/// What a commit does to a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Put {
    Nothing,
    /// The value itself is in the log.
    Copied,
    Placed(u8),
}

impl Put {
    fn page(self) -> Option<u8> {
        if let Self::Placed(page) = self { Some(page) } else { None }
    }
}

/// A commit in the log: one value, of which each key has a page or, without one, a copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct WalRecord {
    value: u8,
    puts: [Put; KEYS],
    is_torn: bool,
}

impl WalRecord {
    fn pages(self) -> impl Iterator<Item = u8> {
        self.puts.into_iter().filter_map(Put::page)
    }
}

/// What a commit of the tree has: the values and, where they are large, their pages.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Tree {
    version: u8,
    applied: u8,
    keys: [Option<(u8, Option<u8>)>; KEYS],
    reserve: Set,
    free: Set,
    /// Pages that a version has freed.
    freed: Vec<(u8, Set)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Dead,
    Done,
    // Writer
    Lock { left: u8 },
    Take { left: u8, used: Vec<u8>, can_take: Set },
    Empty { left: u8, used: Vec<u8> },
    Refill { left: u8, used: Vec<u8> },
    Fill { left: u8, used: Vec<u8>, new: Set },
    Write { left: u8, used: Vec<u8>, can_take: Set },
    Written { left: u8, used: Vec<u8>, can_take: Set },
    Note { left: u8, used: Vec<u8>, is_copied: bool },
    Append { left: u8, used: Vec<u8>, is_copied: bool },
    Complete { left: u8 },
    Publish { left: u8 },
    Unlock { left: u8 },
    // Checkpointer
    Checkpoint { left: u8 },
    Commit { left: u8, until: u8, renewals: u8 },
    Tell { left: u8, ahead: Option<(u8, Set)> },
    // A process that syncs
    Sync { left: u8 },
    EndSync { left: u8, pages: [u8; PAGES], until: u8 },
    // Reader
    Begin,
    Look { tree: Tree },
    Hold { version: u8, seen: [Option<(u8, Option<u8>)>; KEYS] },
    // An opener that is alone
    Open { left: u8 },
}

/// An error in the contract that the model must detect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Flaw {
    None,
    /// Against L2: the words say which pages were taken after the WAL record is there.
    NotedLate,
    /// Against L2: a refill leaves the words until it has committed.
    WordsKept,
    /// Against L2: an opener that is alone believes the words.
    WordsBelieved,
    /// Against L2: a writer takes pages that were reserved ahead, after a refill has freed them.
    AheadKept,
    /// Against L2: a commit gives the pages back that its WAL record has.
    GivenBackAfterCommit,
    /// Against L3: a refill begins while the log has what the tree lacks.
    RefilledEarly,
    /// Against L3: a refill frees what its own transaction has written.
    UsedFreed,
    /// Against L4: a checkpoint leaves the pages in the reserve.
    LeftInReserve,
    /// Against L4: a checkpoint forgets the pages of values that were replaced in the log.
    ReplacedForgotten,
    /// Against L5: pages are used again as soon as they are free.
    ReusedAtOnce,
    /// Against L7: a sync leaves out the data file.
    SyncedLogAlone,
    /// Against O1: an opener that is alone does not verify the values.
    Unverified,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    flaw: Flaw,
    /// Whether the last value of a writer may need more pages than are left.
    sizes_vary: bool,
    steps: Vec<Step>,
    deaths_left: u8,
    cuts_left: u8,
    log: Vec<WalRecord>,
    published: u8,
    acknowledged: u8,
    writer: Option<u8>,
    tree_writer: Option<u8>,
    /// The pages that can be taken, in the head of the log.
    words: Set,
    /// How often what was left of the reserve was freed, in the head of the log.
    renewals: u8,
    /// Pages that a checkpointer has reserved ahead, and `renewals` before that. In the memory of a
    /// process, whose writers take them.
    ahead: Option<(u8, Set)>,
    /// Whether checkpointers do that.
    takes_ahead: bool,
    pages: [u8; PAGES],
    tree: Tree,
    tree_on_disk: Tree,
    pages_on_disk: [u8; PAGES],
    synced: u8,
    /// The value that the holder of the writer lock writes.
    value: u8,
}

fn has(set: Set, page: u8) -> bool {
    set & 1 << page != 0
}

fn set_of(pages: &[u8]) -> Set {
    pages.iter().fold(0, |set, page| set | 1 << page)
}

impl Tree {
    /// Free pages in the transaction that becomes `version`.
    fn give(&mut self, pages: Set) {
        if pages != 0 {
            self.freed.push((self.version, pages));
        }
    }

    /// Take free pages into the reserve, so many at most.
    fn take(&mut self, count: u32) -> Set {
        let mut new: Set = 0;
        while new.count_ones() < count && self.free != 0 {
            let page = self.free.trailing_zeros();
            (self.free, new) = (self.free & !(1 << page), new | 1 << page);
        }
        self.reserve |= new;
        new
    }

    /// Begin the next version, in which pages of versions that no reader has are free.
    fn next(&self, oldest: u8, flaw: Flaw) -> Self {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        let oldest = oldest.min(self.version);
        let is_old = |version: u8| version < oldest || flaw == Flaw::ReusedAtOnce;
        for (_, pages) in self.freed.iter().filter(|(version, _)| is_old(*version)) {
            next.free |= pages;
        }
        next.freed.retain(|(version, _)| !is_old(*version));
        next
    }

    /// Apply WAL records up to a position.
    fn apply(&mut self, log: &[WalRecord], until: u8, flaw: Flaw) {
        let mut taken: Set = 0;
        let mut assigned: Set = 0;
        for key in 0..KEYS {
            let new = log[usize::from(self.applied)..usize::from(until)]
                .iter()
                .filter(|wal_record| wal_record.puts[key] != Put::Nothing)
                .map(|wal_record| (wal_record.value, wal_record.puts[key].page()));
            let new: Vec<_> = new.collect();
            for (_, page) in &new {
                taken |= page.map_or(0, |page| 1 << page);
            }
            if let Some((value, page)) = new.last().copied() {
                if let Some((_, Some(old))) = self.keys[key] {
                    self.give(1 << old);
                }
                assigned |= page.map_or(0, |page| 1 << page);
                self.keys[key] = Some((value, page));
            }
        }
        assert_eq!(self.reserve & taken, taken, "[L3] a place outside of the reserve: {self:?}");
        if flaw != Flaw::LeftInReserve {
            self.reserve &= !taken;
        }
        if flaw != Flaw::ReplacedForgotten {
            self.give(taken & !assigned);
        }
        self.applied = until;
    }

    /// [L1] Each page is somewhere, once.
    fn check(&self) {
        let mut known = 0;
        let in_tree = self.keys.iter().flatten().filter_map(|(_, page)| page.map(|page| 1 << page));
        let freed = self.freed.iter().map(|(_, pages)| *pages);
        for pages in [self.reserve, self.free].into_iter().chain(in_tree).chain(freed) {
            assert_eq!(known & pages, 0, "[L1] a page is twice in {self:?}");
            known |= pages;
        }
        assert_eq!(known, (1 << PAGES) - 1, "[L1] a page is lost in {self:?}");
    }
}

impl World {
    fn new(steps: Vec<Step>, deaths_left: u8, cuts_left: u8, flaw: Flaw) -> Self {
        let tree = Tree { free: (1 << PAGES) - 1, ..Tree::default() };
        Self {
            flaw,
            sizes_vary: false,
            steps,
            deaths_left,
            cuts_left,
            log: Vec::new(),
            published: 0,
            acknowledged: 0,
            writer: None,
            tree_writer: None,
            words: 0,
            renewals: 0,
            ahead: None,
            takes_ahead: false,
            pages: [0; PAGES],
            tree_on_disk: tree.clone(),
            tree,
            pages_on_disk: [0; PAGES],
            synced: 0,
            value: 0,
        }
    }

    fn is_dead(&self, process: u8) -> bool {
        self.steps[usize::from(process)] == Step::Dead
    }

    fn is_free(&self, owner: Option<u8>) -> bool {
        owner.is_none_or(|owner| self.is_dead(owner))
    }

    /// The oldest version that a reader has.
    fn oldest(&self) -> u8 {
        let versions = self.steps.iter().filter_map(|step| match step {
            Step::Look { tree } => Some(tree.version),
            Step::Hold { version, .. } => Some(*version),
            _ => None,
        });
        versions.min().unwrap_or(u8::MAX)
    }

    /// Commit a version of the tree: all of the file is synced before it.
    fn commit(&mut self, tree: Tree) {
        self.pages_on_disk = self.pages;
        self.tree = tree;
    }

    /// The newest of every key, up to a position.
    fn view(tree: &Tree, log: &[WalRecord]) -> [Option<(u8, Option<u8>)>; KEYS] {
        let mut seen = tree.keys;
        for wal_record in log.iter().skip(usize::from(tree.applied)) {
            for (key, put) in wal_record.puts.iter().enumerate() {
                if *put != Put::Nothing {
                    seen[key] = Some((wal_record.value, put.page()));
                }
            }
        }
        seen
    }

    fn is_intact(pages: [u8; PAGES], wal_record: WalRecord) -> bool {
        wal_record.pages().all(|page| pages[usize::from(page)] == wal_record.value)
    }

    /// [O1] How many WAL records an opener that is alone finds.
    fn found(&self, tree: &Tree, log: &[WalRecord], pages: [u8; PAGES]) -> usize {
        let verifies = self.flaw != Flaw::Unverified;
        let behind = log.iter().skip(usize::from(tree.applied));
        let is_there = |one: &&WalRecord| !one.is_torn && (!verifies || Self::is_intact(pages, **one));
        usize::from(tree.applied) + behind.take_while(is_there).count()
    }

    /// What a power cut can leave: a tree, how many WAL records, and the pages.
    fn cuts(&self) -> Vec<(Tree, usize, [u8; PAGES])> {
        let mut images = vec![self.pages_on_disk];
        for page in 0..PAGES {
            if self.pages[page] != self.pages_on_disk[page] {
                for image in images.clone() {
                    for content in [self.pages[page], TORN] {
                        let mut other = image;
                        other[page] = content;
                        images.push(other);
                    }
                }
            }
        }
        let mut trees = vec![self.tree_on_disk.clone()];
        if self.tree != self.tree_on_disk {
            trees.push(self.tree.clone());
        }
        let mut cuts = Vec::new();
        for tree in trees {
            for count in usize::from(self.synced.max(tree.applied))..=self.log.len() {
                cuts.extend(images.iter().map(|image| (tree.clone(), count, *image)));
            }
        }
        cuts
    }

    /// What an opener that is alone makes of a tree, a log and pages.
    fn check_found(&self, tree: &Tree, log: &[WalRecord], pages: [u8; PAGES], needed: u8) {
        let found = self.found(tree, log, pages);
        assert!(found >= usize::from(needed), "[L7] {found} of {needed} WAL records: {self:?}");
        for (value, page) in Self::view(tree, &log[..found]).into_iter().flatten() {
            let is_there = page.is_none_or(|page| pages[usize::from(page)] == value);
            assert!(is_there, "value {value} is not on its page: {self:?}");
        }
        let mut applied = tree.next(u8::MAX, self.flaw);
        applied.apply(log, found as u8, self.flaw);
        applied.check();
    }

    /// What must hold in every state.
    fn check(&self) {
        self.tree.check();
        // If all die now, and one opens.
        self.check_found(&self.tree, &self.log, self.pages, self.acknowledged);
        let mut named: Set = 0;
        for wal_record in self.log.iter().skip(usize::from(self.tree.applied)) {
            for page in wal_record.pages() {
                assert!(!has(named, page), "[L2] page {page} has two values: {self:?}");
                assert!(has(self.tree.reserve, page), "[L3] page {page} is not reserved: {self:?}");
                named |= 1 << page;
            }
        }
        for step in &self.steps {
            let Step::Hold { seen, .. } = step else { continue };
            for (value, page) in seen.iter().flatten() {
                let is_there = page.is_none_or(|page| self.pages[usize::from(page)] == *value);
                assert!(is_there, "[L5] a snapshot lost value {value}: {self:?}");
            }
        }
        for (tree, count, pages) in self.cuts() {
            self.check_found(&tree, &self.log[..count], pages, self.synced);
        }
    }

    /// Whether all others have ended, or have not begun.
    fn is_alone(&self, process: usize) -> bool {
        self.steps.iter().enumerate().all(|(number, step)| {
            number == process || matches!(step, Step::Dead | Step::Done | Step::Open { .. })
        })
    }

    /// [O1] Open alone: the words are emptied, what was found goes into the tree.
    fn open(&self, process: usize, left: u8, cut: (Tree, usize, [u8; PAGES])) -> Self {
        let (tree, count, pages) = cut;
        let mut next = self.clone();
        let found = self.found(&tree, &self.log[..count], pages);
        next.log.truncate(found);
        (next.published, next.acknowledged) = (found as u8, found as u8);
        (next.pages, next.pages_on_disk) = (pages, pages);
        let mut applied = tree.next(u8::MAX, self.flaw);
        applied.apply(&next.log, found as u8, self.flaw);
        if self.flaw != Flaw::WordsBelieved {
            next.words = 0;
        }
        next.ahead = None;
        next.tree = applied.clone();
        (next.tree_on_disk, next.synced) = (applied, found as u8);
        (next.writer, next.tree_writer) = (None, None);
        next.steps[process] = Step::Lock { left };
        next
    }

    /// The states that the next step of a process leads to.
    fn advance(&self, process: usize) -> Vec<Self> {
        match &self.steps[process] {
            Step::Open { left } if self.is_alone(process) => {
                let now = (self.tree.clone(), self.log.len(), self.pages);
                let mut nexts = vec![self.open(process, *left, now)];
                if self.cuts_left > 0 {
                    for cut in self.cuts() {
                        let mut next = self.open(process, *left, cut);
                        if self.flaw == Flaw::WordsBelieved {
                            // They may be of any moment.
                            next.words = (1 << PAGES) - 1;
                        }
                        next.cuts_left -= 1;
                        nexts.push(next);
                    }
                }
                nexts
            }
            Step::Dead | Step::Done | Step::Open { .. } => Vec::new(),
            Step::Checkpoint { .. } | Step::Commit { .. } | Step::Tell { .. } => self.checkpoint(process),
            Step::Sync { .. } | Step::EndSync { .. } => vec![self.sync(process)],
            Step::Begin | Step::Look { .. } | Step::Hold { .. } => vec![self.read(process)],
            _ => self.write(process),
        }
    }

    fn with(&self, process: usize, step: Step) -> Self {
        let mut next = self.clone();
        next.steps[process] = step;
        next
    }

    fn checkpoint(&self, process: usize) -> Vec<Self> {
        let next = match self.steps[process].clone() {
            Step::Checkpoint { left } => {
                if !self.is_free(self.tree_writer) {
                    return Vec::new();
                }
                let renewals = self.renewals;
                let mut next = self.with(process, Step::Commit { left, until: self.published, renewals });
                next.tree_writer = Some(process as u8);
                next
            }
            Step::Commit { left, until, renewals } => {
                let mut ahead = None;
                let mut next = self.clone();
                if until > self.tree.applied {
                    let mut tree = self.tree.next(self.oldest(), self.flaw);
                    tree.apply(&self.log, until, self.flaw);
                    if self.takes_ahead && self.ahead.is_none() {
                        ahead = Some((renewals, tree.take(1)));
                    }
                    next.commit(tree);
                }
                next.steps[process] = Step::Tell { left, ahead };
                next
            }
            Step::Tell { left, ahead } => {
                let after = if left == 0 { Step::Done } else { Step::Checkpoint { left: left - 1 } };
                let mut next = self.with(process, after);
                next.ahead = ahead.or(next.ahead);
                next.tell();
                next.tree_writer = None;
                next
            }
            _ => unreachable!("not a checkpoint's step"),
        };
        vec![next]
    }

    /// Sync the first page of the tree.
    fn tell(&mut self) {
        self.tree_on_disk = self.tree.clone();
        self.synced = self.synced.max(self.tree.applied);
    }

    fn sync(&self, process: usize) -> Self {
        match self.steps[process].clone() {
            Step::Sync { left } => {
                self.with(process, Step::EndSync { left, pages: self.pages, until: self.published })
            }
            Step::EndSync { left, pages, until } => {
                let after = if left == 0 { Step::Done } else { Step::Sync { left: left - 1 } };
                let mut next = self.with(process, after);
                if self.flaw != Flaw::SyncedLogAlone {
                    for (page, content) in pages.into_iter().enumerate() {
                        // Another sync may have found a newer content; that is on the disk as well.
                        if self.pages[page] == content {
                            next.pages_on_disk[page] = content;
                        }
                    }
                }
                next.synced = next.synced.max(until);
                next
            }
            _ => unreachable!("not a step of a sync"),
        }
    }

    fn read(&self, process: usize) -> Self {
        let step = match self.steps[process].clone() {
            Step::Begin => Step::Look { tree: self.tree.clone() },
            Step::Look { tree } => {
                let log = &self.log[..usize::from(self.published.max(tree.applied))];
                Step::Hold { version: tree.version, seen: Self::view(&tree, log) }
            }
            // It can take any time until here.
            _ => Step::Done,
        };
        self.with(process, step)
    }

    /// Take the writer lock, free or over from a dead owner.
    fn lock(&self, process: usize, left: u8) -> Vec<Self> {
        if !self.is_free(self.writer) {
            return Vec::new();
        }
        let mut next = self.clone();
        if self.writer.is_some() {
            // [W6] The chain says what is in the log.
            next.log.retain(|wal_record| !wal_record.is_torn);
            next.published = next.log.len() as u8;
        }
        next.writer = Some(process as u8);
        // Also the value of a transaction that is rolled back is another one.
        next.value += 1;
        // Pages may be left that are too short for the last value.
        let is_too_large = self.sizes_vary && left == 0 && self.is_free(self.tree_writer);
        let refill = is_too_large.then(|| next.begin_refill(process, left, Vec::new()));
        next.steps[process] = Step::Take { left, used: Vec::new(), can_take: next.words };
        std::iter::once(next).chain(refill).collect()
    }

    fn write(&self, process: usize) -> Vec<Self> {
        match self.steps[process].clone() {
            Step::Lock { left } => self.lock(process, left),
            Step::Take { left, used, can_take } => {
                if can_take != 0 {
                    return vec![self.with(process, Step::Write { left, used, can_take })];
                }
                if let Some((renewals, new)) = self.ahead {
                    let is_there = renewals == self.renewals || self.flaw == Flaw::AheadKept;
                    let new = if is_there { new } else { 0 };
                    let mut next = self.with(process, Step::Take { left, used, can_take: new });
                    (next.ahead, next.words) = (None, new);
                    return vec![next];
                }
                if !self.is_free(self.tree_writer) {
                    // [C5] It waits no longer: the value goes into the log.
                    return vec![self.with(process, Step::Note { left, used, is_copied: true })];
                }
                vec![self.begin_refill(process, left, used)]
            }
            Step::Empty { left, used } => {
                let mut next = self.with(process, Step::Refill { left, used });
                if self.flaw != Flaw::WordsKept {
                    next.words = 0;
                }
                next.renewals += 1;
                vec![next]
            }
            Step::Refill { left, used } => vec![self.refill(process, left, used)],
            Step::Fill { left, used, new } => {
                let after = if new == 0 {
                    Step::Note { left, used, is_copied: true }
                } else {
                    Step::Take { left, used, can_take: new }
                };
                let mut next = self.with(process, after);
                next.words = new;
                next.tell();
                next.tree_writer = None;
                vec![next]
            }
            Step::Write { left, used, can_take } => {
                let mut next = self.with(process, Step::Written { left, used, can_take });
                next.pages[can_take.trailing_zeros() as usize] = TORN;
                vec![next]
            }
            Step::Written { left, mut used, can_take } => {
                let page = can_take.trailing_zeros() as u8;
                used.push(page);
                let can_take = can_take & !(1 << page);
                let mut next = self.clone();
                next.pages[usize::from(page)] = self.value;
                // It commits, is rolled back and gives its pages back, or puts another value.
                let mut nexts =
                    vec![next.with(process, Step::Note { left, used: used.clone(), is_copied: false })];
                let mut rolled_back = next.with(process, Step::Unlock { left });
                rolled_back.words |= set_of(&used);
                nexts.push(rolled_back);
                if used.len() < KEYS {
                    nexts.push(next.with(process, Step::Take { left, used, can_take }));
                }
                nexts
            }
            step => vec![self.append(process, step)],
        }
    }

    /// Take the tree's lock.
    fn begin_refill(&self, process: usize, left: u8, used: Vec<u8>) -> Self {
        let mut next = self.with(process, Step::Empty { left, used });
        next.tree_writer = Some(process as u8);
        next
    }

    /// The transaction of a refill, which also applies all that is pending. The writer has values on
    /// the pages that are `used`.
    fn refill(&self, process: usize, left: u8, used: Vec<u8>) -> Self {
        let mut tree = self.tree.next(self.oldest(), self.flaw);
        if self.flaw != Flaw::RefilledEarly {
            tree.apply(&self.log, self.published.max(tree.applied), self.flaw);
        }
        let kept = if self.flaw == Flaw::UsedFreed { 0 } else { set_of(&used) };
        let lost = tree.reserve & !kept;
        tree.give(lost);
        tree.reserve &= kept;
        let new = tree.take(REFILL);
        let mut next = self.with(process, Step::Fill { left, used, new });
        next.commit(tree);
        next
    }

    /// The steps from the words to the end of a commit.
    fn append(&self, process: usize, step: Step) -> Self {
        let mut next = self.clone();
        next.steps[process] = match step {
            Step::Note { left, used, is_copied } => {
                if self.flaw != Flaw::NotedLate {
                    next.words &= !set_of(&used);
                }
                Step::Append { left, used, is_copied }
            }
            Step::Append { left, used, is_copied } => {
                let mut puts = [Put::Nothing; KEYS];
                let new = used.into_iter().map(Put::Placed).chain(is_copied.then_some(Put::Copied));
                for (put, new) in puts.iter_mut().zip(new) {
                    *put = new;
                }
                next.log.push(WalRecord { value: self.value, puts, is_torn: true });
                Step::Complete { left }
            }
            Step::Complete { left } => {
                next.log.last_mut().expect("it was appended").is_torn = false;
                Step::Publish { left }
            }
            Step::Publish { left } => {
                next.published = next.log.len() as u8;
                let pages: Vec<u8> = next.log.last().expect("it was appended").pages().collect();
                match self.flaw {
                    Flaw::NotedLate => next.words &= !set_of(&pages),
                    Flaw::GivenBackAfterCommit => next.words |= set_of(&pages),
                    _ => {}
                }
                Step::Unlock { left }
            }
            Step::Unlock { left } => {
                next.acknowledged = next.acknowledged.max(next.published);
                next.writer = None;
                if left == 0 { Step::Done } else { Step::Lock { left: left - 1 } }
            }
            _ => unreachable!("not a writer's step"),
        };
        next
    }
}

/// Visit every state. Returns their number.
fn explore(begin: World) -> usize {
    let mut known = HashSet::from([begin.clone()]);
    let mut open = vec![begin];
    while let Some(world) = open.pop() {
        world.check();
        for process in 0..world.steps.len() {
            let mut nexts = world.advance(process);
            let can_die = !matches!(world.steps[process], Step::Dead | Step::Done | Step::Open { .. });
            if can_die && world.deaths_left > 0 {
                let mut dead = world.with(process, Step::Dead);
                dead.deaths_left -= 1;
                nexts.push(dead);
            }
            for next in nexts {
                if known.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    known.len()
}

fn writer(commits: u8) -> Step {
    Step::Lock { left: commits - 1 }
}

#[test]
fn values_and_pages_stay_together_after_any_death() {
    let steps = vec![writer(2), writer(1), Step::Checkpoint { left: 1 }];
    let states = explore(World::new(steps, 1, 0, Flaw::None));
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn pages_that_are_left_out_come_back() {
    let world = World::new(vec![writer(2), writer(2)], 1, 0, Flaw::None);
    let states = explore(World { sizes_vary: true, ..world });
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn pages_taken_ahead_are_used_once_or_come_back() {
    let world = World::new(vec![writer(2), writer(2), Step::Checkpoint { left: 1 }], 1, 0, Flaw::None);
    let states = explore(World { takes_ahead: true, sizes_vary: true, ..world });
    assert!(states > 1000, "explored {states} states");
    let world =
        World::new(vec![writer(3), Step::Checkpoint { left: 1 }, Step::Open { left: 1 }], 2, 1, Flaw::None);
    let states = explore(World { takes_ahead: true, ..world });
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn a_snapshot_keeps_the_values_that_it_sees() {
    let steps = vec![writer(3), Step::Begin, Step::Checkpoint { left: 1 }];
    let states = explore(World::new(steps, 0, 0, Flaw::None));
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn a_power_cut_leaves_a_prefix_with_all_its_values() {
    let states = explore(World::new(
        vec![writer(2), Step::Checkpoint { left: 0 }, Step::Sync { left: 0 }, Step::Open { left: 1 }],
        2,
        1,
        Flaw::None,
    ));
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn flaws_are_found() {
    let (checkpoint, open) = (|| Step::Checkpoint { left: 1 }, || Step::Open { left: 1 });
    for (flaw, steps) in [
        (Flaw::NotedLate, vec![writer(2), writer(1)]),
        (Flaw::WordsKept, vec![writer(3), writer(2)]),
        (Flaw::WordsBelieved, vec![writer(2), open()]),
        (Flaw::AheadKept, vec![writer(3), writer(2), checkpoint()]),
        (Flaw::GivenBackAfterCommit, vec![writer(2), writer(1)]),
        (Flaw::RefilledEarly, vec![writer(3)]),
        (Flaw::UsedFreed, vec![writer(3)]),
        (Flaw::LeftInReserve, vec![writer(2), checkpoint()]),
        (Flaw::ReplacedForgotten, vec![writer(2), checkpoint()]),
        (Flaw::ReusedAtOnce, vec![writer(4), checkpoint(), Step::Begin]),
        (Flaw::SyncedLogAlone, vec![writer(2), Step::Sync { left: 0 }]),
        (Flaw::Unverified, vec![writer(2), open()]),
    ] {
        let world = World {
            sizes_vary: matches!(flaw, Flaw::WordsKept | Flaw::AheadKept),
            takes_ahead: flaw == Flaw::AheadKept,
            ..World::new(steps, 1, 1, flaw)
        };
        let found = std::panic::catch_unwind(|| explore(world));
        assert!(found.is_err(), "{flaw:?} went unnoticed");
    }
}
