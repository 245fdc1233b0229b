//! The methods of `RecordList`: a stored list with the interface of a list.

use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Slot, Walker};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyInt, PyList, PySlice, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::GilValue;
use crate::values::change::{self, Action};
use crate::values::handles::RecordList;
use crate::values::reading::Reading;
use crate::values::record::detached;
use crate::values::{decode, field, notebook, row_errors};

/// The whole list in plain containers.
pub fn to_list<'py>(list: &Bound<'py, RecordList>) -> PyResult<Bound<'py, PyAny>> {
    let py = list.py();
    let node = &list.get().node;
    let place = node.container(py)?;
    decode::plain(py, &Reading::new(&node.row), &Slot::Container(place))
}

fn len(list: &Bound<'_, RecordList>) -> PyResult<usize> {
    Ok(list.get().node.container(list.py())?.len() as usize)
}

fn at<'py>(list: &Bound<'py, RecordList>, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = list.py();
    let node = &list.get().node;
    let place = node.container(py)?;
    let step = OwnedStep::Index(index as i64);
    let reading = Reading::new(&node.row);
    match field::slot_at(py, &node.row, reading.bytes(), &place, &step)? {
        Some(slot) => decode::handle(list.as_any(), &reading, slot, || step).map(Some),
        None => Ok(None),
    }
}

/// Handles on the elements that `choose` selects, given their count; all from one state of the
/// list.
fn elements<'py, I: Iterator<Item = u32>>(
    list: &Bound<'py, RecordList>,
    choose: impl FnOnce(u32) -> PyResult<I>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let node = &list.get().node;
    let place = node.container(list.py())?;
    let indexes = choose(place.len())?;
    decode::element_handles(list.as_any(), &Reading::new(&node.row), &place, indexes)
}

/// Handles on the elements of a slice.
fn slice_of<'py>(
    list: &Bound<'py, RecordList>,
    slice: &Bound<'py, PySlice>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    // The bounds are converted once before the place is looked up, since they may be the user's
    // objects, whose code can change the list.
    slice.indices(len(list)? as isize)?;
    elements(list, |count| {
        let indices = slice.indices(count as isize)?;
        Ok((0..indices.slicelength as isize).map(move |step| (indices.start + step * indices.step) as u32))
    })
}

/// One step of a path from a list; None if it leads to nothing.
pub fn step_into<'py>(
    here: &Bound<'py, PyAny>,
    step: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(list) = here.cast::<RecordList>() else {
        // A tuple or a scalar: tuples are plain objects, and can be indexed.
        return match (here.cast::<PyTuple>(), step.cast::<PyInt>()) {
            (Ok(tuple), Ok(_)) => Ok(tuple.as_any().get_item(step).ok()),
            _ => Ok(None),
        };
    };
    match step.cast::<PyInt>() {
        Ok(_) => match step.extract().map(|index| normalize(list, index)) {
            Ok(index) => index?.map_or(Ok(None), |index| at(list, index)),
            // The index is too large for any list.
            Err(_) => Ok(None),
        },
        Err(_) => Ok(None),
    }
}

fn normalize(list: &Bound<'_, RecordList>, index: isize) -> PyResult<Option<usize>> {
    let count = len(list)? as isize;
    let index = if index < 0 { index + count } else { index };
    Ok((0..count).contains(&index).then_some(index as usize))
}

fn index_of(list: &Bound<'_, RecordList>, key: &Bound<'_, PyAny>, what: &str) -> PyResult<usize> {
    let index: isize = key.extract().map_err(|error: PyErr| {
        // As a list does: other exceptions of the key's own `__index__` are passed on unchanged.
        if error.is_instance_of::<PyOverflowError>(key.py()) {
            errors::index_out_of_range(what)
        } else if error.is_instance_of::<PyTypeError>(key.py()) {
            not_an_index(key)
        } else {
            error
        }
    })?;
    normalize(list, index)?.ok_or_else(|| errors::index_out_of_range(what))
}

fn not_an_index(key: &Bound<'_, PyAny>) -> PyErr {
    let kind = key.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    errors::type_error(format!("list indices must be integers or slices, not {kind}"))
}

fn change(
    list: &Bound<'_, RecordList>,
    step: Option<usize>,
    action: Action,
    values: &[Bound<'_, PyAny>],
) -> PyResult<()> {
    change::change(
        list.py(),
        &list.get().node,
        step.map(|index| OwnedStep::Index(index as i64)),
        action,
        values,
    )
}

/// Applies `work` to a plain copy of the list, and replaces the stored list by the result.
fn rework<'py>(
    list: &Bound<'py, RecordList>,
    work: impl FnOnce(&Bound<'py, PyList>) -> PyResult<()>,
) -> PyResult<()> {
    let plain = to_list(list)?.cast_into::<PyList>()?;
    let count = plain.len();
    work(&plain)?;
    let values: Vec<_> = plain.iter().collect();
    change(list, None, Action::Splice(0, count as i64), &values)
}

/// After how many elements of an iterator signals are checked.
const TAKEN_BETWEEN_SIGNALS: usize = 1024;

fn vector<'py>(values: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut found = Vec::new();
    for value in values.try_iter()? {
        found.push(detached(&value?)?);
        if found.len().is_multiple_of(TAKEN_BETWEEN_SIGNALS) {
            callbacks::check_signals(values.py())?;
        }
    }
    Ok(found)
}

#[pymethods]
impl RecordList {
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        len(slf)
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            return Ok(PyList::new(slf.py(), slice_of(slf, slice)?)?.into_any());
        }
        let index = index_of(slf, key, "list index")?;
        at(slf, index)?.ok_or_else(|| errors::index_out_of_range("list index"))
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(len(slf)? as isize)?;
            if indices.step == 1 {
                let stop = indices.stop.max(indices.start);
                return change(slf, None, Action::Splice(indices.start as i64, stop as i64), &vector(value)?);
            }
            return rework(slf, |plain| plain.as_any().set_item(key, value));
        }
        let index = index_of(slf, key, "list assignment index")?;
        change(slf, Some(index), Action::Set, std::slice::from_ref(value))
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(len(slf)? as isize)?;
            if indices.step == 1 {
                let stop = indices.stop.max(indices.start);
                return change(slf, None, Action::Splice(indices.start as i64, stop as i64), &[]);
            }
            return rework(slf, |plain| plain.as_any().del_item(key));
        }
        let index = index_of(slf, key, "list assignment index")?;
        change(slf, Some(index), Action::Delete, &[])
    }

    fn __iter__(slf: &Bound<'_, Self>) -> ListIterator {
        ListIterator { list: slf.clone().unbind(), next: GilValue::new(Some(0)), walk: GilValue::new(None) }
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let mut elements = elements(slf, |count| Ok(0..count))?;
        elements.reverse();
        Ok(PyList::new(slf.py(), elements)?.try_iter()?.into_any())
    }

    fn __contains__(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        to_list(slf)?.contains(detached(value)?)
    }

    /// Add a value at the end.
    fn append(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        change(slf, None, Action::Append, std::slice::from_ref(value))
    }

    /// Add all values at the end.
    fn extend(slf: &Bound<'_, Self>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = vector(values)?;
        if values.is_empty() { Ok(()) } else { change(slf, None, Action::Append, &values) }
    }

    fn __iadd__(slf: &Bound<'_, Self>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::extend(slf, values)
    }

    /// Insert a value before an index.
    fn insert(slf: &Bound<'_, Self>, index: isize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        change(slf, None, Action::Insert(index as i64), std::slice::from_ref(value))
    }

    /// Remove an element, by default the last one, and return it in plain containers.
    #[pyo3(signature = (index=-1, /), text_signature = "($self, index=-1, /)")]
    fn pop<'py>(slf: &Bound<'py, Self>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let Some(index) = normalize(slf, index)? else {
            return Err(errors::index_out_of_range(if len(slf)? == 0 {
                "pop from empty list: index"
            } else {
                "pop index"
            }));
        };
        let value = at(slf, index)?.ok_or_else(|| errors::index_out_of_range("pop index"))?;
        let value = detached(&value)?;
        change(slf, Some(index), Action::Delete, &[])?;
        Ok(value)
    }

    /// Remove the first element that equals `value`.
    fn remove(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let plain = to_list(slf)?.cast_into::<PyList>()?;
        match plain.as_any().call_method1("index", (detached(value)?,)) {
            Ok(index) => change(slf, Some(index.extract()?), Action::Delete, &[]),
            Err(_) => Err(PyValueError::new_err("list.remove(x): x not in list")),
        }
    }

    /// Remove all elements.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        change::clear(slf.as_any(), &slf.get().node)
    }

    /// Return the index of the first element that equals `value`, from `start` to `stop`.
    #[pyo3(signature = (*arguments), text_signature = "($self, value, start=0, stop=9223372036854775807, /)")]
    fn index<'py>(slf: &Bound<'py, Self>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        to_list(slf)?.call_method1("index", arguments)
    }

    /// Return how many elements equal `value`.
    fn count<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        to_list(slf)?.call_method1("count", (detached(value)?,))
    }

    /// Reverse the list in place.
    fn reverse(slf: &Bound<'_, Self>) -> PyResult<()> {
        rework(slf, pyo3::types::PyListMethods::reverse)
    }

    /// Sort the list in place. `key` gets each element in plain containers (dicts and lists), not
    /// as a record.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["pets"] = [{"age": 3}, {"age": 1}]
    /// >>> db["pets"].sort(key=lambda pet: pet["age"])
    /// >>> db["pets"]
    /// [{'age': 1}, {'age': 3}]
    #[pyo3(signature = (**options), text_signature = "($self, *, key=None, reverse=False)")]
    fn sort(slf: &Bound<'_, Self>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        rework(slf, |plain| plain.as_any().call_method("sort", (), options).map(|_| ()))
    }

    /// Return a detached list with the same elements.
    fn copy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        change::detached_copy(slf.as_any(), &slf.get().node)
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::copy(slf)
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::copy(slf)
    }

    /// Return the whole list in plain containers.
    fn to_list<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_list(slf)
    }

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match detached(other)?.cast_into::<PyList>() {
            Ok(other) => to_list(slf)?.add(other),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match other.cast::<PyList>() {
            Ok(other) => other.as_any().add(to_list(slf)?),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        to_list(slf)?.mul(count)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        to_list(slf)?.mul(count)
    }

    fn __imul__(slf: &Bound<'_, Self>, count: isize) -> PyResult<()> {
        let plain = to_list(slf)?.mul(count)?.cast_into::<PyList>()?;
        let values: Vec<_> = plain.iter().collect();
        change(slf, None, Action::Splice(0, len(slf)? as i64), &values)
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        operation: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match detached(other)?.cast_into::<PyList>() {
            Ok(other) => to_list(slf)?.rich_compare(other, operation),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        notebook::meet_pprint(slf.py())?;
        let text = decode::brief_text(slf.py(), &slf.get().node);
        errors::shown(slf.py(), "RecordList", text)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        PyTuple::new(py, [py.get_type::<PyList>().into_any(), PyTuple::new(py, [to_list(slf)?])?.into_any()])
    }
}

/// The iterator of a stored list. As with a list's, elements appended before its end are included.
///
/// >>> import pellucid
/// >>> numbers = iter(pellucid.view(pellucid.dumps([1, 2])))
/// >>> next(numbers), next(numbers), next(numbers, None)
/// (1, 2, None)
#[pyclass(frozen, module = "pellucid", name = "ListIterator")]
pub struct ListIterator {
    list: Py<RecordList>,
    // None after the end was reached: the iterator stays there, even if elements are appended
    // later.
    next: GilValue<Option<u32>>,
    /// The row's version during the walk, and the walk: no two elements may share bytes, as in
    /// `decode::element_handles`.
    walk: GilValue<Option<(u32, Walker)>>,
}

#[pymethods]
impl ListIterator {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.list)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(index) = self.next.get() else { return Ok(None) };
        let list = self.list.bind(py);
        let node = &list.get().node;
        let place = node.container(py)?;
        let version = node.row.version();
        let mut walker = match self.walk.get() {
            Some((seen, walker)) if seen == version && walker.index() == index => walker,
            // The list has changed, so its elements may have moved.
            _ => Walker::at(place, index),
        };
        let reading = Reading::new(&node.row);
        let slot = walker.next_bounded(reading.bytes(), &*node.row.names);
        let slot = slot.map_err(|error| row_errors::corrupt_row(py, &node.row, &error))?;
        let Some(slot) = slot else {
            self.next.set(None);
            return Ok(None);
        };
        let element = decode::handle(list.as_any(), &reading, slot, || OwnedStep::Index(i64::from(index)))?;
        self.next.set(Some(index + 1));
        self.walk.set(Some((version, walker)));
        Ok(Some(element))
    }
}
