//! Which conditions on strings are tested where the string stands?
//!
//! A field beside a string: equal, before or behind it, with it at its begin, its end or in it. What is no plain string is for the
//! general way to test.

use memchr::memmem::Finder;
use pellucid_record::{Corrupt, Shapes, Slot, Value};

use crate::expression::{Comparison, Expression, Kind, Part, Source};
use crate::field::FieldReader;

/// A test of a string in a field.
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
    /// The test of a string that an expression is, if it is one.
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

    /// Whether it is true; None where the field is no plain string.
    ///
    /// # Errors
    /// Damage of the record.
    #[inline]
    pub fn test<S: Shapes + ?Sized>(&mut self, record: &[u8], shapes: &S) -> Result<Option<bool>, Corrupt> {
        let Some(Slot::Str(text)) = self.reader.read(record, shapes)? else { return Ok(None) };
        Ok(Some(self.test.holds(text)))
    }

    /// The same, if the record is made as the last one was.
    #[inline(never)]
    pub fn quick_test(&self, record: &[u8]) -> Option<bool> {
        match self.reader.hop(record)? {
            Slot::Str(text) => Some(self.test.holds(text)),
            _ => None,
        }
    }
}

impl Test {
    #[inline]
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            // Most are of another size, which is at hand.
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
