//! Tests that a change in place leaves the record that a change of the value would have made.
// The models are small and made here.
#![allow(clippy::indexing_slicing, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use pellucid_record::layout::tag;
use pellucid_record::patch::{Change, PatchError, ShapeBook, apply, moved, moved_from, overwrite};
use pellucid_record::path::{Step, resolve};
use pellucid_record::payload::{Overflow, overflow_bytes};
use pellucid_record::view::{Root, root};
use pellucid_record::{Container, EncodeError, Encoder, Kind, Shape, Shapes, Slot, Walker, validate};
use proptest::prelude::*;

// ---- A plain value, and its record
// ---------------------------------------------------------------

/// The value of a record, as far as these tests need it. All heap payloads are alike here.
#[derive(Debug, Clone, PartialEq)]
enum Model {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Date(u32),
    Str(String),
    Heap(u8, Vec<u8>),
    List(Vec<Model>),
    Tuple(Vec<Model>),
    Dict(Vec<(Key, Model)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Key {
    Str(String),
    Int(i64),
}

use Model::{Bool, Date, Dict, Float, Heap, Int, List, None as Nothing, Str, Tuple};

/// A dictionary that admits key lists until it is full.
struct Book {
    shapes: Vec<Shape>,
    shape_count_max: usize,
}

impl Book {
    fn new(shape_count_max: usize) -> Book {
        Book { shapes: Vec::new(), shape_count_max }
    }
}

impl Shapes for Book {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.get(id as usize)
    }
}

impl ShapeBook for Book {
    fn shape_of(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        let is_it = |shape: &Shape| shape.names().iter().map(|name| &**name).eq(names.iter().copied());
        if let Some(id) = self.shapes.iter().position(is_it) {
            return Some(id as u32);
        }
        if self.shapes.len() >= self.shape_count_max {
            return None;
        }
        self.shapes.push(Shape::new(names).ok()?);
        Some(self.shapes.len() as u32 - 1)
    }
}

fn encode(model: &Model, book: &mut Book) -> Vec<u8> {
    let mut encoder = Encoder::new();
    push(model, book, &mut encoder).unwrap_or_else(|error| panic!("{model:?}: {error}"));
    encoder.take()
}

fn push(model: &Model, book: &mut Book, encoder: &mut Encoder) -> Result<(), EncodeError> {
    match model {
        Nothing => encoder.none(),
        Bool(value) => encoder.bool(*value),
        Int(value) => encoder.int(*value),
        Float(value) => encoder.float(*value),
        Date(value) => encoder.date(*value),
        Str(text) => encoder.str(text.as_bytes()),
        Heap(tag::BYTES, payload) => encoder.bytes_value(payload),
        Heap(tag, payload) => encoder.heap(*tag, payload),
        List(elements) | Tuple(elements) => {
            let kind = if matches!(model, List(_)) { Kind::List } else { Kind::Tuple };
            encoder.begin(kind, elements.len() as u32, 0)?;
            for element in elements {
                push(element, book, encoder)?;
            }
            encoder.end()?;
        }
        Dict(entries) => {
            let names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.name()).collect();
            let shape = if names.len() == entries.len() { book.shape_of(&names, false) } else { None };
            match shape {
                Some(shape) => encoder.begin(Kind::Shaped, entries.len() as u32, shape)?,
                None => encoder.begin(Kind::Keyed, 2 * entries.len() as u32, 0)?,
            }
            for (key, value) in entries {
                match (shape, key) {
                    (Some(_), _) => {}
                    (None, Key::Str(name)) => encoder.str(name.as_bytes()),
                    (None, Key::Int(int)) => encoder.int(*int),
                }
                push(value, book, encoder)?;
            }
            encoder.end()?;
        }
    }
    Ok(())
}

impl Key {
    fn name(&self) -> Option<&str> {
        match self {
            Key::Str(name) => Some(name),
            Key::Int(_) => None,
        }
    }

    fn step(&self) -> Step<'_> {
        match self {
            Key::Str(name) => Step::Field(name),
            Key::Int(int) => Step::Index(*int),
        }
    }
}

fn decode(record: &[u8], book: &Book) -> Model {
    validate(record, book).unwrap_or_else(|error| panic!("{error}: {record:02x?}"));
    match root(record, book).unwrap_or_else(|error| panic!("{error}: {record:02x?}")) {
        Root::Scalar(slot) => decode_scalar(slot),
        Root::Container(container) => decode_container(record, book, container).0,
    }
}

fn decode_container(record: &[u8], book: &Book, container: Container) -> (Model, u32) {
    let mut slots = Vec::new();
    let mut walker = Walker::new(container);
    while let Some(slot) = walker.next(record, book).unwrap_or_else(|error| panic!("{error}: {record:02x?}"))
    {
        slots.push(match slot {
            Slot::Absent => None,
            Slot::Container(inner) => {
                let (model, end) = decode_container(record, book, inner);
                walker.consumed(end).unwrap_or_else(|error| panic!("{error}: {record:02x?}"));
                Some(model)
            }
            scalar => Some(decode_scalar(scalar)),
        });
    }
    let model = match container.kind {
        Kind::Shaped => {
            let names = book.shapes.get(container.shape as usize).map_or(&[][..], Shape::names);
            let entries =
                names.iter().zip(slots).filter_map(|(name, slot)| Some((Key::Str(name.to_string()), slot?)));
            Dict(entries.collect())
        }
        Kind::Keyed => {
            let mut entries = Vec::new();
            let mut slots = slots.into_iter().flatten();
            while let (Some(key), Some(value)) = (slots.next(), slots.next()) {
                let key = match key {
                    Str(name) => Key::Str(name),
                    Int(int) => Key::Int(int),
                    other => panic!("{other:?} is no key"),
                };
                entries.push((key, value));
            }
            Dict(entries)
        }
        Kind::Tuple => Tuple(slots.into_iter().flatten().collect()),
        _ => List(slots.into_iter().flatten().collect()),
    };
    (model, walker.end())
}

fn decode_scalar(slot: Slot<'_>) -> Model {
    match slot {
        Slot::None => Nothing,
        Slot::Bool(value) => Bool(value),
        Slot::Int(value) => Int(value),
        Slot::Float(value) => Float(value),
        Slot::Date(value) => Date(value),
        Slot::Str(text) => Str(String::from_utf8_lossy(text).into_owned()),
        Slot::Heap { tag, payload, .. } => Heap(tag, payload.to_vec()),
        other => panic!("{other:?} is in no model"),
    }
}

/// A scalar as a slot.
fn slot(model: &Model) -> Option<Slot<'_>> {
    Some(match model {
        Nothing => Slot::None,
        Bool(value) => Slot::Bool(*value),
        Int(value) => Slot::Int(*value),
        Float(value) => Slot::Float(*value),
        Date(value) => Slot::Date(*value),
        Str(text) => Slot::Str(text.as_bytes()),
        Heap(tag, payload) => Slot::Heap { tag: *tag, payload, offset: 0 },
        _ => return None,
    })
}

// ---- Changes of the value
// ------------------------------------------------------------------------

/// A change of a model: as `Change`, with models for values.
#[derive(Debug, Clone)]
enum Edit {
    Set(Model),
    Delete,
    Insert(i64, Model),
    Append(Vec<Model>),
    Splice(i64, i64, Vec<Model>),
    Clear,
}

/// Makes the change. `None` if it is impossible.
fn edit(model: &mut Model, path: &[Step<'_>], change: &Edit) -> Option<()> {
    match (path, change) {
        ([], Edit::Set(value)) => *model = value.clone(),
        ([], Edit::Delete) => return None,
        ([], _) => return edit_whole(model, change),
        ([last], Edit::Set(value)) => match model {
            Dict(entries) => match entries.iter_mut().find(|(key, _)| key.step() == *last) {
                Some(entry) => entry.1 = value.clone(),
                None => entries.push((key_of(*last), value.clone())),
            },
            List(elements) => *element(elements, *last)? = value.clone(),
            _ => return None,
        },
        ([last], Edit::Delete) => match model {
            Dict(entries) => {
                let place = entries.iter().position(|(key, _)| key.step() == *last)?;
                entries.remove(place);
            }
            List(elements) => {
                let place = place(elements.len(), *last)?;
                elements.remove(place);
            }
            _ => return None,
        },
        ([first, rest @ ..], _) => {
            let inner = match model {
                Dict(entries) => &mut entries.iter_mut().find(|(key, _)| key.step() == *first)?.1,
                List(elements) | Tuple(elements) => element(elements, *first)?,
                _ => return None,
            };
            return edit(inner, rest, change);
        }
    }
    Some(())
}

fn edit_whole(model: &mut Model, change: &Edit) -> Option<()> {
    let elements = match (model, change) {
        (Dict(entries), Edit::Clear) => {
            entries.clear();
            return Some(());
        }
        (List(elements), _) => elements,
        _ => return None,
    };
    let clamp = |index: i64| {
        let count = elements.len() as i64;
        (if index < 0 { index + count } else { index }).clamp(0, count) as usize
    };
    match change {
        Edit::Insert(index, value) => elements.insert(clamp(*index), value.clone()),
        Edit::Append(values) => elements.extend_from_slice(values),
        Edit::Splice(start, stop, values) => {
            let start = clamp(*start);
            elements.splice(start..clamp(*stop).max(start), values.iter().cloned());
        }
        _ => elements.clear(),
    }
    Some(())
}

fn key_of(step: Step<'_>) -> Key {
    match step {
        Step::Field(name) => Key::Str(name.into()),
        Step::Index(int) => Key::Int(int),
        Step::Key(_) => panic!("the model's paths have no keys as records"),
    }
}

fn place(count: usize, step: Step<'_>) -> Option<usize> {
    let Step::Index(index) = step else { return None };
    usize::try_from(if index < 0 { index + count as i64 } else { index }).ok().filter(|place| *place < count)
}

fn element<'a>(elements: &'a mut [Model], step: Step<'_>) -> Option<&'a mut Model> {
    let place = place(elements.len(), step)?;
    elements.get_mut(place)
}

/// Makes the change in the record.
fn patch(
    record: &mut Vec<u8>,
    path: &[Step<'_>],
    change: &Edit,
    book: &mut Book,
) -> Result<(u32, u32), PatchError> {
    let (one, many): (Vec<u8>, Vec<Vec<u8>>) = match change {
        Edit::Set(value) | Edit::Insert(_, value) => (encode(value, book), vec![]),
        Edit::Append(values) | Edit::Splice(_, _, values) => {
            (vec![], values.iter().map(|value| encode(value, book)).collect())
        }
        _ => (vec![], vec![]),
    };
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let change = match change {
        Edit::Set(_) => Change::Set(&one),
        Edit::Delete => Change::Delete,
        Edit::Insert(index, _) => Change::Insert(*index, &one),
        Edit::Append(_) => Change::Append(&many),
        Edit::Splice(start, stop, _) => Change::Splice { start: *start, stop: *stop, values: &many },
        Edit::Clear => Change::Clear,
    };
    let patched = apply(record, path, change, book)?;
    *record = patched.record;
    Ok((patched.encoded, patched.spliced))
}

// ---- Any value, any changes
// ----------------------------------------------------------------------

fn scalars() -> impl Strategy<Value = Model> {
    // Sizes around those at which a slot, an offset or a varint gets wider.
    let size = prop::sample::select(vec![0usize, 1, 2, 4, 8, 9, 100, 127, 128, 240, 300]);
    let heap_tag = prop::sample::select(vec![tag::BYTES, tag::BYTEARRAY, tag::PICKLE]);
    prop_oneof![
        Just(Nothing),
        any::<bool>().prop_map(Bool),
        (-200i64..200).prop_map(Int),
        prop::sample::select(vec![0i64, 127, 128, -129, 32768, 1 << 31, -(1 << 31), i64::MAX, i64::MIN])
            .prop_map(Int),
        (-4i32..4).prop_map(|whole| Float(f64::from(whole) / 2.0)),
        (1u32..3_652_060).prop_map(Date),
        size.clone().prop_map(|size| Str("x".repeat(size))),
        (heap_tag, size).prop_map(|(tag, size)| Heap(tag, vec![b'y'; size])),
        any::<u64>().prop_map(|blob| Heap(
            tag::OVERFLOW,
            overflow_bytes(&Overflow { tag: tag::BYTES, blob, size: 7 }).to_vec()
        )),
    ]
}

fn keys() -> impl Strategy<Value = Key> {
    let names = prop::sample::select(vec!["a", "b", "c", "a.b", "", "long name, longer than a slot"]);
    prop_oneof![8 => names.prop_map(|name| Key::Str(name.into())), 1 => (0i64..3).prop_map(Key::Int)]
}

fn models() -> impl Strategy<Value = Model> {
    scalars().prop_recursive(4, 60, 12, |inner| {
        let elements = prop::collection::vec(inner.clone(), 0..12);
        let numbers = prop_oneof![(-3i64..300).prop_map(Int).boxed(), Just(Float(0.5)).boxed()];
        prop_oneof![
            3 => elements.clone().prop_map(List),
            1 => elements.prop_map(Tuple),
            2 => prop::collection::vec(numbers, 0..5).prop_map(List),
            5 => prop::collection::vec((keys(), inner), 0..12).prop_map(|entries| {
                let mut dict = Vec::new();
                for (key, value) in entries {
                    if !dict.iter().any(|(other, _)| *other == key) {
                        dict.push((key, value));
                    }
                }
                Dict(dict)
            }),
        ]
    })
}

fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => models().prop_map(Edit::Set),
        4 => scalars().prop_map(Edit::Set),
        3 => Just(Edit::Delete),
        1 => (-3i64..6, models()).prop_map(|(index, value)| Edit::Insert(index, value)),
        2 => prop::collection::vec(scalars(), 0..3).prop_map(Edit::Append),
        1 => (-4i64..6, -4i64..6, prop::collection::vec(scalars(), 0..3))
            .prop_map(|(start, stop, values)| Edit::Splice(start, stop, values)),
        1 => Just(Edit::Clear),
    ]
}

/// A path into the model, chosen by the picks. It ends at a list or dict, at one of their parts, or
/// beside them.
fn path_into(model: &Model, picks: &[u8], for_part: bool) -> Vec<OwnedStep> {
    let mut path = Vec::new();
    let mut model = model;
    for pick in picks {
        let pick = usize::from(*pick);
        let (step, inner) = match model {
            Dict(entries) if !entries.is_empty() => {
                let (key, inner) = &entries[pick % entries.len()];
                (key.clone(), inner)
            }
            List(elements) | Tuple(elements) if !elements.is_empty() => {
                let place = pick % elements.len();
                (
                    Key::Int(place as i64 - if pick > 128 { elements.len() as i64 } else { 0 }),
                    &elements[place],
                )
            }
            _ => break,
        };
        if !for_part && !matches!(inner, Dict(_) | List(_) | Tuple(_)) {
            break;
        }
        path.push(step);
        model = inner;
    }
    path
}

type OwnedStep = Key;

fn check_edits(mut model: Model, shape_count_max: usize, edits: &[(Vec<u8>, Option<Key>, Edit)]) {
    let mut book = Book::new(shape_count_max);
    let mut record = encode(&model, &mut book);
    assert_eq!(decode(&record, &book), model);
    for (picks, beside, change) in edits {
        let mut path = path_into(&model, picks, matches!(change, Edit::Set(_) | Edit::Delete));
        if let (Some(beside), Edit::Set(_) | Edit::Delete) = (beside, change) {
            path.pop();
            path.push(beside.clone());
        }
        let path: Vec<Step<'_>> = path.iter().map(Key::step).collect();
        let before = model.clone();
        let is_possible = edit(&mut model, &path, change).is_some();

        let mut in_place = record.clone();
        let scalar = match change {
            Edit::Set(value) => slot(value),
            Edit::Delete => Some(Slot::Absent),
            _ => None,
        };
        if let Some(scalar) = scalar
            && let Ok(true) = overwrite(&mut in_place, &book, &path, &scalar)
        {
            assert!(is_possible, "overwrote {path:?} of {before:?} by {scalar:?}");
            assert_eq!(in_place.len(), record.len());
            assert_eq!(decode(&in_place, &book), model, "{path:?} of {before:?} overwritten by {scalar:?}");
        } else {
            in_place.clear();
        }

        let result = patch(&mut record, &path, change, &mut book);
        assert_eq!(result.is_ok(), is_possible, "{change:?} at {path:?} of {before:?}: {result:?}");
        assert_eq!(decode(&record, &book), model, "{change:?} at {path:?} of {before:?}");
        if !in_place.is_empty() {
            record = in_place;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_changed_record_is_the_record_of_the_changed_value(
        model in models(),
        shape_count_max in prop::sample::select(vec![0usize, 3, 1000]),
        edits in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..5), prop::option::weighted(0.3, keys()), edits()), 1..12),
    ) {
        check_edits(model, shape_count_max, &edits);
    }
}

// ---- What a change costs, and single cases
// -------------------------------------------------------

fn text(text: &str) -> Model {
    Str(text.into())
}

fn dict(entries: &[(&str, Model)]) -> Model {
    Dict(entries.iter().map(|(name, value)| (Key::Str((*name).into()), value.clone())).collect())
}

fn ints(values: &[i64]) -> Model {
    List(values.iter().map(|value| Int(*value)).collect())
}

fn person() -> Model {
    dict(&[
        ("name", text("Fred Bloggs")),
        ("age", Int(21)),
        ("tags", List(vec![text("a"), text("b")])),
        ("address", dict(&[("city", text("Bath")), ("codes", ints(&[1, 2]))])),
        ("end", text("****")),
    ])
}

/// A change of a record that must succeed. Returns the counts of encoded and spliced containers,
/// and the record's value.
fn changed(model: &Model, path: &[Step<'_>], change: &Edit) -> ((u32, u32), Model) {
    let mut book = Book::new(1000);
    let mut record = encode(model, &mut book);
    match patch(&mut record, path, change, &mut book) {
        Ok(work) => (work, decode(&record, &book)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_append_encodes_the_list_alone() {
    let (work, after) = changed(&person(), &[Step::Field("tags")], &Edit::Append(vec![text("c")]));
    assert_eq!(work, (1, 1));
    let mut expected = person();
    edit(&mut expected, &[Step::Field("tags")], &Edit::Append(vec![text("c")])).unwrap();
    assert_eq!(after, expected);

    let deeper = [Step::Field("address"), Step::Field("codes")];
    assert_eq!(changed(&person(), &deeper, &Edit::Append(vec![Int(3)])).0, (1, 2));
}

#[test]
fn containers_around_a_change_get_wider_slots_only_where_they_must() {
    // One byte reaches everything in `inner` until its first element has grown.
    let inner = List(vec![text("ab"), text("cd")]);
    let model = dict(&[("outer", List(vec![inner, text("ef"), Nothing]))]);
    let path = [Step::Field("outer"), Step::Index(0)];
    assert_eq!(changed(&model, &path, &Edit::Append(vec![text(&"x".repeat(100))])).0, (1, 2));
    let (work, after) = changed(&model, &path, &Edit::Append(vec![text(&"x".repeat(300))]));
    assert_eq!(work, (2, 1), "`inner` and `outer` are encoded, the root is spliced");
    let mut expected = model;
    edit(&mut expected, &path, &Edit::Append(vec![text(&"x".repeat(300))])).unwrap();
    assert_eq!(after, expected);
}

#[test]
fn siblings_are_copied_byte_by_byte() {
    let mut book = Book::new(1000);
    let record = encode(&person(), &mut book);
    let value = encode(&text("c"), &mut book);
    let patched =
        apply(&record, &[Step::Field("tags")], Change::Append(&[&value]), &mut book).unwrap().record;
    let address = |record: &[u8]| match resolve(record, &book, &[Step::Field("address")]) {
        Ok(Some(Root::Container(address))) => record[address.start as usize..address.end as usize].to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(address(&patched), address(&record));
}

#[test]
fn a_deleted_field_comes_back_behind_the_others() {
    let model = dict(&[("a", Int(1)), ("b", Int(2)), ("c", Int(3))]);
    let mut book = Book::new(1000);
    let mut record = encode(&model, &mut book);
    assert_eq!(overwrite(&mut record, &book, &[Step::Field("a")], &Slot::Absent), Ok(true));
    assert_eq!(decode(&record, &book), dict(&[("b", Int(2)), ("c", Int(3))]));
    assert_eq!(resolve(&record, &book, &[Step::Field("a")]), Ok(None));
    let again = overwrite(&mut record, &book, &[Step::Field("a")], &Slot::Absent);
    assert_eq!(again, Err(PatchError::NoSuchField { step: 0 }));
    assert_eq!(overwrite(&mut record, &book, &[Step::Field("a")], &Slot::Int(9)), Ok(false));
    patch(&mut record, &[Step::Field("a")], &Edit::Set(Int(9)), &mut book).unwrap();
    assert_eq!(decode(&record, &book), dict(&[("b", Int(2)), ("c", Int(3)), ("a", Int(9))]));
}

#[test]
fn the_last_field_comes_back_where_it_was_without_another_shape() {
    let mut book = Book::new(1);
    let mut record = encode(&dict(&[("a", Int(1)), ("b", Int(2))]), &mut book);
    overwrite(&mut record, &book, &[Step::Field("b")], &Slot::Absent).unwrap();
    patch(&mut record, &[Step::Field("b")], &Edit::Set(Int(3)), &mut book).unwrap();
    assert_eq!(Container::root(&record, &book).unwrap().kind, Kind::Shaped);
    assert_eq!(decode(&record, &book), dict(&[("a", Int(1)), ("b", Int(3))]));
}

#[test]
fn a_dict_without_a_shape_to_be_becomes_a_keyed_map_and_back() {
    let mut book = Book::new(1);
    let mut record = encode(&dict(&[("a", Int(1))]), &mut book);
    patch(&mut record, &[Step::Field("b")], &Edit::Set(Int(2)), &mut book).unwrap();
    assert_eq!(Container::root(&record, &book).unwrap().kind, Kind::Keyed);
    assert_eq!(decode(&record, &book), dict(&[("a", Int(1)), ("b", Int(2))]));
    patch(&mut record, &[], &Edit::Clear, &mut book).unwrap();
    patch(&mut record, &[Step::Field("a")], &Edit::Set(Int(3)), &mut book).unwrap();
    assert_eq!(Container::root(&record, &book).unwrap().kind, Kind::Shaped);
}

#[test]
fn packed_ints_stay_packed_until_something_else_comes() {
    let kind_after = |value: Model| {
        let mut book = Book::new(0);
        let mut record = encode(&ints(&[1, 2, 3]), &mut book);
        patch(&mut record, &[], &Edit::Append(vec![value.clone()]), &mut book).unwrap();
        assert_eq!(decode(&record, &book), List(vec![Int(1), Int(2), Int(3), value]));
        Container::root(&record, &book).unwrap().kind
    };
    assert_eq!(kind_after(Int(4)), Kind::PackedInts);
    assert_eq!(kind_after(Int(i64::MIN)), Kind::PackedInts);
    assert_eq!(kind_after(Float(4.0)), Kind::List);
    assert_eq!(kind_after(text("four")), Kind::List);
}

#[test]
fn keys_that_are_no_names_are_given_as_records() {
    let mut book = Book::new(0);
    let one = encode(&Float(1.0), &mut book);
    let pair = encode(&Tuple(vec![Int(1), text("x")]), &mut book);
    let value = encode(&text("new"), &mut book);
    let mut record = encode(&Dict(vec![(Key::Int(1), text("one"))]), &mut book);
    // 1.0 is the key 1, as in a dict.
    record = apply(&record, &[Step::Key(&one)], Change::Set(&value), &mut book).unwrap().record;
    assert_eq!(decode(&record, &book), Dict(vec![(Key::Int(1), text("new"))]));
    record = apply(&record, &[Step::Key(&pair)], Change::Set(&value), &mut book).unwrap().record;
    assert_eq!(resolve(&record, &book, &[Step::Key(&pair)]), Ok(Some(Root::Scalar(Slot::Str(b"new")))));
    record = apply(&record, &[Step::Key(&pair)], Change::Delete, &mut book).unwrap().record;
    assert_eq!(decode(&record, &book), Dict(vec![(Key::Int(1), text("new"))]));
    // A tuple with a timedelta has no order, and is found by its bytes.
    let unordered = encode(&Tuple(vec![Heap(tag::TIMEDELTA, vec![0; 12])]), &mut book);
    record = apply(&record, &[Step::Key(&unordered)], Change::Set(&one), &mut book).unwrap().record;
    assert_eq!(resolve(&record, &book, &[Step::Key(&unordered)]), Ok(Some(Root::Scalar(Slot::Float(1.0)))));
    record = apply(&record, &[Step::Key(&unordered)], Change::Delete, &mut book).unwrap().record;
    assert_eq!(decode(&record, &book), Dict(vec![(Key::Int(1), text("new"))]));
}

#[test]
fn what_does_not_change_says_so() {
    let model = dict(&[
        ("pair", Tuple(vec![Int(1), List(vec![])])),
        ("list", List(vec![text("a")])),
        ("text", text("t")),
    ]);
    let error = |path: &[Step<'_>], change: &Edit| {
        let mut book = Book::new(1000);
        let mut record = encode(&model, &mut book);
        patch(&mut record, path, change, &mut book).unwrap_err()
    };
    let (pair, list, text) = (Step::Field("pair"), Step::Field("list"), Step::Field("text"));
    assert_eq!(error(&[pair, Step::Index(0)], &Edit::Set(Int(2))), PatchError::Immutable { step: 1 });
    assert_eq!(error(&[pair], &Edit::Append(vec![])), PatchError::Immutable { step: 1 });
    assert_eq!(
        error(&[list, Step::Index(1)], &Edit::Delete),
        PatchError::IndexOutOfRange { step: 1, count: 1 }
    );
    assert_eq!(error(&[list, Step::Field("a")], &Edit::Set(Int(2))), PatchError::NotAContainer { step: 1 });
    assert_eq!(error(&[text, Step::Field("a")], &Edit::Set(Int(2))), PatchError::NotAContainer { step: 1 });
    assert_eq!(error(&[Step::Field("none")], &Edit::Delete), PatchError::NoSuchField { step: 0 });
    assert_eq!(error(&[Step::Field("none")], &Edit::Clear), PatchError::NoSuchField { step: 0 });
    assert_eq!(error(&[], &Edit::Append(vec![])), PatchError::NotAContainer { step: 0 });
    // A list inside a tuple may change, but not the tuple.
    assert_eq!(changed(&model, &[pair, Step::Index(1)], &Edit::Append(vec![Int(1)])).0, (1, 2));
}

#[test]
fn a_value_that_would_nest_too_deep_is_refused() {
    let nested = |depth: usize| (1..depth).fold(List(vec![]), |inner, _| List(vec![inner]));
    let mut book = Book::new(0);
    let record = encode(&List(vec![List(vec![])]), &mut book);
    let path = [Step::Index(0)];
    let fits = encode(&nested(62), &mut book);
    let changed = apply(&record, &path, Change::Append(&[&fits]), &mut book).unwrap();
    assert_eq!(decode(&changed.record, &book), List(vec![List(vec![nested(62)])]));
    let too_deep = encode(&nested(63), &mut book);
    let refused = apply(&record, &path, Change::Append(&[&too_deep]), &mut book);
    assert_eq!(refused, Err(PatchError::Encode(EncodeError::TooDeep)));
}

#[test]
fn deleting_and_setting_again_does_not_grow_a_record() {
    let mut book = Book::new(1000);
    let model =
        dict(&[("inner", dict(&[("list", List(vec![text("abc")])), ("text", text(&"x".repeat(40)))]))]);
    let mut record = encode(&model, &mut book);
    let path = [Step::Field("inner"), Step::Field("text")];
    let mut sizes = Vec::new();
    for _ in 0..4 {
        assert_eq!(overwrite(&mut record, &book, &path, &Slot::Absent), Ok(true));
        patch(&mut record, &path, &Edit::Set(text(&"y".repeat(40))), &mut book).unwrap();
        sizes.push(record.len());
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
}

// ---- Paths
// ---------------------------------------------------------------------------------------

#[test]
fn steps_lead_to_fields_with_dots_and_to_elements_from_the_end() {
    let mut book = Book::new(1000);
    let model = dict(&[("a.b", Int(1)), ("a", dict(&[("b", Int(2)), ("0", Int(3))])), ("l", ints(&[4, 5]))]);
    let record = encode(&model, &mut book);
    let find = |steps: &[Step<'_>]| match resolve(&record, &book, steps) {
        Ok(Some(Root::Scalar(Slot::Int(int)))) => Some(int),
        Ok(None) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(find(&[Step::Field("a"), Step::Field("b")]), Some(2));
    assert_eq!(find(&[Step::Field("a.b")]), Some(1));
    assert_eq!(find(&[Step::Field("a"), Step::Field("0")]), Some(3));
    assert_eq!(find(&[Step::Field("l"), Step::Field("0")]), None, "a list has no fields");
    assert_eq!(find(&[Step::Field("l"), Step::Index(-1)]), Some(5));
    assert_eq!(find(&[Step::Field("l"), Step::Index(2)]), None);
    assert_eq!(find(&[Step::Field("a"), Step::Field("b"), Step::Field("c")]), None);
    assert_eq!(find(&[Step::Field("")]), None);
}

// ---- Damaged records
// -----------------------------------------------------------------------------

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_damaged_record_changes_or_refuses_and_nothing_worse(
        model in models(),
        picks in prop::collection::vec(any::<u8>(), 0..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        change in edits(),
    ) {
        let mut book = Book::new(3);
        let mut record = encode(&model, &mut book);
        for (at, byte) in damage {
            let at = at.index(record.len());
            record[at] = byte;
        }
        let path = path_into(&model, &picks, matches!(change, Edit::Set(_) | Edit::Delete));
        let path: Vec<Step<'_>> = path.iter().map(Key::step).collect();
        let mut in_place = record.clone();
        if let Edit::Set(value) = &change && let Some(slot) = slot(value) {
            let _ = overwrite(&mut in_place, &book, &path, &slot);
        }
        let _ = patch(&mut record, &path, &change, &mut book);
        let _ = resolve(&record, &book, &path);
    }
}

// ---- Moved elements
// ------------------------------------------------------------------------------

proptest! {
    /// An index before the result of `moved_from` leads to the same element in both states, or to
    /// one that was changed there.
    #[test]
    fn what_has_not_moved_is_found_again(
        elements in proptest::collection::vec(models(), 1..12),
        steps in proptest::collection::vec((0..3u8, any::<prop::sample::Index>()), 1..4),
    ) {
        // Each element has a number of its own, which identifies it.
        let numbered = |numbers: &[usize]| {
            let element = |number: &usize| List(vec![Int(*number as i64), elements[number % elements.len()].clone()]);
            Dict(vec![(Key::Str("l".into()), List(numbers.iter().map(element).collect()))])
        };
        let before: Vec<usize> = (0..elements.len()).collect();
        let mut now = before.clone();
        for (what, at) in steps {
            match what {
                0 if !now.is_empty() => drop(now.remove(at.index(now.len()))),
                1 => now.insert(at.index(now.len() + 1), 100 + now.len()),
                _ => now.push(200 + now.len()),
            }
        }
        let mut book = Book::new(8);
        let (old, new) = (encode(&numbered(&before), &mut book), encode(&numbered(&now), &mut book));
        let from = moved_from(&old, &new, &book, &[Step::Field("l")]).unwrap();
        let first = (0..before.len()).find(|index| now.get(*index) != Some(&before[*index]));
        match (first, from) {
            // Nothing moved: elements that were added at the end do not matter.
            (None, from) => prop_assert_eq!(from, None),
            (Some(first), Some(from)) => prop_assert_eq!(from as usize, first),
            // Every element that is not where it was is gone, and as many others were added: they
            // may be the same ones, changed.
            (Some(_), None) => prop_assert!(
                now.len() >= before.len() && before.iter().zip(&now).all(|(was, is)| was == is || !now.contains(was))
            ),
        }
        let mut all = Vec::new();
        // Lists within changed elements may have moved as well.
        moved(&old, &new, &book, &mut |list, from| all.extend((list.len() == 1).then_some(from))).unwrap();
        prop_assert_eq!(all, Vec::from_iter(from));
    }
}
