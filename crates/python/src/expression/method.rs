//! Methods of computed expressions that are looked up but not called.
//!
//! `F.name.lower().startswith` without a call is a [`Method`], which can be called like any method.
//! A plain Python method in a comparison would equal nothing, without an error. An attribute of a
//! path is a field, and calling it applies the method of its last name (`of_name`).

use pellucid_query::expression::Node;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};

use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::python_text;

/// A method of a computed expression that was not called: `F.name.lower().startswith` without
/// `(...)`.
///
/// It can only be called; every operator raises a `TypeError` that says so.
#[pyclass(frozen, module = "pellucid", name = "Method")]
pub struct Method {
    node: Node,
    name: Py<PyString>,
    function: Py<PyAny>,
}

/// The attribute that Python found on an expression; a method is wrapped in a `Method`.
pub fn attribute<'py>(
    expression: &Bound<'py, Expression>,
    name: &Bound<'py, PyString>,
    found: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if !found.is_exact_instance_of::<PyCFunction>() || name.to_str()?.starts_with("__") {
        return Ok(found);
    }
    let method =
        Method { node: expression.get().node.clone(), name: name.clone().unbind(), function: found.unbind() };
    Ok(Bound::new(expression.py(), method)?.into_any())
}

/// The method of expressions with this name, to be called with an expression as first argument;
/// `None` if there is none.
///
/// # Errors
/// What the lookup raises.
pub fn of_name<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let class = py.get_type::<Expression>();
    let method = class.getattr_opt(name)?.filter(|_| !name.starts_with('_'));
    Ok(method.filter(PyAnyMethods::is_callable))
}

/// Whether expressions have a method of this name.
pub fn is_name(py: Python<'_>, name: &str) -> bool {
    of_name(py, name).is_ok_and(|method| method.is_some())
}

/// Refuses a method in place of a value.
///
/// # Errors
/// `TypeError` for a method, with a hint what to write instead.
pub fn refuse(object: &Bound<'_, PyAny>) -> PyResult<()> {
    match object.cast_exact::<Method>() {
        Ok(method) => method.get().refuse(object.py()),
        Err(_) => Ok(()),
    }
}

impl Method {
    fn why(&self, py: Python<'_>) -> String {
        let name = self.name.bind(py).to_string_lossy();
        let called = self.called(py);
        format!("{} is the method {name}(), which is called: {called}", called.trim_end_matches("()"))
    }

    /// The call as Python code.
    pub fn called(&self, py: Python<'_>) -> String {
        format!("{}.{}()", python_text::operand(py, &self.node), self.name.bind(py).to_string_lossy())
    }

    fn refuse<T>(&self, py: Python<'_>) -> PyResult<T> {
        Err(errors::type_error(self.why(py)))
    }
}

#[pymethods]
impl Method {
    /// None makes NumPy's scalars leave operators with a method to the method.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    fn array_ufunc() -> Option<()> {
        None
    }

    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(arguments.py()).call(arguments, keywords)
    }

    fn __getattr__<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let text = name.to_str()?;
        if text.starts_with("__") && text.ends_with("__") {
            return self.function.bind(name.py()).getattr(name);
        }
        Err(PyAttributeError::new_err(self.why(name.py())))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<{}>", self.why(py))
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, _operation: CompareOp) -> PyResult<bool> {
        self.refuse(other.py())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<u64> {
        self.refuse(py)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.refuse(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.refuse(py)
    }

    fn __contains__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.refuse(other.py())
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(key.py())
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse(py)
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse(py)
    }

    fn __pos__(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse(py)
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse(py)
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __floordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rfloordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __mod__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }

    fn __rmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.refuse(other.py())
    }
}
