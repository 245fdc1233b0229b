//! Writes the place of a row in a query as a text for a URL, and reads it back.
//!
//!     cursor := base64url(version: u8, checksum: u64, order: u64, code_size: varint, code, key)
//!
//! `order` is a hash of the table's name and of what the query orders by, `code` the bytes that
//! order the row there, `key` the code of its key. The bytes are compared with those of rows, and
//! with nothing else, so that a forged cursor is the place of no row, and does no harm.

use pellucid_query::sort::SortKey;
use pellucid_record::layout::{push_varint, read_varint};
use pyo3::prelude::*;

use crate::errors;
use crate::query::after::After;
use crate::query::spec::Spec;
use crate::query::target::QueryTarget;

const VERSION: u8 = 1;
const HEAD_SIZE: usize = 17;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The cursor of a row.
///
/// # Errors
/// The row is damaged, or a large value that it had when it was read is gone.
pub fn of(spec: &Spec, row: After, table: &QueryTarget, py: Python<'_>) -> PyResult<String> {
    let code = if spec.order.is_empty() {
        Vec::new()
    } else {
        let by = SortKey::new(&spec.order).map_err(|error| errors::value_error(error.to_string()))?;
        match table {
            QueryTarget::Table(table) => row.code(table.bind(py), by)?,
            QueryTarget::Server(table) => row.code_on_server(table.bind(py), by)?,
        }
    };
    let mut body = order_of(spec, table, py).to_le_bytes().to_vec();
    push_varint(&mut body, code.len() as u32);
    body.extend_from_slice(&code);
    body.extend_from_slice(&row.key);
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&hash(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(text_of(&bytes))
}

/// The place that a cursor stands for. Whether it is of the query, `check` says when that runs.
///
/// # Errors
/// `ValueError` if the text is no cursor.
pub fn read(text: &str, table: &QueryTarget, py: Python<'_>) -> PyResult<After> {
    parsed(text).ok_or_else(|| {
        errors::value_error(format!(
            "after() of table {:?} was given a text that is no cursor, or that was changed or cut off; give what cursor(row) \
             returned, or the row itself",
            table.table_ref(py).name(py)
        ))
    })
}

fn parsed(text: &str) -> Option<After> {
    let bytes = bytes_of(text)?;
    let (head, rest) = bytes.split_at_checked(HEAD_SIZE)?;
    let (version, numbers) = head.split_first()?;
    let (checksum, order) = numbers.split_first_chunk::<8>()?;
    let order = u64::from_le_bytes(*order.first_chunk()?);
    if *version != VERSION || hash(bytes.get(9..)?) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let (size, behind) = read_varint(rest, 0)?;
    let (code, key) = rest.get(behind..)?.split_at_checked(size as usize)?;
    (!key.is_empty()).then(|| After::of_cursor(key.to_vec(), order, code.to_vec()))
}

/// Raises if the query begins after a cursor of a query of another table, or in another order.
///
/// # Errors
/// `ValueError`.
pub fn check(spec: &Spec, table: &QueryTarget, py: Python<'_>) -> PyResult<()> {
    match spec.after.as_ref().and_then(|after| after.cursor.as_ref()) {
        Some((order, _)) if *order != order_of(spec, table, py) => {
            let ordered = match spec.shown_order() {
                order if order.is_empty() => "in the order of keys".to_owned(),
                order => format!("ordered by {order}"),
            };
            Err(errors::value_error(format!(
                "after() was given the cursor of another query, and this one is of table {:?}, {ordered}; take cursors \
                 from a query of the same table in the same order",
                table.table_ref(py).name(py)
            )))
        }
        _ => Ok(()),
    }
}

/// A number for the table and the order of a query.
fn order_of(spec: &Spec, table: &QueryTarget, py: Python<'_>) -> u64 {
    let mut text = table.table_ref(py).name(py).to_string();
    for (node, is_descending) in &spec.order {
        text.push('\0');
        text.push_str(&node.to_string());
        text.push(if *is_descending { '-' } else { '+' });
    }
    hash(text.as_bytes())
}

fn hash(bytes: &[u8]) -> u64 {
    pellucid_record::envelope::checksum_of(bytes)
}

fn text_of(bytes: &[u8]) -> String {
    let digit = |word: u32, shift: u32| DIGITS.get((word >> shift & 0x3F) as usize).copied().unwrap_or(b'A');
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for shift in [18, 12, 6, 0].into_iter().take(chunk.len() + 1) {
            text.push(char::from(digit(word, shift)));
        }
    }
    text
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let value = |digit: &u8| {
        Some(match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        })
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0;
        for digit in chunk {
            word = word << 6 | u32::from(value(digit)?);
        }
        let [_, first, second, third] = (word << (6 * (4 - chunk.len()))).to_be_bytes();
        // One text for one cursor: what the last digit has beyond the last byte is 0.
        match (chunk.len(), second, third) {
            (4, ..) => bytes.extend([first, second, third]),
            (3, _, 0) => bytes.extend([first, second]),
            (2, 0, 0) => bytes.push(first),
            _ => return None,
        }
    }
    Some(bytes)
}
