//! The inputs that are kept of the fuzz targets: a file for each kind of input, a line of hex for each input.

use std::path::Path;

/// Runs a target over the inputs of one kind. What the test prints when it fails tells which line it was.
pub fn replay(kind: &str, target: fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/corpus/{kind}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (number, line) in text.lines().enumerate() {
        println!("{}:{}", path.display(), number + 1);
        target(&bytes_of(line));
    }
    assert!(!text.is_empty(), "{} has no inputs", path.display());
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits: Vec<u8> = line.chars().map(|digit| digit.to_digit(16).expect("hex") as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
