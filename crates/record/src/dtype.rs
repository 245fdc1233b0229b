//! Checks `NumPy` dtypes and computes the size of an element.
//!
//! Accepted is what NumPy's `dtype.str` and `dtype.descr` write and what NumPy accepts. A file is
//! checked without NumPy, and what passes the check is not refused by it later.
//!
//! ```text
//! dtype  := str | [field, ...]
//! str    := "|b1" | "|i1" | "|u1" | ("|S" | "|V") size | order ("i" | "u") (2 | 4 | 8)
//!         | order "f" (2 | 4 | 8 | 12 | 16) | order "c" (8 | 16 | 24 | 32) | order "U" size
//!         | order ("M8" | "m8") ["[" [count] unit "]"]
//! field  := (name, dtype) | (name, dtype, (dimension, ...))
//! name   := str | (str, str)          // the second form: title and name
//! order  := "<" | ">"
//! ```

use std::collections::HashSet;

use crate::layout::{DEPTH_MAX, Kind, tag};
use crate::shape::Shapes;
use crate::view::{Container, Slot};
use crate::walk::Walker;

/// NumPy stores sizes of elements, and dimensions within one, in C ints.
const SIZE_MAX: u64 = i32::MAX as u64;
/// The limit of dimensions, of an array and of an element.
pub(crate) const DIMENSION_COUNT_MAX: u32 = 64;

/// The size of one element. `None` if this is no dtype.
pub(crate) fn item_size<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S, dtype: &Slot<'_>) -> Option<u64> {
    match dtype {
        Slot::Str(text) => size_of_text(text),
        Slot::Container(fields) => fields_size(bytes, shapes, *fields, DEPTH_MAX).map(|(size, _)| size),
        _ => None,
    }
}

fn size_of_text(text: &[u8]) -> Option<u64> {
    let [order, kind, size @ ..] = text else { return None };
    let has_order = matches!(order, b'<' | b'>');
    match (order, kind) {
        (b'|', b'b' | b'i' | b'u') => (size == b"1").then_some(1),
        (b'|', b'S' | b'V') => number(size),
        (_, b'U') if has_order => number(size)?.checked_mul(4).filter(|size| *size <= SIZE_MAX),
        (_, b'M' | b'm') if has_order => is_time(size).then_some(8),
        (_, b'i' | b'u') if has_order => number(size).filter(|size| matches!(size, 2 | 4 | 8)),
        (_, b'f') if has_order => number(size).filter(|size| matches!(size, 2 | 4 | 8 | 12 | 16)),
        (_, b'c') if has_order => number(size).filter(|size| matches!(size, 8 | 16 | 24 | 32)),
        _ => None,
    }
}

/// A C int without leading zeros.
fn number(digits: &[u8]) -> Option<u64> {
    let is_shortest = matches!(digits, [b'0'] | [b'1'..=b'9', ..]);
    if !is_shortest || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|number| *number <= SIZE_MAX)
}

/// Whether this may follow the kind of a time: 8 bytes, and mostly a unit.
fn is_time(text: &[u8]) -> bool {
    let unit = match text {
        b"8" => return true,
        [b'8', b'[', unit @ .., b']'] => unit,
        _ => return false,
    };
    let digits = unit.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (count, unit) = unit.split_at_checked(digits).unwrap_or_default();
    let is_count = count.is_empty() || number(count).is_some_and(|count| count > 0);
    let units: [&[u8]; 13] =
        [b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as"];
    is_count && units.contains(&unit)
}

/// The size of all fields, and the end of their list in the record.
fn fields_size<S: Shapes + ?Sized>(
    bytes: &[u8],
    shapes: &S,
    fields: Container,
    depth: u32,
) -> Option<(u64, u32)> {
    let depth = depth.checked_sub(1)?;
    if fields.kind != Kind::List {
        return None;
    }
    let mut names = HashSet::new();
    let (mut size, mut walker) = (0, Walker::new(fields));
    while let Some(field) = walker.next(bytes, shapes).ok()? {
        let Slot::Container(field) = field else { return None };
        let (field_size, end) = field_size(bytes, shapes, field, depth, &mut names)?;
        walker.consumed(end).ok()?;
        size += field_size;
        if size > SIZE_MAX {
            return None;
        }
    }
    Some((size, walker.end()))
}

fn field_size<'a, S: Shapes + ?Sized>(
    bytes: &'a [u8],
    shapes: &S,
    field: Container,
    depth: u32,
    names: &mut HashSet<&'a [u8]>,
) -> Option<(u64, u32)> {
    if field.kind != Kind::Tuple || !(2..=3).contains(&field.count) {
        return None;
    }
    let mut walker = Walker::new(field);
    match walker.next(bytes, shapes).ok()?? {
        Slot::Container(both) => {
            let mut parts = Walker::new(both);
            if both.kind != Kind::Tuple || both.count != 2 {
                return None;
            }
            while let Some(name) = parts.next(bytes, shapes).ok()? {
                add_name(&name, names)?;
            }
            walker.consumed(parts.end()).ok()?;
        }
        name => add_name(&name, names)?,
    }
    let mut size = match walker.next(bytes, shapes).ok()?? {
        Slot::Str(text) => size_of_text(text)?,
        Slot::Container(inner) => {
            let (size, end) = fields_size(bytes, shapes, inner, depth)?;
            walker.consumed(end).ok()?;
            size
        }
        _ => return None,
    };
    if let Some(dimensions) = walker.next(bytes, shapes).ok()? {
        let Slot::Container(dimensions) = dimensions else { return None };
        if dimensions.kind != Kind::Tuple || !(1..=DIMENSION_COUNT_MAX).contains(&dimensions.count) {
            return None;
        }
        // Zeros are left out: NumPy multiplies from the left and checks each product.
        let (mut factor, mut is_empty) = (1u64, false);
        for index in 0..dimensions.count {
            let dimension = u64::try_from(dimensions.int(bytes, index)?).ok().filter(|it| *it <= SIZE_MAX)?;
            is_empty |= dimension == 0;
            factor = factor.checked_mul(dimension.max(1)).filter(|factor| *factor <= SIZE_MAX)?;
        }
        size = size.checked_mul(factor).filter(|size| *size <= SIZE_MAX)?;
        size = if is_empty { 0 } else { size };
        walker.consumed(dimensions.heap_start()).ok()?;
    }
    Some((size, walker.end()))
}

/// Adds a name. `None` if it is no name, or a duplicate. NumPy invents another name for an empty
/// one.
fn add_name<'a>(name: &Slot<'a>, names: &mut HashSet<&'a [u8]>) -> Option<()> {
    let name = match name {
        Slot::Str(name) | Slot::Heap { tag: tag::STR_SURROGATES, payload: name, .. } => *name,
        _ => return None,
    };
    (!name.is_empty() && names.insert(name)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_numpy_gives() {
        for (text, size) in [
            ("|b1", Some(1)),
            ("<i8", Some(8)),
            (">u2", Some(2)),
            ("<f16", Some(16)),
            ("<c8", Some(8)),
            ("|S0", Some(0)),
            ("|V2147483647", Some(2_147_483_647)),
            ("<U536870911", Some(2_147_483_644)),
            ("<M8", Some(8)),
            (">m8[25us]", Some(8)),
            ("<M8[W]", Some(8)),
            ("<U536870912", None),
            ("|V2147483648", None),
            ("|V18446744073709551617", None),
            ("|S05", None),
            ("<q9", None),
            ("<i3", None),
            ("|i8", None),
            ("<b1", None),
            ("|O", None),
            ("|O8", None),
            ("<M8[B]", None),
            ("<M8[0s]", None),
            ("<M8[]", None),
            ("<M8[2147483648s]", None),
            ("<i8,<i8", None),
            ("(2,)<i8", None),
            ("<", None),
            ("", None),
        ] {
            assert_eq!(size_of_text(text.as_bytes()), size, "{text}");
        }
    }
}
