//! Show an expression as Python code.
//!
//! Evaluating the text of `repr` makes the same expression, where `F`, `KEY` and `pellucid` are
//! ours, and `datetime`, `Decimal`, `UUID` and `zoneinfo` are what Python's own `repr` means. An
//! expression that cannot be written so is shown as a call of `pellucid.parse`.

use pellucid_query::expression::{Chain, Comparison, Expression, Kind, Node, Operation, Source, Step};
use pellucid_record::Value;
use pellucid_record::value::{NoShapes, decode};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::expression::operand::{is_no_term, literal_of};
use crate::values::bytes;

/// The precedence of Python's operators: comparisons bind loosest.
mod level {
    pub const COMPARE: u8 = 1;
    pub const OR: u8 = 2;
    pub const AND: u8 = 3;
    pub const SUM: u8 = 4;
    pub const PRODUCT: u8 = 5;
    pub const SIGN: u8 = 6;
    pub const PRIMARY: u8 = 7;
}

/// Ints with more bytes have more digits than Python parses.
const DECIMAL_BYTES_MAX: usize = 1700;

/// The expression as Python code.
pub fn of(py: Python<'_>, node: &Node) -> PyResult<String> {
    let mut shower =
        Shower { py, is_keyword: py.import("keyword")?.getattr("iskeyword")?, out: String::new() };
    shower.push(node, level::COMPARE)?;
    Ok(shower.out)
}

/// The same as the operand of an attribute access: in parentheses if it needs them.
pub fn operand(py: Python<'_>, node: &Node) -> String {
    let text = of(py, node).unwrap_or_else(|_| node.to_string());
    if level_of(node.kind()) == level::PRIMARY { text } else { format!("({text})") }
}

/// The path, or an example of one, for messages.
pub fn short(node: &Node) -> String {
    match node.kind() {
        Kind::Field(Source::Record, path) if !path.is_empty() => format!("F.{node}"),
        _ => "F.tags".to_owned(),
    }
}

struct Shower<'py> {
    py: Python<'py>,
    is_keyword: Bound<'py, PyAny>,
    out: String,
}

fn level_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Compare(..) => level::COMPARE,
        Kind::Or(_) => level::OR,
        Kind::And(_) => level::AND,
        Kind::Arithmetic(operation, ..) => level_of_operation(*operation),
        Kind::Not(_) | Kind::Negative(_) => level::SIGN,
        _ => level::PRIMARY,
    }
}

fn level_of_operation(operation: Operation) -> u8 {
    if matches!(operation, Operation::Add | Operation::Subtract) { level::SUM } else { level::PRODUCT }
}

impl Shower<'_> {
    /// Appends a node so that Python evaluates it to an `Expression`.
    fn push(&mut self, node: &Node, least: u8) -> PyResult<()> {
        if level_of(node.kind()) >= least {
            return self.push_kind(node);
        }
        self.out.push('(');
        self.push_kind(node)?;
        self.out.push(')');
        Ok(())
    }

    /// Appends a node that stands beside an `Expression`, where a literal is a plain value.
    fn push_beside(&mut self, node: &Node, least: u8) -> PyResult<()> {
        match node.kind() {
            Kind::Literal(value) => self.push_value(value),
            _ => self.push(node, least),
        }
    }

    fn push_kind(&mut self, node: &Node) -> PyResult<()> {
        match node.kind() {
            Kind::Field(source, path) => self.push_path(node, *source, path),
            Kind::Literal(_) => self.push_parsed(node),
            Kind::Compare(comparison, one, other) => self.push_comparison(*comparison, one, other),
            Kind::And(parts) => self.push_chain(parts, " & ", level::SUM),
            Kind::Or(parts) => self.push_chain(parts, " | ", level::AND),
            Kind::Not(part) => self.push_signed('~', part),
            Kind::Negative(part) => self.push_signed('-', part),
            Kind::Arithmetic(operation, one, other) => self.push_arithmetic(*operation, one, other),
            Kind::Between(value, least, greatest) => self.push_call(value, "between", |out| {
                out.push_beside(least, level::COMPARE)?;
                out.out.push_str(", ");
                out.push_beside(greatest, level::COMPARE)
            }),
            Kind::IsIn(part, values) => self.push_call(part, "isin", |out| {
                out.push_all("[", values, "]", |out, value| out.push_value(value).map(|()| true)).map(|_| ())
            }),
            Kind::Has(part, whole, piece) => {
                self.push_call(whole, part.word(), |out| out.push_beside(piece, level::COMPARE))
            }
            Kind::Matches(part, pattern) => self.push_call(part, "matches", |out| out.push_text(pattern)),
            Kind::Exists(part) => self.push_call(part, "exists", |_| Ok(())),
            Kind::IsNone(part) => self.push_call(part, "is_none", |_| Ok(())),
            Kind::Call(function, part) => self.push_call(part, function.word(), |_| Ok(())),
        }
    }

    /// Appends the call of a method, whose arguments `push_arguments` appends.
    fn push_call(
        &mut self,
        part: &Node,
        name: &str,
        push_arguments: impl FnOnce(&mut Self) -> PyResult<()>,
    ) -> PyResult<()> {
        self.push(part, level::PRIMARY)?;
        self.out.extend([".", name, "("]);
        push_arguments(self)?;
        self.out.push(')');
        Ok(())
    }

    fn push_signed(&mut self, sign: char, part: &Node) -> PyResult<()> {
        self.out.push(sign);
        self.push(part, level::SIGN)
    }

    fn push_chain(&mut self, parts: &Chain, sign: &str, least: u8) -> PyResult<()> {
        for (index, part) in parts.iter().enumerate() {
            self.out.push_str(if index == 0 { "" } else { sign });
            self.push(part, least)?;
        }
        Ok(())
    }

    fn push_comparison(&mut self, comparison: Comparison, one: &Node, other: &Node) -> PyResult<()> {
        self.push(one, level::OR)?;
        self.out.extend([" ", comparison.sign(), " "]);
        // `Expression.compare` refuses a condition beside a plain value, as a comparison without
        // parentheses.
        let is_condition = matches!(one.kind(), Kind::And(_) | Kind::Or(_) | Kind::Not(_));
        if is_condition && !matches!(other.kind(), Kind::Literal(Value::Bool(_))) {
            self.push(other, level::OR)
        } else {
            self.push_beside(other, level::OR)
        }
    }

    fn push_arithmetic(&mut self, operation: Operation, one: &Node, other: &Node) -> PyResult<()> {
        let own = level_of_operation(operation);
        // A Python string would format the operand after its `%`.
        let formats = operation == Operation::Remainder
            && matches!(
                one.kind(),
                Kind::Literal(Value::Str(_) | Value::Surrogates(_) | Value::Bytes(_) | Value::Bytearray(_))
            );
        // Python refuses such a literal beside an expression, but `pellucid.parse` reads it.
        let is_refused = |node: &Node| matches!(node.kind(), Kind::Literal(value) if is_no_term(value));
        if formats || matches!(other.kind(), Kind::Literal(_)) || is_refused(one) {
            self.push(one, own)?;
        } else {
            self.push_beside(one, own)?;
        }
        self.out.extend([" ", operation.sign(), " "]);
        if is_refused(other) { self.push(other, own + 1) } else { self.push_beside(other, own + 1) }
    }

    fn push_parsed(&mut self, node: &Node) -> PyResult<()> {
        self.out.push_str("pellucid.parse(");
        self.push_text(&node.to_string())?;
        self.out.push(')');
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> PyResult<()> {
        self.out.push_str(PyString::new(self.py, text).repr()?.to_str()?);
        Ok(())
    }

    fn push_path(&mut self, node: &Node, source: Source, path: &[Step]) -> PyResult<()> {
        let start = self.out.len();
        self.out.push_str(if source == Source::Record { "F" } else { "KEY" });
        for step in path {
            let key = match step {
                Step::Each => {
                    self.out.push_str(".each()");
                    continue;
                }
                Step::Field(name) if self.is_attribute(name)? => {
                    self.out.extend([".", name]);
                    continue;
                }
                Step::Field(name) => Some(Value::Str(name.to_string())),
                Step::Index(index) => Some(Value::Int(*index)),
                Step::Key(key) => decode(key, &NoShapes).ok(),
            };
            let Some(key) = key.filter(|key| Step::to(key.clone()).as_ref() == Some(step)) else {
                self.out.truncate(start);
                return self.push_parsed(node);
            };
            self.out.push('[');
            self.push_value(&key)?;
            self.out.push(']');
        }
        Ok(())
    }

    /// Whether `.name` leads to the field of this name.
    fn is_attribute(&self, name: &str) -> PyResult<bool> {
        // ASCII only, since Python normalizes some other characters in names.
        let is_name = name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
            && name.chars().all(|character| character == '_' || character.is_ascii_alphanumeric());
        let is_special = name.starts_with("__") && name.ends_with("__");
        if !is_name || is_special {
            return Ok(false);
        }
        Ok(!self.is_keyword.call1((name,))?.is_truthy()?)
    }

    fn push_value(&mut self, value: &Value) -> PyResult<()> {
        let start = self.out.len();
        if self.try_push_value(value)? {
            return Ok(());
        }
        self.out.truncate(start);
        self.push_parsed(&Expression::literal(value.clone()))
    }

    /// Appends a value as Python shows it; false if that would not make the same value.
    fn try_push_value(&mut self, value: &Value) -> PyResult<bool> {
        match value {
            Value::Float(number) if !number.0.is_finite() => {
                self.out.extend(["float('", &number.0.to_string().to_lowercase(), "')"]);
                return Ok(number.0.to_bits() == f64::NAN.to_bits() || !number.0.is_nan());
            }
            Value::BigInt(bytes) if bytes.len() > DECIMAL_BYTES_MAX => return Ok(false),
            Value::List(elements) => return self.push_all("[", elements, "]", Self::try_push_value),
            Value::Tuple(elements) => {
                let close = if elements.len() == 1 { ",)" } else { ")" };
                return self.push_all("(", elements, close, Self::try_push_value);
            }
            Value::Set(elements) if elements.is_empty() => self.out.push_str("set()"),
            Value::Set(elements) => return self.push_all("{", elements, "}", Self::try_push_value),
            Value::FrozenSet(elements) => {
                return self.push_all("frozenset([", elements, "])", Self::try_push_value);
            }
            Value::Dict(entries) => {
                return self.push_all("{", entries, "}", |out, (key, value)| {
                    let is_key = out.try_push_value(key)?;
                    out.out.push_str(": ");
                    Ok(is_key && out.try_push_value(value)?)
                });
            }
            Value::Complex(..)
            | Value::Ndarray { .. }
            | Value::Registered(..)
            | Value::Pickle(_)
            | Value::Overflow(_) => {
                return Ok(false);
            }
            value => return self.try_push_scalar(value),
        }
        Ok(true)
    }

    fn try_push_scalar(&mut self, value: &Value) -> PyResult<bool> {
        let Ok(object) = bytes::object_of(self.py, value) else { return Ok(false) };
        // A zone may have other offsets by now, or another name.
        let is_same = literal_of(&object).is_ok_and(|same| same == *value);
        self.out.push_str(object.repr()?.to_str()?);
        Ok(is_same)
    }

    /// Appends a list. Ends, and returns false, when `push` does.
    fn push_all<T>(
        &mut self,
        open: &str,
        values: &[T],
        close: &str,
        mut push: impl FnMut(&mut Self, &T) -> PyResult<bool>,
    ) -> PyResult<bool> {
        self.out.push_str(open);
        for (index, value) in values.iter().enumerate() {
            self.out.push_str(if index == 0 { "" } else { ", " });
            if !push(self, value)? {
                return Ok(false);
            }
        }
        self.out.push_str(close);
        Ok(true)
    }
}
