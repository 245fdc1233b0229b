//! The error for a text that is not a valid expression.

use std::fmt;

/// Maximum number of characters shown before and after the error's position.
const SHOWN_BEFORE: usize = 60;
const SHOWN_BEHIND: usize = 20;

/// The text is not a valid expression. Says where, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What was expected, or what is wrong.
    pub message: String,
    /// The line, or the part of it around the error, and the number of its characters before the
    /// error's position.
    excerpt: (String, usize),
}

/// An error and the byte offset where it occurred.
#[derive(Debug)]
pub struct Fault {
    offset: usize,
    message: String,
}

impl Fault {
    #[cold]
    pub fn new(offset: usize, message: String) -> Self {
        Self { offset, message }
    }

    /// Converts the offset to a line and a column of this text.
    #[cold]
    pub fn in_text(self, text: &str) -> ParseError {
        let before = text.get(..self.offset).unwrap_or(text);
        let behind = text.get(before.len()..).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let on_line = before.get(start..).unwrap_or_default();
        let column = on_line.chars().count();
        let skipped = column.saturating_sub(SHOWN_BEFORE);
        let rest = behind.lines().next().unwrap_or_default();
        let shown = on_line.chars().skip(skipped).chain(rest.chars().take(SHOWN_BEHIND));
        // Each character must take one column, or the caret would point at the wrong place.
        let shown = shown.map(|character| if character.is_control() { ' ' } else { character });
        ParseError {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message: self.message,
            excerpt: (shown.collect(), column - skipped),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, place) = &self.excerpt;
        write!(f, "line {}, column {}: {}\n  {line}\n  {:place$}^", self.line, self.column, self.message, "")
    }
}

impl std::error::Error for ParseError {}
