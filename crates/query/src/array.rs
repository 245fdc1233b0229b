//! Reads elements of stored NumPy arrays, without NumPy.
//!
//! An element is what `numpy.rs` makes of it. Times, texts and structures are left to NumPy: here
//! they are no values.

use pellucid_record::layout::tag;
use pellucid_record::payload::{self, Ndarray};
use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Damage, Shapes, Value};

use crate::numpy::element;

/// An array of numbers or bools.
pub struct Array<'a> {
    /// Where it is stored.
    pub stored: Ndarray<'a>,
    /// The type of its elements, as NumPy's `dtype.str` has it.
    pub dtype: &'a str,
    /// The size of an element.
    pub item_size: usize,
    /// The length of each dimension.
    pub dimensions: Vec<usize>,
}

impl<'a> Array<'a> {
    /// The array in a slot, also one that is stored outside the record; None for other values, for
    /// scalars of NumPy, and for arrays of other elements.
    ///
    /// # Errors
    /// Damage of the array.
    pub fn of_slot<S: Shapes + ?Sized>(
        slot: &Slot<'a>,
        record: &'a [u8],
        shapes: &'a S,
    ) -> Result<Option<Self>, Corrupt> {
        match *slot {
            Slot::Heap { tag: tag::OVERFLOW, payload, offset } => {
                let overflow = payload::overflow(payload);
                let overflow = overflow.ok_or_else(|| Corrupt::new(Damage::Payload, offset as usize))?;
                if overflow.tag != tag::NDARRAY {
                    return Ok(None);
                }
                match shapes.overflow(&overflow)? {
                    Some(bytes) => Self::of_slot(&payload::overflow_slot(&overflow, bytes), bytes, shapes),
                    None => Ok(None),
                }
            }
            Slot::Heap { tag: tag::NDARRAY, payload, offset } => {
                let stored = payload::ndarray(record, shapes, offset, payload.len() as u32)?;
                Ok(Self::of(stored, record))
            }
            _ => Ok(None),
        }
    }

    fn of(stored: Ndarray<'a>, record: &'a [u8]) -> Option<Self> {
        let Slot::Str(dtype) = stored.dtype else { return None };
        let dtype = std::str::from_utf8(dtype).ok()?;
        let is_number = matches!(dtype.as_bytes().get(1), Some(b'b' | b'i' | b'u' | b'f'));
        let item_size = dtype.get(2..)?.parse().ok().filter(|size| *size > 0)?;
        if stored.is_scalar || !is_number {
            return None;
        }
        let dimension = |index| usize::try_from(stored.shape.int(record, index)?).ok();
        let dimensions = (0..stored.shape.count).map(dimension).collect::<Option<Vec<_>>>()?;
        Some(Self { stored, dtype, item_size, dimensions })
    }

    /// How many elements it has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.stored.data.len() / self.item_size
    }

    /// The element at a place in memory.
    #[must_use]
    pub fn element(&self, place: usize) -> Option<Value> {
        let start = place.checked_mul(self.item_size)?;
        element(self.dtype, self.stored.data.get(start..start.checked_add(self.item_size)?)?)
    }

    /// The element at an index for each dimension, where negative ones count from the end; None
    /// if there is none.
    #[must_use]
    pub fn at(&self, indexes: &[i64]) -> Option<Value> {
        if indexes.is_empty() || indexes.len() != self.dimensions.len() {
            return None;
        }
        let (mut place, mut step) = (0, 1);
        let mut add = |(index, length): (&i64, &usize)| {
            let length = i64::try_from(*length).ok()?;
            let index = if *index < 0 { index.checked_add(length)? } else { *index };
            if !(0..length).contains(&index) {
                return None;
            }
            place += usize::try_from(index).ok()? * step;
            step *= usize::try_from(length).ok()?;
            Some(())
        };
        // The dimension that changes fastest in memory is the first or the last one.
        let mut pairs = indexes.iter().zip(&self.dimensions);
        if self.stored.is_fortran {
            pairs.try_for_each(&mut add)?;
        } else {
            pairs.rev().try_for_each(&mut add)?;
        }
        self.element(place)
    }

    /// Whether two arrays have the same type of elements, dimensions and order in memory.
    #[must_use]
    pub fn is_like(&self, dtype: &str, dimensions: &[usize]) -> bool {
        self.dtype == dtype && self.dimensions == dimensions && !self.has_columns_first()
    }

    /// Whether it is stored column by column, and that makes a difference.
    #[must_use]
    pub fn has_columns_first(&self) -> bool {
        self.stored.is_fortran && self.dimensions.len() > 1
    }
}

/// A number or a bool as it stands in a slot; None for other values, which need a record.
#[must_use]
pub fn slot_of(value: &Value) -> Option<Slot<'static>> {
    match value {
        Value::Int(value) => Some(Slot::Int(*value)),
        Value::Float(value) => Some(Slot::Float(value.0)),
        Value::Bool(value) => Some(Slot::Bool(*value)),
        _ => None,
    }
}
