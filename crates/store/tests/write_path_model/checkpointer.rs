//! A process in the model that keeps its tree and its memtables from one look to the next.

use super::{Flaw, Shared, Step, World};

/// Memtables of a snapshot: one for each segment.
const LAYERS: usize = 2;

/// A process that looks this many times more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Checkpointer {
    looks_left: u8,
    stage: Stage,
    /// How much its tree has.
    kept: u8,
    /// Oldest first.
    memtables: Vec<Memtable>,
}

/// Its next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Look,
    /// Read what is acknowledged. Everything acknowledged at the look must become visible.
    Read {
        goal: u8,
        floor: u8,
    },
    /// Take a newer tree if the log's head says that there is one.
    AskHint {
        floor: u8,
    },
    See {
        floor: u8,
    },
}

/// The records read from one use of a segment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Memtable {
    segment: usize,
    salt: u8,
    begin: u8,
    authors: Vec<u8>,
}

impl Memtable {
    fn end(&self) -> u8 {
        self.begin + self.authors.len() as u8
    }
}

impl Checkpointer {
    pub(super) fn new(looks: u8) -> Self {
        Self { looks_left: looks, stage: Stage::Look, kept: 0, memtables: Vec::new() }
    }

    fn position(&self) -> u8 {
        self.memtables.last().map_or(self.kept, Memtable::end)
    }

    /// Drop the memtables that the tree contains, except for the last one: it marks where to go on.
    fn take_tree(&mut self, shared: &Shared) {
        self.kept = shared.tree.len() as u8;
        while self.memtables.len() > 1 && self.memtables[0].end() <= self.kept {
            self.memtables.remove(0);
        }
    }

    pub(super) fn advance(mut self, world: &World) -> Step {
        let shared = &world.shared;
        match self.stage {
            Stage::Look => {
                self.stage = Stage::Read { goal: shared.sequence, floor: shared.acknowledged };
            }
            Stage::Read { goal, floor } if self.position() >= goal => self.stage = Stage::AskHint { floor },
            Stage::Read { .. } => self.read(world),
            Stage::AskHint { floor } => {
                self.stage = Stage::See { floor };
                if shared.hint > self.kept {
                    self.take_tree(shared);
                    if self.kept > self.position() && self.kept <= shared.sequence {
                        self.stage = Stage::Read { goal: shared.sequence, floor };
                    }
                }
            }
            Stage::See { floor } => {
                self.see(shared, floor);
                self.looks_left -= 1;
                self.stage = Stage::Look;
                if self.looks_left == 0 {
                    return Step::Done;
                }
            }
        }
        Step::Keep(self)
    }

    /// Read a WAL record, enter the next segment, or begin again.
    fn read(&mut self, world: &World) {
        let shared = &world.shared;
        let position = self.position();
        if let Some(last) = self.memtables.last_mut() {
            let segment = &shared.segments[last.segment];
            let slot = usize::from(position - last.begin);
            let is_same = segment.salt == last.salt && segment.begin == last.begin;
            if is_same && let Some(wal_record) = segment.chain().get(slot) {
                last.authors.push(wal_record.author);
                return;
            }
            let (number, has_any) = (1 - last.segment, !last.authors.is_empty());
            let other = &shared.segments[number];
            if has_any && other.salt != 0 && other.begin == position {
                // [C2] The segment was begun anew, so a tree has its old content.
                if self.memtables.len() >= LAYERS && world.flaw != Flaw::KeptTooLong {
                    self.take_tree(shared);
                }
                self.memtables.push(Memtable {
                    segment: number,
                    salt: other.salt,
                    begin: position,
                    authors: Vec::new(),
                });
                return;
            }
        }
        // [R6] Overtaken.
        self.kept = shared.tree.len() as u8;
        self.memtables.clear();
        let begins = |segment: &usize| {
            shared.segments[*segment].salt != 0 && shared.segments[*segment].begin == self.kept
        };
        if let Some(segment) = [shared.active, 1 - shared.active].into_iter().find(begins) {
            let (begin, salt) = (self.kept, shared.segments[segment].salt);
            self.memtables.push(Memtable { segment, salt, begin, authors: Vec::new() });
        }
    }

    /// [R1, R2] Its tree, then what its last memtables have beyond it.
    fn see(&self, shared: &Shared, floor: u8) {
        let mut view = shared.tree[..usize::from(self.kept)].to_vec();
        for memtable in &self.memtables[self.memtables.len().saturating_sub(LAYERS)..] {
            if memtable.end() <= view.len() as u8 {
                continue;
            }
            assert!(
                usize::from(memtable.begin) <= view.len(),
                "[R2] a hole after the tree: {self:?} of {shared:?}"
            );
            view.extend(&memtable.authors[view.len() - usize::from(memtable.begin)..]);
        }
        assert!(view.len() >= usize::from(floor), "[R3] lacks what was acknowledged: {self:?} of {shared:?}");
        assert!(shared.history.starts_with(&view), "[R1] {view:?} is no version of {shared:?}");
    }
}
