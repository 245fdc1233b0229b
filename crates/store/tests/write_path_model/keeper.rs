//! What does a process see that keeps its tree and its layers from one look to the next?

use super::{Flaw, Shared, Step, World};

/// Layers that a snapshot has: one for each area.
const LAYERS: usize = 2;

/// A process that looks so many times more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Keeper {
    looks_left: u8,
    stage: Stage,
    /// How much its tree has.
    kept: u8,
    /// Oldest first.
    layers: Vec<Layer>,
}

/// What it does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Look,
    /// Read what is acknowledged; what was when it looked must be in what it sees.
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

/// What was read of one use of an area.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Layer {
    area: usize,
    salt: u8,
    begin: u8,
    authors: Vec<u8>,
}

impl Layer {
    fn end(&self) -> u8 {
        self.begin + self.authors.len() as u8
    }
}

impl Keeper {
    pub(super) fn new(looks: u8) -> Self {
        Self { looks_left: looks, stage: Stage::Look, kept: 0, layers: Vec::new() }
    }

    fn position(&self) -> u8 {
        self.layers.last().map_or(self.kept, Layer::end)
    }

    /// Forget the layers that the tree has, but for the last one: it says where to go on.
    fn take_tree(&mut self, shared: &Shared) {
        self.kept = shared.tree.len() as u8;
        while self.layers.len() > 1 && self.layers[0].end() <= self.kept {
            self.layers.remove(0);
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

    /// Read a group, enter the next area or begin again.
    fn read(&mut self, world: &World) {
        let shared = &world.shared;
        let position = self.position();
        if let Some(last) = self.layers.last_mut() {
            let area = &shared.areas[last.area];
            let slot = usize::from(position - last.begin);
            let is_same = area.salt == last.salt && area.begin == last.begin;
            if is_same && let Some(group) = area.chain().get(slot) {
                last.authors.push(group.author);
                return;
            }
            let (number, has_any) = (1 - last.area, !last.authors.is_empty());
            let other = &shared.areas[number];
            if has_any && other.salt != 0 && other.begin == position {
                // [C2] It was begun anew, so that a tree has what it held before.
                if self.layers.len() >= LAYERS && world.flaw != Flaw::KeptTooLong {
                    self.take_tree(shared);
                }
                self.layers.push(Layer {
                    area: number,
                    salt: other.salt,
                    begin: position,
                    authors: Vec::new(),
                });
                return;
            }
        }
        // [R6] Overtaken.
        self.kept = shared.tree.len() as u8;
        self.layers.clear();
        let begins = |area: &usize| shared.areas[*area].salt != 0 && shared.areas[*area].begin == self.kept;
        if let Some(area) = [shared.active, 1 - shared.active].into_iter().find(begins) {
            let (begin, salt) = (self.kept, shared.areas[area].salt);
            self.layers.push(Layer { area, salt, begin, authors: Vec::new() });
        }
    }

    /// [R1, R2] Its tree, then what its last layers have beyond it.
    fn see(&self, shared: &Shared, floor: u8) {
        let mut view = shared.tree[..usize::from(self.kept)].to_vec();
        for layer in &self.layers[self.layers.len().saturating_sub(LAYERS)..] {
            if layer.end() <= view.len() as u8 {
                continue;
            }
            assert!(
                usize::from(layer.begin) <= view.len(),
                "[R2] a hole behind the tree: {self:?} of {shared:?}"
            );
            view.extend(&layer.authors[view.len() - usize::from(layer.begin)..]);
        }
        assert!(view.len() >= usize::from(floor), "[R3] lacks what was acknowledged: {self:?} of {shared:?}");
        assert!(shared.history.starts_with(&view), "[R1] {view:?} is no version of {shared:?}");
    }
}
