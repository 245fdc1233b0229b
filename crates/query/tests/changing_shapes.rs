//! Does a reader of a field find it, however the shapes of the records change from one to the next?
//!
//! A `FieldReader` remembers where the field was, by the heads of the record and of the dicts in it. So
//! there are many shapes, the field stands elsewhere in each, or is missing, and the records between
//! which it jumps are chosen at random. Values are of several types and sizes, since a slot holds short
//! strings itself, and the width of nested containers follows from their values. What it finds is what
//! `resolve` finds, which looks up each name in each record.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests may do what tests may"
)]

use pellucid_query::FieldReader;
use pellucid_query::expression::{Kind, Step, parse};
use pellucid_record::layout::tag;
use pellucid_record::path::{Step as PathStep, resolve};
use pellucid_record::place::Place;
use pellucid_record::shape::{Dictionary, Shape};
use pellucid_record::value::{Double, NoShapes, ShapeAssigner, Value, encode_value};
use pellucid_record::view::{Root, Slot};
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
        6 => Value::List(
            (0..=number.rem_euclid(200)).map(|place| Value::Int(place * (number % 300))).collect(),
        ),
        7 => Value::Tuple(vec![Value::Str("in a tuple".into()), value(8, number), Value::Float(Double(0.5))]),
        8 => Value::Dict(vec![(Value::Str("c".into()), Value::Int(number))]),
        9 => Value::List(vec![value(8, number), value(8, number % 1000), Value::None]),
        10 => Value::Float(Double(f64::from(number as i32) / 4.0)),
        11 => Value::Bytes(b"x".to_vec()),
        12 => Value::Date(1 + number.rem_euclid(3_000_000) as u32),
        13 => Value::List(vec![Value::Float(Double(1.5)), Value::Float(Double(f64::from(number as i32)))]),
        14 => Value::Dict((0..12).map(|key| (Value::Int(key - 1), Value::Int(number))).collect()),
        _ => Value::Datetime(number.rem_euclid(1 << 50), number % 2 == 0),
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

fn reader(path: &str) -> (FieldReader, Vec<Step>) {
    match parse(path).unwrap().kind() {
        Kind::Field(_, steps) => (FieldReader::of(steps).unwrap(), steps.clone()),
        other => panic!("{other:?}"),
    }
}

/// What `resolve` finds.
fn resolved<'a>(record: &'a [u8], shapes: &Dictionary, path: &[Step]) -> Option<Slot<'a>> {
    let steps: Vec<_> = path
        .iter()
        .map(|step| match step {
            Step::Field(name) => PathStep::Field(name),
            Step::Index(index) => PathStep::Index(*index),
            Step::Key(key) => PathStep::Key(key),
            Step::Each => panic!("resolve has one result"),
        })
        .collect();
    resolve(record, shapes, &steps).unwrap().map(|found| match found {
        Root::Container(container) => Slot::Container(container),
        Root::Scalar(slot) => slot,
    })
}

/// Whether the short ways to a value in a place say what the slot says.
fn agrees(place: &Place, slot: Option<Slot<'_>>, record: &[u8]) -> bool {
    let text = match slot {
        Some(Slot::Str(text)) => Some(text),
        _ => None,
    };
    let bits = match slot {
        None | Some(Slot::None | Slot::Bool(_)) => Some(0),
        Some(Slot::Int(value)) => Some(value.cast_unsigned()),
        Some(Slot::Float(value)) => Some(value.to_bits()),
        Some(Slot::Date(ordinal)) => Some(u64::from(ordinal)),
        Some(Slot::Datetime(micros)) => Some(micros.cast_unsigned()),
        Some(Slot::Str(text)) if place.tag() != tag::STR => {
            Some(text.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
        }
        _ => None,
    };
    let is_inline = place.inline_bits() == bits || bits.is_none() && place.tag() < tag::HEAP;
    place.int() == slot.and_then(|slot| if let Slot::Int(value) = slot { Some(value) } else { None })
        && place.float()
            == slot.and_then(|slot| if let Slot::Float(value) = slot { Some(value) } else { None })
        && place.text(record) == text
        && is_inline
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reader_finds_what_is_found_by_name(
        made in prop::collection::vec(
            ((0_u16..600, 0_u8..6, 0_u8..4), (0_u16..40, 0_u8..4, 0_u8..3), 0_u8..16, any::<i64>(), any::<bool>(), 0_u8..10),
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
        for path in ["a", "a.b", "a.b.c", "f3_1", "a[1]", "a[-2].c", "a.b[0]", "a.b[-1]", "a.b[1].c", "a.b[199]"] {
            let (mut reader, steps) = reader(path);
            for visit in &visits {
                let record = visit.get(&records);
                let expected = resolved(record, &dictionary, &steps);
                if let Some(place) = reader.place(record) {
                    let slot = place.slot(record, &dictionary).unwrap();
                    prop_assert_eq!(Some(slot).filter(|slot| *slot != Slot::Absent), expected);
                    prop_assert!(agrees(&place, expected, record), "{place:?} {expected:?}");
                }
                prop_assert_eq!(reader.read(record, &dictionary).unwrap(), expected);
            }
        }
    }
}

#[test]
fn a_path_through_known_shapes_needs_no_names() {
    let dictionary = Dictionary::new();
    let record = |shape: u16, number: i64| {
        let nested = dict("b", Some(value(9, number)), (shape % 7, 1, 1));
        encode_value(&dict("a", Some(nested), (shape, (shape % 5) as u8, 2)), &mut Admitting(&dictionary))
            .unwrap()
    };
    let (mut reader, _) = reader("a.b[-3].c");
    let shapes = 0..1000;
    // The widths of the nested dicts differ with these numbers.
    let numbers = [1, 1000, 100_000, 1 << 40];
    for (shape, number) in shapes.clone().flat_map(|shape| numbers.map(|number| (shape, number))) {
        reader.read(&record(shape, number), &dictionary).unwrap();
    }
    for (shape, number) in shapes.flat_map(|shape| numbers.map(|number| (shape, number + 1))) {
        assert_eq!(reader.place(&record(shape, number)).and_then(|place| place.int()), Some(number));
    }
    let missing =
        encode_value(&dict("a", Some(Value::None), (3, 3, 2)), &mut Admitting(&dictionary)).unwrap();
    assert_eq!(reader.place(&missing).map(|place| place.tag()), Some(tag::ABSENT));
}
