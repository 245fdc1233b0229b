//! Groups rows, and computes aggregates for each group.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{self, AtomicUsize};

use hashbrown::HashMap;
use pellucid_record::layout::tag;
use pellucid_record::value::NoShapes;
use pellucid_record::{Corrupt, Shapes, Slot, Value};
use pellucid_store::Row;

use crate::code::Code;
use crate::column::Column;
use crate::decimal_sum::DecimalSum;
use crate::evaluate::found::Found;
use crate::evaluate::spread::spread;
use crate::fault::{Fault, TooManyGroups};
use crate::field::Number;
use crate::stoppable::{self, Many, Pace, release};
use crate::sum::Sum;
use crate::walk::{Walk, damaged, for_each};

/// An aggregate over the rows of a group.
#[derive(Clone)]
pub enum Aggregate {
    /// The number of rows.
    Count,
    /// The number of rows that have a value; None counts as one.
    CountOf(Column),
    /// The sum of the numbers.
    Sum(Column, Decimals),
    /// The mean of the numbers.
    Mean(Column, Decimals),
    /// The least value that is not None, in the order of keys.
    Least(Column),
    /// The greatest value, likewise.
    Greatest(Column),
}

/// How the Decimals among the numbers of a group are added.
#[derive(Clone, Debug)]
pub enum Decimals {
    /// They are added up here; None if there was none so far.
    Added(Option<Box<DecimalSum>>),
    /// They are kept, for the caller to add.
    Kept,
    /// They were added up here, and digits may be lost: the walk has to be repeated with `Kept`.
    Lost,
}

impl Decimals {
    fn add(&mut self, text: String, others: &mut Vec<Value>) {
        match self {
            Self::Added(sum) => {
                if !sum.get_or_insert_default().add(text.as_bytes()) {
                    *self = Self::Lost;
                }
            }
            Self::Kept => others.push(Value::Decimal(text)),
            Self::Lost => {}
        }
    }

    fn put(&mut self, later: Self) {
        let is_lost = match (&mut *self, later) {
            (Self::Added(sum), Self::Added(Some(other))) => !sum.get_or_insert_default().put(*other),
            // Otherwise both are kept, or there is nothing to add.
            (_, later) => matches!(later, Self::Lost),
        };
        if is_lost {
            *self = Self::Lost;
        }
    }

    /// The sum of the Decimals, if they were added up and there is one.
    #[must_use]
    pub fn sum(&self) -> Option<&DecimalSum> {
        match self {
            Self::Added(sum) => sum.as_deref(),
            Self::Kept | Self::Lost => None,
        }
    }

    /// Whether the Decimals have to be kept to compute the whole sum.
    fn are_lost(&self, sum: &Sum, others: &[Value]) -> bool {
        match self {
            // A sum of Decimals and floats raises in Python, whatever their values are.
            Self::Added(Some(decimals)) => {
                !others.is_empty() || sum.int().is_some() && !decimals.holds_beside(sum)
            }
            Self::Added(None) | Self::Kept => false,
            Self::Lost => true,
        }
    }
}

/// Which extreme is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremes {
    /// The least value.
    Least,
    /// The greatest.
    Greatest,
}

/// The result of an aggregate.
#[derive(Clone, Debug)]
pub enum Total {
    /// A count.
    Count(u64),
    /// The sum of ints and floats, the sum of Decimals, and numbers that only the caller can add.
    Sum(Sum, Decimals, Vec<Value>),
    /// A mean, from the same three.
    Mean(Sum, Decimals, Vec<Value>),
    /// The least value so far; None if there was none.
    Least(Option<Extreme>),
    /// The greatest value so far; None if there was none.
    Greatest(Option<Extreme>),
}

/// A value, and the code that orders it.
#[derive(Clone, Debug)]
pub struct Extreme {
    code: Vec<u8>,
    /// The value.
    pub value: Value,
}

impl Extreme {
    /// The order of a value with this code beside this one. It is the order of keys, but a Decimal
    /// among numbers is compared by its value.
    fn order_of<S: Shapes + ?Sized>(
        &self,
        found: &Found<'_>,
        code: &[u8],
        shapes: &S,
    ) -> Result<Ordering, Corrupt> {
        let is_decimal = match found {
            Found::Slot(Slot::Heap { tag, .. }, _) => *tag == tag::DECIMAL,
            Found::Value(value) => matches!(**value, Value::Decimal(_)),
            _ => false,
        };
        if is_decimal != matches!(self.value, Value::Decimal(_))
            && let Some(order) = found.order(&Found::Value(Cow::Borrowed(&self.value)), shapes)?
        {
            return Ok(order);
        }
        Ok(code.cmp(&self.code))
    }

    /// Whether the fast path can tell that the value in a record is not `wanted` beside this one.
    #[inline]
    fn is_kept(&self, column: &Column, record: &[u8], wanted: Ordering) -> bool {
        let Some(place) = column.place(record) else { return false };
        let order = match &self.value {
            Value::Int(best) => place.int().map(|value| value.cmp(best)),
            Value::Float(best) => place.float().and_then(|value| value.partial_cmp(&best.0)),
            Value::Str(best) => place.text(record).map(|text| text.cmp(best.as_bytes())),
            _ => None,
        };
        order.is_some_and(|order| order != wanted)
    }

    /// The order of this extreme beside another one.
    fn order(&self, other: &Self) -> Ordering {
        let found = Found::Value(Cow::Borrowed(&self.value));
        // An owned value cannot be damaged.
        other.order_of(&found, &self.code, &NoShapes).unwrap_or_else(|_| self.code.cmp(&other.code))
    }
}

/// A group: the values that its rows have in common, None for a missing one, and the results of its
/// aggregates.
#[derive(Clone, Debug)]
pub struct Group {
    /// One for each expression that rows are grouped by.
    pub values: Vec<Option<Value>>,
    /// One for each aggregate.
    pub totals: Vec<Total>,
}

/// The groups of some rows, in the order of the codes of the values that their rows have in common.
/// Missing values come last.
#[derive(Debug, Default)]
pub struct Groups {
    groups: Many<(Box<[u8]>, Group)>,
}

/// The memory that groups may take. Several walks may share it.
#[derive(Debug)]
pub struct Room {
    used: AtomicUsize,
    size_max: usize,
}

impl Room {
    /// About this many bytes.
    #[must_use]
    pub fn new(size_max: usize) -> Self {
        Self { used: AtomicUsize::new(0), size_max }
    }

    /// Takes some of the memory. False if there is not as much left.
    fn take(&self, size: usize) -> bool {
        self.used.fetch_add(size, atomic::Ordering::Relaxed) + size <= self.size_max
    }
}

/// Groups rows by columns, and computes aggregates over each group. Without columns all rows are
/// one group.
///
/// # Errors
/// Damage, a stop, or the groups do not fit into the room.
pub fn grouped<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    shapes: &S,
    columns: &mut [Column],
    aggregates: &mut [Aggregate],
    room: &Room,
    is_stopped: impl Fn() -> bool,
) -> Result<Groups, Fault> {
    if columns.is_empty() {
        return ungrouped(rows, shapes, aggregates, is_stopped);
    }
    let mut scratch = Code::default();
    let mut found = Places::default();
    let mut groups: Vec<Group> = Vec::new();
    let branches = columns.iter().any(Column::branches);
    let walked = for_each::<()>(rows, &is_stopped, |row| {
        let mut has_room = true;
        let mut add = || -> Result<(), Corrupt> {
            if branches {
                let mut made = Made { groups: &mut groups, aggregates, room };
                has_room = found.places(columns, &row, shapes, &mut made)?;
                for place in &found.several {
                    if let Some(group) = groups.get_mut(*place) {
                        group.add_row(aggregates, &row, shapes, &mut scratch)?;
                    }
                }
                return Ok(());
            }
            let slot = match &*columns {
                [column] => in_slot(column, row.record),
                _ => None,
            };
            let place = if let Some(place) = slot.and_then(|slot| found.by_slot.get(slot)) {
                place
            } else {
                let place = found.place(columns, &row, shapes, groups.len())?;
                if place == groups.len() {
                    let values = columns.iter_mut().map(|column| column.value(&row, shapes));
                    let values = values.collect::<Result<_, _>>()?;
                    has_room =
                        Made { groups: &mut groups, aggregates, room }.make(found.code.as_bytes(), values);
                }
                if let Some(slot) = slot {
                    found.by_slot.set(slot, place);
                }
                place
            };
            if let Some(group) = groups.get_mut(place) {
                group.add_row(aggregates, &row, shapes, &mut scratch)?;
            }
            Ok(())
        };
        match add() {
            Ok(()) if has_room => ControlFlow::Continue(()),
            Ok(()) => {
                let error = TooManyGroups { count: groups.len(), size_max: room.size_max };
                ControlFlow::Break(Err(Fault::Groups(error)))
            }
            Err(error) => damaged(&row, error),
        }
    });
    if let Err(fault) = walked {
        let count = groups.len();
        release((found, groups), count);
        return Err(fault);
    }
    release(found.by_text, groups.len());
    in_order(found.by_code, groups, &mut Pace::new(is_stopped))
}

/// The tag and the bits of a field that stands in its slot as a whole.
#[inline]
fn in_slot(column: &Column, record: &[u8]) -> Option<(u8, u64)> {
    let place = column.place(record)?;
    Some((place.tag(), place.inline_bits()?))
}

/// All rows as one group, also if there are no rows.
fn ungrouped<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    shapes: &S,
    aggregates: &mut [Aggregate],
    is_stopped: impl Fn() -> bool,
) -> Result<Groups, Fault> {
    let mut totals: Vec<Total> = aggregates.iter().map(Total::of).collect();
    // Adding up one column takes less time than reading its rows, so that it has a loop of its own.
    if let ([Aggregate::Sum(column, _)], [Total::Sum(sum, decimals, others)]) =
        (&mut *aggregates, &mut totals[..])
    {
        for_each::<()>(rows, is_stopped, |row| {
            match column.place(row.record).and_then(|place| Number::at(&place)) {
                Some(Number::Int(value)) => sum.add_int(value),
                Some(Number::Float(value)) => sum.add_float(value),
                None => {
                    let mut add = |found: &Found<'_>| add_number(found, shapes, (sum, decimals, others));
                    let visited = column.visit(&row, shapes, &mut |found| spread(found, shapes, &mut add));
                    if let Err(error) = visited {
                        return damaged(&row, error);
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
    } else {
        let (mut totals, mut scratch): (Vec<_>, _) =
            (aggregates.iter_mut().zip(&mut totals).collect(), Code::default());
        for_each::<()>(rows, is_stopped, |row| {
            for (aggregate, total) in &mut totals {
                if !aggregate.add_quickly(total, row.record)
                    && let Err(error) = aggregate.add(total, &row, shapes, &mut scratch)
                {
                    return damaged(&row, error);
                }
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(Groups::one(Group { values: Vec::new(), totals }))
}

/// The groups in the order of their codes. `places` has the place of each in the list.
fn in_order(
    places: HashMap<Box<[u8]>, usize>,
    groups: Vec<Group>,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Groups, Fault> {
    let mut groups = Many::new(groups.into_iter().map(Some).collect());
    let places = stoppable::sort(Many::new(places.into_iter().collect()), Ord::cmp, pace)?;
    let mut sorted = Many::new(Vec::with_capacity(groups.len()));
    for (code, place) in places.into_rest() {
        sorted.extend(groups.get_mut(place).and_then(Option::take).map(|group: Group| (code, group)));
        pace.step()?;
    }
    Ok(Groups { groups: sorted })
}

/// The place of each group in the list of groups.
#[derive(Default)]
struct Places {
    by_code: HashMap<Box<[u8]>, usize>,
    /// Groups of one string each, which are found without making a code.
    by_text: HashMap<Box<[u8]>, usize>,
    by_slot: SlotPlaces,
    code: Code,
    /// The places of the groups of one row, if it is in several.
    several: Vec<usize>,
}

/// The groups so far, and what is needed to make another one.
struct Made<'a> {
    groups: &'a mut Vec<Group>,
    aggregates: &'a [Aggregate],
    room: &'a Room,
}

impl Made<'_> {
    /// Makes a group. Returns whether there was room for it.
    fn make(&mut self, code: &[u8], values: Vec<Option<Value>>) -> bool {
        self.groups.push(Group { values, totals: self.aggregates.iter().map(Total::of).collect() });
        self.room.take(size_of_group(code, self.aggregates.len()))
    }
}

impl Places {
    /// The place of a row's group. If the group is new, its place becomes `next`.
    fn place<S: Shapes + ?Sized>(
        &mut self,
        columns: &mut [Column],
        row: &Row<'_>,
        shapes: &S,
        next: usize,
    ) -> Result<usize, Corrupt> {
        if let [column] = &mut *columns {
            let place = match column.place(row.record).and_then(|place| place.text(row.record)) {
                Some(text) => self.by_text.get(text),
                None => match column.read(row, shapes)? {
                    Some((Slot::Str(text), _)) => self.by_text.get(text),
                    _ => None,
                },
            };
            if let Some(place) = place {
                return Ok(*place);
            }
        }
        self.code.clear();
        for column in columns.iter_mut() {
            let found = column.read(row, shapes)?;
            let found = match found {
                Some((slot, record)) => Found::of_slot(slot, record, shapes)?,
                None => Found::Missing,
            };
            self.code.push_group(&found, shapes)?;
        }
        let place = if let Some(place) = self.by_code.get(self.code.as_bytes()) {
            *place
        } else {
            self.by_code.insert(self.code.as_bytes().into(), next);
            next
        };
        if let [column] = columns
            && let Some((Slot::Str(text), _)) = column.read(row, shapes)?
        {
            self.by_text.insert(text.into(), place);
        }
        Ok(place)
    }
}

/// The values of a column in one row, by their codes.
type Coded = BTreeMap<Vec<u8>, Option<Value>>;

impl Places {
    /// Finds the places of all groups of a row, if a column has many values: there is one group for
    /// each combination of distinct values. Returns whether there was room for them.
    fn places<S: Shapes + ?Sized>(
        &mut self,
        columns: &mut [Column],
        row: &Row<'_>,
        shapes: &S,
        made: &mut Made<'_>,
    ) -> Result<bool, Corrupt> {
        let mut all = Vec::with_capacity(columns.len());
        for column in columns {
            let mut values = Coded::new();
            column.visit(row, shapes, &mut |found| {
                self.code.clear();
                self.code.push_group(found, shapes)?;
                if !values.contains_key(self.code.as_bytes()) {
                    values.insert(self.code.as_bytes().to_vec(), found.to_value(shapes)?);
                }
                Ok(())
            })?;
            all.push(values);
        }
        self.several.clear();
        Ok(self.combine(&all, &mut Vec::new(), &mut Vec::new(), made))
    }

    fn combine(
        &mut self,
        columns: &[Coded],
        code: &mut Vec<u8>,
        values: &mut Vec<Option<Value>>,
        made: &mut Made<'_>,
    ) -> bool {
        let Some((column, rest)) = columns.split_first() else {
            if let Some(place) = self.by_code.get(code.as_slice()) {
                self.several.push(*place);
                return true;
            }
            let place = made.groups.len();
            self.by_code.insert(code.as_slice().into(), place);
            self.several.push(place);
            return made.make(code, values.clone());
        };
        for (own, value) in column {
            let size = code.len();
            code.extend_from_slice(own);
            values.push(value.clone());
            let has_room = self.combine(rest, code, values, made);
            code.truncate(size);
            values.pop();
            if !has_room {
                return false;
            }
        }
        true
    }
}

/// A cache of the groups that were met last, by a value that stands in its slot as a whole: a short
/// string, a number, a bool, a date.
///
/// The same tag and bits mean the same value, so that only the bits are hashed and compared.
struct SlotPlaces {
    entries: Box<[SlotPlace; SLOT_COUNT]>,
}

#[derive(Clone, Copy)]
struct SlotPlace {
    bits: u64,
    tag: u8,
    place: u32,
}

/// The number of slots in the cache: 16 KiB, a third of a processor's first-level cache.
const SLOT_COUNT: usize = 1 << SLOT_COUNT_LOG2;
const SLOT_COUNT_LOG2: u32 = 10;

impl Default for SlotPlaces {
    fn default() -> Self {
        // No value in a slot has the tag `HEAP`, so that the entries are empty.
        Self { entries: Box::new([SlotPlace { bits: 0, tag: tag::HEAP, place: 0 }; SLOT_COUNT]) }
    }
}

impl SlotPlaces {
    #[inline]
    fn spot(bits: u64) -> usize {
        // 2^64 divided by the golden ratio: neighbours get spots far from each other, whichever of
        // their bits differ.
        (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOT_COUNT_LOG2)) as usize
    }

    #[inline]
    fn get(&self, (tag, bits): (u8, u64)) -> Option<usize> {
        let spot = Self::spot(bits);
        let is_it = |entry: &&SlotPlace| entry.bits == bits && entry.tag == tag;
        let at = |spot: usize| self.entries.get(spot).filter(is_it);
        at(spot).or_else(|| at(spot ^ 1)).map(|entry| entry.place as usize)
    }

    /// Stores a place. The entry that was in its spot moves to the spot beside it. With one spot
    /// for each value, 9 of 100 values shared a spot with another one, and were looked up by their
    /// texts in row after row.
    fn set(&mut self, (tag, bits): (u8, u64), place: usize) {
        let Ok(place) = u32::try_from(place) else { return };
        let spot = Self::spot(bits);
        if let Some(entry) = self.entries.get_mut(spot) {
            let before = std::mem::replace(entry, SlotPlace { bits, tag, place });
            if let Some(beside) = self.entries.get_mut(spot ^ 1) {
                *beside = before;
            }
        }
    }
}

/// Roughly how much memory a group takes.
fn size_of_group(code: &[u8], aggregate_count: usize) -> usize {
    const ALLOCATIONS: usize = 6 * 16;
    // Its code stands in two tables, and its values are the same bytes in another form.
    size_of::<Group>() + 3 * code.len() + aggregate_count * size_of::<Total>() + ALLOCATIONS
}

impl Groups {
    /// The only group, if rows are not grouped by any value.
    #[must_use]
    pub fn one(group: Group) -> Self {
        Self { groups: Many::new(vec![(Box::default(), group)]) }
    }

    /// Whether Decimals have to be kept to compute the result of some group.
    #[must_use]
    pub fn lose_digits(&self) -> bool {
        let is_lost = |total: &Total| match total {
            Total::Sum(sum, decimals, others) | Total::Mean(sum, decimals, others) => {
                decimals.are_lost(sum, others)
            }
            _ => false,
        };
        self.groups.iter().any(|(_, group)| group.totals.iter().any(is_lost))
    }

    /// The groups, in order.
    pub fn into_groups(self) -> impl Iterator<Item = Group> {
        self.groups.into_rest().map(|(_, group)| group)
    }

    /// Merges the groups of parts that follow each other into the groups of all rows.
    ///
    /// # Errors
    /// A stop.
    pub fn merge(parts: Vec<Self>, is_stopped: impl Fn() -> bool) -> Result<Self, Fault> {
        let mut pace = Pace::new(is_stopped);
        let parts = parts.into_iter().map(|part| part.groups).collect();
        let all = stoppable::merge(parts, |one, other| one.0.cmp(&other.0), &mut pace)?;
        let mut whole = Self::default();
        for (code, group) in all.into_rest() {
            match whole.groups.last_mut() {
                Some((last, into)) if *last == code => into.add(group),
                _ => whole.groups.push((code, group)),
            }
            pace.step()?;
        }
        Ok(whole)
    }
}

impl Group {
    /// The group of no rows.
    #[must_use]
    pub fn empty(aggregates: &[Aggregate]) -> Self {
        Self { values: Vec::new(), totals: aggregates.iter().map(Total::of).collect() }
    }

    #[inline]
    fn add_row<S: Shapes + ?Sized>(
        &mut self,
        aggregates: &mut [Aggregate],
        row: &Row<'_>,
        shapes: &S,
        scratch: &mut Code,
    ) -> Result<(), Corrupt> {
        for (aggregate, total) in aggregates.iter_mut().zip(&mut self.totals) {
            if !aggregate.add_quickly(total, row.record) {
                aggregate.add(total, row, shapes, scratch)?;
            }
        }
        Ok(())
    }

    /// Adds the results of later rows of the same group.
    fn add(&mut self, later: Self) {
        for (total, other) in self.totals.iter_mut().zip(later.totals) {
            total.add(other);
        }
    }
}

impl Total {
    /// The sum of ints and floats, and that of Decimals, if they are the sum of all numbers that
    /// adding them one after another would give.
    #[must_use]
    pub fn sure_sum(&self) -> Option<(&Sum, DecimalSum)> {
        let Self::Sum(sum, Decimals::Added(decimals), others) = self else { return None };
        let decimals = decimals.as_deref().copied().unwrap_or_default();
        (others.is_empty() && decimals.holds_beside(sum)).then_some((sum, decimals))
    }

    fn of(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::Count | Aggregate::CountOf(_) => Total::Count(0),
            Aggregate::Sum(_, decimals) => Total::Sum(Sum::default(), decimals.clone(), Vec::new()),
            Aggregate::Mean(_, decimals) => Total::Mean(Sum::default(), decimals.clone(), Vec::new()),
            Aggregate::Least(_) => Total::Least(None),
            Aggregate::Greatest(_) => Total::Greatest(None),
        }
    }

    /// Adds the result of later rows.
    fn add(&mut self, later: Self) {
        match (self, later) {
            (Total::Count(count), Total::Count(other)) => *count += other,
            (Total::Sum(sum, decimals, values), Total::Sum(other, other_decimals, others))
            | (Total::Mean(sum, decimals, values), Total::Mean(other, other_decimals, others)) => {
                sum.add(&other);
                decimals.put(other_decimals);
                values.extend(others);
            }
            (Total::Least(best), Total::Least(Some(other)))
                if best.as_ref().is_none_or(|best| other.order(best).is_lt()) =>
            {
                *best = Some(other);
            }
            (Total::Greatest(best), Total::Greatest(Some(other)))
                if best.as_ref().is_none_or(|best| other.order(best).is_gt()) =>
            {
                *best = Some(other);
            }
            // The other result has no value. Both are of the same aggregate.
            _ => {}
        }
    }
}

impl Aggregate {
    /// Adds a row if the fast path can. Returns whether it could.
    #[inline]
    fn add_quickly(&self, total: &mut Total, record: &[u8]) -> bool {
        match (self, total) {
            (Aggregate::Sum(column, _), Total::Sum(sum, ..))
            | (Aggregate::Mean(column, _), Total::Mean(sum, ..)) => {
                match column.place(record).and_then(|place| Number::at(&place)) {
                    Some(Number::Int(value)) => sum.add_int(value),
                    Some(Number::Float(value)) => sum.add_float(value),
                    None => return false,
                }
                true
            }
            (Aggregate::Count, Total::Count(count)) => {
                *count += 1;
                true
            }
            (Aggregate::CountOf(column), Total::Count(count)) => {
                let Some(place) = column.place(record) else { return false };
                *count += u64::from(place.tag() != tag::ABSENT);
                true
            }
            (Aggregate::Least(column), Total::Least(Some(best))) => {
                best.is_kept(column, record, Ordering::Less)
            }
            (Aggregate::Greatest(column), Total::Greatest(Some(best))) => {
                best.is_kept(column, record, Ordering::Greater)
            }
            _ => false,
        }
    }

    fn add<S: Shapes + ?Sized>(
        &mut self,
        total: &mut Total,
        row: &Row<'_>,
        shapes: &S,
        scratch: &mut Code,
    ) -> Result<(), Corrupt> {
        match (self, total) {
            (Aggregate::Count, Total::Count(count)) => *count += 1,
            (Aggregate::CountOf(column), Total::Count(count)) if !column.branches() => {
                *count += u64::from(column.read(row, shapes)?.is_some());
            }
            (Aggregate::CountOf(column), Total::Count(count)) => {
                column.visit(row, shapes, &mut |found| {
                    *count += u64::from(!found.is_missing());
                    Ok(())
                })?;
            }
            (Aggregate::Sum(column, _), Total::Sum(sum, decimals, others))
            | (Aggregate::Mean(column, _), Total::Mean(sum, decimals, others)) => {
                let mut add = |found: &Found<'_>| add_number(found, shapes, (sum, decimals, others));
                column.visit(row, shapes, &mut |found| spread(found, shapes, &mut add))?;
            }
            (Aggregate::Least(column), Total::Least(best)) => {
                let mut take = |found: &Found<'_>| take_better(found, best, Ordering::Less, shapes, scratch);
                column.visit(row, shapes, &mut |found| spread(found, shapes, &mut take))?;
            }
            (Aggregate::Greatest(column), Total::Greatest(best)) => {
                let mut take =
                    |found: &Found<'_>| take_better(found, best, Ordering::Greater, shapes, scratch);
                column.visit(row, shapes, &mut |found| spread(found, shapes, &mut take))?;
            }
            // A total is always of its own aggregate's kind.
            _ => {}
        }
        Ok(())
    }
}

fn take_better<S: Shapes + ?Sized>(
    found: &Found<'_>,
    best: &mut Option<Extreme>,
    wanted: Ordering,
    shapes: &S,
    scratch: &mut Code,
) -> Result<(), Corrupt> {
    if found.is_missing() || found.is_none() {
        return Ok(());
    }
    scratch.clear();
    scratch.push(found, shapes)?;
    let is_better = match best {
        None => true,
        Some(best) => best.order_of(found, scratch.as_bytes(), shapes)? == wanted,
    };
    if is_better && let Some(value) = found.to_value(shapes)? {
        *best = Some(Extreme { code: scratch.as_bytes().to_vec(), value });
    }
    Ok(())
}

fn add_number<S: Shapes + ?Sized>(
    found: &Found<'_>,
    shapes: &S,
    (sum, decimals, others): (&mut Sum, &mut Decimals, &mut Vec<Value>),
) -> Result<(), Corrupt> {
    if let Found::Slot(Slot::Int(value), _) = found {
        sum.add_int(*value);
        return Ok(());
    }
    if let (Found::Slot(Slot::Heap { tag: tag::DECIMAL, payload, .. }, _), Decimals::Added(Some(all))) =
        (found, &mut *decimals)
        && all.add(payload)
    {
        return Ok(());
    }
    match found.to_value(shapes)? {
        Some(Value::Int(value)) => sum.add_int(value),
        Some(Value::Float(value)) => sum.add_float(value.0),
        Some(Value::Bool(value)) => sum.add_int(i64::from(value)),
        Some(Value::Decimal(text)) => decimals.add(text, others),
        Some(value @ (Value::BigInt(_) | Value::Complex(..))) => others.push(value),
        // NumPy's scalars are numbers too, but `agg` adds none.
        Some(Value::Ndarray { .. }) if matches!(decimals, Decimals::Added(_)) => *decimals = Decimals::Lost,
        _ => {}
    }
    Ok(())
}
