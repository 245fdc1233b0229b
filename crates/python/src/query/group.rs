//! Implements `group_by` and `agg`: groups of rows, and aggregates for each group.

use std::sync::Arc;

use pellucid_query::expression::{self, Kind as NodeKind, Node, Step};
use pellucid_query::group::{self, Decimals, Group, Room, Total, grouped};
use pellucid_query::work::PART_COUNT;
use pellucid_query::{Column, DecimalSum, Extremes, Sum, Walk};
use pellucid_record::{Shapes, Value};
use pellucid_store::sort::memory_max;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};

use crate::column::{column_of, node_of, with_large};
use crate::errors;
use crate::expression::aggregate::{Aggregate, Kind};
use crate::expression::handle::Expression;
use crate::expression::method::Method;
use crate::expression::operand::refuse_condition;
use crate::hot::callbacks;
use crate::query::handle::Query;
use crate::query::{spec, words};
use crate::values::scalars;
use crate::values::table_ref::TableRef;
use crate::work::plain;
use crate::work::threads::over_parts;
use crate::work::walks::{Parallel, Queried, Source, Stop, Walked, Work, WorkResult};

/// The native aggregate. `node` is its expression, as it reads the rows that were found.
fn native(aggregate: &Aggregate, node: Option<&Node>, decimals: &Decimals) -> PyResult<group::Aggregate> {
    let Some(node) = node else { return Ok(group::Aggregate::Count) };
    let column = column_of(node)?;
    Ok(match aggregate.kind {
        Kind::Count => group::Aggregate::CountOf(column),
        Kind::Sum => group::Aggregate::Sum(column, decimals.clone()),
        Kind::Mean => group::Aggregate::Mean(column, decimals.clone()),
        Kind::Least => group::Aggregate::Least(column),
        Kind::Greatest => group::Aggregate::Greatest(column),
    })
}

/// For `agg`: how many rows there are; with an expression or a field path, how many have it (None
/// counts, a missing field does not).
///
/// >>> import pellucid
/// >>> from pellucid import count
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> table.extend([{"a": 1}, {"b": 2}])
/// 2
/// >>> table.agg(rows=count(), a=count("a"))
/// {'rows': 2, 'a': 1}
#[pyfunction]
#[pyo3(signature = (path=None, /))]
pub fn count(path: Option<&Bound<'_, PyAny>>) -> PyResult<Aggregate> {
    let node = path.map(node_of).transpose()?;
    node.iter().try_for_each(refuse_condition)?;
    Ok(Aggregate { kind: Kind::Count, node })
}

/// The rows of a query in groups; `agg` computes aggregates for each group.
///
/// >>> import pellucid
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> table.extend([{"a": 1}, {"a": 1}, {"a": 2}])
/// 3
/// >>> table.group_by("a").agg(n=pellucid.count())
/// [{'a': 1, 'n': 2}, {'a': 2, 'n': 1}]
#[pyclass(frozen, module = "pellucid", name = "Groups")]
pub struct Groups {
    query: Py<Query>,
    by: Vec<(String, Node)>,
}

const AGG_ALONE: &str =
    "ask agg(n=count(), oldest=F.age.max()), which gives a list with a dict for each group";

impl Groups {
    /// The rows of `query`, grouped by these expressions.
    pub fn new(
        query: &Bound<'_, Query>,
        expressions: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let by = spec::chosen("group_by", expressions, named)?;
        Ok(Self { query: query.clone().unbind(), by })
    }
}

#[pymethods]
impl Groups {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let by: Vec<_> = self.by.iter().map(|(_, node)| node.to_string()).collect();
        Ok(format!("<pellucid.Groups of {} by {}>", self.query.bind(py).repr()?, by.join(", ")))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(words::not_pickled("groups hold"))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __getattr__(&self, name: &str) -> PyResult<()> {
        Err(PyAttributeError::new_err(format!("groups have no attribute {name:?}; {AGG_ALONE}")))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __iter__(&self) -> PyResult<()> {
        Err(errors::type_error(format!("groups are no list to loop over; {AGG_ALONE}")))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __len__(&self) -> PyResult<usize> {
        Err(errors::type_error(format!("groups have no length before they are asked; {AGG_ALONE}")))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __getitem__(&self, _name: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(errors::type_error(format!("groups have no parts by name or index; {AGG_ALONE}")))
    }

    /// A dict for each group, in the order of the values that its rows have in common: these values
    /// and the aggregates.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F, count
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.update(ann={"age": 30, "city": "Bath"}, bob={"age": 20, "city": "Bath"}, cid={"age": 40, "city": "York"})
    /// >>> for row in people.group_by("city").agg(n=count(), oldest=F.age.max()):
    /// ...     print(row)
    /// {'city': 'Bath', 'n': 2, 'oldest': 30}
    /// {'city': 'York', 'n': 1, 'oldest': 40}
    #[pyo3(signature = (*arguments, **aggregates), text_signature = "($self, **aggregates)")]
    fn agg<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        aggregates: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyList>> {
        words::refuse_unnamed(arguments)?;
        aggregated(slf.get().query.bind(slf.py()), &slf.get().by, aggregates)
    }
}

/// Implements `query.agg(...)`: one dict.
pub fn whole<'py>(
    query: &Bound<'py, Query>,
    aggregates: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    aggregated(query, &[], aggregates)?.get_item(0)
}

/// The least or the greatest value of an expression, in the order that `order_by` uses.
pub fn extreme<'py>(of: &impl Queried<'py>, node: &Node, which: Extremes) -> PyResult<Bound<'py, PyAny>> {
    let aggregate = match which {
        Extremes::Least => group::Aggregate::Least,
        Extremes::Greatest => group::Aggregate::Greatest,
    };
    let source = of.source_of_extremes(&[(node, which)])?.map(|source| (source, vec![node.clone()]));
    let total = total(of, source, node, aggregate)?;
    object_of_total(of.py(), &of.table_ref(), "", &total.unwrap_or(Total::Least(None)))
}

/// How many rows have a value of an expression.
pub fn counted<'py>(of: &impl Queried<'py>, node: &Node) -> PyResult<u64> {
    refuse_condition(node)?;
    match total(of, None, node, group::Aggregate::CountOf)? {
        Some(Total::Count(count)) => Ok(count),
        _ => Ok(0),
    }
}

/// The result of one aggregate over all rows, or over those of `source`; None if the table does not
/// exist.
pub fn total<'py>(
    of: &impl Queried<'py>,
    source: Option<(Source, Vec<Node>)>,
    node: &Node,
    aggregate: impl Fn(Column) -> group::Aggregate,
) -> PyResult<Option<Total>> {
    let source = match source {
        None => of.source_of(std::slice::from_ref(node), Walked::InParts)?,
        source => source,
    };
    let Some((source, nodes)) = source else { return Ok(None) };
    let aggregates = vec![aggregate(column_of(nodes.first().unwrap_or(node))?)];
    let work = GroupUp { columns: Vec::new(), aggregates, room: None };
    let group = over_parts(of.py(), &of.table_ref(), source, work)?.into_groups().next();
    Ok(group.and_then(|group| group.totals.into_iter().next()))
}

/// The path of the list whose elements an expression takes with `each()`.
fn list_of(node: &Node) -> Option<&[Step]> {
    if let NodeKind::Field(expression::Source::Record, path) = node.kind() {
        return path.iter().position(|step| *step == Step::Each).and_then(|place| path.get(..place));
    }
    node.kind().parts().into_iter().find_map(|part| list_of(part))
}

/// Refuses an aggregate over elements of a list, if rows are grouped by elements of the same list:
/// each group would aggregate all elements.
fn refuse_same_list(by: &[(String, Node)], aggregate: &Aggregate) -> PyResult<()> {
    let Some(node) = aggregate.node.as_ref().filter(|node| node.branches()) else { return Ok(()) };
    let list = list_of(node);
    match by.iter().find(|(_, other)| other.branches() && list_of(other) == list) {
        None => Ok(()),
        Some((_, other)) => Err(errors::value_error(format!(
            "rows are grouped by each element of a list, {other}, and {} would be of all its elements in each of the groups; aggregate what is \
             not in the list, or store its elements as rows of a table",
            aggregate.__repr__()
        ))),
    }
}

fn aggregated<'py>(
    query: &Bound<'py, Query>,
    by: &[(String, Node)],
    aggregates: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    let (py, table_ref) = (query.py(), query.table_ref());
    let mut names: Vec<_> = by.iter().map(|(name, _)| PyString::intern(py, name)).collect();
    let mut wanted: Vec<Bound<'_, Aggregate>> = Vec::new();
    for (name, aggregate) in aggregates.into_iter().flatten() {
        let Ok(aggregate) = aggregate.cast_exact::<Aggregate>() else {
            return Err(errors::type_error(format!(
                "agg() takes aggregates like {name}=count() or {name}=F.age.mean(), not {}",
                not_aggregate(&aggregate)?
            )));
        };
        refuse_same_list(by, aggregate.get())?;
        wanted.push(aggregate.clone());
        let name = name.cast_into::<PyString>()?;
        if names.iter().any(|other| other.as_any().eq(&name).unwrap_or(false)) {
            return Err(errors::value_error(format!(
                "agg() has {name}, by which rows are grouped; give it another name"
            )));
        }
        names.push(name);
    }
    let groups = found_groups(query, by, &wanted)?;
    let rows = PyList::empty(py);
    let shown: Vec<_> = wanted.iter().map(|wanted| wanted.get().shown()).collect();
    for group in groups.into_groups() {
        let row = PyDict::new(py);
        let values = group.values.iter().map(|value| match value {
            None => Ok(py.None().into_bound(py)),
            Some(value) => object_of(py, &table_ref, value),
        });
        let totals = group.totals.iter().zip(&shown);
        let totals = totals.map(|(total, shown)| object_of_total(py, &table_ref, shown, total));
        for (name, value) in names.iter().zip(values.chain(totals)) {
            row.set_item(name, value?)?;
        }
        rows.append(row)?;
        callbacks::check_signals(py)?;
    }
    Ok(rows)
}

/// The groups of a query's rows, with the results of these aggregates.
fn found_groups<'py>(
    query: &Bound<'py, Query>,
    by: &[(String, Node)],
    wanted: &[Bound<'py, Aggregate>],
) -> PyResult<group::Groups> {
    let (py, table_ref) = (query.py(), query.table_ref());
    let totalled = wanted.iter().filter_map(|aggregate| aggregate.get().node.as_ref());
    let reads: Vec<_> = by.iter().map(|(_, node)| node).chain(totalled).cloned().collect();
    let extremes: Option<Vec<_>> = wanted.iter().map(|aggregate| aggregate.get().extreme()).collect();
    let extremes = extremes.filter(|extremes| by.is_empty() && !extremes.is_empty());
    let grouped = |decimals: &Decimals| {
        let few = match &extremes {
            Some(extremes) => query.source_of_extremes(extremes)?,
            None => None,
        };
        let found = match few {
            Some(source) => Some((source, reads.clone())),
            None => query.source_of(&reads, Walked::InParts)?,
        };
        match found {
            Some((source, nodes)) => {
                over_parts(py, &table_ref, source, GroupUp::new((&nodes, decimals), by.len(), wanted)?)
            }
            None => Ok(GroupUp::new((&reads, decimals), by.len(), wanted)?.of_nothing()),
        }
    };
    let decimals = if scalars::keeps_digits(py)? { Decimals::Added(None) } else { Decimals::Kept };
    let groups = grouped(&decimals)?;
    if groups.lose_digits() { grouped(&Decimals::Kept) } else { Ok(groups) }
}

/// The message for an argument of `agg` that is no aggregate.
fn not_aggregate(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(method) = given.cast_exact::<Method>() {
        return Ok(format!("a method that was not called; write {}", method.get().called(given.py())));
    }
    if let Ok(expression) = given.cast_exact::<Expression>() {
        if let Some(called) = expression.get().meant_call(given.py()) {
            return Ok(format!("the field {}; write {called} for the function", given.repr()?));
        }
        return Ok(format!(
            "the expression {0}; write ({0}).max(), or what else is to be made of its values",
            given.repr()?
        ));
    }
    let kind = given.get_type().name()?;
    Ok(if given.is_callable() {
        format!("{kind}, a function; count() and F.age.max() are called")
    } else {
        kind.to_string()
    })
}

/// The largest number of bytes for the groups of one query.
const GROUPS_SIZE_MAX: usize = 1 << 30;
/// The part of a container's memory that they may take.
const GROUPS_PART: u64 = 2;

#[derive(Clone)]
struct GroupUp {
    columns: Vec<Column>,
    aggregates: Vec<group::Aggregate>,
    /// The memory that the parts of the walk share.
    room: Option<Arc<Room>>,
}

impl GroupUp {
    /// Groups by the first `count` of these expressions; the others are those of the aggregates, in
    /// order.
    fn new(
        (nodes, decimals): (&[Node], &Decimals),
        by_count: usize,
        aggregates: &[Bound<'_, Aggregate>],
    ) -> PyResult<Self> {
        let mut nodes = nodes.iter();
        let columns = nodes.by_ref().take(by_count).map(column_of).collect::<PyResult<_>>()?;
        let native = |aggregate: &Bound<'_, Aggregate>| {
            let aggregate = aggregate.get();
            native(aggregate, aggregate.node.as_ref().and_then(|_| nodes.next()), decimals)
        };
        let aggregates = aggregates.iter().map(native).collect::<PyResult<_>>()?;
        Ok(Self { columns, aggregates, room: None })
    }

    /// The result for a table that does not exist.
    fn of_nothing(&self) -> group::Groups {
        if !self.columns.is_empty() {
            return group::Groups::default();
        }
        group::Groups::one(Group::empty(&self.aggregates))
    }
}

impl Work for GroupUp {
    type Result = group::Groups;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let room = self.room.unwrap_or_else(|| Arc::new(Room::new(memory_max(GROUPS_SIZE_MAX, GROUPS_PART))));
        grouped(rows, shapes, &mut self.columns, &mut self.aggregates, &room, || stop.is_set())
    }
}

impl Parallel for GroupUp {
    fn merge(&self, parts: Vec<Self::Result>, stop: Stop<'_>) -> WorkResult<Self> {
        group::Groups::merge(parts, || stop.is_set())
    }

    fn part_count(&self) -> usize {
        // Each part has most groups: with 16 parts for each of two threads, merging 1,000 groups of
        // 100,000 rows took as long as reading the rows.
        if self.columns.is_empty() { PART_COUNT } else { 4 }
    }

    fn in_parts(&self, _count: usize) -> Self {
        Self { room: Some(Arc::new(Room::new(memory_max(GROUPS_SIZE_MAX, GROUPS_PART)))), ..self.clone() }
    }
}

/// A value as a plain object.
pub fn object_of<'py>(py: Python<'py>, table_ref: &TableRef, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    plain::of_record(py, table_ref, &plain::record_of(value)?, None)
}

/// Adds to Python's own error which values could not be added or divided. `shown` is the aggregate.
fn unlike(py: Python<'_>, table_ref: &TableRef, shown: &str, error: PyErr) -> PyErr {
    let name = table_ref.name(py);
    if !error.is_instance_of::<PyTypeError>(py) {
        return errors::arithmetic(py, error, |why| {
            format!(
                "the {shown} in records of table {name:?} cannot be computed: {why}; choose the values of which it can by where(), or \
                 take column() and convert them"
            )
        });
    }
    let unlike = errors::type_error(format!(
        "numbers in records of table {name:?} cannot all be added to each other: {}; store them as one type, or choose those of one \
         with where()",
        error.value(py)
    ));
    unlike.set_cause(py, Some(error));
    unlike
}

fn object_of_total<'py>(
    py: Python<'py>,
    table_ref: &TableRef,
    shown: &str,
    total: &Total,
) -> PyResult<Bound<'py, PyAny>> {
    let sum_of = |sum: &Sum, decimals: &Decimals, others: &[Value]| -> PyResult<Bound<'py, PyAny>> {
        // Python adds big ints and Decimals. Ints are added first: this way the sum is the same in
        // any order.
        let (large, others): (Vec<_>, Vec<_>) =
            others.iter().partition(|other| matches!(other, Value::BigInt(_)));
        let mut ints = 0i64.into_pyobject(py)?.into_any();
        for int in large {
            ints = ints.add(object_of(py, table_ref, int)?)?;
        }
        let unlike = |error| unlike(py, table_ref, shown, error);
        let mut total = with_large(sum, ints.cast_into::<PyInt>()?).map_err(unlike)?;
        let decimals = decimals.sum().map(DecimalSum::value);
        for other in decimals.iter().chain(others) {
            total = total.add(object_of(py, table_ref, other)?).map_err(unlike)?;
        }
        Ok(total)
    };
    match total {
        Total::Count(count) => Ok(count.into_pyobject(py)?.into_any()),
        Total::Sum(sum, decimals, others) => sum_of(sum, decimals, others),
        Total::Mean(sum, decimals, others) => {
            let decimal_count = decimals.sum().map_or(0, DecimalSum::count);
            match sum.count() + decimal_count + others.len() as u64 {
                0 => Ok(py.None().into_bound(py)),
                count => sum_of(sum, decimals, others)?
                    .div(count)
                    .map_err(|error| unlike(py, table_ref, shown, error)),
            }
        }
        Total::Least(None) | Total::Greatest(None) => Ok(py.None().into_bound(py)),
        Total::Least(Some(best)) | Total::Greatest(Some(best)) => object_of(py, table_ref, &best.value),
    }
}
