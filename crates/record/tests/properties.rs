//! Tests that reading returns what was written, and that no bytes can crash a reader.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use std::collections::HashSet;

use pellucid_record::dump::dump;
use pellucid_record::envelope::{self, Tables};
use pellucid_record::keyed::CanonicalKey;
use pellucid_record::layout::tag;
use pellucid_record::payload::{self, Overflow, Timedelta};
use pellucid_record::validate::validate_record;
use pellucid_record::value::{
    Double, NoShapes, OwnedZone, ShapeAssigner, Value, decode, encode_value, push_value,
};
use pellucid_record::{Container, Corrupt, Damage, Encoder, Kind, Root, Shape, Shapes, Slot, validate, view};
use proptest::collection::vec;
use proptest::prelude::*;

/// Gives every second dict a shape, so that both ways of writing one occur everywhere.
#[derive(Default)]
struct EverySecond {
    tables: Tables,
    count: usize,
}

impl ShapeAssigner for EverySecond {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.count += 1;
        if self.count.is_multiple_of(2) { None } else { self.tables.admit(names) }
    }
}

// Doubles that have broken codecs before: both zeros, NaNs with payloads and signs, the limits.
// any::<f64>() alone finds few.
fn doubles() -> impl Strategy<Value = Double> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        Just(-0.0),
        Just(0.0),
        Just(f64::from_bits(0x7FF8_0000_0000_0001)),
        Just(f64::from_bits(0xFFF0_0000_0000_0001)),
        Just(f64::INFINITY),
    ]
    .prop_map(Double)
}

// Ints at the limits of each slot width.
fn ints() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -200..200i64,
        Just(i64::from(i16::MIN)),
        Just(i64::from(i16::MAX) + 1),
        Just(i64::from(i32::MAX)),
        Just(i64::from(i32::MIN) - 1),
        Just(i64::MIN),
    ]
}

fn big_ints() -> impl Strategy<Value = Value> {
    vec(any::<u8>(), 9..40).prop_filter_map("as short as it goes", |bytes| {
        payload::is_bigint(&bytes).then_some(Value::BigInt(bytes))
    })
}

// Empty, of one, eight and nine bytes (the limits of a slot), with a NUL, long.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "[a-c\u{0}]{7,10}", "\\PC{0,20}", "[a-z]{120,140}"]
}

fn surrogates() -> impl Strategy<Value = Value> {
    (texts(), 0xA0..0xC0u8, 0x80..0xC0u8, texts()).prop_map(|(before, second, third, after)| {
        let mut bytes = before.into_bytes();
        bytes.extend([0xED, second, third]);
        bytes.extend(after.bytes());
        Value::Surrogates(bytes)
    })
}

fn zones() -> impl Strategy<Value = OwnedZone> {
    prop_oneof![
        (-86_399_999_999..86_400_000_000i64, "[A-Z]{0,4}")
            .prop_map(|(offset, name)| OwnedZone::Fixed(offset, name)),
        "[A-Z][a-z]{2,6}/[A-Z][a-z]{2,6}".prop_map(OwnedZone::Key),
    ]
}

const DATETIME_END: i64 = 3_652_059 * 86_400_000_000;

fn times() -> impl Strategy<Value = Value> {
    prop_oneof![
        (1..=3_652_059u32).prop_map(Value::Date),
        (0..DATETIME_END, any::<bool>()).prop_map(|(micros, fold)| Value::Datetime(micros, fold)),
        (0..DATETIME_END, any::<bool>(), zones(), -1000..1000i64).prop_map(|(local, fold, zone, offset)| {
            let offset = if let OwnedZone::Fixed(own, _) = zone { own } else { offset };
            Value::Aware { local, fold, offset, zone }
        }),
        (0..86_400_000_000i64, any::<bool>(), proptest::option::of(zones()))
            .prop_map(|(micros, fold, zone)| Value::Time(micros, fold, zone)),
        (-999_999_999..=999_999_999i32, 0..86_400u32, 0..1_000_000u32)
            .prop_map(|(days, seconds, micros)| Value::Timedelta(Timedelta { days, seconds, micros })),
    ]
}

fn hashable_scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::None),
        2 => any::<bool>().prop_map(Value::Bool),
        6 => ints().prop_map(Value::Int),
        4 => doubles().prop_map(Value::Float),
        8 => texts().prop_map(Value::Str),
        1 => surrogates(),
        2 => vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
        1 => big_ints(),
        1 => (doubles(), doubles()).prop_map(|(real, imaginary)| Value::Complex(real, imaginary)),
        1 => "-?[0-9]{1,30}(\\.[0-9]{1,5})?(E[+-][0-9]{1,4})?".prop_map(Value::Decimal),
        1 => any::<[u8; 16]>().prop_map(Value::Uuid),
        2 => times(),
    ]
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        20 => hashable_scalars(),
        1 => vec(any::<u8>(), 0..12).prop_map(Value::Bytearray),
        1 => vec(any::<u8>(), 0..12).prop_map(Value::Pickle),
        1 => (any::<u64>(), any::<u64>(), Just(tag::BYTES)).prop_map(|(blob, size, tag)| Value::Overflow(Overflow { tag, blob, size })),
        1 => (vec(0..4i64, 0..4), 0..4u8, any::<bool>()).prop_map(|(mut shape, flags, structured)| {
            if flags & 2 != 0 {
                shape.clear();
            }
            let dtype = if structured {
                Value::List(vec![Value::Tuple(vec![Value::Str("x".into()), Value::Str("<f8".into())])])
            } else {
                Value::Str("<f8".into())
            };
            let count: i64 = shape.iter().product();
            let data = (0u8..=255).cycle().take(usize::try_from(count * 8).unwrap()).collect();
            Value::Ndarray { dtype: Box::new(dtype), shape, flags, data }
        }),
    ]
}

fn hashables() -> impl Strategy<Value = Value> {
    hashable_scalars().prop_recursive(3, 8, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Tuple),
            vec(inner, 0..4).prop_map(Value::FrozenSet),
        ]
    })
}

/// The canonical bytes of a value as a key: keys with equal bytes are one entry of a dict.
fn canonical(value: &Value) -> Vec<u8> {
    let list = encode_value(&Value::Tuple(vec![value.clone()]), &mut NoShapes).unwrap();
    let container = Container::root(&list, &NoShapes).unwrap();
    let slot = container.slot(&list, &NoShapes, 0).unwrap();
    CanonicalKey::new().of(&list, &NoShapes, &slot).unwrap().to_vec()
}

fn without_equal_keys(entries: Vec<(Value, Value)>) -> Value {
    let mut seen = HashSet::new();
    Value::Dict(entries.into_iter().filter(|(key, _)| seen.insert(canonical(key))).collect())
}

fn values() -> impl Strategy<Value = Value> {
    scalars().prop_recursive(6, 60, 12, |inner| {
        prop_oneof![
            4 => vec(inner.clone(), 0..12).prop_map(Value::List),
            2 => vec(inner.clone(), 0..6).prop_map(Value::Tuple),
            2 => vec(ints(), 1..40).prop_map(|ints| Value::List(ints.into_iter().map(Value::Int).collect())),
            2 => vec(doubles(), 1..10).prop_map(|all| Value::List(all.into_iter().map(Value::Float).collect())),
            1 => vec(hashables(), 0..8).prop_map(Value::Set),
            6 => vec(("[a-h]{1,3}".prop_map(Value::Str), inner.clone()), 0..12).prop_map(without_equal_keys),
            3 => vec((hashables(), inner.clone()), 0..14).prop_map(without_equal_keys),
            1 => ("[a-z.]{1,9}", inner).prop_map(|(name, value)| Value::Registered(name, Box::new(value))),
        ]
    })
}

/// Equal, ignoring the order of sets.
fn same(a: &Value, b: &Value) -> bool {
    let all = |a: &[Value], b: &[Value]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    match (a, b) {
        (Value::Set(a), Value::Set(b)) | (Value::FrozenSet(a), Value::FrozenSet(b)) => {
            let mut rest: Vec<&Value> = b.iter().collect();
            let found = a.iter().all(|element| match rest.iter().position(|other| same(element, other)) {
                Some(index) => {
                    rest.swap_remove(index);
                    true
                }
                None => false,
            });
            found && rest.is_empty()
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => all(a, b),
        (Value::Dict(a), Value::Dict(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, v), (l, w))| same(k, l) && same(v, w))
        }
        (Value::Registered(a, v), Value::Registered(b, w)) => a == b && same(v, w),
        _ => a == b,
    }
}

/// Reads everything that can be reached through the accessors, slot by slot. Returns the number of
/// values.
fn visit<S: Shapes>(bytes: &[u8], shapes: &S, container: Container, depth: u32) -> Result<usize, Corrupt> {
    let mut count = 1;
    if depth == 0 || count > 10_000 {
        return Ok(count);
    }
    if container.kind.is_packed() {
        assert_eq!(container.packed_bytes(bytes)?.len(), (container.count as usize) << container.width_log2);
    }
    for index in 0..container.count.min(2_000) {
        let slot = container.slot(bytes, shapes, index)?;
        if let Slot::Int(value) = slot {
            assert_eq!(container.int(bytes, index), Some(value));
        }
        if let Slot::Container(inner) = slot {
            assert!(inner.start > container.start && inner.end <= container.end);
            count += visit(bytes, shapes, inner, depth - 1)?;
        } else {
            count += visit_payload(bytes, shapes, &slot, depth)?;
        }
        if container.kind == Kind::Keyed && index % 2 == 0 && index < 60 {
            let mut key = CanonicalKey::new();
            let canonical = key.of(bytes, shapes, &slot)?;
            let is_ordered = canonical.first() != Some(&0xFF);
            let found = container.map_find(bytes, shapes, canonical)?;
            assert!(found.is_some(), "a key is not found");
            // Two keys without an order may have equal bytes (NaN is not equal to itself).
            assert!(!is_ordered || found == Some(index / 2), "another key is found");
        }
    }
    if let Some(shape) = shapes.shape(container.shape).filter(|_| container.kind == Kind::Shaped) {
        for (index, name) in shape.names().iter().enumerate() {
            let slot = container.slot(bytes, shapes, index as u32)?;
            let field = container.field(bytes, shapes, name)?;
            assert_eq!(field.is_some(), slot != Slot::Absent);
        }
    }
    Ok(count)
}

fn visit_payload<S: Shapes>(bytes: &[u8], shapes: &S, slot: &Slot<'_>, depth: u32) -> Result<usize, Corrupt> {
    let Slot::Heap { tag, payload, offset } = *slot else { return Ok(1) };
    match tag {
        tag::NDARRAY => {
            let array = payload::ndarray(bytes, shapes, offset, payload.len() as u32)?;
            visit(bytes, shapes, array.head, depth - 1)
        }
        tag::REGISTERED => {
            let object = payload::registered(bytes, shapes, offset, payload.len() as u32)?;
            visit(bytes, shapes, object.head, depth - 1)
        }
        _ => Ok(1),
    }
}

fn visit_root<S: Shapes>(bytes: &[u8], shapes: &S) -> Result<usize, Corrupt> {
    match view::root(bytes, shapes)? {
        Root::Container(container) => visit(bytes, shapes, container, 64),
        Root::Scalar(slot) => visit_payload(bytes, shapes, &slot, 64),
    }
}

/// What must hold for any bytes: nothing panics, every reader accepts what validate accepts, and
/// what decodes can be encoded again.
fn check_readers<S: Shapes>(bytes: &[u8], shapes: &S) {
    let is_valid = validate_record(bytes, shapes).is_ok();
    let decoded = decode(bytes, shapes);
    if is_valid {
        let value = decoded.unwrap();
        assert!(visit_root(bytes, shapes).is_ok());
        let again = encode_value(&value, &mut NoShapes).unwrap();
        assert!(same(&decode(&again, &NoShapes).unwrap(), &value));
    } else {
        let _ = read_all(bytes, shapes);
    }
}

/// Runs the accessors over bytes that may be damaged: results do not matter, panics do.
fn read_all<S: Shapes>(bytes: &[u8], shapes: &S) -> Result<usize, Corrupt> {
    let mut rest: Vec<Container> = match view::root(bytes, shapes)? {
        Root::Container(container) => vec![container],
        Root::Scalar(slot) => slot.payload_container(bytes, shapes)?.into_iter().collect(),
    };
    let mut count = 0;
    while let Some(container) = rest.pop() {
        let _ = container.packed_bytes(bytes);
        let _ = container.field(bytes, shapes, "a");
        let _ = container.map_find(bytes, shapes, b"\x02a\x00");
        for index in 0..container.count.min(300) {
            count += 1;
            if count > 3_000 {
                return Ok(count);
            }
            let (_, _, _) =
                (container.int(bytes, index), container.tag(bytes, index), container.bits(bytes, index));
            let Ok(slot) = container.slot(bytes, shapes, index) else { continue };
            let _ = CanonicalKey::new().of(bytes, shapes, &slot);
            if let Slot::Heap { payload, offset, .. } = slot {
                let _ = payload::ndarray(bytes, shapes, offset, payload.len() as u32);
                let _ = payload::registered(bytes, shapes, offset, payload.len() as u32);
            }
            let inner = match slot {
                Slot::Container(inner) => Some(inner),
                slot => slot.payload_container(bytes, shapes).unwrap_or(None),
            };
            rest.extend(inner);
        }
    }
    Ok(count)
}

fn five_shapes() -> Vec<Shape> {
    let lists: [&[&str]; 5] =
        [&[], &["a"], &["a", "b"], &["a", "b", "c", "d", "e", "f", "g", "h", "i"], &["x"]];
    lists.iter().map(|names| Shape::new(names).unwrap()).collect()
}

/// The record and a bit of everything, to be damaged: with random bytes alone a fuzzer
/// hardly passes the head.
fn samples() -> Vec<(Vec<u8>, EverySecond)> {
    let text = |text: &str| Value::Str(text.into());
    let dict = |entries: Vec<(&str, Value)>| {
        Value::Dict(entries.into_iter().map(|(name, value)| (Value::Str(name.into()), value)).collect())
    };
    let map = Value::Dict((0..12).map(|i| (Value::Int(i * 1000), text("value"))).collect());
    let zone = OwnedZone::Key("Europe/Berlin".into());
    let all = [
        dict(vec![("a", Value::Int(1)), ("b", dict(vec![("c", text("some text")), ("d", map.clone())]))]),
        dict(vec![(
            "a",
            Value::List(vec![Value::Int(70_000), text("x"), Value::List(vec![Value::Int(5); 9])]),
        )]),
        dict(vec![
            (
                "a",
                Value::Set(vec![
                    Value::Int(3),
                    text("y"),
                    Value::Tuple(vec![Value::None, Value::Bool(true)]),
                ]),
            ),
            ("b", Value::Aware { local: 5, fold: true, offset: 7, zone }),
            ("c", Value::Registered("name".into(), Box::new(map))),
            ("d", Value::Decimal("1.10".into())),
            ("e", Value::BigInt(vec![1, 2, 3, 4, 5, 6, 7, 8, 9])),
        ]),
        Value::Registered("outer".into(), Box::new(dict(vec![("k", Value::Float(Double(0.5)))]))),
        Value::Ndarray { dtype: Box::new(text("<f4")), shape: vec![2, 3], flags: 1, data: (0..24).collect() },
    ];
    all.iter()
        .map(|value| {
            let mut shapes = EverySecond::default();
            (encode_value(value, &mut shapes).unwrap(), shapes)
        })
        .collect()
}

#[test]
fn no_change_of_one_byte_crashes_a_reader() {
    for (bytes, shapes) in samples() {
        check_readers(&bytes, &shapes.tables);
        assert!(validate(&bytes, &shapes.tables).is_ok());
        for at in 0..bytes.len() {
            for byte in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = byte;
                check_readers(&changed, &shapes.tables);
            }
            check_readers(&bytes[..at], &shapes.tables);
        }
    }
}

#[test]
fn no_change_of_one_byte_of_an_envelope_goes_unnoticed() {
    for (bytes, shapes) in samples() {
        let envelope = shapes.tables.envelope(&bytes);
        assert!(envelope::validate(&envelope).is_ok());
        for at in 0..envelope.len() {
            for bit in 0..8 {
                let mut changed = envelope.clone();
                changed[at] ^= 1 << bit;
                assert!(envelope::validate(&changed).is_err(), "byte {at}, bit {bit}");
            }
            assert!(envelope::validate(&envelope[..at]).is_err());
        }
    }
}

/// The shapes of tables, under ids that begin at another number.
struct Moved<'a>(&'a Tables, u32);

impl Shapes for Moved<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.0.shape(id.checked_sub(self.1)?)
    }
}

/// How many bytes a dump accounts for; each of its lines must begin where the one before ended.
fn dumped_size(dump: &str) -> usize {
    let mut at = 0;
    for line in dump.lines().filter(|line| !line.starts_with("damaged")) {
        let hex: Vec<&str> = line[7..].get(..48).unwrap_or(&line[7..]).split_whitespace().collect();
        if !hex.is_empty() {
            assert_eq!(line[..5].trim().parse::<usize>().unwrap(), at, "{dump}");
        }
        let in_all = line.rsplit_once(" (").and_then(|(_, rest)| rest.strip_suffix(" bytes in all)"));
        at += in_all.map_or(hex.len(), |size| size.parse().unwrap());
    }
    at
}

fn has_overflow(value: &Value) -> bool {
    match value {
        Value::Overflow(_) => true,
        Value::Registered(_, inner) => has_overflow(inner),
        Value::List(elements)
        | Value::Tuple(elements)
        | Value::Set(elements)
        | Value::FrozenSet(elements) => elements.iter().any(has_overflow),
        Value::Dict(entries) => entries.iter().any(|(key, value)| has_overflow(key) || has_overflow(value)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn values_come_back(value in values()) {
        let mut shapes = EverySecond::default();
        let bytes = encode_value(&value, &mut shapes).unwrap();
        let shapes = shapes.tables;
        validate_record(&bytes, &shapes).unwrap();
        let read = decode(&bytes, &shapes).unwrap();
        prop_assert!(same(&read, &value), "{read:?}");
        visit_root(&bytes, &shapes).unwrap();
    }

    #[test]
    fn the_same_value_and_dictionary_give_the_same_bytes(value in values()) {
        let encode = || encode_value(&value, &mut EverySecond::default()).unwrap();
        let bytes = encode();
        prop_assert_eq!(&bytes, &encode());
        // A value that was read has its sets in another order, and still encodes to these bytes.
        let mut shapes = EverySecond::default();
        encode_value(&value, &mut shapes).unwrap();
        let read = decode(&bytes, &shapes.tables).unwrap();
        prop_assert_eq!(bytes, encode_value(&read, &mut EverySecond::default()).unwrap());
    }

    // Gaps for slots are not zeroed, so the encoder must overwrite the content of an earlier record
    // everywhere.
    #[test]
    fn a_used_encoder_writes_the_same_bytes(values in vec(values(), 1..5)) {
        let mut encoder = Encoder::new();
        for value in values {
            encoder.clear();
            push_value(&value, &mut EverySecond::default(), &mut encoder).unwrap();
            prop_assert_eq!(encoder.bytes(), encode_value(&value, &mut EverySecond::default()).unwrap());
        }
    }

    #[test]
    fn ids_written_over_ids_move_no_byte(value in values()) {
        let mut shapes = EverySecond::default();
        let bytes = encode_value(&value, &mut shapes).unwrap();
        let shapes = shapes.tables;
        let mut moved = bytes.clone();
        envelope::renumber(&mut moved, &shapes, |id| Some(id + 0x80_0000)).unwrap();
        let there = Moved(&shapes, 0x80_0000);
        validate_record(&moved, &there).unwrap();
        prop_assert_eq!(decode(&moved, &there).unwrap(), decode(&bytes, &shapes).unwrap());
        envelope::renumber(&mut moved, &there, |id| Some(id - 0x80_0000)).unwrap();
        prop_assert_eq!(&moved, &bytes);
        let before = moved.clone();
        if envelope::renumber(&mut moved, &shapes, |_| None).is_err() {
            prop_assert_eq!(moved, before);
        }
    }

    #[test]
    fn envelopes_carry_a_record_to_another_dictionary(value in values()) {
        let mut shapes = EverySecond::default();
        let bytes = encode_value(&value, &mut shapes).unwrap();
        if has_overflow(&value) {
            let refused = envelope::seal(&bytes, &shapes.tables).unwrap_err();
            prop_assert_eq!(refused.damage, Damage::Overflow);
            // It is refused in the same way in an envelope of another writer.
            let sealed = shapes.tables.envelope(&bytes);
            prop_assert!(validate(&sealed, &NoShapes).is_err());
            return Ok(());
        }
        let envelope = envelope::seal(&bytes, &shapes.tables).unwrap();
        validate(&envelope, &NoShapes).unwrap();
        let mut there = Tables::new();
        there.admit(&["one", "before"]).unwrap();
        let record = envelope::open(&envelope, |shape| there.admit(shape.names())).unwrap();
        prop_assert!(same(&decode(&record, &there).unwrap(), &value));
        prop_assert_eq!(record.len(), bytes.len());
    }

    #[test]
    fn no_bytes_crash_a_reader(bytes in vec(any::<u8>(), 0..200)) {
        check_readers(&bytes, &five_shapes());
        let _ = envelope::validate(&bytes);
    }

    #[test]
    fn a_dump_shows_every_byte_once_damaged_or_not(value in values(), damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>()))) {
        let mut shapes = EverySecond::default();
        let mut bytes = encode_value(&value, &mut shapes).unwrap();
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !envelope::is_envelope(&bytes) {
            prop_assert_eq!(dumped_size(&dump(&bytes, &shapes.tables)), bytes.len());
        }
    }

    // Random bytes after a valid head get further.
    #[test]
    fn no_bytes_behind_a_good_head_crash_a_reader(
        kind in 1..9u8, count in 0..12u8, shape in 0..5u8, small in any::<bool>(), tail in vec(prop_oneof![any::<u8>(), 0..0x18u8, Just(0x50)], 0..300)
    ) {
        let shapes = five_shapes();
        let mut bytes = if kind == 1 {
            let slots = shapes.slot_count(u32::from(shape)).unwrap() as u8;
            vec![0x11, 3, slots, 0, shape, 0, 0, 0]
        } else {
            vec![kind << 4 | 1, if small && kind == 7 { 0 } else { 3 }, 0, 0, count, 0, 0, 0]
        };
        bytes.extend(tail);
        check_readers(&bytes, &shapes);
    }

    #[test]
    fn no_changed_byte_of_any_record_crashes_a_reader(value in values(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut shapes = EverySecond::default();
        let mut bytes = encode_value(&value, &mut shapes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_readers(&bytes, &shapes.tables);
    }
}

#[test]
fn containers_nest_64_deep_and_no_deeper() {
    let nest = |depth: usize| (1..depth).fold(Value::List(vec![]), |value, _| Value::List(vec![value]));
    let bytes = encode_value(&nest(64), &mut NoShapes).unwrap();
    assert_eq!(decode(&bytes, &NoShapes).unwrap(), nest(64));
    validate(&bytes, &NoShapes).unwrap();
    assert!(encode_value(&nest(65), &mut NoShapes).is_err());
    // A list that is one deeper, made by hand around the record's own bytes as a nested container.
    let mut deeper = vec![0x31, 3, 0, 0, 1, 0, 0, 0, tag::CONTAINER, 17, 0, 0, 0];
    let inner = nested_bytes(64);
    deeper.extend((inner.len() as u32).to_le_bytes());
    deeper.extend(inner);
    assert!(decode(&deeper, &NoShapes).is_err());
    assert!(validate(&deeper, &NoShapes).is_err());
}

/// A nested list of nested lists.
fn nested_bytes(depth: u32) -> Vec<u8> {
    let mut bytes = vec![0x03, 0];
    for _ in 1..depth {
        let mut outer = vec![0x03, 1, tag::CONTAINER, 4];
        outer.append(&mut bytes);
        bytes = outer;
    }
    bytes
}
