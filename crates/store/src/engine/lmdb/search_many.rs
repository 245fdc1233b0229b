//! Searches several keys in one of LMDB's trees together, so that their waits for memory overlap.
//!
//! A search in a large tree mostly waits: for the head of a leaf, then for each node that it
//! compares with. Here some searches take turns. Each prefetches what it reads next, and while that
//! comes, the others do their step. What is found is a hint: a page and an entry of it, which
//! `get_at` verifies by the entry's key. So a search that is unsure of a page just says nothing.

use std::cmp::Ordering;

use crate::engine::EntryPlace;
use crate::engine::lmdb::format::{DEPTH_MAX, TreeHead};
use crate::engine::lmdb::page::{PAGE_BRANCH, PAGE_LEAF, Pages};
use crate::engine::lmdb::search::{Nodes, Sought, ask_for_bytes};

/// Searches that take turns: more than the cache lines that a processor core waits for at a time.
const TURNS: usize = 16;
/// Bytes of a page with its head and the offsets of its nodes.
const LEAF_HEAD_SIZE: usize = 64;
const BRANCH_HEAD_SIZE: usize = 192;
/// Bytes of a value that are prefetched.
const VALUE_SIZE_ASKED: usize = 256;

/// Find where the entries of these keys are, as far as they exist and their pages are as they
/// should be.
pub(crate) fn find<'m>(pages: Pages<'m>, tree: &TreeHead, keys: &[&[u8]], places: &mut [EntryPlace]) {
    if tree.is_empty() || tree.depth == 0 || tree.depth > DEPTH_MAX {
        return;
    }
    for (keys, places) in keys.chunks(TURNS).zip(places.chunks_mut(TURNS)) {
        let mut searches: [Option<Search<'_, 'm>>; TURNS] = [const { None }; TURNS];
        for (search, key) in searches.iter_mut().zip(keys) {
            *search = Some(Search { sought: Sought::new(key), page: tree.root, at: None });
        }
        for level in 1..=tree.depth {
            let is_leaf = level == tree.depth;
            let kind = if is_leaf { PAGE_LEAF } else { PAGE_BRANCH };
            in_turn(&mut searches, |search| search.enter(pages, kind));
            while in_turn(&mut searches, Search::step) {}
            if !is_leaf {
                in_turn(&mut searches, |search| search.descend(pages, level + 1 == tree.depth));
            }
        }
        for (search, place) in searches.iter().zip(places) {
            if let Some(found) = search.as_ref().and_then(|search| search.found(pages)) {
                *place = found;
            }
        }
    }
}

/// Search these keys for no other reason than that their pages are cached afterwards.
pub(crate) fn ask_for(pages: Pages<'_>, tree: &TreeHead, keys: &[&[u8]]) {
    let mut places = [EntryPlace::default(); TURNS];
    for keys in keys.chunks(TURNS) {
        find(pages, tree, keys, &mut places);
    }
}

/// Have each search do a step, and forget those that are unsure. Whether one has more to do.
fn in_turn<'k, 'm>(
    searches: &mut [Option<Search<'k, 'm>>],
    step: impl Fn(&mut Search<'k, 'm>) -> Option<bool>,
) -> bool {
    let mut goes_on = false;
    for place in searches {
        if let Some(search) = place {
            match step(search) {
                Some(more) => goes_on |= more,
                None => *place = None,
            }
        }
    }
    goes_on
}

/// One search: the page that it has come to.
struct Search<'k, 'm> {
    sought: Sought<'k>,
    page: u64,
    at: Option<Within<'m>>,
}

/// Where a search is in a page: all nodes before `low` are below the key, and none from
/// `low + count - 1` on.
struct Within<'m> {
    nodes: Nodes<'m>,
    low: usize,
    count: usize,
    is_there: bool,
}

impl<'m> Search<'_, 'm> {
    /// Begin in the page that was prefetched.
    fn enter(&mut self, pages: Pages<'m>, kind: u16) -> Option<bool> {
        let nodes = pages.nodes(self.page, kind)?;
        // A branch's first key is never compared.
        let low = usize::from(kind == PAGE_BRANCH);
        self.sought.skip_known();
        let within = Within { nodes, low, count: nodes.count() + 1 - low, is_there: false };
        within.ask_for_next(&self.sought);
        self.at = Some(within);
        Some(true)
    }

    /// Compare with one node.
    fn step(&mut self) -> Option<bool> {
        let at = self.at.as_mut()?;
        if at.count <= 1 {
            return Some(false);
        }
        let half = at.count / 2;
        at.count -= half;
        let middle = at.low + half - 1;
        match at.nodes.compare(middle, &mut self.sought)? {
            Ordering::Less => at.low += half,
            Ordering::Greater => {}
            Ordering::Equal => (at.low, at.count, at.is_there) = (middle, 1, true),
        }
        at.ask_for_next(&self.sought);
        Some(at.count > 1)
    }

    /// Go to the child that the search in a branch has led to.
    fn descend(&mut self, pages: Pages<'m>, is_leaf: bool) -> Option<bool> {
        let at = self.at.as_ref()?;
        let child = if at.is_there { at.low } else { at.low.checked_sub(1)? };
        self.page = at.nodes.child(child)?;
        let size = if is_leaf { LEAF_HEAD_SIZE } else { BRANCH_HEAD_SIZE };
        ask_for_bytes(pages.page(self.page)?.get(..size)?);
        Some(false)
    }

    /// The place of the entry, whose value is prefetched.
    fn found(&self, pages: Pages<'m>) -> Option<EntryPlace> {
        let at = self.at.as_ref().filter(|at| at.is_there)?;
        let (_, value) = pages.leaf(self.page)?.entry(at.low)?;
        ask_for_bytes(value.get(..VALUE_SIZE_ASKED).unwrap_or(value));
        Some(EntryPlace { version: pages.number(), page: self.page, index: at.low })
    }
}

impl Within<'_> {
    /// Prefetch the node that is compared next.
    fn ask_for_next(&self, sought: &Sought<'_>) {
        if self.count > 1 {
            self.nodes.ask_for_node(self.low + self.count / 2 - 1, sought.known());
        }
    }
}

/// The value of a key that `find` has found at this place. `None` if it is not there.
#[inline]
pub(crate) fn get_at<'m>(pages: Pages<'m>, key: &[u8], place: EntryPlace) -> Option<&'m [u8]> {
    if place.version != pages.number() {
        return None;
    }
    let entry = pages.leaf(place.page)?.entry(place.index);
    entry.filter(|(own, _)| *own == key).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lmdb::search::tests::{PAGE_SIZE, entries, file_of, key_of, value_of};

    /// Numbers of entries, far from each other and near, and of keys that do not exist.
    fn numbers() -> Vec<u64> {
        (0..200).map(|place| place * 7919 % 13_000).chain(5_000..5_050).collect()
    }

    fn found(pages: Pages<'_>, tree: &TreeHead, keys: &[Vec<u8>]) -> Vec<EntryPlace> {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut places = vec![EntryPlace::default(); keys.len()];
        find(pages, tree, &keys, &mut places);
        places
    }

    #[test]
    fn all_entries_are_found_and_nothing_else() {
        let entries = entries();
        let (bytes, tree) = file_of(&entries);
        assert!(tree.depth > 2, "with branches above branches");
        let pages = Pages::of_bytes(&bytes, PAGE_SIZE);
        let mut keys: Vec<Vec<u8>> = numbers().into_iter().map(key_of).collect();
        keys.extend([Vec::new(), vec![0], vec![0xFF; 20], [key_of(3), vec![0]].concat()]);
        for (key, place) in keys.iter().zip(found(pages, &tree, &keys)) {
            let value = get_at(pages, key, place);
            assert_eq!(value, entries.get(key).map(Vec::as_slice), "{key:?}");
        }
    }

    #[test]
    fn a_place_of_another_version_or_key_gives_nothing() {
        let (bytes, tree) = file_of(&entries());
        let (pages, others) = (Pages::of_bytes(&bytes, PAGE_SIZE), Pages::of_bytes(&bytes, PAGE_SIZE));
        let [place] = found(pages, &tree, &[key_of(7)])[..] else { panic!("one key, one place") };
        assert_eq!(get_at(pages, &key_of(7), place), Some(&value_of(7)[..]));
        assert_eq!(get_at(others, &key_of(7), place), None);
        assert_eq!(get_at(pages, &key_of(8), place), None);
        assert_eq!(get_at(pages, &key_of(7), EntryPlace { index: 1_000, ..place }), None);
        assert_eq!(get_at(pages, &key_of(7), EntryPlace { page: u64::MAX, ..place }), None);
        assert_eq!(get_at(pages, &key_of(7), EntryPlace::default()), None);
    }

    #[test]
    fn damage_hides_entries_but_gives_no_other_keys_value() {
        let (sound, tree) = file_of(&entries());
        let numbers = numbers();
        let keys: Vec<Vec<u8>> = numbers.iter().copied().map(key_of).collect();
        let mut hidden = 0;
        for page in (2..sound.len() / PAGE_SIZE).step_by(3) {
            for byte in [0, 0x55, 0xFF] {
                let mut bytes = sound.clone();
                bytes[page * PAGE_SIZE + 10..(page + 1) * PAGE_SIZE - 300].fill(byte);
                let pages = Pages::of_bytes(&bytes, PAGE_SIZE);
                for ((number, key), place) in numbers.iter().zip(&keys).zip(found(pages, &tree, &keys)) {
                    match get_at(pages, key, place) {
                        Some(value) => assert_eq!(value, value_of(*number)),
                        None => hidden += 1,
                    }
                }
            }
        }
        assert!(hidden > 0);
    }
}
