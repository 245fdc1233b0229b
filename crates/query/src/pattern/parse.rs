//! Parses Python's regular expressions.
//!
//! The syntax is that of `re.compile` for a str, from Python 3.11 on. `\z`, which came with 3.14,
//! is accepted under any version, and so is `\p{...}`, which Python does not have. Flags are
//! applied here: the result has only sets of characters, assertions, and the ways to combine them.
//! Captures and greediness are dropped, because they do not change whether a pattern is found.

use std::collections::HashSet;

use super::class::{Class, Set};
use super::{BadPattern, NEST_MAX};

/// A part of a pattern.
#[derive(Debug)]
pub enum Ast {
    /// A set that matches one character, in the regex crate's syntax.
    One(String),
    /// An assertion that the regex crate has, too.
    At(&'static str),
    /// A word boundary, or a place that is none, which the regex crate knows in ASCII texts alone.
    Word(&'static str),
    /// The end of the text, or before a newline at the end.
    End,
    Group(Box<Ast>),
    /// Minimum and maximum number of repetitions.
    Repeat(Box<Ast>, u32, Option<u32>),
    Sequence(Vec<Ast>),
    Either(Vec<Ast>),
}

impl Ast {
    /// Whether the part matches the empty string at every position.
    pub fn may_be_empty(&self) -> bool {
        match self {
            Self::One(_) | Self::At(_) | Self::Word(_) | Self::End => false,
            Self::Group(inner) => inner.may_be_empty(),
            Self::Repeat(inner, least, _) => *least == 0 || inner.may_be_empty(),
            Self::Sequence(parts) => parts.iter().all(Self::may_be_empty),
            Self::Either(branches) => branches.iter().any(Self::may_be_empty),
        }
    }

    fn is_place(&self) -> bool {
        matches!(self, Self::At(_) | Self::Word(_) | Self::End)
    }
}

/// The flags that `(?ims...)` sets.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of Python, each on or off by itself")]
pub struct Flags {
    pub ignores_case: bool,
    pub is_ascii: bool,
    is_multiline: bool,
    dot_is_all: bool,
    is_verbose: bool,
}

/// Parses a pattern.
pub fn parse(text: &str) -> Result<Ast, BadPattern> {
    let characters: Vec<char> = text.chars().collect();
    let flags = Flags::default();
    let mut parser = Parser { characters: &characters, at: 0, flags, names: HashSet::new(), nests: 0 };
    let ast = parser.either(flags, true)?;
    if parser.at < characters.len() {
        return Err(parser.bad(parser.at, "unbalanced parenthesis"));
    }
    Ok(ast)
}

struct Parser<'a> {
    characters: &'a [char],
    at: usize,
    /// The flags of the whole pattern. They are known before its first part is read.
    flags: Flags,
    names: HashSet<String>,
    nests: u32,
}

/// The content of parentheses.
enum Inside {
    /// A group, read with these flags.
    Part(Flags),
    /// Nothing to match: a comment, or flags of the whole pattern.
    Nothing,
}

impl Parser<'_> {
    fn bad(&self, at: usize, why: impl AsRef<str>) -> BadPattern {
        let (mut line, mut column) = (1, 1);
        for character in self.characters.iter().take(at) {
            (line, column) = if *character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        let place = match line {
            1 => format!("character {column}"),
            _ => format!("line {line}, character {column}"),
        };
        BadPattern(format!("{} at {place}", why.as_ref()))
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    fn skip(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    /// Parses alternatives, up to the end or a closing parenthesis.
    fn either(&mut self, flags: Flags, is_whole: bool) -> Result<Ast, BadPattern> {
        let mut branches = vec![self.sequence(flags, is_whole)?];
        while self.skip('|') {
            let flags = if is_whole { self.flags } else { flags };
            branches.push(self.sequence(flags, false)?);
        }
        match branches.pop() {
            Some(only) if branches.is_empty() => Ok(only),
            last => {
                branches.extend(last);
                Ok(Ast::Either(branches))
            }
        }
    }

    /// Parses a sequence of parts. If `is_first`, it may begin with flags of the whole pattern.
    fn sequence(&mut self, mut flags: Flags, is_first: bool) -> Result<Ast, BadPattern> {
        let mut parts = Vec::new();
        while let Some(character) = self.peek() {
            let start = self.at;
            match character {
                '|' | ')' => break,
                ' ' | '\t' | '\n' | '\r' | '\x0B' | '\x0C' if flags.is_verbose => self.at += 1,
                '#' if flags.is_verbose => while self.next().is_some_and(|next| next != '\n') {},
                '*' | '+' | '?' => {
                    self.at += 1;
                    let (least, most) = match character {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(&mut parts, start, (least, most))?;
                }
                '{' => {
                    if let Some(counts) = self.counts()? {
                        self.repeat(&mut parts, start, counts)?;
                    } else {
                        self.at = start + 1;
                        parts.push(literal('{', flags));
                    }
                }
                '(' => match self.parenthesis(flags, is_first && parts.is_empty())? {
                    Inside::Nothing if is_first => flags = self.flags,
                    Inside::Nothing => {}
                    Inside::Part(inner_flags) => parts.push(self.group(start, inner_flags)?),
                },
                _ => parts.push(self.atom(flags)?),
            }
        }
        Ok(Ast::Sequence(parts))
    }

    fn atom(&mut self, flags: Flags) -> Result<Ast, BadPattern> {
        let start = self.at;
        let character = self.next().unwrap_or_default();
        Ok(match character {
            '.' if flags.dot_is_all => Ast::One("(?s:.)".to_owned()),
            '.' => Ast::One(".".to_owned()),
            '^' if flags.is_multiline => Ast::At("(?m:^)"),
            '^' => Ast::At(r"\A"),
            '$' if flags.is_multiline => Ast::At("(?m:$)"),
            '$' => Ast::End,
            '[' => Ast::One(self.set(start, flags)?),
            '\\' => self.escape(start, flags)?,
            character => literal(character, flags),
        })
    }

    /// Parses the counts in braces; None if the braces are plain characters.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, BadPattern> {
        let start = self.at;
        self.at += 1;
        if self.peek() == Some('}') {
            return Ok(None);
        }
        let least = self.digits();
        let most = if self.skip(',') { self.digits() } else { least.clone() };
        if !self.skip('}') {
            return Ok(None);
        }
        let count = |digits: &str| match digits {
            "" => Ok(None),
            digits => match digits.parse() {
                Ok(count) if count < u32::MAX => Ok(Some(count)),
                _ => Err(self.bad(start, "the repetition number is too large")),
            },
        };
        let (least, most) = (count(&least)?.unwrap_or(0), count(&most)?);
        if most.is_some_and(|most| most < least) {
            return Err(self.bad(start, "min repeat greater than max repeat"));
        }
        Ok(Some((least, most)))
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.at += 1;
        }
        digits
    }

    /// Repeats the last part.
    fn repeat(
        &mut self,
        parts: &mut Vec<Ast>,
        start: usize,
        (least, most): (u32, Option<u32>),
    ) -> Result<(), BadPattern> {
        let part = match parts.pop() {
            None => return Err(self.bad(start, "nothing to repeat")),
            Some(part) if part.is_place() => return Err(self.bad(start, "nothing to repeat")),
            Some(Ast::Repeat(..)) => return Err(self.bad(start, "multiple repeat")),
            Some(part) => part,
        };
        if self.skip('+') {
            return Err(self.bad(start, "possessive repetitions are not supported"));
        }
        self.skip('?');
        parts.push(Ast::Repeat(Box::new(part), least, most));
        Ok(())
    }

    fn group(&mut self, start: usize, flags: Flags) -> Result<Ast, BadPattern> {
        self.nests += 1;
        if self.nests > NEST_MAX {
            return Err(self.bad(start, format!("groups nest deeper than {NEST_MAX}")));
        }
        let inner = self.either(flags, false)?;
        self.nests -= 1;
        if !self.skip(')') {
            return Err(self.bad(start, "unclosed group"));
        }
        Ok(Ast::Group(Box::new(inner)))
    }

    /// Parses an opening parenthesis and what follows it, up to the start of the group's content.
    fn parenthesis(&mut self, flags: Flags, may_be_global: bool) -> Result<Inside, BadPattern> {
        let start = self.at;
        self.at += 1;
        if !self.skip('?') {
            return Ok(Inside::Part(flags));
        }
        let kind = self.next();
        let unsupported = |what: &str| Err(self.bad(start, format!("{what} not supported")));
        match kind {
            Some(':') => Ok(Inside::Part(flags)),
            Some('=' | '!') => unsupported("look-around, including look-ahead and look-behind, is"),
            Some('<') if matches!(self.peek(), Some('=' | '!')) => {
                unsupported("look-around, including look-ahead and look-behind, is")
            }
            Some('<') => Err(self.bad(start, "(?< is no group; a named one is (?P<name>...)")),
            Some('>') => unsupported("atomic groups are"),
            Some('(') => unsupported("conditional groups are"),
            Some('#') => loop {
                match self.next() {
                    Some(')') => return Ok(Inside::Nothing),
                    Some(_) => {}
                    None => return Err(self.bad(start, "missing ), unterminated comment")),
                }
            },
            Some('P') => {
                if self.skip('=') {
                    return Err(self.bad(start, "backreferences are not supported"));
                }
                if !self.skip('<') {
                    return Err(self.bad(start, "unknown extension ?P"));
                }
                self.name(start)?;
                Ok(Inside::Part(flags))
            }
            Some(_) => {
                self.at -= 1;
                self.inline_flags(start, flags, may_be_global)
            }
            None => Err(self.bad(start, "unexpected end of pattern")),
        }
    }

    fn name(&mut self, start: usize) -> Result<(), BadPattern> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('>') => break,
                Some(character) => name.push(character),
                None => return Err(self.bad(start, "missing >, unterminated name")),
            }
        }
        let is_name = name.starts_with(|first: char| first == '_' || first.is_alphabetic())
            && name.chars().all(|character| character == '_' || character.is_alphanumeric());
        if !is_name {
            return Err(self.bad(start, format!("bad character in group name {name:?}")));
        }
        if !self.names.insert(name.clone()) {
            return Err(self.bad(start, format!("redefinition of group name {name:?}")));
        }
        Ok(())
    }

    /// Parses `(?i)` or `(?i-s:`, after the question mark.
    fn inline_flags(
        &mut self,
        start: usize,
        flags: Flags,
        may_be_global: bool,
    ) -> Result<Inside, BadPattern> {
        let (mut new, mut is_off, mut has_any) = (flags, false, false);
        let mut seen = String::new();
        loop {
            let letter = self.next();
            let is_on = !is_off;
            match letter {
                Some(')') if has_any && is_on => {
                    if !may_be_global {
                        return Err(self.bad(start, "global flags not at the start of the expression"));
                    }
                    self.flags = new;
                    return Ok(Inside::Nothing);
                }
                Some(':') if has_any => return Ok(Inside::Part(new)),
                Some('-') if is_on => (is_off, has_any) = (true, false),
                Some(letter) => {
                    has_any = true;
                    set_flag(&mut new, (letter, is_on), &mut seen)
                        .map_err(|why| self.bad(start, format!("bad inline flags: {why}")))?;
                }
                None => return Err(self.bad(start, "missing -, : or ) after flags")),
            }
        }
    }

    /// Parses an escape outside of a set, after the backslash.
    fn escape(&mut self, start: usize, flags: Flags) -> Result<Ast, BadPattern> {
        let Some(character) = self.next() else {
            return Err(self.bad(start, "bad escape (end of pattern)"));
        };
        Ok(match character {
            'A' => Ast::At(r"\A"),
            'Z' | 'z' => Ast::At(r"\z"),
            'b' if flags.is_ascii => Ast::At(r"(?-u:\b)"),
            'B' if flags.is_ascii => Ast::Word(r"(?-u:\B)"),
            'b' => Ast::Word(r"\b"),
            'B' => Ast::Word(r"\B"),
            '0' => {
                let code = self.octal(character, 3);
                literal(char::from_u32(code).unwrap_or_default(), flags)
            }
            '1'..='9' => match self.octal_or_reference(start, character)? {
                Some(character) => literal(character, flags),
                None => return Err(self.bad(start, "backreferences are not supported")),
            },
            _ => {
                if let Some(class) = self.category(start, character, flags)? {
                    return Ok(Ast::One(class.alone()));
                }
                let code = self.character_escape(start, character)?;
                match char::from_u32(code) {
                    Some(character) => literal(character, flags),
                    None => return Err(self.bad(start, "a lone surrogate is not supported")),
                }
            }
        })
    }

    /// Reads up to `count` octal digits, of which `first` was already read.
    fn octal(&mut self, first: char, count: usize) -> u32 {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 1..count {
            let Some(digit) = self.peek().and_then(|digit| digit.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.at += 1;
        }
        code
    }

    /// Three octal digits are a character; fewer are a reference to a group.
    fn octal_or_reference(&mut self, start: usize, first: char) -> Result<Option<char>, BadPattern> {
        let next = |offset| self.characters.get(self.at + offset).and_then(|digit: &char| digit.to_digit(8));
        if first.is_digit(8) && next(0).is_some() && next(1).is_some() {
            let code = self.octal(first, 3);
            return self.octal_character(start, code).map(Some);
        }
        Ok(None)
    }

    fn octal_character(&self, start: usize, code: u32) -> Result<char, BadPattern> {
        match char::from_u32(code) {
            Some(character) if code <= 0o377 => Ok(character),
            _ => Err(self.bad(start, "octal escape value outside of range 0-0o377")),
        }
    }

    /// Parses a category such as `\d`.
    fn category(&mut self, start: usize, character: char, flags: Flags) -> Result<Option<Class>, BadPattern> {
        if !matches!(character, 'p' | 'P') {
            return Ok(Class::of_category(character, flags.is_ascii));
        }
        // An extension: Python has no properties.
        let mut name = String::from('\\');
        name.push(character);
        if self.skip('{') {
            name.push('{');
            loop {
                match self.next() {
                    Some('}') => break,
                    Some(letter) if letter.is_alphanumeric() || "_=:! ^-".contains(letter) => {
                        name.push(letter);
                    }
                    _ => return Err(self.bad(start, "bad escape, as \\p{Greek} is one")),
                }
            }
            name.push('}');
        } else {
            name.extend(self.next().filter(char::is_ascii_alphabetic));
        }
        if regex_syntax::parse(&name).is_err() {
            return Err(self.bad(start, format!("there is no property {name}")));
        }
        Ok(Some(Class::of_property(name)))
    }

    /// Parses an escape that stands for one character, inside or outside of a set.
    fn character_escape(&mut self, start: usize, character: char) -> Result<u32, BadPattern> {
        let code = match character {
            'a' => Some(0x07),
            'f' => Some(0x0C),
            'n' => Some(0x0A),
            'r' => Some(0x0D),
            't' => Some(0x09),
            'v' => Some(0x0B),
            'x' => self.hexadecimal(2),
            'u' => self.hexadecimal(4),
            'U' => self.hexadecimal(8).filter(|code| *code <= 0x10_FFFF),
            'N' => {
                return Err(self.bad(
                    start,
                    "characters by their names are not supported (write the character, or \\u and its code)",
                ));
            }
            character if character.is_ascii_alphanumeric() => None,
            character => Some(u32::from(character)),
        };
        code.ok_or_else(|| self.bad(start, format!("bad escape \\{character}")))
    }

    fn hexadecimal(&mut self, count: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..count {
            code = code << 4 | self.peek()?.to_digit(16)?;
            self.at += 1;
        }
        Some(code)
    }

    /// Parses a set, after the opening bracket.
    fn set(&mut self, start: usize, flags: Flags) -> Result<String, BadPattern> {
        let is_negated = self.skip('^');
        let mut set = Set::default();
        let first = self.at;
        loop {
            let part = self.at;
            match self.peek() {
                None => return Err(self.bad(start, "unterminated character set")),
                Some(']') if part > first => {
                    self.at += 1;
                    return Ok(set.written(is_negated, flags));
                }
                Some(_) => {}
            }
            let least = self.element(flags)?;
            let is_range =
                self.peek() == Some('-') && self.characters.get(self.at + 1).is_some_and(|next| *next != ']');
            if !is_range {
                match least {
                    Element::Code(code) => set.add(code, code),
                    Element::Category(class) => set.add_class(class),
                }
                continue;
            }
            self.at += 1;
            match (least, self.element(flags)?) {
                (Element::Code(least), Element::Code(greatest)) if least <= greatest => {
                    set.add(least, greatest);
                }
                _ => return Err(self.bad(part, "bad character range")),
            }
        }
    }

    fn element(&mut self, flags: Flags) -> Result<Element, BadPattern> {
        let start = self.at;
        let character = self.next().unwrap_or_default();
        if character != '\\' {
            return Ok(Element::Code(u32::from(character)));
        }
        let Some(character) = self.next() else {
            return Err(self.bad(start, "bad escape (end of pattern)"));
        };
        Ok(match character {
            'b' => Element::Code(0x08),
            '0'..='7' => {
                let code = self.octal(character, 3);
                Element::Code(u32::from(self.octal_character(start, code)?))
            }
            _ => match self.category(start, character, flags)? {
                Some(class) => Element::Category(class),
                None => Element::Code(self.character_escape(start, character)?),
            },
        })
    }
}

/// An element of a set.
enum Element {
    Code(u32),
    Category(Class),
}

fn literal(character: char, flags: Flags) -> Ast {
    let mut set = Set::default();
    set.add(u32::from(character), u32::from(character));
    Ast::One(set.written(false, flags))
}

/// Turns the flag of a letter on or off. `seen` holds the letters already turned on in the same
/// group. The error says why the flag is not allowed.
fn set_flag(flags: &mut Flags, (letter, is_on): (char, bool), seen: &mut String) -> Result<(), String> {
    match letter {
        'i' => flags.ignores_case = is_on,
        'm' => flags.is_multiline = is_on,
        's' => flags.dot_is_all = is_on,
        'x' => flags.is_verbose = is_on,
        'a' | 'u' if is_on => flags.is_ascii = letter == 'a',
        'a' | 'u' => return Err("cannot turn off flags 'a', 'u' and 'L'".to_owned()),
        'L' => return Err("cannot use 'L' flag with a str pattern".to_owned()),
        _ => return Err(format!("unknown flag {letter:?}")),
    }
    if !is_on && seen.contains(letter) {
        return Err("flag turned on and off".to_owned());
    }
    if is_on {
        seen.push(letter);
    }
    if seen.contains('a') && seen.contains('u') {
        return Err("flags 'a', 'u' and 'L' are incompatible".to_owned());
    }
    Ok(())
}
