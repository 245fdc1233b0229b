//! Does a reader of a field find it, however the shapes of the records change from one to the next?
//!
//! A `FieldReader` remembers where the field was: by the root's head in one of 256 places, by shape in
//! one of 16, and where the last record led it. So there are more shapes than places, the field stands
//! elsewhere in each, or is missing, and the records between which it jumps are chosen at random. Values
//! are of several types and sizes, since a slot holds short strings itself, and the width of nested
//! containers follows from their values.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests may do what tests may"
)]

use pellucid_query::FieldReader;
use pellucid_query::expression::{Kind, parse};
use pellucid_record::shape::{Dictionary, Shape};
use pellucid_record::value::{NoShapes, ShapeAssigner, Value, encode_value};
use pellucid_record::view::Slot;
use proptest::prelude::*;

/// Admits each shape at first sight.
struct Admitting<'a>(&'a Dictionary);

impl ShapeAssigner for Admitting<'_> {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.0.find(names).or_else(|| self.0.push(Shape::new(names).ok()?).ok())
    }
}

fn value(kind: u8, number: i64) -> Value {
    match kind {
        0 => Value::Int(number),
        1 => Value::Int(number % 100),
        2 => Value::Str("short".into()),
        3 => Value::Str(format!("a string that has no room in a slot {number}")),
        4 => Value::Bool(number % 2 == 0),
        5 => Value::None,
        6 => Value::List(vec![Value::Int(number)]),
        _ => Value::Dict(vec![(Value::Str("c".into()), Value::Int(number))]),
    }
}

/// A dict whose field `name` stands after `before` other fields, and ahead of `after`; they are called otherwise in
/// each shape.
fn dict(name: &str, inner: Option<Value>, (shape, before, after): (u16, u8, u8)) -> Value {
    let other = |place: u8| {
        (Value::Str(format!("f{shape}_{place}")), Value::Int(i64::from(place) << (4 * (place % 12))))
    };
    let mut fields: Vec<_> = (0..before).map(other).collect();
    fields.extend(inner.map(|inner| (Value::Str(name.into()), inner)));
    fields.extend((before..before + after).map(other));
    Value::Dict(fields)
}

/// What was found, with its bytes.
fn shown(slot: Option<Slot<'_>>) -> String {
    format!("{slot:?}")
}

fn reader(path: &str) -> FieldReader {
    match parse(path).unwrap().kind() {
        Kind::Field(_, steps) => FieldReader::of(steps).unwrap(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reader_finds_what_a_new_one_finds(
        made in prop::collection::vec(
            ((0_u16..600, 0_u8..6, 0_u8..4), (0_u16..40, 0_u8..4, 0_u8..3), 0_u8..8, any::<i64>(), any::<bool>(), 0_u8..10),
            1..300,
        ),
        visits in prop::collection::vec(any::<prop::sample::Index>(), 1..600),
    ) {
        let dictionary = Dictionary::new();
        let records: Vec<_> = made
            .into_iter()
            .map(|(root, nested, kind, number, is_shaped, luck)| {
                let inner = match luck {
                    0 => None,
                    1..=4 => Some(dict("b", Some(value(kind, number)), nested)),
                    5 => Some(dict("b", None, nested)),
                    _ => Some(value(kind, number)),
                };
                let whole = if luck == 9 { value(kind, number) } else { dict("a", inner, root) };
                if is_shaped {
                    encode_value(&whole, &mut Admitting(&dictionary)).unwrap()
                } else {
                    encode_value(&whole, &mut NoShapes).unwrap()
                }
            })
            .collect();
        for path in ["a", "a.b", "a.b.c", "f3_1"] {
            let mut reader_of_all = reader(path);
            for visit in &visits {
                let record = visit.get(&records);
                let expected = shown(reader(path).read(record, &dictionary).unwrap());
                if let Some(quick) = reader_of_all.quick_int(record) {
                    prop_assert_eq!(shown(Some(Slot::Int(quick))), expected.clone());
                }
                if let Some(hopped) = reader_of_all.hop(record) {
                    prop_assert_eq!(shown(Some(hopped)), expected.clone());
                }
                prop_assert_eq!(shown(reader_of_all.read(record, &dictionary).unwrap()), expected);
            }
        }
    }
}
