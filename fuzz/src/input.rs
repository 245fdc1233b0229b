//! What do the targets read from the fuzzer's bytes?

use std::sync::LazyLock;

use pellucid_record::keyed::CanonicalKey;
use pellucid_record::patch::ShapeBook;
use pellucid_record::payload::{Overflow, Timedelta};
use pellucid_record::value::{Double, NoShapes, OwnedZone, ShapeAssigner, Value, encode_value};
use pellucid_record::{Container, Shape, Shapes};

/// The shapes that raw records may name: with no field, one, a few, and more than a block.
pub static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let lists: [&[&str]; 5] = [
        &["a"],
        &["name", "age", "tags"],
        &[],
        &["a", "b", "c", "d", "e", "f", "g", "h", "i", "a.b", "", "\u{e4}"],
        &["b", "a"],
    ];
    lists.iter().filter_map(|names| Shape::new(names).ok()).collect()
});

/// A dictionary that begins with `SHAPES` and admits more until it is full.
pub struct Book {
    pub shapes: Vec<Shape>,
    pub count_max: usize,
}

impl Book {
    pub fn new(count_max: usize) -> Book {
        Book { shapes: SHAPES.clone(), count_max }
    }

    pub fn find_or_push(&mut self, names: &[&str]) -> Option<u32> {
        let is_it = |shape: &Shape| shape.names().iter().map(|name| &**name).eq(names.iter().copied());
        if let Some(id) = self.shapes.iter().position(is_it) {
            return Some(id as u32);
        }
        if self.shapes.len() >= self.count_max {
            return None;
        }
        self.shapes.push(Shape::new(names).ok()?);
        Some(self.shapes.len() as u32 - 1)
    }
}

impl Shapes for Book {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.get(id as usize)
    }
}

impl ShapeBook for Book {
    fn shape_of(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.find_or_push(names)
    }
}

impl ShapeAssigner for Book {
    fn assign(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        self.find_or_push(names)
    }
}

/// The bytes that are left; zeros after the end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at_checked(size).unwrap_or((self.0, &[]));
        self.0 = rest;
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn u64(&mut self) -> u64 {
        self.take(8).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// An int of a size that the input chooses: most are small.
    pub fn int(&mut self) -> i64 {
        match self.byte() {
            small @ 0..0xF0 => i64::from(small) - 0x70,
            size => {
                let unused = 64 - 8 * u32::from(size % 8 + 1);
                (self.u64() << unused).cast_signed() >> unused
            }
        }
    }

    pub fn text(&mut self) -> String {
        let size = usize::from(self.byte());
        String::from_utf8_lossy(self.take(size % 80)).into_owned()
    }

    fn bytes(&mut self) -> Vec<u8> {
        // Now and then longer than the input, so that offsets need more than a byte.
        let size = usize::from(self.byte());
        let mut bytes = self.take(size % 64).to_vec();
        if size >= 0xE0 {
            bytes.resize(usize::from(size as u8 & 0x1F) * 40, b'.');
        }
        bytes
    }

    fn zone(&mut self) -> OwnedZone {
        if self.byte().is_multiple_of(2) {
            OwnedZone::Key("Europe/Berlin".into())
        } else {
            OwnedZone::Fixed(3_600_000_000, self.text())
        }
    }

    /// A value that a dict could have as a key.
    pub fn key(&mut self, depth: u32) -> Value {
        match self.byte() {
            0..0x60 => Value::Str(self.text()),
            0x60..0x80 => Value::Int(self.int()),
            0x80..0x90 => Value::Float(Double(f64::from_bits(self.u64()))),
            0x90..0xA0 if depth > 0 => {
                let count = self.byte() % 4;
                Value::Tuple((0..count).map(|_| self.key(depth - 1)).collect())
            }
            _ => self.scalar(),
        }
    }

    /// A value that is no container, and that can be a key.
    fn scalar(&mut self) -> Value {
        match self.byte() % 16 {
            0 => Value::None,
            1 => Value::Bool(self.byte() > 0x7F),
            2 | 3 => Value::Int(self.int()),
            4 => Value::Float(Double(f64::from_bits(self.u64()))),
            5 | 6 => Value::Str(self.text()),
            7 => Value::Bytes(self.bytes()),
            8 => Value::Date(1 + u32::from(self.byte()) * 1000),
            9 => Value::Datetime(i64::from(self.byte()) * 1_000_003, self.byte() > 0x7F),
            10 => Value::Decimal(format!("{}E+{}", self.byte(), self.byte())),
            11 => Value::Uuid([self.byte(); 16]),
            12 => Value::Aware {
                local: 86_400_000_000 + i64::from(self.byte()),
                fold: self.byte() > 0x7F,
                offset: 3_600_000_000,
                zone: self.zone(),
            },
            13 => Value::Complex(Double(f64::from(self.byte())), Double(-0.0)),
            14 => Value::Timedelta(Timedelta { days: i32::from(self.byte()), seconds: 1, micros: 0 }),
            _ => Value::Surrogates(b"\xED\xA0\x80".to_vec()),
        }
    }

    /// Any value, at most `depth` containers deep.
    pub fn value(&mut self, depth: u32) -> Value {
        let kind = self.byte();
        if depth == 0 || kind < 0x60 {
            return self.scalar();
        }
        let count = usize::from(self.byte() % 12);
        match kind {
            0x60..0x90 => Value::List((0..count).map(|_| self.value(depth - 1)).collect()),
            0x90..0xA0 => Value::List((0..count).map(|_| Value::Int(self.int())).collect()),
            0xA0..0xB0 => Value::Tuple((0..count).map(|_| self.value(depth - 1)).collect()),
            0xB0..0xB8 => Value::Set((0..count).map(|_| self.key(1)).collect()),
            0xB8..0xBC => Value::FrozenSet((0..count).map(|_| self.key(1)).collect()),
            0xBC..0xC0 => Value::Registered(self.text(), Box::new(self.value(depth - 1))),
            0xC0..0xC4 => {
                let flags = self.byte() % 4;
                let is_scalar = flags & 2 != 0;
                Value::Ndarray {
                    dtype: Box::new(Value::Str("<i2".into())),
                    shape: if is_scalar { vec![] } else { vec![count as i64] },
                    flags,
                    data: vec![self.byte(); if is_scalar { 2 } else { 2 * count }],
                }
            }
            0xC4..0xC8 => Value::Overflow(Overflow { tag: 0x42, blob: self.u64(), size: 3 }),
            0xC8..0xCC => Value::Bytearray(self.bytes()),
            0xCC..0xD0 => Value::Pickle(self.bytes()),
            _ => {
                let mut entries: Vec<(Value, Value)> = Vec::new();
                for _ in 0..count {
                    let key = if kind < 0xF0 { Value::Str(self.text()) } else { self.key(1) };
                    let value = self.value(depth - 1);
                    if !entries.iter().any(|(other, _)| is_same_key(other, &key)) {
                        entries.push((key, value));
                    }
                }
                Value::Dict(entries)
            }
        }
    }
}

/// The same value with its sets in one order: theirs is that of their bytes, which depend on where the set stands.
pub fn with_sorted_sets(value: Value) -> Value {
    let all = |values: Vec<Value>| values.into_iter().map(with_sorted_sets).collect::<Vec<_>>();
    let sorted = |values: Vec<Value>| {
        let mut values = all(values);
        // As bytes, which tell one NaN from another.
        values.sort_by_cached_key(|value| encode_value(value, &mut NoShapes).unwrap_or_default());
        values
    };
    match value {
        Value::List(elements) => Value::List(all(elements)),
        Value::Tuple(elements) => Value::Tuple(all(elements)),
        Value::Set(elements) => Value::Set(sorted(elements)),
        Value::FrozenSet(elements) => Value::FrozenSet(sorted(elements)),
        Value::Dict(entries) => Value::Dict(
            entries
                .into_iter()
                .map(|(key, value)| (with_sorted_sets(key), with_sorted_sets(value)))
                .collect(),
        ),
        Value::Registered(name, value) => Value::Registered(name, Box::new(with_sorted_sets(*value))),
        value => value,
    }
}

/// Whether a dict would take both for one key.
pub fn is_same_key(a: &Value, b: &Value) -> bool {
    // A str equals nothing but a str, and most keys are one: what is below takes a thousand times as long.
    if let (Value::Str(_), _) | (_, Value::Str(_)) = (a, b) { a == b } else { canonical(a) == canonical(b) }
}

/// A key's canonical bytes, as it stands in a container.
fn canonical(key: &Value) -> Vec<u8> {
    let list = Value::List(vec![key.clone()]);
    let record = encode_value(&list, &mut NoShapes).expect("a key is small");
    let container = Container::root(&record, &NoShapes).expect("what was encoded is a record");
    let slot = container.slot(&record, &NoShapes, 0).expect("the list has an element");
    CanonicalKey::new().of(&record, &NoShapes, &slot).expect("a key has canonical bytes").to_vec()
}
