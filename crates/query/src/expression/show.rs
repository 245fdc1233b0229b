//! Writes the canonical text of an expression.
//!
//! `parse` makes the same expression from it. Keywords are in lower case, parentheses stand only
//! where they change the meaning, and literals are written by `literal.rs`.

use std::fmt;
use std::ops::{Deref, DerefMut};

use pellucid_record::Value;
use pellucid_record::value::{NoShapes, decode};

use super::chain::Chain;
use super::literal;
use super::node::{Comparison, Expression, Function, Kind, Operation, Part, Source, Step};
use super::token::{is_name_part, is_name_start};

/// Words that cannot begin an expression as a field's name, unless they are in backticks.
const NOT_FIELDS: &str =
    "and or not in is between startswith endswith contains matches exists true false none null nan inf";

/// Whether a word cannot begin an expression as a field's name.
pub fn is_no_field(word: &str) -> bool {
    NOT_FIELDS.split(' ').any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// How tightly each form binds. An operand must bind at least as tightly as its place requires;
/// otherwise it gets parentheses.
pub mod level {
    pub const OR: u8 = 1;
    pub const AND: u8 = 2;
    pub const NOT: u8 = 3;
    pub const COMPARE: u8 = 4;
    pub const SUM: u8 = 5;
    pub const PRODUCT: u8 = 6;
    pub const SIGN: u8 = 7;
    pub const PRIMARY: u8 = 8;
}

/// A text that is being written.
struct Text {
    text: String,
    /// Maximum number of values of a list that are written.
    value_count_max: usize,
}

impl Text {
    fn of(expression: &Expression, value_count_max: usize) -> String {
        let mut out = Self { text: String::new(), value_count_max };
        push(expression, level::OR, &mut out);
        out.text
    }
}

impl Deref for Text {
    type Target = String;

    fn deref(&self) -> &String {
        &self.text
    }
}

impl DerefMut for Text {
    fn deref_mut(&mut self) -> &mut String {
        &mut self.text
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Text::of(self, usize::MAX))
    }
}

impl Expression {
    /// A shortened text for people: the first values of long lists and the first characters of long
    /// texts, with the number of those left out.
    #[must_use]
    pub fn brief(&self) -> String {
        const VALUE_COUNT_MAX: usize = 20;
        const SHOWN_MAX: usize = 1000;
        let text = Text::of(self, VALUE_COUNT_MAX);
        match text.char_indices().nth(SHOWN_MAX).and_then(|(end, _)| text.split_at_checked(end)) {
            Some((begin, rest)) => format!("{begin}... ({} characters more)", rest.chars().count()),
            None => text,
        }
    }
}

impl Comparison {
    /// The operator as it is written.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

impl Operation {
    /// The operator as it is written.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
            Operation::Remainder => "%",
        }
    }

    pub(super) fn level(self) -> u8 {
        if matches!(self, Operation::Add | Operation::Subtract) { level::SUM } else { level::PRODUCT }
    }
}

impl Part {
    /// Whether a value can be found at this place of another: only text has a start and an end.
    #[must_use]
    pub fn may_be(self, value: &Value) -> bool {
        self == Part::Anywhere
            || matches!(value, Value::Str(_) | Value::Surrogates(_) | Value::Bytes(_) | Value::Bytearray(_))
    }

    /// The keyword.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Start => "startswith",
            Part::End => "endswith",
            Part::Anywhere => "contains",
        }
    }
}

impl Function {
    /// All functions.
    pub const ALL: [Function; 7] = [
        Function::Length,
        Function::Lower,
        Function::Upper,
        Function::Abs,
        Function::Year,
        Function::Month,
        Function::Day,
    ];

    /// The function's name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Function::Length => "length",
            Function::Lower => "lower",
            Function::Upper => "upper",
            Function::Abs => "abs",
            Function::Year => "year",
            Function::Month => "month",
            Function::Day => "day",
        }
    }
}

fn level_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Or(_) => level::OR,
        Kind::And(_) => level::AND,
        Kind::Not(part) if !has_own_negation(part.kind()) => level::NOT,
        Kind::Not(_)
        | Kind::Compare(..)
        | Kind::Between(..)
        | Kind::IsIn(..)
        | Kind::Has(..)
        | Kind::Matches(..)
        | Kind::Exists(_)
        | Kind::IsNone(_) => level::COMPARE,
        Kind::Arithmetic(operation, ..) => operation.level(),
        Kind::Negative(_) => level::SIGN,
        Kind::Field(..) | Kind::Literal(_) | Kind::Call(..) => level::PRIMARY,
    }
}

/// Whether the negation has its own form: `not in` and `is not none`.
fn has_own_negation(kind: &Kind) -> bool {
    matches!(kind, Kind::IsIn(..) | Kind::IsNone(_))
}

/// Appends an expression, in parentheses if it binds less tightly than `least`.
fn push(expression: &Expression, least: u8, out: &mut Text) {
    if level_of(expression.kind()) >= least {
        return push_kind(expression.kind(), out);
    }
    out.push('(');
    push_kind(expression.kind(), out);
    out.push(')');
}

fn push_kind(kind: &Kind, out: &mut Text) {
    match kind {
        Kind::Field(source, path) => push_path(*source, path, out),
        Kind::Literal(value) => literal::push(value, out),
        Kind::Compare(comparison, one, other) => push_two(one, comparison.sign(), other, out),
        Kind::Has(part, whole, piece) => push_two(whole, part.word(), piece, out),
        Kind::Or(parts) => push_chain(parts, " or ", level::AND, out),
        Kind::And(parts) => push_chain(parts, " and ", level::NOT, out),
        Kind::Not(part) => match part.kind() {
            Kind::IsIn(part, values) => push_is_in(part, " not in [", values, out),
            Kind::IsNone(part) => push_behind(part, " is not none", out),
            _ => {
                out.push_str("not ");
                push(part, level::NOT, out);
            }
        },
        Kind::Arithmetic(operation, one, other) => {
            push(one, operation.level(), out);
            out.extend([" ", operation.sign(), " "]);
            push(other, operation.level() + 1, out);
        }
        Kind::Negative(part) => {
            out.push('-');
            let joins = matches!(part.kind(), Kind::Literal(value) if literal::takes_sign(value));
            push(part, if joins { u8::MAX } else { level::SIGN }, out);
        }
        Kind::Between(value, least, greatest) => {
            push_two(value, "between", least, out);
            out.push_str(" and ");
            push(greatest, level::SUM, out);
        }
        Kind::IsIn(part, values) => push_is_in(part, " in [", values, out),
        Kind::Matches(part, pattern) => {
            push_behind(part, " matches ", out);
            literal::push_text(pattern.as_bytes(), '\'', out);
        }
        Kind::Exists(part) => push_behind(part, " exists", out),
        Kind::IsNone(part) => push_behind(part, " is none", out),
        Kind::Call(function, part) => {
            out.push_str(function.word());
            out.push('(');
            push(part, level::OR, out);
            out.push(')');
        }
    }
}

fn push_two(one: &Expression, word: &str, other: &Expression, out: &mut Text) {
    push(one, level::SUM, out);
    out.extend([" ", word, " "]);
    push(other, level::SUM, out);
}

fn push_behind(part: &Expression, words: &str, out: &mut Text) {
    push(part, level::SUM, out);
    out.push_str(words);
}

fn push_chain(parts: &Chain, word: &str, least: u8, out: &mut Text) {
    for (index, part) in parts.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { word });
        push(part, least, out);
    }
}

fn push_is_in(part: &Expression, words: &str, values: &[Value], out: &mut Text) {
    push_behind(part, words, out);
    for (index, value) in values.iter().take(out.value_count_max).enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        literal::push(value, out);
    }
    if let Some(rest @ 1..) = values.len().checked_sub(out.value_count_max) {
        out.extend([", ... and ", &rest.to_string(), " more"]);
    }
    out.push(']');
}

fn push_path(source: Source, path: &[Step], out: &mut Text) {
    let rest = match (source, path) {
        (Source::Record, [Step::Field(name), rest @ ..]) => {
            // `F.age` would be taken for Python code.
            let is_python = **name == *"F" && matches!(rest, [Step::Field(_), ..]);
            let is_reserved = is_python || is_no_field(name);
            push_name(name, !is_reserved, out);
            rest
        }
        (Source::Record, path) => {
            out.push_str("record()");
            path
        }
        (Source::Key, path) => {
            out.push_str("key()");
            path
        }
    };
    for step in rest {
        match step {
            Step::Field(name) => {
                out.push('.');
                push_name(name, true, out);
            }
            Step::Index(index) => out.extend(["[", &index.to_string(), "]"]),
            Step::Each => out.push_str("[*]"),
            Step::Key(key) => push_key(key, out),
        }
    }
}

fn push_key(record: &[u8], out: &mut Text) {
    out.push('[');
    let value = decode(record, &NoShapes).ok();
    match value.filter(|value| matches!(Step::to(value.clone()), Some(Step::Key(key)) if *key == *record)) {
        Some(value) => literal::push(&value, out),
        None => literal::push_record(record, out),
    }
    out.push(']');
}

fn push_name(name: &str, may_be_plain: bool, out: &mut Text) {
    if may_be_plain && is_plain_name(name) {
        out.push_str(name);
    } else {
        literal::push_text(name.as_bytes(), '`', out);
    }
}

/// Whether a name can be written without backticks.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(is_name_part)
}
