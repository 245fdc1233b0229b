//! Evaluates expressions on rows.
//!
//! An [`Evaluator`] is an expression prepared for many rows. It looks up a field once for each
//! shape and compiles a regular expression once. The conditions that most queries use are tested
//! without building a value (`quick.rs`, `text.rs`). All others go through `visit`, which passes
//! each possible value of a part to a callback: one value, or with `each()` any number of them.

use std::borrow::Cow;
use std::cmp::Ordering;

use pellucid_record::{Corrupt, Shape, Shapes, Slot, Value};
use pellucid_store::Row;

use super::found::Found;
use super::pairs::Others;
use super::quick::Quick;
use super::reach::Reach;
use super::text::Text;
use super::{compute, reach};
use crate::expression::{Comparison, Expression, Function, Kind, Operation, Part, Source, Step};
use crate::field::FieldReader;
use crate::in_list::InList;
use crate::pattern::{BadPattern, Pattern};

/// An expression prepared for the rows of one database. Threads use clones of it.
#[derive(Clone)]
pub struct Evaluator {
    operator: Operator,
}

#[derive(Clone)]
pub(super) enum Operator {
    Field(FieldReader),
    Reach(Box<Reach>),
    Key(Vec<Step>),
    Literal(Value),
    Quick(Quick, Box<Operator>),
    Text(Box<Text>, Box<Operator>),
    Compare(Comparison, Box<[Operator; 2]>),
    All(Vec<Operator>),
    Any(Vec<Operator>),
    Not(Box<Operator>),
    Arithmetic(Operation, Box<[Operator; 2]>),
    Negative(Box<Operator>),
    Between(Box<[Operator; 3]>),
    IsIn(Box<Operator>, InList),
    Has(Part, Box<[Operator; 2]>),
    Matches(Box<Operator>, Box<Pattern>),
    Exists(Box<Operator>),
    IsNone(Box<Operator>),
    Call(Function, Box<Operator>),
}

type Visit<'v> = &'v mut dyn FnMut(Found<'_>) -> Result<bool, Corrupt>;

impl Evaluator {
    /// An evaluator of `expression`.
    ///
    /// # Errors
    /// A regular expression in it is invalid.
    pub fn new(expression: &Expression) -> Result<Self, BadPattern> {
        Ok(Self { operator: Operator::of(expression)? })
    }

    /// Whether the condition is true for a row.
    ///
    /// # Errors
    /// Damage of the record.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as that of `Selection::takes`, which asks it")]
    pub fn is_true<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<bool, Corrupt> {
        let is_true = match &self.operator {
            Operator::Quick(quick, _) => quick.quick_test(row.record),
            Operator::Text(text, _) => text.quick_test(row.record),
            _ => None,
        };
        match is_true {
            Some(is_true) => Ok(is_true),
            None => self.is_true_of(*row, shapes),
        }
    }

    // Takes the row by value, so that the fast test above can keep it in registers. By reference,
    // the row was written to memory and then copied in larger pieces than it was written in, and
    // that copy alone took a tenth of the samples of a walk.
    #[inline(never)]
    fn is_true_of<S: Shapes + ?Sized>(&mut self, row: Row<'_>, shapes: &S) -> Result<bool, Corrupt> {
        self.operator.is_true(&row, shapes)
    }

    /// The value for a row; None if it is missing. With `each()`, the list of all values.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn value<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<Option<Value>, Corrupt> {
        if self.operator.branches() {
            let mut values = Vec::new();
            self.operator.visit(row, shapes, &mut |found| {
                values.extend(found.to_value(shapes)?);
                Ok(false)
            })?;
            return Ok(Some(Value::List(values)));
        }
        let mut value = None;
        self.operator.visit(row, shapes, &mut |found| {
            value = found.to_value(shapes)?;
            Ok(false)
        })?;
        Ok(value)
    }

    /// Whether a row may have several values: true with `each()`.
    #[must_use]
    pub fn branches(&self) -> bool {
        self.operator.branches()
    }

    /// Passes the values for a row to `visit` until it returns true: one value, which may be
    /// missing, or with `each()` any number.
    ///
    /// # Errors
    /// Damage of the record, and what `visit` returns.
    pub fn visit<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
        visit: &mut dyn FnMut(Found<'_>) -> Result<bool, Corrupt>,
    ) -> Result<bool, Corrupt> {
        self.operator.visit(row, shapes, visit)
    }
}

/// Shapes without access to large values, which stay unread.
struct NamesAlone<'a>(&'a dyn Shapes);

impl Shapes for NamesAlone<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.0.shape(id)
    }
}

impl Operator {
    fn of(expression: &Expression) -> Result<Self, BadPattern> {
        let one = |node: &Expression| Self::of(node).map(Box::new);
        let two = |one: &Expression, other: &Expression| Ok(Box::new([Self::of(one)?, Self::of(other)?]));
        let operator = match expression.kind() {
            Kind::Field(Source::Key, path) => Self::Key(path.clone()),
            Kind::Field(Source::Record, path) => match FieldReader::of(path) {
                Some(reader) => Self::Field(reader),
                None => Self::Reach(Box::new(Reach::of(path))),
            },
            Kind::Literal(value) => Self::Literal(value.clone()),
            Kind::Compare(comparison, left, right) => Self::Compare(*comparison, two(left, right)?),
            Kind::And(parts) => Self::All(parts.iter().map(|part| Self::of(part)).collect::<Result<_, _>>()?),
            Kind::Or(parts) => Self::Any(parts.iter().map(|part| Self::of(part)).collect::<Result<_, _>>()?),
            Kind::Not(part) => Self::Not(one(part)?),
            Kind::Arithmetic(operation, left, right) => Self::Arithmetic(*operation, two(left, right)?),
            Kind::Negative(part) => Self::Negative(one(part)?),
            Kind::Between(value, least, greatest) if Kind::only_value(least, greatest).is_some() => {
                Self::Compare(Comparison::Equal, two(value, least)?)
            }
            Kind::Between(value, least, greatest) => {
                Self::Between(Box::new([Self::of(value)?, Self::of(least)?, Self::of(greatest)?]))
            }
            Kind::IsIn(part, values) => Self::IsIn(one(part)?, values.clone()),
            Kind::Has(part, whole, piece) => Self::Has(*part, two(whole, piece)?),
            Kind::Matches(part, pattern) => Self::Matches(one(part)?, Box::new(Pattern::new(pattern)?)),
            Kind::Exists(part) => Self::Exists(one(part)?),
            Kind::IsNone(part) => Self::IsNone(one(part)?),
            Kind::Call(function, part) => Self::Call(*function, one(part)?),
        };
        if let Some(quick) = Quick::of(expression) {
            return Ok(Self::Quick(quick, Box::new(operator)));
        }
        Ok(match Text::of(expression) {
            Some(text) => Self::Text(Box::new(text), Box::new(operator)),
            None => operator,
        })
    }

    /// Whether a row may have several values.
    fn branches(&self) -> bool {
        match self {
            Self::Reach(_) => true,
            Self::Arithmetic(_, parts) => parts.iter().any(Self::branches),
            Self::Negative(part) | Self::Call(_, part) => part.branches(),
            _ => false,
        }
    }

    /// Whether the value is computed from others instead of being read from the row.
    fn is_computed(&self) -> bool {
        !matches!(self, Self::Field(_) | Self::Reach(_) | Self::Key(_) | Self::Literal(_))
    }

    #[inline]
    fn is_true<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<bool, Corrupt> {
        match self {
            Self::Quick(quick, whole) => match quick.test(row.record, shapes)? {
                Some(is_true) => Ok(is_true),
                None => whole.test(row, shapes),
            },
            Self::Text(text, whole) => match text.test(row.record, shapes)? {
                Some(is_true) => Ok(is_true),
                None => whole.test(row, shapes),
            },
            Self::All(parts) => {
                for part in parts {
                    if !part.is_true(row, shapes)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => self.test(row, shapes),
        }
    }

    fn test<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<bool, Corrupt> {
        match self {
            Self::Quick(_, whole) => whole.test(row, shapes),
            Self::All(_) | Self::Text(..) => self.is_true(row, shapes),
            Self::Any(parts) => {
                for part in parts {
                    if part.is_true(row, shapes)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(part) => Ok(!part.is_true(row, shapes)?),
            Self::Compare(Comparison::NotEqual, parts) => {
                Ok(!Self::compare(Comparison::Equal, parts, row, shapes)?)
            }
            Self::Compare(comparison, parts) => Self::compare(*comparison, parts, row, shapes),
            Self::Between(parts) => Self::is_between(parts, row, shapes),
            Self::IsIn(part, list) => part.visit(row, shapes, &mut |found| found.is_in_list(list, shapes)),
            Self::Has(part, operands) => {
                let [whole, piece] = &mut **operands;
                let part = *part;
                whole.visit(row, shapes, &mut |whole| {
                    piece.visit(row, shapes, &mut |piece| has(part, &whole, &piece, shapes))
                })
            }
            Self::Matches(part, pattern) => part.visit(row, shapes, &mut |found| {
                Ok(matches!(found.bytes(), Some((true, text)) if pattern.is_match(text)))
            }),
            // Whether a stored value exists or is None can be told without reading a large value. A
            // computed value has to be computed first.
            Self::Exists(part) if part.is_computed() => {
                part.visit(row, shapes, &mut |found| Ok(!found.is_missing()))
            }
            Self::Exists(part) => part.visit(row, &NamesAlone(&shapes), &mut |found| Ok(!found.is_missing())),
            Self::IsNone(part) => part.visit(row, &NamesAlone(&shapes), &mut |found| Ok(found.is_none())),
            _ => self.visit(row, shapes, &mut |found| found.is_truthy(shapes)),
        }
    }

    pub(super) fn compare<S: Shapes + ?Sized>(
        comparison: Comparison,
        parts: &mut [Operator; 2],
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<bool, Corrupt> {
        let [one, other] = parts;
        if one.branches() && other.branches() {
            let others = Others::of(comparison, other, row, shapes)?;
            return one.visit(row, shapes, &mut |one| others.hold(&one, shapes));
        }
        one.visit(row, shapes, &mut |one| {
            other.visit(row, shapes, &mut |other| match comparison {
                Comparison::Equal => one.equals(&other, shapes),
                Comparison::NotEqual => one.equals(&other, shapes).map(|is_equal| !is_equal),
                comparison => Ok(one.order(&other, shapes)?.is_some_and(|order| comparison.holds(order))),
            })
        })
    }

    fn is_between<S: Shapes + ?Sized>(
        parts: &mut [Operator; 3],
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<bool, Corrupt> {
        let [value, least, greatest] = parts;
        if value.branches() && (least.branches() || greatest.branches()) {
            let bounds = |comparison, part: &mut Operator| -> Result<[Others; 2], Corrupt> {
                let equal = Others::of(Comparison::Equal, part, row, shapes)?;
                Ok([Others::of(comparison, part, row, shapes)?, equal])
            };
            let least = bounds(Comparison::GreaterOrEqual, least)?;
            let greatest = bounds(Comparison::LessOrEqual, greatest)?;
            return value.visit(row, shapes, &mut |value| {
                let holds = |[beyond, equal]: &[Others; 2]| -> Result<bool, Corrupt> {
                    Ok(beyond.hold(&value, shapes)? || equal.hold(&value, shapes)?)
                };
                Ok(holds(&least)? && holds(&greatest)?)
            });
        }
        value.visit(row, shapes, &mut |value| {
            let holds = |bound: &Found<'_>, holds: fn(Ordering) -> bool| match value.order(bound, shapes)? {
                Some(order) => Ok(holds(order)),
                None => value.equals(bound, shapes),
            };
            let is_behind = least.visit(row, shapes, &mut |least| holds(&least, Ordering::is_ge))?;
            Ok(is_behind && greatest.visit(row, shapes, &mut |greatest| holds(&greatest, Ordering::is_le))?)
        })
    }

    pub(super) fn visit<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
        visit: Visit<'_>,
    ) -> Result<bool, Corrupt> {
        match self {
            Self::Field(reader) => match reader.read(row.record, shapes)? {
                Some(slot) => visit(Found::of_slot(slot, row.record, shapes)?),
                None => visit(Found::Missing),
            },
            Self::Reach(reach) => reach.visit(row.record, shapes, visit),
            Self::Key(path) => visit(reach::of_key(row.key, row.spelling, path)?),
            Self::Literal(value) => visit(Found::Value(Cow::Borrowed(value))),
            Self::Arithmetic(operation, parts) => {
                let (operation, [one, other]) = (*operation, &mut **parts);
                one.visit(row, shapes, &mut |one| {
                    other.visit(row, shapes, &mut |other| visit(compute::arithmetic(operation, &one, &other)))
                })
            }
            Self::Negative(part) => part.visit(row, shapes, &mut |found| visit(compute::negative(&found))),
            Self::Call(function, part) => {
                let function = *function;
                part.visit(row, shapes, &mut |found| visit(compute::call(function, &found, shapes)))
            }
            _ => {
                let is_true = self.is_true(row, shapes)?;
                visit(Found::of_value(Value::Bool(is_true)))
            }
        }
    }
}

fn has<S: Shapes + ?Sized>(
    part: Part,
    whole: &Found<'_>,
    piece: &Found<'_>,
    shapes: &S,
) -> Result<bool, Corrupt> {
    if let Some((is_text, whole)) = whole.bytes() {
        return Ok(match piece.bytes() {
            Some((piece_is_text, piece)) if piece_is_text == is_text => match part {
                Part::Start => whole.starts_with(piece),
                Part::End => whole.ends_with(piece),
                Part::Anywhere => memchr::memmem::find(whole, piece).is_some(),
            },
            _ => false,
        });
    }
    match (part, whole) {
        (Part::Anywhere, Found::Slot(Slot::Container(container), record)) => {
            reach::is_in_list(container, record, shapes, piece)
        }
        (Part::Anywhere, Found::Value(value)) => {
            let equals = |element: &Value| piece.equals(&Found::Value(Cow::Borrowed(element)), shapes);
            match &**value {
                Value::List(elements)
                | Value::Tuple(elements)
                | Value::Set(elements)
                | Value::FrozenSet(elements) => any(elements.iter(), equals),
                Value::Dict(entries) => any(entries.iter().map(|(key, _)| key), equals),
                _ => Ok(false),
            }
        }
        _ => Ok(false),
    }
}

fn any<'a>(
    mut elements: impl Iterator<Item = &'a Value>,
    mut is_it: impl FnMut(&'a Value) -> Result<bool, Corrupt>,
) -> Result<bool, Corrupt> {
    elements.try_fold(false, |found, element| Ok(found || is_it(element)?))
}
