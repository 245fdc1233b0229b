//! Splits the text of an expression into tokens.
//!
//! The parser tells names from keywords, because most keywords are reserved only where a name
//! cannot stand.

use num_bigint::BigInt;
use pellucid_record::Value;
use pellucid_record::value::Double;

use super::error::Fault;
use super::literal::of_int;

/// Maximum number of digits of a decimal int, because the time to read and show one grows with the
/// square of the digits. Hexadecimal ints have no limit.
pub const DIGITS_MAX: usize = 4300;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// A name between backticks.
    Quoted(String),
    /// A number without a sign.
    Number(Value),
    /// A string or bytes.
    Text(Value),
    /// An operator, bracket or separator.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// Operators and brackets. Those of two characters come first, because the first match is taken.
const SIGNS: [&str; 21] = [
    "==", "!=", "<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}", ",",
    ":",
];

/// Operators of other languages, with what to write instead. Longer ones come first.
const FOREIGN: [(&str, &str); 9] = [
    ("===", "expected an operator; `==` compares, also types"),
    ("!==", "expected an operator; `!=` compares, also types"),
    ("=>", "expected an operator; greater or equal is `>=`"),
    ("=<", "expected an operator; less or equal is `<=`"),
    ("=~", "expected an operator; a regular expression is found by `matches`"),
    ("!~", "expected an operator; a regular expression is not found by `not matches`"),
    ("**", "expected an operator; there is no power, `x * x` is a square"),
    ("//", "expected an operator; there is no `//`, `(a - a % b) / b` is the same for ints, as a float"),
    (":=", "expected an operator; `==` compares"),
];

/// Reads one token after another.
#[derive(Debug)]
pub struct Tokens<'a> {
    text: &'a str,
    offset: usize,
    /// Whether the last token was `matches`, so that a string is a pattern.
    is_pattern: bool,
}

/// What a backslash means in a quoted literal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    /// It begins an escape of Python's strings.
    Escape,
    /// Nothing, in `r'...'`.
    Itself,
    /// It begins an escape of regular expressions, which is left to them.
    Pattern,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, offset: 0, is_pattern: false }
    }

    /// The offset where the last token ends.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    /// The next token, and the offset where it begins.
    #[inline(never)]
    pub fn next(&mut self) -> Result<(Token<'a>, usize), Fault> {
        self.offset = self.text.len() - self.rest().trim_start().len();
        let (rest, start) = (self.rest(), self.offset);
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return Ok((Token::End, start)) };
        let second = characters.next();
        let is_pattern = std::mem::take(&mut self.is_pattern);
        let token = if is_name_start(first) {
            self.word()?
        } else if first.is_ascii_digit() || first == '.' && second.is_some_and(|next| next.is_ascii_digit()) {
            self.number()?
        } else if first == '`' {
            Token::Quoted(text_of(self.quoted(first, false, Backslash::Escape)?, start)?)
        } else if matches!(first, '\'' | '"') {
            let backslash = if is_pattern { Backslash::Pattern } else { Backslash::Escape };
            Token::Text(string(self.quoted(first, false, backslash)?))
        } else if first == '.' {
            self.offset += 1;
            Token::Sign(".")
        } else if let Some((_, instead)) = FOREIGN.iter().find(|(sign, _)| rest.starts_with(sign)) {
            return Err(Fault::new(start, (*instead).to_owned()));
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            self.offset += sign.len();
            Token::Sign(sign)
        } else {
            return Err(Fault::new(start, no_sign(first)));
        };
        Ok((token, start))
    }

    fn word(&mut self) -> Result<Token<'a>, Fault> {
        let rest = self.rest();
        let size = rest.find(|character| !is_name_part(character)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at_checked(size).unwrap_or((rest, ""));
        self.offset += size;
        if let Some(quote @ ('\'' | '"')) = behind.chars().next() {
            let is_bytes = ["b", "br", "rb"].iter().any(|prefix| word.eq_ignore_ascii_case(prefix));
            let is_raw = ["r", "br", "rb"].iter().any(|prefix| word.eq_ignore_ascii_case(prefix));
            if is_bytes {
                let backslash = if is_raw { Backslash::Itself } else { Backslash::Escape };
                return Ok(Token::Text(Value::Bytes(self.quoted(quote, true, backslash)?)));
            }
            if is_raw {
                return Ok(Token::Text(string(self.quoted(quote, false, Backslash::Itself)?)));
            }
        }
        self.is_pattern = word.eq_ignore_ascii_case("matches");
        Ok(Token::Word(word))
    }

    fn digits(&mut self, is_digit: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let size = rest.find(|character| character != '_' && !is_digit(character)).unwrap_or(rest.len());
        self.offset += size;
        rest.get(..size).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.offset;
        let (date, behind) = self.rest().split_at_checked(10).unwrap_or_default();
        if is_date(date) && !behind.starts_with(|next: char| next.is_ascii_digit()) {
            return Err(Fault::new(
                start,
                format!("a date is written date '{date}'; the difference of numbers has spaces"),
            ));
        }
        let value = if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.offset += 2;
            let digits = self.digits(|character| character.is_ascii_hexdigit());
            BigInt::parse_bytes(without_underscores(digits).as_bytes(), 16).map(|value| of_int(&value))
        } else {
            let whole = self.digits(|character| character.is_ascii_digit());
            if self.skip_fraction() {
                let written = self.text.get(start..self.offset).unwrap_or_default();
                without_underscores(written).parse().ok().map(|value| Value::Float(Double(value)))
            } else if whole.len() > DIGITS_MAX {
                return Err(Fault::new(
                    start,
                    format!("an int of more than {DIGITS_MAX} digits; write it in hexadecimal: 0x..."),
                ));
            } else {
                BigInt::parse_bytes(without_underscores(whole).as_bytes(), 10).map(|value| of_int(&value))
            }
        };
        let is_glued = self.rest().starts_with(is_name_part);
        let is_apart = is_apart(self.text.get(start..self.offset).unwrap_or_default());
        value.filter(|_| is_apart && !is_glued).map(Token::Number).ok_or_else(|| {
            Fault::new(start, "expected a number like 21, 0x15, 1_000, 2.5 or 1e-3".to_owned())
        })
    }

    /// Skips a fraction and an exponent, such as `.5` and `e-3`. Returns whether there was one.
    fn skip_fraction(&mut self) -> bool {
        let start = self.offset;
        if self.rest().starts_with('.') {
            self.offset += 1;
            self.digits(|character| character.is_ascii_digit());
        }
        if let Some(exponent) = self.rest().strip_prefix(['e', 'E']) {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.starts_with(|character: char| character.is_ascii_digit()) {
                self.offset = self.text.len() - digits.len();
                self.digits(|character| character.is_ascii_digit());
            }
        }
        self.offset > start
    }

    /// Reads a quoted literal; the opening quote is next. A string is UTF-8 in which lone
    /// surrogates are encoded like characters. The alternative is bytes.
    fn quoted(&mut self, quote: char, is_bytes: bool, backslash: Backslash) -> Result<Vec<u8>, Fault> {
        let start = self.offset;
        self.offset += 1;
        let mut out = Vec::new();
        loop {
            let at = self.offset;
            let Some(character) = self.rest().chars().next() else {
                return Err(Fault::new(start, format!("the {quote} that is opened here is never closed")));
            };
            self.offset += character.len_utf8();
            match character {
                _ if character == quote => return Ok(out),
                '\\' if backslash == Backslash::Escape => self.escape(at, is_bytes, &mut out)?,
                '\\' if backslash == Backslash::Pattern => self.escape_of_pattern(at, &mut out)?,
                _ if is_bytes && !character.is_ascii() => {
                    return Err(Fault::new(
                        at,
                        "bytes are written in ASCII; write others as \\xff".to_owned(),
                    ));
                }
                _ => push_character(character as u32, &mut out),
            }
        }
    }

    /// Reads one escape of a pattern; its backslash is at `at`. A doubled backslash is one, and the
    /// code of a character stands for it alone, as in a regular expression. All else is the
    /// pattern's own: `\b` is no backspace.
    fn escape_of_pattern(&mut self, at: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.rest().chars().next() {
            Some('\\' | '\'' | '"' | 'n' | 'r' | 't') => self.escape(at, false, out),
            Some('x' | 'u' | 'U') => {
                let mut character = Vec::new();
                self.escape(at, false, &mut character)?;
                if matches!(&character[..], [code] if code.is_ascii_punctuation() || *code == b' ') {
                    out.push(b'\\');
                }
                out.append(&mut character);
                Ok(())
            }
            // What follows is read as any character of the string, which it is.
            _ => {
                out.push(b'\\');
                Ok(())
            }
        }
    }

    /// Reads one escape; its backslash is at `at`.
    fn escape(&mut self, at: usize, is_bytes: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
        let unknown = || {
            Fault::new(
                at,
                "no such escape; those of Python are: \\n \\t \\\\ \\' \\x41 \\u00e4 \\U0001f600. r'...' has none".to_owned(),
            )
        };
        let character = self.rest().chars().next().ok_or_else(unknown)?;
        self.offset += character.len_utf8();
        let code = match character {
            '\\' | '\'' | '"' | '`' => character as u32,
            'n' => 0x0A,
            'r' => 0x0D,
            't' => 0x09,
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0C,
            'v' => 0x0B,
            '0' if !self.rest().starts_with(|next: char| next.is_ascii_digit()) => 0,
            'x' => self.hexadecimal(2).ok_or_else(unknown)?,
            'u' if !is_bytes => self.hexadecimal(4).ok_or_else(unknown)?,
            'U' if !is_bytes => self.hexadecimal(8).filter(|code| *code < 0x11_0000).ok_or_else(unknown)?,
            _ => return Err(unknown()),
        };
        if is_bytes {
            out.push(code as u8);
        } else {
            push_character(code, out);
        }
        Ok(())
    }

    fn hexadecimal(&mut self, count: usize) -> Option<u32> {
        let digits = self.rest().get(..count)?;
        self.offset += count;
        if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            u32::from_str_radix(digits, 16).ok()
        } else {
            None
        }
    }
}

/// Whether the text looks like `2000-01-31`, which arithmetic would turn into another number.
fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// Whether each underscore in a number stands between two digits, or after `0x`, as Python
/// requires.
fn is_apart(number: &str) -> bool {
    let is_hexadecimal = number.starts_with("0x") || number.starts_with("0X");
    let is_digit = |character: &char| {
        character.is_ascii_digit()
            || is_hexadecimal && (character.is_ascii_hexdigit() || matches!(character, 'x' | 'X'))
    };
    let characters: Vec<char> = number.chars().collect();
    characters.iter().enumerate().filter(|(_, character)| **character == '_').all(|(place, _)| {
        let before = place.checked_sub(1).and_then(|before| characters.get(before));
        before.is_some_and(is_digit) && characters.get(place + 1).is_some_and(is_digit)
    })
}

fn without_underscores(digits: &str) -> String {
    digits.chars().filter(|digit| *digit != '_').collect()
}

fn no_sign(character: char) -> String {
    match character {
        '&' => "expected an operator; `and` is written out".to_owned(),
        '|' => "expected an operator; `or` is written out".to_owned(),
        '~' | '!' => "expected an operator; `not` is written out".to_owned(),
        ';' => "an expression is one condition, without a `;` after it".to_owned(),
        '^' => "expected an operator; there is no `^`".to_owned(),
        '$' | '?' | '@' => format!(
            "{character:?} has no meaning here: a text has no places for values; F.age >= value is an expression with one"
        ),
        _ => format!("{character:?} has no meaning here"),
    }
}

/// Appends a character, or a lone surrogate encoded like one.
fn push_character(code: u32, out: &mut Vec<u8>) {
    match char::from_u32(code) {
        Some(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.extend_from_slice(&[0xED, 0x80 | (code >> 6 & 0x3F) as u8, 0x80 | (code & 0x3F) as u8]),
    }
}

fn string(bytes: Vec<u8>) -> Value {
    match String::from_utf8(bytes) {
        Ok(text) => Value::Str(text),
        Err(error) => Value::Surrogates(error.into_bytes()),
    }
}

fn text_of(bytes: Vec<u8>, start: usize) -> Result<String, Fault> {
    String::from_utf8(bytes)
        .map_err(|_| Fault::new(start, "a name has no lone surrogates; write ['...'] as an index".to_owned()))
}

/// Whether a name without backticks may begin with this character.
pub fn is_name_start(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

/// Whether a name without backticks may contain this character.
pub fn is_name_part(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}
