//! Do sorts and groups in parts, or without enough memory, give what the whole gives?
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use std::ops::ControlFlow;

use pellucid_query::expression::parse;
use pellucid_query::group::{Aggregate, Decimals, Group, Groups, Room, Total, grouped};
use pellucid_query::sort::{Sort, SortKey, Sorted, TOP_MAX};
use pellucid_query::work::{Stop, Work};
use pellucid_query::{Column, Fault, Walk};
use pellucid_record::value::{NoShapes, Value, encode_value};
use pellucid_store::Row;
use proptest::prelude::*;

/// Rows with 4-byte keys.
struct Rows<'a> {
    rows: &'a [(u32, Vec<u8>)],
    next: usize,
}

impl Walk for Rows<'_> {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        let Some((key, record)) = self.rows.get(self.next) else { return Ok(None) };
        self.next += 1;
        Ok(Some(visit(Row { key: &key.to_be_bytes(), spelling: b"s", record })))
    }
}

fn sort_by_value(wanted: u64, memory_max: usize) -> Sort {
    let by = [(parse("value").unwrap(), false)];
    Sort::new(SortKey::new(&by).unwrap(), None, wanted, memory_max)
}

fn sorted(rows: &[(u32, Vec<u8>)], sort: &Sort) -> Sorted {
    sort.clone().run(&mut Rows { rows, next: 0 }, &NoShapes, Stop::Caller(&|| false)).unwrap()
}

fn keys(sorted: Sorted, offset: u64, limit: u64) -> Vec<u32> {
    let keys = sorted.into_keys(offset, limit, || false).unwrap();
    keys.map(|key| u32::from_be_bytes(key.unwrap().code.as_ref().try_into().unwrap())).collect()
}

fn record(value: i64) -> Vec<u8> {
    let dict = Value::Dict(vec![(Value::Str("value".into()), Value::Int(value))]);
    encode_value(&dict, &mut NoShapes).unwrap()
}

fn column() -> Column {
    Column::new(&parse("value").unwrap()).unwrap()
}

fn groups(rows: &[(u32, Vec<u8>)], room: &Room) -> Result<Groups, Fault> {
    let mut aggregates = [
        Aggregate::Count,
        Aggregate::Sum(column(), Decimals::Added(None)),
        Aggregate::Least(column()),
        Aggregate::Greatest(column()),
    ];
    grouped(&mut Rows { rows, next: 0 }, &NoShapes, &mut [column()], &mut aggregates, room, || false)
}

/// The value of a group, how many rows it has, their sum, and their least and greatest value, which are the same.
fn shown(group: &Group) -> (Value, u64, i128) {
    let value = group.values[0].clone().unwrap();
    match &group.totals[..] {
        [
            Total::Count(count),
            Total::Sum(sum, _, others),
            Total::Least(Some(least)),
            Total::Greatest(Some(greatest)),
        ] => {
            assert_eq!((&least.value, &greatest.value, others.len()), (&value, &value, 0));
            (value, *count, sum.int().unwrap())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_groups_than_there_is_room_for_are_refused() {
    let rows: Vec<_> = (0..10_000).map(|key| (key, record(i64::from(key)))).collect();
    match groups(&rows, &Room::new(1 << 20)) {
        Err(Fault::Groups(error)) => {
            assert_eq!(error.size_max, 1 << 20);
            assert!((1_000..9_000).contains(&error.count), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    // Parts share it.
    let room = Room::new(1 << 20);
    let parts: Vec<_> = rows.chunks(1_000).map(|part| groups(part, &room).is_ok()).collect();
    assert!(parts[0] && !parts[9], "{parts:?}");
    assert_eq!(groups(&rows, &Room::new(1 << 30)).unwrap().into_groups().count(), 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn runs_in_files_and_parts_give_the_same(
        values in proptest::collection::vec(0..40i64, 0..400),
        memory_max in prop_oneof![Just(0), 0..20_000usize],
        parts in 1..5usize,
        offset in 0..50u64,
        limit in prop_oneof![0..100u64, Just(u64::MAX)],
    ) {
        let rows: Vec<_> = values.iter().enumerate().map(|(key, value)| (key as u32, record(*value))).collect();
        let mut expected: Vec<_> = values.iter().enumerate().map(|(key, value)| (*value, key as u32)).collect();
        expected.sort_unstable();
        let take = usize::try_from(limit).unwrap_or(usize::MAX);
        let expected: Vec<_> = expected.into_iter().map(|(_, key)| key).skip(offset as usize).take(take).collect();
        let wanted = offset.saturating_add(limit);
        for wanted in [wanted, wanted.max(TOP_MAX + 1)] {
            let sort = sort_by_value(wanted, memory_max);
            prop_assert_eq!(&keys(sorted(&rows, &sort), offset, limit), &expected);
            let size = rows.len().div_ceil(parts).max(1);
            let sorted_parts = rows.chunks(size).map(|part| sorted(part, &sort)).collect();
            let merged = Sorted::merge(sorted_parts);
            prop_assert_eq!(&keys(merged, offset, limit), &expected);
        }
    }

    #[test]
    fn groups_in_parts_are_those_of_the_whole(
        values in proptest::collection::vec(0..20i64, 0..300),
        parts in 1..6usize,
    ) {
        let rows: Vec<_> = values.iter().enumerate().map(|(key, value)| (key as u32, record(*value))).collect();
        let room = Room::new(1 << 30);
        let whole: Vec<_> = groups(&rows, &room).unwrap().into_groups().collect();
        let size = rows.len().div_ceil(parts).max(1);
        let grouped_parts = rows.chunks(size).map(|part| groups(part, &room).unwrap()).collect();
        let merged = Groups::merge(grouped_parts, || false).unwrap();
        let merged: Vec<_> = merged.into_groups().map(|group| shown(&group)).collect();
        prop_assert_eq!(&merged, &whole.iter().map(shown).collect::<Vec<_>>());
        let mut distinct = values.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let of = |value: &i64| values.iter().filter(|other| *other == value).count();
        let expected: Vec<_> = distinct
            .iter()
            .map(|value| (Value::Int(*value), of(value) as u64, i128::from(*value) * of(value) as i128))
            .collect();
        prop_assert_eq!(merged, expected);
    }
}
