//! Parses the text of an expression.
//!
//! ```text
//! expression := expression "or" expression | expression "and" expression | "not" expression | condition | sum
//! condition  := sum ("==" | "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") sum
//!             | sum "between" sum "and" sum
//!             | sum "in" (list | tuple | set | sum)
//!             | sum ("startswith" | "endswith" | "contains") sum
//!             | sum "matches" string; a backslash is left to the pattern, a doubled one is one
//!             | sum "exists" | sum "is" ["not"] "none"
//! sum        := sum ("+" | "-") sum | sum ("*" | "/" | "%") sum | "-" sum | literal | path | call | "(" expression ")"
//! call       := ("length" | "lower" | "upper" | "abs" | "year" | "month" | "day") "(" expression ")"
//! path       := (name | "record" "()" | "key" "()") ("." name | "[" "*" "]" | "[" literal "]")*
//! name       := letters, digits and "_" that begin with no digit | "`" any "`"
//! literal    := number | string | bytes | "true" | "false" | "none" | "nan" | "inf" | word (string | bytes)
//!             | "[" literals "]" | "(" literals ")" | ["set" | "frozenset"] "{" literals "}" | "{" (literal ":" literal)... "}"
//! index      := expression ["asc" | "desc"] ("," expression ["asc" | "desc"])* ["where" expression]
//! ```
//!
//! `index` defines an index. Rules that stand first bind loosest. Conditions do not chain. `not`
//! may also stand before `between in startswith endswith contains matches exists`. Keywords are
//! case-insensitive; `True False None` are literals. For users: `docs/reference/expressions.md`.
//!
//! Chains of `and` and `or` are parsed in a loop; other nesting is limited, so that no text
//! overflows a stack of 256 KB. Recursive functions inline nothing: their joined frames took twice
//! the stack.

use pellucid_record::Value;
use pellucid_record::layout;
use pellucid_record::value::{NoShapes, decode, encode_value};

use super::error::{Fault, ParseError};
use super::node::{
    Comparison, DEPTH_MAX, Expression, Function, Kind, Node, Operation, Part, Source, Step, TooDeep,
};
use super::show::{is_no_field, level};
use super::token::{Token, Tokens};
use super::{constant, literal};
use crate::pattern::Pattern;

/// Maximum nesting of brackets: the deepest expression, the deepest literal in it, one more pair.
const NEST_MAX: u32 = DEPTH_MAX + layout::DEPTH_MAX + 1;

/// Parses an expression.
///
/// # Errors
/// The text is not an expression, contains an invalid regular expression, or nests too deep.
///
/// ```
/// use pellucid_query::expression::parse;
/// let adult = parse("AGE >= 21 and (name.last startswith 'B')").unwrap();
/// assert_eq!(adult.to_string(), "AGE >= 21 and name.last startswith 'B'");
/// assert_eq!(parse("age >= and").unwrap_err().to_string(), "\
/// line 1, column 8: expected a value, found \"and\"; a field of that name is written `and`
///   age >= and
///          ^");
/// ```
pub fn parse(text: &str) -> Result<Node, ParseError> {
    whole(text).map_err(|fault| fault.in_text(text))
}

fn whole(text: &str) -> Result<Node, Fault> {
    let mut tokens = Tokens::new(text);
    let (token, start) = tokens.next()?;
    let mut parser = Parser { text, tokens, token, start, nest: 0 };
    let node = parser.expression(level::OR)?;
    match parser.token {
        Token::End => Ok(node),
        _ => Err(parser.expected("an operator, or the end")),
    }
}

/// The parts of an index, with whether each is descending, and its condition.
pub type IndexParts = (Vec<(Node, bool)>, Option<Node>);

/// Parses the definition of an index.
///
/// # Errors
/// Like `parse`.
pub fn parse_index(text: &str) -> Result<IndexParts, ParseError> {
    whole_index(text).map_err(|fault| fault.in_text(text))
}

fn whole_index(text: &str) -> Result<IndexParts, Fault> {
    let mut tokens = Tokens::new(text);
    let (token, start) = tokens.next()?;
    let mut parser = Parser { text, tokens, token, start, nest: 0 };
    let mut parts = Vec::new();
    loop {
        let node = parser.expression(level::OR)?;
        let is_descending = parser.take_word("desc")?;
        if !is_descending {
            parser.take_word("asc")?;
        }
        parts.push((node, is_descending));
        if !parser.take_sign(",")? {
            break;
        }
    }
    let condition = if parser.take_word("where")? { Some(parser.expression(level::OR)?) } else { None };
    match parser.token {
        Token::End => Ok((parts, condition)),
        _ => Err(parser.expected("an operator, \",\", desc, where, or the end")),
    }
}

/// Operators that may follow an operand.
#[derive(Clone, Copy)]
enum Infix {
    Or,
    And,
    Compare(Comparison),
    Between,
    In,
    Has(Part),
    Matches,
    Exists,
    Is,
    Arithmetic(Operation),
    /// `not` before another operator, as in `not in`.
    Not,
}

impl Infix {
    fn level(self) -> u8 {
        match self {
            Infix::Or => level::OR,
            Infix::And => level::AND,
            Infix::Arithmetic(operation) => operation.level(),
            _ => level::COMPARE,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    /// The current token, and its start.
    token: Token<'a>,
    start: usize,
    nest: u32,
}

impl<'a> Parser<'a> {
    #[inline(never)]
    fn advance(&mut self) -> Result<Token<'a>, Fault> {
        let (token, start) = self.tokens.next()?;
        self.start = start;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    #[inline(never)]
    fn take_word(&mut self, word: &str) -> Result<bool, Fault> {
        let is_there = self.is_word(word);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    #[inline(never)]
    fn take_sign(&mut self, sign: &str) -> Result<bool, Fault> {
        let is_there = matches!(self.token, Token::Sign(found) if found == sign);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    #[inline(never)]
    fn close(&mut self, sign: &str, opened: usize) -> Result<(), Fault> {
        if self.take_sign(sign)? {
            return Ok(());
        }
        let open = self
            .text
            .get(opened..)
            .and_then(|text| text.chars().next())
            .map(String::from)
            .unwrap_or_default();
        let column = self.text.get(..opened).unwrap_or_default();
        let column = column.chars().rev().take_while(|character| *character != '\n').count() + 1;
        Err(self.expected(&format!("{sign:?} for the {open:?} in column {column}, or an operator")))
    }

    /// The error for a token that was not expected here.
    #[cold]
    fn expected(&self, what: &str) -> Fault {
        const SHOWN_MAX: usize = 30;
        let found = self.text.get(self.start..self.tokens.offset()).unwrap_or_default();
        let message = match &self.token {
            Token::End => format!("expected {what}, found the end"),
            Token::Word(word)
                if what != "a value"
                    && let Some(instead) = instead_of(word) =>
            {
                format!("expected {what}, found {word:?}; {instead}")
            }
            Token::Sign("(") if what == "an operator, or the end" => {
                format!(
                    "expected {what}, found \"(\"; there are no methods in a text: tags[*] == 'a', name startswith 'B', lower(name) == 'ann'"
                )
            }
            Token::Word(word) if what == "a value" => {
                format!("expected a value, found {word:?}; a field of that name is written `{word}`")
            }
            _ if found.chars().nth(SHOWN_MAX).is_some() => {
                format!("expected {what}, found {:?}...", found.chars().take(SHOWN_MAX).collect::<String>())
            }
            _ => format!("expected {what}, found {found:?}"),
        };
        Fault::new(self.start, message)
    }

    #[inline(never)]
    fn deeper(&mut self) -> Result<(), Fault> {
        self.nest += 1;
        if self.nest <= NEST_MAX {
            return Ok(());
        }
        Err(Fault::new(self.start, format!("parentheses nest more than {NEST_MAX} deep")))
    }

    /// Parses operators that bind at least this tightly.
    fn expression(&mut self, least: u8) -> Result<Node, Fault> {
        let start = self.start;
        let mut left = self.prefixed(least)?;
        while let Some(infix) = self.infix() {
            let level = infix.level();
            if level < least {
                break;
            }
            let place = self.start;
            left = match infix {
                Infix::Or => self.chain(left, "or", level::AND, Kind::any, start)?,
                Infix::And => self.chain(left, "and", level::NOT, Kind::all, start)?,
                Infix::Arithmetic(operation) => {
                    self.advance()?;
                    let right = self.expression(level + 1)?;
                    made(Kind::Arithmetic(operation, left, right), place)?
                }
                infix => {
                    let condition = self.condition(left, infix, place)?;
                    if let Some(next) = self.infix().filter(|next| next.level() >= level::COMPARE) {
                        return Err(self.no_chain(next));
                    }
                    condition
                }
            };
        }
        Ok(left)
    }

    #[cold]
    fn no_chain(&self, next: Infix) -> Fault {
        let why = if next.level() == level::COMPARE {
            "comparisons do not chain; write `x between 1 and 5`, or `1 < x and x < 5`"
        } else {
            "a condition is no operand of this; put it in parentheses if that is meant"
        };
        Fault::new(self.start, why.to_owned())
    }

    #[inline(never)]
    fn chain(
        &mut self,
        first: Node,
        word: &str,
        least: u8,
        kind: impl Fn(Vec<Node>) -> Kind,
        start: usize,
    ) -> Result<Node, Fault> {
        let mut parts = vec![first];
        while self.take_word(word)? {
            parts.push(self.expression(least)?);
        }
        made(kind(parts), start)
    }

    /// Parses any number of `not` or `-`, and their operand.
    #[inline(never)]
    fn prefixed(&mut self, least: u8) -> Result<Node, Fault> {
        let start = self.start;
        let mut count = 0u32;
        if least <= level::NOT {
            while count <= DEPTH_MAX && self.take_word("not")? {
                count += 1;
            }
            if count > DEPTH_MAX {
                return Err(Fault::new(start, TooDeep.to_string()));
            }
            if count > 0 {
                let mut node = self.expression(level::COMPARE)?;
                for _ in 0..count {
                    node = made(Kind::Not(node), start)?;
                }
                return Ok(node);
            }
        }
        while count <= DEPTH_MAX && self.take_sign("-")? {
            count += 1;
        }
        if count > DEPTH_MAX {
            return Err(Fault::new(start, TooDeep.to_string()));
        }
        let is_number = match &self.token {
            Token::Number(_) => true,
            Token::Word(word) => matches!(literal::of_word(word), Some(Value::Float(_))),
            _ => false,
        };
        let mut node = self.primary()?;
        if count > 0
            && is_number
            && let Kind::Literal(value) = node.kind()
            && let Some(value) = literal::negated(value)
        {
            node = Expression::literal(value);
            count -= 1;
        }
        for _ in 0..count {
            node = made(Kind::Negative(node), start)?;
        }
        Ok(node)
    }

    fn infix(&self) -> Option<Infix> {
        match self.token {
            Token::Sign(sign) => sign_infix(sign),
            Token::Word(word) => word_infix(word),
            _ => None,
        }
    }

    /// Parses a condition after its first operand, `left`. Its operator is next.
    #[inline(never)]
    fn condition(&mut self, left: Node, infix: Infix, place: usize) -> Result<Node, Fault> {
        self.advance()?;
        let kind = match infix {
            Infix::Not => {
                let negated = match self.token {
                    Token::Word(word) => word_infix(word).filter(|infix| {
                        matches!(
                            infix,
                            Infix::Between | Infix::In | Infix::Has(_) | Infix::Matches | Infix::Exists
                        )
                    }),
                    _ => None,
                };
                let Some(infix) = negated else {
                    return Err(self.expected(
                        "in, between, startswith, endswith, contains, matches or exists after not",
                    ));
                };
                let condition = self.condition(left, infix, place)?;
                return made(Kind::Not(condition), place);
            }
            Infix::Compare(comparison) => Kind::Compare(comparison, left, self.expression(level::SUM)?),
            Infix::Between => {
                let least = self.expression(level::SUM)?;
                if !self.take_word("and")? {
                    return Err(self.expected("`and` and the upper bound of between"));
                }
                Kind::Between(left, least, self.expression(level::SUM)?)
            }
            Infix::In => {
                let start = self.start;
                let right = self.expression(level::SUM)?;
                match right.kind() {
                    Kind::Literal(
                        Value::List(values)
                        | Value::Tuple(values)
                        | Value::Set(values)
                        | Value::FrozenSet(values),
                    ) => Kind::is_in(left, values.clone()),
                    Kind::Literal(
                        Value::None | Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_),
                    ) => {
                        return Err(Fault::new(
                            start,
                            "expected several values after in: ['Bath', 'York']".to_owned(),
                        ));
                    }
                    _ => Kind::Has(Part::Anywhere, right, left),
                }
            }
            Infix::Has(part) => self.piece(part, left)?,
            Infix::Matches => self.pattern(left)?,
            Infix::Exists => Kind::Exists(left),
            _ => return self.is_none(left, place),
        };
        made(kind, place)
    }

    #[inline(never)]
    fn is_none(&mut self, left: Node, place: usize) -> Result<Node, Fault> {
        let is_negated = self.take_word("not")?;
        if !self.take_word("none")? && !self.take_word("null")? {
            return Err(self.expected("none or not none; `==` compares"));
        }
        let node = made(Kind::IsNone(left), place)?;
        if is_negated { made(Kind::Not(node), place) } else { Ok(node) }
    }

    #[inline(never)]
    fn piece(&mut self, part: Part, left: Node) -> Result<Kind, Fault> {
        let start = self.start;
        let piece = self.expression(level::SUM)?;
        match piece.kind() {
            Kind::Literal(value) if !part.may_be(value) => Err(Fault::new(
                start,
                format!(
                    "expected a string, or bytes, after {}; nothing else begins or ends a string",
                    part.word()
                ),
            )),
            _ => Ok(Kind::Has(part, left, piece)),
        }
    }

    #[inline(never)]
    fn pattern(&mut self, left: Node) -> Result<Kind, Fault> {
        let start = self.start;
        let Token::Text(Value::Str(pattern)) = &self.token else {
            return Err(self.expected("a string, the regular expression"));
        };
        let pattern = pattern.clone();
        if let Err(why) = Pattern::new(&pattern) {
            return Err(Fault::new(start, format!("this is no regular expression: {why}")));
        }
        self.advance()?;
        Ok(Kind::Matches(left, pattern))
    }

    #[inline(never)]
    fn primary(&mut self) -> Result<Node, Fault> {
        match &self.token {
            Token::Sign("(") => self.group(),
            Token::Quoted(name) => {
                let step = Step::Field(name.as_str().into());
                self.advance()?;
                self.path(Source::Record, vec![step])
            }
            Token::Word(word) if literal::of_word(word).is_none() && !is_no_field(word) => {
                let (word, start) = (*word, self.start);
                self.advance()?;
                match self.token {
                    Token::Sign("(") => self.call(word, start),
                    Token::Text(_) | Token::Sign("{") => {
                        self.typed(word, start).and_then(|value| literal_of(value, start))
                    }
                    // Written as in Python code, where `F` is the record.
                    Token::Sign(".") if word == "F" => Err(Fault::new(
                        start,
                        "a field stands without F in a text: age, name.last; in a field that is called so, `F`.age".to_owned(),
                    )),
                    _ => self.path(Source::Record, vec![Step::Field(word.into())]),
                }
            }
            _ => {
                let start = self.start;
                self.value("a value").and_then(|value| literal_of(value, start))
            }
        }
    }

    /// Parses a group in parentheses: an expression, or the literals of a tuple.
    #[inline(never)]
    fn group(&mut self) -> Result<Node, Fault> {
        let opened = self.start;
        self.deeper()?;
        self.advance()?;
        if self.take_sign(")")? {
            self.nest -= 1;
            return Ok(Expression::literal(Value::Tuple(Vec::new())));
        }
        let start = self.start;
        let node = self.expression(level::OR)?;
        let node = if matches!(self.token, Token::Sign(",")) {
            let Kind::Literal(first) = node.kind() else {
                return Err(Fault::new(
                    start,
                    "expected a literal: a tuple is a value, and has no fields in it".to_owned(),
                ));
            };
            let mut values = vec![first.clone()];
            while self.take_sign(",")? && !matches!(self.token, Token::Sign(")")) {
                values.push(self.value("a literal")?);
            }
            literal_of(Value::Tuple(values), opened)?
        } else {
            node
        };
        self.close(")", opened)?;
        self.nest -= 1;
        Ok(node)
    }

    #[inline(never)]
    fn call(&mut self, word: &str, start: usize) -> Result<Node, Fault> {
        let opened = self.start;
        self.deeper()?;
        self.advance()?;
        for (name, source) in [("key", Source::Key), ("record", Source::Record)] {
            if word.eq_ignore_ascii_case(name) {
                self.close(")", opened)?;
                self.nest -= 1;
                return self.path(source, Vec::new());
            }
        }
        let Some(function) =
            Function::ALL.into_iter().find(|function| word.eq_ignore_ascii_case(function.word()))
        else {
            let known = Function::ALL.map(Function::word).join(", ");
            return Err(Fault::new(
                start,
                format!("no function is called {word:?}; those are {known}, key and record"),
            ));
        };
        let part = self.expression(level::OR)?;
        self.close(")", opened)?;
        self.nest -= 1;
        made(Kind::Call(function, part), start)
    }

    #[inline(never)]
    fn path(&mut self, source: Source, mut path: Vec<Step>) -> Result<Node, Fault> {
        loop {
            let place = self.start;
            let step = if self.take_sign(".")? {
                let step = match &self.token {
                    Token::Word(name) => Step::Field((*name).into()),
                    Token::Quoted(name) => Step::Field(name.as_str().into()),
                    _ => return Err(self.expected("the name of a field")),
                };
                self.advance()?;
                step
            } else if self.take_sign("[")? {
                let step = self.index()?;
                self.close("]", place)?;
                step
            } else {
                return made(Kind::Field(source, path), place);
            };
            if source == Source::Key && !matches!(step, Step::Index(_)) {
                return Err(Fault::new(
                    place,
                    "a row's key has elements, by their index: key()[0]".to_owned(),
                ));
            }
            path.push(step);
        }
    }

    /// Parses the content of brackets after a path.
    #[inline(never)]
    fn index(&mut self) -> Result<Step, Fault> {
        let start = self.start;
        if self.take_sign("*")? {
            return Ok(Step::Each);
        }
        if self.is_word("value") {
            self.advance()?;
            // The key's bytes. They keep what values lose, such as a str that is not a field name.
            if let Token::Text(Value::Str(digits)) = &self.token
                && let Some(record) = literal::hexadecimal(digits)
                && decode(&record, &NoShapes).is_ok()
            {
                self.advance()?;
                return Ok(Step::Key(record.into()));
            }
            return Err(self.expected("the hexadecimal digits, in quotes, that str() of an expression writes after value, for a key without a form of its own"));
        }
        let key = self.value("*, an index or another literal")?;
        Step::to(key).ok_or_else(|| {
            Fault::new(
                start,
                "expected a key that a dict can have: no list, set, dict or bytearray is one".to_owned(),
            )
        })
    }

    /// Parses a literal.
    #[inline(never)]
    fn value(&mut self, what: &str) -> Result<Value, Fault> {
        let start = self.start;
        match &self.token {
            Token::Number(_) | Token::Text(_) => match self.advance()? {
                Token::Number(value) | Token::Text(value) => Ok(value),
                _ => Ok(Value::None),
            },
            Token::Sign("-") => {
                self.advance()?;
                let value = match &self.token {
                    Token::Number(value) => Some(value.clone()),
                    Token::Word(word) => literal::of_word(word),
                    _ => None,
                };
                let value = value
                    .and_then(|value| literal::negated(&value))
                    .ok_or_else(|| self.expected("a number"))?;
                self.advance()?;
                Ok(value)
            }
            Token::Sign("[") => self.values("]").map(Value::List),
            Token::Sign("{") => self.braces(None),
            Token::Sign("(") => match self.group()?.kind() {
                Kind::Literal(value) => Ok(value.clone()),
                _ => Err(Fault::new(start, "expected a literal: there are no fields in a value".to_owned())),
            },
            Token::Word(word) => {
                let word = *word;
                if let Some(value) = literal::of_word(word) {
                    self.advance()?;
                    return Ok(value);
                }
                if is_no_field(word) {
                    return Err(self.expected(what));
                }
                self.advance()?;
                match self.token {
                    Token::Text(_) | Token::Sign("{") => self.typed(word, start),
                    _ => Err(Fault::new(start, format!("expected {what}, found the field {word:?}"))),
                }
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Parses a literal that begins with a keyword. A string, bytes or a brace is next.
    #[inline(never)]
    fn typed(&mut self, word: &str, start: usize) -> Result<Value, Fault> {
        if let Token::Text(text) = &self.token {
            let value = literal::of_typed(word, text).map_err(|why| Fault::new(start, why))?;
            self.advance()?;
            return Ok(value);
        }
        let make = ["set", "frozenset"].into_iter().find(|make| word.eq_ignore_ascii_case(make));
        let Some(make) = make else { return Err(self.expected("an operator, or the end")) };
        self.braces(Some(make))
    }

    /// Parses literals up to `close`. The opening sign is next.
    #[inline(never)]
    fn values(&mut self, close: &str) -> Result<Vec<Value>, Fault> {
        let opened = self.start;
        self.deeper()?;
        self.advance()?;
        let mut values = Vec::new();
        while !matches!(self.token, Token::Sign(sign) if sign == close) {
            values.push(self.value("a literal")?);
            if !self.take_sign(",")? {
                break;
            }
        }
        self.close(close, opened)?;
        self.nest -= 1;
        Ok(values)
    }

    /// Parses a set, a frozenset or a dict. The brace is next.
    #[inline(never)]
    fn braces(&mut self, make: Option<&str>) -> Result<Value, Fault> {
        match make {
            Some("frozenset") => return self.elements().map(Value::FrozenSet),
            Some(_) => return self.elements().map(Value::Set),
            None => {}
        }
        let opened = self.start;
        self.deeper()?;
        self.advance()?;
        let (mut entries, mut elements) = (Vec::new(), Vec::new());
        while !matches!(self.token, Token::Sign("}")) {
            let start = self.start;
            let key = self.value("a literal")?;
            check_key(&key, start)?;
            if self.take_sign(":")? && elements.is_empty() {
                entries.push((key, self.value("a literal")?));
            } else {
                elements.push(key);
            }
            if !entries.is_empty() && !elements.is_empty() {
                return Err(Fault::new(
                    start,
                    "expected a key and its value, `'a': 1`, or elements, not both".to_owned(),
                ));
            }
            if !self.take_sign(",")? {
                break;
            }
        }
        self.close("}", opened)?;
        self.nest -= 1;
        if !elements.is_empty() {
            return Ok(Value::Set(elements));
        }
        let mut seen = std::collections::HashSet::new();
        if entries.iter().all(|(key, _)| seen.insert(constant::canonical(key))) {
            return Ok(Value::Dict(entries));
        }
        Err(Fault::new(opened, "a key stands twice in this dict; 1, 1.0 and true are one key".to_owned()))
    }

    fn elements(&mut self) -> Result<Vec<Value>, Fault> {
        let start = self.start;
        let elements = self.values("}")?;
        elements.iter().try_for_each(|element| check_key(element, start))?;
        Ok(elements)
    }
}

#[inline(never)]
fn made(kind: Kind, start: usize) -> Result<Node, Fault> {
    Expression::new(kind).map_err(|error| Fault::new(start, error.to_string()))
}

/// Makes a literal, if a record can hold the value.
#[inline(never)]
fn literal_of(value: Value, start: usize) -> Result<Node, Fault> {
    let is_container = matches!(
        value,
        Value::List(_) | Value::Tuple(_) | Value::Set(_) | Value::FrozenSet(_) | Value::Dict(_)
    );
    match if is_container { encode_value(&value, &mut NoShapes).err() } else { None } {
        Some(error) => Err(Fault::new(start, format!("no record can hold this value: {error}"))),
        None => Ok(Expression::literal(value)),
    }
}

fn check_key(value: &Value, start: usize) -> Result<(), Fault> {
    if constant::is_key(value) {
        return Ok(());
    }
    Err(Fault::new(
        start,
        "no list, set, dict or bytearray is an element of a set or a key of a dict".to_owned(),
    ))
}

/// What to write instead of a word of another language.
fn instead_of(word: &str) -> Option<&'static str> {
    Some(match &*word.to_ascii_lowercase() {
        "like" | "ilike" | "glob" => {
            "write startswith, endswith, contains, or matches '^B.*n$', with (?i) for either case"
        }
        "regexp" | "rlike" | "similar" => "write matches '^B.*n$'",
        "isin" => "write in ['a', 'b']",
        "starts" | "begins" => "write startswith",
        "ends" => "write endswith",
        "has" | "includes" => "write contains",
        "equals" | "eq" => "write ==",
        "order" | "limit" | "group" | "select" | "from" | "where" => {
            "a text is a condition alone; order_by(), limit(), group_by() and select() are methods of a query"
        }
        _ => return None,
    })
}

fn sign_infix(sign: &str) -> Option<Infix> {
    Some(match sign {
        "==" | "=" => Infix::Compare(Comparison::Equal),
        "!=" | "<>" => Infix::Compare(Comparison::NotEqual),
        "<" => Infix::Compare(Comparison::Less),
        "<=" => Infix::Compare(Comparison::LessOrEqual),
        ">" => Infix::Compare(Comparison::Greater),
        ">=" => Infix::Compare(Comparison::GreaterOrEqual),
        "+" => Infix::Arithmetic(Operation::Add),
        "-" => Infix::Arithmetic(Operation::Subtract),
        "*" => Infix::Arithmetic(Operation::Multiply),
        "/" => Infix::Arithmetic(Operation::Divide),
        "%" => Infix::Arithmetic(Operation::Remainder),
        _ => return None,
    })
}

fn word_infix(word: &str) -> Option<Infix> {
    let infix = |word: &str| {
        Some(match word {
            "or" => Infix::Or,
            "and" => Infix::And,
            "between" => Infix::Between,
            "in" => Infix::In,
            "startswith" => Infix::Has(Part::Start),
            "endswith" => Infix::Has(Part::End),
            "contains" => Infix::Has(Part::Anywhere),
            "matches" => Infix::Matches,
            "exists" => Infix::Exists,
            "is" => Infix::Is,
            "not" => Infix::Not,
            _ => return None,
        })
    };
    infix(&word.to_ascii_lowercase())
}
