//! The type of a column: joining the types of its values, and the Arrow type that results.
//!
//! A [`Type`] describes all values seen so far. Joining two types gives one that holds the values
//! of both. A join only widens a type and never loses a digit: values that no other type can hold
//! together become text.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

/// The type of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Only None or missing values so far.
    Null,
    /// Bools.
    Bool,
    /// Ints that fit in 64 bits.
    Int {
        /// Every int so far is exactly representable as a double.
        is_exact: bool,
    },
    /// Floats of arrays of 32 bits, and other floats that are exactly representable as such.
    Single,
    /// Floats, and ints that are exactly representable as floats.
    Float,
    /// Decimals, and ints of up to 38 digits.
    Decimal {
        /// Maximum number of digits before the decimal point.
        whole: u8,
        /// Maximum number of digits after the decimal point.
        scale: u8,
    },
    /// Strings.
    Str,
    /// Bytes and bytearrays.
    Bytes,
    /// Dates.
    Date,
    /// Naive datetimes.
    Datetime,
    /// Aware datetimes.
    Aware,
    /// Naive times of day.
    Time,
    /// Timedeltas.
    Duration,
    /// UUIDs.
    Uuid,
    /// Lists, tuples and sets.
    List(Box<Type>),
    /// Dicts whose keys are strings.
    Struct(Vec<(Box<str>, Type)>),
    /// Values of types that have nothing in common, or of a type that Arrow does not have, as text.
    Text,
}

/// Maximum number of digits of a Decimal128.
pub const DECIMAL_DIGIT_COUNT_MAX: u8 = 38;
/// Maximum number of digits of a 64-bit int.
pub const INT_DIGIT_COUNT_MAX: u8 = 19;
/// The key in a field's metadata that holds the name of its extension type.
pub const EXTENSION_NAME: &str = "ARROW:extension:name";
/// The name of the extension type for UUIDs.
pub const UUID_EXTENSION: &str = "arrow.uuid";

/// The double nearest to an int.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "the next one is asked for")]
#[must_use]
pub fn double(value: i64) -> f64 {
    value as f64
}

/// Whether an int is exactly representable as a double.
#[inline]
pub fn is_exact(value: i64) -> bool {
    // All ints up to 2**53 are. Larger ones are converted to a double and back. `i64::MAX` is
    // excluded: its double is 2**63, which saturates to `i64::MAX` on the way back.
    value.unsigned_abs() <= 1 << 53 || (double(value) as i64 == value && value != i64::MAX)
}

impl Type {
    /// The type that holds the values of both.
    #[must_use]
    pub fn join(self, other: Type) -> Type {
        match (self, other) {
            (one, other) if one == other => one,
            (Type::Null, other) | (other, Type::Null) => other,
            (Type::Int { .. }, Type::Int { .. }) => Type::Int { is_exact: false },
            (Type::Int { is_exact: true }, Type::Float) | (Type::Float, Type::Int { is_exact: true }) => {
                Type::Float
            }
            (Type::Single, Type::Float | Type::Int { is_exact: true })
            | (Type::Float | Type::Int { is_exact: true }, Type::Single) => Type::Float,
            (one @ Type::Int { .. }, other @ Type::Decimal { .. })
            | (one @ Type::Decimal { .. }, other @ (Type::Decimal { .. } | Type::Int { .. })) => {
                let ((whole, scale), (other_whole, other_scale)) = (one.digits(), other.digits());
                let (whole, scale) = (whole.max(other_whole), scale.max(other_scale));
                if whole + scale > DECIMAL_DIGIT_COUNT_MAX {
                    Type::Text
                } else {
                    Type::Decimal { whole, scale }
                }
            }
            (Type::List(one), Type::List(other)) => Type::List(Box::new(one.join(*other))),
            (Type::Struct(fields), Type::Struct(others)) => Self::join_fields(fields, others),
            _ => Type::Text,
        }
    }

    fn join_fields(mut fields: Vec<(Box<str>, Type)>, others: Vec<(Box<str>, Type)>) -> Type {
        for (index, (name, other)) in others.into_iter().enumerate() {
            // Usually both have the same fields in the same order.
            let known = match fields.get(index) {
                Some((known, _)) if *known == name => Some(index),
                _ => fields.iter().position(|(known, _)| *known == name),
            };
            match known.and_then(|index| fields.get_mut(index)) {
                Some((_, known)) => *known = std::mem::replace(known, Type::Null).join(other),
                None => fields.push((name, other)),
            }
        }
        Type::Struct(fields)
    }

    /// The number of digits before and after the decimal point.
    fn digits(&self) -> (u8, u8) {
        match self {
            Type::Decimal { whole, scale } => (*whole, *scale),
            _ => (INT_DIGIT_COUNT_MAX, 0),
        }
    }

    /// Whether values collected as this type can be converted to `target`, a join of this type with
    /// others.
    #[must_use]
    pub fn becomes(&self, target: &Type) -> bool {
        match (self, target) {
            (Type::Null | Type::Int { .. }, Type::Int { .. })
            | (Type::Int { .. }, Type::Float | Type::Decimal { .. })
            | (Type::Single, Type::Float)
            | (Type::Decimal { .. }, Type::Decimal { .. })
            | (Type::Null, _) => true,
            (Type::List(one), Type::List(other)) => one.becomes(other),
            (Type::Struct(fields), Type::Struct(others)) => fields.iter().all(|(name, kind)| {
                others.iter().any(|(other_name, other)| other_name == name && kind.becomes(other))
            }),
            (one, other) => one == other,
        }
    }

    /// The Arrow type of the array.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        match self {
            Type::Null => DataType::Null,
            Type::Bool => DataType::Boolean,
            Type::Int { .. } => DataType::Int64,
            Type::Single => DataType::Float32,
            Type::Float => DataType::Float64,
            Type::Decimal { scale, .. } => DataType::Decimal128(DECIMAL_DIGIT_COUNT_MAX, scale.cast_signed()),
            Type::Str | Type::Text => DataType::Utf8,
            Type::Bytes => DataType::Binary,
            Type::Date => DataType::Date32,
            Type::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
            Type::Aware => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::Time => DataType::Time64(TimeUnit::Microsecond),
            Type::Duration => DataType::Duration(TimeUnit::Microsecond),
            Type::Uuid => DataType::FixedSizeBinary(16),
            Type::List(inner) => DataType::List(Arc::new(inner.field("item"))),
            Type::Struct(fields) => {
                DataType::Struct(fields.iter().map(|(name, kind)| Arc::new(kind.field(name))).collect())
            }
        }
    }

    /// An Arrow field with this name and type.
    #[must_use]
    pub fn field(&self, name: &str) -> Field {
        let field = Field::new(name, self.data_type(), true);
        match self {
            Type::Uuid => field.with_metadata([(EXTENSION_NAME, UUID_EXTENSION)]),
            _ => field,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_is_exact_where_it_survives_the_way_to_a_double_and_back() {
        for (value, expected) in [
            (0, true),
            (1 << 53, true),
            ((1 << 53) + 1, false),
            ((1 << 53) + 2, true),
            (-(1 << 53) - 1, false),
            (i64::MAX, false),
            (i64::MIN, true),
        ] {
            assert_eq!(is_exact(value), expected, "{value}");
        }
    }

    #[test]
    fn no_join_loses_a_digit() {
        let decimal = |whole, scale| Type::Decimal { whole, scale };
        assert_eq!(decimal(3, 2).join(decimal(1, 5)), decimal(3, 5));
        assert_eq!(decimal(30, 2).join(decimal(1, 9)), Type::Text);
        assert_eq!(decimal(3, 2).join(Type::Int { is_exact: true }), decimal(19, 2));
        assert_eq!(Type::Int { is_exact: false }.join(Type::Float), Type::Text);
        assert_eq!(Type::Int { is_exact: true }.join(Type::Float), Type::Float);
        assert_eq!(Type::Bool.join(Type::Int { is_exact: true }), Type::Text);
    }
}
