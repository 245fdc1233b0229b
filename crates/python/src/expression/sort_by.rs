//! The class `SortBy`: an expression to sort by, and the direction.

use pellucid_query::expression::{Kind, Node};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;

use crate::errors;
use crate::expression::handle::{Expression, shown};

/// An argument of `order_by` with a direction.
///
/// >>> from pellucid import F
/// >>> F.age.desc()
/// F.age.desc()
#[pyclass(frozen, module = "pellucid", name = "SortBy")]
pub struct SortBy {
    /// The expression.
    pub node: Node,
    /// Whether the greatest value comes first.
    pub is_descending: bool,
}

impl SortBy {
    /// The order by this expression.
    pub fn new(node: Node, is_descending: bool) -> Self {
        Self { node, is_descending }
    }
}

#[pymethods]
impl SortBy {
    fn __richcmp__(&self, other: &Bound<'_, PyAny>, _operation: CompareOp) -> PyResult<bool> {
        Err(errors::type_error(format!(
            "{} is an order, and no value to compare with",
            self.__repr__(other.py())?
        )))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> u64 {
        slf.as_ptr() as u64
    }

    /// Pickles it as the call that makes it: `Expression.desc(expression)`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Expression,))> {
        let make = py.get_type::<Expression>().getattr(if self.is_descending { "desc" } else { "asc" })?;
        Ok((make, (Expression::of(self.node.clone()),)))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<()> {
        let shown = shown(py, &self.node);
        Err(errors::type_error(format!("an order is turned round by asc() and desc(): {shown}.asc()")))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = Bound::new(py, Expression::of(self.node.clone()))?.repr()?;
        let shown = match self.node.kind() {
            Kind::Field(..) => shown.to_string(),
            _ => format!("({shown})"),
        };
        Ok(format!("{shown}.{}()", if self.is_descending { "desc" } else { "asc" }))
    }
}
