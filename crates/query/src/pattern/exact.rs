//! Searches for patterns with assertions that the regex crate does not have.
//!
//! The automaton is compiled by the regex crate. All states that it may be in are followed through
//! the text at once, in linear time. The assertions are checked here, by Python's rules. This takes
//! about ten times as long as the regex crate, and few patterns and texts need it.

use std::sync::Arc;

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;

use super::{NEST_MAX, class};

/// Python's `$`, written as an assertion that no rewritten Python pattern contains otherwise.
pub const END: &str = "(?mR:$)";
/// Maximum size of an automaton in bytes, the same as the limit of the regex crate.
const SIZE_MAX: usize = 10 << 20;

/// A pattern compiled to an automaton, which clones share.
#[derive(Clone)]
pub struct Exact {
    automaton: Arc<NFA>,
}

/// A set of states, in the order in which they were added.
struct States {
    list: Vec<StateID>,
    has: Vec<bool>,
}

impl States {
    fn new(count: usize) -> Self {
        Self { list: Vec::new(), has: vec![false; count] }
    }

    fn add(&mut self, state: StateID) -> bool {
        match self.has.get_mut(state.as_usize()) {
            Some(has) if !*has => {
                *has = true;
                self.list.push(state);
                true
            }
            _ => false,
        }
    }

    fn clear(&mut self) {
        for state in self.list.drain(..) {
            if let Some(has) = self.has.get_mut(state.as_usize()) {
                *has = false;
            }
        }
    }
}

impl Exact {
    /// Compiles a pattern in the syntax of the regex crate, which may contain [`END`]. The error
    /// says why it is not valid.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let config =
            Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(SIZE_MAX));
        let syntax = syntax::Config::new().utf8(false).nest_limit(NEST_MAX * 8);
        let made = Compiler::new().configure(config).syntax(syntax).build(pattern);
        made.map(|automaton| Self { automaton: Arc::new(automaton) }).map_err(|error| error.to_string())
    }

    /// Whether the pattern is found in a text.
    pub fn is_match(&self, text: &[u8]) -> bool {
        let count = self.automaton.states().len();
        let (mut here, mut next) = (States::new(count), States::new(count));
        let mut pending = Vec::new();
        for at in 0..=text.len() {
            // A match may begin at any character.
            if text.get(at).is_none_or(|byte| byte & 0xC0 != 0x80) {
                pending.push(self.automaton.start_anchored());
            }
            if self.close(&mut here, &mut pending, text, at) {
                return true;
            }
            let Some(byte) = text.get(at) else { break };
            for state in &here.list {
                let target = match self.automaton.state(*state) {
                    State::ByteRange { trans } => trans.matches_byte(*byte).then_some(trans.next),
                    State::Sparse(sparse) => sparse.matches_byte(*byte),
                    State::Dense(dense) => dense.matches_byte(*byte),
                    _ => None,
                };
                pending.extend(target);
            }
            here.clear();
            std::mem::swap(&mut here, &mut next);
        }
        false
    }

    /// Adds the pending states, and all states that can be reached from them without reading a
    /// byte. Returns whether the match state is among them.
    fn close(&self, states: &mut States, pending: &mut Vec<StateID>, text: &[u8], at: usize) -> bool {
        while let Some(state) = pending.pop() {
            if !states.add(state) {
                continue;
            }
            match self.automaton.state(state) {
                State::Match { .. } => return true,
                State::Union { alternates } => pending.extend(alternates.iter()),
                State::BinaryUnion { alt1, alt2 } => pending.extend([*alt1, *alt2]),
                State::Capture { next, .. } => pending.push(*next),
                State::Look { look, next } if is_at(*look, text, at) => pending.push(*next),
                _ => {}
            }
        }
        false
    }
}

/// Whether an assertion holds at a position, by Python's rules.
fn is_at(look: Look, text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    let behind = text.get(at);
    let is_ascii_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    match look {
        Look::Start => before.is_none(),
        Look::End => behind.is_none(),
        Look::StartLF => before.is_none_or(|byte| *byte == b'\n'),
        Look::EndLF => behind.is_none_or(|byte| *byte == b'\n'),
        // The assertion that `END` is compiled to.
        Look::EndCRLF => behind.is_none() || text.get(at..) == Some(b"\n"),
        Look::WordAscii => is_ascii_word(before) != is_ascii_word(behind),
        Look::WordAsciiNegate => is_ascii_word(before) == is_ascii_word(behind),
        Look::WordUnicode => is_word_end(text, at),
        Look::WordUnicodeNegate => !is_word_end(text, at),
        _ => false,
    }
}

/// Whether a word begins or ends at this position.
fn is_word_end(text: &[u8], at: usize) -> bool {
    let (before, behind) = text.split_at_checked(at).unwrap_or((text, &[]));
    is_word(last_of(before)) != is_word(first_of(behind))
}

fn is_word(character: Option<char>) -> bool {
    character.is_some_and(class::is_word)
}

fn first_of(text: &[u8]) -> Option<char> {
    let text = text.get(..text.len().min(4)).unwrap_or_default();
    text.utf8_chunks().next()?.valid().chars().next()
}

fn last_of(text: &[u8]) -> Option<char> {
    let start = (1..=4)
        .map_while(|back| text.len().checked_sub(back))
        .find(|start| text.get(*start).is_some_and(|byte| byte & 0xC0 != 0x80))?;
    first_of(text.get(start..)?)
}
