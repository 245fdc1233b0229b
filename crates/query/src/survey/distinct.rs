//! Counts distinct values by their hashes: exactly if they are few, else by a sketch.
//!
//! The sketch has 2^14 registers, so that its standard error is 0.8 %. The estimate is Ertl's ("New
//! cardinality estimation algorithms for `HyperLogLog` sketches", 2017), which needs no table of
//! corrections.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "estimates and shares")]

/// The bits of a hash that choose a register.
const PRECISION: u32 = 14;
const REGISTER_COUNT: usize = 1 << PRECISION;
/// The greatest rank of a register.
const RANK_MAX: usize = 64 - PRECISION as usize + 1;

/// Up to how many distinct values of all rows are counted exactly, and how many hashes are listed
/// until equal ones are removed.
const FEW_OF_ALL: usize = 512;
const LISTED_OF_ALL: usize = 2 * FEW_OF_ALL;
/// How many values of a sample are listed.
const LISTED_OF_SAMPLE: usize = 1 << 20;

/// The distinct values of a field.
#[derive(Clone)]
pub enum Distinct {
    /// The hashes of the values: of a sample each of them, of all rows at least once each.
    Listed(Vec<u64>),
    /// The registers of a sketch.
    Many(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Distinct {
    /// Adds a value of all rows or of a sample, by its hash.
    #[inline]
    pub fn add(&mut self, hash: u64, is_exact: bool) {
        match self {
            Self::Listed(hashes) => {
                hashes.push(hash);
                if hashes.len() >= if is_exact { LISTED_OF_ALL } else { LISTED_OF_SAMPLE } {
                    self.shorten(is_exact);
                }
            }
            Self::Many(registers) => raise(registers, hash),
        }
    }

    /// Removes equal hashes of a long list, or makes it a sketch.
    #[cold]
    fn shorten(&mut self, is_exact: bool) {
        let Self::Listed(hashes) = self else { return };
        if is_exact {
            hashes.sort_unstable();
            hashes.dedup();
            if hashes.len() <= FEW_OF_ALL {
                return;
            }
        }
        let mut registers = vec![0; REGISTER_COUNT].into_boxed_slice();
        for hash in hashes {
            raise(&mut registers, *hash);
        }
        *self = Self::Many(registers);
    }

    /// Adds the values that another one has met.
    pub fn merge(&mut self, other: Self, is_exact: bool) {
        let others = match other {
            Self::Many(registers) => registers,
            Self::Listed(hashes) => {
                for hash in hashes {
                    self.add(hash, is_exact);
                }
                return;
            }
        };
        if let Self::Many(registers) = self {
            for (register, other) in registers.iter_mut().zip(others) {
                *register = (*register).max(other);
            }
        } else {
            let few = std::mem::replace(self, Self::Many(others));
            self.merge(few, is_exact);
        }
    }

    /// The number of distinct values that were met, and how many of them were met once; that is
    /// not known of many.
    #[must_use]
    pub fn counts(mut self) -> (f64, Option<f64>) {
        match &mut self {
            Self::Listed(hashes) => {
                hashes.sort_unstable();
                let (mut count, mut once) = (0, 0);
                for equal in hashes.chunk_by(u64::eq) {
                    count += 1;
                    once += usize::from(equal.len() == 1);
                }
                (f64::from(count), Some(once as f64))
            }
            Self::Many(registers) => (estimate(registers), None),
        }
    }
}

#[inline]
fn raise(registers: &mut [u8], hash: u64) {
    let index = (hash >> (64 - PRECISION)) as usize;
    // The bit at the end ends the zeros of a hash that has no other bit.
    let rank = (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() as u8 + 1;
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(rank);
    }
}

fn estimate(registers: &[u8]) -> f64 {
    let mut counts = [0.0; RANK_MAX + 1];
    for register in registers {
        if let Some(count) = counts.get_mut(usize::from(*register)) {
            *count += 1.0;
        }
    }
    let size = REGISTER_COUNT as f64;
    let [zeros, middle @ .., last] = counts;
    let mut sum = size * tau(1.0 - last / size);
    for count in middle.iter().rev() {
        sum = 0.5 * (sum + count);
    }
    sum += size * sigma(zeros / size);
    size * size / (2.0 * std::f64::consts::LN_2 * sum)
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z >= before {
            return z / 3.0;
        }
    }
}

/// The number of distinct values among `all`, of which `read` were read by chance.
///
/// `PostgreSQL` estimates it in the same way: by Haas and Stokes' Duj1, from the number of values
/// that were met once.
#[must_use]
pub fn of_sample(distinct: Distinct, read: u64, all: u64) -> u64 {
    let (met, once) = distinct.counts();
    let Some(once) = once.filter(|_| read > 0 && all > read) else { return (met.round() as u64).min(all) };
    let (read, all) = (read as f64, all as f64);
    let estimate = read * met / (read - once + once * read / all);
    // `met` of hostile rows may be above `all`.
    estimate.max(met).min(all).round() as u64
}

#[cfg(test)]
mod tests {
    use super::{Distinct, of_sample};
    use crate::survey::values::mixed;

    fn of(hashes: impl Iterator<Item = u64>, is_exact: bool) -> Distinct {
        let mut distinct = Distinct::default();
        hashes.for_each(|number| distinct.add(mixed(number), is_exact));
        distinct
    }

    #[test]
    fn few_values_are_counted_exactly_and_many_within_three_percent() {
        for count in [0, 1, 512, 513, 5_000, 20_000, 40_000, 300_000, 1_000_000] {
            // Each value twice, in two parts.
            let mut all = of(0..count / 2, true);
            all.merge(of((0..count).rev(), true), true);
            let (found, _) = all.counts();
            let error = (found - count as f64).abs();
            assert!(
                if count <= 512 { error == 0.0 } else { error < count as f64 * 0.03 },
                "{count}: {found}"
            );
        }
    }

    #[test]
    fn a_sample_tells_few_values_from_values_that_all_differ() {
        assert_eq!(of_sample(of((0..500).map(|number| number % 7), false), 500, 1_000_000), 7);
        assert_eq!(of_sample(of(0..500, false), 500, 1_000_000), 1_000_000);
        let of_many = of_sample(of(0..2_000_000, false), 2_000_000, 3_000_000);
        assert!(of_many.abs_diff(2_000_000) < 60_000, "{of_many}");
        assert_eq!(of_sample(Distinct::default(), 0, 1_000_000), 0);
    }
}
