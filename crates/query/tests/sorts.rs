//! Does a sort that memory has no room for give what one gives that has all of it?
#![allow(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use std::ops::ControlFlow;

use pellucid_query::expression::parse;
use pellucid_query::sort::{Sort, SortKey, Sorted, TOP_MAX};
use pellucid_query::{Fault, Walk};
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
    sort.clone().run(&mut Rows { rows, next: 0 }, &NoShapes, || false).unwrap()
}

fn keys(sorted: Sorted, offset: u64, limit: u64) -> Vec<u32> {
    let keys = sorted.into_keys(offset, limit).unwrap();
    keys.map(|key| u32::from_be_bytes(key.unwrap().code.as_ref().try_into().unwrap())).collect()
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
        let record = |value: i64| {
            let dict = Value::Dict(vec![(Value::Str("value".into()), Value::Int(value))]);
            encode_value(&dict, &mut NoShapes).unwrap()
        };
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
            let merged = Sorted::merge(rows.chunks(size).map(|part| sorted(part, &sort)).collect());
            prop_assert_eq!(&keys(merged, offset, limit), &expected);
        }
    }
}
