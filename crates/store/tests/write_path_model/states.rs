//! Explores the states of the model.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::xxh3_128;

use super::{Flaw, Step, World, advance, give_up, takeover};

/// The bytes of a state. A visited state is remembered by a hash of them, which is unique among so
/// few millions: storing the states themselves took most of the time.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn number_of(&mut self, world: &World) -> u128 {
        self.0.clear();
        world.hash(self);
        xxh3_128(&self.0)
    }
}

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Visit every state. Returns their number.
pub(super) fn explore(steps: Vec<Step>, deaths: u8, flaw: Flaw) -> usize {
    explore_from(World::new(steps, deaths, flaw, false))
}

/// The same with writers that wait for the disk.
pub(super) fn explore_full(steps: Vec<Step>, deaths: u8, flaw: Flaw) -> usize {
    explore_from(World::new(steps, deaths, flaw, true))
}

pub(super) fn explore_from(begin: World) -> usize {
    let mut bytes = Bytes::default();
    let mut known: HashSet<u128> = HashSet::from([bytes.number_of(&begin)]);
    let mut open = vec![begin];
    while let Some(world) = open.pop() {
        world.shared.check();
        world.check_uncounted();
        for process in 0..world.steps.len() as u8 {
            let mut nexts: Vec<World> = advance(&world, process).into_iter().collect();
            let is_alive = !matches!(world.steps[usize::from(process)], Step::Dead | Step::Done);
            if let Step::TakeOver { stage: takeover::Stage::Sync, .. } = world.steps[usize::from(process)] {
                nexts.extend(takeover::after_power_cut(&world, process));
            }
            if is_alive && nexts.is_empty() {
                nexts.push(give_up(&world, process));
            }
            if is_alive && world.deaths_left > 0 {
                let mut dead = world.clone();
                dead.steps[usize::from(process)] = Step::Dead;
                dead.deaths_left -= 1;
                nexts.push(dead);
            }
            for next in nexts {
                if known.insert(bytes.number_of(&next)) {
                    open.push(next);
                }
            }
        }
    }
    known.len()
}
