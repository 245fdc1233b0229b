//! What do the numbers add up to?

/// A sum as Python's own: ints exactly, floats with Neumaier's compensation (as `sum` since 3.12).
///
/// ```
/// use pellucid_query::Sum;
/// let mut sum = Sum::default();
/// for _ in 0..10 {
///     sum.add_float(0.1);
/// }
/// assert_eq!((sum.float(), sum.count()), (1.0, 10));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    ints: i128,
    floats: f64,
    lost: f64,
    int_count: u64,
    float_count: u64,
}

impl Sum {
    /// Adds an int. (An i128 holds 2^64 of them.)
    #[inline]
    pub fn add_int(&mut self, value: i64) {
        self.ints += i128::from(value);
        self.int_count += 1;
    }

    /// Adds a float.
    #[inline]
    pub fn add_float(&mut self, value: f64) {
        let total = self.floats + value;
        self.lost += if self.floats.abs() >= value.abs() {
            (self.floats - total) + value
        } else {
            (value - total) + self.floats
        };
        self.floats = total;
        self.float_count += 1;
    }

    /// Adds what another sum has come to.
    pub fn add(&mut self, other: &Self) {
        self.ints += other.ints;
        self.int_count += other.int_count;
        let count = self.float_count + other.float_count;
        self.add_float(other.floats);
        self.lost += other.lost;
        self.float_count = count;
    }

    /// How many numbers were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.int_count + self.float_count
    }

    /// The sum, if it is of ints alone.
    #[must_use]
    pub fn int(&self) -> Option<i128> {
        (self.float_count == 0).then_some(self.ints)
    }

    /// The sum as a float.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a float was asked for")]
    pub fn float(&self) -> f64 {
        // The compensation is NaN once an infinity was added; then the plain sum is right.
        let floats = if self.lost.is_finite() { self.floats + self.lost } else { self.floats };
        self.ints as f64 + floats
    }
}
