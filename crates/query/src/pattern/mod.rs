//! Compiles and searches for Python's regular expressions.
//!
//! `matches` accepts the syntax of Python's `re` and finds what `re.search` finds, in linear time.
//! `parse.rs` parses that syntax, and `class.rs` knows which characters a set or a letter stands
//! for. This module rewrites the pattern for the regex crate, which differs in the meaning of `\w`,
//! `\s` and `(?i)`, in `$` (Python's also matches before a newline at the end), in nested sets and
//! in many escapes.
//!
//! The regex crate cannot express two things: `\b` by Python's `\w`, and `$` in the middle of an
//! expression. For these, `exact.rs` runs the same automaton step by step.

mod class;
mod exact;
mod parse;

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use exact::Exact;
use parse::Ast;

/// Maximum depth of nested groups. Each level takes stack while the expression is compiled.
const NEST_MAX: u32 = 100;

/// The reason why a pattern is not a valid or supported regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern(String);

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPattern {}

/// A compiled regular expression.
#[derive(Clone)]
pub struct Pattern {
    /// None if the regex crate cannot express the pattern.
    quick: Option<Regex>,
    /// Runs patterns that `quick` cannot. If there is a `quick`, this one runs on texts beyond
    /// ASCII only.
    exact: Option<Exact>,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern is not valid in Python, needs more than linear time, or is too large.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let ast = parse::parse(text)?;
        let mut writer = Writer { out: String::new(), is_exact: false, lacks: Lacks::Nothing };
        writer.push(&ast, true);
        let Writer { out, lacks, .. } = writer;
        let quick = match lacks {
            Lacks::All => None,
            Lacks::Nothing | Lacks::Words => Some(regex(&out)?),
        };
        let exact = match lacks {
            Lacks::Nothing => None,
            Lacks::Words | Lacks::All => {
                let mut writer = Writer { out: String::new(), is_exact: true, lacks };
                writer.push(&ast, true);
                Some(Exact::new(&writer.out).map_err(BadPattern)?)
            }
        };
        Ok(Self { quick, exact })
    }

    /// Whether the pattern is found in a UTF-8 text.
    #[inline]
    #[must_use]
    pub fn is_match(&self, text: &[u8]) -> bool {
        match (&self.quick, &self.exact) {
            (Some(quick), None) => quick.is_match(text),
            (Some(quick), Some(_)) if text.is_ascii() => quick.is_match(text),
            (_, Some(exact)) => exact.is_match(text),
            (None, None) => false,
        }
    }
}

fn regex(pattern: &str) -> Result<Regex, BadPattern> {
    RegexBuilder::new(pattern).nest_limit(NEST_MAX * 8).build().map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default();
        BadPattern(why.strip_prefix("error: ").unwrap_or(why).to_owned())
    })
}

/// What a pattern needs and the regex crate does not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lacks {
    Nothing,
    /// Word boundaries by Python's `\w`, and places that are none. In ASCII texts they are the same
    /// as the crate's; in other texts, the crate finds an ASCII `\B` within a character.
    Words,
    /// `$` before a part that has to match something.
    All,
}

/// Writes a pattern in the syntax of the regex crate.
struct Writer {
    out: String,
    is_exact: bool,
    lacks: Lacks,
}

impl Writer {
    /// Appends a part. `is_last` is true if the pattern is found as soon as this part matches,
    /// whatever follows it in the text.
    fn push(&mut self, ast: &Ast, is_last: bool) {
        match ast {
            Ast::One(class) => self.out.push_str(class),
            Ast::At(place) => self.out.push_str(place),
            Ast::Word(place) => {
                self.out.push_str(place);
                self.lacks = self.lacks.max(Lacks::Words);
            }
            Ast::End if self.is_exact => self.out.push_str(exact::END),
            // This may consume the newline that `$` precedes, because no later part needs it.
            Ast::End if is_last => self.out.push_str(r"(?:\n?\z)"),
            Ast::End => self.lacks = Lacks::All,
            Ast::Group(inner) => {
                self.out.push_str("(?:");
                self.push(inner, is_last);
                self.out.push(')');
            }
            Ast::Repeat(inner, least, most) => {
                self.push(inner, is_last && *least <= 1);
                self.push_count(*least, *most);
            }
            Ast::Sequence(parts) => {
                let needed = parts.iter().rposition(|part| !part.may_be_empty()).unwrap_or(0);
                for (place, part) in parts.iter().enumerate() {
                    self.push(part, is_last && place >= needed);
                }
            }
            Ast::Either(branches) => {
                for (place, branch) in branches.iter().enumerate() {
                    self.out.push_str(if place == 0 { "" } else { "|" });
                    self.push(branch, is_last);
                }
            }
        }
    }

    fn push_count(&mut self, least: u32, most: Option<u32>) {
        let sign = match (least, most) {
            (0, None) => "*".to_owned(),
            (1, None) => "+".to_owned(),
            (0, Some(1)) => "?".to_owned(),
            (least, None) => format!("{{{least},}}"),
            (least, Some(most)) => format!("{{{least},{most}}}"),
        };
        self.out.push_str(&sign);
    }
}
