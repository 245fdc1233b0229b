//! Replays every input that the fuzz target of expressions keeps.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/expressions.rs"]
mod target;

#[test]
fn expressions() {
    corpus::replay("expressions", target::expressions);
}
