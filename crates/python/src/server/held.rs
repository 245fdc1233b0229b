//! Values that stay where they are once they were added, found by their ids.
//!
//! A reference to a value lives as long as the whole, also while more are added. So the values are
//! the nodes of a tree that only grows: the bits of an id say which way to go, four at a time.

use std::sync::OnceLock;

const WAY_BITS: u32 = 4;
const WAY_COUNT: usize = 1 << WAY_BITS;

/// Values by their ids.
pub struct Held<T> {
    first: Place<T>,
}

type Place<T> = OnceLock<Box<Node<T>>>;

struct Node<T> {
    id: u64,
    value: T,
    behind: [Place<T>; WAY_COUNT],
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { first: OnceLock::new() }
    }
}

impl<T> Held<T> {
    /// The value with this id, if it was added.
    pub fn get(&self, id: u64) -> Option<&T> {
        self.path(id).ok().map(|node| &node.value)
    }

    /// Adds a value. If the id has one already, that one stays and is returned.
    pub fn add(&self, id: u64, value: T) -> &T {
        let mut left = Some(Box::new(Node { id, value, behind: [const { OnceLock::new() }; WAY_COUNT] }));
        loop {
            match self.path(id) {
                Ok(node) => return &node.value,
                // Another thread may take the place first: then go on behind its value.
                Err(place) => left = left.take().and_then(|node| place.set(node).err()),
            }
        }
    }

    /// The node of an id, or the place where it would be.
    #[expect(clippy::indexing_slicing, reason = "the remainder is below the number of ways")]
    fn path(&self, id: u64) -> Result<&Node<T>, &Place<T>> {
        let (mut place, mut way) = (&self.first, spread(id));
        while let Some(node) = place.get() {
            if node.id == id {
                return Ok(node);
            }
            place = &node.behind[way as usize % WAY_COUNT];
            way = way.rotate_right(WAY_BITS);
        }
        Err(place)
    }
}

/// Mixes the bits of an id (the last steps of `SplitMix64`): neighbours differ in few of them.
/// Different ids stay different, so that no way is longer than an id has bits.
fn spread(id: u64) -> u64 {
    let mixed = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test that panics has failed")]

    use super::*;

    /// How many nodes lie between the first one and the place of an id.
    fn depth<T>(held: &Held<T>, id: u64) -> usize {
        let (mut place, mut way, mut count) = (&held.first, spread(id), 0);
        while let Some(node) = place.get().filter(|node| node.id != id) {
            place = &node.behind[way as usize % WAY_COUNT];
            way = way.rotate_right(WAY_BITS);
            count += 1;
        }
        count
    }

    #[test]
    fn values_are_found_in_few_steps_however_many_there_are() {
        let series: [fn(u64) -> u64; 5] =
            [|n| n, |n| n << 20, |n| n << 44, |n| u64::MAX - n, |n| n.wrapping_mul(0x1234_5678_9ABC_DEF1)];
        for ids in series {
            let held = Held::default();
            for number in 0..20_000 {
                assert_eq!(*held.add(ids(number), number), number);
            }
            let depths: Vec<usize> = (0..20_000).map(|number| depth(&held, ids(number))).collect();
            assert!(depths.iter().sum::<usize>() < 20_000 * 6, "{}", depths.iter().sum::<usize>());
            assert!(depths.iter().all(|&depth| depth <= 16));
            assert!((0..20_000).all(|number| held.get(ids(number)) == Some(&number)));
            assert_eq!(held.get(ids(20_000)), None);
        }
    }

    #[test]
    fn the_first_value_of_an_id_stays() {
        let held = Held::default();
        let first = held.add(7, "first");
        assert_eq!(*held.add(7, "second"), "first");
        assert_eq!((*first, held.get(8)), ("first", None));
    }

    #[test]
    fn threads_add_to_one_tree() {
        let held = Held::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for id in 0..2_000 {
                        assert_eq!(*held.add(id, id), id);
                    }
                });
            }
        });
        assert!((0..2_000).all(|id| held.get(id) == Some(&id)));
    }
}
