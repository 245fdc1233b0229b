//! Adds up ints and floats exactly.
//!
//! The sum is rounded once, at the end. So it is the same in any order, by an index or a scan, and
//! in however many parts it was added up. Two floats hold most sums; `Wide` holds the others.

/// A sum: exact for ints, and like `math.fsum` for floats.
///
/// ```
/// use pellucid_query::Sum;
/// let mut sum = Sum::default();
/// for value in [0.1, 1e100, 0.2, -1e100] {
///     sum.add_float(value);
/// }
/// assert_eq!((sum.float(), sum.count()), (0.1 + 0.2, 4));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sum {
    ints: i128,
    /// The sum of the floats is exactly the sum of these two and of `wide`.
    high: f64,
    low: f64,
    wide: Option<Box<Wide>>,
    int_count: u64,
    float_count: u64,
}

impl Sum {
    /// Adds an int. An i128 has room for 2^64 of them.
    #[inline]
    pub fn add_int(&mut self, value: i64) {
        self.ints += i128::from(value);
        self.int_count += 1;
    }

    /// Adds a float.
    #[inline]
    pub fn add_float(&mut self, value: f64) {
        self.float_count += 1;
        self.put(value);
    }

    #[inline]
    fn put(&mut self, value: f64) {
        if let Some(wide) = &mut self.wide {
            wide.add(value);
            return;
        }
        let (high, rest) = two_sum(self.high, value);
        let (low, lost) = two_sum(self.low, rest);
        // Two floats cannot hold the sum. `lost` is NaN beside an infinity, and if the sum is too
        // large for a float.
        if lost != 0.0 || lost.is_nan() {
            self.widen().add(value);
            return;
        }
        (self.high, self.low) = (high, low);
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self) -> &mut Wide {
        let wide = self.wide.get_or_insert_default();
        wide.add(std::mem::take(&mut self.high));
        wide.add(std::mem::take(&mut self.low));
        wide
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Self) {
        self.ints += other.ints;
        self.int_count += other.int_count;
        self.float_count += other.float_count;
        if let Some(wide) = &other.wide {
            self.widen().merge(wide);
        }
        self.put(other.high);
        self.put(other.low);
    }

    /// How many numbers were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.int_count + self.float_count
    }

    /// The sum, if only ints were added.
    #[must_use]
    pub fn int(&self) -> Option<i128> {
        (self.float_count == 0).then_some(self.ints)
    }

    /// The float that is nearest to the sum.
    #[must_use]
    pub fn float(&self) -> f64 {
        if self.wide.is_none() && self.ints == 0 {
            return self.high + self.low;
        }
        self.whole().float()
    }

    /// The float that is nearest to the sum of this and of a larger int: its sign, and the
    /// little-endian bytes of its size. None if that int or the result is too large for a float.
    #[must_use]
    pub fn float_with(&self, is_negative: bool, size: &[u8]) -> Option<f64> {
        if size.len() > FLOAT_SIZE_MAX {
            return None;
        }
        let mut whole = self.whole();
        whole.add_int(is_negative, size);
        let float = whole.float();
        (float.is_finite() || whole.special.is_some()).then_some(float)
    }

    fn whole(&self) -> Wide {
        let mut whole = self.clone();
        let wide = whole.widen();
        wide.add_int(self.ints < 0, &self.ints.unsigned_abs().to_le_bytes());
        wide.clone()
    }
}

/// The sum of two floats, and the rounding error. Together they are the exact sum (Knuth's
/// `TwoSum`).
#[inline]
fn two_sum(one: f64, other: f64) -> (f64, f64) {
    let sum = one + other;
    let part = sum - one;
    (sum, (one - (sum - part)) + (other - part))
}

const LIMB_BITS: i32 = 32;
const LIMB_MASK: i64 = (1 << LIMB_BITS) - 1;
/// The greatest float has its last bits in limb 65, and 2^64 of them carry two limbs further.
const LIMB_COUNT: usize = 69;
/// An i64 holds this many summands of 32 bits, and a carry.
const PENDING_MAX: u32 = 1 << 30;
const FRACTION_BITS: usize = 52;
/// The bytes of the greatest int that may be a float.
const FLOAT_SIZE_MAX: usize = 1024 / 8;

/// A fixed-point number with a place for each bit that a float may have: limbs of 32 bits from
/// 2^-1074 on, each in 64 bits, so that carries need not be propagated with each number.
#[derive(Clone, Debug)]
struct Wide {
    limbs: [i64; LIMB_COUNT],
    pending: u32,
    /// The sum of the infinities and NaNs among the numbers, which have no bits.
    special: Option<f64>,
}

impl Default for Wide {
    fn default() -> Self {
        Self { limbs: [0; LIMB_COUNT], pending: 0, special: None }
    }
}

impl Wide {
    fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = (bits >> FRACTION_BITS & 0x7FF) as usize;
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        if exponent == 0x7FF {
            // The sum of both infinities is NaN, as is any sum with NaN.
            self.special = Some(self.special.map_or(value, |special| special + value));
            return;
        }
        // A subnormal has the same unit as the least normal floats, but not their implicit first
        // bit.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << FRACTION_BITS, exponent - 1) };
        let shifted = u128::from(mantissa) << (shift % 32);
        let (low, high) = (shifted as u64, (shifted >> 64) as i64);
        let parts = [low.cast_signed() & LIMB_MASK, (low >> LIMB_BITS).cast_signed(), high];
        // All ones if the number is negative. Signs are as likely one as the other, so that a
        // branch could not be predicted.
        let sign = value.to_bits().cast_signed() >> 63;
        let limbs = self.limbs.get_mut(shift / 32..).and_then(<[i64]>::first_chunk_mut::<3>);
        if let Some(limbs) = limbs {
            for (limb, part) in limbs.iter_mut().zip(parts) {
                *limb += (part ^ sign) - sign;
            }
        }
        self.pending += 1;
        if self.pending >= PENDING_MAX {
            self.carry();
        }
    }

    /// Adds an int of at most `FLOAT_SIZE_MAX` little-endian bytes.
    fn add_int(&mut self, is_negative: bool, size: &[u8]) {
        let mut unit = if is_negative { -1.0 } else { 1.0 };
        for bytes in size.chunks(LIMB_BITS as usize / 8) {
            let limb = bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u32::from(*byte));
            self.add(f64::from(limb) * unit);
            unit *= f64::from(2).powi(LIMB_BITS);
        }
    }

    fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (limb, more) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += more;
        }
        self.pending = 1;
        if let Some(special) = other.special {
            self.special = Some(self.special.map_or(special, |own| own + special));
        }
    }

    /// Leaves 32 bits in each limb, and the sign in the last.
    fn carry(&mut self) {
        let mut carried = 0;
        let [limbs @ .., last] = &mut self.limbs;
        for limb in limbs {
            let sum = *limb + carried;
            carried = sum >> LIMB_BITS;
            *limb = sum & LIMB_MASK;
        }
        *last += carried;
        self.pending = 0;
    }

    /// The nearest float; if two are as near, the even one.
    fn float(&self) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let mut whole = self.clone();
        whole.carry();
        let is_negative = whole.limbs.last().is_some_and(|last| *last < 0);
        if is_negative {
            whole.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            whole.carry();
        }
        let size = whole.size();
        if is_negative { -size } else { size }
    }

    /// The nearest float for limbs that are carried and have no sign.
    fn size(&self) -> f64 {
        let Some(top) = self.limbs.iter().rposition(|limb| *limb != 0) else { return 0.0 };
        // The top four limbs have all bits of a float, and the next one. Of the other limbs it
        // matters only whether they are 0.
        let limb = |back: usize| top.checked_sub(back).and_then(|place| self.limbs.get(place)).copied();
        let bits = (0..4)
            .fold(0, |bits, back| bits << LIMB_BITS | u128::from(limb(back).unwrap_or(0).unsigned_abs()));
        let has_more = self.limbs.iter().take(top.saturating_sub(3)).any(|limb| *limb != 0);
        let bit_count = 128 - bits.leading_zeros() as usize;
        // The place of the first bit, counted from 2^-1074: the top limb, which is not 0, has bits
        // 96 to 127.
        let place = 32 * top + bit_count - 97;
        if place <= FRACTION_BITS {
            // A subnormal, or one of the least normal floats: all bits are there, and its code is
            // the number itself.
            return f64::from_bits((bits >> (bit_count - 1 - place)) as u64);
        }
        let shift = bit_count - 1 - FRACTION_BITS;
        let (kept, rest, half) = ((bits >> shift) as u64, bits & ((1 << shift) - 1), 1 << (shift - 1));
        let is_up = rest > half || rest == half && (has_more || kept & 1 == 1);
        let exponent = (place - FRACTION_BITS + 1) as u64;
        if exponent >= 0x7FF {
            return f64::INFINITY;
        }
        // A number that is rounded up to the next power of two carries into the exponent.
        f64::from_bits((exponent << FRACTION_BITS) + (kept - (1 << FRACTION_BITS)) + u64::from(is_up))
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::{BigInt, Sign};
    use num_traits::Signed;

    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// A float in units of 2^-1074.
    fn exact(value: f64) -> BigInt {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7FF) as u32, bits & ((1 << 52) - 1));
        let size = match exponent {
            0 => BigInt::from(fraction),
            exponent => BigInt::from(fraction | 1 << 52) << (exponent - 1),
        };
        if value < 0.0 { -size } else { size }
    }

    /// Whether no other float is nearer to a sum in units of 2^-1074.
    fn is_nearest(found: f64, sum: &BigInt) -> bool {
        let distance = |value: f64| (exact(value) - sum).abs();
        let is_even = found.to_bits() & 1 == 0;
        [found.next_up(), found.next_down()]
            .into_iter()
            .filter(|other| other.is_finite())
            .all(|other| distance(found) < distance(other) || distance(found) == distance(other) && is_even)
    }

    #[test]
    fn a_sum_is_the_nearest_float_in_any_order_and_in_any_parts() {
        let mut state = 88_172_645_463_325_252;
        for round in 0..3000 {
            let spread = [1, 4, 60, 2000][round % 4];
            let mut values: Vec<f64> = (0..random(&mut state) % 40)
                .map(|_| {
                    let exponent = (1023 - spread / 2 + random(&mut state) % spread) << 52;
                    let sign = random(&mut state) << 63;
                    f64::from_bits(sign | exponent | random(&mut state) >> 12)
                })
                .collect();
            if round % 3 == 0 {
                let opposite: Vec<f64> = values.iter().skip(1).map(|value| -value).collect();
                values.extend(opposite);
            }
            if round % 5 == 0 {
                values.extend([5e-324, -5e-324, f64::MIN_POSITIVE, 5e-324]);
            }
            let ints = [0, 1, -7, i64::MAX, i64::MIN][round % 5];
            let expected =
                values.iter().map(|value| exact(*value)).sum::<BigInt>() + (BigInt::from(ints) << 1074);
            let mut found = Vec::new();
            for part_count in [1, 2, 7] {
                let mut sums = vec![Sum::default(); part_count];
                for (place, value) in values.iter().enumerate() {
                    sums[place % part_count].add_float(*value);
                }
                let mut whole = Sum::default();
                whole.add_int(ints);
                sums.iter().rev().for_each(|part| whole.add(part));
                assert_eq!(whole.count(), values.len() as u64 + 1);
                found.push(whole.float().to_bits());
                values.reverse();
            }
            assert!(found.iter().all(|bits| *bits == found[0]), "{values:?} {found:?}");
            assert!(is_nearest(f64::from_bits(found[0]), &expected), "{values:?}");
        }
    }

    #[test]
    fn a_sum_with_a_large_int_is_the_nearest_float() {
        let mut state = 3_141_592_653_589_793;
        for _ in 0..2000 {
            let mut sum = Sum::default();
            let float = f64::from_bits(random(&mut state) >> 2 | 1 << 61);
            let int = random(&mut state).cast_signed();
            sum.add_float(float);
            sum.add_int(int);
            let size: Vec<u8> =
                (0..random(&mut state) % 128).map(|_| random(&mut state).to_le_bytes()[0]).collect();
            let sign = if random(&mut state) & 1 == 0 { Sign::Plus } else { Sign::Minus };
            let large = BigInt::from_bytes_le(sign, &size);
            let expected = exact(float) + ((BigInt::from(int) + &large) << 1074);
            assert!(is_nearest(sum.float_with(sign == Sign::Minus, &size).unwrap(), &expected));
        }
        let mut sum = Sum::default();
        sum.add_float(0.5);
        assert_eq!(sum.float_with(false, &[255; 128]), None, "the nearest float is beyond the greatest");
        assert_eq!(sum.float_with(false, &[0; 129]), None);
        sum.add_float(f64::INFINITY);
        assert_eq!(sum.float_with(true, &[255; 128]), Some(f64::INFINITY));
    }

    #[test]
    fn infinities_and_what_is_too_large_come_to_what_python_has() {
        let sum = |values: &[f64]| {
            let mut sum = Sum::default();
            for value in values {
                sum.add_float(*value);
            }
            sum.float()
        };
        let (huge, infinite) = (f64::MAX, f64::INFINITY);
        assert_eq!(sum(&[huge, huge, -huge]).to_bits(), huge.to_bits());
        assert_eq!(sum(&[huge, huge]).to_bits(), infinite.to_bits());
        assert_eq!(sum(&[-huge, -huge]).to_bits(), (-infinite).to_bits());
        let half_a_unit = f64::from(2).powi(970);
        assert_eq!(sum(&[huge, half_a_unit]).to_bits(), infinite.to_bits());
        assert_eq!(sum(&[huge, half_a_unit.next_down()]).to_bits(), huge.to_bits());
        assert_eq!(sum(&[1.0, infinite, 2.0]).to_bits(), infinite.to_bits());
        assert_eq!(sum(&[-infinite, -huge]).to_bits(), (-infinite).to_bits());
        assert!(sum(&[infinite, 1.0, -infinite]).is_nan() && sum(&[f64::NAN, infinite]).is_nan());
        assert_eq!(sum(&[-0.0]).to_bits(), 0);
    }

    #[test]
    fn what_is_alike_needs_no_wide_sum() {
        let mut sum = Sum::default();
        (0..1_000_000).for_each(|number| sum.add_float(f64::from(number % 977) * 0.01));
        assert!(sum.wide.is_none());
    }
}
