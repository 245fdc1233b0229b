//! The bytes of a stored value: how many shapes a reader needs, then the record.
//!
//!     value := shape_count: u32, record
//!
//! Clients of a server learn shapes from it. The count is how many shapes the writer knew, so a
//! reader that knows as many knows all of the record, and needs not look into it.

/// The size of what stands before the record.
pub const HEAD_SIZE: usize = 4;

/// The value for a record of a writer that knows `shape_count` shapes.
pub fn value_of(shape_count: u32, record: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD_SIZE + record.len());
    value.extend_from_slice(&shape_count.to_le_bytes());
    value.extend_from_slice(record);
    value
}

/// The shapes that a value needs; None if it is too short.
pub fn shape_count(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|head| u32::from_le_bytes(*head))
}

/// The record of a value; empty if it is too short, which no record is.
pub fn record_of(value: &[u8]) -> &[u8] {
    value.get(HEAD_SIZE..).unwrap_or_default()
}

/// Names of fields as bytes: the size of each as a u16, and its characters.
pub fn bytes_of_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        // A name in a shape has 64 bytes at most.
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

/// The names in such bytes; None if they are damaged.
pub fn names_of_bytes(mut bytes: &[u8]) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (size, rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*size) as usize)?;
        names.push(std::str::from_utf8(name).ok()?);
        bytes = rest;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for names in [vec![], vec![""], vec!["a", "", "\u{e9}t\u{e9}"]] {
            let bytes = bytes_of_names(names.iter().copied());
            assert_eq!(names_of_bytes(&bytes), Some(names));
        }
        for damaged in [&[1][..], &[1, 0], &[5, 0, b'a'], &[1, 0, 0xff]] {
            assert_eq!(names_of_bytes(damaged), None);
        }
    }

    #[test]
    fn a_short_value_has_no_record() {
        assert_eq!((shape_count(&[1, 2]), record_of(&[1, 2])), (None, &[][..]));
        let value = value_of(7, b"record");
        assert_eq!((shape_count(&value), record_of(&value)), (Some(7), &b"record"[..]));
    }
}
