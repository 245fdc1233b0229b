//! Does everything that a fuzzer has found in expressions still do no harm?

use std::path::Path;

#[path = "../../../fuzz/src/expressions.rs"]
mod target;

#[test]
fn expressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/expressions");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for file in files.flatten() {
        // What the test prints when it fails tells which input it was.
        println!("{}", file.path().display());
        let data = std::fs::read(file.path()).unwrap_or_else(|error| panic!("{error}"));
        target::expressions(&data);
        count += 1;
    }
    assert!(count > 0, "there are no inputs");
}
