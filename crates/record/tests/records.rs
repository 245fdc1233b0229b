//! Tests that records read back in place, and have the sizes that the format promises.
#![allow(clippy::unwrap_used, clippy::cast_sign_loss, reason = "helpers of tests may unwrap as tests do")]

use pellucid_record::{Container, Damage, Encoder, Kind, Shape, Shapes, Slot, Walker, view};

/// Shapes 0 to 4: the dicts of the record, from the outermost on.
fn shapes() -> Vec<Shape> {
    let lists: [&[&str]; 5] = [
        &["name", "age", "mylist", "mydict", "amt", "end"],
        &["a", "b", "c"],
        &["nested", "num", "list"],
        &["a"],
        &["b", "c"],
    ];
    lists.iter().map(|names| Shape::new(names).unwrap()).collect()
}

fn push_record(encoder: &mut Encoder) {
    encoder.begin(Kind::Shaped, 6, 0).unwrap();
    encoder.str(b"Fred Bloggs");
    encoder.int(21);
    encoder.begin(Kind::List, 5, 0).unwrap();
    for word in ["one", "two", "three", "four"] {
        encoder.str(word.as_bytes());
    }
    encoder.int(5);
    encoder.end().unwrap();
    encoder.begin(Kind::Shaped, 3, 1).unwrap();
    encoder.int(1);
    encoder.int(2);
    encoder.begin(Kind::Shaped, 3, 2).unwrap();
    encoder.str(b"this is a long string");
    encoder.int(9321);
    encoder.begin(Kind::List, 2, 0).unwrap();
    encoder.begin(Kind::Shaped, 1, 3).unwrap();
    encoder.int(1);
    encoder.end().unwrap();
    encoder.begin(Kind::Shaped, 2, 4).unwrap();
    encoder.int(2);
    encoder.int(3);
    encoder.end().unwrap();
    encoder.end().unwrap();
    encoder.end().unwrap();
    encoder.end().unwrap();
    encoder.float(1.23);
    encoder.str(b"****");
    encoder.end().unwrap();
}

fn container(slot: Slot<'_>) -> Container {
    match slot {
        Slot::Container(container) => container,
        other => panic!("{other:?} is no container"),
    }
}

#[test]
fn the_records_size_is_as_promised_and_its_fields_read_in_place() {
    let shapes = shapes();
    let mut encoder = Encoder::new();
    push_record(&mut encoder);
    let bytes = encoder.bytes();
    assert_eq!(bytes.len(), 169);
    let root = Container::root(bytes, &shapes).unwrap();
    let field = |container: &Container, name| container.field(bytes, &shapes, name).unwrap().unwrap();
    assert_eq!(field(&root, "name"), Slot::Str(b"Fred Bloggs"));
    assert_eq!(field(&root, "age"), Slot::Int(21));
    assert_eq!(field(&root, "amt"), Slot::Float(1.23));
    assert_eq!(field(&root, "end"), Slot::Str(b"****"));
    assert_eq!(root.field(bytes, &shapes, "nothing").unwrap(), None);
    let list = container(field(&root, "mylist"));
    assert_eq!(list.slot(bytes, &shapes, 2).unwrap(), Slot::Str(b"three"));
    assert_eq!(list.slot(bytes, &shapes, 4).unwrap(), Slot::Int(5));
    let inner = container(field(&container(field(&root, "mydict")), "c"));
    assert_eq!(field(&inner, "nested"), Slot::Str(b"this is a long string"));
    assert_eq!(field(&inner, "num"), Slot::Int(9321));
    let inmost = container(container(field(&inner, "list")).slot(bytes, &shapes, 1).unwrap());
    assert_eq!(shapes.shape(inmost.shape).unwrap().names().len(), 2);
    assert_eq!(field(&inmost, "c"), Slot::Int(3));
}

#[test]
fn the_same_values_give_the_same_bytes_from_a_used_encoder() {
    let mut encoder = Encoder::new();
    push_record(&mut encoder);
    let first = encoder.bytes().to_vec();
    encoder.clear();
    encoder.str(b"scalar");
    encoder.clear();
    push_record(&mut encoder);
    assert_eq!(encoder.take(), first);
}

#[test]
fn scalars_at_the_root_are_as_short_as_the_format_says() {
    let mut encoder = Encoder::new();
    encoder.int(5);
    assert_eq!(encoder.take(), [0x91, 0x04, 0x05]);
    encoder.str(b"ab");
    assert_eq!(encoder.take(), [0x91, 0x12, 0x61, 0x62]);
    encoder.str(b"nine char");
    let bytes = encoder.take();
    assert_eq!(view::root(&bytes, &shapes()).unwrap(), view::Root::Scalar(Slot::Str(b"nine char")));
}

#[test]
fn keys_of_a_large_map_are_found_through_its_index() {
    for count in [0i64, 1, 8, 9, 10, 100, 1000] {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::Keyed, 2 * count as u32, 0).unwrap();
        for i in 0..count {
            match i % 3 {
                0 => encoder.str(format!("key number {i}").as_bytes()),
                1 => encoder.int(i << 30),
                _ => encoder.bytes_value(&i.to_le_bytes()),
            }
            encoder.int(i);
        }
        encoder.end().unwrap();
        let bytes = encoder.bytes();
        let shapes = shapes();
        let map = Container::root(bytes, &shapes).unwrap();
        assert_eq!(map.len(), count as u32);
        for i in 0..count {
            let key = map.slot(bytes, &shapes, 2 * i as u32).unwrap();
            let mut scratch = pellucid_record::keyed::CanonicalKey::new();
            let canonical = scratch.of(bytes, &shapes, &key).unwrap();
            assert_eq!(map.map_find(bytes, &shapes, canonical).unwrap(), Some(i as u32));
        }
        assert_eq!(map.field(bytes, &shapes, "key number 1").unwrap(), None);
    }
}

#[test]
fn a_container_is_as_wide_as_its_widest_part() {
    let shapes = shapes();
    for (value, width_log2) in
        [(1i64, 0), (-128, 0), (128, 1), (-32769, 2), (i64::from(i32::MAX) + 1, 3), (i64::MIN, 3)]
    {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::List, 1, 0).unwrap();
        encoder.begin(Kind::List, 3, 0).unwrap();
        encoder.str(b"before");
        encoder.int(value);
        encoder.str(b"behind");
        encoder.end().unwrap();
        encoder.end().unwrap();
        let bytes = encoder.bytes();
        let list = container(Container::root(bytes, &shapes).unwrap().slot(bytes, &shapes, 0).unwrap());
        assert_eq!(list.width_log2, width_log2);
        assert_eq!(list.slot(bytes, &shapes, 0).unwrap(), Slot::Str(b"before"));
        assert_eq!(list.slot(bytes, &shapes, 1).unwrap(), Slot::Int(value));
        assert_eq!(list.slot(bytes, &shapes, 2).unwrap(), Slot::Str(b"behind"));
    }
}

#[test]
fn a_list_of_many_strings_widens_when_its_heap_grows() {
    let shapes = shapes();
    for count in [20u32, 60, 100, 5_000, 20_000] {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::Tuple, 1, 0).unwrap();
        encoder.begin(Kind::List, count, 0).unwrap();
        (0..count).for_each(|i| encoder.str(format!("string {i}").as_bytes()));
        encoder.end().unwrap();
        encoder.end().unwrap();
        let bytes = encoder.bytes();
        let list = container(Container::root(bytes, &shapes).unwrap().slot(bytes, &shapes, 0).unwrap());
        for i in 0..count {
            assert_eq!(list.slot(bytes, &shapes, i).unwrap(), Slot::Str(format!("string {i}").as_bytes()));
        }
    }
}

#[test]
fn sets_pushed_in_any_order_are_the_same_bytes() {
    let words: [&[u8]; 5] = [b"pear", b"apple", b"a", b"", b"apples"];
    let encode = |order: &[usize]| {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::List, 1, 0).unwrap();
        encoder.begin(Kind::Set, 7, 0).unwrap();
        encoder.int(300);
        for i in order {
            encoder.str(words[*i]);
        }
        encoder.int(-1);
        encoder.end().unwrap();
        encoder.end().unwrap();
        encoder.take()
    };
    assert_eq!(encode(&[0, 1, 2, 3, 4]), encode(&[4, 2, 0, 3, 1]));
}

#[test]
fn mistakes_and_limits_are_errors() {
    let mut encoder = Encoder::new();
    encoder.begin(Kind::List, 2, 0).unwrap();
    encoder.int(1);
    assert!(encoder.end().is_err());
    encoder.clear();
    assert!(encoder.end().is_err());
    for _ in 0..64 {
        encoder.begin(Kind::List, 1, 0).unwrap();
    }
    assert!(encoder.begin(Kind::List, 1, 0).is_err());
}

/// The number of slots that bounded walks find in a container.
fn count_bounded(bytes: &[u8], shapes: &[Shape], container: Container) -> usize {
    let (mut count, mut walker) = (0, Walker::new(container));
    while let Ok(Some(slot)) = walker.next_bounded(bytes, shapes) {
        count += 1;
        if let Slot::Container(inner) = slot {
            count += count_bounded(bytes, shapes, inner);
        }
    }
    count
}

#[test]
fn a_bounded_walk_reaches_no_byte_twice() {
    let shapes = shapes();
    // Both slots of each tuple refer to the next tuple, 60 deep: 2^60 tuples.
    let mut bytes = vec![0x14, 3, 0, 0, 2, 0, 0, 0, 0x50, 0x50];
    let body: Vec<u8> =
        [0x04, 0x02, 0x50, 0x50, 0x06, 0x06].repeat(60).into_iter().chain([0x04, 0x00]).collect();
    bytes[0] = Kind::Tuple.root_byte();
    for _ in 0..2 {
        bytes.extend_from_slice(&(0x1a_u64 | (body.len() as u64) << 32).to_le_bytes());
    }
    bytes.extend_from_slice(&body);
    let root = Container::root(&bytes, &shapes).unwrap();
    assert!(count_bounded(&bytes, &shapes, root) <= 61);
    let mut walker = Walker::new(root);
    walker.next_bounded(&bytes, &shapes).unwrap();
    assert_eq!(walker.next_bounded(&bytes, &shapes).unwrap_err().damage, Damage::HeapOrder);

    let mut encoder = Encoder::new();
    push_record(&mut encoder);
    let bytes = encoder.bytes();
    let root = Container::root(bytes, &shapes).unwrap();
    assert_eq!(count_bounded(bytes, &shapes, root), 22);
    for index in 0..root.count {
        let mut walker = Walker::at(root, index);
        for index in index..root.count {
            let (slot, expected) =
                (walker.next(bytes, &shapes).unwrap(), root.slot(bytes, &shapes, index).unwrap());
            assert_eq!(slot, Some(expected));
            if let Slot::Container(inner) = expected {
                walker.consumed(inner.end).unwrap();
            }
        }
        assert_eq!(walker.next(bytes, &shapes), Ok(None));
    }
    assert_eq!(Walker::at(root, root.count + 5).next(bytes, &shapes), Ok(None));
}
