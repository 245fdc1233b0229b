//! Translates conditions into predicates over the columns of a table on a server.
//!
//! There, an index is a column with the codes of its parts, or a table of entries if a row may have
//! several; both are in the order of the entries of an embedded index. So a condition that an index
//! can serve becomes ranges of codes, which the server tests with its own indexes. It plans by its
//! own statistics: all predicates are joined by AND, and there is no access path to choose here.
//! Conditions that no predicate implies are tested on the rows that the server sends.

use std::ops::Bound;

use pellucid_record::Value;
use pellucid_record::key::{KeyEncoder, KeyPart, KeyReader};
use pellucid_store::Range;

use crate::expression::{Chain, Comparison, Kind, Node, Source};
use crate::index::{Keys, successor};
use crate::key_code::{decimal_text, push_value};
use crate::key_range;
use crate::plan::code_ranges::{code_ranges, is_equality};
use crate::plan::{Candidate, IndexRange, index_range, is_in_order};

/// Most bytes of a code that are stored; of a longer one, a hash of the rest follows them. An entry
/// of a server's own index has room for 2,704 bytes.
pub const CODE_SIZE_MAX: usize = 2000;
/// Most bytes that count of what a row is distributed by.
const DISTRIBUTION_SIZE_MAX: usize = 500;

/// The bytes that are stored beside the code of an entry: a byte with a bit for each part that is a
/// complex number, 1 for the first part, and the spelling. None if the spelling is empty.
#[must_use]
pub fn stored_spelling(keys: &Keys, parts: &[u8], spelling: &[u8]) -> Option<Vec<u8>> {
    if spelling.is_empty() {
        return None;
    }
    let complex = keys.complex_parts(parts, spelling).into_iter();
    let bits = complex.filter_map(bit_of).fold(0, |bits, bit| bits | bit);
    Some([&[bits], spelling].concat())
}

/// What the rows of a distributed table are distributed by, if it is the first `count` parts of a
/// tuple: their code, cut to `DISTRIBUTION_SIZE_MAX`. It is found in a key that was shortened, too.
/// None for a key that has fewer parts.
#[must_use]
pub fn distribution_of(stored_key: &[u8], count: usize) -> Option<&[u8]> {
    let mut reader = KeyReader::new(stored_key, &[]);
    let Some(Ok(KeyPart::BeginTuple)) = reader.next() else { return None };
    let (mut depth, mut taken) = (0_usize, 0);
    while taken < count {
        match reader.next() {
            Some(Ok(KeyPart::BeginTuple)) => depth += 1,
            Some(Ok(KeyPart::EndTuple)) if depth == 0 => return None,
            Some(Ok(KeyPart::EndTuple)) => {
                depth -= 1;
                taken += usize::from(depth == 0);
            }
            Some(Ok(_)) => taken += usize::from(depth == 0),
            // The parts reach into what was cut off.
            Some(Err(_)) if stored_key.len() > CODE_SIZE_MAX => {
                return stored_key.get(..DISTRIBUTION_SIZE_MAX);
            }
            Some(Err(_)) | None => return None,
        }
    }
    stored_key.get(..reader.offset().min(DISTRIBUTION_SIZE_MAX))
}

/// The bit for a part; None from the ninth one on.
fn bit_of(place: usize) -> Option<u8> {
    1_u8.checked_shl(u32::try_from(place).ok()?)
}

/// An index of a server's table.
#[derive(Clone, Debug)]
pub struct ServerIndex {
    /// What the planner has to know of it. The number of entries does not count here.
    pub candidate: Candidate,
    /// Whether each row has an entry in it.
    pub is_total: bool,
    /// Whether its codes have the order of the entries: none of them was shortened.
    pub is_ordered: bool,
}

/// Codes from the first edge up to, but without, the second one; None: no edge.
pub type Codes = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What the server tests. Codes that it is to find may be too long to be stored whole; the edges of
/// ranges are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// The row's key has one of these codes.
    Keys(Vec<Vec<u8>>),
    /// The row's key is in one of these ranges.
    KeyRanges(Vec<Codes>),
    /// An entry of the index with this place has one of these codes.
    Points(usize, Vec<Vec<u8>>),
    /// An entry of the index with this place is in one of these ranges. The last number has a bit
    /// for each part of the index that must not be a complex number, which has no order: 1 for the
    /// first part.
    Ranges(usize, Vec<Codes>, u8),
    /// For one of these branches, all predicates hold.
    Any(Vec<Vec<Predicate>>),
}

/// A query, as far as the server answers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// What the server tests: all of it must hold.
    pub predicates: Vec<Predicate>,
    /// The conditions that have to be tested on each row that it sends.
    pub residual: Vec<Node>,
    /// The place of the index whose order is the one that is asked for, and whether from its end.
    pub order: Option<(usize, bool)>,
}

/// Translates conditions, which must all be true, and an order.
#[must_use]
pub fn translate(conditions: &[Node], order: &[(Node, bool)], indexes: &[ServerIndex]) -> Translated {
    let conditions = key_range::parts(conditions);
    let all = Conditions::new(&conditions, indexes);
    let (residual, order) = (all.residual(), served_order(order, &all.index_ranges, indexes));
    Translated { predicates: all.predicates, residual, order }
}

/// The predicate for the rows that come after the one with this key. A row with a long key may come
/// before it: its whole code has to be compared.
#[must_use]
pub fn after_key(code: &[u8]) -> Predicate {
    let range = Range { start: Bound::Excluded(code.to_vec()), end: Bound::Unbounded };
    Predicate::KeyRanges(vec![codes_of(&range).0])
}

/// The places of indexes that could serve more if each row is known to have an entry in them.
#[must_use]
pub fn worth_knowing(conditions: &[Node], order: &[(Node, bool)], indexes: &[ServerIndex]) -> Vec<usize> {
    let conditions = key_range::parts(conditions);
    let all = Conditions::new(&conditions, indexes);
    let is_served = |node: &Node| all.index_ranges.iter().any(|index_range| index_range.used.contains(node));
    let serves_more = |index: &ServerIndex| {
        let known = ServerIndex { is_total: true, ..index.clone() };
        let without = index_range_of(index, &conditions);
        let with = index_range_of(&known, &conditions);
        let orders = |index_range: &Option<IndexRange>| {
            index_range.as_ref().is_some_and(|index_range| {
                served_order(
                    order,
                    &[IndexRange { index: 0, ..index_range.clone() }],
                    std::slice::from_ref(index),
                )
                .is_some()
            })
        };
        let narrows =
            with.as_ref().is_some_and(|index_range| index_range.used.iter().any(|node| !is_served(node)));
        index.candidate.condition.is_none()
            && !index.candidate.is_multi_valued()
            && index.candidate.is_named(&conditions, order)
            && (narrows || (orders(&with) && !orders(&without)))
    };
    let places = indexes.iter().enumerate().filter(|(_, index)| !index.is_total && serves_more(index));
    places.map(|(place, _)| place).collect()
}

fn index_range_of(index: &ServerIndex, conditions: &[Node]) -> Option<IndexRange> {
    let entries = u64::from(index.is_total);
    index_range(&Candidate { entries, ..index.candidate.clone() }, conditions, 1)
}

/// Conditions that must all be true, and what predicates do for each of them.
struct Conditions<'a> {
    nodes: &'a [Node],
    /// For each condition, whether it has narrowed a predicate, and whether it needs no test.
    served: Vec<(bool, bool)>,
    predicates: Vec<Predicate>,
    index_ranges: Vec<IndexRange>,
}

impl<'a> Conditions<'a> {
    fn new(nodes: &'a [Node], indexes: &[ServerIndex]) -> Self {
        let served = vec![(false, false); nodes.len()];
        let mut all = Self { nodes, served, predicates: Vec::new(), index_ranges: Vec::new() };
        for (node, served) in nodes.iter().zip(&mut all.served) {
            if let Some((predicate, is_exact)) = on_key(node) {
                all.predicates.push(predicate);
                *served = (true, is_exact);
            }
        }
        all.serve_by_index_ranges(indexes);
        for (node, served) in nodes.iter().zip(&mut all.served) {
            if let (Kind::Or(branches), (false, _)) = (node.kind(), *served)
                && let Some((predicate, is_exact)) = any_of(branches, indexes)
            {
                all.predicates.push(predicate);
                *served = (true, is_exact);
            }
        }
        all
    }

    fn serve_by_index_ranges(&mut self, indexes: &[ServerIndex]) {
        let is_of_use = |index: &ServerIndex| index.is_total || index.candidate.is_named(self.nodes, &[]);
        let places = indexes.iter().enumerate().filter(|(_, index)| is_of_use(index));
        let mut index_ranges: Vec<_> = places
            .filter_map(|(place, index)| {
                Some(IndexRange { index: place, ..index_range_of(index, self.nodes)? })
            })
            .collect();
        // One that serves many conditions tells the server more than one for each: it takes them to
        // be independent of each other.
        index_ranges.sort_by_key(|index_range| std::cmp::Reverse(index_range.used.len()));
        for index_range in &index_ranges {
            let Some(index) = indexes.get(index_range.index) else { continue };
            let is_partial = index.candidate.condition.is_some();
            let mut all = self.nodes.iter().zip(&self.served).zip(&index_range.implied);
            let serves_more = all.any(|((node, (is_used, is_implied)), implies)| {
                (!is_used && index_range.used.contains(node)) || (is_partial && *implies && !is_implied)
            });
            if !serves_more {
                continue;
            }
            let (predicate, is_exact) = of_index_range(index, index_range, self.nodes);
            self.predicates.push(predicate);
            for ((node, served), implies) in self.nodes.iter().zip(&mut self.served).zip(&index_range.implied)
            {
                served.0 |= index_range.used.contains(node);
                served.1 |= is_exact && *implies;
            }
        }
        self.index_ranges = index_ranges;
    }

    /// The conditions that have to be tested.
    fn residual(&self) -> Vec<Node> {
        let left = self.nodes.iter().zip(&self.served).filter(|(_, (_, is_implied))| !is_implied);
        left.map(|(node, _)| node.clone()).collect()
    }
}

/// The predicate for branches of which one must be true, if all of them are served.
fn any_of(branches: &Chain, indexes: &[ServerIndex]) -> Option<(Predicate, bool)> {
    let (mut all, mut is_exact) = (Vec::new(), true);
    for branch in branches.iter() {
        let parts = key_range::parts(std::slice::from_ref(branch));
        let served = Conditions::new(&parts, indexes);
        if served.predicates.is_empty() {
            return None;
        }
        is_exact &= served.residual().is_empty();
        all.push(served.predicates);
    }
    Some((Predicate::Any(all), is_exact))
}

/// The predicate for the range of an index, and whether it tests the ranges exactly.
fn of_index_range(index: &ServerIndex, index_range: &IndexRange, conditions: &[Node]) -> (Predicate, bool) {
    let parts = &index.candidate.parts;
    if index_range.point_count == parts.len() && !index_range.has_code_range {
        let points = index_range.ranges.iter().map(|range| start_of(range).to_vec()).collect();
        return (Predicate::Points(index_range.index, points), true);
    }
    let mut is_exact = true;
    let ranges = index_range.ranges.iter().map(|range| {
        let (codes, is_whole) = codes_of(range);
        is_exact &= is_whole;
        codes
    });
    let ranges = ranges.collect();
    let mut ordered = 0;
    for (place, (part, _)) in parts.iter().enumerate() {
        let has_order = conditions
            .iter()
            .filter(|condition| index_range.used.contains(condition))
            .any(|condition| !is_equality(condition) && code_ranges(condition, part).is_some());
        match bit_of(place) {
            Some(bit) if has_order => ordered |= bit,
            // There are bits for eight parts: the conditions are tested on the rows.
            None if has_order => is_exact = false,
            _ => {}
        }
    }
    (Predicate::Ranges(index_range.index, ranges, ordered), is_exact)
}

fn start_of(range: &Range) -> &[u8] {
    match &range.start {
        Bound::Included(start) | Bound::Excluded(start) => start,
        Bound::Unbounded => &[],
    }
}

/// The edges of a range over stored codes; false if they let in more than the range has.
fn codes_of(range: &Range) -> (Codes, bool) {
    let (start, end) = (edge(&range.start, true), edge(&range.end, false));
    let is_whole = |code: &Option<Vec<u8>>| code.as_ref().is_none_or(|code| code.len() <= CODE_SIZE_MAX);
    if is_whole(&start) && is_whole(&end) {
        return ((start, end), true);
    }
    let cut = |code: Vec<u8>| code.get(..CODE_SIZE_MAX).map(<[u8]>::to_vec).unwrap_or(code);
    let end = end.map(|code| if code.len() > CODE_SIZE_MAX { successor(cut(code)) } else { code });
    ((start.map(cut), end), false)
}

/// The code of an edge: the first one in the range, or the first one after it.
fn edge(bound: &Bound<Vec<u8>>, is_start: bool) -> Option<Vec<u8>> {
    match (bound, is_start) {
        (Bound::Unbounded, _) => None,
        (Bound::Included(code), true) | (Bound::Excluded(code), false) => Some(code.clone()),
        // No code lies between this one and the code itself.
        (Bound::Excluded(code), true) | (Bound::Included(code), false) => Some([code, &[0][..]].concat()),
    }
}

/// The predicate for a condition on the row's key, and whether it implies the condition.
fn on_key(condition: &Node) -> Option<(Predicate, bool)> {
    let is_key = |node: &Node| matches!(node.kind(), Kind::Field(Source::Key, path) if path.is_empty());
    match condition.kind() {
        Kind::Compare(Comparison::Equal, one, other) => match (one.kind(), other.kind()) {
            (_, Kind::Literal(value)) if is_key(one) => {
                Some((Predicate::Keys(codes_that_equal(value)?), true))
            }
            (Kind::Literal(value), _) if is_key(other) => {
                Some((Predicate::Keys(codes_that_equal(value)?), true))
            }
            _ => None,
        },
        Kind::IsIn(part, among) if is_key(part) => {
            let all: Option<Vec<_>> = among.iter().map(codes_that_equal).collect();
            Some((Predicate::Keys(all?.concat()), true))
        }
        _ => {
            let (range, rest) = key_range::of(std::slice::from_ref(condition), false);
            if !rest.is_empty() {
                return None;
            }
            let (codes, mut is_exact) = codes_of(&range);
            let mut ranges = vec![codes];
            // Decimals compare with other numbers, but their codes lie apart: they are tested.
            let has_decimals = !key_range::of(std::slice::from_ref(condition), true).1.is_empty();
            if has_decimals {
                let (decimals, is_whole) = codes_of(&decimals_of(condition)?);
                ranges.push(decimals);
                is_exact &= is_whole;
            }
            Some((Predicate::KeyRanges(ranges), is_exact))
        }
    }
}

/// The range of the Decimals for which a comparison of the key with a number holds.
fn decimals_of(condition: &Node) -> Option<Range> {
    let all = key_range::decimals();
    let narrowed = |comparison: Comparison, value: &Value| {
        let code = code_of(&Value::Decimal(decimal_text(value)?))?;
        let (start, end) = match comparison {
            Comparison::Equal => (Bound::Included(code.clone()), Bound::Included(code)),
            Comparison::NotEqual => return None,
            Comparison::Less => (all.start.clone(), Bound::Excluded(code)),
            Comparison::LessOrEqual => (all.start.clone(), Bound::Included(code)),
            Comparison::Greater => (Bound::Excluded(code), all.end.clone()),
            Comparison::GreaterOrEqual => (Bound::Included(code), all.end.clone()),
        };
        Some(Range { start, end })
    };
    match condition.kind() {
        Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
            (_, Kind::Literal(value)) => narrowed(*comparison, value),
            (Kind::Literal(value), _) => narrowed(comparison.turned(), value),
            _ => None,
        },
        Kind::Between(_, least, greatest) => match (least.kind(), greatest.kind()) {
            (Kind::Literal(least), Kind::Literal(greatest)) => {
                let from = narrowed(Comparison::GreaterOrEqual, least)?;
                let to = narrowed(Comparison::LessOrEqual, greatest)?;
                Some(Range { start: from.start, end: to.end })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The codes of all keys that equal a value. None if each key must be tested.
fn codes_that_equal(value: &Value) -> Option<Vec<Vec<u8>>> {
    let mut codes = vec![code_of(value)?];
    match value {
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => {
            codes.extend(decimal_text(value).and_then(|text| code_of(&Value::Decimal(text))));
        }
        Value::Str(_) | Value::Bytes(_) | Value::Date(_) | Value::Uuid(_) | Value::Datetime(..) => {}
        _ => return None,
    }
    Some(codes)
}

fn code_of(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    push_value(&mut encoder, value).then(|| encoder.take().0)
}

/// The index range whose index has the order that is asked for.
fn served_order(
    order: &[(Node, bool)],
    index_ranges: &[IndexRange],
    indexes: &[ServerIndex],
) -> Option<(usize, bool)> {
    index_ranges.iter().find_map(|index_range| {
        let index = indexes.get(index_range.index).filter(|index| index.is_ordered)?;
        // The server sorts by all parts of the entries, in whichever ranges they lie.
        let whole = IndexRange { ranges: vec![Range::ALL], point_count: 0, ..index_range.clone() };
        let is_reverse = is_in_order(&index.candidate, index_range, order);
        Some((index_range.index, is_reverse.or_else(|| is_in_order(&index.candidate, &whole, order))?))
    })
}
