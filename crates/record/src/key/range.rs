//! The range of keys that begin with a key.

use std::ops::Range;

use super::code;

/// The bounds of exactly those keys that begin with `key`: for a tuple all tuples with these first
/// elements, for a str or bytes all that start with it. `None` for other keys, which have no
/// prefixes.
///
/// `key` is a whole key as `KeyEncoder` makes it.
///
/// ```
/// use pellucid_record::key::{KeyEncoder, prefix_range};
/// let mut key = KeyEncoder::new();
/// key.str(b"ab");
/// let range = prefix_range(key.as_bytes()).unwrap();
/// key.clear();
/// key.str(b"abc");
/// assert!(range.contains(&key.as_bytes().to_vec()));
/// ```
#[must_use]
pub fn prefix_range(key: &[u8]) -> Option<Range<Vec<u8>>> {
    let (first, (last, open)) = (key.first()?, key.split_last()?);
    if *last != code::END {
        return None;
    }
    match *first {
        code::TUPLE => {
            // A key that goes on with FE or FF has another element: 2.5 instead of 2, "a\0" instead
            // of "a".
            let end = open.iter().copied().chain([code::FRACTION]).collect();
            Some(key.to_vec()..end)
        }
        code::STR | code::BYTES => {
            let mut end = open.to_vec();
            while end.last() == Some(&0xFF) {
                end.pop();
            }
            // The code itself is not FF, so there is a byte to increment.
            if let Some(byte) = end.last_mut() {
                *byte += 1;
            }
            Some(open.to_vec()..end)
        }
        _ => None,
    }
}
