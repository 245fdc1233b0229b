//! Replays every input that the fuzz targets of records keep.
#![allow(clippy::cast_possible_wrap, reason = "what the targets count is small")]
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use corpus::replay;

#[test]
fn decode() {
    replay("records", targets::decode);
}

#[test]
fn validate_against_accessors() {
    replay("records", targets::validate_against_accessors);
}

#[test]
fn keys() {
    replay("keys", targets::keys);
}

#[test]
fn envelope_import() {
    replay("envelopes", targets::envelope_import);
}

#[test]
fn change_in_place() {
    replay("changes", targets::change_in_place);
}

#[test]
fn path_expressions() {
    replay("records", targets::path_expressions);
}
