//! Tests that the same values give the same bytes, forever.
//!
//! `vectors/*.txt` have values, their bytes and a dump of these. The bytes of a released version
//! never change: vectors are added, never edited. With `PELLUCID_WRITE_VECTORS` set the test writes
//! the files, so that a reviewer can read them as a diff.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use std::fmt::Write;
use std::path::Path;

use pellucid_record::dump::dump;
use pellucid_record::envelope::{self, Tables};
use pellucid_record::layout::tag;
use pellucid_record::payload::{Overflow, Timedelta};
use pellucid_record::value::{Double, NoShapes, OwnedZone, ShapeAssigner, Value, decode, encode_value};
use pellucid_record::{Shapes, validate};

struct Vector {
    name: &'static str,
    value: Value,
    /// Dicts get shapes, numbered from 0.
    is_shaped: bool,
}

fn vector(name: &'static str, value: Value) -> Vector {
    Vector { name, value, is_shaped: true }
}

fn keyed(name: &'static str, value: Value) -> Vector {
    Vector { name, value, is_shaped: false }
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn float(value: f64) -> Value {
    Value::Float(Double(value))
}

fn text(value: &str) -> Value {
    Value::Str(value.into())
}

fn list<const N: usize>(values: [Value; N]) -> Value {
    Value::List(values.into())
}

fn tuple<const N: usize>(values: [Value; N]) -> Value {
    Value::Tuple(values.into())
}

fn dict<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Dict(entries.into_iter().map(|(name, value)| (text(name), value)).collect())
}

/// A list in a list: the inner one is nested, so its slots are as narrow as possible.
fn nested<const N: usize>(values: [Value; N]) -> Value {
    list([list(values)])
}

fn issue_record() -> Value {
    dict([
        ("name", text("Fred Bloggs")),
        ("age", int(21)),
        ("mylist", list([text("one"), text("two"), text("three"), text("four"), int(5)])),
        (
            "mydict",
            dict([
                ("a", int(1)),
                ("b", int(2)),
                (
                    "c",
                    dict([
                        ("nested", text("this is a long string")),
                        ("num", int(9321)),
                        ("list", list([dict([("a", int(1))]), dict([("b", int(2)), ("c", int(3))])])),
                    ]),
                ),
            ]),
        ),
        ("amt", float(1.23)),
        ("end", text("****")),
    ])
}

fn simple() -> Vec<Vector> {
    vec![
        vector("None", Value::None),
        vector("False", Value::Bool(false)),
        vector("True", Value::Bool(true)),
        vector("in a root", tuple([Value::None, Value::Bool(false), Value::Bool(true)])),
        vector("in a nested container", nested([Value::None, Value::Bool(false), Value::Bool(true)])),
        vector("pickle", Value::Pickle(vec![0x80, 5, b'N', b'.'])),
        vector("pickle in a root", tuple([Value::Pickle(vec![0x80, 5, b'N', b'.'])])),
        vector(
            "a value lying apart",
            Value::Overflow(Overflow { tag: tag::BYTES, blob: 3, size: 300_000_000 }),
        ),
        vector(
            "in slots",
            nested([Value::Overflow(Overflow { tag: tag::STR, blob: 1, size: 9 }), Value::None]),
        ),
    ]
}

fn numbers() -> Vec<Vector> {
    let big = |value: i128| {
        let mut bytes = value.to_le_bytes().to_vec();
        while !pellucid_record::payload::is_bigint(&bytes) {
            bytes.pop();
        }
        Value::BigInt(bytes)
    };
    vec![
        vector("0", int(0)),
        vector("-1", int(-1)),
        vector("256", int(256)),
        vector("the greatest int of 64 bits", int(i64::MAX)),
        vector("the least int of 64 bits", int(i64::MIN)),
        vector("2**63", big(1 << 63)),
        vector("-2**63 - 1", big(-(1 << 63) - 1)),
        vector("10**30 in a root", tuple([big(10i128.pow(30))])),
        vector("-10**30 in a nested container", nested([big(-10i128.pow(30)), Value::None])),
        vector("slots of 1 byte", nested([int(-128), int(127), Value::None])),
        vector("slots of 2 bytes", nested([int(-129), int(1), Value::None])),
        vector("slots of 4 bytes", nested([int(32768), int(1), Value::None])),
        vector("slots of 8 bytes", nested([int(1 << 31), int(-1), Value::None])),
        vector("float", float(1.23)),
        vector("0.0", float(0.0)),
        vector("-0.0", float(-0.0)),
        vector("infinity and NaN", tuple([float(f64::INFINITY), float(f64::NEG_INFINITY), float(f64::NAN)])),
        vector("NaN with a payload", float(f64::from_bits(0xFFF8_0000_0000_0123))),
        vector("a float in a nested container", nested([float(0.5), int(1), text("text")])),
        vector("Decimal", Value::Decimal("1.10".into())),
        vector("Decimals in a root", tuple([Value::Decimal("-1E+3".into()), Value::Decimal("NaN".into())])),
        vector("complex", Value::Complex(Double(1.0), Double(-0.0))),
        vector(
            "complex in a nested container",
            nested([Value::Complex(Double(0.5), Double(2.0)), Value::None]),
        ),
    ]
}

fn strings() -> Vec<Vector> {
    vec![
        vector("empty", text("")),
        vector("ab", text("ab")),
        vector("a NUL at the end", text("a\0")),
        vector("8 bytes", text("12345678")),
        vector("9 bytes", text("123456789")),
        vector("beyond ASCII", text("gr\u{f6}\u{df}er \u{1F600}")),
        vector("a lone surrogate", Value::Surrogates(vec![b'a', 0xED, 0xB0, 0x80])),
        vector("in a root", tuple([text(""), text("a"), text("12345678"), text("123456789")])),
        vector("in a nested container", nested([text(""), text("a"), text("ab"), text("123456789")])),
        vector("no bytes", Value::Bytes(vec![])),
        vector("bytes", Value::Bytes(vec![0, 255])),
        vector("9 bytes of bytes", Value::Bytes((1..10).collect())),
        vector(
            "bytes in a root",
            tuple([Value::Bytes(vec![0]), Value::Bytes((1..10).collect()), Value::Bytearray(vec![1])]),
        ),
        vector(
            "bytes in a nested container",
            nested([
                Value::Bytes(vec![]),
                Value::Bytes(vec![1]),
                Value::Bytes(vec![1, 2]),
                Value::Bytearray(vec![]),
            ]),
        ),
        vector("a bytearray", Value::Bytearray(vec![1, 2, 3])),
        vector("128 bytes, whose size takes two", nested([text(&"x".repeat(128)), Value::None])),
    ]
}

fn times() -> Vec<Vector> {
    let micros = 63_850_000_000_000_000;
    let berlin = || OwnedZone::Key("Europe/Berlin".into());
    vec![
        vector("the first date", Value::Date(1)),
        vector("the last date", Value::Date(3_652_059)),
        vector("dates in a root", tuple([Value::Date(738_000), Value::Date(1)])),
        vector("dates in a nested container", nested([Value::Date(738_000), int(1)])),
        vector("datetime", Value::Datetime(micros, false)),
        vector("the first datetime", Value::Datetime(0, false)),
        vector("datetime with fold", nested([Value::Datetime(micros, true), int(1)])),
        vector(
            "aware, UTC",
            Value::Aware { local: micros, fold: false, offset: 0, zone: OwnedZone::Fixed(0, String::new()) },
        ),
        vector(
            "aware, a named offset",
            tuple([Value::Aware {
                local: micros,
                fold: false,
                offset: -5_400_000_000,
                zone: OwnedZone::Fixed(-5_400_000_000, "NDT".into()),
            }]),
        ),
        vector(
            "aware, a zone and fold",
            nested([
                Value::Aware { local: micros, fold: true, offset: 3_600_000_000, zone: berlin() },
                Value::None,
            ]),
        ),
        vector("time", Value::Time(86_399_999_999, false, None)),
        vector("time with fold and zone", tuple([Value::Time(1, true, Some(berlin()))])),
        vector("timedelta", Value::Timedelta(Timedelta { days: -1, seconds: 86_399, micros: 999_999 })),
        vector("UUID", Value::Uuid(*b"0123456789abcdef")),
        vector("UUID in a nested container", nested([Value::Uuid([7; 16]), Value::None])),
    ]
}

fn sequences() -> Vec<Vector> {
    let many = |count: i64| Value::Tuple((0..count).map(int).collect());
    vec![
        vector("empty list", list([])),
        vector("empty tuple", tuple([])),
        vector("empty set", Value::Set(vec![])),
        vector("empty frozenset", Value::FrozenSet(vec![])),
        vector("empty ones, nested", list([list([]), tuple([]), Value::Set(vec![]), dict([])])),
        vector("tuple of eight: one block", many(8)),
        vector("tuple of nine: two blocks", many(9)),
        vector("tuple of seventeen, nested", list([many(17)])),
        vector("packed ints of 1 byte", list([int(1), int(-2), int(3)])),
        vector("packed ints of 2 bytes", list([int(1), int(300)])),
        vector("packed ints of 4 bytes", list([int(1), int(-70_000)])),
        vector("packed ints of 8 bytes", list([int(1), int(i64::MIN)])),
        vector("packed floats", list([float(1.5), float(-0.0)])),
        vector("packed, nested", list([list([int(1), int(2)]), list([float(0.25)]), list([int(1000)])])),
        vector("ints with a float are not packed", list([int(1), float(2.0)])),
        vector("ints with a bool are not packed", list([int(1), Value::Bool(true)])),
        vector(
            "sets are sorted by their bytes",
            Value::Set(vec![int(300), text("b"), int(-1), text("a"), Value::None]),
        ),
        vector(
            "so are nested ones, with their heaps",
            nested([Value::Set(vec![
                text("pear"),
                tuple([int(1)]),
                text("apple"),
                Value::FrozenSet(vec![int(2)]),
            ])]),
        ),
        vector("tuples in lists in tuples", tuple([list([tuple([int(1), text("x")])]), list([tuple([])])])),
        vector(
            "a heap beyond 255 bytes: slots of 2",
            nested([text(&"a".repeat(100)), text(&"b".repeat(100)), text(&"c".repeat(60)), text("end")]),
        ),
    ]
}

fn dicts() -> Vec<Vector> {
    let names = |count: usize| -> Value {
        Value::Dict((0..count).map(|i| (text(&format!("key{i}")), int(i64::try_from(i).unwrap()))).collect())
    };
    vec![
        vector("the issue's record", issue_record()),
        vector("empty", dict([])),
        vector("nine fields", names(9)),
        vector("nested, of one shape", list([dict([("x", int(1))]), dict([("x", int(2))])])),
        keyed("empty, with its keys", dict([])),
        keyed("two entries", dict([("a", int(1)), ("long key", text("long value"))])),
        keyed("eight entries: no index", names(8)),
        keyed("nine entries: an index", names(9)),
        keyed("nine entries, nested", list([names(9)])),
        keyed(
            "keys of many types",
            Value::Dict(vec![
                (Value::None, int(0)),
                (int(1), int(1)),
                (float(2.5), int(2)),
                (text("3"), int(3)),
                (Value::Bytes(vec![4]), int(4)),
                (tuple([int(5), text("five")]), int(5)),
                (Value::Decimal("6.0".into()), int(6)),
                (Value::Date(7), int(7)),
                (Value::FrozenSet(vec![int(8)]), int(8)),
                (Value::Uuid([9; 16]), int(9)),
                (float(f64::NAN), int(10)),
            ]),
        ),
    ]
}

fn objects() -> Vec<Vector> {
    let array = |dtype: Value, shape: &[i64], flags: u8, size: u8| Value::Ndarray {
        dtype: Box::new(dtype),
        shape: shape.into(),
        flags,
        data: (0..size).collect(),
    };
    let structured =
        || list([tuple([text("x"), text("<f8")]), tuple([text("y"), text("<i4"), tuple([int(2)])])]);
    vec![
        vector("array of int32", array(text("<i4"), &[3], 0, 12)),
        vector("array in Fortran order, in a root", dict([("a", array(text("<f8"), &[2, 1], 1, 16))])),
        vector("array in a nested container", nested([array(text("|u1"), &[2], 0, 2), Value::None])),
        vector("array scalar", array(text("<f4"), &[], 2, 4)),
        vector("array without elements", array(text("<f4"), &[0, 2], 0, 0)),
        vector("structured array", array(structured(), &[1], 0, 16)),
        vector(
            "array whose data begins beyond byte 127",
            array(list([tuple([text(&"long name ".repeat(12)), text("<f8")])]), &[1], 0, 8),
        ),
        vector(
            "object of a registered class",
            Value::Registered("point".into(), Box::new(tuple([int(1), int(2)]))),
        ),
        vector(
            "object in an object",
            dict([(
                "o",
                Value::Registered(
                    "a".into(),
                    Box::new(Value::Registered("b".into(), Box::new(dict([("x", int(1))])))),
                ),
            )]),
        ),
        vector(
            "object in a nested container",
            nested([Value::Registered("point".into(), Box::new(Value::None)), Value::None]),
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

/// JSON for types that it has; otherwise the type's name with its parts in parentheses.
fn literal(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(literal).collect::<Vec<_>>().join(", ");
    let zone = |zone: &OwnedZone| match zone {
        OwnedZone::Fixed(offset, name) => format!("fixed({offset}, {name:?})"),
        OwnedZone::Key(key) => format!("zone({key:?})"),
    };
    match value {
        Value::None => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(Double(value)) if value.is_nan() => format!("float(0x{:016x})", value.to_bits()),
        Value::Float(Double(value)) => format!("{value:?}"),
        Value::Str(value) => format!("{value:?}"),
        Value::List(values) => format!("[{}]", all(values)),
        Value::Dict(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(k, v)| format!("{}: {}", literal(k), literal(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Tuple(values) => format!("tuple({})", all(values)),
        Value::Set(values) => format!("set({})", all(values)),
        Value::FrozenSet(values) => format!("frozenset({})", all(values)),
        Value::BigInt(bytes) => format!("int(0x{}, little-endian)", hex(bytes)),
        Value::Complex(real, imaginary) => format!("complex({:?}, {:?})", real.0, imaginary.0),
        Value::Surrogates(bytes) => format!("str({})", hex(bytes)),
        Value::Bytes(bytes) => format!("bytes({})", hex(bytes)),
        Value::Bytearray(bytes) => format!("bytearray({})", hex(bytes)),
        Value::Pickle(bytes) => format!("pickle({})", hex(bytes)),
        Value::Decimal(text) => format!("Decimal({text:?})"),
        Value::Uuid(bytes) => format!("UUID({})", hex(bytes)),
        Value::Date(ordinal) => format!("date({ordinal})"),
        Value::Datetime(micros, fold) => format!("datetime({micros}, fold={fold})"),
        Value::Aware { local, fold, offset, zone: name } => {
            format!("datetime({local}, fold={fold}, offset={offset}, {})", zone(name))
        }
        Value::Time(micros, fold, name) => {
            format!(
                "time({micros}, fold={fold}{})",
                name.as_ref().map_or(String::new(), |name| format!(", {}", zone(name)))
            )
        }
        Value::Timedelta(delta) => format!("timedelta({}, {}, {})", delta.days, delta.seconds, delta.micros),
        Value::Ndarray { dtype, shape, flags, data } => {
            format!("array({}, {shape:?}, flags={flags}, {})", literal(dtype), hex(data))
        }
        Value::Registered(name, value) => format!("registered({name:?}, {})", literal(value)),
        Value::Overflow(overflow) => {
            format!("apart({:#04x}, {}, {})", overflow.tag, overflow.blob, overflow.size)
        }
    }
}

struct Assigner {
    tables: Tables,
    is_shaped: bool,
}

impl ShapeAssigner for Assigner {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        if self.is_shaped { self.tables.admit(names) } else { None }
    }
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    for line in bytes.chunks(32) {
        writeln!(out, "  {}", hex(line)).unwrap();
    }
}

fn render(vectors: &[Vector]) -> String {
    let mut out = String::new();
    for vector in vectors {
        let mut shapes = Assigner { tables: Tables::new(), is_shaped: vector.is_shaped };
        let bytes = encode_value(&vector.value, &mut shapes).unwrap();
        let tables = shapes.tables;
        writeln!(out, "name: {}\nvalue: {}", vector.name, literal(&vector.value)).unwrap();
        for (id, shape) in (0..).map_while(|id| tables.shape(id).map(|shape| (id, shape))) {
            writeln!(out, "shape {id}: {}", shape.names().join(", ")).unwrap();
        }
        writeln!(out, "hex: {} bytes", bytes.len()).unwrap();
        write_hex(&mut out, &bytes);
        writeln!(out, "dump:").unwrap();
        let dump = dump(&bytes, &tables);
        dump.lines().for_each(|line| writeln!(out, "  {line}").unwrap());
        out.push('\n');
    }
    out
}

/// The bytes in a vector file, one after another.
fn bytes_in(file: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut is_hex = false;
    for line in file.lines() {
        if line.starts_with("hex:") {
            all.push(Vec::new());
        } else if is_hex && line.starts_with("  ") {
            let digits = line.trim().as_bytes().chunks(2);
            let bytes =
                digits.map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap());
            all.last_mut().unwrap().extend(bytes);
        }
        is_hex = line.starts_with("hex:") || is_hex && line.starts_with("  ");
    }
    all
}

fn check(topic: &str, vectors: &[Vector]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(topic).with_extension("txt");
    let rendered = render(vectors);
    if std::env::var_os("PELLUCID_WRITE_VECTORS").is_some() {
        std::fs::write(&path, &rendered).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file == rendered, "{} is not what this build writes:\n{rendered}", path.display());
    let recorded = bytes_in(&file);
    assert_eq!(recorded.len(), vectors.len());
    for (bytes, vector) in recorded.iter().zip(vectors) {
        let mut shapes = Assigner { tables: Tables::new(), is_shaped: vector.is_shaped };
        encode_value(&vector.value, &mut shapes).unwrap();
        validate(bytes, &shapes.tables).unwrap();
        let read = decode(bytes, &shapes.tables).unwrap();
        // Sets are read in the order of their bytes; encoding gives both the same form.
        let again = encode_value(&read, &mut Assigner { tables: Tables::new(), is_shaped: vector.is_shaped });
        assert_eq!(&again.unwrap(), bytes, "{}", vector.name);
        if !literal(&vector.value).contains("set(") {
            assert_eq!(read, vector.value);
        }
    }
}

#[test]
fn simple_values_have_these_bytes() {
    check("simple", &simple());
}

#[test]
fn numbers_have_these_bytes() {
    check("numbers", &numbers());
}

#[test]
fn strings_have_these_bytes() {
    check("strings", &strings());
}

#[test]
fn times_have_these_bytes() {
    check("times", &times());
}

#[test]
fn sequences_have_these_bytes() {
    check("sequences", &sequences());
}

#[test]
fn dicts_have_these_bytes() {
    check("dicts", &dicts());
}

#[test]
fn objects_have_these_bytes() {
    check("objects", &objects());
}

#[test]
fn an_envelope_has_these_bytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/envelope.txt");
    let value = issue_record();
    let mut tables = Tables::new();
    let record = encode_value(&value, &mut tables).unwrap();
    let envelope = tables.envelope(&record);
    let mut rendered =
        format!("name: the issue's record\nvalue: {}\nhex: {} bytes\n", literal(&value), envelope.len());
    write_hex(&mut rendered, &envelope);
    rendered += "dump:\n";
    dump(&envelope, &NoShapes).lines().for_each(|line| writeln!(rendered, "  {line}").unwrap());
    if std::env::var_os("PELLUCID_WRITE_VECTORS").is_some() {
        std::fs::write(&path, &rendered).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file == rendered, "{} is not what this build writes:\n{rendered}", path.display());
    let recorded = bytes_in(&file);
    let shapes = envelope::validate(&recorded[0]).unwrap();
    let inside = envelope::Envelope::parse(&recorded[0]).unwrap().record;
    assert_eq!(decode(inside, &shapes).unwrap(), value);
}

/// Every tag, every kind and every width is in some vector.
#[test]
fn the_vectors_leave_nothing_out() {
    let all = [simple(), numbers(), strings(), times(), sequences(), dicts(), objects()];
    let mut tags = std::collections::BTreeSet::new();
    let mut kinds = std::collections::BTreeSet::new();
    for vector in all.iter().flatten() {
        let mut shapes = Assigner { tables: Tables::new(), is_shaped: vector.is_shaped };
        let bytes = encode_value(&vector.value, &mut shapes).unwrap();
        if bytes[0] >> 4 == 9 {
            tags.insert(bytes[1]);
            continue;
        }
        collect(
            &bytes,
            &shapes.tables,
            pellucid_record::Container::root(&bytes, &shapes.tables).unwrap(),
            &mut tags,
            &mut kinds,
        );
    }
    let inline = (0x01..=0x07).chain(0x10..=0x12).chain([0x18, 0x20, 0x21, 0x22]);
    let missing: Vec<u8> =
        inline.chain(0x40..=0x4E).chain([0x50]).filter(|tag| !tags.contains(tag)).collect();
    assert!(missing.is_empty(), "no vector has the tags {missing:02x?}");
    for kind in 1..=8 {
        let widths: &[u8] = if kind == 8 { &[3] } else { &[0, 1, 2, 3] };
        assert!(widths.iter().any(|width| kinds.contains(&(kind, *width))), "no vector has the kind {kind}");
    }
    for width in 0..4 {
        assert!(kinds.contains(&(7, width)) && kinds.contains(&(3, width)), "no list of width {width}");
    }
}

fn collect(
    bytes: &[u8],
    shapes: &Tables,
    container: pellucid_record::Container,
    tags: &mut std::collections::BTreeSet<u8>,
    kinds: &mut std::collections::BTreeSet<(u8, u8)>,
) {
    kinds.insert((container.kind as u8, container.width_log2));
    for index in 0..container.count {
        tags.extend(container.tag(bytes, index));
        let slot = container.slot(bytes, shapes, index).unwrap();
        let inner = match slot {
            pellucid_record::Slot::Container(inner) => Some(inner),
            slot => slot.payload_container(bytes, shapes).unwrap(),
        };
        if let Some(inner) = inner {
            collect(bytes, shapes, inner, tags, kinds);
        }
    }
}

#[test]
fn the_document_shows_the_dump_of_the_issues_record() {
    let mut tables = Tables::new();
    let bytes = encode_value(&issue_record(), &mut tables).unwrap();
    assert_eq!(bytes.len(), 169);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, section) = document.split_once("## Worked example").unwrap();
    let dump = dump(&bytes, &tables);
    assert!(section.contains(&format!("```\n{dump}```\n")), "docs/format.md should show:\n{dump}");
}
