//! The characters that a letter, a set or a category of a pattern stands for.
//!
//! The rules are Python's. `\w` is what `str.isalnum` accepts, and `_`. `\s` is what `str.isspace`
//! accepts. Two letters differ only in case if their lower case is the same, or the upper case of
//! that, so `(?i)k` finds the Kelvin sign.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use regex_syntax::hir::{Hir, HirKind};

use super::parse::Flags;

/// A category such as `\d`, as the content of a bracketed set in the regex crate's syntax.
#[derive(Clone, Debug)]
pub struct Class(String);

impl Class {
    /// The category `\d`, `\D`, `\s`, `\S`, `\w` or `\W`, by its letter.
    pub fn of_category(letter: char, is_ascii: bool) -> Option<Self> {
        let inner = match (letter.to_ascii_lowercase(), is_ascii) {
            ('d', true) => "0-9",
            ('d', false) => r"\p{Nd}",
            ('s', true) => r" \t-\r",
            ('s', false) => r"\p{White_Space}\x{1C}-\x{1F}",
            ('w', true) => "0-9A-Z_a-z",
            ('w', false) => r"\p{L}\p{N}_",
            _ => return None,
        };
        Some(Self(if letter.is_ascii_uppercase() { format!("[^{inner}]") } else { inner.to_owned() }))
    }

    /// A property such as `\p{Greek}`.
    pub fn of_property(escape: String) -> Self {
        Self(escape)
    }

    /// The category as a pattern of its own.
    pub fn alone(&self) -> String {
        format!("[{}]", self.0)
    }
}

/// A set of characters.
#[derive(Default)]
pub struct Set {
    ranges: Vec<(u32, u32)>,
    classes: Vec<Class>,
}

impl Set {
    /// Adds a range of characters.
    pub fn add(&mut self, least: u32, greatest: u32) {
        self.ranges.push((least, greatest));
    }

    /// Adds the characters of a category.
    pub fn add_class(&mut self, class: Class) {
        self.classes.push(class);
    }

    /// The set in the regex crate's syntax.
    pub fn written(mut self, is_negated: bool, flags: Flags) -> String {
        if flags.ignores_case {
            self.add_other_cases(flags.is_ascii);
        }
        if let ([(one, other)], [], false) = (&self.ranges[..], &self.classes[..], is_negated)
            && one == other
            && let Some(character) = char::from_u32(*one)
        {
            return regex::escape(character.encode_utf8(&mut [0; 4]));
        }
        let mut out = String::from(if is_negated { "[^" } else { "[" });
        for (least, greatest) in &self.ranges {
            push_range(*least, *greatest, &mut out);
        }
        for class in &self.classes {
            out.push_str(&class.0);
        }
        if out.ends_with(['[', '^']) {
            // The set holds only lone surrogates, which a text never contains.
            out.push_str(r"&&a");
        }
        out.push(']');
        out
    }

    fn add_other_cases(&mut self, is_ascii: bool) {
        let ranges = self.ranges.clone();
        let has = |code: u32| ranges.iter().any(|(least, greatest)| (*least..=*greatest).contains(&code));
        if is_ascii {
            for letter in (b'a'..=b'z').map(u32::from) {
                for (one, other) in [(letter, letter - 32), (letter - 32, letter)] {
                    if has(one) && !has(other) {
                        self.add(other, other);
                    }
                }
            }
            return;
        }
        for alike in cases() {
            if alike.iter().any(|letter| has(u32::from(*letter))) {
                for letter in alike.iter().map(|letter| u32::from(*letter)).filter(|letter| !has(*letter)) {
                    self.add(letter, letter);
                }
            }
        }
    }
}

/// Appends a range without its surrogates.
fn push_range(least: u32, greatest: u32, out: &mut String) {
    const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);
    for (least, greatest) in
        [(least, greatest.min(SURROGATES.0 - 1)), (least.max(SURROGATES.1 + 1), greatest)]
    {
        if least <= greatest {
            // Writing to a String never fails.
            let _ = write!(out, r"\x{{{least:X}}}-\x{{{greatest:X}}}");
        }
    }
}

/// Groups of at least two letters that differ only in case.
fn cases() -> &'static [Vec<char>] {
    static CASES: OnceLock<Vec<Vec<char>>> = OnceLock::new();
    CASES.get_or_init(|| {
        let mut alike: HashMap<String, Vec<char>> = HashMap::new();
        for letter in '\0'..=char::MAX {
            // Only the first character counts, as in Python: that of a dotted capital I is `i`.
            let lower = letter.to_lowercase().next().unwrap_or(letter);
            let mut upper = lower.to_uppercase();
            // Skip characters without case: most have none.
            if lower != letter || upper.len() > 1 || upper.next() != Some(letter) {
                alike.entry(lower.to_uppercase().collect()).or_default().push(letter);
            }
        }
        // Add the letter that was skipped above because it is its own upper and lower case,
        // although others have it as their upper case. Each group has at most one.
        for (upper, letters) in &mut alike {
            let mut upper = upper.chars();
            if let (Some(letter), None) = (upper.next(), upper.next())
                && letter.to_lowercase().eq([letter])
                && letter.to_uppercase().eq([letter])
            {
                letters.push(letter);
            }
        }
        let mut alike: Vec<_> = alike.into_values().filter(|letters| letters.len() > 1).collect();
        alike.sort();
        alike
    })
}

/// Whether `\w` matches a character.
pub fn is_word(character: char) -> bool {
    static RANGES: OnceLock<Vec<(char, char)>> = OnceLock::new();
    let ranges = RANGES.get_or_init(|| {
        let class = Class::of_category('w', false).and_then(|class| regex_syntax::parse(&class.alone()).ok());
        match class.map(Hir::into_kind) {
            Some(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => {
                class.iter().map(|range| (range.start(), range.end())).collect()
            }
            _ => Vec::new(),
        }
    });
    let behind = ranges.partition_point(|(_, last)| *last < character);
    ranges.get(behind).is_some_and(|(first, _)| *first <= character)
}
