//! Is a value among those of a list?
//!
//! Strings are looked up among the strings and ints among the ints, however many there are; whatever else compares with what is no such value is
//! compared with one after the other: True with 1, a Decimal with a float.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashSet;
use pellucid_record::{Corrupt, Shapes, Slot, Value};

use super::found::Found;

/// Values in which others are looked for. Clones share them.
#[derive(Clone)]
pub(super) struct List {
    all: Arc<[Value]>,
    ints: Arc<HashSet<i64>>,
    texts: Arc<HashSet<Box<[u8]>>>,
    /// Whether some are no ints, and may equal one: numbers of other types.
    has_numbers: bool,
}

impl List {
    pub(super) fn new(values: &[Value]) -> Self {
        let ints = values.iter().filter_map(|value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        });
        let texts = values.iter().filter_map(|value| match value {
            Value::Str(text) => Some(text.as_bytes().into()),
            Value::Surrogates(text) => Some(text.as_slice().into()),
            _ => None,
        });
        let is_number = |value: &Value| {
            matches!(value, Value::Bool(_) | Value::Float(_) | Value::Decimal(_) | Value::Complex(..))
        };
        Self {
            ints: Arc::new(ints.collect()),
            texts: Arc::new(texts.collect()),
            has_numbers: values.iter().any(is_number),
            all: values.into(),
        }
    }

    pub(super) fn has<S: Shapes + ?Sized>(&self, found: &Found<'_>, shapes: &S) -> Result<bool, Corrupt> {
        if let Found::Slot(Slot::Int(value), _) = found {
            if self.ints.contains(value) {
                return Ok(true);
            }
            if !self.has_numbers {
                return Ok(false);
            }
        }
        // A string equals strings alone.
        if let Some((true, text)) = found.bytes() {
            return Ok(self.texts.contains(text));
        }
        for value in self.all.iter() {
            if found.equals(&Found::Value(Cow::Borrowed(value)), shapes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
