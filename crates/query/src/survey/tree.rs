//! The paths that rows have, as a tree, with what is known of the values at each.
//!
//! A row is *noted* or *skimmed*. Noting reads all of its values. Skimming reads the heads of its
//! dicts and lists, which say what fields there are: the fields of a dict with a shape are counted
//! with the shape, and not one by one.

use hashbrown::HashMap;
use pellucid_record::error::Damage;
use pellucid_record::layout::{BLOCK_SLOTS, DEPTH_MAX, Kind, SCALAR_BYTE, tag};
use pellucid_record::value::{NoShapes, decode_slot, encode_value};
use pellucid_record::view::{Container, Root, Slot, Walker, root};
use pellucid_record::{Corrupt, Shapes};

use crate::code::Code;
use crate::expression::Step;
use crate::survey::values::Values;

/// Rows with more paths than this together have others that are not listed.
pub const PATH_COUNT_MAX: usize = 10_000;
/// The path that stands for those that are not listed.
const NOWHERE: usize = usize::MAX;

/// The places of shapes with smaller ids are in a list.
const SHAPE_PLACES_MAX: u32 = 4096;

/// The dicts with one shape at a path.
#[derive(Clone)]
struct ShapeHere {
    /// How many were skimmed.
    count: u64,
    /// The path of each field.
    fields: Box<[usize]>,
}

/// A path.
#[derive(Clone, Default)]
struct Node {
    /// The path without its last step, and that step; None at the root.
    step: Option<(usize, Step)>,
    /// The paths one step further: by names, by keys that are no str, and to elements.
    names: HashMap<Box<str>, usize>,
    keys: HashMap<Step, usize>,
    each: Option<usize>,
    shapes: Vec<ShapeHere>,
    /// Where a shape is in `shapes`, plus one, by its id; of greater ids in the map.
    shape_places: Vec<u32>,
    more_shape_places: HashMap<u32, usize>,
    /// How many rows have a value here, and the last of them that was counted.
    rows: u64,
    last_row: u64,
    values: Values,
}

/// What is known of a path.
pub struct Found {
    /// Its steps.
    pub steps: Vec<Step>,
    /// How many of the rows have a value there.
    pub rows: u64,
    /// The values that were read.
    pub values: Values,
}

/// The paths of some rows.
#[expect(clippy::struct_excessive_bools, reason = "each is another question")]
pub struct Tree {
    nodes: Vec<Node>,
    nowhere: Node,
    /// Whether all rows are noted, and none is skimmed.
    is_exact: bool,
    /// How many rows were met, and how many of them were noted by chance.
    pub rows: u64,
    /// As `rows`, of those that were noted by chance.
    pub noted: u64,
    /// How many values were noted.
    pub value_count: u64,
    /// Whether there are more paths than are listed.
    pub is_full: bool,
    /// Whether the row has a shape or a path that no row before it had.
    is_new: bool,
    /// Whether only paths of which no value is known take one.
    fills_gaps: bool,
    /// Containers of a row that can still be skimmed: a sound record has no more than bytes.
    left: usize,
    code: Code,
}

/// Of the tags of a block, the top bits of those of containers, and of those of fields that were
/// deleted. `count` is that of the tags, 1 to 8.
#[inline]
fn marked(record: &[u8], at: usize, count: u32) -> Result<(u64, u64), Corrupt> {
    const ONES: u64 = u64::MAX / 0xFF;
    const TOPS: u64 = ONES << 7;
    let Some(tags) = record.get(at..at + count as usize) else {
        return Err(Corrupt::new(Damage::Truncated, at));
    };
    let word = match record.get(at..).and_then(<[u8]>::first_chunk) {
        Some(block) => u64::from_le_bytes(*block),
        None => tags.iter().rev().fold(0, |word, tag| word << 8 | u64::from(*tag)),
    };
    let is = |tag: u8| {
        let other = word ^ (ONES * u64::from(tag));
        !(((other & !TOPS) + !TOPS) | other) & TOPS & (u64::MAX >> (64 - 8 * count))
    };
    Ok((is(tag::CONTAINER), is(tag::ABSENT)))
}

/// The container in a slot that has one. `Container::slot` returns any value, in memory and in
/// parts: the copy waits for these stores, which took half of the time of skimming. Without
/// `always`, so does the copy of what this returns.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as said above")]
fn nested_at<S: Shapes + ?Sized>(
    container: &Container,
    index: u32,
    record: &[u8],
    shapes: &S,
) -> Result<Container, Corrupt> {
    let bits = container.bits(record, index).unwrap_or_default();
    let start = u64::from(container.start) + (bits & 0xFFFF_FFFF);
    let end = if container.width_log2 == 3 { start + (bits >> 32) } else { u64::from(container.end) };
    if start < u64::from(container.heap_start()) || end > u64::from(container.end) {
        return Err(Corrupt::new(Damage::Reference, container.start as usize));
    }
    Container::nested(record, start as u32, end as u32, shapes)
}

impl Tree {
    /// A tree of no rows.
    #[must_use]
    pub fn new(is_exact: bool) -> Self {
        Self {
            nodes: vec![Node::default()],
            nowhere: Node::default(),
            is_exact,
            rows: 0,
            noted: 0,
            value_count: 0,
            is_full: false,
            is_new: false,
            fills_gaps: false,
            left: 0,
            code: Code::default(),
        }
    }

    /// Notes all values of a row.
    ///
    /// # Errors
    /// Damage.
    pub fn note<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<(), Corrupt> {
        self.rows += 1;
        self.noted += 1;
        self.note_root(record, shapes)
    }

    /// Skims a row, and notes it if `is_chosen`. Values of a row that has what no row before it had
    /// are noted where none is known.
    ///
    /// # Errors
    /// Damage.
    pub fn skim<S: Shapes + ?Sized>(
        &mut self,
        record: &[u8],
        shapes: &S,
        is_chosen: bool,
    ) -> Result<(), Corrupt> {
        self.rows += 1;
        self.is_new = false;
        self.left = record.len();
        if record.first() != Some(&SCALAR_BYTE) {
            let container = Container::root(record, shapes)?;
            self.skim_container(0, &container, (record, shapes), (0, false))?;
        }
        self.mark(0);
        if is_chosen {
            self.noted += 1;
            return self.note_root(record, shapes);
        }
        if self.is_new || self.nodes.first().is_some_and(|root| root.values.count == 0) {
            self.fills_gaps = true;
            let noted = self.note_root(record, shapes);
            self.fills_gaps = false;
            return noted;
        }
        Ok(())
    }

    fn note_root<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<(), Corrupt> {
        let slot = match root(record, shapes)? {
            Root::Container(container) => Slot::Container(container),
            Root::Scalar(slot) => slot,
        };
        self.note_value(0, &slot, (record, shapes), 0)
    }

    #[inline]
    fn node(&mut self, id: usize) -> &mut Node {
        match self.nodes.get_mut(id) {
            Some(node) => node,
            None => &mut self.nowhere,
        }
    }

    /// Counts the row at a path, once.
    #[inline]
    fn mark(&mut self, id: usize) {
        let row = self.rows;
        let node = self.node(id);
        if node.last_row != row {
            node.last_row = row;
            node.rows += 1;
        }
    }

    /// The path to each element.
    fn each(&mut self, id: usize) -> usize {
        match self.node(id).each {
            Some(child) => child,
            None => self.new_child(id, Step::Each),
        }
    }

    /// The path to a field.
    fn named(&mut self, id: usize, name: &str) -> usize {
        match self.node(id).names.get(name) {
            Some(child) => *child,
            None => self.new_child(id, Step::Field(name.into())),
        }
    }

    /// The path to a field whose key is no str.
    fn keyed(&mut self, id: usize, key: Step) -> usize {
        match self.node(id).keys.get(&key) {
            Some(child) => *child,
            None => self.new_child(id, key),
        }
    }

    #[cold]
    fn new_child(&mut self, id: usize, step: Step) -> usize {
        let child = self.nodes.len();
        if id == NOWHERE || child >= PATH_COUNT_MAX {
            self.is_full = true;
            return NOWHERE;
        }
        self.is_new = true;
        let node = self.node(id);
        match &step {
            Step::Field(name) => _ = node.names.insert(name.clone(), child),
            Step::Each => node.each = Some(child),
            Step::Index(_) | Step::Key(_) => _ = node.keys.insert(step.clone(), child),
        }
        self.nodes.push(Node { step: Some((id, step)), ..Node::default() });
        child
    }

    /// Where a shape is among those of a path.
    fn shape_at<S: Shapes + ?Sized>(&mut self, id: usize, shape: u32, shapes: &S) -> usize {
        match self.node(id).shape_places.get(shape as usize) {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.new_shape_at(id, shape, shapes),
        }
    }

    #[cold]
    fn new_shape_at<S: Shapes + ?Sized>(&mut self, id: usize, shape: u32, shapes: &S) -> usize {
        if let Some(at) = self.node(id).more_shape_places.get(&shape) {
            return *at;
        }
        self.is_new = true;
        let names = shapes.shape(shape).map(pellucid_record::Shape::names).unwrap_or_default();
        let fields = names.iter().map(|name| self.named(id, name)).collect();
        let node = self.node(id);
        let at = node.shapes.len();
        if shape < SHAPE_PLACES_MAX {
            if node.shape_places.len() <= shape as usize {
                node.shape_places.resize(shape as usize + 1, 0);
            }
            if let Some(place) = node.shape_places.get_mut(shape as usize) {
                *place = at as u32 + 1;
            }
        } else {
            node.more_shape_places.insert(shape, at);
        }
        node.shapes.push(ShapeHere { count: 0, fields });
        at
    }

    fn field_of(&mut self, id: usize, shape: usize, index: u32) -> usize {
        let shape = self.node(id).shapes.get(shape);
        shape.and_then(|shape| shape.fields.get(index as usize)).copied().unwrap_or(NOWHERE)
    }

    /// The path of a key in a dict without a shape.
    fn key_child<S: Shapes + ?Sized>(
        &mut self,
        id: usize,
        key: &Slot<'_>,
        (record, shapes): (&[u8], &S),
    ) -> Result<usize, Corrupt> {
        Ok(match key {
            Slot::Str(name) => self.named(id, &String::from_utf8_lossy(name)),
            Slot::Int(key) => self.keyed(id, Step::Index(*key)),
            _ => {
                let key = encode_value(&decode_slot(record, shapes, *key)?, &mut NoShapes)
                    .map_err(|_| Corrupt::new(Damage::Range, 0))?;
                self.keyed(id, Step::Key(key.into()))
            }
        })
    }

    fn note_value<S: Shapes + ?Sized>(
        &mut self,
        id: usize,
        slot: &Slot<'_>,
        of: (&[u8], &S),
        depth: u32,
    ) -> Result<(), Corrupt> {
        if *slot == Slot::Absent {
            return Ok(());
        }
        if self.is_exact {
            self.mark(id);
        }
        self.value_count += 1;
        if let Some(node) = self.nodes.get_mut(id)
            && (!self.fills_gaps || node.values.count == 0)
        {
            node.values.add(slot, of.0, of.1, (&mut self.code, self.is_exact))?;
        }
        match slot {
            Slot::Container(container) => self.note_container(id, container, of, depth),
            _ => Ok(()),
        }
    }

    fn note_container<S: Shapes + ?Sized>(
        &mut self,
        id: usize,
        container: &Container,
        (record, shapes): (&[u8], &S),
        depth: u32,
    ) -> Result<(), Corrupt> {
        if depth >= DEPTH_MAX {
            return Err(Corrupt::new(Damage::Depth, container.start as usize));
        }
        if container.is_empty() {
            return Ok(());
        }
        let mut walker = Walker::new(*container);
        let shape = match container.kind {
            Kind::Shaped => Some(self.shape_at(id, container.shape, shapes)),
            _ => None,
        };
        let each = if container.kind.is_dict() { NOWHERE } else { self.each(id) };
        loop {
            let index = walker.index();
            let Some(mut slot) = walker.next_bounded(record, shapes)? else { return Ok(()) };
            let path = match (shape, container.kind) {
                (Some(shape), _) => self.field_of(id, shape, index),
                (None, Kind::Keyed) => {
                    let key = self.key_child(id, &slot, (record, shapes))?;
                    let Some(value) = walker.next_bounded(record, shapes)? else { return Ok(()) };
                    slot = value;
                    key
                }
                _ => each,
            };
            self.note_value(path, &slot, (record, shapes), depth + 1)?;
        }
    }

    /// Skims a dict or a list; `is_in_list` if a row may have several at this path.
    fn skim_container<S: Shapes + ?Sized>(
        &mut self,
        id: usize,
        container: &Container,
        of: (&[u8], &S),
        (depth, is_in_list): (u32, bool),
    ) -> Result<(), Corrupt> {
        let Some(left) = self.left.checked_sub(1).filter(|_| depth < DEPTH_MAX) else {
            return Err(Corrupt::new(Damage::Depth, container.start as usize));
        };
        self.left = left;
        if container.is_empty() {
            return Ok(());
        }
        let inside = |is_in_list| (depth + 1, is_in_list);
        match container.kind {
            Kind::Shaped => {
                let shape = self.shape_at(id, container.shape, of.1);
                if is_in_list {
                    for index in 0..container.count {
                        let field = self.field_of(id, shape, index);
                        self.mark(field);
                    }
                } else if let Some(shape) = self.node(id).shapes.get_mut(shape) {
                    shape.count += 1;
                }
                self.skim_fields((id, shape), container, of, inside(is_in_list))
            }
            Kind::Keyed => {
                for entry in 0..container.len() {
                    let key = container.slot(of.0, of.1, 2 * entry)?;
                    let tag = container.tag(of.0, 2 * entry + 1);
                    if tag == Some(tag::ABSENT) {
                        continue;
                    }
                    let field = self.key_child(id, &key, of)?;
                    self.mark(field);
                    if tag == Some(tag::CONTAINER) {
                        self.skim_slot(field, container, 2 * entry + 1, of, inside(is_in_list))?;
                    }
                }
                Ok(())
            }
            Kind::List | Kind::Tuple => {
                let each = self.each(id);
                self.mark(each);
                for index in 0..container.count {
                    if container.tag(of.0, index) == Some(tag::CONTAINER) {
                        self.skim_slot(each, container, index, of, inside(true))?;
                    }
                }
                Ok(())
            }
            Kind::PackedInts | Kind::PackedFloats | Kind::Set | Kind::FrozenSet => {
                let each = self.each(id);
                self.mark(each);
                Ok(())
            }
        }
    }

    fn skim_slot<S: Shapes + ?Sized>(
        &mut self,
        id: usize,
        container: &Container,
        index: u32,
        (record, shapes): (&[u8], &S),
        at: (u32, bool),
    ) -> Result<(), Corrupt> {
        let inner = nested_at(container, index, record, shapes)?;
        self.skim_container(id, &inner, (record, shapes), at)
    }

    /// Skims the containers in a dict with a shape. The fields that were deleted are told apart
    /// where they were counted with the shape.
    fn skim_fields<S: Shapes + ?Sized>(
        &mut self,
        (id, shape): (usize, usize),
        container: &Container,
        of: (&[u8], &S),
        at: (u32, bool),
    ) -> Result<(), Corrupt> {
        for first in (0..container.count).step_by(BLOCK_SLOTS as usize) {
            let count = (container.count - first).min(BLOCK_SLOTS);
            let (mut containers, mut deleted) = marked(of.0, container.position(first).0, count)?;
            while containers != 0 {
                let index = first + containers.trailing_zeros() / 8;
                containers &= containers - 1;
                let field = self.field_of(id, shape, index);
                self.skim_slot(field, container, index, of, at)?;
            }
            while deleted != 0 && !at.1 {
                let index = first + deleted.trailing_zeros() / 8;
                deleted &= deleted - 1;
                let field = self.field_of(id, shape, index);
                let node = self.node(field);
                node.rows = node.rows.wrapping_sub(1);
            }
        }
        Ok(())
    }

    /// Counts the fields of dicts with a shape that were counted with it.
    fn spread(&mut self) {
        for id in 0..self.nodes.len() {
            for shape in std::mem::take(&mut self.node(id).shapes) {
                for field in &shape.fields {
                    let node = self.node(*field);
                    node.rows = node.rows.wrapping_add(shape.count);
                }
            }
        }
    }

    /// Adds the rows of another tree.
    fn merge(&mut self, mut other: Self) {
        self.spread();
        other.spread();
        let is_exact = self.is_exact;
        let mut here = Vec::with_capacity(other.nodes.len());
        for node in other.nodes {
            let id = match node.step {
                None => 0,
                Some((parent, step)) => {
                    let parent = here.get(parent).copied().unwrap_or(NOWHERE);
                    match step {
                        Step::Field(name) => self.named(parent, &name),
                        Step::Each => self.each(parent),
                        key => self.keyed(parent, key),
                    }
                }
            };
            here.push(id);
            let mine = self.node(id);
            mine.rows = mine.rows.wrapping_add(node.rows);
            mine.values.merge(node.values, is_exact);
        }
        self.rows += other.rows;
        self.noted += other.noted;
        self.is_full |= other.is_full;
    }

    /// All trees as one; None if there are none.
    #[must_use]
    pub fn merged(trees: Vec<Self>) -> Option<Self> {
        let mut trees = trees.into_iter();
        let mut all = trees.next()?;
        all.spread();
        trees.for_each(|tree| all.merge(tree));
        Some(all)
    }

    /// The paths that a row has, each after those that it begins with, fields in the order in which
    /// they were met.
    #[must_use]
    pub fn found(self) -> Vec<Found> {
        let mut inside: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            if let Some((parent, _)) = &node.step
                && let Some(ids) = inside.get_mut(*parent)
            {
                ids.push(id);
            }
        }
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        let (mut found, mut waiting) = (Vec::new(), vec![(0, Vec::new())]);
        while let Some((id, steps)) = waiting.pop() {
            let Some(node) = nodes.get_mut(id).and_then(Option::take) else { continue };
            for child in inside.get(id).into_iter().flatten().rev() {
                let last = nodes.get(*child).and_then(Option::as_ref).and_then(|node| node.step.clone());
                let steps = steps.iter().cloned().chain(last.map(|(_, step)| step)).collect();
                waiting.push((*child, steps));
            }
            if node.rows > 0 {
                found.push(Found { steps, rows: node.rows, values: node.values });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use pellucid_record::value::NoShapes;

    use super::Tree;

    #[test]
    fn a_hostile_record_in_which_each_list_stands_twice_is_refused_soon() {
        // A list of an int; then 60 times a list that has the one before twice: 2^60 lists.
        let mut list = vec![0x03, 0x01, 0x04, 0x05];
        for _ in 0..60 {
            list.splice(0..0, [0x03, 0x02, 0x50, 0x50, 6, 6]);
        }
        let place = [26u32.to_le_bytes(), (list.len() as u32).to_le_bytes()].concat();
        let head = [0x31, 3, 0, 0, 2, 0, 0, 0, 0x50, 0x50];
        let record = [&head[..], &place, &place, &list].concat();
        assert!(Tree::new(false).skim(&record, &NoShapes, false).is_err());
        assert!(Tree::new(true).note(&record, &NoShapes).is_err());
    }
}
