//! Do the accessors read what validation accepts, and survive what it refuses?

use pellucid_record::encode::Simple;
use pellucid_record::keyed::{CanonicalKey, UNORDERED};
use pellucid_record::layout::tag;
use pellucid_record::validate::validate_record;
use pellucid_record::{
    Container, Corrupt, Damage, Kind, Root, Shapes, Slot, Value, Walker, envelope, payload, view,
};

use super::input::{Book, SHAPES};

pub fn validate_against_accessors(data: &[u8]) {
    let is_sound = validate_record(data, &*SHAPES).is_ok();
    read_all(data, &*SHAPES, is_sound);
    if !is_sound {
        return;
    }
    let value = pellucid_record::decode(data, &*SHAPES).expect("a valid record can be decoded");
    let sealed = match envelope::seal(data, &*SHAPES) {
        Err(Corrupt { damage: Damage::Overflow, .. }) if has_overflow(&value) => return,
        sealed => sealed.expect("a valid record can be sealed"),
    };
    pellucid_record::validate(&sealed, &*SHAPES).expect("a sealed record is valid");
    let mut book = Book::new(0);
    book.count_max = usize::MAX;
    let opened = envelope::open(&sealed, |shape| {
        let names: Vec<&str> = shape.names().iter().map(|name| &**name).collect();
        book.find_or_push(&names)
    });
    let opened = opened.expect("a sealed record can be opened");
    assert_eq!(pellucid_record::decode(&opened, &book), Ok(value));
}

/// Whether a part of the value lies apart.
pub fn has_overflow(value: &Value) -> bool {
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

/// Reads all of a record in every way there is.
pub fn read_all<S: Shapes + ?Sized>(record: &[u8], shapes: &S, is_sound: bool) {
    // Entries of a damaged record may overlap, and reading each from each would never end.
    let mut reader = Reader { record, shapes, is_sound, budget: 10_000 };
    match view::root(record, shapes) {
        Ok(Root::Container(container)) => {
            // In a bounded walk they do not.
            assert!(reader.bounded(container) <= record.len());
            reader.container(container);
        }
        Ok(Root::Scalar(slot)) => reader.slot(slot),
        Err(error) => assert!(!is_sound, "{error}"),
    }
}

struct Reader<'a, S: ?Sized> {
    record: &'a [u8],
    shapes: &'a S,
    is_sound: bool,
    budget: u32,
}

impl<'a, S: Shapes + ?Sized> Reader<'a, S> {
    /// What must succeed in a sound record.
    fn check<T>(&self, result: Result<T, Corrupt>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(!self.is_sound, "{error}");
                None
            }
        }
    }

    /// How many slots bounded walks find, down to the innermost: each has a byte of its own.
    fn bounded(&self, container: Container) -> usize {
        let (mut count, mut walker) = (0, Walker::new(container));
        while let Some(slot) = self.check(walker.next_bounded(self.record, self.shapes)).flatten() {
            count += 1;
            if let Slot::Container(inner) = slot {
                assert!(inner.start > container.start && inner.end <= container.end);
                count += self.bounded(inner);
            }
        }
        assert!(!self.is_sound || walker.index() == container.count);
        count
    }

    /// Returns the container's end, as a walk over it finds.
    fn container(&mut self, container: Container) -> Option<u32> {
        self.budget = self.budget.checked_sub(1)?;
        let mut walker = Walker::new(container);
        for index in 0..container.count {
            let slot = self.check(container.slot(self.record, self.shapes, index));
            let before = walker;
            let next = walker.next(self.record, self.shapes);
            self.short_ways(before, &walker, next);
            let next = self.check(next).flatten();
            if self.is_sound {
                // As text, where NaN is NaN.
                assert_eq!(format!("{slot:?}"), format!("{next:?}"));
            }
            match slot? {
                Slot::Container(inner) => {
                    let end = self.container(inner);
                    if let Some(end) = end {
                        self.check(walker.consumed(end));
                    }
                }
                slot => self.slot(slot),
            }
            let int = container.int(self.record, index);
            assert_eq!(int, slot.and_then(|slot| if let Slot::Int(int) = slot { Some(int) } else { None }));
        }
        let beyond = container.slot(self.record, self.shapes, container.count);
        assert!(beyond.is_err_and(|error| error.damage == Damage::NoSuchSlot));
        assert_eq!(container.packed_bytes(self.record).is_ok(), container.kind.is_packed());
        self.entries(&container);
        Some(walker.end())
    }

    /// What `next` has given, `next_simple` and `next_shaped` give, sound or not, if it is theirs to give; and walk as far.
    fn short_ways(&self, before: Walker, after: &Walker, next: Result<Option<Slot<'_>>, Corrupt>) {
        let mut walker = before;
        let simple = match next {
            Ok(Some(Slot::Str(text))) => Some(Simple::Str(text)),
            Ok(Some(Slot::Int(value))) if !before.container().kind.is_packed() => Some(Simple::Int(value)),
            Ok(Some(Slot::Float(value))) if !before.container().kind.is_packed() => {
                Some(Simple::Float(value))
            }
            Ok(Some(Slot::Bool(value))) => Some(Simple::Bool(value)),
            Ok(Some(Slot::None)) => Some(Simple::None),
            _ => None,
        };
        // As text, where NaN is NaN.
        assert_eq!(format!("{:?}", walker.next_simple(self.record)), format!("{simple:?}"));
        let is_same = |walker: &Walker, is_taken: bool| {
            let expected = if is_taken { after } else { &before };
            format!("{walker:?}") == format!("{expected:?}")
        };
        assert!(is_same(&walker, simple.is_some()), "{walker:?} is not {after:?}");

        let mut walker = before;
        let inner = walker.next_shaped(self.record, |shape| self.shapes.slot_count(shape));
        let shaped = match next {
            Ok(Some(Slot::Container(container))) if container.kind == Kind::Shaped => Some(container),
            _ => None,
        };
        assert_eq!(inner.map(|inner| *inner.container()), shaped);
        assert!(is_same(&walker, shaped.is_some()), "{walker:?} is not {after:?}");
    }

    /// Finds each field and entry of a dict again.
    fn entries(&self, container: &Container) {
        if container.kind == Kind::Shaped {
            let names = self.shapes.shape(container.shape).map_or(&[][..], |shape| shape.names());
            for (index, name) in (0..).zip(names) {
                let field = self.check(container.field(self.record, self.shapes, name)).flatten();
                let slot = self.check(container.slot(self.record, self.shapes, index));
                assert_eq!(format!("{field:?}"), format!("{:?}", slot.filter(|slot| *slot != Slot::Absent)));
            }
        }
        if container.kind != Kind::Keyed {
            return;
        }
        let mut canonical_key = CanonicalKey::new();
        for entry in 0..container.len() {
            let Some(key) = self.check(container.slot(self.record, self.shapes, 2 * entry)) else { continue };
            let Some(canonical) = self.check(canonical_key.of(self.record, self.shapes, &key)) else {
                continue;
            };
            let found = self.check(container.map_find(self.record, self.shapes, canonical)).flatten();
            if self.is_sound && canonical.first() != Some(&UNORDERED) {
                assert_eq!(found, Some(entry));
            }
        }
    }

    fn slot(&mut self, slot: Slot<'a>) {
        let Slot::Heap { tag, payload, offset } = slot else { return };
        let size = payload.len() as u32;
        let is_something = match tag {
            tag::BIGINT => {
                let (_, magnitude) = payload::bigint_magnitude(payload);
                payload::is_bigint(payload) && magnitude.len() <= payload.len()
            }
            tag::DECIMAL => payload::decimal(payload).is_some(),
            tag::COMPLEX => payload::complex(payload).is_some(),
            tag::UUID => payload::uuid(payload).is_some(),
            tag::TIMEDELTA => payload::timedelta(payload).is_some(),
            tag::TIME => payload::time(payload).is_some(),
            tag::AWARE => payload::aware(payload).is_some(),
            tag::OVERFLOW => payload::overflow(payload).is_some(),
            tag::NDARRAY => match payload::ndarray(self.record, self.shapes, offset, size) {
                Ok(array) => self.container(array.head).is_some(),
                Err(_) => false,
            },
            tag::REGISTERED => match payload::registered(self.record, self.shapes, offset, size) {
                Ok(object) => self.container(object.head).is_some(),
                Err(_) => false,
            },
            _ => true,
        };
        assert!(is_something || !self.is_sound || self.budget == 0, "tag {tag:#x}");
    }
}
