//! The parts of an expression.
//!
//! An [`Expression`] is a plain value that can be compared, shown and stored. It knows nothing
//! about how it is evaluated.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use pellucid_record::Value;
use pellucid_record::path::OwnedStep;
use pellucid_record::value::{NoShapes, encode_value};

use super::chain::Chain;
use super::constant::{in_order, is_key};
use crate::in_list::InList;
use crate::order::equal;

/// Maximum depth of nested expressions, and maximum number of steps in a path. A chain of `and` or
/// `or` is one level, whatever its length.
pub const DEPTH_MAX: u32 = 200;

/// A shared expression.
pub type Node = Arc<Expression>;

/// A condition or a computed value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    kind: Kind,
    pub(super) depth: u32,
}

/// The kinds of expressions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The value at a path of the record, or of the row's key.
    Field(Source, Vec<Step>),
    /// A constant.
    Literal(Value),
    /// Compares two values. Values of incomparable types, such as a number and a string, give
    /// false, and true for `NotEqual`.
    Compare(Comparison, Node, Node),
    /// True if all parts are true. At least two parts.
    And(Chain),
    /// True if any part is true. At least two parts.
    Or(Chain),
    /// True if the part is not true.
    Not(Node),
    /// A number computed from two.
    Arithmetic(Operation, Node, Node),
    /// The number with the other sign.
    Negative(Node),
    /// True if the first value is greater than or equal to the second, and less than or equal to
    /// the third. A value without an order may be equal to both.
    Between(Node, Node, Node),
    /// True if the value equals one of these.
    IsIn(Node, InList),
    /// True if the first value begins with, ends with or contains the second.
    Has(Part, Node, Node),
    /// True if the regular expression matches somewhere in the value.
    Matches(Node, String),
    /// True if the value exists, even if it is None.
    Exists(Node),
    /// True if the value exists and is None.
    IsNone(Node),
    /// A value computed from one.
    Call(Function, Node),
}

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The record.
    Record,
    /// The row's key.
    Key,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// To the field with this name.
    Field(Box<str>),
    /// To the element at this index, counted from the end if negative. In a dict, to the entry with
    /// this int key.
    Index(i64),
    /// To the entry with a key of any other type. The key is stored as a record without shapes.
    Key(Box<[u8]>),
    /// To each element of a list, tuple or set. A condition is true if it is true for any of them.
    Each,
}

impl From<OwnedStep> for Step {
    fn from(step: OwnedStep) -> Self {
        match step {
            OwnedStep::Field(name) => Self::Field(name),
            OwnedStep::Index(index) => Self::Index(index),
            OwnedStep::Key(key) => Self::Key(key),
        }
    }
}

/// Comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`, exactly `not ==`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Arithmetic operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, a float
    Divide,
    /// `%`, with the sign of the divisor
    Remainder,
}

/// Where one value is searched for in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// At the start of a string or of bytes.
    Start,
    /// At the end of a string or of bytes.
    End,
    /// Anywhere in a string or bytes, among the elements of a list, tuple or set, or among the keys
    /// of a dict.
    Anywhere,
}

/// Functions of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// The number of characters of a string, bytes of bytes, or elements or entries of a container.
    Length,
    /// The string in lower case.
    Lower,
    /// The string in upper case.
    Upper,
    /// The absolute value of a number.
    Abs,
    /// The year of a date or datetime.
    Year,
    /// The month, 1 to 12.
    Month,
    /// The day of the month.
    Day,
}

/// An expression nests too deep, or a path is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the expression nests more than {DEPTH_MAX} deep; split it into several conditions")
    }
}

impl std::error::Error for TooDeep {}

impl Comparison {
    /// Whether the comparison holds for two values in this order.
    #[inline]
    #[must_use]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Expression {
    /// Makes an expression. An `and` within an `and` is merged into it, and likewise for `or`.
    ///
    /// # Errors
    /// The expression nests deeper than `DEPTH_MAX`, or its path is longer.
    pub fn new(kind: Kind) -> Result<Node, TooDeep> {
        let kind = match kind {
            Kind::Literal(value) => Kind::Literal(in_order(value)),
            Kind::And(parts) => Kind::And(flattened(&parts, |kind| match kind {
                Kind::And(parts) => Some(parts),
                _ => None,
            })),
            Kind::Or(parts) => Kind::Or(flattened(&parts, |kind| match kind {
                Kind::Or(parts) => Some(parts),
                _ => None,
            })),
            kind => kind,
        };
        let depth = 1 + kind.parts_depth();
        let is_long = matches!(&kind, Kind::Field(_, path) if path.len() > DEPTH_MAX as usize);
        if is_long || depth > DEPTH_MAX { Err(TooDeep) } else { Ok(Arc::new(Expression { kind, depth })) }
    }

    /// A constant expression.
    #[must_use]
    pub fn literal(value: Value) -> Node {
        Arc::new(Expression { kind: Kind::Literal(in_order(value)), depth: 1 })
    }

    /// The field at this path of the record.
    #[must_use]
    pub fn field(path: Vec<Step>) -> Node {
        Arc::new(Expression { kind: Kind::Field(Source::Record, path), depth: 1 })
    }

    /// The kind of this expression, with its parts.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether the expression reads the row's key.
    #[must_use]
    pub fn reads_key(&self) -> bool {
        matches!(&self.kind, Kind::Field(Source::Key, _))
            || self.kind.parts().iter().any(|part| part.reads_key())
    }

    /// Whether the expression reads the record.
    #[must_use]
    pub fn reads_record(&self) -> bool {
        matches!(&self.kind, Kind::Field(Source::Record, _))
            || self.kind.parts().iter().any(|part| part.reads_record())
    }

    /// Whether the expression is true or false for every row, even where fields are missing.
    #[must_use]
    pub fn is_condition(&self) -> bool {
        match &self.kind {
            Kind::Compare(..)
            | Kind::And(_)
            | Kind::Or(_)
            | Kind::Not(_)
            | Kind::Between(..)
            | Kind::IsIn(..)
            | Kind::Has(..)
            | Kind::Matches(..)
            | Kind::Exists(_)
            | Kind::IsNone(_) => true,
            Kind::Field(..)
            | Kind::Literal(_)
            | Kind::Arithmetic(..)
            | Kind::Negative(_)
            | Kind::Call(..) => false,
        }
    }

    /// Whether the expression may have several values for a row: true with `each()`, unless it is a
    /// condition, which has one truth value.
    #[must_use]
    pub fn branches(&self) -> bool {
        match &self.kind {
            Kind::Field(Source::Record, path) => path.contains(&Step::Each),
            Kind::Arithmetic(_, one, other) => one.branches() || other.branches(),
            Kind::Negative(part) | Kind::Call(_, part) => part.branches(),
            _ => false,
        }
    }

    /// Calls `visit` with each path of the record that the expression reads.
    pub fn for_each_field(&self, visit: &mut impl FnMut(&[Step])) {
        if let Kind::Field(Source::Record, path) = &self.kind {
            visit(path);
        }
        for part in self.kind.parts() {
            part.for_each_field(visit);
        }
    }
}

impl Kind {
    /// The value that the bounds of a `between` leave if they are one value.
    #[must_use]
    pub fn only_value<'a>(least: &'a Node, greatest: &Node) -> Option<&'a Value> {
        match (least.kind(), greatest.kind()) {
            (Kind::Literal(least), Kind::Literal(greatest)) if equal(least, greatest) => Some(least),
            _ => None,
        }
    }

    /// An `and` of these parts.
    #[must_use]
    pub fn all(parts: Vec<Node>) -> Self {
        Kind::And(parts.into())
    }

    /// An `or` of these parts.
    #[must_use]
    pub fn any(parts: Vec<Node>) -> Self {
        Kind::Or(parts.into())
    }

    fn parts_depth(&self) -> u32 {
        match self {
            Kind::And(parts) | Kind::Or(parts) => parts.depth(),
            kind => kind.parts().iter().map(|part| part.depth).max().unwrap_or(0),
        }
    }

    /// Tests whether a part equals one of these values.
    #[must_use]
    pub fn is_in(part: Node, values: Vec<Value>) -> Self {
        Kind::IsIn(part, InList::new(values.into_iter().map(in_order).collect()))
    }

    /// The direct parts of this expression.
    #[must_use]
    pub fn parts(&self) -> Vec<&Node> {
        match self {
            Kind::Field(..) | Kind::Literal(_) => Vec::new(),
            Kind::And(parts) | Kind::Or(parts) => parts.iter().collect(),
            Kind::Compare(_, one, other) | Kind::Arithmetic(_, one, other) | Kind::Has(_, one, other) => {
                vec![one, other]
            }
            Kind::Between(value, least, greatest) => vec![value, least, greatest],
            Kind::Not(part)
            | Kind::Negative(part)
            | Kind::IsIn(part, _)
            | Kind::Matches(part, _)
            | Kind::Exists(part)
            | Kind::IsNone(part)
            | Kind::Call(_, part) => vec![part],
        }
    }
}

fn flattened(parts: &Chain, of: impl Fn(&Kind) -> Option<&Chain>) -> Chain {
    if !parts.iter().any(|part| of(&part.kind).is_some()) {
        return parts.clone();
    }
    let mut flat = Chain::default();
    for part in parts.iter() {
        match of(&part.kind) {
            Some(inner) => flat.append(inner),
            None => flat.push(Arc::clone(part)),
        }
    }
    flat
}

impl Step {
    /// The step to the dict entry with this key. An int is also the index of a list element. None
    /// if the value cannot be a dict key.
    #[must_use]
    pub fn to(key: Value) -> Option<Step> {
        Some(match in_order(key) {
            Value::Str(name) => Step::Field(name.into()),
            Value::Int(index) => Step::Index(index),
            // True equals 1: the same index, and the same key.
            Value::Bool(index) => Step::Index(i64::from(index)),
            key if !is_key(&key) => return None,
            key => Step::Key(encode_value(&key, &mut NoShapes).ok()?.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Node {
        Expression::field(vec![Step::Field(name.into())])
    }

    #[test]
    fn chains_are_flat_and_nests_are_limited() {
        let mut chain = field("a");
        for _ in 0..1000 {
            chain = Expression::new(Kind::all(vec![chain, field("b")])).unwrap();
        }
        assert_eq!((chain.depth, chain.kind.parts().len()), (2, 1001));
        let mut nest = field("a");
        for _ in 1..DEPTH_MAX {
            nest = Expression::new(Kind::Not(nest)).unwrap();
        }
        assert_eq!(Expression::new(Kind::Not(nest)), Err(TooDeep));
    }
}
