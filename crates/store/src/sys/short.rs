//! Appends and compares short byte strings without calling the C library.
//!
//! Keys, and the values of a dict, are some ten bytes long. Calling the C library for them
//! takes longer than moving them, and one put of a row moved bytes eight times. Longer strings are
//! left to it.

use pellucid_record::encode::copy;

/// Append two parts.
#[inline]
pub(crate) fn push(bytes: &mut Vec<u8>, parts: [&[u8]; 2]) {
    const SHORT: usize = 56;
    let [first, second] = parts;
    let (size, start) = (first.len() + second.len(), bytes.len());
    if size > SHORT {
        bytes.extend_from_slice(first);
        return bytes.extend_from_slice(second);
    }
    bytes.extend_from_slice(&[0; SHORT]);
    if let Some((head, tail)) = bytes.get_mut(start..).and_then(|room| room.split_at_mut_checked(first.len()))
        && let Some(tail) = tail.get_mut(..second.len())
    {
        copy(head, first);
        copy(tail, second);
    }
    bytes.truncate(start + size);
}

/// Whether both are equal.
#[inline]
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    #[inline]
    fn ends<const N: usize>(bytes: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
        (bytes.first_chunk(), bytes.last_chunk())
    }
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        8..=16 => ends::<8>(one) == ends::<8>(other),
        17..=32 => ends::<16>(one) == ends::<16>(other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_are_as_the_library_has_them() {
        for size in 0..70_u8 {
            let part: Vec<u8> = (1..=size).collect();
            let mut bytes = b"before".to_vec();
            let (first, second) = part.split_at(part.len() * 2 / 3);
            push(&mut bytes, [first, second]);
            assert_eq!(bytes, [&b"before"[..], &part].concat());
            assert!(is_same(&part, &part.clone()));
            assert!(!is_same(&part, &bytes));
            for place in 0..part.len() {
                let mut other = part.clone();
                other[place] ^= 0x10;
                assert!(!is_same(&part, &other), "{size} bytes, byte {place}");
            }
        }
    }
}
