//! The views that `keys()`, `values()` and `items()` return.
//!
//! They are live views, as a dict's: they show the current content. Views of keys and items are
//! sets. There is one class for each, for records and tables alike, and all three extend
//! `DictView`, which has the code. Iterating a table's view uses the table's own native iterator.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PySet, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors;
use crate::hot::modules;

/// The mapping that a view shows: a record, a table, or a range of a table.
pub trait Viewed: Send + Sync {
    /// The mapping as an object.
    fn object(&self) -> &Py<PyAny>;

    /// How many keys it has.
    ///
    /// # Errors
    /// What reading it raises.
    fn len(&self, py: Python<'_>) -> PyResult<usize>;

    /// An iterator over the keys, values or items.
    ///
    /// # Errors
    /// What reading it raises.
    fn iterate<'py>(&self, py: Python<'py>, shows: Shows, reverse: bool) -> PyResult<Bound<'py, PyAny>>;

    /// The value of a key; None if there is none.
    ///
    /// # Errors
    /// What reading it raises.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>>;
}

/// Which part of the mapping a view shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Keys.
    Keys,
    /// Values.
    Values,
    /// Pairs of both.
    Items,
}

/// A live view of the keys, values or items of a record or a table.
///
/// As a dict's views, it is sized, iterable both ways, and a set if its elements have hashes.
/// Unlike with a dict's, an iteration over a table sees the state at its start, even if the table
/// changes meanwhile.
///
/// >>> import pellucid
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> keys = table.keys()
/// >>> table.update(a=1, b=2)
/// >>> len(keys), list(reversed(keys)), keys & {"a", "z"}
/// (2, ['b', 'a'], {'a'})
#[pyclass(frozen, subclass, module = "pellucid", name = "DictView")]
pub struct DictView {
    owner: Box<dyn Viewed>,
    shows: Shows,
}

/// The view that `keys()` returns: a `DictView` that is a `collections.abc.KeysView`.
///
/// >>> import collections.abc, pellucid
/// >>> record = pellucid.view(pellucid.dumps({"a": 1, "b": 2}))
/// >>> isinstance(record.keys(), collections.abc.KeysView), list(record.keys())
/// (True, ['a', 'b'])
#[pyclass(frozen, extends = DictView, module = "pellucid", name = "DictKeys")]
pub struct DictKeys;

/// The view that `values()` returns: a `DictView` that is a `collections.abc.ValuesView`.
///
/// >>> import collections.abc, pellucid
/// >>> record = pellucid.view(pellucid.dumps({"a": 1, "b": 2}))
/// >>> isinstance(record.values(), collections.abc.ValuesView), list(record.values())
/// (True, [1, 2])
#[pyclass(frozen, extends = DictView, module = "pellucid", name = "DictValues")]
pub struct DictValues;

/// The view that `items()` returns: a `DictView` that is a `collections.abc.ItemsView`.
///
/// >>> import collections.abc, pellucid
/// >>> record = pellucid.view(pellucid.dumps({"a": 1, "b": 2}))
/// >>> isinstance(record.items(), collections.abc.ItemsView), list(record.items())
/// (True, [('a', 1), ('b', 2)])
#[pyclass(frozen, extends = DictView, module = "pellucid", name = "DictItems")]
pub struct DictItems;

impl DictKeys {
    /// A view of the keys.
    pub fn of(py: Python<'_>, owner: impl Viewed + 'static) -> PyResult<Py<Self>> {
        Py::new(py, (Self, DictView { owner: Box::new(owner), shows: Shows::Keys }))
    }
}

impl DictValues {
    /// A view of the values.
    pub fn of(py: Python<'_>, owner: impl Viewed + 'static) -> PyResult<Py<Self>> {
        Py::new(py, (Self, DictView { owner: Box::new(owner), shows: Shows::Values }))
    }
}

impl DictItems {
    /// A view of the items.
    pub fn of(py: Python<'_>, owner: impl Viewed + 'static) -> PyResult<Py<Self>> {
        Py::new(py, (Self, DictView { owner: Box::new(owner), shows: Shows::Items }))
    }
}

/// Adds the views to the module, and registers them with the abstract classes of `collections.abc`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<DictView>()?;
    module.add_class::<DictKeys>()?;
    module.add_class::<DictValues>()?;
    module.add_class::<DictItems>()?;
    let abc = modules::abstract_classes(py)?;
    for (name, class) in [
        ("KeysView", py.get_type::<DictKeys>()),
        ("ValuesView", py.get_type::<DictValues>()),
        ("ItemsView", py.get_type::<DictItems>()),
    ] {
        abc.getattr(name)?.call_method1("register", (class,))?;
    }
    Ok(())
}

impl DictView {
    fn to_set<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        if self.shows == Shows::Values {
            return Err(PyTypeError::new_err("a view of values is no set"));
        }
        let set = PySet::empty(py)?;
        for element in self.owner.iterate(py, self.shows, false)?.try_iter()? {
            // Raises for items whose values are dicts or records, since these have no hash.
            set.add(element?)?;
        }
        Ok(set)
    }

    fn operate<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        method: &str,
        is_reflected: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.shows == Shows::Values || other.try_iter().is_err() {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let mine = self.to_set(py)?;
        if !is_reflected {
            return mine.call_method1(method, (other,));
        }
        let theirs = PySet::empty(py)?;
        for element in other.try_iter()? {
            theirs.add(element?)?;
        }
        theirs.call_method1(method, (mine,))
    }

    fn shown(&self, py: Python<'_>) -> PyResult<String> {
        const SHOWN_MAX: usize = 20;
        let name = match self.shows {
            Shows::Keys => "keys",
            Shows::Values => "values",
            Shows::Items => "items",
        };
        let mut shown = Vec::new();
        for element in self.owner.iterate(py, self.shows, false)?.try_iter()? {
            if shown.len() == SHOWN_MAX {
                shown.push("...".to_owned());
                break;
            }
            shown.push(element?.repr()?.to_string());
        }
        Ok(format!("{name}([{}])", shown.join(", ")))
    }
}

#[pymethods]
impl DictView {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.owner.object())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.owner.len(py)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.owner.iterate(py, self.shows, false)
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.owner.iterate(py, self.shows, true)
    }

    fn __contains__(&self, py: Python<'_>, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.shows {
            Shows::Keys => Ok(self.owner.get(py, element)?.is_some()),
            Shows::Items => {
                let Ok(pair) = element.cast::<PyTuple>() else { return Ok(false) };
                if pair.len() != 2 {
                    return Ok(false);
                }
                match self.owner.get(py, &pair.get_item(0)?)? {
                    Some(value) => value.eq(pair.get_item(1)?),
                    None => Ok(false),
                }
            }
            Shows::Values => {
                for value in self.owner.iterate(py, self.shows, false)?.try_iter()? {
                    if value?.eq(element)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        errors::shown(py, "DictView", self.shown(py))
    }

    fn __and__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "intersection", false)
    }

    fn __rand__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "intersection", true)
    }

    fn __or__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "union", false)
    }

    fn __ror__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "union", true)
    }

    fn __sub__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "difference", false)
    }

    fn __rsub__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "difference", true)
    }

    fn __xor__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "symmetric_difference", false)
    }

    fn __rxor__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operate(py, other, "symmetric_difference", true)
    }

    /// Return whether the two have no element in common.
    fn isdisjoint(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.to_set(py)?.call_method1("isdisjoint", (other,))?.extract()
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        operation: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.get().shows == Shows::Values {
            let same = slf.is(other);
            return match operation {
                CompareOp::Eq => Ok(same.into_pyobject(py)?.to_owned().into_any()),
                CompareOp::Ne => Ok((!same).into_pyobject(py)?.to_owned().into_any()),
                _ => Ok(py.NotImplemented().into_bound(py)),
            };
        }
        let is_set = other.is_instance(&modules::abstract_classes(py)?.getattr("Set")?)?;
        if !is_set {
            return Ok(py.NotImplemented().into_bound(py));
        }
        // By membership, as a dict's views do it, which needs no hash of the items.
        let (mine, theirs) = (slf.len()?, other.len()?);
        let result = match operation {
            CompareOp::Eq => mine == theirs && all_in(slf.as_any(), other)?,
            CompareOp::Ne => mine != theirs || !all_in(slf.as_any(), other)?,
            CompareOp::Le => mine <= theirs && all_in(slf.as_any(), other)?,
            CompareOp::Lt => mine < theirs && all_in(slf.as_any(), other)?,
            CompareOp::Ge => mine >= theirs && all_in(other, slf.as_any())?,
            CompareOp::Gt => mine > theirs && all_in(other, slf.as_any())?,
        };
        Ok(result.into_pyobject(py)?.to_owned().into_any())
    }

    /// The mapping whose content this view shows.
    #[getter]
    fn mapping<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.owner.object().bind(py).clone()
    }
}

fn all_in(elements: &Bound<'_, PyAny>, container: &Bound<'_, PyAny>) -> PyResult<bool> {
    for element in elements.try_iter()? {
        if !container.contains(element?)? {
            return Ok(false);
        }
    }
    Ok(true)
}
