//! In which order do many keys come?
//!
//! By eight bytes behind what all of them share, as numbers, which decide nearly always: a checkpoint and a walk over what waits sort a million
//! of them without looking at a key twice.

/// The places of keys, of which no two are the same, in the order of the keys.
pub(crate) fn in_order(keys: &[&[u8]]) -> Vec<u32> {
    let first = keys.first().copied().unwrap_or_default();
    let shared = keys.iter().fold(first, |shared, key| {
        if key.starts_with(shared) {
            return shared;
        }
        let same = shared.iter().zip(*key).take_while(|(one, other)| one == other).count();
        shared.get(..same).unwrap_or_default()
    });
    // By numbers, which lie at hand: to look at two keys for each comparison took half of this.
    let numbers = keys.iter().map(|key| number_of(key, shared.len()));
    let mut numbered: Vec<(u64, u32)> = numbers.zip(0..).collect();
    sort_by_number(&mut numbered);
    let key = |place: u32| keys.get(place as usize).copied().unwrap_or_default();
    for same in numbered.chunk_by_mut(|(one, _), (other, _)| one == other) {
        if same.len() > 1 {
            same.sort_unstable_by_key(|(_, place)| key(*place));
        }
    }
    numbered.into_iter().map(|(_, place)| place).collect()
}

/// Sort by the numbers: byte by byte from the last, without a comparison, where they are many and not in order as they are.
fn sort_by_number(numbered: &mut Vec<(u64, u32)>) {
    const MANY: usize = 256;
    if numbered.len() < MANY {
        return numbered.sort_unstable_by_key(|(number, _)| *number);
    }
    if numbered.is_sorted_by_key(|(number, _)| *number) {
        return;
    }
    let mut counts = [[0_u32; 256]; 8];
    for (number, _) in &*numbered {
        for (counts, byte) in counts.iter_mut().zip(number.to_le_bytes()) {
            if let Some(count) = counts.get_mut(usize::from(byte)) {
                *count += 1;
            }
        }
    }
    let mut other = vec![(0, 0); numbered.len()];
    for (index, counts) in counts.iter_mut().enumerate() {
        // The same byte in all of them.
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
}

/// Eight bytes of a key, behind the first few, as a number: where two differ, they are in the order of the keys.
fn number_of(key: &[u8], skipped: usize) -> u64 {
    let rest = key.get(skipped..).unwrap_or_default();
    let mut bytes = [0; 8];
    if let Some(whole) = rest.first_chunk() {
        bytes = *whole;
    } else {
        for (place, byte) in bytes.iter_mut().zip(rest) {
            *place = *byte;
        }
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_numbers_are_sorted_as_few_are() {
        for (count, bits) in [(255, 64), (256, 64), (5_000, 64), (5_000, 20), (5_000, 3), (5_000, 0)] {
            let number = |index: u32| u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let shortened = |index| number(index) & ((1_u128 << bits) - 1) as u64;
            let mut numbered: Vec<(u64, u32)> = (0..count).map(|index| (shortened(index), index)).collect();
            let mut expected = numbered.clone();
            expected.sort_unstable();
            sort_by_number(&mut numbered);
            assert!(numbered.is_sorted_by_key(|(number, _)| *number));
            numbered.sort_unstable();
            assert_eq!(numbered, expected);
        }
    }
}
