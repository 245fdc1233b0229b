//! Suggests pellucid's name for a method that a query does not have.
//!
//! Other libraries have methods with these names. The `AttributeError` says what does the same
//! here.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::method::Method;

/// Names in other libraries, and what to write instead.
const QUERY_WORDS: &[(&[&str], &str)] = &[
    (
        &["values", "rows", "all", "fetchall", "fetch", "collect", "to_pylist"],
        "iterate it, or take to_list() or to_dicts()",
    ),
    (&["len", "length", "size"], "count() is how many rows there are"),
    (
        &["sort", "sort_by", "sorted", "orderby", "order", "reverse", "desc", "asc"],
        "order_by(F.age.desc()) sorts",
    ),
    (&["skip"], "offset(count) leaves out the first rows"),
    (&["take", "head", "top", "fetchmany"], "limit(count) gives the first rows"),
    (&["last", "tail"], "order_by(...) the other way round, and first()"),
    (&["distinct", "unique", "value_counts"], "group_by(\"city\").agg(n=count()) has each value once"),
    (
        &["map", "apply", "assign", "with_columns", "project", "values_list"],
        "select(\"name\", next=F.age + 1) computes dicts",
    ),
    (&["set", "replace", "modify"], "update(age=F.age + 1) changes the rows"),
    (&["remove", "drop"], "delete() deletes the rows"),
    (&["groupby"], "group_by(\"city\").agg(n=count()) groups"),
    (&["aggregate"], "agg(n=count(), oldest=F.age.max()) aggregates"),
    (
        &["get", "search", "query", "exclude", "filter_by"],
        "where(F.city == \"Bath\") or find(city=\"Bath\") chooses rows",
    ),
    (&["get_or_none", "one_or_none", "scalar", "fetchone"], "first() is the first row, or None"),
    (
        &["to_json", "json", "to_csv", "to_dict"],
        "to_dicts() has plain values, to_polars() a frame that writes files",
    ),
    (&["any", "is_empty", "empty"], "exists() says whether there is any row"),
    (&["avg", "average"], "mean(path) is the mean"),
];

/// The error for a name that a query does not have: it says what to call instead.
pub fn of_query(query: &Bound<'_, PyAny>, name: &str) -> PyErr {
    if name.starts_with('_') {
        return PyAttributeError::new_err(format!("a query has no attribute {name:?}"));
    }
    let known =
        QUERY_WORDS.iter().find(|(words, _)| words.contains(&name)).map(|(_, instead)| (*instead).to_owned());
    let close = || {
        let close = errors::close_match(query.py(), name, errors::public_names(query).ok()?).ok()??;
        Some(format!("did you mean {close}()?"))
    };
    let hint = known.or_else(close).map_or_else(String::new, |hint| format!("; {hint}"));
    PyAttributeError::new_err(format!("a query has no attribute {name:?}{hint}"))
}

/// The error for pickling an object that is bound to an open database: it says what to pickle
/// instead.
pub fn not_pickled(what: &str) -> PyErr {
    errors::type_error(format!(
        "{what} a table of an open database, and cannot be pickled; pickle its expressions, which are values, and the rows that it gives \
         (to_dicts()), and ask again where they are read: db.table(name).where(condition)"
    ))
}

/// Refuses fields by name where conditions are needed.
pub fn refuse_fields(fields: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    match fields.and_then(|fields| fields.keys().into_iter().next()) {
        None => Ok(()),
        Some(name) => {
            let name = name.to_string();
            refuse_double_underscores("where", &name)?;
            Err(errors::type_error(format!(
                "where() takes conditions, as where(F.{name} == ...); find({name}=...) takes fields by name"
            )))
        }
    }
}

/// Refuses a keyword of `update`, `find` or `where` that other libraries take for a field of a
/// field: it would be a field of that very name, which `update` would write into every row, and
/// `find` would find in none.
pub fn refuse_double_underscores(call: &str, name: &str) -> PyResult<()> {
    let parts: Vec<&str> = name.split("__").collect();
    if parts.len() == 1 || parts.iter().any(|part| part.is_empty()) {
        return Ok(());
    }
    let path = parts.join(".");
    let (nested, named) = match call {
        "update" => (format!("update({{{path:?}: ...}})"), format!("update({{{name:?}: ...}})")),
        _ => (
            format!("where(F.{path} == ...) or find(**{{{path:?}: ...}})"),
            format!("where(F.{name} == ...)"),
        ),
    };
    Err(errors::type_error(format!(
        "{call}() takes {}, and {name} would be a field of that very name; a field of a field is {nested}, and a field \
         named {name} is {named}",
        if call == "where" { "conditions" } else { "fields by name" },
    )))
}

/// Refuses arguments that other libraries order by: keywords, a function, a list.
pub fn refuse_orders(expressions: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    const SHOWN: &str = "order_by(F.city, F.age.desc())";
    if let Some(word) = keywords.and_then(|keywords| keywords.keys().into_iter().next()) {
        let instead = match &*word.to_string() {
            "reverse" | "descending" | "desc" | "ascending" => "what descends says so itself",
            _ => "it takes expressions or field paths, one after the other",
        };
        return Err(errors::type_error(format!("order_by() takes no {word}=; {instead}: {SHOWN}")));
    }
    for (place, expression) in expressions.iter().enumerate() {
        if let Ok(text) = expression.cast::<PyString>()
            && let Some(method) = direction_of(&text.to_string_lossy())
            && place > 0
        {
            return Err(errors::value_error(format!(
                "order_by() takes fields alone, and {0} after one would be another: write F.age.{method}() (a field of that very name is F[{0}])",
                text.repr()?
            )));
        }
        if expression.is_instance_of::<PyList>() {
            return Err(errors::type_error(format!(
                "order_by() takes several arguments, not a list of them: {SHOWN}"
            )));
        }
        // A method that was not called gets its own error later.
        if expression.is_callable()
            && !expression.is_instance_of::<Expression>()
            && !expression.is_instance_of::<Method>()
        {
            return Err(errors::type_error(format!(
                "order_by() takes expressions or field paths, and no function: {SHOWN}; sorted(query, key=...) calls one"
            )));
        }
    }
    Ok(())
}

/// The method for the direction that this word names.
fn direction_of(word: &str) -> Option<&'static str> {
    match &*word.to_ascii_lowercase() {
        "desc" | "descending" => Some("desc"),
        "asc" | "ascending" => Some("asc"),
        _ => None,
    }
}

/// Refuses aggregates without a name.
pub fn refuse_unnamed(arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Ok(argument) = arguments.get_item(0) else { return Ok(()) };
    Err(errors::type_error(format!(
        "agg() takes each aggregate under a name, agg(n=count(), oldest=F.age.max()), and {} has none",
        argument.repr()?
    )))
}

/// Refuses positional arguments where fields by name are needed.
pub fn refuse_arguments(arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Ok(argument) = arguments.get_item(0) else { return Ok(()) };
    let instead = if argument.is_instance_of::<PyDict>() {
        "a dict is unpacked, find(**{\"address.city\": \"Bath\"})"
    } else {
        "conditions go to where(F.city == \"Bath\")"
    };
    Err(errors::type_error(format!(
        "find() takes fields by name, as find(city=\"Bath\"), not {}; {instead}",
        errors::a_kind(argument.as_any())?
    )))
}
