//! Searches a key in LMDB's trees, in the map, with prefetching.
//!
//! LMDB's own search compares with one key after the other, each with a call, and each waits for
//! memory: it touches six cache lines of a page or more in sequence, and a page of a large tree is
//! in no cache. Here the keys that the next four steps may compare with are prefetched together.
//! The prefix that the key shares with all keys of a page is not compared again. And no cursor is
//! made.
//!
//! Lookups that follow each other often lead to the same leaf. Each thread remembers the way to the
//! leaves of its last searches. If a key lies between the two keys of the branch above such a leaf
//! that lead to it and to the next one, only the leaf is searched.
//!
//! Pages are read in the map, as by walks (`engine/lmdb/walk.rs`): each number is checked against
//! the page and the map before it is used. If anything does not look as it should, the search ends
//! without an answer, and a walk searches and reports the error. Bytes that need no comparison in a
//! sound tree may differ in a damaged one, so the key of the found entry is compared as a whole.
//! Damage may hide an entry, but never returns another key's.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Range;

use crate::engine::Entry;
use crate::engine::lmdb::format::{DEPTH_MAX, TreeHead};
use crate::engine::lmdb::page::{
    Leaf, NODE_HEAD_SIZE, PAGE_BRANCH, PAGE_HEAD_SIZE, Pages, read_u16, read_u32, read_u64,
};
use crate::sys::os::prefetch;

/// The size of a cache line.
const LINE_SIZE: usize = 64;
/// Cache lines with the head of a page and the offsets of all nodes, unless the nodes are very
/// short.
const HEAD_LINES: usize = 3;
/// Bytes of head and offsets in a page of some forty nodes.
const HEAD_SIZE_USUAL: usize = 96;

/// A page does not look as it should: a walk has to search.
pub(crate) struct Unsure;

/// The value of a key.
pub(crate) fn get<'m>(pages: Pages<'m>, tree: &TreeHead, key: &[u8]) -> Result<Option<&'m [u8]>, Unsure> {
    if tree.is_empty() {
        return Ok(None);
    }
    let found = LeafPosition::of(pages, tree, key).ok_or(Unsure)?;
    if !found.is_there {
        return Ok(None);
    }
    let entry = found.leaf.entry(found.index).filter(|(own, _)| *own == key);
    entry.map(|(_, value)| Some(value)).ok_or(Unsure)
}

/// The first entry from a key on.
pub(crate) fn at_or_above<'m>(
    pages: Pages<'m>,
    tree: &TreeHead,
    key: &[u8],
) -> Result<Option<Entry<'m>>, Unsure> {
    if tree.is_empty() {
        return Ok(None);
    }
    let found = LeafPosition::of(pages, tree, key).ok_or(Unsure)?;
    let entry = if found.index < found.leaf.count() {
        found.leaf.entry(found.index)
    } else {
        let Some(aside) = found.right else { return Ok(None) };
        aside.leaf(pages, |_| 0).and_then(|leaf| leaf.entry(0))
    };
    entry.filter(|(own, _)| *own >= key).map(Some).ok_or(Unsure)
}

/// The last entry below a key.
pub(crate) fn below<'m>(pages: Pages<'m>, tree: &TreeHead, key: &[u8]) -> Result<Option<Entry<'m>>, Unsure> {
    if tree.is_empty() {
        return Ok(None);
    }
    let found = LeafPosition::of(pages, tree, key).ok_or(Unsure)?;
    let entry = if let Some(before) = found.index.checked_sub(1) {
        found.leaf.entry(before)
    } else {
        let Some(aside) = found.left else { return Ok(None) };
        let leaf = aside.leaf(pages, |count| count - 1);
        leaf.and_then(|leaf| leaf.entry(leaf.count().checked_sub(1)?))
    };
    entry.filter(|(own, _)| *own < key).map(Some).ok_or(Unsure)
}

/// Where a key is, or would be.
struct LeafPosition<'m> {
    leaf: Leaf<'m>,
    /// The first entry that is not below the key.
    index: usize,
    /// Whether that entry has the key.
    is_there: bool,
    /// The neighbours of the leaf.
    left: Option<Aside<'m>>,
    right: Option<Aside<'m>>,
}

/// A child of a branch, beside the way of the search, and the number of branch levels from it on.
#[derive(Clone, Copy)]
struct Aside<'m> {
    nodes: Nodes<'m>,
    child: usize,
    branches: u16,
}

impl<'m> Aside<'m> {
    /// The neighbours of a child, where they are in the same branch.
    #[inline]
    fn both(nodes: Nodes<'m>, child: usize, branches: u16) -> (Option<Self>, Option<Self>) {
        let of = |child| Self { nodes, child, branches };
        (child.checked_sub(1).map(of), Some(child + 1).filter(|child| *child < nodes.count()).map(of))
    }

    /// The leaf at one edge of this subtree.
    fn leaf(self, pages: Pages<'m>, edge: impl Fn(usize) -> usize) -> Option<Leaf<'m>> {
        let mut number = self.nodes.child(self.child)?;
        for _ in 0..self.branches {
            let nodes = pages.nodes(number, PAGE_BRANCH)?;
            number = nodes.child(edge(nodes.count()))?;
        }
        pages.leaf(number)
    }
}

impl<'m> LeafPosition<'m> {
    #[inline]
    fn of(pages: Pages<'m>, tree: &TreeHead, key: &[u8]) -> Option<Self> {
        let place = SearchPath::place_of(key);
        if let Some(way) = SearchPath::last(place, pages, tree)
            && let Some((found, way)) = Self::along(way, pages, key)
        {
            way.remember(place);
            return Some(found);
        }
        let (found, way) = Self::from_root(pages, tree, key)?;
        way.remember(place);
        Some(found)
    }

    fn from_root(pages: Pages<'m>, tree: &TreeHead, key: &[u8]) -> Option<(Self, SearchPath)> {
        // Most levels of a tree that is cached as soon as it is read.
        const DEPTH_NEAR: u16 = 3;
        if tree.depth == 0 || tree.depth > DEPTH_MAX {
            return None;
        }
        let is_far = tree.depth > DEPTH_NEAR;
        let (mut number, mut left, mut right) = (tree.root, None, None);
        let mut way = SearchPath { version: pages.number(), root: tree.root, branch: 0, child: 0, index: 0 };
        let mut sought = Sought::new(key);
        for branches in (0..tree.depth - 1).rev() {
            let nodes = pages.nodes(number, PAGE_BRANCH)?;
            // A branch's first key is never compared: the first child has everything below the
            // second key.
            let (found, is_there) =
                nodes.lower_bound(&mut sought, 1..nodes.count(), branches == 0 && is_far)?;
            let child = if is_there { found } else { found - 1 };
            (way.branch, way.child) = (number, child);
            number = nodes.child(child)?;
            if branches == 0 {
                ask_for_leaf(pages.page(number)?);
            }
            let beside = Aside::both(nodes, child, branches);
            (left, right) = (beside.0.or(left), beside.1.or(right));
        }
        let leaf = pages.leaf(number)?;
        let nodes = leaf.nodes()?;
        let (index, is_there) = nodes.lower_bound(&mut sought, 0..nodes.count(), is_far)?;
        Some((Self { leaf, index, is_there, left, right }, SearchPath { index, ..way }))
    }

    /// Search in the leaf of the last search. `None` unless the key lies between the keys that lead
    /// to that leaf and to the next one.
    #[inline]
    fn along(way: SearchPath, pages: Pages<'m>, key: &[u8]) -> Option<(Self, SearchPath)> {
        let nodes = pages.nodes(way.branch, PAGE_BRANCH)?;
        let mut sought = Sought::new(key);
        // A branch's first key says nothing. Keys that are searched in order leave a leaf at its
        // end.
        if way.child == 0
            || nodes.compare(way.child + 1, &mut sought)? != Ordering::Greater
            || nodes.compare(way.child, &mut sought)? == Ordering::Greater
        {
            return None;
        }
        let leaf = pages.leaf(nodes.child(way.child)?)?;
        let (left, right) = Aside::both(nodes, way.child, 0);
        let nodes = leaf.nodes()?;
        // Mostly the next one.
        let next = way.index + 1;
        let order = if next < nodes.count() { Some(nodes.compare(next, &mut sought)?) } else { None };
        let (index, is_there) = match order {
            Some(Ordering::Equal) => (next, true),
            Some(Ordering::Less) => nodes.lower_bound(&mut sought, next + 1..nodes.count(), false)?,
            Some(Ordering::Greater) => nodes.lower_bound(&mut sought, 0..next, false)?,
            None => nodes.lower_bound(&mut sought, 0..nodes.count(), false)?,
        };
        Some((Self { leaf, index, is_there, left, right }, SearchPath { index, ..way }))
    }
}

/// Prefetch what a search reads first in a leaf: its head, and the nodes of its first steps,
/// assuming that they were written in order and have one size. Knowing for sure would mean waiting
/// for the head.
fn ask_for_leaf(page: &[u8]) {
    const EIGHTHS: usize = 8;
    for line in 0..HEAD_LINES {
        prefetch(page.as_ptr().wrapping_add(line * LINE_SIZE));
    }
    let eighth = page.len().saturating_sub(HEAD_SIZE_USUAL) / EIGHTHS;
    for place in 1..EIGHTHS {
        prefetch(page.as_ptr().wrapping_add(page.len() - place * eighth));
    }
}

/// Prefetch the cache lines of these bytes.
#[inline]
pub(crate) fn ask_for_bytes(bytes: &[u8]) {
    for line in bytes.chunks(LINE_SIZE) {
        prefetch(line.as_ptr());
    }
}

/// The way of a search to a leaf, in one tree of one version.
#[derive(Clone, Copy)]
struct SearchPath {
    version: u64,
    root: u64,
    /// The branch above the leaf, which of its children the leaf is, and the entry there.
    branch: u64,
    child: usize,
    index: usize,
}

thread_local! {
    /// The ways of this thread's last searches. Lookups in several tables and indexes take turns.
    static LAST_WAYS: [Cell<SearchPath>; SearchPath::PLACES] =
        const { [const { Cell::new(SearchPath { version: 0, root: 0, branch: 0, child: 0, index: 0 }) }; SearchPath::PLACES] };
}

impl SearchPath {
    const PLACES: usize = 8;

    /// The place for a key: neighbours in the tree mostly begin with the same two bytes.
    #[inline]
    fn place_of(key: &[u8]) -> usize {
        match key {
            [first, second, ..] => usize::from(first.wrapping_mul(3).wrapping_add(*second)) % Self::PLACES,
            _ => 0,
        }
    }

    #[inline]
    fn last(place: usize, pages: Pages<'_>, tree: &TreeHead) -> Option<Self> {
        let way = LAST_WAYS.with(|ways| ways.get(place).map(Cell::get))?;
        (way.version == pages.number() && way.root == tree.root).then_some(way)
    }

    #[inline]
    fn remember(self, place: usize) {
        LAST_WAYS.with(|ways| ways.get(place).map(|way| way.set(self)));
    }
}

/// A searched key, and what the search knows of it.
pub(crate) struct Sought<'k> {
    key: &'k [u8],
    /// How many bytes it shares with the nearest known key below it and above it.
    low: usize,
    high: usize,
    /// The number of bytes that it shares with all keys in between.
    known: usize,
    /// Its next bytes.
    word: u64,
}

impl<'k> Sought<'k> {
    #[inline]
    pub(crate) fn new(key: &'k [u8]) -> Self {
        Self { key, low: 0, high: 0, known: 0, word: first_word(key) }
    }

    /// How many first bytes of keys in between will not be compared.
    #[inline]
    pub(crate) fn known(&self) -> usize {
        self.known
    }

    /// Compare no byte again that it shares with all keys in between.
    #[inline]
    pub(crate) fn skip_known(&mut self) {
        let known = self.low.min(self.high);
        if known != self.known {
            self.known = known;
            self.word = first_word(self.key.get(known..).unwrap_or_default());
        }
    }

    /// Note that a key with this order to the searched one shares `shared` bytes with it.
    #[inline]
    fn note(&mut self, order: Ordering, shared: usize) {
        match order {
            Ordering::Less | Ordering::Equal => self.low = shared,
            Ordering::Greater => self.high = shared,
        }
    }

    /// Compare a key where the next eight bytes do not tell.
    #[cold]
    fn compare_all(&mut self, own: &[u8]) -> Ordering {
        let (order, shared) = compare(own, self.key, self.known);
        self.note(order, shared);
        self.skip_known();
        order
    }
}

/// The nodes of a page, in the order of their keys.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'m> {
    page: &'m [u8],
    offsets: &'m [[u8; 2]],
}

impl<'m> Nodes<'m> {
    #[inline]
    pub(crate) fn of(page: &'m [u8], number: u64, kind: u16) -> Option<Self> {
        let is_it = read_u64(page, 0)? == number && read_u16(page, 10)? == kind;
        let (offsets, _) = page.get(PAGE_HEAD_SIZE..usize::from(read_u16(page, 12)?))?.as_chunks();
        (is_it && !offsets.is_empty()).then_some(Self { page, offsets })
    }

    #[inline]
    fn offset(&self, index: usize) -> Option<usize> {
        self.offsets.get(index).map(|offset| usize::from(u16::from_le_bytes(*offset)))
    }

    /// Those of a leaf page, its head checked.
    #[inline]
    pub(crate) fn of_leaf(page: &'m [u8], count: usize) -> Option<Self> {
        let (offsets, _) = page.get(PAGE_HEAD_SIZE..PAGE_HEAD_SIZE + 2 * count)?.as_chunks();
        (!offsets.is_empty()).then_some(Self { page, offsets })
    }

    /// How many there are: one at least.
    pub(crate) fn count(&self) -> usize {
        self.offsets.len()
    }

    /// A node's key.
    pub(crate) fn key(&self, index: usize) -> Option<&'m [u8]> {
        let node = self.page.get(self.offset(index)?..)?;
        node.get(NODE_HEAD_SIZE..)?.get(..usize::from(read_u16(node, 6)?))
    }

    /// The child page of a branch's node.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Option<u64> {
        let node = self.page.get(self.offset(index)?..)?;
        Some(u64::from(read_u32(node, 0)?) | u64::from(read_u16(node, 4)?) << 32)
    }

    /// The index of the node with this key in a range; or else how many nodes are below the key, if
    /// all nodes before the range are, and none after it.
    #[inline]
    fn lower_bound(
        &self,
        sought: &mut Sought<'_>,
        range: Range<usize>,
        is_far: bool,
    ) -> Option<(usize, bool)> {
        // All nodes before `low` are below the key, and none from `low + count - 1` on. How many
        // are left after a step does not depend on the comparison, so the nodes that the next steps
        // may read are known.
        let (mut low, mut count) = (range.start, range.len() + 1);
        let mut step = 0;
        sought.skip_known();
        while count > 1 {
            if is_far && step % STEPS_ASKED == 0 {
                self.ask_for(low, count, sought.known);
            }
            step += 1;
            let half = count / 2;
            count -= half;
            match self.compare(low + half - 1, sought)? {
                Ordering::Less => low += half,
                Ordering::Greater => {}
                Ordering::Equal => return Some((low + half - 1, true)),
            }
        }
        Some((low, false))
    }

    /// Prefetch the nodes that the next steps of a search may read. The first `known` bytes of
    /// their keys will not be read.
    #[inline]
    fn ask_for(&self, low: usize, mut count: usize, known: usize) {
        const LAST_STEP_COUNT: usize = 1 << (STEPS_ASKED - 1);
        // Where the next step may start, depending on the comparisons.
        let mut lows = [low; LAST_STEP_COUNT];
        for step in 0..STEPS_ASKED {
            let half = count / 2;
            if half == 0 {
                break;
            }
            count -= half;
            let (these, others) = lows.split_at_mut(1 << step);
            for (place, low) in these.iter().enumerate() {
                self.ask_for_node(low + half - 1, known);
                if let Some(other) = others.get_mut(place) {
                    *other = low + half;
                }
            }
        }
    }

    #[inline]
    pub(crate) fn ask_for_node(&self, node: usize, known: usize) {
        if let Some(offset) = self.offset(node) {
            let node = self.page.as_ptr().wrapping_add(offset);
            prefetch(node);
            // The first compared bytes are on the next line as often as not.
            prefetch(node.wrapping_add(NODE_HEAD_SIZE + known + WORD - 1));
        }
    }

    /// Compare a node's key with the searched key, and note what that says of it.
    #[inline]
    pub(crate) fn compare(&self, index: usize, sought: &mut Sought<'_>) -> Option<Ordering> {
        let (head, rest) = self.page.get(self.offset(index)?..)?.split_first_chunk::<NODE_HEAD_SIZE>()?;
        let size = (u64::from_le_bytes(*head) >> 48) as usize;
        // Mostly the next eight bytes decide, or the end of a key within them. The bytes after the
        // shorter key do not count.
        let Some(next) = word_at(rest, sought.known) else {
            return Some(sought.compare_all(rest.get(..size)?));
        };
        let differing = next ^ sought.word;
        let shared = sought.known + (differing.leading_zeros() / u8::BITS) as usize;
        let both = size.min(sought.key.len());
        let (order, shared) = if shared >= both {
            (size.cmp(&sought.key.len()), both)
        } else if differing != 0 {
            (if next < sought.word { Ordering::Less } else { Ordering::Greater }, shared)
        } else {
            return Some(sought.compare_all(rest.get(..size)?));
        };
        sought.note(order, shared);
        Some(order)
    }
}

/// Compare two keys that are known to share `known` bytes. Also returns how many bytes they share.
#[inline]
fn compare(one: &[u8], key: &[u8], known: usize) -> (Ordering, usize) {
    let mut at = known;
    while let (Some(of_one), Some(of_key)) = (word_at(one, at), word_at(key, at)) {
        if of_one != of_key {
            return (of_one.cmp(&of_key), at + ((of_one ^ of_key).leading_zeros() / u8::BITS) as usize);
        }
        at += WORD;
    }
    let count = one.len().min(key.len());
    let at = at.min(count);
    let (of_one, of_key) =
        (first_word(one.get(at..).unwrap_or_default()), first_word(key.get(at..).unwrap_or_default()));
    let shared = at + ((of_one ^ of_key).leading_zeros() / u8::BITS) as usize;
    (of_one.cmp(&of_key).then(one.len().cmp(&key.len())), shared.min(count))
}

/// Bytes that are compared at once.
const WORD: usize = 8;
/// Search steps whose nodes are prefetched together.
const STEPS_ASKED: u32 = 4;

/// Eight bytes as a number with the same order.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_be_bytes(*word))
}

/// The first bytes of a key as a number with the same order.
#[inline]
fn first_word(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let unused = u8::BITS * (WORD - key.len()) as u32;
    // The first and last bytes overlap in equal bytes.
    match (key.first_chunk(), key.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << unused
        }
        _ => match (key.first_chunk(), key.last_chunk()) {
            (Some(first), Some(last)) => {
                u64::from(u16::from_be_bytes(*first)) << 48 | u64::from(u16::from_be_bytes(*last)) << unused
            }
            _ => key.first().map_or(0, |only| u64::from(*only) << 56),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::engine::lmdb::format::PageFile;
    use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
    use crate::engine::{Engine, Tree};

    #[test]
    fn keys_are_compared_as_bytes_whatever_is_known_of_them() {
        let sizes = [0, 1, 3, 7, 8, 9, 15, 16, 17, 24];
        let mut keys: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
        for size in sizes {
            for at in 0..size {
                for byte in [0, 6, 8, 0xFF] {
                    let mut key = vec![7; size];
                    key[at] = byte;
                    keys.push(key);
                }
            }
        }
        for one in &keys {
            for other in &keys {
                let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
                for known in [0, shared / 2, shared] {
                    assert_eq!(compare(one, other, known), (one.cmp(other), shared), "{one:?} {other:?}");
                }
            }
        }
    }

    pub(crate) const PAGE_SIZE: usize = 4096;

    /// Keys of two tables that differ in one byte only; so long that there are branches above
    /// branches.
    pub(crate) fn key_of(number: u64) -> Vec<u8> {
        format!("{}{:0>160}", number % 2, number / 2 * 3).into_bytes()
    }

    /// Values differ in at least two bytes.
    pub(crate) fn value_of(number: u64) -> Vec<u8> {
        [number.to_be_bytes(), number.to_be_bytes()].concat()
    }

    pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

    /// The bytes of a file whose tree of rows has these entries, and the tree's head.
    pub(crate) fn file_of(entries: &Entries) -> (Vec<u8>, TreeHead) {
        // Tests of one process run at the same time.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pellucid-search-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pages");
        let engine = LmdbEngine::create(&path, LmdbOptions::default(), &mut |_, _| Vec::new()).unwrap();
        let mut txn = engine.begin_write().unwrap();
        for (key, value) in entries {
            txn.put(Tree::Rows, key, &[value]).unwrap();
        }
        txn.commit().unwrap();
        drop(engine);
        let (file, bytes) = (std::fs::File::open(&path).unwrap(), std::fs::read(&path).unwrap());
        let meta = PageFile::metas(&file).unwrap().into_iter().flatten().max_by_key(|meta| meta.txn).unwrap();
        let pages = PageFile::new(&file, meta.page_size, bytes.len() as u64);
        let tree = pages.tree(&meta, Tree::Rows.name().as_bytes()).map_err(|fault| fault.what).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        (bytes, tree)
    }

    pub(crate) fn entries() -> Entries {
        (0..12_000).map(|number| (key_of(number), value_of(number))).collect()
    }

    #[test]
    fn a_search_finds_what_a_btreemap_does() {
        let entries = entries();
        let (bytes, tree) = file_of(&entries);
        assert!(tree.depth > 3, "there are pages whose nodes are asked for");
        let pages = Pages::of_bytes(&bytes, PAGE_SIZE);
        let mut asked: Vec<Vec<u8>> = entries.keys().step_by(7).cloned().collect();
        asked.extend(entries.keys().step_by(11).map(|key| [key, &b"0"[..]].concat()));
        asked.extend(
            entries.keys().step_by(13).filter_map(|key| key.get(..key.len() - 2)).map(<[u8]>::to_vec),
        );
        asked.extend([vec![0], vec![0xFF], b"1".to_vec()]);
        for key in &asked {
            let shown = |entry: Option<Entry<'_>>| entry.map(|(key, value)| (key.to_vec(), value.to_vec()));
            let known =
                |entry: Option<(&Vec<u8>, &Vec<u8>)>| entry.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(get(pages, &tree, key).ok(), Some(entries.get(key).map(Vec::as_slice)));
            let next = known(entries.range(key.clone()..).next());
            assert_eq!(at_or_above(pages, &tree, key).ok().map(shown), Some(next));
            let last = known(entries.range(..key.clone()).next_back());
            assert_eq!(below(pages, &tree, key).ok().map(shown), Some(last));
        }
    }

    #[test]
    fn a_search_begins_at_the_last_leaf_of_its_own_tree_and_version() {
        let all = entries();
        let half: Entries = all.iter().step_by(2).map(|(key, value)| (key.clone(), value.clone())).collect();
        let files = [file_of(&all), file_of(&half)];
        let pages = files.each_ref().map(|(bytes, _)| Pages::of_bytes(bytes, PAGE_SIZE));
        let way_of = |key: &[u8]| LAST_WAYS.with(|ways| ways[SearchPath::place_of(key)].get());
        let mut kept = 0;
        for key in all.keys() {
            for ((entries, pages), (_, tree)) in [&all, &half].into_iter().zip(pages).zip(&files) {
                let before = way_of(key);
                // Twice, since the other file's search comes between.
                for _ in 0..2 {
                    assert_eq!(get(pages, tree, key).ok(), Some(entries.get(key).map(Vec::as_slice)));
                }
                let way = way_of(key);
                assert_eq!((way.version, way.root), (pages.number(), tree.root));
                kept += usize::from(before.version == way.version);
            }
        }
        assert_eq!(kept, 0, "the other file's search always comes between");
        let (pages, (_, tree)) = (pages[0], &files[0]);
        let ways = all.keys().map(|key| {
            get(pages, tree, key).ok();
            let way = way_of(key);
            (way.branch, way.child)
        });
        let mut ways: Vec<(u64, usize)> = ways.collect();
        ways.dedup();
        assert!(ways.len() * 5 < all.len(), "neighbours are in the same leaf");
    }

    #[test]
    fn a_search_of_damaged_pages_gives_no_other_key() {
        const DAMAGES: usize = 20_000;
        let (mut bytes, tree) = file_of(&entries());
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut less_than = |count: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % count as u64) as usize
        };
        // There are few branches, and each of them is on many paths.
        let all = 2..bytes.len() / PAGE_SIZE;
        let is_branch = |page: &usize| read_u16(&bytes, page * PAGE_SIZE + 10) == Some(PAGE_BRANCH);
        let branches: Vec<usize> = all.clone().filter(is_branch).collect();
        let (mut hidden, mut found) = (0, 0);
        for _ in 0..DAMAGES {
            let number = less_than(11_990) as u64;
            let page =
                if less_than(4) > 0 { branches[less_than(branches.len())] } else { less_than(all.len()) + 2 };
            // Heads and offsets as often as all the rest.
            let room = [64, PAGE_SIZE][less_than(2)];
            let place = page * PAGE_SIZE + less_than(room);
            let old = std::mem::replace(&mut bytes[place], [0, 0xFF, less_than(256) as u8][less_than(3)]);
            let pages = Pages::of_bytes(&bytes, PAGE_SIZE);
            // The neighbours are mostly searched in the same leaf.
            for number in [number, number + 8, number + 2] {
                let (key, value) = (key_of(number), value_of(number));
                match get(pages, &tree, &key) {
                    Ok(Some(got)) => {
                        let differing = got.iter().zip(&value).filter(|(got, value)| got != value).count();
                        assert!(differing <= 1, "the value of {number} is another key's");
                        found += 1;
                    }
                    Ok(None) | Err(Unsure) => hidden += 1,
                }
                if let Ok(Some((got, _))) = at_or_above(pages, &tree, &key) {
                    assert!(got >= &key[..]);
                }
                if let Ok(Some((got, _))) = below(pages, &tree, &key) {
                    assert!(got < &key[..]);
                }
            }
            bytes[place] = old;
        }
        assert!(hidden > 100 && found > 100, "{hidden} of {DAMAGES} were hidden, {found} found");
    }
}
