//! Tests conditions on strings in place, without decoding the string.
//!
//! A condition compares a field with a string literal: `==` and the other comparisons, or whether
//! the field starts with, ends with or contains the literal. Values that are not plain strings take
//! the general path.

use memchr::memmem::Finder;
use pellucid_record::{Corrupt, Shapes, Slot, Value};

use crate::expression::{Comparison, Expression, Kind, Part, Source};
use crate::field::FieldReader;

/// A test of a string field.
#[derive(Clone)]
pub struct Text {
    reader: FieldReader,
    test: Test,
}

#[derive(Clone)]
enum Test {
    Compare(Comparison, Box<[u8]>),
    Start(Box<[u8]>),
    End(Box<[u8]>),
    Anywhere(Box<Finder<'static>>),
}

impl Text {
    /// The string test that is equivalent to this expression, if there is one.
    pub fn of(expression: &Expression) -> Option<Self> {
        let (field, test) = match expression.kind() {
            Kind::Compare(comparison, one, other) => match (one.kind(), other.kind()) {
                (field, Kind::Literal(Value::Str(text))) => {
                    (field, Test::Compare(*comparison, text.as_bytes().into()))
                }
                (Kind::Literal(Value::Str(text)), field) => {
                    (field, Test::Compare(comparison.turned(), text.as_bytes().into()))
                }
                _ => return None,
            },
            Kind::Has(part, whole, piece) => match piece.kind() {
                Kind::Literal(Value::Str(text)) => (whole.kind(), Test::of(*part, text.as_bytes())),
                _ => return None,
            },
            _ => return None,
        };
        match field {
            Kind::Field(Source::Record, path) => Some(Self { reader: FieldReader::of(path)?, test }),
            _ => None,
        }
    }

    /// Whether the condition is true; None if the field is not a plain string.
    ///
    /// # Errors
    /// Damage of the record.
    #[inline]
    pub fn test<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<Option<bool>, Corrupt> {
        let Some(Slot::Str(text)) = self.reader.read(record, shapes)? else { return Ok(None) };
        Ok(Some(self.test.holds(text)))
    }

    /// The same for a record whose layouts the reader knows; None for other records.
    #[inline(never)]
    pub fn quick_test(&self, record: &[u8]) -> Option<bool> {
        let text = self.reader.place(record)?.text(record)?;
        Some(self.test.holds(text))
    }
}

impl Test {
    #[inline]
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            // Most strings differ in length, which is known without reading them.
            Test::Compare(Comparison::Equal, other) => text == &**other,
            Test::Compare(comparison, other) => comparison.holds(text.cmp(other)),
            Test::Start(piece) => text.starts_with(piece),
            Test::End(piece) => text.ends_with(piece),
            Test::Anywhere(finder) => finder.find(text).is_some(),
        }
    }

    fn of(part: Part, piece: &[u8]) -> Self {
        match part {
            Part::Start => Test::Start(piece.into()),
            Part::End => Test::End(piece.into()),
            Part::Anywhere => Test::Anywhere(Box::new(Finder::new(piece).into_owned())),
        }
    }
}
