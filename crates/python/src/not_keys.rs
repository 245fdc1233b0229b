//! Refuse conditions, other expressions and queries in place of a key.
//!
//! As keys they would be missing in every table, without an error. The message says which call was
//! meant.

use pyo3::prelude::*;

use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::operand;
use crate::query::handle::Query;

/// Refuses an object that selects rows in place of a key.
///
/// # Errors
/// `TypeError`, with the call that was meant.
pub fn refuse(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(expression) = object.cast_exact::<Expression>() {
        let shown = errors::brief(object);
        return Err(errors::type_error(if expression.get().node().is_condition() {
            format!(
                "{shown} is a condition, not a key; table.where(condition) is the query of the rows for which it is true, and \
                 where(condition).first(), .exists() and .delete() return, look for and delete such rows"
            )
        } else {
            format!(
                "{shown} is an expression, which has another value in each row, not a key; table.where({shown} == value) \
                 is the query of the rows that have a value there"
            )
        }));
    }
    if object.is_instance_of::<Query>() {
        return Err(errors::type_error(
            "a query is not a key; query.first(), .exists() and .delete() return, look for and delete its rows, and query.keys() \
             has their keys",
        ));
    }
    operand::refuse_unready(object)
}
