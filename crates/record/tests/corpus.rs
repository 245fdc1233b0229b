//! Replays everything that a fuzzer has ever found.
//!
//! Runs each fuzz target over its stored inputs. Add a file there for each new finding.
#![allow(clippy::cast_possible_wrap, reason = "what the targets count is small")]

use std::path::Path;

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for file in files.flatten() {
        let data =
            std::fs::read(file.path()).unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
        // If the test fails, its output names the input.
        println!("{name}: {}", file.path().display());
        target(&data);
        count += 1;
    }
    assert!(count > 0, "{name} has no inputs");
}

#[test]
fn decode() {
    replay("decode", targets::decode);
}

#[test]
fn validate_against_accessors() {
    replay("validate_against_accessors", targets::validate_against_accessors);
}

#[test]
fn keys() {
    replay("keys", targets::keys);
}

#[test]
fn envelope_import() {
    replay("envelope_import", targets::envelope_import);
}

#[test]
fn change_in_place() {
    replay("change_in_place", targets::change_in_place);
}

#[test]
fn path_expressions() {
    replay("path_expressions", targets::path_expressions);
}
