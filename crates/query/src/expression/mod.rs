//! What does a condition say about a record, or a computed value make of it?
//!
//! An [`Expression`] is a value: it is compared, shown and stored, and knows nothing of how it is evaluated. Its one text is the
//! language of `parse.rs`, in which `show.rs` shows it, so that each expression can be written down and read again.

mod chain;
mod error;
mod literal;
mod moment;
mod parse;
mod show;
mod token;

use std::fmt;
use std::sync::Arc;

use pellucid_record::keyed::CanonicalKey;
use pellucid_record::value::{NoShapes, encode_value};
use pellucid_record::{Container, Value};

use crate::fault::Fault;
use crate::stoppable::{Many, Pace};

pub use crate::in_list::InList;
pub use chain::Chain;
pub use error::ParseError;
pub use parse::{IndexParts, parse, parse_index};
pub use show::{NOT_FIELDS, is_plain_name};

/// How deep expressions nest, and how many steps a path has. Chains of `and` and `or` are one level, however long.
pub const DEPTH_MAX: u32 = 200;

/// An expression that others share.
pub type Node = Arc<Expression>;

/// A condition or a computed value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    kind: Kind,
    depth: u32,
}

/// What an expression does.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What stands at a path of the record, or of the row's key.
    Field(Source, Vec<Step>),
    /// The value itself.
    Literal(Value),
    /// Whether two values compare so. Values of unlike types do not compare at all: false, and `NotEqual` true.
    Compare(Comparison, Node, Node),
    /// Whether all are true. At least two.
    And(Chain),
    /// Whether any is true. At least two.
    Or(Chain),
    /// Whether it is not true.
    Not(Node),
    /// A number made of two.
    Arithmetic(Operation, Node, Node),
    /// The number with the other sign.
    Negative(Node),
    /// Whether the first lies between the second and the third, or is one of them.
    Between(Node, Node, Node),
    /// Whether it equals any of these.
    IsIn(Node, InList),
    /// Whether the first begins with, ends with or contains the second.
    Has(Part, Node, Node),
    /// Whether a regular expression is found in it.
    Matches(Node, String),
    /// Whether there is something there; None is something.
    Exists(Node),
    /// Whether None stands there.
    IsNone(Node),
    /// A value made of one.
    Call(Function, Node),
}

/// What a path starts from.
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
    /// The field of this name.
    Field(Box<str>),
    /// The element at this index, from the end if negative; in a dict, the entry of this int key.
    Index(i64),
    /// The entry of any other key, as a record of its own without shapes.
    Key(Box<[u8]>),
    /// Each element of a list, tuple or set: a condition is true if it is for any of them.
    Each,
}

/// How two values are compared.
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

/// What is made of two numbers.
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

/// Where one value is looked for in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// At the begin of a string or of bytes.
    Start,
    /// At the end.
    End,
    /// Anywhere in a string or bytes; among the elements of a list, tuple or set; among the keys of a dict.
    Anywhere,
}

/// What is made of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Characters of a string, bytes of bytes, elements or entries of a container.
    Length,
    /// The string in lower case.
    Lower,
    /// The string in upper case.
    Upper,
    /// The number without its sign.
    Abs,
    /// The year of a date or datetime.
    Year,
    /// The month, 1 to 12.
    Month,
    /// The day of the month.
    Day,
}

/// An expression nests too deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the expression nests more than {DEPTH_MAX} deep; split it into several conditions")
    }
}

impl std::error::Error for TooDeep {}

impl Expression {
    /// The expression of this kind. `and` within `and`, and `or` within `or`, become one.
    ///
    /// # Errors
    /// It nests deeper than `DEPTH_MAX`, or its path is longer.
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

    /// The value itself.
    #[must_use]
    pub fn literal(value: Value) -> Node {
        Arc::new(Expression { kind: Kind::Literal(in_order(value)), depth: 1 })
    }

    /// The field at this path of the record.
    #[must_use]
    pub fn field(path: Vec<Step>) -> Node {
        Arc::new(Expression { kind: Kind::Field(Source::Record, path), depth: 1 })
    }

    /// What it does.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it reads the row's key.
    #[must_use]
    pub fn reads_key(&self) -> bool {
        matches!(&self.kind, Kind::Field(Source::Key, _))
            || self.kind.parts().iter().any(|part| part.reads_key())
    }

    /// Whether it reads the record.
    #[must_use]
    pub fn reads_record(&self) -> bool {
        matches!(&self.kind, Kind::Field(Source::Record, _))
            || self.kind.parts().iter().any(|part| part.reads_record())
    }

    /// Whether it is true or false in every row, whatever is missing there.
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

    /// Whether it may have many values in a row: with `each()`, and no condition, which is one truth.
    #[must_use]
    pub fn branches(&self) -> bool {
        match &self.kind {
            Kind::Field(Source::Record, path) => path.contains(&Step::Each),
            Kind::Arithmetic(_, one, other) => one.branches() || other.branches(),
            Kind::Negative(part) | Kind::Call(_, part) => part.branches(),
            _ => false,
        }
    }

    /// Shows each path that it reads of the record to `visit`.
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
    /// All of these.
    #[must_use]
    pub fn all(parts: Vec<Node>) -> Self {
        Kind::And(parts.into())
    }

    /// Any of these.
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

    /// Whether a part equals any of these values.
    #[must_use]
    pub fn is_in(part: Node, values: Vec<Value>) -> Self {
        Kind::IsIn(part, InList::new(values.into_iter().map(in_order).collect()))
    }

    /// The expressions of which it is made.
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
    /// The step to the entry of this key of a dict, which for an int is also the index of a list; None where no dict has such keys.
    #[must_use]
    pub fn to(key: Value) -> Option<Step> {
        Some(match in_order(key) {
            Value::Str(name) => Step::Field(name.into()),
            Value::Int(index) => Step::Index(index),
            // True is 1: an index, and the same key.
            Value::Bool(index) => Step::Index(i64::from(index)),
            key if !is_key(&key) => return None,
            key => Step::Key(encode_value(&key, &mut NoShapes).ok()?.into()),
        })
    }
}

/// Whether a dict may have this as a key: nothing in it can change.
fn is_key(value: &Value) -> bool {
    match value {
        Value::List(_) | Value::Set(_) | Value::Dict(_) | Value::Bytearray(_) => false,
        Value::Tuple(elements) | Value::FrozenSet(elements) => elements.iter().all(is_key),
        _ => true,
    }
}

/// Values for `IsIn`, which may be millions.
///
/// # Errors
/// A stop.
pub fn many(mut values: Many<Value>, pace: &mut Pace<impl Fn() -> bool>) -> Result<InList, Fault> {
    for value in values.iter_mut() {
        put_in_order(value);
        pace.step()?;
    }
    InList::new_while(values, pace)
}

/// The value with the elements of its sets once each and in one order, so that equal sets are equal literals.
fn in_order(mut value: Value) -> Value {
    put_in_order(&mut value);
    value
}

fn put_in_order(value: &mut Value) {
    match value {
        Value::List(elements) | Value::Tuple(elements) => elements.iter_mut().for_each(put_in_order),
        Value::Dict(entries) => entries.iter_mut().for_each(|(key, value)| {
            put_in_order(key);
            put_in_order(value);
        }),
        Value::Registered(_, value) => put_in_order(value),
        Value::Set(elements) | Value::FrozenSet(elements) => {
            elements.iter_mut().for_each(put_in_order);
            let mut seen = std::collections::HashSet::new();
            elements.retain(|element| seen.insert(canonical(element)));
            elements.sort_by_cached_key(|element| encode_value(element, &mut NoShapes).unwrap_or_default());
        }
        _ => {}
    }
}

/// Bytes that are the same for all that a set, or a dict, takes for one; none for what no record can hold.
fn canonical(value: &Value) -> Vec<u8> {
    let bytes = || {
        let list = encode_value(&Value::Tuple(vec![value.clone()]), &mut NoShapes).ok()?;
        let slot = Container::root(&list, &NoShapes).ok()?.slot(&list, &NoShapes, 0).ok()?;
        CanonicalKey::new().of(&list, &NoShapes, &slot).ok().map(<[u8]>::to_vec)
    };
    bytes().unwrap_or_default()
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
