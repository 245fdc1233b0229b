//! Holds what a query asks for, and checks the arguments of its methods.

use std::sync::Arc;

use pellucid_query::expression::{Chain, Comparison, Expression as Node_, Kind, Node, Source, Step};
use pellucid_query::selection::Meter;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::column::node_of;
use crate::errors;
use crate::expression::aggregate::Aggregate;
use crate::expression::handle::Expression;
use crate::expression::operand;
use crate::expression::sort_by::SortBy;
use crate::hot::modules;
use crate::query::after::After;

/// What a query asks for: which rows, in which order, which part of them, and what is read of each.
pub struct Spec {
    /// The conditions. All of them must be true.
    pub conditions: Chain,
    /// Python functions that must all return something true.
    pub filters: Vec<Py<PyAny>>,
    /// The sort expressions, first to last, each with whether it is descending.
    pub order: Vec<(Node, bool)>,
    /// The number of rows that are left out first.
    pub offset: u64,
    /// The largest number of rows that are wanted after that.
    pub limit: u64,
    /// The row after which to begin.
    pub after: Option<After>,
    /// The names and expressions of `select`, which gives dicts in place of records.
    pub chosen: Option<Vec<(String, Node)>>,
    /// Counts what the query reads, for `explain()`.
    pub meter: Option<Arc<Meter>>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            conditions: Chain::default(),
            filters: Vec::new(),
            order: Vec::new(),
            offset: 0,
            limit: u64::MAX,
            after: None,
            chosen: None,
            meter: None,
        }
    }
}

impl Spec {
    /// Whether the query asks for all rows of the table, in the order of their keys.
    pub fn is_whole(&self) -> bool {
        self.conditions.count() == 0
            && self.filters.is_empty()
            && self.order.is_empty()
            && (self.offset, self.limit) == (0, u64::MAX)
            && self.after.is_none()
    }

    /// A copy.
    pub fn copy(&self, py: Python<'_>) -> Self {
        Self {
            conditions: self.conditions.clone(),
            filters: self.filters.iter().map(|filter| filter.clone_ref(py)).collect(),
            order: self.order.clone(),
            offset: self.offset,
            limit: self.limit,
            after: self.after.clone(),
            chosen: self.chosen.clone(),
            meter: self.meter.clone(),
        }
    }

    /// The conditions, in the order in which they were added.
    pub fn all_conditions(&self) -> Vec<Node> {
        self.conditions.iter().cloned().collect()
    }

    /// The query as it was typed, as far as that is known.
    pub fn shown(&self, py: Python<'_>, table: &str) -> PyResult<String> {
        let mut shown = vec![format!("<pellucid.Query of table {table:?}")];
        shown.extend(self.conditions.iter().map(|condition| format!("where {}", condition.brief())));
        for filter in &self.filters {
            shown.push(format!("filter {}", filter.bind(py).repr()?));
        }
        if !self.order.is_empty() {
            shown.push(format!("ordered by {}", self.shown_order()));
        }
        if self.after.is_some() {
            shown.push("after a row".to_owned());
        }
        if self.offset > 0 {
            shown.push(format!("offset {}", self.offset));
        }
        if self.limit != u64::MAX {
            shown.push(format!("limit {}", self.limit));
        }
        if let Some(chosen) = &self.chosen {
            let names: Vec<_> = chosen.iter().map(|(name, _)| name.as_str()).collect();
            shown.push(format!("select {}", names.join(", ")));
        }
        Ok(shown.join(", ") + ">")
    }

    /// The sort expressions as text.
    pub fn shown_order(&self) -> String {
        let part = |(node, is_descending): &(Node, bool)| {
            format!("{}{}", node.brief(), if *is_descending { " descending" } else { "" })
        };
        self.order.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Joins all conditions into one; None if there are none.
pub fn all_of(mut conditions: Vec<Node>) -> PyResult<Option<Node>> {
    Ok(match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(node(Kind::all(conditions))?),
    })
}

/// The expression of this kind.
///
/// # Errors
/// `ValueError` if it nests too deep.
pub fn node(kind: Kind) -> PyResult<Node> {
    Node_::new(kind).map_err(|error| errors::value_error(error.to_string()))
}

/// The condition that the field at `path` equals `value`.
pub fn equality(path: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Node> {
    let field = node_of(path)?;
    if let Ok(expression) = value.cast_exact::<Expression>()
        && !matches!(expression.get().node().kind(), Kind::Literal(_))
    {
        return Err(errors::type_error(format!(
            "find() compares fields with values, and {} has another one in each record; where(F.a == F.b) compares two fields, \
             where(F.a > 3) is any other condition",
            expression.get().node().brief()
        )));
    }
    node(Kind::Compare(Comparison::Equal, field, Node_::literal(operand::literal_of(value)?)))
}

/// Refuses an aggregate or an order where the value of one row is needed.
pub fn refuse_aggregate(argument: &Bound<'_, PyAny>) -> PyResult<()> {
    if argument.is_instance_of::<SortBy>() {
        let shown = argument.repr()?;
        return Err(errors::type_error(format!(
            "{shown} is an order, for order_by() and create_index(), and no value of a row"
        )));
    }
    if !argument.is_instance_of::<Aggregate>() {
        return Ok(());
    }
    let shown = argument.repr()?;
    Err(errors::type_error(format!(
        "{shown} is for agg(), as in agg(name=F.age.mean()), and no value of a row"
    )))
}

/// A sort expression, and whether it is descending.
pub fn sort_part(argument: &Bound<'_, PyAny>) -> PyResult<(Node, bool)> {
    if let Ok(part) = argument.cast_exact::<SortBy>() {
        return Ok((part.get().node.clone(), part.get().is_descending));
    }
    if let Ok(text) = argument.cast::<PyString>() {
        // An argument that is no path gets the error for paths.
        refuse_direction(&text.to_string_lossy())?;
    }
    Ok((node_of(argument)?, false))
}

/// Refuses a field name with a direction in it, as other libraries have it.
fn refuse_direction(path: &str) -> PyResult<()> {
    let lower = path.to_ascii_lowercase();
    let name = match path.strip_prefix('-') {
        Some(name) => name,
        None if lower.ends_with(" desc") || lower.ends_with(" asc") => path.split(' ').next().unwrap_or(path),
        None => return Ok(()),
    };
    Err(errors::value_error(format!(
        "{path:?} is no field path to order by: write F.{name}.desc(), or F.{name} to ascend (a field of that very name \
         is F[{path:?}])"
    )))
}

/// A number of rows, from an argument.
pub fn count_of(argument: &Bound<'_, PyAny>, method: &str) -> PyResult<u64> {
    let count: Result<i64, _> = argument.extract();
    match count.map(u64::try_from) {
        Ok(Ok(count)) => Ok(count),
        Ok(Err(_)) => Err(errors::value_error(format!("{method}() takes a count of rows, not {argument}"))),
        Err(error) if error.is_instance_of::<PyOverflowError>(argument.py()) => Err(errors::value_error(
            format!("{method}() takes a count of rows, from 0 to 2**63 - 1, not {}", argument.repr()?),
        )),
        Err(_) => Err(errors::type_error(format!(
            "{method}() takes a count of rows, an int, not {}",
            argument.get_type().name()?
        ))),
    }
}

/// The name of a column that got none: a field's own names, as they are in the records.
fn name_of(node: &Node) -> String {
    let Kind::Field(Source::Record, path) = node.kind() else { return node.to_string() };
    let names = path.iter().map(|step| if let Step::Field(name) = step { Some(&**name) } else { None });
    names.collect::<Option<Vec<_>>>().map_or_else(|| node.to_string(), |names| names.join("."))
}

/// The names and expressions that `select` or `group_by` was given.
pub fn chosen(
    method: &str,
    expressions: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<(String, Node)>> {
    let mut chosen: Vec<(String, Node)> = Vec::new();
    for argument in expressions {
        let name = match argument.cast::<PyString>() {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => name_of(&node_of(&argument)?),
        };
        chosen.push((name, node_of(&argument)?));
    }
    for (name, argument) in named.into_iter().flatten() {
        let name = name.cast_into::<PyString>()?;
        let name = errors::utf8(&name, &format!("{method}()"), "no name of a column can have")?;
        chosen.push((name.to_owned(), node_of(&argument)?));
    }
    if chosen.is_empty() {
        return Err(errors::type_error(format!("{method}() takes at least one expression or field path")));
    }
    for (index, (name, _)) in chosen.iter().enumerate() {
        if chosen.iter().take(index).any(|(other, _)| other == name) {
            return Err(errors::value_error(format!(
                "{method}() has {name:?} twice; give one of them another name: {method}(..., other_name=...)"
            )));
        }
    }
    Ok(chosen)
}

/// The dict that `update` was given.
///
/// # Errors
/// It was given something else.
pub fn changes_of<'py>(changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = changes.py();
    if let Ok(dict) = changes.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    if modules::is_mapping(changes)? {
        return Ok(py.get_type::<PyDict>().call1((changes,))?.cast_into()?);
    }
    Err(errors::type_error(format!(
        "update() takes a dict of field paths and values, or fields by name, as in update(age=F.age + 1), not {}",
        changes.get_type().name()?
    )))
}
