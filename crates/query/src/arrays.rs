//! Gathers the arrays of a field in one piece of memory, for one array with a dimension more.
//!
//! All of them must have the same shape and type of elements. At any other value it gives up, and
//! the caller makes a list of them.

use std::ops::ControlFlow;

use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Shapes};
use pellucid_store::Row;

use crate::array::Array;
use crate::column::Column;
use crate::numbers::Outcome;
use crate::walk::{Walk, damaged, for_each};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// As many dimensions as an array of NumPy 1 has at most; that of all rows has one more.
const DIMENSION_COUNT_MAX: usize = 32;

/// Arrays of one type and shape, one after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrays {
    /// The type of the elements, as NumPy's `dtype.str` has it; empty as long as no row has an
    /// array.
    pub dtype: String,
    /// The shape of each array.
    pub dimensions: Vec<usize>,
    /// How many rows there are.
    pub rows: usize,
    /// The rows without an array. Their bytes are zeros.
    pub missing: Vec<usize>,
    /// The bytes of all arrays, in pieces.
    pub pieces: Vec<Vec<u8>>,
}

/// Gathers the arrays of a column in all rows.
#[derive(Clone)]
pub struct GatherArrays(pub Column);

impl Work for GatherArrays {
    type Result = Outcome<Arrays>;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let Self(mut column) = self;
        let (mut found, mut data) = (Arrays::default(), Vec::new());
        let foreign = for_each(rows, stop.check(), |row| {
            match add(&mut column, &row, shapes, &mut found, &mut data) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(Ok(())),
                Err(error) => damaged(&row, error),
            }
        })?;
        if foreign.is_some() {
            return Ok(Outcome::Foreign);
        }
        found.pieces.push(data);
        Ok(Outcome::Done(found))
    }
}

impl Parallel for GatherArrays {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        let mut all = Arrays::default();
        for part in parts {
            let Outcome::Done(part) = part else { return Ok(Outcome::Foreign) };
            // A part without any array has no bytes for its rows.
            if part.rows > 0 && (part.dtype.is_empty() || all.rows > 0 && part.dtype != all.dtype)
                || all.rows > 0 && part.rows > 0 && part.dimensions != all.dimensions
            {
                return Ok(Outcome::Foreign);
            }
            all.missing.extend(part.missing.iter().map(|row| row + all.rows));
            all.rows += part.rows;
            if part.rows > 0 {
                (all.dtype, all.dimensions) = (part.dtype, part.dimensions);
            }
            all.pieces.extend(part.pieces);
        }
        Ok(Outcome::Done(all))
    }
}

/// Adds the array of a row; false if it has another value than those before it, or if there is no
/// memory for it.
fn add<S: Shapes>(
    column: &mut Column,
    row: &Row<'_>,
    shapes: &S,
    found: &mut Arrays,
    data: &mut Vec<u8>,
) -> Result<bool, Corrupt> {
    let size = |found: &Arrays, data: &Vec<u8>| data.len() / found.rows.max(1);
    let array = match column.read(row, shapes)? {
        None | Some((Slot::None, _)) => None,
        Some((slot, record)) => match Array::of_slot(&slot, record, shapes)? {
            Some(array)
                if !array.has_columns_first()
                    && (1..DIMENSION_COUNT_MAX).contains(&array.dimensions.len()) =>
            {
                Some(array)
            }
            _ => return Ok(false),
        },
    };
    match array {
        Some(array) if found.dtype.is_empty() => {
            array.dtype.clone_into(&mut found.dtype);
            found.dimensions.clone_from(&array.dimensions);
            let before = array.stored.data.len().checked_mul(found.rows);
            let Some(before) =
                before.filter(|size| data.try_reserve(*size + array.stored.data.len()).is_ok())
            else {
                return Ok(false);
            };
            data.resize(before, 0);
            data.extend_from_slice(array.stored.data);
        }
        Some(array) if array.is_like(&found.dtype, &found.dimensions) => {
            if data.try_reserve(array.stored.data.len()).is_err() {
                return Ok(false);
            }
            data.extend_from_slice(array.stored.data);
        }
        Some(_) => return Ok(false),
        None => {
            found.missing.push(found.rows);
            if !found.dtype.is_empty() {
                let size = size(found, data);
                if data.try_reserve(size).is_err() {
                    return Ok(false);
                }
                data.resize(data.len() + size, 0);
            }
        }
    }
    found.rows += 1;
    Ok(true)
}
