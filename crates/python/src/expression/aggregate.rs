//! The class `Aggregate`: a computation over the values of an expression in many rows.

use pellucid_query::Extremes;
use pellucid_query::expression::Node;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::expression::handle::Expression;

/// A computation over the values of a group or a query: `count()`, `F.age.mean()`.
///
/// >>> import pellucid
/// >>> from pellucid import F, count
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people.update(ann={"age": 30}, bob={"age": 20})
/// >>> people.agg(n=count(), mean=F.age.mean())
/// {'n': 2, 'mean': 25.0}
#[pyclass(frozen, module = "pellucid", name = "Aggregate")]
pub struct Aggregate {
    /// The kind of computation.
    pub kind: Kind,
    /// The expression; None to count rows.
    pub node: Option<Node>,
}

/// The kinds of aggregates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The number of values.
    Count,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
}

impl Aggregate {
    /// The aggregate of an expression, or of rows, to count them.
    pub fn new(kind: Kind, node: Option<Node>) -> Self {
        Self { kind, node }
    }
}

impl Aggregate {
    /// The expression of a `min` or `max` aggregate, and which of the two it is; None for other
    /// kinds.
    pub fn extreme(&self) -> Option<(&Node, Extremes)> {
        let which = match self.kind {
            Kind::Least => Extremes::Least,
            Kind::Greatest => Extremes::Greatest,
            Kind::Count | Kind::Sum | Kind::Mean => return None,
        };
        self.node.as_ref().map(|node| (node, which))
    }

    /// The name of the method of `Expression` that makes this aggregate.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Count => "count",
            Kind::Sum => "sum",
            Kind::Mean => "mean",
            Kind::Least => "min",
            Kind::Greatest => "max",
        }
    }

    /// A text for messages: `sum of n * price`.
    pub fn shown(&self) -> String {
        let name = self.name();
        match &self.node {
            None => format!("{name} of rows"),
            Some(node) => format!("{name} of {node}"),
        }
    }

    fn no_value<T>(&self) -> PyResult<T> {
        Err(errors::type_error(format!(
            "{} is what many rows come to, and no value to compute or compare with: take it by agg(), then compute with what that \
             gives",
            self.__repr__()
        )))
    }
}

#[pymethods]
impl Aggregate {
    fn __richcmp__(&self, _other: &Bound<'_, PyAny>, _operation: CompareOp) -> PyResult<bool> {
        self.no_value()
    }

    fn __hash__(slf: &Bound<'_, Self>) -> u64 {
        slf.as_ptr() as u64
    }

    /// Pickles it as the call that makes it: `Expression.sum(expression)`, `pellucid.count()`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let Some(node) = &self.node else {
            return Ok((py.import("pellucid")?.getattr("count")?, PyTuple::empty(py)));
        };
        let make = py.get_type::<Expression>().getattr(self.name())?;
        Ok((make, PyTuple::new(py, [Bound::new(py, Expression::of(node.clone()))?])?))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __neg__(&self) -> PyResult<()> {
        self.no_value()
    }

    fn __add__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __radd__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __sub__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __rsub__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __mul__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __rmul__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __truediv__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    fn __rtruediv__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.no_value()
    }

    pub fn __repr__(&self) -> String {
        format!("<pellucid.Aggregate {}>", self.shown())
    }
}
