//! What is `F.year`, where it is not called?
//!
//! A [`Method`] of an expression, which is called as any method is. Whoever compares it, adds it or names it as a value means the field of that
//! name: a method of Python's own would equal nothing, and say so in silence.

use pellucid_query::expression::{Kind, Node, Source};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};

use super::{Expression, python_text};
use crate::errors;

/// A method of an expression that was not called yet: `F.born.year` without `()`.
///
/// All it can do is be called. A field of the same name is `F["year"]`, and every operator says so with a `TypeError`.
#[pyclass(frozen, module = "pellucid", name = "Method")]
pub struct Method {
    node: Node,
    name: Py<PyString>,
    function: Py<PyAny>,
}

/// The attribute of an expression that Python found: as it is, or for a method one that says what it is no good for.
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

/// Refuses a method where a value is wanted.
///
/// # Errors
/// `TypeError` for a method, with what to write instead.
pub fn refuse(object: &Bound<'_, PyAny>) -> PyResult<()> {
    match object.cast_exact::<Method>() {
        Ok(method) => method.get().refuse(object.py()),
        Err(_) => Ok(()),
    }
}

impl Method {
    fn why(&self, py: Python<'_>) -> String {
        let name = self.name.bind(py).to_string_lossy();
        let shown = python_text::of(py, &self.node).unwrap_or_default();
        if let Kind::Field(Source::Record, _) = self.node.kind() {
            return format!(
                "{shown}.{name} is the method {name}(); the field of that name is {shown}[\"{name}\"]"
            );
        }
        let called = self.called(py);
        format!("{} is the method {name}(), which is called: {called}", called.trim_end_matches("()"))
    }

    /// How it is called.
    pub fn called(&self, py: Python<'_>) -> String {
        let shown = python_text::of(py, &self.node).unwrap_or_default();
        let name = self.name.bind(py).to_string_lossy();
        match self.node.kind() {
            Kind::Field(..) => format!("{shown}.{name}()"),
            _ => format!("({shown}).{name}()"),
        }
    }

    fn refuse<T>(&self, py: Python<'_>) -> PyResult<T> {
        Err(errors::type_error(self.why(py)))
    }
}

#[pymethods]
impl Method {
    /// NumPy's scalars leave operators to it.
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
