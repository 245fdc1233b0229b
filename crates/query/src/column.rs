//! Computes one expression for each row.

use pellucid_record::place::Place;
use pellucid_record::value::{NoShapes, decode_slot, encode_value};
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Corrupt, Damage, Shapes, Value};
use pellucid_store::Row;

use crate::evaluate::Evaluator;
use crate::evaluate::found::Found;
use crate::expression::{Expression, Kind, Source};
use crate::field::FieldReader;
use crate::pattern::BadPattern;

/// One value for each row: a field, read in place, or a computed value. Clones serve other threads.
#[derive(Clone)]
pub struct Column {
    kind: ColumnKind,
}

#[derive(Clone)]
enum ColumnKind {
    Field(FieldReader),
    /// With the record of the value that was computed last.
    Computed(Box<Evaluator>, Vec<u8>),
}

impl From<FieldReader> for Column {
    fn from(reader: FieldReader) -> Self {
        Self { kind: ColumnKind::Field(reader) }
    }
}

impl Column {
    /// The column of an expression.
    ///
    /// # Errors
    /// A regular expression in it is invalid.
    pub fn new(expression: &Expression) -> Result<Self, BadPattern> {
        if let Kind::Field(Source::Record, path) = expression.kind()
            && let Some(reader) = FieldReader::of(path)
        {
            return Ok(reader.into());
        }
        Ok(Self { kind: ColumnKind::Computed(Box::new(Evaluator::new(expression)?), Vec::new()) })
    }

    /// The place of the value, if the column is a field, and the record and the dicts on the way
    /// have heads that were met before.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::inline_always, reason = "as that of `FieldReader::place`")]
    pub fn place(&self, record: &[u8]) -> Option<Place> {
        match &self.kind {
            ColumnKind::Field(reader) => reader.place(record),
            ColumnKind::Computed(..) => None,
        }
    }

    /// The value in a row, and the record that holds it. None if it is missing.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn read<'a, S: Shapes + ?Sized>(
        &'a mut self,
        row: &Row<'a>,
        shapes: &S,
    ) -> Result<Option<(Slot<'a>, &'a [u8])>, Corrupt> {
        match &mut self.kind {
            ColumnKind::Field(reader) => Ok(reader.read(row.record, shapes)?.map(|slot| (slot, row.record))),
            ColumnKind::Computed(evaluator, record) => {
                let Some(value) = evaluator.value(row, shapes)? else { return Ok(None) };
                // A value that fits a slot needs no record around it.
                let slot = match value {
                    Value::None => Some(Slot::None),
                    Value::Bool(value) => Some(Slot::Bool(value)),
                    Value::Int(value) => Some(Slot::Int(value)),
                    Value::Float(value) => Some(Slot::Float(value.0)),
                    _ => None,
                };
                if let Some(slot) = slot {
                    return Ok(Some((slot, &[])));
                }
                *record = encode_value(&value, &mut NoShapes).map_err(|_| Corrupt::new(Damage::Range, 0))?;
                Ok(Some(match root(record, &NoShapes)? {
                    Root::Container(container) => (Slot::Container(container), record),
                    Root::Scalar(slot) => (slot, record),
                }))
            }
        }
    }

    /// Whether a row may have many values, because the expression has `each()`.
    #[must_use]
    pub fn branches(&self) -> bool {
        match &self.kind {
            ColumnKind::Field(_) => false,
            ColumnKind::Computed(evaluator, _) => evaluator.branches(),
        }
    }

    /// Calls `visit` with the values in a row: one, which may be missing, or with `each()` any
    /// number.
    ///
    /// # Errors
    /// Damage of the record, and what `visit` returns.
    pub fn visit<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<(), Corrupt>,
    ) -> Result<(), Corrupt> {
        match &mut self.kind {
            ColumnKind::Field(reader) => match reader.read(row.record, shapes)? {
                Some(slot) => visit(&Found::of_slot(slot, row.record, shapes)?),
                None => visit(&Found::Missing),
            },
            ColumnKind::Computed(evaluator, _) => {
                evaluator.visit(row, shapes, &mut |found| visit(&found).map(|()| false)).map(|_| ())
            }
        }
    }

    /// The value in a row; None if it is missing. With `each()` it is the list of the values.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn value<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<Option<Value>, Corrupt> {
        match self.read(row, shapes)? {
            None => Ok(None),
            Some((slot, record)) => decode_slot(record, shapes, slot).map(Some),
        }
    }

    /// The value in a row, as a record of its own; None if it is missing.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn record<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<Option<Vec<u8>>, Corrupt> {
        let Some(value) = self.value(row, shapes)? else { return Ok(None) };
        encode_value(&value, &mut NoShapes).map(Some).map_err(|_| Corrupt::new(Damage::Range, 0))
    }
}
