//! Sorts many keys by comparing eight of their bytes as a number.
//!
//! The eight bytes are those after the prefix that all keys share; they nearly always decide. So a
//! checkpoint, or a walk over a memtable, sorts a million keys without comparing two whole keys. Of
//! the numbers, only as many bytes are sorted by as tell most of them apart.

use super::{common_size, number_of};

/// Sort the places by their keys. No two keys are equal.
pub(crate) fn sort_by_key<'a>(places: &mut [u32], key: impl Fn(u32) -> &'a [u8]) {
    let shared = shared_size(places, &key);
    let mut numbered: Vec<(u64, u32)> =
        places.iter().map(|place| (number_of(key(*place), shared), *place)).collect();
    let mask = sort_by_number(&mut numbered);
    for same in numbered.chunk_by_mut(|(one, _), (other, _)| one & mask == other & mask) {
        if same.len() > 1 {
            same.sort_unstable_by(|(one, first), (other, second)| {
                one.cmp(other).then_with(|| key(*first).cmp(key(*second)))
            });
        }
    }
    for (place, (_, sorted)) in places.iter_mut().zip(numbered) {
        *place = sorted;
    }
}

/// The length of the prefix that all keys share. A zero among the first eight bytes may be padding
/// after a key's end; a key that ends sorts before those that go on.
fn shared_size<'a>(places: &[u32], key: &impl Fn(u32) -> &'a [u8]) -> usize {
    let Some(first) = places.first().map(|place| key(*place)) else { return 0 };
    let number = number_of(first, 0);
    let differing = places.iter().fold(0, |bits, place| bits | (number_of(key(*place), 0) ^ number));
    if differing != 0 {
        return differing.leading_zeros() as usize / 8;
    }
    let shared = places.iter().fold(first, |shared, place| {
        let key = key(*place);
        if key.starts_with(shared) {
            return shared;
        }
        shared.get(..common_size(shared, key)).unwrap_or_default()
    });
    shared.len()
}

/// Sort by the numbers: many of them byte by byte, without comparisons, by as many leading bytes as
/// are likely to tell most of them apart. Returns a mask of the bits sorted by; numbers that agree
/// in those bits are in no particular order.
fn sort_by_number(numbered: &mut Vec<(u64, u32)>) -> u64 {
    const MANY: usize = 256;
    if numbered.len() < MANY {
        numbered.sort_unstable_by_key(|(number, _)| *number);
        return u64::MAX;
    }
    if numbered.is_sorted_by_key(|(number, _)| *number) {
        return u64::MAX;
    }
    let (mut counts, mut chosen, mut combinations) = ([[0_u32; 256]; 8], 8, 1_usize);
    for (index, counts) in counts.iter_mut().enumerate().rev() {
        for (number, _) in &*numbered {
            if let Some(count) = counts.get_mut(usize::from((number >> (8 * index)) as u8)) {
                *count += 1;
            }
        }
        chosen = index;
        combinations = combinations.saturating_mul(counts.iter().filter(|count| **count > 0).count());
        if combinations >= numbered.len() {
            break;
        }
    }
    let mut other = vec![(0, 0); numbered.len()];
    for (index, counts) in counts.iter_mut().enumerate().skip(chosen) {
        // All numbers have the same byte here.
        if counts.iter().any(|count| *count as usize == numbered.len()) {
            continue;
        }
        let mut place = 0;
        for count in counts.iter_mut() {
            place += std::mem::replace(count, place);
        }
        for one in &*numbered {
            let byte = (one.0 >> (8 * index)) as u8;
            if let Some(place) = counts.get_mut(usize::from(byte))
                && let Some(target) = other.get_mut(*place as usize)
            {
                *target = *one;
                *place += 1;
            }
        }
        std::mem::swap(numbered, &mut other);
    }
    u64::MAX << (8 * chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_are_sorted_as_few_are() {
        // Fewer keys than the limit for byte-by-byte sorting, and more. Bytes with much, little or
        // no information, so that a few leading bytes tell all keys apart, or not even all of them
        // do. Keys that end within their number or before it.
        let number = |index: u64| index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hex = |index: u64| format!("{:016x}", number(index)).into_bytes();
        let kinds: [&dyn Fn(u64) -> Vec<u8>; 7] = [
            &|index| number(index).to_be_bytes().to_vec(),
            &|index| index.to_be_bytes().to_vec(),
            &|index| [&b"all of them begin so "[..], &hex(index)].concat(),
            &|index| [&hex(index)[..2], &[b'0'; 5], &hex(index)].concat(),
            &|index| vec![0; index as usize],
            &|index| [&b"all of them begin so "[..], &vec![0; index as usize]].concat(),
            &|index| [&vec![1; (index % 11) as usize][..], &index.to_le_bytes()].concat(),
        ];
        for (kind, key) in kinds.into_iter().enumerate() {
            for count in [1, 2, 255, 256, 3_000] {
                let keys: Vec<Vec<u8>> = (0..count).map(key).collect();
                let mut places: Vec<u32> = (0..count as u32).collect();
                let mut expected = places.clone();
                expected.sort_unstable_by_key(|place| &keys[*place as usize]);
                sort_by_key(&mut places, |place| &keys[place as usize]);
                assert_eq!(places, expected, "kind {kind}, {count} keys");
                places.reverse();
                sort_by_key(&mut places, |place| &keys[place as usize]);
                assert_eq!(places, expected, "kind {kind}, {count} keys, the last first");
            }
        }
    }

    #[test]
    fn no_keys_are_in_order() {
        sort_by_key(&mut [], |_| &[]);
    }
}
